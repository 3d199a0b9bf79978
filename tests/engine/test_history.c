/* SPDX-License-Identifier: MIT */
/* History: what was appended is written with progress, listed, erased, and goes in spans. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bed.h"
#include "test.h"
#include "wheel/allocator.h"

enum { MOST = 20000 };

/* Appends a row that says its number. */
static size_t tell(const char *ns, uint64_t id, uint32_t result, unsigned number)
{
    fl_history_row row = {.id = {START, id},
                          .began_us = wall_now(&bed.wall.clock),
                          .result = result,
                          .ns = text(ns),
                          .name = text(id % 2 ? "odd" : ""),
                          .schedule = text(id % 3 ? "" : "third"),
                          .body = {&number, sizeof number}};
    return fl_engine_history(bed.engine, &row, 1);
}

static struct {
    unsigned numbers[MOST];
    size_t count, pages;
    int result;
    bool over;
} found;

static void listed(fl_history_listing *listing)
{
    found.result = listing->result;
    found.pages++;
    for (size_t i = 0; i < listing->count; i++) {
        CHECK(found.count < MOST);
        memcpy(&found.numbers[found.count++], listing->found[i].body.data, sizeof(unsigned));
    }
    found.over = !listing->more;
    if (listing->more)
        fl_engine_list_history(bed.engine, listing);
}

static fl_history_listing search;

static size_t list(fl_history_listing listing)
{
    memset(&found, 0, sizeof found);
    search = listing;
    search.done = listed;
    fl_engine_list_history(bed.engine, &search);
    CHECK(!found.over);
    for (int i = 0; i < 1000 && !found.over; i++)
        run_for(SECOND / 1000);
    CHECK(found.over);
    CHECK_EQ(found.result, 0);
    return found.count;
}

static struct {
    fl_history_erasure erasure;
    bool over;
} gone;

static void erased(fl_history_erasure *erasure)
{
    (void)erasure;
    gone.over = true;
}

static uint64_t erase(const char *ns, uint64_t id)
{
    gone.over = false;
    gone.erasure = (fl_history_erasure){.ns = text(ns), .id = {START, id}, .done = erased};
    fl_engine_erase_history(bed.engine, &gone.erasure);
    for (int i = 0; i < 1000 && !gone.over; i++)
        run_for(SECOND / 1000);
    CHECK(gone.over);
    CHECK_EQ(gone.erasure.result, 0);
    return gone.erasure.erased;
}

TEST(history_is_listed_newest_first)
{
    set_up((fl_engine_config){0});
    run_for(SECOND);
    for (unsigned i = 0; i < 250; i++)
        CHECK_EQ(tell(i % 2 ? "a" : "b", 1 + i % 10, i % 5, i), 1);
    for (size_t limit = 0; limit < 1000; limit = limit * 7 + 1) {
        CHECK_EQ(list((fl_history_listing){.limit = limit}), 250); /* at once: it need not be written before */
        for (unsigned i = 0; i < 250; i++)
            CHECK_EQ(found.numbers[i], 249 - i);
        CHECK_EQ(list((fl_history_listing){.limit = limit, .ns = text("a")}), 125);
        CHECK_EQ(list((fl_history_listing){.limit = limit, .name = text("odd"), .schedule = text("third")}), 50);
        CHECK_EQ(list((fl_history_listing){.limit = limit, .id = {START, 7}}), 25);
        CHECK_EQ(list((fl_history_listing){.limit = limit, .results = 1 << 3 | 1 << 1}), 100);
    }
    CHECK_EQ(list((fl_history_listing){.until_us = START}), 0);
    CHECK_EQ(list((fl_history_listing){.from_us = wall_now(&bed.wall.clock) + SECOND}), 0);
    tear_down();
}

