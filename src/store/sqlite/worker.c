/* SPDX-License-Identifier: MIT */
/* The thread of a shard.
 *
 * It takes all requests that are there, carries them out in one transaction, commits, and answers them all: the more come
 * in while the disk is being waited for, the more share the next wait. A transaction that has taken ten milliseconds, or will
 * have to merge for about as long because of the names in it, takes no more requests. Reads before the first write of a transaction are answered at once, those behind it with it. Windows
 * are loaded between transactions.
 *
 * If anything in a transaction fails, all of it is rolled back and its requests are carried out again one by one: then
 * each has an answer of its own, and one that cannot be carried out does not harm the others.
 *
 * Answers go back through a list for each loop (a port) and one task, which is posted when the list becomes used. Rows of
 * a window go through a second list, at most eight batches at a time; a request for loading comes into the first list
 * when its last batch is in the second. So the loop hands out batches as long as the request in front is the one they
 * belong to, and keeps to the order.
 *
 * Locks: one for each shard, for what is passed between the threads, never held while anything is carried out.
 */

#include <pthread.h>

#include "base/alloc.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

enum { GROUP_NS = 10000000, GROUP_DEBT = 1 << 14, REST_NS = 1000000000, BATCHES_MAX = 8, ANSWERS_AT_ONCE = 64 };

static const char detached_text[] = "the shard was detached; nothing was written";

/* --- Answers, the shard's side ------------------------------------------------------------------------------------ */

static void deliver(fl_loop *loop, void *arg);

/* Under the lock. */
static void post(struct port *port)
{
    if (port->posted)
        return;
    port->posted = true;
    port->task = (fl_loop_task){.fn = deliver, .arg = port};
    fl_loop_post_task(port->shard.loop, &port->task);
}

void fl__port_answer(struct port *port, fl_store_request *request)
{
    if (!request)
        return;
    pthread_mutex_lock(&port->worker->lock);
    *port->out_end = request;
    while (request->next)
        request = request->next;
    port->out_end = &request->next;
    post(port);
    pthread_mutex_unlock(&port->worker->lock);
}

void fl__port_send(struct worker *worker, struct port *port, struct batch *batch)
{
    batch->next = NULL;
    pthread_mutex_lock(&worker->lock);
    while (port->batch_count == BATCHES_MAX)
        pthread_cond_wait(&worker->changed, &worker->lock);
    *port->batches_end = batch;
    port->batches_end = &batch->next;
    port->batch_count++;
    post(port);
    pthread_mutex_unlock(&worker->lock);
}

struct batch *fl__port_batch(struct worker *worker, struct port *port, size_t bytes)
{
    struct batch *batch = NULL;
    if (bytes <= BATCH_BYTES) {
        pthread_mutex_lock(&worker->lock);
        batch = port->spare;
        if (batch)
            port->spare = batch->next;
        pthread_mutex_unlock(&worker->lock);
    }
    if (!batch) {
        size_t room = bytes > BATCH_BYTES ? bytes : BATCH_BYTES;
        batch = fl__alloc(sizeof *batch + BATCH_ROWS * sizeof *batch->rows + room);
        if (!batch)
            return NULL;
        batch->room = room;
        batch->bytes = (unsigned char *)(batch->rows + BATCH_ROWS);
    }
    batch->count = batch->used = 0;
    return batch;
}

void fl__batch_free(struct batch *batch)
{
    fl__release(batch);
}

/* --- Answers, the loop's side ------------------------------------------------------------------------------------- */

/* The request is the caller's again when `done` is called; what it points to is there until that returns. */
static void hand_out(struct port *port, fl_store_request *request)
{
    void *answer = request->store_data;
    request->store_data = NULL;
    if (--port->outstanding == 0)
        fl_loop_unhold(port->shard.loop);
    request->done(request);
    fl__answer_free(answer);
}

static void hand_out_rows(struct batch *batch)
{
    batch->request->load.rows(batch->request, batch->rows, batch->count);
}

