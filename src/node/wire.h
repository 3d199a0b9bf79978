/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_WIRE_H
#define FOLIOT_SERVER_WIRE_H

/* How operations and pages are written for another server: numbers seven bits a byte, the least significant first; bytes with
 * their length before them. What is read points into what came. A later version may add to the end of a message, and what is
 * left over is not looked at. */

#include <foliot/engine.h>

#include "text/out.h"

struct wire {
    const unsigned char *at, *end;
    bool bad; /* it ended too early, or made no sense: what was read since is zero */
};

static inline struct wire wire_begin(fl_bytes bytes)
{
    const unsigned char *at = bytes.data;
    return (struct wire){at, at + bytes.size, false};
}

void wire_put_number(struct out *out, uint64_t number);
void wire_put_signed(struct out *out, int64_t number);
void wire_put_bytes(struct out *out, fl_bytes bytes);
uint64_t wire_number(struct wire *wire);
int64_t wire_signed(struct wire *wire);
fl_bytes wire_bytes(struct wire *wire);
/* How many things follow, of which each takes at least a byte. */
size_t wire_count(struct wire *wire);

/* The members of a structure that are sent, in their order: listed once, for writing and for reading. */
enum wire_kind { WIRE_NUMBER_64, WIRE_NUMBER_32, WIRE_NUMBER_8, WIRE_SIGNED_64, WIRE_INT, WIRE_FLAG, WIRE_BYTES };
struct wire_record {
    const struct wire_member {
        enum wire_kind kind;
        size_t at; /* in the structure */
    } * members;
    size_t count;
};
extern const struct wire_record wire_of_timer, wire_of_listing, wire_of_history, wire_of_erasure, wire_of_erased,
    wire_of_forecast, wire_of_forecast_result, wire_of_forecast_bar;
void wire_put(struct out *out, const struct wire_record *record, const void *from);
void wire_read(struct wire *wire, const struct wire_record *record, void *to);

static inline void wire_put_timer(struct out *out, const fl_durable *timer)
{
    wire_put(out, &wire_of_timer, timer);
}

static inline void wire_timer(struct wire *wire, fl_durable *ret)
{
    wire_read(wire, &wire_of_timer, ret);
}

/* An operation, and its answer; `brief`: of a timer that is there, its ID only. */
void wire_put_op(struct out *out, const fl_op *op);
void wire_op(struct wire *wire, fl_op *ret);
void wire_put_answer(struct out *out, const fl_op *op, bool brief);
void wire_answer(struct wire *wire, fl_op *op, bool brief);

/* The answer to a page, of timers or of history; what was found goes to `room`, which has listing->limit places. The cursor stays
 * as it was if the answer is bad. */
void wire_put_found(struct out *out, const fl_listing *listing);
void wire_found(struct wire *wire, fl_listing *listing, fl_op *room);
void wire_put_history_found(struct out *out, const fl_history_listing *listing);
void wire_history_found(struct wire *wire, fl_history_listing *listing, fl_history_row *room);

#endif
