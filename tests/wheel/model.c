/* SPDX-License-Identifier: MIT */
/* The wheel's model: see model.h.
 *
 * What the model demands, from foliot/wheel.h:
 *
 *   - A poll brings, of all timers with deadline <= now, the first `limit` in order. In a coarse wheel a timer of L1 or
 *     L2 may come from its deadline on and must come once the tick of its level that contains the deadline has ended;
 *     the timers that come are in order, and none that must come is overtaken because of the limit.
 *   - An ID is new each time. A dead timer's ID is FL_TIMER_NOT_FOUND. An ID that never was is an error, and
 *     FL_INVALID_TIMER_ID if its level or spoke does not exist.
 *   - A call that fails has changed nothing; that includes its out-parameters.
 */

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wheel/allocator.h"
#include "wheel/model.h"
#include "wheel/wheel_test.h"

#define UNTOUCHED UINT64_C(0x5555aaaa5555aaaa)

char model_context[128];

static void trace(const struct twin *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static _Noreturn void deviates(const struct twin *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void trace(const struct twin *t, const char *format, ...)
{
    if (!t->trace)
        return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%6" PRIu64 "  ", t->operations);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static _Noreturn void deviates(const struct twin *t, const char *format, ...)
{
    const fl_wheel_config *c = &t->config;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "the wheel deviates from its model in operation %" PRIu64 " (%s): ", t->operations, model_context);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr,
            "\n  wheel: ticks %" PRIu64 " %" PRIu64 " %" PRIu64 ", %u spokes, start %" PRIu64
            "%s, compaction %u %u %u; now %" PRIu64 ", %zu timers, %" PRIu64 " allocations failed\n",
            c->tick_ns[0], c->tick_ns[1], c->tick_ns[2], c->spokes, c->start_ns, c->coarse ? ", coarse" : "",
            c->compaction.min_capacity, c->compaction.ratio, c->compaction.target_multiplier, t->now_ns, t->count,
            memory.failed);
    abort();
}

/* ---- The sorted array. */

const struct model_timer *twin_timer(const struct twin *t, size_t rank)
{
    return &t->timers[t->head + rank];
}

/* The number of timers before (deadline, order). */
static size_t rank_of(const struct twin *t, uint64_t deadline_ns, uint64_t order)
{
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct model_timer *timer = twin_timer(t, middle);
        if (timer->deadline_ns < deadline_ns || (timer->deadline_ns == deadline_ns && timer->order < order))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void *grow(void *array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return array;
    *capacity = needed < 64 ? 64 : needed * 2;
    array = realloc(array, *capacity * size);
    if (!array)
        abort();
    return array;
}

static void close_gap_in_front(struct twin *t)
{
    memmove(t->timers, t->timers + t->head, t->count * sizeof(*t->timers));
    t->head = 0;
}

static void insert(struct twin *t, struct model_timer timer)
{
    if (t->head > t->count)
        close_gap_in_front(t);
    t->timers = grow(t->timers, &t->capacity, t->head + t->count + 1, sizeof(*t->timers));
    struct model_timer *place = t->timers + t->head + rank_of(t, timer.deadline_ns, timer.order);
    memmove(place + 1, place, (size_t)(t->timers + t->head + t->count - place) * sizeof(timer));
    *place = timer;
    t->count++;
}

static void take_out(struct twin *t, size_t rank)
{
    if (rank == 0) {
        t->head++;
    } else {
        struct model_timer *place = t->timers + t->head + rank;
        memmove(place, place + 1, (t->count - rank - 1) * sizeof(*place));
    }
    t->count--;
}

/* ---- The IDs there ever were. */

static struct known_id *place_of(const struct twin *t, fl_timer_id id)
{
    uint64_t state = id;
    size_t mask = t->known_capacity - 1, i = random_next(&state) & mask;
    while (t->known[i].id != 0 && t->known[i].id != id)
        i = (i + 1) & mask;
    return &t->known[i];
}

static struct known_id *lookup(const struct twin *t, fl_timer_id id)
{
    if (t->known_capacity == 0)
        return NULL;
    struct known_id *known = place_of(t, id);
    return known->id == id && id != 0 ? known : NULL;
}

static void enlarge_known(struct twin *t)
{
    struct known_id *old = t->known;
    size_t old_capacity = t->known_capacity;
    t->known_capacity = old_capacity ? old_capacity * 2 : 256;
    t->known = calloc(t->known_capacity, sizeof(*t->known));
    if (!t->known)
        abort();
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].id != 0)
            *place_of(t, old[i].id) = old[i];
    free(old);
}

