/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_HTTP_INTERNAL_H
#define FOLIOT_HTTP_INTERNAL_H

/* What the files of this folder share. http.h says which file does what. */

#include <sys/queue.h>
#include <sys/uio.h>

#include "http/http.h"

/* --- Characters -------------------------------------------------------------------------------------------------- */

enum { HTTP_TOKEN = 1, HTTP_TARGET = 2, HTTP_VALUE = 4, HTTP_HOST = 8 };

extern const uint8_t http_classes[256];

static inline bool http_is(char c, unsigned class)
{
    return http_classes[(unsigned char)c] & class;
}

/* --- Connections ------------------------------------------------------------------------------------------------- */

enum {
    HTTP_IN_SMALL = 4096,    /* most requests fit, heads and bodies */
    HTTP_IN_LARGE = 65536,   /* for bodies that do not */
    HTTP_DRAIN_MOST = 65536, /* at most this much of an unwanted body is read to keep the connection */
    HTTP_OUT_MOST = 65536,   /* with more than this unsent, no further request is looked at */
    HTTP_FREE_BODY = 16384   /* a body up to this size is read without reserving memory for it */
};

/* The state of a connection. state.c has the transitions and the invariants. */
enum http_state {
    HTTP_IDLE,      /* no request, or a head is coming in */
    HTTP_BODY,      /* the head has been handed out, the body is coming in */
    HTTP_WHOLE,     /* the whole request is there, and waits for its handler: for the end of `head`, or for memory */
    HTTP_HANDLED,   /* the handler has the whole request; its answer is awaited */
    HTTP_DISCARDED, /* the request has been answered; the rest of its body is read and thrown away */
    HTTP_UPGRADED,  /* bytes that are not HTTP go both ways */
    HTTP_LAST,      /* nothing is read any more; unsent bytes go out, and then the connection is closed */
    HTTP_LINGERING, /* our side is closed; bytes that still come are thrown away, so that no reset overtakes the answer */
    HTTP_BROKEN,    /* closed as soon as no handler is on the stack */
    HTTP_CLOSED     /* the descriptor is gone; the memory stays until the request has been answered */
};

/* What has become of the request. */
enum http_stage {
    HTTP_NO_REQUEST, /* no request, or it has been answered */
    HTTP_OFFERED,    /* its handler has seen the head */
    HTTP_TAKEN,      /* … and had all of it */
    HTTP_BEGUN,      /* the head of the answer has been written */
    HTTP_ABANDONED   /* the client is gone, and the handler knows: answering only frees the request */
};

/* What becomes of the connection after the answer. */
enum http_ending {
    HTTP_KEEP,
    HTTP_CLOSE,
    HTTP_CLOSE_SLOWLY /* the peer may still be sending: through HTTP_LINGERING */
};

/* How the body of an answer in pieces is written. */
enum http_form { HTTP_IN_CHUNKS, HTTP_RAW, HTTP_MUTE /* not at all */ };

enum http_memory {
    HTTP_MEMORY_CALM,
    HTTP_MEMORY_WAITS, /* for a reservation: nothing is read or handed out meanwhile, unless the handler said whom to call */
    HTTP_MEMORY_GRANTED /* and has not been told */
};

/* The request is the first member: one is the other. */
struct http_connection {
    http_request request;
    http_server *server; /* NULL once it has been freed */
    LIST_ENTRY(http_connection) entry;
    TAILQ_ENTRY(http_connection) ready_entry, hungry_entry;
    struct http_stream stream;
    unsigned events;
    enum http_state state;
    enum http_stage stage;
    enum http_ending ending;
    enum http_form form;
    enum http_memory memory;
    bool ready;                             /* in the server's list of ready connections */
    bool inside;                            /* its handlers are on the stack: everything else waits for them */
    bool excess;                            /* it is beyond the limit: its first request is refused */
    bool paused;                            /* http_pause() */
    bool corked;                            /* another request is there already: their answers go out together */
    bool eof;                               /* the peer has closed its sending direction */
    size_t asked, reserved;                 /* bytes */
    size_t charged, lasting;                /* what of it counts in the server's memory_used, memory_lasting */
    void (*granted)(http_request *request); /* NULL: the request goes on by itself */
    uint64_t pace_since_ns, pace_bytes;     /* of the answer, while others wait */
    struct http_buffer in, out, collected;  /* collected: a body that does not fit behind its head */
    char *head_data;                        /* where the head is: in `in`, or moved to … */
    char *head_own;                         /* … a place of its own, so that `in` is free for the body */
    uint64_t body_size;                     /* come so far */
    uint64_t since_ns;                      /* of the state; of the last byte of a body */
    uint64_t body_since_ns;                 /* the rate counts from here */
    uint64_t body_counted;                  /* … and these bytes */
    uint64_t out_since_ns;                  /* the peer has taken nothing since then */
    size_t sent_size;                       /* of http_when_sent() */
    void (*sent_fn)(http_request *request);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } peer;
    struct http_body body;
    struct http_head head;
    struct http_fields fields;
};

