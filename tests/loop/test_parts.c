/* SPDX-License-Identifier: MIT */
/* The parts of the loop that are hard to reach from outside: the ends of the table's generations, the
 * rounding of deadlines, statistics. */

#include "loop/internal.h"
#include "loop/loop_test.h"

/* ---- The table. */

enum {
    LAST_CHUNK = TABLE_FIRST + 3,
    SLOTS = 2 << LAST_CHUNK, /* and those that are below all slots */
    USABLE = SLOTS - (1 << TABLE_FIRST),
};

static struct loop_table table;
static uint32_t taken[SLOTS]; /* slots of living records */
static uint32_t taken_count;
static uint64_t takes;
static bool given[SLOTS][64]; /* IDs, by slot and generation */

/* A table whose slots are worn after a few records and that has only four chunks. */
static void begin_table(uint32_t last_generation)
{
    CHECK_EQ(fl__loop_table_init(&table, false), 0);
    table.worn_tag = last_generation << TAG_GENERATION_SHIFT;
    table.last = LAST_CHUNK;
    taken_count = 0;
    takes = 0;
    memset(given, 0, sizeof(given));
}

static void take(void)
{
    struct loop_entry e;
    CHECK_EQ(fl__loop_table_take(&table, STATE_WAITING, &e), 0);
    CHECK(e.slot < SLOTS);
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; a check that fails does not return */
    CHECK(!given[e.slot][*e.tag >> TAG_GENERATION_SHIFT]);
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; the same */
    given[e.slot][*e.tag >> TAG_GENERATION_SHIFT] = true;
    taken[taken_count++] = e.slot;
    takes++;
}

static void give(uint32_t i)
{
    uint32_t slot = taken[i];
    taken[i] = taken[--taken_count];
    table_put(&table, table_entry(&table, slot));
}

static void give_until(uint32_t count)
{
    while (taken_count > count)
        give(taken_count - 1);
}

static uint64_t generations_used(void)
{
    uint64_t used = 0;
    for (uint32_t slot = 1 << TABLE_FIRST; slot < 2u << table.last_mapped; slot++)
        used += *table_entry(&table, slot).tag >> TAG_GENERATION_SHIFT;
    return used;
}

/* No pattern of use costs more than an ID per record. */
static void end_table(void)
{
    CHECK_EQ(generations_used(), takes);
    CHECK_EQ(table.live, taken_count);
    fl__loop_table_destroy(&table);
}

TEST(ids_end_below_2_to_the_53)
{
    uint32_t tag = (uint32_t)TABLE_GENERATION_MAX << TAG_GENERATION_SHIFT | TAG_NOT_GENERATION;
    CHECK_EQ(entry_id((struct loop_entry){.tag = &tag, .slot = (1u << TABLE_SLOT_BITS) - 1}), (1ull << 53) - 1);
}

TEST(a_busy_slot_that_is_worn_is_replaced)
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

TEST(filling_and_emptying_a_table_costs_an_id_per_record)
{
    static const uint32_t counts[] = {1, 513, 2048, 2049, 6144, 6145, 7000, 14337};
    for (size_t n = 0; n < sizeof(counts) / sizeof(*counts); n++) {
        begin_table(60);
        while (takes < 50000) {
            while (taken_count < counts[n])
                take();
            give_until(0);
        }
        end_table();
    }
}

TEST(random_lives_cost_an_id_per_record)
{
    uint64_t random = 7;
    begin_table(60);
    while (takes < 150000) {
        uint64_t level = random_below(&random, 9000);
        while (taken_count < level)
            take();
        while (taken_count > level)
            give((uint32_t)random_below(&random, taken_count));
        if (level % 4 == 0)
            fl__loop_table_trim(&table);
    }
    end_table();
}

/* Only slots of living records may have generations left. */
TEST(a_worn_table_has_room_to_the_end_and_then_starts_over)
{
    struct loop_entry e;
    begin_table(6);
    for (unsigned i = 0; i < 100; i++)
        take();
    while (takes < (USABLE - 2000) * 6) {
        take();
        if (taken_count == 2000 || takes % 3 == 0)
            give(100 + (uint32_t)(takes % (taken_count - 100)));
    }
    give_until(100);
    for (unsigned n = 0; n < 2 * USABLE; n++) {
        CHECK_EQ(fl__loop_table_take(&table, STATE_WAITING, &e), 0);
        for (unsigned i = 0; i < 100; i++)
            CHECK(e.slot != taken[i]);
        table_put(&table, e);
    }
    CHECK_EQ(table.live, 100);
    fl__loop_table_destroy(&table);
}

TEST(a_table_in_which_all_slots_are_taken_is_full)
{
    struct loop_entry e;
    begin_table(2);
    while (taken_count < USABLE)
        take();
    CHECK_EQ(fl__loop_table_take(&table, STATE_WAITING, &e), FL_CAPACITY_EXCEEDED);
    for (unsigned i = 0; i < 10; i++) {
        give(i * 1000);
        CHECK_EQ(fl__loop_table_take(&table, STATE_WAITING, &e), 0);
        taken[taken_count++] = e.slot;
        CHECK_EQ(fl__loop_table_take(&table, STATE_WAITING, &e), FL_CAPACITY_EXCEEDED);
    }
    fl__loop_table_destroy(&table);
}

/* The slots of one chunk and the smallest of the empty ones keep their records; tags are kept everywhere. */
TEST(the_memory_of_empty_chunks_is_given_back_except_for_one)
{
    enum { ALL = sizeof(struct loop_record) + sizeof(uint32_t) };
    begin_table(60);
    while (taken_count < USABLE)
        take();
    CHECK_EQ(fl__loop_table_bytes(&table), USABLE * ALL);
    give_until(1);
    CHECK_EQ(fl__loop_table_bytes(&table), USABLE * ALL);
    CHECK(table.may_trim);
    while (table.may_trim)
        fl__loop_table_trim(&table);
    CHECK_EQ(fl__loop_table_bytes(&table), USABLE * ALL - (USABLE - 3 * 2048) * sizeof(struct loop_record));
    while (taken_count < USABLE)
        take();
    CHECK_EQ(fl__loop_table_bytes(&table), USABLE * ALL);
    end_table();
}

enum { MANY = 600000 };

static bool is_small(void)
{
    return fl__loop_table_bytes(&loop->table) < MANY * sizeof(struct loop_record) / 2;
}

static void make_and_cancel_many(void)
{
    static fl_timer_id ids[MANY];
    for (unsigned i = 0; i < MANY; i++)
        ids[i] = make_timer(HOUR, "");
    for (unsigned i = 0; i < MANY; i++)
        CHECK_EQ(fl_loop_cancel(loop, ids[i]), 0);
    CHECK(!is_small());
}

TEST(the_memory_of_many_timers_is_given_back_by_a_sleep_or_by_many_turns)
{
    int fd;
    begin();
    make_and_cancel_many();
    make_timer(HOUR, "");
    run();
    CHECK(is_small());
    make_and_cancel_many();
    for (unsigned i = 0; i < MANY * sizeof(struct loop_record) >> 20; i++)
        turn();
    CHECK(is_small());
    make_and_cancel_many();
    CHECK_EQ(fl_loop_poll_fd(loop, &fd), 0);
    CHECK(is_small());
    end();
}

/* The same with timers: the loop of a busy server, worn out on purpose. */
TEST(a_loop_that_is_worn_out_makes_as_many_timers_as_ever)
{
    static fl_timer_id ids[6200];
    fl_timer_id id;
    begin();
    loop->table.worn_tag = 7 << TAG_GENERATION_SHIFT;
    loop->table.last = LAST_CHUNK;
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
