/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_NODE_H
#define FOLIOT_NODE_NODE_H

/* The server without sockets and JSON: shards and their engines, calls to them wherever they are, leases, pacing, namespaces,
 * the other servers.
 *
 * A node reaches the world through its ports (struct node_ports): webhooks, links, events, randomness. It gets a store, a wall clock
 * and one loop per worker. It includes nothing of http, webhook, peer, api or server, so it runs in the simulation as it is.
 *
 *   node.c         the beginning and the end of a node
 *   errands.c      from worker to worker: errands, tours
 *   shard_state.c  the states of a shard and what may follow on what
 *   shards.c       the engines of a worker: start, serve, leave
 *   calls.c        calls to workers of this server or another one, and calls that come from other servers
 *   shard_calls.c  operations and pages of a shard, wherever it is: here, at another server, or on the move
 *   servers.c      the other servers: which there are, and which shards to take and to leave
 *   links.c        links to them, and what they are told
 *   cluster.c      who is there, and who should have which shard (cluster.h); cluster_view.c: what was read of the others, the plan
 *   wire.c         what goes over links (wire.h)
 *   deliver.c      from a due timer to an attempt, and what became of it
 *   pacing.c       which work may begin when
 *   pause.c        namespaces and hosts that are paused
 *   hosts.c        how calls of each host went
 *   pull.c         due timers that wait for a lease; leases; pull_items.c: the way there and back
 *   serving.c      what other servers tell and ask besides
 *   leasing.c      asking for leases, at all servers
 *   acks.c         acknowledgements, wherever the lease is from
 *   spaces.c       namespaces: finding them, how much is in them
 *   settings.c     their settings, in the store and in memory; settings_load.c: reading all of them; settings_value.c: as values
 *   attempts_log.c failed attempts in the log
 *   history.c      what became of attempts: rows of the shard's history, pages of them
 *   stats.c        what happened in the last hour
 *   rezone.c       moves schedules and timers when time zone rules have changed
 *   schedule.c     which occurrences a schedule creates when (schedule.h); schedules.c: schedules in the engine
 *   node.c         making, starting and ending a node
 *   budget.c       how max-memory is divided
 *   check.c        what a legal node is
 *
 * Threads. A worker has a loop and its shards' engines on it. Nothing is locked on the way of a timer: a worker that needs
 * something of another one sends an errand there and gets it back. Settings of namespaces are replaced as a whole and never
 * changed. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>
#include <foliot/loop.h>

#include "node/cluster.h"
#include "node/schedule.h"
#include "node/wire.h"
#include "text/out.h"

struct node;
struct worker;
struct shard;
struct space;
struct settings;

/* --- Ports -------------------------------------------------------------------------------------------------------- */

/* One attempt at a due timer that has a target. */
struct attempt;

/* A link to another server; the port's. */
struct node_link;

/* A call over a link; the caller's memory, until `done` is called or the call is cancelled. */
struct link_call {
    /* `result` is what the other server said, or with an empty answer:
     * FL_STORE_UNAVAILABLE, FL_CAPACITY_EXCEEDED, FL_TOO_LARGE, FL_NO_MEMORY with `sent` false: nothing has happened;
     * FL_OUTCOME_UNKNOWN: the link was lost before the answer came. */
    void (*done)(struct link_call *call, int result, fl_bytes answer);
    void (*piece)(struct link_call *call,
                  fl_bytes piece); /* of an answer that comes in pieces; NULL: none is expected */
    bool urgent;                   /* also over a link that is full */
    bool sent;                     /* set before `done`: it may have arrived */
    uint64_t room[12];             /* the port's */
};

/* A call that another server has made. It is there until it is answered with link_answer(). */
struct link_request {
    uint8_t kind;                               /* enum link_kind */
    fl_bytes body;                              /* valid until node_serve() returns, or the answer */
    void (*gone)(struct link_request *request); /* see link_watch() */
    void *arg;                                  /* that of `gone` */
    void *port;
    const struct node_ports *ports;
};

struct link_config {
    const char *address; /* of the other server */
    const char *self;    /* our own */
    fl_bytes secret;
    void (*changed)(void *arg, bool up); /* may be NULL. Never inside a function of the port */
    void *arg;
};

enum event_kind {
    EVENT_SCHEDULED,
    EVENT_FIRED,
    EVENT_FAILED,
    EVENT_DEAD,
    EVENT_CANCELLED,
    EVENT_SKIPPED,
    EVENT_PAUSED,
    EVENT_RESUMED,
    EVENT_MOVED, /* other time zone rules: it is due at another moment */
};

enum { HOST_TEXT = 264 };

