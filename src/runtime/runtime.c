/* SPDX-License-Identifier: MIT */
/* Making, resizing and freeing the runtime, and sending work to its workers.
 *
 * Workers have numbers. Those below `active` get new work; resizing starts or ends the ones above. A thread that read
 * `active` a moment ago may still send to a worker that leaves: its mailbox is closed then, sending fails, and the
 * message goes to another worker or, if there is none, into the merge queue, where the metronome keeps it. So the only
 * lock in the runtime is the one that keeps two resizes apart.
 */

#include <assert.h>
#include <errno.h>
#include <sched.h>

#include "base/alloc.h"
#include "runtime/internal.h"

#define DEFAULT_TICK_NS (1ull << 20)
#define MAX_TICK_NS (1ull << 40)

enum { DEFAULT_SCRUB_BUDGET = 1024 };

/* --- Sending */

/* If the mailbox is closed, the request is dropped. But the owner may have opened it meanwhile, and other threads may have
 * relied on this message: this call sends what they have asked for. */
void fl__runtime_request(struct requests *requests, struct mailbox *mailbox, enum request what)
{
    unsigned asked = what, there;
    while (atomic_fetch_or(&requests->bits, asked) == 0 && !fl__runtime_mailbox_send(mailbox, &requests->message)) {
        there = atomic_exchange(&requests->bits, 0);
        if ((there & ~asked) == 0)
            return;
        asked = there;
    }
}

void fl__runtime_merge(fl_runtime *rt, struct fl__message *message)
{
    bool sent = fl__runtime_mailbox_send(&rt->metronome.mailbox, message);
    assert(sent);
    (void)sent;
}

/* --- Idle workers and work for any worker
 *
 * Work for any worker lies with one worker, which may be stuck in a callback. So no worker sleeps while there is such work:
 * it marks itself as idle, looks at all workers that are not, and only then sleeps. A thread that sends work to a worker
 * looks afterwards whether that worker is marked, and if not, wakes a marked one. Both write first and read then, and all
 * of it is sequentially consistent, so one of the two sees the other. A worker that finds more than it can begin at once
 * wakes an idle worker, too. */

static _Atomic uint64_t *idle_word(fl_runtime *rt, unsigned index)
{
    assert(index < FL_RUNTIME_MAX_WORKERS);
    return &rt->idle[index / 64];
}

bool fl__runtime_idle(fl_runtime *rt, unsigned index)
{
    return atomic_load(idle_word(rt, index)) >> index % 64 & 1;
}

void fl__runtime_idle_mark(struct fl__worker *worker)
{
    atomic_fetch_or(idle_word(worker->rt, worker->index), 1ull << worker->index % 64);
}

void fl__runtime_idle_clear(struct fl__worker *worker)
{
    if (fl__runtime_idle(worker->rt, worker->index))
        atomic_fetch_and(idle_word(worker->rt, worker->index), ~(1ull << worker->index % 64));
}

/* False: it was not idle, or another has woken it. */
static bool wake(fl_runtime *rt, unsigned index)
{
    uint64_t mark = 1ull << index % 64;
    if (!fl__runtime_idle(rt, index) || !(atomic_fetch_and(idle_word(rt, index), ~mark) & mark))
        return false;
    struct fl__worker *worker = worker_at(rt, index);
    fl__runtime_request(&worker->requests, &worker->mailbox, REQUEST_LOOK);
    return true;
}

/* The first idle one of `first` … `end` - 1, or `end`. */
static unsigned find_idle(fl_runtime *rt, unsigned first, unsigned end)
{
    for (unsigned i = first; i < end; i = (i | 63) + 1) {
        uint64_t marks = atomic_load(idle_word(rt, i)) >> i % 64;
        if (marks)
            return i + (unsigned)__builtin_ctzll(marks) < end ? i + (unsigned)__builtin_ctzll(marks) : end;
    }
    return end;
}

void fl__runtime_idle_wake_one(fl_runtime *rt)
{
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    unsigned index = find_idle(rt, 0, active);
    while (index < active && !wake(rt, index))
        index = find_idle(rt, index + 1, active);
}

