/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_INTERNAL_H
#define FOLIOT_ENGINE_INTERNAL_H

/* The engine of one shard. What it is made of, and which file does what:
 *
 *   engine.c    the life of an engine: claim, renew, lose, restart, stop; alarms
 *   ops.c       what the program asks for: how a work begins, holds rows, and ends when it is written
 *   submit.c    operations come in: each is checked and looks for its row
 *   decide.c    what an operation does to its row
 *   dead.c      operations on dead letters
 *   list.c      pages of timers
 *   lock.c      operations on the same name or row, one after the other
 *   write.c     changes on their way to the store
 *   group.c     several changes in one transaction
 *   doubt.c     changes of which nobody knows whether they took effect
 *   memory.c    timers in memory: items, the spans they stand in, the two wheels, making room
 *   load.c      from the store into memory: windows, look-ahead, filing windows into finer ones
 *   fire.c      from memory to the dispatcher, and back: settling, retrying
 *   flight.c    what has been taken out of a wheel and is not settled
 *   lane.c      attempts that wait, and where they are parked
 *   progress.c  recording how far it has got, deleting what is settled, the wall clock set back
 *   history.c   what has happened, as the program tells it
 *   codec.c     a timer as bytes; IDs as text
 *   check.c     what a legal engine is, for tests
 *
 * A timer is in exactly one of these places:
 *
 *   - in the store only: its key is `until` or later
 *   - in memory as an item in a span and, when that is near, in a wheel: its key is before `until` and after the front
 *   - under way as a flight: taken out of the wheel and not settled
 *   - parked: filed in the store under the window of a lane, with a time that never comes
 *   - settled: its key is not after the front, and it is no flight. Its row is still in the store, until its window is
 *     finished
 *
 * `until` is the comprehensive view: every row before it that is not settled is in memory. It holds because requests of a
 * shard take effect and are answered in order: a change that is answered before a load was answered is in what the load
 * has brought, and one that is answered afterwards is applied to memory.
 *
 * The front, one for first attempts and one for repeated ones, is the key of the last item that was taken out of that
 * wheel, which gives them out in order of key: by time, then in the order in which they were scheduled, which is the order
 * of sequence numbers, because whatever is filed or filed anew gets a new number.
 */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

#include <foliot/engine.h>
#include <foliot/wheel.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/hash.h"
#include "engine/codec.h"
#include "base/histogram.h"
#include "base/image.h"
#include "store/store.h"

#define SEQ_MAX (((uint64_t)1 << 56) - 1)
#define SEQ_RESERVE ((uint64_t)1 << 24) /* numbers taken at once: what a crash leaves unused at most */
#define NS_PER_US 1000ull
#define SECOND_US 1000000ull

enum {
    RETRIED = 1,             /* the class of repeated attempts, and the lowest bit of their numbers */
    WRITES_UNDER_WAY = 4,    /* requests of one kind that are under way at once */
    WRITE_MOST = 4096,       /* changes in one request */
    WRITE_BYTES = 2 << 20,   /* and about how many bytes of bodies: stores hold them several times over */
    REASON_MOST = 1024,      /* bytes */
    TARGET_MOST = 4096,      /* bytes */
    HEADERS_MOST = 16 << 10, /* bytes */
    LOCAL_MOST = 64,         /* bytes */
    SPAN_SHIFT = 19,         /* half a second */
};

/* --- Timers in memory --------------------------------------------------------------------------------------------- */

enum item_flags {
    ITEM_MOVED = 1,  /* its bytes begin with its ID */
    ITEM_HELD = 2,   /* an operation on it is under way: it must not fire meanwhile */
    ITEM_UNSURE = 4, /* perhaps it is not in the store */
};

/* 32 bytes: there may be millions. */
struct item {
    int64_t at_us : 56; /* its key */
    uint64_t flags : 8;
    uint64_t seq : 56;
    uint64_t name_size : 8;
    fl_timer_id wheel_id;  /* 0: it is in no wheel yet */
    uint32_t place;        /* in its span */
    uint32_t size : 24;    /* of bytes */
    uint32_t space : 8;    /* SPACE_FAR: its bytes begin with the number */
    unsigned char bytes[]; /* number of its namespace if that is a high one, ID if moved, name, body */
};

