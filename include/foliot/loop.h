/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_H
#define FOLIOT_LOOP_H

/* An event loop: timers, tasks from other threads, descriptors, one callback at a time.
 *
 *     static void tea(fl_loop *loop, void *arg)
 *     {
 *         (void)loop;
 *         puts(arg);
 *     }
 *
 *     int main(void)
 *     {
 *         fl_loop *loop;
 *         if (fl_loop_new(NULL, &loop) < 0)
 *             return 1;
 *         if (fl_loop_timer(loop, 3 * 1000000000ull, tea, "tea is ready", NULL) < 0)
 *             return 1;
 *         fl_loop_run(loop);      // returns when nothing is left to wait for
 *         fl_loop_free(loop);
 *     }
 *
 * A turn of the loop has these phases, in this order:
 *
 *   1. sleep        until a timer is due, a task is posted or a descriptor is ready; not at all if something can run now.
 *                   Hooks run right before and right after it, whether the loop sleeps or not
 *   2. timers       those that are due, in order of (deadline, creation)
 *   3. tasks        the urgent ones first, then the others, each kind in the order in which its thread posted them
 *   4. descriptors  those that are ready after all that
 *   5. immediates   in the order in which they were made
 *   6. closing      close callbacks, in the order in which they were asked for
 *
 * Every phase takes aside what is there when it begins and runs only that, at most `budget` callbacks, and of tasks as many
 * urgent ones and as many others: what a callback adds to its own phase waits for the next turn, so that no kind of work
 * can starve another. In particular a timer made during a turn never fires in that turn. What is over the budget stays at
 * the front of its queue.
 *
 * After every callback, the microtask queue runs until it is empty, and so does it before the first callback of a turn.
 *
 * Time is the clock's, read once a turn: all callbacks of a turn see the same fl_loop_now_ns(), and delays count from it.
 * A callback that has worked for long and wants its delays to count from the end of the work calls fl_loop_update_now()
 * first; so does a program that has made its loop long before it runs it.
 *
 * Promises about timers:
 *
 *   - Never early, not by a nanosecond; delays below a millisecond are honoured as they are.
 *   - Nothing is lost, however long a callback took. Only making a timer needs memory.
 *   - No limit on the distance. A deadline that does not fit in 64 bits counts as the last moment that does.
 *   - An ID is below 2^53, is never 0 and never names another timer, interval or immediate of the same loop. IDs start over
 *     only after 2^53 of them, which takes 28 years at ten million timers per second, or after 2^52 if tens of millions of
 *     timers wait all that time. There is no pattern of use that costs capacity.
 *   - An ID ends when its one-shot callback starts, when an interval is cancelled, or when its immediate starts.
 *
 * What a callback may do: everything in this file except run its own loop again. That includes cancelling, arming anew,
 * removing and closing whatever it was called for, stopping the loop, and freeing it.
 *
 * Threads: a loop belongs to the thread that runs it. Other threads may call fl_loop_post(), fl_loop_post_urgent(),
 * fl_loop_post_task(), fl_loop_stop(), fl_loop_stop_after_turn() and fl_loop_drain(), and nothing else. The loop may be
 * freed as soon as what they sent has arrived, even if their call has not yet returned. The three functions that stop the
 * loop may be called from a signal handler. After a fork(), the child calls fl_loop_after_fork() before it uses its copy
 * of a loop, or frees the copy. Both require that no other thread was posting to the loop or stopping it at that moment.
 *
 * Timer slack: the first sleep of a loop sets the timer slack of its thread to 1 ns, once per thread (see prctl(2),
 * PR_SET_TIMERSLACK). By default the kernel may delay each timed wait of a thread by 50 us. Threads that this thread
 * starts later inherit the setting.
 *
 * Ownership: `arg` is yours; the loop hands it to the callback and never looks behind it. The same goes for descriptors:
 * the loop does not close them.
 *
 * Failing: 0, or a negative code of foliot/error.h; then nothing was changed and the out-parameters are untouched.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/clock.h>
#include <foliot/error.h>
#include <foliot/wheel.h> /* fl_timer_id */

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct fl_loop fl_loop;

typedef void (*fl_loop_fn)(fl_loop *loop, void *arg);
typedef void (*fl_loop_fd_fn)(fl_loop *loop, int fd, unsigned events, void *arg);

/* The zero value of every member is its default. */
typedef struct fl_loop_config {
    fl_clock *clock;   /* NULL: CLOCK_MONOTONIC. Must outlive the loop */
    uint32_t budget;   /* callbacks of one kind in one turn, at most 2^20; 0: 1024 */
    bool huge_pages;   /* ask for 2 MiB pages: cancelling is faster with millions of timers */
    uint64_t slack_ns; /* a loop that sleeps may wake this much after the next deadline, so that one wake-up serves
                        * several timers; 0: it wakes at the deadline. Timers stay in order and are never early */
} fl_loop_config;

