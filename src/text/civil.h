/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_CIVIL_H
#define FOLIOT_TEXT_CIVIL_H

/* Civil time: dates and times of day as a calendar and a clock on the wall show them, without a zone.
 *
 * A civil time is a count of seconds: those that a clock without any changes would have counted since it showed
 * 1970-01-01T00:00:00. Adding or subtracting the offset of a zone leads to and from instants (see text/zone.h). The
 * calendar is the Gregorian one throughout. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/store.h> /* fl_bytes */

struct civil_date {
    int year, month, day; /* month 1 to 12, day 1 to 31 */
};

enum { CIVIL_DAY_S = 86400, CIVIL_YEAR_MIN = 1, CIVIL_YEAR_MAX = 9999 };

/* The years 1 to 9999, as civil time. */
#define CIVIL_MIN_S (-INT64_C(62135596800))
#define CIVIL_MAX_S INT64_C(253402300799)

/* After 400 years, the calendar repeats: 146097 days are 20871 weeks. */
#define CIVIL_CYCLE_DAYS 146097
#define CIVIL_CYCLE_S (INT64_C(146097) * CIVIL_DAY_S)

static inline bool civil_is_leap(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static inline int civil_month_days(int year, int month)
{
    static const signed char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 2 && civil_is_leap(year) ? 29 : days[month - 1];
}

/* Days since 1970-01-01, for years from -399 on. Years begin in March here, so that the leap day is the last of its year. */
static inline int64_t civil_days(int year, int month, int day)
{
    int64_t y = year - (month <= 2) + 400; /* not negative */
    int m = month <= 2 ? month + 9 : month - 3;
    return y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468 - CIVIL_CYCLE_DAYS;
}

/* The reverse. */
static inline struct civil_date civil_date(int64_t days)
{
    uint64_t d = (uint64_t)(days + 719468 + CIVIL_CYCLE_DAYS);
    uint32_t cycle = (uint32_t)(d / CIVIL_CYCLE_DAYS), rest = (uint32_t)(d % CIVIL_CYCLE_DAYS);
    uint32_t year = (rest - rest / 1460 + rest / 36524 - rest / (CIVIL_CYCLE_DAYS - 1)) / 365;
    uint32_t in_year = rest - (year * 365 + year / 4 - year / 100);
    uint32_t month = (5 * in_year + 2) / 153;
    struct civil_date date = {.month = (int)(month < 10 ? month + 3 : month - 9),
                              .day = (int)(in_year - (153 * month + 2) / 5 + 1)};
    date.year = (int)(cycle * 400 + year) - 400 + (date.month <= 2);
    return date;
}

/* 0 is Sunday. */
static inline int civil_weekday(int64_t days)
{
    return (int)((uint64_t)(days + 4 + 7 * INT64_C(1000000)) % 7);
}

/* The day of a civil time, rounded down. */
static inline int64_t civil_day_of(int64_t local_s)
{
    return (local_s + CIVIL_CYCLE_S * 10) / CIVIL_DAY_S - INT64_C(10) * CIVIL_CYCLE_DAYS;
}

/* "2026-12-25" as days since 1970-01-01. Years 1 to 9999. Returns 0 or FL_INVALID_ARGUMENT. */
int civil_parse_date(fl_bytes text, int64_t *ret_days);

/* "2026-12-31T09:00", "2026-12-31T09:00:30", "2026-12-31T09:00:30.25": a civil time in microseconds. More than six
 * decimals are rounded up, so that nothing is early. Returns 0 or FL_INVALID_ARGUMENT, also for a zone at the end. */
int civil_parse_time(fl_bytes text, int64_t *ret_local_us);

enum { CIVIL_TEXT = 40 };

/* "2026-03-29T03:00:00+02:00", with 0, 3 or 6 decimals as needed; an instant and the offset of its zone at that time. An
 * offset with seconds, which a few zones had until 1972, ends in ":30". Returns the length. */
size_t civil_format(int64_t at_us, int32_t offset_s, char out[CIVIL_TEXT]);

#endif
