/* SPDX-License-Identifier: MIT */
/* Intervals: their grid, what happens to missed periods, what their callbacks may do. */

#include "loop/loop_test.h"

static fl_timer_id interval;
static unsigned calls;
static uint64_t called_at[64];

/* Writes down when it was called; stops the interval after `arg` calls. */
static void tick(fl_loop *l, void *arg)
{
    CHECK(calls < 64);
    called_at[calls++] = elapsed();
    if (calls == (unsigned)(uintptr_t)arg)
        CHECK_EQ(fl_loop_cancel(l, interval), 0);
}

static void start(uint64_t period_ns, unsigned flags, fl_loop_fn fn, uintptr_t count)
{
    calls = 0;
    CHECK_EQ(fl_loop_interval(loop, period_ns, flags, fn, (void *)count, &interval), 0);
}

TEST(an_interval_stays_on_its_grid)
{
    begin();
    start(10 * MILLISECOND, FL_INTERVAL_SKIP, tick, 50);
    run();
    CHECK_EQ(calls, 50);
    for (unsigned i = 0; i < 50; i++)
        CHECK_EQ(called_at[i], (i + 1) * 10 * MILLISECOND);
    CHECK_EQ(fl_loop_cancel(loop, interval), FL_TIMER_NOT_FOUND);
    end();
}

/* The callback of the second call takes 3.5 periods. */
static void tick_slowly(fl_loop *l, void *arg)
{
    tick(l, arg);
    if (calls == 2)
        test_time.time_ns += 35 * MILLISECOND;
}

static void check_calls(const uint64_t *expected_ms, unsigned count)
{
    CHECK_EQ(calls, count);
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(called_at[i], expected_ms[i] * MILLISECOND);
}

TEST(missed_periods_are_skipped)
{
    begin();
    start(10 * MILLISECOND, FL_INTERVAL_SKIP, tick_slowly, 5);
    run();
    check_calls((uint64_t[]){10, 20, 60, 70, 80}, 5);
    end();
}

TEST(missed_periods_are_caught_up)
{
    begin();
    start(10 * MILLISECOND, FL_INTERVAL_CATCH_UP, tick_slowly, 8);
    run();
    check_calls((uint64_t[]){10, 20, 55, 55, 55, 60, 70, 80}, 8);
    end();
}

TEST(an_interval_from_its_callback_waits_a_whole_period_after_it)
{
    begin();
    start(10 * MILLISECOND, FL_INTERVAL_FROM_CALLBACK, tick_slowly, 4);
    run();
    check_calls((uint64_t[]){10, 20, 65, 75}, 4);
    end();
}

/* A callback that ends exactly when the next period begins has missed nothing. */
static void tick_for_a_period(fl_loop *l, void *arg)
{
    tick(l, arg);
    test_time.time_ns += 10 * MILLISECOND;
}

TEST(a_period_that_is_due_right_now_is_not_missed)
{
    begin();
    start(10 * MILLISECOND, FL_INTERVAL_SKIP, tick_for_a_period, 4);
    run();
    check_calls((uint64_t[]){10, 20, 30, 40}, 4);
    end();
}

TEST(one_missed_period_is_made_up_for_in_each_turn)
{
    begin();
    start(10 * MILLISECOND, FL_INTERVAL_CATCH_UP, tick, 0);
    test_time.time_ns += 45 * MILLISECOND;
    for (unsigned i = 1; i <= 4; i++) {
        turn();
        CHECK_EQ(calls, i);
    }
    turn();
    CHECK_EQ(calls, 4);
    end();
}

static void tick_and_make_another(fl_loop *l, void *arg)
{
    tick(l, arg);
    CHECK_EQ(fl_loop_timer(l, 10 * MILLISECOND, note, "t", NULL), 0);
    write_down("i");
}

TEST(an_interval_takes_its_place_behind_what_its_callback_has_made)
{
    begin();
    start(10 * MILLISECOND, 0, tick_and_make_another, 3);
    run();
    CHECK_DIARY("ititit");
    end();
}

static void rearm_own(fl_loop *l, void *arg)
{
    tick(l, arg);
    if (calls == 1)
        CHECK_EQ(fl_loop_rearm(l, interval, 3 * MILLISECOND), 0);
}

TEST(an_interval_that_rearms_itself_goes_on_from_there)
{
    begin();
    start(10 * MILLISECOND, 0, rearm_own, 3);
    run();
    check_calls((uint64_t[]){10, 13, 23}, 3);
    end();
}

static void cancel_and_replace(fl_loop *l, void *arg)
{
    (void)arg;
    write_down("c");
    CHECK_EQ(fl_loop_cancel(l, interval), 0);
    CHECK_EQ(fl_loop_timer(l, MILLISECOND, note, "n", NULL), 0); /* in its memory */
}

TEST(an_interval_that_cancels_itself_is_not_armed_anew_in_anothers_place)
{
    begin();
    start(10 * MILLISECOND, 0, cancel_and_replace, 0);
    run();
    CHECK_DIARY("cn");
    CHECK_EQ(elapsed(), 11 * MILLISECOND);
    end();
}

