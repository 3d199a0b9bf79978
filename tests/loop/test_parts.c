/* SPDX-License-Identifier: MIT */
/* The parts of the loop that are hard to reach from outside: the ends of the table's generations, the
 * rounding of deadlines, statistics. */

#include "loop/internal.h"
#include "loop/loop_test.h"

/* ---- The table. */

enum { SLOTS = 1 << 15 }; /* of the first four chunks, and those that are below all slots */

static struct loop_table table;
static uint32_t taken[SLOTS]; /* slots of living records */
static uint32_t taken_count;
static uint64_t takes;
static bool given[SLOTS][64]; /* IDs, by slot and generation */

/* A table whose blocks are worn after a few rounds and that has only four chunks: 60 blocks. */
static void begin_table(uint32_t last_generation)
{
    CHECK_EQ(fl__loop_table_init(&table, false), 0);
    table.last_generation = last_generation;
    for (unsigned k = 4; k < TABLE_CHUNKS; k++)
        table.chunk[k].worn = table_capacity(k) >> BLOCK_BITS;
    taken_count = 0;
    takes = 0;
    memset(given, 0, sizeof(given));
}

static void take(void)
{
    struct loop_record *record;
    CHECK_EQ(fl__loop_table_take(&table, &record), 0);
    uint32_t slot = record->slot;
    CHECK(slot < SLOTS);
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; a check that fails does not return */
    CHECK(!given[slot][record_generation(record)]);
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; the same */
    given[slot][record_generation(record)] = true;
    taken[taken_count++] = slot;
    takes++;
}

static void give(uint32_t i)
{
    uint32_t slot = taken[i];
    taken[i] = taken[--taken_count];
    table_put(&table, table_record(&table, slot));
}

static void give_until(uint32_t count)
{
    while (taken_count > count)
        give(taken_count - 1);
}

/* IDs that were given out or never will be. */
static uint64_t used_up(void)
{
    uint64_t rounds = 0;
    for (unsigned k = 0; k < 4; k++)
        for (uint32_t i = 0; table.chunk[k].blocks && i < table_capacity(k) >> BLOCK_BITS; i++)
            rounds += table.chunk[k].blocks[i].generation - 1 + (i < table.chunk[k].begun);
    return rounds * BLOCK_SLOTS;
}

/* The rounds that have begun are not over yet: there may be one a block. */
static void end_table(void)
{
    CHECK(used_up() <= 5 * takes + 60 * BLOCK_SLOTS);
    CHECK_EQ(table.live, taken_count);
    fl__loop_table_destroy(&table);
}

TEST(ids_end_below_2_to_the_53)
{
    struct loop_record record = {.tag =
                                     (uint32_t)TABLE_GENERATION_MAX << RECORD_GENERATION_SHIFT | RECORD_NOT_GENERATION,
                                 .slot = (1u << TABLE_SLOT_BITS) - 1};
    CHECK_EQ(table_id(&record), (1ull << 53) - 1);
}

/* Hold some, take and give back one more, give all back: what cost the last generation of a whole chunk each time. */
TEST(a_busy_slot_wears_no_faster_than_the_others)
{
    begin_table(60);
    for (unsigned round = 0; round < 20; round++) {
        while (taken_count < 6200)
            take();
        for (unsigned i = 0; i < 10000; i++) {
            take();
            give(taken_count - 1);
        }
        give_until(1);
    }
    end_table();
}

/* Taking as many and giving them all back, again and again, at the border of a chunk and elsewhere. */
TEST(filling_and_emptying_a_table_costs_no_more_than_it_must)
{
    static const uint32_t counts[] = {1, 513, 2048, 2049, 6144, 6145, 7000, 14337};
    for (size_t n = 0; n < sizeof(counts) / sizeof(*counts); n++) {
        begin_table(60);
        while (takes < 100000 && used_up() < 50000) {
            while (taken_count < counts[n])
                take();
            give_until(0);
        }
        end_table();
    }
}

/* As few of each block as allow it a new round, and then one is taken. */
TEST(rounds_that_are_worth_least_cost_five_ids_a_record)
{
    begin_table(60);
    while (taken_count < 20 * BLOCK_SLOTS)
        take();
    for (unsigned round = 0; round < 30; round++) {
        for (uint32_t number = 4; number < 4 + 19; number++) {
            unsigned left = BLOCK_ROOM;
            for (uint32_t i = taken_count; i-- > 0 && left > 0;)
                if (taken[i] >> BLOCK_BITS == number) {
                    give(i);
                    left--;
                }
            take();
        }
        while (taken_count < 20 * BLOCK_SLOTS)
            take();
    }
    end_table();
}

TEST(random_lives_cost_no_more_than_they_must)
{
    uint64_t random = 7;
    begin_table(60);
    while (takes < 150000) {
        uint64_t level = random_below(&random, 9000);
        while (taken_count < level)
            take();
        while (taken_count > level)
            give((uint32_t)random_below(&random, taken_count));
    }
    end_table();
}

/* A table with 60 blocks of 6 rounds each has 184,320 IDs: what is left of one is worth as much as a new one. */
TEST(a_worn_table_has_room_to_the_end_and_then_starts_over)
{
    begin_table(6);
    for (unsigned i = 0; i < 100; i++)
        take();
    while (takes < 60 * 6 * BLOCK_SLOTS * 9 / 10) {
        while (taken_count < 2000)
            take();
        give_until(100);
    }
    uint64_t last = takes;
    while (table.chunk[2].worn > 0) {
        struct loop_record *record;
        CHECK_EQ(fl__loop_table_take(&table, &record), 0);
        for (unsigned i = 0; i < 100; i++)
            CHECK(record->slot != taken[i]);
        table_put(&table, record);
        CHECK(++last < 2ull * 60 * 6 * BLOCK_SLOTS);
    }
    CHECK_EQ(table.live, 100);
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        CHECK_EQ(table.chunk[k].worn, 0);
    fl__loop_table_destroy(&table);
}

