/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_H
#define FOLIOT_ENGINE_H

/* Durable timers: those of one shard of a store (foliot/store.h), on one event loop.
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
 *         fl_loop_run(loop);      // kill it, start it again: tea will be ready all the same
 *     }
 *
 * What the engine promises:
 *
 *   - A timer whose creation was answered with success is in the store, and fires at least once, whatever crashes. Never
 *     before its time, by the wall clock.
 *   - A cancel that was answered with success: no firing begins afterwards. An update that moves a timer neither loses nor
 *     doubles it.
 *   - A crash repeats at most what was settled since the last record (`record_interval_us`).
 *   - Of several engines that believe to own a shard only one writes. One that has lost it fires nothing more from the
 *     moment it learns of it, which is at the latest when the claim that it could not renew has run out.
 *   - Timers follow the wall clock when it is set; none is lost, none fires twice because of it. An attempt that is to be
 *     repeated has a time like any other, and so has a timer that was due when it was created (that of its creation): if
 *     the clock is set back first, they wait until it is that time again. A clock beyond the year 2554 is taken to stand
 *     still there.
 *   - Memory is bounded: at most `max_memory_timers` timers and about `max_memory_bytes` bytes are held. Timers that are due
 *     later are in the store only, and are read when there is room.
 *
 * How it works: windows of timers are loaded ahead into a timing wheel; what is due goes to the dispatcher, in batches;
 * what has been settled is deleted a window at a time (FL_PRELOAD), or row by row (FL_LOOKAHEAD, which holds almost nothing
 * in memory and asks the store more often).
 *
 * Threads: everything here belongs to the thread of the loop, callbacks included.
 *
 * Errors: 0, or a negative code of foliot/error.h. For an operation, fl_store_failure() says whether nothing has happened, the
 * shard was lost, or the outcome is unknown (FL_OUTCOME_UNKNOWN: ask again later; such a timer may fire).
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

/* What happens when an attempt has failed: it is repeated after `initial_us`, then after `multiplier` times as long, and so
 * on up to `max_interval_us`, each time shortened at random by up to a fifth; given up after `max_attempts` in all, or
 * `max_age_us` after it was first due. All zero: the engine's default (fl_engine_config.retry). */
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
    fl_key id;           /* given out by the engine; to find a timer without a name */
    int64_t due_us;      /* when it is due, before FL_STORE_TIME_END; the past counts as now */
    int64_t created_us;  /* given out by the engine, to the millisecond */
    fl_bytes payload;    /* at most `max_payload` bytes */
    fl_bytes target;     /* where to; the dispatcher's affair. At most 4096 bytes */
    fl_bytes headers;    /* the dispatcher's affair. At most 16 KiB */
    uint64_t timeout_us; /* the dispatcher's affair */
    fl_retry retry;
    uint32_t
        attempt; /* how many have been made, as far as it is in the store how they ended; with a firing, this one too */
    uint64_t revision; /* given out by the engine, anew whenever the timer is filed again: see FL_OP_ONLY_REVISION */
    /* Of a timer that a schedule has created. The engine only keeps them. */
    fl_bytes schedule;     /* the schedule's name, up to 255 bytes; size 0: none, and the times are not kept */
    int64_t occurrence_us; /* the nominal time of this occurrence, and of those before and after it; 0: none */
    int64_t previous_us, next_us;
    /* The due time in civil time, as it was given. The engine only keeps them: with FL_OP_SET_DUE, they are set, too. */
    fl_bytes local; /* up to 64 bytes */
    fl_bytes zone;  /* up to 255 bytes */
    /* Debounce. FL_OP_CREATE and FL_OP_SET_DUE make a timer due at the latest `max_wait_us` after it was first created, however often
     * FL_OP_CREATE replaces it. What has begun to fire is not replaced in this sense: then, everything starts anew. */
    uint64_t max_wait_us; /* 0: no limit */
    bool merge_first;     /* the new timer keeps the payload of the one that it replaces */
    uint32_t replaced;    /* given out by the engine: how often it was replaced */
    int64_t
        first_created_us; /* given out by the engine: when the first of them was created, if it was replaced; else 0 */
} fl_durable;

