/* SPDX-License-Identifier: MIT */
/* A schedule's stored form, and which occurrences it creates when.
 *
 * Why no occurrence is created twice and none is lost: `cursor_us` only grows, everything at or before it has been decided,
 * and it is written in the transaction that creates the timers. */

#include "node/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/wire.h"

enum { VERSION = 2, LOOKS_MOST = 20000 };

#define MOVED_MOST_US (2 * ZONE_OFFSET_MAX_S * 1000000ll) /* by new rules of a zone */

#define GRACE_LEAST_US 100000ull /* a server that is in time is late by some microseconds, too */

#define QUEUE_LOOK_US 60000000ll /* a queued occurrence is checked this often */

/* --- The stored form ------------------------------------------------------------------------------------------------ */

enum { HAS_START = 1, HAS_END = 2, HAS_GRACE = 4, IS_PAUSED = 8, HAS_OFFSET = 16 };

static void put_content(struct out *out, const fl_durable *content)
{
    wire_put_bytes(out, content->target);
    wire_put_bytes(out, content->payload);
    wire_put_bytes(out, content->headers);
    wire_put_number(out, content->timeout_us);
    wire_put_number(out, content->retry.max_attempts);
    wire_put_number(out, content->retry.multiplier_1000);
    wire_put_number(out, content->retry.initial_us);
    wire_put_number(out, content->retry.max_interval_us);
    wire_put_number(out, content->retry.max_age_us);
}

static void read_content(struct wire *wire, fl_durable *ret)
{
    ret->target = wire_bytes(wire);
    ret->payload = wire_bytes(wire);
    ret->headers = wire_bytes(wire);
    ret->timeout_us = wire_number(wire);
    ret->retry.max_attempts = (uint32_t)wire_number(wire);
    ret->retry.multiplier_1000 = (uint32_t)wire_number(wire);
    ret->retry.initial_us = wire_number(wire);
    ret->retry.max_interval_us = wire_number(wire);
    ret->retry.max_age_us = wire_number(wire);
}

static void put_state(struct out *out, const struct schedule *s)
{
    wire_put_signed(out, s->created_us);
    wire_put_signed(out, s->cursor_us);
    wire_put_signed(out, s->last_us);
    wire_put_signed(out, s->queued_us);
    wire_put_number(out, s->made);
    wire_put_number(out, s->unsettled_count);
    for (unsigned i = 0; i < s->unsettled_count; i++) {
        wire_put_signed(out, s->unsettled[i].at_us);
        wire_put_number(out, s->unsettled[i].seq);
    }
}

void schedule_write(struct out *out, const struct schedule *s)
{
    wire_put_number(out, VERSION);
    wire_put_number(out, (s->has_start ? HAS_START : 0) | (s->has_end ? HAS_END : 0) | (s->has_grace ? HAS_GRACE : 0) |
                             (s->paused ? IS_PAUSED : 0) | (s->has_offset ? HAS_OFFSET : 0));
    const fl_bytes texts[] = {s->ns, s->name, s->cron, s->zone, s->gap, s->repeat};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        wire_put_bytes(out, texts[i]);
    wire_put_number(out, s->except_count);
    for (size_t i = 0; i < s->except_count; i++)
        wire_put_bytes(out, s->except[i]);
    wire_put_number(out, s->every_us);
    wire_put_signed(out, s->start_us);
    wire_put_signed(out, s->end_us);
    const uint64_t numbers[] = {s->count, s->grace_us, s->missed_within_us, s->window_us, s->missed, s->overlap};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        wire_put_number(out, numbers[i]);
    put_content(out, &s->content);
    put_state(out, s);
    wire_put_signed(out, s->offset_s); /* version 1 does not have it */
}

/* What was not given has no data. */
static fl_bytes given(struct wire *wire)
{
    fl_bytes text = wire_bytes(wire);
    return text.size > 0 ? text : (fl_bytes){0};
}

static int read_except(struct wire *wire, struct schedule *s)
{
    s->except_count = wire_count(wire);
    s->except = s->except_count ? calloc(s->except_count, sizeof *s->except) : NULL;
    if (s->except_count && !s->except)
        return FL_NO_MEMORY;
    for (size_t i = 0; i < s->except_count; i++)
        s->except[i] = wire_bytes(wire);
    return 0;
}

