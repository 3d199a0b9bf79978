/* SPDX-License-Identifier: MIT */
/* A worker: its thread, its turns, its leaving.
 *
 * The worker drives its loop turn by turn and does its own work in between (see worker.h for the order). When there is
 * nothing to do it lets the loop sleep; one timer of the loop, the alarm, stands for the next deadline of the wheel. The
 * alarm is moved only if it would come too late; if it comes too early, the turn finds nothing to do.
 *
 * The wheel is polled once a turn by the loop's clock, before any of its timers is called: what their callbacks start
 * anew, even for now, waits for the next poll. If they take longer than a tick, the rest stays in hand, and the worker
 * sees to its messages, tasks and descriptors before it goes on there.
 *
 * A worker with more than one piece of work to do in a turn would get to its timers late, so it calls the metronome and
 * looks between two of them whether that has set needs_poll: a load from a line that nobody else writes to unless something
 * is due. Nothing but punctuality within a turn depends on the metronome.
 *
 * Leaving. First `active` no longer counts the worker in. Tasks that were assigned to it are its own: no more are taken,
 * and those that were run first. The layer above is asked until it agrees. Then the mailbox is closed: what is in it, and
 * all timers, go to the merge queue. A thread that sends at the same moment either was faster, and its message is among
 * them, or finds the mailbox closed.
 */

#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "base/alloc.h"
#include "runtime/internal.h"

_Thread_local struct fl__worker *fl__self __attribute__((tls_model("initial-exec")));

/* --- Who and where */

struct fl__worker *fl__worker_self(void)
{
    return fl__self;
}

fl_runtime *fl__worker_runtime(const struct fl__worker *worker)
{
    return worker->rt;
}

unsigned fl__worker_index(const struct fl__worker *worker)
{
    return worker->index;
}

fl_loop *fl__worker_loop(const struct fl__worker *worker)
{
    return worker->loop;
}

int fl_runtime_worker(void)
{
    return fl__self ? (int)fl__self->index : FL_NOT_FOUND;
}

fl_loop *fl_runtime_loop(void)
{
    return fl__self ? fl__self->loop : NULL;
}

uint64_t fl__worker_now_ns(const struct fl__worker *worker)
{
    uint64_t tick_ns = atomic_load_explicit(&worker->timer_now_ns, memory_order_relaxed);
    return tick_ns > worker->now_ns ? tick_ns : worker->now_ns;
}

void fl__worker_set_layer(struct fl__worker *worker, struct fl__worker_layer *layer)
{
    worker->layer = layer;
}

struct fl__worker_layer *fl__worker_get_layer(const struct fl__worker *worker)
{
    return worker->layer;
}

/* --- Messages */

bool fl__worker_send(struct fl__worker *worker, struct fl__message *message)
{
    return fl__mailbox_send(&worker->mailbox, message);
}

void fl__worker_again(struct fl__worker *worker, struct fl__message *message)
{
    queue_append(&worker->mailbox.received, message);
}

void fl__worker_defer(struct fl__worker *worker, struct fl__message *message)
{
    queue_append(&worker->deferred, message);
}

static void on_request(struct fl__worker *worker, struct fl__message *message)
{
    (void)message;
    unsigned bits = atomic_exchange(&worker->requests.bits, 0);
    if (bits & REQUEST_SCRUB) {
        fl__scrub_begin(&worker->own);
        fl__scrub_begin(&worker->common);
    }
    if (bits & REQUEST_SPREAD) {
        fl__spread_begin(&worker->own);
        fl__spread_begin(&worker->common);
    }
    if (bits & REQUEST_LEAVE)
        worker->leaving = true;
}

/* --- Work for anybody */

/* What other workers may take, too. */
static bool has_common_work(const struct fl__worker *worker)
{
    return tasks_waiting(&worker->tasks) || tasks_waiting(&worker->arrivals);
}

void fl__ask_for_help(struct fl__worker *worker)
{
    if (has_common_work(worker))
        fl__idle_wake_one(worker->rt);
}

/* --- Timers */

static uint64_t read_clock(struct fl__worker *worker)
{
    uint64_t now_ns = fl_loop_update_now(worker->loop);
    if (now_ns > worker->now_ns)
        worker->now_ns = now_ns;
    return worker->now_ns;
}

