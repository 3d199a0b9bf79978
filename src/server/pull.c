/* SPDX-License-Identifier: MIT */
/* Pull: timers without a target are leased in batches and acknowledged in batches.
 *
 * What is due in a namespace goes to one worker, the namespace's home, wherever its shards are: there it waits in one queue,
 * and so do those who ask while it is empty. A lease is written as the home's number, the item's slot and a random number
 * that nobody can guess and that no second lease of that slot has: so an acknowledgement finds its item, or finds that it has
 * come too late.
 *
 * An item is an attempt that the engine has dispatched; its bytes stay where they are until it is settled, on its shard's
 * worker. Whoever lets a lease run out gives the item back: it goes to the end of the queue as the next attempt, until there
 * have been as many as its policy allows.
 *
 * What nobody asks for must not keep others waiting: a shard has only so many attempts in flight. So when three quarters of
 * them wait here and nobody has asked for the namespace for a while, what falls due in it is put off, by as long as it is
 * late already, up to five minutes: then timers with targets pass, at the price of a write for each that is put off. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/json.h"
#include "server/log.h"
#include "server/server.h"
#include "server/timer.h"
#include "server/when.h"

enum { LEASE_TEXT = 28, MAX_ASKED = 10000 };

struct item {
    fl_firing firing;
    struct shard *shard;
    struct parcel *parcel;
    struct item *next; /* in the queue */
    struct lease *lease;
    uint64_t serial; /* of its lease, at random; 0: it waits */
    uint32_t slot;
};

/* Items that came together. */
struct parcel {
    fl_loop_task task;
    struct worker *home;
    size_t left, count;
    struct item items[];
};

/* Items that went out together. */
struct lease {
    struct worker *worker;
    struct queue *queue;
    fl_timer_id timer;
    struct lease *next; /* with a test clock, instead of the timer: those that are out, */
    int64_t end_us;     /* until then */
    size_t left, count;
    struct leased {
        uint32_t slot;
        uint64_t serial;
    } items[];
};

/* Somebody who asks. */
struct asker {
    struct errand errand;
    struct call *call;
    fl_bytes ns;
    uint32_t max;
    uint64_t wait_us, lease_us;
    atomic_bool gone;
    struct out out;
    int result;
    /* At the namespace's home: */
    struct queue *queue;
    fl_timer_id timer;
    struct asker *next;
};

struct queue {
    struct queue *next;
    uint64_t hash;
    fl_bytes ns; /* the space's */
    struct item *first, *last;
    struct asker *askers, *askers_last;
};

enum { QUEUE_BUCKETS = 1024 };

struct pull {
    struct queue *queues[QUEUE_BUCKETS];
    struct item **slots;
    uint32_t *free_slots;
    uint32_t slot_count, slot_capacity, free_count;
    uint64_t serials[32];  /* at random, as many as one call gives */
    unsigned serials_left; /* of them */
    struct lease *leases;  /* with a test clock */
    bool stopped;
};

int pull_new(struct worker *worker)
{
    worker->pull = calloc(1, sizeof *worker->pull);
    return worker->pull ? 0 : FL_NO_MEMORY;
}

/* --- Queues ------------------------------------------------------------------------------------------------------- */

static struct worker *home_of(struct server *server, const struct space *space)
{
    return &server->workers[space->hash % server->worker_count];
}

static struct queue *queue_of(struct worker *worker, struct space *space)
{
    struct queue **bucket = &worker->pull->queues[space->hash / worker->server->worker_count % QUEUE_BUCKETS], *queue;
    for (queue = *bucket; queue; queue = queue->next)
        if (queue->ns.data == space->name)
            return queue;
    queue = calloc(1, sizeof *queue);
    if (!queue)
        return NULL;
    queue->hash = space->hash;
    queue->ns = (fl_bytes){space->name, space->size};
    queue->next = *bucket;
    *bucket = queue;
    return queue;
}

static void queue_push(struct queue *queue, struct item *item)
{
    item->next = NULL;
    item->serial = 0;
    if (queue->last)
        queue->last->next = item;
    else
        queue->first = item;
    queue->last = item;
}

