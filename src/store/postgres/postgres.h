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
 *     history.c   history
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
 * just now, may even be under way in the network. So is everything from a commit on that was answered with an error, of
 * whatever kind. The next connection settles it: it locks the row (and waits for whoever
 * has it), reads `applied`, and sets it to a new random number. Writes up to the number that was found have taken effect, the
 * others have not; and they never will, since their fence looks for a number that is no longer there. Nothing else is sent
 * before that, so what is submitted after FL_OUTCOME_UNKNOWN sees all of it or nothing, for good. Only if another owner has
 * written in the meantime is there nothing left to read: then the answer is FL_OUTCOME_UNKNOWN.
 *
 * A database that has gone back. When a replica that lags is promoted, or a backup is restored, the database forgets writes
 * that it had acknowledged, and the owner's view of the shard is of a future that will not be. Connections do not survive
 * that, so the next one settles; and settling finds a number from before the last that was acknowledged, or one that the
 * chain never had, with a version that is not newer than ours. Then the shard is lost: everything is answered with
 * FL_SHARD_LOST until it is claimed again. Numbers are random, so a version that is given twice, before and after, does
 * not matter.
 *
 * A meeting (FL_STORE_MEET) has no part in the chain: it is a short transaction of its own that can be repeated, and waits
 * for nobody's shard.
 *
 * A fence that does not pass although nothing failed before it means that the shard was lost, or that the chain is another
 * attachment's with the same version. Settling tells which: with the version still right, an attachment that has nothing
 * acknowledged yet takes the chain over; for any other, the shard is lost.
 */

#include <stdatomic.h>

#include <libpq-fe.h>

#include "store/postgres/sql.h"
#include "store/postgres/wire.h"
#include "store/store.h"

enum { PG_FLIGHTS = 32, PG_EXPECTED = 1024, PG_KEPT = 3, PG_SESSION_SIZE = 48 };

struct pg_store {
    fl_store base;
    uint64_t timeout_us;
    bool spread;              /* the shards are on several nodes of Citus */
    _Atomic int64_t ahead_us; /* fl_store_clock_ahead_us() */
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
    int64_t sent_us;         /* when, by the machine's clock */
    unsigned open;           /* statements and syncs that were sent and have not come back */
    unsigned stage;          /* of requests that take several exchanges */
    uint64_t number;         /* of a write, in the chain */
    bool fenced;             /* a write: the fence did not pass */
    bool redo;               /* it has to be carried out again: the database gave up a transaction that was in order */
    bool replace;            /* rows that it puts are there already: take them away first */
    bool doubt;              /* it may have taken effect, or has, but what came of it was lost */
    PGresult *kept[PG_KEPT]; /* what the answer points into */
    unsigned kept_count;
    void *block, *keep, *counts, *spans; /* the same */
    uint64_t version;                    /* FL_STORE_CLAIM: which one was found */
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

/* Who was seen to have a shard last. */
struct pg_known {
    char *owner; /* allocated; NULL: never seen */
    uint64_t version;
    int64_t left_us;
    bool fresh; /* seen by the meeting that is under way */
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
    bool proven;                   /* something was carried out over this connection */
    bool node_down;                /* the node of the shard could not be reached, and nothing was carried out since */
    bool had_session;              /* there was one before, whose remains may hold the shard's row */
    char trouble[320];             /* why there is no connection */
    struct pg_expected expected[PG_EXPECTED];
    unsigned expected_first, expected_count;
    struct pg_args args;
    struct pg_known *known; /* of all shards, on Citus, since the first meeting; else NULL */

