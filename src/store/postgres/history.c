/* SPDX-License-Identifier: MIT */
/* History in PostgreSQL: rows by (shard, span, seq), and one row for each span that says how many it has and from when. They
 * are appended and dropped in the transaction of a record. */

#include <stdint.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

enum { COLUMNS = 9 };

size_t fl__pg_history_room(const fl_history_change *change)
{
    size_t room = 2 * PG_INT_SIZE + COLUMNS * PG_ARRAY_SIZE + 8 * PG_INT_SIZE;
    for (size_t i = 0; i < change->count; i++) {
        const fl_history_row *row = &change->rows[i];
        room +=
            5 * PG_INT_SIZE + 4 * PG_BYTES_SIZE + row->ns.size + row->name.size + row->schedule.size + row->body.size;
    }
    return room;
}

static void put_numbers(struct pg_args *args, const fl_history_change *change,
                        uint64_t (*number)(const fl_history_row *))
{
    fl__pg_array(args, PG_OID_BIGINT, change->count, false);
    for (size_t i = 0; i < change->count; i++)
        fl__pg_item_int(args, number(&change->rows[i]));
    fl__pg_array_end(args);
}

static void put_texts(struct pg_args *args, const fl_history_change *change, fl_bytes (*text)(const fl_history_row *))
{
    fl__pg_array(args, PG_OID_BYTEA, change->count, false);
    for (size_t i = 0; i < change->count; i++)
        fl__pg_item_bytes(args, text(&change->rows[i]));
    fl__pg_array_end(args);
}

#define NUMBER(name, member)                        \
    static uint64_t name(const fl_history_row *row) \
    {                                               \
        return (uint64_t)row->member;               \
    }
#define TEXT(name, member)                          \
    static fl_bytes name(const fl_history_row *row) \
    {                                               \
        return row->member;                         \
    }
NUMBER(get_seq, seq)
NUMBER(get_began, began_us)
NUMBER(get_result, result)
NUMBER(get_id_at, id.at_us)
NUMBER(get_id_seq, id.seq)
TEXT(get_ns, ns)
TEXT(get_name, name)
TEXT(get_schedule, schedule)
TEXT(get_body, body)

static void send_rows(struct pg_shard *shard, struct pg_flight *flight, const fl_history_change *change)
{
    struct pg_args *args = &shard->args;
    fl_history_span span = {0};
    for (size_t i = 0; i < change->count; i++)
        fl__history_note(&span, &change->rows[i]);
    fl__pg_begin_write(shard);
    fl__pg_int(args, change->span);
    put_numbers(args, change, get_seq);
    put_numbers(args, change, get_began);
    put_numbers(args, change, get_result);
    put_numbers(args, change, get_id_at);
    put_numbers(args, change, get_id_seq);
    put_texts(args, change, get_ns);
    put_texts(args, change, get_name);
    put_texts(args, change, get_schedule);
    put_texts(args, change, get_body);
    fl__pg_say(shard, flight, PG_HISTORY_ADD, args);
    fl__pg_begin_write(shard);
    fl__pg_int(args, change->span);
    fl__pg_int(args, span.rows);
    fl__pg_int(args, span.bytes);
    fl__pg_int(args, (uint64_t)span.first_us);
    fl__pg_int(args, (uint64_t)span.last_us);
    fl__pg_say(shard, flight, PG_HISTORY_NOTE, args);
}

void fl__pg_history_send(struct pg_shard *shard, struct pg_flight *flight, const fl_history_change *change)
{
    if (change->drop_below > 0) {
        fl__pg_begin_write(shard);
        fl__pg_int(&shard->args, change->drop_below < INT64_MAX ? change->drop_below : INT64_MAX);
        fl__pg_say(shard, flight, PG_HISTORY_DROP, &shard->args);
        fl__pg_say(shard, flight, PG_HISTORY_SPANS_DROP, &shard->args);
    }
    if (change->count > 0)
        send_rows(shard, flight, change);
}

