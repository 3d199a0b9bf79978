/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WEBTIMERS_WEBTIMERS_H
#define FOLIOT_WEBTIMERS_WEBTIMERS_H

/* The timers of a browser, setTimeout() and setInterval(), on a loop, for any JavaScript engine; foliot/webtimers.h is the
 * contract. This folder may use base, wheel and loop. It knows no JavaScript engine. No other folder includes this header.
 *
 *     webtimers.c  the rules of browsers: delays, nesting, order
 *     table.c      the timers of a set, by their IDs
 *
 * The table. IDs count up and begin again at 1 after 2^31 - 1, so that a stale ID means nothing for as long as possible. The index is
 * an array of a power of two of pointers, and a timer stands at its ID modulo that length: there is no hashing and no
 * probing, because an ID whose place is taken by an older timer is passed over and never given. The array is doubled when
 * it is three quarters full; two IDs that differ in their low bits still do when one more bit counts. Passing over costs
 * one step for each of the older timers in every round of the array, in which at least as many IDs are given as a third
 * of them.
 *
 * Timers are in chunks of 64 KiB, aligned to their size: a timer does not move, and its chunk's header leads to the set.
 * Chunks without timers are kept: a script that clears many timers often sets as many soon. They are unmapped one by one as timers
 * are called (fl__timer_table_trim()), beyond as many as are in use; and when there is no timer left, together with the
 * index, which is then the small one again that the table has inside.
 */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/wheel.h> /* fl_timer_id */

enum {
    TABLE_CHUNK_SIZE = 1 << 16,
    TABLE_SMALLEST = 64, /* places in the index */
};

/* Flags of a timer. */
enum {
    TIMER_REPEATS = 1,
    TIMER_RUNS = 2,      /* its handler is being called */
    TIMER_ARGUMENTS = 4, /* `handler` is a struct packet */
    TIMER_RESERVED = 8,  /* it has an ID and nothing else */
};

struct timer {
    int32_t id; /* 0: free */
    uint32_t delay_ms;
    fl_timer_id loop_id; /* while it is armed */
    void *handler;       /* of a free one: the next in its chunk */
    uint8_t level;       /* of the task that its call will be */
    uint8_t flags;
};

struct timer_chunk {
    void *owner;
    struct timer *free;
    uint32_t live;
    struct timer_chunk *previous, *next; /* among those with a free timer, or among those without a timer */
    struct timer timers[];
};

enum { TABLE_CHUNK_TIMERS = (TABLE_CHUNK_SIZE - sizeof(struct timer_chunk)) / sizeof(struct timer) };

struct timer_table {
    void *owner;
    struct timer **index;
    uint32_t mask; /* the length of the index, less one */
    uint32_t count;
    int32_t newest;              /* the ID that was given last */
    struct timer_chunk *partial; /* with timers, and room for more */
    struct timer_chunk *spare;   /* without timers */
    uint32_t used_chunks, spare_chunks;
    struct timer *smallest[TABLE_SMALLEST];
};

void fl__timer_table_init(struct timer_table *table, void *owner);
void fl__timer_table_destroy(struct timer_table *table);

/* A new timer with an ID and nothing else, or NULL: no memory. */
struct timer *fl__timer_table_take(struct timer_table *table);
void fl__timer_table_put(struct timer_table *table, struct timer *timer);

/* Gives a chunk back if more are spare than in use. */
void fl__timer_table_trim(struct timer_table *table);

static inline struct timer *timer_table_find(const struct timer_table *table, int32_t id)
{
    struct timer *timer = table->index[(uint32_t)id & table->mask];
    return timer && timer->id == id ? timer : NULL;
}

static inline struct timer_chunk *timer_chunk_of(const struct timer *timer)
{
    return (struct timer_chunk *)((uintptr_t)timer & -(uintptr_t)TABLE_CHUNK_SIZE);
}

#endif