static void keep_batch(struct port *port, struct batch *batch)
{
    if (batch->room > BATCH_BYTES) {
        fl__batch_free(batch);
        return;
    }
    batch->next = port->spare;
    port->spare = batch;
}

static fl_store_request *pop_answer(struct port *port)
{
    fl_store_request *request = port->out;
    if (!request || (port->batches && port->batches->request == request))
        return NULL;
    port->out = request->next;
    if (!port->out)
        port->out_end = &port->out;
    return request;
}

static struct batch *pop_batch(struct port *port)
{
    struct batch *batch = port->batches;
    if (!batch)
        return NULL;
    port->batches = batch->next;
    if (!port->batches)
        port->batches_end = &port->batches;
    port->batch_count--;
    pthread_cond_broadcast(&port->worker->changed);
    return batch;
}

static void free_port(struct port *port)
{
    while (port->spare) {
        struct batch *next = port->spare->next;
        fl__batch_free(port->spare);
        port->spare = next;
    }
    fl__release(port);
}

static void deliver(fl_loop *loop, void *arg)
{
    struct port *port = arg;
    struct batch *batch = NULL;
    fl_store_request *request;
    pthread_mutex_lock(&port->worker->lock);
    port->posted = false;
    for (int i = 0; i < ANSWERS_AT_ONCE && (request = pop_answer(port)); i++) {
        pthread_mutex_unlock(&port->worker->lock);
        hand_out(port, request);
        pthread_mutex_lock(&port->worker->lock);
    }
    if (!request) /* and not because it were too many answers at once */
        batch = pop_batch(port);
    if (batch) {
        pthread_mutex_unlock(&port->worker->lock);
        hand_out_rows(batch);
        pthread_mutex_lock(&port->worker->lock);
        keep_batch(port, batch);
    }
    if (port->out || port->batches)
        post(port);
    bool gone = port->gone && !port->posted; /* else the task is on its way again, and comes back to this */
    pthread_mutex_unlock(&port->worker->lock);
    if (!gone)
        return;
    fl_loop_fn detached = port->detached;
    void *detached_arg = port->detached_arg;
    free_port(port);
    fl_loop_unhold(loop);
    detached(loop, detached_arg);
}

/* --- Requests, the loop's side ------------------------------------------------------------------------------------ */

/* Under the lock: there is something to do for the worker. */
static void call(struct worker *worker)
{
    if (!worker->called)
        pthread_cond_broadcast(&worker->changed);
    worker->called = true;
}

void fl__port_submit(struct port *port, fl_store_request *request)
{
    struct worker *worker = port->worker;
    request->next = NULL;
    request->store_data = NULL;
    if (port->outstanding++ == 0)
        fl_loop_hold(port->shard.loop);
    pthread_mutex_lock(&worker->lock);
    if (port->gone) { /* in the callback of an answer that came because of that */
        fl__store_answer(request, FL_STORE_UNAVAILABLE, "%s", detached_text);
        *port->out_end = request;
        port->out_end = &request->next;
        post(port);
    } else {
        *port->in_end = request;
        port->in_end = &request->next;
        call(worker);
    }
    pthread_mutex_unlock(&worker->lock);
}

void fl__port_detach(struct port *port, fl_loop_fn done, void *arg)
{
    fl_loop_hold(port->shard.loop);
    port->detached = done;
    port->detached_arg = arg;
    pthread_mutex_lock(&port->worker->lock);
    port->detaching = true;
    call(port->worker);
    pthread_mutex_unlock(&port->worker->lock);
}

void fl__shard_worker_wake(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    call(worker);
    pthread_mutex_unlock(&worker->lock);
}

/* --- Groups ------------------------------------------------------------------------------------------------------- */

/* Requests of a port that have been carried out and not yet answered. */
struct group {
    struct port *port;
    fl_store_request *first, **end;
    uint64_t began_ns;
};

static void group_add(struct group *group, fl_store_request *request)
{
    request->next = NULL;
    *group->end = request;
    group->end = &request->next;
}

