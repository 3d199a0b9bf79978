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

/* --- One worker's ------------------------------------------------------------------------------------------------- */

static struct worker *place_of_acks(const struct shard_call *call)
{
    struct node *node = call->errand.home->node;
    fl__assert(call->acks.worker < node->worker_count);
    return &node->workers[call->acks.worker];
}

static void run_acks(struct shard_call *call)
{
    fl__assert(call->errand.there->index == call->acks.worker);
    pull_settle(call->errand.there, call->acks.namespaces, call->acks.first);
    call_return(call);
}

static void encode_acks(struct out *out, const struct shard_call *call)
{
    size_t count = 0;
    while (call->acks.namespaces && call->acks.namespaces[count])
        count++;
    wire_put_number(out, call->acks.count);
    wire_put_number(out, call->acks.namespaces ? count + 1 : 0); /* 0: all of them */
    for (size_t i = 0; i < count; i++)
        wire_put_bytes(out, bytes_of(call->acks.namespaces[i]));
    wire_put_number(out, call->acks.worker);
    for (const struct ack *ack = call->acks.first; ack; ack = ack->next) {
        wire_put_number(out, ack->slot);
        wire_put_number(out, ack->serial);
        wire_put_number(out, ack->result);
        wire_put_number(out, ack->after_us);
    }
}

/* The acknowledgements, the list of namespaces, and their names, each with a NUL. */
static size_t room_for_acks(struct wire wire)
{
    size_t count = wire_count(&wire), namespaces = wire_count(&wire), size = (size_t)(wire.end - wire.at);
    return count * sizeof(struct ack) + namespaces * sizeof(char *) + size + namespaces;
}

static char **read_namespaces(struct wire *wire, size_t count, void *room)
{
    char **list = room, *text = (char *)(list + count);
    fl__assert(count > 0);
    for (size_t i = 0; i + 1 < count; i++) {
        fl_bytes name = wire_bytes(wire);
        list[i] = text;
        if (name.size > 0)
            memcpy(text, name.data, name.size);
        text += name.size;
        *text++ = '\0';
    }
    list[count - 1] = NULL;
    return list;
}

static int decode_acks(struct wire *wire, struct shard_call *call, void *room)
{
    struct ack *list = room, **end = &call->acks.first;
    size_t count = wire_count(wire), namespaces = wire_count(wire);
    if (namespaces > 0)
        call->acks.namespaces = read_namespaces(wire, namespaces, list + count);
    uint64_t worker = wire_number(wire);
    call->acks.worker = (uint16_t)worker;
    call->acks.count = count;
    wire->bad |= worker >= call->errand.home->node->worker_count;
    for (size_t i = 0; i < count; i++) {
        list[i] = (struct ack){.slot = (uint32_t)wire_number(wire), .serial = wire_number(wire)};
        uint64_t result = wire_number(wire);
        wire->bad |= result >= ACK_RESULTS;
        list[i].result = (enum ack_result)result;
        list[i].after_us = wire_number(wire);
        *end = &list[i];
        end = &list[i].next;
    }
    return 0;
}

/* A bit for each: whether it was known. */
static void reply_acks(struct out *out, const struct shard_call *call)
{
    unsigned char byte = 0;
    size_t i = 0;
    for (const struct ack *ack = call->acks.first; ack; ack = ack->next, i++) {
        byte = (unsigned char)(byte | (unsigned)ack->known << i % 8);
        if (i % 8 == 7 || !ack->next) {
            out_put(out, &byte, 1);
            byte = 0;
        }
    }
}

static bool take_reply_acks(struct wire *wire, struct shard_call *call)
{
    size_t i = 0, bits = (size_t)(wire->end - wire->at) * 8;
    for (struct ack *ack = call->acks.first; ack; ack = ack->next, i++)
        ack->known = i < bits && wire->at[i / 8] >> i % 8 & 1;
    return true;
}

const struct call_ops call_ops_of_acks = {
    .link_kind = LINK_ACK,
    .no_room = FL_OUTCOME_UNKNOWN,
    .replies_at_home = true,
    .place = place_of_acks,
    .run = run_acks,
    .encode = encode_acks,
    .room = room_for_acks,
    .decode = decode_acks,
    .reply = reply_acks,
    .take_reply = take_reply_acks,
};

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
