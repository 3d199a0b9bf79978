/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_H
#define FOLIOT_RUNTIME_H

/* Timers and tasks on many threads.
 *
 * A runtime is a number of workers, each a thread with a timing wheel and an event loop of its own, and one thread that
 * keeps the time. A timer is a handle that any thread may start, move and cancel; its callback runs on a worker.
 *
 *     static void tea(void *arg)
 *     {
 *         puts(arg);
 *     }
 *
 *     int main(void)
 *     {
 *         fl_runtime *rt;
 *         fl_timer *timer;
 *         if (fl_runtime_new(NULL, &rt) < 0 || fl_timer_new(rt, tea, "tea is ready", &timer) < 0)
 *             return 1;
 *         if (fl_timer_start_after(timer, 3 * 1000000000ull) < 0)
 *             return 1;
 *         sleep(2);
 *         if (fl_timer_cancel(timer))
 *             puts("no tea today");   // tea() will not be called, nor is it being called
 *         fl_timer_unref(timer);
 *         fl_runtime_free(rt);
 *     }
 *
 * Promises about timers:
 *
 *   - Never early, not by a nanosecond of the runtime's clock.
 *   - A timer fires at most once for each start. Of cancelling, firing, starting again and moving to another worker,
 *     exactly one wins, and each caller learns whether it was its own.
 *   - None is lost when workers come and go, even when the last one goes and another comes later.
 *   - No limit on the distance.
 *
 * Where a timer lives: started on a worker (by a callback), it goes straight into that worker's wheel and stays there as long
 * as the number of workers does not change; no other thread is involved. Started elsewhere, it is sent to a worker,
 * and if that worker is stuck in a callback when the timer is due, an idle worker fires it, a tick later.
 *
 * Turns: a worker spends a tick at most on timers that are due, on timers that arrive from elsewhere, on tasks or on
 * coroutines before it sees to the others and to its loop, as far as callbacks, which nothing interrupts, let it. What a
 * timer's callback starts, even for now, does not fire in the same go: others get their turn in between.
 *
 * Threads: every function here may be called by any thread at any time, except that fl_runtime_free() and
 * fl_runtime_resize() must not be called by a worker. No call blocks on another thread but those two. Callbacks may call
 * everything else; while a callback runs, what belongs to its worker waits: timers that were started there, tasks that
 * were spawned on it, its loop.
 *
 * Ownership: `arg` is yours; the runtime hands it to the callback and never looks behind it.
 *
 * Failing: 0, or a negative code of foliot/error.h; then nothing was changed and the out-parameters are untouched.
 */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/clock.h>
#include <foliot/error.h>
#include <foliot/loop.h> /* fl_loop_summary */

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define FL_RUNTIME_MAX_WORKERS 1024

typedef struct fl_runtime fl_runtime;
typedef struct fl_timer fl_timer;

typedef void (*fl_task_fn)(void *arg);

/* The zero value of every member is its default. */
typedef struct fl_runtime_config {
    uint32_t workers;      /* at most FL_RUNTIME_MAX_WORKERS; 0: one for each processor this process may use */
    uint32_t scrub_budget; /* the most timers that one turn of a worker looks at to find cancelled ones; 0: 1024 */
    uint64_t tick_ns;      /* how often a busy worker looks at the clock, and sees to other work; 0: 2^20, about 1 ms */
    bool pin;              /* each worker stays on one processor */
    bool huge_pages;       /* ignored: timers are kept in segments of 64 KiB */
    fl_clock *clock;   /* NULL: CLOCK_MONOTONIC. Used by all workers at once; must outlive the runtime. It is asked to
                            * let time pass when no worker has anything to do, and then by one or more of them */
    uint64_t slack_ns; /* a worker that sleeps may wake this much after its next deadline, so that one wake-up serves
                        * several timers; 0: it wakes at the deadline. Timers stay in order and are never early */
} fl_runtime_config;

/* --- The runtime ------------------------------------------------------------------------------------------------- */

/* Makes a runtime and starts its threads; `config` may be NULL. Signals are blocked in them, except those
 * that a fault in a callback brings about (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS).
 * Returns 0; FL_INVALID_ARGUMENT for too many workers or a tick above 2^40; FL_NO_MEMORY; FL_SYSTEM if there can be no
 * more threads (errno has the reason). */
int fl_runtime_new(const fl_runtime_config *config, fl_runtime **ret);

/* Stops the workers, each after the callback that it is running, and frees the runtime. What had not fired does not
 * fire, and tasks that had not begun do not begin. Handles stay valid until they are unreferenced, but must not be
 * started any more; cancelling them returns false. NULL is allowed. Not by a worker, nor while other threads use the runtime. */
void fl_runtime_free(fl_runtime *rt);

/* Calls `fn` once on some worker: on an idle worker if there is one, else the workers take turns. What has not begun on a
 * worker that is busy is begun by the first that has nothing to do. What one thread spawns on an idle runtime with one
 * worker runs in the order in which it was spawned; otherwise there is no order. Any thread.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL; FL_NO_MEMORY. */
int fl_runtime_spawn(fl_runtime *rt, fl_task_fn fn, void *arg);

