/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_HTTP_INTERNAL_H
#define FOLIOT_SERVER_HTTP_INTERNAL_H

/* What the files of the HTTP server share.
 *
 *   http.c             the server: listeners, time limits, stopping
 *   http_connection.c  what comes in: from bytes to requests, and when a connection ends
 *   http_answer.c      what goes out
 *   http_buffer.c      bytes that wait
 *   http_memory.c      how much memory requests hold, and which of them wait for some
 *   http_parse.c       heads and chunks
 *   http_tls.c         encryption */

#include <openssl/types.h>
#include <sys/uio.h>

#include "http/http.h"
#include "http/parse.h"

/* --- Lists ------------------------------------------------------------------------------------------------------- */

struct http_link {
    struct http_link *next, *prev;
};

static inline void http_link_init(struct http_link *list)
{
    list->next = list->prev = list;
}

static inline bool http_link_empty(const struct http_link *list)
{
    return list->next == list;
}

static inline void http_link_remove(struct http_link *link)
{
    link->next->prev = link->prev;
    link->prev->next = link->next;
    http_link_init(link);
}

static inline void http_link_append(struct http_link *list, struct http_link *link)
{
    link->next = list;
    link->prev = list->prev;
    list->prev->next = link;
    list->prev = link;
}

/* --- Buffers ----------------------------------------------------------------------------------------------------- */

/* Bytes from `start` to `end` are there, those from `end` to `capacity` are free. */
struct http_buffer {
    char *data;
    size_t capacity, start, end;
};

static inline size_t http_buffer_size(const struct http_buffer *buffer)
{
    return buffer->end - buffer->start;
}

bool http_buffer_reserve(struct http_buffer *buffer, size_t size); /* room for so many more */
bool http_buffer_append(struct http_buffer *buffer, const void *data, size_t size);
void http_buffer_take(struct http_buffer *buffer, size_t size); /* forgets the first ones */
void http_buffer_compact(struct http_buffer *buffer);           /* moves the bytes to the front */
void http_buffer_free(struct http_buffer *buffer);

/* --- Connections ------------------------------------------------------------------------------------------------- */

enum {
    HTTP_IN_SMALL = 4096,    /* most requests fit, heads and bodies */
    HTTP_IN_LARGE = 65536,   /* for bodies that do not */
    HTTP_DRAIN_MOST = 65536, /* as much of a body nobody wants is read for the sake of the connection */
    HTTP_OUT_MOST = 65536,   /* with more than this unsent, no further request is looked at */
    HTTP_FREE_BODY = 16384   /* a body up to this size is read without reserving memory for it */
};

enum http_state {
    HTTP_HEAD_STATE, /* a head is coming in, or nothing yet */
    HTTP_BODY_STATE, /* the head has been handed out, the body is coming in */
    HTTP_WAIT_STATE, /* the whole request has been handed out, the answer is awaited */
    HTTP_LAST_STATE, /* nothing is read any more: what is unsent goes out, and then the connection is closed */
    HTTP_LINGER_STATE, /* our side is closed; what still comes is thrown away, so that the answer is not lost to a reset */
    HTTP_CLOSED_STATE /* the descriptor is gone; the connection is there until its request has been answered */
};

enum http_memory {
    HTTP_MEMORY_CALM,
    HTTP_MEMORY_WAITS, /* for a reservation: nothing is read or handed out meanwhile, unless the handler said whom to call */
    HTTP_MEMORY_GRANTED /* and has not been told */
};