/* --- The loop ---------------------------------------------------------------------------------------------------- */

/* Makes a loop; `config` may be NULL. It opens no descriptor before the first fl_loop_fd_add().
 * Returns 0; FL_INVALID_ARGUMENT for a budget beyond 2^20; FL_NO_MEMORY. */
int fl_loop_new(const fl_loop_config *config, fl_loop **ret);

/* Frees the loop. Timers, tasks, immediates and microtasks that have not run are forgotten and descriptors are left as
 * they are, but close callbacks that still wait are called, for they are there to free something, and so are up to 2^20 that
 * they ask for in turn. NULL is allowed.
 *
 * Inside a callback it is an immediate stop: the loop stays usable until that callback returns, and is gone when
 * fl_loop_run() or fl_loop_run_once() has returned FL_LOOP_FREED. Microtasks no longer run. */
void fl_loop_free(fl_loop *loop);

/* Returned by fl_loop_run() and fl_loop_run_once(): a callback has freed the loop. */
#define FL_LOOP_FREED 1

/* Turns until stopped, or until nothing keeps the loop alive. A stop that came before the call counts: it returns at
 * once. Returns 0; FL_LOOP_FREED; FL_BUSY if called from a callback of the same loop; FL_SYSTEM if the kernel refuses to
 * wait (errno has the reason). */
int fl_loop_run(fl_loop *loop);

/* One turn. With `wait`, sleeps until there is something to run, unless nothing keeps the loop alive; without, runs what
 * can run now. If a stop has ended the last turn before its time, that is finished first. Returns as fl_loop_run(). */
int fl_loop_run_once(fl_loop *loop, bool wait);

/* Immediate stop: the loop returns after the callback that is running and its microtasks. What has not run stays where
 * it is. If the loop is run again, it reads the clock, finishes this turn from there, and only then begins another one.
 * Descriptors that were ready and have not been called are looked at anew in that one. Any thread, and signal handlers. */
void fl_loop_stop(fl_loop *loop);

/* Graceful stop: the loop returns as soon as it would have to sleep, that is, when everything that can run now has run:
 * timers that are due, tasks, ready descriptors, immediates, close callbacks, and what they have added in turn.
 * fl_loop_run_once() makes its one turn then and does not sleep. Any thread, and signal handlers. */
void fl_loop_drain(fl_loop *loop);

/* Stop at the end of the turn: the loop finishes the turn that is running and returns. A loop that sleeps wakes up, runs
 * the rest of its turn and returns. If no turn is running, the next fl_loop_run() or fl_loop_run_once() returns at once.
 * Any thread, and signal handlers. */
void fl_loop_stop_after_turn(fl_loop *loop);

/* Whether something keeps the loop alive: a timer, interval, immediate, hook or descriptor that is not unreferenced; a
 * task, microtask or close callback that waits; a hold. */
bool fl_loop_alive(const fl_loop *loop);

/* Keeps the loop alive until as many fl_loop_unhold(): for work elsewhere that will post its result. */
void fl_loop_hold(fl_loop *loop);
void fl_loop_unhold(fl_loop *loop);

/* The time of this turn. */
uint64_t fl_loop_now_ns(const fl_loop *loop);

/* Reads the clock anew and returns it. Timers that become due by it fire in the next turn at the earliest. */
uint64_t fl_loop_update_now(fl_loop *loop);

/* --- A loop inside another loop ---------------------------------------------------------------------------------- */

/* When the loop must turn next, as a time of its clock: the time of the current turn or an earlier one if a callback can
 * run now; otherwise a time that is not after the next deadline. False if no callback waits for a time. Descriptors and
 * other threads may need the loop sooner: see fl_loop_poll_fd(). */
bool fl_loop_next_ns(fl_loop *loop, uint64_t *ret_ns);

/* Prepares the loop for a wait outside and returns a descriptor that becomes readable as soon as a turn is needed: a timer
 * is due, a descriptor of the loop is ready, a task was posted, or the loop shall stop.
 *
 *     int fd;
 *     while (fl_loop_alive(loop) && fl_loop_poll_fd(loop, &fd) == 0) {
 *         poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);      // with the descriptors of the outer loop
 *         fl_loop_run_once(loop, false);
 *     }
 *
 * Call it before each wait: timers, immediates, microtasks and close callbacks that are added or moved after the call do not
 * make the descriptor readable. The number stays the same until the loop is freed or fl_loop_after_fork() is called. The
 * descriptor is the loop's: do not read it and do not close it. A clock with `wait_until` does not make the descriptor
 * readable when a timer becomes due: ask fl_loop_next_ns().
 * Returns 0; FL_BUSY from a callback of the loop; FL_CAPACITY_EXCEEDED if there are too many descriptors; FL_NO_MEMORY. */
