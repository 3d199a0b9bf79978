/* SPDX-License-Identifier: MIT */
/* The engine on the memory store and a virtual clock: what an operation does, one at a time. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "test.h"

TEST(a_timer_fires_when_it_is_due)
{
    set_up((fl_engine_config){0});
    int64_t begin = wall_now(&bed.wall.clock);
    CHECK_EQ(create(NULL, 5 * SECOND, "tea").result, 0);
    run_for(4 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK(strcmp(bed.fired[0].payload, "tea") == 0);
    CHECK_EQ(bed.fired[0].at_us, begin + 5 * SECOND);
    tear_down();
}

TEST(a_timer_a_year_away_fires_too)
{
    uint64_t day_us = 86400 * SECOND; /* what happens every second would happen thirty million times */
    set_up((fl_engine_config){.claim_us = day_us, .record_interval_us = day_us, .delete_interval_us = day_us});
    int64_t begin = wall_now(&bed.wall.clock);
    CHECK_EQ(create(NULL, 365 * 86400 * SECOND, "year").result, 0);
    run_for(366 * 86400 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(bed.fired[0].at_us, begin + 365 * 86400 * SECOND);
    tear_down();
}

TEST(names_are_idempotent)
{
    set_up((fl_engine_config){0});
    fl_op first = create("a", 10 * SECOND, "1");
    CHECK_EQ(first.result, 0);
    CHECK_EQ(first.outcome, FL_CREATED);
    fl_op same = create("a", 10 * SECOND, "1");
    CHECK_EQ(same.result, 0);
    CHECK_EQ(same.outcome, FL_SAME);
    CHECK_EQ(same.timer.id.seq, first.timer.id.seq);
    fl_op other = create("a", 10 * SECOND, "2");
    CHECK_EQ(other.outcome, FL_REPLACED);
    fl_op get = by_name(FL_OP_GET, "a");
    CHECK_EQ(get.result, 0);
    CHECK_EQ(get.timer.id.seq, other.timer.id.seq);
    run_for(11 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK(strcmp(bed.fired[0].payload, "2") == 0);
    CHECK_EQ(by_name(FL_OP_GET, "a").result, FL_TIMER_NOT_FOUND);
    CHECK_EQ(create("a", 1 * SECOND, "3").outcome, FL_CREATED);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    tear_down();
}

static void note_done(fl_batch *batch)
{
    *(bool *)batch->arg = true;
}

/* Whether the old one ends before it has been replaced or after: the count is that of what is there. */
TEST(one_that_ends_while_it_is_replaced_is_counted_once)
{
    for (int turns = 0; turns < 8; turns++) {
        fl_engine_stats stats;
        bool done = false;
        set_up((fl_engine_config){0});
        CHECK_EQ(create("other", 1000 * SECOND, "0").result, 0);
        CHECK_EQ(create("a", SECOND, "1").result, 0);
        bed.keep = true;
        run_for(2 * SECOND);
        CHECK_EQ(bed.fired_count, 1);
        fl_op op = {
            .kind = FL_OP_CREATE,
            .timer = {.ns = text("ns"), .name = text("a"), .due_us = START + 1000 * SECOND, .payload = text("2")}};
        fl_batch batch = {.ops = &op, .count = 1, .done = note_done, .arg = &done};
        fl_engine_submit(bed.engine, &batch);
        for (int i = 0; i < turns && !done; i++)
            CHECK_EQ(fl_loop_run_once(bed.loop, true), 0);
        fl_settlement settlement = {.token = bed.tokens[0], .result = FL_DONE};
        CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1);
        while (!done)
            CHECK_EQ(fl_loop_run_once(bed.loop, true), 0);
        CHECK_EQ(op.result, 0);
        CHECK(op.outcome == FL_REPLACED || op.outcome == FL_CREATED);
        run_for(SECOND);
        fl_engine_get_stats(bed.engine, &stats);
        CHECK_EQ(stats.pending, 2);
        tear_down();
    }
}

TEST(a_creation_may_ask_to_replace_only)
{
    set_up((fl_engine_config){0});
    fl_op op = {.kind = FL_OP_CREATE,
                .flags = FL_OP_ONLY_REPLACE,
                .timer = {.ns = FL_TEXT("ns"), .due_us = wall_now(&bed.wall.clock) + 10 * SECOND}};
    CHECK_EQ(run_op(op).result, FL_INVALID_ARGUMENT); /* without a name there is nothing to replace */
    op.timer.name = (fl_bytes)FL_TEXT("a");
    CHECK_EQ(run_op(op).result, FL_TIMER_NOT_FOUND);
    CHECK_EQ(by_name(FL_OP_GET, "a").result, FL_TIMER_NOT_FOUND);
    CHECK_EQ(create("a", 5 * SECOND, "1").result, 0);
    CHECK_EQ(run_op(op).outcome, FL_REPLACED);
    CHECK_EQ(run_op(op).outcome, FL_SAME);
    op.flags |= FL_OP_ONLY_NEW;
    CHECK_EQ(run_op(op).result, FL_EXISTS);
    run_for(11 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(run_op(op).result, FL_TIMER_NOT_FOUND); /* it has fired */
    tear_down();
}

TEST(a_creation_may_ask_to_replace_what_was_read)
{
    set_up((fl_engine_config){0});
    fl_op op = {.kind = FL_OP_CREATE,
                .flags = FL_OP_ONLY_THIS,
                .timer = {.ns = FL_TEXT("ns"), .due_us = wall_now(&bed.wall.clock) + 10 * SECOND}};
    CHECK_EQ(run_op(op).result, FL_INVALID_ARGUMENT); /* a name is needed */
    op.timer.name = (fl_bytes)FL_TEXT("a");
    CHECK_EQ(run_op(op).result, FL_TIMER_NOT_FOUND);
    fl_op read = create("a", 5 * SECOND, "1");
    op.timer.id = read.timer.id;
    CHECK_EQ(create("a", 5 * SECOND, "2").outcome, FL_REPLACED);
    CHECK_EQ(run_op(op).result, FL_EXISTS); /* it is not what was read */
    op.timer.id = by_name(FL_OP_GET, "a").timer.id;
    CHECK_EQ(run_op(op).outcome, FL_REPLACED);
    CHECK_EQ(run_op(op).outcome, FL_SAME);
    tear_down();
}

TEST(a_cancelled_timer_does_not_fire)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", 10 * SECOND, "1").result, 0);
    CHECK_EQ(by_name(FL_OP_CANCEL, "a").result, 0);
    CHECK_EQ(by_name(FL_OP_CANCEL, "a").result, FL_TIMER_NOT_FOUND);
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    tear_down();
}

