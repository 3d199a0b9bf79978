/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_STACK_H
#define FOLIOT_RUNTIME_STACK_H

/* Messages that many threads push, one at a time, and that are taken all at once: nobody waits for anybody. The head is
 *
 *     NULL      empty
 *     message   the newest; they are linked to the oldest
 *     CLOSED    nobody is there to take it; pushing fails
 *
 * Because a stack is taken whole, it does not matter whether the head was the same message all the time.
 *
 * Pushing and taking are sequentially consistent: who pushes and then sees that nobody is asleep, and who goes to sleep
 * and then looks at the stack, cannot miss each other (runtime.c).
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "runtime/worker.h"

struct stack {
    _Alignas(64) _Atomic(struct fl__message *) head;
};

#define STACK_CLOSED ((struct fl__message *)1)

static inline bool stack_is_empty(const struct stack *stack) /* or closed */
{
    return (uintptr_t)atomic_load(&stack->head) <= (uintptr_t)STACK_CLOSED;
}

/* False: it is closed. `ret_first` says whether it was empty. */
static inline bool stack_push(struct stack *stack, struct fl__message *message, bool *ret_first)
{
    struct fl__message *head = atomic_load_explicit(&stack->head, memory_order_relaxed);
    do {
        if (head == STACK_CLOSED)
            return false;
        message->next = head;
    } while (!atomic_compare_exchange_weak(&stack->head, &head, message));
    *ret_first = !head;
    return true;
}

/* Takes all, oldest first. Any thread. */
static inline struct fl__message *stack_take(struct stack *stack)
{
    struct fl__message *head = atomic_load(&stack->head);
    do
        if (!head || head == STACK_CLOSED)
            return NULL;
    while (!atomic_compare_exchange_weak(&stack->head, &head, NULL));
    return fl__list_reverse(head);
}

static inline void stack_open(struct stack *stack)
{
    atomic_store(&stack->head, NULL);
}

/* Takes all, oldest first, and there will be no more. */
static inline struct fl__message *stack_close(struct stack *stack)
{
    struct fl__message *head = atomic_exchange(&stack->head, STACK_CLOSED);
    return head == STACK_CLOSED ? NULL : fl__list_reverse(head);
}

#endif