enum {
    SPACE_FAR = 255,
    BODY_MOST =
        (1 << 24) - 512, /* bytes that an item has room for, beside all else; the largest that is filed has half */
};
_Static_assert(offsetof(struct item, bytes) == 32, "an item is packed");
_Static_assert(FL_STORE_TIME_END - 1 <= INT64_MAX >> 8 && SEQ_MAX <= UINT64_MAX >> 8, "a key fits");

static inline fl_key item_key(const struct item *item)
{
    return (fl_key){item->at_us, item->seq};
}

struct span {
    int64_t index; /* at_us >> SPAN_SHIFT */
    struct item **items;
    uint32_t count, capacity; /* places */
    uint32_t live;            /* places that are not empty */
    uint32_t armed;           /* what stands before this place is in a wheel */
    bool sorted;              /* by sequence number */
};

/* A namespace, once for all its timers. */
struct space {
    char *name;
    uint64_t hash;
    uint64_t skip_older_us; /* UINT64_MAX: as configured */
    uint64_t keep_us;       /* of history; UINT64_MAX: as configured */
    int64_t pending;        /* timers in it that are not over */
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
    FLIGHT_HELD,    /* due, and an operation on it is under way */
    FLIGHT_WAITING, /* given to the dispatcher, and not begun */
    FLIGHT_DISPATCHED,
    FLIGHT_SETTLING, /* what becomes of it is being written */
    FLIGHT_ORPHAN,   /* dispatched, and no longer ours: kept until it is settled */
};

struct flight {
    struct item *item;
    uint64_t serial; /* of its token */
    uint32_t next;   /* late, or free */
    uint8_t state;
    bool superseded;   /* its row has been replaced meanwhile */
    bool done;         /* it is over, and its row is being taken away */
    bool counted;      /* it counts as an attempt even if it is never settled */
    bool moving;       /* only where it is filed is being changed: it has not begun */
    bool called;       /* it was parked, and has not been dispatched since */
    struct lane *lane; /* where it waits or has waited; NULL: in none */
    void *handle;      /* the dispatcher's, while it waits */
};

struct flights {
    struct flight *list; /* 0 is none */
    uint32_t used, capacity;
    uint32_t free_first, free_last; /* the one that has been free for longest is used first */
    uint32_t *table;                /* by sequence number; without orphans */
    uint32_t table_size, count;
    struct {
        uint32_t first, last, count;
    } late[2];
    uint32_t dispatched[2]; /* and settling, without those in lanes */
};

/* --- Lanes -------------------------------------------------------------------------------------------------------- */

/* A lane exists as long as something is in it, or as it is closed. */
struct lane {
    uint32_t number;
    uint32_t held, waiting; /* flights that have waited here; those that still do */
    uint64_t bytes;         /* of those flights */
    bool closed;
    bool filed;        /* its window is in the store */
    bool empty;        /* without rows: it is to be dropped */
    bool unread;       /* and there may be rows in it that are not in memory: what comes now goes behind them */
    bool news;         /* there was such a row in this pass through the window */
    uint64_t read_seq; /* how far that has got */
    struct hash_link by_number;
    TAILQ_ENTRY(lane) next;
};

struct lanes {
    struct hash_table by_number;
    TAILQ_HEAD(lane_list, lane) all; /* the one that was read last is the last */
    uint32_t held, waiting;          /* in all of them */
    uint64_t bytes;
    uint32_t unread; /* lanes */
    uint32_t called; /* flights that were parked and have not been dispatched since */
    fl_store_request request;
    struct lane *reading; /* NULL: none */
};

/* --- Locks -------------------------------------------------------------------------------------------------------- */

struct lock {
    uint64_t key;
    bool held;
    struct hash_link link;                /* of the holder */
    STAILQ_HEAD(lock_line, lock) waiting; /* of the holder: those that wait for it, in order */
    STAILQ_ENTRY(lock) next;              /* of those */
    void (*granted)(fl_engine *e, struct lock *lock);
};

