/* SPDX-License-Identifier: MIT */
/* Running, stopping and freeing the loop, from outside and from inside its callbacks. */

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/moment.h"
#include "loop/loop.h"
#include "loop/loop_test.h"

/* ---- Alive. */

TEST(a_loop_with_nothing_to_do_returns)
{
    begin();
    CHECK(!fl_loop_alive(loop));
    run();
    CHECK_EQ(stats().turns, 0);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(elapsed(), 0);
    end();
}

/* ---- Turns with a deadline, which other layers of the library use. */

TEST(a_turn_ends_at_its_deadline_at_the_latest)
{
    begin();
    fl_loop_hold(loop);
    CHECK_EQ(fl__loop_run_until(loop, START + 100), 0);
    CHECK_EQ(elapsed(), 100);
    make_timer(50, "a");
    make_timer(900, "b");
    CHECK_EQ(fl__loop_run_until(loop, START + 1000), 0);
    CHECK_EQ(elapsed(), 150);
    CHECK_DIARY("a");
    CHECK_EQ(fl__loop_run_until(loop, START + 1000), 0);
    CHECK_EQ(elapsed(), 1000);
    CHECK_DIARY("b");
    make_timer(1, "c");
    CHECK_EQ(fl__loop_run_until(loop, START + 1000), 0);
    CHECK_EQ(fl__loop_run_until(loop, 0), 0);
    CHECK_EQ(elapsed(), 1000);
    CHECK_DIARY("");
    CHECK_EQ(fl__loop_run_until(loop, NEVER), 0);
    CHECK_EQ(elapsed(), 1001);
    CHECK_DIARY("c");
    fl_loop_unhold(loop);
    end();
}

TEST(the_deadline_of_a_turn_is_not_that_of_the_next)
{
    begin();
    make_timer(500, "a");
    CHECK_EQ(fl__loop_run_until(loop, START + 100), 0);
    run();
    CHECK_EQ(elapsed(), 500);
    CHECK_DIARY("a");
    end();
}

static void ignore(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)l, (void)fd, (void)events, (void)arg;
}

TEST(everything_that_waits_keeps_the_loop_alive)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    fl_timer_id id;
    begin();
    make_timer(5, "t");
    CHECK(fl_loop_alive(loop));
    run();
    CHECK(!fl_loop_alive(loop));
    CHECK_EQ(fl_loop_immediate(loop, note, "i", &id), 0);
    CHECK(fl_loop_alive(loop));
    CHECK_EQ(fl_loop_cancel(loop, id), 0);
    CHECK(!fl_loop_alive(loop));
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    CHECK(fl_loop_alive(loop));
    run();
    CHECK_EQ(fl_loop_microtask(loop, note, "m"), 0);
    CHECK(fl_loop_alive(loop));
    run();
    CHECK_EQ(fl_loop_close_callback(loop, note, "c"), 0);
    CHECK(fl_loop_alive(loop));
    run();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, ignore, NULL), 0);
    CHECK(fl_loop_alive(loop));
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    CHECK(!fl_loop_alive(loop));
    fl_loop_hold(loop);
    fl_loop_hold(loop);
    fl_loop_unhold(loop);
    CHECK(fl_loop_alive(loop));
    fl_loop_unhold(loop);
    CHECK(!fl_loop_alive(loop));
    CHECK_DIARY("tpmc");
    end();
    close(fd);
}

TEST(an_unreferenced_timer_fires_while_something_else_keeps_the_loop_alive)
{
    begin();
    CHECK_EQ(fl_loop_unref(loop, make_timer(3, "a")), 0);
    CHECK_EQ(fl_loop_unref(loop, make_timer(10, "b")), 0);
    make_timer(5, "x");
    run();
    CHECK_DIARY("ax");
    CHECK_EQ(elapsed(), 5);
    end();
}

/* ---- Turns. */

TEST(a_turn_that_does_not_wait_runs_only_what_can_run_now)
{
    begin();
    make_timer(5, "a");
    turn();
    CHECK_DIARY("");
    CHECK_EQ(elapsed(), 0);
    test_time.time_ns += 5;
    turn();
    CHECK_DIARY("a");
    end();
}

TEST(a_turn_that_waits_runs_the_next_thing_and_no_more)
{
    begin();
    make_timer(5 * DAY, "a");
    make_timer(6 * DAY, "b");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("a");
    CHECK_EQ(elapsed(), 5 * DAY);
    end();
}

static void run_inside(fl_loop *l, void *arg)
{
    (void)arg;
    CHECK_EQ(fl_loop_run(l), FL_BUSY);
    CHECK_EQ(fl_loop_run_once(l, false), FL_BUSY);
    write_down("b");
}

