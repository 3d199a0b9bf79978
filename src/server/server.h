/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_SERVER_H
#define FOLIOT_SERVER_SERVER_H

/* `foliot serve`: what it is made of, and which file does what.
 *
 *   server.c    the life of the server: store, workers, listening, signals, stopping
 *   shards.c    the engines, which come and go; errands from worker to worker; jobs, wherever their shard is
 *   servers.c   the other servers of the store, and what is asked of them
 *   serving.c   what they ask of us
 *   api.c       which request is for whom, and may it
 *   timers.c    one timer: create, get, change, cancel
 *   batch.c     many, a line each
 *   lists.c     pages of timers and of dead letters; cancelling by filter; raising the dead
 *   pull.c      what is due and waits for a lease; leases
 *   lease.c     asking for leases, at all servers
 *   ack.c       acknowledgements, wherever the lease is from
 *   deliver.c   from what is due to webhooks, with the namespace's pace
 *   spaces.c    namespaces: their settings and how much is in them
 *   events.c    server-sent events
 *   clock.c     the test clock
 *   metrics.c   for Prometheus; health
 *   rate.c      how many requests a second an address may make
 *   hello.c     for who starts a server for the first time
 *
 *   cluster.c   who is there, and who should have which shard
 *   peer_link.c, peer_session.c   links between servers; wire.c: what goes over them
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

#include "server/cluster.h"
#include "server/config.h"
#include "server/http.h"
#include "server/json.h"
#include "server/out.h"
#include "server/peer.h"
#include "server/problem.h"
#include "server/webhook.h"

struct server;
struct worker;
struct space;
struct job;

/* Another server. Once it was seen, it is there until the process ends. */
struct peer {
    _Atomic(struct peer *) next;
    unsigned index;
    _Atomic uint64_t incarnation; /* 0: it is gone */
    char address[];
};

struct shard {
    struct worker *worker;
    uint32_t number;
    _Atomic(struct peer *) peer;    /* whose it is; NULL: ours, or nobody's */
    _Atomic uint64_t good_until_ns; /* until then it is surely ours, if others could have it; else UINT64_MAX */
    /* The rest is the worker's. */
    fl_engine *engine; /* NULL: it is not here */
    struct counts *counts;
    uint64_t held;                   /* given to pull.c and not settled */
    uint64_t delivering;             /* given to webhooks and not settled */
    uint64_t inside;                 /* jobs and pages that the engine has */
    uint64_t own;                    /* timers in it that are the server's own */
    uint64_t trouble_ns;             /* when it last said in the log that its store is in trouble */
    struct errand *kept, *kept_last; /* what came while it was leaving */
    bool claimed, ready, loaded;     /* the engine has been ready; it is; its counts are known */
    bool leaving, lost;
    bool withdrawn, purging, purged, saving, saved, hurry; /* how far leaving has got */
    fl_timer_id patience, claim_timer;
    fl_loop_task take_task, leave_task, left_task;
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
    struct listener *listeners;
    struct leasing *leasings; /* that watch at all servers */
    struct peer_host host;
    peer_sessions *sessions; /* of other servers; NULL: this one is alone */
    struct link **links;     /* to them, by their index */
    struct waiting *waiting; /* by shard */
    uint64_t jobs;           /* how many have been submitted here */
    uint64_t under_way;      /* jobs, pages and tours that have not come home */
    unsigned link_count;
    unsigned lease_turn;                  /* which server is asked first by the next that wants leases */
    uint32_t turn;                        /* which of the shards takes the next timer without a name */
    struct histogram lateness, durations; /* of first attempts; of webhooks */
    struct worker_counts counts;
    bool stopped;
    void (*shards_stopped)(struct worker *worker); /* who waits for that; NULL: nobody */
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
    struct cluster *cluster; /* the first worker's. NULL: this server is alone */
    _Atomic(struct peer *) peers;
    atomic_uint peer_count;
    atomic_bool looking;
    fl_loop_task look_task;
    char secret[FL_STORE_NAME_MAX + 1]; /* that all servers of the store have; empty: not known yet */
    uint64_t nonce;                     /* of this process: its incarnation */
    atomic_uint subscribers;            /* of events, on all workers */
    atomic_uint ready, here;            /* shards: that are ready, that are here */
    atomic_bool joined;                 /* the other servers know of us, or we are alone */
    atomic_bool settings_known;
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
    struct errand *next; /* of those that a leaving shard keeps */
};
void errand_send(struct errand *errand);
void errand_return(struct errand *errand);

