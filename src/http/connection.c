/* SPDX-License-Identifier: MIT */
/* A connection: from bytes to requests, one after the other, and how it ends.
 *
 * What is to be done follows from the state and the bytes that are there: run() takes steps until one of
 * them needs more bytes, an answer or room to write. It is called when a descriptor is ready, and from the server's list
 * of ready connections when a handler has answered, resumed, or found that a write fails; never from inside a handler,
 * so handlers are not called out of each other, and a connection never goes away under one.
 *
 * A request is parsed where it lies, and stays there until it has been answered; so does its body if it fits behind the
 * head. Otherwise the buffer with the head is set aside and the body comes through another one: handed on in pieces, or
 * collected in a third. In the steady state of small requests, nothing is allocated.
 *
 * The memory of a connection is that of its request. If the descriptor goes first, the connection stays as a ghost until
 * the request has been answered. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/internal.h"

enum { SECOND = 1000000000, LINGER_SECONDS = 2, RATE_SECONDS = 10, EXCESS_MOST = 128 };

static uint64_t now_ns(const struct http_connection *connection)
{
    return fl_loop_now_ns(connection->server->config.loop);
}

static void count_out(http_server *server, bool excess);

/* --- The end of a connection ------------------------------------------------------------------------------------- */

void http_connection_free(struct http_connection *connection)
{
    http_link_remove(&connection->link);
    http_link_remove(&connection->ready);
    http_buffer_free(&connection->in);
    http_buffer_free(&connection->out);
    connection->outstanding = false;
    http_memory_count(connection);
    assert(connection->memory != HTTP_MEMORY_WAITS);
    http_buffer_free(&connection->body);
    free(connection->head_own);
    free(connection);
}

/* Tells the handler that its answer will not be read. */
static void abandon(struct http_connection *connection)
{
    http_request *request = &connection->request;
    if (!connection->outstanding || connection->abandoned)
        return;
    void (*sent_fn)(http_request *) = connection->sent_fn;
    connection->abandoned = true;
    http_memory_leave(connection);
    if (!connection->handled && !request->data && !request->gone) /* nobody has taken an interest in it yet */
        connection->outstanding = false;
    connection->sent_fn = NULL;
    connection->inside = true;
    if (connection->outstanding && sent_fn)
        sent_fn(request);
    if (connection->outstanding && request->gone)
        request->gone(request);
    connection->inside = false;
}

void http_connection_close(struct http_connection *connection)
{
    http_server *server = connection->server;
    fl_loop_fd_remove(server->config.loop, connection->fd);
    http_tls_close(connection);
    close(connection->fd);
    connection->fd = -1;
    connection->state = HTTP_CLOSED_STATE;
    server->stats.connections--;
    count_out(server, connection->excess);
    if (server->stopping)
        http_wake(server);
    http_link_remove(&connection->ready);
    http_link_remove(&connection->link);
    http_link_append(&server->ghosts, &connection->link);
    abandon(connection);
    if (!connection->outstanding)
        http_connection_free(connection);
}

void http_connection_refuse(struct http_connection *connection, int status, const char *problem)
{
    connection->server->stats.bad++;
    if (connection->begun) { /* the status has been sent */
        connection->over = true;
        return;
    }
    http_answer_problem(connection, status, problem);
    connection->state = HTTP_LAST_STATE;
    connection->linger = true;
    abandon(connection);
}

/* Our side says that it is done. What the peer still sends is read for a moment: were it left unread, closing would send
 * a reset, which may overtake the answer. */
static bool end(struct http_connection *connection)
{
    connection->corked = false;
    http_flush(connection);
    if (connection->over || http_buffer_size(&connection->out) > 0)
        return false;
    http_tls_shutdown(connection);
    if (!connection->linger || connection->eof || shutdown(connection->fd, SHUT_WR) < 0) {
        connection->over = true;
        return false;
    }
    connection->state = HTTP_LINGER_STATE;
    connection->since_ns = now_ns(connection);
    return true;
}

/* --- Requests ---------------------------------------------------------------------------------------------------- */

static void next_request(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    bool in_place = !connection->head_own && !connection->discard;
    if (in_place)
        http_buffer_take(&connection->in, head->size + (head->chunked ? 0 : head->length));
    free(connection->head_own);
    connection->head_own = NULL;
    http_buffer_free(&connection->body);
    http_head_reset(&connection->head);
    connection->discard = false;
    connection->state = HTTP_HEAD_STATE;
    connection->since_ns = now_ns(connection);
}