static struct item *queue_pop(struct queue *queue)
{
    struct item *item = queue->first;
    queue->first = item->next;
    if (!queue->first)
        queue->last = NULL;
    return item;
}

static bool slot_take(struct pull *pull, struct item *item)
{
    if (pull->free_count == 0 && pull->slot_count == pull->slot_capacity) {
        uint32_t capacity = pull->slot_capacity * 2 + 1024;
        struct item **slots = realloc(pull->slots, capacity * sizeof(struct item *));
        if (slots)
            pull->slots = slots;
        uint32_t *free_slots = slots ? realloc(pull->free_slots, capacity * sizeof *free_slots) : NULL;
        if (!free_slots)
            return false;
        pull->free_slots = free_slots;
        pull->slot_capacity = capacity;
    }
    item->slot = pull->free_count > 0 ? pull->free_slots[--pull->free_count] : pull->slot_count++;
    pull->slots[item->slot] = item;
    return true;
}

/* --- Settling ----------------------------------------------------------------------------------------------------- */

struct settling {
    fl_loop_task task;
    struct shard *shard;
    fl_settlement settlement;
    fl_firing firing;
    struct parcel *parcel;
};

static void parcel_drop(struct parcel *parcel, size_t count)
{
    parcel->left -= count;
    if (parcel->left == 0)
        free(parcel);
}

static void settle_on_shard(struct shard *shard, const fl_firing *firing, const fl_settlement *settlement)
{
    struct space *space = space_of(shard->worker->server, firing->timer.ns);
    shard->held--;
    if (space)
        atomic_fetch_sub_explicit(&space->held, 1, memory_order_relaxed);
    deliver_settle(shard, firing, settlement);
}

static void settle_here(fl_loop *loop, void *arg)
{
    struct settling *settling = arg;
    (void)loop;
    settle_on_shard(settling->shard, &settling->firing, &settling->settlement);
    free(settling);
}

/* Ends an item. Without memory to send the settlement, the attempt stays open, and comes again after a restart. */
static void item_settle(struct worker *worker, struct item *item, fl_settlement settlement)
{
    settlement.token = item->firing.token;
    worker->pull->slots[item->slot] = NULL;
    worker->pull->free_slots[worker->pull->free_count++] = item->slot;
    if (item->shard->worker == worker) {
        settle_on_shard(item->shard, &item->firing, &settlement);
    } else {
        struct settling *settling = malloc(sizeof *settling);
        if (settling) {
            *settling = (struct settling){.shard = item->shard, .settlement = settlement, .firing = item->firing};
            settling->task = (fl_loop_task){.fn = settle_here, .arg = settling};
            fl_loop_post_task(item->shard->worker->loop, &settling->task);
        }
    }
    parcel_drop(item->parcel, 1);
}

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

static void write_item(struct out *out, const struct item *item, unsigned worker)
{
    const fl_durable *timer = &item->firing.timer;
    char id[FL_ID_TEXT + 1];
    fl_id_format(item->shard->number, timer->id, id);
    out_text(out, "{\"id\":\"");
    out_put(out, id, FL_ID_TEXT);
    out_text(out, "\",\"attempt\":");
    out_number(out, timer->attempt);
    out_format(out, ",\"lease\":\"%04x%08" PRIx32 "%016" PRIx64 "\"", worker, item->slot, item->serial);
    if (timer->name.size > 0) {
        out_key(out, "name");
        out_string(out, timer->name);
    }
    out_key(out, "due");
    out_time(out, timer->due_us);
    if (timer_is_binary(timer)) {
        out_key(out, "payload_base64");
        out_base64(out, timer_payload(timer));
    } else {
        out_key(out, "payload");
        out_put(out, timer->payload.size > 0 ? timer->payload.data : "null",
                timer->payload.size > 0 ? timer->payload.size : 4);
    }
    out_put(out, "}", 1);
}

static void lease_ended(fl_loop *loop, void *arg);

