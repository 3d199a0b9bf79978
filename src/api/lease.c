/* SPDX-License-Identifier: MIT */
/* POST /v1/lease: due timers, from all servers.
 *
 * The servers are asked in turn until one has some, beginning with another one each time so that none is left behind, and
 * without waiting. What one has given would grow old if the next did not answer: so nobody waits for more. If nobody has any,
 * we watch at all of them until somebody has, or there is another to watch at, and ask again. A server that is alone does
 * both in one step. */

#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "node/pull.h"
#include "text/when.h"
#include "node/wire.h"

enum { MAX_ASKED = 10000 };

struct leasing {
    struct asker asker; /* here */
    struct call *call;
    struct worker *worker;
    uint64_t until_ns, lease_us;
    uint32_t max;
    struct out out;
    size_t count;
    int result;
    bool here;   /* the asker is out */
    bool asking; /* somebody is asked just now, for timers and not for news */
    bool alone;  /* there is no other server to ask */
    bool gone, answered, cancelling;
    size_t round; /* how many servers have been asked in this round */
    size_t first;
    struct peer_call take;
    struct watch {
        struct peer_call call;
        struct leasing *leasing;
        const struct peer *peer;
        bool out;
    } * watches;
    size_t watch_count;
    struct errand cancel;
    struct leasing *next, **link; /* of those that watch; `link` is NULL for others */
};

static void ask_next(struct leasing *leasing);

/* --- The end ------------------------------------------------------------------------------------------------------ */

static void free_if_over(struct leasing *leasing)
{
    if (!leasing->answered || leasing->here || leasing->cancelling)
        return;
    out_free(&leasing->asker.out);
    out_free(&leasing->out);
    free(leasing->watches);
    free(leasing);
}

static void cancel_go(struct errand *errand)
{
    struct leasing *leasing = (struct leasing *)((char *)errand - offsetof(struct leasing, cancel));
    pull_unask(errand->there, &leasing->asker);
    errand_return(errand);
}

static void cancel_back(struct errand *errand)
{
    struct leasing *leasing = (struct leasing *)((char *)errand - offsetof(struct leasing, cancel));
    leasing->cancelling = false;
    free_if_over(leasing);
}

/* Calls the asker back from where it waits. */
static void cancel(struct leasing *leasing)
{
    leasing->cancelling = true;
    leasing->cancel = (struct errand){
        .home = leasing->worker, .there = leasing->asker.errand.there, .go = cancel_go, .back = cancel_back};
    errand_send(&leasing->cancel);
}

static void stop_watching(struct leasing *leasing)
{
    for (size_t i = 0; i < leasing->watch_count; i++) {
        struct watch *watch = &leasing->watches[i];
        peer_link *link = watch->out ? link_to(leasing->worker, watch->peer) : NULL;
        if (link)
            peer_cancel(link, &watch->call);
        watch->out = false;
    }
}

static void leave_line(struct leasing *leasing)
{
    if (!leasing->link)
        return;
    *leasing->link = leasing->next;
    if (leasing->next)
        leasing->next->link = leasing->link;
    leasing->link = NULL;
}

static void stand_in_line(struct leasing *leasing)
{
    struct worker *worker = leasing->worker;
    if (leasing->link)
        return;
    leasing->next = worker->leasings;
    leasing->link = &worker->leasings;
    if (leasing->next)
        leasing->next->link = &leasing->next;
    worker->leasings = leasing;
}

static void answer(struct leasing *leasing)
{
    struct call *call = leasing->call;
    leasing->answered = true;
    leave_line(leasing);
    stop_watching(leasing);
    call->state = NULL;
    if (!call_is_let_in(call)) {
        call_refuse(call); /* what was leased meanwhile is leased again when the lease has run out */
    } else if (leasing->result < 0 && leasing->count == 0) {
        call_refuse_result(call, leasing->result);
    } else {
        out_text(&call->out, "{\"timers\":[");
        out_put(&call->out, leasing->out.data, leasing->out.size);
        out_text(&call->out, "]}");
        call->out.failed |= leasing->out.failed;
        call_answer(call, 200);
    }
    if (leasing->here && !leasing->cancelling)
        cancel(leasing);
    else
        free_if_over(leasing);
}

/* --- Watching ----------------------------------------------------------------------------------------------------- */

static uint64_t left_us(const struct leasing *leasing)
{
    uint64_t now_ns = fl_loop_now_ns(leasing->worker->loop);
    return now_ns < leasing->until_ns ? (leasing->until_ns - now_ns) / 1000 : 0;
}

static bool is_watching(const struct leasing *leasing)
{
    bool out = leasing->here;
    for (size_t i = 0; i < leasing->watch_count; i++)
        out |= leasing->watches[i].out;
    return out;
}

/* Somebody has something, or nobody watches any more. */
static void watched(struct leasing *leasing, bool found)
{
    if (leasing->asking)
        return; /* and looks again afterwards, if that brings nothing */
    if (found) {
        stop_watching(leasing);
        leasing->round = 0;
        ask_next(leasing);
    } else if (!is_watching(leasing)) {
        answer(leasing);
    }
}

