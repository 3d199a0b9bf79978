/* SPDX-License-Identifier: MIT */
/* Server-sent events: what happens to timers, as it happens, to whoever listens.
 *
 * Before the first client listens, an event costs one look at a flag. From then on it is written once, where it happens, gets a
 * number and is kept for clients that reconnect (event_ring.h). It is posted to the workers that have subscribers. All this is
 * done under the ring's lock, so every worker gets the events in the order of their numbers. A client that reads too slowly loses
 * events, and the server tells it how many.
 *
 * A client that sends Last-Event-ID reads from the ring until it has caught up. Then it gets events like the others, except
 * those that it has from the ring already.
 *
 * A client hears of all servers: from the first subscriber on, the first worker listens, to everything, at the other servers. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/event_ring.h"
#include "api/internal.h"
#include "api/timer.h"

#define LINK_UNSENT_MOST (1u << 20) /* there is one link for each worker of each server */
#define PING_NS (15 * 1000000000ull)

static const char *const kind_names[] = {
    [EVENT_SCHEDULED] = "scheduled", [EVENT_FIRED] = "fired",         [EVENT_FAILED] = "failed",
    [EVENT_DEAD] = "dead",           [EVENT_CANCELLED] = "cancelled", [EVENT_SKIPPED] = "skipped",
    [EVENT_PAUSED] = "paused",       [EVENT_RESUMED] = "resumed",     [EVENT_MOVED] = "moved",
};

enum { KINDS = sizeof kind_names / sizeof *kind_names };

struct subscriber {
    struct subscriber *next, **link;
    struct call *call;
    fl_timer_id ping;
    struct session_watch *login; /* NULL: it has none */
    unsigned kinds;              /* a bit each */
    bool resuming;               /* it reads from the ring */
    uint64_t at;                 /* the latest event that was sent or is not for it */
    uint64_t dropped;
    fl_bytes ns; /* size 0: all that the token may read */
    char ns_room[256];
};

/* A worker of another server. */
struct listener {
    struct listener *next;
    struct worker *worker;
    struct link_request *request;
};

struct event {
    fl_loop_task task;
    struct worker *worker;
    enum event_kind kind;
    bool relayed; /* it has happened at another server */
    uint64_t id;
    fl_bytes ns; /* in the text behind it */
    size_t size;
    char text[];
};

/* --- Telling ------------------------------------------------------------------------------------------------------ */

static bool wants(const struct subscriber *subscriber, enum event_kind kind, fl_bytes ns)
{
    if (!(subscriber->kinds >> kind & 1))
        return false;
    if (subscriber->ns.size > 0)
        return subscriber->ns.size == ns.size && memcmp(subscriber->ns.data, ns.data, ns.size) == 0;
    return call_may(subscriber->call, RIGHT_READ, ns);
}

static void write_event(struct out *out, uint64_t id, fl_bytes text)
{
    out_format(out, "id: %" PRIu64 "\n", id);
    out_put(out, text.data, text.size);
}

static void write_dropped(struct out *out, uint64_t last, uint64_t count)
{
    out_format(out, "event: dropped\nid: %" PRIu64 "\ndata: {\"count\":%" PRIu64 "}\n\n", last, count);
}

/* Who has caught up hears at once how many he missed: perhaps nothing else happens for a long time. */
static void caught_up(http_request *request)
{
    struct call *call = request->arg;
    struct subscriber *subscriber = call->state;
    struct out lost = {0};
    write_dropped(&lost, subscriber->at, subscriber->dropped);
    http_write(request, out_bytes(&lost));
    out_free(&lost);
    subscriber->dropped = 0;
}

static void send_to(struct subscriber *subscriber, const struct event *event)
{
    http_request *request = subscriber->call->request;
    if (subscriber->dropped > 0 || http_unsent(request) > EVENTS_BYTES) {
        if (subscriber->dropped++ == 0)
            http_when_sent(request, EVENTS_BYTES / 2, caught_up);
        api_here(subscriber->call->worker)->counts.events_dropped++;
        return;
    }
    struct out text = {0};
    write_event(&text, event->id, (fl_bytes){event->text, event->size});
    http_write(request, out_bytes(&text));
    out_free(&text);
    api_here(subscriber->call->worker)->counts.events++;
}

