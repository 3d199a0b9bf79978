/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_POSTGRES_POSTGRES_H
#define FOLIOT_STORE_POSTGRES_POSTGRES_H

/* The store in PostgreSQL: declarations that its files share.
 *
 *     open.c      opening, making and checking the tables
 *     shard.c     a shard's requests: their order, their time-outs, their answers
 *     link.c      a shard's connection: connecting again, the pipeline, settling doubt
 *     settle.c    settling requests that were in doubt when a connection broke
 *     requests.c  the statements of each request, and matching answers with requests
 *     writes.c    requests that pass the fence: changes, claims, progress, windows
 *     reads.c     finding and listing
 *     claim.c     claiming a shard
 *     load.c      reading whole windows, page by page
 *     errors.c    errors of the database: their meaning, and advice to the user
 *     batch.c     changes as statements
 *     history.c   history
 *     meet.c      servers that find each other
 *     sql.c       tables and statements
 *     wire.c      binary values
 *
 * The chain. The row of a shard has a number, `applied`. Each write is a transaction that begins with the fence: it moves
 * `applied` from the number of the previous write to its own. It passes only if the row still has the previous number and
 * the version that the request carries. The update does three things. It locks the row until the commit, so no claim comes
 * between. (The lock is stronger than FOR SHARE and costs no more, because a shard has one writer.) It makes pipelined writes
 * depend on each other, so no write takes effect unless all writes before it did. And it records how far the database has
 * got.
 *
 * Doubt. When a connection breaks, the requests without an answer are in doubt: the database may have carried them out, may
 * be doing so now, or may not have received them yet. If a commit is answered with an error of any kind, this commit and
 * everything sent after it are in doubt, too. The next connection settles the doubt: it locks the row (and waits for the
 * transaction that holds the lock), reads `applied`, and sets it to a new random number. Writes up to the number that it read
 * have taken effect. Later writes have not and never will, because their fence looks for a number that no longer exists.
 * Nothing else is sent before that, so requests after FL_OUTCOME_UNKNOWN see either the whole write or nothing of it, for
 * good. If another owner has written in the meantime, the old number is gone, and the answer is FL_OUTCOME_UNKNOWN.
 *
 * A database that has gone back. When a lagging replica is promoted, or a backup is restored, the database forgets writes
 * that it had acknowledged. The owner's view of the shard is then ahead of the database. Connections do not survive this, so
 * the next connection settles. It finds a number from before the last acknowledged write, or a number that the chain never
 * had, with a version that is not newer than ours. Then the shard is lost: every request gets FL_SHARD_LOST until the shard
 * is claimed again. The database may give the same version twice, before and after. This is harmless, because numbers are
 * random.
 *
 * A meeting (FL_STORE_MEET) is not part of the chain: it is a short transaction of its own, can be repeated, and waits for no
 * shard's lock.
 *
 * If a fence does not pass although nothing failed before it, either the shard was lost, or another attachment with the same
 * version continues the chain. Settling finds out which. If the version is still right, an attachment without acknowledged
 * writes takes the chain over. For any other attachment, the shard is lost.
 */

#include <pthread.h>
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
    pthread_mutex_t lock;     /* of the next two: fl_store_is_away() */
    unsigned away;            /* number of attachments whose connection is broken */
    char trouble[320];        /* why the last one broke */
    char url[];
};

enum pg_flight_state {
    PG_WAITING,  /* to be sent */
    PG_SENT,     /* waits for its answer, or is in doubt if its connection is gone */
    PG_FINISHED, /* the result is known; requests are answered in order */
};

