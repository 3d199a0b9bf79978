/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_CALENDAR_H
#define FOLIOT_TEXT_CALENDAR_H

/* When a schedule occurs: cron expressions in a time zone, and fixed periods.
 *
 * A rule is compiled once from what the user wrote; then it answers when the next occurrence is, which was the last, and
 * how many there are in a span. It never changes, and any number of threads may use it at the same time. The calls below
 * allocate nothing and cannot fail, except rule_new(). docs/schedules.md has the rules for users.
 *
 *     struct rule *rule;
 *     struct rule_error error;
 *     struct rule_text text = {.ns = ns, .name = name, .cron = cron, .zone = zone};
 *     if (rule_new(&text, zones, &rule, &error) < 0)
 *         ...                          // error.field "cron", error.text "hour field "25", position 1: …"
 *     struct occurrence next;
 *     if (rule_next(rule, now_us, &next))
 *         ...                          // next.at_us
 *     rule_free(rule);
 *
 * All times are nominal: the instant at which the rule places the occurrence, after `gap` and `repeat`. Local times that
 * fall on one instant are one occurrence. A delay by `window` comes on top: rule_delay_us(). Times are microseconds since
 * 1970, and may be any; occurrences are in the years 1 to 9999. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/cron.h"
#include "text/zone.h"

struct rule;

enum { RULE_EXCEPT_MAX = 1000, RULE_EVERY_MIN_US = 100000 };

/* A rule as it is written. Text that is not given has no `data`. */
struct rule_text {
    fl_bytes ns, name; /* they determine `H` */
    fl_bytes cron;     /* this, or `every` */
    fl_bytes zone;     /* not given: UTC */
    fl_bytes gap;      /* "after" (not given) or "skip" */
    fl_bytes repeat;   /* "first" (not given) or "both" */
    const fl_bytes *except;
    size_t n_except;
    uint64_t every_us;
    int64_t start_us, end_us;
    int64_t created_us; /* where `every` counts from if there is no start */
    bool has_every, has_start, has_end;
};

struct rule_error {
    const char *field; /* "cron", "every", "zone", "except", …; NULL: no memory */
    char text[512];    /* a sentence for the user, without the field's name */
};

/* Compiles a rule. `zones` may be NULL; then UTC is the only zone. Returns 0, FL_NO_MEMORY or FL_INVALID_ARGUMENT. */
int rule_new(const struct rule_text *text, const struct zones *zones, struct rule **ret, struct rule_error *ret_error);
void rule_free(struct rule *rule); /* NULL is allowed */

/* The zone of the rule, while the rule lives: compare it with that of a new set to see whether anything can have
 * changed. UTC for `every`. */
const struct zone *rule_zone(const struct rule *rule);

/* Whether it is a fixed time of day, which follows the clock on the wall, and not real time. */
bool rule_is_fixed(const struct rule *rule);

enum rule_dst {
    RULE_PLAIN,
    RULE_GAP,    /* the local time does not exist: this is the first moment after the gap */
    RULE_REPEAT, /* the clock shows this local time twice */
};

struct occurrence {
    int64_t at_us;
    int32_t offset_s; /* of the zone at that time, for civil_format() */
    enum rule_dst dst;
};

/* The first occurrence strictly after `after_us`; false if there is none. */
bool rule_next(const struct rule *rule, int64_t after_us, struct occurrence *ret);

/* The latest occurrence at or before `until_us`; false if there is none. Costs some 20 times as much as rule_next(). */
bool rule_last(const struct rule *rule, int64_t until_us, struct occurrence *ret);

/* How many occurrences there are, after_us < t <= until_us. They are not visited one by one: a year of seconds costs some
 * microseconds. */
uint64_t rule_count(const struct rule *rule, int64_t after_us, int64_t until_us);

/* The n-th latest occurrence, after_us < t <= until_us, n >= 1; false if there are fewer. Costs some 40 times as much as
 * rule_count() of the span that it has to go back. */
bool rule_back(const struct rule *rule, int64_t after_us, int64_t until_us, uint64_t n, struct occurrence *ret);

/* How long the server delays an occurrence within the jitter window: the same part of the window for the same namespace
 * and name. Always less than the time to the next occurrence; `next_us` is INT64_MAX if there is none. `seed` is
 * cron_seed() of namespace and name. */
uint64_t rule_delay_us(uint64_t seed, uint64_t window_us, int64_t at_us, int64_t next_us);

#endif
