/* SPDX-License-Identifier: MIT */
/* Polling: takes out what is due, and does ahead of time what the next polls would have to do at once.
 *
 * A poll takes from the front what is due before anything that is not in the front, else opens what bounds the front, and
 * so on until nothing due is left or the limit is reached. Then it works ahead on the next ticks, gives some idle memory
 * back, and notes when the next poll has anything to do: until then, polls return at once.
 *
 * Should there be no memory for the index, it looks at all timers for those that are due. */

#include <assert.h>
#include <string.h>

#include "wheel/index.h"

enum {
    TRIMS_A_POLL = 4, /* slices of idle memory given back, and one more for so many timers that fire */
    TIMERS_A_TRIM = 1024,
    UNINDEXED_BATCH = 32, /* timers found in one look at all of them, when there is no memory */
};

/* ---- Firing ---------------------------------------------------------------------------------------------------- */

/* Fires one timer: hands it out. */
static inline void fire(fl_wheel *w, struct leaf *leaf, const struct ref *ref, fl_expired *out)
{
    uint32_t index = fl__id_index(ref->id);
    void *data = __builtin_expect(leaf->has_new_data, 0) ? fl__leaf_slot(leaf, index)->data : ref->data;
    *out = (fl_expired){.id = ref->id, .deadline_ns = ref->deadline_ns, .data = data};
    leaf->gone[index / 64] |= 1ull << index % 64;
    leaf->min_is_bound = true;
    w->count--;
    if (--leaf->patience == 0)
        fl__leaf_fired(fl__wheel_spoke(w, leaf->id), leaf, &w->store);
}

/* Fires what is in the front, due, and before anything that is not in the front. Returns how many are in `out` now. */
static size_t fire_front(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t fired, size_t limit)
{
    uint64_t last_ns = w->bound_ns > now_ns ? now_ns : w->bound_ns - 1;
    while (fired < limit) {
        const struct ref *first = fl__front_first(w);
        if (!first || first->deadline_ns > last_ns)
            break;
        struct leaf *leaf = fl__wheel_find(w, first->id);
        if (leaf)
            fire(w, leaf, first, &out[fired++]);
        fl__front_pop(w, first);
    }
    return fired;
}

/* ---- Without memory -------------------------------------------------------------------------------------------- */

/* Keeps the earliest of what it is shown. */
struct earliest {
    struct ref refs[UNINDEXED_BATCH];
    size_t count, limit;
};

static void keep_earliest(struct earliest *earliest, struct ref ref)
{
    size_t at = earliest->count;
    while (at > 0 && fl__ref_before(&ref, &earliest->refs[at - 1]))
        at--;
    if (at == earliest->limit)
        return;
    size_t moved = earliest->count - at - (earliest->count == earliest->limit);
    memmove(&earliest->refs[at + 1], &earliest->refs[at], moved * sizeof ref);
    earliest->refs[at] = ref;
    earliest->count += earliest->count < earliest->limit;
}

static void look_at_spoke(const struct spoke *spoke, uint64_t last_ns, struct earliest *earliest)
{
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        for (uint32_t i = fl__leaf_next(leaf, 0); i < LEAF_SLOTS; i = fl__leaf_next(leaf, i + 1)) {
            const struct slot *slot = fl__leaf_slot(leaf, i);
            if (slot->deadline_ns <= last_ns)
                keep_earliest(earliest, (struct ref){slot->deadline_ns, leaf->id + i, slot->data});
        }
}

/* The last deadline of a level that fires at now_ns: in a coarse wheel, the ticks of L1 and L2 have to end first. */
static uint64_t last_due_ns(const fl_wheel *w, unsigned level, uint64_t now_ns)
{
    uint64_t ended_ns = now_ns >> w->levels[level].shift << w->levels[level].shift;
    return !w->coarse || level == 0 ? now_ns : ended_ns > 0 ? ended_ns - 1 : 0;
}

