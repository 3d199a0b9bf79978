/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_H
#define FOLIOT_ENGINE_H

/* Durable timers. An engine runs the timers of one shard of a store (foliot/store.h) on one event loop.
 *
 *     static void ring(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
 *     {
 *         for (size_t i = 0; i < count; i++) {
 *             printf("%.*s\n", (int)firings[i].timer.payload.size, (const char *)firings[i].timer.payload.data);
 *             fl_engine_settle(engine, &(fl_settlement){.token = firings[i].token, .result = FL_DONE}, 1);
 *         }
 *     }
 *
 *     static void created(fl_batch *batch)
 *     {
 *         printf("created: %s\n", fl_strerror(batch->ops[0].result));   // it is on the disk now
 *     }
 *
 *     int main(void)
 *     {
 *         char message[256];
 *         fl_loop *loop;
 *         fl_store *store;
 *         fl_engine *engine;
 *         if (fl_loop_new(NULL, &loop) < 0 ||
 *             fl_store_open("sqlite:kitchen", &(fl_store_config){.shards = 1}, &store, message, sizeof message) < 0)
 *             return 1;
 *         fl_engine_config config = {.loop = loop, .store = store, .owner = "kitchen", .dispatch = ring};
 *         if (fl_engine_start(&config, &engine) < 0)
 *             return 1;
 *         fl_wall_clock *clock = fl_wall_clock_system();
 *         fl_op op = {.kind = FL_OP_CREATE,
 *                     .timer = {.ns = FL_TEXT("kitchen"), .name = FL_TEXT("tea"), .payload = FL_TEXT("tea is ready"),
 *                               .due_us = clock->now_us(clock) + 3 * 60 * 1000000ll}};
 *         fl_batch batch = {.ops = &op, .count = 1, .done = created};
 *         fl_engine_submit(engine, &batch);
 *         fl_loop_run(loop);      // kill the program and start it again: the timer fires all the same
 *     }
 *
 * What the engine promises:
 *
 *   - When the creation of a timer has succeeded, the timer is in the store. It fires at least once, even after a crash, and
 *     never before its time by the wall clock.
 *   - When a cancel has succeeded, no firing of the timer begins afterwards. An update that moves a timer neither loses nor
 *     duplicates it.
 *   - After a crash, only timers that were settled since the last record (`record_interval_us`) fire again.
 *   - If several engines believe that they own a shard, only one can write. An engine that has lost its shard fires nothing
 *     more as soon as it learns of the loss, at the latest when the claim that it could not renew has expired.
 *   - Timers follow the wall clock when it is set. No timer is lost or fires twice because of that. A retry has a due time
 *     too, and so has a timer that was overdue when it was created (the time of its creation). If the clock is set back
 *     before they fire, they wait for that time. A clock after the year 2554 stands still there.
 *   - Memory is bounded: the engine holds at most `max_memory_timers` timers and about `max_memory_bytes` bytes. Timers that
 *     are due later are in the store only. The engine reads them when there is room.
 *
 * How it works: the engine loads windows of timers ahead into a timing wheel, and gives due timers to the dispatcher, in
 * batches. It deletes settled timers window by window (FL_PRELOAD) or row by row (FL_LOOKAHEAD, which holds almost nothing in
 * memory and asks the store more often).
 *
 * Threads: call all functions on the thread of the loop. Callbacks run there, too.
 *
 * Errors: functions return 0 or a negative code of foliot/error.h. For an operation, fl_store_failure() says whether nothing
 * has happened, the shard was lost, or the outcome is unknown. After FL_OUTCOME_UNKNOWN, the timer may fire: ask again later.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/error.h>
#include <foliot/loop.h>
#include <foliot/store.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct fl_engine fl_engine;
typedef struct fl_batch fl_batch;

/* --- Timers ------------------------------------------------------------------------------------------------------ */

/* A string literal as bytes. */
#define FL_TEXT(literal)                         \
    {                                            \
        "" literal "", sizeof("" literal "") - 1 \
    }

/* The retry policy. After the first failure, the engine waits for `initial_us`. After each further failure it waits `multiplier`
 * times as long, up to `max_interval_us`. A random part of up to a fifth shortens each wait. The timer becomes a dead letter
 * after `max_attempts` attempts, or `max_age_us` after it was first due. All zero: the engine's default
 * (fl_engine_config.retry). */
