/* SPDX-License-Identifier: MIT */
/* The engines of the shards that this server has, each on the loop of its worker: starting, serving, leaving. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

bool shard_takes(struct shard_call *call)
{
    struct shard *shard = call->shard;
    if (shard_is_here(shard)) {
        shard->inside++;
        return true;
    }
    if (!shard_is_leaving(shard)) {
        call->result = LINK_MOVED;
        call_return(call);
        return false;
    }
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
    if (shard->leaving)
        shard_leave_on(shard);
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct shard *shard = arg;
    (void)engine;
    if (!shard->leaving) /* else it is not settled, and the next owner fires it */
        deliver(shard, firings, count);
}

static bool withdraw(void *arg, fl_engine *engine, uint64_t token, void *handle)
{
    const struct shard *shard = arg;
    struct waiter *waiter = handle;
    (void)engine, (void)token;
    /* Of a shard that is given up, what waits is forgotten, and the engine is not told. */
    bool forgotten = shard->leaving || atomic_load(&shard->worker->node->stopping);
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
    if (how == FL_ENDED_DEAD)
        attempts_log(shard->worker, true, shard->number, timer, reason);
}

static void look_whether_ready(struct shard *shard)
{
    bool ready = shard->claimed && shard->loaded && !shard->leaving && !shard->lost && !shard->lapsed;
    if (ready != shard->ready)
        atomic_fetch_add(&shard->worker->node->ready, ready ? 1 : -1u);
    shard->ready = ready;
}

#define DATABASE_AWAY "the database has not responded for longer than lease; timers do not fire until it responds"

/* The claim may have run out, since it could not be renewed: the engine fires nothing. For all shards, that is said once. */
static void set_lapsed(struct shard *shard, bool lapsed)
{
    struct node *node = shard->worker->node;
    if (lapsed == shard->lapsed)
        return;
    shard->lapsed = lapsed;
    look_whether_ready(shard);
    if (lapsed && atomic_fetch_add(&node->lapsed, 1) == 0) {
        node_hindered(node, DATABASE_AWAY);
        log_error(DATABASE_AWAY, NULL);
    } else if (!lapsed && atomic_fetch_sub(&node->lapsed, 1) == 1) {
        node_hindered(node, "");
        log_info("the database responds again, or the server has given up the shards", NULL);
    }
}

/* The server's own timers are nobody's business. */
static void counted(void *arg, fl_engine *engine, fl_bytes ns, int64_t more)
{
    struct shard *shard = arg;
    struct space *space = is_own_namespace(ns) ? NULL : space_of(shard->worker->node, ns);
    (void)engine;
    if (!space)
        return;
    shard->pending += more;
    space_counted(shard->worker->node, space, more);
}

/* Others must know until when the shard is ours: what is on its way elsewhere may come back after a long silence, in which
 * another server has taken over. A claim is renewed after a third of its time, and looked at twice as often. */
static void look_at_claim(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    fl_engine_stats stats;
    (void)loop;
    fl_engine_get_stats(shard->engine, &stats);
    atomic_store(&shard->good_until_ns, stats.owner_until_ns);
    set_lapsed(shard, stats.owner && fl_loop_now_ns(shard->worker->loop) >= stats.owner_until_ns);
}

static int watch_claim(struct shard *shard)
{
    const struct node *node = shard->worker->node;
    bool shared = fl_store_is_shared(node->store);
    atomic_store(&shard->good_until_ns, shared ? 0 : UINT64_MAX);
    if (!shared)
        return 0;
    return fl_loop_interval(shard->worker->loop, node->config.engine.lease_us * 1000 / 6, FL_TIMER_UNREF, look_at_claim,
                            shard, &shard->claim_timer);
}

static void unwatch_claim(struct shard *shard)
{
    if (shard->claim_timer)
        fl_loop_cancel(shard->worker->loop, shard->claim_timer);
    shard->claim_timer = 0;
    atomic_store(&shard->good_until_ns, 0);
    set_lapsed(shard, false);
}

static void tell_trouble(const struct shard *shard, const char *message)
{
    if (trouble_is_news(message, fl_loop_now_ns(shard->worker->loop)))
        log_error("the store fails or does not respond; the server keeps trying", "shard", log_int(shard->number),
                  "why", message, NULL);
    if (shard->lapsed) {
        char why[sizeof shard->worker->node->hindrance.text];
        snprintf(why, sizeof why, DATABASE_AWAY ": %s", message);
        node_hindered(shard->worker->node, why);
    }
}

static void leave_lost(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (shard->engine && !shard->leaving)
        shard_leave(shard, true);
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct shard *shard = arg;
    (void)engine, (void)result;
    switch (event) {
    case FL_ENGINE_READY:
        shard->claimed = true;
        if (shard->claim_timer)
            look_at_claim(shard->worker->loop, shard);
        look_whether_ready(shard);
        servers_look(shard->worker->node);
        settings_load_again(shard->worker->node);
        log_debug("shard ready", "shard", log_int(shard->number), NULL);
        break;
    case FL_ENGINE_LOST:
        shard->lost = true;
        look_whether_ready(shard);
        log_error("lost a shard; its timers do not fire here until this server claims it again", "shard",
                  log_int(shard->number), "why", message, NULL);
        atomic_store(&shard->worker->node->settings_old, true);
        fl_loop_post(shard->worker->loop, leave_lost, shard); /* not inside a callback of the engine's */
        break;
    case FL_ENGINE_HELD:
        if (trouble_is_news("waiting for a shard", fl_loop_now_ns(shard->worker->loop)))
            log_warning("waiting for a shard that another server holds", "shard", log_int(shard->number), "why",
                        message, NULL);
        break;
    case FL_ENGINE_TROUBLE:
        tell_trouble(shard, message);
        break;
    }
}

