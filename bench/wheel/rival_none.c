/* SPDX-License-Identifier: MIT */
/* No timers at all: what remains is the harness. It writes the handle where others would schedule and reads it where
 * others would cancel, because whoever keeps a timer does at least that. */

#include "rival.h"

static uint64_t sum;

static uint64_t encode(uint64_t delay_ns)
{
    return delay_ns;
}

static void *create(bool huge_pages)
{
    (void)huge_pages;
    return &sum;
}

static void destroy(void *self)
{
    (void)self;
}

static void prepare(void *self, void *handle)
{
    (void)self, (void)handle;
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    (void)self;
    *(uint64_t *)handle = delay;
}

static void cancel(void *self, void *handle)
{
    *(uint64_t *)self += *(uint64_t *)handle;
}

static void poll(void *self)
{
    (void)self;
}

const struct timer_rival rival_none = {
    .handle_size = sizeof(uint64_t),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = schedule,
    .poll = poll,
};
