/* SPDX-License-Identifier: MIT */
/* A timer that creates timers, batches that are all or nothing, and changes of what was read. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "test.h"

enum { TICKS_MOST = 64 };

/* A ticker: whenever it fires, it creates so many timers, and goes on a second later. Its payload is how many it has made. */
static struct ticker {
    fl_batch batch;
    fl_op ops[1 + TICKS_MOST];
    char payload[16], payloads[TICKS_MOST][16];
    unsigned made, at_once, fired, ended, limit;
    int64_t delay_us; /* of what it creates */
    bool under_way, composes;
    int result;
    fl_key last_id;
    void (*meanwhile)(void); /* between its firing and its settlement */
} ticker;

static void composed(fl_batch *batch)
{
    const fl_op *last = &batch->ops[batch->count - 1];
    snprintf(ticker.payload, sizeof ticker.payload, "%u/%zu", ticker.made, (size_t)(last->timer.id.seq % 1000000));
    batch->ops[0].timer.payload = text(ticker.payload);
}

static void advanced(fl_batch *batch)
{
    ticker.under_way = false;
    ticker.ended++;
    ticker.result = batch->ops[0].result;
    for (size_t i = 1; i < batch->count; i++)
        CHECK_EQ(batch->ops[i].result, ticker.result);
    if (ticker.result == 0 && batch->count > 1)
        ticker.last_id = batch->ops[batch->count - 1].timer.id;
}

static fl_settlement advance(const fl_firing *firing)
{
    int64_t now_us = wall_now(&bed.wall.clock);
    unsigned from = (unsigned)strtoul(firing->timer.payload.data, NULL, 10); /* it ends with a zero: see tick() */
    CHECK(!ticker.under_way);
    ticker.under_way = true;
    ticker.made = from + ticker.at_once;
    snprintf(ticker.payload, sizeof ticker.payload, "%u", ticker.made);
    int64_t next_us = ticker.made < ticker.limit ? now_us + SECOND : FL_TIME_NEVER_US;
    ticker.ops[0] = (fl_op){.kind = FL_OP_UPDATE,
                            .flags = FL_OP_SET_DUE | FL_OP_SET_PAYLOAD,
                            .timer = {.due_us = next_us, .payload = {ticker.payload, strlen(ticker.payload) + 1}}};
    for (unsigned i = 0; i < ticker.at_once; i++) {
        snprintf(ticker.payloads[i], sizeof *ticker.payloads, "%u", from + i);
        ticker.ops[1 + i] = (fl_op){.kind = FL_OP_CREATE,
                                    .timer = {.ns = text("ns"),
                                              .due_us = now_us + ticker.delay_us,
                                              .payload = text(ticker.payloads[i]),
                                              .schedule = text("ticker"),
                                              .occurrence_us = firing->timer.due_us,
                                              .next_us = next_us}};
    }
    ticker.batch = (fl_batch){
        .ops = ticker.ops, .count = 1 + ticker.at_once, .done = advanced, .compose = ticker.composes ? composed : NULL};
    return (fl_settlement){.token = firing->token, .result = FL_ADVANCE, .batch = &ticker.batch};
}

/* Everything but the ticker is noted, and done. */
static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        const fl_durable *timer = &firings[i].timer;
        fl_settlement settlement = {.token = firings[i].token};
        if (timer->name.size == 6) {
            ticker.fired++;
            settlement = advance(&firings[i]);
            if (ticker.meanwhile) {
                bed.tokens[0] = settlement.token;
                ticker.meanwhile();
                continue;
            }
        } else {
            struct fired *fired = &bed.fired[bed.fired_count++];
            *fired = (struct fired){.at_us = wall_now(&bed.wall.clock), .attempt = timer->attempt};
            memcpy(fired->payload, timer->payload.data, timer->payload.size);
        }
        CHECK_EQ(fl_engine_settle(engine, &settlement, 1), 1);
    }
}

