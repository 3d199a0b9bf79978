/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_INTERNAL_H
#define FOLIOT_LOOP_INTERNAL_H

/* What the files of the loop share. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include <foliot/loop.h>

#include "base/histogram.h"
#include "loop/inbox.h"
#include "loop/ring.h"
#include "loop/stopwatch.h"
#include "loop/table.h"

/* List heads in the table. */
enum {
    IMMEDIATES = HEADS_BEGIN, /* made, for the next immediate phase */
    IMMEDIATES_NOW,           /* of the phase that runs, or was left by a stop */
    HOOKS_BEFORE_SLEEP,       /* in the order in which they were made */
    HOOKS_AFTER_SLEEP,
    HOOKS_NOW,  /* of the phase that runs, or was left by a stop: not called yet, */
    HOOKS_DONE, /* and called already */
};

/* A descriptor that is added. The generation tells it from earlier ones of the same number. */
struct loop_watch {
    fl_loop_fd_fn fn; /* NULL: not added */
    void *arg;
    uint16_t events;
    bool unref;
    uint32_t generation;
};

/* A turn: the sleep lies between the first two. */
enum phase {
    PHASE_BEFORE_SLEEP,
    PHASE_AFTER_SLEEP,
    PHASE_TIMERS,
    PHASE_TASKS,
    PHASE_DESCRIPTORS,
    PHASE_IMMEDIATES,
    PHASE_CLOSING
};

/* The kernel's side of descriptors; opened by the first fl_loop_fd_add(). */
struct poller {
    int epoll_fd; /* -1: not open */
    int timer_fd;
    int outer_fd;              /* watches epoll_fd, for fl_loop_poll_fd(); its number never changes. -1: not open */
    bool outside;              /* the loop is waited for by way of outer_fd, */
    bool marked;               /* and its mark is in the inbox */
    bool no_brief_waits;       /* the kernel knows no timeouts in nanoseconds (Linux before 5.11) */
    uint64_t armed_ns;         /* when timer_fd goes off or went off; 0: never */
    struct epoll_event *ready; /* what the last poll has found: up to `budget` */
    uint32_t ready_count;
    bool polled;                /* in this turn, */
    uint64_t polled_before;     /* when this many callbacks had been called */
    struct loop_watch *watches; /* by descriptor */
    uint32_t watches_capacity;
    uint32_t added;      /* descriptors */
    uint32_t generation; /* of the newest watch */
};

struct loop_counters {
    uint64_t turns, sleeps, slept_ns;
    uint64_t hooks, by_hooks; /* calls of hooks, and callbacks that these calls led to, their microtasks included */
    uint64_t timers, urgent_tasks, tasks, descriptors, immediates, closing, microtasks;
    uint64_t tasks_peak;
};

struct fl_loop {
    fl_clock *clock;
    uint64_t now_ns;   /* of this turn */
    uint64_t read_ns;  /* the last reading of the clock */
    uint64_t until_ns; /* the turn that runs does not sleep longer; NEVER: no limit */
    struct stopwatch stopwatch;
    uint64_t slack_ns;
    uint32_t budget;
    bool running;        /* inside fl_loop_run() or fl_loop_run_once() */
    bool freed;          /* by a callback */
    bool ending;         /* fl_loop_free() calls the last close callbacks, */
    uint32_t asked;      /* which have asked for so many more */
    bool unfinished;     /* a turn has begun, and runs or was ended by a stop */
    enum phase phase;    /* of this turn */
    uint64_t keep_alive; /* referenced records, descriptors and holds */

    struct loop_table table;
    fl_nodes *wheel;
    fl_node **polled; /* what the wheel has handed over, `budget` of them at most */
    uint32_t *due;    /* their slots: the timers of this turn */
    uint32_t due_next, due_count;
    uint64_t immediates; /* how many there are */
    uint64_t hooks;

    struct {
        uint64_t urgent, tasks, immediates, closing;
    } left; /* how many this phase may still call of those that it took aside */

    struct loop_ring microtasks, closing;
    struct task_list urgent, tasks; /* taken out of the inbox */
    struct poller poller;
    struct loop_counters counters;
    struct histogram callback_ticks, lateness_ns;

