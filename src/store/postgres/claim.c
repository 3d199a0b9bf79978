/* SPDX-License-Identifier: MIT */
/* Claiming a shard takes two exchanges in one transaction. The first locks the shard's row and reads its owner and state. The
 * second writes the claim. Meanwhile the connection serves no other request. */

#include <string.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

void fl__pg_end_stages(struct pg_shard *shard, struct pg_flight *flight)
{
    flight->stage = STAGE_END;
    fl__pg_say(shard, flight, PG_COMMIT, NULL);
    fl__pg_sync(shard, flight);
}

int fl__pg_start_claim(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    if (!fl__pg_reserve(args, 6 * PG_INT_SIZE + strlen(flight->request->claim.owner)))
        return FL_NO_MEMORY;
    shard->chained = true;
    flight->stage = STAGE_FIRST;
    fl__pg_transact(shard, flight);
    if (flight->request->claim.claim_us > 0) {
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_int(args, fl__pg_longest(flight->request->claim.claim_us));
        fl__pg_say(shard, flight, PG_CAP_CLAIM, args);
    }
    fl__pg_begin(args);
    fl__pg_int(args, shard->base.shard);
    fl__pg_say(shard, flight, PG_LOCK, args);
    fl__pg_say(shard, flight, PG_PROGRESS, args);
    fl__pg_say(shard, flight, PG_WINDOWS, args);
    fl__pg_say(shard, flight, PG_COUNTS, args);
    fl__pg_say(shard, flight, PG_HISTORY_SPANS, args);
    fl__pg_sync(shard, flight);
    return 0;
}

static void take_owner(struct pg_flight *flight, const PGresult *result)
{
    const fl_store_request *request = flight->request;
    if (PQntuples(result) != 1) {
        fl__pg_fail(flight, FL_STORE_CORRUPT);
        return;
    }
    int64_t until = (int64_t)fl__pg_get_int(result, 0, 2), now = (int64_t)fl__pg_get_int(result, 0, 3);
    fl_bytes owner = fl__pg_get_bytes(result, 0, 4);
    bool ours = owner.size == strlen(request->claim.owner) && memcmp(owner.data, request->claim.owner, owner.size) == 0;
    if (owner.size > 0 && until > now && !ours && !request->claim.force)
        fl__store_answer(flight->request, FL_SHARD_HELD, "'%.*s' holds the shard for another %.3f s", (int)owner.size,
                         (const char *)owner.data, (double)(until - now) / 1e6);
    flight->version = fl__pg_get_int(result, 0, 0);
}

static void take_progress(struct pg_flight *flight, const PGresult *result)
{
    fl_progress *progress = &flight->request->claim.progress;
    fl_bytes encoded = PQntuples(result) == 1 ? fl__pg_get_bytes(result, 0, 0) : (fl_bytes){0};
    *progress = (fl_progress){.seq_limit = 2};
    int r = encoded.size > 0 ? fl__progress_decode(encoded, progress) : 0;
    if (r < 0)
        fl__pg_fail(flight, r);
    flight->keep = (void *)progress->keep;
}

static void take_windows(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    size_t count = (size_t)PQntuples(result);
    uint64_t *windows = flight->block = fl__alloc((count > 0 ? count : 1) * sizeof *windows);
    if (!windows) {
        fl__pg_fail(flight, FL_NO_MEMORY);
        return;
    }
    for (size_t i = 0; i < count; i++)
        windows[i] = fl__pg_get_int(result, (int)i, 0);
    request->claim.windows = windows;
    request->claim.window_count = count;
}

static void take_counts(struct pg_flight *flight, const PGresult *result)
{
    fl_store_request *request = flight->request;
    size_t count = (size_t)PQntuples(result);
    fl_store_count *counts = flight->counts = fl__alloc((count > 0 ? count : 1) * sizeof *counts);
    if (!counts) {
        fl__pg_fail(flight, FL_NO_MEMORY);
        return;
    }
    for (size_t i = 0; i < count; i++)
        counts[i] = (fl_store_count){fl__pg_get_bytes(result, (int)i, 0), fl__pg_get_int(result, (int)i, 1)};
    request->claim.counts = counts;
    request->claim.count_count = count;
}

