/* SPDX-License-Identifier: MIT */
/* The life of an engine.
 *
 *     claiming ──> running ──> stopping ──> gone
 *        ^  ^         │  └───> lost ───────────┘
 *        │  └─ held   v
 *        └──── restarting
 *
 * Restarting is the answer to everything that must not happen halfway, above all to a lack of memory in the middle of
 * something: the engine forgets what it has in memory and begins as after a crash, with another claim. That repeats what was
 * settled since the last record and loses nothing.
 *
 * A claim runs out. It is renewed three times before that; when the renewals have not been answered for so
 * long that it may have run out, by the loop's clock and counted from when the last good one was asked for, nothing fires
 * until one is.
 */

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "engine/internal.h"

/* --- Time --------------------------------------------------------------------------------------------------------- */

enum { TOLERATED_US = 1000000 }; /* set back by less: time stands still until it has caught up */

/* The wheels count nanoseconds in 64 bits, up to the year 2554. A clock that says more is taken to say this, which leaves a
 * day for what is loaded ahead. */
#define NOW_MOST_US ((int64_t)(UINT64_MAX / NS_PER_US - 86400 * SECOND_US))

static int64_t read_clock(const fl_engine *e)
{
    int64_t now_us = e->config.clock->now_us(e->config.clock);
    return now_us < 0 ? 0 : now_us < NOW_MOST_US ? now_us : NOW_MOST_US;
}

static void look_at_clock(fl_engine *e)
{
    int64_t now_us = read_clock(e);
    e->wall_seen_ns = fl_loop_now_ns(e->loop);
    e->clock_us = now_us;
    if (now_us >= e->wall_us) {
        e->wall_us = now_us;
    } else if (e->wall_us - now_us > TOLERATED_US && !e->set_back) {
        e->set_back = true;
        e->back_us = now_us;
        fl__engine_flush_soon(e);
    } else if (e->set_back && now_us < e->back_us) {
        e->back_us = now_us;
    }
}

/* The wall clock's time in this turn of the loop. It does not go back while anything is decided. */
int64_t fl__engine_now(fl_engine *e)
{
    if (e->wall_seen_ns != fl_loop_now_ns(e->loop))
        look_at_clock(e);
    return e->wall_us;
}

/* What is filed now is filed by this: nothing is written before a clock that was set back has been seen to. */
int64_t fl__engine_filing_now(fl_engine *e)
{
    int64_t now_us = fl__engine_now(e);
    return e->set_back ? e->clock_us : now_us;
}

/* Even if it has been set forth again meanwhile: something may have been filed by what it said. */
static void follow_clock(fl_engine *e)
{
    look_at_clock(e);
    fl__progress_set_back(e);
    look_at_clock(e);
}

void fl_engine_clock_changed(fl_engine *engine)
{
    look_at_clock(engine);
    fl__fire_soon(engine);
    if (engine->state == ENGINE_RUNNING)
        fl__alarm_set(engine, &engine->load_alarm, 0);
}

/* The earliest there can be in the store and not in memory. */
static int64_t next_unloaded(const fl_engine *e)
{
    int64_t next_us = INT64_MAX;
    for (size_t i = 0; i < e->window_count; i++) {
        int64_t begin_us = fl_window_begin(e->windows[i]);
        if (begin_us >= fl__lanes_begin_us())
            continue; /* FL_TIME_NEVER_US */
        if (begin_us < e->until.at_us)
            begin_us = e->until.at_us;
        if (fl_window_end(e->windows[i]) > e->until.at_us && begin_us < next_us)
            next_us = begin_us;
    }
    return next_us;
}

/* When something in memory comes near that is in no wheel yet; or when it may be due, if nothing is done about it now. */
static int64_t next_unarmed(const fl_engine *e, int64_t now_us)
{
    int64_t arm_us = fl__memory_arm_next_us(e);
    return arm_us > now_us ? arm_us : arm_us + ((int64_t)1 << SPAN_SHIFT);
}

/* Whether something is under way that will end by itself. */
static bool is_busy(const fl_engine *e)
{
    if (e->outstanding > 0 || e->flushing)
        return true;
    return e->state != ENGINE_LOST && (e->state != ENGINE_RUNNING || !e->ready || e->set_back || e->queued ||
                                       e->to_repeat.count > 0 || e->in_doubt || e->unsure_count > 0);
}

