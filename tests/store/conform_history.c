/* SPDX-License-Identifier: MIT */
/* The suite, about history: appended, listed from the end, erased, dropped whole. */

#include <stdlib.h>

#include "store/conformance.h"

static fl_progress progress = {.seq_limit = 1000000};

static fl_history_row make_past(uint64_t seq, const char *ns, uint64_t id)
{
    return (fl_history_row){.seq = seq,
                            .id = {(int64_t)id * 10, id},
                            .began_us = (int64_t)seq * 1000,
                            .result = (uint32_t)(seq % 5),
                            .ns = text(ns),
                            .name = text(id % 2 ? "odd" : ""),
                            .schedule = text(id % 3 ? "" : "third"),
                            .body = {remember(&seq, sizeof seq), sizeof seq}};
}

static struct asked to_append(uint64_t version, fl_history_change history)
{
    return (struct asked){
        .request = {.op = FL_STORE_RECORD, .version = version, .record = {.progress = progress, .history = history}}};
}

static void append(uint64_t version, uint64_t span, const fl_history_row *rows, size_t count)
{
    struct asked asked = to_append(version, (fl_history_change){.rows = rows, .count = count, .span = span});
    CHECK_EQ(perform(shard, &asked), 0);
}

static struct asked to_list_past(uint64_t span)
{
    return (struct asked){
        .request = {.op = FL_STORE_HISTORY,
                    .history = {.span = span, .from_us = INT64_MIN, .until_us = INT64_MAX, .limit = 1000}}};
}

/* What was found, page by page: copied while the answer is valid. */
static struct past {
    fl_history_row rows[4096];
    size_t count, pages, bytes;
} past;

static struct asked page;
static bool page_over;

static void page_done(fl_store_request *request)
{
    CHECK_EQ(request->result, 0);
    past.pages++;
    for (size_t i = 0; i < request->history.count; i++) {
        fl_history_row *row = &past.rows[past.count++];
        *row = request->history.rows[i];
        row->ns.data = remember(row->ns.data, row->ns.size);
        row->name.data = remember(row->name.data, row->name.size);
        row->schedule.data = remember(row->schedule.data, row->schedule.size);
        row->body.data = remember(row->body.data, row->body.size);
    }
    request->history.before_seq = request->history.next_seq;
    if (request->history.next_seq > 0)
        fl_store_submit(shard, request);
    else
        page_over = true;
}

static size_t list_past(struct asked asked)
{
    page = asked;
    past.count = past.pages = 0;
    page_over = false;
    page.request.done = page_done;
    fl_store_submit(shard, &page.request);
    while (!page_over)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    for (size_t i = 1; i < past.count; i++)
        CHECK(past.rows[i].seq < past.rows[i - 1].seq);
    return past.count;
}

static bool same_past(const fl_history_row *a, const fl_history_row *b)
{
    return a->seq == b->seq && same_key(a->id, b->id) && a->began_us == b->began_us && a->result == b->result &&
           same_bytes(a->ns, b->ns) && same_bytes(a->name, b->name) && same_bytes(a->schedule, b->schedule) &&
           same_bytes(a->body, b->body);
}

enum { ROWS = 300 };
static fl_history_row rows[ROWS];

static uint64_t begin_with_history(void)
{
    begin();
    uint64_t version = claim(shard, "me");
    for (unsigned i = 0; i < ROWS; i++)
        rows[i] = make_past(2 + 2 * i, i % 4 ? "a" : "b", 1 + i % 10);
    append(version, 1, rows, 100);
    append(version, 1, rows + 100, 1);
    append(version, 2, rows + 101, ROWS - 101);
    return version;
}

TEST(history_is_listed_from_the_end)
{
    begin_with_history();
    for (size_t limit = 1; limit < 1000; limit = limit * 5 + 1) {
        struct asked asked = to_list_past(1);
        asked.request.history.limit = limit;
        CHECK_EQ(list_past(asked), 101);
        for (size_t i = 0; i < 101; i++)
            CHECK(same_past(&past.rows[i], &rows[100 - i]));
        asked.request.history.before_seq = rows[50].seq;
        CHECK_EQ(list_past(asked), 50);
        CHECK_EQ(past.rows[0].seq, rows[49].seq);
    }
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101);
    CHECK_EQ(list_past(to_list_past(3)), 0);
    end();
}

