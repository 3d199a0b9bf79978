/* SPDX-License-Identifier: MIT */
/* Foliot's loop. The handle of a timer is its ID: 8 bytes. A poll is one fl_loop_run_once(), which runs at most 1024
 * timers; the harness polls until all have fired. */

#include <foliot/loop.h>

#include "../frame.h"
#include "rival.h"

static void must(int r, const char *what)
{
    if (__builtin_expect(r < 0, 0))
        bench_die("%s: %s", what, fl_strerror(r));
}

/* ---- many timers ---- */

static uint64_t encode(uint64_t delay_ns)
{
    return delay_ns;
}

static void *create(bool huge_pages)
{
    fl_loop *loop;
    fl_loop_config config = {.huge_pages = huge_pages};
    must(fl_loop_new(&config, &loop), "fl_loop_new");
    return loop;
}

static void destroy(void *self)
{
    fl_loop_free(self);
}

static void prepare(void *self, void *handle)
{
    (void)self, (void)handle;
}

static void fired(fl_loop *loop, void *handle)
{
    (void)loop;
    timer_fired(handle);
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    must(fl_loop_timer(self, delay, fired, handle, handle), "fl_loop_timer");
}

static void cancel(void *self, void *handle)
{
    must(fl_loop_cancel(self, *(fl_timer_id *)handle), "fl_loop_cancel");
}

static void reschedule(void *self, void *handle, uint64_t delay)
{
    must(fl_loop_rearm(self, *(fl_timer_id *)handle, delay), "fl_loop_rearm");
}

static void poll(void *self)
{
    must(fl_loop_run_once(self, false), "fl_loop_run_once");
}

static const struct timer_rival timers = {
    .handle_size = sizeof(fl_timer_id),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = reschedule,
    .poll = poll,
};

/* ---- a loop that lives ---- */

static void *open_loop(void)
{
    fl_loop *loop = create(false);
    fl_loop_hold(loop);
    return loop;
}

static void refresh(void *self)
{
    fl_loop_update_now(self);
}

static void live_fired(fl_loop *loop, void *number)
{
    (void)loop;
    loop_fired((unsigned)(uintptr_t)number);
}

static void once(void *self, unsigned number, uint64_t delay_ms)
{
    must(fl_loop_timer(self, delay_ms * 1000000, live_fired, (void *)(uintptr_t)number, NULL), "fl_loop_timer");
}

static void every(void *self, uint64_t period_ms)
{
    must(fl_loop_interval(self, period_ms * 1000000, FL_INTERVAL_SKIP, live_fired, NULL, NULL), "fl_loop_interval");
}

static void run(void *self)
{
    must(fl_loop_run(self), "fl_loop_run");
}

static void leave(void *self)
{
    fl_loop_stop(self);
}

static void received(fl_loop *loop, void *message)
{
    (void)loop;
    loop_received(message);
}

static void post(void *self, void *message)
{
    must(fl_loop_post(self, received, message), "fl_loop_post");
}

const struct loop_rival loop_foliot = {
    .timers = &timers,
    .open = open_loop,
    .close = destroy,
    .refresh = refresh,
    .once = once,
    .every = every,
    .run = run,
    .leave = leave,
    .post = post,
};
