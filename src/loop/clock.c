/* SPDX-License-Identifier: MIT */
/* The machine's clock and the virtual one. */

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

static uint64_t virtual_now_ns(fl_clock *clock)
{
    return ((fl_virtual_clock *)clock)->time_ns;
}

static void virtual_wait_until(fl_clock *clock, uint64_t deadline_ns)
{
    fl_virtual_clock *virtual_clock = (fl_virtual_clock *)clock;
    if (virtual_clock->time_ns < deadline_ns)
        virtual_clock->time_ns = deadline_ns;
}

void fl_virtual_clock_init(fl_virtual_clock *clock, uint64_t start_ns)
{
    *clock = (fl_virtual_clock){.clock = {virtual_now_ns, virtual_wait_until}, .time_ns = start_ns};
}
