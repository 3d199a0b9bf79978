/* SPDX-License-Identifier: MIT */
/* An engine lives a life in which something of everything happens, and each of its allocations fails once.
 *
 * Whatever fails: every operation is answered; what was acknowledged fires, not early, and not after an acknowledged cancel;
 * and when all is over, nothing is left in memory. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "test.h"
#include "wheel/allocator.h"

enum { TIMERS = 48, BEATS = 12 };

static struct life {
    struct entry {
        bool created, cancelled, fired;
        bool disappointed; /* it has been settled as failed once */
        fl_key id;
        char name[16], payload[16];
    } timers[TIMERS];
    uint64_t late[1024]; /* tokens to be settled later */
    size_t late_count;
    uint32_t unanswered;
    bool ticks;           /* a ticker was created */
    uint8_t beats[BEATS]; /* how often each of the timers that it creates has fired */
    uint64_t beat_ids[BEATS];
    unsigned acknowledged; /* so many were created for sure */
} life;

/* The test's own calls do not fail. */
static struct memory armed;

static void disarm(void)
{
    armed = memory;
    memory_fail(0, false);
}

static void rearm(void)
{
    memory_fail(armed.fail_in, armed.fail_on);
}

/* --- A timer that creates timers ----------------------------------------------------------------------------------- */

struct advance {
    fl_batch batch;
    fl_op ops[3];
    uint32_t made, numbers[2];
};

static void advanced(fl_batch *batch)
{
    struct advance *advance = (struct advance *)batch;
    if (batch->ops[0].result == 0)
        life.acknowledged = advance->made;
    life.unanswered--;
    free(advance);
}

/* Its payload is how many it has made: two more each time. */
static void tick(fl_engine *engine, const fl_firing *firing)
{
    struct advance *advance = calloc(1, sizeof *advance);
    uint32_t from;
    int64_t now_us = wall_now(&bed.wall.clock);
    CHECK(advance);
    memcpy(&from, firing->timer.payload.data, sizeof from);
    CHECK(from >= life.acknowledged); /* what is acknowledged is not forgotten */
    advance->made = from + 2;
    fl_bytes payload = {&advance->made, sizeof advance->made};
    int64_t next_us = advance->made < BEATS ? now_us + 3 * SECOND : FL_TIME_NEVER_US;
    advance->ops[0] = (fl_op){.kind = FL_OP_UPDATE,
                              .flags = FL_OP_SET_DUE | FL_OP_SET_PAYLOAD,
                              .timer = {.due_us = next_us, .payload = payload}};
    for (uint32_t i = 0; i < 2; i++) {
        advance->numbers[i] = from + i;
        payload = (fl_bytes){&advance->numbers[i], sizeof from};
        advance->ops[1 + i] = (fl_op){
            .kind = FL_OP_CREATE,
            .timer = {.ns = text("beats"), .due_us = now_us + i * SECOND, .payload = payload, .schedule = text("t")}};
    }
    advance->batch = (fl_batch){.ops = advance->ops, .count = 3, .done = advanced};
    life.unanswered++;
    fl_settlement settlement = {.token = firing->token, .result = FL_ADVANCE, .batch = &advance->batch};
    CHECK_EQ(fl_engine_settle(engine, &settlement, 1), 1);
}

static void beat(fl_engine *engine, const fl_firing *firing)
{
    uint32_t number;
    memcpy(&number, firing->timer.payload.data, sizeof number);
    CHECK(number < BEATS);
    CHECK(life.beats[number] == 0 || life.beat_ids[number] == firing->timer.id.seq); /* not created twice */
    life.beats[number]++;
    life.beat_ids[number] = firing->timer.id.seq;
    fl_engine_settle(engine, &(fl_settlement){.token = firing->token}, 1);
}

