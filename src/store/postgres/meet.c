/* SPDX-License-Identifier: MIT */
/* Servers that find each other: FL_STORE_MEET.
 *
 * One transaction, sent as a whole, writes the server's own row of foliot_member and reads the list of servers and the shard
 * owners. now() is the same in all of it. It locks only rows of that table, and is not part of the chain of the shard whose
 * connection it uses. If the connection breaks, it is sent again. It may have taken effect by then, so it is in doubt as
 * soon as it is sent.
 *
 * On Citus, the shards are on several nodes, and a statement about all of them fails if one node is down. There, the
 * transaction has only the list, which is on one node (the coordinator). Then each node is asked for its shards, for a short
 * time, by a statement of its own. A shard whose node does not answer counts as held by the owner that was seen last: while
 * the node is down, no server can claim it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

#define UNKNOWN_US 1000000 /* a shard whose node does not answer: it cannot be claimed; look again after this */

enum { PATIENCE_PARTS = 6 }; /* of a claim, for a node to answer */

static fl_bytes text(const char *s)
{
    return (fl_bytes){s, s ? strlen(s) : 0};
}

static void say_who(struct pg_shard *shard, const fl_store_request *request)
{
    fl__pg_begin(&shard->args);
    fl__pg_bytes(&shard->args, text(request->meet.address));
    fl__pg_int(&shard->args, request->meet.incarnation);
}

/* Before anything else: then the meetings of all servers lock these rows in the same order. On Citus, a claim caps its own
 * shard. */
static void cap(struct pg_shard *shard, struct pg_flight *flight)
{
    fl__pg_begin(&shard->args);
    fl__pg_int(&shard->args, fl__pg_longest(flight->request->meet.claim_us));
    if (!fl__pg_store(shard)->spread)
        fl__pg_say(shard, flight, PG_CAP_CLAIMS, &shard->args);
    fl__pg_say(shard, flight, PG_CAP_MEMBERS, &shard->args);
}

/* `args` has room for it. */
static void send_note(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    flight->doubt = true;
    if (request->meet.claim_us > 0)
        cap(shard, flight);
    say_who(shard, request);
    if (request->meet.claim_us > 0) {
        fl__pg_int(args, fl__pg_claim(request->meet.claim_us));
        fl__pg_bytes(args, text(request->meet.about));
        fl__pg_say(shard, flight, request->meet.join ? PG_JOIN : PG_STAY, args);
    } else {
        fl__pg_int(args, request->meet.join);
        fl__pg_say(shard, flight, PG_LEAVE, args);
    }
    if (request->meet.join)
        fl__pg_say(shard, flight, PG_FORGET, NULL);
    if (request->meet.join && request->meet.offer) {
        fl__pg_begin(args);
        fl__pg_bytes(args, text(request->meet.offer));
        fl__pg_say(shard, flight, PG_OFFER, args);
    }
}

/* On Citus; elsewhere nothing is needed. */
static bool have_known(struct pg_shard *shard)
{
    if (fl__pg_store(shard)->spread && !shard->known)
        shard->known = fl__alloc_zeroed(shard->base.store->shards * sizeof *shard->known);
    return !fl__pg_store(shard)->spread || shard->known;
}

int fl__pg_start_meet(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_store_request *request = flight->request;
    size_t size = text(request->meet.address).size + text(request->meet.about).size + text(request->meet.offer).size;
    size_t room = 2 * PG_INT_SIZE + 2 * PG_BYTES_SIZE + size, shards = shard->base.store->shards;
    if (!fl__pg_reserve(&shard->args, room + PG_ARRAY_SIZE + shards * PG_INT_SIZE) || !have_known(shard))
        return FL_NO_MEMORY;
    fl__pg_transact(shard, flight);
    if (request->meet.address)
        send_note(shard, flight);
    bool spread = fl__pg_store(shard)->spread;
    flight->stage = STAGE_FIRST;
    fl__pg_say(shard, flight, PG_MEMBERS, NULL);
    if (!spread)
        fl__pg_say(shard, flight, PG_HOLDERS, NULL);
    fl__pg_commit(shard, flight);
    if (spread) {
        fl__pg_begin(&shard->args);
        fl__pg_int(&shard->args, shard->base.store->shards);
        fl__pg_say(shard, flight, PG_NODES, &shard->args);
        fl__pg_sync(shard, flight);
    }
    return 0;
}

