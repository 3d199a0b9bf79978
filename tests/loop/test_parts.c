/* SPDX-License-Identifier: MIT */
/* The parts of the loop that are hard to reach from outside: the ends of the table's generations, the histogram, the
 * rounding of deadlines, statistics. */

#include "loop/histogram.h"
#include "loop/internal.h"
#include "loop/loop_test.h"

/* ---- The table. */

TEST(a_slot_that_has_used_up_its_generations_is_never_used_again)
{
    struct table table;
    struct record *record;
    uint32_t first, second;
    CHECK_EQ(fl__table_init(&table, false), 0);
    CHECK_EQ(fl__table_take(&table, &first, &record), 0);
    record->tag |= (uint32_t)TABLE_GENERATION_MAX << RECORD_GENERATION_SHIFT;
    CHECK_EQ(table_id(record, first), (1ull << 53) - (1ull << 26) + first);
    table_put(&table, first, record);
    for (unsigned i = 0; i < 3000; i++) {
        CHECK_EQ(fl__table_take(&table, &second, &record), 0);
        CHECK(second != first);
    }
    fl__table_destroy(&table);
}

/* Takes `count` slots and frees them, the last first. */
static void fill_and_empty(struct table *table, uint32_t count)
{
    static uint32_t slots[40000];
    struct record *record;
    for (uint32_t i = 0; i < count; i++)
        CHECK_EQ(fl__table_take(table, &slots[i], &record), 0);
    while (count-- > 0)
        table_put(table, slots[count], table_record(table, slots[count]));
}

TEST(a_chunk_that_was_given_back_remembers_its_generations)
{
    struct table table;
    struct record *record;
    uint32_t slot;
    CHECK_EQ(fl__table_init(&table, false), 0);
    CHECK_EQ(fl__table_take(&table, &slot, &record), 0); /* keeps the first chunk from being empty */
    fill_and_empty(&table, 40000);
    CHECK(table_is_mapped(&table, table_capacity(0)) && table_is_mapped(&table, table_capacity(1)));
    for (unsigned k = 2; k < 5; k++) {
        CHECK(!table_is_mapped(&table, table_capacity(k)));
        CHECK_EQ(table.chunk[k].first_generation, 2);
    }
    fill_and_empty(&table, 40000);
    CHECK_EQ(table.chunk[3].first_generation, 3);
    fl__table_destroy(&table);
}

TEST(a_chunk_that_has_used_up_its_generations_is_left_out)
{
    struct table table;
    struct record *record;
    uint32_t slot;
    CHECK_EQ(fl__table_init(&table, false), 0);
    table.chunk[1].first_generation = TABLE_GENERATION_MAX;
    for (unsigned i = 0; i < 2049; i++)
        CHECK_EQ(fl__table_take(&table, &slot, &record), 0);
    CHECK_EQ(table_chunk_of(slot), 2);
    for (unsigned k = 3; k < TABLE_CHUNKS; k++)
        table.chunk[k].first_generation = TABLE_GENERATION_MAX;
    for (unsigned i = 1; i < table_capacity(2); i++)
        CHECK_EQ(fl__table_take(&table, &slot, &record), 0);
    CHECK_EQ(fl__table_take(&table, &slot, &record), FL_CAPACITY_EXCEEDED);
    fl__table_destroy(&table);
}

/* ---- Callbacks in four bytes. */

TEST(a_callback_is_packed_into_one_of_four_windows)
{
    static const uintptr_t addresses[] = {0x1000,     0x555500001000, 0x7fff00000010, 0x555500001001,
                                          0x3fffffff, 0x7fff3fffffff, 0xffff00000000, 0x55550fffffff};
    struct table table;
    struct record record = {0};
    CHECK_EQ(fl__table_init(&table, false), 0);
    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
        CHECK(table_pack(&table, (fl_loop_fn)addresses[i], &record.fn));
        CHECK_EQ((uintptr_t)table_fn(&table, &record), addresses[i]);
    }
    CHECK_EQ(table.windows, 4);
    CHECK(!table_pack(&table, (fl_loop_fn)0x300000000000, &record.fn));
    fl__table_destroy(&table);
}

static fl_timer_id interval;

static void three_times(fl_loop *l, void *arg)
{
    write_down(arg);
    if (stats().called.timers > 3)
        CHECK_EQ(fl_loop_cancel(l, interval), 0);
}

TEST(callbacks_outside_of_the_four_windows_work_like_others)
{
    uint32_t packed;
    begin();
    for (uintptr_t i = 1; i <= TABLE_WINDOWS; i++)
        CHECK(table_pack(&loop->table, (fl_loop_fn)(i << TABLE_WINDOW_BITS), &packed));
    fl_timer_id moved = make_timer(5, "b"), cancelled = make_timer(6, "x");
    make_timer(3, "a");
    CHECK_EQ(fl_loop_interval(loop, 10, 0, three_times, "c", &interval), 0);
    CHECK_EQ(fl_loop_immediate(loop, note, "i", NULL), 0);
    CHECK_EQ(fl_loop_rearm(loop, moved, 4), 0);
    CHECK_EQ(fl_loop_cancel(loop, cancelled), 0);
    CHECK_EQ(loop->table.extras, 4);
    run();
    CHECK_DIARY("iabcc");
    end();
}

/* ---- The histogram. */

