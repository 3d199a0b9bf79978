/* SPDX-License-Identifier: MIT */
/* What docs/http.md promises, and whether it was kept. The ledger hears what clients ask and are answered, which attempts begin and
 * how they end, and nothing of what a node thinks.
 *
 * A term is the time from one claim of a shard to the next. Inside a term, an attempt follows exactly from how the last one ended.
 * With another term, an attempt that was under way is repeated, and what was settled shortly before may be. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/nodes.h"

const char *const space_names[SPACES] = {"jobs", "mail", "calls"};

#define RECORDED_US (10 * SECOND) /* after this, an end is on record, whatever happens */

struct entry *ledger_entry(struct nodes *w, const fl_durable *timer)
{
    uint32_t tag = 0;
    if (timer->schedule.size > 0)
        return schedules_entry(w, timer);
    if (timer->payload.size == sizeof tag)
        memcpy(&tag, timer->payload.data, sizeof tag);
    if (tag > 0 && tag <= w->entry_count)
        return &w->entries[tag - 1];
    nodes_fail(w, "a timer has a payload that nobody gave it");
    return NULL;
}

static bool same_term(const struct nodes *w, const struct entry *e)
{
    return e->term == w->terms[e->shard];
}

/* Whether its server remembers how it was settled, or had it on record when it gave up the shard. */
static bool is_recorded(const struct nodes *w, const struct entry *e)
{
    return same_term(w, e) || (w->terms[e->shard] == e->term + 1 && w->released[e->shard] == e->term);
}

void ledger_touch(struct nodes *w, struct entry *e)
{
    e->touched_us = nodes_mono_us(w);
}

/* What was done shortly before the mark may have come to the store after it. */
static bool is_after_mark(const struct nodes *w, int64_t touched_us)
{
    return touched_us > w->marked_us - 2 * RECORDED_US;
}

void ledger_went_back(struct nodes *w, uint32_t shard)
{
    for (uint32_t i = 0; w->behind[shard] && i < w->entry_count; i++)
        if (w->entries[i].shard == shard && is_after_mark(w, w->entries[i].touched_us))
            w->entries[i].wild = true;
    w->behind[shard] = false;
}

static void go_back_space(const struct nodes *w, struct space_state *space)
{
    space->unsure |= is_after_mark(w, space->touched_us);
    for (unsigned i = 0; i < SETTINGS; i++)
        space->settings[i].unsure |= is_after_mark(w, space->settings[i].known_us);
}

/* A server that has not noticed it yet still says what it knows. */
void ledger_go_back(struct nodes *w)
{
    w->went_back++;
    for (uint32_t i = 0; i < w->shards; i++) {
        w->behind[i] = true;
        ledger_went_back(w, i);
        w->behind[i] = true;
    }
    for (unsigned i = 0; i < SPACES; i++)
        go_back_space(w, &w->spaces[i]);
    schedules_go_back(w);
}

/* Its last attempt ended with the term of its server: if it has become a dead letter, nobody may have told. */
static bool may_be_dead(const struct nodes *w, const struct entry *e)
{
    return !same_term(w, e) && (e->doomed || e->attempt >= e->most);
}

/* Whether the last attempt goes on for certain. */
static bool is_exclusive(struct nodes *w, const struct entry *e)
{
    if (!e->live || !same_term(w, e) || nodes_mono_us(w) >= e->ends_us)
        return false;
    return !e->acking || e->ack == ACK_EXTEND;
}

static void check_number(struct nodes *w, const struct entry *e, uint32_t attempt)
{
    enum fate fate = e->fate;
    if ((e->acking && e->ack != ACK_EXTEND) || e->other_due_us > 0 /* then its attempts start anew */)
        fate = FATE_VAGUE;
    else if (e->live) /* the lease has expired, or the term is over */
        fate = same_term(w, e) ? FATE_COUNTS : FATE_VAGUE;
    uint32_t wanted = fate == FATE_NEW || fate == FATE_AGAIN ? 1 : fate == FATE_COUNTS ? e->attempt + 1 : e->attempt;
    if (fate != FATE_VAGUE && same_term(w, e) && attempt != wanted)
        nodes_fail(w, "#%u is attempt %u, not %u", e->tag, attempt, wanted);
    /* That it is to be done again may be forgotten with its server. */
    uint32_t last = is_recorded(w, e) || e->attempt > e->forgotten ? e->attempt : e->forgotten;
    if (attempt == 0 || attempt > last + 1 || attempt > e->most)
        nodes_fail(w, "#%u is attempt %u, after %u of %u", e->tag, attempt, last, e->most);
}