TEST(a_loop_cannot_be_run_from_its_own_callback)
{
    begin();
    make_timer_for(0, run_inside, NULL);
    run();
    CHECK_DIARY("b");
    end();
}

TEST(a_budget_has_a_limit)
{
    fl_loop *none = NULL;
    fl_loop_config config = {.budget = (1 << 20) + 1};
    CHECK_EQ(fl_loop_new(&config, &none), FL_INVALID_ARGUMENT);
    CHECK(!none);
}

/* ---- Stopping. */

static void stop(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_microtask(l, note, "m"), 0);
    fl_loop_stop(l);
}

static void stop_fd(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)events;
    CHECK_EQ(fl_loop_fd_remove(l, fd), 0);
    stop(l, arg);
}

/* In every phase there is one that stops and one that is left; each run ends after the first and goes on from there. */
TEST(a_stop_inside_a_callback_leaves_the_rest_for_the_next_run)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    CHECK_EQ(fl_loop_timer(loop, 0, stop, "t", NULL), 0);
    make_timer(0, "T");
    CHECK_EQ(fl_loop_post(loop, stop, "p"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "P"), 0);
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, stop_fd, "d"), 0);
    CHECK_EQ(fl_loop_immediate(loop, stop, "i", NULL), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "I", NULL), 0);
    CHECK_EQ(fl_loop_close_callback(loop, stop, "c"), 0);
    CHECK_EQ(fl_loop_close_callback(loop, note, "C"), 0);
    static const char *const expected[] = {"tm", "Tpm", "Pdm", "im", "Icm", "C"};
    for (unsigned i = 0; i < 6; i++) {
        run();
        CHECK_DIARY(expected[i]);
    }
    CHECK(!fl_loop_alive(loop));
    end();
    close(fd);
}

TEST(what_a_stop_has_left_can_be_cancelled)
{
    begin();
    CHECK_EQ(fl_loop_timer(loop, 0, stop, "s", NULL), 0);
    fl_timer_id a = make_timer(0, "a"), b = make_timer(0, "b");
    make_timer(0, "c");
    run();
    CHECK_EQ(fl_loop_cancel(loop, a), 0);
    CHECK_EQ(fl_loop_rearm(loop, b, 5), 0);
    run();
    CHECK_DIARY("smcb");
    CHECK_EQ(elapsed(), 5);
    end();
}

TEST(a_timer_that_is_due_runs_although_a_stop_has_left_others_that_were_cancelled)
{
    begin();
    CHECK_EQ(fl_loop_timer(loop, 0, stop, "s", NULL), 0);
    fl_timer_id a = make_timer(0, "a"), b = make_timer(0, "b");
    run();
    CHECK_EQ(fl_loop_cancel(loop, a), 0);
    CHECK_EQ(fl_loop_cancel(loop, b), 0);
    make_timer(0, "c");
    turn();
    CHECK_DIARY("smc");
    end();
}

/* In every phase one stops and one is left, and before the next run there is something new for each phase. */
TEST(what_a_stop_has_left_of_a_turn_runs_before_another_turn_begins)
{
    static const char *const expected[] = {"tm", "Tpm", "Pim", "Icm", "Cabde"};
    begin();
    CHECK_EQ(fl_loop_timer(loop, 0, stop, "t", NULL), 0);
    make_timer(0, "T");
    CHECK_EQ(fl_loop_post(loop, stop, "p"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "P"), 0);
    CHECK_EQ(fl_loop_immediate(loop, stop, "i", NULL), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "I", NULL), 0);
    CHECK_EQ(fl_loop_close_callback(loop, stop, "c"), 0);
    CHECK_EQ(fl_loop_close_callback(loop, note, "C"), 0);
    for (unsigned i = 0; i < 5; i++) {
        if (i == 4) {
            make_timer(0, "a");
            CHECK_EQ(fl_loop_post(loop, note, "b"), 0);
            CHECK_EQ(fl_loop_immediate(loop, note, "d", NULL), 0);
            CHECK_EQ(fl_loop_close_callback(loop, note, "e"), 0);
        }
        turn();
        CHECK_DIARY(expected[i]);
    }
    end();
}

TEST(after_a_stop_among_tasks_new_timers_come_behind_the_tasks_that_are_left)
{
    begin();
    CHECK_EQ(fl_loop_post(loop, stop, "p"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "P"), 0);
    run();
    CHECK_DIARY("pm");
    make_timer(0, "t");
    test_time.time_ns += 5;
    run();
    CHECK_DIARY("Pt");
    end();
}

