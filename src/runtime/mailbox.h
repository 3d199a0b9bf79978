/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_MAILBOX_H
#define FOLIOT_RUNTIME_MAILBOX_H

/* Where other threads reach a worker, and where leaving workers reach the metronome (its merge queue).
 *
 * It is a stack of messages (base/queue.h). The inbox of the loop cannot serve here, because a loop is freed when its worker
 * leaves, and other threads may be about to send at that moment. The mailbox stays; it is closed while there is no worker.
 *
 * Only the thread that pushes onto an empty mailbox posts the `wake` task to the loop, and only that task's callback
 * empties the mailbox. So the task is posted once at a time, and one task wakes the loop for any number of messages.
 * When the worker closes the mailbox and finds messages, it knows that one such task has been posted or is about to be,
 * and turns its loop until it has come. After that no other thread can know the loop, and it may be freed.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/queue.h"
#include "runtime/runtime.h"

FL__QUEUE(message_queue, struct fl__message);

/* Takes all messages of a queue. */
static inline struct message_queue message_queue_take(struct message_queue *queue)
{
    struct message_queue taken = *queue;
    *queue = (struct message_queue){0};
    return taken;
}

struct mailbox {
    _Alignas(CACHE_LINE) _Atomic(struct fl__message *) sent; /* a stack */
    _Alignas(CACHE_LINE) fl_loop *loop;
    fl_loop_task wake;
    atomic_bool taken;             /* the owner has begun to take something out since it has last set this to false */
    struct message_queue received; /* the owner's: what has been taken out */
    uint64_t wakes;                /* the owner's: how often the task has come */
};

void fl__runtime_mailbox_init(struct mailbox *box); /* closed */
void fl__runtime_mailbox_open(struct mailbox *box, fl_loop *loop);

static inline bool mailbox_is_open(const struct mailbox *box) /* by the owner */
{
    return box->loop != NULL;
}

/* By the owner. What was inside is in `received`. */
void fl__runtime_mailbox_close(struct mailbox *box);

/* Any thread. False if it is closed. */
bool fl__runtime_mailbox_send(struct mailbox *box, struct fl__message *message);

#endif
