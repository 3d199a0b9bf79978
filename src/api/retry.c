/* SPDX-License-Identifier: MIT */
/* Retry policies as JSON. */

#include "api/timer.h"
#include "text/when.h"

static int read_count(struct json value, uint32_t *ret, struct problem *problem)
{
    int64_t count;
    if (value.kind != JSON_NUMBER || !json_integer(value, &count) || count < 0 || count > UINT32_MAX)
        return problem_set(problem, 400, "invalid-field", "retry.max_attempts",
                           "retry.max_attempts must be a whole number, 0 for no limit");
    *ret = (uint32_t)count;
    return 0;
}

static int read_multiplier(struct json value, uint32_t *ret, struct problem *problem)
{
    double multiplier = value.kind == JSON_NUMBER ? json_double(value) : 0;
    if (!(multiplier >= 1 && multiplier <= 1000))
        return problem_set(problem, 400, "invalid-field", "retry.multiplier",
                           "retry.multiplier must be a number from 1 to 1000");
    *ret = (uint32_t)(multiplier * 1000 + 0.5);
    return 0;
}

static int read_interval(const char *field, struct json value, uint64_t *ret, struct problem *problem)
{
    char room[64];
    if (value.kind != JSON_STRING || value.text.size > sizeof room || duration_parse(json_string(value, room), ret) < 0)
        return problem_set(problem, 400, "invalid-field", field, "%s must be a duration like \"500ms\" or \"1h30m\"",
                           field);
    return 0;
}

/* What is not given is as in the default policy. */
int retry_read(struct json object, fl_retry *ret, struct problem *problem)
{
    enum { MAX_ATTEMPTS, INITIAL, MULTIPLIER, MAX_INTERVAL, MAX_AGE };
    static const char *const names[] = {"max_attempts", "initial", "multiplier", "max_interval", "max_age", NULL};
    struct json key, value;
    fl_retry retry = {.max_attempts = 10, .multiplier_1000 = 2000, .initial_us = 1000000};
    unsigned given = 0;
    if (object.kind != JSON_OBJECT)
        return problem_set(problem, 400, "invalid-field", "retry", "retry must be an object");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int r = problem_member(problem, "retry", names, key, &given);
        if (r == MAX_ATTEMPTS)
            r = read_count(value, &retry.max_attempts, problem);
        else if (r == INITIAL)
            r = read_interval("retry.initial", value, &retry.initial_us, problem);
        else if (r == MULTIPLIER)
            r = read_multiplier(value, &retry.multiplier_1000, problem);
        else if (r == MAX_INTERVAL)
            r = read_interval("retry.max_interval", value, &retry.max_interval_us, problem);
        else if (r == MAX_AGE)
            r = read_interval("retry.max_age", value, &retry.max_age_us, problem);
        if (r < 0)
            return r;
    }
    if (retry.initial_us == 0)
        return problem_set(problem, 400, "invalid-field", "retry.initial", "retry.initial must be longer than 0");
    if (!(given & 1u << MAX_INTERVAL))
        retry.max_interval_us = retry.initial_us > 3600 * 1000000ull ? retry.initial_us : 3600 * 1000000ull;
    if (retry.max_interval_us < retry.initial_us)
        return problem_set(problem, 400, "invalid-field", "retry.max_interval",
                           "retry.max_interval must not be shorter than retry.initial");
    *ret = retry;
    return 0;
}

void retry_write(struct out *out, const fl_retry *retry)
{
    char multiplier[THOUSANDTHS_TEXT];
    out_text(out, "{\"max_attempts\":");
    out_number(out, retry->max_attempts);
    out_key(out, "initial");
    out_duration(out, retry->initial_us);
    out_key(out, "multiplier");
    out_put(out, multiplier, thousandths_format(retry->multiplier_1000, multiplier));
    out_key(out, "max_interval");
    out_duration(out, retry->max_interval_us);
    if (retry->max_age_us > 0) {
        out_key(out, "max_age");
        out_duration(out, retry->max_age_us);
    }
    out_put(out, "}", 1);
}
