/* SPDX-License-Identifier: MIT */
/* Reads cron expressions.
 *
 * A table has the fields with their limits and names. A field is a list of items, and each item is read by its first
 * character. `H` is replaced where it stands, so all that follows sees a number: `H` in the hours is a fixed hour, and
 * `H/8` is 3/8, for example, which has a step. */

#include "text/cron.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <foliot/error.h>

#include "text/mix.h"

enum field { SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR, FIELDS };

static const struct kind {
    const char *name;
    int min, max;
    int hash_min, hash_max; /* of `H`; 0 to -1: not allowed */
    const char *names;      /* three letters each, for min and those after it */
    const char *allowed;
} kinds[FIELDS] = {
    [SECOND] = {"second", 0, 59, 0, 59, NULL, "0 to 59, *, H, ranges (10-20), lists (0,30) and steps (*/15)"},
    [MINUTE] = {"minute", 0, 59, 0, 59, NULL, "0 to 59, *, H, ranges (10-20), lists (0,30) and steps (*/15)"},
    [HOUR] = {"hour", 0, 23, 0, 23, NULL, "0 to 23, *, H, ranges (9-17), lists (9,17) and steps (*/6)"},
    [DAY] = {"day of month", 1, 31, 1, 28, NULL,
             "1 to 31, *, ?, H, ranges (1-7), lists (1,15), steps (*/2), L, L-3, LW and 15W"},
    [MONTH] = {"month", 1, 12, 1, 12, "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC",
               "1 to 12, JAN to DEC, *, H, ranges (4-9), lists (1,7) and steps (*/3)"},
    [WEEKDAY] =
        {"day of week", 0, 7, 0, 6, "SUNMONTUEWEDTHUFRISAT",
         "0 to 7, SUN to SAT, *, ?, H, ranges (MON-FRI), lists (MON,THU), steps (*/2), FRIL, FRI#2 and a + in front"},
    [YEAR] = {"year", CRON_YEAR_MIN, CRON_YEAR_MAX, 0, -1, NULL,
              "1970 to 2199, *, ranges (2026-2030), lists (2026,2028) and steps (*/2)"},
};

struct reader {
    struct cron *cron;
    char *error;
    uint64_t seed;
    enum field field;
    const char *begin, *at, *end; /* of the field */
    bool real_time;               /* there was a *, - or / in a field of the time of day */
};

/* --- Errors ------------------------------------------------------------------------------------------------------ */

/* Writes what is wrong at `at`, a place in the field. */
__attribute__((format(printf, 3, 4))) static void say(const struct reader *reader, const char *at, const char *format,
                                                      ...)
{
    va_list arguments;
    int length = (int)(reader->end - reader->begin);
    int n = snprintf(reader->error, CRON_ERROR_TEXT, "%s field \"%.*s\", position %d: ", kinds[reader->field].name,
                     length < 40 ? length : 40, reader->begin, (int)(at - reader->begin) + 1);
    va_start(arguments, format);
    vsnprintf(reader->error + n, CRON_ERROR_TEXT - (size_t)n, format, arguments);
    va_end(arguments);
}

#define wrong(...) (say(__VA_ARGS__), false)

static bool unexpected(const struct reader *reader)
{
    const char *allowed = kinds[reader->field].allowed;
    if (reader->at == reader->end)
        return wrong(reader, reader->at, "something is missing here; allowed are %s", allowed);
    return wrong(reader, reader->at, "\"%c\" is not allowed here; allowed are %s", *reader->at, allowed);
}

/* --- Characters and values --------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char upper(char c)
{
    return (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
}

static bool at_char(const struct reader *reader, char c)
{
    return reader->at < reader->end && upper(*reader->at) == c;
}

static bool take(struct reader *reader, char c)
{
    if (!at_char(reader, c))
        return false;
    reader->at++;
    return true;
}

/* Reads a number. Returns -1 if no digit comes next. A number that is too large for every field stays too large. */
static int take_digits(struct reader *reader)
{
    const char *begin = reader->at;
    int value = 0;
    for (; reader->at < reader->end && is_digit(*reader->at); reader->at++)
        value = value < 10000 ? value * 10 + (*reader->at - '0') : value;
    return reader->at > begin ? value : -1;
}

/* A number from `min` to `max` that is called `what`. */
static bool take_number(struct reader *reader, const char *what, int min, int max, int *ret)
{
    const char *begin = reader->at;
    int value = take_digits(reader);
    if (value < 0)
        return unexpected(reader);
    if (value < min || value > max)
        return wrong(reader, begin, "%s is %.*s%s; %d to %d are allowed", what,
                     (int)(reader->at - begin < 20 ? reader->at - begin : 20), begin,
                     reader->at - begin > 20 ? "..." : "", min, max);
    *ret = value;
    return true;
}

