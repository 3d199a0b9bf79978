/* SPDX-License-Identifier: MIT */
/* The wheel's memory: what it takes, what it gives back, and what happens when there is none. */

#include <stdlib.h>

#include "test.h"
#include "wheel/allocator.h"
#include "wheel/model.h"
#include "wheel/wheel_test.h"

/* ---- Compaction. */

static uint64_t slot_capacity(const fl_wheel *w)
{
    fl_wheel_stats stats;
    uint64_t capacity = 0;
    fl_wheel_memory_stats(w, &stats);
    for (int i = 0; i < FL_WHEEL_LEVELS; i++)
        capacity += stats.level[i].slot_capacity;
    return capacity;
}

/* Mappings count only where they have memory. */
static uint64_t resident_bytes(fl_wheel *w)
{
    fl_wheel_stats stats;
    fl_wheel_memory_stats(w, &stats);
    return stats.bytes;
}

struct survivor {
    fl_timer_id id;
    uint64_t deadline_ns;
};

/* Schedules `count` timers over an hour, cancels all but one in a thousand, in random order, and returns those. */
static struct survivor *decimate(fl_wheel *w, uint64_t count, uint64_t *ret_peak_bytes)
{
    struct survivor *timers = malloc(count * sizeof(*timers));
    uint64_t random = 1;
    for (uint64_t i = 0; i < count; i++) {
        timers[i].deadline_ns = 1 + random_below(&random, HOUR);
        CHECK_EQ(fl_wheel_schedule(w, timers[i].deadline_ns, timers + i, &timers[i].id), 0);
    }
    *ret_peak_bytes = resident_bytes(w);
    CHECK(slot_capacity(w) >= count);
    for (uint64_t i = count - 1; i > 0; i--) {
        struct survivor other = timers[i];
        uint64_t j = random_below(&random, i + 1);
        timers[i] = timers[j];
        timers[j] = other;
    }
    for (uint64_t i = count / 1000; i < count; i++)
        CHECK_EQ(fl_wheel_cancel(w, timers[i].id, NULL), 0);
    CHECK_EQ(fl_wheel_count(w), count / 1000);
    return timers;
}

/* Half of the living are cancelled by their IDs, the others fire. */
static void check_survivors(fl_wheel *w, const struct survivor *timers, uint64_t count)
{
    fl_expired out[64];
    uint64_t last_ns = 0, fired = 0;
    for (uint64_t i = 0; i < count; i += 2)
        CHECK_EQ(fl_wheel_cancel(w, timers[i].id, NULL), 0);
    for (size_t n = 64; n == 64; fired += n) {
        n = fl_wheel_poll(w, HOUR, out, 64);
        for (size_t i = 0; i < n; i++) {
            CHECK(out[i].deadline_ns >= last_ns);
            last_ns = out[i].deadline_ns;
        }
    }
    CHECK_EQ(fired, count / 2);
    for (uint64_t i = 0; i < count; i++)
        CHECK_EQ(fl_wheel_cancel(w, timers[i].id, NULL), FL_TIMER_NOT_FOUND);
}

/* A spoke below the smallest size that is compacted keeps what it has: so many slots a spoke, in three levels. */
#define KEPT_SLOTS (64 * 3 * 1024)

TEST(compaction_gives_memory_back)
{
    uint64_t count = SCALE(10000000, 500000), living = count / 1000, peak_bytes;
    fl_wheel *w;
    memory_install();
    CHECK_EQ(fl_wheel_new(NULL, &w), 0);
    uint64_t empty_bytes = resident_bytes(w);
    struct survivor *timers = decimate(w, count, &peak_bytes);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    CHECK(slot_capacity(w) <= 4 * living + KEPT_SLOTS);
    CHECK(resident_bytes(w) < empty_bytes + (peak_bytes - empty_bytes) / SCALE(10, 2));
    fl_wheel_compact(w);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    CHECK(slot_capacity(w) <= 4 * living + 1024);
    CHECK(resident_bytes(w) < empty_bytes + (peak_bytes - empty_bytes) / SCALE(20, 4));
    check_survivors(w, timers, living);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    fl_wheel_compact(w);
    CHECK(resident_bytes(w) <= empty_bytes + 4096);
    free(timers);
    fl_wheel_free(w);
    memory_remove();
}

