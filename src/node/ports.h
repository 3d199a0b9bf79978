/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_PORTS_H
#define FOLIOT_NODE_PORTS_H

/* How a node reaches what it does not include: webhooks, links, events. See node.h. */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>

#include "text/out.h"

struct node;
struct worker;
struct shard;
struct space;
struct settings;

/* --- Ports -------------------------------------------------------------------------------------------------------- */

/* One attempt at a due timer that has a target. */
struct attempt;

/* A link to another server; the port's. */
struct node_link;

/* A call over a link; the caller's memory, until `done` is called or the call is cancelled. */
struct link_call {
    /* `result` is what the other server said, or with an empty answer:
     * FL_STORE_UNAVAILABLE, FL_CAPACITY_EXCEEDED, FL_TOO_LARGE, FL_NO_MEMORY with `sent` false: nothing has happened;
     * FL_OUTCOME_UNKNOWN: the link was lost before the answer came. */
    void (*done)(struct link_call *call, int result, fl_bytes answer);
    void (*piece)(struct link_call *call,
                  fl_bytes piece); /* of an answer that comes in pieces; NULL: none is expected */
    bool urgent;                   /* also over a link that is full */
    bool sent;                     /* set before `done`: it may have arrived */
    uint64_t room[12];             /* the port's */
};

/* A call that another server has made. It is there until it is answered with link_answer(). */
struct link_request {
    uint8_t kind;                               /* enum link_kind */
    fl_bytes body;                              /* valid until node_serve() returns, or the answer */
    void (*gone)(struct link_request *request); /* see link_watch() */
    void *arg;                                  /* that of `gone` */
    void *port;
    const struct node_ports *ports;
};

struct link_config {
    const char *address; /* of the other server */
    const char *self;    /* our own */
    fl_bytes secret;
    void (*changed)(void *arg, bool up); /* may be NULL. Never inside a function of the port */
    void *arg;
};

enum event_kind {
    EVENT_SCHEDULED,
    EVENT_FIRED,
    EVENT_FAILED,
    EVENT_DEAD,
    EVENT_CANCELLED,
    EVENT_SKIPPED,
    EVENT_PAUSED,
    EVENT_RESUMED,
    EVENT_MOVED, /* other time zone rules: it is due at another moment */
};

enum { HOST_TEXT = 264 };

/* What a node needs of the world. Every function is called on the worker's thread and returns at once. */
struct node_ports {
    /* Webhooks. `prepare` comes first; it returns the same number for all targets of one host. `deliver` ends with
     * attempt_done(), never inside; before the attempt begins, the port asks attempt_begin().
     * `cancel` takes back one that has not begun: then attempt_done() is not called. `withdraw` ends those of a shard with
     * FL_LATER: attempts that have not begun, and with `begun` also attempts that have. */
    size_t attempt_room; /* bytes that the port needs behind a struct attempt */
    uint64_t (*prepare)(struct attempt *attempt);
    /* HOST:PORT of a target, one text for all spellings. Size 0: it is no URL. */
    fl_bytes (*host_of)(fl_bytes target, char room[HOST_TEXT]);
    void (*deliver)(struct worker *worker, struct attempt *attempt);
    bool (*cancel)(struct worker *worker, struct attempt *attempt);
    void (*withdraw)(struct worker *worker, const struct shard *shard, bool begun);

    /* Links. */
    int (*link_new)(struct worker *worker, const struct link_config *config, struct node_link **ret);
    void (*link_free)(struct node_link *link); /* ends its calls as if it were lost */
    bool (*link_up)(const struct node_link *link);
    bool (*link_has_failed)(const struct node_link *link);
    const char *(*link_trouble)(const struct node_link *link);
    void (*link_rotate)(struct node_link *link, fl_bytes secret); /* for the next connection */
    void (*link_call)(struct node_link *link, struct link_call *call, uint8_t kind, fl_bytes body);
    void (*link_cancel)(struct node_link *link, struct link_call *call);
    void (*secret_changed)(struct worker *worker); /* worker->secret is another one */
    void (*answer)(struct link_request *request, int result, fl_bytes body);
    void (*watch)(struct link_request *request, bool on);
    void (*piece)(struct link_request *request, fl_bytes piece);
    size_t (*unsent)(const struct link_request *request);

    /* Events: one that happened here, of a namespace if the timer has no more than that; one from another server; another
     * server wants them. */
    void (*publish)(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason);
    void (*relay)(struct worker *worker, fl_bytes piece);
    void (*listen)(struct worker *worker, struct link_request *request);

