/* SPDX-License-Identifier: MIT */
/* Clients of simulated nodes: they create and cancel timers, lease and acknowledge them, and pause namespaces, at any server. */

#include <stdlib.h>
#include <string.h>

#include "sim/nodes.h"

enum { TAKEN_MOST = 20 };

static struct worker *some_worker(struct host *host)
{
    return &host->node.workers[below(&host->world->luck, host->world->workers)];
}

/* --- Creating and cancelling -------------------------------------------------------------------------------------- */

struct ask {
    struct shard_call call;
    fl_op op;
    struct host *host;
    struct entry *entry;
    unsigned went_back;
    bool was_live; /* an attempt was going on */
    uint64_t term;
    uint32_t tag;
    char name[16];
    int result;
};

static void render(struct shard_call *call)
{
    struct ask *ask = (struct ask *)call;
    ask->result = ask->op.result;
}

static void created(struct nodes *w, struct entry *e, int result)
{
    (void)w;
    if (result == 0)
        e->there = true;
    else if (result == FL_OUTCOME_UNKNOWN || result == FL_SHARD_LOST)
        e->unsure = true;
    else
        e->refused = true;
}

static bool goes_on(struct nodes *w, const struct ask *ask)
{
    const struct entry *e = ask->entry;
    return ask->was_live && e->live && !e->acking && ask->term == w->terms[e->shard] && e->term == ask->term &&
           nodes_mono_us(w) < e->ends_us;
}

static void cancelled(struct nodes *w, const struct ask *ask, int result)
{
    struct entry *e = ask->entry;
    if (result == 0 && !e->wild && goes_on(w, ask))
        nodes_fail(w, "#%u is cancelled during an attempt", e->tag);
    if (result == 0)
        e->gone = true;
    else if (result == FL_TIMER_NOT_FOUND && e->there && !e->unsure && !e->wild && !e->finished && !e->dead &&
             !e->doomed && !e->acking && e->fate == FATE_NEW && !e->live)
        nodes_fail(w, "#%u is not found", e->tag);
    else if (result == FL_OUTCOME_UNKNOWN || result == FL_SHARD_LOST)
        e->unsure = true;
}

static void answered(struct shard_call *call)
{
    struct ask *ask = (struct ask *)call;
    struct nodes *w = ask->host->world;
    int result = ask->host->dead ? FL_OUTCOME_UNKNOWN : ask->result;
    ledger_touch(w, ask->entry);
    ask->entry->wild |= ask->went_back != w->went_back;
    nodes_say(w, "%s: %s #%u: %s", ask->host->address, ask->op.kind == FL_OP_CREATE ? "create" : "cancel",
              ask->entry->tag, fl_errname(result));
    ask->entry->busy = false;
    w->open--;
    if (ask->op.kind == FL_OP_CREATE)
        created(w, ask->entry, result);
    else
        cancelled(w, ask, result);
    free(ask);
}

static void submit(struct host *host, struct entry *e, enum fl_op_kind kind, uint64_t delay_us)
{
    struct nodes *w = host->world;
    struct ask *ask = nodes_need(calloc(1, sizeof *ask));
    *ask = (struct ask){.host = host,
                        .entry = e,
                        .tag = e->tag,
                        .went_back = w->went_back,
                        .was_live = e->live,
                        .result = FL_OUTCOME_UNKNOWN};
    snprintf(ask->name, sizeof ask->name, "t%u", e->tag);
    ask->op =
        (fl_op){.kind = kind, .timer = {.ns = bytes_of(space_names[e->space]), .name = {ask->name, strlen(ask->name)}}};
    if (kind == FL_OP_CREATE) {
        ask->op.timer.payload = (fl_bytes){&ask->tag, sizeof ask->tag};
        ask->op.timer.due_us = e->due_us = nodes_wall_us(w) + (int64_t)delay_us;
        ask->op.timer.retry = (fl_retry){
            .initial_us = 100000, .multiplier_1000 = 1500, .max_interval_us = 2 * SECOND, .max_attempts = e->most};
        ask->op.timer.target = e->hook ? bytes_of("http://target") : (fl_bytes){0};
    }
    struct worker *worker = some_worker(host);
    ask->call = (struct shard_call){.errand.home = worker,
                                    .batch = {.ops = &ask->op, .count = 1},
                                    .render = render,
                                    .done = answered,
                                    .shard = shard_of_name(&host->node, ask->op.timer.ns, ask->op.timer.name)};
    e->shard = ask->call.shard->number;
    ask->term = w->terms[e->shard];
    e->busy = true;
    w->open++;
    shard_call_submit(&ask->call);
}

