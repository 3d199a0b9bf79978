/* SPDX-License-Identifier: MIT */
/* Preloaded into foliot-js: a wall clock that is set back and forth while a script runs. WALL_BACK="FROM UNTIL BY", in
 * milliseconds since the start of the process: between FROM and UNTIL, the clock is BY behind. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS INT64_C(1000000)

static int64_t from_ns, until_ns, by_ns;

static int64_t read_ns(clockid_t clock)
{
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return (int64_t)now.tv_sec * 1000 * NS_PER_MS + now.tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("WALL_BACK");
    long from, until, by;
    if (!text || sscanf(text, "%ld %ld %ld", &from, &until, &by) != 3)
        return;
    int64_t now_ns = read_ns(CLOCK_MONOTONIC);
    from_ns = now_ns + from * NS_PER_MS;
    until_ns = now_ns + until * NS_PER_MS;
    by_ns = by * NS_PER_MS;
}

static int64_t wall_ns(void)
{
    int64_t now_ns = read_ns(CLOCK_MONOTONIC);
    return read_ns(CLOCK_REALTIME) - (now_ns >= from_ns && now_ns < until_ns ? by_ns : 0);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    int64_t now_ns = wall_ns();
    *ret = (struct timespec){now_ns / (1000 * NS_PER_MS), now_ns % (1000 * NS_PER_MS)};
    return 0;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    int64_t now_ns = wall_ns();
    (void)zone;
    *ret = (struct timeval){now_ns / (1000 * NS_PER_MS), now_ns % (1000 * NS_PER_MS) / 1000};
    return 0;
}