/* The request has been answered in full; its handler is not on the stack. */
void http_connection_answered(struct http_connection *connection)
{
    connection->sent_fn = NULL;
    connection->paused = false;
    if (connection->abandoned)
        return;
    if (connection->closing) {
        connection->state = HTTP_LAST_STATE;
    } else if (connection->state == HTTP_WAIT_STATE) {
        next_request(connection);
    } else if (!connection->discard) {
        connection->discard = true;
        if (!connection->head_own)
            http_buffer_take(&connection->in, connection->head.size);
    }
}

static void called(struct http_connection *connection)
{
    connection->inside = false;
    if (!connection->outstanding)
        http_connection_answered(connection);
}

static void call_data(struct http_connection *connection, fl_bytes piece, bool last)
{
    connection->inside = true;
    connection->request.data(&connection->request, piece, last);
    called(connection);
}

static void call_handle(struct http_connection *connection)
{
    connection->inside = true;
    connection->server->config.handlers->handle(&connection->request);
    called(connection);
}

/* The whole request has come. */
static void hand_over(struct http_connection *connection, fl_bytes body)
{
    connection->state = HTTP_WAIT_STATE;
    connection->handled = true;
    if (connection->request.data) {
        call_data(connection, body, true);
    } else {
        connection->request.body = body;
        call_handle(connection);
    }
}

static fl_bytes bytes_of(const struct http_connection *connection, struct http_slice slice)
{
    return (fl_bytes){connection->head_data + slice.at, slice.size};
}

static void fill_request(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    http_request *request = &connection->request;
    const struct sockaddr *peer = request->peer;
    bool local = request->local;
    *request = (http_request){
        .method = head->method, .has_body = head->chunked || head->length > 0, .local = local, .peer = peer};
    request->path = head->path.size > 0 ? bytes_of(connection, head->path) : (fl_bytes){"/", 1};
    request->query = bytes_of(connection, head->query);
    request->body_most = connection->server->config.max_body;
}

static size_t after_head(const struct http_connection *connection)
{
    return http_buffer_size(&connection->in) - connection->head.size;
}

/* A large body is held up to three times: as it came, in the engine, and on its way to the store. */
static size_t body_memory(const struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    const http_request *request = &connection->request;
    uint64_t size = head->chunked ? request->body_most : head->length;
    return request->data || size <= HTTP_FREE_BODY ? 0 : 3 * (size_t)size;
}

static bool reserve_memory(struct http_connection *connection)
{
    size_t size = connection->request.memory + body_memory(connection);
    return size == 0 || http_reserve(&connection->request, size, NULL);
}

/* The head has been looked at, and there is memory for the rest. */
static void begin_body(struct http_connection *connection)
{
    if (connection->state == HTTP_WAIT_STATE)
        hand_over(connection, (fl_bytes){0});
}

/* Returns whether there may be more to do. */
static bool memory_granted(struct http_connection *connection)
{
    connection->memory = HTTP_MEMORY_CALM;
    connection->since_ns = connection->body_since_ns = now_ns(connection);
    if (!connection->granted) {
        begin_body(connection);
        return true;
    }
    connection->inside = true;
    connection->granted(&connection->request);
    called(connection);
    return true;
}

static void hand_out(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    bool has_body = head->chunked || head->length > 0;
    connection->head_data = connection->in.data + connection->in.start;
    fill_request(connection);
    connection->state = has_body ? HTTP_BODY_STATE : HTTP_WAIT_STATE;
    connection->outstanding = true;
    connection->begun = connection->raw = connection->handled = false;
    connection->mute = head->method == HTTP_HEAD;
    connection->closing = !head->keep_alive;
    connection->linger = head->keep_alive;
    connection->corked = after_head(connection) > head->length;
    connection->body_left = head->length;
    connection->body_size = 0;
    connection->body_counted = after_head(connection);
    connection->chunks = (struct http_chunks){0};
    connection->since_ns = connection->body_since_ns = now_ns(connection);
    connection->server->stats.requests++;
    connection->inside = true;
    connection->server->config.handlers->head(&connection->request);
    called(connection);
    if (!connection->outstanding)
        return;
    if (head->length > connection->request.body_most)
        http_connection_refuse(connection, 413, "the body is too large");
    else if (connection->request.lasting && !http_memory_for_stream(connection))
        http_connection_refuse(connection, 503, "too many open streams; close some, or raise max-memory");
    else if (connection->request.lasting || reserve_memory(connection))
        begin_body(connection);
}

