/* SPDX-License-Identifier: MIT */
/* A worker and its turns.
 *
 * The worker drives its loop turn by turn and does its own work in between (see worker.h for the order). When there is
 * nothing to do, it lets the loop sleep until the next deadline of its wheels.
 *
 * The wheel is polled once a turn by the loop's clock, before any of its timers is called: what their callbacks start
 * anew, even for now, waits for the next poll. If they take longer than a tick, the rest stays in hand, and the worker
 * sees to its messages, tasks and descriptors before it goes on there.
 *
 * A worker with more than one piece of work to do in a turn would get to its timers late, so it calls the metronome and
 * looks between two of them whether that has set needs_poll: a load from a line that no other thread writes to unless a timer
 * is due. Nothing but punctuality within a turn depends on the metronome.
 */

#include <assert.h>
#include <sched.h>

#include "runtime/internal.h"

_Thread_local struct fl__worker *fl__runtime_self __attribute__((tls_model("initial-exec")));

/* --- Identity */

struct fl__worker *fl__worker_self(void)
{
    return fl__runtime_self;
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
    return fl__runtime_self ? (int)fl__runtime_self->index : FL_NOT_FOUND;
}

fl_loop *fl_runtime_loop(void)
{
    return fl__runtime_self ? fl__runtime_self->loop : NULL;
}

uint64_t fl__worker_now_ns(const struct fl__worker *worker)
{
    uint64_t tick_ns = atomic_load_explicit(&worker->timer_now_ns, memory_order_relaxed);
    return tick_ns > worker->now_ns ? tick_ns : worker->now_ns;
}

void fl__worker_set_layer(struct fl__worker *worker, struct fl__worker_layer *layer)
{
    assert(worker == fl__runtime_self);
    worker->layer = layer;
}

struct fl__worker_layer *fl__worker_get_layer(const struct fl__worker *worker)
{
    return worker->layer;
}

/* --- Messages */

bool fl__worker_send(struct fl__worker *worker, struct fl__message *message)
{
    return fl__runtime_mailbox_send(&worker->mailbox, message);
}

void fl__worker_again(struct fl__worker *worker, struct fl__message *message)
{
    assert(worker == fl__runtime_self);
    fl__queue_append(&worker->mailbox.received, message);
}

void fl__worker_defer(struct fl__worker *worker, struct fl__message *message)
{
    assert(worker == fl__runtime_self);
    fl__queue_append(&worker->deferred, message);
}

void fl__runtime_on_request(struct fl__worker *worker, struct fl__message *message)
{
    assert(worker == fl__runtime_self);
    (void)message;
    unsigned bits = atomic_exchange(&worker->requests.bits, 0);
    if (bits & REQUEST_SCRUB) {
        fl__runtime_scrub_begin(&worker->own);
        fl__runtime_scrub_begin(&worker->common);
    }
    if (bits & REQUEST_SPREAD) {
        fl__runtime_spread_begin(&worker->own);
        fl__runtime_spread_begin(&worker->common);
    }
    if (bits & REQUEST_LEAVE)
        worker->leaving = true;
}

/* --- Work for any worker */

/* What other workers may take, too. */
static bool has_common_work(const struct fl__worker *worker)
{
    return tasks_waiting(&worker->tasks) || tasks_waiting(&worker->arrivals);
}

void fl__runtime_ask_for_help(struct fl__worker *worker)
{
    if (has_common_work(worker))
        fl__runtime_idle_wake_one(worker->rt);
}

/* --- Timers */

static uint64_t read_clock(struct fl__worker *worker)
{
    assert(worker == fl__runtime_self);
    uint64_t now_ns = fl_loop_update_now(worker->loop);
    if (now_ns > worker->now_ns)
        worker->now_ns = now_ns;
    return worker->now_ns;
}

void fl__runtime_work_begins(struct fl__worker *worker)
{
    stopwatch_begin_turn(&worker->stopwatch, worker->now_ns);
}

bool fl__runtime_work_takes_long(struct fl__worker *worker)
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

/* A node in hand does not wait: cancelling or moving its timer does not look for it in the wheel. */
static void take_in_hand(struct fl__worker *worker)
{
    assert(!has_in_hand(worker));
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
    fl__runtime_work_begins(worker);
    while (has_in_hand(worker) && !runtime_stopping(worker->rt)) {
        fl__runtime_ask_for_help(worker);
        fl__runtime_fire(worker, worker->due[worker->due_next++]);
        if (fl__runtime_work_takes_long(worker))
            return;
    }
}

