/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_H
#define FOLIOT_STORE_H

/* Where durable timers are kept: one interface, several databases.
 *
 *   sqlite:DIR     a file a shard in that folder: the embedded default
 *   postgres://…   PostgreSQL, and what speaks its protocol
 *   memory:        nothing survives the process: for tests and simulations, with faults on demand
 *
 * A store keeps rows and knows nothing about what they mean. The engine (foliot/engine.h) decides what is written, one
 * engine a shard; a store makes it durable, in order, and only for the engine that owns the shard.
 *
 * Where a row is filed. A row has a key: its due time and a sequence number. It is filed under a window, a span of due time,
 * and inside the window by its sequence number alone. The engine loads a whole window and sorts it in memory, so the database
 * never pays for exact order. A finished window is deleted whole. Windows are spans of 2^shift microseconds: 2^25 (33 s) when
 * they are near, and 64 times as long at each step further away. A far window that comes near is filed again into its 64
 * parts.
 *
 * What is settled. Rows are not deleted one by one when their timers have fired. The engine records its progress: a front
 * below which everything is settled, except a short list of what is not. That is a range deletion on paper;
 * FL_STORE_FINISH carries it out.
 *
 * Requests. Everything but opening is asynchronous: the caller fills a request and submits it; `done` is called on the
 * loop to which the shard is attached, later, never inside fl_store_submit(). Requests of one shard take effect in the
 * order in which they were submitted and are answered in that order; stores are free to carry several out in one
 * transaction. A read sees everything that was submitted before it and took effect. What a request points to must stay
 * as it is until `done` is called; what the store gives back is valid until `done` returns.
 *
 * Two owners. Claiming a shard gives a version, larger than all before; every write carries it and takes effect only if
 * it is still the newest, which the store checks and holds in the transaction of the write itself. (FL_STORE_MEET writes
 * nothing of a shard and needs no version.)
 *
 * How a request fails (`result`; `message` says it in words):
 *
 *   FL_SHARD_LOST        another owner has claimed the shard, or the database has gone back to an earlier state and has
 *                        forgotten what it had acknowledged to this owner (a replica that lagged was promoted): nothing
 *                        was written, and nothing ever will be. In the second case reads are answered so, too
 *   FL_OUTCOME_UNKNOWN   the connection, the disk or the time ran out: it may have taken effect or not; but what is
 *                        submitted after the answer sees either all of it or nothing, for good
 *   any other            refused: nothing was written. FL_STORE_UNAVAILABLE, FL_STORE_FULL, FL_STORE_READ_ONLY,
 *                        FL_STORE_CORRUPT, FL_NO_MEMORY, FL_INVALID_ARGUMENT…
 *
 * fl_store_failure() tells the three apart.
 *
 * Threads: a shard belongs to the thread of its loop. fl_store_open(), fl_store_attach() and fl_store_close() may be
 * called by any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/error.h>
#include <foliot/loop.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* --- Time -------------------------------------------------------------------------------------------------------- */

/* What time it is for people: microseconds since 1970-01-01 UTC, and it may be set. A seam, as fl_clock is. */
typedef struct fl_wall_clock fl_wall_clock;
struct fl_wall_clock {
    int64_t (*now_us)(fl_wall_clock *clock);
};

/* The machine's CLOCK_REALTIME. Never NULL; not to be freed. */
fl_wall_clock *fl_wall_clock_system(void);

/* --- Rows -------------------------------------------------------------------------------------------------------- */

typedef struct fl_bytes {
    const void *data;
    size_t size;
} fl_bytes;

/* The position of a row: ordered by time, then by sequence number. A shard never uses a number twice; 0 means "no number".
 * Numbers are even for first attempts and odd for retries, because the two have separate fronts. */
typedef struct fl_key {
    int64_t at_us; /* 0 <= at_us < FL_STORE_TIME_END */
    uint64_t seq;  /* below 2^56 */
} fl_key;

#define FL_STORE_TIME_END ((int64_t)1 << 55) /* the year 3111 */
#define FL_STORE_NAME_MAX 255
#define FL_STORE_BODY_MAX (16u << 20)
#define FL_STORE_PAGE_BYTES \
    (1u << 20) /* a page of a list ends with the row whose body reaches this many bytes in all */

