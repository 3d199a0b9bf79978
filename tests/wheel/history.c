/* SPDX-License-Identifier: MIT */
/* Reads bytes as the history of a wheel and lives it through beside the model of model.h.
 *
 * Every string of bytes is a history, so that a fuzzer may change any of them; where the bytes end, the history ends.
 * A few bytes in front choose the wheel; after them each byte is an operation, followed by what it needs. A table of
 * weights, chosen in front too, makes histories differ in kind: some mostly schedule, some mostly poll, some run out of
 * memory all the time.
 *
 * Times are chosen where they hurt: at every magnitude, on the borders of ticks and of levels and beside them, equal to
 * earlier ones, a little in the past, at both ends of time.
 */

#include <stdio.h>
#include <stdlib.h>

#include "wheel/allocator.h"
#include "wheel/model.h"
#include "wheel/wheel.h"
#include "wheel/wheel_test.h"

#define MAX_TIMERS 20000
#define MAX_OPERATIONS 20000
#define RECENT 8 /* deadlines remembered for ties */

struct history {
    const uint8_t *bytes, *end;
    struct twin twin;
    uint64_t recent_ns[RECENT];
    unsigned recent_count;
};

/* ---- Bytes. */

static uint8_t byte(struct history *h)
{
    return h->bytes < h->end ? *h->bytes++ : 0;
}

static uint64_t number(struct history *h, unsigned bytes)
{
    uint64_t n = 0;
    while (bytes-- > 0)
        n = n << 8 | byte(h);
    return n;
}

static size_t pick(struct history *h, size_t count)
{
    return number(h, count > 256 ? 2 : 1) % count;
}

/* A byte for the magnitude, two for the digits. */
static uint64_t magnitude(struct history *h)
{
    unsigned bits = byte(h) % 64;
    uint64_t digits = number(h, 2) | 1ull << 16;
    return bits >= 16 ? digits << (bits - 16) : digits >> (16 - bits);
}

/* ---- Times. */

static unsigned level_of(struct history *h)
{
    return byte(h) % FL_WHEEL_LEVELS;
}

/* From the byte -1, 0 or 1 is added: the moments beside a border are those that go wrong. */
static uint64_t beside(struct history *h, uint64_t ns)
{
    int by = byte(h) % 3 - 1;
    if ((ns == 0 && by < 0) || (ns == UINT64_MAX && by > 0))
        return ns;
    return ns + (uint64_t)(int64_t)by;
}

/* A tick of some level that begins after now: the next one, or one up to a whole turn later. */
static uint64_t tick_border(struct history *h)
{
    const struct twin *t = &h->twin;
    uint64_t tick_ns = t->config.tick_ns[level_of(h)];
    uint64_t tick = t->now_ns / tick_ns + 1 + number(h, 2) % (t->config.spokes + 1);
    uint64_t ns;
    return __builtin_mul_overflow(tick, tick_ns, &ns) ? UINT64_MAX - 1 : ns;
}

static uint64_t level_border(struct history *h)
{
    return saturating_add(h->twin.now_ns, fl_wheel_coverage_ns(h->twin.wheel, level_of(h)));
}

static uint64_t special_time(struct history *h)
{
    const struct twin *t = &h->twin;
    switch (byte(h) % 6) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return UINT64_MAX - 1;
    case 3:
        return beside(h, t->config.start_ns);
    case 4:
        return beside(h, t->now_ns >= t->config.tick_ns[0] ? t->now_ns - t->config.tick_ns[0] : 0);
    default:
        return magnitude(h);
    }
}

static uint64_t past_time(struct history *h)
{
    uint64_t back_ns = magnitude(h) & (h->twin.config.tick_ns[0] * 2 - 1);
    return h->twin.now_ns > back_ns ? h->twin.now_ns - back_ns : h->twin.now_ns;
}

static uint64_t earlier_time(struct history *h)
{
    const struct twin *t = &h->twin;
    if (t->count > 0 && byte(h) % 2)
        return twin_timer(t, pick(h, t->count))->deadline_ns;
    return h->recent_ns[byte(h) % RECENT];
}

