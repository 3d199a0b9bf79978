/* SPDX-License-Identifier: MIT */
/* One timer: create, get, change, cancel. Each request is one operation on one shard; the answer is written on the shard's
 * worker, where what was found lies. */

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/timer.h"
#include "base/assert.h"
#include "text/json.h"

enum { SHARDS_TRIED = 3 }; /* by a timer without a name */

struct single {
    struct shard_call shard_call;
    fl_op op;
    struct call *call;
    struct space *place; /* see timers_complete() */
    struct scratch scratch;
    bool by_id;     /* by ID first, and by name if there is no such ID */
    unsigned tries; /* other shards that may take it: it has no name */
    bool failed;
};

static void single_end(struct single *single)
{
    place_give(single->call->worker->node, &single->place);
    scratch_free(&single->scratch);
    free(single);
}

static struct single *single_new(struct call *call)
{
    struct single *single = malloc(sizeof *single);
    if (!single) {
        call_refuse_result(call, FL_NO_MEMORY);
        return NULL;
    }
    memset(single, 0, sizeof *single);
    single->call = call;
    single->shard_call.errand.home = call->worker;
    single->shard_call.batch.ops = &single->op;
    single->shard_call.batch.count = 1;
    single->shard_call.places = &single->place;
    single->op.timer.ns = call->ns;
    return single;
}

/* --- The answer --------------------------------------------------------------------------------------------------- */

static void render(struct shard_call *shard_call)
{
    struct single *single = (struct single *)shard_call;
    struct call *call = single->call;
    const fl_op *op = &single->op;
    fl__assert(shard_call->batch.ops == op && call->out.size == 0);
    single->failed = op->result < 0;
    if (single->failed) {
        timers_problem(call->worker->node, op, &call->problem);
        return;
    }
    call->status = op->kind == FL_OP_CREATE && op->outcome == FL_CREATED ? 201 : op->kind == FL_OP_CANCEL ? 204 : 200;
    if (op->kind == FL_OP_CANCEL)
        return;
    if (call->part == PART_PAYLOAD) {
        single->failed = part_write_payload(call, &op->timer) < 0;
        return;
    }
    out_put(&call->out, "{", 1);
    timer_write(&call->out, shard_call->shard->number, &op->timer, call->part == PART_BRIEF);
    out_put(&call->out, "}", 1);
}

static void submit_by_name(struct single *single)
{
    struct call *call = single->call;
    single->by_id = false;
    single->op.timer.ns = call->ns;
    single->op.timer.name = call->name;
    single->op.timer.id = (fl_key){0};
    single->shard_call.shard = shard_of_op(call->worker->node, &single->op);
    shard_call_submit(&single->shard_call);
}

/* Gives a timer without a name to another shard. Returns whether it does. */
static bool submit_elsewhere(struct single *single)
{
    struct worker *worker = single->call->worker;
    struct space *space = space_of(worker->node, single->call->ns);
    if (single->tries == 0 || !shard_result_is_failure(single->op.result) || !space ||
        !place_take(worker->node, space, &single->place))
        return false;
    single->tries--;
    single->op.timer.id = (fl_key){0};
    single->shard_call.shard = shard_of_worker(worker);
    shard_call_submit(&single->shard_call);
    return true;
}

static void back(struct shard_call *over)
{
    struct single *single = (struct single *)over;
    struct call *call = single->call;
    if (single->failed && submit_elsewhere(single))
        return;
    if (single->failed && single->by_id && single->op.result == FL_TIMER_NOT_FOUND) {
        submit_by_name(single);
        return;
    }
    bool failed = single->failed;
    single_end(single);
    if (failed)
        call_refuse(call);
    else
        part_answer(call, call->status);
}

/* --- The question ------------------------------------------------------------------------------------------------- */

/* What the last part of the path says may be an ID or a name. */
static void submit(struct single *single)
{
    struct call *call = single->call;
    struct node *node = call->worker->node;
    uint32_t shard;
    single->shard_call.render = render;
    single->shard_call.done = back;
    if (!is_id(node, call->name, &shard, &single->op.timer.id)) {
        submit_by_name(single);
        return;
    }
    single->by_id = true;
    single->shard_call.shard = &node->shards[shard];
    shard_call_submit(&single->shard_call);
}

static int namespace_full(const struct node *node, struct problem *problem)
{
    return problem_set(problem, 429, "namespace-full", NULL,
                       "the namespace has as many timers as max-timers-per-namespace allows (%llu)",
                       (unsigned long long)node->config.max_timers_per_namespace);
}

