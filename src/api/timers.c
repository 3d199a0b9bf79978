/* SPDX-License-Identifier: MIT */
/* One timer: create, get, change, cancel. Each request is one operation on one shard; the answer is written on the shard's
 * worker, where what was found lies. */

#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "node/spaces.h"
#include "api/timer.h"

struct single {
    struct job job;
    fl_op op;
    struct call *call;
    struct space *place; /* see timers_complete() */
    struct scratch scratch;
    bool by_id; /* and then, if there is none, by name */
    bool failed;
};

static void single_end(struct single *single)
{
    timers_give_back(single->call->worker->server, &single->place);
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
    single->job.errand.home = call->worker;
    single->job.batch.ops = &single->op;
    single->job.batch.count = 1;
    single->job.places = &single->place;
    single->op.timer.ns = call->ns;
    return single;
}

/* --- The answer --------------------------------------------------------------------------------------------------- */

/* Tells those who listen what has changed. The server's own timers concern nobody. */
static void tell_change(struct shard *shard, const fl_op *op)
{
    bool cancelled = op->kind == FL_OP_CANCEL;
    if (op->result < 0 || op->kind == FL_OP_GET || op->kind == FL_OP_DEAD_GET || op->kind == FL_OP_DEAD_DELETE ||
        (op->kind == FL_OP_CREATE && op->outcome == FL_SAME))
        return;
    if (is_own_namespace(op->timer.ns))
        return;
    event_tell(shard->worker, cancelled ? EVENT_CANCELLED : EVENT_SCHEDULED, shard->number, &op->timer, (fl_bytes){0});
}

void timers_tell(struct shard *shard, const fl_op *op, struct space **place)
{
    tell_change(shard, op);
    if (place)
        timers_give_back(shard->worker->server, place);
}

static void render(struct job *job)
{
    struct single *single = (struct single *)job;
    struct call *call = single->call;
    const fl_op *op = &single->op;
    single->failed = op->result < 0;
    if (single->failed) {
        timers_problem(call->worker->server, op, &call->problem);
        return;
    }
    call->status = op->kind == FL_OP_CREATE && op->outcome == FL_CREATED ? 201 : op->kind == FL_OP_CANCEL ? 204 : 200;
    if (op->kind == FL_OP_CANCEL)
        return;
    out_put(&call->out, "{", 1);
    timer_write(&call->out, job->shard->number, &op->timer);
    out_put(&call->out, "}", 1);
}

static void submit_by_name(struct single *single)
{
    struct call *call = single->call;
    single->by_id = false;
    single->op.timer.ns = call->ns;
    single->op.timer.name = call->name;
    single->op.timer.id = (fl_key){0};
    single->job.shard = shard_of_name(call->worker->server, call->ns, call->name);
    job_submit(&single->job);
}

static void back(struct errand *errand)
{
    struct single *single = (struct single *)errand;
    struct call *call = single->call;
    if (single->failed && single->by_id && single->op.result == FL_TIMER_NOT_FOUND) {
        submit_by_name(single);
        return;
    }
    bool failed = single->failed;
    single_end(single);
    if (failed)
        call_refuse(call);
    else
        call_answer(call, call->status);
}

/* --- The question ------------------------------------------------------------------------------------------------- */

/* In capitals it is a name: others' IDs of as many letters are often written so, and are used as names. */
bool is_id(const struct server *server, fl_bytes text, uint32_t *ret_shard, fl_key *ret_id)
{
    for (size_t i = 0; i < text.size; i++)
        if (((const char *)text.data)[i] >= 'A' && ((const char *)text.data)[i] <= 'Z')
            return false;
    return fl_id_parse(text.data, text.size, ret_shard, ret_id) == 0 && *ret_shard < server->shard_count;
}

/* What the last part of the path says may be an ID or a name. */
static void submit(struct single *single)
{
    struct call *call = single->call;
    struct server *server = call->worker->server;
    uint32_t shard;
    single->job.render = render;
    single->job.back = back;
    if (!is_id(server, call->name, &shard, &single->op.timer.id)) {
        submit_by_name(single);
        return;
    }
    single->by_id = true;
    single->job.shard = &server->shards[shard];
    job_submit(&single->job);
}

