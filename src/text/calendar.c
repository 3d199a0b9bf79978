/* SPDX-License-Identifier: MIT */
/* Occurrences of rules.
 *
 * A zone divides time into spans in which the clock does not change. Inside of a span, civil time is the instant plus the
 * offset, and finding an occurrence is finding a civil time that matches (text/cron.h). What is special happens where two
 * spans meet:
 *
 *   - In an overlap, the second span shows civil times again that an earlier one has shown. A fixed time of day occurs in
 *     the first of them only, unless both passes are wanted.
 *   - In a gap, the clock jumps over civil times. A fixed time of day among them occurs at the first moment of the
 *     second span.
 *
 * All of that is within 26 hours of the change, because offsets are smaller. Elsewhere, nothing is checked. Nor is every
 * span visited: after a search that has found the next match months ahead, the walk goes on shortly before that match.
 *
 * Whether a civil time is repeated, or never shown, is a question to the zone as a whole (zone_place()), so the rules
 * hold also for zones that change twice within hours. */

#include <assert.h>

#include "text/civil.h"
#include "text/mix.h"
#include "text/rule_internal.h"

enum { SECOND_US = 1000000, NEAR_S = 2 * ZONE_OFFSET_MAX_S };

#define AT_MAX_US (CIVIL_MAX_S * SECOND_US + SECOND_US - 1)

/* --- Exceptions -------------------------------------------------------------------------------------------------- */

