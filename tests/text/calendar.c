/* SPDX-License-Identifier: MIT */
/* Occurrences: named cases of clock changes, limits, exceptions, periods, counting. */

#include "text/calendar.h"

#include <stdlib.h>
#include <string.h>

#include <foliot/error.h>

#include "test.h"
#include "text/civil.h"
#include "tzif.h"

enum { SECOND = 1000000 };

static const struct zones *zones_of_machine(void)
{
    static struct zones *zones;
    char error[ZONE_ERROR_TEXT];
    if (!zones && zones_load(NULL, NULL, &zones, error) < 0)
        test_fail(__FILE__, __LINE__, "%s", error);
    return zones;
}

__attribute__((destructor)) static void end(void)
{
    zones_free((struct zones *)zones_of_machine());
}

static fl_bytes bytes(const char *text)
{
    return text ? (fl_bytes){text, strlen(text)} : (fl_bytes){0};
}

static struct rule *compile(const struct rule_text *text)
{
    struct rule *rule;
    struct rule_error error;
    if (rule_new(text, zones_of_machine(), &rule, &error) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", error.field, error.text);
    return rule;
}

/* The occurrences after `from` (a UTC time), in local time with their marks, are those in `wanted`. */
static void check_list(const struct rule_text *text, const char *from, const char *wanted)
{
    struct rule *rule = compile(text);
    struct occurrence next;
    char found[1000] = "", one[CIVIL_TEXT];
    int64_t after_us = utc_s(from) * SECOND;
    while (strlen(found) < strlen(wanted)) {
        bool more = rule_next(rule, after_us, &next);
        size_t size = strlen(found);
        if (more)
            civil_format(next.at_us, next.offset_s, one);
        snprintf(found + size, sizeof found - size, "%s%s%s", size ? " " : "", more ? one : "end",
                 !more                     ? ""
                 : next.dst == RULE_GAP    ? "/gap"
                 : next.dst == RULE_REPEAT ? "/repeat"
                                           : "");
        if (!more)
            break;
        after_us = next.at_us;
    }
    if (strcmp(found, wanted) != 0)
        test_fail(__FILE__, __LINE__, "\n# found    %s\n# expected %s", found, wanted);
    rule_free(rule);
}

#define CRON(expression, where, ...) (&(struct rule_text){.cron = bytes(expression), .zone = bytes(where), __VA_ARGS__})

TEST(berlin)
{
    check_list(CRON("30 2 * * *", "Europe/Berlin"), "2026-03-28T00:00",
               "2026-03-28T02:30:00+01:00 2026-03-29T03:00:00+02:00/gap 2026-03-30T02:30:00+02:00");
    check_list(CRON("30 2 * * *", "Europe/Berlin", .gap = bytes("skip")), "2026-03-28T00:00",
               "2026-03-28T02:30:00+01:00 2026-03-30T02:30:00+02:00");
    check_list(CRON("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00",
               "2026-10-25T02:30:00+02:00/repeat 2026-10-26T02:30:00+01:00");
    check_list(CRON("30 2 * * *", "Europe/Berlin", .repeat = bytes("both")), "2026-10-24T12:00",
               "2026-10-25T02:30:00+02:00/repeat 2026-10-25T02:30:00+01:00/repeat 2026-10-26T02:30:00+01:00");
    /* An occurrence of the second pass is not found if the search begins between the passes. */
    check_list(CRON("30 2 * * *", "Europe/Berlin"), "2026-10-25T00:45", "2026-10-26T02:30:00+01:00");
    /* Several local times in the gap, and one at its end, are one occurrence. */
    check_list(CRON("0,15,30,45 2 * * *", "Europe/Berlin"), "2026-03-28T12:00",
               "2026-03-29T03:00:00+02:00/gap 2026-03-30T02:00:00+02:00");
    check_list(CRON("0,30 2,3 * * *", "Europe/Berlin"), "2026-03-28T12:00",
               "2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00 2026-03-30T02:00:00+02:00");
    /* Real time: both passes, and nothing for times that do not exist. */
    check_list(CRON("*/30 * * * *", "Europe/Berlin"), "2026-03-29T00:00",
               "2026-03-29T01:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00");
    check_list(CRON("*/30 2 * * *", "Europe/Berlin"), "2026-03-28T12:00", "2026-03-30T02:00:00+02:00");
    check_list(CRON("0 1-3 * * *", "Europe/Berlin"), "2026-10-24T12:00",
               "2026-10-25T01:00:00+02:00 2026-10-25T02:00:00+02:00/repeat 2026-10-25T02:00:00+01:00/repeat "
               "2026-10-25T03:00:00+01:00");
}

TEST(lord_howe_changes_by_half_an_hour)
{
    check_list(CRON("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03T00:00",
               "2026-10-04T02:30:00+11:00/gap 2026-10-05T02:15:00+11:00");
    check_list(CRON("45 1 * * *", "Australia/Lord_Howe", .repeat = bytes("both")), "2026-04-04T00:00",
               "2026-04-05T01:45:00+11:00/repeat 2026-04-05T01:45:00+10:30/repeat 2026-04-06T01:45:00+10:30");
}

TEST(dublin_has_negative_daylight_saving_time)
{
    check_list(CRON("30 1 * * *", "Europe/Dublin"), "2026-03-28T12:00",
               "2026-03-29T02:00:00+01:00/gap 2026-03-30T01:30:00+01:00");
    check_list(CRON("30 1 * * *", "Europe/Dublin", .repeat = bytes("both")), "2026-10-24T12:00",
               "2026-10-25T01:30:00+01:00/repeat 2026-10-25T01:30:00+00:00/repeat 2026-10-26T01:30:00+00:00");
}

TEST(apia_left_out_a_day)
{
    check_list(CRON("0 9 * * *", "Pacific/Apia"), "2011-12-29T00:00",
               "2011-12-29T09:00:00-10:00 2011-12-31T00:00:00+14:00/gap 2011-12-31T09:00:00+14:00");
    check_list(CRON("0 9 * * FRI", "Pacific/Apia"), "2011-12-29T00:00",
               "2011-12-31T00:00:00+14:00/gap 2012-01-06T09:00:00+14:00");
    check_list(CRON("0 9 * * FRI", "Pacific/Apia", .gap = bytes("skip")), "2011-12-29T00:00",
               "2012-01-06T09:00:00+14:00");
    check_list(CRON("0 0 * * *", "Pacific/Apia"), "2011-12-29T00:00",
               "2011-12-29T00:00:00-10:00 2011-12-31T00:00:00+14:00 2012-01-01T00:00:00+14:00");
    const fl_bytes except[] = {bytes("2011-12-30")};
    check_list(CRON("0 9 * * *", "Pacific/Apia", .except = except, .n_except = 1), "2011-12-29T00:00",
               "2011-12-29T09:00:00-10:00 2011-12-31T09:00:00+14:00");
}

TEST(cairo_and_santiago_change_at_midnight)
{
    check_list(CRON("0 0 * * *", "Africa/Cairo"), "2024-04-24T00:00",
               "2024-04-25T00:00:00+02:00 2024-04-26T01:00:00+03:00/gap 2024-04-27T00:00:00+03:00");
    check_list(CRON("30 23 * * *", "Africa/Cairo", .repeat = bytes("both")), "2024-10-31T00:00",
               "2024-10-31T23:30:00+03:00/repeat 2024-10-31T23:30:00+02:00/repeat 2024-11-01T23:30:00+02:00");
    check_list(CRON("0 0 * * *", "America/Santiago"), "2024-09-07T12:00",
               "2024-09-08T01:00:00-03:00/gap 2024-09-09T00:00:00-03:00");
    check_list(CRON("30 23 * * *", "America/Santiago"), "2024-04-06T12:00",
               "2024-04-06T23:30:00-03:00/repeat 2024-04-07T23:30:00-04:00");
    /* The day fields test the local time as it is written: Sunday the 8th does not begin at midnight. */
    check_list(CRON("0 0 * * SUN", "America/Santiago"), "2024-09-05T00:00",
               "2024-09-08T01:00:00-03:00/gap 2024-09-15T00:00:00-03:00");
}

TEST(exceptions)
{
    const fl_bytes except[] = {bytes("2026-12-31T09:00"), bytes("2026-12-25"),          bytes("2026-12-25"),
                               bytes("2026-12-24"),       bytes("2027-01-01T10:00:00"), bytes("2026-03-29T02:30")};
    check_list(CRON("0 9,10 * * *", "Europe/Berlin", .except = except, .n_except = 6), "2026-12-23T12:00",
               "2026-12-26T09:00:00+01:00 2026-12-26T10:00:00+01:00 2026-12-27T09:00:00+01:00");
    check_list(CRON("0 9,10 * * *", "Europe/Berlin", .except = except, .n_except = 6), "2026-12-30T12:00",
               "2026-12-31T10:00:00+01:00 2027-01-01T09:00:00+01:00 2027-01-02T09:00:00+01:00");
    check_list(CRON("30 2 * * *", "Europe/Berlin", .except = except, .n_except = 6), "2026-03-28T12:00",
               "2026-03-30T02:30:00+02:00");
}

TEST(start_and_end)
{
    struct rule_text text = {.cron = bytes("0 9 * * *"),
                             .has_start = true,
                             .start_us = utc_s("2026-05-02T09:00") * SECOND,
                             .has_end = true,
                             .end_us = utc_s("2026-05-04T09:00") * SECOND};
    check_list(&text, "2020-01-01T00:00", "2026-05-02T09:00:00+00:00 2026-05-03T09:00:00+00:00 end");
    struct rule *until_end = compile(&text);
    CHECK_EQ(rule_count(until_end, INT64_MIN, text.end_us), 2);
    rule_free(until_end);
    text.start_us += 1;
    text.end_us += 1;
    check_list(&text, "2020-01-01T00:00", "2026-05-03T09:00:00+00:00 2026-05-04T09:00:00+00:00 end");
    struct rule *rule = compile(&text);
    struct occurrence last = {0};
    CHECK(!rule_last(rule, utc_s("2026-05-03T08:59") * SECOND, &last));
    CHECK(rule_last(rule, INT64_MAX, &last) && last.at_us == utc_s("2026-05-04T09:00") * SECOND);
    CHECK_EQ(rule_count(rule, INT64_MIN, INT64_MAX), 2);
    CHECK(rule_back(rule, INT64_MIN, INT64_MAX, 2, &last) && last.at_us == utc_s("2026-05-03T09:00") * SECOND);
    CHECK(!rule_back(rule, INT64_MIN, INT64_MAX, 3, &last));
    rule_free(rule);
}

TEST(periods)
{
    struct rule_text text = {.has_every = true, .every_us = 1500000, .created_us = 10 * SECOND + 1};
    struct rule *rule = compile(&text);
    struct occurrence next = {0};
    CHECK(rule_next(rule, INT64_MIN, &next) && next.at_us == 11500001);
    CHECK(rule_next(rule, 11500000, &next) && next.at_us == 11500001);
    CHECK(rule_next(rule, 11500001, &next) && next.at_us == 13000001);
    CHECK(rule_last(rule, 13000000, &next) && next.at_us == 11500001);
    CHECK(!rule_last(rule, 11500000, &next));
    CHECK_EQ(rule_count(rule, 0, 13000001), 2);
    CHECK_EQ(rule_count(rule, 11500001, 13000001), 1);
    CHECK_EQ(rule_count(rule, 11500001, 13000000), 0);
    CHECK(rule_back(rule, INT64_MIN, 100 * SECOND, 3, &next) && next.at_us == 100000001 - 2 * 1500000 - 1500000);
    rule_free(rule);
    text.has_start = text.has_end = true;
    text.start_us = -SECOND;
    text.end_us = 2000000;
    rule = compile(&text);
    CHECK(rule_next(rule, INT64_MIN, &next) && next.at_us == -SECOND);
    CHECK(rule_next(rule, -SECOND, &next) && next.at_us == 500000);
    CHECK(!rule_next(rule, 500000, &next)); /* 2000000 is the end */
    CHECK_EQ(rule_count(rule, INT64_MIN, INT64_MAX), 2);
    rule_free(rule);
}

/* At the ends of the range of numbers, nothing overflows. */
TEST(periods_at_the_ends_of_time)
{
    struct occurrence next = {0};
    static const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
    static const uint64_t periods[] = {RULE_EVERY_MIN_US, INT64_MAX};
    for (size_t i = 0; i < 7 * 7 * 2; i++) {
        struct rule_text text = {.has_every = true,
                                 .every_us = periods[i % 2],
                                 .has_start = i / 2 % 7 > 0,
                                 .start_us = ends[i / 2 % 7],
                                 .created_us = ends[i / 14]};
        struct rule *rule = compile(&text);
        for (int k = 0; k < 7; k++) {
            if (rule_next(rule, ends[k], &next))
                CHECK(next.at_us > ends[k] && next.at_us <= CIVIL_MAX_S * SECOND + SECOND);
            if (rule_last(rule, ends[k], &next))
                CHECK(next.at_us <= ends[k]);
            rule_count(rule, ends[k], ends[6 - k]);
        }
        rule_free(rule);
    }
    struct rule *rule = compile(CRON("* * * * * *", "Europe/Berlin"));
    for (int k = 0; k < 7; k++) {
        if (rule_next(rule, ends[k], &next))
            CHECK(next.at_us > ends[k]);
        if (rule_last(rule, ends[k], &next))
            CHECK(next.at_us <= ends[k]);
        rule_count(rule, ends[k], ends[6 - k]);
    }
    CHECK(!rule_next(rule, CIVIL_MAX_S * SECOND + 999999, &next));
    rule_free(rule);
}

/* --- What counts and goes back agrees with what walks ------------------------------------------------------------ */

static void check_walk(const struct rule *rule, int64_t after_us, int64_t until_us)
{
    int64_t walked[400], from_us = after_us;
    struct occurrence next;
    uint64_t count = 0;
    while (count < 400 && rule_next(rule, from_us, &next) && next.at_us <= until_us)
        walked[count++] = from_us = next.at_us;
    if (count == 400)
        until_us = walked[399];
    CHECK_EQ(rule_count(rule, after_us, until_us), count);
    if (count == 0)
        return;
    CHECK(rule_last(rule, until_us, &next) && next.at_us == walked[count - 1]);
    CHECK(rule_last(rule, walked[count / 2], &next) && next.at_us == walked[count / 2]);
    if (count > 1)
        CHECK(rule_last(rule, walked[count / 2] - 1, &next) && (count / 2 == 0 || next.at_us == walked[count / 2 - 1]));
    for (uint64_t n = 1; n <= count; n += 1 + n / 3)
        CHECK(rule_back(rule, after_us, until_us, n, &next) && next.at_us == walked[count - n]);
    CHECK(!rule_back(rule, after_us, until_us, count + 1, &next));
}

TEST(counting_and_going_back_agree_with_walking)
{
    static const char *const crons[] = {"30 2 * * *",      "0,30 0,1,2,3 * * *", "*/10 * * * *",
                                        "0 0 29 2 +FRI",   "* * * * * *",        "15 1-3 L * *",
                                        "0 9 * * MON-FRI", "0 0 0 1 1 ? 2027",   "59 59 23 * * SUN"};
    static const char *const places[] = {"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"};
    const fl_bytes except[] = {bytes("2026-03-29"), bytes("2026-10-25T02:30"), bytes("2026-10-25T02:00"),
                               bytes("2026-11-02")};
    uint64_t random = 7;
    for (size_t i = 0; i < 9 * 5 * 8; i++) {
        struct rule *rule =
            compile(CRON(crons[i % 9], places[i / 9 % 5], .except = except, .n_except = i / 45 & 1 ? 4 : 0,
                         .gap = bytes(i / 90 & 1 ? "skip" : "after"), .repeat = bytes(i / 180 & 1 ? "both" : "first")));
        for (int round = 0; round < 6; round++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            int64_t from_s =
                (round & 1 ? utc_s("2026-03-27T00:00") : utc_s("2026-10-23T00:00")) + (int64_t)(random >> 45);
            check_walk(rule, from_s * SECOND + (int64_t)(random & 0xfff), (from_s + 400 * CIVIL_DAY_S) * SECOND);
        }
        rule_free(rule);
    }
}

/* Rules of the calendar hold for a zone that no country has. */
TEST(zones_that_change_twice_within_hours)
{
    int64_t noon_s = utc_s("2026-06-01T12:00");
    const struct tzif_change changes[] = {{noon_s, 3600}, {noon_s + 1800, 0}};
    uint8_t file[TZIF_MAX];
    char error[ZONE_ERROR_TEXT];
    const char *folder = folder_new();
    folder_write(folder, "Odd", file, tzif_write(2, 0, changes, 2, "ABC0", file));
    struct zones *zones;
    CHECK_EQ(zones_load(folder, NULL, &zones, error), 0);
    static const struct {
        const char *cron, *wanted;
    } cases[] = {
        {"15 12 * * *", "2026-06-01T12:00:00"}, /* in the gap, and never shown */
        {"45 12 * * *", "2026-06-01T12:45:00"}, /* in the gap, and shown afterwards */
        {"15 13 * * *", "2026-06-01T12:15:00"}, /* shown twice */
    };
    for (int i = 0; i < 3; i++) {
        struct rule_error problem;
        struct rule *rule;
        struct occurrence next = {0};
        CHECK_EQ(rule_new(CRON(cases[i].cron, "Odd"), zones, &rule, &problem), 0);
        CHECK(rule_next(rule, (noon_s - 3600) * SECOND, &next));
        CHECK(strcmp(utc_text(next.at_us / SECOND), cases[i].wanted) == 0);
        CHECK(rule_next(rule, next.at_us, &next) && next.at_us / SECOND > noon_s + 12 * 3600);
        check_walk(rule, (noon_s - 90000) * SECOND, (noon_s + 90000) * SECOND);
        rule_free(rule);
    }
    zones_free(zones);
}

/* Over noon twice, and back between: 12:15 is jumped over twice and never shown, and occurs once. */
TEST(a_time_that_is_jumped_over_twice_occurs_once)
{
    int64_t noon_s = utc_s("2026-06-01T12:00");
    const struct tzif_change changes[] = {{noon_s, 3600}, {noon_s + 1800, -3600}, {noon_s + 2700, 0}};
    uint8_t file[TZIF_MAX];
    char error[ZONE_ERROR_TEXT];
    const char *folder = folder_new();
    folder_write(folder, "Odd", file, tzif_write(2, 0, changes, 3, "ABC0", file));
    struct zones *zones;
    struct rule *rule;
    struct rule_error problem = {0};
    struct occurrence next = {0};
    CHECK_EQ(zones_load(folder, NULL, &zones, error), 0);
    CHECK_EQ(rule_new(CRON("15 12 * * *", "Odd"), zones, &rule, &problem), 0);
    CHECK(rule_next(rule, (noon_s - 3600) * SECOND, &next) && next.at_us == noon_s * SECOND && next.dst == RULE_GAP);
    CHECK(rule_next(rule, next.at_us, &next) && next.at_us == (noon_s + 86400 + 900) * SECOND);
    rule_free(rule);
    zones_free(zones);
}

/* --- The rest ---------------------------------------------------------------------------------------------------- */

TEST(the_delay_is_a_fixed_part_of_the_window)
{
    uint64_t low = 0, sum = 0;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "job-%d", i);
        uint64_t seed = cron_seed(bytes("ns"), bytes(name));
        uint64_t delay_us = rule_delay_us(seed, 600 * SECOND, 0, 3600 * (int64_t)SECOND);
        CHECK(delay_us < 600 * SECOND);
        CHECK_EQ(rule_delay_us(seed, 600 * SECOND, 5, 3600 * (int64_t)SECOND), delay_us);
        CHECK_EQ(rule_delay_us(seed, 600 * SECOND, 5, INT64_MAX), delay_us);
        CHECK(rule_delay_us(seed, 600 * SECOND, 0, 60 * SECOND) < 60 * SECOND);
        CHECK_EQ(rule_delay_us(seed, 600 * SECOND, 0, 1), 0);
        CHECK_EQ(rule_delay_us(seed, 0, 0, 60 * SECOND), 0);
        low += delay_us < 300 * SECOND;
        sum += delay_us / SECOND;
    }
    CHECK(low > 400 && low < 600 && sum > 270000 && sum < 330000);
    CHECK(rule_delay_us(1, UINT64_MAX, INT64_MIN, INT64_MAX) > 0);
}

static void check_refused(const struct rule_text *text, const char *field, const char *reason)
{
    struct rule *rule;
    struct rule_error error = {0};
    CHECK_EQ(rule_new(text, zones_of_machine(), &rule, &error), FL_INVALID_ARGUMENT);
    if (strcmp(error.field, field) != 0 || !strstr(error.text, reason))
        test_fail(__FILE__, __LINE__, "%s: %s, expected %s: %s", error.field, error.text, field, reason);
}

TEST(rules_that_are_wrong_are_refused)
{
    const fl_bytes bad[] = {bytes("2026-13-25")}, zoned[] = {bytes("2026-12-25T09:00Z")},
                   fine[] = {bytes("2026-12-25")};
    check_refused(&(struct rule_text){0}, "cron", "a schedule needs \"cron\" or \"every\"");
    check_refused(CRON("0 9 * * *", NULL, .has_every = true, .every_us = SECOND), "every", "not both");
    check_refused(CRON("0 25 * * *", NULL), "cron", "hour field \"25\", position 1");
    check_refused(CRON("0 9 * * *", "Europe/Berln"), "zone", "there is no time zone \"Europe/Berln\"");
    check_refused(CRON("0 9 * * *", ""), "zone", "there is no time zone \"\"");
    check_refused(CRON("0 9 * * *", NULL, .gap = bytes("before")), "gap",
                  "\"before\" is unknown; allowed are \"after\" and \"skip\"");
    check_refused(CRON("0 9 * * *", NULL, .repeat = bytes("")), "repeat", "allowed are \"first\" and \"both\"");
    check_refused(CRON("0 9 * * *", NULL, .except = bad, .n_except = 1), "except", "\"2026-13-25\" is neither a date");
    check_refused(CRON("0 9 * * *", NULL, .except = zoned, .n_except = 1), "except", "without a zone");
    check_refused(CRON("0 9 * * *", NULL, .except = fine, .n_except = 1001), "except", "at most 1000");
    check_refused(CRON("0 9 * * *", NULL, .has_start = true, .has_end = true), "end", "must be after \"start\"");
    struct rule_text every = {.has_every = true, .every_us = 99999};
    check_refused(&every, "every", "at least 100 ms");
    every = (struct rule_text){.has_every = true, .every_us = SECOND, .zone = bytes("UTC")};
    check_refused(&every, "zone", "only with \"cron\"");
    every = (struct rule_text){.has_every = true, .every_us = SECOND, .gap = bytes("skip")};
    check_refused(&every, "gap", "only with \"cron\"");
    every = (struct rule_text){.has_every = true, .every_us = SECOND, .repeat = bytes("first")};
    check_refused(&every, "repeat", "only with \"cron\"");
    every = (struct rule_text){.has_every = true, .every_us = SECOND, .except = fine, .n_except = 1};
    check_refused(&every, "except", "only with \"cron\"");
}

TEST(civil_times_as_text)
{
    int64_t value = -1;
    char text[CIVIL_TEXT];
    CHECK_EQ(civil_parse_time(bytes("2027-06-01T09:00:00"), &value), 0);
    CHECK_EQ(value, INT64_C(1811840400) * SECOND);
    CHECK_EQ(civil_parse_time(bytes("2027-06-01t09:00:00.0000001"), &value), 0);
    CHECK_EQ(value, INT64_C(1811840400) * SECOND + 1);
    static const char *const wrong[] = {"",
                                        "2027-06-01",
                                        "2027-06-01T",
                                        "2027-06-01T24:00",
                                        "2027-06-01T09:60",
                                        "2027-06-01T09",
                                        "2027-06-01T09:00:60",
                                        "2027-06-01T09:00:00Z",
                                        "2027-06-01T09:00:00+02:00",
                                        "2027-06-31T09:00",
                                        "0000-06-01T09:00",
                                        "2027-6-1T09:00",
                                        "2027-06-01 09:00",
                                        "2027-06-01T09:00:00.",
                                        " 2027-06-01T09:00"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(civil_parse_time(bytes(wrong[i]), &value), FL_INVALID_ARGUMENT);
    CHECK_EQ(civil_parse_date(bytes("2100-02-29"), &value), FL_INVALID_ARGUMENT);
    CHECK_EQ(civil_format(INT64_C(1811840400) * SECOND + 250000, -12600, text),
             strlen("2027-06-01T05:30:00.250-03:30"));
    CHECK(strcmp(text, "2027-06-01T05:30:00.250-03:30") == 0);
    civil_format(-1, -2670, text);
    CHECK(strcmp(text, "1969-12-31T23:15:29.999999-00:44:30") == 0);
    civil_format(INT64_MIN, -93599, text);
    civil_format(INT64_MAX, 93599, text);
}
