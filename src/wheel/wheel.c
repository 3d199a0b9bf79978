/* SPDX-License-Identifier: MIT */
/* The wheel with IDs: cells (see cells.c) whose nodes wait in rings (see rings.c).
 *
 * The rings order the timers. The levels and spokes of the wheel are in its IDs and in its statistics: a timer belongs to the
 * finest level that reaches as far as its deadline is away when it is scheduled, and to the spoke of its deadline there.
 * Each level has its own cells.
 *
 * An exact wheel has all timers in the same rings. A coarse wheel has rings for each level, because the timers of L1 and L2
 * become due when their tick has ended. Of timers with equal deadlines, those of the coarser level come first: time only
 * advances, so they were scheduled earlier. */

#include <string.h>

#include "base/alloc.h"
#include "wheel/wheel.h"

enum { DEFAULT_SPOKES = 1024, BATCH = 128 };

static const uint64_t default_tick_ns[LEVELS] = {1ull << 20, 1ull << 30, 1ull << 36};

static inline uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t now_of(const fl_wheel *w)
{
    return atomic_load_explicit(&w->now_ns, memory_order_relaxed);
}

/* ---- Scheduling ---- */

/* Schedules a timer whose deadline has been found good. */
static inline int place(fl_wheel *w, uint64_t now_ns, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    uint64_t distance_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    unsigned level = (unsigned)(distance_ns >= w->coverage_ns[0]) + (unsigned)(distance_ns >= w->coverage_ns[1]);
    struct cells *s = &w->cells[level];
    uint32_t number = fl__cells_take(s);
    if (__builtin_expect(number == NO_CELL, 0)) {
        int r = fl__cells_make_room(s);
        if (r < 0)
            return r;
        number = fl__cells_take(s);
    }
    const struct cell_chunk *chunk = fl__cells_chunk(s, number);
    struct cell *cell = fl__chunk_cell(chunk, number % CHUNK_CELLS);
    node_name name = level << NUMBER_BITS | number;
    if (__builtin_expect(!fl__rings_add(fl__wheel_level_rings(w, level), &cell->node, name, deadline_ns, true), 0)) {
        fl__cells_untake(s, number);
        return FL_NO_MEMORY;
    }
    cell->data = data;
    if (ret_id)
        *ret_id = fl__wheel_id(w, chunk, level, number);
    return 0;
}

/* What is wrong with a deadline; 0 if nothing is. */
static inline int check_deadline(const fl_wheel *w, uint64_t now_ns, uint64_t deadline_ns)
{
    if (__builtin_expect(deadline_ns > now_ns && deadline_ns < UINT64_MAX, 1))
        return deadline_ns - now_ns > w->coverage_ns[LEVELS - 1] ? FL_DEADLINE_TOO_FAR : 0;
    if (deadline_ns == UINT64_MAX)
        return FL_OVERFLOW;
    if (deadline_ns == 0 || deadline_ns < w->start_ns)
        return FL_INVALID_DEADLINE;
    return now_ns - deadline_ns > 1ull << w->tick_shift[0] ? FL_INVALID_DEADLINE : 0;
}

int fl_wheel_schedule(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id)
{
    uint64_t now_ns = now_of(w);
    int r = check_deadline(w, now_ns, deadline_ns);
    return r < 0 ? r : place(w, now_ns, deadline_ns, data, ret_id);
}

int fl_wheel_schedule_best_fit(fl_wheel *w, uint64_t target_ns, void *data, fl_timer_id *ret_id,
                               uint64_t *ret_wheel_deadline_ns)
{
    uint64_t now_ns = now_of(w), reach_ns = w->coverage_ns[LEVELS - 1], end_ns = UINT64_MAX - 1;
    if (target_ns == 0)
        return FL_INVALID_DEADLINE;
    if (target_ns == UINT64_MAX)
        return FL_OVERFLOW;
    uint64_t last_ns = now_ns < end_ns && reach_ns < end_ns - now_ns ? now_ns + reach_ns : end_ns;
    uint64_t deadline_ns = min_of(target_ns < now_ns ? now_ns : target_ns, last_ns);
    int r = place(w, now_ns, deadline_ns, data, ret_id);
    if (r == 0 && ret_wheel_deadline_ns)
        *ret_wheel_deadline_ns = deadline_ns;
    return r;
}

/* ---- Living timers ---- */

/* The chunk of the cell that has this timer; NULL: no timer has that ID. */
static inline struct cell_chunk *find(const fl_wheel *w, fl_timer_id id)
{
    unsigned level = (unsigned)(id >> ID_LEVEL_SHIFT);
    uint32_t number = id & NUMBER_MASK;
    if (__builtin_expect(level >= LEVELS || number >> CELL_BITS >= w->cells[level].count, 0))
        return NULL;
    struct cell_chunk *chunk = fl__cells_chunk(&w->cells[level], number);
    bool is_valid = chunk->valid >> number % CHUNK_CELLS & 1 && fl__wheel_id(w, chunk, level, number) == id;
    return __builtin_expect(is_valid, 1) ? chunk : NULL;
}