/* --- Operations --------------------------------------------------------------------------------------------------- */

/* Parking and unparking change only where a timer is filed. */
enum work_kind { WORK_CLIENT, WORK_SETTLE, WORK_REMOVE, WORK_PARK, WORK_UNPARK };

/* Timers without names that are created in the transaction of a work: see group.c. */
struct atomic_group {
    fl_batch *batch; /* its first operation is the work's own; NULL: it is answered */
    size_t count;
    struct follower {
        fl_key key;
        uint32_t space;
        struct lock lock; /* held while the work is in doubt */
    } followers[];
};

/* An operation from its beginning until its effect is known. */
struct work {
    struct lock name_lock, row_lock;
    struct lock new_lock;  /* of the row that it files, while it is in doubt */
    struct lock dead_lock; /* of the one given up that it is about */
    enum work_kind kind;
    fl_batch *batch;
    fl_op *op;          /* NULL: answered, but not over */
    uint64_t name_hash; /* of the name in `op`, if it is found by name; else 0 */
    uint32_t flight;
    uint32_t lane;            /* WORK_PARK: where */
    fl_settlement settlement; /* WORK_SETTLE; its reason is in `reason` */
    fl_key old_key, new_key;  /* of the row it takes away, and of the one it files; seq 0: none */
    fl_key id;                /* by which to find out whether that was done */
    fl_key held;    /* the row of row_lock: its timer does not fire meanwhile; of others than WORK_CLIENT: none */
    bool under_way; /* it was under way already when that was decided */
    int8_t adds;    /* how many more are pending when it has taken effect */
    uint32_t space; /* of the timer */
    struct work *next;
    bool in_doubt;
    struct work *next_in_doubt;
    char *reason;
    int64_t due_us;             /* FL_OP_DEAD_REDRIVE: not before; 0: now */
    struct atomic_group *group; /* NULL: it is alone */
};

struct work_queue {
    struct work *first, *last;
    size_t count;
};

/* --- Writes ------------------------------------------------------------------------------------------------------- */

struct write_entry {
    fl_row row;
    fl_dead_row dead;
    uint32_t space;  /* of the row */
    fl_batch *batch; /* of a creation without a name */
    fl_op *op;
    struct work *work; /* of everything else; NULL: nobody waits for it, or the work of the head of its group does */
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

/* A row that was perhaps filed: it counts when that is known. */
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
    size_t bytes; /* of all this */
    struct arena arena;
};

struct history {
    struct history_batch filling; /* rows that have no number yet */
    struct history_batch sending; /* rows that are written with the record that is under way, or with the next */
    uint64_t sending_span;
    size_t dropping; /* so many of the oldest spans go with it */
    fl_history_span *spans;
    size_t span_count, span_capacity;
    uint64_t last_span; /* the last that went */
    uint64_t bytes;     /* in all spans */
    uint64_t keep_us;   /* the longest time that any namespace keeps them */
    struct history_task *tasks;
};

/* --- The engine --------------------------------------------------------------------------------------------------- */

enum engine_state {
    ENGINE_CLAIMING,
    ENGINE_RUNNING,
    ENGINE_LOST,
    ENGINE_RESTARTING, /* waits for the answers to what it has asked, then claims again */
    ENGINE_STOPPING,   /* the same, then records, lets go and ends */
    ENGINE_GONE,       /* waits for the store to let go */
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
    bool now; /* stop without a word */
    bool farewell, released;
    fl_loop_fn stopped;
    void *stopped_arg;
    uint32_t outstanding; /* requests under way */
    struct alarm fire_alarm, load_alarm, renew_alarm, record_alarm, delete_alarm, ask_alarm;
    int clock_fd;
    bool flushing; /* an immediate is on its way */
    fl_timer_id flush_id;
    bool fire_asked; /* it shall fire what is due, too */
    uint64_t random;

    /* Ownership */
    fl_store_request own_request;
    bool own_busy;
    uint64_t claim_asked_ns; /* when the renewal that is under way was asked for */
    uint64_t claim_end_ns;   /* nothing fires from here on, by the loop's clock */
    int64_t claimed_us;

