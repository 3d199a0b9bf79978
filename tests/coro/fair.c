/* SPDX-License-Identifier: MIT */
/* Coroutines that can run all the time leave the rest of their worker its turns.
 *
 * Each slice of a coroutine's work moves the clock by a tick, as if it had taken so long, and the counts of slices say who
 * waited for how many of them. */

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <foliot/coro.h>

#include "test.h"

#define MS 1000000ull

enum {
    WARM_UP = 20, /* slices before anybody else wants to run */
    FEW = 5,      /* slices that anybody may have to wait for */
};

/* A clock that only the test moves. */
struct hand_clock {
    fl_clock clock;
    _Atomic uint64_t time_ns;
};

static uint64_t hand_now(fl_clock *clock)
{
    return atomic_load(&((struct hand_clock *)clock)->time_ns);
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void hand_wait(fl_clock *clock, uint64_t deadline_ns)
{
    (void)clock, (void)deadline_ns;
    pause_briefly();
}

static struct hand_clock hand;
static fl_runtime *rt;
static fl_loop *loop;
static uint64_t slice_ns;
static unsigned slices;
static unsigned waited; /* slices between asking and answering */
static atomic_bool answered;
static atomic_uint ended;
static void (*ask)(void);

/* --- Who asks for a turn */

static void answer(void *arg)
{
    (void)arg;
    waited = slices - WARM_UP;
    atomic_store(&answered, true);
}

static void answer_loop(fl_loop *from, void *arg)
{
    CHECK(from == loop);
    answer(arg);
}

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

static void ask_by_urgent_post(void)
{
    CHECK_EQ(fl_loop_post_urgent(loop, answer_loop, NULL), 0);
}

static void ask_by_loop_timer(void)
{
    CHECK_EQ(fl_loop_timer(loop, 0, answer_loop, NULL, NULL), 0);
}

static void ask_by_immediate(void)
{
    CHECK_EQ(fl_loop_immediate(loop, answer_loop, NULL, NULL), 0);
}

static fl_timer *timer;

static void ask_by_timer(void)
{
    CHECK_EQ(fl_timer_start_after(timer, 0), 0);
}

static void *start_outside(void *arg)
{
    (void)arg;
    CHECK_EQ(fl_timer_start(timer, 1), 0);
    return NULL;
}

static void ask_by_timer_from_outside(void)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, start_outside, NULL), 0);
    pthread_join(thread, NULL);
}

static int loop_pipe[2], coro_pipe[2];

static void on_readable(fl_loop *from, int fd, unsigned events, void *arg)
{
    (void)events;
    CHECK_EQ(fl_loop_fd_remove(from, fd), 0);
    answer(arg);
}

static void ask_by_descriptor(void)
{
    CHECK_EQ(write(loop_pipe[1], "x", 1), 1);
}

static void wait_for_pipe(void *arg)
{
    CHECK(fl_coro_wait_fd(coro_pipe[0], FL_READ, FL_CORO_FOREVER) & FL_READ);
    answer(arg);
}

static void ask_by_waiting_coroutine(void)
{
    CHECK_EQ(write(coro_pipe[1], "x", 1), 1);
}

/* A descriptor lets the loop turn after every yield, whoever asks: so only those have one who need it. */
static const struct way {
    void (*ask)(void);
    bool watch, wait;
} ways[] = {
    {ask_by_task, false, false},       {ask_by_own_task, false, false},
    {ask_by_post, false, false},       {ask_by_urgent_post, false, false},
    {ask_by_loop_timer, false, false}, {ask_by_immediate, false, false},
    {ask_by_timer, false, false},      {ask_by_timer_from_outside, false, false},
    {ask_by_descriptor, true, false},  {ask_by_waiting_coroutine, false, true},
};

/* --- Who keeps the worker busy */

/* False: it is time to end. */
static bool work(void)
{
    atomic_fetch_add(&hand.time_ns, slice_ns);
    if (++slices == WARM_UP)
        ask();
    return !atomic_load(&answered);
}

static void yielder(void *arg)
{
    (void)arg;
    while (work())
        fl_coro_yield();
    atomic_fetch_add(&ended, 1);
}

static void sleeper(void *arg)
{
    (void)arg;
    while (work())
        CHECK_EQ(fl_sleep_ns(1), 0);
    atomic_fetch_add(&ended, 1);
}

static fl_coro *players[2];

static void player(void *arg)
{
    uintptr_t self = (uintptr_t)arg;
    while (work()) {
        fl_coro_unpark(players[!self]);
        fl_coro_park();
    }
    fl_coro_unpark(players[!self]);
    atomic_fetch_add(&ended, 1);
}

static void parent(void *arg)
{
    if (work())
        CHECK_EQ(fl_coro_spawn(NULL, NULL, parent, arg, NULL), 0);
    else
        atomic_fetch_add(&ended, 1);
}

struct load {
    fl_task_fn fn;
    unsigned count;
};

static const struct way *way;

static void start_load(void *arg)
{
    const struct load *load = arg;
    loop = fl_runtime_loop();
    if (way->watch)
        CHECK_EQ(fl_loop_fd_add(loop, loop_pipe[0], FL_READ, on_readable, NULL), 0);
    if (way->wait)
        CHECK_EQ(fl_coro_spawn(NULL, NULL, wait_for_pipe, NULL, NULL), 0);
    for (uintptr_t i = 0; i < load->count; i++)
        CHECK_EQ(fl_coro_spawn(rt, NULL, load->fn, (void *)i, i < 2 ? &players[i] : NULL), 0);
}

static void one_asks(struct load *load)
{
    hand = (struct hand_clock){.clock = {hand_now, hand_wait}, .time_ns = 1000 * MS};
    slices = 0;
    ask = way->ask;
    atomic_store(&answered, false);
    atomic_store(&ended, 0);
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1, .clock = &hand.clock}, &rt), 0);
    CHECK_EQ(pipe(loop_pipe), 0);
    CHECK_EQ(pipe(coro_pipe), 0);
    CHECK_EQ(fl_timer_new(rt, answer, NULL, &timer), 0);
    CHECK_EQ(fl_runtime_spawn(rt, start_load, load), 0);
    while (atomic_load(&ended) < load->count)
        pause_briefly();
    fl_runtime_free(rt);
    fl_timer_unref(timer);
    for (unsigned i = 0; i < 2; i++) {
        fl_coro_unref(i < load->count ? players[i] : NULL);
        close(loop_pipe[i]);
        close(coro_pipe[i]);
    }
}

/* Somebody asks in each of the ways while coroutines keep the worker busy. */
static void all_ask(fl_task_fn fn, unsigned count, uint64_t ns)
{
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct load load = {fn, count};
        way = &ways[i];
        slice_ns = ns;
        one_asks(&load);
        CHECK(waited <= FEW);
    }
}

TEST(a_lone_coroutine_that_yields_holds_nobody_up)
{
    all_ask(yielder, 1, MS);
    all_ask(yielder, 1, 0);
}

TEST(coroutines_that_yield_hold_nobody_up)
{
    all_ask(yielder, 2, MS);
    all_ask(yielder, 2, 0);
}

TEST(coroutines_that_wake_each_other_hold_nobody_up)
{
    all_ask(player, 2, MS);
}

TEST(coroutines_that_spawn_their_successors_hold_nobody_up)
{
    all_ask(parent, 1, MS);
    all_ask(parent, 3, MS);
}

TEST(coroutines_that_sleep_shortly_hold_nobody_up)
{
    all_ask(sleeper, 2, MS);
}
