/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_RING_H
#define FOLIOT_LOOP_RING_H

/* A first-in first-out queue of callbacks for one thread: microtasks, close callbacks. Its array doubles when it is full
 * and is given back when it is empty and large. */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>

struct loop_job {
    fl_loop_fn fn;
    void *arg;
};

struct loop_ring {
    struct loop_job *jobs;
    uint32_t capacity; /* 0 or a power of two */
    uint32_t first;
    uint32_t count;
};

void fl__loop_ring_destroy(struct loop_ring *ring);

/* Returns 0, FL_NO_MEMORY, or FL_CAPACITY_EXCEEDED beyond 2^31 callbacks. */
int fl__loop_ring_push(struct loop_ring *ring, fl_loop_fn fn, void *arg);

/* The ring must not be empty. */
struct loop_job fl__loop_ring_pop(struct loop_ring *ring);

#endif
