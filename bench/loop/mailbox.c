/* SPDX-License-Identifier: MIT */
/* The queue that programs put beside uv_async_send(), event_active() and ev_async_send(): see rival.h. */

#include <pthread.h>
#include <stdlib.h>

#include "../frame.h"
#include "rival.h"

struct letter {
    struct letter *next;
    void *message;
};

struct mailbox {
    pthread_mutex_t lock;
    struct letter *first, **last;
};

struct mailbox *mailbox_new(void)
{
    struct mailbox *box = malloc(sizeof *box);
    if (!box)
        bench_die("no memory for a mailbox");
    pthread_mutex_init(&box->lock, NULL);
    box->first = NULL;
    box->last = &box->first;
    return box;
}

void mailbox_free(struct mailbox *box)
{
    pthread_mutex_destroy(&box->lock);
    free(box);
}

bool mailbox_put(struct mailbox *box, void *message)
{
    struct letter *letter = malloc(sizeof *letter);
    if (!letter)
        bench_die("no memory for a message");
    letter->next = NULL;
    letter->message = message;
    pthread_mutex_lock(&box->lock);
    bool was_empty = !box->first;
    *box->last = letter;
    box->last = &letter->next;
    pthread_mutex_unlock(&box->lock);
    return was_empty;
}

void mailbox_receive(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct letter *letter = box->first;
    box->first = NULL;
    box->last = &box->first;
    pthread_mutex_unlock(&box->lock);
    while (letter) {
        struct letter *next = letter->next;
        loop_received(letter->message);
        free(letter);
        letter = next;
    }
}