    /* Settings of namespaces as they are stored. `settings_read` returns 0, or -1 after it has logged what is wrong. */
    int (*settings_read)(fl_bytes stored, fl_bytes ns, struct settings *ret);
    void (*settings_write)(struct out *out, const struct settings *settings);

    size_t (*response_room)(const struct worker *worker); /* bytes of memory that responses may still take */
    int (*random)(void *bytes, size_t size);              /* 0, or negative */
    void (*replaced)(struct node *node);                  /* another server uses our address: stop */
};

/* --- serving.c ---------------------------------------------------------------------------------------------------- */

/* What one server asks of another. */
enum link_kind {
    LINK_OPS = 16, /* operations on a shard */
    LINK_PAGE,     /* a page of a shard */
    LINK_TAKE,     /* leases of a namespace, as many as are there */
    LINK_WATCH,    /* answered when there is something to lease, or after a while */
    LINK_ACK,      /* acknowledgements of leases of the server that is asked */
    LINK_EVENTS,   /* events, in pieces, without end */
    LINK_SPACES,   /* which namespaces there are, with how much */
    LINK_SETTINGS, /* those of a namespace have changed, or (empty) those of any */
    LINK_LOOK,     /* shards have moved */
    LINK_STATS,    /* what happened in the last hour, in a namespace or in all */
    LINK_HISTORY,  /* a page of the history of a shard */
    LINK_FORGET,   /* erases history */
    LINK_HOSTS,    /* how calls of hosts went */
    LINK_FORECAST, /* how many timers of a shard fall due when */
};
enum {
    LINK_MOVED = 1, /* the result of LINK_OPS and LINK_PAGE: the shard is not here */
    LINK_BAD = 2,   /* never sent: the answer cannot be read */
};

/* The port's: another server calls. */
void node_serve(struct worker *worker, struct link_request *request);

/* Answers, and the request is gone. */
static inline void link_answer(struct link_request *request, int result, fl_bytes body)
{
    request->ports->answer(request, result, body);
}

/* `gone` is called when the other server no longer waits for the answer, which must still be given. The request has no
 * effect that the caller must know of. NULL: it does not matter any more. */
static inline void link_watch(struct link_request *request, void (*gone)(struct link_request *request), void *arg)
{
    request->gone = gone;
    request->arg = arg;
    request->ports->watch(request, gone != NULL);
}

/* --- deliver.c ---------------------------------------------------------------------------------------------------- */

/* A timer that is due and waits, for its turn at a host or for a lease: the engine may want it back. */
struct waiter {
    bool (*withdraw)(struct waiter *waiter); /* on the shard's worker. False: its attempt has begun */
};

enum { SECRET_MOST = 64 }; /* bytes */

struct attempt {
    struct waiter waiter;
    struct shard *shard;
    fl_bytes secrets[2]; /* of its namespace */
    unsigned secret_count;
    fl_firing firing;
    unsigned char secret_room[2][SECRET_MOST];
    char id[FL_ID_TEXT + 20]; /* of this firing, the same for all its attempts */
    bool last;                /* the retry policy allows no further attempt */
    size_t keep, keep_failed; /* bytes of a response that history wants, with status 2xx and with another */
    bool begun;
    int64_t began_us;         /* of an attempt that has begun */
    struct called_host *host; /* where it is counted; NULL: nowhere */
    /* The result, set by the port before attempt_done(). */
    enum fl_settle result;
    int64_t at_us; /* of FL_AGAIN and FL_LATER; of FL_FAILED: 0, or not before */
    int status;    /* of HTTP; 0: there was none */
    uint64_t duration_ns;
    fl_bytes reason;
    fl_bytes response;                          /* the beginning of it */
    _Alignas(max_align_t) unsigned char room[]; /* the port's */
};
bool attempt_begin(struct attempt *attempt); /* whether it may begin now; if not, it ends with FL_LATER */
void attempt_done(struct attempt *attempt);

/* What a timer keeps. Headers: name, NUL, value, NUL, and so on. A payload that is not JSON has a NUL in front, with which
 * JSON cannot begin. */
static inline bool timer_is_binary(const fl_durable *timer)
{
    return timer->payload.size > 0 && *(const char *)timer->payload.data == '\0';
}

static inline fl_bytes timer_payload(const fl_durable *timer)
{
    bool binary = timer_is_binary(timer);
    return (fl_bytes){(const char *)timer->payload.data + binary, timer->payload.size - binary};
}

#endif
