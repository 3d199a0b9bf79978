/* SPDX-License-Identifier: MIT */
/* The engine's own asynchronous work.
 *
 * What JavaScriptCore for GTK does later, finalization callbacks and the end of a WebAssembly compilation, it does in the
 * GLib main context that was the thread's default when the engine was made. We make one, and
 * look after it once a turn: prepare() says whether something is due, and query() when something will be, for which an
 * unreferenced timer wakes the loop.
 *
 * Other threads of the engine announce their results through the context's wake-up descriptor. Only work that the program
 * waits for has a hold; while there is one, the descriptor is in the loop, which keeps the loop alive as it should.
 */

#include <glib.h>

#include "js/js.h"

enum { MAX_FDS = 8 };

static GMainContext *context;
static uint64_t holds;
static int wake_fd;
static fl_timer_id wake_timer; /* 0: none */

int glib_begin(void)
{
    context = g_main_context_new();
    if (!context)
        return FL_NO_MEMORY;
    g_main_context_push_thread_default(context);
    g_main_context_acquire(context);
    return 0;
}

static void wake(fl_loop *loop, void *arg)
{
    (void)loop, (void)arg;
    wake_timer = 0;
}

/* If it cannot be set, the engine waits until the loop turns for another reason. */
static void wake_after(int timeout_ms)
{
    if (wake_timer)
        fl_loop_cancel(host.loop, wake_timer);
    wake_timer = 0;
    if (timeout_ms < 0)
        return;
    fl_loop_update_now(host.loop);
    if (fl_loop_timer(host.loop, (uint64_t)timeout_ms * 1000000, wake, NULL, &wake_timer) == 0)
        fl_loop_unref(host.loop, wake_timer);
}

/* One round; `ret_timeout_ms` is when the next one is needed, -1 for never. */
static void iterate(int *ret_timeout_ms)
{
    GPollFD fds[MAX_FDS];
    int priority;
    bool ready = g_main_context_prepare(context, &priority);
    int count = g_main_context_query(context, priority, ret_timeout_ms, fds, MAX_FDS);
    if (!ready && holds == 0)
        return;
    count = count < MAX_FDS ? count : MAX_FDS;
    g_poll(fds, (unsigned)count, 0);
    if (!g_main_context_check(context, priority, fds, count))
        return;
    g_main_context_dispatch(context);
    *ret_timeout_ms = 0;
}

/* What a round leads to is done by another, in the next turn if need be. */
void glib_pump(void)
{
    int timeout_ms = 0;
    for (int rounds = 0; rounds < 4 && timeout_ms == 0; rounds++)
        iterate(&timeout_ms);
    wake_after(timeout_ms);
}

static void on_wake(fl_loop *loop, int fd, unsigned events, void *arg)
{
    (void)loop, (void)fd, (void)events, (void)arg; /* the pump follows every turn */
}

int glib_hold(void)
{
    if (holds == 0) {
        GPollFD fds[MAX_FDS];
        int priority, timeout_ms;
        g_main_context_prepare(context, &priority);
        if (g_main_context_query(context, priority, &timeout_ms, fds, MAX_FDS) < 1)
            return FL_NOT_FOUND;
        wake_fd = fds[0].fd; /* the context's own is the first */
        int r = fl_loop_fd_add(host.loop, wake_fd, FL_READ, on_wake, NULL);
        if (r < 0)
            return r;
    }
    holds++;
    return 0;
}

void glib_unhold(void)
{
    if (--holds == 0)
        fl_loop_fd_remove(host.loop, wake_fd);
}