TEST(history_costs_nothing_while_there_is_none)
{
    fl_engine_stats before, after;
    set_up((fl_engine_config){0});
    run_for(10 * SECOND);
    fl_engine_get_stats(bed.engine, &before);
    run_for(100 * SECOND);
    fl_engine_get_stats(bed.engine, &after);
    CHECK_EQ(after.store_records, before.store_records);
    tell("a", 1, 0, 0);
    run_for(10 * SECOND);
    fl_engine_get_stats(bed.engine, &after);
    CHECK_EQ(after.store_records, before.store_records + 1);
    CHECK_EQ(after.history_rows, 1);
    CHECK_EQ(after.history_lost, 0);
    CHECK(after.history_bytes > 0);
    tear_down();
}

TEST(a_crash_loses_at_most_what_was_not_recorded)
{
    set_up((fl_engine_config){0});
    run_for(SECOND);
    for (unsigned i = 0; i < 100; i++) {
        tell("a", 1 + i, 0, i);
        run_for(SECOND / 10);
    }
    stop_engine(true);
    start_engine((fl_engine_config){.force = true});
    run_for(SECOND);
    size_t count = list((fl_history_listing){0});
    CHECK(count >= 89 && count <= 100);
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(found.numbers[i], count - 1 - i);
    tell("a", 1, 0, 1000);
    stop_engine(false); /* which records */
    start_engine((fl_engine_config){.force = true});
    run_for(SECOND);
    CHECK_EQ(list((fl_history_listing){0}), count + 1);
    CHECK_EQ(found.numbers[0], 1000);
    tear_down();
}

static struct {
    fl_memory_fault fault;
    int times;
} trouble;

static fl_memory_fault make_trouble(void *arg, uint32_t shard, const fl_store_request *request)
{
    (void)arg, (void)shard;
    bool records = request->op == FL_STORE_RECORD || request->op == FL_STORE_FINISH;
    return records && trouble.times-- > 0 ? trouble.fault : (fl_memory_fault){0};
}

static void write_in_trouble(fl_memory_fault fault, bool refused)
{
    fl_engine_stats stats;
    set_up((fl_engine_config){0});
    run_for(SECOND);
    CHECK_EQ(fl_memory_store_faults(bed.store, make_trouble, NULL), 0);
    trouble.fault = fault;
    trouble.times = 3;
    for (unsigned i = 0; i < 50; i++) {
        tell("a", 1, 0, i);
        run_for(SECOND / 10);
    }
    run_for(5 * SECOND);
    size_t count = list((fl_history_listing){0});
    CHECK(refused ? count >= 15 && count < 45 : count == 50);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.history_rows, count);
    CHECK_EQ(stats.history_lost, 50 - count);
    for (size_t i = 0; i < found.count; i++)
        CHECK_EQ(found.numbers[i], 49 - i);
    tear_down();
}

/* A record that fails is tried again, and its rows with it; unless the store does not take them. */
TEST(rows_are_written_once_whatever_the_store_answers)
{
    write_in_trouble((fl_memory_fault){.result = FL_OUTCOME_UNKNOWN}, false);
    write_in_trouble((fl_memory_fault){.result = FL_OUTCOME_UNKNOWN, .applied = true}, false);
    write_in_trouble((fl_memory_fault){.result = FL_STORE_UNAVAILABLE}, false);
    write_in_trouble((fl_memory_fault){.delay_ns = 2500000000}, false);
    write_in_trouble((fl_memory_fault){.result = FL_STORE_FULL}, true);
}

TEST(the_rows_of_a_timer_are_erased)
{
    set_up((fl_engine_config){.history_bytes = 100000});
    run_for(SECOND);
    for (unsigned i = 0; i < 300; i++) {
        tell(i % 2 ? "a" : "b", 1 + i % 10, 0, i);
        run_for(SECOND / 20);
    }
    CHECK_EQ(erase("", 4), 30);
    CHECK_EQ(list((fl_history_listing){.id = {START, 4}}), 0);
    CHECK_EQ(list((fl_history_listing){0}), 270);
    CHECK_EQ(erase("b", 6), 0);
    CHECK_EQ(erase("a", 6), 30);
    tell("a", 6, 0, 1);
    CHECK_EQ(erase("a", 6), 1); /* one that is not written yet */
    CHECK_EQ(list((fl_history_listing){.id = {START, 6}}), 0);
    tear_down();
}

