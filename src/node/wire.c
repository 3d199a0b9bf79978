/* SPDX-License-Identifier: MIT */
/* See wire.h. The members of what is sent are listed once, in tables; one function writes them and one reads them. */

#include "node/wire.h"

#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/varint.h"

/* --- Numbers and bytes -------------------------------------------------------------------------------------------- */

void wire_put_number(struct out *out, uint64_t number)
{
    unsigned char bytes[FL__VARINT_MAX];
    out_put(out, bytes, fl__varint_put(bytes, number));
}

void wire_put_signed(struct out *out, int64_t number)
{
    wire_put_number(out, fl__zigzag(number));
}

void wire_put_bytes(struct out *out, fl_bytes bytes)
{
    wire_put_number(out, bytes.size);
    out_put(out, bytes.data, bytes.size);
}

static void spoil(struct wire *wire)
{
    wire->bad = true;
    wire->at = wire->end;
}

uint64_t wire_number(struct wire *wire)
{
    uint64_t number = 0;
    if (!fl__varint_get(&wire->at, wire->end, &number))
        spoil(wire);
    return number;
}

int64_t wire_signed(struct wire *wire)
{
    return fl__unzigzag(wire_number(wire));
}

fl_bytes wire_bytes(struct wire *wire)
{
    uint64_t size = wire_number(wire);
    fl__assert(wire->at <= wire->end);
    if (size > (uint64_t)(wire->end - wire->at)) {
        spoil(wire);
        return (fl_bytes){0};
    }
    fl_bytes bytes = {wire->at, (size_t)size};
    wire->at += size;
    return bytes;
}

size_t wire_count(struct wire *wire)
{
    uint64_t count = wire_number(wire);
    fl__assert(wire->at <= wire->end);
    if (count <= (uint64_t)(wire->end - wire->at))
        return (size_t)count;
    spoil(wire);
    return 0;
}

/* --- Members ------------------------------------------------------------------------------------------------------ */

#define MEMBER(kind, type, name)          \
    {                                     \
        WIRE_##kind, offsetof(type, name) \
    }
#define RECORD(record, members) const struct wire_record record = {(members), sizeof(members) / sizeof *(members)}

static const struct wire_member timer_members[] = {
    MEMBER(BYTES, fl_durable, ns),
    MEMBER(BYTES, fl_durable, name),
    MEMBER(SIGNED_64, fl_durable, id.at_us),
    MEMBER(NUMBER_64, fl_durable, id.seq),
    MEMBER(SIGNED_64, fl_durable, due_us),
    MEMBER(SIGNED_64, fl_durable, created_us),
    MEMBER(BYTES, fl_durable, payload),
    MEMBER(BYTES, fl_durable, target),
    MEMBER(BYTES, fl_durable, headers),
    MEMBER(NUMBER_64, fl_durable, timeout_us),
    MEMBER(NUMBER_32, fl_durable, retry.max_attempts),
    MEMBER(NUMBER_32, fl_durable, retry.multiplier_1000),
    MEMBER(NUMBER_64, fl_durable, retry.initial_us),
    MEMBER(NUMBER_64, fl_durable, retry.max_interval_us),
    MEMBER(NUMBER_64, fl_durable, retry.max_age_us),
    MEMBER(NUMBER_32, fl_durable, attempt),
    MEMBER(NUMBER_64, fl_durable, revision),
    MEMBER(BYTES, fl_durable, schedule),
    MEMBER(SIGNED_64, fl_durable, occurrence_us),
    MEMBER(SIGNED_64, fl_durable, previous_us),
    MEMBER(SIGNED_64, fl_durable, next_us),
    MEMBER(BYTES, fl_durable, local),
    MEMBER(BYTES, fl_durable, zone),
    MEMBER(NUMBER_64, fl_durable, max_wait_us),
    MEMBER(FLAG, fl_durable, merge_first),
    MEMBER(NUMBER_32, fl_durable, replaced),
    MEMBER(SIGNED_64, fl_durable, first_created_us),
};
RECORD(wire_of_timer, timer_members);

static const struct wire_member listing_members[] = {
    MEMBER(FLAG, fl_listing, dead),
    MEMBER(BYTES, fl_listing, ns),
    MEMBER(BYTES, fl_listing, prefix),
    MEMBER(BYTES, fl_listing, name_contains),
    MEMBER(BYTES, fl_listing, target_prefix),
    MEMBER(BYTES, fl_listing, schedule),
    MEMBER(BYTES, fl_listing, reason_contains),
    MEMBER(SIGNED_64, fl_listing, from_us),
    MEMBER(SIGNED_64, fl_listing, until_us),
    MEMBER(NUMBER_64, fl_listing, limit),
    MEMBER(NUMBER_64, fl_listing, cursor.part[0]),
    MEMBER(NUMBER_64, fl_listing, cursor.part[1]),
    MEMBER(NUMBER_64, fl_listing, cursor.part[2]),
    MEMBER(NUMBER_64, fl_listing, cursor.part[3]),
};
RECORD(wire_of_listing, listing_members);

