/* SPDX-License-Identifier: MIT */
/* From bytes to requests, one after the other.
 *
 * A request is parsed where it lies, and stays there until it has been answered. So does its body if it fits behind the head.
 * Otherwise the buffer with the head is set aside, and the body comes through another one: handed on in pieces, or collected in a
 * third. In the steady state of small requests, nothing is allocated. */

#include <stdlib.h>

#include "base/assert.h"
#include "http/internal.h"

/* --- Handlers ---------------------------------------------------------------------------------------------------- */

void http_enter(struct http_connection *connection)
{
    fl__assert(!connection->inside);
    connection->inside = true;
}

void http_leave(struct http_connection *connection)
{
    fl__assert(connection->inside);
    connection->inside = false;
    if (connection->stage == HTTP_NO_REQUEST)
        http_answered(connection);
}

static void next_request(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    bool in_place = !connection->head_own && connection->state != HTTP_DISCARDED;
    if (in_place)
        http_buffer_take(&connection->in, head->size + (head->framing == HTTP_LENGTH ? head->length : 0));
    free(connection->head_own);
    connection->head_own = NULL;
    http_buffer_free(&connection->collected);
    connection->head = (struct http_head){0};
    connection->fields.count = 0;
    http_move(connection, HTTP_IDLE);
    connection->since_ns = http_now_ns(connection);
}

/* The request has been answered in full; its handler is not on the stack. */
void http_answered(struct http_connection *connection)
{
    fl__assert(connection->stage == HTTP_NO_REQUEST && !connection->inside);
    connection->sent_fn = NULL;
    connection->paused = false;
    if (connection->memory != HTTP_MEMORY_CALM)
        http_memory_leave(connection);
    if (connection->state >= HTTP_LAST)
        return;
    if (connection->ending != HTTP_KEEP) {
        http_move(connection, HTTP_LAST);
    } else if (connection->state == HTTP_BODY) {
        if (!connection->head_own)
            http_buffer_take(&connection->in, connection->head.size);
        http_move(connection, HTTP_DISCARDED);
    } else {
        next_request(connection);
    }
}

static void call_data(struct http_connection *connection, fl_bytes piece, bool last)
{
    http_enter(connection);
    connection->request.data(&connection->request, piece, last);
    http_leave(connection);
}

/* The whole request has come. */
static void hand_over(struct http_connection *connection, fl_bytes body)
{
    if (connection->stage == HTTP_OFFERED)
        http_set_stage(connection, HTTP_TAKEN);
    http_move(connection, HTTP_HANDLED);
    if (connection->request.data) {
        call_data(connection, body, true);
        return;
    }
    connection->request.body = body;
    http_enter(connection);
    connection->server->config.handlers->handle(&connection->request);
    http_leave(connection);
}

/* --- Heads ------------------------------------------------------------------------------------------------------- */

static fl_bytes bytes_of(const struct http_connection *connection, struct http_slice slice)
{
    return (fl_bytes){connection->head_data + slice.at, slice.size};
}

static void fill_request(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    http_request *request = &connection->request;
    *request = (http_request){.method = head->method,
                              .has_body = head->framing != HTTP_NO_BODY,
                              .local = request->local,
                              .peer = request->peer,
                              .body_most = connection->server->config.max_body};
    request->path = head->path.size > 0 ? bytes_of(connection, head->path) : (fl_bytes){"/", 1};
    request->query = bytes_of(connection, head->query);
    request->authority = bytes_of(connection, head->authority);
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
    uint64_t size = head->framing == HTTP_CHUNKED ? request->body_most : head->length;
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
    if (connection->state == HTTP_WHOLE)
        hand_over(connection, (fl_bytes){0});
}

bool http_memory_granted(struct http_connection *connection)
{
    connection->memory = HTTP_MEMORY_CALM;
    connection->since_ns = connection->body_since_ns = http_now_ns(connection);
    if (!connection->granted) {
        begin_body(connection);
        return true;
    }
    http_enter(connection);
    connection->granted(&connection->request);
    http_leave(connection);
    return true;
}

/* Sets up everything about the request that has come. */
static void begin_request(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    connection->head_data = http_buffer_data(&connection->in);
    fill_request(connection);
    http_body_begin(&connection->body, head);
    connection->form = head->method == HTTP_HEAD ? HTTP_MUTE : HTTP_IN_CHUNKS;
    connection->ending = head->keep_alive ? HTTP_KEEP : HTTP_CLOSE;
    connection->corked = after_head(connection) > head->length;
    connection->body_size = 0;
    connection->body_counted = after_head(connection);
    connection->since_ns = connection->body_since_ns = http_now_ns(connection);
    connection->server->stats.requests++;
    http_set_stage(connection, HTTP_OFFERED);
    http_move(connection, head->framing == HTTP_NO_BODY ? HTTP_WHOLE : HTTP_BODY);
}

static void hand_out(struct http_connection *connection)
{
    begin_request(connection);
    http_enter(connection);
    connection->server->config.handlers->head(&connection->request);
    http_leave(connection);
    if (connection->stage == HTTP_NO_REQUEST)
        return;
    if (connection->head.length > connection->request.body_most)
        http_connection_refuse(connection, 413, "the body is too large");
    else if (connection->request.lasting && !http_memory_for_stream(connection))
        http_connection_refuse(connection, 503, "too many open streams; close some, or raise max-memory");
    else if (connection->request.lasting || reserve_memory(connection))
        begin_body(connection);
}

