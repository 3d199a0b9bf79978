/* SPDX-License-Identifier: MIT */
/* Reading whole windows. A load has the connection for itself and reads page by page in one snapshot, each page from the number at which
 * the one before ended: that is one step of the index, it bounds what is in memory, and it works the same in every database. The next
 * page is asked for before the rows of the last one are handed on. If the connection breaks, a load goes on where it was: nothing of ours
 * can have been written since. */

#include "base/alloc.h"
#include "store/postgres/postgres.h"

enum { PAGE_FIRST = 128, PAGE_MAX = 1024, PAGE_BYTES = 1 << 20 };

int fl__pg_start_load(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    fl_store_request *request = flight->request;
    if (!flight->load.cut)
        request->load.more = false;
    if (request->load.window_count == 0)
        return 0;
    if (!fl__pg_reserve(args, PG_ARRAY_SIZE + (8 + request->load.window_count) * PG_INT_SIZE))
        return FL_NO_MEMORY;
    flight->block = fl__alloc(PAGE_MAX * sizeof(fl_row));
    if (!flight->block)
        return FL_NO_MEMORY;
    flight->stage = STAGE_FIRST;
    fl__pg_say(shard, flight, PG_BEGIN_READ, NULL);
    if (!flight->load.cut) {
        flight->load.page = PAGE_FIRST;
        flight->load.end = (fl_key){request->load.until_us, 0};
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_array(args, PG_OID_BIGINT, request->load.window_count, false);
        for (size_t i = 0; i < request->load.window_count; i++)
            fl__pg_item_int(args, request->load.windows[i]);
        fl__pg_array_end(args);
        fl__pg_int(args, (uint64_t)request->load.from.at_us);
        fl__pg_int(args, request->load.from.seq);
        fl__pg_int(args, (uint64_t)request->load.until_us);
        fl__pg_int(args, request->load.limit < INT64_MAX ? request->load.limit : INT64_MAX - 1);
        fl__pg_say(shard, flight, PG_CUT, args);
    }
    fl__pg_sync(shard, flight);
    return 0;
}

void fl__pg_take_cut(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    flight->load.cut = true;
    request->load.more = PQntuples(result) > 0;
    if (request->load.more) {
        request->load.next = (fl_key){(int64_t)fl__pg_get_int(result, 0, 0), fl__pg_get_int(result, 0, 1)};
        flight->load.end = request->load.next;
    }
}

static void send_page(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->load.windows[flight->load.window]);
    fl__pg_int(args, flight->load.after_seq);
    fl__pg_int(args, (uint64_t)request->load.from.at_us);
    fl__pg_int(args, request->load.from.seq);
    fl__pg_int(args, (uint64_t)flight->load.end.at_us);
    fl__pg_int(args, flight->load.end.seq);
    fl__pg_int(args, flight->load.page);
    fl__pg_say(shard, flight, PG_PAGE, args);
    fl__pg_sync(shard, flight);
    fl__pg_flush(shard);
}

/* Where the next page begins, and how large it should be. */
static void turn_page(struct pg_flight *flight, const PGresult *result, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += 100 + (size_t)PQgetlength(result, i, 6);
    if ((uint32_t)count < flight->load.page) {
        flight->load.window++;
        flight->load.after_seq = 0;
    } else {
        flight->load.after_seq = fl__pg_get_int(result, count - 1, 1);
    }
    if (count > 0) {
        size_t fit = PAGE_BYTES / (bytes / (size_t)count);
        flight->load.page = fit < 1 ? 1 : fit > PAGE_MAX ? PAGE_MAX : (uint32_t)fit;
    }
}

void fl__pg_go_on_loading(struct pg_shard *shard, struct pg_flight *flight)
{
    fl_store_request *request = flight->request;
    PGresult *result = flight->kept_count > 0 ? flight->kept[--flight->kept_count] : NULL;
    int count = result ? PQntuples(result) : 0;
    if (result)
        turn_page(flight, result, count);
    flight->stage = STAGE_MIDDLE;
    if (flight->load.window < request->load.window_count)
        send_page(shard, flight);
    else
        fl__pg_end_stages(shard, flight);
    fl_row *rows = flight->block;
    for (int i = 0; i < count; i++)
        rows[i] = fl__pg_get_row(result, i, 0);
    if (count > 0)
        request->load.rows(request, rows, (size_t)count);
    PQclear(result);
}
