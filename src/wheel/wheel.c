/* SPDX-License-Identifier: MIT */
/* The hierarchical hashed timing wheel.
 *
 * Three levels of spokes, each level with a coarser tick than the one before. A timer is placed by its distance from
 * now in the finest level that reaches so far, in the spoke of its tick (its deadline shifted, modulo the number of
 * spokes). There it stays, in one slot (see spoke.c), until it fires or is cancelled.
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
 * References are hints: a reference to a timer that is gone is passed over (its leaf tells), so cancelling need
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
 * in a coarser level. So coarser goes first, and within a level, where equal deadlines share a spoke, the one with the
 * lower ID was scheduled first. As the level is the ID's highest bits, this is the order of IDs with the level inverted.
 *
 * Bounds. A spoke's bound is a lower bound for what in it is not open; cancelling may leave it too low, never too
 * high. The wheel's bound_ns is the least of them. Poll takes from the front only what is due before bound_ns, and
 * otherwise opens the spoke the bound comes from. Where the exact earliest deadline is asked for, that one spoke's
 * bound is made exact first.
 *
 * Cancelling sets a bit in the header of the timer's leaf, nothing else. What follows from that (a leaf is sparse or empty,
 * the earliest timer has gone) is looked at once in many times, or when the bit says so.
 *
 * Costs: schedule and cancel O(1); poll O(what fires + what of the next ticks is opened); next deadline O(1), after
 * the earliest has gone O(leaves of one spoke + timers of one leaf). */

#include <string.h>

#include "base/alloc.h"
#include "wheel/index.h"

enum {
    DEFAULT_SPOKES = 1024,
    ALL_SPOKES = 1 << (2 + SPOKE_BITS),
};

static const uint64_t default_tick_ns[LEVELS] = {1ull << 20, 1ull << 30, 1ull << 36};

/* ---- Scheduling ------------------------------------------------------------------------------------------------ */

/* What a new timer, the last of its leaf, may bring with it. A late one, of an open tick, does not count for the spoke's
 * bound. */
static __attribute__((noinline)) int after_put(fl_wheel *w, struct leaf *leaf, uint64_t deadline_ns)
{
    fl_timer_id id = leaf->id + leaf->used - 1;
    struct level *level = &w->levels[id >> LEVEL_SHIFT];
    if (deadline_ns < leaf->min_ns)
        fl__leaf_set_min(leaf, fl__id_index(id), deadline_ns);
    if (!fl__is_open(level, deadline_ns))
        fl__mark(w, level, fl__spoke_of(level, deadline_ns), deadline_ns);
    if (w->next_known && deadline_ns < w->next_ns)
        fl__wheel_set_next(w, id, deadline_ns);
    return 0;
}

/* Appends a timer to the tail of its spoke, which has room.
 *
 * This and cancelling are kept short, and what is rare is out of line. Among millions of timers each of these calls waits
 * for memory, if only for the program's own, and the processor waits for as many of them at once as fit into its window
 * of a few hundred instructions. */
static inline __attribute__((always_inline)) int append(fl_wheel *w, const struct spoke *spoke, uint64_t deadline_ns,
                                                        void *data, fl_timer_id *ret_id)
{
    struct leaf *leaf = spoke->tail;
    uint32_t index = leaf->used++;
    struct slot *slot = &leaf->slots[index];
    /* What comes next; at the end of the block that is somebody else's, which does no harm. */
    __builtin_prefetch((const void *)((uintptr_t)slot + POOL_LINE_SIZE), 1);
    *slot = (struct slot){deadline_ns, data};
    *ret_id = leaf->id + index;
    w->count++;
    if (__builtin_expect(deadline_ns < leaf->min_ns, 0))
        return after_put(w, leaf, deadline_ns);
    if (__builtin_expect(~deadline_ns > spoke->inverse_bound, 0))
        return after_put(w, leaf, deadline_ns);
    return 0;
}