    struct inbox inbox; /* other threads write here */
};

/* --- loop.c */

/* Reads the clock; it never goes back and is never 0. */
static inline uint64_t fl__loop_read_clock(fl_loop *loop)
{
    uint64_t now_ns = loop->clock->now_ns(loop->clock);
    if (now_ns > loop->read_ns)
        loop->read_ns = now_ns;
    return loop->read_ns;
}

/* Whether the turn must end: an immediate stop, or the loop was freed. */
static inline bool fl__loop_interrupted(const fl_loop *loop)
{
    return loop->freed || inbox_stop(&loop->inbox) == STOP_NOW;
}

/* What follows every callback: the microtask checkpoint and the statistics. */
void fl__loop_checkpoint(fl_loop *loop);

/* How many callbacks have been called. */
static inline uint64_t fl__loop_calls(const fl_loop *loop)
{
    return loop->callback_ticks.count + loop->counters.microtasks;
}

/* The same without hooks, which are called whether there is something to do or not. Not for the phases of hooks. */
static inline uint64_t fl__loop_progress(const fl_loop *loop)
{
    return fl__loop_calls(loop) - loop->counters.by_hooks;
}

/* Whether there is something to call without waiting; timers and descriptors are not looked at. */
bool fl__loop_can_run(const fl_loop *loop);

/* --- timers.c */

int fl__loop_timers_init(fl_loop *loop, bool huge_pages);
void fl__loop_timers_destroy(fl_loop *loop);

/* Puts a timer into the wheel that is not there, or moves it. */
void fl__loop_timers_start(fl_loop *loop, struct loop_entry e, uint64_t deadline_ns);

/* Takes an immediate or hook out of its list. */
void fl__loop_unlist(fl_loop *loop, struct loop_entry e);

/* Ends a record that is in no list. Its node must not stay in the wheel. */
static inline void fl__loop_timers_forget(fl_loop *loop, struct loop_entry e)
{
    loop->keep_alive -= !(*e.tag & TAG_UNREF);
    table_put(&loop->table, e);
}

/* --- firing.c */

/* Each phase takes aside what it will call, and then calls it. */
void fl__loop_timers_take(fl_loop *loop);
void fl__loop_timers_run(fl_loop *loop);
void fl__loop_immediates_take(fl_loop *loop);
void fl__loop_immediates_run(fl_loop *loop);
void fl__loop_hooks_take(fl_loop *loop, uint32_t head);
void fl__loop_hooks_run(fl_loop *loop, uint32_t head);

/* When a timer with this deadline and slack fires: the multiple of the greatest power of two between the two ends. */
uint64_t fl__loop_timers_round(uint64_t deadline_ns, uint64_t slack_ns);

/* --- descriptors.c */

void fl__loop_poller_init(struct poller *poller);
void fl__loop_poller_destroy(struct poller *poller, int wake_fd);

/* Finds out what is ready and waits for it at most `timeout_ns` (-1: for ever). Returns 0, or FL_SYSTEM. A wake-up or a
 * signal ends the wait too, and so does a timeout in nanoseconds that the kernel does not know. */
int fl__loop_poller_poll(fl_loop *loop, int64_t timeout_ns);

/* Opens what fl_loop_poll_fd() needs. */
int fl__loop_poller_open_outer(fl_loop *loop);

/* In the child of a fork: opens descriptors of its own. */
int fl__loop_poller_after_fork(fl_loop *loop);

/* The same for the descriptors' phase: what was found before is good only if nothing was called since. */
int fl__loop_descriptors_take(fl_loop *loop);
void fl__loop_descriptors_run(fl_loop *loop);

/* --- sleep.c */

/* Sleeps until something can run. Returns 0 or FL_SYSTEM. */
int fl__loop_sleep(fl_loop *loop);

/* Gives back memory of timers that are gone: if the loop is about to sleep, all of it or until there is something to do. */
void fl__loop_trim(fl_loop *loop, bool sleeps);

/* The wait that fl_loop_poll_fd() has prepared is over: takes the mark out of the inbox. */
void fl__loop_unmark(fl_loop *loop);

/* The same for a turn: takes notice of the loop's own descriptors, too. */
int fl__loop_end_outside(fl_loop *loop);

#endif