/* What the namespace adds, and whether it takes more: if not, a timer may still take another's place. */
int timers_complete(struct node *node, fl_op *op, struct space **ret_place, struct problem *problem)
{
    fl_durable *timer = &op->timer;
    uint32_t shard;
    fl_key id;
    if (is_id(node, timer->name, &shard, &id))
        return problem_set(
            problem, 400, "invalid-field", "name",
            "the name \"%.*s\" looks like an ID of this server; choose another, such as one with a prefix",
            (int)timer->name.size, (const char *)timer->name.data);
    struct space *space = space_of(node, timer->ns);
    if (!space)
        return problem_of_result(problem, FL_NO_MEMORY);
    if (!place_take(node, space, ret_place)) {
        if (timer->name.size == 0)
            return namespace_full(node, problem);
        op->flags |= FL_OP_ONLY_REPLACE;
    }
    if (timer->retry.initial_us == 0)
        timer->retry = atomic_load_explicit(&space->settings, memory_order_acquire)->retry;
    return 0;
}

int timers_problem(const struct node *node, const fl_op *op, struct problem *problem)
{
    if (op->kind == FL_OP_CREATE && op->result == FL_TIMER_NOT_FOUND)
        return namespace_full(node, problem);
    return problem_of_result(problem, op->result);
}

/* Reads the body. */
static int read_timer(struct single *single, struct timer_in *in)
{
    struct call *call = single->call;
    const struct api *api = api_of(call->worker);
    struct json body;
    struct timer_rules rules = {.allowed = GAVE_TIMER,
                                .now_us = node_now(api->node),
                                .allow_private = api->config.allow_private_targets,
                                .own = api->own_targets,
                                .max_payload = api->config.max_payload,
                                .zones = node_zones(api->node)};
    size_t at;
    const char *why;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    return timer_read(body, &rules, &single->scratch, in, &call->problem);
}

static int read_new(struct single *single)
{
    struct timer_in in = {0};
    struct call *call = single->call;
    if (read_timer(single, &in) < 0)
        return -1;
    if (!(in.given & (GAVE_DUE | GAVE_AFTER)))
        return problem_set(&call->problem, 400, "missing-field", "due", "due or after is missing; give one of them");
    in.timer.ns = call->ns;
    in.timer.name = call->name;
    single->op = (fl_op){.kind = FL_OP_CREATE, .timer = in.timer};
    return timers_complete(call->worker->node, &single->op, &single->place, &call->problem);
}

static void refuse(struct single *single)
{
    struct call *call = single->call;
    single_end(single);
    call_refuse(call);
}

/* That is the only value that is let through. */
static bool wants_only_new(struct call *call)
{
    return http_header(call->request, "if-none-match").size > 0;
}

static void create(struct call *call, bool named)
{
    struct single *single = single_new(call);
    if (!single)
        return;
    if (read_new(single) < 0) {
        refuse(single);
        return;
    }
    if (wants_only_new(call))
        single->op.flags |= FL_OP_ONLY_NEW;
    single->shard_call.render = render;
    single->shard_call.done = back;
    single->tries = named ? 0 : SHARDS_TRIED - 1;
    single->shard_call.shard = named ? shard_of_op(call->worker->node, &single->op) : shard_of_worker(call->worker);
    shard_call_submit(&single->shard_call);
}

void timers_put(struct call *call)
{
    create(call, true);
}

void timers_post(struct call *call)
{
    create(call, false);
}

void timers_payload(struct call *call)
{
    call->part = PART_PAYLOAD;
    timers_get(call);
}

void timers_get(struct call *call)
{
    if (part_check(call) < 0) {
        call_refuse(call);
        return;
    }
    struct single *single = single_new(call);
    if (!single)
        return;
    single->op.kind = FL_OP_GET;
    submit(single);
}

void timers_delete(struct call *call)
{
    struct single *single = single_new(call);
    if (!single)
        return;
    single->op.kind = FL_OP_CANCEL;
    submit(single);
}

void timers_patch(struct call *call)
{
    struct timer_in in = {0};
    struct single *single = single_new(call);
    if (!single)
        return;
    if (read_timer(single, &in) < 0) {
        refuse(single);
        return;
    }
    in.timer.ns = call->ns;
    single->op = (fl_op){.kind = FL_OP_UPDATE, .flags = timer_update_flags(&in), .timer = in.timer};
    submit(single);
}

/* As a PATCH with {"after": "0s"}. */
void timers_fire(struct call *call)
{
    if (call_no_fields(call) < 0)
        return;
    struct single *single = single_new(call);
    if (!single)
        return;
    single->op = (fl_op){.kind = FL_OP_UPDATE,
                         .flags = FL_OP_SET_DUE,
                         .timer = {.ns = call->ns, .due_us = node_now(call->worker->node)}};
    submit(single);
}
