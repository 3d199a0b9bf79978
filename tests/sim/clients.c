/* SPDX-License-Identifier: MIT */
/* What users ask for, many at once and of the same timers, and what they are answered. */

#include "sim/world.h"

#include <stdlib.h>
#include <string.h>

struct ask {
    uint32_t slot, stage; /* stage NOWHERE: it changes nothing */
    uint32_t certain;     /* what was there when it was asked for */
    uint64_t tick;        /* the slot's then */
    char name[16];
    unsigned char *payload;
};

/* A batch on its way. */
struct errand {
    fl_batch batch;
    fl_op ops[ASKS_MOST];
    struct ask asks[ASKS_MOST];
    struct sim *sim;
    unsigned actor, number; /* who does it; no other errand has this number, unless all are done in their order */
    uint32_t shard;         /* that all of it is of; NOWHERE: any */
    struct errand *next, *previous;
};

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static bool says_nothing(int result)
{
    return result == FL_STORE_UNAVAILABLE || result == FL_OUTCOME_UNKNOWN || result == FL_SHARD_LOST ||
           result == FL_STOPPED || result == FL_NO_MEMORY;
}

/* What must be answered when nobody else was at it. 1: no matter. */
static int expected(const struct sim *s, const struct stage *there, const fl_op *op)
{
    const struct ledger *l = &s->ledger;
    bool gone = there->tag == 0 ||
                (there->fate == DONE && (there->term == ledger_tenure(l, there->slot)->term || there->secured));
    bool living = there->tag && there->fate == WAITING && !there->may_skip;
    switch (op->kind) {
    case FL_OP_CREATE:
        if (living && op->flags & (FL_OP_ONLY_NEW | FL_OP_NO_REPLACE))
            return FL_EXISTS;
        if (gone && op->flags & FL_OP_ONLY_REPLACE)
            return FL_TIMER_NOT_FOUND;
        return gone || living ? 0 : 1;
    case FL_OP_GET:
        return gone ? FL_TIMER_NOT_FOUND : living ? 0 : 1;
    case FL_OP_UPDATE:
    case FL_OP_CANCEL:
        if (there->fate == UNDER_WAY && there->term == ledger_tenure(l, there->slot)->term)
            return FL_BUSY;
        return gone ? FL_TIMER_NOT_FOUND : living ? 0 : 1;
    default:
        return 1;
    }
}

static void check_content(struct sim *s, const struct stage *there, const fl_op *op)
{
    struct ledger *l = &s->ledger;
    if (op->kind == FL_OP_GET &&
        (payload_tag(s, op->timer.payload) != there->tag || (!there->vague && op->timer.due_us != there->due_us)))
        ledger_fail(l, "#%u is read as something else", there->tag);
    enum fl_outcome outcome = there->tag && there->fate == WAITING ? FL_REPLACED : FL_CREATED;
    if (op->kind == FL_OP_CREATE && op->outcome != outcome)
        ledger_fail(l, "a creation in the place of #%u says %d", there->tag, (int)op->outcome);
}

static void check_answer(struct errand *errand, const struct ask *ask, const fl_op *op)
{
    struct sim *s = errand->sim;
    struct ledger *l = &s->ledger;
    const struct tenure *tenure = ledger_tenure(l, ask->slot);
    bool quiet = ask->certain != NOWHERE && !l->slots[ask->slot].wild && l->slots[ask->slot].touched == ask->tick &&
                 tenure->owner == errand->actor && tenure->since_tick < ask->tick;
    if (!quiet || says_nothing(op->result))
        return;
    const struct stage *there = &l->stages[ask->certain];
    int right = expected(s, there, op);
    if (right > 0)
        return;
    if (op->result != right)
        ledger_fail(l, "operation %d on #%u is answered %s, not %s", (int)op->kind, there->tag, fl_errname(op->result),
                    fl_errname(right));
    else if (right == 0)
        check_content(s, there, op);
}

static void learn(struct ledger *l, struct stage *stage, const fl_op *op)
{
    stage->id = op->timer.id;
    if (stage->vague && stage->fate == WAITING) {
        stage->due_us = op->timer.due_us;
        stage->attempt = op->timer.attempt;
        stage->vague = false;
    }
    const struct slot *slot = &l->slots[stage->slot];
    if (op->kind == FL_OP_DEAD_REDRIVE && ++l->slots[stage->slot].raised > slot->deaths && !slot->wild)
        ledger_fail(l, "#%u was raised more often than it died", stage->tag);
}