/* Operations on one shard, wherever it is. `render` is called while the answers are valid, on the shard's worker or, if it
 * is another server's, at home; `back` is called at home. If the shard is nobody's just now, or is being moved, it is
 * tried again for a second; what the same worker submits after it waits behind it. */
struct job {
    struct errand errand;
    fl_batch batch;
    struct shard *shard;
    void (*render)(struct job *job);
    void (*back)(struct errand *errand);
    bool brief; /* of the answers only results and IDs are looked at */
    bool local; /* of no other server: `moved` says if it is not here */
    bool moved; /* nothing has happened */
    uint64_t until_ns;
    uint64_t number;  /* of those that its worker has submitted */
    struct job *next; /* of those that wait */
    struct peer_call remote;
};
void job_submit(struct job *job);
void job_submit_inside(struct job *job);    /* on the shard's worker, which is home, also while the shard is leaving */
void job_fail(struct job *job, int result); /* before it has been submitted */

/* A page of one shard. The same. */
struct page {
    struct errand errand;
    fl_listing listing;
    struct shard *shard;
    void (*render)(struct page *page);
    void (*back)(struct errand *errand);
    bool local, moved;
    uint64_t until_ns;
    struct peer_call remote;
};
void page_submit(struct page *page);

/* It has been tried where the shard was thought to be. */
void job_return(struct job *job);
void page_return(struct page *page);

struct shard *shard_of_name(struct server *server, fl_bytes ns, fl_bytes name);
struct shard *shard_of_worker(struct worker *worker); /* for timers without a name */
int shards_new(struct worker *worker);
void shards_free(struct worker *worker);
int shards_start(struct worker *worker); /* all that are its own */
void shards_stop(struct worker *worker, void (*done)(struct worker *worker));
int shard_start(struct shard *shard);
void shard_loaded(struct shard *shard); /* its counts are known */
void shard_let_go(struct shard *shard); /* it may fire, if all that must be known is */
/* Gives a shard up: what is under way has a moment to end, what is known is recorded. Then `shard_left` of servers.c is
 * called. `lost`: it is another's already. */
void shard_leave(struct shard *shard, bool lost);
void shard_leave_on(struct shard *shard); /* something has ended that it may have waited for */

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

/* --- servers.c */
int servers_start(struct server *server);
void servers_stop(struct server *server, void (*done)(void *server)); /* on the first worker */
void servers_stop_links(struct worker *worker);
void shard_left(struct shard *shard);
void servers_look(struct server *server); /* we have claimed something: all should know */
void job_forward(struct job *job, struct peer *peer);
void page_forward(struct page *page, struct peer *peer);
peer_link *link_to(struct worker *worker, const struct peer *peer); /* NULL: there is none now */
void servers_tell_settings(struct worker *worker, fl_bytes ns);     /* they have changed */
/* Asks them how much there is in each namespace, or in one; then calls `done`. */
void servers_gather(struct worker *worker, fl_bytes ns, void (*done)(void *arg), void *arg);
void servers_want_events(struct worker *worker, bool want);
void cluster_get(struct call *call);

/* What one server asks of another. */
enum peer_kind {
    PEER_JOB = 16, /* operations on a shard */
    PEER_PAGE,     /* a page of a shard */
    PEER_TAKE,     /* leases of a namespace, as many as are there */
    PEER_WATCH,    /* answered when there is something to lease, or after a while */
    PEER_ACK,      /* acknowledgements of leases of the server that is asked */
    PEER_EVENTS,   /* events, in pieces, without end */
    PEER_SPACES,   /* which namespaces there are, with how much */
    PEER_SETTINGS, /* those of a namespace have changed */
    PEER_LOOK,     /* shards have moved */
};
enum { PEER_MOVED = 1 }; /* the result of PEER_JOB and PEER_PAGE: the shard is not here */

