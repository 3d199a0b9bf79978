/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_ENTRIES_H
#define FOLIOT_RUNTIME_ENTRIES_H

/* A worker's table of what its wheel holds: one entry per timer, which contains the wheel's node and says which handle and
 * which start of it the deadline belongs to. The table can be walked, which the wheel cannot: that is how stale entries are
 * found, and how a leaving worker hands its timers over.
 *
 * Entries never move. They lie in segments of 64 KiB that are mapped when needed and unmapped when empty, so that memory
 * goes back to the system; one empty segment is kept. A segment is a message as well: a worker that leaves sends its
 * segments away as they are, and needs no memory to do so.
 *
 * Only the worker's own thread touches its table.
 */

#include <assert.h>

#include "base/queue.h"
#include "runtime/handle.h"
#include "runtime/runtime.h"

enum {
    SEGMENT_BITS = 11,
    SEGMENT_BYTES = 32 << SEGMENT_BITS,
    SEGMENT_FIRST = 2, /* its header takes the place of the first slots */
    SEGMENT_END = 1 << SEGMENT_BITS,
    SEGMENT_SLOTS = SEGMENT_END - SEGMENT_FIRST,

    /* Slots are counted in buckets: blocks of 32 neighbours, dealt out over 64 counters. */
    BUCKET_BITS = 5,
    BUCKET_SLOTS = 1 << BUCKET_BITS,
    BUCKETS = 64,
};

struct entry {
    fl_timer *timer;     /* NULL: free */
    uint64_t generation; /* of the start; in a free entry the next free one of the segment, or 0 */
    fl_node node;        /* not waiting: the entry is due and about to be fired */
};

static inline uint64_t entry_target_ns(const struct entry *entry)
{
    return fl_node_deadline_ns(&entry->node);
}

struct segment_header {
    struct fl__message message;
    struct segment *previous, *next; /* in the list of segments with room */
    uint32_t number;
    uint32_t used; /* slots that have been given out at least once */
    uint32_t free; /* the first free one of those, 0: none */
    uint32_t live;
    /* On its way to other workers, of which each takes a share: */
    uint32_t cursor;      /* the first slot that has not been adopted */
    uint32_t share;       /* how many each takes */
    uint16_t first_taker; /* workers with lower numbers get none */
    uint16_t last_taker;
    uint16_t refused; /* by workers that have much to sweep, one after the other */
};

struct segment {
    union {
        struct segment_header header;
        struct entry slots[SEGMENT_END];
    };
};

_Static_assert(sizeof(struct segment) == SEGMENT_BYTES, "a segment is a power of two");
_Static_assert(sizeof(struct segment_header) <= SEGMENT_FIRST * sizeof(struct entry), "the header fits");

struct entries {
    struct segment **segments; /* by number; NULL: not there */
    uint32_t count, room;      /* of the directory */
    uint32_t lowest_hole;      /* no number below this is free */
    struct segment *with_room; /* doubly linked */
    struct segment *spare;     /* an empty one, which is not in the directory */
    uint64_t live;
    uint32_t bucket_live[BUCKETS];
};

static inline unsigned bucket_of(uint32_t slot)
{
    return slot >> BUCKET_BITS & (BUCKETS - 1);
}

/* The entry of a slot that was given out at some time, or NULL if there is no such segment any more. A free entry has no
 * timer. */
static inline struct entry *entries_look(const struct entries *table, uint32_t slot)
{
    uint32_t number = slot >> SEGMENT_BITS;
    if (number >= table->count || !table->segments[number])
        return NULL;
    return &table->segments[number]->slots[slot & (SEGMENT_END - 1)];
}

/* The entry of any slot if it is in use, or NULL. A segment is all zeros when it is new. */
static inline struct entry *entries_find(const struct entries *table, uint32_t slot)
{
    struct entry *entry = (slot & (SEGMENT_END - 1)) < SEGMENT_FIRST ? NULL : entries_look(table, slot);
    return entry && entry->timer ? entry : NULL;
}

/* The slot of an entry, by way of its segment, which is aligned to its size. */
static inline uint32_t entries_slot(const struct entry *entry)
{
    const struct segment *segment = (const struct segment *)((uintptr_t)entry & ~(uintptr_t)(SEGMENT_BYTES - 1));
    return segment->header.number << SEGMENT_BITS | (uint32_t)(entry - segment->slots);
}

static inline struct entry *entry_of_node(fl_node *node)
{
    return container_of(node, struct entry, node);
}

/* The entry of a slot that is surely there. */
static inline struct entry *entries_at(const struct entries *table, uint32_t slot)
{
    assert(slot >> SEGMENT_BITS < table->count);
    return &table->segments[slot >> SEGMENT_BITS]->slots[slot & (SEGMENT_END - 1)];
}

int fl__runtime_entries_add_segment(struct entries *table);

/* What is left to do when a segment has no room any more, or has room again, or is empty. */
void fl__runtime_segment_full(struct entries *table, struct segment *segment);
void fl__runtime_segment_has_room(struct entries *table, struct segment *segment);
void fl__runtime_segment_empty(struct entries *table, struct segment *segment);

/* Takes a segment out of the table, to be sent away. */
void fl__runtime_segment_detach(struct entries *table, struct segment *segment);
void fl__runtime_segment_release(struct segment *segment);

void fl__runtime_entries_destroy(struct entries *table); /* which is empty */

/* 0, or FL_INVALID_ARGUMENT if the table is not sound. For tests and debug builds. */
int fl__runtime_entries_check(const struct entries *table);

/* Makes sure that entries_take() will succeed. Returns 0, FL_NO_MEMORY or FL_CAPACITY_EXCEEDED. */
static inline int entries_reserve(struct entries *table)
{
    return table->with_room ? 0 : fl__runtime_entries_add_segment(table);
}

/* A slot, after entries_reserve(). */
static inline uint32_t entries_take(struct entries *table, struct entry **ret)
{
    assert(table->with_room);
    struct segment *segment = table->with_room;
    uint32_t index = segment->header.free;
    if (index != 0)
        segment->header.free = (uint32_t)segment->slots[index].generation;
    else
        index = segment->header.used++;
    table->live++;
    uint32_t slot = segment->header.number << SEGMENT_BITS | index;
    table->bucket_live[bucket_of(slot)]++;
    if (++segment->header.live == SEGMENT_SLOTS)
        fl__runtime_segment_full(table, segment);
    *ret = &segment->slots[index];
    return slot;
}

static inline void entries_put(struct entries *table, uint32_t slot)
{
    assert(entries_find(table, slot) && table->live > 0);
    struct segment *segment = table->segments[slot >> SEGMENT_BITS];
    uint32_t index = slot & (SEGMENT_END - 1);
    segment->slots[index].timer = NULL;
    segment->slots[index].generation = segment->header.free;
    segment->header.free = index;
    table->live--;
    table->bucket_live[bucket_of(slot)]--;
    if (segment->header.live-- == SEGMENT_SLOTS)
        fl__runtime_segment_has_room(table, segment);
    if (segment->header.live == 0)
        fl__runtime_segment_empty(table, segment);
}

#endif