static void create(struct nodes *w, struct host *host)
{
    if (w->entry_count >= TIMERS_MOST)
        return;
    struct entry *e = &w->entries[w->entry_count++];
    *e = (struct entry){.tag = w->entry_count,
                        .space = (unsigned)below(&w->luck, SPACES),
                        .hook = chance(&w->luck, 50),
                        .most = 1 + (uint32_t)below(&w->luck, 6)};
    submit(host, e, FL_OP_CREATE, below(&w->luck, chance(&w->luck, 70) ? 2 * SECOND : 30 * SECOND));
}

static void cancel(struct nodes *w, struct host *host)
{
    struct entry *e = w->entry_count > 0 ? &w->entries[below(&w->luck, w->entry_count)] : NULL;
    if (e && e->there && !e->busy && !e->gone && !e->plan)
        submit(host, e, FL_OP_CANCEL, 0);
}

/* --- Leasing ------------------------------------------------------------------------------------------------------ */

struct taking {
    struct leasing leasing;
    struct host *host;
    uint32_t tags[TAKEN_MOST];
    struct ack acks[TAKEN_MOST];
    char texts[TAKEN_MOST][LEASE_TEXT + 1];
    size_t count;
};

static void took(struct out *out, const struct leased *leased, size_t count)
{
    struct taking *taking = (struct taking *)(void *)((char *)out - offsetof(struct taking, leasing.take.asker.out));
    struct host *host = taking->host;
    struct nodes *w = host->world;
    const struct entry *e = ledger_entry(w, leased->timer);
    if (!e || count != taking->count || count >= taking->leasing.max) {
        nodes_fail(w, "a client gets more leases than it asked for");
        return;
    }
    if (!host->dead && !taking->leasing.take.peer)
        ledger_begin(host, leased->shard, leased->timer, leased->serial, taking->leasing.lease_us);
    taking->tags[count] = e->tag;
    lease_format(leased, taking->texts[count]);
    ack_parse(&taking->acks[count], (fl_bytes){taking->texts[count], LEASE_TEXT});
    if (taking->acks[count].serial != leased->serial || taking->acks[count].slot != leased->slot)
        nodes_fail(w, "a lease is read as another one");
    taking->count++;
}

struct settling {
    struct acks acks;
    struct host *host;
    struct ack list[TAKEN_MOST];
    uint32_t tags[TAKEN_MOST];
    bool calm, linked;
};

static void settled(struct acks *acks)
{
    struct settling *settling = (struct settling *)acks;
    struct host *host = settling->host;
    struct nodes *w = host->world;
    for (size_t i = 0; i < acks->count; i++) {
        struct entry *e = &w->entries[settling->tags[i] - 1];
        const struct host *owner = nodes_host(w, e->host);
        bool serves = owner && !owner->leaving && owner->node.shards[e->shard].state == SHARD_SERVING &&
                      atomic_load(&owner->node.shards[e->shard].good_until_ns) > fl_loop_now_ns(w->loop);
        bool known = settling->list[i].known && !host->dead;
        nodes_say(w, "%s: ack %d of #%u is %s", host->address, (int)settling->list[i].result, e->tag,
                  known ? "known" : "unknown");
        if (!known && (owner != host || host->dead) && (w->nature.crashes || w->nature.breaks))
            ledger_unanswered(e, settling->list[i].serial);
        ledger_acknowledged(w, e, settling->list[i].serial, known,
                            serves && (owner == host || (settling->calm && settling->linked)));
    }
    w->open--;
    free(settling);
}

/* An occurrence that is done again has another ID. */
static void choose_ack(struct nodes *w, struct ack *ack, bool occurrence)
{
    static const enum ack_result results[] = {ACK_DONE,  ACK_DONE, ACK_DONE,    ACK_RETRY, ACK_RETRY,
                                              ACK_AGAIN, ACK_DEAD, ACK_RELEASE, ACK_EXTEND};
    ack->result = w->calm ? ACK_DONE : results[below(&w->luck, sizeof results / sizeof *results)];
    if (ack->result == ACK_AGAIN && occurrence)
        ack->result = ACK_RETRY;
    ack->after_us = 0;
    if (ack->result == ACK_EXTEND)
        ack->after_us = 1000 + below(&w->luck, 4 * SECOND);
    else if ((ack->result == ACK_RETRY || ack->result == ACK_AGAIN) && chance(&w->luck, 50))
        ack->after_us = 1 + below(&w->luck, 2 * SECOND);
}