/* A request in flight, or about to be sent. */
struct pg_flight {
    fl_store_request *request;
    enum pg_flight_state state;
    size_t size;             /* bytes that were sent for it */
    int64_t sent_us;         /* when, by the machine's clock */
    unsigned open;           /* statements and syncs without an answer yet */
    unsigned stage;          /* of requests that take several exchanges */
    uint64_t number;         /* of a write, in the chain */
    bool fenced;             /* a write: the fence did not pass */
    bool redo;               /* retry: the database aborted a correct transaction */
    bool replace;            /* some rows exist already: remove them before inserting */
    bool doubt;              /* its answer was lost, so it may have taken effect */
    PGresult *kept[PG_KEPT]; /* the answer points into these */
    unsigned kept_count;
    void *block, *keep, *counts, *spans; /* the same */
    uint64_t version;                    /* FL_STORE_CLAIM: the version in the database */
    struct {
        size_t window; /* index of the window that is being read */
        uint64_t after_seq;
        bool cut; /* `end` is known */
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
    PG_DRAINING, /* a write did not take effect: the requests after it fail and are sent again */
};

enum { PG_WHAT_SYNC = PG_STATEMENTS, PG_WHAT_SETTING, PG_WHAT_PREPARE };

/* An answer that the connection will deliver, in order. */
struct pg_expected {
    struct pg_flight *flight; /* NULL: the link itself has asked */
    uint16_t what;            /* enum pg_statement or PG_WHAT_… */
    uint32_t times;
};

/* The shard owner that the last meeting found. */
struct pg_known {
    char *owner; /* allocated; NULL: never seen */
    uint64_t version;
    int64_t left_us;
    bool fresh; /* found by the current meeting */
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
    int fd;          /* watched by the loop, or -1 */
    unsigned events; /* that the loop watches for */
    bool unflushed;
    bool away;   /* counted in the store: the connection broke, and there is no other one yet */
    bool broken; /* link_check() closes the connection where that is safe */
    uint64_t due_ns;
    unsigned attempts;             /* consecutive failed attempts to connect */
    char session[PG_SESSION_SIZE]; /* the name of all connections of this attachment */
    bool proven;                   /* a request has succeeded over this connection */
    bool node_down;                /* the node of the shard was unreachable, and no request has succeeded since */
    bool had_session;              /* an earlier session may still hold the lock of the shard's row */
    char trouble[320];             /* why there is no connection */
    struct pg_expected expected[PG_EXPECTED];
    unsigned expected_first, expected_count;
    struct pg_args args;
    struct pg_known *known; /* of all shards, on Citus, since the first meeting; else NULL */

