/* SPDX-License-Identifier: MIT */
/* /v1/schedules: create, read, change and delete schedules.
 *
 * A schedule is one row of its shard. Every request reads the row first. A change is written only if the row is still as it
 * was read (FL_OP_ONLY_REVISION), and begins again if not: so a change and an occurrence at the same moment neither repeat
 * nor lose an occurrence. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/schedules.h"

enum { TRIES = 50 };

/* --- Life ----------------------------------------------------------------------------------------------------------- */

static void forget_schedule(struct schedule_request *request)
{
    rule_free(request->rule);
    scratch_free(&request->scratch);
    free(request->except);
    free(request->stored);
    request->rule = NULL;
    request->scratch = (struct scratch){0};
    request->except = NULL;
    request->stored = NULL;
    request->schedule = (struct schedule){0};
}

struct call *schedule_request_end(struct schedule_request *request)
{
    struct call *call = request->call;
    forget_schedule(request);
    out_free(&request->written);
    if (request->ops != &request->one)
        free(request->ops);
    free(request);
    return call;
}

void schedule_refuse(struct schedule_request *request)
{
    call_refuse(schedule_request_end(request));
}

void schedule_refuse_result(struct schedule_request *request, int result)
{
    call_refuse_result(schedule_request_end(request), result);
}

struct schedule_request *schedule_request_new(struct call *call, schedule_row_fn then)
{
    struct schedule_request *request = calloc(1, sizeof *request);
    if (!request) {
        call_refuse_result(call, FL_NO_MEMORY);
        return NULL;
    }
    request->call = call;
    request->then = then;
    request->ops = &request->one;
    return request;
}

void schedule_not_found(struct schedule_request *request)
{
    problem_set(&request->call->problem, 404, "not-found", NULL, "the schedule does not exist");
    schedule_refuse(request);
}

/* --- The row -------------------------------------------------------------------------------------------------------- */

static void render(struct shard_call *call)
{
    struct schedule_request *request = (struct schedule_request *)call;
    const fl_op *op = &request->ops[0];
    request->result = op->result;
    request->outcome = op->outcome;
    request->id = request->ops[call->batch.count - 1].timer.id;
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

void schedule_submit(struct schedule_request *request, size_t count, void (*done)(struct shard_call *shard_call))
{
    struct call *call = request->call;
    request->shard_call =
        (struct shard_call){.kind = CALL_OPS, .errand.home = call->worker, .render = render, .done = done};
    request->shard_call.batch.ops = request->ops;
    request->shard_call.batch.count = count;
    request->shard_call.batch.atomic = count > 1;
    request->shard_call.shard = shard_of_name(call->worker->node, schedule_ns(call->ns, request->ns), call->name);
    shard_call_submit(&request->shard_call);
}

/* The rules of its zone may have changed since it was written. */
static void rezone(struct schedule_request *request)
{
    struct rule *rule = NULL;
    struct rule_error error;
    if (schedule_rule(&request->schedule, node_zones(request->call->worker->node), &rule, &error) == 0)
        schedule_rezone(&request->schedule, rule);
    rule_free(rule);
}

static void row_read(struct shard_call *call)
{
    struct schedule_request *request = (struct schedule_request *)call;
    bool found = request->result == 0;
    if (found) {
        int r = schedule_read((fl_bytes){request->stored, request->stored_size}, &request->schedule);
        if (r < 0) {
            schedule_refuse_result(request, r);
            return;
        }
        request->except = request->schedule.except;
        rezone(request);
    }
    if (!found && request->result != FL_TIMER_NOT_FOUND)
        schedule_refuse_result(request, request->result);
    else
        request->then(request, found);
}

void schedule_read_row(struct schedule_request *request)
{
    struct call *call = request->call;
    forget_schedule(request);
    request->one = (fl_op){.kind = FL_OP_GET, .timer = {.ns = schedule_ns(call->ns, request->ns), .name = call->name}};
    schedule_submit(request, 1, row_read);
}

static void read_again(fl_loop *loop, void *arg)
{
    (void)loop;
    schedule_read_row(arg);
}

/* Another request has changed the schedule, or it is creating an occurrence now. */
static void begin_again(struct schedule_request *request)
{
    forget_schedule(request);
    if (request->tries++ >= TRIES)
        schedule_refuse_result(request, FL_CAPACITY_EXCEEDED); /* others change it all the time */
    else if (fl_loop_timer(request->call->worker->loop, 2000000, read_again, request, &request->again) < 0)
        schedule_refuse_result(request, FL_NO_MEMORY);
}

static bool is_race(int result)
{
    return result == FL_CHANGED || result == FL_EXISTS || result == FL_BUSY;
}

/* --- Reading a body ------------------------------------------------------------------------------------------------- */

int schedule_read_body(struct schedule_request *request, bool *ret_only_paused)
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
    if (request->line.kind == JSON_OBJECT) {
        rules.allowed |= SCHEDULE_LINE;
        body = request->line;
    } else if (json_parse(call->request->body, &body, &at, &why) < 0) {
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    }
    return schedule_from_json(body, &rules, &request->scratch, &request->schedule, ret_only_paused, &call->problem);
}