/* As many again, each time: what was given back is used anew, and a wheel does not grow with its past. */
TEST(a_wheel_does_not_grow_with_its_past)
{
    uint64_t count = SCALE(100000, 20000), random = 2, first_bytes = 0;
    fl_wheel *w;
    fl_expired out[256];
    memory_install();
    CHECK_EQ(fl_wheel_new(NULL, &w), 0);
    for (int round = 0; round < 30; round++) {
        uint64_t now_ns = fl_wheel_now_ns(w);
        for (uint64_t i = 0; i < count; i++)
            CHECK_EQ(fl_wheel_schedule(w, now_ns + 1 + random_distance(&random, 18 * HOUR), NULL, NULL), 0);
        if (round == 2)
            first_bytes = memory.bytes;
        CHECK(round < 2 || memory.bytes <= 2 * first_bytes);
        while (fl_wheel_poll(w, now_ns + 19 * HOUR, out, 256) == 256)
            ;
        CHECK_EQ(fl_wheel_count(w), 0);
    }
    fl_wheel_free(w);
    memory_remove();
}

TEST(firing_gives_memory_back)
{
    uint64_t count = SCALE(1000000, 300000), random = 3;
    fl_wheel *w;
    fl_expired out[256];
    memory_install();
    CHECK_EQ(fl_wheel_new(NULL, &w), 0);
    uint64_t empty_bytes = resident_bytes(w);
    for (uint64_t i = 0; i < count; i++)
        CHECK_EQ(fl_wheel_schedule(w, 1 + random_below(&random, HOUR), NULL, NULL), 0);
    uint64_t peak_bytes = resident_bytes(w);
    for (uint64_t now_ns = 0; now_ns <= HOUR; now_ns += SECOND)
        while (fl_wheel_poll(w, now_ns, out, 256) == 256)
            ;
    CHECK_EQ(fl_wheel_count(w), 0);
    CHECK(resident_bytes(w) - empty_bytes < (peak_bytes - empty_bytes) / 2);
    fl_wheel_free(w);
    memory_remove();
}

/* What is left when most have fired is spread over all the memory there was; the memory between is given back. */
TEST(compact_gives_back_what_has_fired)
{
    uint64_t count = 1000000, random = 7;
    fl_wheel *w;
    fl_expired out[256];
    CHECK_EQ(fl_wheel_new(NULL, &w), 0);
    uint64_t empty_bytes = resident_bytes(w);
    for (uint64_t i = 0; i < count; i++)
        CHECK_EQ(fl_wheel_schedule(w, 1 + random_below(&random, HOUR), NULL, NULL), 0);
    uint64_t peak_bytes = resident_bytes(w);
    for (uint64_t now_ns = 0; now_ns <= HOUR / 10 * 9; now_ns += SECOND)
        while (fl_wheel_poll(w, now_ns, out, 256) == 256)
            ;
    CHECK(resident_bytes(w) - empty_bytes < (peak_bytes - empty_bytes) / 2);
    fl_wheel_compact(w);
    CHECK(resident_bytes(w) - empty_bytes < (peak_bytes - empty_bytes) / 5);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    fl_wheel_free(w);
}

TEST(clear_gives_memory_back)
{
    struct twin t;
    uint64_t random = 4;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    uint64_t empty_bytes = memory.bytes;
    for (int i = 0; i < SCALE(50000, 10000); i++)
        twin_schedule(&t, 1 + random_below(&random, HOUR), NULL);
    uint64_t peak_bytes = memory.bytes;
    twin_clear(&t);
    CHECK(memory.bytes - empty_bytes < (peak_bytes - empty_bytes) / 10);
    CHECK_EQ(slot_capacity(t.wheel), 0);
    twin_free(&t);
}

TEST(memory_stats_add_up)
{
    struct twin t;
    fl_wheel_stats stats;
    uint64_t random = 5;
    twin_new(&t, &(fl_wheel_config){.spokes = 256});
    t.lazy_checks = true;
    for (int i = 0; i < 3000; i++) {
        static const uint64_t distances_ns[] = {TICK0 * 100, TICK1 * 100, TICK2 * 100};
        twin_schedule(&t, t.now_ns + distances_ns[i % 3] + random_below(&random, distances_ns[i % 3]), NULL);
    }
    fl_wheel_memory_stats(t.wheel, &stats);
    for (int i = 0; i < FL_WHEEL_LEVELS; i++) {
        CHECK_EQ(stats.level[i].spokes, 256);
        CHECK_EQ(stats.level[i].active, 1000);
        CHECK(stats.level[i].slot_capacity >= 1000);
        CHECK(stats.level[i].bytes >= 1000 * sizeof(void *));
        CHECK(stats.level[i].utilisation > 0 && stats.level[i].utilisation <= 1);
    }
    CHECK(stats.bytes > memory.bytes - memory.mapped + 3000 / 256 * 64 && stats.bytes < memory.bytes);
    twin_check(&t);
    twin_free(&t);
}

