/* SPDX-License-Identifier: MIT */
/* A request that is being handled: its parameters, its rights, its answer. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hex.h"
#include "api/internal.h"
#include "text/json.h"

/* --- Answers ------------------------------------------------------------------------------------------------------ */

void call_free(struct call *call)
{
    out_free(&call->out);
    free(call);
}

void call_drop(struct call *call)
{
    fl__assert(call->request->arg == call);
    call->request->arg = NULL;
    call->request->gone = NULL;
    call_free(call);
}

void call_answer_as(struct call *call, int status, const char *type, const char *extra)
{
    if (call->answered) {
        call->answered(call, status);
        return;
    }
    if (call->out.failed) {
        out_clear(&call->out);
        problem_of_result(&call->problem, FL_NO_MEMORY);
        problem_write(&call->out, &call->problem);
        status = call->problem.status;
        type = PROBLEM_TYPE;
    }
    fl__assert(call->request && call->request->arg == call && status >= 200);
    api_here(call->worker)->counts.problems += status >= 400;
    call->request->arg = NULL;
    http_answer(call->request, status, call->out.size > 0 ? type : NULL, extra, out_bytes(&call->out));
    call_free(call);
}

void call_answer(struct call *call, int status)
{
    call_answer_as(call, status, "application/json", NULL);
}

void call_refuse_with(struct call *call, const char *extra)
{
    fl__assert(call->problem.status >= 400);
    out_clear(&call->out);
    problem_write(&call->out, &call->problem);
    call_answer_as(call, call->problem.status, PROBLEM_TYPE, extra);
}

void call_refuse(struct call *call)
{
    int status = call->problem.status;
    call_refuse_with(call, status == 503 || status == 429 ? "Retry-After: 1\r\n"
                           : status == 401                ? "WWW-Authenticate: Bearer\r\n"
                                                          : NULL);
}

int call_refuse_result(struct call *call, int result)
{
    fl__assert(result < 0);
    problem_of_result(&call->problem, result);
    call_refuse(call);
    return -1;
}

int call_json(struct call *call, struct json *ret)
{
    size_t at;
    const char *why;
    if (json_parse(call->request->body, ret, &at, &why) == 0)
        return 0;
    problem_set(&call->problem, 400, "invalid-json", NULL, "the body is not JSON: %s (at byte %zu)", why, at);
    call_refuse(call);
    return -1;
}

int call_no_fields(struct call *call)
{
    struct json body = {JSON_OBJECT, {"{}", 2}}, key, value;
    if (call->request->body.size > 0 && call_json(call, &body) < 0)
        return -1;
    struct json_walk walk = json_walk(body);
    if (body.kind == JSON_OBJECT && !json_member(&walk, &key, &value))
        return 0;
    problem_set(&call->problem, 400, "invalid-body", NULL, "the request takes no fields; send an empty body");
    call_refuse(call);
    return -1;
}

size_t call_bad_request(int status, const char *what, char *out, size_t size)
{
    struct problem problem;
    struct out text = {0};
    problem_set(&problem, status, status == 503 ? "overloaded" : "bad-request", NULL, "%s", what);
    problem_write(&text, &problem);
    size_t written = text.failed || text.size > size ? 0 : text.size;
    memcpy(out, text.data, written);
    out_free(&text);
    return written;
}

/* --- Queries ------------------------------------------------------------------------------------------------------- */

ssize_t percent_decode(const char *from, size_t size, char *to, size_t room, bool plus)
{
    size_t made = 0;
    for (size_t i = 0; i < size; i++, made++) {
        if (made == room)
            return -1;
        to[made] = plus && from[i] == '+' ? ' ' : from[i];
        if (from[i] != '%')
            continue;
        int high = size - i > 2 ? fl__hex_digit(from[i + 1]) : -1, low = high < 0 ? -1 : fl__hex_digit(from[i + 2]);
        if (low < 0)
            return -1;
        to[made] = (char)(high << 4 | low);
        fl__assert(i + 2 < size);
        i += 2;
    }
    return (ssize_t)made;
}

