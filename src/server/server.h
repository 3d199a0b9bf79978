/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_SERVER_H
#define FOLIOT_SERVER_SERVER_H

/* `foliot serve`: what it is made of, and which file does what.
 *
 *   server.c    the life of the server: store, workers, listening, signals, stopping
 *   shards.c    the engines; errands from worker to worker; what is due goes to deliver.c or pull.c
 *   api.c       which request is for whom, and may it
 *   timers.c    one timer: create, get, change, cancel
 *   batch.c     many, a line each
 *   lists.c     pages of timers and of dead letters; cancelling by filter; raising the dead
 *   pull.c      leases and acknowledgements
 *   deliver.c   from what is due to webhooks, with the namespace's pace
 *   spaces.c    namespaces: their settings and how much is in them
 *   events.c    server-sent events
 *   clock.c     the test clock
 *   metrics.c   for Prometheus; health
 *   rate.c      how many requests a second an address may make
 *   hello.c     for who starts a server for the first time
 *
 *   http.c, webhook.c, config.c, tokens.c, log.c, when.c, json.c, out.c, problem.c, timer.c know nothing of the above
 *
 * Threads. A worker of the runtime has an event loop, and on it HTTP connections, webhooks and the engines of its shards.
 * Nothing is locked on the way of a timer: who needs something of another worker's sends an errand there and gets it back.
 * What all of them read (tokens, settings of namespaces) is replaced as a whole and never changed. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>
#include <foliot/runtime.h>

#include "server/config.h"
#include "server/http.h"
#include "server/json.h"
#include "server/out.h"
#include "server/problem.h"
#include "server/webhook.h"

struct server;
struct worker;
struct space;

struct shard {
    struct worker *worker;
    uint32_t number;
    fl_engine *engine;
    uint64_t held;       /* given to pull.c and not settled */
    uint64_t trouble_ns; /* when it last said in the log that its store is in trouble */
    bool ready;
};

struct worker_counts {
    uint64_t webhook_status[6]; /* by hundreds; 0: no answer */
    uint64_t leased, acknowledged, leases_expired;
    uint64_t events, events_dropped;
    uint64_t problems; /* answers of 400 and more */
};

/* How often something took how long: up to 125 us, twice that, and so on; the last bucket has the rest. */
enum { HISTOGRAM_BUCKETS = 20, HISTOGRAM_FIRST_NS = 125000 };

struct histogram {
    uint64_t buckets[HISTOGRAM_BUCKETS];
    uint64_t sum_ns;
};

struct worker {
    struct server *server;
    unsigned index;
    fl_loop *loop;
    http_server *http;
    webhooks *hooks;
    struct pull *pull;
    struct subscriber *subscribers;
    uint32_t turn;                        /* which of the shards takes the next timer without a name */
    struct histogram lateness, durations; /* of first attempts; of webhooks */
    struct worker_counts counts;
    bool stopped;
};

struct server {
    struct server_config config;
    struct reloaded *reloaded; /* what was read since, the last first */
    _Atomic(const struct tokens *) tokens;
    fl_runtime *runtime;
    fl_store *store;
    fl_wall_clock *clock;
    struct test_clock *test_clock; /* NULL: time passes by itself */
    http_tls *tls;
    struct worker *workers;
    unsigned worker_count;
    struct shard *shards;
    uint32_t shard_count;
    struct spaces *spaces;
    struct rates *rates;     /* NULL: there is no limit */
    uint64_t nonce;          /* of this process */
    atomic_uint subscribers; /* of events, on all workers */
    atomic_uint ready;       /* shards */
    atomic_bool has_targets; /* not all timers are pulled */
    atomic_bool stopping;
    int64_t started_us;
};

/* --- shards.c: errands */

/* Something to be done on another worker. `go` runs there, and when it, or what it began, is over, errand_return() is called
 * there: then `back` runs at home. On one and the same worker, both are plain calls. */
struct errand {
    struct worker *home, *there;
    void (*go)(struct errand *errand);
    void (*back)(struct errand *errand);
    fl_loop_task task;
};
void errand_send(struct errand *errand);
void errand_return(struct errand *errand);

/* Operations on one shard. `render` is called on its worker while the answers are valid, `back` at home. */
struct job {
    struct errand errand;
    fl_batch batch;
    struct shard *shard;
    void (*render)(struct job *job);
};
void job_submit(struct job *job);

/* A page of one shard. */
struct page {
    struct errand errand;
    fl_listing listing;
    struct shard *shard;
    void (*render)(struct page *page);
};
void page_submit(struct page *page);

struct shard *shard_of_name(struct server *server, fl_bytes ns, fl_bytes name);
struct shard *shard_of_worker(struct worker *worker); /* for timers without a name */
int shards_start(struct worker *worker);
void shards_stop(struct worker *worker, void (*done)(struct worker *worker));

static inline int64_t server_now(const struct server *server)
{
    return server->clock->now_us(server->clock);
}

/* Calls `fn` on every worker, one after the other, then `back` at home; `tour` is the caller's. */
struct tour {
    struct errand errand;
    struct worker *home;
    unsigned next;
    void (*fn)(struct tour *tour, struct worker *worker);
    void (*back)(struct tour *tour);
};
void tour_begin(struct tour *tour, struct worker *home);

