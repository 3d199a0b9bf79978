/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_API_API_H
#define FOLIOT_API_API_H

/* Requests and responses: what users send over HTTP, what they get, and events. Everything that is JSON is here.
 *
 * This folder may use base, loop, store, engine, text, http, webhook (to check targets), peer (to accept links) and node. The
 * server makes it and connects it with the node: `struct node.owner` is the struct api, `struct worker.owner` the struct api_worker.
 *
 *   api.c            which request is for which function, and whether it may: routes, web pages, tokens
 *   call.c           a request: its parameters, its rights, its answer
 *   browser.c        whether a web page of another site has sent a request
 *   tokens.c         bearer tokens; rate.c: how many requests per second an address may send
 *   timers.c         one timer: create, get, change, cancel; timer.c: reads a timer, retry.c: its policy;
 *                    timer_write.c: writes a timer
 *   part.c           whether a client gets a timer with its payload, without it, or the payload alone
 *   batch.c          many timers, one per line; batch_chunk.c: some lines of a batch; batch_schedules.c: those about
 *                    schedules
 *   schedules.c      schedules; schedule.c: a schedule as JSON; schedule_runs.c: previews, trigger, backfill
 *   lists.c          pages of timers and of dead letters; cancelling by filter; redriving dead letters
 *   filter.c         search: the parameters that those share
 *   cursor.c         where a page ended, sealed with the list that it belongs to
 *   dead_many.c      dead letters by filter: redrive, delete, count by reason or host
 *   history.c, history_delete.c   what became of attempts
 *   lease.c, ack.c   leases and acknowledgements
 *   spaces.c, settings.c, pause.c, space_delete.c, space_metrics.c   namespaces
 *   hosts.c          how calls of each host went
 *   cluster.c        the servers of the store
 *   events.c         events: event_text.c: what they say; subscribers.c: clients that listen; event_ring.c: the latest ones, for
 *                    clients that reconnect; samples.c: how many there were
 *   clock.c          the test clock
 *   metrics.c        for Prometheus; health
 *   stats.c          the last hour; forecast.c: what comes next
 *   openapi.c        the description of all this
 *   ui.c, session.c  the files of the dashboard, and its logins
 *
 * Threads: what belongs to a request belongs to its worker. */

#include "api/tokens.h"
#include "http/http.h"
#include "node/node.h"
#include "peer/peer.h"
#include "webhook/webhook.h"

/* Of the configuration, what requests depend on. */
struct api_config {
    uint64_t max_body, max_payload;
    uint64_t event_buffer;     /* bytes of events that are kept */
    uint32_t max_request_rate; /* per second and client address; 0: no limit */
    bool allow_private_targets, echo;
    bool ui;                  /* the dashboard */
    bool tls;                 /* clients use TLS */
    const char *allowed_host; /* names that the Host header may have, "NAME[,NAME...]"; NULL: only loopback ones */
};

struct api {
    struct node *node;
    struct api_config config;
    _Atomic(const struct tokens *) tokens;
    _Atomic(const char *) *own_targets; /* our /echo, which may be called although it is not public: see webhook_urls */
    struct test_clock *test_clock;      /* NULL: time passes by itself */
    struct rates *rates;                /* NULL: there is no limit */
    struct event_ring *ring;            /* the latest events */
    atomic_uint schedule_changes;       /* that went through this server */
    atomic_bool events_wanted;          /* a client or another server has listened */
    atomic_bool events_of_servers;      /* the other servers are listened to */
    fl_loop_task listen_task;
    int64_t started_us;
};

struct api_counts {
    uint64_t events, events_dropped;
    uint64_t problems; /* responses with status 400 or more */
};

/* The occurrences of a forecast, kept for a while: forecast.c. */
enum { FORECAST_BARS = 60, FORECASTS_KEPT = 16 };
struct kept_forecast {
    int64_t made_us, from_us; /* made_us 0: none */
    int64_t step_us;
    unsigned changes; /* schedule_changes */
    bool incomplete;
    size_t ns_size;
    char ns[256];
    uint64_t occurrences[FORECAST_BARS];
};

struct api_worker {
    struct worker *worker;
    http_server *http;       /* NULL: it has stopped */
    webhooks *hooks;         /* the same */
    peer_sessions *sessions; /* of other servers; NULL: this one is alone */
    struct subscriber *subscribers;
    struct listener *listeners;
    atomic_uint hearers; /* subscribers and listeners */
    struct sampler *samplers;
    struct batch *batches; /* that are open */
    struct api_counts counts;
    struct kept_forecast forecasts[FORECASTS_KEPT];
    unsigned next_forecast; /* the one to be replaced */
};

static inline struct api *api_of(const struct worker *worker)
{
    return worker->node->owner;
}

static inline struct api_worker *api_here(const struct worker *worker)
{
    return worker->owner;
}

extern const struct http_handlers api_handlers; /* their argument is the struct worker */

/* --- What the node's ports lead to */
void events_publish(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason);
void events_relay(struct worker *worker, fl_bytes piece);
void events_listen(struct worker *worker, struct link_request *request);
int settings_read_stored(fl_bytes stored, fl_bytes ns, struct settings *ret);
void settings_write_stored(struct out *out, const struct settings *settings);

/* --- Life */
int rates_new(struct api *api, uint64_t secret); /* 0, FL_NO_MEMORY */
void rates_free(struct api *api);
int test_clock_new(struct api *api, fl_wall_clock **ret); /* 0, FL_NO_MEMORY */
void test_clock_free(struct api *api);
int events_new(struct api *api, uint64_t random); /* 0, FL_NO_MEMORY */
void events_free(struct api *api);
void events_stop(struct worker *worker);
void batches_stop(struct worker *worker); /* nothing more is read of those that are open */
/* Tokens were read again: some may not be let in any more. */
void events_check(struct worker *worker);
void batches_check(struct worker *worker);
void leases_check(struct worker *worker);

#endif