static __attribute__((noinline)) int put_in_new_room(fl_wheel *w, size_t home, uint64_t deadline_ns, void *data,
                                                     fl_timer_id *ret_id)
{
    uint32_t number = fl__spoke_of(&w->levels[home], deadline_ns);
    struct spoke *spoke = &w->levels[home].spokes[number];
    int r = fl__spoke_make_room(spoke, (unsigned)home, number, &w->store);
    return r < 0 ? r : append(w, spoke, deadline_ns, data, ret_id);
}

/* Puts a timer into its spoke of a level. */
static inline __attribute__((always_inline)) int put(fl_wheel *w, size_t home, uint64_t deadline_ns, void *data,
                                                     fl_timer_id *ret_id)
{
    const struct level *level = &w->levels[home];
    const struct spoke *spoke = &level->spokes[fl__spoke_of(level, deadline_ns)];
    if (__builtin_expect(!spoke->tail || spoke->tail->used == spoke->tail->capacity, 0))
        return put_in_new_room(w, home, deadline_ns, data, ret_id);
    return append(w, spoke, deadline_ns, data, ret_id);
}

/* Puts a timer that belongs to an open L0 tick into L0 and into the front. */
static int put_late(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    if (!fl__reserve_late(w))
        return FL_NO_MEMORY;
    int r = put(w, 0, deadline_ns, data, ret_id);
    if (r < 0)
        return r;
    fl__heap_push(&w->late, (struct ref){.deadline_ns = deadline_ns, .id = *ret_id, .data = data});
    w->attention_ns = fl__min(w->attention_ns, deadline_ns);
    return 0;
}

/* The tick is open at this level: the timer goes to a finer one. */
static __attribute__((noinline)) int place_finer(fl_wheel *w, size_t home, uint64_t deadline_ns, void *data,
                                                 fl_timer_id *ret_id)
{
    while (home-- > 0)
        if (!fl__is_open(&w->levels[home], deadline_ns))
            return put(w, home, deadline_ns, data, ret_id);
    return put_late(w, deadline_ns, data, ret_id);
}

/* Schedules a timer whose deadline has been found good. */
static inline __attribute__((always_inline)) int place(fl_wheel *w, uint64_t distance_ns, uint64_t deadline_ns,
                                                       void *data, fl_timer_id *ret_id)
{
    size_t home = (size_t)(distance_ns >= w->levels[0].coverage_ns) + (size_t)(distance_ns >= w->levels[1].coverage_ns);
    if (__builtin_expect(fl__is_open(&w->levels[home], deadline_ns), 0))
        return place_finer(w, home, deadline_ns, data, ret_id);
    return put(w, home, deadline_ns, data, ret_id);
}

/* What is wrong with a deadline; 0 if nothing is. */
static int check_deadline(const fl_wheel *w, uint64_t deadline_ns)
{
    uint64_t now_ns = fl__now(w);
    if (deadline_ns == UINT64_MAX)
        return FL_OVERFLOW;
    if (deadline_ns == 0 || deadline_ns < w->start_ns)
        return FL_INVALID_DEADLINE;
    if (deadline_ns >= now_ns)
        return deadline_ns - now_ns > fl_wheel_max_duration_ns(w) ? FL_DEADLINE_TOO_FAR : 0;
    return now_ns - deadline_ns > 1ull << w->levels[0].shift ? FL_INVALID_DEADLINE : 0;
}

static __attribute__((noinline)) int schedule_unusual(fl_wheel *w, uint64_t deadline_ns, void *data,
                                                      fl_timer_id *ret_id)
{
    int r = check_deadline(w, deadline_ns);
    if (r < 0)
        return r;
    uint64_t now_ns = fl__now(w), distance_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    return place(w, distance_ns, deadline_ns, data, ret_id ? ret_id : &w->unwanted_id);
}