/* What a node needs of the world. Every function is called on the worker's thread and returns at once. */
struct node_ports {
    /* Webhooks. `prepare` comes first; it returns the same number for all targets of one host. `deliver` ends with
     * attempt_done(), never inside; before the attempt begins, the port asks attempt_begin().
     * `cancel` takes back one that has not begun: then attempt_done() is not called. `withdraw` ends those of a shard with
     * FL_LATER: those that have not begun, and with `begun` the others too. */
    size_t attempt_room; /* bytes that the port needs behind a struct attempt */
    uint64_t (*prepare)(struct attempt *attempt);
    /* HOST:PORT of a target, one text for all spellings. Size 0: it is no URL. */
    fl_bytes (*host_of)(fl_bytes target, char room[HOST_TEXT]);
    void (*deliver)(struct worker *worker, struct attempt *attempt);
    bool (*cancel)(struct worker *worker, struct attempt *attempt);
    void (*withdraw)(struct worker *worker, const struct shard *shard, bool begun);

    /* Links. */
    int (*link_new)(struct worker *worker, const struct link_config *config, struct node_link **ret);
    void (*link_free)(struct node_link *link); /* ends its calls as if it were lost */
    bool (*link_up)(const struct node_link *link);
    bool (*link_has_failed)(const struct node_link *link);
    const char *(*link_trouble)(const struct node_link *link);
    void (*link_rotate)(struct node_link *link, fl_bytes secret); /* for the next connection */
    void (*link_call)(struct node_link *link, struct link_call *call, uint8_t kind, fl_bytes body);
    void (*link_cancel)(struct node_link *link, struct link_call *call);
    void (*secret_changed)(struct worker *worker); /* worker->secret is another one */
    void (*answer)(struct link_request *request, int result, fl_bytes body);
    void (*watch)(struct link_request *request, bool on);
    void (*piece)(struct link_request *request, fl_bytes piece);
    size_t (*unsent)(const struct link_request *request);

    /* Events: one that happened here, of a namespace if the timer has no more than that; one from another server; another server
     * wants them. */
    void (*publish)(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason);
    void (*relay)(struct worker *worker, fl_bytes piece);
    void (*listen)(struct worker *worker, struct link_request *request);

    /* Settings of namespaces as they are stored. `settings_read` returns 0, or -1 after it has logged what is wrong. */
    int (*settings_read)(fl_bytes stored, fl_bytes ns, struct settings *ret);
    void (*settings_write)(struct out *out, const struct settings *settings);

    size_t (*response_room)(const struct worker *worker); /* bytes of memory that responses may still take */
    int (*random)(void *bytes, size_t size);              /* 0, or negative */
    void (*replaced)(struct node *node);                  /* another server uses our address: stop */
};

/* --- Configuration ------------------------------------------------------------------------------------------------ */

struct node_config {
    const struct node_ports *ports;
    void *owner; /* of the ports */
    fl_store *store;
    fl_wall_clock *clock;
    bool test_clock; /* the clock is turned by hand: leases end by it */
    unsigned workers;
    const char *claimant;  /* who claims the shards */
    const char *advertise; /* where other servers reach this one; NULL: it is alone */
    uint64_t incarnation;  /* of this process: random, not 0, below 2^63 */
    fl_engine_config engine;
    uint64_t max_memory;
    uint64_t max_timers_per_namespace; /* 0: no limit */
};

/* --- errands.c ---------------------------------------------------------------------------------------------------- */

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

/* Calls `fn` on every worker, one after the other, then `back` at home; `tour` is the caller's. */
struct tour {
    struct errand errand;
    struct worker *home;
    unsigned next;
    void (*fn)(struct tour *tour, struct worker *worker);
    void (*back)(struct tour *tour);
};
void tour_begin(struct tour *tour, struct worker *home);

/* --- The node ----------------------------------------------------------------------------------------------------- */

/* Another server. Once it was seen, it is there until the process ends. */
struct peer {
    _Atomic(struct peer *) next;
    unsigned index;
    _Atomic uint64_t incarnation; /* 0: it is gone */
    char address[];
};

/* See shard_state.c. */
enum shard_state {
    SHARD_AWAY,     /* it is not here */
    SHARD_CLAIMING, /* the engine has been started */
    SHARD_LOADING,  /* and has claimed the shard; the settings of namespaces in it are being read */
    SHARD_SERVING,
    SHARD_LAPSED,   /* the claim could not be renewed and may have run out: nothing fires */
    SHARD_LOST,     /* another server has claimed it */
    SHARD_ENDING,   /* it leaves: attempts end */
    SHARD_PURGING,  /* leases end */
    SHARD_EMPTYING, /* operations end */
    SHARD_STOPPING, /* the engine records its progress */
    SHARD_STATES
};

