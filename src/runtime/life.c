/* SPDX-License-Identifier: MIT */
/* A worker's beginning and its leaving.
 *
 * Leaving. First `active` no longer counts the worker in. Tasks that were assigned to it are its own: no more are taken,
 * and those that were run first. The layer above is asked until it agrees. Then the mailbox is closed: what is in it, and
 * all timers, go to the merge queue. A thread that sends at the same moment either was faster, and its message is among
 * them, or finds the mailbox closed.
 */

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "base/alloc.h"
#include "runtime/internal.h"

/* --- Leaving */

static void take_no_more_tasks(struct fl__worker *worker)
{
    if (mailbox_is_open(&worker->assigned))
        fl__runtime_mailbox_close(&worker->assigned);
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
        fl__runtime_forget_message(message);
    else
        fl__runtime_merge(worker->rt, message);
}

static void pass_on_list(struct fl__worker *worker, struct fl__message *message)
{
    while (message) {
        struct fl__message *next = message->next;
        pass_on(worker, message);
        message = next;
    }
}

static void pass_on_queue(struct fl__worker *worker, struct message_queue *queue)
{
    pass_on_list(worker, message_queue_take(queue).first);
}

/* Closes everything through which other threads reach this worker. What was sent goes to other workers. Assigned tasks are
 * left only if the runtime stops. */
static void close_all(struct fl__worker *worker)
{
    assert(!worker->left);
    take_no_more_tasks(worker);
    fl__runtime_mailbox_close(&worker->mailbox);
    worker->left = true;
    pass_on_queue(worker, &worker->assigned.received);
    pass_on_queue(worker, &worker->mailbox.received);
    fl__runtime_tasks_close(&worker->arrivals, pass_on, worker);
    fl__runtime_tasks_close(&worker->tasks, pass_on, worker);
}

static void leave(struct fl__worker *worker)
{
    assert(worker == fl__runtime_self && !worker->left);
    if (worker->layer)
        worker->layer->stop(worker, worker->layer);
    worker->layer = NULL;
    close_all(worker);
    pass_on_queue(worker, &worker->deferred);
    pass_on_queue(worker, &worker->hungry);
    worker->due_next = worker->due_count = 0; /* they are in the table */
    fl__runtime_hand_over_timers(&worker->own);
    fl__runtime_hand_over_timers(&worker->common);
    atomic_store_explicit(&worker->awake, false, memory_order_relaxed);
}

static void empty_shelf(struct shelf *shelf)
{
    shelf_lock(shelf);
    fl_nodes_free(shelf->wheel);
    shelf->wheel = NULL;
    fl__runtime_entries_destroy(&shelf->table);
    shelf_unlock(shelf);
}

static void release(struct fl__worker *worker)
{
    assert(worker != fl__runtime_self);
    fl_loop_free(worker->loop);
    fl_nodes_free(worker->local);
    worker->local = NULL;
    empty_shelf(&worker->own);
    empty_shelf(&worker->common);
    fl__records_destroy(&fl__runtime_timer_pool, &worker->handles);
    fl__records_destroy(&fl__runtime_start_pool, &worker->starts);
    worker->loop = NULL;
}

static void *run(void *arg)
{
    struct fl__worker *worker = arg;
    fl__runtime_self = worker;
    fl_loop_hold(worker->loop);
    while (!may_leave(worker))
        fl__runtime_turn(worker);
    leave(worker);
    fl__runtime_self = NULL; /* what the loop's close callbacks start goes to other workers */
    release(worker);
    return NULL;
}

/* --- Starting */

static struct fl__worker *worker_slot(fl_runtime *rt, unsigned index)
{
    assert(index < FL_RUNTIME_MAX_WORKERS);
    struct fl__worker *worker = worker_at(rt, index);
    if (worker)
        return worker;
    worker = fl__alloc_zeroed_lines(sizeof(*worker));
    if (!worker)
        return NULL;
    worker->rt = rt;
    worker->index = index;
    worker->next_pick = index;
    worker->requests.message.run = fl__runtime_on_request;
    fl__runtime_mailbox_init(&worker->mailbox);
    fl__runtime_mailbox_init(&worker->assigned);
    fl__stack_close(&worker->arrivals.fresh);
    fl__stack_close(&worker->tasks.fresh);
    worker->own.owner = worker->common.owner = worker;
    worker->common.common = true;
    pthread_mutex_init(&worker->common.lock, NULL);
    atomic_store_explicit(&worker->common.next_ns, NEVER, memory_order_relaxed);
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
    int r = fl__runtime_thread_start(&worker->thread, name, true, run, worker);
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
    fl_loop_config loop = {.clock = fl__runtime_given_clock(worker), .slack_ns = worker->rt->slack_ns};
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
    atomic_store_explicit(&worker->awake, true, memory_order_relaxed);
    fl__runtime_mailbox_open(&worker->mailbox, worker->loop);
    fl__runtime_mailbox_open(&worker->assigned, worker->loop);
    atomic_store(&worker->arrivals.fresh, NULL);
    atomic_store(&worker->tasks.fresh, NULL);
    r = start_thread(worker);
    if (r < 0) {
        int error = errno;
        close_all(worker);
        release(worker);
        errno = error;
    }
    return r;
}
