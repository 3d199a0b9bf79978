/* SPDX-License-Identifier: MIT */
/* When the wheel's timers come out, and in which order. */

#include <stdlib.h>
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

/* ---- Never early, never late. */

static void shuffle(uint64_t *numbers, uint64_t count)
{
    uint64_t random = count;
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t j = random_below(&random, i + 1), other = numbers[i];
        numbers[i] = numbers[j];
        numbers[j] = other;
    }
}

/* One timer at every distance there is, from 0 to the reach of the wheel, in random order. Each must come with the first
 * poll that is not before it, and polls are one tick apart. */
static void check_every_distance(const fl_wheel_config *config)
{
    fl_wheel *w = new_wheel(config);
    uint64_t reach_ns = fl_wheel_max_duration_ns(w), start_ns = config->start_ns, due = 0;
    uint64_t tick_ns = config->tick_ns[0];
    uint64_t *deadlines_ns = malloc((reach_ns + 1) * sizeof(*deadlines_ns));
    fl_expired *out = malloc((tick_ns + 1) * sizeof(*out));
    for (uint64_t i = 0; i <= reach_ns; i++)
        deadlines_ns[i] = start_ns + i;
    shuffle(deadlines_ns, reach_ns + 1);
    for (uint64_t i = 0; i <= reach_ns; i++)
        CHECK_EQ(fl_wheel_schedule(w, deadlines_ns[i], NULL, NULL), 0);
    for (uint64_t now_ns = start_ns; due <= reach_ns; now_ns += tick_ns) {
        size_t n = fl_wheel_poll(w, now_ns, out, tick_ns + 1);
        for (size_t i = 0; i < n; i++)
            CHECK_EQ(out[i].deadline_ns, start_ns + due++);
        CHECK_EQ(due, now_ns < start_ns + reach_ns ? now_ns - start_ns + 1 : reach_ns + 1);
    }
    CHECK_EQ(fl_wheel_count(w), 0);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    free(deadlines_ns);
    free(out);
    fl_wheel_free(w);
}

TEST(never_early_and_at_most_one_tick_late_at_every_distance)
{
    static const uint64_t starts_ns[] = {1, 15, 16, 255, 4095, 4097, 65535, 123456789, (1ull << 63) - 30000};
    for (size_t i = 0; i < sizeof(starts_ns) / sizeof(*starts_ns); i += SCALE(1, 4)) {
        check_every_distance(
            &(fl_wheel_config){.tick_ns = {1 << 4, 1 << 8, 1 << 12}, .spokes = 16, .start_ns = starts_ns[i]});
        check_every_distance(
            &(fl_wheel_config){.tick_ns = {1, 1 << 7, 1 << 11}, .spokes = 32, .start_ns = starts_ns[i]});
        check_every_distance(
            &(fl_wheel_config){.tick_ns = {1 << 4, 1 << 9, 1 << 15}, .spokes = 2, .start_ns = starts_ns[i]});
        check_every_distance(
            &(fl_wheel_config){.tick_ns = {1 << 3, 1 << 4, 1 << 15}, .spokes = 1, .start_ns = starts_ns[i]});
    }
}

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The whole reach of a wheel, polled every tick, with timers of every magnitude and at both sides of every level. */
TEST(a_poll_every_tick_over_the_whole_reach_is_never_late)
{
    enum { COUNT = 20000 };
    static uint64_t deadlines_ns[COUNT];
    static fl_expired out[COUNT];
    fl_wheel_config small = {.tick_ns = {TICK0, TICK0 << 6, TICK0 << 12}, .spokes = 64};
    fl_wheel *w = new_wheel(SCALE(NULL, &small));
    uint64_t reach_ns = fl_wheel_max_duration_ns(w), now_ns = 0, random = 1;
    size_t due = 0;
    for (int i = 0; i < COUNT; i++) {
        uint64_t border_ns = fl_wheel_coverage_ns(w, (unsigned)i / 5 % 3) - 2 + (unsigned)i % 5;
        deadlines_ns[i] = 1 + (i < 15 ? border_ns : random_distance(&random, reach_ns));
        if (deadlines_ns[i] > reach_ns)
            deadlines_ns[i] = reach_ns;
        CHECK_EQ(fl_wheel_schedule(w, deadlines_ns[i], NULL, NULL), 0);
    }
    qsort(deadlines_ns, COUNT, sizeof(*deadlines_ns), compare_ns);
    for (; due < COUNT; now_ns += TICK0) {
        size_t n = fl_wheel_poll(w, now_ns, out, COUNT);
        for (size_t i = 0; i < n; i++)
            CHECK_EQ(out[i].deadline_ns, deadlines_ns[due++]);
        CHECK(due == COUNT || deadlines_ns[due] > now_ns);
        CHECK(due == 0 || deadlines_ns[due - 1] <= now_ns);
    }
    fl_wheel_free(w);
}

