/* SPDX-License-Identifier: MIT */
/* Times and durations, read from left to right by a cursor that can only fail once.
 *
 * The calendar is the Gregorian one throughout, as RFC 3339 says (text/civil.h). Everything is integer arithmetic: 9999
 * years of microseconds use 59 bits.
 *
 * A duration is summed up in units of 10^-27 s (a thousand years of them fit into 125 bits), so that it is rounded once, at
 * the end, and exact with up to 18 decimals of a nanosecond. */

#include "text/when.h"

#include <stdbool.h>
#include <string.h>

#include <foliot/error.h>

#include "text/civil.h"
#include "text/cursor.h"

enum { SECOND_US = 1000000, DAY_S = CIVIL_DAY_S, YEAR_MAX = 9999 };

/* --- The calendar ------------------------------------------------------------------------------------------------ */

static int64_t days_of(struct civil_date date)
{
    return civil_days(date.year, date.month, date.day);
}

const char *when_hint(int64_t ms)
{
    static const int64_t first = WHEN_PLAUSIBLE_US / 1000000, last = INT64_C(9999999999);
    return ms >= first && ms <= last                       ? "; this looks like seconds, multiply by 1000"
           : ms / 1000000 >= first && ms / 1000000 <= last ? "; this looks like microseconds, divide by 1000"
                                                           : "";
}

/* --- Reading times ----------------------------------------------------------------------------------------------- */

static bool take_date(struct cursor *cursor, struct civil_date *ret)
{
    return take_digits(cursor, 4, 0, YEAR_MAX, &ret->year) && take(cursor, '-') &&
           take_digits(cursor, 2, 0, 12, &ret->month) && ret->month > 0 && take(cursor, '-') &&
           take_digits(cursor, 2, 0, civil_month_days(ret->year, ret->month), &ret->day) && ret->day > 0;
}

struct clock_time {
    int hour, minute, second;
    int fraction_us; /* SECOND_US if it was rounded up to that */
};

static bool take_time(struct cursor *cursor, struct clock_time *ret)
{
    if (!take_digits(cursor, 2, 0, 23, &ret->hour) || !take(cursor, ':') ||
        !take_digits(cursor, 2, 0, 59, &ret->minute) || !take(cursor, ':') ||
        !take_digits(cursor, 2, 0, 60, &ret->second))
        return false;
    ret->fraction_us = 0;
    return !take(cursor, '.') || take_fraction(cursor, &ret->fraction_us);
}

static bool take_offset(struct cursor *cursor, int *ret_s)
{
    int hours, minutes;
    *ret_s = 0;
    if (take(cursor, 'Z') || take(cursor, 'z'))
        return true;
    bool west = take(cursor, '-');
    if ((!west && !take(cursor, '+')) || !take_digits(cursor, 2, 0, 23, &hours) || !take(cursor, ':') ||
        !take_digits(cursor, 2, 0, 59, &minutes))
        return false;
    *ret_s = (hours * 60 + minutes) * (west ? -60 : 60);
    return true;
}

/* Whether a month begins there, in UTC. */
static bool begins_month(int64_t s)
{
    return s % DAY_S == 0 && civil_date(s / DAY_S).day == 1;
}

int when_parse(fl_bytes text, int64_t *ret_us)
{
    struct cursor cursor = {text.data, (const char *)text.data + text.size};
    struct civil_date date;
    struct clock_time time;
    int offset_s;
    if (!take_date(&cursor, &date) || !(take(&cursor, 'T') || take(&cursor, 't')) || !take_time(&cursor, &time) ||
        !take_offset(&cursor, &offset_s) || cursor.at != cursor.end)
        return FL_INVALID_ARGUMENT;
    int64_t s = days_of(date) * DAY_S + time.hour * 3600 + time.minute * 60 + time.second - offset_s;
    if (time.second == 60 && !begins_month(s))
        return FL_INVALID_ARGUMENT;
    *ret_us = s * SECOND_US + time.fraction_us;
    return 0;
}

