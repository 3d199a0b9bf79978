/* SPDX-License-Identifier: MIT */
/* What timers are sent to: it is slow, fails, answers late and out of order, and knows what must not come. */

#include "sim/world.h"

#include <stdlib.h>
#include <string.h>

/* --- Payloads ----------------------------------------------------------------------------------------------------- */

/* A tag, and bytes that follow from it. */
void payload_fill(uint32_t tag, unsigned char *payload, size_t size)
{
    memcpy(payload, &tag, sizeof tag);
    for (size_t i = sizeof tag; i < size; i++)
        payload[i] = (unsigned char)(tag * 31 + i);
}

uint32_t payload_tag(struct sim *s, fl_bytes payload)
{
    const unsigned char *bytes = payload.data;
    uint32_t tag = 0;
    if (payload.size >= sizeof tag)
        memcpy(&tag, bytes, sizeof tag);
    for (size_t i = sizeof tag; i < payload.size; i++)
        if (bytes[i] != (unsigned char)(tag * 31 + i))
            tag = 0;
    if (tag == 0)
        ledger_fail(&s->ledger, "a payload is not what it was");
    return tag;
}

/* --- Policies ----------------------------------------------------------------------------------------------------- */

/* Of most timers that of the engine. */
fl_retry policy_of(const struct sim *s, uint32_t tag)
{
    struct luck luck;
    luck_begin(&luck, s->policies + tag);
    if (s->policies == 0 || chance(&luck, 60))
        return (fl_retry){0};
    uint64_t initial_us = 1 + below(&luck, 3 * SECOND);
    return (fl_retry){.max_attempts = (uint32_t)below(&luck, 4),
                      .multiplier_1000 = 1000 + (uint32_t)below(&luck, 3000),
                      .initial_us = initial_us,
                      .max_interval_us = initial_us + below(&luck, 5 * SECOND),
                      .max_age_us = chance(&luck, 50) ? 1 + below(&luck, 20 * SECOND) : 0};
}

/* --- Settling ----------------------------------------------------------------------------------------------------- */

static enum fl_settle some_result(struct sim *s)
{
    unsigned luck = (unsigned)below(&s->luck, 100);
    if (!s->nature.hostile || s->calm)
        return FL_DONE;
    return luck < 55 ? FL_DONE : luck < 83 ? FL_FAILED : luck < 88 ? FL_LATER : luck < 95 ? FL_AGAIN : FL_DEAD;
}

/* The shortest wait that the policy allows. */
static int64_t backoff_us(const fl_retry *retry, uint32_t attempt)
{
    double wait = (double)retry->initial_us;
    for (uint32_t i = 1; i < attempt && wait < (double)retry->max_interval_us; i++)
        wait *= retry->multiplier_1000 / 1000.0;
    if (wait > (double)retry->max_interval_us)
        wait = (double)retry->max_interval_us;
    return (int64_t)(wait * 0.8);
}

/* Whether the policy gives it up for its age, if the next attempt is after so long a wait. */
static bool too_old(struct sim *s, const struct attempt *attempt, const fl_retry *retry, int64_t wait_us, int64_t at_us)
{
    int64_t next_us = sim_clock_us(s, sim_actor(s, attempt->actor)) + wait_us;
    next_us = next_us > at_us ? next_us : at_us;
    return retry->max_age_us > 0 && next_us > attempt->due_us + (int64_t)retry->max_age_us;
}

