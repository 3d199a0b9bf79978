/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_INDEX_H
#define FOLIOT_WHEEL_INDEX_H

/* The index: what leads from the time to the timers that are due. See index.c. */

#include "wheel/wheel_private.h"

enum { EXCESS_REFS = 4096 }; /* fewer are not worth sweeping for */

/* A spoke has become occupied, or by something earlier. */
void fl__lower_bound(fl_wheel *w, struct level *level, uint32_t spoke_number, uint64_t deadline_ns);

/* Notes that the spoke holds something due at deadline_ns, of a tick that is not open. */
static inline void fl__mark(fl_wheel *w, struct level *level, uint32_t spoke_number, uint64_t deadline_ns)
{
    if (deadline_ns < fl__spoke_bound_ns(&level->spokes[spoke_number]))
        fl__lower_bound(w, level, spoke_number, deadline_ns);
}

/* Nothing is left in the spoke of ticks that are not open. */
void fl__unmark(struct level *level, uint32_t spoke_number);

/* Makes room for one more in the late heap. */
bool fl__reserve_late(fl_wheel *w);

struct candidate {
    uint64_t bound_ns;
    struct level *level; /* NULL: nothing is waiting */
    uint32_t spoke;
    bool opening; /* it is the rest of the level's opening */
};

/* The spoke in which the earliest of what is not in the front may be. The coarser level comes first if they are equal.
 * For firing, a coarse wheel's L1 and L2 count by the end of their ticks. */
struct candidate fl__earliest_candidate(fl_wheel *w, bool for_firing);

/* The spoke with the least bound in a level; false if nothing is waiting there. */
bool fl__level_next(const fl_wheel *w, const struct level *level, uint32_t *ret_spoke);

static inline uint64_t fl__next_tick_ns(const struct level *level, uint64_t now_ns)
{
    uint64_t last_ns = now_ns | ((1ull << level->shift) - 1);
    return last_ns < UINT64_MAX ? last_ns + 1 : UINT64_MAX;
}

/* Opens the rest of the tick that a level is opening; or ends that without doing it. */
int fl__finish_opening(fl_wheel *w, struct level *level);
void fl__end_opening(struct level *level);

/* Opens a part of the tick that comes after the present one. */
void fl__work_ahead(fl_wheel *w, struct level *level, uint64_t now_ns);

/* When the next step of a level's opening is due, so that it is done in time. */
uint64_t fl__next_step_ns(const struct level *level);

/* When a poll should come for the sake of what it would do ahead: if a crowd of timers is near. UINT64_MAX: never. */
uint64_t fl__next_work_ns(const struct level *level);

/* Loads the earliest tick of a spoke into the front: any tick of L0, and in a coarse wheel those of all levels. */
int fl__load(fl_wheel *w, struct level *level, uint32_t spoke_number);

/* Opens or loads what bounds the front, if that is due. */
int fl__advance(fl_wheel *w, uint64_t now_ns);

/* The earliest reference of the front, or NULL. */
static inline const struct ref *fl__front_first(const fl_wheel *w)
{
    const struct ref *run = w->run_head < w->run.length ? &w->run.items[w->run_head] : NULL;
    const struct ref *late = w->late.length > 0 ? &w->late.items[0] : NULL;
    return !run || (late && fl__ref_before(late, run)) ? late : run;
}

static inline void fl__front_pop(fl_wheel *w, const struct ref *first)
{
    if (w->late.length > 0 && first == &w->late.items[0]) {
        fl__heap_pop(&w->late);
        return;
    }
    w->run_head++;
    if (w->run_head == w->run.length)
        w->run_head = w->run.length = 0;
}

/* Frees the front's memory if it is empty and was large. */
void fl__trim_front(fl_wheel *w);

/* Most of the references in spokes must be of timers that are gone. */
static inline bool fl__index_has_excess(const fl_wheel *w)
{
    return w->spoke_refs > 2 * w->count + EXCESS_REFS;
}

/* As long as there is such an excess, throws some of them out. */
void fl__index_sweep(fl_wheel *w);

/* Throws out the references of timers that are gone before the earliest living one of a spoke; that one, or NULL. */
const struct ref *fl__first_living(fl_wheel *w, struct spoke *spoke);

/* Throws out all references of timers that are gone, and the memory they took. */
void fl__index_compact(fl_wheel *w);

/* There are no timers: forgets all references. */
void fl__index_clear(fl_wheel *w);

#endif
