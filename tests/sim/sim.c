/* SPDX-License-Identifier: MIT */
/* The engine in a world of its own: see sim.h. */

#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/engine.h>

#define SECOND 1000000ll
#define START_US (1700000000 * SECOND)

enum { ENTRIES = 600, NAMES = 24, ENGINES = 2 };

/* --- The ledger --------------------------------------------------------------------------------------------------- */

enum life { ABSENT, PERHAPS, LIVING, CANCELLED, REPLACED, OVER };

/* A timer as its creator sees it. Its payload is its number. */
struct entry {
    enum life life;
    bool named;
    unsigned name;
    fl_key id;
    bool id_known;
    int64_t due_us;      /* as acknowledged last */
    int64_t earliest_us; /* the earliest that may be right: of what was asked for and not answered, too */
    unsigned asked;      /* operations under way */
    unsigned fired;      /* begun */
    bool done, dead;
    int64_t done_ns; /* settled for the first time, by the loop's clock */
    bool doubtful;   /* an answer was "unknown": both are right */
};

struct request {
    fl_op op;
    fl_batch batch;
    struct sim *sim;
    unsigned entry;
    unsigned replaces; /* entry + 1 */
    int64_t due_us;
    char name[16];
    uint32_t payload[16];
    struct request *next, *previous;
};

struct pending {
    uint64_t token;
    unsigned entry;
    fl_engine *engine;
    struct pending *next;
};

struct sim {
    uint64_t seed, random;
    FILE *trace;
    fl_wall_clock wall;
    fl_virtual_clock time;
    int64_t offset_us;
    fl_loop *loop;
    fl_store *store;
    fl_engine_config config;
    fl_engine *engines[ENGINES];
    bool stopping[ENGINES];
    struct entry entries[ENTRIES];
    unsigned entry_count;
    int name_owner[NAMES]; /* entry of the latest acknowledged creation of that name; -1: none */
    unsigned name_asked[NAMES];
    struct request *requests;
    struct pending *held;
    int64_t recorded_ns;  /* when progress was last recorded */
    int64_t disturbed_ns; /* when a crash, theft or restart was last possible */
    bool calm;            /* no more faults */
    bool faulty, slow, hostile_dispatcher, thieves, crashes, steps;
    unsigned actions, trouble;
    char failure[512];
};

static uint64_t draw(struct sim *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random * 0x2545f4914f6cdd1d;
}

static uint64_t below(struct sim *s, uint64_t limit)
{
    return (draw(s) >> 11) % limit;
}

static bool chance(struct sim *s, unsigned percent)
{
    return below(s, 100) < percent;
}

static int64_t mono_ns(struct sim *s)
{
    return (int64_t)s->time.clock.now_ns(&s->time.clock);
}

static int64_t wall_us(struct sim *s)
{
    return s->offset_us + mono_ns(s) / 1000;
}

static int64_t wall_now(fl_wall_clock *clock)
{
    return wall_us((struct sim *)((char *)clock - offsetof(struct sim, wall)));
}

