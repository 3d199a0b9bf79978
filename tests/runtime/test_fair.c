/* SPDX-License-Identifier: MIT */
/* Timers that are due all the time leave the rest of their worker its turns.
 *
 * Each callback moves the clock by a tick, as if it had taken so long, and the counts of callbacks say who waited for how
 * many of them. */

#include <pthread.h>
#include <unistd.h>

#include "rt.h"

enum {
    WARM_UP = 10, /* callbacks before anybody else wants to run */
    FEW = 4,      /* callbacks that anybody may have to wait for */
};

static struct hand_clock hand;
static fl_runtime *rt;
static fl_loop *loop;
static uint64_t callback_ns;
static atomic_uint calls, asked_at;
static atomic_bool answered;
static unsigned waited; /* callbacks between asking and answering */
static void (*ask)(void);

static void answer(void *arg)
{
    (void)arg;
    waited = atomic_load(&calls) - atomic_load(&asked_at);
    atomic_store(&answered, true);
}

static void answer_loop(fl_loop *from, void *arg)
{
    CHECK(from == loop);
    answer(arg);
}

/* What a callback does: it takes its time, and one of them asks. */
static void take_time(void)
{
    atomic_fetch_add(&hand.time_ns, callback_ns);
    if (atomic_fetch_add(&calls, 1) + 1 != WARM_UP)
        return;
    atomic_store(&asked_at, WARM_UP);
    ask();
}

static void set_loop(void *arg)
{
    (void)arg;
    loop = fl_runtime_loop();
}

static void begin(uint64_t ns)
{
    hand = (struct hand_clock){.clock = {hand_now, hand_wait}, .time_ns = 1000 * MS};
    callback_ns = ns;
    atomic_store(&calls, 0);
    atomic_store(&answered, false);
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1, .clock = &hand.clock}, &rt), 0);
    call_on_worker(rt, set_loop, NULL);
}

/* --- Who asks for a turn */

static void ask_by_task(void)
{
    CHECK_EQ(fl_runtime_spawn(rt, answer, NULL), 0);
}

static void ask_by_own_task(void)
{
    CHECK_EQ(fl_runtime_spawn_on(rt, 0, answer, NULL), 0);
}

static void ask_by_post(void)
{
    CHECK_EQ(fl_loop_post(loop, answer_loop, NULL), 0);
}

static void ask_by_loop_timer(void)
{
    CHECK_EQ(fl_loop_timer(loop, 0, answer_loop, NULL, NULL), 0);
}

static int pipe_ends[2];

static void on_readable(fl_loop *from, int fd, unsigned events, void *arg)
{
    (void)events;
    CHECK_EQ(fl_loop_fd_remove(from, fd), 0);
    answer(arg);
}

static void watch_pipe(void *arg)
{
    (void)arg;
    CHECK_EQ(fl_loop_fd_add(loop, pipe_ends[0], FL_READ, on_readable, NULL), 0);
}

static void ask_by_descriptor(void)
{
    CHECK_EQ(write(pipe_ends[1], "x", 1), 1);
}

static fl_timer *from_outside;

static void *start_outside(void *arg)
{
    (void)arg;
    CHECK_EQ(fl_timer_start(from_outside, 1), 0);
    return NULL;
}

static void ask_by_timer(void)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, start_outside, NULL), 0);
    pthread_join(thread, NULL);
}

static void (*const ways[])(void) = {ask_by_task,       ask_by_own_task,   ask_by_post,
                                     ask_by_loop_timer, ask_by_descriptor, ask_by_timer};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* Timers that start themselves again; see below. */
static fl_timer *restless[3];

static void let_go_of_restless(void)
{
    for (unsigned i = 0; i < sizeof(restless) / sizeof(restless[0]); i++) {
        fl_timer_unref(restless[i]);
        restless[i] = NULL;
    }
}

/* Somebody asks in each of these ways but one while `load` keeps the worker busy; nobody waits for more than `most`
 * callbacks. */
static void all_ask_but(void (*other)(void), fl_task_fn load, uint64_t ns, unsigned most)
{
    for (unsigned i = 0; i < WAYS; i++) {
        ask = ways[i];
        if (ask == other)
            continue;
        begin(ns);
        CHECK_EQ(pipe(pipe_ends), 0);
        CHECK_EQ(fl_timer_new(rt, answer, NULL, &from_outside), 0);
        call_on_worker(rt, watch_pipe, NULL);
        CHECK_EQ(fl_runtime_spawn(rt, load, NULL), 0);
        AWAIT(atomic_load(&answered));
        fl_runtime_free(rt);
        fl_timer_unref(from_outside);
        let_go_of_restless();
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        CHECK(waited <= most);
    }
}

