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
 *   browser.c   whether a web page of another site has sent a request
 *   timers.c    one timer: create, get, change, cancel
 *   batch.c     many, a line each
 *   lists.c     pages of timers and of dead letters; cancelling by filter; raising the dead
 *   pull.c      what is due and waits for a lease; leases
 *   lease.c     asking for leases, at all servers
 *   ack.c       acknowledgements, wherever the lease is from
 *   deliver.c   from what is due to webhooks, with the namespace's pace
 *   spaces.c    namespaces: how much is in them
 *   space_settings.c, space_changes.c   their settings: as JSON; in the store and in memory
 *   space_delete.c   removing one; space_metrics.c   for Prometheus
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

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>
#include <foliot/runtime.h>

#include "node/cluster.h"
#include "server/config.h"
#include "http/http.h"
#include "text/json.h"
#include "text/out.h"
#include "peer/peer.h"
#include "text/problem.h"
#include "webhook/webhook.h"

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
    atomic_bool moving;             /* it is being given up in order, or was: it is soon somebody's */
    _Atomic uint64_t good_until_ns; /* until then it is surely ours, if others could have it; else UINT64_MAX */
    /* The rest is the worker's. */
    fl_engine *engine;               /* NULL: it is not here */
    const struct page *loading;      /* what reads its settings in this life of the shard */
    uint64_t held;                   /* given to pull.c and neither settled nor withdrawn */
    uint64_t delivering;             /* given to webhooks and not settled */
    uint64_t inside;                 /* jobs and pages that the engine has */
    int64_t pending;                 /* timers in it, without those that are the server's own */
    struct errand *kept, *kept_last; /* what came while it was leaving */
    bool claimed, ready, loaded;     /* the engine has been ready; it is; its settings are known */
    bool lapsed;                     /* the claim may have run out */
    bool leaving, lost;
    bool withdrawn, purging, purged, hurry; /* how far leaving has got */
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

struct attempts_log {
    uint64_t next_ns;      /* when the next line would be written at exactly one per second */
    uint64_t failed, dead; /* that are not in the log since the last summary */
    fl_timer_id summary;   /* 0: none is due */
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
    struct batch *batches;              /* that are open */
    struct leasing *leasings;           /* that watch at all servers */
    char secret[FL_STORE_NAME_MAX + 1]; /* that all servers of the store have, as this worker has learnt it */
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
    struct attempts_log attempts_log;
    bool leases_stopped;
    unsigned ending; /* what has not ended yet of what must before the step of stopping is over */
    fl_timer_id cut_timer, batches_timer;
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
    _Atomic(const char *) *own_targets; /* our /echo, which may be called although it is not public: see webhook_urls */
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
    atomic_bool settings_old; /* a shard was lost: when one is ours again, the settings of namespaces are read again */
    atomic_bool settings_asked;
    fl_loop_task settings_task;
    pthread_mutex_t secret_lock;
    char secret[FL_STORE_NAME_MAX + 1]; /* that all servers of the store have; empty: not known yet */
    char own_secret[65];                /* that only this process has, until the store has taken it */
    peer_link *self;                    /* the first worker's: to our own address, until it has been reached */
    fl_timer_id self_timer;
    uint64_t self_told_ns;   /* when it was last said why it has not been; 0: never */
    uint64_t nonce;          /* of this process: its incarnation */
    atomic_uint connections; /* of HTTP, on all workers, within the limit */
    atomic_uint subscribers; /* of events, on all workers */
    atomic_uint ready, here; /* shards: that are ready, that are here */
    atomic_uint lapsed;      /* of them, those whose claim may have run out */
    atomic_bool joined;      /* the other servers know of us, or we are alone */
    atomic_bool settings_known;
    atomic_bool stopping; /* it was told to stop */
    struct hindrance {
        pthread_mutex_t lock;
        char text[256]; /* why it is not ready, if it does not just load; "": nothing is known */
    } hindrance;
    atomic_bool closing;    /* and has no connections any more, neither of clients nor of other servers */
    uint64_t stop_until_ns; /* by the loops' clock: then whatever is under way is cut off */
    atomic_bool told;       /* the log says why the start failed */
    int64_t started_us;
};