struct shard {
    struct worker *worker;
    uint32_t number;
    _Atomic(struct peer *) peer;    /* whose it is; NULL: ours, or nobody's */
    atomic_bool moving;             /* it is being given up in order, or was: it is soon somebody's */
    _Atomic uint64_t good_until_ns; /* until then it is surely ours, if others could have it; else UINT64_MAX */
    /* The rest is the worker's. */
    enum shard_state state;
    fl_engine *engine;                   /* NULL: it is not here */
    const struct shard_call *loading;    /* what reads its settings in this life of the shard */
    uint64_t held;                       /* given to pull.c and neither settled nor withdrawn */
    uint64_t delivering;                 /* given to webhooks and not settled */
    uint64_t inside;                     /* calls that the engine has */
    int64_t pending;                     /* timers in it, without those that are the server's own */
    struct shard_call *kept, *kept_last; /* what came while it was leaving */
    bool lost;                           /* another server has claimed it */
    uint64_t leave_until_ns;             /* then it leaves without what has not ended */
    struct tour purge;
    fl_timer_id patience, claim_timer;
    fl_loop_task take_task, leave_task, left_task, lost_task;
    uint64_t queued[64];   /* a bit for each hash of a schedule that may have an occurrence that is queued */
    struct rezone *rezone; /* the walk after a change of time zone rules; NULL: there is none */
    uint64_t steps;        /* firings that were steps of schedules, not timers of users */
};

/* How often something took how long: up to 125 us, twice that, and so on; the last bucket has the rest. */
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
    uint64_t failed, dead; /* that are not in the log since the last summary */
    fl_timer_id summary;   /* 0: none is due */
};

struct worker {
    struct node *node;
    void *owner; /* the ports' */
    unsigned index;
    fl_loop *loop;
    struct pull *pull;
    struct leasing *leasings;           /* that watch at all servers */
    char secret[FL_STORE_NAME_MAX + 1]; /* that all servers of the store have, as this worker has learnt it */
    struct link **links;                /* to other servers, by their index */
    struct line *lines;                 /* of calls that wait, by shard */
    uint64_t calls;                     /* how many have been submitted here */
    uint64_t under_way;                 /* calls and tours that have not come home */
    unsigned link_count;
    unsigned lease_turn;                  /* which server is asked first by the next that wants leases */
    uint32_t turn;                        /* which of the shards takes the next timer without a name */
    struct latencies lateness, durations; /* of first attempts; of webhooks */
    struct worker_counts counts;
    struct attempts_log attempts_log;
    struct worker_stats *stats;
    struct out history; /* a row that is being written */
    struct hosts *hosts;
    struct {
        int64_t next_us;   /* when the next pause ends by the clock; INT64_MAX: none does */
        int64_t looked_us; /* those before have been told; 0: none was ever there */
        fl_timer_id timer;
    } pause;
    bool leases_stopped;
    bool wants_events;                             /* of other servers */
    void (*shards_stopped)(struct worker *worker); /* who waits for that; NULL: nobody */
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
    struct cluster *cluster; /* the first worker's. NULL: this server is alone */
    _Atomic(struct peer *) peers;
    atomic_uint peer_count;
    atomic_bool looking;
    fl_loop_task look_task;
    atomic_bool settings_old; /* a shard was lost: when one is ours again, the settings of namespaces are read again */
    atomic_bool settings_asked;
    struct loading *loading;
    fl_loop_task settings_task;
    pthread_mutex_t secret_lock;
    char secret[FL_STORE_NAME_MAX + 1]; /* that all servers of the store have; empty: not known yet */
    char own_secret[65];                /* that only this process has, until the store has taken it */
    struct node_link *self;             /* the first worker's: to our own address, until it has been reached */
    fl_timer_id self_timer;
    uint64_t self_told_ns;   /* when it was last said why it has not been; 0: never */
    atomic_uint ready, here; /* shards: that are ready, that are here */
    atomic_uint lapsed;      /* of them, those whose claim may have run out */
    atomic_bool joined;      /* the other servers know of us, or we are alone */
    atomic_bool settings_known;
    atomic_bool has_pauses;      /* a namespace or a host is paused, or was */
    atomic_bool has_host_pauses; /* a host is, or was */
    atomic_bool stopping;        /* it was told to stop */
    atomic_bool closing;         /* and has no connections any more, neither of clients nor of other servers */
    struct hindrance {
        pthread_mutex_t lock;
        char text[256]; /* why it is not ready, if it does not just load; "": nothing is known */
    } hindrance;
    _Atomic(struct zones *) zones; /* NULL: only UTC is known */
    struct zone_set *zone_sets;    /* all there have been */
};

/* A life of a node, each function with the worker on its thread. The first three happen before anything runs.
 *
 *     node_new(), then on every worker: worker_new(); shards_start() or, with other servers, servers_start();
 *     on the first: servers_join() if there are others; settings_load().
 *     To stop: `stopping`; servers_stop() on the first; pull_stop(), leases_stop(); `closing`; servers_free() on the first;
 *     servers_stop_links(), shards_stop(), worker_free() on every worker; node_free(). */
int node_new(struct node *node, const struct node_config *config); /* 0, FL_NO_MEMORY, FL_SYSTEM */
void node_free(struct node *node);
int worker_new(struct worker *worker, fl_loop *loop);
void worker_free(struct worker *worker);