/* --- Reading durations ------------------------------------------------------------------------------------------- */

typedef unsigned __int128 fine; /* 10^-27 s */

#define FINE_NS ((fine)1000000000 * 1000000000)
#define FINE_US (FINE_NS * 1000)
#define FINE_S (FINE_US * SECOND_US)
#define FINE_MAX (DURATION_MAX_US * FINE_US)

static const struct unit {
    char name[3];
    fine size;
} units[] = {
    {"w", FINE_S * 7 * DAY_S}, {"d", FINE_S *DAY_S}, {"h", FINE_S * 3600}, {"m", FINE_S * 60}, {"s", FINE_S},
    {"ms", FINE_US * 1000},    {"us", FINE_US},      {"ns", FINE_NS},
};
enum { UNITS = sizeof units / sizeof units[0] };

/* A number as it is written: its unit, which says what it means, comes last. */
struct decimal {
    const char *whole, *fraction;
    size_t whole_size, fraction_size;
};

static size_t skip_digits(struct cursor *cursor)
{
    const char *begin = cursor->at;
    while (at_digit(cursor))
        cursor->at++;
    return (size_t)(cursor->at - begin);
}

static bool take_decimal(struct cursor *cursor, struct decimal *ret)
{
    *ret = (struct decimal){.whole = cursor->at};
    ret->whole_size = skip_digits(cursor);
    if (ret->whole_size == 0)
        return false;
    if (!take(cursor, '.'))
        return true;
    ret->fraction = cursor->at;
    ret->fraction_size = skip_digits(cursor);
    return ret->fraction_size > 0;
}

/* The unit that stands here, all letters of it, and not one before `first`. */
static int take_unit(struct cursor *cursor, int first)
{
    size_t size = 0;
    while (size < (size_t)(cursor->end - cursor->at) && cursor->at[size] >= 'a' && cursor->at[size] <= 'z')
        size++;
    for (int i = first; i < UNITS; i++)
        if (strlen(units[i].name) == size && memcmp(units[i].name, cursor->at, size) == 0) {
            cursor->at += size;
            return i;
        }
    return -1;
}

/* Adds a number of units, rounded up. False if that is too much. */
static bool add(fine *total, const struct decimal *number, fine unit)
{
    fine whole = 0, part = 0, place = unit;
    bool rest = false;
    for (size_t i = 0; i < number->whole_size; i++) {
        whole = whole * 10 + (unsigned)(number->whole[i] - '0');
        if (whole > FINE_MAX / unit)
            return false;
    }
    for (size_t i = 0; i < number->fraction_size; i++) {
        place = place % 10 == 0 ? place / 10 : 0;
        part += (unsigned)(number->fraction[i] - '0') * place;
        rest |= place == 0 && number->fraction[i] != '0';
    }
    *total += whole * unit + part + rest;
    return *total <= FINE_MAX;
}

int duration_parse(fl_bytes text, uint64_t *ret_us)
{
    struct cursor cursor = {text.data, (const char *)text.data + text.size};
    struct decimal number = {0};
    fine total = 0;
    int unit = -1;
    do {
        if (!take_decimal(&cursor, &number) || (unit = take_unit(&cursor, unit + 1)) < 0 ||
            !add(&total, &number, units[unit].size))
            return FL_INVALID_ARGUMENT;
    } while (cursor.at < cursor.end);
    *ret_us = (uint64_t)((total + FINE_US - 1) / FINE_US);
    return 0;
}

/* --- Writing ----------------------------------------------------------------------------------------------------- */

/* `us` split into whole seconds and what is left, which is not negative; in the years 0 to 9999. */
static int64_t split(int64_t us, int *ret_rest_us)
{
    const int64_t first = days_of((struct civil_date){0, 1, 1}) * DAY_S;
    const int64_t end = days_of((struct civil_date){YEAR_MAX + 1, 1, 1}) * DAY_S;
    bool before = us % SECOND_US < 0;
    int64_t s = us / SECOND_US - before;
    *ret_rest_us = (int)(us % SECOND_US) + (before ? SECOND_US : 0);
    if (s < first) {
        *ret_rest_us = 0;
        return first;
    }
    if (s >= end) {
        *ret_rest_us = SECOND_US - 1;
        return end - 1;
    }
    return s;
}

