/* SPDX-License-Identifier: MIT */
/* Schedulers on workers.
 *
 * A host is made when a worker first needs one. When a worker leaves, its host sends each scheduler that has coroutines
 * to some other worker, in a message that waits if there is none. In between the scheduler has no host; what other
 * threads make ready meanwhile stays in `remote` and is found on arrival.
 *
 * A worker keeps its home, the scheduler that new coroutines belong to. Others, which it has taken over, go back to the
 * group when their last coroutine has ended; else each resize would leave some behind.
 *
 * The scheduler for a coroutine that another thread spawns is chosen under the group's lock, and so is whether a scheduler that leaves is
 * empty: a scheduler that was just given a coroutine is never taken for empty.
 */

#include <assert.h>

#include "base/alloc.h"
#include "coro/coro.h"
#include "coro/overflow.h"

static bool on_leaving(struct fl__worker *worker, struct fl__worker_layer *layer);
static void on_stop(struct fl__worker *worker, struct fl__worker_layer *layer);
static void on_arrival(struct fl__worker *worker, struct fl__message *message);

/* --- Groups */

static void free_group(fl_runtime *rt, struct fl__runtime_layer *layer)
{
    (void)rt;
    struct coro_group *group = container_of(layer, struct coro_group, layer);
    fl__coro_strangers_forget(group);
    fl__coro_wakes_free(group);
    for (struct coro_sched *sched = group->scheds; sched; sched = sched->next_in_group)
        fl__coro_sched_close(sched);
    while (group->scheds) {
        struct coro_sched *sched = group->scheds;
        group->scheds = sched->next_in_group;
        fl__coro_sched_destroy(sched);
        fl__release_lines(sched);
    }
    pthread_mutex_destroy(&group->lock);
    fl__release(group);
}

struct coro_group *fl__coro_group_of(fl_runtime *rt)
{
    struct fl__runtime_layer *layer = fl__runtime_get_layer(rt);
    if (layer)
        return container_of(layer, struct coro_group, layer);
    struct coro_group *group = fl__alloc_zeroed(sizeof(*group));
    if (!group)
        return NULL;
    group->layer.free = free_group;
    group->rt = rt;
    pthread_mutex_init(&group->lock, NULL);
    layer = fl__runtime_set_layer(rt, &group->layer);
    if (layer != &group->layer)
        free_group(rt, &group->layer);
    return container_of(layer, struct coro_group, layer);
}

/* One that is not in use, or a new one. The group is locked. */
static struct coro_sched *take_sched(struct coro_group *group)
{
    struct coro_sched *sched = group->unused;
    if (sched) {
        group->unused = sched->next_unused;
        return sched;
    }
    sched = fl__alloc_zeroed_lines(sizeof(*sched));
    if (!sched)
        return NULL;
    sched->arrival.run = on_arrival;
    if (fl__coro_sched_init(sched, group) < 0) {
        fl__release_lines(sched);
        return NULL;
    }
    sched->next_in_group = group->scheds;
    group->scheds = sched;
    return sched;
}

/* --- Hosts */

/* The calling worker's host; NULL if there is no memory. */
static struct coro_host *host_of(struct fl__worker *worker, struct coro_group *group)
{
    struct fl__worker_layer *layer = fl__worker_get_layer(worker);
    if (layer)
        return container_of(layer, struct coro_host, layer);
    struct coro_host *host = fl__alloc_zeroed(sizeof(*host));
    if (!host)
        return NULL;
    host->layer.leaving = on_leaving;
    host->layer.stop = on_stop;
    host->worker = worker;
    host->group = group;
    host->signal_stack = fl__coro_overflow_watch();
    host->exceptions = fl__coro_thread_exceptions();
    fl__worker_set_layer(worker, &host->layer);
    return host;
}

/* A worker that turns out to have left may have been replaced while we held `wake_sent`, and others may have relied on us: so we look
 * again. */
void fl__coro_host_wake(struct coro_sched *sched)
{
    while (!atomic_exchange(&sched->wake_sent, true)) {
        struct fl__worker *worker = atomic_load(&sched->worker);
        if (worker && fl__worker_send(worker, &sched->wake))
            return;
        atomic_store(&sched->wake_sent, false);
        if (atomic_load(&sched->remote) == NULL || atomic_load(&sched->worker) == worker)
            return;
    }
}

/* The group is locked. */
static void attach(struct coro_host *host, struct coro_sched *sched)
{
    assert(!sched->host);
    sched->host = host;
    sched->next_in_host = host->scheds;
    host->scheds = sched;
    if (!host->home) {
        host->home = sched;
        host->group->home[fl__worker_index(host->worker)] = sched;
    }
    fl__coro_waiters_arrive(host, sched);
    atomic_store(&sched->worker, host->worker); /* from now on others send word; what came before is looked at now */
    fl__coro_sched_turn_soon(sched);
}

/* The group is locked. */
static void forget_home(struct coro_group *group, const struct coro_sched *sched)
{
    for (unsigned i = 0; i < FL_RUNTIME_MAX_WORKERS; i++)
        if (group->home[i] == sched)
            group->home[i] = NULL;
}

