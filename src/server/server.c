/* SPDX-License-Identifier: MIT */
/* The life of the server.
 *
 * The main thread makes everything, then waits for signals; the workers do the rest. Stopping goes in steps, each when all
 * workers are through with the one before: the shards go to other servers, if there are any; connections and webhooks under way
 * end, for a while; engines record and let go of their shards. */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <foliot/version.h>

#include "node/budget.h"
#include "text/log.h"
#include "server/notify.h"
#include "node/server.h"
#include "server/settings.h"

void server_hindered(struct server *server, const char *why)
{
    pthread_mutex_lock(&server->hindrance.lock);
    snprintf(server->hindrance.text, sizeof server->hindrance.text, "%s", why);
    pthread_mutex_unlock(&server->hindrance.lock);
}

/* --- The clock ---------------------------------------------------------------------------------------------------- */

#define CLOCKS_DIFFER_US (10 * INT64_C(1000000)) /* timers would fire so much too early or too late */
#define SECOND_NS 1000000000ull

bool server_clock_is_off(const struct server *server, char *why, size_t size)
{
    int64_t ahead_us = server->store && !server->test_clock ? fl_store_clock_ahead_us(server->store) : 0;
    bool ahead = ahead_us > 0;
    if (ahead_us >= -CLOCKS_DIFFER_US && ahead_us <= CLOCKS_DIFFER_US)
        return false;
    snprintf(why, size,
             "the clock of this machine is %" PRId64 " s %s that of the database, so timers fire too %s;"
             " set both by NTP",
             (ahead ? ahead_us : -ahead_us) / 1000000, ahead ? "ahead of" : "behind", ahead ? "early" : "late");
    return true;
}

static void look_at_clock(fl_loop *loop, void *arg)
{
    static bool was_off; /* the first worker's */
    char why[200];
    bool off = server_clock_is_off(arg, why, sizeof why);
    if (off && trouble_is_news("the clocks differ", fl_loop_now_ns(loop)))
        log_error(why, NULL);
    else if (was_off && !off)
        log_info("the clocks of this machine and of the database agree again", NULL);
    was_off = off;
}

static int watch_clock(const struct worker *worker)
{
    if (worker->index > 0 || strncmp(worker->server->config.store, "postgres", 8) != 0)
        return 0;
    return fl_loop_interval(worker->loop, SECOND_NS, FL_TIMER_UNREF, look_at_clock, worker->server, NULL);
}

/* --- Steps -------------------------------------------------------------------------------------------------------- */

/* A step that every worker takes; the main thread waits for the last. */
struct step {
    pthread_mutex_t lock;
    pthread_cond_t over;
    unsigned left;
    int result;
    void (*fn)(struct worker *worker);
};

static struct step step = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void step_end(int result)
{
    pthread_mutex_lock(&step.lock);
    if (result < 0)
        step.result = result;
    if (--step.left == 0)
        pthread_cond_signal(&step.over);
    pthread_mutex_unlock(&step.lock);
}

static void step_done(struct worker *worker)
{
    (void)worker;
    step_end(0);
}

static void step_begin(void *arg)
{
    step.fn(arg);
}

/* Calls `fn` on every worker and waits until each has called step_end(). */
static int all_workers(struct server *server, void (*fn)(struct worker *worker))
{
    step.left = server->worker_count;
    step.result = 0;
    step.fn = fn;
    for (unsigned i = 0; i < server->worker_count; i++)
        if (fl_runtime_spawn_on(server->runtime, i, step_begin, &server->workers[i]) < 0)
            step_end(FL_NO_MEMORY);
    pthread_mutex_lock(&step.lock);
    while (step.left > 0)
        pthread_cond_wait(&step.over, &step.lock);
    pthread_mutex_unlock(&step.lock);
    return step.result;
}

/* --- Starting ----------------------------------------------------------------------------------------------------- */

