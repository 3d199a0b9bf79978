/* SPDX-License-Identifier: MIT */
/* Attempts that wait in lanes: begun, withdrawn, parked, called again. */

#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "test.h"

enum { LANE = 7, MOST = 200 };

static struct {
    uint64_t tokens[MOST]; /* of those that wait, in order */
    char payloads[MOST][32];
    size_t count;
    size_t offered;   /* dispatched so far */
    size_t withdrawn; /* given back */
    bool begun;       /* what is wanted back has begun */
    bool settles;     /* everything at once, in no lane */
    char order[MOST][32];
    size_t order_count;
} lane;

static void drop(uint64_t token)
{
    size_t i = 0;
    while (i < lane.count && lane.tokens[i] != token)
        i++;
    CHECK(i < lane.count);
    memmove(&lane.tokens[i], &lane.tokens[i + 1], (lane.count - i - 1) * sizeof *lane.tokens);
    memmove(lane.payloads[i], lane.payloads[i + 1], (lane.count - i - 1) * sizeof *lane.payloads);
    lane.count--;
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        char payload[32] = {0};
        uint64_t token = firings[i].token;
        memcpy(payload, firings[i].timer.payload.data, firings[i].timer.payload.size);
        lane.offered++;
        if (lane.settles) {
            memcpy(lane.order[lane.order_count++], payload, sizeof payload);
            CHECK_EQ(fl_engine_settle(engine, &(fl_settlement){.token = token}, 1), 1);
        } else if (fl_engine_wait(engine, token, LANE, &lane)) {
            CHECK(lane.count < MOST);
            lane.tokens[lane.count] = token;
            memcpy(lane.payloads[lane.count++], payload, sizeof payload);
        }
    }
}

static bool withdraw(void *arg, fl_engine *engine, uint64_t token, void *handle)
{
    (void)arg, (void)engine;
    CHECK(handle == &lane);
    if (lane.begun)
        return false;
    drop(token);
    lane.withdrawn++;
    return true;
}

static fl_engine_config config(uint32_t most)
{
    return (fl_engine_config){.dispatch = dispatch, .withdraw = withdraw, .max_waiting = most};
}

static void set_up_lane(uint32_t most)
{
    memset(&lane, 0, sizeof lane);
    set_up(config(most));
}

static fl_engine_stats stats(void)
{
    fl_engine_stats ret;
    fl_engine_get_stats(bed.engine, &ret);
    return ret;
}

/* So many, due at once, in this order. */
static void create_many(int count)
{
    for (int i = 0; i < count; i++) {
        char payload[16];
        snprintf(payload, sizeof payload, "%03d", i);
        CHECK_EQ(create(payload, 0, payload).result, 0);
    }
    run_for(SECOND);
}

static int settle_first(enum fl_settle result)
{
    uint64_t token = lane.tokens[0];
    if (!fl_engine_begin(bed.engine, token, false))
        return 0;
    drop(token);
    return (int)fl_engine_settle(bed.engine, &(fl_settlement){.token = token, .result = result}, 1);
}

TEST(an_attempt_waits_begins_and_is_settled)
{
    set_up_lane(0);
    create_many(1);
    CHECK_EQ(lane.count, 1);
    CHECK_EQ(stats().waiting, 1);
    CHECK_EQ(stats().in_flight, 0);
    CHECK(fl_engine_begin(bed.engine, lane.tokens[0], false));
    CHECK_EQ(stats().waiting, 0);
    CHECK_EQ(stats().in_flight, 1);
    CHECK_EQ(by_name(FL_OP_CANCEL, "000").result, FL_BUSY);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = lane.tokens[0]}, 1), 1);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = lane.tokens[0]}, 1), 0);
    CHECK(!fl_engine_begin(bed.engine, lane.tokens[0], false));
    run_for(SECOND);
    CHECK_EQ(stats().pending, 0);
    CHECK_EQ(stats().fired, 1);
    CHECK_EQ(stats().in_flight, 0);
    CHECK_EQ(by_name(FL_OP_GET, "000").result, FL_TIMER_NOT_FOUND);
    tear_down();
}

