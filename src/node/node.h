/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_NODE_H
#define FOLIOT_NODE_NODE_H

/* The server without sockets and JSON: shards and their engines, calls to them wherever they are, leases, pacing, namespaces,
 * the other servers.
 *
 * A node reaches the world through its ports (struct node_ports): webhooks, links, events, randomness. It gets a store, a
 * wall clock and one loop per worker. This folder may use base, loop, store, engine and text. It includes nothing of http,
 * webhook, peer, api or server, so it runs in the simulation as it is.
 *
 *   ports.h        how a node reaches the world
 *   calls.h, leases.h, spaces.h, stats.h   calls; leases; namespaces; counts of events. This header includes them
 *   node.c         the beginning and the end of a node
 *   ready.c        whether the server is ready, and if not, why
 *   errands.c      messages between workers: errands, tours
 *   shard_state.c  the states of a shard and the allowed transitions
 *   shards.c       the engines of a worker: start, serve, leave
 *   calls.c        calls to workers of this server or another one, and calls that come from other servers
 *   call_kinds.c   the table of the kinds of calls: what is sent, what runs, what comes back
 *   shard_calls.c  operations and pages of a shard, wherever it is: here, at another server, or on the move
 *   servers.c      the other servers: their list, and taking and giving up shards
 *   links.c        links to the other servers, and notices sent over them
 *   cluster.c      the list of servers and the owner of each shard (cluster.h); cluster_view.c: reading them, the plan
 *   wire.c         the encoding of messages between servers (wire.h)
 *   deliver.c      from a due timer to an attempt and its outcome
 *   pacing.c       which work may begin when
 *   pause.c        namespaces and hosts that are paused
 *   hosts.c        results of calls, per host
 *   pull.c         due timers that wait for a lease; pull_items.c: items between engine and home; pull_leases.c: leased items
 *   serving.c      other notices and questions of other servers
 *   leasing.c      asking for leases, at all servers
 *   acks.c         acknowledgements, at the servers that gave the leases
 *   spaces.c       namespaces: finding them, counts
 *   settings.c     their settings, in store and memory; settings_load.c: reading all of them; settings_value.c: as values
 *   attempts_log.c failed attempts in the log
 *   history.c      outcomes of attempts: rows of the shard's history
 *   stats.c        statistics of the last hour
 *   rezone.c       moves schedules and timers when time zone rules have changed
 *   schedule.c     which occurrences a schedule creates when (schedule.h); schedules.c: schedules in the engine
 *   budget.c       how max-memory is divided
 *   check.c        checks that a node is consistent
 *
 * Threads. A worker has a loop, and the engines of its shards run on this loop. Timers need no lock: a worker that needs
 * data of another worker sends an errand there and gets it back. Settings of namespaces are immutable and replaced as a
 * whole. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>
#include <foliot/loop.h>

#include "node/calls.h"
#include "node/cluster.h"
#include "node/leases.h"
#include "node/ports.h"
#include "node/schedule.h"
#include "node/spaces.h"
#include "node/stats.h"
#include "node/wire.h"
#include "text/out.h"

/* --- Configuration ------------------------------------------------------------------------------------------------ */

struct node_config {
    const struct node_ports *ports;
    void *owner; /* of the ports */
    fl_store *store;
    fl_wall_clock *clock;
    bool test_clock; /* requests advance the clock; leases end by this clock */
    unsigned workers;
    const char *claimant;  /* the name under which this server claims shards */
    const char *advertise; /* the address at which other servers reach this one; NULL: there are no other servers */
    uint64_t incarnation;  /* of this process: random, not 0, below 2^63 */
    fl_engine_config engine;
    uint64_t max_memory;
    uint64_t max_timers_per_namespace; /* 0: no limit */
};

/* --- The node ----------------------------------------------------------------------------------------------------- */

/* Another server. Never freed while the process runs. */
struct peer {
    _Atomic(struct peer *) next;
    unsigned index;
    _Atomic uint64_t incarnation; /* 0: it is not on the list */
    _Atomic uint32_t server;      /* its number in leases, which it may have until its link ends */
    char address[];
};

