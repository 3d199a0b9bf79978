/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WEBHOOK_H
#define FOLIOT_WEBHOOK_H

/* Webhooks: delivers due timers to URLs.
 *
 * An attempt is one try to deliver one timer. It is a POST, signed as Standard Webhooks says, over a connection that is kept
 * for the next attempt. There is one `webhooks` per worker. This folder may use base, loop, engine (its public header, for
 * enum fl_settle), text and http. It knows nothing of nodes, shards and namespaces.
 *
 *   webhook.c    the interface, and the task that begins attempts
 *   hosts.c      one queue of waiting attempts per host, and the order of hosts
 *   attempt.c    an attempt from its beginning to its result: transport, timeout, redirects
 *   target.c     URLs and addresses: what may be called
 *   head.c       the headers of the request, and its signature
 *   response.c   what a response means
 *   plain.c      the fast transport: HTTP/1.1 without TLS, on sockets of its own
 *   curl.c       the general transport: libcurl, for TLS, HTTP/2 and the lookup of names
 *
 * The request has the body, content-type, user-agent, webhook-id, webhook-timestamp (of this attempt, in seconds),
 * webhook-signature (one "v1,…" per secret, separated by spaces; absent without secrets), foliot-attempt, foliot-due, and the
 * user's headers.
 *
 * The response decides the result:
 *
 *   2xx                        FL_DONE; or FL_AGAIN if it is a JSON object with `again_at` (RFC 3339, or Unix ms) or
 *                              `again_after` ("90s"). If Foliot cannot understand it, the result is FL_DONE, and the reason
 *                              says so
 *   301, 302, 307, 308         the same POST goes to the new URL, up to `max_redirects` times. If its scheme, name or port
 *                              differ from those of the first URL, the signature and the user's headers are left out
 *   303                        FL_DEAD: it asks for a GET, which delivers nothing
 *   408, 425, 429, 5xx         FL_FAILED, to be retried not before its Retry-After, which counts for at most one day
 *   any other 4xx              FL_DEAD
 *   other status, no response  FL_FAILED
 *   a forbidden target         FL_DEAD: not http or https, or an address that is not on the public Internet
 *
 * Foliot reads 64 KiB of a response's body. A longer body is cut, and the status counts.
 *
 * Fairness. Attempts for one host wait in a queue of their own, and hosts take turns. A host has at most `max_per_host`
 * attempts under way, and at most half of what the other hosts leave of `max_under_way`. A host that hangs therefore delays
 * no other host. The number of waiting attempts is the caller's concern.
 *
 * Threads: everything here belongs to the thread of the loop. SIGPIPE must be blocked or ignored. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <foliot/engine.h>

typedef struct webhooks webhooks;
typedef struct webhook_attempt webhook_attempt;

/* A list of URLs that NULL ends. Another thread may append to it. NULL: no URLs. */
typedef const _Atomic(const char *) *webhook_urls;

/* Members without a comment on 0 are required or false by default. */
struct webhooks_config {
    fl_loop *loop;
    fl_wall_clock *clock;   /* for timestamps, Retry-After and again_…; NULL: the system's */
    bool allow_private;     /* allows targets that are not on the public Internet */
    webhook_urls own;       /* URLs of this server, which are allowed without allow_private */
    uint32_t max_under_way; /* attempts under way at once; 0: 1,000 */
    uint32_t max_per_host;  /* 0: 100. A host is a scheme, a name and a port */
    uint64_t timeout_us;    /* of attempts that have none of their own; 0: 30 s */
    uint32_t max_redirects; /* 0: 5 */
    const char *user_agent; /* NULL: "foliot/" and the version. Must outlive the webhooks, as must ca_file */
    const char *ca_file;    /* trusted certificates, in PEM; NULL: the system's */
};

/* A URL taken apart. Everything points into the URL. */
struct webhook_target {
    fl_bytes url;
    const char *problem; /* why it cannot be a target; NULL: it can. With a problem, the members below are undefined */
    bool https;
    uint16_t port;
    fl_bytes authority; /* as it was written: for the Host header */
    fl_bytes host;      /* without brackets */
    fl_bytes path;      /* with the query. May be empty, or begin with the question mark */
    uint64_t host_hash; /* the same for all URLs of one host. 0 with a problem */
};

/* Takes a URL apart: once per attempt. */
struct webhook_target webhook_target(fl_bytes url);

enum { WEBHOOK_HOST_TEXT = 264 }; /* bytes: a name of 253, brackets, a colon, a port */

/* HOST:PORT, the same for all URLs of one name and port: the name is in lower case, an IPv6 address is in brackets and in its
 * shortest form, and the port is always there. The target has no problem. */