/* Whoever always stops in the same phase comes to the others all the same. */
static void stop_quietly(fl_loop *l, void *arg)
{
    write_down(arg);
    fl_loop_stop(l);
}

static void stop_quietly_fd(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)fd, (void)events;
    stop_quietly(l, arg);
}

static void check_stops(const char *letters, int fd)
{
    begin();
    if (*letters == 'd')
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, stop_quietly_fd, "d"), 0);
    for (unsigned i = 0; i < 3; i++) {
        make_timer(0, "t");
        CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
        if (*letters == 'i')
            CHECK_EQ(fl_loop_immediate(loop, stop_quietly, "i", NULL), 0);
        else if (*letters == 'c')
            CHECK_EQ(fl_loop_close_callback(loop, stop_quietly, "c"), 0);
        run();
        CHECK(strchr(diary, 't') && strchr(diary, 'p') && strstr(diary, letters));
        diary[0] = '\0';
    }
    end();
}

TEST(stops_in_one_phase_do_not_starve_the_others)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    check_stops("i", fd);
    check_stops("c", fd);
    check_stops("d", fd);
    close(fd);
}

TEST(a_turn_that_waits_does_so_after_it_has_finished_an_empty_rest)
{
    begin();
    CHECK_EQ(fl_loop_timer(loop, 0, stop, "s", NULL), 0);
    fl_timer_id a = make_timer(0, "a");
    run();
    CHECK_EQ(fl_loop_cancel(loop, a), 0);
    make_timer(HOUR, "b");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("smb");
    CHECK_EQ(elapsed(), HOUR);
    end();
}

TEST(a_stop_before_the_run_counts_once)
{
    begin();
    make_timer(0, "a");
    fl_loop_stop(loop);
    run();
    CHECK_DIARY("");
    fl_loop_stop(loop);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("");
    run();
    CHECK_DIARY("a");
    end();
}

static void count_down(fl_loop *l, void *arg)
{
    unsigned *left = arg;
    write_down("p");
    if (--*left > 0)
        CHECK_EQ(fl_loop_post(l, count_down, arg), 0);
}

TEST(a_graceful_stop_drains_what_can_run_and_does_not_wait)
{
    unsigned left = 3;
    int fd = eventfd(0, EFD_CLOEXEC);
    begin();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, ignore, NULL), 0);
    CHECK_EQ(fl_loop_post(loop, count_down, &left), 0);
    make_timer(0, "t");
    make_timer(1, "never");
    CHECK_EQ(fl_loop_immediate(loop, note, "i", NULL), 0);
    CHECK_EQ(fl_loop_close_callback(loop, note, "c"), 0);
    fl_loop_drain(loop);
    run();
    CHECK_DIARY("tpicpp");
    CHECK_EQ(elapsed(), 0);
    CHECK(fl_loop_alive(loop));
    end();
    close(fd);
}

static void drain(fl_loop *l, void *arg)
{
    write_down(arg);
    fl_loop_drain(l);
}

TEST(a_graceful_stop_works_from_inside_a_callback)
{
    begin_with_budget(1);
    CHECK_EQ(fl_loop_post(loop, drain, "d"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "a"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "b"), 0);
    make_timer(HOUR, "never");
    run();
    CHECK_DIARY("dab");
    end();
}

TEST(after_a_graceful_stop_a_single_turn_runs_what_can_run_and_does_not_wait)
{
    begin();
    make_timer(HOUR, "never");
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    fl_loop_drain(loop);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("p");
    fl_loop_drain(loop);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("");
    CHECK_EQ(elapsed(), 0);
    end();
}

static void drain_and_stop(fl_loop *l, void *arg)
{
    stop(l, arg);
    fl_loop_drain(l);
}

TEST(an_immediate_stop_wins_over_a_graceful_one)
{
    begin();
    CHECK_EQ(fl_loop_post(loop, drain_and_stop, "s"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "a"), 0);
    run();
    CHECK_DIARY("sm");
    end();
}

static fl_loop *signalled;

static void on_signal(int number)
{
    (void)number;
    fl_loop_stop(signalled);
}

/* The loop sleeps with nothing that could wake it but the signal. */
static void check_signal(int fd)
{
    struct sigaction action = {.sa_handler = on_signal}, before;
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    signalled = loop;
    CHECK_EQ(sigaction(SIGALRM, &action, &before), 0);
    fl_loop_hold(loop);
    if (fd >= 0)
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, ignore, NULL), 0);
    struct itimerval soon = {.it_value = {.tv_usec = 2000}, .it_interval = {.tv_usec = 2000}}, off = {0};
    CHECK_EQ(setitimer(ITIMER_REAL, &soon, NULL), 0);
    run();
    CHECK_EQ(setitimer(ITIMER_REAL, &off, NULL), 0);
    CHECK_EQ(sigaction(SIGALRM, &before, NULL), 0);
    end();
}

