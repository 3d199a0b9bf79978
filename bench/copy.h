/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_COPY_H
#define FOLIOT_BENCH_COPY_H

/* Rows for PostgreSQL's COPY … FROM STDIN BINARY: what the quickest way into a table is measured with.
 *
 *     copy_begin(conn, "COPY t (id, body) FROM STDIN BINARY");
 *     at = copy_columns(buffer, 2);
 *     at = copy_number(at, id);
 *     at = copy_bytes(at, body, size);
 *     copy_send(conn, buffer, at);
 *     copy_end(conn);
 *
 * What fails ends the program. */

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

enum { COPY_HEAD = 19, COPY_NUMBER = 12 }; /* bytes before the first row; of a bigint */

void copy_begin(PGconn *conn, const char *sql);
void copy_send(PGconn *conn, const char *begin, const char *end); /* whole rows */
void copy_end(PGconn *conn);

/* Takes the result of a COPY, in either direction, when all rows have been sent or read. */
void copy_finish(PGconn *conn);

/* Parts of a row, each with the room that it needs at `at`; they return where the next one goes. */
char *copy_columns(char *at, unsigned count); /* begins a row */
char *copy_number(char *at, uint64_t number); /* a bigint */
char *copy_bytes(char *at, const void *data, uint32_t size);

#endif