static inline struct cell *cell_of(const struct cell_chunk *chunk, fl_timer_id id)
{
    return fl__chunk_cell(chunk, id % CHUNK_CELLS);
}

/* What an ID is that no timer has. */
static __attribute__((noinline)) int why_not_found(const fl_wheel *w, fl_timer_id id)
{
    bool is_possible = id >> ID_LEVEL_SHIFT < LEVELS &&
                       (id >> ID_SPOKE_SHIFT & ((1u << ID_SPOKE_BITS) - 1)) < w->spokes &&
                       (id >> ID_GENERATION_SHIFT & (GENERATION_END - 1)) > 0;
    return is_possible ? FL_TIMER_NOT_FOUND : FL_INVALID_TIMER_ID;
}

/* Each poll gives one spare cell of each level back to its chunk, so that idle wheels keep none. */
static inline void return_spare(fl_wheel *w)
{
    for (unsigned i = 0; i < LEVELS; i++)
        if (__builtin_expect(w->cells[i].spares > 0, 0))
            fl__cells_return_spare(&w->cells[i]);
}

/* Takes the cancelled timers out of the rings. Each needs its cell and a word of its spoke, which come from memory side by
 * side. */
static __attribute__((noinline)) void finish_all(fl_wheel *w)
{
    for (unsigned i = 0; i < w->ending_count; i++) {
        uint32_t name = w->ending[i];
        fl__rings_prefetch(fl__wheel_level_rings(w, name >> NUMBER_BITS), &fl__named_cell(w->cells, name)->node);
    }
    for (unsigned i = 0; i < w->ending_count; i++) {
        uint32_t name = w->ending[i];
        struct cell *cell = fl__named_cell(w->cells, name);
        fl__rings_remove(fl__wheel_level_rings(w, name >> NUMBER_BITS), &cell->node);
        fl__cells_give(&w->cells[name >> NUMBER_BITS], name & NUMBER_MASK);
    }
    w->ending_count = 0;
}

/* Cancels a timer. The chunk tells at once that the ID has ended. The cell is elsewhere in memory: it is on its way to the
 * processor while other timers are cancelled, and then they are taken out of the rings together. */
static inline void end(fl_wheel *w, struct cell_chunk *chunk, fl_timer_id id)
{
    chunk->valid &= ~(1ull << id % CHUNK_CELLS);
    __builtin_prefetch(cell_of(chunk, id), 1);
    w->ending[w->ending_count++] = (uint32_t)(id >> ID_LEVEL_SHIFT << NUMBER_BITS | (id & NUMBER_MASK));
    if (__builtin_expect(w->ending_count == ENDING, 0))
        finish_all(w);
}

int fl_wheel_cancel(fl_wheel *w, fl_timer_id id, void **ret_data)
{
    struct cell_chunk *chunk = find(w, id);
    if (__builtin_expect(!chunk, 0))
        return why_not_found(w, id);
    if (ret_data)
        *ret_data = cell_of(chunk, id)->data;
    end(w, chunk, id);
    return 0;
}

/* The new timer comes first, so that a failure leaves the old one as it is. The array of chunks may move meanwhile. */
int fl_wheel_reschedule(fl_wheel *w, fl_timer_id id, uint64_t deadline_ns, fl_timer_id *ret_id)
{
    const struct cell_chunk *chunk = find(w, id);
    if (__builtin_expect(!chunk, 0))
        return why_not_found(w, id);
    int r = fl_wheel_schedule(w, deadline_ns, cell_of(chunk, id)->data, ret_id);
    if (r == 0)
        end(w, find(w, id), id);
    return r;
}

int fl_wheel_reschedule_best_fit(fl_wheel *w, fl_timer_id id, uint64_t target_ns, fl_timer_id *ret_id,
                                 uint64_t *ret_wheel_deadline_ns)
{
    const struct cell_chunk *chunk = find(w, id);
    if (!chunk)
        return why_not_found(w, id);
    int r = fl_wheel_schedule_best_fit(w, target_ns, cell_of(chunk, id)->data, ret_id, ret_wheel_deadline_ns);
    if (r == 0)
        end(w, find(w, id), id);
    return r;
}

int fl_wheel_deadline_ns(const fl_wheel *w, fl_timer_id id, uint64_t *ret_ns)
{
    const struct cell_chunk *chunk = find(w, id);
    if (!chunk)
        return why_not_found(w, id);
    *ret_ns = cell_of(chunk, id)->node.deadline_ns;
    return 0;
}

