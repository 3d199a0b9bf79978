/* SPDX-License-Identifier: MIT */
/* Pauses of namespaces and of hosts.
 *
 * A pause is part of the settings row of its namespace, so every server learns of it as of settings. While it lasts, whatever
 * falls due in the namespace waits in a lane of the engine that is closed: the timers are in the store, not in memory, and keep
 * their order. When the pause ends, the engines open the lane. Attempts that waited for something else when the pause began,
 * for a host or for a lease, ask again before they begin.
 *
 * A host is paused in the same way: it has a row among the settings, as if it were a namespace (HOST_MARK), and a closed lane. A
 * timer is looked up by the host of its target, so two hosts whose lanes have the same number are not mixed up: a timer that comes
 * from an opened lane is parked again if its own host is still paused.
 *
 * A pause that has an end (`until`) ends by the clock, without a write: each worker looks when it is time, and opens the lane of
 * its engines. The last pauses stay in the row when they are over, because time paused does not count toward the age of a
 * timer, and because resuming may skip what fell due meanwhile. */

#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

#define LOOK_MOST_NS (1000 * 1000000ull) /* the wall clock may be set meanwhile */
#define LATER_US 1000000

/* --- Pauses as data ----------------------------------------------------------------------------------------------- */

/* There are too many: of the two oldest one remains, as long as both. So a timer that is older than both has the exact time, and
 * one in between is given up too late rather than too early. */
static void forget_oldest(struct pauses *pauses)
{
    struct past_pause *past = pauses->past;
    past[1].since_us -= past[0].until_us - past[0].since_us;
    past[1].skip = past[0].skip && past[1].skip;
    memmove(past, past + 1, (PAUSES_KEPT - 1) * sizeof *past);
    pauses->past_count--;
}

bool pauses_end(struct pauses *pauses, int64_t now_us, bool skip)
{
    struct pause *pause = &pauses->now;
    bool on = pauses_are_on(pauses, now_us);
    int64_t end_us = on ? now_us : pause->until_us;
    if (pause->since_us == 0)
        return false;
    if (end_us > pause->since_us) { /* unless the clock was set back */
        if (pauses->past_count == PAUSES_KEPT)
            forget_oldest(pauses);
        pauses->past[pauses->past_count++] = (struct past_pause){pause->since_us, end_us, on && skip};
    }
    *pause = (struct pause){0};
    return on;
}

bool pauses_begin(struct pauses *pauses, int64_t now_us, int64_t until_us, fl_bytes reason)
{
    bool begins = !pauses_are_on(pauses, now_us);
    if (begins) {
        pauses_end(pauses, now_us, false);
        pauses->now.since_us = now_us;
    }
    pauses->now.until_us = until_us;
    pauses->now.reason_size = reason.size < PAUSE_REASON_MOST ? reason.size : PAUSE_REASON_MOST;
    memset(pauses->now.reason, 0, sizeof pauses->now.reason);
    memcpy(pauses->now.reason, reason.data, pauses->now.reason_size);
    return begins;
}

static uint64_t overlap(int64_t a, int64_t b, int64_t from, int64_t until)
{
    int64_t first = a > from ? a : from, last = b < until ? b : until;
    return last > first ? (uint64_t)(last - first) : 0;
}

uint64_t pauses_between(const struct pauses *pauses, int64_t from_us, int64_t until_us)
{
    const struct pause *now = &pauses->now;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < pauses->past_count; i++)
        sum += overlap(pauses->past[i].since_us, pauses->past[i].until_us, from_us, until_us);
    if (now->since_us > 0)
        sum += overlap(now->since_us, now->until_us > 0 ? now->until_us : INT64_MAX, from_us, until_us);
    return sum;
}

/* How long both were paused at once. The pauses of one do not overlap. */
static uint64_t pauses_of_both(const struct pauses *a, const struct pauses *b, int64_t from_us, int64_t until_us)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i <= b->past_count; i++) {
        bool is_past = i < b->past_count;
        int64_t since_us = is_past ? b->past[i].since_us : b->now.since_us;
        int64_t end_us = is_past ? b->past[i].until_us : b->now.until_us;
        if (since_us == 0 && !is_past)
            continue;
        if (end_us == 0 || end_us > until_us)
            end_us = until_us;
        sum += pauses_between(a, since_us > from_us ? since_us : from_us, end_us);
    }
    return sum;
}

/* Whether what fell due then is to be skipped. Creation times are kept in milliseconds, so a timer of the last millisecond may have been
 * created after the end: it is skipped only if it has waited for the end. */
static bool pauses_skip(const struct pauses *pauses, int64_t at_us, bool has_waited)
{
    for (uint64_t i = 0; i < pauses->past_count; i++) {
        const struct past_pause *past = &pauses->past[i];
        int64_t last_us = has_waited ? past->until_us : past->until_us / 1000 * 1000 - 1;
        if (past->skip && at_us >= past->since_us && at_us <= last_us)
            return true;
    }
    return false;
}

int64_t pauses_last_end(const struct pauses *pauses)
{
    if (pauses->now.since_us > 0)
        return pauses->now.until_us;
    return pauses->past_count > 0 ? pauses->past[pauses->past_count - 1].until_us : 0;
}