static void say(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct sim *s, const char *format, ...)
{
    if (!s->trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(s->trace, "%12.6f  ", (double)(wall_us(s) - START_US) / 1e6);
    vfprintf(s->trace, format, arguments);
    fputc('\n', s->trace);
    va_end(arguments);
}

static void fail(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct sim *s, const char *format, ...)
{
    if (s->failure[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->failure, sizeof s->failure, format, arguments);
    va_end(arguments);
    say(s, "FAILED: %s", s->failure);
    fl_loop_stop(s->loop);
}

/* --- Firing ------------------------------------------------------------------------------------------------------- */

static bool repeat_allowed(const struct sim *s, const struct entry *entry)
{
    return entry->doubtful || (s->disturbed_ns >= entry->done_ns && entry->done_ns >= s->recorded_ns);
}

static void check_firing(struct sim *s, unsigned i, const fl_firing *firing)
{
    struct entry *entry = &s->entries[i];
    int64_t now_us = wall_us(s);
    say(s, "fires #%u attempt %u", i, firing->timer.attempt);
    if (now_us < entry->earliest_us)
        fail(s, "#%u fired %lld us early", i, (long long)(entry->earliest_us - now_us));
    if (entry->life == CANCELLED && !entry->doubtful)
        fail(s, "#%u fired after its cancel was acknowledged", i);
    if (entry->life == REPLACED && !entry->doubtful)
        fail(s, "#%u fired after its replacement was acknowledged", i);
    if (entry->life == ABSENT)
        fail(s, "#%u fired although its creation was refused", i);
    if (entry->done && !repeat_allowed(s, entry))
        fail(s, "#%u fired again, %lld ms after it was settled", i,
             (long long)((mono_ns(s) - entry->done_ns) / 1000000));
    entry->fired++;
}

static void settled(struct sim *s, unsigned i, enum fl_settle result, int64_t at_us)
{
    struct entry *entry = &s->entries[i];
    if (result == FL_DONE && !entry->done) {
        entry->done = true;
        entry->done_ns = mono_ns(s);
    } else if (result == FL_DEAD) {
        entry->dead = true;
    } else if (result == FL_AGAIN) {
        entry->earliest_us = entry->due_us = at_us;
        entry->done = false;
    }
}

static void settle(struct sim *s, fl_engine *engine, uint64_t token, unsigned i)
{
    fl_settlement settlement = {.token = token, .reason = FL_TEXT("bad luck")};
    unsigned luck = (unsigned)below(s, 100);
    if (s->hostile_dispatcher && !s->calm)
        settlement.result = luck < 55 ? FL_DONE : luck < 90 ? FL_FAILED : luck < 96 ? FL_AGAIN : FL_DEAD;
    if (settlement.result == FL_AGAIN)
        settlement.at_us = wall_us(s) + (int64_t)below(s, 30) * SECOND;
    if (fl_engine_settle(engine, &settlement, 1) == 1) {
        say(s, "settles #%u with %d", i, (int)settlement.result);
        settled(s, i, settlement.result, settlement.at_us);
    } else {
        s->disturbed_ns = mono_ns(s);
    }
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    struct sim *s = arg;
    for (size_t n = 0; n < count && !s->failure[0]; n++) {
        uint32_t i;
        memcpy(&i, firings[n].timer.payload.data, sizeof i);
        check_firing(s, i, &firings[n]);
        struct pending *pending = s->hostile_dispatcher && chance(s, 30) ? malloc(sizeof *pending) : NULL;
        if (pending) {
            *pending = (struct pending){firings[n].token, i, engine, s->held};
            s->held = pending;
        } else {
            settle(s, engine, firings[n].token, i);
        }
    }
}

static void settle_some(struct sim *s, bool all)
{
    for (struct pending **link = &s->held, *pending; (pending = *link);) {
        if (!all && chance(s, 60)) {
            link = &pending->next;
            continue;
        }
        *link = pending->next;
        bool alive = pending->engine == s->engines[0] || pending->engine == s->engines[1];
        if (alive)
            settle(s, pending->engine, pending->token, pending->entry);
        free(pending);
    }
}

/* --- The store's faults ------------------------------------------------------------------------------------------- */

static fl_memory_fault fault(void *arg, uint32_t shard, const fl_store_request *request)
{
    struct sim *s = arg;
    fl_memory_fault fault = {0};
    (void)shard;
    if (!s->calm && s->slow && chance(s, 20))
        fault.delay_ns = below(s, chance(s, 10) ? 3000000000 : 20000000);
    if (!s->calm && s->faulty && chance(s, 6)) {
        fault.result = chance(s, 50) ? FL_OUTCOME_UNKNOWN : FL_STORE_UNAVAILABLE;
        fault.applied = fault.result == FL_OUTCOME_UNKNOWN && chance(s, 50);
    }
    if ((request->op == FL_STORE_RECORD || request->op == FL_STORE_FINISH) && fault.result == 0)
        s->recorded_ns = mono_ns(s) - (s->slow ? 15000000000 : 0);
    return fault;
}

/* --- Clients ------------------------------------------------------------------------------------------------------ */

static void answered_create(struct sim *s, struct request *r, struct entry *entry)
{
    int result = r->op.result;
    if (r->replaces && (result == FL_OUTCOME_UNKNOWN || result == 0)) {
        struct entry *old = &s->entries[r->replaces - 1];
        if (result == 0 && old->life != OVER && r->op.outcome != FL_SAME)
            old->life = old->asked > 0 ? old->life : REPLACED;
        if (result < 0)
            old->doubtful = true;
    }
    if (result == 0) {
        if (entry->life == PERHAPS)
            entry->life = LIVING;
        entry->id = r->op.timer.id;
        entry->id_known = true;
    } else if (result == FL_OUTCOME_UNKNOWN) {
        entry->doubtful = true;
    } else if (entry->fired == 0) {
        entry->life = ABSENT;
    }
}

static void answered_other(struct sim *s, struct request *r, struct entry *entry)
{
    int result = r->op.result;
    (void)s;
    if (result == FL_OUTCOME_UNKNOWN) {
        entry->doubtful = true;
    } else if (r->op.kind == FL_OP_CANCEL && result == 0) {
        entry->life = CANCELLED;
    } else if (r->op.kind == FL_OP_UPDATE && result == 0) {
        entry->due_us = r->due_us;
        if (entry->asked == 0)
            entry->earliest_us = r->due_us;
        entry->dead = false;
    } else if (r->op.kind == FL_OP_UPDATE && entry->asked == 0) {
        entry->earliest_us = entry->due_us;
    }
}

static void answered(fl_batch *batch)
{
    struct request *r = batch->arg;
    struct sim *s = r->sim;
    struct entry *entry = &s->entries[r->entry];
    entry->asked--;
    if (entry->named)
        s->name_asked[entry->name]--;
    if (r->replaces)
        s->entries[r->replaces - 1].asked--;
    say(s, "answer to op %d on #%u: %s", (int)r->op.kind, r->entry, fl_errname(r->op.result));
    if (r->op.kind == FL_OP_CREATE)
        answered_create(s, r, entry);
    else
        answered_other(s, r, entry);
    if (r->previous)
        r->previous->next = r->next;
    else
        s->requests = r->next;
    if (r->next)
        r->next->previous = r->previous;
    free(r);
}

static fl_engine *some_engine(struct sim *s)
{
    int i = (int)below(s, ENGINES);
    for (int k = 0; k < ENGINES; k++, i = (i + 1) % ENGINES)
        if (s->engines[i] && !s->stopping[i])
            return s->engines[i];
    return NULL;
}

static void submit(struct sim *s, struct request *r)
{
    fl_engine *engine = some_engine(s);
    if (!engine)
        return;
    r->sim = s;
    r->batch = (fl_batch){.ops = &r->op, .count = 1, .done = answered, .arg = r};
    r->next = s->requests;
    r->previous = NULL;
    if (r->next)
        r->next->previous = r;
    s->requests = r;
    s->entries[r->entry].asked++;
    if (s->entries[r->entry].named)
        s->name_asked[s->entries[r->entry].name]++;
    if (r->replaces)
        s->entries[r->replaces - 1].asked++;
    fl_engine_submit(engine, &r->batch);
}

static int64_t some_delay(struct sim *s)
{
    switch (below(s, 8)) {
    case 0:
        return -(int64_t)below(s, 10 * SECOND);
    case 1:
        return 0;
    case 2:
        return (int64_t)below(s, 3600 * SECOND);
    case 3:
        return (int64_t)below(s, 3 * 86400 * SECOND);
    case 4:
        return 20 * SECOND - wall_us(s) % (10 * SECOND); /* a crowd at one moment */
    default:
        return (int64_t)below(s, 60 * SECOND);
    }
}

static void set_name(struct request *r, unsigned name)
{
    snprintf(r->name, sizeof r->name, "name %u", name);
    r->op.timer.name = (fl_bytes){r->name, strlen(r->name)};
}

static void create(struct sim *s)
{
    if (s->entry_count == ENTRIES)
        return;
    struct request *r = calloc(1, sizeof *r);
    unsigned i = s->entry_count++;
    struct entry *entry = &s->entries[i];
    r->entry = i;
    *entry = (struct entry){.life = PERHAPS, .due_us = wall_us(s) + some_delay(s)};
    entry->earliest_us = entry->due_us;
    r->payload[0] = i;
    r->op = (fl_op){.kind = FL_OP_CREATE,
                    .timer = {.ns = {"space", 5},
                              .due_us = entry->due_us,
                              .payload = {r->payload, chance(s, 50) ? sizeof r->payload : sizeof *r->payload}}};
    if (chance(s, 40)) {
        entry->named = true;
        entry->name = (unsigned)below(s, NAMES);
        set_name(r, entry->name);
        int old = s->name_owner[entry->name];
        /* Who replaces whom is known only if nobody else has asked for that name. */
        if (s->name_asked[entry->name] > 0) {
            for (unsigned k = 0; k < s->entry_count; k++)
                if (s->entries[k].named && s->entries[k].name == entry->name)
                    s->entries[k].doubtful = true;
        } else if (old >= 0) {
            r->replaces = (unsigned)old + 1;
        }
        s->name_owner[entry->name] = (int)i;
    }
    say(s, "create #%u%s due in %.3f s", i, entry->named ? " with a name" : "",
        (double)(entry->due_us - wall_us(s)) / 1e6);
    submit(s, r);
    if (entry->asked == 0) { /* nobody to ask */
        entry->life = ABSENT;
        free(r);
    }
}

static void change(struct sim *s, enum fl_op_kind kind)
{
    if (s->entry_count == 0)
        return;
    unsigned i = (unsigned)below(s, s->entry_count);
    struct entry *entry = &s->entries[i];
    if (!entry->id_known || entry->life != LIVING || entry->asked > 0 || !some_engine(s))
        return;
    struct request *r = calloc(1, sizeof *r);
    r->entry = i;
    r->op = (fl_op){.kind = kind, .timer = {.ns = {"space", 5}, .id = entry->id}};
    if (kind == FL_OP_UPDATE) {
        r->op.flags = FL_OP_SET_DUE;
        r->due_us = r->op.timer.due_us = wall_us(s) + some_delay(s);
        if (r->due_us < entry->earliest_us)
            entry->earliest_us = r->due_us;
    }
    say(s, "op %d on #%u", (int)kind, i);
    submit(s, r);
}

/* --- Disasters ---------------------------------------------------------------------------------------------------- */

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct sim *s = arg;
    (void)engine;
    if (event == FL_ENGINE_TROUBLE)
        s->trouble++;
    if (event == FL_ENGINE_LOST || event == FL_ENGINE_READY)
        s->disturbed_ns = mono_ns(s);
    say(s, "event %d: %s %s", (int)event, fl_errname(result), message);
}

struct stop_note {
    struct sim *sim;
    int index;
};

static void start_engine(struct sim *s, int i, bool force)
{
    static const char *const owners[] = {"one", "two"};
    fl_engine_config config = s->config;
    config.owner = owners[i];
    config.force = force;
    config.seed = draw(s) | 1;
    s->stopping[i] = false;
    s->disturbed_ns = mono_ns(s);
    say(s, "engine %d starts%s", i, force ? " by force" : "");
    if (fl_engine_start(&config, &s->engines[i]) < 0)
        fail(s, "an engine does not start");
}

static void stopped(fl_loop *loop, void *arg)
{
    struct stop_note *note = arg;
    (void)loop;
    say(note->sim, "engine %d is gone", note->index);
    note->sim->engines[note->index] = NULL;
    note->sim->disturbed_ns = mono_ns(note->sim);
    free(note);
}

static void stop_engine(struct sim *s, int i, bool now)
{
    if (!s->engines[i] || s->stopping[i])
        return;
    struct stop_note *note = malloc(sizeof *note);
    *note = (struct stop_note){s, i};
    s->stopping[i] = true;
    s->disturbed_ns = mono_ns(s);
    say(s, "engine %d %s", i, now ? "crashes" : "stops");
    fl_engine_stop(s->engines[i], now, stopped, note);
}

static void step_clock(struct sim *s)
{
    int64_t step = ((int64_t)below(s, 2000) - 1000) * (chance(s, 30) ? 3600 : 1) * SECOND / 10;
    say(s, "the clock steps by %.1f s", (double)step / 1e6);
    if (wall_us(s) + step < START_US - 86400 * SECOND * 30)
        return;
    s->offset_us += step;
    for (int i = 0; i < ENGINES; i++)
        if (s->engines[i] && !s->stopping[i])
            fl_engine_clock_changed(s->engines[i]);
}

static void disaster(struct sim *s)
{
    unsigned kind = (unsigned)below(s, 4);
    if (kind == 0 && s->crashes)
        stop_engine(s, (int)below(s, ENGINES), chance(s, 80));
    else if (kind == 1 && s->steps)
        step_clock(s);
    else if (kind == 2 && s->thieves && !s->engines[1])
        start_engine(s, 1, true);
    else if (!s->engines[0])
        start_engine(s, 0, chance(s, 50));
}

/* --- A life ------------------------------------------------------------------------------------------------------- */

static void check_engines(struct sim *s)
{
    for (int i = 0; i < ENGINES; i++) {
        fl_engine_stats stats;
        if (!s->engines[i] || s->stopping[i])
            continue;
        if (fl_engine_check(s->engines[i], s->trace) < 0)
            fail(s, "engine %d is not sound", i);
        fl_engine_get_stats(s->engines[i], &stats);
        if (stats.loaded > s->config.max_memory_timers + 64)
            fail(s, "engine %d holds %llu timers", i, (unsigned long long)stats.loaded);
    }
}

static void act(fl_loop *loop, void *arg)
{
    struct sim *s = arg;
    unsigned luck = (unsigned)below(s, 100);
    if (luck < 55)
        for (uint64_t n = chance(s, 10) ? below(s, 30) : 1; n > 0; n--)
            create(s);
    else if (luck < 70)
        change(s, FL_OP_UPDATE);
    else if (luck < 80)
        change(s, FL_OP_CANCEL);
    else if (luck < 85)
        change(s, FL_OP_GET);
    else if (luck < 93)
        settle_some(s, false);
    else
        disaster(s);
    check_engines(s);
    if (--s->actions == 0) {
        fl_loop_stop(loop);
        return;
    }
    uint64_t pause_us = chance(s, 5) ? below(s, 40 * SECOND) : chance(s, 50) ? below(s, 2 * SECOND) : below(s, 5000);
    if (fl_loop_timer(loop, pause_us * 1000, act, s, NULL) < 0)
        fail(s, "no memory");
}

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void run_for(struct sim *s, int64_t us)
{
    if (s->failure[0])
        return;
    fl_loop_timer(s->loop, (uint64_t)us * 1000, stop_loop, NULL, NULL);
    fl_loop_run(s->loop);
}

static bool unfinished(const struct sim *s)
{
    for (unsigned i = 0; i < s->entry_count; i++) {
        const struct entry *entry = &s->entries[i];
        if (entry->life == LIVING && !entry->doubtful && !entry->done && !entry->dead)
            return true;
    }
    return false;
}

/* No more faults: whatever was promised must come. */
static void live_on(struct sim *s)
{
    s->calm = true;
    run_for(s, 20 * SECOND);
    if (!s->engines[0])
        start_engine(s, 0, true);
    stop_engine(s, 1, false);
    for (int i = 0; i < 400 && !s->failure[0] && (unfinished(s) || s->requests); i++) {
        settle_some(s, true);
        run_for(s, i < 60 ? 20 * SECOND : 3600 * SECOND);
        check_engines(s);
        if (!s->engines[0] || s->stopping[0])
            fail(s, "the last engine has gone");
    }
    if (s->requests)
        fail(s, "an operation was never answered");
    for (unsigned i = 0; i < s->entry_count; i++) {
        const struct entry *entry = &s->entries[i];
        if (entry->life == LIVING && !entry->doubtful && !entry->done && !entry->dead)
            fail(s, "#%u was acknowledged and did not fire", i);
    }
}

static void choose(struct sim *s)
{
    s->faulty = chance(s, 60);
    s->slow = chance(s, 60);
    s->hostile_dispatcher = chance(s, 60);
    s->crashes = chance(s, 60);
    s->steps = chance(s, 40);
    s->thieves = chance(s, 40);
    s->config = (fl_engine_config){
        .loop = s->loop,
        .store = s->store,
        .dispatch = dispatch,
        .notify = notify,
        .arg = s,
        .clock = &s->wall,
        .strategy = chance(s, 30) ? FL_LOOKAHEAD : FL_PRELOAD,
        .max_memory_timers = chance(s, 50) ? 16 + below(s, 60) : 100000,
        .max_in_flight = chance(s, 50) ? 1 + (uint32_t)below(s, 20) : 0,
        .dispatch_batch = chance(s, 50) ? 1 + (uint32_t)below(s, 20) : 0,
        .delete_interval_us = chance(s, 50) ? (uint64_t)SECOND : 0,
        .preload_us = chance(s, 50) ? 1000 + below(s, 10 * SECOND) : 0,
        .delete_batch = 1 + (uint32_t)below(s, 20),
        .retry = {.max_attempts = 1 + (uint32_t)below(s, 5),
                  .multiplier_1000 = 2000,
                  .initial_us = 1 + below(s, SECOND),
                  .max_interval_us = 5 * SECOND},
    };
    s->actions = 50 + (unsigned)below(s, 250);
}

static int set_up(struct sim *s)
{
    char message[256];
    s->wall.now_us = wall_now;
    s->offset_us = START_US;
    s->random = s->seed * 0x9e3779b97f4a7c15 + 0x1234567;
    if (s->random == 0)
        s->random = 1;
    for (int i = 0; i < 8; i++)
        draw(s);
    for (int i = 0; i < NAMES; i++)
        s->name_owner[i] = -1;
    fl_virtual_clock_init(&s->time, 1000);
    if (fl_loop_new(&(fl_loop_config){.clock = &s->time.clock}, &s->loop) < 0)
        return -1;
    fl_store_config store = {.shards = 1, .clock = &s->wall};
    return fl_store_open("memory:", &store, &s->store, message, sizeof message);
}

static void tear_down(struct sim *s)
{
    s->calm = true;
    char kept[sizeof s->failure];
    memcpy(kept, s->failure, sizeof kept);
    s->failure[0] = 0;
    for (int i = 0; i < ENGINES; i++)
        stop_engine(s, i, true);
    for (int i = 0; i < 100 && (s->engines[0] || s->engines[1]); i++)
        run_for(s, SECOND);
    if (s->engines[0] || s->engines[1])
        snprintf(kept, sizeof kept, "an engine does not stop");
    memcpy(s->failure, kept, sizeof kept);
    while (s->held) {
        struct pending *next = s->held->next;
        free(s->held);
        s->held = next;
    }
    fl_store_close(s->store);
    fl_loop_free(s->loop);
}

bool sim_run(uint64_t seed, FILE *trace, char failure[512])
{
    struct sim *s = calloc(1, sizeof *s);
    s->seed = seed;
    s->trace = trace;
    if (set_up(s) < 0)
        abort();
    choose(s);
    fl_memory_store_faults(s->store, fault, s);
    start_engine(s, 0, false);
    fl_loop_timer(s->loop, 1000, act, s, NULL);
    fl_loop_run(s->loop);
    live_on(s);
    tear_down(s);
    bool good = s->failure[0] == 0;
    memcpy(failure, s->failure, sizeof s->failure);
    free(s);
    return good;
}
