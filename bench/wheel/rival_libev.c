/* SPDX-License-Identifier: MIT */
/* libev: a four-ary heap of (time, pointer to the program's ev_timer). Times are relative, in seconds, as a double.
 *
 * ev_timer_again() moves an active timer; the interval it would repeat with is taken away again, so that the timer
 * fires once. A poll is one ev_run(EVRUN_NOWAIT). libev reads the real-time clock twice a second besides; here both
 * clocks are the virtual one, and it sees no jumps. */

#include <stdio.h>
#include <string.h>

#include <ev.h>

#include "../frame.h"
#include "rival.h"

static uint64_t encode(uint64_t delay_ns)
{
    double seconds = (double)delay_ns / 1e9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    return bits;
}

static double decode(uint64_t bits)
{
    double seconds;
    memcpy(&seconds, &bits, sizeof seconds);
    return seconds;
}

static void *create(bool huge_pages)
{
    (void)huge_pages;
    struct ev_loop *loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (!loop)
        bench_die("ev_loop_new failed");
    return loop;
}

static void destroy(void *self)
{
    ev_loop_destroy(self);
}

static void fired(struct ev_loop *loop, ev_timer *timer, int what)
{
    (void)loop, (void)what;
    timer_fired(timer);
}

static void prepare(void *self, void *handle)
{
    ev_timer *timer = handle;
    (void)self;
    ev_timer_init(timer, fired, 0., 0.);
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    ev_timer *timer = handle;
    ev_timer_set(timer, decode(delay), 0.);
    ev_timer_start(self, timer);
}

static void cancel(void *self, void *handle)
{
    ev_timer_stop(self, handle);
}

static void reschedule(void *self, void *handle, uint64_t delay)
{
    ev_timer *timer = handle;
    timer->repeat = decode(delay);
    ev_timer_again(self, timer);
    timer->repeat = 0.;
}

static void poll(void *self)
{
    ev_run(self, EVRUN_NOWAIT);
}

const char *libev_version(void)
{
    static char version[32];
    snprintf(version, sizeof version, "%d.%d", ev_version_major(), ev_version_minor());
    return version;
}

const struct timer_rival rival_libev = {
    .handle_size = sizeof(ev_timer),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = reschedule,
    .poll = poll,
};