static int compare_members(const void *x, const void *y)
{
    const fl_store_member *a = x, *b = y;
    return strcmp(a->address, b->address); /* not in the order of the database: that depends on its language */
}

/* Texts point into the result, where each ends with a zero byte. */
static int take_members(struct pg_flight *flight, const PGresult *result)
{
    size_t count = (size_t)PQntuples(result);
    fl_store_member *members = flight->block = fl__alloc((count > 0 ? count : 1) * sizeof *members);
    if (!members)
        return FL_NO_MEMORY;
    flight->request->meet.secret = "";
    for (size_t i = 0; i < count; i++)
        members[i] = (fl_store_member){.address = PQgetvalue(result, (int)i, 0),
                                       .about = PQgetvalue(result, (int)i, 1),
                                       .incarnation = fl__pg_get_int(result, (int)i, 2),
                                       .left_us = (int64_t)fl__pg_get_int(result, (int)i, 3)};
    qsort(members, count, sizeof *members, compare_members);
    bool secret = count > 0 && !*members[0].address; /* the row without an address has the secret */
    if (secret)
        flight->request->meet.secret = members[0].about;
    flight->request->meet.members = members + secret;
    flight->request->meet.member_count = count - secret;
    return 0;
}

static int take_holders(struct pg_shard *shard, struct pg_flight *flight, const PGresult *result)
{
    uint32_t shards = shard->base.store->shards;
    fl_store_holder *holders = flight->keep = fl__alloc(shards * sizeof *holders);
    if (!holders)
        return FL_NO_MEMORY;
    if (PQntuples(result) != (int)shards)
        return FL_STORE_CORRUPT;
    for (int i = 0; i < (int)shards; i++) {
        uint64_t number = fl__pg_get_int(result, i, 0);
        if (number >= shards)
            return FL_STORE_CORRUPT;
        bool held = PQgetlength(result, i, 1) > 0;
        holders[number] = (fl_store_holder){.owner = PQgetvalue(result, i, 1),
                                            .version = fl__pg_get_int(result, i, 2),
                                            .left_us = held ? (int64_t)fl__pg_get_int(result, i, 3) : 0};
    }
    flight->request->meet.holders = holders;
    return 0;
}

/* --- Nodes -------------------------------------------------------------------------------------------------------- */

void fl__pg_known_release(struct pg_shard *shard)
{
    for (uint32_t i = 0; shard->known && i < shard->base.store->shards; i++)
        fl__release(shard->known[i].owner);
    fl__release(shard->known);
    shard->known = NULL;
}

bool fl__pg_is_of_node(unsigned what, const PGresult *result)
{
    return what == PG_NODE_HOLDERS && PQresultErrorField(result, PG_DIAG_SQLSTATE);
}

static bool know(struct pg_known *known, fl_bytes owner)
{
    char *copy = fl__alloc(owner.size + 1);
    if (!copy)
        return false;
    memcpy(copy, owner.data, owner.size);
    copy[owner.size] = 0;
    fl__release(known->owner);
    known->owner = copy;
    return true;
}

void fl__pg_take_node(struct pg_shard *shard, const PGresult *result)
{
    for (int i = 0; PQresultStatus(result) == PGRES_TUPLES_OK && i < PQntuples(result); i++) {
        uint64_t number = fl__pg_get_int(result, i, 0);
        if (number >= shard->base.store->shards || !know(&shard->known[number], fl__pg_get_bytes(result, i, 1)))
            continue;
        shard->known[number].version = fl__pg_get_int(result, i, 2);
        shard->known[number].left_us = (int64_t)fl__pg_get_int(result, i, 3);
        shard->known[number].fresh = true;
    }
}

