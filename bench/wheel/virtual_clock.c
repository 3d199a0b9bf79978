/* SPDX-License-Identifier: MIT */
/* Event loops on a virtual clock.
 *
 * libuv, libevent and libev ask clock_gettime() for the time and epoll for events, by way of the dynamic linker. This
 * program defines both functions itself, and the linker prefers the program's definitions:
 *
 *   clock_gettime()  gives the virtual time: two loads and two stores, where the real one takes some 20 ns in the vDSO.
 *                    Clocks that count CPU time stay real.
 *   epoll_wait()     says that no file descriptor is ready and does not wait. The real one is a system call of several
 *                    hundred nanoseconds, which a loop makes once an iteration and which has nothing to do with timers.
 *
 * So the libraries run as they are, unchanged and from their packages, all of their own timer code is measured, and
 * what they would pay besides it is as near to nothing as we can make it: in their favour, and the same for all three.
 * Our own functions are not reached by that: Foliot's wheel asks nobody for the time. */

#include <stddef.h>
#include <time.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "virtual_clock.h"

#define EXPORTED __attribute__((visibility("default")))

struct virtual_clock virtual_clock;

void virtual_clock_reset(void)
{
    virtual_clock = (struct virtual_clock){VIRTUAL_START_NS, {VIRTUAL_START_NS / 1000000000u, 0}};
}

/* The names on the left are ours, those on the right the linker's. */
EXPORTED int answer_clock_gettime(clockid_t clock, struct timespec *ret) __asm__("clock_gettime");
EXPORTED int answer_epoll_wait(int fd, struct epoll_event *events, int max, int timeout) __asm__("epoll_wait");
EXPORTED int answer_epoll_pwait(int fd, struct epoll_event *events, int max, int timeout,
                                const sigset_t *signals) __asm__("epoll_pwait");

int answer_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock == CLOCK_THREAD_CPUTIME_ID || clock == CLOCK_PROCESS_CPUTIME_ID || clock < 0)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    *ret = virtual_clock.time;
    return 0;
}

int answer_epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
    (void)fd, (void)events, (void)max, (void)timeout;
    return 0;
}

int answer_epoll_pwait(int fd, struct epoll_event *events, int max, int timeout, const sigset_t *signals)
{
    (void)fd, (void)events, (void)max, (void)timeout, (void)signals;
    return 0;
}
