/* SPDX-License-Identifier: MIT */
/* Which civil times an expression matches. Everything is bits; the loops go over months, and over bits that are rare. */

#include "text/cron.h"

#include <assert.h>

#include "text/civil.h"

/* The first bit of `set` from `from` on; -1 if there is none. */
static int next_bit(uint64_t set, int from)
{
    set = from < 64 ? set >> from << from : 0;
    return set ? __builtin_ctzll(set) : -1;
}

static int below(uint64_t set, int limit)
{
    return __builtin_popcountll(set & ((UINT64_C(1) << limit) - 1));
}

static int size_of(uint64_t set)
{
    return __builtin_popcountll(set);
}

/* --- Days -------------------------------------------------------------------------------------------------------- */

struct month {
    int first; /* weekday of its first day */
    int days;
};

static int weekday_of(struct month month, int day)
{
    return (month.first + day - 1) % 7;
}

/* The days of a month that fall on one of `weekdays`. */
static uint32_t days_on(struct month month, unsigned weekdays)
{
    unsigned week = (weekdays >> month.first | weekdays << (7 - month.first)) & 0x7f; /* bit 0: the first day's */
    uint64_t weeks = week * UINT64_C(0x10204081);                                     /* bits 0, 7, 14, 21, 28 */
    return (uint32_t)(weeks << 1) & (uint32_t)((UINT64_C(2) << month.days) - 2);
}

/* The weekday (Monday to Friday) that is nearest to a day and in the same month. */
static int nearest_working_day(struct month month, int day)
{
    int weekday = weekday_of(month, day);
    if (weekday == 6)
        return day > 1 ? day - 1 : day + 2;
    if (weekday == 0)
        return day < month.days ? day + 1 : day - 2;
    return day;
}

static uint32_t special_days(const struct cron *cron, struct month month)
{
    uint32_t days = 0;
    for (uint32_t rest = cron->last_days; rest; rest &= rest - 1) {
        int day = month.days - __builtin_ctz(rest);
        days |= day > 0 ? UINT32_C(1) << day : 0;
    }
    for (uint32_t rest = cron->near_days; rest; rest &= rest - 1) {
        int day = __builtin_ctz(rest);
        days |= day <= month.days ? UINT32_C(1) << nearest_working_day(month, day) : 0;
    }
    if (cron->last_working_day)
        days |= UINT32_C(1) << nearest_working_day(month, month.days);
    return days;
}

static uint32_t special_weekdays(const struct cron *cron, struct month month)
{
    uint32_t days = 0;
    if (cron->last_weekdays)
        days |= days_on(month, cron->last_weekdays) & UINT32_MAX << (month.days - 6);
    for (int n = 0; n < 5; n++)
        if (cron->nth_weekdays[n])
            days |= days_on(month, cron->nth_weekdays[n]) & (uint32_t)(UINT64_C(0x7f) << (n * 7 + 1));
    return days;
}

static bool has_nth(const struct cron *cron)
{
    return cron->nth_weekdays[0] | cron->nth_weekdays[1] | cron->nth_weekdays[2] | cron->nth_weekdays[3] |
           cron->nth_weekdays[4] | cron->last_weekdays;
}

uint32_t cron_month(const struct cron *cron, int year, int month)
{
    struct month this = {civil_weekday(civil_days(year, month, 1)), civil_month_days(year, month)};
    uint32_t days = cron->days & (uint32_t)((UINT64_C(2) << this.days) - 2);
    uint32_t weekdays = days_on(this, cron->weekdays);
    if (cron->last_days || cron->near_days || cron->last_working_day)
        days |= special_days(cron, this);
    if (has_nth(cron))
        weekdays |= special_weekdays(cron, this);
    return cron->either ? days | weekdays : days & weekdays;
}

/* The first year from `year` on that the expression allows; 0 if there is none. */
static int next_year(const struct cron *cron, int year)
{
    if (cron->any_year)
        return year <= CIVIL_YEAR_MAX ? year : 0;
    for (int i = year < CRON_YEAR_MIN ? 0 : year - CRON_YEAR_MIN; i <= CRON_YEAR_MAX - CRON_YEAR_MIN;) {
        int bit = next_bit(cron->years[i / 64], i % 64);
        if (bit >= 0)
            return CRON_YEAR_MIN + i / 64 * 64 + bit;
        i = (i / 64 + 1) * 64;
    }
    return 0;
}

/* The first day at or after a date that matches, in days since 1970. After 400 years the calendar repeats, but for
 * the years of a field. */
static bool next_day(const struct cron *cron, struct civil_date date, int64_t *ret_days)
{
    int last = (date.year > CRON_YEAR_MIN ? date.year : CRON_YEAR_MIN) + 400;
    for (int year; (year = next_year(cron, date.year)) != 0 && year <= last;
         date = (struct civil_date){year + 1, 1, 1}) {
        if (year != date.year)
            date = (struct civil_date){year, 1, 1};
        for (int month; (month = next_bit(cron->months, date.month)) > 0; date.month = month + 1, date.day = 1) {
            uint32_t days = cron_month(cron, year, month);
            int day = next_bit(days, month == date.month ? date.day : 1);
            if (day > 0) {
                *ret_days = civil_days(year, month, day);
                return true;
            }
        }
    }
    return false;
}

