/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_WHEEL_PRIVATE_H
#define FOLIOT_WHEEL_WHEEL_PRIVATE_H

/* The wheel's structure, shared by wheel.c (schedule, cancel), index.c and poll.c (what leads to what is due), and check.c
 * (what is legal). */

#include <stdatomic.h>

#include "wheel/spoke.h"

enum { LEVELS = FL_WHEEL_LEVELS };

/* A coarse tick on its way to the next finer level; see "Opening" in wheel.c. */
struct opening {
    bool active;
    uint64_t tick;
    uint64_t begun_ns;
    uint64_t min_ns;  /* nothing that is left to do is due earlier */
    struct refs refs; /* those the spoke had when it began */
    uint32_t leaf;    /* the next leaf, and the next of the references, to look at */
    uint32_t ref;
};

struct level {
    _Alignas(128) struct spoke *spokes; /* a power of two in size: the way to a level is short */
    uint64_t open_end;                  /* ticks before this one are open */
    unsigned shift;                     /* of a deadline, to get its tick */
    uint64_t *occupied;                 /* a bit for each spoke that has anything in a tick that is not open */
    uint64_t coverage_ns;
    struct opening opening;
};

/* A timer that was cancelled. Its slot is dead already; what else there is to do waits until there are enough of them. */
struct cancelled {
    fl_timer_id id;
    uint64_t deadline_ns;
};

enum { CANCELLED_MAX = 64 };

struct fl_wheel {
    _Atomic uint64_t now_ns;
    uint64_t attention_ns; /* a poll before this has nothing to do */
    uint64_t bound_ns;     /* no timer outside of the front is due earlier */
    uint64_t next_ns;      /* the earliest deadline, if next_known; then no bound is below it */
    uint64_t count;        /* timers, and those cancelled that wait to be settled */
    uint32_t cancelled_count;
    bool next_known;
    bool coarse;
    uint32_t spokes;
    uint32_t worker_id;
    uint64_t start_ns;
    struct compaction compaction;
    struct level levels[LEVELS];
    struct pool pool;

    /* The front: references to all timers of open L0 ticks, in order of deadline. */
    struct refs run; /* sorted; those before run_head are done */
    uint32_t run_head;
    struct refs late; /* a heap: what came after its tick was loaded into the run */
    struct refs scratch;

    fl_timer_id unwanted_id; /* for callers who do not want to know */
    struct cancelled cancelled[CANCELLED_MAX];
    struct refs queue; /* leaves that are or were sparse, each by an ID in it */
};

static inline uint64_t fl__min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t fl__now(const fl_wheel *w)
{
    return atomic_load_explicit(&w->now_ns, memory_order_relaxed);
}

static inline uint64_t fl__tick(const struct level *level, uint64_t time_ns)
{
    return time_ns >> level->shift;
}

static inline uint32_t fl__spoke_of(const fl_wheel *w, const struct level *level, uint64_t deadline_ns)
{
    return (uint32_t)fl__tick(level, deadline_ns) & (w->spokes - 1);
}

static inline bool fl__is_open(const struct level *level, uint64_t deadline_ns)
{
    return fl__tick(level, deadline_ns) < level->open_end;
}

static inline bool fl__is_occupied(const struct level *level, uint32_t spoke)
{
    return level->occupied[spoke / 64] >> spoke % 64 & 1;
}

static inline struct spoke *fl__wheel_spoke(const fl_wheel *w, fl_timer_id id)
{
    return &w->levels[id >> 62].spokes[id >> SLOT_BITS & ((1u << SPOKE_BITS) - 1)];
}

/* The leaf that holds the ID's slot, or NULL. Here and below, the ID's level and spoke are known to exist. */
static inline struct leaf *fl__wheel_leaf(const fl_wheel *w, fl_timer_id id)
{
    const struct spoke *spoke = fl__wheel_spoke(w, id);
    uint32_t leaf_index = (uint32_t)(id >> LEAF_BITS & (MAX_LEAVES - 1)) - spoke->first_leaf;
    return leaf_index < spoke->leaf_count ? &spoke->leaves[leaf_index] : NULL;
}

/* The slot of a living timer, or NULL. */
static inline struct slot *fl__wheel_find(const fl_wheel *w, fl_timer_id id)
{
    return fl__spoke_find(fl__wheel_spoke(w, id), id & ((1u << SLOT_BITS) - 1),
                          id >> (SPOKE_BITS + SLOT_BITS) & (GENERATION_END - 1));
}

static inline bool fl__wheel_lives(const fl_wheel *w, fl_timer_id id)
{
    return fl__wheel_find(w, id) != NULL;
}

/* Whether cancelling has left a leaf of the spoke with much more memory than it needs. */
static inline bool fl__is_sparse_leaf(const fl_wheel *w, const struct spoke *spoke, const struct leaf *leaf)
{
    if (leaf->is_packed)
        return leaf->live * (uint64_t)w->compaction.target_multiplier < leaf->capacity;
    uint64_t spoke_capacity = spoke->leaf_count > 1 ? (uint64_t)spoke->leaf_count * LEAF_SLOTS : leaf->capacity;
    return leaf->live * (uint64_t)w->compaction.ratio < leaf->used && spoke_capacity >= w->compaction.min_capacity;
}

/* Settles what cancelling has put off; see wheel.c. Whoever reads counters, lists or minima of leaves calls it first. */
void fl__wheel_settle(fl_wheel *w);

#endif