typedef struct fl_retry {
    uint32_t max_attempts;    /* 0: no limit */
    uint32_t multiplier_1000; /* in thousandths: 2000 doubles. At least 1000 */
    uint64_t initial_us;
    uint64_t max_interval_us;
    uint64_t max_age_us; /* 0: no limit */
} fl_retry;

typedef struct fl_durable {
    fl_bytes ns;         /* 1 to 255 bytes */
    fl_bytes name;       /* unique in its namespace, up to 255 bytes; size 0: none */
    fl_key id;           /* set by the engine; finds a timer without a name */
    int64_t due_us;      /* when it is due, before FL_STORE_TIME_END; the past counts as now */
    int64_t created_us;  /* set by the engine, rounded down to a millisecond */
    fl_bytes payload;    /* at most `max_payload` bytes */
    fl_bytes target;     /* for the dispatcher; the engine only keeps it. At most 4096 bytes */
    fl_bytes headers;    /* for the dispatcher. At most 16 KiB */
    uint64_t timeout_us; /* for the dispatcher */
    fl_retry retry;
    uint32_t
        attempt; /* number of attempts whose end is recorded in the store; in a firing, the number of this attempt */
    uint64_t revision; /* set by the engine; changes when the timer is filed again: see FL_OP_ONLY_REVISION */
    /* Of a timer that a schedule has created. The engine only keeps them. */
    fl_bytes schedule;     /* the schedule's name, up to 255 bytes; size 0: none, and the times are not kept */
    int64_t occurrence_us; /* the nominal time of this occurrence, and of those before and after it; 0: none */
    int64_t previous_us, next_us;
    /* The due time in civil time, as it was given. The engine only keeps them: with FL_OP_SET_DUE, they are set, too. */
    fl_bytes local; /* up to 64 bytes */
    fl_bytes zone;  /* up to 255 bytes */
    /* Debounce. FL_OP_CREATE and FL_OP_SET_DUE make a timer due at the latest `max_wait_us` after it was first created,
     * however often FL_OP_CREATE replaces it. The replacement of a timer that has begun to fire starts anew. */
    uint64_t max_wait_us; /* 0: no limit */
    bool merge_first;     /* the new timer keeps the payload of the one that it replaces */
    uint32_t replaced;    /* set by the engine: how often it was replaced */
    int64_t
        first_created_us; /* set by the engine: when the first of the replaced timers was created; 0: none was replaced */
} fl_durable;

/* The due time of a timer that is kept and never fires. */
#define FL_TIME_NEVER_US (FL_STORE_TIME_END - 1)

/* An ID as text: 26 letters and digits that sort by shard, time and sequence number. */
enum { FL_ID_TEXT = 26 };
void fl_id_format(uint32_t shard, fl_key id, char out[FL_ID_TEXT + 1]);

/* The reverse. Returns 0, or FL_INVALID_TIMER_ID if `text` is not an ID. Upper and lower case are the same. */
int fl_id_parse(const char *text, size_t size, uint32_t *ret_shard, fl_key *ret_id);

/* --- Firing ------------------------------------------------------------------------------------------------------ */

typedef struct fl_firing {
    uint64_t token;   /* identifies this attempt until it is settled; never 0, never used twice by an engine */
    fl_durable timer; /* valid until the attempt is settled */
    int64_t at_us;    /* when this attempt was to begin; if it was parked: `timer.due_us` */
    bool parked;      /* it was parked, in this lane: see fl_engine_wait() */
    uint32_t lane;
} fl_firing;

/* Called with due timers. Settle each with fl_engine_settle(), inside this call or later. An attempt begins when it is dispatched,
 * unless the dispatcher makes it wait: see fl_engine_wait(). */
typedef void (*fl_dispatch_fn)(void *arg, fl_engine *engine, const fl_firing *firings, size_t count);

enum fl_settle {
    FL_DONE = 0,   /* the timer is over */
    FL_FAILED = 1, /* retry by the policy, and not before `at_us` if that is set */
    FL_AGAIN = 2,  /* fire again at `at_us`, with attempts counted from 1; FL_DEAD if that is after FL_STORE_TIME_END */
    FL_DEAD = 3,   /* make it a dead letter */
    FL_LATER = 4,  /* the attempt was not made: fire again at `at_us`, and do not count it */
    FL_EXPIRED = 5, /* the lease of the attempt has ended: as FL_FAILED, but the retry is due at once */
    FL_ADVANCE = 6, /* change the timer and create others, as `batch` says, in one transaction: see below */
    FL_SKIP = 7,    /* the timer is over without an attempt: as FL_DONE, but counted as skipped */
};