/* The index of the first number that is not less than `value`. */
static uint32_t lower_bound(const int64_t *list, uint32_t count, int64_t value)
{
    uint32_t low = 0;
    while (low < count) {
        uint32_t middle = low + (count - low) / 2;
        if (list[middle] < value)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static bool contains(const int64_t *list, uint32_t count, int64_t value)
{
    uint32_t i = lower_bound(list, count, value);
    return i < count && list[i] == value;
}

/* The first civil time from `local_s` on that matches and is no exception. */
static bool next_local(const struct rule *rule, int64_t local_s, int64_t *ret_s)
{
    while (cron_next(&rule->cron, local_s, ret_s)) {
        int64_t day = civil_day_of(*ret_s);
        if (contains(rule_dates(rule), rule->n_dates, day))
            local_s = (day + 1) * CIVIL_DAY_S;
        else if (contains(rule_times(rule), rule->n_times, *ret_s))
            local_s = *ret_s + 1;
        else
            return true;
    }
    return false;
}

/* How many civil times match and are no exceptions, begin_s <= t < end_s. */
static uint64_t count_local(const struct rule *rule, int64_t begin_s, int64_t end_s)
{
    uint64_t count = cron_count(&rule->cron, begin_s, end_s);
    const int64_t *dates = rule_dates(rule), *times = rule_times(rule);
    for (uint32_t i = lower_bound(dates, rule->n_dates, civil_day_of(begin_s)); i < rule->n_dates; i++) {
        int64_t day_s = dates[i] * CIVIL_DAY_S, next_s = day_s + CIVIL_DAY_S;
        if (day_s >= end_s)
            break;
        count -= cron_count(&rule->cron, day_s > begin_s ? day_s : begin_s, next_s < end_s ? next_s : end_s);
    }
    for (uint32_t i = lower_bound(times, rule->n_times, begin_s); i < rule->n_times && times[i] < end_s; i++)
        count -= cron_matches(&rule->cron, times[i]) && !contains(dates, rule->n_dates, civil_day_of(times[i]));
    return count;
}

/* --- One span ---------------------------------------------------------------------------------------------------- */

/* Whether the rule occurs at `at_s`, where the clock shows a time that matches: not in a later pass, unless wanted. */
static bool is_wanted_pass(const struct rule *rule, const struct zone_span *span, int64_t at_s)
{
    if (!rule->cron.fixed || rule->both_passes || at_s - span->begin_s >= NEAR_S)
        return true;
    return zone_place(rule->zone, at_s + span->offset_s).at_s == at_s;
}

/* Whether a time of the rule is in the gap before the span, and so occurs when the span begins. */
static bool gap_matches(const struct rule *rule, const struct zone_span *span)
{
    if (!rule->cron.fixed || rule->skip_gaps || span->offset_s <= span->before_s)
        return false;
    int64_t local_s = span->begin_s + span->before_s, end_s = span->begin_s + span->offset_s;
    for (; next_local(rule, local_s, &local_s) && local_s < end_s; local_s++) {
        struct zone_place place = zone_place(rule->zone, local_s);
        if (place.passes == 0 && place.at_s == span->begin_s)
            return true;
    }
    return false;
}

static struct occurrence shown_at(const struct rule *rule, const struct zone_span *span, int64_t at_s)
{
    struct occurrence occurrence = {at_s * SECOND_US, span->offset_s, RULE_PLAIN};
    if ((at_s - span->begin_s < NEAR_S || span->end_s - at_s < NEAR_S) &&
        zone_instants(rule->zone, at_s + span->offset_s, NULL, 0) > 1)
        occurrence.dst = RULE_REPEAT;
    return occurrence;
}

/* Where the search goes on after `span`, in which there is nothing from `from_s` on. `next_s` is the first civil time
 * that matches from then on. Every civil time between is shown between, or in a gap between, if the span is longer than
 * what a change can turn back: then nothing occurs until shortly before `next_s`. */
static int64_t after_span(const struct zone_span *span, int64_t from_s, int64_t next_s)
{
    if (span->end_s - from_s < NEAR_S || next_s - NEAR_S < span->end_s)
        return span->end_s;
    return next_s - NEAR_S;
}

/* The first occurrence, from_s <= t < until_s. */
static bool next_cron(const struct rule *rule, int64_t from_s, int64_t until_s, struct occurrence *ret)
{
    while (from_s < until_s) {
        struct zone_span span = zone_span(rule->zone, from_s);
        int64_t local_s, at_s = ZONE_END_S;
        if (!next_local(rule, from_s + span.offset_s, &local_s))
            local_s = ZONE_END_S;
        else if (local_s < span.end_s + span.offset_s)
            at_s = local_s - span.offset_s;
        bool wanted = at_s < span.end_s && is_wanted_pass(rule, &span, at_s);
        if (from_s == span.begin_s && !(wanted && at_s == from_s) && gap_matches(rule, &span)) {
            *ret = (struct occurrence){from_s * SECOND_US, span.offset_s, RULE_GAP};
            return true;
        }
        if (wanted && at_s >= until_s)
            return false;
        if (wanted) {
            *ret = shown_at(rule, &span, at_s);
            return true;
        }
        from_s = at_s < span.end_s ? at_s + 1 : after_span(&span, from_s, local_s);
    }
    return false;
}

/* How many occurrences there are, from_s <= t < until_s. */
static uint64_t count_cron(const struct rule *rule, int64_t from_s, int64_t until_s)
{
    uint64_t count = 0;
    while (from_s < until_s) {
        struct zone_span span = zone_span(rule->zone, from_s);
        int64_t end_s = span.end_s < until_s ? span.end_s : until_s;
        struct occurrence next;
        /* Fixed times close to the change have rules of their own; they are few. */
        if (rule->cron.fixed && from_s - span.begin_s < NEAR_S) {
            int64_t near_s = span.begin_s + NEAR_S < end_s ? span.begin_s + NEAR_S : end_s;
            for (; next_cron(rule, from_s, near_s, &next); count++)
                from_s = next.at_us / SECOND_US + 1;
            from_s = near_s;
        }
        if (from_s < end_s)
            count += count_local(rule, from_s + span.offset_s, end_s + span.offset_s);
        from_s = end_s;
    }
    return count;
}

/* --- Spans of instants ------------------------------------------------------------------------------------------- */

static int64_t floor_s(int64_t us)
{
    return us / SECOND_US - (us % SECOND_US < 0);
}

struct range {
    int64_t begin_us, end_us; /* begin <= t < end */
};

/* After `after_us` and up to `until_us`, as far as the rule has occurrences. */
static struct range range_of(const struct rule *rule, int64_t after_us, int64_t until_us)
{
    struct range range = {after_us < INT64_MAX ? after_us + 1 : INT64_MAX, until_us};
    if (range.begin_us < rule->start_us)
        range.begin_us = rule->start_us;
    if (range.begin_us < CIVIL_MIN_S * SECOND_US)
        range.begin_us = CIVIL_MIN_S * SECOND_US;
    if (range.end_us > AT_MAX_US)
        range.end_us = AT_MAX_US;
    range.end_us++;
    if (range.end_us > rule->end_us)
        range.end_us = rule->end_us;
    return range;
}

/* The first whole second at or after. */
static int64_t ceil_s(int64_t us)
{
    return floor_s(us) + (us % SECOND_US != 0);
}

/* --- Fixed periods ----------------------------------------------------------------------------------------------- */

/* The number of occurrences of an `every` before `us`, all of them. */
static uint64_t every_before(const struct rule *rule, int64_t us)
{
    if (us <= rule->start_us)
        return 0;
    return ((uint64_t)us - (uint64_t)rule->start_us - 1) / rule->every_us + 1;
}

static bool every_at(const struct rule *rule, uint64_t index, struct range range, struct occurrence *ret)
{
    __int128 at_us = (__int128)rule->start_us + (__int128)index * rule->every_us;
    if (at_us < range.begin_us || at_us >= range.end_us)
        return false;
    *ret = (struct occurrence){.at_us = (int64_t)at_us};
    return true;
}

/* --- The interface ----------------------------------------------------------------------------------------------- */

bool rule_next(const struct rule *rule, int64_t after_us, struct occurrence *ret)
{
    struct range range = range_of(rule, after_us, INT64_MAX);
    struct occurrence next;
    bool found = rule->every_us > 0 ? every_at(rule, every_before(rule, range.begin_us), range, &next)
                                    : next_cron(rule, ceil_s(range.begin_us), ceil_s(range.end_us), &next);
    if (found)
        *ret = next;
    return found;
}

uint64_t rule_count(const struct rule *rule, int64_t after_us, int64_t until_us)
{
    struct range range = range_of(rule, after_us, until_us);
    if (range.begin_us >= range.end_us)
        return 0;
    if (rule->every_us > 0)
        return every_before(rule, range.end_us) - every_before(rule, range.begin_us);
    return count_cron(rule, ceil_s(range.begin_us), ceil_s(range.end_us));
}

/* The latest occurrence of a cron rule in a range: looks further and further back until there is one, then halves what
 * is between it and the end. */
static bool last_cron(const struct rule *rule, int64_t begin_s, int64_t end_s, struct occurrence *ret)
{
    struct occurrence found;
    int64_t from_s = end_s, step_s = 3600;
    do {
        if (from_s <= begin_s)
            return false;
        from_s = end_s - begin_s > step_s ? end_s - step_s : begin_s;
        step_s *= 2;
    } while (!next_cron(rule, from_s, end_s, &found));
    for (int64_t low_s = found.at_us / SECOND_US + 1; low_s < end_s;) {
        int64_t middle_s = low_s + (end_s - low_s) / 2;
        if (next_cron(rule, middle_s, end_s, &found))
            low_s = floor_s(found.at_us) + 1;
        else
            end_s = middle_s;
    }
    *ret = found;
    return true;
}

bool rule_last(const struct rule *rule, int64_t until_us, struct occurrence *ret)
{
    struct range range = range_of(rule, INT64_MIN, until_us);
    if (range.begin_us >= range.end_us)
        return false;
    if (rule->every_us > 0)
        return every_at(rule, every_before(rule, range.end_us) - 1, range, ret);
    return last_cron(rule, ceil_s(range.begin_us), ceil_s(range.end_us), ret);
}

/* The last second from which on at least `n` occurrences are before `end_s`: it is the n-th latest. Looks further and
 * further back, then halves. False if there are fewer from `begin_s` on. */
static bool back_cron(const struct rule *rule, int64_t begin_s, int64_t end_s, uint64_t n, struct occurrence *ret)
{
    int64_t low_s = end_s, high_s, step_s = 3600; /* from low on there are n, from high on there are fewer */
    do {
        if (low_s <= begin_s)
            return false;
        high_s = low_s;
        low_s = end_s - begin_s > step_s ? end_s - step_s : begin_s;
        step_s *= 2;
    } while (count_cron(rule, low_s, end_s) < n);
    while (high_s - low_s > 1) {
        int64_t middle_s = low_s + (high_s - low_s) / 2;
        *(count_cron(rule, middle_s, end_s) >= n ? &low_s : &high_s) = middle_s;
    }
    return next_cron(rule, low_s, low_s + 1, ret);
}

bool rule_back(const struct rule *rule, int64_t after_us, int64_t until_us, uint64_t n, struct occurrence *ret)
{
    assert(n >= 1);
    struct range range = range_of(rule, after_us, until_us);
    if (range.begin_us >= range.end_us)
        return false;
    if (rule->every_us == 0)
        return back_cron(rule, ceil_s(range.begin_us), ceil_s(range.end_us), n, ret);
    uint64_t before = every_before(rule, range.end_us);
    return before >= n && every_at(rule, before - n, range, ret);
}

uint64_t rule_delay_us(uint64_t seed, uint64_t window_us, int64_t at_us, int64_t next_us)
{
    assert(next_us > at_us);
    uint64_t room_us = (uint64_t)next_us - (uint64_t)at_us;
    uint64_t part = mix_end(seed + UINT64_C(0x77696e646f77)); /* of 2^64: not what decides `H` */
    return (uint64_t)((unsigned __int128)part * (window_us < room_us ? window_us : room_us) >> 64);
}