static void watched_there(struct peer_call *call, int result, fl_bytes text)
{
    struct watch *watch = (struct watch *)call;
    struct wire wire = wire_begin(text);
    watch->out = false;
    watched(watch->leasing, result == 0 && wire_number(&wire) > 0);
}

static void send_here(struct leasing *leasing, uint32_t max, uint64_t wait_us, bool watch)
{
    struct asker *asker = &leasing->asker;
    asker->max = max;
    asker->wait_us = wait_us;
    asker->lease_us = leasing->lease_us;
    asker->watch = watch;
    asker->found = false;
    asker->count = 0;
    asker->result = 0;
    out_clear(&asker->out);
    leasing->here = true;
    errand_send(&asker->errand);
}

static void watch_there(struct leasing *leasing, struct watch *watch)
{
    peer_link *link = link_to(leasing->worker, watch->peer);
    struct out body = {0};
    if (!link)
        return;
    wire_put_bytes(&body, (fl_bytes){leasing->asker.space->name, leasing->asker.space->size});
    wire_put_number(&body, leasing->max);
    wire_put_number(&body, left_us(leasing));
    watch->call = (struct peer_call){.done = watched_there};
    watch->leasing = leasing;
    watch->out = !body.failed;
    if (watch->out)
        peer_call(link, &watch->call, PEER_WATCH, out_bytes(&body));
    out_free(&body);
}

static bool make_watches(struct leasing *leasing)
{
    struct server *server = leasing->worker->server;
    size_t count = atomic_load(&server->peer_count);
    if (leasing->watch_count == count)
        return true;
    free(leasing->watches);
    leasing->watches = calloc(count, sizeof *leasing->watches);
    leasing->watch_count = leasing->watches ? count : 0;
    const struct peer *peer = atomic_load(&server->peers);
    for (size_t i = 0; i < leasing->watch_count; i++, peer = atomic_load(&peer->next))
        leasing->watches[i].peer = peer;
    return leasing->watches != NULL;
}

static void watch(struct leasing *leasing)
{
    if (left_us(leasing) == 0 || leasing->gone || leasing->worker->leases_stopped || !make_watches(leasing)) {
        answer(leasing);
        return;
    }
    stand_in_line(leasing);
    for (size_t i = 0; i < leasing->watch_count; i++)
        watch_there(leasing, &leasing->watches[i]);
    if (!leasing->here)
        send_here(leasing, leasing->max, left_us(leasing), true);
}

/* --- Taking ------------------------------------------------------------------------------------------------------- */

static void add(struct leasing *leasing, fl_bytes objects, size_t count)
{
    if (count > 0 && leasing->count > 0)
        out_put(&leasing->out, ",", 1);
    out_put(&leasing->out, objects.data, objects.size);
    leasing->count += count;
}

static void came_back(struct errand *errand)
{
    struct leasing *leasing = (struct leasing *)errand;
    struct asker *asker = &leasing->asker;
    leasing->here = false;
    if (leasing->answered) {
        free_if_over(leasing);
        return;
    }
    if (asker->watch) {
        watched(leasing, asker->found);
        return;
    }
    leasing->asking = false;
    if (asker->result < 0)
        leasing->result = asker->result;
    add(leasing, out_bytes(&asker->out), asker->count);
    ask_next(leasing);
}

static void taken_there(struct peer_call *call, int result, fl_bytes text)
{
    struct leasing *leasing = (struct leasing *)((char *)call - offsetof(struct leasing, take));
    struct wire wire = wire_begin(text);
    leasing->asking = false;
    if (result == 0) {
        size_t count = (size_t)wire_number(&wire);
        add(leasing, wire_bytes(&wire), count);
    }
    ask_next(leasing);
}

static bool take_there(struct leasing *leasing, const struct peer *peer)
{
    peer_link *link = link_to(leasing->worker, peer);
    struct out body = {0};
    if (!link || !peer_link_up(link))
        return false;
    wire_put_bytes(&body, (fl_bytes){leasing->asker.space->name, leasing->asker.space->size});
    wire_put_number(&body, leasing->max);
    wire_put_number(&body, leasing->lease_us);
    leasing->take = (struct peer_call){.done = taken_there};
    bool made = !body.failed;
    if (made)
        peer_call(link, &leasing->take, PEER_TAKE, out_bytes(&body));
    out_free(&body);
    return made;
}

/* The i-th of the servers, of which the first is this one. False: it cannot be asked. */
static bool ask(struct leasing *leasing, size_t i)
{
    if (i == 0) {
        if (leasing->here)
            return false; /* it watches still, and comes back by itself */
        send_here(leasing, leasing->max, 0, false);
        return true;
    }
    const struct peer *peer = atomic_load(&leasing->worker->server->peers);
    while (peer && --i > 0)
        peer = atomic_load(&peer->next);
    return peer && take_there(leasing, peer);
}

static void ask_next(struct leasing *leasing)
{
    size_t servers = 1 + atomic_load(&leasing->worker->server->peer_count);
    while (leasing->round < servers && leasing->count == 0 && !leasing->gone) {
        leasing->asking = true;
        if (ask(leasing, (leasing->first + leasing->round++) % servers))
            return;
        leasing->asking = false;
    }
    if (leasing->count > 0)
        answer(leasing);
    else
        watch(leasing);
}

