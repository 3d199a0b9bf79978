/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_CORO_H
#define FOLIOT_CORO_CORO_H

/* Coroutines that sleep on the workers of a runtime; foliot/coro.h and foliot/kcoro.h are the contract. This folder may use base,
 * wheel, loop and runtime. No other folder includes this header: it is what the files here share.
 *
 *     coro.c      the public functions, and the word that says what a coroutine is doing
 *     sched.c     running coroutines: the ready queue, the wheel, which coroutine is on which stack
 *     join.c      waiting for the end of another
 *     host.c      schedulers on workers: making, moving and freeing them
 *     wait.c      waiting for descriptors
 *     wake.c      wake-ups at a time
 *     context.c   the switch; stack.c: stacks; overflow.c: the message; exceptions.h: those of C++
 *     kcoro.c     the functions of kcoro.h, by those of coro.h
 *
 * A scheduler (struct coro_sched) is a set of coroutines with everything they need to run: a queue, a wheel, stacks. It is at
 * home on one worker at a time and all of it is that worker's alone, except for `remote`, a stack of coroutines that
 * other threads have made ready, which is pushed to by compare-and-swap and taken as a whole. A worker has one scheduler
 * as a rule; it has more after it has taken over from workers that have left. That is why copied bytes can always go
 * back to where they were: stacks move with the scheduler, not with the thread.
 *
 * Schedulers are freed with the runtime only; those that are not in use wait in the group for the next worker. So a
 * thread that has woken a coroutine may still touch its scheduler, even if the coroutine has ended meanwhile.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/coro.h>

#include <foliot/nodes.h>

#include "base/alloc.h"
#include "base/image.h"
#include "base/moment.h"
#include "base/queue.h"
#include "base/record.h"
#include "coro/exceptions.h"
#include "coro/stack.h"
#include "runtime/runtime.h"

#define SHARED_STACK_SIZE (256u << 10)

/* The word of a coroutine. What sleeps or waits for anything but an unpark is none of PARKED and DONE: an unpark is then
 * kept, exactly as if the coroutine were running. */
enum {
    CORO_PARKED = 1,
    CORO_TOKEN = 2, /* an unpark has come since the last park */
    CORO_DONE = 4,
    CORO_THREADS = 8,    /* threads wait for DONE on the word as a futex */
    CORO_STRANGERS = 16, /* coroutines of other schedulers wait for DONE */
};

/* A coroutine's life. It never goes back.
 *
 *     from             to               by
 *     PHASE_SENT       PHASE_NEW        fl__coro_sched_take_in(), on the scheduler's thread
 *     PHASE_NEW        PHASE_STARTED    its first run, when there is memory for a stack
 *     PHASE_STARTED    PHASE_ENDED      the return of its function
 */
enum coro_phase {
    PHASE_SENT,    /* made by another thread: not yet in the list of its scheduler */
    PHASE_NEW,     /* in the list of its scheduler; has no stack yet */
    PHASE_STARTED, /* bound to a stack */
    PHASE_ENDED,   /* its function has returned */
};

/* How a wait with a deadline stands.
 *
 *     from             to               by
 *     TIMER_NONE       TIMER_WAITS      the coroutine, before it suspends itself
 *     TIMER_WAITS      TIMER_CAME       the deadline: the coroutine becomes ready
 *     TIMER_WAITS      TIMER_NONE       fl__coro_sched_end_wait(): the coroutine becomes ready, the node is stopped
 *     TIMER_CAME       TIMER_NONE       fl__coro_sched_end_wait() after the deadline, or the coroutine when it runs
 */
enum coro_timer {
    TIMER_NONE,  /* its node is not in the wheel */
    TIMER_WAITS, /* its node is in the wheel */
    TIMER_CAME,  /* its node has come out of the wheel, and it has not run since */
};