struct http_listener {
    SLIST_ENTRY(http_listener) entry;
    http_server *server;
    int fd;
};

SLIST_HEAD(http_listeners, http_listener);
LIST_HEAD(http_list, http_connection);
TAILQ_HEAD(http_queue, http_connection);

struct http_server {
    struct http_config config;
    struct http_rules rules;
    struct http_stats stats;
    atomic_uint *count; /* connections within the limit, of all servers that share it */
    atomic_uint own_count;
    unsigned excess; /* connections beyond the limit */
    struct http_listeners listeners;
    struct http_list connections;
    struct http_list ghosts; /* closed, but their request is not answered */
    struct http_queue ready; /* with something to do that no descriptor will report */
    size_t ready_count;
    struct http_queue hungry;           /* waiting for memory, in this order */
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

static inline uint64_t http_now_ns(const struct http_connection *connection)
{
    return fl_loop_now_ns(connection->server->config.loop);
}

/* state.c */
void http_move(struct http_connection *connection, enum http_state to);
void http_set_stage(struct http_connection *connection, enum http_stage to);
void http_break(struct http_connection *connection); /* moves to HTTP_BROKEN, unless it is there or closed */
static inline bool http_is_over(const struct http_connection *connection)
{
    return connection->state >= HTTP_BROKEN;
}

/* server.c */
void http_make_ready(struct http_connection *connection);
void http_unready(struct http_connection *connection);
void http_wake(http_server *server); /* looks at the ready connections soon */

/* memory.c */
void http_memory_count(struct http_connection *connection); /* after anything: what it holds may have changed */
bool http_memory_for_stream(struct http_connection *connection);
void http_memory_leave(struct http_connection *connection); /* it waits no more */
bool http_memory_is_wasted(struct http_connection *connection, uint64_t now_ns);
bool http_memory_blocks(const struct http_connection *connection); /* nothing goes on before there is memory */

/* connection.c */
void http_connection_open(http_server *server, int fd, const struct sockaddr *peer, socklen_t size);
void http_connection_close(struct http_connection *connection);
void http_connection_refuse(struct http_connection *connection, int status, const char *problem);
void http_connection_go_on(struct http_connection *connection);
void http_connection_free(struct http_connection *connection);
void http_connection_expire(struct http_connection *connection, uint64_t now_ns); /* closes it if it is too slow */
void http_connection_update_events(struct http_connection *connection); /* after anything: waits for the right events */

/* request.c. The first three return whether there may be more to do. */
bool http_read_request(struct http_connection *connection);
bool http_read_body(struct http_connection *connection);
bool http_read_upgraded(struct http_connection *connection);
bool http_memory_granted(struct http_connection *connection);
bool http_is_pinned(const struct http_connection *connection); /* the request lies in `in`, which must not move */
void http_continue(struct http_connection *connection);
void http_answered(struct http_connection *connection);
/* Around every call of a handler. */
void http_enter(struct http_connection *connection);
void http_leave(struct http_connection *connection);

/* answer.c */
void http_send(struct http_connection *connection, fl_bytes bytes);
void http_flush(struct http_connection *connection);
void http_answer_problem(struct http_connection *connection, int status, const char *problem);
bool http_tell_sent(struct http_connection *connection); /* whether it had to be told */

/* tls.c */
SSL *http_tls_session(http_tls *tls);

#endif