/* Returns whether there may be more to do. */
static bool read_head(struct http_connection *connection)
{
    const struct http_buffer *in = &connection->in;
    if (http_buffer_size(in) == 0) {
        connection->over = connection->eof || connection->server->stopping;
        return false;
    }
    if (http_buffer_size(&connection->out) > HTTP_OUT_MOST) {
        connection->corked = false;
        http_flush(connection);
        if (http_buffer_size(&connection->out) > HTTP_OUT_MOST)
            return false;
    }
    int r = http_parse(&connection->head, in->data + in->start, http_buffer_size(in), &connection->server->limits);
    if (r > 0 && connection->excess)
        http_connection_refuse(connection, 503, "the server has reached max-connections; try again later");
    else if (r > 0)
        hand_out(connection);
    else if (r < 0)
        http_connection_refuse(connection, -r, connection->head.problem);
    else
        connection->over = connection->eof;
    return r != 0;
}

/* --- Bodies ------------------------------------------------------------------------------------------------------ */

/* Sets the buffer with the head aside, and goes on with another one. */
static bool set_head_aside(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in, large = {0};
    size_t rest = after_head(connection);
    if (!http_buffer_reserve(&large, rest > HTTP_IN_LARGE ? rest : HTTP_IN_LARGE))
        return false;
    http_buffer_append(&large, in->data + in->start + connection->head.size, rest);
    connection->head_own = in->data;
    *in = large;
    return true;
}

/* A piece of the body, which lies in `in`. */
static void deliver(struct http_connection *connection, fl_bytes piece, bool last)
{
    http_request *request = &connection->request;
    connection->body_size += piece.size;
    if (connection->discard)
        return;
    if (connection->body_size > request->body_most ||
        connection->chunks.left > request->body_most - connection->body_size) /* of what a chunk promises */
        http_connection_refuse(connection, 413, "the body is too large");
    else if (!request->data && !http_buffer_append(&connection->body, piece.data, piece.size))
        http_connection_refuse(connection, 503, "the server has no memory for the body; try again later");
    else if (request->data && !last)
        call_data(connection, piece, false);
    else if (request->data)
        hand_over(connection, piece);
    else if (last)
        hand_over(connection, (fl_bytes){connection->body.data, connection->body.end});
}

/* Takes the next piece from what has come. Returns how many bytes of it are done with; `ret_last`: the body is whole. */
static size_t take_piece(struct http_connection *connection, bool *ret_last)
{
    const struct http_buffer *in = &connection->in;
    const char *data = in->data + in->start;
    size_t size = http_buffer_size(in), used = size;
    fl_bytes piece = {0};
    if (connection->head.chunked) {
        int r = http_chunks_next(&connection->chunks, data, size, &used, &piece);
        *ret_last = r == HTTP_CHUNKS_END;
        if (r == HTTP_CHUNKS_BAD)
            http_connection_refuse(connection, 400, "the chunks of the body are malformed");
        else if (piece.size > 0 || *ret_last)
            deliver(connection, piece, *ret_last);
    } else {
        used = size < connection->body_left ? size : (size_t)connection->body_left;
        connection->body_left -= used;
        *ret_last = connection->body_left == 0;
        deliver(connection, (fl_bytes){data, used}, *ret_last);
    }
    return used;
}

static bool read_pieces(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in;
    bool last = false;
    while (connection->state == HTTP_BODY_STATE && !connection->over && !connection->paused && !last &&
           http_buffer_size(in) > 0) {
        bool discarded = connection->discard;
        size_t used = take_piece(connection, &last);
        http_buffer_take(in, used);
        if (last && discarded)
            next_request(connection);
    }
    if (connection->state != HTTP_BODY_STATE)
        return true;
    connection->over = connection->over || (connection->eof && !connection->paused);
    return false;
}

/* The peer wants to know whether to send the body: yes, if it has not begun to. */
void http_connection_continue(struct http_connection *connection)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!connection->head.expects_continue || connection->state != HTTP_BODY_STATE)
        return;
    connection->head.expects_continue = false;
    if (after_head(connection) > 0)
        return;
    http_send(connection, (fl_bytes){text, sizeof(text) - 1});
    http_flush(connection);
}

static bool read_body(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    const struct http_buffer *in = &connection->in;
    if (connection->head_own || connection->discard)
        return read_pieces(connection);
    if (!head->chunked && after_head(connection) >= head->length && !connection->paused) {
        hand_over(connection, (fl_bytes){connection->head_data + head->size, head->length});
        return true;
    }
    http_connection_continue(connection);
    bool fits = !head->chunked && in->capacity - in->start - head->size >= head->length;
    if (fits && !connection->request.data) {
        connection->over = connection->eof;
        return false;
    }
    if (!set_head_aside(connection)) {
        http_connection_refuse(connection, 503, "the server has no memory for the body; try again later");
        return true;
    }
    return read_pieces(connection);
}

