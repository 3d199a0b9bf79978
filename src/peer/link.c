/* SPDX-License-Identifier: MIT */
/* The side of a link that calls: one connection at a time, and the calls that wait for their answers.
 *
 * Frames go into one buffer that is sent at the end of the turn. A call remembers where its frame ends in what is sent on
 * this connection. If the connection is lost before all of that was handed to the kernel, the other side cannot have acted
 * on it, and the caller learns that nothing has happened.
 *
 * Callbacks may do anything, free the link included. So a function that calls one does so between peer_link_enter() and
 * peer_link_leave(), which puts the freeing off, and looks afterwards whether the connection is still there. No other one
 * can be there by then, because connecting begins in a timer. Buffers that a callback may be reading are freed when the next
 * connection is made, or with the link.
 *
 * There are three timers: the tick, which always runs, and two that are missing if there was no memory for them. Their work
 * is then done by the tick. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "peer/internal.h"

enum {
    MILLISECOND = 1000000,
    DELAY_FIRST_MS = 50,
    DELAY_MOST_MS = 1000,
    TICKS_STABLE = 2, /* after it was up for so long, the next connection is tried at once */
};

bool peer_link_is_open(const peer_link *link)
{
    return link->stream.fd >= 0;
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

/* Takes a call out of the list of waiting or failed calls. */
static void take_out(peer_link *link, struct peer_call *call)
{
    if (call->id) {
        fl__hash_remove(&link->by_id, &call->by_id);
        TAILQ_REMOVE(&link->calls, call, entry);
    } else {
        TAILQ_REMOVE(&link->failed, call, entry);
        link->failed_count--;
    }
}

static void fail(peer_link *link, struct peer_call *call, int result)
{
    call->id = 0;
    call->result = result;
    TAILQ_INSERT_TAIL(&link->failed, call, entry);
    link->failed_count++;
}

static struct peer_call *find(const peer_link *link, uint64_t id)
{
    struct hash_link *found = fl__hash_first(&link->by_id, id);
    return found ? hash_entry(found, struct peer_call, by_id) : NULL;
}

static void fail_all(peer_link *link)
{
    struct peer_call *call;
    while ((call = TAILQ_FIRST(&link->calls))) {
        take_out(link, call);
        call->sent = call->end <= link->written && !link->closed;
        fail(link, call, call->sent ? FL_OUTCOME_UNKNOWN : FL_STORE_UNAVAILABLE);
    }
}

/* Reports the calls that have failed so far. Calls that fail during the reports are reported the next time. */
static void tell_failed(peer_link *link)
{
    struct peer_call *call;
    for (size_t left = link->failed_count; left > 0 && (call = TAILQ_FIRST(&link->failed)); left--) {
        take_out(link, call);
        call->done(call, call->result, (fl_bytes){0});
    }
    if (link->failed_count > 0)
        peer_link_wake(link);
}

/* --- Coming and going --------------------------------------------------------------------------------------------- */

static void destroy(peer_link *link)
{
    fl__assert(TAILQ_EMPTY(&link->calls) && TAILQ_EMPTY(&link->failed));
    http_buffer_free(&link->out);
    http_buffer_free(&link->in);
    peer_reader_free(&link->reader);
    fl__hash_free(&link->by_id);
    http_tls_free(link->tls);
    free(link->address);
    free(link->host);
    free(link->port);
    free(link->self);
    if (link->secret)
        explicit_bzero(link->secret, link->secret_size);
    free(link->secret);
    free(link);
}

void peer_link_enter(peer_link *link)
{
    link->inside++;
}

void peer_link_leave(peer_link *link)
{
    fl__assert(link->inside > 0);
    if (--link->inside == 0 && link->dead)
        destroy(link);
}

static void forget_addresses(peer_link *link)
{
    if (link->found)
        freeaddrinfo(link->found);
    link->found = link->at = NULL;
}

static void on_retry(fl_loop *loop, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    peer_link_enter(link);
    link->has_retry = false;
    peer_dial(link);
    peer_link_leave(link);
}

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

void peer_link_lose(peer_link *link, const char *format, ...)
{
    bool was_up = link->state == PEER_UP, answered = link->state >= PEER_PROVING;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(link->trouble, sizeof link->trouble, format, arguments);
    va_end(arguments);
    link->failed_before = true;
    peer_dial_stop(link);
    link->state = PEER_WAITING;
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

void peer_link_proved(peer_link *link)
{
    fl__assert(link->state == PEER_PROVING && peer_link_is_open(link));
    link->state = PEER_UP;
    link->failed_before = false;
    link->age = 0;
    link->trouble[0] = '\0';
    link->reader.most = PEER_BODY_MOST + PEER_RESULT;
    if (link->changed)
        link->changed(link->arg, link, true);
}

/* --- Frames ------------------------------------------------------------------------------------------------------- */

static void answered(peer_link *link, const struct peer_frame *frame)
{
    int result;
    fl_bytes body;
    if (!peer_answer_read(frame, &result, &body)) {
        peer_link_lose(link, "the other server sent a response that is too short");
        return;
    }
    struct peer_call *call = find(link, frame->id);
    if (!call)
        return; /* it was cancelled */
    take_out(link, call);
    call->sent = true;
    call->done(call, result, body);
}

static void piece(peer_link *link, const struct peer_frame *frame)
{
    struct peer_call *call = find(link, frame->id);
    if (call && call->piece)
        call->piece(call, frame->body);
}

void peer_link_handle(peer_link *link, const struct peer_frame *frame)
{
    fl__assert(link->state == PEER_UP);
    link->closed = frame->kind == PEER_CLOSING;
    if (frame->kind == PEER_ANSWER)
        answered(link, frame);
    else if (frame->kind == PEER_PIECE)
        piece(link, frame);
    else if (link->closed)
        peer_link_lose(link, "the other server is stopping");
    else if (frame->kind != PEER_ALIVE)
        peer_link_lose(link, "the other server sent an unexpected message");
}

/* --- Time --------------------------------------------------------------------------------------------------------- */

static void on_immediate(fl_loop *loop, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    peer_link_enter(link);
    link->has_immediate = false;
    peer_dial_flush(link);
    tell_failed(link);
    peer_link_leave(link);
}

void peer_link_wake(peer_link *link)
{
    if (!link->dead && !link->has_immediate)
        link->has_immediate = fl_loop_immediate(link->loop, on_immediate, link, &link->immediate) == 0;
}

static void watch(peer_link *link)
{
    link->age++;
    link->quiet++;
    if (++link->silent > PEER_TICKS_SILENT) {
        peer_link_lose(link, "no data for three seconds");
    } else if (link->state != PEER_UP && link->age > PEER_TICKS_PROOF) {
        peer_link_lose(link, "the handshake took too long");
    } else if (link->state == PEER_UP) {
        if (link->age >= TICKS_STABLE)
            link->delay_ms = 0;
        if (link->quiet >= PEER_TICKS_ALIVE && http_buffer_size(&link->out) == 0)
            peer_put(&link->out, PEER_ALIVE, 0, (fl_bytes){0});
    }
}

static void on_tick(fl_loop *loop, void *arg)
{
    peer_link *link = arg;
    (void)loop;
    peer_link_enter(link);
    if (link->state >= PEER_ASKING)
        watch(link);
    else if (link->state == PEER_WAITING && !link->has_retry)
        peer_dial(link);
    peer_dial_flush(link);
    tell_failed(link);
    peer_link_leave(link);
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
        link->tls = http_tls_unverified();
    if (!link->self || !link->secret || (config->tls && !link->tls))
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
    link->stream.fd = -1;
    TAILQ_INIT(&link->calls);
    TAILQ_INIT(&link->failed);
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
    return link->state == PEER_UP;
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
    peer_link_enter(link);
    fl_loop_cancel(link->loop, link->tick);
    if (link->has_retry)
        fl_loop_cancel(link->loop, link->retry);
    if (link->has_immediate)
        fl_loop_cancel(link->loop, link->immediate);
    peer_dial_stop(link);
    forget_addresses(link);
    link->state = PEER_WAITING;
    fail_all(link);
    tell_failed(link);
    peer_link_leave(link);
}

void peer_call(peer_link *link, struct peer_call *call, uint8_t kind, fl_bytes body)
{
    fl__assert(kind >= PEER_CALL && call->done);
    call->sent = false;
    if (link->state != PEER_UP) {
        fail(link, call, FL_STORE_UNAVAILABLE);
    } else if (body.size > PEER_BODY_MOST) {
        fail(link, call, FL_TOO_LARGE);
    } else if (http_buffer_size(&link->out) > PEER_UNSENT_MOST && !call->urgent) {
        fail(link, call, FL_CAPACITY_EXCEEDED);
    } else if (!peer_put(&link->out, kind, link->last_id + 1, body)) {
        fail(link, call, FL_NO_MEMORY);
    } else {
        call->id = ++link->last_id;
        call->end = link->written + http_buffer_size(&link->out);
        fl__hash_insert(&link->by_id, &call->by_id, call->id);
        TAILQ_INSERT_TAIL(&link->calls, call, entry);
    }
    peer_link_wake(link);
}

void peer_cancel(peer_link *link, struct peer_call *call)
{
    take_out(link, call);
    call->sent = call->id && call->end <= link->written;
    if (call->id &&
        peer_put(&link->out, PEER_CANCEL, call->id, (fl_bytes){0})) /* without memory: its answer goes nowhere */
        peer_link_wake(link);
}
