/* SPDX-License-Identifier: MIT */
/* A loop inside another loop: its descriptor is readable whenever a turn is needed, and a turn makes it unreadable again if
 * nothing is left to do. The tests run on the machine's clock, with deadlines that have passed, that come soon, or that are
 * an hour away. */

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop_test.h"

#define SOON 2000000u /* 2 ms */

static void begin_nested(void)
{
    diary[0] = '\0';
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
}

static bool wait_readable(int fd, int timeout_ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, timeout_ms) == 1;
}

static int poll_fd(void)
{
    int fd = -1;
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    CHECK(fd >= 0);
    return fd;
}

static bool needed_now(void)
{
    return wait_readable(poll_fd(), 0);
}

static void turn_until_quiet(void)
{
    for (unsigned i = 0; needed_now(); i++) {
        CHECK(i < 100);
        turn();
    }
}

static void stop_it(fl_loop *l, void *arg)
{
    write_down(arg);
    fl_loop_stop(l);
}

static void sleep_past(uint64_t deadline_ns)
{
    struct timespec time = {.tv_sec = (time_t)(deadline_ns / SECOND), .tv_nsec = (long)(deadline_ns % SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

/* ---- What can run now. */

TEST(a_turn_that_a_stop_has_ended_needs_another_turn)
{
    uint64_t next_ns;
    begin_nested();
    make_timer_for(0, stop_it, "s");
    make_timer(0, "t");
    make_timer(HOUR, "never");
    turn();
    CHECK_DIARY("s");
    CHECK(fl_loop_next_ns(loop, &next_ns));
    CHECK(next_ns <= fl_loop_now_ns(loop));
    CHECK(needed_now());
    turn();
    CHECK_DIARY("t");
    CHECK(!needed_now());
    CHECK(fl_loop_next_ns(loop, &next_ns));
    CHECK(next_ns > fl_loop_now_ns(loop));
    fl_loop_free(loop);
}

TEST(hooks_that_a_stop_has_left_over_need_another_turn)
{
    begin_nested();
    CHECK_EQ(fl_loop_hook(loop, FL_HOOK_AFTER_SLEEP, stop_it, "1", NULL), 0);
    CHECK_EQ(fl_loop_hook(loop, FL_HOOK_AFTER_SLEEP, note, "2", NULL), 0);
    turn();
    CHECK_DIARY("1");
    CHECK(needed_now());
    turn();
    CHECK_DIARY("21"); /* the rest of that turn, and the beginning of the next */
    fl_loop_free(loop);
}

TEST(more_timers_than_the_budget_need_another_turn)
{
    fl_loop_config config = {.budget = 2};
    diary[0] = '\0';
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    for (unsigned i = 0; i < 5; i++)
        make_timer(0, "t");
    for (unsigned i = 0; i < 3; i++) {
        CHECK(needed_now());
        turn();
    }
    CHECK_DIARY("ttttt");
    CHECK(!needed_now());
    fl_loop_free(loop);
}

static void add_of_each_kind(fl_loop *l, void *arg)
{
    (void)arg;
    CHECK_EQ(fl_loop_post(l, note, "p"), 0);
    CHECK_EQ(fl_loop_immediate(l, note, "i", NULL), 0);
    CHECK_EQ(fl_loop_close_callback(l, note, "c"), 0);
}

TEST(each_kind_of_callback_makes_it_readable)
{
    begin_nested();
    CHECK(!needed_now());
    CHECK_EQ(fl_loop_microtask(loop, note, "m"), 0);
    CHECK(needed_now());
    turn();
    CHECK(!needed_now());
    CHECK_EQ(fl_loop_immediate(loop, note, "i", NULL), 0);
    CHECK(needed_now());
    turn();
    CHECK(!needed_now());
    CHECK_EQ(fl_loop_close_callback(loop, note, "c"), 0);
    CHECK(needed_now());
    turn();
    CHECK(!needed_now());
    CHECK_EQ(fl_loop_post_urgent(loop, add_of_each_kind, NULL), 0);
    CHECK(needed_now());
    turn();
    CHECK_DIARY("micic");
    CHECK(needed_now());
    turn();
    CHECK_DIARY("p");
    CHECK(!needed_now());
    fl_loop_free(loop);
}

/* ---- Between fl_loop_poll_fd() and the wait. */

TEST(a_task_or_a_stop_makes_it_readable_while_the_outer_loop_waits)
{
    begin_nested();
    int fd = poll_fd();
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    CHECK(wait_readable(fd, 60000));
    turn();
    CHECK_EQ(fl_loop_post(loop, note, "q"), 0);
    CHECK(wait_readable(poll_fd(), 60000));
    turn();
    CHECK_DIARY("pq");
    void (*const stops[])(fl_loop *) = {fl_loop_stop, fl_loop_stop_after_turn, fl_loop_drain};
    for (unsigned i = 0; i < 3; i++) {
        fd = poll_fd();
        stops[i](loop);
        CHECK(wait_readable(fd, 60000));
        CHECK(needed_now());
        turn();
        turn_until_quiet();
    }
    fl_loop_free(loop);
}

static void *post_from_outside(void *arg)
{
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(fl_loop_post(arg, note, "p"), 0);
    return NULL;
}

TEST(no_task_of_another_thread_is_overlooked)
{
    pthread_t thread;
    begin_nested();
    fl_loop_hold(loop);
    CHECK_EQ(pthread_create(&thread, NULL, post_from_outside, loop), 0);
    while (stats().called.tasks < 1000) {
        CHECK(wait_readable(poll_fd(), 60000));
        turn();
        diary[0] = '\0';
    }
    pthread_join(thread, NULL);
    fl_loop_free(loop);
}

/* ---- Timers. */

TEST(a_timer_makes_it_readable_when_it_is_due_and_not_before)
{
    begin_nested();
    for (unsigned i = 0; i < 20; i++) {
        make_timer(SOON / 8 * i, "t");
        make_timer(HOUR, "never");
        while (diary[0] == '\0') {
            CHECK(wait_readable(poll_fd(), 60000));
            turn();
        }
        CHECK_DIARY("t");
        turn_until_quiet();
    }
    fl_loop_free(loop);
}

TEST(a_timer_that_is_stopped_or_moved_leaves_nothing_behind)
{
    begin_nested();
    fl_timer_id first = make_timer(SOON, "1"), second = make_timer(SOON, "2");
    uint64_t due_ns = fl_loop_now_ns(loop) + SOON;
    int fd = poll_fd();
    CHECK_EQ(fl_loop_cancel(loop, first), 0);
    CHECK_EQ(fl_loop_rearm(loop, second, HOUR), 0);
    sleep_past(due_ns);
    CHECK_EQ(poll_fd(), fd);
    turn(); /* takes notice of a descriptor that was armed before */
    CHECK(!needed_now());
    CHECK_EQ(fl_loop_cancel(loop, second), 0);
    CHECK(!needed_now());
    make_timer(0, "3");
    CHECK(needed_now());
    turn();
    CHECK_DIARY("3");
    CHECK(!needed_now());
    fl_loop_free(loop);
}

TEST(a_timer_that_is_moved_to_an_earlier_time_makes_it_readable_then)
{
    begin_nested();
    fl_timer_id timer = make_timer(HOUR, "t");
    CHECK(!needed_now());
    CHECK_EQ(fl_loop_rearm(loop, timer, SOON), 0);
    CHECK(wait_readable(poll_fd(), 60000));
    while (diary[0] == '\0')
        turn();
    CHECK_DIARY("t");
    fl_loop_free(loop);
}

/* A turn in between that waits itself uses the same descriptors. */
TEST(waits_inside_and_outside_take_turns)
{
    begin_nested();
    for (unsigned i = 0; i < 20; i++) {
        fl_timer_id far = make_timer(HOUR, "never");
        CHECK(!needed_now());
        make_timer(SOON / 4, "a");
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
        CHECK_DIARY("a");
        make_timer(SOON / 4, "b");
        CHECK(wait_readable(poll_fd(), 60000));
        while (diary[0] == '\0')
            turn();
        CHECK_DIARY("b");
        CHECK_EQ(fl_loop_cancel(loop, far), 0);
        turn_until_quiet();
    }
    fl_loop_free(loop);
}

/* ---- Descriptors. */

static void take(fl_loop *l, int fd, unsigned events, void *arg)
{
    uint64_t value;
    (void)l, (void)events;
    CHECK_EQ(read(fd, &value, sizeof(value)), (ssize_t)sizeof(value));
    write_down(arg);
}

static void add(int fd)
{
    CHECK_EQ(write(fd, &(uint64_t){1}, sizeof(uint64_t)), (ssize_t)sizeof(uint64_t));
}

TEST(descriptors_timers_and_tasks_at_the_same_time_are_all_called)
{
    int fds[2] = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC)};
    begin_nested();
    CHECK_EQ(fl_loop_fd_add(loop, fds[0], FL_READ, take, "d"), 0);
    for (unsigned i = 0; i < 8; i++) {
        CHECK(!needed_now());
        if (i & 1)
            add(fds[0]);
        if (i & 2)
            make_timer(0, "t");
        if (i & 4)
            CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
        CHECK_EQ(needed_now(), i > 0);
        turn();
        CHECK_EQ(strlen(diary), (i & 1) + (i >> 1 & 1) + (i >> 2 & 1));
        diary[0] = '\0';
    }
    int fd = poll_fd();
    CHECK_EQ(fl_loop_fd_add(loop, fds[1], FL_READ, take, "e"), 0);
    add(fds[1]);
    CHECK(wait_readable(fd, 0));
    CHECK_EQ(fl_loop_fd_remove(loop, fds[1]), 0);
    CHECK(!wait_readable(fd, 0));
    fl_loop_free(loop);
    close(fds[0]);
    close(fds[1]);
}

/* The file stays open in a second descriptor, so the kernel goes on reporting it, and the loop needs a new instance. */
TEST(a_descriptor_that_was_closed_without_being_removed_does_not_keep_it_readable)
{
    int fd = eventfd(0, EFD_CLOEXEC), copy = dup(fd);
    begin_nested();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, take, "d"), 0);
    poll_fd();
    close(fd);
    add(copy);
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    turn_until_quiet();
    CHECK_EQ(fl_loop_fd_add(loop, copy, FL_READ, take, "c"), 0);
    CHECK(needed_now());
    turn();
    CHECK_DIARY("c");
    CHECK(!needed_now());
    fl_loop_free(loop);
    close(copy);
}

