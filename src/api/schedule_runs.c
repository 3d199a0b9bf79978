/* SPDX-License-Identifier: MIT */
/* What a schedule would create and what it creates on request: previews, trigger, backfill. */

#include <inttypes.h>
#include <stdlib.h>

#include "api/schedules.h"
#include "text/when.h"

enum { BACKFILL_MOST = 10000, BACKFILL_BATCH = 1000, PREVIEW_MOST = 1000, PREVIEW = 10 };

/* --- Previews ------------------------------------------------------------------------------------------------------- */

static int read_from(struct call *call, int64_t *ret)
{
    *ret = node_now(call->worker->node);
    return call_time(call, "from", ret);
}

static void write_occurrence(struct out *out, const struct occurrence *occurrence)
{
    out_text(out, "{\"at\":");
    out_time(out, occurrence->at_us);
    out_text(out, ",\"local\":");
    write_local(out, occurrence);
    if (occurrence->dst != RULE_PLAIN)
        out_format(out, ",\"dst\":\"%s\"", occurrence->dst == RULE_GAP ? "gap" : "repeat");
    out_put(out, "}", 1);
}

/* How many occurrences after `from_us` the count allows, if it allows `left` after `since_us`. */
static uint64_t allowed_after(const struct rule *rule, uint64_t left, int64_t since_us, int64_t from_us)
{
    uint64_t between = from_us > since_us   ? rule_count(rule, since_us, from_us)
                       : from_us < since_us ? rule_count(rule, from_us, since_us)
                                            : 0;
    if (from_us < since_us)
        return left > UINT64_MAX - between ? UINT64_MAX : left + between;
    return left > between ? left - between : 0;
}

/* What the count leaves is for occurrences after `since_us`. A pause does not matter. */
static void write_preview(struct schedule_request *request, int64_t since_us)
{
    struct out *out = &request->call->out;
    const struct schedule *s = &request->schedule;
    uint64_t made = s->made + (s->queued_us != 0), left = s->count > made ? s->count - made : 0;
    int64_t from_us = request->from_us;
    struct occurrence found;
    left = s->count == 0 ? UINT64_MAX : allowed_after(request->rule, left, since_us, from_us);
    out_text(out, "{\"occurrences\":[");
    for (uint64_t i = 0; i < request->n && left > 0 && rule_next(request->rule, from_us, &found); i++, left--) {
        if (i > 0)
            out_put(out, ",", 1);
        write_occurrence(out, &found);
        from_us = found.at_us;
    }
    out_text(out, "]}");
    call_answer(schedule_request_end(request), 200);
}

static int read_preview(struct call *call, uint64_t *ret_n, int64_t *ret_from_us)
{
    *ret_n = PREVIEW;
    return call_count(call, "n", PREVIEW_MOST, ret_n) < 0 || read_from(call, ret_from_us) < 0 ? -1 : 0;
}

static void preview_with(struct schedule_request *request, bool found)
{
    struct call *call = request->call;
    if (!found) {
        schedule_not_found(request);
        return;
    }
    if (schedule_compile_rule(request) < 0) {
        schedule_refuse(request);
        return;
    }
    int64_t now_us = node_now(call->worker->node), cursor_us = request->schedule.cursor_us;
    write_preview(request, cursor_us > now_us ? cursor_us : now_us);
}

void schedules_preview(struct call *call)
{
    static const char *const known[] = {"n", "from", NULL};
    struct schedule_request *request = schedule_request_new(call, preview_with);
    if (!request)
        return;
    if (call_check_query(call, known) < 0 || read_preview(call, &request->n, &request->from_us) < 0)
        schedule_refuse(request);
    else
        schedule_read_row(request);
}

static int read_name(struct call *call, const char *field, char room[256], fl_bytes *ret)
{
    int given = call_query(call, field, room, 255, ret);
    if (given <= 0)
        return given;
    if (name_is_good(*ret))
        return 0;
    return problem_set(&call->problem, 400, "invalid-field", field,
                       "%s must be 1 to 255 bytes of UTF-8 without control characters", field);
}

/* Of a schedule that is not saved: the body has its members. */
void schedules_preview_unsaved(struct call *call)
{
    static const char *const known[] = {"n", "from", "namespace", "name", NULL};
    struct schedule_request *request = schedule_request_new(call, NULL);
    char ns[256], name[256];
    int64_t now_us = node_now(call->worker->node);
    bool only_paused;
    if (!request)
        return;
    struct schedule *s = &request->schedule;
    s->created_us = now_us;
    if (call_check_query(call, known) < 0 || read_name(call, "namespace", ns, &s->ns) < 0 ||
        read_name(call, "name", name, &s->name) < 0 || read_preview(call, &request->n, &request->from_us) < 0 ||
        schedule_read_body(request, &only_paused) < 0 || schedule_compile_rule(request) < 0) {
        schedule_refuse(request);
        return;
    }
    write_preview(request, request->from_us < now_us ? request->from_us : now_us);
}

/* --- Trigger and backfill ------------------------------------------------------------------------------------------- */

