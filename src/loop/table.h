/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_TABLE_H
#define FOLIOT_LOOP_TABLE_H

/* The records behind the loop's timer IDs: timers, intervals, immediates, hooks.
 *
 * An ID is a generation (26 bits) above a slot number (27 bits), so it stays below 2^53, and finding its record takes a
 * shift and two loads, no hashing.
 *
 * Records never move. They lie in chunks, each twice as large as the one before, so that 16 pointers reach all of them
 * and the high bits of a slot number say which: chunk k holds the slots from 2^(11+k) up to 2^(12+k). A new record comes
 * from the lowest chunk with room, so the high ones empty themselves and are given back. One empty chunk, the smallest, is
 * kept in case it is needed again soon.
 *
 * Generations. A chunk consists of blocks of 512 slots, and a generation is a round through a block: each slot is taken at
 * most once in it, under the block's generation. What is given back in the meantime is for the next round, which can begin
 * when a quarter of the block is free. One block is open and gives out its slots; when it has none left, another one
 * with room is opened. So the table keeps nothing per slot, and a busy slot wears no faster than the others:
 *
 *   - A round uses up 512 IDs and follows on at least 128 records of the block that have come and gone. A chunk that is
 *     given back ends the round of its open block before its time, but then the chunk that was kept must be filled before
 *     this one is needed again. So no pattern of use costs more than five IDs a record, and where few records live for
 *     long it is one.
 *   - A block that has had all its rounds is worn and is left alone. There are twice as many slots as there may be
 *     records, and blocks that are less than a quarter free are at most two thirds of all. So there is a block to open
 *     until the other third is worn, that is, for more than 2^51 IDs, whatever the pattern.
 *   - Then all worn blocks start over with the first generation: an ID from years ago may then name a new timer. Living
 *     records keep their IDs, because their slots are not free.
 *
 * With ten million records a second, that is after 28 years, or after a year and a half of five IDs a record.
 *
 * New chunks are zeroed mappings that are touched from the front, and their end not at all: a record costs 48 bytes,
 * also while the last chunk is nearly empty. Blocks are remembered for ever: they take 16 bytes per 512 slots. What only
 * intervals and timers with a slack need is in a struct loop_extra, which is allocated.
 */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>
#include <foliot/nodes.h>

#include "base/assert.h"

enum {
    TABLE_LIMIT = 1 << 26, /* records */
    TABLE_SLOT_BITS = 27,
    TABLE_FIRST_BITS = 11, /* the first chunk has 2^11 slots */
    TABLE_CHUNKS = TABLE_SLOT_BITS - TABLE_FIRST_BITS,
    TABLE_GENERATION_BITS = 53 - TABLE_SLOT_BITS,
    TABLE_GENERATION_MAX = (1 << TABLE_GENERATION_BITS) - 1,
    BLOCK_BITS = 9,
    BLOCK_SLOTS = 1 << BLOCK_BITS,
    BLOCK_ROOM = BLOCK_SLOTS / 4, /* a round may begin when so many slots were given back */
};

/* A record's life. From STATE_NEW on it has an ID.
 *
 *     from              to                                   by
 *     STATE_FREE        STATE_NEW                            fl__loop_table_take()
 *     STATE_NEW         STATE_WAITING, _IMMEDIATE, _HOOK     the function that makes it
 *     STATE_WAITING     STATE_DUE                            the beginning of a turn
 *     STATE_DUE         STATE_RUNNING                        the call of an interval
 *     STATE_DUE         STATE_WAITING                        fl_loop_rearm()
 *     STATE_RUNNING     STATE_WAITING                        the end of the call, or fl_loop_rearm() during the call
 *     all but _HEAD     STATE_FREE                           fl_loop_cancel(), the call of a timer or immediate
 *
 * record_set_state() asserts that a change is in this table. */
