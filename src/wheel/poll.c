/* SPDX-License-Identifier: MIT */
/* Polling: takes out what is due, and does ahead of time what the next polls would have to do at once.
 *
 * A poll takes from the front what is due before anything that is not in the front, else opens what bounds the front, and
 * so on until nothing due is left or the limit is reached. Then it works ahead on the next ticks, packs a few leaves that
 * cancelling has left sparse, gives a slice of idle memory back, and notes when the next poll has anything to do: until
 * then, polls return at once.
 *
 * Should there be no memory for the index, it looks at all timers for those that are due. */

#include <assert.h>
#include <string.h>

#include "wheel/index.h"

enum {
    PREFETCH_AHEAD = 8,   /* timers, while firing */
    LOOK_A_POLL = 256,    /* leaves that were sparse */
    PACK_A_POLL = 4,      /* leaves that still are */
    UNINDEXED_BATCH = 32, /* timers found in one look at all of them, when there is no memory */
};

/* ---- Firing ---------------------------------------------------------------------------------------------------- */

static inline void prefetch_timer(const fl_wheel *w, fl_timer_id id)
{
    const struct leaf *leaf = fl__wheel_leaf(w, id);
    if (leaf)
        fl__prefetch_slot(leaf, id & (LEAF_SLOTS - 1));
}

/* Fires one timer: hands it out and frees its slot. */
static void fire(fl_wheel *w, fl_timer_id id, struct slot *slot, fl_expired *out)
{
    struct spoke *spoke = fl__wheel_spoke(w, id);
    struct leaf *leaf = fl__wheel_leaf(w, id);
    *out = (fl_expired){.id = id, .deadline_ns = slot->deadline_ns, .data = slot->data};
    fl__slot_end(slot);
    fl__leaf_give(spoke, leaf, id & (LEAF_SLOTS - 1), out->deadline_ns);
    if (leaf->live == 0)
        fl__leaf_emptied(spoke, leaf, &w->pool);
    w->count--;
}

