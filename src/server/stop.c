/* SPDX-License-Identifier: MIT */
/* Stopping goes in steps, each when all workers are through with the one before: the shards go to other servers, if there are
 * any; connections and webhooks under way end, for a while; engines record and let go of their shards. */

#include <time.h>

#include "base/assert.h"
#include "server/notify.h"
#include "server/internal.h"
#include "text/log.h"

#define LINGER_NS (100 * 1000000ull)

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Of stop-timeout, which is for all steps together. */
static uint64_t left_ns(const struct server *server)
{
    uint64_t now_ns = monotonic_ns();
    return now_ns < server->stop_until_ns ? server->stop_until_ns - now_ns : 0;
}

static void drain(struct worker *worker)
{
    http_server_drain(api_here(worker)->http);
    step_end(0);
}

static void left_others(void *server)
{
    (void)server;
    step_end(0);
}

/* Half of the time is left for requests under way. */
static void leave_others(struct worker *worker)
{
    if (worker->index == 0)
        servers_stop(worker->node, left_ns(server_of(worker)) / 2000, left_others);
    else
        step_end(0);
}

static void lingered(fl_loop *loop, void *arg)
{
    (void)loop, (void)arg;
    step_end(0);
}

/* Clients that have connected already, and send a request at this moment, get an answer. */
static void linger(struct worker *worker)
{
    http_server_shut(api_here(worker)->http);
    if (fl_loop_timer(worker->loop, LINGER_NS, lingered, NULL, NULL) < 0)
        step_end(0);
}

/* What would not end by itself. */
static void end_waiting(struct worker *worker)
{
    pull_stop(worker);
    leases_stop(worker);
    events_stop(worker);
    if (api_here(worker)->sessions)
        peer_sessions_stop(api_here(worker)->sessions);
    step_end(0);
}

static void ended_one(struct worker *worker)
{
    fl__assert(server_here(worker)->ending > 0);
    if (--server_here(worker)->ending > 0)
        return;
    fl_loop_cancel(worker->loop, server_here(worker)->cut_timer);
    fl_loop_cancel(worker->loop, server_here(worker)->batches_timer);
    step_end(0);
}

static void http_stopped(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    (void)loop;
    http_server_free(api_here(worker)->http);
    api_here(worker)->http = NULL;
    ended_one(worker);
}

static void webhooks_stopped(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    (void)loop;
    api_here(worker)->hooks = NULL;
    ended_one(worker);
}

static void cut_off(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    if (api_here(worker)->http)
        http_stopped(loop, worker);
}

static void cut_batches(fl_loop *loop, void *arg)
{
    (void)loop;
    batches_stop(arg);
}

/* Requests and webhooks, at the same time. Batches that are still open are told shortly before the others are cut off. */
static void end_work(struct worker *worker)
{
    uint64_t ns = left_ns(server_of(worker));
    fl__assert(server_here(worker)->ending == 0);
    server_here(worker)->ending = 2;
    if (fl_loop_timer(worker->loop, ns, cut_off, worker, &server_here(worker)->cut_timer) < 0 ||
        fl_loop_timer(worker->loop, ns - ns / 10, cut_batches, worker, &server_here(worker)->batches_timer) < 0)
        batches_stop(worker);
    webhooks_stop(api_here(worker)->hooks, ns / 1000, webhooks_stopped, worker);
    http_server_stop(api_here(worker)->http, http_stopped, worker);
}

static void end_links(struct worker *worker)
{
    servers_stop_links(worker);
    step_end(0);
}

static void end_shards(struct worker *worker)
{
    shards_stop(worker, step_done);
}

/* What was asked for by no request, and waits for a shard that is gone, gives up soon. */
static void end_errands(fl_loop *loop, void *arg)
{
    const struct worker *worker = arg;
    if (worker->under_way == 0 || fl_loop_timer(loop, 5000000, end_errands, arg, NULL) < 0)
        step_end(0);
}

static void await_errands(struct worker *worker)
{
    end_errands(worker->loop, worker);
}

static void cluster_gone(fl_loop *loop, void *arg)
{
    (void)loop, (void)arg;
    step_end(0);
}

static void free_cluster(struct worker *worker)
{
    if (worker->index == 0 && worker->node->cluster)
        cluster_free(worker->node->cluster, cluster_gone, NULL);
    else
        step_end(0);
}

static void tear_down_worker(struct worker *worker)
{
    http_server_free(api_here(worker)->http);
    peer_sessions_free(api_here(worker)->sessions);
    worker_free(worker);
    step_end(0);
}

/* In a cluster, others take over while requests can still be passed on to them. Connections end after that, and the links, over
 * which requests are passed on, when there are no more requests. */
void server_stop(struct server *server)
{
    atomic_store(&server->node.stopping, true);
    server->stop_until_ns = monotonic_ns() + server->config.stop_timeout_us * 1000;
    server_notify("STOPPING=1");
    log_info("stopping", NULL);
    all_workers(server, drain);
    if (server->node.cluster) {
        all_workers(server, leave_others);
        all_workers(server, linger);
    }
    all_workers(server, end_waiting);
    all_workers(server, end_work);
    atomic_store(&server->node.closing, true);
    all_workers(server, free_cluster);
    all_workers(server, end_links);
    all_workers(server, end_shards);
    all_workers(server, await_errands);
    all_workers(server, tear_down_worker);
}
