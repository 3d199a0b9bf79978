/* SPDX-License-Identifier: MIT */
/* What goes through the fence. A write is one exchange: begin, fence, statements; commit. */

#include "base/alloc.h"
#include "store/postgres/postgres.h"

/* --- Writes ------------------------------------------------------------------------------------------------------- */

/* Begins the transaction of a write and its fence; `args` has room for it, and for one argument more. */
static void begin_fence(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    shard->chained = true;
    shard->version = flight->request->version;
    flight->number = ++shard->number;
    fl__pg_transact(shard, flight);
    fl__pg_begin_write(shard);
    fl__pg_int(args, flight->request->version < INT64_MAX ? flight->request->version : 0);
    fl__pg_int(args, shard->sent);
    fl__pg_int(args, flight->number);
    shard->sent = flight->number;
}

static void begin_write(struct pg_shard *shard, struct pg_flight *flight)
{
    begin_fence(shard, flight);
    fl__pg_say(shard, flight, PG_FENCE, &shard->args);
}

void fl__pg_commit(struct pg_shard *shard, struct pg_flight *flight)
{
    fl__pg_sync(shard, flight);
    fl__pg_say(shard, flight, PG_COMMIT, NULL);
    fl__pg_sync(shard, flight);
}

int fl__pg_start_renew(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!fl__pg_reserve(&shard->args, 5 * PG_INT_SIZE))
        return FL_NO_MEMORY;
    begin_fence(shard, flight);
    fl__pg_int(&shard->args, fl__pg_claim(flight->request->renew.claim_us));
    fl__pg_say(shard, flight, PG_RENEW, &shard->args);
    fl__pg_commit(shard, flight);
    return 0;
}

int fl__pg_start_release(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!fl__pg_reserve(&shard->args, 4 * PG_INT_SIZE))
        return FL_NO_MEMORY;
    begin_fence(shard, flight);
    fl__pg_say(shard, flight, PG_RELEASE, &shard->args);
    fl__pg_commit(shard, flight);
    return 0;
}

int fl__pg_start_write(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_batch batch;
    fl_store_request *request = flight->request;
    int r = fl__pg_batch_make(shard, request->write.changes, request->write.count, flight->replace, &batch);
    if (r < 0)
        return r;
    begin_write(shard, flight);
    fl__pg_batch_send(shard, flight, &batch);
    fl__pg_batch_release(&batch);
    fl__pg_commit(shard, flight);
    return 0;
}

/* `args` has room for it. */
static void send_record(struct pg_shard *shard, struct pg_flight *flight, const fl_progress *progress,
                        unsigned char *encoded)
{
    size_t size = fl__progress_encode(progress, encoded);
    fl__pg_begin_write(shard);
    fl__pg_bytes(&shard->args, (fl_bytes){encoded, size});
    fl__pg_say(shard, flight, PG_RECORD, &shard->args);
}

int fl__pg_start_record(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_progress *progress = &flight->request->record.progress;
    const fl_history_change *history = &flight->request->record.history;
    size_t size = fl__progress_size(progress);
    unsigned char *encoded = fl__alloc(size);
    if (!encoded || !fl__pg_reserve(&shard->args, 4 * PG_INT_SIZE + size + fl__pg_history_room(history))) {
        fl__release(encoded);
        return FL_NO_MEMORY;
    }
    begin_write(shard, flight);
    fl__pg_history_send(shard, flight, history);
    send_record(shard, flight, progress, encoded);
    fl__pg_commit(shard, flight);
    fl__release(encoded);
    return 0;
}

int fl__pg_start_forget(struct pg_shard *shard, struct pg_flight *flight)
{
    if (!fl__pg_reserve(&shard->args, 8 * PG_INT_SIZE + flight->request->forget.ns.size))
        return FL_NO_MEMORY;
    flight->request->forget.erased = 0;
    begin_write(shard, flight);
    fl__pg_history_forget(shard, flight);
    fl__pg_commit(shard, flight);
    return 0;
}

static void part_windows(const fl_store_request *request, uint64_t windows[64])
{
    int64_t begin = fl_window_begin(request->refile.window);
    for (unsigned i = 0; i < 64; i++)
        windows[i] = fl_window_of(begin + ((int64_t)i << request->refile.shift), request->refile.shift);
}

int fl__pg_start_refile(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    fl_store_request *request = flight->request;
    if (!fl__pg_reserve(args, PG_ARRAY_SIZE + 70 * PG_INT_SIZE))
        return FL_NO_MEMORY;
    request->refile.parts = request->refile.moved = request->refile.more = 0;
    begin_write(shard, flight);
    fl__pg_begin_write(shard);
    fl__pg_int(args, request->refile.window);
    fl__pg_int(args, request->refile.shift);
    fl__pg_int(args, request->refile.limit < INT64_MAX ? request->refile.limit : INT64_MAX);
    fl__pg_say(shard, flight, PG_COUNT_PARTS, args);
    fl__pg_say(shard, flight, PG_COUNT_REFILED, args);
    fl__pg_say(shard, flight, PG_REFILE, args);
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_int(args, request->refile.window);
    fl__pg_say(shard, flight, PG_REST, args);
    if (flight->doubt) { /* what came of it the first time is no longer known: all parts in which there is something */
        uint64_t windows[64];
        part_windows(request, windows);
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_array(args, PG_OID_BIGINT, 64, false);
        for (int i = 0; i < 64; i++)
            fl__pg_item_int(args, windows[i]);
        fl__pg_array_end(args);
        fl__pg_say(shard, flight, PG_PARTS, args);
    }
    fl__pg_commit(shard, flight);
    return 0;
}

