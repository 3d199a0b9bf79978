/* SPDX-License-Identifier: MIT */
/* Server-sent events: tells clients what happens to timers, as it happens.
 *
 * Before the first client listens, an event costs one look at a flag. From then on it is written once, where it happens,
 * gets a number and is kept for clients that reconnect (event_ring.h). It is posted to the workers that have subscribers.
 * All this is done under the ring's lock, so every worker gets the events in the order of their numbers.
 *
 * A client hears of all servers: from the first subscriber on, the first worker listens, to everything, at the other
 * servers. */

#include <stdlib.h>
#include <string.h>

#include "api/event_ring.h"
#include "api/events.h"
#include "base/assert.h"

#define LINK_UNSENT_MOST (1u << 20) /* there is one link for each worker of each server */

/* A worker of another server. */
struct listener {
    struct listener *next;
    struct worker *worker;
    struct link_request *request;
};

static void send_on(struct listener *listener, const struct event *event)
{
    struct out piece = {0};
    if (listener->request->ports->unsent(listener->request) > LINK_UNSENT_MOST) {
        api_here(listener->worker)->counts.events_dropped++;
        return;
    }
    wire_put_number(&piece, event->kind);
    wire_put_bytes(&piece, event->ns);
    wire_put_bytes(&piece, (fl_bytes){event->text, event->size});
    if (!piece.failed)
        listener->request->ports->piece(listener->request, out_bytes(&piece));
    out_free(&piece);
}

static void arrives(fl_loop *loop, void *arg)
{
    struct event *event = arg;
    (void)loop;
    subscribers_send(event);
    for (struct listener *listener = api_here(event->worker)->listeners; listener && !event->relayed;
         listener = listener->next)
        send_on(listener, event);
    free(event);
}

static struct event *event_new(struct worker *worker, enum event_kind kind, fl_bytes text, fl_bytes ns)
{
    struct event *event = malloc(sizeof *event + text.size + ns.size);
    if (!event)
        return NULL;
    memcpy(event->text, text.data, text.size);
    memcpy(event->text + text.size, ns.data, ns.size);
    event->worker = worker;
    event->kind = kind;
    event->size = text.size;
    event->ns = (fl_bytes){event->text + text.size, ns.size};
    event->task = (fl_loop_task){.fn = arrives, .arg = event};
    return event;
}

static void keep_and_post(struct node *node, enum event_kind kind, bool relayed, fl_bytes text, fl_bytes ns)
{
    struct event_ring *ring = ((struct api *)node->owner)->ring;
    event_ring_lock(ring);
    uint64_t id = event_ring_add(ring, kind, text, ns);
    for (unsigned i = 0; i < node->worker_count; i++) {
        struct worker *worker = &node->workers[i];
        bool listened = atomic_load_explicit(&api_here(worker)->hearers, memory_order_relaxed) > 0;
        struct event *event = listened ? event_new(worker, kind, text, ns) : NULL;
        if (!event)
            continue;
        event->id = id;
        event->relayed = relayed;
        fl_loop_post_task(worker->loop, &event->task);
    }
    event_ring_unlock(ring);
}

/* What happened at another server. */
void events_relay(struct worker *worker, fl_bytes piece)
{
    struct wire wire = wire_begin(piece);
    uint64_t kind = wire_number(&wire);
    fl_bytes ns = wire_bytes(&wire), text = wire_bytes(&wire);
    if (!wire.bad && kind < EVENT_KINDS)
        keep_and_post(worker->node, (enum event_kind)kind, true, text, ns);
}

static void listener_gone(struct link_request *request)
{
    struct listener *listener = request->arg, **at = &api_here(listener->worker)->listeners;
    fl__assert(listener->request == request);
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    atomic_fetch_sub(&api_here(listener->worker)->hearers, 1);
    free(listener);
    link_answer(request, 0, (fl_bytes){0});
}

void events_listen(struct worker *worker, struct link_request *request)
{
    struct listener *listener = calloc(1, sizeof *listener);
    if (!listener) {
        link_answer(request, FL_NO_MEMORY, (fl_bytes){0});
        return;
    }
    *listener = (struct listener){api_here(worker)->listeners, worker, request};
    api_here(worker)->listeners = listener;
    link_watch(request, listener_gone, listener);
    atomic_fetch_add(&api_here(worker)->hearers, 1);
    atomic_store(&api_of(worker)->events_wanted, true);
}

static void listen_at_servers(fl_loop *loop, void *arg)
{
    (void)loop;
    servers_want_events(arg, true);
}

void events_want(struct api *api)
{
    struct worker *first = &api->node->workers[0];
    atomic_store(&api->events_wanted, true);
    if (atomic_exchange(&api->events_of_servers, true))
        return;
    api->listen_task = (fl_loop_task){.fn = listen_at_servers, .arg = first};
    fl_loop_post_task(first->loop, &api->listen_task);
}

void events_publish(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason)
{
    struct node *node = worker->node;
    if (!atomic_load_explicit(&api_of(worker)->events_wanted, memory_order_relaxed) ||
        (is_own_namespace(timer->ns) && !is_host_space(timer->ns)))
        return;
    struct out text = {0};
    event_write(&text, kind, shard, timer, reason, node_now(node));
    if (!text.failed)
        keep_and_post(node, kind, false, out_bytes(&text), timer->ns);
    out_free(&text);
}

int events_new(struct api *api, uint64_t random)
{
    return event_ring_new(api->config.event_buffer, random, &api->ring);
}

void events_free(struct api *api)
{
    event_ring_free(api->ring);
}

void events_check(struct worker *worker)
{
    samples_check(worker);
    subscribers_check(worker);
}

void events_stop(struct worker *worker)
{
    samples_stop(worker);
    subscribers_stop(worker);
}