/* --- attempts_log.c */

/* Writes a line about an attempt that failed or a timer that became a dead letter, if there are not too many. */
void attempts_log(struct worker *worker, bool dead, uint32_t shard, const fl_durable *timer, fl_bytes reason);
void attempts_log_stop(struct worker *worker);

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
 * tried again for a while; what the same worker submits after it waits behind it. */
struct job {
    struct errand errand;
    fl_batch batch;
    struct shard *shard;
    struct space **places; /* that its operations have (timers_complete()), one each or NULL; NULL: none has any */
    void (*render)(struct job *job);
    void (*back)(struct errand *errand);
    bool brief;         /* of the answers only results and IDs are looked at */
    bool local;         /* of no other server: `moved` says if it is not here */
    bool moved;         /* nothing has happened */
    uint64_t since_ns;  /* it waits, but for the time it was on its way */
    uint64_t routed_ns; /* when it was last tried */
    uint64_t number;    /* of those that its worker has submitted */
    struct job *next;   /* of those that wait */
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
    uint64_t since_ns, routed_ns; /* as those of a job */
    struct peer_call remote;
};
void page_submit(struct page *page);

/* It has been tried where the shard was thought to be. */
void job_return(struct job *job);
void page_return(struct page *page);

/* Whether a text is an ID of this store, as it is given out: then it cannot be a name. */
bool is_id(const struct server *server, fl_bytes text, uint32_t *ret_shard, fl_key *ret_id);
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
    const struct tokens *tokens; /* by which it was let in */
    const struct token *token;   /* NULL: none is needed */
    const struct route *route;
    fl_bytes ns, name;
    struct problem problem;
    struct out out; /* the answer */
    int status;
    void *state; /* the handler's */
    char ns_room[256], name_room[256];
};

/* Bytes: a page of a list ends when it has reached LIST_BYTES, and there may be a part of a page and a copy beside it; a
 * subscriber of events has at most EVENTS_BYTES unsent. */
enum { LIST_BYTES = 1 << 20, LIST_MEMORY = 4 * LIST_BYTES, EVENTS_BYTES = 64 << 10, EVENTS_MEMORY = 2 * EVENTS_BYTES };

extern const struct http_handlers api_handlers;

/* --- servers.c */
int servers_prepare(struct server *server);
int servers_start(struct worker *worker);
int servers_join(struct server *server); /* on the first worker, when all have started */
/* On the first worker: calls `done` when the others have the shards, or could have had them for so long. */
void servers_stop(struct server *server, uint64_t patience_us, void (*done)(void *server));
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
/* Whether it would be let in now: tokens may have been read again since it came, and then it has the rights that its token has now.
 * If not, `problem` says so. */
bool call_is_let_in(struct call *call);
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
void namespace_patch(struct call *call);
void namespace_delete(struct call *call);
void peer_post(struct call *call);

/* --- timers.c, for batches too */
/* On the shard's worker, of each operation once. `place` is NULL, or where its place is, which it then has no longer. */
void timers_tell(struct shard *shard, const fl_op *op, struct space **place);
void timers_counted(struct server *server, struct space *space, int64_t more);
/* Adds what the namespace has set, and takes a place among the timers that it may have: `*ret_place`, to be given back by
 * timers_tell() or timers_give_back(). If there is a limit and no place, it may only replace a timer. Returns 0, or -1. */
int timers_complete(struct server *server, fl_op *op, struct space **ret_place, struct problem *problem);
void timers_give_back(const struct server *server, struct space **place);
int timers_problem(const struct server *server, const fl_op *op, struct problem *problem); /* of one that failed */

