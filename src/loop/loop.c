/* SPDX-License-Identifier: MIT */
/* Making, running and stopping the loop, and the phases of a turn.
 *
 * A turn sleeps first and works then, so that one turn always does what it woke up for. Every phase takes its work aside
 * before it calls anything; what callbacks add is found in the next turn, except for immediates and close callbacks
 * that are added by an earlier phase.
 *
 * The loop looks for an immediate stop before each callback. The stop ends the turn there: the loop remembers the phase and
 * the callbacks that are left in it. The next run finishes this turn before it begins another one.
 *
 * fl_loop_free() inside a callback only sets a flag that ends the turn in the same way; the memory goes when the
 * outermost call, which is the only one that runs callbacks, is about to return.
 */

#include <assert.h>

#include "base/alloc.h"
#include "base/moment.h"
#include "loop/loop.h"
#include "loop/internal.h"

enum {
    DEFAULT_BUDGET = 1024,
    MAX_BUDGET = 1 << 20,
    MAX_ASKED = 1 << 20, /* close callbacks that those of a loop that ends may ask for */
};

/* --- Making and freeing */

static void release_tasks(fl_loop *loop, struct task_list *list)
{
    while (list->count > 0)
        inbox_release(&loop->inbox, task_list_pop(list));
}

static void destroy(fl_loop *loop)
{
    assert(!loop->running);
    fl__loop_unmark(loop);
    fl__loop_inbox_close(&loop->inbox);
    fl__loop_inbox_take(&loop->inbox, &loop->urgent, &loop->tasks);
    release_tasks(loop, &loop->urgent);
    release_tasks(loop, &loop->tasks);
    fl__loop_inbox_destroy(&loop->inbox);
    fl__loop_ring_destroy(&loop->microtasks);
    fl__loop_ring_destroy(&loop->closing);
    fl__loop_poller_destroy(&loop->poller, loop->inbox.wake_fd);
    fl__loop_timers_destroy(loop);
    fl__release(loop);
}

static void close_and_destroy(fl_loop *loop)
{
    assert(!loop->ending);
    loop->ending = true;
    while (loop->closing.count > 0) {
        struct loop_job job = fl__loop_ring_pop(&loop->closing);
        job.fn(loop, job.arg);
    }
    destroy(loop);
}

int fl_loop_new(const fl_loop_config *config, fl_loop **ret)
{
    static const fl_loop_config defaults;
    if (!config)
        config = &defaults;
    if (config->budget > MAX_BUDGET)
        return FL_INVALID_ARGUMENT;
    fl_loop *loop = fl__alloc_zeroed(sizeof(*loop));
    if (!loop)
        return FL_NO_MEMORY;
    loop->clock = config->clock ? config->clock : fl_clock_monotonic();
    loop->budget = config->budget ? config->budget : DEFAULT_BUDGET;
    loop->slack_ns = config->slack_ns;
    loop->read_ns = 1; /* time 0 counts as 1 */
    loop->until_ns = NEVER;
    stopwatch_init(&loop->stopwatch, loop->clock, fl_loop_update_now(loop));
    fl__loop_inbox_init(&loop->inbox);
    fl__loop_poller_init(&loop->poller);
    int r = fl__loop_timers_init(loop, config->huge_pages);
    if (r < 0) {
        destroy(loop);
        return r;
    }
    *ret = loop;
    return 0;
}

void fl_loop_free(fl_loop *loop)
{
    if (!loop || loop->freed)
        return;
    loop->freed = true;
    if (!loop->running)
        close_and_destroy(loop);
}

/* --- Time and life */

uint64_t fl_loop_now_ns(const fl_loop *loop)
{
    return loop->now_ns;
}

uint64_t fl_loop_update_now(fl_loop *loop)
{
    loop->now_ns = fl__loop_read_clock(loop);
    return loop->now_ns;
}

static bool tasks_wait(const fl_loop *loop)
{
    return loop->urgent.count > 0 || loop->tasks.count > 0 || !inbox_empty(&loop->inbox) ||
           loop->microtasks.count > 0 || loop->closing.count > 0;
}

bool fl_loop_alive(const fl_loop *loop)
{
    return loop->keep_alive > 0 || tasks_wait(loop);
}

