/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_SPOKE_H
#define FOLIOT_WHEEL_SPOKE_H

/* A spoke: where the timers of one tick live. See spoke.c for the design.
 *
 * What every schedule and every cancel does is here, to be inlined; what happens once in hundreds is in spoke.c. */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/wheel.h>

#include "wheel/pool.h"
#include "wheel/refs.h"

enum {
    SLOT_BITS = 28,
    SPOKE_BITS = 12,
    GENERATION_BITS = 22,
    SEQUENCE_BITS = 64 - GENERATION_BITS,
    LEAF_BITS = 9,
    LEAF_SLOTS = 1 << LEAF_BITS,
    MAX_LEAVES = 1 << (SLOT_BITS - LEAF_BITS),
    GENERATION_END = 1 << GENERATION_BITS,
};

#define SEQUENCE_END (1ull << SEQUENCE_BITS)

/* A timer, or a free slot. */
struct slot {
    uint64_t deadline_ns; /* 0: free */
    union {
        void *data;
        uint64_t next_free; /* an index in the leaf, plus one; 0: this is the last */
    };
    uint64_t stamp; /* the slot's generation, then the timer's place in the order of scheduling */
};

static_assert(sizeof(struct slot) * LEAF_SLOTS == POOL_BLOCK_SIZE, "a whole leaf is one block of the pool");

/* A timer in a packed leaf remembers which slot it is. */
struct packed_slot {
    struct slot slot;
    uint64_t index;
};

/* 512 consecutive slot numbers of a spoke. */
struct leaf {
    union {
        struct slot *slots;
        struct packed_slot *packed; /* sorted by index */
    };
    uint64_t min_ns;     /* the earliest deadline, UINT64_MAX if there is none; 0: not known */
    uint32_t generation; /* of fresh slots: above all generations that have ended in this leaf */
    uint32_t is_packed : 1;
    uint32_t is_listed : 1;       /* among the leaves with room */
    uint32_t is_queued : 1;       /* waiting to be looked at: it was sparse */
    uint32_t next_with_room : 20; /* an index plus one; 0: the last */
    uint16_t live;                /* timers */
    uint16_t used;                /* slots before this one are not fresh; 0 if it is packed */
    uint16_t free;                /* the first free slot, plus one; 0: none. A fresh one is followed by the next */
    uint16_t capacity;
};

static_assert(sizeof(struct leaf) == 32, "two leaves share a cache line");

struct spoke {
    struct leaf *leaves; /* the directory; fl__whole() are behind them */
    struct refs refs;    /* to timers of coarser levels that are due in this spoke's ticks */
    uint64_t min_ns;     /* nothing in it of a tick that is not open is due earlier; UINT64_MAX: there is nothing */
    uint64_t sequence;   /* of the next timer */
    uint32_t leaf_count; /* leaves in the directory, and room in it */
    uint32_t leaf_room;
    uint32_t with_room;       /* the first leaf that may have room, plus one; 0: none */
    uint32_t first_leaf;      /* number of leaves[0]: those before it have used up their generations */
    uint32_t live;            /* timers */
    uint32_t generation : 24; /* of new leaves */
    uint32_t refs_are_heap : 1;
};

struct compaction {
    uint32_t min_capacity, ratio, target_multiplier;
};

static inline uint64_t fl__generation(const struct slot *slot)
{
    return slot->stamp >> SEQUENCE_BITS;
}

static inline uint64_t fl__sequence(const struct slot *slot)
{
    return slot->stamp & (SEQUENCE_END - 1);
}

static inline fl_timer_id fl__make_id(unsigned level, uint64_t generation, uint32_t spoke, uint32_t number)
{
    return (uint64_t)level << 62 | generation << (SPOKE_BITS + SLOT_BITS) | (uint64_t)spoke << SLOT_BITS | number;
}

/* Grows a leaf or adds one, so that the first of the list has room. 0, FL_NO_MEMORY or FL_CAPACITY_EXCEEDED. */
int fl__spoke_make_room(struct spoke *spoke, struct pool *pool);

/* The slot with that index of a leaf that is not whole, or NULL. */
struct slot *fl__leaf_find(const struct leaf *leaf, uint32_t index);

/* What is left to do when the last timer of a leaf has gone. The leaf itself may be gone afterwards. */
void fl__leaf_emptied(struct spoke *spoke, struct leaf *leaf, struct pool *pool);

/* What is left to do when a slot of the leaf has used up its generations. */
void fl__leaf_exhausted(struct leaf *leaf);

/* Packs the leaf into the memory its timers need; does nothing if there is none to do it with. */
void fl__leaf_pack(struct spoke *spoke, struct leaf *leaf, struct pool *pool);

/* Forgets all timers, frees all memory and remembers only which generations were given out. */
void fl__spoke_reset(struct spoke *spoke, struct pool *pool);

/* Packs whatever has memory to spare. */
void fl__spoke_compact(struct spoke *spoke, struct pool *pool);

/* The earliest deadline of the spoke's timers (its references aside); UINT64_MAX if there is none. */
uint64_t fl__spoke_min_ns(struct spoke *spoke);

