/* SPDX-License-Identifier: MIT */
/* Attacks from outside, with the header only: what a program may do by mistake, and what may happen at the worst moment. */

#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "test.h"

/* --- Arguments ----------------------------------------------------------------------------------------------------- */

static fl_engine_config good_config(void)
{
    return (fl_engine_config){
        .loop = bed.loop, .store = bed.store, .owner = "me", .dispatch = (fl_dispatch_fn)(void (*)(void))abort};
}

static void check_refused(const fl_engine_config *config)
{
    fl_engine *engine = NULL;
    CHECK_EQ(fl_engine_start(config, &engine), FL_INVALID_ARGUMENT);
    CHECK(!engine);
}

#define REFUSED(member, value)                   \
    do {                                         \
        fl_engine_config config = good_config(); \
        config.member = value;                   \
        check_refused(&config);                  \
    } while (0)

TEST(an_engine_without_what_it_needs_is_refused)
{
    char owner[257];
    memset(owner, 'x', 256);
    owner[256] = 0;
    set_up_store();
    REFUSED(loop, NULL);
    REFUSED(store, NULL);
    REFUSED(owner, NULL);
    REFUSED(owner, "");
    REFUSED(owner, owner);
    REFUSED(dispatch, NULL);
    REFUSED(shard, 1);
    REFUSED(shard, UINT32_MAX);
    tear_down_store();
}

TEST(settings_that_cannot_work_are_refused)
{
    set_up_store();
    REFUSED(strategy, (enum fl_strategy)7);
    REFUSED(claim_us, UINT64_MAX);
    REFUSED(record_interval_us, UINT64_MAX);
    REFUSED(delete_interval_us, UINT64_MAX);
    REFUSED(preload_us, UINT64_MAX);
    REFUSED(lookahead_us, UINT64_MAX);
    REFUSED(load_interval_us, 1);
    REFUSED(load_interval_us, UINT64_MAX);
    REFUSED(max_in_flight, UINT32_MAX);
    REFUSED(dispatch_batch, UINT32_MAX);
    REFUSED(max_payload, UINT32_MAX);
    REFUSED(retry, ((fl_retry){.initial_us = 1, .max_interval_us = 1, .multiplier_1000 = 999}));
    REFUSED(retry, ((fl_retry){.initial_us = 2, .max_interval_us = 1, .multiplier_1000 = 1000}));
    REFUSED(retry, ((fl_retry){.max_attempts = 3}));
    tear_down_store();
}

static int refusal(fl_op op)
{
    return run_op(op).result;
}

TEST(operations_that_mean_nothing_are_refused)
{
    static char large[300 << 10];
    set_up((fl_engine_config){0});
    fl_durable timer = {.ns = FL_TEXT("ns"), .name = FL_TEXT("a"), .due_us = START + 10 * SECOND};
    fl_durable by_id = {.id = {START, 2}};
    fl_op op = {.kind = FL_OP_CREATE, .timer = timer};
    op.timer.ns.size = 0;
    CHECK_EQ(refusal(op), FL_INVALID_ARGUMENT);
    op = (fl_op){.kind = FL_OP_CREATE, .timer = timer};
    op.timer.name = (fl_bytes){large, 256};
    CHECK_EQ(refusal(op), FL_TOO_LARGE);
    op = (fl_op){.kind = FL_OP_CREATE, .timer = timer};
    op.timer.ns = (fl_bytes){large, 256};
    CHECK_EQ(refusal(op), FL_TOO_LARGE);
    op = (fl_op){.kind = FL_OP_CREATE, .timer = timer};
    op.timer.payload = (fl_bytes){large, sizeof large};
    CHECK_EQ(refusal(op), FL_TOO_LARGE);
    op = (fl_op){.kind = FL_OP_CREATE, .timer = timer};
    op.timer.target = (fl_bytes){large, 4097};
    CHECK_EQ(refusal(op), FL_TOO_LARGE);
    op = (fl_op){.kind = FL_OP_CREATE, .timer = timer};
    op.timer.due_us = FL_STORE_TIME_END;
    CHECK_EQ(refusal(op), FL_INVALID_DEADLINE);
    op = (fl_op){.kind = FL_OP_CREATE, .timer = timer};
    op.timer.retry.max_attempts = 1;
    CHECK_EQ(refusal(op), FL_INVALID_ARGUMENT);
    CHECK_EQ(refusal((fl_op){.kind = FL_OP_GET}), FL_INVALID_TIMER_ID);
    CHECK_EQ(refusal((fl_op){.kind = FL_OP_GET, .timer = {.id = {-1, 2}}}), FL_INVALID_TIMER_ID);
    CHECK_EQ(refusal((fl_op){.kind = FL_OP_GET, .timer = {.id = {START, UINT64_MAX}}}), FL_INVALID_TIMER_ID);
    CHECK_EQ(refusal((fl_op){.kind = FL_OP_GET, .timer = {.name = FL_TEXT("a")}}), FL_INVALID_ARGUMENT);
    CHECK_EQ(refusal((fl_op){.kind = (enum fl_op_kind)99, .timer = by_id}), FL_INVALID_ARGUMENT);
    CHECK_EQ(refusal((fl_op){.kind = FL_OP_CANCEL, .timer = by_id}), FL_TIMER_NOT_FOUND);
    CHECK_EQ(refusal((fl_op){.kind = FL_OP_DEAD_REDRIVE, .timer = by_id}), FL_TIMER_NOT_FOUND);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    tear_down();
}

