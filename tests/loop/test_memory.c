/* SPDX-License-Identifier: MIT */
/* Out of memory: every allocation of the loop fails once, and then all after it. */

#include <sys/eventfd.h>
#include <unistd.h>

#include "loop/internal.h"
#include "loop/loop_test.h"
#include "wheel/allocator.h"

static unsigned calls, periods;

static void call(fl_loop *l, void *arg)
{
    (void)l, (void)arg;
    calls++;
}

static void call_fd(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)events, (void)arg;
    CHECK_EQ(fl_loop_fd_remove(l, fd), 0);
    calls++;
}

static void period(fl_loop *l, void *arg)
{
    (void)arg;
    CHECK_EQ((fl_loop_now_ns(l) - START) % HOUR, 0);
    periods++;
}

/* Whether it worked; if not, it must have been for lack of memory. */
static unsigned worked(int r)
{
    CHECK(r == 0 || r == FL_NO_MEMORY);
    return r == 0;
}

/* Asks for one thing of every kind and runs; what could be made must be called. */
static void live(int fd)
{
    fl_timer_id id = 7;
    unsigned made = 0;
    calls = 0;
    for (unsigned i = 0; i < 1200; i++)
        made += worked(fl_loop_timer(loop, i % 40 * SECOND, call, NULL, NULL));
    made += worked(fl_loop_timer(loop, 50 * DAY, call, NULL, &id));
    if (id != 7)
        worked(fl_loop_rearm(loop, id, 60 * DAY));
    made += worked(fl_loop_post(loop, call, NULL));
    made += worked(fl_loop_post_urgent(loop, call, NULL));
    for (unsigned i = 0; i < 40; i++)
        made += worked(fl_loop_microtask(loop, call, NULL));
    made += worked(fl_loop_close_callback(loop, call, NULL));
    made += worked(fl_loop_immediate(loop, call, NULL, NULL));
    made += worked(fl_loop_fd_add(loop, fd, FL_READ, call_fd, NULL));
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
    run();
    CHECK_EQ(calls, made);
}

static void make_loop_and_live(int fd)
{
    fl_virtual_clock_init(&test_time, START);
    fl_loop_config config = {.clock = &test_time.clock};
    loop = NULL;
    if (!worked(fl_loop_new(&config, &loop))) {
        CHECK(!loop);
        return;
    }
    live(fd);
    end();
}

/* Until an n comes that is never reached. */
static void fail_at_every(bool and_all_after)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    uint64_t n = 0;
    bool reached;
    do {
        memory_install();
        memory_fail(++n, and_all_after);
        make_loop_and_live(fd);
        reached = memory.failed > 0;
        memory_fail(0, false);
        memory_remove();
    } while (reached);
    CHECK(n > 10);
    close(fd);
}

TEST(every_allocation_may_fail_once)
{
    fail_at_every(false);
}

TEST(every_allocation_may_fail_and_all_after_it)
{
    fail_at_every(true);
}

enum { MANY = 3000 };

static fl_timer_id many[MANY];

/* Each of them must be armed anew after every call, when there is no memory. */
static void begin_without_memory(void)
{
    memory_install();
    begin();
    periods = 0;
    for (unsigned i = 0; i < MANY; i++)
        CHECK_EQ(fl_loop_interval(loop, HOUR, 0, period, &many[i], &many[i]), 0);
    memory_fail(1, true);
}

static void end_without_memory(void)
{
    CHECK(memory.failed > 0);
    memory_fail(0, false);
    end();
    memory_remove();
}

TEST(intervals_survive_without_memory_and_stay_on_their_grid)
{
    begin_without_memory();
    while (periods < 5 * MANY)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(periods, 5 * MANY);
    CHECK_EQ(elapsed(), 5 * HOUR);
    end_without_memory();
}

TEST(a_far_timer_survives_without_memory)
{
    memory_install();
    begin();
    for (unsigned i = 0; i < MANY; i++)
        make_timer_for(3 * DAY + i % 10, call, NULL);
    calls = 0;
    memory_fail(1, true);
    run();
    CHECK_EQ(calls, MANY);
    CHECK_EQ(elapsed(), 3 * DAY + 9);
    memory_fail(0, false);
    end();
    memory_remove();
}

TEST(what_has_no_memory_can_be_cancelled_and_rearmed)
{
    begin_without_memory();
    while (periods < MANY)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
    for (unsigned i = 0; i < MANY; i += 2)
        CHECK_EQ(fl_loop_cancel(loop, many[i]), 0);
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
    for (unsigned i = 1; i < MANY; i += 2)
        CHECK_EQ(fl_loop_rearm(loop, many[i], 2 * HOUR), 0);
    while (periods < MANY + MANY / 2)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(elapsed(), 3 * HOUR);
    end_without_memory();
}

TEST(without_memory_as_many_timers_can_be_made_as_the_table_holds)
{
    unsigned made = 0;
    memory_install();
    begin();
    memory_fail(1, true);
    while (fl_loop_timer(loop, SECOND + made, call, NULL, NULL) == 0)
        made++;
    CHECK_EQ(made, 1u << TABLE_FIRST);
    calls = 0;
    run();
    CHECK_EQ(calls, made);
    end_without_memory();
}

TEST(everything_is_given_back)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    memory_install();
    begin();
    CHECK_EQ(fl_loop_post(loop, call, NULL), 0);
    CHECK_EQ(fl_loop_post_urgent(loop, call, NULL), 0);
    CHECK_EQ(fl_loop_microtask(loop, call, NULL), 0);
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, call_fd, NULL), 0);
    for (unsigned i = 0; i < 10000; i++)
        make_timer_for(i * MILLISECOND, call, NULL);
    end();
    memory_remove();
    close(fd);
}
