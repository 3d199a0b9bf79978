/* SPDX-License-Identifier: MIT */
/* Tasks, microtasks, immediates, close callbacks: in which phase, in which order, how many a turn. */

#include <sys/eventfd.h>
#include <unistd.h>

#include "loop/loop_test.h"

static void post(const char *s)
{
    CHECK_EQ(fl_loop_post(loop, note, (void *)s), 0);
}

static void post_urgent(const char *s)
{
    CHECK_EQ(fl_loop_post_urgent(loop, note, (void *)s), 0);
}

static void immediate(const char *s)
{
    CHECK_EQ(fl_loop_immediate(loop, note, (void *)s, NULL), 0);
}

static void at_close(const char *s)
{
    CHECK_EQ(fl_loop_close_callback(loop, note, (void *)s), 0);
}

static void microtask(const char *s)
{
    CHECK_EQ(fl_loop_microtask(loop, note, (void *)s), 0);
}

/* ---- Tasks. */

TEST(tasks_run_in_the_order_in_which_they_were_posted)
{
    begin();
    for (unsigned i = 0; i < 26; i++)
        post(letter(i));
    run();
    CHECK_DIARY("abcdefghijklmnopqrstuvwxyz");
    end();
}

TEST(urgent_tasks_run_before_the_others)
{
    begin();
    post("a");
    post_urgent("1");
    post("b");
    post_urgent("2");
    run();
    CHECK_DIARY("12ab");
    end();
}

TEST(a_turn_runs_at_most_its_budget_of_tasks)
{
    begin();
    for (unsigned i = 0; i < 3000; i++)
        post("");
    static const unsigned after[] = {1024, 2048, 3000};
    for (unsigned i = 0; i < 3; i++) {
        turn();
        CHECK_EQ(stats().called.tasks, after[i]);
        CHECK_EQ(stats().waiting.tasks, 3000 - after[i]);
    }
    CHECK_EQ(stats().tasks_peak, 3000);
    end();
}

TEST(an_urgent_task_overtakes_those_that_are_over_the_budget)
{
    begin_with_budget(2);
    for (unsigned i = 0; i < 5; i++)
        post(letter(i));
    turn();
    CHECK_DIARY("ab");
    post_urgent("1");
    turn();
    CHECK_DIARY("1cd");
    run();
    CHECK_DIARY("e");
    end();
}

static void urgent_again(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_post_urgent(l, urgent_again, arg), 0);
}

TEST(urgent_tasks_have_a_budget_of_their_own_and_do_not_starve_the_others)
{
    begin_with_budget(2);
    for (unsigned i = 0; i < 3; i++)
        CHECK_EQ(fl_loop_post_urgent(loop, urgent_again, "u"), 0);
    for (unsigned i = 0; i < 5; i++)
        post(letter(i));
    turn();
    CHECK_DIARY("uuab");
    turn();
    CHECK_DIARY("uucd");
    turn();
    CHECK_DIARY("uue");
    end();
}

static void post_again(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_post(l, note, "new"), 0);
    CHECK_EQ(fl_loop_post_urgent(l, note, "urgent"), 0);
}

TEST(a_task_posted_by_a_task_waits_for_the_next_turn)
{
    begin();
    CHECK_EQ(fl_loop_post(loop, post_again, "a"), 0);
    post("b");
    turn();
    CHECK_DIARY("ab");
    turn();
    CHECK_DIARY("urgentnew");
    end();
}

static fl_loop_task own_task;

static void post_own_again(fl_loop *l, void *arg)
{
    unsigned *left = arg;
    write_down("o");
    if (--*left > 0)
        fl_loop_post_task(l, &own_task);
}

TEST(a_task_with_its_own_memory_can_be_posted_again_from_its_callback)
{
    unsigned left = 3;
    begin();
    own_task = (fl_loop_task){.fn = post_own_again, .arg = &left, .flags = FL_TASK_URGENT};
    post("a");
    fl_loop_post_task(loop, &own_task);
    turn();
    CHECK_DIARY("oa");
    run();
    CHECK_DIARY("oo");
    end();
}

