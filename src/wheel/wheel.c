/* SPDX-License-Identifier: MIT */
/* The hierarchical hashed timing wheel.
 *
 * Three levels of spokes, each level with a coarser tick than the one before. A timer is placed by its distance from
 * now in the finest level that reaches so far, in the spoke of its tick (its deadline shifted, modulo the number of
 * spokes). There it stays, in one slot (see spoke.c), until it fires or is cancelled: both free the slot at once and
 * leave no garbage behind.
 *
 * Opening. To fire on time, a coarse tick has to be sorted into finer ones before its time comes. The timers do not
 * move for that. They are indexed: each gets a reference of 24 bytes in the finer level's spoke of its deadline. A
 * tick is "open" from the moment this begins, and what belongs to an open tick but comes later goes to the next finer
 * level. An open L0 tick is in the front: its references sorted into one run, with a heap beside it for what comes
 * even later.
 *
 *     L2 spokes ──open──> L1 spokes ──open──> L0 spokes ──load──> front ──> poll
 *     timers              timers, refs        timers, refs        refs
 *
 * Everything that is open was opened in the order of time, so a level needs only one number, open_end, to tell what is.
 * References are hints: a reference to a timer that is gone is passed over (its generation tells), so cancelling need
 * not know where they are. Where memory for references runs out, poll still finds what is due by looking at all timers.
 *
 * Working ahead. A tick of L1 is opened leaf by leaf over the polls of the tick before it, and L2 likewise: no poll
 * has to sort a whole coarse spoke at once. The longest poll is proportional to what fires in it.
 *
 * A spoke may hold several ticks that are a whole turn apart: the wheel was not polled for long, or the poller's limit
 * held it back, or ticks are further apart than the spokes reach. Nothing depends on there being only one: whoever
 * visits a spoke takes the timers of the tick it wants and leaves the rest.
 *
 * Order. Equal deadlines must come out as they were scheduled. Time only advances, so of two timers with the same
 * deadline the later one is as near or nearer when it is scheduled, and the openings are as far or further: it is never
 * in a coarser level. So coarser goes first, and within a level, where equal deadlines share a spoke, the spoke's
 * sequence numbers decide. That pair is a reference's rank.
 *
 * Bounds. A spoke's min_ns is a lower bound for what in it is not open; cancelling may leave it too low, never too
 * high. The wheel's bound_ns is the least of them. Poll takes from the front only what is due before bound_ns, and
 * otherwise opens the spoke the bound comes from. Where the exact earliest deadline is asked for, that one spoke's
 * bound is made exact first.
 *
 * Costs: schedule and cancel O(1); poll O(what fires + what of the next ticks is opened); next deadline O(1), after
 * the earliest has gone O(leaves of one spoke + timers of one leaf). */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "wheel/wheel_private.h"

enum {
    DEFAULT_SPOKES = 1024,
    REFS_A_STEP = LEAF_SLOTS, /* references opened at a time */
    PREFETCH_AHEAD = 8,       /* timers, while firing */
    FRONT_KEEP = 4096,        /* references the front keeps memory for when it is empty */
    PACK_A_POLL = 4,          /* sparse leaves */
    NEARLY_EMPTY = 16,        /* times sparser than sparse */
    UNINDEXED_BATCH = 32,     /* timers found in one look at all of them, when there is no memory */
};

static const uint64_t default_tick_ns[LEVELS] = {1ull << 20, 1ull << 30, 1ull << 36};

