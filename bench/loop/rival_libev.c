/* SPDX-License-Identifier: MIT */
/* libev as a loop that lives: epoll with a timeout in milliseconds, ev_async for messages. */

#include <stdlib.h>

#include <ev.h>

#include "../frame.h"
#include "rival.h"

struct live {
    struct ev_loop *loop;
    ev_async async;
    ev_timer interval, timers[LOOP_TIMERS];
    struct mailbox *box;
};

static void woken(struct ev_loop *loop, ev_async *async, int what)
{
    (void)loop, (void)what;
    mailbox_receive(((struct live *)async->data)->box);
}

static void fired(struct ev_loop *loop, ev_timer *timer, int what)
{
    (void)loop, (void)what;
    loop_fired((unsigned)(uintptr_t)timer->data);
}

static void *open_loop(void)
{
    struct live *live = calloc(1, sizeof *live);
    if (!live || !(live->loop = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV)))
        bench_die("ev_loop_new failed");
    live->box = mailbox_new();
    ev_async_init(&live->async, woken);
    live->async.data = live;
    ev_async_start(live->loop, &live->async);
    for (unsigned i = 0; i < LOOP_TIMERS; i++) {
        ev_timer_init(&live->timers[i], fired, 0., 0.);
        live->timers[i].data = (void *)(uintptr_t)i;
    }
    return live;
}

static void close_loop(void *self)
{
    struct live *live = self;
    ev_loop_destroy(live->loop);
    mailbox_free(live->box);
    free(live);
}

static void refresh(void *self)
{
    ev_now_update(((struct live *)self)->loop);
}

static void once(void *self, unsigned number, uint64_t delay_ms)
{
    struct live *live = self;
    ev_timer_set(&live->timers[number], (double)delay_ms / 1000, 0.);
    ev_timer_start(live->loop, &live->timers[number]);
}

static void every(void *self, uint64_t period_ms)
{
    struct live *live = self;
    ev_timer_init(&live->interval, fired, (double)period_ms / 1000, (double)period_ms / 1000);
    live->interval.data = NULL;
    ev_timer_start(live->loop, &live->interval);
}

static void run(void *self)
{
    ev_run(((struct live *)self)->loop, 0);
}

static void leave(void *self)
{
    ev_break(((struct live *)self)->loop, EVBREAK_ALL);
}

static void post(void *self, void *message)
{
    struct live *live = self;
    if (mailbox_put(live->box, message))
        ev_async_send(live->loop, &live->async);
}

const struct loop_rival loop_libev = {
    .timers = &rival_libev,
    .open = open_loop,
    .close = close_loop,
    .refresh = refresh,
    .once = once,
    .every = every,
    .run = run,
    .leave = leave,
    .post = post,
};