/* From now on it can run out. */
static int lease_begin(struct worker *worker, struct lease *lease, uint64_t lease_us)
{
    struct pull *pull = worker->pull;
    if (!worker->server->test_clock)
        return fl_loop_timer(worker->loop, lease_us * 1000, lease_ended, lease, &lease->timer);
    lease->end_us = server_now(worker->server) + (int64_t)lease_us;
    lease->next = pull->leases;
    pull->leases = lease;
    return 0;
}

static void lease_unlink(struct pull *pull, const struct lease *lease)
{
    struct lease **at = &pull->leases;
    while (*at != lease)
        at = &(*at)->next;
    *at = lease->next;
}

/* Takes one out that is over. */
static struct lease *lease_take_over(struct pull *pull, int64_t now_us)
{
    struct lease *lease = pull->leases;
    while (lease && lease->end_us > now_us)
        lease = lease->next;
    if (lease)
        lease_unlink(pull, lease);
    return lease;
}

int64_t pull_clock_changed(struct worker *worker)
{
    struct pull *pull = worker->pull;
    int64_t now_us = server_now(worker->server), next_us = INT64_MAX;
    for (struct lease *lease; (lease = lease_take_over(pull, now_us)) != NULL;)
        lease_ended(worker->loop, lease);
    for (const struct lease *lease = pull->leases; lease; lease = lease->next)
        if (lease->end_us < next_us)
            next_us = lease->end_us;
    return next_us;
}

static uint64_t serial_next(struct pull *pull)
{
    if (pull->serials_left == 0) {
        if (getentropy(pull->serials, sizeof pull->serials) < 0)
            abort(); /* a system without random numbers has no secrets at all */
        pull->serials_left = sizeof pull->serials / sizeof *pull->serials;
    }
    return pull->serials[--pull->serials_left] | 1;
}

/* Gives the asker as much as is there. */
static void serve(struct worker *worker, struct queue *queue, struct asker *asker)
{
    struct pull *pull = worker->pull;
    size_t count = 0;
    for (struct item *item = queue->first; item && count < asker->max; item = item->next)
        count++;
    struct lease *lease = malloc(sizeof *lease + count * sizeof *lease->items);
    if (!lease || lease_begin(worker, lease, asker->lease_us) < 0) {
        free(lease);
        asker->result = FL_NO_MEMORY;
        return;
    }
    lease->worker = worker;
    lease->queue = queue;
    lease->left = lease->count = count;
    out_text(&asker->out, "{\"timers\":[");
    for (size_t i = 0; i < count; i++) {
        struct item *item = queue_pop(queue);
        item->lease = lease;
        item->serial = serial_next(pull);
        lease->items[i] = (struct leased){item->slot, item->serial};
        if (i > 0)
            out_put(&asker->out, ",", 1);
        write_item(&asker->out, item, worker->index);
    }
    out_text(&asker->out, "]}");
    worker->counts.leased += count;
}

static void asker_leave(struct worker *worker, struct asker *asker)
{
    struct queue *queue = asker->queue;
    struct asker **at = &queue->askers, *before = NULL;
    for (; *at != asker; at = &(*at)->next)
        before = *at;
    *at = asker->next;
    if (queue->askers_last == asker)
        queue->askers_last = before;
    if (asker->timer)
        fl_loop_cancel(worker->loop, asker->timer);
    asker->timer = 0;
}

/* Those who wait get what is there, in order. Who is gone gets nothing: it would only run out. */
static void serve_askers(struct worker *worker, struct queue *queue)
{
    while (queue->askers && queue->first) {
        struct asker *asker = queue->askers;
        asker_leave(worker, asker);
        if (!atomic_load(&asker->gone))
            serve(worker, queue, asker);
        errand_return(&asker->errand);
    }
}

static void asked_long_enough(fl_loop *loop, void *arg)
{
    struct asker *asker = arg;
    (void)loop;
    asker->timer = 0;
    asker_leave(asker->errand.there, asker);
    out_text(&asker->out, "{\"timers\":[]}");
    errand_return(&asker->errand);
}