struct fl_coro {
    _Atomic uint32_t word;
    _Atomic uint32_t refs;
    struct coro_sched *sched;
    struct fl_coro *next; /* in a queue, in `remote`, or in a list of joiners */
    fl_node node;         /* in the scheduler's wheel while it waits for a time */
    union {
        size_t stack_size;            /* PHASE_SENT, PHASE_NEW: what was asked for; 0: shared */
        struct fl__coro_stack *stack; /* where it has begun */
    };
    union {
        fl_task_fn fn; /* until it has begun */
        void *context; /* while it does not run; an address on its stack */
    };
    union {
        void *arg;   /* until it has begun */
        void *image; /* while it is not the stack's resident: its bytes from `context` to the top */
    };
    struct fl_coro *joiners;     /* of its scheduler: they wait for the end */
    const struct fl_coro *joins; /* the coroutine of another scheduler whose end it waits for */
    struct fl_coro *live_next, **live_link;
    const char *name;
    uint8_t phase; /* enum coro_phase */
    uint8_t timer; /* enum coro_timer */
};

FL__QUEUE(coro_queue, struct fl_coro);

struct coro_sched {
    struct coro_group *group;
    struct coro_host *host; /* NULL: on the way from one to another, or not in use */

    enum turning { TURN_NONE, TURN_EARLY, TURN_LAST } turning; /* inside a turn; of its worker's turn, the last one */
    struct fl_coro *running;
    struct coro_queue ready;
    struct coro_queue yielded;       /* ready in the next last turn */
    struct coro_queue yielded_early; /* in the one after: the worker's loop has not turned since */
    void *context;                   /* of the thread, while a coroutine runs */
    struct fl__coro_fiber fiber;

    struct fl__coro_stacks stacks;
    struct fl__coro_stack *start; /* where coroutines without a stack of their own begin; may be NULL */
    struct fl__images images;
    struct fl__records records;

    fl_nodes *wheel; /* of the coroutines' nodes */
    bool more_due;   /* the last poll did not take all */
    uint64_t alarm_ns;
    struct fl__local_timer alarm; /* turns the scheduler at alarm_ns; NEVER: it is not started */

    struct fl_coro *live; /* all that have arrived and not ended */
    uint64_t live_count;

    struct fl__message again; /* to turn once more */
    bool again_sent;
    struct coro_waiter *moving;   /* waits for descriptors, while the scheduler is on its way */
    struct coro_waiter *answered; /* waits that have ended, and whose coroutines have not run since */

    struct coro_sched *next_in_host;
    struct coro_sched *next_in_group, *next_unused;

    /* For other threads. */
    _Alignas(CACHE_LINE) _Atomic(struct fl_coro *) remote; /* a stack */
    _Atomic(struct fl__worker *) worker;                   /* the host's */
    atomic_bool wake_sent;
    struct fl__message wake;
    struct fl__message arrival; /* takes the scheduler to a worker */
};

/* A worker's schedulers. */
struct coro_host {
    struct fl__worker_layer layer;
    struct fl__worker *worker;
    struct coro_group *group;
    struct coro_sched *scheds;
    struct coro_sched *home; /* the one that new coroutines belong to */
    bool leaving;
    struct watched *watched; /* by descriptor */
    uint32_t watched_capacity;
    struct fl__coro_exceptions *exceptions; /* of its thread */
    void *signal_stack;
};

/* A runtime's. */
struct coro_group {
    struct fl__runtime_layer layer;
    fl_runtime *rt;
    pthread_mutex_t lock;                            /* guards all that follows */
    struct coro_sched *scheds;                       /* all */
    struct coro_sched *unused;                       /* those that are nowhere and empty */
    unsigned turn;                                   /* whose turn it is to get what other threads spawn */
    struct coro_sched *home[FL_RUNTIME_MAX_WORKERS]; /* by worker: its home, or one that is on its way there */
    struct wake_table {
        struct coro_wake **wakes;
        uint64_t *ids; /* of the wake-up in the slot, or the next one's */
        uint32_t *free;
        uint32_t capacity, free_count;
    } wakes;
};

/* --- coro.c */

/* Where coroutines come from. */
extern struct fl__record_pool fl__coro_pool;

/* Makes it run soon: any thread may call it, for a coroutine that waits and that no other thread makes ready. */
void fl__coro_ready(struct fl_coro *coro);

/* --- join.c */