static uint64_t now_of(const fl_wheel *w)
{
    return atomic_load_explicit(&w->now_ns, memory_order_relaxed);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When a poll has to come for the sake of this deadline: at it or, in a coarse level, when its tick should be opened
 * ahead of its time. */
static uint64_t attention_for(const fl_wheel *w, const struct level *level, uint64_t deadline_ns)
{
    uint64_t tick = fl__tick(level, deadline_ns);
    return level > w->levels && tick > 0 ? (tick - 1) << level->shift : deadline_ns;
}

/* Whether cancelling has left a leaf with much more memory than it needs. */
static inline bool is_sparse(const fl_wheel *w, const struct leaf *leaf)
{
    if (leaf->is_packed)
        return leaf->live * (uint64_t)w->compaction.target_multiplier < leaf->capacity;
    return leaf->live * (uint64_t)w->compaction.ratio < leaf->used && leaf->used >= w->compaction.min_capacity;
}

/* ---- The index ------------------------------------------------------------------------------------------------ */

/* A spoke has become occupied, or by something earlier. */
static __attribute__((noinline)) void lower_bound(fl_wheel *w, struct level *level, uint32_t spoke_number,
                                                  uint64_t deadline_ns)
{
    level->spokes[spoke_number].min_ns = deadline_ns;
    level->occupied[spoke_number / 64] |= 1ull << spoke_number % 64;
    w->bound_ns = min_u64(w->bound_ns, deadline_ns);
    w->attention_ns = min_u64(w->attention_ns, attention_for(w, level, deadline_ns));
    w->next_ns = min_u64(w->next_ns, deadline_ns); /* see next_known */
}

/* Notes that the spoke holds something due at deadline_ns, of a tick that is not open. */
static inline void mark(fl_wheel *w, struct level *level, uint32_t spoke_number, uint64_t deadline_ns)
{
    if (deadline_ns < level->spokes[spoke_number].min_ns)
        lower_bound(w, level, spoke_number, deadline_ns);
}

static void unmark(struct level *level, uint32_t spoke_number)
{
    level->spokes[spoke_number].min_ns = UINT64_MAX;
    level->occupied[spoke_number / 64] &= ~(1ull << spoke_number % 64);
}

static inline uint32_t spoke_of(const fl_wheel *w, const struct level *level, uint64_t deadline_ns)
{
    return (uint32_t)fl__tick(level, deadline_ns) & (w->spokes - 1);
}

static struct ref make_ref(unsigned level, uint32_t spoke_number, uint32_t number, const struct slot *slot)
{
    return (struct ref){
        .deadline_ns = slot->deadline_ns,
        .rank = (uint64_t)(LEVELS - 1 - level) << SEQUENCE_BITS | fl__sequence(slot),
        .id = fl__make_id(level, fl__generation(slot), spoke_number, number),
    };
}

/* Makes room for one more in the late heap. The dead are thrown out before it grows: timers of the present tick that
 * come and go without the clock moving must not fill the memory. */
static bool reserve_late(fl_wheel *w)
{
    struct refs *late = &w->late;
    if (late->length < late->capacity)
        return true;
    uint32_t living = 0;
    for (uint32_t i = 0; i < late->length; i++)
        if (fl__wheel_lives(w, late->items[i].id))
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
        if (!reserve_late(w))
            return FL_NO_MEMORY;
        fl__heap_push(&w->late, ref);
        return 0;
    }
    struct level *level = &w->levels[level_number];
    uint32_t spoke_number = spoke_of(w, level, ref.deadline_ns);
    struct spoke *spoke = &level->spokes[spoke_number];
    if (!fl__refs_reserve(&spoke->refs, 1))
        return FL_NO_MEMORY;
    if (spoke->refs_are_heap)
        fl__heap_push(&spoke->refs, ref);
    else
        spoke->refs.items[spoke->refs.length++] = ref;
    mark(w, level, spoke_number, ref.deadline_ns);
    return 0;
}

/* ---- Finding what comes next ---------------------------------------------------------------------------------- */

/* The first occupied spoke at or after `from`, once around; w->spokes if there is none. */
static uint32_t next_occupied(const fl_wheel *w, const struct level *level, uint32_t from, uint32_t steps)
{
    uint32_t end = from + steps;
    while (from < end) {
        uint32_t at = from & (w->spokes - 1), bit = at % 64;
        uint64_t word = level->occupied[at / 64] >> bit;
        if (word != 0) {
            uint32_t found = from + (uint32_t)__builtin_ctzll(word);
            return found < end ? found : end;
        }
        from += w->spokes < 64 ? w->spokes - at : 64 - bit;
    }
    return end;
}

/* The spoke with the least bound in a level; false if nothing is waiting there. Spokes come in the order of time, so
 * the first one whose bound is in its own turn is the least; only those a whole turn ahead need be compared. */