static void ask(struct errand *errand)
{
    struct asker *asker = (struct asker *)errand;
    struct worker *worker = errand->there;
    struct space *space = space_of(worker->server, asker->ns);
    struct queue *queue = space ? queue_of(worker, space) : NULL;
    if (!queue) {
        asker->result = FL_NO_MEMORY;
        errand_return(errand);
        return;
    }
    asker->queue = queue;
    if (queue->first && !queue->askers) {
        serve(worker, queue, asker);
        errand_return(errand);
        return;
    }
    if (asker->wait_us == 0 || worker->pull->stopped ||
        fl_loop_timer(worker->loop, asker->wait_us * 1000, asked_long_enough, asker, &asker->timer) < 0) {
        out_text(&asker->out, "{\"timers\":[]}");
        errand_return(errand);
        return;
    }
    asker->next = NULL;
    if (queue->askers)
        queue->askers_last->next = asker;
    else
        queue->askers = asker;
    queue->askers_last = asker;
}

/* --- Coming in ---------------------------------------------------------------------------------------------------- */

static uint32_t attempts_allowed(const struct server *server, const fl_durable *timer)
{
    return timer->retry.initial_us > 0 ? timer->retry.max_attempts : server->config.engine.retry.max_attempts;
}

/* It comes again at once, or is given up. */
static void give_back(struct worker *worker, struct queue *queue, struct item *item)
{
    uint32_t most = attempts_allowed(worker->server, &item->firing.timer);
    item->lease = NULL;
    worker->counts.leases_expired++;
    if (most > 0 && item->firing.timer.attempt >= most) {
        item_settle(worker, item, (fl_settlement){.result = FL_DEAD, .reason = bytes_of("its last lease has run out")});
        return;
    }
    item->firing.timer.attempt++;
    queue_push(queue, item);
}

static void lease_ended(fl_loop *loop, void *arg)
{
    struct lease *lease = arg;
    struct worker *worker = lease->worker;
    (void)loop;
    for (size_t i = 0; i < lease->count; i++) {
        struct item *item = worker->pull->slots[lease->items[i].slot];
        if (item && item->serial == lease->items[i].serial)
            give_back(worker, lease->queue, item);
    }
    serve_askers(worker, lease->queue);
    free(lease);
}

static void parcel_arrives(fl_loop *loop, void *arg)
{
    struct parcel *parcel = arg;
    struct worker *worker = parcel->home;
    struct space *space = NULL;
    struct queue *queue = NULL;
    (void)loop;
    size_t missed = 0;
    parcel->left++; /* for ourselves */
    for (size_t i = 0; i < parcel->count; i++) {
        struct item *item = &parcel->items[i];
        fl_bytes ns = item->firing.timer.ns;
        if (!space || space->size != ns.size || memcmp(space->name, ns.data, ns.size) != 0) {
            if (queue)
                serve_askers(worker, queue);
            space = space_of(worker->server, ns);
            queue = space ? queue_of(worker, space) : NULL;
        }
        if (queue && slot_take(worker->pull, item)) {
            queue_push(queue, item);
        } else {
            log_error("there is no memory for a timer that is due: it comes after a restart", NULL);
            missed++;
        }
    }
    if (queue)
        serve_askers(worker, queue);
    parcel_drop(parcel, missed + 1);
}

#define PATIENCE_US (5 * 1000000ll)
#define PUT_OFF_MOST_US (300 * 1000000ll)

/* Whether there is room: where nobody else would have to wait, and for whom somebody asks, there always is. */
static bool takes(const struct shard *shard, struct space *space, int64_t now_us)
{
    const struct server *server = shard->worker->server;
    uint32_t most = server->config.engine.max_in_flight;
    if (shard->held < most - most / 4 || !space || !atomic_load_explicit(&server->has_targets, memory_order_relaxed))
        return true;
    int64_t since_us = atomic_load_explicit(&space->held_since_us, memory_order_relaxed);
    int64_t asked_us = atomic_load_explicit(&space->asked_us, memory_order_relaxed);
    return now_us - (asked_us > since_us ? asked_us : since_us) < PATIENCE_US;
}