/* Whether it was one of these. */
static bool ticked(fl_engine *engine, const fl_firing *firing)
{
    if (firing->timer.ns.size == strlen("ticks") && memcmp(firing->timer.ns.data, "ticks", 5) == 0)
        tick(engine, firing);
    else if (firing->timer.schedule.size > 0)
        beat(engine, firing);
    else
        return false;
    return true;
}

static fl_op tick_op;

static void tick_created(fl_batch *batch)
{
    life.ticks = batch->ops[0].result == 0;
    life.unanswered--;
}

static void create_ticker(void)
{
    static fl_batch batch;
    static const uint32_t none = 0;
    tick_op = (fl_op){.kind = FL_OP_CREATE,
                      .timer = {.ns = text("ticks"),
                                .name = text("t"),
                                .due_us = wall_now(&bed.wall.clock) + SECOND,
                                .payload = {&none, sizeof none}}};
    batch = (fl_batch){.ops = &tick_op, .count = 1, .done = tick_created};
    life.unanswered++;
    fl_engine_submit(bed.engine, &batch);
}

/* --- Firing -------------------------------------------------------------------------------------------------------- */

static enum fl_settle verdict(int number)
{
    return number % 5 == 1 ? FL_FAILED : number % 7 == 3 ? FL_DEAD : number % 11 == 4 ? FL_AGAIN : FL_DONE;
}

static void dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        const fl_durable *timer = &firings[i].timer;
        char payload[16] = "";
        if (ticked(engine, &firings[i]))
            continue;
        memcpy(payload, timer->payload.data, timer->payload.size);
        int number = (int)strtol(payload, NULL, 10);
        struct entry *entry = &life.timers[number];
        CHECK(!entry->cancelled);
        CHECK(wall_now(&bed.wall.clock) >= timer->due_us);
        entry->fired = true;
        fl_settlement settlement = {.token = firings[i].token, .reason = FL_TEXT("no")};
        if (!entry->disappointed) {
            entry->disappointed = true;
            settlement.result = verdict(number);
            settlement.at_us = wall_now(&bed.wall.clock) + SECOND;
        }
        if (number % 3 == 0 && life.late_count < 1024)
            life.late[life.late_count++] = settlement.token;
        else
            fl_engine_settle(engine, &settlement, 1);
    }
}

static void settle_late(void)
{
    for (size_t i = 0; i < life.late_count; i++)
        fl_engine_settle(bed.engine, &(fl_settlement){.token = life.late[i]}, 1);
    life.late_count = 0;
}

/* --- Operations ---------------------------------------------------------------------------------------------------- */

enum { BATCH = 8 };

struct job {
    fl_batch batch;
    fl_op ops[BATCH];
    int numbers[BATCH];
};

static bool is_excuse(int result)
{
    return result == FL_NO_MEMORY || result == FL_STORE_UNAVAILABLE || result == FL_TIMER_NOT_FOUND ||
           result == FL_BUSY;
}

static void done(fl_batch *batch)
{
    struct job *job = (struct job *)batch;
    for (size_t i = 0; i < batch->count; i++) {
        const fl_op *op = &job->ops[i];
        struct entry *entry = &life.timers[job->numbers[i]];
        if (op->result != 0 && !is_excuse(op->result))
            test_fail(__FILE__, __LINE__, "operation %d says: %s", (int)op->kind, fl_strerror(op->result));
        if (op->result == 0 && op->kind == FL_OP_CREATE) {
            entry->fired &= !entry->created; /* the first may fire before it is acknowledged */
            entry->created = true;
            entry->cancelled = false;
            entry->id = op->timer.id;
        } else if (op->result == 0 && op->kind == FL_OP_CANCEL) {
            entry->cancelled = true;
        }
    }
    life.unanswered--;
    free(job);
}