static void read_state(struct wire *wire, struct schedule *s)
{
    s->created_us = wire_signed(wire);
    s->cursor_us = wire_signed(wire);
    s->last_us = wire_signed(wire);
    s->queued_us = wire_signed(wire);
    s->made = wire_number(wire);
    s->unsettled_count = (unsigned)wire_count(wire);
    if (s->unsettled_count > SCHEDULE_UNSETTLED)
        wire->bad = true;
    for (unsigned i = 0; !wire->bad && i < s->unsettled_count; i++) {
        s->unsettled[i].at_us = wire_signed(wire);
        s->unsettled[i].seq = wire_number(wire);
    }
}

int schedule_read(fl_bytes stored, struct schedule *ret)
{
    struct wire wire = wire_begin(stored);
    struct schedule s = {0};
    uint64_t version = wire_number(&wire), flags = wire_number(&wire);
    s.has_start = flags & HAS_START;
    s.has_end = flags & HAS_END;
    s.has_grace = flags & HAS_GRACE;
    s.paused = flags & IS_PAUSED;
    s.has_offset = flags & HAS_OFFSET;
    fl_bytes *const texts[] = {&s.ns, &s.name, &s.cron, &s.zone, &s.gap, &s.repeat, NULL};
    for (size_t i = 0; texts[i]; i++)
        *texts[i] = given(&wire);
    if (read_except(&wire, &s) < 0)
        return FL_NO_MEMORY;
    s.every_us = wire_number(&wire);
    s.start_us = wire_signed(&wire);
    s.end_us = wire_signed(&wire);
    uint64_t *const numbers[] = {&s.count, &s.grace_us, &s.missed_within_us, &s.window_us};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = wire_number(&wire);
    uint64_t missed = wire_number(&wire), overlap = wire_number(&wire);
    s.missed = (enum schedule_missed)missed;
    s.overlap = (enum schedule_overlap)overlap;
    read_content(&wire, &s.content);
    read_state(&wire, &s);
    s.offset_s = version > 1 ? (int32_t)wire_signed(&wire) : 0;
    if (wire.bad || version < 1 || version > VERSION || missed > MISSED_SKIP || overlap > OVERLAP_QUEUE) {
        schedule_free(&s);
        return FL_STORE_CORRUPT;
    }
    *ret = s;
    return 0;
}

void schedule_free(struct schedule *schedule)
{
    free(schedule->except);
    schedule->except = NULL;
    schedule->except_count = 0;
}

int schedule_rule(const struct schedule *s, const struct zones *zones, struct rule **ret, struct rule_error *ret_error)
{
    struct rule_text text = {.ns = s->ns,
                             .name = s->name,
                             .cron = s->cron,
                             .zone = s->zone,
                             .gap = s->gap,
                             .repeat = s->repeat,
                             .except = s->except,
                             .n_except = s->except_count,
                             .every_us = s->every_us,
                             .start_us = s->start_us,
                             .end_us = s->end_us,
                             .created_us = s->created_us,
                             .has_every = s->every_us > 0,
                             .has_start = s->has_start,
                             .has_end = s->has_end};
    return rule_new(&text, zones, ret, ret_error);
}

/* --- Planning ------------------------------------------------------------------------------------------------------- */

/* One that is queued will be created, and has its place in the count. */
static bool count_is_reached(const struct schedule *s)
{
    return s->count > 0 && s->made + (s->queued_us != 0) >= s->count;
}

bool schedule_next(const struct schedule *s, const struct rule *rule, struct occurrence *ret)
{
    return !s->paused && !count_is_reached(s) && rule_next(rule, s->cursor_us, ret);
}

static void make(struct schedule *s, struct schedule_plan *plan, int64_t at_us)
{
    fl__assert(plan->count < SCHEDULE_STEP);
    plan->make[plan->count++] = at_us;
    s->made++;
    if (at_us > s->last_us)
        s->last_us = at_us;
}