/* Nothing else happens meanwhile that would make the engine look again. */
static void run_batch(fl_op *ops, size_t count)
{
    bool done = false;
    fl_batch batch = {.ops = ops, .count = count, .done = note_done, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    run_for(SECOND / 10);
    CHECK(done);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(ops[i].result, 0);
}

TEST(a_batch_of_more_than_may_be_under_way_goes_on_by_itself)
{
    enum { MANY = 50000 };
    uint64_t hour_us = 3600 * SECOND;
    set_up((fl_engine_config){.claim_us = hour_us, .record_interval_us = hour_us, .delete_interval_us = hour_us});
    fl_op *ops = calloc(MANY, sizeof *ops);
    int64_t due_us = wall_now(&bed.wall.clock) + 86400 * SECOND;
    for (size_t i = 0; i < MANY; i++)
        ops[i] = (fl_op){.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("ns"), .due_us = due_us}};
    run_batch(ops, MANY);
    for (size_t i = 0; i < MANY; i++)
        ops[i] = (fl_op){.kind = FL_OP_GET, .timer = {.ns = FL_TEXT("ns"), .id = ops[i].timer.id}};
    run_batch(ops, MANY);
    free(ops);
    tear_down();
}

TEST(an_update_moves_a_timer_and_keeps_its_id)
{
    set_up((fl_engine_config){0});
    fl_op op = create(NULL, 10 * SECOND, "1");
    fl_key id = op.timer.id;
    int64_t due = wall_now(&bed.wall.clock) + 7200 * SECOND;
    op = run_op((fl_op){.kind = FL_OP_UPDATE, .flags = FL_OP_SET_DUE, .timer = {.id = id, .due_us = due}});
    CHECK_EQ(op.result, 0);
    CHECK_EQ(op.timer.id.seq, id.seq);
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    op = run_op((fl_op){.kind = FL_OP_GET, .timer = {.id = id}});
    CHECK_EQ(op.result, 0);
    CHECK_EQ(op.timer.due_us, due);
    run_for(7200 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(bed.fired[0].at_us, due);
    tear_down();
}

TEST(a_failed_attempt_is_repeated_and_then_given_up)
{
    set_up((fl_engine_config){
        .retry = {.max_attempts = 3, .multiplier_1000 = 2000, .initial_us = SECOND, .max_interval_us = 60 * SECOND}});
    bed.answer = FL_FAILED;
    bed.failures = 3;
    fl_op op = create("a", SECOND, "1");
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 3);
    CHECK_EQ(bed.fired[2].attempt, 3);
    CHECK_EQ(by_name(FL_OP_GET, "a").result, FL_TIMER_NOT_FOUND);
    fl_op dead = run_op((fl_op){.kind = FL_OP_DEAD_GET, .timer = {.id = op.timer.id}});
    CHECK_EQ(dead.result, 0);
    CHECK_EQ(dead.reason.size, 7);
    CHECK_EQ(dead.timer.created_us, op.timer.created_us);
    CHECK_EQ(dead.timer.due_us, op.timer.due_us);
    dead = run_op((fl_op){.kind = FL_OP_DEAD_REDRIVE, .timer = {.id = op.timer.id}});
    CHECK_EQ(dead.result, 0);
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 4);
    CHECK_EQ(bed.fired[3].attempt, 1);
    tear_down();
}

TEST(again_comes_again)
{
    set_up((fl_engine_config){0});
    bed.answer = FL_AGAIN;
    bed.failures = 2;
    CHECK_EQ(create("a", SECOND, "1").result, 0);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 3);
    CHECK_EQ(bed.fired[2].at_us - bed.fired[1].at_us, 10 * SECOND);
    tear_down();
}

TEST(later_is_no_attempt)
{
    set_up((fl_engine_config){
        .retry = {.max_attempts = 2, .multiplier_1000 = 1000, .initial_us = SECOND, .max_interval_us = SECOND}});
    bed.answer = FL_LATER;
    bed.failures = 5;
    fl_op op = create("a", SECOND, "1");
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 6);
    CHECK_EQ(bed.fired[5].attempt, 1);
    CHECK_EQ(bed.fired[5].at_us - bed.fired[4].at_us, 10 * SECOND);
    CHECK_EQ(bed.fired[5].at_us, op.timer.due_us + 50 * SECOND);
    tear_down();
}

