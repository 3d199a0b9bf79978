/* SPDX-License-Identifier: MIT */
/* libevent as a loop that lives: epoll with its precise timer (a timerfd) switched on, locks on, event_active() to wake
 * it from another thread. */

#include <stdlib.h>

#include <event2/event.h>
#include <event2/event_struct.h>
#include <event2/thread.h>

#include "../frame.h"
#include "rival.h"

struct live {
    struct event_base *events;
    struct event wake, interval, timers[LOOP_TIMERS];
    struct mailbox *box;
};

static void must(int r, const char *what)
{
    if (__builtin_expect(r < 0, 0))
        bench_die("%s failed", what);
}

static void woken(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    mailbox_receive(((struct live *)arg)->box);
}

static void fired(evutil_socket_t fd, short what, void *number)
{
    (void)fd, (void)what;
    loop_fired((unsigned)(uintptr_t)number);
}

static void *open_loop(void)
{
    struct live *live = calloc(1, sizeof *live);
    struct event_config *config = event_config_new();
    if (!live || !config)
        bench_die("no memory for libevent");
    must(evthread_use_pthreads(), "evthread_use_pthreads");
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    live->events = event_base_new_with_config(config);
    event_config_free(config);
    if (!live->events)
        bench_die("event_base_new failed");
    live->box = mailbox_new();
    must(event_assign(&live->wake, live->events, -1, EV_PERSIST, woken, live), "event_assign");
    for (unsigned i = 0; i < LOOP_TIMERS; i++)
        must(evtimer_assign(&live->timers[i], live->events, fired, (void *)(uintptr_t)i), "evtimer_assign");
    return live;
}

static void close_loop(void *self)
{
    struct live *live = self;
    event_base_free(live->events);
    mailbox_free(live->box);
    free(live);
}

/* Outside of a callback libevent reads the clock for every timer by itself. */
static void refresh(void *self)
{
    (void)self;
}

static struct timeval milliseconds(uint64_t ms)
{
    return (struct timeval){(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
}

static void once(void *self, unsigned number, uint64_t delay_ms)
{
    struct timeval delay = milliseconds(delay_ms);
    must(event_add(&((struct live *)self)->timers[number], &delay), "event_add");
}

static void every(void *self, uint64_t period_ms)
{
    struct live *live = self;
    struct timeval period = milliseconds(period_ms);
    must(event_assign(&live->interval, live->events, -1, EV_PERSIST, fired, NULL), "event_assign");
    must(event_add(&live->interval, &period), "event_add");
}

static void run(void *self)
{
    must(event_base_loop(((struct live *)self)->events, EVLOOP_NO_EXIT_ON_EMPTY), "event_base_loop");
}

static void leave(void *self)
{
    event_base_loopbreak(((struct live *)self)->events);
}

static void post(void *self, void *message)
{
    struct live *live = self;
    if (mailbox_put(live->box, message))
        event_active(&live->wake, EV_READ, 0);
}

const struct loop_rival loop_libevent = {
    .timers = &rival_libevent,
    .open = open_loop,
    .close = close_loop,
    .refresh = refresh,
    .once = once,
    .every = every,
    .run = run,
    .leave = leave,
    .post = post,
};
