/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_STATE_H
#define FOLIOT_ENGINE_STATE_H

/* The data structures of an engine: timers in memory, flights, requests to the store, and the engine itself. See
 * internal.h. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

#include <foliot/engine.h>
#include <foliot/nodes.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/histogram.h"
#include "base/image.h"
#include "base/queue.h"
#include "store/store.h"

#define SEQ_MAX (((uint64_t)1 << 56) - 1)
#define SEQ_RESERVE ((uint64_t)1 << 24) /* sequence numbers reserved at once; a crash wastes at most so many */
#define NS_PER_US 1000ull
#define SECOND_US 1000000ull

enum {
    RETRIED = 1,             /* the class of repeated attempts, and the lowest bit of their numbers */
    WRITES_UNDER_WAY = 4,    /* concurrent requests of one kind */
    WRITE_MOST = 4096,       /* changes in one request */
    WRITE_BYTES = 2 << 20,   /* bytes of bodies in one request, about: stores hold them several times over */
    REASON_MOST = 1024,      /* bytes */
    TARGET_MOST = 4096,      /* bytes */
    HEADERS_MOST = 16 << 10, /* bytes */
    LOCAL_MOST = 64,         /* bytes */
    SPAN_SHIFT = 19,         /* half a second */
};

/* --- Timers in memory --------------------------------------------------------------------------------------------- */

enum item_flags {
    ITEM_MOVED = 1,  /* its bytes begin with its ID */
    ITEM_HELD = 2,   /* an operation on it is in progress: it must not fire meanwhile */
    ITEM_UNSURE = 4, /* it is not known whether the store has it */
};

/* 32 bytes: there may be millions. */
struct item {
    fl_node node; /* the deadline is the time of the key, in microseconds, even before it is in a wheel */
    uint64_t seq : 56;
    uint64_t name_size : 8;
    uint32_t place : 29;   /* in its span */
    uint32_t flags : 3;    /* enum item_flags */
    uint32_t size : 24;    /* of bytes */
    uint32_t space : 8;    /* SPACE_FAR: its bytes begin with the number */
    unsigned char bytes[]; /* number of the namespace if SPACE_FAR, ID if moved, name, body */
};

enum {
    SPACE_FAR = 255,
    BODY_MOST = (1 << 24) - 512, /* largest body in bytes that fits an item; the largest that is filed is half of it */
};
_Static_assert(offsetof(struct item, bytes) == 32, "an item is packed");
_Static_assert(SEQ_MAX <= UINT64_MAX >> 8, "a key fits");

static inline int64_t item_at_us(const struct item *item)
{
    return (int64_t)fl_node_deadline_ns(&item->node);
}

static inline fl_key item_key(const struct item *item)
{
    return (fl_key){item_at_us(item), item->seq};
}

struct span {
    int64_t index; /* at_us >> SPAN_SHIFT */
    struct item **items;
    uint32_t count, capacity; /* places */
    uint32_t live;            /* places that are not empty */
    uint32_t armed;           /* items before this place are in a wheel */
    bool sorted;              /* by sequence number */
};

/* A namespace. Its timers refer to it by number. */
struct space {
    char *name;
    uint64_t hash;
    uint64_t skip_older_us; /* UINT64_MAX: as configured */
    uint64_t keep_us;       /* of history; UINT64_MAX: as configured */
    int64_t pending;        /* timers in it that are not settled */
    uint8_t size;
};

struct spaces {
    struct space *list;
    uint32_t count, capacity;
    uint32_t *table; /* number + 1 */
    uint32_t table_size;
};

/* --- Under way ---------------------------------------------------------------------------------------------------- */

enum flight_state {
    FLIGHT_FREE,
    FLIGHT_LATE,    /* due, and waits to be dispatched: its key is behind the front */
    FLIGHT_HELD,    /* due, and an operation on it is in progress */
    FLIGHT_WAITING, /* given to the dispatcher; its attempt has not begun */
    FLIGHT_DISPATCHED,
    FLIGHT_SETTLING, /* its outcome is being written */
    FLIGHT_ORPHAN,   /* dispatched under an earlier claim: kept until it is settled */
};

