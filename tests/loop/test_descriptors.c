/* SPDX-License-Identifier: MIT */
/* Descriptors: what comes back, changing and removing, numbers that are used again. */

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop_test.h"

static unsigned seen; /* the events of the last call */

static void see(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)l, (void)fd;
    seen = events;
    write_down(arg);
}

static void see_once(fl_loop *l, int fd, unsigned events, void *arg)
{
    see(l, fd, events, arg);
    CHECK_EQ(fl_loop_fd_remove(l, fd), 0);
}

static void add(int fd, unsigned events, const char *s)
{
    CHECK_EQ(fl_loop_fd_add(loop, fd, events, see, (void *)s), 0);
}

static void make_pair(int fd[2])
{
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
}

static void close_pair(const int fd[2])
{
    close(fd[0]);
    close(fd[1]);
}

/* ---- Events. */

/* A connection over the loopback interface: pairs of sockets have no urgent data. */
static void make_tcp_pair(int fd[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(server, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(listen(server, 1), 0);
    CHECK_EQ(getsockname(server, (struct sockaddr *)&address, &size), 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(fd[0], (struct sockaddr *)&address, sizeof address), 0);
    fd[1] = accept(server, NULL, NULL);
    CHECK(fd[1] >= 0);
    close(server);
}

TEST(urgent_data_is_a_priority_event_if_asked_for)
{
    int fd[2];
    make_tcp_pair(fd);
    begin();
    add(fd[0], FL_READ, "r");
    CHECK_EQ(send(fd[1], "!", 1, MSG_OOB), 1);
    turn();
    CHECK_DIARY("");
    CHECK_EQ(fl_loop_fd_modify(loop, fd[0], FL_READ | FL_PRIORITY), 0);
    turn();
    CHECK_DIARY("r");
    CHECK_EQ(seen, FL_PRIORITY);
    char c;
    CHECK_EQ(recv(fd[0], &c, 1, MSG_OOB), 1);
    turn();
    CHECK_DIARY("");
    CHECK_EQ(write(fd[1], "x", 1), 1);
    turn();
    CHECK_DIARY("r");
    CHECK_EQ(seen, FL_READ);
    end();
    close_pair(fd);
}

TEST(a_descriptor_is_called_in_every_turn_in_which_it_is_ready)
{
    int fd[2];
    make_pair(fd);
    begin();
    add(fd[0], FL_READ, "r");
    turn();
    CHECK_DIARY("");
    CHECK_EQ(write(fd[1], "x", 1), 1);
    turn();
    turn();
    CHECK_DIARY("rr");
    CHECK_EQ(seen, FL_READ);
    char c;
    CHECK_EQ(read(fd[0], &c, 1), 1);
    turn();
    CHECK_DIARY("");
    end();
    close_pair(fd);
}

TEST(only_what_was_asked_for_comes_back)
{
    int fd[2];
    make_pair(fd);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    begin();
    add(fd[0], FL_WRITE, "w");
    turn();
    CHECK_EQ(seen, FL_WRITE);
    CHECK_EQ(fl_loop_fd_modify(loop, fd[0], FL_READ | FL_WRITE), 0);
    turn();
    CHECK_EQ(seen, FL_READ | FL_WRITE);
    CHECK_EQ(fl_loop_fd_modify(loop, fd[0], 0), 0);
    turn();
    CHECK_DIARY("ww");
    end();
    close_pair(fd);
}

TEST(a_hangup_comes_back_unasked_and_makes_ready_for_what_was_asked)
{
    int fd[2];
    make_pair(fd);
    begin();
    add(fd[0], 0, "h");
    close(fd[1]);
    turn();
    CHECK_EQ(seen, FL_HANGUP);
    CHECK_EQ(fl_loop_fd_modify(loop, fd[0], FL_READ), 0);
    turn();
    CHECK_EQ(seen, FL_READ | FL_HANGUP);
    CHECK_DIARY("hh");
    end();
    close(fd[0]);
}

TEST(a_half_closed_connection_is_a_hangup_if_asked_for)
{
    int fd[2];
    make_pair(fd);
    begin();
    add(fd[0], 0, "h");
    CHECK_EQ(shutdown(fd[1], SHUT_WR), 0);
    turn();
    CHECK_DIARY("");
    CHECK_EQ(fl_loop_fd_modify(loop, fd[0], FL_HANGUP), 0);
    turn();
    CHECK_DIARY("h");
    CHECK_EQ(seen, FL_HANGUP);
    end();
    close_pair(fd);
}

TEST(an_error_comes_back_unasked)
{
    int fd[2];
    CHECK_EQ(pipe2(fd, O_CLOEXEC), 0);
    begin();
    add(fd[1], FL_WRITE, "e");
    close(fd[0]);
    turn();
    CHECK_EQ(seen, FL_WRITE | FL_ERROR);
    end();
    close(fd[1]);
}

TEST(a_ready_descriptor_wakes_a_loop_that_waits)
{
    int fd[2];
    make_pair(fd);
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    CHECK_EQ(fl_loop_fd_add(loop, fd[0], FL_READ, see_once, "r"), 0);
    CHECK_EQ(write(fd[1], "x", 1), 1);
    run();
    CHECK_DIARY("r");
    end();
    close_pair(fd);
}

TEST(virtual_time_stands_still_while_a_descriptor_is_ready)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, see_once, "r"), 0);
    make_timer(HOUR, "t");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("r");
    CHECK_EQ(elapsed(), 0);
    run();
    CHECK_DIARY("t");
    end();
    close(fd);
}

