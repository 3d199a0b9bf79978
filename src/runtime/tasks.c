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
        list = stack_take(&tasks->fresh);
    if (list)
        fill(tasks, list);
    return list;
}

static struct fl__message *pop_ring(struct tasks *tasks)
{
    uint64_t head = atomic_load_explicit(&tasks->head, memory_order_acquire);
    struct fl__message *message;
    do {
        if (head == atomic_load_explicit(&tasks->tail, memory_order_relaxed))
            return NULL;
        message = atomic_load_explicit(slot(tasks, head), memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&tasks->head, &head, head + 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    return message;
}

struct fl__message *fl__tasks_pop(struct tasks *tasks)
{
    struct fl__message *message;
    while (!(message = pop_ring(tasks)) && refill(tasks))
        ;
    return message;
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

bool fl__tasks_steal(struct tasks *own, struct tasks *other)
{
    if (steal_from_ring(own, other))
        return true;
    struct fl__message *list = take_rest(other);
    if (!list)
        list = stack_take(&other->fresh);
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

void fl__tasks_close(struct tasks *tasks, void (*take)(void *arg, struct fl__message *message), void *arg)
{
    struct fl__message *fresh = stack_close(&tasks->fresh), *message;
    while ((message = pop_ring(tasks)))
        take(arg, message);
    take_all(take_rest(tasks), take, arg);
    take_all(fresh, take, arg);
}