TEST(times_at_the_ends_of_the_range)
{
    set_up((fl_engine_config){0});
    int64_t due[] = {INT64_MIN, -1, 0, 1, FL_STORE_TIME_END - 1};
    for (int i = 0; i < 5; i++) {
        fl_op op = run_op((fl_op){.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("ns"), .due_us = due[i]}});
        CHECK_EQ(op.result, 0);
        CHECK_EQ(op.timer.due_us, due[i]);
    }
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 4);
    tear_down();
}

static void batch_over(fl_batch *batch)
{
    *(bool *)batch->arg = true;
    fl_loop_stop(bed.loop);
}

TEST(a_batch_of_nothing_is_answered)
{
    bool done = false;
    set_up((fl_engine_config){0});
    fl_batch batch = {.done = batch_over, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    CHECK(!done);
    run_for(SECOND);
    CHECK(done);
    tear_down();
}

/* --- Settling ------------------------------------------------------------------------------------------------------ */

TEST(tokens_that_name_nothing_settle_nothing)
{
    set_up((fl_engine_config){0});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "1").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    uint64_t token = bed.tokens[0];
    fl_settlement wrong[] = {{.token = 0}, {.token = token + 1}, {.token = UINT64_MAX}, {.token = token ^ 1ull << 32}};
    CHECK_EQ(fl_engine_settle(bed.engine, wrong, 4), 0);
    fl_settlement twice[] = {{.token = token}, {.token = token, .result = FL_FAILED}};
    CHECK_EQ(fl_engine_settle(bed.engine, twice, 2), 1);
    CHECK_EQ(fl_engine_settle(bed.engine, NULL, 0), 0);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

/* What cannot be filed is given up; the others of the same turn must not suffer. */
TEST(again_after_the_end_of_time_is_given_up)
{
    set_up((fl_engine_config){0});
    bed.answer = FL_AGAIN;
    bed.answer_at_us = INT64_MAX;
    bed.failures = 1;
    fl_op op = create("a", SECOND, "1");
    CHECK_EQ(create("b", SECOND, "2").result, 0);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_DEAD_GET, .timer = {.id = op.timer.id}}).result, 0);
    CHECK_EQ(by_name(FL_OP_GET, "a").result, FL_TIMER_NOT_FOUND);
    tear_down();
}

