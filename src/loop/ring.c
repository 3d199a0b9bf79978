/* SPDX-License-Identifier: MIT */
/* See ring.h. */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "loop/ring.h"

enum {
    FIRST_CAPACITY = 16,
    KEPT_CAPACITY = 4096, /* an empty ring above this is given back */
};

void fl__loop_ring_destroy(struct loop_ring *ring)
{
    fl__release(ring->jobs);
    *ring = (struct loop_ring){0};
}

static int grow(struct loop_ring *ring)
{
    assert(ring->count == ring->capacity);
    if (ring->capacity > UINT32_MAX / 2)
        return FL_CAPACITY_EXCEEDED;
    uint32_t capacity = ring->capacity ? ring->capacity * 2 : FIRST_CAPACITY;
    struct loop_job *jobs = fl__alloc(capacity * sizeof(*jobs));
    if (!jobs)
        return FL_NO_MEMORY;
    if (ring->count > 0) { /* it is full: the oldest is somewhere in the middle */
        uint32_t until_end = ring->capacity - ring->first;
        memcpy(jobs, ring->jobs + ring->first, until_end * sizeof(*jobs));
        memcpy(jobs + until_end, ring->jobs, ring->first * sizeof(*jobs));
    }
    fl__release(ring->jobs);
    *ring = (struct loop_ring){.jobs = jobs, .capacity = capacity, .count = ring->count};
    return 0;
}

int fl__loop_ring_push(struct loop_ring *ring, fl_loop_fn fn, void *arg)
{
    if (!fn)
        return FL_INVALID_ARGUMENT;
    if (ring->count == ring->capacity) {
        int r = grow(ring);
        if (r < 0)
            return r;
    }
    ring->jobs[(ring->first + ring->count++) & (ring->capacity - 1)] = (struct loop_job){fn, arg};
    return 0;
}

struct loop_job fl__loop_ring_pop(struct loop_ring *ring)
{
    assert(ring->count > 0);
    struct loop_job job = ring->jobs[ring->first];
    ring->first = (ring->first + 1) & (ring->capacity - 1);
    if (--ring->count == 0 && ring->capacity > KEPT_CAPACITY)
        fl__loop_ring_destroy(ring);
    return job;
}