/* ---- Nesting and forks. */

static void turn_inner(fl_loop *outer, int fd, unsigned events, void *arg)
{
    (void)outer, (void)fd, (void)events;
    CHECK_EQ(fl_loop_run_once(arg, false), 0);
}

static void prepare_inner(fl_loop *outer, void *arg)
{
    int fd;
    (void)outer;
    CHECK_EQ(fl_loop_poll_fd(arg, &fd), 0);
}

/* The outer loop asks for the descriptor before each sleep, by a hook. */
TEST(a_loop_of_foliot_can_be_the_outer_loop)
{
    fl_loop *other;
    begin_nested();
    CHECK_EQ(fl_loop_new(NULL, &other), 0);
    CHECK_EQ(fl_loop_fd_add(other, poll_fd(), FL_READ, turn_inner, loop), 0);
    CHECK_EQ(fl_loop_hook(other, FL_HOOK_BEFORE_SLEEP, prepare_inner, loop, NULL), 0);
    make_timer(0, "a");
    make_timer(SOON, "b");
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    while (fl_loop_alive(loop))
        CHECK_EQ(fl_loop_run_once(other, true), 0);
    CHECK_DIARY("apb");
    fl_loop_free(other);
    fl_loop_free(loop);
}

static void check_child(void)
{
    CHECK_EQ(fl_loop_after_fork(loop), 0);
    int fd = poll_fd();
    CHECK(!wait_readable(fd, 0));
    CHECK_EQ(fl_loop_post(loop, note, "c"), 0);
    CHECK(wait_readable(fd, 0));
    turn();
    CHECK_DIARY("c");
    CHECK_EQ(poll_fd(), fd);
    CHECK(!wait_readable(fd, 0));
    make_timer(SOON, "t");
    CHECK(wait_readable(poll_fd(), 60000));
    while (diary[0] == '\0')
        turn();
    CHECK_DIARY("t");
    fl_loop_free(loop);
}