/* See shard_state.c. */
enum shard_state {
    SHARD_AWAY,     /* it is not on this server */
    SHARD_CLAIMING, /* its engine has been started */
    SHARD_LOADING,  /* its engine has claimed it; the settings of namespaces in it are being read */
    SHARD_SERVING,
    SHARD_LAPSED,   /* the claim could not be renewed and may have run out: nothing fires */
    SHARD_LOST,     /* another server has claimed it */
    SHARD_ENDING,   /* it leaves: attempts end */
    SHARD_PURGING,  /* leases end */
    SHARD_EMPTYING, /* operations end */
    SHARD_STOPPING, /* the engine records its progress */
    SHARD_STATES
};

/* Why the server is not ready: the first one that is there is told. */
enum hindered { HINDERED_BY_ADDRESS, HINDERED_BY_SHARD, HINDERED_BY_SETTINGS, HINDERED_CAUSES };
enum { HINDRANCE_ROOM = 512 };

struct hindrance {
    pthread_mutex_t lock;
    unsigned shards;                            /* how many wait */
    char text[HINDERED_CAUSES][HINDRANCE_ROOM]; /* "": there is no such cause */
};

struct shard {
    struct worker *worker;
    uint32_t number;
    _Atomic(struct peer *) peer;    /* the shard owner; NULL: this server, or no server */
    atomic_bool moving;             /* its owner gives it up, or has done so: another server takes it soon */
    atomic_bool serving;            /* SHARD_SERVING: for other workers */
    _Atomic uint64_t good_until_ns; /* its claim is valid until then; UINT64_MAX: there are no other servers */
    /* Only the worker reads and writes the rest. */
    enum shard_state state;
    bool claim_over;                     /* whether the claim had expired at the last check */
    fl_engine *engine;                   /* NULL: it is not on this server */
    const struct shard_call *loading;    /* the call that reads its settings since it was last claimed */
    uint64_t held;                       /* firings that pull.c has, neither settled nor withdrawn */
    uint64_t delivering;                 /* firings that webhooks have, not settled */
    uint64_t inside;                     /* calls that the engine has */
    int64_t pending;                     /* timers in it, without the server's own */
    struct shard_call *kept, *kept_last; /* calls that arrived while it was leaving */
    bool lost;                           /* another server has claimed it */
    bool hindered;                       /* its store fails, or another server holds it: counted in `hindrance` */
    uint64_t refused_ns;                 /* when the store last refused a request */
    uint64_t leave_until_ns;             /* then it leaves even if attempts, leases or calls have not ended */
    struct tour purge;
    fl_timer_id patience, claim_timer;
    fl_loop_task take_task, leave_task, left_task, lost_task;
    uint64_t queued[64];   /* one bit per hash of a schedule's name: it may have a queued occurrence */
    struct rezone *rezone; /* moving timers after a change of time zone rules; NULL: not in progress */
    uint64_t steps;        /* firings that were steps of schedules, not timers of users */
};

/* A histogram of durations. The first bucket ends at 125 us, each next one at twice the bound; the last has the rest. */
enum { LATENCY_BUCKETS = 20, LATENCY_FIRST_NS = 125000 };

struct latencies {
    uint64_t buckets[LATENCY_BUCKETS];
    uint64_t sum_ns;
};

struct worker_counts {
    uint64_t webhook_status[6]; /* index = HTTP status / 100; [0] = no response */
    uint64_t leased, acknowledged, leases_expired;
};

struct attempts_log {
    uint64_t next_ns;      /* when the next line would be written at exactly one per second */
    uint64_t failed, dead; /* attempts without a line of their own since the last summary */
    fl_timer_id summary;   /* 0: none is planned */
    uint64_t ignored_ns;   /* before, no line tells of an ignored response */
};

