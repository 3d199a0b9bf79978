/* SPDX-License-Identifier: MIT */
/* The thread of a shard.
 *
 * It takes all waiting requests, carries them out in one transaction, commits, and answers them all. Requests that arrive
 * during the sync of a commit share the next commit. A transaction that has taken ten milliseconds, or whose names will
 * need about as much time for merging, takes no more requests. Reads before the first write of a transaction are answered at
 * once, reads after it with the transaction. Windows are loaded between transactions.
 *
 * If a request fails, the transaction is rolled back and its requests are carried out again one by one. So each gets its own
 * answer, and a request that fails does not affect the others.
 *
 * Locks: one per shard, for data that the threads exchange. It is never held while a request is carried out.
 */

#include <pthread.h>

#include "base/assert.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

enum { GROUP_NS = 10000000, GROUP_DEBT = 1 << 14, REST_NS = 1000000000 };

/* --- Groups ------------------------------------------------------------------------------------------------------- */

/* Requests of a port that have been carried out and not yet answered. */
struct group {
    struct port *port;
    fl_store_request *first, **end;
    uint64_t began_ns;
};

static void group_add(struct group *group, fl_store_request *request)
{
    fl__assert(group->end && !*group->end);
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

/* Rolls the transaction back, and carries its requests out again one by one. */
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
    fl__assert(request->op == FL_STORE_LOAD);
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

static void refuse(struct worker *worker, struct port *port)
{
    fl__assert(port->closing);
    if (fl__backup_port(worker) == port)
        fl__backup_abort(worker, "the shard was detached");
    fl__port_refuse(port->taken);
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

/* Detaches a port, and answers the requests that have arrived since. Call it with the lock held. */
static void let_go(struct worker *worker, struct port *port)
{
    struct port **at = &worker->ports;
    fl__assert(!port->gone);
    while (*at != port)
        at = &(*at)->next;
    *at = port->next;
    fl__port_refuse(port->in);
    if (port->in) {
        *port->out_end = port->in;
        port->out_end = port->in_end;
    }
    port->gone = true;
    fl__port_post(port);
}

/* Detaches the ports that send no more requests, except the last one. Returns true if only that one is left and no loop can
 * attach any more. */
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
    fl__assert(worker->base && worker->state == WORKER_IDLE);
    worker->called = false;
    worker->backup = NULL;
    worker->rest_until_ns = 0;
    return pthread_create(&worker->thread, NULL, work, worker) == 0 ? 0 : FL_SYSTEM;
}