/* When the other servers know of a pause. With long claims, they see late that a server has come, and so does it; then it may
 * get a shard and be linked at the same time. If the server that was asked leaves, they read the settings from the store, and one of
 * them must have claimed their shard before. */
static int64_t known_us(struct nodes *w, const struct space_state *space, uint32_t shard)
{
    const struct host *asked = nodes_host(w, space->paused_by);
    bool left = !asked || asked->left_us > 0;
    int64_t since_us = w->nature.breaks && w->calm_us > space->paused_us ? w->calm_us : space->paused_us;
    if (w->claim_us > 6 * SECOND && w->claimed_us[shard] > since_us)
        since_us = w->claimed_us[shard];
    if (w->claim_us > 6 * SECOND)
        since_us += w->claim_us;
    return since_us + (left ? 5 * SECOND + 2 * w->claim_us : w->nature.slow ? 8 * SECOND : 3 * SECOND);
}

void ledger_check_pause(struct host *host, const struct entry *e)
{
    struct nodes *w = host->world;
    const struct space_state *space = &w->spaces[e->space];
    bool elsewhere = host->number != space->paused_by;
    if (space->unsure || space->paused_us == 0 || (elsewhere && w->nature.breaks && !w->calm))
        return;
    if (nodes_ran_us(w) > (elsewhere ? known_us(w, space, e->shard) : space->paused_us))
        nodes_fail(w, "#%u begins while %s is paused", e->tag, space_names[e->space]);
}

/* Each server begins its share of the rate, and a tenth of a second's worth at once. The shares do not add up while shards move. */
void ledger_rate(struct host *host, const fl_durable *timer)
{
    struct nodes *w = host->world;
    const struct entry *e = w->nature.edits && !host->dead ? ledger_entry(w, timer) : NULL;
    struct space_state *space = e ? &w->spaces[e->space] : NULL;
    int64_t now_us = nodes_mono_us(w), heard_us = 0;
    bool trouble = w->nature.breaks || w->nature.crashes || w->nature.slow || w->nature.faulty || w->nature.jumps;
    if (!space || (trouble && !w->calm) || space->settings[0].unsure || space->settings[0].value == 0)
        return;
    heard_us = space->settings[0].known_us + 3 * SECOND;
    if (trouble && heard_us < w->calm_us + w->stood_us + 2 * w->claim_us + 10 * SECOND)
        heard_us = w->calm_us + w->stood_us + 2 * w->claim_us + 10 * SECOND;
    if (now_us < heard_us)
        return;
    if (space->window_us < heard_us || now_us > space->window_us + RATE_WINDOW_S * SECOND) {
        space->window_us = now_us;
        space->in_window = 0;
    }
    uint64_t rate = space->settings[0].value;
    if (++space->in_window > rate * (RATE_WINDOW_S + 1) + w->nature.hosts * (rate / 10 + 2))
        nodes_fail(w, "%s begins %" PRIu64 " webhooks in %d s, and may begin %" PRIu64 " per second",
                   space_names[e->space], space->in_window, RATE_WINDOW_S, rate);
}

/* What was acknowledged is known to all servers. */
void ledger_settings(struct nodes *w)
{
    struct host *host;
    for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry))
        for (unsigned i = 0; i < SPACES && !host->leaving; i++) {
            struct space *space = space_if_any(&host->node, bytes_of(space_names[i]));
            const struct settings *is = space ? atomic_load(&space->settings) : &no_settings;
            const uint64_t values[SETTINGS] = {is->max_rate, is->spread_us, is->history.only};
            for (unsigned k = 0; k < SETTINGS && w->nature.edits; k++) {
                const struct setting_state *state = &w->spaces[i].settings[k];
                if (!state->unsure && state->known_us > 0 && state->value != values[k])
                    nodes_fail(w, "setting %u of %s is %" PRIu64 " at %s, not %" PRIu64, k, space_names[i], values[k],
                               host->address, state->value);
            }
        }
}

/* For how long its server could record that it is done. */
static int64_t recorded_us(struct nodes *w, const struct entry *e)
{
    const struct host *host = nodes_host(w, e->host);
    int64_t end_us = w->terms[e->shard] == e->term + 1 ? w->claimed_us[e->shard] : e->settled_us;
    if (host && host->left_us > 0 && host->left_us < end_us)
        end_us = host->left_us;
    return end_us - e->settled_us;
}