/* As before, but the timers are scheduled on the way, so that they meet the wheel at every phase of its ticks. */
TEST(timers_scheduled_at_any_phase_come_in_time)
{
    fl_wheel_config config = {.tick_ns = {1 << 4, 1 << 8, 1 << 12}, .spokes = 16};
    struct twin t;
    uint64_t random = 2;
    twin_new(&t, &config);
    t.lazy_checks = true;
    for (int i = 0; i < SCALE(200000, 20000); i++) {
        twin_schedule(&t, t.now_ns + 1 + random_distance(&random, 65535), NULL);
        twin_poll(&t, t.now_ns + random_below(&random, 17), SIZE_MAX);
    }
    twin_poll(&t, t.now_ns + 65536, SIZE_MAX);
    CHECK_EQ(t.count, 0);
    twin_free(&t);
}

static void schedule_at_all_distances(struct twin *t, unsigned count, uint64_t random)
{
    uint64_t reach_ns = fl_wheel_max_duration_ns(t->wheel);
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(twin_schedule(t, t->now_ns + 1 + random_distance(&random, reach_ns - 1), NULL), 0);
}

TEST(one_poll_after_an_hour_brings_everything_due_and_nothing_else)
{
    struct twin t;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    schedule_at_all_distances(&t, SCALE(20000, 5000), 3);
    CHECK(twin_poll(&t, HOUR, SIZE_MAX) > 0);
    CHECK(t.count > 0);
    twin_poll(&t, 2 * HOUR, SIZE_MAX);
    twin_poll(&t, 3 * HOUR - 1, SIZE_MAX);
    CHECK(t.count > 0);
    twin_poll(&t, REACH, SIZE_MAX);
    CHECK_EQ(t.count, 0);
    twin_free(&t);
}

TEST(one_poll_after_a_year_brings_everything_due_and_nothing_else)
{
    struct twin t;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    for (int year = 1; year <= 3; year++) {
        schedule_at_all_distances(&t, SCALE(20000, 5000), (uint64_t)year);
        CHECK_EQ(twin_poll(&t, (uint64_t)year * YEAR, SIZE_MAX), SCALE(20000, 5000));
        CHECK_EQ(t.count, 0);
    }
    twin_free(&t);
}

/* Deadlines a full turn of a level apart lie in the same spoke: only the due one may come. */
TEST(timers_of_the_same_spoke_and_different_turns_do_not_mix)
{
    for (unsigned level = 0; level < 3; level++) {
        struct twin t;
        twin_new(&t, NULL);
        uint64_t turn_ns = fl_wheel_coverage_ns(t.wheel, level);
        for (int i = 0; i < 100; i++) {
            uint64_t at_ns = t.now_ns + turn_ns / 2;
            twin_schedule(&t, at_ns, NULL);
            if (level < 2)
                twin_schedule(&t, at_ns + turn_ns, NULL);
            twin_poll(&t, at_ns - 1, SIZE_MAX);
            twin_poll(&t, at_ns, SIZE_MAX);
            twin_schedule(&t, at_ns + turn_ns, NULL);
            twin_poll(&t, at_ns + turn_ns - 1, SIZE_MAX);
            twin_poll(&t, at_ns + turn_ns, SIZE_MAX);
            CHECK_EQ(t.count, 0);
        }
        twin_free(&t);
    }
}

/* ---- Age. */

