/* SPDX-License-Identifier: MIT */
/* The engines of the shards that this server has, each on the loop of its worker: starting, serving, leaving. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

/* Without a claim, an engine keeps operations until it has one, which may take forever. So calls wait where they came from,
 * as they do if a shard has no owner, and for as long. Only the shard's own settings are asked for at once. */
static bool engine_takes(const struct shard_call *call)
{
    const struct shard *shard = call->shard;
    return shard->state != SHARD_CLAIMING || shard->loading == call || fl_engine_owns(shard->engine);
}

bool shard_takes(struct shard_call *call)
{
    struct shard *shard = call->shard;
    if (shard_is_here(shard) && engine_takes(call)) {
        fl__assert(shard->engine);
        shard->inside++;
        return true;
    }
    if (!shard_is_leaving(shard)) {
        call->result = LINK_MOVED;
        call_return(call);
        return false;
    }
    fl__assert(!shard->kept || shard->kept_last);
    call->next = NULL;
    if (shard->kept)
        shard->kept_last->next = call;
    else
        shard->kept = call;
    shard->kept_last = call;
    return false;
}

void shard_call_left(struct shard *shard)
{
    fl__assert(shard->inside > 0);
    shard->inside--;
    shard_leave_on(shard);
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct shard *shard = arg;
    (void)engine;
    if (shard_is_here(shard)) /* else it is not settled, and the next owner fires it */
        deliver(shard, firings, count);
}

static bool withdraw(void *arg, fl_engine *engine, uint64_t token, void *handle)
{
    const struct shard *shard = arg;
    struct waiter *waiter = handle;
    (void)engine, (void)token;
    /* Of a shard that is given up, what waits is forgotten, and the engine is not told. */
    bool forgotten = !shard_is_here(shard) || atomic_load(&shard->worker->node->stopping);
    return !forgotten && waiter->withdraw(waiter);
}

static void ended(void *arg, fl_engine *engine, const fl_durable *timer, enum fl_ended how, fl_bytes reason)
{
    struct shard *shard = arg;
    struct space *space = space_of(shard->worker->node, timer->ns);
    (void)engine;
    stats_count(shard->worker, space, how == FL_ENDED_DEAD ? STATS_DEAD : STATS_SKIPPED);
    if (space && how == FL_ENDED_DEAD)
        atomic_fetch_add_explicit(&space->dead, 1, memory_order_relaxed);
    shard->worker->node->ports->publish(shard->worker, how == FL_ENDED_DEAD ? EVENT_DEAD : EVENT_SKIPPED, shard->number,
                                        timer, reason);
    schedule_nudge(shard, timer);
    if (how == FL_ENDED_SKIPPED)
        history_skipped(shard, timer, 0, bytes_of("it became due too long before the server started"));
    if (how == FL_ENDED_DEAD)
        attempts_log(shard->worker, true, shard->number, timer, reason);
}

#define STORE_AWAY "the store has failed or not responded for longer than lease; timers do not fire until it responds"

/* Claims may have run out, since they could not be renewed: the engines fire nothing. For all shards, that is said once. */
void node_lapsed(bool lapsed)
{
    if (lapsed)
        log_error(STORE_AWAY, NULL);
    else
        log_info("the store responds again, or the server has given up the shards", NULL);
}

/* The server's own timers do not count as pending. */
static void counted(void *arg, fl_engine *engine, fl_bytes ns, int64_t more)
{
    struct shard *shard = arg;
    bool own = is_own_namespace(ns);
    struct space *space = own && !is_schedule_namespace(ns) ? NULL : space_of(shard->worker->node, ns);
    (void)engine;
    if (!space)
        return;
    shard->pending += own ? 0 : more;
    space_counted(shard->worker->node, space, more);
}

static uint64_t paused(void *arg, fl_engine *engine, const fl_durable *timer, int64_t from_us, int64_t until_us)
{
    const struct shard *shard = arg;
    (void)engine;
    return pause_of_timer(shard->worker->node, timer, from_us, until_us);
}

