/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_CLUSTER_H
#define FOLIOT_SERVER_CLUSTER_H

/* Several servers on one store: the list of servers, and the owner of each shard.
 *
 * There is no leader. Every server renews its entry in the store several times before the entry expires. In the same request
 * it reads the entries of the other servers and the owners of the shards (FL_STORE_MEET). From these facts it computes which
 * server should own which shard. All servers use the same rule, so the same facts give the same result. A server keeps its
 * shards while it has no more than its share. Shards without an owner, and shards beyond a server's share, go to servers
 * with too few. So a server that joins or leaves moves only the shards that must move.
 *
 * A server that has just joined may wait until it is able to serve. Its entry has a mark, and it has no share until then.
 *
 * A server starts the free shards that it should own, and gives up the shards that another server should own. If two servers
 * have read different facts, both may start the same shard. The store lets one of them claim it, and the other gives it up
 * after its next meeting. Only the claim, and the version in every write, protect the timers. This plan does not.
 *
 * This module knows neither engines nor connections: it tells the program which shards to take and which to leave.
 *
 * Threads: everything here belongs to the thread of the loop. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/loop.h>
#include <foliot/store.h>

typedef struct cluster cluster;

struct cluster_member {
    char *address, *about;
    uint64_t incarnation;
    uint32_t shards; /* number that it owns */
    bool waits;      /* it has no share yet */
};

/* A shard that no member owns. MOVING: its owner has given it up, or is doing so; another server takes it at once. DEAD: its
 * owner is dead, and its claim has to expire first. */
enum { CLUSTER_MOVING = -1, CLUSTER_DEAD = -2 };

/* The result of the last meeting. */
struct cluster_view {
    const struct cluster_member *members; /* servers with an entry that has not expired, by address */
    size_t member_count;
    const int32_t *owners; /* of each shard: the index of its owner, CLUSTER_MOVING or CLUSTER_DEAD */
    uint32_t shard_count;
    size_t self; /* our own index; SIZE_MAX: we are not a member */
    const char *secret;
};

struct cluster_config {
    fl_loop *loop;
    fl_store *store;
    const char *address; /* at which the other servers reach this one */
    const char *about;
    uint64_t incarnation; /* of this process: random, not 0, below 2^63 */
    uint64_t claim_us;    /* a server that has not renewed its entry for so long is gone */
    bool hold;            /* does not join until cluster_join() */
    bool waits;           /* joins without a share, until cluster_ready() */
    const char *secret;   /* with which servers prove that they belong to the store, if it has none yet */
    void (*take)(void *arg, uint32_t shard);  /* start it. It is ours until `leave` is called for it */
    void (*leave)(void *arg, uint32_t shard); /* give it up, then call cluster_left() */
    void (*changed)(void *arg, const struct cluster_view *view); /* members, owners or the secret have changed */
    void (*moved)(void *arg);                        /* a shard was given up: the other servers should look */
    void (*replaced)(void *arg);                     /* another process has joined with our address: stop */
    void (*trouble)(void *arg, const char *message); /* the store did not answer; it is asked again */
    void *arg;
};

/* Joins, unless `hold` is set. Copies the configuration. Returns 0, FL_NO_MEMORY, or what fl_store_attach() returns. */
int cluster_start(const struct cluster_config *config, cluster **ret);

/* Joins. Until then nothing is read from the store and nothing written to it. */
void cluster_join(cluster *cluster);

/* This server can serve now: takes its share if it has waited. */
void cluster_ready(cluster *cluster);

/* Another server says that shards have moved: meets at once. */
void cluster_look(cluster *cluster);

/* A shard has been given up: because `leave` said so, or because it was lost. */
void cluster_left(cluster *cluster, uint32_t shard);

/* A shard that `take` was called for could not be started. The server tries again after the next meeting, not at once,
 * because a lack of memory or threads seldom ends a moment later. */
void cluster_failed(cluster *cluster, uint32_t shard);

/* Leaves the list first, so that the other servers take the shards, then every shard, by `leave`. Calls `done` when it has
 * left the last shard and other servers own all shards. After `patience_us` it does not wait for new owners. Until the end
 * it still calls `changed`, so that calls can be forwarded to the new owners. */
void cluster_stop(cluster *cluster, uint64_t patience_us, void (*done)(void *arg));
/* Call it after cluster_stop() is done. Frees the cluster and calls `done`. Calls no function of the configuration. */
void cluster_free(cluster *cluster, fl_loop_fn done, void *arg);

const struct cluster_view *cluster_view(const cluster *cluster);

/* The rule that assigns shards to members. On entry `owners` has the current owner of each shard, 0 to `count` - 1, or -1. On
 * return it has the owner that each shard should have. `room` has space for 2 * `count` numbers. */
void cluster_plan(int32_t *owners, uint32_t shards, size_t count, uint32_t *room);

#endif
