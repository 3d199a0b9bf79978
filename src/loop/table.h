/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_TABLE_H
#define FOLIOT_LOOP_TABLE_H

/* The records behind the loop's timer IDs.
 *
 * An ID is a generation (27 bits) above a slot number (26 bits), so it stays below 2^53, and finding its record takes a
 * shift and two loads, no hashing. A slot's generation rises each time its record is freed; a slot that has used up its
 * generations is left alone for ever. So an ID is never used twice: not even memory that was given back forgets, for a
 * chunk remembers the highest generation any of its slots had.
 *
 * Records never move. They lie in chunks, each twice as large as the one before, so that 15 pointers reach all of them
 * and the high bits of a slot number say which: chunk k holds the slots from 2^(11+k) up to 2^(12+k). A new record comes
 * from the lowest chunk with room, so the high ones empty themselves and are given back. One empty chunk, the smaller if
 * there are two, is kept in case it is needed again soon.
 *
 * Fresh chunks are zeroed mappings that are touched from the front: a record costs 32 bytes, also while the last chunk
 * is nearly empty.
 */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>

enum {
    TABLE_SLOT_BITS = 26,
    TABLE_FIRST_BITS = 11, /* the first chunk has 2^11 slots: 64 KiB */
    TABLE_CHUNKS = TABLE_SLOT_BITS - TABLE_FIRST_BITS,
    TABLE_GENERATION_BITS = 53 - TABLE_SLOT_BITS,
    TABLE_GENERATION_MAX = (1 << TABLE_GENERATION_BITS) - 1,
};

/* A record's life. Only the states from STATE_PENDING to STATE_IMMEDIATE have an ID that anyone knows. */
enum record_state {
    STATE_FREE,      /* in its chunk's free list, or used up */
    STATE_EXTRA,     /* belongs to another record: see struct extra */
    STATE_HEAD,      /* the head of a list */
    STATE_PENDING,   /* in the wheel */
    STATE_DUE,       /* taken out of the wheel, in the list of this turn */
    STATE_RUNNING,   /* an interval whose callback runs */
    STATE_STRANDED,  /* out of the wheel, and there was no memory to put it back */
    STATE_IMMEDIATE, /* in a list of immediates */
};

/* What every timer, interval and immediate needs. */
struct record {
    fl_loop_fn fn;
    void *arg;
    union {
        fl_timer_id timer; /* pending: the wheel's ID */
        struct {
            uint32_t previous, next;
        } link; /* stranded, immediate, list heads: slots */
    };
    uint32_t generation : TABLE_GENERATION_BITS;
    uint32_t state : 4;
    uint32_t unref : 1;
    uint32_t extra; /* the slot of its struct extra, or 0; in a free record the next free slot */
};

/* What only intervals, far timers and those with a slack need; takes a slot of its own, so that the others do not pay for it. */
struct extra {
    uint64_t deadline_ns; /* the real one, where the wheel has a stop on the way or the slack has moved it */
    uint64_t period_ns;   /* 0: not an interval */
    uint64_t slack_ns;
    uint32_t generation : TABLE_GENERATION_BITS;
    uint32_t state : 4;
    uint32_t reserved : 1;
    uint32_t flags; /* FL_INTERVAL_... */
};

union slot {
    struct record record;
    struct extra extra;
};

_Static_assert(sizeof(union slot) == 32, "a timer has grown");

struct chunk {
    union slot *slots;         /* NULL: not there */
    uint32_t used;             /* slots that have been in use since the chunk was mapped; those behind are zero */
    uint32_t live;             /* records that are not free */
    uint32_t free;             /* the first free slot below `used`, or 0 */
    uint32_t first_generation; /* of a slot that is used for the first time */
    uint32_t next_generation;  /* higher than, or equal to, that of any free slot */
};

struct table {
    struct chunk chunk[TABLE_CHUNKS];
    uint32_t room;  /* bit k: chunk k is mapped and has a free slot */
    uint32_t empty; /* bit k: chunk k is mapped and has no record; at most one */
    bool huge_pages;
};

/* The first chunk is mapped here and stays. Returns 0 or FL_NO_MEMORY. */
int fl__table_init(struct table *t, bool huge_pages);
void fl__table_destroy(struct table *t);

/* Takes a slot; its state, links and flags are the caller's to set. Returns 0, FL_NO_MEMORY or FL_CAPACITY_EXCEEDED. */
int fl__table_take(struct table *t, uint32_t *ret_slot);

/* Frees a slot; all IDs of it end. */
void fl__table_put(struct table *t, uint32_t slot);

uint64_t fl__table_bytes(const struct table *t);

static inline unsigned table_chunk_of(uint32_t slot)
{
    return 31 - __builtin_clz(slot) - TABLE_FIRST_BITS;
}

static inline uint32_t table_capacity(unsigned chunk)
{
    return UINT32_C(1) << (TABLE_FIRST_BITS + chunk);
}

static inline bool table_is_mapped(const struct table *t, uint32_t slot)
{
    return t->chunk[table_chunk_of(slot)].slots != NULL;
}

static inline union slot *table_slot(const struct table *t, uint32_t slot)
{
    unsigned chunk = table_chunk_of(slot);
    return t->chunk[chunk].slots + (slot - table_capacity(chunk));
}

static inline struct record *table_record(const struct table *t, uint32_t slot)
{
    return &table_slot(t, slot)->record;
}

static inline fl_timer_id table_id(const struct record *record, uint32_t slot)
{
    return (uint64_t)record->generation << TABLE_SLOT_BITS | slot;
}

/* The record that an ID names, or NULL. */
static inline struct record *table_find(const struct table *t, fl_timer_id id, uint32_t *ret_slot)
{
    uint32_t slot = id & ((1u << TABLE_SLOT_BITS) - 1);
    if (slot < table_capacity(0) || !table_is_mapped(t, slot))
        return NULL;
    struct record *record = table_record(t, slot);
    if (record->generation != id >> TABLE_SLOT_BITS || record->state < STATE_PENDING)
        return NULL;
    *ret_slot = slot;
    return record;
}

/* Lists of records are circular and have a record as their head, so that one can be taken out without knowing where it
 * is. */
static inline void table_list_init(struct table *t, uint32_t head)
{
    struct record *record = table_record(t, head);
    record->link.previous = record->link.next = head;
}

static inline bool table_list_empty(const struct table *t, uint32_t head)
{
    return table_record(t, head)->link.next == head;
}

static inline void table_list_append(struct table *t, uint32_t head, uint32_t slot)
{
    struct record *first = table_record(t, head), *record = table_record(t, slot);
    record->link.previous = first->link.previous;
    record->link.next = head;
    table_record(t, first->link.previous)->link.next = slot;
    first->link.previous = slot;
}

static inline void table_list_remove(struct table *t, uint32_t slot)
{
    struct record *record = table_record(t, slot);
    table_record(t, record->link.previous)->link.next = record->link.next;
    table_record(t, record->link.next)->link.previous = record->link.previous;
}

/* Moves all of list `from` to the end of list `to`. */
static inline void table_list_splice(struct table *t, uint32_t to, uint32_t from)
{
    if (table_list_empty(t, from))
        return;
    struct record *target = table_record(t, to), *source = table_record(t, from);
    table_record(t, target->link.previous)->link.next = source->link.next;
    table_record(t, source->link.next)->link.previous = target->link.previous;
    table_record(t, source->link.previous)->link.next = to;
    target->link.previous = source->link.previous;
    table_list_init(t, from);
}

#endif
