/* SPDX-License-Identifier: MIT */
/* The wall clock is set, at bad moments. */

#include "engine/bed.h"
#include "test.h"

static uint64_t find_delay_ns;

static fl_memory_fault slow_finds(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.delay_ns = request->op == FL_STORE_FIND ? find_delay_ns : 0};
}

static void answered(fl_batch *batch)
{
    *(bool *)batch->arg = true;
}

TEST(what_has_fired_is_not_found_while_the_clock_is_set_back)
{
    static const enum fl_op_kind kinds[] = {FL_OP_GET, FL_OP_CANCEL, FL_OP_UPDATE};
    for (int i = 0; i < 3; i++) {
        set_up((fl_engine_config){0});
        CHECK_EQ(create("a", 10 * SECOND, "1").result, 0);
        run_for(20 * SECOND);
        CHECK_EQ(bed.fired_count, 1);
        find_delay_ns = 1000000000;
        CHECK_EQ(fl_memory_store_faults(bed.store, slow_finds, NULL), 0);
        bool done = false;
        fl_op op = {.kind = kinds[i],
                    .flags = FL_OP_SET_DUE,
                    .timer = {.ns = text("ns"), .name = text("a"), .due_us = START + 5000 * SECOND}};
        fl_batch batch = {.ops = &op, .count = 1, .done = answered, .arg = &done};
        fl_engine_submit(bed.engine, &batch);
        run_for(SECOND / 10);
        CHECK(!done);
        step_clock(-100 * SECOND);
        run_for(10 * SECOND);
        CHECK(done);
        CHECK_EQ(op.result, FL_TIMER_NOT_FOUND);
        run_for(7000 * SECOND);
        CHECK_EQ(bed.fired_count, 1);
        tear_down();
    }
}

TEST(an_engine_gets_ready_although_the_clock_is_behind_its_progress)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create(NULL, 10 * SECOND, "1").result, 0);
    CHECK_EQ(create(NULL, 15 * SECOND, "2").result, 0);
    CHECK_EQ(create(NULL, 30 * SECOND, "3").result, 0);
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    stop_engine(true);
    bed.wall.offset_us -= 12 * SECOND;
    start_engine((fl_engine_config){0});
    int ready = bed.events[FL_ENGINE_READY];
    run_for(2 * SECOND);
    CHECK_EQ(bed.events[FL_ENGINE_READY], ready + 1);
    CHECK_EQ(create(NULL, SECOND, "4").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 3);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 4);
    tear_down();
}

TEST(what_is_overdue_stays_so_when_the_clock_is_set_back)
{
    set_up((fl_engine_config){.max_in_flight = 1});
    bed.keep = true;
    for (int i = 0; i < 10; i++)
        CHECK_EQ(create(NULL, (10 + i * (i < 5 ? 1 : 36000)) * SECOND, "x").result, 0);
    run_for(SECOND);
    step_clock(400000 * SECOND);
    run_for(100 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    step_clock(-3 * SECOND);
    run_for(SECOND);
    CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
    bed.keep = false;
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 10);
    tear_down();
}

TEST(what_is_overdue_and_not_loaded_yet_stays_so_too)
{
    fl_retry retry = {.multiplier_1000 = 1000, .initial_us = 500 * SECOND, .max_interval_us = 500 * SECOND};
    set_up((fl_engine_config){.retry = retry});
    bed.answer = FL_FAILED;
    bed.failures = 20;
    for (int i = 0; i < 120; i++)
        CHECK_EQ(create(NULL, (i < 20 ? 1 : i) * SECOND, "x").result, 0);
    run_for(10 * SECOND);
    CHECK_EQ(bed.fired_count, 20);
    stop_engine(false);
    bed.wall.offset_us += 1000 * SECOND;
    bed.keep = true;
    start_engine((fl_engine_config){.max_in_flight = 1, .max_memory_timers = 16, .retry = retry});
    run_for(SECOND);
    step_clock(-3 * SECOND);
    run_for(SECOND);
    bed.keep = false;
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[20]}, 1), 1);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 20 + 120);
    CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
    tear_down();
}

/* Turns the clock from one time that matters to the next, until `until_us`. */
static unsigned turn_clock(int64_t until_us)
{
    unsigned turns = 0;
    for (int64_t next_us;; turns++) {
        while (!fl_engine_idle(bed.engine, &next_us))
            run_for(1);
        int64_t now_us = bed.wall.clock.now_us(&bed.wall.clock);
        if (next_us > until_us)
            return turns;
        CHECK(next_us > now_us);
        step_clock(next_us - now_us);
    }
}

