/* SPDX-License-Identifier: MIT */
/* How a wheel is made, what it tells of itself, and what may be left out of a call. */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "test.h"
#include "wheel/model.h"
#include "wheel/wheel_test.h"

static fl_wheel *new_wheel(const fl_wheel_config *config)
{
    fl_wheel *w = NULL;
    CHECK_EQ(fl_wheel_new(config, &w), 0);
    return w;
}

/* ---- Geometry. */

static void check_defaults(const fl_wheel *w)
{
    fl_wheel_stats stats;
    fl_wheel_memory_stats(w, &stats);
    for (int i = 0; i < FL_WHEEL_LEVELS; i++)
        CHECK_EQ(stats.level[i].spokes, 1024);
    CHECK_EQ(fl_wheel_coverage_ns(w, 0), TICK0 * 1024);
    CHECK_EQ(fl_wheel_coverage_ns(w, 1), TICK1 * 1024);
    CHECK_EQ(fl_wheel_coverage_ns(w, 2), TICK2 * 1024);
    CHECK_EQ(fl_wheel_coverage_ns(w, 3), 0);
    CHECK_EQ(fl_wheel_coverage_ns(w, UINT32_MAX), 0);
    CHECK_EQ(fl_wheel_max_duration_ns(w), TICK2 * 1024);
    CHECK_EQ(fl_wheel_start_ns(w), 0);
    CHECK_EQ(fl_wheel_now_ns(w), 0);
    CHECK_EQ(fl_wheel_worker_id(w), 0);
    CHECK_EQ(fl_wheel_count(w), 0);
}

TEST(no_config_and_an_empty_one_are_the_defaults)
{
    fl_wheel *w = new_wheel(NULL);
    check_defaults(w);
    fl_wheel_free(w);
    w = new_wheel(&(fl_wheel_config){0});
    check_defaults(w);
    fl_wheel_free(w);
}

TEST(what_is_configured_can_be_read_back)
{
    fl_wheel_config config = {
        .tick_ns = {4, 64, 4096}, .spokes = 32, .worker_id = 0xfffffff7, .start_ns = (1ull << 63) + 5};
    fl_wheel *w = new_wheel(&config);
    fl_wheel_stats stats;
    memset(&config, 0xff, sizeof(config)); /* the wheel has a copy of its own */
    fl_wheel_memory_stats(w, &stats);
    CHECK_EQ(stats.level[1].spokes, 32);
    CHECK_EQ(fl_wheel_coverage_ns(w, 0), 4 * 32);
    CHECK_EQ(fl_wheel_coverage_ns(w, 1), 64 * 32);
    CHECK_EQ(fl_wheel_coverage_ns(w, 2), 4096 * 32);
    CHECK_EQ(fl_wheel_max_duration_ns(w), 4096 * 32);
    CHECK_EQ(fl_wheel_worker_id(w), 0xfffffff7);
    CHECK_EQ(fl_wheel_start_ns(w), (1ull << 63) + 5);
    CHECK_EQ(fl_wheel_now_ns(w), (1ull << 63) + 5);
    fl_wheel_free(w);
}

/* Each member has its own default. */
TEST(a_part_of_the_geometry_can_be_left_to_the_defaults)
{
    fl_wheel *w = new_wheel(&(fl_wheel_config){.tick_ns = {1 << 10}});
    CHECK_EQ(fl_wheel_coverage_ns(w, 0), 1 << 20);
    CHECK_EQ(fl_wheel_coverage_ns(w, 1), TICK1 * 1024);
    fl_wheel_free(w);
    w = new_wheel(&(fl_wheel_config){.tick_ns = {0, 0, 1ull << 40}, .spokes = 8});
    CHECK_EQ(fl_wheel_coverage_ns(w, 0), TICK0 * 8);
    CHECK_EQ(fl_wheel_coverage_ns(w, 2), 1ull << 43);
    fl_wheel_free(w);
}

static void check_refused(fl_wheel_config config, int error)
{
    fl_wheel *const untouched = (fl_wheel *)&config;
    fl_wheel *w = untouched;
    CHECK_EQ(fl_wheel_new(&config, &w), error);
    CHECK(w == untouched);
}