TEST(one_that_waits_fires_when_told)
{
    set_up((fl_engine_config){.wait = true});
    CHECK_EQ(create("a", SECOND, "1").result, 0);
    run_for(10 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    CHECK_EQ(by_name(FL_OP_GET, "a").result, 0);
    fl_engine_go(bed.engine);
    run_for(SECOND / 100);
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

TEST(an_id_is_found_in_its_namespace_only)
{
    set_up((fl_engine_config){0});
    bed.answer = FL_DEAD;
    bed.failures = 1;
    fl_op op = create("a", SECOND, "1");
    fl_key id = op.timer.id;
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_CANCEL, .timer = {.id = id, .ns = FL_TEXT("other")}}).result,
             FL_TIMER_NOT_FOUND);
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_GET, .timer = {.id = id, .ns = op.timer.ns}}).result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_DEAD_DELETE, .timer = {.id = id, .ns = FL_TEXT("other")}}).result,
             FL_TIMER_NOT_FOUND);
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_DEAD_GET, .timer = {.id = id}}).result, 0);
    tear_down();
}

TEST(a_crash_repeats_what_was_not_settled_and_nothing_else)
{
    set_up((fl_engine_config){0});
    for (int i = 0; i < 10; i++)
        CHECK_EQ(create(NULL, (i + 1) * SECOND, "x").result, 0);
    run_for(5 * SECOND + SECOND / 2);
    bed.keep = true;
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 6);
    run_for(2 * SECOND); /* recorded */
    CHECK_EQ(bed.fired_count, 8);
    bed.keep = false;
    stop_engine(true);
    start_engine((fl_engine_config){0});
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 8 + 3 + 2);
    tear_down();
}

TEST(little_memory_is_enough)
{
    set_up((fl_engine_config){.max_memory_timers = 100, .max_in_flight = 16});
    for (int i = 0; i < 2000; i++)
        CHECK_EQ(create(NULL, (1000 + i * 7 % 500) * SECOND / 10, "x").result, 0);
    fl_engine_stats stats;
    for (int i = 0; i < 200; i++) {
        run_for(SECOND);
        fl_engine_get_stats(bed.engine, &stats);
        CHECK(stats.loaded <= 100);
    }
    CHECK_EQ(bed.fired_count, 2000);
    CHECK_EQ(stats.pending, 0);
    tear_down();
}

/* The limit counts bytes, too, wherever the timers stand: all at one moment, or spread, nearest last. */
TEST(little_memory_in_bytes_is_enough)
{
    enum { COUNT = 300, SIZE = 10000, MOST = 500000 };
    static char payload[SIZE + 1];
    memset(payload, 'x', SIZE);
    for (int spread = 0; spread < 4; spread++) {
        static const int64_t step[] = {0, 1, 1000, SECOND / 5};
        set_up((fl_engine_config){.max_memory_bytes = MOST,
                                  .max_in_flight = 8,
                                  .claim_us = 3600 * SECOND,
                                  .strategy = spread == 2 ? FL_LOOKAHEAD : FL_PRELOAD});
        int64_t due_us = START + 200 * SECOND;
        for (int i = 0; i < COUNT; i++)
            CHECK_EQ(create(NULL, due_us + (COUNT - i) * step[spread] - wall_now(&bed.wall.clock), payload).result, 0);
        fl_engine_stats stats;
        for (int i = 0; i < 300; i++) {
            run_for(SECOND);
            fl_engine_get_stats(bed.engine, &stats);
            CHECK(stats.bytes <= MOST + SIZE + 1000);
            CHECK_EQ(fl_engine_check(bed.engine, stdout), 0);
        }
        CHECK_EQ(bed.fired_count, COUNT);
        for (size_t i = 0; i < bed.fired_count; i++)
            CHECK(bed.fired[i].at_us >= due_us);
        CHECK(stats.pressure > 0);
        tear_down();
    }
}

TEST(a_timer_larger_than_the_memory_fires)
{
    static char payload[100001];
    memset(payload, 'x', sizeof payload - 1);
    set_up((fl_engine_config){.max_memory_bytes = 1000, .claim_us = 3600 * SECOND});
    for (int i = 0; i < 5; i++)
        CHECK_EQ(create(NULL, (200 + i % 2) * SECOND, payload).result, 0);
    run_for(220 * SECOND);
    CHECK_EQ(bed.fired_count, 5);
    tear_down();
}

/* More of the same half second than are put into a wheel at once. */
TEST(a_crowd_comes_in_order)
{
    enum { CROWD = 1000, STEP = 7 };
    char name[16];
    int64_t due_us = START + 60 * SECOND;
    set_up((fl_engine_config){.dispatch_batch = 5, .claim_us = 3600 * SECOND});
    for (int i = 0; i < CROWD; i++) { /* in no order, many of the same time */
        int number = i * 387 % CROWD;
        snprintf(name, sizeof name, "%d", number);
        CHECK_EQ(create(name, due_us + number / STEP * 1000 - wall_now(&bed.wall.clock), name).result, 0);
    }
    run_for(due_us - wall_now(&bed.wall.clock) - SECOND / 2 + 100); /* some of them are in it */
    for (int number = 0; number < CROWD; number += 10) {
        snprintf(name, sizeof name, "%d", number);
        CHECK_EQ(by_name(FL_OP_CANCEL, name).result, 0);
    }
    CHECK_EQ(fl_engine_check(bed.engine, stdout), 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, CROWD - CROWD / 10);
    for (size_t i = 1; i < bed.fired_count; i++)
        CHECK(strtol(bed.fired[i - 1].payload, NULL, 10) / STEP <= strtol(bed.fired[i].payload, NULL, 10) / STEP);
    tear_down();
}