/* The due time of what is kept and never fires. */
#define FL_TIME_NEVER_US (FL_STORE_TIME_END - 1)

/* An ID as text: 26 letters and digits that sort by shard, time and sequence number. */
enum { FL_ID_TEXT = 26 };
void fl_id_format(uint32_t shard, fl_key id, char out[FL_ID_TEXT + 1]);

/* The reverse. Returns 0, or FL_INVALID_TIMER_ID if `text` is not an ID. Upper and lower case are the same. */
int fl_id_parse(const char *text, size_t size, uint32_t *ret_shard, fl_key *ret_id);

/* --- Firing ------------------------------------------------------------------------------------------------------ */

typedef struct fl_firing {
    uint64_t token;   /* names this attempt until it is settled; never 0, never used twice by an engine */
    fl_durable timer; /* valid until the attempt is settled */
    int64_t at_us;    /* when this attempt was to begin; of one that was parked: `timer.due_us` */
    bool parked;      /* it was parked, in this lane: see fl_engine_wait() */
    uint32_t lane;
} fl_firing;

/* Called with what is due. Each must be settled with fl_engine_settle(), at any time, also from here. An attempt begins when
 * it is dispatched, unless the dispatcher makes it wait: see fl_engine_wait(). */
typedef void (*fl_dispatch_fn)(void *arg, fl_engine *engine, const fl_firing *firings, size_t count);

enum fl_settle {
    FL_DONE = 0,    /* it is over */
    FL_FAILED = 1,  /* again, as the retry policy says, and not before `at_us` if that is set */
    FL_AGAIN = 2,   /* again at `at_us`, with the count of attempts starting anew; FL_DEAD after FL_STORE_TIME_END */
    FL_DEAD = 3,    /* give it up: it goes to the dead letters */
    FL_LATER = 4,   /* it could not be attempted now: again at `at_us`, and this time does not count as an attempt */
    FL_EXPIRED = 5, /* as FL_FAILED, but the next attempt is due at once: the lease of this one has ended */
    FL_ADVANCE = 6, /* it goes on as `batch` says, and creates timers, in one transaction: see below */
    FL_SKIP = 7,    /* it is over without an attempt; as FL_DONE, but counted as skipped */
};

typedef struct fl_settlement {
    uint64_t token;
    enum fl_settle result;
    int64_t at_us;
    fl_bytes reason; /* of FL_FAILED, FL_EXPIRED and FL_DEAD, for people; cut after 1024 bytes */
    fl_batch *batch; /* of FL_ADVANCE */
} fl_settlement;

/* FL_ADVANCE is for a timer that creates timers, such as a schedule. The first operation of `batch` is an FL_OP_UPDATE with
 * FL_OP_SET_DUE and perhaps more: so the timer goes on, with its ID, its name, and its attempts starting anew. It needs
 * neither name nor ID. The others are FL_OP_CREATE without names. All of it takes effect in one transaction or not at all.
 *
 *     fl_op ops[] = {{.kind = FL_OP_UPDATE, .flags = FL_OP_SET_DUE | FL_OP_SET_PAYLOAD, .timer = {.due_us = next_us, …}},
 *                    {.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("kitchen"), .due_us = now_us, …}}};
 *     fl_batch batch = {.ops = ops, .count = 2, .done = advanced};
 *     fl_settlement settlement = {.token = firing->token, .result = FL_ADVANCE, .batch = &batch};
 *     fl_engine_settle(engine, &settlement, 1);
 *
 * The batch must stay as it is until its `done`, which is called when the outcome is known. All its operations have the
 * same result: 0; FL_TIMER_NOT_FOUND, if the timer was replaced before it was settled, and then nothing was done; or any
 * other code, if the engine stops, has lost its shard or begins anew: then the timer fires again, unless it has taken effect.
 * If the store refuses, the engine tries again. If the store does not say whether it took effect, the engine asks until it
 * knows, and none of the timers fires before.
 *
 * Settles attempts. Returns how many of the tokens named an attempt in progress. A settlement whose result is not in
 * enum fl_settle, or whose batch cannot be executed, settles nothing and does not count. */
size_t fl_engine_settle(fl_engine *engine, const fl_settlement *settlements, size_t count);