int fl_wheel_set_data(fl_wheel *w, fl_timer_id id, void *data, void **ret_old_data)
{
    const struct cell_chunk *chunk = find(w, id);
    if (!chunk)
        return why_not_found(w, id);
    if (ret_old_data)
        *ret_old_data = cell_of(chunk, id)->data;
    cell_of(chunk, id)->data = data;
    return 0;
}

static void tell(const fl_wheel *w, unsigned level, uint32_t number, fl_expired *ret)
{
    const struct cell_chunk *chunk = fl__cells_chunk(&w->cells[level], number);
    const struct cell *cell = fl__chunk_cell(chunk, number % CHUNK_CELLS);
    *ret = (fl_expired){fl__wheel_id(w, chunk, level, number), cell->node.deadline_ns, cell->data};
}

/* An ID tells its level and number, so it also tells which are next, even if its timer has been cancelled meanwhile. */
bool fl_wheel_next_timer(const fl_wheel *w, fl_expired *timer)
{
    uint32_t number = timer->id != 0 ? (uint32_t)(timer->id & NUMBER_MASK) + 1 : 0;
    for (unsigned level = (unsigned)(timer->id >> ID_LEVEL_SHIFT); level < LEVELS; level++, number = 0)
        if (fl__cells_next(&w->cells[level], number, &number)) {
            tell(w, level, number, timer);
            return true;
        }
    return false;
}

/* ---- Polling ---- */

static void expire(fl_wheel *w, node_name name, fl_expired *ret)
{
    unsigned level = (unsigned)(name >> NUMBER_BITS);
    uint32_t number = name & NUMBER_MASK;
    tell(w, level, number, ret);
    fl__cells_give(&w->cells[level], number);
}

static size_t take(fl_wheel *w, struct rings *r, uint64_t until_ns, fl_expired *out, size_t limit)
{
    node_name names[BATCH];
    size_t taken = 0, n = BATCH;
    while (n == BATCH && taken < limit) {
        n = fl__rings_take(r, until_ns, names, min_of(BATCH, limit - taken));
        for (size_t i = 0; i < n; i++) /* of some cells, the rings have not touched the second cache line */
            __builtin_prefetch(&fl__named_cell(w->cells, (uint32_t)names[i])->data);
        for (size_t i = 0; i < n; i++)
            expire(w, names[i], &out[taken++]);
    }
    if (r->may_rebase)
        fl__rings_rebase(r, now_of(w));
    return taken;
}

/* Of the timers in a level of a coarse wheel, those with deadlines before this moment are due. */
static uint64_t due_before_ns(const fl_wheel *w, unsigned level)
{
    uint64_t now_ns = now_of(w), shift = w->tick_shift[level];
    return level > 0 ? now_ns >> shift << shift : now_ns < UINT64_MAX ? now_ns + 1 : UINT64_MAX;
}

/* The level whose timer comes next in a coarse wheel; LEVELS: none is due. */
static unsigned first_due_level(fl_wheel *w)
{
    unsigned first = LEVELS;
    for (unsigned level = LEVELS; level-- > 0;) {
        struct rings *r = &w->rings[level];
        if (r->count == 0 || r->next_ns >= due_before_ns(w, level))
            continue;
        fl__rings_find_next(r);
        if (r->next_ns < due_before_ns(w, level) && (first == LEVELS || r->next_ns < w->rings[first].next_ns))
            first = level;
    }
    return first;
}

static __attribute__((noinline)) size_t poll_coarse(fl_wheel *w, fl_expired *out, size_t limit)
{
    size_t taken = 0;
    for (unsigned level; taken < limit && (level = first_due_level(w)) < LEVELS;)
        taken += take(w, &w->rings[level], w->rings[level].next_ns, &out[taken], 1);
    return taken;
}

size_t fl_wheel_poll(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit)
{
    uint64_t before_ns = now_of(w);
    assert(out || limit == 0);
    now_ns = now_ns > before_ns ? now_ns : before_ns;
    atomic_store_explicit(&w->now_ns, now_ns, memory_order_relaxed);
    if (w->ending_count > 0)
        finish_all(w);
    return_spare(w);
    if (__builtin_expect(w->coarse, 0))
        return poll_coarse(w, out, limit);
    return __builtin_expect(now_ns < w->rings[0].next_ns, 1) ? 0 : take(w, &w->rings[0], now_ns, out, limit);
}

bool fl_wheel_next_deadline(fl_wheel *w, uint64_t *ret_ns)
{
    uint64_t next_ns = UINT64_MAX; /* which is no deadline */
    finish_all(w);
    for (unsigned i = 0; i < fl__wheel_rings(w); i++)
        if (w->rings[i].count > 0) {
            fl__rings_find_next(&w->rings[i]);
            next_ns = min_of(next_ns, w->rings[i].next_ns);
        }
    if (next_ns == UINT64_MAX)
        return false;
    *ret_ns = next_ns;
    return true;
}