/* The request is the first member: one is the other. */
struct http_connection {
    http_request request;
    http_server *server; /* NULL once it has been freed */
    struct http_link link, ready;
    int fd;
    unsigned events;
    SSL *ssl;
    bool tls_wants_write;
    enum http_state state;
    bool inside;      /* its handlers are on the stack: whatever happens waits for them */
    bool outstanding; /* the request has been handed out and not been answered */
    bool handled;     /* … and the handler has had all of it */
    bool abandoned;   /* `gone` has been called, or would have been */
    bool begun;       /* http_begin() */
    bool raw;         /* the answer is not chunked, and ends with the connection */
    bool mute;        /* the answer has no body, whatever is written */
    bool closing;     /* the connection ends with this answer */
    bool excess;      /* it is beyond the limit: its first request is refused */
    bool linger;
    bool paused;
    bool discard; /* of a request that has been answered: its body only has to go */
    bool corked;  /* another request is there already: their answers go out together */
    bool over;    /* nothing can come of it any more: it is closed as soon as no handler is on the stack */
    bool eof;
    enum http_memory memory;
    struct http_link hungry;                /* among those that wait for memory */
    size_t asked, reserved;                 /* bytes */
    size_t charged, lasting;                /* what of it counts in the server's memory_used, memory_lasting */
    void (*granted)(http_request *request); /* NULL: the request goes on by itself */
    uint64_t pace_since_ns, pace_bytes;     /* of the response, while others wait */
    struct http_buffer in, out, body;
    char *head_data;        /* where the head is: in `in`, or moved to … */
    char *head_own;         /* … a place of its own, so that `in` is free for the body */
    uint64_t body_left;     /* of a body with a length */
    uint64_t body_size;     /* come so far */
    uint64_t since_ns;      /* of the state; of the last byte of a body */
    uint64_t body_since_ns; /* the rate counts from here */
    uint64_t body_counted;  /* … and these bytes */
    uint64_t out_since_ns;  /* the peer has taken nothing since then */
    size_t sent_size;       /* of http_when_sent() */
    void (*sent_fn)(http_request *request);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } peer;
    struct http_chunks chunks;
    struct http_head head;
};

struct http_listener {
    struct http_listener *next;
    http_server *server;
    int fd;
};

struct http_server {
    struct http_config config;
    struct http_limits limits;
    struct http_stats stats;
    atomic_uint *count; /* connections within the limit, of all servers that share it */
    atomic_uint own_count;
    unsigned excess; /* connections beyond the limit */
    struct http_listener *listeners;
    struct http_link connections;
    struct http_link ready;             /* connections with something to do that no descriptor will tell */
    struct http_link ghosts;            /* closed, but their request is not answered */
    struct http_link hungry;            /* connections that wait for memory, the first first */
    size_t memory_used, memory_lasting; /* by requests that end; by streams that go on */
    fl_timer_id sweep, immediate;
    bool has_immediate;
    bool accepting; /* false: there were no descriptors left */
    bool draining, stopping;
    fl_loop_fn done;
    void *done_arg;
    uint64_t date_second; /* of the loop's clock + 1, when `date` was made */
    char date[40];
};

static inline struct http_connection *http_connection_of(http_request *request)
{
    return (struct http_connection *)request;
}

/* http.c */
void http_make_ready(struct http_connection *connection);
void http_wake(http_server *server); /* has http_run_ready() called soon */

/* http_memory.c */
void http_memory_count(struct http_connection *connection); /* after anything: what it holds may have changed */
bool http_memory_for_stream(struct http_connection *connection);
void http_memory_leave(struct http_connection *connection); /* it waits no more */
bool http_memory_is_wasted(struct http_connection *connection, uint64_t now_ns);

/* http_connection.c */
void http_connection_open(http_server *server, int fd, const struct sockaddr *peer, socklen_t size);
void http_connection_close(struct http_connection *connection);
void http_connection_refuse(struct http_connection *connection, int status, const char *problem);
void http_connection_go_on(struct http_connection *connection);
void http_connection_continue(struct http_connection *connection);
void http_connection_answered(struct http_connection *connection);
void http_connection_free(struct http_connection *connection);
void http_connection_expire(struct http_connection *connection,
                            uint64_t now_ns);                    /* closes it if it has taken too long */
void http_connection_settle(struct http_connection *connection); /* after anything: waits for the right events */

/* http_answer.c */
void http_send(struct http_connection *connection, fl_bytes bytes);
void http_flush(struct http_connection *connection);
void http_answer_problem(struct http_connection *connection, int status, const char *problem);
bool http_tell_sent(struct http_connection *connection); /* whether it had to be told */

/* http_tls.c. Has it read from and write to the descriptor that `fd` points to. */
bool http_tls_attach(SSL *ssl, const int *fd);
bool http_tls_channel_key(SSL *ssl, unsigned char out[HTTP_CHANNEL_KEY]);
/* Reading and writing as recv() and send() do, with errno. */
bool http_tls_open(http_tls *tls, struct http_connection *connection);
void http_tls_close(struct http_connection *connection);
void http_tls_shutdown(struct http_connection *connection);
ssize_t http_tls_read(struct http_connection *connection, char *data, size_t size);
ssize_t http_tls_write(struct http_connection *connection, const char *data, size_t size);
bool http_tls_pending(const struct http_connection *connection);
bool http_tls_in_handshake(const struct http_connection *connection);

#endif