TEST(retry_policies_with_the_largest_numbers)
{
    set_up((fl_engine_config){0});
    bed.answer = FL_FAILED;
    bed.failures = 3;
    fl_retry retry = {.multiplier_1000 = UINT32_MAX,
                      .initial_us = SECOND,
                      .max_interval_us = UINT64_MAX,
                      .max_age_us = UINT64_MAX,
                      .max_attempts = UINT32_MAX};
    fl_op op =
        run_op((fl_op){.kind = FL_OP_CREATE, .timer = {.ns = FL_TEXT("ns"), .due_us = START + SECOND, .retry = retry}});
    CHECK_EQ(op.result, 0);
    run_for(4 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(run_op((fl_op){.kind = FL_OP_GET, .timer = {.id = op.timer.id}}).result, 0);
    tear_down();
}

/* --- Lists --------------------------------------------------------------------------------------------------------- */

static size_t listed_count;
static int listed_result = 1;

static void listed(fl_listing *listing)
{
    listed_count = listing->count;
    listed_result = listing->result;
    fl_loop_stop(bed.loop);
}

TEST(a_list_may_be_asked_for_before_the_shard_is_claimed)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", 100 * SECOND, "1").result, 0);
    stop_engine(false);
    start_engine((fl_engine_config){0});
    fl_listing listing = {.done = listed};
    fl_engine_list(bed.engine, &listing);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
    CHECK_EQ(listed_result, 0);
    CHECK_EQ(listed_count, 1);
    tear_down();
}

TEST(lists_that_mean_nothing)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", 100 * SECOND, "1").result, 0);
    fl_listing bad[] = {{.limit = 10001},
                        {.ns = {"x", 256}},
                        {.prefix = {"x", 256}},
                        {.cursor = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}}},
                        {.cursor = {{1, 1, 1, 1}}}};
    for (int i = 0; i < 5; i++) {
        bad[i].done = listed;
        fl_engine_list(bed.engine, &bad[i]);
        CHECK_EQ(fl_loop_run(bed.loop), 0);
        CHECK_EQ(listed_result, FL_INVALID_ARGUMENT);
    }
    fl_listing empty[] = {
        {.from_us = INT64_MAX, .until_us = INT64_MIN}, {.from_us = FL_STORE_TIME_END}, {.until_us = -1}};
    for (int i = 0; i < 3; i++) {
        empty[i].done = listed;
        fl_engine_list(bed.engine, &empty[i]);
        CHECK_EQ(fl_loop_run(bed.loop), 0);
        CHECK_EQ(listed_count, 0);
    }
    tear_down();
}

/* --- Owning -------------------------------------------------------------------------------------------------------- */

static uint64_t renewals;

static fl_memory_fault count_renewals(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    renewals += request->op == FL_STORE_RENEW;
    return (fl_memory_fault){0};
}

static uint64_t renewals_seen[16];

/* A dispatcher that takes longer than a claim lasts. */
static void slow_dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    renewals_seen[bed.fired_count++] = renewals;
    for (size_t i = 0; i < count; i++) {
        fl_settlement settlement = {.token = firings[i].token,
                                    .result = firings[i].timer.attempt == 1 && bed.failures > 0 ? FL_FAILED : FL_DONE};
        bed.failures -= settlement.result == FL_FAILED;
        fl_engine_settle(engine, &settlement, 1);
    }
    bed.wall.time.time_ns += 20 * 1000000000ull;
}

TEST(what_comes_after_a_long_dispatch_waits_for_the_claim)
{
    set_up((fl_engine_config){.dispatch = slow_dispatch, .dispatch_batch = 1});
    renewals = 0;
    CHECK_EQ(fl_memory_store_faults(bed.store, count_renewals, NULL), 0);
    bed.failures = 1;
    for (int i = 0; i < 4; i++)
        CHECK_EQ(create(NULL, SECOND, "x").result, 0);
    run_for(300 * SECOND);
    CHECK_EQ(bed.fired_count, 5);
    for (int i = 1; i < 5; i++)
        CHECK(renewals_seen[i] > renewals_seen[i - 1]);
    tear_down();
}

TEST(a_shard_is_owned_until_the_claim_ends)
{
    set_up((fl_engine_config){.claim_us = 3 * SECOND});
    CHECK_EQ(create(NULL, SECOND, "x").result, 0);
    run_for(10 * SECOND);
    CHECK(fl_engine_owns(bed.engine)); /* it was renewed */
    bed.wall.time.time_ns += 4 * 1000000000ull;
    CHECK(!fl_engine_owns(bed.engine)); /* as if the process had been stopped: the loop has not run */
    run_for(SECOND);
    CHECK(fl_engine_owns(bed.engine));
    tear_down();
}

static size_t second_fired;

