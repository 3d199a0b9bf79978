/* SPDX-License-Identifier: MIT */
/* See timer.h. Every member of a timer has a line in one table and a function that reads it. */

#include "api/timer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "node/node.h"
#include "text/base64.h"
#include "text/civil.h"
#include "text/when.h"
#include "text/zone.h"
#include "webhook/webhook.h"

enum { HEADERS_MOST = 100, CIVIL_MOST = 64 };

_Static_assert((int)CIVIL_MOST == (int)ZONE_NAME_MAX, "one limit for both");

/* --- Memory ------------------------------------------------------------------------------------------------------- */

struct scratch_block {
    struct scratch_block *next;
    char bytes[];
};

void *scratch_take(struct scratch *scratch, size_t size)
{
    struct scratch_block *block = malloc(sizeof *block + size);
    if (!block)
        return NULL;
    block->next = scratch->first;
    scratch->first = block;
    return block->bytes;
}

void scratch_free(struct scratch *scratch)
{
    while (scratch->first) {
        struct scratch_block *next = scratch->first->next;
        free(scratch->first);
        scratch->first = next;
    }
}

/* --- Members ------------------------------------------------------------------------------------------------------ */

struct reading {
    const struct timer_rules *rules;
    struct scratch *scratch;
    struct timer_in *in;
    struct problem *problem;
    const char *field;
};

static int bad(struct reading *r, const char *why)
{
    problem_set(r->problem, 400, "invalid-field", r->field, "%s %s", r->field, why);
    return -1;
}

static int no_memory(struct reading *r)
{
    problem_of_result(r->problem, FL_NO_MEMORY);
    return -1;
}

static int read_text(struct reading *r, struct json value, fl_bytes *ret)
{
    char *room = NULL;
    if (value.kind != JSON_STRING)
        return bad(r, "must be a string");
    if (memchr(value.text.data, '\\', value.text.size) && !(room = scratch_take(r->scratch, value.text.size)))
        return no_memory(r);
    *ret = json_string(value, room);
    return 0;
}

static int read_due_number(struct reading *r, struct json value)
{
    int64_t *us = &r->in->timer.due_us;
    if (!json_milliseconds(value, us))
        return bad(r, "must be milliseconds since 1970, if it is a number");
    if (*us >= WHEN_PLAUSIBLE_US && *us < FL_STORE_TIME_END)
        return 0;
    return problem_set(r->problem, 400, "invalid-field", r->field,
                       "%s must be milliseconds since 1970, from the year 2001 to 3111%s", r->field,
                       when_hint(*us / 1000));
}

static int bad_civil(struct reading *r, const char *field, const char *why)
{
    return problem_set(r->problem, 400, "invalid-field", field, "%s %s", field, why);
}

static int read_civil_text(struct reading *r, const char *field, struct json value, fl_bytes *ret)
{
    if (value.kind != JSON_STRING || read_text(r, value, ret) < 0)
        return bad_civil(r, field, "must be a string");
    return ret->size <= CIVIL_MOST ? 0 : bad_civil(r, field, "must have at most 64 bytes");
}

/* When it is that time on the clocks of its zone. */
static int place_civil(struct reading *r)
{
    fl_durable *timer = &r->in->timer;
    struct zone *zone;
    int64_t local_us;
    char why[ZONE_ERROR_TEXT];
    if (civil_parse_time(timer->local, &local_us) < 0)
        return bad_civil(r, "due.local", "must be a local time without an offset, like \"2031-06-01T09:00:00\"");
    int result = zones_find(r->rules->zones, timer->zone, &zone, why);
    if (result < 0)
        return problem_set(r->problem, 400, "invalid-field", "due.zone", "due.zone: %s", why);
    timer->due_us = zone_place_us(zone, local_us);
    zone_unref(zone);
    return timer->due_us < WHEN_PLAUSIBLE_US ? bad_civil(r, "due.local", "must not be before 2001") : 0;
}

