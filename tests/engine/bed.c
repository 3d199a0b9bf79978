/* SPDX-License-Identifier: MIT */
/* See bed.h. */

#include "engine/bed.h"

#include <string.h>

#include "test.h"

int64_t wall_now(fl_wall_clock *clock)
{
    struct wall *wall = (struct wall *)clock;
    return wall->offset_us + (int64_t)(wall->time.clock.now_ns(&wall->time.clock) / 1000);
}

struct bed bed;

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        CHECK(bed.fired_count < FIRED_MOST);
        struct fired *fired = &bed.fired[bed.fired_count];
        *fired = (struct fired){.at_us = wall_now(&bed.wall.clock), .attempt = firings[i].timer.attempt};
        memcpy(fired->payload, firings[i].timer.payload.data, firings[i].timer.payload.size);
        bed.tokens[bed.fired_count++] = firings[i].token;
        CHECK(fired->at_us >= firings[i].timer.due_us);
        if (bed.keep)
            continue;
        fl_settlement settlement = {.token = firings[i].token, .reason = FL_TEXT("because")};
        if (bed.failures > 0) {
            bed.failures--;
            settlement.result = bed.answer;
            settlement.at_us = bed.answer_at_us;
            if ((bed.answer == FL_AGAIN || bed.answer == FL_LATER) && bed.answer_at_us == 0)
                settlement.at_us = fired->at_us + 10 * SECOND;
        }
        CHECK_EQ(fl_engine_settle(engine, &settlement, 1), 1);
    }
}

static void notify(void *arg, fl_engine *engine, enum fl_engine_event event, int result, const char *message)
{
    (void)arg, (void)engine, (void)result, (void)message;
    bed.events[event]++;
}

int try_start(fl_engine_config config)
{
    config.loop = bed.loop;
    config.store = bed.store;
    if (!config.owner)
        config.owner = "test";
    config.notify = notify;
    config.clock = &bed.wall.clock;
    config.seed = 1;
    if (!config.dispatch)
        config.dispatch = dispatch;
    return fl_engine_start(&config, &bed.engine);
}

void start_engine(fl_engine_config config)
{
    CHECK_EQ(try_start(config), 0);
}

void set_up_store(void)
{
    char message[256];
    memset(&bed, 0, sizeof bed);
    bed.wall.clock.now_us = wall_now;
    bed.wall.offset_us = START;
    fl_virtual_clock_init(&bed.wall.time, 1000);
    CHECK_EQ(fl_loop_new(&(fl_loop_config){.clock = &bed.wall.time.clock}, &bed.loop), 0);
    fl_store_config store = {.shards = 1, .clock = &bed.wall.clock};
    CHECK_EQ(fl_store_open("memory:", &store, &bed.store, message, sizeof message), 0);
}

void set_up(fl_engine_config config)
{
    set_up_store();
    start_engine(config);
}

static void stopped(fl_loop *loop, void *arg)
{
    (void)arg;
    bed.stopped = true;
    fl_loop_stop(loop);
}

void stop_engine(bool now)
{
    bed.stopped = false;
    fl_engine_stop(bed.engine, now, stopped, NULL);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    CHECK(bed.stopped);
}

void tear_down_store(void)
{
    fl_store_close(bed.store);
    fl_loop_free(bed.loop);
}

void tear_down(void)
{
    stop_engine(false);
    tear_down_store();
}

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

void run_for(int64_t us)
{
    CHECK_EQ(fl_loop_timer(bed.loop, (uint64_t)us * 1000, stop_loop, NULL, NULL), 0);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    CHECK_EQ(fl_engine_check(bed.engine, stdout), 0);
}

void step_clock(int64_t by_us)
{
    bed.wall.offset_us += by_us;
    fl_engine_clock_changed(bed.engine);
}

static void batch_done(fl_batch *batch)
{
    *(bool *)batch->arg = true;
    fl_loop_stop(bed.loop);
}

fl_bytes text(const char *s)
{
    return (fl_bytes){s, s ? strlen(s) : 0};
}

fl_op run_op(fl_op op)
{
    bool done = false;
    fl_batch batch = {.ops = &op, .count = 1, .done = batch_done, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    CHECK(!done);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    CHECK(done);
    return op;
}

fl_op create(const char *name, int64_t after_us, const char *payload)
{
    return run_op((fl_op){.kind = FL_OP_CREATE,
                          .timer = {.ns = text("ns"),
                                    .name = text(name),
                                    .due_us = wall_now(&bed.wall.clock) + after_us,
                                    .payload = text(payload)}});
}

fl_op by_name(enum fl_op_kind kind, const char *name)
{
    return run_op((fl_op){.kind = kind, .timer = {.ns = text("ns"), .name = text(name)}});
}
