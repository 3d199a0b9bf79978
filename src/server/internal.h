/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_INTERNAL_H
#define FOLIOT_SERVER_INTERNAL_H

/* What the files of this folder share. */

#include <foliot/runtime.h>

#include "api/api.h"
#include "server/server.h"

struct server_worker {
    struct api_worker api; /* first: struct worker.owner points to it */
    struct peer_host host; /* the address for other servers */
    unsigned ending;       /* number of parts that must still end before this step of stopping is complete */
    fl_timer_id cut_timer, batches_timer;
};

struct server {
    struct api api; /* first: struct node.owner points to it */
    struct node node;
    struct server_config config;
    struct reloaded *reloaded; /* what was read since, the last first */
    fl_runtime *runtime;
    fl_store *store;
    fl_wall_clock *clock;
    http_tls *tls;
    struct server_worker *workers;
    unsigned worker_count;
    atomic_uint connections; /* of HTTP, on all workers, within the limit */
    uint64_t stop_until_ns;  /* by the loops' clock: then whatever is under way is cut off */
    atomic_bool told;        /* the log says why the start failed */
    atomic_bool replaced;    /* the server stops because another one uses its address */
};

static inline struct server *server_of(const struct worker *worker)
{
    return worker->node->owner;
}

static inline struct server_worker *server_here(const struct worker *worker)
{
    return worker->owner;
}

/* --- ports.c */
extern const struct node_ports server_ports;
void serve_peer(void *worker, struct peer_request *peer); /* for struct peer_host */

/* --- steps.c: calls `fn` on every worker and waits until each has called step_end(). Returns the last error */
int all_workers(struct server *server, void (*fn)(struct worker *worker));
void step_end(int result);
void step_done(struct worker *worker); /* step_end(0) */

/* --- listen.c */
int listen_all(struct server *server);
int make_own_targets(struct server *server);
void free_own_targets(struct server *server);
void write_address(const struct config_address *address, char *out, size_t size);

/* --- stop.c */
void server_stop(struct server *server);

/* --- hello.c */
void hello(struct server *server, const char *url);

#endif
