/* SPDX-License-Identifier: MIT */
/* Calls for the forecast of a shard: how many timers fall due when. */

#include "node/internal.h"

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

static void encode_forecast(struct out *out, const struct shard_call *call)
{
    const fl_forecast *forecast = &call->forecast;
    wire_put_number(out, call->shard->number);
    wire_put_bytes(out, forecast->ns);
    wire_put_number(out, forecast->first_byte);
    wire_put_signed(out, forecast->from_us);
    wire_put_number(out, forecast->step_us);
    wire_put_number(out, forecast->count);
}

static size_t room_for_bars(struct wire wire)
{
    (void)wire;
    return FL_FORECAST_BARS * sizeof(fl_forecast_bar);
}

static int decode_forecast(struct wire *wire, struct shard_call *call, void *room)
{
    fl_forecast *forecast = &call->forecast;
    shard_call_read(wire, call);
    *forecast = (fl_forecast){.ns = wire_bytes(wire), .bars = room};
    forecast->first_byte = (uint8_t)wire_number(wire);
    forecast->from_us = wire_signed(wire);
    forecast->step_us = wire_number(wire);
    forecast->count = wire_number(wire);
    return forecast->count <= FL_FORECAST_BARS ? 0 : FL_INVALID_ARGUMENT;
}

static void reply_forecast(struct out *out, const struct shard_call *call)
{
    const fl_forecast *forecast = &call->forecast;
    wire_put_signed(out, forecast->result);
    for (size_t i = 0; i < forecast->count; i++) {
        wire_put_number(out, forecast->bars[i].timers);
        wire_put_number(out, forecast->bars[i].spread);
    }
}

static bool take_reply_forecast(struct wire *wire, struct shard_call *call)
{
    fl_forecast *forecast = &call->forecast;
    forecast->result = (int)wire_signed(wire);
    for (size_t i = 0; i < forecast->count; i++) {
        forecast->bars[i].timers = wire_number(wire);
        forecast->bars[i].spread = wire_number(wire);
    }
    if (!wire->bad)
        call->render(call);
    return !wire->bad;
}

const struct call_ops call_ops_of_forecast = {
    .link_kind = LINK_FORECAST,
    .no_room = FL_NO_MEMORY,
    .place = shard_call_place,
    .run = run_forecast,
    .encode = encode_forecast,
    .room = room_for_bars,
    .decode = decode_forecast,
    .reply = reply_forecast,
    .take_reply = take_reply_forecast,
};