enum loop_record_state {
    STATE_FREE,      /* in a list of its block */
    STATE_HEAD,      /* the head of a list */
    STATE_NEW,       /* just taken: nowhere yet */
    STATE_WAITING,   /* a timer in the wheel */
    STATE_DUE,       /* a timer in the list of this turn, not called yet */
    STATE_RUNNING,   /* an interval whose callback runs */
    STATE_IMMEDIATE, /* in a list of immediates */
    STATE_HOOK,      /* in a list of hooks */
    STATES
};

/* The parts of a record's tag. */
enum {
    RECORD_STATE = 15,
    RECORD_UNREF = 16,
    RECORD_GENERATION_SHIFT = 6,
    RECORD_NOT_GENERATION = (1 << RECORD_GENERATION_SHIFT) - 1,
};

_Static_assert(RECORD_GENERATION_SHIFT + TABLE_GENERATION_BITS <= 32, "the last generation overflows");
_Static_assert(STATE_FREE == 0, "a generation without flags is a free record's tag");

struct loop_link {
    uint32_t previous, next; /* slots */
};

/* What only intervals and timers with a slack need. */
struct loop_extra {
    uint64_t deadline_ns; /* before the slack; of an interval: on its grid */
    uint64_t period_ns;   /* 0: not an interval */
    uint64_t slack_ns;
    unsigned flags; /* FL_INTERVAL_... */
};

/* What starting and cancelling look at comes first: it crosses a cache line in one of four records. */
struct loop_record {
    union {
        fl_node node;          /* of a timer */
        struct loop_link link; /* of immediates, hooks, list heads; of a free record, `next` is the next free slot */
    };
    uint32_t tag; /* state, flags, generation: one word, because it is written and read in quick succession */
    uint32_t slot;
    struct loop_extra *extra; /* may be NULL */
    fl_loop_fn fn;
    void *arg;
};

_Static_assert(sizeof(struct loop_record) == 48, "a timer has grown");

/* A block is open, or all its slots have been given out in this round. */
struct loop_block {
    uint32_t free; /* the first slot that was given back before this round and not taken in it, or 0; of a block with
                          * room that is not open: the next such block */
    uint32_t returned;   /* the first slot that was given back in this round, or 0 */
    uint32_t generation; /* of this round; above the last one: worn */
    uint16_t returned_count;
    uint16_t touched; /* slots that have been in use since the chunk was mapped; those behind are zero */
};

struct loop_chunk {
    struct loop_block *blocks; /* NULL until the chunk is mapped for the first time */
    uint32_t live;             /* records that are not free */
    uint32_t begun;            /* blocks that have been open since the chunk was mapped, or were passed over */
    uint32_t roomy;            /* the number of the first block with room, or 0 */
    uint32_t worn;             /* blocks that have had all their rounds */
};

struct loop_table {
    uintptr_t
        base[TABLE_SLOT_BITS]; /* by the highest bit of a slot's number: where slot 0 of its chunk would be; 0 if the
                                        * chunk is not there */
    uintptr_t blocks[TABLE_SLOT_BITS]; /* the same for the block of slot 0 */
    struct loop_block *open;           /* never NULL: see `none` */
    struct loop_chunk *open_chunk;
    uintptr_t open_base;  /* of its chunk */
    uint32_t open_number; /* which one it is */
    uint32_t open_tag;    /* its generation, in a record's tag */
    uint32_t live, limit; /* records, and how many there may be */
    uint32_t last_generation;
    struct loop_chunk chunk[TABLE_CHUNKS];
    struct loop_block none; /* open when no block is: it has nothing to give */
    uint32_t room;          /* bit k: chunk k is mapped, and unless it has filled up since, it has a block to open */
    uint32_t empty;         /* bit k: chunk k is mapped, and unless a slot was taken since, it has no record */
    uint64_t extras;        /* how many there are */
    bool huge_pages;
};

