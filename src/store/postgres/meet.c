/* SPDX-License-Identifier: MIT */
/* Servers that find each other: FL_STORE_MEET.
 *
 * One transaction, sent at once: the server's own row of foliot_member is written, then the list is read, and who has the
 * shards. now() is the same in all of it. It locks no more than rows of that table, and has nothing to do with the chain of
 * the shard over whose connection it is sent. When the connection breaks it is simply sent again; since it may have taken
 * effect by then, it is in doubt as soon as it was sent.
 */

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "store/postgres/postgres.h"

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

/* `args` has room for it. */
static void send_note(struct pg_shard *shard, struct pg_flight *flight)
{
    struct pg_args *args = &shard->args;
    const fl_store_request *request = flight->request;
    flight->doubt = true;
    say_who(shard, request);
    if (request->meet.lease_us > 0) {
        fl__pg_int(args, fl__pg_lease(request->meet.lease_us));
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

int fl__pg_start_meet(struct pg_shard *shard, struct pg_flight *flight)
{
    const fl_store_request *request = flight->request;
    size_t size = text(request->meet.address).size + text(request->meet.about).size + text(request->meet.offer).size;
    if (!fl__pg_reserve(&shard->args, 2 * PG_INT_SIZE + 2 * PG_BYTES_SIZE + size))
        return FL_NO_MEMORY;
    fl__pg_say(shard, flight, PG_BEGIN, NULL);
    if (request->meet.address)
        send_note(shard, flight);
    fl__pg_say(shard, flight, PG_MEMBERS, NULL);
    fl__pg_say(shard, flight, PG_HOLDERS, NULL);
    fl__pg_commit(shard, flight);
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
    bool secret = count > 0 && !*members[0].address; /* nobody's row */
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

int fl__pg_take_meet(struct pg_shard *shard, struct pg_flight *flight, unsigned what, const PGresult *result)
{
    if (what == PG_MEMBERS)
        return take_members(flight, result);
    if (what == PG_HOLDERS)
        return take_holders(shard, flight, result);
    return 0;
}
