/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_MOMENT_H
#define FOLIOT_BASE_MOMENT_H

/* Moments: counts of nanoseconds in 64 bits. */

#include <stdint.h>

#define NEVER UINT64_MAX          /* where there may be no moment */
#define TIME_MAX (UINT64_MAX - 1) /* the last moment, where NEVER means that there is none */

/* A sum that does not fit into 64 bits is UINT64_MAX. */
static inline uint64_t add_time(uint64_t time_ns, uint64_t duration_ns)
{
    uint64_t sum;
    return __builtin_add_overflow(time_ns, duration_ns, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

#endif
