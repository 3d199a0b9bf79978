/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_POSTGRES_PROXY_H
#define FOLIOT_TESTS_STORE_POSTGRES_PROXY_H

/* A network between a client and the server of pg.h that goes wrong where it is told to.
 *
 * It is a thread that hands bytes on, from a socket of its own to that of the server. A fault is set for what comes from
 * now on: after so many bytes in one direction,
 *
 *     PROXY_CUT     the connection is closed on both sides
 *     PROXY_HANG    nothing more gets through in either direction, until proxy_release(); then everything does, late
 *
 * Besides, proxy_lie() makes commits fail for the client that have succeeded in the server.
 *
 * Only one connection is hit, the one that carries that byte; others, and those that come later, are left alone.
 */

#include <stdbool.h>
#include <stddef.h>

enum proxy_direction { PROXY_UP, PROXY_DOWN }; /* to the server, from it */
enum proxy_fault { PROXY_CUT, PROXY_HANG };

void proxy_start(void);         /* once, after pg_start() */
const char *proxy_folder(void); /* host=… */
void proxy_fail(enum proxy_direction direction, size_t after, enum proxy_fault fault);
void proxy_fail_again(enum proxy_direction direction, size_t after); /* the same fault, counted from the first */
bool proxy_has_failed(void);                                         /* the fault has happened */
void proxy_release(void);                                            /* no fault any more; what hangs goes on */
void proxy_lie(unsigned times, const char *state); /* so many commits that succeed are answered with this SQLSTATE */
unsigned proxy_lies_left(void);
size_t proxy_bytes(enum proxy_direction direction); /* since the last call */

#endif
