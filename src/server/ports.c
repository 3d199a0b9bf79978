/* SPDX-License-Identifier: MIT */
/* The node's ports: webhooks, links and events, as the folders of these names have them. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/assert.h"
#include "server/internal.h"

/* --- Webhooks ----------------------------------------------------------------------------------------------------- */

static webhook_attempt *inner_attempt(struct attempt *attempt)
{
    return (webhook_attempt *)(void *)attempt->room;
}

static uint64_t prepare(struct attempt *attempt)
{
    inner_attempt(attempt)->target = webhook_target(attempt->firing.timer.target);
    return inner_attempt(attempt)->target.host_hash;
}

_Static_assert((int)HOST_TEXT >= (int)WEBHOOK_HOST_TEXT, "a host fits");

static fl_bytes host_of(fl_bytes url, char room[HOST_TEXT])
{
    const struct webhook_target target = webhook_target(url);
    if (target.problem)
        return (fl_bytes){0};
    return webhook_host_text(&target, room);
}

static bool may_begin(const webhook_attempt *inner)
{
    return attempt_begin(inner->arg);
}

static void delivered(webhook_attempt *inner)
{
    struct attempt *attempt = inner->arg;
    attempt->result = inner->result;
    fl__assert(inner == inner_attempt(attempt));
    attempt->at_us = inner->at_us;
    attempt->status = inner->status;
    attempt->duration_ns = inner->duration_ns;
    attempt->reason = bytes_of(inner->reason);
    attempt->response = inner->response;
    attempt_done(attempt);
}

static void deliver(struct worker *worker, struct attempt *attempt)
{
    const fl_durable *timer = &attempt->firing.timer;
    webhook_attempt *inner = inner_attempt(attempt);
    *inner = (webhook_attempt){
        .target = inner->target,
        .body = timer_payload(timer),
        .content_type = timer_is_binary(timer) ? "application/octet-stream" : "application/json",
        .headers = timer->headers,
        .id = attempt->id,
        .number = timer->attempt,
        .due_us = timer->due_us,
        .replaced = timer->replaced,
        .schedule = timer->schedule,
        .occurrence_us = timer->occurrence_us,
        .previous_us = timer->previous_us,
        .next_us = timer->next_us,
        .secrets = attempt->secrets,
        .secret_count = attempt->secret_count,
        .once = attempt->last,
        .keep = attempt->keep,
        .keep_failed = attempt->keep_failed,
        .timeout_us = timer->timeout_us,
        .may_begin = may_begin,
        .done = delivered,
        .arg = attempt,
    };
    webhooks_submit(api_here(worker)->hooks, inner);
}

static bool cancel(struct worker *worker, struct attempt *attempt)
{
    return webhooks_cancel(api_here(worker)->hooks, inner_attempt(attempt));
}

static bool is_of(const webhook_attempt *inner, void *shard)
{
    return ((const struct attempt *)inner->arg)->shard == shard;
}