/* What is wrong with a node whose workers all run on this thread, or are stopped; NULL: nothing. */
const char *node_check(const struct node *node);

static inline int64_t node_now(const struct node *node)
{
    return node->clock->now_us(node->clock);
}

void node_hindered(struct node *node, const char *why); /* "": not any more */
/* Whether the machine's clock and the database's differ too much to be ready; then `why` says it in words. Any thread. */
bool node_clock_is_off(const struct node *node, char *why, size_t size);
/* Whether this has not been told in the log in the last minute. Any thread. */
bool trouble_is_news(const char *message, uint64_t now_ns);

/* --- calls.c, shard_calls.c ----------------------------------------------------------------------------------------- */

enum call_kind { CALL_OPS, CALL_PAGE, CALL_HISTORY, CALL_FORGET, CALL_LEASE, CALL_WATCH, CALL_ACKS };

/* A timer that was leased, and what its lease is known by. */
struct leased {
    uint32_t server, slot; /* the lower half of the server's incarnation */
    uint16_t worker;
    uint64_t serial;
    uint32_t shard;
    const fl_durable *timer;
};

/* CALL_LEASE: asks for timers of a namespace at its home; CALL_WATCH: whether there are any. Comes back with what is there, or
 * when `wait_us` has passed. */
struct asker {
    struct space *space;
    uint32_t max;
    uint64_t wait_us, lease_us;
    /* Writes one that was leased; `count` have been written before. On any worker, while its bytes are valid. */
    void (*write)(struct out *out, const struct leased *leased, size_t count);
    /* The answer. */
    struct out out;
    size_t count;
    bool found;
    /* At the namespace's home: */
    struct queue *queue; /* in which it waits; NULL: it does not */
    fl_timer_id timer;
    struct shard_call *next;
};

/* A call to a shard, or to another worker of any server. */
struct shard_call {
    struct errand errand; /* `home` is the caller's */
    enum call_kind kind;
    struct shard *shard; /* of CALL_OPS, CALL_PAGE, CALL_HISTORY and CALL_FORGET */
    union {
        fl_batch batch;             /* CALL_OPS */
        fl_listing listing;         /* CALL_PAGE */
        fl_history_listing past;    /* CALL_HISTORY */
        fl_history_erasure erasure; /* CALL_FORGET */
        struct asker asker;         /* CALL_LEASE, CALL_WATCH */
        struct {
            char *const *namespaces; /* only timers of these are settled, NULL ends them; NULL: all */
            struct ack *first;
            size_t count;
            uint16_t worker;
        } acks; /* CALL_ACKS: of one worker's leases */
    };
    struct space **places; /* that operations have (place_take()), one each or NULL; NULL: none has any */
    /* Of those: called while the answers are valid, on the shard's worker or, if it is another server's, at
     * home. */
    void (*render)(struct shard_call *call);
    void (*done)(struct shard_call *call); /* at home */
    bool brief;                            /* of the answers of operations only results and IDs are looked at */
    bool local;                            /* of no other server: `result` is LINK_MOVED if the shard is not here */
    int result;                            /* 0: it has got there and back */
    /* The rest belongs to calls.c and shard_calls.c. */
    void (*over)(struct shard_call *call);
    void (*cancelled)(struct shard_call *call);
    const struct peer *peer; /* NULL: this server */
    struct node_link *link;  /* over which it was sent */
    struct link_call remote;
    struct errand cancel;
    bool out, cancelling;
    atomic_bool unwanted;    /* it is being cancelled */
    uint64_t since_ns;       /* it waits, but for the time it was on its way */
    uint64_t routed_ns;      /* when it was last tried */
    uint64_t number;         /* of those that its worker has submitted */
    struct shard_call *next; /* of those that wait, or that a leaving shard keeps */
};

/* Operations on a shard or a page of it, wherever it is. If the shard is nobody's just now, or is being moved, the call is
 * tried again for a while; calls that the same worker submits after it wait behind it. */
void shard_call_submit(struct shard_call *call);
void shard_call_fail(struct shard_call *call, int result); /* renders it: before it has been submitted */

/* Whether a text is an ID of this store, as it is given out: then it cannot be a name. */
bool is_id(const struct node *node, fl_bytes text, uint32_t *ret_shard, fl_key *ret_id);
struct shard *shard_of_name(struct node *node, fl_bytes ns, fl_bytes name);
/* The shard of an operation by name. The hash of the name stays in the operation: engine and store need it, too. */
struct shard *shard_of_op(struct node *node, fl_op *op);
struct shard *shard_of_worker(struct worker *worker); /* for timers without a name */

/* --- shards.c ----------------------------------------------------------------------------------------------------- */

int shards_start(struct worker *worker); /* all that are its own */
void shards_stop(struct worker *worker, void (*done)(struct worker *worker));

/* --- servers.c ---------------------------------------------------------------------------------------------------- */

