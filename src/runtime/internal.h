/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_INTERNAL_H
#define FOLIOT_RUNTIME_INTERNAL_H

/* What the files of the runtime share. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/nodes.h>

#include "base/counter.h"
#include "base/histogram.h"
#include "base/moment.h"
#include "base/record.h"
#include "loop/loop.h"
#include "runtime/entries.h"
#include "runtime/handle.h"
#include "runtime/mailbox.h"
#include "runtime/tasks.h"
#include "runtime/runtime.h"

enum {
    TIMER_BUDGET = 64, /* timers of each wheel fired in a turn */
    WORK_BUDGET = 32,  /* messages and tasks run in a turn */
    OUTSIDE_STRIPES = 16,
};

#define RETRY_NS 1000000u /* how soon is tried again what there was no memory for */

/* --- Counting */

struct runtime_counters {
    counter scheduled, rescheduled, fired, cancelled, migrated, tasks, stale_dropped, scrubbed, scrub_longest;
};

/* --- Requests: what any thread may ask of a worker or of the metronome without memory for a message. The thread that sets
 * the first bit owns the message and sends it. */

enum request {
    REQUEST_SCRUB = 1,   /* worker: much has been left behind */
    REQUEST_LEAVE = 2,   /* worker: leave, or stop */
    REQUEST_TICK = 4,    /* metronome: a worker is busy */
    REQUEST_DEAL = 8,    /* metronome: there are workers again */
    REQUEST_STOP = 16,   /* metronome */
    REQUEST_LOOK = 32,   /* worker: wake up, there is work for any worker */
    REQUEST_WATCH = 128, /* metronome: a common timer is due before it wanted to look */
    REQUEST_SPREAD = 64, /* worker: give new workers a share of your timers */
};

struct requests {
    _Alignas(CACHE_LINE) atomic_uint bits;
    struct fl__message message;
};

/* --- Scrubbing. A remote cancel counts what it leaves behind in the stripe of the entry's bucket. */

struct stripe {
    _Alignas(CACHE_LINE) _Atomic uint64_t cancelled; /* by threads that were not the timer's worker */
    _Atomic uint64_t moved;                          /* started anew elsewhere */
};

struct scrub {
    bool active;
    uint32_t cursor;             /* the next slot to look at */
    uint32_t budget;             /* of a turn of this pass */
    uint64_t accounted[BUCKETS]; /* of what the stripes have counted: found, or known not to be here */
    uint64_t mark[BUCKETS];      /* what they had counted when the pass began */
    bool skipped[BUCKETS];       /* by this pass */
};

/* --- Spreading: handing a share of the timers to workers that are new. */

struct spread {
    uint64_t left;   /* how many are still to be handed over */
    uint32_t cursor; /* the next slot to look at */
    uint16_t first_taker, next_taker;
};

/* --- A shelf: a wheel, and the table of what is in it.
 *
 * Each worker has two. Its own has the timers that its callbacks have started, and only its thread touches it. The
 * common one has those that came from elsewhere: they need not fire on this worker, so when it is stuck in a callback,
 * others fire what is due; it has a lock, which is not held while a callback runs. */

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what several threads write to is cache lines apart */
struct shelf {
    struct fl__worker *owner;
    bool common;
    pthread_mutex_t lock; /* of a common one, and for all of it but what is atomic */
    fl_nodes *wheel;      /* NULL: the worker has left */
    struct entries table;
    struct scrub scrub;
    struct spread spread;
    counter entries;                               /* in the table */
    _Alignas(CACHE_LINE) _Atomic uint64_t next_ns; /* of a common one: not after the next deadline; NEVER: none */
    struct stripe stripes[BUCKETS];
};

/* --- A worker. It outlives its thread: see worker.h. */

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): what several threads write to is cache lines apart */
struct fl__worker {
    fl_runtime *rt;
    unsigned index;
    bool leaving, left;
    fl_loop *loop;
    uint64_t now_ns; /* the last reading of the clock */
    struct shelf own, common;
    fl_nodes *local;            /* the wheel of local timers */
    fl_node *due[TIMER_BUDGET]; /* taken out of its own wheel: in hand are those from due_next on */
    uint32_t due_next, due_count;
    struct stopwatch stopwatch; /* for how long it has been at one kind of work */
    struct message_queue deferred;
    struct message_queue hungry; /* messages for which there was no memory */
    unsigned next_pick;          /* the worker that gets the next message that is for any worker */
    unsigned source;             /* where the last piece of work came from */
    struct fl__worker_layer *layer;
    struct fl__records handles, starts; /* memory for those to come */
    struct runtime_counters counters;
    struct histogram lateness;
    pthread_t thread;