bool fl__runtime_offer(struct fl__worker *worker, struct fl__message *message)
{
    bool timers = message->run == fl__runtime_run_start || message->run == fl__runtime_adopt_segment;
    const struct fl__message *head = fl__stack_push(timers ? &worker->arrivals.fresh : &worker->tasks.fresh, message);
    if ((uintptr_t)head == FL__STACK_CLOSED)
        return false;
    if (!wake(worker->rt, worker->index) && fl__runtime_self != worker)
        fl__runtime_idle_wake_one(worker->rt);
    return true;
}

/* The worker whose turn it is, or if that is busy, the next idle worker. */
static unsigned pick(fl_runtime *rt, unsigned active)
{
    assert(active > 0);
    struct fl__worker *self = fl__runtime_self;
    unsigned turn =
        self && self->rt == rt ? self->next_pick++ : atomic_fetch_add_explicit(&rt->next_pick, 1, memory_order_relaxed);
    turn %= active;
    unsigned index = find_idle(rt, turn, active);
    return index < active ? index : find_idle(rt, 0, turn);
}

void fl__runtime_send(fl_runtime *rt, struct fl__message *message)
{
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    unsigned first = active > 0 ? pick(rt, active) : 0;
    for (unsigned i = 0; i < active; i++)
        if (fl__runtime_offer(worker_at(rt, (first + i) % active), message))
            return;
    fl__runtime_merge(rt, message);
}

struct spawned {
    struct fl__message message;
    fl_task_fn fn;
    void *arg;
};

static void run_spawned(struct fl__worker *worker, struct fl__message *message)
{
    struct spawned task = *(struct spawned *)message;
    fl__release(message);
    counter_add(&worker->counters.tasks, 1);
    task.fn(task.arg);
}

static struct spawned *make_task(fl_task_fn fn, void *arg)
{
    struct spawned *task = fl__alloc(sizeof(*task));
    if (task)
        *task = (struct spawned){{NULL, run_spawned}, fn, arg};
    return task;
}

int fl_runtime_spawn(fl_runtime *rt, fl_task_fn fn, void *arg)
{
    if (!fn)
        return FL_INVALID_ARGUMENT;
    struct spawned *task = make_task(fn, arg);
    if (!task)
        return FL_NO_MEMORY;
    fl__runtime_send(rt, &task->message);
    return 0;
}

int fl_runtime_spawn_on(fl_runtime *rt, unsigned worker, fl_task_fn fn, void *arg)
{
    if (!fn || worker >= FL_RUNTIME_MAX_WORKERS)
        return FL_INVALID_ARGUMENT;
    if (worker >= atomic_load_explicit(&rt->active, memory_order_acquire))
        return FL_NOT_FOUND;
    struct spawned *task = make_task(fn, arg);
    if (!task)
        return FL_NO_MEMORY;
    if (fl__runtime_mailbox_send(&worker_at(rt, worker)->assigned, &task->message))
        return 0;
    fl__release(task);
    return FL_NOT_FOUND;
}

void fl__runtime_forget_message(struct fl__message *message)
{
    if (message->run == run_spawned)
        fl__release(message);
    else if (message->run == fl__runtime_run_start)
        fl__runtime_forget_start(message);
    else if (message->run == fl__runtime_adopt_segment)
        fl__runtime_forget_segment((struct segment *)message);
}

/* --- Layers above */

struct fl__runtime_layer *fl__runtime_set_layer(fl_runtime *rt, struct fl__runtime_layer *layer)
{
    struct fl__runtime_layer *there = NULL;
    return atomic_compare_exchange_strong(&rt->layer, &there, layer) ? layer : there;
}

struct fl__runtime_layer *fl__runtime_get_layer(fl_runtime *rt)
{
    return atomic_load(&rt->layer);
}

unsigned fl__runtime_workers(fl_runtime *rt)
{
    return atomic_load_explicit(&rt->active, memory_order_acquire);
}

struct fl__worker *fl__runtime_worker(fl_runtime *rt, unsigned index)
{
    return worker_at(rt, index);
}

uint64_t fl__runtime_now_ns(const fl_runtime *rt)
{
    return rt->clock->now_ns(rt->clock);
}

/* --- Growing and shrinking */

static void end_workers(fl_runtime *rt, unsigned first, unsigned end)
{
    assert(first <= end);
    for (unsigned i = first; i < end; i++) {
        struct fl__worker *worker = worker_at(rt, i);
        fl__runtime_request(&worker->requests, &worker->mailbox, REQUEST_LEAVE);
    }
    for (unsigned i = first; i < end; i++)
        pthread_join(worker_at(rt, i)->thread, NULL);
}