void fl__pg_take_refile(struct pg_flight *flight, unsigned what, const PGresult *result)
{
    fl_store_request *request = flight->request;
    if (what == PG_COUNT_PARTS || what == PG_COUNT_REFILED)
        return;
    if (what == PG_REST) {
        request->refile.more = PQntuples(result) > 0;
        return;
    }
    for (int i = 0; i < PQntuples(result); i++) {
        uint64_t window = fl__pg_get_int(result, i, 0);
        int64_t into = fl_window_begin(window) - fl_window_begin(request->refile.window);
        request->refile.parts |= (uint64_t)1 << (into >> request->refile.shift & 63);
        if (what == PG_REFILE)
            request->refile.moved += fl__pg_get_int(result, i, 1);
    }
}

/* --- Finishing ---------------------------------------------------------------------------------------------------- */

static size_t count_spans(const fl_store_request *request, bool whole)
{
    size_t count = 0;
    for (size_t i = 0; i < request->finish.span_count; i++)
        count += request->finish.spans[i].whole == whole;
    return count;
}

static void spans_array(struct pg_args *args, const fl_store_request *request, bool whole)
{
    fl__pg_array(args, PG_OID_BIGINT, count_spans(request, whole), false);
    for (size_t i = 0; i < request->finish.span_count; i++)
        if (request->finish.spans[i].whole == whole)
            fl__pg_item_int(args, request->finish.spans[i].window);
    fl__pg_array_end(args);
}

void fl__pg_progress(struct pg_args *args, const fl_progress *settled)
{
    for (int i = 0; i < 2; i++) {
        fl__pg_int(args, (uint64_t)settled->front[i].at_us);
        fl__pg_int(args, settled->front[i].seq);
    }
    fl__pg_array(args, PG_OID_BIGINT, settled->keep_count, false);
    for (size_t i = 0; i < settled->keep_count; i++)
        fl__pg_item_int(args, settled->keep[i]);
    fl__pg_array_end(args);
}

static void send_settled(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    if (count_spans(flight->request, false) == 0)
        return;
    fl__pg_begin_write(shard);
    fl__pg_progress(args, &flight->request->finish.settled);
    spans_array(args, flight->request, false);
    fl__pg_say(shard, flight, PG_COUNT_SETTLED, args);
    fl__pg_say(shard, flight, PG_SETTLED, args);
}

static void send_drop(struct pg_shard *shard, struct pg_flight *flight)
{
    if (count_spans(flight->request, true) == 0)
        return;
    fl__pg_begin_write(shard);
    spans_array(&shard->args, flight->request, true);
    fl__pg_say(shard, flight, PG_COUNT_DROP, &shard->args);
    fl__pg_say(shard, flight, PG_DROP, &shard->args);
}

/* Entries of moved rows that led into these windows; windows that follow each other are one range. */
static void send_sweep(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_store_request *request = flight->request;
    for (size_t i = 0, next; i < request->finish.span_count; i = next) {
        uint64_t last = request->finish.spans[i].window;
        for (next = i + 1; next < request->finish.span_count; next++) {
            if (fl_window_begin(request->finish.spans[next].window) != fl_window_end(last))
                break;
            last = request->finish.spans[next].window;
        }
        fl__pg_begin_write(shard);
        fl__pg_int(&shard->args, (uint64_t)fl_window_begin(request->finish.spans[i].window));
        fl__pg_int(&shard->args, (uint64_t)fl_window_end(last));
        fl__pg_say(shard, flight, PG_SWEEP, &shard->args);
    }
}

static void send_spans(struct pg_shard *shard, struct pg_flight *flight)
{
    if (flight->request->finish.span_count == 0)
        return;
    send_drop(shard, flight);
    send_settled(shard, flight);
    send_sweep(shard, flight);
}

int fl__pg_start_finish(struct pg_shard *shard, struct pg_flight *flight)
{
    int r = 0;
    fl_store_request *request = flight->request;
    request->finish.deleted = 0;
    size_t size = fl__progress_size(&request->finish.record);
    unsigned char *encoded = fl__alloc(size);
    size_t numbers = 2 * request->finish.span_count + request->finish.settled.keep_count;
    size_t room =
        numbers * PG_INT_SIZE + PG_ARGS_MAX * PG_ARRAY_SIZE + size + fl__pg_history_room(&request->finish.history);
    if (encoded && fl__pg_reserve(&shard->args, room)) {
        begin_write(shard, flight);
        send_spans(shard, flight);
        fl__pg_history_send(shard, flight, &request->finish.history);
        send_record(shard, flight, &request->finish.record, encoded);
        fl__pg_commit(shard, flight);
    } else {
        r = FL_NO_MEMORY;
    }
    fl__release(encoded);
    return r;
}