void fl__work_begins(struct fl__worker *worker)
{
    stopwatch_begin_turn(&worker->stopwatch, worker->now_ns);
}

bool fl__work_takes_long(struct fl__worker *worker)
{
    struct stopwatch *stopwatch = &worker->stopwatch;
    stopwatch_end_callback(stopwatch);
    if (stopwatch_now_ns(stopwatch) - stopwatch->turn_ns < worker->rt->tick_ns)
        return false;
    read_clock(worker); /* what comes next has a tick of its own */
    return true;
}

static bool has_in_hand(const struct fl__worker *worker)
{
    return worker->due_next < worker->due_count;
}

/* A node in hand does not wait: who cancels or moves its timer does not look for it in the wheel. */
static void take_in_hand(struct fl__worker *worker)
{
    worker->due_next = 0;
    worker->due_count = (uint32_t)fl_nodes_poll(worker->own.wheel, worker->now_ns, worker->due, TIMER_BUDGET);
    for (uint32_t i = 0; i < worker->due_count; i++)
        __builtin_prefetch(entry_of_node(worker->due[i])->timer, 1);
}

static void fire_own(struct fl__worker *worker)
{
    if (!has_in_hand(worker))
        take_in_hand(worker);
    if (!has_in_hand(worker))
        return;
    fl__work_begins(worker);
    while (has_in_hand(worker) && !runtime_stopping(worker->rt)) {
        fl__ask_for_help(worker);
        fl__fire(worker, worker->due[worker->due_next++]);
        if (fl__work_takes_long(worker))
            return;
    }
}

static void poll_timers(struct fl__worker *worker)
{
    atomic_store_explicit(&worker->needs_poll, false, memory_order_relaxed);
    read_clock(worker);
    fl__fire_local(worker);
    fire_own(worker);
    fl__fire_common(worker, &worker->common);
}

/* --- Turns */

/* What the metronome does, where it does not tick. */
static bool look_at_clock(struct fl__worker *worker)
{
    uint64_t now_ns = fl__runtime_now_ns(worker->rt);
    atomic_store_explicit(&worker->timer_now_ns, now_ns, memory_order_relaxed);
    return now_ns >= atomic_load_explicit(&worker->next_ns, memory_order_relaxed);
}

static bool must_poll(struct fl__worker *worker)
{
    struct metronome *metronome = &worker->rt->metronome;
    if (!atomic_load_explicit(&metronome->ticking, memory_order_relaxed)) {
        if (worker->rt->own_clock)
            return look_at_clock(worker);
        fl__request(&metronome->requests, &metronome->mailbox, REQUEST_TICK);
    }
    return atomic_load_explicit(&worker->needs_poll, memory_order_relaxed);
}

bool fl__worker_must_turn(struct fl__worker *worker, uint64_t since_ns)
{
    return must_poll(worker) ||
           atomic_load_explicit(&worker->timer_now_ns, memory_order_relaxed) >= since_ns + worker->rt->tick_ns;
}

static bool has_mail(const struct fl__worker *worker)
{
    return !stack_is_empty(&worker->mailbox.stack) || !stack_is_empty(&worker->assigned.stack);
}

static bool has_messages(const struct fl__worker *worker)
{
    return worker->mailbox.received.first || worker->assigned.received.first || has_common_work(worker);
}

/* Messages, assigned tasks and tasks for anybody take turns, so that none waits for ever for the others. */
static struct fl__message *next_message(struct fl__worker *worker)
{
    enum { SOURCES = 3 };
    struct fl__message *message = NULL;
    for (unsigned i = 0; i < SOURCES && !message; i++) {
        worker->source = (worker->source + 1) % SOURCES;
        message = worker->source == 0   ? queue_pop(&worker->mailbox.received)
                  : worker->source == 1 ? queue_pop(&worker->assigned.received)
                                        : tasks_pop(&worker->tasks);
    }
    return message;
}

/* Takes in timers that others have started, for a tick at most. */
static void take_arrivals(struct fl__worker *worker)
{
    enum { BATCH = 64 };
    struct fl__message *batch[BATCH];
    unsigned count;
    if (!tasks_waiting(&worker->arrivals))
        return;
    read_clock(worker);
    fl__work_begins(worker);
    while ((count = fl__tasks_take(&worker->arrivals, batch, BATCH)) > 0) {
        for (unsigned i = 0; i < count; i++)
            batch[i]->run(worker, batch[i]);
        if (fl__work_takes_long(worker))
            return;
    }
}

