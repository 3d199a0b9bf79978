/* SPDX-License-Identifier: MIT */
/* Foliot's wheel. The handle is the ID that the wheel gives out: 8 bytes. */

#include <foliot/error.h>
#include <foliot/wheel.h>

#include "../frame.h"
#include "rival.h"
#include "virtual_clock.h"

static uint64_t encode(uint64_t delay_ns)
{
    return delay_ns;
}

static void *create(bool huge_pages)
{
    fl_wheel *wheel;
    fl_wheel_config config = {.start_ns = virtual_clock_ns(), .huge_pages = huge_pages};
    int r = fl_wheel_new(&config, &wheel);
    if (r < 0)
        bench_die("fl_wheel_new: %s", fl_strerror(r));
    return wheel;
}

static void destroy(void *self)
{
    fl_wheel_free(self);
}

static void prepare(void *self, void *handle)
{
    (void)self, (void)handle;
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    int r = fl_wheel_schedule(self, virtual_clock_ns() + delay, handle, handle);
    if (__builtin_expect(r < 0, 0))
        bench_die("fl_wheel_schedule: %s", fl_strerror(r));
}

static void cancel(void *self, void *handle)
{
    int r = fl_wheel_cancel(self, *(fl_timer_id *)handle, NULL);
    if (__builtin_expect(r < 0, 0))
        bench_die("fl_wheel_cancel: %s", fl_strerror(r));
}

static void reschedule(void *self, void *handle, uint64_t delay)
{
    int r = fl_wheel_reschedule(self, *(fl_timer_id *)handle, virtual_clock_ns() + delay, handle);
    if (__builtin_expect(r < 0, 0))
        bench_die("fl_wheel_reschedule: %s", fl_strerror(r));
}

enum { BATCH = 128, MOST = 1024 };

static fl_expired due[MOST];

static __attribute__((noinline)) void deliver(void *self, size_t n)
{
    for (;;) {
        for (size_t i = 0; i < n; i++)
            timer_fired(due[i].data);
        if (n < BATCH)
            return;
        n = fl_wheel_poll(self, virtual_clock_ns(), due, BATCH);
    }
}

static void poll(void *self)
{
    size_t n = fl_wheel_poll(self, virtual_clock_ns(), due, BATCH);
    if (n > 0)
        deliver(self, n);
}

static size_t poll_some(void *self, size_t limit)
{
    return fl_wheel_poll(self, virtual_clock_ns(), due, limit < MOST ? limit : MOST);
}

static bool next_deadline(void *self, uint64_t *ret_ns)
{
    return fl_wheel_next_deadline(self, ret_ns);
}

const struct timer_rival rival_foliot = {
    .handle_size = sizeof(fl_timer_id),
    .leaves_handle = true,
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = reschedule,
    .poll = poll,
    .poll_some = poll_some,
    .next_deadline = next_deadline,
};