static void skip(struct schedule_plan *plan, uint64_t count, int64_t last_us)
{
    plan->skipped += count;
    if (count > 0)
        plan->skipped_us = last_us;
}

/* How many of the missed occurrences the policy wants, the latest ones. */
static uint64_t wanted_of(const struct schedule *s, uint64_t missed)
{
    uint64_t most = s->missed == MISSED_LAST ? 1 : s->missed == MISSED_ALL ? SCHEDULE_MISSED_MOST : 0;
    return missed < most ? missed : most;
}

/* Moves the cursor over the missed occurrences that are not to be created. */
static void skip_missed(struct schedule *s, const struct rule *rule, int64_t now_us, struct schedule_plan *plan)
{
    uint64_t grace_us = s->has_grace ? s->grace_us : SCHEDULE_GRACE_US;
    grace_us = grace_us > GRACE_LEAST_US ? grace_us : GRACE_LEAST_US;
    int64_t until_us = now_us - (int64_t)grace_us - 1; /* up to here they are late by more than the grace */
    struct occurrence found;
    uint64_t all = until_us > s->cursor_us ? rule_count(rule, s->cursor_us, until_us) : 0;
    if (all == 0)
        return;
    int64_t from_us = s->cursor_us, oldest_us = now_us - (int64_t)s->missed_within_us - 1;
    if (s->missed_within_us > 0 && oldest_us > from_us)
        from_us = oldest_us < until_us ? oldest_us : until_us;
    uint64_t wanted = wanted_of(s, rule_count(rule, from_us, until_us));
    if (all == wanted)
        return;
    int64_t to_us = until_us;
    if (wanted > 0 && rule_back(rule, from_us, until_us, wanted, &found))
        to_us = found.at_us - 1;
    skip(plan, all - wanted, rule_last(rule, to_us, &found) ? found.at_us : to_us);
    s->cursor_us = to_us;
}

/* Applies the overlap policy to an occurrence that is due. */
static void take(struct schedule *s, struct schedule_plan *plan, int64_t at_us, bool *unsettled)
{
    s->cursor_us = at_us;
    if (s->overlap == OVERLAP_ALLOW || !*unsettled) {
        make(s, plan, at_us);
        *unsettled = true;
    } else if (s->overlap == OVERLAP_QUEUE && s->queued_us == 0) {
        s->queued_us = at_us;
    } else {
        skip(plan, 1, at_us);
    }
}

static void look_again(const struct schedule *s, const struct rule *rule, int64_t now_us, struct schedule_plan *plan)
{
    struct occurrence next;
    plan->due_us = FL_TIME_NEVER_US;
    if (schedule_next(s, rule, &next) && next.at_us < FL_TIME_NEVER_US)
        plan->due_us = next.at_us;
    plan->more = plan->due_us <= now_us;
    if (!s->paused && s->queued_us != 0 && plan->due_us > now_us + QUEUE_LOOK_US)
        plan->due_us = now_us + QUEUE_LOOK_US;
}

void schedule_plan(struct schedule *s, const struct rule *rule, int64_t now_us, bool unsettled, size_t most,
                   struct schedule_plan *ret)
{
    struct occurrence next;
    ret->count = 0;
    ret->skipped = 0;
    ret->skipped_us = 0;
    if (most > SCHEDULE_STEP)
        most = SCHEDULE_STEP;
    if (!s->paused && s->queued_us != 0 && (!unsettled || s->overlap == OVERLAP_ALLOW)) {
        int64_t at_us = s->queued_us;
        s->queued_us = 0;
        make(s, ret, at_us);
        unsettled = true;
    }
    if (!s->paused)
        skip_missed(s, rule, now_us, ret);
    for (unsigned looks = 0; looks < LOOKS_MOST && ret->count < most; looks++) {
        if (!schedule_next(s, rule, &next) || next.at_us > now_us)
            break;
        take(s, ret, next.at_us, &unsettled);
    }
    look_again(s, rule, now_us, ret);
}

