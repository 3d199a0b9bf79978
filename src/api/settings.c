/* SPDX-License-Identifier: MIT */
/* The settings of a namespace as JSON: as users send them, and as they are stored. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/timer.h"
#include "text/base64.h"
#include "text/log.h"
#include "text/when.h"

#define HISTORY_KEEP_LEAST_US UINT64_C(1000000)
#define HISTORY_KEEP_MOST_US (UINT64_C(3650) * 86400 * 1000000)
#define SECRETS_ALLOWED "an array of at most two texts, each \"whsec_\" and 24 to 64 bytes in base64, the new one first"

static int bad(struct problem *problem, const char *field, const char *what)
{
    return problem_set(problem, 400, "invalid-field", field, "%s must be %s", field, what);
}

static int read_duration(struct json value, const char *field, uint64_t none, uint64_t *ret, struct problem *problem)
{
    char room[64];
    *ret = none;
    if (value.kind == JSON_NULL)
        return 0;
    if (value.kind != JSON_STRING || value.text.size > sizeof room || duration_parse(json_string(value, room), ret) < 0)
        return bad(problem, field, "a duration like \"10s\", or null");
    return 0;
}

static int read_rate(struct json value, uint32_t *ret, struct problem *problem)
{
    int64_t rate = 0;
    if (value.kind != JSON_NULL &&
        (value.kind != JSON_NUMBER || !json_integer(value, &rate) || rate < 1 || rate > 1000000))
        return bad(problem, "max_rate", "a whole number of webhooks per second, from 1 to 1000000, or null");
    *ret = (uint32_t)rate;
    return 0;
}

static const char *const only_names[] = {
    [HISTORY_ONLY_NONE] = "none", [HISTORY_ONLY_FAILURES] = "failures", [HISTORY_ONLY_ALL] = "all", NULL};

static int read_only(struct json value, uint32_t *ret, struct problem *problem)
{
    for (uint32_t i = 0; value.kind == JSON_STRING && only_names[i]; i++)
        if (json_is(value, only_names[i])) {
            *ret = i;
            return 0;
        }
    return bad(problem, "history.only", "\"none\", \"failures\" or \"all\"");
}

static int read_keep(struct json value, uint64_t *ret, struct problem *problem)
{
    char room[64];
    uint64_t us;
    if (value.kind != JSON_STRING || value.text.size > sizeof room ||
        duration_parse(json_string(value, room), &us) < 0 || us < HISTORY_KEEP_LEAST_US || us > HISTORY_KEEP_MOST_US)
        return bad(problem, "history.keep", "a duration from \"1s\" to \"3650d\"");
    *ret = us;
    return 0;
}

static int read_history(struct json value, struct history_rule *ret, struct problem *problem)
{
    enum { KEEP, ONLY, BODY };
    static const char *const names[] = {"keep", "only", "body", NULL};
    struct json key, member;
    unsigned given = 0;
    if (value.kind == JSON_NULL)
        return 0;
    if (value.kind != JSON_OBJECT)
        return bad(problem, "history", "an object with keep, only and body, or null");
    for (struct json_walk walk = json_walk(value); json_member(&walk, &key, &member);) {
        int64_t body = -1;
        int r = problem_member(problem, "history", names, key, &given);
        if (r == KEEP)
            r = read_keep(member, &ret->keep_us, problem);
        else if (r == ONLY)
            r = read_only(member, &ret->only, problem);
        else if (r == BODY && (member.kind != JSON_NUMBER || !json_integer(member, &body) || body < 0 || body > 65536))
            r = bad(problem, "history.body", "a number of bytes from 0 to 65536");
        else if (r == BODY)
            ret->body = (uint32_t)body;
        if (r < 0)
            return r;
    }
    return 0;
}

/* As Standard Webhooks writes them: whsec_ and base64. */
static int read_secret(struct json value, fl_bytes *ret, struct problem *problem)
{
    char room[128];
    unsigned char *key;
    size_t size;
    if (value.kind != JSON_STRING || value.text.size > sizeof room)
        return bad(problem, "secrets", SECRETS_ALLOWED);
    fl_bytes text = json_string(value, room);
    if (text.size < 6 || memcmp(text.data, "whsec_", 6) != 0 ||
        base64_decode((fl_bytes){(const char *)text.data + 6, text.size - 6}, &key, &size) < 0)
        return bad(problem, "secrets", SECRETS_ALLOWED);
    *ret = (fl_bytes){key, size};
    return size >= 24 && size <= 64 ? 0 : bad(problem, "secrets", SECRETS_ALLOWED);
}

static int read_secrets(struct json value, struct settings *settings, struct problem *problem)
{
    struct json secret;
    if (value.kind != JSON_ARRAY)
        return bad(problem, "secrets", SECRETS_ALLOWED);
    for (struct json_walk walk = json_walk(value); json_element(&walk, &secret);) {
        if (settings->secret_count == 2)
            return bad(problem, "secrets", SECRETS_ALLOWED);
        settings->secrets[settings->secret_count] = (fl_bytes){0};
        int r = read_secret(secret, &settings->secrets[settings->secret_count], problem);
        settings->secret_count += settings->secrets[settings->secret_count].data != NULL;
        if (r < 0)
            return r;
    }
    return 0;
}

