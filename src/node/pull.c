/* SPDX-License-Identifier: MIT */
/* Pull: timers without a target wait here until they are leased (lease.c) and acknowledged (ack.c).
 *
 * What is due in a namespace goes to one worker, the namespace's home, wherever its shards are: there it waits in one queue,
 * and so do those who ask while it is empty. A lease is written as the server, the home's number, the item's slot and a
 * random number that nobody can guess and that no second lease of that slot has: so an acknowledgement finds its item, or
 * finds that it has come too late.
 *
 * Who asks several servers does not wait for timers but for the news that there are some (`watch`), and takes them then: or two
 * servers might give him more than he asked for. Such news goes to as many as could take all that is there; should they
 * not come for it, to the next.
 *
 * An item is a timer that the engine has dispatched; its bytes stay where they are until it is settled, on its shard's worker.
 * Until it is leased, its attempt has not begun: the engine may withdraw it, from the shard's worker, because the timer is
 * cancelled, replaced or changed. Whoever takes the item's state out of ITEM_WAITS first has it: the home to lease it, the
 * shard to withdraw it. The home never looks at the bytes of an item that it has not taken. What was withdrawn stays in its
 * queue until the home comes across it.
 *
 * When a lease expires, the attempt has failed: the engine writes that down, and dispatches the timer again at once, until
 * there have been as many attempts as its policy allows. So the attempts are counted across restarts.
 *
 * Timers that nobody leases take no room that others need: each namespace is a lane of the engine (fl_engine_wait), which
 * parks in the store what exceeds the share of the lane. */

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
    return &node->workers[space->hash % node->worker_count];
}

struct queue *queue_of(struct worker *worker, struct space *space)
{
    struct queue **bucket = &worker->pull->queues[space->hash / worker->node->worker_count % QUEUE_BUCKETS], *queue;
    for (queue = *bucket; queue; queue = queue->next)
        if (queue->ns.data == space->name)
            return queue;
    queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->worker = worker;
    queue->ns = (fl_bytes){space->name, space->size};
    queue->next = *bucket;
    *bucket = queue;
    return queue;
}

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

static void lease_ended(fl_loop *loop, void *arg);

/* From now on it can run out. */
static int lease_begin(struct worker *worker, struct lease *lease, uint64_t lease_us)
{
    struct pull *pull = worker->pull;
    if (!worker->node->config.test_clock)
        return fl_loop_timer(worker->loop, lease_us * 1000, lease_ended, lease, &lease->timer);
    lease->end_us = node_now(worker->node) + (int64_t)lease_us;
    lease->next = pull->leases;
    pull->leases = lease;
    return 0;
}

static void lease_unlink(struct pull *pull, const struct lease *lease)
{
    struct lease **at = &pull->leases;
    while (*at != lease)
        at = &(*at)->next;
    *at = lease->next;
}

/* Takes one out that is over. */
static struct lease *lease_take_over(struct pull *pull, int64_t now_us)
{
    struct lease *lease = pull->leases;
    while (lease && lease->end_us > now_us)
        lease = lease->next;
    if (lease)
        lease_unlink(pull, lease);
    return lease;
}

int64_t pull_clock_changed(struct worker *worker)
{
    struct pull *pull = worker->pull;
    int64_t now_us = node_now(worker->node), next_us = INT64_MAX;
    for (struct lease *lease; (lease = lease_take_over(pull, now_us)) != NULL;)
        lease_ended(worker->loop, lease);
    for (const struct lease *lease = pull->leases; lease; lease = lease->next)
        if (lease->end_us < next_us)
            next_us = lease->end_us;
    return next_us;
}

static uint64_t serial_next(const struct node *node, struct pull *pull)
{
    if (pull->serials_left == 0) {
        if (node->ports->random(pull->serials, sizeof pull->serials) < 0)
            abort(); /* a system without random numbers has no secrets at all */
        pull->serials_left = sizeof pull->serials / sizeof *pull->serials;
    }
    return pull->serials[--pull->serials_left] | 1;
}

