/* SPDX-License-Identifier: MIT */
/* What a legal node is. For tests and the simulation, in which all workers run on one thread, and for a node that is stopped. */

#include "node/internal.h"

static const char *check_counts(const struct node *node)
{
    unsigned here = 0, ready = 0, lapsed = 0;
    for (uint32_t i = 0; i < node->shard_count; i++) {
        here += node->shards[i].state != SHARD_AWAY;
        ready += node->shards[i].state == SHARD_SERVING;
        lapsed += node->shards[i].state == SHARD_LAPSED;
    }
    if (here != atomic_load(&node->here) || ready != atomic_load(&node->ready) || lapsed != atomic_load(&node->lapsed))
        return "the node knows how many of its shards are here, ready and lapsed";
    return NULL;
}

static const char *check_worker(const struct worker *worker)
{
    const struct node *node = worker->node;
    const char *wrong = worker->pull ? pull_check(worker) : NULL;
    if (!wrong && worker->hosts)
        wrong = hosts_check(worker);
    if (!wrong && worker->stats)
        wrong = stats_check(worker);
    if (!wrong && worker->pause.timer && worker->pause.next_us == INT64_MAX)
        wrong = "a worker waits for the end of a pause only if one ends";
    for (uint32_t i = 0; worker->lines && i < node->shard_count && !wrong; i++)
        wrong = line_check(worker, i);
    for (const struct leasing *leasing = worker->leasings; leasing && !wrong; leasing = leasing->next)
        if (leasing->answered || leasing->worker != worker || *leasing->link != leasing)
            wrong = "a request for leases that has been answered watches no more";
    return wrong;
}

const char *node_check(const struct node *node)
{
    const char *wrong = check_counts(node);
    if (!wrong && node->spaces)
        wrong = spaces_check(node);
    for (uint32_t i = 0; i < node->shard_count && !wrong; i++)
        wrong = shard_check(&node->shards[i]);
    for (unsigned i = 0; i < node->worker_count && !wrong; i++)
        wrong = check_worker(&node->workers[i]);
    return wrong;
}
