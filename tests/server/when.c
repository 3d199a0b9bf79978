/* SPDX-License-Identifier: MIT */
/* Times against the C library's calendar, durations against a sum; everything that is no time or no duration is refused. */

#include "text/when.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <foliot/error.h>

#include "test.h"

static fl_bytes bytes(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

/* From a copy, so that the sanitizer sees who reads too far. */
static int parse(const char *text, int64_t *ret_us)
{
    size_t size = strlen(text);
    char *copy = strndup(text, size); /* its NUL is the only byte behind it, and no part of any time */
    CHECK(copy != NULL);
    int result = when_parse((fl_bytes){copy, size}, ret_us);
    free(copy);
    return result;
}

static int64_t when(const char *text)
{
    int64_t us = 0;
    if (parse(text, &us) != 0)
        test_fail(__FILE__, __LINE__, "'%s' was refused", text);
    return us;
}

static uint64_t duration(const char *text)
{
    uint64_t us = 0;
    if (duration_parse(bytes(text), &us) != 0)
        test_fail(__FILE__, __LINE__, "'%s' was refused", text);
    return us;
}

static void is_text(const char *actual, size_t size, const char *expected)
{
    if (strlen(actual) != size || strcmp(actual, expected) != 0)
        test_fail(__FILE__, __LINE__, "'%s' instead of '%s'", actual, expected);
}

static uint64_t state = 42;

static uint64_t random_below(uint64_t end)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % end;
}

TEST(well_known_moments)
{
    CHECK_EQ(when("1970-01-01T00:00:00Z"), 0);
    CHECK_EQ(when("1970-01-01T00:00:00.000001Z"), 1);
    CHECK_EQ(when("1969-12-31T23:59:59Z"), -1000000);
    CHECK_EQ(when("2000-02-29T12:34:56Z"), 951827696000000);
    CHECK_EQ(when("2026-11-17T09:00:00+01:00"), when("2026-11-17T08:00:00Z"));
    CHECK_EQ(when("2026-11-17t09:00:00z"), when("2026-11-17T09:00:00-00:00"));
    CHECK_EQ(when("1985-04-12T23:20:50.52Z"), 482196050520000);
    CHECK_EQ(when("1996-12-19T16:39:57-08:00"), when("1996-12-20T00:39:57Z"));
    CHECK_EQ(when("1937-01-01T12:00:27.87+00:20"), -1041337172130000);
    CHECK_EQ(when("9999-12-31T23:59:59.999999Z"), 253402300799999999);
    CHECK_EQ(when("0000-01-01T00:00:00Z"), -62167219200000000);
    CHECK_EQ(when("3111-09-16T23:10:18.963968Z"), FL_STORE_TIME_END);
    CHECK_EQ(when("2026-11-17T00:00:00+23:59"), when("2026-11-16T00:01:00Z"));
}

TEST(a_leap_second_is_the_one_after)
{
    CHECK_EQ(when("1990-12-31T23:59:60Z"), when("1991-01-01T00:00:00Z"));
    CHECK_EQ(when("1990-12-31T15:59:60-08:00"), when("1991-01-01T00:00:00Z"));
    CHECK_EQ(when("2016-12-31T23:59:60.25Z"), when("2017-01-01T00:00:00.25Z"));
    CHECK_EQ(when("2015-07-01T01:59:60+02:00"), when("2015-07-01T00:00:00Z"));
    int64_t us;
    CHECK_EQ(parse("2015-06-30T23:58:60Z", &us), FL_INVALID_ARGUMENT);
    CHECK_EQ(parse("2015-06-29T23:59:60Z", &us), FL_INVALID_ARGUMENT);
    CHECK_EQ(parse("2015-06-30T23:59:60+01:00", &us), FL_INVALID_ARGUMENT);
    CHECK_EQ(parse("2015-06-30T23:59:61Z", &us), FL_INVALID_ARGUMENT);
}