static void poll_timers(struct fl__worker *worker)
{
    atomic_store_explicit(&worker->needs_poll, false, memory_order_relaxed);
    read_clock(worker);
    fl__runtime_fire_local(worker);
    fire_own(worker);
    fl__runtime_fire_common(worker, &worker->common);
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
        fl__runtime_request(&metronome->requests, &metronome->mailbox, REQUEST_TICK);
    }
    return atomic_load_explicit(&worker->needs_poll, memory_order_relaxed);
}

bool fl__worker_must_turn(struct fl__worker *worker, uint64_t since_ns)
{
    assert(worker == fl__runtime_self);
    return must_poll(worker) ||
           atomic_load_explicit(&worker->timer_now_ns, memory_order_relaxed) >= since_ns + worker->rt->tick_ns;
}

static bool has_mail(const struct fl__worker *worker)
{
    return !fl__stack_is_empty(&worker->mailbox.sent) || !fl__stack_is_empty(&worker->assigned.sent);
}

static bool has_messages(const struct fl__worker *worker)
{
    return worker->mailbox.received.first || worker->assigned.received.first || has_common_work(worker);
}

/* Messages, assigned tasks and tasks for any worker take turns, so that none starves. */
static struct fl__message *next_message(struct fl__worker *worker)
{
    enum { SOURCES = 3 };
    struct fl__message *message = NULL;
    for (unsigned i = 0; i < SOURCES && !message; i++) {
        worker->source = (worker->source + 1) % SOURCES;
        message = worker->source == 0   ? fl__queue_pop(&worker->mailbox.received)
                  : worker->source == 1 ? fl__queue_pop(&worker->assigned.received)
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
    fl__runtime_work_begins(worker);
    while ((count = fl__runtime_tasks_take(&worker->arrivals, batch, BATCH)) > 0) {
        for (unsigned i = 0; i < count; i++)
            batch[i]->run(worker, batch[i]);
        if (fl__runtime_work_takes_long(worker))
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
        fl__runtime_ask_for_help(worker);
        message->run(worker, message);
        if (has_messages(worker) && must_poll(worker))
            poll_timers(worker);
        if (fl__worker_now_ns(worker) >= end_ns)
            return;
    }
}

static void run_deferred(struct fl__worker *worker)
{
    struct message_queue now = message_queue_take(&worker->deferred);
    struct fl__message *message;
    while ((message = fl__queue_pop(&now)))
        message->run(worker, message);
}

/* What there was no memory for is tried once a turn. */
static void retry(struct fl__worker *worker)
{
    struct message_queue now = message_queue_take(&worker->hungry);
    struct fl__message *message;
    while ((message = fl__queue_pop(&now)))
        message->run(worker, message);
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
           fl__runtime_fire_common(worker, shelf);
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
        if (!fl__runtime_idle(rt, index) && has_common_work(other) &&
            (fl__runtime_tasks_steal(&worker->arrivals, &other->arrivals) ||
             fl__runtime_tasks_steal(&worker->tasks, &other->tasks)))
            return true;
    }
    return false;
}

/* False: there is something to do after all. */
static bool lie_down(struct fl__worker *worker)
{
    fl__runtime_idle_mark(worker);
    if (!has_common_work(worker) && !steal(worker))
        return true;
    fl__runtime_idle_clear(worker);
    return false;
}

uint64_t fl__worker_next_ns(struct fl__worker *worker)
{
    assert(worker == fl__runtime_self);
    if (has_work(worker))
        return 0;
    return earlier(next_turn_ns(worker), fl__loop_next_ns(worker->loop));
}

static void do_upkeep(struct shelf *shelf)
{
    assert(shelf->owner == fl__runtime_self);
    if (shelf->scrub.active)
        fl__runtime_scrub_turn(shelf);
    if (shelf->spread.left > 0)
        fl__runtime_spread_turn(shelf);
}

void fl__runtime_turn(struct fl__worker *worker)
{
    assert(worker == fl__runtime_self && !worker->left);
    uint64_t next_ns = next_turn_ns(worker);
    bool sleep = !has_work(worker) && next_ns > worker->now_ns && lie_down(worker);
    if (sleep) {
        atomic_store_explicit(&worker->awake, false, memory_order_relaxed);
        fl__runtime_given_sleep(worker, next_ns);
    }
    fl__loop_run_until(worker->loop, sleep ? next_ns : 0);
    if (sleep) {
        fl__runtime_given_awake(worker);
        atomic_store_explicit(&worker->awake, true, memory_order_relaxed);
        fl__runtime_idle_clear(worker);
    }
    poll_timers(worker);
    run_messages(worker);
    run_deferred(worker);
    retry(worker);
    do_upkeep(has_upkeep(&worker->own) ? &worker->own : &worker->common);
    atomic_store_explicit(&worker->own.entries, worker->own.table.live, memory_order_relaxed);
}
