/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_POSTGRES_WIRE_H
#define FOLIOT_STORE_POSTGRES_WIRE_H

/* Values in PostgreSQL's binary formats: the arguments of a statement, and the columns of its rows.
 *
 *     if (!pg_args_reserve(args, PG_INT_SIZE + PG_ARRAY_SIZE + n * PG_INT_SIZE))
 *         return FL_NO_MEMORY;
 *     pg_args_begin(args);
 *     pg_int(args, shard);
 *     pg_array(args, PG_OID_BIGINT, n, false);
 *     for (...)
 *         pg_item_int(args, numbers[i]);
 *     pg_array_end(args);
 *
 * Room is made first, so that nothing can fail when a part of a transaction has been sent already.
 */

#include <libpq-fe.h>

#include "store/store.h"

enum { PG_ARGS_MAX = 12, PG_OID_BYTEA = 17, PG_OID_BIGINT = 20 };
enum { PG_INT_SIZE = 12, PG_BYTES_SIZE = 4, PG_ARRAY_SIZE = 24, PG_ID_SIZE = 20 }; /* the room each takes at most */

struct pg_args {
    unsigned char *data;
    size_t size, room;
    int count;
    size_t begin[PG_ARGS_MAX];
    int length[PG_ARGS_MAX];
};

bool fl__pg_reserve(struct pg_args *args, size_t size);
void fl__pg_args_release(struct pg_args *args);

/* A new set of arguments, in the same room. */
void fl__pg_begin(struct pg_args *args);
void fl__pg_int(struct pg_args *args, uint64_t value);
void fl__pg_bytes(struct pg_args *args, fl_bytes bytes);
void fl__pg_key(struct pg_args *args, fl_key key); /* as the 16 bytes of foliot_timer.id */
void fl__pg_null(struct pg_args *args);

/* An argument that is an array of `count` items. */
void fl__pg_array(struct pg_args *args, uint32_t oid, size_t count, bool with_nulls);
void fl__pg_item_int(struct pg_args *args, uint64_t value);
void fl__pg_item_bytes(struct pg_args *args, fl_bytes bytes);
void fl__pg_item_null(struct pg_args *args);
void fl__pg_item_key(struct pg_args *args, fl_key key); /* as the 16 bytes of foliot_timer.id */
void fl__pg_array_end(struct pg_args *args);

int fl__pg_send(PGconn *conn, const char *name, const struct pg_args *args); /* as PQsendQueryPrepared() */

/* A column of a result. A null is 0, or no bytes. */
uint64_t fl__pg_get_int(const PGresult *result, int row, int column);
fl_bytes fl__pg_get_bytes(const PGresult *result, int row, int column);

/* The seven columns of a row, from `column` on. What it points to lives as long as the result. */
fl_row fl__pg_get_row(const PGresult *result, int row, int column);

#endif