    /* The chain. */
    bool chained; /* this attachment has written or claimed: its next connection has to settle */
    uint64_t base_number, number, sent, applied; /* numbers begin at base; the last that was given, sent, applied */
    uint64_t version;                            /* that the last write carried */
    bool acknowledged;                           /* `applied` was, since the attachment was made */
    bool forgotten; /* the database has gone back behind it: nothing but claims and meetings is sent */
    bool settle_after_drain;
    struct {
        enum { SETTLE_LOCK, SETTLE_READ, SETTLE_END, SETTLE_DONE } stage;
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

/* The database has said that it has everything up to this number. */
static inline void fl__pg_acknowledge(struct pg_shard *shard, uint64_t number)
{
    shard->applied = number;
    shard->acknowledged = true;
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
/* Begins a transaction that writes: its commit is answered when it is on disk. */
void fl__pg_transact(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_sync(struct pg_shard *shard, struct pg_flight *flight);

void fl__pg_flush(struct pg_shard *shard);

void fl__pg_link_tick(struct pg_shard *shard, uint64_t now_ns); /* does what is due */
void fl__pg_link_watch(struct pg_shard *shard);                 /* flushes, and tells the loop what to wait for */
void fl__pg_link_break(struct pg_shard *shard, const char *why);
void fl__pg_link_close(struct pg_shard *shard);

/* libpq speaks in lines: they become one. Those that name a place in the source of PostgreSQL are left out. */
void fl__pg_flatten(const char *text, char *out, size_t size);

/* Answers a request of an owner whose writes the database has forgotten. */
void fl__pg_refuse_forgotten(struct pg_flight *flight);

/* What the stages of requests that take several exchanges wait for. */
enum { STAGE_FIRST, STAGE_MIDDLE, STAGE_END };

/* --- requests.c --------------------------------------------------------------------------------------------------- */

bool fl__pg_is_write(const fl_store_request *request); /* it goes through the fence */
/* Nothing else is sent meanwhile: it takes several exchanges, or may have to be repeated although it is no write. */
bool fl__pg_is_alone(const fl_store_request *request);

bool fl__pg_is_unowned(const fl_store_request *request); /* it is for those who have lost the shard, too */

/* Sends a request, or its first part. Returns 0, or why it cannot be sent: then nothing was. */
int fl__pg_start(struct pg_shard *shard, struct pg_flight *flight);
/* Takes a result, which is its from now on. */
void fl__pg_take(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result);
/* All that was sent has come back. Returns whether more was sent. */
bool fl__pg_go_on(struct pg_shard *shard, struct pg_flight *flight);

/* The argument that all statements of a write begin with. */
static inline void fl__pg_begin_write(struct pg_shard *shard)
{
    fl__pg_begin(&shard->args);
    fl__pg_int(&shard->args, shard->base.shard);
}

/* Ends a transaction whose last change was sent. */
void fl__pg_commit(struct pg_shard *shard, struct pg_flight *flight);

/* How many rows are of this page: at most `limit`, and only those before the first that would make it too long, of which the
 * column `too_long` says so. */
int fl__pg_page_count(const PGresult *result, size_t limit, int too_long, bool *ret_more);

/* As much of a claim as fits into the tables. */
static inline uint64_t fl__pg_claim(uint64_t claim_us)
{
    return claim_us < (uint64_t)1 << 61 ? claim_us : (uint64_t)1 << 61;
}

/* A claim never lasts longer than this, unless the clock of the database was set back. Servers may have different settings: a server
 * whose claims last up to nine times ours still renews, every third of that time, before this is over. */
static inline uint64_t fl__pg_longest(uint64_t claim_us)
{
    return fl__pg_claim(claim_us) * 3;
}

/* What to do about an error, in words; "" if there is nothing to say. `state` is its SQLSTATE, or "": then the text may
 * have it (see fl__pg_find_state()). */
const char *fl__pg_advice(const char *state, const char *text);
/* The SQLSTATE in a text that libpq has made with PQERRORS_VERBOSE, such as "FATAL:  28P01: password authentication
 * failed". Returns where it begins, five characters long, or NULL. */
const char *fl__pg_find_state(const char *text);
/* The code for an error of the database. */
int fl__pg_code(const PGresult *result);
bool fl__pg_is_retry(const PGresult *result); /* the transaction was given up and can be tried again */
/* The database answers, but cannot reach the node that has the shard: it has rolled the transaction back. */
bool fl__pg_is_node_down(const PGresult *result);
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

/* --- history.c ---------------------------------------------------------------------------------------------------- */

/* How much room the arguments of a change need; and the statements of a transaction, when there is that room. */
size_t fl__pg_history_room(const fl_history_change *change);
void fl__pg_history_send(struct pg_shard *shard, struct pg_flight *flight, const fl_history_change *change);
void fl__pg_history_forget(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_history(struct pg_shard *shard, struct pg_flight *flight);
/* They return 0 or FL_NO_MEMORY. */
int fl__pg_take_history(struct pg_flight *flight, const PGresult *result);
int fl__pg_take_spans(struct pg_flight *flight, const PGresult *result);

/* --- meet.c ------------------------------------------------------------------------------------------------------- */

int fl__pg_start_meet(struct pg_shard *shard, struct pg_flight *flight);
/* Takes what came back of a statement. Returns 0 or why it is of no use. */
int fl__pg_take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result);

/* On Citus, asks each node who has its shards. A node that does not answer affects only its own shards. */
bool fl__pg_go_on_meeting(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_node(struct pg_shard *shard, const PGresult *result);
bool fl__pg_is_of_node(unsigned what, const PGresult *result); /* an error of one node, and not of the connection */
void fl__pg_known_release(struct pg_shard *shard);

#endif