TEST(timers_of_many_namespaces_stay_in_them)
{
    enum { SPACES = 600 };
    char ns[16];
    fl_op op = {.kind = FL_OP_CREATE, .timer = {.name = text("name"), .payload = text("x")}};
    set_up((fl_engine_config){.claim_us = 3600 * SECOND});
    bed.answer = FL_FAILED; /* filed again from memory */
    bed.failures = SIZE_MAX;
    for (int i = 0; i < SPACES; i++) {
        snprintf(ns, sizeof ns, "space %d", i);
        op.timer.ns = text(ns);
        op.timer.due_us = START + 30 * SECOND;
        CHECK_EQ(run_op(op).result, 0);
        if (i % 2 == 0) { /* with an ID that tells another time */
            fl_op update = {.kind = FL_OP_UPDATE, .flags = FL_OP_SET_DUE, .timer = op.timer};
            update.timer.due_us += SECOND;
            CHECK_EQ(run_op(update).result, 0);
        }
    }
    run_for(32 * SECOND);
    for (int i = 0; i < SPACES; i++) {
        snprintf(ns, sizeof ns, "space %d", i);
        fl_op get = run_op((fl_op){.kind = FL_OP_GET, .timer = {.ns = text(ns), .name = text("name")}});
        CHECK_EQ(get.result, 0);
        CHECK(get.timer.attempt >= 1);
        CHECK_EQ(get.timer.due_us, START + (30 + (i % 2 == 0)) * SECOND);
    }
    tear_down();
}

TEST(when_memory_is_short_what_is_over_is_deleted_early)
{
    fl_engine_stats stats;
    set_up((fl_engine_config){.max_memory_timers = 100, .delete_interval_us = 86400 * SECOND});
    for (int i = 0; i < 50; i++)
        CHECK_EQ(create(NULL, SECOND, "x").result, 0);
    run_for(90 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.fired, 50);
    CHECK_EQ(stats.rows_deleted, 0);
    for (int i = 0; i < 150; i++)
        CHECK_EQ(create(NULL, 30 * SECOND, "x").result, 0);
    run_for(2 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK(stats.pressure > 0);
    CHECK_EQ(stats.rows_deleted, 50);
    CHECK_EQ(stats.store_deletes, 1);
    CHECK_EQ(stats.pending, 150);
    tear_down();
}

TEST(what_made_room_is_loaded_again_in_time)
{
    for (int i = 0; i < 2; i++) {
        set_up((fl_engine_config){.claim_us = 3600 * SECOND,
                                  .max_memory_timers = 16,
                                  .strategy = i ? FL_LOOKAHEAD : FL_PRELOAD,
                                  .lookahead_us = 60 * SECOND,
                                  .load_interval_us = 30 * SECOND});
        fl_op far = create(NULL, 50 * SECOND, "far");
        CHECK_EQ(far.result, 0);
        run_for(SECOND);
        for (int k = 0; k < 16; k++)
            CHECK_EQ(create(NULL, SECOND, "near").result, 0);
        run_for(200 * SECOND);
        CHECK_EQ(bed.fired_count, 17);
        CHECK_EQ(bed.fired[16].at_us, far.timer.due_us);
        tear_down();
    }
}

static fl_memory_fault take_time(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard, (void)request;
    return (fl_memory_fault){.delay_ns = 10000};
}

TEST(what_is_due_when_it_is_created_needs_one_write)
{
    fl_engine_stats stats;
    set_up((fl_engine_config){0});
    CHECK_EQ(fl_memory_store_faults(bed.store, take_time, NULL), 0);
    run_for(SECOND);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(create(NULL, 0, "x").result, 0);
    run_for(SECOND / 2);
    CHECK_EQ(bed.fired_count, 10);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.store_writes, 10);
    tear_down();
}

TEST(looking_ahead_fires_on_time)
{
    set_up((fl_engine_config){.strategy = FL_LOOKAHEAD});
    int64_t begin = wall_now(&bed.wall.clock);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(create(NULL, i * 7 * SECOND / 2 + 1, "x").result, 0);
    run_for(400 * SECOND);
    CHECK_EQ(bed.fired_count, 100);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(bed.fired[i].at_us, begin + i * 7 * SECOND / 2 + 1);
    tear_down();
}