static const struct wire_member history_members[] = {
    MEMBER(BYTES, fl_history_listing, ns),
    MEMBER(BYTES, fl_history_listing, name),
    MEMBER(BYTES, fl_history_listing, schedule),
    MEMBER(SIGNED_64, fl_history_listing, id.at_us),
    MEMBER(NUMBER_64, fl_history_listing, id.seq),
    MEMBER(NUMBER_32, fl_history_listing, results),
    MEMBER(SIGNED_64, fl_history_listing, from_us),
    MEMBER(SIGNED_64, fl_history_listing, until_us),
    MEMBER(NUMBER_64, fl_history_listing, limit),
    MEMBER(NUMBER_64, fl_history_listing, cursor.part[0]),
    MEMBER(NUMBER_64, fl_history_listing, cursor.part[1]),
};
RECORD(wire_of_history, history_members);

static const struct wire_member row_members[] = {
    MEMBER(NUMBER_64, fl_history_row, seq),    MEMBER(SIGNED_64, fl_history_row, id.at_us),
    MEMBER(NUMBER_64, fl_history_row, id.seq), MEMBER(SIGNED_64, fl_history_row, began_us),
    MEMBER(NUMBER_32, fl_history_row, result), MEMBER(BYTES, fl_history_row, ns),
    MEMBER(BYTES, fl_history_row, name),       MEMBER(BYTES, fl_history_row, schedule),
    MEMBER(BYTES, fl_history_row, body),
};
static RECORD(wire_of_row, row_members);

static const struct wire_member erasure_members[] = {
    MEMBER(BYTES, fl_history_erasure, ns),
    MEMBER(SIGNED_64, fl_history_erasure, id.at_us),
    MEMBER(NUMBER_64, fl_history_erasure, id.seq),
};
RECORD(wire_of_erasure, erasure_members);

static const struct wire_member erased_members[] = {MEMBER(INT, fl_history_erasure, result)};
RECORD(wire_of_erased, erased_members);

static const struct wire_member forecast_members[] = {
    MEMBER(BYTES, fl_forecast, ns),          MEMBER(NUMBER_8, fl_forecast, first_byte),
    MEMBER(SIGNED_64, fl_forecast, from_us), MEMBER(NUMBER_64, fl_forecast, step_us),
    MEMBER(NUMBER_64, fl_forecast, count),
};
RECORD(wire_of_forecast, forecast_members);

static const struct wire_member forecast_results[] = {MEMBER(INT, fl_forecast, result)};
RECORD(wire_of_forecast_result, forecast_results);

static const struct wire_member bar_members[] = {
    MEMBER(NUMBER_64, fl_forecast_bar, timers),
    MEMBER(NUMBER_64, fl_forecast_bar, spread),
};
RECORD(wire_of_forecast_bar, bar_members);

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "limits and counts are sent as NUMBER_64");

void wire_put(struct out *out, const struct wire_record *record, const void *from)
{
    for (size_t i = 0; i < record->count; i++) {
        const void *at = (const char *)from + record->members[i].at;
        switch (record->members[i].kind) {
        case WIRE_NUMBER_64:
            wire_put_number(out, *(const uint64_t *)at);
            break;
        case WIRE_NUMBER_32:
            wire_put_number(out, *(const uint32_t *)at);
            break;
        case WIRE_NUMBER_8:
            wire_put_number(out, *(const uint8_t *)at);
            break;
        case WIRE_SIGNED_64:
            wire_put_signed(out, *(const int64_t *)at);
            break;
        case WIRE_INT:
            wire_put_signed(out, *(const int *)at);
            break;
        case WIRE_FLAG:
            wire_put_number(out, *(const bool *)at);
            break;
        case WIRE_BYTES:
            wire_put_bytes(out, *(const fl_bytes *)at);
            break;
        }
    }
}

void wire_read(struct wire *wire, const struct wire_record *record, void *to)
{
    for (size_t i = 0; i < record->count; i++) {
        void *at = (char *)to + record->members[i].at;
        switch (record->members[i].kind) {
        case WIRE_NUMBER_64:
            *(uint64_t *)at = wire_number(wire);
            break;
        case WIRE_NUMBER_32:
            *(uint32_t *)at = (uint32_t)wire_number(wire);
            break;
        case WIRE_NUMBER_8:
            *(uint8_t *)at = (uint8_t)wire_number(wire);
            break;
        case WIRE_SIGNED_64:
            *(int64_t *)at = wire_signed(wire);
            break;
        case WIRE_INT:
            *(int *)at = (int)wire_signed(wire);
            break;
        case WIRE_FLAG:
            *(bool *)at = wire_number(wire) != 0;
            break;
        case WIRE_BYTES:
            *(fl_bytes *)at = wire_bytes(wire);
            break;
        }
    }
}

