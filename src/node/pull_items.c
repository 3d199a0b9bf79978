/* SPDX-License-Identifier: MIT */
/* Items between the shard's engine and the namespace's home, in both directions, and their states.
 *
 * WAITS becomes LEASED at the namespace's home, or WITHDRAWN on the shard's worker; the first change succeeds. Only the home
 * ends an item. See pull.c. */

#include <stdlib.h>
#include <string.h>

#include "node/pull.h"
#include "text/log.h"

enum { SWEEP_LEAST = 1000 };

#define BIT(state) (1u << (state))

static const unsigned may_follow[ITEM_STATES] = {
    [ITEM_WAITS] = BIT(ITEM_LEASED) | BIT(ITEM_WITHDRAWN) | BIT(ITEM_ENDED),
    [ITEM_LEASED] = BIT(ITEM_ENDED),
    [ITEM_WITHDRAWN] = BIT(ITEM_ENDED),
    [ITEM_ENDED] = 0,
};

bool item_enter(struct item *item, enum item_state from, enum item_state to)
{
    int expected = from;
    fl__assert(may_follow[from] & BIT(to));
    return atomic_compare_exchange_strong(&item->state, &expected, to);
}

static bool slot_take(struct pull *pull, struct item *item)
{
    if (pull->free_count == 0 && pull->slot_count == pull->slot_capacity) {
        uint32_t capacity = pull->slot_capacity * 2 + 1024;
        struct item **slots = realloc(pull->slots, capacity * sizeof(struct item *));
        if (slots)
            pull->slots = slots;
        uint32_t *free_slots = slots ? realloc(pull->free_slots, capacity * sizeof *free_slots) : NULL;
        if (!free_slots)
            return false;
        pull->free_slots = free_slots;
        pull->slot_capacity = capacity;
    }
    item->slot = pull->free_count > 0 ? pull->free_slots[--pull->free_count] : pull->slot_count++;
    fl__assert(item->slot < pull->slot_capacity);
    pull->slots[item->slot] = item;
    return true;
}

/* --- Settling ----------------------------------------------------------------------------------------------------- */

static void parcel_drop(struct parcel *parcel, size_t count)
{
    size_t left = atomic_fetch_sub(&parcel->left, count);
    fl__assert(left >= count);
    if (left == count)
        free(parcel);
}

static void settle_on_shard(struct shard *shard, const struct item *item)
{
    int64_t took_us = item->ended_us - item->began_us;
    fl__assert(shard->held > 0);
    shard->held--;
    deliver_settle(shard, &item->firing, &item->settlement,
                   &(struct tried){.began_us = item->began_us,
                                   .took_us = took_us > 0 ? (uint64_t)took_us : 0,
                                   .last = is_last_attempt(shard->worker->node, &item->firing.timer)});
    parcel_drop(item->parcel, 1);
}

static void settle_here(fl_loop *loop, void *arg)
{
    (void)loop;
    for (struct item *item = arg, *next; item; item = next) {
        next = item->next;
        settle_on_shard(item->shard, item);
    }
}

static void slot_give(struct pull *pull, struct item *item)
{
    fl__assert(pull->slots[item->slot] == item && pull->free_count < pull->slot_count);
    pull->slots[item->slot] = NULL;
    pull->free_slots[pull->free_count++] = item->slot;
}

/* On the shard's worker. */
static bool withdraw(struct waiter *waiter)
{
    struct item *item = (struct item *)waiter;
    struct pull *pull = item->parcel->home->pull; /* the parcel stays as long as the item does */
    struct shard *shard = item->shard;
    if (!item_enter(item, ITEM_WAITS, ITEM_WITHDRAWN))
        return false;
    atomic_fetch_add_explicit(&pull->withdrawn, 1, memory_order_relaxed);
    fl__assert(shard->held > 0);
    shard->held--;
    return true;
}

void item_drop(struct pull *pull, struct item *item)
{
    enum item_state state = item_state(item);
    while (!item_enter(item, state, ITEM_ENDED)) /* it may be withdrawn at this moment */
        state = item_state(item);
    if (state == ITEM_WITHDRAWN)
        atomic_fetch_sub_explicit(&pull->withdrawn, 1, memory_order_relaxed);
    slot_give(pull, item);
    parcel_drop(item->parcel, 1);
}

void items_settled(struct worker *worker)
{
    struct item *item = worker->pull->settled;
    worker->pull->settled = NULL;
    if (!item)
        return;
    item->task = (fl_loop_task){.fn = settle_here, .arg = item};
    fl_loop_post_task(item->shard->worker->loop, &item->task);
}

void item_settle(struct worker *worker, struct item *item, fl_settlement settlement, int64_t now_us)
{
    struct pull *pull = worker->pull;
    bool leased = item_enter(item, ITEM_LEASED, ITEM_ENDED);
    fl__assert(item->parcel->home == worker);
    fl__assert(leased);
    settlement.token = item->firing.token;
    item->settlement = settlement;
    item->ended_us = now_us;
    item->next = NULL;
    slot_give(pull, item);
    if (item->shard->worker == worker) {
        settle_on_shard(item->shard, item);
        return;
    }
    if (pull->settled && pull->settled->shard->worker != item->shard->worker)
        items_settled(worker);
    if (pull->settled)
        pull->settled_last->next = item;
    else
        pull->settled = item;
    pull->settled_last = item;
}

/* --- Coming in ---------------------------------------------------------------------------------------------------- */

static void sweep_queue(struct pull *pull, struct queue *queue)
{
    for (size_t left = queue->count; left > 0; left--) {
        struct item *item = queue_pop(queue);
        if (item_state(item) == ITEM_WITHDRAWN)
            item_drop(pull, item);
        else
            queue_push(queue, item);
    }
}