/* --- Claiming ----------------------------------------------------------------------------------------------------- */

int fl__pg_take_spans(struct pg_flight *flight, const PGresult *result)
{
    size_t count = (size_t)PQntuples(result);
    fl_history_span *spans = flight->spans = fl__alloc((count > 0 ? count : 1) * sizeof *spans);
    if (!spans)
        return FL_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        spans[i] = (fl_history_span){.span = fl__pg_get_int(result, (int)i, 0),
                                     .rows = fl__pg_get_int(result, (int)i, 1),
                                     .bytes = fl__pg_get_int(result, (int)i, 2),
                                     .first_us = (int64_t)fl__pg_get_int(result, (int)i, 3),
                                     .last_us = (int64_t)fl__pg_get_int(result, (int)i, 4)};
    flight->request->claim.spans = spans;
    flight->request->claim.span_count = count;
    return 0;
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

int fl__pg_start_history(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    size_t bytes = request->history.ns.size + request->history.name.size + request->history.schedule.size;
    if (!fl__pg_reserve(args, PG_ARGS_MAX * PG_INT_SIZE + bytes))
        return FL_NO_MEMORY;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->history.span < INT64_MAX ? request->history.span : INT64_MAX);
    fl__pg_int(args, request->history.before_seq > 0 ? request->history.before_seq : INT64_MAX);
    fl__pg_int(args, request->history.limit < INT32_MAX ? request->history.limit + 1 : INT32_MAX);
    fl__pg_int(args, (uint64_t)request->history.from_us);
    fl__pg_int(args, (uint64_t)request->history.until_us);
    fl__pg_bytes(args, request->history.ns);
    fl__pg_bytes(args, request->history.name);
    fl__pg_bytes(args, request->history.schedule);
    fl__pg_int(args, request->history.id_seq < INT64_MAX ? request->history.id_seq : INT64_MAX);
    fl__pg_int(args, request->history.results);
    fl__pg_say(shard, flight, PG_HISTORY, args);
    fl__pg_sync(shard, flight);
    return 0;
}

static fl_history_row get_row(const PGresult *result, int i)
{
    return (fl_history_row){.seq = fl__pg_get_int(result, i, 1),
                            .began_us = (int64_t)fl__pg_get_int(result, i, 2),
                            .result = (uint32_t)fl__pg_get_int(result, i, 3) % FL_HISTORY_RESULTS,
                            .id = {(int64_t)fl__pg_get_int(result, i, 4), fl__pg_get_int(result, i, 5)},
                            .ns = fl__pg_get_bytes(result, i, 6),
                            .name = fl__pg_get_bytes(result, i, 7),
                            .schedule = fl__pg_get_bytes(result, i, 8),
                            .body = fl__pg_get_bytes(result, i, 9)};
}

int fl__pg_take_history(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    bool more;
    int count = fl__pg_page_count(result, request->history.limit, 10, &more);
    fl_history_row *rows = flight->block = fl__alloc((size_t)(count > 0 ? count : 1) * sizeof *rows);
    if (!rows)
        return FL_NO_MEMORY;
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        fl_bytes fits = fl__pg_get_bytes(result, i, 0);
        if (fits.size == 1 && *(const char *)fits.data)
            rows[n++] = get_row(result, i);
    }
    request->history.rows = rows;
    request->history.count = n;
    request->history.next_seq = more ? fl__pg_get_int(result, count - 1, 1) : 0;
    return 0;
}

/* --- Erasing ------------------------------------------------------------------------------------------------------ */

void fl__pg_history_forget(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_store_request *request = flight->request;
    fl__pg_begin_write(shard);
    fl__pg_int(&shard->args, request->forget.span < INT64_MAX ? request->forget.span : INT64_MAX);
    fl__pg_int(&shard->args, request->forget.id_seq < INT64_MAX ? request->forget.id_seq : INT64_MAX);
    fl__pg_bytes(&shard->args, request->forget.ns);
    fl__pg_say(shard, flight, PG_HISTORY_ERASE, &shard->args);
}
