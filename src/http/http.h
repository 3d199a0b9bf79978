/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_HTTP_H
#define FOLIOT_SERVER_HTTP_H

/* HTTP/1.1 (and 1.0) on one event loop: listens, reads requests, writes answers, with TLS if there is a certificate.
 *
 * One http_server a worker; several listen on the same address (SO_REUSEPORT), and the kernel shares the connections out.
 * A request is answered with http_answer(), at any time, also after its handler has returned; or in pieces with
 * http_begin(), http_write() and http_end(), also while its body still comes. Requests of one connection are handled one
 * after the other, in order: the next one is handed out when the one before has been answered.
 *
 * A request is there, with everything it points to, until http_answer() or http_end() for it is called, and not after.
 * Handlers are called from the loop only, never from inside the functions below, but that http_server_free() calls `gone`.
 *
 * What is malformed, ambiguous, too large or too slow is refused with an answer of its own, and the connection is closed.
 *
 * Threads: everything here belongs to the thread of the loop. */

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/loop.h>
#include <foliot/store.h> /* fl_bytes */

typedef struct http_server http_server;
typedef struct http_request http_request;
typedef struct http_tls http_tls;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_PATCH, HTTP_DELETE, HTTP_OPTIONS, HTTP_OTHER };

struct http_request {
    enum http_method method;
    fl_bytes path;  /* as it came: percent signs and all */
    fl_bytes query; /* what follows the question mark */
    fl_bytes body;  /* when it is whole */
    bool has_body;  /* one has come or will */
    bool local;     /* the peer is on this machine */
    const struct sockaddr *peer;
    void *arg; /* the handler's */
    /* The handler's, set in `head`: */
    size_t body_most; /* more is refused with 413; set to the configured limit before `head` */
    bool lasting;  /* the response goes on for as long as the client wants: without memory it is refused, not put off */
    size_t memory; /* bytes that response and handler need, 0: little. `handle` is called when there is room for them */
    /* Instead of a whole body: called for every piece of it, the last time with `last`, where the piece may be empty. The
     * piece is there for the time of the call. After http_pause(), no more come until http_resume(). */
    void (*data)(http_request *request, fl_bytes piece, bool last);
    /* The connection is gone, before the request was answered in full, or its body could not be read and was refused. The
     * request is still there, and http_answer() or http_end() must still be called, here or later: that frees it and does
     * nothing else. Only a request that has neither this nor `data`, and has not come to `handle`, just vanishes. */
    void (*gone)(http_request *request);
    /* The peer's closing of its sending direction counts as going: for answers that may take long. Without it, a peer
     * that has sent all it had to say still gets its answers. */
    bool gone_at_eof;
    /* Or: called once when the peer has closed its sending direction while the request waits for its answer. The peer still
     * reads: the handler answers as soon as it can. */
    void (*half_closed)(http_request *request);
    /* With `data`: nothing of the body has come for body_timeout_ns. Called once, instead of closing the connection: the handler ends the
     * answer. NULL: the connection is closed. */
    void (*slow)(http_request *request);
    /* Neither side has to get on: while this is set, which may be at any time, neither body_timeout_ns nor min_rate holds for
     * the body and the answer. For who has proved to be trusted, and is watched in another way. */
    bool endless;
};

struct http_handlers {
    /* The head of a request has come. May answer at once: then no body is read. */
    void (*head)(http_request *request);
    /* The body has come, if the request has not been answered and has no `data`. */
    void (*handle)(http_request *request);
    /* A request could not be understood: writes the body of the answer, of type application/problem+json, into `out`
     * and returns its size, as snprintf() does. */
    size_t (*problem)(int status, const char *what, char *out, size_t size);
};

/* The zero value of every member is its default, but of the first three. */
struct http_config {
    fl_loop *loop;
    const struct http_handlers *handlers;
    void *arg;     /* yours: http_server_arg() */
    http_tls *tls; /* NULL: none. Shared by servers, changed by http_tls_load() while they run */
    uint32_t
        max_connections; /* 0: 10,000. A request on one beyond is answered with 503, and too many of these are closed */
    atomic_uint *connections; /* how many there are, if several servers share the limit; NULL: this one has its own */
    uint32_t max_head;        /* bytes of the request line and headers together; 0: 16 KiB */
    uint32_t max_url;         /* 0: 8 KiB */
    size_t max_body;          /* of bodies that are collected; 0: 1 MiB */
    size_t max_memory; /* for large bodies and responses together; 0: no limit. Further ones wait for body_timeout_ns */
    uint64_t head_timeout_ns; /* for a whole head, once its first byte has come; 0: 10 s */
    uint64_t body_timeout_ns; /* without a byte of the body, or of the answer being taken; 0: 30 s */
    uint64_t idle_timeout_ns; /* between requests, and before the first; 0: 75 s */
    uint32_t min_rate;        /* bytes per second at which a collected body must come, on average after 10 s; 0: 100 */
};

