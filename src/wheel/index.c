/* SPDX-License-Identifier: MIT */
/* The index of the wheel: bounds, references, opening, and the front. The ideas are in the header of wheel.c.
 *
 * What may be lost here is nothing but time. Timers are where they are; the index only leads to them. So every step may
 * fail for lack of memory and be repeated, references may be there twice, and those of timers that are gone stay until
 * somebody comes across them or they are so many that they are swept out. What must hold is that every living timer of an
 * open tick has a reference in a finer level or in the front, and that every bound is at or below what it bounds:
 * fl_wheel_check() says so in code. */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "wheel/index.h"

enum {
    REFS_A_STEP = LEAF_SLOTS, /* references opened at a time */
    REFS_A_SWEEP = 1024,      /* references looked at in one sweep */
    FRONT_KEEP = 4096,        /* references the front keeps memory for when it is empty */
    CROWD = 16,               /* steps: an opening of no more is soon done at once */
};

/* When a poll has to come for the sake of this deadline: at it or, in a coarse level, when its tick should be opened
 * ahead of its time. */
static uint64_t attention_for(const fl_wheel *w, const struct level *level, uint64_t deadline_ns)
{
    uint64_t tick = fl__tick(level, deadline_ns);
    return level > w->levels && tick > 0 ? (tick - 1) << level->shift : deadline_ns;
}

void fl__lower_bound(fl_wheel *w, struct level *level, uint32_t spoke_number, uint64_t deadline_ns)
{
    fl__spoke_set_bound(&level->spokes[spoke_number], deadline_ns);
    level->occupied[spoke_number / 64] |= 1ull << spoke_number % 64;
    level->summary |= 1ull << spoke_number / 64;
    w->bound_ns = fl__min(w->bound_ns, deadline_ns);
    w->attention_ns = fl__min(w->attention_ns, attention_for(w, level, deadline_ns));
}

void fl__unmark(struct level *level, uint32_t spoke_number)
{
    fl__spoke_set_bound(&level->spokes[spoke_number], UINT64_MAX);
    level->occupied[spoke_number / 64] &= ~(1ull << spoke_number % 64);
    if (level->occupied[spoke_number / 64] == 0)
        level->summary &= ~(1ull << spoke_number / 64);
}

/* The dead are thrown out before it grows: timers of the present tick that come and go without the clock moving must not
 * fill the memory. */
bool fl__reserve_late(fl_wheel *w)
{
    struct refs *late = &w->late;
    if (late->length < late->capacity)
        return true;
    uint32_t living = 0;
    for (uint32_t i = 0; i < late->length; i++)
        if (fl__wheel_find(w, late->items[i].id))
            late->items[living++] = late->items[i];
    late->length = living;
    fl__heap_build(late);
    return living < late->capacity / 2 || fl__refs_grow(late, 1) || living < late->capacity;
}

/* Puts a reference where it belongs: at this level or, if its tick is open there, further down, or into the front. */
static int index_ref(fl_wheel *w, int level_number, struct ref ref)
{
    while (level_number >= 0 && fl__is_open(&w->levels[level_number], ref.deadline_ns))
        level_number--;
    if (level_number < 0) {
        if (!fl__reserve_late(w))
            return FL_NO_MEMORY;
        fl__heap_push(&w->late, ref);
        return 0;
    }
    struct level *level = &w->levels[level_number];
    uint32_t spoke_number = fl__spoke_of(level, ref.deadline_ns);
    struct spoke *spoke = &level->spokes[spoke_number];
    if (!fl__refs_reserve(&spoke->refs, 1))
        return FL_NO_MEMORY;
    if (spoke->refs_are_heap)
        fl__heap_push(&spoke->refs, ref);
    else
        spoke->refs.items[spoke->refs.length++] = ref;
    w->spoke_refs++;
    fl__mark(w, level, spoke_number, ref.deadline_ns);
    return 0;
}

/* ---- Finding what comes next ---------------------------------------------------------------------------------- */

/* The first occupied spoke at or after `from` and before `end`, which are counted without going round; `end` if there is
 * none. */
static uint32_t next_occupied(const struct level *level, uint32_t from, uint32_t end)
{
    uint32_t words = level->mask / 64 + 1;
    while (from < end && level->summary != 0) {
        uint32_t at = from & level->mask;
        uint64_t word = level->occupied[at / 64] >> at % 64;
        if (word != 0) {
            uint32_t found = from + (uint32_t)__builtin_ctzll(word);
            return found < end ? found : end;
        }
        from += words > 1 ? 64 - at % 64 : level->mask + 1 - at;
        uint32_t next = (from & level->mask) / 64;
        uint64_t rest = level->summary >> next;
        from += (rest != 0 ? (uint32_t)__builtin_ctzll(rest) : words - next) * 64;
    }
    return end;
}

