/* SPDX-License-Identifier: MIT */
/* Foliot's intrusive wheel. The handle is the node: 16 bytes. */

#include <foliot/error.h>
#include <foliot/nodes.h>

#include "../frame.h"
#include "rival.h"
#include "virtual_clock.h"

static uint64_t encode(uint64_t delay_ns)
{
    return delay_ns;
}

static void *create(bool huge_pages)
{
    fl_nodes *nodes;
    fl_wheel_config config = {.start_ns = virtual_clock_ns()};
    (void)huge_pages;
    int r = fl_nodes_new(&config, &nodes);
    if (r < 0)
        bench_die("fl_nodes_new: %s", fl_strerror(r));
    return nodes;
}

static void destroy(void *self)
{
    fl_nodes_free(self);
}

static void prepare(void *self, void *handle)
{
    (void)self, (void)handle;
}

static void start(void *self, void *handle, uint64_t delay)
{
    fl_nodes_start(self, handle, virtual_clock_ns() + delay);
}

static void stop(void *self, void *handle)
{
    if (__builtin_expect(!fl_nodes_stop(self, handle), 0))
        bench_die("fl_nodes_stop: the node did not wait");
}

enum { BATCH = 128, MOST = 1024 };

static fl_node *due[MOST];

static __attribute__((noinline)) void deliver(void *self, size_t n)
{
    for (;;) {
        for (size_t i = 0; i < n; i++)
            timer_fired(due[i]);
        if (n < BATCH)
            return;
        n = fl_nodes_poll(self, virtual_clock_ns(), due, BATCH);
    }
}

static void poll(void *self)
{
    size_t n = fl_nodes_poll(self, virtual_clock_ns(), due, BATCH);
    if (n > 0)
        deliver(self, n);
}

static size_t poll_some(void *self, size_t limit)
{
    return fl_nodes_poll(self, virtual_clock_ns(), due, limit < MOST ? limit : MOST);
}

static bool next_deadline(void *self, uint64_t *ret_ns)
{
    return fl_nodes_next_deadline(self, ret_ns);
}

const struct timer_rival rival_nodes = {
    .handle_size = sizeof(fl_node),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = start,
    .cancel = stop,
    .reschedule = start,
    .poll = poll,
    .poll_some = poll_some,
    .next_deadline = next_deadline,
};
