/* SPDX-License-Identifier: MIT */
/* The life of the server: the main thread makes everything, then waits for signals. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <foliot/version.h>

#include "base/assert.h"
#include "server/notify.h"
#include "server/internal.h"
#include "server/settings.h"
#include "text/log.h"

/* --- The clock ---------------------------------------------------------------------------------------------------- */

#define SECOND_NS 1000000000ull

static void look_at_clock(fl_loop *loop, void *arg)
{
    static bool was_off; /* the first worker's */
    char why[200];
    bool off = node_clock_is_off(arg, why, sizeof why);
    if (off && trouble_is_news("the clocks differ", fl_loop_now_ns(loop)))
        log_error(why, NULL);
    else if (was_off && !off)
        log_info("the clocks of this machine and of the database agree again", NULL);
    was_off = off;
}

static int watch_clock(const struct worker *worker)
{
    if (worker->index > 0 || !fl_store_is_shared(worker->node->store))
        return 0;
    return fl_loop_interval(worker->loop, SECOND_NS, FL_TIMER_UNREF, look_at_clock, worker->node, NULL);
}

/* --- Starting ----------------------------------------------------------------------------------------------------- */

static int make_http(struct worker *worker)
{
    struct server *server = server_of(worker);
    const struct server_config *c = &server->config;
    struct http_config config = {
        .loop = worker->loop,
        .handlers = &api_handlers,
        .arg = worker,
        .tls = server->tls,
        .max_connections = c->max_connections,
        .connections = &server->connections,
        .max_head = c->max_head,
        .max_url = c->max_url,
        .max_body = c->max_body,
        .max_memory = budget_of_worker(c->max_memory, server->worker_count),
        .head_timeout_ns = c->head_timeout_us * 1000,
        .body_timeout_ns = c->body_timeout_us * 1000,
        .idle_timeout_ns = c->idle_timeout_us * 1000,
    };
    return http_server_new(&config, &api_here(worker)->http);
}

static int make_webhooks(struct worker *worker)
{
    struct server *server = server_of(worker);
    const struct server_config *c = &server->config;
    struct webhooks_config config = {
        .loop = worker->loop,
        .clock = server->clock,
        .allow_private = c->allow_private_targets,
        .own = server->api.own_targets,
        .max_under_way = pace_share(c->webhook_concurrency, server->worker_count),
        .max_per_host = pace_share(c->webhook_per_host, server->worker_count),
        .timeout_us = c->webhook_timeout_us,
        .user_agent = "Foliot/" FL_VERSION,
    };
    return webhooks_new(&config, &api_here(worker)->hooks);
}

static void set_up_worker(struct worker *worker)
{
    int r = worker_new(worker, fl_runtime_loop());
    if (r == 0)
        r = make_http(worker);
    if (r == 0)
        r = make_webhooks(worker);
    if (r == 0)
        r = watch_clock(worker);
    step_end(r);
}

static int accept_links(struct worker *worker)
{
    struct server_worker *here = server_here(worker);
    here->host = (struct peer_host){.secret = bytes_of(worker->secret), .handle = serve_peer, .arg = worker};
    return peer_sessions_new(worker->loop, &here->host, &here->api.sessions);
}

/* A server that is not alone is told which shards are its own. */
static void start_shards(struct worker *worker)
{
    bool alone = !worker->node->config.advertise;
    int r = alone ? shards_start(worker) : servers_start(worker);
    step_end(r == 0 && !alone ? accept_links(worker) : r);
}

static void join_others(struct worker *worker)
{
    step_end(worker->index == 0 ? servers_join(worker->node) : 0);
}

static void load_spaces(struct worker *worker)
{
    bool alone = !worker->node->cluster;
    if (worker->index == 0)
        settings_load(worker, alone ? step_done : NULL);
    if (worker->index > 0 || !alone)
        step_end(0);
}

static int open_store(struct server *server)
{
    char message[512];
    fl_store_config config = {.shards = server->config.shards, .clock = server->api.test_clock ? server->clock : NULL};
    int r = fl_store_open(server->config.store, &config, &server->store, message, sizeof message);
    if (r < 0) {
        log_error("cannot open the store", "why", message, NULL);
        atomic_store(&server->told, true);
        return r;
    }
    return 0;
}

static int make_owner(struct server *server)
{
    char host[200] = "localhost", owner[255];
    if (server->config.owner)
        return 0;
    if (server->config.advertise) {
        server->config.owner = strdup(server->config.advertise);
        return server->config.owner ? 0 : FL_NO_MEMORY;
    }
    gethostname(host, sizeof host - 1);
    snprintf(owner, sizeof owner, "%s:%d", host, (int)getpid());
    server->config.owner = strdup(owner);
    return server->config.owner ? 0 : FL_NO_MEMORY;
}