static void answered_one(struct errand *errand, struct ask *ask, const fl_op *op)
{
    struct ledger *l = &errand->sim->ledger;
    l->wall_us = sim_wall_us(errand->sim) + errand->sim->skew_us;
    check_answer(errand, ask, op);
    free(ask->payload);
    if (ask->stage == NOWHERE)
        return;
    struct stage *stage = &l->stages[ask->stage];
    sim_say(errand->sim, "answer to %d of slot %u (#%u): %s", (int)op->kind, ask->slot, stage->tag,
            fl_errname(op->result));
    if (op->result == 0 && stage->tag)
        learn(l, stage, op);
    ledger_answer(l, ask->stage, op->result);
}

static void answered(fl_batch *batch)
{
    struct errand *errand = batch->arg;
    struct sim *s = errand->sim;
    for (size_t i = 0; i < batch->count; i++)
        answered_one(errand, &errand->asks[i], &errand->ops[i]);
    if (errand->previous)
        errand->previous->next = errand->next;
    else
        s->errands = errand->next;
    if (errand->next)
        errand->next->previous = errand->previous;
    free(errand);
}

bool clients_wait(const struct sim *s)
{
    return s->errands || s->listings;
}

/* --- Asking ------------------------------------------------------------------------------------------------------- */

static int64_t some_delay(struct sim *s)
{
    struct luck *luck = &s->luck;
    int64_t far_us = s->fleet ? 60 * SECOND : 600 * SECOND; /* a fleet waits for all of it */
    switch (below(luck, 10)) {
    case 0:
        return -(int64_t)below(luck, 10 * SECOND);
    case 1:
        return 0;
    case 2:
        return (int64_t)below(luck, (uint64_t)far_us * 6);
    case 3:
        return s->nature.far ? (int64_t)below(luck, 300 * 86400 * SECOND) : (int64_t)below(luck, (uint64_t)far_us);
    case 4:
    case 5:
        return 20 * SECOND - sim_wall_us(s) % (10 * SECOND); /* a crowd at one moment */
    default:
        return (int64_t)below(luck, chance(luck, 50) ? 60 * SECOND : 2 * SECOND);
    }
}

static uint32_t some_slot(struct sim *s)
{
    struct ledger *l = &s->ledger;
    if (l->slot_count == 0)
        return NOWHERE;
    uint32_t from = chance(&s->luck, 50) && l->slot_count > 6 ? l->slot_count - 6 : 0; /* one that is new: a race */
    return from + (uint32_t)below(&s->luck, l->slot_count - from);
}

/* Whether it can be asked for together with the others. */
static bool fits(const struct errand *errand, uint32_t slot)
{
    return slot != NOWHERE && (errand->shard == NOWHERE || errand->sim->ledger.slots[slot].shard == errand->shard);
}

/* A stage of the slot that may be there, the latest first. */
static uint32_t likely(const struct ledger *l, uint32_t slot)
{
    for (uint32_t i = l->stage_count; i-- > 0;)
        if (l->stages[i].slot == slot && l->stages[i].place == HERE && l->stages[i].id.seq)
            return i;
    return NOWHERE;
}

static void set_payload(struct sim *s, struct ask *ask, fl_op *op, uint32_t tag)
{
    size_t size = sizeof tag + (chance(&s->luck, 30) ? below(&s->luck, PAYLOAD_MOST) : 0);
    ask->payload = malloc(size);
    if (!ask->payload)
        abort();
    payload_fill(tag, ask->payload, size);
    op->timer.payload = (fl_bytes){ask->payload, size};
    op->timer.retry = policy_of(s, tag);
}

static void address(struct sim *s, struct ask *ask, fl_op *op, bool by_name)
{
    const struct slot *slot = &s->ledger.slots[ask->slot];
    if (by_name) {
        snprintf(ask->name, sizeof ask->name, "name %u", slot->name);
        op->timer.name = (fl_bytes){ask->name, strlen(ask->name)};
    }
    op->timer.ns = slot->name % 2 ? (fl_bytes){"odd", 3} : (fl_bytes){"even", 4};
    ask->certain = ledger_certain(&s->ledger, ask->slot);
    ask->tick = s->ledger.slots[ask->slot].touched;
    ask->stage = NOWHERE;
}

/* The ledger learns what is asked for. False: it is full. */
static bool enter(struct errand *errand, struct ask *ask, const fl_op *op, uint32_t tag, int64_t due_us)
{
    struct ledger *l = &errand->sim->ledger;
    l->wall_us = sim_wall_us(errand->sim) + errand->sim->skew_us;
    ask->stage = ledger_ask(l, ask->slot, tag, due_us);
    if (ask->stage == NOWHERE)
        return false;
    l->stages[ask->stage].by_name = op->timer.name.size > 0 && op->kind <= FL_OP_CANCEL;
    l->stages[ask->stage].actor = errand->number;
    ask->tick = l->slots[ask->slot].touched;
    return true;
}

