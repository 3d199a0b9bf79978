/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_HTTP_H
#define FOLIOT_HTTP_H

/* HTTP/1.1 (and 1.0): a server on one event loop, and the parts of HTTP that clients need too.
 *
 * The server listens, reads requests and writes responses, with TLS if there is a certificate. There is one http_server per
 * worker. Several listen on the same address (SO_REUSEPORT), and the kernel distributes the connections. Clients, which are
 * webhooks and links between servers, use the same reader of messages, buffers and streams. This folder may use base, loop,
 * store (for the type fl_bytes) and text (for the names of statuses). It knows nothing of timers and the paths of the API.
 *
 *   server.c      listeners, time limits, stopping
 *   state.c       the states of a connection: allowed transitions, and the invariant of each state
 *   connection.c  a connection from its first byte to its last: events, time limits
 *   request.c     from bytes to requests, one after the other
 *   answer.c      responses, from the handler to the socket
 *   memory.c      how much memory requests hold, and which of them wait for memory
 *   head.c        reads heads of requests and responses
 *   body.c        reads bodies: with a length, in chunks, until the end of the connection
 *   stream.c      a socket, with TLS or without
 *   tls.c         certificates
 *   buffer.c      bytes that wait
 *
 * A request is answered with http_answer(), at any time, also after its handler has returned; or in pieces with http_begin(),
 * http_write() and http_end(), also while its body still comes. Requests of one connection are handled one after the other,
 * in order: the next one is handed out when the one before has been answered.
 *
 * A request and everything it points to exist until http_answer() or http_end() is called for it. Handlers are called from
 * the loop only, never from inside the functions below. The exception is http_server_free(), which calls `gone`.
 *
 * Requests that are malformed, ambiguous, too large or too slow are refused with a response, and the connection is closed.
 *
 * Threads: everything here belongs to the thread of the loop, except where it says otherwise. */

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <openssl/types.h>

#include <foliot/loop.h>
#include <foliot/store.h> /* fl_bytes */

typedef struct http_server http_server;
typedef struct http_request http_request;
typedef struct http_tls http_tls;

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_PATCH, HTTP_DELETE, HTTP_OPTIONS, HTTP_OTHER };

struct http_request {
    enum http_method method;
    fl_bytes path;      /* as it came, with percent signs */
    fl_bytes query;     /* after the question mark */
    fl_bytes authority; /* of a whole URL in the request line: it counts instead of the Host header; else empty */
    fl_bytes body;      /* when it is whole */
    bool has_body;      /* one has come or will */
    bool local;         /* the peer is on this machine */
    const struct sockaddr *peer;
    void *arg; /* the handler's */
    /* The handler's, set in `head`: */
    size_t body_most; /* a larger body is refused with 413; set to the configured limit before `head` */
    bool
        lasting; /* the answer goes on for as long as the client wants: without memory it is refused, and does not wait */
    size_t memory; /* bytes that answer and handler need, 0: few. `handle` is called when there is room for them */
    /* Instead of a whole body: called for every piece, the last time with `last`, where the piece may be empty. The piece
     * exists during the call. After http_pause(), no more come until http_resume(). */
    void (*data)(http_request *request, fl_bytes piece, bool last);
    /* The connection is gone before the request was answered in full, or its body could not be read and was refused. The
     * request still exists, and http_answer() or http_end() must still be called, here or later. That frees it and does
     * nothing else. Only a request that has neither this nor `data`, and has not come to `handle`, vanishes. */
    void (*gone)(http_request *request);
    /* The peer is gone when it closes its sending direction: for answers that may take long. Without it, a peer that has sent
     * everything still gets its answers. */
    bool gone_at_eof;
    /* Or: called once when the peer has closed its sending direction while the request waits for its answer. The peer still
     * reads: answer as soon as possible. */
    void (*half_closed)(http_request *request);
    /* With `data`: nothing of the body has come for body_timeout_ns. Called once, to end the answer. NULL: the connection is
     * closed. */
    void (*slow)(http_request *request);
};

struct http_handlers {
    /* The head of a request has come. May answer at once: then no body is read. */
    void (*head)(http_request *request);
    /* The body has come, if the request has not been answered and has no `data`. */
    void (*handle)(http_request *request);
    /* A request is refused: writes the body of the answer, of type application/problem+json, into `out` and returns its
     * size, as snprintf() does. */
    size_t (*problem)(int status, const char *what, char *out, size_t size);
};