/* ---- Changes while events wait. */

static int pair_of_events[2];

static void remove_both(fl_loop *l, int fd, unsigned events, void *arg)
{
    see(l, fd, events, arg);
    CHECK_EQ(fl_loop_fd_remove(l, pair_of_events[0]), 0);
    CHECK_EQ(fl_loop_fd_remove(l, pair_of_events[1]), 0);
}

TEST(a_descriptor_can_remove_itself_and_a_sibling_that_is_ready)
{
    begin();
    for (unsigned i = 0; i < 2; i++) {
        pair_of_events[i] = eventfd(1, EFD_CLOEXEC);
        CHECK_EQ(fl_loop_fd_add(loop, pair_of_events[i], FL_READ, remove_both, "x"), 0);
    }
    run();
    CHECK_DIARY("x");
    end();
    close_pair(pair_of_events);
}

/* ---- What earlier phases of the same turn have done. */

static int channel[2];

static void fill(fl_loop *l, void *arg)
{
    note(l, arg);
    CHECK_EQ(write(channel[1], "x", 1), 1);
}

static void drain(fl_loop *l, void *arg)
{
    char c;
    note(l, arg);
    CHECK_EQ(read(channel[0], &c, 1), 1);
}

static void in_microtask(fl_loop *l, void *arg)
{
    note(l, "t");
    CHECK_EQ(fl_loop_microtask(l, arg == channel ? fill : drain, "m"), 0);
}

/* Each kind of callback that may come before the descriptors. */
static void before_descriptors(unsigned kind, fl_loop_fn fn)
{
    int r = kind == 0   ? fl_loop_timer(loop, 0, fn, "t", NULL)
            : kind == 1 ? fl_loop_post(loop, fn, "t")
            : kind == 2 ? fl_loop_post_urgent(loop, fn, "t")
            : kind == 3 ? fl_loop_microtask(loop, fn, "t")
                        : fl_loop_timer(loop, 0, in_microtask, fn == fill ? channel : NULL, NULL);
    CHECK_EQ(r, 0);
}

static void run_before_descriptors(unsigned kind, bool wait, fl_loop_fn fn)
{
    diary[0] = '\0';
    before_descriptors(kind, fn);
    CHECK_EQ(fl_loop_run_once(loop, wait), 0);
}

TEST(a_descriptor_is_called_in_the_turn_that_made_it_ready)
{
    for (unsigned kind = 0; kind < 10; kind++) {
        make_pair(channel);
        begin();
        add(channel[0], FL_READ, "r");
        run_before_descriptors(kind % 5, kind / 5, fill);
        CHECK_DIARY(kind % 5 == 4 ? "tmr" : "tr");
        end();
        close_pair(channel);
    }
}