int fl_loop_poll_fd(fl_loop *loop, int *ret_fd);

/* In the child of a fork(): makes the loop usable there. From then on its timers, tasks and descriptors are its
 * own; the loop of the parent is not affected. Returns 0; FL_CAPACITY_EXCEEDED or FL_NO_MEMORY: the loop can only be freed,
 * or the call repeated. */
int fl_loop_after_fork(fl_loop *loop);

/* --- Timers ------------------------------------------------------------------------------------------------------ */

/* Calls `fn` once, `delay_ns` after fl_loop_now_ns(). `ret_id` may be NULL.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL; FL_CAPACITY_EXCEEDED beyond 2^26 timers, intervals and immediates;
 * FL_NO_MEMORY. */
int fl_loop_timer(fl_loop *loop, uint64_t delay_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id);

/* The same at a time of the loop's clock. A deadline that has passed counts as now. */
int fl_loop_timer_at(fl_loop *loop, uint64_t deadline_ns, fl_loop_fn fn, void *arg, fl_timer_id *ret_id);

/* How an interval goes on when its callback has returned. */
enum {
    FL_INTERVAL_SKIP = 0,          /* on the grid first + n * period; periods that have been missed are left out */
    FL_INTERVAL_CATCH_UP = 1,      /* on the same grid; a missed period is made up for, one a turn */
    FL_INTERVAL_FROM_CALLBACK = 2, /* no grid: a period after the callback returned */
    FL_TIMER_UNREF = 4,            /* any timer: as if fl_loop_unref() were called */
};

/* Calls `fn` every `period_ns`, first one period after fl_loop_now_ns(), until cancelled. On a grid no drift accumulates.
 * Returns as fl_loop_timer(); FL_INVALID_ARGUMENT for a period of 0 or flags that exclude each other. */
int fl_loop_interval(fl_loop *loop, uint64_t period_ns, unsigned flags, fl_loop_fn fn, void *arg, fl_timer_id *ret_id);

/* Everything a timer can be. The zero value of every member but `fn` is its default. */
typedef struct fl_loop_timer_options {
    uint64_t deadline_ns; /* of the first call; 0: a period from now */
    uint64_t period_ns;   /* 0: call once */
    uint64_t slack_ns;    /* how much later than necessary a call may come, so that neighbours share a wake-up */
    unsigned flags;
    fl_loop_fn fn;
    void *arg;
} fl_loop_timer_options;

/* Makes a timer with options. A slack moves each deadline to the roundest moment between itself and itself + slack: a
 * multiple of the greatest power of two there, which neighbours with a similar slack choose too. The moved deadline is
 * the one that order and lateness go by; the grid of an interval stays where it is.
 * Returns as fl_loop_interval(), but a period of 0 is allowed. */
int fl_loop_timer_with(fl_loop *loop, const fl_loop_timer_options *options, fl_timer_id *ret_id);

/* Gives a living timer or interval the deadline fl_loop_now_ns() + `delay_ns` under the same ID, as a new timer would
 * get it: also if it is due in this turn and has not been called yet. An interval goes on from there.
 * Returns 0; FL_TIMER_NOT_FOUND; FL_INVALID_ARGUMENT for an immediate or hook. */
int fl_loop_rearm(fl_loop *loop, fl_timer_id id, uint64_t delay_ns);

/* The time at which a timer or interval is due, after its slack; during the callback of an interval, the time for which it
 * was called. The period of an interval; 0 for a timer that is called once.
 * Return 0; FL_TIMER_NOT_FOUND; FL_INVALID_ARGUMENT for an immediate or hook. */
int fl_loop_deadline(const fl_loop *loop, fl_timer_id id, uint64_t *ret_ns);
int fl_loop_period(const fl_loop *loop, fl_timer_id id, uint64_t *ret_ns);

/* Changes the period. The deadline stays: the new period counts from the next call on. With 0, an interval is called once
 * more, or if its callback is running, not again. With another period, a timer becomes an interval.
 * Returns 0; FL_TIMER_NOT_FOUND; FL_INVALID_ARGUMENT for an immediate or hook; FL_NO_MEMORY. */
int fl_loop_set_period(fl_loop *loop, fl_timer_id id, uint64_t period_ns);

