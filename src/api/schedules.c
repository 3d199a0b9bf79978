/* SPDX-License-Identifier: MIT */
/* /v1/schedules: create, read, change and delete schedules; previews, trigger, backfill.
 *
 * A schedule is one row of its shard. Every request reads the row first. A change is written only if the row is still as it was
 * read (FL_OP_ONLY_REVISION), and begins again if not: so a change and an occurrence at the same moment neither repeat nor lose an
 * occurrence. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/schedule.h"
#include "text/when.h"

enum { TRIES = 50, BACKFILL_MOST = 10000, BACKFILL_BATCH = 1000, PREVIEW_MOST = 1000, PREVIEW = 10 };

struct request;

/* What a request does with the row, at home. `found` is false if there is none. */
typedef void (*row_fn)(struct request *request, bool found);

struct request {
    struct shard_call job;
    struct call *call;
    row_fn then;
    fl_op *ops; /* `one`, or many */
    fl_op one;
    int result;
    enum fl_outcome outcome;
    uint64_t revision;
    int tries;
    char *stored; /* a copy of the row's payload, which `schedule` points into */
    size_t stored_size;
    struct schedule schedule;
    struct rule *rule;
    struct scratch scratch;
    struct out written;
    fl_timer_id again;
    int64_t from_us, to_us, n;
    uint64_t made;
    fl_key id;
    char ns[SCHEDULE_NS_ROOM];
};

/* --- Life ----------------------------------------------------------------------------------------------------------- */

static void forget_schedule(struct request *request)
{
    if (request->stored)
        schedule_free(&request->schedule);
    rule_free(request->rule);
    scratch_free(&request->scratch);
    free(request->stored);
    request->rule = NULL;
    request->scratch = (struct scratch){0};
    request->stored = NULL;
    request->schedule = (struct schedule){0};
}

static struct call *request_end(struct request *request)
{
    struct call *call = request->call;
    forget_schedule(request);
    out_free(&request->written);
    if (request->ops != &request->one)
        free(request->ops);
    free(request);
    return call;
}

static void refuse(struct request *request)
{
    call_refuse(request_end(request));
}

static void refuse_result(struct request *request, int result)
{
    call_refuse_result(request_end(request), result);
}

static struct request *request_new(struct call *call, row_fn then)
{
    struct request *request = calloc(1, sizeof *request);
    if (!request) {
        call_refuse_result(call, FL_NO_MEMORY);
        return NULL;
    }
    request->call = call;
    request->then = then;
    request->ops = &request->one;
    return request;
}

static void not_found(struct request *request)
{
    problem_set(&request->call->problem, 404, "not-found", NULL, "the schedule does not exist");
    refuse(request);
}

/* --- The row -------------------------------------------------------------------------------------------------------- */

static void render(struct shard_call *job)
{
    struct request *request = (struct request *)job;
    const fl_op *op = &request->ops[0];
    request->result = op->result;
    request->outcome = op->outcome;
    request->id = request->ops[job->batch.count - 1].timer.id;
    if (op->result < 0 || op->kind != FL_OP_GET)
        return;
    request->revision = op->timer.revision;
    request->stored = malloc(op->timer.payload.size + 1);
    request->stored_size = op->timer.payload.size;
    if (request->stored)
        memcpy(request->stored, op->timer.payload.data, op->timer.payload.size);
    else
        request->result = FL_NO_MEMORY;
}

static void submit(struct request *request, size_t count, void (*done)(struct shard_call *job))
{
    struct call *call = request->call;
    request->job = (struct shard_call){.kind = CALL_OPS, .errand.home = call->worker, .render = render, .done = done};
    request->job.batch.ops = request->ops;
    request->job.batch.count = count;
    request->job.batch.atomic = count > 1;
    request->job.shard = shard_of_name(call->worker->node, schedule_ns(call->ns, request->ns), call->name);
    shard_call_submit(&request->job);
}