TEST(a_clock_that_is_turned_finds_everything_on_its_way)
{
    set_up((fl_engine_config){.claim_us = 86400 * SECOND});
    bed.answer = FL_FAILED;
    bed.failures = 3;
    CHECK_EQ(create("retried", 3600 * SECOND, "a").result, 0);
    CHECK_EQ(create("far", 300 * 86400 * SECOND, "d").result, 0);
    CHECK_EQ(create("month", 40 * 86400 * SECOND, "c").result, 0);
    CHECK_EQ(create("day", 86400 * SECOND, "b").result, 0);
    CHECK_EQ(create("too far", 400 * 86400 * SECOND, "e").result, 0);
    CHECK(turn_clock(START + 365 * 86400 * SECOND) < 1000);
    CHECK_EQ(bed.fired_count, 7);
    static const int64_t due_us[] = {3600 * SECOND, 0, 0, 0, 86400 * SECOND, 40 * 86400 * SECOND, 300 * 86400 * SECOND};
    for (unsigned i = 0; i < 7; i++) {
        CHECK(due_us[i] == 0 || bed.fired[i].at_us - START - due_us[i] < SECOND / 100);
        CHECK(bed.fired[i].at_us < START + 86400 * SECOND || i > 3); /* and the retries where they belong */
    }
    tear_down();
}

/* Time stands still until the clock has caught up: that is waiting for the clock. */
TEST(an_engine_is_idle_while_the_clock_is_set_back_a_little)
{
    set_up((fl_engine_config){0});
    int64_t next_us = 0;
    CHECK_EQ(create(NULL, SECOND, "x").result, 0);
    run_for(SECOND / 2);
    step_clock(SECOND / 2 - 1000);
    run_for(10);
    step_clock(-SECOND / 4);
    run_for(10);
    CHECK(fl_engine_idle(bed.engine, &next_us));
    CHECK(next_us > wall_now(&bed.wall.clock));
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

TEST(an_engine_that_only_waits_is_idle)
{
    set_up((fl_engine_config){.wait = true, .max_memory_timers = 16});
    int64_t next_us = 0;
    for (int i = 0; i < 40; i++) /* more than there is room for */
        CHECK_EQ(create(NULL, 0, "x").result, 0);
    run_for(10 * SECOND);
    CHECK(fl_engine_idle(bed.engine, &next_us));
    CHECK(next_us > wall_now(&bed.wall.clock));
    bed.keep = true;
    fl_engine_go(bed.engine);
    CHECK(!fl_engine_idle(bed.engine, &next_us));
    run_for(10 * SECOND);
    CHECK(bed.fired_count > 0);
    CHECK(fl_engine_idle(bed.engine, &next_us));
    fl_engine *lost = bed.engine;
    start_engine((fl_engine_config){.owner = "another", .force = true});
    fl_engine *another = bed.engine;
    bed.engine = lost;
    run_for(30 * SECOND);
    CHECK_EQ(bed.events[FL_ENGINE_LOST], 1);
    CHECK(fl_engine_idle(lost, &next_us));
    CHECK_EQ(next_us, INT64_MAX);
    stop_engine(true);
    bed.engine = another;
    tear_down();
}

TEST(the_clock_set_back_by_days)
{
    static const int64_t days[] = {1, 30, 400};
    for (int i = 0; i < 6; i++) {
        set_up((fl_engine_config){.strategy = i % 2 ? FL_LOOKAHEAD : FL_PRELOAD, .claim_us = 3600 * (uint64_t)SECOND});
        int64_t back_us = days[i / 2] * 86400 * SECOND;
        int64_t begin_us = wall_now(&bed.wall.clock);
        for (int k = 1; k <= 50; k++)
            CHECK_EQ(create(NULL, k * SECOND, "x").result, 0);
        run_for(20 * SECOND + SECOND / 2);
        CHECK_EQ(bed.fired_count, 20);
        step_clock(-back_us);
        CHECK_EQ(create(NULL, 10 * SECOND, "y").result, 0);
        run_for(60 * SECOND);
        CHECK_EQ(bed.fired_count, 21);
        CHECK_EQ(bed.fired[20].payload[0], 'y');
        step_clock(back_us - 60 * SECOND);
        run_for(60 * SECOND);
        CHECK_EQ(bed.fired_count, 51);
        for (int k = 21; k < 51; k++)
            CHECK_EQ(bed.fired[k].at_us, begin_us + k * SECOND);
        CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
        tear_down();
    }
}

static fl_memory_fault refuse_writes(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.result = request->op == FL_STORE_WRITE ? FL_STORE_UNAVAILABLE : 0};
}