bool fl_engine_idle(fl_engine *engine, int64_t *ret_next_us)
{
    fl_engine *e = engine;
    if (is_busy(e))
        return false;
    bool lost = e->state == ENGINE_LOST;
    if (!lost &&
        fl__engine_now(e) > e->clock_us) { /* set back a little: nothing fires before the clock has caught up */
        *ret_next_us = e->wall_us;
        return true;
    }
    int64_t now_us = fl__engine_now(e), next_us = lost ? INT64_MAX : next_unloaded(e);
    if (next_us <= now_us && !fl__load_has_room(e))
        next_us = INT64_MAX; /* it waits for what is in memory */
    for (int kind = 0; kind < 2 && !lost; kind++) {
        uint64_t at_ns;
        bool stuck = e->config.wait || !fl__fire_has_room(e, kind);
        if (!stuck && e->flights.late[kind].count > 0)
            return false;
        if (!stuck && fl_wheel_next_deadline(e->wheel[kind], &at_ns) && (int64_t)(at_ns / NS_PER_US) < next_us)
            next_us = (int64_t)(at_ns / NS_PER_US);
    }
    if (!lost && !e->config.wait && fl__fire_has_room(e, 0)) {
        int64_t near_us = next_unarmed(e, now_us);
        next_us = near_us < next_us ? near_us : next_us;
    }
    if (next_us <= now_us)
        return false;
    *ret_next_us = next_us;
    return true;
}

/* The kernel tells when the clock is set, through a timer that never expires. */
static void clock_was_set(fl_loop *loop, int fd, unsigned events, void *arg)
{
    uint64_t count;
    (void)loop, (void)events;
    if (read(fd, &count, sizeof count) < 0 && errno == ECANCELED) {
        struct itimerspec never = {.it_value.tv_sec = INT64_MAX / 1000000000};
        timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL);
        fl_engine_clock_changed(arg);
    }
}

/* Without it, the engine looks at the clock when it has something to do, at the latest at the next renewal. */
static void watch_clock(fl_engine *e)
{
    struct itimerspec never = {.it_value.tv_sec = INT64_MAX / 1000000000};
    e->clock_fd = -1;
    if (e->config.clock != fl_wall_clock_system())
        return;
    int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0)
        return;
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, NULL) < 0 ||
        fl_loop_fd_add(e->loop, fd, FL_READ, clock_was_set, e) < 0)
        close(fd);
    else
        e->clock_fd = fd;
}

/* --- Alarms ------------------------------------------------------------------------------------------------------- */

#define LONG_NS (3600 * SECOND_US * NS_PER_US)

static void ring(fl_loop *loop, void *arg)
{
    struct alarm *alarm = arg;
    (void)loop;
    alarm->fn(alarm->engine);
}

static int make_alarm(fl_engine *e, struct alarm *alarm, alarm_fn *fn)
{
    alarm->engine = e;
    alarm->fn = fn;
    return fl_loop_interval(e->loop, LONG_NS, FL_INTERVAL_FROM_CALLBACK, ring, alarm, &alarm->id);
}

/* Should there be no memory even for that, it rings when it would have rung. */
void fl__alarm_set(fl_engine *e, struct alarm *alarm, uint64_t delay_ns)
{
    fl_loop_rearm(e->loop, alarm->id, delay_ns < LONG_NS ? delay_ns : LONG_NS);
}

static void drop_alarm(fl_engine *e, struct alarm *alarm)
{
    if (alarm->id)
        fl_loop_cancel(e->loop, alarm->id);
    alarm->id = 0;
}

static void drop_alarms(fl_engine *e)
{
    drop_alarm(e, &e->fire_alarm);
    drop_alarm(e, &e->load_alarm);
    drop_alarm(e, &e->renew_alarm);
    drop_alarm(e, &e->record_alarm);
    drop_alarm(e, &e->delete_alarm);
    drop_alarm(e, &e->ask_alarm);
}

/* --- Once a turn -------------------------------------------------------------------------------------------------- */

static void settle_down(fl_engine *e);

