/* SPDX-License-Identifier: MIT */
/* What a legal wheel is.
 *
 * One function walks everything: timers, leaves, spokes, levels, the front. It also gathers all references, to see that
 * each living timer of an open tick has one where poll will look. It uses malloc() itself, not the library's allocator:
 * tests call it while that allocator fails. */

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "wheel/wheel_private.h"

struct check {
    const fl_wheel *w;
    FILE *explain;
    bool broken;
    fl_timer_id *indexed; /* the IDs of all references, sorted */
    size_t indexed_count, indexed_room;
    bool index_unknown; /* there is no memory to gather it: nothing is said about it then */
    uint64_t timers;
    uint64_t min_ns;
};

__attribute__((format(printf, 3, 4))) static void expect(struct check *check, bool holds, const char *format, ...)
{
    if (holds)
        return;
    check->broken = true;
    if (!check->explain)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(check->explain, format, args);
    va_end(args);
    fputc('\n', check->explain);
}

/* ---- References ------------------------------------------------------------------------------------------------ */

static void gather(struct check *check, const struct refs *refs, uint32_t begin)
{
    for (uint32_t i = begin; i < refs->length; i++) {
        if (check->indexed_count == check->indexed_room) {
            check->indexed_room = check->indexed_room * 2 + 64;
            fl_timer_id *indexed = realloc(check->indexed, check->indexed_room * sizeof *indexed);
            if (!indexed) {
                check->index_unknown = true;
                return;
            }
            check->indexed = indexed;
        }
        check->indexed[check->indexed_count++] = refs->items[i].id;
    }
}

static int compare_ids(const void *a, const void *b)
{
    fl_timer_id left = *(const fl_timer_id *)a, right = *(const fl_timer_id *)b;
    return (left > right) - (left < right);
}

static bool is_indexed(const struct check *check, fl_timer_id id)
{
    if (check->index_unknown || check->indexed_count == 0)
        return check->index_unknown;
    return bsearch(&id, check->indexed, check->indexed_count, sizeof id, compare_ids) != NULL;
}

static void check_heap(struct check *check, const struct refs *refs, const char *what)
{
    for (uint32_t i = 1; i < refs->length; i++)
        expect(check, !fl__ref_before(&refs->items[i], &refs->items[(i - 1) / 2]), "%s: item %u is before its parent",
               what, i);
}

static void check_spoke_refs(struct check *check, int level_number, uint32_t spoke_number)
{
    const struct level *level = &check->w->levels[level_number];
    const struct spoke *spoke = &level->spokes[spoke_number];
    for (uint32_t i = 0; i < spoke->refs.length; i++) {
        const struct ref *ref = &spoke->refs.items[i];
        expect(check, fl__spoke_of(level, ref->deadline_ns) == spoke_number,
               "L%d spoke %u: reference %u belongs to another spoke", level_number, spoke_number, i);
        expect(check, !fl__is_open(level, ref->deadline_ns), "L%d spoke %u: reference %u is of an open tick",
               level_number, spoke_number, i);
        expect(check, fl__is_occupied(level, spoke_number) && fl__spoke_bound_ns(spoke) <= ref->deadline_ns,
               "L%d spoke %u: reference %u is before the spoke's bound", level_number, spoke_number, i);
    }
    if (spoke->refs_are_heap)
        check_heap(check, &spoke->refs, "a spoke's references");
    gather(check, &spoke->refs, 0);
}

static void check_front(struct check *check)
{
    const fl_wheel *w = check->w;
    expect(check, w->run_head <= w->run.length, "the run's head is past its end");
    for (uint32_t i = w->run_head + 1; i < w->run.length; i++)
        expect(check, !fl__ref_before(&w->run.items[i], &w->run.items[i - 1]), "the run is not sorted at %u", i);
    check_heap(check, &w->late, "the late heap");
    gather(check, &w->run, w->run_head);
    gather(check, &w->late, 0);
}

static void check_references(struct check *check)
{
    uint64_t in_spokes = 0;
    check_front(check);
    for (int i = 0; i < LEVELS; i++) {
        const struct opening *opening = &check->w->levels[i].opening;
        for (uint32_t j = 0; j < check->w->spokes; j++) {
            check_spoke_refs(check, i, j);
            in_spokes += check->w->levels[i].spokes[j].refs.length;
        }
        if (opening->active)
            gather(check, &opening->refs, opening->ref);
    }
    expect(check, in_spokes == check->w->spoke_refs, "the wheel counts %" PRIu64 " references and has %" PRIu64,
           check->w->spoke_refs, in_spokes);
    if (check->indexed_count > 0)
        qsort(check->indexed, check->indexed_count, sizeof *check->indexed, compare_ids);
}

/* ---- Timers ---------------------------------------------------------------------------------------------------- */

/* Whether an opening of the timer's spoke has yet to come to its leaf. Until then the opening's bound is the timer's too,
 * whether its tick is the one being opened or one that is whole turns later. */
static bool opening_will_come(const struct check *check, const struct level *level, const struct leaf *leaf,
                              uint64_t deadline_ns)
{
    const struct opening *opening = &level->opening;
    uint64_t turns = fl__tick(level, deadline_ns) - opening->tick, serial = fl__leaf_serial(leaf);
    return opening->active && (turns & (check->w->spokes - 1)) == 0 && serial >= opening->leaf &&
           serial < opening->leaf_end && opening->min_ns <= deadline_ns;
}

