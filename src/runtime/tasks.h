/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_TASKS_H
#define FOLIOT_RUNTIME_TASKS_H

/* Tasks of a worker that have not begun and that any worker may begin. The owner takes them one by one, in order. An idle
 * worker takes half of them, or all that are further back. So a worker that is stuck in a task holds up only that task.
 * Timers that other threads have started are on their way in a second one of these.
 *
 *     fresh    any thread pushes here
 *     ring     the next ones to begin: taken at the head, by a compare-and-swap; the owner adds at the tail
 *     rest     what did not fit into the ring, linked, oldest first: put there by the owner, taken whole by any worker
 *
 * They are filled from behind: the owner looks at `rest` when the ring is empty, and at `fresh` when that is empty too.
 *
 * Why a slot is not read too late: what lies between head and tail is not overwritten, and head only grows. A thief
 * copies the slots first and then swaps the head from what it was before; if the swap succeeds, they were all there.
 */

#include <stdint.h>

#include "base/alloc.h"
#include "base/queue.h"
#include "runtime/runtime.h"

enum { TASKS_RING = 256 };

struct tasks {
    _Alignas(CACHE_LINE) _Atomic(struct fl__message *) fresh;
    _Alignas(CACHE_LINE) _Atomic uint64_t head;
    _Atomic(struct fl__message *) rest;
    _Alignas(CACHE_LINE) _Atomic uint64_t tail;
    _Atomic(struct fl__message *) ring[TASKS_RING];
};

/* Whether there seem to be some. Any thread. */
static inline bool tasks_waiting(const struct tasks *tasks)
{
    return atomic_load_explicit(&tasks->head, memory_order_relaxed) !=
               atomic_load_explicit(&tasks->tail, memory_order_relaxed) ||
           atomic_load_explicit(&tasks->rest, memory_order_relaxed) || !fl__stack_is_empty(&tasks->fresh);
}

/* Takes the next ones, at most `limit`; returns how many. The owner only. */
unsigned fl__runtime_tasks_take(struct tasks *tasks, struct fl__message **out, unsigned limit);

static inline struct fl__message *tasks_pop(struct tasks *tasks) /* NULL: there is none */
{
    struct fl__message *message;
    return fl__runtime_tasks_take(tasks, &message, 1) > 0 ? message : NULL;
}

/* Takes some of another's, when there are no own ones; false if there are none. The owner of `own` only. */
bool fl__runtime_tasks_steal(struct tasks *own, struct tasks *other);

/* The owner leaves: calls `take` for each; there will be no more. */
void fl__runtime_tasks_close(struct tasks *tasks, void (*take)(void *arg, struct fl__message *message), void *arg);

#endif