/* Others must know until when the shard is ours, if the store is shared: what is on its way elsewhere may come back after a
 * long silence, in which another server has taken over. A claim is renewed after a third of its time, and looked at twice as
 * often. If the store is not shared, a process that was stopped for a while only has to renew its claim: it is over when that
 * has not come about until the next look. */
static void look_at_claim(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    fl_engine_stats stats;
    fl__assert(shard->engine && shard->claim_timer);
    (void)loop;
    fl_engine_get_stats(shard->engine, &stats);
    bool shared = fl_store_is_shared(shard->worker->node->store);
    uint64_t claim_ns = shard->worker->node->config.engine.claim_us * 1000;
    if (shared)
        atomic_store(&shard->good_until_ns, stats.owner_until_ns);
    bool over = stats.owner && fl_loop_now_ns(shard->worker->loop) >= stats.owner_until_ns;
    if (over && (shared || shard->claim_over) && shard->state == SHARD_SERVING) {
        shard_enter(shard, SHARD_LAPSED);
        shard_hindered(shard, FL_STORE_UNAVAILABLE, STORE_AWAY);
    } else if (!over && shard->state == SHARD_LAPSED) {
        shard_enter(shard, SHARD_SERVING);
    } else if (shard->state == SHARD_SERVING && stats.owner_until_ns > shard->refused_ns + claim_ns) {
        shard_unhindered(shard);
    }
    shard->claim_over = over;
}

/* Without memory, an engine begins again, with another claim. */
static void claim_again(struct shard *shard)
{
    fl_engine_stats stats;
    if (shard->state < SHARD_LOADING || shard->state > SHARD_LAPSED)
        return;
    fl_engine_get_stats(shard->engine, &stats);
    if (!stats.owner)
        shard_enter(shard, SHARD_CLAIMING);
}

static int watch_claim(struct shard *shard)
{
    const struct node *node = shard->worker->node;
    bool shared = fl_store_is_shared(node->store);
    fl__assert(!shard->claim_timer);
    atomic_store(&shard->good_until_ns, shared ? 0 : UINT64_MAX);
    shard->claim_over = false;
    return fl_loop_interval(shard->worker->loop, node->config.engine.claim_us * 1000 / 6, FL_TIMER_UNREF, look_at_claim,
                            shard, &shard->claim_timer);
}

static void unwatch_claim(struct shard *shard)
{
    if (shard->claim_timer)
        fl_loop_cancel(shard->worker->loop, shard->claim_timer);
    shard->claim_timer = 0;
    atomic_store(&shard->good_until_ns, 0);
}

/* A shard that serves is hindered until its claim was renewed after the trouble: not by a full disk, on which it still fires
 * timers, and not by the refusal of a single request. */
static bool is_hindrance(const struct shard *shard, int result)
{
    if (shard->state != SHARD_SERVING)
        return shard->state == SHARD_CLAIMING || shard->state == SHARD_LOADING || shard->state == SHARD_LAPSED;
    return result == FL_STORE_UNAVAILABLE || result == FL_OUTCOME_UNKNOWN || result == FL_STORE_READ_ONLY ||
           result == FL_STORE_CORRUPT || result == FL_SYSTEM;
}

static void tell_trouble(struct shard *shard, int result, const char *message)
{
    if (trouble_is_news(message, fl_loop_now_ns(shard->worker->loop)))
        log_error("the store fails or does not respond; the server keeps trying", "shard", log_int(shard->number),
                  "why", message, NULL);
    if (is_hindrance(shard, result)) {
        shard->refused_ns = fl_loop_now_ns(shard->worker->loop);
        shard_hindered(shard, result, message);
    }
}

static void leave_lost(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (shard->state == SHARD_LOST)
        shard_leave(shard);
}

