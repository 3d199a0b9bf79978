/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_H
#define FOLIOT_STORE_H

/* Where durable timers are kept: one interface, several databases.
 *
 *   sqlite:DIR     one file per shard in that folder: the embedded default
 *   postgres://…   PostgreSQL, and databases that speak its protocol
 *   memory:        rows end with the process: for tests and simulations, with faults on demand
 *
 * A store keeps rows and does not know what they mean. The engine (foliot/engine.h) decides what is written. There is one
 * engine per shard. A store makes its changes durable, in order, and only while the engine owns the shard.
 *
 * Where a row is filed. A row has a key: its due time and a sequence number. It is filed under a window, a span of due
 * time, and inside the window by its sequence number alone. The engine loads a whole window and sorts it in memory, so
 * the database never pays for exact order. When all its timers have fired, a window is deleted as a whole. Windows are
 * spans of 2^shift microseconds: 2^25 (33 s) when they are near, and 64 times as long at each step further away. A far
 * window that comes near is filed again into its 64 parts.
 *
 * Which rows are settled. Rows are not deleted one by one when their timers have fired. The engine records its progress: a
 * front, and a short list. Every row up to the front is settled unless it is in the list. FL_STORE_FINISH deletes settled
 * rows.
 *
 * Requests. Only opening blocks. For all else, the caller fills a request and submits it. Later, the store calls `done` on the
 * loop to which the shard is attached, never inside fl_store_submit(). Requests of one shard take effect in the order in
 * which they were submitted, and are answered in that order. A store may execute several in one transaction. A read sees
 * every write that was submitted before it and took effect. The memory that a request points to must not change until
 * `done` is called. The memory of an answer is valid until `done` returns.
 *
 * Two owners. A claim of a shard returns a version that is larger than all earlier ones. Every write carries the version of
 * its owner, and takes effect only if no later claim exists. The store checks this in the transaction of the write.
 * (FL_STORE_MEET writes nothing to a shard and needs no version.)
 *
 * Failures. `result` is one of these, and `message` is a sentence for people:
 *
 *   FL_SHARD_LOST        Nothing was written, and this owner cannot write any more. Either another owner has claimed the
 *                        shard. Or the database has gone back to an earlier state, for example because a replica that lagged
 *                        was promoted, and has forgotten writes that it had acknowledged; then reads fail, too
 *   FL_OUTCOME_UNKNOWN   The write may have taken effect or not, because the connection broke, the disk failed or the time
 *                        ran out. Requests that are submitted after this answer all see it, or all do not
 *   any other            Nothing was written. FL_STORE_UNAVAILABLE, FL_STORE_FULL, FL_STORE_READ_ONLY, FL_STORE_CORRUPT,
 *                        FL_NO_MEMORY, FL_INVALID_ARGUMENT and others
 *
 * fl_store_failure() returns which of the three it is.
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

/* A wall clock: microseconds since 1970-01-01 UTC. It may be set forward and back. Tests replace it, like fl_clock. */
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

/* The position of a row. Keys are ordered by time, then by sequence number. A shard never uses a number twice. 0 is no number.
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
    fl_key id;          /* its first key; differs from `key` if the row has been moved */
    uint64_t window;    /* given: where to file it; found: where it is filed */
    fl_bytes ns;        /* 1 to FL_STORE_NAME_MAX bytes */
    fl_bytes name;      /* unique in its namespace, up to FL_STORE_NAME_MAX bytes; size 0: none */
    fl_bytes body;      /* the engine's; at most FL_STORE_BODY_MAX bytes */
    uint64_t name_hash; /* given: fl_store_hash(ns, name), or 0 if the caller has not computed it; found: undefined */
} fl_row;

/* A dead letter: a row that was given up, with the reason. It is found by its id.seq. */
typedef struct fl_dead_row {
    fl_row row; /* its key and window do not matter */
    int64_t died_us;
    fl_bytes reason;
} fl_dead_row;

/* --- History ----------------------------------------------------------------------------------------------------- */

/* A row of history: an attempt of a timer and its result. Rows are appended to a span, and are deleted with it. They are written
 * with the record of progress, so a crash loses the rows since the last record. */
typedef struct fl_history_row {
    uint64_t seq;            /* never used twice in a shard, and larger than those of all rows before; below 2^56 */
    fl_key id;               /* of the timer */
    int64_t began_us;        /* when the attempt began */
    uint32_t result;         /* the caller's, below FL_HISTORY_RESULTS */
    fl_bytes ns;             /* 1 to FL_STORE_NAME_MAX bytes */
    fl_bytes name, schedule; /* up to FL_STORE_NAME_MAX bytes; size 0: none */
    fl_bytes body;           /* the caller's; at most FL_HISTORY_BODY_MAX bytes */
} fl_history_row;

