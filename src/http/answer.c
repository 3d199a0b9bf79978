/* SPDX-License-Identifier: MIT */
/* Answers: each is put together in the connection's buffer and written at once, without waiting for the descriptor to be
 * ready. Only bytes that the peer does not take then wait for that. Of a large body, only the rest that was not taken is
 * copied. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/assert.h"
#include "http/internal.h"
#include "text/problem.h"

enum { LARGE = 16384 };

/* --- Writing ----------------------------------------------------------------------------------------------------- */

static void sent(struct http_connection *connection, size_t size)
{
    http_buffer_take(&connection->out, size);
    connection->server->stats.bytes_out += size;
    connection->pace_bytes += size;
    connection->out_since_ns = http_now_ns(connection);
}

static void write_failed(struct http_connection *connection)
{
    if (errno != EAGAIN && errno != EINTR)
        http_break(connection);
}

void http_flush(struct http_connection *connection)
{
    const struct http_buffer *out = &connection->out;
    if (!(connection->events & FL_WRITE)) /* it has not been waiting */
        connection->out_since_ns = http_now_ns(connection);
    while (!connection->corked && !http_is_over(connection) && http_buffer_size(out) > 0) {
        ssize_t n = http_stream_write(&connection->stream, http_buffer_data(out), http_buffer_size(out));
        if (n < 0) {
            write_failed(connection);
            return;
        }
        sent(connection, (size_t)n);
    }
}

/* Writes what waits and these bytes without copying them. Returns how many of them have gone. */
static size_t send_both(struct http_connection *connection, fl_bytes bytes)
{
    size_t waiting = http_buffer_size(&connection->out);
    struct iovec parts[] = {{http_buffer_data(&connection->out), waiting},
                            {(void *)bytes.data, bytes.size}}; /* it is only read */
    struct msghdr message = {.msg_iov = waiting ? parts : parts + 1, .msg_iovlen = waiting ? 2 : 1};
    ssize_t n = sendmsg(connection->stream.fd, &message, MSG_NOSIGNAL);
    if (n < 0) {
        write_failed(connection);
        return 0;
    }
    size_t taken = (size_t)n < waiting ? (size_t)n : waiting;
    sent(connection, taken);
    connection->server->stats.bytes_out += (size_t)n - taken;
    return (size_t)n - taken;
}

void http_send(struct http_connection *connection, fl_bytes bytes)
{
    size_t gone = 0;
    bool waiting = connection->events & FL_WRITE;
    if (bytes.size >= LARGE && !connection->stream.ssl && !connection->corked && !http_is_over(connection) && !waiting)
        gone = send_both(connection, bytes);
    if (!http_buffer_append(&connection->out, (const char *)bytes.data + gone, bytes.size - gone))
        http_break(connection);
}

/* --- Heads ------------------------------------------------------------------------------------------------------- */

