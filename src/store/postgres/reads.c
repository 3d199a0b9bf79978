/* SPDX-License-Identifier: MIT */
/* Finding timers by name or ID, and pages of timers and dead letters: single statements. */

#include "base/alloc.h"
#include "store/postgres/postgres.h"

/* --- Finding ------------------------------------------------------------------------------------------------------ */

static bool is_findable(fl_key id)
{
    return id.at_us >= 0 && id.at_us < FL_STORE_TIME_END && id.seq > 0 && id.seq < (uint64_t)1 << 56;
}

/* The wants by name, or those by ID; each with its index. */
static bool next_want(const fl_store_request *request, bool named, size_t *i)
{
    for (; *i < request->find.count; ++*i) {
        const fl_store_want *want = &request->find.wants[*i];
        if (named ? want->name.size > 0 : want->name.size == 0 && is_findable(want->id))
            return true;
    }
    return false;
}

#define EACH_WANT(request, named, i) for (size_t i = 0; next_want((request), (named), &(i)); (i)++)

static void send_find_named(struct pg_shard *shard, struct pg_flight *flight, size_t count)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_array(args, PG_OID_BIGINT, count, false);
    EACH_WANT(request, true, i)
    fl__pg_item_int(args, i);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, count, false);
    EACH_WANT(request, true, i)
    fl__pg_item_bytes(args, request->find.wants[i].ns);
    fl__pg_array_end(args);
    fl__pg_array(args, PG_OID_BYTEA, count, false);
    EACH_WANT(request, true, i)
    fl__pg_item_bytes(args, request->find.wants[i].name);
    fl__pg_array_end(args);
    fl__pg_say(shard, flight, PG_FIND_NAME, args);
}

static void send_find_one(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    EACH_WANT(flight->request, true, i)
    {
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_bytes(args, flight->request->find.wants[i].ns);
        fl__pg_bytes(args, flight->request->find.wants[i].name);
        fl__pg_int(args, i);
        fl__pg_say(shard, flight, PG_FIND_ONE, args);
    }
}

static void send_find_ids(struct pg_shard *shard, struct pg_flight *flight, size_t count)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    for (int column = 0; column < 3; column++) {
        fl__pg_array(args, PG_OID_BIGINT, count * FL__WINDOW_LEVELS, false);
        EACH_WANT(request, false, i)
        {
            uint64_t windows[FL__WINDOW_LEVELS];
            fl__window_candidates(request->find.wants[i].id.at_us, windows);
            for (int level = 0; level < FL__WINDOW_LEVELS; level++)
                fl__pg_item_int(args, column == 0 ? i : column == 1 ? windows[level] : request->find.wants[i].id.seq);
        }
        fl__pg_array_end(args);
    }
    fl__pg_say(shard, flight, PG_FIND_ID, args);
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    for (int column = 0; column < 2; column++) {
        fl__pg_array(args, PG_OID_BIGINT, count, false);
        EACH_WANT(request, false, i)
        fl__pg_item_int(args, column == 0 ? i : request->find.wants[i].id.seq);
        fl__pg_array_end(args);
    }
    fl__pg_say(shard, flight, PG_FIND_MOVED, args);
}

int fl__pg_start_find(struct pg_shard *shard, struct pg_flight *flight)
{
    fl_store_request *request = flight->request;
    size_t ids = 0, names = 0, name_bytes = 0;
    for (size_t i = 0; i < request->find.count; i++)
        request->find.wants[i].found = false;
    EACH_WANT(request, true, i)
    {
        names++;
        name_bytes +=
            PG_INT_SIZE + 2 * PG_BYTES_SIZE + request->find.wants[i].ns.size + request->find.wants[i].name.size;
    }
    EACH_WANT(request, false, i)
    ids++;
    size_t id_bytes = ids * FL__WINDOW_LEVELS * 3 * PG_INT_SIZE;
    if (!fl__pg_reserve(&shard->args, PG_ARGS_MAX * PG_ARRAY_SIZE + (id_bytes > name_bytes ? id_bytes : name_bytes)))
        return FL_NO_MEMORY;
    if (names == 1)
        send_find_one(shard, flight);
    else if (names > 0)
        send_find_named(shard, flight, names);
    if (ids > 0)
        send_find_ids(shard, flight, ids);
    if (names + ids > 0)
        fl__pg_sync(shard, flight);
    return 0;
}

/* An ID is both, time and number. A name is that of the row with the greatest number, should there be two. */
static bool is_better(const fl_store_want *want, const fl_row *row)
{
    if (want->name.size > 0)
        return !want->found || row->key.seq > want->row.key.seq;
    return (row->key.at_us == want->id.at_us && row->key.seq == want->id.seq) ||
           (row->id.at_us == want->id.at_us && row->id.seq == want->id.seq);
}

void fl__pg_take_found(struct pg_flight *flight, PGresult *result)
{
    fl_store_request *request = flight->request;
    for (int i = 0; i < PQntuples(result); i++) {
        uint64_t index = fl__pg_get_int(result, i, 0);
        fl_row row = fl__pg_get_row(result, i, 1);
        if (index < request->find.count && is_better(&request->find.wants[index], &row)) {
            request->find.wants[index].found = true;
            request->find.wants[index].row = row;
        }
    }
}