TEST(more_digits_than_microseconds_are_rounded_up)
{
    CHECK_EQ(when("1970-01-01T00:00:00.0000001Z"), 1);
    CHECK_EQ(when("1970-01-01T00:00:00.0000010Z"), 1);
    CHECK_EQ(when("1970-01-01T00:00:00.00000100000000000000000000000000000000001Z"), 2);
    CHECK_EQ(when("1970-01-01T00:00:00.9999991Z"), 1000000);
    CHECK_EQ(when("1970-12-31T23:59:59.9999999Z"), when("1971-01-01T00:00:00Z"));
}

/* Any second from 1970 to 3110, against timegm() and strptime(). */
TEST(agrees_with_the_c_library)
{
    for (int i = 0; i < 200000; i++) {
        time_t s = (time_t)random_below(36000000000);
        struct tm tm;
        char text[64];
        gmtime_r(&s, &tm);
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
        CHECK(strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) != NULL);
        CHECK_EQ(timegm(&tm), s);
        int offset_min = (int)random_below(2 * 1440 - 1) - 1439;
        unsigned fraction = (unsigned)random_below(1000000);
        sprintf(text + 19, ".%06u%c%02d:%02d", fraction, offset_min < 0 ? '-' : '+', abs(offset_min) / 60,
                abs(offset_min) % 60);
        CHECK_EQ(when(text), ((int64_t)s - offset_min * 60) * 1000000 + fraction);
    }
}

TEST(every_day_is_written_and_read_as_the_c_library_does)
{
    for (int64_t day = -719528; day < 2932897; day += 1 + (int64_t)random_below(20)) {
        time_t s = (time_t)(day * 86400 + (int64_t)random_below(86400));
        struct tm tm;
        char expected[64], text[WHEN_TEXT] = "";
        gmtime_r(&s, &tm);
        sprintf(expected, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                tm.tm_min, tm.tm_sec);
        is_text(text, when_format(s * 1000000, text), expected);
        CHECK_EQ(when(text), s * 1000000);
    }
}

TEST(writes_the_decimals_that_are_needed)
{
    char text[WHEN_TEXT] = "";
    is_text(text, when_format(1000, text), "1970-01-01T00:00:00.001Z");
    is_text(text, when_format(1, text), "1970-01-01T00:00:00.000001Z");
    is_text(text, when_format(-1, text), "1969-12-31T23:59:59.999999Z");
    is_text(text, when_format_ms(0, text), "1970-01-01T00:00:00.000Z");
    is_text(text, when_format_ms(1999, text), "1970-01-01T00:00:00.001Z");
    is_text(text, when_format_ms(-1, text), "1969-12-31T23:59:59.999Z");
    is_text(text, when_format(INT64_MAX, text), "9999-12-31T23:59:59.999999Z");
    is_text(text, when_format(INT64_MIN, text), "0000-01-01T00:00:00Z");
    for (int i = 0; i < 100000; i++) {
        int64_t us = (int64_t)random_below(FL_STORE_TIME_END);
        CHECK(when_format(us, text) < WHEN_TEXT);
        CHECK_EQ(when(text), us);
    }
}

