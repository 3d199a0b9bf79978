/* SPDX-License-Identifier: MIT */
/* Connections of the side that calls.
 *
 * TLS does not check certificates: the proof that both sides give is bound to the connection, and who sits between two
 * connections cannot give it. It is shaken hands on by the first reading and writing, so there is no state for it here.
 *
 * A name is looked up by a thread that is forgotten: it shares a piece of memory with whoever waits, which the last of the two
 * frees, and tells by an event descriptor; it never touches the loop, which may be gone by then. */

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer/internal.h"

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

SSL_CTX *peer_wire_context(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    ERR_clear_error();
    if (!context)
        return NULL;
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION); /* see http_channel_key() */
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

static bool encrypt(struct peer_wire *wire, SSL_CTX *context)
{
    wire->ssl = SSL_new(context);
    bool done = wire->ssl && http_tls_attach(wire->ssl, &wire->fd);
    ERR_clear_error();
    if (done)
        SSL_set_connect_state(wire->ssl);
    return done;
}

int peer_wire_open(struct peer_wire *wire, fl_loop *loop, const struct addrinfo *to, SSL_CTX *context, fl_loop_fd_fn fn,
                   void *arg)
{
    static const int on = 1;
    *wire = (struct peer_wire){.loop = loop, .connecting = true, .events = FL_WRITE};
    wire->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (wire->fd < 0)
        return errno;
    setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int error = 0;
    if (connect(wire->fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS)
        error = errno;
    else if ((context && !encrypt(wire, context)) || fl_loop_fd_add(loop, wire->fd, wire->events, fn, arg) < 0)
        error = ENOMEM;
    if (error)
        peer_wire_close(wire);
    return error;
}

int peer_wire_connected(struct peer_wire *wire)
{
    int error = 0;
    socklen_t size = sizeof error;
    wire->connecting = false;
    return getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 ? errno : error;
}

void peer_wire_close(struct peer_wire *wire)
{
    if (wire->fd < 0)
        return;
    SSL_free(wire->ssl);
    wire->ssl = NULL;
    fl_loop_fd_remove(wire->loop, wire->fd);
    close(wire->fd);
    wire->fd = -1;
}

/* --- Reading and writing ------------------------------------------------------------------------------------------ */

/* The result of a call of OpenSSL as that of recv() and send(). */
static ssize_t translate(struct peer_wire *wire, int result, int *ret_error)
{
    *ret_error = SSL_get_error(wire->ssl, result);
    wire->problem = NULL;
    if (result <= 0 && *ret_error == SSL_ERROR_SSL)
        wire->problem = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    if (result > 0)
        return result;
    if (*ret_error == SSL_ERROR_ZERO_RETURN)
        return 0;
    errno = *ret_error == SSL_ERROR_WANT_READ || *ret_error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

static int int_size(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

ssize_t peer_wire_read(struct peer_wire *wire, char *data, size_t size)
{
    int error;
    if (!wire->ssl)
        return recv(wire->fd, data, size, 0);
    ERR_clear_error();
    ssize_t n = translate(wire, SSL_read(wire->ssl, data, int_size(size)), &error);
    wire->read_wants_write = error == SSL_ERROR_WANT_WRITE;
    return n;
}

ssize_t peer_wire_write(struct peer_wire *wire, const char *data, size_t size)
{
    int error;
    if (!wire->ssl)
        return send(wire->fd, data, size, MSG_NOSIGNAL);
    ERR_clear_error();
    ssize_t n = translate(wire, SSL_write(wire->ssl, data, int_size(size)), &error);
    wire->write_wants_read = error == SSL_ERROR_WANT_READ;
    if (n == 0) {
        errno = EPIPE;
        return -1;
    }
    return n;
}

void peer_wire_wait(struct peer_wire *wire, bool more)
{
    bool write = (more && !wire->write_wants_read) || wire->read_wants_write;
    unsigned events = FL_READ | (write ? FL_WRITE : 0u);
    if (events != wire->events)
        fl_loop_fd_modify(wire->loop, wire->fd, events);
    wire->events = events;
}

/* --- Names -------------------------------------------------------------------------------------------------------- */

struct peer_lookup {
    atomic_int owners; /* the thread, and who waits */
    int event;
    char *host, *port;
    struct addrinfo *found;
    int error;
    atomic_bool finished; /* both are set */
    /* Of who waits. */
    fl_loop *loop;
    void (*fn)(void *arg, struct addrinfo *found, int error);
    void *arg;
};

static void let_go(struct peer_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->owners, 1) > 1)
        return;
    if (lookup->found)
        freeaddrinfo(lookup->found);
    if (lookup->event >= 0)
        close(lookup->event);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

static int look_up(const char *host, const char *port, int flags, struct addrinfo **ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(host, port, &hints, ret);
}

static void *run(void *arg)
{
    struct peer_lookup *lookup = arg;
    struct addrinfo *found = NULL;
    int error = look_up(lookup->host, lookup->port, 0, &found);
    lookup->error = error;
    lookup->found = error ? NULL : found;
    lookup->finished = true;
    eventfd_write(lookup->event, 1);
    let_go(lookup);
    return NULL;
}

static void on_found(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct peer_lookup *lookup = arg;
    (void)events;
    if (!lookup->finished)
        return;
    struct addrinfo *found = lookup->found;
    lookup->found = NULL;
    fl_loop_fd_remove(loop, fd);
    void (*fn)(void *, struct addrinfo *, int) = lookup->fn;
    void *fn_arg = lookup->arg;
    int error = lookup->error;
    let_go(lookup);
    fn(fn_arg, found, error);
}

/* Signals are for others. */
static bool start_thread(struct peer_lookup *lookup)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&detached) != 0)
        return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &detached, run, lookup) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return started;
}

int peer_lookup_begin(fl_loop *loop, const char *host, const char *port,
                      void (*fn)(void *arg, struct addrinfo *found, int error), void *arg, struct addrinfo **ret_found,
                      struct peer_lookup **ret)
{
    if (look_up(host, port, AI_NUMERICHOST, ret_found) == 0)
        return 1;
    struct peer_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return FL_NO_MEMORY;
    lookup->owners = 1;
    lookup->loop = loop;
    lookup->fn = fn;
    lookup->arg = arg;
    lookup->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    lookup->host = strdup(host);
    lookup->port = strdup(port);
    int r = !lookup->host || !lookup->port ? FL_NO_MEMORY : lookup->event < 0 ? FL_SYSTEM : 0;
    if (r == 0)
        r = fl_loop_fd_add(loop, lookup->event, FL_READ, on_found, lookup);
    if (r < 0) {
        let_go(lookup);
        return r;
    }
    lookup->owners = 2;
    if (!start_thread(lookup)) {
        lookup->owners = 1;
        peer_lookup_cancel(lookup);
        return FL_SYSTEM;
    }
    *ret = lookup;
    return 0;
}

void peer_lookup_cancel(struct peer_lookup *lookup)
{
    if (!lookup)
        return;
    fl_loop_fd_remove(lookup->loop, lookup->event);
    let_go(lookup);
}