/* While the server stops, the webhooks end before the shards do. */
static void withdraw(struct worker *worker, const struct shard *shard, bool begun)
{
    if (api_here(worker)->hooks)
        webhooks_withdraw(api_here(worker)->hooks, is_of, (void *)(uintptr_t)shard, begun);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

struct node_link {
    peer_link *link;
    void (*changed)(void *arg, bool up);
    void *arg;
};

static void link_changed(void *arg, peer_link *peer, bool up)
{
    const struct node_link *link = arg;
    (void)peer;
    if (link->changed)
        link->changed(link->arg, up);
}

static int link_new(struct worker *worker, const struct link_config *from, struct node_link **ret)
{
    struct node_link *link = calloc(1, sizeof *link);
    if (!link)
        return FL_NO_MEMORY;
    link->changed = from->changed;
    link->arg = from->arg;
    struct peer_link_config config = {.loop = worker->loop,
                                      .address = from->address,
                                      .self = from->self,
                                      .secret = from->secret,
                                      .tls = server_of(worker)->tls != NULL,
                                      .changed = link_changed,
                                      .arg = link};
    int r = peer_link_new(&config, &link->link);
    if (r < 0)
        free(link);
    else
        *ret = link;
    return r;
}

static void link_free(struct node_link *link)
{
    peer_link_free(link->link);
    free(link);
}

static bool link_up(const struct node_link *link)
{
    return peer_link_up(link->link);
}

static bool link_has_failed(const struct node_link *link)
{
    return peer_link_has_failed(link->link);
}

static const char *link_trouble(const struct node_link *link)
{
    return peer_link_trouble(link->link);
}

static void link_rotate(struct node_link *link, fl_bytes secret)
{
    peer_link_rotate(link->link, secret);
}

/* --- Calls over them ---------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(struct peer_call) <= sizeof(((struct link_call *)0)->room), "a call has room for the link's own");

static struct link_call *outer(struct peer_call *call)
{
    return (struct link_call *)(void *)((char *)call - offsetof(struct link_call, room));
}

static struct peer_call *inner(struct link_call *call)
{
    return (struct peer_call *)(void *)call->room;
}

static void call_done(struct peer_call *peer, int result, fl_bytes answer)
{
    struct link_call *call = outer(peer);
    call->sent = peer->sent;
    call->done(call, result, answer);
}

static void call_piece(struct peer_call *peer, fl_bytes piece)
{
    fl__assert(outer(peer)->piece);
    struct link_call *call = outer(peer);
    call->piece(call, piece);
}

static void link_call_over(struct node_link *link, struct link_call *call, uint8_t kind, fl_bytes body)
{
    *inner(call) =
        (struct peer_call){.done = call_done, .piece = call->piece ? call_piece : NULL, .urgent = call->urgent};
    peer_call(link->link, inner(call), kind, body);
}

static void link_cancel(struct node_link *link, struct link_call *call)
{
    peer_cancel(link->link, inner(call));
}

static void secret_changed(struct worker *worker)
{
    server_here(worker)->host.secret = bytes_of(worker->secret);
}

/* --- Calls of other servers --------------------------------------------------------------------------------------- */

void serve_peer(void *worker, struct peer_request *peer)
{
    struct link_request *request = calloc(1, sizeof *request);
    if (!request) {
        peer_answer(peer, FL_NO_MEMORY, (fl_bytes){0});
        return;
    }
    *request = (struct link_request){.kind = peer->kind, .body = peer->body, .port = peer, .ports = &server_ports};
    peer->arg = request;
    node_serve(worker, request);
}

static void answer(struct link_request *request, int result, fl_bytes body)
{
    struct peer_request *peer = request->port;
    free(request);
    peer_answer(peer, result, body);
}

static void peer_gone(struct peer_request *peer)
{
    fl__assert(((struct link_request *)peer->arg)->gone);
    struct link_request *request = peer->arg;
    request->gone(request);
}

static void watch(struct link_request *request, bool on)
{
    struct peer_request *peer = request->port;
    peer->gone = on ? peer_gone : NULL;
    peer->harmless = true;
}

static void piece(struct link_request *request, fl_bytes bytes)
{
    peer_piece(request->port, bytes);
}

static size_t unsent(const struct link_request *request)
{
    return peer_unsent(request->port);
}

/* --- The rest ----------------------------------------------------------------------------------------------------- */

static size_t response_room(const struct worker *worker)
{
    return http_memory_left(api_here(worker)->http);
}

static int random_bytes(void *bytes, size_t size)
{
    return getrandom(bytes, size, 0) == (ssize_t)size ? 0 : FL_SYSTEM;
}

static void replaced(struct node *node)
{
    atomic_store(&((struct server *)node->owner)->replaced, true);
    kill(getpid(), SIGTERM);
}

const struct node_ports server_ports = {
    .attempt_room = sizeof(webhook_attempt),
    .prepare = prepare,
    .host_of = host_of,
    .deliver = deliver,
    .cancel = cancel,
    .withdraw = withdraw,
    .link_new = link_new,
    .link_free = link_free,
    .link_up = link_up,
    .link_has_failed = link_has_failed,
    .link_trouble = link_trouble,
    .link_rotate = link_rotate,
    .link_call = link_call_over,
    .link_cancel = link_cancel,
    .secret_changed = secret_changed,
    .answer = answer,
    .watch = watch,
    .piece = piece,
    .unsent = unsent,
    .publish = events_publish,
    .relay = events_relay,
    .listen = events_listen,
    .settings_read = settings_read_stored,
    .settings_write = settings_write_stored,
    .response_room = response_room,
    .random = random_bytes,
    .replaced = replaced,
};