struct flight {
    struct item *item;
    uint64_t serial; /* of its token */
    uint32_t next;   /* in the list of late or free flights */
    uint8_t state;
    bool superseded;   /* its row has been replaced meanwhile */
    bool done;         /* it is settled, and its row is being removed */
    bool counted;      /* it counts as an attempt even if it is never settled */
    bool moving;       /* a change moves its row to another window; its attempt has not begun */
    bool called;       /* it was parked, and has not been dispatched since */
    struct lane *lane; /* in which it waits or has waited; NULL: none */
    void *handle;      /* the dispatcher's, while it waits */
};

/* An entry of the table of flights. Index 0: it is empty. */
struct flight_entry {
    uint32_t index;
    uint32_t mark; /* a hash of the sequence number, compared before the flight itself is read */
};

struct flights {
    struct flight *list; /* index 0 is unused */
    uint32_t used, capacity;
    uint32_t free_first, free_last; /* the flight that has been free for longest is reused first */
    struct flight_entry *table;     /* by sequence number; without orphans */
    uint32_t table_size, count;
    struct {
        uint32_t first, last, count;
    } late[2];
    uint32_t dispatched[2]; /* dispatched or settling, without flights in lanes */
};

/* --- Lanes -------------------------------------------------------------------------------------------------------- */

/* A lane exists while it has flights or rows, or is closed. */
struct lane {
    uint32_t number;
    uint32_t held, waiting; /* flights that wait or have waited here; flights that still wait */
    uint64_t bytes;         /* of the `held` flights */
    bool closed;
    bool filed;        /* its window is in the store */
    bool empty;        /* its window has no rows and is to be dropped */
    bool unread;       /* its window may have rows that are not in memory: new timers go behind them */
    bool news;         /* this pass through the window has found such a row */
    uint64_t read_seq; /* how far this pass has got */
    struct hash_link by_number;
    TAILQ_ENTRY(lane) next;
};

struct lanes {
    struct hash_table by_number;
    TAILQ_HEAD(lane_list, lane) all; /* in the order in which they were last read */
    uint32_t held, waiting;          /* sums over all lanes */
    uint64_t bytes;
    uint32_t unread; /* number of such lanes */
    uint32_t called; /* flights that were parked and have not been dispatched since */
    fl_store_request request;
    struct lane *reading; /* NULL: none */
};

/* --- Locks -------------------------------------------------------------------------------------------------------- */

struct lock {
    uint64_t key;
    bool held;
    struct hash_link link;                /* only of the holder */
    STAILQ_HEAD(lock_line, lock) waiting; /* only of the holder: the locks that wait for it, in order */
    STAILQ_ENTRY(lock) next;              /* only of a waiting lock */
    void (*granted)(fl_engine *e, struct lock *lock);
};

/* --- Operations --------------------------------------------------------------------------------------------------- */

/* Parking and unparking change only where a timer is filed. */
enum work_kind { WORK_CLIENT, WORK_SETTLE, WORK_REMOVE, WORK_PARK, WORK_UNPARK };

/* Timers without names that are created in the transaction of a work: see group.c. */
struct atomic_group {
    fl_batch *batch; /* the first operation belongs to the work itself; NULL: the batch is answered */
    size_t count;
    struct follower {
        fl_key key;
        uint32_t space;
        struct lock lock; /* held while the work is in doubt */
    } followers[];
};