typedef struct fl_row {
    fl_key key;
    fl_key id;       /* its first key; another one than `key` if the row has been moved */
    uint64_t window; /* given: where to file it; found: where it is filed */
    fl_bytes ns;     /* 1 to FL_STORE_NAME_MAX bytes */
    fl_bytes name;   /* unique in its namespace, up to FL_STORE_NAME_MAX bytes; size 0: none */
    fl_bytes body;   /* the engine's; at most FL_STORE_BODY_MAX bytes */
    uint64_t
        name_hash; /* given: fl_store_hash(ns, name), or 0 if the caller has not computed it; found: of no meaning */
} fl_row;

/* A row that has been given up, with the reason. Found again by its id.seq. */
typedef struct fl_dead_row {
    fl_row row; /* its key and window do not matter */
    int64_t died_us;
    fl_bytes reason;
} fl_dead_row;

/* --- History ----------------------------------------------------------------------------------------------------- */

/* A row of history: what has happened to a timer. Rows are appended to a span and go with it, whole; nothing refers to them.
 * They are written with the record of progress, and may be lost with it. */
typedef struct fl_history_row {
    uint64_t seq;            /* never used twice in a shard, and larger than those of all rows before; below 2^56 */
    fl_key id;               /* of the timer */
    int64_t began_us;        /* when what it tells of began */
    uint32_t result;         /* the caller's, below FL_HISTORY_RESULTS */
    fl_bytes ns;             /* 1 to FL_STORE_NAME_MAX bytes */
    fl_bytes name, schedule; /* up to FL_STORE_NAME_MAX bytes; size 0: none */
    fl_bytes body;           /* the caller's; at most FL_HISTORY_BODY_MAX bytes */
} fl_history_row;

enum { FL_HISTORY_RESULTS = 32, FL_HISTORY_BODY_MAX = 1 << 20 };

typedef struct fl_history_span {
    uint64_t span;             /* its number; larger ones are later */
    uint64_t rows, bytes;      /* that were appended, about */
    int64_t first_us, last_us; /* the earliest and the latest `began_us` of those rows */
} fl_history_span;

/* A change of the history, in the transaction of FL_STORE_RECORD or FL_STORE_FINISH. A store whose disk is nearly full may
 * leave rows out. */
typedef struct fl_history_change {
    const fl_history_row *rows; /* in the order of their numbers. One that is there already is not appended again */
    size_t count;
    uint64_t span;       /* where they are appended: the last one, or a new one behind it; below 2^56 */
    uint64_t drop_below; /* spans with a lower number go, first of all; 0: none */
} fl_history_change;

/* --- Windows ----------------------------------------------------------------------------------------------------- */

/* A window is written as one number: the shift in the upper bits, (at_us >> shift) in the lower 56. */
enum { FL_WINDOW_STEP = 6, FL_WINDOW_SHIFT_NEAR = 25, FL_WINDOW_SHIFT_MIN = 13, FL_WINDOW_SHIFT_MAX = 55 };

static inline uint64_t fl_window_of(int64_t at_us, unsigned shift)
{
    return (uint64_t)shift << 56 | (uint64_t)at_us >> shift;
}

static inline unsigned fl_window_shift(uint64_t window)
{
    return (unsigned)(window >> 56);
}

static inline int64_t fl_window_begin(uint64_t window)
{
    return (int64_t)((window & (((uint64_t)1 << 56) - 1)) << fl_window_shift(window));
}

static inline int64_t fl_window_end(uint64_t window)
{
    return fl_window_begin(window) + ((int64_t)1 << fl_window_shift(window));
}

/* --- Progress ---------------------------------------------------------------------------------------------------- */

/* How far a shard has got. A row is settled if its key is not after the front of its kind (front[seq & 1]) and its
 * sequence number is not in `keep`. */
typedef struct fl_progress {
    fl_key front[2];
    const uint64_t *keep; /* ascending */
    size_t keep_count;
    uint64_t seq_limit; /* all sequence numbers in use are below */
    uint64_t pending;   /* how many rows were not settled, as the engine counted them: for people. See claim.counts */
} fl_progress;

bool fl_progress_settled(const fl_progress *progress, fl_key key);

/* --- Requests ---------------------------------------------------------------------------------------------------- */

