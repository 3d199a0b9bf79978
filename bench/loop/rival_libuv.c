/* SPDX-License-Identifier: MIT */
/* libuv as a loop that lives: epoll with a timeout in milliseconds, uv_async_t for messages. */

#include <stdlib.h>

#include <uv.h>

#include "../frame.h"
#include "rival.h"

struct live {
    uv_loop_t loop;
    uv_async_t async;
    uv_timer_t interval, timers[LOOP_TIMERS];
    struct mailbox *box;
};

static void must(int r, const char *what)
{
    if (__builtin_expect(r < 0, 0))
        bench_die("%s: %s", what, uv_strerror(r));
}

static void woken(uv_async_t *async)
{
    mailbox_receive(((struct live *)async->data)->box);
}

/* uv_async_t keeps the loop from ending. */
static void *open_loop(void)
{
    struct live *live = calloc(1, sizeof *live);
    if (!live)
        bench_die("no memory for libuv");
    must(uv_loop_init(&live->loop), "uv_loop_init");
    must(uv_async_init(&live->loop, &live->async, woken), "uv_async_init");
    live->async.data = live;
    live->box = mailbox_new();
    uv_timer_init(&live->loop, &live->interval);
    for (unsigned i = 0; i < LOOP_TIMERS; i++) {
        uv_timer_init(&live->loop, &live->timers[i]);
        live->timers[i].data = (void *)(uintptr_t)i;
    }
    return live;
}

static void close_one(uv_handle_t *handle, void *arg)
{
    (void)arg;
    uv_close(handle, NULL);
}

static void close_loop(void *self)
{
    struct live *live = self;
    uv_walk(&live->loop, close_one, NULL);
    uv_run(&live->loop, UV_RUN_DEFAULT);
    must(uv_loop_close(&live->loop), "uv_loop_close");
    mailbox_free(live->box);
    free(live);
}

static void refresh(void *self)
{
    uv_update_time(&((struct live *)self)->loop);
}

static void fired(uv_timer_t *timer)
{
    loop_fired((unsigned)(uintptr_t)timer->data);
}

static void once(void *self, unsigned number, uint64_t delay_ms)
{
    must(uv_timer_start(&((struct live *)self)->timers[number], fired, delay_ms, 0), "uv_timer_start");
}

static void every(void *self, uint64_t period_ms)
{
    must(uv_timer_start(&((struct live *)self)->interval, fired, period_ms, period_ms), "uv_timer_start");
}

static void run(void *self)
{
    uv_run(&((struct live *)self)->loop, UV_RUN_DEFAULT);
}

static void leave(void *self)
{
    uv_stop(&((struct live *)self)->loop);
}

/* uv_async_send() itself sends one wake-up for many calls; asking it only when the box was empty is cheaper still. */
static void post(void *self, void *message)
{
    struct live *live = self;
    if (mailbox_put(live->box, message))
        must(uv_async_send(&live->async), "uv_async_send");
}

const struct loop_rival loop_libuv = {
    .timers = &rival_libuv,
    .open = open_loop,
    .close = close_loop,
    .refresh = refresh,
    .once = once,
    .every = every,
    .run = run,
    .leave = leave,
    .post = post,
};
