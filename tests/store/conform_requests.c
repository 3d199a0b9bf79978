/* SPDX-License-Identifier: MIT */
/* The suite, about requests: when and in which order they are answered, attaching and detaching, opening again. */

#include "store/conformance.h"

/* ask() itself checks that nothing is answered inside of fl_store_submit(). */
TEST(requests_take_effect_and_are_answered_in_the_order_of_submission)
{
    enum { COUNT = 300 };
    begin();
    uint64_t version = claim(shard, "me");
    static struct asked all[COUNT];
    static fl_row rows[COUNT];
    static fl_store_change changes[COUNT];
    static fl_store_want wants[COUNT];
    uint64_t window = fl_window_of(0, 25);
    for (unsigned i = 0; i < COUNT; i++) {
        rows[i] = make_row(2 + 2 * i, i, 25);
        changes[i] = (fl_store_change){.put = &rows[i]};
        wants[i] = (fl_store_want){.id = rows[i / 3 * 3].id};
        all[i] = i % 3 == 0   ? to_write(version, &changes[i], 1)
                 : i % 3 == 1 ? to_find(&wants[i], 1) /* what was written just before */
                              : to_load(&window, 1);
        ask(shard, &all[i]);
    }
    unsigned before = all[0].place;
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK_EQ(await(&all[i]), 0);
        CHECK(all[i].place > before);
        before = all[i].place;
        if (i % 3 == 1)
            CHECK(wants[i].found);
        if (i % 3 == 2)
            CHECK_EQ(all[i].count, i / 3 + 1);
    }
    end();
}

TEST(refused_requests_are_answered_in_their_turn_too)
{
    enum { COUNT = 60 };
    begin();
    uint64_t version = claim(shard, "me");
    static struct asked all[COUNT];
    fl_row row = make_row(2, 1000, 25), bad = row;
    fl_store_change good_change = {.put = &row}, bad_change = {.put = &bad};
    bad.ns.size = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        all[i] = i == 0       ? to_write(version, &good_change, 1)
                 : i % 4 == 1 ? to_write(version, &bad_change, 1)
                 : i % 4 == 2 ? to_write(version + 7, NULL, 0)
                 : i % 4 == 3 ? to_claim("other", HOUR_US, false)
                              : to_list(row.window);
        ask(shard, &all[i]);
    }
    static const int results[4] = {0, FL_INVALID_ARGUMENT, FL_SHARD_LOST, FL_SHARD_HELD};
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK_EQ(await(&all[i]), results[i % 4]);
        CHECK(i == 0 || all[i].place == all[i - 1].place + 1);
    }
    end();
}

/* --- From a callback ---------------------------------------------------------------------------------------------- */

static unsigned rounds;

static void again(fl_store_request *request)
{
    CHECK_EQ(request->result, 0);
    if (++rounds < 100)
        fl_store_submit(shard, request); /* it is the caller's again */
    CHECK(rounds <= 100);
}

TEST(a_request_can_be_submitted_again_from_its_own_answer)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_store_request request = {.op = FL_STORE_WRITE, .version = version, .done = again};
    rounds = 0;
    fl_store_submit(shard, &request);
    CHECK_EQ(rounds, 0);
    while (rounds < 100)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    end();
}

static struct asked from_rows;
static unsigned parts;

static void rows_that_ask(fl_store_request *request, const fl_row *rows, size_t count)
{
    (void)request, (void)rows, (void)count;
    if (parts++ == 0)
        ask(shard, &from_rows);
    CHECK(!from_rows.answered);
}

static void set(fl_store_request *request)
{
    CHECK_EQ(request->result, 0);
    CHECK(!from_rows.answered);
    *(bool *)request->arg = true;
}

TEST(a_request_can_be_submitted_while_rows_come)
{
    enum { COUNT = 5000 };
    begin();
    uint64_t version = claim(shard, "me"), window = fl_window_of(0, 25);
    static fl_row rows[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        rows[i] = make_row(2 + 2 * i, i, 25);
    put(shard, version, rows, COUNT);
    bool over = false;
    fl_store_request request = {.op = FL_STORE_LOAD,
                                .done = set,
                                .arg = &over,
                                .load = {.windows = &window,
                                         .window_count = 1,
                                         .until_us = FL_STORE_TIME_END,
                                         .limit = SIZE_MAX,
                                         .rows = rows_that_ask}};
    from_rows = to_write(version, NULL, 0);
    parts = 0;
    fl_store_submit(shard, &request);
    CHECK_EQ(await(&from_rows), 0);
    CHECK(over && parts > 0);
    end();
}

/* --- Attaching ---------------------------------------------------------------------------------------------------- */

TEST(there_is_no_shard_beyond_the_last)
{
    begin();
    fl_shard *none = NULL;
    CHECK_EQ(fl_store_attach(store, 2, loop, &none), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_store_attach(store, UINT32_MAX, loop, &none), FL_INVALID_ARGUMENT);
    CHECK(!none);
    end();
}

TEST(what_was_written_is_there_for_the_next_who_attaches)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_named(2, 1000, 25, "name"), found;
    put(shard, version, &row, 1);
    detach(shard);
    shard = attach(0);
    CHECK(is_named(shard, "name", &found) && same_row(&found, &row));
    fl_row next = make_row(4, 1000, 25);
    put(shard, version, &next, 1); /* the version is as good as before */
    struct asked yours = to_claim("you", HOUR_US, false);
    CHECK_EQ(perform(shard, &yours), under_test.claims_end ? 0 : FL_SHARD_HELD); /* detaching is no release */
    end();
}

static unsigned gone_after;
static bool gone;

static void count_gone(fl_loop *on, void *arg)
{
    (void)on;
    CHECK(!gone);
    gone = true;
    for (struct asked *all = arg; all[gone_after].request.done; gone_after++)
        CHECK(all[gone_after].answered);
}

