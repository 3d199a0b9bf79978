/* SPDX-License-Identifier: MIT */
/* Sending, receiving and closing: see mailbox.h for the design and why it is correct. */

#include "runtime/mailbox.h"

static void receive(struct mailbox *box, struct fl__message *oldest)
{
    while (oldest) {
        struct fl__message *newer = oldest->next;
        queue_append(&box->received, oldest);
        oldest = newer;
    }
}

static void on_wake(fl_loop *loop, void *arg)
{
    struct mailbox *box = arg;
    (void)loop;
    box->wakes++;
    atomic_store(&box->taken, true);
    receive(box, stack_take(&box->stack)); /* the task is free again */
}

void fl__mailbox_init(struct mailbox *box)
{
    *box = (struct mailbox){.stack = {STACK_CLOSED}, .wake = {.fn = on_wake, .arg = box}};
}

void fl__mailbox_open(struct mailbox *box, fl_loop *loop)
{
    box->loop = loop;
    stack_open(&box->stack);
}

void fl__mailbox_close(struct mailbox *box)
{
    uint64_t wakes = box->wakes;
    struct fl__message *oldest = stack_close(&box->stack);
    bool posted = oldest;
    receive(box, oldest);
    while (posted && box->wakes == wakes)
        fl_loop_run_once(box->loop, true);
    box->loop = NULL;
}

bool fl__mailbox_send(struct mailbox *box, struct fl__message *message)
{
    bool first;
    if (!stack_push(&box->stack, message, &first))
        return false;
    if (first)
        fl_loop_post_task(box->loop, &box->wake);
    return true;
}