typedef struct fl_settlement {
    uint64_t token;
    enum fl_settle result;
    int64_t at_us;
    fl_bytes reason; /* of FL_FAILED, FL_EXPIRED and FL_DEAD, for people; cut after 1024 bytes */
    fl_batch *batch; /* of FL_ADVANCE */
} fl_settlement;

/* FL_ADVANCE is for a timer that creates timers, such as a schedule. The first operation of `batch` is an FL_OP_UPDATE with
 * FL_OP_SET_DUE and possibly other flags. It needs neither name nor ID: it changes the timer that fired, which keeps its ID and
 * its name, and counts attempts from 1. The other operations are FL_OP_CREATE without names. All take effect in one
 * transaction, or none does.
 *
 *     fl_op ops[] = {{.kind = FL_OP_UPDATE, .flags = FL_OP_SET_DUE | FL_OP_SET_PAYLOAD, .timer = {.due_us = next_us, …}},
 *                    {.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("kitchen"), .due_us = now_us, …}}};
 *     fl_batch batch = {.ops = ops, .count = 2, .done = advanced};
 *     fl_settlement settlement = {.token = firing->token, .result = FL_ADVANCE, .batch = &batch};
 *     fl_engine_settle(engine, &settlement, 1);
 *
 * Do not change the batch before its `done`, which is called when the outcome is known. All its operations have the same result.
 * 0: all took effect. FL_TIMER_NOT_FOUND: the timer was replaced before it was settled, and nothing was done. Any other code:
 * the engine stops, has lost its shard or starts again, and the timer fires again unless the transaction took effect. If the
 * store refuses, the engine tries again. If the outcome is unknown, the engine asks until it knows. Until then, none of the
 * timers fires.
 *
 * fl_engine_settle() settles attempts. Returns how many of the tokens named an attempt in progress. A settlement whose
 * result is not in enum fl_settle, or whose batch cannot be executed, settles nothing and does not count. */
size_t fl_engine_settle(fl_engine *engine, const fl_settlement *settlements, size_t count);

/* --- Waiting ------------------------------------------------------------------------------------------------------ */

/* A dispatcher that cannot begin an attempt at once makes it wait in a lane: for example one lane per host, or one per
 * namespace that is polled. While an attempt waits, its timer can be cancelled, replaced and changed like one that is not due
 * yet (see `withdraw` of fl_engine_config), and it does not count against `max_in_flight`.
 *
 * A lane has a share of the memory for waiting timers: half of what the other lanes leave. The engine parks timers beyond
 * the share: it files the timer in the store under its lane and loads it again, in the order of parking, when the lane has used up
 * half of its share. So a lane that takes nothing delays no other lane, whatever waits in it. An attempt that has waited
 * counts for its lane until it is settled.
 *
 * Lanes are numbers below 2^24 that the dispatcher derives from what a timer is; the store remembers them. If two lanes have
 * the same number, they share one place.
 *
 * If the clock is set back while a timer is parked, the timer waits until it is due again. For a parked retry, that is the due
 * time of the timer, because the time of the retry is not kept.
 *
 * Call fl_engine_wait() for an attempt that was dispatched and has not begun. If it waits already, it moves to the other lane.
 * Returns true if the attempt waits: then call fl_engine_begin() or fl_engine_settle(), unless the engine withdraws it. `handle`
 * is yours, for `withdraw`. Returns false if the engine has taken the attempt back: then the token and the bytes of the firing
 * are invalid. */
bool fl_engine_wait(fl_engine *engine, uint64_t token, uint32_t lane, void *handle);

/* Tells the engine that an attempt that has waited begins. Returns false if it must not begin: settle it as FL_LATER. With
 * `counted`, the attempt counts even if it is never settled: if it began before the last record, the next owner of the shard
 * settles it as FL_EXPIRED. */
bool fl_engine_begin(fl_engine *engine, uint64_t token, bool counted);

