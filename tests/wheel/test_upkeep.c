/* SPDX-License-Identifier: MIT */
/* The wheel: what it keeps in memory, and what it forgets, over a long life in unusual conditions. */

#include <stdlib.h>

#include <foliot/wheel.h>

#include "../test.h"
#include "wheel/wheel_test.h"

#define MS MILLISECOND

enum { BATCH = 512 };

static fl_wheel *new_wheel(const fl_wheel_config *config)
{
    fl_wheel *w;
    CHECK_EQ(fl_wheel_new(config, &w), 0);
    return w;
}

static fl_timer_id schedule(fl_wheel *w, uint64_t deadline_ns)
{
    fl_timer_id id;
    CHECK_EQ(fl_wheel_schedule(w, deadline_ns, w, &id), 0);
    return id;
}

static uint64_t bytes(const fl_wheel *w)
{
    fl_wheel_stats stats;
    fl_wheel_memory_stats(w, &stats);
    return stats.bytes;
}

static uint64_t capacity(const fl_wheel *w)
{
    fl_wheel_stats stats;
    fl_wheel_memory_stats(w, &stats);
    return stats.level[0].slot_capacity + stats.level[1].slot_capacity + stats.level[2].slot_capacity;
}

static void free_checked(fl_wheel *w)
{
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    fl_wheel_free(w);
}

/* A poller that takes no more than comes keeps a backlog for ever. */
TEST(a_standing_backlog_takes_no_more_memory_with_time)
{
    for (int coarse = 0; coarse < 2; coarse++) {
        fl_wheel *w = new_wheel(&(fl_wheel_config){.coarse = coarse});
        static fl_expired out[BATCH];
        uint64_t early_bytes = 0;
        for (uint64_t turn = 1; turn <= 1500; turn++) {
            uint64_t now_ns = turn * 100 * MS;
            for (int i = 0; i < BATCH; i++)
                schedule(w, now_ns + 1500 * MS + (uint64_t)i * 1000);
            fl_wheel_poll(w, now_ns, out, turn < 40 ? BATCH / 2 : BATCH);
            if (turn == 300)
                early_bytes = bytes(w);
        }
        CHECK(bytes(w) <= early_bytes * 2);
        free_checked(w);
    }
}

/* Leaves one timer in `of`, and polls without the clock moving. */
static void decimate(fl_wheel *w, int count, int of)
{
    fl_timer_id *ids = malloc((size_t)count * sizeof *ids);
    CHECK(ids);
    for (int i = 0; i < count; i++)
        ids[i] = schedule(w, MINUTE + (uint64_t)i);
    for (int i = 0; i < count; i++)
        if (i % of > 0)
            CHECK_EQ(fl_wheel_cancel(w, ids[i], NULL), 0);
    for (int i = 0; i < 2000; i++)
        fl_wheel_poll(w, 1, NULL, 0);
    free(ids);
}

TEST(compaction_comes_to_every_group_of_slots)
{
    static const int counts[] = {575, 1100, 5000, 20000};
    for (int i = 0; i < 4; i++) {
        fl_wheel *w = new_wheel(NULL);
        decimate(w, counts[i], counts[i]);
        CHECK(capacity(w) <= 64);
        free_checked(w);
    }
}

TEST(compaction_knows_min_capacity_beyond_a_group)
{
    fl_wheel *w = new_wheel(&(fl_wheel_config){.compaction.min_capacity = 10000});
    decimate(w, 50000, 1000);
    CHECK(capacity(w) < 10000);
    free_checked(w);
}

TEST(compact_forgets_references_of_cancelled_timers)
{
    enum { COUNT = 100000 };
    fl_wheel *w = new_wheel(NULL);
    uint64_t empty_bytes = bytes(w);
    fl_timer_id *ids = malloc(COUNT * sizeof *ids);
    CHECK(ids);
    for (int i = 0; i < COUNT; i++)
        ids[i] = schedule(w, 3 * SECOND + (uint64_t)i);
    for (uint64_t now_ns = MS; now_ns < 2900 * MS; now_ns += MS)
        CHECK_EQ(fl_wheel_poll(w, now_ns, NULL, 0), 0);
    for (int i = 1; i < COUNT; i++)
        CHECK_EQ(fl_wheel_cancel(w, ids[i], NULL), 0);
    fl_wheel_compact(w);
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
    /* References of 24 bytes would be 2.4 million; 115 thousand are for sorting, and come with the first timer. */
    printf("# %lu\n", bytes(w) - empty_bytes);
    CHECK(bytes(w) < empty_bytes + 32768 + 115 * 1024);
    fl_expired due;
    CHECK_EQ(fl_wheel_poll(w, 4 * SECOND, &due, 1), 1);
    CHECK_EQ(due.id, ids[0]);
    free(ids);
    free_checked(w);
}

TEST(bursts_that_come_and_go_leave_nothing)
{
    fl_wheel *w = new_wheel(NULL);
    fl_timer_id ids[4000];
    uint64_t early_bytes = 0;
    for (int burst = 0; burst < 400; burst++) {
        for (int i = 0; i < 4000; i++)
            ids[i] = schedule(w, MINUTE + (uint64_t)(i % 7) * SECOND);
        for (int i = 0; i < 4000; i++)
            CHECK_EQ(fl_wheel_cancel(w, ids[i], NULL), 0);
        if (burst % 2 == 0)
            fl_wheel_poll(w, (uint64_t)burst, NULL, 0);
        if (burst == 40)
            early_bytes = bytes(w);
    }
    CHECK(bytes(w) <= early_bytes + 65536);
    free_checked(w);
}