TEST(the_oldest_goes_when_there_is_too_much)
{
    fl_engine_stats stats;
    set_up((fl_engine_config){.history_bytes = 50000});
    run_for(SECOND);
    for (unsigned i = 0; i < 3000; i++) {
        tell("a", 1, 0, i);
        if (i % 20 == 0)
            run_for(SECOND);
    }
    run_for(60 * SECOND);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK(stats.history_bytes <= 50000 && stats.history_bytes > 40000);
    size_t count = list((fl_history_listing){.limit = 1000});
    CHECK(count > 100 && count < 1000);
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(found.numbers[i], 2999 - i);
    tear_down();
}

TEST(history_is_kept_as_long_as_its_namespace_says)
{
    const int64_t hour = 3600 * SECOND;
    fl_engine_stats stats;
    uint64_t day_us = 86400 * SECOND;
    set_up((fl_engine_config){.claim_us = day_us, .record_interval_us = 60 * SECOND, .history_keep_us = 48 * hour});
    run_for(SECOND);
    CHECK_EQ(fl_engine_keep_history(bed.engine, text("short"), 10 * hour), 0);
    CHECK_EQ(fl_engine_keep_history(bed.engine, text("long"), 96 * hour), 0);
    for (unsigned i = 0; i < 200; i++) {
        tell("short", 1, 0, i);
        tell("long", 2, 0, i);
        tell("other", 3, 0, i);
        run_for(hour);
    }
    run_for(hour / 2);
    CHECK_EQ(list((fl_history_listing){.ns = text("short")}), 9);
    CHECK_EQ(list((fl_history_listing){.ns = text("other")}), 47);
    CHECK_EQ(list((fl_history_listing){.ns = text("long")}), 95);
    fl_engine_get_stats(bed.engine, &stats);
    uint64_t bytes = stats.history_bytes;
    CHECK_EQ(fl_engine_keep_history(bed.engine, text("long"), UINT64_MAX), 0);
    run_for(2 * hour);
    fl_engine_get_stats(bed.engine, &stats);
    CHECK(stats.history_bytes < bytes * 2 / 3); /* and nothing had to be appended for it */
    CHECK_EQ(list((fl_history_listing){.ns = text("long")}), 45);
    tear_down();
}

TEST(rows_that_come_too_fast_are_lost_and_counted)
{
    fl_engine_stats stats;
    char body[1000] = {0};
    fl_history_row row = {.id = {START, 2}, .ns = text("a"), .body = {body, sizeof body}};
    set_up((fl_engine_config){.max_history_bytes = 100000});
    run_for(SECOND);
    size_t taken = 0;
    for (int i = 0; i < 200; i++)
        taken += fl_engine_history(bed.engine, &row, 1);
    CHECK(taken > 80 && taken < 100);
    run_for(SECOND / 100); /* much sooner than the next record would have been */
    fl_engine_get_stats(bed.engine, &stats);
    CHECK_EQ(stats.history_rows, taken);
    CHECK_EQ(stats.history_lost, 200 - taken);
    CHECK_EQ(fl_engine_history(bed.engine, &row, 1), 1);
    tear_down();
}

TEST(history_that_means_nothing_is_not_taken)
{
    static const char large[FL_HISTORY_BODY_MAX + 1];
    fl_history_listing listing = {.limit = 1001, .done = listed};
    set_up((fl_engine_config){0});
    fl_history_row good = {.id = {START, 2}, .ns = text("a")}, bad = good;
    bad.ns.size = 0;
    CHECK_EQ(fl_engine_history(bed.engine, &bad, 1), 0);
    bad = good;
    bad.result = FL_HISTORY_RESULTS;
    CHECK_EQ(fl_engine_history(bed.engine, &bad, 1), 0);
    bad = good;
    bad.schedule = (fl_bytes){large, 256};
    CHECK_EQ(fl_engine_history(bed.engine, &bad, 1), 0);
    bad = good;
    bad.body = (fl_bytes){large, sizeof large};
    CHECK_EQ(fl_engine_history(bed.engine, &bad, 1), 0);
    CHECK_EQ(fl_engine_keep_history(bed.engine, text(""), 1), FL_INVALID_ARGUMENT);
    for (int i = 0; i < 3; i++) {
        memset(&found, 0, sizeof found);
        listing.cursor = (fl_cursor){{i == 1 ? UINT64_MAX : 0, i == 2 ? UINT64_MAX : 0}};
        fl_engine_list_history(bed.engine, &listing);
        run_for(SECOND);
        CHECK(found.over);
        CHECK_EQ(found.result, FL_INVALID_ARGUMENT);
        listing.limit = 0;
    }
    gone.over = false;
    gone.erasure = (fl_history_erasure){.done = erased};
    fl_engine_erase_history(bed.engine, &gone.erasure);
    run_for(SECOND);
    CHECK(gone.over);
    CHECK_EQ(gone.erasure.result, FL_INVALID_ARGUMENT);
    tear_down();
}