static void second_dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count)
{
    (void)arg;
    second_fired += count;
    for (size_t i = 0; i < count; i++)
        fl_engine_settle(engine, &(fl_settlement){.token = firings[i].token}, 1);
}

TEST(of_two_engines_on_one_shard_one_fires)
{
    set_up((fl_engine_config){0});
    for (int i = 0; i < 100; i++)
        CHECK_EQ(create(NULL, i * SECOND, "x").result, 0);
    fl_engine *first = bed.engine;
    second_fired = 0;
    run_for(20 * SECOND);
    start_engine((fl_engine_config){.owner = "other", .dispatch = second_dispatch});
    run_for(20 * SECOND); /* the first renews: the second waits */
    CHECK_EQ(second_fired, 0);
    CHECK(bed.events[FL_ENGINE_HELD] > 0);
    stop_engine(false);
    start_engine((fl_engine_config){.owner = "other", .dispatch = second_dispatch, .force = true});
    run_for(SECOND);
    size_t fired = bed.fired_count;
    run_for(200 * SECOND);
    CHECK_EQ(bed.events[FL_ENGINE_LOST], 1);
    CHECK_EQ(bed.fired_count, fired);
    CHECK(fired + second_fired >= 100 && fired + second_fired <= 102);
    stop_engine(false);
    bed.engine = first;
    CHECK_EQ(create(NULL, SECOND, "x").result, FL_SHARD_LOST);
    tear_down();
}

/* A creation is lost, and so is the first question about it. */
static fl_memory_fault lose_creation(void *arg, uint32_t shard, const fl_store_request *request)
{
    int *finds = arg;
    (void)shard;
    if (request->op == FL_STORE_WRITE && request->write.count == 1 && *finds > 0)
        return (fl_memory_fault){.result = FL_OUTCOME_UNKNOWN};
    if (request->op == FL_STORE_FIND && --*finds == 0)
        return (fl_memory_fault){.result = FL_STORE_UNAVAILABLE};
    return (fl_memory_fault){0};
}

TEST(what_is_not_found_does_not_fire)
{
    int finds = 1;
    set_up((fl_engine_config){0});
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_creation, &finds), 0);
    fl_op op = create(NULL, SECOND / 20, "x");
    CHECK_EQ(op.result, FL_OUTCOME_UNKNOWN);
    run_for(SECOND / 100);
    CHECK_EQ(finds, 0);
    op = run_op((fl_op){.kind = FL_OP_GET, .timer.id = op.timer.id});
    CHECK_EQ(op.result, FL_TIMER_NOT_FOUND);
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 0);
    tear_down();
}

TEST(what_was_perhaps_created_is_not_filed_again_before_that_is_known)
{
    int finds = 1; /* the store knows without one that there is no "a" */
    set_up((fl_engine_config){0});
    run_for(SECOND);
    bed.answer = FL_AGAIN;
    bed.failures = 1;
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_creation, &finds), 0);
    CHECK_EQ(create("a", 0, "x").result, FL_OUTCOME_UNKNOWN);
    run_for(SECOND / 100);
    CHECK_EQ(bed.fired_count, 1); /* it may have been created */
    CHECK_EQ(create("a", 3600 * SECOND, "y").result, 0);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

/* A store that takes something back in words only breaks its contract; and yet a client that tries again, and is told that
 * it is there, must be able to rely on that. */
static fl_memory_fault refuse_in_words(void *arg, uint32_t shard, const fl_store_request *request)
{
    bool *lie = arg;
    (void)shard;
    if (request->op != FL_STORE_WRITE || !*lie)
        return (fl_memory_fault){0};
    *lie = false;
    return (fl_memory_fault){.result = FL_STORE_UNAVAILABLE, .applied = true};
}

static void retry_after_a_lie(uint32_t flags, int result, int64_t after_us)
{
    bool lie = true;
    set_up((fl_engine_config){0});
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, refuse_in_words, &lie), 0);
    fl_op op = {
        .kind = FL_OP_CREATE,
        .flags = flags,
        .timer = {
            .ns = text("ns"), .name = text("a"), .payload = text("x"), .due_us = wall_now(&bed.wall.clock) + after_us}};
    CHECK_EQ(run_op(op).result, FL_STORE_UNAVAILABLE);
    CHECK_EQ(create(NULL, after_us, "other").result, 0); /* ahead of it in the wheel */
    CHECK_EQ(run_op(op).result, result);
    run_for(after_us + SECOND);
    CHECK_EQ(bed.fired_count, 2);
    tear_down();
}