static void detach(struct coro_host *host, struct coro_sched *sched)
{
    assert(sched->host == host);
    struct coro_group *group = host->group;
    fl__local_timer_cancel(host->worker, &sched->alarm);
    sched->alarm_ns = NEVER;
    fl__coro_waiters_leave(host, sched);
    pthread_mutex_lock(&group->lock);
    atomic_store(&sched->worker, NULL);
    sched->host = NULL;
    forget_home(group, sched);
    bool empty = fl__coro_sched_empty(sched);
    if (empty) {
        sched->next_unused = group->unused;
        group->unused = sched;
    }
    pthread_mutex_unlock(&group->lock);
    if (!empty)
        fl__runtime_send(group->rt, &sched->arrival);
}

void fl__coro_host_part_with(struct coro_sched *sched)
{
    struct coro_host *host = sched->host;
    if (sched == host->home || sched->again_sent || !fl__coro_sched_empty(sched))
        return;
    struct coro_sched **link = &host->scheds;
    while (*link != sched)
        link = &(*link)->next_in_host;
    *link = sched->next_in_host;
    detach(host, sched);
}

static void detach_all(struct coro_host *host)
{
    host->home = NULL;
    while (host->scheds) {
        struct coro_sched *sched = host->scheds;
        host->scheds = sched->next_in_host;
        detach(host, sched);
    }
}

/* Deferred messages must have come back: the next worker sends them again. */
static bool on_leaving(struct fl__worker *worker, struct fl__worker_layer *layer)
{
    (void)worker;
    struct coro_host *host = container_of(layer, struct coro_host, layer);
    host->leaving = true;
    for (struct coro_sched *sched = host->scheds; sched; sched = sched->next_in_host)
        if (sched->again_sent)
            return false;
    detach_all(host);
    return true;
}

static void on_stop(struct fl__worker *worker, struct fl__worker_layer *layer)
{
    (void)worker;
    struct coro_host *host = container_of(layer, struct coro_host, layer);
    detach_all(host);
    fl__coro_waiters_free(host);
    fl__coro_overflow_unwatch(host->signal_stack);
    fl__release(host);
}

static void on_arrival(struct fl__worker *worker, struct fl__message *message)
{
    struct coro_sched *sched = container_of(message, struct coro_sched, arrival);
    struct coro_group *group = sched->group;
    struct coro_host *host = host_of(worker, group);
    if (!host || host->leaving) {
        fl__runtime_send(group->rt, message); /* until there is memory, or a worker that stays */
        return;
    }
    pthread_mutex_lock(&group->lock);
    attach(host, sched);
    pthread_mutex_unlock(&group->lock);
}

/* --- Where new coroutines go */

static int spawn_here(struct fl__worker *worker, struct coro_group *group, struct fl_coro *coro, struct fl_coro **ret)
{
    assert(worker == fl__worker_self());
    struct coro_host *host = host_of(worker, group);
    if (!host)
        return FL_NO_MEMORY;
    if (!host->home) {
        pthread_mutex_lock(&group->lock);
        struct coro_sched *sched = take_sched(group);
        if (sched)
            attach(host, sched);
        pthread_mutex_unlock(&group->lock);
    }
    if (!host->home)
        return FL_NO_MEMORY;
    coro->sched = host->home;
    if (ret)
        *ret = coro;
    fl__coro_sched_take_in(coro->sched, coro);
    return 0;
}

/* The scheduler whose turn it is. The group is locked. */
static struct coro_sched *next_home(struct coro_group *group)
{
    unsigned workers = fl__runtime_workers(group->rt);
    unsigned index = workers > 0 ? group->turn++ % workers : 0;
    if (group->home[index])
        return group->home[index];
    struct coro_sched *sched = take_sched(group);
    if (!sched)
        return NULL;
    group->home[index] = sched;
    struct fl__worker *worker = workers > 0 ? fl__runtime_worker(group->rt, index) : NULL;
    if (!worker || !fl__worker_send(worker, &sched->arrival))
        fl__runtime_send(group->rt, &sched->arrival);
    return sched;
}

static int spawn_elsewhere(struct coro_group *group, struct fl_coro *coro, struct fl_coro **ret)
{
    pthread_mutex_lock(&group->lock);
    struct coro_sched *sched = next_home(group);
    coro->sched = sched;
    if (sched && ret)
        *ret = coro;
    if (sched)
        fl__coro_sched_send(sched, coro); /* from here on it may run, and have ended */
    pthread_mutex_unlock(&group->lock);
    return sched ? 0 : FL_NO_MEMORY;
}

int fl__coro_group_spawn(struct coro_group *group, struct fl_coro *coro, struct fl_coro **ret)
{
    struct fl__worker *worker = fl__worker_self();
    if (worker && fl__worker_runtime(worker) == group->rt)
        return spawn_here(worker, group, coro, ret);
    return spawn_elsewhere(group, coro, ret);
}