/* Looks at every timer there is for the earliest that are due at now_ns. */
static void look_at_all(fl_wheel *w, uint64_t now_ns, struct earliest *earliest)
{
    for (unsigned level = 0; level < LEVELS; level++)
        for (uint32_t number = 0; number < w->spokes; number++)
            look_at_spoke(&w->levels[level].spokes[number], last_due_ns(w, level, now_ns), earliest);
}

/* Fires what is due when there is no memory to index it. */
static size_t fire_unindexed(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t fired, size_t limit)
{
    while (fired < limit) {
        struct earliest earliest = {.limit = fl__min(UNINDEXED_BATCH, limit - fired)};
        look_at_all(w, now_ns, &earliest);
        for (size_t i = 0; i < earliest.count; i++) {
            struct leaf *leaf = fl__wheel_find(w, earliest.refs[i].id);
            assert(leaf); /* nothing was cancelled since it was found */
            fire(w, leaf, &earliest.refs[i], &out[fired++]);
        }
        if (earliest.count < UNINDEXED_BATCH)
            break;
    }
    return fired;
}

/* ---- Polling --------------------------------------------------------------------------------------------------- */

/* In a coarse wheel: loads all ticks of L1 and L2 that have ended. */
static int load_ended_ticks(fl_wheel *w, uint64_t now_ns)
{
    for (int i = LEVELS - 1; i > 0; i--) {
        struct level *level = &w->levels[i];
        uint32_t spoke;
        while (fl__level_next(w, level, &spoke) &&
               fl__tick(level, fl__spoke_bound_ns(&level->spokes[spoke])) < fl__tick(level, now_ns)) {
            int r = fl__load(w, level, spoke);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* Nothing is due any more: all ticks before the present one are open, for there is nothing in them. */
static void catch_up(fl_wheel *w, uint64_t now_ns)
{
    for (int i = 0; i < LEVELS; i++) {
        struct level *level = &w->levels[i];
        uint64_t tick = fl__tick(level, now_ns);
        level->open_end = level->open_end < tick ? tick : level->open_end;
    }
}

/* When the next poll has something to do: fire, open, or look whether it is time to work ahead. */
static void set_attention(fl_wheel *w, uint64_t now_ns)
{
    const struct ref *first = fl__front_first(w);
    uint64_t attention_ns = fl__min(w->bound_ns, first ? first->deadline_ns : UINT64_MAX);
    if (fl__pool_has_excess(&w->store.slots) || fl__index_has_excess(w))
        attention_ns = now_ns;
    for (int i = 1; i < LEVELS; i++)
        if (w->levels[i].opening.active)
            attention_ns = fl__min(attention_ns, fl__next_step_ns(&w->levels[i]));
    if (w->count > 0 && !w->coarse)
        attention_ns = fl__min(attention_ns, fl__next_tick_ns(&w->levels[1], now_ns));
    w->attention_ns = attention_ns;
}

static __attribute__((noinline)) size_t poll_due(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    size_t fired = 0;
    fl__pool_wait(&w->store.slots);
    if (w->count == 0)
        fl__index_clear(w);
    int r = w->coarse ? load_ended_ticks(w, now_ns) : 0;
    while (r == 0) {
        fired = fire_front(w, now_ns, out, fired, limit);
        if (fired == limit || w->bound_ns > now_ns)
            break;
        r = fl__advance(w, now_ns);
    }
    if (r < 0)
        fired = fire_unindexed(w, now_ns, out, fired, limit);
    else if (w->bound_ns > now_ns)
        catch_up(w, now_ns);
    /* Whatever was opened may have brought references of timers that are gone, and with them bounds below the earliest
     * deadline. Then a new timer's bound does not tell whether it is the earliest. */
    w->next_known = false;
    if (!w->coarse) {
        fl__work_ahead(w, &w->levels[2], now_ns);
        fl__work_ahead(w, &w->levels[1], now_ns);
    }
    fl__trim_front(w);
    fl__index_sweep(w);
    fl__pool_trim_some(&w->store.slots, TRIMS_A_POLL + fired / TIMERS_A_TRIM);
    set_attention(w, now_ns);
    return fired;
}

size_t fl_wheel_poll(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    uint64_t before_ns = fl__now(w);
    now_ns = now_ns > before_ns ? now_ns : before_ns;
    atomic_store_explicit(&w->now_ns, now_ns, memory_order_relaxed);
    /* No deadline is UINT64_MAX: as a bound it says that there is none. */
    return now_ns < w->attention_ns ? 0 : poll_due(w, fl__min(now_ns, UINT64_MAX - 1), out, limit);
}

/* Makes the least bound exact: false if the spoke turned out to hold nothing, or something later than its bound. Else this
 * is the earliest timer there is, and its leaf knows it. */
static bool refine(fl_wheel *w, const struct candidate *candidate)
{
    struct spoke *spoke = &candidate->level->spokes[candidate->spoke];
    const struct ref *ref = fl__first_living(w, spoke);
    uint64_t min_ns = fl__spoke_min_ns(spoke);
    bool is_ref = ref && ref->deadline_ns < min_ns;
    min_ns = is_ref ? ref->deadline_ns : min_ns;
    assert(min_ns >= candidate->bound_ns);
    fl__spoke_set_bound(spoke, min_ns);
    if (min_ns == UINT64_MAX)
        fl__unmark(candidate->level, candidate->spoke);
    if (min_ns > candidate->bound_ns)
        return false;
    if (is_ref)
        fl__wheel_set_next(w, ref->id, min_ns);
    w->next_ns = min_ns;
    return true;
}

/* The earliest living timer of the front; NULL if it is empty. */
static const struct ref *front_next(fl_wheel *w)
{
    const struct ref *first;
    while ((first = fl__front_first(w)) && !fl__wheel_find(w, first->id))
        fl__front_pop(w, first);
    fl__trim_front(w);
    return first;
}

/* There is no memory to find the earliest timer by opening what it may be in. */
static void find_next_unindexed(fl_wheel *w)
{
    struct earliest earliest = {.limit = 1};
    look_at_all(w, UINT64_MAX, &earliest);
    w->next_ns = earliest.refs[0].deadline_ns;
    w->next_known = false; /* the bounds are as loose as before: an earlier timer might not lower any of them */
}

/* Finds the earliest timer; there is one. Unless it has to be exact, a bound in the future will do where a tick is being
 * opened. */
static void find_next(fl_wheel *w, bool is_exact)
{
    w->next_known = true;
    for (;;) {
        const struct ref *front = front_next(w); /* anew each time: an opening may have brought something there */
        struct candidate next = fl__earliest_candidate(w, false);
        w->bound_ns = next.bound_ns;
        if (front && front->deadline_ns <= next.bound_ns) {
            fl__wheel_set_next(w, front->id, front->deadline_ns);
            return;
        }
        if (!next.opening) {
            if (refine(w, &next))
                return;
        } else if (!is_exact && next.bound_ns > fl__now(w)) {
            w->next_ns = next.bound_ns;
            w->next_known = false;
            return;
        } else if (fl__finish_opening(w, next.level) < 0) {
            find_next_unindexed(w);
            return;
        }
    }
}

bool fl_wheel_next_deadline(fl_wheel *w, uint64_t *ret_ns)
{
    if (w->count == 0)
        return false;
    if (!w->next_known)
        find_next(w, true);
    *ret_ns = w->next_ns;
    return true;
}

bool fl_wheel_next_poll(fl_wheel *w, uint64_t *ret_ns)
{
    if (w->count == 0)
        return false;
    if (!w->next_known)
        find_next(w, false);
    uint64_t work_ns = UINT64_MAX;
    for (int i = 1; i < LEVELS && !w->coarse; i++)
        work_ns = fl__min(work_ns, fl__next_work_ns(&w->levels[i]));
    uint64_t soon_ns = fl__next_tick_ns(&w->levels[0], fl__now(w)); /* work ahead need not be done more often */
    *ret_ns = fl__min(w->next_ns, work_ns > soon_ns ? work_ns : soon_ns);
    return true;
}
