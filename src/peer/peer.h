/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_PEER_H
#define FOLIOT_PEER_H

/* Links between the servers of one store: calls with answers, many at a time, over one connection that is kept.
 *
 * This folder may use base, loop, store (for the type fl_bytes), text (for problem documents) and http. It carries bytes; what they mean is known to the
 * node.
 *
 *   link.c     the side that calls: calls that wait for answers, losing a link and making it again
 *   dial.c     its connection: from the address to the proof, and bytes both ways
 *   lookup.c   its name lookups, on threads
 *   session.c  the side that is called
 *   frame.c    frames and proofs
 *
 * A link begins as an HTTP request, POST /v1/peer, which upgrades the connection (101 Switching Protocols). From then on it
 * carries frames, both ways:
 *
 *     size    4 bytes: the number of bytes that follow
 *     kind    1 byte: the kind of call; or an answer, a piece of an answer, a cancellation, a keep-alive
 *     id      8 bytes: of the call
 *     body
 *
 * (numbers with the least significant byte first). Either side sends a sign of life every second, and gives up a link over
 * which nothing has come for three seconds.
 *
 * Trust. Both sides have the same secret, and prove it: each sends a random number, and then the HMAC-SHA256 of both
 * numbers, both versions and its own role, keyed with the secret. With TLS, which must be 1.3, the proof also covers the
 * connection's keys (RFC 5705). So it cannot be passed on over another connection, and no certificate has to be checked. The
 * caller proves it first. A request without these headers is refused with 401. A caller that cannot prove it within five
 * seconds is refused, and learns nothing. Nothing is called and nothing is answered before both have proved it. Without TLS,
 * a program that can change the traffic can also change it after the proofs.
 *
 * Versions. Each side says which version of this protocol it speaks; the lower is spoken. Versions that are more than one
 * apart are refused. So is version 1, which sent frames in the chunks of an HTTP body.
 *
 * Threads: everything here belongs to the thread of the loop. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <foliot/loop.h>
#include <foliot/store.h> /* fl_bytes */

#include "base/hash.h"
#include "http/http.h"

enum { PEER_PROTOCOL = 2, PEER_PROTOCOL_LEAST = 2, PEER_BODY_MOST = 64 << 20 };

/* A link that has more to send than that is full: the other side takes less than it is given. */
enum { PEER_UNSENT_MOST = 128 << 20 };

/* --- Calling ------------------------------------------------------------------------------------------------------ */

typedef struct peer_link peer_link;

struct peer_link_config {
    fl_loop *loop;
    const char *address; /* of the other: HOST:PORT, [IPv6]:PORT */
    const char *self;    /* our own, which the other sees: up to 255 printable characters without a space */
    fl_bytes secret;     /* not empty */
    bool tls;
    void (*changed)(void *arg, peer_link *link, bool up); /* may be NULL. Never inside the functions below */
    void *arg;
};

/* Begins to connect. Whenever the connection is lost, connects again until the link is freed: at once, then after 50 ms, and
 * after twice the time with each failure, up to one second; at once again after it was up for a second. Everything is
 * copied. Returns 0, FL_NO_MEMORY, FL_INVALID_ARGUMENT (one of the addresses, the secret). */
int peer_link_new(const struct peer_link_config *config, peer_link **ret);
bool peer_link_up(const peer_link *link);
/* The next connection uses this secret for its proof. A link that is up stays up. If there is no memory, or the secret is
 * empty, the link keeps the secret that it has. */
void peer_link_rotate(peer_link *link, fl_bytes secret);
bool peer_link_has_failed(const peer_link *link); /* since it was last up */
/* Why it is not up, in words; "" if it is. Valid until the loop goes on. */
const char *peer_link_trouble(const peer_link *link);
/* Ends the link. Calls that are not answered end as when the connection is lost, before this returns. They may not be
 * followed by others, and `changed` is not called. Callbacks may free their own link. NULL is allowed. */
void peer_link_free(peer_link *link);

