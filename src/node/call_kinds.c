/* SPDX-License-Identifier: MIT */
/* The kinds of calls: what is sent, what runs, what comes back. The table is at the end; calls.c takes every call the same way. */

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/internal.h"

/* --- What runs ---------------------------------------------------------------------------------------------------- */

static struct worker *place_of_shard(const struct shard_call *call)
{
    return call->shard->worker;
}

static struct worker *place_of_asker(const struct shard_call *call)
{
    return pull_home(call->errand.home->node, call->asker.space);
}

static struct worker *place_of_acks(const struct shard_call *call)
{
    struct node *node = call->errand.home->node;
    fl__assert(call->acks.worker < node->worker_count);
    return &node->workers[call->acks.worker];
}

static void run_ops(struct shard_call *call)
{
    fl__assert(call->batch.count > 0);
    call->batch.done = shard_call_ops_done;
    call->batch.arg = call;
    if (shard_takes(call))
        fl_engine_submit(call->shard->engine, &call->batch);
}

static void page_done(fl_listing *listing)
{
    shard_call_answered(listing->arg, listing->result == FL_STOPPED);
}

static void run_page(struct shard_call *call)
{
    call->listing.done = page_done;
    call->listing.arg = call;
    if (shard_takes(call))
        fl_engine_list(call->shard->engine, &call->listing);
}

static void history_done(fl_history_listing *listing)
{
    shard_call_answered(listing->arg, listing->result == FL_STOPPED);
}

static void run_history(struct shard_call *call)
{
    call->past.done = history_done;
    call->past.arg = call;
    if (shard_takes(call))
        fl_engine_list_history(call->shard->engine, &call->past);
}

static void forget_done(fl_history_erasure *erasure)
{
    shard_call_answered(erasure->arg, erasure->result == FL_STOPPED);
}

static void run_forget(struct shard_call *call)
{
    call->erasure.done = forget_done;
    call->erasure.arg = call;
    if (shard_takes(call))
        fl_engine_erase_history(call->shard->engine, &call->erasure);
}

static void forecast_done(fl_forecast *forecast)
{
    shard_call_answered(forecast->arg, forecast->result == FL_STOPPED);
}

static void run_forecast(struct shard_call *call)
{
    call->forecast.done = forecast_done;
    call->forecast.arg = call;
    if (shard_takes(call))
        fl_engine_forecast(call->shard->engine, &call->forecast);
}

static void run_acks(struct shard_call *call)
{
    fl__assert(call->errand.there->index == call->acks.worker);
    pull_settle(call->errand.there, call->acks.namespaces, call->acks.first);
    call_return(call);
}

/* --- Operations --------------------------------------------------------------------------------------------------- */

static void encode_ops(struct out *out, const struct shard_call *call)
{
    wire_put_number(out, (unsigned)call->brief | (unsigned)call->batch.atomic << 1);
    wire_put_number(out, call->batch.count);
    for (size_t i = 0; i < call->batch.count; i++)
        wire_put_op(out, &call->batch.ops[i]);
}

static size_t room_for_ops(struct wire wire)
{
    wire_number(&wire); /* the shard */
    wire_number(&wire); /* the flags */
    return wire_count(&wire) * sizeof(fl_op);
}

static int decode_ops(struct wire *wire, struct shard_call *call, void *room)
{
    uint64_t flags = wire_number(wire);
    call->brief = flags & 1;
    call->batch = (fl_batch){.ops = room, .count = wire_count(wire), .atomic = flags >> 1 & 1};
    for (size_t i = 0; i < call->batch.count; i++)
        wire_op(wire, &call->batch.ops[i]);
    return call->batch.count == 0 ? FL_INVALID_ARGUMENT : 0;
}

static void reply_ops(struct out *out, const struct shard_call *call)
{
    for (size_t i = 0; i < call->batch.count; i++)
        wire_put_answer(out, &call->batch.ops[i], call->brief);
}

static void take_ops(struct wire *wire, struct shard_call *call, void *room)
{
    (void)room;
    for (size_t i = 0; i < call->batch.count; i++)
        wire_answer(wire, &call->batch.ops[i], call->brief);
}

/* --- Pages, history, forecast ------------------------------------------------------------------------------------- */

