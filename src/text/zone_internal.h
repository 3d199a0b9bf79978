/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_ZONE_INTERNAL_H
#define FOLIOT_TEXT_ZONE_INTERNAL_H

#include <stdatomic.h>

#include "text/zone.h"

/* A zone is a table of the moments at which its offset changes. The rule in a file's footer is written out for 400
 * years, after which the calendar repeats; later moments are looked up 400 years (or a multiple) earlier. So there is one
 * way to look something up, and it is a binary search. */
struct zone {
    _Atomic unsigned refs;
    uint32_t count;         /* of changes */
    int64_t fold_s;         /* from here on, the table repeats; ZONE_END_S: it does not */
    const int32_t *offsets; /* count + 1: [0] before the first change, [i + 1] from change i on */
    int64_t changes_s[];    /* in order; neighbours in `offsets` differ */
};

/* Changes while they are collected. */
struct zone_changes {
    struct zone_change {
        int64_t at_s;
        int32_t offset_s; /* from then on */
    } * list;
    size_t count, room;
    int32_t first_s; /* the offset before the first change */
};

/* Appends a change, which must not be before the last one. One at the same moment replaces it. False: no memory. */
bool zone_changes_add(struct zone_changes *changes, int64_t at_s, int32_t offset_s);

/* The zone with these changes. NULL: no memory. */
struct zone *zone_new(const struct zone_changes *changes, int64_t fold_s);

/* A TZ string as POSIX and RFC 9636 define it: CET-1CEST,M3.5.0,M10.5.0/3. */
struct zone_rule {
    int32_t standard_s, daylight_s; /* offsets */
    bool changes;                   /* false: the standard time applies throughout */
    struct zone_rule_day {
        char kind; /* 'J': day 1 to 365, without leap days; 'D': day 0 to 365; 'M': month, week, weekday */
        int day, month, week;
        int32_t time_s; /* of the clock before the change; from -167 to 167 hours */
    } begin, end;       /* of daylight saving time */
};

/* Returns NULL, or what is wrong. */
const char *zone_rule_parse(fl_bytes text, struct zone_rule *ret);

/* The rule governs the time after the last of `changes`, or all time if there are none: adds what it says for 400 years.
 * `ret_fold_s` is where the table repeats. False: no memory. */
bool zone_rule_apply(const struct zone_rule *rule, struct zone_changes *changes, int64_t *ret_fold_s);

#endif
