/* SPDX-License-Identifier: MIT */
/* Intervals over a year: they fire exactly as often as they should, each time on their grid. Where a sanitizer makes
 * everything dearer, the year has a month. */

#include "loop/loop_test.h"

#define LONG SCALE(YEAR, 30 * DAY)

struct grid {
    uint64_t period_ns, calls, wanted;
    fl_timer_id id;
};

static void on_grid(fl_loop *l, void *arg)
{
    struct grid *grid = arg;
    grid->calls++;
    if (fl_loop_now_ns(l) != START + grid->calls * grid->period_ns)
        test_fail(__FILE__, __LINE__, "call %" PRIu64 " came at %" PRIu64, grid->calls, fl_loop_now_ns(l));
    if (grid->calls == grid->wanted)
        CHECK_EQ(fl_loop_cancel(l, grid->id), 0);
}

static void start(struct grid *grid)
{
    CHECK_EQ(fl_loop_interval(loop, grid->period_ns, 0, on_grid, grid, &grid->id), 0);
}

TEST(an_interval_of_a_second_keeps_its_grid_for_a_year)
{
    struct grid second = {.period_ns = SECOND, .wanted = LONG / SECOND};
    begin();
    start(&second);
    run();
    CHECK_EQ(second.calls, SCALE(31536000, 2592000));
    CHECK_EQ(elapsed(), LONG);
    CHECK_EQ(stats().lateness_ns.max_ns, 0);
    end();
}

TEST(an_interval_of_10_ms_keeps_its_grid_for_a_day)
{
    struct grid tick = {.period_ns = 10 * MILLISECOND, .wanted = DAY / (10 * MILLISECOND)};
    begin();
    start(&tick);
    run();
    CHECK_EQ(tick.calls, 8640000);
    CHECK_EQ(elapsed(), DAY);
    CHECK_EQ(stats().lateness_ns.max_ns, 0);
    end();
}

TEST(intervals_of_many_periods_keep_their_grids_beside_each_other)
{
    struct grid grids[] = {
        {.period_ns = 7 * SECOND}, {.period_ns = 997 * MILLISECOND}, {.period_ns = MINUTE + 1},
        {.period_ns = DAY},        {.period_ns = 25 * HOUR},         {.period_ns = 3 * DAY - 1},
    };
    begin();
    for (size_t i = 0; i < sizeof(grids) / sizeof(*grids); i++) {
        grids[i].wanted = 30 * DAY / grids[i].period_ns;
        start(&grids[i]);
    }
    run();
    for (size_t i = 0; i < sizeof(grids) / sizeof(*grids); i++)
        CHECK_EQ(grids[i].calls, grids[i].wanted);
    end();
}