/* A stop has ended the last turn after its sleep: due timers and hooks may be left. */
static bool turn_is_left(const fl_loop *loop)
{
    return loop->unfinished && loop->phase != PHASE_BEFORE_SLEEP;
}

bool fl__loop_can_run(const fl_loop *loop)
{
    return tasks_wait(loop) || loop->immediates > 0 || (!loop->running && turn_is_left(loop));
}

uint64_t fl__loop_next_ns(fl_loop *loop)
{
    uint64_t next_ns;
    if (fl__loop_can_run(loop) || loop->poller.added > 0)
        return 0;
    return fl_nodes_next_poll(loop->wheel, &next_ns) ? next_ns : NEVER;
}

bool fl_loop_next_ns(fl_loop *loop, uint64_t *ret_ns)
{
    if (!fl__loop_can_run(loop))
        return fl_nodes_next_poll(loop->wheel, ret_ns);
    *ret_ns = loop->now_ns;
    return true;
}

void fl_loop_hold(fl_loop *loop)
{
    loop->keep_alive++;
}

void fl_loop_unhold(fl_loop *loop)
{
    assert(loop->keep_alive > 0);
    loop->keep_alive--;
}

/* --- Tasks */

int fl_loop_microtask(fl_loop *loop, fl_loop_fn fn, void *arg)
{
    return fl__loop_ring_push(&loop->microtasks, fn, arg);
}

/* While the loop is freed, the number of close callbacks is limited, so that freeing ends. */
int fl_loop_close_callback(fl_loop *loop, fl_loop_fn fn, void *arg)
{
    if (loop->ending && loop->asked == MAX_ASKED)
        return FL_CAPACITY_EXCEEDED;
    loop->asked += loop->ending;
    return fl__loop_ring_push(&loop->closing, fn, arg);
}

static void run_microtasks(fl_loop *loop)
{
    while (loop->microtasks.count > 0 && !loop->freed) {
        struct loop_job job = fl__loop_ring_pop(&loop->microtasks);
        loop->counters.microtasks++;
        job.fn(loop, job.arg);
    }
}

void fl__loop_checkpoint(fl_loop *loop)
{
    run_microtasks(loop);
    histogram_add(&loop->callback_ticks, stopwatch_end_callback(&loop->stopwatch));
}

/* From the beginning of its callback, a task of the caller's may be freed or posted again. */
static void run_task(fl_loop *loop, fl_loop_task *task)
{
    fl_loop_fn fn = task->fn;
    void *arg = task->arg;
    inbox_release(&loop->inbox, task);
    fn(loop, arg);
    fl__loop_checkpoint(loop);
}

/* --- The phases */

static uint64_t within_budget(const fl_loop *loop, uint64_t count)
{
    return count < loop->budget ? count : loop->budget;
}

static void take_tasks(fl_loop *loop)
{
    if (!inbox_empty(&loop->inbox))
        fl__loop_inbox_take(&loop->inbox, &loop->urgent, &loop->tasks);
    uint64_t waiting = loop->urgent.count + loop->tasks.count;
    if (waiting > loop->counters.tasks_peak)
        loop->counters.tasks_peak = waiting;
    if (waiting > 0)
        stopwatch_begin_callbacks(&loop->stopwatch);
    loop->left.urgent = within_budget(loop, loop->urgent.count);
    loop->left.tasks = within_budget(loop, loop->tasks.count);
}

static void run_list(fl_loop *loop, struct task_list *list, uint64_t *left, uint64_t *called)
{
    assert(*left <= list->count);
    for (; *left > 0 && !fl__loop_interrupted(loop); (*left)--) {
        ++*called;
        run_task(loop, task_list_pop(list));
    }
}

static void run_tasks(fl_loop *loop)
{
    if (loop->left.urgent > 0)
        run_list(loop, &loop->urgent, &loop->left.urgent, &loop->counters.urgent_tasks);
    if (loop->left.tasks > 0)
        run_list(loop, &loop->tasks, &loop->left.tasks, &loop->counters.tasks);
}

static void take_closing(fl_loop *loop)
{
    loop->left.closing = within_budget(loop, loop->closing.count);
}

