/* SPDX-License-Identifier: MIT */
/* Owning the shard: claiming it, extending the claim before it expires, and restarting with a new claim. */

#include <sys/random.h>
#include <sys/timerfd.h>

#include "engine/internal.h"

/* The previous owner may have seen a later time than the clock says now. This is treated like a clock that was set back. */
static void follow_front(fl_engine *e)
{
    for (int kind = 0; kind < 2; kind++)
        if (e->wall_us <= e->front[kind].at_us)
            e->wall_us = e->front[kind].at_us + 1;
    fl__engine_look_at_clock(e);
}

bool fl_engine_owns(fl_engine *engine)
{
    return engine->state == ENGINE_RUNNING && fl_loop_update_now(engine->loop) < engine->claim_end_ns;
}

/* Called before every batch, and reads the clock: the batch before may have taken long, or the process may have stood
 * still. */
bool fl__engine_may_fire(fl_engine *e)
{
    return !e->config.wait && fl_engine_owns(e);
}

void fl_engine_go(fl_engine *engine)
{
    engine->config.wait = false;
    fl__fire_soon(engine);
}

static void renewed(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->own_busy);
    e->own_busy = false;
    if (!fl__engine_answered(e, request))
        return;
    if (request->result == 0) {
        e->claim_end_ns = e->claim_asked_ns + e->config.claim_us * NS_PER_US;
        fl__fire_soon(e); /* firing may have waited for this */
    } else {
        fl__alarm_set(e, &e->renew_alarm, e->config.claim_us * NS_PER_US / 10);
    }
}

static void renew(fl_engine *e)
{
    fl__alarm_set(e, &e->renew_alarm, e->config.claim_us * NS_PER_US / 3);
    if (e->state != ENGINE_RUNNING || e->own_busy)
        return;
    e->own_request.arg = e;
    e->own_request.renew.claim_us = e->config.claim_us;
    e->claim_asked_ns = fl_loop_update_now(e->loop);
    e->own_busy = true;
    fl__engine_submit_request(e, &e->own_request, FL_STORE_RENEW, renewed);
}

static int copy_kept(fl_engine *e, const fl_progress *progress)
{
    e->recovered_count = 0;
    if (progress->keep_count == 0)
        return 0;
    uint64_t *kept = fl__resize(e->recovered, progress->keep_count * sizeof *kept);
    if (!kept)
        return FL_NO_MEMORY;
    memcpy(kept, progress->keep, progress->keep_count * sizeof *kept);
    e->recovered = kept;
    e->recovered_count = progress->keep_count;
    return 0;
}

