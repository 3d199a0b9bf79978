/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_EVENTS_H
#define FOLIOT_API_EVENTS_H

/* Events: events.c distributes them, event_text.c formats them, and subscribers.c sends them to clients. */

#include "api/internal.h"

enum { EVENT_KINDS = EVENT_MOVED + 1 };
extern const char *const event_names[EVENT_KINDS];

/* On its way to a worker. */
struct event {
    fl_loop_task task;
    struct worker *worker;
    enum event_kind kind;
    bool relayed; /* it has happened at another server */
    uint64_t id;
    fl_bytes ns; /* in the text behind it */
    size_t size;
    char text[];
};

void event_write(struct out *text, enum event_kind kind, uint32_t shard, const fl_durable *timer, fl_bytes reason,
                 int64_t now_us);

/* A client is there: from now on, events are kept, and those of other servers are wanted. */
void events_want(struct api *api);

/* Sends an event to all clients of its worker. */
void subscribers_send(const struct event *event);
void subscribers_check(struct worker *worker); /* ends streams of clients that have lost their rights */
void subscribers_stop(struct worker *worker);

#endif
