/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_RUNTIME_H
#define FOLIOT_RUNTIME_RUNTIME_H

/* The runtime: one worker per processor, and timers that any thread may start and cancel. foliot/runtime.h is its contract.
 * This folder may use base, wheel and loop.
 *
 *     runtime.c    making, resizing, freeing; spawning
 *     worker.c     a worker's thread and its turns
 *     life.c       a worker's beginning and its leaving
 *     timer.c      the handle's functions; adopting timers that were sent here
 *     fire.c       firing: handles, and timers of one worker
 *     migrate.c    handing timers over, when a worker leaves or others come
 *     scrub.c      finding what remote cancels have left behind
 *     metronome.c  the timekeeper and its merge queue
 *     given.c      a clock of the program
 *     stats.c      counting
 *     thread.c     starting threads
 *     handle.h: the atomic word; entries.c: a worker's table
 *     mailbox.c, tasks.c: messages between threads
 */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>
#include <foliot/nodes.h>
#include <foliot/runtime.h>

/* What a layer on top of the runtime, such as coroutines, may ask of a worker.
 *
 * A worker's turn: the loop turns once (and sleeps there if nothing else is to be done); the wheel is polled and its
 * timers fire, at most a budget of them and not longer than a tick; messages that other threads have sent run, and tasks,
 * within bounds of the same kind, and between two of them timers that have arrived or are due; what was deferred runs; then
 * some scrubbing. Everything below is called on the worker's own thread unless it says "any thread".
 *
 * Lifetime: a struct fl__worker stays valid, and may be sent to, until its runtime is freed. The worker may leave, and
 * another thread may later take its place under the same index; `fl__worker_send` says whether it is there.
 */

struct fl__worker;

/* --- Identity */

struct fl__worker *fl__worker_self(void); /* any thread; NULL if it is not a worker of any runtime */
fl_runtime *fl__worker_runtime(const struct fl__worker *worker); /* any thread */
unsigned fl__worker_index(const struct fl__worker *worker);      /* any thread */

/* Its loop, for descriptors and the like. Only while the worker is there, only on its thread. */
fl_loop *fl__worker_loop(const struct fl__worker *worker);

/* The time of this turn, or of the last tick of the clock in it if that is later. */
uint64_t fl__worker_now_ns(const struct fl__worker *worker);

/* Reads the clock. Any thread. */
uint64_t fl__runtime_now_ns(const fl_runtime *rt);

/* --- Messages: intrusive, the memory is the sender's; given back when `run` is called. */

struct fl__message {
    struct fl__message *next;
    void (*run)(struct fl__worker *worker, struct fl__message *message);
};

/* Runs the message on that worker, in the order in which this thread sent; wakes it if it sleeps. Any thread, lock-free.
 * False: the worker has left, and the message is the sender's again. */
bool fl__worker_send(struct fl__worker *worker, struct fl__message *message);

/* Runs the message on some worker, or when there is one again. Any thread. It may go from worker to worker before it runs;
 * if the runtime is freed before, it is forgotten. */
void fl__runtime_send(fl_runtime *rt, struct fl__message *message);

/* Appends to the queue of this worker without waking it: for yielding. */
void fl__worker_again(struct fl__worker *worker, struct fl__message *message);

/* --- Long turns */

/* To be asked between two pieces of work that may take long. True: a timer of the worker is due, or a tick has passed
 * since `since_ns`. Then the caller should end its turn and go on in the next. From the first call on, the metronome looks
 * at the clock. */
bool fl__worker_must_turn(struct fl__worker *worker, uint64_t since_ns);

/* When the worker has to turn for its timers, messages and loop: 0 if it has something to do now, or its loop watches a
 * descriptor; NEVER if it waits for no time. */
uint64_t fl__worker_next_ns(struct fl__worker *worker);

/* --- The end of a turn */

/* Runs the message once at the end of this turn, after the timers; of the next, if it is sent by one of those. A worker
 * with deferred messages does not sleep. */
void fl__worker_defer(struct fl__worker *worker, struct fl__message *message);

/* --- Timers that belong to one worker: no handle, no atomics. All zero is a timer that is not started. */

struct fl__local_timer {
    void (*fire)(struct fl__worker *worker, struct fl__local_timer *timer); /* may free it, or start it again */
    fl_node node;
};

/* Starts it, or moves it. */
void fl__local_timer_start(struct fl__worker *worker, struct fl__local_timer *timer, uint64_t deadline_ns);

/* True: it was started and will not fire. */
bool fl__local_timer_cancel(struct fl__worker *worker, struct fl__local_timer *timer);

/* --- What a layer keeps for each worker */

struct fl__worker_layer {
    /* The worker shall leave: asked in every turn until it returns true. Until then the worker goes on as usual, takes
     * messages, fires timers, but gets no share of new work. Local timers must be gone when it returns true. */
    bool (*leaving)(struct fl__worker *worker, struct fl__worker_layer *layer);

    /* The last call on this thread, after `leaving` or because the runtime is freed: let go of everything. The loop is
     * still there; local timers do not fire anymore. The layer's memory is its own again. */
    void (*stop)(struct fl__worker *worker, struct fl__worker_layer *layer);
};

/* One layer a worker; NULL until it is set, and again for the next worker with the same index. */
void fl__worker_set_layer(struct fl__worker *worker, struct fl__worker_layer *layer);
struct fl__worker_layer *fl__worker_get_layer(const struct fl__worker *worker);

/* --- Something a layer keeps for the whole runtime: one pointer, freed with it after all workers have stopped. */

struct fl__runtime_layer {
    void (*free)(fl_runtime *rt, struct fl__runtime_layer *layer);
};

/* Sets it if there is none. Returns the one that is there now. Any thread. */
struct fl__runtime_layer *fl__runtime_set_layer(fl_runtime *rt, struct fl__runtime_layer *layer);
struct fl__runtime_layer *fl__runtime_get_layer(fl_runtime *rt); /* any thread; may be NULL */

/* How many workers there are, and one of them, which may be leaving just now. Any thread. */
unsigned fl__runtime_workers(fl_runtime *rt);
struct fl__worker *fl__runtime_worker(fl_runtime *rt, unsigned index);

#endif
