/* SPDX-License-Identifier: MIT */
/* Compiles rules from what users write. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/error.h>

#include "base/alloc.h"
#include "text/civil.h"
#include "text/rule_internal.h"

__attribute__((format(printf, 3, 4))) static int refuse(struct rule_error *error, const char *field, const char *format,
                                                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    // cppcheck-suppress ctuuninitvar ; it is written here
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    error->field = field;
    return FL_INVALID_ARGUMENT;
}

static int no_memory(struct rule_error *error)
{
    error->field = NULL;
    snprintf(error->text, sizeof error->text, "%s", fl_strerror(FL_NO_MEMORY));
    return FL_NO_MEMORY;
}

/* What is shown of a value that a user gave: its beginning, without what could hurt a terminal. */
struct shown {
    char text[48];
};

static struct shown show(fl_bytes value)
{
    struct shown shown = {0};
    for (size_t i = 0; i < value.size && i < sizeof shown.text - 1; i++) {
        char c = ((const char *)value.data)[i];
        shown.text[i] = (char)(c >= ' ' && c <= '~' && c != '"' ? c : '?');
    }
    return shown;
}

/* Reads one of two words, of which the first is the default. */
static int read_choice(fl_bytes value, const char *field, const char *const words[2], bool *ret_second,
                       struct rule_error *error)
{
    *ret_second = false;
    if (!value.data)
        return 0;
    for (int i = 0; i < 2; i++)
        if (value.size == strlen(words[i]) && memcmp(value.data, words[i], value.size) == 0) {
            *ret_second = i == 1;
            return 0;
        }
    return refuse(error, field, "\"%s\" is unknown; allowed are \"%s\" and \"%s\"", show(value).text, words[0],
                  words[1]);
}

/* --- Exceptions -------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static uint32_t sort_unique(int64_t *list, uint32_t count)
{
    uint32_t kept = 0;
    if (count > 0)
        qsort(list, count, sizeof *list, compare);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || list[kept - 1] != list[i])
            list[kept++] = list[i];
    return kept;
}

/* One exception: a day, or a civil time in seconds. */
static int read_except(fl_bytes text, bool *ret_date, int64_t *ret, struct rule_error *error)
{
    int64_t value = 0;
    *ret_date = civil_parse_date(text, &value) == 0;
    if (!*ret_date) {
        if (civil_parse_time(text, &value) < 0 || value % 1000000 != 0)
            return refuse(
                error, "except",
                "\"%s\" is neither a date (\"2026-12-25\") nor a local time (\"2026-12-31T09:00\", without a zone)",
                show(text).text);
        value /= 1000000;
    }
    *ret = value;
    return 0;
}

/* Dates go to the front of the rule's list and times to its end, until all are known. */
static int read_exceptions(const struct rule_text *text, struct rule *rule, struct rule_error *error)
{
    size_t n_times = 0;
    for (size_t i = 0; i < text->n_except; i++) {
        bool is_date;
        int64_t value = 0;
        int r = read_except(text->except[i], &is_date, &value, error);
        if (r < 0)
            return r;
        rule->except[is_date ? rule->n_dates++ : text->n_except - ++n_times] = value;
    }
    int64_t *times = rule->except + (text->n_except - n_times);
    rule->n_dates = sort_unique(rule->except, rule->n_dates);
    rule->n_times = sort_unique(times, (uint32_t)n_times);
    memmove(rule->except + rule->n_dates, times, rule->n_times * sizeof *times);
    return 0;
}

/* --- The two kinds of rules -------------------------------------------------------------------------------------- */

static int compile_cron(const struct rule_text *text, const struct zones *zones, struct rule *rule,
                        struct rule_error *error)
{
    static const char *const gaps[2] = {"after", "skip"}, *const repeats[2] = {"first", "both"};
    char reason[CRON_ERROR_TEXT], zone_reason[ZONE_ERROR_TEXT];
    fl_bytes zone = text->zone.data ? text->zone : (fl_bytes){"UTC", 3};
    if (cron_parse(text->cron, cron_seed(text->ns, text->name), &rule->cron, reason) < 0)
        return refuse(error, "cron", "%s", reason);
    if (read_choice(text->gap, "gap", gaps, &rule->skip_gaps, error) < 0 ||
        read_choice(text->repeat, "repeat", repeats, &rule->both_passes, error) < 0 ||
        read_exceptions(text, rule, error) < 0)
        return FL_INVALID_ARGUMENT;
    if (zones_find(zones, zone, &rule->zone, zone_reason) < 0)
        return refuse(error, "zone", "%s", zone_reason);
    return 0;
}

static int compile_every(const struct rule_text *text, struct rule *rule, struct rule_error *error)
{
    const char *other = text->zone.data     ? "zone"
                        : text->gap.data    ? "gap"
                        : text->repeat.data ? "repeat"
                        : text->n_except    ? "except"
                                            : NULL;
    if (other)
        return refuse(error, other, "it is allowed only with \"cron\"; \"every\" counts real time, in no zone");
    if (text->every_us < RULE_EVERY_MIN_US || text->every_us > INT64_MAX)
        return refuse(error, "every", "the period must be at least 100 ms");
    rule->every_us = text->every_us;
    rule->zone = zone_utc();
    if (!text->has_start && __builtin_add_overflow(text->created_us, (int64_t)text->every_us, &rule->start_us))
        rule->start_us = INT64_MAX; /* never */
    return 0;
}

static int compile(const struct rule_text *text, const struct zones *zones, struct rule *rule, struct rule_error *error)
{
    rule->start_us = text->has_start ? text->start_us : INT64_MIN;
    rule->end_us = text->has_end ? text->end_us : INT64_MAX;
    if (text->has_start && text->has_end && text->end_us <= text->start_us)
        return refuse(error, "end", "it must be after \"start\"");
    if (text->has_every)
        return compile_every(text, rule, error);
    return compile_cron(text, zones, rule, error);
}

int rule_new(const struct rule_text *text, const struct zones *zones, struct rule **ret, struct rule_error *ret_error)
{
    if (text->has_every && text->cron.data)
        return refuse(ret_error, "every", "a schedule has either \"cron\" or \"every\", not both");
    if (!text->has_every && !text->cron.data)
        return refuse(ret_error, "cron", "a schedule needs \"cron\" or \"every\"");
    if (text->n_except > RULE_EXCEPT_MAX)
        return refuse(ret_error, "except", "there are %zu exceptions; at most %d are allowed", text->n_except,
                      RULE_EXCEPT_MAX);
    struct rule *rule = fl__alloc_zeroed(sizeof *rule + text->n_except * sizeof *rule->except);
    if (!rule)
        return no_memory(ret_error);
    int r = compile(text, zones, rule, ret_error);
    if (r < 0)
        rule_free(rule);
    else
        *ret = rule;
    return r;
}

void rule_free(struct rule *rule)
{
    if (!rule)
        return;
    zone_unref(rule->zone);
    fl__release(rule);
}

const struct zone *rule_zone(const struct rule *rule)
{
    return rule->zone;
}

bool rule_is_fixed(const struct rule *rule)
{
    return rule->every_us == 0 && rule->cron.fixed;
}