static void lose(struct shard *shard)
{
    shard->lost = true;
    if (!shard_is_here(shard))
        return; /* it leaves already */
    shard_enter(shard, SHARD_LOST);
    shard->lost_task = (fl_loop_task){.fn = leave_lost, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->lost_task); /* not inside a callback of the engine's */
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct shard *shard = arg;
    (void)engine;
    switch (event) {
    case FL_ENGINE_READY:
        if (shard->state == SHARD_CLAIMING)
            shard_enter(shard, shard->loading ? SHARD_LOADING : SHARD_SERVING);
        if (shard->claim_timer)
            look_at_claim(shard->worker->loop, shard);
        servers_look(shard->worker->node);
        settings_load_again(shard->worker->node);
        break;
    case FL_ENGINE_LOST:
        lose(shard);
        log_error("lost a shard; its timers do not fire here until this server claims it again", "shard",
                  log_int(shard->number), "why", message, NULL);
        atomic_store(&shard->worker->node->settings_old, true);
        break;
    case FL_ENGINE_HELD:
        if (shard->state == SHARD_CLAIMING)
            shard_hindered(shard, result, message);
        if (trouble_is_news("waiting for a shard", fl_loop_now_ns(shard->worker->loop)))
            log_warning("waiting for a shard that another server holds", "shard", log_int(shard->number), "why",
                        message, NULL);
        break;
    case FL_ENGINE_TROUBLE:
        claim_again(shard);
        tell_trouble(shard, result, message);
        break;
    }
}

int shard_start(struct shard *shard)
{
    struct worker *worker = shard->worker;
    struct node *node = worker->node;
    fl_engine_config config = node->config.engine;
    fl__assert(shard->state == SHARD_AWAY && !shard->engine && !shard->kept);
    config.loop = worker->loop;
    config.store = node->store;
    config.owner = node->config.claimant;
    config.dispatch = dispatch;
    config.notify = notify;
    config.ended = ended;
    config.withdraw = withdraw;
    config.counted = counted;
    config.paused = paused;
    config.arg = shard;
    config.shard = shard->number;
    config.clock = node->clock;
    config.max_memory_bytes = budget_of_shard(node->config.max_memory, node->shard_count);
    config.wait = true;
    int r = watch_claim(shard);
    if (r == 0)
        r = fl_engine_start(&config, &shard->engine);
    if (r < 0) {
        unwatch_claim(shard);
        log_error("cannot start the engine of a shard", "shard", log_int(shard->number), "why", fl_strerror(r), NULL);
        return r;
    }
    shard_enter(shard, SHARD_CLAIMING);
    memset(shard->queued, 0xff, sizeof shard->queued);
    settings_of_shard(shard);
    return 0;
}

int shards_start(struct worker *worker)
{
    struct node *node = worker->node;
    int r = 0;
    for (uint32_t i = worker->index; i < node->shard_count && r == 0; i += node->worker_count)
        r = shard_start(&node->shards[i]);
    return r;
}

void shard_let_go(struct shard *shard)
{
    if (shard->loading || !shard_is_here(shard) || !atomic_load(&shard->worker->node->settings_known))
        return;
    fl__assert(shard->engine);
    settings_tell_engine(shard);
    fl_engine_go(shard->engine);
    rezone_shard(shard);
}

void shard_loaded(struct shard *shard)
{
    shard->loading = NULL;
    if (shard->state == SHARD_LOADING)
        shard_enter(shard, SHARD_SERVING);
    shard_let_go(shard);
}

/* --- Giving up ---------------------------------------------------------------------------------------------------- */

static bool all_are_gone(const struct worker *worker)
{
    const struct node *node = worker->node;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].state != SHARD_AWAY)
            return false;
    return true;
}

static void stopped_if_over(struct worker *worker)
{
    void (*done)(struct worker *) = worker->shards_stopped;
    if (!done || !all_are_gone(worker))
        return;
    worker->shards_stopped = NULL;
    done(worker);
}

static void gone(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    struct shard_call *kept = shard->kept;
    fl__assert(!shard->engine && shard->state == SHARD_STOPPING);
    (void)loop;
    shard->kept = NULL;
    shard->loading = NULL;
    shard->held = 0;
    shard->lost = false;
    shard_enter(shard, SHARD_AWAY);
    for (struct shard_call *next; kept; kept = next) {
        next = kept->next;
        kept->result = LINK_MOVED;
        call_return(kept);
    }
    shard_left(shard);
    stopped_if_over(shard->worker);
}