TEST(a_descriptor_is_not_called_for_what_the_same_turn_has_read)
{
    for (unsigned kind = 0; kind < 10; kind++) {
        make_pair(channel);
        begin();
        add(channel[0], FL_READ, "r");
        CHECK_EQ(write(channel[1], "x", 1), 1);
        run_before_descriptors(kind % 5, kind / 5, drain);
        CHECK_DIARY(kind % 5 == 4 ? "tm" : "t");
        end();
        close_pair(channel);
    }
}

/* The loop sleeps until both the timer is due and the descriptor is ready. */
static void fill_and_be_late(fl_clock *clock, uint64_t deadline_ns)
{
    (void)clock;
    test_time.time_ns = deadline_ns;
    CHECK_EQ(write(channel[1], "x", 1), 1);
}

TEST(what_a_sleep_has_found_is_looked_at_again_after_a_timer)
{
    make_pair(channel);
    begin();
    test_time.clock.wait_until = fill_and_be_late;
    add(channel[0], FL_READ, "r");
    make_timer_for(SECOND, drain, "t");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("t");
    end();
    close_pair(channel);
}

static void fill_and_stop(fl_clock *clock, uint64_t deadline_ns)
{
    fill_and_be_late(clock, deadline_ns);
    fl_loop_stop(loop);
}

TEST(what_a_sleep_has_found_is_forgotten_after_a_stop)
{
    make_pair(channel);
    begin();
    test_time.clock.wait_until = fill_and_stop;
    add(channel[0], FL_READ, "r");
    fl_timer_id timer = make_timer(SECOND, "t");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("");
    CHECK_EQ(fl_loop_cancel(loop, timer), 0);
    drain(loop, "");
    turn();
    CHECK_DIARY("");
    end();
    close_pair(channel);
}

/* Timers come before the descriptors are called. */
static void remove_in_timer(fl_loop *l, void *arg)
{
    write_down("t");
    CHECK_EQ(fl_loop_fd_remove(l, *(int *)arg), 0);
}

TEST(a_removed_descriptor_is_not_called_for_what_was_already_seen)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    add(fd, FL_READ, "x");
    make_timer_for(0, remove_in_timer, &fd);
    run();
    CHECK_DIARY("t");
    end();
    close(fd);
}

static void narrow_in_timer(fl_loop *l, void *arg)
{
    write_down("t");
    CHECK_EQ(fl_loop_fd_modify(l, *(int *)arg, FL_READ), 0);
}

TEST(events_that_are_no_longer_asked_for_are_not_delivered)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    begin();
    add(fd, FL_READ | FL_WRITE, "w");
    make_timer_for(0, narrow_in_timer, &fd);
    turn();
    CHECK_DIARY("t");
    end();
    close(fd);
}

TEST(a_half_closed_connection_is_no_hangup_when_that_is_no_longer_asked_for)
{
    int fd[2];
    make_pair(fd);
    begin();
    add(fd[0], FL_READ | FL_HANGUP, "r");
    make_timer_for(0, narrow_in_timer, &fd[0]);
    CHECK_EQ(shutdown(fd[1], SHUT_WR), 0);
    turn();
    CHECK_DIARY("tr");
    CHECK_EQ(seen, FL_READ);
    end();
    close_pair(fd);
}

static void replace_in_timer(fl_loop *l, void *arg)
{
    int fd = *(int *)arg;
    write_down("t");
    CHECK_EQ(fl_loop_fd_remove(l, fd), 0);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(eventfd(0, EFD_CLOEXEC), fd); /* the lowest free number: the same */
    CHECK_EQ(fl_loop_fd_add(l, fd, FL_READ, see, "new"), 0);
}

TEST(a_closed_and_reused_descriptor_gets_no_stale_event)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    add(fd, FL_READ, "old");
    make_timer_for(0, replace_in_timer, &fd);
    turn();
    CHECK_DIARY("t");
    CHECK_EQ(write(fd, &(uint64_t){1}, 8), 8);
    turn();
    CHECK_DIARY("new");
    end();
    close(fd);
}

/* ---- Descriptors that were closed without being removed. */

TEST(a_number_can_be_added_again_after_its_file_was_closed)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    add(fd, FL_READ, "old");
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, see, "twice"), FL_EXISTS);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(eventfd(1, EFD_CLOEXEC), fd);
    CHECK_EQ(fl_loop_fd_modify(loop, fd, FL_WRITE), FL_INVALID_ARGUMENT);
    add(fd, FL_READ, "new");
    CHECK_EQ(stats().waiting.descriptors, 1);
    turn();
    CHECK_DIARY("new");
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    CHECK(!fl_loop_alive(loop));
    end();
    close(fd);
}