/* The rules of its zone may have changed since it was written. */
static void rezone(struct request *request)
{
    struct rule *rule = NULL;
    struct rule_error error;
    if (schedule_rule(&request->schedule, node_zones(request->call->worker->node), &rule, &error) == 0)
        schedule_rezone(&request->schedule, rule);
    rule_free(rule);
}

static void row_read(struct shard_call *job)
{
    struct request *request = (struct request *)job;
    bool found = request->result == 0;
    if (found) {
        int r = schedule_read((fl_bytes){request->stored, request->stored_size}, &request->schedule);
        if (r < 0) {
            free(request->stored);
            request->stored = NULL;
            refuse_result(request, r);
            return;
        }
        rezone(request);
    }
    if (!found && request->result != FL_TIMER_NOT_FOUND)
        refuse_result(request, request->result);
    else
        request->then(request, found);
}

static void read_row(struct request *request)
{
    struct call *call = request->call;
    forget_schedule(request);
    request->one = (fl_op){.kind = FL_OP_GET, .timer = {.ns = schedule_ns(call->ns, request->ns), .name = call->name}};
    submit(request, 1, row_read);
}

static void read_again(fl_loop *loop, void *arg)
{
    (void)loop;
    read_row(arg);
}

/* Somebody else has changed it, or it is creating an occurrence right now. */
static void begin_again(struct request *request)
{
    forget_schedule(request);
    if (request->tries++ >= TRIES)
        refuse_result(request, FL_CAPACITY_EXCEEDED); /* others change it all the time */
    else if (fl_loop_timer(request->call->worker->loop, 2000000, read_again, request, &request->again) < 0)
        refuse_result(request, FL_NO_MEMORY);
}

static bool is_race(int result)
{
    return result == FL_CHANGED || result == FL_EXISTS || result == FL_BUSY;
}

/* --- Reading a body ------------------------------------------------------------------------------------------------- */

static int read_body(struct request *request, bool *ret_only_paused)
{
    struct call *call = request->call;
    const struct api *api = api_of(call->worker);
    struct json body;
    size_t at;
    const char *why;
    struct timer_rules rules = {.allowed = GAVE_CONTENT,
                                .now_us = node_now(call->worker->node),
                                .allow_private = api->config.allow_private_targets,
                                .own = api->own_targets,
                                .max_payload = api->config.max_payload};
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    return schedule_from_json(body, &rules, &request->scratch, &request->schedule, ret_only_paused, &call->problem);
}

static int compile(struct request *request)
{
    struct call *call = request->call;
    return schedule_compile(&request->schedule, node_zones(call->worker->node), &request->rule, &call->problem);
}

/* --- Writing -------------------------------------------------------------------------------------------------------- */

static void answer_schedule(struct request *request, int status)
{
    struct call *call = request->call;
    schedule_to_json(&call->out, &request->schedule, request->rule, request->call->part == PART_BRIEF);
    request_end(request);
    call_answer(call, status);
}

static void written(struct shard_call *job)
{
    struct request *request = (struct request *)job;
    if (is_race(request->result) || (request->result == FL_TIMER_NOT_FOUND && request->revision != 0))
        begin_again(request);
    else if (request->result < 0)
        refuse_result(request, request->result);
    else
        answer_schedule(request, request->revision == 0 ? 201 : 200);
}

/* Writes the row: a new one, or in place of the one that was read. */
static void write_row(struct request *request)
{
    struct call *call = request->call;
    struct occurrence next;
    struct schedule *s = &request->schedule;
    bool has_next = schedule_next(s, request->rule, &next) && next.at_us < FL_TIME_NEVER_US;
    int64_t due_us = has_next ? next.at_us : FL_TIME_NEVER_US;
    if (s->queued_us != 0)
        due_us = node_now(call->worker->node);
    schedule_note_zone(s, request->rule);
    out_clear(&request->written);
    schedule_write(&request->written, s);
    if (request->written.failed) {
        refuse_result(request, FL_NO_MEMORY);
        return;
    }
    request->one = (fl_op){.kind = FL_OP_CREATE,
                           .flags = request->revision ? FL_OP_ONLY_REVISION : FL_OP_ONLY_NEW,
                           .timer = {.ns = schedule_ns(call->ns, request->ns),
                                     .name = call->name,
                                     .due_us = due_us,
                                     .revision = request->revision,
                                     .payload = out_bytes(&request->written)}};
    submit(request, 1, written);
}