    /* Time */
    int64_t wall_us;       /* the latest that was seen: by it everything is decided */
    int64_t clock_us;      /* what it said when it was looked at last */
    uint64_t wall_seen_ns; /* when that was, by the loop's clock */
    bool set_back;         /* it was set back, and that has not been seen to: nothing is written before */
    int64_t back_us;       /* then: the earliest that it has said since */

    /* Memory */
    struct fl__images images;
    struct spaces spaces;
    struct span *spans; /* ascending */
    uint32_t span_count, span_capacity;
    fl_wheel *wheel[2];
    struct flights flights;
    struct lanes lanes;
    uint64_t loaded; /* items in spans and flights */
    uint64_t bytes;
    fl_key until;
    int64_t armed_us; /* what is in memory and due earlier is in a wheel, or a flight */
    fl_key front[2];
    uint64_t preload_us; /* now */
    bool pressed;        /* memory was short since progress was last recorded */

    /* The store's windows: those in which there may be rows; by beginning, the longer ones first. */
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
    uint64_t stuck_bytes; /* how much was in memory when not a single row would fit; 0: some did */
    int64_t load_until_us;
    bool load_wide;      /* it began with at least half of the memory free */
    fl_key load_cut;     /* memory ran out while loading: rows from this key on are left for later */
    int64_t peeked_us;   /* look-ahead: the earliest that was seen beyond */
    uint64_t *recovered; /* what the owner before has kept, ascending, as long as not all of it has been loaded */
    size_t recovered_count;
    bool recovering;

    /* Numbers */
    uint64_t seq_next, seq_granted;

    /* Writes */
    struct write *queued, *queued_last; /* not sent yet: the last one collects */
    struct write *sent, *sent_last;
    struct write *group_write;       /* not NULL: everything goes here now */
    size_t group_begin, group_bytes; /* what that had before */
    fl_batch *early, *early_last;    /* submitted before the shard was claimed */
    uint32_t writes_busy;
    uint32_t finds_busy, doubts_busy;
    struct work_queue to_find, doubts, to_repeat;
    struct work *in_doubt;   /* asked or to be asked */
    uint64_t ask_ns;         /* when the alarm for that rings, by the loop's clock */
    struct hash_table locks; /* held ones */
    fl_batch *answered, *answered_last;
    struct unsure *unsure;
    size_t unsure_count, unsure_capacity;

    /* Progress */
    fl_store_request record_request;
    uint64_t *keep;
    size_t keep_capacity;
    struct fl_store_span *spans_done;
    bool record_busy, dirty, finishing;
    bool retreat;        /* the store is told that the clock was set back: nothing is written before it knows */
    fl_key *delete_keys; /* look-ahead: settled, and not deleted yet */
    size_t delete_count, delete_capacity;

    /* Catching up */
    double catch_up_tokens;
    int64_t catch_up_us;

    fl_expired *due;
    fl_firing *firings;
    struct fl_listing_state *listings;
    struct history history;
    fl_engine_stats stats;
    struct histogram lateness;
};

/* --- engine.c */
int64_t fl__engine_now(fl_engine *e);
int64_t fl__engine_filing_now(fl_engine *e);
void fl__alarm_set(fl_engine *e, struct alarm *alarm, uint64_t delay_ns);
void fl__engine_submit_request(fl_engine *e, fl_store_request *request, enum fl_store_op op,
                               void (*done)(fl_store_request *));
bool fl__engine_answered(fl_engine *e,
                         fl_store_request *request); /* to be called by each `done`; false: do nothing more */
void fl__engine_restart(fl_engine *e, const char *why);
void fl__engine_trouble(fl_engine *e, int result, const char *message);
bool fl__engine_may_fire(fl_engine *e);
int fl__engine_refusal(const fl_engine *e);
void fl__engine_flush_soon(fl_engine *e);
uint64_t fl__engine_random(fl_engine *e);

