/* SPDX-License-Identifier: MIT */
/* The other servers of the store: which there are, and which shards this one has to take and to leave. The first worker meets
 * them (cluster.c) and tells the workers of shards. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/version.h>

#include "base/assert.h"
#include "node/internal.h"
#include "text/log.h"

#define COUNT_NS 1000000000ull
#define AGAIN_NS 1000000000ull

static void counted(void *arg)
{
    (void)arg;
}

/* Where there is a limit, each server must know about how much the others have. */
static void count_all(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    servers_gather(&node->workers[0], (fl_bytes){0}, counted, NULL);
}

/* --- The list of servers ------------------------------------------------------------------------------------------ */

struct peer *peer_of_address(struct node *node, const char *address)
{
    struct peer *peer = atomic_load(&node->peers);
    while (peer && strcmp(peer->address, address) != 0)
        peer = atomic_load(&peer->next);
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer + strlen(address) + 1);
    if (!peer)
        return NULL;
    peer->index = atomic_load(&node->peer_count);
    memcpy(peer->address, address, strlen(address) + 1);
    _Atomic(struct peer *) *end = &node->peers;
    while (atomic_load(end))
        end = &atomic_load(end)->next;
    atomic_store(end, peer);
    atomic_fetch_add(&node->peer_count, 1);
    return peer;
}

static const struct cluster_member *member_of(const struct cluster_view *view, const struct peer *peer)
{
    for (size_t i = 0; i < view->member_count; i++)
        if (i != view->self && strcmp(view->members[i].address, peer->address) == 0)
            return &view->members[i];
    return NULL;
}

static void set_secret(struct node *node, const char *secret)
{
    pthread_mutex_lock(&node->secret_lock);
    bool rotated = node->secret[0] && strncmp(node->secret, secret, sizeof node->secret - 1) != 0;
    snprintf(node->secret, sizeof node->secret, "%s", secret);
    pthread_mutex_unlock(&node->secret_lock);
    if (rotated)
        log_info("the secret of the servers has changed in the store; new links use the new secret", NULL);
}

static void changed(void *arg, const struct cluster_view *view)
{
    struct node *node = arg;
    for (size_t i = 0; i < view->member_count; i++)
        if (i != view->self)
            peer_of_address(node, view->members[i].address);
    for (struct peer *peer = atomic_load(&node->peers); peer; peer = atomic_load(&peer->next)) {
        const struct cluster_member *member = member_of(view, peer);
        uint64_t now = member ? member->incarnation : 0, before = atomic_exchange(&peer->incarnation, now);
        if (member)
            atomic_store(&peer->server, (uint32_t)now);
        if (now != before)
            log_info(now ? "another server has joined" : "another server has left", "server", peer->address, NULL);
    }
    for (uint32_t i = 0; i < view->shard_count; i++) {
        bool other = view->owners[i] >= 0 && (size_t)view->owners[i] != view->self;
        struct peer *peer = other ? peer_of_address(node, view->members[view->owners[i]].address) : NULL;
        atomic_store_explicit(&node->shards[i].moving, view->owners[i] == CLUSTER_MOVING, memory_order_relaxed);
        atomic_store_explicit(&node->shards[i].peer, peer, memory_order_release);
    }
    set_secret(node, view->secret);
    if (view->self != SIZE_MAX)
        atomic_store(&node->joined, true);
    links_update(node);
}

static void not_taken(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    fl__assert(shard->worker->node->cluster);
    (void)loop;
    cluster_failed(shard->worker->node->cluster, shard->number);
}

static void take_here(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    log_info("taking a shard", "shard", log_int(shard->number), NULL);
    if (shard_start(shard) == 0)
        return;
    shard->left_task = (fl_loop_task){.fn = not_taken, .arg = shard};
    fl_loop_post_task(shard->worker->node->workers[0].loop, &shard->left_task);
}

static void take(void *arg, uint32_t number)
{
    struct node *node = arg;
    struct shard *shard = &node->shards[number];
    fl__assert(number < node->shard_count);
    atomic_store_explicit(&shard->peer, NULL, memory_order_release);
    shard->take_task = (fl_loop_task){.fn = take_here, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->take_task);
}

static void leave_here(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    (void)loop;
    if (!shard_is_here(shard))
        return; /* it is on its way already */
    log_info("giving up a shard", "shard", log_int(shard->number), NULL);
    shard_leave(shard);
}

static void leave(void *arg, uint32_t number)
{
    struct node *node = arg;
    struct shard *shard = &node->shards[number];
    fl__assert(number < node->shard_count);
    shard->leave_task = (fl_loop_task){.fn = leave_here, .arg = shard};
    fl_loop_post_task(shard->worker->loop, &shard->leave_task);
}

static void left(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    fl__assert(shard->worker->node->cluster);
    (void)loop;
    cluster_left(shard->worker->node->cluster, shard->number);
}

/* A server without others claims a lost shard again, and waits while another process holds it. */
static void start_again(fl_loop *loop, void *arg)
{
    struct shard *shard = arg;
    if (atomic_load(&shard->worker->node->stopping) || shard->state != SHARD_AWAY)
        return;
    if (shard_start(shard) < 0)
        fl_loop_timer(loop, AGAIN_NS, start_again, shard, NULL);
}