static void put_off(struct shard *shard, const fl_firing *firing, int64_t now_us)
{
    int64_t late_us = now_us - firing->timer.due_us;
    int64_t by_us = late_us < PATIENCE_US ? PATIENCE_US : late_us > PUT_OFF_MOST_US ? PUT_OFF_MOST_US : late_us;
    fl_engine_settle(shard->engine,
                     &(fl_settlement){.token = firing->token, .result = FL_LATER, .at_us = now_us + by_us}, 1);
}

/* Timers that are due, of any namespaces: each goes to its home. */
void pull_add(struct shard *shard, const fl_firing *firings, size_t count)
{
    struct server *server = shard->worker->server;
    int64_t now_us = server_now(server);
    for (size_t i = 0, n; i < count; i += n) {
        struct space *space = space_of(server, firings[i].timer.ns);
        struct worker *home = space ? home_of(server, space) : shard->worker;
        bool taken = takes(shard, space, now_us);
        for (n = 1; i + n < count; n++)
            if (space_of(server, firings[i + n].timer.ns) != space)
                break;
        struct parcel *parcel = taken ? malloc(sizeof *parcel + n * sizeof *parcel->items) : NULL;
        if (!parcel) {
            for (size_t k = 0; k < n; k++)
                put_off(shard, &firings[i + k], now_us);
            continue;
        }
        *parcel = (struct parcel){.home = home, .left = n, .count = n};
        for (size_t k = 0; k < n; k++)
            parcel->items[k] = (struct item){.firing = firings[i + k], .shard = shard, .parcel = parcel};
        shard->held += n;
        if (space && atomic_fetch_add_explicit(&space->held, (int64_t)n, memory_order_relaxed) == 0)
            atomic_store_explicit(&space->held_since_us, now_us, memory_order_relaxed);
        parcel->task = (fl_loop_task){.fn = parcel_arrives, .arg = parcel};
        if (home == shard->worker)
            parcel_arrives(home->loop, parcel);
        else
            fl_loop_post_task(home->loop, &parcel->task);
    }
}

/* --- POST /v1/lease ----------------------------------------------------------------------------------------------- */

static void asker_gone(http_request *request)
{
    struct call *call = request->arg;
    struct asker *asker = call ? call->state : NULL;
    if (asker)
        atomic_store(&asker->gone, true);
}