static void group_answer(struct group *group)
{
    fl__port_answer(group->port, group->first);
    group->first = NULL;
    group->end = &group->first;
}

/* In a transaction of its own, if it needs one. */
static void run_alone(struct worker *worker, fl_store_request *request)
{
    struct base *base = worker->base;
    bool writes = fl__request_writes(request);
    fl__answer_free(request->store_data);
    request->store_data = NULL;
    int r = fl__base_ready(base);
    if (r == 0 && writes)
        r = fl__base_begin(base);
    if (r == 0)
        r = fl__request_run(base, worker->clock, request);
    if (r == 0 && writes)
        r = fl__base_commit(base);
    else if (base->in_transaction)
        fl__base_rollback(base);
    if (r < 0)
        fl__store_answer(request, r, "%s", base->message);
}

/* What has been carried out is taken back, and done again one by one. */
static void group_redo(struct worker *worker, struct group *group)
{
    if (worker->base->in_transaction)
        fl__base_rollback(worker->base);
    for (fl_store_request *request = group->first; request; request = request->next)
        run_alone(worker, request);
    group_answer(group);
}

static int background(struct worker *worker, uint64_t step_ns)
{
    uint64_t now = fl__monotonic_ns();
    if (now < worker->rest_until_ns)
        return 0;
    int r = fl__background_step(worker->base, now + step_ns);
    if (r < 0)
        worker->rest_until_ns = now + REST_NS;
    return r;
}

static void group_end(struct worker *worker, struct group *group)
{
    struct base *base = worker->base;
    if (!base->in_transaction) {
        group_answer(group);
        return;
    }
    int r = background(worker, fl__sqlite_tuning.step_ns);
    if (r == 0)
        r = fl__base_commit(base);
    if (r < 0 && r != FL_OUTCOME_UNKNOWN) {
        group_redo(worker, group);
        return;
    }
    for (fl_store_request *request = group->first; request && r < 0; request = request->next)
        fl__store_answer(request, r, "%s", base->message);
    group_answer(group);
    fl__base_extend_log(base);
    fl__helper_look(worker->helper, base);
}

static void group_run(struct worker *worker, struct group *group, fl_store_request *request)
{
    struct base *base = worker->base;
    int r = fl__base_ready(base);
    if (r == 0 && fl__request_writes(request) && !base->in_transaction) {
        group_answer(group);
        group->began_ns = fl__monotonic_ns();
        r = fl__base_begin(base);
    }
    if (r == 0)
        r = fl__request_run(base, worker->clock, request);
    group_add(group, request);
    if (r < 0)
        group_redo(worker, group);
    else if (base->in_transaction &&
             (fl__monotonic_ns() - group->began_ns > GROUP_NS || fl__names_debt(base) >= GROUP_DEBT))
        group_end(worker, group);
}

/* --- Ports -------------------------------------------------------------------------------------------------------- */

static void run_load(struct worker *worker, struct group *group, fl_store_request *request)
{
    group_end(worker, group);
    int r = fl__request_load(worker, group->port, request);
    if (r < 0)
        fl__store_answer(request, r, "%s", worker->base->message);
    group_add(group, request);
    group_answer(group);
}

static void serve(struct worker *worker, struct port *port)
{
    struct group group = {.port = port};
    group.end = &group.first;
    while (port->taken && !port->held) {
        fl_store_request *request = port->taken;
        port->taken = request->next;
        if (request->op == FL_STORE_LOAD) {
            run_load(worker, &group, request);
        } else if (request->op == FL_STORE_BACKUP) {
            group_end(worker, &group);
            port->held = fl__backup_begin(worker, port, request) == 0;
        } else {
            group_run(worker, &group, request);
        }
    }
    group_end(worker, &group);
}

