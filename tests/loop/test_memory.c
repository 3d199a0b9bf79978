/* SPDX-License-Identifier: MIT */
/* Out of memory: every allocation of the loop fails once, and then all after it. */

#include <sys/eventfd.h>
#include <unistd.h>

#include "loop/loop_test.h"
#include "wheel/allocator.h"

static unsigned calls, periods;
static fl_timer_id interval;

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
    if (++periods == 30)
        CHECK_EQ(fl_loop_cancel(l, interval), 0);
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
    for (unsigned i = 0; i < 50; i++)
        made += worked(fl_loop_timer(loop, i * SECOND, call, NULL, NULL));
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

/* Its place in the wheel changes with every period, and needs memory where it has not been before. */
TEST(an_interval_survives_without_memory)
{
    memory_install();
    begin();
    periods = 0;
    CHECK_EQ(fl_loop_interval(loop, HOUR, 0, period, NULL, &interval), 0);
    make_timer_for(30 * DAY, call, NULL);
    memory_fail(1, true);
    calls = 0;
    run();
    CHECK(memory.failed > 0);
    CHECK_EQ(periods, 30);
    CHECK_EQ(calls, 1);
    CHECK_EQ(elapsed(), 30 * DAY);
    memory_fail(0, false);
    end();
    memory_remove();
}

TEST(a_timer_without_memory_can_be_cancelled_and_rearmed)
{
    memory_install();
    begin();
    CHECK_EQ(fl_loop_interval(loop, HOUR, 0, call, NULL, &interval), 0);
    calls = 0;
    memory_fail(1, true);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(calls, 1);
    CHECK(memory.failed > 0);
    memory_fail(0, false);
    CHECK_EQ(fl_loop_rearm(loop, interval, SECOND), 0);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(elapsed(), HOUR + SECOND);
    memory_fail(1, true);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(fl_loop_cancel(loop, interval), 0);
    CHECK(!fl_loop_alive(loop));
    memory_fail(0, false);
    end();
    memory_remove();
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