/* --- Waiting ------------------------------------------------------------------------------------------------------ */

/* A dispatcher that cannot begin an attempt at once makes it wait in a lane: for example one lane per host, or one per
 * namespace that is polled. While an attempt waits, its timer can be cancelled, replaced and changed like one that is not due
 * yet (see `withdraw` of fl_engine_config), and it does not count against `max_in_flight`.
 *
 * A lane has a share of the memory for waiting timers: half of what the other lanes leave. The engine parks what exceeds the
 * share: it files the timer in the store under its lane and loads it again, in the order of parking, when the lane has used up
 * half of its share. So a lane that takes nothing delays no other lane, whatever waits in it. An attempt that has waited
 * counts for its lane until it is settled.
 *
 * Lanes are numbers below 2^24 that the dispatcher derives from what a timer is; the store remembers them. If two lanes have
 * the same number, they share one place.
 *
 * If the clock is set back while a timer is parked, it waits until it is due again; of a retry only that time is known, not when
 * the retry was to be.
 *
 * fl_engine_wait() is for an attempt that was dispatched and has not begun; one that waits already leaves its lane for the
 * other. Returns true if the attempt waits: then either
 * fl_engine_begin() or fl_engine_settle() follows, or the engine withdraws it. `handle` is yours, for `withdraw`. Returns
 * false if the engine has taken the attempt back: then the token and the bytes of the firing are invalid. */
bool fl_engine_wait(fl_engine *engine, uint64_t token, uint32_t lane, void *handle);

/* An attempt that has waited begins. Returns false if it must not: settle it as FL_LATER. With `counted`, the attempt counts
 * even if it is never settled: the next owner of the shard takes it for FL_EXPIRED, if it began before the last record. */
bool fl_engine_begin(fl_engine *engine, uint64_t token, bool counted);

/* Closes or opens a lane. What is dispatched and waits in a closed lane is parked, and what is parked there stays. A lane is
 * open until it is closed; the store does not remember it. Attempts that wait already are not affected. Returns 0,
 * FL_INVALID_ARGUMENT or FL_NO_MEMORY. */
int fl_engine_close_lane(fl_engine *engine, uint32_t lane, bool closed);

/* Whether the engine still owns the shard, by the clock of its loop, which is read again. A dispatched attempt may have waited,
 * or the process may have been stopped, for longer than a claim lasts. Then another owner may have the shard, and fires all
 * timers that are not settled. To avoid a second execution, ask right before the work begins, and settle the attempt as
 * FL_LATER if the answer is false. */
bool fl_engine_owns(fl_engine *engine);

/* --- The engine -------------------------------------------------------------------------------------------------- */

enum fl_strategy { FL_PRELOAD = 0, FL_LOOKAHEAD = 1 };

enum fl_engine_event {
    FL_ENGINE_READY,   /* the shard is claimed and what is near has been loaded */
    FL_ENGINE_LOST,    /* another owner has claimed the shard: nothing fires any more. Stop the engine */
    FL_ENGINE_HELD,    /* the shard is another owner's; it is tried again each time a claim could have run out */
    FL_ENGINE_TROUBLE, /* the store refuses or does not answer; it is tried again */
};