/* Rows that are settled do not count. Both are in the order of the namespaces' bytes. */
static void take_over(struct pg_flight *flight, const PGresult *result)
{
    fl_store_count *counts = flight->counts;
    size_t count = flight->request->claim.count_count, i = 0;
    for (int row = 0; row < PQntuples(result); row++) {
        fl_bytes ns = fl__pg_get_bytes(result, row, 0);
        uint64_t over = fl__pg_get_int(result, row, 1);
        while (i < count && (counts[i].ns.size != ns.size || memcmp(counts[i].ns.data, ns.data, ns.size) != 0))
            i++;
        if (i == count || counts[i].rows < over) {
            fl__pg_fail(flight, FL_STORE_CORRUPT);
            return;
        }
        counts[i].rows -= over;
    }
}

void fl__pg_take_claim(struct pg_flight *flight, unsigned what, const PGresult *result)
{
    fl_store_request *request = flight->request;
    if (what == PG_LOCK)
        take_owner(flight, result);
    else if (what == PG_CLAIM && PQntuples(result) == 1)
        request->claim.version = fl__pg_get_int(result, 0, 0);
    else if (what == PG_CLAIM)
        flight->redo = true;
    else if (what == PG_PROGRESS)
        take_progress(flight, result);
    else if (what == PG_WINDOWS)
        take_windows(flight, result);
    else if (what == PG_COUNTS)
        take_counts(flight, result);
    else if (what == PG_HISTORY_SPANS && fl__pg_take_spans(flight, result) < 0)
        fl__pg_fail(flight, FL_NO_MEMORY);
    else if (what == PG_OVER)
        take_over(flight, result);
}

/* The windows that may have settled rows: those that begin before the front. */
static size_t windows_behind(const fl_store_request *request, uint64_t *ret)
{
    const fl_key *front = request->claim.progress.front;
    int64_t front_us = front[0].at_us > front[1].at_us ? front[0].at_us : front[1].at_us;
    size_t count = 0;
    for (size_t i = 0; i < request->claim.window_count; i++)
        if (fl_window_begin(request->claim.windows[i]) <= front_us) {
            if (ret)
                ret[count] = request->claim.windows[i];
            count++;
        }
    return count;
}

static bool send_over(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    const fl_progress *progress = &request->claim.progress;
    size_t count = windows_behind(request, NULL);
    uint64_t *windows = fl__alloc((count + 1) * sizeof *windows);
    size_t room = 2 * PG_ARRAY_SIZE + (16 + count + progress->keep_count) * PG_INT_SIZE;
    bool good = windows && fl__pg_reserve(args, room + strlen(request->claim.owner));
    if (good && count > 0) {
        windows_behind(request, windows);
        fl__pg_begin(args);
        fl__pg_int(args, shard->base.shard);
        fl__pg_progress(args, progress);
        fl__pg_array(args, PG_OID_BIGINT, count, false);
        for (size_t i = 0; i < count; i++)
            fl__pg_item_int(args, windows[i]);
        fl__pg_array_end(args);
        fl__pg_say(shard, flight, PG_OVER, args);
    }
    fl__release(windows);
    return good;
}

void fl__pg_send_claim(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    if (!send_over(shard, flight)) {
        fl__pg_fail(flight, FL_NO_MEMORY);
        fl__pg_end_stages(shard, flight);
        return;
    }
    flight->number = ++shard->number;
    flight->doubt = true;
    flight->stage = STAGE_END;
    fl__pg_begin_write(shard);
    fl__pg_say(shard, flight, PG_COUNT_CLEAR, args);
    fl__pg_begin_write(shard);
    fl__pg_int(args, flight->version);
    fl__pg_int(args, flight->number);
    fl__pg_int(args, fl__pg_claim(request->claim.claim_us));
    fl__pg_bytes(args, (fl_bytes){request->claim.owner, strlen(request->claim.owner)});
    fl__pg_say(shard, flight, PG_CLAIM, args);
    fl__pg_commit(shard, flight);
}