    /* What the metronome reads, and what it writes. */
    _Alignas(CACHE_LINE) _Atomic uint64_t next_ns; /* the wheel's next deadline, NEVER: none */
    atomic_bool awake;
    _Alignas(CACHE_LINE) _Atomic uint64_t timer_now_ns;
    atomic_bool needs_poll;

    /* On a clock of the program (given.c). */
    fl_clock clock;
    _Atomic uint64_t quiet_until_ns; /* 0: it has something to do */

    struct requests requests;
    struct mailbox mailbox;
    struct mailbox assigned; /* tasks that must run here, and do so before the worker leaves */
    struct tasks arrivals;   /* timers on their way to any worker */
    struct tasks tasks;      /* for any worker */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the same */
struct metronome {
    pthread_t thread;
    fl_loop *loop;
    struct message_queue held; /* messages for which there is no worker */
    bool stopping;
    uint64_t planned_ns; /* the next tick */
    unsigned idle_ticks; /* in a row */
    unsigned next_pick;
    uint64_t look_ns; /* when to watch again; NEVER: when asked to */
    counter ticks, late, drift_sum_ns, drift_worst_ns;
    _Alignas(CACHE_LINE) atomic_bool ticking; /* busy workers look at it often */
    _Atomic uint64_t watch_ns; /* the common deadline after which it looks whether that timer has fired */
    struct requests requests;
    struct mailbox mailbox; /* the merge queue */
};

/* Counts of threads that are no workers. */
struct outside {
    _Alignas(CACHE_LINE) _Atomic uint64_t scheduled;
    _Atomic uint64_t rescheduled;
    _Atomic uint64_t cancelled; /* timers that were in no wheel yet */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the same */
struct fl_runtime {
    fl_clock *clock;
    uint64_t tick_ns;
    uint32_t scrub_budget;
    uint64_t slack_ns;
    bool pin;
    bool own_clock; /* waiting may move it: see given.c and metronome.c */
    atomic_bool stopping;
    _Atomic(struct fl__runtime_layer *) layer;
    pthread_mutex_t resizing;
    atomic_uint active;     /* workers 0 … active-1 are there and get work */
    atomic_uint grown_from; /* how many there were before there came more */
    _Atomic(struct fl__worker *) workers[FL_RUNTIME_MAX_WORKERS];
    _Alignas(CACHE_LINE) atomic_uint next_pick;                              /* for threads that are no workers */
    _Alignas(CACHE_LINE) _Atomic uint64_t idle[FL_RUNTIME_MAX_WORKERS / 64]; /* a bit each: it sleeps, or is about to */
    struct outside outside[OUTSIDE_STRIPES];
    struct metronome metronome;
};

extern _Thread_local struct fl__worker *fl__runtime_self __attribute__((tls_model("initial-exec")));

static inline bool runtime_stopping(const fl_runtime *rt)
{
    return atomic_load_explicit(&rt->stopping, memory_order_acquire);
}

static inline struct fl__worker *worker_at(fl_runtime *rt, unsigned index)
{
    return atomic_load_explicit(&rt->workers[index], memory_order_acquire);
}

/* --- runtime.c */

/* Idle workers. The thread that clears the mark of an idle worker wakes it up. */
void fl__runtime_idle_mark(struct fl__worker *worker);
void fl__runtime_idle_clear(struct fl__worker *worker);
bool fl__runtime_idle(fl_runtime *rt, unsigned index);
void fl__runtime_idle_wake_one(fl_runtime *rt); /* if there is one */

/* Gives a message that is for any worker to this one. False: it has left. */
bool fl__runtime_offer(struct fl__worker *worker, struct fl__message *message);

void fl__runtime_request(struct requests *requests, struct mailbox *mailbox, enum request what);
void fl__runtime_merge(fl_runtime *rt, struct fl__message *message); /* into the merge queue */
void fl__runtime_forget_message(struct fl__message *message); /* frees it if it is ours; its timers will not fire */

/* --- thread.c */

/* Returns 0, or FL_SYSTEM with errno. */
int fl__runtime_thread_start(pthread_t *ret, const char *name, bool has_callbacks, void *(*run)(void *arg), void *arg);

/* --- worker.c */

/* A callback is about to begin that may take long: wakes an idle worker if there is work that it could do meanwhile. */
void fl__runtime_ask_for_help(struct fl__worker *worker);

/* Work of one kind begins, for a tick at most: to be asked now and then whether that has passed. */
void fl__runtime_work_begins(struct fl__worker *worker);
bool fl__runtime_work_takes_long(struct fl__worker *worker);

void fl__runtime_on_request(struct fl__worker *worker, struct fl__message *message);
void fl__runtime_turn(struct fl__worker *worker);

/* --- life.c */

int fl__worker_start(fl_runtime *rt, unsigned index);

/* --- timer.c */

extern struct fl__record_pool fl__runtime_timer_pool, fl__runtime_start_pool;

static inline void shelf_lock(struct shelf *shelf)
{
    if (shelf->common)
        pthread_mutex_lock(&shelf->lock);
}

static inline void shelf_unlock(struct shelf *shelf)
{
    atomic_store_explicit(&shelf->entries, shelf->table.live, memory_order_relaxed);
    if (shelf->common)
        pthread_mutex_unlock(&shelf->lock);
}

int fl__runtime_adopt(struct fl__worker *worker, fl_timer *t, uint64_t generation, uint64_t target_ns);
void fl__runtime_run_start(struct fl__worker *worker, struct fl__message *carrier);
void fl__runtime_forget_start(struct fl__message *carrier);

/* This start will not fire any more. Drops the reference of the record or entry that carried it. */
void fl__runtime_forget(fl_timer *t, uint64_t generation);

/* The shelf is locked for these two. The first takes an entry out of the table, and out of the wheel if it is there. The
 * second does so with a stale entry, and counts it in `why`. */
void fl__runtime_remove_entry(struct shelf *shelf, uint32_t slot);
void fl__runtime_drop_stale(struct shelf *shelf, uint32_t slot, counter *why);

void fl__runtime_timer_release(fl_timer *t); /* gives its memory back */
/* The runtime keeps NEVER for "no deadline". */
static inline uint64_t moment(uint64_t time_ns)
{
    return earlier(time_ns, TIME_MAX);
}

/* A timer of the worker: tells the metronome of a deadline that comes before the next turn. A deadline that has passed does
 * not wait for a tick. */
void fl__runtime_publish(struct fl__worker *worker, uint64_t target_ns);

/* --- fire.c */

void fl__runtime_fire(struct fl__worker *worker, fl_node *due);
/* Fires what is due in a common shelf, which may be another worker's; returns how many. */
unsigned fl__runtime_fire_common(struct fl__worker *worker, struct shelf *shelf);
/* Fires local timers that are due, a budget of them and for a tick at most. */
void fl__runtime_fire_local(struct fl__worker *worker);

/* --- given.c */

fl_clock *fl__runtime_given_clock(struct fl__worker *worker); /* for its loop */
void fl__runtime_given_sleep(struct fl__worker *worker, uint64_t next_ns);
void fl__runtime_given_awake(struct fl__worker *worker);

/* --- migrate.c */

void fl__runtime_adopt_segment(struct fl__worker *worker, struct fl__message *message);
void fl__runtime_forget_segment(struct segment *segment);
void fl__runtime_hand_over_timers(struct shelf *shelf); /* to the merge queue; drops them if the runtime stops */
void fl__runtime_spread_begin(struct shelf *shelf);
void fl__runtime_spread_turn(struct shelf *shelf);

/* --- scrub.c */

bool fl__runtime_much_to_sweep(struct shelf *shelf);

uint64_t fl__runtime_stripe_sum(const struct stripe *stripe);
void fl__runtime_scrub_begin(struct shelf *shelf);
void fl__runtime_scrub_turn(struct shelf *shelf);

/* --- metronome.c */

int fl__runtime_metronome_start(fl_runtime *rt);
void fl__runtime_metronome_stop(fl_runtime *rt);

#endif