/* How a timer has ended other than by FL_DONE. */
enum fl_ended {
    FL_ENDED_DEAD,    /* given up, by its retry policy or by its dispatcher (FL_DEAD): it is a dead letter now */
    FL_ENDED_SKIPPED, /* it fell due too long before the shard was claimed */
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
    /* An attempt that waits is wanted back: its timer is cancelled, replaced or changed, or is not due any more. Return true
     * if the attempt has not begun: the token and the bytes of the firing are invalid then. Return false if it has begun,
     * perhaps on another thread. NULL: nothing is given back. */
    bool (*withdraw)(void *arg, fl_engine *engine, uint64_t token, void *handle);
    /* `more` timers of a namespace are pending, or -`more` fewer. The sum of all calls is exact: at the claim the store
     * counts what is there, and before the engine is gone each sum is 0 again. Call nothing of the engine's from it. */
    void (*counted)(void *arg, fl_engine *engine, fl_bytes ns, int64_t more);
    /* How many microseconds from `from_us` to `until_us` do not count toward the `max_age_us` of this timer, because it was
     * paused. Asked when a timer would be given up for its age. NULL: all count. Call nothing of the engine's from it. */
    uint64_t (*paused)(void *arg, fl_engine *engine, const fl_durable *timer, int64_t from_us, int64_t until_us);
    fl_wall_clock *clock; /* NULL: the system's */
    uint64_t claim_us;    /* a claim is good for so long, and renewed three times as often; 0: 5 s. At most a day */
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
    uint64_t preload_us;         /* how far ahead timers are loaded; 0: 2 min. Less when memory is short */
    uint64_t delete_interval_us; /* how often what is settled is deleted (by FL_LOOKAHEAD too, if there are fewer than
                                  * `delete_batch`), and sooner when memory is short; 0: 30 s. At most a day */
    /* FL_LOOKAHEAD */
    uint64_t lookahead_us;     /* how far ahead timers are loaded; 0: 1 s */
    uint64_t load_interval_us; /* how often at least to ask the store, 1 to 30 s; 0: 5 s */
    uint32_t load_batch;       /* rows it is asked for at once; 0: 1,000 */
    uint32_t delete_batch;     /* rows that are settled before they are deleted; 0: 1,000 */
    /* History */
    uint64_t history_bytes;     /* in the store at most, about; beyond that the oldest goes; 0: 1 GiB */
    uint64_t history_keep_us;   /* how long rows are kept at least, unless they are too many; 0: 3 days */
    uint64_t max_history_bytes; /* in memory, until they are written; 0: 8 MiB. Rows beyond that are lost */
    /* After a time of silence */
    uint64_t catch_up_rate; /* how many that fell due before the claim fire in a second, at most; 0: no limit */
    uint64_t skip_older_us; /* those that are later than this by the time of the claim do not fire; 0: all fire */
    uint64_t seed;          /* of the randomness of retries; 0: from the system */
} fl_engine_config;

/* Makes an engine, which begins to claim its shard. Operations may be submitted at once. The configuration is copied; what
 * it points to must outlive the engine, but `owner`. Returns 0; FL_INVALID_ARGUMENT; FL_NO_MEMORY; what fl_store_attach()
 * returns. */
int fl_engine_start(const fl_engine_config *config, fl_engine **ret);

/* Lets an engine fire that was told to wait: by then, it may have been asked for what the program has to know first. */
void fl_engine_go(fl_engine *engine);

/* Stops the engine: it fires nothing more and begins no more operations (FL_STOPPED); what is under way and not settled by
 * now will be repeated by the next owner. It records its progress, lets go of the shard and calls `done` when it is gone.
 * With `now`, it does neither: as if the process had died. Not inside a callback of the engine's. */
void fl_engine_stop(fl_engine *engine, bool now, fl_loop_fn done, void *arg);

/* For timers of one namespace: how late is too late. UINT64_MAX: the engine's own setting. A namespace whose name begins with a byte
 * below 0x20 is the program's own: nothing in it is too late unless it is set here. Returns 0 or FL_NO_MEMORY. */
int fl_engine_skip_older(fl_engine *engine, fl_bytes ns, uint64_t skip_older_us);

/* The wall clock was set: look at it. (With the system's clock, the engine finds out by itself.) */
void fl_engine_clock_changed(fl_engine *engine);

/* Whether the engine has nothing to do but to wait: for the clock, for the dispatcher, for fl_engine_go(), or, when it has
 * lost its shard, for fl_engine_stop(). Then `*ret_next_us` is a time before which nothing falls due but what waits for one
 * of the others; perhaps nothing does then either, because what was to come has been cancelled. INT64_MAX: nothing is
 * there, or nothing that the clock would bring. For programs that turn the clock themselves: turn it
 * to that time, call fl_engine_clock_changed(), let the loop run until the engine is idle again. */
bool fl_engine_idle(fl_engine *engine, int64_t *ret_next_us);

/* --- Operations -------------------------------------------------------------------------------------------------- */