/* {"local": "2031-06-01T09:00:00", "zone": "Europe/Berlin"} */
static int read_civil(struct reading *r, struct json value)
{
    enum { LOCAL, ZONE };
    static const char *const names[] = {"local", "zone", NULL};
    struct json key, member;
    unsigned given = 0;
    for (struct json_walk walk = json_walk(value); json_member(&walk, &key, &member);) {
        int which = problem_member(r->problem, "due", names, key, &given);
        if (which == LOCAL)
            which = read_civil_text(r, "due.local", member, &r->in->timer.local);
        else if (which == ZONE)
            which = read_civil_text(r, "due.zone", member, &r->in->timer.zone);
        if (which < 0)
            return -1;
    }
    if (given != (1u << LOCAL | 1u << ZONE))
        return bad(r, "needs local and zone, if it is an object");
    return place_civil(r);
}

static int read_due(struct reading *r, struct json value)
{
    fl_bytes text = {0};
    fl_durable *timer = &r->in->timer;
    if (value.kind == JSON_OBJECT)
        return read_civil(r, value);
    if (value.kind == JSON_NUMBER)
        return read_due_number(r, value);
    if (value.kind != JSON_STRING || read_text(r, value, &text) < 0 || when_parse(text, &timer->due_us) < 0)
        return bad(
            r, "must be a time like \"2030-01-31T09:00:00+01:00\" (RFC 3339), milliseconds since 1970, or an object of "
               "local and zone");
    return timer->due_us < WHEN_PLAUSIBLE_US ? bad(r, "must not be before 2001; for a timer that fires at once, use "
                                                      "\"after\": \"0s\"")
                                             : 0;
}

static int read_duration(struct reading *r, struct json value, uint64_t *ret_us)
{
    fl_bytes text = {0};
    if (value.kind != JSON_STRING || read_text(r, value, &text) < 0 || duration_parse(text, ret_us) < 0)
        return bad(r, "must be a duration like \"500ms\", \"90s\" or \"1h30m\"");
    return 0;
}

static int read_after(struct reading *r, struct json value)
{
    uint64_t us = 0;
    if (read_duration(r, value, &us) < 0)
        return -1;
    r->in->timer.due_us = r->rules->now_us + (int64_t)us;
    return 0;
}

static int read_target(struct reading *r, struct json value)
{
    char why[160];
    if (value.kind == JSON_NULL)
        return 0;
    fl_bytes *target = &r->in->timer.target;
    if (read_text(r, value, target) < 0)
        return -1;
    bool allowed = r->rules->allow_private || webhook_is_own(r->rules->own, *target);
    if (webhook_check_url(*target, allowed, why, sizeof why) < 0)
        return problem_set(r->problem, 400, "invalid-field", r->field, "target: %s", why);
    return 0;
}

static int check_payload(struct reading *r, size_t size)
{
    if (size <= r->rules->max_payload)
        return 0;
    return problem_set(r->problem, 413, "too-large", r->field, "%s is larger than %zu bytes", r->field,
                       r->rules->max_payload);
}

static int read_payload(struct reading *r, struct json value)
{
    r->in->timer.payload = value.text;
    return check_payload(r, value.text.size);
}

static int read_payload_base64(struct reading *r, struct json value)
{
    fl_bytes text = {0};
    if (read_text(r, value, &text) < 0)
        return -1;
    unsigned char *room = scratch_take(r->scratch, text.size + 2);
    if (!room)
        return no_memory(r);
    room[0] = '\0';
    ssize_t size = base64_decode_to(text, room + 1);
    if (size < 0)
        return bad(r, "is not base64");
    r->in->timer.payload = (fl_bytes){room, (size_t)size + 1};
    return check_payload(r, (size_t)size);
}

/* Whether one of these headers has that name, however it is written: name, NUL, value, NUL, and so on. */
static bool has_header(const char *at, const char *end, fl_bytes name)
{
    while (at < end) {
        size_t size = strlen(at);
        if (size == name.size && strncasecmp(at, name.data, size) == 0)
            return true;
        at += size + 1;
        at += strlen(at) + 1;
    }
    return false;
}