/* Spokes come in the order of time, so the first one whose bound is in its own turn is the least; only those a whole turn
 * ahead need be compared. */
bool fl__level_next(const fl_wheel *w, const struct level *level, uint32_t *ret_spoke)
{
    uint32_t from = (uint32_t)level->open_end & (w->spokes - 1), end = from + w->spokes, best = end;
    uint64_t best_ns = UINT64_MAX;
    for (uint32_t at = next_occupied(level, from, end); at < end; at = next_occupied(level, at + 1, end)) {
        uint32_t spoke_number = at & (w->spokes - 1);
        uint64_t min_ns = fl__spoke_bound_ns(&level->spokes[spoke_number]);
        if (min_ns < best_ns) {
            best_ns = min_ns;
            best = spoke_number;
        }
        if (fl__tick(level, min_ns) - level->open_end < w->spokes)
            break;
    }
    *ret_spoke = best;
    return best < end;
}

static void consider(struct candidate *best, uint64_t bound_ns, struct level *level, uint32_t spoke, bool opening)
{
    if (bound_ns < best->bound_ns)
        *best = (struct candidate){bound_ns, level, spoke, opening};
}

struct candidate fl__earliest_candidate(fl_wheel *w, bool for_firing)
{
    struct candidate best = {.bound_ns = UINT64_MAX};
    for (int i = LEVELS - 1; i >= 0; i--) {
        struct level *level = &w->levels[i];
        uint32_t spoke;
        if (level->opening.active)
            consider(&best, level->opening.min_ns, level, 0, true);
        if (fl__level_next(w, level, &spoke)) {
            uint64_t min_ns = fl__spoke_bound_ns(&level->spokes[spoke]);
            bool at_end = for_firing && w->coarse && i > 0;
            consider(&best, at_end ? fl__next_tick_ns(level, min_ns) : min_ns, level, spoke, false);
        }
    }
    return best;
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Hands the timers of `tick` in a leaf to `deliver`, and notes those of later turns. */
static inline int visit_leaf(fl_wheel *w, struct level *level, uint32_t spoke_number, const struct leaf *leaf,
                             uint64_t tick, int (*deliver)(fl_wheel *, int, struct ref))
{
    int level_number = (int)(level - w->levels);
    for (uint32_t i = fl__leaf_next(leaf, 0); i < LEAF_SLOTS; i = fl__leaf_next(leaf, i + 1)) {
        const struct slot *slot = fl__leaf_slot(leaf, i);
        if (fl__tick(level, slot->deadline_ns) == tick) {
            int r = deliver(w, level_number, (struct ref){slot->deadline_ns, leaf->id + i, slot->data});
            if (r < 0)
                return r;
        } else if (!fl__is_open(level, slot->deadline_ns)) {
            fl__mark(w, level, spoke_number, slot->deadline_ns);
        }
    }
    return 0;
}

static void begin_opening(fl_wheel *w, struct level *level, uint32_t spoke_number)
{
    struct spoke *spoke = &level->spokes[spoke_number];
    uint64_t bound_ns = fl__spoke_bound_ns(spoke), tick = fl__tick(level, bound_ns),
             next = fl__spoke_next_serial(spoke), oldest = fl__min(fl__spoke_oldest(spoke, 0), next);
    assert(!level->opening.active && tick >= level->open_end);
    level->opening = (struct opening){.active = true,
                                      .tick = tick,
                                      .begun_ns = fl__now(w),
                                      .min_ns = bound_ns,
                                      .refs = spoke->refs,
                                      .leaf = oldest,
                                      .leaf_begin = oldest,
                                      .leaf_end = next};
    level->open_end = tick + 1;
    w->spoke_refs -= spoke->refs.length;
    spoke->refs = (struct refs){0};
    spoke->refs_are_heap = 0;
    fl__unmark(level, spoke_number);
}

void fl__end_opening(struct level *level)
{
    fl__refs_release(&level->opening.refs);
    level->opening.active = false;
}

/* There is no leaf of the next serial number. Where many have gone, the table tells how many: it is asked after so many
 * numbers in vain that they took as long as asking does. */
static void pass_gap(struct opening *opening, const struct spoke *spoke)
{
    opening->leaf++;
    if (++opening->missed < fl__spoke_table_size(spoke))
        return;
    opening->missed = 0;
    opening->leaf = fl__min(fl__spoke_oldest(spoke, opening->leaf), opening->leaf_end);
}

/* One step: a leaf, or some references. A step that fails for lack of memory is repeated later; what it had already
 * indexed is then indexed twice, which does no harm. */
static int step_opening(fl_wheel *w, struct level *level)
{
    struct opening *opening = &level->opening;
    uint32_t spoke_number = (uint32_t)opening->tick & (w->spokes - 1);
    if (opening->leaf < opening->leaf_end) {
        fl_timer_id id = fl__leaf_id((unsigned)(level - w->levels), spoke_number, opening->leaf);
        const struct spoke *spoke = &level->spokes[spoke_number];
        const struct leaf *leaf = fl__spoke_leaf(spoke, id);
        if (!leaf) {
            pass_gap(opening, spoke);
            return 0;
        }
        int r = visit_leaf(w, level, spoke_number, leaf, opening->tick, index_ref);
        opening->leaf += r == 0;
        opening->missed = 0;
        return r;
    }
    for (int i = 0; i < REFS_A_STEP && opening->ref < opening->refs.length; i++) {
        int r = index_ref(w, (int)(level - w->levels), opening->refs.items[opening->ref]);
        if (r < 0)
            return r;
        opening->ref++;
    }
    if (opening->ref == opening->refs.length)
        fl__end_opening(level);
    return 0;
}

int fl__finish_opening(fl_wheel *w, struct level *level)
{
    int r = 0;
    while (r == 0 && level->opening.active)
        r = step_opening(w, level);
    return r;
}

/* An opening has a step for each leaf, one for some references each, and one that ends it. */
static uint64_t steps_of(const struct opening *opening)
{
    return opening->leaf_end - opening->leaf_begin + (opening->refs.length + REFS_A_STEP - 1) / REFS_A_STEP + 1;
}

static uint64_t steps_done(const struct opening *opening)
{
    return opening->leaf - opening->leaf_begin + opening->ref / REFS_A_STEP;
}

/* The time in which an opening is to be done: three quarters of that from its beginning to its tick. */
static uint64_t opening_ns(const struct level *level)
{
    return ((level->opening.tick << level->shift) - level->opening.begun_ns) / 4 * 3 + 1;
}

/* How many steps of the opening should be done by now. */
static uint64_t steps_due(const struct level *level, uint64_t now_ns)
{
    const struct opening *opening = &level->opening;
    uint64_t steps = steps_of(opening);
    if (fl__tick(level, now_ns) >= opening->tick)
        return steps;
    unsigned __int128 part = (unsigned __int128)steps * (now_ns - opening->begun_ns) / opening_ns(level);
    return fl__min(steps, (uint64_t)part + 1);
}

uint64_t fl__next_step_ns(const struct level *level)
{
    const struct opening *opening = &level->opening;
    unsigned __int128 part = (unsigned __int128)steps_done(opening) * opening_ns(level) / steps_of(opening);
    return opening->begun_ns + (uint64_t)part + 1;
}

void fl__work_ahead(fl_wheel *w, struct level *level, uint64_t now_ns)
{
    struct opening *opening = &level->opening;
    if (!opening->active) {
        uint32_t spoke_number;
        if (!fl__level_next(w, level, &spoke_number) ||
            fl__tick(level, fl__spoke_bound_ns(&level->spokes[spoke_number])) > fl__tick(level, now_ns) + 1)
            return;
        begin_opening(w, level, spoke_number);
    }
    uint64_t due = steps_due(level, now_ns);
    while (opening->active && steps_done(opening) < due)
        if (step_opening(w, level) < 0)
            return;
}

static bool is_crowded(const struct spoke *spoke)
{
    return spoke->leaf_count + spoke->refs.length / REFS_A_STEP > CROWD;
}

/* Of the next two spokes that hold anything, the crowded one: the first may have to be opened before it. */
static uint64_t next_crowd_ns(const struct level *level)
{
    uint32_t from = (uint32_t)level->open_end & level->mask, end = from + level->mask + 1;
    for (int i = 0; i < 2; i++) {
        from = next_occupied(level, from, end);
        if (from == end)
            break;
        const struct spoke *spoke = &level->spokes[from++ & level->mask];
        if (is_crowded(spoke))
            return fl__spoke_bound_ns(spoke);
    }
    return UINT64_MAX;
}

uint64_t fl__next_work_ns(const struct level *level)
{
    const struct opening *opening = &level->opening;
    if (opening->active)
        return steps_of(opening) - steps_done(opening) > CROWD ? fl__next_step_ns(level) : UINT64_MAX;
    uint64_t crowd_ns = next_crowd_ns(level);
    uint64_t tick = fl__tick(level, crowd_ns);
    return crowd_ns < UINT64_MAX && tick > 0 ? (tick - 1) << level->shift : crowd_ns;
}

/* ---- The front ------------------------------------------------------------------------------------------------- */

static int append_to_run(fl_wheel *w, int level_number, struct ref ref)
{
    (void)level_number;
    w->run.items[w->run.length++] = ref;
    return 0;
}

/* Room for `most` more references in the run, for sorting them and, if need be, for moving them into the heap. What the
 * run has done is forgotten as soon as it is the larger part. */
static bool reserve_front(fl_wheel *w, uint64_t most)
{
    uint32_t left = w->run.length - w->run_head;
    if (w->run_head >= left) {
        if (left > 0)
            memmove(w->run.items, w->run.items + w->run_head, left * sizeof *w->run.items);
        w->run_head = 0;
        w->run.length = left;
    }
    return fl__refs_reserve(&w->run, most) && fl__refs_reserve(&w->scratch, most) &&
           (left == 0 || fl__refs_reserve(&w->late, most));
}

/* Sorts what was appended to the run. Should it not follow the rest of the run, it joins the heap instead. */
static void settle_run(fl_wheel *w, uint32_t begin)
{
    uint32_t count = w->run.length - begin;
    if (count == 0)
        return;
    struct ref *added = w->run.items + begin;
    fl__refs_sort(added, count, w->scratch.items);
    if (begin == 0 || !fl__ref_before(&added[0], &added[-1]))
        return;
    for (uint32_t i = 0; i < count; i++)
        fl__heap_push(&w->late, added[i]);
    w->run.length = begin;
}

int fl__load(fl_wheel *w, struct level *level, uint32_t spoke_number)
{
    struct spoke *spoke = &level->spokes[spoke_number];
    uint64_t tick = fl__tick(level, fl__spoke_bound_ns(spoke));
    if (!reserve_front(w, fl__spoke_live(spoke) + spoke->refs.length))
        return FL_NO_MEMORY;
    uint32_t begin = w->run.length, kept = 0;
    level->open_end = tick + 1;
    fl__unmark(level, spoke_number);
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at));)
        visit_leaf(w, level, spoke_number, leaf, tick, append_to_run);
    for (uint32_t i = 0; i < spoke->refs.length; i++) {
        struct ref ref = spoke->refs.items[i];
        if (fl__tick(level, ref.deadline_ns) == tick) {
            append_to_run(w, 0, ref);
        } else {
            spoke->refs.items[kept++] = ref;
            fl__mark(w, level, spoke_number, ref.deadline_ns);
        }
    }
    w->spoke_refs -= spoke->refs.length - kept;
    spoke->refs.length = kept;
    spoke->refs_are_heap = 0;
    fl__refs_relax(&spoke->refs);
    settle_run(w, begin);
    return 0;
}