/* The file lives on under another number, so the kernel goes on reporting it under the old one. */
TEST(a_file_that_lives_on_elsewhere_neither_calls_nor_wakes)
{
    int fd = eventfd(1, EFD_CLOEXEC), quiet = eventfd(0, EFD_CLOEXEC);
    begin();
    add(fd, FL_READ, "old");
    add(quiet, FL_READ, "quiet");
    int elsewhere = dup(fd);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    CHECK_EQ(eventfd(0, EFD_CLOEXEC), fd);
    add(fd, FL_READ, "new");
    make_timer(HOUR, "t");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("t");
    CHECK_EQ(elapsed(), HOUR);
    CHECK_EQ(write(fd, &(uint64_t){1}, 8), 8); /* and those that were meant still work */
    CHECK_EQ(write(quiet, &(uint64_t){1}, 8), 8);
    turn();
    CHECK(strcmp(diary, "newquiet") == 0 || strcmp(diary, "quietnew") == 0);
    end();
    close(fd);
    close(quiet);
    close(elsewhere);
}

/* ---- Refusals. */

TEST(what_cannot_be_waited_for_is_refused)
{
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), closed = dup(file);
    close(closed);
    begin();
    CHECK_EQ(fl_loop_fd_add(loop, -1, FL_READ, see, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_add(loop, closed, FL_READ, see, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_add(loop, INT32_MAX, FL_READ, see, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_add(loop, file, FL_READ, see, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_add(loop, 0, FL_READ, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_add(loop, 0, FL_ERROR, see, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_add(loop, 0, 16, see, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_fd_modify(loop, file, FL_READ), FL_NOT_FOUND);
    CHECK_EQ(fl_loop_fd_remove(loop, file), FL_NOT_FOUND);
    CHECK_EQ(fl_loop_fd_remove(loop, -1), FL_NOT_FOUND);
    CHECK_EQ(fl_loop_fd_remove(loop, INT32_MAX), FL_NOT_FOUND);
    CHECK(!fl_loop_alive(loop));
    end();
    close(file);
}

TEST(the_limit_on_descriptors_is_an_error_like_any_other)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    struct rlimit before, limit;
    begin();
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t spare = 0; spare < 3; spare++) { /* the loop needs three of its own */
        limit = (struct rlimit){(rlim_t)fd + 1 + spare, before.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, see, NULL), FL_CAPACITY_EXCEEDED);
    }
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    add(fd, FL_READ, "r");
    turn();
    CHECK_DIARY("r");
    end();
    close(fd);
}

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;
    CHECK(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

TEST(a_loop_opens_nothing_before_it_is_needed_and_closes_it_at_the_end)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    unsigned before = open_descriptors();
    begin();
    make_timer(5, "t");
    run();
    CHECK_EQ(open_descriptors(), before);
    add(fd, FL_READ, "r");
    CHECK_EQ(open_descriptors(), before + 3);
    end();
    CHECK_EQ(open_descriptors(), before);
    close(fd);
}

TEST(many_descriptors_are_called_within_the_budget_and_none_is_forgotten)
{
    enum { COUNT = 40 };
    int fd[COUNT];
    begin_with_budget(7);
    for (unsigned i = 0; i < COUNT; i++) {
        fd[i] = eventfd(1, EFD_CLOEXEC);
        CHECK_EQ(fl_loop_fd_add(loop, fd[i], FL_READ, see_once, "x"), 0);
    }
    turn();
    CHECK_DIARY("xxxxxxx");
    run();
    CHECK_EQ(stats().called.descriptors, COUNT);
    end();
    for (unsigned i = 0; i < COUNT; i++)
        close(fd[i]);
}

TEST(the_kernels_refusal_to_wait_ends_the_run)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    add(fd, FL_READ, "r");
    for (int own = fd + 1; own <= fd + 3; own++)
        close(own); /* what the loop has opened */
    CHECK_EQ(fl_loop_run(loop), FL_SYSTEM);
    fl_loop_free(loop);
    close(fd);
}