/* A turn ends after a tick at the latest, because the loop has descriptors to look at. Timers that arrive do not wait for
 * the end of the turn. */
static void run_messages(struct fl__worker *worker)
{
    uint64_t end_ns = worker->now_ns + worker->rt->tick_ns;
    for (unsigned n = 0; n < WORK_BUDGET && !runtime_stopping(worker->rt); n++) {
        take_arrivals(worker);
        struct fl__message *message = next_message(worker);
        if (!message)
            return;
        fl__ask_for_help(worker);
        message->run(worker, message);
        if (has_messages(worker) && must_poll(worker))
            poll_timers(worker);
        if (fl__worker_now_ns(worker) >= end_ns)
            return;
    }
}

static void run_deferred(struct fl__worker *worker)
{
    struct queue now = queue_take(&worker->deferred);
    struct fl__message *message;
    while ((message = queue_pop(&now)))
        message->run(worker, message);
}

/* What there was no memory for is tried once a turn. */
static void retry(struct fl__worker *worker)
{
    struct queue now = queue_take(&worker->hungry);
    struct fl__message *message;
    while ((message = queue_pop(&now)))
        message->run(worker, message);
}

static void on_alarm(fl_loop *loop, void *arg)
{
    struct fl__worker *worker = arg;
    (void)loop;
    worker->alarm = 0;
    worker->alarm_ns = UINT64_MAX;
}

/* When the worker has to turn again, for its wheel and for what lacks memory; the metronome is told of it. */
static uint64_t next_turn_ns(struct fl__worker *worker)
{
    uint64_t own_ns = NEVER, local_ns = NEVER;
    uint64_t common_ns = atomic_load_explicit(&worker->common.next_ns, memory_order_relaxed);
    fl_nodes_next_poll(worker->own.wheel, &own_ns);
    fl_nodes_next_poll(worker->local, &local_ns);
    uint64_t next_ns = earlier(earlier(own_ns, local_ns), common_ns);
    if (has_in_hand(worker))
        next_ns = worker->now_ns;
    if (worker->hungry.first)
        next_ns = earlier(next_ns, worker->now_ns + RETRY_NS);
    atomic_store_explicit(&worker->next_ns, next_ns, memory_order_relaxed);
    return next_ns;
}

/* False: the worker must not sleep. */
static bool set_alarm(struct fl__worker *worker, uint64_t next_ns)
{
    if (next_ns <= worker->now_ns)
        return false;
    if (next_ns >= worker->alarm_ns)
        return true;
    uint64_t now_ns = fl_loop_now_ns(worker->loop);
    int r = worker->alarm ? fl_loop_rearm(worker->loop, worker->alarm, next_ns > now_ns ? next_ns - now_ns : 0)
                          : fl_loop_timer_at(worker->loop, next_ns, on_alarm, worker, &worker->alarm);
    if (r < 0)
        return false;
    worker->alarm_ns = next_ns;
    return true;
}

static bool has_upkeep(const struct shelf *shelf)
{
    return shelf->scrub.active || shelf->spread.left > 0;
}

static bool has_work(const struct fl__worker *worker)
{
    return has_messages(worker) || has_mail(worker) || worker->deferred.first || has_upkeep(&worker->own) ||
           has_upkeep(&worker->common) || worker->leaving;
}

/* Timers that are due for a tick now, and the worker that has them has not come to fire them. */
static bool fire_overdue(struct fl__worker *worker, struct shelf *shelf)
{
    uint64_t next_ns = atomic_load_explicit(&shelf->next_ns, memory_order_relaxed);
    return next_ns < worker->now_ns && worker->now_ns - next_ns >= worker->rt->tick_ns &&
           fl__fire_common(worker, shelf);
}

/* Takes what others have not begun. */
static bool steal(struct fl__worker *worker)
{
    fl_runtime *rt = worker->rt;
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    read_clock(worker);
    for (unsigned i = 1; i < active; i++) {
        unsigned index = (worker->index + i) % active;
        struct fl__worker *other = worker_at(rt, index);
        if (fire_overdue(worker, &other->common))
            return true;
        if (!fl__idle(rt, index) && has_common_work(other) &&
            (fl__tasks_steal(&worker->arrivals, &other->arrivals) || fl__tasks_steal(&worker->tasks, &other->tasks)))
            return true;
    }
    return false;
}

