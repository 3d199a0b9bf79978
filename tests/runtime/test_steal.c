/* SPDX-License-Identifier: MIT */
/* Who waits for whom: what came from outside waits neither behind a long queue nor behind a worker that is stuck. A stuck
 * worker here is one in a task that ends only when everything else has happened: if that had to wait, the test would
 * never end. */

#include <unistd.h>

#include "rt.h"

struct gate {
    atomic_bool entered, open;
};

static void wait_at_gate(void *arg)
{
    struct gate *gate = arg;
    atomic_store(&gate->entered, true);
    AWAIT(atomic_load(&gate->open));
}

static void block_worker(fl_runtime *rt, unsigned worker, struct gate *gate)
{
    *gate = (struct gate){0};
    CHECK_EQ(fl_runtime_spawn_on(rt, worker, wait_at_gate, gate), 0);
    AWAIT(atomic_load(&gate->entered));
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

/* --- A worker that is stuck */

TEST(tasks_do_not_wait_for_a_worker_that_is_stuck)
{
    enum { WORKERS = 4, TASKS = 2000 };
    struct gate gate;
    atomic_uint ran = 0;
    fl_runtime *rt = make_runtime(WORKERS);
    block_worker(rt, 2, &gate);
    for (unsigned i = 0; i < TASKS; i++)
        CHECK_EQ(fl_runtime_spawn(rt, count, &ran), 0);
    AWAIT(atomic_load(&ran) == TASKS);
    atomic_store(&gate.open, true);
    fl_runtime_free(rt);
}

/* Each gets its share of the queue, more than fits into a ring, before one is let go. */
TEST(what_is_queued_at_a_stuck_worker_is_taken_by_one_that_is_done)
{
    enum { WORKERS = 3, TASKS = 5000 };
    struct gate gates[WORKERS];
    atomic_uint ran = 0;
    fl_runtime *rt = make_runtime(WORKERS);
    for (unsigned i = 0; i < WORKERS; i++)
        block_worker(rt, i, &gates[i]);
    for (unsigned i = 0; i < TASKS; i++)
        CHECK_EQ(fl_runtime_spawn(rt, count, &ran), 0);
    CHECK_EQ(atomic_load(&ran), 0);
    atomic_store(&gates[1].open, true);
    AWAIT(atomic_load(&ran) == TASKS);
    CHECK_EQ(stats_of(rt).tasks, TASKS + WORKERS);
    atomic_store(&gates[0].open, true);
    atomic_store(&gates[2].open, true);
    fl_runtime_free(rt);
}

struct pack {
    struct gate gates[8];
    atomic_uint blockers, ran;
};

static void block_or_count(void *arg)
{
    struct pack *pack = arg;
    unsigned n = atomic_fetch_add(&pack->ran, 1);
    if (n % 100 == 0 && n / 100 < 3)
        wait_at_gate(&pack->gates[atomic_fetch_add(&pack->blockers, 1)]);
}

/* Three of four workers get stuck one after the other in the middle of what they have queued. */
TEST(the_last_worker_that_is_not_stuck_does_the_work_of_all)
{
    enum { TASKS = 3000 };
    static struct pack pack;
    fl_runtime *rt = make_runtime(4);
    for (unsigned i = 0; i < TASKS; i++)
        CHECK_EQ(fl_runtime_spawn(rt, block_or_count, &pack), 0);
    AWAIT(atomic_load(&pack.ran) == TASKS);
    for (unsigned i = 0; i < 3; i++)
        atomic_store(&pack.gates[i].open, true);
    fl_runtime_free(rt);
}

TEST(a_task_for_a_stuck_worker_waits_for_it)
{
    struct gate gate;
    atomic_uint ran = 0, others = 0;
    fl_runtime *rt = make_runtime(2);
    block_worker(rt, 0, &gate);
    CHECK_EQ(fl_runtime_spawn_on(rt, 0, count, &ran), 0);
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(fl_runtime_spawn(rt, count, &others), 0);
    AWAIT(atomic_load(&others) == 100);
    CHECK_EQ(atomic_load(&ran), 0);
    atomic_store(&gate.open, true);
    AWAIT(atomic_load(&ran) == 1);
    fl_runtime_free(rt);
}

enum { TIMERS = 400 };

static void make_timers(fl_runtime *rt, fl_timer **timers, atomic_uint *fired)
{
    for (unsigned i = 0; i < TIMERS; i++)
        CHECK_EQ(fl_timer_new(rt, count, fired, &timers[i]), 0);
}

static void start_timers(fl_timer **timers, uint64_t delay_ns)
{
    for (unsigned i = 0; i < TIMERS; i++)
        CHECK_EQ(fl_timer_start_after(timers[i], delay_ns), 0);
}

static void unref_timers(fl_timer **timers)
{
    for (unsigned i = 0; i < TIMERS; i++)
        fl_timer_unref(timers[i]);
}

TEST(timers_started_while_a_worker_is_stuck_do_not_wait_for_it)
{
    struct gate gate;
    fl_timer *timers[TIMERS];
    atomic_uint fired = 0;
    fl_runtime *rt = make_runtime(4);
    make_timers(rt, timers, &fired);
    block_worker(rt, 1, &gate);
    start_timers(timers, MS);
    AWAIT(atomic_load(&fired) == TIMERS);
    atomic_store(&gate.open, true);
    unref_timers(timers);
    fl_runtime_free(rt);
}

TEST(timers_of_a_stuck_worker_that_are_started_again_do_not_wait_for_it)
{
    struct gate gate;
    fl_timer *timers[TIMERS];
    atomic_uint fired = 0;
    fl_runtime *rt = make_runtime(4);
    make_timers(rt, timers, &fired);
    start_timers(timers, HOUR);
    AWAIT(stats_of(rt).entries == TIMERS);
    block_worker(rt, 3, &gate);
    start_timers(timers, MS);
    AWAIT(atomic_load(&fired) == TIMERS);
    atomic_store(&gate.open, true);
    unref_timers(timers);
    fl_runtime_free(rt);
}

TEST(timers_sent_to_workers_that_are_all_stuck_go_to_the_first_that_is_not)
{
    struct gate gates[2];
    fl_timer *timers[TIMERS];
    atomic_uint fired = 0;
    fl_runtime *rt = make_runtime(2);
    make_timers(rt, timers, &fired);
    block_worker(rt, 0, &gates[0]);
    block_worker(rt, 1, &gates[1]);
    start_timers(timers, 0);
    atomic_store(&gates[1].open, true);
    AWAIT(atomic_load(&fired) == TIMERS);
    atomic_store(&gates[0].open, true);
    unref_timers(timers);
    fl_runtime_free(rt);
}

TEST(timers_that_wait_at_a_worker_do_not_wait_for_it_when_it_gets_stuck)
{
    struct gate gates[3];
    fl_timer *timers[TIMERS];
    atomic_uint fired = 0;
    fl_runtime *rt = make_runtime(4);
    make_timers(rt, timers, &fired);
    start_timers(timers, 50 * MS);
    AWAIT(stats_of(rt).entries == TIMERS || atomic_load(&fired) > 0);
    for (unsigned i = 0; i < 3; i++)
        block_worker(rt, i, &gates[i]);
    AWAIT(atomic_load(&fired) == TIMERS);
    CHECK_EQ(stats_of(rt).fired, TIMERS);
    for (unsigned i = 0; i < 3; i++)
        atomic_store(&gates[i].open, true);
    unref_timers(timers);
    fl_runtime_free(rt);
}

struct stuck_timer {
    struct gate gate;
    atomic_uint calls;
};

static void block_once(void *arg)
{
    struct stuck_timer *stuck = arg;
    if (atomic_fetch_add(&stuck->calls, 1) == 0)
        wait_at_gate(&stuck->gate);
}

/* The callback of one of many that are due at once does not hold up the others. */
TEST(timers_that_are_due_do_not_wait_for_the_callback_of_another)
{
    static struct stuck_timer stuck;
    fl_timer *timers[TIMERS];
    fl_runtime *rt = make_runtime(2);
    for (unsigned i = 0; i < TIMERS; i++)
        CHECK_EQ(fl_timer_new(rt, block_once, &stuck, &timers[i]), 0);
    uint64_t deadline_ns = now_ns() + 20 * MS;
    for (unsigned i = 0; i < TIMERS; i++)
        CHECK_EQ(fl_timer_start(timers[i], deadline_ns), 0);
    AWAIT(atomic_load(&stuck.calls) == TIMERS);
    atomic_store(&stuck.gate.open, true);
    unref_timers(timers);
    fl_runtime_free(rt);
}

/* --- A long queue */

struct queue_test {
    atomic_uint tasks, before; /* how many have begun; how many had when it came */
    atomic_bool came;
    int pipe[2];
};

static void one_of_many(void *arg)
{
    atomic_fetch_add(&((struct queue_test *)arg)->tasks, 1);
}

static void note_when(void *arg)
{
    struct queue_test *test = arg;
    atomic_store(&test->before, atomic_load(&test->tasks));
    atomic_store(&test->came, true);
}

static void note_readable(fl_loop *loop, int fd, unsigned events, void *arg)
{
    (void)events;
    CHECK_EQ(fl_loop_fd_remove(loop, fd), 0);
    note_when(arg);
}

static void watch_pipe(void *arg)
{
    struct queue_test *test = arg;
    CHECK_EQ(fl_loop_fd_add(fl_runtime_loop(), test->pipe[0], FL_READ, note_readable, test), 0);
    atomic_store(&test->came, true);
}

enum { QUEUE = 1000, SOON = 100 };

static void fill_queue(fl_runtime *rt, struct queue_test *test)
{
    for (unsigned i = 0; i < QUEUE; i++)
        CHECK_EQ(i % 2 ? fl_runtime_spawn(rt, one_of_many, test) : fl_runtime_spawn_on(rt, 0, one_of_many, test), 0);
}

TEST(a_timer_from_outside_does_not_queue_behind_tasks)
{
    struct queue_test test = {0};
    struct gate gate;
    fl_timer *timer;
    fl_runtime *rt = make_runtime(1);
    CHECK_EQ(fl_timer_new(rt, note_when, &test, &timer), 0);
    block_worker(rt, 0, &gate);
    fill_queue(rt, &test);
    CHECK_EQ(fl_timer_start_after(timer, 0), 0);
    atomic_store(&gate.open, true);
    AWAIT(atomic_load(&test.came) && atomic_load(&test.tasks) == QUEUE);
    CHECK(atomic_load(&test.before) < SOON);
    fl_timer_unref(timer);
    fl_runtime_free(rt);
}

TEST(a_descriptor_does_not_queue_behind_tasks)
{
    struct queue_test test = {0};
    struct gate gate;
    fl_runtime *rt = make_runtime(1);
    CHECK_EQ(pipe(test.pipe), 0);
    CHECK_EQ(fl_runtime_spawn_on(rt, 0, watch_pipe, &test), 0);
    AWAIT(atomic_exchange(&test.came, false));
    block_worker(rt, 0, &gate);
    fill_queue(rt, &test);
    CHECK_EQ(write(test.pipe[1], "x", 1), 1);
    atomic_store(&gate.open, true);
    AWAIT(atomic_load(&test.came) && atomic_load(&test.tasks) == QUEUE);
    CHECK(atomic_load(&test.before) < SOON);
    fl_runtime_free(rt);
    close(test.pipe[0]);
    close(test.pipe[1]);
}