static uint64_t some_time(struct history *h)
{
    uint64_t ns;
    switch (byte(h) % 16) {
    case 0 ... 5:
        ns = saturating_add(h->twin.now_ns, magnitude(h));
        break;
    case 6 ... 9:
        ns = earlier_time(h);
        break;
    case 10 ... 11:
        ns = beside(h, tick_border(h));
        break;
    case 12 ... 13:
        ns = beside(h, level_border(h));
        break;
    case 14:
        ns = past_time(h);
        break;
    default:
        ns = special_time(h);
    }
    h->recent_ns[h->recent_count++ % RECENT] = ns;
    return ns;
}

/* ---- Timers. */

static fl_timer_id living_id(struct history *h)
{
    const struct twin *t = &h->twin;
    if (t->count == 0)
        return number(h, 8);
    switch (byte(h) % 4) {
    case 0:
        return twin_timer(t, 0)->id;
    case 1:
        return twin_timer(t, t->count - 1)->id;
    default:
        return twin_timer(t, pick(h, t->count))->id;
    }
}

/* A dead ID, a living one with a bit turned over, or anything. */
static fl_timer_id strange_id(struct history *h)
{
    const struct twin *t = &h->twin;
    switch (byte(h) % 4) {
    case 0:
        return number(h, 8);
    case 1:
        return living_id(h) ^ 1ull << byte(h) % 64;
    default:
        return t->dead_count > 0 ? t->dead[t->dead_count - 1 - pick(h, t->dead_count)] : 0;
    }
}

/* ---- Operations. */

static void do_schedule(struct history *h)
{
    if (h->twin.count < MAX_TIMERS)
        twin_schedule(&h->twin, some_time(h), NULL);
}

static void do_best_fit(struct history *h)
{
    if (h->twin.count < MAX_TIMERS)
        twin_best_fit(&h->twin, some_time(h), NULL, NULL);
}

/* Many timers in few bytes: all at one moment, all within one tick, or over a span of any size. */
static void do_schedule_many(struct history *h)
{
    struct twin *t = &h->twin;
    unsigned count = 1 + byte(h) * (byte(h) % 8 == 0 ? 8 : 1);
    uint64_t from_ns = some_time(h), span_ns = magnitude(h), random = number(h, 1);
    if (t->count + count > MAX_TIMERS)
        return;
    if (byte(h) % 4 == 0)
        span_ns = 1;
    else if (span_ns > fl_wheel_max_duration_ns(t->wheel))
        span_ns = fl_wheel_max_duration_ns(t->wheel);
    for (unsigned i = 0; i < count; i++)
        twin_schedule(t, saturating_add(from_ns, random_below(&random, span_ns)), NULL);
}

static void do_cancel(struct history *h)
{
    twin_cancel(&h->twin, living_id(h));
}

static void do_cancel_strange(struct history *h)
{
    twin_cancel(&h->twin, strange_id(h));
}

/* Cancels a part of a range of neighbours in time. */
static void do_cancel_many(struct history *h)
{
    struct twin *t = &h->twin;
    if (t->count == 0)
        return;
    size_t from = pick(h, t->count), to = from + pick(h, t->count) + 1;
    uint64_t random = number(h, 1), keep = byte(h) % 8;
    for (size_t rank = to < t->count ? to : t->count; rank-- > from;)
        if (keep == 0 || random_below(&random, 8) >= keep)
            twin_cancel(t, twin_timer(t, rank)->id);
}

static void do_reschedule(struct history *h)
{
    fl_timer_id id = living_id(h);
    twin_reschedule(&h->twin, id, some_time(h), NULL);
}

static void do_reschedule_strange(struct history *h)
{
    fl_timer_id id = strange_id(h);
    twin_reschedule(&h->twin, id, some_time(h), NULL);
}

static void do_reschedule_best_fit(struct history *h)
{
    fl_timer_id id = byte(h) % 4 == 0 ? strange_id(h) : living_id(h);
    twin_reschedule_best_fit(&h->twin, id, some_time(h), NULL);
}