static int read_headers(struct reading *r, struct json value)
{
    struct json name, content;
    unsigned count = 0;
    if (value.kind == JSON_NULL)
        return 0;
    if (value.kind != JSON_OBJECT)
        return bad(r, "must be an object of strings");
    char *room = scratch_take(r->scratch, value.text.size + 2), *to = room;
    if (!room)
        return no_memory(r);
    for (struct json_walk walk = json_walk(value); json_member(&walk, &name, &content);) {
        fl_bytes parts[2] = {{0}};
        char why[160];
        if (read_text(r, name, &parts[0]) < 0 || read_text(r, content, &parts[1]) < 0)
            return bad(r, "must be an object of strings");
        if (webhook_check_header(parts[0], parts[1], why, sizeof why) < 0)
            return problem_set(r->problem, 400, "invalid-field", r->field, "headers: %s", why);
        if (count++ == HEADERS_MOST)
            return bad(r, "must not be more than 100");
        if (has_header(room, to, parts[0]))
            return bad(r, "must have different names");
        for (int i = 0; i < 2; i++) {
            memcpy(to, parts[i].data, parts[i].size);
            to += parts[i].size;
            *to++ = '\0';
        }
    }
    r->in->timer.headers = (fl_bytes){room, (size_t)(to - room)};
    return 0;
}

static int read_timeout(struct reading *r, struct json value)
{
    if (value.kind == JSON_NULL)
        return 0;
    uint64_t *us = &r->in->timer.timeout_us;
    if (read_duration(r, value, us) < 0)
        return -1;
    if (*us < 1000 || *us > 3600 * 1000000ull)
        return bad(r, "must be from 1ms to 1h");
    return 0;
}

static int read_max_wait(struct reading *r, struct json value)
{
    if (value.kind == JSON_NULL)
        return 0;
    uint64_t *us = &r->in->timer.max_wait_us;
    if (read_duration(r, value, us) < 0)
        return -1;
    return *us < 1000 ? bad(r, "must be at least 1ms") : 0;
}

static int read_merge(struct reading *r, struct json value)
{
    r->in->timer.merge_first = json_is(value, "first");
    return r->in->timer.merge_first || json_is(value, "last") ? 0 : bad(r, "must be \"last\" or \"first\"");
}

static int read_retry(struct reading *r, struct json value)
{
    return value.kind == JSON_NULL ? 0 : retry_read(value, &r->in->timer.retry, r->problem);
}

static int read_op(struct reading *r, struct json value)
{
    static const char *const names[] = {"create", "update", "cancel"};
    for (int i = 0; i < 3; i++)
        if (json_is(value, names[i])) {
            r->in->op = i;
            return 0;
        }
    return bad(r, "must be " TIMER_OPS);
}

static int read_name(struct reading *r, struct json value, fl_bytes *ret)
{
    if (read_text(r, value, ret) < 0)
        return -1;
    if (!name_is_good(*ret))
        return bad(r, "must be 1 to 255 bytes without control characters");
    return 0;
}

static int read_namespace(struct reading *r, struct json value)
{
    return read_name(r, value, &r->in->timer.ns);
}

static int read_own_name(struct reading *r, struct json value)
{
    return read_name(r, value, &r->in->timer.name);
}

static int read_id(struct reading *r, struct json value)
{
    return read_text(r, value, &r->in->id);
}

static int read_only_new(struct reading *r, struct json value)
{
    if (value.kind != JSON_TRUE && value.kind != JSON_FALSE)
        return bad(r, "must be true or false");
    r->in->only_new = value.kind == JSON_TRUE;
    return 0;
}

static const struct member {
    const char *name;
    unsigned gave;
    int (*read)(struct reading *r, struct json value);
} members[] = {
    {"due", GAVE_DUE, read_due},
    {"after", GAVE_AFTER, read_after},
    {"target", GAVE_TARGET, read_target},
    {"payload", GAVE_PAYLOAD, read_payload},
    {"op", GAVE_OP, read_op},
    {"namespace", GAVE_NAMESPACE, read_namespace},
    {"name", GAVE_NAME, read_own_name},
    {"payload_base64", GAVE_PAYLOAD_BASE64, read_payload_base64},
    {"headers", GAVE_HEADERS, read_headers},
    {"timeout", GAVE_TIMEOUT, read_timeout},
    {"retry", GAVE_RETRY, read_retry},
    {"max_wait", GAVE_MAX_WAIT, read_max_wait},
    {"merge", GAVE_MERGE, read_merge},
    {"id", GAVE_ID, read_id},
    {"only_new", GAVE_ONLY_NEW, read_only_new},
};

static const struct member *find_member(struct json key)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (json_is(key, members[i].name))
            return &members[i];
    return NULL;
}

static void list_members(unsigned allowed, const char *names[sizeof members / sizeof *members + 1])
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (members[i].gave & allowed)
            names[count++] = members[i].name;
    names[count] = NULL;
}

