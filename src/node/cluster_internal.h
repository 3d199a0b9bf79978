/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_CLUSTER_INTERNAL_H
#define FOLIOT_NODE_CLUSTER_INTERNAL_H

/* What cluster.c and cluster_view.c share. */

#include "node/cluster.h"

enum { CLUSTER_WAITS = '~' }; /* the mark */

struct cluster {
    struct cluster_config config;
    char *address, *secret;
    char *about; /* after its first byte, the mark CLUSTER_WAITS */
    bool held, waits;
    fl_shard *attached;
    fl_store_request request;
    bool asking, again; /* a meeting is under way, or what it has found is being acted on; another is wanted at once */
    bool joined;
    uint64_t joined_ns;          /* when we were told so */
    uint64_t met_ns, touched_ns; /* the last meeting; since when one has followed the other. 0: there was none */
    fl_timer_id timer;           /* of the next; 0: none */
    struct cluster_view view;
    uint8_t *here; /* of each shard */
    uint32_t here_count;
    bool stopping, left_list, stopped, freeing;
    bool impatient;       /* while stopping: the shards need not have new owners */
    fl_timer_id patience; /* until then they should have; 0: none */
    void (*done)(void *arg);
    fl_loop_fn freed;
    void *freed_arg;
    fl_loop_task detach_task;
};

/* The result of the last meeting as a view. Returns false without memory; the caller frees the view in any case. */
bool cluster_view_read(const struct cluster *c, struct cluster_view *view);
void cluster_view_free(struct cluster_view *view);
bool cluster_view_is_same(const struct cluster_view *a, const struct cluster_view *b);

bool cluster_has_run_out(const struct cluster *c,
                         int64_t left_us); /* whether a claim of which so much is left counts as that */
/* The rest of the head start of owners with claims that expired before this server reached the store. */
int64_t cluster_head_start_us(const struct cluster *c);

#endif