static void acknowledge(fl_loop *loop, void *arg)
{
    struct taking *taking = arg;
    struct nodes *w = taking->host->world;
    struct host *host = chance(&w->luck, 50) && !taking->host->leaving ? taking->host : nodes_some_host(w);
    (void)loop;
    w->open--;
    if (!host || taking->count == 0 || (!w->calm && chance(&w->luck, 15))) { /* some workers just die */
        free(taking);
        return;
    }
    struct settling *settling = nodes_need(calloc(1, sizeof *settling));
    *settling = (struct settling){.host = host, .calm = w->calm, .linked = atomic_load(&host->node.settings_known)};
    for (size_t i = 0; i < taking->count; i++) {
        struct entry *e = &w->entries[taking->tags[i] - 1];
        struct ack *ack = &settling->list[i];
        *ack = taking->acks[i];
        settling->tags[i] = taking->tags[i];
        choose_ack(w, ack, e->plan != NULL);
        if (e->serial != ack->serial || e->acking)
            continue;
        e->acking = true;
        e->ack = ack->result;
        e->after_us = ack->after_us;
        e->acked_us = nodes_mono_us(w);
        if (ack->result == ACK_EXTEND && e->acked_us + (int64_t)ack->after_us < e->ends_us)
            e->ends_us = e->acked_us + (int64_t)ack->after_us;
    }
    settling->acks = (struct acks){.count = taking->count, .list = settling->list, .done = settled};
    free(taking);
    w->open++;
    acks_settle(&settling->acks, some_worker(host));
}

static void leased(struct leasing *leasing)
{
    const struct taking *taking = (struct taking *)leasing;
    if (leasing->take.asker.count != taking->count)
        nodes_fail(taking->host->world, "a client is told of another number of leases than it got");
}

static void released(struct leasing *leasing)
{
    struct taking *taking = (struct taking *)leasing;
    struct nodes *w = taking->host->world;
    out_free(&leasing->take.asker.out);
    nodes_at(w, w->calm ? 1000 : below(&w->luck, chance(&w->luck, 70) ? 300000 : 5 * SECOND), acknowledge, taking,
             NULL);
}

void clients_lease(struct nodes *w, unsigned space)
{
    struct host *host = nodes_some_host(w);
    if (!host)
        return;
    struct taking *taking = nodes_need(calloc(1, sizeof *taking));
    taking->host = host;
    struct worker *worker = some_worker(host);
    taking->leasing = (struct leasing){.worker = worker,
                                       .space = space_of(&host->node, bytes_of(space_names[space])),
                                       .max = 1 + (uint32_t)below(&w->luck, TAKEN_MOST),
                                       .lease_us = w->calm ? 5 * SECOND : 1000 + below(&w->luck, 4 * SECOND),
                                       .write = took,
                                       .done = leased,
                                       .release = released};
    w->open++;
    leasing_begin(&taking->leasing, chance(&w->luck, 50) ? 0 : below(&w->luck, 4 * SECOND));
}

/* --- Pausing ------------------------------------------------------------------------------------------------------ */

struct pausing {
    struct host *host;
    unsigned space, went_back;
    bool begin;
};

static void paused(void *arg, int result)
{
    struct pausing *pausing = arg;
    struct nodes *w = pausing->host->world;
    struct space_state *space = &w->spaces[pausing->space];
    bool good = result == 0 && !pausing->host->dead && pausing->went_back == w->went_back;
    nodes_say(w, "%s: %s %s: %s", pausing->host->address, pausing->begin ? "pause" : "resume",
              space_names[pausing->space], fl_errname(result));
    w->open--;
    space->touched_us = nodes_mono_us(w);
    space->unsure = !good;
    space->paused_us = good && pausing->begin ? nodes_ran_us(w) : 0;
    space->paused_by = pausing->host->number;
    free(pausing);
}

/* One at a time per namespace. */
void clients_pause(struct nodes *w, unsigned space, bool begin)
{
    struct host *host = nodes_some_host(w);
    if (!host)
        return;
    struct pausing *pausing = nodes_need(malloc(sizeof *pausing));
    *pausing = (struct pausing){host, space, w->went_back, begin};
    struct pause_request request = {.kind = begin ? PAUSE_BEGIN : PAUSE_END};
    w->spaces[space].unsure = true;
    w->open++;
    settings_pause(some_worker(host), bytes_of(space_names[space]), &request, paused, pausing);
}

void clients_act(struct nodes *w)
{
    struct host *host = nodes_some_host(w);
    unsigned what = (unsigned)below(&w->luck, 100), space = (unsigned)below(&w->luck, SPACES);
    if (!host)
        return;
    if (what < 50)
        create(w, host);
    else if (what < 60)
        cancel(w, host);
    else if (what < 66)
        clients_schedule(w);
    else if (what < 95)
        clients_lease(w, space);
    else if (w->nature.pauses && !w->spaces[space].unsure)
        clients_pause(w, space, w->spaces[space].paused_us == 0);
}
