/* SPDX-License-Identifier: MIT */
/* Reading and writing civil times. A cursor reads from left to right; the first mismatch fails. */

#include "text/civil.h"

#include <stdio.h>

#include <foliot/error.h>

#include "text/cursor.h"

enum { SECOND_US = 1000000 };

static bool take_date(struct cursor *cursor, int64_t *ret_days)
{
    int year, month, day;
    if (!take_digits(cursor, 4, CIVIL_YEAR_MIN, CIVIL_YEAR_MAX, &year) || !take(cursor, '-') ||
        !take_digits(cursor, 2, 1, 12, &month) || !take(cursor, '-') ||
        !take_digits(cursor, 2, 1, civil_month_days(year, month), &day))
        return false;
    *ret_days = civil_days(year, month, day);
    return true;
}

static bool take_time(struct cursor *cursor, int64_t *ret_us)
{
    int hour, minute, second = 0, fraction_us = 0;
    if (!take_digits(cursor, 2, 0, 23, &hour) || !take(cursor, ':') || !take_digits(cursor, 2, 0, 59, &minute))
        return false;
    if (take(cursor, ':') &&
        (!take_digits(cursor, 2, 0, 59, &second) || (take(cursor, '.') && !take_fraction(cursor, &fraction_us))))
        return false;
    *ret_us = (int64_t)((hour * 60 + minute) * 60 + second) * SECOND_US + fraction_us;
    return true;
}

int civil_parse_date(fl_bytes text, int64_t *ret_days)
{
    struct cursor cursor = {text.data, (const char *)text.data + text.size};
    int64_t days;
    if (!take_date(&cursor, &days) || cursor.at != cursor.end)
        return FL_INVALID_ARGUMENT;
    *ret_days = days;
    return 0;
}

int civil_parse_time(fl_bytes text, int64_t *ret_local_us)
{
    struct cursor cursor = {text.data, (const char *)text.data + text.size};
    int64_t days, time_us;
    if (!take_date(&cursor, &days) || !(take(&cursor, 'T') || take(&cursor, 't')) || !take_time(&cursor, &time_us) ||
        cursor.at != cursor.end)
        return FL_INVALID_ARGUMENT;
    *ret_local_us = days * CIVIL_DAY_S * SECOND_US + time_us;
    return 0;
}

static size_t put_fraction(int us, char *out, size_t size)
{
    if (us == 0)
        return 0;
    return (size_t)(us % 1000 == 0 ? snprintf(out, size, ".%03d", us / 1000) : snprintf(out, size, ".%06d", us));
}

size_t civil_format(int64_t at_us, int32_t offset_s, char out[CIVIL_TEXT])
{
    int64_t utc_s = at_us / SECOND_US - (at_us % SECOND_US < 0), local_s = utc_s + offset_s;
    local_s = local_s < CIVIL_MIN_S ? CIVIL_MIN_S : local_s > CIVIL_MAX_S ? CIVIL_MAX_S : local_s;
    int64_t days = civil_day_of(local_s);
    struct civil_date date = civil_date(days);
    unsigned in_day = (unsigned)(local_s - days * CIVIL_DAY_S);
    unsigned distance = offset_s < 0 ? 0u - (unsigned)offset_s : (unsigned)offset_s;
    size_t n = (size_t)snprintf(out, CIVIL_TEXT, "%04d-%02d-%02dT%02u:%02u:%02u", date.year, date.month, date.day,
                                in_day / 3600, in_day / 60 % 60, in_day % 60);
    n += put_fraction((int)((at_us % SECOND_US + SECOND_US) % SECOND_US), out + n, CIVIL_TEXT - n);
    n += (size_t)snprintf(out + n, CIVIL_TEXT - n, "%c%02u:%02u", offset_s < 0 ? '-' : '+', distance / 3600 % 100,
                          distance / 60 % 60);
    if (distance % 60 != 0)
        n += (size_t)snprintf(out + n, CIVIL_TEXT - n, ":%02u", distance % 60);
    return n;
}