/* NULL, or what is wrong with the pauses of a namespace or a host. */
const char *pauses_check(const struct node *node, const struct space *space)
{
    const struct pauses *pauses = &atomic_load(&space->settings)->pauses;
    bool any = pauses->now.since_us > 0 || pauses->past_count > 0;
    if (any && !atomic_load(&node->has_pauses))
        return "a node with a pause knows that it has one";
    if (any && is_host_space(space_name(space)) && !atomic_load(&node->has_host_pauses))
        return "a node with a paused host knows that it has one";
    if (pauses->past_count > PAUSES_KEPT || pauses->now.reason_size > PAUSE_REASON_MOST)
        return "only some pauses are kept, each with a short reason";
    for (uint64_t i = 0; i < pauses->past_count; i++)
        if (pauses->past[i].until_us <= pauses->past[i].since_us)
            return "a pause ends after its beginning";
    if (pauses->now.since_us == 0 && (pauses->now.until_us != 0 || pauses->now.reason_size > 0))
        return "a pause that is not on has no end and no reason";
    return NULL;
}

/* --- Timers ------------------------------------------------------------------------------------------------------- */

/* NULL: the namespace has never been paused, as far as is known. */
static const struct pauses *pauses_of(struct node *node, const struct space *space)
{
    if (!space || !atomic_load_explicit(&node->has_pauses, memory_order_relaxed))
        return NULL;
    const struct settings *settings = atomic_load_explicit(&space->settings, memory_order_acquire);
    return settings->pauses.now.since_us > 0 || settings->pauses.past_count > 0 ? &settings->pauses : NULL;
}

bool space_is_paused(struct node *node, const struct space *space)
{
    const struct pauses *pauses = pauses_of(node, space);
    return pauses && pauses_are_on(pauses, node_now(node));
}

fl_bytes host_space_name(fl_bytes host, char room[HOST_ROOM])
{
    if (host.size == 0 || host.size > HOST_MOST)
        return (fl_bytes){0};
    room[0] = HOST_MARK;
    memcpy(room + 1, host.data, host.size);
    return (fl_bytes){room, 1 + host.size};
}

/* NULL: the host of this timer has never been paused, as far as is known. */
static struct space *host_if_paused(struct node *node, const fl_durable *timer)
{
    char host[HOST_TEXT], room[HOST_ROOM];
    if (timer->target.size == 0 || !atomic_load_explicit(&node->has_host_pauses, memory_order_relaxed))
        return NULL;
    fl_bytes name = host_space_name(node->ports->host_of(timer->target, host), room);
    return name.size > 0 ? space_if_any(node, name) : NULL;
}

bool timer_is_paused(struct node *node, const fl_durable *timer)
{
    return atomic_load_explicit(&node->has_pauses, memory_order_relaxed) &&
           (space_is_paused(node, space_if_any(node, timer->ns)) || space_is_paused(node, host_if_paused(node, timer)));
}

/* Time for which both are paused counts once. */
uint64_t pause_of_timer(struct node *node, const fl_durable *timer, int64_t from_us, int64_t until_us)
{
    const struct pauses *space = pauses_of(node, space_if_any(node, timer->ns));
    const struct pauses *host = pauses_of(node, host_if_paused(node, timer));
    uint64_t sum = space ? pauses_between(space, from_us, until_us) : 0;
    if (host)
        sum += pauses_between(host, from_us, until_us);
    return space && host ? sum - pauses_of_both(space, host, from_us, until_us) : sum;
}

/* The lane is closed, so the engine files the timer there. */
static void park(struct shard *shard, const struct space *space, const struct pauses *pauses, uint64_t token,
                 int64_t now_us)
{
    uint32_t lane = lane_of_pause(space);
    fl__assert(shard->engine);
    fl_engine_close_lane(shard->engine, lane, true);
    pause_watch(shard->worker, pauses->now.until_us);
    if (fl_engine_wait(shard->engine, token, lane, NULL)) { /* there was no memory to close it */
        fl_settlement later = {.token = token, .result = FL_LATER, .at_us = now_us + LATER_US};
        fl_engine_settle(shard->engine, &later, 1);
    }
}

static void skip(struct shard *shard, const fl_firing *firing, const char *why)
{
    struct worker *worker = shard->worker;
    fl__assert(shard->engine);
    worker->node->ports->publish(worker, EVENT_SKIPPED, shard->number, &firing->timer, bytes_of(why));
    stats_count(worker, space_if_any(worker->node, firing->timer.ns), STATS_SKIPPED);
    history_skipped(shard, &firing->timer, 0, bytes_of(why));
    schedule_nudge(shard, &firing->timer);
    fl_engine_settle(shard->engine, &(fl_settlement){.token = firing->token, .result = FL_SKIP}, 1);
}