static void all_ask(fl_task_fn load, uint64_t ns, unsigned most)
{
    all_ask_but(NULL, load, ns, most);
}

/* --- Timers that start themselves again */

/* The runtime may be freed between two callbacks, so that the last callback cannot be the one to release the handle. */
static void on_restless(void *arg)
{
    take_time();
    if (!atomic_load(&answered))
        CHECK_EQ(fl_timer_start_after(*(fl_timer **)arg, 0), 0);
}

static void start_restless(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        CHECK_EQ(fl_timer_new(rt, on_restless, &restless[i], &restless[i]), 0);
        CHECK_EQ(fl_timer_start_after(restless[i], 0), 0);
    }
}

static void one_restless(void *arg)
{
    (void)arg;
    start_restless(1);
}

static void three_restless(void *arg)
{
    (void)arg;
    start_restless(3);
}

TEST(a_timer_that_starts_itself_again_holds_nobody_up)
{
    all_ask(one_restless, MS, FEW);
    all_ask(three_restless, MS, FEW);
}

/* Started again for this very moment, it waits for the next turn all the same. */
TEST(a_timer_that_starts_itself_again_fires_once_a_turn)
{
    all_ask(one_restless, 0, 2);
}

/* --- Many at once */

enum { CROWD = 2000 };

static fl_timer *crowd[CROWD];
static unsigned last_number;

static void on_one_of_many(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    CHECK_EQ(number, last_number + 1);
    last_number = number;
    take_time();
}

static void start_crowd(void *arg)
{
    (void)arg;
    last_number = 0;
    for (uintptr_t i = 0; i < CROWD; i++) {
        CHECK_EQ(fl_timer_new(rt, on_one_of_many, (void *)(i + 1), &crowd[i]), 0);
        CHECK_EQ(fl_timer_start(crowd[i], 500 * MS + i), 0);
        fl_timer_unref(crowd[i]);
    }
}

TEST(many_timers_that_are_due_hold_nobody_up)
{
    all_ask(start_crowd, MS, FEW);
    all_ask(start_crowd, 0, 2 * 64);
}

static void ask_nothing(void)
{
}

TEST(many_timers_that_take_long_all_fire_in_order)
{
    ask = ask_nothing;
    begin(MS);
    CHECK_EQ(fl_runtime_spawn(rt, start_crowd, NULL), 0);
    AWAIT(atomic_load(&calls) == CROWD);
    CHECK_EQ(stats_of(rt).fired, CROWD);
    fl_runtime_free(rt);
}

static void on_anybody(void *arg)
{
    (void)arg;
    take_time();
}

static void start_anybody(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CROWD; i++) {
        CHECK_EQ(fl_timer_new(rt, on_anybody, NULL, &crowd[i]), 0);
        CHECK_EQ(fl_timer_start(crowd[i], 500 * MS + i), 0);
    }
}

static void let_go_of_crowd(void)
{
    for (unsigned i = 0; i < CROWD; i++)
        fl_timer_unref(crowd[i]);
}

static void hold(void *arg)
{
    AWAIT(atomic_load((atomic_bool *)arg));
}

TEST(many_timers_from_outside_hold_nobody_up)
{
    static atomic_bool started;
    ask = ask_by_task;
    begin(MS);
    CHECK_EQ(fl_runtime_spawn(rt, hold, &started), 0);
    start_anybody(NULL);
    atomic_store(&started, true);
    AWAIT(atomic_load(&calls) == CROWD);
    CHECK(atomic_load(&answered));
    CHECK(waited <= FEW);
    fl_runtime_free(rt);
    let_go_of_crowd();
}

/* --- Many tasks */

static void take_time_in_task(void *arg)
{
    (void)arg;
    take_time();
}

static void spawn_crowd(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CROWD; i++)
        CHECK_EQ(fl_runtime_spawn(rt, take_time_in_task, NULL), 0);
}

static void spawn_crowd_here(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CROWD; i++)
        CHECK_EQ(fl_runtime_spawn_on(rt, 0, take_time_in_task, NULL), 0);
}

