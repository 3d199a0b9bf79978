/* SPDX-License-Identifier: MIT */
/* The side of a link that calls: one connection at a time, and the calls that wait for their answers.
 *
 * What is called goes into one buffer, as a chunk of the request's body that is closed and sent at the end of the turn. A call
 * remembers where its frame ends in what is sent on this connection: if the connection is lost before all of that was handed to
 * the kernel, the other side cannot have acted on it, and the caller learns that nothing has happened.
 *
 * Callbacks may do anything, free the link included. So whoever calls one does so between enter() and leave(), which puts the
 * freeing off; looks afterwards whether the connection is still there; and no other one can be by then, for connecting begins in
 * a timer. Buffers that a callback may be looking at are freed when the next connection is made, or with the link.
 *
 * There are three timers: the tick, which always runs, and two that may be missing when there was no memory for them. What
 * they would have done, the tick does. */

#include <errno.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "peer/internal.h"

enum {
    MILLISECOND = 1000000,
    DELAY_FIRST_MS = 50,
    DELAY_MOST_MS = 1000,
    TICKS_STABLE = 2, /* up for so long: it can be tried at once the next time */
    TABLE = 1024,
    CHUNK_HEAD = 10, /* eight digits, CR LF */
    CHUNK_END = 2,
    CHUNK_MOST = 1 << 28,
    ANSWER_HEAD_MOST = 16384,
    READ_SIZE = 65536,
    READS_AT_ONCE = 4,
};

enum state {
    WAITING, /* for the time to connect */
    LOOKING, /* the name up */
    ASKING,  /* connecting, or waiting for the head of the answer */
    PROVING, /* waiting for the proof */
    UP
};

struct peer_link {
    fl_loop *loop;
    void (*changed)(void *arg, peer_link *link, bool up);
    void *arg;
    char *address, *host, *port, *self;
    char *secret;
    size_t secret_size;
    SSL_CTX *context; /* NULL: without TLS */
    enum state state;
    char trouble[200];
    fl_timer_id tick, retry, immediate;
    bool has_retry, has_immediate;
    bool closed;        /* the other side has said that it reads nothing more */
    bool failed_before; /* since it was last up */
    unsigned delay_ms;  /* before the next time but one */
    unsigned age;       /* ticks since it was connected; since it is up */
    unsigned silent;    /* ticks since something came */
    unsigned quiet;     /* ticks since something was sent */
    unsigned inside;
    bool dead;
    struct peer_lookup *lookup;
    struct addrinfo *found, *at; /* `at`: the one that is tried */
    /* The connection. */
    struct peer_wire wire;
    struct peer_pact pact;
    struct http_buffer out, head;
    uint64_t written; /* of what ever was in `out` */
    size_t open;      /* size of the chunk at its end that is not closed; 0: there is none */
    struct http_chunks chunks;
    struct peer_reader reader;
    /* Calls. */
    uint64_t last_id;
    struct peer_call *calls[TABLE]; /* by ID */
    struct peer_call *failed;       /* to be told, the last first */
    struct peer_call *ending;       /* being told, the first first */
};