/* An operation, from its beginning until its outcome is known. */
struct work {
    struct lock name_lock, row_lock;
    struct lock new_lock;  /* of the row that it files, while it is in doubt */
    struct lock dead_lock; /* of the dead letter that it is about */
    enum work_kind kind;
    fl_batch *batch;
    fl_op *op;          /* NULL: answered, but still being written */
    uint64_t name_hash; /* of the name in `op`, if it is found by name; else 0 */
    uint32_t flight;
    uint32_t lane;            /* WORK_PARK: the number of the lane */
    fl_settlement settlement; /* WORK_SETTLE; its reason is in `reason` */
    fl_key old_key, new_key;  /* of the row it removes, and of the row it files; seq 0: none */
    fl_key id;                /* asked for when the work is in doubt */
    fl_key held;              /* WORK_CLIENT: the row of row_lock, whose timer does not fire meanwhile */
    bool under_way;           /* the timer was already firing when the work was decided */
    int8_t adds;              /* change of the number of pending timers when it takes effect */
    uint32_t space;           /* of the timer */
    struct work *next;
    bool in_doubt;
    struct work *next_in_doubt;
    char *reason;
    int64_t due_us;             /* FL_OP_DEAD_REDRIVE: not before; 0: now */
    struct atomic_group *group; /* NULL: no group */
};

FL__QUEUE(work_queue, struct work);

/* --- Writes ------------------------------------------------------------------------------------------------------- */

struct write_entry {
    fl_row row;
    fl_dead_row dead;
    uint32_t space;  /* of the row */
    fl_batch *batch; /* of a creation without a name */
    fl_op *op;
    struct work *work; /* of any other change; NULL: no work, or the work of the head of its group answers */
};

struct write {
    fl_store_request request;
    fl_engine *engine;
    fl_store_change *changes;
    struct write_entry *entries;
    size_t count, capacity, bytes;
    struct arena arena;
    struct write *next;
};

/* A row that was perhaps filed. It is counted when the store confirms it. */
struct unsure {
    fl_key key;
    uint32_t space;
};

struct find {
    fl_store_request request;
    fl_engine *engine;
    fl_store_want *wants;
    struct work **works;
    size_t count;
};

/* --- History ------------------------------------------------------------------------------------------------------ */

struct history_batch {
    fl_history_row *rows;
    size_t count, capacity;
    size_t bytes; /* of rows and arena */
    struct arena arena;
};

struct history {
    struct history_batch filling; /* rows that have no number yet */
    struct history_batch sending; /* rows that are written with the current record, or with the next */
    uint64_t sending_span;
    size_t dropping; /* number of the oldest spans that this record drops */
    fl_history_span *spans;
    size_t span_count, span_capacity;
    uint64_t last_span; /* the last that was dropped */
    uint64_t bytes;     /* in all spans */
    uint64_t keep_us;   /* the longest time that any namespace keeps them */
    struct history_task *tasks;
};

/* --- The engine --------------------------------------------------------------------------------------------------- */

enum engine_state {
    ENGINE_CLAIMING,
    ENGINE_RUNNING,
    ENGINE_LOST,
    ENGINE_RESTARTING, /* waits for the answers to its requests, then claims again */
    ENGINE_STOPPING,   /* waits for the answers to its requests, records progress, releases the claim and ends */
    ENGINE_GONE,       /* waits for the store to detach */
};

typedef void alarm_fn(fl_engine *e);

/* A loop's timer that lives as long as the engine and is set again and again, so that setting it needs no memory. */
struct alarm {
    fl_engine *engine;
    alarm_fn *fn;
    fl_timer_id id;
};

struct fl_engine {
    fl_engine_config config;
    char owner[FL_STORE_NAME_MAX + 1];
    fl_loop *loop;
    fl_shard *shard;
    enum engine_state state;
    uint64_t version;
    bool now; /* stop without recording progress */
    bool farewell, released;
    fl_loop_fn stopped;
    void *stopped_arg;
    uint32_t outstanding; /* requests without an answer */
    struct alarm fire_alarm, load_alarm, renew_alarm, record_alarm, delete_alarm, ask_alarm;
    int clock_fd;
    bool flushing; /* the callback `flush_id` is pending */
    fl_timer_id flush_id;
    bool fire_asked; /* that callback also fires due timers */
    uint64_t random;

