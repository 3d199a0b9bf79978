/* SPDX-License-Identifier: MIT */
/* Timers as the JSON that users get. */

#include <string.h>

#include "api/timer.h"
#include "node/node.h"
#include "text/when.h"

static void write_debounce(struct out *out, const fl_durable *timer)
{
    if (timer->max_wait_us > 0) {
        out_key(out, "max_wait");
        out_duration(out, timer->max_wait_us);
    }
    if (timer->merge_first) {
        out_key(out, "merge");
        out_text(out, "\"first\"");
    }
    if (timer->replaced > 0) {
        out_key(out, "replaced");
        out_number(out, timer->replaced);
    }
}

static void write_headers(struct out *out, fl_bytes headers)
{
    const char *at = headers.data, *end = at + headers.size;
    out_key(out, "headers");
    out_put(out, "{", 1);
    for (bool first = true; at < end; first = false) {
        size_t name = strlen(at);
        if (!first)
            out_put(out, ",", 1);
        out_string(out, (fl_bytes){at, name});
        out_put(out, ":", 1);
        at += name + 1;
        size_t value = strlen(at);
        out_string(out, (fl_bytes){at, value});
        at += value + 1;
    }
    out_put(out, "}", 1);
}

static void write_payload(struct out *out, const fl_durable *timer, bool brief)
{
    if (brief) {
        out_key(out, "payload_bytes");
        out_number(out, timer_payload(timer).size);
        if (timer->payload.size > 0) {
            out_key(out, "payload_type");
            out_text(out, timer_is_binary(timer) ? "\"binary\"" : "\"json\"");
        }
    } else if (timer_is_binary(timer)) {
        out_key(out, "payload_base64");
        out_base64(out, timer_payload(timer));
    } else if (timer->payload.size > 0) {
        out_key(out, "payload");
        out_put(out, timer->payload.data, timer->payload.size);
    }
}

void timer_write_content(struct out *out, const fl_durable *timer, bool brief)
{
    if (timer->target.size > 0) {
        out_key(out, "target");
        out_string(out, timer->target);
    }
    write_payload(out, timer, brief);
    if (timer->headers.size > 0)
        write_headers(out, timer->headers);
    if (timer->timeout_us > 0) {
        out_key(out, "timeout");
        out_duration(out, timer->timeout_us);
    }
    if (timer->retry.initial_us > 0) {
        out_key(out, "retry");
        retry_write(out, &timer->retry);
    }
}

/* Of an occurrence of a schedule, and of a timer in civil time. */
void timer_write_origin(struct out *out, const fl_durable *timer)
{
    if (timer->schedule.size > 0) {
        out_key(out, "schedule");
        out_string(out, timer->schedule);
        out_key(out, "occurrence");
        out_time(out, timer->occurrence_us);
    }
    if (timer->local.size > 0) {
        out_key(out, "local");
        out_string(out, timer->local);
        out_key(out, "zone");
        out_string(out, timer->zone);
    }
}

void timer_write(struct out *out, uint32_t shard, const fl_durable *timer, bool brief)
{
    char id[FL_ID_TEXT + 1];
    fl_id_format(shard, timer->id, id);
    out_key(out, "id");
    out_string(out, (fl_bytes){id, FL_ID_TEXT});
    out_key(out, "namespace");
    out_string(out, timer->ns);
    if (timer->name.size > 0) {
        out_key(out, "name");
        out_string(out, timer->name);
    }
    out_key(out, "due");
    out_time(out, timer->due_us);
    timer_write_origin(out, timer);
    out_key(out, "created");
    out_time(out, timer->created_us);
    write_debounce(out, timer);
    out_key(out, "attempt");
    out_number(out, timer->attempt);
    timer_write_content(out, timer, brief);
}