TEST(an_unreferenced_interval_does_not_keep_the_loop_alive)
{
    begin();
    start(10 * MILLISECOND, FL_TIMER_UNREF, tick, 0);
    CHECK(!fl_loop_alive(loop));
    make_timer(35 * MILLISECOND, "x");
    run();
    check_calls((uint64_t[]){10, 20, 30}, 3);
    CHECK_EQ(fl_loop_ref(loop, interval), 0);
    CHECK_EQ(fl_loop_ref(loop, interval), 0);
    CHECK(fl_loop_alive(loop));
    CHECK_EQ(fl_loop_unref(loop, interval), 0);
    CHECK_EQ(fl_loop_unref(loop, interval), 0);
    CHECK(!fl_loop_alive(loop));
    CHECK_EQ(fl_loop_cancel(loop, interval), 0);
    CHECK_EQ(fl_loop_ref(loop, interval), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_loop_unref(loop, interval), FL_TIMER_NOT_FOUND);
    end();
}

TEST(an_interval_longer_than_the_wheel_reaches_stays_on_its_grid)
{
    begin();
    start(50 * DAY, 0, tick, 20);
    run();
    for (unsigned i = 0; i < 20; i++)
        CHECK_EQ(called_at[i], (i + 1) * 50 * DAY);
    end();
}

TEST(slack_does_not_move_the_grid_of_an_interval)
{
    begin();
    fl_loop_timer_options options = {.deadline_ns = START + SECOND,
                                     .period_ns = SECOND,
                                     .slack_ns = 300 * MILLISECOND,
                                     .fn = tick,
                                     .arg = (void *)60};
    calls = 0;
    CHECK_EQ(fl_loop_timer_with(loop, &options, &interval), 0);
    run();
    CHECK_EQ(calls, 60);
    for (unsigned i = 0; i < 60; i++)
        CHECK(called_at[i] >= (i + 1) * SECOND && called_at[i] <= (i + 1) * SECOND + 300 * MILLISECOND);
    end();
}

TEST(the_first_call_of_an_interval_can_be_chosen)
{
    begin();
    fl_loop_timer_options options = {
        .deadline_ns = START + 3 * MILLISECOND, .period_ns = 10 * MILLISECOND, .fn = tick, .arg = (void *)3};
    calls = 0;
    CHECK_EQ(fl_loop_timer_with(loop, &options, &interval), 0);
    run();
    check_calls((uint64_t[]){3, 13, 23}, 3);
    end();
}

TEST(an_interval_needs_a_period_and_one_way_to_go_on)
{
    begin();
    interval = 7;
    CHECK_EQ(fl_loop_interval(loop, 0, 0, tick, NULL, &interval), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_interval(loop, 1, 3, tick, NULL, &interval), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_interval(loop, 1, 8, tick, NULL, &interval), FL_INVALID_ARGUMENT);
    fl_loop_timer_options options = {.flags = FL_INTERVAL_CATCH_UP, .fn = tick};
    CHECK_EQ(fl_loop_timer_with(loop, &options, &interval), FL_INVALID_ARGUMENT);
    CHECK_EQ(interval, 7);
    CHECK(!fl_loop_alive(loop));
    end();
}

/* ---- Deadlines and periods. */

TEST(the_deadline_and_the_period_of_a_timer_can_be_read)
{
    uint64_t ns = 7;
    fl_timer_id timer, every, immediate;
    begin();
    timer = make_timer(10, "t");
    CHECK_EQ(fl_loop_interval(loop, 30, 0, note, "v", &every), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "i", &immediate), 0);
    CHECK_EQ(fl_loop_deadline(loop, immediate, &ns), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_period(loop, immediate, &ns), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_set_period(loop, immediate, 5), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_deadline(loop, 0, &ns), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_loop_period(loop, 0, &ns), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_loop_set_period(loop, 0, 5), FL_TIMER_NOT_FOUND);
    CHECK_EQ(ns, 7);
    CHECK_EQ(fl_loop_deadline(loop, timer, &ns), 0);
    CHECK_EQ(ns, START + 10);
    CHECK_EQ(fl_loop_period(loop, timer, &ns), 0);
    CHECK_EQ(ns, 0);
    CHECK_EQ(fl_loop_period(loop, every, &ns), 0);
    CHECK_EQ(ns, 30);
    CHECK_EQ(fl_loop_rearm(loop, every, 50), 0);
    CHECK_EQ(fl_loop_deadline(loop, every, &ns), 0);
    CHECK_EQ(ns, START + 50);
    end();
}

static fl_timer_id changed;

static void once_more(fl_loop *l, void *arg)
{
    write_down(arg);
    if (elapsed() == 30)
        CHECK_EQ(fl_loop_set_period(l, changed, 0), 0);
}

TEST(a_period_can_be_changed_and_taken_away)
{
    begin();
    changed = make_timer_for(10, once_more, "x");
    CHECK_EQ(fl_loop_set_period(loop, changed, 20), 0);
    run();
    CHECK_DIARY("xx");
    CHECK_EQ(elapsed(), 30);
    CHECK_EQ(fl_loop_cancel(loop, changed), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_loop_interval(loop, 10, 0, note, "y", &changed), 0);
    CHECK_EQ(fl_loop_set_period(loop, changed, 0), 0);
    run();
    CHECK_DIARY("y");
    CHECK_EQ(elapsed(), 40);
    end();
}