/* Closes or opens a lane. Attempts that are made to wait in a closed lane are parked, and parked timers stay parked. Attempts that
 * wait already are not affected. All lanes of a new engine are open. Returns 0,
 * FL_INVALID_ARGUMENT or FL_NO_MEMORY. */
int fl_engine_close_lane(fl_engine *engine, uint32_t lane, bool closed);

/* Whether the engine still owns the shard. Reads the clock of the loop. A dispatched attempt may have waited,
 * or the process may have been stopped, for longer than a claim lasts. Then another owner may have the shard, and fires all
 * timers that are not settled. To avoid a second execution, ask right before the work begins, and settle the attempt as
 * FL_LATER if the answer is false. */
bool fl_engine_owns(fl_engine *engine);

/* --- The engine -------------------------------------------------------------------------------------------------- */

enum fl_strategy { FL_PRELOAD = 0, FL_LOOKAHEAD = 1 };

enum fl_engine_event {
    FL_ENGINE_READY,   /* the shard is claimed, and the timers that are due soon are loaded */
    FL_ENGINE_LOST,    /* another owner has claimed the shard: nothing fires any more. Stop the engine */
    FL_ENGINE_HELD,    /* another owner holds the shard. The engine tries again five times per `claim_us` */
    FL_ENGINE_TROUBLE, /* the store refused a request or did not answer. The engine tries again */
};

/* How a timer has ended other than by FL_DONE. */
enum fl_ended {
    FL_ENDED_DEAD,    /* it is a dead letter, because of its retry policy or of FL_DEAD */
    FL_ENDED_SKIPPED, /* it became due too long before the shard was claimed */
};

/* The zero value of every member is its default, except for the first four. */
typedef struct fl_engine_config {
    fl_loop *loop;
    fl_store *store;
    const char *owner; /* the address of the server that claims the shard, 1 to 255 bytes */
    fl_dispatch_fn dispatch;
    void *arg; /* for `dispatch`, `notify`, `ended`, `counted` and `paused` */
    uint32_t shard;
    bool force; /* claim the shard even if another owner holds it */
    bool wait;  /* fire nothing before fl_engine_go() */
    enum fl_strategy strategy;
    void (*notify)(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message);
    void (*ended)(void *arg, fl_engine *engine, const fl_durable *timer, enum fl_ended how, fl_bytes reason);
    /* The engine wants an attempt back that waits, because its timer is cancelled, replaced or changed, or is not due any more.
     * Return true if the attempt has not begun: then the token and the bytes of the firing are invalid. Return false if it has
     * begun, possibly on another thread. NULL: false. */
    bool (*withdraw)(void *arg, fl_engine *engine, uint64_t token, void *handle);
    /* `more` timers of a namespace are pending, or -`more` fewer. The sum of all calls is exact. It begins with the counts
     * of the store at the claim, and is 0 again before the engine is gone. Do not call the engine from it. */
    void (*counted)(void *arg, fl_engine *engine, fl_bytes ns, int64_t more);
    /* How many microseconds from `from_us` to `until_us` do not count toward the `max_age_us` of this timer, because it was
     * paused. Called before a timer becomes a dead letter for its age. NULL: all time counts. Do not call the engine from it. */
    uint64_t (*paused)(void *arg, fl_engine *engine, const fl_durable *timer, int64_t from_us, int64_t until_us);
    fl_wall_clock *clock; /* NULL: the system's */
    uint64_t claim_us;    /* how long a claim is valid; it is renewed after a third of that; 0: 5 s. At most a day */
    uint64_t record_interval_us; /* how often progress is recorded; 0: 1 s. At most a day */
    uint64_t max_memory_timers;  /* held in memory; 0: 100,000. Less than 16 counts as 16 */
    uint64_t max_memory_bytes;   /* of those timers with their payloads; 0: 256 MiB. A single timer may exceed it */
    uint32_t max_in_flight;      /* given to the dispatcher, not settled and in no lane; 0: 10,000 */
    uint32_t max_waiting;    /* attempts in lanes, waiting or begun; 0: half of `max_memory_timers`. They have half of
                                  * `max_memory_bytes` */
    uint32_t dispatch_batch; /* given to the dispatcher at once; 0: 1,000 */
    uint32_t max_payload;    /* bytes; 0: 256 KiB; at most 8 MiB */
    fl_retry retry;          /* of timers that have none; zero: 1 s, doubled up to 1 h, 10 attempts, no limit of age */
    /* FL_PRELOAD */
    uint64_t preload_us; /* how far ahead timers are loaded; 0: 2 min. Less when memory is short */
    uint64_t
        delete_interval_us; /* how often settled timers are deleted, sooner when memory is short; with FL_LOOKAHEAD, if
                                  * there are fewer than `delete_batch`; 0: 30 s. At most a day */
    /* FL_LOOKAHEAD */
    uint64_t lookahead_us;     /* how far ahead timers are loaded; 0: 1 s */
    uint64_t load_interval_us; /* how often at least to ask the store, 1 to 30 s; 0: 5 s */
    uint32_t load_batch;       /* rows per load; 0: 1,000 */
    uint32_t delete_batch;     /* rows that are settled before they are deleted; 0: 1,000 */
    /* History */
    uint64_t history_bytes;     /* limit in the store, approximate; the oldest rows are deleted first; 0: 1 GiB */
    uint64_t history_keep_us;   /* how long rows are kept, unless `history_bytes` is reached; 0: 3 days */
    uint64_t max_history_bytes; /* in memory, until they are written; 0: 8 MiB. Rows beyond that are lost */
    /* After a downtime */
    uint64_t catch_up_rate; /* limit of firings per second, for timers that became due before the claim; 0: no limit */
    uint64_t skip_older_us; /* timers that are overdue by more than this at the claim do not fire; 0: all fire */
    uint64_t seed;          /* of the random part of retries; 0: from the system */
} fl_engine_config;