/* --- ops.c */
void fl__ops_found(fl_engine *e, struct work *work, const fl_store_want *want);
void fl__ops_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result);
void fl__ops_created(fl_engine *e, const struct write_entry *entry, int result);
void fl__ops_answer(fl_engine *e, fl_batch *batch, fl_op *op, int result);
void fl__ops_deliver(fl_engine *e);
void fl__ops_take_in(fl_engine *e, const fl_row *row, uint8_t flags);
void fl__work_end(fl_engine *e, struct work *work);
struct work *fl__work_new(fl_engine *e, enum work_kind kind);
void fl__ops_refuse_all(fl_engine *e, int result);
void fl__ops_begin_early(fl_engine *e);
void fl__ops_applied(fl_engine *e, struct work *work, const fl_row *row);
void fl__ops_not_applied(fl_engine *e, struct work *work);
bool fl__ops_let_go(fl_engine *e, fl_key key);
int fl__ops_file_new(fl_engine *e, fl_op *op, struct write_entry **ret);
int fl__ops_check_content(const fl_engine *e, const fl_durable *timer);
int fl__ops_check_group(const fl_engine *e, const fl_batch *batch);
void fl__ops_apply_update(const fl_op *op, fl_durable *timer);
int64_t fl__ops_filing_time(fl_engine *e, int64_t due_us);
void fl__ops_answer_work(fl_engine *e, struct work *work, int result);
/* Copies what is only borrowed from the store, to last until the batch is done. */
bool fl__ops_own_bytes(fl_batch *batch, fl_bytes *bytes);
int fl__ops_give_timer(struct work *work, const fl_durable *timer);
void fl__ops_release_row(fl_engine *e, struct work *work);
void fl__ops_finish(fl_engine *e, struct work *work, int result);
int fl__ops_hold(fl_engine *e, fl_key key);

/* --- decide.c */
int fl__ops_create_nameless(fl_engine *e, fl_batch *batch, fl_op *op);
void fl__ops_hold_and_decide(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled);
bool fl__ops_is_in(const fl_op *op, fl_bytes ns);

/* --- dead.c, submit.c */
void fl__ops_begin_dead(fl_engine *e, fl_batch *batch, fl_op *op);
void fl__ops_look_for(fl_engine *e, struct work *work);

/* --- group.c */
struct atomic_group *fl__group_new(fl_batch *batch); /* NULL: no memory */
int fl__group_file(fl_engine *e, struct atomic_group *group);
void fl__group_answer(fl_engine *e, struct atomic_group *group, int result);
void fl__group_refuse(fl_engine *e, fl_batch *batch, int result);
void fl__group_count(fl_engine *e, const struct atomic_group *group);
void fl__group_applied(fl_engine *e, const struct atomic_group *group, const struct write_entry *head);
void fl__group_hold(fl_engine *e, struct atomic_group *group);
void fl__group_let_go(fl_engine *e, struct atomic_group *group);
void fl__group_want(const struct atomic_group *group, fl_store_want *wants);
void fl__group_found(fl_engine *e, const struct atomic_group *group, const fl_store_want *wants);
bool fl__group_has(const struct atomic_group *group, uint64_t seq);

/* --- list.c */
void fl__lists_go_on(fl_engine *e);

/* --- lock.c */
bool fl__lock(fl_engine *e, struct lock *lock, uint64_t key, void (*granted)(fl_engine *, struct lock *));
void fl__unlock(fl_engine *e, struct lock *lock);
bool fl__is_locked(const fl_engine *e, uint64_t key);

/* --- write.c */
struct write_entry *fl__write_add(fl_engine *e, size_t bytes, fl_store_change **ret_change, unsigned char **ret_bytes);
bool fl__write_open_group(fl_engine *e); /* false: no memory */
void fl__write_close_group(fl_engine *e, bool whole);
struct find *fl__find_new(fl_engine *e, size_t count);
void fl__find_want(const struct work *work, fl_store_want *ret);
uint64_t fl__seq_take(fl_engine *e, bool retried); /* 0: none is free now */
bool fl__write_files_under(const fl_engine *e, uint64_t window);
void fl__flush(fl_engine *e);
void fl__queue_push(struct work_queue *queue, struct work *work);
struct work *fl__queue_pop(struct work_queue *queue);
void fl__writes_free(fl_engine *e);