bool http_read_request(struct http_connection *connection)
{
    const struct http_buffer *in = &connection->in;
    http_server *server = connection->server;
    if (http_buffer_size(in) == 0) {
        if (connection->eof || server->stopping)
            http_break(connection);
        return false;
    }
    if (http_buffer_size(&connection->out) > HTTP_OUT_MOST) {
        connection->corked = false;
        http_flush(connection);
        if (http_is_over(connection) || http_buffer_size(&connection->out) > HTTP_OUT_MOST)
            return false;
    }
    int r = http_read_head(&connection->head, http_buffer_data(in), http_buffer_size(in), &server->rules,
                           &connection->fields);
    if (r > 0 && connection->excess)
        http_connection_refuse(connection, 503, "the server has reached max-connections; try again later");
    else if (r > 0)
        hand_out(connection);
    else if (r < 0)
        http_connection_refuse(connection, -r, connection->head.problem);
    else if (connection->eof)
        http_break(connection);
    return r != 0;
}

/* --- Bodies ------------------------------------------------------------------------------------------------------ */

bool http_is_pinned(const struct http_connection *connection)
{
    return connection->state >= HTTP_BODY && connection->state <= HTTP_UPGRADED &&
           connection->state != HTTP_DISCARDED && !connection->head_own;
}

/* Sets the buffer with the head aside, and goes on with another one. */
static bool set_head_aside(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in, large = {0};
    size_t rest = after_head(connection);
    if (!http_buffer_reserve(&large, rest > HTTP_IN_LARGE ? rest : HTTP_IN_LARGE))
        return false;
    http_buffer_append(&large, http_buffer_data(in) + connection->head.size, rest);
    connection->head_own = in->data;
    *in = large;
    return true;
}

/* A piece of the body, which lies in `in`. */
static void deliver(struct http_connection *connection, fl_bytes piece, bool last)
{
    http_request *request = &connection->request;
    connection->body_size += piece.size;
    if (connection->state == HTTP_DISCARDED)
        return;
    if (connection->body_size > request->body_most ||
        connection->body.left > request->body_most - connection->body_size) /* that this chunk announces */
        http_connection_refuse(connection, 413, "the body is too large");
    else if (!request->data && !http_buffer_append(&connection->collected, piece.data, piece.size))
        http_connection_refuse(connection, 503, "the server has no memory for the body; try again later");
    else if (request->data && !last)
        call_data(connection, piece, false);
    else if (request->data)
        hand_over(connection, piece);
    else if (last)
        hand_over(connection, (fl_bytes){connection->collected.data, connection->collected.end});
}

/* Takes the next piece from `in`. Returns whether it was the last. */
static bool take_piece(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in;
    size_t used;
    fl_bytes piece;
    enum http_body_step r =
        http_body_next(&connection->body, http_buffer_data(in), http_buffer_size(in), &used, &piece);
    if (r == HTTP_BODY_BAD || r == HTTP_BODY_LONG)
        http_connection_refuse(connection, 400, "the chunks of the body are malformed");
    else if (r != HTTP_BODY_MORE)
        deliver(connection, piece, r == HTTP_BODY_END);
    http_buffer_take(in, used);
    return r == HTTP_BODY_END;
}

static bool read_pieces(struct http_connection *connection)
{
    enum http_state before;
    do {
        if (connection->paused || http_buffer_size(&connection->in) == 0) {
            if (connection->eof && !connection->paused)
                http_break(connection);
            return false;
        }
        before = connection->state;
        if (take_piece(connection) && before == HTTP_DISCARDED)
            next_request(connection);
    } while (connection->state == HTTP_BODY || connection->state == HTTP_DISCARDED);
    return true;
}

/* The peer asks whether to send the body. The answer is yes, unless the body has begun to come. */
void http_continue(struct http_connection *connection)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!connection->head.expects_continue || connection->state != HTTP_BODY)
        return;
    connection->head.expects_continue = false;
    if (after_head(connection) > 0)
        return;
    http_send(connection, (fl_bytes){text, sizeof(text) - 1});
    http_flush(connection);
}

bool http_read_body(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    const struct http_buffer *in = &connection->in;
    if (connection->head_own || connection->state == HTTP_DISCARDED)
        return read_pieces(connection);
    bool has_length = head->framing == HTTP_LENGTH;
    if (has_length && after_head(connection) >= head->length && !connection->paused) {
        hand_over(connection, (fl_bytes){connection->head_data + head->size, head->length});
        return true;
    }
    http_continue(connection);
    if (http_is_over(connection))
        return false;
    bool fits = has_length && in->capacity - in->start - head->size >= head->length;
    if (fits && !connection->request.data) {
        if (connection->eof)
            http_break(connection);
        return false;
    }
    if (!set_head_aside(connection)) {
        http_connection_refuse(connection, 503, "the server has no memory for the body; try again later");
        return true;
    }
    return read_pieces(connection);
}

/* --- Bytes that are not HTTP ------------------------------------------------------------------------------------- */

bool http_read_upgraded(struct http_connection *connection)
{
    struct http_buffer *in = &connection->in;
    if (!connection->head_own && !set_head_aside(connection)) {
        http_break(connection);
        return false;
    }
    if (!connection->paused && http_buffer_size(in) > 0) {
        size_t size = http_buffer_size(in);
        call_data(connection, (fl_bytes){http_buffer_data(in), size}, false);
        http_buffer_take(in, size);
        return true;
    }
    if (connection->eof && !connection->paused)
        http_break(connection);
    return false;
}
