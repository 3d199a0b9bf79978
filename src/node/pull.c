/* SPDX-License-Identifier: MIT */
/* Pull: timers without a target wait here until they are leased (lease.c) and acknowledged (ack.c).
 *
 * The due timers of a namespace go to one worker, the namespace's home, whatever their shards are. They wait there in one
 * queue. Requests for leases wait there too while the queue is empty. A lease token names the server, the home worker and the
 * item's slot, and contains a random number that cannot be guessed and that each lease of the slot has new. So an
 * acknowledgement finds its item, or finds that the lease has ended.
 *
 * A request that asks several servers first watches them (CALL_WATCH) and takes timers from the first server that reports
 * some. If it waited for timers at all servers, two servers could give it more than its maximum. A report goes to as many
 * watchers as could take all waiting timers. If these do not take them, the next watchers get a report.
 *
 * An item is a timer that the engine has dispatched; its bytes stay in the memory of the engine until it is settled, on the
 * shard's worker. Until it is leased, its attempt has not begun: the engine may withdraw it, from the shard's worker, because
 * the timer is cancelled, replaced or changed. The home leases an item, or the shard withdraws it: the first that changes its
 * state from ITEM_WAITS succeeds. The home never reads the bytes of an item before it has leased it. A withdrawn item stays
 * in its queue until the home removes it.
 *
 * When a lease expires, the attempt has failed. The engine writes this to the store and dispatches the timer again at once,
 * up to the number of attempts of its retry policy. So attempts are counted across restarts.
 *
 * Timers that no worker leases do not crowd out others: each namespace is a lane of the engine (fl_engine_wait), and the
 * engine parks in the store what exceeds the share of the lane. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/pull.h"
#include "text/log.h"

#define NUDGE_NS (20 * 1000000ull)

int pull_new(struct worker *worker)
{
    worker->pull = calloc(1, sizeof *worker->pull);
    return worker->pull ? 0 : FL_NO_MEMORY;
}

/* --- Queues ------------------------------------------------------------------------------------------------------- */

struct worker *pull_home(struct node *node, const struct space *space)
{
    return &node->workers[space->by_name.hash % node->worker_count];
}

struct queue *queue_of(struct worker *worker, struct space *space)
{
    struct queue *queue = space->queue;
    fl__assert(worker == pull_home(worker->node, space));
    if (queue)
        return queue;
    queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->worker = worker;
    queue->space = space;
    queue->next = worker->pull->queues;
    worker->pull->queues = space->queue = queue;
    return queue;
}

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

static uint64_t serial_next(const struct node *node, struct pull *pull)
{
    if (pull->serials_left == 0) {
        if (node->ports->random(pull->serials, sizeof pull->serials) < 0)
            abort(); /* a system without random numbers has no secrets at all */
        pull->serials_left = sizeof pull->serials / sizeof *pull->serials;
    }
    fl__assert(pull->serials_left > 0 && pull->serials_left <= sizeof pull->serials / sizeof *pull->serials);
    return pull->serials[--pull->serials_left] | 1;
}

/* If the clock was set back a little, due timers stay in the queue, but no timer is leased before it is due. Timers of a
 * paused namespace stay in the queue, too. */
static bool may_go(struct worker *worker, const struct item *item, int64_t now_us)
{
    return shard_is_ours(worker, item->shard) && !space_is_paused(worker->node, item->parcel->space) &&
           (item->firing.timer.attempt > 1 || item->firing.timer.due_us <= now_us);
}

static bool has_ours(struct worker *worker, const struct queue *queue)
{
    struct item *item = queue->first;
    int64_t now_us = item ? node_now(worker->node) : 0;
    while (item && (item_state(item) == ITEM_WITHDRAWN || !may_go(worker, item, now_us)))
        item = item->next;
    return item != NULL;
}

/* Returns the next item that may be leased, of the first `*left` items; NULL: none. Items that may not be leased now go to
 * the end of the queue. */
static struct item *queue_next(struct worker *worker, struct queue *queue, size_t *left, int64_t now_us)
{
    while (*left > 0) {
        fl__assert(*left <= queue->count);
        struct item *item = queue_pop(queue);
        bool goes = may_go(worker, item, now_us);
        --*left;
        if (item_state(item) == ITEM_WITHDRAWN || (goes && !item_enter(item, ITEM_WAITS, ITEM_LEASED)))
            item_drop(worker->pull, item);
        else if (goes)
            return item;
        else
            queue_push(queue, item);
    }
    return NULL;
}