static void turn(fl_loop *loop, void *arg)
{
    fl_engine *e = arg;
    (void)loop;
    e->flushing = false;
    e->flush_id = 0;
    if (e->state == ENGINE_RUNNING) {
        if (e->set_back)
            follow_clock(e);
        if (e->fire_asked)
            fl__engine_fire(e);
        fl__flush(e);
        fl__ops_deliver(e);
    } else {
        fl__ops_refuse_all(e, fl__engine_refusal(e));
        fl__ops_deliver(e);
        settle_down(e);
    }
}

/* What has come in during this turn of the loop goes out at its end. */
void fl__engine_flush_soon(fl_engine *e)
{
    if (e->flushing || e->state == ENGINE_GONE)
        return;
    e->flushing = true;
    if (fl_loop_immediate(e->loop, turn, e, &e->flush_id) < 0) {
        e->flushing = false; /* no memory: then later */
        fl__alarm_set(e, &e->fire_alarm, 0);
    }
}

/* Why nothing is begun in a state other than running. */
int fl__engine_refusal(const fl_engine *e)
{
    if (e->state == ENGINE_LOST)
        return FL_SHARD_LOST;
    return e->state == ENGINE_CLAIMING || e->state == ENGINE_RESTARTING ? FL_STORE_UNAVAILABLE : FL_STOPPED;
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

void fl__engine_submit_request(fl_engine *e, fl_store_request *request, enum fl_store_op op,
                               void (*done)(fl_store_request *))
{
    request->op = op;
    request->version = e->version;
    request->done = done;
    e->outstanding++;
    fl_store_submit(e->shard, request);
}

void fl__engine_trouble(fl_engine *e, int result, const char *message)
{
    e->stats.store_errors++;
    if (e->config.notify)
        e->config.notify(e->config.arg, e, FL_ENGINE_TROUBLE, result, message);
}

static void lose(fl_engine *e, const char *message)
{
    e->state = ENGINE_LOST;
    fl__ops_refuse_all(e, FL_SHARD_LOST);
    if (e->config.notify)
        e->config.notify(e->config.arg, e, FL_ENGINE_LOST, FL_SHARD_LOST, message);
    fl__lists_go_on(e); /* refuses them */
    fl__history_clear(e);
    fl__history_go_on(e);
}

/* Every answer passes here first. False: the engine is no longer running. */
bool fl__engine_answered(fl_engine *e, fl_store_request *request)
{
    e->outstanding--;
    if (request->result == FL_SHARD_LOST && (e->state == ENGINE_RUNNING || e->state == ENGINE_RESTARTING))
        lose(e, request->message);
    else if (request->result < 0 && request->result != FL_SHARD_LOST && e->state == ENGINE_RUNNING)
        fl__engine_trouble(e, request->result, request->message);
    if (e->outstanding == 0 && e->state != ENGINE_RUNNING)
        fl__engine_flush_soon(e);
    return e->state == ENGINE_RUNNING;
}

/* --- Owning ------------------------------------------------------------------------------------------------------- */

/* The owner before may have seen a later time than the clock says now: as if it had been set back under our eyes. */
static void follow_front(fl_engine *e)
{
    for (int kind = 0; kind < 2; kind++)
        if (e->wall_us <= e->front[kind].at_us)
            e->wall_us = e->front[kind].at_us + 1;
    look_at_clock(e);
}

bool fl_engine_owns(fl_engine *engine)
{
    return engine->state == ENGINE_RUNNING && fl_loop_update_now(engine->loop) < engine->claim_end_ns;
}

/* Asked before every batch, and by the clock itself: the batch before may have taken long, or the process was stopped. */
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
    e->own_busy = false;
    if (!fl__engine_answered(e, request))
        return;
    if (request->result == 0) {
        e->claim_end_ns = e->claim_asked_ns + e->config.claim_us * NS_PER_US;
        fl__fire_soon(e); /* it may have waited for this */
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
        /* In 1970: whatever has been missed is still ahead. It follows `until`. */
        int r = e->wheel[kind] ? 0 : fl_wheel_new(&(fl_wheel_config){.start_ns = 0}, &e->wheel[kind]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The store has counted what is not settled. */
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
    uint64_t by_clock = (uint64_t)read_clock(e) * 2;
    return progress->seq_limit > by_clock ? progress->seq_limit : by_clock;
}
_Static_assert((UINT64_MAX / NS_PER_US) * 2 < SEQ_MAX, "the clock leaves numbers");

static int take_over(fl_engine *e, const fl_store_request *request)
{
    const fl_progress *progress = &request->claim.progress;
    int r = copy_kept(e, progress);
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

static void claim(fl_engine *e);
static void release(fl_engine *e);

/* A claim that was made while the engine was told to stop. What there is to record is as it was found. */
static void give_back(fl_engine *e)
{
    if (e->state == ENGINE_STOPPING && !e->now)
        release(e);
}

/* The numbers that may be used from now on are recorded: the engine may begin. */
static void begun(fl_store_request *request)
{
    fl_engine *e = request->arg;
    e->record_busy = false;
    fl__engine_answered(e, request);
    if (e->state != ENGINE_CLAIMING) {
        give_back(e);
        return;
    }
    if (request->result < 0) { /* whatever it was, another claim will do */
        fl__engine_trouble(e, request->result, request->message);
        fl__alarm_set(e, &e->renew_alarm, SECOND_US * NS_PER_US / 5);
        return;
    }
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

static void claim(fl_engine *e)
{
    if (e->own_busy || e->record_busy)
        return;
    e->own_request.arg = e;
    e->own_request.claim.owner = e->owner;
    e->own_request.claim.claim_us = e->config.claim_us;
    e->own_request.claim.force = e->config.force;
    e->claim_asked_ns = fl_loop_update_now(e->loop);
    e->own_busy = true;
    fl__engine_submit_request(e, &e->own_request, FL_STORE_CLAIM, claimed);
}

static void renew_or_claim(fl_engine *e)
{
    if (e->state == ENGINE_CLAIMING)
        claim(e);
    else
        renew(e);
}

/* --- Ending ------------------------------------------------------------------------------------------------------- */

static void forget_all(fl_engine *e)
{
    fl__ops_refuse_all(e, fl__engine_refusal(e));
    assert(!e->in_doubt);
    fl__memory_clear(e);
    e->unsure_count = 0;
    e->delete_count = 0;
    e->retreat = e->set_back = e->ready = false;
}

/* What must not be done by halves is not done: see above. */
void fl__engine_restart(fl_engine *e, const char *why)
{
    if (e->state != ENGINE_RUNNING)
        return;
    fl__engine_trouble(e, FL_NO_MEMORY, why);
    e->state = ENGINE_RESTARTING;
    fl__engine_flush_soon(e);
}

static void gone(fl_loop *loop, void *arg)
{
    fl_engine *e = arg;
    fl_loop_fn stopped = e->stopped;
    void *stopped_arg = e->stopped_arg;
    fl__ops_deliver(e);
    for (uint32_t i = 1; i < e->flights.used; i++)
        if (e->flights.list[i].state == FLIGHT_ORPHAN)
            fl__flight_end(e, i);
    fl__spaces_free(&e->spaces);
    fl__hash_free(&e->locks);
    fl__lanes_free(&e->lanes);
    fl__history_free(e);
    fl__images_destroy(&e->images);
    void *blocks[] = {e->spans, e->flights.list, e->flights.table, e->windows, e->load_windows, e->split,     e->unsure,
                      e->keep,  e->spans_done,   e->delete_keys,   e->due,     e->firings,      e->recovered, e};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        fl__release(blocks[i]);
    if (stopped)
        stopped(loop, stopped_arg);
}

static void leave(fl_engine *e)
{
    e->state = ENGINE_GONE;
    fl__ops_begin_early(e); /* refuses them */
    fl__lists_go_on(e);
    fl__history_go_on(e);
    drop_alarms(e);
    if (e->flush_id)
        fl_loop_cancel(e->loop, e->flush_id);
    if (e->clock_fd >= 0) {
        fl_loop_fd_remove(e->loop, e->clock_fd);
        close(e->clock_fd);
    }
    forget_all(e);
    fl__count_none(e);
    fl__ops_deliver(e);
    fl_store_detach(e->shard, gone, e);
}

static void released(fl_store_request *request)
{
    fl_engine *e = request->arg;
    e->own_busy = false;
    e->released = true;
    fl__engine_answered(e, request);
}

static void release(fl_engine *e)
{
    e->own_request.arg = e;
    e->own_busy = true;
    fl__engine_submit_request(e, &e->own_request, FL_STORE_RELEASE, released);
}

/* What goes wrong now goes wrong for the next owner as after a crash. */
static void last_recorded(fl_store_request *request)
{
    fl_engine *e = request->arg;
    e->record_busy = false;
    fl__engine_answered(e, request);
    release(e);
}

static void say_farewell(fl_engine *e)
{
    fl_store_request *record = &e->record_request;
    if (e->retreat || e->set_back || fl__progress_now(e, &record->record.progress) < 0) {
        release(e);
        return;
    }
    fl__history_send(e, &record->record.history);
    record->arg = e;
    e->record_busy = true;
    fl__engine_submit_request(e, record, FL_STORE_RECORD, last_recorded);
}

/* Called in states other than running when no request is under way. */
static void settle_down(fl_engine *e)
{
    if (e->outstanding > 0)
        return;
    if (e->state == ENGINE_RESTARTING) {
        forget_all(e);
        e->state = ENGINE_CLAIMING;
        claim(e);
    } else if (e->state == ENGINE_STOPPING && (e->now || e->released)) {
        leave(e);
    } else if (e->state == ENGINE_STOPPING && !e->farewell) {
        e->farewell = true;
        say_farewell(e);
    }
}

void fl_engine_stop(fl_engine *engine, bool now, fl_loop_fn done, void *arg)
{
    fl_engine *e = engine;
    bool owner = e->state == ENGINE_RUNNING;
    bool claiming = e->state == ENGINE_CLAIMING && (e->own_busy || e->record_busy);
    e->stopped = done;
    e->stopped_arg = arg;
    e->now = now || !(owner || claiming);
    e->farewell = claiming; /* there is nothing to record */
    e->state = ENGINE_STOPPING;
    fl__ops_refuse_all(e, FL_STOPPED);
    fl__engine_flush_soon(e);
}

/* --- Beginning ---------------------------------------------------------------------------------------------------- */

#define DAY_US (86400 * SECOND_US)

static int check_config(const fl_engine_config *c)
{
    size_t owner = c->owner ? strlen(c->owner) : 0;
    if (!c->loop || !c->store || !c->dispatch || owner == 0 || owner > FL_STORE_NAME_MAX)
        return FL_INVALID_ARGUMENT;
    if (c->strategy != FL_PRELOAD && c->strategy != FL_LOOKAHEAD)
        return FL_INVALID_ARGUMENT;
    if (c->preload_us > 12 * 3600 * SECOND_US || c->lookahead_us > 60 * SECOND_US || c->max_payload > 8u << 20 ||
        c->max_in_flight > 10000000 || c->dispatch_batch > 1000000)
        return FL_INVALID_ARGUMENT;
    if (c->load_interval_us > 0 && (c->load_interval_us < SECOND_US || c->load_interval_us > 30 * SECOND_US))
        return FL_INVALID_ARGUMENT;
    if (c->claim_us > DAY_US || c->record_interval_us > DAY_US || c->delete_interval_us > DAY_US)
        return FL_INVALID_ARGUMENT;
    return fl__retry_check(&c->retry);
}

#define DEFAULT(member, value) \
    if (c->member == 0)        \
    c->member = (value)

static void fill_config(fl_engine_config *c)
{
    DEFAULT(claim_us, 5 * SECOND_US);
    DEFAULT(record_interval_us, SECOND_US);
    DEFAULT(max_memory_timers, 100000);
    DEFAULT(max_memory_bytes, 256 << 20);
    DEFAULT(max_in_flight, 10000);
    DEFAULT(dispatch_batch, 1000);
    DEFAULT(max_payload, 256 << 10);
    DEFAULT(preload_us, 120 * SECOND_US);
    DEFAULT(delete_interval_us, 30 * SECOND_US);
    DEFAULT(lookahead_us, SECOND_US);
    DEFAULT(load_interval_us, 5 * SECOND_US);
    DEFAULT(load_batch, 1000);
    DEFAULT(delete_batch, 1000);
    DEFAULT(history_bytes, 1 << 30);
    DEFAULT(history_keep_us, 3 * DAY_US);
    DEFAULT(max_history_bytes, 8 << 20);
    if (!c->clock)
        c->clock = fl_wall_clock_system();
    if (c->retry.initial_us == 0)
        c->retry = (fl_retry){
            .max_attempts = 10, .multiplier_1000 = 2000, .initial_us = SECOND_US, .max_interval_us = 3600 * SECOND_US};
    if (c->seed == 0 && getrandom(&c->seed, sizeof c->seed, GRND_NONBLOCK) < 0)
        c->seed = (uint64_t)c->clock->now_us(c->clock);
    if (c->max_memory_timers < 16)
        c->max_memory_timers = 16;
    if (c->max_waiting == 0)
        c->max_waiting = c->max_memory_timers / 2 < UINT32_MAX ? (uint32_t)(c->max_memory_timers / 2) : UINT32_MAX;
}

/* xorshift64*: enough to spread retries. */
uint64_t fl__engine_random(fl_engine *e)
{
    e->random ^= e->random >> 12;
    e->random ^= e->random << 25;
    e->random ^= e->random >> 27;
    return e->random * 0x2545f4914f6cdd1d;
}

static int prepare(fl_engine *e)
{
    e->due = fl__alloc(e->config.dispatch_batch * sizeof *e->due);
    e->firings = fl__alloc(e->config.dispatch_batch * sizeof *e->firings);
    fl__lanes_init(&e->lanes);
    if (!e->due || !e->firings)
        return FL_NO_MEMORY;
    struct {
        struct alarm *alarm;
        alarm_fn *fn;
    } const wanted[] = {{&e->fire_alarm, fl__engine_fire}, {&e->load_alarm, fl__engine_load},
                        {&e->renew_alarm, renew_or_claim}, {&e->record_alarm, fl__record},
                        {&e->delete_alarm, fl__delete},    {&e->ask_alarm, fl__doubts_ask}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int r = make_alarm(e, wanted[i].alarm, wanted[i].fn);
        if (r < 0)
            return r;
    }
    return fl_store_attach(e->config.store, e->config.shard, e->loop, &e->shard);
}

int fl_engine_start(const fl_engine_config *config, fl_engine **ret)
{
    int r = check_config(config);
    if (r < 0)
        return r;
    fl_engine *e = fl__alloc_zeroed(sizeof *e);
    if (!e)
        return FL_NO_MEMORY;
    e->config = *config;
    e->loop = config->loop;
    fill_config(&e->config);
    memcpy(e->owner, config->owner, strlen(config->owner) + 1);
    e->random = e->config.seed | 1;
    e->preload_us = e->config.preload_us;
    e->history.keep_us = e->config.history_keep_us;
    e->wall_us = read_clock(e);
    r = prepare(e);
    if (r < 0) {
        drop_alarms(e);
        fl__hash_free(&e->locks);
        fl__lanes_free(&e->lanes);
        fl__release(e->due);
        fl__release(e->firings);
        fl__release(e);
        return r;
    }
    watch_clock(e);
    claim(e);
    *ret = e;
    return 0;
}

int fl_engine_skip_older(fl_engine *engine, fl_bytes ns, uint64_t skip_older_us)
{
    uint32_t space;
    int r = fl__space(engine, ns, &space);
    if (r == 0)
        engine->spaces.list[space].skip_older_us = skip_older_us;
    return r;
}

void fl_engine_get_stats(fl_engine *engine, fl_engine_stats *ret)
{
    fl_engine *e = engine;
    int64_t next_us = fl__memory_next_unarmed_us(e), now_us = fl__engine_now(e);
    uint64_t at_ns;
    *ret = e->stats;
    for (int kind = 0; kind < 2; kind++)
        if (e->wheel[kind] && fl_wheel_next_deadline(e->wheel[kind], &at_ns) && (int64_t)(at_ns / NS_PER_US) < next_us)
            next_us = (int64_t)(at_ns / NS_PER_US);
    ret->oldest_overdue_us = next_us < now_us ? now_us - next_us : 0;
    ret->loaded = e->loaded;
    ret->in_flight = e->flights.dispatched[0] + e->flights.dispatched[1] + e->lanes.held - e->lanes.waiting;
    ret->waiting = e->lanes.waiting;
    ret->preload_us = e->preload_us;
    ret->loaded_until_us = e->until.at_us;
    ret->windows = e->window_count;
    ret->bytes = e->bytes;
    ret->history_bytes = e->history.bytes;
    ret->owner = e->state == ENGINE_RUNNING;
    ret->owner_until_ns = ret->owner ? e->claim_end_ns : 0;
    fl__histogram_summary(&e->lateness, &ret->lateness_ns);
}
