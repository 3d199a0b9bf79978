/* SPDX-License-Identifier: MIT */
/* TZif files: whatever is taken is a zone whose spans follow each other, in which every civil time has its place, and in
 * which schedules keep their rules. */

#include <stdlib.h>
#include <string.h>

#include "text/civil.h"
#include "text/rule_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

static void check_place(const struct zone *zone, int64_t local_s)
{
    struct zone_place place = zone_place(zone, local_s);
    int64_t at_s[4];
    int passes = zone_instants(zone, local_s, at_s, 4);
    check(place.passes == passes);
    for (int i = 0; i < passes && i < 4; i++)
        check(at_s[i] + zone_offset(zone, at_s[i]) == local_s && (i == 0 || at_s[i] > at_s[i - 1]));
    if (passes > 0)
        check(place.at_s == at_s[0]);
    else /* the clock jumps over it there */
        check(place.at_s + zone_offset(zone, place.at_s) > local_s &&
              place.at_s - 1 + zone_offset(zone, place.at_s - 1) < local_s);
}

static void check_schedule(struct zone *zone, const char *cron, int64_t at_s)
{
    struct rule rule = {.zone = zone, .start_us = INT64_MIN, .end_us = INT64_MAX};
    char error[CRON_ERROR_TEXT];
    struct occurrence next;
    int64_t after_us = (at_s - 100000) * 1000000, from_us = after_us;
    uint64_t count = 0;
    check(cron_parse((fl_bytes){cron, strlen(cron)}, 0, &rule.cron, error) == 0);
    for (; count < 10 && rule_next(&rule, from_us, &next); count++) {
        check(next.at_us > from_us && next.offset_s == zone_offset(zone, next.at_us / 1000000));
        from_us = next.at_us;
    }
    check(rule_count(&rule, after_us, from_us) == count);
    check(count == 0 || (rule_last(&rule, from_us, &next) && next.at_us == from_us));
}

static void check_change(struct zone *zone, const struct zone_span *span)
{
    if (span->begin_s < CIVIL_MIN_S + 1000000 || span->begin_s > CIVIL_MAX_S - 1000000)
        return;
    int64_t low_s = span->begin_s + (span->before_s < span->offset_s ? span->before_s : span->offset_s);
    int64_t high_s = span->begin_s + (span->before_s < span->offset_s ? span->offset_s : span->before_s);
    check_place(zone, low_s - 1);
    check_place(zone, low_s);
    check_place(zone, low_s + (high_s - low_s) / 2);
    check_place(zone, high_s - 1);
    check_place(zone, high_s);
    check_schedule(zone, "0,30 0,2,12 * * *", span->begin_s);
    check_schedule(zone, "*/20 1-3 * * *", span->begin_s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char error[ZONE_ERROR_TEXT] = "";
    struct zone *zone;
    if (zone_parse((fl_bytes){bytes, size}, &zone, error) < 0) {
        check(error[0] != 0 && strlen(error) < sizeof error);
        return 0;
    }
    struct zone_span span = zone_span(zone, ZONE_BEGIN_S + 1);
    for (int i = 0; i < 40 && span.end_s < CIVIL_MAX_S; i++) {
        struct zone_span next = zone_span(zone, span.end_s);
        check(next.begin_s == span.end_s && next.end_s > next.begin_s);
        check(next.before_s == span.offset_s && next.offset_s != span.offset_s);
        check(zone_span(zone, next.end_s - 1).begin_s == next.begin_s);
        check_change(zone, &next);
        span = i == 30 ? zone_span(zone, CIVIL_MAX_S - 100000000) : next; /* and some that the rule repeats */
    }
    zone_unref(zone);
    return 0;
}
