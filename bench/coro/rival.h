/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_CORO_RIVAL_H
#define FOLIOT_BENCH_CORO_RIVAL_H

/* What the rivals in C and C++ share; those in Go and Rust say the same in their own words. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static inline uint64_t rival_clock_ns(clockid_t id)
{
    struct timespec time;
    clock_gettime(id, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t rival_real_ns(void)
{
    return rival_clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t rival_cpu_ns(void)
{
    return rival_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline void rival_answer(double ns)
{
    printf("%.4f\n", ns);
}

/* Room for the results, all of it touched already: it is the harness's and in everybody's memory alike. */
static inline float *rival_lateness(size_t count)
{
    float *lateness = (float *)malloc(count * sizeof(float));
    if (!lateness)
        abort();
    for (size_t i = 0; i < count; i++)
        lateness[i] = 1;
    return lateness;
}

static inline int rival_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Milliseconds until all were asleep, milliseconds of CPU time, megabytes at most, median and 99th percentile of the
 * lateness in microseconds. */
static inline void rival_answer_sleep(uint64_t spawn_ns, float *lateness_us, size_t count)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu_ms = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
                    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
    qsort(lateness_us, count, sizeof(float), rival_compare);
    printf("%.4f %.4f %.4f %.4f %.4f\n", (double)spawn_ns / 1e6, cpu_ms, (double)usage.ru_maxrss / 1024,
           (double)lateness_us[count / 2], (double)lateness_us[count * 99 / 100]);
}

#endif
