/* SPDX-License-Identifier: MIT */
/* Acknowledgements: each lease says which worker of which server has it. All that are one worker's go there in one call, and
 * all calls go at the same time. What a server does not answer for is as unknown as a lease that has run out: its timer comes
 * again. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/internal.h"

enum { WORKERS_MOST = 1024 }; /* of another server: more are not believed */

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

/* --- All ---------------------------------------------------------------------------------------------------------- */

/* What goes to one worker of one server. */
struct part {
    struct shard_call call;
    struct acks *acks;
    uint32_t server;
    struct ack **end;
};

static bool is_of(const struct part *part, const struct ack *ack)
{
    return part->server == ack->server && part->call.acks.worker == ack->worker;
}

static const struct peer *peer_of(const struct node *node, uint32_t server)
{
    const struct peer *peer = atomic_load(&node->peers);
    while (peer && atomic_load(&peer->server) != server)
        peer = atomic_load(&peer->next);
    return peer;
}

/* Makes the part that an acknowledgement belongs to. NULL: it is unknown, or there is no memory. */
static struct part *part_new(struct acks *acks, const struct ack *ack)
{
    const struct node *node = acks->home->node;
    bool here = ack->server == (uint32_t)node->config.incarnation;
    const struct peer *peer = here ? NULL : peer_of(node, ack->server);
    if (ack->worker >= (here ? node->worker_count : WORKERS_MOST) || (!here && !peer))
        return NULL;
    if (acks->part_count == acks->part_capacity) {
        size_t capacity = acks->part_capacity * 2 + 4;
        struct part **parts = realloc(acks->parts, capacity * sizeof(struct part *));
        if (!parts)
            return NULL;
        acks->parts = parts;
        acks->part_capacity = capacity;
    }
    fl__assert(acks->part_count < acks->part_capacity);
    struct part *part = calloc(1, sizeof *part);
    if (!part)
        return NULL;
    part->call.kind = CALL_ACKS;
    part->call.errand.home = acks->home;
    part->call.peer = peer;
    part->call.acks.namespaces = acks->namespaces;
    part->call.acks.worker = ack->worker;
    part->acks = acks;
    part->server = ack->server;
    part->end = &part->call.acks.first;
    return acks->parts[acks->part_count++] = part;
}

/* Most follow others of the same worker. */
static struct part *part_of(struct acks *acks, const struct ack *ack, struct part *last)
{
    if (last && is_of(last, ack))
        return last;
    for (size_t i = 0; i < acks->part_count; i++)
        if (is_of(acks->parts[i], ack))
            return acks->parts[i];
    return part_new(acks, ack);
}

static void done_if_over(struct acks *acks)
{
    fl__assert(acks->left > 0);
    if (--acks->left > 0)
        return;
    for (size_t i = 0; i < acks->part_count; i++)
        free(acks->parts[i]);
    free(acks->parts);
    acks->done(acks);
}

static void part_over(struct shard_call *call)
{
    done_if_over(((struct part *)call)->acks);
}

void acks_settle(struct acks *acks, struct worker *home)
{
    struct part *part = NULL;
    acks->home = home;
    for (size_t i = 0; i < acks->count; i++) {
        struct ack *ack = &acks->list[i];
        ack->next = NULL;
        ack->known = false;
        part = part_of(acks, ack, part);
        if (!part)
            continue;
        *part->end = ack;
        part->end = &ack->next;
        part->call.acks.count++;
    }
    acks->left = acks->part_count + 1; /* one for ourselves */
    for (size_t i = 0; i < acks->part_count; i++) {
        acks->parts[i]->call.over = part_over;
        call_send(&acks->parts[i]->call);
    }
    done_if_over(acks);
}