    /* Ownership */
    fl_store_request own_request;
    bool own_busy;
    uint64_t claim_asked_ns; /* when the current renewal was sent, by the loop's clock */
    uint64_t claim_end_ns;   /* from then on nothing fires, by the loop's clock */
    int64_t claimed_us;

    /* Time */
    int64_t wall_us;       /* the latest time seen; all decisions use it */
    int64_t clock_us;      /* the last reading of the clock */
    uint64_t wall_seen_ns; /* when it was read, by the loop's clock */
    bool set_back;         /* it was set back; nothing is written until the store knows the new front */
    int64_t back_us;       /* after that: the earliest reading since */

    /* Memory */
    struct fl__images images;
    struct spaces spaces;
    struct span *spans; /* ascending */
    uint32_t span_count, span_capacity;
    fl_nodes *wheel[2];  /* the time of these is in microseconds */
    int64_t wheel_us[2]; /* of their last polls */
    struct flights flights;
    struct lanes lanes;
    uint64_t loaded; /* items in spans and flights */
    uint64_t bytes;
    fl_key until;
    int64_t armed_us; /* timers in memory that are due earlier are in a wheel, or flights */
    fl_key front[2];
    uint64_t preload_us; /* how far ahead it loads at present */
    bool pressed;        /* memory was short since progress was last recorded */

    /* The windows of the store that may have rows, by their beginning, longer ones first. */
    uint64_t *windows;
    size_t window_count, window_capacity;
    uint64_t last_window;
    uint64_t opened[FL_WINDOW_SHIFT_MAX + 1]; /* by shift: windows up to this index are filed finer */
    uint64_t *split;                          /* near windows that were too large and are filed finer */
    size_t split_count, split_capacity;
    fl_store_request refile_request;
    bool refile_busy;

    /* Loading */
    fl_store_request load_request;
    uint64_t *load_windows;
    size_t load_capacity;
    bool load_busy, ready;
    uint64_t stuck_bytes; /* bytes in memory when not a single row fitted; 0: the last load made progress */
    int64_t load_until_us;
    bool load_wide;      /* at least half of the memory was free when it began */
    fl_key load_cut;     /* memory ran out while loading: rows from this key on are loaded later */
    int64_t peeked_us;   /* look-ahead: the earliest row seen beyond its end */
    uint64_t *recovered; /* rows that the previous owner had not settled, ascending, until all are loaded */
    size_t recovered_count;
    bool recovering;

    /* Numbers */
    uint64_t seq_next, seq_granted;

    /* Writes */
    struct write *queued, *queued_last; /* not sent yet; new changes go into the last one */
    struct write *sent, *sent_last;
    struct write *group_write;       /* not NULL: a group is open, and all changes go into this write */
    size_t group_begin, group_bytes; /* changes and bytes in it before the group */
    fl_batch *early, *early_last;    /* submitted before the shard was claimed */
    uint32_t writes_busy;
    uint32_t finds_busy, doubts_busy;
    struct work_queue to_find, doubts, to_repeat;
    struct work *in_doubt;   /* works whose outcome the store is asked for */
    uint64_t ask_ns;         /* when it asks next, by the loop's clock */
    struct hash_table locks; /* held locks */
    fl_batch *answered, *answered_last;
    struct unsure *unsure;
    size_t unsure_count, unsure_capacity;

    /* Progress */
    fl_store_request record_request;
    uint64_t *keep;
    size_t keep_capacity;
    struct fl_store_span *spans_done;
    bool record_busy, dirty;
    bool retreat;        /* the store is being told that the clock was set back; nothing else is written meanwhile */
    fl_key *delete_keys; /* look-ahead: settled rows that are not deleted yet */
    size_t delete_count, delete_capacity;

    /* Catching up */
    double catch_up_tokens;
    int64_t catch_up_us;

    fl_node **due;
    fl_firing *firings;
    struct fl_listing_state *listings;
    struct history history;
    fl_engine_stats stats;
    struct histogram lateness;
};

#endif