TEST(after_a_fork_both_descriptors_work)
{
    int status;
    begin_nested();
    make_timer(HOUR, "never");
    int fd = poll_fd();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        check_child();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(!wait_readable(fd, 0));
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    CHECK(wait_readable(fd, 0));
    turn();
    CHECK_DIARY("p");
    CHECK(!needed_now());
    fl_loop_free(loop);
}

/* The child has copies of the parent's descriptors and does not use them. */
TEST(a_child_that_lives_on_does_not_keep_the_parents_descriptor_readable)
{
    int fd = eventfd(0, EFD_CLOEXEC), copy = dup(fd), pipe_fds[2], status;
    begin_nested();
    CHECK_EQ(pipe2(pipe_fds, 0), 0);
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, take, "d"), 0);
    poll_fd();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipe_fds[1]);
        _exit(read(pipe_fds[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(fd);
    add(copy);
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    turn_until_quiet();
    close(pipe_fds[1]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    turn_until_quiet();
    fl_loop_free(loop);
    close(copy);
    close(pipe_fds[0]);
}

/* In the child, the number names another file than in the parent when it was added. */
TEST(after_a_fork_a_number_with_another_file_is_forgotten)
{
    int fd = eventfd(0, EFD_CLOEXEC), status;
    begin_nested();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, take, "d"), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int other = eventfd(1, EFD_CLOEXEC);
        CHECK_EQ(dup2(other, fd), fd);
        CHECK_EQ(fl_loop_after_fork(loop), 0);
        turn();
        CHECK_DIARY("");
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, take, "e"), 0);
        turn();
        CHECK_DIARY("e");
        fl_loop_free(loop);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    add(fd);
    turn();
    CHECK_DIARY("d");
    fl_loop_free(loop);
    close(fd);
}