static void account(struct sim *s, const struct attempt *attempt, const fl_settlement *settlement)
{
    static const enum fate fates[] = {[FL_DONE] = DONE, [FL_FAILED] = FAILED, [FL_AGAIN] = AGAIN,
                                      [FL_DEAD] = DEAD, [FL_LATER] = FAILED,  [FL_EXPIRED] = FAILED};
    const struct actor *actor = sim_actor(s, attempt->actor);
    const struct tenure *tenure = &s->ledger.tenures[actor->shard];
    if (attempt->stage == NOWHERE || attempt->actor != tenure->owner || attempt->term != tenure->term ||
        actor->crashed || (actor->stopping && settlement->result != FL_DONE))
        return; /* it counts for nothing */
    uint32_t really = ledger_really(&s->ledger, attempt->stage);
    const struct stage *stage = &s->ledger.stages[really];
    enum fate fate = fates[settlement->result];
    s->ledger.wall_us = sim_clock_us(s, actor);
    if (settlement->result == FL_LATER) {
        ledger_put_off(&s->ledger, really, settlement->at_us);
        return;
    }
    const fl_retry *retry = attempt->retry.initial_us > 0 ? &attempt->retry : &s->config.retry;
    int64_t wait_us = settlement->result == FL_FAILED ? backoff_us(retry, stage->attempt) : 0;
    if (fate == FAILED && ((retry->max_attempts > 0 && stage->attempt >= retry->max_attempts) ||
                           (!s->nature.steps && too_old(s, attempt, retry, wait_us, settlement->at_us))))
        fate = DEAD;
    ledger_settle(&s->ledger, really, fate, settlement->at_us, wait_us);
    if (fate == FAILED && retry->max_age_us > 0)
        ledger_may_die(&s->ledger, really); /* it may take long to be written */
}

static void settle(struct sim *s, const struct attempt *attempt)
{
    const struct actor *actor = sim_actor(s, attempt->actor);
    fl_settlement settlement = {.token = attempt->token, .result = some_result(s), .reason = FL_TEXT("bad luck")};
    if (!actor)
        return;
    if (settlement.result == FL_FAILED && s->nature.wait_percent > 0 && chance(&s->luck, 30))
        settlement.result = FL_EXPIRED;
    if (settlement.result == FL_AGAIN || settlement.result == FL_LATER ||
        (settlement.result == FL_FAILED && chance(&s->luck, 20)))
        settlement.at_us = sim_clock_us(s, actor) + 1 + (int64_t)below(&s->luck, 30 * SECOND);
    uint32_t tag = attempt->stage == NOWHERE ? 0 : s->ledger.stages[attempt->stage].tag;
    sim_say(s, "#%u is settled with %d", tag, (int)settlement.result);
    if (fl_engine_settle(actor->engine, &settlement, 1) == 1)
        account(s, attempt, &settlement);
    else
        ledger_fail(&s->ledger, "#%u: the engine does not know an attempt that it has made", tag);
    if (fl_engine_settle(actor->engine, &settlement, 1) == 1)
        ledger_fail(&s->ledger, "#%u: an attempt was settled twice", tag);
}

static bool is_at(struct sim *s, const struct attempt *attempt, const struct server *server)
{
    const struct actor *actor = sim_actor(s, attempt->actor);
    return !actor || actor->server == server;
}

static void begin_some(struct sim *s, const struct server *server, unsigned percent);

void target_settle(struct sim *s, const struct server *server, unsigned percent)
{
    begin_some(s, server, percent);
    for (struct attempt **link = &s->attempts, *attempt; (attempt = *link);) {
        if (!is_at(s, attempt, server) || !chance(&s->luck, percent)) {
            link = &attempt->next;
            continue;
        }
        *link = attempt->next;
        settle(s, attempt);
        free(attempt);
    }
}

void target_forget(struct sim *s)
{
    while (s->attempts) {
        struct attempt *next = s->attempts->next;
        free(s->attempts);
        s->attempts = next;
    }
    while (s->waiting) {
        struct waiting *next = s->waiting->next;
        free(s->waiting);
        s->waiting = next;
    }
}

/* --- Firing ------------------------------------------------------------------------------------------------------- */