int schedule_compile_rule(struct schedule_request *request)
{
    struct call *call = request->call;
    return schedule_compile(&request->schedule, node_zones(call->worker->node), &request->rule, &call->problem);
}

/* --- Writing -------------------------------------------------------------------------------------------------------- */

static void answer_schedule(struct schedule_request *request, int status)
{
    struct call *call = request->call;
    schedule_to_json(&call->out, &request->schedule, request->rule, request->call->part == PART_BRIEF);
    schedule_request_end(request);
    call_answer(call, status);
}

/* Forecasts that were made before are of no use any more. */
static void note_change(const struct schedule_request *request)
{
    if (request->result == 0)
        atomic_fetch_add(&api_of(request->call->worker)->schedule_changes, 1);
}

static void written(struct shard_call *call)
{
    struct schedule_request *request = (struct schedule_request *)call;
    note_change(request);
    if (is_race(request->result) || (request->result == FL_TIMER_NOT_FOUND && request->revision != 0))
        begin_again(request);
    else if (request->result < 0)
        schedule_refuse_result(request, request->result);
    else
        answer_schedule(request, request->revision == 0 ? 201 : 200);
}

/* Writes the row: a new one, or in place of the one that was read. */
static void write_row(struct schedule_request *request)
{
    struct call *call = request->call;
    struct schedule *s = &request->schedule;
    int64_t due_us = schedule_due_us(s, request->rule, node_now(call->worker->node));
    schedule_note_zone(s, request->rule);
    out_clear(&request->written);
    schedule_write(&request->written, s);
    if (request->written.failed) {
        schedule_refuse_result(request, FL_NO_MEMORY);
        return;
    }
    request->one = (fl_op){.kind = FL_OP_CREATE,
                           .flags = request->revision ? FL_OP_ONLY_REVISION : FL_OP_ONLY_NEW,
                           .timer = {.ns = schedule_ns(call->ns, request->ns),
                                     .name = call->name,
                                     .due_us = due_us,
                                     .revision = request->revision,
                                     .payload = out_bytes(&request->written)}};
    schedule_submit(request, 1, written);
}

/* --- PUT, PATCH ----------------------------------------------------------------------------------------------------- */

/* A namespace may have as many schedules as timers. */
static bool is_full(struct call *call)
{
    struct node *node = call->worker->node;
    struct space *space = space_of(node, call->ns);
    uint64_t most = node->config.max_timers_per_namespace;
    if (most == 0 || !space || (uint64_t)space_schedules(space) < most)
        return false;
    problem_set(&call->problem, 429, "namespace-full", NULL,
                "the namespace has %" PRIu64 " schedules, and max-timers-per-namespace allows no more", most);
    return true;
}

