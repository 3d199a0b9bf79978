/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_CRON_H
#define FOLIOT_TEXT_CRON_H

/* Cron expressions: which civil times they match. Zones and clock changes are the matter of text/calendar.h.
 *
 *     cron_parse.c  reads an expression
 *     cron.c        finds and counts the times that match
 *
 * docs/schedules.md describes the syntax. An expression becomes sets of numbers, one bit each. The days that match depend
 * on the month, so they are worked out for one month at a time, again as bits; then the next match is a matter of a few
 * shifts, however far away it is within the month, and a month without a match costs some nanoseconds. */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/store.h> /* fl_bytes */

enum { CRON_YEAR_MIN = 1970, CRON_YEAR_MAX = 2199, CRON_TEXT_MAX = 256, CRON_ERROR_TEXT = 320 };

struct cron {
    uint64_t seconds, minutes;
    uint32_t hours;
    uint32_t days;           /* of the month: bit 1 to 31 */
    uint32_t last_days;      /* bit n: n days before the last of the month (L-n) */
    uint32_t near_days;      /* bit d: the weekday that is nearest to day d (15W) */
    uint16_t months;         /* bit 1 to 12 */
    uint8_t weekdays;        /* bit 0 (Sunday) to 6 */
    uint8_t last_weekdays;   /* the same, the last one of the month (FRIL) */
    uint8_t nth_weekdays[5]; /* the same, [1] the second one of the month (FRI#2) */
    bool last_working_day;   /* LW */
    bool either;             /* a day matches if its number or its weekday does; else if both do */
    bool fixed;              /* a fixed time of day: no *, - or / in seconds, minutes and hours */
    bool any_year;
    uint64_t years[4]; /* bit 0 is CRON_YEAR_MIN; unused if any_year */
};

/* What decides the values of `H`: the same for the same namespace and name, on every server and in every version. */
uint64_t cron_seed(fl_bytes ns, fl_bytes name);

/* Reads an expression. Returns 0 or FL_INVALID_ARGUMENT, also if it can never match; `ret_error` then names the field and
 * the position in it and says what is allowed. */
int cron_parse(fl_bytes text, uint64_t seed, struct cron *ret, char ret_error[CRON_ERROR_TEXT]);

/* The first civil time at or after `local_s` that matches; false if there is none up to the year 9999. */
bool cron_next(const struct cron *cron, int64_t local_s, int64_t *ret_s);

bool cron_matches(const struct cron *cron, int64_t local_s);

/* How many civil times match, begin_s <= t < end_s, within the years 1 to 9999. */
uint64_t cron_count(const struct cron *cron, int64_t begin_s, int64_t end_s);

/* The days of a month that match: bit 1 to 31. Does not look at the sets of months and years. */
uint32_t cron_month(const struct cron *cron, int year, int month);

#endif