static void run_closing(fl_loop *loop)
{
    assert(loop->left.closing <= loop->closing.count);
    for (; loop->left.closing > 0 && !fl__loop_interrupted(loop); loop->left.closing--) {
        struct loop_job job = fl__loop_ring_pop(&loop->closing);
        loop->counters.closing++;
        job.fn(loop, job.arg);
        fl__loop_checkpoint(loop);
    }
}

/* --- Running */

/* A phase is over: false if a stop has ended it, and with it the turn. */
static inline bool go_on_to(fl_loop *loop, enum phase phase)
{
    assert(phase == loop->phase + 1);
    if (fl__loop_interrupted(loop))
        return false;
    loop->phase = phase;
    return true;
}

/* The microtasks come before the first callback of the turn. */
static void run_hooks_before_sleep(fl_loop *loop)
{
    if (!table_list_empty(&loop->table, HOOKS_NOW))
        run_microtasks(loop);
    fl__loop_hooks_run(loop, HOOKS_BEFORE_SLEEP);
}

static inline void read_clock_for_turn(fl_loop *loop)
{
    stopwatch_begin_turn(&loop->stopwatch, fl_loop_update_now(loop));
}

/* Callbacks begin, in a new turn or in one that a stop has ended before its time. */
static void begin_callbacks(fl_loop *loop)
{
    if (!fl__loop_interrupted(loop))
        run_microtasks(loop);
    stopwatch_begin_callbacks(&loop->stopwatch);
}

/* Sleeps, if asked to, and begins the waking part of the turn. */
static int wake_up(fl_loop *loop, bool sleep)
{
    assert(loop->phase == PHASE_AFTER_SLEEP);
    if (loop->table.may_trim)
        fl__loop_trim(loop, sleep);
    int r = sleep ? fl__loop_sleep(loop) : 0;
    if (r < 0) {
        loop->unfinished = false;
        return r;
    }
    loop->counters.turns++;
    read_clock_for_turn(loop);
    fl__loop_timers_take(loop); /* before any callback of this turn can make one that is due */
    if (loop->hooks > 0)
        fl__loop_hooks_take(loop, HOOKS_AFTER_SLEEP);
    begin_callbacks(loop);
    return 0;
}

/* The part of a turn before the sleep, and the sleep. Returns 1, 0 if a stop has ended the turn, or an error. */
static inline int run_before_sleep(fl_loop *loop, bool wait)
{
    if (loop->hooks > 0)
        run_hooks_before_sleep(loop);
    if (!go_on_to(loop, PHASE_AFTER_SLEEP))
        return 0;
    int r = wake_up(loop, wait && !fl__loop_can_run(loop) && fl_loop_alive(loop));
    return r < 0 ? r : 1;
}

static inline void take_immediates(fl_loop *loop)
{
    if (loop->immediates > 0)
        fl__loop_immediates_take(loop);
}

static inline void run_immediates(fl_loop *loop)
{
    if (loop->immediates > 0)
        fl__loop_immediates_run(loop);
}

/* Goes through a turn from the phase in which it is, whose work has been taken aside, to its end or to a stop. */
static int run_phases(fl_loop *loop, bool wait)
{
    assert(loop->unfinished);
    int r;
    switch (loop->phase) {
    case PHASE_BEFORE_SLEEP:
        r = run_before_sleep(loop, wait);
        if (r <= 0)
            return r;
        __attribute__((fallthrough));
    case PHASE_AFTER_SLEEP:
        if (loop->hooks > 0)
            fl__loop_hooks_run(loop, HOOKS_AFTER_SLEEP);
        if (!go_on_to(loop, PHASE_TIMERS))
            return 0;
        __attribute__((fallthrough));
    case PHASE_TIMERS:
        fl__loop_timers_run(loop);
        if (!go_on_to(loop, PHASE_TASKS))
            return 0;
        take_tasks(loop);
        __attribute__((fallthrough));
    case PHASE_TASKS:
        run_tasks(loop);
        if (!go_on_to(loop, PHASE_DESCRIPTORS))
            return 0;
        r = loop->poller.added > 0 ? fl__loop_descriptors_take(loop) : 0;
        if (r < 0)
            return r;
        __attribute__((fallthrough));
    case PHASE_DESCRIPTORS:
        if (loop->poller.ready_count > 0)
            fl__loop_descriptors_run(loop);
        if (!go_on_to(loop, PHASE_IMMEDIATES))
            return 0;
        take_immediates(loop);
        __attribute__((fallthrough));
    case PHASE_IMMEDIATES:
        run_immediates(loop);
        if (!go_on_to(loop, PHASE_CLOSING))
            return 0;
        take_closing(loop);
        __attribute__((fallthrough));
    case PHASE_CLOSING:
        run_closing(loop);
        loop->unfinished = fl__loop_interrupted(loop);
    }
    return 0;
}

