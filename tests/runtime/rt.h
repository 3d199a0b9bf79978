/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_RUNTIME_RT_H
#define FOLIOT_TESTS_RUNTIME_RT_H

/* What the tests of the runtime share. They run on the machine's clock and wait for things to happen; how long that takes
 * is never asserted. */

#include <stdatomic.h>
#include <time.h>

#include <foliot/runtime.h>

#include "test.h"

#define MS 1000000ull
#define HOUR (3600ull * 1000 * MS)

static inline uint64_t now_ns(void)
{
    fl_clock *clock = fl_clock_monotonic();
    return clock->now_ns(clock);
}

static inline void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Waits until it holds; the harness ends a test that waits in vain. */
#define AWAIT(condition)     \
    do {                     \
        while (!(condition)) \
            pause_briefly(); \
    } while (0)

/* A clock that the test moves; workers look at it often. */
struct hand_clock {
    fl_clock clock;
    _Atomic uint64_t time_ns;
};

static inline uint64_t hand_now(fl_clock *clock)
{
    return atomic_load(&((struct hand_clock *)clock)->time_ns);
}

static inline void hand_wait(fl_clock *clock, uint64_t deadline_ns)
{
    (void)clock;
    (void)deadline_ns;
    pause_briefly();
}

static inline fl_runtime *make_runtime(unsigned workers)
{
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = workers}, &rt), 0);
    return rt;
}

static inline struct fl_runtime_stats stats_of(fl_runtime *rt)
{
    struct fl_runtime_stats stats;
    CHECK_EQ(fl_runtime_stats(rt, &stats), 0);
    return stats;
}

/* Runs `fn` on a worker and waits for its end. */
struct call {
    fl_task_fn fn;
    void *arg;
    atomic_bool done;
};

static inline void run_call(void *arg)
{
    struct call *call = arg;
    call->fn(call->arg);
    atomic_store(&call->done, true);
}

static inline void call_on_worker(fl_runtime *rt, fl_task_fn fn, void *arg)
{
    struct call call = {.fn = fn, .arg = arg};
    CHECK_EQ(fl_runtime_spawn(rt, run_call, &call), 0);
    AWAIT(atomic_load(&call.done));
}

#endif
