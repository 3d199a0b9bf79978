/* SPDX-License-Identifier: MIT */
/* Coroutines: foliot/kcoro.h, by its usage example and its edge cases. */

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include <foliot/kcoro.h>

#include "test.h"

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static atomic_int woken;

static void my_coro_fn(void *arg)
{
    (void)arg;
    fl_coro_park();
    atomic_fetch_add(&woken, 1);
}

/* The example as it stands. NOLINTBEGIN */
/* clang-format off */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
// Cooperative sleep inside a coroutine
static void worker(void* arg) {
  for (int i = 0; i < 10; ++i) {
    // do work...
    kc_sleep_ms(5); // parks coroutine cooperatively
  }
}
#pragma GCC diagnostic pop

static kcoro_t *schedule_a_specific_coroutine(void)
{
// Schedule a specific coroutine to wake later
kc_sched_t* s = kc_sched_default();
kcoro_t* co = NULL;
// spawn returns the coroutine via kc_spawn_co(..., &co)
kc_spawn_co(s, my_coro_fn, NULL, 64*1024, &co);
// Park it somewhere in logic, then:
kc_sched_timer_wake_after(s, co, 100 /* ms */);
    return co;
}
/* NOLINTEND */
/* clang-format on */

static void finish(kcoro_t *co)
{
    CHECK_EQ(fl_coro_join(co), 0);
    fl_coro_unref(co);
}

TEST(the_usage_example_runs)
{
    uint64_t before_ns = now_ns();
    kcoro_t *co = schedule_a_specific_coroutine(), *sleeper;
    CHECK(co);
    CHECK_EQ(kc_spawn_co(kc_sched_default(), worker, NULL, 0, &sleeper), 0);
    finish(sleeper);
    CHECK(now_ns() >= before_ns + 50 * 1000000ull);
    finish(co);
    CHECK_EQ(woken, 1);
    CHECK(now_ns() >= before_ns + 100 * 1000000ull);
}

TEST(the_default_scheduler_is_one)
{
    CHECK(kc_sched_default() && kc_sched_default() == kc_sched_default());
}

static void sleep_briefly(void *arg)
{
    (void)arg;
    uint64_t before_ns = now_ns();
    for (int i = 0; i < 10000; i++) {
        kc_sleep_ms(0);
        kc_sleep_ms(-1);
        kc_sleep_ms(-2147483647 - 1);
    }
    kc_sleep_ms(3);
    CHECK(now_ns() >= before_ns + 3000000);
}

TEST(zero_and_negative_sleeps_return_at_once)
{
    kcoro_t *co;
    CHECK_EQ(kc_spawn_co(NULL, sleep_briefly, NULL, 0, &co), 0);
    finish(co);
    sleep_briefly(NULL); /* and outside, where the thread sleeps */
}

static atomic_int steps;

static void park_twice(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        fl_coro_park();
        atomic_fetch_add(&steps, 1);
    }
}

TEST(an_expired_deadline_wakes_promptly)
{
    kcoro_t *co;
    CHECK_EQ(kc_spawn_co(NULL, park_twice, NULL, 64 * 1024, &co), 0);
    CHECK(kc_sched_timer_wake_at(kc_sched_default(), co, 1).id != 0);
    while (atomic_load(&steps) < 1)
        sched_yield();
    CHECK(kc_sched_timer_wake_after(kc_sched_default(), co, -100).id != 0);
    finish(co);
    CHECK_EQ(steps, 2);
}

TEST(cancelling_says_whether_it_came_in_time)
{
    kc_sched_t *s;
    kcoro_t *co;
    CHECK_EQ(fl_runtime_new(NULL, &s), 0);
    atomic_store(&woken, 0);
    CHECK_EQ(kc_spawn_co(s, my_coro_fn, NULL, 0, &co), 0);
    kc_timer_handle_t far = kc_sched_timer_wake_at(s, co, now_ns() + 3600 * 1000000000ull);
    kc_timer_handle_t near = kc_sched_timer_wake_after(s, co, 5);
    CHECK_EQ(kc_sched_timer_cancel(s, far), 0);
    CHECK_EQ(kc_sched_timer_cancel(s, far), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_coro_join(co), 0);
    CHECK_EQ(woken, 1);
    CHECK_EQ(kc_sched_timer_cancel(s, near), FL_TIMER_NOT_FOUND);
    CHECK_EQ(kc_sched_timer_cancel(s, (kc_timer_handle_t){0}), FL_TIMER_NOT_FOUND);
    CHECK_EQ(kc_sched_timer_wake_after(s, co, 1).id, 0); /* it has returned */
    fl_coro_unref(co);
    fl_runtime_free(s);
}
