/* SPDX-License-Identifier: MIT */
/* Zones from TZif files: spans, civil times in gaps and overlaps, footers, damaged files. */

#include "text/zone.h"

#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "text/civil.h"
#include "tzif.h"

#define BERLIN "CET-1CEST,M3.5.0,M10.5.0/3"

static void check_offset(const struct zone *zone, const char *at, int32_t offset_s)
{
    if (zone_offset(zone, utc_s(at)) != offset_s)
        test_fail(__FILE__, __LINE__, "at %s: %d, expected %d", at, zone_offset(zone, utc_s(at)), offset_s);
}

/* The spans follow each other, and every second is in its span. */
static void check_spans(const struct zone *zone, int64_t begin_s, int64_t end_s)
{
    struct zone_span span = zone_span(zone, begin_s);
    while (span.end_s < end_s) {
        struct zone_span next = zone_span(zone, span.end_s);
        CHECK_EQ(next.begin_s, span.end_s);
        CHECK_EQ(next.before_s, span.offset_s);
        CHECK(next.offset_s != span.offset_s);
        CHECK(next.end_s > next.begin_s);
        CHECK_EQ(zone_span(zone, next.begin_s - 1).begin_s, span.begin_s);
        CHECK_EQ(zone_span(zone, next.end_s - 1).begin_s, next.begin_s);
        span = next;
    }
}

TEST(utc_needs_no_file)
{
    struct zone *zone = zone_utc();
    int64_t at_s;
    CHECK_EQ(zone_offset(zone, utc_s("2026-01-01T00:00")), 0);
    CHECK(!zone_next_change(zone, 0, &at_s));
    CHECK_EQ(zone_place(zone, 5).at_s, 5);
    zone_unref(zone);
}

TEST(changes_take_effect_in_their_second)
{
    static const struct tzif_change changes[] = {{1000000, 3600}, {2000000, 7200}, {3000000, 7200}, {4000000, -1800}};
    for (int version = 1; version <= 4; version++) {
        uint8_t file[TZIF_MAX];
        char error[ZONE_ERROR_TEXT];
        struct zone *zone;
        size_t size = tzif_write(version, 60, changes, 4, "", file);
        CHECK_EQ(zone_parse((fl_bytes){file, size}, &zone, error), 0);
        CHECK_EQ(zone_offset(zone, -100000000000), 60);
        CHECK_EQ(zone_offset(zone, 999999), 60);
        CHECK_EQ(zone_offset(zone, 1000000), 3600);
        CHECK_EQ(zone_offset(zone, 1999999), 3600);
        CHECK_EQ(zone_offset(zone, 2000000), 7200);
        CHECK_EQ(zone_offset(zone, 3999999), 7200);
        CHECK_EQ(zone_offset(zone, 4000000), -1800);
        CHECK_EQ(zone_offset(zone, 100000000000), -1800);
        /* At the third, only a name has changed. */
        CHECK_EQ(zone_span(zone, 3000000).begin_s, 2000000);
        check_spans(zone, 0, 5000000);
        zone_unref(zone);
    }
}

TEST(a_civil_time_has_none_one_or_two_instants)
{
    struct zone *zone = tzif_zone(3600, NULL, 0, BERLIN);
    int64_t at_s[2] = {0};
    CHECK_EQ(zone_instants(zone, utc_s("2026-03-29T02:30"), at_s, 2), 0);
    CHECK_EQ(zone_place(zone, utc_s("2026-03-29T02:30")).at_s, utc_s("2026-03-29T01:00"));
    CHECK_EQ(zone_place(zone, utc_s("2026-03-29T02:30")).passes, 0);
    CHECK_EQ(zone_instants(zone, utc_s("2026-10-25T02:30"), at_s, 2), 2);
    CHECK_EQ(at_s[0], utc_s("2026-10-25T00:30"));
    CHECK_EQ(at_s[1], utc_s("2026-10-25T01:30"));
    CHECK_EQ(zone_place(zone, utc_s("2026-10-25T02:30")).at_s, utc_s("2026-10-25T00:30"));
    CHECK_EQ(zone_instants(zone, utc_s("2026-10-25T03:00"), at_s, 2), 1);
    CHECK_EQ(at_s[0], utc_s("2026-10-25T02:00"));
    CHECK_EQ(zone_place_us(zone, utc_s("2026-03-29T02:30") * 1000000 + 5), utc_s("2026-03-29T01:00") * 1000000);
    CHECK_EQ(zone_place_us(zone, utc_s("2026-03-29T04:30") * 1000000 + 5), utc_s("2026-03-29T02:30") * 1000000 + 5);
    zone_unref(zone);
}