/* What has been attempted before goes on, however the pause ends. */
static bool takes(struct shard *shard, const struct space *space, const fl_firing *firing, int64_t now_us,
                  const char *why)
{
    const struct pauses *pauses = pauses_of(shard->worker->node, space);
    const fl_durable *timer = &firing->timer;
    int64_t since_us = timer->due_us > timer->created_us ? timer->due_us : timer->created_us;
    if (!pauses || !shard->engine)
        return false;
    bool has_waited = firing->parked && firing->lane == lane_of_pause(space);
    if (pauses_are_on(pauses, now_us))
        park(shard, space, pauses, firing->token, now_us);
    else if (timer->attempt <= 1 && pauses_skip(pauses, since_us, has_waited))
        skip(shard, firing, why);
    else
        return false;
    return true;
}

bool pause_takes(struct shard *shard, const fl_firing *firing, int64_t now_us)
{
    struct node *node = shard->worker->node;
    return takes(shard, space_if_any(node, firing->timer.ns), firing, now_us, "the namespace was paused") ||
           takes(shard, host_if_paused(node, &firing->timer), firing, now_us, "the host was paused");
}

/* A schedule waits like the timers of its namespace; its own policy says what becomes of the occurrences that it misses. */
bool pause_takes_schedule(struct shard *shard, fl_bytes ns, uint64_t token)
{
    struct node *node = shard->worker->node;
    const struct space *space = space_if_any(node, ns);
    const struct pauses *pauses = pauses_of(node, space);
    int64_t now_us = node_now(node);
    if (!pauses || !shard->engine || !pauses_are_on(pauses, now_us))
        return false;
    park(shard, space, pauses, token, now_us);
    return true;
}

/* --- Engines ------------------------------------------------------------------------------------------------------ */

void pause_tell_engine(struct shard *shard, const struct space *space)
{
    const struct settings *settings = atomic_load(&space->settings);
    bool on = pauses_are_on(&settings->pauses, node_now(shard->worker->node));
    fl__assert(shard->engine);
    if (!is_host_space(space_name(space))) {
        fl_engine_skip_older(shard->engine, space_name(space), on ? 0 : settings->skip_older_us);
        fl_engine_keep_history(shard->engine, space_name(space), settings->history.keep_us);
    }
    fl_engine_close_lane(shard->engine, lane_of_pause(space), on);
    if (on)
        pause_watch(shard->worker, settings->pauses.now.until_us);
}

static void end_here(struct worker *worker, const struct space *space, bool is_news)
{
    struct node *node = worker->node;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].engine)
            pause_tell_engine(&node->shards[i], space);
    const struct shard *shard = shard_of_name(node, SETTINGS_NAMESPACE, space_name(space));
    if (is_news && shard->worker == worker && shard->engine)
        node->ports->publish(worker, EVENT_RESUMED, shard->number, &(fl_durable){.ns = space_name(space)},
                             (fl_bytes){0});
}

/* Opens the lanes of the pauses that have ended by the clock. */
static void look(struct worker *worker)
{
    struct node *node = worker->node;
    struct spaces *spaces = node->spaces;
    int64_t now_us = node_now(node), looked_us = worker->pause.looked_us;
    worker->pause.next_us = INT64_MAX;
    worker->pause.looked_us = now_us;
    pthread_rwlock_rdlock(&spaces->lock);
    for (struct space *space = spaces->first; space; space = space->next) {
        const struct pause *pause = &atomic_load(&space->settings)->pauses.now;
        if (pause->since_us == 0 || pause->until_us == 0)
            continue;
        if (pause->until_us <= now_us)
            end_here(worker, space, pause->until_us > looked_us);
        else
            pause_watch(worker, pause->until_us);
    }
    pthread_rwlock_unlock(&spaces->lock);
}

static void look_by_clock(fl_loop *loop, void *arg);

static void arm(struct worker *worker)
{
    int64_t left_us = worker->pause.next_us - node_now(worker->node);
    uint64_t wait_ns = left_us <= 0                              ? 0
                       : (uint64_t)left_us > LOOK_MOST_NS / 1000 ? LOOK_MOST_NS
                                                                 : (uint64_t)left_us * 1000;
    if (worker->pause.timer)
        fl_loop_cancel(worker->loop, worker->pause.timer);
    worker->pause.timer = 0;
    if (worker->pause.next_us < INT64_MAX && !worker->node->config.test_clock)
        fl_loop_timer(worker->loop, wait_ns, look_by_clock, worker, &worker->pause.timer);
}

static void look_by_clock(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    (void)loop;
    worker->pause.timer = 0;
    if (node_now(worker->node) >= worker->pause.next_us)
        look(worker);
    arm(worker);
}

void pause_watch(struct worker *worker, int64_t until_us)
{
    if (until_us == 0 || until_us >= worker->pause.next_us)
        return;
    if (worker->pause.looked_us == 0)
        worker->pause.looked_us = node_now(worker->node);
    worker->pause.next_us = until_us;
    arm(worker);
}

int64_t pause_clock_changed(struct worker *worker)
{
    if (node_now(worker->node) >= worker->pause.next_us)
        look(worker);
    return worker->pause.next_us;
}

void pause_stop(struct worker *worker)
{
    if (worker->pause.timer)
        fl_loop_cancel(worker->loop, worker->pause.timer);
    worker->pause.timer = 0;
}
