/* SPDX-License-Identifier: MIT */
/* Asking for leases, at all servers.
 *
 * The servers are asked in turn until one has some, beginning with another one each time so that none is left behind, and
 * without waiting. What one has given would grow old if the next did not answer: so nobody waits for more. If nobody has any,
 * we watch at all of them until somebody has, or there is another to watch at, and ask again. A server that is alone does
 * both in one step. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node/internal.h"

struct watch {
    struct link_call call;
    struct leasing *leasing;
    const struct peer *peer;
    bool out;
};

static void ask_next(struct leasing *leasing);

/* --- As it is written --------------------------------------------------------------------------------------------- */

void lease_format(const struct leased *leased, char out[LEASE_TEXT + 1])
{
    snprintf(out, LEASE_TEXT + 1, "%08" PRIx32 "%04x%08" PRIx32 "%016" PRIx64, leased->server, leased->worker,
             leased->slot, leased->serial);
}

void wire_put_leased(struct out *out, const struct leased *leased, size_t count)
{
    (void)count;
    wire_put_number(out, leased->server);
    wire_put_number(out, leased->worker);
    wire_put_number(out, leased->slot);
    wire_put_number(out, leased->serial);
    wire_put_number(out, leased->shard);
    wire_put_timer(out, &leased->timer);
}

static struct leased wire_leased(struct wire *wire)
{
    struct leased leased = {0};
    leased.server = (uint32_t)wire_number(wire);
    leased.worker = (uint16_t)wire_number(wire);
    leased.slot = (uint32_t)wire_number(wire);
    leased.serial = wire_number(wire);
    leased.shard = (uint32_t)wire_number(wire);
    wire_timer(wire, &leased.timer);
    return leased;
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

static void free_if_over(struct leasing *leasing)
{
    if (!leasing->answered || leasing->here || leasing->cancelling)
        return;
    out_free(&leasing->asker.out);
    out_free(&leasing->out);
    free(leasing->watches);
    leasing->release(leasing);
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
        struct node_link *link = watch->out ? link_to(leasing->worker, watch->peer) : NULL;
        if (link)
            leasing->worker->node->ports->link_cancel(link, &watch->call);
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
    leasing->answered = true;
    leave_line(leasing);
    stop_watching(leasing);
    leasing->done(leasing);
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

static void watched_there(struct link_call *call, int result, fl_bytes text)
{
    struct watch *watch = (struct watch *)call;
    struct wire wire = wire_begin(text);
    watch->out = false;
    watched(watch->leasing, result == 0 && wire_number(&wire) > 0);
}

static void send_here(struct leasing *leasing, uint64_t wait_us, bool watch)
{
    struct asker *asker = &leasing->asker;
    asker->wait_us = wait_us;
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
    struct node_link *link = link_to(leasing->worker, watch->peer);
    struct out body = {0};
    if (!link)
        return;
    wire_put_bytes(&body, space_name(leasing->asker.space));
    wire_put_number(&body, leasing->asker.max);
    wire_put_number(&body, left_us(leasing));
    watch->call = (struct link_call){.done = watched_there};
    watch->leasing = leasing;
    watch->out = !body.failed;
    if (watch->out)
        leasing->worker->node->ports->link_call(link, &watch->call, LINK_WATCH, out_bytes(&body));
    out_free(&body);
}

static bool make_watches(struct leasing *leasing)
{
    struct node *node = leasing->worker->node;
    size_t count = atomic_load(&node->peer_count);
    if (leasing->watch_count == count)
        return true;
    free(leasing->watches);
    leasing->watches = calloc(count, sizeof *leasing->watches);
    leasing->watch_count = leasing->watches ? count : 0;
    const struct peer *peer = atomic_load(&node->peers);
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
        send_here(leasing, left_us(leasing), true);
}

/* --- Taking ------------------------------------------------------------------------------------------------------- */

static void add(struct leasing *leasing)
{
    out_put(&leasing->out, leasing->asker.out.data, leasing->asker.out.size);
    leasing->out.failed |= leasing->asker.out.failed;
    leasing->count += leasing->asker.count;
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
    add(leasing);
    ask_next(leasing);
}

static void taken_there(struct link_call *call, int result, fl_bytes text)
{
    struct leasing *leasing = (struct leasing *)((char *)call - offsetof(struct leasing, take));
    struct wire wire = wire_begin(text);
    leasing->asking = false;
    size_t count = result == 0 ? wire_count(&wire) : 0;
    for (size_t i = 0; i < count; i++) {
        struct leased leased = wire_leased(&wire);
        if (wire.bad)
            break;
        leasing->asker.write(&leasing->out, &leased, leasing->count++);
    }
    ask_next(leasing);
}

static bool take_there(struct leasing *leasing, const struct peer *peer)
{
    struct node_link *link = link_to(leasing->worker, peer);
    struct out body = {0};
    if (!link || !leasing->worker->node->ports->link_up(link))
        return false;
    wire_put_bytes(&body, space_name(leasing->asker.space));
    wire_put_number(&body, leasing->asker.max);
    wire_put_number(&body, leasing->asker.lease_us);
    leasing->take = (struct link_call){.done = taken_there};
    bool made = !body.failed;
    if (made)
        leasing->worker->node->ports->link_call(link, &leasing->take, LINK_TAKE, out_bytes(&body));
    out_free(&body);
    return made;
}

/* The i-th of the servers, of which the first is this one. False: it cannot be asked. */
static bool ask(struct leasing *leasing, size_t i)
{
    if (i == 0) {
        if (leasing->here)
            return false; /* it watches still, and comes back by itself */
        send_here(leasing, 0, false);
        return true;
    }
    const struct peer *peer = atomic_load(&leasing->worker->node->peers);
    while (peer && --i > 0)
        peer = atomic_load(&peer->next);
    return peer && take_there(leasing, peer);
}

static void ask_next(struct leasing *leasing)
{
    size_t servers = 1 + atomic_load(&leasing->worker->node->peer_count);
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
    add(leasing);
    answer(leasing);
}

void leasing_begin(struct leasing *leasing, uint64_t wait_us)
{
    struct worker *worker = leasing->worker;
    leasing->alone = !worker->node->cluster;
    leasing->until_ns = fl_loop_now_ns(worker->loop) + wait_us * 1000;
    leasing->first = worker->lease_turn++;
    leasing->asker.errand = (struct errand){.home = worker,
                                            .there = pull_home(worker->node, leasing->asker.space),
                                            .go = pull_ask,
                                            .back = leasing->alone ? came_back_alone : came_back};
    if (leasing->alone) {
        stand_in_line(leasing);
        send_here(leasing, wait_us, false);
    } else {
        ask_next(leasing);
    }
}

void leasing_stop(struct leasing *leasing)
{
    atomic_store(&leasing->asker.gone, true);
    leasing->gone = true;
    if (leasing->worker->node->cluster) {
        if (!leasing->asking)
            answer(leasing);
    } else if (!leasing->cancelling) {
        cancel(leasing);
    }
}
