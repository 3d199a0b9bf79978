/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_EVENT_RING_H
#define FOLIOT_API_EVENT_RING_H

/* The latest events of this process, for clients that reconnect with Last-Event-ID.
 *
 * Each event gets the next number of one counter. The counter begins at a random number below 2^52, so that a number of another
 * process lies in this one's range with a probability of (events so far) / 2^52, and JavaScript can count up to 2^52 events. */

#include "node/node.h"

struct event_ring;

struct event_kept {
    enum event_kind kind;
    fl_bytes text, ns; /* of the memory behind */
    char bytes[];
};

int event_ring_new(uint64_t bytes, uint64_t random, struct event_ring **ret); /* 0, FL_NO_MEMORY */
void event_ring_free(struct event_ring *ring);                                /* NULL is allowed */
void event_ring_lock(struct event_ring *ring);
void event_ring_unlock(struct event_ring *ring);

/* Under the lock: */
/* Keeps an event and returns its number. The oldest ones make room. */
uint64_t event_ring_add(struct event_ring *ring, enum event_kind kind, fl_bytes text, fl_bytes ns);
uint64_t event_ring_last(const struct event_ring *ring); /* the number of the latest event */
uint64_t
event_ring_oldest(const struct event_ring *ring); /* of the oldest one that is kept; event_ring_last() + 1: none */
bool event_ring_knows(const struct event_ring *ring, uint64_t id); /* whether this process has used the number */
/* An event that is kept. NULL: there was no memory for it. */
const struct event_kept *event_ring_at(const struct event_ring *ring, uint64_t id);

#endif
