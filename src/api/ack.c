/* SPDX-License-Identifier: MIT */
/* POST /v1/ack: acknowledgements as JSON, one as an object or many as a list. */

#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/assert.h"
#include "text/json.h"
#include "text/when.h"

enum { EXTEND_LEAST_US = 1000 };
#define EXTEND_MOST_US (24 * 3600 * UINT64_C(1000000))

struct acking {
    struct acks acks;
    struct call *call;
    size_t capacity;
};

/* --- What is said ------------------------------------------------------------------------------------------------- */

static int bad_field(struct call *call, const char *field, const char *what)
{
    return problem_set(&call->problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

static int read_after(struct call *call, struct json value, uint64_t *ret)
{
    char room[64];
    if (value.kind != JSON_STRING || value.text.size > sizeof room || duration_parse(json_string(value, room), ret) < 0)
        return bad_field(call, "after", "a duration like \"10s\"");
    return 0;
}

static bool read_result(struct json value, enum ack_result *ret)
{
    static const char *const names[ACK_RESULTS] = {
        [ACK_DONE] = "done", [ACK_RETRY] = "retry",     [ACK_AGAIN] = "again",
        [ACK_DEAD] = "dead", [ACK_RELEASE] = "release", [ACK_EXTEND] = "extend",
    };
    for (int i = 0; i < ACK_RESULTS; i++)
        if (json_is(value, names[i])) {
            *ret = (enum ack_result)i;
            return true;
        }
    return false;
}

static int check_after(struct call *call, const struct ack *ack, bool given)
{
    bool later = ack->result == ACK_RETRY || ack->result == ACK_AGAIN;
    if (ack->result == ACK_EXTEND && (ack->after_us < EXTEND_LEAST_US || ack->after_us > EXTEND_MOST_US))
        return bad_field(call, "after", "given with extend, from 1ms to 24h");
    if (given && !later && ack->result != ACK_EXTEND)
        return bad_field(call, "after", "given with retry, again and extend only");
    return 0;
}

/* The object that comes next. `inside` is the list that it is in; NULL: it is the body. */
static int read_ack(struct call *call, struct json_walk *objects, const char *inside, struct ack *ack)
{
    enum { LEASE, RESULT, AFTER };
    static const char *const names[] = {"lease", "result", "after", NULL};
    struct json key, value;
    bool lease = false, known = false;
    unsigned given = 0;
    *ack = (struct ack){0};
    if (json_next(objects) != JSON_OBJECT)
        return bad_field(call, "acks", "an array of objects");
    struct json_walk walk = json_into(objects);
    while (json_member(&walk, &key, &value)) {
        int member = problem_member(&call->problem, inside, names, key, &given);
        if (member < 0)
            return -1;
        if (member == LEASE) {
            lease = value.kind == JSON_STRING;
            if (!lease)
                break;
            ack_parse(ack, (fl_bytes){(const char *)value.text.data + 1, value.text.size - 2});
        } else if (member == RESULT) {
            known = read_result(value, &ack->result);
        } else if (read_after(call, value, &ack->after_us) < 0) {
            return -1;
        }
    }
    json_past(objects, &walk);
    if (!lease)
        return bad_field(call, "lease", "given as a string");
    if (!known)
        return bad_field(call, "result", "\"done\", \"retry\", \"again\", \"dead\", \"extend\" or \"release\"");
    return check_after(call, ack, (given >> AFTER & 1) != 0);
}

static int add_ack(struct acking *acking, struct json_walk *objects, const char *inside)
{
    struct acks *acks = &acking->acks;
    if (acks->count == acking->capacity) {
        size_t capacity = acking->capacity * 2 + 64;
        struct ack *list = realloc(acks->list, capacity * sizeof *list);
        if (!list)
            return problem_of_result(&acking->call->problem, FL_NO_MEMORY);
        acks->list = list;
        acking->capacity = capacity;
    }
    fl__assert(acks->count < acking->capacity);
    return read_ack(acking->call, objects, inside, &acks->list[acks->count++]);
}

/* The first member tells whether the body is a list or one acknowledgement. Nothing is passed twice: lists are long. */
static int read_members(struct acking *acking, struct json body)
{
    struct call *call = acking->call;
    struct json_walk walk = json_walk(body), whole = json_before(body), inner;
    struct json key;
    bool given = false;
    for (; json_key(&walk, &key); given = true) {
        if (!json_is(key, "acks") && !given)
            return add_ack(acking, &whole, NULL);
        if (!json_is(key, "acks"))
            return problem_unknown_member(&call->problem, NULL, key, (const char *const[]){"acks", NULL});
        if (json_next(&walk) != JSON_ARRAY || given)
            return bad_field(call, "acks", "an array, given once");
        for (inner = json_into(&walk); json_more(&inner);)
            if (add_ack(acking, &inner, "acks") < 0)
                return -1;
        json_past(&walk, &inner);
    }
    return given ? 0
                 : problem_set(&call->problem, 400, "missing-field", "acks",
                               "acks is missing; give an array of acknowledgements, or lease and result of one");
}

static int read_acks(struct acking *acking)
{
    struct call *call = acking->call;
    struct json body;
    size_t at;
    const char *why;
    if (json_parse(call->request->body, &body, &at, &why) < 0)
        return problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why,
                           at);
    if (body.kind != JSON_OBJECT)
        return problem_set(&call->problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    return read_members(acking, body);
}

/* --- The answer --------------------------------------------------------------------------------------------------- */

/* What is not asked for is not counted. */
static void write_count(struct out *out, const char *name, size_t asked, size_t count)
{
    if (asked == 0)
        return;
    out_key(out, name);
    out_number(out, (int64_t)count);
}

static void answer(struct acks *acks)
{
    struct acking *acking = (struct acking *)acks;
    struct call *call = acking->call;
    size_t asked[ACK_RESULTS] = {0}, known[ACK_RESULTS] = {0}, unknown = 0;
    fl__assert(acks->left == 0);
    for (size_t i = 0; i < acks->count; i++) {
        asked[acks->list[i].result]++;
        known[acks->list[i].result] += acks->list[i].known;
    }
    out_text(&call->out, "{\"settled\":");
    out_number(&call->out, (int64_t)(known[ACK_DONE] + known[ACK_RETRY] + known[ACK_AGAIN] + known[ACK_DEAD]));
    write_count(&call->out, "extended", asked[ACK_EXTEND], known[ACK_EXTEND]);
    write_count(&call->out, "released", asked[ACK_RELEASE], known[ACK_RELEASE]);
    out_text(&call->out, ",\"unknown\":[");
    for (size_t i = 0; i < acks->count; i++)
        if (!acks->list[i].known) {
            if (unknown++ > 0)
                out_put(&call->out, ",", 1);
            out_put(&call->out, "\"", 1);
            out_put(&call->out, acks->list[i].lease.data,
                    acks->list[i].lease.size); /* as it came: escaped, if it was */
            out_put(&call->out, "\"", 1);
        }
    out_text(&call->out, "]}");
    free(acking->acks.list);
    free(acking);
    call_answer(call, 200);
}

void ack_post(struct call *call)
{
    struct acking *acking = calloc(1, sizeof *acking);
    if (!acking) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    acking->call = call;
    if (read_acks(acking) < 0) {
        free(acking->acks.list);
        free(acking);
        call_refuse(call);
        return;
    }
    acking->acks.namespaces = call->token ? call->token->namespaces : NULL;
    acking->acks.done = answer;
    acks_settle(&acking->acks, call->worker);
}