/* Makes an engine, which begins to claim its shard. Operations may be submitted at once. The configuration and `owner` are copied;
 * everything else that it points to must outlive the engine. Returns 0, FL_INVALID_ARGUMENT, FL_NO_MEMORY, or an error of
 * fl_store_attach(). */
int fl_engine_start(const fl_engine_config *config, fl_engine **ret);

/* Lets an engine fire that was started with `wait`. Meanwhile, the program can read what it must know before timers fire. */
void fl_engine_go(fl_engine *engine);

/* Stops the engine. It fires nothing more, and refuses operations with FL_STOPPED. The next owner repeats attempts that are not
 * settled. The engine records its progress, releases the shard, frees itself, and then calls `done`. With `now`, it records
 * and releases nothing, as if the process had died. Do not call this inside a callback of the engine. */
void fl_engine_stop(fl_engine *engine, bool now, fl_loop_fn done, void *arg);

/* Sets `skip_older_us` for one namespace. UINT64_MAX: as in the configuration. Namespaces whose names begin with a byte below 0x20
 * are for the program itself: their timers are skipped only if it is set here. Returns 0 or FL_NO_MEMORY. */
int fl_engine_skip_older(fl_engine *engine, fl_bytes ns, uint64_t skip_older_us);

/* Tells the engine that the wall clock was set. The engine notices it by itself if it uses the system's clock. */
void fl_engine_clock_changed(fl_engine *engine);

/* Whether the engine only waits: for the clock, for the dispatcher, for fl_engine_go(), or, if it has lost its shard, for
 * fl_engine_stop(). Then no timer becomes due before `*ret_next_us`. At that time, a timer may be due, or it has been cancelled.
 * INT64_MAX: no timer becomes due. For programs that set the clock themselves: set it to that time, call
 * fl_engine_clock_changed(), and run the loop until the engine is idle again. */
bool fl_engine_idle(fl_engine *engine, int64_t *ret_next_us);

/* --- Operations -------------------------------------------------------------------------------------------------- */

enum fl_op_kind {
    FL_OP_CREATE,
    FL_OP_GET,      /* by name; or by ID, in any namespace or, if `ns` is given, in that one only */
    FL_OP_UPDATE,   /* by name or ID; `flags` says which members to set */
    FL_OP_CANCEL,   /* by name or ID. FL_BUSY while an attempt is in progress */
    FL_OP_DEAD_GET, /* by ID, in any namespace or, if `ns` is given, in that one only */
    /* By ID. The timer is due now, or with FL_OP_SET_DUE at `due_us`. It loses its civil time, and attempts count from 1. */
    FL_OP_DEAD_REDRIVE,
    FL_OP_DEAD_DELETE, /* by ID */
};

