/* SPDX-License-Identifier: MIT */
/* Hooks around the sleep, a loop inside another loop, a loop after a fork, walking, slack. */

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop/loop_test.h"

/* ---- Hooks. */

static fl_timer_id make_hook(unsigned when, const char *s)
{
    fl_timer_id id = 0;
    CHECK_EQ(fl_loop_hook(loop, when, note, (void *)s, &id), 0);
    return id;
}

TEST(hooks_come_right_before_and_right_after_the_sleep)
{
    begin();
    CHECK_EQ(fl_loop_unref(loop, make_hook(FL_HOOK_AFTER_SLEEP, ")")), 0);
    CHECK_EQ(fl_loop_unref(loop, make_hook(FL_HOOK_BEFORE_SLEEP, "(")), 0);
    make_timer(10, "t");
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "i", NULL), 0);
    run();
    CHECK_DIARY("()pi()t");
    CHECK_EQ(elapsed(), 10);
    CHECK_EQ(stats().called.hooks, 4);
    CHECK_EQ(stats().waiting.hooks, 2);
    end();
}

static void add_immediate(fl_loop *l, void *arg)
{
    (void)arg;
    write_down("b");
    if (stats().called.immediates < 2)
        CHECK_EQ(fl_loop_immediate(l, note, "i", NULL), 0);
}

TEST(a_hook_does_not_keep_the_loop_awake_and_what_it_adds_does)
{
    fl_timer_id id;
    begin();
    CHECK_EQ(fl_loop_hook(loop, FL_HOOK_BEFORE_SLEEP, add_immediate, NULL, &id), 0);
    CHECK_EQ(fl_loop_unref(loop, id), 0);
    make_timer(10, "t");
    run();
    CHECK_DIARY("bibibt");
    CHECK_EQ(stats().sleeps, 1);
    CHECK_EQ(stats().slept_ns, 10);
    end();
}

static fl_timer_id second_hook;

static void change_hooks(fl_loop *l, void *arg)
{
    (void)arg;
    write_down("a");
    if (second_hook)
        CHECK_EQ(fl_loop_cancel(l, second_hook), 0);
    second_hook = 0;
    if (stats().turns == 0)
        make_hook(FL_HOOK_BEFORE_SLEEP, "d");
}

TEST(hooks_run_in_the_order_in_which_they_were_made_and_new_ones_from_the_next_turn_on)
{
    begin();
    CHECK_EQ(fl_loop_hook(loop, FL_HOOK_BEFORE_SLEEP, change_hooks, NULL, NULL), 0);
    second_hook = make_hook(FL_HOOK_BEFORE_SLEEP, "b");
    make_hook(FL_HOOK_BEFORE_SLEEP, "c");
    turn();
    turn();
    CHECK_DIARY("acacd");
    CHECK(fl_loop_alive(loop));
    end();
}

TEST(a_graceful_stop_and_a_turn_that_waits_do_not_count_hooks)
{
    begin();
    make_hook(FL_HOOK_BEFORE_SLEEP, "b");
    make_timer(10, "t");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("bt");
    fl_loop_drain(loop);
    run();
    CHECK_DIARY("b");
    end();
}

static void stop_it(fl_loop *l, void *arg)
{
    write_down(arg);
    fl_loop_stop(l);
}

TEST(a_stop_inside_a_hook_leaves_the_others_and_the_sleep_for_the_next_run)
{
    begin();
    CHECK_EQ(fl_loop_hook(loop, FL_HOOK_BEFORE_SLEEP, stop_it, "1", &second_hook), 0);
    make_hook(FL_HOOK_BEFORE_SLEEP, "2");
    make_hook(FL_HOOK_AFTER_SLEEP, "3");
    make_timer(10, "t");
    run();
    CHECK_DIARY("1");
    CHECK_EQ(fl_loop_cancel(loop, second_hook), 0);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("23t");
    CHECK_EQ(elapsed(), 10);
    end();
}