/* Fires what is in the front, due, and before anything that is not in the front. Returns how many are in `out` now. */
static size_t fire_front(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t fired, size_t limit)
{
    uint64_t last_ns = w->bound_ns > now_ns ? now_ns : w->bound_ns - 1;
    while (fired < limit) {
        const struct ref *first = fl__front_first(w);
        if (!first || first->deadline_ns > last_ns)
            break;
        if (w->run_head + PREFETCH_AHEAD < w->run.length)
            prefetch_timer(w, w->run.items[w->run_head + PREFETCH_AHEAD].id);
        fl_timer_id id = first->id;
        fl__front_pop(w, first);
        struct slot *slot = fl__wheel_find(w, id);
        if (slot)
            fire(w, id, slot, &out[fired++]);
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

static void look_at_leaf(fl_wheel *w, unsigned level, uint32_t spoke_number, const struct leaf *leaf, uint64_t last_ns,
                         struct earliest *earliest)
{
    const struct spoke *spoke = &w->levels[level].spokes[spoke_number];
    for (uint32_t i = 0; i < fl__leaf_size(leaf); i++) {
        uint32_t index;
        const struct slot *slot = fl__leaf_at(leaf, i, &index);
        if (slot->deadline_ns != 0 && slot->deadline_ns <= last_ns)
            keep_earliest(earliest, fl__make_ref(level, spoke_number, fl__slot_number(spoke, leaf, index), slot));
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
        for (uint32_t number = 0; number < w->spokes; number++) {
            const struct spoke *spoke = &w->levels[level].spokes[number];
            for (uint32_t i = 0; i < spoke->leaf_count; i++)
                look_at_leaf(w, level, number, &spoke->leaves[i], last_due_ns(w, level, now_ns), earliest);
        }
}

/* Fires what is due when there is no memory to index it. */
static size_t fire_unindexed(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t fired, size_t limit)
{
    while (fired < limit) {
        struct earliest earliest = {.limit = fl__min(UNINDEXED_BATCH, limit - fired)};
        look_at_all(w, now_ns, &earliest);
        for (size_t i = 0; i < earliest.count; i++) {
            struct slot *slot = fl__wheel_find(w, earliest.refs[i].id);
            assert(slot); /* nothing was cancelled since it was found */
            fire(w, earliest.refs[i].id, slot, &out[fired++]);
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
               fl__tick(level, level->spokes[spoke].min_ns) < fl__tick(level, now_ns)) {
            int r = fl__load(w, level, spoke);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* Looks at some of the leaves that cancelling has left sparse, and packs those that still are. */
static void pack_some(fl_wheel *w)
{
    for (int looked = 0, packed = 0; looked < LOOK_A_POLL && packed < PACK_A_POLL && w->queue.length > 0; looked++) {
        fl_timer_id id = w->queue.items[--w->queue.length].id;
        struct leaf *leaf = fl__wheel_leaf(w, id);
        if (!leaf || !leaf->is_queued)
            continue;
        leaf->is_queued = 0;
        if (leaf->live > 0 && fl__is_sparse_leaf(w, fl__wheel_spoke(w, id), leaf)) {
            fl__leaf_pack(fl__wheel_spoke(w, id), leaf, &w->pool);
            packed++;
        }
    }
    if (w->queue.length == 0)
        fl__refs_release(&w->queue);
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
    if (w->queue.length > 0 || fl__pool_has_excess(&w->pool))
        attention_ns = now_ns;
    if (w->count > 0 && !w->coarse) {
        bool opening = w->levels[1].opening.active || w->levels[2].opening.active;
        attention_ns = fl__min(attention_ns, fl__next_tick_ns(&w->levels[opening ? 0 : 1], now_ns));
    }
    w->attention_ns = attention_ns;
}

static size_t poll_due(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    size_t fired = 0;
    fl__wheel_settle(w);
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
    pack_some(w);
    fl__trim_front(w);
    fl__pool_trim_some(&w->pool);
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

/* The least bound made exact: false if the spoke turned out to hold nothing, or something later than its bound. */
static bool refine(fl_wheel *w, const struct candidate *candidate)
{
    struct spoke *spoke = &candidate->level->spokes[candidate->spoke];
    struct refs *refs = &spoke->refs;
    if (!spoke->refs_are_heap) {
        fl__heap_build(refs);
        spoke->refs_are_heap = 1;
    }
    while (refs->length > 0 && !fl__wheel_lives(w, refs->items[0].id))
        fl__heap_pop(refs);
    uint64_t min_ns = fl__min(fl__spoke_min_ns(spoke), refs->length > 0 ? refs->items[0].deadline_ns : UINT64_MAX);
    assert(min_ns >= candidate->bound_ns);
    spoke->min_ns = min_ns;
    if (min_ns == UINT64_MAX)
        fl__unmark(candidate->level, candidate->spoke);
    return min_ns == candidate->bound_ns;
}

/* The earliest deadline in the front; UINT64_MAX if it is empty. */
static uint64_t front_next_ns(fl_wheel *w)
{
    const struct ref *first;
    while ((first = fl__front_first(w)) && !fl__wheel_lives(w, first->id))
        fl__front_pop(w, first);
    return first ? first->deadline_ns : UINT64_MAX;
}

static uint64_t find_next_ns(fl_wheel *w)
{
    for (;;) {
        uint64_t front_ns = front_next_ns(w); /* anew each time: an opening may have brought something into the front */
        struct candidate next = fl__earliest_candidate(w, false);
        w->bound_ns = next.bound_ns;
        if (front_ns <= next.bound_ns)
            return front_ns;
        if (!next.opening) {
            if (refine(w, &next))
                return next.bound_ns;
        } else if (fl__finish_opening(w, next.level) < 0) {
            struct earliest earliest = {.limit = 1};
            look_at_all(w, UINT64_MAX, &earliest);
            w->next_known = false; /* the bounds are as loose as before: an earlier timer might not lower any of them */
            return earliest.refs[0].deadline_ns;
        }
    }
}

bool fl_wheel_next_deadline(fl_wheel *w, uint64_t *ret_ns)
{
    fl__wheel_settle(w);
    if (w->count == 0)
        return false;
    if (!w->next_known) {
        w->next_known = true;
        w->next_ns = find_next_ns(w);
    }
    *ret_ns = w->next_ns;
    return true;
}
