/* SPDX-License-Identifier: MIT */
/* A connection: its events, its time limits, its end.
 *
 * The state and the bytes that are there decide what to do next: run() takes steps until one of them needs more bytes, an
 * answer or room to write. It is called when a descriptor is ready, and from the server's list of ready connections when a
 * handler has answered or resumed, or a write has failed; never from inside a handler. So handlers are not called out of
 * each other, and a connection never goes away under one.
 *
 * The memory of a connection is that of its request. If the descriptor goes first, the connection stays as a ghost until the
 * request has been answered. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "http/internal.h"

enum { SECOND = 1000000000, LINGER_SECONDS = 2, RATE_SECONDS = 10, EXCESS_MOST = 128 };

/* --- Counting ---------------------------------------------------------------------------------------------------- */

/* Counts a connection. A few beyond the limit are accepted, to be told so. */
static bool count_in(http_server *server, bool *ret_excess)
{
    *ret_excess = atomic_fetch_add(server->count, 1) >= server->config.max_connections;
    if (!*ret_excess)
        return true;
    atomic_fetch_sub(server->count, 1);
    server->stats.refused++;
    if (server->excess == EXCESS_MOST)
        return false;
    server->excess++;
    return true;
}

static void count_out(http_server *server, bool excess)
{
    if (excess)
        server->excess--;
    else
        atomic_fetch_sub(server->count, 1);
}

/* --- The end of a connection ------------------------------------------------------------------------------------- */

void http_connection_free(struct http_connection *connection)
{
    fl__assert(connection->state == HTTP_CLOSED && connection->stage == HTTP_NO_REQUEST && !connection->ready);
    if (connection->server)
        LIST_REMOVE(connection, entry);
    http_buffer_free(&connection->in);
    http_buffer_free(&connection->out);
    http_memory_count(connection);
    fl__assert(connection->memory != HTTP_MEMORY_WAITS);
    http_buffer_free(&connection->collected);
    free(connection->head_own);
    free(connection);
}

/* Tells the handler that the client is gone. */
static void abandon(struct http_connection *connection)
{
    http_request *request = &connection->request;
    void (*sent_fn)(http_request *) = connection->sent_fn;
    if (connection->stage == HTTP_NO_REQUEST || connection->stage == HTTP_ABANDONED)
        return;
    http_memory_leave(connection);
    connection->sent_fn = NULL;
    if (connection->stage == HTTP_OFFERED && !request->data && !request->gone) { /* no handler has kept it */
        http_set_stage(connection, HTTP_NO_REQUEST);
        return;
    }
    http_set_stage(connection, HTTP_ABANDONED);
    http_enter(connection);
    if (sent_fn)
        sent_fn(request);
    if (connection->stage == HTTP_ABANDONED && request->gone)
        request->gone(request);
    http_leave(connection);
}

void http_connection_close(struct http_connection *connection)
{
    http_server *server = connection->server;
    fl_loop_fd_remove(server->config.loop, connection->stream.fd);
    http_stream_close(&connection->stream);
    http_move(connection, HTTP_CLOSED);
    server->stats.connections--;
    count_out(server, connection->excess);
    if (server->stopping)
        http_wake(server);
    http_unready(connection);
    LIST_REMOVE(connection, entry);
    LIST_INSERT_HEAD(&server->ghosts, connection, entry);
    abandon(connection);
    if (connection->stage == HTTP_NO_REQUEST)
        http_connection_free(connection);
}

void http_connection_refuse(struct http_connection *connection, int status, const char *problem)
{
    connection->server->stats.bad++;
    if (connection->stage == HTTP_BEGUN) { /* another status has been sent */
        http_break(connection);
        return;
    }
    http_answer_problem(connection, status, problem);
    if (!http_is_over(connection))
        http_move(connection, HTTP_LAST);
    abandon(connection);
}

/* Our side says that it is done. Bytes that the peer still sends are read for a moment: if they were left unread, closing
 * would send a reset, which may overtake the answer. Returns whether there may be more to do. */
static bool end(struct http_connection *connection)
{
    connection->corked = false;
    http_flush(connection);
    if (http_is_over(connection) || http_buffer_size(&connection->out) > 0)
        return false;
    http_stream_finish(&connection->stream);
    if (connection->ending != HTTP_CLOSE_SLOWLY || connection->eof || shutdown(connection->stream.fd, SHUT_WR) < 0) {
        http_break(connection);
        return false;
    }
    http_move(connection, HTTP_LINGERING);
    connection->since_ns = http_now_ns(connection);
    return true;
}

/* --- Steps ------------------------------------------------------------------------------------------------------- */

/* Returns whether the request was answered. */
static bool tell_half_closed(struct http_connection *connection)
{
    void (*fn)(http_request *) = connection->request.half_closed;
    if (!connection->eof || !fn || connection->stage == HTTP_NO_REQUEST)
        return false;
    connection->request.half_closed = NULL;
    http_enter(connection);
    fn(&connection->request);
    http_leave(connection);
    return connection->stage == HTTP_NO_REQUEST;
}