enum fl_store_op {
    FL_STORE_CLAIM,     /* become the owner */
    FL_STORE_RENEW,     /* stay the owner */
    FL_STORE_RELEASE,   /* let others claim at once */
    FL_STORE_WRITE,     /* create, replace, move, cancel, give up: a batch */
    FL_STORE_FIND,      /* by name or by ID: a batch */
    FL_STORE_LIST,      /* a page of one window */
    FL_STORE_LOAD,      /* windows, earliest rows first */
    FL_STORE_REFILE,    /* a window into finer ones, a part at a time */
    FL_STORE_FINISH,    /* deletes settled rows */
    FL_STORE_RECORD,    /* records progress */
    FL_STORE_DEAD_LIST, /* a page of dead letters */
    FL_STORE_BACKUP,    /* a consistent copy */
    FL_STORE_MEET,      /* renews a server's membership; returns all members and the owners of the shards */
    FL_STORE_HISTORY,   /* a page of the history of one span, newest first */
    FL_STORE_FORGET,    /* erases the rows of a timer or a namespace from one span of the history */
    FL_STORE_COUNT,     /* how many rows are in each window */
};

/* One change of a batch; its parts take effect together. Parts that are zero are not done. Changes of one batch are about
 * different rows and different names, so that their order does not matter. */
typedef struct fl_store_change {
    fl_key remove;           /* takes this row away, if it is there, whatever window it is in */
    uint64_t remove_id;      /* the id.seq of that row if it was moved, else 0 */
    const fl_row *put;       /* files this row. If its id is not its key, it is found by both from now on */
    const fl_dead_row *bury; /* adds it to those given up, in place of the one with its id.seq if that is there */
    uint64_t unbury;         /* takes the one with this id.seq away from them, if it is there */
} fl_store_change;

/* What to find: by name if `name` is not empty, else by ID. */
typedef struct fl_store_want {
    fl_bytes ns, name;
    uint64_t name_hash; /* fl_store_hash(ns, name), or 0 if the caller has not computed it */
    fl_key id;
    /* The answer. */
    bool found;
    fl_row row;
} fl_store_want;

/* A server that shares the store with others. */
typedef struct fl_store_member {
    const char *address;
    const char *about;    /* what it said of itself; "": nothing */
    uint64_t incarnation; /* which process it is */
    int64_t left_us;      /* until its time runs out; not above 0: it has */
} fl_store_member;

/* The owner of a shard. */
typedef struct fl_store_holder {
    const char *owner; /* "": no owner */
    uint64_t version;
    int64_t left_us; /* until the claim expires; 0 or less: it has expired, or there is no claim */
} fl_store_holder;

/* How many rows are in a window. */
typedef struct fl_window_count {
    uint64_t window;
    uint64_t rows;
} fl_window_count;

/* How many rows of a namespace are not settled. */
typedef struct fl_store_count {
    fl_bytes ns;
    uint64_t rows;
} fl_store_count;

typedef struct fl_store_request fl_store_request;

struct fl_store_request {
    enum fl_store_op op;
    uint64_t version; /* what the claim gave; of no meaning for reads, FL_STORE_CLAIM, FL_STORE_MEET */
    void (*done)(fl_store_request *request); /* the request is the caller's again when it is called */
    void *arg;                               /* the caller's */

    int result;
    char message[232]; /* when result < 0: a sentence for people */

    union {
        /* Fails with FL_SHARD_HELD if the claim of another owner has not expired, unless `force`; `message` names the owner.
         * The store's clock decides. An owner may claim its own shard again; then the version rises. */
        struct {
            const char *owner; /* 1 to 255 bytes: an address, for people and for other servers */
            uint64_t claim_us;
            bool force;
            /* The answer. */
            uint64_t version;
            fl_progress progress;    /* zero for a new shard, with seq_limit 2 */
            const uint64_t *windows; /* all in which there are rows; perhaps some in which there are none */
            size_t window_count;
            const fl_store_count *counts; /* by namespace, each once, exact; those with no such row may be left out */
            size_t count_count;
            const fl_history_span *spans; /* of the history, by number */
            size_t span_count;
        } claim;

        struct {
            uint64_t claim_us;
        } renew;

        /* All or nothing. */
        struct {
            const fl_store_change *changes;
            size_t count;
        } write;