TEST(a_signal_handler_can_stop_a_sleeping_loop)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    check_signal(-1);
    check_signal(fd);
    close(fd);
}

/* ---- Freeing. */

static void free_loop(fl_loop *l, void *arg)
{
    write_down(arg);
    fl_loop_free(l);
    CHECK_EQ(fl_loop_timer(l, 0, note, "not me", NULL), 0); /* the loop is usable until the callback returns */
    CHECK_EQ(fl_loop_microtask(l, note, "nor me"), 0);
    fl_loop_free(l);
}

static void free_loop_fd(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)fd, (void)events;
    free_loop(l, arg);
}

static void free_loop_closing(fl_loop *l, void *arg)
{
    CHECK_EQ(fl_loop_close_callback(l, note, "closed"), 0);
    free_loop(l, arg);
}

static void check_freed(const char *expected)
{
    make_timer(0, "");
    CHECK_EQ(fl_loop_run(loop), FL_LOOP_FREED);
    CHECK_DIARY(expected);
}

TEST(a_timer_can_free_the_loop)
{
    begin();
    make_timer_for(0, free_loop, "t");
    make_timer(0, "x");
    CHECK_EQ(fl_loop_post(loop, note, "x"), 0);
    check_freed("t");
}

TEST(an_interval_can_free_the_loop)
{
    begin();
    CHECK_EQ(fl_loop_interval(loop, 5, 0, free_loop, "i", NULL), 0);
    check_freed("i");
}

TEST(a_task_can_free_the_loop)
{
    begin();
    CHECK_EQ(fl_loop_post(loop, free_loop, "p"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "x"), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "x", NULL), 0);
    check_freed("p");
}

TEST(a_descriptor_can_free_the_loop)
{
    int fd[2] = {eventfd(1, EFD_CLOEXEC), eventfd(1, EFD_CLOEXEC)};
    begin();
    CHECK_EQ(fl_loop_fd_add(loop, fd[0], FL_READ, free_loop_fd, "d"), 0);
    CHECK_EQ(fl_loop_fd_add(loop, fd[1], FL_READ, free_loop_fd, "d"), 0);
    check_freed("d");
    close(fd[0]);
    close(fd[1]);
}

TEST(an_immediate_can_free_the_loop)
{
    begin();
    CHECK_EQ(fl_loop_immediate(loop, free_loop, "i", NULL), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "x", NULL), 0);
    check_freed("i");
}

TEST(a_microtask_can_free_the_loop)
{
    begin();
    CHECK_EQ(fl_loop_microtask(loop, free_loop, "m"), 0);
    CHECK_EQ(fl_loop_microtask(loop, note, "x"), 0);
    check_freed("m");
}

TEST(a_close_callback_can_free_the_loop_and_those_after_it_still_run)
{
    begin();
    CHECK_EQ(fl_loop_close_callback(loop, free_loop_closing, "c"), 0);
    CHECK_EQ(fl_loop_close_callback(loop, note, "d"), 0);
    check_freed("cdclosed");
}

TEST(a_single_turn_says_that_the_loop_was_freed)
{
    begin();
    make_timer_for(0, free_loop, "t");
    CHECK_EQ(fl_loop_run_once(loop, true), FL_LOOP_FREED);
    CHECK_DIARY("t");
}

static void busy_at_the_end(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_run(l), FL_BUSY);
    fl_loop_free(l);
}

TEST(a_close_callback_of_a_loop_that_is_freed_cannot_run_or_free_it)
{
    begin();
    CHECK_EQ(fl_loop_close_callback(loop, busy_at_the_end, "c"), 0);
    fl_loop_free(loop);
    CHECK_DIARY("c");
}

static int refused;

static void close_for_ever(fl_loop *l, void *arg)
{
    unsigned *calls = arg;
    ++*calls;
    for (unsigned i = 0; i < 2 && refused == 0; i++)
        refused = fl_loop_close_callback(l, close_for_ever, arg);
}

TEST(freeing_comes_to_an_end_although_close_callbacks_ask_for_others)
{
    unsigned calls = 0;
    begin();
    refused = 0;
    CHECK_EQ(fl_loop_close_callback(loop, close_for_ever, &calls), 0);
    fl_loop_free(loop);
    CHECK_EQ(refused, FL_CAPACITY_EXCEEDED);
    CHECK_EQ(calls, (1u << 20) + 1);
}

TEST(freeing_nothing_does_nothing)
{
    fl_loop_free(NULL);
}