static const uint64_t ages_ns[] = {0, HOUR, 20 * HOUR, DAY, WEEK, YEAR, 10 * YEAR, 100 * YEAR, (1ull << 63) - 12345};
static const uint64_t distances_ns[] = {
    0,      1,           TICK0 - 1,   TICK0, TICK0 + 1, SECOND,        TICK1 - 1, TICK1, TICK1 + TICK0,
    MINUTE, 18 * MINUTE, 20 * MINUTE, HOUR,  19 * HOUR, REACH - TICK2, REACH - 1, REACH,
};

/* One timer at a time: nothing a nanosecond before it, itself at its deadline. */
static void check_lone_timers(struct twin *t)
{
    for (size_t i = 0; i < sizeof(distances_ns) / sizeof(*distances_ns); i++) {
        uint64_t deadline_ns = t->now_ns + distances_ns[i];
        if (deadline_ns == 0)
            continue;
        CHECK_EQ(twin_schedule(t, deadline_ns, NULL), 0);
        CHECK_EQ(twin_schedule(t, t->now_ns + REACH + 1, NULL), FL_DEADLINE_TOO_FAR);
        if (distances_ns[i] > 0)
            CHECK_EQ(twin_poll(t, deadline_ns - 1, SIZE_MAX), 0);
        CHECK_EQ(twin_poll(t, deadline_ns, SIZE_MAX), 1);
    }
}

TEST(works_at_any_age)
{
    struct twin t;
    twin_new(&t, NULL);
    for (size_t i = 0; i < sizeof(ages_ns) / sizeof(*ages_ns); i++) {
        twin_poll(&t, ages_ns[i], SIZE_MAX);
        check_lone_timers(&t);
    }
    twin_free(&t);
}

TEST(works_at_any_start)
{
    for (size_t i = 0; i < sizeof(ages_ns) / sizeof(*ages_ns); i++) {
        struct twin t;
        twin_new(&t, &(fl_wheel_config){.start_ns = ages_ns[i]});
        CHECK_EQ(fl_wheel_now_ns(t.wheel), ages_ns[i]);
        check_lone_timers(&t);
        twin_free(&t);
    }
}

/* Ten years of a server: a poll every few minutes to hours, timers of all kinds always under way. */
TEST(ten_years_of_work_change_nothing)
{
    struct twin t;
    uint64_t random = 4;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    while (t.now_ns < 10 * YEAR) {
        schedule_at_all_distances(&t, 5, random_next(&random));
        twin_poll(&t, t.now_ns + random_below(&random, SCALE(6, 48) * HOUR), SIZE_MAX);
        twin_next_deadline(&t, NULL);
    }
    twin_free(&t);
}

/* ---- The end of time. */

TEST(deadlines_near_the_end_of_time_do_not_wrap)
{
    struct twin t;
    twin_new(&t, &(fl_wheel_config){.start_ns = UINT64_MAX - 3 * HOUR});
    CHECK_EQ(twin_schedule(&t, UINT64_MAX, NULL), FL_OVERFLOW);
    CHECK_EQ(twin_schedule(&t, 1, NULL), FL_INVALID_DEADLINE);
    for (uint64_t left_ns = 1; left_ns < 3 * HOUR; left_ns *= 2)
        CHECK_EQ(twin_schedule(&t, UINT64_MAX - left_ns, NULL), 0);
    CHECK_EQ(twin_poll(&t, UINT64_MAX - 3 * HOUR, SIZE_MAX), 0);
    while (t.count > 0) {
        uint64_t next_ns;
        CHECK(twin_next_deadline(&t, &next_ns));
        CHECK_EQ(twin_poll(&t, next_ns - 1, SIZE_MAX), 0);
        CHECK_EQ(twin_poll(&t, next_ns, SIZE_MAX), 1);
    }
    CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), 0);
    CHECK_EQ(twin_poll(&t, UINT64_MAX, SIZE_MAX), 1);
    twin_free(&t);
}

TEST(a_poll_at_the_end_of_time_brings_everything)
{
    struct twin t;
    twin_new(&t, NULL);
    schedule_at_all_distances(&t, 1000, 5);
    CHECK_EQ(twin_poll(&t, UINT64_MAX, SIZE_MAX), 1000);
    CHECK_EQ(twin_poll(&t, UINT64_MAX, SIZE_MAX), 0);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX, NULL), FL_OVERFLOW);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), 0);
    CHECK_EQ(twin_poll(&t, 0, SIZE_MAX), 1);
    twin_free(&t);
}