TEST(a_retry_that_finds_a_row_makes_sure_that_it_fires)
{
    retry_after_a_lie(0, 0, 5 * SECOND);
    retry_after_a_lie(FL_OP_ONLY_NEW, FL_EXISTS, 5 * SECOND);
    retry_after_a_lie(0, 0, 3600 * SECOND);
    retry_after_a_lie(0, 0, 0); /* it counts as fired: so it is created again */
}

/* Creations are lost, and nobody can ask. */
static fl_memory_fault lose_and_be_silent(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    int result = request->op == FL_STORE_FIND                                 ? FL_STORE_UNAVAILABLE
                 : request->op == FL_STORE_WRITE && request->write.count == 1 ? FL_OUTCOME_UNKNOWN
                                                                              : 0;
    return (fl_memory_fault){.result = result};
}

/* The store says at once that there is no "a", but the one in memory must be looked into first. */
TEST(a_name_is_not_given_again_while_nobody_knows_whether_it_was)
{
    set_up((fl_engine_config){0});
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_and_be_silent, NULL), 0);
    CHECK_EQ(create("a", 5 * SECOND, "x").result, FL_OUTCOME_UNKNOWN);
    CHECK_EQ(create("a", 3600 * SECOND, "y").result, FL_STORE_UNAVAILABLE);
    CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
    CHECK_EQ(create("a", 3600 * SECOND, "y").result, 0);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 0);
    tear_down();
}

/* Writes take effect, but nobody knows, and nobody can ask. */
static fl_memory_fault leave_in_doubt(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)shard;
    bool doubtful = *(bool *)arg;
    if (doubtful && request->op == FL_STORE_WRITE)
        return (fl_memory_fault){.result = FL_OUTCOME_UNKNOWN, .applied = true};
    return (fl_memory_fault){0};
}

static fl_memory_fault refuse_finds(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.result = request->op == FL_STORE_FIND ? FL_STORE_UNAVAILABLE : 0};
}

TEST(what_was_in_doubt_takes_its_place_among_those_of_its_time)
{
    bool doubtful = false;
    set_up((fl_engine_config){.max_in_flight = 1, .dispatch_batch = 1});
    CHECK_EQ(create("a", 60 * SECOND, "a").result, 0);
    CHECK_EQ(fl_memory_store_faults(bed.store, leave_in_doubt, &doubtful), 0);
    fl_op move = {.kind = FL_OP_UPDATE,
                  .flags = FL_OP_SET_DUE,
                  .timer = {.ns = text("ns"), .name = text("a"), .due_us = wall_now(&bed.wall.clock) + 10 * SECOND}};
    doubtful = true;
    CHECK_EQ(run_op(move).result, FL_OUTCOME_UNKNOWN);
    doubtful = false;
    CHECK_EQ(fl_memory_store_faults(bed.store, refuse_finds, NULL), 0);
    CHECK_EQ(create(NULL, 10 * SECOND, "b").result, 0);
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
    bed.keep = true;
    run_for(10 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 2);
    tear_down();
}

TEST(what_is_not_known_is_refused)
{
    set_up((fl_engine_config){0});
    fl_op op = {.kind = FL_OP_CREATE, .flags = 256, .timer = {.ns = text("ns"), .payload = text("x")}};
    CHECK_EQ(run_op(op).result, FL_INVALID_ARGUMENT);
    op.flags = 1u << 31;
    CHECK_EQ(run_op(op).result, FL_INVALID_ARGUMENT);
    bed.keep = true;
    CHECK_EQ(create(NULL, 0, "x").result, 0);
    run_for(SECOND);
    CHECK_EQ(bed.fired_count, 1);
    fl_settlement settlement = {.token = bed.tokens[0], .result = (enum fl_settle)(FL_EXPIRED + 1)};
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 0);
    settlement.result = FL_DONE;
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1);
    tear_down();
}

