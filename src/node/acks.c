/* SPDX-License-Identifier: MIT */
/* Acknowledgements: each lease says whose it is. Those of this server are settled first, then the others are asked, all at
 * once. What a server does not answer for is as unknown as a lease that has run out: its timer comes again. */

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "node/internal.h"

/* Those of another server. */
struct forwarded {
    struct link_call call;
    struct acks *acks;
    uint32_t server;
};

void ack_parse(struct ack *ack, fl_bytes text)
{
    uint64_t server, worker, slot, serial;
    const char *at = text.data;
    ack->lease = text;
    ack->worker = UINT16_MAX;
    if (text.size == LEASE_TEXT && fl__hex_number(at, 8, &server) && fl__hex_number(at + 8, 4, &worker) &&
        fl__hex_number(at + 12, 8, &slot) && fl__hex_number(at + 20, 16, &serial)) {
        ack->server = (uint32_t)server;
        ack->worker = (uint16_t)worker;
        ack->slot = (uint32_t)slot;
        ack->serial = serial;
    }
}

/* --- Here --------------------------------------------------------------------------------------------------------- */

static void visit(struct tour *tour, struct worker *worker)
{
    struct acks *acks = (struct acks *)tour;
    for (size_t i = 0; i < acks->count; i++) {
        struct ack *ack = &acks->list[i];
        if (ack->worker == worker->index && ack->server == (uint32_t)worker->node->config.incarnation)
            ack->known = pull_settle(worker, acks->namespaces, ack);
    }
}

static void visited(struct tour *tour)
{
    struct acks *acks = (struct acks *)tour;
    acks->done(acks);
}

void acks_settle_here(struct acks *acks, struct worker *home)
{
    acks->tour.fn = visit;
    acks->tour.back = visited;
    tour_begin(&acks->tour, home);
}

/* --- There -------------------------------------------------------------------------------------------------------- */

static void done_if_over(struct acks *acks)
{
    if (--acks->left == 0)
        acks->done(acks);
}

static bool is_of(const struct ack *ack, uint32_t server)
{
    return ack->worker != UINT16_MAX && ack->server == server;
}

/* A bit for each that was sent: whether it was known. */
static void forwarded_back(struct link_call *call, int result, fl_bytes bits)
{
    struct forwarded *forwarded = (struct forwarded *)call;
    struct acks *acks = forwarded->acks;
    const unsigned char *bit = bits.data;
    size_t at = 0;
    for (size_t i = 0; i < acks->count && result == 0; i++) {
        struct ack *ack = &acks->list[i];
        if (!is_of(ack, forwarded->server))
            continue;
        ack->known = at / 8 < bits.size && bit[at / 8] >> at % 8 & 1;
        at++;
    }
    free(forwarded);
    done_if_over(acks);
}

static void put_namespaces(struct out *body, char *const *namespaces)
{
    size_t count = 0;
    while (namespaces && namespaces[count])
        count++;
    wire_put_number(body, namespaces ? count + 1 : 0); /* 0: all of them */
    for (size_t i = 0; i < count; i++)
        wire_put_bytes(body, bytes_of(namespaces[i]));
}

static size_t count_of(const struct acks *acks, uint32_t server)
{
    size_t count = 0;
    for (size_t i = 0; i < acks->count; i++)
        count += is_of(&acks->list[i], server);
    return count;
}

static void put_acks(struct out *body, const struct acks *acks, uint32_t server)
{
    wire_put_number(body, count_of(acks, server));
    for (size_t i = 0; i < acks->count; i++) {
        const struct ack *ack = &acks->list[i];
        if (!is_of(ack, server))
            continue;
        wire_put_number(body, ack->worker);
        wire_put_number(body, ack->slot);
        wire_put_number(body, ack->serial);
        wire_put_number(body, ack->result);
        wire_put_number(body, ack->after_us);
    }
}

static void forward(struct acks *acks, const struct peer *peer)
{
    struct worker *worker = acks->tour.home;
    struct node_link *link = link_to(worker, peer);
    struct forwarded *forwarded = link ? calloc(1, sizeof *forwarded) : NULL;
    struct out body = {0};
    if (!forwarded)
        return;
    *forwarded = (struct forwarded){
        .call.done = forwarded_back, .acks = acks, .server = (uint32_t)atomic_load(&peer->incarnation)};
    put_namespaces(&body, acks->namespaces);
    put_acks(&body, acks, forwarded->server);
    if (body.failed) {
        free(forwarded);
    } else {
        acks->left++;
        worker->node->ports->link_call(link, &forwarded->call, LINK_ACK, out_bytes(&body));
    }
    out_free(&body);
}

static void settled_here(struct tour *tour)
{
    struct acks *acks = (struct acks *)tour;
    acks->left = 1; /* for ourselves */
    for (const struct peer *peer = atomic_load(&tour->home->node->peers); peer; peer = atomic_load(&peer->next))
        if (count_of(acks, (uint32_t)atomic_load(&peer->incarnation)) > 0)
            forward(acks, peer);
    done_if_over(acks);
}

void acks_settle(struct acks *acks, struct worker *home)
{
    acks->tour.fn = visit;
    acks->tour.back = settled_here;
    tour_begin(&acks->tour, home);
}