        struct {
            fl_store_want *wants;
            size_t count;
        } find;

        /* Rows of one window that fit, by sequence number. Looks at no more than `limit` rows, so that it may give none
         * and yet not be at the end. Gives no more rows once their bodies have FL_STORE_PAGE_BYTES. */
        struct {
            uint64_t window;
            uint64_t after_seq;        /* 0: from the beginning */
            fl_bytes ns;               /* size 0: any */
            fl_bytes prefix;           /* of the name; size 0: any, also none */
            int64_t from_us, until_us; /* from_us <= at_us < until_us */
            size_t limit;
            /* The answer. */
            const fl_row *rows;
            size_t count;
            uint64_t next_seq; /* where to go on; 0: this was all */
        } list;

        /* Rows of some windows, given in order of time and not overlapping, with a key of `from` or later and before
         * `until_us`: the `limit` earliest of them. They come through `rows`, some at a time, window by window and within
         * a window by sequence number; then `done`. */
        struct {
            const uint64_t *windows;
            size_t window_count;
            fl_key from;
            int64_t until_us;
            size_t limit;
            void (*rows)(fl_store_request *request, const fl_row *rows, size_t count); /* as `done`, before it */
            /* The answer. */
            bool more;   /* there are more than `limit` */
            fl_key next; /* then: the key of the earliest that was not given */
        } load;

        /* Files at most `limit` rows of a window under the windows of `shift` that make it up. */
        struct {
            uint64_t window;
            unsigned shift; /* FL_WINDOW_STEP below that of the window */
            size_t limit;
            /* The answer. */
            uint64_t parts; /* bit i: there is something in the i-th of them now because of this */
            size_t moved;
            bool more; /* not all were filed */
        } refile;

        /* In one transaction: takes away from these windows all rows that `settled` says are settled, changes the history, and records
         * `record`. */
        struct {
            const struct fl_store_span {
                uint64_t window;
                bool whole; /* no row is to be left in it: the caller knows */
            } * spans;
            size_t span_count;
            fl_progress settled;
            fl_progress record;
            fl_history_change history;
            /* The answer. */
            uint64_t deleted; /* rows, if the store can say */
        } finish;

        struct {
            fl_progress progress;
            fl_history_change history;
        } record;

        /* Rows of one span that fit, the last one first. Looks at no more than `limit` rows, so that it may give none and yet
         * not be at the end. Gives no more rows once their bodies have FL_STORE_PAGE_BYTES. */
        struct {
            uint64_t span;
            uint64_t before_seq;         /* rows with lower numbers; 0: from the last one on */
            fl_bytes ns, name, schedule; /* size 0: any */
            uint64_t id_seq;             /* of the timer's ID; 0: any */
            uint32_t results;            /* bit i: rows whose result is i; 0: any */
            int64_t from_us, until_us;   /* from_us <= began_us < until_us */
            size_t limit;
            /* The answer. */
            const fl_history_row *rows;
            size_t count;
            uint64_t next_seq; /* where to go on; 0: this was all */
        } history;

        struct {
            uint64_t span;
            fl_bytes ns;     /* size 0: any */
            uint64_t id_seq; /* 0: any */
            /* The answer. */
            uint64_t erased; /* rows */
        } forget;

        /* From counters that change with the rows: no row is looked at. In windows in which something was finished, rows that
         * are settled may count. */
        struct {
            fl_bytes ns; /* size 0: every namespace whose first byte is not below `first_byte` */
            uint8_t first_byte;
            /* The answer. */
            const fl_window_count *windows; /* each once, in any order; those without rows are left out */
            size_t count;
        } count;

        struct {
            fl_bytes ns;        /* size 0: any */
            uint64_t after_seq; /* of id.seq; 0: from the beginning */
            uint64_t id_seq;    /* not 0: only this one */
            size_t limit;       /* fewer come once their bodies have FL_STORE_PAGE_BYTES */
            /* The answer. */
            const fl_dead_row *rows; /* by id.seq */
            size_t count;
            uint64_t next_seq; /* 0: this was all */
        } dead_list;

        /* Copies the shard as it is now into a file that must not exist yet. FL_INVALID_ARGUMENT where the database has
         * tools of its own for that. */
        struct {
            const char *path;
        } backup;