/* It may have come to be there, or to have something, while nobody watched at it. */
void leases_ask_again(struct worker *worker)
{
    for (struct leasing *leasing = worker->leasings, *next; leasing; leasing = next) {
        next = leasing->next;
        watched(leasing, true);
    }
}

/* Who asks just now is answered when that has come back. */
void leases_stop(struct worker *worker)
{
    worker->leases_stopped = true;
    for (struct leasing *leasing = worker->leasings, *next; leasing; leasing = next) {
        next = leasing->next;
        if (!leasing->asking && !leasing->alone)
            answer(leasing);
    }
}

/* A server that is alone: one step. */
static void came_back_alone(struct errand *errand)
{
    struct leasing *leasing = (struct leasing *)errand;
    leasing->here = false;
    leasing->result = leasing->asker.result;
    add(leasing, out_bytes(&leasing->asker.out), leasing->asker.count);
    answer(leasing);
}

/* --- The request -------------------------------------------------------------------------------------------------- */

/* Nothing more is taken for this request. What was taken just now comes back from where it was taken, and is answered. */
static void stop_asking(struct leasing *leasing)
{
    atomic_store(&leasing->asker.gone, true);
    leasing->gone = true;
    if (leasing->worker->server->cluster) {
        if (!leasing->asking)
            answer(leasing);
    } else if (!leasing->cancelling) {
        cancel(leasing);
    }
}

static void asker_gone(http_request *request)
{
    struct call *call = request->arg;
    if (call && call->state)
        stop_asking(call->state);
}

static int bad_field(struct call *call, const char *field, const char *what)
{
    return problem_set(&call->problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

static int read_span(struct call *call, const char *field, struct json value, uint64_t least_us, uint64_t most_us,
                     const char *what, uint64_t *ret)
{
    char room[64];
    if (value.kind != JSON_STRING || value.text.size > sizeof room ||
        duration_parse(json_string(value, room), ret) < 0 || *ret < least_us || *ret > most_us)
        return bad_field(call, field, what);
    return 0;
}

static int read_max(struct call *call, struct json value, uint32_t *ret)
{
    int64_t max;
    if (value.kind != JSON_NUMBER || !json_integer(value, &max) || max < 1 || max > MAX_ASKED)
        return bad_field(call, "max", "a whole number from 1 to 10000");
    *ret = (uint32_t)max;
    return 0;
}

static int read_body(struct call *call, struct leasing *leasing, uint64_t *ret_wait_us)
{
    enum { MAX, WAIT, LEASE };
    static const char *const names[] = {"max", "wait", "lease", NULL};
    struct json body, key, value;
    size_t at;
    const char *why;
    unsigned given = 0;
    if (call->request->body.size == 0)
        return 0;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    if (body.kind != JSON_OBJECT)
        return problem_set(&call->problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value);) {
        int r = problem_member(&call->problem, NULL, names, key, &given);
        if (r == MAX)
            r = read_max(call, value, &leasing->max);
        else if (r == WAIT)
            r = read_span(call, "wait", value, 0, 60 * 1000000ull, "a duration of at most \"60s\"", ret_wait_us);
        else if (r == LEASE)
            r = read_span(call, "lease", value, 1000, 86400 * 1000000ull, "a duration from \"1ms\" to \"24h\"",
                          &leasing->lease_us);
        if (r < 0)
            return r;
    }
    return 0;
}

/* As if those who are not let in any more had gone; they are told why. */
void leases_check(struct worker *worker)
{
    for (struct leasing *leasing = worker->leasings, *next; leasing; leasing = next) {
        next = leasing->next;
        if (!call_is_let_in(leasing->call))
            stop_asking(leasing);
    }
}

void lease_post(struct call *call)
{
    struct worker *worker = call->worker;
    struct server *server = worker->server;
    struct space *space = space_of(server, call->ns);
    struct leasing *leasing = space ? calloc(1, sizeof *leasing) : NULL;
    uint64_t wait_us = 0;
    if (!leasing) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    leasing->max = 100;
    leasing->lease_us = 30 * 1000000ull;
    if (read_body(call, leasing, &wait_us) < 0) {
        free(leasing);
        call_refuse(call);
        return;
    }
    bool alone = leasing->alone = !server->cluster;
    leasing->call = call;
    leasing->worker = worker;
    leasing->until_ns = fl_loop_now_ns(worker->loop) + wait_us * 1000;
    leasing->first = worker->lease_turn++;
    leasing->asker.space = space;
    leasing->asker.errand = (struct errand){
        .home = worker, .there = pull_home(server, space), .go = pull_ask, .back = alone ? came_back_alone : came_back};
    call->state = leasing;
    call->request->gone = asker_gone;
    call->request->half_closed = asker_gone;
    if (alone) {
        stand_in_line(leasing);
        send_here(leasing, leasing->max, wait_us, false);
    } else {
        ask_next(leasing);
    }
}