/* --- Operations --------------------------------------------------------------------------------------------------- */

void wire_put_op(struct out *out, const fl_op *op)
{
    wire_put_number(out, op->kind);
    wire_put_number(out, op->flags);
    wire_put_timer(out, &op->timer);
}

void wire_op(struct wire *wire, fl_op *ret)
{
    uint64_t kind = wire_number(wire);
    wire->bad |= kind > FL_OP_DEAD_DELETE;
    *ret = (fl_op){.kind = (enum fl_op_kind)kind, .flags = (unsigned)wire_number(wire)};
    wire_timer(wire, &ret->timer);
}

static void put_key(struct out *out, fl_key key)
{
    wire_put_signed(out, key.at_us);
    wire_put_number(out, key.seq);
}

static fl_key read_key(struct wire *wire)
{
    int64_t at_us = wire_signed(wire);
    return (fl_key){at_us, wire_number(wire)};
}

void wire_put_answer(struct out *out, const fl_op *op, bool brief)
{
    wire_put_signed(out, op->result);
    if (op->result < 0)
        return;
    wire_put_number(out, op->outcome);
    if (brief) {
        put_key(out, op->timer.id);
        return;
    }
    wire_put_signed(out, op->died_us);
    wire_put_bytes(out, op->reason);
    wire_put_timer(out, &op->timer);
}

void wire_answer(struct wire *wire, fl_op *op, bool brief)
{
    op->result = (int)wire_signed(wire);
    if (op->result < 0)
        return;
    op->outcome = (enum fl_outcome)wire_number(wire);
    if (brief) {
        op->timer.id = read_key(wire);
        return;
    }
    op->died_us = wire_signed(wire);
    op->reason = wire_bytes(wire);
    wire_timer(wire, &op->timer);
}

/* --- Pages -------------------------------------------------------------------------------------------------------- */

static void put_cursor(struct out *out, const fl_cursor *cursor, unsigned parts)
{
    for (unsigned i = 0; i < parts; i++)
        wire_put_number(out, cursor->part[i]);
}

static void read_cursor(struct wire *wire, fl_cursor *cursor, unsigned parts)
{
    fl_cursor read = *cursor;
    for (unsigned i = 0; i < parts; i++)
        read.part[i] = wire_number(wire);
    if (!wire->bad)
        *cursor = read;
}

/* How many were found: no more than were asked for. */
static size_t read_count(struct wire *wire, size_t limit)
{
    size_t count = wire_count(wire);
    wire->bad |= count > limit;
    return wire->bad ? 0 : count;
}

void wire_put_found(struct out *out, const fl_listing *listing)
{
    wire_put_signed(out, listing->result);
    wire_put_number(out, listing->result < 0 ? 0 : listing->count);
    for (size_t i = 0; i < listing->count && listing->result >= 0; i++) {
        wire_put_signed(out, listing->found[i].died_us);
        wire_put_bytes(out, listing->found[i].reason);
        wire_put_timer(out, &listing->found[i].timer);
    }
    wire_put_number(out, listing->more);
    put_cursor(out, &listing->cursor, 4);
}

void wire_found(struct wire *wire, fl_listing *listing, fl_op *room)
{
    listing->result = (int)wire_signed(wire);
    listing->count = read_count(wire, listing->limit);
    for (size_t i = 0; i < listing->count; i++) {
        room[i] = (fl_op){.died_us = wire_signed(wire)};
        room[i].reason = wire_bytes(wire);
        wire_timer(wire, &room[i].timer);
    }
    listing->found = room;
    listing->more = wire_number(wire) != 0;
    read_cursor(wire, &listing->cursor, 4);
}

void wire_put_history_found(struct out *out, const fl_history_listing *listing)
{
    size_t count = listing->result < 0 ? 0 : listing->count;
    wire_put_signed(out, listing->result);
    wire_put_number(out, count);
    for (size_t i = 0; i < count; i++)
        wire_put(out, &wire_of_row, &listing->found[i]);
    wire_put_number(out, listing->more);
    put_cursor(out, &listing->cursor, 2);
}

void wire_history_found(struct wire *wire, fl_history_listing *listing, fl_history_row *room)
{
    listing->result = (int)wire_signed(wire);
    listing->count = read_count(wire, listing->limit);
    for (size_t i = 0; i < listing->count; i++)
        wire_read(wire, &wire_of_row, &room[i]);
    listing->found = room;
    listing->more = wire_number(wire) != 0;
    read_cursor(wire, &listing->cursor, 2);
}