/* Every request is answered before the shard is gone: those that had begun as they went, the others with an error, and
 * each was carried out if and only if its answer says so. */
TEST(detaching_answers_everything_first)
{
    enum { COUNT = 50 };
    for (int turns = 0; turns < 4; turns++) {
        begin();
        uint64_t version = claim(shard, "me");
        static struct asked all[COUNT + 1];
        static fl_row rows[COUNT];
        static fl_store_change changes[COUNT];
        memset(all, 0, sizeof all);
        for (unsigned i = 0; i < COUNT; i++) {
            rows[i] = make_row(2 + 2 * i, i, 25);
            changes[i] = (fl_store_change){.put = &rows[i]};
            all[i] = to_write(version, &changes[i], 1);
            ask(shard, &all[i]);
        }
        for (int i = 0; i < turns; i++)
            CHECK_EQ(fl_loop_run_once(loop, false), 0);
        gone = false;
        gone_after = 0;
        fl_store_detach(shard, count_gone, all);
        CHECK(!gone);
        while (!gone)
            CHECK_EQ(fl_loop_run_once(loop, true), 0);
        CHECK_EQ(gone_after, COUNT);
        shard = attach(0);
        for (unsigned i = 0; i < COUNT; i++) {
            int r = all[i].request.result;
            CHECK(r == 0 || r == FL_STORE_UNAVAILABLE);
            CHECK(i == 0 || all[i].place == all[i - 1].place + 1);
            CHECK_EQ(is_there(shard, rows[i].id, NULL), r == 0);
        }
        end();
    }
}

TEST(shards_can_be_attached_and_detached_unused)
{
    begin();
    for (int i = 0; i < 10; i++) {
        fl_shard *more = attach(1), *same = attach(1);
        detach(more);
        detach(same);
    }
    end();
}

/* --- Opening again ------------------------------------------------------------------------------------------------ */

TEST(everything_is_there_when_the_store_is_opened_again)
{
    if (!under_test.reopen) {
        test_skip("nothing survives closing this store");
        return;
    }
    begin();
    uint64_t version = claim(shard, "me"), keep[] = {9, 11, 500};
    fl_row row = make_named(2, 1000, 25, "name"), moved = make_row(4, 2000, 25),
           far = make_row(6, (int64_t)1 << 50, 49);
    fl_row to = move_row(moved, 8, (int64_t)1 << 35, 31), found;
    fl_dead_row dead = make_dead(make_row(10, 1000, 25), "given up");
    put(shard, version, (fl_row[]){row, moved, far}, 3);
    write_one(shard, version, (fl_store_change){.remove = moved.key, .put = &to, .bury = &dead});
    fl_progress progress = {
        .front = {{500, 2}, {600, 3}}, .keep = keep, .keep_count = 3, .seq_limit = 1234, .pending = 3};
    struct asked recorded = to_record(version, &progress);
    CHECK_EQ(perform(shard, &recorded), 0);
    reopen();
    CHECK_EQ(fl_store_shards(store), 2);
    CHECK(is_named(shard, "name", &found) && same_row(&found, &row));
    CHECK(is_there(shard, moved.id, &found) && same_row(&found, &to));
    CHECK(is_there(shard, far.id, &found) && same_row(&found, &far));
    CHECK_EQ(load(shard, row.window, NULL), 1);
    struct asked claimed = to_claim("me", HOUR_US, true), listed = to_list_dead();
    CHECK_EQ(perform(shard, &claimed), 0);
    CHECK(claimed.request.claim.version > version);
    CHECK(claimed.request.claim.window_count >= 3);
    CHECK(claimed.request.claim.progress.seq_limit == 1234 && claimed.request.claim.progress.keep_count == 3);
    CHECK_EQ(perform(shard, &listed), 0);
    CHECK(listed.request.dead_list.count == 1 && same_bytes(listed.request.dead_list.rows[0].reason, dead.reason));
    end();
}

TEST(names_are_found_when_the_store_is_opened_again_and_again)
{
    enum { ROUNDS = 4, COUNT = 500 };
    if (!under_test.reopen) {
        test_skip("nothing survives closing this store");
        return;
    }
    begin();
    static fl_row rows[ROUNDS * COUNT];
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t version = claim(shard, "me");
        for (unsigned i = round * COUNT; i < (round + 1) * COUNT; i++) {
            char name[24];
            snprintf(name, sizeof name, "name %u", i);
            rows[i] = make_named(2 + 2 * i, (int64_t)(i % 40) << 25, 25, name);
        }
        put(shard, version, rows + round * COUNT, COUNT);
        write_one(shard, version, (fl_store_change){.remove = rows[round * COUNT].key});
        reopen();
        for (unsigned i = 0; i < (round + 1) * COUNT; i += 20) {
            fl_row found;
            CHECK_EQ(is_named(shard, rows[i].name.data, &found), i % COUNT != 0);
            CHECK(i % COUNT == 0 || same_row(&found, &rows[i]));
        }
    }
    end();
}

/* --- Detaching ---------------------------------------------------------------------------------------------------- */

static void submit_another(fl_store_request *request)
{
    ask(shard, request->arg);
}

TEST(what_an_answer_submits_while_the_shard_is_detached_is_answered_too)
{
    begin();
    for (int i = 0; i < 50; i++) {
        struct asked another = to_list_dead();
        fl_store_request first = {.op = FL_STORE_WRITE, .done = submit_another, .arg = &another};
        fl_store_submit(shard, &first);
        detach(shard);
        CHECK(another.answered);
        CHECK(another.request.result == 0 || another.request.result == FL_STORE_UNAVAILABLE);
        shard = attach(0);
    }
    end();
}