static bool waits_for_memory(const struct http_connection *connection)
{
    return connection->memory == HTTP_MEMORY_WAITS && !connection->granted;
}

/* Returns whether the request was answered. */
static bool tell_half_closed(struct http_connection *connection)
{
    void (*fn)(http_request *) = connection->request.half_closed;
    if (!connection->eof || !fn || !connection->outstanding)
        return false;
    connection->request.half_closed = NULL;
    connection->inside = true;
    fn(&connection->request);
    called(connection);
    return !connection->outstanding;
}

/* --- Steps ------------------------------------------------------------------------------------------------------- */

/* Does what the state asks for. Returns whether there may be more to do. */
static bool step(struct http_connection *connection)
{
    if (connection->memory == HTTP_MEMORY_GRANTED)
        return memory_granted(connection);
    if (waits_for_memory(connection)) {
        connection->over = connection->eof && connection->request.gone_at_eof;
        return false;
    }
    switch (connection->state) {
    case HTTP_HEAD_STATE:
        return read_head(connection);
    case HTTP_BODY_STATE:
        return read_body(connection);
    case HTTP_WAIT_STATE:
        connection->over = connection->over || (connection->eof && connection->request.gone_at_eof);
        return !connection->over && tell_half_closed(connection);
    case HTTP_LAST_STATE:
        return end(connection);
    case HTTP_LINGER_STATE:
        connection->over = connection->over || connection->eof;
        return false;
    default:
        return false;
    }
}

static void run(struct http_connection *connection)
{
    do {
        while (!connection->over && step(connection)) {
        }
        connection->corked = false;
        http_flush(connection);
    } while (!connection->over && http_tell_sent(connection));
    if (connection->over)
        http_connection_close(connection);
    else
        http_connection_settle(connection);
}

/* Whether the request lies in the buffer of what comes in, which must not move then. */
static bool is_pinned(const struct http_connection *connection)
{
    bool handed_out = connection->state == HTTP_BODY_STATE || connection->state == HTTP_WAIT_STATE;
    return handed_out && !connection->head_own && !connection->discard;
}

static bool wants_read(const struct http_connection *connection)
{
    if (connection->eof || connection->over)
        return false;
    switch (connection->state) {
    case HTTP_HEAD_STATE:
        return http_buffer_size(&connection->out) <= HTTP_OUT_MOST;
    case HTTP_BODY_STATE:
        return !connection->paused && !waits_for_memory(connection);
    case HTTP_WAIT_STATE:
        return !connection->in.data || connection->in.end < connection->in.capacity;
    case HTTP_LINGER_STATE:
        return true;
    default:
        return false;
    }
}

void http_connection_settle(struct http_connection *connection)
{
    http_memory_count(connection);
    bool reading = wants_read(connection);
    bool writing = http_buffer_size(&connection->out) > 0 || connection->tls_wants_write;
    unsigned events = (reading ? FL_READ : 0u) | (writing ? FL_WRITE : 0u);
    if (events != connection->events) {
        connection->events = events;
        connection->over =
            connection->over || fl_loop_fd_modify(connection->server->config.loop, connection->fd, events) < 0;
    }
    if (connection->over || (reading && connection->state != HTTP_LINGER_STATE && http_tls_pending(connection)))
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
    if (is_pinned(connection))
        return false;
    if (in->start == 0)
        return http_buffer_reserve(in, in->capacity);
    http_buffer_compact(in);
    return true;
}

static void throw_away(struct http_connection *connection)
{
    char data[4096];
    ssize_t n = recv(connection->fd, data, sizeof(data), 0); /* encrypted or not */
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        connection->over = true;
}

static void receive(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in;
    if (connection->state == HTTP_LINGER_STATE) {
        throw_away(connection);
        return;
    }
    if (!make_room(connection)) {
        connection->over = true;
        return;
    }
    bool first = connection->state == HTTP_HEAD_STATE && http_buffer_size(in) == 0;
    char *at = in->data + in->end;
    size_t room = in->capacity - in->end;
    ssize_t n = connection->ssl ? http_tls_read(connection, at, room) : recv(connection->fd, at, room, 0);
    if (n > 0) {
        in->end += (size_t)n;
        connection->server->stats.bytes_in += (uint64_t)n;
        connection->body_counted += (uint64_t)n;
        if (first || connection->state == HTTP_BODY_STATE)
            connection->since_ns = now_ns(connection);
    } else if (n == 0) {
        connection->eof = true;
    } else if (errno != EAGAIN && errno != EINTR) {
        connection->over = true;
    }
}

