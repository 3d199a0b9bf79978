/* SPDX-License-Identifier: MIT */
/* What was promised, and whether it was kept: see ledger.h. */

#include "sim/ledger.h"

#include <stdarg.h>
#include <string.h>

void ledger_fail(struct ledger *l, const char *format, ...)
{
    if (l->failure[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(l->failure, sizeof l->failure, format, arguments);
    va_end(arguments);
    l->failed(l->arg);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void touch(struct ledger *l, uint32_t slot)
{
    l->slots[slot].touched = ++l->tick;
}

static uint32_t add_stage(struct ledger *l, struct stage stage)
{
    if (l->stage_count == STAGES_MOST)
        return NOWHERE;
    l->stages[l->stage_count] = stage;
    return l->stage_count++;
}

uint32_t ledger_slot(struct ledger *l, uint32_t shard, bool named, unsigned name)
{
    if (l->slot_count == SLOTS_MOST || l->stage_count == STAGES_MOST)
        return NOWHERE;
    l->slots[l->slot_count] = (struct slot){.shard = shard, .named = named, .name = name, .touched = ++l->tick};
    add_stage(l, (struct stage){.slot = l->slot_count, .place = HERE, .answered = l->tick, .from = NOWHERE});
    return l->slot_count++;
}

/* --- What clients ask --------------------------------------------------------------------------------------------- */

uint32_t ledger_ask(struct ledger *l, uint32_t slot, uint32_t tag, int64_t due_us)
{
    touch(l, slot);
    return add_stage(l, (struct stage){.slot = slot,
                                       .tag = tag,
                                       .place = ASKED,
                                       .unknown = true,
                                       .due_us = due_us,
                                       .filed_us = l->wall_us,
                                       .asked = l->tick,
                                       .from = NOWHERE});
}

/* Whether `a` was certainly there before `b`. Those by name wait for each other. */
static bool before(const struct stage *a, const struct stage *b)
{
    if (a->place == HERE && a->answered < b->asked)
        return true;
    return a->by_name && b->by_name && a->actor == b->actor && a->asked < b->asked;
}

/* One that was refused cannot have fired: it was another that nobody could tell from it. */
static void hand_over(struct ledger *l, struct stage *refused)
{
    for (uint32_t i = 0; i < l->stage_count; i++) {
        struct stage *other = &l->stages[i];
        bool alike = other->vague || (other->fate == WAITING && other->due_us == refused->due_us);
        if (other == refused || other->slot != refused->slot || other->tag != refused->tag || !alike ||
            other->place == GONE)
            continue;
        other->vague = false;
        other->due_us = refused->due_us;
        other->fate = refused->fate;
        other->term = refused->term;
        other->attempt = refused->attempt;
        other->settled = refused->settled;
        other->secured = refused->secured;
        other->not_before_us = refused->not_before_us;
        other->asked_us = refused->asked_us;
        other->wait_us = refused->wait_us;
        other->fired_us = refused->fired_us;
        other->filed_us = later(other->filed_us, refused->filed_us);
        refused->was = i;
        for (uint32_t k = 0; k < l->stage_count; k++)
            if (l->stages[k].from == (uint32_t)(refused - l->stages))
                l->stages[k].from = i;
        return;
    }
    if (!l->slots[refused->slot].wild)
        ledger_fail(l, "#%u has fired, and is refused now", refused->tag);
}

uint32_t ledger_really(const struct ledger *l, uint32_t i)
{
    while (l->stages[i].was)
        i = l->stages[i].was;
    return i;
}

void ledger_answer(struct ledger *l, uint32_t i, int result)
{
    struct stage *stage = &l->stages[i];
    touch(l, stage->slot);
    stage->answered = l->tick;
    stage->filed_us = later(stage->filed_us, l->wall_us);
    if (result != 0 && result != FL_OUTCOME_UNKNOWN) {
        if (stage->fate != WAITING)
            hand_over(l, stage);
        stage->place = GONE;
        stage->unknown = false;
        return;
    }
    stage->place = HERE;
    if (result != 0)
        return;
    stage->unknown = false;
    for (uint32_t k = 0; k < l->stage_count; k++) {
        struct stage *other = &l->stages[k];
        if (k != i && other->slot == stage->slot && other->place != ASKED && before(other, stage))
            other->place = GONE;
        /* One that overtook this one stays where it is: nobody knows who was first. */
    }
}

uint32_t ledger_certain(const struct ledger *l, uint32_t slot)
{
    uint32_t found = NOWHERE;
    for (uint32_t i = 0; i < l->stage_count && !l->slots[slot].wild; i++) {
        const struct stage *stage = &l->stages[i];
        if (stage->slot != slot || stage->place == GONE)
            continue;
        if (found != NOWHERE || stage->place == ASKED || stage->unknown)
            return NOWHERE;
        found = i;
    }
    return found;
}

int64_t ledger_earliest(const struct ledger *l, uint32_t slot)
{
    int64_t earliest_us = FL_STORE_TIME_END;
    for (uint32_t i = 0; i < l->stage_count; i++)
        if (l->stages[i].slot == slot && l->stages[i].tag && l->stages[i].due_us < earliest_us)
            earliest_us = l->stages[i].due_us;
    return earliest_us;
}

/* --- Owners ------------------------------------------------------------------------------------------------------- */

const struct tenure *ledger_tenure(const struct ledger *l, uint32_t slot)
{
    return &l->tenures[l->slots[slot].shard];
}

void ledger_claim(struct ledger *l, uint32_t shard, unsigned actor, int64_t now_ns)
{
    struct tenure *tenure = &l->tenures[shard];
    *tenure = (struct tenure){tenure->term + 1, ++l->tick, actor, now_ns};
}

void ledger_record(struct ledger *l, uint32_t shard, uint64_t tick, const fl_progress *progress)
{
    if (l->tenures[shard].since_tick < l->went_back)
        return; /* it will be told that it has lost the shard */
    for (uint32_t i = 0; i < l->stage_count; i++) {
        struct stage *stage = &l->stages[i];
        if (l->slots[stage->slot].shard == shard && stage->fate == DONE && stage->term == l->tenures[shard].term &&
            !stage->parked && /* then its row is taken away, and the store may have refused */
            stage->settled < tick && stage->fired_us < progress->front[stage->attempt > 1].at_us)
            stage->secured = true;
    }
}

/* What came of an attempt that has failed, or was put off, may be on its way to the store. */
void ledger_mark(struct ledger *l)
{
    l->marked = ++l->tick;
    for (uint32_t i = 0; i < l->stage_count; i++) {
        const struct stage *stage = &l->stages[i];
        if (stage->place == HERE &&
            (stage->moving || stage->fate == FAILED || stage->fate == AGAIN || stage->fate == DEAD))
            touch(l, stage->slot);
    }
}

void ledger_go_back(struct ledger *l)
{
    l->went_back = ++l->tick;
    for (uint32_t i = 0; i < l->slot_count; i++)
        l->slots[i].wild |= l->slots[i].touched > l->marked;
    for (uint32_t i = 0; i < l->stage_count; i++) {
        l->stages[i].secured = false;
        if (l->stages[i].place == ASKED) /* the answer may be of what was done before */
            l->slots[l->stages[i].slot].wild = true;
    }
}

/* --- Firing ------------------------------------------------------------------------------------------------------- */

/* Whether a stage of which nobody knows when it is due may be due then: one that comes again, when that was asked for; else
 * it has the time of another, which may have been moved after it was asked for. */
static bool may_be_due(const struct ledger *l, const struct stage *stage, int64_t due_us)
{
    return stage->vague && due_us >= (stage->from != NOWHERE ? stage->due_us : ledger_earliest(l, stage->slot));
}

static uint32_t find(const struct ledger *l, uint32_t tag, int64_t due_us)
{
    uint32_t vague = NOWHERE, gone = NOWHERE, wild = NOWHERE;
    for (uint32_t i = 0; i < l->stage_count; i++) {
        const struct stage *stage = &l->stages[i];
        if (stage->tag != tag)
            continue;
        if (l->slots[stage->slot].wild)
            wild = i;
        bool exact = stage->due_us == due_us && !stage->vague;
        if (exact && stage->place != GONE)
            return i;
        if (exact)
            gone = i;
        else if (stage->place != GONE && may_be_due(l, stage, due_us))
            vague = i;
    }
    return vague != NOWHERE ? vague : gone != NOWHERE ? gone : wild;
}

/* What is wrong with this attempt; NULL: nothing. */
static const char *wrong_attempt(const struct ledger *l, const struct stage *stage, uint32_t attempt)
{
    bool same = stage->attempt == attempt, next = stage->attempt + 1 == attempt;
    bool anew = stage->term != ledger_tenure(l, stage->slot)->term;
    switch (stage->fate) {
    case WAITING:
        return next || stage->vague ? NULL : "its attempts are counted wrongly";
    case UNDER_WAY:
        return !anew                              ? "an attempt was under way"
               : same || (next && stage->counted) ? NULL
                                                  : "its attempts are counted wrongly";
    case FAILED:
        if (anew && stage->put_off && stage->counted && stage->attempt + 2 == attempt)
            return NULL; /* that it was put off has come to nothing, and the attempt counts */
        return next || (anew && same) ? NULL : "its attempts are counted wrongly";
    case DONE:
        return !anew ? "it was settled" : stage->secured ? "it was settled, and that is on record" : NULL;
    default:
        return anew ? NULL : "it was settled";
    }
}

static void check_attempt(struct ledger *l, const struct stage *stage, uint32_t attempt)
{
    const char *wrong = wrong_attempt(l, stage, attempt);
    if (wrong && !l->slots[stage->slot].wild)
        ledger_fail(l, "#%u fires, attempt %u, although %s (attempt %u)", stage->tag, attempt, wrong, stage->attempt);
}

static void check_time(struct ledger *l, const struct stage *stage, uint32_t attempt, int64_t wall_us)
{
    bool repeats = (stage->put_off || stage->counted) &&
                   stage->term != ledger_tenure(l, stage->slot)->term; /* that has come to nothing */
    if (stage->fate == FAILED && !repeats && attempt == stage->attempt + 1 && wall_us < stage->not_before_us &&
        !l->slots[stage->slot].wild)
        ledger_fail(l, "#%u fires again %lld us early", stage->tag, (long long)(stage->not_before_us - wall_us));
}

uint32_t ledger_fire(struct ledger *l, const fl_firing *firing, uint32_t tag, int64_t wall_us)
{
    uint32_t i = find(l, tag, firing->timer.due_us);
    if (i == NOWHERE) {
        ledger_fail(l, "#%u fires with a time that nobody has asked for", tag);
        return NOWHERE;
    }
    struct stage *stage = &l->stages[i];
    if (stage->place == GONE && !stage->unknown && !l->slots[stage->slot].wild)
        ledger_fail(l, "#%u fires although it was refused, cancelled, moved or replaced", tag);
    check_attempt(l, stage, firing->timer.attempt);
    check_time(l, stage, firing->timer.attempt, wall_us);
    if (stage->vague) {
        stage->vague = false;
        stage->due_us = firing->timer.due_us;
    }
    if (stage->from != NOWHERE)
        l->stages[stage->from].place = GONE;
    stage->attempt = firing->timer.attempt;
    stage->term = ledger_tenure(l, stage->slot)->term;
    stage->fired_us = wall_us;
    stage->filed_us = later(stage->filed_us, wall_us); /* should it come again, then at the time at which it was */
    stage->fate = UNDER_WAY;
    stage->may_die = stage->counted = stage->moving = false;
    touch(l, stage->slot);
    return i;
}

void ledger_settle(struct ledger *l, uint32_t i, enum fate fate, int64_t at_us, int64_t wait_us)
{
    struct stage *stage = &l->stages[i];
    touch(l, stage->slot);
    stage->fate = fate;
    stage->may_die &= stage->counted && fate != DONE; /* should this not be written, the next owner may give it up */
    stage->put_off = false;
    stage->parked &= fate == DONE;
    stage->settled = l->tick;
    stage->asked_us = at_us;
    stage->wait_us = wait_us;
    stage->not_before_us = later(at_us, l->wall_us + wait_us);
    if (fate == FAILED)
        stage->filed_us = later(stage->filed_us, stage->not_before_us);
    l->slots[stage->slot].deaths += fate == DEAD;
    if (fate != AGAIN || stage->place == GONE)
        return;
    struct stage again = {.slot = stage->slot,
                          .tag = stage->tag,
                          .place = HERE,
                          .id = stage->id,
                          .due_us = at_us,
                          .filed_us = l->wall_us + 30000000, /* it may be written late */
                          .asked = l->tick,
                          .answered = l->tick,
                          .actor = ledger_tenure(l, stage->slot)->owner,
                          .may_die = stage->may_die,
                          .vague = true, /* or later, if it was written late */
                          .from = i};
    if (add_stage(l, again) == NOWHERE)
        ledger_fail(l, "the ledger is full");
}

void ledger_put_off(struct ledger *l, uint32_t i, int64_t at_us)
{
    struct stage *stage = &l->stages[i];
    ledger_settle(l, i, FAILED, later(at_us, stage->due_us), 0);
    stage->put_off = true;
    stage->attempt--;
}

void ledger_may_die(struct ledger *l, uint32_t i)
{
    l->stages[i].may_die = true;
    l->slots[l->stages[i].slot].deaths++;
}

/* Its time has come. Who takes over what is parked knows only when the timer is due, and may have another clock. */
void ledger_wait(struct ledger *l, const fl_firing *firing, uint32_t tag, int64_t wall_us)
{
    uint32_t i = find(l, tag, firing->timer.due_us);
    if (i == NOWHERE)
        return;
    struct stage *stage = &l->stages[i];
    check_time(l, stage, firing->timer.attempt, wall_us);
    if (stage->moving)
        touch(l, stage->slot);
    stage->moving = false;
    stage->parked = true;
    if (stage->due_us < stage->not_before_us)
        stage->not_before_us = stage->due_us;
}

void ledger_not_begun(struct ledger *l, const fl_firing *firing, uint32_t tag, int64_t wall_us)
{
    uint32_t i = find(l, tag, firing->timer.due_us);
    if (i == NOWHERE)
        return;
    touch(l, l->stages[i].slot);
    l->stages[i].moving = true;
    l->stages[i].filed_us = later(l->stages[i].filed_us, wall_us);
}

void ledger_set_clock(struct ledger *l, int64_t before_us, int64_t after_us)
{
    for (uint32_t i = 0; i < l->stage_count; i++) {
        struct stage *stage = &l->stages[i];
        bool files =
            stage->vague || stage->moving || stage->counted || stage->fate == FAILED; /* or the next owner does */
        if (stage->place == GONE || (stage->place == HERE && !files))
            continue;
        stage->filed_us = later(stage->filed_us, later(before_us, after_us) + stage->wait_us);
        int64_t earliest_us = later(stage->asked_us, after_us + stage->wait_us);
        if (stage->parked && after_us < before_us)
            earliest_us = stage->due_us;
        if (earliest_us < stage->not_before_us)
            stage->not_before_us = earliest_us;
    }
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

/* Whether it need not fire (any more). */
static bool is_finished(const struct stage *stage)
{
    return stage->tag == 0 || stage->fate == DONE || stage->fate == DEAD || stage->may_skip || stage->may_die;
}

/* For each slot, by when one of those that may be there must have fired; 0: none must. */
static void find_due(const struct ledger *l, int64_t due_us[SLOTS_MOST])
{
    bool finished[SLOTS_MOST] = {false};
    memset(due_us, 0, SLOTS_MOST * sizeof *due_us);
    for (uint32_t i = 0; i < l->stage_count; i++) {
        const struct stage *stage = &l->stages[i];
        if (stage->place == GONE)
            continue;
        finished[stage->slot] |= is_finished(stage);
        if (stage->place != HERE)
            continue;
        int64_t last_us = later(stage->due_us, stage->filed_us + (stage->fate == FAILED ? 10000000 : 0));
        due_us[stage->slot] = later(due_us[stage->slot], last_us);
    }
    for (uint32_t slot = 0; slot < l->slot_count; slot++)
        if (finished[slot] || l->slots[slot].wild)
            due_us[slot] = 0;
}

int64_t ledger_next_due(const struct ledger *l)
{
    int64_t due_us[SLOTS_MOST], next_us = 0;
    find_due(l, due_us);
    for (uint32_t slot = 0; slot < l->slot_count; slot++)
        if (due_us[slot] > 0 && (next_us == 0 || due_us[slot] < next_us))
            next_us = due_us[slot];
    return next_us;
}

void ledger_close(struct ledger *l, int64_t now_us)
{
    int64_t due_us[SLOTS_MOST];
    find_due(l, due_us);
    for (uint32_t i = 0; i < l->stage_count; i++) {
        const struct stage *stage = &l->stages[i];
        if (stage->place == ASKED)
            ledger_fail(l, "what was asked about #%u was never answered", stage->tag);
        if (stage->place == HERE && due_us[stage->slot] > 0 && due_us[stage->slot] <= now_us)
            ledger_fail(l, "#%u was acknowledged and did not fire", stage->tag);
    }
}