int fl_wheel_schedule(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    uint64_t now_ns = fl__now(w), distance_ns = deadline_ns - now_ns;
    bool is_usual =
        deadline_ns > now_ns && distance_ns <= w->levels[LEVELS - 1].coverage_ns && deadline_ns < UINT64_MAX && ret_id;
    if (__builtin_expect(!is_usual, 0))
        return schedule_unusual(w, deadline_ns, data, ret_id);
    return place(w, distance_ns, deadline_ns, data, ret_id);
}

/* The deadline within reach that is nearest to the target. */
static int best_fit(const fl_wheel *w, uint64_t target_ns, uint64_t *ret_ns)
{
    uint64_t now_ns = fl__now(w), reach_ns = fl_wheel_max_duration_ns(w);
    if (target_ns == 0)
        return FL_INVALID_DEADLINE;
    if (target_ns == UINT64_MAX)
        return FL_OVERFLOW;
    uint64_t last_ns =
        now_ns < UINT64_MAX - 1 && reach_ns < UINT64_MAX - 1 - now_ns ? now_ns + reach_ns : UINT64_MAX - 1;
    *ret_ns = fl__min(target_ns < now_ns ? now_ns : target_ns, last_ns);
    return 0;
}

int fl_wheel_schedule_best_fit(fl_wheel *w, uint64_t target_ns, void *data, fl_timer_id *ret_id,
                               uint64_t *ret_wheel_deadline_ns)
{
    uint64_t now_ns = fl__now(w), deadline_ns;
    int r = best_fit(w, target_ns, &deadline_ns);
    if (r < 0)
        return r;
    uint64_t distance_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0; /* now may be UINT64_MAX */
    r = place(w, distance_ns, deadline_ns, data, ret_id ? ret_id : &w->unwanted_id);
    if (r == 0 && ret_wheel_deadline_ns)
        *ret_wheel_deadline_ns = deadline_ns;
    return r;
}

/* ---- Cancelling ------------------------------------------------------------------------------------------------ */

__attribute__((noinline)) int fl__wheel_why_not_found(const fl_wheel *w, fl_timer_id id)
{
    bool is_possible = id >> LEVEL_SHIFT < LEVELS && (id >> SLOT_BITS & ((1u << SPOKE_BITS) - 1)) < w->spokes &&
                       (id >> GENERATION_SHIFT & ((1u << GENERATION_BITS) - 1)) > 0;
    return is_possible ? FL_TIMER_NOT_FOUND : FL_INVALID_TIMER_ID;
}

/* What the end of a timer may bring with it: its leaf or the whole wheel has lost its earliest, or the leaf is sparse or
 * empty. */
static __attribute__((noinline)) int after_end(fl_wheel *w, struct leaf *leaf, uint32_t index)
{
    if (index == leaf->min_index) {
        leaf->min_is_bound = true;
        if (leaf->min_ns <= w->next_ns)
            w->next_known = false;
    }
    if (leaf->patience == 0) {
        fl__leaf_tidy(fl__wheel_spoke(w, leaf->id), leaf, &w->store);
        fl__index_sweep(w);
    }
    return 0;
}

static inline int end_timer(fl_wheel *w, struct leaf *leaf, uint32_t index)
{
    leaf->gone[index / 64] |= 1ull << index % 64;
    w->count--;
    if (__builtin_expect(--leaf->patience == 0, 0))
        return after_end(w, leaf, index);
    if (__builtin_expect(index == leaf->min_index, 0))
        return after_end(w, leaf, index);
    return 0;
}

static __attribute__((noinline)) int cancel_and_tell(fl_wheel *w, struct leaf *leaf, uint32_t index, void **ret_data)
{
    *ret_data = fl__leaf_slot(leaf, index)->data;
    return end_timer(w, leaf, index);
}