/* At least so many digits. By hand, because an answer has many numbers, and printf() takes longer than the rest of it. */
static char *put_digits(char *out, uint64_t number, int least)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0 || count < least);
    while (count > 0)
        *out++ = digits[--count];
    return out;
}

/* A number below 100. */
static char *put_two(char *out, unsigned number)
{
    out[0] = (char)('0' + number / 10);
    out[1] = (char)('0' + number % 10);
    return out + 2;
}

static char *put_char(char *out, char c)
{
    *out = c;
    return out + 1;
}

static size_t put_end(const char *begin, char *end)
{
    *end = 0;
    return (size_t)(end - begin);
}

/* Without decimals and without the offset. */
static char *format_second(int64_t s, char *out)
{
    int64_t days = s / DAY_S - (s % DAY_S < 0);
    unsigned in_day = (unsigned)(s - days * DAY_S);
    struct civil_date date = civil_date(days);
    out = put_char(put_digits(out, (unsigned)date.year, 4), '-');
    out = put_char(put_two(out, (unsigned)date.month), '-');
    out = put_char(put_two(out, (unsigned)date.day), 'T');
    out = put_char(put_two(out, in_day / 3600), ':');
    out = put_char(put_two(out, in_day / 60 % 60), ':');
    return put_two(out, in_day % 60);
}

size_t when_format(int64_t us, char out[WHEN_TEXT])
{
    int rest_us;
    char *at = format_second(split(us, &rest_us), out);
    if (rest_us % 1000 > 0)
        at = put_digits(put_char(at, '.'), (unsigned)rest_us, 6);
    else if (rest_us > 0)
        at = put_digits(put_char(at, '.'), (unsigned)rest_us / 1000, 3);
    return put_end(out, put_char(at, 'Z'));
}

size_t when_format_ms(int64_t us, char out[WHEN_TEXT])
{
    int rest_us;
    char *at = format_second(split(us, &rest_us), out);
    at = put_digits(put_char(at, '.'), (unsigned)rest_us / 1000, 3);
    return put_end(out, put_char(at, 'Z'));
}

/* A number of units that are `size` long, a power of ten, with the decimals that it needs, of which a unit has `digits`. */
static char *put_decimal(char *out, uint64_t number, unsigned size, int digits)
{
    unsigned rest = (unsigned)(number % size);
    out = put_digits(out, number / size, 1);
    if (rest == 0)
        return out;
    for (; rest % 10 == 0; rest /= 10)
        digits--;
    return put_digits(put_char(out, '.'), rest, digits);
}

size_t duration_format(uint64_t us, char out[DURATION_TEXT])
{
    static const struct {
        char name;
        uint64_t size_us;
    } whole[] = {{'d', UINT64_C(1000000) * DAY_S}, {'h', UINT64_C(3600000000)}, {'m', 60000000}};
    char *at = out;
    for (int i = 0; i < 3; us %= whole[i++].size_us)
        if (us >= whole[i].size_us)
            at = put_char(put_digits(at, us / whole[i].size_us, 1), whole[i].name);
    if (us == 0 && at > out)
        return put_end(out, at);
    if (us >= SECOND_US || us == 0)
        return put_end(out, put_char(put_decimal(at, us, SECOND_US, 6), 's'));
    bool ms = us >= 1000;
    at = ms ? put_decimal(at, us, 1000, 3) : put_digits(at, us, 1);
    return put_end(out, put_char(put_char(at, ms ? 'm' : 'u'), 's'));
}

size_t thousandths_format(uint32_t number, char out[THOUSANDTHS_TEXT])
{
    return put_end(out, put_decimal(out, number, 1000, 3));
}