static void triggered(struct shard_call *shard_call)
{
    struct schedule_request *request = (struct schedule_request *)shard_call;
    struct call *call = request->call;
    char id[FL_ID_TEXT + 1];
    if (request->result < 0) {
        schedule_refuse_result(request, request->result);
        return;
    }
    fl_id_format(shard_call->shard->number, request->id, id);
    out_format(&call->out, "{\"id\":\"%s\"}", id);
    schedule_request_end(request);
    call_answer(call, 202);
}

static void trigger_with(struct schedule_request *request, bool found)
{
    struct call *call = request->call;
    int64_t now_us = node_now(call->worker->node);
    if (!found) {
        schedule_not_found(request);
        return;
    }
    if (schedule_compile_rule(request) < 0) {
        schedule_refuse(request);
        return;
    }
    request->one = (fl_op){.kind = FL_OP_CREATE};
    schedule_occurrence(call->worker->node, &request->schedule, request->rule, now_us, &request->one.timer);
    request->one.timer.due_us = now_us;
    schedule_submit(request, 1, triggered);
}

void schedules_trigger(struct call *call)
{
    if (call_no_fields(call) < 0)
        return;
    struct schedule_request *request = schedule_request_new(call, trigger_with);
    if (request)
        schedule_read_row(request);
}

static int read_span(struct schedule_request *request)
{
    struct call *call = request->call;
    struct json body, key, value;
    size_t at;
    const char *why;
    int64_t *const times[] = {&request->from_us, &request->to_us};
    static const char *const names[] = {"from", "to", NULL};
    unsigned given = 0;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    if (body.kind != JSON_OBJECT)
        return problem_set(&call->problem, 400, "invalid-body", NULL,
                           "the body must be {\"from\": TIME, \"to\": TIME}");
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value);) {
        char room[64];
        int i = problem_member(&call->problem, NULL, names, key, &given);
        if (i < 0)
            return -1;
        bool good = value.kind == JSON_NUMBER ? json_milliseconds(value, times[i])
                                              : value.kind == JSON_STRING && value.text.size <= sizeof room &&
                                                    when_parse(json_string(value, room), times[i]) == 0;
        if (!good || *times[i] < WHEN_PLAUSIBLE_US)
            return problem_set(&call->problem, 400, "invalid-field", names[i],
                               "%s must be a time like \"2030-01-31T09:00:00+01:00\" or milliseconds since 1970, not "
                               "before 2001",
                               names[i]);
    }
    if (given != 3)
        return problem_set(&call->problem, 400, "missing-field", given & 1 ? "to" : "from", "%s is missing",
                           given & 1 ? "to" : "from");
    if (request->to_us < request->from_us)
        return problem_set(&call->problem, 400, "invalid-field", "to", "to must not be before from");
    if (request->to_us > node_now(call->worker->node))
        return problem_set(&call->problem, 400, "invalid-field", "to", "to must not be in the future");
    return 0;
}

static void backfill_go_on(struct schedule_request *request);

static void backfilled(struct shard_call *call)
{
    struct schedule_request *request = (struct schedule_request *)call;
    if (request->result < 0) {
        schedule_refuse_result(request, request->result);
        return;
    }
    request->made += call->batch.count;
    backfill_go_on(request);
}

static void backfill_go_on(struct schedule_request *request)
{
    struct call *call = request->call;
    struct occurrence next;
    size_t count = 0;
    while (count < BACKFILL_BATCH && rule_next(request->rule, request->from_us - 1, &next) &&
           next.at_us < request->to_us) {
        request->ops[count] = (fl_op){.kind = FL_OP_CREATE};
        schedule_occurrence(call->worker->node, &request->schedule, request->rule, next.at_us,
                            &request->ops[count++].timer);
        request->from_us = next.at_us + 1;
    }
    if (count > 0) {
        schedule_submit(request, count, backfilled);
        return;
    }
    out_format(&call->out, "{\"made\":%" PRIu64 "}", request->made);
    schedule_request_end(request);
    call_answer(call, 202);
}

static void backfill_with(struct schedule_request *request, bool found)
{
    struct call *call = request->call;
    if (!found) {
        schedule_not_found(request);
        return;
    }
    if (read_span(request) < 0 || schedule_compile_rule(request) < 0) {
        schedule_refuse(request);
        return;
    }
    uint64_t count =
        request->to_us > request->from_us ? rule_count(request->rule, request->from_us - 1, request->to_us - 1) : 0;
    if (count > BACKFILL_MOST) {
        problem_set(&call->problem, 400, "invalid-field", "from",
                    "there are %" PRIu64
                    " occurrences from from to to; at most %d are created at a time: choose a shorter span",
                    count, BACKFILL_MOST);
        schedule_refuse(request);
        return;
    }
    request->ops = malloc(BACKFILL_BATCH * sizeof *request->ops);
    if (!request->ops) {
        request->ops = &request->one;
        schedule_refuse_result(request, FL_NO_MEMORY);
        return;
    }
    backfill_go_on(request);
}

void schedules_backfill(struct call *call)
{
    struct schedule_request *request = schedule_request_new(call, backfill_with);
    if (request)
        schedule_read_row(request);
}
