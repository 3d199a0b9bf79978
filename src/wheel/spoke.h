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

/* An ID: level, generation, spoke, slot. The slot is a leaf and an index in it; the leaf's serial number is the
 * generation and these bits of the slot. */
enum {
    SLOT_BITS = 28,
    SPOKE_BITS = 12,
    GENERATION_BITS = 22,
    GENERATION_SHIFT = SLOT_BITS + SPOKE_BITS,
    LEVEL_SHIFT = GENERATION_SHIFT + GENERATION_BITS,
    LEAF_BITS = 8,
    LEAF_SLOTS = 1 << LEAF_BITS,
    LEAF_WORDS = LEAF_SLOTS / 64,
    SERIAL_LOW_BITS = SLOT_BITS - LEAF_BITS,
    KEPT_CAPACITY = 16, /* a leaf no larger than this does not shrink; as a tail it stays even when it is empty */
};

#define SERIAL_FIRST (1ull << SERIAL_LOW_BITS) /* its generation is not 0, so no ID is */
#define SERIAL_END (1ull << (GENERATION_BITS + SERIAL_LOW_BITS))
#define SERIAL_WORN (SERIAL_END / 4 * 3) /* from here on they start over when the spoke is empty */

struct slot {
    uint64_t deadline_ns;
    void *data;
};

static_assert(sizeof(struct slot) * LEAF_SLOTS == POOL_BLOCK_SIZE, "a whole leaf is one block of the pool");

/* The slots of a packed leaf: those that held a timer when it was packed. */
struct packed {
    uint64_t kept[LEAF_WORDS];
    struct slot slots[];
};

/* Up to 256 timers of a spoke, in the order in which they were scheduled. */
struct leaf {
    uint64_t gone[LEAF_WORDS]; /* a bit for each slot whose timer has fired or was cancelled */
    fl_timer_id id;            /* of its first slot */
    union {
        struct slot *slots;
        struct packed *packed;
    };
    uint64_t min_ns;   /* no timer in it is due earlier; UINT64_MAX if there is none */
    uint16_t used;     /* slots that were given to a timer; all if it is packed */
    uint16_t capacity; /* slots there are */
    uint16_t patience; /* so many timers may go before somebody has to look whether it is sparse or empty */
    uint8_t min_index; /* of the timer that is due at min_ns, unless min_is_bound */
    bool is_packed : 1;
    bool min_is_bound : 1; /* it is not known whether any timer is due at min_ns */
    bool has_new_data : 1; /* references to its timers may have data that was replaced */
};

static_assert(sizeof(struct leaf) == POOL_LINE_SIZE, "a leaf is a cache line");

struct spoke {
    _Alignas(64) struct leaf *tail; /* the newest leaf, which takes new timers; NULL if it is gone */
    struct leaf **leaves;           /* a table by serial number; if there is only one leaf, &tail; NULL: none */
    uint64_t inverse_bound;         /* see fl__spoke_bound_ns() */
    uint64_t leaves_made;           /* from the beginning */
    struct refs refs;               /* to timers of coarser levels that are due in this spoke's ticks */
    uint32_t mask;                  /* of the table: the size of its halves less one */
    uint32_t leaf_count : 31;
    uint32_t refs_are_heap : 1;
};

static_assert(sizeof(struct spoke) == 64, "a spoke is a cache line");

/* What the spokes of a wheel share. */
struct store {
    struct pool slots;
    struct line_pool leaves;
    struct {
        uint32_t min_capacity, ratio, target_multiplier;
    } compaction;
};

/* Stands in the table where there is no leaf. It is told by its ID, 0, which no leaf has; not by its address, of which
 * there are two in a process that has loaded the library twice. */
extern struct leaf fl__no_leaf;

static inline bool fl__is_leaf(const struct leaf *leaf)
{
    return leaf->id != 0;
}

/* Nothing in the spoke of a tick that is not open is due earlier; UINT64_MAX: there is nothing. It is kept inverted, so
 * that a spoke with nothing in it is all zeros and takes no memory before it is used. */
static inline uint64_t fl__spoke_bound_ns(const struct spoke *spoke)
{
    return ~spoke->inverse_bound;
}

static inline void fl__spoke_set_bound(struct spoke *spoke, uint64_t bound_ns)
{
    spoke->inverse_bound = ~bound_ns;
}

static inline fl_timer_id fl__leaf_id(unsigned level, uint32_t spoke, uint64_t serial)
{
    return (uint64_t)level << LEVEL_SHIFT | serial >> SERIAL_LOW_BITS << GENERATION_SHIFT |
           (uint64_t)spoke << SLOT_BITS | (serial & (SERIAL_FIRST - 1)) << LEAF_BITS;
}

static inline uint64_t fl__id_serial(fl_timer_id id)
{
    uint64_t generation = id >> GENERATION_SHIFT & ((1u << GENERATION_BITS) - 1);
    return generation << SERIAL_LOW_BITS | (id >> LEAF_BITS & (SERIAL_FIRST - 1));
}

static inline uint64_t fl__leaf_serial(const struct leaf *leaf)
{
    return fl__id_serial(leaf->id);
}

static inline uint32_t fl__id_index(fl_timer_id id)
{
    return id & (LEAF_SLOTS - 1);
}