static void learn(struct twin *t, const struct model_timer *timer)
{
    if (timer->id == 0)
        deviates(t, "a timer got the ID 0");
    if (lookup(t, timer->id))
        deviates(t, "the ID %#" PRIx64 " was given out twice", timer->id);
    if (t->known_count * 2 >= t->known_capacity)
        enlarge_known(t);
    *place_of(t, timer->id) = (struct known_id){timer->id, timer->deadline_ns, timer->order, true};
    t->known_count++;
}

static void bury(struct twin *t, fl_timer_id id)
{
    lookup(t, id)->lives = false;
    t->dead = grow(t->dead, &t->dead_capacity, t->dead_count + 1, sizeof(*t->dead));
    t->dead[t->dead_count++] = id;
}

/* The rank of the living timer `id`, or SIZE_MAX. */
static size_t rank_of_id(const struct twin *t, fl_timer_id id)
{
    const struct known_id *known = lookup(t, id);
    return known && known->lives ? rank_of(t, known->deadline_ns, known->order) : SIZE_MAX;
}

/* ---- Checks. */

static void check_stats(struct twin *t)
{
    fl_wheel_stats stats;
    uint64_t active = 0, bytes = 0;
    fl_wheel_memory_stats(t->wheel, &stats);
    for (int i = 0; i < FL_WHEEL_LEVELS; i++) {
        const fl_wheel_level_stats *level = &stats.level[i];
        double utilisation = level->slot_capacity ? (double)level->active / (double)level->slot_capacity : 0;
        if (level->spokes != t->config.spokes)
            deviates(t, "level %d has %" PRIu64 " spokes", i, level->spokes);
        if (level->active > level->slot_capacity)
            deviates(t, "level %d: %" PRIu64 " timers in %" PRIu64 " slots", i, level->active, level->slot_capacity);
        if (level->utilisation < utilisation - 1e-9 || level->utilisation > utilisation + 1e-9)
            deviates(t, "level %d: utilisation %f instead of %f", i, level->utilisation, utilisation);
        active += level->active;
        bytes += level->bytes;
    }
    if (active != t->count)
        deviates(t, "the statistics tell of %" PRIu64 " timers", active);
    if (bytes > stats.bytes)
        deviates(t, "the levels have %" PRIu64 " bytes, the wheel %" PRIu64, bytes, stats.bytes);
    if (stats.bytes > memory.bytes || stats.bytes < memory.bytes - memory.mapped)
        deviates(t, "the statistics tell of %" PRIu64 " bytes, it holds %" PRIu64 ", %" PRIu64 " of them mapped",
                 stats.bytes, memory.bytes, memory.mapped);
    if (stats.allocated_bytes != memory.bytes)
        deviates(t, "the statistics tell of %" PRIu64 " bytes allocated instead of %" PRIu64, stats.allocated_bytes,
                 memory.bytes);
}

void twin_check(struct twin *t)
{
    int r = fl_wheel_check(t->wheel, stderr);
    if (r != 0)
        deviates(t, "fl_wheel_check: %s", fl_errname(r));
    check_stats(t);
    t->unchecked = 0;
}

void twin_check_now_and_then(struct twin *t)
{
    uint64_t cost = (t->count + 3ull * t->config.spokes) / 128;
    if (t->unchecked > cost)
        twin_check(t);
}

