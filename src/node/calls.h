/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_CALLS_H
#define FOLIOT_NODE_CALLS_H

/* From worker to worker and from server to server: errands, tours, calls. See node.h. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>
#include <foliot/loop.h>

#include "node/ports.h"
#include "node/wire.h"

/* --- errands.c ---------------------------------------------------------------------------------------------------- */

/* Something to be done on another worker. `go` runs there, and when it, or what it began, is over, errand_return() is called
 * there: then `back` runs at home. On one and the same worker, both are plain calls. */
struct errand {
    struct worker *home, *there;
    void (*go)(struct errand *errand);
    void (*back)(struct errand *errand);
    fl_loop_task task;
};
void errand_send(struct errand *errand);
void errand_return(struct errand *errand);

/* Calls `fn` on every worker, one after the other, then `back` at home; `tour` is the caller's. */
struct tour {
    struct errand errand;
    struct worker *home;
    unsigned next;
    void (*fn)(struct tour *tour, struct worker *worker);
    void (*back)(struct tour *tour);
};
void tour_begin(struct tour *tour, struct worker *home);

/* --- calls.c, shard_calls.c ----------------------------------------------------------------------------------------- */

enum call_kind {
    CALL_OPS,
    CALL_PAGE,
    CALL_HISTORY,
    CALL_FORGET,
    CALL_FORECAST,
    CALL_LEASE,
    CALL_WATCH,
    CALL_ACKS,
    CALL_KINDS
};

/* A timer that was leased, and what its lease is known by. */
struct leased {
    uint32_t server, slot; /* the lower half of the server's incarnation */
    uint16_t worker;
    uint64_t serial;
    uint32_t shard;
    const fl_durable *timer;
};

/* CALL_LEASE asks for timers of a namespace at its home; CALL_WATCH asks whether there are any. The call returns when there
 * are, or when `wait_us` has passed. */
struct asker {
    struct space *space;
    uint32_t max;
    uint64_t wait_us, lease_us;
    /* Writes one leased timer; `count` have been written before. Called on any worker, while the timer's bytes are valid. */
    void (*write)(struct out *out, const struct leased *leased, size_t count);
    /* The answer. */
    struct out out;
    size_t count;
    bool found;
    /* At the namespace's home: */
    struct queue *queue; /* in which it waits; NULL: it does not */
    fl_timer_id timer;
    struct shard_call *next;
};

/* A call to a shard, or to another worker of any server. */
struct shard_call {
    struct errand errand; /* `home` is the caller's */
    enum call_kind kind;
    struct shard *shard; /* of CALL_OPS to CALL_FORECAST */
    union {
        fl_batch batch;             /* CALL_OPS */
        fl_listing listing;         /* CALL_PAGE */
        fl_history_listing past;    /* CALL_HISTORY */
        fl_history_erasure erasure; /* CALL_FORGET */
        fl_forecast forecast;       /* CALL_FORECAST */
        struct asker asker;         /* CALL_LEASE, CALL_WATCH */
        struct {
            char *const *namespaces; /* only timers of these are settled, NULL ends them; NULL: all */
            struct ack *first;
            size_t count;
            uint16_t worker;
        } acks; /* CALL_ACKS: of one worker's leases */
    };
    struct space **places; /* that operations have (place_take()), one each or NULL; NULL: none has any */
    /* Of those: called while the answers are valid, on the shard's worker or, if it is another server's, at
     * home. */
    void (*render)(struct shard_call *call);
    void (*done)(struct shard_call *call); /* at home */
    bool brief;                            /* of the answers of operations only results and IDs are looked at */
    bool local;                            /* of no other server: `result` is LINK_MOVED if the shard is not here */
    int result;                            /* 0: it has got there and back */
    /* The rest belongs to calls.c and shard_calls.c. */
    void (*over)(struct shard_call *call);
    void (*cancelled)(struct shard_call *call);
    const struct peer *peer; /* NULL: this server */
    struct node_link *link;  /* over which it was sent */
    struct link_call remote;
    struct errand cancel;
    bool out, cancelling;
    atomic_bool unwanted;    /* it is being cancelled */
    uint64_t since_ns;       /* it waits, but for the time it was on its way */
    uint64_t routed_ns;      /* when it was last tried */
    uint64_t number;         /* in the order in which its worker has submitted calls */
    struct shard_call *next; /* in a line of waiting calls, or in the list that a leaving shard keeps */
};

/* Operations on a shard or a page of it, at whichever server it is. If the shard has no owner at present, or is being moved,
 * the call is retried for a while. Later calls of the same worker wait behind it. */
void shard_call_submit(struct shard_call *call);
void shard_call_fail(struct shard_call *call, int result); /* renders it: before it has been submitted */

/* Whether a text is an ID of this store, as it is given out: then it cannot be a name. */
bool is_id(const struct node *node, fl_bytes text, uint32_t *ret_shard, fl_key *ret_id);
struct shard *shard_of_name(struct node *node, fl_bytes ns, fl_bytes name);
/* The shard of an operation by name. The hash of the name stays in the operation: engine and store need it, too. */
struct shard *shard_of_op(struct node *node, fl_op *op);
struct shard *shard_of_worker(struct worker *worker); /* for timers without a name */
/* Whether an operation has failed because of its shard, and nothing has happened: another shard may take it. */
bool shard_result_is_failure(int result);

#endif