int fl__advance(fl_wheel *w, uint64_t now_ns)
{
    struct candidate next = fl__earliest_candidate(w, true);
    int r = 0;
    if (next.level && next.bound_ns <= now_ns) {
        if (next.level == &w->levels[0]) {
            r = fl__load(w, next.level, next.spoke);
        } else {
            if (!next.opening)
                begin_opening(w, next.level, next.spoke);
            r = fl__finish_opening(w, next.level);
        }
        next = fl__earliest_candidate(w, true);
    }
    w->bound_ns = next.bound_ns;
    return r;
}

/* A burst must not hold its memory for ever. */
void fl__trim_front(fl_wheel *w)
{
    if (w->run.length == 0 && w->run.capacity > FRONT_KEEP) {
        fl__refs_release(&w->run);
        fl__refs_release(&w->scratch);
    }
    if (w->late.length == 0 && w->late.capacity > FRONT_KEEP)
        fl__refs_release(&w->late);
}

/* ---- Giving memory back ---------------------------------------------------------------------------------------- */

/* To cancel a timer touches none of its references: it would not know where they are. But a wheel whose timers are opened
 * and then cancelled must not keep a reference for each until its time comes. A living timer has one reference in the
 * spokes, seldom two. So where there are more than two for each that lives, most are dead, and whoever looks at a leaf
 * because many of its timers have gone sweeps some references too, as does every poll. Each was made once and is thrown
 * out once, so this costs no more than making them did. */