static int finish_turn(fl_loop *loop)
{
    assert(loop->phase != PHASE_BEFORE_SLEEP);
    read_clock_for_turn(loop);
    begin_callbacks(loop);
    return run_phases(loop, false);
}

/* One turn. If a stop has ended the last one after its sleep, that is finished first, and there is no reason to wait; if
 * it has ended it before, the turn goes on from there. */
static int turn(fl_loop *loop, bool wait)
{
    assert(loop->running && !loop->freed);
    int r = loop->poller.outside ? fl__loop_end_outside(loop) : 0;
    loop->poller.ready_count = 0;
    loop->poller.polled = false;
    if (r == 0 && turn_is_left(loop)) {
        r = finish_turn(loop);
        wait = false;
        if (loop->unfinished)
            return r;
    }
    if (r < 0)
        return r;
    wait = wait && !fl__loop_can_run(loop);
    if (!loop->unfinished && loop->hooks > 0)
        fl__loop_hooks_take(loop, HOOKS_BEFORE_SLEEP);
    loop->unfinished = true;
    loop->phase = PHASE_BEFORE_SLEEP;
    return run_phases(loop, wait);
}

/* A turn of a graceful stop: it does not wait, and says whether it found nothing to do. */
static int drain_turn(fl_loop *loop, bool *ret_idle)
{
    uint64_t before = fl__loop_progress(loop);
    int r = turn(loop, false);
    uint64_t next_ns;
    bool due = fl_nodes_next_poll(loop->wheel, &next_ns) && next_ns <= loop->now_ns;
    *ret_idle = fl__loop_progress(loop) == before && !fl__loop_can_run(loop) && !due;
    return r;
}

static int leave(fl_loop *loop, int r)
{
    assert(loop->running);
    loop->running = false;
    loop->until_ns = NEVER;
    atomic_store(&loop->inbox.stop, STOP_NO);
    if (!loop->freed)
        return r;
    close_and_destroy(loop);
    return FL_LOOP_FREED;
}

int fl_loop_run(fl_loop *loop)
{
    if (loop->running || loop->freed)
        return FL_BUSY;
    loop->running = true;
    int r = 0;
    bool idle = false;
    while (r == 0 && !idle && !loop->freed && inbox_stop(&loop->inbox) < STOP_TURN && fl_loop_alive(loop))
        r = inbox_stop(&loop->inbox) == STOP_NO ? turn(loop, true) : drain_turn(loop, &idle);
    return leave(loop, r);
}

static bool may_sleep(const fl_loop *loop)
{
    return loop->read_ns < loop->until_ns && fl_loop_alive(loop) && inbox_stop(&loop->inbox) == STOP_NO;
}

/* A turn may call nothing, because the loop also wakes for events that it then drops. Such a turn is repeated. */
int fl__loop_run_until(fl_loop *loop, uint64_t until_ns)
{
    if (loop->running || loop->freed)
        return FL_BUSY;
    loop->running = true;
    loop->until_ns = until_ns;
    int r = 0;
    uint64_t before = fl__loop_progress(loop);
    bool more = inbox_stop(&loop->inbox) < STOP_TURN;
    while (r == 0 && more) {
        bool sleep = may_sleep(loop);
        r = turn(loop, sleep);
        more = sleep && !loop->freed && fl__loop_progress(loop) == before && may_sleep(loop);
    }
    return leave(loop, r);
}

int fl_loop_run_once(fl_loop *loop, bool wait)
{
    return fl__loop_run_until(loop, wait ? NEVER : 0);
}
