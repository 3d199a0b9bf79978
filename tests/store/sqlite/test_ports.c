/* SPDX-License-Identifier: MIT */
/* Attaching, detaching, and what goes through between a loop and the thread of a shard. */

#include <stdlib.h>

#include "store/conformance.h"
#include "store/sqlite/base.h"
#include "store/sqlite/place.h"

static int open_again(fl_store **ret)
{
    return fl_store_open(folder_url(), NULL, ret, NULL, 0);
}

static int open_new(uint32_t shards, fl_store **ret)
{
    new_folder();
    return fl_store_open(folder_url(), &(fl_store_config){.shards = shards}, ret, NULL, 0);
}

const struct store_under_test under_test = {.open = open_new, .reopen = open_again, .remove = remove_folder};

TEST(a_shard_is_detached_and_attached_again_and_again)
{
    begin();
    uint64_t version = claim(shard, "me");
    for (uint64_t i = 1; i <= 30; i++) {
        fl_row row = make_row(2 * i, 1000, 25);
        put(shard, version, &row, 1);
        detach(shard);
        shard = attach(0);
        CHECK_EQ(load(shard, row.window, NULL), i);
    }
    end();
}

/* Only one process has it open: there is nobody to meet. What stands in the same group of requests takes effect. */
TEST(servers_cannot_meet_here)
{
    begin();
    uint64_t version = claim(shard, "me");
    fl_row row = make_row(2, 1000, 25);
    fl_store_change change = {.put = &row};
    struct asked write = to_write(version, &change, 1), join = to_meet("me", 1, HOUR_US, true),
                 look = to_meet(NULL, 0, 0, false), renew = simple(FL_STORE_RENEW, version);
    struct asked *all[] = {&write, &join, &look, &renew};
    for (int i = 0; i < 4; i++)
        ask(shard, all[i]);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(await(all[i]), i == 1 || i == 2 ? FL_INVALID_ARGUMENT : 0);
    CHECK(strstr(join.request.message, "servers cannot share this store"));
    CHECK(is_there(shard, row.id, NULL));
    end();
}

/* --- Much at once ------------------------------------------------------------------------------------------------- */

enum { MANY = 20000, REQUESTS = 200 };

static void put_many(uint64_t version, size_t body)
{
    fl_row *rows = calloc(MANY, sizeof *rows);
    char *bytes = calloc(1, body + 1);
    for (uint64_t i = 0; i < MANY; i++) {
        rows[i] = (fl_row){.key = {(int64_t)(MANY - i), 2 * i + 2}, .ns = text("ns"), .body = {bytes, body}};
        rows[i].id = rows[i].key;
        rows[i].window = fl_window_of(0, FL_WINDOW_SHIFT_NEAR);
    }
    put(shard, version, rows, MANY);
    free(rows);
    free(bytes);
}

/* Rows that are counted, and come in order. */
struct counter {
    fl_store_request request;
    size_t count;
    uint64_t last;
    unsigned calls;
    bool done;
};

static void count_rows(fl_store_request *request, const fl_row *rows, size_t count)
{
    struct counter *counter = request->arg;
    CHECK(count <= 1024 && !counter->done);
    for (size_t i = 0; i < count; i++) {
        CHECK(rows[i].key.seq > counter->last);
        counter->last = rows[i].key.seq;
    }
    counter->count += count;
    counter->calls++;
}

static void counted(fl_store_request *request)
{
    CHECK_EQ(request->result, 0);
    ((struct counter *)request->arg)->done = true;
}

TEST(rows_come_in_batches_and_before_what_was_submitted_after_them)
{
    static const uint64_t window = (uint64_t)FL_WINDOW_SHIFT_NEAR << 56;
    begin();
    put_many(claim(shard, "me"), 10);
    struct counter counters[3] = {0};
    struct asked after[3];
    for (int i = 0; i < 3; i++) {
        counters[i].request = (fl_store_request){.op = FL_STORE_LOAD, .done = counted, .arg = &counters[i]};
        counters[i].request.load.windows = &window;
        counters[i].request.load.window_count = 1;
        counters[i].request.load.until_us = INT64_MAX;
        counters[i].request.load.limit = i == 1 ? MANY / 2 : MANY;
        counters[i].request.load.rows = count_rows;
        fl_store_submit(shard, &counters[i].request);
        after[i] = to_list_dead();
        ask(shard, &after[i]);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(await(&after[i]), 0);
        CHECK(counters[i].done);
        CHECK_EQ(counters[i].count, i == 1 ? MANY / 2 : MANY);
        CHECK(counters[i].calls >= MANY / 2 / 1024);
    }
    CHECK(counters[1].request.load.more && counters[1].request.load.next.at_us == MANY / 2 + 1);
    CHECK_EQ(counters[1].last, 2 * MANY);
    end();
}