/* Members without a default are required, or NULL by default. */
struct http_config {
    fl_loop *loop;
    const struct http_handlers *handlers;
    void *arg;     /* yours: http_server_arg() */
    http_tls *tls; /* NULL: none. Shared by servers, changed by http_tls_load() while they run */
    uint32_t
        max_connections; /* 0: 10,000. A request on one beyond is answered with 503; too many of these are closed */
    atomic_uint *connections; /* how many there are, if several servers share the limit; NULL: this one has its own */
    uint32_t max_head;        /* bytes of the request line and headers together; 0: 16 KiB */
    uint32_t max_url;         /* 0: 8 KiB */
    size_t max_body;          /* of bodies that are collected; 0: 1 MiB */
    size_t max_memory; /* of large bodies and answers together; 0: no limit. Further ones wait for body_timeout_ns */
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

/* From now on, answers say "Connection: close": clients that keep connections go elsewhere before this server is gone. */
void http_server_drain(http_server *server);

/* No client can connect any more. Clients that have connected are served. A client that tries finds, when the server has
 * stopped, that nothing listens, so no request can have been served in part. */
void http_server_shut(http_server *server);

/* Takes no more connections, closes those without a request, and lets the others end: answers say "Connection: close". Calls
 * `done` on the loop when the last is gone, and not before this returns; `done` may free the server. Handlers must end
 * endless answers. */
void http_server_stop(http_server *server, fl_loop_fn done, void *arg);

/* Closes everything at once. Calls `gone` for requests that are not answered; they may be answered afterwards. Not from
 * inside a handler of the same server. NULL is allowed. */
void http_server_free(http_server *server);

/* A header of the request, the first if there are several; size 0 and data NULL if there is none. The name in lower case. */
fl_bytes http_header(http_request *request, const char *name);
size_t http_header_count(http_request *request, const char *name); /* how many of that name there are */

/* Answers. `type` may be NULL if the body is empty. `extra` is lines of headers, each ended with "\r\n", or NULL. All is
 * copied. */
void http_answer(http_request *request, int status, const char *type, const char *extra, fl_bytes body);

/* Answers in pieces (chunked; the connection is closed at the end for HTTP/1.0). */
void http_begin(http_request *request, int status, const char *type, const char *extra);
void http_write(http_request *request, fl_bytes piece);
void http_end(http_request *request);
/* Answers a request without a body with 101 Switching Protocols. From then on the connection carries bytes that are not
 * HTTP, both ways: `data` gets them, http_write() sends them, http_end() closes the connection, and `gone` is called when
 * the peer closes it. The handler watches over time and memory: no limits apply. `extra` has the Upgrade header. Returns
 * false if that is not possible: the request is HTTP/1.0, has a body, or wants the connection closed; then it still has to
 * be answered. Call it in `head`. */
bool http_upgrade(http_request *request, const char *extra);
size_t http_unsent(http_request *request); /* bytes that were written and not taken by the peer yet */
/* Calls `fn` once, when less than `size` bytes are unsent, or right before `gone`; not from inside, and not any more once
 * the request is answered or gone. A second call takes the place of the first. */
void http_when_sent(http_request *request, size_t size, void (*fn)(http_request *request));

/* 32 bytes that only the two ends of the request's connection know, and that no other connection has (RFC 9266, under the
 * label below). False without TLS 1.3. */
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

/* --- Streams ----------------------------------------------------------------------------------------------------- */

/* A certificate with its key, in PEM files. On failure, `message` says what is wrong. */
int http_tls_new(const char *certificate, const char *key, http_tls **ret, char *message, size_t size);
int http_tls_load(http_tls *tls, const char *certificate, const char *key, char *message, size_t size); /* any thread */
/* For connections to servers that authenticate in another way: TLS 1.3 without checking certificates. NULL: no memory. */
http_tls *http_tls_unverified(void);
void http_tls_free(http_tls *tls); /* NULL is allowed */

/* A socket, with TLS or without. It must not move while it is open. */
struct http_stream {
    int fd;   /* -1: closed */
    SSL *ssl; /* NULL: without TLS */
    bool read_wants_write, write_wants_read;
    const char *problem; /* what TLS complained about last; NULL: errno says it */
};

bool http_stream_accept(struct http_stream *stream, int fd, http_tls *tls); /* false: no memory, and `fd` is open */
/* Begins to connect. Returns 0 or an errno. When the loop reports an event, http_stream_dialled() says how it ended. */
int http_stream_dial(struct http_stream *stream, const struct sockaddr *to, socklen_t size, http_tls *tls);
int http_stream_dialled(const struct http_stream *stream);
/* As recv() and send(). The TLS handshake is done by the first of them. */
ssize_t http_stream_read(struct http_stream *stream, char *data, size_t size);
ssize_t http_stream_write(struct http_stream *stream, const char *data, size_t size);
/* What to wait for in order to read, to write, or both. After the event, try both. */
unsigned http_stream_events(const struct http_stream *stream, bool reading, bool writing);
bool http_stream_pending(const struct http_stream *stream); /* bytes are decrypted: no event will report them */
bool http_stream_in_handshake(const struct http_stream *stream);
bool http_stream_key(const struct http_stream *stream, unsigned char out[HTTP_CHANNEL_KEY]); /* http_channel_key() */
void http_stream_finish(
    struct http_stream *stream); /* says that this was all, so that the peer can tell the end from a cut */
void http_stream_close(struct http_stream *stream); /* a closed one stays closed */

/* --- Buffers ----------------------------------------------------------------------------------------------------- */

/* Bytes that wait, in one piece. Bytes from `start` to `end` are there, those from `end` to `capacity` are free. The zero
 * value is empty. */
struct http_buffer {
    char *data;
    size_t capacity, start, end;
};

static inline size_t http_buffer_size(const struct http_buffer *buffer)
{
    return buffer->end - buffer->start;
}

static inline char *http_buffer_data(const struct http_buffer *buffer)
{
    return buffer->data + buffer->start;
}

bool http_buffer_reserve(struct http_buffer *buffer, size_t size); /* room for so many more; false: no memory */
bool http_buffer_append(struct http_buffer *buffer, const void *data, size_t size);
void http_buffer_take(struct http_buffer *buffer, size_t size); /* forgets the first ones */
void http_buffer_compact(struct http_buffer *buffer);           /* moves the bytes to the front */
void http_buffer_free(struct http_buffer *buffer);

/* --- Messages ---------------------------------------------------------------------------------------------------- */

/* Nothing is copied, nothing is allocated and nothing is read twice, however small the portions are in which the bytes
 * come. */

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

/* Where the body ends. */
enum http_framing { HTTP_NO_BODY, HTTP_LENGTH, HTTP_CHUNKED, HTTP_UNTIL_CLOSE };

/* A part of the head. `at` counts from the first byte of the head, because the buffer may move while the head comes in. */
struct http_slice {
    uint32_t at, size;
};

struct http_field {
    struct http_slice name, value;
};

struct http_rules {
    enum http_kind kind;
    uint32_t max_head;
    uint32_t max_url; /* of requests */
    /* Called once for each header, with the first byte of the head. Returns false if there are too many. */
    bool (*field)(void *arg, const char *data, struct http_field field);
};

/* The zero value is a head of which nothing has been read. */
struct http_head {
    /* The reader's: how far it has got. */
    uint32_t line;    /* where the line begins that is not whole yet */
    uint32_t scanned; /* there is no line feed between there and here */
    bool begun;       /* the first line has been read */
    bool blank;       /* an empty line before it has been skipped */
    bool has_host, has_length, chunked, close, keep;
    enum http_kind kind;
    /* The result. */
    bool expects_continue;
    bool keep_alive;
    enum http_framing framing;
    enum http_method method;       /* of a request */
    int status;                    /* of a response */
    unsigned minor;                /* of the version: 0 or 1 */
    uint32_t size;                 /* of the whole head, with the empty line that ends it */
    uint64_t length;               /* of the body, with HTTP_LENGTH */
    struct http_slice path, query; /* of a request. An empty path stands for "/" */
    struct http_slice authority;   /* of a request with a whole URL; else empty */
    const char *problem;
};

/* Goes on with a head of which `size` bytes have come: the same bytes as last time, and more. Returns 1 if it is whole; 0 if
 * it needs more; or a negative status: it is malformed or too large, and `problem` says why. */
int http_read_head(struct http_head *head, const char *data, size_t size, const struct http_rules *rules, void *arg);

/* Headers that are kept: http_keep_field() is for http_rules.field. */
enum { HTTP_FIELDS_MAX = 100 };
struct http_fields {
    uint32_t count;
    struct http_field field[HTTP_FIELDS_MAX];
};
bool http_keep_field(void *fields, const char *data, struct http_field field);
/* The index of a header, from `from` on; -1: there is none. The name in lower case. */
int http_find_field(const struct http_fields *fields, const char *data, const char *name, int from);
fl_bytes http_field_value(const struct http_fields *fields, const char *data, const char *name); /* data NULL: none */

fl_bytes http_trim(const char *at, const char *end); /* without white space around it */
/* Whether a name or a word is this one, in letters of either case. */
bool http_same(fl_bytes text, const char *lower_case);
/* Whether these can be the name and the value of a header. */
bool http_is_name(fl_bytes name);
bool http_is_value(fl_bytes value);

struct http_body {
    enum http_framing framing;
    bool lenient; /* it belongs to a response */
    uint8_t state;
    uint32_t line; /* bytes of this line, or of the trailers so far; in a response, of all that is not data */
    uint64_t left; /* of the body, or of this chunk */
};

enum http_body_step {
    HTTP_BODY_MORE, /* everything was used, and there is no piece */
    HTTP_BODY_PIECE,
    HTTP_BODY_END,  /* the body ends with this piece, which may be empty */
    HTTP_BODY_LONG, /* there are too many bytes besides the data */
    HTTP_BODY_BAD,
};

void http_body_begin(struct http_body *body, const struct http_head *head);
/* Takes the next piece from `data`, where it stays. `ret_used`: bytes that are done with. */
enum http_body_step http_body_next(struct http_body *body, const char *data, size_t size, size_t *ret_used,
                                   fl_bytes *ret_piece);

#endif
