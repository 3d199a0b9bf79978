/* SPDX-License-Identifier: MIT */
/* Timers that create timers: tickers, and the beats that they create.
 *
 * A ticker is a timer with a name whose payload says how many beats it has created. When it fires, it creates the next ones and
 * goes on (FL_ADVANCE). Clients replace tickers by what they have read, and create beats themselves together with a change of
 * the ticker (an atomic batch). Whatever happens, a beat is created once, and what a ticker has counted has fired:
 *
 *   - all firings of one beat are of one timer, unless the store went back and has forgotten the first;
 *   - a beat that is done does not come again before another owner does;
 *   - a ticker never counts less than what was acknowledged;
 *   - in the end, all that the tickers have counted has fired.
 *
 * What fires is told to the history, too. It has no more rows than were told, and the last of them in the end. */

#include "sim/world.h"

#include <stdlib.h>
#include <string.h>

enum { TICKERS = 3, BEATS = 64, AT_ONCE = 4 };

struct beat {
    uint64_t id;   /* of its timer; 0: not known */
    uint64_t term; /* in which it was done; 0: in none */
    unsigned fired, told, listed;
};

/* Number `n` of a ticker: the payload of its beats, and of the ticker itself, of which it is the next. */
struct count {
    uint32_t ticker, n;
};

/* A ticker that has fired and is not settled. */
struct tick {
    uint64_t token;
    unsigned actor;
    struct count count;
    struct tick *next;
};

struct tickers {
    struct luck luck;
    struct beat beats[TICKERS][BEATS];
    uint32_t acknowledged[TICKERS];
    uint32_t counted[TICKERS]; /* in the end */
    int64_t latest_us;         /* when the last of all this is due */
    unsigned asked;            /* batches that are not answered */
    struct tick *ticks;        /* to be settled later */
};

/* A batch on its way, or a question before it. */
struct ask {
    fl_batch batch;
    fl_op ops[1 + AT_ONCE];
    struct sim *sim;
    uint64_t went_back; /* as it was then */
    unsigned actor;
    struct count before, after, beats[AT_ONCE];
    char name[16];
    bool replaces; /* a question: the ticker is to be replaced, and not to create */
};

/* --- What is so ---------------------------------------------------------------------------------------------------- */

