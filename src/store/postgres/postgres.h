/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_POSTGRES_POSTGRES_H
#define FOLIOT_STORE_POSTGRES_POSTGRES_H

/* The store in PostgreSQL: what its files share.
 *
 *     open.c      opening, making and checking the tables
 *     shard.c     a shard's requests: their order, their time-outs, their answers
 *     link.c      a shard's connection: connecting again, the pipeline, settling what was in doubt
 *     requests.c  what each kind of request says to the database, and what it makes of the answer
 *     batch.c     changes as statements
 *     meet.c      servers that find each other
 *     sql.c       tables and statements
 *     wire.c      binary values
 *
 * The chain. The row of a shard has a number, `applied`. Each write is a transaction that begins with the fence: it moves
 * `applied` from the number of the write before it to its own, if that is what it finds, and if the version is the one
 * that the request carries. That update locks the row until the commit, so that no claim comes between (the lock is
 * stronger than FOR SHARE and costs no more, since a shard has one writer); it makes pipelined writes depend on each other, so
 * that none takes effect if one before it did not; and it is the record of how far the database has got.
 *
 * Doubt. When a connection breaks, what was sent and not answered is in doubt: it may have been carried out, may be so
 * just now, may even be under way in the network. The next connection settles it: it locks the row (and waits for whoever
 * has it), reads `applied`, and sets it to a new random number. Writes up to the number that was found have taken effect, the
 * others have not; and they never will, since their fence looks for a number that is no longer there. Nothing else is sent
 * before that, so what is submitted after FL_OUTCOME_UNKNOWN sees all of it or nothing, for good. Only if another owner has
 * written in the meantime is there nothing left to read: then the answer is FL_OUTCOME_UNKNOWN.
 *
 * A meeting (FL_STORE_MEET) has no part in the chain: it is a short transaction of its own that can be repeated, and waits
 * for nobody's shard.
 *
 * A fence that does not pass although nothing failed before it means that the shard was lost, or that the chain is another
 * attachment's with the same version. Settling tells which: with the version still right, the chain is taken over.
 */

#include <libpq-fe.h>

#include "store/postgres/sql.h"
#include "store/postgres/wire.h"
#include "store/store.h"

enum { PG_FLIGHTS = 32, PG_EXPECTED = 1024, PG_KEPT = 3, PG_SESSION_SIZE = 48 };

struct pg_store {
    fl_store base;
    uint64_t timeout_us;
    char url[];
};

enum pg_flight_state {
    PG_WAITING,  /* it is to be sent */
    PG_SENT,     /* its answer is awaited; or it is in doubt, if the connection it was sent over is gone */
    PG_FINISHED, /* its result is known; it is answered when those before it are */
};

/* A request that is under way, or next to be. */
struct pg_flight {
    fl_store_request *request;
    enum pg_flight_state state;
    size_t size;             /* bytes that were sent for it */
    unsigned open;           /* statements and syncs that were sent and have not come back */
    unsigned stage;          /* of requests that take several exchanges */
    uint64_t number;         /* of a write, in the chain */
    bool fenced;             /* a write: the fence did not pass */
    bool redo;               /* it has to be carried out again: the database gave up a transaction that was in order */
    bool replace;            /* rows that it puts are there already: take them away first */
    bool doubt;              /* it may have taken effect, or has, but what came of it was lost */
    PGresult *kept[PG_KEPT]; /* what the answer points into */
    unsigned kept_count;
    void *block, *keep; /* the same */
    uint64_t version;   /* FL_STORE_CLAIM: which one was found */
    struct {
        size_t window; /* which one is being read */
        uint64_t after_seq;
        bool cut; /* it is known */
        fl_key end;
        uint32_t page; /* rows to ask for at once */
    } load;
};

enum pg_state {
    PG_DOWN,       /* there is no connection; the next attempt is at due_ns */
    PG_CONNECTING, /* until due_ns */
    PG_PREPARING,
    PG_SETTLING,
    PG_READY,
    PG_DRAINING, /* a write did not take effect: what was sent after it comes back and will be sent again */
};

enum { PG_WHAT_SYNC = PG_STATEMENTS, PG_WHAT_SETTING, PG_WHAT_PREPARE };

/* What comes back next. */
struct pg_expected {
    struct pg_flight *flight; /* NULL: the link's own */
    uint16_t what;            /* a statement, or one of the above */
    uint32_t times;
};

struct pg_shard {
    fl_shard base;

    /* Requests, in the order in which they came: first those in flight, then those in the list. */
    struct pg_flight flights[PG_FLIGHTS];
    unsigned flight_first, flight_count;
    fl_store_request *first, *last;
    fl_loop_task task;
    bool posted;
    fl_timer_id timer;
    bool has_timer;
    bool detaching;
    fl_loop_fn gone;
    void *gone_arg;

