/* SPDX-License-Identifier: MIT */
/* The ports of simulated nodes: targets that fail and hang, and links that are late and break. */

#include <stdlib.h>
#include <string.h>

#include "sim/nodes.h"

static struct host *host_of(const struct worker *worker)
{
    return worker->node->owner;
}

/* --- Webhooks ----------------------------------------------------------------------------------------------------- */

struct hook {
    struct attempt *attempt;
    struct host *host;
    bool begun, ended;
    fl_timer_id timer;
    LIST_ENTRY(hook) entry;
};

static struct hook *hook_of(struct attempt *attempt)
{
    return (struct hook *)(void *)attempt->room;
}

static uint64_t prepare(struct attempt *attempt)
{
    return attempt->firing.timer.target.size;
}

static fl_bytes host_of_target(fl_bytes target, char room[HOST_TEXT])
{
    memcpy(room, target.data, target.size);
    return (fl_bytes){room, target.size};
}

/* It is settled. If it has begun, the ledger knows first. */
static void finish(struct hook *hook, enum fl_settle result, int64_t at_us)
{
    struct attempt *attempt = hook->attempt;
    LIST_REMOVE(hook, entry);
    if (hook->begun && !hook->host->dead)
        ledger_end(hook->host, &attempt->firing.timer, result, at_us);
    attempt->result = result;
    attempt->at_us = at_us;
    attempt->status = result == FL_DONE ? 200 : 500;
    attempt->reason = bytes_of("simulated");
    attempt_done(attempt);
}

static void respond(fl_loop *loop, void *arg)
{
    struct hook *hook = arg;
    struct nodes *w = hook->host->world;
    (void)loop;
    if (hook->host->dead)
        finish(hook, FL_LATER, nodes_wall_us(w) + SECOND);
    else if (w->calm || chance(&w->luck, 60))
        finish(hook, FL_DONE, 0);
    else if (chance(&w->luck, 70))
        finish(hook, FL_FAILED, chance(&w->luck, 50) ? 0 : nodes_wall_us(w) + (int64_t)below(&w->luck, 3 * SECOND));
    else if (chance(&w->luck, 60) && hook->attempt->firing.timer.schedule.size == 0)
        finish(hook, FL_AGAIN, nodes_wall_us(w) + (int64_t)below(&w->luck, 3 * SECOND));
    else
        finish(hook, FL_DEAD, 0);
}

static void end_early(fl_loop *loop, void *arg)
{
    struct hook *hook = arg;
    (void)loop;
    finish(hook, FL_LATER, nodes_wall_us(hook->host->world) + SECOND);
}

static void take_turn(fl_loop *loop, void *arg)
{
    struct hook *hook = arg;
    struct nodes *w = hook->host->world;
    struct attempt *attempt = hook->attempt;
    if (hook->host->dead || !attempt_begin(attempt)) {
        hook->ended = true;
        end_early(loop, hook);
        return;
    }
    hook->begun = true;
    ledger_begin(hook->host, attempt->shard->number, &attempt->firing.timer, 0, 0);
    uint64_t us = w->calm ? 1000 : below(&w->luck, chance(&w->luck, 80) ? 50000 : 10 * SECOND);
    nodes_at(w, us, respond, hook, &hook->timer);
}

static void deliver_attempt(struct worker *worker, struct attempt *attempt)
{
    struct host *host = host_of(worker);
    struct nodes *w = host->world;
    struct hook *hook = hook_of(attempt);
    *hook = (struct hook){.attempt = attempt, .host = host};
    ledger_rate(host, &attempt->firing.timer);
    LIST_INSERT_HEAD(&host->hooks, hook, entry);
    nodes_at(w, w->calm || chance(&w->luck, 60) ? 0 : below(&w->luck, 3 * SECOND), take_turn, hook, &hook->timer);
}

static bool cancel(struct worker *worker, struct attempt *attempt)
{
    struct hook *hook = hook_of(attempt);
    if (hook->begun || hook->ended)
        return false;
    fl_loop_cancel(worker->loop, hook->timer);
    LIST_REMOVE(hook, entry);
    return true;
}

/* Those of one shard, or (NULL) of all. */
static void withdraw_from(struct host *host, const struct shard *shard, bool begun)
{
    for (struct hook *hook = LIST_FIRST(&host->hooks), *next; hook; hook = next) {
        next = LIST_NEXT(hook, entry);
        if (hook->ended || (hook->begun && !begun) || (shard && hook->attempt->shard != shard))
            continue;
        hook->ended = true;
        fl_loop_cancel(host->world->loop, hook->timer);
        nodes_at(host->world, 0, end_early, hook, &hook->timer);
    }
}