/* --- lease.c */
void leases_ask_again(struct worker *worker); /* there is another server to ask */
void leases_stop(struct worker *worker);      /* nobody waits any longer */
void leases_check(struct worker *worker);     /* tokens were read again: some may not be let in any more */

/* --- batch.c */
void batches_stop(struct worker *worker);  /* nothing more is read of those that are open */
void batches_check(struct worker *worker); /* as those of leases */

/* --- pull.c */
int pull_new(struct worker *worker);
void pull_free(struct worker *worker);
void pull_add(struct shard *shard, const fl_firing *firings, size_t count);
void pull_purge(struct worker *worker, struct shard *shard); /* forgets what is of this shard */
void pull_stop(struct worker *worker);
int64_t pull_clock_changed(struct worker *worker); /* ends leases by the test clock; returns when the next does */

/* --- deliver.c */

/* A timer that is due and waits, for its turn at a host or for a lease: the engine may want it back. */
struct waiter {
    bool (*withdraw)(struct waiter *waiter); /* on the shard's worker. False: its attempt has begun */
};
/* Hosts and polled namespaces have lanes of their own. */
enum { LANE_PULL = 1 << 23, LANE_MASK = LANE_PULL - 1 };
void deliver(struct shard *shard, const fl_firing *firings, size_t count);
void deliver_settle(struct shard *shard, const fl_firing *firing, const fl_settlement *settlement);
struct shard *deliver_shard(const webhook_attempt *attempt); /* whose timer it delivers */

/* --- counts.c: on the shard's worker */
void space_load(struct shard *shard); /* calls shard_loaded() */

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
    _Atomic int64_t coming;                    /* being created, if there is a limit, and not counted yet */
    int64_t counted;                           /* the same, and counted: under the lock `placing` */
    atomic_llong fired, failed, dead;
    /* The pace of deliveries: when the next may begin, and until when those put off have their places. */
    _Atomic int64_t next_us, booked_us;
    /* The crowd that is falling due. */
    _Atomic int64_t crowd_due_us;
    atomic_uint crowd_size;
    /* Changes of its settings that wait for their turn, at its home. */
    struct change *changes, *changes_last;
    bool changed; /* there has been a change, or a look at the stored settings; under the lock of all namespaces */
    _Atomic uint64_t load; /* the last load of all settings that has found settings for it */
    atomic_bool series;    /* it has series of its own in /metrics */
    struct space *next;
};

int spaces_new(struct server *server);
void spaces_free(struct server *server);
struct space *space_of(struct server *server, fl_bytes ns); /* makes it; NULL: no memory */
/* Whether this has not been told in the log in the last minute. Any thread. */
bool trouble_is_news(const char *message, uint64_t now_ns);
void spaces_load_again(struct server *server); /* if they may have changed with a shard that was lost */
void spaces_load(struct worker *worker,
                 void (*done)(struct worker *worker));  /* reads all settings; `done` may be NULL */
void spaces_reload(struct worker *worker, fl_bytes ns); /* reads those of one */
void spaces_tell_engine(struct shard *shard);
/* Writes the metrics of namespaces into `call->out`, some at a time, then calls `done`. */
void spaces_metrics(struct call *call, void (*done)(struct call *call));
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
static inline bool is_own_namespace(fl_bytes ns)
{
    return ns.size > 0 && *(const char *)ns.data == '\1';
}

/* --- events.c */
enum event_kind { EVENT_SCHEDULED, EVENT_FIRED, EVENT_FAILED, EVENT_DEAD, EVENT_CANCELLED, EVENT_SKIPPED };
void event_tell(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer, fl_bytes reason);
void events_stop(struct worker *worker);
void events_check(struct worker *worker);                                /* as those of leases */
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
void server_hindered(struct server *server, const char *why); /* "": not any more */
/* Whether the machine's clock and the database's differ too much to be ready; then `why` says it in words. Any thread. */
bool server_clock_is_off(const struct server *server, char *why, size_t size);
int server_run(struct server_config *config); /* until SIGTERM; returns an exit status */

#endif