static void count_page(fl_listing *listing)
{
    *(size_t *)listing->arg += listing->count;
}

TEST(what_is_done_is_not_there_although_its_row_is)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", 10 * SECOND, "x").result, 0);
    bed.keep = true;
    run_for(12 * SECOND);
    step_clock(-5 * SECOND);
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, refuse_writes, NULL), 0);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    size_t listed = 0;
    fl_listing listing = {.done = count_page, .arg = &listed};
    fl_engine_list(bed.engine, &listing);
    CHECK_EQ(by_name(FL_OP_GET, "a").result, FL_TIMER_NOT_FOUND);
    run_for(SECOND);
    CHECK_EQ(listed, 0);
    tear_down();
}

TEST(what_was_under_way_and_is_done_is_on_record_once_time_has_passed_it_again)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create(NULL, 10 * SECOND, "x").result, 0);
    bed.keep = true;
    run_for(12 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    step_clock(-5 * SECOND);
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, refuse_writes, NULL), 0);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    run_for(10 * SECOND);
    stop_engine(true);
    CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
    start_engine((fl_engine_config){.force = true});
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

TEST(what_was_filed_by_a_clock_that_was_set_forth_again_at_once_is_not_lost)
{
    set_up((fl_engine_config){.record_interval_us = 10 * SECOND});
    CHECK_EQ(create(NULL, 90 * SECOND, "x").result, 0);
    run_for(105 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    bed.keep = true;
    step_clock(-50 * SECOND);
    bool done = false;
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = text("ns"), .due_us = wall_now(&bed.wall.clock) + 5 * SECOND, .payload = text("y")}};
    fl_batch batch = {.ops = &op, .count = 1, .done = answered, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    step_clock(50 * SECOND);
    run_for(SECOND);
    CHECK(done);
    CHECK_EQ(op.result, 0);
    CHECK_EQ(bed.fired_count, 2);
    stop_engine(true);
    start_engine((fl_engine_config){.force = true});
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 3);
    CHECK_EQ(bed.fired[2].payload[0], 'y');
    tear_down();
}