static void do_set_data(struct history *h)
{
    fl_timer_id id = byte(h) % 4 == 0 ? strange_id(h) : living_id(h);
    twin_set_data(&h->twin, id);
}

static void do_visit(struct history *h)
{
    twin_visit(&h->twin);
}

static uint64_t next_now(struct history *h)
{
    const struct twin *t = &h->twin;
    uint64_t earliest_ns = t->count > 0 ? twin_timer(t, 0)->deadline_ns : t->now_ns;
    switch (byte(h) % 16) {
    case 0 ... 3:
        return saturating_add(t->now_ns, t->config.tick_ns[0]);
    case 4:
        return saturating_add(t->now_ns, t->config.tick_ns[0] * byte(h));
    case 5 ... 7:
        return saturating_add(t->now_ns, magnitude(h) >> 2);
    case 8 ... 10:
        return beside(h, earliest_ns);
    case 11:
        return t->count > 0 ? twin_timer(t, pick(h, t->count))->deadline_ns : 0;
    case 12:
        return beside(h, tick_border(h));
    case 13:
        return beside(h, level_border(h));
    case 14:
        return magnitude(h);
    default:
        return t->now_ns;
    }
}

static size_t some_limit(struct history *h)
{
    uint8_t kind = byte(h);
    if (kind % 4 == 0)
        return kind / 4 % 8;
    if (kind % 4 == 1)
        return byte(h);
    return SIZE_MAX;
}

static void do_poll(struct history *h)
{
    uint64_t now_ns = next_now(h);
    /* At the very last moment a timer for "now" would have the deadline that is never allowed. */
    twin_poll(&h->twin, now_ns < UINT64_MAX ? now_ns : UINT64_MAX - 1, some_limit(h));
}

/* As a server does: a poll every tick, for a while. */
static void do_poll_many(struct history *h)
{
    uint64_t step_ns = h->twin.config.tick_ns[byte(h) % 4 == 0];
    size_t limit = some_limit(h);
    for (unsigned left = byte(h); left > 0; left--) {
        uint64_t now_ns = saturating_add(h->twin.now_ns, step_ns);
        twin_poll(&h->twin, now_ns < UINT64_MAX ? now_ns : UINT64_MAX - 1, limit);
    }
}

static void do_next_deadline(struct history *h)
{
    twin_next_deadline(&h->twin, NULL);
}

static void do_compact(struct history *h)
{
    twin_compact(&h->twin);
}

static void do_clear(struct history *h)
{
    if (byte(h) % 4 == 0)
        twin_clear(&h->twin);
}

static void do_fail(struct history *h)
{
    uint8_t when = byte(h);
    memory_fail(when / 4, when % 4 == 0);
}

static const struct {
    void (*run)(struct history *);
    uint8_t weight[8]; /* in each kind of history */
} operations[] = {
    {do_schedule, {24, 50, 20, 10, 20, 15, 30, 10}},
    {do_schedule_many, {3, 5, 4, 10, 2, 2, 10, 6}},
    {do_best_fit, {4, 4, 2, 1, 8, 2, 2, 2}},
    {do_cancel, {10, 5, 40, 2, 10, 15, 10, 10}},
    {do_cancel_strange, {4, 2, 8, 1, 2, 4, 2, 3}},
    {do_cancel_many, {1, 0, 3, 8, 0, 1, 4, 4}},
    {do_reschedule, {6, 4, 4, 1, 30, 10, 10, 4}},
    {do_reschedule_strange, {2, 1, 2, 1, 2, 1, 2, 1}},
    {do_reschedule_best_fit, {3, 2, 2, 1, 6, 4, 4, 2}},
    {do_set_data, {4, 2, 4, 2, 4, 4, 4, 2}},
    {do_visit, {1, 1, 1, 1, 1, 1, 1, 1}},
    {do_poll, {24, 12, 10, 20, 10, 40, 20, 12}},
    {do_poll_many, {2, 1, 1, 4, 1, 4, 1, 1}},
    {do_next_deadline, {10, 10, 10, 5, 10, 10, 10, 5}},
    {do_compact, {1, 1, 4, 8, 1, 1, 3, 4}},
    {do_clear, {1, 1, 1, 2, 1, 1, 1, 2}},
    {do_fail, {0, 0, 1, 0, 1, 0, 20, 10}},
};