static void fill_op(fl_op *op, enum fl_op_kind kind, int number, int64_t after_us)
{
    struct entry *entry = &life.timers[number];
    snprintf(entry->name, sizeof entry->name, "n%d", number);
    snprintf(entry->payload, sizeof entry->payload, "%d", number);
    *op = (fl_op){.kind = kind, .flags = kind == FL_OP_UPDATE ? FL_OP_SET_DUE : 0};
    op->timer = (fl_durable){.ns = text("ns"),
                             .id = entry->id,
                             .due_us = wall_now(&bed.wall.clock) + after_us,
                             .payload = text(entry->payload)};
    if (number % 2)
        op->timer.name = text(entry->name);
}

/* Does the same to every `step`-th timer. */
static void submit(enum fl_op_kind kind, int first, int step, int64_t after_us)
{
    struct job *job = NULL;
    for (int number = first; number < TIMERS; number += step) {
        if (kind != FL_OP_CREATE && !life.timers[number].created)
            continue;
        if (!job)
            job = calloc(1, sizeof *job);
        CHECK(job);
        job->numbers[job->batch.count] = number;
        fill_op(&job->ops[job->batch.count++], kind, number, after_us + number * SECOND);
        if (job->batch.count < BATCH && number + step < TIMERS)
            continue;
        job->batch.ops = job->ops;
        job->batch.done = done;
        life.unanswered++;
        fl_engine_submit(bed.engine, &job->batch);
        job = NULL;
    }
    if (job) {
        job->batch.ops = job->ops;
        job->batch.done = done;
        life.unanswered++;
        fl_engine_submit(bed.engine, &job->batch);
    }
}

static void listed(fl_listing *listing)
{
    if (listing->result != 0 && !is_excuse(listing->result))
        test_fail(__FILE__, __LINE__, "a list says %d: %s", listing->result, fl_strerror(listing->result));
    life.unanswered--;
}

static void list(bool dead)
{
    static fl_listing listing[2];
    listing[dead] = (fl_listing){.dead = dead, .limit = 5, .done = listed};
    life.unanswered++;
    fl_engine_list(bed.engine, &listing[dead]);
}

/* --- A life -------------------------------------------------------------------------------------------------------- */

static fl_engine_config settings = {
    .dispatch = dispatch,
    .max_memory_timers = 30,
    .max_in_flight = 8,
    .dispatch_batch = 4,
    .retry = {.max_attempts = 5, .multiplier_1000 = 2000, .initial_us = SECOND, .max_interval_us = 4 * SECOND}};

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void pass(int64_t us)
{
    disarm();
    CHECK_EQ(fl_loop_timer(bed.loop, (uint64_t)us * 1000, stop_loop, NULL, NULL), 0);
    rearm();
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    CHECK_EQ(fl_engine_check(bed.engine, stdout), 0);
}

static void live(void)
{
    submit(FL_OP_CREATE, 0, 1, SECOND);
    create_ticker();
    pass(SECOND / 2);
    submit(FL_OP_UPDATE, 2, 6, 5 * SECOND);
    submit(FL_OP_CANCEL, 5, 9, 0);
    submit(FL_OP_GET, 0, 4, 0);
    list(false);
    pass(20 * SECOND);
    settle_late();
    step_clock(-5 * SECOND);
    pass(SECOND);
    submit(FL_OP_CREATE, 1, 10, 60 * SECOND); /* replaces, or creates again */
    submit(FL_OP_UPDATE, 20, 7, -SECOND);
    pass(10 * SECOND);
    settle_late();
    submit(FL_OP_DEAD_REDRIVE, 0, 2, 0);
    list(true);
    pass(20 * SECOND);
    settle_late();
}

static void check_all(void)
{
    CHECK_EQ(life.unanswered, 0);
    for (int i = 0; i < BEATS && life.ticks; i++)
        if (life.beats[i] == 0)
            test_fail(__FILE__, __LINE__, "occurrence %d is lost (%" PRIu64 " allocations)", i, memory.requests);
    for (int i = 0; i < TIMERS; i++) {
        const struct entry *entry = &life.timers[i];
        if (entry->created && !entry->cancelled && !entry->fired)
            test_fail(__FILE__, __LINE__, "timer %d is lost (%" PRIu64 " allocations)", i, memory.requests);
    }
}

