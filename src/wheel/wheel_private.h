/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_WHEEL_PRIVATE_H
#define FOLIOT_WHEEL_WHEEL_PRIVATE_H

/* The wheel's structure, shared by wheel.c (schedule, cancel), index.c and poll.c (what leads to what is due), timers.c
 * (looking at living timers) and check.c (what is legal). Below them are spoke.c (the timers of a tick), pool.c (the memory of timers, and what their IDs mean) and
 * refs.c (lists of references to timers).
 *
 * The intrusive wheel is another structure: nodes.c (its functions), rings.c (rings of 16 children), spokes.c (the nodes of a
 * spoke), nodes_check.c and rings_check.c (what is legal). */

#include <stdatomic.h>

#include "wheel/spoke.h"

enum { LEVELS = FL_WHEEL_LEVELS };

/* A coarse tick on its way to the next finer level; see "Opening" in wheel.c. */
struct opening {
    bool active;
    uint64_t tick;
    uint64_t begun_ns;
    uint64_t min_ns;                     /* nothing that is left to do is due earlier */
    struct refs refs;                    /* those the spoke had when it began */
    uint64_t leaf, leaf_begin, leaf_end; /* the next leaf to look at, by its serial number; and which there are */
    uint64_t missed;                     /* serial numbers before that one, in a row, of which there is no leaf */
    uint32_t ref;                        /* the next of the references to look at */
};

struct level {
    _Alignas(128) struct spoke *spokes; /* a power of two in size: the way to a level is short */
    uint64_t open_end;                  /* ticks before this one are open */
    unsigned shift;                     /* of a deadline, to get its tick */
    uint32_t mask;                      /* of a tick, to get its spoke */
    uint64_t *occupied;                 /* a bit for each spoke that has anything in a tick that is not open */
    uint64_t summary;                   /* a bit for each word of these that is not 0 */
    uint64_t coverage_ns;
    struct opening opening;
};

struct fl_wheel {
    _Atomic uint64_t now_ns;
    uint64_t attention_ns; /* a poll before this has nothing to do */
    uint64_t bound_ns;     /* no timer outside of the front is due earlier */
    uint64_t next_ns;      /* the earliest deadline, if next_known; then no bound is below it */
    uint64_t count;        /* timers */
    bool next_known;
    bool coarse;
    uint32_t spokes; /* in each level */
    uint32_t worker_id;
    uint64_t start_ns;
    struct spoke *all_spokes; /* a place for every level and number there is in an ID */
    struct level levels[LEVELS];
    struct store store;

    /* The front: references to all timers of open L0 ticks, in order of deadline. */
    struct refs run; /* sorted; those before run_head are done */
    uint32_t run_head;
    struct refs late; /* a heap: what came after its tick was loaded into the run */
    struct refs scratch;

    uint64_t spoke_refs; /* references in spokes, those of timers that are gone included */
    struct {
        uint32_t level, spoke, ref;
    } sweep; /* where to look next for such */

    fl_timer_id unwanted_id; /* for callers who do not want to know */
    void *unwanted_data;
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

static inline uint32_t fl__spoke_of(const struct level *level, uint64_t deadline_ns)
{
    return (uint32_t)fl__tick(level, deadline_ns) & level->mask;
}

static inline bool fl__is_open(const struct level *level, uint64_t deadline_ns)
{
    return fl__tick(level, deadline_ns) < level->open_end;
}

static inline bool fl__is_occupied(const struct level *level, uint32_t spoke)
{
    return level->occupied[spoke / 64] >> spoke % 64 & 1;
}

/* The spoke that the ID names, whether the wheel has it or not: then there is nothing in it. */
static inline struct spoke *fl__wheel_spoke(const fl_wheel *w, fl_timer_id id)
{
    return &w->all_spokes[(id >> LEVEL_SHIFT << SPOKE_BITS) + (id >> SLOT_BITS & ((1u << SPOKE_BITS) - 1))];
}

static inline struct leaf *fl__if_it_lives(struct leaf *leaf, fl_timer_id id)
{
    return __builtin_expect(leaf && fl__leaf_lives(leaf, fl__id_index(id)), 1) ? leaf : NULL;
}

/* The leaf of a living timer; NULL whatever else the ID is. */
static inline struct leaf *fl__wheel_find(const fl_wheel *w, fl_timer_id id)
{
    return fl__if_it_lives(fl__spoke_leaf(fl__wheel_spoke(w, id), id), id);
}

/* The same where it is short: NULL if there is no such timer, or it takes a search. */
static inline struct leaf *fl__wheel_find_at_once(const fl_wheel *w, fl_timer_id id)
{
    return fl__if_it_lives(fl__spoke_leaf_at_once(fl__wheel_spoke(w, id), id), id);
}

/* What an ID is that no living timer has: FL_TIMER_NOT_FOUND or FL_INVALID_TIMER_ID. */
int fl__wheel_why_not_found(const fl_wheel *w, fl_timer_id id);

/* The earliest of all timers is this one: its leaf knows of it, so that cancelling it does not go unnoticed. */
static inline void fl__wheel_set_next(fl_wheel *w, fl_timer_id id, uint64_t deadline_ns)
{
    w->next_ns = deadline_ns;
    fl__leaf_set_min(fl__spoke_leaf(fl__wheel_spoke(w, id), id), fl__id_index(id), deadline_ns);
}

#endif