/* MON, jan: its number; -1 if there is none. */
static int take_name(struct reader *reader)
{
    const struct kind *kind = &kinds[reader->field];
    if (!kind->names || reader->end - reader->at < 3)
        return -1;
    for (int i = 0; kind->names[i * 3]; i++) {
        const char *name = kind->names + (size_t)i * 3;
        if (upper(reader->at[0]) == name[0] && upper(reader->at[1]) == name[1] && upper(reader->at[2]) == name[2]) {
            reader->at += 3;
            return kind->min + i;
        }
    }
    return -1;
}

static bool take_value(struct reader *reader, int *ret)
{
    int value = take_name(reader);
    if (value < 0)
        return take_number(reader, "the value", kinds[reader->field].min, kinds[reader->field].max, ret);
    *ret = value;
    return true;
}

/* --- Sets -------------------------------------------------------------------------------------------------------- */

static void set_value(struct reader *reader, int value)
{
    struct cron *cron = reader->cron;
    assert(value >= kinds[reader->field].min && value <= kinds[reader->field].max);
    switch (reader->field) {
    case SECOND:
        cron->seconds |= UINT64_C(1) << value;
        break;
    case MINUTE:
        cron->minutes |= UINT64_C(1) << value;
        break;
    case HOUR:
        cron->hours |= UINT32_C(1) << value;
        break;
    case DAY:
        cron->days |= UINT32_C(1) << value;
        break;
    case MONTH:
        cron->months |= (uint16_t)(1 << value);
        break;
    case WEEKDAY:
        cron->weekdays |= (uint8_t)(1 << value % 7);
        break;
    default:
        assert(value >= CRON_YEAR_MIN);
        cron->years[(value - CRON_YEAR_MIN) / 64] |= UINT64_C(1) << (value - CRON_YEAR_MIN) % 64;
    }
}

static bool set_range(struct reader *reader, int first, int last, int step)
{
    for (int value = first; value <= last; value += step)
        set_value(reader, value);
    return true;
}

/* The largest value that `*` and an open step mean: Sunday is there once. */
static int last_value(const struct reader *reader)
{
    return reader->field == WEEKDAY ? 6 : kinds[reader->field].max;
}

/* A step, if there is one. */
static bool take_step(struct reader *reader, int *ret, bool *ret_given)
{
    const struct kind *kind = &kinds[reader->field];
    *ret = 1;
    *ret_given = take(reader, '/');
    if (!*ret_given)
        return true;
    reader->real_time |= reader->field <= HOUR;
    return take_number(reader, "the step", 1, reader->field == YEAR ? kind->max - kind->min : kind->max, ret);
}

/* --- Items ------------------------------------------------------------------------------------------------------- */

static bool read_star(struct reader *reader)
{
    int step;
    bool given;
    reader->real_time |= reader->field <= HOUR;
    return take_step(reader, &step, &given) && set_range(reader, kinds[reader->field].min, last_value(reader), step);
}

static bool read_question_mark(struct reader *reader)
{
    if ((reader->field != DAY && reader->field != WEEKDAY) || reader->at != reader->end ||
        reader->at - reader->begin > (reader->begin[0] == '+' ? 2 : 1))
        return wrong(reader, reader->at - 1, "\"?\" is allowed only alone in day of month or day of week; write *");
    return set_range(reader, kinds[reader->field].min, last_value(reader), 1);
}

/* The range in H(0-29). */
static bool take_hash_range(struct reader *reader, int *ret_first, int *ret_last)
{
    const struct kind *kind = &kinds[reader->field];
    *ret_first = kind->hash_min;
    *ret_last = kind->hash_max;
    if (!take(reader, '('))
        return true;
    const char *begin = reader->at;
    if (!take_value(reader, ret_first) || !(take(reader, '-') || unexpected(reader)) || !take_value(reader, ret_last) ||
        !(take(reader, ')') || unexpected(reader)))
        return false;
    int max = reader->field == DAY ? kind->hash_max : kind->max;
    if (reader->field == WEEKDAY && *ret_last == 0 && *ret_first > 0)
        *ret_last = 7;
    if (*ret_first > *ret_last || *ret_last > max)
        return wrong(reader, begin, "the range of H is %d-%d; it must go up and be within %d-%d", *ret_first, *ret_last,
                     kind->hash_min, max);
    return true;
}

