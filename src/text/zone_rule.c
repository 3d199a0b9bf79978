/* SPDX-License-Identifier: MIT */
/* TZ strings: "CET-1CEST,M3.5.0,M10.5.0/3" is Central European time. It is one hour east of Greenwich (the sign counts
 * to the west). Daylight saving time begins on the last (5) Sunday (0) of March, at 02:00 if no time is given, and ends
 * on the last Sunday of October at 03:00.
 *
 * Times of a change may be negative or more than a day (RFC 9636, 3.3.1), so a change can happen in another week or even
 * in another year than its day. Therefore the beginnings and the ends are two sequences that are merged by time. */

#include <string.h>

#include "text/civil.h"
#include "text/cursor.h"
#include "text/zone_internal.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* One to three digits that mean `min` to `max`. */
static bool take_number(struct cursor *cursor, int min, int max, int *ret)
{
    int value = 0, digits = 0;
    while (digits < 3 && cursor->at < cursor->end && is_digit(*cursor->at)) {
        value = value * 10 + (*cursor->at++ - '0');
        digits++;
    }
    *ret = value;
    return digits > 0 && value >= min && value <= max;
}

/* "<+03>" or "CEST": it is of no use here, but has to be right. */
static bool take_name(struct cursor *cursor)
{
    bool quoted = take(cursor, '<');
    const char *begin = cursor->at;
    while (cursor->at < cursor->end &&
           (is_letter(*cursor->at) || (quoted && (is_digit(*cursor->at) || *cursor->at == '+' || *cursor->at == '-'))))
        cursor->at++;
    return cursor->at - begin >= 3 && (!quoted || take(cursor, '>'));
}

/* "[+-]hh[:mm[:ss]]" in seconds. */
static bool take_clock(struct cursor *cursor, int max_hours, int32_t *ret_s)
{
    int hours, minutes = 0, seconds = 0;
    bool negative = take(cursor, '-');
    if (!negative)
        take(cursor, '+');
    if (!take_number(cursor, 0, max_hours, &hours))
        return false;
    if (take(cursor, ':') &&
        (!take_number(cursor, 0, 59, &minutes) || (take(cursor, ':') && !take_number(cursor, 0, 59, &seconds))))
        return false;
    *ret_s = ((hours * 60 + minutes) * 60 + seconds) * (negative ? -1 : 1);
    return true;
}

/* The sign is that of POSIX: to the west. */
static bool take_offset(struct cursor *cursor, int32_t *ret_s)
{
    int32_t west_s;
    if (!take_clock(cursor, 24, &west_s))
        return false;
    *ret_s = -west_s;
    return true;
}

static bool take_day(struct cursor *cursor, struct zone_rule_day *ret)
{
    *ret = (struct zone_rule_day){.time_s = 2 * 3600};
    if (take(cursor, 'M')) {
        ret->kind = 'M';
        if (!take_number(cursor, 1, 12, &ret->month) || !take(cursor, '.') || !take_number(cursor, 1, 5, &ret->week) ||
            !take(cursor, '.') || !take_number(cursor, 0, 6, &ret->day))
            return false;
    } else {
        ret->kind = take(cursor, 'J') ? 'J' : 'D';
        if (!take_number(cursor, ret->kind == 'J', 365, &ret->day))
            return false;
    }
    return !take(cursor, '/') || take_clock(cursor, 167, &ret->time_s);
}

const char *zone_rule_parse(fl_bytes text, struct zone_rule *ret)
{
    struct cursor cursor = {text.data, (const char *)text.data + text.size};
    struct zone_rule rule = {0};
    if (!take_name(&cursor) || !take_offset(&cursor, &rule.standard_s))
        return "its name or offset of standard time is wrong";
    if (cursor.at < cursor.end) {
        rule.changes = true;
        rule.daylight_s = rule.standard_s + 3600;
        if (!take_name(&cursor))
            return "its name of daylight saving time is wrong";
        if (cursor.at < cursor.end && *cursor.at != ',' && !take_offset(&cursor, &rule.daylight_s))
            return "its offset of daylight saving time is wrong";
        if (!take(&cursor, ',') || !take_day(&cursor, &rule.begin))
            return "its beginning of daylight saving time is wrong";
        if (!take(&cursor, ',') || !take_day(&cursor, &rule.end))
            return "its end of daylight saving time is wrong";
        if (cursor.at != cursor.end)
            return "it goes on after the end of daylight saving time";
    }
    *ret = rule;
    return NULL;
}

/* The day that a rule means in a year. */
static int64_t day_in(const struct zone_rule_day *rule, int year)
{
    int64_t first;
    switch (rule->kind) {
    case 'J':
        return civil_days(year, 1, 1) + rule->day - 1 + (rule->day > 59 && civil_is_leap(year));
    case 'D':
        return civil_days(year, 1, 1) + rule->day;
    default:
        first = civil_days(year, rule->month, 1);
        int day = (rule->day - civil_weekday(first) + 7) % 7 + 7 * (rule->week - 1);
        return first + (day < civil_month_days(year, rule->month) ? day : day - 7);
    }
}

static int64_t begin_in(const struct zone_rule *rule, int year)
{
    return day_in(&rule->begin, year) * CIVIL_DAY_S + rule->begin.time_s - rule->standard_s;
}

static int64_t end_in(const struct zone_rule *rule, int year)
{
    return day_in(&rule->end, year) * CIVIL_DAY_S + rule->end.time_s - rule->daylight_s;
}

/* Adds the rule's changes after `from_s` and up to `until_s`. One at or before `from_s` decides with which offset it
 * starts, so the walk begins two years earlier. */
static bool write_out(const struct zone_rule *rule, struct zone_changes *changes, int64_t from_s, int64_t until_s)
{
    int begin_year = civil_date(civil_day_of(from_s)).year - 2, end_year = begin_year;
    for (;;) {
        int64_t begin_s = begin_in(rule, begin_year), end_s = end_in(rule, end_year);
        bool begins = begin_s < end_s; /* at the same moment, one year's ends before the next one's begins */
        int64_t at_s = begins ? begin_s : end_s;
        int32_t offset_s = begins ? rule->daylight_s : rule->standard_s;
        *(begins ? &begin_year : &end_year) += 1;
        if (at_s > until_s)
            return true;
        if (at_s > from_s) {
            if (!zone_changes_add(changes, at_s, offset_s))
                return false;
        } else {
            *(changes->count > 0 ? &changes->list[changes->count - 1].offset_s : &changes->first_s) = offset_s;
        }
    }
}

bool zone_rule_apply(const struct zone_rule *rule, struct zone_changes *changes, int64_t *ret_fold_s)
{
    bool all = changes->count == 0;
    int64_t from_s = all ? CIVIL_MIN_S : changes->list[changes->count - 1].at_s;
    *ret_fold_s = ZONE_END_S;
    *(all ? &changes->first_s : &changes->list[changes->count - 1].offset_s) = rule->standard_s;
    if (!rule->changes || from_s > CIVIL_MAX_S)
        return true;
    if (from_s < CIVIL_MIN_S)
        from_s = CIVIL_MIN_S;
    /* What repeats begins ten years after `from_s`, where all changes are the rule's: there are rules with changes in
     * leap years only, which may be eight years apart. For the same reason, the table goes on for ten more years. */
    const int64_t ten_years_s = INT64_C(10) * 366 * CIVIL_DAY_S;
    *ret_fold_s = from_s + ten_years_s + CIVIL_CYCLE_S;
    return write_out(rule, changes, from_s, *ret_fold_s + ten_years_s);
}