/* The first chunk is mapped here and stays. Returns 0 or FL_NO_MEMORY. */
int fl__loop_table_init(struct loop_table *t, bool huge_pages);
void fl__loop_table_destroy(struct loop_table *t);

/* Takes a record, STATE_NEW and otherwise empty. Returns 0, FL_NO_MEMORY or FL_CAPACITY_EXCEEDED. */
int fl__loop_table_take(struct loop_table *t, struct loop_record **ret);

/* For table_put(): this slot was given back, and now its block has room for a round, or its chunk is empty. */
void fl__loop_table_has_room(struct loop_table *t, uint32_t slot);

/* Gives a record a struct loop_extra of its own, a copy of `values`. Returns 0 or FL_NO_MEMORY. */
int fl__loop_table_extend(struct loop_table *t, struct loop_record *record, const struct loop_extra *values);

/* Takes it away again. */
void fl__loop_table_shorten(struct loop_table *t, struct loop_record *record);

uint64_t fl__loop_table_bytes(const struct loop_table *t);

static inline enum loop_record_state record_state(const struct loop_record *record)
{
    return (enum loop_record_state)(record->tag & RECORD_STATE);
}

static inline void record_set_state(struct loop_record *record, enum loop_record_state state)
{
    static const uint16_t allowed[STATES] = {
        [STATE_NEW] = 1 << STATE_HEAD | 1 << STATE_WAITING | 1 << STATE_IMMEDIATE | 1 << STATE_HOOK,
        [STATE_WAITING] = 1 << STATE_WAITING | 1 << STATE_DUE,
        [STATE_DUE] = 1 << STATE_RUNNING | 1 << STATE_WAITING,
        [STATE_RUNNING] = 1 << STATE_WAITING,
    };
    fl__assert_debug(allowed[record_state(record)] >> state & 1);
    record->tag = (record->tag & ~(uint32_t)RECORD_STATE) | state;
}

static inline uint32_t record_generation(const struct loop_record *record)
{
    return record->tag >> RECORD_GENERATION_SHIFT;
}

/* The highest bit of a slot's number; 0 for 0. The instruction of x86 leaves its target unchanged if no bit is
 * set, so it depends on the last write to that register, which is often a load that is still under way. Clearing the target
 * first removes the dependency. */
static inline unsigned table_highest_bit(uint32_t slot)
{
#if defined(__x86_64__)
    uint64_t highest = 0;
    __asm__("bsr %1, %0" : "+r"(highest) : "r"((uint64_t)slot) : "cc");
    return (unsigned)highest;
#else
    return slot ? 31 - (unsigned)__builtin_clz(slot) : 0;
#endif
}

static inline unsigned table_chunk_of(uint32_t slot)
{
    fl__assert_debug(slot >= 1u << TABLE_FIRST_BITS);
    return table_highest_bit(slot) - TABLE_FIRST_BITS;
}

static inline uint32_t table_capacity(unsigned chunk)
{
    return UINT32_C(1) << (TABLE_FIRST_BITS + chunk);
}

/* Any number below 2^27 may be asked for; no record has one below the first chunk's. */
static inline bool table_is_mapped(const struct loop_table *t, uint32_t slot)
{
    return t->base[table_highest_bit(slot)] != 0;
}

static inline struct loop_record *table_record(const struct loop_table *t, uint32_t slot)
{
    return (struct loop_record *)(t->base[table_highest_bit(slot)] + slot * sizeof(struct loop_record));
}

/* The block of a slot whose chunk has been mapped. */
static inline struct loop_block *table_block(const struct loop_table *t, uint32_t slot)
{
    return (struct loop_block *)(t->blocks[table_highest_bit(slot)] + (slot >> BLOCK_BITS) * sizeof(struct loop_block));
}

