/* SPDX-License-Identifier: MIT */
/* What an event says: the lines that every client gets, but for its number. */

#include "api/events.h"
#include "api/timer.h"

const char *const event_names[EVENT_KINDS] = {
    [EVENT_SCHEDULED] = "scheduled", [EVENT_FIRED] = "fired",         [EVENT_FAILED] = "failed",
    [EVENT_DEAD] = "dead",           [EVENT_CANCELLED] = "cancelled", [EVENT_SKIPPED] = "skipped",
    [EVENT_PAUSED] = "paused",       [EVENT_RESUMED] = "resumed",     [EVENT_MOVED] = "moved",
};

/* Its beginning and end are in the place of those of a timer. */
static void write_of_pause(struct out *text, enum event_kind kind, const fl_durable *pause, int64_t now_us)
{
    fl_bytes ns = pause->ns;
    out_format(text, "event: %s\ndata: {\"type\":\"%s\",\"at\":", event_names[kind], event_names[kind]);
    out_time(text, now_us);
    bool host = is_host_space(ns);
    out_key(text, host ? "host" : "namespace");
    out_string(text, (fl_bytes){(const char *)ns.data + host, ns.size - host});
    if (pause->created_us > 0) {
        out_key(text, "since");
        out_time(text, pause->created_us);
    }
    if (pause->due_us > 0) {
        out_key(text, "until");
        out_time(text, pause->due_us);
    }
}

static void write_of_timer(struct out *text, enum event_kind kind, uint32_t shard, const fl_durable *timer,
                           int64_t now_us)
{
    char id[FL_ID_TEXT + 1];
    bool of_schedule =
        timer->id.seq == 0; /* there is no timer: a run of occurrences was skipped, or a schedule has moved */
    out_format(text, "event: %s\ndata: {\"type\":\"%s\",\"at\":", event_names[kind], event_names[kind]);
    out_time(text, now_us);
    if (!of_schedule) {
        fl_id_format(shard, timer->id, id);
        out_format(text, ",\"id\":\"%s\"", id);
    }
    out_key(text, "namespace");
    out_string(text, timer->ns);
    if (timer->name.size > 0) {
        out_key(text, "name");
        out_string(text, timer->name);
    }
    out_key(text, "due");
    out_time(text, timer->due_us);
    timer_write_origin(text, timer);
    if (of_schedule && kind == EVENT_SKIPPED) {
        out_key(text, "count");
        out_number(text, timer->replaced);
    } else if (!of_schedule) {
        out_key(text, "attempt");
        out_number(text, timer->attempt);
    }
}

void event_write(struct out *text, enum event_kind kind, uint32_t shard, const fl_durable *timer, fl_bytes reason,
                 int64_t now_us)
{
    if (kind == EVENT_PAUSED || kind == EVENT_RESUMED)
        write_of_pause(text, kind, timer, now_us);
    else
        write_of_timer(text, kind, shard, timer, now_us);
    if (reason.size > 0) {
        out_key(text, "reason");
        out_string(text, reason);
    }
    out_text(text, "}\n\n");
}