static fl_op tick(unsigned at_once, unsigned limit)
{
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = text("ticks"),
                          .name = text("ticker"),
                          .due_us = wall_now(&bed.wall.clock) + SECOND,
                          .payload = {"0", 2}}};
    ticker = (struct ticker){.at_once = at_once, .limit = limit};
    op = run_op(op);
    CHECK_EQ(op.result, 0);
    return op;
}

/* Each of the numbers has come once, in order. */
static void check_fired(unsigned count)
{
    CHECK_EQ(bed.fired_count, count);
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(strtoul(bed.fired[i].payload, NULL, 10), i);
}

static uint64_t pending(void)
{
    fl_engine_stats stats;
    fl_engine_get_stats(bed.engine, &stats);
    return stats.pending;
}

static fl_op get_ticker(void)
{
    return run_op((fl_op){.kind = FL_OP_GET, .timer = {.ns = text("ticks"), .name = text("ticker")}});
}

TEST(a_timer_creates_timers_and_goes_on)
{
    set_up((fl_engine_config){.dispatch = dispatch});
    fl_op made = tick(3, 30);
    run_for(5 * SECOND + SECOND / 2);
    CHECK_EQ(ticker.fired, 5);
    CHECK_EQ(ticker.ended, 5);
    CHECK_EQ(ticker.result, 0);
    check_fired(15);
    fl_op there = get_ticker();
    CHECK_EQ(there.result, 0);
    CHECK_EQ(there.timer.id.seq, made.timer.id.seq);
    CHECK_EQ(there.timer.attempt, 0);
    CHECK_EQ(there.timer.due_us, made.timer.due_us + 5 * SECOND);
    CHECK(there.timer.revision != made.timer.revision);
    CHECK_EQ(there.timer.created_us, made.timer.created_us);
    CHECK_EQ(pending(), 1);
    run_for(60 * SECOND);
    check_fired(30);
    CHECK_EQ(get_ticker().timer.due_us, FL_TIME_NEVER_US);
    int64_t next_us;
    while (!fl_engine_idle(bed.engine, &next_us))
        run_for(SECOND);
    CHECK_EQ(next_us, INT64_MAX); /* what never fires is nothing to wait for */
    tear_down();
}

TEST(a_timer_may_go_on_and_create_nothing)
{
    set_up((fl_engine_config){.dispatch = dispatch});
    tick(0, 1);
    run_for(10 * SECOND + SECOND / 2);
    CHECK_EQ(ticker.fired, 10);
    CHECK_EQ(ticker.ended, 10);
    CHECK_EQ(pending(), 1);
    tear_down();
}

TEST(the_ids_are_known_before_it_is_written)
{
    char expected[16];
    set_up((fl_engine_config){.dispatch = dispatch});
    tick(2, 4);
    ticker.composes = true;
    run_for(SECOND + SECOND / 2);
    CHECK_EQ(ticker.ended, 1);
    fl_op there = get_ticker();
    snprintf(expected, sizeof expected, "2/%zu", (size_t)(ticker.last_id.seq % 1000000));
    CHECK_EQ(there.timer.payload.size, strlen(expected));
    CHECK(memcmp(ticker.payload, expected, strlen(expected)) == 0);
    tear_down();
}

/* What the store makes of the n-th write with several changes. */
static struct trouble {
    fl_memory_fault fault;
    int times;
    unsigned writes;
} trouble;

static fl_memory_fault make_trouble(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    if (request->op != FL_STORE_WRITE || request->write.count < 2)
        return (fl_memory_fault){0};
    trouble.writes++;
    return trouble.times-- > 0 ? trouble.fault : (fl_memory_fault){0};
}

static void live_with_trouble(fl_memory_fault fault, int times, enum fl_strategy strategy)
{
    trouble = (struct trouble){fault, times, 0};
    set_up((fl_engine_config){.dispatch = dispatch, .strategy = strategy});
    CHECK_EQ(fl_memory_store_faults(bed.store, make_trouble, NULL), 0);
    tick(4, 20);
    run_for(60 * SECOND);
    check_fired(20);
    CHECK(trouble.times < 0);
    CHECK_EQ(ticker.result, 0);
    CHECK_EQ(ticker.ended, 5);
    CHECK_EQ(pending(), 1);
    tear_down();
}