/* A burst in the middle of a tick is opened over the rest of the tick, not all at once: a poll indexes only a part. */
TEST(working_ahead_begins_gently_in_the_middle_of_a_tick)
{
    enum { COUNT = 200000 };
    fl_wheel *w = new_wheel(&(fl_wheel_config){.start_ns = (1ull << 30) * 3 / 2});
    uint64_t now_ns = fl_wheel_now_ns(w), before = 0;
    for (int i = 0; i < COUNT; i++)
        schedule(w, now_ns + (1ull << 30) + (uint64_t)i * 2500);
    for (int poll = 0; poll < 300; poll++) {
        before = bytes(w);
        CHECK_EQ(fl_wheel_poll(w, now_ns += MS, NULL, 0), 0);
        CHECK(bytes(w) < before + COUNT * 24 / 8 * 2); /* references have 24 bytes, and their arrays may double */
    }
    free_checked(w);
}

/* Each among 256 timers of which the others are gone. */
static void schedule_survivors(fl_wheel *w, uint64_t deadline_ns, int count)
{
    enum { GROUP = 256 };
    fl_timer_id others[GROUP];
    for (int i = 0; i < count; i++) {
        schedule(w, deadline_ns);
        for (int j = 1; j < GROUP; j++)
            others[j] = schedule(w, deadline_ns);
        for (int j = 1; j < GROUP; j++)
            CHECK_EQ(fl_wheel_cancel(w, others[j], NULL), 0);
    }
}

/* Timers that come and go beside very many that stay, all at one moment. If finding a place took longer with their number,
 * this would take many minutes. */
TEST(coming_and_going_among_many_survivors_takes_no_search)
{
    fl_wheel *w = new_wheel(NULL);
    schedule_survivors(w, 10 * MINUTE, SCALE(90000, 20000));
    for (int i = 0; i < SCALE(10000000, 600000); i++)
        CHECK_EQ(fl_wheel_cancel(w, schedule(w, 10 * MINUTE), NULL), 0);
    CHECK_EQ(fl_wheel_count(w), SCALE(90000, 20000));
    free_checked(w);
}

/* Timers due between two moments come near, then they are cancelled in the order given, and one far away lives on. */
static fl_wheel *cancel_opened(uint64_t from_ns, uint64_t to_ns, uint64_t now_ns, bool in_order)
{
    uint64_t count = SCALE(1000000, 100000), random = 11;
    fl_timer_id *ids = malloc(count * sizeof *ids);
    fl_wheel *w = new_wheel(NULL);
    for (uint64_t i = 0; i < count; i++)
        ids[i] = schedule(w, from_ns + random_below(&random, to_ns - from_ns));
    schedule(w, 10 * HOUR);
    for (uint64_t i = count - 1; i > 0 && !in_order; i--) {
        uint64_t j = random_below(&random, i + 1);
        fl_timer_id other = ids[i];
        ids[i] = ids[j];
        ids[j] = other;
    }
    for (uint64_t ns = now_ns / 2; ns < now_ns; ns += 10 * MS)
        CHECK_EQ(fl_wheel_poll(w, ns, NULL, 0), 0);
    for (uint64_t i = 0; i < count; i++)
        CHECK_EQ(fl_wheel_cancel(w, ids[i], NULL), 0);
    free(ids);
    return w;
}

/* What leads from the time to timers that are near must not be kept when they are cancelled. */
TEST(references_of_cancelled_timers_are_not_kept)
{
    const struct {
        uint64_t from_ns, to_ns, now_ns;
    } spans[] = {
        {1500 * MS, 1550 * MS, 1070 * MS},             /* of a few spokes of L0 */
        {1100 * MS, 2140 * MS, 1070 * MS},             /* of all of them */
        {1400 * SECOND, 1440 * SECOND, 1370 * SECOND}, /* of L1 */
        {1400 * SECOND, 1401 * SECOND, 1370 * SECOND}, /* of one of its spokes */
    };
    for (int i = 0; i < 8; i++) {
        fl_wheel *w = cancel_opened(spans[i / 2].from_ns, spans[i / 2].to_ns, spans[i / 2].now_ns, i % 2);
        uint64_t next_ns;
        CHECK(bytes(w) < 8 << 20);
        CHECK(fl_wheel_next_deadline(w, &next_ns));
        CHECK_EQ(next_ns, 10 * HOUR);
        CHECK(bytes(w) < 6 << 20);
        for (int poll = 0; poll < 200; poll++)
            fl_wheel_poll(w, fl_wheel_now_ns(w), NULL, 0);
        CHECK(bytes(w) < 4 << 20);
        free_checked(w);
    }
}

/* Without a next deadline in between: what polls give back. */
TEST(polls_sweep_references_of_cancelled_timers)
{
    fl_wheel *w = cancel_opened(1100 * MS, 2140 * MS, 1070 * MS, false);
    for (int poll = 0; poll < 200; poll++)
        fl_wheel_poll(w, fl_wheel_now_ns(w), NULL, 0);
    CHECK(bytes(w) < 4 << 20);
    free_checked(w);
}

/* A 2 MiB page has memory as a whole. */
TEST(large_pages_count_as_a_whole)
{
    fl_wheel *w = new_wheel(&(fl_wheel_config){.huge_pages = true});
    for (int i = 0; i < 20000; i++)
        schedule(w, 500 * MS);
    CHECK(bytes(w) >= 2 << 20);
    free_checked(w);
}