/* --- serving.c */
void serve_peer(void *arg, struct peer_request *request);

void call_answer(struct call *call, int status); /* with `out` as JSON */
void call_answer_as(struct call *call, int status, const char *type, const char *extra);
void call_refuse(struct call *call); /* with `problem` */
int call_refuse_result(struct call *call, int result);
void call_drop(struct call *call); /* the request is somebody else's from now on */
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
void peer_post(struct call *call);

/* --- timers.c, for batches too */
void timers_tell(struct shard *shard, const fl_op *op); /* on the shard's worker, of each operation once */
/* `*ret_place` is set if it has a place among those that the namespace may have: it is given back when all is over. */
int timers_complete(struct server *server, fl_op *op, struct space **ret_place, struct problem *problem);
void timers_answered(struct space *place);                                                 /* NULL is none */
int timers_problem(const struct server *server, const fl_op *op, struct problem *problem); /* of one that failed */

/* --- lease.c */
void leases_ask_again(struct worker *worker); /* there is another server to ask */

/* --- pull.c */
int pull_new(struct worker *worker);
void pull_free(struct worker *worker);
void pull_add(struct shard *shard, const fl_firing *firings, size_t count);
void pull_purge(struct worker *worker, struct shard *shard); /* forgets what is of this shard */
void pull_stop(struct worker *worker);
int64_t pull_clock_changed(struct worker *worker); /* ends leases by the test clock; returns when the next does */

/* --- deliver.c */
void deliver(struct shard *shard, const fl_firing *firings, size_t count);
void deliver_settle(struct shard *shard, const fl_firing *firing, const fl_settlement *settlement);
struct shard *deliver_shard(const webhook_call *call); /* whose timer it delivers */

/* --- counts.c: on the shard's worker */
int counts_new(struct shard *shard);
void counts_free(struct shard *shard); /* what is in the shard does not count here any more */
void counts_load(struct shard *shard); /* calls shard_loaded() */
void counts_add(struct shard *shard, struct space *space, int64_t more, bool targets);
void counts_flush(struct shard *shard, void (*done)(struct shard *shard));

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
    _Atomic int64_t pending;                   /* in the shards of this server */
    _Atomic int64_t elsewhere;                 /* in those of others, when they were last asked */
    _Atomic int64_t coming;                    /* being created, if there is a limit */
    atomic_bool has_targets;                   /* some of its timers have had one */
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
void spaces_load(struct worker *worker,
                 void (*done)(struct worker *worker));  /* reads all settings; `done` may be NULL */
void spaces_reload(struct worker *worker, fl_bytes ns); /* reads those of one */
void spaces_tell_engine(struct shard *shard);
void spaces_metrics(struct server *server, struct out *out);
void spaces_take(struct server *server, const fl_durable *timer); /* what the store has of one */
/* How much there is in each, or in one: for another server, and what others said. */
void spaces_put_counts(struct server *server, fl_bytes ns, struct out *out);
void spaces_take_counts(struct server *server, fl_bytes ns, const struct out *answers, size_t count);
static inline int64_t space_pending(struct space *space)
{
    int64_t pending = atomic_load_explicit(&space->pending, memory_order_relaxed) +
                      atomic_load_explicit(&space->elsewhere, memory_order_relaxed);
    return pending > 0 ? pending : 0;
}
/* What the server keeps for itself, as timers that no user can name. */
#define SETTINGS_NAMESPACE ((fl_bytes){"\1namespaces", 11})
#define COUNTS_NAMESPACE ((fl_bytes){"\1counts", 7})
static inline bool is_own_namespace(fl_bytes ns)
{
    return ns.size > 0 && *(const char *)ns.data == '\1';
}

/* --- events.c */
enum event_kind { EVENT_SCHEDULED, EVENT_FIRED, EVENT_FAILED, EVENT_DEAD, EVENT_CANCELLED, EVENT_SKIPPED };
void event_tell(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer, fl_bytes reason);
void events_stop(struct worker *worker);
void events_listen(struct worker *worker, struct peer_request *request); /* another server wants them all */
void events_relay(struct worker *worker, fl_bytes piece);                /* one of another server's */

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