static int unknown_member(struct problem *problem, struct json key, unsigned allowed)
{
    const char *names[sizeof members / sizeof *members + 1];
    list_members(allowed, names);
    return problem_unknown_member(problem, NULL, key, names);
}

int timer_refuse_member(struct problem *problem, unsigned given, unsigned allowed)
{
    const char *names[sizeof members / sizeof *members + 1];
    size_t i = 0;
    while (!(members[i].gave & given))
        i++;
    list_members(allowed, names);
    return problem_unknown(problem, "field", NULL, (fl_bytes){members[i].name, strlen(members[i].name)}, names);
}

static int check_together(struct reading *r)
{
    unsigned given = r->in->given;
    if ((given & GAVE_DUE) && (given & GAVE_AFTER))
        return problem_set(r->problem, 400, "invalid-field", "after", "give due or after, not both");
    if ((given & GAVE_PAYLOAD) && (given & GAVE_PAYLOAD_BASE64))
        return problem_set(r->problem, 400, "invalid-field", "payload_base64",
                           "give payload or payload_base64, not both");
    if (r->in->timer.due_us >= FL_STORE_TIME_END)
        return problem_set(r->problem, 400, "invalid-field", given & GAVE_DUE ? "due" : "after",
                           "%s is after the year 3111, which is the last", given & GAVE_DUE ? "due" : "after");
    return 0;
}

int timer_read(struct json object, const struct timer_rules *rules, struct scratch *scratch, struct timer_in *ret,
               struct problem *problem)
{
    struct json key, value;
    struct reading reading = {.rules = rules, .scratch = scratch, .in = ret, .problem = problem};
    *ret = (struct timer_in){0};
    if (object.kind != JSON_OBJECT)
        return problem_set(problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        const struct member *member = find_member(key);
        if (!member || !(member->gave & rules->allowed))
            return unknown_member(problem, key, rules->allowed);
        if (ret->given & member->gave)
            return problem_set(problem, 400, "invalid-field", member->name, "%s is given twice", member->name);
        ret->given |= member->gave;
        reading.field = member->name;
        if (member->read(&reading, value) < 0)
            return -1;
    }
    return check_together(&reading);
}

int timer_read_content(struct json key, struct json value, const struct timer_rules *rules, struct scratch *scratch,
                       struct timer_in *in, struct problem *problem)
{
    const struct member *member = find_member(key);
    if (!member || !(member->gave & GAVE_CONTENT & ~(GAVE_DUE | GAVE_AFTER)))
        return 0;
    if (in->given & member->gave)
        return problem_set(problem, 400, "invalid-field", member->name, "%s is given twice", member->name);
    in->given |= member->gave;
    struct reading reading = {.field = member->name, .rules = rules, .scratch = scratch, .in = in, .problem = problem};
    return member->read(&reading, value) < 0 ? -1 : 1;
}

unsigned timer_update_flags(const struct timer_in *in)
{
    unsigned given = in->given;
    return (given & (GAVE_DUE | GAVE_AFTER) ? FL_OP_SET_DUE : 0) | (given & GAVE_TARGET ? FL_OP_SET_TARGET : 0) |
           (given & (GAVE_PAYLOAD | GAVE_PAYLOAD_BASE64) ? FL_OP_SET_PAYLOAD : 0) |
           (given & GAVE_TIMEOUT ? FL_OP_SET_TIMEOUT : 0) | (given & GAVE_RETRY ? FL_OP_SET_RETRY : 0) |
           (given & GAVE_HEADERS ? FL_OP_SET_HEADERS : 0) | (given & GAVE_MAX_WAIT ? FL_OP_SET_MAX_WAIT : 0) |
           (given & GAVE_MERGE ? FL_OP_SET_MERGE : 0);
}

bool name_is_good(fl_bytes text)
{
    const unsigned char *at = text.data;
    if (text.size == 0 || text.size > FL_STORE_NAME_MAX || !utf8_is_good(text))
        return false;
    for (size_t i = 0; i < text.size; i++)
        if (at[i] < 0x20 || at[i] == 0x7f || (at[i] == 0xc2 && at[i + 1] < 0xa0)) /* U+0080 to U+009F */
            return false;
    return true;
}