/* A call, in the caller's memory until `done`. */
struct peer_call {
    /* The answer: the other server's `result`, which may be an error of its own, and its bytes, which exist until this
     * returns. Or, with an empty answer:
     *
     *   FL_STORE_UNAVAILABLE  `sent` is false. The link is not up, was lost too early, or the other side ended it before it
     *                         read the call: nothing has happened
     *   FL_OUTCOME_UNKNOWN    the connection was lost before the answer came
     *   FL_CAPACITY_EXCEEDED  `sent` is false. The link is full
     *   FL_TOO_LARGE          `sent` is false. The body is larger than PEER_BODY_MOST
     *   FL_NO_MEMORY          `sent` is false. There is no memory for the body
     *
     * When a link is lost, `changed` comes first. */
    void (*done)(struct peer_call *call, int result, fl_bytes answer);
    void (*piece)(struct peer_call *call, fl_bytes piece); /* of an answer in pieces; NULL: pieces are ignored */
    bool urgent; /* also over a link that is full: for small and rare messages */
    bool sent;   /* set before `done`: the other side may have received it */
    /* The link's. */
    int result;
    uint64_t id;  /* 0: it has failed, and is to be told */
    uint64_t end; /* where its frame ends in the bytes that are sent */
    struct hash_link by_id;
    TAILQ_ENTRY(peer_call) entry;
};

/* Calls. `kind` is the caller's, from 16 to 255. The body is copied. `done` is called later, never from inside; only
 * peer_link_free() calls it, too. The calls of one turn of the loop are sent together, at its end. */
void peer_call(peer_link *link, struct peer_call *call, uint8_t kind, fl_bytes body);
/* Neither `done` nor `piece` is called any more, and the other side learns that it need not answer. The call must not be
 * done. */
void peer_cancel(peer_link *link, struct peer_call *call);

/* --- Being called ------------------------------------------------------------------------------------------------- */

/* A call that has come. It exists until it is answered, also when its link is gone. */
struct peer_request {
    uint8_t kind;
    fl_bytes body;       /* valid until the handler returns or answers, as is `address` */
    const char *address; /* of the caller, by its own account */
    /* Set by the handler; may be NULL. The caller does not wait for the answer any more. It must still be given, here or
     * later, and is not sent. */
    void (*gone)(struct peer_request *request);
    void *arg;     /* the handler's */
    bool harmless; /* set by the handler: the request has no effect that the caller must know of */
    /* The session's. */
    uint64_t id;
    struct peer_session *session; /* NULL: the caller does not wait */
    struct hash_link by_id;
    LIST_ENTRY(peer_request) entry;
};

struct peer_host {
    fl_bytes secret; /* not empty */
    void (*handle)(void *arg, struct peer_request *request);
    void *arg;
};

/* The sessions of one worker. */
typedef struct peer_sessions peer_sessions;
/* `host` must outlive the sessions. Returns 0, FL_NO_MEMORY, FL_INVALID_ARGUMENT (the secret). */
int peer_sessions_new(fl_loop *loop, const struct peer_host *host, peer_sessions **ret);
/* Takes a request POST /v1/peer in http_handlers.head. It belongs to the session from now on. */
void peer_accept(peer_sessions *sessions, http_request *request);
/* Ends all sessions, calling `gone`, and accepts no more. Requests that are not answered may be answered later. If all of
 * them are harmless, the callers learn that nothing has happened. */
void peer_sessions_stop(peer_sessions *sessions);
/* Stops, if that has not been done, and frees. Requests that are not answered must still be answered, then or later. Not
 * from inside a handler. NULL is allowed. */
void peer_sessions_free(peer_sessions *sessions);

/* Answers, and frees the request. The body is copied. If it is larger than PEER_BODY_MOST, the answer is FL_TOO_LARGE. The
 * answers of one turn of the loop are sent together, at its end. */
void peer_answer(struct peer_request *request, int result, fl_bytes body);
void peer_piece(struct peer_request *request, fl_bytes piece); /* of an answer that goes on, at most PEER_BODY_MOST */
size_t peer_unsent(const struct peer_request *request); /* bytes that were written to its link and not taken yet */

#endif