/* By then every deadline is in the past, the last one too. */
TEST(ties_keep_their_order_at_the_end_of_time)
{
    struct twin t;
    twin_new(&t, NULL);
    twin_poll(&t, UINT64_MAX, SIZE_MAX);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), 0);
    CHECK_EQ(twin_best_fit(&t, UINT64_MAX - 1, NULL, NULL), 0);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), 0);
    CHECK_EQ(twin_poll(&t, UINT64_MAX, SIZE_MAX), 3);
    twin_free(&t);
}

/* ---- Limits. */

TEST(limit_defers_and_never_drops)
{
    static const size_t limits[] = {1, 2, 3, 7, 64, 999, 1000, 1001};
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        struct twin t;
        size_t total = 0;
        twin_new(&t, NULL);
        t.lazy_checks = true;
        schedule_at_all_distances(&t, 1000, i);
        uint64_t now_ns = twin_timer(&t, 799)->deadline_ns;
        size_t due = 800;
        while (due < 1000 && twin_timer(&t, due)->deadline_ns == now_ns)
            due++;
        for (size_t n = limits[i]; n == limits[i]; total += n)
            n = twin_poll(&t, now_ns, limits[i]);
        CHECK_EQ(total, due);
        CHECK_EQ(t.count, 1000 - due);
        twin_free(&t);
    }
}

/* While old timers wait behind the limit, new ones keep coming: due at once, or ever a little earlier or later than the
 * ones that wait. */
TEST(a_small_limit_starves_no_spoke)
{
    struct twin t;
    uint64_t random = 6;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    schedule_at_all_distances(&t, 2000, 7);
    twin_poll(&t, REACH, 0);
    for (int i = 0; i < 1000; i++) {
        twin_schedule(&t, t.now_ns - random_below(&random, TICK0 + 1), NULL);
        twin_schedule(&t, t.now_ns + random_distance(&random, SECOND), NULL);
        CHECK_EQ(twin_poll(&t, t.now_ns + random_below(&random, TICK0), 3), 3);
    }
    while (t.count > 0)
        twin_poll(&t, t.now_ns + TICK0, 3);
    twin_free(&t);
}

/* What the limit holds back can be cancelled and moved like any other timer. */
TEST(deferred_timers_live_on)
{
    struct twin t;
    fl_timer_id ids[100];
    twin_new(&t, NULL);
    for (int i = 0; i < 100; i++)
        twin_schedule(&t, SECOND * (1 + (uint64_t)i % 10), &ids[i]);
    CHECK_EQ(twin_poll(&t, MINUTE, 10), 10);
    CHECK_EQ(twin_cancel(&t, ids[0]), FL_TIMER_NOT_FOUND);
    for (int i = 1; i < 100; i += 10)
        CHECK_EQ(twin_cancel(&t, ids[i]), 0);
    for (int i = 2; i < 100; i += 10)
        CHECK_EQ(twin_reschedule(&t, ids[i], MINUTE + SECOND, NULL), 0);
    for (int i = 3; i < 100; i += 10)
        CHECK_EQ(twin_reschedule(&t, ids[i], MINUTE - 1, NULL), 0);
    twin_next_deadline(&t, NULL);
    twin_compact(&t);
    CHECK_EQ(twin_poll(&t, MINUTE, SIZE_MAX), 70);
    CHECK_EQ(twin_poll(&t, HOUR, SIZE_MAX), 10);
    twin_free(&t);
}

TEST(limit_zero_is_allowed)
{
    struct twin t;
    twin_new(&t, NULL);
    CHECK_EQ(fl_wheel_poll(t.wheel, 0, NULL, 0), 0);
    schedule_at_all_distances(&t, 100, 8);
    CHECK_EQ(fl_wheel_poll(t.wheel, 0, NULL, 0), 0);
    for (uint64_t now_ns = 1; now_ns < 2 * REACH; now_ns *= 2)
        CHECK_EQ(twin_poll(&t, now_ns, 0), 0);
    CHECK_EQ(t.count, 100);
    CHECK_EQ(twin_poll(&t, t.now_ns, SIZE_MAX), 100);
    CHECK_EQ(fl_wheel_poll(t.wheel, 3 * REACH, NULL, 0), 0);
    CHECK_EQ(fl_wheel_now_ns(t.wheel), 3 * REACH);
    t.now_ns = 3 * REACH;
    twin_free(&t);
}