int servers_start(struct worker *worker);
int servers_join(struct node *node); /* on the first worker, when all have started */
/* On the first worker: calls `done` when the others have the shards, or could have had them for so long. */
void servers_stop(struct node *node, uint64_t patience_us, void (*done)(void *node));
void servers_stop_links(struct worker *worker);
struct node_link *link_to(struct worker *worker, const struct peer *peer); /* NULL: there is none now */
struct peer *peer_of_address(struct node *node, const char *address);      /* on the first worker; NULL: no memory */
/* Asks them how much there is in each namespace, or in one; then calls `done`. */
void servers_gather(struct worker *worker, fl_bytes ns, void (*done)(void *arg), void *arg);
void servers_want_events(struct worker *worker, bool want);

/* --- serving.c ---------------------------------------------------------------------------------------------------- */

/* What one server asks of another. */
enum link_kind {
    LINK_OPS = 16, /* operations on a shard */
    LINK_PAGE,     /* a page of a shard */
    LINK_TAKE,     /* leases of a namespace, as many as are there */
    LINK_WATCH,    /* answered when there is something to lease, or after a while */
    LINK_ACK,      /* acknowledgements of leases of the server that is asked */
    LINK_EVENTS,   /* events, in pieces, without end */
    LINK_SPACES,   /* which namespaces there are, with how much */
    LINK_SETTINGS, /* those of a namespace have changed */
    LINK_LOOK,     /* shards have moved */
    LINK_STATS,    /* what happened in the last hour, in a namespace or in all */
    LINK_HISTORY,  /* a page of the history of a shard */
    LINK_FORGET,   /* erases history */
    LINK_HOSTS,    /* how calls of hosts went */
};
enum {
    LINK_MOVED = 1, /* the result of LINK_OPS and LINK_PAGE: the shard is not here */
    LINK_BAD = 2,   /* never sent: the answer cannot be read */
};

/* The port's: another server calls. */
void node_serve(struct worker *worker, struct link_request *request);

/* Answers, and the request is gone. */
static inline void link_answer(struct link_request *request, int result, fl_bytes body)
{
    request->ports->answer(request, result, body);
}

/* `gone` is called when nobody waits for the answer any more; it must still be given. The request has no effect that the
 * caller must know of. NULL: it does not matter any more. */
static inline void link_watch(struct link_request *request, void (*gone)(struct link_request *request), void *arg)
{
    request->gone = gone;
    request->arg = arg;
    request->ports->watch(request, gone != NULL);
}

/* --- deliver.c ---------------------------------------------------------------------------------------------------- */

/* A timer that is due and waits, for its turn at a host or for a lease: the engine may want it back. */
struct waiter {
    bool (*withdraw)(struct waiter *waiter); /* on the shard's worker. False: its attempt has begun */
};

enum { SECRET_MOST = 64 }; /* bytes */

struct attempt {
    struct waiter waiter;
    struct shard *shard;
    fl_bytes secrets[2]; /* of its namespace */
    unsigned secret_count;
    fl_firing firing;
    unsigned char secret_room[2][SECRET_MOST];
    char id[FL_ID_TEXT + 20]; /* of this firing, the same for all its attempts */
    bool last;                /* the retry policy allows no further attempt */
    size_t keep, keep_failed; /* bytes of a response that history wants, with status 2xx and with another */
    bool begun;
    int64_t began_us;         /* of one that has begun */
    struct called_host *host; /* where it is counted; NULL: nowhere */
    /* The result, set by the port before attempt_done(). */
    enum fl_settle result;
    int64_t at_us; /* of FL_AGAIN and FL_LATER; of FL_FAILED: 0, or not before */
    int status;    /* of HTTP; 0: there was none */
    uint64_t duration_ns;
    fl_bytes reason;
    fl_bytes response;                          /* the beginning of it */
    _Alignas(max_align_t) unsigned char room[]; /* the port's */
};
bool attempt_begin(struct attempt *attempt); /* whether it may begin now; if not, it ends with FL_LATER */
void attempt_done(struct attempt *attempt);

/* What a timer keeps. Headers: name, NUL, value, NUL, and so on. A payload that is not JSON has a NUL in front, with which
 * JSON cannot begin. */
static inline bool timer_is_binary(const fl_durable *timer)
{
    return timer->payload.size > 0 && *(const char *)timer->payload.data == '\0';
}

static inline fl_bytes timer_payload(const fl_durable *timer)
{
    bool binary = timer_is_binary(timer);
    return (fl_bytes){(const char *)timer->payload.data + binary, timer->payload.size - binary};
}

/* --- pull.c, leasing.c, acks.c ------------------------------------------------------------------------------------ */

void pull_stop(struct worker *worker);
int64_t pull_clock_changed(struct worker *worker); /* ends leases by the test clock; returns when the next does */

enum { LEASE_TEXT = 36 };
void lease_format(const struct leased *leased, char out[LEASE_TEXT + 1]);