/* Cancels a timer, interval, immediate or hook; its callback will not be called again, even if it is due in this turn.
 * Returns 0, or FL_TIMER_NOT_FOUND if there is none, whatever `id` is. */
int fl_loop_cancel(fl_loop *loop, fl_timer_id id);

/* Whether a timer, interval, immediate or hook keeps the loop alive: it does unless unreferenced. Repeating has no effect.
 * Returns 0 or FL_TIMER_NOT_FOUND. */
int fl_loop_ref(fl_loop *loop, fl_timer_id id);
int fl_loop_unref(fl_loop *loop, fl_timer_id id);

/* --- Tasks ------------------------------------------------------------------------------------------------------- */

/* Calls `fn` in the task phase. Any thread; lock-free but for the allocator. Wakes the loop if it sleeps: once, however
 * many are posted until it is awake. Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL; FL_NO_MEMORY. */
int fl_loop_post(fl_loop *loop, fl_loop_fn fn, void *arg);

/* The same, before the tasks of the same turn that are not urgent: for what keeps the program itself going. */
int fl_loop_post_urgent(fl_loop *loop, fl_loop_fn fn, void *arg);

/* A task whose memory is the caller's, so that posting cannot fail. */
typedef struct fl_loop_task {
    struct fl_loop_task *next; /* the loop's */
    fl_loop_fn fn;
    void *arg;
    unsigned flags; /* FL_TASK_URGENT or 0 */
} fl_loop_task;

enum { FL_TASK_URGENT = 1 };

/* Posts a task with `fn`, `arg` and `flags` set. It is the loop's until its callback starts; it may then be posted
 * again or freed. Any thread, lock-free. If the loop is freed before, it is simply forgotten. */
void fl_loop_post_task(fl_loop *loop, fl_loop_task *task);

/* Calls `fn` after the callback that is running, or before the first one of the next turn if none is. Microtasks that
 * microtasks add run too before anything else does. Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL; FL_NO_MEMORY. */
int fl_loop_microtask(fl_loop *loop, fl_loop_fn fn, void *arg);

/* Calls `fn` in the immediate phase: of this turn if that has not begun, else of the next. The ID is for
 * fl_loop_cancel(), fl_loop_ref() and fl_loop_unref(). Returns as fl_loop_timer(). */
int fl_loop_immediate(fl_loop *loop, fl_loop_fn fn, void *arg, fl_timer_id *ret_id);

/* Calls `fn` in the closing phase, when no other callback of this turn is left that could know what it frees.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL; FL_CAPACITY_EXCEEDED while the loop is freed, if its close callbacks have
 * asked for 2^20 others; FL_NO_MEMORY. */
int fl_loop_close_callback(fl_loop *loop, fl_loop_fn fn, void *arg);

/* When a hook is called. */
enum {
    FL_HOOK_BEFORE_SLEEP = 1, /* at the beginning of each turn, before the loop decides whether to sleep */
    FL_HOOK_AFTER_SLEEP = 2,  /* after the sleep and after the clock was read, before the timers of the turn */
};

/* Calls `fn` in every turn at that moment, in the order in which the hooks were made, until cancelled. A hook does not
 * keep the loop from sleeping: what it adds does, if that can run now. A turn calls all its hooks, whatever the budget.
 * Hooks do not count as something to run: fl_loop_run_once() with `wait` and fl_loop_drain() do not return because of one.
 * The ID is for fl_loop_cancel(), fl_loop_ref() and fl_loop_unref(). Returns as fl_loop_timer(); FL_INVALID_ARGUMENT for
 * another `when`. */
int fl_loop_hook(fl_loop *loop, unsigned when, fl_loop_fn fn, void *arg, fl_timer_id *ret_id);

/* --- Descriptors ------------------------------------------------------------------------------------------------- */

enum {
    FL_READ = 1,      /* there is something to read, or the end */
    FL_WRITE = 2,     /* there is room to write */
    FL_ERROR = 4,     /* comes back without being asked for */
    FL_HANGUP = 8,    /* both directions are closed: comes back without being asked for. Asked for: also when the other
                       * side has only closed its sending direction */
    FL_PRIORITY = 16, /* an exceptional condition: out-of-band data of TCP, pressure (PSI), a changed file of sysfs */
};