/* After each operation: what is cheap to compare, and every so often, or when memory ran out, all there is. */
static void settle(struct twin *t, uint64_t failed_before)
{
    if (fl_wheel_count(t->wheel) != t->count)
        deviates(t, "the wheel counts %" PRIu64 " timers", fl_wheel_count(t->wheel));
    if (fl_wheel_now_ns(t->wheel) != t->now_ns)
        deviates(t, "the wheel's now is %" PRIu64, fl_wheel_now_ns(t->wheel));
    t->operations++;
    t->unchecked++;
    if (t->in_burst)
        return;
    if (memory.failed != failed_before || !t->lazy_checks)
        twin_check(t);
    else
        twin_check_now_and_then(t);
}

/* Is `r` what was expected, or a lack of memory that we brought about? */
static bool short_of_memory(const struct twin *t, int r, int expected, uint64_t failed_before, const char *what)
{
    if (r == FL_NO_MEMORY && memory.failed != failed_before)
        return true;
    if (r != expected)
        deviates(t, "%s is %s instead of %s", what, fl_errname(r), fl_errname(expected));
    return false;
}

/* ---- The operations. */

static void fill_in(fl_wheel_config *c)
{
    static const uint64_t tick_ns[] = {TICK0, TICK1, TICK2};
    for (int i = 0; i < FL_WHEEL_LEVELS; i++)
        if (c->tick_ns[i] == 0)
            c->tick_ns[i] = tick_ns[i];
    if (c->spokes == 0)
        c->spokes = 1024;
    if (c->compaction.min_capacity == 0)
        c->compaction.min_capacity = 64;
    if (c->compaction.ratio == 0)
        c->compaction.ratio = 4;
    if (c->compaction.target_multiplier == 0)
        c->compaction.target_multiplier = 2;
}

int twin_new(struct twin *t, const fl_wheel_config *config)
{
    if (!memory.installed)
        memory_install();
    *t = (struct twin){0};
    if (config)
        t->config = *config;
    fill_in(&t->config);
    t->now_ns = t->config.start_ns;
    uint64_t failed = memory.failed;
    fl_wheel *const untouched = (fl_wheel *)(uintptr_t)UNTOUCHED;
    t->wheel = untouched;
    int r = fl_wheel_new(config, &t->wheel);
    trace(t, "new: %s", fl_errname(r));
    if (short_of_memory(t, r, 0, failed, "new")) {
        if (t->wheel != untouched || memory.blocks != 0)
            deviates(t, "a wheel that could not be made left something behind");
        memory_remove();
        return r;
    }
    t->timers = grow(t->timers, &t->capacity, 1, sizeof(*t->timers));
    settle(t, failed);
    return 0;
}

void twin_free(struct twin *t)
{
    fl_wheel_free(t->wheel);
    if (memory.blocks != 0)
        deviates(t, "%" PRIu64 " bytes were not given back", memory.bytes);
    memory_remove();
    free(t->timers);
    free(t->known);
    free(t->dead);
    free(t->out);
    *t = (struct twin){0};
}

static uint64_t reach_ns(const struct twin *t)
{
    uint64_t reach_ns;
    return __builtin_mul_overflow(t->config.tick_ns[2], t->config.spokes, &reach_ns) ? UINT64_MAX : reach_ns;
}

static int expected_of_schedule(const struct twin *t, uint64_t deadline_ns)
{
    if (deadline_ns == 0 || deadline_ns < t->config.start_ns)
        return FL_INVALID_DEADLINE;
    if (deadline_ns == UINT64_MAX)
        return FL_OVERFLOW;
    if (deadline_ns < t->now_ns && t->now_ns - deadline_ns > t->config.tick_ns[0])
        return FL_INVALID_DEADLINE;
    if (deadline_ns > t->now_ns && deadline_ns - t->now_ns > reach_ns(t))
        return FL_DEADLINE_TOO_FAR;
    return 0;
}

/* A level further up than needed makes a coarse timer later than its distance allows. A level reaches one tick less
 * far when the present tick has begun already. */
static void check_level(const struct twin *t, const struct model_timer *timer)
{
    unsigned level = ID_LEVEL(timer->id);
    uint64_t distance_ns = timer->deadline_ns > t->now_ns ? timer->deadline_ns - t->now_ns : 0;
    if (level >= FL_WHEEL_LEVELS || ID_SPOKE(timer->id) >= t->config.spokes)
        deviates(t, "the ID %#" PRIx64 " names a level or spoke there is not", timer->id);
    if (level > 0 && t->config.coarse && distance_ns <= t->config.tick_ns[level - 1] * (t->config.spokes - 1))
        deviates(t, "the timer %#" PRIx64 ", %" PRIu64 " ns away, is too high up", timer->id, distance_ns);
}