/* Whether the shard is still ours, now: the process may have been stopped for long. */
static bool is_ours(struct worker *worker, struct shard *shard)
{
    uint64_t until_ns = atomic_load(&shard->good_until_ns);
    return until_ns == UINT64_MAX || fl_loop_update_now(worker->loop) < until_ns;
}

/* A clock that was set back a little leaves what is due as it is: but nothing is leased before its time. What waited for a lease when
 * its namespace was paused goes on waiting. */
static bool may_go(struct worker *worker, const struct item *item)
{
    return is_ours(worker, item->shard) && !space_is_paused(worker->node, item->parcel->space) &&
           (item->firing.timer.attempt > 1 || item->firing.timer.due_us <= node_now(worker->node));
}

static bool has_ours(struct worker *worker, const struct queue *queue)
{
    struct item *item = queue->first;
    while (item && (item_state(item) == ITEM_WITHDRAWN || !may_go(worker, item)))
        item = item->next;
    return item != NULL;
}

/* The next that may be given, out of so many; NULL: none. Those of a shard that may be another server's stay. */
static struct item *queue_next(struct worker *worker, struct queue *queue, size_t *left)
{
    while (*left > 0) {
        struct item *item = queue_pop(queue);
        bool goes = may_go(worker, item);
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

/* Attempts of one shard that have begun. */
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

/* Tells the shards what is leased. Without memory for that, attempts count when they are settled. */
static void tell_shards(struct worker *worker, const struct lease *lease)
{
    struct item **slots = worker->pull->slots;
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

static void lease_free(struct worker *worker, struct lease *lease)
{
    if (worker->node->config.test_clock)
        lease_unlink(worker->pull, lease);
    else
        fl_loop_cancel(worker->loop, lease->timer);
    free(lease);
}

/* Gives the asker as much as is there. */
static void serve(struct worker *worker, struct queue *queue, struct shard_call *call)
{
    struct asker *asker = &call->asker;
    struct pull *pull = worker->pull;
    size_t left = queue->count, count = left < asker->max ? left : asker->max;
    struct lease *lease = malloc(sizeof *lease + count * sizeof *lease->items);
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
        item = queue_next(worker, queue, &left);
        if (!item)
            break;
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
        lease_free(worker, lease); /* all that was there has been withdrawn */
    else
        tell_shards(worker, lease);
}

static void asker_leave(struct worker *worker, struct shard_call *call)
{
    struct queue *queue = call->asker.queue;
    struct shard_call **at = &queue->askers, *before = NULL;
    for (; *at != call; at = &(*at)->asker.next)
        before = *at;
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
    (void)loop;
    queue->nudge = 0;
    serve_askers(queue->worker, queue);
}

/* Somebody waits although something is there: he was passed over, or it may not be given just now. */
static void nudge_later(struct queue *queue)
{
    if (queue->askers && queue->first && !queue->nudge)
        fl_loop_timer(queue->worker->loop, NUDGE_NS, nudge, queue, &queue->nudge);
}

/* Those that wait get what is there, in order. One that is not wanted any more gets nothing: it would only run out. */
void serve_askers(struct worker *worker, struct queue *queue)
{
    size_t promised = 0;
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
    (void)loop;
    call->asker.timer = 0;
    asker_leave(call->errand.there, call);
    call_return(call);
}

/* Whether it has been given what is there. */
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

/* --- Coming in ---------------------------------------------------------------------------------------------------- */

static void lease_ended(fl_loop *loop, void *arg)
{
    struct lease *lease = arg;
    struct worker *worker = lease->worker;
    (void)loop;
    for (size_t i = 0; i < lease->count; i++) {
        struct item *item = worker->pull->slots[lease->items[i].slot];
        if (!item || item->serial != lease->items[i].serial || item->lease != lease)
            continue; /* it was acknowledged, or was extended and has another lease */
        worker->counts.leases_expired++;
        item_settle(worker, item, (fl_settlement){.result = FL_EXPIRED, .reason = bytes_of("the lease expired")});
    }
    free(lease);
}

/* --- Acknowledgements --------------------------------------------------------------------------------------------- */

/* It is not out any more. */
static void lease_drop(struct worker *worker, struct lease *lease)
{
    if (--lease->left == 0)
        lease_free(worker, lease);
}

/* The item gets a lease of its own, which ends so long from now, and keeps its serial number. False: there is no memory, and the
 * lease ends when it would have ended. */
static bool lease_extend(struct worker *worker, struct item *item, uint64_t lease_us)
{
    struct lease *lease = malloc(sizeof *lease + sizeof *lease->items);
    if (!lease)
        return false;
    *lease = (struct lease){.worker = worker, .left = 1, .count = 1};
    lease->items[0] = (struct lease_item){item->slot, item->serial};
    if (lease_begin(worker, lease, lease_us) < 0) {
        free(lease);
        return false;
    }
    lease_drop(worker, item->lease);
    item->lease = lease;
    return true;
}

static bool is_among(char *const *namespaces, fl_bytes ns)
{
    if (!namespaces)
        return true;
    for (; *namespaces; namespaces++)
        if (strlen(*namespaces) == ns.size && memcmp(*namespaces, ns.data, ns.size) == 0)
            return true;
    return false;
}

static const enum fl_settle settle_of[ACK_RESULTS] = {
    [ACK_DONE] = FL_DONE, [ACK_RETRY] = FL_FAILED,  [ACK_AGAIN] = FL_AGAIN,
    [ACK_DEAD] = FL_DEAD, [ACK_RELEASE] = FL_LATER,
};

bool pull_settle(struct worker *worker, char *const *namespaces, const struct ack *ack)
{
    struct pull *pull = worker->pull;
    struct item *item = ack->slot < pull->slot_count ? pull->slots[ack->slot] : NULL;
    if (!item || item->serial == 0 || item->serial != ack->serial || !is_among(namespaces, item->firing.timer.ns) ||
        !is_ours(worker, item->shard))
        return false;
    if (ack->result == ACK_EXTEND)
        return lease_extend(worker, item, ack->after_us);
    lease_drop(worker, item->lease);
    item->serial = 0;
    bool given_up = ack->result == ACK_RETRY || ack->result == ACK_DEAD;
    bool later = ack->result == ACK_AGAIN || ack->after_us > 0;
    item_settle(worker, item,
                (fl_settlement){.result = settle_of[ack->result],
                                .at_us = later ? node_now(worker->node) + (int64_t)ack->after_us : 0,
                                .reason = bytes_of(given_up ? "the worker reported a failure" : "")});
    worker->counts.acknowledged++;
    return true;
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

/* Nobody waits any longer. */
void pull_stop(struct worker *worker)
{
    struct pull *pull = worker->pull;
    pull->stopped = true;
    for (size_t i = 0; i < QUEUE_BUCKETS; i++)
        for (struct queue *queue = pull->queues[i]; queue; queue = queue->next)
            while (queue->askers)
                pull_unask(worker, queue->askers);
}

/* Keeps of a queue what is not of this shard. */
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

/* Whoever has a lease of one of these finds, when he acknowledges it, that it is unknown; the timer comes again from
 * where its shard is then. */
void pull_purge(struct worker *worker, struct shard *shard)
{
    struct pull *pull = worker->pull;
    for (size_t i = 0; i < QUEUE_BUCKETS; i++)
        for (struct queue *queue = pull->queues[i]; queue; queue = queue->next)
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

/* What was leased and not acknowledged comes again after the next start. */
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
    for (size_t i = 0; i < QUEUE_BUCKETS; i++)
        for (struct queue *queue = pull->queues[i], *next; queue; queue = next) {
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
