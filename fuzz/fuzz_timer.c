/* SPDX-License-Identifier: MIT */
/* What users send as a timer: bodies of requests, and lines of batches, of which the input is a few. Whatever it is, it is
 * refused with a problem that can be written, or it is a timer that the engine takes; and a timer that is shown can be sent
 * again and is the same. The first byte says what is allowed. */

#include <assert.h>
#include <string.h>

#include "api/timer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int64_t now_us = INT64_C(1614265330000000);

static int read_text(fl_bytes text, const struct timer_rules *rules, struct scratch *scratch, struct timer_in *ret,
                     struct problem *problem)
{
    struct json object;
    size_t at;
    const char *why;
    if (json_parse(text, &object, &at, &why) == 0)
        return timer_read(object, rules, scratch, ret, problem);
    assert(at <= text.size && why);
    return problem_set(problem, 400, "invalid-json", NULL, "%s", why);
}

static void check_json(const struct out *out)
{
    struct json object;
    size_t at;
    const char *why;
    assert(!out->failed && json_parse(out_bytes(out), &object, &at, &why) == 0 && object.kind == JSON_OBJECT);
}

static void check_problem(const struct problem *problem)
{
    struct out out = {0};
    assert(problem->status >= 400 && problem->status < 600 && problem->type && problem->detail[0]);
    problem_write(&out, problem);
    check_json(&out);
    out_free(&out);
}

static bool same(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static bool is_of_the_store(struct json key)
{
    return json_is(key, "id") || json_is(key, "created") || json_is(key, "attempt");
}

/* Without what the server adds. */
static void copy_members(struct json object, struct out *to)
{
    struct json key, value;
    out_text(to, "{\"op\":\"create\"");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);)
        if (!is_of_the_store(key)) {
            out_text(to, ",");
            out_put(to, key.text.data, key.text.size);
            out_text(to, ":");
            out_put(to, value.text.data, value.text.size);
        }
    out_text(to, "}");
}

/* As `foliot export` and `foliot import` do it. */
static void check_again(const struct timer_in *in, const struct timer_rules *rules)
{
    struct out shown = {0}, sent = {0};
    struct json object;
    struct scratch scratch = {0};
    struct timer_in again;
    struct problem problem;
    size_t at;
    const char *why;
    const fl_durable *one = &in->timer, *other = &again.timer;
    out_put(&shown, "{", 1);
    timer_write(&shown, 7, one, false);
    out_put(&shown, "}", 1);
    check_json(&shown);
    json_parse(out_bytes(&shown), &object, &at, &why);
    copy_members(object, &sent);
    assert(read_text(out_bytes(&sent), rules, &scratch, &again, &problem) == 0);
    assert(one->due_us == other->due_us && one->timeout_us == other->timeout_us);
    assert(same(one->ns, other->ns) && same(one->name, other->name) && same(one->target, other->target));
    assert(same(one->payload, other->payload) && same(one->headers, other->headers));
    assert(memcmp(&one->retry, &other->retry, sizeof one->retry) == 0);
    scratch_free(&scratch);
    out_free(&shown);
    out_free(&sent);
}

static void check_timer(const struct timer_in *in, const struct timer_rules *rules)
{
    const fl_durable *timer = &in->timer;
    assert((in->given & ~rules->allowed) == 0);
    assert(timer->due_us < FL_STORE_TIME_END && timer->payload.size <= rules->max_payload + 1);
    assert(!(in->given & GAVE_NAME) || name_is_good(timer->name));
    assert(!(in->given & GAVE_NAMESPACE) || name_is_good(timer->ns));
    if (in->given & (GAVE_DUE | GAVE_AFTER) && in->given & GAVE_NAMESPACE)
        check_again(in, rules);
}

static void check_line(fl_bytes line, const struct timer_rules *rules)
{
    struct scratch scratch = {0};
    struct timer_in in;
    struct problem problem;
    if (read_text(line, rules, &scratch, &in, &problem) < 0)
        check_problem(&problem);
    else
        check_timer(&in, rules);
    scratch_free(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct timer_rules rules = {.allowed =
                                    GAVE_CONTENT | GAVE_OP | GAVE_NAMESPACE | GAVE_NAME | GAVE_ID | GAVE_ONLY_NEW,
                                .now_us = now_us,
                                .allow_private = data[0] & 1,
                                .max_payload = data[0] & 2 ? 100 : 1 << 20};
    if (data[0] & 4)
        rules.allowed = GAVE_CONTENT;
    const char *at = (const char *)data + 1, *end = (const char *)data + size;
    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        fl_bytes line = {at, (size_t)((eol && !(data[0] & 8) ? eol : end) - at)};
        check_line(line, &rules);
        at += line.size + 1;
    }
    return 0;
}