TEST(what_waits_can_be_cancelled_and_replaced)
{
    set_up_lane(0);
    create_many(3);
    CHECK_EQ(lane.count, 3);
    CHECK_EQ(by_name(FL_OP_CANCEL, "001").result, 0);
    CHECK_EQ(lane.withdrawn, 1);
    fl_op op = create("002", 5 * SECOND, "new");
    CHECK_EQ(op.result, 0);
    CHECK_EQ(op.outcome, FL_REPLACED);
    CHECK_EQ(lane.withdrawn, 2);
    CHECK_EQ(lane.count, 1);
    CHECK_EQ(stats().pending, 2);
    run_for(10 * SECOND);
    CHECK_EQ(lane.count, 2);
    CHECK(strcmp(lane.payloads[1], "new") == 0);
    while (lane.count > 0)
        CHECK_EQ(settle_first(FL_DONE), 1);
    run_for(SECOND);
    CHECK_EQ(stats().pending, 0);
    CHECK_EQ(stats().fired, 2);
    CHECK_EQ(stats().replaced, 1);
    tear_down();
}

/* The dispatcher has begun it on another thread: it is under way, and a replacement leaves it to its end. */
TEST(what_has_begun_is_not_given_back)
{
    set_up_lane(0);
    create_many(2);
    lane.begun = true;
    CHECK_EQ(by_name(FL_OP_CANCEL, "000").result, FL_BUSY);
    fl_op op = create("001", 100 * SECOND, "new");
    CHECK_EQ(op.result, 0);
    CHECK_EQ(op.outcome, FL_REPLACED);
    CHECK_EQ(stats().waiting, 0);
    CHECK_EQ(stats().in_flight, 2);
    for (int i = 0; i < 2; i++) {
        uint64_t token = lane.tokens[0];
        drop(token);
        CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = token}, 1), 1);
    }
    run_for(SECOND);
    CHECK_EQ(stats().pending, 1);
    CHECK_EQ(stats().fired, 2);
    CHECK_EQ(stats().in_flight, 0);
    lane.settles = true;
    run_for(200 * SECOND);
    CHECK_EQ(lane.order_count, 1);
    CHECK_EQ(stats().pending, 0);
    tear_down();
}

/* What exceeds the share is in the store only, can be cancelled there, and comes again in the order of parking. */
TEST(what_exceeds_the_share_is_parked_and_comes_again)
{
    enum { COUNT = 100 };
    set_up_lane(8);
    create_many(COUNT);
    CHECK(lane.count >= 1 && lane.count <= 8);
    CHECK_EQ(stats().waiting, lane.count);
    CHECK_EQ(stats().pending, COUNT);
    CHECK(stats().parked >= COUNT - 8);
    CHECK(stats().loaded <= 16);
    CHECK_EQ(by_name(FL_OP_CANCEL, "050").result, 0);
    CHECK_EQ(by_name(FL_OP_GET, "051").result, 0);
    CHECK_EQ(stats().pending, COUNT - 1);
    int settled = 0;
    char last[32] = "";
    while (lane.count > 0) {
        CHECK(strcmp(last, lane.payloads[0]) < 0);
        CHECK(strcmp(lane.payloads[0], "050") != 0);
        memcpy(last, lane.payloads[0], sizeof last);
        CHECK_EQ(settle_first(FL_DONE), 1);
        settled++;
        run_for(SECOND / 10);
    }
    CHECK_EQ(settled, COUNT - 1);
    CHECK_EQ(stats().pending, 0);
    CHECK(stats().unparked > 0);
    tear_down();
}

/* Every second time as after a crash. */
TEST(what_is_parked_comes_again_after_a_restart)
{
    for (int i = 0; i < 4; i++) {
        enum { COUNT = 60 };
        set_up_lane(i < 2 ? 4 : 0);
        if (i >= 2)
            CHECK_EQ(fl_engine_close_lane(bed.engine, LANE, true), 0);
        create_many(COUNT);
        run_for(5 * SECOND);
        stop_engine(i % 2);
        memset(&lane, 0, sizeof lane);
        lane.settles = true;
        start_engine(config(0)); /* and lanes are open again */
        run_for(20 * SECOND);
        CHECK_EQ(lane.order_count, COUNT);
        CHECK_EQ(stats().pending, 0);
        stop_engine(true);
        start_engine(config(0));
        run_for(20 * SECOND);
        CHECK_EQ(stats().pending, 0);
        CHECK_EQ(lane.order_count, COUNT); /* and not again: that was recorded */
        tear_down();
    }
}

static fl_memory_fault write_late(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.delay_ns = request->op == FL_STORE_WRITE ? 300000000 : 0};
}

/* Its row must be removed: the record of progress does not settle what was parked. Every second time, the store is slow, and more is
 * settled than goes to it at once. */