/* Calls `fn` once on worker number `worker`, counted from 0, and on no other: for work that belongs to what this worker
 * has, such as its loop. Tasks that one thread spawns on one worker run in that order. A worker that leaves first runs
 * those that were accepted; from then on the call says FL_NOT_FOUND, until there is a worker with this number again, which
 * is another thread. Any thread.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL or there can be no such worker; FL_NOT_FOUND if there is none now;
 * FL_NO_MEMORY. */
int fl_runtime_spawn_on(fl_runtime *rt, unsigned worker, fl_task_fn fn, void *arg);

/* The number of the worker that calls, in its runtime; negative (FL_NOT_FOUND) for a thread that is no worker. */
int fl_runtime_worker(void);

/* The loop of the worker that calls, NULL for a thread that is no worker: to wait for descriptors, and for timers and tasks
 * that stay on this worker. Its callbacks run on the worker between its tasks and timers, and may call everything here
 * that a task may.
 *
 * All of foliot/loop.h may be used on it, by the threads that it says, but what runs, ends or keeps it alive: not
 * fl_loop_run(), fl_loop_run_once(), fl_loop_stop(), fl_loop_drain(), fl_loop_free() and fl_loop_unhold() without a hold
 * of your own. fl_loop_post() and its kin may be called by any thread, as long as the worker is there.
 *
 * When the worker leaves, or the runtime is freed, the loop is freed as fl_loop_free() says: its timers and descriptors are
 * forgotten, its close callbacks are called (on the same thread, which is no worker by then). So what must outlive its
 * worker belongs into a timer of the runtime. */
fl_loop *fl_runtime_loop(void);

/* Changes the number of workers while they run. A worker that leaves ends its callback first, then hands its timers
 * and tasks to the others; the call returns when it has done so. Workers that come get their share of the timers that
 * wait from the others, which do that bit by bit after the call has returned. With 0 workers everything waits until there is one
 * again. Any thread that is not a worker.
 * Returns 0; FL_BUSY if called by a worker; FL_INVALID_ARGUMENT for more than FL_RUNTIME_MAX_WORKERS; FL_NO_MEMORY or
 * FL_SYSTEM (with errno) if not all the new workers could be started: then there are as many as before. */
int fl_runtime_resize(fl_runtime *rt, unsigned workers);

/* What the runtime has done since it was made. `pending` is scheduled - rescheduled - fired - cancelled. The counts are
 * taken one after the other while work goes on, so they need not fit together to the last one. */
struct fl_runtime_stats {
    uint64_t workers;       /* now */
    uint64_t pending;       /* timers that wait now */
    uint64_t scheduled;     /* starts */
    uint64_t rescheduled;   /* starts of timers that were waiting already */
    uint64_t fired;         /* calls */
    uint64_t cancelled;     /* cancels that came in time */
    uint64_t migrated;      /* timers that a worker has handed over to others, because it left or they came */
    uint64_t tasks;         /* spawned tasks that have begun */
    uint64_t entries;       /* what the wheels hold now: waiting timers, and what remote cancels have left behind */
    uint64_t stale_dropped; /* what remote cancels and restarts had left behind and was found in passing */
    uint64_t scrubbed;      /* the same, found by looking for it */
    uint64_t scrub_longest; /* the most entries that one turn has looked at to find such */
    fl_loop_summary lateness_ns; /* how long after its deadline a timer's callback started */
    struct {
        uint64_t ticks;          /* how often the timekeeper looked at the clock because a worker was busy */
        uint64_t late;           /* ticks that came a whole tick late or more */
        uint64_t drift_mean_ns;  /* how much later than planned it came */
        uint64_t drift_worst_ns; /* at most */
    } metronome;
};

/* Any thread. Returns 0. */
int fl_runtime_stats(fl_runtime *rt, struct fl_runtime_stats *ret);

/* --- Timers ------------------------------------------------------------------------------------------------------ */

/* Makes a timer that will call `fn`, with one reference, which is the caller's.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL; FL_NO_MEMORY. */
int fl_timer_new(fl_runtime *rt, fl_task_fn fn, void *arg, fl_timer **ret);

/* One more reference; returns `t`. At most 2^24 of them. */
fl_timer *fl_timer_ref(fl_timer *t);

/* One less; the last frees the handle. A timer that waits keeps a reference to itself: it fires although no other reference is
 * one, and is freed then. NULL is allowed. */
void fl_timer_unref(fl_timer *t);

/* Starts the timer: `fn` is called when the runtime's clock has reached `deadline_ns`, at once if it has. If the timer
 * was waiting, it is moved: the earlier deadline no longer counts. A timer whose callback has begun fires again; should
 * that be on another worker, the two calls may overlap.
 * Returns 0; FL_NO_MEMORY or FL_CAPACITY_EXCEEDED: then it waits for what it waited for before. */
int fl_timer_start(fl_timer *t, uint64_t deadline_ns);

/* The same after a delay, which counts from now by the runtime's clock. A deadline that does not fit in 64 bits counts as
 * the last moment that does. */
int fl_timer_start_after(fl_timer *t, uint64_t delay_ns);

/* Cancels the timer. Returns true if it was waiting: the call that its last start asked for will not come. Returns false
 * if that call has come, or is on its way and nothing can stop it, or if the timer was not started. Never blocks. */
bool fl_timer_cancel(fl_timer *t);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