TEST(a_task_needs_a_callback)
{
    begin();
    CHECK_EQ(fl_loop_post(loop, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_post_urgent(loop, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_microtask(loop, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_close_callback(loop, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK(!fl_loop_alive(loop));
    end();
}

/* ---- Phases. */

static void readable(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)events;
    write_down(arg);
    CHECK_EQ(fl_loop_fd_remove(l, fd), 0);
}

TEST(the_phases_of_a_turn_come_in_their_order)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    at_close("6");
    immediate("5");
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, readable, "4"), 0);
    post("3");
    post_urgent("2");
    make_timer(0, "1");
    microtask("0");
    turn();
    CHECK_DIARY("0123456");
    end();
    close(fd);
}

/* ---- Microtasks. */

static void note_with_microtask(fl_loop *l, void *arg)
{
    note(l, arg);
    CHECK_EQ(fl_loop_microtask(l, note, "m"), 0);
}

static void fd_with_microtask(fl_loop *l, int fd, unsigned events, void *arg)
{
    readable(l, fd, events, arg);
    CHECK_EQ(fl_loop_microtask(l, note, "m"), 0);
}

/* Two of each kind, so that the checkpoint is seen between callbacks of one phase and not only after the phase. */
TEST(there_is_a_checkpoint_after_every_callback)
{
    int fd[2] = {eventfd(1, EFD_CLOEXEC), eventfd(1, EFD_CLOEXEC)};
    begin();
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(fl_loop_timer(loop, 0, note_with_microtask, "t", NULL), 0);
        CHECK_EQ(fl_loop_post_urgent(loop, note_with_microtask, "u"), 0);
        CHECK_EQ(fl_loop_post(loop, note_with_microtask, "p"), 0);
        CHECK_EQ(fl_loop_fd_add(loop, fd[i], FL_READ, fd_with_microtask, "d"), 0);
        CHECK_EQ(fl_loop_immediate(loop, note_with_microtask, "i", NULL), 0);
        CHECK_EQ(fl_loop_close_callback(loop, note_with_microtask, "c"), 0);
    }
    turn();
    CHECK_DIARY("tmtmumumpmpmdmdmimimcmcm");
    end();
    close(fd[0]);
    close(fd[1]);
}

static void interval_with_microtask(fl_loop *l, void *arg)
{
    write_down("i");
    CHECK_EQ(fl_loop_microtask(l, note, "m"), 0);
    CHECK_EQ(fl_loop_cancel(l, *(fl_timer_id *)arg), 0);
}

TEST(there_is_a_checkpoint_after_an_intervals_callback)
{
    fl_timer_id id;
    begin();
    CHECK_EQ(fl_loop_interval(loop, 5, 0, interval_with_microtask, &id, &id), 0);
    make_timer(5, "t");
    run();
    CHECK_DIARY("imt");
    end();
}

static void microtask_chain(fl_loop *l, void *arg)
{
    unsigned *left = arg;
    write_down("m");
    if (--*left > 0)
        CHECK_EQ(fl_loop_microtask(l, microtask_chain, arg), 0);
}

static void start_chain(fl_loop *l, void *arg)
{
    write_down("t");
    CHECK_EQ(fl_loop_microtask(l, microtask_chain, arg), 0);
    CHECK_EQ(fl_loop_microtask(l, note, "n"), 0);
}

TEST(microtasks_of_microtasks_run_before_anything_else)
{
    unsigned left = 3;
    begin();
    make_timer_for(0, start_chain, &left);
    make_timer(0, "next");
    run();
    CHECK_DIARY("tmnmmnext");
    end();
}