static void remove_ref(fl_wheel *w, struct spoke *spoke, uint32_t at)
{
    if (spoke->refs_are_heap)
        fl__heap_remove(&spoke->refs, at);
    else
        spoke->refs.items[at] = spoke->refs.items[--spoke->refs.length];
    w->spoke_refs--;
}

const struct ref *fl__first_living(fl_wheel *w, struct spoke *spoke)
{
    struct refs *refs = &spoke->refs;
    if (!spoke->refs_are_heap) {
        fl__heap_build(refs);
        spoke->refs_are_heap = 1;
    }
    while (refs->length > 0 && !fl__wheel_find(w, refs->items[0].id))
        remove_ref(w, spoke, 0);
    fl__refs_relax(refs);
    return refs->length > 0 ? &refs->items[0] : NULL;
}

/* Goes on through the references of a spoke; returns how many it has looked at. */
static uint32_t sweep_spoke(fl_wheel *w, struct spoke *spoke, uint32_t most)
{
    uint32_t looked = 0;
    for (; looked < most && w->sweep.ref < spoke->refs.length; looked++) {
        if (fl__wheel_find(w, spoke->refs.items[w->sweep.ref].id))
            w->sweep.ref++;
        else
            remove_ref(w, spoke, w->sweep.ref);
    }
    fl__refs_relax(&spoke->refs);
    return looked;
}