/* ---- No memory. */

/* Every operation there is, in an order that makes spokes grow, shrink, come due, wait behind limits, move and end.
 * Nothing here depends on whether a call succeeded. */
static void play(struct twin *t, uint64_t random)
{
    uint64_t reach_ns = fl_wheel_max_duration_ns(t->wheel);
    for (int i = 0; i < 100; i++)
        twin_schedule(t, t->now_ns + 1 + random_distance(&random, reach_ns - 1), NULL);
    for (int i = 0; i < 300; i++) /* enough in one place for a mapping */
        twin_schedule(t, t->now_ns + reach_ns / 2 + (unsigned)i % 3, NULL);
    for (int i = 0; i < 30; i++) {
        twin_best_fit(t, t->now_ns + 1 + random_distance(&random, reach_ns * 4), NULL, NULL);
        twin_next_deadline(t, NULL);
    }
    for (int i = 0; i < 60 && t->count > 0; i++) {
        fl_timer_id id = twin_timer(t, random_below(&random, t->count))->id;
        twin_reschedule(t, id, t->now_ns + 1 + random_distance(&random, reach_ns - 1), NULL);
    }
    for (int i = 0; i < 20; i++) {
        twin_poll(t, t->now_ns + random_distance(&random, reach_ns / 8), i % 2 ? 3 : SIZE_MAX);
        twin_schedule(t, t->now_ns, NULL);
        twin_next_deadline(t, NULL);
    }
    for (size_t left = t->count / 20; t->count > left;)
        twin_cancel(t, twin_timer(t, random_below(&random, t->count))->id);
    twin_compact(t);
    for (int i = 0; i < 100; i++)
        twin_schedule(t, t->now_ns + 1 + random_distance(&random, reach_ns - 1), NULL);
    twin_poll(t, t->now_ns + reach_ns / 2, 40);
    twin_poll(t, t->now_ns + reach_ns * 5, SIZE_MAX);
    for (int i = 0; i < 50; i++)
        twin_schedule(t, t->now_ns + 1 + random_distance(&random, reach_ns - 1), NULL);
    twin_clear(t);
    for (int i = 0; i < 50; i++)
        twin_schedule(t, t->now_ns + 1 + random_distance(&random, reach_ns - 1), NULL);
    twin_poll(t, t->now_ns + reach_ns, 20);
}

/* Plays with the n-th allocation failing; false once n is beyond the last. */
static bool play_failing(const fl_wheel_config *config, uint64_t n, bool fail_on)
{
    struct twin t;
    memory_install();
    memory_fail(n, fail_on);
    snprintf(model_context, sizeof(model_context), "allocation %" PRIu64 "%s fails", n,
             fail_on ? " and all after" : "");
    if (twin_new(&t, config) < 0)
        return true;
    t.lazy_checks = true;
    play(&t, 6);
    bool reached = memory.failed > 0;
    memory_fail(0, false);
    while (twin_poll(&t, UINT64_MAX - 1, 100) == 100)
        ;
    CHECK_EQ(t.count, 0);
    twin_check(&t);
    twin_free(&t);
    return reached;
}

static void fail_at_every_allocation(bool fail_on)
{
    static const fl_wheel_config configs[] = {
        {.spokes = 16},
        {.spokes = 4, .tick_ns = {16, 64, 256}},
        {.spokes = 16, .coarse = true},
        {.spokes = 2, .huge_pages = true},
        {.spokes = 16, .compaction = {1, 2, 1}},
    };
    for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
        uint64_t n = 1;
        while (play_failing(&configs[i], n, fail_on))
            n++;
        CHECK(n > 10);
    }
    model_context[0] = 0;
}

TEST(failed_allocations_leave_the_wheel_as_it_was)
{
    fail_at_every_allocation(false);
}

TEST(a_wheel_without_any_memory_left_still_polls_and_cancels)
{
    fail_at_every_allocation(true);
}