/* Reads settings; a member that is missing has its default. `*ret_given` says which there were. */
static int settings_read(struct json object, struct settings *ret, unsigned *ret_given, struct problem *problem)
{
    enum { SECRETS, RETRY, SKIP_OLDER, MAX_RATE, SPREAD, HISTORY }; /* the order of the bits SETTING_… */
    static const char *const names[] = {"secrets", "retry", "skip_older", "max_rate", "spread", "history", NULL};
    struct json key, value;
    unsigned given = 0;
    *ret = no_settings;
    if (object.kind != JSON_OBJECT)
        return problem_set(problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int r = problem_member(problem, NULL, names, key, &given);
        if (r == SECRETS)
            r = read_secrets(value, ret, problem);
        else if (r == RETRY)
            r = value.kind == JSON_NULL ? 0 : retry_read(value, &ret->retry, problem);
        else if (r == SKIP_OLDER)
            r = read_duration(value, "skip_older", UINT64_MAX, &ret->skip_older_us, problem);
        else if (r == MAX_RATE)
            r = read_rate(value, &ret->max_rate, problem);
        else if (r == SPREAD)
            r = read_duration(value, "spread", 0, &ret->spread_us, problem);
        else if (r == HISTORY)
            r = read_history(value, &ret->history, problem);
        if (r < 0)
            return r;
    }
    *ret_given = given;
    return 0;
}

void settings_write(struct out *out, const struct settings *settings, bool with_secrets)
{
    out_put(out, "{", 1);
    if (with_secrets) {
        out_text(out, "\"secrets\":[");
        for (unsigned i = 0; i < settings->secret_count; i++) {
            out_text(out, i > 0 ? ",\"whsec_" : "\"whsec_");
            out_base64_digits(out, settings->secrets[i]);
            out_put(out, "\"", 1);
        }
        out_put(out, "]", 1);
    } else {
        out_format(out, "\"secret_count\":%u", settings->secret_count);
    }
    if (settings->retry.initial_us > 0) {
        out_key(out, "retry");
        retry_write(out, &settings->retry);
    }
    if (settings->skip_older_us != UINT64_MAX) {
        out_key(out, "skip_older");
        out_duration(out, settings->skip_older_us);
    }
    if (settings->max_rate > 0)
        out_format(out, ",\"max_rate\":%" PRIu32, settings->max_rate);
    if (settings->spread_us > 0) {
        out_key(out, "spread");
        out_duration(out, settings->spread_us);
    }
    if (memcmp(&settings->history, &no_settings.history, sizeof settings->history) != 0) {
        out_text(out, ",\"history\":{");
        out_key(out, "keep");
        out_duration(out, settings->history.keep_us);
        out_format(out, ",\"only\":\"%s\",\"body\":%" PRIu32 "}", only_names[settings->history.only],
                   settings->history.body);
    }
    out_put(out, "}", 1);
}

/* --- As they are stored ------------------------------------------------------------------------------------------- */

int settings_read_stored(fl_bytes stored, fl_bytes ns, struct settings *ret)
{
    struct json object, key, value;
    struct problem problem;
    size_t at;
    const char *why;
    unsigned given;
    struct pauses pauses = {0};
    if (json_parse(stored, &object, &at, &why) < 0 || object.kind != JSON_OBJECT)
        return -1;
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        if (json_is(key, "pauses"))
            pauses_read_stored(value, &pauses);
        if (json_is(key, "settings") && settings_read(value, ret, &given, &problem) < 0) {
            char name[FL_STORE_NAME_MAX + 1] = "";
            memcpy(name, ns.data, ns.size);
            log_error("cannot read the stored settings of a namespace; set them again", "namespace", name, "why",
                      problem.detail, NULL);
        }
    }
    ret->pauses = pauses;
    return 0;
}

void settings_write_stored(struct out *out, const struct settings *settings)
{
    out_text(out, "{\"settings\":");
    settings_write(out, settings, true);
    pauses_write_stored(out, &settings->pauses);
    out_text(out, "}");
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void put_done(void *arg, int result)
{
    struct call *call = arg;
    if (result < 0)
        call_refuse_result(call, result == FL_EXISTS || result == FL_TIMER_NOT_FOUND ? FL_STORE_UNAVAILABLE : result);
    else
        namespace_get(call);
}

/* `kept` are the settings that stay as they are if they are not given. */
static void change_settings(struct call *call, unsigned kept)
{
    struct json body;
    unsigned given = 0;
    struct settings *settings = calloc(1, sizeof *settings);
    if (!settings) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    if (call_json(call, &body) < 0) {
        free(settings);
        return;
    }
    if (settings_read(body, settings, &given, &call->problem) < 0) {
        settings_free(settings);
        call_refuse(call);
        return;
    }
    settings_change(call->worker, call->ns, settings, kept & ~given, put_done, call);
}

void namespace_put(struct call *call)
{
    change_settings(call, SETTING_SECRETS);
}

void namespace_patch(struct call *call)
{
    change_settings(call, SETTING_ALL);
}