TEST(a_limit_beyond_all_bounds_is_allowed)
{
    fl_wheel *w = new_wheel(NULL);
    fl_expired out[4];
    for (uint64_t i = 1; i <= 4; i++)
        CHECK_EQ(fl_wheel_schedule(w, i * SECOND, NULL, NULL), 0);
    CHECK_EQ(fl_wheel_poll(w, SECOND, out, SIZE_MAX), 1);
    CHECK_EQ(fl_wheel_poll(w, HOUR, out, SIZE_MAX / sizeof(*out)), 3);
    fl_wheel_free(w);
}

/* One at a time out of very many, all due: a poll that looked at all of them would take hours here. */
TEST(a_small_limit_among_very_many_due_costs_little)
{
    static const uint64_t spans_ns[] = {1, TICK0 / 2, 12 * HOUR};
    for (int s = 0; s < 3; s++) {
        uint64_t random = 9, count = SCALE(500000, 100000), last_ns = 0;
        fl_wheel *w = new_wheel(NULL);
        fl_expired out;
        for (uint64_t i = 0; i < count; i++)
            fl_wheel_schedule(w, 2 * HOUR + random_below(&random, spans_ns[s]), NULL, NULL);
        for (uint64_t i = 0; i < count; i++) {
            CHECK_EQ(fl_wheel_poll(w, 15 * HOUR, &out, 1), 1);
            CHECK(out.deadline_ns >= last_ns);
            last_ns = out.deadline_ns;
        }
        CHECK_EQ(fl_wheel_poll(w, 15 * HOUR, &out, 1), 0);
        CHECK_EQ(fl_wheel_check(w, stdout), 0);
        fl_wheel_free(w);
    }
}

/* ---- Order. */

TEST(deadline_order_and_ties_in_schedule_order)
{
    static const uint64_t spans_ns[] = {1, 10, TICK0 - 1, 3 * TICK0, SECOND, 20 * MINUTE, 10 * HOUR};
    for (size_t s = 0; s < sizeof(spans_ns) / sizeof(*spans_ns); s++) {
        struct twin t;
        uint64_t random = s;
        twin_new(&t, NULL);
        t.lazy_checks = true;
        for (int i = 0; i < 3000; i++) {
            uint64_t steps = spans_ns[s] < 100 ? spans_ns[s] : 100;
            twin_schedule(&t, HOUR + random_below(&random, steps) * (spans_ns[s] / steps), NULL);
        }
        CHECK_EQ(twin_poll(&t, REACH, SIZE_MAX), 3000);
        twin_free(&t);
    }
}

/* Equal deadlines that were scheduled from different distances lie in different levels. */
TEST(ties_keep_their_order_across_levels)
{
    static const uint64_t before_ns[] = {18 * HOUR, 5 * HOUR, HOUR,      17 * MINUTE, MINUTE, 2 * SECOND,
                                         SECOND,    TICK0,    TICK0 / 2, 1,           0};
    for (int limit = 1; limit <= 100; limit += 33) {
        struct twin t;
        uint64_t deadline_ns = 19 * HOUR + 12345;
        twin_new(&t, NULL);
        for (size_t i = 0; i < sizeof(before_ns) / sizeof(*before_ns); i++) {
            twin_poll(&t, deadline_ns - before_ns[i], 0);
            for (int k = 0; k < 3; k++) {
                twin_schedule(&t, deadline_ns, NULL);
                twin_schedule(&t, deadline_ns + (uint64_t)k, NULL);
            }
        }
        while (t.count > 0)
            twin_poll(&t, deadline_ns + 2, (size_t)limit);
        twin_free(&t);
    }
}

