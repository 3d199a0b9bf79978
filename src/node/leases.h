/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_LEASES_H
#define FOLIOT_NODE_LEASES_H

/* Leases and acknowledgements, of any server. See node.h. */

#include "node/calls.h"

/* --- pull.c, leasing.c, acks.c ------------------------------------------------------------------------------------ */

void pull_stop(struct worker *worker);
int64_t pull_clock_changed(struct worker *worker); /* ends leases by the test clock; returns when the next does */

enum { LEASE_TEXT = 36 };
void lease_format(const struct leased *leased, char out[LEASE_TEXT + 1]);

/* A request for leases. The caller sets the first members; the rest is leasing.c's. */
struct leasing {
    struct shard_call take; /* has the answer: `asker.out` and `asker.count`, which `write` has made */
    struct worker *worker;
    struct space *space;
    uint32_t max;
    uint64_t lease_us;
    void (*write)(struct out *out, const struct leased *leased, size_t count);
    void (*done)(struct leasing *leasing);
    void (*release)(struct leasing *leasing); /* after `done`: it is the caller's again */
    int result;                               /* without timers: 0, or an error */
    uint64_t until_ns;
    bool alone; /* there is no other server to ask */
    bool gone, answered;
    size_t round; /* how many servers have been asked in this round */
    size_t first;
    struct shard_call watch_here;
    struct watch {
        struct shard_call call;
        struct leasing *leasing;
    } * watches; /* at the other servers */
    size_t watch_count;
    struct leasing *next, **link; /* in the list of watching requests; `link` is NULL outside of it */
};
void leasing_begin(struct leasing *leasing, uint64_t wait_us);
/* Nothing more is taken for this request. What was taken just now comes back, and then `done` is called. */
void leasing_stop(struct leasing *leasing);
void leases_ask_again(struct worker *worker); /* there is another server to ask */
void leases_stop(struct worker *worker);      /* answers all waiting requests */

enum ack_result {
    ACK_DONE,
    ACK_RETRY,
    ACK_AGAIN,
    ACK_DEAD,
    ACK_RELEASE, /* the timer is taken back at once, and this was no attempt */
    ACK_EXTEND,  /* the lease ends `after_us` from now; nothing is settled */
    ACK_RESULTS
};

struct ack {
    uint32_t server, slot;
    uint16_t worker; /* UINT16_MAX: it is of no lease */
    bool known;      /* the answer */
    enum ack_result result;
    uint64_t serial;
    uint64_t after_us;
    fl_bytes lease;   /* as it came */
    struct ack *next; /* of the same worker */
};
void ack_parse(struct ack *ack,
               fl_bytes text); /* a lease that was never given out is unknown, like one that has ended */

/* Acknowledgements of leases of any server. `done` is called when each has its `known`. */
struct acks {
    char *const *namespaces; /* only timers of these are settled, NULL ends them; NULL: all */
    size_t count;
    struct ack *list;
    void (*done)(struct acks *acks);
    /* The rest is acks.c's. */
    struct worker *home;
    struct part **parts; /* one for each worker */
    size_t part_count, part_capacity;
    size_t left; /* parts that are not back */
};
void acks_settle(struct acks *acks, struct worker *home);

#endif