/* A crowd becomes due when there is no memory at all: it comes out all the same, in order, however it is asked for. */
TEST(a_poll_without_memory_brings_everything_in_order)
{
    static const uint64_t spans_ns[] = {1, TICK0, TICK1, TICK2, 10 * HOUR};
    for (size_t s = 0; s < sizeof(spans_ns) / sizeof(*spans_ns); s++)
        for (size_t limit = 7; limit < 10000; limit *= 10) {
            struct twin t;
            uint64_t random = s;
            twin_new(&t, NULL);
            t.lazy_checks = true;
            for (int i = 0; i < 3000; i++)
                CHECK_EQ(twin_schedule(&t, 2 * HOUR + random_below(&random, spans_ns[s]), NULL), 0);
            memory_fail(1, true);
            twin_poll(&t, 2 * HOUR + spans_ns[s] / 2, limit);
            twin_next_deadline(&t, NULL);
            while (twin_poll(&t, 2 * HOUR + spans_ns[s], limit) == limit)
                ;
            CHECK_EQ(t.count, 0);
            twin_free(&t);
        }
}

/* In a coarse wheel, what its level still holds back must not come between what L0 brings, when there is no memory to
 * load all of L0. */
TEST(a_coarse_wheel_without_memory_keeps_the_order)
{
    struct twin t;
    twin_new(&t, &(fl_wheel_config){.coarse = true});
    t.lazy_checks = true;
    twin_schedule(&t, 5 * TICK1 + 10, NULL); /* of L1: waits for the end of its tick */
    twin_poll(&t, 5 * TICK1, SIZE_MAX);
    twin_schedule(&t, t.now_ns + TICK0, NULL);
    twin_poll(&t, t.now_ns + TICK0, SIZE_MAX); /* now there is memory for one timer at a time */
    twin_schedule(&t, t.now_ns + 20 * TICK0, NULL);
    for (int i = 0; i < 1000; i++)
        twin_schedule(&t, t.now_ns + 21 * TICK0, NULL);
    memory_fail(1, true);
    twin_poll(&t, t.now_ns + 30 * TICK0, SIZE_MAX);
    memory_fail(0, false);
    twin_poll(&t, t.now_ns + TICK1, SIZE_MAX);
    CHECK_EQ(t.count, 0);
    twin_free(&t);
}

/* A next deadline found without memory leaves the bounds of spokes too low; a timer that comes between must be
 * noticed all the same. */
TEST(next_deadline_found_without_memory_notices_an_earlier_timer)
{
    struct twin t;
    fl_timer_id first, second;
    uint64_t next_ns;
    twin_new(&t, NULL);
    twin_schedule(&t, 10 * TICK1 + 100, &first);
    twin_schedule(&t, 10 * TICK1 + 5 * TICK0, NULL);
    memory_fail(1, true);
    twin_poll(&t, 9 * TICK1 + TICK1 / 2, SIZE_MAX); /* would index both in L0 */
    memory_fail(0, false);
    twin_schedule(&t, 10 * TICK1 + 200, &second);
    memory_fail(1, true);
    twin_cancel(&t, first);
    twin_cancel(&t, second);
    CHECK(twin_next_deadline(&t, &next_ns));
    CHECK_EQ(next_ns, 10 * TICK1 + 5 * TICK0);
    CHECK_EQ(twin_schedule(&t, 10 * TICK1 + 300, NULL), 0);
    CHECK(twin_next_deadline(&t, &next_ns));
    CHECK_EQ(next_ns, 10 * TICK1 + 300);
    memory_fail(0, false);
    twin_free(&t);
}

/* An opening that was held up by a lack of memory brings its timers into the front only when the next deadline is asked
 * for: they count too. */
TEST(next_deadline_notices_what_a_late_opening_brings)
{
    uint64_t tick_ns = 10 * TICK1 + 5 * TICK0, next_ns;
    for (uint64_t n = 1; n < 8; n++) {
        struct twin t;
        twin_new(&t, NULL);
        twin_schedule(&t, tick_ns + 500, NULL); /* in L1 */
        memory_fail(1, true);
        twin_poll(&t, 9 * TICK1 + TICK1 / 2, SIZE_MAX); /* would open its tick */
        memory_fail(0, false);
        twin_schedule(&t, tick_ns + 100, NULL); /* in L0 */
        twin_schedule(&t, tick_ns + 900, NULL);
        memory_fail(n, true);
        CHECK_EQ(twin_poll(&t, tick_ns + 100, SIZE_MAX), 1);
        memory_fail(0, false);
        CHECK(twin_next_deadline(&t, &next_ns));
        CHECK_EQ(next_ns, tick_ns + 500);
        twin_free(&t);
    }
}
