/* SPDX-License-Identifier: MIT */
/* Preloaded into a server, sets its wall clock off by CLOCK_OFFSET_S seconds; nothing else is changed. */

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t offset_s(void)
{
    const char *text = getenv("CLOCK_OFFSET_S");
    return text ? (time_t)strtoll(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    static int (*real)(clockid_t clock_id, struct timespec * tp);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(clock_id, tp);
    if (r == 0 && (clock_id == CLOCK_REALTIME || clock_id == CLOCK_REALTIME_COARSE))
        tp->tv_sec += offset_s();
    return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    struct timespec now;
    (void)tz;
    clock_gettime(CLOCK_REALTIME, &now);
    *tv = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *timer)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (timer)
        *timer = now.tv_sec;
    return now.tv_sec;
}