/* Flags. An unknown flag is refused (FL_INVALID_ARGUMENT). Flags of another kind of operation are ignored. */
enum {
    /* FL_OP_CREATE with a name that a timer has. Without a flag, a timer with the same content stays (FL_SAME), and one with
     * other content is replaced. */
    FL_OP_ONLY_NEW = 1,   /* FL_EXISTS, whatever its content */
    FL_OP_NO_REPLACE = 2, /* FL_EXISTS if the content differs */
    /* FL_OP_UPDATE: which members of `timer` to set. */
    FL_OP_SET_DUE = 4,
    FL_OP_SET_TARGET = 8,
    FL_OP_SET_HEADERS = 16,
    FL_OP_SET_PAYLOAD = 32,
    FL_OP_SET_TIMEOUT = 64,
    FL_OP_SET_RETRY = 128,
    FL_OP_ONLY_REPLACE = 256, /* FL_OP_CREATE: FL_TIMER_NOT_FOUND if no timer has the name. Refused without a name */
    /* FL_OP_CREATE with a name: replaces only the timer whose ID is `timer.id`, so that a program can read a timer and
     * replace exactly that one. FL_EXISTS: another timer has the name. FL_TIMER_NOT_FOUND: no timer has it. Refused without
     * a name. */
    FL_OP_ONLY_THIS = 512,
    /* FL_OP_CREATE with a name, FL_OP_UPDATE and FL_OP_CANCEL: only if `timer.revision` is still that of the
     * timer. FL_CHANGED: it has changed since it was read. FL_TIMER_NOT_FOUND: it is gone. A timer that advances (FL_ADVANCE)
     * keeps its ID, so FL_OP_ONLY_THIS does not notice that. */
    FL_OP_ONLY_REVISION = 1024,
    FL_OP_SET_MAX_WAIT = 2048, /* FL_OP_UPDATE: `max_wait_us` */
    FL_OP_SET_MERGE = 4096,    /* FL_OP_UPDATE: `merge_first` */
};

enum fl_outcome { FL_CREATED, FL_SAME, FL_REPLACED };

/* One operation. Before, `timer` says which timer and what to do. Afterwards, `timer` is the timer as it is now, or as it was
 * before it was cancelled. Its bytes then belong to the engine, and are valid until `done` of the batch returns. */
typedef struct fl_op {
    enum fl_op_kind kind;
    unsigned flags;
    fl_durable timer;
    uint64_t name_hash; /* fl_store_hash() of the namespace and the name in `timer`, or 0 if you have not computed it */
    /* The answer. */
    int result; /* 0; FL_TIMER_NOT_FOUND: it does not exist, or has fired; FL_EXISTS; FL_CHANGED; FL_BUSY: an attempt is in
                 * progress; FL_INVALID_ARGUMENT, FL_INVALID_TIMER_ID, FL_TOO_LARGE, FL_INVALID_DEADLINE; FL_STOPPED: nothing
                 * has happened, and `timer` is as you gave it; FL_NO_MEMORY; errors of the store */
    enum fl_outcome outcome; /* of FL_OP_CREATE */
    int64_t died_us;         /* of FL_OP_DEAD_…: when it became a dead letter, and why */
    fl_bytes reason;
} fl_op;

enum { FL_ATOMIC_MOST = 16384, FL_ATOMIC_BYTES_MOST = 64 << 20 };

/* Operations. Those on the same timer take effect in their order. Each succeeds or fails by itself, unless `atomic`. */
struct fl_batch {
    fl_op *ops;
    size_t count;
    void (*done)(
        fl_batch *batch); /* called when all have results, never inside fl_engine_submit(). The batch is yours again */
    void *arg;            /* yours */
    /* All operations take effect in one transaction or none does, and all have the same result. The first may be any
     * FL_OP_CREATE, FL_OP_UPDATE or FL_OP_CANCEL, the others are FL_OP_CREATE without names. At most FL_ATOMIC_MOST, with
     * FL_ATOMIC_BYTES_MOST bytes in all: else FL_TOO_LARGE. A creation that is the first operation replaces a timer
     * even if its content is the same. */
    bool atomic;
    /* Of FL_ADVANCE, and of an atomic batch whose first operation is not a creation without a name; may be NULL. Called right
     * before the batch is written, when the IDs of the new timers are known, except that of the first operation. It may change
     * the payload of the first operation, for example to note these IDs there. It may be called several times, with other
     * IDs: the last call counts. Do not call the engine from it. */
    void (*compose)(fl_batch *batch);
    /* The engine's. */
    size_t left;
    void *bytes;
    fl_batch *next;
};

