/* SPDX-License-Identifier: MIT */
/* Cron expressions and other rules: whatever is taken has occurrences that match it, in order, and counting them and going
 * back agree with walking. The input is a byte of options, a byte for the zone, a time, and the expression. */

#include <stdlib.h>
#include <string.h>

#include "text/calendar.h"
#include "text/civil.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

/* A zone of this machine; UTC if there are none. */
static fl_bytes zone_name(const struct zones *zones, uint8_t number)
{
    struct zones_entry entry;
    if (!zones_at(zones, number * 7u % (zones_count(zones) + 1), &entry))
        return (fl_bytes){0};
    return (fl_bytes){entry.name, strlen(entry.name)};
}

static const struct zones *zones_of_machine(void)
{
    static struct zones *zones;
    static bool tried;
    char error[ZONE_ERROR_TEXT];
    if (!tried && zones_load(NULL, NULL, &zones, error) < 0)
        zones = NULL;
    tried = true;
    return zones;
}

static void check_expression(fl_bytes text, int64_t local_s)
{
    struct cron cron;
    char error[CRON_ERROR_TEXT] = "";
    int64_t next_s, begin_s = local_s;
    uint64_t count = 0;
    if (cron_parse(text, 1, &cron, error) < 0) {
        check(error[0] != 0 && strlen(error) < sizeof error);
        return;
    }
    for (; count < 20 && cron_next(&cron, local_s, &next_s); local_s = next_s + 1, count++) {
        struct civil_date date = civil_date(civil_day_of(next_s));
        int in_day = (int)(next_s - civil_day_of(next_s) * CIVIL_DAY_S);
        check(next_s >= local_s);
        check(cron.hours >> in_day / 3600 & 1 && cron.minutes >> in_day / 60 % 60 & 1 &&
              cron.seconds >> in_day % 60 & 1);
        check(cron.months >> date.month & 1 && cron_month(&cron, date.year, date.month) >> date.day & 1);
    }
    check(cron_count(&cron, begin_s, local_s) == count);
}

static void check_rule(const struct rule *rule, int64_t after_us)
{
    int64_t walked[30], from_us = after_us;
    struct occurrence next;
    uint64_t count = 0;
    const int64_t years_us = INT64_C(10) * 366 * CIVIL_DAY_S * 1000000; /* going back over centuries would take long */
    for (; count < 30 && rule_next(rule, from_us, &next) && next.at_us - after_us < years_us; count++) {
        check(next.at_us > from_us);
        walked[count] = from_us = next.at_us;
    }
    check(rule_count(rule, after_us, from_us) == count);
    if (count == 0)
        return;
    check(rule_last(rule, from_us, &next) && next.at_us == from_us);
    check(rule_back(rule, after_us, from_us, count, &next) && next.at_us == walked[0]);
    check(!rule_back(rule, after_us, from_us, count + 1, &next));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const struct zones *zones = zones_of_machine();
    struct rule_text text = {.except = (fl_bytes[]){{"2026-03-29", 10}, {"2026-10-25T02:30", 16}}};
    struct rule_error error;
    struct rule *rule;
    int64_t at_us;
    if (size < 10)
        return 0;
    memcpy(&at_us, bytes + 2, sizeof at_us);
    text.cron = (fl_bytes){bytes + 10, size - 10};
    text.zone = zone_name(zones, bytes[1]);
    text.gap = bytes[0] & 1 ? (fl_bytes){"skip", 4} : (fl_bytes){0};
    text.repeat = bytes[0] & 2 ? (fl_bytes){"both", 4} : (fl_bytes){0};
    text.n_except = bytes[0] & 4 ? 2 : 0;
    at_us %= (CIVIL_MAX_S + 1) * 1000000;
    check_expression(text.cron, at_us / 1000000);
    if (rule_new(&text, zones, &rule, &error) < 0)
        return 0;
    check_rule(rule, at_us);
    rule_free(rule);
    return 0;
}