    /* The connection. */
    enum pg_state state;
    PGconn *conn;
    int fd;          /* that the loop watches, or -1 */
    unsigned events; /* for which */
    bool unflushed;
    bool broken; /* it is to be given up: link_check() does it where that is safe */
    uint64_t due_ns;
    unsigned attempts;             /* that failed since the last that did not */
    char session[PG_SESSION_SIZE]; /* what all connections of this attachment are called */
    bool had_session;              /* there was one before, whose remains may hold the shard's row */
    char trouble[160];             /* why there is no connection */
    struct pg_expected expected[PG_EXPECTED];
    unsigned expected_first, expected_count;
    struct pg_args args;

    /* The chain. */
    bool chained; /* this attachment has written or claimed: its next connection has to settle */
    uint64_t base_number, number, sent, applied; /* numbers begin at base; the last that was given, sent, applied */
    uint64_t version;                            /* that the last write carried */
    bool settle_after_drain;
    struct {
        enum { SETTLE_LOCK, SETTLE_READ, SETTLE_BAR, SETTLE_DONE } stage;
        uint64_t found;            /* the number in the row */
        uint64_t tried;            /* that was to take its place; 0: none, or it is known that it has */
        uint64_t applied, version; /* what was there before all that, and the version that goes with it */
        char owner[256];
    } settling;
};

static inline struct pg_store *fl__pg_store(const struct pg_shard *shard)
{
    return (struct pg_store *)shard->base.store;
}

static inline struct pg_flight *fl__pg_flight(struct pg_shard *shard, unsigned i)
{
    return &shard->flights[(shard->flight_first + i) % PG_FLIGHTS];
}

/* --- shard.c ------------------------------------------------------------------------------------------------------ */

extern const struct fl_store_ops fl__pg_ops;

/* Everything that can be done now is done: sending, answering, giving up what is too late. Called after every event. */
void fl__pg_step(struct pg_shard *shard);

/* Forgets what came back of a request, so that it can be sent again. */
void fl__pg_flight_reset(struct pg_flight *flight);

/* --- link.c ------------------------------------------------------------------------------------------------------- */

/* Sends a statement for a request (NULL: for the link itself); `args` may be NULL. What does not work breaks the link. */
void fl__pg_say(struct pg_shard *shard, struct pg_flight *flight, enum pg_statement statement, struct pg_args *args);
void fl__pg_sync(struct pg_shard *shard, struct pg_flight *flight);

void fl__pg_flush(struct pg_shard *shard);

void fl__pg_link_tick(struct pg_shard *shard, uint64_t now_ns); /* does what is due */
void fl__pg_link_watch(struct pg_shard *shard);                 /* flushes, and tells the loop what to wait for */
void fl__pg_link_break(struct pg_shard *shard, const char *why);
void fl__pg_link_close(struct pg_shard *shard);

/* --- requests.c --------------------------------------------------------------------------------------------------- */

bool fl__pg_is_write(const fl_store_request *request); /* it goes through the fence */
/* Nothing else is sent meanwhile: it takes several exchanges, or may have to be repeated although it is no write. */
bool fl__pg_is_alone(const fl_store_request *request);

/* Sends a request, or its first part. Returns 0, or why it cannot be sent: then nothing was. */
int fl__pg_start(struct pg_shard *shard, struct pg_flight *flight);
/* Takes a result, which is its from now on. */
void fl__pg_take(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result);
/* All that was sent has come back. Returns whether more was sent. */
bool fl__pg_go_on(struct pg_shard *shard, struct pg_flight *flight);

/* Ends a transaction whose last change was sent. */
void fl__pg_commit(struct pg_shard *shard, struct pg_flight *flight);

/* As much of a lease as fits into the tables. */
static inline uint64_t fl__pg_lease(uint64_t lease_us)
{
    return lease_us < (uint64_t)1 << 61 ? lease_us : (uint64_t)1 << 61;
}

/* The code for an error of the database. */
int fl__pg_code(const PGresult *result);
bool fl__pg_is_retry(const PGresult *result);  /* the transaction was given up and can be tried again */
bool fl__pg_is_broken(const PGresult *result); /* what became of the transaction is not known */

/* --- batch.c ------------------------------------------------------------------------------------------------------ */

struct pg_batch {
    const fl_store_change *changes;
    size_t count;
    size_t puts, removes, unmoves, moves, buries, unburies;
    bool plain;   /* no row has a name or was moved */
    bool replace; /* removes what is put, too */
    struct pg_put {
        uint64_t window, seq;
        const fl_row *row;
    } * rows; /* what is put, in the order of the key: allocated */
};

/* Counts and sorts, and makes room for the arguments. Returns 0 or FL_NO_MEMORY. */
int fl__pg_batch_make(struct pg_shard *shard, const fl_store_change *changes, size_t count, bool replace,
                      struct pg_batch *ret);
void fl__pg_batch_send(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch);
void fl__pg_batch_release(struct pg_batch *batch);

/* The arguments that all statements of a write begin with. */
void fl__pg_begin_write(struct pg_shard *shard, const struct pg_flight *flight);

/* --- meet.c ------------------------------------------------------------------------------------------------------- */

int fl__pg_start_meet(struct pg_shard *shard, struct pg_flight *flight);
/* Takes what came back of a statement. Returns 0 or why it is of no use. */
int fl__pg_take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result);

#endif
