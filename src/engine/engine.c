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

#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "engine/internal.h"

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
    fl__assert(alarm->id == 0);
    alarm->engine = e;
    alarm->fn = fn;
    return fl_loop_interval(e->loop, LONG_NS, FL_INTERVAL_FROM_CALLBACK, ring, alarm, &alarm->id);
}

/* Should there be no memory even for that, it rings when it would have rung. */
void fl__alarm_set(fl_engine *e, struct alarm *alarm, uint64_t delay_ns)
{
    fl__assert(alarm->id != 0);
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
    fl__assert(e->state != ENGINE_GONE);
    (void)loop;
    e->flushing = false;
    e->flush_id = 0;
    if (e->state == ENGINE_RUNNING) {
        if (e->set_back)
            fl__engine_follow_clock(e);
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
    fl__assert(e->state != ENGINE_RUNNING);
    if (e->state == ENGINE_LOST)
        return FL_SHARD_LOST;
    return e->state == ENGINE_CLAIMING || e->state == ENGINE_RESTARTING ? FL_STORE_UNAVAILABLE : FL_STOPPED;
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

void fl__engine_submit_request(fl_engine *e, fl_store_request *request, enum fl_store_op op,
                               void (*done)(fl_store_request *))
{
    fl__assert(e->state != ENGINE_GONE && done);
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
    fl__assert(e->state == ENGINE_RUNNING || e->state == ENGINE_RESTARTING);
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
    fl__assert(e->outstanding > 0);
    e->outstanding--;
    if (request->result == FL_SHARD_LOST && (e->state == ENGINE_RUNNING || e->state == ENGINE_RESTARTING))
        lose(e, request->message);
    else if (request->result < 0 && request->result != FL_SHARD_LOST && e->state == ENGINE_RUNNING)
        fl__engine_trouble(e, request->result, request->message);
    if (e->outstanding == 0 && e->state != ENGINE_RUNNING)
        fl__engine_flush_soon(e);
    return e->state == ENGINE_RUNNING;
}

/* --- Ending ------------------------------------------------------------------------------------------------------- */

static void forget_all(fl_engine *e)
{
    fl__assert(e->outstanding == 0 && !e->sent);
    fl__ops_refuse_all(e, fl__engine_refusal(e));
    fl__assert(!e->in_doubt);
    fl__assert(!e->queued && e->to_find.count + e->doubts.count + e->to_repeat.count == 0);
    fl__assert(e->locks.count == 0); /* every work has ended */
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
    e->state = ENGINE_RESTARTING;
    fl__engine_trouble(e, FL_NO_MEMORY, why);
    fl__engine_flush_soon(e);
}

static void gone(fl_loop *loop, void *arg)
{
    fl_engine *e = arg;
    fl_loop_fn stopped = e->stopped;
    void *stopped_arg = e->stopped_arg;
    fl__assert(e->state == ENGINE_GONE && e->outstanding == 0);
    fl__ops_deliver(e);
    for (uint32_t i = 1; i < e->flights.used; i++)
        if (e->flights.list[i].state == FLIGHT_ORPHAN)
            fl__flight_end(e, i);
    fl__assert(e->bytes == 0); /* no item is left */
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
    fl__assert(e->outstanding == 0);
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
    fl__assert(e->own_busy);
    e->own_busy = false;
    e->released = true;
    fl__engine_answered(e, request);
}

void fl__engine_release(fl_engine *e)
{
    fl__assert(!e->own_busy);
    e->own_request.arg = e;
    e->own_busy = true;
    fl__engine_submit_request(e, &e->own_request, FL_STORE_RELEASE, released);
}

/* What goes wrong now goes wrong for the next owner as after a crash. */
static void last_recorded(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->record_busy);
    e->record_busy = false;
    fl__engine_answered(e, request);
    fl__engine_release(e);
}

static void say_farewell(fl_engine *e)
{
    fl_store_request *record = &e->record_request;
    fl__assert(e->state == ENGINE_STOPPING && !e->record_busy);
    if (e->retreat || e->set_back || fl__progress_now(e, &record->record.progress) < 0) {
        fl__engine_release(e);
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
    fl__assert(e->state != ENGINE_RUNNING);
    if (e->outstanding > 0)
        return;
    if (e->state == ENGINE_RESTARTING) {
        forget_all(e);
        e->state = ENGINE_CLAIMING;
        fl__engine_claim(e);
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
    if (owner && !now)
        fl__flush_all(e); /* what has been settled is in the store before the last record */
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
    e->due = fl__alloc(e->config.dispatch_batch * sizeof(fl_node *));
    e->firings = fl__alloc(e->config.dispatch_batch * sizeof *e->firings);
    fl__lanes_init(&e->lanes);
    if (!e->due || !e->firings)
        return FL_NO_MEMORY;
    struct {
        struct alarm *alarm;
        alarm_fn *fn;
    } const wanted[] = {{&e->fire_alarm, fl__engine_fire},
                        {&e->load_alarm, fl__engine_load},
                        {&e->renew_alarm, fl__engine_renew_or_claim},
                        {&e->record_alarm, fl__record},
                        {&e->delete_alarm, fl__delete},
                        {&e->ask_alarm, fl__doubts_ask}};
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
    e->wall_us = fl__engine_read_clock(e);
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
    fl__engine_watch_clock(e);
    fl__engine_claim(e);
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
    *ret = e->stats;
    for (int kind = 0; kind < 2; kind++)
        if (fl__memory_next_armed_us(e, kind) < next_us)
            next_us = fl__memory_next_armed_us(e, kind);
    ret->oldest_overdue_us = next_us < now_us ? now_us - next_us : 0;
    ret->loaded = e->loaded;
    fl__assert(e->lanes.held >= e->lanes.waiting);
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