struct worker {
    struct node *node;
    void *owner; /* the ports' */
    unsigned index;
    fl_loop *loop;
    struct pull *pull;
    struct leasing *leasings;           /* that watch at all servers */
    char secret[FL_STORE_NAME_MAX + 1]; /* this worker's copy of the secret that all servers of the store share */
    struct link **links;                /* to other servers, by their index */
    struct line *lines;                 /* waiting calls, by shard */
    uint64_t calls;                     /* number of calls submitted on this worker */
    uint64_t under_way;                 /* calls and tours that have not come back */
    unsigned link_count;
    unsigned lease_turn;                  /* the server that the next request for leases asks first */
    uint32_t turn;                        /* the shard that takes the next timer without a name */
    struct latencies lateness, durations; /* of first attempts; of webhooks */
    struct worker_counts counts;
    struct attempts_log attempts_log;
    struct worker_stats *stats;
    struct out history; /* buffer for one row */
    struct hosts *hosts;
    struct {
        int64_t next_us;   /* when the next pause with an end ends; INT64_MAX: none does */
        int64_t looked_us; /* pauses that ended before are announced; 0: there has been none */
        fl_timer_id timer;
    } pause;
    bool leases_stopped;
    bool wants_events;                             /* of other servers */
    void (*shards_stopped)(struct worker *worker); /* called when its shards have stopped; NULL: not stopping */
};

struct node {
    struct node_config config;
    const struct node_ports *ports;
    void *owner; /* the ports' */
    fl_store *store;
    fl_wall_clock *clock;
    struct worker *workers;
    unsigned worker_count;
    struct shard *shards;
    uint32_t shard_count;
    struct spaces *spaces;
    struct cluster *cluster; /* belongs to the first worker. NULL: there are no other servers */
    _Atomic(struct peer *) peers;
    atomic_uint peer_count;
    atomic_bool looking;
    fl_loop_task look_task;
    atomic_bool settings_old; /* a shard was lost: the settings of namespaces are read again after the next claim */
    atomic_bool settings_asked;
    struct loading *loading;
    fl_loop_task settings_task;
    pthread_mutex_t secret_lock;
    char secret[FL_STORE_NAME_MAX + 1]; /* shared by all servers of the store; empty: not known yet */
    char own_secret[65];                /* made by this process; used unless the store already has a secret */
    struct node_link *self;             /* the first worker's: to our own address, until it is reached */
    fl_timer_id self_timer;
    uint64_t self_told_ns;   /* when the log last said why our own address is not reached; 0: never */
    atomic_uint ready, here; /* shards that are ready; shards on this server */
    atomic_uint lapsed;      /* shards on this server with a claim that may have expired */
    atomic_bool joined;      /* this server is in the store's list of servers, or there are no other servers */
    atomic_bool settings_known;
    atomic_bool has_pauses;      /* a namespace or a host is paused, or was */
    atomic_bool has_host_pauses; /* a host is paused, or was */
    atomic_bool stopping;        /* it was told to stop */
    atomic_bool closing;         /* all connections are closed, of clients and of other servers */
    struct hindrance hindrance;
    _Atomic(struct zones *) zones; /* NULL: only UTC is known */
    struct zone_set *zone_sets;    /* current and former ones, freed with the node */
};

/* The life of a node. Functions of a worker are called on its thread. node_new(), worker_new() and the start of the shards
 * come before any loop runs.
 *
 *     node_new(), then on every worker: worker_new(); shards_start() or, with other servers, servers_start();
 *     on the first: servers_join() if there are others; settings_load().
 *     To stop: `stopping`; servers_stop() on the first; pull_stop(), leases_stop(); `closing`; servers_free() on the first;
 *     servers_stop_links(), shards_stop(), worker_free() on every worker; node_free(). */
int node_new(struct node *node, const struct node_config *config); /* 0, FL_NO_MEMORY, FL_SYSTEM */
void node_free(struct node *node);
int worker_new(struct worker *worker, fl_loop *loop);
void worker_free(struct worker *worker);

/* Checks a node. All its workers run on this thread, or are stopped. Returns the first fault in words, or NULL. */
const char *node_check(const struct node *node);

static inline int64_t node_now(const struct node *node)
{
    return node->clock->now_us(node->clock);
}

/* --- ready.c ------------------------------------------------------------------------------------------------------ */

