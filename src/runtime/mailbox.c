/* SPDX-License-Identifier: MIT */
/* Sending, receiving and closing: see mailbox.h for the design and why it is correct. */

#include "runtime/mailbox.h"

#include "base/list.h"

#define CLOSED ((struct fl__message *)1)

/* Newest first goes in, oldest first goes to the end of the queue. */
static void receive(struct mailbox *box, struct fl__message *newest)
{
    for (struct fl__message *message = fl__list_reverse(newest), *next; message; message = next) {
        next = message->next;
        queue_append(&box->received, message);
    }
}

static void on_wake(fl_loop *loop, void *arg)
{
    struct mailbox *box = arg;
    (void)loop;
    box->wakes++;
    if (atomic_load_explicit(&box->head, memory_order_relaxed) != CLOSED)
        receive(box, atomic_exchange_explicit(&box->head, NULL, memory_order_acq_rel)); /* the task is free again */
}

void fl__mailbox_init(struct mailbox *box)
{
    *box = (struct mailbox){.head = CLOSED, .wake = {.fn = on_wake, .arg = box}};
}

void fl__mailbox_open(struct mailbox *box, fl_loop *loop)
{
    box->loop = loop;
    atomic_store_explicit(&box->head, NULL, memory_order_release);
}

void fl__mailbox_close(struct mailbox *box)
{
    uint64_t wakes = box->wakes;
    struct fl__message *newest = atomic_exchange_explicit(&box->head, CLOSED, memory_order_acq_rel);
    receive(box, newest);
    while (newest && box->wakes == wakes)
        fl_loop_run_once(box->loop, true);
    box->loop = NULL;
}

bool fl__mailbox_send(struct mailbox *box, struct fl__message *message)
{
    struct fl__message *head = atomic_load_explicit(&box->head, memory_order_relaxed);
    do {
        if (head == CLOSED)
            return false;
        message->next = head;
    } while (
        !atomic_compare_exchange_weak_explicit(&box->head, &head, message, memory_order_acq_rel, memory_order_relaxed));
    if (!head)
        fl_loop_post_task(box->loop, &box->wake);
    return true;
}