static void say_patience(struct pg_shard *shard, struct pg_flight *flight, uint64_t us)
{
    char ms[24];
    uint64_t value = us / 1000;
    snprintf(ms, sizeof ms, "%d", value < 1 ? 1 : value > INT32_MAX ? INT32_MAX : (int)value);
    fl__pg_begin(&shard->args);
    fl__pg_bytes(&shard->args, text(ms));
    fl__pg_say(shard, flight, PG_PATIENCE, &shard->args);
    fl__pg_sync(shard, flight);
}

/* The rows of one node, from `from` on. Returns where those of the next node begin. */
static int ask_node(struct pg_shard *shard, struct pg_flight *flight, const PGresult *nodes, int from)
{
    int end = from;
    while (end < PQntuples(nodes) && fl__pg_get_int(nodes, end, 1) == fl__pg_get_int(nodes, from, 1))
        end++;
    fl__pg_begin(&shard->args);
    fl__pg_array(&shard->args, PG_OID_BIGINT, (size_t)(end - from), false);
    for (int i = from; i < end; i++)
        fl__pg_item_int(&shard->args, fl__pg_get_int(nodes, i, 0));
    fl__pg_array_end(&shard->args);
    fl__pg_say(shard, flight, PG_NODE_HOLDERS, &shard->args);
    fl__pg_sync(shard, flight);
    return end;
}

/* A server says three times per claim that it is there. Up to three nodes that do not answer leave enough time for that. */
static void ask_nodes(struct pg_shard *shard, struct pg_flight *flight, const PGresult *nodes)
{
    uint64_t timeout_us = fl__pg_store(shard)->timeout_us, part_us = flight->request->meet.claim_us / PATIENCE_PARTS;
    for (uint32_t i = 0; i < shard->base.store->shards; i++)
        shard->known[i].fresh = false;
    say_patience(shard, flight, part_us > 0 && part_us < timeout_us ? part_us : timeout_us);
    int count = PQntuples(nodes) < (int)shard->base.store->shards ? PQntuples(nodes) : (int)shard->base.store->shards;
    for (int i = 0; i < count;)
        i = ask_node(shard, flight, nodes, i);
    say_patience(shard, flight, timeout_us);
}

static fl_store_holder tell_one(const struct pg_known *known)
{
    if (known->fresh)
        return (fl_store_holder){known->owner, known->version, *known->owner ? known->left_us : 0};
    bool named = known->owner && *known->owner;
    return (fl_store_holder){named ? known->owner : "?", known->version, UNKNOWN_US};
}

static int tell_known(struct pg_shard *shard, struct pg_flight *flight)
{
    uint32_t shards = shard->base.store->shards, fresh = 0;
    fl_store_holder *holders = flight->keep = fl__alloc(shards * sizeof *holders);
    if (!holders)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < shards; i++) {
        holders[i] = tell_one(&shard->known[i]);
        fresh += shard->known[i].fresh;
    }
    flight->request->meet.holders = holders;
    return fresh > 0 ? 0 : FL_STORE_UNAVAILABLE;
}

bool fl__pg_go_on_meeting(struct pg_shard *shard, struct pg_flight *flight)
{
    if (flight->request->result < 0 || flight->redo)
        return false;
    if (flight->stage == STAGE_FIRST && flight->kept_count > 0) {
        flight->stage = STAGE_END;
        ask_nodes(shard, flight, flight->kept[flight->kept_count - 1]);
        return true;
    }
    int r = tell_known(shard, flight);
    if (r < 0)
        fl__store_answer(flight->request, flight->doubt ? FL_OUTCOME_UNKNOWN : r,
                         "no node of Citus returned the owners of the shards");
    return false;
}

/* --- All of it ---------------------------------------------------------------------------------------------------- */

int fl__pg_take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result)
{
    if (what == PG_MEMBERS)
        return take_members(flight, result);
    if (what == PG_HOLDERS)
        return take_holders(shard, flight, result);
    return 0;
}
