/* SPDX-License-Identifier: MIT */
/* POST /v1/namespaces/{namespace}/pause and …/resume, and the same of hosts; pauses as users see them, and as they are stored. */

#include <inttypes.h>
#include <string.h>

#include "api/internal.h"
#include "text/when.h"

/* --- As users see them -------------------------------------------------------------------------------------------- */

void pause_write(struct out *out, const struct pauses *pauses, int64_t now_us)
{
    const struct pause *pause = &pauses->now;
    if (!pauses_are_on(pauses, now_us))
        return;
    out_text(out, ",\"paused\":{\"since\":");
    out_time(out, pause->since_us);
    if (pause->reason_size > 0) {
        out_key(out, "reason");
        out_string(out, (fl_bytes){pause->reason, pause->reason_size});
    }
    if (pause->until_us > 0) {
        out_key(out, "until");
        out_time(out, pause->until_us);
    }
    out_text(out, "}");
}

/* --- As they are stored ------------------------------------------------------------------------------------------- */

/* {"now":[since,until],"reason":…,"past":[since,until,skip,…]}, in microseconds. */
void pauses_write_stored(struct out *out, const struct pauses *pauses)
{
    const struct pause *now = &pauses->now;
    if (now->since_us == 0 && pauses->past_count == 0)
        return;
    out_format(out, ",\"pauses\":{\"now\":[%" PRId64 ",%" PRId64 "],\"reason\":", now->since_us, now->until_us);
    out_string(out, (fl_bytes){now->reason, now->reason_size});
    out_text(out, ",\"past\":[");
    for (uint64_t i = 0; i < pauses->past_count; i++)
        out_format(out, "%s%" PRId64 ",%" PRId64 ",%" PRIu64, i > 0 ? "," : "", pauses->past[i].since_us,
                   pauses->past[i].until_us, pauses->past[i].skip);
    out_text(out, "]}");
}

/* Returns how many numbers there were, at most `most`. */
static size_t read_numbers(struct json array, int64_t *ret, size_t most)
{
    struct json number;
    size_t count = 0;
    if (array.kind != JSON_ARRAY)
        return 0;
    for (struct json_walk walk = json_walk(array); count < most && json_element(&walk, &number); count++)
        if (number.kind != JSON_NUMBER || !json_integer(number, &ret[count]))
            return 0;
    return count;
}

enum { REASON_TEXT = 6 * PAUSE_REASON_MOST + 2 }; /* as JSON */

/* Returns its size, or -1 if it is no text, or too long. */
static int read_reason(struct json value, char ret[PAUSE_REASON_MOST])
{
    char room[REASON_TEXT];
    if (value.kind != JSON_STRING || value.text.size > sizeof room)
        return -1;
    fl_bytes text = json_string(value, room);
    if (text.size > PAUSE_REASON_MOST)
        return -1;
    memcpy(ret, text.data, text.size);
    return (int)text.size;
}

static void take_past(struct pauses *pauses, const int64_t *numbers, size_t count)
{
    for (size_t i = 0; i + 2 < count; i += 3)
        pauses->past[pauses->past_count++] =
            (struct past_pause){numbers[i], numbers[i + 1], (uint64_t)(numbers[i + 2] != 0)};
}