/* One that has lost the shard and may not know it yet. */
static void check_late_owner(struct sim *s, const struct actor *actor)
{
    const struct tenure *tenure = &s->ledger.tenures[actor->shard];
    int64_t since_ns = sim_mono_ns(s) - tenure->since_ns;
    if (since_ns > (int64_t)s->config.claim_us * 1000)
        ledger_fail(&s->ledger, "engine %u fires %.3f s after it lost the shard", actor->number,
                    (double)since_ns / 1e9);
    /* In a fleet nothing is taken by force: who had it was to stop before. But one's own name is no obstacle; and a store
     * that has gone back has forgotten for how long the shard was claimed. */
    if (actor->server && !actor->usurped && s->ledger.went_back == 0)
        ledger_fail(&s->ledger, "engine %u fires, and engine %u has claimed the shard", actor->number, tenure->owner);
}

/* Returns the attempt, to be settled. */
static struct attempt fire(struct sim *s, const struct actor *actor, const fl_firing *firing)
{
    uint32_t tag = payload_tag(s, firing->timer.payload), stage = NOWHERE;
    const struct tenure *tenure = &s->ledger.tenures[actor->shard];
    int64_t now_us = sim_clock_us(s, actor);
    sim_say(s, "#%u fires at engine %u, attempt %u, due %.6f", tag, actor->number, firing->timer.attempt,
            (double)(firing->timer.due_us - START_US) / 1e6);
    if (firing->timer.due_us > now_us && firing->timer.attempt == 1)
        ledger_fail(&s->ledger, "#%u fires %lld us early", tag, (long long)(firing->timer.due_us - now_us));
    if (actor->number == tenure->owner)
        stage = ledger_fire(&s->ledger, firing, tag, now_us);
    else
        check_late_owner(s, actor);
    const fl_durable *timer = &firing->timer;
    fl_retry policy = policy_of(s, tag);
    if (memcmp(&timer->retry, &policy, sizeof policy) != 0)
        ledger_fail(&s->ledger, "#%u fires with another policy than it was given", tag);
    return (struct attempt){firing->token, tenure->term, stage, actor->number, timer->due_us, timer->retry, NULL};
}

static void keep(struct sim *s, const struct attempt *attempt)
{
    struct attempt *kept = malloc(sizeof *kept);
    if (!kept)
        abort();
    *kept = *attempt;
    kept->next = s->attempts;
    s->attempts = kept;
}

static void settle_or_keep(struct sim *s, const struct attempt *attempt)
{
    if (s->nature.hostile && chance(&s->luck, s->nature.hold_percent))
        keep(s, attempt);
    else
        settle(s, attempt);
}

/* --- Waiting ------------------------------------------------------------------------------------------------------ */

enum { LANES = 4 };

static uint32_t lane_of(struct sim *s, const fl_firing *firing)
{
    return payload_tag(s, firing->timer.payload) % LANES;
}

static void wait(struct sim *s, const struct actor *actor, const fl_firing *firing)
{
    struct waiting *waiting = malloc(sizeof *waiting);
    if (!waiting)
        abort();
    *waiting = (struct waiting){*firing, actor->engine, actor->number, false, s->waiting};
    uint32_t tag = payload_tag(s, firing->timer.payload);
    if (actor->number == s->ledger.tenures[actor->shard].owner)
        ledger_wait(&s->ledger, firing, tag, sim_clock_us(s, actor));
    bool waits = fl_engine_wait(actor->engine, firing->token, lane_of(s, firing), waiting);
    sim_say(s, "#%u %s at engine %u", tag, waits ? "waits" : "is parked", actor->number);
    if (waits)
        s->waiting = waiting;
    else
        free(waiting);
}

static void unlink_waiting(struct sim *s, const struct waiting *waiting)
{
    struct waiting **link = &s->waiting;
    while (*link != waiting)
        link = &(*link)->next;
    *link = waiting->next;
}