/* A timer of L1 or L2 whose turn has come while a later one of L0 is due too. */
TEST(order_holds_between_the_levels_of_one_poll)
{
    struct twin t;
    uint64_t random = 10;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    for (int round = 0; round < 200; round++) {
        uint64_t at_ns = t.now_ns + 2 * HOUR;
        for (int i = 0; i < 10; i++)
            twin_schedule(&t, at_ns + random_below(&random, 100 * MILLISECOND), NULL);
        twin_poll(&t, at_ns - 5 * SECOND, SIZE_MAX);
        for (int i = 0; i < 10; i++)
            twin_schedule(&t, at_ns + random_below(&random, 100 * MILLISECOND), NULL);
        twin_poll(&t, at_ns - 50 * MILLISECOND, SIZE_MAX);
        for (int i = 0; i < 10; i++)
            twin_schedule(&t, at_ns + random_below(&random, 100 * MILLISECOND), NULL);
        twin_poll(&t, at_ns + random_below(&random, 100 * MILLISECOND), 7);
        twin_poll(&t, at_ns + 100 * MILLISECOND, SIZE_MAX);
        CHECK_EQ(t.count, 0);
    }
    twin_free(&t);
}

TEST(a_rescheduled_timer_goes_behind_its_equals)
{
    struct twin t;
    fl_timer_id first, second;
    twin_new(&t, NULL);
    twin_schedule(&t, SECOND, &first);
    twin_schedule(&t, SECOND, &second);
    CHECK_EQ(twin_reschedule(&t, first, SECOND, &first), 0);
    CHECK_EQ(twin_poll(&t, SECOND, SIZE_MAX), 2);
    CHECK(t.out[0].id == second && t.out[1].id == first);
    CHECK(t.out[0].data == (void *)2 && t.out[1].data == (void *)1);
    twin_free(&t);
}

/* ---- Rules of deadlines, and of now. */

TEST(deadline_rules)
{
    struct twin t;
    uint64_t start_ns = 5 * SECOND;
    twin_new(&t, &(fl_wheel_config){.start_ns = start_ns});
    CHECK_EQ(twin_schedule(&t, 0, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_schedule(&t, 1, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_schedule(&t, start_ns - 1, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_schedule(&t, start_ns, NULL), 0);
    CHECK_EQ(twin_schedule(&t, start_ns + REACH, NULL), 0);
    CHECK_EQ(twin_schedule(&t, start_ns + REACH + 1, NULL), FL_DEADLINE_TOO_FAR);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), FL_DEADLINE_TOO_FAR);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX, NULL), FL_OVERFLOW);
    CHECK_EQ(twin_poll(&t, start_ns, SIZE_MAX), 1);
    twin_poll(&t, start_ns + TICK0 / 2, SIZE_MAX);
    CHECK_EQ(twin_schedule(&t, start_ns - 1, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_schedule(&t, start_ns, NULL), 0);
    CHECK_EQ(twin_poll(&t, t.now_ns, SIZE_MAX), 1);
    twin_free(&t);
}

/* A past so far away that its distance from now wraps into the reach of the wheel. */
TEST(a_distant_past_is_no_future)
{
    struct twin t;
    twin_new(&t, &(fl_wheel_config){.tick_ns = {1, 2, 1ull << 63}, .spokes = 1, .start_ns = 10});
    CHECK_EQ(fl_wheel_max_duration_ns(t.wheel), 1ull << 63);
    twin_poll(&t, (1ull << 63) + 100, SIZE_MAX);
    CHECK_EQ(twin_schedule(&t, 50, NULL), FL_INVALID_DEADLINE);
    twin_poll(&t, UINT64_MAX - 100, SIZE_MAX);
    CHECK_EQ(twin_schedule(&t, 50, NULL), FL_INVALID_DEADLINE);
    CHECK_EQ(twin_schedule(&t, UINT64_MAX - 1, NULL), 0);
    CHECK_EQ(twin_best_fit(&t, 50, NULL, NULL), 0);
    twin_free(&t);
}

