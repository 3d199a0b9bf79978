/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_PULL_H
#define FOLIOT_NODE_PULL_H

/* Declarations that pull.c, pull_leases.c and pull_items.c share. */

#include "base/assert.h"
#include "node/internal.h"

/* pull_items.c lists the allowed transitions. */
enum item_state {
    ITEM_WAITS,     /* for a lease: the engine may withdraw it */
    ITEM_LEASED,    /* its attempt has begun */
    ITEM_WITHDRAWN, /* its timer is gone; its home has not removed it yet */
    ITEM_ENDED,     /* it is acknowledged, expired or dropped */
    ITEM_STATES
};

struct item {
    struct waiter waiter;
    atomic_int state;
    fl_firing firing;
    struct shard *shard;
    struct parcel *parcel;
    struct item *next; /* in the queue, or in the list of settled items */
    struct lease *lease;
    int64_t began_us; /* when the lease began */
    int64_t ended_us; /* when the lease ended */
    uint64_t serial;  /* of its lease, at random; 0: it waits */
    uint32_t slot;
    fl_loop_task task; /* takes the settlements of this item and of the next ones to the shard's worker */
    fl_settlement settlement;
};

/* Items that came together. */
struct parcel {
    fl_loop_task task;
    struct worker *home;
    struct space *space;
    atomic_size_t left; /* the last item that is settled or dropped frees the parcel, on any worker */
    size_t count;
    struct item items[];
};

/* Items that went out together. */
struct lease {
    struct worker *worker;
    fl_timer_id timer;
    struct lease *next; /* only with a test clock, instead of the timer: the list of current leases */
    int64_t end_us;     /* only with a test clock: when it expires */
    size_t left, count;
    struct lease_item {
        uint32_t slot;
        uint64_t serial;
    } items[];
};

struct queue {
    struct queue *next;
    struct worker *worker;
    const struct space *space;
    struct item *first, *last;
    size_t count;
    struct shard_call *askers, *askers_last;
    fl_timer_id nudge; /* 0: none */
};

struct pull {
    struct queue *queues; /* of all namespaces that have their home on this worker */
    struct item **slots;
    uint32_t *free_slots;
    uint32_t slot_count, slot_capacity, free_count;
    uint64_t serials[32];  /* random numbers, fetched together */
    unsigned serials_left; /* unused ones */
    struct lease *leases;  /* only with a test clock */
    struct item *settled;  /* items whose settlements go to one worker together; NULL: none */
    struct item *settled_last;
    atomic_uint withdrawn; /* items in the queues, or on their way there */
    bool stopped;
};

struct queue *queue_of(struct worker *worker, struct space *space); /* NULL: no memory */
void serve_askers(struct worker *worker, struct queue *queue);

static inline void queue_push(struct queue *queue, struct item *item)
{
    item->next = NULL;
    item->serial = 0;
    if (queue->last)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
    queue->count++;
}

static inline struct item *queue_pop(struct queue *queue)
{
    struct item *item = queue->first;
    fl__assert(item && queue->count > 0);
    queue->first = item->next;
    if (!queue->first)
        queue->last = NULL;
    queue->count--;
    return item;
}

/* Whether the claim of the shard is still valid. It reads the clock, because the process may have stood still. */
static inline bool shard_is_ours(struct worker *worker, struct shard *shard)
{
    uint64_t until_ns = atomic_load(&shard->good_until_ns);
    return until_ns == UINT64_MAX || fl_loop_update_now(worker->loop) < until_ns;
}

/* --- pull_leases.c */

int lease_begin(struct worker *worker, struct lease *lease, uint64_t lease_us); /* starts the time until it expires */
void lease_free(struct worker *worker, struct lease *lease);
void lease_drop(struct worker *worker, struct lease *lease); /* one of its items has ended */

/* --- pull_items.c */

/* Changes the state if it still is `from`. Of two threads that try, one succeeds. */
bool item_enter(struct item *item, enum item_state from, enum item_state to);
void item_drop(struct pull *pull, struct item *item); /* at its home, when it no longer waits */
/* Ends a leased item. The engine may still refer to it until it has the settlement, so the shard's worker frees the item.
 * Call items_settled() after the last item: settlements for shards of one worker travel together. */
void item_settle(struct worker *worker, struct item *item, fl_settlement settlement, int64_t now_us);
void items_settled(struct worker *worker);

static inline enum item_state item_state(const struct item *item)
{
    return (enum item_state)atomic_load(&item->state);
}

#endif