/* False: there is something to do after all. */
static bool lie_down(struct fl__worker *worker)
{
    fl__idle_mark(worker);
    if (!has_common_work(worker) && !steal(worker))
        return true;
    fl__idle_clear(worker);
    return false;
}

uint64_t fl__worker_next_ns(struct fl__worker *worker)
{
    if (has_work(worker))
        return 0;
    uint64_t next_ns = next_turn_ns(worker), loop_ns = fl__loop_next_ns(worker->loop);
    return next_ns < loop_ns ? next_ns : loop_ns;
}

static void do_upkeep(struct shelf *shelf)
{
    if (shelf->scrub.active)
        fl__scrub_turn(shelf);
    if (shelf->spread.left > 0)
        fl__spread_turn(shelf);
}

static void turn(struct fl__worker *worker)
{
    uint64_t next_ns = next_turn_ns(worker);
    bool sleep = !has_work(worker) && set_alarm(worker, next_ns) && lie_down(worker);
    if (sleep) {
        atomic_store_explicit(&worker->awake, false, memory_order_relaxed);
        fl__given_sleep(worker);
    }
    fl_loop_run_once(worker->loop, sleep);
    if (sleep) {
        fl__given_awake(worker);
        atomic_store_explicit(&worker->awake, true, memory_order_relaxed);
        fl__idle_clear(worker);
    }
    poll_timers(worker);
    run_messages(worker);
    run_deferred(worker);
    retry(worker);
    do_upkeep(has_upkeep(&worker->own) ? &worker->own : &worker->common);
    atomic_store_explicit(&worker->own.entries, worker->own.table.live, memory_order_relaxed);
}

/* --- Leaving */

static void take_no_more_tasks(struct fl__worker *worker)
{
    if (mailbox_is_open(&worker->assigned))
        fl__mailbox_close(&worker->assigned);
}

static bool may_leave(struct fl__worker *worker)
{
    if (runtime_stopping(worker->rt))
        return true;
    if (!worker->leaving)
        return false;
    take_no_more_tasks(worker);
    return !worker->assigned.received.first && (!worker->layer || worker->layer->leaving(worker, worker->layer));
}

static void pass_on(void *arg, struct fl__message *message)
{
    struct fl__worker *worker = arg;
    if (message == &worker->requests.message)
        atomic_store(&worker->requests.bits, 0);
    else if (runtime_stopping(worker->rt))
        fl__forget_message(message);
    else
        fl__merge(worker->rt, message);
}

static void pass_on_list(struct fl__worker *worker, struct fl__message *message)
{
    while (message) {
        struct fl__message *next = message->next;
        pass_on(worker, message);
        message = next;
    }
}

static void pass_on_queue(struct fl__worker *worker, struct queue *queue)
{
    pass_on_list(worker, queue_take(queue).first);
}

/* Nobody reaches this worker any more. What was sent goes to others, but for tasks that were assigned to it: there are
 * none, unless the runtime stops. */
static void close_all(struct fl__worker *worker)
{
    take_no_more_tasks(worker);
    fl__mailbox_close(&worker->mailbox);
    worker->left = true;
    pass_on_queue(worker, &worker->assigned.received);
    pass_on_queue(worker, &worker->mailbox.received);
    fl__tasks_close(&worker->arrivals, pass_on, worker);
    fl__tasks_close(&worker->tasks, pass_on, worker);
}

static void leave(struct fl__worker *worker)
{
    if (worker->layer)
        worker->layer->stop(worker, worker->layer);
    worker->layer = NULL;
    close_all(worker);
    pass_on_queue(worker, &worker->deferred);
    pass_on_queue(worker, &worker->hungry);
    worker->due_next = worker->due_count = 0; /* they are in the table */
    fl__hand_over_timers(&worker->own);
    fl__hand_over_timers(&worker->common);
    atomic_store_explicit(&worker->awake, false, memory_order_relaxed);
}

static void empty_shelf(struct shelf *shelf)
{
    shelf_lock(shelf);
    fl_nodes_free(shelf->wheel);
    shelf->wheel = NULL;
    fl__entries_destroy(&shelf->table);
    shelf_unlock(shelf);
}