/* Whether everything that should fire here does; `why` gets the reason if not. Any thread. */
bool node_is_ready(struct node *node, char why[HINDRANCE_ROOM]);
void node_hindered(struct node *node, enum hindered by, const char *why); /* "": the reason is gone */
/* The shard fires nothing because of this result, or does again. On the shard's worker. */
void shard_hindered(struct shard *shard, int result, const char *message);
void shard_unhindered(struct shard *shard);
/* Whether the clocks of the machine and of the database differ too much to be ready; `why` gets the reason. Any thread. */
bool node_clock_is_off(const struct node *node, char *why, size_t size);
/* Whether the log has not contained this message in the last minute. Any thread. */
bool trouble_is_news(const char *message, uint64_t now_ns);

/* --- shards.c ----------------------------------------------------------------------------------------------------- */

int shards_start(struct worker *worker); /* starts all shards of this worker */
void shards_stop(struct worker *worker, void (*done)(struct worker *worker));

/* --- servers.c ---------------------------------------------------------------------------------------------------- */

int servers_start(struct worker *worker);
int servers_join(struct node *node); /* on the first worker, when all have started */
/* On the first worker: calls `done` when other servers own all shards, or after `patience_us`. */
void servers_stop(struct node *node, uint64_t patience_us, void (*done)(void *node));
void servers_stop_links(struct worker *worker);
struct node_link *link_to(struct worker *worker, const struct peer *peer); /* NULL: not connected */
struct peer *peer_of_address(struct node *node, const char *address);      /* on the first worker; NULL: no memory */
/* Asks the other servers for the counts of each namespace, or of one; then calls `done`. */
void servers_gather(struct worker *worker, fl_bytes ns, void (*done)(void *arg), void *arg);
void servers_want_events(struct worker *worker, bool want);

/* --- schedules.c -------------------------------------------------------------------------------------------------- */

/* The namespace in which the schedules of a namespace are kept, which no user can name. */
enum { SCHEDULE_NS_ROOM = FL_STORE_NAME_MAX + 1 };
fl_bytes schedule_ns(fl_bytes ns, char room[SCHEDULE_NS_ROOM]);

static inline bool is_schedule_namespace(fl_bytes ns)
{
    return ns.size > 0 && (*(const char *)ns.data == '\2' || *(const char *)ns.data == '\3');
}

/* The timer of an occurrence, as schedule_timer() makes it, with the additions of its namespace. */
void schedule_occurrence(struct node *node, const struct schedule *schedule, const struct rule *rule, int64_t at_us,
                         fl_durable *ret);

/* Takes the zones over: they are used from now on, and freed with the node. One thread. Returns 0 or FL_NO_MEMORY. */
int node_set_zones(struct node *node, struct zones *zones);
void node_zones_changed(struct worker *worker); /* node_set_zones() was called; on the worker's thread */
static inline const struct zones *node_zones(const struct node *node)
{
    return atomic_load_explicit(&node->zones, memory_order_acquire);
}

/* The server keeps its own data as timers of namespaces that no user can name. */
#define SETTINGS_NAMESPACE ((fl_bytes){"\1namespaces", 11})
static inline bool is_own_namespace(fl_bytes ns)
{
    return ns.size > 0 && *(const unsigned char *)ns.data < ' ';
}

/* The settings of a host are a row among the settings of namespaces, under a name that no user can give. */
enum { HOST_MARK = '\4', HOST_MOST = FL_STORE_NAME_MAX - 1, HOST_ROOM = 1 + HOST_TEXT };
static inline bool is_host_space(fl_bytes ns)
{
    return ns.size > 0 && *(const char *)ns.data == HOST_MARK;
}
/* The name of that row. The host has at most HOST_MOST bytes, else it has no row. */
fl_bytes host_space_name(fl_bytes host, char room[HOST_ROOM]);

/* --- pacing.c ----------------------------------------------------------------------------------------------------- */

uint32_t pace_share(uint32_t limit, unsigned workers); /* the part of a limit that one worker has */

/* --- budget.c: how the memory of the process (max-memory) is divided, in bytes -------------------------------------- */

uint64_t budget_default(void); /* a quarter of the memory that the process may use, at most 1 GiB */
uint64_t budget_of_shard(uint64_t max_memory, uint32_t shards);   /* for its timers in memory; at least 1 MiB */
uint64_t budget_of_worker(uint64_t max_memory, unsigned workers); /* for its large requests; at least 8 MiB */

#endif