/* Does what the state asks for. Returns whether there may be more to do. */
static bool step(struct http_connection *connection)
{
    if (connection->memory == HTTP_MEMORY_GRANTED)
        return http_memory_granted(connection);
    bool blocked = http_memory_blocks(connection), gone = connection->eof && connection->request.gone_at_eof;
    if (gone && (blocked || connection->state == HTTP_HANDLED))
        http_break(connection);
    if (blocked)
        return false;
    switch (connection->state) {
    case HTTP_IDLE:
        return http_read_request(connection);
    case HTTP_BODY:
    case HTTP_DISCARDED:
        return http_read_body(connection);
    case HTTP_HANDLED:
        return tell_half_closed(connection);
    case HTTP_UPGRADED:
        return http_read_upgraded(connection);
    case HTTP_LAST:
        return end(connection);
    case HTTP_LINGERING:
        if (connection->eof)
            http_break(connection);
        return false;
    default:
        return false;
    }
}

static void run(struct http_connection *connection)
{
    do {
        while (!http_is_over(connection) && step(connection)) {
        }
        connection->corked = false;
        http_flush(connection);
    } while (!http_is_over(connection) && http_tell_sent(connection));
    if (http_is_over(connection))
        http_connection_close(connection);
    else
        http_connection_update_events(connection);
}

static bool wants_read(const struct http_connection *connection)
{
    if (connection->eof)
        return false;
    switch (connection->state) {
    case HTTP_IDLE:
        return http_buffer_size(&connection->out) <= HTTP_OUT_MOST;
    case HTTP_BODY:
        return !connection->paused && !http_memory_blocks(connection);
    case HTTP_WHOLE:
    case HTTP_HANDLED:
        return !connection->in.data || connection->in.end < connection->in.capacity;
    case HTTP_UPGRADED:
        return !connection->paused;
    case HTTP_DISCARDED:
    case HTTP_LINGERING:
        return true;
    default:
        return false;
    }
}

/* Bytes have been decrypted and not been read: no event will report them. */
static bool has_decrypted(const struct http_connection *connection)
{
    return wants_read(connection) && connection->state != HTTP_LINGERING && http_stream_pending(&connection->stream);
}

void http_connection_update_events(struct http_connection *connection)
{
    http_memory_count(connection);
    unsigned events = http_is_over(connection) ? 0
                                               : http_stream_events(&connection->stream, wants_read(connection),
                                                                    http_buffer_size(&connection->out) > 0);
    if (events != connection->events) {
        connection->events = events;
        if (fl_loop_fd_modify(connection->server->config.loop, connection->stream.fd, events) < 0)
            http_break(connection);
    }
    if (http_is_over(connection) || has_decrypted(connection))
        http_make_ready(connection);
}

/* --- Reading ----------------------------------------------------------------------------------------------------- */

static bool make_room(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in;
    if (!in->data)
        return http_buffer_reserve(in, HTTP_IN_SMALL);
    if (in->end < in->capacity)
        return true;
    if (http_is_pinned(connection))
        return false;
    if (in->start == 0)
        return http_buffer_reserve(in, in->capacity);
    http_buffer_compact(in);
    return true;
}

static void throw_away(struct http_connection *connection)
{
    char data[4096];
    ssize_t n = recv(connection->stream.fd, data, sizeof(data), 0); /* encrypted or not */
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        http_break(connection);
}

static void received(struct http_connection *connection, size_t size)
{
    bool first = connection->state == HTTP_IDLE && http_buffer_size(&connection->in) == 0;
    connection->in.end += size;
    connection->server->stats.bytes_in += size;
    connection->body_counted += size;
    if (first || connection->state == HTTP_BODY || connection->state == HTTP_DISCARDED)
        connection->since_ns = http_now_ns(connection);
}

static void receive(struct http_connection *connection)
{
    const struct http_buffer *in = &connection->in;
    if (connection->state == HTTP_LINGERING) {
        throw_away(connection);
        return;
    }
    if (!make_room(connection)) {
        http_break(connection);
        return;
    }
    ssize_t n = http_stream_read(&connection->stream, in->data + in->end, in->capacity - in->end);
    if (n > 0)
        received(connection, (size_t)n);
    else if (n == 0)
        connection->eof = true;
    else if (errno != EAGAIN && errno != EINTR)
        http_break(connection);
}

static void on_event(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct http_connection *connection = arg;
    (void)loop;
    (void)fd;
    if (events & FL_WRITE || connection->stream.write_wants_read)
        http_flush(connection);
    if (wants_read(connection) && (events & FL_READ || connection->stream.ssl))
        receive(connection);
    else if (events & (FL_ERROR | FL_HANGUP))
        http_break(connection);
    run(connection);
}