/* Slots there is memory for, and the bytes they and their directory take outside of the pool. */
uint64_t fl__spoke_capacity(const struct spoke *spoke);
uint64_t fl__spoke_bytes(const struct spoke *spoke);

/* One leaf's slots: for (i = 0; i < fl__leaf_size(leaf); i++) if ((slot = fl__leaf_at(leaf, i, &index))->deadline_ns) … */
static inline uint32_t fl__leaf_size(const struct leaf *leaf)
{
    return leaf->is_packed ? leaf->capacity : leaf->used;
}

static inline struct slot *fl__leaf_at(const struct leaf *leaf, uint32_t i, uint32_t *ret_index)
{
    if (leaf->is_packed) {
        *ret_index = (uint32_t)leaf->packed[i].index;
        return &leaf->packed[i].slot;
    }
    *ret_index = i;
    return &leaf->slots[i];
}

static inline uint32_t fl__slot_number(const struct spoke *spoke, const struct leaf *leaf, uint32_t index)
{
    return (spoke->first_leaf + (uint32_t)(leaf - spoke->leaves)) << LEAF_BITS | index;
}

/* For each leaf of the spoke its slots, if they are all 512, else NULL. This is all that looking up a timer needs, and
 * small enough to stay in the cache beside the timers themselves. A slot that is fresh is zero. */
static inline struct slot **fl__whole(const struct spoke *spoke)
{
    return (struct slot **)(spoke->leaves + spoke->leaf_room);
}

/* The slot that bears this number and generation and holds a timer, or NULL. */
static inline struct slot *fl__spoke_find(const struct spoke *spoke, uint32_t number, uint64_t generation)
{
    uint32_t leaf_index = (number >> LEAF_BITS) - spoke->first_leaf, index = number & (LEAF_SLOTS - 1);
    if (__builtin_expect(leaf_index >= spoke->leaf_count, 0))
        return NULL;
    struct slot *slots = fl__whole(spoke)[leaf_index];
    struct slot *slot = slots ? &slots[index] : fl__leaf_find(&spoke->leaves[leaf_index], index);
    return slot && slot->deadline_ns != 0 && fl__generation(slot) == generation ? slot : NULL;
}

/* Fetches where that slot would be. Not a pointer but a number is reckoned with: the leaf may be packed, or have no
 * memory at all. */
static inline void fl__prefetch_slot(const struct leaf *leaf, uint32_t index)
{
    __builtin_prefetch((const void *)((uintptr_t)leaf->slots + index * sizeof *leaf->slots), 1);
}

/* Takes the first leaf off the list of those with room. The slot that the next one will give out was last touched long
 * ago; by the time it is wanted, it shall be in the cache. */
static inline void fl__unlist_first(struct spoke *spoke)
{
    struct leaf *leaf = &spoke->leaves[spoke->with_room - 1];
    leaf->is_listed = 0;
    spoke->with_room = leaf->next_with_room;
    if (spoke->with_room > 0) {
        leaf = &spoke->leaves[spoke->with_room - 1];
        fl__prefetch_slot(leaf, leaf->free);
    }
}

/* Lists the leaf among those with room. */
static inline void fl__list_leaf(struct spoke *spoke, struct leaf *leaf)
{
    if (leaf->is_listed)
        return;
    leaf->is_listed = 1;
    leaf->next_with_room = spoke->with_room;
    spoke->with_room = (uint32_t)(leaf - spoke->leaves) + 1;
}

/* Takes a free slot of a leaf that has one. What was in it is overwritten but for the stamp's generation. */
static inline struct slot *fl__leaf_claim(struct leaf *leaf)
{
    uint32_t index = leaf->free - 1u;
    struct slot *slot = &leaf->slots[index];
    if (index < leaf->used) {
        leaf->free = (uint16_t)slot->next_free;
    } else {
        slot->stamp = (uint64_t)leaf->generation << SEQUENCE_BITS;
        leaf->used++;
        leaf->free = index + 1 < leaf->capacity ? (uint16_t)(index + 2) : 0;
    }
    fl__prefetch_slot(leaf, leaf->free);
    return slot;
}

/* Ends the timer in a slot, and with it its ID. */
static inline void fl__slot_end(struct slot *slot)
{
    slot->deadline_ns = 0;
    slot->stamp += SEQUENCE_END; /* the next generation; 0 if there is none left */
}

/* Gives back the slot of a timer that has ended, to be claimed again. */
static inline void fl__leaf_give(struct spoke *spoke, struct leaf *leaf, uint32_t index, uint64_t deadline_ns)
{
    if (deadline_ns == leaf->min_ns)
        leaf->min_ns = 0;
    spoke->live--;
    leaf->live--;
    if (leaf->is_packed)
        return;
    struct slot *slot = &leaf->slots[index];
    uint32_t generation = (uint32_t)fl__generation(slot);
    if (__builtin_expect(generation == 0, 0)) {
        fl__leaf_exhausted(leaf);
        return;
    }
    leaf->generation = generation > leaf->generation ? generation : leaf->generation;
    slot->next_free = leaf->free;
    leaf->free = (uint16_t)(index + 1);
    fl__list_leaf(spoke, leaf);
}

#endif