TEST(what_is_refused_or_in_doubt_is_created_once)
{
    for (int strategy = 0; strategy < 2; strategy++)
        for (int times = 1; times < 4; times++) {
            live_with_trouble((fl_memory_fault){.result = FL_STORE_FULL}, times, strategy);
            live_with_trouble((fl_memory_fault){.result = FL_OUTCOME_UNKNOWN}, times, strategy);
            live_with_trouble((fl_memory_fault){.result = FL_OUTCOME_UNKNOWN, .applied = true}, times, strategy);
            live_with_trouble((fl_memory_fault){.delay_ns = 300000000}, times, strategy);
        }
}

/* The engine is gone before it hears what has become of it. The next one finds it done, or not begun. */
static void crash_in(fl_memory_fault fault, int64_t after_us, bool now)
{
    trouble = (struct trouble){fault, 1, 0};
    set_up((fl_engine_config){.dispatch = dispatch});
    CHECK_EQ(fl_memory_store_faults(bed.store, make_trouble, NULL), 0);
    tick(4, 20);
    run_for(SECOND + after_us);
    stop_engine(now);
    CHECK(!ticker.under_way);
    start_engine((fl_engine_config){.dispatch = dispatch, .force = true});
    run_for(60 * SECOND);
    CHECK_EQ(get_ticker().timer.due_us, FL_TIME_NEVER_US);
    for (unsigned n = 0; n < 20; n++) {
        unsigned times = 0;
        for (size_t i = 0; i < bed.fired_count; i++)
            times += strtoul(bed.fired[i].payload, NULL, 10) == n;
        CHECK(times == 1 || (now && times == 2 && n < 4)); /* settled, and not on record */
    }
    CHECK_EQ(pending(), 1);
    tear_down();
}

TEST(a_crash_neither_loses_nor_repeats_what_is_created)
{
    for (int64_t after_us = 0; after_us < SECOND / 2; after_us += SECOND / 20)
        for (int now = 0; now < 2; now++) {
            crash_in((fl_memory_fault){.delay_ns = 200000000}, after_us, now);
            crash_in((fl_memory_fault){.result = FL_OUTCOME_UNKNOWN}, after_us, now);
            crash_in((fl_memory_fault){.result = FL_OUTCOME_UNKNOWN, .applied = true, .delay_ns = 100000000}, after_us,
                     now);
        }
}

/* The write takes effect, and nobody says so before `blind` is over. */
static bool blind;

static fl_memory_fault hide(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    if (blind && request->op == FL_STORE_WRITE && request->write.count > 1)
        return (fl_memory_fault){.result = FL_OUTCOME_UNKNOWN, .applied = true};
    if (blind && request->op == FL_STORE_FIND)
        return (fl_memory_fault){.result = FL_STORE_UNAVAILABLE};
    return (fl_memory_fault){0};
}

/* As long as it is not known whether they were created, they do not fire, even if a load brings them. */
TEST(what_was_perhaps_created_together_waits_until_that_is_known)
{
    for (int strategy = 0; strategy < 2; strategy++) {
        set_up((fl_engine_config){.dispatch = dispatch, .strategy = strategy, .preload_us = SECOND});
        tick(2, 2);
        blind = true;
        CHECK_EQ(fl_memory_store_faults(bed.store, hide, NULL), 0);
        ticker.delay_us = 5 * SECOND;
        run_for(10 * SECOND);
        CHECK_EQ(ticker.fired, 1);
        CHECK(ticker.under_way);
        CHECK_EQ(bed.fired_count, 0);
        blind = false;
        run_for(SECOND);
        CHECK_EQ(ticker.result, 0);
        check_fired(2);
        run_for(60 * SECOND);
        check_fired(2);
        CHECK_EQ(pending(), 1);
        tear_down();
    }
}