/* Nobody wants the answers any more, but everybody gets one. */
static void refuse(struct worker *worker, struct port *port)
{
    if (fl__backup_port(worker) == port)
        fl__backup_abort(worker, "the shard was detached");
    for (fl_store_request *request = port->taken; request; request = request->next)
        fl__store_answer(request, FL_STORE_UNAVAILABLE, "%s", detached_text);
    fl__port_answer(port, port->taken);
    port->taken = NULL;
}

static void take(struct port *port)
{
    fl_store_request **end = &port->taken;
    while (*end)
        end = &(*end)->next;
    *end = port->in;
    port->in = NULL;
    port->in_end = &port->in;
    port->closing = port->detaching;
}

/* Waits until the thread is called, unless there is `other` work; takes what was submitted. Gives the first port. */
static struct port *take_all(struct worker *worker, bool other, bool *called)
{
    pthread_mutex_lock(&worker->lock);
    while (!worker->called && !other)
        pthread_cond_wait(&worker->changed, &worker->lock);
    *called = worker->called;
    worker->called = false;
    struct port *first = worker->ports;
    for (struct port *port = first; port; port = port->next)
        take(port);
    pthread_mutex_unlock(&worker->lock);
    return first;
}

/* --- The thread --------------------------------------------------------------------------------------------------- */

/* Work in the background in a transaction of its own. */
static void work_alone(struct worker *worker)
{
    struct base *base = worker->base;
    if (fl__base_ready(base) < 0 || fl__base_begin(base) < 0) {
        worker->rest_until_ns = fl__monotonic_ns() + REST_NS;
        return;
    }
    int r = background(worker, 2 * fl__sqlite_tuning.step_ns);
    if (r == 0)
        r = fl__base_commit(base); /* rolls back itself */
    else
        fl__base_rollback(base);
    if (r < 0)
        worker->rest_until_ns = fl__monotonic_ns() + REST_NS;
    fl__helper_look(worker->helper, base);
}

/* Lets go of a port, and answers what has come in since it was looked at. Under the lock. */
static void let_go(struct worker *worker, struct port *port)
{
    struct port **at = &worker->ports;
    while (*at != port)
        at = &(*at)->next;
    *at = port->next;
    for (fl_store_request *request = port->in; request; request = request->next)
        fl__store_answer(request, FL_STORE_UNAVAILABLE, "%s", detached_text);
    if (port->in) {
        *port->out_end = port->in;
        port->out_end = port->in_end;
    }
    port->gone = true;
    post(port);
}

/* Lets go of ports from which nothing more comes. The last one is kept: 1 if only that is left, and nobody else can come
 * any more. */
static bool close_ports(struct worker *worker)
{
    bool last = false;
    pthread_mutex_lock(&worker->lock);
    for (struct port *port = worker->ports, *next; port && !last; port = next) {
        next = port->next;
        if (!port->closing)
            continue;
        last = worker->ports == port && !next;
        if (!last)
            let_go(worker, port);
    }
    if (last)
        worker->state = WORKER_CLOSING;
    pthread_mutex_unlock(&worker->lock);
    return last;
}

static bool has_other_work(const struct worker *worker)
{
    if (fl__backup_waiting(worker))
        return true;
    return fl__background_waiting(worker->base) && fl__monotonic_ns() >= worker->rest_until_ns;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    do {
        bool called, other = has_other_work(worker);
        for (struct port *port = take_all(worker, other, &called); port; port = port->next) {
            if (port->closing)
                refuse(worker, port);
            else
                serve(worker, port);
        }
        if (worker->backup)
            fl__backup_step(worker);
        if (!called && fl__background_waiting(worker->base))
            work_alone(worker);
    } while (!close_ports(worker));
    fl__helper_stop(worker->helper);
    fl__base_close(worker->base);
    pthread_mutex_lock(&worker->lock);
    let_go(worker, worker->ports);
    worker->state = WORKER_ENDED;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

int fl__shard_worker_start(struct worker *worker)
{
    worker->called = false;
    worker->backup = NULL;
    worker->rest_until_ns = 0;
    return pthread_create(&worker->thread, NULL, work, worker) == 0 ? 0 : FL_SYSTEM;
}
