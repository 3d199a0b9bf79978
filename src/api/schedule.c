/* SPDX-License-Identifier: MIT */
/* A schedule as JSON. One table has its own members; those of its timers are read as a timer's are. */

#include "api/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "text/civil.h"
#include "text/when.h"

struct reading {
    const char *field;
    struct scratch *scratch;
    struct schedule *s;
    struct problem *problem;
};

static int bad(const struct reading *r, const char *what)
{
    return problem_set(r->problem, 400, "invalid-field", r->field, "%s %s", r->field, what);
}

static int read_text(const struct reading *r, struct json value, fl_bytes *ret)
{
    char *room = NULL;
    if (value.kind == JSON_NULL) {
        *ret = (fl_bytes){0};
        return 0;
    }
    if (value.kind != JSON_STRING)
        return bad(r, "must be a string");
    if (memchr(value.text.data, '\\', value.text.size) && !(room = scratch_take(r->scratch, value.text.size))) {
        problem_of_result(r->problem, FL_NO_MEMORY);
        return -1;
    }
    *ret = json_string(value, room);
    return ret->size > 0 ? 0 : bad(r, "must not be empty");
}

static int read_duration(const struct reading *r, struct json value, uint64_t least_us, uint64_t *ret)
{
    char room[64];
    if (value.kind == JSON_NULL) {
        *ret = 0;
        return 0;
    }
    if (value.kind != JSON_STRING || value.text.size > sizeof room || duration_parse(json_string(value, room), ret) < 0)
        return bad(r, "must be a duration like \"30s\" or \"1h30m\"");
    return *ret >= least_us
               ? 0
               : bad(r, least_us == RULE_EVERY_MIN_US ? "must be at least 100ms" : "must be longer than 0");
}

static int read_time(const struct reading *r, struct json value, int64_t *ret, bool *ret_has)
{
    char room[64];
    *ret = 0;
    *ret_has = value.kind != JSON_NULL;
    if (value.kind == JSON_NULL)
        return 0;
    if (value.kind == JSON_NUMBER && json_milliseconds(value, ret) && *ret >= WHEN_PLAUSIBLE_US &&
        *ret < FL_STORE_TIME_END)
        return 0;
    if (value.kind == JSON_STRING && value.text.size <= sizeof room && when_parse(json_string(value, room), ret) == 0)
        return *ret >= WHEN_PLAUSIBLE_US && *ret < FL_STORE_TIME_END ? 0 : bad(r, "must be from the year 2001 to 3111");
    return bad(r, "must be a time like \"2030-01-31T09:00:00+01:00\" (RFC 3339) or milliseconds since 1970");
}

static int read_cron(struct reading *r, struct json value)
{
    return read_text(r, value, &r->s->cron);
}

static int read_every(struct reading *r, struct json value)
{
    return read_duration(r, value, RULE_EVERY_MIN_US, &r->s->every_us);
}

static int read_zone(struct reading *r, struct json value)
{
    return read_text(r, value, &r->s->zone);
}

static int read_start(struct reading *r, struct json value)
{
    return read_time(r, value, &r->s->start_us, &r->s->has_start);
}

static int read_end(struct reading *r, struct json value)
{
    return read_time(r, value, &r->s->end_us, &r->s->has_end);
}

static int read_count(struct reading *r, struct json value)
{
    int64_t count = 0;
    if (value.kind != JSON_NULL && (value.kind != JSON_NUMBER || !json_integer(value, &count) || count < 1))
        return bad(r, "must be a whole number of at least 1");
    r->s->count = (uint64_t)count;
    return 0;
}

