/* SPDX-License-Identifier: MIT */
/* What remote cancels leave behind: it is found and given back, a bounded piece each turn, and what lives is spared. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sanitizer.h"
#include "rt.h"
#include "runtime/internal.h"

enum { TIMERS = 100000, BUDGET = 512 };

static atomic_uint calls;

static void count(void *arg)
{
    (void)arg;
    atomic_fetch_add(&calls, 1);
}

static fl_runtime *make(unsigned workers)
{
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = workers, .scrub_budget = BUDGET}, &rt), 0);
    return rt;
}

static fl_timer **start_many(fl_runtime *rt, uint64_t delay_ns)
{
    fl_timer **timers = malloc(TIMERS * sizeof(fl_timer *));
    uint64_t before = stats_of(rt).entries;
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK_EQ(fl_timer_new(rt, count, NULL, &timers[i]), 0);
        CHECK_EQ(fl_timer_start_after(timers[i], delay_ns), 0);
    }
    AWAIT(stats_of(rt).entries == before + TIMERS);
    return timers;
}

TEST(all_that_remote_cancels_leave_behind_is_given_back_within_the_budget)
{
    fl_runtime *rt = make(2);
    fl_timer **timers = start_many(rt, 10 * HOUR);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK(fl_timer_cancel(timers[i]));
        fl_timer_unref(timers[i]);
    }
    /* Less than 64 may stay in each of the 64 buckets of each worker. */
    AWAIT(stats_of(rt).entries < 2 * 64 * 64);
    struct fl_runtime_stats stats = stats_of(rt);
    CHECK_EQ(stats.pending, 0);
    CHECK_EQ(stats.cancelled, TIMERS);
    CHECK(stats.scrubbed > TIMERS * 9 / 10);
    CHECK(stats.scrub_longest > 0 && stats.scrub_longest <= BUDGET);
    fl_runtime_free(rt);
    free(timers);
    CHECK_EQ(atomic_load(&calls), 0);
}

/* The second number in the file. */
static uint64_t resident_bytes(void)
{
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fgets(line, sizeof(line), file));
    fclose(file);
    const char *space = strchr(line, ' ');
    CHECK(space);
    return strtoull(space, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

TEST(the_memory_of_cancelled_timers_goes_back_to_the_system)
{
#if defined(FL__ASAN) || defined(FL__TSAN)
    test_skip("sanitizers keep memory");
    return;
#endif
    enum { ROUNDS = 4 }; /* what a runtime keeps in any case shall be little beside it */
    fl_timer **timers[ROUNDS];
    fl_runtime *rt = make(2);
    uint64_t before = resident_bytes();
    for (unsigned i = 0; i < ROUNDS; i++)
        timers[i] = start_many(rt, 10 * HOUR);
    uint64_t with = resident_bytes();
    for (unsigned i = 0; i < ROUNDS * TIMERS; i++) {
        CHECK(fl_timer_cancel(timers[i / TIMERS][i % TIMERS]));
        fl_timer_unref(timers[i / TIMERS][i % TIMERS]);
    }
    AWAIT(stats_of(rt).entries == 0 || resident_bytes() < before + (with - before) / 2);
    for (unsigned i = 0; i < ROUNDS; i++)
        free(timers[i]);
    CHECK(resident_bytes() < before + (with - before) / 2);
    fl_runtime_free(rt);
}

TEST(any_budget_is_enough_in_the_end)
{
    static const uint32_t budgets[] = {1, 3, 1u << 30, UINT32_MAX};
    for (unsigned n = 0; n < 4; n++) {
        fl_runtime *rt;
        CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1, .scrub_budget = budgets[n]}, &rt), 0);
        fl_timer **timers = start_many(rt, 10 * HOUR);
        for (unsigned i = 0; i < TIMERS; i++) {
            CHECK(fl_timer_cancel(timers[i]));
            fl_timer_unref(timers[i]);
        }
        AWAIT(stats_of(rt).entries < 64 * 64);
        CHECK(stats_of(rt).scrub_longest <= budgets[n]);
        fl_runtime_free(rt);
        free(timers);
    }
}

TEST(what_lives_is_spared)
{
    fl_runtime *rt = make(1);
    fl_timer **timers = start_many(rt, HOUR);
    for (unsigned i = 0; i < TIMERS; i++)
        if (i % 2)
            CHECK(fl_timer_cancel(timers[i]));
    AWAIT(stats_of(rt).entries < TIMERS / 2 + TIMERS / 8);
    CHECK_EQ(stats_of(rt).pending, TIMERS / 2);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK_EQ(fl_timer_cancel(timers[i]), i % 2 == 0);
        fl_timer_unref(timers[i]);
    }
    fl_runtime_free(rt);
    free(timers);
}