TEST(microtasks_keep_their_order_however_many_there_are)
{
    begin();
    make_timer(0, "t");
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 10000; i++)
            microtask("");
        microtask("m");
        turn();
    }
    CHECK_DIARY("mtmm");
    CHECK_EQ(stats().called.microtasks, 30003);
    end();
}

/* ---- Immediates. */

static void make_immediate(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_immediate(l, note, "i", NULL), 0);
}

static void make_immediate_fd(fl_loop *l, int fd, unsigned events, void *arg)
{
    readable(l, fd, events, arg);
    CHECK_EQ(fl_loop_immediate(l, note, "i", NULL), 0);
    CHECK_EQ(fl_loop_timer(l, 0, note, "t", NULL), 0);
}

TEST(an_immediate_of_an_earlier_phase_runs_in_the_same_turn_and_before_timers)
{
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, make_immediate_fd, "d"), 0);
    turn();
    CHECK_DIARY("di");
    turn();
    CHECK_DIARY("t");
    end();
    close(fd);
}

TEST(an_immediate_of_an_immediate_waits_for_the_next_turn)
{
    begin();
    CHECK_EQ(fl_loop_immediate(loop, make_immediate, "1", NULL), 0);
    immediate("2");
    turn();
    CHECK_DIARY("12");
    turn();
    CHECK_DIARY("i");
    end();
}

static void cancel_immediate(fl_loop *l, void *arg)
{
    write_down("c");
    CHECK_EQ(fl_loop_cancel(l, *(fl_timer_id *)arg), 0);
}

TEST(an_immediate_can_be_cancelled_by_the_one_before_it)
{
    fl_timer_id id;
    begin();
    CHECK_EQ(fl_loop_immediate(loop, cancel_immediate, &id, NULL), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "x", &id), 0);
    immediate("y");
    run();
    CHECK_DIARY("cy");
    CHECK_EQ(fl_loop_cancel(loop, id), FL_TIMER_NOT_FOUND);
    end();
}

TEST(an_immediate_can_be_unreferenced_but_not_rearmed)
{
    fl_timer_id id;
    begin();
    CHECK_EQ(fl_loop_immediate(loop, note, "x", &id), 0);
    CHECK_EQ(fl_loop_rearm(loop, id, 5), FL_INVALID_ARGUMENT);
    CHECK(fl_loop_alive(loop));
    CHECK_EQ(fl_loop_unref(loop, id), 0);
    CHECK(!fl_loop_alive(loop));
    run();
    CHECK_DIARY("");
    turn();
    CHECK_DIARY("x");
    end();
}

TEST(a_turn_runs_at_most_its_budget_of_immediates_and_close_callbacks)
{
    begin_with_budget(2);
    for (unsigned i = 0; i < 3; i++) {
        immediate(letter(i));
        at_close(letter(i + 10));
    }
    turn();
    CHECK_DIARY("abkl");
    immediate("d");
    turn();
    CHECK_DIARY("cdm");
    end();
}

/* ---- Close callbacks. */

static void close_later(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_close_callback(l, note, "c"), 0);
}

TEST(close_callbacks_run_when_everything_else_of_the_turn_has_run)
{
    begin();
    make_timer_for(0, close_later, "t");
    post("p");
    immediate("i");
    turn();
    CHECK_DIARY("tpic");
    end();
}

TEST(a_close_callback_of_a_close_callback_waits_for_the_next_turn)
{
    begin();
    CHECK_EQ(fl_loop_close_callback(loop, close_later, "1"), 0);
    turn();
    CHECK_DIARY("1");
    CHECK(fl_loop_alive(loop));
    turn();
    CHECK_DIARY("c");
    end();
}

TEST(freeing_the_loop_calls_the_close_callbacks_and_nothing_else)
{
    begin();
    CHECK_EQ(fl_loop_close_callback(loop, close_later, "1"), 0);
    at_close("2");
    post("p");
    microtask("m");
    immediate("i");
    make_timer(0, "t");
    end();
    CHECK_DIARY("12c");
}