/* Puts the schedule of the body in place of the one that was read. Returns 0, or -1 and the call's problem. */
static int replace_schedule(struct schedule_request *request, bool found, int64_t now_us)
{
    struct schedule old = request->schedule;
    bool only_paused;
    request->schedule = schedule_heir(found ? &old : NULL, now_us);
    request->schedule.ns = request->call->ns;
    request->schedule.name = request->call->name;
    int r = schedule_read_body(request, &only_paused);
    r = r < 0 ? r : schedule_compile_rule(request);
    if (r == 0)
        schedule_changed(&request->schedule, found ? &old : NULL, now_us);
    return r;
}

static void put_with(struct schedule_request *request, bool found)
{
    struct call *call = request->call;
    int64_t now_us = node_now(call->worker->node);
    if (found && request->only_new) {
        problem_set(&call->problem, 412, "exists", NULL, "a schedule with this name exists");
        schedule_refuse(request);
        return;
    }
    if (!found && is_full(call)) {
        schedule_refuse(request);
        return;
    }
    if (!found)
        request->revision = 0;
    if (replace_schedule(request, found, now_us) < 0)
        schedule_refuse(request);
    else
        write_row(request);
}

void schedules_put(struct call *call)
{
    struct schedule_request *request = schedule_request_new(call, put_with);
    if (!request)
        return;
    request->only_new = http_header(call->request, "if-none-match").size > 0;
    schedule_read_row(request);
}

void schedule_put_line(struct call *call, struct json line, bool only_new)
{
    struct schedule_request *request = schedule_request_new(call, put_with);
    if (!request)
        return;
    request->line = line;
    request->only_new = only_new;
    schedule_read_row(request);
}

/* Changes the schedule that was read as the body says. Returns 0; 1: nothing is to be written; -1 and the call's problem. */
static int change_schedule(struct schedule_request *request)
{
    struct schedule *s = &request->schedule, old = *s;
    int64_t now_us = node_now(request->call->worker->node);
    bool only_paused = false;
    int r = schedule_read_body(request, &only_paused);
    r = r < 0 ? r : schedule_compile_rule(request);
    if (r == 0 && only_paused && s->paused == old.paused)
        return 1;
    if (r == 0)
        schedule_changed(s, &old, now_us);
    return r;
}

static void patch_with(struct schedule_request *request, bool found)
{
    if (!found) {
        schedule_not_found(request);
        return;
    }
    int r = change_schedule(request);
    if (r < 0)
        schedule_refuse(request);
    else if (r > 0)
        answer_schedule(request, 200);
    else
        write_row(request);
}

void schedules_patch(struct call *call)
{
    struct schedule_request *request = schedule_request_new(call, patch_with);
    if (request)
        schedule_read_row(request);
}

/* --- GET, DELETE ---------------------------------------------------------------------------------------------------- */

static void get_with(struct schedule_request *request, bool found)
{
    struct rule_error error;
    if (!found) {
        schedule_not_found(request);
        return;
    }
    schedule_rule(&request->schedule, node_zones(request->call->worker->node), &request->rule, &error);
    answer_schedule(request, 200);
}

void schedules_get(struct call *call)
{
    struct schedule_request *request = schedule_request_new(call, get_with);
    if (request)
        schedule_read_row(request);
}

static void deleted(struct shard_call *call)
{
    struct schedule_request *request = (struct schedule_request *)call;
    note_change(request);
    if (is_race(request->result))
        begin_again(request);
    else if (request->result == FL_TIMER_NOT_FOUND)
        schedule_not_found(request);
    else if (request->result < 0)
        schedule_refuse_result(request, request->result);
    else
        call_answer(schedule_request_end(request), 204);
}

static void delete_with(struct schedule_request *request, bool found)
{
    struct call *call = request->call;
    if (!found) {
        schedule_not_found(request);
        return;
    }
    request->one =
        (fl_op){.kind = FL_OP_CANCEL,
                .flags = FL_OP_ONLY_REVISION,
                .timer = {.ns = schedule_ns(call->ns, request->ns), .name = call->name, .revision = request->revision}};
    schedule_submit(request, 1, deleted);
}

void schedules_delete(struct call *call)
{
    struct schedule_request *request = schedule_request_new(call, delete_with);
    if (request)
        schedule_read_row(request);
}