TEST(an_empty_chunk_that_is_worn_is_given_back)
{
    begin_table(3);
    while (table.chunk[1].worn < 8) {
        while (taken_count < 5000)
            take();
        give_until(1);
    }
    while (taken_count < 5000)
        take();
    give_until(1);
    CHECK(table_is_mapped(&table, table_capacity(0)) && !table_is_mapped(&table, table_capacity(1)));
    CHECK(table_is_mapped(&table, table_capacity(2)));
    fl__loop_table_destroy(&table);
}

TEST(empty_chunks_are_given_back_except_for_one)
{
    begin_table(60);
    while (taken_count < 30000)
        take();
    for (unsigned k = 0; k < 4; k++)
        CHECK(table_is_mapped(&table, table_capacity(k)));
    give_until(1);
    CHECK(table_is_mapped(&table, table_capacity(0)) && table_is_mapped(&table, table_capacity(1)));
    CHECK(!table_is_mapped(&table, table_capacity(2)) && !table_is_mapped(&table, table_capacity(3)));
    end_table();
}

/* The same with timers: the loop of a busy server, worn out on purpose. */
TEST(a_loop_that_is_worn_out_makes_as_many_timers_as_ever)
{
    static fl_timer_id ids[6200];
    fl_timer_id id;
    begin();
    loop->table.last_generation = 7;
    loop->table.limit = 10000;
    for (unsigned round = 0; round < 40; round++) {
        for (unsigned i = 0; i < 6200; i++)
            ids[i] = make_timer(HOUR, "");
        for (unsigned i = 0; i < 100000; i++) {
            CHECK_EQ(fl_loop_timer(loop, SECOND, note, "", &id), 0);
            CHECK_EQ(fl_loop_cancel(loop, id), 0);
            CHECK_EQ(fl_loop_cancel(loop, id), FL_TIMER_NOT_FOUND);
        }
        CHECK_EQ(fl_loop_check(loop, stdout), 0);
        for (unsigned i = 0; i < 6200; i++)
            CHECK_EQ(fl_loop_cancel(loop, ids[i]), 0);
    }
    CHECK_EQ(stats().waiting.timers, 0);
    end();
}

TEST(at_the_limit_one_timer_that_goes_makes_room_for_one)
{
    enum { LIMIT = 9000 };
    static fl_timer_id ids[LIMIT];
    fl_timer_id none = 7;
    begin();
    loop->table.limit -= TABLE_LIMIT - LIMIT;
    for (unsigned i = 0; i < LIMIT; i++)
        ids[i] = make_timer(SECOND + i, "");
    for (unsigned i = 0; i < LIMIT; i++) {
        CHECK_EQ(fl_loop_timer(loop, SECOND, note, "", &none), FL_CAPACITY_EXCEEDED);
        CHECK_EQ(fl_loop_immediate(loop, note, "", &none), FL_CAPACITY_EXCEEDED);
        CHECK_EQ(fl_loop_timer(loop, DAY, note, "", &none), FL_CAPACITY_EXCEEDED);
        CHECK_EQ(fl_loop_cancel(loop, ids[i]), 0);
        ids[i] = make_timer(SECOND + i, "");
    }
    CHECK_EQ(none, 7);
    CHECK_EQ(stats().waiting.timers, LIMIT);
    run();
    CHECK_EQ(stats().called.timers, LIMIT);
    end();
}

TEST(the_limit_is_2_to_the_26)
{
    begin();
    CHECK_EQ(loop->table.limit - loop->table.live, 1u << 26);
    end();
}

/* ---- Rounding. */

TEST(a_deadline_is_rounded_to_the_roundest_moment_its_slack_allows)
{
    CHECK_EQ(fl__loop_timers_round(1000, 0), 1000);
    CHECK_EQ(fl__loop_timers_round(1000, 7), 1000);
    CHECK_EQ(fl__loop_timers_round(1000, 24), 1024);
    CHECK_EQ(fl__loop_timers_round(1001, 23), 1024);
    CHECK_EQ(fl__loop_timers_round(1025, 100), 1088);
    CHECK_EQ(fl__loop_timers_round(1, UINT64_MAX), 1ull << 63);
    CHECK_EQ(fl__loop_timers_round(UINT64_MAX - 5, UINT64_MAX), UINT64_MAX - 3);
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

TEST(statistics_tell_the_mean_of_a_thousand_timers_that_are_a_year_late)
{
    begin();
    for (unsigned i = 0; i < 1000; i++)
        make_timer(SECOND, "");
    test_time.time_ns += SECOND + 365 * DAY;
    turn();
    CHECK_EQ(stats().lateness_ns.count, 1000);
    CHECK_EQ(stats().lateness_ns.mean_ns, 365 * DAY);
    end();
}

static void take_centuries(fl_loop *l, void *arg)
{
    (void)l, (void)arg;
    test_time.time_ns += UINT64_MAX / 2;
}

TEST(statistics_on_another_clock_are_exact_however_long_a_callback_takes)
{
    begin();
    make_timer_for(0, take_centuries, NULL);
    turn();
    CHECK_EQ(stats().callback_ns.max_ns, UINT64_MAX / 2);
    CHECK_EQ(stats().callback_ns.mean_ns, UINT64_MAX / 2);
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
