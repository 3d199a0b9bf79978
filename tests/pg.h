/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_PG_H
#define FOLIOT_TESTS_PG_H

/* A PostgreSQL server for one test program: in a folder of its own under /tmp, on a socket in that folder.
 *
 *     pg_start(false);                       // once; true: with fsync, for tests of what survives
 *     fl_store_open(pg_url("one"), ...);     // a schema "one", which is made if it is not there
 *     pg_kill();                             // as a crash would: SIGKILL for all of its processes
 *     pg_start(false);                       // the same data again
 *
 * FL_TEST_POSTGRES=postgres://... has programs that do not stop or freeze the server use that one instead, for example Citus.
 *
 * Its superuser is `foliot`, and nobody needs a password, except for a role `locked`, should a test make one. Where
 * PostgreSQL is not installed, all tests of the program are skipped. The server ends with the program, however that
 * ends, and its folder goes with it: a process that watches over it sees to that. Root starts it as the user `postgres`, or `nobody` where there is none, since PostgreSQL refuses to run as root.
 */

#include <stdbool.h>
#include <sys/types.h>

void pg_start(bool with_fsync); /* and waits until it answers */
void pg_stop(void);             /* fast: clients are thrown out, everything is written */
void pg_kill(void);
void pg_freeze(bool frozen); /* stops all of its processes where they are, or lets them go on */

const char *pg_folder(void);                                                   /* where its socket is: host=… */
const char *pg_url(const char *schema);                                        /* valid until the next call */
void pg_sql(const char *format, ...) __attribute__((format(printf, 1, 2)));    /* must succeed */
long pg_number(const char *format, ...) __attribute__((format(printf, 1, 2))); /* the one value it selects; -1: null */

#endif