static bool level_next(const fl_wheel *w, const struct level *level, uint32_t *ret_spoke)
{
    uint32_t from = (uint32_t)level->open_end & (w->spokes - 1), end = from + w->spokes, best = end;
    uint64_t best_ns = UINT64_MAX;
    for (uint32_t at = next_occupied(w, level, from, w->spokes); at < end;
         at = next_occupied(w, level, at + 1, end - at - 1)) {
        uint32_t spoke_number = at & (w->spokes - 1);
        uint64_t min_ns = level->spokes[spoke_number].min_ns;
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

struct candidate {
    uint64_t bound_ns;
    struct level *level; /* NULL: nothing is waiting */
    uint32_t spoke;
    bool opening; /* it is the rest of the level's opening */
};

static uint64_t next_tick_ns(const struct level *level, uint64_t now_ns)
{
    uint64_t last_ns = now_ns | ((1ull << level->shift) - 1);
    return last_ns < UINT64_MAX ? last_ns + 1 : UINT64_MAX;
}

static void consider(struct candidate *best, uint64_t bound_ns, struct level *level, uint32_t spoke, bool opening)
{
    if (bound_ns < best->bound_ns)
        *best = (struct candidate){bound_ns, level, spoke, opening};
}

/* The spoke in which the earliest of what is not in the front may be. The coarser level comes first if they are equal.
 * For firing, a coarse wheel's L1 and L2 count by the end of their ticks. */
static struct candidate earliest_candidate(fl_wheel *w, bool for_firing)
{
    struct candidate best = {.bound_ns = UINT64_MAX};
    for (int i = LEVELS - 1; i >= 0; i--) {
        struct level *level = &w->levels[i];
        uint32_t spoke;
        if (level->opening.active)
            consider(&best, level->opening.min_ns, level, 0, true);
        if (level_next(w, level, &spoke)) {
            uint64_t min_ns = level->spokes[spoke].min_ns;
            bool at_end = for_firing && w->coarse && i > 0;
            consider(&best, at_end ? next_tick_ns(level, min_ns) : min_ns, level, spoke, false);
        }
    }
    return best;
}

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Hands the timers of `tick` in a leaf to `deliver`, and notes those of later turns. */
static inline int visit_leaf(fl_wheel *w, struct level *level, uint32_t spoke_number, uint32_t leaf_index,
                             uint64_t tick, int (*deliver)(fl_wheel *, int, struct ref))
{
    struct spoke *spoke = &level->spokes[spoke_number];
    const struct leaf *leaf = &spoke->leaves[leaf_index];
    int level_number = (int)(level - w->levels);
    for (uint32_t i = 0; i < fl__leaf_size(leaf); i++) {
        uint32_t index;
        const struct slot *slot = fl__leaf_at(leaf, i, &index);
        if (slot->deadline_ns == 0)
            continue;
        if (fl__tick(level, slot->deadline_ns) == tick) {
            uint32_t number = fl__slot_number(spoke, leaf, index);
            int r = deliver(w, level_number, make_ref((unsigned)level_number, spoke_number, number, slot));
            if (r < 0)
                return r;
        } else if (!fl__is_open(level, slot->deadline_ns)) {
            mark(w, level, spoke_number, slot->deadline_ns);
        }
    }
    return 0;
}

static void begin_opening(struct level *level, uint32_t spoke_number)
{
    struct spoke *spoke = &level->spokes[spoke_number];
    uint64_t tick = fl__tick(level, spoke->min_ns);
    assert(!level->opening.active && tick >= level->open_end);
    level->opening = (struct opening){.active = true, .tick = tick, .min_ns = spoke->min_ns, .refs = spoke->refs};
    level->open_end = tick + 1;
    spoke->refs = (struct refs){0};
    spoke->refs_are_heap = 0;
    unmark(level, spoke_number);
}

static void end_opening(struct level *level)
{
    fl__refs_release(&level->opening.refs);
    level->opening.active = false;
}

/* One step: a leaf, or some references. A step that fails for lack of memory is repeated later; what it had already
 * indexed is then indexed twice, which does no harm. */
static int step_opening(fl_wheel *w, struct level *level)
{
    struct opening *opening = &level->opening;
    uint32_t spoke_number = (uint32_t)opening->tick & (w->spokes - 1);
    if (opening->leaf < level->spokes[spoke_number].leaf_count) {
        int r = visit_leaf(w, level, spoke_number, opening->leaf, opening->tick, index_ref);
        opening->leaf += r == 0;
        return r;
    }
    for (int i = 0; i < REFS_A_STEP && opening->ref < opening->refs.length; i++) {
        int r = index_ref(w, (int)(level - w->levels), opening->refs.items[opening->ref]);
        if (r < 0)
            return r;
        opening->ref++;
    }
    if (opening->ref == opening->refs.length)
        end_opening(level);
    return 0;
}

static int finish_opening(fl_wheel *w, struct level *level)
{
    int r = 0;
    while (r == 0 && level->opening.active)
        r = step_opening(w, level);
    return r;
}

/* How many steps of the opening should be done by now, if it is to be complete at three quarters of the tick before. */
static uint64_t steps_due(const struct level *level, uint64_t steps, uint64_t now_ns)
{
    if (fl__tick(level, now_ns) >= level->opening.tick)
        return steps;
    uint64_t elapsed_ns = now_ns & ((1ull << level->shift) - 1);
    uint64_t thousandths = level->shift > 10 ? elapsed_ns >> (level->shift - 10) : elapsed_ns << (10 - level->shift);
    return min_u64(steps, steps * (thousandths + 1) / 768 + 1);
}

/* Opens a part of the tick that comes after the present one. */
static void work_ahead(fl_wheel *w, struct level *level, uint64_t now_ns)
{
    struct opening *opening = &level->opening;
    if (!opening->active) {
        uint32_t spoke_number;
        if (!level_next(w, level, &spoke_number) ||
            fl__tick(level, level->spokes[spoke_number].min_ns) > fl__tick(level, now_ns) + 1)
            return;
        begin_opening(level, spoke_number);
    }
    const struct spoke *spoke = &level->spokes[opening->tick & (w->spokes - 1)];
    uint64_t ref_steps = (opening->refs.length + REFS_A_STEP - 1) / REFS_A_STEP;
    uint64_t due = steps_due(level, spoke->leaf_count + ref_steps + 1, now_ns);
    while (opening->active && opening->leaf + opening->ref / REFS_A_STEP < due)
        if (step_opening(w, level) < 0)
            return;
}

/* ---- The front ------------------------------------------------------------------------------------------------- */

static int append_to_run(fl_wheel *w, int level_number, struct ref ref)
{
    (void)level_number;
    w->run.items[w->run.length++] = ref;
    return 0;
}

/* Room for `most` more references in the run, for sorting them and, if need be, for moving them into the heap. */
static bool reserve_front(fl_wheel *w, uint64_t most)
{
    bool run_is_empty = w->run_head == w->run.length;
    if (run_is_empty)
        w->run_head = w->run.length = 0;
    return fl__refs_reserve(&w->run, most) && fl__refs_reserve(&w->scratch, most) &&
           (run_is_empty || fl__refs_reserve(&w->late, most));
}

/* Sorts what was appended to the run. Should it not follow the rest of the run, it joins the heap instead. */
static void settle_run(fl_wheel *w, uint32_t begin)
{
    struct ref *added = w->run.items + begin;
    uint32_t count = w->run.length - begin;
    fl__refs_sort(added, count, w->scratch.items);
    if (count == 0 || begin == 0 || !fl__ref_before(&added[0], &added[-1]))
        return;
    for (uint32_t i = 0; i < count; i++)
        fl__heap_push(&w->late, added[i]);
    w->run.length = begin;
}

/* Loads the earliest tick of a spoke into the front: any tick of L0, and in a coarse wheel those of all levels. */
static int load(fl_wheel *w, struct level *level, uint32_t spoke_number)
{
    struct spoke *spoke = &level->spokes[spoke_number];
    uint64_t tick = fl__tick(level, spoke->min_ns);
    if (!reserve_front(w, (uint64_t)spoke->live + spoke->refs.length))
        return FL_NO_MEMORY;
    uint32_t begin = w->run.length, kept = 0;
    level->open_end = tick + 1;
    unmark(level, spoke_number);
    for (uint32_t i = 0; i < spoke->leaf_count; i++)
        visit_leaf(w, level, spoke_number, i, tick, append_to_run);
    for (uint32_t i = 0; i < spoke->refs.length; i++) {
        struct ref ref = spoke->refs.items[i];
        if (fl__tick(level, ref.deadline_ns) == tick) {
            append_to_run(w, 0, ref);
        } else {
            spoke->refs.items[kept++] = ref;
            mark(w, level, spoke_number, ref.deadline_ns);
        }
    }
    spoke->refs.length = kept;
    spoke->refs_are_heap = 0;
    if (kept == 0)
        fl__refs_release(&spoke->refs);
    settle_run(w, begin);
    return 0;
}

/* Opens or loads what bounds the front, if that is due. */
static int advance(fl_wheel *w, uint64_t now_ns)
{
    struct candidate next = earliest_candidate(w, true);
    int r = 0;
    if (next.bound_ns <= now_ns) {
        if (next.level == &w->levels[0]) {
            r = load(w, next.level, next.spoke);
        } else {
            if (!next.opening)
                begin_opening(next.level, next.spoke);
            r = finish_opening(w, next.level);
        }
        next = earliest_candidate(w, true);
    }
    w->bound_ns = next.bound_ns;
    return r;
}

static inline void prefetch_timer(const fl_wheel *w, fl_timer_id id)
{
    const struct leaf *leaf = fl__wheel_leaf(w, id);
    if (leaf)
        __builtin_prefetch(&leaf->slots[id & (LEAF_SLOTS - 1)], 1);
}

/* The earliest reference of the front, or NULL. */
static const struct ref *front_first(const fl_wheel *w)
{
    const struct ref *run = w->run_head < w->run.length ? &w->run.items[w->run_head] : NULL;
    const struct ref *late = w->late.length > 0 ? &w->late.items[0] : NULL;
    return !run || (late && fl__ref_before(late, run)) ? late : run;
}

static void front_pop(fl_wheel *w, const struct ref *first)
{
    if (w->late.length > 0 && first == &w->late.items[0]) {
        fl__heap_pop(&w->late);
        return;
    }
    w->run_head++;
    if (w->run_head == w->run.length)
        w->run_head = w->run.length = 0;
}

/* A burst must not hold its memory for ever. */
static void trim_front(fl_wheel *w)
{
    if (w->run.length == 0 && w->run.capacity > FRONT_KEEP) {
        fl__refs_release(&w->run);
        fl__refs_release(&w->scratch);
    }
    if (w->late.length == 0 && w->late.capacity > FRONT_KEEP)
        fl__refs_release(&w->late);
}

/* Fires one timer: hands it out and frees its slot. */
static void fire(fl_wheel *w, fl_timer_id id, struct spoke *spoke, struct leaf *leaf, struct slot *slot,
                 fl_expired *out)
{
    *out = (fl_expired){.id = id, .deadline_ns = slot->deadline_ns, .data = slot->data};
    fl__spoke_take(spoke, &w->pool, leaf, slot, id & (LEAF_SLOTS - 1));
    w->count--;
}

/* Fires what is in the front, due, and before anything that is not in the front. */
static size_t fire_front(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    size_t fired = 0;
    uint64_t last_ns = w->bound_ns > now_ns ? now_ns : w->bound_ns - 1;
    while (fired < limit) {
        const struct ref *first = front_first(w);
        if (!first || first->deadline_ns > last_ns)
            break;
        if (w->run_head + PREFETCH_AHEAD < w->run.length)
            prefetch_timer(w, w->run.items[w->run_head + PREFETCH_AHEAD].id);
        fl_timer_id id = first->id;
        front_pop(w, first);
        struct spoke *spoke;
        struct leaf *leaf;
        struct slot *slot = fl__wheel_find(w, id, &spoke, &leaf);
        if (slot)
            fire(w, id, spoke, leaf, slot, &out[fired++]);
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
            keep_earliest(earliest, make_ref(level, spoke_number, fl__slot_number(spoke, leaf, index), slot));
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
static size_t fire_unindexed(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    size_t fired = 0;
    while (fired < limit) {
        struct earliest earliest = {.limit = min_u64(UNINDEXED_BATCH, limit - fired)};
        look_at_all(w, now_ns, &earliest);
        for (size_t i = 0; i < earliest.count; i++) {
            struct spoke *spoke;
            struct leaf *leaf;
            struct slot *slot = fl__wheel_find(w, earliest.refs[i].id, &spoke, &leaf);
            fire(w, earliest.refs[i].id, spoke, leaf, slot, &out[fired++]);
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
        while (level_next(w, level, &spoke) && fl__tick(level, level->spokes[spoke].min_ns) < fl__tick(level, now_ns)) {
            int r = load(w, level, spoke);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* Packs some of the leaves that cancelling has left sparse. */
static void pack_some(fl_wheel *w)
{
    for (int i = 0; i < PACK_A_POLL && w->sparse.length > 0; i++) {
        struct leaf *leaf = fl__wheel_leaf(w, w->sparse.items[--w->sparse.length].id);
        if (!leaf || !leaf->is_sparse)
            continue;
        leaf->is_sparse = 0;
        if (is_sparse(w, leaf) && leaf->live > 0)
            fl__leaf_pack(leaf, &w->pool);
    }
    if (w->sparse.length == 0)
        fl__refs_release(&w->sparse);
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
    const struct ref *first = front_first(w);
    uint64_t attention_ns = min_u64(w->bound_ns, first ? first->deadline_ns : UINT64_MAX);
    if (w->sparse.length > 0 || fl__pool_has_excess(&w->pool))
        attention_ns = now_ns;
    if (w->count > 0 && !w->coarse) {
        bool opening = w->levels[1].opening.active || w->levels[2].opening.active;
        attention_ns = min_u64(attention_ns, next_tick_ns(&w->levels[opening ? 0 : 1], now_ns));
    }
    w->attention_ns = attention_ns;
}

static size_t poll_due(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    size_t fired = 0;
    int r = w->coarse ? load_ended_ticks(w, now_ns) : 0;
    while (r == 0) {
        fired += fire_front(w, now_ns, out + fired, limit - fired);
        if (fired == limit || w->bound_ns > now_ns)
            break;
        r = advance(w, now_ns);
    }
    if (r < 0)
        fired += fire_unindexed(w, now_ns, out + fired, limit - fired);
    else if (w->bound_ns > now_ns)
        catch_up(w, now_ns);
    /* Whatever was opened may have brought references of timers that are gone, and with them bounds below the earliest
     * deadline. Then a new timer's bound does not tell whether it is the earliest. */
    w->next_known = false;
    if (!w->coarse) {
        work_ahead(w, &w->levels[2], now_ns);
        work_ahead(w, &w->levels[1], now_ns);
    }
    pack_some(w);
    trim_front(w);
    fl__pool_trim_some(&w->pool);
    set_attention(w, now_ns);
    return fired;
}

size_t fl_wheel_poll(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    uint64_t before_ns = now_of(w);
    now_ns = now_ns > before_ns ? now_ns : before_ns;
    atomic_store_explicit(&w->now_ns, now_ns, memory_order_relaxed);
    /* No deadline is UINT64_MAX: as a bound it says that there is none. */
    return now_ns < w->attention_ns ? 0 : poll_due(w, min_u64(now_ns, UINT64_MAX - 1), out, limit);
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
    uint64_t min_ns = min_u64(fl__spoke_min_ns(spoke), refs->length > 0 ? refs->items[0].deadline_ns : UINT64_MAX);
    assert(min_ns >= candidate->bound_ns);
    spoke->min_ns = min_ns;
    if (min_ns == UINT64_MAX)
        unmark(candidate->level, candidate->spoke);
    return min_ns == candidate->bound_ns;
}

static uint64_t find_next_ns(fl_wheel *w)
{
    const struct ref *first;
    while ((first = front_first(w)) && !fl__wheel_lives(w, first->id))
        front_pop(w, first);
    uint64_t front_ns = first ? first->deadline_ns : UINT64_MAX;
    for (;;) {
        struct candidate next = earliest_candidate(w, false);
        w->bound_ns = next.bound_ns;
        if (front_ns <= next.bound_ns)
            return front_ns;
        if (!next.opening) {
            if (refine(w, &next))
                return next.bound_ns;
        } else if (finish_opening(w, next.level) < 0) {
            struct earliest earliest = {.limit = 1};
            look_at_all(w, UINT64_MAX, &earliest);
            w->next_known = false; /* the bounds are as loose as before: an earlier timer might not lower any of them */
            return earliest.refs[0].deadline_ns;
        }
    }
}

bool fl_wheel_next_deadline(fl_wheel *w, uint64_t *ret_ns)
{
    if (w->count == 0)
        return false;
    if (!w->next_known) {
        w->next_known = true;
        w->next_ns = find_next_ns(w);
    }
    *ret_ns = w->next_ns;
    return true;
}

/* ---- Scheduling ------------------------------------------------------------------------------------------------ */

/* Schedules a timer that belongs to an open L0 tick: it lives in L0 and is indexed in the front. */
static __attribute__((noinline)) int place_late(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    if (!reserve_late(w))
        return FL_NO_MEMORY;
    struct level *level = &w->levels[0];
    uint32_t spoke_number = spoke_of(w, level, deadline_ns), number;
    struct slot *slot;
    int r = fl__spoke_put(&level->spokes[spoke_number], &w->pool, deadline_ns, data, &number, &slot);
    if (r < 0)
        return r;
    struct ref ref = make_ref(0, spoke_number, number, slot);
    fl__heap_push(&w->late, ref);
    w->count++;
    w->attention_ns = min_u64(w->attention_ns, deadline_ns);
    w->next_ns = min_u64(w->next_ns, deadline_ns);
    if (ret_id)
        *ret_id = ref.id;
    return 0;
}

/* Schedules a timer whose deadline has been found good. */
static inline int place(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    uint64_t now_ns = now_of(w), distance_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    unsigned home = (distance_ns >= w->levels[0].coverage_ns) + (distance_ns >= w->levels[1].coverage_ns);
    while (fl__is_open(&w->levels[home], deadline_ns))
        if (home-- == 0)
            return place_late(w, deadline_ns, data, ret_id);

    struct level *level = &w->levels[home];
    uint32_t spoke_number = spoke_of(w, level, deadline_ns), number;
    struct slot *slot;
    int r = fl__spoke_put(&level->spokes[spoke_number], &w->pool, deadline_ns, data, &number, &slot);
    if (r < 0)
        return r;
    mark(w, level, spoke_number, deadline_ns);
    w->count++;
    if (ret_id)
        *ret_id = fl__make_id(home, fl__generation(slot), spoke_number, number);
    return 0;
}

/* What is wrong with a deadline that is not between now and as far as the wheel reaches; 0 if it is just past. */
static __attribute__((noinline)) int check_deadline(const fl_wheel *w, uint64_t deadline_ns)
{
    uint64_t now_ns = now_of(w);
    if (deadline_ns == UINT64_MAX)
        return FL_OVERFLOW;
    if (deadline_ns == 0 || deadline_ns < w->start_ns)
        return FL_INVALID_DEADLINE;
    if (deadline_ns > now_ns)
        return FL_DEADLINE_TOO_FAR;
    return now_ns - deadline_ns > 1ull << w->levels[0].shift ? FL_INVALID_DEADLINE : 0;
}

int fl_wheel_schedule(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    uint64_t now_ns = now_of(w);
    bool ordinary = deadline_ns >= now_ns && deadline_ns - now_ns <= fl_wheel_max_duration_ns(w) &&
                    deadline_ns - 1 < UINT64_MAX - 1;
    int r = ordinary ? 0 : check_deadline(w, deadline_ns);
    return r < 0 ? r : place(w, deadline_ns, data, ret_id);
}

int fl_wheel_schedule_best_fit(fl_wheel *w, uint64_t target_ns, void *data, fl_timer_id *ret_id,
                               uint64_t *ret_wheel_deadline_ns)
{
    uint64_t now_ns = now_of(w), reach_ns = fl_wheel_max_duration_ns(w);
    if (target_ns == 0)
        return FL_INVALID_DEADLINE;
    if (target_ns == UINT64_MAX)
        return FL_OVERFLOW;
    uint64_t last_ns = now_ns < UINT64_MAX - 1 - reach_ns ? now_ns + reach_ns : UINT64_MAX - 1;
    uint64_t deadline_ns = min_u64(target_ns < now_ns ? now_ns : target_ns, last_ns);
    int r = place(w, deadline_ns, data, ret_id);
    if (r == 0 && ret_wheel_deadline_ns)
        *ret_wheel_deadline_ns = deadline_ns;
    return r;
}

/* ---- Cancelling ------------------------------------------------------------------------------------------------ */

/* Whether a timer of this wheel can have that ID at all. */
static inline bool is_possible(const fl_wheel *w, fl_timer_id id)
{
    return id >> 62 < LEVELS && (id >> SLOT_BITS & ((1u << SPOKE_BITS) - 1)) < w->spokes;
}

static int why_not_found(const fl_wheel *w, fl_timer_id id)
{
    bool has_generation = (id >> (SPOKE_BITS + SLOT_BITS) & (GENERATION_END - 1)) > 0;
    return is_possible(w, id) && has_generation ? FL_TIMER_NOT_FOUND : FL_INVALID_TIMER_ID;
}

/* Sparse leaves wait in a queue for the next polls to pack them: most become empty before, and are freed whole. One
 * with next to nothing left is packed at once, and so is a packed one that has shrunk. */
static void note_sparse(fl_wheel *w, fl_timer_id id, struct leaf *leaf)
{
    if (leaf->is_packed || leaf->live * (uint64_t)w->compaction.ratio * NEARLY_EMPTY < leaf->used) {
        fl__leaf_pack(leaf, &w->pool);
    } else if (!leaf->is_sparse && fl__refs_reserve(&w->sparse, 1)) {
        w->sparse.items[w->sparse.length++] = (struct ref){.id = id};
        leaf->is_sparse = 1;
        w->attention_ns = 0;
    }
}

static inline void remove_timer(fl_wheel *w, fl_timer_id id, struct spoke *spoke, struct leaf *leaf, struct slot *slot)
{
    if (slot->deadline_ns == w->next_ns)
        w->next_known = false;
    w->count--;
    if (fl__spoke_take(spoke, &w->pool, leaf, slot, id & (LEAF_SLOTS - 1)) && is_sparse(w, leaf))
        note_sparse(w, id, leaf);
}

int fl_wheel_cancel(fl_wheel *w, fl_timer_id id, void **ret_data)
{
    struct spoke *spoke;
    struct leaf *leaf;
    struct slot *slot = is_possible(w, id) ? fl__wheel_find(w, id, &spoke, &leaf) : NULL;
    if (!slot)
        return why_not_found(w, id);
    if (ret_data)
        *ret_data = slot->data;
    remove_timer(w, id, spoke, leaf, slot);
    return 0;
}

int fl_wheel_reschedule(fl_wheel *w, fl_timer_id id, uint64_t deadline_ns, fl_timer_id *ret_id)
{
    struct spoke *spoke;
    struct leaf *leaf;
    struct slot *slot = is_possible(w, id) ? fl__wheel_find(w, id, &spoke, &leaf) : NULL;
    if (!slot)
        return why_not_found(w, id);
    int r = fl_wheel_schedule(w, deadline_ns, slot->data, ret_id);
    if (r < 0)
        return r;
    slot = fl__wheel_find(w, id, &spoke, &leaf); /* the new timer may have moved its leaf */
    remove_timer(w, id, spoke, leaf, slot);
    return 0;
}

/* ---- Life ------------------------------------------------------------------------------------------------------ */

static bool is_power_of_two(uint64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Fills in the defaults; 0 or what is wrong with the result. */
static int complete_config(fl_wheel_config *config)
{
    if (config->spokes == 0)
        config->spokes = DEFAULT_SPOKES;
    if (!is_power_of_two(config->spokes) || config->spokes > FL_WHEEL_MAX_SPOKES)
        return FL_INVALID_ARGUMENT;
    for (int i = 0; i < LEVELS; i++) {
        if (config->tick_ns[i] == 0)
            config->tick_ns[i] = default_tick_ns[i];
        if (!is_power_of_two(config->tick_ns[i]) || (i > 0 && config->tick_ns[i] <= config->tick_ns[i - 1]))
            return FL_INVALID_ARGUMENT;
    }
    if (config->tick_ns[LEVELS - 1] > UINT64_MAX / config->spokes)
        return FL_OVERFLOW;
    if (config->compaction.min_capacity == 0)
        config->compaction.min_capacity = 64;
    if (config->compaction.ratio == 0)
        config->compaction.ratio = 4;
    if (config->compaction.target_multiplier == 0)
        config->compaction.target_multiplier = 2;
    if (config->compaction.ratio < config->compaction.target_multiplier)
        return FL_INVALID_ARGUMENT;
    return 0;
}

/* The spokes are aligned to cache lines, one each. */
static struct spoke *new_spokes(uint32_t count)
{
    return fl__alloc_zeroed_lines(count * sizeof(struct spoke));
}

static int init_level(struct level *level, uint64_t tick_ns, const fl_wheel_config *config)
{
    level->spokes = new_spokes(config->spokes);
    level->occupied = fl__alloc_zeroed((config->spokes + 63) / 64 * sizeof *level->occupied);
    if (!level->spokes || !level->occupied)
        return FL_NO_MEMORY;
    level->shift = (unsigned)__builtin_ctzll(tick_ns);
    level->coverage_ns = tick_ns * config->spokes;
    level->open_end = config->start_ns >> level->shift;
    for (uint32_t i = 0; i < config->spokes; i++)
        level->spokes[i].min_ns = UINT64_MAX;
    return 0;
}

int fl_wheel_new(const fl_wheel_config *config, fl_wheel **ret)
{
    fl_wheel_config complete = config ? *config : (fl_wheel_config){0};
    int r = complete_config(&complete);
    if (r < 0)
        return r;
    fl_wheel *w = fl__alloc_zeroed(sizeof *w);
    if (!w)
        return FL_NO_MEMORY;
    for (int i = 0; i < LEVELS && r == 0; i++)
        r = init_level(&w->levels[i], complete.tick_ns[i], &complete);
    if (r < 0) {
        fl_wheel_free(w);
        return r;
    }
    atomic_init(&w->now_ns, complete.start_ns);
    w->start_ns = complete.start_ns;
    w->attention_ns = w->bound_ns = w->next_ns = UINT64_MAX;
    w->spokes = complete.spokes;
    w->worker_id = complete.worker_id;
    w->coarse = complete.coarse;
    w->compaction = (struct compaction){complete.compaction.min_capacity, complete.compaction.ratio,
                                        complete.compaction.target_multiplier};
    w->pool.huge_pages = complete.huge_pages;
    *ret = w;
    return 0;
}

static void clear_level(fl_wheel *w, struct level *level)
{
    for (uint32_t i = 0; i < w->spokes; i++) {
        fl__spoke_reset(&level->spokes[i], &w->pool);
        fl__refs_release(&level->spokes[i].refs);
        level->spokes[i].refs_are_heap = 0;
        level->spokes[i].min_ns = UINT64_MAX;
    }
    memset(level->occupied, 0, (w->spokes + 63) / 64 * sizeof *level->occupied);
    if (level->opening.active)
        end_opening(level);
}

void fl_wheel_clear(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++)
        clear_level(w, &w->levels[i]);
    fl__refs_release(&w->run);
    fl__refs_release(&w->late);
    fl__refs_release(&w->scratch);
    fl__refs_release(&w->sparse);
    fl__pool_trim(&w->pool);
    w->run_head = 0;
    w->count = 0;
    w->attention_ns = w->bound_ns = w->next_ns = UINT64_MAX;
    w->next_known = false;
}

void fl_wheel_free(fl_wheel *w)
{
    if (!w)
        return;
    if (w->spokes > 0)
        fl_wheel_clear(w);
    for (int i = 0; i < LEVELS; i++) {
        fl__release_lines(w->levels[i].spokes);
        fl__release(w->levels[i].occupied);
    }
    fl__release(w);
}

void fl_wheel_compact(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++)
        for (uint32_t j = 0; j < w->spokes; j++) {
            struct spoke *spoke = &w->levels[i].spokes[j];
            fl__spoke_compact(spoke, &w->pool);
            if (spoke->refs.length == 0)
                fl__refs_release(&spoke->refs);
        }
    if (w->late.length == 0)
        fl__refs_release(&w->late);
    if (w->run.length == 0)
        fl__refs_release(&w->run);
    fl__refs_release(&w->scratch);
    fl__pool_trim(&w->pool);
}

/* ---- Questions ------------------------------------------------------------------------------------------------- */

uint64_t fl_wheel_count(const fl_wheel *w)
{
    return w->count;
}

uint64_t fl_wheel_now_ns(const fl_wheel *w)
{
    return now_of(w);
}

uint64_t fl_wheel_start_ns(const fl_wheel *w)
{
    return w->start_ns;
}

uint32_t fl_wheel_worker_id(const fl_wheel *w)
{
    return w->worker_id;
}

uint64_t fl_wheel_coverage_ns(const fl_wheel *w, unsigned level)
{
    return level < LEVELS ? w->levels[level].coverage_ns : 0;
}

uint64_t fl_wheel_max_duration_ns(const fl_wheel *w)
{
    return w->levels[LEVELS - 1].coverage_ns;
}

static fl_wheel_level_stats level_stats(const fl_wheel *w, const struct level *level)
{
    fl_wheel_level_stats stats = {.spokes = w->spokes};
    stats.bytes = fl__lines_bytes(w->spokes * sizeof *level->spokes) + (w->spokes + 63) / 64 * sizeof *level->occupied +
                  level->opening.refs.capacity * sizeof *level->opening.refs.items;
    for (uint32_t i = 0; i < w->spokes; i++) {
        stats.active += level->spokes[i].live;
        stats.slot_capacity += fl__spoke_capacity(&level->spokes[i]);
        stats.bytes += fl__spoke_bytes(&level->spokes[i]);
    }
    if (stats.slot_capacity > 0)
        stats.utilisation = (double)stats.active / (double)stats.slot_capacity;
    return stats;
}

void fl_wheel_memory_stats(const fl_wheel *w, fl_wheel_stats *ret)
{
    *ret = (fl_wheel_stats){0};
    uint64_t refs = (uint64_t)w->run.capacity + w->late.capacity + w->scratch.capacity + w->sparse.capacity;
    ret->bytes = sizeof *w + refs * sizeof(struct ref) + fl__pool_idle_bytes(&w->pool);
    for (int i = 0; i < LEVELS; i++) {
        ret->level[i] = level_stats(w, &w->levels[i]);
        ret->bytes += ret->level[i].bytes;
    }
}