/* A request for leases. The caller sets the first members; the rest is leasing.c's. */
struct leasing {
    struct shard_call take; /* has the answer: `asker.out` and `asker.count`, which `write` has made */
    struct worker *worker;
    struct space *space;
    uint32_t max;
    uint64_t lease_us;
    void (*write)(struct out *out, const struct leased *leased, size_t count);
    void (*done)(struct leasing *leasing);
    void (*release)(struct leasing *leasing); /* after `done`: it is the caller's again */
    int result;                               /* if there is nothing: 0, or what is wrong */
    uint64_t until_ns;
    bool alone; /* there is no other server to ask */
    bool gone, answered;
    size_t round; /* how many servers have been asked in this round */
    size_t first;
    struct shard_call watch_here;
    struct watch {
        struct shard_call call;
        struct leasing *leasing;
    } * watches; /* at the other servers */
    size_t watch_count;
    struct leasing *next, **link; /* of those that watch; `link` is NULL for others */
};
void leasing_begin(struct leasing *leasing, uint64_t wait_us);
/* Nothing more is taken for this request. What was taken just now comes back, and then `done` is called. */
void leasing_stop(struct leasing *leasing);
void leases_ask_again(struct worker *worker); /* there is another server to ask */
void leases_stop(struct worker *worker);      /* nobody waits any longer */

enum ack_result {
    ACK_DONE,
    ACK_RETRY,
    ACK_AGAIN,
    ACK_DEAD,
    ACK_RELEASE, /* the timer is taken back at once, and this was no attempt */
    ACK_EXTEND,  /* the lease ends `after_us` from now; nothing is settled */
    ACK_RESULTS
};

struct ack {
    uint32_t server, slot;
    uint16_t worker; /* UINT16_MAX: it is of no lease */
    bool known;      /* the answer */
    enum ack_result result;
    uint64_t serial;
    uint64_t after_us;
    fl_bytes lease;   /* as it came */
    struct ack *next; /* of the same worker */
};
void ack_parse(struct ack *ack,
               fl_bytes text); /* a lease that was never given out is unknown, like one that has ended */

/* Acknowledgements of leases of any server. `done` is called when each has its `known`. */
struct acks {
    char *const *namespaces; /* only timers of these are settled, NULL ends them; NULL: all */
    size_t count;
    struct ack *list;
    void (*done)(struct acks *acks);
    /* The rest is acks.c's. */
    struct worker *home;
    struct part **parts; /* one for each worker */
    size_t part_count, part_capacity;
    size_t left; /* parts that are not back */
};
void acks_settle(struct acks *acks, struct worker *home);

/* --- spaces.c ----------------------------------------------------------------------------------------------------- */

enum { PAUSE_REASON_MOST = 255, PAUSES_KEPT = 8 };

/* The pauses of a namespace or a host. These have no padding, so that they can be compared. */
struct pauses {
    struct pause {
        int64_t since_us; /* 0: there is none */
        int64_t until_us; /* then it is over; 0: when somebody says so */
        uint64_t reason_size;
        char reason[PAUSE_REASON_MOST + 1];
    } now;
    uint64_t past_count;
    struct past_pause {
        int64_t since_us, until_us;
        uint64_t skip;   /* what fell due meanwhile does not fire */
    } past[PAUSES_KEPT]; /* the oldest first */
};

static inline bool pauses_are_on(const struct pauses *pauses, int64_t now_us)
{
    return pauses->now.since_us > 0 && (pauses->now.until_us == 0 || now_us < pauses->now.until_us);
}

enum history_only { HISTORY_ONLY_NONE, HISTORY_ONLY_FAILURES, HISTORY_ONLY_ALL };

struct history_rule {
    uint64_t keep_us;
    uint32_t body; /* bytes of a response */
    uint32_t only; /* enum history_only */
};

struct settings {
    fl_bytes secrets[2]; /* decoded */
    unsigned secret_count;
    fl_retry retry;         /* zero: the server's */
    uint64_t skip_older_us; /* UINT64_MAX: the server's */
    uint32_t max_rate;      /* deliveries a second; 0: no limit */
    uint64_t spread_us;
    struct history_rule history;
    struct pauses pauses; /* not changed with the others: see settings_pause() */
};
extern const struct settings no_settings;

struct space {
    char *name;
    size_t size;
    uint64_t hash;
    _Atomic(const struct settings *) settings; /* never NULL; good until the callback returns that has loaded it */
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
    struct stats_ring *rings[]; /* by worker; each is that worker's. NULL: nothing has happened there */
};

struct space *space_of(struct node *node, fl_bytes ns);     /* makes it; NULL: no memory */
struct space *space_if_any(struct node *node, fl_bytes ns); /* NULL: there is none */
/* A namespace without timers and without settings does not exist, even if something is still known of it. */
bool space_exists(struct space *space);
atomic_uint *spaces_series(struct node *node); /* how many namespaces have series of their own in /metrics */

static inline fl_bytes space_name(const struct space *space)
{
    return (fl_bytes){space->name, space->size};
}