/* Forward by an hour, and back half an hour later: 02:45 is jumped over and shown afterwards, 03:15 is shown twice. */
TEST(changes_may_be_close_to_each_other)
{
    int64_t noon_s = utc_s("2026-06-01T12:00");
    const struct tzif_change changes[] = {{noon_s, 3600}, {noon_s + 1800, 0}};
    struct zone *zone = tzif_zone(0, changes, 2, "");
    struct zone_place place = zone_place(zone, utc_s("2026-06-01T12:15"));
    CHECK(place.passes == 0 && place.at_s == noon_s);
    place = zone_place(zone, utc_s("2026-06-01T12:45"));
    CHECK(place.passes == 1 && place.at_s == noon_s + 2700);
    place = zone_place(zone, utc_s("2026-06-01T13:15"));
    CHECK(place.passes == 2 && place.at_s == noon_s + 900);
    zone_unref(zone);
}

TEST(the_footer_governs_the_time_after_the_last_change)
{
    const struct tzif_change changes[] = {{utc_s("1980-04-06T01:00"), 7200}, {utc_s("1996-10-27T01:00"), 3600}};
    struct zone *zone = tzif_zone(3600, changes, 2, BERLIN);
    check_offset(zone, "1985-01-01T00:00", 7200);
    check_offset(zone, "1997-03-30T00:59:59", 3600);
    check_offset(zone, "1997-03-30T01:00", 7200);
    check_offset(zone, "2026-03-29T00:59:59", 3600);
    check_offset(zone, "2026-03-29T01:00", 7200);
    check_offset(zone, "2026-10-25T00:59:59", 7200);
    check_offset(zone, "2026-10-25T01:00", 3600);
    check_spans(zone, 0, CIVIL_MAX_S);
    zone_unref(zone);
}

TEST(after_400_years_the_rule_goes_on)
{
    struct zone *zone = tzif_zone(3600, (struct tzif_change[]){{0, 3600}}, 1, BERLIN);
    for (int year = 1971; year < 9999; year++) {
        int64_t march = civil_days(year, 3, 31), october = civil_days(year, 10, 31);
        int64_t begin_s = (march - civil_weekday(march)) * CIVIL_DAY_S + 3600;
        int64_t end_s = (october - civil_weekday(october)) * CIVIL_DAY_S + 3600;
        CHECK_EQ(zone_offset(zone, begin_s - 1), 3600);
        CHECK_EQ(zone_span(zone, begin_s).begin_s, begin_s);
        CHECK_EQ(zone_span(zone, begin_s).end_s, end_s);
        CHECK_EQ(zone_offset(zone, end_s), 3600);
    }
    zone_unref(zone);
}

TEST(a_rule_without_changes_before_it_governs_all_time)
{
    struct zone *zone = tzif_zone(0, NULL, 0, BERLIN);
    check_offset(zone, "0500-07-01T00:00", 7200);
    check_offset(zone, "0500-01-01T00:00", 3600);
    check_offset(zone, "2026-07-01T00:00", 7200);
    check_spans(zone, CIVIL_MIN_S, CIVIL_MAX_S);
    zone_unref(zone);
}

static void check_rule(const char *rule, const char *at, int32_t offset_s)
{
    struct zone *zone = tzif_zone(0, (struct tzif_change[]){{0, 0}}, 1, rule);
    check_offset(zone, at, offset_s);
    check_spans(zone, 0, CIVIL_MAX_S);
    zone_unref(zone);
}