/* What is asked of an engine that is ending is answered. */
TEST(lists_of_history_are_refused_when_the_engine_ends)
{
    for (int turns = 0; turns < 4; turns++) {
        fl_history_listing listing = {.done = listed};
        set_up((fl_engine_config){0});
        if (turns > 1)
            run_for(SECOND);
        tell("a", 1, 0, 7);
        memset(&found, 0, sizeof found);
        gone.over = false;
        gone.erasure = (fl_history_erasure){.id = {START, 99}, .done = erased};
        fl_engine_list_history(bed.engine, &listing);
        fl_engine_erase_history(bed.engine, &gone.erasure);
        if (turns % 2)
            CHECK_EQ(fl_loop_run_once(bed.loop, true), 0);
        stop_engine(turns > 1);
        CHECK(found.over && gone.over);
        tear_down_store();
    }
}

/* --- Without memory ------------------------------------------------------------------------------------------------- */

static void stop_loop(fl_loop *loop, void *arg)
{
    (void)arg;
    fl_loop_stop(loop);
}

static void listed_somehow(fl_history_listing *listing)
{
    CHECK(listing->result == 0 || listing->result == FL_NO_MEMORY || listing->result == FL_STORE_UNAVAILABLE);
    found.over = true;
}

static void erased_somehow(fl_history_erasure *erasure)
{
    CHECK(erasure->result == 0 || erasure->result == FL_NO_MEMORY || erasure->result == FL_STORE_UNAVAILABLE);
    gone.over = true;
}

/* The test's own calls do not fail. */
static void pass(int64_t us)
{
    struct memory armed = memory;
    memory_fail(0, false);
    CHECK_EQ(fl_loop_timer(bed.loop, (uint64_t)us * 1000, stop_loop, NULL, NULL), 0);
    memory_fail(armed.fail_in, armed.fail_on);
    CHECK_EQ(fl_loop_run(bed.loop), 0);
}

/* Returns whether anything failed. */
static bool live_with(uint64_t fail_in)
{
    fl_history_listing listing = {.done = listed_somehow};
    memory_install();
    set_up((fl_engine_config){.history_bytes = 3000});
    CHECK_EQ(create("a", 20 * SECOND, "x").result, 0);
    run_for(SECOND);
    found.over = gone.over = false;
    gone.erasure = (fl_history_erasure){.id = {START, 2}, .done = erased_somehow};
    uint64_t before = memory.failed;
    memory_fail(fail_in, false);
    for (unsigned i = 0; i < 100; i++)
        tell("a", i % 5, 0, i);
    fl_engine_list_history(bed.engine, &listing);
    fl_engine_erase_history(bed.engine, &gone.erasure);
    for (unsigned i = 0; i < 5; i++) {
        tell("a", 1, 0, i);
        pass(3 * SECOND);
    }
    bool failed = memory.failed > before;
    memory_fail(0, false);
    run_for(20 * SECOND);
    CHECK(found.over && gone.over);
    CHECK(bed.fired_count >= 1); /* history never costs a timer */
    tear_down();
    memory_remove();
    return failed;
}

TEST(each_allocation_for_history_may_fail)
{
    uint64_t n = 1;
    while (live_with(n))
        n++;
    printf("# %llu allocations\n", (unsigned long long)n - 1);
    CHECK(n > 30);
}