static int make_runtime(struct server *server)
{
    int r = fl_runtime_new(&(fl_runtime_config){.workers = server->config.workers}, &server->runtime);
    if (r < 0)
        return r;
    struct fl_runtime_stats stats;
    fl_runtime_stats(server->runtime, &stats);
    fl__assert(stats.workers > 0);
    server->worker_count = (unsigned)stats.workers;
    server->workers = calloc(server->worker_count, sizeof *server->workers);
    return server->workers ? 0 : FL_NO_MEMORY;
}

static uint64_t random_incarnation(const struct server *server)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint64_t)server->api.started_us;
    return random >> 1 | 1; /* not 0, below 2^63 */
}

/* --- Time zones ----------------------------------------------------------------------------------------------------- */

static void complain_of_zones(const struct zones *zones)
{
    struct zones_entry entry;
    for (size_t i = 0; zones_at(zones, i, &entry); i++)
        if (entry.problem && entry.zone)
            log_warning("a time zone keeps its last known rules", "zone", entry.name, "why", entry.problem, NULL);
}

/* Reads the system's tzdata. Without it, UTC is the only zone. Returns whether the rules are other than before. */
static bool load_zones(struct server *server)
{
    char why[ZONE_ERROR_TEXT];
    struct zones *zones;
    const struct zones *old = node_zones(&server->node);
    int r = zones_load(NULL, old, &zones, why);
    if (r < 0) {
        log_warning("cannot read time zones; only UTC, and zones that are known already, can be used", "why", why,
                    NULL);
        return false;
    }
    complain_of_zones(zones);
    if (old && zones_hash(old) == zones_hash(zones)) {
        zones_free(zones);
        return false;
    }
    if (node_set_zones(&server->node, zones) < 0) {
        zones_free(zones);
        return false;
    }
    return true;
}

static int make_node(struct server *server)
{
    const struct server_config *c = &server->config;
    struct node_config config = {
        .ports = &server_ports,
        .owner = server,
        .store = server->store,
        .clock = server->clock,
        .test_clock = c->test_clock,
        .workers = server->worker_count,
        .claimant = c->owner,
        .advertise = c->advertise,
        .incarnation = random_incarnation(server),
        .engine = c->engine,
        .max_memory = c->max_memory,
        .max_timers_per_namespace = c->max_timers_per_namespace,
    };
    int r = node_new(&server->node, &config);
    for (unsigned i = 0; r == 0 && i < server->worker_count; i++) {
        server->node.workers[i].owner = &server->workers[i];
        server->workers[i].api.worker = &server->node.workers[i];
    }
    if (r == 0)
        load_zones(server);
    return r;
}

static int make_api(struct server *server)
{
    const struct server_config *c = &server->config;
    server->api.node = &server->node;
    server->api.config = (struct api_config){
        .max_body = c->max_body,
        .max_payload = c->max_payload,
        .event_buffer = c->event_buffer,
        .max_request_rate = c->max_request_rate,
        .allow_private_targets = c->allow_private_targets,
        .echo = c->echo,
        .ui = c->ui,
        .tls = c->tls_certificate != NULL,
        .allowed_host = c->allowed_host,
    };
    server->api.tokens = &c->tokens;
    int r = events_new(&server->api, random_incarnation(server));
    return r < 0 ? r : rates_new(&server->api, random_incarnation(server));
}

static int make_tls(struct server *server)
{
    char message[256];
    const struct server_config *c = &server->config;
    if (!c->tls_certificate)
        return 0;
    int r = http_tls_new(c->tls_certificate, c->tls_key, &server->tls, message, sizeof message);
    if (r < 0)
        log_error("cannot use the certificate", "why", message, NULL);
    atomic_store(&server->told, r < 0);
    return r;
}

/* It may take as long as another server lives that has the shards. Until then nothing has been promised that would have to
 * be stopped in order: a signal to stop just ends the process. But a server that is not alone has joined the others. */
static int wait_for_shards(struct server *server)
{
    sigset_t stops;
    if (server->node.cluster)
        return all_workers(server, load_spaces);
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &stops, NULL);
    int r = all_workers(server, load_spaces);
    pthread_sigmask(SIG_BLOCK, &stops, NULL);
    return r;
}

static int start(struct server *server)
{
    int r = make_owner(server);
    if (r == 0 && server->config.test_clock)
        r = test_clock_new(&server->api, &server->clock);
    if (r == 0)
        r = make_api(server);
    if (r == 0)
        r = make_tls(server);
    if (r == 0)
        r = open_store(server);
    if (r == 0)
        r = make_own_targets(server);
    if (r == 0)
        r = make_runtime(server);
    if (r == 0)
        r = make_node(server);
    if (r == 0)
        r = all_workers(server, set_up_worker);
    if (r == 0)
        r = listen_all(server); /* before the store is claimed: a second server ends here */
    if (r == 0)
        r = all_workers(server, start_shards);
    if (r == 0 && server->config.advertise)
        r = all_workers(server, join_others);
    if (r == 0)
        r = wait_for_shards(server);
    return r;
}