enum fl_op_kind {
    FL_OP_CREATE,
    FL_OP_GET,      /* by name; or by ID, in any namespace or, if `ns` is given, in that one only */
    FL_OP_UPDATE,   /* the same; `flags` says what */
    FL_OP_CANCEL,   /* the same. FL_BUSY after an attempt has begun and until it is settled */
    FL_OP_DEAD_GET, /* by ID, in any namespace or in that which is given */
    /* By ID: it is due now, or with FL_OP_SET_DUE at `due_us`, and no longer at a civil time; its attempts start anew. */
    FL_OP_DEAD_REDRIVE,
    FL_OP_DEAD_DELETE, /* by ID */
};

/* Any other flag is refused (FL_INVALID_ARGUMENT); those of another kind of operation do not matter. */
enum {
    /* FL_OP_CREATE with a name that is taken. 0: the same content answers the same timer, any other replaces it. */
    FL_OP_ONLY_NEW = 1,   /* FL_EXISTS, whatever its content */
    FL_OP_NO_REPLACE = 2, /* FL_EXISTS if the content differs */
    /* FL_OP_UPDATE: what of `timer` is to be set. */
    FL_OP_SET_DUE = 4,
    FL_OP_SET_TARGET = 8,
    FL_OP_SET_HEADERS = 16,
    FL_OP_SET_PAYLOAD = 32,
    FL_OP_SET_TIMEOUT = 64,
    FL_OP_SET_RETRY = 128,
    /* FL_OP_CREATE with a name that is not taken. */
    FL_OP_ONLY_REPLACE = 256, /* FL_TIMER_NOT_FOUND; without a name it is refused */
    /* FL_OP_CREATE with a name: replaces only the timer whose ID is `timer.id`, so that a program can read a timer and
     * replace what it has read. FL_EXISTS: another timer has the name; FL_TIMER_NOT_FOUND: no timer has it. Without a name,
     * it is refused. */
    FL_OP_ONLY_THIS = 512,
    /* FL_OP_CREATE with a name, FL_OP_UPDATE and FL_OP_CANCEL: only if the timer is still as it was read, by
     * `timer.revision`. FL_CHANGED: it is not; FL_TIMER_NOT_FOUND: it is gone. A timer that advances (FL_ADVANCE) keeps its
     * ID, so FL_OP_ONLY_THIS does not notice that. */
    FL_OP_ONLY_REVISION = 1024,
    FL_OP_SET_MAX_WAIT = 2048, /* FL_OP_UPDATE: `max_wait_us` */
    FL_OP_SET_MERGE = 4096,    /* FL_OP_UPDATE: `merge_first` */
};

enum fl_outcome { FL_CREATED, FL_SAME, FL_REPLACED };

/* One operation. `timer` says what; when it is done, `timer` is what is there now (of a cancelled one: what was). Its bytes
 * are then the engine's, valid until the batch's `done` returns. */
typedef struct fl_op {
    enum fl_op_kind kind;
    unsigned flags;
    fl_durable timer;
    uint64_t name_hash; /* fl_store_hash() of the namespace and the name in `timer`, or 0 if you have not computed it */
    /* The answer. */
    int result; /* 0; FL_TIMER_NOT_FOUND: not there, or has fired; FL_EXISTS; FL_CHANGED; FL_BUSY: an attempt is under way;
                 * FL_INVALID_ARGUMENT, FL_INVALID_TIMER_ID, FL_TOO_LARGE, FL_INVALID_DEADLINE; FL_STOPPED: nothing
                 * has happened, and `timer` is as you gave it;
                 * FL_NO_MEMORY; what stores answer */
    enum fl_outcome outcome; /* of FL_OP_CREATE */
    int64_t died_us;         /* of FL_OP_DEAD_…: when, and why */
    fl_bytes reason;
} fl_op;

enum { FL_ATOMIC_MOST = 16384, FL_ATOMIC_BYTES_MOST = 64 << 20 };

