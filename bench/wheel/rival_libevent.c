/* SPDX-License-Identifier: MIT */
/* libevent: a binary heap of pointers to the program's struct event. Times are relative, as a struct timeval.
 *
 * Inside of a callback libevent knows the time from the loop's cache; outside it asks the clock for every event_add().
 * Programs work inside of callbacks, so we do too: inside() makes an event of our own active and runs the loop once.
 * event_add() on a pending event moves it. A poll is one event_base_loop(EVLOOP_ONCE | EVLOOP_NONBLOCK); without
 * EVLOOP_ONCE libevent would look for events a second time after timers have fired. Common timeouts
 * (event_base_init_common_timeout()) do not apply: our delays are all different. */

#include <stdlib.h>
#include <string.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "../frame.h"
#include "rival.h"

struct base {
    struct event_base *events;
    struct event hook; /* for inside() */
    void (*work)(void *arg);
    void *arg;
};

/* Seconds in the upper half, microseconds in the lower. */
static uint64_t encode(uint64_t delay_ns)
{
    uint64_t us = (delay_ns + 999) / 1000;
    return (us / 1000000) << 32 | us % 1000000;
}

static void do_work(evutil_socket_t fd, short what, void *arg)
{
    struct base *b = arg;
    (void)fd, (void)what;
    b->work(b->arg);
}

static void *create(bool huge_pages)
{
    (void)huge_pages;
    /* libev exports functions of the same names for programs written for libevent; here they would be a fraud. */
    if (strcmp(event_get_version(), EVENT__VERSION) != 0)
        bench_die("libevent is not libevent but %s", event_get_version());
    struct base *b = calloc(1, sizeof *b);
    struct event_config *config = event_config_new();
    if (!b || !config)
        bench_die("no memory for libevent");
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    b->events = event_base_new_with_config(config);
    event_config_free(config);
    if (!b->events)
        bench_die("event_base_new failed");
    event_assign(&b->hook, b->events, -1, 0, do_work, b);
    return b;
}

static void destroy(void *self)
{
    struct base *b = self;
    event_base_free(b->events);
    free(b);
}

static void fired(evutil_socket_t fd, short what, void *handle)
{
    (void)fd, (void)what;
    timer_fired(handle);
}

static void prepare(void *self, void *handle)
{
    evtimer_assign((struct event *)handle, ((struct base *)self)->events, fired, handle);
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    struct timeval when = {(time_t)(delay >> 32), (suseconds_t)(delay & UINT32_MAX)};
    (void)self;
    event_add(handle, &when);
}

static void cancel(void *self, void *handle)
{
    (void)self;
    event_del(handle);
}

static void poll(void *self)
{
    event_base_loop(((struct base *)self)->events, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

static void inside(void *self, void (*work)(void *arg), void *arg)
{
    struct base *b = self;
    b->work = work;
    b->arg = arg;
    event_active(&b->hook, EV_TIMEOUT, 0);
    poll(self);
}

const char *libevent_version(void)
{
    return event_get_version();
}

const struct timer_rival rival_libevent = {
    .handle_size = sizeof(struct event),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = schedule,
    .poll = poll,
    .inside = inside,
};