/* Once there are as many that were withdrawn as others. */
static void sweep(struct pull *pull)
{
    uint32_t withdrawn = atomic_load_explicit(&pull->withdrawn, memory_order_relaxed);
    fl__assert(pull->free_count <= pull->slot_count);
    if (withdrawn < SWEEP_LEAST || withdrawn < (pull->slot_count - pull->free_count) / 2)
        return;
    for (struct queue *queue = pull->queues; queue; queue = queue->next)
        sweep_queue(pull, queue);
}

/* All of one namespace. */
static void parcel_arrives(fl_loop *loop, void *arg)
{
    struct parcel *parcel = arg;
    struct worker *worker = parcel->home;
    struct queue *queue = queue_of(worker, parcel->space);
    (void)loop;
    size_t missed = 0;
    atomic_fetch_add(&parcel->left, 1); /* for ourselves */
    sweep(worker->pull);
    for (size_t i = 0; i < parcel->count; i++) {
        struct item *item = &parcel->items[i];
        if (queue && slot_take(worker->pull, item)) {
            queue_push(queue, item);
        } else {
            log_error("no memory for a due timer; it fires after a restart", NULL);
            missed++;
        }
    }
    if (queue)
        serve_askers(worker, queue);
    parcel_drop(parcel, missed + 1);
}

/* Makes items of the firings that may wait in memory. Returns NULL if none may, or without memory: then the firings are put
 * off. */
static struct parcel *pack(struct shard *shard, struct space *space, const fl_firing *firings, size_t count)
{
    struct parcel *parcel = space ? malloc(sizeof *parcel + count * sizeof *parcel->items) : NULL;
    fl__assert(count > 0 && shard->engine);
    if (!parcel) {
        for (size_t i = 0; i < count; i++)
            fl_engine_settle(shard->engine,
                             &(fl_settlement){.token = firings[i].token,
                                              .result = FL_LATER,
                                              .at_us = node_now(shard->worker->node) + 1000000},
                             1);
        return NULL;
    }
    *parcel = (struct parcel){.home = pull_home(shard->worker->node, space), .space = space};
    uint32_t lane = lane_of_space(space);
    for (size_t i = 0; i < count; i++) {
        struct item *item = &parcel->items[parcel->count];
        *item = (struct item){.waiter = {withdraw}, .firing = firings[i], .shard = shard, .parcel = parcel};
        parcel->count += fl_engine_wait(shard->engine, firings[i].token, lane, &item->waiter);
    }
    atomic_store(&parcel->left, parcel->count);
    if (parcel->count > 0)
        return parcel;
    free(parcel);
    return NULL;
}

/* Timers that are due, of any namespaces: each goes to its home. */
void pull_add(struct shard *shard, const fl_firing *firings, size_t count)
{
    struct node *node = shard->worker->node;
    for (size_t i = 0, n; i < count; i += n) {
        struct space *space = space_of(node, firings[i].timer.ns);
        for (n = 1; i + n < count; n++)
            if (space_of(node, firings[i + n].timer.ns) != space)
                break;
        struct parcel *parcel = pack(shard, space, &firings[i], n);
        if (!parcel)
            continue;
        shard->held += parcel->count;
        parcel->task = (fl_loop_task){.fn = parcel_arrives, .arg = parcel};
        if (parcel->home == shard->worker)
            parcel_arrives(parcel->home->loop, parcel);
        else
            fl_loop_post_task(parcel->home->loop, &parcel->task);
    }
}

/* --- What is there ------------------------------------------------------------------------------------------------ */

void pull_count(const struct worker *worker, const struct space *space, int64_t *ret_waiting, int64_t *ret_leased)
{
    const struct pull *pull = worker->pull;
    int64_t all = 0, wanted = 0;
    for (const struct queue *queue = pull->queues; queue; queue = queue->next) {
        all += (int64_t)queue->count;
        wanted += !space || queue->space == space ? (int64_t)queue->count : 0;
    }
    *ret_waiting = wanted;
    *ret_leased = (int64_t)(pull->slot_count - pull->free_count) - all;
}

/* What is wrong with an item that has a slot, as its home sees it; NULL: nothing. */
static const char *item_check(const struct pull *pull, const struct item *item, uint32_t slot)
{
    enum item_state state = item_state(item);
    if (item->slot != slot || state == ITEM_ENDED)
        return "an item that has not ended is in its slot";
    if ((item->serial != 0) != (state == ITEM_LEASED))
        return "an item has a serial number if it is leased";
    if (state == ITEM_LEASED && (item->lease->left == 0 || item->lease->left > item->lease->count))
        return "a lease knows how many of its items are out";
    return pull->slot_count <= pull->slot_capacity ? NULL : "slots are within their array";
}

const char *pull_check(const struct worker *worker)
{
    const struct pull *pull = worker->pull;
    size_t queued = 0, used = 0, leased = 0;
    for (uint32_t i = 0; i < pull->slot_count; i++) {
        const char *wrong = pull->slots[i] ? item_check(pull, pull->slots[i], i) : NULL;
        if (wrong)
            return wrong;
        used += pull->slots[i] != NULL;
        leased += pull->slots[i] && pull->slots[i]->serial != 0;
    }
    for (const struct queue *queue = pull->queues; queue; queue = queue->next) {
        size_t count = 0;
        for (const struct item *item = queue->first; item; item = item->next)
            count++;
        if (count != queue->count || !queue->first != !queue->last)
            return "a queue knows its length and its end";
        queued += count;
    }
    if (used + pull->free_count != pull->slot_count)
        return "a slot is free or has an item";
    return queued + leased == used ? NULL : "an item is leased or in a queue";
}
