/* SPDX-License-Identifier: MIT */
/* The connection of a link: from the address to the proof, and bytes both ways.
 *
 * TLS does not check certificates: the proof that both sides give is bound to the connection, and a program between two connections
 * cannot give it. The first read or write does the TLS handshake, so there is no state for it here. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "peer/internal.h"

enum { HEAD_MOST = 16384, READ_SIZE = 65536, READS_AT_ONCE = 4 };

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void wait_for_events(peer_link *link)
{
    unsigned events = http_stream_events(&link->stream, true, http_buffer_size(&link->out) > 0);
    if (events != link->events)
        fl_loop_fd_modify(link->loop, link->stream.fd, events);
    link->events = events;
}

static void lose_connection(peer_link *link)
{
    const char *problem =
        link->stream.problem ? link->stream.problem : strerror(errno); /* NOLINT(concurrency-mt-unsafe) */
    peer_link_lose(link, "the connection was lost: %s", problem);
}

void peer_dial_flush(peer_link *link)
{
    struct http_buffer *out = &link->out;
    if (!peer_link_is_open(link) || link->connecting)
        return;
    while (http_buffer_size(out) > 0) {
        ssize_t n = http_stream_write(&link->stream, http_buffer_data(out), http_buffer_size(out));
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            lose_connection(link);
            return;
        }
        if (n < 0)
            break;
        link->written += (size_t)n;
        link->quiet = 0;
        http_buffer_take(out, (size_t)n);
    }
    wait_for_events(link);
}

/* --- The handshake ------------------------------------------------------------------------------------------------ */

static void prove(peer_link *link)
{
    unsigned char proof[PEER_MAC];
    link->pact.bound = http_stream_key(&link->stream, link->pact.channel);
    if (link->tls && !link->pact.bound) {
        peer_link_lose(link, "cannot read the TLS keys of the connection");
    } else if (!peer_prove(&link->pact, PEER_CALLER, proof) ||
               !peer_put(&link->out, PEER_PROOF, 0, (fl_bytes){proof, PEER_MAC})) {
        peer_link_lose(link, "%s", fl_strerror(FL_NO_MEMORY));
    } else {
        link->state = PEER_PROVING;
        peer_link_wake(link);
    }
}

static void check_proof(peer_link *link, const struct peer_frame *frame)
{
    if (frame->kind == PEER_REFUSED)
        peer_link_lose(link, "the other server has another secret%s",
                       link->tls ? ", or a proxy terminates TLS" : ", or requires TLS");
    else if (frame->kind != PEER_PROOF || !peer_is_proof(&link->pact, PEER_CALLED, frame->body))
        peer_link_lose(link, "the other server cannot prove that it knows the secret");
    else
        peer_link_proved(link);
}

static fl_bytes header(const peer_link *link, const char *name)
{
    return http_field_value(&link->fields, http_buffer_data(&link->in), name);
}

/* The head of the response is whole. */
static void take_head(peer_link *link)
{
    fl_bytes version = header(link, "foliot-peer-version");
    bool upgraded = http_same(header(link, "upgrade"), PEER_UPGRADE);
    if (link->head.minor == 0)
        peer_link_lose(link, "the response is not HTTP/1.1");
    else if (link->head.status == 200 && version.size > 0)
        peer_link_lose(
            link, "the other server runs an earlier version of Foliot, which does not upgrade connections; run the "
                  "same version on all servers");
    else if (link->head.status != 101)
        peer_link_lose(link, "the other server refused the link with status %d", link->head.status);
    else if (!upgraded || !peer_pact_hear(&link->pact, PEER_CALLED, version, header(link, "foliot-peer-random")))
        peer_link_lose(link, "the response does not come from a Foliot server");
    else if (!peer_pact_agrees(&link->pact))
        peer_link_lose(link, "the other server speaks version %u of the protocol, this server speaks version %u",
                       link->pact.version[PEER_CALLED], link->pact.version[PEER_CALLER]);
    else
        prove(link);
}

static void explain_bad_head(peer_link *link)
{
    const struct http_buffer *in = &link->in;
    bool http = http_buffer_size(in) >= 5 && memcmp(http_buffer_data(in), "HTTP/", 5) == 0;
    if (http_buffer_size(in) > HEAD_MOST)
        peer_link_lose(link, "the head of the response is too large");
    else if (http)
        peer_link_lose(link, "the response is not HTTP/1.1");
    else
        peer_link_lose(link, "the response is not HTTP; check that both servers use TLS, or neither");
}

/* --- Receiving ---------------------------------------------------------------------------------------------------- */

static void take_frames(peer_link *link, fl_bytes input)
{
    struct peer_frame frame;
    int r;
    while ((r = peer_read(&link->reader, &input, &frame)) > 0) {
        if (link->state == PEER_PROVING)
            check_proof(link, &frame);
        else
            peer_link_handle(link, &frame);
        if (!peer_link_is_open(link))
            return;
    }
    if (r == FL_NO_MEMORY)
        peer_link_lose(link, "out of memory for a response");
    else if (r < 0)
        peer_link_lose(link, "the other server sent a message that is malformed or too large");
}

