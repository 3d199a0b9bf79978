/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_PULL_H
#define FOLIOT_SERVER_PULL_H

/* What lease.c and ack.c ask of pull.c. */

#include "node/server.h"

/* Somebody who asks for timers of a namespace at its home, with an errand: `go` is pull_ask. It comes back with what is
 * there, or when `wait_us` has passed. */
struct asker {
    struct errand errand;
    struct space *space;
    uint32_t max;
    uint64_t wait_us, lease_us;
    bool watch; /* only wants to know whether there is something */
    atomic_bool gone;
    /* The answer. */
    struct out out; /* objects of JSON, with commas between them */
    size_t count;
    bool found;
    int result;
    /* At the namespace's home: */
    struct queue *queue; /* in which it waits; NULL: it does not */
    fl_timer_id timer;
    struct asker *next;
};

struct worker *pull_home(struct server *server, const struct space *space);
void pull_ask(struct errand *errand);
void pull_unask(struct worker *worker, struct asker *asker); /* sends it back, if it waits */

enum { LEASE_TEXT = 36 };

struct ack {
    uint32_t server, slot; /* the lower half of the server's incarnation */
    uint16_t worker;
    bool known;
    enum fl_settle result;
    uint64_t serial;
    uint64_t after_us;
    fl_bytes lease; /* as it came */
};

/* Settles what was leased: by whoever may write in its namespace; `token` NULL: anybody. Whether there was such a lease. */
bool pull_settle(struct worker *worker, const struct token *token, const struct ack *ack);

/* Acknowledgements of leases of this server. Calls `done` when each has its `known`. */
struct acks {
    struct tour tour;
    const struct token *token;
    size_t count;
    struct ack *list;
    void (*done)(struct acks *acks);
};
void acks_settle(struct acks *acks, struct worker *home);

#endif