/* Submits a batch. Do not change the batch, or anything that it points to, before `done`. */
void fl_engine_submit(fl_engine *engine, fl_batch *batch);

/* Where the next page of a list begins. Zero: the first page. Treat it as opaque. An invalid cursor is refused
 * (FL_INVALID_ARGUMENT) or gives an empty page. */
typedef struct fl_cursor {
    uint64_t part[4];
} fl_cursor;

typedef struct fl_listing fl_listing;

/* A page of timers, approximately in order of time. Lists go from window to window (33 seconds for near ones, months for far
 * ones), and within a window in the order in which timers were filed. Overdue timers, retries and timers that were put off are
 * at the time of their next attempt. Parked timers come last. A timer that is parked between two pages may be in both. Timers
 * that are created, moved or fired between two pages may be missing.
 *
 * A page ends after a bounded number of rows, whatever the filters are. So a page may have few timers or none, and still have
 * `more`. A range that begins in the future is fast. Any other range reads all timers, page by page. If the clock was set back
 * since, some timers are found only by a range that begins before now: those that were overdue at creation, were attempted, or
 * waited in a lane. */
struct fl_listing {
    bool dead;                 /* list dead letters instead, in order of creation */
    fl_bytes ns;               /* size 0: all */
    fl_bytes prefix;           /* of the name; size 0: all */
    fl_bytes name_contains;    /* size 0: all */
    fl_bytes target_prefix;    /* size 0: all */
    fl_bytes schedule;         /* the whole name; size 0: all */
    fl_bytes reason_contains;  /* of dead ones; size 0: all */
    int64_t from_us, until_us; /* from_us <= due_us < until_us; 0: no limit */
    size_t limit;              /* timers; 0: 100, at most 10,000. A page also ends at 1 MiB, with `more` set */
    fl_cursor cursor;
    void (*done)(fl_listing *listing);
    void *arg;
    /* The answer, valid until `done` returns. */
    int result;
    const fl_op *found; /* `timer`; for dead letters also died_us and reason */
    size_t count;
    bool more; /* there is a next page, at `cursor` */
};

void fl_engine_list(fl_engine *engine, fl_listing *listing);

/* --- Forecast ---------------------------------------------------------------------------------------------------- */

enum { FL_FORECAST_BARS = 366 };

typedef struct fl_forecast_bar {
    uint64_t timers;
    uint64_t spread; /* how many of those are estimated, because their window reaches beyond the bar */
} fl_forecast_bar;

typedef struct fl_forecast fl_forecast;

/* How many first attempts and retries become due in each span of time from now on. Overdue timers do not count. The figures come
 * from counters per window (33 seconds for near ones, 38 hours for those months ahead) and from memory, so a forecast takes
 * about as long for ten timers as for ten million. */
struct fl_forecast {
    fl_bytes ns; /* size 0: every namespace whose first byte is not below `first_byte` */
    uint8_t first_byte;
    int64_t from_us;       /* where the first bar begins */
    uint64_t step_us;      /* how long each is */
    size_t count;          /* at most FL_FORECAST_BARS */
    fl_forecast_bar *bars; /* the caller's; they are overwritten */
    void (*done)(fl_forecast *forecast);
    void *arg;
    int result;
};

/* Calls `done`, possibly before it returns. The result is 0, FL_INVALID_ARGUMENT, FL_NO_MEMORY, FL_STORE_…, FL_SHARD_LOST or
 * FL_STOPPED. The namespace and the bars must stay valid until then. */
void fl_engine_forecast(fl_engine *engine, fl_forecast *forecast);

/* --- History ----------------------------------------------------------------------------------------------------- */

/* Appends rows to the history of the shard. The engine copies them, sets their numbers (`seq` is ignored) and writes them with
 * the next record of its progress, at the latest after `record_interval_us`. They need no transaction of their own. A crash
 * loses rows that were not written yet. If the store refuses rows or does not keep up, rows are lost, but never a timer.
 * Returns how many rows it has taken. It does not take rows with a namespace, name, schedule, result or body that
 * fl_history_row does not allow. */