/* The configuration read at a reload. It is freed at the end, because workers may be reading it. */
struct reloaded {
    struct server_config config;
    struct reloaded *next;
};

static void free_all(struct server *server)
{
    for (struct reloaded *one = server->reloaded, *next; one; one = next) {
        next = one->next;
        config_free(&one->config);
        free(one);
    }
    fl_runtime_free(server->runtime);
    fl_store_close(server->store);
    http_tls_free(server->tls);
    node_free(&server->node);
    events_free(&server->api);
    rates_free(&server->api);
    test_clock_free(&server->api);
    free_own_targets(server);
    free(server->workers);
}

/* --- Signals ------------------------------------------------------------------------------------------------------ */

static void check_streams(struct worker *worker)
{
    batches_check(worker);
    events_check(worker);
    leases_check(worker);
    step_end(0);
}

static void move_by_zones(struct worker *worker)
{
    node_zones_changed(worker);
    step_end(0);
}

static void reload(struct server *server)
{
    struct reloaded *reloaded = calloc(1, sizeof *reloaded);
    struct server_config *fresh = reloaded ? &reloaded->config : NULL;
    char message[256];
    server_notify("RELOADING=1");
    if (!fresh || config_reload(&server->config, fresh, stderr) < 0) {
        free(reloaded);
        log_error("the new configuration has errors; the server keeps the old one", NULL);
        server_notify("READY=1");
        return;
    }
    reloaded->next = server->reloaded;
    server->reloaded = reloaded;
    atomic_store_explicit(&server->api.tokens, &fresh->tokens, memory_order_release);
    all_workers(server, check_streams);
    log_set(fresh->log_level, fresh->log_format);
    if (server->tls && http_tls_load(server->tls, fresh->tls_certificate, fresh->tls_key, message, sizeof message) < 0)
        log_error("cannot load the new certificate; the server keeps the old one", "why", message, NULL);
    if (load_zones(server))
        all_workers(server, move_by_zones);
    log_info("reloaded tokens, certificate, log level and time zones", NULL);
    server_notify("READY=1");
}

static void say_hello(struct server *server)
{
    char address[64], url[80], store[1024] = "";
    FILE *masked = fmemopen(store, sizeof store, "w");
    if (masked) {
        setting_write_masked(server->config.store, masked);
        fclose(masked);
    }
    for (size_t i = 0; i < server->config.address_count; i++) {
        write_address(&server->config.addresses[i], address, sizeof address);
        snprintf(url, sizeof url, "%s://%s", server->tls ? "https" : "http", address);
        log_info("listening", "url", url, "version", FL_VERSION, "store", store, "shards",
                 log_int(server->node.shard_count), "workers", log_int(server->worker_count), NULL);
    }
    if (server->config.hello)
        hello(server, url);
}

/* Whether it says stop. */
static bool obey(struct server *server, int signal)
{
    if (signal == SIGHUP)
        reload(server);
    return signal == SIGTERM || signal == SIGINT;
}

/* A server that is not alone is a member already while it reads the settings of namespaces, from all shards: it is stopped in
 * order, however long that takes. False: it is to stop. */
static bool await_settings(struct server *server, const sigset_t *signals)
{
    static const struct timespec awhile = {.tv_nsec = 5000000};
    while (!atomic_load(&server->node.settings_known))
        if (obey(server, sigtimedwait(signals, NULL, &awhile)))
            return false;
    return true;
}

static void serve(struct server *server, const sigset_t *signals)
{
    if (!await_settings(server, signals))
        return;
    say_hello(server);
    server_notify("READY=1");
    while (!obey(server, sigwaitinfo(signals, NULL)))
        ;
}

int server_run(struct server_config *config)
{
    sigset_t signals;
    struct server server = {.config = *config, .clock = fl_wall_clock_system()};
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    log_set(config->log_level, config->log_format);
    server.api.started_us = server.clock->now_us(server.clock);
    int r = start(&server);
    if (r < 0) {
        if (!atomic_load(&server.told))
            log_error("cannot start", "why", fl_strerror(r), NULL);
        exit(1); /* the parts that are already made have no effects to undo */
    }
    serve(&server, &signals);
    server_stop(&server);
    free_all(&server);
    *config = server.config; /* with what was added */
    log_info("stopped", NULL);
    return atomic_load(&server.replaced) ? 1 : 0;
}
