/* SPDX-License-Identifier: MIT */
/* The machine's clock and the virtual one. */

#include <stdbool.h>
#include <time.h>

#include <foliot/clock.h>

static uint64_t monotonic_now_ns(fl_clock *clock)
{
    struct timespec time;
    (void)clock;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

fl_clock *fl_clock_monotonic(void)
{
    static fl_clock monotonic = {monotonic_now_ns, NULL};
    return &monotonic;
}

/* The member is a plain number, so that C++ can read the header; all that happens to it here is atomic. */
static uint64_t virtual_now_ns(fl_clock *clock)
{
    return __atomic_load_n(&((fl_virtual_clock *)clock)->time_ns, __ATOMIC_ACQUIRE);
}

void fl_virtual_clock_move(fl_virtual_clock *clock, uint64_t time_ns)
{
    uint64_t before_ns = __atomic_load_n(&clock->time_ns, __ATOMIC_RELAXED);
    while (before_ns < time_ns &&
           !__atomic_compare_exchange_n(&clock->time_ns, &before_ns, time_ns, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
}

static void virtual_wait_until(fl_clock *clock, uint64_t deadline_ns)
{
    fl_virtual_clock_move((fl_virtual_clock *)clock, deadline_ns);
}

void fl_virtual_clock_init(fl_virtual_clock *clock, uint64_t start_ns)
{
    *clock = (fl_virtual_clock){.clock = {virtual_now_ns, virtual_wait_until}, .time_ns = start_ns};
}
