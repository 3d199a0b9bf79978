/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_CLUSTER_H
#define FOLIOT_SERVER_CLUSTER_H

/* Several servers on one store: who is there, and which shards each of them has.
 *
 * There is no leader. Every server writes into the store that it is there, a few times in the span after which it counts as
 * gone, and reads who else is and whose the shards are (FL_STORE_MEET). From that it works out who should have which shard:
 * all do so by the same rule from the same facts, so they come to the same result. A shard stays with whoever has it, as long
 * as he has no more than his share; what is nobody's, and what somebody has too much of, goes to those who have too little. So
 * who comes or goes moves only what must be moved.
 *
 * Who has just come may wait until it knows that it can do its part: it is on the list, with a mark, and has no share.
 *
 * A server starts what should be its own and is free, and gives up what should be another's. If two have read different
 * things they may both start a shard: the store lets one of them claim it, and the other gives up when it has read again.
 * What protects the timers is the claim and the version that every write carries, never this.
 *
 * This knows neither engines nor connections: it tells the program what to take and what to leave.
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
    uint32_t shards; /* that it has */
    bool waits;      /* it has no share yet */
};

/* Of a shard that no member has: it was, or is being, given up in order, and is taken at once then; or its owner is dead, and
 * its claim has to run out first. */
enum { CLUSTER_MOVING = -1, CLUSTER_DEAD = -2 };

/* What was read last. */
struct cluster_view {
    const struct cluster_member *members; /* those whose time has not run out, by address */
    size_t member_count;
    const int32_t *owners; /* of each shard: which member has it, or one of those above */
    uint32_t shard_count;
    size_t self; /* which member we are; SIZE_MAX: none */
    const char *secret;
};

struct cluster_config {
    fl_loop *loop;
    fl_store *store;
    const char *address; /* our own, as the others reach us */
    const char *about;
    uint64_t incarnation;                     /* of this process: random, not 0, below 2^63 */
    uint64_t claim_us;                        /* who was not heard of for so long is gone */
    bool hold;                                /* does not even join, until cluster_join() */
    bool waits;                               /* joins without a share, until cluster_ready() */
    const char *secret;                       /* that the servers of the store know each other by, if it has none yet */
    void (*take)(void *arg, uint32_t shard);  /* start it. It is ours until `leave` is called for it */
    void (*leave)(void *arg, uint32_t shard); /* give it up, and call cluster_left() then */
    void (*changed)(void *arg, const struct cluster_view *view); /* members or owners are others than before */
    void (*moved)(void *arg);                        /* we have given something up: the others should look */
    void (*replaced)(void *arg);                     /* another process has joined with our address: stop */
    void (*trouble)(void *arg, const char *message); /* the store did not answer; it is asked again */
    void *arg;
};

/* Joins, if it is not to hold. All is copied. Returns 0, FL_NO_MEMORY, or what fl_store_attach() returns. */
int cluster_start(const struct cluster_config *config, cluster **ret);

/* Joins. Until then nothing is read from the store and nothing written to it. */
void cluster_join(cluster *cluster);

/* We can do our part: takes a share, if we have waited. */
void cluster_ready(cluster *cluster);

/* Something may have changed: looks at once. */
void cluster_look(cluster *cluster);

/* A shard has been given up: because `leave` said so, or because it was lost. */
void cluster_left(cluster *cluster, uint32_t shard);

/* A shard that `take` was called for could not be started. It is tried again after the next meeting, and not at once: what
 * keeps it from starting, memory or threads, is seldom there a moment later. */
void cluster_failed(cluster *cluster, uint32_t shard);

/* Leaves: first the list, so that the others take what we have, then every shard, by `leave`. Calls `done` when the last has
 * been left and the others have all shards; after `patience_us`, they need not. `changed` goes on being called, so that requests
 * can be passed on, and nothing else. */
void cluster_stop(cluster *cluster, uint64_t patience_us, void (*done)(void *arg));
/* After that. Frees it and calls `done`. Nothing of the configuration is called any more. */
void cluster_free(cluster *cluster, fl_loop_fn done, void *arg);

const struct cluster_view *cluster_view(const cluster *cluster);

/* Who should have which shard: the rule. `owners` has for each shard which of `count` members has it, or -1, and gets who
 * should. `room` is for twice as many numbers as there are members. */
void cluster_plan(int32_t *owners, uint32_t shards, size_t count, uint32_t *room);

#endif