/* Timers that are moved from one worker to the other leave stale entries too. */
struct move {
    fl_timer **timers;
    atomic_uint moved;
};

static void move_all(void *arg)
{
    struct move *move = arg;
    for (unsigned i = 0; i < TIMERS; i++)
        CHECK_EQ(fl_timer_start_after(move->timers[i], 2 * HOUR), 0);
    atomic_fetch_add(&move->moved, 1);
}

TEST(entries_left_behind_by_moving_to_another_worker_are_found_too)
{
    fl_runtime *rt = make(2);
    struct move move = {.timers = start_many(rt, HOUR)};
    for (unsigned i = 1; i <= 4; i++) {
        CHECK_EQ(fl_runtime_spawn(rt, move_all, &move), 0);
        AWAIT(atomic_load(&move.moved) == i);
    }
    AWAIT(stats_of(rt).entries < TIMERS + TIMERS / 4);
    CHECK_EQ(stats_of(rt).pending, TIMERS);
    CHECK_EQ(stats_of(rt).rescheduled, 4 * TIMERS);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK(fl_timer_cancel(move.timers[i]));
        fl_timer_unref(move.timers[i]);
    }
    fl_runtime_free(rt);
    free(move.timers);
}

/* Two workers that start a timer at the same moment: the last to say where it is need not be the last to start it. */
struct race {
    fl_runtime *rt;
    fl_timer *timer;
    uint64_t place[2];
    atomic_uint steps;
};

static void start_once(void *arg)
{
    struct race *race = arg;
    CHECK_EQ(fl_timer_start(race->timer, now_ns() + HOUR), 0);
    race->place[fl_runtime_worker()] = timer_place(race->timer);
    atomic_fetch_add(&race->steps, 1);
}

/* The second half of a start whose first half was start_once(). */
static void win_the_race(void *arg)
{
    struct race *race = arg;
    uint32_t slot = (uint32_t)race->place[0];
    uint64_t word = timer_word(race->timer);
    while (!timer_restart(race->timer, &word, TIMER_SCHEDULED, 0))
        ;
    entries_at(&worker_at(race->rt, 0)->own.table, slot)->generation = word_generation(word) + 1;
    atomic_fetch_add(&race->steps, 1);
}

static int64_t counted_as_stale(const struct race *race, unsigned worker)
{
    const struct shelf *shelf = &worker_at(race->rt, worker)->own;
    unsigned bucket = bucket_of((uint32_t)race->place[worker]);
    return (int64_t)(fl__runtime_stripe_sum(&shelf->stripes[bucket]) - shelf->scrub.accounted[bucket]);
}

TEST(what_workers_that_start_a_timer_at_once_leave_behind_is_counted_where_it_is)
{
    static const struct {
        unsigned worker;
        fl_task_fn fn;
    } steps[] = {{0, start_once}, {1, start_once}, {0, win_the_race}, {1, start_once}};
    struct race race = {.rt = make(2)};
    CHECK_EQ(fl_timer_new(race.rt, count, NULL, &race.timer), 0);
    for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        CHECK_EQ(fl_runtime_spawn_on(race.rt, steps[i].worker, steps[i].fn, &race), 0);
        AWAIT(atomic_load(&race.steps) == i + 1);
    }
    CHECK_EQ(counted_as_stale(&race, 0), 1);
    CHECK_EQ(counted_as_stale(&race, 1), 0);
    CHECK_EQ(stats_of(race.rt).entries, 2);
    CHECK(fl_timer_cancel(race.timer));
    fl_timer_unref(race.timer);
    fl_runtime_free(race.rt);
}

TEST(stale_entries_that_come_due_are_dropped)
{
    struct hand_clock clock = {{hand_now, hand_wait}, 1};
    fl_timer *timers[50];
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1, .clock = &clock.clock}, &rt), 0);
    for (unsigned i = 0; i < 50; i++) {
        CHECK_EQ(fl_timer_new(rt, count, NULL, &timers[i]), 0);
        CHECK_EQ(fl_timer_start_after(timers[i], HOUR), 0);
    }
    AWAIT(stats_of(rt).entries == 50);
    for (unsigned i = 0; i < 50; i++) {
        CHECK(fl_timer_cancel(timers[i]));
        fl_timer_unref(timers[i]);
    }
    CHECK_EQ(stats_of(rt).entries, 50);
    atomic_store(&clock.time_ns, 2 * HOUR);
    AWAIT(stats_of(rt).entries == 0);
    CHECK_EQ(stats_of(rt).stale_dropped, 50);
    fl_runtime_free(rt);
    CHECK_EQ(atomic_load(&calls), 0);
}