TEST(the_clock_set_back_and_forth)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create(NULL, 10 * SECOND, "1").result, 0);
    CHECK_EQ(create(NULL, 3600 * SECOND, "2").result, 0);
    run_for(20 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    step_clock(-1000 * SECOND);
    run_for(SECOND);
    int64_t now = wall_now(&bed.wall.clock);
    CHECK_EQ(create(NULL, 5 * SECOND, "3").result, 0);
    run_for(10 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(bed.fired[1].at_us, now + 5 * SECOND);
    step_clock(5000 * SECOND);
    run_for(3 * SECOND); /* recorded, too */
    CHECK_EQ(bed.fired_count, 3);
    stop_engine(true);
    start_engine((fl_engine_config){0});
    run_for(100 * SECOND);
    CHECK_EQ(bed.fired_count, 3);
    tear_down();
}

static fl_listing listing;
static size_t listed;

static void page(fl_listing *l)
{
    CHECK_EQ(l->result, 0);
    listed += l->count;
    fl_loop_stop(bed.loop);
}

static size_t list_range(int64_t from_us, int64_t until_us)
{
    listing = (fl_listing){.limit = 2, .from_us = from_us, .until_us = until_us, .done = page};
    listed = 0;
    do {
        fl_engine_list(bed.engine, &listing);
        CHECK_EQ(fl_loop_run(bed.loop), 0);
        CHECK_EQ(listing.result, 0);
    } while (listing.more);
    return listed;
}

TEST(a_range_of_a_list_is_one_of_due_times)
{
    set_up((fl_engine_config){0});
    bed.failures = 3;
    bed.answer = FL_FAILED;
    bed.answer_at_us = START + 3600 * SECOND;
    int64_t base_us = wall_now(&bed.wall.clock);
    CHECK_EQ(create("retried", SECOND, "1").result, 0);
    CHECK_EQ(create("overdue", -1000 * SECOND, "2").result, 0);
    CHECK_EQ(create("ancient", -2 * START, "3").result, 0);
    CHECK_EQ(create("then", 3600 * SECOND, "4").result, 0);
    CHECK_EQ(create("far", 86400 * SECOND, "5").result, 0);
    run_for(5 * SECOND);
    CHECK_EQ(bed.fired_count, 3);
    CHECK_EQ(list_range(0, 0), 5);
    CHECK_EQ(list_range(base_us - 2000 * SECOND, base_us + 60 * SECOND), 2);
    CHECK_EQ(list_range(base_us - 1000 * SECOND, base_us - 999 * SECOND), 1);
    CHECK_EQ(list_range(0, base_us), 2);
    CHECK_EQ(list_range(INT64_MIN, 1), 1);
    CHECK_EQ(list_range(base_us + 3000 * SECOND, base_us + 4000 * SECOND), 1);
    CHECK_EQ(list_range(base_us + 3000 * SECOND, 0), 2);
    CHECK_EQ(list_range(base_us, base_us), 0);
    tear_down();
}

/* Due in the future again, and filed in the past: it waits for its second attempt. */
TEST(a_range_has_what_was_attempted_before_the_clock_was_set_back)
{
    set_up((fl_engine_config){.max_in_flight = 1});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "a").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    step_clock(-3600 * SECOND);
    run_for(SECOND);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0], .result = FL_FAILED}, 1), 1);
    CHECK_EQ(create("b", 0, "b").result, 0);
    run_for(120 * SECOND);
    CHECK_EQ(bed.fired_count, 2); /* b is under way, and nothing else may be */
    int64_t now_us = wall_now(&bed.wall.clock);
    CHECK_EQ(list_range(now_us - 10 * SECOND, 0), 1);
    CHECK_EQ(list_range(now_us - 10 * SECOND, START + SECOND), 0);
    tear_down();
}

TEST(a_list_has_them_all)
{
    set_up((fl_engine_config){0});
    int pages = 0;
    for (int i = 0; i < 300; i++)
        CHECK_EQ(create(NULL, (int64_t)i * i * 1000 * SECOND, "x").result, 0);
    listing = (fl_listing){.limit = 7, .done = page};
    listed = 0;
    do {
        fl_engine_list(bed.engine, &listing);
        CHECK_EQ(fl_loop_run(bed.loop), 0);
        pages++;
    } while (listing.more);
    CHECK_EQ(listed, 299); /* one has fired */
    CHECK(pages >= 43);
    tear_down();
}

/* --- Forecast ----------------------------------------------------------------------------------------------------- */

static fl_forecast forecast;
static fl_forecast_bar bars[FL_FORECAST_BARS];

static void forecast_came(fl_forecast *f)
{
    (void)f;
    fl_loop_stop(bed.loop);
}

static int ask_forecast(fl_forecast asked)
{
    forecast = asked;
    forecast.bars = bars;
    forecast.done = forecast_came;
    memset(bars, 0xa5, sizeof bars);
    fl_engine_forecast(bed.engine, &forecast);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    return forecast.result;
}

static uint64_t sum_of_bars(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < forecast.count; i++)
        sum += bars[i].timers;
    return sum;
}

static void create_in(const char *ns, int64_t after_us)
{
    int64_t now_us = wall_now(&bed.wall.clock);
    fl_op op = {.kind = FL_OP_CREATE, .timer = {.ns = text(ns), .due_us = now_us + after_us}};
    CHECK_EQ(run_op(op).result, 0);
}