static void reply_page(struct out *out, const struct shard_call *call)
{
    wire_put_found(out, &call->listing);
}

static size_t room_for_page(const struct shard_call *call)
{
    return call->listing.limit * sizeof(fl_op);
}

static void take_page(struct wire *wire, struct shard_call *call, void *room)
{
    wire_found(wire, &call->listing, room);
}

static void reply_history(struct out *out, const struct shard_call *call)
{
    wire_put_history_found(out, &call->past);
}

static size_t room_for_history(const struct shard_call *call)
{
    return call->past.limit * sizeof(fl_history_row);
}

static void take_history(struct wire *wire, struct shard_call *call, void *room)
{
    wire_history_found(wire, &call->past, room);
}

static size_t room_for_bars(struct wire wire)
{
    (void)wire;
    return FL_FORECAST_BARS * sizeof(fl_forecast_bar);
}

static int decode_bars(struct wire *wire, struct shard_call *call, void *room)
{
    (void)wire;
    call->forecast.bars = room;
    return call->forecast.count <= FL_FORECAST_BARS ? 0 : FL_INVALID_ARGUMENT;
}

static void reply_bars(struct out *out, const struct shard_call *call)
{
    for (size_t i = 0; i < call->forecast.count; i++)
        wire_put(out, &wire_of_forecast_bar, &call->forecast.bars[i]);
}

static void take_bars(struct wire *wire, struct shard_call *call, void *room)
{
    (void)room;
    for (size_t i = 0; i < call->forecast.count; i++)
        wire_read(wire, &wire_of_forecast_bar, &call->forecast.bars[i]);
}

/* --- Leases ------------------------------------------------------------------------------------------------------- */

static void put_leased(struct out *out, const struct leased *leased, size_t count)
{
    (void)count;
    wire_put_number(out, leased->server);
    wire_put_number(out, leased->worker);
    wire_put_number(out, leased->slot);
    wire_put_number(out, leased->serial);
    wire_put_number(out, leased->shard);
    wire_put_timer(out, leased->timer);
}

static struct leased read_leased(struct wire *wire, fl_durable *timer)
{
    struct leased leased = {.timer = timer};
    leased.server = (uint32_t)wire_number(wire);
    leased.worker = (uint16_t)wire_number(wire);
    leased.slot = (uint32_t)wire_number(wire);
    leased.serial = wire_number(wire);
    leased.shard = (uint32_t)wire_number(wire);
    wire_timer(wire, timer);
    return leased;
}

static void encode_asker(struct out *out, const struct shard_call *call)
{
    wire_put_bytes(out, space_name(call->asker.space));
    wire_put_number(out, call->asker.max);
    wire_put_number(out, call->kind == CALL_WATCH ? call->asker.wait_us : call->asker.lease_us);
}

static int decode_asker(struct wire *wire, struct shard_call *call, void *room)
{
    fl_bytes ns = wire_bytes(wire);
    uint64_t max = wire_number(wire), us = wire_number(wire);
    (void)room;
    if (wire->bad || ns.size == 0 || ns.size > FL_STORE_NAME_MAX)
        return FL_INVALID_ARGUMENT;
    call->asker = (struct asker){.space = space_of(call->errand.home->node, ns),
                                 .max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX,
                                 .wait_us = call->kind == CALL_WATCH ? us : 0,
                                 .lease_us = call->kind == CALL_WATCH ? 0 : us,
                                 .write = put_leased};
    return call->asker.space ? 0 : FL_NO_MEMORY;
}

static void reply_lease(struct out *out, const struct shard_call *call)
{
    wire_put_number(out, call->asker.count);
    out_put(out, call->asker.out.data, call->asker.out.size);
    out->failed |= call->asker.out.failed;
}

/* Those before a fault are leased: the answer has them. */
static void take_lease(struct wire *wire, struct shard_call *call, void *room)
{
    size_t count = wire_count(wire);
    (void)room;
    for (size_t i = 0; i < count && !wire->bad; i++) {
        fl_durable timer = {0};
        struct leased leased = read_leased(wire, &timer);
        if (!wire->bad)
            call->asker.write(&call->asker.out, &leased, call->asker.count++);
    }
    wire->bad = false;
}