/* --- Listing ------------------------------------------------------------------------------------------------------ */

static int64_t one_more(size_t limit)
{
    return limit < INT32_MAX ? (int64_t)limit + 1 : INT32_MAX;
}

int fl__pg_page_count(const PGresult *result, size_t limit, int too_long, bool *ret_more)
{
    int got = PQntuples(result), count = 0;
    while (count < got && (size_t)count < limit) {
        fl_bytes flag = fl__pg_get_bytes(result, count, too_long);
        if (flag.size == 1 && *(const char *)flag.data)
            break;
        count++;
    }
    *ret_more = count < got;
    return count;
}

int fl__pg_start_list(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    if (!fl__pg_reserve(args, 8 * PG_INT_SIZE + request->list.ns.size + request->list.prefix.size))
        return FL_NO_MEMORY;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->list.window);
    fl__pg_int(args, request->list.after_seq);
    fl__pg_int(args, (uint64_t)one_more(request->list.limit));
    fl__pg_int(args, (uint64_t)request->list.from_us);
    fl__pg_int(args, (uint64_t)request->list.until_us);
    fl__pg_bytes(args, request->list.ns);
    fl__pg_bytes(args, request->list.prefix);
    fl__pg_say(shard, flight, PG_LIST, args);
    fl__pg_sync(shard, flight);
    return 0;
}

void fl__pg_take_list(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    bool more;
    int count = fl__pg_page_count(result, request->list.limit, 8, &more);
    fl_row *rows = flight->block = fl__alloc((size_t)(count > 0 ? count : 1) * sizeof *rows);
    if (!rows) {
        fl__pg_fail(flight, FL_NO_MEMORY);
        return;
    }
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        fl_bytes fits = fl__pg_get_bytes(result, i, 0);
        if (fits.size == 1 && *(const char *)fits.data)
            rows[n++] = fl__pg_get_row(result, i, 1);
    }
    request->list.rows = rows;
    request->list.count = n;
    request->list.next_seq = more ? fl__pg_get_int(result, count - 1, 2) : 0;
}

int fl__pg_start_count(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    if (!fl__pg_reserve(args, 3 * PG_INT_SIZE + request->count.ns.size))
        return FL_NO_MEMORY;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_bytes(args, request->count.ns);
    fl__pg_bytes(args, (fl_bytes){&request->count.first_byte, 1});
    fl__pg_say(shard, flight, PG_COUNT_WINDOWS, args);
    fl__pg_sync(shard, flight);
    return 0;
}

void fl__pg_take_count(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    size_t count = (size_t)PQntuples(result);
    fl_window_count *windows = flight->block = fl__alloc((count > 0 ? count : 1) * sizeof *windows);
    if (!windows) {
        fl__pg_fail(flight, FL_NO_MEMORY);
        return;
    }
    for (size_t i = 0; i < count; i++)
        windows[i] = (fl_window_count){fl__pg_get_int(result, (int)i, 0), fl__pg_get_int(result, (int)i, 1)};
    request->count.windows = windows;
    request->count.count = count;
}

int fl__pg_start_dead_list(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    uint64_t only = request->dead_list.id_seq;
    if (!fl__pg_reserve(args, 4 * PG_INT_SIZE + request->dead_list.ns.size))
        return FL_NO_MEMORY;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, only > 0 ? only - 1 : request->dead_list.after_seq);
    fl__pg_bytes(args, request->dead_list.ns);
    fl__pg_int(args, only > 0 ? 1 : (uint64_t)one_more(request->dead_list.limit));
    fl__pg_say(shard, flight, PG_DEAD, args);
    fl__pg_sync(shard, flight);
    return 0;
}

static fl_dead_row get_dead(const PGresult *result, int i)
{
    fl_key id = {(int64_t)fl__pg_get_int(result, i, 1), fl__pg_get_int(result, i, 0)};
    return (fl_dead_row){.row = {.key = id,
                                 .id = id,
                                 .ns = fl__pg_get_bytes(result, i, 2),
                                 .name = fl__pg_get_bytes(result, i, 3),
                                 .body = fl__pg_get_bytes(result, i, 4)},
                         .died_us = (int64_t)fl__pg_get_int(result, i, 5),
                         .reason = fl__pg_get_bytes(result, i, 6)};
}

void fl__pg_take_dead_list(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    uint64_t only = request->dead_list.id_seq;
    bool more;
    int count = fl__pg_page_count(result, request->dead_list.limit, 7, &more);
    if (only > 0 && count > 0 && fl__pg_get_int(result, 0, 0) != only) {
        count = 0;
        more = false;
    }
    fl_dead_row *rows = flight->block = fl__alloc((size_t)(count > 0 ? count : 1) * sizeof *rows);
    if (!rows) {
        fl__pg_fail(flight, FL_NO_MEMORY);
        return;
    }
    for (int i = 0; i < count; i++)
        rows[i] = get_dead(result, i);
    request->dead_list.rows = rows;
    request->dead_list.count = (size_t)count;
    request->dead_list.next_seq = more ? rows[count - 1].row.id.seq : 0;
}