/* Progress is recorded meanwhile, and does not pass what was perhaps created. */
TEST(what_was_perhaps_created_together_is_there_for_the_next_owner)
{
    for (int now = 0; now < 2; now++) {
        set_up((fl_engine_config){.dispatch = dispatch, .delete_interval_us = SECOND});
        tick(2, 2);
        blind = true;
        CHECK_EQ(fl_memory_store_faults(bed.store, hide, NULL), 0);
        run_for(100 * SECOND); /* the windows are over, too */
        CHECK_EQ(bed.fired_count, 0);
        stop_engine(now);
        CHECK(ticker.result < 0);
        blind = false;
        start_engine((fl_engine_config){.dispatch = dispatch, .force = true});
        run_for(10 * SECOND);
        CHECK_EQ(ticker.fired, 1); /* the ticker has gone on */
        check_fired(2);
        CHECK_EQ(pending(), 1);
        tear_down();
    }
}

static fl_op change;
static fl_batch change_batch;
static bool change_done;

static void changed(fl_batch *batch)
{
    (void)batch;
    change_done = true;
}

static void replace_ticker(void)
{
    change = (fl_op){.kind = FL_OP_CREATE,
                     .timer = {.ns = text("ticks"), .name = text("ticker"), .due_us = START + 3600 * SECOND}};
    change_batch = (fl_batch){.ops = &change, .count = 1, .done = changed};
    fl_engine_submit(bed.engine, &change_batch);
}

/* It is settled when it has been replaced. */
TEST(what_was_replaced_creates_nothing)
{
    set_up((fl_engine_config){.dispatch = dispatch});
    tick(3, 30);
    ticker.meanwhile = replace_ticker;
    change_done = false;
    run_for(2 * SECOND);
    CHECK(change_done);
    CHECK_EQ(change.result, 0);
    fl_settlement late = {.token = bed.tokens[0], .result = FL_ADVANCE, .batch = &ticker.batch};
    CHECK_EQ(fl_engine_settle(bed.engine, &late, 1), 1);
    run_for(SECOND);
    CHECK_EQ(ticker.ended, 1);
    CHECK_EQ(ticker.result, FL_TIMER_NOT_FOUND);
    CHECK_EQ(bed.fired_count, 0);
    CHECK_EQ(pending(), 1);
    tear_down();
}

TEST(advances_that_mean_nothing_settle_nothing)
{
    fl_op ops[2] = {{.kind = FL_OP_UPDATE, .flags = FL_OP_SET_DUE}, {.kind = FL_OP_CREATE, .timer.ns = text("ns")}};
    fl_batch batch = {.ops = ops, .count = 2, .done = advanced};
    fl_settlement settlement = {.result = FL_ADVANCE, .batch = &batch};
    set_up((fl_engine_config){0});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "x").result, 0);
    run_for(2 * SECOND);
    settlement.token = bed.tokens[0];
    settlement.batch = NULL;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    settlement.batch = &batch;
    ops[0].kind = FL_OP_CANCEL;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    ops[0].kind = FL_OP_UPDATE;
    ops[0].flags = FL_OP_SET_PAYLOAD;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    ops[0].flags = FL_OP_SET_DUE | 1u << 30;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    ops[0].flags = FL_OP_SET_DUE;
    ops[0].timer.due_us = FL_STORE_TIME_END;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    ops[0].timer.due_us = FL_TIME_NEVER_US;
    ops[1].timer.name = text("named");
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    ops[1].timer.name = text("");
    batch.count = FL_ATOMIC_MOST + 1;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    batch.count = 2;
    ticker = (struct ticker){0};
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1);
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    run_for(SECOND);
    CHECK_EQ(ticker.ended, 1);
    CHECK_EQ(ticker.result, 0);
    tear_down();
}

/* --- Batches that are all or nothing ------------------------------------------------------------------------------- */

static void run_atomic(fl_op *ops, size_t count)
{
    fl_batch batch = {.ops = ops, .count = count, .done = changed, .atomic = true};
    change_done = false;
    fl_engine_submit(bed.engine, &batch);
    CHECK(!change_done);
    for (int i = 0; i < 100 && !change_done; i++)
        run_for(SECOND / 100);
    CHECK(change_done);
    for (size_t i = 1; i < count; i++)
        CHECK_EQ(ops[i].result, ops[0].result);
}