TEST(a_forecast_counts_what_falls_due)
{
    set_up((fl_engine_config){0});
    for (int i = 0; i < 90; i++)
        create_in(i % 3 ? "many" : "few", SECOND / 2 + i * SECOND);
    create_in("\2own", 5 * SECOND);
    create_in("many", -SECOND);
    run_for(SECOND / 10);
    int64_t now_us = wall_now(&bed.wall.clock);
    fl_forecast seconds = {.first_byte = ' ', .from_us = now_us, .step_us = (uint64_t)SECOND, .count = 100};
    CHECK_EQ(ask_forecast(seconds), 0);
    for (size_t i = 0; i < 100; i++) {
        CHECK_EQ(bars[i].timers, i < 90);
        CHECK_EQ(bars[i].spread, 0);
    }
    seconds.ns = text("few");
    CHECK_EQ(ask_forecast(seconds), 0);
    CHECK_EQ(sum_of_bars(), 30);
    seconds.ns = text("nobody");
    CHECK_EQ(ask_forecast(seconds), 0);
    CHECK_EQ(sum_of_bars(), 0);
    seconds.ns = text("");
    seconds.first_byte = 0;
    CHECK_EQ(ask_forecast(seconds), 0);
    CHECK_EQ(sum_of_bars(), 91);
    run_for(45 * SECOND);
    seconds.first_byte = ' ';
    CHECK_EQ(ask_forecast(seconds), 0);
    CHECK_EQ(sum_of_bars(), 45);
    tear_down();
}

TEST(a_forecast_spreads_what_is_counted_together)
{
    set_up((fl_engine_config){0});
    int64_t day = 86400 * SECOND;
    for (int i = 0; i < 1000; i++)
        create_in("ns", 40 * day + i);
    for (int i = 0; i < 500; i++)
        create_in("ns", 3600 * SECOND + i * SECOND);
    fl_forecast days = {.ns = text("ns"), .from_us = wall_now(&bed.wall.clock), .step_us = (uint64_t)day, .count = 100};
    CHECK_EQ(ask_forecast(days), 0);
    CHECK_EQ(sum_of_bars(), 1500);
    CHECK_EQ(bars[0].timers, 500);
    CHECK_EQ(bars[0].spread, 0);
    uint64_t far = 0;
    for (size_t i = 38; i < 43; i++) {
        CHECK_EQ(bars[i].spread, bars[i].timers);
        far += bars[i].timers;
    }
    CHECK_EQ(far, 1000);
    tear_down();
}

TEST(a_crowd_is_estimated)
{
    set_up((fl_engine_config){0});
    for (int i = 0; i < 5000; i++)
        create_in(i % 2 ? "odd" : "even", 10 * SECOND);
    fl_forecast bar = {
        .ns = text("odd"), .from_us = wall_now(&bed.wall.clock), .step_us = (uint64_t)(60 * SECOND), .count = 1};
    CHECK_EQ(ask_forecast(bar), 0);
    CHECK(bars[0].timers > 2300 && bars[0].timers < 2700 && bars[0].spread == bars[0].timers);
    tear_down();
}

TEST(a_forecast_that_makes_no_sense_is_refused)
{
    set_up((fl_engine_config){0});
    create_in("ns", SECOND);
    fl_forecast good = {.from_us = START, .step_us = 1, .count = 1}, bad = good;
    CHECK_EQ(ask_forecast(good), 0);
    bad.step_us = 0;
    CHECK_EQ(ask_forecast(bad), FL_INVALID_ARGUMENT);
    bad = good;
    bad.count = FL_FORECAST_BARS + 1;
    fl_forecast_bar many[FL_FORECAST_BARS + 1];
    bad.bars = many;
    bad.done = forecast_came;
    forecast = bad;
    fl_engine_forecast(bed.engine, &forecast);
    CHECK_EQ(forecast.result, FL_INVALID_ARGUMENT);
    bad = good;
    bad.from_us = -1;
    CHECK_EQ(ask_forecast(bad), FL_INVALID_ARGUMENT);
    tear_down();
}

enum { CROWD = 12000, LISTED = 500 };
static uint8_t seen[CROWD];

static void page_of_crowd(fl_listing *l)
{
    CHECK_EQ(l->result, 0);
    for (size_t i = 0; i < l->count; i++) {
        const fl_bytes *payload = &l->found[i].timer.payload;
        char number[16] = "";
        memcpy(number, payload->data, payload->size);
        seen[strtol(number, NULL, 10)]++;
    }
    fl_loop_stop(bed.loop);
}

static fl_memory_fault slow_refiling(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.delay_ns = request->op == FL_STORE_REFILE ? 1000000000 : 0};
}

TEST(a_list_has_each_once_while_its_windows_are_filed_again)
{
    set_up((fl_engine_config){0});
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < CROWD; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        CHECK_EQ(create(NULL, 60 * 86400 * SECOND + i * SECOND, number).result, 0);
    }
    CHECK_EQ(fl_memory_store_faults(bed.store, slow_refiling, NULL), 0);
    listing = (fl_listing){.limit = LISTED, .done = page_of_crowd};
    for (int pages = 0; pages == 0 || listing.more; pages++) {
        if (pages == 5)
            step_clock(59 * 86400 * SECOND);
        run_for(SECOND / 5);
        fl_engine_list(bed.engine, &listing);
        CHECK_EQ(fl_loop_run(bed.loop), 0);
    }
    for (int i = 0; i < CROWD; i++)
        CHECK_EQ(seen[i], 1);
    tear_down();
}