static bool create(struct errand *errand, struct ask *ask, fl_op *op)
{
    struct sim *s = errand->sim;
    bool named = chance(&s->luck, 40);
    unsigned name = (unsigned)below(&s->luck, NAMES);
    uint32_t shard = errand->shard != NOWHERE ? errand->shard : (uint32_t)below(&s->luck, s->shards);
    ask->slot = named ? s->name_slots[name] : ledger_slot(&s->ledger, shard, false, name);
    if (!fits(errand, ask->slot))
        return false;
    *op = (fl_op){.kind = FL_OP_CREATE, .timer.due_us = sim_wall_us(s) + some_delay(s)};
    if (named && chance(&s->luck, 20))
        op->flags = (unsigned[]){FL_OP_ONLY_NEW, FL_OP_NO_REPLACE, FL_OP_ONLY_REPLACE}[below(&s->luck, 3)];
    address(s, ask, op, named);
    set_payload(s, ask, op, ++s->tags);
    sim_say(s, "create #%u in slot %u%s, due %.6f", s->tags, ask->slot, named ? " by name" : "",
            (double)(op->timer.due_us - START_US) / 1e6);
    return enter(errand, ask, op, s->tags, op->timer.due_us);
}

/* Whether the store, since it went back, may have given the number of this timer to another one. */
static bool is_ambiguous(const struct ledger *l, uint32_t there)
{
    const struct slot *slot = &l->slots[l->stages[there].slot];
    for (uint32_t i = 0; i < l->stage_count && l->went_back > 0; i++) {
        const struct stage *other = &l->stages[i];
        if (other->slot != l->stages[there].slot && l->slots[other->slot].shard == slot->shard &&
            other->id.seq == l->stages[there].id.seq)
            return true;
    }
    return false;
}

/* Chooses a timer, by name or by ID. */
static bool choose(const struct errand *errand, struct ask *ask, fl_op *op, enum fl_op_kind kind)
{
    struct sim *s = errand->sim;
    ask->slot = some_slot(s);
    if (!fits(errand, ask->slot))
        return false;
    uint32_t there = likely(&s->ledger, ask->slot);
    bool by_name = s->ledger.slots[ask->slot].named && kind <= FL_OP_CANCEL && chance(&s->luck, 60);
    if (!by_name && (there == NOWHERE || is_ambiguous(&s->ledger, there)))
        return false;
    *op = (fl_op){.kind = kind};
    address(s, ask, op, by_name);
    if (!by_name) {
        op->timer.id = s->ledger.stages[there].id;
        if (ask->certain != NOWHERE && s->ledger.stages[ask->certain].tag == 0)
            ask->certain = NOWHERE;
    }
    return true;
}

/* It stays where another of the slot is filed. */
static void stay(struct ledger *l, struct stage *stage)
{
    stage->vague = true;
    for (uint32_t i = 0; i < l->stage_count; i++)
        if (l->stages[i].slot == stage->slot && l->stages[i].filed_us > stage->filed_us)
            stage->filed_us = l->stages[i].filed_us;
}

static bool update(struct errand *errand, struct ask *ask, fl_op *op)
{
    struct sim *s = errand->sim;
    if (!choose(errand, ask, op, FL_OP_UPDATE))
        return false;
    bool moves = chance(&s->luck, 70);
    int64_t due_us = moves ? sim_wall_us(s) + some_delay(s) : ledger_earliest(&s->ledger, ask->slot);
    op->flags = FL_OP_SET_PAYLOAD | FL_OP_SET_RETRY | (moves ? FL_OP_SET_DUE : 0);
    op->timer.due_us = moves ? due_us : 0;
    set_payload(s, ask, op, ++s->tags);
    sim_say(s, "update slot %u%s to #%u%s, due %.6f", ask->slot, op->timer.name.size ? " by name" : "", s->tags,
            moves ? "" : ", vaguely", (double)(due_us - START_US) / 1e6);
    if (!enter(errand, ask, op, s->tags, due_us))
        return false;
    if (!moves)
        stay(&s->ledger, &s->ledger.stages[ask->stage]);
    return true;
}

static bool cancel(struct errand *errand, struct ask *ask, fl_op *op)
{
    if (!choose(errand, ask, op, FL_OP_CANCEL))
        return false;
    sim_say(errand->sim, "cancel slot %u%s", ask->slot, op->timer.name.size ? " by name" : "");
    return enter(errand, ask, op, 0, 0);
}

