/* SPDX-License-Identifier: MIT */
/* A worker: its thread, its turns, its leaving.
 *
 * The worker drives its loop turn by turn and does its own work in between (see worker.h for the order). When there is
 * nothing to do it lets the loop sleep; one timer of the loop, the alarm, stands for the next deadline of the wheel. The
 * alarm is moved only if it would come too late; if it comes too early, the turn finds nothing to do.
 *
 * The wheel is polled once a turn by the loop's clock. A worker with more than one piece of work to do in a turn would
 * get to its timers late, so it calls the metronome and looks between two of them whether that has set needs_poll: a load
 * from a line that nobody else writes to unless something is due. Nothing but punctuality within a turn depends on the
 * metronome.
 *
 * Leaving. First `active` no longer counts the worker in. The layer above is asked until it agrees. Then the mailbox is
 * closed: what is in it, and all timers, go to the merge queue. A thread that sends at the same moment either was
 * faster, and its message is among them, or finds the mailbox closed.
 */

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

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
    if (bits & REQUEST_SCRUB)
        fl__scrub_begin(worker);
    if (bits & REQUEST_LEAVE)
        worker->leaving = true;
}

/* --- Timers */

static uint64_t read_clock(struct fl__worker *worker)
{
    uint64_t now_ns = fl_loop_update_now(worker->loop);
    if (now_ns > worker->now_ns)
        worker->now_ns = now_ns;
    return worker->now_ns;
}

/* What is in hand is marked, so that a callback that cancels or moves it does not look for it in the wheel. */
static void take_in_hand(struct fl__worker *worker)
{
    for (uint32_t i = 0; i < worker->due_count; i++) {
        uintptr_t data = (uintptr_t)worker->due[i].data;
        if (data & 1) {
            struct entry *entry = entries_at(&worker->table, (uint32_t)(data >> 1));
            entry->id = 0;
            __builtin_prefetch(entry->timer, 1);
        } else {
            ((struct fl__local_timer *)data)->id = 0;
        }
    }
}

static void poll_timers(struct fl__worker *worker)
{
    uint32_t fired = 0;
    bool more = true;
    atomic_store_explicit(&worker->needs_poll, false, memory_order_relaxed);
    while (more && fired < POLL_BUDGET && !runtime_stopping(worker->rt)) {
        worker->due_next = 0;
        worker->due_count = (uint32_t)fl_wheel_poll(worker->wheel, read_clock(worker), worker->due, DUE_BATCH);
        take_in_hand(worker);
        more = worker->due_count > 0; /* callbacks take time, and a look is cheaper than a turn */
        fired += worker->due_count;
        while (worker->due_next < worker->due_count && !runtime_stopping(worker->rt))
            fl__fire(worker, &worker->due[worker->due_next++]);
    }
}

/* --- Turns */

bool fl__worker_must_poll(struct fl__worker *worker)
{
    struct metronome *metronome = &worker->rt->metronome;
    if (!atomic_load_explicit(&metronome->ticking, memory_order_relaxed)) {
        if (worker->rt->own_clock)
            return fl__runtime_now_ns(worker->rt) >= atomic_load_explicit(&worker->next_ns, memory_order_relaxed);
        fl__request(&metronome->requests, &metronome->mailbox, REQUEST_TICK);
    }
    return atomic_load_explicit(&worker->needs_poll, memory_order_relaxed);
}