int http_server_new(const struct http_config *config, http_server **ret);
void *http_server_arg(http_server *server);
http_server *http_request_server(http_request *request);

/* Listens on an address. On failure, `message` says why. `ret_port` (may be NULL): which port it is if that was 0. */
int http_server_listen(http_server *server, const struct sockaddr *address, socklen_t size, uint16_t *ret_port,
                       char *message, size_t message_size);

/* Answers say "Connection: close" from now on: clients that keep connections go elsewhere before this server is gone. */
void http_server_drain(http_server *server);

/* Lets nobody connect any more. Who has connected is served; who tries finds, when the server has stopped, that nobody listens, and
 * cannot have been half served. */
void http_server_shut(http_server *server);

/* Takes no more connections, closes those without a request, lets the others end: answers say "Connection: close". Calls
 * `done` on the loop when the last is gone, and not before this returns; `done` may free the server. Who streams without
 * end has to be ended by its handler. */
void http_server_stop(http_server *server, fl_loop_fn done, void *arg);

/* Closes everything at once. Calls `gone` for requests that are not answered; they may be answered after it. Not from inside
 * a handler of the same server. NULL is allowed. */
void http_server_free(http_server *server);

/* A header of the request, the first if there are several; size 0 and data NULL if there is none. The name in lower case. */
fl_bytes http_header(http_request *request, const char *name);

/* How many headers of that name there are. */
size_t http_header_count(http_request *request, const char *name);

/* Answers. `type` may be NULL if the body is empty. `extra` is lines of headers, each ended with "\r\n", or NULL. All is
 * copied. */
void http_answer(http_request *request, int status, const char *type, const char *extra, fl_bytes body);

/* Answers in pieces (chunked; the connection is closed at the end for HTTP/1.0). */
void http_begin(http_request *request, int status, const char *type, const char *extra);
void http_write(http_request *request, fl_bytes piece);
void http_end(http_request *request);
size_t http_unsent(http_request *request); /* bytes that were written and not taken by the peer yet */
/* Calls `fn` once, when less than `size` bytes are unsent, or right before `gone`; not from inside, and not any more once
 * the request is answered or gone. A second call takes the place of the first. */
void http_when_sent(http_request *request, size_t size, void (*fn)(http_request *request));

/* 32 bytes that only the two ends of the request's connection know, and that no other connection has (RFC 9266, under the label
 * below). False without TLS 1.3. */
#define HTTP_CHANNEL_LABEL "EXPORTER-Channel-Binding"
enum { HTTP_CHANNEL_KEY = 32 };
bool http_channel_key(http_request *request, unsigned char out[HTTP_CHANNEL_KEY]);

/* Reserves memory for a request whose handler has begun, in place of its earlier reservation. False: no memory is free, and
 * `granted` is called when there is, unless the request ends before. */
bool http_reserve(http_request *request, size_t size, void (*granted)(http_request *request));
void http_unreserve(http_request *request);
bool http_memory_is_short(http_request *request); /* others wait for some */
size_t http_memory_left(const http_server *server);

void http_pause(http_request *request);
void http_resume(http_request *request);

struct http_stats {
    uint64_t connections; /* now */
    uint64_t accepted, refused, requests;
    uint64_t bytes_in, bytes_out; /* decrypted */
    uint64_t timeouts;            /* connections that were closed for being slow, but for idle ones */
    uint64_t bad;                 /* requests that were refused here */
};
void http_get_stats(const http_server *server, struct http_stats *ret);

/* A certificate with its key, in PEM files. On failure, `message` says what is wrong. */
int http_tls_new(const char *certificate, const char *key, http_tls **ret, char *message, size_t size);
int http_tls_load(http_tls *tls, const char *certificate, const char *key, char *message, size_t size); /* any thread */
void http_tls_free(http_tls *tls);

#endif
