/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_STATS_H
#define FOLIOT_NODE_STATS_H

/* What has happened: rows of history, sums of the last hour, calls of hosts. See node.h. */

#include "node/calls.h"
#include "node/spaces.h"

/* --- history.c ---------------------------------------------------------------------------------------------------- */

enum history_result {
    HISTORY_DONE,
    HISTORY_FAILED,
    HISTORY_DEAD,
    HISTORY_AGAIN,
    HISTORY_EXPIRED,
    HISTORY_SKIPPED,
    HISTORY_CANCELLED,
    HISTORY_RESULTS
};

/* What a row of history tells, besides what the store knows of it: `body` of fl_history_row. */
struct history_entry {
    int64_t due_us, occurrence_us; /* 0: none */
    int64_t began_us, ended_us;    /* the store keeps the former; rows are ordered by the latter */
    uint64_t late_us, took_us;
    uint32_t attempt; /* 0: it was none */
    uint32_t status;  /* of HTTP; 0: there was none */
    uint64_t count;   /* of occurrences that were skipped; else 0 */
    fl_bytes target, reason, response;
};
bool history_read(const fl_history_row *row, struct history_entry *ret); /* false: it cannot be read */

/* --- stats.c ------------------------------------------------------------------------------------------------------ */

enum { STATS_STEPS = 360, STATS_STEP_US = 10000000, STATS_BUCKETS = 11 };
enum stats_kind { STATS_CREATED, STATS_FIRED, STATS_FAILED, STATS_DEAD, STATS_CANCELLED, STATS_SKIPPED, STATS_KINDS };

struct stats_step {
    int64_t number; /* which ten seconds since 1970; 0: none */
    uint32_t counts[STATS_KINDS];
    uint32_t lateness[STATS_BUCKETS]; /* of first attempts */
};

struct stats_ring {
    struct stats_step total;              /* of all time; its number is 0 */
    struct stats_step steps[STATS_STEPS]; /* at its number modulo STATS_STEPS */
};

struct worker_stats {
    unsigned rings;   /* of namespaces */
    uint64_t turn_ns; /* of the loop, when … */
    int64_t turn_us;  /* … was the time; 0: not yet */
    struct stats_ring all;
};

/* All members are int64_t. */
struct stats_gauges {
    int64_t pending, in_flight, leased, waiting_for_lease, waiting_for_host;
    int64_t oldest_overdue_us;
};

struct stats {
    struct stats_ring ring;
    struct stats_gauges gauges; /* of a namespace only `pending` and `waiting_for_lease` */
    int64_t last;               /* the number of the step that goes on now */
    unsigned servers;           /* that have answered, this one too */
};

/* Sums over all workers and servers, of one namespace or (size 0) of all; without `steps` only gauges and totals. `done` is called
 * on this worker, perhaps at once. Returns 0 or FL_NO_MEMORY. */
int stats_ask(struct worker *worker, fl_bytes ns, bool steps, void (*done)(void *arg, const struct stats *sum),
              void *arg);
uint32_t stats_bucket_ms(unsigned bucket); /* the upper bound of a bucket of lateness; the last has none */

/* --- hosts.c ------------------------------------------------------------------------------------------------------ */

enum { HOST_LATENCIES = 104, HOST_PAGE_MOST = 1000 };

/* How calls of one host went. All members are uint64_t. */
struct host_counts {
    uint64_t calls, failures;
    uint64_t responses[6]; /* index = HTTP status / 100; [0] = no response */
    uint64_t in_flight, waiting;
    uint64_t latencies[HOST_LATENCIES]; /* of the last minutes, see host_latency_us() */
};

struct host_sum {
    struct host_counts counts;
    size_t size;
    char name[HOST_TEXT];
};

/* The first hosts in the order of their names, summed over workers and servers. */
struct host_page {
    fl_bytes prefix, after; /* only those that begin so, and come behind it; size 0: all */
    size_t limit;           /* from 1 to HOST_PAGE_MOST */
    void (*done)(struct host_page *page);
    /* The answer, until host_page_free(): */
    struct host_sum **hosts;
    size_t count;
    bool more;   /* there are more behind the last */
    bool failed; /* there was no memory for all of them */
    /* hosts.c's */
    struct tour tour;
    struct worker *worker;
    struct link_request *request; /* of another server; NULL: the answer is for us */
    struct out question;
};
void hosts_ask(struct worker *worker, struct host_page *page); /* may call `done` at once */
void host_page_free(struct host_page *page);                   /* what the answer has; the page is the caller's */
/* The least latency that `permille` of 1000 calls did not exceed, rounded up by at most a quarter; 0: there were none. */
uint64_t host_latency_us(const struct host_counts *counts, unsigned permille);
/* Calls `visit` for each host that is paused, under the lock of all namespaces. */
void hosts_walk_paused(struct node *node, void (*visit)(void *arg, fl_bytes host, const struct pauses *pauses),
                       void *arg);
uint64_t hosts_known(const struct worker *worker); /* how many this worker counts */

#endif