static void check_begin(struct host *host, const struct entry *e, const fl_durable *timer)
{
    struct nodes *w = host->world;
    int64_t now_us = nodes_ran_us(w), clock_us = nodes_wall_us(w) + w->skew_us;
    if (e->wild)
        return;
    int64_t due_us = e->other_due_us > 0 && e->other_due_us < e->due_us ? e->other_due_us : e->due_us;
    if (timer->due_us > clock_us || (e->fate != FATE_AGAIN && due_us > clock_us))
        nodes_fail(w, "#%u is early", e->tag);
    if (timer->due_us != e->due_us && e->attempt == 0 && e->forgotten == 0 && e->other_due_us == 0)
        nodes_fail(w, "#%u fires, and is due at %" PRId64 " us, not %" PRId64, e->tag,
                   (int64_t)(timer->due_us - START_US), (int64_t)(e->due_us - START_US));
    if (e->refused || e->gone)
        nodes_fail(w, "#%u fires, and was %s", e->tag, e->gone ? "cancelled" : "refused");
    if (e->dead)
        nodes_fail(w, "#%u fires, and is a dead letter", e->tag);
    if (e->doomed && is_recorded(w, e) && (same_term(w, e) || !w->nature.slow /* the store may not have it in time */))
        nodes_fail(w, "#%u fires, and was given up", e->tag);
    if (e->finished && (is_recorded(w, e) || recorded_us(w, e) > RECORDED_US))
        nodes_fail(w, "#%u fires, and was done %" PRId64 " us ago", e->tag, now_us - e->settled_us);
    if (is_exclusive(w, e))
        nodes_fail(w, "#%u has two attempts at once", e->tag);
    if (same_term(w, e) && !e->live && e->other_due_us == 0 && nodes_wall_us(w) + w->skew_us < e->not_before_us)
        nodes_fail(w, "#%u is attempted again too early", e->tag);
    check_number(w, e, timer->attempt);
    ledger_check_pause(host, e);
}

void ledger_begin(struct host *host, uint32_t shard, const fl_durable *timer, uint64_t serial, uint64_t lease_us)
{
    struct nodes *w = host->world;
    struct entry *e = ledger_entry(w, timer);
    if (!e || (serial != 0 && e->serial == serial))
        return; /* this lease is known */
    nodes_say(w, "%s: attempt %u at #%u", host->address, timer->attempt, e->tag);
    if (shard != e->shard)
        nodes_fail(w, "#%u is of shard %u, not %u", e->tag, e->shard, shard);
    if ((serial == 0) != e->hook)
        nodes_fail(w, "#%u has %s target", e->tag, e->hook ? "a" : "no");
    check_begin(host, e, timer);
    ledger_touch(w, e);
    e->live = true;
    e->began_us = nodes_mono_us(w);
    e->finished = e->doomed = e->acking = false;
    e->unsure &= !e->there;
    e->term = w->terms[e->shard];
    e->serial = serial;
    e->attempt = timer->attempt;
    e->host = host->number;
    e->ends_us = serial != 0 ? nodes_mono_us(w) + (int64_t)lease_us : INT64_MAX;
}

/* --- How it ends -------------------------------------------------------------------------------------------------- */

static void settle(struct nodes *w, struct entry *e, enum fl_settle result, int64_t at_us)
{
    static const enum fate fates[] = {
        [FL_FAILED] = FATE_COUNTS, [FL_AGAIN] = FATE_AGAIN, [FL_LATER] = FATE_SAME, [FL_SKIP] = FATE_SAME};
    ledger_touch(w, e);
    e->live = false;
    e->fate = result < sizeof fates / sizeof *fates ? fates[result] : FATE_SAME;
    e->not_before_us = at_us;
    e->settled_us = nodes_ran_us(w);
    e->finished = result == FL_DONE;
    e->done_once |= e->finished;
    e->doomed = result == FL_DEAD;
    if (result == FL_AGAIN) {
        e->forgotten = e->attempt;
        e->attempt = 0;
    }
}

/* A target has responded, or an attempt that has begun is withdrawn, because its shard leaves. */
void ledger_end(struct host *host, const fl_durable *timer, enum fl_settle result, int64_t at_us)
{
    struct nodes *w = host->world;
    struct entry *e = ledger_entry(w, timer);
    if (!e || !same_term(w, e) || e->host != host->number)
        return; /* of a server that has lost the shard: nobody heeds it */
    nodes_say(w, "%s: #%u ends with %d", host->address, e->tag, (int)result);
    settle(w, e, result, at_us);
    if (result == FL_LATER || host->leaving)
        e->fate = FATE_VAGUE;
}

