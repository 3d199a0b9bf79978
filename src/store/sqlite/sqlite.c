/* SPDX-License-Identifier: MIT */
/* The embedded store: sqlite:FOLDER.
 *
 * One file per shard, and one thread per shard while a loop is attached to it. The files, in the order in which a request
 * passes them:
 *
 *     sqlite.c      the store: attaching and detaching
 *     folder.c      the folder: its files; lock.c
 *     port.c        between the loops and the thread of a shard
 *     worker.c      the thread of a shard: groups requests, commits
 *     requests.c    carrying out requests; reads.c: finding, listing; load.c, backup.c: long ones; answer.c: memory of answers
 *     windows.c     the rows of windows, in chunks (chunk.c); sweep.c: removing them
 *     names/        the index of names: names.c in memory; runs.c and filter.c in the file; merge.c
 *     history.c     spans of history, in slots
 *     slots.c       tables of records, for all of these
 *     open.c        the file: schema, opening, loading
 *     base.c        statements, transactions, errors; namespaces.c; counts.c: rows of each namespace
 *     damage.c      checksums, damage of the log; mark.c: a log that is missing
 *     background.c  work between commits
 *     helper.c      the second thread of a shard: checkpoints of the log
 *
 * docs/store-sqlite.md is the guide for operators.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/folder.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

struct sqlite_store {
    fl_store store; /* first */
    struct folder folder;
    fl_wall_clock *clock;
    pthread_mutex_t lock;
    struct worker **workers; /* by shard; NULL if no loop was ever attached to it */
};

/* --- Attaching ---------------------------------------------------------------------------------------------------- */

static struct worker *worker_of(struct sqlite_store *store, uint32_t shard)
{
    fl__assert(shard < store->store.shards);
    pthread_mutex_lock(&store->lock);
    struct worker *worker = store->workers[shard];
    if (!worker)
        worker = fl__alloc_zeroed(sizeof *worker);
    if (worker && !store->workers[shard]) {
        pthread_mutex_init(&worker->lock, NULL);
        pthread_cond_init(&worker->changed, NULL);
        worker->clock = store->clock;
        store->workers[shard] = worker;
    }
    pthread_mutex_unlock(&store->lock);
    return worker;
}

/* Under the lock: the thread is not running. */
static int start(struct sqlite_store *store, uint32_t shard, struct worker *worker)
{
    char message[400];
    char *path = fl__folder_file(&store->folder, shard);
    int r = path ? fl__base_open(path, NULL, &worker->base, message, sizeof message) : FL_NO_MEMORY;
    fl__assert(worker->state == WORKER_IDLE);
    fl__release(path);
    if (r < 0)
        return r;
    worker->base->counted = store->folder.counted;
    r = fl__helper_start(worker, &worker->helper);
    if (r == 0) {
        r = fl__shard_worker_start(worker);
        if (r < 0)
            fl__helper_stop(worker->helper);
    }
    if (r < 0)
        fl__base_close(worker->base);
    return r;
}

/* Under the lock: sees to it that the thread is running. */
static int make_run(struct sqlite_store *store, uint32_t shard, struct worker *worker)
{
    while (worker->state == WORKER_CLOSING)
        pthread_cond_wait(&worker->changed, &worker->lock);
    if (worker->state == WORKER_ENDED) {
        pthread_join(worker->thread, NULL);
        worker->state = WORKER_IDLE;
    }
    int r = worker->state == WORKER_RUNNING ? 0 : start(store, shard, worker);
    if (r == 0)
        worker->state = WORKER_RUNNING;
    return r;
}

static int attach(fl_store *base, uint32_t shard, fl_loop *loop, fl_shard **ret)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    struct worker *worker = worker_of(store, shard);
    struct port *port = fl__alloc_zeroed(sizeof *port);
    if (!worker || !port) {
        fl__release(port);
        return FL_NO_MEMORY;
    }
    port->shard = (fl_shard){.store = base, .loop = loop, .shard = shard};
    port->worker = worker;
    port->in_end = &port->in;
    port->out_end = &port->out;
    port->batches_end = &port->batches;
    pthread_mutex_lock(&worker->lock);
    int r = make_run(store, shard, worker);
    if (r == 0) {
        port->next = worker->ports;
        worker->ports = port;
    }
    pthread_mutex_unlock(&worker->lock);
    if (r < 0) {
        fl__release(port);
        return r;
    }
    *ret = &port->shard;
    return 0;
}

static void detach(fl_shard *shard, fl_loop_fn done, void *arg)
{
    fl__port_detach((struct port *)shard, done, arg);
}

static void submit(fl_shard *shard, fl_store_request *request)
{
    fl__port_submit((struct port *)shard, request);
}

static bool absent(fl_shard *shard, const fl_store_want *want)
{
    return fl__names_absent(((struct port *)shard)->worker->base, want);
}

/* --- The store ---------------------------------------------------------------------------------------------------- */

static void close_store(fl_store *base)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    for (uint32_t i = 0; i < store->store.shards; i++) {
        struct worker *worker = store->workers[i];
        if (!worker)
            continue;
        if (worker->state != WORKER_IDLE)
            pthread_join(worker->thread, NULL);
        pthread_mutex_destroy(&worker->lock);
        pthread_cond_destroy(&worker->changed);
        fl__release(worker);
    }
    fl__folder_close(&store->folder);
    pthread_mutex_destroy(&store->lock);
    fl__release(store->workers);
    fl__release(store);
}

static const struct fl_store_ops ops = {close_store, attach, detach, submit, absent};

int fl__sqlite_open(const char *rest, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    struct folder folder;
    int r = fl__folder_open(rest, config->shards, config->accept_loss, &folder, message, size);
    if (r < 0)
        return r;
    struct sqlite_store *store = fl__alloc_zeroed(sizeof *store);
    struct worker **workers = fl__alloc_zeroed(folder.shards * sizeof(struct worker *));
    if (!store || !workers) {
        fl__release(store);
        fl__release(workers);
        fl__folder_close(&folder);
        return FL_NO_MEMORY;
    }
    store->store = (fl_store){&ops, folder.shards};
    store->folder = folder;
    store->clock = config->clock;
    store->workers = workers;
    pthread_mutex_init(&store->lock, NULL);
    *ret = &store->store;
    return 0;
}