TEST(every_duration_has_its_bucket)
{
    unsigned last = 0;
    for (uint64_t value = 0; value < 100000; value++) {
        unsigned bucket = histogram_bucket(value);
        CHECK(bucket == last || bucket == last + 1);
        last = bucket;
    }
    CHECK_EQ(histogram_bucket((31ull << 59) - 1), HISTOGRAM_BUCKETS - 2);
    CHECK_EQ(histogram_bucket(31ull << 59), HISTOGRAM_BUCKETS - 1);
    CHECK_EQ(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

TEST(percentiles_are_exact_to_one_part_in_16_and_never_below)
{
    static struct histogram h;
    fl_loop_summary summary;
    uint64_t random = 1;
    for (unsigned round = 0; round < 44; round++) {
        h = (struct histogram){0};
        uint64_t scale = 1ull << round;
        for (uint64_t i = 1; i <= 1000; i++)
            histogram_add(&h, i * scale);
        fl__histogram_summary(&h, &summary);
        CHECK_EQ(summary.count, 1000);
        CHECK_EQ(summary.min_ns, scale);
        CHECK_EQ(summary.max_ns, 1000 * scale);
        CHECK_EQ(summary.mean_ns, 1001 * scale / 2);
        CHECK(summary.p50_ns >= 500 * scale && summary.p50_ns <= 500 * scale * 17 / 16);
        CHECK(summary.p90_ns >= 900 * scale && summary.p90_ns <= 900 * scale * 17 / 16);
        CHECK(summary.p99_ns >= 990 * scale && summary.p99_ns <= 1000 * scale);
        CHECK(fl__histogram_permille(&h, random_below(&random, 1001)) <= summary.max_ns);
    }
}

TEST(an_empty_histogram_says_zero)
{
    static struct histogram h;
    fl_loop_summary summary;
    fl__histogram_summary(&h, &summary);
    CHECK_EQ(summary.count + summary.min_ns + summary.mean_ns + summary.p50_ns + summary.p999_ns + summary.max_ns, 0);
}

/* ---- Rounding. */

TEST(a_deadline_is_rounded_to_the_roundest_moment_its_slack_allows)
{
    CHECK_EQ(fl__timers_round(1000, 0), 1000);
    CHECK_EQ(fl__timers_round(1000, 7), 1000);
    CHECK_EQ(fl__timers_round(1000, 24), 1024);
    CHECK_EQ(fl__timers_round(1001, 23), 1024);
    CHECK_EQ(fl__timers_round(1025, 100), 1088);
    CHECK_EQ(fl__timers_round(1, UINT64_MAX), 1ull << 63);
    CHECK_EQ(fl__timers_round(UINT64_MAX - 5, UINT64_MAX), UINT64_MAX - 3);
}

/* ---- Statistics. */

static void take_a_millisecond(fl_loop *l, void *arg)
{
    (void)l, (void)arg;
    test_time.time_ns += MILLISECOND;
}

TEST(statistics_tell_how_long_callbacks_took_and_how_late_timers_were)
{
    begin();
    for (unsigned i = 0; i < 5; i++)
        make_timer_for(SECOND, take_a_millisecond, NULL);
    run();
    fl_loop_stats s = stats();
    CHECK_EQ(s.turns, 1);
    CHECK_EQ(s.sleeps, 1);
    CHECK_EQ(s.wakeups, 0);
    CHECK_EQ(s.called.timers, 5);
    CHECK_EQ(s.waiting.timers, 0);
    CHECK_EQ(s.callback_ns.count, 5);
    CHECK_EQ(s.callback_ns.min_ns, MILLISECOND);
    CHECK_EQ(s.callback_ns.max_ns, MILLISECOND);
    CHECK_EQ(s.lateness_ns.count, 5);
    CHECK_EQ(s.lateness_ns.min_ns, 0);
    CHECK_EQ(s.lateness_ns.max_ns, 4 * MILLISECOND);
    CHECK_EQ(s.lateness_ns.mean_ns, 2 * MILLISECOND);
    CHECK(s.bytes > sizeof(fl_loop));
    end();
}

TEST(the_time_of_microtasks_belongs_to_their_callback)
{
    begin();
    make_timer(0, "");
    CHECK_EQ(fl_loop_microtask(loop, take_a_millisecond, NULL), 0);
    turn();
    CHECK_EQ(stats().callback_ns.count, 1);
    CHECK_EQ(stats().called.microtasks, 1);
    end();
}

TEST(what_runs_before_a_callback_is_not_its_time_but_makes_it_late)
{
    begin();
    make_timer(0, "");
    CHECK_EQ(fl_loop_microtask(loop, take_a_millisecond, NULL), 0);
    turn();
    CHECK_EQ(stats().callback_ns.max_ns, 0);
    CHECK_EQ(stats().lateness_ns.max_ns, MILLISECOND);
    end();
}

TEST(while_a_loop_is_young_its_clock_tells_how_late_timers_are)
{
    struct stopwatch watch;
    fl_virtual_clock_init(&test_time, START);
    stopwatch_init(&watch, &test_time.clock, START);
    watch.counter = true;
    watch.born_ticks = stopwatch_read(&watch);
    stopwatch_begin_turn(&watch, START);
    test_time.time_ns += HOUR;
    stopwatch_end_callback(&watch);
    CHECK_EQ(stopwatch_now_ns(&watch), START + HOUR);
}

/* Tasks are allocated by the block: one more than are needed stays. */
TEST(statistics_count_the_memory_of_tasks_wherever_they_wait)
{
    enum { BLOCKS = 10 };
    begin_with_budget(1);
    uint64_t before = stats().bytes;
    for (unsigned i = 0; i < BLOCKS * TASKS_OF_BLOCK; i++)
        CHECK_EQ(fl_loop_post(loop, note, ""), 0);
    CHECK(stats().bytes >= before + BLOCKS * sizeof(struct task_block));
    turn();
    CHECK(stats().bytes >= before + BLOCKS * sizeof(struct task_block));
    CHECK_EQ(stats().waiting.tasks, BLOCKS * TASKS_OF_BLOCK - 1);
    run();
    CHECK(stats().bytes <= before + 2 * sizeof(struct task_block));
    end();
}