/* Of one that is dead, or not. */
static bool raise_or_delete(struct errand *errand, struct ask *ask, fl_op *op, enum fl_op_kind kind)
{
    struct sim *s = errand->sim;
    if (!choose(errand, ask, op, kind))
        return false;
    uint32_t likely_there = likely(&s->ledger, ask->slot);
    const struct stage *there = &s->ledger.stages[likely_there];
    if (there->fate != DEAD)
        return false;
    if (kind == FL_OP_DEAD_DELETE && ledger_certain(&s->ledger, ask->slot) != likely_there)
        return false; /* it would say nothing about the other that may be there */
    sim_say(s, "%s slot %u (#%u)", kind == FL_OP_DEAD_REDRIVE ? "raise" : "delete dead", ask->slot, there->tag);
    if (!enter(errand, ask, op, kind == FL_OP_DEAD_REDRIVE ? there->tag : 0, 0))
        return false;
    struct stage *stage = &s->ledger.stages[ask->stage];
    stage->vague = stage->tag != 0;
    return true;
}

static bool ask_one(struct errand *errand, struct ask *ask, fl_op *op)
{
    struct sim *s = errand->sim;
    unsigned luck = (unsigned)below(&s->luck, 100);
    if (luck < 55)
        return create(errand, ask, op);
    if (luck < 70)
        return update(errand, ask, op);
    if (luck < 82)
        return cancel(errand, ask, op);
    if (luck < 92)
        return choose(errand, ask, op, FL_OP_GET);
    return raise_or_delete(errand, ask, op, luck < 97 ? FL_OP_DEAD_REDRIVE : FL_OP_DEAD_DELETE);
}

/* To a server of the fleet, or to the engine that there is. */
static void send(struct sim *s, struct errand *errand, const struct actor *actor)
{
    errand->next = s->errands;
    if (errand->next)
        errand->next->previous = errand;
    s->errands = errand;
    if (s->fleet)
        fleet_ask(s, &errand->batch, errand->shard, &errand->actor);
    else
        fl_engine_submit(actor->engine, &errand->batch);
}

void clients_act(struct sim *s)
{
    const struct actor *actor = s->fleet ? NULL : sim_some_actor(s);
    if (!actor && !s->fleet)
        return;
    if (actor && chance(&s->luck, 4)) {
        clients_list(s, sim_some_actor(s), false);
        return;
    }
    struct errand *errand = calloc(1, sizeof *errand);
    if (!errand)
        abort();
    errand->sim = s;
    errand->actor = actor ? actor->number : 0;
    errand->number = actor ? actor->number : ++s->errand_count;
    errand->shard = actor ? 0 : NOWHERE;
    errand->batch = (fl_batch){.ops = errand->ops, .done = answered, .arg = errand};
    size_t wanted = chance(&s->luck, 15) ? 1 + below(&s->luck, ASKS_MOST) : 1;
    for (; wanted > 0; wanted--) {
        size_t n = errand->batch.count;
        if (!ask_one(errand, &errand->asks[n], &errand->ops[n]))
            continue;
        errand->shard = s->ledger.slots[errand->asks[n].slot].shard;
        errand->batch.count++;
    }
    if (errand->batch.count > 0)
        send(s, errand, actor);
    else
        free(errand);
}

/* --- Lists -------------------------------------------------------------------------------------------------------- */

/* A list from the first page to the last. What nobody has touched meanwhile must be in it once; what is not there, not. */
struct listing {
    fl_listing page;
    struct sim *sim;
    unsigned actor;
    uint32_t shard;
    uint64_t began;
    bool ahead;                /* it is, or was, of the future */
    uint8_t seen[STAGES_MOST]; /* by tag */
    struct listing *next, *previous;
};

static void end_listing(struct listing *listing)
{
    if (listing->previous)
        listing->previous->next = listing->next;
    else
        listing->sim->listings = listing->next;
    if (listing->next)
        listing->next->previous = listing->previous;
    free(listing);
}

/* Another stage with this tag may be there. */
static bool shown_rightly(const struct ledger *l, const struct stage *stage)
{
    for (uint32_t i = 0; i < l->stage_count; i++)
        if (l->stages[i].tag == stage->tag && l->stages[i].place != GONE)
            return true;
    return stage->tag == 0;
}

static bool in_range(const fl_listing *page, int64_t due_us)
{
    return (page->from_us == 0 || due_us >= page->from_us) && (page->until_us == 0 || due_us < page->until_us);
}