TEST(illegal_geometry_is_refused)
{
    check_refused((fl_wheel_config){.tick_ns = {3, 64, 4096}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {4, 65, 4096}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {4, 64, 4095}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {4, 64, UINT64_MAX}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {64, 4, 4096}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {4, 4096, 64}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {64, 64, 4096}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {4, 64, 64}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {TICK1}}, FL_INVALID_ARGUMENT); /* no less than the default above it */
    check_refused((fl_wheel_config){.tick_ns = {0, 0, TICK1}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.spokes = 3}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.spokes = 1023}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.spokes = 8192}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.spokes = 1u << 31}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.spokes = UINT32_MAX}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.compaction = {0, 3, 4}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.compaction = {0, 1, 0}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.compaction = {0, 0, 5}}, FL_INVALID_ARGUMENT);
    check_refused((fl_wheel_config){.tick_ns = {1, 2, 1ull << 63}, .spokes = 4}, FL_OVERFLOW);
    check_refused((fl_wheel_config){.tick_ns = {1, 2, 1ull << 53}, .spokes = 4096}, FL_OVERFLOW);
}

/* A short life in a wheel of the given form: every magnitude, polls large and small, moves and cancels. */
static void exercise(const fl_wheel_config *config, uint64_t random, int operations)
{
    struct twin t;
    twin_new(&t, config);
    t.lazy_checks = true;
    uint64_t reach_ns = fl_wheel_max_duration_ns(t.wheel);
    for (int i = 0; i < operations; i++) {
        uint64_t deadline_ns = saturating_add(t.now_ns, random_distance(&random, reach_ns)),
                 what = random_below(&random, 8);
        if (what < 4 || t.count == 0)
            twin_schedule(&t, deadline_ns, NULL);
        else if (what == 4)
            twin_cancel(&t, twin_timer(&t, random_below(&random, t.count))->id);
        else if (what == 5)
            twin_reschedule(&t, twin_timer(&t, random_below(&random, t.count))->id, deadline_ns, NULL);
        else
            twin_poll(&t, saturating_add(t.now_ns, random_distance(&random, reach_ns / 8 + 1)) & ~(1ull << 63), 20);
        twin_next_deadline(&t, NULL);
    }
    twin_poll(&t, saturating_add(t.now_ns, reach_ns), SIZE_MAX);
    twin_free(&t);
}

TEST(every_legal_number_of_spokes_works)
{
    for (uint32_t spokes = 1; spokes <= FL_WHEEL_MAX_SPOKES; spokes *= 2) {
        exercise(&(fl_wheel_config){.spokes = spokes}, spokes, 2000);
        exercise(&(fl_wheel_config){.spokes = spokes, .coarse = true}, spokes, 2000);
        exercise(&(fl_wheel_config){.spokes = spokes, .tick_ns = {1, 2, 4}}, spokes, 2000);
        exercise(&(fl_wheel_config){.spokes = spokes, .tick_ns = {1, 2, 1ull << 51}}, spokes, 2000);
    }
}

TEST(random_legal_geometries_work)
{
    uint64_t random = 1;
    for (int i = 0; i < SCALE(400, 60); i++) {
        unsigned spokes = (unsigned)random_below(&random, 13), bits[3];
        bits[0] = (unsigned)random_below(&random, 62 - spokes);
        bits[1] = bits[0] + 1 + (unsigned)random_below(&random, 62 - spokes - bits[0]);
        bits[2] = bits[1] + 1 + (unsigned)random_below(&random, 63 - spokes - bits[1]);
        fl_wheel_config config = {.tick_ns = {1ull << bits[0], 1ull << bits[1], 1ull << bits[2]},
                                  .spokes = 1u << spokes,
                                  .coarse = i % 3 == 0,
                                  .start_ns = random_next(&random) >> (1 + random_below(&random, 63)),
                                  .compaction = {(uint32_t)i % 5, 4 + (uint32_t)i % 3, 1 + (uint32_t)i % 4}};
        exercise(&config, (uint64_t)i, 1000);
    }
}

/* ---- What may be left out. */

TEST(whatever_may_be_null_may_be_null)
{
    fl_wheel *w = new_wheel(NULL);
    fl_timer_id id;
    fl_expired out[4];
    fl_wheel_free(NULL);
    CHECK_EQ(fl_wheel_schedule(w, SECOND, NULL, NULL), 0);
    CHECK_EQ(fl_wheel_schedule_best_fit(w, WEEK, NULL, NULL, NULL), 0);
    CHECK_EQ(fl_wheel_schedule_best_fit(w, SECOND, NULL, &id, NULL), 0);
    CHECK_EQ(fl_wheel_cancel(w, id, NULL), 0);
    CHECK_EQ(fl_wheel_cancel(w, id, NULL), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_wheel_cancel(w, 0, NULL), FL_INVALID_TIMER_ID);
    CHECK_EQ(fl_wheel_schedule(w, SECOND, NULL, &id), 0);
    CHECK_EQ(fl_wheel_reschedule(w, id, HOUR, NULL), 0);
    CHECK_EQ(fl_wheel_reschedule(w, id, HOUR, NULL), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_wheel_poll(w, SECOND, NULL, 0), 0);
    CHECK_EQ(fl_wheel_poll(w, DAY, out, 4), 3);
    for (int i = 0; i < 3; i++)
        CHECK(out[i].data == NULL);
    CHECK_EQ(fl_wheel_check(w, NULL), 0);
    fl_wheel_free(w);
}