static __attribute__((noinline)) int cancel_hidden(fl_wheel *w, fl_timer_id id, void **ret_data)
{
    struct leaf *leaf = fl__wheel_find(w, id);
    if (!leaf)
        return fl__wheel_why_not_found(w, id);
    return cancel_and_tell(w, leaf, fl__id_index(id), ret_data ? ret_data : &w->unwanted_data);
}

int fl_wheel_cancel(fl_wheel *w, fl_timer_id id, void **ret_data)
{
    struct leaf *leaf = fl__wheel_find_at_once(w, id);
    if (__builtin_expect(!leaf, 0))
        return cancel_hidden(w, id, ret_data);
    if (ret_data)
        return cancel_and_tell(w, leaf, fl__id_index(id), ret_data);
    return end_timer(w, leaf, fl__id_index(id));
}

int fl_wheel_reschedule(fl_wheel *w, fl_timer_id id, uint64_t deadline_ns, fl_timer_id *ret_id)
{
    struct leaf *leaf = fl__wheel_find(w, id);
    if (__builtin_expect(!leaf, 0))
        return fl__wheel_why_not_found(w, id);
    int r = fl_wheel_schedule(w, deadline_ns, fl__leaf_slot(leaf, fl__id_index(id))->data, ret_id);
    return r < 0 ? r : end_timer(w, leaf, fl__id_index(id)); /* the leaf lives as long as a timer in it does */
}

int fl_wheel_reschedule_best_fit(fl_wheel *w, fl_timer_id id, uint64_t target_ns, fl_timer_id *ret_id,
                                 uint64_t *ret_wheel_deadline_ns)
{
    struct leaf *leaf = fl__wheel_find(w, id);
    if (!leaf)
        return fl__wheel_why_not_found(w, id);
    void *data = fl__leaf_slot(leaf, fl__id_index(id))->data;
    int r = fl_wheel_schedule_best_fit(w, target_ns, data, ret_id, ret_wheel_deadline_ns);
    return r < 0 ? r : end_timer(w, leaf, fl__id_index(id)); /* the leaf lives as long as a timer in it does */
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
    if (config->tick_ns[LEVELS - 1] - 1 > UINT64_MAX / config->spokes)
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

static int init_level(struct level *level, struct spoke *spokes, uint64_t tick_ns, const fl_wheel_config *config)
{
    level->spokes = spokes;
    level->occupied = fl__alloc_zeroed((config->spokes + 63) / 64 * sizeof *level->occupied);
    if (!level->occupied)
        return FL_NO_MEMORY;
    level->shift = (unsigned)__builtin_ctzll(tick_ns);
    level->mask = config->spokes - 1;
    level->coverage_ns = tick_ns > UINT64_MAX / config->spokes ? UINT64_MAX : tick_ns * config->spokes;
    level->open_end = config->start_ns >> level->shift;
    return 0;
}

/* Spokes are mapped, not allocated: those that are never used take no memory. */
static int init_levels(fl_wheel *w, const fl_wheel_config *config)
{
    w->all_spokes = fl__map(ALL_SPOKES * sizeof *w->all_spokes);
    int r = w->all_spokes ? 0 : FL_NO_MEMORY;
    for (int i = 0; i < LEVELS && r == 0; i++)
        r = init_level(&w->levels[i], w->all_spokes + ((size_t)i << SPOKE_BITS), config->tick_ns[i], config);
    return r;
}

static void free_all(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++)
        fl__release(w->levels[i].occupied);
    if (w->all_spokes)
        fl__unmap(w->all_spokes, ALL_SPOKES * sizeof *w->all_spokes);
    fl__release_lines(w);
}