static bool read_hash(struct reader *reader)
{
    int first = 0, last = 0, step;
    bool given;
    if (kinds[reader->field].hash_max < 0)
        return wrong(reader, reader->at - 1, "H is not allowed here; allowed are %s", kinds[reader->field].allowed);
    if (!take_hash_range(reader, &first, &last) || !take_step(reader, &step, &given))
        return false;
    assert(first <= last && step > 0);
    unsigned size = (unsigned)(last - first + 1);
    uint64_t hash = mix_end(reader->seed + (uint64_t)reader->field);
    if (!given)
        return set_range(reader, first + (int)(hash % size), first + (int)(hash % size), 1);
    return set_range(reader, first + (int)(hash % ((unsigned)step < size ? (unsigned)step : size)), last, step);
}

/* L, L-3, LW: after the L. */
static bool read_last_day(struct reader *reader)
{
    int before = 0;
    if (reader->field != DAY)
        return wrong(reader, reader->at - 1, "L needs a day of the week here, such as FRIL for the last Friday");
    if (take(reader, 'W')) {
        reader->cron->last_working_day = true;
        return true;
    }
    if (take(reader, '-') && !take_number(reader, "the number of days before the last", 1, 30, &before))
        return false;
    reader->cron->last_days |= UINT32_C(1) << before;
    return true;
}

static bool read_nth(struct reader *reader, int weekday)
{
    int nth;
    if (!take_number(reader, "the number after #", 1, 5, &nth))
        return false;
    reader->cron->nth_weekdays[nth - 1] |= (uint8_t)(1 << weekday % 7);
    return true;
}

/* 5-10, FRI-SUN, 5-30/5, 5/15: after the first value. */
static bool read_range(struct reader *reader, const char *begin, int first)
{
    int last = first, step;
    bool range = take(reader, '-'), given;
    if (range) {
        reader->real_time |= reader->field <= HOUR;
        if (!take_value(reader, &last))
            return false;
        if (reader->field == WEEKDAY && first > last) { /* Sunday ends a week as well as it begins one */
            last = last == 0 ? 7 : last;
            first = first == 7 ? 0 : first;
        }
        if (first > last)
            return wrong(reader, begin, "the range %d-%d goes down; write two ranges, one up to %d and one from %d",
                         first, last, last_value(reader), kinds[reader->field].min);
    }
    if (!take_step(reader, &step, &given))
        return false;
    if (given && !range) {
        first = reader->field == WEEKDAY ? first % 7 : first;
        last = last_value(reader);
    }
    return set_range(reader, first, last, step);
}

static bool read_item(struct reader *reader)
{
    const char *begin = reader->at;
    int value;
    if (take(reader, '*'))
        return read_star(reader);
    if (take(reader, '?'))
        return read_question_mark(reader);
    if (take(reader, 'H'))
        return read_hash(reader);
    if ((reader->field == DAY || reader->field == WEEKDAY) && take(reader, 'L'))
        return read_last_day(reader);
    if (!take_value(reader, &value))
        return false;
    if (reader->field == DAY && take(reader, 'W')) {
        reader->cron->near_days |= UINT32_C(1) << value;
        return true;
    }
    if (reader->field == WEEKDAY && take(reader, 'L')) {
        reader->cron->last_weekdays |= (uint8_t)(1 << value % 7);
        return true;
    }
    if (reader->field == WEEKDAY && take(reader, '#'))
        return read_nth(reader, value);
    return read_range(reader, begin, value);
}

static bool read_list(struct reader *reader)
{
    do {
        if (!read_item(reader))
            return false;
    } while (take(reader, ','));
    return reader->at == reader->end || unexpected(reader);
}

/* --- Expressions ------------------------------------------------------------------------------------------------- */

struct fields {
    fl_bytes part[FIELDS + 1];
    int count; /* FIELDS + 1: too many */
};

static struct fields split(fl_bytes text)
{
    struct fields fields = {.count = 0};
    const char *at = text.data, *end = at + text.size;
    while (fields.count <= FIELDS) {
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (at == end)
            break;
        const char *begin = at;
        while (at < end && *at != ' ' && *at != '\t')
            at++;
        fields.part[fields.count++] = (fl_bytes){begin, (size_t)(at - begin)};
    }
    return fields;
}