static fl_bytes text_of(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

static fl_bytes bytes_of(const struct count *count)
{
    return (fl_bytes){count, sizeof *count};
}

/* Whether the timers that it knows may have been forgotten by the store since. */
static bool is_outdated(const struct sim *s, uint64_t went_back)
{
    return s->ledger.went_back != went_back;
}

static void is_timer_of(struct sim *s, const struct count *count, uint64_t id, const char *how)
{
    struct beat *beat = &s->tickers->beats[count->ticker][count->n];
    if (beat->id && beat->id != id)
        ledger_fail(&s->ledger, "beat %u of ticker %u %s as another timer", count->n, count->ticker, how);
    beat->id = id;
}

static void acknowledge(struct sim *s, const struct ask *ask)
{
    struct tickers *t = s->tickers;
    if (is_outdated(s, ask->went_back))
        return;
    for (uint32_t n = ask->before.n; n < ask->after.n; n++)
        is_timer_of(s, &(struct count){ask->before.ticker, n}, ask->ops[1 + n - ask->before.n].timer.id.seq,
                    "was created");
    if (ask->after.n > t->acknowledged[ask->after.ticker])
        t->acknowledged[ask->after.ticker] = ask->after.n;
}

void tickers_go_back(struct sim *s)
{
    struct tickers *t = s->tickers;
    for (int i = 0; t && i < TICKERS; i++) {
        t->acknowledged[i] = 0;
        for (int n = 0; n < BEATS; n++)
            t->beats[i][n].id = 0;
    }
}

/* --- Changing ------------------------------------------------------------------------------------------------------ */

static struct ask *new_ask(struct sim *s, const struct actor *actor, const struct count *count)
{
    struct ask *ask = calloc(1, sizeof *ask);
    if (!ask)
        abort();
    ask->sim = s;
    ask->actor = actor->number;
    ask->went_back = s->ledger.went_back;
    ask->before = ask->after = *count;
    snprintf(ask->name, sizeof ask->name, "ticker %u", count->ticker);
    s->tickers->asked++;
    return ask;
}

static void end_ask(struct ask *ask)
{
    ask->sim->tickers->asked--;
    free(ask);
}

static void answered(fl_batch *batch)
{
    struct ask *ask = batch->arg;
    sim_say(ask->sim, "ticker %u from %u to %u: %s", ask->before.ticker, ask->before.n, ask->after.n,
            fl_errname(ask->ops[0].result));
    for (size_t i = 1; i < batch->count; i++)
        if (ask->ops[i].result != ask->ops[0].result)
            ledger_fail(&ask->sim->ledger, "a batch is done in part");
    if (ask->ops[0].result == 0)
        acknowledge(ask->sim, ask);
    end_ask(ask);
}

/* The next beats, some of them due later; and when the ticker is due again. */
static void fill_beats(struct ask *ask, const struct actor *actor, uint32_t wanted)
{
    struct sim *s = ask->sim;
    int64_t now_us = sim_clock_us(s, actor);
    ask->after.n = ask->before.n + wanted < BEATS ? ask->before.n + wanted : BEATS;
    for (uint32_t i = 0; i < ask->after.n - ask->before.n; i++) {
        ask->beats[i] = (struct count){ask->before.ticker, ask->before.n + i};
        int64_t after_us = chance(&s->tickers->luck, 50) ? 0 : (int64_t)below(&s->tickers->luck, 3 * SECOND);
        ask->ops[1 + i] = (fl_op){.kind = FL_OP_CREATE,
                                  .timer = {.ns = text_of("beat"),
                                            .payload = bytes_of(&ask->beats[i]),
                                            .schedule = text_of(ask->name),
                                            .due_us = now_us + after_us}};
        if (now_us + after_us > s->tickers->latest_us)
            s->tickers->latest_us = now_us + after_us;
    }
    bool over = s->calm || ask->after.n == BEATS;
    int64_t next_us = over ? FL_TIME_NEVER_US : now_us + 1 + (int64_t)below(&s->tickers->luck, 5 * SECOND);
    if (!over && next_us > s->tickers->latest_us)
        s->tickers->latest_us = next_us;
    ask->ops[0].timer.due_us = next_us;
    ask->ops[0].timer.payload = bytes_of(&ask->after);
    ask->batch = (fl_batch){
        .ops = ask->ops, .count = 1 + ask->after.n - ask->before.n, .done = answered, .arg = ask, .atomic = true};
}

static void settle(struct sim *s, const struct tick *tick)
{
    const struct actor *actor = sim_actor(s, tick->actor);
    if (!actor)
        return;
    struct ask *ask = new_ask(s, actor, &tick->count);
    ask->ops[0] = (fl_op){.kind = FL_OP_UPDATE, .flags = FL_OP_SET_DUE | FL_OP_SET_PAYLOAD};
    fill_beats(ask, actor, (uint32_t)below(&s->tickers->luck, AT_ONCE + 1));
    fl_settlement settlement = {.token = tick->token, .result = FL_ADVANCE, .batch = &ask->batch};
    if (fl_engine_settle(actor->engine, &settlement, 1) != 1) {
        ledger_fail(&s->ledger, "ticker %u: the engine does not know what it has fired", tick->count.ticker);
        end_ask(ask);
    }
}

/* It was read: now it is changed, if it is still so. */
static void change(struct ask *ask, const struct actor *actor)
{
    struct sim *s = ask->sim;
    fl_op head = {.kind = ask->replaces ? FL_OP_CREATE : FL_OP_UPDATE,
                  .flags = FL_OP_ONLY_REVISION | FL_OP_SET_DUE | FL_OP_SET_PAYLOAD,
                  .timer = {.ns = text_of("tick"), .name = text_of(ask->name), .revision = ask->ops[0].timer.revision}};
    memcpy(&ask->before, ask->ops[0].timer.payload.data, sizeof ask->before);
    ask->after = ask->before;
    ask->ops[0] = head;
    fill_beats(ask, actor, ask->replaces ? 0 : 1 + (uint32_t)below(&s->tickers->luck, AT_ONCE));
    sim_say(s, "ticker %u is %s", ask->before.ticker, ask->replaces ? "replaced" : "changed");
    fl_engine_submit(actor->engine, &ask->batch);
}

static void found(fl_batch *batch)
{
    struct ask *ask = batch->arg;
    const struct actor *actor = sim_actor(ask->sim, ask->actor);
    if (ask->ops[0].result == 0 && actor && !actor->stopping)
        change(ask, actor);
    else
        end_ask(ask);
}

static void look_and_change(struct sim *s, const struct actor *actor)
{
    struct count count = {(uint32_t)below(&s->tickers->luck, TICKERS), 0};
    struct ask *ask = new_ask(s, actor, &count);
    ask->replaces = chance(&s->tickers->luck, 50);
    ask->ops[0] = (fl_op){.kind = FL_OP_GET, .timer = {.ns = text_of("tick"), .name = text_of(ask->name)}};
    ask->batch = (fl_batch){.ops = ask->ops, .count = 1, .done = found, .arg = ask};
    fl_engine_submit(actor->engine, &ask->batch);
}

/* One that is not there yet. */
static void create(struct sim *s, const struct actor *actor)
{
    struct count count = {(uint32_t)below(&s->tickers->luck, TICKERS), 0};
    struct ask *ask = new_ask(s, actor, &count);
    ask->ops[0] = (fl_op){
        .kind = FL_OP_CREATE, .flags = FL_OP_ONLY_NEW, .timer = {.ns = text_of("tick"), .name = text_of(ask->name)}};
    fill_beats(ask, actor, 0);
    fl_engine_submit(actor->engine, &ask->batch);
}

int64_t tickers_latest_us(const struct sim *s)
{
    return s->tickers->latest_us;
}

void tickers_act(struct sim *s)
{
    struct tickers *t = s->tickers;
    const struct actor *actor = t ? sim_some_actor(s) : NULL;
    for (struct tick **link = t ? &t->ticks : NULL, *tick; link && (tick = *link);) {
        if (!s->calm && chance(&t->luck, 50)) {
            link = &tick->next;
            continue;
        }
        *link = tick->next;
        settle(s, tick);
        free(tick);
    }
    if (!actor || s->calm || !chance(&t->luck, 30))
        return;
    if (chance(&t->luck, 30))
        create(s, actor);
    else
        look_and_change(s, actor);
}

/* --- Firing -------------------------------------------------------------------------------------------------------- */

/* One that knows what the store has forgotten, or has lost the shard and does not know it yet. */
static bool is_reliable(const struct sim *s, const struct actor *actor)
{
    const struct tenure *tenure = &s->ledger.tenures[actor->shard];
    return actor->number == tenure->owner && tenure->since_tick > s->ledger.went_back;
}

static void tick(struct sim *s, const struct actor *actor, const fl_firing *firing, const struct count *count)
{
    struct tickers *t = s->tickers;
    sim_say(s, "ticker %u fires at engine %u, from %u", count->ticker, actor->number, count->n);
    if (count->n < t->acknowledged[count->ticker] && is_reliable(s, actor))
        ledger_fail(&s->ledger, "ticker %u counts %u, and %u were acknowledged", count->ticker, count->n,
                    t->acknowledged[count->ticker]);
    struct tick fired = {firing->token, actor->number, *count, t->ticks};
    if (s->calm || !chance(&t->luck, 20)) {
        settle(s, &fired);
        return;
    }
    struct tick *kept = malloc(sizeof *kept);
    if (!kept)
        abort();
    *kept = fired;
    t->ticks = kept;
}

static void beat(struct sim *s, const struct actor *actor, const fl_firing *firing, const struct count *count)
{
    struct tickers *t = s->tickers;
    struct beat *beat = &t->beats[count->ticker][count->n];
    sim_say(s, "beat %u of ticker %u fires at engine %u", count->n, count->ticker, actor->number);
    uint64_t term = s->ledger.tenures[actor->shard].term;
    if (is_reliable(s, actor)) {
        is_timer_of(s, count, firing->timer.id.seq, "fires");
        if (beat->term == term)
            ledger_fail(&s->ledger, "beat %u of ticker %u fires, and was done", count->n, count->ticker);
    }
    beat->fired++;
    fl_history_row row = {
        .id = firing->timer.id, .began_us = sim_clock_us(s, actor), .ns = text_of("beat"), .body = bytes_of(count)};
    beat->told += (unsigned)fl_engine_history(actor->engine, &row, 1);
    bool fails = s->nature.hostile && !s->calm && chance(&t->luck, 20);
    if (!fails && is_reliable(s, actor))
        beat->term = term;
    fl_engine_settle(actor->engine, &(fl_settlement){.token = firing->token, .result = fails ? FL_FAILED : FL_DONE}, 1);
}

bool tickers_are(const fl_durable *timer)
{
    return timer->ns.size == 4 && (memcmp(timer->ns.data, "tick", 4) == 0 || memcmp(timer->ns.data, "beat", 4) == 0);
}

void tickers_fire(struct sim *s, const struct actor *actor, const fl_firing *firing)
{
    struct count count = {0};
    if (firing->timer.payload.size == sizeof count)
        memcpy(&count, firing->timer.payload.data, sizeof count);
    if (firing->timer.payload.size != sizeof count || count.ticker >= TICKERS || count.n > BEATS)
        ledger_fail(&s->ledger, "a ticker is not what it was");
    else if (firing->timer.name.size > 0)
        tick(s, actor, firing, &count);
    else
        beat(s, actor, firing, &count);
}

/* --- The end ------------------------------------------------------------------------------------------------------- */

static void counted(fl_batch *batch)
{
    struct ask *ask = batch->arg;
    struct tickers *t = ask->sim->tickers;
    if (ask->ops[0].result == 0)
        memcpy(&ask->after, ask->ops[0].timer.payload.data, sizeof ask->after);
    t->counted[ask->before.ticker] = ask->ops[0].result == 0 ? ask->after.n : 0;
    if (ask->ops[0].result != 0 && t->acknowledged[ask->before.ticker] > 0)
        ledger_fail(&ask->sim->ledger, "ticker %u is gone", ask->before.ticker);
    end_ask(ask);
}

static void listed(fl_history_listing *listing)
{
    struct sim *s = listing->arg;
    struct count count;
    for (size_t i = 0; i < listing->count; i++) {
        memcpy(&count, listing->found[i].body.data, sizeof count);
        struct beat *beat = &s->tickers->beats[count.ticker][count.n];
        if (++beat->listed > beat->told)
            ledger_fail(&s->ledger, "beat %u of ticker %u is %u times in the history, and was told %u times", count.n,
                        count.ticker, beat->listed, beat->told);
    }
    const struct actor *actor = sim_some_actor(s);
    if (listing->result == 0 && listing->more && actor)
        fl_engine_list_history(actor->engine, listing);
    else if (listing->result != 0 || s->tickers->beats[0][0].listed == 0)
        ledger_fail(&s->ledger, "what was told last is not in the history: %s", fl_errname(listing->result));
    else
        s->tickers->asked--;
}

/* The last word is of a beat that there is in any case. */
static void look_back(struct sim *s, const struct actor *actor)
{
    static fl_history_listing listing;
    struct count first = {0};
    fl_history_row row = {
        .id = {1, 1}, .began_us = sim_clock_us(s, actor), .ns = text_of("beat"), .body = bytes_of(&first)};
    s->tickers->beats[0][0].told += (unsigned)fl_engine_history(actor->engine, &row, 1);
    listing = (fl_history_listing){.limit = 1 + below(&s->tickers->luck, 100), .done = listed, .arg = s};
    s->tickers->asked++;
    fl_engine_list_history(actor->engine, &listing);
}

void tickers_end(struct sim *s)
{
    const struct actor *actor = s->tickers ? sim_some_actor(s) : NULL;
    if (!actor)
        return;
    tickers_act(s);
    for (uint32_t i = 0; i < TICKERS; i++) {
        struct ask *ask = new_ask(s, actor, &(struct count){i, 0});
        ask->ops[0] = (fl_op){.kind = FL_OP_GET, .timer = {.ns = text_of("tick"), .name = text_of(ask->name)}};
        ask->batch = (fl_batch){.ops = ask->ops, .count = 1, .done = counted, .arg = ask};
        fl_engine_submit(actor->engine, &ask->batch);
    }
    look_back(s, actor);
}

void tickers_close(struct sim *s)
{
    struct tickers *t = s->tickers;
    if (!t || s->ledger.failure[0])
        return;
    if (t->asked > 0)
        ledger_fail(&s->ledger, "%u questions about tickers were never answered", t->asked);
    for (uint32_t i = 0; i < TICKERS; i++) {
        if (t->counted[i] < t->acknowledged[i])
            ledger_fail(&s->ledger, "ticker %u counts %u in the end, and %u were acknowledged", i, t->counted[i],
                        t->acknowledged[i]);
        for (uint32_t n = 0; n < t->counted[i]; n++)
            if (t->beats[i][n].fired == 0)
                ledger_fail(&s->ledger, "beat %u of ticker %u was created, and did not fire", n, i);
    }
}

void tickers_begin(struct sim *s, uint64_t seed)
{
    s->tickers = calloc(1, sizeof *s->tickers);
    if (!s->tickers)
        abort();
    luck_begin(&s->tickers->luck, seed);
}

void tickers_forget(struct sim *s)
{
    while (s->tickers && s->tickers->ticks) {
        struct tick *next = s->tickers->ticks->next;
        free(s->tickers->ticks);
        s->tickers->ticks = next;
    }
    free(s->tickers);
}