TEST(a_hook_has_a_moment_and_a_callback)
{
    begin();
    CHECK_EQ(fl_loop_hook(loop, 0, note, "", NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_hook(loop, 3, note, "", NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_hook(loop, FL_HOOK_AFTER_SLEEP, NULL, "", NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_rearm(loop, make_hook(FL_HOOK_AFTER_SLEEP, "h"), 5), FL_INVALID_ARGUMENT);
    end();
}

/* ---- Stopping at the end of a turn. */

static void stop_after_turn(fl_loop *l, void *arg)
{
    write_down(arg);
    fl_loop_stop_after_turn(l);
}

TEST(a_stop_at_the_end_of_the_turn_finishes_the_turn)
{
    begin();
    make_timer_for(10, stop_after_turn, "s");
    make_timer(10, "t");
    make_timer(11, "u");
    CHECK_EQ(fl_loop_close_callback(loop, note, "c"), 0);
    run();
    CHECK_DIARY("cst");
    run();
    CHECK_DIARY("u");
    end();
}

TEST(a_stop_at_the_end_of_the_turn_that_comes_before_the_run_counts_once)
{
    begin();
    make_timer(10, "t");
    fl_loop_stop_after_turn(loop);
    run();
    CHECK_DIARY("");
    fl_loop_stop_after_turn(loop);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("");
    run();
    CHECK_DIARY("t");
    end();
}

/* ---- Descriptors that do not keep the loop alive. */

static void on_ready(fl_loop *l, int fd, unsigned events, void *arg)
{
    uint64_t value;
    (void)l, (void)events;
    CHECK_EQ(read(fd, &value, sizeof(value)), (ssize_t)sizeof(value));
    write_down(arg);
}

TEST(an_unreferenced_descriptor_is_called_and_does_not_keep_the_loop_alive)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    CHECK_EQ(fl_loop_fd_unref(loop, fd), FL_NOT_FOUND);
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, on_ready, "d"), 0);
    CHECK_EQ(fl_loop_fd_unref(loop, fd), 0);
    CHECK_EQ(fl_loop_fd_unref(loop, fd), 0);
    CHECK(!fl_loop_alive(loop));
    make_timer(10, "t");
    run();
    CHECK_DIARY("dt");
    CHECK_EQ(fl_loop_fd_ref(loop, fd), 0);
    CHECK(fl_loop_alive(loop));
    CHECK_EQ(fl_loop_fd_unref(loop, fd), 0);
    CHECK_EQ(fl_loop_fd_modify(loop, fd, FL_READ), 0);
    CHECK(!fl_loop_alive(loop));
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    CHECK_EQ(fl_loop_fd_ref(loop, fd), FL_NOT_FOUND);
    end();
    close(fd);
}

/* ---- Inside another loop. */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, timeout_ms) == 1;
}

TEST(the_next_deadline_is_known)
{
    uint64_t next_ns;
    begin();
    CHECK(!fl_loop_next_ns(loop, &next_ns));
    make_timer(10, "t");
    CHECK(fl_loop_next_ns(loop, &next_ns));
    CHECK_EQ(next_ns, START + 10);
    CHECK_EQ(fl_loop_immediate(loop, note, "i", NULL), 0);
    CHECK(fl_loop_next_ns(loop, &next_ns));
    CHECK(next_ns <= fl_loop_now_ns(loop));
    end();
}

static void poll_inside(fl_loop *l, void *arg)
{
    CHECK_EQ(fl_loop_poll_fd(l, arg), FL_BUSY);
}

