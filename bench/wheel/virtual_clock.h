/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_VIRTUAL_CLOCK_H
#define FOLIOT_BENCH_VIRTUAL_CLOCK_H

/* The clock that all rivals live by: it moves when the benchmark says so. See virtual_clock.c. */

#include <stdint.h>
#include <time.h>

#define VIRTUAL_START_NS 1000000000000u

struct virtual_clock {
    uint64_t ns;
    struct timespec time; /* the same time */
};

extern struct virtual_clock virtual_clock;

static inline uint64_t virtual_clock_ns(void)
{
    return virtual_clock.ns;
}

/* Less than a second ahead. Without a division: it would be the most expensive part of an idle poll. */
static inline void virtual_clock_advance(uint64_t ns)
{
    virtual_clock.ns += ns;
    virtual_clock.time.tv_nsec += (long)ns;
    if (virtual_clock.time.tv_nsec >= 1000000000) {
        virtual_clock.time.tv_nsec -= 1000000000;
        virtual_clock.time.tv_sec++;
    }
}

/* To VIRTUAL_START_NS. No event loop may exist then: for them, time never goes back. */
void virtual_clock_reset(void);

#endif
