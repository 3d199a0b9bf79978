/* SPDX-License-Identifier: MIT */
/* The server: listens, has its connections looked after, and stops.
 *
 * Time limits need no timer per connection. Once per second, or more often if a limit is shorter, the server checks all
 * connections. Each connection records only when it last made progress. */

#include "http/http.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/internal.h"

enum { ACCEPT_AT_ONCE = 64 };

#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)

/* --- What is to be done soon ------------------------------------------------------------------------------------- */

/* Connections that become ready meanwhile wait for the next time. */
static void run_ready(http_server *server)
{
    struct http_connection *connection;
    for (size_t left = server->ready_count; left > 0 && (connection = TAILQ_FIRST(&server->ready)); left--) {
        http_unready(connection);
        http_connection_go_on(connection);
    }
}

/* The very last thing that is done with a server that has stopped: `done` may free it. */
static void tell_done(http_server *server)
{
    fl_loop_fn done = server->done;
    if (!server->stopping || !done || !LIST_EMPTY(&server->connections))
        return;
    server->done = NULL;
    done(server->config.loop, server->done_arg);
}

static void on_immediate(fl_loop *loop, void *arg)
{
    http_server *server = arg;
    (void)loop;
    server->has_immediate = false;
    run_ready(server);
    tell_done(server);
}

/* If there is no memory for it, the next sweep does it. */
void http_wake(http_server *server)
{
    if (!server->has_immediate)
        server->has_immediate = fl_loop_immediate(server->config.loop, on_immediate, server, &server->immediate) == 0;
}

void http_make_ready(struct http_connection *connection)
{
    http_server *server = connection->server;
    if (connection->ready)
        return;
    connection->ready = true;
    TAILQ_INSERT_TAIL(&server->ready, connection, ready_entry);
    server->ready_count++;
    http_wake(server);
}

void http_unready(struct http_connection *connection)
{
    http_server *server = connection->server;
    if (!connection->ready)
        return;
    connection->ready = false;
    TAILQ_REMOVE(&server->ready, connection, ready_entry);
    server->ready_count--;
}

/* --- Listening --------------------------------------------------------------------------------------------------- */

static void set_accepting(http_server *server, bool accepting)
{
    server->accepting = accepting;
    for (struct http_listener *listener = SLIST_FIRST(&server->listeners); listener;
         listener = SLIST_NEXT(listener, entry))
        fl_loop_fd_modify(server->config.loop, listener->fd, accepting ? FL_READ : 0);
}

static void take_connection(http_server *server, int fd, const struct sockaddr *peer, socklen_t size)
{
    static const int on = 1;
    server->stats.accepted++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    http_connection_open(server, fd, peer, size);
}