TEST(what_is_put_off_while_the_clock_is_set_back_is_not_early)
{
    set_up((fl_engine_config){0});
    fl_op op = create(NULL, 100 * SECOND, "x");
    CHECK_EQ(op.result, 0);
    bed.keep = true;
    run_for(110 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    step_clock(-60 * SECOND);
    run_for(SECOND);
    fl_settlement later = {.token = bed.tokens[0], .result = FL_LATER, .at_us = wall_now(&bed.wall.clock) + SECOND};
    CHECK_EQ(fl_engine_settle(bed.engine, &later, 1), 1);
    run_for(100 * SECOND); /* the bed looks whether it is early */
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(bed.fired[1].attempt, 1);
    tear_down();
}

TEST(a_clock_that_was_beyond_the_end_of_time_can_be_set_right)
{
    static const int64_t beyond_us[] = {-3600 * SECOND, -1, 0, SECOND, FL_STORE_TIME_END};
    for (size_t i = 0; i < sizeof beyond_us / sizeof *beyond_us; i++) {
        set_up((fl_engine_config){0});
        CHECK_EQ(create("a", 3600 * SECOND, "a").result, 0);
        int64_t by_us = FL_STORE_TIME_END + beyond_us[i] - wall_now(&bed.wall.clock);
        step_clock(by_us);
        run_for(SECOND);
        CHECK_EQ(bed.fired_count, 1); /* it is due, by that clock */
        fl_op past = {.kind = FL_OP_CREATE, .timer = {.ns = text("ns"), .name = text("b"), .payload = text("b")}};
        CHECK_EQ(run_op(past).result, 0);
        run_for(SECOND);
        CHECK_EQ(bed.fired_count, 2);
        CHECK_EQ(create("c", FL_STORE_TIME_END, "c").result, FL_INVALID_DEADLINE);
        step_clock(-by_us);
        CHECK_EQ(create("d", 10 * SECOND, "d").result, 0);
        run_for(5 * SECOND);
        CHECK_EQ(bed.fired_count, 2);
        run_for(10 * SECOND);
        CHECK_EQ(bed.fired_count, 3);
        CHECK_EQ(create("e", 10 * SECOND, "e").result, 0);
        CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
        stop_engine(false);
        start_engine((fl_engine_config){0});
        run_for(20 * SECOND);
        CHECK_EQ(bed.fired_count, 4);
        CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
        tear_down();
    }
}

static fl_memory_fault refuse_late(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    if (request->op != FL_STORE_WRITE)
        return (fl_memory_fault){0};
    return (fl_memory_fault){.delay_ns = 2000000000, .result = FL_STORE_UNAVAILABLE};
}

/* The first waits for an operation, the second is under way, the third has its turn after them; the clock is set back. */
TEST(those_of_the_same_time_keep_their_order_when_the_clock_is_set_back)
{
    set_up((fl_engine_config){.max_in_flight = 1});
    bed.keep = true;
    const char *names[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++) {
        fl_durable timer = {
            .ns = text("ns"), .name = text(names[i]), .payload = text(names[i]), .due_us = START + 10 * SECOND};
        CHECK_EQ(run_op((fl_op){.kind = FL_OP_CREATE, .timer = timer}).result, 0);
    }
    run_for(9 * SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, refuse_late, NULL), 0);
    bool done = false;
    fl_op op = {.kind = FL_OP_CANCEL, .timer = {.ns = text("ns"), .name = text("1")}};
    fl_batch batch = {.ops = &op, .count = 1, .done = answered, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    run_for(SECOND + SECOND / 2);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(bed.fired[0].payload[0], '2');
    CHECK(!done);
    step_clock(-60 * SECOND);
    run_for(5 * SECOND);
    CHECK(done);
    CHECK_EQ(op.result, FL_STORE_UNAVAILABLE);
    CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    run_for(70 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(bed.fired[1].payload[0], '1');
    run_for(2 * SECOND); /* recorded */
    bed.keep = false;
    stop_engine(true);
    start_engine((fl_engine_config){0});
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 4); /* the one that was under way, and the one that has waited */
    tear_down();
}

/* Another engine in the same microsecond: it says that it is busy until it has claimed the shard and loaded. */
TEST(an_engine_that_was_stopped_and_started_at_once_is_not_idle)
{
    for (int i = 0; i < 2; i++) {
        int64_t next_us = 0;
        set_up((fl_engine_config){0});
        CHECK_EQ(create(NULL, 5 * SECOND, "x").result, 0);
        run_for(SECOND);
        int64_t before_us = wall_now(&bed.wall.clock);
        stop_engine(i);
        CHECK_EQ(wall_now(&bed.wall.clock), before_us);
        start_engine((fl_engine_config){.force = true});
        CHECK(!fl_engine_idle(bed.engine, &next_us));
        int ready = bed.events[FL_ENGINE_READY];
        run_for(1);
        CHECK_EQ(bed.events[FL_ENGINE_READY], ready + 1);
        CHECK(fl_engine_idle(bed.engine, &next_us));
        CHECK(next_us > wall_now(&bed.wall.clock) && next_us <= before_us + 4 * SECOND);
        run_for(10 * SECOND);
        CHECK_EQ(bed.fired_count, 1);
        CHECK(fl_engine_idle(bed.engine, &next_us));
        CHECK_EQ(next_us, INT64_MAX);
        tear_down();
    }
}

/* The same with an attempt that was not settled: it comes again, and then the engine is idle. */
TEST(an_engine_that_was_stopped_and_started_at_once_with_an_attempt_under_way_becomes_idle)
{
    for (int i = 0; i < 2; i++) {
        int64_t next_us = 0;
        set_up((fl_engine_config){0});
        bed.keep = true;
        CHECK_EQ(create(NULL, SECOND, "x").result, 0);
        run_for(2 * SECOND);
        CHECK_EQ(bed.fired_count, 1);
        int64_t before_us = wall_now(&bed.wall.clock);
        stop_engine(i);
        CHECK_EQ(wall_now(&bed.wall.clock), before_us);
        start_engine((fl_engine_config){.force = true});
        CHECK(!fl_engine_idle(bed.engine, &next_us));
        run_for(1);
        CHECK_EQ(bed.fired_count, 2);
        CHECK(fl_engine_idle(bed.engine, &next_us)); /* it waits for the dispatcher only */
        CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[1]}, 1), 1);
        run_for(2 * SECOND);
        CHECK(fl_engine_idle(bed.engine, &next_us));
        CHECK_EQ(next_us, INT64_MAX);
        CHECK_EQ(bed.fired_count, 2);
        tear_down();
    }
}