/* Tells the engine of one shard which attempts have begun. */
struct begun {
    fl_loop_task task;
    struct shard *shard;
    size_t count;
    uint64_t tokens[];
};

static void begin_here(fl_loop *loop, void *arg)
{
    struct begun *begun = arg;
    (void)loop;
    for (size_t i = 0; i < begun->count && begun->shard->engine; i++)
        fl_engine_begin(begun->shard->engine, begun->tokens[i], true);
    free(begun);
}

/* Tells the shards which attempts have begun. Without memory for the message, attempts count when they are settled. */
static void tell_shards(struct worker *worker, const struct lease *lease)
{
    struct item **slots = worker->pull->slots;
    fl__assert(lease->count > 0);
    for (size_t i = 0, n; i < lease->count; i += n) {
        struct shard *shard = slots[lease->items[i].slot]->shard;
        for (n = 1; i + n < lease->count && slots[lease->items[i + n].slot]->shard == shard;)
            n++;
        struct begun *begun = malloc(sizeof *begun + n * sizeof *begun->tokens);
        if (!begun)
            continue;
        *begun = (struct begun){.task = {.fn = begin_here, .arg = begun}, .shard = shard, .count = n};
        for (size_t k = 0; k < n; k++)
            begun->tokens[k] = slots[lease->items[i + k].slot]->firing.token;
        if (shard->worker == worker)
            begin_here(worker->loop, begun);
        else
            fl_loop_post_task(shard->worker->loop, &begun->task);
    }
}

/* Leases to the asker as many timers as wait, up to its maximum. */
static void serve(struct worker *worker, struct queue *queue, struct shard_call *call)
{
    struct asker *asker = &call->asker;
    struct pull *pull = worker->pull;
    size_t left = queue->count, count = left < asker->max ? left : asker->max;
    struct lease *lease = malloc(sizeof *lease + count * sizeof *lease->items);
    fl__assert(queue->worker == worker && call->kind == CALL_LEASE);
    if (lease)
        *lease = (struct lease){.worker = worker};
    if (!lease || lease_begin(worker, lease, asker->lease_us) < 0) {
        free(lease);
        call->result = FL_NO_MEMORY;
        return;
    }
    size_t i = 0, most = pace_lease_bytes(worker);
    int64_t now_us = node_now(worker->node);
    for (struct item *item; i < count && asker->out.size < most; i++) {
        item = queue_next(worker, queue, &left, now_us);
        if (!item)
            break;
        fl__assert(item->serial == 0 && pull->slots[item->slot] == item);
        item->lease = lease;
        item->began_us = now_us;
        item->serial = serial_next(worker->node, pull);
        lease->items[i] = (struct lease_item){item->slot, item->serial};
        asker->write(&asker->out,
                     &(struct leased){.server = (uint32_t)worker->node->config.incarnation,
                                      .worker = (uint16_t)worker->index,
                                      .slot = item->slot,
                                      .serial = item->serial,
                                      .shard = item->shard->number,
                                      .timer = &item->firing.timer},
                     i);
    }
    lease->left = lease->count = asker->count = i;
    worker->counts.leased += i;
    if (i == 0)
        lease_free(worker, lease); /* all items of the queue were withdrawn */
    else
        tell_shards(worker, lease);
}

static void asker_leave(struct worker *worker, struct shard_call *call)
{
    struct queue *queue = call->asker.queue;
    struct shard_call **at = &queue->askers, *before = NULL;
    fl__assert(queue && queue->worker == worker);
    for (; *at != call; at = &(*at)->asker.next) {
        fl__assert(*at); /* it waits in this queue */
        before = *at;
    }
    *at = call->asker.next;
    if (queue->askers_last == call)
        queue->askers_last = before;
    if (call->asker.timer)
        fl_loop_cancel(worker->loop, call->asker.timer);
    call->asker.timer = 0;
    call->asker.queue = NULL;
}

static void nudge(fl_loop *loop, void *arg)
{
    struct queue *queue = arg;
    fl__assert(queue->nudge != 0);
    (void)loop;
    queue->nudge = 0;
    serve_askers(queue->worker, queue);
}

/* Serves again soon if both askers and items wait: a watcher did not take its timers, or no item may be leased now. */
static void nudge_later(struct queue *queue)
{
    if (queue->askers && queue->first && !queue->nudge)
        fl_loop_timer(queue->worker->loop, NUDGE_NS, nudge, queue, &queue->nudge);
}