/* What follows the end: wakes the coroutines and threads that wait for it, and gives back the scheduler's reference. */
void fl__coro_finish(struct fl_coro *coro);

/* The same when its runtime is freed: wakes the threads, and the coroutines of other runtimes. */
void fl__coro_close(struct fl_coro *coro);

/* Takes the group's coroutines out of all lists of joiners, because they are about to be freed. */
void fl__coro_strangers_forget(const struct coro_group *group);

/* --- sched.c */

/* The scheduler that is running on this thread, if any. Never inlined: a coroutine may go on in another thread. */
struct coro_sched *fl__coro_sched_current(void);

int fl__coro_sched_init(struct coro_sched *sched, struct coro_group *group);

/* Ends all its coroutines, for the threads and coroutines that wait for them. */
void fl__coro_sched_close(struct coro_sched *sched);

/* Frees what it has, its coroutines too. All schedulers of the group have been closed. */
void fl__coro_sched_destroy(struct coro_sched *sched);

/* Turns at the end of the worker's turn: runs what can run, at most a budget of it, and sees to it that the rest is not
 * forgotten. */
void fl__coro_sched_turn_soon(struct coro_sched *sched);

/* Puts a coroutine at the end of the queue. Only on the scheduler's thread. */
void fl__coro_sched_append(struct coro_sched *sched, struct fl_coro *coro);

/* The same for one that waits in fl__coro_sched_suspend_until(), unless its time was up before: then it is in the queue
 * already. May be called once for each wait. */
void fl__coro_sched_end_wait(struct fl_coro *coro);

/* A coroutine from another thread. Any thread. */
void fl__coro_sched_send(struct coro_sched *sched, struct fl_coro *coro);

/* Takes a new coroutine in and makes it ready. Only on the scheduler's thread. */
void fl__coro_sched_take_in(struct coro_sched *sched, struct fl_coro *coro);

/* Whether it has no coroutine, not even on the way. Only on the scheduler's thread. */
bool fl__coro_sched_empty(const struct coro_sched *sched);

/* Suspends the running coroutine until everything else of this worker that can run has had a turn. */
void fl__coro_sched_yield(struct coro_sched *sched);

/* Suspends the running coroutine until something makes it ready. */
void fl__coro_sched_suspend(struct coro_sched *sched);

/* Suspends it until the clock has reached `deadline_ns`. Returns 0. */
int fl__coro_sched_sleep_until(struct coro_sched *sched, uint64_t deadline_ns);

/* Suspends it until something makes it ready, at most until `deadline_ns` (NEVER: no limit). True: the clock has reached the
 * deadline before. */
bool fl__coro_sched_suspend_until(struct coro_sched *sched, uint64_t deadline_ns);

/* --- host.c */

/* The runtime's group, made if need be; NULL if there is no memory. Any thread. */
struct coro_group *fl__coro_group_of(fl_runtime *rt);

/* Gives a new coroutine, with the phase PHASE_SENT, to a scheduler: the calling worker's, or each worker's in turn. It is
 * in *ret, unless that is NULL, before it can run. Returns 0 or FL_NO_MEMORY. Any thread. */
int fl__coro_group_spawn(struct coro_group *group, struct fl_coro *coro, struct fl_coro **ret);

/* Sends word to the scheduler's worker, once until it has been heard. A scheduler that is between two workers is looked at when it
 * arrives. Any thread may call this. */
void fl__coro_host_wake(struct coro_sched *sched);

/* After a turn of the scheduler: gives it back to the group if it is empty and not the home of its worker. */
void fl__coro_host_part_with(struct coro_sched *sched);

/* --- wait.c */

/* Takes the waiters of a scheduler away from the host that it leaves, and to the one it has come to. */
void fl__coro_waiters_leave(struct coro_host *host, struct coro_sched *sched);
void fl__coro_waiters_arrive(struct coro_host *host, struct coro_sched *sched);

/* Frees the host's table; what a scheduler has that is in no host's table. */
void fl__coro_waiters_free(struct coro_host *host);
void fl__coro_waiters_drop(struct coro_sched *sched);

/* --- wake.c */

void fl__coro_wakes_free(struct coro_group *group);

#endif