/* --- doubt.c */
void fl__doubt(fl_engine *e, struct work *work);
void fl__doubt_end(fl_engine *e, struct work *work);
bool fl__doubt_about(const fl_engine *e, uint64_t seq);
void fl__doubt_take_in(fl_engine *e, const fl_row *row);
void fl__doubt_unsure(fl_engine *e, fl_key key, uint32_t space);
void fl__doubt_found(fl_engine *e, uint64_t seq);
void fl__doubt_forget(fl_engine *e, uint64_t seq);
void fl__doubt_not_found(fl_engine *e, const fl_store_want *want);
void fl__doubts_ask(fl_engine *e);
void fl__doubts_ask_later(fl_engine *e);

/* --- memory.c */
int fl__space(fl_engine *e, fl_bytes ns, uint32_t *ret);
void fl__count(fl_engine *e, uint32_t space, int64_t more);
void fl__count_none(fl_engine *e);
int fl__memory_insert(fl_engine *e, const fl_row *row, uint8_t flags);
uint32_t fl__memory_flight(fl_engine *e, const fl_row *row); /* a flight that is parked; 0: no memory */
struct item *fl__memory_find(fl_engine *e, fl_key key);
void fl__memory_remove(fl_engine *e, struct item *item); /* out of span and wheel, and frees it */
void fl__memory_take(fl_engine *e, struct item *item);   /* out of its span; it has left the wheel */
void fl__memory_free_item(fl_engine *e, struct item *item);
void fl__memory_evict(fl_engine *e, fl_key from);
bool fl__memory_arm(fl_engine *e, int64_t now_us); /* false: it is not done yet */
void fl__memory_follow(fl_engine *e, int64_t now_us);
int64_t fl__memory_reach_us(const fl_engine *e, int64_t now_us);
int64_t fl__memory_arm_next_us(const fl_engine *e);
int64_t fl__memory_next_unarmed_us(const fl_engine *e);
bool fl__memory_room(fl_engine *e, fl_key key);
fl_key fl__memory_load_room(fl_engine *e, fl_key key);
bool fl__memory_is_filled(const fl_engine *e, unsigned percent);
int fl__memory_rebuild(fl_engine *e);
void fl__memory_clear(fl_engine *e);
uint32_t fl__item_space(const struct item *item);
void fl__item_row(const fl_engine *e, const struct item *item, fl_row *ret);
void fl__spaces_free(struct spaces *spaces);

/* --- flight.c */
uint32_t fl__flight_new(fl_engine *e, struct item *item, enum flight_state state); /* 0: no memory */
uint32_t fl__flight_find(const fl_engine *e, uint64_t seq);
bool fl__flight_done(const fl_engine *e, uint64_t seq);
void fl__flight_end(fl_engine *e, uint32_t index);
void fl__flight_forget(fl_engine *e, uint32_t index);
struct item *fl__flight_recall(fl_engine *e, uint32_t index);
void fl__flight_late(fl_engine *e, uint32_t index);
uint32_t fl__flight_next_late(fl_engine *e, int kind);
uint64_t fl__flight_token(const fl_engine *e, uint32_t index);
uint32_t fl__flight_of_token(const fl_engine *e, uint64_t token);

/* --- lane.c */
void fl__lanes_init(struct lanes *lanes);
void fl__lanes_free(struct lanes *lanes);
void fl__lanes_clear(fl_engine *e);                              /* what is parked is not known any more */
void fl__lanes_read_again(fl_engine *e, bool all);               /* else only those without flights */
void fl__lane_leave(fl_engine *e, struct flight *flight);        /* if it is in one */
void fl__lane_stop_waiting(fl_engine *e, struct flight *flight); /* if it waits; it stays in its lane */
bool fl__lane_withdraw(fl_engine *e, uint32_t index);            /* false: it has begun */
void fl__lane_not_called(fl_engine *e, struct flight *flight);
int fl__lane_filed(fl_engine *e, uint64_t window); /* there is something under the window of a lane */
bool fl__is_lane(uint64_t window);
bool fl__is_lane_time(int64_t at_us);
fl_key fl__lane_key(uint32_t lane, uint64_t seq);
uint64_t fl__lane_window(uint32_t lane);
uint32_t fl__lane_of_time(int64_t at_us);
int64_t fl__lanes_begin_us(void); /* nothing that is due from here on ever comes */
void fl__lanes_read(fl_engine *e);
bool fl__lane_next_window(const fl_engine *e, uint64_t after, uint64_t *ret);
size_t fl__lanes_empty(fl_engine *e, struct fl_store_span *spans, size_t most);