static bool matches_day(const struct cron *cron, struct civil_date date)
{
    return next_year(cron, date.year) == date.year && (cron->months >> date.month & 1) &&
           (cron_month(cron, date.year, date.month) >> date.day & 1);
}

/* --- Times of day ------------------------------------------------------------------------------------------------ */

static int time_of(int hour, int minute, int second)
{
    return (hour * 60 + minute) * 60 + second;
}

static int first_time(const struct cron *cron)
{
    return time_of(next_bit(cron->hours, 0), next_bit(cron->minutes, 0), next_bit(cron->seconds, 0));
}

/* The first time of day at or after `time` that matches; -1 if there is none. */
static int next_time(const struct cron *cron, int time)
{
    int hour = time / 3600, minute = time / 60 % 60, next;
    if (cron->hours >> hour & 1) {
        if (cron->minutes >> minute & 1 && (next = next_bit(cron->seconds, time % 60)) >= 0)
            return time_of(hour, minute, next);
        if ((next = next_bit(cron->minutes, minute + 1)) >= 0)
            return time_of(hour, next, next_bit(cron->seconds, 0));
    }
    if ((next = next_bit(cron->hours, hour + 1)) < 0)
        return -1;
    return time_of(next, next_bit(cron->minutes, 0), next_bit(cron->seconds, 0));
}

/* How many times of day before `time` match; `time` may be a whole day. */
static uint64_t times_before(const struct cron *cron, int time)
{
    int hour = time / 3600, minute = time / 60 % 60;
    uint64_t seconds = (uint64_t)size_of(cron->seconds), minutes = (uint64_t)size_of(cron->minutes);
    uint64_t count = (uint64_t)below(cron->hours, hour) * minutes * seconds;
    if (cron->hours >> hour & 1) {
        count += (uint64_t)below(cron->minutes, minute) * seconds;
        if (cron->minutes >> minute & 1)
            count += (uint64_t)below(cron->seconds, time % 60);
    }
    return count;
}

/* --- Both -------------------------------------------------------------------------------------------------------- */

bool cron_next(const struct cron *cron, int64_t local_s, int64_t *ret_s)
{
    assert(cron->hours && cron->minutes && cron->seconds);
    if (local_s > CIVIL_MAX_S)
        return false;
    if (local_s < CIVIL_MIN_S)
        local_s = CIVIL_MIN_S;
    int64_t day = civil_day_of(local_s);
    struct civil_date date = civil_date(day);
    if (matches_day(cron, date)) {
        int time = next_time(cron, (int)(local_s - day * CIVIL_DAY_S));
        if (time >= 0) {
            *ret_s = day * CIVIL_DAY_S + time;
            return true;
        }
    }
    date.day++; /* a day after the month's last is not in any set */
    if (!next_day(cron, date, &day))
        return false;
    *ret_s = day * CIVIL_DAY_S + first_time(cron);
    return true;
}

bool cron_matches(const struct cron *cron, int64_t local_s)
{
    int64_t next_s;
    return cron_next(cron, local_s, &next_s) && next_s == local_s;
}

/* Days that match, begin <= day < end. */
static uint64_t count_days(const struct cron *cron, int64_t begin, int64_t end)
{
    struct civil_date from = civil_date(begin), to = civil_date(end);
    uint64_t count = 0;
    for (int year; (year = next_year(cron, from.year)) != 0 && year <= to.year;
         from = (struct civil_date){year + 1, 1, 1}) {
        if (year != from.year)
            from = (struct civil_date){year, 1, 1};
        int last = year == to.year ? to.month : 12;
        for (int month = from.month; month <= last; month++, from.day = 1) {
            if (!(cron->months >> month & 1))
                continue;
            uint32_t days = cron_month(cron, year, month) >> from.day << from.day;
            if (year == to.year && month == to.month)
                days &= (UINT32_C(1) << to.day) - 1;
            count += (uint64_t)size_of(days);
        }
    }
    return count;
}

uint64_t cron_count(const struct cron *cron, int64_t begin_s, int64_t end_s)
{
    if (begin_s < CIVIL_MIN_S)
        begin_s = CIVIL_MIN_S;
    if (end_s > CIVIL_MAX_S + 1)
        end_s = CIVIL_MAX_S + 1;
    if (begin_s >= end_s)
        return 0;
    int64_t first = civil_day_of(begin_s), last = civil_day_of(end_s);
    uint64_t count = 0;
    if (matches_day(cron, civil_date(last)))
        count += times_before(cron, (int)(end_s - last * CIVIL_DAY_S));
    if (matches_day(cron, civil_date(first)))
        count -= times_before(cron, (int)(begin_s - first * CIVIL_DAY_S)); /* its day is counted below, or above */
    return count + count_days(cron, first, last) * times_before(cron, CIVIL_DAY_S);
}