void shard_left(struct shard *shard)
{
    struct node *node = shard->worker->node;
    fl__assert(shard->state == SHARD_AWAY);
    if (!node->cluster) {
        start_again(shard->worker->loop, shard);
        return;
    }
    shard->left_task = (fl_loop_task){.fn = left, .arg = shard};
    fl_loop_post_task(node->workers[0].loop, &shard->left_task);
}

static void moved(void *arg)
{
    struct node *node = arg;
    links_tell(&node->workers[0], LINK_LOOK, (fl_bytes){0});
}

static void look_here(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    (void)loop;
    atomic_store(&node->looking, false);
    if (atomic_load(&node->stopping))
        return;
    moved(node);
    cluster_look(node->cluster);
}

void servers_look(struct node *node)
{
    if (!node->cluster || atomic_exchange(&node->looking, true))
        return;
    node->look_task = (fl_loop_task){.fn = look_here, .arg = node};
    fl_loop_post_task(node->workers[0].loop, &node->look_task);
}

static void replaced(void *arg)
{
    struct node *node = arg;
    log_error(
        "another server uses the address of this server, so this server stops; give each server its own --advertise",
        "address", node->config.advertise, NULL);
    node->ports->replaced(node);
}

static void trouble(void *arg, const char *message)
{
    struct node *node = arg;
    if (trouble_is_news(message, fl_loop_now_ns(node->workers[0].loop)))
        log_warning("cannot read the list of servers from the store; the server keeps trying", "why", message, NULL);
}

static int cluster_prepare(struct node *node)
{
    struct cluster_config config = {.secret = node->own_secret,
                                    .loop = node->workers[0].loop,
                                    .store = node->store,
                                    .address = node->config.advertise,
                                    .about = FL_VERSION,
                                    .hold = true,
                                    .waits = true,
                                    .incarnation = node->config.incarnation,
                                    .claim_us = node->config.engine.claim_us,
                                    .take = take,
                                    .leave = leave,
                                    .changed = changed,
                                    .moved = moved,
                                    .replaced = replaced,
                                    .trouble = trouble,
                                    .arg = node};
    if (node->config.max_timers_per_namespace > 0 &&
        fl_loop_interval(config.loop, COUNT_NS, FL_TIMER_UNREF, count_all, node, NULL) < 0)
        return FL_NO_MEMORY;
    return cluster_start(&config, &node->cluster);
}

int servers_start(struct worker *worker)
{
    struct node *node = worker->node;
    memcpy(worker->secret, node->own_secret, sizeof node->own_secret);
    return worker->index == 0 ? cluster_prepare(node) : 0;
}

/* --- Reaching ourselves ------------------------------------------------------------------------------------------- */

/* If a server cannot be reached at its address, other servers could not reach its shards. If another server has the same
 * address, it would be driven from the list. So a server first calls itself at its address. No other process can answer,
 * because the answer needs a secret that has not left this process yet. */

#define SELF_LOOK_NS (20 * 1000000ull)
#define SELF_TELL_NS (30 * 1000000000ull)

static void tell_unreachable(struct node *node)
{
    char text[HINDRANCE_ROOM];
    const char *why = node->ports->link_trouble(node->self);
    uint64_t now_ns = fl_loop_now_ns(node->workers[0].loop);
    snprintf(text, sizeof text, "the server cannot reach itself at %.80s (--advertise): %s", node->config.advertise,
             why);
    node_hindered(node, HINDERED_BY_ADDRESS, text);
    if (node->self_told_ns > 0 && now_ns - node->self_told_ns < SELF_TELL_NS)
        return;
    node->self_told_ns = now_ns;
    log_error("cannot reach this server at its own address, so it does not join the others; correct --advertise",
              "address", node->config.advertise, "why", why, NULL);
}

static void self_free(struct node *node)
{
    if (!node->self)
        return;
    fl_loop_cancel(node->workers[0].loop, node->self_timer);
    node->ports->link_free(node->self);
    node->self = NULL;
}

static void look_at_self(fl_loop *loop, void *arg)
{
    struct node *node = arg;
    fl__assert(node->self && node->cluster);
    (void)loop;
    if (node->ports->link_up(node->self)) {
        self_free(node);
        node_hindered(node, HINDERED_BY_ADDRESS, "");
        cluster_join(node->cluster);
    } else if (node->ports->link_has_failed(node->self)) {
        tell_unreachable(node);
    }
}

int servers_join(struct node *node)
{
    struct worker *worker = &node->workers[0];
    struct link_config config = {
        .address = node->config.advertise, .self = node->config.advertise, .secret = bytes_of(node->own_secret)};
    int r = node->ports->link_new(worker, &config, &node->self);
    if (r == 0)
        r = fl_loop_interval(worker->loop, SELF_LOOK_NS, 0, look_at_self, node, &node->self_timer);
    return r;
}

void servers_stop(struct node *node, uint64_t patience_us, void (*done)(void *node))
{
    self_free(node);
    cluster_stop(node->cluster, patience_us, done);
}