/* The leaf whose first ID is this one, if it is not in its own place of the table. Else NULL. */
struct leaf *fl__spoke_search(const struct spoke *spoke, fl_timer_id leaf_id);

/* The leaf that the ID belongs to, if it has its own place in the table: nearly all have. Else NULL. */
static inline struct leaf *fl__spoke_leaf_at_once(const struct spoke *spoke, fl_timer_id id)
{
    if (__builtin_expect(!spoke->leaves, 0))
        return NULL;
    struct leaf *leaf = spoke->leaves[(uint32_t)(id >> LEAF_BITS) & spoke->mask];
    return __builtin_expect(leaf->id == (id & ~(fl_timer_id)(LEAF_SLOTS - 1)), 1) ? leaf : NULL;
}

/* The leaf that the ID belongs to, or NULL. */
static inline struct leaf *fl__spoke_leaf(const struct spoke *spoke, fl_timer_id id)
{
    struct leaf *leaf = fl__spoke_leaf_at_once(spoke, id);
    return __builtin_expect(leaf != NULL, 1) ? leaf : fl__spoke_search(spoke, id & ~(fl_timer_id)(LEAF_SLOTS - 1));
}

static inline bool fl__leaf_lives(const struct leaf *leaf, uint32_t index)
{
    return index < leaf->used && !(leaf->gone[index / 64] >> index % 64 & 1);
}

/* The living among 64 slots, a bit each. */
static inline uint64_t fl__leaf_living(const struct leaf *leaf, uint32_t word)
{
    uint32_t first = word * 64;
    uint64_t used = leaf->used >= first + 64 ? ~0ull : leaf->used <= first ? 0 : (1ull << (leaf->used - first)) - 1;
    return used & ~leaf->gone[word];
}

uint32_t fl__leaf_live(const struct leaf *leaf); /* how many timers it has */

/* How many slots it has memory for. */
uint32_t fl__leaf_capacity(const struct leaf *leaf);

/* Where a timer is in a packed leaf. */
struct slot *fl__leaf_packed_slot(const struct leaf *leaf, uint32_t index);

static inline struct slot *fl__leaf_slot(const struct leaf *leaf, uint32_t index)
{
    return __builtin_expect(leaf->is_packed, 0) ? fl__leaf_packed_slot(leaf, index) : &leaf->slots[index];
}

/* Goes through the living timers of a leaf: the index of the first at or after `from`, LEAF_SLOTS if there is none. */
static inline uint32_t fl__leaf_next(const struct leaf *leaf, uint32_t from)
{
    for (uint32_t word = from / 64; word < LEAF_WORDS; word++) {
        uint64_t living = fl__leaf_living(leaf, word);
        living &= word == from / 64 ? ~0ull << from % 64 : ~0ull;
        if (living != 0)
            return word * 64 + (uint32_t)__builtin_ctzll(living);
    }
    return LEAF_SLOTS;
}

/* The earliest timer of a leaf is this one. */
static inline void fl__leaf_set_min(struct leaf *leaf, uint32_t index, uint64_t deadline_ns)
{
    leaf->min_ns = deadline_ns;
    leaf->min_index = (uint8_t)index;
    leaf->min_is_bound = false;
}

static inline uint64_t fl__spoke_table_size(const struct spoke *spoke)
{
    return spoke->mask > 0 ? 2 * (spoke->mask + 1ull) : 1;
}

/* Goes through the leaves of a spoke, in any order; nothing may change meanwhile. NULL: that was all. */
static inline struct leaf *fl__spoke_next_leaf(const struct spoke *spoke, uint64_t *at)
{
    while (spoke->leaves && *at < fl__spoke_table_size(spoke)) {
        struct leaf *leaf = spoke->leaves[(*at)++];
        if (fl__is_leaf(leaf))
            return leaf;
    }
    return NULL;
}

/* The least serial number of a leaf that is not less than `from`; UINT64_MAX if there is none. */
uint64_t fl__spoke_oldest(const struct spoke *spoke, uint64_t from);

static inline uint64_t fl__spoke_next_serial(const struct spoke *spoke)
{
    return SERIAL_FIRST + spoke->leaves_made;
}

/* Gives the spoke a tail with room. `level` and `number` say which spoke it is. Returns 0, FL_NO_MEMORY or
 * FL_CAPACITY_EXCEEDED. */
int fl__spoke_make_room(struct spoke *spoke, unsigned level, uint32_t number, struct store *store);

/* The leaf's patience has come to an end: timers were cancelled. Frees or packs it if that is due. */
void fl__leaf_tidy(struct spoke *spoke, struct leaf *leaf, struct store *store);

/* The same when timers have fired: they mostly fire all. */
void fl__leaf_fired(struct spoke *spoke, struct leaf *leaf, struct store *store);

/* Forgets all timers and frees all memory. */
void fl__spoke_reset(struct spoke *spoke, struct store *store);

/* Gives back all memory that is not needed. */
void fl__spoke_compact(struct spoke *spoke, struct store *store);

/* The earliest deadline of all its timers; UINT64_MAX if it has none. */
uint64_t fl__spoke_min_ns(struct spoke *spoke);

uint64_t fl__spoke_live(const struct spoke *spoke);
uint64_t fl__spoke_capacity(const struct spoke *spoke);
uint64_t fl__spoke_bytes(const struct spoke *spoke);

#endif