static int read_except(struct reading *r, struct json value)
{
    struct json element;
    size_t count = 0;
    if (value.kind != JSON_ARRAY && value.kind != JSON_NULL)
        return bad(r, "must be an array of dates and times like \"2026-12-25\" and \"2026-12-31T09:00\"");
    r->s->except = NULL;
    r->s->except_count = 0;
    if (value.kind == JSON_NULL)
        return 0;
    for (struct json_walk walk = json_walk(value); json_element(&walk, &element);)
        count++;
    if (count > RULE_EXCEPT_MAX)
        return bad(r, "must have at most 1000 elements");
    fl_bytes *all = scratch_take(r->scratch, (count + 1) * sizeof *all);
    if (!all) {
        problem_of_result(r->problem, FL_NO_MEMORY);
        return -1;
    }
    count = 0;
    for (struct json_walk walk = json_walk(value); json_element(&walk, &element); count++)
        if (element.kind == JSON_NULL || read_text(r, element, &all[count]) < 0)
            return bad(r, "must be an array of dates and times like \"2026-12-25\" and \"2026-12-31T09:00\"");
    r->s->except = all;
    r->s->except_count = count;
    return 0;
}

/* One of the names; null: the first. */
static int read_choice(const struct reading *r, struct json value, const char *const names[3], const char *what)
{
    if (value.kind == JSON_NULL)
        return 0;
    for (int i = 0; i < 3 && names[i]; i++)
        if (value.kind == JSON_STRING && json_is(value, names[i]))
            return i;
    return bad(r, what);
}

static const char *const missed_names[] = {"last", "all", "skip"};
static const char *const overlap_names[] = {"allow", "skip", "queue"};

static int read_missed(struct reading *r, struct json value)
{
    int choice = read_choice(r, value, missed_names, "must be \"last\", \"all\" or \"skip\"");
    r->s->missed = choice < 0 ? MISSED_LAST : (enum schedule_missed)choice;
    return choice < 0 ? -1 : 0;
}

static int read_overlap(struct reading *r, struct json value)
{
    int choice = read_choice(r, value, overlap_names, "must be \"allow\", \"skip\" or \"queue\"");
    r->s->overlap = choice < 0 ? OVERLAP_ALLOW : (enum schedule_overlap)choice;
    return choice < 0 ? -1 : 0;
}

static int read_grace(struct reading *r, struct json value)
{
    r->s->has_grace = value.kind != JSON_NULL;
    return read_duration(r, value, 0, &r->s->grace_us);
}

static int read_missed_within(struct reading *r, struct json value)
{
    return read_duration(r, value, 1, &r->s->missed_within_us);
}

static int read_window(struct reading *r, struct json value)
{
    return read_duration(r, value, 0, &r->s->window_us);
}

static int read_gap(struct reading *r, struct json value)
{
    static const char *const names[3] = {"after", "skip", NULL};
    if (read_choice(r, value, names, "must be \"after\" or \"skip\"") < 0)
        return -1;
    return read_text(r, value, &r->s->gap);
}

static int read_repeat(struct reading *r, struct json value)
{
    static const char *const names[3] = {"first", "both", NULL};
    if (read_choice(r, value, names, "must be \"first\" or \"both\"") < 0)
        return -1;
    return read_text(r, value, &r->s->repeat);
}

static int read_paused(struct reading *r, struct json value)
{
    if (value.kind != JSON_TRUE && value.kind != JSON_FALSE && value.kind != JSON_NULL)
        return bad(r, "must be true or false");
    r->s->paused = value.kind == JSON_TRUE;
    return 0;
}

static const struct member {
    const char *name;
    int (*read)(struct reading *r, struct json value);
} members[] = {
    {"cron", read_cron},       {"every", read_every},
    {"zone", read_zone},       {"start", read_start},
    {"end", read_end},         {"count", read_count},
    {"except", read_except},   {"missed", read_missed},
    {"grace", read_grace},     {"missed_within", read_missed_within},
    {"overlap", read_overlap}, {"window", read_window},
    {"gap", read_gap},         {"repeat", read_repeat},
    {"paused", read_paused},
};

enum { MEMBERS = sizeof members / sizeof *members };

static int find_member(struct json key)
{
    for (int i = 0; i < MEMBERS; i++)
        if (json_is(key, members[i].name))
            return i;
    return -1;
}