static void reply_watch(struct out *out, const struct shard_call *call)
{
    wire_put_number(out, call->asker.found);
}

static void take_watch(struct wire *wire, struct shard_call *call, void *room)
{
    (void)room;
    call->asker.found = wire_number(wire) > 0;
    wire->bad = false; /* an answer that makes no sense reports nothing */
}

static void release_asker(struct shard_call *call)
{
    out_free(&call->asker.out);
}

/* --- Acknowledgements --------------------------------------------------------------------------------------------- */

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

static void take_acks(struct wire *wire, struct shard_call *call, void *room)
{
    size_t i = 0, bits = (size_t)(wire->end - wire->at) * 8;
    (void)room;
    for (struct ack *ack = call->acks.first; ack; ack = ack->next, i++)
        ack->known = i < bits && wire->at[i / 8] >> i % 8 & 1;
}

/* --- The table ---------------------------------------------------------------------------------------------------- */

#define ASKS(record, member) .asks = &(record), .asks_at = offsetof(struct shard_call, member)
#define ANSWERS(record, member) .answers = &(record), .answers_at = offsetof(struct shard_call, member)

const struct call_row call_rows[CALL_KINDS] = {
    [CALL_OPS] =
        {
            .link_kind = LINK_OPS,
            .no_room = FL_OUTCOME_UNKNOWN,
            .of_shard = true,
            .place = place_of_shard,
            .run = run_ops,
            .encode = encode_ops,
            .room = room_for_ops,
            .decode = decode_ops,
            .reply = reply_ops,
            .take_reply = take_ops,
        },
    [CALL_PAGE] =
        {
            .link_kind = LINK_PAGE,
            .no_room = FL_NO_MEMORY,
            .of_shard = true,
            .place = place_of_shard,
            .run = run_page,
            ASKS(wire_of_listing, listing),
            .reply = reply_page,
            .reply_room = room_for_page,
            .take_reply = take_page,
        },
    [CALL_HISTORY] =
        {
            .link_kind = LINK_HISTORY,
            .no_room = FL_NO_MEMORY,
            .of_shard = true,
            .place = place_of_shard,
            .run = run_history,
            ASKS(wire_of_history, past),
            .reply = reply_history,
            .reply_room = room_for_history,
            .take_reply = take_history,
        },
    [CALL_FORGET] =
        {
            .link_kind = LINK_FORGET,
            .no_room = FL_NO_MEMORY,
            .of_shard = true,
            .place = place_of_shard,
            .run = run_forget,
            ASKS(wire_of_erasure, erasure),
            ANSWERS(wire_of_erased, erasure),
        },
    [CALL_FORECAST] =
        {
            .link_kind = LINK_FORECAST,
            .no_room = FL_NO_MEMORY,
            .of_shard = true,
            .place = place_of_shard,
            .run = run_forecast,
            ASKS(wire_of_forecast, forecast),
            .room = room_for_bars,
            .decode = decode_bars,
            ANSWERS(wire_of_forecast_result, forecast),
            .reply = reply_bars,
            .take_reply = take_bars,
        },
    [CALL_LEASE] =
        {
            .link_kind = LINK_TAKE,
            .no_room = FL_NO_MEMORY,
            .place = place_of_asker,
            .run = pull_ask,
            .cancel = pull_unask,
            .encode = encode_asker,
            .decode = decode_asker,
            .reply = reply_lease,
            .take_reply = take_lease,
            .release = release_asker,
        },
    [CALL_WATCH] =
        {
            .link_kind = LINK_WATCH,
            .no_room = FL_NO_MEMORY,
            .place = place_of_asker,
            .run = pull_ask,
            .cancel = pull_unask,
            .encode = encode_asker,
            .decode = decode_asker,
            .reply = reply_watch,
            .take_reply = take_watch,
            .release = release_asker,
        },
    [CALL_ACKS] =
        {
            .link_kind = LINK_ACK,
            .no_room = FL_OUTCOME_UNKNOWN,
            .place = place_of_acks,
            .run = run_acks,
            .encode = encode_acks,
            .room = room_for_acks,
            .decode = decode_acks,
            .reply = reply_acks,
            .take_reply = take_acks,
        },
};