static void lease_back(struct errand *errand)
{
    struct asker *asker = (struct asker *)errand;
    struct call *call = asker->call;
    int result = asker->result;
    call->state = NULL;
    out_free(&call->out);
    call->out = asker->out;
    free(asker);
    if (result < 0)
        call_refuse_result(call, result);
    else
        call_answer(call, 200);
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

static int read_asker(struct call *call, struct asker *asker)
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
        return problem_set(&call->problem, 400, "invalid-body", NULL, "a JSON object is wanted");
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value);) {
        int64_t max;
        int r = problem_member(&call->problem, NULL, names, key, &given);
        if (r == MAX) {
            if (value.kind != JSON_NUMBER || !json_integer(value, &max) || max < 1 || max > MAX_ASKED)
                r = bad_field(call, "max", "a whole number from 1 to 10000");
            else
                asker->max = (uint32_t)max;
        } else if (r == WAIT) {
            r = read_span(call, "wait", value, 0, 60 * 1000000ull, "a duration of at most \"60s\"", &asker->wait_us);
        } else if (r == LEASE) {
            r = read_span(call, "lease", value, 1000, 86400 * 1000000ull, "a duration from \"1ms\" to \"24h\"",
                          &asker->lease_us);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

void lease_post(struct call *call)
{
    struct server *server = call->worker->server;
    struct space *space = space_of(server, call->ns);
    struct asker *asker = space ? calloc(1, sizeof *asker) : NULL;
    if (!asker) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    asker->max = 100;
    asker->lease_us = 30 * 1000000ull;
    if (read_asker(call, asker) < 0) {
        free(asker);
        call_refuse(call);
        return;
    }
    atomic_store_explicit(&space->asked_us, server_now(server), memory_order_relaxed);
    asker->call = call;
    asker->ns = (fl_bytes){space->name, space->size};
    asker->errand =
        (struct errand){.home = call->worker, .there = home_of(server, space), .go = ask, .back = lease_back};
    call->state = asker;
    call->request->gone = asker_gone;
    call->request->gone_at_eof = true;
    errand_send(&asker->errand);
}

/* --- POST /v1/ack ------------------------------------------------------------------------------------------------- */

struct ack {
    uint32_t slot;
    uint16_t worker;
    bool known;
    enum fl_settle result;
    uint64_t serial;
    uint64_t after_us;
    fl_bytes lease;
};

struct acks {
    struct tour tour;
    struct call *call;
    size_t count, capacity;
    struct ack *list;
};

/* A lease that was never given out is as unknown as one that has run out. */
static void read_lease(struct ack *ack, fl_bytes text)
{
    uint64_t worker, slot, serial;
    const char *at = text.data;
    ack->lease = text;
    ack->worker = UINT16_MAX;
    if (text.size == LEASE_TEXT && hex_number(at, 4, &worker) && hex_number(at + 4, 8, &slot) &&
        hex_number(at + 12, 16, &serial)) {
        ack->worker = (uint16_t)worker;
        ack->slot = (uint32_t)slot;
        ack->serial = serial;
    }
}

static int read_ack(struct call *call, struct json object, struct ack *ack)
{
    static const struct {
        const char *name;
        enum fl_settle result;
    } results[] = {{"done", FL_DONE}, {"retry", FL_FAILED}, {"again", FL_AGAIN}, {"dead", FL_DEAD}};
    enum { LEASE, RESULT, AFTER };
    static const char *const names[] = {"lease", "result", "after", NULL};
    struct json key, value;
    bool lease = false, known = false;
    unsigned given = 0;
    *ack = (struct ack){0};
    if (object.kind != JSON_OBJECT)
        return bad_field(call, "acks", "an array of objects");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int member = problem_member(&call->problem, "acks", names, key, &given);
        if (member < 0)
            return -1;
        if (member == LEASE) {
            lease = value.kind == JSON_STRING;
            if (!lease)
                break;
            read_lease(ack, (fl_bytes){(const char *)value.text.data + 1, value.text.size - 2});
        } else if (member == RESULT) {
            for (int i = 0; i < 4; i++)
                if (json_is(value, results[i].name)) {
                    ack->result = results[i].result;
                    known = true;
                }
        } else if (member == AFTER) {
            if (read_span(call, "after", value, 0, UINT64_MAX, "a duration like \"10s\"", &ack->after_us) < 0)
                return -1;
        }
    }
    if (!lease)
        return bad_field(call, "lease", "given as a string");
    if (!known)
        return bad_field(call, "result", "\"done\", \"retry\", \"again\" or \"dead\"");
    if (ack->after_us > 0 && (ack->result == FL_DONE || ack->result == FL_DEAD))
        return bad_field(call, "after", "given with retry and again only");
    return 0;
}

static int add_ack(struct acks *acks, struct json object)
{
    if (acks->count == acks->capacity) {
        size_t capacity = acks->capacity * 2 + 64;
        struct ack *list = realloc(acks->list, capacity * sizeof *list);
        if (!list)
            return problem_of_result(&acks->call->problem, FL_NO_MEMORY);
        acks->list = list;
        acks->capacity = capacity;
    }
    return read_ack(acks->call, object, &acks->list[acks->count++]);
}

static int read_acks(struct acks *acks)
{
    struct call *call = acks->call;
    struct json body, key, value, element;
    size_t at;
    const char *why;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    bool given = false;
    if (body.kind != JSON_OBJECT)
        return problem_set(&call->problem, 400, "invalid-body", NULL, "a JSON object is wanted");
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value); given = true) {
        if (!json_is(key, "acks"))
            return problem_unknown_member(&call->problem, NULL, key);
        if (value.kind != JSON_ARRAY || given)
            return bad_field(call, "acks", "an array, given once");
        for (struct json_walk inner = json_walk(value); json_element(&inner, &element);)
            if (add_ack(acks, element) < 0)
                return -1;
    }
    return given ? 0 : problem_set(&call->problem, 400, "missing-field", "acks", "acks is missing: what is over?");
}