static struct shard *shard_of_purge(struct tour *tour)
{
    return (struct shard *)((char *)tour - offsetof(struct shard, purge));
}

static void purge_visit(struct tour *tour, struct worker *worker)
{
    pull_purge(worker, shard_of_purge(tour));
}

static void purge_back(struct tour *tour)
{
    struct shard *shard = shard_of_purge(tour);
    fl__assert(shard->state == SHARD_PURGING && shard->engine);
    shard_enter(shard, SHARD_EMPTYING);
    shard_leave_on(shard);
}

/* Memory of the engine must not be read after the engine is gone, so all workers drop the items of the shard. Items on their
 * way there, or back, arrive first, because messages between two workers keep their order. */
static void purge(struct shard *shard)
{
    fl__assert(shard->delivering == 0);
    shard_enter(shard, SHARD_PURGING);
    shard->purge = (struct tour){.fn = purge_visit, .back = purge_back};
    tour_begin(&shard->purge, shard->worker);
}

#define PATIENCE_NS (300 * 1000000ull)

static void stop_engine(struct shard *shard)
{
    fl_engine *engine = shard->engine;
    fl__assert(engine && shard->state == SHARD_EMPTYING);
    if (shard->patience)
        fl_loop_cancel(shard->worker->loop, shard->patience);
    shard->patience = 0;
    shard->engine = NULL;
    unwatch_claim(shard);
    shard_enter(shard, SHARD_STOPPING);
    fl_engine_stop(engine, shard->lost, gone, shard);
}

/* In this order: attempts end, leases end, operations end, the engine stops. An engine without a claim, or one that makes no
 * progress, is stopped at once with its timers. */
void shard_leave_on(struct shard *shard)
{
    if (shard->state == SHARD_ENDING && shard->delivering == 0) {
        purge(shard);
        return;
    }
    if (shard->state != SHARD_EMPTYING)
        return;
    bool hurry = shard->lost || fl_loop_now_ns(shard->worker->loop) >= shard->leave_until_ns;
    if (shard->inside == 0 || hurry)
        stop_engine(shard);
}

/* Attempts that have begun do not end: they are withdrawn. Later, operations that do not end are left to the engine. */
static void out_of_patience(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    uint64_t now_ns = fl_loop_now_ns(loop);
    fl__assert(shard_is_leaving(shard) && shard->engine);
    shard->patience = 0;
    shard->worker->node->ports->withdraw(shard->worker, shard, true);
    if (now_ns < shard->leave_until_ns &&
        fl_loop_timer(loop, shard->leave_until_ns - now_ns, out_of_patience, shard, &shard->patience) < 0)
        shard->leave_until_ns = now_ns;
    shard_leave_on(shard);
}

void shard_leave(struct shard *shard)
{
    struct worker *worker = shard->worker;
    uint64_t now_ns = fl_loop_now_ns(worker->loop);
    bool claimed = shard->state != SHARD_CLAIMING;
    fl__assert(shard->engine && shard->patience == 0);
    atomic_store_explicit(&shard->moving, !shard->lost, memory_order_relaxed);
    shard->leave_until_ns = claimed ? now_ns + 3 * PATIENCE_NS : now_ns;
    shard_enter(shard, SHARD_ENDING);
    worker->node->ports->withdraw(worker, shard, false);
    if (fl_loop_timer(worker->loop, PATIENCE_NS, out_of_patience, shard, &shard->patience) < 0)
        out_of_patience(worker->loop, shard);
    else
        shard_leave_on(shard);
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

void shards_stop(struct worker *worker, void (*done)(struct worker *worker))
{
    struct node *node = worker->node;
    worker->shards_stopped = done;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (shard_is_here(&node->shards[i]))
            shard_leave(&node->shards[i]);
    stopped_if_over(worker);
}
