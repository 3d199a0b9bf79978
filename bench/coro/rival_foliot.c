/* SPDX-License-Identifier: MIT */
/* Foliot's coroutines, for the benchmark: see coro.c for what a rival is asked.
 *
 * "own" as a second word gives every coroutine a stack of its own; else they share their worker's. */

#include <stdlib.h>
#include <string.h>

#include <foliot/coro.h>

#include "coro/context.h"
#include "rival.h"

static fl_coro_options options;
static size_t count;
static uint64_t sleep_ns;

/* --- The bare switch */

static void *main_context, *other_context;

static void switch_back(void *arg)
{
    (void)arg;
    for (;;)
        fl__coro_context_switch(&other_context, main_context);
}

static void measure_switch(void)
{
    static char stack[65536] __attribute__((aligned(64)));
    other_context = fl__coro_context_make(stack, stack + sizeof(stack), switch_back, NULL);
    uint64_t begin_ns = rival_cpu_ns();
    for (size_t i = 0; i < count / 2; i++)
        fl__coro_context_switch(&main_context, other_context);
    rival_answer((double)(rival_cpu_ns() - begin_ns) / (double)count);
}

/* --- Two that yield to each other */

static void yield_often(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < count / 2; i++)
        fl_coro_yield();
}

static void measure_yield(void *arg)
{
    (void)arg;
    fl_coro *coros[2];
    for (int i = 0; i < 2; i++)
        if (fl_coro_spawn(NULL, &options, yield_often, NULL, &coros[i]) < 0)
            abort();
    uint64_t begin_ns = rival_cpu_ns();
    for (int i = 0; i < 2; i++) {
        fl_coro_join(coros[i]);
        fl_coro_unref(coros[i]);
    }
    rival_answer((double)(rival_cpu_ns() - begin_ns) / (double)count);
}

/* --- Sleepers */

static size_t asleep, awake;
static uint64_t begin_ns, asleep_ns;
static float *lateness_us;
static fl_coro *waiting;

static void sleeper(void *arg)
{
    (void)arg;
    uint64_t deadline_ns = fl_coro_now_ns() + sleep_ns;
    if (++asleep == count)
        asleep_ns = fl_coro_now_ns();
    fl_sleep_ns(sleep_ns);
    lateness_us[awake++] = (float)(fl_coro_now_ns() - deadline_ns) / 1e3f;
    if (awake == count)
        fl_coro_unpark(waiting);
}

static void measure_sleep(void *arg)
{
    (void)arg;
    waiting = fl_coro_self();
    begin_ns = fl_coro_now_ns();
    for (size_t i = 0; i < count; i++) {
        if (fl_coro_spawn(NULL, &options, sleeper, NULL, NULL) < 0)
            abort();
        if (i % 256 == 255)
            fl_coro_yield();
    }
    fl_coro_park();
    rival_answer_sleep(asleep_ns - begin_ns, lateness_us, count);
}

static void run(fl_task_fn fn)
{
    fl_runtime *rt;
    fl_coro *coro;
    if (fl_runtime_new(NULL, &rt) < 0 || fl_coro_spawn(rt, NULL, fn, NULL, &coro) < 0)
        abort();
    fl_coro_join(coro);
    fl_coro_unref(coro);
    fl_runtime_free(rt);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    count = strtoull(argv[2], NULL, 10);
    sleep_ns = strtoull(argv[3], NULL, 10) * 1000000u;
    options.stack_size = argc > 4 ? 16 << 10 : 0;
    lateness_us = rival_lateness(count);
    if (strcmp(argv[1], "switch") == 0)
        measure_switch();
    else
        run(strcmp(argv[1], "yield") == 0 ? measure_yield : measure_sleep);
    return 0;
}