int shard_start(struct shard *shard)
{
    struct worker *worker = shard->worker;
    struct node *node = worker->node;
    fl_engine_config config = node->config.engine;
    config.loop = worker->loop;
    config.store = node->store;
    config.owner = node->config.claimant;
    config.dispatch = dispatch;
    config.notify = notify;
    config.ended = ended;
    config.withdraw = withdraw;
    config.counted = counted;
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
    atomic_fetch_add(&node->here, 1);
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
    if (!shard->loaded || shard->leaving || !atomic_load(&shard->worker->node->settings_known))
        return;
    settings_tell_engine(shard);
    fl_engine_go(shard->engine);
}

void shard_loaded(struct shard *shard)
{
    shard->loaded = true;
    look_whether_ready(shard);
    shard_let_go(shard);
}

/* --- Giving up ---------------------------------------------------------------------------------------------------- */

/* What a shard's last engine had of it is gone: it is as before shard_start(). */
static void forget(struct shard *shard)
{
    atomic_fetch_sub(&shard->worker->node->here, 1);
    shard->engine = NULL;
    shard->loading = NULL;
    shard->held = 0;
    shard->loaded = shard->claimed = shard->leaving = shard->lost = false;
    look_whether_ready(shard);
    shard->purged = shard->purging = shard->withdrawn = shard->hurry = false;
}

static bool all_are_gone(const struct worker *worker)
{
    const struct node *node = worker->node;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].engine || node->shards[i].leaving)
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
    (void)loop;
    shard->kept = NULL;
    forget(shard);
    log_debug("shard given up", "shard", log_int(shard->number), NULL);
    for (struct shard_call *next; kept; kept = next) {
        next = kept->next;
        kept->result = LINK_MOVED;
        call_return(kept);
    }
    shard_left(shard);
    stopped_if_over(shard->worker);
}

struct purge {
    struct tour tour;
    struct shard *shard;
};

static void purge_visit(struct tour *tour, struct worker *worker)
{
    pull_purge(worker, ((struct purge *)tour)->shard);
}

static void purge_back(struct tour *tour)
{
    struct shard *shard = ((struct purge *)tour)->shard;
    free(tour);
    shard->purged = true;
    shard_leave_on(shard);
}

/* Nothing that the engine lends may be looked at when it is gone: what waits to be leased is taken away everywhere. What is on
 * its way there, or back, arrives first, since messages between two workers keep their order. */
static void purge(struct shard *shard)
{
    struct purge *tour = calloc(1, sizeof *tour);
    if (!tour)
        return; /* and again when something else has ended */
    shard->purging = true;
    *tour = (struct purge){.tour = {.fn = purge_visit, .back = purge_back}, .shard = shard};
    tour_begin(&tour->tour, shard->worker);
}

/* In this order: callbacks end, leases end, operations end, the engine stops. An engine that
 * has no say in the store any more, or never had, or that does not get on, is stopped with what is in it. */
void shard_leave_on(struct shard *shard)
{
    bool hurry = shard->lost || !shard->claimed || shard->hurry;
    if (shard->delivering > 0 || !shard->engine)
        return;
    if (!shard->purged) {
        if (!shard->purging)
            purge(shard);
        return;
    }
    if (shard->inside > 0 && !hurry)
        return;
    fl_engine *engine = shard->engine;
    shard->engine = NULL;
    unwatch_claim(shard);
    if (shard->patience)
        fl_loop_cancel(shard->worker->loop, shard->patience);
    shard->patience = 0;
    fl_engine_stop(engine, shard->lost, gone, shard);
}

#define PATIENCE_NS (300 * 1000000ull)

static void out_of_patience(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    shard->hurry = shard->withdrawn;
    shard->patience = 0;
    if (!shard->withdrawn)
        shard->worker->node->ports->withdraw(shard->worker, shard, true);
    shard->withdrawn = true;
    if (shard->hurry || fl_loop_timer(loop, 2 * PATIENCE_NS, out_of_patience, shard, &shard->patience) < 0)
        shard->hurry = true;
    shard_leave_on(shard);
}

void shard_leave(struct shard *shard, bool lost)
{
    shard->leaving = true;
    shard->lost |= lost;
    atomic_store_explicit(&shard->moving, !lost, memory_order_relaxed);
    look_whether_ready(shard);
    shard->worker->node->ports->withdraw(shard->worker, shard, false);
    if (fl_loop_timer(shard->worker->loop, PATIENCE_NS, out_of_patience, shard, &shard->patience) < 0)
        out_of_patience(shard->worker->loop, shard);
    else
        shard_leave_on(shard);
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

void shards_stop(struct worker *worker, void (*done)(struct worker *worker))
{
    struct node *node = worker->node;
    worker->shards_stopped = done;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].engine && !node->shards[i].leaving)
            shard_leave(&node->shards[i], false);
    stopped_if_over(worker);
}