/* Sometimes it has begun just now, on another thread, and the engine hears of it when it is settled. */
bool target_withdraw(void *arg, fl_engine *engine, uint64_t token, void *handle)
{
    struct sim *s = arg;
    struct waiting *waiting = handle;
    const struct actor *actor = sim_actor(s, waiting->actor);
    bool alive = actor && !(actor->server && !fleet_lives(actor->server));
    if (waiting->engine != engine || waiting->firing.token != token)
        ledger_fail(&s->ledger, "a firing is wanted back that is another's");
    unlink_waiting(s, waiting);
    bool begun = alive && fl_engine_owns(engine) && waiting->firing.timer.due_us <= sim_clock_us(s, actor) &&
                 chance(&s->luck, 20);
    sim_say(s, "what waits at engine %u is wanted back%s", waiting->actor, begun ? ", and has begun" : "");
    if (begun) {
        struct attempt attempt = fire(s, actor, &waiting->firing);
        keep(s, &attempt);
    }
    free(waiting);
    return !begun;
}

/* Whether the next owner may give it up: this was its last attempt, or it is too old. */
static bool may_be_last(const struct sim *s, const fl_durable *timer)
{
    const fl_retry *retry = timer->retry.initial_us > 0 ? &timer->retry : &s->config.retry;
    return retry->max_age_us > 0 || (retry->max_attempts > 0 && timer->attempt >= retry->max_attempts);
}

static void begin_one(struct sim *s, const struct actor *actor, const struct waiting *waiting)
{
    const fl_firing *firing = &waiting->firing;
    bool counted = chance(&s->luck, 50);
    uint32_t tag = payload_tag(s, firing->timer.payload);
    if (!fl_engine_begin(actor->engine, firing->token, counted)) {
        sim_say(s, "#%u must not begin", tag);
        ledger_not_begun(&s->ledger, firing, tag, sim_clock_us(s, actor));
        fl_engine_settle(actor->engine, &(fl_settlement){.token = firing->token, .result = FL_LATER}, 1);
        return;
    }
    bool last = may_be_last(s, &firing->timer);
    struct attempt attempt = fire(s, actor, firing);
    if (counted && attempt.stage != NOWHERE) {
        s->ledger.stages[attempt.stage].counted = true;
        if (last)
            ledger_may_die(&s->ledger, attempt.stage);
    }
    settle_or_keep(s, &attempt);
}

static void begin_some(struct sim *s, const struct server *server, unsigned percent)
{
    for (struct waiting **link = &s->waiting, *waiting; (waiting = *link) && !s->ledger.failure[0];) {
        const struct actor *actor = sim_actor(s, waiting->actor);
        bool here = !actor || actor->server == server;
        if (!here || !chance(&s->luck, percent)) {
            link = &waiting->next;
            continue;
        }
        *link = waiting->next;
        if (actor)
            begin_one(s, actor, waiting);
        free(waiting);
    }
}

void target_close(struct sim *s, const struct actor *actor)
{
    uint32_t lane = (uint32_t)below(&s->luck, LANES);
    bool closed = chance(&s->luck, 50);
    if (actor && fl_engine_close_lane(actor->engine, lane, closed) < 0)
        ledger_fail(&s->ledger, "a lane is not closed");
    sim_say(s, "lane %u is %s", lane, closed ? "closed" : "opened");
}

void target_open(struct sim *s, const struct actor *actor)
{
    for (uint32_t lane = 0; actor && lane < LANES; lane++)
        if (fl_engine_close_lane(actor->engine, lane, false) < 0)
            ledger_fail(&s->ledger, "a lane is not opened");
}

void target_dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct sim *s = arg;
    const struct actor *actor = s->actors;
    while (actor->engine != engine)
        actor++;
    if (actor->server && !fleet_lives(actor->server))
        return; /* it is dead, and what it does is not done */
    for (size_t i = 0; i < count && !s->ledger.failure[0]; i++) {
        if (tickers_are(&firings[i].timer)) {
            tickers_fire(s, actor, &firings[i]);
            continue;
        }
        if (chance(&s->luck, s->nature.wait_percent)) {
            wait(s, actor, &firings[i]);
            continue;
        }
        struct attempt attempt = fire(s, actor, &firings[i]);
        settle_or_keep(s, &attempt);
    }
}