TEST(a_cursor_that_was_made_up_is_no_trouble_of_the_store)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create(NULL, 3600 * SECOND, "x").result, 0);
    fl_listing listing = {.done = listed};
    fl_engine_list(bed.engine, &listing);
    run_for(SECOND);
    CHECK_EQ(listed_count, 1);
    for (int part = 0; part < 4; part++)
        for (int bit = 0; bit < 64; bit++)
            for (int dead = 0; dead < 2; dead++) {
                fl_listing made_up = {.dead = dead, .cursor = listing.cursor, .done = listed};
                made_up.cursor.part[part] ^= (uint64_t)1 << bit;
                fl_engine_list(bed.engine, &made_up);
                run_for(SECOND / 100);
                CHECK(listed_result == 0 || listed_result == FL_INVALID_ARGUMENT);
            }
    CHECK_EQ(bed.events[FL_ENGINE_TROUBLE], 0);
    tear_down();
}

static fl_memory_fault lose_first_write(void *arg, uint32_t shard, const fl_store_request *request)
{
    bool *lost = arg;
    (void)shard;
    if (request->op != FL_STORE_WRITE || *lost)
        return (fl_memory_fault){0};
    *lost = true;
    return (fl_memory_fault){.delay_ns = 2000000000, .result = FL_OUTCOME_UNKNOWN, .applied = true};
}

static void replaced(fl_batch *batch)
{
    *(bool *)batch->arg = true;
}

TEST(what_is_replaced_while_it_is_under_way_does_not_come_again)
{
    set_up((fl_engine_config){0});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "old").result, 0);
    CHECK_EQ(create("b", SECOND, "b").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(create("a", 60 * SECOND, "new").outcome, FL_REPLACED);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[i], .result = FL_FAILED}, 1), 1);
    run_for(30 * SECOND);
    CHECK_EQ(bed.fired_count, 3); /* b again, and not a */
    fl_engine_stats stats;
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.pending, 2);
    tear_down();
}

/* It is filed again under a time that has passed when somebody finds it, and the engine does not know yet that it is. */
TEST(what_was_perhaps_filed_again_can_be_replaced)
{
    fl_retry retry = {.multiplier_1000 = 1000, .initial_us = 100000, .max_interval_us = 100000};
    set_up((fl_engine_config){.retry = retry});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "old").result, 0);
    CHECK_EQ(create("b", SECOND, "b").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    bool lost = false, done = false;
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_first_write, &lost), 0);
    fl_settlement settlement = {.token = bed.tokens[0], .result = FL_FAILED};
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1);
    run_for(SECOND);
    settlement = (fl_settlement){.token = bed.tokens[1], .result = FL_LATER, .at_us = START + 3600 * SECOND};
    CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1); /* the front follows the clock */
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = text("ns"), .name = text("a"), .payload = text("new"), .due_us = START + 60 * SECOND}};
    fl_batch batch = {.ops = &op, .count = 1, .done = replaced, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    bed.keep = false;
    run_for(20 * SECOND);
    CHECK(lost && done);
    CHECK_EQ(op.result, 0);
    CHECK_EQ(op.outcome, FL_REPLACED);
    CHECK_EQ(bed.fired_count, 2);
    run_for(60 * SECOND);
    CHECK_EQ(bed.fired_count, 3);
    CHECK_EQ(bed.fired[2].payload[0], 'n');
    tear_down();
}

/* From the first write on everything written is lost, and nobody can ask. */
static fl_memory_fault lose_writes(void *arg, uint32_t shard, const fl_store_request *request)
{
    bool *lost = arg;
    (void)shard;
    if (request->op == FL_STORE_FIND && *lost)
        return (fl_memory_fault){.result = FL_STORE_UNAVAILABLE};
    if (request->op != FL_STORE_WRITE)
        return (fl_memory_fault){0};
    *lost = true;
    return (fl_memory_fault){.result = FL_OUTCOME_UNKNOWN};
}

/* A crash, after progress was recorded; then another owner. */
static void crash(void)
{
    run_for(3 * SECOND);
    stop_engine(true);
    CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
    start_engine((fl_engine_config){0});
    run_for(20 * SECOND);
}