    /* The chain. */
    bool chained; /* this attachment has written or claimed: its next connection has to settle */
    uint64_t base_number, number, sent, applied; /* the first number; the last that was given, sent, applied */
    uint64_t version;                            /* of the last write */
    bool acknowledged;                           /* `applied` was acknowledged in the life of this attachment */
    bool forgotten; /* the database has forgotten acknowledged writes: only claims and meetings are sent */
    bool settle_after_drain;
    struct {
        enum { SETTLE_LOCK, SETTLE_READ, SETTLE_END, SETTLE_DONE } stage;
        uint64_t found;            /* the number in the row */
        uint64_t tried;            /* the new number whose write is in doubt; 0: none */
        uint64_t applied, version; /* the number before settling began, and its version */
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

/* Counts the connections that are broken. */
void fl__pg_set_away(struct pg_shard *shard, bool away);

/* Does everything that is possible now: sends, answers, and times out. Called after every event. */
void fl__pg_step(struct pg_shard *shard);

/* Frees the results of a request, so that it can be sent again. */
void fl__pg_flight_reset(struct pg_flight *flight);

/* --- link.c ------------------------------------------------------------------------------------------------------- */

/* Sends a statement for a request (NULL: for the link itself); `args` may be NULL. A failure breaks the link. */
void fl__pg_say(struct pg_shard *shard, struct pg_flight *flight, enum pg_statement statement, struct pg_args *args);
/* Begins a transaction that writes: its commit is answered when it is on disk. */
void fl__pg_transact(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_sync(struct pg_shard *shard, struct pg_flight *flight);

void fl__pg_flush(struct pg_shard *shard);

void fl__pg_link_tick(struct pg_shard *shard, uint64_t now_ns); /* carries out time-outs and connects again */
void fl__pg_link_watch(struct pg_shard *shard);                 /* flushes, and tells the loop what to wait for */
void fl__pg_link_break(struct pg_shard *shard, const char *why);
void fl__pg_link_close(struct pg_shard *shard);

/* Joins the lines of a message of libpq. Leaves out lines that name a place in the source of PostgreSQL. */
void fl__pg_flatten(const char *text, char *out, size_t size);

/* Stages of requests that take several exchanges. */
enum { STAGE_FIRST, STAGE_MIDDLE, STAGE_END };

uint64_t fl__pg_random(void);
uint64_t fl__pg_timeout_ns(const struct pg_shard *shard);
/* The connection is broken. fl__pg_link_tick() closes it, because no caller is using it there. */
void fl__pg_link_fail(struct pg_shard *shard, const char *why);
void fl__pg_sent(struct pg_shard *shard, struct pg_flight *flight, unsigned what, int good);

/* --- settle.c ----------------------------------------------------------------------------------------------------- */

/* Answers a request of an owner whose writes the database has forgotten. */
void fl__pg_refuse_forgotten(struct pg_flight *flight);
/* A request has succeeded: the connection and the database behind it work. */
void fl__pg_proven(struct pg_shard *shard);
void fl__pg_ready(struct pg_shard *shard);
/* Locks and reads the row, then writes the new number in the same transaction. The old number must be known before it is
 * overwritten. If this connection breaks too, the next one recognises the new number and still knows the old one. */
void fl__pg_settle_begin(struct pg_shard *shard);
void fl__pg_settle_next(struct pg_shard *shard);
void fl__pg_take_settling(struct pg_shard *shard, unsigned what, PGresult *result);

/* --- requests.c --------------------------------------------------------------------------------------------------- */

/* Requests during which nothing else is sent: they take several exchanges, or may be retried although they are no writes. */
bool fl__pg_is_alone(const fl_store_request *request);

bool fl__pg_is_unowned(const fl_store_request *request); /* allowed without owning the shard */

/* Sends a request, or its first part. On failure returns an error and sends nothing. */
int fl__pg_start(struct pg_shard *shard, struct pg_flight *flight);
/* Takes over the result and frees it. */
void fl__pg_take(struct pg_shard *shard, struct pg_flight *flight, unsigned what, PGresult *result);
/* All answers have arrived. Returns whether it has sent more. */
bool fl__pg_go_on(struct pg_shard *shard, struct pg_flight *flight);

/* The first argument of all statements of a write. */
static inline void fl__pg_begin_write(struct pg_shard *shard)
{
    fl__pg_begin(&shard->args);
    fl__pg_int(&shard->args, shard->base.shard);
}

/* The duration of a claim, limited to what the column can hold. */
static inline uint64_t fl__pg_claim(uint64_t claim_us)
{
    return claim_us < (uint64_t)1 << 61 ? claim_us : (uint64_t)1 << 61;
}

/* A claim never lasts longer than this, unless the clock of the database was set back. Servers may have different settings:
 * a server whose claims last up to nine times ours still renews, every third of that time, before this is over. */
static inline uint64_t fl__pg_longest(uint64_t claim_us)
{
    return fl__pg_claim(claim_us) * 3;
}

/* --- load.c ------------------------------------------------------------------------------------------------------- */

int fl__pg_start_load(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_cut(struct pg_flight *flight, const PGresult *result);
/* Asks for the next page, then hands the received page to the caller. */
void fl__pg_go_on_loading(struct pg_shard *shard, struct pg_flight *flight);

/* --- claim.c ------------------------------------------------------------------------------------------------------ */

/* Ends the transaction of a request of several exchanges. */
void fl__pg_end_stages(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_claim(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_claim(struct pg_flight *flight, unsigned what, const PGresult *result);
void fl__pg_send_claim(struct pg_shard *shard, struct pg_flight *flight);

/* --- reads.c ------------------------------------------------------------------------------------------------------ */

/* Returns the number of rows of this page: at most `limit`, and only rows before the first one with `too_long` set. */
int fl__pg_page_count(const PGresult *result, size_t limit, int too_long, bool *ret_more);
int fl__pg_start_find(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_found(struct pg_flight *flight, PGresult *result);
int fl__pg_start_list(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_list(struct pg_flight *flight, const PGresult *result);
int fl__pg_start_count(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_count(struct pg_flight *flight, const PGresult *result);
int fl__pg_start_dead_list(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_dead_list(struct pg_flight *flight, const PGresult *result);

/* --- writes.c ----------------------------------------------------------------------------------------------------- */

/* Commits a transaction after its last change. */
void fl__pg_commit(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_renew(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_release(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_write(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_record(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_forget(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_refile(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_refile(struct pg_flight *flight, unsigned what, const PGresult *result);
/* Adds the fronts, and the rows behind them that are not settled, as arguments. */
void fl__pg_progress(struct pg_args *args, const fl_progress *settled);
int fl__pg_start_finish(struct pg_shard *shard, struct pg_flight *flight);

/* --- errors.c ----------------------------------------------------------------------------------------------------- */

bool fl__pg_is_retry(const PGresult *result); /* the transaction was aborted and can be retried */
/* The database answers, but cannot reach the node that has the shard: it has rolled the transaction back. */
bool fl__pg_is_node_down(const PGresult *result);
bool fl__pg_is_broken(const PGresult *result); /* the outcome is unknown */
/* The SQLSTATE in a text that libpq has made with PQERRORS_VERBOSE, such as "FATAL:  28P01: password authentication
 * failed". Returns where it begins, five characters long, or NULL. */
const char *fl__pg_find_state(const char *text);
/* Advice to the user about an error, or "". `state` is its SQLSTATE; if it is "", the text may contain it (see
 * fl__pg_find_state()). */
const char *fl__pg_advice(const char *state, const char *text);
/* The code for an error of the database. */
int fl__pg_code(const PGresult *result);
const char *fl__pg_sqlstate(const PGresult *result); /* "": it has none */
/* Answers the request, or marks it for a retry. */
void fl__pg_take_error(struct pg_flight *flight, const PGresult *result);
void fl__pg_fail(struct pg_flight *flight, int code);

/* --- batch.c ------------------------------------------------------------------------------------------------------ */

struct pg_batch {
    const fl_store_change *changes;
    size_t count;
    size_t puts, removes, unmoves, moves, buries, unburies;
    bool plain;   /* no row has a name or was moved */
    bool replace; /* first removes rows with the same keys */
    struct pg_put {
        uint64_t window, seq;
        const fl_row *row;
    } * rows; /* to insert, in the order of the key; allocated */
};

/* Counts and sorts, and makes room for the arguments. Returns 0 or FL_NO_MEMORY. */
int fl__pg_batch_make(struct pg_shard *shard, const fl_store_change *changes, size_t count, bool replace,
                      struct pg_batch *ret);
void fl__pg_batch_send(struct pg_shard *shard, struct pg_flight *flight, const struct pg_batch *batch);
void fl__pg_batch_release(struct pg_batch *batch);

/* --- history.c ---------------------------------------------------------------------------------------------------- */

/* How many bytes the arguments of a change need. fl__pg_history_send() sends the statements and needs that room. */
size_t fl__pg_history_room(const fl_history_change *change);
void fl__pg_history_send(struct pg_shard *shard, struct pg_flight *flight, const fl_history_change *change);
void fl__pg_history_forget(struct pg_shard *shard, struct pg_flight *flight);
int fl__pg_start_history(struct pg_shard *shard, struct pg_flight *flight);
/* They return 0 or FL_NO_MEMORY. */
int fl__pg_take_history(struct pg_flight *flight, const PGresult *result);
int fl__pg_take_spans(struct pg_flight *flight, const PGresult *result);

/* --- meet.c ------------------------------------------------------------------------------------------------------- */

int fl__pg_start_meet(struct pg_shard *shard, struct pg_flight *flight);
/* Takes the answer of a statement. Returns 0, or an error if the answer is unusable. */
int fl__pg_take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result);

/* On Citus, asks each node for the owners of its shards. A node that does not answer affects only its own shards. */
bool fl__pg_go_on_meeting(struct pg_shard *shard, struct pg_flight *flight);
void fl__pg_take_node(struct pg_shard *shard, const PGresult *result);
bool fl__pg_is_of_node(unsigned what, const PGresult *result); /* an error of one node, not of the connection */
void fl__pg_known_release(struct pg_shard *shard);

#endif
