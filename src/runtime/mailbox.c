/* SPDX-License-Identifier: MIT */
/* Sending, receiving and closing: see mailbox.h for the design and why it is correct. */

#include <assert.h>

#include "runtime/mailbox.h"

static void receive(struct mailbox *box, struct fl__message *oldest)
{
    for (struct fl__message *newer; oldest; oldest = newer) {
        newer = oldest->next;
        fl__queue_append(&box->received, oldest);
    }
}

static void on_wake(fl_loop *loop, void *arg)
{
    struct mailbox *box = arg;
    (void)loop;
    box->wakes++;
    atomic_store(&box->taken, true);
    receive(box, fl__stack_take(&box->sent)); /* the task is free again */
}

void fl__runtime_mailbox_init(struct mailbox *box)
{
    *box = (struct mailbox){.sent = (void *)FL__STACK_CLOSED, .wake = {.fn = on_wake, .arg = box}};
}

void fl__runtime_mailbox_open(struct mailbox *box, fl_loop *loop)
{
    assert(!mailbox_is_open(box) && loop);
    box->loop = loop;
    atomic_store(&box->sent, NULL);
}

void fl__runtime_mailbox_close(struct mailbox *box)
{
    assert(mailbox_is_open(box));
    uint64_t wakes = box->wakes;
    struct fl__message *oldest = fl__stack_close(&box->sent);
    bool posted = oldest;
    receive(box, oldest);
    while (posted && box->wakes == wakes)
        fl_loop_run_once(box->loop, true);
    box->loop = NULL;
}

bool fl__runtime_mailbox_send(struct mailbox *box, struct fl__message *message)
{
    const struct fl__message *head = fl__stack_push(&box->sent, message);
    if ((uintptr_t)head == FL__STACK_CLOSED)
        return false;
    if (!head)
        fl_loop_post_task(box->loop, &box->wake);
    return true;
}