/* Operations in order. Those on the same timer take effect in that order; each succeeds or fails by itself. */
struct fl_batch {
    fl_op *ops;
    size_t count;
    void (*done)(
        fl_batch *batch); /* when all are answered; the batch is yours again. Never inside fl_engine_submit() */
    void *arg;            /* yours */
    /* All operations take effect in one transaction or none does, and all have the same result. The first may be any
     * FL_OP_CREATE, FL_OP_UPDATE or FL_OP_CANCEL, the others are FL_OP_CREATE without names. At most FL_ATOMIC_MOST, with
     * FL_ATOMIC_BYTES_MOST bytes in all: else FL_TOO_LARGE. The first one replaces a timer even if its content is the
     * same. */
    bool atomic;
    /* Of FL_ADVANCE, and of an atomic batch whose first operation is not a creation without a name; may be NULL. Called right
     * before the batch is written, when the IDs of the new timers are known (but of the first operation): it may change the
     * payload of the first operation, for example to note these IDs there. It may be called several times: the IDs that count
     * are those of the last. Call nothing of the engine's from it. */
    void (*compose)(fl_batch *batch);
    /* The engine's. */
    size_t left;
    void *bytes;
    fl_batch *next;
};

/* Submits a batch. It must stay as it is, with all it points to, until `done`. */
void fl_engine_submit(fl_engine *engine, fl_batch *batch);

/* Where a list goes on. Zero: at the beginning. Treat it as opaque; one that was made up is refused
 * (FL_INVALID_ARGUMENT) or leads nowhere. */
typedef struct fl_cursor {
    uint64_t part[4];
} fl_cursor;

typedef struct fl_listing fl_listing;

/* A page of timers, roughly in order of time: a window (33 seconds that are near, months that are far away) after the other
 * and within a window in the order in which they were filed: what was overdue when it was created, waits for another
 * attempt or was put off stands where that will be. What is created, moved or fired meanwhile may be seen or not. A range
 * that begins in the future is quick; one that does not looks through all that is there, a page at a time, and a page may
 * come back with few timers or none and yet have `more`: it ends after a bounded number of rows, whatever the filters say.
 * (What was created with a time that was past, attempted, or waited in
 * a lane, by a clock that was set back since is sure to be found only by a range that begins before now.) What is parked in a
 * lane comes last; a timer that is parked between two pages may be in both. */
struct fl_listing {
    bool dead;                 /* those given up instead, in order of creation */
    fl_bytes ns;               /* size 0: all */
    fl_bytes prefix;           /* of the name; size 0: all */
    fl_bytes name_contains;    /* size 0: all */
    fl_bytes target_prefix;    /* size 0: all */
    fl_bytes schedule;         /* the whole name; size 0: all */
    fl_bytes reason_contains;  /* of dead ones; size 0: all */
    int64_t from_us, until_us; /* due_us from, and before; 0: no limit */
    size_t limit;              /* timers; 0: 100, at most 10,000. Fewer come once they have 1 MiB, with `more` set */
    fl_cursor cursor;
    void (*done)(fl_listing *listing);
    void *arg;
    /* The answer, valid until `done` returns. */
    int result;
    const fl_op *found; /* `timer`, and of dead ones died_us and reason */
    size_t count;
    bool more; /* and `cursor` says where */
};

void fl_engine_list(fl_engine *engine, fl_listing *listing);

/* --- Forecast ---------------------------------------------------------------------------------------------------- */

enum { FL_FORECAST_BARS = 366 };

typedef struct fl_forecast_bar {
    uint64_t timers;
    uint64_t spread; /* how many of those are the share of a window that is longer than the bar, or reaches beyond it */
} fl_forecast_bar;

typedef struct fl_forecast fl_forecast;

/* How many timers fall due when, after now: first attempts and those that are to be repeated. What is overdue is not counted. The
 * figures come from counters per window (33 seconds for what is near, 38 hours for what is months away) and from memory, so that
 * it takes about as long for ten timers as for ten million. */
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

/* Answers with `done`, perhaps before it returns. The result is 0, FL_INVALID_ARGUMENT, FL_NO_MEMORY, FL_STORE_…, FL_SHARD_LOST or FL_STOPPED. The namespace
 * and the bars must stay until then. */
void fl_engine_forecast(fl_engine *engine, fl_forecast *forecast);

/* --- History ----------------------------------------------------------------------------------------------------- */

