/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_WEBHOOK_H
#define FOLIOT_SERVER_WEBHOOK_H

/* Delivers timers to URLs: a POST each, signed as Standard Webhooks says, over connections that are kept. One a worker.
 *
 * What goes out: the body, with content-type, user-agent, webhook-id, webhook-timestamp (of this attempt, in seconds),
 * webhook-signature (a "v1,…" for each secret, with a space between; none without secrets), foliot-attempt, foliot-due, and
 * the user's headers.
 *
 * What an answer means:
 *
 *   2xx                        FL_DONE; or FL_AGAIN if it is a JSON object with `again_at` (RFC 3339, or Unix ms) or
 *                              `again_after` ("90s"). One that cannot be understood is FL_DONE all the same, and the
 *                              reason says so
 *   301, 302, 307, 308         the same POST goes there, up to `max_redirects` times. To another host than the first
 *                              (scheme, name and port) neither signature nor the user's headers go along
 *   303                        FL_DEAD: "see there with GET" is no place that takes a delivery
 *   408, 425, 429, 5xx         FL_FAILED, and not before its Retry-After, which counts for a day at most
 *   any other 4xx              FL_DEAD
 *   anything else, no answer   FL_FAILED
 *   a target that is refused   FL_DEAD: not http or https, or an address that is not on the public Internet
 *
 * Of an answer's body 64 KiB are read; a longer one is cut, and the status counts.
 *
 * Fairness. Calls of one host wait in a queue of their own, and hosts are served in turns: as many calls at once as
 * `max_per_host` says, and of `max_calls` never more than half of what the other hosts leave. So a host that hangs holds
 * what it has, and the others go on. How many calls wait is up to the caller.
 *
 * Threads: everything here belongs to the thread of the loop. SIGPIPE must be blocked or ignored. */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>

typedef struct webhooks webhooks;
typedef struct webhook_call webhook_call;

/* A list of URLs that NULL ends. Another thread may add some at its end. NULL: none. */
typedef const _Atomic(const char *) *webhook_urls;

/* The zero value of every member is its default, but of the first. */
struct webhooks_config {
    fl_loop *loop;
    fl_wall_clock *clock;   /* for timestamps, Retry-After and again_…; NULL: the system's */
    bool allow_private;     /* targets that are not on the public Internet */
    webhook_urls own;       /* of this server, that may be called without allow_private */
    uint32_t max_calls;     /* under way at once; 0: 1,000 */
    uint32_t max_per_host;  /* 0: 100. A host: scheme, name and port */
    uint64_t timeout_us;    /* of calls that have none of their own; 0: 30 s */
    uint32_t max_redirects; /* 0: 5 */
    const char *user_agent; /* NULL: "foliot/" and the version. Must outlive the webhooks, as the next must */
    const char *ca_file;    /* whom to trust, in PEM; NULL: as the system does */
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
    bool once;           /* nothing is sent twice: it gets a connection of its own, and is not repeated on another */
    uint64_t timeout_us; /* of all of it, redirects included, once it has begun; 0: as configured */
    /* Asked right before it begins: if not, it is answered with FL_LATER. NULL: it may. */
    bool (*may_begin)(const webhook_call *call);
    void (*done)(webhook_call *call);
    void *arg;
    /* The answer. */
    enum fl_settle result;
    int64_t at_us;        /* of FL_AGAIN and FL_LATER; of FL_FAILED: 0, or not before */
    int status;           /* of HTTP; 0: there was none */
    uint64_t duration_ns; /* since it has begun; 0: it has not */
    char reason[200];     /* for people; never a header's value or a secret. Empty: nothing to say */
    /* The module's. */
    struct webhook_call *previous, *next;
    struct webhook_host *host; /* in whose queue it waits; NULL: in none */
};

/* Returns 0; FL_INVALID_ARGUMENT without a loop; FL_NO_MEMORY. */
int webhooks_new(const struct webhooks_config *config, webhooks **ret);

/* Delivers. Never calls `done` before it returns. */
void webhooks_submit(webhooks *hooks, webhook_call *call);

/* Whether this can be a target at all: an absolute http or https URL without user and password, and, if it is an address,
 * an allowed one. Returns 0, or FL_INVALID_ARGUMENT and a sentence in `message`. */
int webhook_check_url(fl_bytes url, bool allow_private, char *message, size_t size);

/* Whether the URL is one of `own`, letter for letter. */
bool webhook_is_own(webhook_urls own, fl_bytes url);

/* Whether the user may send this header: its name is a token and none of those that are sent anyway or rule the
 * connection, its value has no control characters but tabs. Returns 0, or FL_INVALID_ARGUMENT and a sentence. */
int webhook_check_header(fl_bytes name, fl_bytes value, char *message, size_t size);

/* Takes back a call that has not begun and has no result: `done` is not called. Returns false if it has begun or ended. */
bool webhooks_cancel(webhooks *hooks, webhook_call *call);

/* The same number for all URLs of one host (scheme, name and port). */
uint64_t webhook_host_hash(fl_bytes url);

/* Takes back the calls that `which` says: those that have not begun, and with `begun` the others too. Each is answered with
 * FL_LATER; one that had begun may have arrived all the same. */
void webhooks_withdraw(webhooks *hooks, bool (*which)(const webhook_call *call, void *arg), void *arg, bool begun);

/* Stops: what has not begun is answered with FL_LATER, and so is whatever is still submitted; what is under way after
 * `patience_us` is given up (FL_FAILED). Then frees everything and calls `done`, when nothing must be submitted any more. */
void webhooks_stop(webhooks *hooks, uint64_t patience_us, fl_loop_fn done, void *arg);

struct webhooks_stats {
    uint64_t waiting, under_way;                 /* now */
    uint64_t done, again, failed, dead, put_off; /* calls, since the start */
    uint64_t redirected;                         /* answers that led elsewhere */
    uint64_t connections;                        /* open now */
};
void webhooks_get_stats(const webhooks *hooks, struct webhooks_stats *ret);

#endif
