/* SPDX-License-Identifier: MIT */
/* See wire.h. */

#include <string.h>

#include "node/wire.h"

/* --- Numbers and bytes -------------------------------------------------------------------------------------------- */

void wire_put_number(struct out *out, uint64_t number)
{
    unsigned char bytes[10];
    size_t size = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[size++] = (unsigned char)(number | 0x80);
    bytes[size++] = (unsigned char)number;
    out_put(out, bytes, size);
}

void wire_put_signed(struct out *out, int64_t number)
{
    wire_put_number(out, (uint64_t)number << 1 ^ -(uint64_t)(number < 0));
}

void wire_put_bytes(struct out *out, fl_bytes bytes)
{
    wire_put_number(out, bytes.size);
    out_put(out, bytes.data, bytes.size);
}

uint64_t wire_number(struct wire *wire)
{
    uint64_t number = 0;
    for (unsigned shift = 0; wire->at < wire->end && shift < 64; shift += 7) {
        unsigned char byte = *wire->at++;
        number |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return number;
    }
    wire->bad = true;
    wire->at = wire->end;
    return 0;
}

int64_t wire_signed(struct wire *wire)
{
    uint64_t number = wire_number(wire);
    return (int64_t)(number >> 1 ^ -(number & 1));
}

fl_bytes wire_bytes(struct wire *wire)
{
    uint64_t size = wire_number(wire);
    if (size > (uint64_t)(wire->end - wire->at)) {
        wire->bad = true;
        wire->at = wire->end;
        return (fl_bytes){0};
    }
    fl_bytes bytes = {wire->at, (size_t)size};
    wire->at += size;
    return bytes;
}

size_t wire_count(struct wire *wire)
{
    uint64_t count = wire_number(wire);
    if (count <= (uint64_t)(wire->end - wire->at))
        return (size_t)count;
    wire->bad = true;
    wire->at = wire->end;
    return 0;
}

/* --- Timers ------------------------------------------------------------------------------------------------------- */

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

static void put_retry(struct out *out, const fl_retry *retry)
{
    wire_put_number(out, retry->max_attempts);
    wire_put_number(out, retry->multiplier_1000);
    wire_put_number(out, retry->initial_us);
    wire_put_number(out, retry->max_interval_us);
    wire_put_number(out, retry->max_age_us);
}

static void read_retry(struct wire *wire, fl_retry *ret)
{
    ret->max_attempts = (uint32_t)wire_number(wire);
    ret->multiplier_1000 = (uint32_t)wire_number(wire);
    ret->initial_us = wire_number(wire);
    ret->max_interval_us = wire_number(wire);
    ret->max_age_us = wire_number(wire);
}

void wire_put_timer(struct out *out, const fl_durable *timer)
{
    wire_put_bytes(out, timer->ns);
    wire_put_bytes(out, timer->name);
    put_key(out, timer->id);
    wire_put_signed(out, timer->due_us);
    wire_put_signed(out, timer->created_us);
    wire_put_bytes(out, timer->payload);
    wire_put_bytes(out, timer->target);
    wire_put_bytes(out, timer->headers);
    wire_put_number(out, timer->timeout_us);
    put_retry(out, &timer->retry);
    wire_put_number(out, timer->attempt);
}

void wire_timer(struct wire *wire, fl_durable *ret)
{
    ret->ns = wire_bytes(wire);
    ret->name = wire_bytes(wire);
    ret->id = read_key(wire);
    ret->due_us = wire_signed(wire);
    ret->created_us = wire_signed(wire);
    ret->payload = wire_bytes(wire);
    ret->target = wire_bytes(wire);
    ret->headers = wire_bytes(wire);
    ret->timeout_us = wire_number(wire);
    read_retry(wire, &ret->retry);
    ret->attempt = (uint32_t)wire_number(wire);
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

static void put_cursor(struct out *out, const fl_cursor *cursor)
{
    for (int i = 0; i < 4; i++)
        wire_put_number(out, cursor->part[i]);
}

static void read_cursor(struct wire *wire, fl_cursor *ret)
{
    for (int i = 0; i < 4; i++)
        ret->part[i] = wire_number(wire);
}

void wire_put_listing(struct out *out, const fl_listing *listing)
{
    wire_put_number(out, listing->dead);
    wire_put_bytes(out, listing->ns);
    wire_put_bytes(out, listing->prefix);
    wire_put_signed(out, listing->from_us);
    wire_put_signed(out, listing->until_us);
    wire_put_number(out, listing->limit);
    put_cursor(out, &listing->cursor);
}

void wire_listing(struct wire *wire, fl_listing *ret)
{
    *ret = (fl_listing){.dead = wire_number(wire) != 0};
    ret->ns = wire_bytes(wire);
    ret->prefix = wire_bytes(wire);
    ret->from_us = wire_signed(wire);
    ret->until_us = wire_signed(wire);
    ret->limit = (size_t)wire_number(wire);
    read_cursor(wire, &ret->cursor);
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
    put_cursor(out, &listing->cursor);
}

void wire_found(struct wire *wire, fl_listing *listing, fl_op *room)
{
    listing->result = (int)wire_signed(wire);
    listing->count = wire_count(wire);
    if (listing->count > listing->limit) {
        wire->bad = true;
        listing->count = 0;
    }
    for (size_t i = 0; i < listing->count; i++) {
        room[i] = (fl_op){.died_us = wire_signed(wire)};
        room[i].reason = wire_bytes(wire);
        wire_timer(wire, &room[i].timer);
    }
    listing->found = room;
    listing->more = wire_number(wire) != 0;
    read_cursor(wire, &listing->cursor);
}