/* Only tasks of the same kind wait for those before them. */
TEST(many_tasks_hold_nobody_else_up)
{
    all_ask_but(ask_by_task, spawn_crowd, MS, FEW);
    all_ask_but(ask_by_task, spawn_crowd, 0, 2 * 32);
    all_ask_but(ask_by_own_task, spawn_crowd_here, MS, FEW);
    all_ask_but(ask_by_own_task, spawn_crowd_here, 0, 2 * 32);
}

/* --- Those that are due and have to wait for the next turn */

static void move_and_cancel(void *arg)
{
    (void)arg;
    for (unsigned i = WARM_UP + FEW; i < CROWD; i++) {
        if (i % 3 == 0)
            CHECK(fl_timer_cancel(crowd[i]));
        if (i % 3 == 1)
            CHECK_EQ(fl_timer_start_after(crowd[i], HOUR), 0);
    }
}

static void ask_to_move(void)
{
    CHECK_EQ(fl_runtime_spawn(rt, move_and_cancel, NULL), 0);
}

TEST(timers_that_are_due_can_be_moved_and_cancelled_before_their_turn)
{
    unsigned moved = 0, cancelled = 0;
    for (unsigned i = WARM_UP + FEW; i < CROWD; i++) {
        cancelled += i % 3 == 0;
        moved += i % 3 == 1;
    }
    ask = ask_to_move;
    begin(MS);
    CHECK_EQ(fl_runtime_spawn(rt, start_anybody, NULL), 0);
    AWAIT(atomic_load(&calls) == CROWD - moved - cancelled);
    CHECK_EQ(stats_of(rt).pending, moved);
    CHECK_EQ(stats_of(rt).cancelled, cancelled);
    atomic_fetch_add(&hand.time_ns, 2 * HOUR);
    AWAIT(atomic_load(&calls) == CROWD - cancelled);
    fl_runtime_free(rt);
    let_go_of_crowd();
}

TEST(timers_that_are_due_go_on_elsewhere_if_their_worker_leaves)
{
    ask = ask_nothing;
    begin(MS);
    CHECK_EQ(fl_runtime_spawn(rt, start_anybody, NULL), 0);
    for (unsigned part = 1; part < 10; part++) {
        AWAIT(atomic_load(&calls) >= CROWD * part / 10);
        CHECK_EQ(fl_runtime_resize(rt, 0), 0);
        CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    }
    AWAIT(atomic_load(&calls) == CROWD);
    CHECK_EQ(stats_of(rt).pending, 0);
    fl_runtime_free(rt);
    let_go_of_crowd();
}

/* --- Timers on their way */

enum { ARRIVALS = 20000 };

static atomic_bool gate;
static atomic_uint partly; /* turns in which some of them had arrived, and some not */

static void wait_at_gate(void *arg)
{
    (void)arg;
    AWAIT(atomic_load(&gate));
}

static void look_every_turn(fl_loop *from, void *arg)
{
    uint64_t entries = stats_of(rt).entries;
    atomic_fetch_add(&partly, entries > 0 && entries < ARRIVALS);
    if (entries < ARRIVALS)
        CHECK_EQ(fl_loop_post(from, look_every_turn, arg), 0);
    else
        atomic_store(&answered, true);
}

static void look(void *arg)
{
    look_every_turn(fl_runtime_loop(), arg);
}

TEST(many_timers_that_arrive_at_once_hold_nobody_up)
{
    static fl_timer *timers[ARRIVALS];
    atomic_store(&answered, false);
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1, .tick_ns = 1}, &rt), 0);
    CHECK_EQ(fl_runtime_spawn(rt, look, NULL), 0);
    CHECK_EQ(fl_runtime_spawn(rt, wait_at_gate, NULL), 0);
    for (unsigned i = 0; i < ARRIVALS; i++) {
        CHECK_EQ(fl_timer_new(rt, answer, NULL, &timers[i]), 0);
        CHECK_EQ(fl_timer_start(timers[i], now_ns() + HOUR), 0);
    }
    atomic_store(&gate, true);
    AWAIT(atomic_load(&answered));
    CHECK(atomic_load(&partly) > 10);
    for (unsigned i = 0; i < ARRIVALS; i++) {
        CHECK(fl_timer_cancel(timers[i]));
        fl_timer_unref(timers[i]);
    }
    fl_runtime_free(rt);
}