void ledger_dead(struct host *host, const fl_durable *timer)
{
    struct nodes *w = host->world;
    struct entry *e = ledger_entry(w, timer);
    if (!e)
        return;
    nodes_say(w, "%s: #%u is a dead letter", host->address, e->tag);
    bool asked = e->doomed || (e->acking && e->ack == ACK_DEAD);
    /* That it is to be done again may be forgotten with its server. */
    uint32_t last = is_recorded(w, e) || e->attempt > e->forgotten ? e->attempt : e->forgotten;
    if (last < e->most && !asked && !e->wild)
        nodes_fail(w, "#%u is a dead letter after %u of %u attempts", e->tag, last, e->most);
    if (is_exclusive(w, e) && !e->wild)
        nodes_fail(w, "#%u is a dead letter during an attempt", e->tag);
    ledger_touch(w, e);
    e->dead = true;
    e->live = false;
}

/* The answer may be lost on its way, and the timer settled: then another attempt need not count this one. */
void ledger_unanswered(struct entry *e, uint64_t serial)
{
    if (e->serial != serial || !e->acking || e->ack == ACK_EXTEND)
        return;
    e->live = false;
    e->unsure |= e->ack == ACK_DONE || e->ack == ACK_DEAD;
}

void ledger_acknowledged(struct nodes *w, struct entry *e, uint64_t serial, bool known, bool must)
{
    static const enum fl_settle ends[ACK_RESULTS] = {[ACK_DONE] = FL_DONE,
                                                     [ACK_RETRY] = FL_FAILED,
                                                     [ACK_AGAIN] = FL_AGAIN,
                                                     [ACK_DEAD] = FL_DEAD,
                                                     [ACK_RELEASE] = FL_LATER};
    if (e->serial != serial || !e->acking)
        return; /* another attempt has begun since */
    bool good = !e->wild && same_term(w, e) && e->live && nodes_mono_us(w) < e->ends_us;
    ledger_touch(w, e);
    e->acking = false;
    if (!known && must && good)
        nodes_fail(w, "the lease of #%u is unknown before its end", e->tag);
    if (e->ack == ACK_EXTEND && known)
        e->ends_us = e->acked_us + (int64_t)e->after_us;
    if (e->ack == ACK_EXTEND || e->dead)
        return;
    if (!known) {
        e->fate = FATE_VAGUE;
        e->ends_us = 0;
        return;
    }
    int64_t at_us = e->after_us > 0 ? nodes_wall_us(w) - (nodes_mono_us(w) - e->acked_us) - w->skew_us : 0;
    settle(w, e, ends[e->ack], at_us > 0 ? at_us + (int64_t)e->after_us : 0);
    if (!same_term(w, e) || e->moved_us >= e->acked_us)
        e->fate = FATE_VAGUE;
}

/* --- The end ------------------------------------------------------------------------------------------------------ */

static bool must_come(const struct nodes *w, const struct entry *e)
{
    return e->there && !e->unsure && !e->wild && !e->gone && !e->finished && !e->dead && !may_be_dead(w, e);
}

uint32_t ledger_open(const struct nodes *w)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < w->entry_count; i++)
        open += must_come(w, &w->entries[i]);
    return open;
}

/* In a calm world, the servers know together how many timers each namespace has. */
void ledger_count(struct nodes *w)
{
    int64_t least[SPACES] = {0}, most[SPACES] = {0};
    for (uint32_t i = 0; i < w->entry_count; i++) {
        const struct entry *e = &w->entries[i];
        bool repeated = e->finished && !same_term(w, e) && recorded_us(w, e) <= RECORDED_US;
        bool over = !e->wild && (e->refused || e->gone || (e->finished && !repeated) || e->dead);
        bool vague = e->unsure || e->wild || e->busy || e->acking || repeated || may_be_dead(w, e);
        least[e->space] += e->there && !over && !vague;
        most[e->space] += !over;
    }
    for (unsigned i = 0; i < SPACES; i++) {
        int64_t pending = 0;
        struct host *host;
        for (host = LIST_FIRST(&w->hosts); host; host = LIST_NEXT(host, entry)) {
            struct space *space = host->over || host->dead ? NULL : space_if_any(&host->node, bytes_of(space_names[i]));
            pending += space ? atomic_load(&space->pending) : 0;
        }
        /* An occurrence may be known to nobody but a server that has crashed. */
        bool unseen = w->plan_count > 0 && !w->over;
        if (pending < least[i] || (pending > most[i] && !unseen))
            nodes_fail(w, "%s has %" PRId64 " timers, and the servers count %" PRId64, space_names[i], least[i],
                       pending);
    }
}

void ledger_close(struct nodes *w)
{
    for (uint32_t i = 0; i < w->entry_count; i++)
        if (must_come(w, &w->entries[i]))
            nodes_fail(w, "#%u was lost", w->entries[i].tag);
}