static void withdraw(struct worker *worker, const struct shard *shard, bool begun)
{
    withdraw_from(host_of(worker), shard, begun);
}

void hooks_end(struct host *host, bool begun)
{
    withdraw_from(host, NULL, begun);
}

/* --- Links -------------------------------------------------------------------------------------------------------- */

struct message {
    struct node_link *link;
    struct link_call *call; /* NULL: nobody waits for it */
    uint64_t number;        /* no other message has it */
    uint8_t kind;
    struct request *request; /* at the other server; NULL: it is on its way, or has been answered */
    int result;
    bool failed; /* nothing was sent */
    struct out body;
    LIST_ENTRY(message) entry;
};

struct node_link {
    struct worker *worker;
    struct host *host;
    struct host *there; /* NULL: it is not up */
    char address[16];
    void (*changed)(void *arg, bool up);
    void *arg;
    bool failed, freed;
    fl_timer_id timer;
    uint64_t clear_us; /* messages do not overtake each other */
    LIST_HEAD(messages, message) messages;
    LIST_ENTRY(node_link) entry;
};

struct request {
    struct link_request link;
    struct message *message; /* NULL: nobody waits */
    struct host *host;
    bool watched;
    LIST_ENTRY(request) entry;
};

static void message_free(struct message *message)
{
    LIST_REMOVE(message, entry);
    out_free(&message->body);
    free(message);
}

static void nobody_waits(struct request *request)
{
    request->message = NULL;
    if (request->watched)
        request->link.gone(&request->link);
}

/* The message is over; the caller learns it, if it still waits. */
static void message_end(struct message *message, int result, bool answered)
{
    struct link_call *call = message->call;
    struct request *request = message->request;
    struct out body = message->body;
    message->body = (struct out){0};
    bool sent = !message->failed;
    message_free(message);
    if (request)
        nobody_waits(request);
    if (call) {
        call->sent = sent;
        call->done(call, result, answered ? out_bytes(&body) : (fl_bytes){0});
    }
    out_free(&body);
}

static void lose(struct node_link *link)
{
    struct message *message;
    while ((message = LIST_FIRST(&link->messages)))
        message_end(message, message->failed ? FL_STORE_UNAVAILABLE : FL_OUTCOME_UNKNOWN, false);
}

static void connect(fl_loop *loop, void *arg);

static void break_link(struct node_link *link)
{
    if (!link->there)
        return;
    nodes_say(link->host->world, "the link from %s to %s breaks", link->host->address, link->address);
    link->there = NULL;
    link->failed = true;
    if (link->changed && !link->host->dead)
        link->changed(link->arg, false);
    lose(link);
    nodes_at(link->host->world, 20000, connect, link, &link->timer);
}

static void connect(fl_loop *loop, void *arg)
{
    struct node_link *link = arg;
    struct nodes *w = link->host->world;
    (void)loop;
    link->timer = 0;
    struct host *there = nodes_host_at(w, link->address);
    if (!there || link->host->dead || (!w->calm && w->nature.breaks && chance(&w->luck, 20))) {
        link->failed = true;
        nodes_at(w, 50000, connect, link, &link->timer);
        return;
    }
    link->there = there;
    link->failed = false;
    if (link->changed)
        link->changed(link->arg, true);
}

static int link_new(struct worker *worker, const struct link_config *config, struct node_link **ret)
{
    struct host *host = host_of(worker);
    struct node_link *link = nodes_need(calloc(1, sizeof *link));
    link->worker = worker;
    link->host = host;
    link->changed = config->changed;
    link->arg = config->arg;
    snprintf(link->address, sizeof link->address, "%s", config->address);
    LIST_INSERT_HEAD(&host->links, link, entry);
    nodes_at(host->world, 500, connect, link, &link->timer);
    *ret = link;
    return 0;
}

static void link_free(struct node_link *link)
{
    if (link->timer)
        fl_loop_cancel(link->host->world->loop, link->timer);
    link->there = NULL;
    lose(link);
    LIST_REMOVE(link, entry);
    free(link);
}

static bool link_up(const struct node_link *link)
{
    return link->there != NULL;
}

