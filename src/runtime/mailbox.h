/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_MAILBOX_H
#define FOLIOT_RUNTIME_MAILBOX_H

/* Where other threads reach a worker, and where leaving workers reach the metronome (its merge queue).
 *
 * A stack of messages, as the inbox of a loop, which does not do here because a loop is freed when its worker leaves and
 * others may be about to send at that moment. The mailbox stays; it is closed when nobody is there any more.
 *
 * Whoever pushes onto an empty mailbox, and nobody else, posts the `wake` task to the loop; only that task's callback
 * empties the mailbox. So the task is posted once at a time, and one task wakes the loop for any number of messages.
 * When the worker closes the mailbox and finds messages, it knows that one such task has been posted or is about to be,
 * and turns its loop until it has come. After that no other thread can know the loop, and it may be freed.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/stack.h"

/* A queue of messages: first in, first out. All zero is empty. */
struct queue {
    struct fl__message *first, *last;
};

static inline void queue_append(struct queue *queue, struct fl__message *message)
{
    message->next = NULL;
    *(queue->first ? &queue->last->next : &queue->first) = message;
    queue->last = message;
}

static inline struct fl__message *queue_pop(struct queue *queue)
{
    struct fl__message *message = queue->first;
    if (message)
        queue->first = message->next;
    return message;
}

/* Takes all of them. */
static inline struct queue queue_take(struct queue *queue)
{
    struct queue taken = *queue;
    *queue = (struct queue){NULL, NULL};
    return taken;
}

struct mailbox {
    struct stack stack;
    _Alignas(64) fl_loop *loop;
    fl_loop_task wake;
    atomic_bool taken;     /* the owner has begun to take something out since it has last set this to false */
    struct queue received; /* the owner's: what has been taken out */
    uint64_t wakes;        /* the owner's: how often the task has come */
};

void fl__mailbox_init(struct mailbox *box); /* closed */
void fl__mailbox_open(struct mailbox *box, fl_loop *loop);

static inline bool mailbox_is_open(const struct mailbox *box) /* by the owner */
{
    return box->loop != NULL;
}

/* By the owner. What was inside is in `received`. */
void fl__mailbox_close(struct mailbox *box);

/* Any thread. False if it is closed. */
bool fl__mailbox_send(struct mailbox *box, struct fl__message *message);

#endif