/* Collects the head. Bytes after it are frames already. */
static void take_response(peer_link *link, const char *data, size_t size)
{
    static const struct http_rules rules = {HTTP_RESPONSE, .max_head = HEAD_MOST, .field = http_keep_field};
    struct http_buffer *in = &link->in;
    if (!http_buffer_append(in, data, size)) {
        peer_link_lose(link, "%s", fl_strerror(FL_NO_MEMORY));
        return;
    }
    int r = http_read_head(&link->head, http_buffer_data(in), http_buffer_size(in), &rules, &link->fields);
    if (r < 0)
        explain_bad_head(link);
    if (r <= 0)
        return;
    take_head(link);
    size_t head = link->head.size;
    if (peer_link_is_open(link))
        take_frames(link, (fl_bytes){http_buffer_data(in) + head, http_buffer_size(in) - head});
}

static void receive(peer_link *link)
{
    char data[READ_SIZE];
    for (int i = 0; i < READS_AT_ONCE && peer_link_is_open(link); i++) {
        ssize_t n = http_stream_read(&link->stream, data, sizeof data);
        if (n == 0) {
            peer_link_lose(link, "the other server has closed the connection");
            return;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            lose_connection(link);
            return;
        }
        if (n < 0)
            break;
        link->silent = 0;
        if (link->state == PEER_ASKING)
            take_response(link, data, (size_t)n);
        else
            take_frames(link, (fl_bytes){data, (size_t)n});
    }
    if (peer_link_is_open(link))
        wait_for_events(link);
}

static void on_event(fl_loop *loop, int fd, unsigned events, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    (void)fd;
    peer_link_enter(link);
    int error = link->connecting ? http_stream_dialled(&link->stream) : 0;
    link->connecting = false;
    if (error)
        peer_link_lose(link, "cannot connect: %s", strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
    else if (events & FL_WRITE || link->stream.ssl)
        peer_dial_flush(link);
    if (peer_link_is_open(link) && (events & ~(unsigned)FL_WRITE || link->stream.ssl))
        receive(link);
    peer_link_leave(link);
}

/* --- Connecting --------------------------------------------------------------------------------------------------- */

static bool put_request(peer_link *link)
{
    char text[PEER_HELLO + 2 * PEER_ADDRESS_MOST + 256], hello[PEER_HELLO];
    peer_pact_say(&link->pact, PEER_CALLER, hello);
    int size = snprintf(text, sizeof text,
                        "POST /v1/peer HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n" PEER_UPGRADE_LINES
                        "Foliot-Peer-Address: %s\r\n%s\r\n",
                        link->address, link->self, hello);
    fl__assert(size > 0 && (size_t)size < sizeof text);
    return http_buffer_append(&link->out, text, (size_t)size);
}

/* Nothing of the connection before is left. */
static void reset(peer_link *link)
{
    http_buffer_free(&link->out);
    http_buffer_free(&link->in);
    peer_reader_free(&link->reader);
    link->reader.most = PEER_MAC;
    link->head = (struct http_head){0};
    link->fields.count = 0;
    link->written = 0;
    link->closed = false;
    link->age = link->silent = link->quiet = 0;
}

/* Connects to the address whose turn it is. */
static void connect_next(peer_link *link)
{
    fl_bytes secret = {link->secret, link->secret_size};
    fl__assert(!peer_link_is_open(link) && link->at && TAILQ_EMPTY(&link->calls));
    reset(link);
    link->state = PEER_ASKING;
    if (!peer_pact_begin(&link->pact, secret, PEER_CALLER) || !put_request(link)) {
        peer_link_lose(link, "%s", fl_strerror(FL_NO_MEMORY));
        return;
    }
    int error = http_stream_dial(&link->stream, link->at->ai_addr, link->at->ai_addrlen, link->tls);
    link->connecting = true;
    link->events = FL_WRITE;
    if (!error && fl_loop_fd_add(link->loop, link->stream.fd, FL_WRITE, on_event, link) < 0) {
        http_stream_close(&link->stream);
        error = ENOMEM;
    }
    if (error)
        peer_link_lose(link, "cannot connect: %s", strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
}

static void on_found(void *arg, struct addrinfo *found, int error)
{
    peer_link *link = arg;
    peer_link_enter(link);
    link->lookup = NULL;
    link->found = link->at = found;
    if (found)
        connect_next(link);
    else
        peer_link_lose(link, "cannot resolve the name %s: %s", link->host, gai_strerror(error));
    peer_link_leave(link);
}

void peer_dial(peer_link *link)
{
    fl__assert(link->state == PEER_WAITING);
    if (link->at) {
        connect_next(link);
        return;
    }
    link->state = PEER_LOOKING;
    int r = peer_lookup_begin(link->loop, link->host, link->port, on_found, link, &link->found, &link->lookup);
    link->at = link->found;
    if (r > 0)
        connect_next(link);
    else if (r < 0)
        peer_link_lose(link, "cannot resolve the name %s: %s", link->host, fl_strerror(r));
}

void peer_dial_stop(peer_link *link)
{
    peer_lookup_cancel(link->lookup);
    link->lookup = NULL;
    if (peer_link_is_open(link))
        fl_loop_fd_remove(link->loop, link->stream.fd);
    http_stream_close(&link->stream);
}