static int unknown(struct json key, struct problem *problem)
{
    static const char *const content[] = {"target", "payload", "payload_base64", "headers", "timeout", "retry"};
    const char *names[MEMBERS + sizeof content / sizeof *content + 1] = {0};
    size_t count = 0;
    for (; count < MEMBERS; count++)
        names[count] = members[count].name;
    for (size_t i = 0; i < sizeof content / sizeof *content; i++)
        names[count++] = content[i];
    return problem_unknown_member(problem, NULL, key, names);
}

/* The members of its timers, which replace those that are there. */
static void take_content(fl_durable *content, const struct timer_in *in)
{
    if (in->given & GAVE_TARGET)
        content->target = in->timer.target;
    if (in->given & (GAVE_PAYLOAD | GAVE_PAYLOAD_BASE64))
        content->payload = in->timer.payload;
    if (in->given & GAVE_HEADERS)
        content->headers = in->timer.headers;
    if (in->given & GAVE_TIMEOUT)
        content->timeout_us = in->timer.timeout_us;
    if (in->given & GAVE_RETRY)
        content->retry = in->timer.retry;
}

int schedule_from_json(struct json object, const struct timer_rules *rules, struct scratch *scratch,
                       struct schedule *schedule, bool *ret_only_paused, struct problem *problem)
{
    struct json key, value;
    struct timer_in in = {0};
    uint32_t given = 0;
    if (object.kind != JSON_OBJECT)
        return problem_set(problem, 400, "invalid-body", NULL, "the body must be a JSON object");
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);) {
        int i = find_member(key), r = 1;
        if ((rules->allowed & SCHEDULE_LINE) && schedule_is_line_member(key))
            continue;
        if (i < 0)
            r = timer_read_content(key, value, rules, scratch, &in, problem);
        if (r < 0)
            return -1;
        if (r == 0)
            return unknown(key, problem);
        if (i < 0)
            continue;
        if (given >> i & 1)
            return problem_set(problem, 400, "invalid-field", members[i].name, "%s is given twice", members[i].name);
        given |= UINT32_C(1) << i;
        struct reading reading = {members[i].name, scratch, schedule, problem};
        if (members[i].read(&reading, value) < 0)
            return -1;
    }
    if ((in.given & GAVE_PAYLOAD) && (in.given & GAVE_PAYLOAD_BASE64))
        return problem_set(problem, 400, "invalid-field", "payload_base64", "give payload or payload_base64, not both");
    take_content(&schedule->content, &in);
    *ret_only_paused = in.given == 0 && given == UINT32_C(1) << (MEMBERS - 1);
    return 0;
}

/* --- Checking ------------------------------------------------------------------------------------------------------- */

static int refuse_with_every(struct problem *problem, const char *field)
{
    return problem_set(problem, 400, "invalid-field", field, "%s is for cron only; leave it out with every", field);
}

static int check_together(const struct schedule *s, struct problem *problem)
{
    if (s->cron.size == 0 && s->every_us == 0)
        return problem_set(problem, 400, "missing-field", "cron", "cron or every is missing; give one of them");
    if (s->cron.size > 0 && s->every_us > 0)
        return problem_set(problem, 400, "invalid-field", "every", "give cron or every, not both");
    if (s->every_us > 0 && (s->zone.size || s->except_count || s->gap.size || s->repeat.size))
        return refuse_with_every(problem, s->zone.size      ? "zone"
                                          : s->except_count ? "except"
                                          : s->gap.size     ? "gap"
                                                            : "repeat");
    if (s->has_start && s->has_end && s->end_us <= s->start_us)
        return problem_set(problem, 400, "invalid-field", "end", "end must be after start");
    return 0;
}

int schedule_compile(const struct schedule *s, const struct zones *zones, struct rule **ret, struct problem *problem)
{
    struct rule_error error;
    if (check_together(s, problem) < 0)
        return -1;
    int r = schedule_rule(s, zones, ret, &error);
    if (r == 0)
        return 0;
    if (r == FL_NO_MEMORY || !error.field)
        problem_of_result(problem, FL_NO_MEMORY);
    else
        problem_set(problem, 400, "invalid-field", error.field, "%s: %s", error.field, error.text);
    return -1;
}

/* --- Out ------------------------------------------------------------------------------------------------------------ */