TEST(a_body_may_have_any_size_up_to_the_limit)
{
    begin();
    uint64_t version = claim(shard, "me");
    static const size_t sizes[] = {0, 1, 3900, 4000, 4096, 5000, 200000, FL_STORE_BODY_MAX};
    char *bytes = malloc(FL_STORE_BODY_MAX);
    for (size_t i = 0; i < FL_STORE_BODY_MAX; i++)
        bytes[i] = (char)(i * 31 >> 4);
    for (uint64_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fl_row row = make_named(2 * i + 2, 1000, 25, "a"), found;
        row.body = (fl_bytes){bytes, sizes[i]};
        row.name = (fl_bytes){bytes, 1 + i};
        put(shard, version, &row, 1);
        CHECK(is_there(shard, row.id, &found) && same_row(&row, &found));
    }
    reopen();
    fl_row *rows;
    CHECK_EQ(load(shard, fl_window_of(1000, 25), &rows), sizeof sizes / sizeof *sizes);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(same_bytes(rows[i].body, (fl_bytes){bytes, sizes[i]}));
    free(bytes);
    end();
}

TEST(many_requests_under_way_are_answered_in_order)
{
    begin();
    uint64_t version = claim(shard, "me");
    static struct asked all[REQUESTS];
    static fl_row rows[REQUESTS];
    static fl_store_change changes[REQUESTS];
    for (uint64_t i = 0; i < REQUESTS; i++) {
        rows[i] = make_row(2 * i + 2, 1000, 25);
        changes[i] = (fl_store_change){.put = &rows[i]};
        all[i] = i % 5 == 4 ? to_list(rows[i].window) : to_write(i % 7 == 6 ? version - 1 : version, &changes[i], 1);
        ask(shard, &all[i]);
    }
    size_t written = 0;
    for (uint64_t i = 0; i < REQUESTS; i++) {
        int r = await(&all[i]);
        CHECK_EQ(r, i % 5 != 4 && i % 7 == 6 ? FL_SHARD_LOST : 0);
        CHECK(i == 0 || all[i].place > all[i - 1].place);
        if (i % 5 == 4)
            CHECK_EQ(all[i].request.list.count, written);
        else
            written += r == 0;
    }
    end();
}

/* --- Files stay small --------------------------------------------------------------------------------------------- */

static int64_t pages(const char *pragma)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    CHECK_EQ(sqlite3_open(folder_file("shard-0000.db"), &db), SQLITE_OK);
    CHECK_EQ(sqlite3_prepare_v2(db, pragma, -1, &statement, NULL), SQLITE_OK);
    CHECK_EQ(sqlite3_step(statement), SQLITE_ROW);
    int64_t count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return count;
}

TEST(what_was_finished_is_used_again)
{
    begin();
    uint64_t version = claim(shard, "me");
    int64_t once = 0;
    for (int i = 0; i < 6; i++) {
        put_many(version, 100);
        struct fl_store_span span = {fl_window_of(0, FL_WINDOW_SHIFT_NEAR), true};
        struct asked finish = simple(FL_STORE_FINISH, version);
        finish.request.finish.spans = &span;
        finish.request.finish.span_count = 1;
        CHECK_EQ(perform(shard, &finish), 0);
        CHECK_EQ(load(shard, span.window, NULL), 0);
        for (int64_t used = INT64_MAX; used > 200;) /* until it has been erased */
            used = pages("PRAGMA page_count") - pages("PRAGMA freelist_count");
        if (i == 0)
            once = pages("PRAGMA page_count");
    }
    CHECK(pages("PRAGMA page_count") < once * 3 / 2);
    end();
}