static void add(struct twin *t, fl_timer_id id, uint64_t deadline_ns, void *data)
{
    struct model_timer timer = {deadline_ns, t->order, id, data};
    check_level(t, &timer);
    learn(t, &timer);
    insert(t, timer);
}

static void *next_data(struct twin *t)
{
    return (void *)(uintptr_t)++t->order;
}

int twin_schedule(struct twin *t, uint64_t deadline_ns, fl_timer_id *ret_id)
{
    uint64_t failed = memory.failed;
    int expected = expected_of_schedule(t, deadline_ns);
    fl_timer_id id = UNTOUCHED;
    void *data = next_data(t);
    int r = fl_wheel_schedule(t->wheel, deadline_ns, data, &id);
    trace(t, "schedule %" PRIu64 ": %s %#" PRIx64, deadline_ns, fl_errname(r), id);
    bool added = !short_of_memory(t, r, expected, failed, "schedule") && r == 0;
    if (!added && id != UNTOUCHED)
        deviates(t, "schedule failed and gave an ID");
    if (added)
        add(t, id, deadline_ns, data);
    if (added && ret_id)
        *ret_id = id;
    settle(t, failed);
    return r;
}

static int expected_of_best_fit(const struct twin *t, uint64_t target_ns, uint64_t *ret_wheel_deadline_ns)
{
    uint64_t furthest_ns = saturating_add(t->now_ns, reach_ns(t));
    if (target_ns == 0)
        return FL_INVALID_DEADLINE;
    if (target_ns == UINT64_MAX)
        return FL_OVERFLOW;
    uint64_t deadline_ns = target_ns < t->now_ns ? t->now_ns : target_ns < furthest_ns ? target_ns : furthest_ns;
    *ret_wheel_deadline_ns = deadline_ns < UINT64_MAX ? deadline_ns : UINT64_MAX - 1; /* which is no deadline */
    return 0;
}

int twin_best_fit(struct twin *t, uint64_t target_ns, fl_timer_id *ret_id, uint64_t *ret_wheel_deadline_ns)
{
    uint64_t failed = memory.failed, expected_ns = UNTOUCHED, wheel_deadline_ns = UNTOUCHED;
    int expected = expected_of_best_fit(t, target_ns, &expected_ns);
    fl_timer_id id = UNTOUCHED;
    void *data = next_data(t);
    int r = fl_wheel_schedule_best_fit(t->wheel, target_ns, data, &id, &wheel_deadline_ns);
    trace(t, "best fit %" PRIu64 ": %s %#" PRIx64 " %" PRIu64, target_ns, fl_errname(r), id, wheel_deadline_ns);
    bool added = !short_of_memory(t, r, expected, failed, "best fit") && r == 0;
    if (!added && (id != UNTOUCHED || wheel_deadline_ns != UNTOUCHED))
        deviates(t, "best fit failed and gave an ID or a deadline");
    if (added && wheel_deadline_ns != expected_ns)
        deviates(t, "best fit of %" PRIu64 " is %" PRIu64 ", not %" PRIu64, target_ns, wheel_deadline_ns, expected_ns);
    if (added)
        add(t, id, wheel_deadline_ns, data);
    if (added && ret_id)
        *ret_id = id;
    if (added && ret_wheel_deadline_ns)
        *ret_wheel_deadline_ns = wheel_deadline_ns;
    settle(t, failed);
    return r;
}

/* May fl_wheel_cancel(id) answer `r`? */
static bool cancel_may_be(const struct twin *t, fl_timer_id id, int r)
{
    const struct known_id *known = lookup(t, id);
    if (known)
        return r == (known->lives ? 0 : FL_TIMER_NOT_FOUND);
    if (id == 0 || ID_LEVEL(id) >= FL_WHEEL_LEVELS || ID_SPOKE(id) >= t->config.spokes)
        return r == FL_INVALID_TIMER_ID;
    return r == FL_TIMER_NOT_FOUND || r == FL_INVALID_TIMER_ID;
}