/* The Date header, made once per second. */
static const char *date_line(http_server *server)
{
    uint64_t second = fl_loop_now_ns(server->config.loop) / 1000000000 + 1;
    if (server->date_second != second) {
        time_t now = time(NULL);
        struct tm tm;
        gmtime_r(&now, &tm);
        strftime(server->date, sizeof(server->date), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
        server->date_second = second;
    }
    return server->date;
}

static char *put_number(char *at, uint64_t number, unsigned base)
{
    char digits[20];
    int n = 0;
    do {
        digits[n++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

static bool has_no_body(int status)
{
    return status < 200 || status == 204 || status == 304;
}

/* Puts a head into the buffer; `how` says where the body ends. */
static void put_head(struct http_connection *connection, int status, const char *type, const char *extra,
                     const char *how)
{
    enum { FIXED = 200 }; /* everything that is not counted below */
    struct http_buffer *out = &connection->out;
    const char *reason = status_text(status);
    size_t size = FIXED + strlen(reason) + (type ? strlen(type) : 0) + (extra ? strlen(extra) : 0) + strlen(how);
    if (!http_buffer_reserve(out, size)) {
        http_break(connection);
        return;
    }
    char *at = stpcpy(out->data + out->end, "HTTP/1.1 ");
    at = put_number(at, (uint64_t)status, 10);
    *at++ = ' ';
    at = stpcpy(at, reason);
    at = stpcpy(at, "\r\n");
    at = stpcpy(at, date_line(connection->server));
    if (type)
        at = stpcpy(stpcpy(stpcpy(at, "Content-Type: "), type), "\r\n");
    if (connection->ending != HTTP_KEEP)
        at = stpcpy(at, "Connection: close\r\n");
    else if (connection->head.minor == 0)
        at = stpcpy(at, "Connection: keep-alive\r\n");
    if (extra)
        at = stpcpy(at, extra);
    at = stpcpy(stpcpy(at, how), "\r\n");
    out->end = (size_t)(at - out->data);
}

/* A head and a body whose size is known. */
static void put_answer(struct http_connection *connection, int status, const char *type, const char *extra,
                       fl_bytes body)
{
    char length[64];
    char *at = stpcpy(length, "Content-Length: ");
    stpcpy(put_number(at, body.size, 10), "\r\n");
    bool bodiless = has_no_body(status);
    put_head(connection, status, type, extra, bodiless ? "" : length);
    if (!bodiless && connection->form != HTTP_MUTE && body.size > 0)
        http_send(connection, body);
    http_flush(connection);
}

void http_answer_problem(struct http_connection *connection, int status, const char *problem)
{
    char text[1024];
    size_t size = connection->server->config.handlers->problem(status, problem, text, sizeof(text));
    connection->ending = HTTP_CLOSE_SLOWLY;
    connection->corked = false;
    connection->form = connection->head.begun && connection->head.method == HTTP_HEAD ? HTTP_MUTE : HTTP_IN_CHUNKS;
    put_answer(connection, status, "application/problem+json", status == 503 ? "Retry-After: 1\r\n" : NULL,
               (fl_bytes){text, size < sizeof(text) ? size : sizeof(text) - 1});
}

/* --- For handlers ------------------------------------------------------------------------------------------------ */

static void close_after(struct http_connection *connection)
{
    if (connection->ending == HTTP_KEEP)
        connection->ending = HTTP_CLOSE_SLOWLY;
}

/* Decides whether the connection ends with this answer. The rest of the body must be read before the next request can be. If
 * the rest may be long, or if the peer may not even send it, a new connection is cheaper. */
static void decide(struct http_connection *connection)
{
    const struct http_head *head = &connection->head;
    if (connection->state == HTTP_BODY &&
        (head->framing == HTTP_CHUNKED || head->expects_continue || connection->body.left > HTTP_DRAIN_MOST))
        connection->ending = HTTP_CLOSE_SLOWLY;
    if (connection->server->draining)
        close_after(connection);
}

static bool is_abandoned(const struct http_connection *connection)
{
    return connection->stage == HTTP_ABANDONED;
}

/* The request has its answer. */
static void finish(struct http_connection *connection)
{
    http_set_stage(connection, HTTP_NO_REQUEST);
    if (connection->inside)
        return;
    if (connection->state == HTTP_CLOSED) {
        http_connection_free(connection);
        return;
    }
    http_answered(connection);
    bool idle = connection->state == HTTP_IDLE && http_buffer_size(&connection->in) == 0 && !connection->eof;
    if (idle)
        http_connection_update_events(connection);
    else
        http_make_ready(connection);
}

/* A handler that is on the stack has the connection looked after when it returns. */
static void update_events(struct http_connection *connection)
{
    if (!connection->inside)
        http_connection_update_events(connection);
}

void http_answer(http_request *request, int status, const char *type, const char *extra, fl_bytes body)
{
    struct http_connection *connection = http_connection_of(request);
    fl__assert(connection->stage != HTTP_NO_REQUEST && connection->stage != HTTP_BEGUN);
    if (!is_abandoned(connection)) {
        decide(connection);
        put_answer(connection, status, type, extra, body);
    }
    finish(connection);
}

void http_begin(http_request *request, int status, const char *type, const char *extra)
{
    struct http_connection *connection = http_connection_of(request);
    if (is_abandoned(connection))
        return;
    if (request->data) /* the body goes on while the answer does */
        http_continue(connection);
    bool bodiless = has_no_body(status);
    http_set_stage(connection, HTTP_BEGUN);
    if (bodiless)
        connection->form = HTTP_MUTE;
    else if (connection->head.minor == 0 && connection->form != HTTP_MUTE)
        connection->form = HTTP_RAW;
    if (connection->head.minor == 0 || connection->server->draining)
        close_after(connection);
    bool chunked = connection->head.minor > 0 && !bodiless;
    put_head(connection, status, type, extra, chunked ? "Transfer-Encoding: chunked\r\n" : "");
    http_flush(connection);
    update_events(connection);
}

bool http_upgrade(http_request *request, const char *extra)
{
    struct http_connection *connection = http_connection_of(request);
    fl__assert(connection->inside && request->data);
    if (connection->state != HTTP_WHOLE || connection->ending != HTTP_KEEP || connection->head.minor == 0)
        return false;
    put_head(connection, 101, NULL, extra, "");
    http_set_stage(connection, HTTP_BEGUN);
    connection->form = HTTP_RAW;
    connection->ending = HTTP_CLOSE_SLOWLY;
    connection->corked = false;
    if (!http_is_over(connection))
        http_move(connection, HTTP_UPGRADED);
    http_flush(connection);
    return true;
}

void http_write(http_request *request, fl_bytes piece)
{
    struct http_connection *connection = http_connection_of(request);
    char size[24];
    if (is_abandoned(connection) || connection->form == HTTP_MUTE || piece.size == 0)
        return;
    fl__assert(connection->stage == HTTP_BEGUN);
    stpcpy(put_number(size, piece.size, 16), "\r\n");
    if (connection->form == HTTP_IN_CHUNKS)
        http_send(connection, (fl_bytes){size, strlen(size)});
    http_send(connection, piece);
    if (connection->form == HTTP_IN_CHUNKS)
        http_send(connection, (fl_bytes){"\r\n", 2});
    http_flush(connection);
    update_events(connection);
}

void http_end(http_request *request)
{
    struct http_connection *connection = http_connection_of(request);
    if (!is_abandoned(connection)) {
        fl__assert(connection->stage == HTTP_BEGUN);
        decide(connection);
        if (connection->form == HTTP_IN_CHUNKS)
            http_send(connection, (fl_bytes){"0\r\n\r\n", 5});
        http_flush(connection);
    }
    finish(connection);
}

size_t http_unsent(http_request *request)
{
    const struct http_connection *connection = http_connection_of(request);
    return is_abandoned(connection) ? 0 : http_buffer_size(&connection->out);
}

void http_when_sent(http_request *request, size_t size, void (*fn)(http_request *request))
{
    struct http_connection *connection = http_connection_of(request);
    connection->sent_size = size;
    connection->sent_fn = fn;
    if (connection->state != HTTP_CLOSED && http_buffer_size(&connection->out) < size)
        http_make_ready(connection);
}

bool http_tell_sent(struct http_connection *connection)
{
    void (*fn)(http_request *) = connection->sent_fn;
    if (!fn || connection->stage == HTTP_NO_REQUEST || http_buffer_size(&connection->out) >= connection->sent_size)
        return false;
    connection->sent_fn = NULL;
    http_enter(connection);
    fn(&connection->request);
    http_leave(connection);
    return true;
}

bool http_channel_key(http_request *request, unsigned char out[HTTP_CHANNEL_KEY])
{
    return http_stream_key(&http_connection_of(request)->stream, out);
}