/* The spoke to be swept; false if there is none left in this level, which is then done. */
static bool find_spoke_to_sweep(fl_wheel *w)
{
    uint32_t spoke = next_occupied(&w->levels[w->sweep.level], w->sweep.spoke, w->spokes);
    if (spoke != w->sweep.spoke)
        w->sweep.ref = 0;
    w->sweep.spoke = spoke;
    if (spoke < w->spokes)
        return true;
    w->sweep.level = (w->sweep.level + 1) % (LEVELS - 1); /* the last has no references */
    w->sweep.spoke = w->sweep.ref = 0;
    return false;
}

void fl__index_sweep(fl_wheel *w)
{
    for (uint32_t left = REFS_A_SWEEP; left > 0 && fl__index_has_excess(w);) {
        left--;
        if (!find_spoke_to_sweep(w))
            continue;
        struct spoke *spoke = &w->levels[w->sweep.level].spokes[w->sweep.spoke];
        left -= sweep_spoke(w, spoke, left);
        if (w->sweep.ref >= spoke->refs.length) {
            w->sweep.spoke++;
            w->sweep.ref = 0;
        }
    }
}

/* Keeps the living of `refs`, in their order, from `begin` on. */
static void keep_living(const fl_wheel *w, struct refs *refs, uint32_t begin)
{
    uint32_t kept = 0;
    for (uint32_t i = begin; i < refs->length; i++)
        if (fl__wheel_find(w, refs->items[i].id))
            refs->items[kept++] = refs->items[i];
    refs->length = kept;
    fl__refs_shrink(refs);
}

static void compact_spoke_refs(fl_wheel *w, struct spoke *spoke)
{
    w->spoke_refs -= spoke->refs.length;
    keep_living(w, &spoke->refs, 0);
    w->spoke_refs += spoke->refs.length;
    spoke->refs_are_heap = 0;
}

void fl__index_compact(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++) {
        struct opening *opening = &w->levels[i].opening;
        for (uint32_t j = 0; j < w->spokes; j++)
            if (w->levels[i].spokes[j].refs.items)
                compact_spoke_refs(w, &w->levels[i].spokes[j]);
        if (opening->active) {
            keep_living(w, &opening->refs, opening->ref);
            opening->ref = 0;
        }
    }
    keep_living(w, &w->run, w->run_head);
    w->run_head = 0;
    keep_living(w, &w->late, 0);
    fl__heap_build(&w->late);
    fl__refs_release(&w->scratch);
}

static void clear_level_index(fl_wheel *w, struct level *level)
{
    for (uint32_t i = next_occupied(level, 0, w->spokes); i < w->spokes; i = next_occupied(level, i + 1, w->spokes)) {
        fl__refs_release(&level->spokes[i].refs);
        level->spokes[i].refs_are_heap = 0;
        fl__unmark(level, i);
    }
    if (level->opening.active)
        fl__end_opening(level);
}

void fl__index_clear(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++)
        clear_level_index(w, &w->levels[i]);
    w->run_head = w->run.length = w->late.length = 0;
    w->spoke_refs = 0;
    w->bound_ns = UINT64_MAX;
}