static void on_listener(fl_loop *loop, int fd, unsigned events, void *arg)
{
    http_server *server = ((struct http_listener *)arg)->server;
    (void)loop;
    (void)events;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        int accepted = accept4(fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted >= 0) {
            take_connection(server, accepted, (struct sockaddr *)&peer, size);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            set_accepting(server, false); /* until the next sweep: some may have been closed by then */
        if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

static int listen_on(const struct sockaddr *address, socklen_t size)
{
    static const int on = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    bool ok = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0 &&
              (address->sa_family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
              bind(fd, address, size) == 0 && listen(fd, SOMAXCONN) == 0;
    if (ok)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {0};
    socklen_t size = sizeof(address);
    getsockname(fd, &address.any, &size);
    return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

int http_server_listen(http_server *server, const struct sockaddr *address, socklen_t size, uint16_t *ret_port,
                       char *message, size_t message_size)
{
    struct http_listener *listener = malloc(sizeof(*listener));
    if (!listener) {
        snprintf(message, message_size, "%s", fl_strerror(FL_NO_MEMORY));
        return FL_NO_MEMORY;
    }
    int fd = listen_on(address, size);
    if (fd < 0) {
        snprintf(message, message_size, "%s", strerror(errno)); /* NOLINT(concurrency-mt-unsafe) */
        free(listener);
        return FL_SYSTEM;
    }
    *listener = (struct http_listener){.server = server, .fd = fd};
    int r = fl_loop_fd_add(server->config.loop, fd, FL_READ, on_listener, listener);
    if (r < 0) {
        snprintf(message, message_size, "%s", fl_strerror(r));
        close(fd);
        free(listener);
        return r;
    }
    SLIST_INSERT_HEAD(&server->listeners, listener, entry);
    if (ret_port)
        *ret_port = port_of(fd);
    return 0;
}

static void close_listeners(http_server *server)
{
    struct http_listener *listener;
    while ((listener = SLIST_FIRST(&server->listeners))) {
        SLIST_REMOVE_HEAD(&server->listeners, entry);
        fl_loop_fd_remove(server->config.loop, listener->fd);
        close(listener->fd);
        free(listener);
    }
}

/* --- Time -------------------------------------------------------------------------------------------------------- */

static void on_sweep(fl_loop *loop, void *arg)
{
    http_server *server = arg;
    uint64_t now = fl_loop_now_ns(loop);
    if (!server->accepting)
        set_accepting(server, true);
    for (struct http_connection *connection = LIST_FIRST(&server->connections), *next; connection; connection = next) {
        next = LIST_NEXT(connection, entry); /* looking after one connection closes no other */
        http_connection_expire(connection, now);
    }
    if (server->ready_count > 0 || server->stopping)
        http_wake(server);
}

/* A limit is exceeded by a quarter at most, and by no more than a second. */
static uint64_t sweep_period_ns(const struct http_config *config)
{
    uint64_t shortest = MIN(config->head_timeout_ns, MIN(config->body_timeout_ns, config->idle_timeout_ns)) / 4;
    return MAX(MILLISECOND, MIN(shortest, SECOND));
}

/* --- The server -------------------------------------------------------------------------------------------------- */

#define DEFAULT(member, value) \
    if (config->member == 0)   \
    config->member = (value)

static void fill_in(struct http_config *config)
{
    DEFAULT(max_connections, 10000);
    DEFAULT(max_head, 16384);
    DEFAULT(max_url, 8192);
    DEFAULT(max_body, 1048576);
    DEFAULT(max_memory, SIZE_MAX);
    DEFAULT(head_timeout_ns, 10 * SECOND);
    DEFAULT(body_timeout_ns, 30 * SECOND);
    DEFAULT(idle_timeout_ns, 75 * SECOND);
    DEFAULT(min_rate, 100);
}

int http_server_new(const struct http_config *config, http_server **ret)
{
    http_server *server = calloc(1, sizeof(*server));
    if (!server)
        return FL_NO_MEMORY;
    server->config = *config;
    fill_in(&server->config);
    server->rules = (struct http_rules){HTTP_REQUEST, server->config.max_head, server->config.max_url, http_keep_field};
    server->count = config->connections ? config->connections : &server->own_count;
    server->accepting = true;
    TAILQ_INIT(&server->ready);
    TAILQ_INIT(&server->hungry);
    int r = fl_loop_interval(config->loop, sweep_period_ns(&server->config), FL_TIMER_UNREF, on_sweep, server,
                             &server->sweep);
    if (r < 0) {
        free(server);
        return r;
    }
    *ret = server;
    return 0;
}

void *http_server_arg(http_server *server)
{
    return server->config.arg;
}

http_server *http_request_server(http_request *request)
{
    return http_connection_of(request)->server;
}

void http_get_stats(const http_server *server, struct http_stats *ret)
{
    *ret = server->stats;
}

void http_server_drain(http_server *server)
{
    server->draining = true;
}

/* Were a listener just closed, connections that the kernel has accepted for it in that moment would be reset. So the kernel
 * is told first to drop whatever would begin another one: those that have begun can be accepted, and the others are begun
 * again by their kernels a second later. */
void http_server_shut(http_server *server)
{
    enum { FLAGS = 13, ALL = 0xffffffff }; /* in the header of TCP */
    static struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, FLAGS),
                                        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, TH_SYN, 0, 1),
                                        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, ALL)};
    static const struct sock_fprog drop_syn = {.len = sizeof code / sizeof *code, .filter = code};
    for (const struct http_listener *listener = SLIST_FIRST(&server->listeners); listener;
         listener = SLIST_NEXT(listener, entry))
        setsockopt(listener->fd, SOL_SOCKET, SO_ATTACH_FILTER, &drop_syn, sizeof drop_syn);
}

static void accept_rest(http_server *server)
{
    for (struct http_listener *listener = SLIST_FIRST(&server->listeners); listener;
         listener = SLIST_NEXT(listener, entry))
        on_listener(server->config.loop, listener->fd, FL_READ, listener);
}

void http_server_stop(http_server *server, fl_loop_fn done, void *arg)
{
    accept_rest(server);
    server->stopping = server->draining = true;
    server->done = done;
    server->done_arg = arg;
    close_listeners(server);
    for (struct http_connection *connection = LIST_FIRST(&server->connections); connection;
         connection = LIST_NEXT(connection, entry))
        http_make_ready(connection); /* those without a request are closed */
    http_wake(server);
}

void http_server_free(http_server *server)
{
    if (!server)
        return;
    close_listeners(server);
    server->stopping = false;
    while (!LIST_EMPTY(&server->connections))
        http_connection_close(LIST_FIRST(&server->connections));
    struct http_connection *ghost;
    while ((ghost = LIST_FIRST(&server->ghosts))) {
        LIST_REMOVE(ghost, entry);
        ghost->server = NULL;
    }
    fl_loop_cancel(server->config.loop, server->sweep);
    if (server->has_immediate)
        fl_loop_cancel(server->config.loop, server->immediate);
    free(server);
}

/* --- Requests ---------------------------------------------------------------------------------------------------- */

fl_bytes http_header(http_request *request, const char *name)
{
    const struct http_connection *connection = http_connection_of(request);
    return http_field_value(&connection->fields, connection->head_data, name);
}

size_t http_header_count(http_request *request, const char *name)
{
    const struct http_connection *connection = http_connection_of(request);
    size_t count = 0;
    for (int i = -1; (i = http_find_field(&connection->fields, connection->head_data, name, i + 1)) >= 0;)
        count++;
    return count;
}

void http_pause(http_request *request)
{
    http_connection_of(request)->paused = true;
}

void http_resume(http_request *request)
{
    struct http_connection *connection = http_connection_of(request);
    if (!connection->paused || connection->stage == HTTP_ABANDONED)
        return;
    connection->paused = false;
    connection->since_ns = connection->body_since_ns = http_now_ns(connection);
    connection->body_counted = 0;
    http_make_ready(connection);
}