static fl_op nameless(int64_t after_us, const char *payload)
{
    return (fl_op){
        .kind = FL_OP_CREATE,
        .timer = {.ns = text("ns"), .due_us = wall_now(&bed.wall.clock) + after_us, .payload = text(payload)}};
}

TEST(an_atomic_batch_is_all_or_nothing)
{
    set_up((fl_engine_config){0});
    fl_op ops[4] = {nameless(SECOND, "0"), nameless(SECOND, "1"), nameless(SECOND, "2"), nameless(SECOND, "3")};
    run_atomic(ops, 4);
    CHECK_EQ(ops[0].result, 0);
    CHECK_EQ(pending(), 4);
    run_for(2 * SECOND);
    check_fired(4);
    ops[2].timer.due_us = FL_STORE_TIME_END;
    run_atomic(ops, 4);
    CHECK_EQ(ops[0].result, FL_INVALID_DEADLINE);
    CHECK_EQ(pending(), 0);
    ops[2] = nameless(SECOND, "2");
    ops[2].timer.name = text("named");
    run_atomic(ops, 4);
    CHECK_EQ(ops[0].result, FL_INVALID_ARGUMENT);
    ops[2].timer.name = text("");
    ops[0] = (fl_op){.kind = FL_OP_GET, .timer = {.ns = text("ns"), .name = text("a")}};
    run_atomic(ops, 4);
    CHECK_EQ(ops[0].result, FL_INVALID_ARGUMENT);
    ops[0] = (fl_op){.kind = FL_OP_CANCEL, .timer = {.ns = text("ns"), .name = text("a")}};
    run_atomic(ops, 4);
    CHECK_EQ(ops[0].result, FL_TIMER_NOT_FOUND);
    CHECK_EQ(pending(), 0);
    CHECK_EQ(create("a", 10 * SECOND, "a").result, 0);
    for (int i = 1; i < 4; i++)
        ops[i] = nameless(10 * SECOND, "x");
    run_atomic(ops, 4);
    CHECK_EQ(ops[0].result, 0);
    CHECK_EQ(pending(), 3);
    tear_down();
}

TEST(an_atomic_batch_has_a_first_operation_by_name)
{
    set_up((fl_engine_config){0});
    fl_op ops[3] = {nameless(3600 * SECOND, "head"), nameless(0, "0"), nameless(SECOND, "1")};
    ops[0].timer.name = text("head");
    run_atomic(ops, 3);
    CHECK_EQ(ops[0].result, 0);
    CHECK_EQ(ops[0].outcome, FL_CREATED);
    CHECK_EQ(pending() + bed.fired_count, 3);
    run_atomic(ops, 3); /* the same content again */
    CHECK_EQ(ops[0].outcome, FL_REPLACED);
    ops[0].flags = FL_OP_ONLY_NEW;
    run_atomic(ops, 3);
    CHECK_EQ(ops[0].result, FL_EXISTS);
    run_for(5 * SECOND);
    CHECK_EQ(bed.fired_count, 4);
    CHECK_EQ(pending(), 1);
    ops[0] = (fl_op){.kind = FL_OP_UPDATE,
                     .flags = FL_OP_SET_DUE,
                     .timer = {.ns = text("ns"), .name = text("head"), .due_us = wall_now(&bed.wall.clock)}};
    run_atomic(ops, 1);
    CHECK_EQ(ops[0].result, 0);
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 5);
    tear_down();
}