int fl_wheel_new(const fl_wheel_config *config, fl_wheel **ret)
{
    fl_wheel_config complete = config ? *config : (fl_wheel_config){0};
    int r = complete_config(&complete);
    if (r < 0)
        return r;
    fl_wheel *w = fl__alloc_zeroed_lines(sizeof *w);
    if (!w)
        return FL_NO_MEMORY;
    r = init_levels(w, &complete);
    if (r < 0) {
        free_all(w);
        return r;
    }
    w->spokes = complete.spokes;
    atomic_init(&w->now_ns, complete.start_ns);
    w->start_ns = complete.start_ns;
    w->attention_ns = w->bound_ns = w->next_ns = UINT64_MAX;
    w->worker_id = complete.worker_id;
    w->coarse = complete.coarse;
    w->store.compaction.min_capacity = complete.compaction.min_capacity;
    w->store.compaction.ratio = complete.compaction.ratio;
    w->store.compaction.target_multiplier = complete.compaction.target_multiplier;
    w->store.slots.huge_pages = complete.huge_pages;
    *ret = w;
    return 0;
}

static void clear_level(fl_wheel *w, struct level *level)
{
    for (uint32_t i = 0; i < w->spokes; i++) {
        struct spoke *spoke = &level->spokes[i];
        if (spoke->leaf_count == 0 && !spoke->refs.items && spoke->inverse_bound == 0)
            continue; /* nothing is written to spokes that were never used: they would take memory */
        fl__spoke_reset(spoke, &w->store);
        fl__refs_release(&spoke->refs);
        spoke->refs_are_heap = 0;
        fl__spoke_set_bound(spoke, UINT64_MAX);
    }
    memset(level->occupied, 0, (w->spokes + 63) / 64 * sizeof *level->occupied);
    level->summary = 0;
    if (level->opening.active)
        fl__end_opening(level);
}

void fl_wheel_clear(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++)
        clear_level(w, &w->levels[i]);
    fl__refs_release(&w->run);
    fl__refs_release(&w->late);
    fl__refs_release(&w->scratch);
    fl__pool_trim(&w->store.slots);
    fl__pool_trim(&w->store.leaves.blocks);
    w->run_head = 0;
    w->spoke_refs = 0;
    w->count = 0;
    w->attention_ns = w->bound_ns = w->next_ns = UINT64_MAX;
    w->next_known = false;
}

void fl_wheel_free(fl_wheel *w)
{
    if (!w)
        return;
    fl_wheel_clear(w);
    free_all(w);
}

void fl_wheel_compact(fl_wheel *w)
{
    for (int i = 0; i < LEVELS; i++)
        for (uint32_t j = 0; j < w->spokes; j++)
            fl__spoke_compact(&w->levels[i].spokes[j], &w->store);
    fl__index_compact(w);
    fl__pool_trim(&w->store.slots);
    fl__pool_trim(&w->store.leaves.blocks);
}

/* ---- Questions ------------------------------------------------------------------------------------------------- */

uint64_t fl_wheel_count(const fl_wheel *w)
{
    return w->count;
}

uint64_t fl_wheel_now_ns(const fl_wheel *w)
{
    return fl__now(w);
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
    stats.bytes = w->spokes * sizeof *level->spokes + (w->spokes + 63) / 64 * sizeof *level->occupied +
                  level->opening.refs.capacity * sizeof *level->opening.refs.items;
    for (uint32_t i = 0; i < w->spokes; i++) {
        stats.active += fl__spoke_live(&level->spokes[i]);
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
    uint64_t refs = (uint64_t)w->run.capacity + w->late.capacity + w->scratch.capacity;
    ret->bytes = fl__lines_bytes(sizeof *w) + refs * sizeof(struct ref) + fl__pool_idle_bytes(&w->store.slots) +
                 fl__line_pool_idle_bytes(&w->store.leaves);
    for (int i = 0; i < LEVELS; i++) {
        ret->level[i] = level_stats(w, &w->levels[i]);
        ret->bytes += ret->level[i].bytes;
    }
    ret->allocated_bytes = ret->bytes + (ALL_SPOKES - LEVELS * w->spokes) * sizeof *w->all_spokes +
                           fl__pool_bare_bytes(&w->store.slots) + fl__pool_bare_bytes(&w->store.leaves.blocks);
}