static int make_http(struct worker *worker)
{
    const struct server_config *c = &worker->server->config;
    struct http_config config = {
        .loop = worker->loop,
        .handlers = &api_handlers,
        .arg = worker,
        .tls = worker->server->tls,
        .max_connections = c->max_connections,
        .connections = &worker->server->connections,
        .max_head = c->max_head,
        .max_url = c->max_url,
        .max_body = c->max_body,
        .max_memory = budget_of_worker(c->max_memory, worker->server->worker_count),
        .head_timeout_ns = c->head_timeout_us * 1000,
        .body_timeout_ns = c->body_timeout_us * 1000,
        .idle_timeout_ns = c->idle_timeout_us * 1000,
    };
    return http_server_new(&config, &worker->http);
}

static int make_webhooks(struct worker *worker)
{
    const struct server_config *c = &worker->server->config;
    unsigned workers = worker->server->worker_count;
    struct webhooks_config config = {
        .loop = worker->loop,
        .clock = worker->server->clock,
        .allow_private = c->allow_private_targets,
        .own = worker->server->own_targets,
        .max_under_way = (c->webhook_concurrency + workers - 1) / workers,
        .max_per_host = (c->webhook_per_host + workers - 1) / workers,
        .timeout_us = c->webhook_timeout_us,
        .user_agent = "Foliot/" FL_VERSION,
    };
    return webhooks_new(&config, &worker->hooks);
}

static void set_up_worker(struct worker *worker)
{
    worker->loop = fl_runtime_loop();
    int r = pull_new(worker);
    if (r == 0)
        r = shards_new(worker);
    if (r == 0)
        r = make_http(worker);
    if (r == 0)
        r = make_webhooks(worker);
    if (r == 0)
        r = watch_clock(worker);
    step_end(r);
}

/* A server that is not alone is told which shards are its own. */
static void start_shards(struct worker *worker)
{
    struct server *server = worker->server;
    if (!server->config.advertise)
        step_end(shards_start(worker));
    else
        step_end(servers_start(worker));
}

static void join_others(struct worker *worker)
{
    step_end(worker->index == 0 ? servers_join(worker->server) : 0);
}

static void load_spaces(struct worker *worker)
{
    bool alone = !worker->server->cluster;
    if (worker->index == 0)
        spaces_load(worker, alone ? step_done : NULL);
    if (worker->index > 0 || !alone)
        step_end(0);
}

static void write_address(const struct config_address *address, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    bool v6 = address->address.any.sa_family == AF_INET6;
    inet_ntop(address->address.any.sa_family,
              v6 ? (const void *)&address->address.v6.sin6_addr : (const void *)&address->address.v4.sin_addr, host,
              sizeof host);
    unsigned port = ntohs(v6 ? address->address.v6.sin6_port : address->address.v4.sin_port);
    snprintf(out, size, v6 ? "[%s]:%u" : "%s:%u", host, port);
}