static inline int64_t space_pending(struct space *space)
{
    int64_t pending = atomic_load_explicit(&space->pending, memory_order_relaxed) +
                      atomic_load_explicit(&space->elsewhere, memory_order_relaxed);
    return pending > 0 ? pending : 0;
}

/* Takes a place among the timers that the namespace may have: `*ret_place` stays NULL if there is no limit. It goes with the
 * operation (struct shard_call), or back with place_give(). False: the namespace is full. */
bool place_take(const struct node *node, struct space *space, struct space **ret_place);
void place_give(const struct node *node, struct space **place);

/* Visits all namespaces, some at a time, so that a worker has time for other things in between. Namespaces that come or go
 * meanwhile may be visited or not. `visit` runs under the lock. The walk is the caller's, and its own again in `done`. */
struct space_walk {
    struct worker *worker;
    void (*visit)(struct space_walk *walk, struct space *space);
    void (*done)(struct space_walk *walk);
    size_t bucket;
    fl_loop_task task;
};
void space_walk_begin(struct space_walk *walk, struct worker *worker);

/* --- history.c ---------------------------------------------------------------------------------------------------- */

enum history_result {
    HISTORY_DONE,
    HISTORY_FAILED,
    HISTORY_DEAD,
    HISTORY_AGAIN,
    HISTORY_EXPIRED,
    HISTORY_SKIPPED,
    HISTORY_CANCELLED,
    HISTORY_RESULTS
};

/* What a row of history tells, besides what the store knows of it: `body` of fl_history_row. */
struct history_entry {
    int64_t due_us, occurrence_us; /* 0: none */
    int64_t began_us, ended_us;    /* the store keeps the former; rows are ordered by the latter */
    uint64_t late_us, took_us;
    uint32_t attempt; /* 0: it was none */
    uint32_t status;  /* of HTTP; 0: there was none */
    uint64_t count;   /* of occurrences that were skipped; else 0 */
    fl_bytes target, reason, response;
};
bool history_read(const fl_history_row *row, struct history_entry *ret); /* false: it cannot be read */

/* --- stats.c ------------------------------------------------------------------------------------------------------ */

enum { STATS_STEPS = 360, STATS_STEP_US = 10000000, STATS_BUCKETS = 11 };
enum stats_kind { STATS_CREATED, STATS_FIRED, STATS_FAILED, STATS_DEAD, STATS_CANCELLED, STATS_SKIPPED, STATS_KINDS };

struct stats_step {
    int64_t number; /* which ten seconds since 1970; 0: none */
    uint32_t counts[STATS_KINDS];
    uint32_t lateness[STATS_BUCKETS]; /* of first attempts */
};

struct stats_ring {
    struct stats_step total;              /* of all time; its number is 0 */
    struct stats_step steps[STATS_STEPS]; /* at its number modulo STATS_STEPS */
};

struct worker_stats {
    unsigned rings; /* of namespaces */
    struct stats_ring all;
};

/* All members are int64_t. */
struct stats_gauges {
    int64_t pending, in_flight, leased, waiting_for_lease, waiting_for_host;
    int64_t oldest_overdue_us;
};

struct stats {
    struct stats_ring ring;
    struct stats_gauges gauges; /* of a namespace only `pending` and `waiting_for_lease` */
    int64_t last;               /* the number of the step that goes on now */
    unsigned servers;           /* that have answered, this one too */
};

/* Sums over all workers and servers, of one namespace or (size 0) of all; without `steps` only gauges and totals. `done` is called
 * on this worker, perhaps at once. Returns 0 or FL_NO_MEMORY. */
int stats_ask(struct worker *worker, fl_bytes ns, bool steps, void (*done)(void *arg, const struct stats *sum),
              void *arg);
uint32_t stats_bucket_ms(unsigned bucket); /* the upper bound of a bucket of lateness; the last has none */

/* --- hosts.c ------------------------------------------------------------------------------------------------------ */

enum { HOST_LATENCIES = 104, HOST_PAGE_MOST = 1000 };

/* How calls of one host went. All members are uint64_t. */
struct host_counts {
    uint64_t calls, failures;
    uint64_t responses[6]; /* index = HTTP status / 100; [0] = no response */
    uint64_t in_flight, waiting;
    uint64_t latencies[HOST_LATENCIES]; /* of the last minutes, see host_latency_us() */
};

struct host_sum {
    struct host_counts counts;
    size_t size;
    char name[HOST_TEXT];
};