fl_bytes webhook_host_text(const struct webhook_target *target, char room[WEBHOOK_HOST_TEXT]);

/* The same for a text of a user, HOST:PORT. Size 0: the text is invalid. */
fl_bytes webhook_read_host(fl_bytes text, char room[WEBHOOK_HOST_TEXT]);

/* One attempt, in the caller's memory. The bytes must stay until `done`. */
struct webhook_attempt {
    struct webhook_target target;
    fl_bytes body;
    const char *content_type;
    fl_bytes headers;                            /* the user's: name, NUL, value, NUL, and so on */
    const char *id;                              /* webhook-id */
    uint32_t number;                             /* foliot-attempt: 1 is the first */
    int64_t due_us;                              /* foliot-due, as RFC 3339 in UTC */
    uint32_t replaced;                           /* foliot-replaced; 0: not sent */
    fl_bytes schedule;                           /* foliot-schedule; size 0: none of the following is sent */
    int64_t occurrence_us, previous_us, next_us; /* foliot-occurrence, …; 0: not sent */
    const fl_bytes *secrets;                     /* keys, decoded */
    unsigned secret_count;                       /* 0: no signature */
    bool once; /* nothing is sent twice: it uses a new connection, and is not repeated on another one */
    size_t keep,
        keep_failed;     /* how many bytes of the body of a response are wanted, with status 2xx and with another */
    uint64_t timeout_us; /* for everything, redirects included, once it has begun; 0: as configured */
    /* Called right before it begins. If false, its result is FL_LATER. NULL: it may begin. */
    bool (*may_begin)(const webhook_attempt *attempt);
    void (*done)(webhook_attempt *attempt);
    void *arg;
    /* The result. */
    enum fl_settle result;
    int64_t at_us;        /* of FL_AGAIN and FL_LATER; of FL_FAILED: 0, or not before */
    int status;           /* of HTTP; 0: there was no response */
    uint64_t duration_ns; /* since it began; 0: it has not begun */
    fl_bytes response;    /* the beginning of its body, until `done` returns */
    char reason[200];     /* for people; never the value of a header or a secret. May be empty */
    /* Only this folder uses the rest. */
    TAILQ_ENTRY(webhook_attempt) entry; /* in a host's queue, or in the list of attempts that ended early */
    struct webhook_host *host;          /* in whose queue it waits; NULL: it does not wait */
};

/* Returns 0; FL_INVALID_ARGUMENT without a loop; FL_NO_MEMORY. */
int webhooks_new(const struct webhooks_config *config, webhooks **ret);

/* Delivers. Never calls `done` before it returns. */
void webhooks_submit(webhooks *hooks, webhook_attempt *attempt);

/* Whether this can be a target at all: an absolute http or https URL without user and password. If its host is an address,
 * the address must be allowed. Returns 0, or FL_INVALID_ARGUMENT and a sentence in `message`. */
int webhook_check_url(fl_bytes url, bool allow_private, char *message, size_t size);

/* Whether the URL is one of `own`, byte for byte. */
bool webhook_is_own(webhook_urls own, fl_bytes url);

/* Whether the user may send this header: its name is a token, and Foliot or HTTP does not set it; its value has no control
 * characters but tabs. Returns 0, or FL_INVALID_ARGUMENT and a sentence in `message`. */
int webhook_check_header(fl_bytes name, fl_bytes value, char *message, size_t size);

/* Takes back an attempt that has not begun and has no result: `done` is not called. Returns false if it has begun or
 * ended. */
bool webhooks_cancel(webhooks *hooks, webhook_attempt *attempt);

/* Takes back attempts for which `which` returns true: attempts that have not begun, and with `begun` also attempts that
 * have. Their result is FL_LATER. The target may have received one that had begun. */
void webhooks_withdraw(webhooks *hooks, bool (*which)(const webhook_attempt *attempt, void *arg), void *arg,
                       bool begun);

/* Stops. Attempts that have not begun end with FL_LATER, and so do those that are still submitted. Attempts that are under
 * way after `patience_us` end with FL_FAILED. Then frees everything and calls `done`. After that, nothing may be
 * submitted. */
void webhooks_stop(webhooks *hooks, uint64_t patience_us, fl_loop_fn done, void *arg);

struct webhooks_stats {
    uint64_t waiting, under_way;                 /* attempts, now */
    uint64_t done, again, failed, dead, put_off; /* attempts since the start, by result */
    uint64_t redirected;                         /* responses that led elsewhere */
    uint64_t connections;                        /* open now */
};
void webhooks_get_stats(const webhooks *hooks, struct webhooks_stats *ret);

#endif
