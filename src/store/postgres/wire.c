/* SPDX-License-Identifier: MIT */
/* PostgreSQL's binary formats: numbers with the most significant byte first, bytes as they are. An array is its number of
 * dimensions, whether it has nulls, the type of its items, how many there are and the index of the first; then each item
 * with its length before it, which is -1 for a null. */

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/alloc.h"
#include "store/postgres/wire.h"

enum { NO_VALUE = -1 }; /* the length of an argument that is null */

bool fl__pg_reserve(struct pg_args *args, size_t size)
{
    if (size <= args->room)
        return true;
    unsigned char *data = fl__alloc(size);
    if (!data)
        return false;
    fl__release(args->data);
    args->data = data;
    args->room = size;
    return true;
}

void fl__pg_args_release(struct pg_args *args)
{
    fl__release(args->data);
    *args = (struct pg_args){0};
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

static void put(struct pg_args *args, const void *data, size_t size)
{
    assert(size <= args->room - args->size);
    if (size > 0)
        memcpy(args->data + args->size, data, size);
    args->size += size;
}

static void put_32(struct pg_args *args, uint32_t value)
{
    value = htobe32(value);
    put(args, &value, sizeof value);
}

static void put_64(struct pg_args *args, uint64_t value)
{
    value = htobe64(value);
    put(args, &value, sizeof value);
}

static void open_argument(struct pg_args *args)
{
    assert(args->count < PG_ARGS_MAX);
    args->begin[args->count] = args->size;
}

static void close_argument(struct pg_args *args)
{
    args->length[args->count] = (int)(args->size - args->begin[args->count]);
    args->count++;
}

void fl__pg_begin(struct pg_args *args)
{
    args->size = 0;
    args->count = 0;
}

void fl__pg_int(struct pg_args *args, uint64_t value)
{
    open_argument(args);
    put_64(args, value);
    close_argument(args);
}

void fl__pg_bytes(struct pg_args *args, fl_bytes bytes)
{
    open_argument(args);
    put(args, bytes.data, bytes.size);
    close_argument(args);
}

void fl__pg_key(struct pg_args *args, fl_key key)
{
    open_argument(args);
    put_64(args, (uint64_t)key.at_us);
    put_64(args, key.seq);
    close_argument(args);
}

void fl__pg_null(struct pg_args *args)
{
    open_argument(args);
    args->length[args->count++] = NO_VALUE;
}

void fl__pg_array(struct pg_args *args, uint32_t oid, size_t count, bool with_nulls)
{
    open_argument(args);
    put_32(args, count > 0 ? 1 : 0);
    put_32(args, with_nulls);
    put_32(args, oid);
    if (count > 0) {
        put_32(args, (uint32_t)count);
        put_32(args, 1);
    }
}

void fl__pg_item_int(struct pg_args *args, uint64_t value)
{
    put_32(args, sizeof value);
    put_64(args, value);
}

void fl__pg_item_bytes(struct pg_args *args, fl_bytes bytes)
{
    put_32(args, (uint32_t)bytes.size);
    put(args, bytes.data, bytes.size);
}

void fl__pg_item_null(struct pg_args *args)
{
    put_32(args, UINT32_MAX);
}

void fl__pg_item_key(struct pg_args *args, fl_key key)
{
    put_32(args, 16);
    put_64(args, (uint64_t)key.at_us);
    put_64(args, key.seq);
}

void fl__pg_array_end(struct pg_args *args)
{
    close_argument(args);
}

int fl__pg_send(PGconn *conn, const char *name, const struct pg_args *args)
{
    const char *values[PG_ARGS_MAX];
    int formats[PG_ARGS_MAX];
    int count = args ? args->count : 0;
    for (int i = 0; i < count; i++) {
        values[i] = args->length[i] == NO_VALUE ? NULL : (const char *)args->data + args->begin[i];
        formats[i] = 1;
    }
    return PQsendQueryPrepared(conn, name, count, values, args ? args->length : NULL, formats, 1);
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

static uint64_t get_64(const void *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
    return be64toh(value);
}

uint64_t fl__pg_get_int(const PGresult *result, int row, int column)
{
    return PQgetlength(result, row, column) == 8 ? get_64(PQgetvalue(result, row, column)) : 0;
}

fl_bytes fl__pg_get_bytes(const PGresult *result, int row, int column)
{
    return (fl_bytes){PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column)};
}

fl_row fl__pg_get_row(const PGresult *result, int row, int column)
{
    fl_key key = {(int64_t)fl__pg_get_int(result, row, column + 2), fl__pg_get_int(result, row, column + 1)};
    fl_bytes id = fl__pg_get_bytes(result, row, column + 5);
    return (fl_row){.key = key,
                    .id = id.size == 16 ? (fl_key){(int64_t)get_64(id.data), get_64((const unsigned char *)id.data + 8)}
                                        : key,
                    .window = fl__pg_get_int(result, row, column),
                    .ns = fl__pg_get_bytes(result, row, column + 3),
                    .name = fl__pg_get_bytes(result, row, column + 4),
                    .body = fl__pg_get_bytes(result, row, column + 6)};
}
