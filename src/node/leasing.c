/* SPDX-License-Identifier: MIT */
/* Asking for leases, at all servers.
 *
 * A request asks the servers one after the other, without waiting there, until one has timers. Each request begins with
 * another server, so all are asked equally often. It then answers at once: waiting for a further server would use up the
 * leases. If no server has timers, the request watches at all servers. When a server reports a timer, or a new server
 * connects, it asks again. A server without other servers does both in one step. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/internal.h"

/* --- The text of a lease ----------------------------------------------------------------------------------------------------- */

void lease_format(const struct leased *leased, char out[LEASE_TEXT + 1])
{
    fl__hex_put_number(out, leased->server, 8);
    fl__hex_put_number(out + 8, leased->worker, 4);
    fl__hex_put_number(out + 12, leased->slot, 8);
    fl__hex_put_number(out + 20, leased->serial, 16);
    out[LEASE_TEXT] = '\0';
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

static void ask_next(struct leasing *leasing);

static bool is_out(const struct shard_call *call)
{
    return call->out || call->cancelling;
}

static void free_if_over(struct leasing *leasing)
{
    if (!leasing->answered || is_out(&leasing->take) || is_out(&leasing->watch_here))
        return;
    for (size_t i = 0; i < leasing->watch_count; i++)
        fl__assert(!is_out(&leasing->watches[i].call));
    out_free(&leasing->take.asker.out);
    free(leasing->watches);
    leasing->release(leasing);
}

static void stop_watching(struct leasing *leasing)
{
    for (size_t i = 0; i < leasing->watch_count; i++)
        call_cancel(&leasing->watches[i].call);
}

static void leave_line(struct leasing *leasing)
{
    if (!leasing->link)
        return;
    fl__assert(*leasing->link == leasing);
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

/* May free the leasing. */
static void answer(struct leasing *leasing)
{
    fl__assert(!leasing->answered && !leasing->take.out);
    leave_line(leasing);
    stop_watching(leasing);
    leasing->done(leasing);
    leasing->answered = true;
    if (leasing->watch_here.out)
        call_cancel(&leasing->watch_here); /* its callback frees the leasing */
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
    bool out = leasing->watch_here.out;
    for (size_t i = 0; i < leasing->watch_count; i++)
        out |= leasing->watches[i].call.out;
    return out;
}

/* A watch has ended: a server has timers, or the watch is over. */
static void watched(struct leasing *leasing, bool found)
{
    fl__assert(!leasing->answered);
    if (leasing->take.out)
        return; /* if that brings no timer, it watches again */
    if (found) {
        stop_watching(leasing);
        leasing->round = 0;
        ask_next(leasing);
    } else if (!is_watching(leasing)) {
        answer(leasing);
    }
}

static void watch_here_cancelled(struct shard_call *call)
{
    free_if_over((struct leasing *)((char *)call - offsetof(struct leasing, watch_here)));
}

static void watch_here_over(struct shard_call *call)
{
    struct leasing *leasing = (struct leasing *)((char *)call - offsetof(struct leasing, watch_here));
    if (leasing->answered)
        free_if_over(leasing);
    else
        watched(leasing, call->asker.found);
}

static void watch_there_over(struct shard_call *call)
{
    watched(((struct watch *)call)->leasing, call->result == 0 && call->asker.found);
}

static void watch_there_cancelled(struct shard_call *call)
{
    (void)call; /* a cancelled call to another server has ended at once */
}

static void send_watch(struct leasing *leasing, struct shard_call *call)
{
    fl__assert(call->kind == CALL_WATCH);
    if (is_out(call))
        return;
    call->asker.wait_us = left_us(leasing);
    call->asker.found = false;
    call_send(call);
}

static struct shard_call new_call(const struct leasing *leasing, enum call_kind kind, const struct peer *peer)
{
    return (struct shard_call){.kind = kind,
                               .errand.home = leasing->worker,
                               .peer = peer,
                               .asker = {.space = leasing->space, .max = leasing->max, .lease_us = leasing->lease_us}};
}

static bool make_watches(struct leasing *leasing)
{
    const struct node *node = leasing->worker->node;
    size_t count = atomic_load(&node->peer_count);
    if (leasing->watch_count == count)
        return true;
    stop_watching(leasing);
    free(leasing->watches);
    leasing->watches = calloc(count, sizeof *leasing->watches);
    leasing->watch_count = leasing->watches ? count : 0;
    const struct peer *peer = atomic_load(&node->peers);
    for (size_t i = 0; i < leasing->watch_count; i++, peer = atomic_load(&peer->next)) {
        leasing->watches[i] = (struct watch){new_call(leasing, CALL_WATCH, peer), leasing};
        leasing->watches[i].call.over = watch_there_over;
        leasing->watches[i].call.cancelled = watch_there_cancelled;
    }
    return leasing->watches != NULL;
}

static void watch(struct leasing *leasing)
{
    const struct worker *worker = leasing->worker;
    fl__assert(!leasing->answered && !leasing->take.out);
    if (left_us(leasing) == 0 || leasing->gone || worker->leases_stopped || !make_watches(leasing)) {
        answer(leasing);
        return;
    }
    stand_in_line(leasing);
    for (size_t i = 0; i < leasing->watch_count; i++)
        if (link_to(leasing->worker, leasing->watches[i].call.peer))
            send_watch(leasing, &leasing->watches[i].call);
    send_watch(leasing, &leasing->watch_here);
}

/* --- Taking ------------------------------------------------------------------------------------------------------- */

static void take_over(struct shard_call *call)
{
    struct leasing *leasing = (struct leasing *)call;
    fl__assert(!leasing->answered && !call->out);
    if (call->result < 0 && !call->peer)
        leasing->result = call->result;
    if (leasing->alone)
        answer(leasing);
    else
        ask_next(leasing);
}

static void take_cancelled(struct shard_call *call)
{
    free_if_over((struct leasing *)call);
}

/* Asks server `i`; 0 is this server. Returns false if it cannot be asked. */
static bool ask(struct leasing *leasing, size_t i)
{
    const struct worker *worker = leasing->worker;
    const struct peer *peer = i > 0 ? atomic_load(&worker->node->peers) : NULL;
    fl__assert(!leasing->take.out);
    for (; peer && i > 1; i--)
        peer = atomic_load(&peer->next);
    struct node_link *link = peer ? link_to(leasing->worker, peer) : NULL;
    if (i > 0 && (!link || !worker->node->ports->link_up(link)))
        return false;
    leasing->take.peer = peer;
    call_send(&leasing->take);
    return true;
}

/* Answers if there are timers, even if an error came after them; else asks the next server, or watches. */
static void ask_next(struct leasing *leasing)
{
    size_t servers = 1 + atomic_load(&leasing->worker->node->peer_count);
    while (leasing->round < servers && leasing->take.asker.count == 0 && !leasing->gone)
        if (ask(leasing, (leasing->first + leasing->round++) % servers))
            return;
    if (leasing->take.asker.count > 0)
        answer(leasing);
    else
        watch(leasing);
}

/* A server has connected. It may have timers, and no request has watched it. */
void leases_ask_again(struct worker *worker)
{
    for (struct leasing *leasing = worker->leasings, *next; leasing; leasing = next) {
        next = leasing->next;
        if (!leasing->alone)
            watched(leasing, true);
    }
}

/* Answers all waiting requests. A request with a call in progress is answered when the call returns. */
void leases_stop(struct worker *worker)
{
    worker->leases_stopped = true;
    for (struct leasing *leasing = worker->leasings, *next; leasing; leasing = next) {
        next = leasing->next;
        if (!leasing->take.out)
            answer(leasing);
    }
}

void leasing_begin(struct leasing *leasing, uint64_t wait_us)
{
    struct worker *worker = leasing->worker;
    fl__assert(leasing->space && leasing->max > 0 && leasing->done && leasing->release && leasing->write);
    leasing->alone = !worker->node->cluster;
    leasing->until_ns = fl_loop_now_ns(worker->loop) + wait_us * 1000;
    leasing->first = worker->lease_turn++;
    leasing->take = new_call(leasing, CALL_LEASE, NULL);
    leasing->take.over = take_over;
    leasing->take.cancelled = take_cancelled;
    leasing->take.asker.write = leasing->write;
    leasing->watch_here = new_call(leasing, CALL_WATCH, NULL);
    leasing->watch_here.over = watch_here_over;
    leasing->watch_here.cancelled = watch_here_cancelled;
    if (!leasing->alone) {
        ask_next(leasing);
        return;
    }
    leasing->take.asker.wait_us = wait_us;
    stand_in_line(leasing);
    call_send(&leasing->take);
}

void leasing_stop(struct leasing *leasing)
{
    leasing->gone = true;
    if (!leasing->take.out)
        answer(leasing);
    else if (!leasing->take.peer)
        call_cancel(&leasing->take);
}