static void send_to_all(const struct event *event)
{
    for (struct subscriber *s = api_here(event->worker)->subscribers, *next; s; s = next) {
        next = s->next;
        if (s->resuming || event->id <= s->at)
            continue; /* it comes, or has come, from the ring */
        s->at = event->id;
        if (wants(s, event->kind, event->ns))
            send_to(s, event);
    }
}

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
    send_to_all(event);
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
    if (!wire.bad && kind < KINDS)
        keep_and_post(worker->node, (enum event_kind)kind, true, text, ns);
}

static void listener_gone(struct link_request *request)
{
    struct listener *listener = request->arg, **at = &api_here(listener->worker)->listeners;
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

static void write_of_pause(struct out *text, enum event_kind kind, fl_bytes ns, int64_t now_us)
{
    out_format(text, "event: %s\ndata: {\"type\":\"%s\",\"at\":", kind_names[kind], kind_names[kind]);
    out_time(text, now_us);
    bool host = is_host_space(ns);
    out_key(text, host ? "host" : "namespace");
    out_string(text, (fl_bytes){(const char *)ns.data + host, ns.size - host});
}

static void write_of_timer(struct out *text, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                           int64_t now_us)
{
    char id[FL_ID_TEXT + 1];
    fl_id_format(shard, timer->id, id);
    out_format(text, "event: %s\ndata: {\"type\":\"%s\",\"at\":", kind_names[kind], kind_names[kind]);
    out_time(text, now_us);
    out_format(text, ",\"id\":\"%s\",\"namespace\":", id);
    out_string(text, timer->ns);
    if (timer->name.size > 0) {
        out_key(text, "name");
        out_string(text, timer->name);
    }
    out_key(text, "due");
    out_time(text, timer->due_us);
    timer_write_origin(text, timer);
    if (kind == EVENT_SKIPPED && timer->schedule.size > 0 && timer->id.seq == 0) { /* a run of occurrences */
        out_key(text, "count");
        out_number(text, timer->replaced);
    }
    out_key(text, "attempt");
    out_number(text, timer->attempt);
}

void events_publish(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason)
{
    struct node *node = worker->node;
    if (!atomic_load_explicit(&api_of(worker)->events_wanted, memory_order_relaxed) ||
        (is_own_namespace(timer->ns) && !is_host_space(timer->ns)))
        return;
    struct out text = {0};
    if (kind == EVENT_PAUSED || kind == EVENT_RESUMED)
        write_of_pause(&text, kind, timer->ns, node_now(node));
    else
        write_of_timer(&text, kind, shard, timer, node_now(node));
    if (reason.size > 0) {
        out_key(&text, "reason");
        out_string(&text, reason);
    }
    out_text(&text, "}\n\n");
    if (!text.failed)
        keep_and_post(node, kind, false, out_bytes(&text), timer->ns);
    out_free(&text);
}

/* --- Listening ---------------------------------------------------------------------------------------------------- */

static void unsubscribe(struct subscriber *subscriber)
{
    struct call *call = subscriber->call;
    http_request *request = call->request;
    *subscriber->link = subscriber->next;
    if (subscriber->next)
        subscriber->next->link = subscriber->link;
    atomic_fetch_sub(&api_here(call->worker)->hearers, 1);
    fl_loop_cancel(call->worker->loop, subscriber->ping);
    session_watch_free(subscriber->login);
    free(subscriber);
    out_free(&call->out);
    free(call);
    request->arg = NULL;
    http_end(request);
}

static void login_ended(void *arg)
{
    unsubscribe(arg);
}

static void gone(http_request *request)
{
    struct call *call = request->arg;
    unsubscribe(call->state);
}

static void ping(fl_loop *loop, void *arg)
{
    struct subscriber *subscriber = arg;
    (void)loop;
    if (subscriber->login)
        session_watch_look(subscriber->login);
    if (subscriber->resuming || subscriber->dropped > 0 || http_unsent(subscriber->call->request) >= EVENTS_BYTES)
        return;
    struct out text = {0}; /* the number: what the filter leaves out was not missed */
    out_format(&text, ": still here\nid: %" PRIu64 "\n\n", subscriber->at);
    http_write(subscriber->call->request, out_bytes(&text));
    out_free(&text);
}

/* --- Resuming ----------------------------------------------------------------------------------------------------- */

/* Writes some of the events that the client has not got. Returns how many it wrote. */
static uint64_t write_kept(struct out *out, struct event_ring *ring, struct subscriber *subscriber)
{
    uint64_t count = 0, oldest = event_ring_oldest(ring);
    if (subscriber->at + 1 < oldest) {
        write_dropped(out, oldest - 1, oldest - 1 - subscriber->at);
        subscriber->at = oldest - 1;
    }
    while (subscriber->at < event_ring_last(ring) && out->size < EVENTS_BYTES / 2) {
        const struct event_kept *kept = event_ring_at(ring, ++subscriber->at);
        if (!kept) {
            write_dropped(out, subscriber->at, 1);
        } else if (wants(subscriber, kept->kind, kept->ns)) {
            write_event(out, subscriber->at, kept->text);
            count++;
        }
    }
    subscriber->resuming = subscriber->at < event_ring_last(ring);
    return count;
}

static void resume(http_request *request)
{
    struct call *call = request->arg;
    struct subscriber *subscriber = call->state;
    struct event_ring *ring = api_of(call->worker)->ring;
    while (subscriber->resuming && http_unsent(request) <= EVENTS_BYTES) {
        struct out text = {0};
        uint64_t before = subscriber->at;
        event_ring_lock(ring);
        uint64_t count = write_kept(&text, ring, subscriber);
        event_ring_unlock(ring);
        if (text.failed) {
            out_clear(&text);
            write_dropped(&text, subscriber->at, subscriber->at - before);
            count = 0;
        }
        http_write(request, out_bytes(&text));
        out_free(&text);
        api_here(call->worker)->counts.events += count;
    }
    if (subscriber->resuming)
        http_when_sent(request, EVENTS_BYTES / 2, resume);
}

/* The number in Last-Event-ID. Returns false if there is none; what is not a number of ours becomes 0, which no event has. */
static bool read_last_id(http_request *request, uint64_t *ret)
{
    fl_bytes text = http_header(request, "last-event-id");
    uint64_t id = 0;
    for (size_t i = 0; i < text.size; i++) {
        char digit = ((const char *)text.data)[i];
        bool good = digit >= '0' && digit <= '9' && text.size <= 16;
        id = good ? id * 10 + (uint64_t)(digit - '0') : 0;
        if (!good)
            break;
    }
    *ret = id;
    return text.size > 0;
}

/* From where on the client gets events. */
static void take_position(struct subscriber *subscriber)
{
    http_request *request = subscriber->call->request;
    struct event_ring *ring = api_of(subscriber->call->worker)->ring;
    struct out text = {0};
    uint64_t wanted;
    bool again = read_last_id(request, &wanted);
    event_ring_lock(ring);
    bool known = again && event_ring_knows(ring, wanted);
    subscriber->at = known ? wanted : event_ring_last(ring);
    subscriber->resuming = subscriber->at < event_ring_last(ring);
    event_ring_unlock(ring);
    out_format(&text, ": listening\nid: %" PRIu64 "\n\n", subscriber->at);
    if (again && !known)
        out_format(&text, "event: dropped\nid: %" PRIu64 "\ndata: {\"count\":null}\n\n", subscriber->at);
    http_write(request, out_bytes(&text));
    out_free(&text);
}

static void listen_at_servers(fl_loop *loop, void *arg)
{
    (void)loop;
    servers_want_events(arg, true);
}

/* The first client: from now on, events are kept, and those of other servers are wanted. */
static void want_events(struct api *api)
{
    struct worker *first = &api->node->workers[0];
    atomic_store(&api->events_wanted, true);
    if (atomic_exchange(&api->events_of_servers, true))
        return;
    api->listen_task = (fl_loop_task){.fn = listen_at_servers, .arg = first};
    fl_loop_post_task(first->loop, &api->listen_task);
}

static int read_kinds(struct call *call, unsigned *ret)
{
    char room[128], *save = NULL;
    fl_bytes text;
    *ret = (1u << KINDS) - 1;
    int given = call_query(call, "type", room, sizeof room - 1, &text);
    if (given <= 0)
        return given;
    room[text.size] = '\0';
    *ret = 0;
    for (char *name = strtok_r(room, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        unsigned kind = 0;
        while (kind < KINDS && strcmp(name, kind_names[kind]) != 0)
            kind++;
        *ret |= 1u << kind; /* one too many, if there is none of that name */
    }
    if (*ret == 0 || *ret >> KINDS)
        return problem_set(&call->problem, 400, "invalid-field", "type",
                           "type must be a list of scheduled, fired, failed, dead, cancelled, skipped, paused, "
                           "resumed, moved, separated by "
                           "commas");
    return 0;
}

static int read_filter(struct call *call, struct subscriber *subscriber)
{
    static const char *const known[] = {"namespace", "type", NULL};
    if (call_check_query(call, known) < 0 || read_kinds(call, &subscriber->kinds) < 0)
        return -1;
    int given = call_query(call, "namespace", subscriber->ns_room, sizeof subscriber->ns_room, &subscriber->ns);
    if (given <= 0)
        return given;
    if (!name_is_good(subscriber->ns))
        return problem_set(&call->problem, 400, "invalid-field", "namespace",
                           "namespace must be 1 to 255 bytes of UTF-8 without control characters");
    if (!call_may(call, RIGHT_READ, subscriber->ns))
        return problem_set(&call->problem, 403, "forbidden", "namespace",
                           "the token has no right to read this namespace");
    return 0;
}

static void begin(struct call *call)
{
    http_begin(call->request, 200, "text/event-stream", "Cache-Control: no-store\r\n");
}

/* It has no body, so nothing comes after it: the connection is for the next request. */
static void answer_head(struct call *call)
{
    http_request *request = call->request;
    begin(call);
    call_drop(call);
    http_end(request);
}

void events_get(struct call *call)
{
    char room[1];
    if (call_query(call, "sample", room, 0, &(fl_bytes){0}) != 0) {
        samples_get(call);
        return;
    }
    struct worker *worker = call->worker;
    struct subscriber *subscriber = calloc(1, sizeof *subscriber);
    if (!subscriber) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    if (read_filter(call, subscriber) < 0) {
        free(subscriber);
        call_refuse(call);
        return;
    }
    if (call->request->method == HTTP_HEAD) {
        free(subscriber);
        answer_head(call);
        return;
    }
    if (call->cookie[0])
        subscriber->login = session_watch_new(call, login_ended, subscriber);
    if ((call->cookie[0] && !subscriber->login) ||
        fl_loop_interval(worker->loop, PING_NS, 0, ping, subscriber, &subscriber->ping) < 0) {
        session_watch_free(subscriber->login);
        free(subscriber);
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    subscriber->call = call;
    subscriber->next = api_here(worker)->subscribers;
    subscriber->link = &api_here(worker)->subscribers;
    if (subscriber->next)
        subscriber->next->link = &subscriber->next;
    api_here(worker)->subscribers = subscriber;
    atomic_fetch_add(&api_here(worker)->hearers, 1); /* before the position is taken: no event is between them */
    want_events(api_of(worker));
    call->state = subscriber;
    call->request->gone = gone;
    call->request->gone_at_eof = true;
    begin(call);
    take_position(subscriber);
    resume(call->request);
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
    for (struct subscriber *subscriber = api_here(worker)->subscribers, *next; subscriber; subscriber = next) {
        next = subscriber->next;
        struct call *call = subscriber->call;
        if (!call_is_let_in(call) || (subscriber->ns.size > 0 && !call_may(call, RIGHT_READ, subscriber->ns)))
            unsubscribe(subscriber);
    }
}

void events_stop(struct worker *worker)
{
    samples_stop(worker);
    for (struct subscriber *subscriber = api_here(worker)->subscribers, *next; subscriber; subscriber = next) {
        next = subscriber->next;
        unsubscribe(subscriber);
    }
}