int64_t schedule_due_us(const struct schedule *s, const struct rule *rule, int64_t now_us)
{
    struct occurrence next;
    if (!s->paused && s->queued_us != 0)
        return now_us;
    return schedule_next(s, rule, &next) && next.at_us < FL_TIME_NEVER_US ? next.at_us : FL_TIME_NEVER_US;
}

struct schedule schedule_heir(const struct schedule *old, int64_t now_us)
{
    struct schedule s = {.created_us = old ? old->created_us : now_us, .cursor_us = now_us};
    if (old) {
        s.cursor_us = old->cursor_us > now_us ? old->cursor_us : now_us;
        s.last_us = old->last_us;
        s.queued_us = old->queued_us;
        s.unsettled_count = old->unsettled_count;
        memcpy(s.unsettled, old->unsettled, sizeof s.unsettled);
    }
    return s;
}

/* `otherwise` is what a text means that was not given. */
static bool same_text(fl_bytes a, fl_bytes b, fl_bytes otherwise)
{
    a = a.size > 0 ? a : otherwise;
    b = b.size > 0 ? b : otherwise;
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* Whether both have the same occurrences. */
static bool same_rule(const struct schedule *a, const struct schedule *b)
{
    static const fl_bytes none = FL_TEXT(""), utc = FL_TEXT("UTC"), after = FL_TEXT("after"), first = FL_TEXT("first");
    bool same = same_text(a->cron, b->cron, none) && same_text(a->zone, b->zone, utc) &&
                same_text(a->gap, b->gap, after) && same_text(a->repeat, b->repeat, first) &&
                a->every_us == b->every_us && a->has_start == b->has_start && a->start_us == b->start_us &&
                a->has_end == b->has_end && a->end_us == b->end_us && a->except_count == b->except_count;
    for (size_t i = 0; same && i < a->except_count; i++)
        same = same_text(a->except[i], b->except[i], none);
    return same;
}

void schedule_changed(struct schedule *s, const struct schedule *old, int64_t now_us)
{
    int64_t from_us = now_us > s->last_us ? now_us : s->last_us;
    if (s->overlap != OVERLAP_QUEUE)
        s->queued_us = 0;
    /* The cursor may be ahead because the clock was. But new rules of a zone move it ahead of what was created: that must
     * not be created again. */
    if (old && old->paused && !s->paused && same_rule(old, s))
        s->cursor_us = old->cursor_us;
    else if (from_us > s->cursor_us || s->last_us == 0 || s->cursor_us - from_us > MOVED_MOST_US)
        s->cursor_us = from_us;
}

static int64_t seconds_of(int64_t us)
{
    return us / 1000000 - (us % 1000000 < 0);
}

void schedule_note_zone(struct schedule *s, const struct rule *rule)
{
    s->has_offset = true;
    s->offset_s = zone_offset(rule_zone(rule), seconds_of(s->cursor_us));
}

void schedule_rezone(struct schedule *s, const struct rule *rule)
{
    if (!s->has_offset || zone_offset(rule_zone(rule), seconds_of(s->cursor_us)) == s->offset_s)
        return;
    int64_t now_us = zone_place_us(rule_zone(rule), s->cursor_us + (int64_t)s->offset_s * 1000000);
    if (now_us > s->cursor_us || rule_is_fixed(rule))
        s->cursor_us = now_us;
    schedule_note_zone(s, rule);
}

void schedule_timer(const struct schedule *s, const struct rule *rule, int64_t at_us, fl_durable *ret)
{
    struct occurrence found;
    *ret = s->content;
    ret->ns = s->ns;
    ret->schedule = s->name;
    ret->occurrence_us = at_us;
    ret->previous_us = rule_last(rule, at_us - 1, &found) ? found.at_us : 0;
    ret->next_us = rule_next(rule, at_us, &found) ? found.at_us : 0;
    uint64_t delay_us = s->window_us ? rule_delay_us(cron_seed(s->ns, s->name), s->window_us, at_us,
                                                     ret->next_us ? ret->next_us : INT64_MAX)
                                     : 0;
    ret->due_us = at_us + (int64_t)delay_us;
    if (s->count > 0 && s->made >= s->count && ret->next_us > s->last_us)
        ret->next_us = 0;
}