TEST(a_little_in_the_past_fires_at_the_next_poll)
{
    static const uint64_t offsets_ns[] = {0, 1, TICK0 / 2, TICK0 - 1, TICK0, TICK1 - 1, TICK2};
    for (size_t i = 0; i < sizeof(offsets_ns) / sizeof(*offsets_ns); i++) {
        struct twin t;
        twin_new(&t, NULL);
        twin_poll(&t, HOUR + offsets_ns[i], SIZE_MAX);
        for (uint64_t back_ns = 1; back_ns <= TICK0; back_ns *= 2) {
            CHECK_EQ(twin_schedule(&t, t.now_ns - back_ns, NULL), 0);
            CHECK_EQ(twin_poll(&t, t.now_ns, SIZE_MAX), 1);
        }
        CHECK_EQ(twin_schedule(&t, t.now_ns, NULL), 0);
        CHECK_EQ(twin_schedule(&t, t.now_ns - TICK0 - 1, NULL), FL_INVALID_DEADLINE);
        CHECK_EQ(twin_schedule(&t, t.now_ns - HOUR, NULL), FL_INVALID_DEADLINE);
        CHECK_EQ(twin_poll(&t, 0, SIZE_MAX), 1);
        twin_free(&t);
    }
}

TEST(now_going_backwards_changes_nothing)
{
    struct twin t;
    twin_new(&t, NULL);
    t.lazy_checks = true;
    schedule_at_all_distances(&t, 1000, 11);
    twin_poll(&t, HOUR, 5);
    for (uint64_t back_ns = 1; back_ns < 2 * HOUR; back_ns *= 3) {
        twin_poll(&t, back_ns < HOUR ? HOUR - back_ns : 0, 5);
        CHECK_EQ(fl_wheel_now_ns(t.wheel), HOUR);
        CHECK_EQ(twin_schedule(&t, HOUR - TICK0 - 1, NULL), FL_INVALID_DEADLINE);
        CHECK_EQ(twin_schedule(&t, HOUR + REACH, NULL), 0);
        CHECK_EQ(twin_schedule(&t, HOUR + 1, NULL), 0);
    }
    twin_poll(&t, 0, SIZE_MAX);
    twin_poll(&t, HOUR + 1, SIZE_MAX);
    twin_poll(&t, HOUR, SIZE_MAX);
    twin_poll(&t, HOUR + REACH, SIZE_MAX);
    CHECK_EQ(t.count, 0);
    twin_free(&t);
}

/* ---- Best fit. */

/* Follows one timer to its target; the polls on the way come `late_ns` after the deadline they wait for. Returns how
 * often it had to be scheduled. */
static unsigned follow(struct twin *t, uint64_t target_ns, uint64_t late_ns)
{
    uint64_t wheel_deadline_ns = 0;
    unsigned hops = 0;
    for (; wheel_deadline_ns < target_ns; hops++) {
        uint64_t from_ns = t->now_ns;
        CHECK_EQ(twin_best_fit(t, target_ns, NULL, &wheel_deadline_ns), 0);
        CHECK(wheel_deadline_ns > from_ns && wheel_deadline_ns <= target_ns);
        CHECK_EQ(twin_poll(t, wheel_deadline_ns - 1, SIZE_MAX), 0);
        CHECK_EQ(twin_poll(t, wheel_deadline_ns + late_ns < target_ns ? wheel_deadline_ns + late_ns : wheel_deadline_ns,
                           SIZE_MAX),
                 1);
    }
    CHECK_EQ(t->now_ns, target_ns);
    return hops;
}

TEST(best_fit_reaches_a_week_and_a_year_exactly)
{
    static const uint64_t distances[] = {SECOND,           HOUR,     REACH, REACH + 1, WEEK, WEEK + 1, YEAR,
                                         YEAR + 123456789, 10 * YEAR};
    static const uint64_t lates_ns[] = {0, 1, TICK0, MINUTE};
    for (size_t i = 0; i < sizeof(distances) / sizeof(*distances); i++)
        for (size_t k = 0; k < sizeof(lates_ns) / sizeof(*lates_ns); k++) {
            struct twin t;
            twin_new(&t, &(fl_wheel_config){.start_ns = 987654321});
            t.lazy_checks = true;
            unsigned hops = follow(&t, t.now_ns + distances[i], lates_ns[k]);
            CHECK(hops <= distances[i] / (REACH - TICK2) + 1);
            twin_free(&t);
        }
}