/* Takes a record of the open block. NULL if there is none left, or as many records as there may be. */
static inline struct loop_record *table_try_take(struct loop_table *t)
{
    struct loop_block *block = t->open;
    uint32_t slot = block->free;
    struct loop_record *record;
    if (__builtin_expect(t->live == t->limit, 0))
        return NULL;
    if (slot) {
        record = (struct loop_record *)(t->open_base + slot * sizeof(*record));
        block->free = record->link.next;
    } else if (block->touched < BLOCK_SLOTS) {
        slot = (t->open_number << BLOCK_BITS) + block->touched++;
        record = (struct loop_record *)(t->open_base + slot * sizeof(*record));
    } else {
        return NULL;
    }
    t->live++;
    t->open_chunk->live++;
    *record = (struct loop_record){.tag = t->open_tag | STATE_NEW, .slot = slot};
    return record;
}

/* Frees a record; its ID ends. */
static inline void table_put(struct loop_table *t, struct loop_record *record)
{
    fl__assert_debug(record_state(record) >= STATE_NEW && t->live > 0);
    uint32_t slot = record->slot;
    struct loop_chunk *chunk = &t->chunk[table_chunk_of(slot)];
    struct loop_block *block = table_block(t, slot);
    if (__builtin_expect(record->extra != NULL, 0))
        fl__loop_table_shorten(t, record);
    record->tag = (record->tag & ~(uint32_t)RECORD_NOT_GENERATION) | STATE_FREE;
    record->link.next = block->returned;
    block->returned = slot;
    t->live--;
    bool room = ++block->returned_count == BLOCK_ROOM, empty = --chunk->live == 0;
    if (__builtin_expect(room | empty, 0))
        fl__loop_table_has_room(t, slot);
}

static inline fl_timer_id table_id(const struct loop_record *record)
{
    return (uint64_t)record_generation(record) << TABLE_SLOT_BITS | record->slot;
}

/* The record that an ID names, or NULL. */
static inline struct loop_record *table_find(const struct loop_table *t, fl_timer_id id)
{
    uint32_t slot = id & ((1u << TABLE_SLOT_BITS) - 1);
    if (!table_is_mapped(t, slot))
        return NULL;
    struct loop_record *record = table_record(t, slot);
    bool named = record_generation(record) == id >> TABLE_SLOT_BITS;
    return named && record_state(record) >= STATE_NEW ? record : NULL;
}

/* Lists of records are circular and have a record as their head, so that one can be taken out without knowing where it
 * is. */
static inline struct loop_link *table_link(const struct loop_table *t, uint32_t slot)
{
    return &table_record(t, slot)->link;
}

static inline void table_list_init(struct loop_table *t, uint32_t head)
{
    fl__assert_debug(table_is_mapped(t, head));
    *table_link(t, head) = (struct loop_link){head, head};
}

static inline bool table_list_empty(const struct loop_table *t, uint32_t head)
{
    return table_link(t, head)->next == head;
}

static inline void table_list_append(struct loop_table *t, uint32_t head, uint32_t slot)
{
    fl__assert_debug(table_is_mapped(t, slot) && head != slot);
    struct loop_link *first = table_link(t, head);
    *table_link(t, slot) = (struct loop_link){.previous = first->previous, .next = head};
    table_link(t, first->previous)->next = slot;
    first->previous = slot;
}

static inline void table_list_remove(struct loop_table *t, uint32_t slot)
{
    const struct loop_link *link = table_link(t, slot);
    table_link(t, link->previous)->next = link->next;
    table_link(t, link->next)->previous = link->previous;
}

/* Moves all of list `from` to the end of list `to`. */
static inline void table_list_splice(struct loop_table *t, uint32_t to, uint32_t from)
{
    fl__assert_debug(to != from);
    struct loop_link *target = table_link(t, to);
    const struct loop_link *source = table_link(t, from);
    if (source->next == from)
        return;
    table_link(t, target->previous)->next = source->next;
    table_link(t, source->next)->previous = target->previous;
    table_link(t, source->previous)->next = to;
    target->previous = source->previous;
    table_list_init(t, from);
}

#endif