static void wake(peer_link *link);
static void lose(peer_link *link, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- Calls -------------------------------------------------------------------------------------------------------- */

static void push(struct peer_call **list, struct peer_call *call)
{
    call->next = *list;
    call->link = list;
    if (call->next)
        call->next->link = &call->next;
    *list = call;
}

static void take_out(struct peer_call *call)
{
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
}

static void fail(peer_link *link, struct peer_call *call, int result)
{
    call->id = 0;
    call->result = result;
    push(&link->failed, call);
}

static struct peer_call *find(const peer_link *link, uint64_t id)
{
    struct peer_call *call = link->calls[id % TABLE];
    while (call && call->id != id)
        call = call->next;
    return call;
}

static void fail_all(peer_link *link)
{
    for (size_t i = 0; i < TABLE; i++)
        while (link->calls[i]) {
            struct peer_call *call = link->calls[i];
            take_out(call);
            call->sent = call->end <= link->written && !link->closed;
            fail(link, call, call->sent ? FL_OUTCOME_UNKNOWN : FL_STORE_UNAVAILABLE);
        }
}

/* Tells those that have failed so far; who fails because of that waits for the next time. */
static void tell_failed(peer_link *link)
{
    while (link->failed) {
        struct peer_call *call = link->failed;
        take_out(call);
        push(&link->ending, call);
    }
    while (link->ending) {
        struct peer_call *call = link->ending;
        take_out(call);
        call->done(call, call->result, (fl_bytes){0});
    }
    if (link->failed)
        wake(link);
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void close_chunk(peer_link *link)
{
    struct http_buffer *out = &link->out;
    char head[CHUNK_HEAD + 1];
    if (link->open == 0)
        return;
    snprintf(head, sizeof head, "%08x\r\n", (unsigned)link->open);
    memcpy(out->data + out->end - link->open - CHUNK_HEAD, head, CHUNK_HEAD);
    memcpy(out->data + out->end, "\r\n", CHUNK_END); /* put() has left room */
    out->end += CHUNK_END;
    link->open = 0;
}

static bool put(peer_link *link, uint8_t kind, uint64_t id, fl_bytes body)
{
    struct http_buffer *out = &link->out;
    size_t size = PEER_HEAD + body.size;
    if (link->open > CHUNK_MOST)
        close_chunk(link);
    if (!http_buffer_reserve(out, CHUNK_HEAD + size + CHUNK_END))
        return false;
    if (link->open == 0)
        out->end += CHUNK_HEAD;
    link->open += size;
    return peer_put(out, kind, id, body);
}

static const char *wire_problem(const peer_link *link, int error)
{
    return link->wire.problem ? link->wire.problem : strerror(error); /* NOLINT(concurrency-mt-unsafe) */
}

static void flush(peer_link *link)
{
    struct http_buffer *out = &link->out;
    if (link->wire.fd < 0 || link->wire.connecting)
        return;
    close_chunk(link);
    while (http_buffer_size(out) > 0) {
        ssize_t n = peer_wire_write(&link->wire, out->data + out->start, http_buffer_size(out));
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            lose(link, "the connection was lost: %s", wire_problem(link, errno));
            return;
        }
        if (n < 0)
            break;
        link->written += (size_t)n;
        link->quiet = 0;
        http_buffer_take(out, (size_t)n);
    }
    peer_wire_wait(&link->wire, http_buffer_size(out) > 0);
}

/* --- Coming and going --------------------------------------------------------------------------------------------- */

static void destroy(peer_link *link)
{
    http_buffer_free(&link->out);
    http_buffer_free(&link->head);
    peer_reader_free(&link->reader);
    SSL_CTX_free(link->context);
    free(link->address);
    free(link->host);
    free(link->port);
    free(link->self);
    if (link->secret)
        explicit_bzero(link->secret, link->secret_size);
    free(link->secret);
    free(link);
}

static void enter(peer_link *link)
{
    link->inside++;
}

static void leave(peer_link *link)
{
    if (--link->inside == 0 && link->dead)
        destroy(link);
}

static void forget_addresses(peer_link *link)
{
    if (link->found)
        freeaddrinfo(link->found);
    link->found = link->at = NULL;
}

static void on_retry(fl_loop *loop, void *arg);

static void retry_after(peer_link *link, unsigned ms)
{
    if (!link->dead && !link->has_retry)
        link->has_retry = fl_loop_timer(link->loop, (uint64_t)ms * MILLISECOND, on_retry, link, &link->retry) == 0;
}

static void retry_later(peer_link *link)
{
    forget_addresses(link);
    retry_after(link, link->delay_ms);
    unsigned next = link->delay_ms ? link->delay_ms * 2 : DELAY_FIRST_MS;
    link->delay_ms = next < DELAY_MOST_MS ? next : DELAY_MOST_MS;
}

/* The attempt, or the connection, is at its end. */
static void lose(peer_link *link, const char *format, ...)
{
    bool was_up = link->state == UP, answered = link->state >= PROVING;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(link->trouble, sizeof link->trouble, format, arguments);
    va_end(arguments);
    link->failed_before = true;
    peer_wire_close(&link->wire);
    link->state = WAITING;
    if (!answered && link->at && link->at->ai_next) {
        link->at = link->at->ai_next;
        retry_after(link, 0);
    } else {
        retry_later(link);
    }
    fail_all(link);
    if (was_up && link->changed)
        link->changed(link->arg, link, false);
    tell_failed(link);
}

/* --- What comes --------------------------------------------------------------------------------------------------- */

static void answered(peer_link *link, const struct peer_frame *frame)
{
    int result;
    fl_bytes body;
    if (!peer_answer_read(frame, &result, &body)) {
        lose(link, "the other server sent a response that is too short");
        return;
    }
    struct peer_call *call = find(link, frame->id);
    if (!call)
        return; /* it was cancelled */
    take_out(call);
    call->sent = true;
    call->done(call, result, body);
}

static void piece(peer_link *link, const struct peer_frame *frame)
{
    struct peer_call *call = find(link, frame->id);
    if (call && call->piece)
        call->piece(call, frame->body);
}

static void proved(peer_link *link, const struct peer_frame *frame)
{
    if (frame->kind == PEER_REFUSED) {
        lose(link, "the other server has another secret%s",
             link->context ? ", or a proxy terminates TLS" : ", or requires TLS");
    } else if (frame->kind != PEER_PROOF || !peer_is_proof(&link->pact, PEER_CALLED, frame->body)) {
        lose(link, "the other server cannot prove that it knows the secret");
    } else {
        link->state = UP;
        link->failed_before = false;
        link->age = 0;
        link->trouble[0] = '\0';
        link->reader.most = PEER_BODY_MOST + PEER_RESULT;
        if (link->changed)
            link->changed(link->arg, link, true);
    }
}

static void close_down(peer_link *link)
{
    link->closed = true;
    lose(link, "the other server is stopping");
}

static void handle(peer_link *link, const struct peer_frame *frame)
{
    if (link->state == PROVING)
        proved(link, frame);
    else if (frame->kind == PEER_ANSWER)
        answered(link, frame);
    else if (frame->kind == PEER_PIECE)
        piece(link, frame);
    else if (frame->kind == PEER_CLOSING)
        close_down(link);
    else if (frame->kind != PEER_ALIVE)
        lose(link, "the other server sent an unexpected message");
}

static void take_frames(peer_link *link, fl_bytes input)
{
    struct peer_frame frame;
    int r;
    while ((r = peer_read(&link->reader, &input, &frame)) > 0) {
        handle(link, &frame);
        if (link->wire.fd < 0)
            return;
    }
    if (r == FL_NO_MEMORY)
        lose(link, "out of memory for a response");
    else if (r < 0)
        lose(link, "the other server sent a message that is malformed or too large");
}

static void take_body(peer_link *link, const char *data, size_t size)
{
    while (size > 0 && link->wire.fd >= 0) {
        size_t used;
        fl_bytes part = {0};
        int r = http_chunks_next(&link->chunks, data, size, &used, &part);
        if (part.size > 0)
            take_frames(link, part);
        if (link->wire.fd < 0)
            return;
        if (r == HTTP_CHUNKS_END)
            lose(link, "the other server has closed the link");
        else if (r == HTTP_CHUNKS_BAD)
            lose(link, "the other server sent a malformed message");
        data += used;
        size -= used;
    }
}

/* The value of a header; `name` with its colon. */
static fl_bytes header(const char *head, const char *end, const char *name)
{
    size_t size = strlen(name);
    const char *line = head, *feed;
    while ((feed = memmem(line, (size_t)(end - line), "\r\n", 2))) {
        const char *value = line + size;
        if ((size_t)(feed - line) >= size && strncasecmp(line, name, size) == 0) {
            while (value < feed && *value == ' ')
                value++;
            return (fl_bytes){value, (size_t)(feed - value)};
        }
        line = feed + 2;
    }
    return (fl_bytes){0};
}

static void prove(peer_link *link)
{
    unsigned char proof[PEER_MAC];
    link->pact.bound = http_tls_channel_key(link->wire.ssl, link->pact.channel);
    if (link->context && !link->pact.bound) {
        lose(link, "cannot read the TLS keys of the connection");
    } else if (!peer_prove(&link->pact, PEER_CALLER, proof) || !put(link, PEER_PROOF, 0, (fl_bytes){proof, PEER_MAC})) {
        lose(link, "%s", fl_strerror(FL_NO_MEMORY));
    } else {
        link->state = PROVING;
        wake(link);
    }
}

/* "HTTP/1.1 200 OK"; 0: it is something else. */
static unsigned status_of(const char *head, const char *end)
{
    static const char version[] = "HTTP/1.1 ";
    enum { VERSION = sizeof version - 1 };
    if (end - head < VERSION + 3 || memcmp(head, version, VERSION) != 0)
        return 0;
    unsigned status = 0;
    for (int i = 0; i < 3; i++) {
        unsigned digit = (unsigned char)head[VERSION + i] - (unsigned)'0';
        if (digit > 9)
            return 0;
        status = status * 10 + digit;
    }
    return status;
}

/* The whole head of the answer, with the empty line. */
static void take_head(peer_link *link, const char *head, const char *end)
{
    unsigned status = status_of(head, end);
    fl_bytes coding = header(head, end, "Transfer-Encoding:");
    if (status == 0) {
        lose(link, "the response is not HTTP/1.1");
    } else if (status != 200) {
        lose(link, "the other server refused the link with status %u", status);
    } else if (coding.size != 7 || strncasecmp(coding.data, "chunked", 7) != 0 ||
               !peer_pact_hear(&link->pact, PEER_CALLED, header(head, end, "Foliot-Peer-Version:"),
                               header(head, end, "Foliot-Peer-Random:"))) {
        lose(link, "the response does not come from a Foliot server");
    } else if (!peer_pact_agrees(&link->pact)) {
        lose(link, "the other server speaks version %u of the protocol, this server speaks version %u",
             link->pact.version[PEER_CALLED], link->pact.version[PEER_CALLER]);
    } else {
        prove(link);
    }
}

/* Collects the head; what comes after it is body already. */
static void take_answer(peer_link *link, const char *data, size_t size)
{
    struct http_buffer *head = &link->head;
    static const char empty[] = "\r\n\r\n";
    if (!http_buffer_append(head, data, size)) {
        lose(link, "%s", fl_strerror(FL_NO_MEMORY));
        return;
    }
    const char *begin = head->data + head->start, *end = memmem(begin, http_buffer_size(head), empty, 4);
    if (!end && http_buffer_size(head) > 5 && memcmp(begin, "HTTP/", 5) != 0)
        lose(link, "the response is not HTTP; check that both servers use TLS, or neither");
    else if (!end && http_buffer_size(head) > ANSWER_HEAD_MOST)
        lose(link, "the head of the response is too large");
    if (!end || link->wire.fd < 0)
        return;
    end += 4;
    take_head(link, begin, end);
    if (link->wire.fd >= 0)
        take_body(link, end, (size_t)(head->data + head->end - end));
}

static void receive(peer_link *link)
{
    char data[READ_SIZE];
    for (int i = 0; i < READS_AT_ONCE && link->wire.fd >= 0; i++) {
        ssize_t n = peer_wire_read(&link->wire, data, sizeof data);
        if (n == 0) {
            lose(link, "the other server has closed the connection");
            return;
        }
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            lose(link, "the connection was lost: %s", wire_problem(link, errno));
            return;
        }
        if (n < 0)
            break;
        link->silent = 0;
        if (link->state == ASKING)
            take_answer(link, data, (size_t)n);
        else
            take_body(link, data, (size_t)n);
    }
    if (link->wire.fd >= 0)
        peer_wire_wait(&link->wire, http_buffer_size(&link->out) > 0);
}