static void on_event(fl_loop *loop, int fd, unsigned events, void *arg)
{
    struct http_connection *connection = arg;
    (void)loop;
    (void)fd;
    if (events & FL_WRITE) {
        connection->tls_wants_write = false;
        http_flush(connection);
    }
    if (wants_read(connection) && (events & FL_READ || connection->ssl))
        receive(connection);
    else if (events & (FL_ERROR | FL_HANGUP))
        connection->over = true;
    run(connection);
}

/* Also for what a descriptor will not tell: bytes that have been decrypted, or come before reading was stopped. */
void http_connection_go_on(struct http_connection *connection)
{
    if (wants_read(connection) && connection->state != HTTP_LINGER_STATE && http_tls_pending(connection))
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
    if (connection->request.data) /* a stream comes as it comes */
        return false;
    return elapsed > (uint64_t)RATE_SECONDS * SECOND && connection->body_counted < elapsed / SECOND * config->min_rate;
}

/* Between requests: nothing has to be kept for what may never come. */
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
    bool idle = http_buffer_size(&connection->in) == 0 && !http_tls_in_handshake(connection);
    return now - connection->since_ns > (idle ? config->idle_timeout_ns : config->head_timeout_ns);
}

/* Whether the peer has taken too long. */
static bool is_slow(const struct http_connection *connection, uint64_t now)
{
    if (connection->outstanding && connection->request.endless)
        return false;
    if (http_buffer_size(&connection->out) > 0 &&
        now - connection->out_since_ns > connection->server->config.body_timeout_ns)
        return true;
    if (waits_for_memory(connection))
        return now - connection->since_ns > connection->server->config.body_timeout_ns;
    switch (connection->state) {
    case HTTP_HEAD_STATE:
        return head_is_slow(connection, now);
    case HTTP_BODY_STATE:
        return body_is_slow(connection, now);
    case HTTP_LINGER_STATE:
        return now - connection->since_ns > (uint64_t)LINGER_SECONDS * SECOND;
    default:
        return false;
    }
}

/* Its handler ends it, and says why. */
static void tell_slow(struct http_connection *connection)
{
    void (*slow)(http_request *) = connection->request.slow;
    connection->request.slow = NULL;
    connection->inside = true;
    slow(&connection->request);
    called(connection);
}

void http_connection_expire(struct http_connection *connection, uint64_t now)
{
    bool heads = connection->state == HTTP_HEAD_STATE, bodies = connection->state == HTTP_BODY_STATE;
    bool wasteful = http_memory_is_wasted(connection, now) && !connection->request.endless;
    if (!is_slow(connection, now) && !wasteful) {
        if (heads && now - connection->since_ns > SECOND)
            shrink(connection);
        return;
    }
    bool waiting = http_buffer_size(&connection->in) > 0 || bodies;
    bool can_answer = http_buffer_size(&connection->out) == 0 && !connection->discard;
    if (waiting || http_buffer_size(&connection->out) > 0)
        connection->server->stats.timeouts++;
    if (bodies && connection->outstanding && connection->request.slow) {
        tell_slow(connection);
    } else if (waits_for_memory(connection))
        http_connection_refuse(connection, 503,
                               "other requests use all memory for large requests; try again later, request smaller "
                               "pages, or raise max-memory");
    else if ((heads || bodies) && waiting && can_answer)
        http_connection_refuse(connection, 408, "the request arrived too slowly");
    else
        connection->over = true;
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

/* Counts a connection. Those beyond the limit are few: they are there to be told so. */
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

void http_connection_open(http_server *server, int fd, const struct sockaddr *peer, socklen_t size)
{
    bool excess;
    if (!count_in(server, &excess)) {
        close(fd);
        return;
    }
    struct http_connection *connection = calloc(1, sizeof(*connection));
    if (!connection) {
        count_out(server, excess);
        close(fd);
        return;
    }
    connection->server = server;
    connection->excess = excess;
    connection->fd = fd;
    connection->events = FL_READ;
    connection->since_ns = now_ns(connection);
    http_link_init(&connection->ready);
    http_link_init(&connection->hungry);
    http_link_append(&server->connections, &connection->link);
    memcpy(&connection->peer, peer, size < sizeof(connection->peer) ? size : sizeof(connection->peer));
    connection->request.peer = &connection->peer.any;
    connection->request.local = is_loopback(&connection->peer.any);
    server->stats.connections++;
    if ((server->config.tls && !http_tls_open(server->config.tls, connection)) ||
        fl_loop_fd_add(server->config.loop, fd, FL_READ, on_event, connection) < 0)
        http_connection_close(connection);
}