TEST(what_is_settled_right_before_the_end_is_over)
{
    static const enum fl_settle results[] = {FL_DONE, FL_DEAD};
    for (int i = 0; i < 8; i++) {
        set_up_lane(0);
        if (i % 4 < 2)
            CHECK_EQ(fl_engine_close_lane(bed.engine, LANE, true), 0);
        create_many(10);
        CHECK_EQ(fl_engine_close_lane(bed.engine, LANE, false), 0);
        run_for(SECOND);
        if (i >= 4)
            CHECK_EQ(fl_memory_store_faults(bed.store, write_late, NULL), 0);
        while (lane.count > 0) {
            CHECK_EQ(settle_first(results[i % 2]), 1);
            run_for(i >= 4 ? 1000 : 0);
        }
        stop_engine(false);
        CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
        memset(&lane, 0, sizeof lane);
        start_engine(config(0));
        run_for(20 * SECOND);
        CHECK_EQ(lane.offered, 0);
        CHECK_EQ(stats().pending, 0);
        tear_down();
    }
}

TEST(a_closed_lane_parks_everything_and_delays_nothing_else)
{
    set_up_lane(0);
    CHECK_EQ(fl_engine_close_lane(bed.engine, 1u << 24, true), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_engine_close_lane(bed.engine, LANE, true), 0);
    create_many(20);
    CHECK_EQ(lane.count, 0);
    CHECK_EQ(stats().parked, 20);
    CHECK_EQ(stats().loaded, 0);
    CHECK_EQ(stats().pending, 20);
    run_for(100 * SECOND);
    CHECK_EQ(lane.offered, 20); /* they are not offered again and again */
    int64_t next_us = 0;
    CHECK(fl_engine_idle(bed.engine, &next_us));
    lane.settles = true;
    CHECK_EQ(create(NULL, SECOND, "other").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(lane.order_count, 1);
    lane.settles = false;
    CHECK_EQ(fl_engine_close_lane(bed.engine, LANE, false), 0);
    run_for(SECOND);
    CHECK_EQ(lane.count, 20);
    while (lane.count > 0)
        CHECK_EQ(settle_first(FL_DONE), 1);
    run_for(SECOND);
    CHECK_EQ(stats().pending, 0);
    tear_down();
}

/* What waits and what is parked is not due any more: it comes again when it is. */
TEST(the_clock_is_set_back_while_timers_wait)
{
    set_up_lane(8);
    create_many(30);
    size_t waited = lane.count;
    CHECK(waited > 0);
    step_clock(-100 * SECOND);
    run_for(50 * SECOND);
    CHECK(lane.withdrawn >= waited);
    CHECK_EQ(lane.count, 0);
    CHECK_EQ(stats().pending, 30);
    lane.settles = true;
    run_for(100 * SECOND);
    CHECK_EQ(lane.order_count, 30);
    CHECK_EQ(stats().pending, 0);
    tear_down();
}

/* The claim has run out: the attempt is put off, and fires once. */
TEST(what_must_not_begin_is_put_off)
{
    set_up_lane(0);
    create_many(2);
    fl_engine *first = bed.engine;
    uint64_t token = lane.tokens[0];
    bed.wall.time.time_ns += 60 * (uint64_t)SECOND * 1000;
    CHECK(!fl_engine_begin(first, token, true));
    drop(token);
    CHECK_EQ(fl_engine_settle(first, &(fl_settlement){.token = token, .result = FL_LATER}, 1), 1);
    run_for(SECOND);
    CHECK_EQ(lane.count, 2); /* the engine has renewed its claim */
    CHECK_EQ(stats().later, 1);
    while (lane.count > 0)
        CHECK_EQ(settle_first(FL_DONE), 1);
    run_for(SECOND);
    CHECK_EQ(stats().pending, 0);
    CHECK_EQ(stats().fired, 2);
    tear_down();
}

/* With retries: each waits anew, the attempts are counted, and what fails too often is given up. */
TEST(what_has_waited_fails_and_waits_again)
{
    memset(&lane, 0, sizeof lane);
    fl_engine_config with_retry = config(4);
    with_retry.retry =
        (fl_retry){.max_attempts = 3, .multiplier_1000 = 1000, .initial_us = SECOND, .max_interval_us = SECOND};
    set_up(with_retry);
    create_many(10);
    int failed = 0;
    for (int i = 0; i < 1000 && stats().pending > 0; i++) {
        if (lane.count > 0)
            failed += settle_first(FL_FAILED);
        run_for(SECOND / 10);
    }
    CHECK_EQ(failed, 30);
    CHECK_EQ(stats().dead, 10);
    CHECK_EQ(stats().retried, 20);
    CHECK_EQ(stats().pending, 0);
    tear_down();
}
