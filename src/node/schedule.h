/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_SCHEDULE_H
#define FOLIOT_NODE_SCHEDULE_H

/* A schedule: its rule, its policies, the content of its timers, and how far it has got. Pure: no clock, no engine.
 *
 * It is kept as a timer of its own (schedules.c), with the stored form as payload. When that timer is due, schedule_plan()
 * decides which occurrences to create, which to skip, and when to look again. */

#include <foliot/engine.h>

#include "text/calendar.h"
#include "text/out.h"

enum schedule_missed { MISSED_LAST, MISSED_ALL, MISSED_SKIP };
enum schedule_overlap { OVERLAP_ALLOW, OVERLAP_SKIP, OVERLAP_QUEUE };

enum {
    SCHEDULE_MISSED_MOST = 10000, /* occurrences that `all` catches up */
    SCHEDULE_STEP = 1000,         /* occurrences that one transaction creates */
    SCHEDULE_UNSETTLED = 16,      /* IDs that are remembered for the overlap policy */
};

#define SCHEDULE_GRACE_US 10000000ull /* the default */

struct schedule {
    /* As it was given; text that was not has no data. */
    fl_bytes ns, name;
    fl_bytes cron, zone, gap, repeat;
    fl_bytes *except;
    size_t except_count;
    uint64_t every_us; /* 0: cron */
    int64_t start_us, end_us;
    bool has_start, has_end, has_grace, paused;
    uint64_t count;            /* 0: no limit */
    uint64_t grace_us;         /* if has_grace */
    uint64_t missed_within_us; /* 0: no limit */
    uint64_t window_us;
    enum schedule_missed missed;
    enum schedule_overlap overlap;
    fl_durable content; /* target, payload, headers, timeout_us, retry */
    /* How far it has got. */
    int64_t created_us;
    int64_t cursor_us; /* occurrences up to here are created or skipped */
    int32_t offset_s;  /* of the zone at the cursor, by the rules when it was written; if has_offset */
    bool has_offset;
    int64_t last_us;   /* the last one created; 0: none */
    int64_t queued_us; /* the one that waits for an earlier one to be settled; 0: none */
    uint64_t made;
    fl_key unsettled[SCHEDULE_UNSETTLED]; /* those that may not be settled, the latest ones */
    unsigned unsettled_count;
};

/* The stored form. What is read points into `stored`, except `except`, which is to be freed with schedule_free(). Returns 0,
 * FL_STORE_CORRUPT or FL_NO_MEMORY. */
void schedule_write(struct out *out, const struct schedule *schedule);
int schedule_read(fl_bytes stored, struct schedule *ret);
void schedule_free(struct schedule *schedule);

/* Compiles the rule. As rule_new(). */
int schedule_rule(const struct schedule *schedule, const struct zones *zones, struct rule **ret,
                  struct rule_error *ret_error);

/* The next occurrence; false: there is none, because the rule ends, the count is reached, or it is paused. */
bool schedule_next(const struct schedule *schedule, const struct rule *rule, struct occurrence *ret);

struct schedule_plan {
    int64_t make[SCHEDULE_STEP]; /* nominal times, ascending */
    size_t count;
    uint64_t skipped;
    int64_t skipped_us; /* the last of those */
    int64_t due_us;     /* when to look again; FL_TIME_NEVER_US: not before it is changed */
    bool more;          /* there is more to create at once */
};

/* What is to be done at `now_us`, at most `most` occurrences; the schedule is as it is afterwards. `unsettled`: an earlier
 * occurrence is not settled. */
void schedule_plan(struct schedule *schedule, const struct rule *rule, int64_t now_us, bool unsettled, size_t most,
                   struct schedule_plan *ret);

/* What a schedule begins with that replaces `old` (NULL: it is new). It keeps its beginning, so that the same schedule again is not
 * shifted, and what was created. */
struct schedule schedule_heir(const struct schedule *old, int64_t now_us);

/* When its row is due after a change at `now_us`. */
int64_t schedule_due_us(const struct schedule *schedule, const struct rule *rule, int64_t now_us);

/* The schedule has taken the place of `old` (NULL: it is new). The change takes effect on the first occurrence after now and after
 * the last that was created. But if it lifts a pause and keeps the rule, the occurrences of the pause are missed ones. */
void schedule_changed(struct schedule *schedule, const struct schedule *old, int64_t now_us);

/* Before it is written: notes what the clocks of its zone show at the cursor. */
void schedule_note_zone(struct schedule *schedule, const struct rule *rule);

/* After it was read: the rules of its zone may have changed since. Everything up to a local time is decided, so the cursor goes to
 * where that local time is now. A rule that follows real time never goes back. */
void schedule_rezone(struct schedule *schedule, const struct rule *rule);

/* The timer of an occurrence; its bytes are the schedule's. */
void schedule_timer(const struct schedule *schedule, const struct rule *rule, int64_t at_us, fl_durable *ret);

#endif