/* The first hosts in the order of their names, summed over workers and servers. */
struct host_page {
    fl_bytes prefix, after; /* only those that begin so, and come behind it; size 0: all */
    size_t limit;           /* from 1 to HOST_PAGE_MOST */
    void (*done)(struct host_page *page);
    /* The answer, until host_page_free(): */
    struct host_sum **hosts;
    size_t count;
    bool more;   /* there are more behind the last */
    bool failed; /* there was no memory for all of them */
    /* hosts.c's */
    struct tour tour;
    struct worker *worker;
    struct link_request *request; /* of another server; NULL: the answer is for us */
    struct out question;
};
void hosts_ask(struct worker *worker, struct host_page *page); /* may call `done` at once */
void host_page_free(struct host_page *page);                   /* what the answer has; the page is the caller's */
/* The least latency that `permille` of 1000 calls did not exceed, rounded up by at most a quarter; 0: there were none. */
uint64_t host_latency_us(const struct host_counts *counts, unsigned permille);
/* Calls `visit` for each host that is paused, under the lock of all namespaces. */
void hosts_walk_paused(struct node *node, void (*visit)(void *arg, fl_bytes host, const struct pauses *pauses),
                       void *arg);
uint64_t hosts_known(const struct worker *worker); /* how many this worker counts */

/* --- schedules.c -------------------------------------------------------------------------------------------------- */

/* The namespace in which the schedules of a namespace are kept, which no user can name. */
enum { SCHEDULE_NS_ROOM = FL_STORE_NAME_MAX + 1 };
fl_bytes schedule_ns(fl_bytes ns, char room[SCHEDULE_NS_ROOM]);

static inline bool is_schedule_namespace(fl_bytes ns)
{
    return ns.size > 0 && (*(const char *)ns.data == '\2' || *(const char *)ns.data == '\3');
}

/* Takes the zones over: they are used from now on, and freed with the node. One thread. Returns 0 or FL_NO_MEMORY. */
int node_set_zones(struct node *node, struct zones *zones);
void node_zones_changed(struct worker *worker); /* node_set_zones() was called; on the worker's thread */
static inline const struct zones *node_zones(const struct node *node)
{
    return atomic_load_explicit(&node->zones, memory_order_acquire);
}

/* What the server keeps for itself, as timers that no user can name. */
#define SETTINGS_NAMESPACE ((fl_bytes){"\1namespaces", 11})
static inline bool is_own_namespace(fl_bytes ns)
{
    return ns.size > 0 && *(const unsigned char *)ns.data < ' ';
}

/* A host has a row among the settings, as if it were a namespace of this name, which no user can give. */
enum { HOST_MARK = '\4', HOST_MOST = FL_STORE_NAME_MAX - 1, HOST_ROOM = 1 + HOST_TEXT };
static inline bool is_host_space(fl_bytes ns)
{
    return ns.size > 0 && *(const char *)ns.data == HOST_MARK;
}
/* The name of that row. The host has at most HOST_MOST bytes, else it has no row. */
fl_bytes host_space_name(fl_bytes host, char room[HOST_ROOM]);

/* --- settings.c --------------------------------------------------------------------------------------------------- */

/* A bit for each setting. */
enum {
    SETTING_SECRETS = 1,
    SETTING_RETRY = 2,
    SETTING_SKIP_OLDER = 4,
    SETTING_MAX_RATE = 8,
    SETTING_SPREAD = 16,
    SETTING_HISTORY = 32,
    SETTING_ALL = 63,
};

void settings_free(struct settings *settings);

/* Changes the settings of a namespace: to `settings`, which are the change's from then on, also if it fails, with those of
 * `keep` as they are stored; NULL removes them. `done` is called on this worker with 0 or what went wrong. */
void settings_change(struct worker *worker, fl_bytes ns, struct settings *settings, unsigned keep,
                     void (*done)(void *arg, int result), void *arg);

/* A pause that is to begin or to end. */
struct pause_request {
    enum { PAUSE_NONE, PAUSE_BEGIN, PAUSE_END } kind;
    bool skip;        /* PAUSE_END: what fell due meanwhile does not fire */
    int64_t until_us; /* PAUSE_BEGIN; 0: until it is told to end */
    size_t reason_size;
    char reason[PAUSE_REASON_MOST];
};
void settings_pause(struct worker *worker, fl_bytes ns, const struct pause_request *request,
                    void (*done)(void *arg, int result), void *arg);
void settings_load(struct worker *worker,
                   void (*done)(struct worker *worker)); /* reads all settings; `done` may be NULL */

/* --- pause.c ------------------------------------------------------------------------------------------------------ */

int64_t pause_clock_changed(struct worker *worker); /* ends pauses by the test clock; returns when the next does */

/* --- pacing.c ----------------------------------------------------------------------------------------------------- */

uint32_t pace_share(uint32_t limit, unsigned workers); /* of one worker, in a limit for all */

/* --- budget.c: how the memory of the process (max-memory) is divided, in bytes -------------------------------------- */

uint64_t budget_default(void); /* a quarter of the memory that the process may use, at most 1 GiB */
uint64_t budget_of_shard(uint64_t max_memory, uint32_t shards);   /* for its timers in memory; at least 1 MiB */
uint64_t budget_of_worker(uint64_t max_memory, unsigned workers); /* for its large requests; at least 8 MiB */

#endif