bool call_next_parameter(fl_bytes *query, fl_bytes *ret_name, fl_bytes *ret_value)
{
    const char *at = query->data, *end = at + query->size;
    if (at == end)
        return false;
    const char *next = memchr(at, '&', query->size), *stop = next ? next : end;
    const char *equals = memchr(at, '=', (size_t)(stop - at)), *value = equals ? equals + 1 : stop;
    *ret_name = (fl_bytes){at, (size_t)((equals ? equals : stop) - at)};
    *ret_value = (fl_bytes){value, (size_t)(stop - value)};
    const char *rest = next ? next + 1 : end;
    *query = (fl_bytes){rest, (size_t)(end - rest)};
    return true;
}

static bool is_text(fl_bytes bytes, const char *text)
{
    return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* The value of the parameter that is there once. */
static int take_parameter(struct call *call, const char *name, fl_bytes value, char *room, size_t size, fl_bytes *ret)
{
    ssize_t made = percent_decode(value.data, value.size, room, size, true);
    if (made < 0)
        return problem_set(&call->problem, 400, "invalid-field", name,
                           "%s is too long, or its percent-encoding is wrong", name);
    *ret = (fl_bytes){room, (size_t)made};
    return 1;
}

int call_query(struct call *call, const char *name, char *room, size_t size, fl_bytes *ret)
{
    fl_bytes query = call->request->query, given, value;
    int found = 0;
    while (found >= 0 && call_next_parameter(&query, &given, &value))
        if (is_text(given, name))
            found = found ? problem_set(&call->problem, 400, "invalid-field", name, "%s is given twice", name)
                          : take_parameter(call, name, value, room, size, ret);
    return found;
}

int call_count(struct call *call, const char *name, int64_t most, uint64_t *ret)
{
    char room[16];
    fl_bytes text = {0};
    int64_t number;
    int given = call_query(call, name, room, sizeof room, &text);
    if (given <= 0)
        return given;
    char last = ' ';
    if (text.size > 0)
        last = ((const char *)text.data)[text.size - 1];
    if (last < '0' || last > '9' || !json_integer((struct json){JSON_NUMBER, text}, &number) || number < 1 ||
        number > most)
        return problem_set(&call->problem, 400, "invalid-field", name, "%s must be a whole number from 1 to %" PRId64,
                           name, most);
    *ret = (uint64_t)number;
    return 0;
}

int call_true(struct call *call, const char *name, bool *ret)
{
    char room[8];
    fl_bytes text = {0};
    int given = call_query(call, name, room, sizeof room, &text);
    if (given > 0 && !is_text(text, "true"))
        return problem_set(&call->problem, 400, "invalid-field", name, "%s must be true, or not given", name);
    *ret = given > 0;
    return given < 0 ? -1 : 0;
}

int call_check_query(struct call *call, const char *const *known)
{
    fl_bytes query = call->request->query, name, value;
    while (call_next_parameter(&query, &name, &value)) {
        bool found = name.size + value.size == 0;
        for (int i = 0; known[i] && !found; i++)
            found = is_text(name, known[i]);
        if (!found)
            return problem_unknown(&call->problem, "parameter", NULL, name, known);
    }
    return 0;
}

/* --- Rights -------------------------------------------------------------------------------------------------------- */

bool call_may(const struct call *call, unsigned right, fl_bytes ns)
{
    return !call->token || token_allows(call->token, right, ns);
}

bool call_check_token(struct call *call)
{
    unsigned flags = call->route->flags, right = flags & (RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN);
    if (call->tokens->count == 0 || (right == 0 && !(flags & SIGNED)))
        return true;
    if (!call->token)
        return problem_set(&call->problem, 401, "unauthorized", NULL,
                           "the request needs a valid token; send 'Authorization: Bearer TOKEN'") == 0;
    bool may = flags & SIGNED          ? true
               : flags & ANY_NAMESPACE ? (call->token->rights & right) != 0
                                       : call_may(call, right, call->ns);
    return may || problem_set(&call->problem, 403, "forbidden", NULL,
                              "the token has no right to do this in this namespace") == 0;
}

bool call_is_let_in(struct call *call)
{
    const struct tokens *tokens = atomic_load_explicit(&api_of(call->worker)->tokens, memory_order_acquire);
    if (tokens != call->tokens) {
        call->tokens = tokens;
        call->token = call->token && tokens->count > 0 ? tokens_same(tokens, call->token) : NULL;
    }
    return call_check_token(call);
}
