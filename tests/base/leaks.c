/* SPDX-License-Identifier: MIT */
/* A program with AddressSanitizer and a library without: it ends while things wait in every part of the library, and the
 * only pointers to what they need are the library's own. Run by leaks.sh; with an argument it leaks something. */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <foliot/coro.h>
#include <foliot/loop.h>
#include <foliot/runtime.h>
#include <foliot/wheel.h>

#define HOUR (3600ull * 1000000000)

enum { MANY = 5000, BYTES = 24 };

static fl_wheel *wheel;
static fl_loop *loop;
static fl_runtime *rt;
static atomic_uint waiting;

static void must(int r)
{
    if (r < 0)
        _exit(2);
}

static void on_loop(fl_loop *owner, void *arg)
{
    (void)owner;
    free(arg);
}

static void on_runtime(void *arg)
{
    free(arg);
}

static void fill_wheel(void)
{
    fl_timer_id id;
    must(fl_wheel_new(NULL, &wheel));
    for (unsigned i = 0; i < MANY; i++)
        must(fl_wheel_schedule(wheel, HOUR + i * 100000000ull, malloc(BYTES), &id));
}

static void fill_loop(void)
{
    must(fl_loop_new(NULL, &loop));
    for (unsigned i = 0; i < MANY; i++) {
        must(fl_loop_timer(loop, HOUR + i, on_loop, malloc(BYTES), NULL));
        must(fl_loop_interval(loop, HOUR + i, 0, on_loop, malloc(BYTES), NULL));
        must(fl_loop_post(loop, on_loop, malloc(BYTES)));
        must(fl_loop_immediate(loop, on_loop, malloc(BYTES), NULL));
        must(fl_loop_microtask(loop, on_loop, malloc(BYTES)));
    }
}

/* Timers in the worker's wheel, one of them started by the worker itself, and tasks that it does not get to. */
static void start_on_worker(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < MANY; i++) {
        fl_timer *timer;
        must(fl_timer_new(rt, on_runtime, malloc(BYTES), &timer));
        must(fl_timer_start_after(timer, HOUR));
        fl_timer_unref(timer);
    }
}

static void block(void *arg)
{
    (void)arg;
    atomic_fetch_add(&waiting, 1);
    for (;;)
        pause();
}

static void sleep_long(void *arg)
{
    char *memory = malloc(BYTES);
    memory[0] = 1;
    atomic_fetch_add(&waiting, 1);
    fl_sleep_ns(HOUR);
    free(memory);
    free(arg);
}

static void fill_runtime(void)
{
    must(fl_runtime_new(&(fl_runtime_config){.workers = 1}, &rt));
    start_on_worker(NULL);
    must(fl_runtime_spawn(rt, start_on_worker, NULL));
    for (unsigned i = 0; i < 100; i++)
        must(fl_coro_spawn(rt, &(fl_coro_options){.stack_size = i % 2 ? 16384 : 0}, sleep_long, malloc(BYTES), NULL));
    while (atomic_load(&waiting) < 100)
        usleep(100);
    must(fl_runtime_spawn(rt, block, NULL));
    while (atomic_load(&waiting) < 101)
        usleep(100);
    for (unsigned i = 0; i < MANY; i++) {
        must(fl_runtime_spawn(rt, on_runtime, malloc(BYTES)));
        must(fl_runtime_spawn_on(rt, 0, on_runtime, malloc(BYTES)));
    }
    start_on_worker(NULL);
}

int main(int argc, char **argv)
{
    (void)argv;
    fill_wheel();
    fill_loop();
    fill_runtime();
    if (argc > 1)
        /* cppcheck-suppress leakNoVarFunctionCall ; that is what it is for */
        printf("%p\n", (void *)((size_t)malloc(BYTES) & 1));
    return 0;
}