        /* Servers of one store find each other here. The request makes the server `address` a member for the next `claim_us`
         * (0: removes it) and returns all members, this server included, and the owners of the shards. With `join`, the server
         * replaces an earlier process with the same address. Without `join`, the membership is renewed only if the list still
         * has this incarnation; a server that is not in the answer has been replaced. A server that joins also removes members
         * that expired more than an hour ago. The store's clock decides.
         *
         * Any attachment may send it, with or without a claim; there is one list for all shards. FL_OUTCOME_UNKNOWN is weaker
         * here: the request may also take effect later. Repeating it does no harm.
         * FL_INVALID_ARGUMENT where only one process has the store open (SQLite). */
        struct {
            const char *address;  /* 1 to 255 bytes of UTF-8; NULL: only looks */
            const char *about;    /* up to 255 bytes of UTF-8; may be NULL */
            uint64_t incarnation; /* not 0; below 2^63 */
            uint64_t claim_us;
            bool join;
            const char
                *offer; /* with `join`: the secret, if the store has none yet; up to 255 bytes of UTF-8, or NULL */
            /* The answer. */
            const char
                *secret; /* what was offered first, by which servers of this store know each other; "": none was */
            const fl_store_member *members; /* by address, in the order of its bytes */
            size_t member_count;
            const fl_store_holder *holders; /* of every shard, by its number: as many as the store has shards */
        } meet;
    };

    struct fl_store_request *next; /* the store's */
    uint64_t deadline_ns;          /* the store's */
    void *store_data;              /* the store's */
};

enum fl_store_failure { FL_FAILURE_NONE, FL_FAILURE_REFUSED, FL_FAILURE_LOST, FL_FAILURE_UNKNOWN };

/* Which kind of failure a result is. */
enum fl_store_failure fl_store_failure(int result);

/* The version of the libfoliot-durable that the program runs with, such as "0.1.0". It must be that of libfoliot, which
 * fl_version() returns (foliot/version.h). Never NULL, any thread. */
const char *fl_durable_version(void);

/* --- Stores ------------------------------------------------------------------------------------------------------ */

typedef struct fl_store fl_store;
typedef struct fl_shard fl_shard;

/* The zero value of every member is its default. */
typedef struct fl_store_config {
    uint32_t shards;      /* how many a new store is made with, at most 65536; 0: 4, in a folder no more than there are
                           * processors. Of one that is there: how many it must have; 0: as many as it has */
    uint64_t timeout_us;  /* after which a request is answered FL_OUTCOME_UNKNOWN; 0: 10 s. PostgreSQL only */
    fl_wall_clock *clock; /* memory, SQLite: by which claims run out. NULL: the system's. Must outlive the store */
    bool accept_loss; /* SQLite: open a store even if a log is missing or damaged, or a shard is older than the others.
                           * What cannot be read is given up for good */
} fl_store_config;

/* Opens a store, and makes it if it is not there; a schema of an earlier version is brought up to date. Blocks. `config`
 * may be NULL. On failure, `message` (may be NULL; `size` bytes of it) says what is wrong and what to do.
 * Returns 0; FL_INVALID_ARGUMENT for a URL, or for another number of shards than there are; FL_STORE_LOCKED if another
 * process has it open (and the message says which); FL_STORE_NEWER if a later version of Foliot has changed it so that
 * this one cannot work with it; FL_STORE_UNAVAILABLE, FL_STORE_FULL, FL_STORE_READ_ONLY, FL_STORE_CORRUPT, FL_NO_MEMORY,
 * FL_SYSTEM. */
int fl_store_open(const char *url, const fl_store_config *config, fl_store **ret, char *message, size_t size);

/* Closes a store; all its shards must be detached. NULL is allowed. */
void fl_store_close(fl_store *store);

uint32_t fl_store_shards(const fl_store *store);

/* How far the machine's clock is ahead of the store's, in microseconds, as the last claim, renewal or meeting has shown;
 * negative: behind. Never more than the real difference: the time that the request took counts in favour of the clocks.
 * 0 for a store on the machine itself. Any thread. */
int64_t fl_store_clock_ahead_us(const fl_store *store);

/* Whether connections to the database are broken, so that requests wait. If so, `message` says why. Any thread. */
bool fl_store_is_away(fl_store *store, char *message, size_t size);