TEST(history_is_filtered)
{
    begin_with_history();
    struct asked asked = to_list_past(2);
    asked.request.history.limit = 7; /* looks at so many, whether they fit or not */
    asked.request.history.ns = text("b");
    CHECK_EQ(list_past(asked), 49);
    CHECK(past.pages > 20);
    for (size_t i = 0; i < past.count; i++)
        CHECK(same_bytes(past.rows[i].ns, text("b")));
    asked.request.history.ns = text("c");
    CHECK_EQ(list_past(asked), 0);
    asked.request.history.ns = text("");
    asked.request.history.name = text("odd");
    CHECK_EQ(list_past(asked), 99);
    asked.request.history.schedule = text("third");
    CHECK_EQ(list_past(asked), 40); /* 3 and 9 of each ten */
    asked.request.history.id_seq = 9;
    CHECK_EQ(list_past(asked), 20);
    asked.request.history.results = 1u << rows[108].result | 1u << 31;
    CHECK_EQ(list_past(asked), 20); /* those of one timer have the same */
    asked.request.history.results = 1u << 31;
    CHECK_EQ(list_past(asked), 0);
    asked = to_list_past(2);
    asked.request.history.results = 1u << 1 | 1u << 2;
    size_t expected = 0;
    for (size_t i = 101; i < ROWS; i++)
        expected += rows[i].result == 1 || rows[i].result == 2;
    CHECK_EQ(list_past(asked), expected);
    asked = to_list_past(2);
    asked.request.history.from_us = rows[150].began_us;
    asked.request.history.until_us = rows[160].began_us;
    CHECK_EQ(list_past(asked), 10);
    CHECK_EQ(past.rows[0].seq, rows[159].seq);
    end();
}

TEST(what_is_in_the_history_is_not_appended_again)
{
    uint64_t version = begin_with_history();
    append(version, 2, rows + 101, ROWS - 101);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101);
    end();
}

TEST(a_claim_tells_the_spans)
{
    begin_with_history();
    struct asked asked = to_claim("me", HOUR_US, true);
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(asked.request.claim.span_count, 2);
    end();
}

static fl_history_span told[8];
static size_t told_count;

static void note_spans(fl_store_request *request)
{
    CHECK_EQ(request->result, 0);
    told_count = request->claim.span_count;
    for (size_t i = 0; i < told_count; i++)
        told[i] = request->claim.spans[i];
    *(bool *)request->arg = true;
}

static uint64_t claim_spans(void)
{
    bool over = false;
    fl_store_request request = {
        .op = FL_STORE_CLAIM, .done = note_spans, .arg = &over, .claim = {.owner = "me", .claim_us = HOUR_US}};
    fl_store_submit(shard, &request);
    while (!over)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    return request.claim.version;
}

TEST(spans_know_their_rows_and_go_whole)
{
    begin_with_history();
    uint64_t version = claim_spans();
    CHECK_EQ(told_count, 2);
    CHECK_EQ(told[0].span, 1);
    CHECK_EQ(told[0].rows, 101);
    CHECK_EQ(told[0].first_us, rows[0].began_us);
    CHECK_EQ(told[0].last_us, rows[100].began_us);
    CHECK(told[0].bytes > 101 * 10 && told[0].bytes < 101 * 500);
    CHECK_EQ(told[1].rows, ROWS - 101);
    fl_history_row more = make_past(100000, "a", 7);
    struct asked asked = to_append(version, (fl_history_change){.rows = &more, .count = 1, .span = 3, .drop_below = 2});
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(list_past(to_list_past(1)), 0);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101);
    CHECK_EQ(list_past(to_list_past(3)), 1);
    version = claim_spans();
    CHECK_EQ(told_count, 2);
    asked = to_append(version, (fl_history_change){.drop_below = 100});
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(list_past(to_list_past(3)), 0);
    version = claim_spans();
    CHECK_EQ(told_count, 0);
    append(version, 3, &more, 1); /* a number that was used before */
    CHECK_EQ(list_past(to_list_past(3)), 1);
    end();
}

TEST(history_goes_with_what_is_finished)
{
    begin_with_history();
    uint64_t version = claim_spans();
    fl_history_row more = make_past(100000, "a", 7);
    struct asked asked = {.request = {.op = FL_STORE_FINISH,
                                      .version = version,
                                      .finish = {.settled = progress,
                                                 .record = progress,
                                                 .history = {.rows = &more, .count = 1, .span = 2, .drop_below = 2}}}};
    CHECK_EQ(perform(shard, &asked), 0);
    CHECK_EQ(list_past(to_list_past(1)), 0);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 100);
    CHECK(same_past(&past.rows[0], &more));
    end();
}

/* Returns how many were erased. */
static uint64_t forget(uint64_t version, uint64_t span, const char *ns, uint64_t id_seq)
{
    struct asked asked = {.request = {.op = FL_STORE_FORGET,
                                      .version = version,
                                      .forget = {.span = span, .ns = text(ns), .id_seq = id_seq}}};
    CHECK_EQ(perform(shard, &asked), 0);
    return asked.request.forget.erased;
}