static void write_text(struct out *out, const char *name, fl_bytes text)
{
    if (text.size == 0)
        return;
    out_key(out, name);
    out_string(out, text);
}

static void write_time(struct out *out, const char *name, int64_t us, bool has)
{
    if (!has)
        return;
    out_key(out, name);
    out_time(out, us);
}

static void write_duration(struct out *out, const char *name, uint64_t us, bool has)
{
    if (!has)
        return;
    out_key(out, name);
    out_duration(out, us);
}

static void write_except(struct out *out, const struct schedule *s)
{
    if (s->except_count == 0)
        return;
    out_key(out, "except");
    out_put(out, "[", 1);
    for (size_t i = 0; i < s->except_count; i++) {
        if (i > 0)
            out_put(out, ",", 1);
        out_string(out, s->except[i]);
    }
    out_put(out, "]", 1);
}

static void write_rule(struct out *out, const struct schedule *s)
{
    bool cron = s->every_us == 0;
    write_text(out, "cron", s->cron);
    write_duration(out, "every", s->every_us, !cron);
    if (cron)
        write_text(out, "zone", s->zone.size ? s->zone : (fl_bytes){"UTC", 3});
    write_time(out, "start", s->start_us, s->has_start);
    write_time(out, "end", s->end_us, s->has_end);
    if (s->count > 0)
        out_format(out, ",\"count\":%" PRIu64, s->count);
    write_except(out, s);
    if (cron) {
        write_text(out, "gap", s->gap.size ? s->gap : (fl_bytes){"after", 5});
        write_text(out, "repeat", s->repeat.size ? s->repeat : (fl_bytes){"first", 5});
    }
}

static void write_policies(struct out *out, const struct schedule *s)
{
    out_format(out, ",\"missed\":\"%s\"", missed_names[s->missed]);
    write_duration(out, "grace", s->has_grace ? s->grace_us : SCHEDULE_GRACE_US, true);
    write_duration(out, "missed_within", s->missed_within_us, s->missed_within_us > 0);
    out_format(out, ",\"overlap\":\"%s\"", overlap_names[s->overlap]);
    write_duration(out, "window", s->window_us, s->window_us > 0);
    out_format(out, ",\"paused\":%s", s->paused ? "true" : "false");
}

static void write_or_null(struct out *out, const char *name, int64_t us, bool has)
{
    out_key(out, name);
    if (has)
        out_time(out, us);
    else
        out_text(out, "null");
}

void schedule_to_json(struct out *out, const struct schedule *s, const struct rule *rule, bool brief)
{
    struct occurrence next;
    bool has_next = rule && schedule_next(s, rule, &next);
    out_text(out, "{\"namespace\":");
    out_string(out, s->ns);
    out_key(out, "name");
    out_string(out, s->name);
    write_rule(out, s);
    write_policies(out, s);
    timer_write_content(out, &s->content, brief);
    write_or_null(out, "next", has_next ? next.at_us : 0, has_next);
    write_or_null(out, "last", s->last_us, s->last_us != 0);
    out_format(out, ",\"made\":%" PRIu64, s->made);
    out_key(out, "created");
    out_time(out, s->created_us);
    out_put(out, "}", 1);
}

void schedule_stored_to_json(struct out *out, fl_bytes stored, const struct zones *zones, bool brief)
{
    struct schedule s;
    struct rule *rule = NULL;
    struct rule_error error;
    int r = schedule_read(stored, &s);
    if (r < 0) {
        out_text(out, "{}");
        out->failed |= r == FL_NO_MEMORY;
        return;
    }
    if (schedule_rule(&s, zones, &rule, &error) == 0)
        schedule_rezone(&s, rule);
    schedule_to_json(out, &s, rule, brief);
    rule_free(rule);
    schedule_free(&s);
}

void write_local(struct out *out, const struct occurrence *occurrence)
{
    char text[CIVIL_TEXT];
    size_t size = civil_format(occurrence->at_us, occurrence->offset_s, text);
    out_string(out, (fl_bytes){text, size});
}