/* --- api.c: calls */

/* A request that is being handled. */
struct call {
    http_request *request;
    struct worker *worker;
    const struct token *token; /* NULL: none is needed */
    const struct route *route;
    fl_bytes ns, name;
    struct problem problem;
    struct out out; /* the answer */
    int status;
    void *state; /* the handler's */
    char ns_room[256], name_room[256];
};

extern const struct http_handlers api_handlers;

void call_answer(struct call *call, int status); /* with `out` as JSON */
void call_answer_as(struct call *call, int status, const char *type, const char *extra);
void call_refuse(struct call *call); /* with `problem` */
int call_refuse_result(struct call *call, int result);
bool call_may(const struct call *call, unsigned right, fl_bytes ns);
/* A parameter of the query. Returns 1; 0: it is not given; -1: it cannot be read, or is there twice, and `problem` says so.
 * What is not understood must not count as not given: a filter that is left out lets everything through. */
int call_query(struct call *call, const char *name, char *room, size_t size, fl_bytes *ret);
int call_check_query(struct call *call,
                     const char *const *known);     /* whether there are others; `known` ends with NULL */
int call_json(struct call *call, struct json *ret); /* the body; refuses and returns -1 if it is none */

/* Of each file, what a route leads to. */
void timers_put(struct call *call);
void timers_post(struct call *call);
void timers_get(struct call *call);
void timers_patch(struct call *call);
void timers_delete(struct call *call);
void batch_begin(struct call *call);
void list_get(struct call *call);
void list_cancel(struct call *call);
void dead_list(struct call *call);
void dead_get(struct call *call);
void dead_redrive(struct call *call);
void dead_delete(struct call *call);
void lease_post(struct call *call);
void ack_post(struct call *call);
void events_get(struct call *call);
void clock_post(struct call *call);
void clock_get(struct call *call);
void metrics_get(struct call *call);
void health_get(struct call *call);
void ready_get(struct call *call);
void version_get(struct call *call);
void openapi_get(struct call *call);
void namespaces_get(struct call *call);
void namespace_get(struct call *call);
void namespace_put(struct call *call);

/* --- timers.c, for batches too */
void timers_tell(struct shard *shard, const fl_op *op);
int timers_complete(struct server *server, fl_durable *timer, struct problem *problem);

/* --- pull.c */
int pull_new(struct worker *worker);
void pull_free(struct worker *worker);
void pull_add(struct shard *shard, const fl_firing *firings, size_t count);
void pull_stop(struct worker *worker);
int64_t pull_clock_changed(struct worker *worker); /* ends leases by the test clock; returns when the next does */

/* --- deliver.c */
void deliver(struct shard *shard, const fl_firing *firings, size_t count);
void deliver_settle(struct shard *shard, const fl_firing *firing, const fl_settlement *settlement);

/* --- spaces.c */
struct settings {
    fl_bytes secrets[2]; /* decoded */
    unsigned secret_count;
    fl_retry retry;         /* zero: the server's */
    uint64_t skip_older_us; /* UINT64_MAX: the server's */
    uint32_t max_rate;      /* deliveries a second; 0: no limit */
    uint64_t spread_us;
};

struct space {
    char *name;
    size_t size;
    uint64_t hash;
    _Atomic(const struct settings *) settings; /* never NULL */
    _Atomic int64_t pending;
    int64_t saved_pending;
    uint64_t round;          /* of flushing, the last it had its turn in */
    atomic_bool used;        /* it has had a timer */
    atomic_bool has_targets; /* some of its timers have had one */
    atomic_llong fired, failed, dead;
    /* The pace of deliveries: when the next may begin, and until when those put off have their places. */
    _Atomic int64_t next_us, booked_us;
    /* What waits to be leased, since when there is such, and when somebody last asked. */
    _Atomic int64_t held, held_since_us, asked_us;
    /* The crowd that is falling due. */
    _Atomic int64_t crowd_due_us;
    atomic_uint crowd_size;
    struct space *next;
};

int spaces_new(struct server *server);
void spaces_free(struct server *server);
struct space *space_of(struct server *server, fl_bytes ns); /* makes it; NULL: no memory */
void spaces_load(struct worker *worker, void (*done)(struct worker *worker));
void space_used(struct server *server, struct space *space);
void spaces_flush(struct worker *worker, void (*done)(struct worker *worker)); /* on the first worker */
uint64_t spaces_saved(struct server *server);
void spaces_metrics(struct server *server, struct out *out);

/* --- events.c */
enum event_kind { EVENT_SCHEDULED, EVENT_FIRED, EVENT_FAILED, EVENT_DEAD, EVENT_CANCELLED, EVENT_SKIPPED };
void event_tell(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer, fl_bytes reason);
void events_stop(struct worker *worker);

/* --- clock.c */
int test_clock_new(struct server *server);
void test_clock_free(struct server *server);

/* --- rate.c */
int rates_new(struct server *server);
void rates_free(struct server *server);
bool rate_allows(struct server *server, const struct sockaddr *peer, int64_t now_us);

/* --- hello.c */
void hello(struct server *server, const char *url);

/* --- server.c */
int server_run(struct server_config *config); /* until SIGTERM; returns an exit status */

#endif