TEST(what_was_perhaps_replaced_and_is_done_does_not_come_again)
{
    bool lost = false;
    set_up((fl_engine_config){0});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "old").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1);
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_writes, &lost), 0);
    CHECK_EQ(create("a", 3600 * SECOND, "new").result, FL_OUTCOME_UNKNOWN);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    crash();
    CHECK_EQ(bed.fired_count, 1);
    tear_down();
}

TEST(what_was_perhaps_cancelled_and_fell_due_is_not_lost)
{
    bool lost = false;
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", SECOND, "a").result, 0);
    CHECK_EQ(create(NULL, SECOND, "other").result, 0);
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_writes, &lost), 0);
    CHECK_EQ(by_name(FL_OP_CANCEL, "a").result, FL_OUTCOME_UNKNOWN);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 1); /* the other one */
    crash();
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(bed.fired[1].payload[0], 'a');
    tear_down();
}

TEST(what_was_in_the_way_of_one_that_was_perhaps_raised_does_not_come_again)
{
    bool lost = false;
    set_up((fl_engine_config){0});
    bed.answer = FL_DEAD;
    bed.failures = 1;
    fl_key dead = create("a", SECOND, "dead").timer.id;
    run_for(2 * SECOND);
    CHECK_EQ(create("a", SECOND, "done").result, 0);
    CHECK_EQ(create(NULL, 3 * SECOND, "other").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, 2);
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_writes, &lost), 0);
    fl_op raise = {.kind = FL_OP_DEAD_REDRIVE, .timer.id = dead};
    CHECK_EQ(run_op(raise).result, FL_OUTCOME_UNKNOWN);
    crash(); /* the other one has fired and been recorded meanwhile */
    CHECK_EQ(bed.fired_count, 3);
    tear_down();
}

/* --- How many are pending ------------------------------------------------------------------------------------------ */

static uint64_t pending(void)
{
    fl_engine_stats stats;
    fl_engine_get_stats(bed.engine, &stats);
    return stats.pending;
}

static fl_memory_fault slow_writes(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.delay_ns = request->op == FL_STORE_WRITE ? 1000000000 : 0};
}

TEST(one_that_is_done_before_its_replacement_is_written_counts_no_more_and_that_one_does)
{
    bool done = false;
    set_up((fl_engine_config){0});
    bed.keep = true;
    CHECK_EQ(create("a", SECOND, "old").result, 0);
    CHECK_EQ(create(NULL, 3600 * SECOND, "other").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, slow_writes, NULL), 0);
    fl_op op = {.kind = FL_OP_CREATE,
                .timer = {.ns = text("ns"), .name = text("a"), .payload = text("new"), .due_us = START + 60 * SECOND}};
    fl_batch batch = {.ops = &op, .count = 1, .done = replaced, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    run_for(SECOND / 2);
    CHECK_EQ(fl_engine_settle(bed.engine, &(fl_settlement){.token = bed.tokens[0]}, 1), 1);
    CHECK_EQ(pending(), 1);
    run_for(2 * SECOND);
    CHECK(done && op.outcome == FL_CREATED);
    CHECK_EQ(pending(), 2);
    tear_down();
}

TEST(what_was_perhaps_done_counts_when_it_is_known)
{
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", 3600 * SECOND, "a").result, 0);
    CHECK_EQ(create("b", 3600 * SECOND, "b").result, 0);
    bool lost = false;
    CHECK_EQ(fl_memory_store_faults(bed.store, lose_first_write, &lost), 0);
    CHECK_EQ(by_name(FL_OP_CANCEL, "a").result, FL_OUTCOME_UNKNOWN);
    run_for(SECOND);
    CHECK_EQ(pending(), 1);
    for (int i = 0; i < 2; i++) { /* the second fires before it is known to be there */
        lost = false;
        CHECK_EQ(create(NULL, (i == 0 ? 30 : 1) * SECOND, "c").result, FL_OUTCOME_UNKNOWN);
        run_for(SECOND);
        CHECK_EQ(pending(), i == 0 ? 2 : 1);
        run_for(40 * SECOND);
        CHECK_EQ(bed.fired_count, (size_t)i + 1);
        CHECK_EQ(pending(), 1);
    }
    tear_down();
}