/* @daily and its like: the expression that it stands for. */
static int expand(fl_bytes *text, char *error)
{
    static const char *const words[][2] = {
        {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"}, {"@weekly", "0 0 * * 0"},
        {"@daily", "0 0 * * *"},  {"@midnight", "0 0 * * *"}, {"@hourly", "0 * * * *"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (text->size == strlen(words[i][0]) && memcmp(text->data, words[i][0], text->size) == 0) {
            *text = (fl_bytes){words[i][1], strlen(words[i][1])};
            return 0;
        }
    snprintf(error, CRON_ERROR_TEXT,
             "\"%.*s\" is unknown; allowed are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly "
             "(for a fixed period, use \"every\")",
             text->size < 40 ? (int)text->size : 40, (const char *)text->data);
    return FL_INVALID_ARGUMENT;
}

static bool is_restricted(fl_bytes field)
{
    const char *text = field.data;
    return text[0] != '*' && text[0] != '?';
}

static bool read_field(struct reader *reader, enum field field, fl_bytes text)
{
    reader->field = field;
    reader->begin = reader->at = text.data;
    reader->end = reader->begin + text.size;
    if (field == WEEKDAY)
        take(reader, '+');
    return read_list(reader);
}

static bool read_fields(struct reader *reader, const struct fields *fields)
{
    struct cron *cron = reader->cron;
    bool seconds = fields->count > 5;
    cron->seconds = !seconds;
    for (int i = 0; i < fields->count; i++)
        if (!read_field(reader, (enum field)(i + !seconds), fields->part[i]))
            return false;
    fl_bytes day = fields->part[DAY - !seconds], weekday = fields->part[WEEKDAY - !seconds];
    bool both = *(const char *)weekday.data == '+';
    cron->either = !both && is_restricted(day) && is_restricted(weekday);
    cron->fixed = !reader->real_time;
    cron->any_year =
        fields->count < FIELDS || (fields->part[YEAR].size == 1 && *(const char *)fields->part[YEAR].data == '*');
    return true;
}

/* For the reader of the message, every byte in it can be printed. */
static bool is_printable(fl_bytes text)
{
    for (size_t i = 0; i < text.size; i++) {
        char c = ((const char *)text.data)[i];
        if ((c < ' ' || c > '~') && c != '\t')
            return false;
    }
    return true;
}

static int never(const struct fields *fields, char *error)
{
    bool seconds = fields->count > 5;
    fl_bytes day = fields->part[DAY - !seconds], month = fields->part[MONTH - !seconds],
             weekday = fields->part[WEEKDAY - !seconds];
    snprintf(
        error, CRON_ERROR_TEXT,
        "the expression can never match: no date has day of month \"%.*s\", month \"%.*s\" and day of week \"%.*s\"%s",
        (int)(day.size < 40 ? day.size : 40), (const char *)day.data, (int)(month.size < 40 ? month.size : 40),
        (const char *)month.data, (int)(weekday.size < 40 ? weekday.size : 40), (const char *)weekday.data,
        fields->count == FIELDS ? " in these years" : "");
    return FL_INVALID_ARGUMENT;
}

uint64_t cron_seed(fl_bytes ns, fl_bytes name)
{
    uint64_t state = mix_bytes(MIX_BEGIN, ns.data, ns.size);
    state = mix_bytes(state, "\377", 1); /* in no UTF-8 text, so that a/bc is not ab/c */
    return mix_end(mix_bytes(state, name.data, name.size));
}

int cron_parse(fl_bytes text, uint64_t seed, struct cron *ret, char ret_error[CRON_ERROR_TEXT])
{
    struct cron cron = {0};
    struct reader reader = {.cron = &cron, .error = ret_error, .seed = seed};
    int64_t first_s;
    if (text.size > CRON_TEXT_MAX || !is_printable(text)) {
        snprintf(ret_error, CRON_ERROR_TEXT, "an expression has at most %d characters, all of them printable ASCII",
                 CRON_TEXT_MAX);
        return FL_INVALID_ARGUMENT;
    }
    struct fields fields = split(text);
    if (fields.count == 1 && *(const char *)fields.part[0].data == '@') {
        text = fields.part[0];
        if (expand(&text, ret_error) < 0)
            return FL_INVALID_ARGUMENT;
        fields = split(text);
    }
    if (fields.count < 5 || fields.count > FIELDS) {
        snprintf(
            ret_error, CRON_ERROR_TEXT,
            "the expression has %s%d field%s; allowed are 5 (minute, hour, day of month, month, day of week), 6 (with "
            "seconds in front) and 7 (also with a year at the end)",
            fields.count > FIELDS ? "more than " : "", fields.count > FIELDS ? FIELDS : fields.count,
            fields.count == 1 ? "" : "s");
        return FL_INVALID_ARGUMENT;
    }
    if (!read_fields(&reader, &fields))
        return FL_INVALID_ARGUMENT;
    if (!cron_next(&cron, 0, &first_s))
        return never(&fields, ret_error);
    *ret = cron;
    return 0;
}