static void replace(struct twin *t, size_t rank, fl_timer_id id, uint64_t deadline_ns)
{
    struct model_timer old = *twin_timer(t, rank);
    take_out(t, rank);
    bury(t, old.id);
    t->order++;
    add(t, id, deadline_ns, old.data);
}

int twin_reschedule(struct twin *t, fl_timer_id id, uint64_t deadline_ns, fl_timer_id *ret_id)
{
    uint64_t failed = memory.failed;
    size_t rank = rank_of_id(t, id);
    fl_timer_id new_id = UNTOUCHED;
    int r = fl_wheel_reschedule(t->wheel, id, deadline_ns, &new_id);
    trace(t, "reschedule %#" PRIx64 " to %" PRIu64 ": %s %#" PRIx64, id, deadline_ns, fl_errname(r), new_id);
    if (rank == SIZE_MAX && r != expected_of_schedule(t, deadline_ns) && !cancel_may_be(t, id, r))
        deviates(t, "rescheduling what does not live, %#" PRIx64 ", is %s", id, fl_errname(r));
    if (rank == SIZE_MAX && r == 0)
        deviates(t, "the dead timer %#" PRIx64 " was rescheduled", id);
    bool moved = rank != SIZE_MAX &&
                 !short_of_memory(t, r, expected_of_schedule(t, deadline_ns), failed, "reschedule") && r == 0;
    if (!moved && new_id != UNTOUCHED)
        deviates(t, "reschedule failed and gave an ID");
    if (moved)
        replace(t, rank, new_id, deadline_ns);
    if (moved && ret_id)
        *ret_id = new_id;
    settle(t, failed);
    return r;
}

int twin_reschedule_best_fit(struct twin *t, fl_timer_id id, uint64_t target_ns, fl_timer_id *ret_id)
{
    uint64_t failed = memory.failed, expected_ns = UNTOUCHED, wheel_deadline_ns = UNTOUCHED;
    size_t rank = rank_of_id(t, id);
    fl_timer_id new_id = UNTOUCHED;
    int expected = expected_of_best_fit(t, target_ns, &expected_ns);
    int r = fl_wheel_reschedule_best_fit(t->wheel, id, target_ns, &new_id, &wheel_deadline_ns);
    trace(t, "reschedule %#" PRIx64 " by best fit to %" PRIu64 ": %s", id, target_ns, fl_errname(r));
    if (rank == SIZE_MAX && (r == 0 || !cancel_may_be(t, id, r)))
        deviates(t, "rescheduling what does not live, %#" PRIx64 ", is %s", id, fl_errname(r));
    bool moved = rank != SIZE_MAX && !short_of_memory(t, r, expected, failed, "reschedule by best fit") && r == 0;
    if (!moved && (new_id != UNTOUCHED || wheel_deadline_ns != UNTOUCHED))
        deviates(t, "reschedule by best fit failed and gave an ID or a deadline");
    if (moved && wheel_deadline_ns != expected_ns)
        deviates(t, "best fit of %" PRIu64 " is %" PRIu64 ", not %" PRIu64, target_ns, wheel_deadline_ns, expected_ns);
    if (moved)
        replace(t, rank, new_id, wheel_deadline_ns);
    if (moved && ret_id)
        *ret_id = new_id;
    settle(t, failed);
    return r;
}