static void check_timer(struct check *check, int level_number, uint32_t spoke_number, const struct leaf *leaf,
                        uint32_t index)
{
    const struct level *level = &check->w->levels[level_number];
    const struct spoke *spoke = &level->spokes[spoke_number];
    uint64_t deadline_ns = fl__leaf_slot(leaf, index)->deadline_ns;
    fl_timer_id id = leaf->id + index;
    expect(check, fl__spoke_of(level, deadline_ns) == spoke_number, "timer %016" PRIx64 " is in the wrong spoke", id);
    expect(check, fl__wheel_find(check->w, id) == leaf, "timer %016" PRIx64 " is not found by its ID", id);
    if (!fl__is_open(level, deadline_ns)) {
        expect(check,
               (fl__is_occupied(level, spoke_number) && fl__spoke_bound_ns(spoke) <= deadline_ns) ||
                   opening_will_come(check, level, leaf, deadline_ns),
               "timer %016" PRIx64 " is before its spoke's bound", id);
        expect(check, check->w->coarse || check->w->bound_ns <= deadline_ns,
               "timer %016" PRIx64 " is before the wheel's bound", id);
    } else {
        expect(check, is_indexed(check, id) || opening_will_come(check, level, leaf, deadline_ns),
               "timer %016" PRIx64 " of an open tick is lost", id);
    }
    check->timers++;
    check->min_ns = fl__min(check->min_ns, deadline_ns);
}

static void check_leaf(struct check *check, int level_number, uint32_t spoke_number, const struct leaf *leaf)
{
    uint32_t live = fl__leaf_live(leaf);
    uint64_t min_ns = UINT64_MAX;
    for (uint32_t i = fl__leaf_next(leaf, 0); i < LEAF_SLOTS; i = fl__leaf_next(leaf, i + 1)) {
        min_ns = fl__min(min_ns, fl__leaf_slot(leaf, i)->deadline_ns);
        check_timer(check, level_number, spoke_number, leaf, i);
    }
    const struct spoke *spoke = &check->w->levels[level_number].spokes[spoke_number];
    uint64_t serial = fl__leaf_serial(leaf);
    expect(check, leaf->id == fl__leaf_id((unsigned)level_number, spoke_number, serial),
           "a leaf is in the wrong spoke");
    expect(check, serial < fl__spoke_next_serial(spoke), "a leaf has a serial number that was not given out");
    const struct leaf *in_its_place = spoke->leaves[serial & spoke->mask];
    expect(check, in_its_place->id >= leaf->id || !fl__is_leaf(in_its_place), "a leaf made way for an older one");
    expect(check, leaf->used <= leaf->capacity && leaf->capacity <= LEAF_SLOTS, "a leaf is larger than it can be");
    expect(check, live > 0 || leaf == spoke->tail, "a leaf is empty and was not freed");
    uint32_t most = live > 0 ? live : 1;
    if (leaf == spoke->tail && leaf->capacity <= KEPT_CAPACITY)
        most = leaf->capacity + 1u;
    expect(check, leaf->patience > 0 && leaf->patience <= most, "a leaf of %u timers has patience %u", live,
           leaf->patience);
    expect(check, leaf->min_is_bound ? leaf->min_ns <= min_ns : leaf->min_ns == min_ns,
           "a leaf's earliest deadline is wrong");
    expect(check, leaf->min_is_bound || live == 0 || fl__leaf_slot(leaf, leaf->min_index)->deadline_ns == min_ns,
           "a leaf's earliest timer is wrong");
}

static void check_summary(struct check *check, int level_number)
{
    const struct level *level = &check->w->levels[level_number];
    for (uint32_t i = 0; i <= level->mask / 64; i++)
        expect(check, (level->summary >> i & 1) == (level->occupied[i] != 0), "L%d: its summary is wrong at %u",
               level_number, i);
}

static void check_spoke(struct check *check, int level_number, uint32_t spoke_number)
{
    const struct spoke *spoke = &check->w->levels[level_number].spokes[spoke_number];
    uint32_t leaves = 0;
    struct leaf *leaf;
    for (uint64_t at = 0; (leaf = fl__spoke_next_leaf(spoke, &at)); leaves++)
        check_leaf(check, level_number, spoke_number, leaf);
    expect(check, leaves == spoke->leaf_count, "L%d spoke %u counts %u leaves and has %u", level_number, spoke_number,
           spoke->leaf_count, leaves);
    expect(check, !spoke->tail || fl__leaf_serial(spoke->tail) == fl__spoke_next_serial(spoke) - 1,
           "L%d spoke %u: its tail is not the newest leaf", level_number, spoke_number);
}

int fl_wheel_check(const fl_wheel *w, FILE *explain)
{
    struct check check = {.w = w, .explain = explain, .min_ns = UINT64_MAX};
    check_references(&check);
    for (int i = 0; i < LEVELS; i++) {
        check_summary(&check, i);
        for (uint32_t j = 0; j < w->spokes; j++)
            check_spoke(&check, i, j);
    }
    expect(&check, check.timers == w->count, "the wheel counts %" PRIu64 " timers and has %" PRIu64, w->count,
           check.timers);
    expect(&check, !w->next_known || w->count == 0 || w->next_ns == check.min_ns,
           "the next deadline is taken for %" PRIu64 " and is %" PRIu64, w->next_ns, check.min_ns);
    free(check.indexed);
    return check.broken ? FL_INVALID_ARGUMENT : 0;
}