enum { FL_HISTORY_RESULTS = 32, FL_HISTORY_BODY_MAX = 1 << 20 };

typedef struct fl_history_span {
    uint64_t span;             /* its number; larger ones are later */
    uint64_t rows, bytes;      /* that were appended, approximately */
    int64_t first_us, last_us; /* the earliest and the latest `began_us` of those rows */
} fl_history_span;

/* A change of the history, in the transaction of FL_STORE_RECORD or FL_STORE_FINISH. A store whose disk is nearly full may
 * leave rows out. */
typedef struct fl_history_change {
    const fl_history_row *rows; /* in the order of their numbers. A row that exists already is not appended again */
    size_t count;
    uint64_t span;       /* where they are appended: the last one, or a new one behind it; below 2^56 */
    uint64_t drop_below; /* spans with a lower number are deleted before anything else; 0: none */
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

/* The progress of a shard. A row is settled if its key is not after the front of its kind (front[seq & 1]) and its
 * sequence number is not in `keep`. */
typedef struct fl_progress {
    fl_key front[2];
    const uint64_t *keep; /* ascending */
    size_t keep_count;
    uint64_t seq_limit; /* all sequence numbers in use are lower */
    uint64_t pending;   /* number of rows that were not settled, for people who look into the store. See claim.counts */
} fl_progress;

bool fl_progress_settled(const fl_progress *progress, fl_key key);

/* --- Requests ---------------------------------------------------------------------------------------------------- */

enum fl_store_op {
    FL_STORE_CLAIM,     /* become the owner */
    FL_STORE_RENEW,     /* stay the owner */
    FL_STORE_RELEASE,   /* let others claim at once */
    FL_STORE_WRITE,     /* creates, replaces, moves, removes and buries rows: a batch */
    FL_STORE_FIND,      /* finds rows by name or by ID: a batch */
    FL_STORE_LIST,      /* a page of one window */
    FL_STORE_LOAD,      /* windows, earliest rows first */
    FL_STORE_REFILE,    /* divides a window into finer ones, one part per request */
    FL_STORE_FINISH,    /* deletes settled rows */
    FL_STORE_RECORD,    /* records progress */
    FL_STORE_DEAD_LIST, /* a page of dead letters */
    FL_STORE_BACKUP,    /* makes a consistent copy */
    FL_STORE_MEET,      /* renews a server's membership; returns all members and the owners of the shards */
    FL_STORE_HISTORY,   /* a page of the history of one span, newest first */
    FL_STORE_FORGET,    /* erases the rows of a timer or a namespace from one span of the history */
    FL_STORE_COUNT,     /* how many rows are in each window */
};

/* One change of a batch. Its parts take effect together. A part that is zero does nothing. No two changes of a batch have the
 * same row or the same name, so their order does not matter. */
typedef struct fl_store_change {
    fl_key remove;           /* removes this row, if it exists, from whatever window it is in */
    uint64_t remove_id;      /* the id.seq of that row if it was moved, else 0 */
    const fl_row *put;       /* files this row. If its id differs from its key, FL_STORE_FIND finds it by both */
    const fl_dead_row *bury; /* adds this dead letter, or replaces the one with the same id.seq */
    uint64_t unbury;         /* removes the dead letter with this id.seq, if it exists */
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
    const char *about;    /* as that server has given it; may be "" */
    uint64_t incarnation; /* a number that identifies the process */
    int64_t left_us;      /* until the membership expires; 0 or less: it has expired */
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
    uint64_t version; /* that the claim returned; ignored by reads, FL_STORE_CLAIM, FL_STORE_MEET */
    void (*done)(fl_store_request *request); /* from this call on, the caller may use the request again */
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
            const uint64_t *windows; /* every window with rows, and possibly some without */
            size_t window_count;
            const fl_store_count *counts; /* exact, one per namespace; namespaces without such rows may be missing */
            size_t count_count;
            const fl_history_span *spans; /* of the history, by number */
            size_t span_count;
        } claim;

        struct {
            uint64_t claim_us;
        } renew;

        /* All changes take effect, or none. */
        struct {
            const fl_store_change *changes;
            size_t count;
        } write;

        struct {
            fl_store_want *wants;
            size_t count;
        } find;

        /* Returns the rows of one window that match, by sequence number. It looks at `limit` rows at most, so a page may be
         * empty although more rows follow. A page ends when the bodies of its rows reach FL_STORE_PAGE_BYTES. */
        struct {
            uint64_t window;
            uint64_t after_seq;        /* 0: from the beginning */
            fl_bytes ns;               /* size 0: any */
            fl_bytes prefix;           /* of the name; size 0: any row, with or without a name */
            int64_t from_us, until_us; /* from_us <= at_us < until_us */
            size_t limit;
            /* The answer. */
            const fl_row *rows;
            size_t count;
            uint64_t next_seq; /* for the next page; 0: this is the last page */
        } list;

        /* Returns the `limit` earliest rows of some windows whose keys are `from` or later and before `until_us`. The windows
         * are given in the order of time and do not overlap. The store calls `rows` several times, window by window and
         * within a window by sequence number, and then `done`. */
        struct {
            const uint64_t *windows;
            size_t window_count;
            fl_key from;
            int64_t until_us;
            size_t limit;
            void (*rows)(fl_store_request *request, const fl_row *rows, size_t count); /* on the same loop as `done` */
            /* The answer. */
            bool more;   /* more than `limit` rows match */
            fl_key next; /* if `more`: the key of the earliest row that was not returned */
        } load;

        /* Files at most `limit` rows of a window under the windows of `shift` that make it up. */
        struct {
            uint64_t window;
            unsigned shift; /* FL_WINDOW_STEP below that of the window */
            size_t limit;
            /* The answer. */
            uint64_t parts; /* bit i: rows were filed in the i-th of them */
            size_t moved;
            bool more; /* not all were filed */
        } refile;

        /* In one transaction: removes from these windows all rows that are settled according to `settled`, changes the
         * history, and records `record`. */
        struct {
            const struct fl_store_span {
                uint64_t window;
                bool whole; /* the caller knows that all rows of the window are settled */
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

        /* Returns the rows of one span that match, the last one first. It looks at `limit` rows at most, so a page may be empty
         * although more rows follow. A page ends when the bodies of its rows reach FL_STORE_PAGE_BYTES. */
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
            uint64_t next_seq; /* for the next page; 0: this is the last page */
        } history;

        struct {
            uint64_t span;
            fl_bytes ns;     /* size 0: any */
            uint64_t id_seq; /* 0: any */
            /* The answer. */
            uint64_t erased; /* rows */
        } forget;

        /* Answered from counters, without reading rows. In windows from which FL_STORE_FINISH has removed rows, settled rows
         * may count. */
        struct {
            fl_bytes ns; /* size 0: every namespace whose first byte is not below `first_byte` */
            uint8_t first_byte;
            /* The answer. */
            const fl_window_count *windows; /* in any order; windows without rows are missing */
            size_t count;
        } count;

        struct {
            fl_bytes ns;        /* size 0: any */
            uint64_t after_seq; /* of id.seq; 0: from the beginning */
            uint64_t id_seq;    /* not 0: only this one */
            size_t limit;       /* a page also ends when bodies reach FL_STORE_PAGE_BYTES */
            /* The answer. */
            const fl_dead_row *rows; /* by id.seq */
            size_t count;
            uint64_t next_seq; /* for the next page; 0: this is the last page */
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
         * Any attachment may send it, with or without a claim; there is one list for all shards. After FL_OUTCOME_UNKNOWN, this
         * request may also take effect later. Repeating it does no harm. The result is FL_INVALID_ARGUMENT if only one process
         * can have the store open (SQLite). */
        struct {
            const char *address;  /* 1 to 255 bytes of UTF-8; NULL: only reads the list */
            const char *about;    /* up to 255 bytes of UTF-8; may be NULL */
            uint64_t incarnation; /* not 0; below 2^63 */
            uint64_t claim_us;
            bool join;
            const char
                *offer; /* with `join`: the secret, if the store has none yet; up to 255 bytes of UTF-8, or NULL */
            /* The answer. */
            const char *
                secret; /* the first offer. Servers of this store prove with it that they belong together; "": no offer yet */
            const fl_store_member *members; /* by address, in the order of its bytes */
            size_t member_count;
            const fl_store_holder *holders; /* one per shard, in the order of their numbers */
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
    uint32_t shards; /* number of shards of a new store, at most 65536; 0: 4, with SQLite at most one per processor. An
                           * existing store must have this number; 0: any */
    uint64_t
        timeout_us; /* PostgreSQL: limit for a request. A write then fails with FL_OUTCOME_UNKNOWN if it was sent; 0: 10 s */
    fl_wall_clock *clock; /* memory, SQLite: by which claims expire. NULL: the system's. Must outlive the store */
    bool accept_loss; /* SQLite: open a store even if a log is missing or damaged, or a shard is older than the others.
                           * Changes that cannot be read are lost for good */
} fl_store_config;

/* Opens a store, and creates it if it does not exist. Upgrades the schema of an earlier version. Blocks. `config` may be NULL.
 * On failure, `message` (may be NULL; `size` bytes) says what is wrong and what to do.
 * Returns 0; FL_INVALID_ARGUMENT if the URL is wrong or the store has another number of shards; FL_STORE_LOCKED if another
 * process has it open (the message says which); FL_STORE_NEWER if it needs a later version of Foliot; FL_STORE_UNAVAILABLE,
 * FL_STORE_FULL, FL_STORE_READ_ONLY, FL_STORE_CORRUPT, FL_NO_MEMORY, FL_SYSTEM. */
int fl_store_open(const char *url, const fl_store_config *config, fl_store **ret, char *message, size_t size);

/* Closes a store. All its shards must be detached. NULL is allowed. */
void fl_store_close(fl_store *store);

uint32_t fl_store_shards(const fl_store *store);

/* How far the machine's clock is ahead of the database's, in microseconds; negative: behind. Measured by the last claim, renewal
 * or meeting. The real difference may be larger, by the duration of that request at most. 0 for SQLite and memory. Any
 * thread. */
int64_t fl_store_clock_ahead_us(const fl_store *store);

/* Whether connections to the database are broken, so that requests wait. If so, `message` says why. Any thread. */
bool fl_store_is_away(fl_store *store, char *message, size_t size);

/* Whether several servers can use the store at the same time: then a claim is valid only while it is renewed. Any
 * thread. */
bool fl_store_is_shared(const fl_store *store);

/* The shard that a name belongs to. It never changes. */
uint32_t fl_store_shard_of(uint32_t shards, fl_bytes ns, fl_bytes name);

/* The hash of a name in its namespace. It never changes and is the same on every machine. The shard of the name is the hash
 * modulo the number of shards. Stores find names by it. To save computing it again, pass it on as `name_hash`. */
uint64_t fl_store_hash(fl_bytes ns, fl_bytes name);

/* Attaches a shard to a loop, on which its requests are answered. A shard may be attached several times, but only one claim is
 * valid at a time. Returns 0; FL_INVALID_ARGUMENT if there is no such shard; FL_NO_MEMORY; FL_STORE_…, FL_SYSTEM. */
int fl_store_attach(fl_store *store, uint32_t shard, fl_loop *loop, fl_shard **ret);

/* Detaches a shard. Requests that have not begun fail with FL_STORE_UNAVAILABLE. When every request has been answered, the shard
 * is freed and `done(arg)` is called on the loop, which must run until then. Do not call this inside a callback of the shard. */
void fl_store_detach(fl_shard *shard, fl_loop_fn done, void *arg);

/* Submits a request, on the thread of the shard's loop. Every error comes as the result of the request. */
void fl_store_submit(fl_shard *shard, fl_store_request *request);

/* True if certainly no row has this name. False if a row may have it: only a request can tell. Answers at once, from memory. Only
 * the owner of the shard may ask, on the thread of its loop, while it has no change of a row with that name in progress. Only
 * the name in `want` matters. */
bool fl_store_absent(fl_shard *shard, const fl_store_want *want);

/* --- Making a store ---------------------------------------------------------------------------------------------- */

/* To make a store of your own, begin its struct with a struct fl_store, and fill in these functions. The functions above call
 * them. */
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

/* The memory store asks for a fault before it executes a request. */
typedef struct fl_memory_fault {
    uint64_t delay_ns; /* delay of the answer, by the loop's clock; answers keep their order */
    int result;        /* not 0: the result of the request */
    bool applied;      /* with `result`: the request takes effect nevertheless */
} fl_memory_fault;

typedef fl_memory_fault (*fl_memory_fault_fn)(void *arg, uint32_t shard, const fl_store_request *request);

/* Sets the function that decides about faults of a store opened as "memory:"; NULL: no faults. Requests of one attachment are
 * executed one at a time: the next begins when the one before has been answered. `fn` is called on the loop of the request.
 * Set it while no other thread uses the store. Returns 0, or FL_INVALID_ARGUMENT for another kind of store. */
int fl_memory_store_faults(fl_store *store, fl_memory_fault_fn fn, void *arg);

/* A database may go back to an earlier state: a replica that lags is promoted, or a backup is restored. These functions do the
 * same with a store opened as "memory:". fl_memory_store_go_back() restores its state at the last mark. After that, every
 * request of an owner fails with FL_SHARD_LOST until it claims again. Call both while no other thread uses the store, and not
 * inside its callbacks. They return 0; FL_INVALID_ARGUMENT for another kind of store, or without a mark; FL_NO_MEMORY, and then
 * nothing has changed. */
int fl_memory_store_mark(fl_store *store);
int fl_memory_store_go_back(fl_store *store);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