/* Reads the deadline of a timer and replaces its data. */
int twin_set_data(struct twin *t, fl_timer_id id)
{
    uint64_t failed = memory.failed, deadline_ns = UNTOUCHED;
    size_t rank = rank_of_id(t, id);
    void *old = (void *)(uintptr_t)UNTOUCHED, *data = next_data(t);
    int r = fl_wheel_deadline_ns(t->wheel, id, &deadline_ns), s = fl_wheel_set_data(t->wheel, id, data, &old);
    trace(t, "set data of %#" PRIx64 ": %s", id, fl_errname(s));
    if (r != s || !cancel_may_be(t, id, r))
        deviates(t, "asking for %#" PRIx64 " is %s, setting its data %s", id, fl_errname(r), fl_errname(s));
    if (rank == SIZE_MAX && (deadline_ns != UNTOUCHED || old != (void *)(uintptr_t)UNTOUCHED))
        deviates(t, "a timer that does not live has a deadline or data");
    if (rank != SIZE_MAX) {
        struct model_timer *timer = &t->timers[t->head + rank];
        if (deadline_ns != timer->deadline_ns || old != timer->data)
            deviates(t, "the timer %#" PRIx64 " is due at %" PRIu64 " with data %p", id, deadline_ns, old);
        timer->data = data;
    }
    settle(t, failed);
    return r;
}

/* Visits all timers: each must come once, with its deadline and data. IDs come in ascending order of level, spoke, leaf and
 * slot, so none comes twice. */
void twin_visit(struct twin *t)
{
    fl_expired timer = {0};
    size_t visited = 0;
    for (fl_timer_id before = 0; fl_wheel_next_timer(t->wheel, &timer); before = timer.id) {
        size_t rank = rank_of_id(t, timer.id);
        if (rank == SIZE_MAX || timer.id == before || twin_timer(t, rank)->deadline_ns != timer.deadline_ns ||
            twin_timer(t, rank)->data != timer.data)
            deviates(t, "a visit found %#" PRIx64 ", due at %" PRIu64, timer.id, timer.deadline_ns);
        if (++visited > t->count)
            break;
    }
    trace(t, "visit: %zu", visited);
    if (visited != t->count)
        deviates(t, "a visit found %zu timers", visited);
}

int twin_cancel(struct twin *t, fl_timer_id id)
{
    uint64_t failed = memory.failed;
    size_t rank = rank_of_id(t, id);
    bool wants_data = (id ^ t->operations) & 1; /* each way goes through code of its own */
    void *expected = wants_data && rank != SIZE_MAX ? twin_timer(t, rank)->data : (void *)(uintptr_t)UNTOUCHED;
    void *data = (void *)(uintptr_t)UNTOUCHED;
    int r = fl_wheel_cancel(t->wheel, id, wants_data ? &data : NULL);
    trace(t, "cancel %#" PRIx64 "%s: %s", id, wants_data ? "" : " without its data", fl_errname(r));
    if (!cancel_may_be(t, id, r))
        deviates(t, "cancelling %#" PRIx64 ", which %s, is %s", id,
                 rank != SIZE_MAX ? "lives"
                 : lookup(t, id)  ? "is dead"
                                  : "never was",
                 fl_errname(r));
    if (data != expected)
        deviates(t, "cancelling %#" PRIx64 " gave the data %p instead of %p", id, data, expected);
    if (rank != SIZE_MAX) {
        take_out(t, rank);
        bury(t, id);
    }
    settle(t, failed);
    return r;
}

/* When a timer must come out at the latest: a coarse wheel waits for the end of the tick the deadline is in. */
static uint64_t latest_ns(const struct twin *t, const struct model_timer *timer)
{
    unsigned level = ID_LEVEL(timer->id);
    if (!t->config.coarse || level == 0)
        return timer->deadline_ns;
    return saturating_add(timer->deadline_ns | (t->config.tick_ns[level] - 1), 1);
}

static bool same(const struct model_timer *timer, const fl_expired *expired)
{
    return timer->id == expired->id && timer->deadline_ns == expired->deadline_ns && timer->data == expired->data;
}

static _Noreturn void wrong_timer(const struct twin *t, const fl_expired *expired, const struct model_timer *skipped)
{
    const struct known_id *known = lookup(t, expired->id);
    fprintf(stderr, "  came: %#" PRIx64 ", deadline %" PRIu64 ", data %p, which %s\n", expired->id,
            expired->deadline_ns, expired->data,
            !known         ? "never was"
            : known->lives ? "lives"
                           : "is dead");
    if (skipped)
        fprintf(stderr, "  instead of %#" PRIx64 ", deadline %" PRIu64 "\n", skipped->id, skipped->deadline_ns);
    deviates(t, "a poll brought what it should not");
}