TEST(an_atomic_batch_in_doubt_takes_effect_whole_or_not_at_all)
{
    for (int applied = 0; applied < 2; applied++) {
        trouble = (struct trouble){{.result = FL_OUTCOME_UNKNOWN, .applied = applied}, 1, 0};
        set_up((fl_engine_config){0});
        CHECK_EQ(fl_memory_store_faults(bed.store, make_trouble, NULL), 0);
        fl_op ops[3] = {nameless(3600 * SECOND, "head"), nameless(0, "0"), nameless(SECOND, "1")};
        ops[0].timer.name = text("head");
        run_atomic(ops, 3);
        CHECK_EQ(ops[0].result, FL_OUTCOME_UNKNOWN);
        run_for(5 * SECOND);
        CHECK_EQ(by_name(FL_OP_GET, "head").result, applied ? 0 : FL_TIMER_NOT_FOUND);
        CHECK_EQ(bed.fired_count, applied ? 2 : 0);
        CHECK_EQ(pending(), applied);
        tear_down();
    }
}

TEST(an_atomic_batch_has_limits)
{
    static fl_op ops[FL_ATOMIC_MOST + 1];
    static char large[200 << 10];
    set_up((fl_engine_config){0});
    for (size_t i = 0; i < FL_ATOMIC_MOST + 1; i++)
        ops[i] = nameless(3600 * SECOND, "x");
    run_atomic(ops, FL_ATOMIC_MOST + 1);
    CHECK_EQ(ops[0].result, FL_TOO_LARGE);
    trouble = (struct trouble){.times = 0};
    CHECK_EQ(fl_memory_store_faults(bed.store, make_trouble, NULL), 0);
    run_atomic(ops, FL_ATOMIC_MOST);
    CHECK_EQ(ops[0].result, 0);
    CHECK_EQ(pending(), FL_ATOMIC_MOST);
    CHECK_EQ(trouble.writes, 1); /* in one write, however many there are */
    for (size_t i = 0; i < 400; i++)
        ops[i].timer.payload = (fl_bytes){large, sizeof large};
    run_atomic(ops, 400);
    CHECK_EQ(ops[0].result, FL_TOO_LARGE);
    run_atomic(ops, 300);
    CHECK_EQ(ops[0].result, 0);
    tear_down();
}

/* --- What was read ------------------------------------------------------------------------------------------------- */

TEST(a_change_may_depend_on_the_revision)
{
    set_up((fl_engine_config){0});
    fl_op op = {.kind = FL_OP_CREATE,
                .flags = FL_OP_ONLY_REVISION,
                .timer = {.ns = text("ns"), .due_us = wall_now(&bed.wall.clock) + 10 * SECOND}};
    CHECK_EQ(run_op(op).result, FL_INVALID_ARGUMENT); /* a name is needed */
    op.timer.name = text("a");
    CHECK_EQ(run_op(op).result, FL_TIMER_NOT_FOUND);
    fl_op first = create("a", 5 * SECOND, "1");
    CHECK_EQ(first.timer.revision, by_name(FL_OP_GET, "a").timer.revision);
    fl_op moved = run_op((fl_op){
        .kind = FL_OP_UPDATE,
        .flags = FL_OP_SET_DUE | FL_OP_ONLY_REVISION,
        .timer = {
            .ns = text("ns"), .name = text("a"), .revision = first.timer.revision, .due_us = START + 60 * SECOND}});
    CHECK_EQ(moved.result, 0);
    CHECK_EQ(moved.timer.revision, by_name(FL_OP_GET, "a").timer.revision);
    CHECK_EQ(moved.timer.id.seq, first.timer.id.seq);
    op.timer.revision = first.timer.revision;
    CHECK_EQ(run_op(op).result, FL_CHANGED);
    fl_op cancel = {.kind = FL_OP_CANCEL,
                    .flags = FL_OP_ONLY_REVISION,
                    .timer = {.ns = text("ns"), .id = first.timer.id, .revision = first.timer.revision}};
    CHECK_EQ(run_op(cancel).result, FL_CHANGED);
    op.timer.revision = moved.timer.revision;
    op = run_op(op);
    CHECK_EQ(op.outcome, FL_REPLACED);
    cancel.timer.id = op.timer.id;
    cancel.timer.revision = op.timer.revision;
    CHECK_EQ(run_op(cancel).result, 0);
    CHECK_EQ(run_op(cancel).result, FL_TIMER_NOT_FOUND);
    tear_down();
}
