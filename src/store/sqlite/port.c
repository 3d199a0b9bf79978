/* SPDX-License-Identifier: MIT */
/* Between the loops and the thread of a shard.
 *
 * Answers go back through a list for each loop (a port) and one task, which is posted when the list becomes used. Rows of
 * a window go through a second list, at most eight batches at a time; a request for loading comes into the first list
 * when its last batch is in the second. So the loop hands out batches as long as the request in front is the one they
 * belong to, and keeps to the order.
 */

#include <pthread.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/worker.h"

enum { BATCHES_MAX = 8, ANSWERS_AT_ONCE = 64 };

/* --- Answers, the shard's side ------------------------------------------------------------------------------------ */

static void deliver(fl_loop *loop, void *arg);

static void post_task(struct port *port)
{
    port->task = (fl_loop_task){.fn = deliver, .arg = port};
    fl_loop_post_task(port->shard.loop, &port->task);
}

void fl__port_post(struct port *port)
{
    if (port->posted)
        return;
    port->posted = true;
    post_task(port);
}

/* The loop wakes up when the lock is free, and does not have to wait for it. The port stays until its task has run. */
static void unlock_and_post(struct port *port)
{
    bool posts = !port->posted;
    port->posted = true;
    pthread_mutex_unlock(&port->worker->lock);
    if (posts)
        post_task(port);
}

void fl__port_answer(struct port *port, fl_store_request *request)
{
    if (!request)
        return;
    pthread_mutex_lock(&port->worker->lock);
    fl__assert(!*port->out_end); /* that is the end of the list */
    *port->out_end = request;
    while (request->next)
        request = request->next;
    port->out_end = &request->next;
    unlock_and_post(port);
}

void fl__port_send(struct worker *worker, struct port *port, struct batch *batch)
{
    batch->next = NULL;
    pthread_mutex_lock(&worker->lock);
    while (port->batch_count == BATCHES_MAX)
        pthread_cond_wait(&worker->changed, &worker->lock);
    fl__assert(port->batch_count < BATCHES_MAX);
    *port->batches_end = batch;
    port->batches_end = &batch->next;
    port->batch_count++;
    unlock_and_post(port);
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
    fl__assert(batch->room >= bytes);
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
    fl__assert(port->outstanding > 0 && request->done);
    request->store_data = NULL;
    if (--port->outstanding == 0)
        fl_loop_unhold(port->shard.loop);
    request->done(request);
    fl__answer_free(answer);
}

static void hand_out_rows(struct batch *batch)
{
    fl__assert(batch->count <= BATCH_ROWS && batch->used <= batch->room);
    batch->request->load.rows(batch->request, batch->rows, batch->count);
}

static void keep_batch(struct port *port, struct batch *batch)
{
    fl__assert(batch->room >= BATCH_BYTES);
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
    fl__assert(port->batch_count > 0);
    port->batches = batch->next;
    if (!port->batches)
        port->batches_end = &port->batches;
    port->batch_count--;
    pthread_cond_broadcast(&port->worker->changed);
    return batch;
}

static void free_port(struct port *port)
{
    fl__assert(port->gone && !port->out && !port->batches);
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
    fl__assert(port->posted);
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
        fl__port_post(port);
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

void fl__port_refuse(fl_store_request *request)
{
    for (; request; request = request->next)
        fl__store_answer(request, FL_STORE_UNAVAILABLE, "the shard was detached; nothing was written");
}

/* Under the lock, which it releases: there is something to do for the worker. Its thread wakes up when the lock is free. */
static void call_and_unlock(struct worker *worker)
{
    bool wakes = !worker->called;
    worker->called = true;
    pthread_mutex_unlock(&worker->lock);
    if (wakes)
        pthread_cond_broadcast(&worker->changed);
}

void fl__port_submit(struct port *port, fl_store_request *request)
{
    struct worker *worker = port->worker;
    fl__assert(request->done);
    request->next = NULL;
    request->store_data = NULL;
    if (port->outstanding++ == 0)
        fl_loop_hold(port->shard.loop);
    pthread_mutex_lock(&worker->lock);
    if (port->gone) { /* in the callback of an answer that came because of that */
        fl__port_refuse(request);
        *port->out_end = request;
        port->out_end = &request->next;
        unlock_and_post(port);
    } else {
        *port->in_end = request;
        port->in_end = &request->next;
        call_and_unlock(worker);
    }
}

void fl__port_detach(struct port *port, fl_loop_fn done, void *arg)
{
    fl__assert(!port->detaching && done);
    fl_loop_hold(port->shard.loop);
    port->detached = done;
    port->detached_arg = arg;
    pthread_mutex_lock(&port->worker->lock);
    port->detaching = true;
    call_and_unlock(port->worker);
}

void fl__shard_worker_wake(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    call_and_unlock(worker);
}