static int make_wheels(fl_engine *e)
{
    for (int kind = 0; kind < 2; kind++) {
        /* The wheel begins in 1970, so missed timers are ahead of it. It follows `until`. */
        int r = e->wheel[kind] ? 0 : fl__memory_fresh_wheel(e, kind, 0);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Takes the number of unsettled timers of each namespace from the store. */
static int count_all(fl_engine *e, const fl_store_request *request)
{
    fl__count_none(e);
    for (size_t i = 0; i < request->claim.count_count; i++) {
        uint32_t space;
        int r = fl__space(e, request->claim.counts[i].ns, &space);
        if (r < 0)
            return r;
        fl__count(e, space, (int64_t)request->claim.counts[i].rows);
    }
    return 0;
}

/* Numbers begin with the clock, two per microsecond, unless more have been used. So if a backup is restored, timers that are
 * created afterwards do not get the IDs of those that the backup does not have. */
static uint64_t first_seq(const fl_engine *e, const fl_progress *progress)
{
    uint64_t by_clock = (uint64_t)fl__engine_read_clock(e) * 2;
    return progress->seq_limit > by_clock ? progress->seq_limit : by_clock;
}
_Static_assert((UINT64_MAX / NS_PER_US) * 2 < SEQ_MAX, "the clock leaves numbers");

static int take_over(fl_engine *e, const fl_store_request *request)
{
    const fl_progress *progress = &request->claim.progress;
    int r = copy_kept(e, progress);
    fl__assert(e->state == ENGINE_CLAIMING && !e->load_busy && !e->refile_busy && e->loaded == 0);
    if (r == 0)
        r = make_wheels(e);
    e->window_count = 0;
    e->last_window = 0;
    if (r == 0)
        r = fl__windows_reserve(e, request->claim.window_count + 1);
    if (r == 0)
        r = fl__history_take_over(e, request);
    if (r == 0)
        r = count_all(e, request);
    if (r < 0)
        return r;
    e->version = request->claim.version;
    e->recovering = true;
    e->front[0] = progress->front[0];
    e->front[1] = progress->front[1];
    e->until = (fl_key){0};
    e->stuck_bytes = 0;
    e->seq_next = first_seq(e, progress);
    e->seq_granted = e->seq_next;
    e->preload_us = e->config.preload_us;
    e->split_count = 0;
    memset(e->opened, 0, sizeof e->opened);
    for (size_t i = 0; i < request->claim.window_count; i++)
        fl__windows_inherit(e, request->claim.windows[i]);
    return 0;
}

/* Releases a claim that was granted after the engine was told to stop. It records progress as it found it. */
static void give_back(fl_engine *e)
{
    if (e->state == ENGINE_STOPPING && !e->now)
        fl__engine_release(e);
}

/* The store has recorded the reserved sequence numbers: the engine may begin. */
static void begun(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->record_busy);
    e->record_busy = false;
    fl__engine_answered(e, request);
    if (e->state != ENGINE_CLAIMING) {
        give_back(e);
        return;
    }
    if (request->result < 0) { /* whatever the error was, a new claim corrects it */
        fl__engine_trouble(e, request->result, request->message);
        fl__alarm_set(e, &e->renew_alarm, SECOND_US * NS_PER_US / 5);
        return;
    }
    fl__assert(request->record.progress.seq_limit > e->seq_next);
    e->seq_granted = request->record.progress.seq_limit;
    e->state = ENGINE_RUNNING;
    e->claim_end_ns = e->claim_asked_ns + e->config.claim_us * NS_PER_US;
    follow_front(e);
    e->claimed_us = e->clock_us;
    e->catch_up_us = e->config.catch_up_rate > 0 ? e->claimed_us : 0;
    e->catch_up_tokens = 1;
    fl__alarm_set(e, &e->renew_alarm, e->config.claim_us * NS_PER_US / 3);
    fl__alarm_set(e, &e->record_alarm, e->config.record_interval_us * NS_PER_US);
    fl__alarm_set(e, &e->delete_alarm, e->config.delete_interval_us * NS_PER_US);
    fl__engine_load(e);
    fl__ops_begin_early(e);
    fl__lists_go_on(e);
    fl__history_go_on(e);
    fl__fire_soon(e);
}

static void claimed(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->own_busy);
    e->own_busy = false;
    fl__engine_answered(e, request);
    if (e->state != ENGINE_CLAIMING) {
        e->now |= request->result < 0;
        e->version = request->claim.version;
        give_back(e);
        return;
    }
    int r = request->result < 0 ? request->result : take_over(e, request);
    if (r < 0) {
        enum fl_engine_event event = r == FL_SHARD_HELD ? FL_ENGINE_HELD : FL_ENGINE_TROUBLE;
        e->stats.store_errors += r != FL_SHARD_HELD;
        if (e->config.notify)
            e->config.notify(e->config.arg, e, event, r, request->result < 0 ? request->message : fl_strerror(r));
        fl__alarm_set(e, &e->renew_alarm, e->config.claim_us * NS_PER_US / 5);
        return;
    }
    fl__assert(!e->record_busy);
    fl_store_request *record = &e->record_request;
    record->arg = e;
    record->record.progress = (fl_progress){.front = {e->front[0], e->front[1]},
                                            .keep = e->recovered,
                                            .keep_count = e->recovered_count,
                                            .seq_limit = e->seq_next + SEQ_RESERVE,
                                            .pending = e->stats.pending};
    record->record.history = (fl_history_change){0};
    e->record_busy = true;
    fl__engine_submit_request(e, record, FL_STORE_RECORD, begun);
}

void fl__engine_claim(fl_engine *e)
{
    if (e->own_busy || e->record_busy)
        return;
    fl__assert(e->state == ENGINE_CLAIMING);
    e->own_request.arg = e;
    e->own_request.claim.owner = e->owner;
    e->own_request.claim.claim_us = e->config.claim_us;
    e->own_request.claim.force = e->config.force;
    e->claim_asked_ns = fl_loop_update_now(e->loop);
    e->own_busy = true;
    fl__engine_submit_request(e, &e->own_request, FL_STORE_CLAIM, claimed);
}

void fl__engine_renew_or_claim(fl_engine *e)
{
    if (e->state == ENGINE_CLAIMING)
        fl__engine_claim(e);
    else
        renew(e);
}