/* Calls `fn` in every turn in which `fd` is ready for one of `events`, until removed. `events` is a union of FL_READ,
 * FL_WRITE, FL_HANGUP, FL_PRIORITY; 0 waits for errors and hang-ups alone. The callback gets the events that were asked for
 * and have come, as they were when the phase of descriptors began, after the timers and tasks of the turn. If the callback
 * of another descriptor reads from this one, this callback may find nothing to read. Remove a descriptor before you close
 * it. If that was forgotten, the number may be added again when it names a new file; the events of the old file never reach
 * the new callback.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL, `events` has other bits, or `fd` is not open or cannot be waited for
 * (a plain file); FL_EXISTS if it was added already; FL_CAPACITY_EXCEEDED if the kernel's limit is reached; FL_NO_MEMORY.
 */
int fl_loop_fd_add(fl_loop *loop, int fd, unsigned events, fl_loop_fd_fn fn, void *arg);

/* Waits for other events from now on. Events that were seen before the call and are no longer asked for are not
 * delivered. Returns 0; FL_NOT_FOUND; FL_INVALID_ARGUMENT for other bits in `events` or if `fd` was closed. */
int fl_loop_fd_modify(fl_loop *loop, int fd, unsigned events);

/* Forgets a descriptor: its callback will not be called again, not even for what was already ready. Works for a
 * closed descriptor, too. Returns 0 or FL_NOT_FOUND. */
int fl_loop_fd_remove(fl_loop *loop, int fd);

/* Whether a descriptor keeps the loop alive: it does unless unreferenced. Its callback is called either way. Adding it
 * again references it. Repeating has no effect. Returns 0 or FL_NOT_FOUND. */
int fl_loop_fd_ref(fl_loop *loop, int fd);
int fl_loop_fd_unref(fl_loop *loop, int fd);

/* --- Everything in the loop -------------------------------------------------------------------------------------- */

typedef enum fl_loop_kind {
    FL_LOOP_TIMER, /* intervals too */
    FL_LOOP_IMMEDIATE,
    FL_LOOP_HOOK,
    FL_LOOP_DESCRIPTOR,
    FL_LOOP_TASK,
    FL_LOOP_MICROTASK,
    FL_LOOP_CLOSE_CALLBACK,
} fl_loop_kind;

/* Something that waits in a loop. */
typedef struct fl_loop_item {
    fl_loop_kind kind;
    bool referenced;     /* it keeps the loop alive */
    fl_timer_id id;      /* of a timer, immediate or hook; otherwise 0 */
    int fd;              /* of a descriptor; otherwise -1 */
    fl_loop_fn fn;       /* NULL for a descriptor */
    fl_loop_fd_fn fd_fn; /* of a descriptor; otherwise NULL */
    void *arg;
} fl_loop_item;

typedef bool (*fl_loop_walk_fn)(fl_loop *loop, const fl_loop_item *item, void *arg);

/* Calls `fn` for everything that waits in the loop, kind by kind in the order of fl_loop_kind, until it returns false. It
 * may cancel and remove whatever it likes, but may not run or free the loop. It may or may not be called for what it
 * adds. An interval whose callback is running is among the timers. Takes time in proportion to the memory of the loop. */
void fl_loop_walk(fl_loop *loop, fl_loop_walk_fn fn, void *arg);

/* --- Statistics -------------------------------------------------------------------------------------------------- */

/* What a histogram says. Percentiles are exact to 1 part in 16, and never below the truth; the rest is exact. */
typedef struct fl_loop_summary {
    uint64_t count, min_ns, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
} fl_loop_summary;

typedef struct fl_loop_stats {
    uint64_t turns;
    uint64_t sleeps;   /* turns that had to wait */
    uint64_t wakeups;  /* sleeps that another thread ended, by posting or stopping */
    uint64_t slept_ns; /* how long all sleeps together took, by the loop's clock */
    struct {
        uint64_t timers, urgent_tasks, tasks, descriptors, immediates, closing, microtasks, hooks;
    } called, waiting;   /* callbacks since the loop was made; what waits now (descriptors, hooks: that are added) */
    uint64_t tasks_peak; /* the most tasks that have been found waiting at once */
    fl_loop_summary callback_ns; /* how long a callback took, its microtasks included; on the machine's clock as its
                                  * processor counts, which is right to about a thousandth */
    fl_loop_summary lateness_ns; /* how long after its deadline a timer's callback started */
    uint64_t bytes;              /* everything the loop has allocated, its wheel included */
} fl_loop_stats;

/* Tells what the loop has done. Counting is always on. Takes time in proportion to the tasks that wait. */
void fl_loop_get_stats(const fl_loop *loop, fl_loop_stats *ret);

/* Checks every invariant of the loop, in time proportional to its size. Returns 0, or FL_INVALID_ARGUMENT after having
 * written what is broken to `explain` (may be NULL). For tests and debugging. */
int fl_loop_check(const fl_loop *loop, FILE *explain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
