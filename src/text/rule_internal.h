/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_RULE_INTERNAL_H
#define FOLIOT_TEXT_RULE_INTERNAL_H

#include "text/calendar.h"

struct rule {
    struct cron cron;
    struct zone *zone;
    uint64_t every_us;        /* 0: cron */
    int64_t start_us, end_us; /* start <= t < end; for `every`, start is the first occurrence */
    bool skip_gaps, both_passes;
    uint32_t n_dates, n_times; /* exceptions */
    int64_t except[];          /* days since 1970 in order, then civil seconds in order */
};

static inline const int64_t *rule_dates(const struct rule *rule)
{
    return rule->except;
}

static inline const int64_t *rule_times(const struct rule *rule)
{
    return rule->except + rule->n_dates;
}

#endif