/* On the machine's clock: it is readable at once or, where a timer has to come, in the end. */
TEST(a_loop_can_run_inside_another_loop)
{

    int fd, again, event = eventfd(0, EFD_CLOEXEC);
    diary[0] = '\0';
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    CHECK(!readable(fd, 0));
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    CHECK(fl_loop_alive(loop));
    CHECK(readable(fd, 0));
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_DIARY("p");

    CHECK_EQ(fl_loop_post(loop, note, "q"), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &again), 0);
    CHECK_EQ(again, fd);
    CHECK(readable(fd, 0));
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &again), 0);
    CHECK(!readable(fd, 0));
    CHECK_DIARY("q");

    CHECK_EQ(fl_loop_timer(loop, 1000000, note, "t", NULL), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    CHECK(readable(fd, 60000));
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_DIARY("t");

    CHECK_EQ(fl_loop_fd_add(loop, event, FL_READ, on_ready, "d"), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    CHECK(!readable(fd, 0));
    CHECK_EQ(write(event, &(uint64_t){1}, 8), 8);
    CHECK(readable(fd, 0));
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_DIARY("d");

    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    fl_loop_stop(loop);
    CHECK(readable(fd, 0));
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_EQ(fl_loop_immediate(loop, poll_inside, &fd, NULL), 0);
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
    fl_loop_free(loop);
    close(event);
}

/* ---- After a fork. */

static void check_child(fl_loop *copy, int event)
{
    CHECK_EQ(fl_loop_after_fork(copy), 0);
    CHECK_EQ(fl_loop_post(copy, note, "p"), 0);
    CHECK_EQ(write(event, &(uint64_t){1}, 8), 8);
    CHECK_EQ(fl_loop_run_once(copy, true), 0);
    CHECK_DIARY("pd");
    CHECK_EQ(fl_loop_fd_remove(copy, event), 0);
    CHECK_EQ(fl_loop_run(copy), 0);
    CHECK_DIARY("t");
    CHECK_EQ(fl_loop_check(copy, stdout), 0);
    fl_loop_free(copy);
}

TEST(after_a_fork_parent_and_child_have_a_loop_each)
{

    int status, fd, event = eventfd(0, EFD_CLOEXEC);
    begin();
    make_timer(1000000, "t");
    CHECK_EQ(fl_loop_fd_add(loop, event, FL_READ, on_ready, "d"), 0);
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check_child(loop, event);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQ(write(event, &(uint64_t){1}, 8), 8); /* the child has read what it wrote */
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("d");
    CHECK_EQ(fl_loop_fd_remove(loop, event), 0);
    run();
    CHECK_DIARY("t");
    end();
    close(event);
}

/* ---- Walking. */

static bool cancel_each(fl_loop *l, const fl_loop_item *item, void *arg)
{
    unsigned *left = arg;
    write_down(item->arg);
    if (item->id)
        CHECK_EQ(fl_loop_cancel(l, item->id), 0);
    else if (item->fd >= 0)
        CHECK_EQ(fl_loop_fd_remove(l, item->fd), 0);
    return --*left > 0;
}

TEST(a_walk_shows_everything_and_may_take_it_away)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    unsigned left = 100;
    begin();
    CHECK_EQ(fl_loop_close_callback(loop, note, "c"), 0);
    CHECK_EQ(fl_loop_microtask(loop, note, "m"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    CHECK_EQ(fl_loop_post_urgent(loop, note, "u"), 0);
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, on_ready, "d"), 0);
    make_hook(FL_HOOK_AFTER_SLEEP, "h");
    CHECK_EQ(fl_loop_immediate(loop, note, "i", NULL), 0);
    make_timer(10, "t");
    CHECK_EQ(fl_loop_interval(loop, 10, 0, note, "v", NULL), 0);
    fl_loop_walk(loop, cancel_each, &left);
    CHECK_DIARY("tvihdupmc");
    CHECK_EQ(left, 91);
    run();
    CHECK_DIARY("mupc");
    end();
    close(fd);
}

TEST(a_walk_ends_when_the_function_has_seen_enough)
{
    unsigned left = 2;
    begin();
    for (unsigned i = 0; i < 5; i++)
        make_timer(10, "t");
    fl_loop_walk(loop, cancel_each, &left);
    CHECK_DIARY("tt");
    CHECK_EQ(stats().waiting.timers, 3);
    end();
}

/* ---- Slack. */

TEST(with_slack_one_wake_up_serves_several_timers_in_order_and_none_early)
{
    fl_loop_config config = {.clock = &test_time.clock, .slack_ns = 100};
    fl_virtual_clock_init(&test_time, START);
    diary[0] = '\0';
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    make_timer(1100, "c");
    make_timer(1000, "a");
    make_timer(1050, "b");
    make_timer(1101, "d");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("abc");
    CHECK_EQ(elapsed(), 1100);
    CHECK_EQ(stats().sleeps, 1);
    run();
    CHECK_DIARY("d");
    end();
}
