/* SPDX-License-Identifier: MIT */
/* Beginning and stealing tasks: see tasks.h. */

#include "runtime/tasks.h"

#include <assert.h>

static _Atomic(struct fl__message *) *slot(struct tasks *tasks, uint64_t number)
{
    return &tasks->ring[number % TASKS_RING];
}

static struct fl__message *take_rest(struct tasks *tasks)
{
    if (!atomic_load_explicit(&tasks->rest, memory_order_relaxed))
        return NULL;
    return atomic_exchange_explicit(&tasks->rest, NULL, memory_order_acq_rel);
}

/* Puts a list into the ring, which is empty, and what is too much into `rest`, which is too. */
static void fill(struct tasks *tasks, struct fl__message *list)
{
    assert(list && !atomic_load_explicit(&tasks->rest, memory_order_relaxed));
    uint64_t tail = atomic_load_explicit(&tasks->tail, memory_order_relaxed), end = tail + TASKS_RING;
    for (; list && tail < end; list = list->next)
        atomic_store_explicit(slot(tasks, tail++), list, memory_order_relaxed);
    if (list)
        atomic_store_explicit(&tasks->rest, list, memory_order_release);
    atomic_store_explicit(&tasks->tail, tail, memory_order_release); /* from here on they may run, and be gone */
}

static bool refill(struct tasks *tasks)
{
    struct fl__message *list = take_rest(tasks);
    if (!list)
        list = fl__stack_take(&tasks->fresh);
    if (list)
        fill(tasks, list);
    return list;
}

static unsigned take_from_ring(struct tasks *tasks, struct fl__message **out, unsigned limit)
{
    uint64_t head = atomic_load_explicit(&tasks->head, memory_order_acquire), count;
    do {
        count = atomic_load_explicit(&tasks->tail, memory_order_relaxed) - head;
        count = count < limit ? count : limit;
        if (count == 0)
            return 0;
        for (uint64_t i = 0; i < count; i++)
            out[i] = atomic_load_explicit(slot(tasks, head + i), memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&tasks->head, &head, head + count, memory_order_acq_rel,
                                                    memory_order_acquire));
    return (unsigned)count;
}

unsigned fl__runtime_tasks_take(struct tasks *tasks, struct fl__message **out, unsigned limit)
{
    unsigned count;
    while ((count = take_from_ring(tasks, out, limit)) == 0 && refill(tasks))
        ;
    return count;
}

/* Half of the other's ring, rounded up. */
static bool steal_from_ring(struct tasks *own, struct tasks *other)
{
    uint64_t tail = atomic_load_explicit(&own->tail, memory_order_relaxed), count;
    uint64_t head = atomic_load_explicit(&other->head, memory_order_acquire);
    assert(tail == atomic_load_explicit(&own->head, memory_order_relaxed));
    do {
        count = atomic_load_explicit(&other->tail, memory_order_acquire) - head;
        if (count == 0)
            return false;
        count = count > TASKS_RING ? 1 : count - count / 2; /* more than fits: the head was read too long ago */
        for (uint64_t i = 0; i < count; i++)
            atomic_store_explicit(slot(own, tail + i),
                                  atomic_load_explicit(slot(other, head + i), memory_order_relaxed),
                                  memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&other->head, &head, head + count, memory_order_acq_rel,
                                                    memory_order_acquire));
    atomic_store_explicit(&own->tail, tail + count, memory_order_release);
    return true;
}

bool fl__runtime_tasks_steal(struct tasks *own, struct tasks *other)
{
    if (steal_from_ring(own, other))
        return true;
    struct fl__message *list = take_rest(other);
    if (!list)
        list = fl__stack_take(&other->fresh);
    if (list)
        fill(own, list);
    return list;
}

static void take_all(struct fl__message *list, void (*take)(void *arg, struct fl__message *message), void *arg)
{
    while (list) {
        struct fl__message *next = list->next;
        take(arg, list);
        list = next;
    }
}

void fl__runtime_tasks_close(struct tasks *tasks, void (*take)(void *arg, struct fl__message *message), void *arg)
{
    struct fl__message *fresh = fl__stack_close(&tasks->fresh), *message;
    while (take_from_ring(tasks, &message, 1) > 0)
        take(arg, message);
    take_all(take_rest(tasks), take, arg);
    take_all(fresh, take, arg);
}