size_t fl_engine_history(fl_engine *engine, const fl_history_row *rows, size_t count);

/* Sets how long the history of a namespace is kept. UINT64_MAX: as configured. Rows are deleted in spans of time, when no
 * namespace keeps any row of the span. Until then, lists hide rows that are too old. Returns 0, FL_INVALID_ARGUMENT or
 * FL_NO_MEMORY. */
int fl_engine_keep_history(fl_engine *engine, fl_bytes ns, uint64_t keep_us);

typedef struct fl_history_listing fl_history_listing;

/* A page of history, newest first, in the order in which rows were appended. A page ends after a bounded number of rows,
 * so it may have few rows or none and still have `more`. It includes all rows that were appended before. */
struct fl_history_listing {
    fl_bytes ns, name, schedule; /* size 0: all */
    fl_key id;                   /* of the timer; seq 0: all */
    uint32_t results;            /* bit i: rows whose result is i; 0: all */
    int64_t from_us, until_us;   /* from_us <= began_us < until_us; 0: no limit */
    size_t limit;                /* rows; 0: 100, at most 1,000. A page also ends at 1 MiB, with `more` set */
    /* part[1]: only rows with a lower `seq`; 0: all. part[0]: the span to begin with; 0: the last one. To continue after a
     * certain row, use the part[0] with which its page began, and the `seq` of the row. */
    fl_cursor cursor;
    void (*done)(fl_history_listing *listing);
    void *arg;
    /* The answer, valid until `done` returns. */
    int result;
    const fl_history_row *found;
    size_t count;
    bool more; /* there is a next page, at `cursor` */
};

void fl_engine_list_history(fl_engine *engine, fl_history_listing *listing);

typedef struct fl_history_erasure fl_history_erasure;

/* Erases all rows of one timer or of one namespace, also those that are not written yet. If it fails, some rows may be erased. */
struct fl_history_erasure {
    fl_bytes ns; /* size 0: any */
    fl_key id;   /* seq 0: all of the namespace */
    void (*done)(fl_history_erasure *erasure);
    void *arg;
    /* The answer. */
    int result;
    uint64_t erased; /* rows */
};

void fl_engine_erase_history(fl_engine *engine, fl_history_erasure *erasure);

/* --- Statistics -------------------------------------------------------------------------------------------------- */

typedef struct fl_engine_stats {
    uint64_t pending; /* timers that exist and are not settled. A creation of unknown outcome counts when its outcome is
                       * known */
    uint64_t
        loaded; /* timers in memory: those that are due soon, and those whose state in the store is not known yet */
    uint64_t in_flight;        /* attempts that have begun and are not settled */
    uint64_t waiting;          /* attempts that wait in lanes, in memory */
    uint64_t parked, unparked; /* timers that were parked, and loaded again, since the start */
    uint64_t dispatched, fired, failed, retried, again, later, dead,
        skipped; /* since the start; fired: settled with FL_DONE */
    uint64_t created, replaced, updated, cancelled;
    fl_loop_summary lateness_ns; /* time from the due time of a timer to its dispatch */
    int64_t oldest_overdue_us;   /* how late the earliest timer is that has not been dispatched; 0: none is late */
    uint64_t store_writes, store_reads, store_finds, store_deletes, store_records; /* requests */
    uint64_t rows_written, rows_read, rows_deleted;
    uint64_t store_errors;
    uint64_t history_rows, history_lost; /* rows of history that were written, and that were not */
    uint64_t history_bytes;              /* in the store, approximately */
    uint64_t preload_us;                 /* how far ahead timers are loaded at present */
    int64_t loaded_until_us;
    uint64_t windows;        /* in the store */
    uint64_t pressure;       /* how often memory was short */
    uint64_t bytes;          /* held for timers in memory */
    bool owner;              /* it has the shard */
    uint64_t owner_until_ns; /* until then no other owner can claim it, by the loop's clock; 0: it is not the owner */
} fl_engine_stats;

void fl_engine_get_stats(fl_engine *engine, fl_engine_stats *ret);

/* Checks every invariant, for tests and debugging. Takes time in proportion to the timers in memory. Returns 0; or
 * FL_INVALID_ARGUMENT, and writes the broken invariant to `explain` (may be NULL). */
int fl_engine_check(const fl_engine *engine, FILE *explain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