/* Polls need not prepare anything ahead of time, so a program may sleep until the next deadline. */
bool fl_wheel_next_poll(fl_wheel *w, uint64_t *ret_ns)
{
    return fl_wheel_next_deadline(w, ret_ns);
}

/* ---- Life ---- */

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

static int init_levels(fl_wheel *w, const fl_wheel_config *config)
{
    struct cells_config cells = {config->compaction.min_capacity, config->compaction.ratio,
                                 config->compaction.target_multiplier, config->huge_pages};
    int r = 0;
    for (unsigned i = 0; i < LEVELS; i++) {
        uint64_t tick_ns = config->tick_ns[i];
        w->tick_shift[i] = (uint8_t)__builtin_ctzll(tick_ns);
        w->coverage_ns[i] = tick_ns > UINT64_MAX / config->spokes ? UINT64_MAX : tick_ns * config->spokes;
        int failed = fl__cells_init(&w->cells[i], &cells);
        r = failed < 0 ? failed : r;
    }
    return r;
}

static void init_rings(fl_wheel *w)
{
    for (unsigned i = 0; i < fl__wheel_rings(w); i++) {
        w->rings[i] = (struct rings){.cells = w->cells};
        fl__rings_init(&w->rings[i], now_of(w));
    }
}

static size_t size_of(const fl_wheel *w)
{
    return sizeof *w + fl__wheel_rings(w) * sizeof w->rings[0];
}

int fl_wheel_new(const fl_wheel_config *config, fl_wheel **ret)
{
    fl_wheel_config complete = config ? *config : (fl_wheel_config){0};
    int r = complete_config(&complete);
    if (r < 0)
        return r;
    fl_wheel fixed = {.start_ns = complete.start_ns,
                      .coarse = complete.coarse,
                      .spokes = complete.spokes,
                      .worker_id = complete.worker_id};
    fl_wheel *w = fl__alloc_zeroed_lines(size_of(&fixed));
    if (!w)
        return FL_NO_MEMORY;
    memcpy(w, &fixed, sizeof fixed);
    atomic_init(&w->now_ns, complete.start_ns);
    r = init_levels(w, &complete);
    init_rings(w);
    if (r < 0) {
        fl_wheel_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void fl_wheel_clear(fl_wheel *w)
{
    finish_all(w);
    for (unsigned i = 0; i < LEVELS; i++)
        fl__cells_clear(&w->cells[i]);
    for (unsigned i = 0; i < fl__wheel_rings(w); i++)
        fl__rings_destroy(&w->rings[i]);
    init_rings(w);
}

void fl_wheel_free(fl_wheel *w)
{
    if (!w)
        return;
    fl_wheel_clear(w);
    for (unsigned i = 0; i < LEVELS; i++)
        fl__cells_destroy(&w->cells[i]);
    fl__release_lines(w);
}

void fl_wheel_compact(fl_wheel *w)
{
    if (fl_wheel_count(w) == 0) {
        fl_wheel_clear(w);
        return;
    }
    finish_all(w);
    for (unsigned i = 0; i < LEVELS; i++)
        fl__cells_compact(&w->cells[i]);
    for (unsigned i = 0; i < fl__wheel_rings(w); i++)
        fl__rings_compact(&w->rings[i]);
}

/* ---- Questions ---- */

uint64_t fl_wheel_count(const fl_wheel *w)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < fl__wheel_rings(w); i++)
        count += w->rings[i].count;
    return count - w->ending_count;
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
    return level < LEVELS ? w->coverage_ns[level] : 0;
}

uint64_t fl_wheel_max_duration_ns(const fl_wheel *w)
{
    return w->coverage_ns[LEVELS - 1];
}

static fl_wheel_level_stats level_stats(const fl_wheel *w, const struct cells *s)
{
    fl_wheel_level_stats stats = {
        .spokes = w->spokes, .slot_capacity = s->capacity, .active = fl__cells_valid(s), .bytes = s->bytes};
    if (stats.slot_capacity > 0)
        stats.utilisation = (double)stats.active / (double)stats.slot_capacity;
    return stats;
}

void fl_wheel_memory_stats(const fl_wheel *w, fl_wheel_stats *ret)
{
    *ret = (fl_wheel_stats){.bytes = fl__lines_bytes(size_of(w))};
    for (unsigned i = 0; i < LEVELS; i++) {
        ret->level[i] = level_stats(w, &w->cells[i]);
        ret->bytes += ret->level[i].bytes;
    }
    ret->allocated_bytes = 0;
    for (unsigned i = 0; i < fl__wheel_rings(w); i++) {
        ret->bytes += w->rings[i].bytes;
        ret->allocated_bytes += fl__rings_bare_bytes(&w->rings[i]);
    }
    ret->allocated_bytes += ret->bytes;
}