TEST(the_rows_of_a_timer_are_erased_from_the_history)
{
    uint64_t version = begin_with_history();
    CHECK_EQ(forget(version, 2, "", 4), 20);
    struct asked of_id = to_list_past(2);
    of_id.request.history.id_seq = 4;
    CHECK_EQ(list_past(of_id), 0);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101 - 20);
    for (size_t i = 0; i < past.count; i++)
        CHECK(same_past(&past.rows[i], &rows[(past.rows[i].seq - 2) / 2]));
    of_id.request.history.span = 1;
    CHECK_EQ(list_past(of_id), 10);
    CHECK_EQ(forget(version, 1, "b", 1), 6); /* 0, 20, 40, ... are of "b" */
    of_id.request.history.id_seq = 1;
    CHECK_EQ(list_past(of_id), 5);
    CHECK_EQ(forget(version, 77, "", 1), 0);
    struct asked of_a = to_list_past(1);
    of_a.request.history.ns = text("a");
    size_t all = list_past(to_list_past(1)), of_namespace = list_past(of_a);
    CHECK(of_namespace > 0 && of_namespace < all);
    CHECK_EQ(forget(version, 1, "a", 0), of_namespace);
    CHECK_EQ(list_past(of_a), 0);
    CHECK_EQ(list_past(to_list_past(1)), all - of_namespace);
    end();
}

TEST(only_the_owner_writes_history)
{
    uint64_t old = begin_with_history();
    claim(shard, "other");
    fl_history_row more = make_past(100000, "a", 7);
    struct asked asked = to_append(old, (fl_history_change){.rows = &more, .count = 1, .span = 2, .drop_below = 2});
    CHECK_EQ(perform(shard, &asked), FL_SHARD_LOST);
    CHECK_EQ(list_past(to_list_past(1)), 101);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101);
    asked = (struct asked){.request = {.op = FL_STORE_FORGET, .version = old, .forget = {.span = 2, .id_seq = 4}}};
    CHECK_EQ(perform(shard, &asked), FL_SHARD_LOST);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101);
    end();
}

TEST(each_shard_has_its_own_history)
{
    begin_with_history();
    fl_shard *other = attach(1), *first = shard;
    uint64_t version = claim(other, "me");
    shard = other;
    fl_history_row more = make_past(2, "a", 7);
    append(version, 1, &more, 1);
    CHECK_EQ(list_past(to_list_past(1)), 1);
    shard = first;
    CHECK_EQ(list_past(to_list_past(1)), 101);
    detach(other);
    end();
}

TEST(history_survives)
{
    if (!under_test.reopen) {
        test_skip("nothing survives here");
        return;
    }
    begin_with_history();
    reopen();
    CHECK_EQ(list_past(to_list_past(1)), 101);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 101);
    uint64_t version = claim_spans();
    CHECK_EQ(told_count, 2);
    fl_history_row more = make_past(100000, "a", 7);
    append(version, 2, &more, 1);
    CHECK_EQ(list_past(to_list_past(2)), ROWS - 100);
    end();
}

TEST(large_rows_of_history_and_many_of_them)
{
    enum { MANY = 4000, LARGE = 12 };
    static fl_history_row many[MANY];
    begin();
    uint64_t version = claim(shard, "me");
    for (unsigned i = 0; i < MANY; i++)
        many[i] = make_past(2 + 2 * i, "a", 1 + i);
    append(version, 1, many, MANY);
    CHECK_EQ(list_past(to_list_past(1)), MANY);
    unsigned char *large = calloc(1, FL_HISTORY_BODY_MAX);
    for (unsigned i = 0; i < LARGE; i++) {
        large[0] = (unsigned char)i;
        many[i] = make_past(20000 + 2 * i, "a", 1);
        many[i].body = (fl_bytes){remember(large, 300000), 300000};
    }
    many[0].body = (fl_bytes){remember(large, FL_HISTORY_BODY_MAX), FL_HISTORY_BODY_MAX};
    free(large);
    append(version, 2, many, LARGE);
    CHECK_EQ(list_past(to_list_past(2)), LARGE);
    CHECK(past.pages > 2); /* a page has a bounded number of bytes */
    for (unsigned i = 0; i < LARGE; i++)
        CHECK(same_past(&past.rows[i], &many[LARGE - 1 - i]));
    end();
}

TEST(history_that_means_nothing_is_refused)
{
    static const char large[FL_HISTORY_BODY_MAX + 1];
    begin();
    uint64_t version = claim(shard, "me");
    fl_history_row good[2] = {make_past(2, "a", 1), make_past(4, "a", 1)};
    for (int i = 0; i < 8; i++) {
        fl_history_row bad[2] = {good[0], good[1]};
        fl_history_change change = {.rows = bad, .count = 2, .span = 1};
        if (i == 0)
            bad[1].seq = 2;
        else if (i == 1)
            bad[0].seq = 0;
        else if (i == 2)
            bad[1].seq = (uint64_t)1 << 56;
        else if (i == 3)
            bad[0].ns.size = 0;
        else if (i == 4)
            bad[0].name = (fl_bytes){large, FL_STORE_NAME_MAX + 1};
        else if (i == 5)
            bad[1].result = FL_HISTORY_RESULTS;
        else if (i == 6)
            bad[1].body = (fl_bytes){large, sizeof large};
        else
            change.span = (uint64_t)1 << 56;
        struct asked asked = to_append(version, change);
        CHECK_EQ(perform(shard, &asked), FL_INVALID_ARGUMENT);
        CHECK_EQ(list_past(to_list_past(1)), 0);
    }
    append(version, 1, good, 2);
    CHECK_EQ(list_past(to_list_past(1)), 2);
    end();
}
