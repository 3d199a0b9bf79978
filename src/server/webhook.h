/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_WEBHOOK_H
#define FOLIOT_SERVER_WEBHOOK_H

/* Delivers timers to URLs: a POST each, signed as Standard Webhooks says, over connections that are kept. One a worker.
 *
 * Threads: everything here belongs to the thread of the loop. */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>

typedef struct webhooks webhooks;
typedef struct webhook_call webhook_call;

/* The zero value of every member is its default, but of the first. */
struct webhooks_config {
    fl_loop *loop;
    fl_wall_clock *clock;   /* for timestamps, Retry-After and again_…; NULL: the system's */
    bool allow_private;     /* targets that are not on the public Internet */
    uint32_t max_calls;     /* under way at once; 0: 1,000 */
    uint32_t max_per_host;  /* 0: 100. A host: scheme, name and port */
    uint32_t max_waiting;   /* of one host, and not begun; what comes beyond is put off. 0: 1,000 */
    uint64_t timeout_us;    /* of calls that have none of their own; 0: 30 s */
    uint32_t max_redirects; /* 0: 5 */
    const char *user_agent;
};

/* One delivery. The bytes must stay until `done`. */
struct webhook_call {
    fl_bytes url;
    fl_bytes body;
    const char *content_type;
    fl_bytes headers;        /* the user's: name, NUL, value, NUL, and so on */
    const char *id;          /* webhook-id */
    uint32_t attempt;        /* foliot-attempt */
    int64_t due_us;          /* foliot-due, as RFC 3339 in UTC */
    const fl_bytes *secrets; /* keys, decoded; none: no signature */
    unsigned secret_count;
    uint64_t timeout_us; /* 0: as configured */
    void (*done)(webhook_call *call);
    void *arg;
    /* The answer. */
    enum fl_settle result;
    int64_t at_us;
    int status; /* of HTTP; 0: there was none */
    uint64_t duration_ns;
    char reason[200];
    /* The module's. */
    struct webhook_call *next;
    void *transfer;
};

int webhooks_new(const struct webhooks_config *config, webhooks **ret);

/* Never calls `done` before it returns. */
void webhooks_submit(webhooks *hooks, webhook_call *call);

/* Whether this can be a target at all: an absolute http or https URL without user and password, and, if it is an address,
 * an allowed one. Returns 0, or FL_INVALID_ARGUMENT and a sentence in `message`. */
int webhook_check_url(fl_bytes url, bool allow_private, char *message, size_t size);

/* Gives up what is under way after `patience_us` (as failed) and calls `done`. */
void webhooks_stop(webhooks *hooks, uint64_t patience_us, fl_loop_fn done, void *arg);

struct webhooks_stats {
    uint64_t waiting, under_way, done, failed, dead, put_off, connections;
};
void webhooks_get_stats(const webhooks *hooks, struct webhooks_stats *ret);

#endif