TEST(what_was_missed_comes_at_the_rate_that_was_asked_for)
{
    set_up((fl_engine_config){0});
    for (int i = 0; i < 100; i++)
        CHECK_EQ(create(NULL, (100 - i) * SECOND, "missed").result, 0);
    stop_engine(false);
    bed.wall.offset_us += 1000 * SECOND;
    start_engine((fl_engine_config){.catch_up_rate = 10});
    for (size_t second = 1; second <= 10; second++) {
        run_for(SECOND);
        CHECK(bed.fired_count >= 10 * second - 1);
        CHECK(bed.fired_count <= 10 * second + 1);
    }
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 100);
    CHECK_EQ(create(NULL, 0, "new").result, 0);
    run_for(SECOND / 100);
    CHECK_EQ(bed.fired_count, 101);
    tear_down();
}

/* However far it had got with its claim. */
TEST(who_is_stopped_at_the_beginning_lets_go_of_the_shard)
{
    for (int turns = 0; turns < 10; turns++) {
        set_up_store();
        start_engine((fl_engine_config){.owner = "one"});
        for (int i = 0; i < turns; i++)
            fl_loop_run_once(bed.loop, false);
        stop_engine(false);
        start_engine((fl_engine_config){.owner = "two"});
        CHECK_EQ(create(NULL, SECOND, "x").result, 0);
        CHECK_EQ(bed.events[FL_ENGINE_HELD], 0);
        tear_down();
    }
}

TEST(a_namespace_has_its_own_idea_of_too_late)
{
    static const uint64_t limits[] = {UINT64_MAX, 0, 500 * SECOND, 5000 * SECOND};
    static const size_t fired[] = {1, 2, 1, 2};
    for (int i = 0; i < 4; i++) {
        set_up((fl_engine_config){0});
        CHECK_EQ(create(NULL, SECOND, "missed").result, 0);
        CHECK_EQ(create(NULL, 995 * SECOND, "just missed").result, 0);
        stop_engine(false);
        bed.wall.offset_us += 1000 * SECOND;
        start_engine((fl_engine_config){.skip_older_us = 100 * SECOND});
        CHECK_EQ(fl_engine_skip_older(bed.engine, text("ns"), limits[i]), 0);
        run_for(SECOND);
        CHECK_EQ(bed.fired_count, fired[i]);
        tear_down();
    }
}

/* Nothing but what was seen of the store wakes it here: the claim is long, and it asks by itself only every 30 s. */
TEST(looking_ahead_sleeps_past_nothing_however_many_rows_a_load_brings)
{
    for (uint32_t rows = 1; rows <= 3; rows++)
        for (unsigned together = 1; together <= 3; together++) {
            set_up((fl_engine_config){.strategy = FL_LOOKAHEAD,
                                      .load_batch = rows,
                                      .load_interval_us = 30 * SECOND,
                                      .claim_us = 600 * SECOND});
            for (unsigned i = 0; i < 9; i++)
                CHECK_EQ(create(NULL, (10 + i / together) * SECOND, "x").result, 0);
            int64_t first_us = wall_now(&bed.wall.clock) + 10 * SECOND;
            run_for(60 * SECOND);
            CHECK_EQ(bed.fired_count, 9);
            for (unsigned i = 0; i < 9; i++)
                CHECK(bed.fired[i].at_us < first_us + i / together * SECOND + SECOND / 10);
            tear_down();
        }
}

static fl_memory_fault refuse_to_finish(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.result = request->op == FL_STORE_FINISH ? FL_STORE_UNAVAILABLE : 0};
}

static void keep_result(fl_batch *batch)
{
    (void)batch;
}

/* FL_STOPPED says that the operation may be given to the next owner of the shard as it is. The clock was set back, so changes wait until
 * the store has moved the front back. */
TEST(an_operation_that_was_stopped_is_what_it_was)
{
    static char name[] = "a";
    static const enum fl_op_kind kinds[] = {FL_OP_UPDATE, FL_OP_CANCEL};
    for (int i = 0; i < 2; i++) {
        fl_op op = {.kind = kinds[i],
                    .flags = FL_OP_SET_PAYLOAD,
                    .timer = {.ns = text("ns"), .name = {name, 1}, .payload = text("y")}};
        fl_batch batch = {.ops = &op, .count = 1, .done = keep_result};
        set_up((fl_engine_config){0});
        CHECK_EQ(create(name, 1000 * SECOND, "x").result, 0);
        run_for(10 * SECOND);
        CHECK_EQ(fl_memory_store_faults(bed.store, refuse_to_finish, NULL), 0);
        step_clock(-100 * SECOND);
        fl_engine_submit(bed.engine, &batch);
        run_for(SECOND);
        CHECK_EQ(op.result, 0);
        stop_engine(false);
        CHECK(op.result < 0 && (op.result != FL_STOPPED || op.timer.name.data == name));
        start_engine((fl_engine_config){0});
        tear_down();
    }
}

/* More attempts than a load brings are under way: what is due meanwhile fires. */
TEST(looking_ahead_goes_on_while_attempts_are_under_way)
{
    set_up((fl_engine_config){
        .strategy = FL_LOOKAHEAD, .load_batch = 2, .load_interval_us = 30 * SECOND, .claim_us = 600 * SECOND});
    bed.keep = true;
    for (int i = 0; i < 5; i++)
        CHECK_EQ(create(NULL, 0, "under way").result, 0);
    int64_t due_us = create(NULL, 10 * SECOND, "later").timer.due_us;
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 6);
    CHECK(bed.fired[5].at_us < due_us + SECOND / 10);
    tear_down();
}

