/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_PULL_H
#define FOLIOT_NODE_PULL_H

/* What pull.c and pull_items.c share. */

#include "base/assert.h"
#include "node/internal.h"

/* What may follow on what is in pull_items.c. */
enum item_state {
    ITEM_WAITS,     /* for a lease: the engine may withdraw it */
    ITEM_LEASED,    /* its attempt has begun */
    ITEM_WITHDRAWN, /* it is no more; its home has yet to notice */
    ITEM_ENDED,     /* it is acknowledged, has expired or is dropped */
    ITEM_STATES
};

struct item {
    struct waiter waiter;
    atomic_int state;
    fl_firing firing;
    struct shard *shard;
    struct parcel *parcel;
    struct item *next; /* in the queue */
    struct lease *lease;
    int64_t began_us; /* when it was leased */
    uint64_t serial;  /* of its lease, at random; 0: it waits */
    uint32_t slot;
    fl_loop_task task; /* takes the settlement to the shard's worker */
    fl_settlement settlement;
};

/* Items that came together. */
struct parcel {
    fl_loop_task task;
    struct worker *home;
    struct space *space;
    atomic_size_t left; /* the last that is settled or dropped frees the parcel, on whatever worker */
    size_t count;
    struct item items[];
};

/* Items that went out together. */
struct lease {
    struct worker *worker;
    fl_timer_id timer;
    struct lease *next; /* with a test clock, instead of the timer: those that are out, */
    int64_t end_us;     /* until then */
    size_t left, count;
    struct lease_item {
        uint32_t slot;
        uint64_t serial;
    } items[];
};

struct queue {
    struct queue *next;
    struct worker *worker;
    fl_bytes ns; /* the space's */
    struct item *first, *last;
    size_t count;
    struct shard_call *askers, *askers_last;
    fl_timer_id nudge; /* 0: none */
};

enum { QUEUE_BUCKETS = 1024 };

struct pull {
    struct queue *queues[QUEUE_BUCKETS];
    struct item **slots;
    uint32_t *free_slots;
    uint32_t slot_count, slot_capacity, free_count;
    uint64_t serials[32];  /* at random, as many as one call gives */
    unsigned serials_left; /* of them */
    struct lease *leases;  /* with a test clock */
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

/* --- pull_items.c */

/* Makes a state follow on another one, if it is in that; whoever is first has it. */
bool item_enter(struct item *item, enum item_state from, enum item_state to);
void item_drop(struct pull *pull, struct item *item); /* the home has come across one that waits no more */
/* Ends one that is leased. */
void item_settle(struct worker *worker, struct item *item, fl_settlement settlement);

static inline enum item_state item_state(const struct item *item)
{
    return (enum item_state)atomic_load(&item->state);
}

#endif