static void settle_ack(struct worker *worker, const struct call *call, struct ack *ack)
{
    struct pull *pull = worker->pull;
    struct item *item = ack->slot < pull->slot_count ? pull->slots[ack->slot] : NULL;
    if (!item || item->serial == 0 || item->serial != ack->serial ||
        !call_may(call, RIGHT_WRITE, item->firing.timer.ns))
        return;
    ack->known = true;
    struct lease *lease = item->lease;
    if (--lease->left == 0) {
        if (worker->server->test_clock)
            lease_unlink(worker->pull, lease);
        else
            fl_loop_cancel(worker->loop, lease->timer);
        free(lease);
    }
    item->serial = 0;
    item_settle(worker, item,
                (fl_settlement){.result = ack->result,
                                .at_us = ack->result == FL_AGAIN || ack->after_us > 0
                                             ? server_now(worker->server) + (int64_t)ack->after_us
                                             : 0,
                                .reason = bytes_of(ack->result == FL_FAILED || ack->result == FL_DEAD
                                                       ? "said so in its acknowledgement"
                                                       : "")});
}

static void ack_visit(struct tour *tour, struct worker *worker)
{
    struct acks *acks = (struct acks *)tour;
    for (size_t i = 0; i < acks->count; i++)
        if (acks->list[i].worker == worker->index) {
            settle_ack(worker, acks->call, &acks->list[i]);
            worker->counts.acknowledged += acks->list[i].known;
        }
}

static void acks_end(struct acks *acks)
{
    free(acks->list);
    free(acks);
}

static void ack_back(struct tour *tour)
{
    struct acks *acks = (struct acks *)tour;
    struct call *call = acks->call;
    size_t settled = 0, unknown = 0;
    for (size_t i = 0; i < acks->count; i++)
        settled += acks->list[i].known;
    out_text(&call->out, "{\"settled\":");
    out_number(&call->out, (int64_t)settled);
    out_text(&call->out, ",\"unknown\":[");
    for (size_t i = 0; i < acks->count; i++)
        if (!acks->list[i].known) {
            if (unknown++ > 0)
                out_put(&call->out, ",", 1);
            out_put(&call->out, "\"", 1);
            out_put(&call->out, acks->list[i].lease.data,
                    acks->list[i].lease.size); /* as it came: escaped, if it was */
            out_put(&call->out, "\"", 1);
        }
    out_text(&call->out, "]}");
    acks_end(acks);
    call_answer(call, 200);
}

void ack_post(struct call *call)
{
    struct acks *acks = calloc(1, sizeof *acks);
    if (!acks) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    acks->call = call;
    if (read_acks(acks) < 0) {
        acks_end(acks);
        call_refuse(call);
        return;
    }
    acks->tour.fn = ack_visit;
    acks->tour.back = ack_back;
    tour_begin(&acks->tour, call->worker);
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

/* Nobody waits any longer. */
void pull_stop(struct worker *worker)
{
    struct pull *pull = worker->pull;
    pull->stopped = true;
    for (size_t i = 0; i < QUEUE_BUCKETS; i++)
        for (struct queue *queue = pull->queues[i]; queue; queue = queue->next)
            while (queue->askers) {
                struct asker *asker = queue->askers;
                asker_leave(worker, asker);
                out_text(&asker->out, "{\"timers\":[]}");
                errand_return(&asker->errand);
            }
}

/* What was leased and not acknowledged comes again after the next start. */
void pull_free(struct worker *worker)
{
    struct pull *pull = worker->pull;
    if (!pull)
        return;
    for (uint32_t i = 0; i < pull->slot_count; i++) {
        struct item *item = pull->slots[i];
        if (item && item->serial && --item->lease->left == 0)
            free(item->lease);
        if (item)
            parcel_drop(item->parcel, 1);
    }
    for (size_t i = 0; i < QUEUE_BUCKETS; i++)
        for (struct queue *queue = pull->queues[i], *next; queue; queue = next) {
            next = queue->next;
            free(queue);
        }
    free(pull->slots);
    free(pull->free_slots);
    free(pull);
    worker->pull = NULL;
}