static void release(struct fl__worker *worker)
{
    fl_loop_free(worker->loop);
    fl_nodes_free(worker->local);
    worker->local = NULL;
    empty_shelf(&worker->own);
    empty_shelf(&worker->common);
    fl__records_destroy(&fl__timer_pool, &worker->handles);
    fl__records_destroy(&fl__start_pool, &worker->starts);
    worker->loop = NULL;
}

static void *run(void *arg)
{
    struct fl__worker *worker = arg;
    fl__self = worker;
    fl_loop_hold(worker->loop);
    while (!may_leave(worker))
        turn(worker);
    leave(worker);
    fl__self = NULL; /* what the loop's close callbacks start goes to other workers */
    release(worker);
    return NULL;
}

/* --- Starting */

static struct fl__worker *worker_slot(fl_runtime *rt, unsigned index)
{
    struct fl__worker *worker = worker_at(rt, index);
    if (worker)
        return worker;
    worker = fl__alloc_zeroed_lines(sizeof(*worker));
    if (!worker)
        return NULL;
    worker->rt = rt;
    worker->index = index;
    worker->next_pick = index;
    worker->requests.message.run = on_request;
    fl__mailbox_init(&worker->mailbox);
    fl__mailbox_init(&worker->assigned);
    stack_close(&worker->arrivals.fresh);
    stack_close(&worker->tasks.fresh);
    worker->own.owner = worker->common.owner = worker;
    worker->common.common = true;
    pthread_mutex_init(&worker->common.lock, NULL);
    atomic_store_explicit(&worker->common.next_ns, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&rt->workers[index], worker, memory_order_release);
    return worker;
}

/* The n-th of the processors that this process may use, round and round. */
static void pin(pthread_t thread, unsigned n)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) < 0 || CPU_COUNT(&all) == 0)
        return;
    n %= (unsigned)CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(thread, sizeof(one), &one);
            return;
        }
}

static int start_thread(struct fl__worker *worker)
{
    char name[16];
    snprintf(name, sizeof(name), "foliot-%u", worker->index);
    int r = fl__thread_start(&worker->thread, name, true, run, worker);
    if (r == 0 && worker->rt->pin)
        pin(worker->thread, worker->index);
    return r;
}

static int set_up_shelf(struct shelf *shelf)
{
    const struct fl__worker *worker = shelf->owner;
    fl_wheel_config config = {.start_ns = worker->now_ns};
    shelf_lock(shelf);
    int r = fl_nodes_new(&config, &shelf->wheel);
    shelf->scrub.active = false;
    shelf->spread.left = 0;
    shelf_unlock(shelf);
    return r;
}

static int make_parts(struct fl__worker *worker)
{
    fl_loop_config loop = {.clock = fl__given_clock(worker), .slack_ns = worker->rt->slack_ns};
    int r = fl_loop_new(&loop, &worker->loop);
    if (r < 0)
        return r;
    worker->now_ns = fl_loop_now_ns(worker->loop);
    stopwatch_init(&worker->stopwatch, loop.clock, worker->now_ns);
    fl_wheel_config local = {.start_ns = worker->now_ns};
    r = fl_nodes_new(&local, &worker->local);
    if (r == 0)
        r = set_up_shelf(&worker->own);
    return r < 0 ? r : set_up_shelf(&worker->common);
}

int fl__worker_start(fl_runtime *rt, unsigned index)
{
    struct fl__worker *worker = worker_slot(rt, index);
    if (!worker)
        return FL_NO_MEMORY;
    int r = make_parts(worker);
    if (r < 0) {
        release(worker);
        return r;
    }
    worker->leaving = worker->left = false;
    worker->alarm = 0;
    worker->alarm_ns = UINT64_MAX;
    atomic_store_explicit(&worker->awake, true, memory_order_relaxed);
    fl__mailbox_open(&worker->mailbox, worker->loop);
    fl__mailbox_open(&worker->assigned, worker->loop);
    stack_open(&worker->arrivals.fresh);
    stack_open(&worker->tasks.fresh);
    r = start_thread(worker);
    if (r < 0) {
        int error = errno;
        close_all(worker);
        release(worker);
        errno = error;
    }
    return r;
}