/* Why an address cannot be had, and what to do. */
static void explain_bind(int error, char *message, size_t size)
{
    static const struct {
        int error;
        const char *text;
    } known[] = {
        {EADDRINUSE, "(address already in use); stop the other server or choose another address with --listen"},
        {EADDRNOTAVAIL, "(this machine does not have the address); choose another address with --listen"},
        {EACCES, "(permission denied); choose a port above 1023 with --listen or grant CAP_NET_BIND_SERVICE"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error) {
            snprintf(message, size, "%s", known[i].text);
            return;
        }
    snprintf(message, size, "(%s); choose another address with --listen", strerrordesc_np(error));
}

/* The workers share each address, and the kernel would let another server share it too: it must be free before the first. */
static int claim_address(const struct config_address *address, char *message, size_t size)
{
    int fd = socket(address->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (address->address.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    int r = bind(fd, &address->address.any, address->size);
    if (r < 0)
        explain_bind(errno, message, size);
    close(fd);
    return r < 0 ? FL_SYSTEM : 0;
}

static void tell_cannot_listen(struct server *server, const struct config_address *address, const char *why)
{
    char text[64], message[320];
    write_address(address, text, sizeof text);
    snprintf(message, sizeof message, "cannot listen on %s %s", text, why);
    log_error(message, NULL);
    atomic_store(&server->told, true);
}

/* A port that the first worker was given by the kernel is the others' too. */
static void listen_here(struct worker *worker)
{
    struct server *server = worker->server;
    char message[200], refusal[160];
    int r = 0;
    for (size_t i = 0; i < server->config.address_count && r == 0; i++) {
        struct config_address *address = &server->config.addresses[i];
        uint16_t port = 0;
        if (worker->index == 0)
            r = claim_address(address, message, sizeof message);
        if (r == 0) {
            r = http_server_listen(worker->http, &address->address.any, address->size, &port, refusal, sizeof refusal);
            snprintf(message, sizeof message, "(%s)", r < 0 ? refusal : "");
        }
        if (r < 0) {
            tell_cannot_listen(server, address, message);
        } else if (address->address.any.sa_family == AF_INET) {
            address->address.v4.sin_port = htons(port);
        } else {
            address->address.v6.sin6_port = htons(port);
        }
    }
    step_end(r);
}

/* The webhooks have the list from their beginning; it is complete when all ports are known, before the first timer fires. */
static int make_own_targets(struct server *server)
{
    server->own_targets = calloc(2 * server->config.address_count + 1, sizeof *server->own_targets);
    return server->own_targets ? 0 : FL_NO_MEMORY;
}

static int name_own_targets(struct server *server)
{
    size_t count = 0;
    const char *scheme = server->tls ? "https" : "http";
    for (size_t i = 0; server->config.echo && i < server->config.address_count; i++) {
        const struct config_address *address = &server->config.addresses[i];
        bool v6 = address->address.any.sa_family == AF_INET6;
        unsigned port = ntohs(v6 ? address->address.v6.sin6_port : address->address.v4.sin_port);
        char text[64], *url;
        write_address(address, text, sizeof text);
        if (asprintf(&url, "%s://%s/echo", scheme, text) < 0)
            return FL_NO_MEMORY;
        server->own_targets[count++] = url;
        if (!server->config.loopback_only)
            continue;
        if (asprintf(&url, "%s://localhost:%u/echo", scheme, port) < 0)
            return FL_NO_MEMORY;
        server->own_targets[count++] = url;
    }
    return 0;
}

static void listen_on_first(struct worker *worker)
{
    if (worker->index == 0)
        listen_here(worker);
    else
        step_end(0);
}

static void listen_on_others(struct worker *worker)
{
    if (worker->index > 0)
        listen_here(worker);
    else
        step_end(0);
}

static int open_store(struct server *server)
{
    char message[512];
    fl_store_config config = {.shards = server->config.shards, .clock = server->test_clock ? server->clock : NULL};
    int r = fl_store_open(server->config.store, &config, &server->store, message, sizeof message);
    if (r < 0) {
        log_error("cannot open the store", "why", message, NULL);
        atomic_store(&server->told, true);
        return r;
    }
    server->shard_count = fl_store_shards(server->store);
    server->shards = calloc(server->shard_count, sizeof *server->shards);
    return server->shards ? 0 : FL_NO_MEMORY;
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

static int make_workers(struct server *server)
{
    int r = fl_runtime_new(&(fl_runtime_config){.workers = server->config.workers}, &server->runtime);
    if (r < 0)
        return r;
    struct fl_runtime_stats stats;
    fl_runtime_stats(server->runtime, &stats);
    server->worker_count = (unsigned)stats.workers;
    server->workers = calloc(server->worker_count, sizeof *server->workers);
    if (!server->workers)
        return FL_NO_MEMORY;
    for (unsigned i = 0; i < server->worker_count; i++)
        server->workers[i] =
            (struct worker){.server = server, .index = i, .host = {.handle = serve_peer, .arg = &server->workers[i]}};
    for (uint32_t i = 0; i < server->shard_count; i++)
        server->shards[i] = (struct shard){.worker = &server->workers[i % server->worker_count], .number = i};
    return 0;
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
    if (server->cluster)
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
        r = test_clock_new(server);
    if (r == 0)
        r = spaces_new(server);
    if (r == 0)
        r = rates_new(server);
    if (r == 0)
        r = make_tls(server);
    if (r == 0)
        r = open_store(server);
    if (r == 0)
        r = make_own_targets(server);
    if (r == 0)
        r = make_workers(server);
    if (r == 0 && server->config.advertise)
        r = servers_prepare(server);
    if (r == 0)
        r = all_workers(server, set_up_worker);
    if (r == 0)
        r = all_workers(server, listen_on_first); /* before the store is claimed: a second server ends here */
    if (r == 0)
        r = all_workers(server, listen_on_others);
    if (r == 0)
        r = name_own_targets(server);
    if (r == 0)
        r = all_workers(server, start_shards);
    if (r == 0 && server->config.advertise)
        r = all_workers(server, join_others);
    if (r == 0)
        r = wait_for_shards(server);
    return r;
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

#define LINGER_NS (100 * 1000000ull)

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Of stop-timeout, which is for all steps together. */
static uint64_t left_ns(const struct server *server)
{
    uint64_t now_ns = monotonic_ns();
    return now_ns < server->stop_until_ns ? server->stop_until_ns - now_ns : 0;
}

static void drain(struct worker *worker)
{
    http_server_drain(worker->http);
    step_end(0);
}

static void left_others(void *server)
{
    (void)server;
    step_end(0);
}

/* Half of the time is left for requests under way. */
static void leave_others(struct worker *worker)
{
    if (worker->index == 0)
        servers_stop(worker->server, left_ns(worker->server) / 2000, left_others);
    else
        step_end(0);
}

static void lingered(fl_loop *loop, void *arg)
{
    (void)loop, (void)arg;
    step_end(0);
}

/* Clients that have connected already, and send a request at this moment, get an answer. */
static void linger(struct worker *worker)
{
    http_server_shut(worker->http);
    if (fl_loop_timer(worker->loop, LINGER_NS, lingered, NULL, NULL) < 0)
        step_end(0);
}

/* What would not end by itself. */
static void end_waiting(struct worker *worker)
{
    pull_stop(worker);
    leases_stop(worker);
    events_stop(worker);
    if (worker->sessions)
        peer_sessions_stop(worker->sessions);
    step_end(0);
}

static void ended_one(struct worker *worker)
{
    if (--worker->ending > 0)
        return;
    fl_loop_cancel(worker->loop, worker->cut_timer);
    fl_loop_cancel(worker->loop, worker->batches_timer);
    step_end(0);
}

static void http_stopped(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    (void)loop;
    http_server_free(worker->http);
    worker->http = NULL;
    ended_one(worker);
}

static void webhooks_stopped(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    (void)loop;
    worker->hooks = NULL;
    ended_one(worker);
}

static void cut_off(fl_loop *loop, void *arg)
{
    struct worker *worker = arg;
    if (worker->http)
        http_stopped(loop, worker);
}

static void cut_batches(fl_loop *loop, void *arg)
{
    (void)loop;
    batches_stop(arg);
}

/* Requests and webhooks, at the same time. Batches that are still open are told shortly before the others are cut off. */
static void end_work(struct worker *worker)
{
    uint64_t ns = left_ns(worker->server);
    worker->ending = 2;
    if (fl_loop_timer(worker->loop, ns, cut_off, worker, &worker->cut_timer) < 0 ||
        fl_loop_timer(worker->loop, ns - ns / 10, cut_batches, worker, &worker->batches_timer) < 0)
        batches_stop(worker);
    webhooks_stop(worker->hooks, ns / 1000, webhooks_stopped, worker);
    http_server_stop(worker->http, http_stopped, worker);
}

static void end_links(struct worker *worker)
{
    servers_stop_links(worker);
    step_end(0);
}

static void end_shards(struct worker *worker)
{
    shards_stop(worker, step_done);
}

/* What was asked for by no request, and waits for a shard that is gone, gives up soon. */
static void end_errands(fl_loop *loop, void *arg)
{
    const struct worker *worker = arg;
    if (worker->under_way == 0 || fl_loop_timer(loop, 5000000, end_errands, arg, NULL) < 0)
        step_end(0);
}

static void await_errands(struct worker *worker)
{
    end_errands(worker->loop, worker);
}

static void cluster_gone(fl_loop *loop, void *arg)
{
    (void)loop, (void)arg;
    step_end(0);
}

static void free_cluster(struct worker *worker)
{
    if (worker->index == 0 && worker->server->cluster)
        cluster_free(worker->server->cluster, cluster_gone, NULL);
    else
        step_end(0);
}

static void tear_down_worker(struct worker *worker)
{
    attempts_log_stop(worker);
    http_server_free(worker->http);
    peer_sessions_free(worker->sessions);
    pull_free(worker);
    shards_free(worker);
    step_end(0);
}

/* In a cluster, others take over while requests can still be passed on to them. Connections end after that, and the links, over
 * which requests are passed on, when there are no more requests. */
static void stop(struct server *server)
{
    atomic_store(&server->stopping, true);
    server->stop_until_ns = monotonic_ns() + server->config.stop_timeout_us * 1000;
    server_notify("STOPPING=1");
    log_info("stopping", NULL);
    all_workers(server, drain);
    if (server->cluster) {
        all_workers(server, leave_others);
        all_workers(server, linger);
    }
    all_workers(server, end_waiting);
    all_workers(server, end_work);
    atomic_store(&server->closing, true);
    all_workers(server, free_cluster);
    all_workers(server, end_links);
    all_workers(server, end_shards);
    all_workers(server, await_errands);
    all_workers(server, tear_down_worker);
}

/* What was read at a reload. It is kept to the end: somebody may be looking at it. */
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
    spaces_free(server);
    rates_free(server);
    test_clock_free(server);
    for (struct peer *peer = atomic_load(&server->peers), *next; peer; peer = next) {
        next = atomic_load(&peer->next);
        free(peer);
    }
    for (size_t i = 0; server->own_targets[i]; i++)
        free((void *)server->own_targets[i]);
    free(server->own_targets);
    free(server->workers);
    free(server->shards);
}

/* --- Signals ------------------------------------------------------------------------------------------------------ */

static void check_streams(struct worker *worker)
{
    batches_check(worker);
    events_check(worker);
    leases_check(worker);
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
    atomic_store_explicit(&server->tokens, &fresh->tokens, memory_order_release);
    all_workers(server, check_streams);
    log_set(fresh->log_level, fresh->log_format);
    if (server->tls && http_tls_load(server->tls, fresh->tls_certificate, fresh->tls_key, message, sizeof message) < 0)
        log_error("cannot load the new certificate; the server keeps the old one", "why", message, NULL);
    log_info("reloaded tokens, certificate and log level", NULL);
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
        log_info("listening", "url", url, "version", FL_VERSION, "store", store, "shards", log_int(server->shard_count),
                 "workers", log_int(server->worker_count), NULL);
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
    while (!atomic_load(&server->settings_known))
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
    struct server server = {.config = *config,
                            .clock = fl_wall_clock_system(),
                            .hindrance.lock = PTHREAD_MUTEX_INITIALIZER,
                            .secret_lock = PTHREAD_MUTEX_INITIALIZER};
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    log_set(config->log_level, config->log_format);
    server.tokens = &server.config.tokens;
    server.started_us = server.clock->now_us(server.clock);
    if (getrandom(&server.nonce, sizeof server.nonce, 0) != sizeof server.nonce)
        server.nonce = (uint64_t)server.started_us;
    server.nonce = server.nonce >> 1 | 1; /* as an incarnation is: not 0, below 2^63 */
    server.joined = !config->advertise;
    int r = start(&server);
    if (r < 0) {
        if (!atomic_load(&server.told))
            log_error("cannot start", "why", fl_strerror(r), NULL);
        exit(1); /* what is half made has done nothing that must be undone */
    }
    serve(&server, &signals);
    stop(&server);
    free_all(&server);
    *config = server.config; /* with what was added */
    log_info("stopped", NULL);
    return 0;
}