/* --- PUT, PATCH ----------------------------------------------------------------------------------------------------- */

/* What goes on when a schedule is replaced: it keeps its beginning, so that the same PUT again does not shift it. */
static struct schedule heir_of(const struct schedule *old, bool found, int64_t now_us)
{
    struct schedule s = {.created_us = found ? old->created_us : now_us, .cursor_us = now_us};
    if (found) {
        s.cursor_us = old->cursor_us > now_us ? old->cursor_us : now_us;
        s.last_us = old->last_us;
        s.queued_us = old->queued_us;
        s.unsettled_count = old->unsettled_count;
        memcpy(s.unsettled, old->unsettled, sizeof s.unsettled);
    }
    return s;
}

static void put_with(struct request *request, bool found)
{
    struct call *call = request->call;
    int64_t now_us = node_now(call->worker->node);
    bool only_paused;
    if (found && http_header(call->request, "if-none-match").size > 0) {
        problem_set(&call->problem, 412, "exists", NULL, "a schedule with this name exists");
        refuse(request);
        return;
    }
    struct schedule heir = heir_of(&request->schedule, found, now_us);
    forget_schedule(request);
    request->schedule = heir;
    request->schedule.ns = call->ns;
    request->schedule.name = call->name;
    if (!found)
        request->revision = 0;
    if (read_body(request, &only_paused) < 0 || compile(request) < 0) {
        refuse(request);
        return;
    }
    schedule_changed(&request->schedule, now_us);
    write_row(request);
}

void schedules_put(struct call *call)
{
    struct request *request = request_new(call, put_with);
    if (request)
        read_row(request);
}

static void patch_with(struct request *request, bool found)
{
    bool only_paused = false, was_paused = request->schedule.paused;
    int64_t now_us = node_now(request->call->worker->node);
    if (!found) {
        not_found(request);
        return;
    }
    fl_bytes *except = request->schedule.except;
    int r = read_body(request, &only_paused);
    if (request->schedule.except != except) {
        free(except); /* the new ones are in the scratch */
        except = NULL;
    }
    r = r < 0 ? r : compile(request);
    /* Lifting a pause is the one change after which what was missed counts. */
    if (r == 0 && !(only_paused && was_paused && !request->schedule.paused))
        schedule_changed(&request->schedule, now_us);
    if (r < 0) {
        if (!except)
            request->schedule.except = NULL;
        refuse(request);
        return;
    }
    if (!except) { /* a copy that is freed with the schedule */
        size_t size = request->schedule.except_count * sizeof *request->schedule.except;
        fl_bytes *copy = size ? malloc(size) : NULL;
        if (size && !copy) {
            request->schedule.except = NULL;
            refuse_result(request, FL_NO_MEMORY);
            return;
        }
        if (copy && request->schedule.except)
            memcpy(copy, request->schedule.except, size);
        request->schedule.except = copy;
    }
    write_row(request);
}

void schedules_patch(struct call *call)
{
    struct request *request = request_new(call, patch_with);
    if (request)
        read_row(request);
}

/* --- GET, DELETE ---------------------------------------------------------------------------------------------------- */

static void get_with(struct request *request, bool found)
{
    struct rule_error error;
    if (!found) {
        not_found(request);
        return;
    }
    schedule_rule(&request->schedule, node_zones(request->call->worker->node), &request->rule, &error);
    answer_schedule(request, 200);
}