/* --- load.c */
void fl__engine_load(fl_engine *e);
void fl__load_if_room(fl_engine *e);
bool fl__load_has_room(const fl_engine *e);
int64_t fl__load_horizon_us(const fl_engine *e, int64_t now_us);
void fl__load_hint(fl_engine *e, int64_t at_us);
void fl__load_sooner(fl_engine *e);
void fl__windows_add(fl_engine *e, uint64_t window);
void fl__windows_inherit(fl_engine *e, uint64_t window);
void fl__windows_remove(fl_engine *e, uint64_t window);
uint64_t fl__window_for(fl_engine *e, int64_t at_us);
bool fl__window_in_parts(const fl_engine *e, uint64_t window);
int fl__windows_reserve(fl_engine *e, size_t more);

/* --- fire.c */
void fl__engine_fire(fl_engine *e);
void fl__fire_soon(fl_engine *e);
bool fl__fire_has_room(const fl_engine *e, int kind);
void fl__settle_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result);
void fl__settle_continue(fl_engine *e, struct work *work);
void fl__settle_applied(fl_engine *e, struct work *work, const fl_row *row);
void fl__settle_count(fl_engine *e, const struct work *work);
void fl__settle_expired(fl_engine *e, const fl_row *row);
int64_t fl__item_due(const fl_engine *e, const struct item *item);
void fl__settle_begin(fl_engine *e, uint32_t index, const fl_settlement *settlement, enum work_kind kind,
                      uint32_t lane);

int fl__retry_check(const fl_retry *retry);

/* --- progress.c */
void fl__record(fl_engine *e);
void fl__delete(fl_engine *e);
void fl__delete_key(fl_engine *e, fl_key key);
void fl__delete_keys(fl_engine *e);
void fl__progress_set_back(fl_engine *e);
int fl__progress_now(fl_engine *e, fl_progress *ret);
void fl__progress_keep(fl_engine *e, fl_key key);
bool fl__settled(const fl_engine *e, fl_key key);
bool fl__progress_was_begun(const fl_engine *e, uint64_t seq);
void fl__progress_settle(fl_engine *e, uint64_t seq);
void fl__progress_move_fronts(fl_engine *e);

/* --- history.c */
int fl__history_take_over(fl_engine *e, const fl_store_request *request);
void fl__history_send(fl_engine *e, fl_history_change *ret); /* with a record that is sent now */
void fl__history_sent(fl_engine *e, int result);             /* that record is answered */
bool fl__history_is_over(fl_engine *e);                      /* there is something to drop */
void fl__history_go_on(fl_engine *e);
void fl__history_clear(fl_engine *e);
void fl__history_free(fl_engine *e);

static inline bool same_bytes(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static inline bool key_before(fl_key a, fl_key b)
{
    return a.at_us != b.at_us ? a.at_us < b.at_us : a.seq < b.seq;
}

/* Whether the front has passed it. */
static inline bool behind_front(const fl_engine *e, fl_key key)
{
    return !key_before(e->front[key.seq & 1], key);
}

static inline uint64_t lock_of_seq(uint64_t seq)
{
    return seq; /* below 2^56 */
}

static inline uint64_t lock_of_dead(uint64_t seq)
{
    return seq | (uint64_t)1 << 62;
}

static inline uint64_t lock_of_name(uint64_t hash)
{
    return hash | (uint64_t)1 << 63;
}

#endif
