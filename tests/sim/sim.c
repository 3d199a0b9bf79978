/* SPDX-License-Identifier: MIT */
/* A simulated life: see sim.h. Here are time, the store's faults, disasters and the order of events; clients are in
 * clients.c, what fires in target.c, what was promised in ledger.c. */

#include "sim/world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- Time --------------------------------------------------------------------------------------------------------- */

int64_t sim_mono_ns(struct sim *s)
{
    return (int64_t)s->time.clock.now_ns(&s->time.clock);
}

int64_t sim_wall_us(struct sim *s)
{
    return s->offset_us + sim_mono_ns(s) / 1000;
}

int64_t sim_clock_us(struct sim *s, const struct actor *actor)
{
    return actor->server ? fleet_clock_us(actor->server) : sim_wall_us(s);
}

static int64_t wall_now(fl_wall_clock *clock)
{
    return sim_wall_us((struct sim *)((char *)clock - offsetof(struct sim, wall)));
}

void sim_say(struct sim *s, const char *format, ...)
{
    if (!s->trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(s->trace, "%15.6f %15.6f  ", (double)sim_mono_ns(s) / 1e9, (double)(sim_wall_us(s) - START_US) / 1e6);
    vfprintf(s->trace, format, arguments);
    fputc('\n', s->trace);
    va_end(arguments);
}

static void failed(void *arg)
{
    struct sim *s = arg;
    sim_say(s, "FAILED: %s", s->ledger.failure);
    fl_loop_stop(s->loop);
}

/* --- The store's faults ------------------------------------------------------------------------------------------- */

static uint64_t some_delay_ns(struct sim *s)
{
    if (s->calm || !s->nature.slow || !chance(&s->luck, 20))
        return 0;
    return below(&s->luck, chance(&s->luck, 10) ? 6000000000 : 30000000);
}

static uint64_t on_the_way_ns(void *arg, unsigned actor, const fl_store_request *request)
{
    (void)actor, (void)request;
    return some_delay_ns(arg);
}

static uint64_t on_the_way_back_ns(void *arg, unsigned actor, const fl_store_request *request)
{
    struct sim *s = arg;
    (void)actor, (void)request;
    if (s->calm || !s->nature.slow || !chance(&s->luck, 5))
        return 0;
    return below(&s->luck, 500000000);
}

static uint64_t sent(void *arg, unsigned actor, const fl_store_request *request)
{
    struct sim *s = arg;
    (void)actor, (void)request;
    return ++s->ledger.tick;
}

static bool takes_front_back(const fl_store_request *request)
{
    if (request->op != FL_STORE_FINISH)
        return false;
    for (int kind = 0; kind < 2; kind++) {
        fl_key settled = request->finish.settled.front[kind], record = request->finish.record.front[kind];
        if (record.at_us < settled.at_us || (record.at_us == settled.at_us && record.seq < settled.seq))
            return true;
    }
    return false;
}

/* An owner begins by this clock: what is too old for it may be left out. */
static void allow_skipping(struct sim *s, int64_t now_us)
{
    for (uint32_t i = 0; i < s->ledger.stage_count; i++) {
        struct stage *stage = &s->ledger.stages[i];
        bool odd = s->ledger.slots[stage->slot].name % 2 && s->skip_odd_us != UINT64_MAX;
        uint64_t skip_us = odd ? s->skip_odd_us : s->config.skip_older_us;
        if (skip_us > 0 && stage->due_us < now_us + 60 * SECOND - (int64_t)skip_us)
            stage->may_skip = true;
    }
}

/* A claim makes an owner, and it is known here who. */
static void claimed(struct sim *s, uint32_t shard, unsigned actor)
{
    struct actor *before = sim_actor(s, s->ledger.tenures[shard].owner);
    const struct actor *now = sim_actor(s, actor);
    if (before && before->server && now && now != before)
        before->usurped = fleet_same_address(before->server, now->server);
    sim_say(s, "engine %u owns shard %u", actor, shard);
    ledger_claim(&s->ledger, shard, actor, sim_mono_ns(s));
    allow_skipping(s, sim_wall_us(s));
    s->beginning = true;
}

fl_memory_fault sim_fault(void *arg, uint32_t shard, const fl_store_request *request)
{
    struct sim *s = arg;
    fl_memory_fault fault = {0};
    uint64_t sent_tick;
    unsigned actor = road_sender(s->road, request, &sent_tick);
    bool certain = request->op == FL_STORE_CLAIM && !request->claim.force; /* its outcome is known by its answer only */
    if (!certain)
        fault.delay_ns = some_delay_ns(s);
    if (!s->calm && s->nature.faulty && chance(&s->luck, 5)) {
        fault.result = chance(&s->luck, 50) ? FL_OUTCOME_UNKNOWN : FL_STORE_UNAVAILABLE;
        fault.applied = fault.result == FL_OUTCOME_UNKNOWN && !certain && chance(&s->luck, 50);
        sim_say(s, "engine %u: request %d %s", actor, (int)request->op,
                fault.applied                        ? "takes effect, but nobody knows"
                : fault.result == FL_OUTCOME_UNKNOWN ? "is lost, and nobody knows"
                                                     : "is refused");
    }
    if (fault.result != 0 && !fault.applied)
        return fault;
    if (request->op == FL_STORE_CLAIM && request->claim.force)
        claimed(s, shard, actor);
    if ((request->op == FL_STORE_RECORD || request->op == FL_STORE_FINISH) && actor == s->ledger.tenures[shard].owner &&
        !takes_front_back(request))
        ledger_record(&s->ledger, shard, sent_tick,
                      request->op == FL_STORE_RECORD ? &request->record.progress : &request->finish.record);
    return fault;
}

static void store_answered(void *arg, unsigned actor, uint32_t shard, const fl_store_request *request)
{
    struct sim *s = arg;
    if (request->op == FL_STORE_CLAIM && !request->claim.force && request->result == 0)
        claimed(s, shard, actor);
}

/* --- Engines ------------------------------------------------------------------------------------------------------ */

struct actor *sim_actor(struct sim *s, unsigned number)
{
    for (int i = 0; i < ACTORS; i++)
        if (s->actors[i].engine && s->actors[i].number == number)
            return &s->actors[i];
    return NULL;
}

static bool useful(const struct actor *actor)
{
    return actor->engine && !actor->stopping;
}

struct actor *sim_some_actor(struct sim *s)
{
    struct actor *first = &s->actors[below(&s->luck, ENGINES)], *second = &s->actors[first == s->actors];
    return useful(first) ? first : useful(second) ? second : NULL;
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    struct sim *s = arg;
    for (int i = 0; i < ENGINES; i++)
        if (s->actors[i].engine == engine) {
            s->actors[i].lost |= event == FL_ENGINE_LOST;
            s->beginning &= event != FL_ENGINE_READY || s->actors[i].number != s->ledger.tenures[0].owner;
            sim_say(s, "engine %u: event %d, %s: %s", s->actors[i].number, (int)event, fl_errname(result), message);
        }
}

static void start_engine(struct sim *s, struct actor *actor, bool force)
{
    char owner[32];
    fl_engine_config config = s->config;
    unsigned number = ++s->actor_count;
    snprintf(owner, sizeof owner, "engine %u", number);
    config.owner = owner;
    config.force = force;
    config.seed = draw(&s->luck) | 1;
    *actor = (struct actor){.number = number};
    road_actor(s->road, number);
    sim_say(s, "engine %u starts%s", number, force ? " by force" : "");
    if (fl_engine_start(&config, &actor->engine) < 0 ||
        fl_engine_skip_older(actor->engine, (fl_bytes)FL_TEXT("odd"), s->skip_odd_us) < 0 ||
        fl_engine_skip_older(actor->engine, (fl_bytes)FL_TEXT("tick"), 0) < 0 ||
        fl_engine_skip_older(actor->engine, (fl_bytes)FL_TEXT("beat"), 0) < 0)
        ledger_fail(&s->ledger, "an engine does not start");
}

struct stop_note {
    struct sim *sim;
    struct actor *actor;
};

static void stopped(fl_loop *loop, void *arg)
{
    struct stop_note *note = arg;
    (void)loop;
    sim_say(note->sim, "engine %u is gone", note->actor->number);
    *note->actor = (struct actor){0};
    free(note);
}

static void stop_engine(struct sim *s, struct actor *actor, bool now)
{
    if (!useful(actor))
        return;
    struct stop_note *note = malloc(sizeof *note);
    if (!note)
        abort();
    *note = (struct stop_note){s, actor};
    actor->stopping = true;
    actor->crashed = now;
    sim_say(s, "engine %u %s", actor->number, now ? "crashes" : "stops");
    if (now)
        road_cut(s->road, actor->number);
    fl_engine_stop(actor->engine, now, stopped, note);
}

void sim_check_engines(struct sim *s)
{
    for (int i = 0; i < ACTORS; i++) {
        fl_engine_stats stats;
        if (!useful(&s->actors[i]))
            continue;
        if (fl_engine_check(s->actors[i].engine, s->trace) < 0)
            ledger_fail(&s->ledger, "engine %u is not sound", s->actors[i].number);
        fl_engine_get_stats(s->actors[i].engine, &stats);
        if (stats.loaded > s->config.max_memory_timers + s->config.max_in_flight + s->config.max_waiting + 64)
            ledger_fail(&s->ledger, "engine %u holds %llu timers", s->actors[i].number,
                        (unsigned long long)stats.loaded);
    }
}

/* --- Disasters ---------------------------------------------------------------------------------------------------- */

static void set_clock(struct sim *s, int64_t step_us)
{
    if (sim_wall_us(s) + step_us < START_US - 30 * 86400 * SECOND)
        return;
    sim_say(s, "the clock is set, by %.6f s", (double)step_us / 1e6);
    ledger_set_clock(&s->ledger, sim_wall_us(s), sim_wall_us(s) + step_us);
    s->offset_us += step_us;
    clients_clock_set(s);
    if (s->beginning)
        allow_skipping(s, sim_wall_us(s));
    for (int i = 0; i < ENGINES; i++)
        if (useful(&s->actors[i]))
            fl_engine_clock_changed(s->actors[i].engine);
}

/* Some mistakes are seen soon. */
static void step_clock(struct sim *s)
{
    int64_t reach = chance(&s->luck, 20) ? 3 * SECOND : chance(&s->luck, 70) ? 100 * SECOND : 86400 * SECOND;
    int64_t step_us = (int64_t)below(&s->luck, (uint64_t)reach * 2) - reach;
    set_clock(s, step_us);
    if (!chance(&s->luck, 30))
        return;
    clients_act(s);
    set_clock(s, (int64_t)below(&s->luck, 10000) - step_us);
}

/* The store goes back to what it had at the last mark; or a mark is set. */
void sim_go_back(struct sim *s)
{
    bool mark = s->ledger.marked == 0 || chance(&s->luck, 40);
    sim_say(s, mark ? "the store is marked" : "the store goes back to the mark");
    if ((mark ? fl_memory_store_mark(s->store) : fl_memory_store_go_back(s->store)) < 0)
        abort();
    if (mark)
        ledger_mark(&s->ledger);
    else
        ledger_go_back(&s->ledger);
    if (!mark)
        tickers_go_back(s);
}

static void disaster(struct sim *s)
{
    if (s->nature.goes_back && chance(&s->luck, 30)) {
        sim_go_back(s);
        return;
    }
    unsigned kind = (unsigned)below(&s->luck, 4);
    struct actor *actor = &s->actors[below(&s->luck, ENGINES)];
    if (actor->lost)
        stop_engine(s, actor, chance(&s->luck, 50));
    else if (kind == 0 && s->nature.crashes)
        stop_engine(s, actor, chance(&s->luck, 75));
    else if (kind == 1 && s->nature.steps)
        step_clock(s);
    else if (kind == 2 && s->nature.thieves && !actor->engine)
        start_engine(s, actor, chance(&s->luck, 70));
    else if (!s->actors[0].engine && !s->actors[1].engine)
        start_engine(s, actor, chance(&s->luck, 50));
}

/* --- A life ------------------------------------------------------------------------------------------------------- */

static void act(fl_loop *loop, void *arg)
{
    struct sim *s = arg;
    struct luck *luck = &s->luck;
    unsigned what = (unsigned)below(luck, 100);
    if (s->calm)
        return;
    if (what < 80)
        clients_act(s);
    else if (what < 90)
        target_settle(s, NULL, 40);
    else
        disaster(s);
    tickers_act(s);
    if (s->nature.wait_percent > 0 && what % 10 == 0)
        target_close(s, sim_some_actor(s));
    sim_check_engines(s);
    if (--s->actions == 0) {
        fl_loop_stop(loop);
        return;
    }
    uint64_t pause_us = chance(luck, 5) ? below(luck, 40 * SECOND) : below(luck, chance(luck, 50) ? 2 * SECOND : 5000);
    if (fl_loop_timer(loop, pause_us * 1000, act, s, NULL) < 0)
        abort();
}

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void run_for(struct sim *s, int64_t us)
{
    if (s->ledger.failure[0])
        return;
    if (fl_loop_timer(s->loop, (uint64_t)us * 1000, stop_loop, NULL, NULL) < 0)
        abort();
    fl_loop_run(s->loop);
}

/* Time goes on, by leaps where nothing happens, until all that was promised has come, or should have. */
static void live_on(struct sim *s)
{
    int64_t due_us;
    for (int i = 0; i < 2000 && !s->ledger.failure[0] && (due_us = ledger_next_due(&s->ledger)) > 0; i++) {
        int64_t leap_us = due_us - sim_wall_us(s);
        if (leap_us > 600 * SECOND)
            set_clock(s, leap_us - 300 * SECOND);
        target_settle(s, NULL, 100);
        run_for(s, leap_us > 0 && leap_us < 20 * SECOND ? leap_us + SECOND : 20 * SECOND);
        sim_check_engines(s);
    }
}

static void find_peace(struct sim *s)
{
    s->calm = true;
    struct actor *last = useful(&s->actors[0]) ? &s->actors[0] : &s->actors[1];
    for (int i = 0; i < ENGINES; i++)
        if (&s->actors[i] != last || last->lost)
            stop_engine(s, &s->actors[i], false);
    run_for(s, 30 * SECOND);
    last = &s->actors[!useful(&s->actors[0])];
    if (s->ledger.failure[0])
        return;
    if (!useful(last) || last->lost || last->number != s->ledger.tenures[0].owner) {
        stop_engine(s, last, true);
        run_for(s, 30 * SECOND);
        start_engine(s, &s->actors[0], true);
    }
    target_open(s, sim_some_actor(s));
    run_for(s, 30 * SECOND);
}

/* --- How many there are ------------------------------------------------------------------------------------------- */

struct census {
    fl_listing listing;
    fl_engine *engine;
    size_t count;
    bool over;
};

static void counted(fl_listing *listing)
{
    struct census *census = listing->arg;
    census->count += listing->count;
    census->over = listing->result == 0 && !listing->more;
    if (listing->more)
        fl_engine_list(census->engine, listing);
}

static uint64_t events(const fl_engine_stats *stats)
{
    return stats->dispatched + stats->fired + stats->again + stats->retried + stats->later + stats->dead +
           stats->skipped + stats->parked + stats->unparked;
}

/* Whatever has happened, an engine knows how many it has. */
static void check_pending(struct sim *s)
{
    const struct actor *actor = sim_some_actor(s);
    fl_engine_stats before, after;
    if (s->ledger.failure[0] || !actor)
        return;
    static struct census census; /* it may end after this */
    census = (struct census){.listing = {.done = counted, .arg = &census}, .engine = actor->engine};
    fl_engine_get_stats(actor->engine, &before);
    fl_engine_list(actor->engine, &census.listing);
    for (int i = 0; i < 100 && !census.over; i++)
        run_for(s, SECOND / 100);
    fl_engine_get_stats(actor->engine, &after);
    if (census.over && events(&before) == events(&after) && census.count != after.pending)
        ledger_fail(&s->ledger, "engine %u says that %llu are pending, and there are %zu", actor->number,
                    (unsigned long long)after.pending, census.count);
}

/* Those that have fired go on, and what they create fires. */
static void end_tickers(struct sim *s)
{
    for (int i = 0; i < 3 && s->tickers && !s->ledger.failure[0]; i++) {
        if (tickers_latest_us(s) > sim_wall_us(s)) /* by a clock that was set back since */
            set_clock(s, tickers_latest_us(s) - sim_wall_us(s));
        tickers_act(s);
        run_for(s, 20 * SECOND);
    }
}

static void end_well(struct sim *s)
{
    find_peace(s);
    check_pending(s);
    clients_list(s, sim_some_actor(s), false);
    end_tickers(s);
    live_on(s);
    clients_list(s, sim_some_actor(s), true);
    if (!s->ledger.failure[0])
        tickers_end(s);
    run_for(s, 10 * SECOND);
    if (s->ledger.failure[0])
        return;
    tickers_close(s);
    if (clients_wait(s))
        ledger_fail(&s->ledger, "an operation was never answered");
    ledger_close(&s->ledger, sim_wall_us(s));
    if (ledger_next_due(&s->ledger) > 0)
        ledger_fail(&s->ledger, "time does not come to an end");
}

/* What is taken from the seed itself came later than the seeds that the tests remember. */
static void choose_nature(struct sim *s, uint64_t seed)
{
    struct luck *luck = &s->luck;
    s->nature = (struct nature){.goes_back = seed / 4 % 5 == 1,
                                .faulty = chance(luck, 50),
                                .slow = chance(luck, 50),
                                .hostile = chance(luck, 60),
                                .thieves = chance(luck, 40),
                                .crashes = chance(luck, 60),
                                .steps = chance(luck, 35),
                                .far = chance(luck, 30),
                                .hold_percent = chance(luck, 20) ? 95 : 30};
    s->actions = 50 + (unsigned)below(luck, 300);
    struct luck own; /* so that the rest of a life does not depend on it */
    luck_begin(&own, luck->state);
    s->nature.wait_percent = chance(&own, 40) ? 0 : chance(&own, 50) ? 90 : 30;
    s->waiting_most = 1 + (uint32_t)below(&own, chance(&own, 70) ? 8 : 200);
}

/* What is taken from the seed itself came later than the seeds that the tests remember. */
static void choose_config(struct sim *s, uint64_t seed)
{
    struct luck *luck = &s->luck;
    s->config = (fl_engine_config){
        .loop = s->loop,
        .store = road_store(s->road),
        .dispatch = target_dispatch,
        .withdraw = target_withdraw,
        .max_waiting = s->waiting_most,
        .notify = notify,
        .arg = s,
        .clock = &s->wall,
        .strategy = chance(luck, 35) ? FL_LOOKAHEAD : FL_PRELOAD,
        .claim_us = (uint64_t)SECOND + below(luck, 9 * SECOND),
        .record_interval_us = chance(luck, 50) ? 10000 + below(luck, 10 * SECOND) : SECOND,
        .max_memory_timers = chance(luck, 50) ? 16 + below(luck, 60) : 100000,
        .max_memory_bytes = seed % 3 == 0 ? 1000 + seed / 3 % 10000 : 0,
        .max_in_flight = chance(luck, 50) ? 1 + (uint32_t)below(luck, 20) : 1000,
        .dispatch_batch = chance(luck, 50) ? 1 + (uint32_t)below(luck, 20) : 0,
        .delete_interval_us = chance(luck, 50) ? (uint64_t)SECOND : 0,
        .preload_us = chance(luck, 50)   ? 1000 + below(luck, 10 * SECOND)
                      : chance(luck, 10) ? 3600 * SECOND
                                         : 0,
        .lookahead_us = chance(luck, 50) ? 1000 + below(luck, 5 * SECOND) : 0,
        .load_interval_us = (uint64_t)SECOND + below(luck, 29 * SECOND),
        .load_batch = chance(luck, 50) ? 1 + (uint32_t)below(luck, 20) : 0,
        .delete_batch = 1 + (uint32_t)below(luck, 20),
        .catch_up_rate = chance(luck, 15) ? 1 + below(luck, 50) : 0,
        .skip_older_us = chance(luck, 10) ? below(luck, 100 * SECOND) : 0,
        .retry = {.max_attempts = 1 + (uint32_t)below(luck, 5),
                  .multiplier_1000 = 1000 + (uint32_t)below(luck, 2000),
                  .initial_us = 1 + below(luck, SECOND),
                  .max_interval_us = 5 * SECOND,
                  .max_age_us = chance(luck, 10) ? 1 + below(luck, 30 * SECOND) : 0},
    };
    s->skip_odd_us = chance(luck, 10) ? below(luck, 2) * below(luck, 100 * SECOND) : UINT64_MAX;
    s->policies = chance(luck, 40) ? draw(luck) | 1 : 0;
}

static uint32_t shard_of(const struct sim *s, unsigned name)
{
    char text[16];
    snprintf(text, sizeof text, "name %u", name);
    fl_bytes ns = name % 2 ? (fl_bytes){"odd", 3} : (fl_bytes){"even", 4};
    return fl_store_shard_of(s->shards, ns, (fl_bytes){text, strlen(text)});
}

static void set_up(struct sim *s, uint64_t seed, bool fleet)
{
    char message[256];
    luck_begin(&s->luck, seed);
    s->wall.now_us = wall_now;
    s->offset_us = START_US;
    s->ledger.failed = failed;
    s->ledger.arg = s;
    s->shards = fleet ? 1 + (uint32_t)below(&s->luck, SHARDS_MOST) : 1;
    for (unsigned i = 0; i < NAMES; i++)
        s->name_slots[i] = ledger_slot(&s->ledger, shard_of(s, i), true, i);
    fl_virtual_clock_init(&s->time, 1000);
    fl_store_config store = {.shards = s->shards, .clock = &s->wall};
    struct road_watch watch = {on_the_way_ns, on_the_way_back_ns, sent, store_answered, s};
    if (fl_loop_new(&(fl_loop_config){.clock = &s->time.clock}, &s->loop) < 0 ||
        fl_store_open("memory:", &store, &s->store, message, sizeof message) < 0 ||
        !(s->road = road_new(s->store, &watch)) || fl_memory_store_faults(s->store, sim_fault, s) < 0)
        abort();
    choose_nature(s, seed);
    choose_config(s, seed);
    if (!fleet && (seed % 7 == 4 || seed % 7 == 5)) {
        tickers_begin(s, seed);
        s->config.history_bytes = seed % 2 ? 20000 : 0;
    }
}

/* False: it does not come to an end. */
static bool tear_down(struct sim *s, char failure[512])
{
    s->calm = true;
    memcpy(failure, s->ledger.failure, sizeof s->ledger.failure);
    s->ledger.failure[0] = 0;
    for (int i = 0; i < ENGINES; i++)
        stop_engine(s, &s->actors[i], true);
    for (int i = 0; i < 100 && (s->actors[0].engine || s->actors[1].engine); i++) {
        run_for(s, SECOND);
        s->ledger.failure[0] = 0;
    }
    if (s->actors[0].engine || s->actors[1].engine) {
        snprintf(failure, sizeof s->ledger.failure, "an engine does not stop");
        return false;
    }
    return true;
}

/* One shard, and engines that fight for it. */
static bool live(struct sim *s, char failure[512])
{
    start_engine(s, &s->actors[0], false);
    if (fl_loop_timer(s->loop, 1000, act, s, NULL) < 0)
        abort();
    fl_loop_run(s->loop);
    end_well(s);
    return tear_down(s, failure);
}

bool sim_run(uint64_t seed, FILE *trace, char failure[512])
{
    struct sim *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->trace = trace;
    bool fleet = seed % 4 == 3;
    set_up(s, seed, fleet);
    if (!(fleet ? fleet_live(s, failure) : live(s, failure)))
        return false; /* and leaks */
    target_forget(s);
    tickers_forget(s);
    road_free(s->road);
    fl_store_close(s->store);
    fl_loop_free(s->loop);
    free(s);
    return failure[0] == 0;
}