TEST(all_forms_of_rules)
{
    check_rule("<+0330>-3:30", "2026-07-01T00:00", 12600);
    check_rule("<-01>1", "2026-07-01T00:00", -3600);
    check_rule("ABC+5:06:07", "2026-07-01T00:00", -(5 * 3600 + 6 * 60 + 7));
    /* Dublin: winter time is the exception, and is behind. */
    check_rule("IST-1GMT0,M10.5.0,M3.5.0/1", "2026-01-01T00:00", 0);
    check_rule("IST-1GMT0,M10.5.0,M3.5.0/1", "2026-07-01T00:00", 3600);
    check_rule("IST-1GMT0,M10.5.0,M3.5.0/1", "2026-10-25T00:59:59", 3600);
    check_rule("IST-1GMT0,M10.5.0,M3.5.0/1", "2026-10-25T01:00", 0);
    /* Lord Howe: half an hour. */
    check_rule("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "2026-04-04T14:59:59", 39600);
    check_rule("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "2026-04-04T15:00", 37800);
    /* Nuuk: on Saturday evening, written as a negative time on Sunday. */
    check_rule("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2026-03-29T00:59:59", -7200);
    check_rule("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2026-03-29T01:00", -3600);
    /* Gaza: on Saturday, written as the 50th hour of Thursday. */
    check_rule("EET-2EEST,M3.4.4/50,M10.4.4/50", "2026-03-27T23:59:59", 7200);
    check_rule("EET-2EEST,M3.4.4/50,M10.4.4/50", "2026-03-28T00:00", 10800);
    /* Days of the year: without and with the leap day. */
    check_rule("AAA0BBB,J60/0,J61/0", "2028-03-01T12:00", 3600);
    check_rule("AAA0BBB,J60/0,J61/0", "2027-03-01T12:00", 3600);
    check_rule("AAA0BBB,J60/0,J61/0", "2028-02-29T12:00", 0);
    check_rule("AAA0BBB,59/0,60/0", "2028-02-29T12:00", 3600);
    check_rule("AAA0BBB,59/0,60/0", "2027-03-01T12:00", 3600);
    /* Summer time throughout the year, as RFC 9636 shows it. */
    check_rule("XXX3EDT4,0/0,J365/23", "2026-01-01T12:00", -4 * 3600);
    check_rule("XXX3EDT4,0/0,J365/23", "2026-12-31T23:59:59", -4 * 3600);
    /* Week 5 is the last one, also if it is the fourth. */
    check_rule("AAA0BBB,M2.5.1/0,M2.5.2/0", "2026-02-23T12:00", 3600);
    check_rule("AAA0BBB,M2.5.1/0,M2.5.2/0", "2028-02-28T12:00", 3600);
}

static const char *refusal(const void *data, size_t size)
{
    static char error[ZONE_ERROR_TEXT];
    struct zone *zone = NULL;
    /* A copy of exactly this size, so that sanitizers see every byte beyond it. */
    void *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    error[0] = 0;
    int r = zone_parse((fl_bytes){copy, size}, &zone, error);
    free(copy);
    zone_unref(zone);
    CHECK((r == 0) == (error[0] == 0));
    return error;
}

TEST(rules_that_are_wrong_are_refused)
{
    static const char *const rules[] = {
        "AB1",
        "ABC",
        "ABC25",
        "<AB1",
        "<+1>1",
        "ABC1DEF",
        "ABC1DEF,",
        "ABC1DEF,M3",
        "ABC1DEF,M13.1.0,M1.1.0",
        "ABC1DEF,M3.6.0,M4.1.0",
        "ABC1DEF,M3.0.0,M4.1.0",
        "ABC1DEF,M3.1.7,M4.1.0",
        "ABC1DEF,J0,J5",
        "ABC1DEF,366,5",
        "ABC1DEF,J1/168,J5",
        "ABC1DEF,J1,J5x",
        "ABC1:60",
        "ABC1DEF,J1,",
        "ABC1DEF,J1/-168,J5",
        "ABC1 ",
        "ABC1DEF,J1/,J5",
    };
    uint8_t file[TZIF_MAX];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        size_t size = tzif_write(2, 0, NULL, 0, rules[i], file);
        if (!strstr(refusal(file, size), "the rule \""))
            test_fail(__FILE__, __LINE__, "%s: %s", rules[i], refusal(file, size));
    }
}

TEST(every_cut_off_file_is_refused)
{
    static const struct tzif_change changes[] = {{1000000, 3600}, {2000000, 7200}};
    uint8_t file[TZIF_MAX];
    for (int version = 1; version <= 2; version++) {
        size_t size = tzif_write(version, 0, changes, 2, BERLIN, file);
        CHECK(strcmp(refusal(file, size), "") == 0);
        for (size_t cut = 0; cut < size; cut++)
            CHECK(strstr(refusal(file, cut), "cut off"));
    }
}

static void check_damage(size_t at, uint8_t value, const char *reason)
{
    static const struct tzif_change changes[] = {{1000000, 3600}, {2000000, 7200}};
    uint8_t file[TZIF_MAX];
    size_t size = tzif_write(1, 0, changes, 2, "", file);
    file[at] = value;
    if (!strstr(refusal(file, size), reason))
        test_fail(__FILE__, __LINE__, "byte %zu: \"%s\", expected \"%s\"", at, refusal(file, size), reason);
}

TEST(damage_is_named)
{
    enum { TIMES = 44, INDICES = TIMES + 8, TYPES = INDICES + 2 };
    check_damage(0, 'X', "does not begin with \"TZif\"");
    check_damage(4, '1', "version 49 of the format is unknown");
    check_damage(23, 1, "cut off");
    check_damage(31, 1, "cut off");
    check_damage(32, 0xff, "cut off");
    check_damage(39, 0, "no types");
    check_damage(43, 0, "no types");
    check_damage(TIMES, 0x7f, "change 1 is not after");
    check_damage(INDICES + 1, 3, "change 1 has type 3 of 3");
    check_damage(TYPES, 1, "type 0 has an offset of 16777216 s; the limit is 26 hours");
    check_damage(TYPES + 4, 2, "type 0 of local time is wrong");
    check_damage(TYPES + 5, 4, "type 0 of local time is wrong");
}

TEST(leap_seconds_are_refused)
{
    uint8_t file[TZIF_MAX];
    size_t size = tzif_write(1, 0, NULL, 0, "", file);
    file[31] = 1; /* one leap second: 8 bytes at the end */
    memset(file + size, 0, 8);
    CHECK(strstr(refusal(file, size + 8), "leap seconds"));
}

TEST(a_file_may_not_be_huge)
{
    static uint8_t file[ZONE_FILE_MAX + 1];
    CHECK(strstr(refusal(file, sizeof file), "more than"));
}