/* Returns whether anything failed. */
static bool live_with(uint64_t fail_in, bool fail_on)
{
    memset(&life, 0, sizeof life);
    memory_install();
    set_up_store();
    memory_fail(fail_in, fail_on);
    uint64_t before = memory.failed;
    int r = try_start(settings);
    if (r == 0) {
        live();
        memory_fail(0, false);
        pass(300 * SECOND);
        for (int i = 0; i < 20; i++) {
            settle_late();
            pass(10 * SECOND);
        }
        check_all();
        stop_engine(false);
    } else {
        CHECK_EQ(r, FL_NO_MEMORY);
    }
    bool failed = memory.failed > before;
    memory_fail(0, false);
    tear_down_store();
    memory_remove();
    return failed;
}

/* --- How much ------------------------------------------------------------------------------------------------------- */

enum { PAYLOAD = 100, AT_ONCE = 1000 };

static void answered(fl_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        CHECK_EQ(batch->ops[i].result, 0);
    fl_loop_stop(bed.loop);
}

/* What an engine takes to hold so many timers, due within 20 s from a minute on: the timers themselves, of which it keeps
 * count, and what it has from the heap. */
static uint64_t bytes_for(size_t count)
{
    static fl_op ops[AT_ONCE];
    static char payload[PAYLOAD];
    fl_engine_stats stats;
    fl_engine_config config = {.claim_us = 3600 * SECOND, .max_memory_timers = count + 1};
    memory_install();
    set_up_store();
    start_engine(config);
    for (size_t made = 0; made < count; made += AT_ONCE) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            int64_t after_us = 60 * SECOND + (int64_t)((made + i) * 7919 % count * 20 * SECOND / count);
            ops[i] = (fl_op){.kind = FL_OP_CREATE,
                             .timer = {.ns = text("ns"),
                                       .due_us = wall_now(&bed.wall.clock) + after_us,
                                       .payload = {payload, sizeof payload}}};
        }
        fl_batch batch = {.ops = ops, .count = AT_ONCE, .done = answered};
        fl_engine_submit(bed.engine, &batch);
        CHECK_EQ(fl_loop_run(bed.loop), 0);
    }
    stop_engine(false);
    uint64_t before = memory.bytes - memory.mapped;
    start_engine(config);
    run_for(SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.loaded, count);
    uint64_t bytes = memory.bytes - memory.mapped - before + stats.bytes;
    stop_engine(false);
    tear_down_store();
    memory_remove();
    return bytes;
}

TEST(a_loaded_timer_takes_less_than_64_bytes_and_its_payload)
{
    const size_t few = 2000, counts[] = {10000, 20000, 50000, 100000, 150000};
    uint64_t before = bytes_for(few);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double bytes = (double)(bytes_for(counts[i]) - before) / (double)(counts[i] - few) - PAYLOAD;
        printf("# %zu timers: %.1f bytes each\n", counts[i], bytes);
        CHECK(bytes < 64);
    }
}

/* --- When there is none --------------------------------------------------------------------------------------------- */

static const enum fl_strategy strategies[] = {FL_PRELOAD, FL_LOOKAHEAD};

TEST(each_allocation_may_fail_once)
{
    for (int i = 0; i < 2; i++) {
        uint64_t n = 1;
        settings.strategy = strategies[i];
        while (live_with(n, false))
            n++;
        printf("# %" PRIu64 " allocations\n", n - 1);
        CHECK(n > 300);
    }
}

TEST(from_each_allocation_on_all_may_fail_for_a_while)
{
    for (int i = 0; i < 2; i++) {
        settings.strategy = strategies[i];
        for (uint64_t n = 1; live_with(n, true); n++)
            ;
    }
}