/* Whether several servers can use the store at the same time: then a claim is good only as long as it is renewed. Any
 * thread. */
bool fl_store_is_shared(const fl_store *store);

/* Which shard a name belongs to: the same for ever. */
uint32_t fl_store_shard_of(uint32_t shards, fl_bytes ns, fl_bytes name);

/* The hash of a name in its namespace, the same for ever and on every machine. The shard of the name is this modulo the number
 * of shards, and stores find names by it. The layer that computes it passes it on (`name_hash`), so that it is computed once. */
uint64_t fl_store_hash(fl_bytes ns, fl_bytes name);

/* Gets at a shard from a loop: all its requests are answered there. One shard may be attached several times; only one
 * claim is good at a time. Returns 0; FL_INVALID_ARGUMENT if there is no such shard; FL_NO_MEMORY; FL_STORE_…, FL_SYSTEM. */
int fl_store_attach(fl_store *store, uint32_t shard, fl_loop *loop, fl_shard **ret);

/* Calls `done(arg)` on the loop when every request has been answered and the shard is gone; those that have not begun are
 * answered with FL_STORE_UNAVAILABLE. Not inside a store's callback of the same shard. The loop must run until then. */
void fl_store_detach(fl_shard *shard, fl_loop_fn done, void *arg);

/* Submits a request. The thread of the shard's loop. Never fails: what cannot be done is answered. */
void fl_store_submit(fl_shard *shard, fl_store_request *request);

/* Whether there is certainly no row of that name, said at once and from memory: false also if only a request would tell. For
 * the owner of the shard, as long as it has no change to a row of that name under way. Of `want`, only the name counts. The
 * thread of the shard's loop. */
bool fl_store_absent(fl_shard *shard, const fl_store_want *want);

/* --- Making a store ---------------------------------------------------------------------------------------------- */

/* A store of your own begins with a struct fl_store and fills in these; the functions above lead here. */
struct fl_store_ops {
    void (*close)(fl_store *store);
    int (*attach)(fl_store *store, uint32_t shard, fl_loop *loop, fl_shard **ret);
    void (*detach)(fl_shard *shard, fl_loop_fn done, void *arg);
    void (*submit)(fl_shard *shard, fl_store_request *request);
    bool (*absent)(fl_shard *shard, const fl_store_want *want);   /* NULL: it never knows */
    int64_t (*clock_ahead_us)(const fl_store *store);             /* NULL: it has the machine's clock */
    bool (*is_away)(fl_store *store, char *message, size_t size); /* NULL: it never is */
    bool shared;                                                  /* several servers can use it at the same time */
};

struct fl_store {
    const struct fl_store_ops *ops;
    uint32_t shards;
};

struct fl_shard {
    fl_store *store;
    fl_loop *loop;
    uint32_t shard;
};

/* --- Faults ------------------------------------------------------------------------------------------------------ */

/* The memory store asks before it carries a request out. */
typedef struct fl_memory_fault {
    uint64_t delay_ns; /* answered so much later, by the loop's clock; order is kept */
    int result;        /* not 0: answered with this. FL_OUTCOME_UNKNOWN… */
    bool applied;      /* …although it took effect */
} fl_memory_fault;

typedef fl_memory_fault (*fl_memory_fault_fn)(void *arg, uint32_t shard, const fl_store_request *request);

/* For a store opened as "memory:"; NULL ends it. Requests of one attachment are carried out one at a time: the next begins
 * when the one before has been answered. `fn` is called on the loop of the request, so set it while no other thread uses
 * the store. Returns 0, or FL_INVALID_ARGUMENT for another kind of store. */
int fl_memory_store_faults(fl_store *store, fl_memory_fault_fn fn, void *arg);

/* A database may go back: a replica that lags is promoted, a backup is restored. A store opened as "memory:" can do so, too:
 * to what it had at the last mark. Owners that have claimed since, or had before, are answered FL_SHARD_LOST whatever they
 * ask for, until they claim again. While no other thread uses the store, and not inside its callbacks. Return 0;
 * FL_INVALID_ARGUMENT for another kind of store, or without a mark; FL_NO_MEMORY: then nothing has changed. */
int fl_memory_store_mark(fl_store *store);
int fl_memory_store_go_back(fl_store *store);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