static bool link_has_failed(const struct node_link *link)
{
    return link->failed;
}

static const char *link_trouble(const struct node_link *link)
{
    return link->failed ? "nobody is there" : "";
}

static void link_rotate(struct node_link *link, fl_bytes secret)
{
    (void)link, (void)secret;
}

static void secret_changed(struct worker *worker)
{
    (void)worker;
}

/* --- Messages ----------------------------------------------------------------------------------------------------- */

/* What is lost with its link is gone before its time comes: so time is kept per link, in the order of sending. */
struct travel {
    struct nodes *w;
    struct message *message;
    uint64_t number;
    fl_loop_fn arrive;
};

static bool still_there(const struct travel *t)
{
    struct host *host;
    struct node_link *link;
    const struct message *message;
    for (host = LIST_FIRST(&t->w->hosts); host; host = LIST_NEXT(host, entry))
        for (link = LIST_FIRST(&host->links); link; link = LIST_NEXT(link, entry))
            for (message = LIST_FIRST(&link->messages); message; message = LIST_NEXT(message, entry))
                if (message->number == t->number)
                    return true;
    return false;
}

static void travelled(fl_loop *loop, void *arg)
{
    struct travel t = *(struct travel *)arg;
    free(arg);
    if (still_there(&t))
        t.arrive(loop, t.message);
}

static void travel(struct message *message, fl_loop_fn arrive)
{
    struct node_link *link = message->link;
    struct nodes *w = link->host->world;
    struct travel *t = nodes_need(malloc(sizeof *t));
    *t = (struct travel){w, message, message->number, arrive};
    uint64_t now_us = (uint64_t)nodes_mono_us(w);
    uint64_t us = now_us + (w->calm || chance(&w->luck, 90) ? 100 + below(&w->luck, 900) : below(&w->luck, 500000));
    link->clear_us = us > link->clear_us ? us : link->clear_us;
    nodes_at(w, link->clear_us - now_us, travelled, t, NULL);
}

static void answer_arrives(fl_loop *loop, void *arg)
{
    struct message *message = arg;
    (void)loop;
    message_end(message, message->result, true);
}

static void call_arrives(fl_loop *loop, void *arg)
{
    struct message *message = arg;
    struct host *there = message->link->there;
    (void)loop;
    if (message->failed || !there || there->dead) {
        message_end(message, message->failed ? FL_STORE_UNAVAILABLE : FL_OUTCOME_UNKNOWN, false);
        return;
    }
    struct request *request = nodes_need(calloc(1, sizeof *request));
    request->link = (struct link_request){
        .kind = message->kind, .body = out_bytes(&message->body), .port = request, .ports = &nodes_ports};
    request->message = message;
    request->host = there;
    message->request = request;
    LIST_INSERT_HEAD(&there->requests, request, entry);
    node_serve(&there->node.workers[message->link->worker->index], &request->link);
}

static void call_over(struct node_link *link, struct link_call *call, uint8_t kind, fl_bytes body)
{
    struct message *message = nodes_need(calloc(1, sizeof *message));
    *message = (struct message){
        .number = ++link->host->world->messages, .link = link, .call = call, .kind = kind, .failed = !link->there};
    out_put(&message->body, body.data, body.size);
    LIST_INSERT_HEAD(&link->messages, message, entry);
    call->sent = false;
    travel(message, call_arrives);
}

static struct message *message_of(const struct node_link *link, const struct link_call *call)
{
    struct message *message;
    for (message = LIST_FIRST(&link->messages); message; message = LIST_NEXT(message, entry))
        if (message->call == call)
            return message;
    return NULL;
}

static void link_cancel(struct node_link *link, struct link_call *call)
{
    struct message *message = nodes_need(message_of(link, call));
    message->call = NULL;
    message_end(message, 0, false);
}

/* What another server gives is known here as soon as it is given, though the answer may be lost. */
static void note_leases(struct host *host, uint64_t lease_us, fl_bytes body)
{
    struct wire wire = wire_begin(body);
    for (size_t count = wire_count(&wire); count > 0 && !wire.bad; count--) {
        fl_durable timer = {0};
        uint64_t words[5];
        for (int i = 0; i < 5; i++)
            words[i] = wire_number(&wire);
        wire_timer(&wire, &timer);
        ledger_begin(host, (uint32_t)words[4], &timer, words[3], lease_us);
    }
}