/* One that is under way is replaced, and settled afterwards in one way or another. */
TEST(statistics_of_attempts_that_were_replaced)
{
    static const enum fl_settle results[] = {FL_DONE, FL_FAILED, FL_AGAIN, FL_DEAD, FL_LATER, FL_EXPIRED};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        fl_engine_stats stats;
        set_up((fl_engine_config){0});
        bed.keep = true;
        CHECK_EQ(create("a", 0, "old").result, 0);
        run_for(SECOND);
        fl_op op = create("a", 100 * SECOND, "new");
        CHECK_EQ(op.outcome, FL_REPLACED);
        fl_settlement settlement = {.token = bed.tokens[0], .result = results[i], .at_us = START + 50 * SECOND};
        CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1);
        run_for(60 * SECOND);
        fl_engine_get_stats(bed.engine, &stats);
        CHECK_EQ(stats.pending, 1);
        CHECK_EQ(stats.replaced, 1);
        CHECK_EQ(stats.in_flight, 0);
        CHECK_EQ(stats.fired, results[i] == FL_DONE);
        CHECK_EQ(stats.failed, results[i] == FL_FAILED || results[i] == FL_DEAD || results[i] == FL_EXPIRED);
        CHECK_EQ(stats.retried + stats.again + stats.later + stats.dead, 0); /* nothing comes of it */
        bed.keep = false;
        run_for(100 * SECOND);
        fl_engine_get_stats(bed.engine, &stats);
        CHECK_EQ(bed.fired_count, 2);
        CHECK_EQ(stats.pending, 0);
        tear_down();
    }
}

/* Put off beyond the end of time: given up, and counted as that. */
TEST(statistics_of_what_is_put_off_beyond_the_end_of_time)
{
    static const enum fl_settle results[] = {FL_FAILED, FL_AGAIN, FL_LATER, FL_EXPIRED};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        fl_engine_stats stats;
        set_up((fl_engine_config){0});
        bed.answer = results[i];
        bed.answer_at_us = FL_STORE_TIME_END;
        bed.failures = 1;
        CHECK_EQ(create("a", SECOND, "x").result, 0);
        run_for(10 * SECOND);
        fl_engine_get_stats(bed.engine, &stats);
        CHECK_EQ(bed.fired_count, 1);
        CHECK_EQ(stats.pending, 0);
        CHECK_EQ(stats.dead, 1);
        CHECK_EQ(stats.retried + stats.again + stats.later, 0);
        CHECK_EQ(by_name(FL_OP_GET, "a").result, FL_TIMER_NOT_FOUND);
        tear_down();
    }
}

/* The store has forgotten a timer. Its ID must not become that of another. */
TEST(an_id_is_not_used_again_after_the_store_went_back)
{
    set_up((fl_engine_config){0});
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_mark(bed.store), 0);
    stop_engine(true);
    start_engine((fl_engine_config){.force = true});
    fl_op lost = create(NULL, 1000 * SECOND, "lost");
    CHECK_EQ(lost.result, 0);
    CHECK_EQ(fl_memory_store_go_back(bed.store), 0);
    run_for(60 * SECOND);
    stop_engine(true);
    start_engine((fl_engine_config){.force = true});
    fl_op other = create(NULL, lost.timer.due_us - wall_now(&bed.wall.clock), "other");
    CHECK_EQ(other.result, 0);
    CHECK_EQ(other.timer.id.at_us, lost.timer.id.at_us);
    CHECK(other.timer.id.seq != lost.timer.id.seq);
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_CANCEL, .timer.id = lost.timer.id}).result, FL_TIMER_NOT_FOUND);
    run_for(1000 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

static size_t count_found(int count)
{
    size_t found = 0;
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        found += run_op((fl_op){.kind = FL_OP_GET, .timer = {.ns = text("old"), .name = text(name)}}).result == 0;
    }
    return found;
}

/* A crowd of one time that memory has no room for: the front stands in the middle of it, and what is skipped behind that is
 * over all the same. */
TEST(what_is_skipped_is_gone_at_once)
{
    enum { COUNT = 60 };
    fl_engine_stats stats;
    set_up((fl_engine_config){.wait = true});
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i / 2);
        fl_durable timer = {
            .ns = text(i % 2 ? "old" : "ns"), .name = text(name), .due_us = START + 5 * SECOND, .payload = text("x")};
        CHECK_EQ(run_op((fl_op){.kind = FL_OP_CREATE, .timer = timer}).result, 0);
    }
    run_for(100 * SECOND);
    stop_engine(false);
    bed.keep = true;
    start_engine((fl_engine_config){.max_memory_timers = 16});
    CHECK_EQ(fl_engine_skip_older(bed.engine, text("old"), 10 * SECOND), 0);
    run_for(20 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK(stats.skipped > 0 && stats.skipped < COUNT / 2);
    CHECK_EQ(stats.pending, COUNT - stats.skipped);
    CHECK_EQ(count_found(COUNT / 2), COUNT / 2 - stats.skipped);
    bed.keep = false;
    for (size_t i = 0; i < bed.fired_count; i++)
        fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[i]}, 1);
    run_for(20 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.skipped, COUNT / 2);
    CHECK_EQ(bed.fired_count, COUNT / 2);
    CHECK_EQ(stats.pending, 0);
    tear_down();
}
