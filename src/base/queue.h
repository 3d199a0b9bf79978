/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_QUEUE_H
#define FOLIOT_BASE_QUEUE_H

/* A first-in first-out queue for one thread, and a lock-free stack that any thread may push onto. Both are linked by a
 * member `next` of their nodes and need no memory of their own.
 *
 *     FL__QUEUE(message_queue, struct message);           declares struct message_queue; all zero is empty
 *     _Atomic(struct message *) sent;                     the head of a stack; NULL is empty
 *
 * The head of a stack is the newest node, NULL, or a mark: a small number that says something about the taking side.
 * FL__STACK_CLOSED means that pushing fails. All other marks are for the layer that sets them; the push that finds such a mark
 * replaces it and gets it back, so exactly one push sees it.
 *
 * A stack is taken whole. Therefore a node that comes back at the same address does no harm: a push needs its
 * predecessor to be the head and nothing more. What one thread pushed is taken in the order in which it was pushed.
 *
 * Pushing and taking are sequentially consistent: a thread that pushes and then sees that the other side is awake, and the
 * other side that goes to sleep and then looks at the stack, cannot miss each other. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* --- The queue */

#define FL__QUEUE(name, type) \
    struct name {             \
        type *first, *last;   \
        size_t count;         \
    }

#define fl__queue_append(queue, node)                                    \
    ({                                                                   \
        __typeof__(queue) queue_ = (queue);                              \
        __typeof__(queue_->first) node_ = (node);                        \
        node_->next = NULL;                                              \
        *(queue_->first ? &queue_->last->next : &queue_->first) = node_; \
        queue_->last = node_;                                            \
        queue_->count++;                                                 \
    })

/* The oldest node, or NULL. */
#define fl__queue_pop(queue)                             \
    ({                                                   \
        __typeof__(queue) queue_ = (queue);              \
        __typeof__(queue_->first) node_ = queue_->first; \
        if (node_) {                                     \
            queue_->first = node_->next;                 \
            queue_->count--;                             \
        }                                                \
        node_;                                           \
    })

/* Moves all of `from` to the end of `to`. */
#define fl__queue_move(to, from)                                           \
    ({                                                                     \
        __typeof__(to) to_ = (to), from_ = (from);                         \
        if (from_->first) {                                                \
            *(to_->first ? &to_->last->next : &to_->first) = from_->first; \
            to_->last = from_->last;                                       \
            to_->count += from_->count;                                    \
            from_->first = NULL;                                           \
            from_->count = 0;                                              \
        }                                                                  \
    })

/* --- The stack */

enum { FL__STACK_CLOSED = 1, FL__STACK_MARKS = 8 /* NULL and all marks are below */ };

#define fl__stack_is_mark(head) ((uintptr_t)(head) < FL__STACK_MARKS)

/* Whether there is nothing to take. Any thread. */
#define fl__stack_is_empty(stack) fl__stack_is_mark(atomic_load(stack))

/* Returns the head that was replaced; FL__STACK_CLOSED: nothing was pushed. Any thread. */
#define fl__stack_push(stack, node)                                                   \
    ({                                                                                \
        __typeof__(node) node_ = (node);                                              \
        __typeof__(node) head_ = atomic_load_explicit((stack), memory_order_relaxed); \
        while ((uintptr_t)head_ != FL__STACK_CLOSED) {                                \
            node_->next = fl__stack_is_mark(head_) ? NULL : head_;                    \
            if (atomic_compare_exchange_weak((stack), &head_, node_))                 \
                break;                                                                \
        }                                                                             \
        head_;                                                                        \
    })

/* Turns a list round. */
#define fl__list_reverse(list)                    \
    ({                                            \
        __typeof__(list) rest_ = (list);          \
        __typeof__(list) turned_ = NULL;          \
        while (rest_) {                           \
            __typeof__(list) next_ = rest_->next; \
            rest_->next = turned_;                \
            turned_ = rest_;                      \
            rest_ = next_;                        \
        }                                         \
        turned_;                                  \
    })

/* Takes all nodes, linked from the oldest to the newest; NULL if there are none. A mark stays. Any thread. */
#define fl__stack_take(stack)                                                                       \
    ({                                                                                              \
        __auto_type taken_ = atomic_load(stack);                                                    \
        while (!fl__stack_is_mark(taken_) && !atomic_compare_exchange_weak((stack), &taken_, NULL)) \
            ;                                                                                       \
        fl__stack_is_mark(taken_) ? NULL : fl__list_reverse(taken_);                                \
    })

/* The same, and from now on pushing fails. */
#define fl__stack_close(stack)                                                  \
    ({                                                                          \
        __auto_type last_ = atomic_exchange((stack), (void *)FL__STACK_CLOSED); \
        fl__stack_is_mark(last_) ? NULL : fl__list_reverse(last_);              \
    })

#endif