TEST(refuses_what_is_no_time)
{
    static const char *const texts[] = {
        "",
        "now",
        "0",
        "1700000000000",
        "2026-11-17",
        "2026-11-17T09:00:00",
        "2026-11-17T09:00Z",
        "2026-11-17T09:00:00.Z",
        "2026-11-17T09:00:00,5Z",
        "2026-11-17 09:00:00Z",
        "2026-11-17T09:00:00 Z",
        " 2026-11-17T09:00:00Z",
        "2026-11-17T09:00:00Z ",
        "2026-11-17T09:00:00ZZ",
        "2026-11-17T09:00:00Z+01:00",
        "2026-11-17T09:00:00+01",
        "2026-11-17T09:00:00+0100",
        "2026-11-17T09:00:00+1:00",
        "2026-11-17T09:00:00+24:00",
        "2026-11-17T09:00:00+01:60",
        "2026-11-17T09:00:00+01:000",
        "2026-11-17T09:00:00+-1:00",
        "2026-11-17T09:00:00−01:00",
        "2026-11-17T24:00:00Z",
        "2026-11-17T09:60:00Z",
        "2026-11-17T09:00:61Z",
        "2026-11-17T9:00:00Z",
        "2026-11-17T09:0:00Z",
        "2026-00-17T09:00:00Z",
        "2026-13-17T09:00:00Z",
        "2026-11-00T09:00:00Z",
        "2026-11-31T09:00:00Z",
        "2026-02-29T09:00:00Z",
        "2100-02-29T09:00:00Z",
        "2024-02-30T09:00:00Z",
        "2026-1-17T09:00:00Z",
        "26-11-17T09:00:00Z",
        "02026-11-17T09:00:00Z",
        "-2026-11-17T09:00:00Z",
        "+2026-11-17T09:00:00Z",
        "2026/11/17T09:00:00Z",
        "20261117T090000Z",
        "2026-W47-2T09:00:00Z",
        "2026-11-17T09:00:00[UTC]",
        "2026-11-17T09:00:00UTC",
        "2026-11-1\xd9\xa7T09:00:00Z",
        "2026-11-17T-9:00:00Z",
        "2026-11-17T09:00:00.5.5Z",
        "2026-11-17T09:00:00.-5Z",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t us = 77;
        if (parse(texts[i], &us) != FL_INVALID_ARGUMENT || us != 77)
            test_fail(__FILE__, __LINE__, "'%s' was taken", texts[i]);
    }
    int64_t us;
    CHECK_EQ(when_parse((fl_bytes){"2026-11-17T09:00:00Z\0", 21}, &us), FL_INVALID_ARGUMENT);
    CHECK_EQ(when_parse((fl_bytes){NULL, 0}, &us), FL_INVALID_ARGUMENT);
}

/* Every beginning of a time is refused, and every time with one byte that is another is refused or the same again when it
 * is written. */
TEST(a_changed_byte_is_another_time_or_none)
{
    static const char text[] = "2026-11-17T09:00:00.25+01:00";
    int64_t us;
    for (size_t size = 0; size < sizeof text - 1; size++)
        CHECK_EQ(when_parse((fl_bytes){text, size}, &us), FL_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof text - 1; i++)
        for (int c = 0; c < 256; c++) {
            char changed[sizeof text], again[WHEN_TEXT];
            memcpy(changed, text, sizeof text);
            changed[i] = (char)c;
            if (when_parse((fl_bytes){changed, sizeof text - 1}, &us) < 0)
                continue;
            CHECK((c >= '0' && c <= '9') || c == '-' || c == text[i] || c == 't');
            when_format(us, again);
            CHECK_EQ(when(again), us);
        }
}

TEST(durations)
{
    CHECK_EQ(duration("500ms"), 500000);
    CHECK_EQ(duration("90s"), 90000000);
    CHECK_EQ(duration("1h30m"), 5400000000);
    CHECK_EQ(duration("2.5s"), 2500000);
    CHECK_EQ(duration("1d"), 86400000000);
    CHECK_EQ(duration("30d"), 2592000000000);
    CHECK_EQ(duration("1w1d1h1m1s1ms1us1ns"), 694861001002);
    CHECK_EQ(duration("0s"), 0);
    CHECK_EQ(duration("0.0h"), 0);
    CHECK_EQ(duration("007s"), 7000000);
    CHECK_EQ(duration("1.5h30m"), 7200000000);
    CHECK_EQ(duration("10000m"), 600000000000);
    CHECK_EQ(duration("365000d"), DURATION_MAX_US);
}