/* Appends rows to the history of the shard: what has happened to timers, as you tell it. The engine copies them, gives them
 * numbers (`seq` does not matter) and writes them with the next record of its progress, at the latest after
 * `record_interval_us`: no transaction is made for them, and nothing is written while there are none. A crash loses what was
 * not written. If the store refuses them or does not keep up, rows are lost, and never a timer. Returns how many it has
 * taken. Rows with a namespace, name, schedule, result or body that the store does not allow (fl_history_row) are not
 * taken. */
size_t fl_engine_history(fl_engine *engine, const fl_history_row *rows, size_t count);

/* How long the history of a namespace is kept. UINT64_MAX: as configured. Rows go in spans of time, when no namespace keeps
 * any row of the span; until then, lists do not show those that are too old. Returns 0, FL_INVALID_ARGUMENT or
 * FL_NO_MEMORY. */
int fl_engine_keep_history(fl_engine *engine, fl_bytes ns, uint64_t keep_us);

typedef struct fl_history_listing fl_history_listing;

/* A page of history, newest first, in the order in which rows were appended. A page ends after a bounded number of rows was
 * looked at, and may come back with few rows or none and yet have `more`. Includes all rows appended before. */
struct fl_history_listing {
    fl_bytes ns, name, schedule; /* size 0: all */
    fl_key id;                   /* of the timer; seq 0: all */
    uint32_t results;            /* bit i: rows whose result is i; 0: all */
    int64_t from_us, until_us;   /* began_us from, and before; 0: no limit */
    size_t limit;                /* rows; 0: 100, at most 1,000. Fewer come once they have 1 MiB, with `more` set */
    /* part[1]: only rows with a lower `seq` than this, 0: all. part[0] says where to look for them, 0: from the last span on. To go
     * on behind a row, take the part[0] that its page began with, and the row's `seq`. */
    fl_cursor cursor;
    void (*done)(fl_history_listing *listing);
    void *arg;
    /* The answer, valid until `done` returns. */
    int result;
    const fl_history_row *found;
    size_t count;
    bool more; /* and `cursor` says where */
};

void fl_engine_list_history(fl_engine *engine, fl_history_listing *listing);

typedef struct fl_history_erasure fl_history_erasure;

/* Erases all rows of one timer or of one namespace, those included that were appended and not written yet. If it fails, some may
 * be erased. */
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
    uint64_t pending; /* timers that are not over: they wait or are under way. One whose creation had no known outcome
                       * counts when it is known that it is there */
    uint64_t loaded;  /* in memory: what is near of them, and what is not known yet to be in the store, or to be gone */
    uint64_t in_flight;        /* attempts that have begun and are not settled */
    uint64_t waiting;          /* attempts that wait in lanes, in memory */
    uint64_t parked, unparked; /* timers that were filed under a lane, and loaded from there, since the start */
    uint64_t dispatched, fired, failed, retried, again, later, dead,
        skipped; /* since the start; fired: settled with FL_DONE */
    uint64_t created, replaced, updated, cancelled;
    fl_loop_summary lateness_ns; /* how long after it was due a timer went to the dispatcher */
    int64_t oldest_overdue_us;   /* how late the earliest that has not been dispatched is; 0: none is */
    uint64_t store_writes, store_reads, store_finds, store_deletes, store_records; /* requests */
    uint64_t rows_written, rows_read, rows_deleted;
    uint64_t store_errors;
    uint64_t history_rows, history_lost; /* rows of history that were written, and that were not */
    uint64_t history_bytes;              /* in the store, about */
    uint64_t preload_us;                 /* how far ahead it loads now */
    int64_t loaded_until_us;
    uint64_t windows;        /* in the store */
    uint64_t pressure;       /* how often memory was short */
    uint64_t bytes;          /* held for timers in memory */
    bool owner;              /* it has the shard */
    uint64_t owner_until_ns; /* until then no other owner can have it, by the loop's clock; 0: it does not own it */
} fl_engine_stats;

void fl_engine_get_stats(fl_engine *engine, fl_engine_stats *ret);

/* Checks every invariant, in time proportional to what is in memory. Returns 0, or FL_INVALID_ARGUMENT after having
 * written what is broken to `explain` (may be NULL). For tests and debugging. */
int fl_engine_check(const fl_engine *engine, FILE *explain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