static int grow(fl_runtime *rt, unsigned active, unsigned workers)
{
    assert(active < workers && workers <= FL_RUNTIME_MAX_WORKERS);
    for (unsigned i = active; i < workers; i++) {
        int r = fl__worker_start(rt, i);
        if (r < 0) {
            int error = errno;
            end_workers(rt, active, i);
            errno = error;
            return r;
        }
    }
    atomic_store_explicit(&rt->grown_from, active, memory_order_relaxed);
    atomic_store_explicit(&rt->active, workers, memory_order_release);
    for (unsigned i = 0; i < active; i++) {
        struct fl__worker *worker = worker_at(rt, i);
        fl__runtime_request(&worker->requests, &worker->mailbox, REQUEST_SPREAD);
    }
    fl__runtime_request(&rt->metronome.requests, &rt->metronome.mailbox, REQUEST_DEAL);
    return 0;
}

int fl_runtime_resize(fl_runtime *rt, unsigned workers)
{
    int r = 0;
    if (workers > FL_RUNTIME_MAX_WORKERS)
        return FL_INVALID_ARGUMENT;
    if (fl__runtime_self && fl__runtime_self->rt == rt)
        return FL_BUSY;
    pthread_mutex_lock(&rt->resizing);
    unsigned active = atomic_load_explicit(&rt->active, memory_order_relaxed);
    if (workers > active) {
        r = grow(rt, active, workers);
    } else {
        atomic_store_explicit(&rt->active, workers, memory_order_release);
        end_workers(rt, workers, active);
    }
    pthread_mutex_unlock(&rt->resizing);
    return r;
}

/* --- Making and freeing */

static unsigned processors(void)
{
    cpu_set_t set;
    unsigned count = sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    return count < FL_RUNTIME_MAX_WORKERS ? count : FL_RUNTIME_MAX_WORKERS;
}

static fl_runtime *make(const fl_runtime_config *config)
{
    fl_runtime *rt = fl__alloc_zeroed_lines(sizeof(*rt));
    if (!rt)
        return NULL;
    rt->clock = config->clock ? config->clock : fl_clock_monotonic();
    rt->tick_ns = config->tick_ns ? config->tick_ns : DEFAULT_TICK_NS;
    rt->scrub_budget = config->scrub_budget ? config->scrub_budget : DEFAULT_SCRUB_BUDGET;
    rt->pin = config->pin;
    rt->slack_ns = config->slack_ns;
    rt->own_clock = rt->clock->wait_until != NULL;
    pthread_mutex_init(&rt->resizing, NULL);
    return rt;
}

static void destroy(fl_runtime *rt)
{
    struct fl__runtime_layer *layer = fl__runtime_get_layer(rt);
    if (layer)
        layer->free(rt, layer);
    for (unsigned i = 0; i < FL_RUNTIME_MAX_WORKERS && worker_at(rt, i); i++) {
        pthread_mutex_destroy(&worker_at(rt, i)->common.lock);
        fl__release_lines(worker_at(rt, i));
    }
    pthread_mutex_destroy(&rt->resizing);
    fl__release_lines(rt);
}

int fl_runtime_new(const fl_runtime_config *config, fl_runtime **ret)
{
    static const fl_runtime_config defaults;
    if (!config)
        config = &defaults;
    if (config->workers > FL_RUNTIME_MAX_WORKERS || config->tick_ns > MAX_TICK_NS)
        return FL_INVALID_ARGUMENT;
    fl_runtime *rt = make(config);
    if (!rt)
        return FL_NO_MEMORY;
    int r = fl__runtime_metronome_start(rt);
    if (r < 0) {
        destroy(rt);
        return r;
    }
    r = fl_runtime_resize(rt, config->workers ? config->workers : processors());
    if (r < 0) {
        int error = errno;
        fl_runtime_free(rt);
        errno = error;
        return r;
    }
    *ret = rt;
    return 0;
}

void fl_runtime_free(fl_runtime *rt)
{
    if (!rt)
        return;
    assert(!fl__runtime_self || fl__runtime_self->rt != rt);
    atomic_store(&rt->stopping, true);
    unsigned active = atomic_exchange(&rt->active, 0);
    end_workers(rt, 0, active);
    fl__runtime_metronome_stop(rt);
    destroy(rt);
}