void schedules_get(struct call *call)
{
    struct request *request = request_new(call, get_with);
    if (request)
        read_row(request);
}

static void deleted(struct shard_call *job)
{
    struct request *request = (struct request *)job;
    if (is_race(request->result))
        begin_again(request);
    else if (request->result == FL_TIMER_NOT_FOUND)
        not_found(request);
    else if (request->result < 0)
        refuse_result(request, request->result);
    else
        call_answer(request_end(request), 204);
}

static void delete_with(struct request *request, bool found)
{
    struct call *call = request->call;
    if (!found) {
        not_found(request);
        return;
    }
    request->one =
        (fl_op){.kind = FL_OP_CANCEL,
                .flags = FL_OP_ONLY_REVISION,
                .timer = {.ns = schedule_ns(call->ns, request->ns), .name = call->name, .revision = request->revision}};
    submit(request, 1, deleted);
}

void schedules_delete(struct call *call)
{
    struct request *request = request_new(call, delete_with);
    if (request)
        read_row(request);
}

/* --- Previews ------------------------------------------------------------------------------------------------------- */

static int read_number(struct call *call, const char *name, int64_t most, int64_t *ret)
{
    char room[16];
    fl_bytes text;
    int given = call_query(call, name, room, sizeof room - 1, &text);
    if (given <= 0)
        return given;
    if (json_integer((struct json){JSON_NUMBER, text}, ret) && *ret >= 1 && *ret <= most)
        return 0;
    return problem_set(&call->problem, 400, "invalid-field", name, "%s must be a whole number from 1 to %" PRId64, name,
                       most);
}

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

/* The count that is left; a pause does not matter. */
static void write_preview(struct out *out, const struct schedule *s, const struct rule *rule, int64_t from_us,
                          int64_t n)
{
    uint64_t left = s->count == 0 ? UINT64_MAX : s->count > s->made ? s->count - s->made : 0;
    struct occurrence found;
    out_text(out, "{\"occurrences\":[");
    for (int64_t i = 0; i < n && left > 0 && rule_next(rule, from_us, &found); i++, left--) {
        if (i > 0)
            out_put(out, ",", 1);
        write_occurrence(out, &found);
        from_us = found.at_us;
    }
    out_text(out, "]}");
}

static int read_preview(struct call *call, int64_t *ret_n, int64_t *ret_from_us)
{
    *ret_n = PREVIEW;
    return read_number(call, "n", PREVIEW_MOST, ret_n) < 0 || read_from(call, ret_from_us) < 0 ? -1 : 0;
}

static void preview_with(struct request *request, bool found)
{
    struct call *call = request->call;
    if (!found) {
        not_found(request);
        return;
    }
    if (compile(request) < 0) {
        refuse(request);
        return;
    }
    write_preview(&call->out, &request->schedule, request->rule, request->from_us, request->n);
    request_end(request);
    call_answer(call, 200);
}

void schedules_preview(struct call *call)
{
    static const char *const known[] = {"n", "from", NULL};
    struct request *request = request_new(call, preview_with);
    if (!request)
        return;
    if (call_check_query(call, known) < 0 || read_preview(call, &request->n, &request->from_us) < 0)
        refuse(request);
    else
        read_row(request);
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
    struct request *request = request_new(call, NULL);
    char ns[256], name[256];
    int64_t n, from_us;
    bool only_paused;
    if (!request)
        return;
    struct schedule *s = &request->schedule;
    s->created_us = node_now(call->worker->node);
    if (call_check_query(call, known) < 0 || read_name(call, "namespace", ns, &s->ns) < 0 ||
        read_name(call, "name", name, &s->name) < 0 || read_preview(call, &n, &from_us) < 0 ||
        read_body(request, &only_paused) < 0 || compile(request) < 0) {
        refuse(request);
        return;
    }
    write_preview(&call->out, s, request->rule, from_us, n);
    request_end(request);
    call_answer(call, 200);
}

