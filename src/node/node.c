/* SPDX-License-Identifier: MIT */
/* The beginning and the end of a node. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/internal.h"

static int make_workers(struct node *node)
{
    node->worker_count = node->config.workers;
    node->shard_count = fl_store_shards(node->store);
    fl__assert(node->worker_count > 0 && node->shard_count > 0);
    node->workers = calloc(node->worker_count, sizeof *node->workers);
    node->shards = calloc(node->shard_count, sizeof *node->shards);
    if (!node->workers || !node->shards)
        return FL_NO_MEMORY;
    for (unsigned i = 0; i < node->worker_count; i++)
        node->workers[i] = (struct worker){.node = node, .index = i};
    for (uint32_t i = 0; i < node->shard_count; i++)
        node->shards[i] = (struct shard){.worker = &node->workers[i % node->worker_count], .number = i};
    return 0;
}

/* The secret of the servers is in the store. A program that can read the store can read all timers anyway. */
static int make_secret(struct node *node)
{
    unsigned char random[32];
    if (node->ports->random(random, sizeof random) < 0)
        return FL_SYSTEM;
    fl__hex_put(node->own_secret, random, sizeof random);
    return 0;
}

int node_new(struct node *node, const struct node_config *config)
{
    fl__assert(config->ports && config->store && config->clock);
    *node = (struct node){.config = *config,
                          .ports = config->ports,
                          .owner = config->owner,
                          .store = config->store,
                          .clock = config->clock,
                          .joined = !config->advertise};
    pthread_mutex_init(&node->hindrance.lock, NULL);
    pthread_mutex_init(&node->secret_lock, NULL);
    int r = spaces_new(node);
    if (r == 0)
        r = loading_new(node);
    if (r == 0)
        r = make_workers(node);
    if (r == 0 && config->advertise)
        r = make_secret(node);
    if (r < 0)
        node_free(node);
    return r;
}

void node_free(struct node *node)
{
    spaces_free(node);
    for (struct peer *peer = atomic_load(&node->peers), *next; peer; peer = next) {
        next = atomic_load(&peer->next);
        free(peer);
    }
    free(node->loading);
    free(node->workers);
    free(node->shards);
    node_free_zones(node);
    pthread_mutex_destroy(&node->hindrance.lock);
    pthread_mutex_destroy(&node->secret_lock);
}

int worker_new(struct worker *worker, fl_loop *loop)
{
    worker->loop = loop;
    worker->pause.next_us = INT64_MAX;
    int r = pull_new(worker);
    if (r == 0)
        r = stats_new(worker);
    if (r == 0)
        r = hosts_new(worker);
    return r == 0 ? lines_new(worker) : r;
}

void worker_free(struct worker *worker)
{
    attempts_log_stop(worker);
    pause_stop(worker);
    pull_free(worker);
    stats_free(worker);
    hosts_free(worker);
    lines_free(worker);
    out_free(&worker->history);
}
