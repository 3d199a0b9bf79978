/* SPDX-License-Identifier: MIT */
/* libuv: a binary heap linked through the program's uv_timer_t. Times are relative, in whole milliseconds.
 *
 * A timer is cancelled by uv_timer_stop(); uv_close(), which a program needs when it frees the structure, is not
 * counted. uv_timer_start() on an active timer restarts it. A poll is one uv_run(UV_RUN_NOWAIT): it updates the loop's
 * time, runs the timers, and looks for events, of which there are none. */

#include <uv.h>

#include "../frame.h"
#include "rival.h"

static uint64_t encode(uint64_t delay_ns)
{
    return (delay_ns + 999999) / 1000000;
}

static void *create(bool huge_pages)
{
    static uv_loop_t loop;
    (void)huge_pages;
    int r = uv_loop_init(&loop);
    if (r < 0)
        bench_die("uv_loop_init: %s", uv_strerror(r));
    return &loop;
}

static void close_one(uv_handle_t *handle, void *arg)
{
    (void)arg;
    uv_close(handle, NULL);
}

static void destroy(void *self)
{
    uv_walk(self, close_one, NULL);
    uv_run(self, UV_RUN_DEFAULT);
    int r = uv_loop_close(self);
    if (r < 0)
        bench_die("uv_loop_close: %s", uv_strerror(r));
}

static void prepare(void *self, void *handle)
{
    uv_timer_init(self, handle);
}

static void fired(uv_timer_t *timer)
{
    timer_fired(timer);
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    (void)self;
    uv_timer_start(handle, fired, delay, 0);
}

static void cancel(void *self, void *handle)
{
    (void)self;
    uv_timer_stop(handle);
}

static void poll(void *self)
{
    uv_run(self, UV_RUN_NOWAIT);
}

const char *libuv_version(void)
{
    return uv_version_string();
}

const struct timer_rival rival_libuv = {
    .handle_size = sizeof(uv_timer_t),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = schedule,
    .poll = poll,
};