#define OPERATIONS (sizeof(operations) / sizeof(*operations))

static void do_one(struct history *h, unsigned kind)
{
    unsigned total = 0, i = 0;
    for (unsigned k = 0; k < OPERATIONS; k++)
        total += operations[k].weight[kind];
    unsigned at = byte(h) * total / 256;
    while (at >= operations[i].weight[kind])
        at -= operations[i++].weight[kind];
    uint64_t failed = memory.failed;
    operations[i].run(h);
    if (memory.failed != failed)
        twin_check(&h->twin);
    else
        twin_check_now_and_then(&h->twin);
}

/* ---- Wheels. */

static void choose_geometry(struct history *h, fl_wheel_config *config)
{
    static const uint8_t spokes_bits[] = {0, 1, 2, 2, 3, 3, 4, 4, 4, 6, 6, 6, 8, 8, 10, 12};
    unsigned kind = byte(h);
    if (kind % 16 == 0)
        return; /* the defaults: their many spokes take long to check */
    unsigned spokes = spokes_bits[kind / 16];
    unsigned reach = spokes > 0 ? 64 : 63;          /* the last level's, at most; no tick is 2^64 */
    unsigned tick = byte(h) % (reach - 1 - spokes); /* leaves room for the two ticks above it */
    config->spokes = 1u << spokes;
    for (int i = 0; i < FL_WHEEL_LEVELS; i++) {
        unsigned highest = reach - spokes - (2 - (unsigned)i);
        config->tick_ns[i] = 1ull << tick;
        tick += 1 + byte(h) % (kind % 4 == 1 ? 1 + spokes : 16);
        tick = tick <= highest + 1 ? tick : highest + 1;
    }
}

static uint64_t choose_start(struct history *h)
{
    switch (byte(h) % 8) {
    case 0:
        return 1ull << 63;
    case 1:
        return (1ull << 63) - number(h, 4);
    case 2:
        return UINT64_MAX - 1 - magnitude(h);
    case 3 ... 5:
        return magnitude(h);
    default:
        return 0;
    }
}

static void choose_compaction(struct history *h, fl_wheel_config *config)
{
    uint8_t kind = byte(h);
    if (kind % 4 != 0)
        return;
    config->compaction.min_capacity = 1u << kind / 4 % 8;
    config->compaction.target_multiplier = 1 + kind / 32 % 4;
    config->compaction.ratio = config->compaction.target_multiplier + byte(h) % 4;
}

static fl_wheel_config choose_wheel(struct history *h)
{
    fl_wheel_config config = {0};
    uint8_t flags = byte(h);
    config.coarse = flags % 4 == 0;
    config.huge_pages = flags / 4 % 8 == 0;
    choose_geometry(h, &config);
    choose_compaction(h, &config);
    config.start_ns = choose_start(h);
    return config;
}

/* As if so many timers had come and gone that the chunks of cells are soon renewed and retired. */
static void wear(fl_wheel *w, uint32_t generation)
{
    for (unsigned level = 0; level < FL_WHEEL_LEVELS; level++)
        w->cells[level].generation = generation;
}

int wheel_history(const uint8_t *bytes, size_t size)
{
    struct history h = {.bytes = bytes, .end = bytes + size};
    unsigned first = byte(&h), kind = first % 8;
    fl_wheel_config config = choose_wheel(&h);
    memory_install();
    if (twin_new(&h.twin, &config) < 0)
        return 0;
    h.twin.in_burst = true; /* do_one() checks */
    if (first >= 128)
        wear(h.twin.wheel, GENERATION_END - LIVES - first % 16);
    h.twin.trace = getenv("FL_TEST_TRACE") != NULL;
    while (h.bytes < h.end && h.twin.operations < MAX_OPERATIONS)
        do_one(&h, kind);
    memory_fail(0, false);
    twin_poll(&h.twin, UINT64_MAX - 1, SIZE_MAX);
    twin_check(&h.twin);
    twin_free(&h.twin);
    return 0;
}