/* --- Trigger and backfill ------------------------------------------------------------------------------------------- */

static void triggered(struct shard_call *job)
{
    struct request *request = (struct request *)job;
    struct call *call = request->call;
    char id[FL_ID_TEXT + 1];
    if (request->result < 0) {
        refuse_result(request, request->result);
        return;
    }
    fl_id_format(job->shard->number, request->id, id);
    out_format(&call->out, "{\"id\":\"%s\"}", id);
    request_end(request);
    call_answer(call, 202);
}

static void trigger_with(struct request *request, bool found)
{
    struct call *call = request->call;
    struct rule_error error;
    int64_t now_us = node_now(call->worker->node);
    if (!found) {
        not_found(request);
        return;
    }
    int r = schedule_rule(&request->schedule, node_zones(call->worker->node), &request->rule, &error);
    if (r < 0) {
        refuse_result(request, r);
        return;
    }
    request->one = (fl_op){.kind = FL_OP_CREATE};
    schedule_timer(&request->schedule, request->rule, now_us, &request->one.timer);
    request->one.timer.due_us = now_us;
    submit(request, 1, triggered);
}

void schedules_trigger(struct call *call)
{
    struct request *request = request_new(call, trigger_with);
    if (request)
        read_row(request);
}

static int read_span(struct request *request)
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
        if (!good)
            return problem_set(&call->problem, 400, "invalid-field", names[i],
                               "%s must be a time like \"2030-01-31T09:00:00+01:00\" or milliseconds since 1970",
                               names[i]);
    }
    if (given != 3)
        return problem_set(&call->problem, 400, "missing-field", given & 1 ? "to" : "from", "%s is missing",
                           given & 1 ? "to" : "from");
    if (request->to_us > node_now(call->worker->node))
        return problem_set(&call->problem, 400, "invalid-field", "to", "to must not be in the future");
    return 0;
}

static void backfill_go_on(struct request *request);

static void backfilled(struct shard_call *job)
{
    struct request *request = (struct request *)job;
    if (request->result < 0) {
        refuse_result(request, request->result);
        return;
    }
    request->made += job->batch.count;
    backfill_go_on(request);
}

static void backfill_go_on(struct request *request)
{
    struct call *call = request->call;
    struct occurrence next;
    size_t count = 0;
    while (count < BACKFILL_BATCH && rule_next(request->rule, request->from_us - 1, &next) &&
           next.at_us < request->to_us) {
        request->ops[count] = (fl_op){.kind = FL_OP_CREATE};
        schedule_timer(&request->schedule, request->rule, next.at_us, &request->ops[count++].timer);
        request->from_us = next.at_us + 1;
    }
    if (count > 0) {
        submit(request, count, backfilled);
        return;
    }
    out_format(&call->out, "{\"made\":%" PRIu64 "}", request->made);
    request_end(request);
    call_answer(call, 202);
}

static void backfill_with(struct request *request, bool found)
{
    struct call *call = request->call;
    if (!found) {
        not_found(request);
        return;
    }
    if (read_span(request) < 0 || compile(request) < 0) {
        refuse(request);
        return;
    }
    uint64_t count =
        request->to_us > request->from_us ? rule_count(request->rule, request->from_us - 1, request->to_us - 1) : 0;
    if (count > BACKFILL_MOST) {
        problem_set(&call->problem, 400, "invalid-field", "from",
                    "there are %" PRIu64
                    " occurrences from from to to; at most %d are created at a time: choose a shorter span",
                    count, BACKFILL_MOST);
        refuse(request);
        return;
    }
    request->ops = malloc(BACKFILL_BATCH * sizeof *request->ops);
    if (!request->ops) {
        request->ops = &request->one;
        refuse_result(request, FL_NO_MEMORY);
        return;
    }
    backfill_go_on(request);
}

void schedules_backfill(struct call *call)
{
    struct request *request = request_new(call, backfill_with);
    if (request)
        read_row(request);
}