TEST(durations_are_rounded_up_once)
{
    CHECK_EQ(duration("1ns"), 1);
    CHECK_EQ(duration("1000ns"), 1);
    CHECK_EQ(duration("1001ns"), 2);
    CHECK_EQ(duration("0.0000005s500ns"), 1);
    CHECK_EQ(duration("0.0000000005s0.5ns"), 1);
    CHECK_EQ(duration("0.0000000000000000000000000000000000000000001w"), 1);
    CHECK_EQ(duration("1.0000000000000000000000000000000000000000000s"), 1000000);
    CHECK_EQ(duration("0.333333333333333333333333333333333w"), 201600000000);
    CHECK_EQ(duration("0.5us"), 1);
}

TEST(refuses_what_is_no_duration)
{
    static const char *const texts[] = {
        "",       "0",          "5",
        "s",      "ms",         "-1s",
        "+1s",    " 1s",        "1s ",
        "1 s",    "1S",         "1M",
        "1H",     "1x",         "1sec",
        "1.s",    ".5s",        "1..5s",
        "1.5.5s", "1e3s",       "0x1s",
        "1s1s",   "1s1m",       "1ms1s",
        "30m1h",  "1d1w",       "1s30",
        "1h30",   "1,5s",       "PT1H",
        "inf",    "nan",        "1y",
        "1mo",    "365001d",    "365000d1ns",
        "1mms",   "1\xc2\xb5s", "99999999999999999999999999999999999999999999s",
        "1sm",    "1hh",        "0.00000001y",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t us = 77;
        if (duration_parse(bytes(texts[i]), &us) != FL_INVALID_ARGUMENT || us != 77)
            test_fail(__FILE__, __LINE__, "'%s' was taken", texts[i]);
    }
    uint64_t us;
    CHECK_EQ(duration_parse((fl_bytes){"1s\0", 3}, &us), FL_INVALID_ARGUMENT);
    CHECK_EQ(duration_parse((fl_bytes){NULL, 0}, &us), FL_INVALID_ARGUMENT);
}

TEST(durations_as_they_are_written)
{
    char text[DURATION_TEXT] = "";
    is_text(text, duration_format(0, text), "0s");
    is_text(text, duration_format(1, text), "1us");
    is_text(text, duration_format(1500, text), "1.5ms");
    is_text(text, duration_format(500000, text), "500ms");
    is_text(text, duration_format(2500000, text), "2.5s");
    is_text(text, duration_format(90000000, text), "1m30s");
    is_text(text, duration_format(5400000000, text), "1h30m");
    is_text(text, duration_format(86400000000, text), "1d");
    is_text(text, duration_format(86400000001, text), "1d1us");
    is_text(text, duration_format(1000001, text), "1.000001s");
    is_text(text, duration_format(UINT64_MAX, text), "213503982d8h1m49.551615s");
}

/* A sum of random parts is what the model says, and what is written is read as the same. */
TEST(durations_agree_with_a_sum)
{
    static const struct {
        const char *name;
        uint64_t us, most;
    } units[] = {{"w", 604800000000, 1000}, {"d", 86400000000, 1000}, {"h", 3600000000, 1000}, {"m", 60000000, 1000},
                 {"s", 1000000, 100000},    {"ms", 1000, 100000},     {"us", 1, 100000}};
    for (int i = 0; i < 100000; i++) {
        uint64_t expected = 0;
        char text[256] = "", again[DURATION_TEXT];
        for (size_t unit = 0; unit < sizeof units / sizeof units[0]; unit++) {
            if (random_below(2) == 0)
                continue;
            uint64_t count = random_below(units[unit].most), tenths = unit < 6 ? random_below(10) : 0;
            sprintf(text + strlen(text), "%" PRIu64 ".%" PRIu64 "%s", count, tenths, units[unit].name);
            expected += count * units[unit].us + tenths * (units[unit].us / 10);
        }
        if (*text == '\0')
            continue;
        CHECK_EQ(duration(text), expected);
        duration_format(expected, again);
        CHECK_EQ(duration(again), expected);
    }
}