TEST(what_is_written_while_an_engine_stops_counts)
{
    bool done = false;
    set_up((fl_engine_config){0});
    CHECK_EQ(create("a", 3600 * SECOND, "a").result, 0);
    CHECK_EQ(create("b", 3600 * SECOND, "b").result, 0);
    CHECK_EQ(fl_memory_store_faults(bed.store, slow_writes, NULL), 0);
    fl_op op = {.kind = FL_OP_CANCEL, .timer = {.ns = text("ns"), .name = text("a")}};
    fl_batch batch = {.ops = &op, .count = 1, .done = replaced, .arg = &done};
    fl_engine_submit(bed.engine, &batch);
    run_for(SECOND / 2);
    stop_engine(false);
    CHECK(done && op.result == 0);
    start_engine((fl_engine_config){0});
    run_for(SECOND);
    CHECK_EQ(pending(), 1);
    tear_down();
}

/* --- A full store -------------------------------------------------------------------------------------------------- */

static fl_memory_fault refuse_writes(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    return (fl_memory_fault){.result = request->op == FL_STORE_WRITE ? FL_STORE_FULL : 0};
}

/* The retry cannot be written, so that its row stays: but only that. */
TEST(a_full_store_is_emptied_although_an_attempt_has_failed)
{
    enum { TIMERS = 20 };
    fl_engine_stats stats;
    set_up((fl_engine_config){0});
    bed.keep = true;
    for (int i = 0; i < TIMERS; i++)
        CHECK_EQ(create(NULL, SECOND, "x").result, 0);
    run_for(2 * SECOND);
    CHECK_EQ(bed.fired_count, TIMERS);
    CHECK_EQ(fl_memory_store_faults(bed.store, refuse_writes, NULL), 0);
    for (int i = 0; i < TIMERS; i++) {
        fl_settlement settlement = {.token = bed.tokens[i], .result = i == 0 ? FL_FAILED : FL_DONE};
        CHECK_EQ(fl_engine_settle(bed.engine, &settlement, 1), 1);
    }
    run_for(200 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.rows_deleted, TIMERS - 1);
    CHECK_EQ(stats.pending, 1);
    CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
    run_for(2 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.retried, 1);
    tear_down();
}

static fl_memory_fault slow_finds_refused_writes(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    if (request->op == FL_STORE_FIND)
        return (fl_memory_fault){.delay_ns = 500000000};
    if (request->op == FL_STORE_WRITE)
        return (fl_memory_fault){.delay_ns = 1000000000, .result = FL_STORE_UNAVAILABLE};
    return (fl_memory_fault){0};
}

static void count_answer(fl_batch *batch)
{
    ++*(int *)batch->arg;
}

/* Two operations want the same row, neither changes it, and the row is loaded between them: its timer fires. */
TEST(what_is_loaded_while_operations_wait_for_it_fires)
{
    for (int64_t due_us = SECOND; due_us < 6 * SECOND; due_us += SECOND / 20) {
        set_up((fl_engine_config){.preload_us = SECOND, .max_in_flight = 10});
        fl_op made = create("a", due_us, "1");
        CHECK_EQ(made.result, 0);
        CHECK_EQ(fl_memory_store_faults(bed.store, slow_finds_refused_writes, NULL), 0);
        int answers = 0;
        fl_op ops[2] = {{.kind = FL_OP_CANCEL, .timer.id = made.timer.id},
                        {.kind = FL_OP_CREATE,
                         .flags = FL_OP_ONLY_NEW,
                         .timer = {.ns = text("ns"), .name = text("a"), .due_us = START, .payload = text("2")}}};
        fl_batch batches[2];
        for (int i = 0; i < 2; i++) {
            batches[i] = (fl_batch){.ops = &ops[i], .count = 1, .done = count_answer, .arg = &answers};
            fl_engine_submit(bed.engine, &batches[i]);
        }
        run_for(20 * SECOND);
        CHECK_EQ(fl_memory_store_faults(bed.store, NULL, NULL), 0);
        run_for(20 * SECOND);
        CHECK_EQ(answers, 2);
        CHECK(bed.fired_count >= 1);
        tear_down();
    }
}