static void on_event(fl_loop *loop, int fd, unsigned events, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    (void)fd;
    enter(link);
    int error = link->wire.connecting ? peer_wire_connected(&link->wire) : 0;
    if (error)
        lose(link, "cannot connect: %s", strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
    else if (events & FL_WRITE || link->wire.ssl)
        flush(link);
    if (link->wire.fd >= 0 && (events & ~(unsigned)FL_WRITE || link->wire.ssl))
        receive(link);
    leave(link);
}

/* --- Connecting --------------------------------------------------------------------------------------------------- */

static bool put_request(peer_link *link)
{
    char text[PEER_HELLO + 2 * PEER_ADDRESS_MOST + 256], hello[PEER_HELLO];
    peer_pact_say(&link->pact, PEER_CALLER, hello);
    int size = snprintf(text, sizeof text,
                        "POST /v1/peer HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\n"
                        "Transfer-Encoding: chunked\r\nFoliot-Peer-Address: %s\r\n%s\r\n",
                        link->address, link->self, hello);
    return http_buffer_append(&link->out, text, (size_t)size);
}

/* To the address whose turn it is. */
static void open_wire(peer_link *link)
{
    http_buffer_free(&link->out);
    http_buffer_free(&link->head);
    peer_reader_free(&link->reader);
    link->reader.most = PEER_MAC;
    link->chunks = (struct http_chunks){0};
    link->written = 0;
    link->open = 0;
    link->closed = false;
    link->age = link->silent = link->quiet = 0;
    link->state = ASKING;
    fl_bytes secret = {link->secret, link->secret_size};
    if (!peer_pact_begin(&link->pact, secret, PEER_CALLER) || !put_request(link)) {
        lose(link, "%s", fl_strerror(FL_NO_MEMORY));
        return;
    }
    int error = peer_wire_open(&link->wire, link->loop, link->at, link->context, on_event, link);
    if (error)
        lose(link, "cannot connect: %s", strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
}

static void on_found(void *arg, struct addrinfo *found, int error)
{
    peer_link *link = arg;
    enter(link);
    link->lookup = NULL;
    link->found = link->at = found;
    if (found)
        open_wire(link);
    else
        lose(link, "cannot resolve the name %s: %s", link->host, gai_strerror(error));
    leave(link);
}

static void begin(peer_link *link)
{
    if (link->at) {
        open_wire(link);
        return;
    }
    link->state = LOOKING;
    int r = peer_lookup_begin(link->loop, link->host, link->port, on_found, link, &link->found, &link->lookup);
    link->at = link->found;
    if (r > 0)
        open_wire(link);
    else if (r < 0)
        lose(link, "cannot resolve the name %s: %s", link->host, fl_strerror(r));
}

static void on_retry(fl_loop *loop, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    enter(link);
    link->has_retry = false;
    begin(link);
    leave(link);
}

/* --- Time --------------------------------------------------------------------------------------------------------- */

static void on_immediate(fl_loop *loop, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    enter(link);
    link->has_immediate = false;
    flush(link);
    tell_failed(link);
    leave(link);
}

static void wake(peer_link *link)
{
    if (!link->dead && !link->has_immediate)
        link->has_immediate = fl_loop_immediate(link->loop, on_immediate, link, &link->immediate) == 0;
}

static void watch(peer_link *link)
{
    link->age++;
    link->quiet++;
    if (++link->silent > PEER_TICKS_SILENT) {
        lose(link, "no data for three seconds");
    } else if (link->state != UP && link->age > PEER_TICKS_PROOF) {
        lose(link, "the handshake took too long");
    } else if (link->state == UP) {
        if (link->age >= TICKS_STABLE)
            link->delay_ms = 0;
        if (link->quiet >= PEER_TICKS_ALIVE && http_buffer_size(&link->out) == 0)
            put(link, PEER_ALIVE, 0, (fl_bytes){0});
    }
}

static void on_tick(fl_loop *loop, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    enter(link);
    if (link->state >= ASKING)
        watch(link);
    else if (link->state == WAITING && !link->has_retry)
        begin(link);
    flush(link);
    tell_failed(link);
    leave(link);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

/* HOST:PORT or [IPv6]:PORT. Returns 0, FL_INVALID_ARGUMENT, FL_NO_MEMORY. */
static int split(peer_link *link, const char *address)
{
    const char *colon = strrchr(address, ':'), *host = address;
    if (!colon || !peer_is_address((fl_bytes){address, strlen(address)}))
        return FL_INVALID_ARGUMENT;
    size_t host_size = (size_t)(colon - host), digits = strspn(colon + 1, "0123456789");
    long port = digits > 0 && digits <= 5 && !colon[1 + digits] ? strtol(colon + 1, NULL, 10) : 0;
    if (port < 1 || port > 65535)
        return FL_INVALID_ARGUMENT;
    if (host_size > 2 && host[0] == '[' && host[host_size - 1] == ']') {
        host++;
        host_size -= 2;
    } else if (strcspn(host, ":[]") != host_size) {
        return FL_INVALID_ARGUMENT;
    }
    if (host_size == 0)
        return FL_INVALID_ARGUMENT;
    link->host = strndup(host, host_size);
    link->port = strdup(colon + 1);
    link->address = strdup(address);
    return link->host && link->port && link->address ? 0 : FL_NO_MEMORY;
}

static int fill(peer_link *link, const struct peer_link_config *config)
{
    if (config->secret.size == 0 || !peer_is_address((fl_bytes){config->self, strlen(config->self)}))
        return FL_INVALID_ARGUMENT;
    int r = split(link, config->address);
    if (r < 0)
        return r;
    link->self = strdup(config->self);
    link->secret = malloc(config->secret.size);
    if (config->tls)
        link->context = peer_wire_context();
    if (!link->self || !link->secret || (config->tls && !link->context))
        return FL_NO_MEMORY;
    memcpy(link->secret, config->secret.data, config->secret.size);
    link->secret_size = config->secret.size;
    return fl_loop_interval(link->loop, PEER_TICK_NS, FL_INTERVAL_SKIP, on_tick, link, &link->tick);
}

int peer_link_new(const struct peer_link_config *config, peer_link **ret)
{
    peer_link *link = calloc(1, sizeof *link);
    if (!link)
        return FL_NO_MEMORY;
    link->loop = config->loop;
    link->changed = config->changed;
    link->arg = config->arg;
    link->wire.fd = -1;
    int r = fill(link, config);
    if (r < 0) {
        destroy(link);
        return r;
    }
    snprintf(link->trouble, sizeof link->trouble, "connecting");
    retry_later(link);
    *ret = link;
    return 0;
}

bool peer_link_up(const peer_link *link)
{
    return link->state == UP;
}

bool peer_link_has_failed(const peer_link *link)
{
    return link->failed_before;
}

void peer_link_rotate(peer_link *link, fl_bytes secret)
{
    if (secret.size == link->secret_size && memcmp(secret.data, link->secret, secret.size) == 0)
        return;
    char *copy = secret.size > 0 ? malloc(secret.size) : NULL;
    if (!copy)
        return;
    memcpy(copy, secret.data, secret.size);
    explicit_bzero(link->secret, link->secret_size);
    free(link->secret);
    link->secret = copy;
    link->secret_size = secret.size;
    link->pact.secret = (fl_bytes){copy, secret.size}; /* a proof that is being made fails, and the link tries again */
}

const char *peer_link_trouble(const peer_link *link)
{
    return link->trouble;
}

void peer_link_free(peer_link *link)
{
    if (!link)
        return;
    link->dead = true;
    enter(link);
    fl_loop_cancel(link->loop, link->tick);
    if (link->has_retry)
        fl_loop_cancel(link->loop, link->retry);
    if (link->has_immediate)
        fl_loop_cancel(link->loop, link->immediate);
    peer_lookup_cancel(link->lookup);
    peer_wire_close(&link->wire);
    forget_addresses(link);
    link->state = WAITING;
    fail_all(link);
    tell_failed(link);
    leave(link);
}

void peer_call(peer_link *link, struct peer_call *call, uint8_t kind, fl_bytes body)
{
    call->sent = false;
    if (link->state != UP) {
        fail(link, call, FL_STORE_UNAVAILABLE);
    } else if (body.size > PEER_BODY_MOST) {
        fail(link, call, FL_TOO_LARGE);
    } else if (http_buffer_size(&link->out) > PEER_UNSENT_MOST && !call->urgent) {
        fail(link, call, FL_CAPACITY_EXCEEDED);
    } else if (!put(link, kind, link->last_id + 1, body)) {
        fail(link, call, FL_NO_MEMORY);
    } else {
        call->id = ++link->last_id;
        call->end = link->written + http_buffer_size(&link->out);
        push(&link->calls[call->id % TABLE], call);
    }
    wake(link);
}

void peer_cancel(peer_link *link, struct peer_call *call)
{
    take_out(call);
    call->sent = call->id && call->end <= link->written;
    if (call->id && put(link, PEER_CANCEL, call->id, (fl_bytes){0})) /* without memory: its answer goes nowhere */
        wake(link);
}