/* Serves the waiting askers in order. An asker whose client is gone gets nothing, because its lease would only expire. */
void serve_askers(struct worker *worker, struct queue *queue)
{
    size_t promised = 0;
    fl__assert(queue->worker == worker);
    while (queue->askers && queue->count > promised && has_ours(worker, queue)) {
        struct shard_call *call = queue->askers;
        bool wanted = !atomic_load(&call->unwanted);
        asker_leave(worker, call);
        call->asker.found = true;
        if (call->kind == CALL_WATCH)
            promised += wanted ? call->asker.max : 0;
        else if (wanted)
            serve(worker, queue, call);
        call_return(call);
    }
    nudge_later(queue);
}

static void asked_long_enough(fl_loop *loop, void *arg)
{
    struct shard_call *call = arg;
    fl__assert(call->asker.queue);
    (void)loop;
    call->asker.timer = 0;
    asker_leave(call->errand.there, call);
    call_return(call);
}

/* Returns whether the call is answered. */
static bool serve_at_once(struct worker *worker, struct queue *queue, struct shard_call *call)
{
    bool watches = call->kind == CALL_WATCH;
    if ((!watches && queue->askers && call->asker.wait_us > 0) || !has_ours(worker, queue))
        return false;
    call->asker.found = true;
    if (!watches)
        serve(worker, queue, call);
    return true;
}

void pull_ask(struct shard_call *call)
{
    struct worker *worker = call->errand.there;
    struct asker *asker = &call->asker;
    struct queue *queue = queue_of(worker, asker->space);
    fl__assert(!asker->queue && !asker->timer);
    if (!queue)
        call->result = FL_NO_MEMORY;
    if (!queue || serve_at_once(worker, queue, call) || asker->wait_us == 0 || worker->pull->stopped ||
        fl_loop_timer(worker->loop, asker->wait_us * 1000, asked_long_enough, call, &asker->timer) < 0) {
        call_return(call);
        return;
    }
    asker->queue = queue;
    asker->next = NULL;
    if (queue->askers)
        queue->askers_last->asker.next = call;
    else
        queue->askers = call;
    queue->askers_last = call;
    nudge_later(queue);
}

void pull_unask(struct worker *worker, struct shard_call *call)
{
    if (!call->asker.queue)
        return;
    asker_leave(worker, call);
    call_return(call);
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

/* Answers all waiting requests. */
void pull_stop(struct worker *worker)
{
    struct pull *pull = worker->pull;
    pull->stopped = true;
    for (struct queue *queue = pull->queues; queue; queue = queue->next)
        while (queue->askers)
            pull_unask(worker, queue->askers);
}

/* Removes the items of a shard from a queue. */
static void queue_purge(struct queue *queue, const struct shard *shard)
{
    struct item *item = queue->first, *next;
    queue->first = queue->last = NULL;
    queue->count = 0;
    for (; item; item = next) {
        next = item->next;
        if (item->shard != shard)
            queue_push(queue, item);
    }
}

/* Forgets the items of a shard. An acknowledgement of one of their leases gets "unknown"; the next shard owner dispatches the
 * timer again. */
void pull_purge(struct worker *worker, struct shard *shard)
{
    struct pull *pull = worker->pull;
    for (struct queue *queue = pull->queues; queue; queue = queue->next)
        queue_purge(queue, shard);
    for (uint32_t i = 0; i < pull->slot_count; i++) {
        struct item *item = pull->slots[i];
        if (!item || item->shard != shard)
            continue;
        if (item->serial)
            lease_drop(worker, item->lease);
        item_drop(pull, item);
    }
}

/* Timers that are leased and not acknowledged are dispatched again after the next start. */
void pull_free(struct worker *worker)
{
    struct pull *pull = worker->pull;
    if (!pull)
        return;
    for (uint32_t i = 0; i < pull->slot_count; i++) {
        struct item *item = pull->slots[i];
        if (item && item->serial && --item->lease->left == 0)
            free(item->lease);
        if (item)
            item_drop(pull, item);
    }
    for (struct queue *queue = pull->queues, *next; queue; queue = next) {
        next = queue->next;
        if (queue->nudge)
            fl_loop_cancel(worker->loop, queue->nudge);
        free(queue);
    }
    free(pull->slots);
    free(pull->free_slots);
    free(pull);
    worker->pull = NULL;
}
