/* SPDX-License-Identifier: MIT */
/* Cron expressions: what is taken, what is refused and how, which days and times match. */

#include "text/cron.h"

#include <string.h>

#include <foliot/error.h>

#include "test.h"
#include "text/civil.h"

static char error[CRON_ERROR_TEXT];

static bool parse_as(const char *text, const char *name, struct cron *ret)
{
    error[0] = 0;
    return cron_parse((fl_bytes){text, strlen(text)}, cron_seed((fl_bytes){"ns", 2}, (fl_bytes){name, strlen(name)}),
                      ret, error) == 0;
}

static struct cron parse(const char *text)
{
    struct cron cron = {0};
    if (!parse_as(text, "name", &cron))
        test_fail(__FILE__, __LINE__, "%s: %s", text, error);
    return cron;
}

static int64_t at(const char *text)
{
    int64_t us;
    CHECK(civil_parse_time((fl_bytes){text, strlen(text)}, &us) == 0);
    return us / 1000000;
}

/* The matches after `from` are exactly those that are listed with spaces. */
static void check_matches(const char *text, const char *from, const char *wanted)
{
    struct cron cron = parse(text);
    char found[400] = "", one[CIVIL_TEXT];
    int64_t local_s = at(from);
    while (strlen(found) + 1 < strlen(wanted) && cron_next(&cron, local_s, &local_s)) {
        civil_format(local_s++ * 1000000, 0, one);
        one[strstr(wanted, ":00:") || strchr(wanted, 'T') ? 16 : 10] = 0;
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", found[0] ? " " : "", one);
    }
    if (strcmp(found, wanted) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s, expected %s", text, found, wanted);
}

static bool same(const struct cron *a, const struct cron *b)
{
    return a->seconds == b->seconds && a->minutes == b->minutes && a->hours == b->hours && a->days == b->days &&
           a->months == b->months && a->weekdays == b->weekdays && a->fixed == b->fixed && a->either == b->either;
}

TEST(days_that_match)
{
    check_matches("0 0 * * *", "2026-02-27T12:00", "2026-02-28 2026-03-01 2026-03-02");
    check_matches("0 0 L * *", "2024-02-01T00:00", "2024-02-29 2024-03-31 2024-04-30");
    check_matches("0 0 L-3 * *", "2024-02-01T00:00", "2024-02-26 2024-03-28 2024-04-27");
    check_matches("0 0 L-30 * *", "2024-02-01T00:00", "2024-03-01 2024-05-01");
    check_matches("0 0 LW * *", "2026-01-01T00:00", "2026-01-30 2026-02-27 2026-03-31 2026-04-30 2026-05-29");
    check_matches("0 0 15W * *", "2026-01-01T00:00", "2026-01-15 2026-02-16 2026-03-16 2026-04-15 2026-05-15");
    check_matches("0 0 1W * *", "2026-02-01T00:00", "2026-02-02 2026-03-02 2026-04-01 2026-05-01 2026-06-01");
    check_matches("0 0 1W * *", "2026-08-01T00:00", "2026-08-03"); /* not the Friday of another month */
    check_matches("0 0 31W * *", "2026-01-01T00:00", "2026-01-30 2026-03-31 2026-05-29");
    check_matches("0 0 31W 5 *", "2027-05-01T00:00", "2027-05-31 2028-05-31");
    check_matches("0 0 * * FRIL", "2026-01-01T00:00", "2026-01-30 2026-02-27 2026-03-27 2026-04-24");
    check_matches("0 0 * * FRIL", "2026-07-01T00:00", "2026-07-31 2026-08-28");
    check_matches("0 0 * * FRI#2", "2026-01-01T00:00", "2026-01-09 2026-02-13 2026-03-13");
    check_matches("0 0 * * fri#5", "2026-01-01T00:00", "2026-01-30 2026-05-29 2026-07-31");
    check_matches("0 0 * * 7L", "2026-01-01T00:00", "2026-01-25 2026-02-22");
    check_matches("0 0 ? * 0", "2026-01-01T00:00", "2026-01-04 2026-01-11");
    check_matches("0 0 ? * 7", "2026-01-01T00:00", "2026-01-04 2026-01-11");
    check_matches("0 0 ? * FRI-SUN", "2026-01-01T00:00", "2026-01-02 2026-01-03 2026-01-04 2026-01-09");
    check_matches("0 0 ? * 5-7", "2026-01-01T00:00", "2026-01-02 2026-01-03 2026-01-04 2026-01-09");
    check_matches("0 0 29 2 ?", "2026-01-01T00:00", "2028-02-29 2032-02-29");
    check_matches("0 0 29 2 ?", "2096-03-01T00:00", "2104-02-29");
    check_matches("0 0 1 1,JUL *", "2026-01-02T00:00", "2026-07-01 2027-01-01");
    check_matches("0 0 1 */5 *", "2026-01-02T00:00", "2026-06-01 2026-11-01 2027-01-01");
    check_matches("0 0 1 10/1 *", "2026-01-02T00:00", "2026-10-01 2026-11-01 2026-12-01 2027-10-01");
    check_matches("0 0 0 1 1 ? 2030,2040", "2026-01-02T00:00", "2030-01-01 2040-01-01");
    check_matches("0 0 0 1 1 ? 2190/4", "2026-01-02T00:00", "2190-01-01 2194-01-01 2198-01-01");
    check_matches("0 0 0 1 1 ? *", "2199-01-02T00:00", "2200-01-01 2201-01-01");
}

TEST(two_day_fields)
{
    check_matches("0 9 13 * FRI", "2026-02-10T00:00", "2026-02-13 2026-02-20 2026-02-27 2026-03-06 2026-03-13");
    check_matches("0 9 12 * FRI", "2026-02-10T00:00", "2026-02-12 2026-02-13 2026-02-20");
    check_matches("0 9 13 * +FRI", "2026-01-01T00:00", "2026-02-13 2026-03-13 2026-11-13 2027-08-13");
    check_matches("0 9 */2 * FRI", "2026-01-01T00:00", "2026-01-09 2026-01-23 2026-02-13"); /* begins with *: both */
    check_matches("0 9 ? * FRI", "2026-01-01T00:00", "2026-01-02 2026-01-09");
    check_matches("0 9 13 * *", "2026-01-01T00:00", "2026-01-13 2026-02-13");
    check_matches("0 9 13 * ?", "2026-01-01T00:00", "2026-01-13 2026-02-13");
    check_matches("0 9 30 2 MON", "2026-02-20T00:00", "2026-02-23 2027-02-01"); /* 30 February never, but Mondays */
    check_matches("0 9 29 2 +FRI", "2026-02-20T00:00", "2036-02-29 2064-02-29 2092-02-29");
}

TEST(times_that_match)
{
    check_matches("*/20 9-10 * * *", "2026-01-01T09:30",
                  "2026-01-01T09:40 2026-01-01T10:00 2026-01-01T10:20 2026-01-01T10:40 2026-01-02T09:00");
    check_matches("5/25 23 * * *", "2026-01-01T23:40", "2026-01-01T23:55 2026-01-02T23:05");
    check_matches("10-30/10,59 0 * * *", "2026-01-01T00:11", "2026-01-01T00:20 2026-01-01T00:30 2026-01-01T00:59");
    struct cron cron = parse("15,45 30 9 * * *");
    CHECK(cron_matches(&cron, at("2026-01-01T09:30:15")));
    CHECK(!cron_matches(&cron, at("2026-01-01T09:30:16")));
    CHECK(!cron_matches(&cron, at("2026-01-01T09:31:15")));
}

TEST(words)
{
    static const char *const words[][2] = {
        {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"},  {"@weekly", "0 0 * * 0"},
        {"@daily", "0 0 * * *"},  {"@midnight", "0 0 * * *"}, {" @hourly ", "0 * * * *"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct cron word = parse(words[i][0]), expression = parse(words[i][1]);
        CHECK(same(&word, &expression));
    }
}

TEST(fixed_times_of_day)
{
    static const char *const fixed[] = {"30 2 * * *",    "0,30 2,14 * * MON-FRI",  "@daily",         "@weekly",
                                        "0 0 9 */2 * *", "H(0-29) 2 * * *",        "H H(1-5) * * *", "H H H * * *",
                                        "0 9 L-3 * *",   "0 0 0 1 1 ? 2026-2030/2"};
    static const char *const real[] = {"* * * * *",          "*/5 * * * *", "0 1-3 * * *",    "@hourly",
                                       "0/30 2 * * *",       "H * * * *",   "H/15 2 * * *",   "5-5 2 * * *",
                                       "H(0-29)/10 2 * * *", "* 0 2 * * *", "0 30 2/12 * * *"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        CHECK(parse(fixed[i]).fixed);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        CHECK(!parse(real[i]).fixed);
}

static int only(uint64_t set)
{
    CHECK_EQ(__builtin_popcountll(set), 1);
    return __builtin_ctzll(set);
}

TEST(hashed_values)
{
    bool minutes[60] = {false}, days[32] = {false}, differ = false;
    for (int i = 0; i < 2000; i++) {
        char name[16];
        struct cron cron, again;
        snprintf(name, sizeof name, "job-%d", i);
        CHECK(parse_as("H H H H H H", name, &cron) && parse_as("H H H H H H", name, &again));
        CHECK(same(&cron, &again));
        minutes[only(cron.minutes)] = true;
        int day = only(cron.days);
        CHECK(day >= 1 && day <= 28);
        days[day] = true;
        CHECK(only(cron.months) >= 1 && only(cron.months) <= 12);
        CHECK(only(cron.weekdays) <= 6);
        differ |= only(cron.minutes) != only(cron.seconds);
        CHECK(parse_as("H(10-19) H(MON-FRI) * * *", name, &cron) == false); /* names of days are not hours */
        CHECK(parse_as("H(10-19) H(3-4) * * H(MON-FRI)", name, &cron));
        CHECK(only(cron.minutes) >= 10 && only(cron.minutes) <= 19);
        CHECK(only(cron.hours) >= 3 && only(cron.hours) <= 4);
        CHECK(only(cron.weekdays) >= 1 && only(cron.weekdays) <= 5);
        CHECK(parse_as("H/15 H(8-17)/3 H/10 * *", name, &cron));
        CHECK_EQ(__builtin_popcountll(cron.minutes), 4);
        CHECK((cron.minutes & 0x7fff) << 15 == (cron.minutes & (UINT64_C(0x7fff) << 15)));
        CHECK((cron.hours & ~UINT32_C(0x3ff00)) == 0 && cron.hours);
        CHECK((cron.days & ~UINT32_C(0x1ffffffe)) == 0 && cron.days);
    }
    CHECK(differ);
    for (int i = 0; i < 60; i++)
        CHECK(minutes[i]);
    for (int i = 1; i <= 28; i++)
        CHECK(days[i]);
}

/* These values are a promise: a new version must not move schedules. */
TEST(hashed_values_never_change)
{
    struct cron cron;
    CHECK(cron_seed((fl_bytes){"ab", 2}, (fl_bytes){"c", 1}) != cron_seed((fl_bytes){"a", 1}, (fl_bytes){"bc", 2}));
    CHECK(parse_as("H H H H H", "backup", &cron));
    CHECK_EQ(only(cron.minutes), 37);
    CHECK_EQ(only(cron.hours), 3);
    CHECK_EQ(only(cron.days), 5);
    CHECK_EQ(only(cron.months), 8);
    CHECK_EQ(only(cron.weekdays), 5);
}

static void check_refused(const char *text, const char *reason)
{
    struct cron cron;
    if (parse_as(text, "name", &cron) || !strstr(error, reason))
        test_fail(__FILE__, __LINE__, "%s: \"%s\", expected \"%s\"", text, error, reason);
}

TEST(errors_name_the_field_and_the_position)
{
    check_refused("60 * * * *", "minute field \"60\", position 1: the value is 60; 0 to 59 are allowed");
    check_refused("0 9-25 * * *", "hour field \"9-25\", position 3: the value is 25; 0 to 23 are allowed");
    check_refused("0 0 0 * *", "day of month field \"0\", position 1: the value is 0; 1 to 31 are allowed");
    check_refused("0 0 * 1,13 *", "month field \"1,13\", position 3: the value is 13; 1 to 12 are allowed");
    check_refused("0 0 * * 8", "day of week field \"8\", position 1: the value is 8; 0 to 7 are allowed");
    check_refused("0 0 * * MOX",
                  "day of week field \"MOX\", position 1: \"M\" is not allowed here; allowed are 0 to 7, SUN to SAT");
    check_refused("0 0 * * FRIDAY", "day of week field \"FRIDAY\", position 4: \"D\" is not allowed here");
    check_refused("0 0 * * MON,", "day of week field \"MON,\", position 5: something is missing here");
    check_refused("0 0 * * FRI#6",
                  "day of week field \"FRI#6\", position 5: the number after # is 6; 1 to 5 are allowed");
    check_refused("0 0 * * L", "L needs a day of the week here, such as FRIL for the last Friday");
    check_refused("0 0 * * FRI-MON",
                  "position 1: the range 5-1 goes down; write two ranges, one up to 6 and one from 0");
    check_refused(
        "0 22-2 * * *",
        "hour field \"22-2\", position 1: the range 22-2 goes down; write two ranges, one up to 23 and one from 0");
    check_refused("*/0 * * * *", "minute field \"*/0\", position 3: the step is 0; 1 to 59 are allowed");
    check_refused("*/90 * * * *", "minute field \"*/90\", position 3: the step is 90; 1 to 59 are allowed");
    check_refused("0 */24 * * *", "hour field \"*/24\", position 3: the step is 24; 1 to 23 are allowed");
    check_refused("? * * * *",
                  "minute field \"?\", position 1: \"?\" is allowed only alone in day of month or day of week");
    check_refused("0 0 ?,5 * *", "\"?\" is allowed only alone");
    check_refused("0 0 5,? * *", "\"?\" is allowed only alone");
    check_refused("0 0 ?/2 * *", "\"?\" is allowed only alone");
    check_refused("0 0 L-31 * *",
                  "day of month field \"L-31\", position 3: the number of days before the last is 31; 1 to 30");
    check_refused("0 0 15WL * *", "day of month field \"15WL\", position 4: \"L\" is not allowed here");
    check_refused("0 0 L3 * *", "day of month field \"L3\", position 2: \"3\" is not allowed here");
    check_refused("0 0 1-5W * *", "day of month field \"1-5W\", position 4: \"W\" is not allowed here");
    check_refused("H(30-60) * * * *", "minute field \"H(30-60)\", position 6: the value is 60");
    check_refused("H(30-20) * * * *",
                  "minute field \"H(30-20)\", position 3: the range of H is 30-20; it must go up and be within 0-59");
    check_refused("0 0 H(1-31) * *", "the range of H is 1-31; it must go up and be within 1-28");
    check_refused("H(1-5 * * * *", "minute field \"H(1-5\", position 6: something is missing here");
    check_refused("H(5) * * * *", "minute field \"H(5)\", position 4: \")\" is not allowed here");
    check_refused("0 0 0 1 1 ? H", "year field \"H\", position 1: H is not allowed here; allowed are 1970 to 2199");
    check_refused("0 0 0 1 1 ? 2200", "year field \"2200\", position 1: the value is 2200; 1970 to 2199 are allowed");
    check_refused("0 0 +1 * *", "day of month field \"+1\", position 1: \"+\" is not allowed here");
    check_refused("0 0 1 * ++1", "day of week field \"++1\", position 2: \"+\" is not allowed here");
    check_refused("0 0 * * +", "day of week field \"+\", position 2: something is missing here");
    check_refused("1,,2 * * * *", "minute field \"1,,2\", position 3: \",\" is not allowed here");
    check_refused("-5 * * * *", "minute field \"-5\", position 1: \"-\" is not allowed here");
    check_refused("4294967301 * * * *", "position 1: the value is 4294967301;");
    check_refused("123456789012345678901234567890 * * * *", "position 1: the value is 12345678901234567890...;");
    check_refused("1.5 * * * *", "minute field \"1.5\", position 2: \".\" is not allowed here");
}

TEST(errors_of_the_whole_expression)
{
    check_refused("", "the expression has 0 fields; allowed are 5 (minute, hour,");
    check_refused("* * * *", "the expression has 4 fields");
    check_refused("* * * * * * * *", "the expression has more than 7 fields");
    check_refused("@reboot", "\"@reboot\" is unknown; allowed are @yearly,");
    check_refused("@every 5m", "the expression has 2 fields");
    check_refused("@", "\"@\" is unknown");
    check_refused("* * * * \xc3\xa4", "printable ASCII");
    check_refused("* * * *\n*", "printable ASCII");
    char many[300];
    memset(many, '1', sizeof many - 1);
    many[sizeof many - 1] = 0;
    check_refused(many, "at most 256 characters");
}

TEST(expressions_that_can_never_match)
{
    check_refused("0 0 30 2 *",
                  "the expression can never match: no date has day of month \"30\", month \"2\" and day of week \"*\"");
    check_refused("0 0 31 4,6,9,11 *", "can never match");
    check_refused("0 0 31W FEB ?", "can never match");
    check_refused("0 0 L-30 4 *", "can never match");
    check_refused("0 0 30 2 +MON", "can never match");
    check_refused("0 0 1-7 * +FRI#2", "can never match");
    check_refused("0 0 0 29 2 ? 2025-2027",
                  "can never match: no date has day of month \"29\", month \"2\" and day of week \"?\" in these years");
    check_refused("0 0 0 29 2 ? 2100", "can never match");
    parse("0 0 29 2 +MON");
    parse("0 0 0 29 2 ? 2000");
    parse("0 0 L-30 5 *");
}

/* Counting is walking, but faster. */
TEST(counts_are_those_of_walking)
{
    static const char *const texts[] = {"*/7 * * * *",
                                        "0 0 L,15W * *",
                                        "0 9 13 * FRI",
                                        "1,59 0,59 0,23 29 2 *",
                                        "0 0 0 1-7 * +MON 2020-2030/3",
                                        "*/30 * 2-5 * * FRI#2,MONL"};
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct cron cron = parse(texts[i]);
        for (int round = 0; round < 50; round++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            int64_t begin_s = at("2019-01-01T00:00") + (int64_t)(random >> 33) % (10 * 366 * 86400);
            int64_t end_s = begin_s + (int64_t)(random >> 20) % (round < 25 ? 90000 : 400 * 86400), local_s = begin_s;
            uint64_t count = 0;
            for (; cron_next(&cron, local_s, &local_s) && local_s < end_s; local_s++)
                count++;
            CHECK_EQ(cron_count(&cron, begin_s, end_s), count);
        }
    }
}

TEST(the_ends_of_the_calendar)
{
    struct cron cron = parse("59 59 23 31 12 *");
    int64_t local_s;
    CHECK(cron_next(&cron, -(INT64_C(1) << 50), &local_s) && local_s == at("0001-12-31T23:59:59"));
    CHECK(cron_next(&cron, CIVIL_MAX_S, &local_s) && local_s == CIVIL_MAX_S);
    CHECK(!cron_next(&cron, CIVIL_MAX_S + 1, &local_s));
    CHECK_EQ(cron_count(&cron, -(INT64_C(1) << 50), INT64_C(1) << 50), 9999);
    cron = parse("0 0 1 1 *");
    CHECK(!cron_next(&cron, CIVIL_MAX_S, &local_s));
    cron = parse("0 0 0 1 1 ? 1970");
    CHECK(cron_next(&cron, at("0001-01-01T00:00:00"), &local_s) && local_s == at("1970-01-01T00:00:00"));
}