/* Finds expired[0..n) among the timers, in order, and closes the gaps they leave. Timers between them may only be such
 * as need not come yet. Returns the rank up to which that is shown. */
static size_t take_expired(struct twin *t, const fl_expired *expired, size_t n)
{
    struct model_timer *timers = t->timers + t->head;
    size_t kept = 0, rank = 0;
    for (size_t i = 0; i < n; i++) {
        while (rank < t->count && !same(&timers[rank], &expired[i])) {
            if (timers[rank].deadline_ns > t->now_ns || latest_ns(t, &timers[rank]) <= t->now_ns)
                wrong_timer(t, &expired[i], &timers[rank]);
            timers[kept++] = timers[rank++];
        }
        if (rank == t->count || timers[rank].deadline_ns > t->now_ns)
            wrong_timer(t, &expired[i], NULL);
        bury(t, expired[i].id);
        rank++;
    }
    /* Those kept move up to those behind them, so that an exact wheel, which keeps none, costs nothing here. */
    memmove(timers + rank - kept, timers, kept * sizeof(*timers));
    t->head += rank - kept;
    t->count -= n;
    return kept;
}

static void check_nothing_left(const struct twin *t, size_t from)
{
    for (size_t rank = from; rank < t->count && twin_timer(t, rank)->deadline_ns <= t->now_ns; rank++)
        if (latest_ns(t, twin_timer(t, rank)) <= t->now_ns)
            deviates(t, "the timer %#" PRIx64 ", due since %" PRIu64 ", did not come", twin_timer(t, rank)->id,
                     twin_timer(t, rank)->deadline_ns);
}

size_t twin_poll(struct twin *t, uint64_t now_ns, size_t limit)
{
    uint64_t failed = memory.failed;
    size_t room = limit < t->count + 1 ? limit : t->count + 1;
    /* Exactly as long as needed, so that a sanitizer sees what is written behind it. */
    fl_expired *out = room > 0 ? malloc(room * sizeof(*out)) : NULL;
    free(t->out);
    t->out = out;
    size_t n = fl_wheel_poll(t->wheel, now_ns, out, room);
    trace(t, "poll %" PRIu64 ", limit %zu: %zu", now_ns, limit, n);
    if (n > room)
        deviates(t, "a poll with the limit %zu brought %zu", room, n);
    if (now_ns > t->now_ns)
        t->now_ns = now_ns;
    size_t rank = take_expired(t, out, n);
    if (n < room)
        check_nothing_left(t, rank);
    settle(t, failed);
    return n;
}

bool twin_next_deadline(struct twin *t, uint64_t *ret_ns)
{
    uint64_t failed = memory.failed, ns = UNTOUCHED, poll_ns = UNTOUCHED;
    bool any_poll = fl_wheel_next_poll(t->wheel, &poll_ns), any = fl_wheel_next_deadline(t->wheel, &ns);
    if (any_poll != any || (any && poll_ns > ns))
        deviates(t, "the next poll is to be at %" PRIu64 ", after the next deadline %" PRIu64, poll_ns, ns);
    trace(t, "next deadline: %s %" PRIu64, any ? "yes" : "no", ns);
    if (any != (t->count > 0))
        deviates(t, "next deadline says there is %s timer", any ? "a" : "no");
    if (ns != (any ? twin_timer(t, 0)->deadline_ns : UNTOUCHED))
        deviates(t, "the next deadline is said to be %" PRIu64 " instead of %" PRIu64, ns,
                 any ? twin_timer(t, 0)->deadline_ns : UNTOUCHED);
    if (any && ret_ns)
        *ret_ns = ns;
    settle(t, failed);
    return any;
}

void twin_compact(struct twin *t)
{
    uint64_t failed = memory.failed;
    trace(t, "compact");
    fl_wheel_compact(t->wheel);
    settle(t, failed);
}

void twin_clear(struct twin *t)
{
    uint64_t failed = memory.failed;
    trace(t, "clear");
    fl_wheel_clear(t->wheel);
    while (t->count > 0) {
        bury(t, twin_timer(t, 0)->id);
        take_out(t, 0);
    }
    settle(t, failed);
}