/* It must be found if it is due in the range; but a range of the future is looked through by the time of filing. One that
 * was late when it was created may be filed later than that, and one that was attempted, or has waited, before the clock was
 * set back, elsewhere. */
static bool must_be_in(const struct listing *listing, const struct stage *stage)
{
    const fl_listing *page = &listing->page;
    if (page->dead || (page->from_us == 0 && page->until_us == 0))
        return true;
    bool found_ahead =
        stage->attempt == 0 && !stage->parked && (page->until_us == 0 || stage->filed_us < page->until_us);
    return !stage->vague && in_range(page, stage->due_us) && (!listing->ahead || found_ahead);
}

static void compare(struct listing *listing)
{
    struct sim *s = listing->sim;
    struct ledger *l = &s->ledger;
    const struct tenure *tenure = &l->tenures[listing->shard];
    if (tenure->owner != listing->actor || tenure->since_tick > listing->began)
        return;
    for (uint32_t slot = 0; slot < l->slot_count; slot++) {
        uint32_t certain = ledger_certain(l, slot);
        if (l->slots[slot].shard != listing->shard || certain == NOWHERE || l->slots[slot].touched > listing->began)
            continue;
        const struct stage *there = &l->stages[certain];
        bool dead = there->fate == DEAD;
        bool here = listing->page.dead ? dead : there->tag && there->fate == WAITING;
        uint32_t seen = listing->seen[there->tag];
        bool once = seen == 1 || (seen > 1 && s->nature.wait_percent > 0); /* it may have been parked in between */
        bool moves =
            there->moving || (there->parked && s->nature.steps); /* out of its lane, if it is not due any more */
        if (here && !there->may_skip && !moves && must_be_in(listing, there) && !once)
            ledger_fail(l, "#%u is %u times in a list", there->tag, listing->seen[there->tag]);
    }
    for (uint32_t i = 0; i < l->stage_count && !listing->page.dead; i++) {
        const struct stage *stage = &l->stages[i];
        if (stage->place == GONE && !stage->unknown && l->slots[stage->slot].touched < listing->began &&
            !l->slots[stage->slot].wild && !shown_rightly(l, stage) && listing->seen[stage->tag])
            ledger_fail(l, "#%u is in a list, and it is gone", stage->tag);
    }
}

static void listed(fl_listing *page)
{
    struct listing *listing = (struct listing *)page;
    struct sim *s = listing->sim;
    for (size_t i = 0; i < page->count; i++) {
        if (tickers_are(&page->found[i].timer))
            continue;
        uint32_t tag = payload_tag(s, page->found[i].timer.payload);
        listing->seen[tag % STAGES_MOST]++;
        if (!page->dead && !in_range(page, page->found[i].timer.due_us))
            ledger_fail(&s->ledger, "#%u is in a list of another time", tag);
    }
    const struct actor *actor = sim_actor(s, listing->actor);
    if (page->result == 0 && page->more && actor && !actor->stopping) {
        fl_engine_list(actor->engine, page);
        return;
    }
    if (page->result == 0 && !page->more)
        compare(listing);
    end_listing(listing);
}

/* Half of the lists are of a range, which begins before now or after. */
static void choose_range(struct listing *listing)
{
    struct sim *s = listing->sim;
    int64_t now_us = sim_wall_us(s);
    if (listing->page.dead || below(&s->luck, 2) == 0)
        return;
    listing->page.from_us = now_us - some_delay(s) + some_delay(s);
    listing->page.until_us = below(&s->luck, 3) ? listing->page.from_us + some_delay(s) : 0;
    listing->ahead = listing->page.from_us > now_us - s->skew_us;
}

void clients_clock_set(struct sim *s)
{
    for (struct listing *listing = s->listings; listing; listing = listing->next)
        listing->ahead = listing->ahead || listing->page.from_us > sim_wall_us(s);
}

void clients_list(struct sim *s, const struct actor *actor, bool dead)
{
    struct listing *listing = actor ? calloc(1, sizeof *listing) : NULL;
    if (!listing)
        return;
    listing->sim = s;
    listing->actor = actor->number;
    listing->shard = actor->shard;
    listing->began = ++s->ledger.tick;
    listing->page = (fl_listing){.dead = dead, .limit = 1 + below(&s->luck, 40), .done = listed};
    choose_range(listing);
    listing->next = s->listings;
    if (listing->next)
        listing->next->previous = listing;
    s->listings = listing;
    sim_say(s, "list%s", dead ? " the dead" : "");
    fl_engine_list(actor->engine, &listing->page);
}