static int namespace_full(const struct server *server, struct problem *problem)
{
    return problem_set(problem, 429, "namespace-full", NULL,
                       "the namespace has as many timers as max-timers-per-namespace allows (%llu)",
                       (unsigned long long)server->config.max_timers_per_namespace);
}

/* Whether there is room for another; then it has a place. */
static bool take_place(const struct server *server, struct space *space, struct space **ret_place)
{
    int64_t most = (int64_t)server->config.max_timers_per_namespace;
    if (most == 0)
        return true;
    pthread_mutex_lock(&server->spaces->placing);
    bool room = space_pending(space) + atomic_load(&space->coming) < most;
    if (room) {
        atomic_fetch_add(&space->coming, 1);
        *ret_place = space;
    }
    pthread_mutex_unlock(&server->spaces->placing);
    return room;
}

void timers_give_back(const struct server *server, struct space **place)
{
    if (!*place)
        return;
    pthread_mutex_lock(&server->spaces->placing);
    if ((*place)->counted > 0) /* what came of it, or of another, is counted */
        (*place)->counted--;
    else
        atomic_fetch_sub(&(*place)->coming, 1);
    pthread_mutex_unlock(&server->spaces->placing);
    *place = NULL;
}

/* A timer that is new has its place from now on because it is counted: no limit must see it twice, or not at all. */
void timers_counted(struct server *server, struct space *space, int64_t more)
{
    if (more != 1 || atomic_load(&space->coming) == 0) {
        atomic_fetch_add_explicit(&space->pending, more, memory_order_relaxed);
        return;
    }
    pthread_mutex_lock(&server->spaces->placing);
    atomic_fetch_add_explicit(&space->pending, 1, memory_order_relaxed);
    if (atomic_load(&space->coming) > 0) {
        atomic_fetch_sub(&space->coming, 1);
        space->counted++;
    }
    pthread_mutex_unlock(&server->spaces->placing);
}

/* What the namespace adds, and whether it takes more: if not, a timer may still take another's place. */
int timers_complete(struct server *server, fl_op *op, struct space **ret_place, struct problem *problem)
{
    fl_durable *timer = &op->timer;
    uint32_t shard;
    fl_key id;
    if (is_id(server, timer->name, &shard, &id))
        return problem_set(
            problem, 400, "invalid-field", "name",
            "the name \"%.*s\" looks like an ID of this server; choose another, such as one with a prefix",
            (int)timer->name.size, (const char *)timer->name.data);
    struct space *space = space_of(server, timer->ns);
    if (!space)
        return problem_of_result(problem, FL_NO_MEMORY);
    if (!take_place(server, space, ret_place)) {
        if (timer->name.size == 0)
            return namespace_full(server, problem);
        op->flags |= FL_OP_ONLY_REPLACE;
    }
    if (timer->retry.initial_us == 0)
        timer->retry = atomic_load_explicit(&space->settings, memory_order_acquire)->retry;
    return 0;
}

int timers_problem(const struct server *server, const fl_op *op, struct problem *problem)
{
    if (op->kind == FL_OP_CREATE && op->result == FL_TIMER_NOT_FOUND)
        return namespace_full(server, problem);
    return problem_of_result(problem, op->result);
}

/* Reads the body. */
static int read_timer(struct single *single, struct timer_in *in)
{
    struct call *call = single->call;
    const struct server *server = call->worker->server;
    struct json body;
    struct timer_rules rules = {.allowed = GAVE_CONTENT,
                                .now_us = server_now(server),
                                .allow_private = server->config.allow_private_targets,
                                .own = server->own_targets,
                                .max_payload = server->config.max_payload};
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
    return timers_complete(call->worker->server, &single->op, &single->place, &call->problem);
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

static void create(struct call *call, struct shard *shard)
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
    single->job.render = render;
    single->job.back = back;
    single->job.shard = shard;
    job_submit(&single->job);
}

void timers_put(struct call *call)
{
    create(call, shard_of_name(call->worker->server, call->ns, call->name));
}

void timers_post(struct call *call)
{
    create(call, shard_of_worker(call->worker));
}

void timers_get(struct call *call)
{
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
