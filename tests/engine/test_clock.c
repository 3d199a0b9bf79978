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