TEST(best_fit_within_reach_is_exact_and_beyond_it_earlier)
{
    struct twin t;
    uint64_t wheel_deadline_ns;
    twin_new(&t, NULL);
    twin_poll(&t, DAY, SIZE_MAX);
    CHECK_EQ(twin_best_fit(&t, DAY + REACH, NULL, &wheel_deadline_ns), 0);
    CHECK_EQ(wheel_deadline_ns, DAY + REACH);
    CHECK_EQ(twin_best_fit(&t, DAY + REACH + 1, NULL, &wheel_deadline_ns), 0);
    CHECK(wheel_deadline_ns < DAY + REACH + 1);
    CHECK_EQ(twin_best_fit(&t, UINT64_MAX - 1, NULL, &wheel_deadline_ns), 0);
    CHECK(wheel_deadline_ns > DAY && wheel_deadline_ns <= DAY + REACH);
    CHECK_EQ(twin_best_fit(&t, UINT64_MAX, NULL, NULL), FL_OVERFLOW);
    CHECK_EQ(twin_best_fit(&t, 0, NULL, NULL), FL_INVALID_DEADLINE);
    twin_free(&t);
}

TEST(best_fit_of_a_past_target_fires_at_once)
{
    static const uint64_t targets_ns[] = {1, SECOND, HOUR, DAY - TICK0 - 1, DAY - 1, DAY};
    struct twin t;
    uint64_t wheel_deadline_ns;
    twin_new(&t, &(fl_wheel_config){.start_ns = HOUR});
    twin_poll(&t, DAY, SIZE_MAX);
    for (size_t i = 0; i < sizeof(targets_ns) / sizeof(*targets_ns); i++) {
        CHECK_EQ(twin_best_fit(&t, targets_ns[i], NULL, &wheel_deadline_ns), 0);
        CHECK_EQ(wheel_deadline_ns, DAY);
        CHECK_EQ(twin_poll(&t, DAY, SIZE_MAX), 1);
    }
    twin_free(&t);
}

/* ---- Coarse wheels. */

TEST(coarse_timers_are_never_early_and_at_most_one_tick_of_their_level_late)
{
    static const struct {
        uint64_t distance_ns, late_ns;
    } cases[] = {
        {1, TICK0},           {TICK0, TICK0},       {SECOND, TICK0}, {2 * SECOND, TICK1}, {MINUTE, TICK1},
        {17 * MINUTE, TICK1}, {20 * MINUTE, TICK2}, {HOUR, TICK2},   {19 * HOUR, TICK2},  {REACH, TICK2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct twin t;
        twin_new(&t, &(fl_wheel_config){.coarse = true, .start_ns = 77777 * SECOND + i});
        uint64_t deadline_ns = t.now_ns + cases[i].distance_ns, step_ns = cases[i].late_ns > TICK0 ? TICK1 : TICK0;
        CHECK_EQ(twin_schedule(&t, deadline_ns, NULL), 0);
        CHECK_EQ(twin_poll(&t, deadline_ns - 1, SIZE_MAX), 0);
        /* Every poll a tick of the level after the deadline at the latest. */
        for (uint64_t now_ns = deadline_ns; now_ns < deadline_ns + cases[i].late_ns; now_ns += step_ns)
            twin_poll(&t, now_ns, SIZE_MAX);
        twin_poll(&t, deadline_ns + cases[i].late_ns, SIZE_MAX);
        CHECK_EQ(t.count, 0);
        twin_free(&t);
    }
}

TEST(coarse_timers_come_in_order)
{
    struct twin t;
    uint64_t random = 12;
    twin_new(&t, &(fl_wheel_config){.coarse = true});
    t.lazy_checks = true;
    for (int i = 0; i < 5000; i++) {
        schedule_at_all_distances(&t, 3, random_next(&random));
        if (i % 4 == 0)
            twin_schedule(&t, t.now_ns - t.now_ns % TICK2 + TICK2, NULL);
        twin_poll(&t, t.now_ns + random_distance(&random, 10 * MINUTE), i % 3 ? SIZE_MAX : 2);
    }
    while (t.count > 0)
        twin_poll(&t, t.now_ns + REACH, 11);
    twin_free(&t);
}

TEST(coarse_and_one_poll_after_a_year)
{
    struct twin t;
    twin_new(&t, &(fl_wheel_config){.coarse = true});
    t.lazy_checks = true;
    schedule_at_all_distances(&t, 5000, 13);
    CHECK_EQ(twin_poll(&t, YEAR, SIZE_MAX), 5000);
    twin_free(&t);
}