void http_connection_go_on(struct http_connection *connection)
{
    if (has_decrypted(connection))
        receive(connection);
    run(connection);
}

/* --- Time -------------------------------------------------------------------------------------------------------- */

static bool body_is_slow(const struct http_connection *connection, uint64_t now)
{
    const struct http_config *config = &connection->server->config;
    uint64_t elapsed = now - connection->body_since_ns;
    if (connection->paused)
        return false;
    if (now - connection->since_ns > config->body_timeout_ns)
        return true;
    if (connection->request.data) /* a stream has no rate */
        return false;
    return elapsed > (uint64_t)RATE_SECONDS * SECOND && connection->body_counted < elapsed / SECOND * config->min_rate;
}

/* Between requests: nothing has to be kept for a request that may never come. */
static void shrink(struct http_connection *connection)
{
    if (http_buffer_size(&connection->in) == 0)
        http_buffer_free(&connection->in);
    if (http_buffer_size(&connection->out) == 0)
        http_buffer_free(&connection->out);
}

static bool head_is_slow(const struct http_connection *connection, uint64_t now)
{
    const struct http_config *config = &connection->server->config;
    if (connection->excess)
        return now - connection->since_ns > (uint64_t)LINGER_SECONDS * SECOND;
    bool idle = http_buffer_size(&connection->in) == 0 && !http_stream_in_handshake(&connection->stream);
    return now - connection->since_ns > (idle ? config->idle_timeout_ns : config->head_timeout_ns);
}

/* Whether the peer has taken too long. */
static bool is_slow(struct http_connection *connection, uint64_t now)
{
    uint64_t timeout_ns = connection->server->config.body_timeout_ns;
    if (connection->state == HTTP_UPGRADED)
        return false;
    if (http_memory_is_wasted(connection, now))
        return true;
    if (http_buffer_size(&connection->out) > 0 && now - connection->out_since_ns > timeout_ns)
        return true;
    if (http_memory_blocks(connection))
        return now - connection->since_ns > timeout_ns;
    switch (connection->state) {
    case HTTP_IDLE:
        return head_is_slow(connection, now);
    case HTTP_BODY:
    case HTTP_DISCARDED:
        return body_is_slow(connection, now);
    case HTTP_LINGERING:
        return now - connection->since_ns > (uint64_t)LINGER_SECONDS * SECOND;
    default:
        return false;
    }
}

/* The handler ends the answer, and says why. */
static void tell_slow(struct http_connection *connection)
{
    void (*slow)(http_request *) = connection->request.slow;
    connection->request.slow = NULL;
    http_enter(connection);
    slow(&connection->request);
    http_leave(connection);
}

void http_connection_expire(struct http_connection *connection, uint64_t now)
{
    bool idle = connection->state == HTTP_IDLE, body = connection->state == HTTP_BODY;
    bool discarded = connection->state == HTTP_DISCARDED, unsent = http_buffer_size(&connection->out) > 0;
    if (!is_slow(connection, now)) {
        if (idle && now - connection->since_ns > SECOND)
            shrink(connection);
        return;
    }
    bool waiting = http_buffer_size(&connection->in) > 0 || body || discarded;
    if (waiting || unsent)
        connection->server->stats.timeouts++;
    if (body && connection->request.slow)
        tell_slow(connection);
    else if (http_memory_blocks(connection))
        http_connection_refuse(connection, 503,
                               "other requests use all memory for large requests; try again later, request smaller "
                               "pages, or raise max-memory");
    else if ((idle || body) && waiting && !unsent)
        http_connection_refuse(connection, 408, "the request arrived too slowly");
    else
        http_break(connection);
    run(connection);
}

/* --- The beginning ----------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

void http_connection_open(http_server *server, int fd, const struct sockaddr *peer, socklen_t size)
{
    bool excess, counted = count_in(server, &excess);
    struct http_connection *connection = counted ? calloc(1, sizeof(*connection)) : NULL;
    if (!connection) {
        if (counted)
            count_out(server, excess);
        struct http_stream stream = {.fd = fd};
        http_stream_close(&stream);
        return;
    }
    connection->server = server;
    connection->excess = excess;
    connection->events = FL_READ;
    connection->since_ns = http_now_ns(connection);
    LIST_INSERT_HEAD(&server->connections, connection, entry);
    memcpy(&connection->peer, peer, size < sizeof(connection->peer) ? size : sizeof(connection->peer));
    connection->request.peer = &connection->peer.any;
    connection->request.local = is_loopback(&connection->peer.any);
    server->stats.connections++;
    if (!http_stream_accept(&connection->stream, fd, server->config.tls) ||
        fl_loop_fd_add(server->config.loop, fd, FL_READ, on_event, connection) < 0)
        http_connection_close(connection);
}