static uint64_t lease_of(fl_bytes body)
{
    struct wire wire = wire_begin(body);
    wire_bytes(&wire);
    wire_number(&wire);
    return wire_number(&wire);
}

static void answer(struct link_request *link, int result, fl_bytes body)
{
    struct request *request = link->port;
    struct message *message = request->message;
    LIST_REMOVE(request, entry);
    if (message && !request->host->dead) {
        if (message->kind == LINK_TAKE && result == 0)
            note_leases(request->host, lease_of(out_bytes(&message->body)), body);
        message->request = NULL;
        message->result = result;
        out_clear(&message->body);
        out_put(&message->body, body.data, body.size);
        travel(message, answer_arrives);
    } else if (message) {
        message->request = NULL; /* it is lost with its link */
    }
    free(request);
}

static void watch(struct link_request *link, bool on)
{
    ((struct request *)link->port)->watched = on;
}

static void piece(struct link_request *link, fl_bytes bytes)
{
    (void)link, (void)bytes;
}

static size_t unsent(const struct link_request *link)
{
    (void)link;
    return 0;
}

void links_break(struct host *host)
{
    struct host *other;
    struct node_link *link;
    for (other = LIST_FIRST(&host->world->hosts); other; other = LIST_NEXT(other, entry))
        for (link = LIST_FIRST(&other->links); link; link = LIST_NEXT(link, entry))
            if (other == host || link->there == host)
                break_link(link);
    for (struct request *request = LIST_FIRST(&host->requests), *next; request; request = next) {
        next = LIST_NEXT(request, entry);
        if (request->message)
            nobody_waits(request);
    }
}

void link_break_some(struct nodes *w)
{
    struct host *host;
    struct node_link *link;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        for (link = LIST_FIRST(&host->links); link; link = LIST_NEXT(link, entry))
            if (!host->dead && chance(&w->luck, 30)) {
                break_link(link);
                return;
            }
}

/* --- The rest ----------------------------------------------------------------------------------------------------- */

static void publish(struct worker *worker, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                    fl_bytes reason)
{
    (void)reason;
    if (kind == EVENT_DEAD && !host_of(worker)->dead)
        ledger_dead(host_of(worker), timer);
    if (kind == EVENT_SCHEDULED && timer->schedule.size > 0 && !host_of(worker)->dead)
        schedules_made(host_of(worker), shard, timer);
}

static void relay(struct worker *worker, fl_bytes bytes)
{
    (void)worker, (void)bytes;
}

static void listen_to(struct worker *worker, struct link_request *request)
{
    (void)worker;
    link_answer(request, 0, (fl_bytes){0});
}

/* Settings without secrets are stored as they are in memory. */
static int settings_read(fl_bytes stored, fl_bytes ns, struct settings *ret)
{
    (void)ns;
    if (stored.size != sizeof *ret)
        return -1;
    memcpy(ret, stored.data, sizeof *ret);
    return 0;
}

static void settings_write(struct out *out, const struct settings *settings)
{
    out_put(out, settings, sizeof *settings);
}

static size_t response_room(const struct worker *worker)
{
    (void)worker;
    return 1 << 30;
}

static struct nodes *the_world; /* a random number says nothing about whose it is */

uint64_t random_word(struct nodes *w)
{
    the_world = w;
    return draw(&w->luck);
}

static int random_bytes(void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)(draw(&the_world->luck) >> 40);
    return 0;
}

static void replaced(struct node *node)
{
    nodes_fail(((struct host *)node->owner)->world, "a server with an address of its own is replaced");
}

const struct node_ports nodes_ports = {
    .attempt_room = sizeof(struct hook),
    .prepare = prepare,
    .host_of = host_of_target,
    .deliver = deliver_attempt,
    .cancel = cancel,
    .withdraw = withdraw,
    .link_new = link_new,
    .link_free = link_free,
    .link_up = link_up,
    .link_has_failed = link_has_failed,
    .link_trouble = link_trouble,
    .link_rotate = link_rotate,
    .link_call = call_over,
    .link_cancel = link_cancel,
    .secret_changed = secret_changed,
    .answer = answer,
    .watch = watch,
    .piece = piece,
    .unsent = unsent,
    .publish = publish,
    .relay = relay,
    .listen = listen_to,
    .settings_read = settings_read,
    .settings_write = settings_write,
    .response_room = response_room,
    .random = random_bytes,
    .replaced = replaced,
};