void pauses_read_stored(struct json stored, struct pauses *ret)
{
    struct json key, value;
    *ret = (struct pauses){0};
    if (stored.kind != JSON_OBJECT)
        return;
    for (struct json_walk walk = json_walk(stored); json_member(&walk, &key, &value);) {
        int64_t numbers[3 * PAUSES_KEPT];
        if (json_is(key, "now") && read_numbers(value, numbers, 2) == 2) {
            ret->now.since_us = numbers[0];
            ret->now.until_us = numbers[1];
        } else if (json_is(key, "reason")) {
            int size = read_reason(value, ret->now.reason);
            ret->now.reason_size = size > 0 ? (uint64_t)size : 0;
        } else if (json_is(key, "past") && ret->past_count == 0) {
            take_past(ret, numbers, read_numbers(value, numbers, 3 * PAUSES_KEPT));
        }
    }
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

/* Of a namespace, or of a host if the call has one: see read_host(). */
static void changed(void *arg, int result)
{
    struct call *call = arg;
    if (result < 0)
        call_refuse_result(call, result == FL_EXISTS || result == FL_TIMER_NOT_FOUND ? FL_STORE_UNAVAILABLE : result);
    else if (is_host_space(call->ns))
        host_get(call, (fl_bytes){(const char *)call->ns.data + 1, call->ns.size - 1});
    else
        namespace_get(call);
}

/* A request without a body has no members. Returns 0, or -1 after it was refused. */
static int read_object(struct call *call, struct json *ret)
{
    *ret = (struct json){JSON_OBJECT, bytes_of("{}")};
    if (call->request->body.size == 0)
        return 0;
    if (call_json(call, ret) < 0)
        return -1;
    if (ret->kind == JSON_OBJECT)
        return 0;
    problem_set(&call->problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    call_refuse(call);
    return -1;
}

static int read_until(struct json value, int64_t *ret, struct problem *problem)
{
    char room[64];
    bool good = value.kind == JSON_NUMBER ? json_milliseconds(value, ret)
                                          : value.kind == JSON_STRING && value.text.size <= sizeof room &&
                                                when_parse(json_string(value, room), ret) == 0;
    if (!good || *ret < WHEN_PLAUSIBLE_US || *ret >= FL_STORE_TIME_END)
        return problem_set(problem, 400, "invalid-field", "until",
                           "until must be a time like \"2030-01-31T09:00:00+01:00\" (RFC 3339) or milliseconds since "
                           "1970");
    return 0;
}

static int read_pause(struct call *call, struct json body, struct pause_request *request)
{
    enum { REASON, UNTIL };
    static const char *const names[] = {"reason", "until", NULL};
    struct problem *problem = &call->problem;
    struct json key, value;
    unsigned given = 0;
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value);) {
        int r = problem_member(problem, NULL, names, key, &given);
        if (r == UNTIL) {
            r = read_until(value, &request->until_us, problem);
        } else if (r == REASON) {
            r = read_reason(value, request->reason);
            request->reason_size = r > 0 ? (size_t)r : 0;
            if (r < 0)
                problem_set(problem, 400, "invalid-field", "reason", "reason must be a text of at most 255 bytes");
        }
        if (r < 0)
            return r;
    }
    return 0;
}

void namespace_pause(struct call *call)
{
    struct pause_request request = {.kind = PAUSE_BEGIN};
    struct json body;
    if (read_object(call, &body) < 0)
        return;
    if (read_pause(call, body, &request) < 0)
        call_refuse(call);
    else
        settings_pause(call->worker, call->ns, &request, changed, call);
}

static int read_resume(struct json body, struct pause_request *request, struct problem *problem)
{
    static const char *const names[] = {"missed", NULL};
    struct json key, value;
    unsigned given = 0;
    for (struct json_walk walk = json_walk(body); json_member(&walk, &key, &value);) {
        if (problem_member(problem, NULL, names, key, &given) < 0)
            return -1;
        request->skip = value.kind == JSON_STRING && json_is(value, "skip");
        if (!request->skip && (value.kind != JSON_STRING || !json_is(value, "fire")))
            return problem_set(problem, 400, "invalid-field", "missed", "missed must be \"fire\" or \"skip\"");
    }
    return 0;
}

void namespace_resume(struct call *call)
{
    struct pause_request request = {.kind = PAUSE_END};
    struct json body;
    if (read_object(call, &body) < 0)
        return;
    if (read_resume(body, &request, &call->problem) < 0)
        call_refuse(call);
    else
        settings_pause(call->worker, call->ns, &request, changed, call);
}

/* --- Hosts -------------------------------------------------------------------------------------------------------- */

_Static_assert((int)HOST_TEXT >= (int)WEBHOOK_HOST_TEXT, "a host fits");

/* The host of the path becomes the name of its row. Returns 0, or -1 after it was refused. */
static int read_host(struct call *call)
{
    char host[HOST_TEXT], room[HOST_ROOM];
    fl_bytes row = {0};
    if (hosts_may(call, RIGHT_ADMIN)) {
        row = host_space_name(webhook_read_host(call->ns, host), room);
        if (row.size == 0)
            problem_set(&call->problem, 400, "invalid-field", "host",
                        "the host in the path must be NAME:PORT of at most 254 bytes, such as example.com:443; an IPv6 "
                        "address is in brackets");
    }
    if (row.size == 0) {
        call_refuse(call);
        return -1;
    }
    memcpy(call->ns_room, row.data, row.size);
    call->ns = (fl_bytes){call->ns_room, row.size};
    return 0;
}

void host_pause(struct call *call)
{
    if (read_host(call) == 0)
        namespace_pause(call);
}

void host_resume(struct call *call)
{
    if (read_host(call) == 0)
        namespace_resume(call);
}
