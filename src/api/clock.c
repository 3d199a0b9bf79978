/* SPDX-License-Identifier: MIT */
/* The test clock: time stands still until a request advances it.
 *
 * The clock advances from one instant at which something can happen to the next. At each instant all engines are told. Time
 * stands still until all engines only wait and all webhooks have ended. So timers and retries fire in the order of time, with
 * any number of shards. The clock does not wait for timers that wait for a lease. A leased timer comes back when its lease
 * expires by this clock. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "text/json.h"
#include "text/when.h"

#define LOOK_NS 100000

/* The year 2554, in which the engines' clock ends: a later due time would never come. */
#define CLOCK_END_US (INT64_C(18429292800) * 1000000)

struct test_clock {
    fl_wall_clock clock;
    _Atomic int64_t now_us;
    atomic_bool turning;
};

static int64_t now_us(fl_wall_clock *clock)
{
    return atomic_load(&((struct test_clock *)clock)->now_us);
}

int test_clock_new(struct api *api, fl_wall_clock **ret)
{
    struct test_clock *clock = calloc(1, sizeof *clock);
    if (!clock)
        return FL_NO_MEMORY;
    clock->clock.now_us = now_us;
    fl_wall_clock *system = fl_wall_clock_system();
    clock->now_us = system->now_us(system) / 1000 * 1000;
    api->test_clock = clock;
    *ret = &clock->clock;
    return 0;
}

void test_clock_free(struct api *api)
{
    free(api->test_clock);
    api->test_clock = NULL;
}

struct turning {
    struct tour tour;
    struct call *call;
    int64_t to_us;
    bool changed; /* the engines do not know yet */
    bool idle, first;
    int64_t next_us;
    uint64_t fired, fired_before;
};

/* Looks at the engines of a worker; tells them of the time first. */
static void visit(struct tour *tour, struct worker *worker)
{
    struct turning *turning = (struct turning *)tour;
    struct node *node = worker->node;
    int64_t lease_us = pull_clock_changed(worker), pause_us = pause_clock_changed(worker);
    if (pause_us < turning->next_us)
        turning->next_us = pause_us;
    if (lease_us < turning->next_us)
        turning->next_us = lease_us;
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count) {
        struct shard *shard = &node->shards[i];
        fl_engine_stats stats;
        int64_t next_us;
        if (!shard->engine)
            continue;
        if (turning->changed)
            fl_engine_clock_changed(shard->engine);
        fl_engine_get_stats(shard->engine, &stats);
        turning->fired += stats.dispatched - stats.later - stats.parked - shard->steps;
        if (turning->changed || shard->delivering > 0 || !fl_engine_idle(shard->engine, &next_us))
            turning->idle = false;
        else if (next_us < turning->next_us)
            turning->next_us = next_us;
    }
}

static void look(struct turning *turning)
{
    turning->idle = true;
    turning->next_us = INT64_MAX;
    turning->fired = 0;
    tour_begin(&turning->tour, turning->call->worker);
}

static void look_again(fl_loop *loop, void *arg)
{
    (void)loop;
    look(arg);
}

static void finish(struct turning *turning)
{
    struct call *call = turning->call;
    struct test_clock *clock = api_of(call->worker)->test_clock;
    out_text(&call->out, "{\"now\":");
    out_time(&call->out, atomic_load(&clock->now_us));
    out_format(&call->out, ",\"fired\":%" PRIu64 "}", turning->fired - turning->fired_before);
    free(turning);
    atomic_store(&clock->turning, false);
    call_answer(call, 200);
}

static void looked(struct tour *tour)
{
    struct turning *turning = (struct turning *)tour;
    struct worker *worker = turning->call->worker;
    struct test_clock *clock = api_of(worker)->test_clock;
    turning->changed = false;
    if (turning->first)
        turning->fired_before = turning->fired;
    turning->first = false;
    int64_t now = atomic_load(&clock->now_us);
    if (turning->idle && now >= turning->to_us) {
        finish(turning);
        return;
    }
    if (turning->idle) {
        atomic_store(&clock->now_us, turning->next_us < turning->to_us ? turning->next_us : turning->to_us);
        turning->changed = true;
        look(turning);
        return;
    }
    if (fl_loop_timer(worker->loop, LOOK_NS, look_again, turning, NULL) < 0)
        look(turning);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static int read_turn(struct call *call, struct json body, int64_t now, int64_t *ret_us)
{
    struct json key, value;
    char room[64];
    uint64_t by_us;
    struct json_walk walk = json_walk(body);
    if (body.kind != JSON_OBJECT || !json_member(&walk, &key, &value) ||
        json_member(&walk, &(struct json){0}, &(struct json){0}))
        return problem_set(&call->problem, 400, "invalid-body", NULL,
                           "{\"advance\":\"30d\"} or {\"to\":…} is missing; give one of them");
    fl_bytes text =
        value.kind == JSON_STRING && value.text.size <= sizeof room ? json_string(value, room) : (fl_bytes){0};
    if (json_is(key, "advance")) {
        if (duration_parse(text, &by_us) < 0)
            return problem_set(&call->problem, 400, "invalid-field", "advance",
                               "advance must be a duration like \"30d\"");
        *ret_us = now + (int64_t)by_us;
    } else if (json_is(key, "to")) {
        if (value.kind == JSON_NUMBER ? !json_milliseconds(value, ret_us) : when_parse(text, ret_us) < 0)
            return problem_set(&call->problem, 400, "invalid-field", "to",
                               "to must be a time (RFC 3339) or milliseconds since 1970");
    } else {
        return problem_unknown_member(&call->problem, NULL, key, (const char *const[]){"advance", "to", NULL});
    }
    if (*ret_us < now || *ret_us >= CLOCK_END_US)
        return problem_set(&call->problem, 400, "invalid-field", json_is(key, "to") ? "to" : "advance",
                           "the clock can only go forward, at most to the year 2553");
    return 0;
}

static bool refuse_if_real(struct call *call)
{
    if (api_of(call->worker)->test_clock)
        return false;
    problem_set(&call->problem, 409, "no-test-clock", NULL,
                "this server has no test clock; start one with --test-clock");
    call_refuse(call);
    return true;
}

void clock_get(struct call *call)
{
    out_text(&call->out, "{\"now\":");
    out_time(&call->out, node_now(call->worker->node));
    out_format(&call->out, ",\"test\":%s}", api_of(call->worker)->test_clock ? "true" : "false");
    call_answer(call, 200);
}

void clock_post(struct call *call)
{
    struct json body;
    if (refuse_if_real(call) || call_json(call, &body) < 0)
        return;
    struct test_clock *clock = api_of(call->worker)->test_clock;
    struct turning *turning = calloc(1, sizeof *turning);
    if (!turning) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    *turning = (struct turning){.tour = {.fn = visit, .back = looked}, .call = call, .first = true};
    int r = read_turn(call, body, atomic_load(&clock->now_us), &turning->to_us);
    if (r == 0 && atomic_exchange(&clock->turning, true))
        r = problem_set(&call->problem, 409, "busy", NULL, "another request is advancing the clock; wait for it");
    if (r < 0) {
        free(turning);
        call_refuse(call);
        return;
    }
    look(turning);
}
