/* SPDX-License-Identifier: MIT */
/* POST /v1/lease: due timers, from all servers, as JSON. */

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/timer.h"
#include "base/assert.h"
#include "text/json.h"
#include "text/when.h"

enum { MAX_ASKED = 10000 };

struct lease_call {
    struct leasing leasing;
    struct call *call;
};

/* --- The answer --------------------------------------------------------------------------------------------------- */

static void write_leased(struct out *out, const struct leased *leased, size_t count)
{
    const fl_durable *timer = leased->timer;
    char id[FL_ID_TEXT + 1], lease[LEASE_TEXT + 1];
    fl_id_format(leased->shard, timer->id, id);
    lease_format(leased, lease);
    out_text(out, count > 0 ? ",{\"id\":\"" : "{\"timers\":[{\"id\":\"");
    out_put(out, id, FL_ID_TEXT);
    out_text(out, "\",\"attempt\":");
    out_number(out, timer->attempt);
    out_text(out, ",\"lease\":\"");
    out_put(out, lease, LEASE_TEXT);
    out_put(out, "\"", 1);
    if (timer->name.size > 0) {
        out_key(out, "name");
        out_string(out, timer->name);
    }
    out_key(out, "due");
    out_time(out, timer->due_us);
    timer_write_origin(out, timer);
    if (timer_is_binary(timer)) {
        out_key(out, "payload_base64");
        out_base64(out, timer_payload(timer));
    } else {
        out_key(out, "payload");
        out_put(out, timer->payload.size > 0 ? timer->payload.data : "null",
                timer->payload.size > 0 ? timer->payload.size : 4);
    }
    out_put(out, "}", 1);
}

static void answer(struct leasing *leasing)
{
    struct call *call = ((struct lease_call *)leasing)->call;
    struct out *out = &leasing->take.asker.out;
    fl__assert(call->state == leasing);
    call->state = NULL;
    if (!call_is_let_in(call)) {
        call_refuse(call); /* what was leased meanwhile is leased again when the lease has run out */
    } else if (leasing->result < 0 && leasing->take.asker.count == 0) {
        call_refuse_result(call, leasing->result);
    } else {
        fl__assert((out->size > 0) == (leasing->take.asker.count > 0) || out->failed);
        out_text(out, out->size > 0 ? "]}" : "{\"timers\":[]}");
        out_free(&call->out);
        call->out = *out; /* it is long: it is not copied */
        *out = (struct out){0};
        call_answer(call, 200);
    }
}

static void release(struct leasing *leasing)
{
    free(leasing);
}

/* --- The request -------------------------------------------------------------------------------------------------- */

static void asker_gone(http_request *request)
{
    struct call *call = request->arg;
    if (call && call->state)
        leasing_stop(call->state);
}

static int bad_field(struct call *call, const char *field, const char *what)
{
    return problem_set(&call->problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

static int read_span(struct call *call, const char *field, struct json value, uint64_t least_us, uint64_t most_us,
                     const char *what, uint64_t *ret)
{
    char room[64];
    if (value.kind != JSON_STRING || value.text.size > sizeof room ||
        duration_parse(json_string(value, room), ret) < 0 || *ret < least_us || *ret > most_us)
        return bad_field(call, field, what);
    return 0;
}

static int read_max(struct call *call, struct json value, uint32_t *ret)
{
    int64_t max;
    if (value.kind != JSON_NUMBER || !json_integer(value, &max) || max < 1 || max > MAX_ASKED)
        return bad_field(call, "max", "a whole number from 1 to 10000");
    *ret = (uint32_t)max;
    return 0;
}

static int read_body(struct call *call, struct leasing *leasing, uint64_t *ret_wait_us)
{
    enum { MAX, WAIT, LEASE };
    static const char *const names[] = {"max", "wait", "lease", NULL};
    struct json body, key, value;
    size_t at;
    const char *why;
    unsigned given = 0;
    if (call->request->body.size == 0)
        return 0;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    if (body.kind != JSON_OBJECT)
        return problem_set(&call->problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value);) {
        int r = problem_member(&call->problem, NULL, names, key, &given);
        if (r == MAX)
            r = read_max(call, value, &leasing->max);
        else if (r == WAIT)
            r = read_span(call, "wait", value, 0, 60 * 1000000ull, "a duration of at most \"60s\"", ret_wait_us);
        else if (r == LEASE)
            r = read_span(call, "lease", value, 1000, 86400 * 1000000ull, "a duration from \"1ms\" to \"24h\"",
                          &leasing->lease_us);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Ends requests of clients that have lost their rights, as if they had gone, and tells them why. */
void leases_check(struct worker *worker)
{
    for (struct leasing *leasing = worker->leasings, *next; leasing; leasing = next) {
        next = leasing->next;
        if (!call_is_let_in(((struct lease_call *)leasing)->call))
            leasing_stop(leasing);
    }
}

void lease_post(struct call *call)
{
    struct worker *worker = call->worker;
    struct space *space = space_of(worker->node, call->ns);
    struct lease_call *lease = space ? calloc(1, sizeof *lease) : NULL;
    uint64_t wait_us = 0;
    if (!lease) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    *lease = (struct lease_call){.leasing = {.worker = worker,
                                             .space = space,
                                             .max = 100,
                                             .lease_us = 30 * 1000000ull,
                                             .write = write_leased,
                                             .done = answer,
                                             .release = release},
                                 .call = call};
    if (read_body(call, &lease->leasing, &wait_us) < 0) {
        free(lease);
        call_refuse(call);
        return;
    }
    fl__assert(lease->leasing.max > 0 && lease->leasing.lease_us > 0);
    call->state = lease;
    call->request->gone = asker_gone;
    call->request->half_closed = asker_gone;
    leasing_begin(&lease->leasing, wait_us);
}