static void run_messages(struct fl__worker *worker)
{
    for (unsigned n = 0; n < MESSAGE_BUDGET && !runtime_stopping(worker->rt); n++) {
        struct fl__message *message = queue_pop(&worker->mailbox.received);
        if (!message)
            return;
        message->run(worker, message);
        if (worker->mailbox.received.first && fl__worker_must_poll(worker))
            poll_timers(worker);
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
    if (worker->stranded > 0)
        fl__rescue_stranded(worker);
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
    uint64_t next_ns = UINT64_MAX;
    fl_wheel_next_poll(worker->wheel, &next_ns);
    if (worker->hungry.first || worker->stranded > 0) {
        uint64_t retry_ns = worker->now_ns + RETRY_NS;
        next_ns = next_ns < retry_ns ? next_ns : retry_ns;
    }
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

static bool has_work(const struct fl__worker *worker)
{
    return worker->mailbox.received.first || worker->deferred.first || worker->scrub.active || worker->leaving;
}

uint64_t fl__worker_next_ns(struct fl__worker *worker)
{
    bool news = atomic_load_explicit(&worker->mailbox.head, memory_order_relaxed) != NULL;
    return news || has_work(worker) ? 0 : next_turn_ns(worker);
}

static void turn(struct fl__worker *worker)
{
    uint64_t next_ns = next_turn_ns(worker);
    bool sleep = !has_work(worker) && set_alarm(worker, next_ns);
    if (sleep)
        atomic_store_explicit(&worker->awake, false, memory_order_relaxed);
    fl_loop_run_once(worker->loop, sleep);
    if (sleep)
        atomic_store_explicit(&worker->awake, true, memory_order_relaxed);
    poll_timers(worker);
    run_messages(worker);
    run_deferred(worker);
    retry(worker);
    if (worker->scrub.active)
        fl__scrub_turn(worker);
    counter_add(&worker->counters.entries, worker->table.live - counter_read(&worker->counters.entries));
}

/* --- Leaving */

static bool may_leave(struct fl__worker *worker)
{
    return runtime_stopping(worker->rt) ||
           (worker->leaving && (!worker->layer || worker->layer->leaving(worker, worker->layer)));
}

static void pass_on(struct fl__worker *worker, struct queue *queue)
{
    struct fl__message *message;
    while ((message = queue_pop(queue))) {
        if (message == &worker->requests.message)
            atomic_store(&worker->requests.bits, 0);
        else if (runtime_stopping(worker->rt))
            fl__forget_message(message);
        else
            fl__merge(worker->rt, message);
    }
}

static void leave(struct fl__worker *worker)
{
    if (worker->layer)
        worker->layer->stop(worker, worker->layer);
    worker->layer = NULL;
    fl__mailbox_close(&worker->mailbox);
    worker->left = true;
    pass_on(worker, &worker->mailbox.received);
    pass_on(worker, &worker->deferred);
    pass_on(worker, &worker->hungry);
    fl__hand_over_timers(worker);
    counter_add(&worker->counters.entries, 0 - counter_read(&worker->counters.entries));
    atomic_store_explicit(&worker->awake, false, memory_order_relaxed);
}

static void release(struct fl__worker *worker)
{
    fl_loop_free(worker->loop);
    fl_wheel_free(worker->wheel);
    fl__entries_destroy(&worker->table);
    fl__records_destroy(&fl__timer_pool, &worker->handles);
    fl__records_destroy(&fl__start_pool, &worker->starts);
    worker->loop = NULL;
    worker->wheel = NULL;
}

static void *run(void *arg)
{
    struct fl__worker *worker = arg;
    prctl(PR_SET_TIMERSLACK, 1); /* here once, so that the loop need not do it for each sleep */
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
    sigset_t all, before;
    char name[16];
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&worker->thread, NULL, run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return FL_SYSTEM;
    snprintf(name, sizeof(name), "foliot-%u", worker->index);
    pthread_setname_np(worker->thread, name);
    if (worker->rt->pin)
        pin(worker->thread, worker->index);
    return 0;
}

static int make_parts(struct fl__worker *worker)
{
    fl_loop_config loop = {.clock = worker->rt->clock};
    int r = fl_loop_new(&loop, &worker->loop);
    if (r < 0)
        return r;
    worker->now_ns = fl_loop_now_ns(worker->loop);
    fl_wheel_config wheel = {
        .start_ns = worker->now_ns, .worker_id = worker->index, .huge_pages = worker->rt->huge_pages};
    r = fl_wheel_new(&wheel, &worker->wheel);
    if (r == 0)
        worker->reach_ns = fl_wheel_max_duration_ns(worker->wheel);
    return r;
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
    worker->stranded = 0;
    worker->scrub.active = false;
    atomic_store_explicit(&worker->awake, true, memory_order_relaxed);
    fl__mailbox_open(&worker->mailbox, worker->loop);
    r = start_thread(worker);
    if (r < 0) {
        fl__mailbox_close(&worker->mailbox);
        pass_on(worker, &worker->mailbox.received);
        release(worker);
    }
    return r;
}
