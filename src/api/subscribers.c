/* SPDX-License-Identifier: MIT */
/* Clients that listen to events.
 *
 * A client that reads too slowly loses events, and the server tells it how many. A client that sends Last-Event-ID reads
 * from the ring until it has caught up. Then it gets events like the others, except those that it has from the ring
 * already. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/event_ring.h"
#include "api/events.h"
#include "api/timer.h"
#include "base/assert.h"

#define PING_NS (15 * 1000000000ull)

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

/* --- Sending ------------------------------------------------------------------------------------------------------ */

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

/* A client that has caught up is told at once how many events it missed, because the next event may be far away. */
static void caught_up(http_request *request)
{
    struct call *call = request->arg;
    struct subscriber *subscriber = call->state;
    fl__assert(subscriber->dropped > 0);
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

void subscribers_send(const struct event *event)
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

/* --- Listening ---------------------------------------------------------------------------------------------------- */

static void unsubscribe(struct subscriber *subscriber)
{
    struct call *call = subscriber->call;
    http_request *request = call->request;
    fl__assert(*subscriber->link == subscriber);
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
    fl__assert(subscriber->resuming && subscriber->at <= event_ring_last(ring));
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

/* The number in Last-Event-ID. Returns false if there is no such header. Any other text gives 0, which no event has. */
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

static int read_kinds(struct call *call, unsigned *ret)
{
    char room[128], *save = NULL;
    fl_bytes text;
    *ret = (1u << EVENT_KINDS) - 1;
    int given = call_query(call, "type", room, sizeof room - 1, &text);
    if (given <= 0)
        return given;
    room[text.size] = '\0';
    *ret = 0;
    for (char *name = strtok_r(room, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        unsigned kind = 0;
        while (kind < EVENT_KINDS && strcmp(name, event_names[kind]) != 0)
            kind++;
        *ret |= 1u << kind; /* for an unknown name, the bit after the last kind */
    }
    if (*ret == 0 || *ret >> EVENT_KINDS)
        return problem_set(&call->problem, 400, "invalid-field", "type",
                           "type must be a list of scheduled, fired, failed, dead, cancelled, skipped, paused, "
                           "resumed, moved, separated by "
                           "commas");
    return 0;
}

static int read_filter(struct call *call, struct subscriber *subscriber)
{
    static const char *const known[] = {"namespace", "type", "sample", NULL};
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
    events_want(api_of(worker));
    call->state = subscriber;
    call->request->gone = gone;
    call->request->gone_at_eof = true;
    begin(call);
    take_position(subscriber);
    resume(call->request);
}

void subscribers_check(struct worker *worker)
{
    for (struct subscriber *subscriber = api_here(worker)->subscribers, *next; subscriber; subscriber = next) {
        next = subscriber->next;
        struct call *call = subscriber->call;
        if (!call_is_let_in(call) || (subscriber->ns.size > 0 && !call_may(call, RIGHT_READ, subscriber->ns)))
            unsubscribe(subscriber);
    }
}

void subscribers_stop(struct worker *worker)
{
    for (struct subscriber *subscriber = api_here(worker)->subscribers, *next; subscriber; subscriber = next) {
        next = subscriber->next;
        unsubscribe(subscriber);
    }
}