/* ---- Clear. */

TEST(clear_forgets_all_timers_and_keeps_now)
{
    struct twin t;
    uint64_t random = 2;
    twin_new(&t, &(fl_wheel_config){.start_ns = HOUR});
    t.lazy_checks = true;
    for (int round = 0; round < 5; round++) {
        twin_clear(&t);
        for (int i = 0; i < 5000; i++)
            twin_schedule(&t, t.now_ns + 1 + random_distance(&random, REACH - 1), NULL);
        twin_poll(&t, t.now_ns + HOUR, 100);
        uint64_t now_ns = t.now_ns;
        twin_clear(&t);
        CHECK_EQ(fl_wheel_now_ns(t.wheel), now_ns);
        CHECK_EQ(fl_wheel_start_ns(t.wheel), HOUR);
        CHECK_EQ(fl_wheel_count(t.wheel), 0);
        CHECK(!twin_next_deadline(&t, NULL));
        for (size_t i = t.dead_count - 5000; i < t.dead_count; i += 7)
            CHECK_EQ(twin_cancel(&t, t.dead[i]), FL_TIMER_NOT_FOUND);
        CHECK_EQ(twin_poll(&t, now_ns + 2 * REACH, SIZE_MAX), 0);
    }
    twin_free(&t);
}

/* ---- Threads. */

struct reader {
    const fl_wheel *wheel;
    atomic_bool stop;
    bool went_back;
};

static void *read_now(void *argument)
{
    struct reader *reader = argument;
    for (uint64_t last_ns = 0; !atomic_load_explicit(&reader->stop, memory_order_relaxed);) {
        uint64_t now_ns = fl_wheel_now_ns(reader->wheel);
        reader->went_back |= now_ns < last_ns;
        last_ns = now_ns;
    }
    return NULL;
}

TEST(now_may_be_read_from_another_thread)
{
    fl_wheel *w = new_wheel(NULL);
    struct reader reader = {.wheel = w};
    fl_expired out[8];
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, read_now, &reader), 0);
    for (uint64_t i = 1; i < 100000; i++) {
        CHECK_EQ(fl_wheel_schedule(w, i * TICK0 + 5, NULL, NULL), 0);
        fl_wheel_poll(w, i * TICK0, out, 8);
    }
    atomic_store(&reader.stop, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(!reader.went_back);
    fl_wheel_free(w);
}

TEST(a_wheel_may_reach_over_all_of_time)
{
    const fl_wheel_config configs[] = {{.tick_ns = {1, 2, 1ull << 63}, .spokes = 2},
                                       {.tick_ns = {1ull << 20, 1ull << 30, 1ull << 52}, .spokes = 4096}};
    for (int i = 0; i < 2; i++) {
        struct twin t;
        uint64_t wheel_deadline_ns;
        CHECK_EQ(twin_new(&t, &configs[i]), 0);
        CHECK_EQ(fl_wheel_max_duration_ns(t.wheel), UINT64_MAX);
        CHECK_EQ(fl_wheel_coverage_ns(t.wheel, 2), UINT64_MAX);
        for (unsigned bit = 0; bit < 64; bit++)
            CHECK_EQ(twin_schedule(&t, 1ull << bit, NULL), 0);
        CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), 0);
        CHECK_EQ(twin_best_fit(&t, UINT64_MAX - 1, NULL, &wheel_deadline_ns), 0);
        CHECK_EQ(wheel_deadline_ns, UINT64_MAX - 1);
        for (unsigned bit = 0; bit < 64; bit++)
            CHECK_EQ(twin_poll(&t, 1ull << bit, SIZE_MAX), 1);
        CHECK_EQ(twin_best_fit(&t, UINT64_MAX - 1, NULL, &wheel_deadline_ns), 0);
        CHECK_EQ(twin_poll(&t, UINT64_MAX - 2, SIZE_MAX), 0);
        CHECK_EQ(twin_poll(&t, UINT64_MAX - 1, SIZE_MAX), 3);
        twin_free(&t);
    }
}
