/* SPDX-License-Identifier: MIT */
/* The runtime: what a handle promises, one property at a time, without races. */

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "rt.h"
#include "runtime/internal.h"

struct probe {
    fl_timer *timer;
    uint64_t deadline_ns;
    atomic_uint calls;
    atomic_bool early;
};

static void on_probe(void *arg)
{
    struct probe *probe = arg;
    if (now_ns() < probe->deadline_ns)
        atomic_store(&probe->early, true);
    atomic_fetch_add(&probe->calls, 1);
}

static void start_in(struct probe *probe, uint64_t delay_ns)
{
    probe->deadline_ns = now_ns() + delay_ns;
    CHECK_EQ(fl_timer_start(probe->timer, probe->deadline_ns), 0);
}

static fl_runtime *with_probe(unsigned workers, struct probe *probe)
{
    fl_runtime *rt = make_runtime(workers);
    *probe = (struct probe){0};
    CHECK_EQ(fl_timer_new(rt, on_probe, probe, &probe->timer), 0);
    return rt;
}

static void without_probe(fl_runtime *rt, struct probe *probe)
{
    fl_timer_unref(probe->timer);
    fl_runtime_free(rt);
}

TEST(a_runtime_that_does_nothing_can_be_freed)
{
    for (unsigned i = 0; i < 20; i++)
        fl_runtime_free(make_runtime(i % 4 + 1));
    fl_runtime_free(NULL);
}

TEST(arguments_are_checked)
{
    fl_runtime *rt = (fl_runtime *)1;
    fl_timer *timer = (fl_timer *)1;
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = FL_RUNTIME_MAX_WORKERS + 1}, &rt), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.tick_ns = (1ull << 40) + 1}, &rt), FL_INVALID_ARGUMENT);
    CHECK(rt == (fl_runtime *)1);
    rt = make_runtime(1);
    CHECK_EQ(fl_runtime_spawn(rt, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_timer_new(rt, NULL, NULL, &timer), FL_INVALID_ARGUMENT);
    CHECK(timer == (fl_timer *)1);
    CHECK_EQ(fl_runtime_resize(rt, FL_RUNTIME_MAX_WORKERS + 1), FL_INVALID_ARGUMENT);
    fl_timer_unref(NULL);
    fl_runtime_free(rt);
}

TEST(by_default_there_is_a_worker_for_each_processor)
{
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(NULL, &rt), 0);
    CHECK(stats_of(rt).workers >= 1);
    fl_runtime_free(rt);
}

TEST(a_timer_started_from_outside_fires_once_and_not_early)
{
    struct probe probe;
    fl_runtime *rt = with_probe(2, &probe);
    start_in(&probe, 5 * MS);
    AWAIT(atomic_load(&probe.calls) > 0);
    CHECK(!atomic_load(&probe.early));
    CHECK(!fl_timer_cancel(probe.timer));
    AWAIT(stats_of(rt).fired == 1);
    CHECK_EQ(stats_of(rt).pending, 0);
    CHECK_EQ(stats_of(rt).lateness_ns.count, 1);
    without_probe(rt, &probe);
    CHECK_EQ(atomic_load(&probe.calls), 1);
}

static void start_on_worker(void *arg)
{
    start_in(arg, 3 * MS);
}

TEST(a_timer_started_on_a_worker_fires_once_and_not_early)
{
    struct probe probe;
    fl_runtime *rt = with_probe(1, &probe);
    call_on_worker(rt, start_on_worker, &probe);
    AWAIT(atomic_load(&probe.calls) > 0);
    CHECK(!atomic_load(&probe.early));
    without_probe(rt, &probe);
    CHECK_EQ(atomic_load(&probe.calls), 1);
}

enum { DELAYED = 1000 };

struct delayed {
    fl_timer *timer;
    uint64_t started_ns;
};

static atomic_uint delayed_calls;

static void check_the_delay(void *arg)
{
    const struct delayed *delayed = arg;
    CHECK(now_ns() - delayed->started_ns >= 1 * MS);
    atomic_fetch_add(&delayed_calls, 1);
}

static void start_one_after_the_other(void *arg)
{
    struct delayed *delayed = arg;
    for (unsigned i = 0; i < DELAYED; i++) {
        delayed[i].started_ns = now_ns();
        CHECK_EQ(fl_timer_start_after(delayed[i].timer, 1 * MS), 0);
    }
}

TEST(a_delay_counts_from_the_call_however_long_the_callback_has_run)
{
    static struct delayed delayed[DELAYED];
    fl_runtime *rt = make_runtime(1);
    for (unsigned i = 0; i < DELAYED; i++)
        CHECK_EQ(fl_timer_new(rt, check_the_delay, &delayed[i], &delayed[i].timer), 0);
    call_on_worker(rt, start_one_after_the_other, delayed);
    AWAIT(atomic_load(&delayed_calls) == DELAYED);
    for (unsigned i = 0; i < DELAYED; i++)
        fl_timer_unref(delayed[i].timer);
    fl_runtime_free(rt);
}

TEST(deadlines_in_the_past_and_of_zero_fire)
{
    struct probe probe;
    fl_runtime *rt = with_probe(1, &probe);
    for (unsigned i = 1; i <= 10; i++) {
        CHECK_EQ(i % 2 ? fl_timer_start(probe.timer, 0) : fl_timer_start_after(probe.timer, 0), 0);
        AWAIT(atomic_load(&probe.calls) == i);
    }
    without_probe(rt, &probe);
}

TEST(a_cancelled_timer_does_not_fire)
{
    struct probe probe;
    fl_runtime *rt = with_probe(2, &probe);
    CHECK(!fl_timer_cancel(probe.timer));
    start_in(&probe, HOUR);
    CHECK(fl_timer_cancel(probe.timer));
    CHECK(!fl_timer_cancel(probe.timer));
    CHECK_EQ(stats_of(rt).pending, 0);
    CHECK_EQ(stats_of(rt).cancelled, 1);
    without_probe(rt, &probe);
    CHECK_EQ(atomic_load(&probe.calls), 0);
}

static void cancel_on_worker(void *arg)
{
    struct probe *probe = arg;
    start_in(probe, HOUR);
    CHECK(fl_timer_cancel(probe->timer));
    CHECK(!fl_timer_cancel(probe->timer));
}

TEST(a_local_cancel_leaves_nothing_in_the_wheel)
{
    struct probe probe;
    fl_runtime *rt = with_probe(1, &probe);
    call_on_worker(rt, cancel_on_worker, &probe);
    AWAIT(stats_of(rt).tasks == 1);
    CHECK_EQ(stats_of(rt).entries, 0);
    CHECK_EQ(stats_of(rt).stale_dropped + stats_of(rt).scrubbed, 0);
    without_probe(rt, &probe);
}

TEST(starting_again_moves_the_timer)
{
    struct probe probe;
    fl_runtime *rt = with_probe(1, &probe);
    start_in(&probe, HOUR);
    start_in(&probe, 2 * HOUR);
    start_in(&probe, 2 * MS);
    AWAIT(atomic_load(&probe.calls) > 0);
    CHECK(!atomic_load(&probe.early));
    struct fl_runtime_stats stats = stats_of(rt);
    CHECK_EQ(stats.scheduled, 3);
    CHECK_EQ(stats.rescheduled, 2);
    CHECK_EQ(stats.pending, 0);
    without_probe(rt, &probe);
    CHECK_EQ(atomic_load(&probe.calls), 1);
}

static void move_on_worker(void *arg)
{
    start_in(arg, HOUR);
    start_in(arg, HOUR / 2);
    start_in(arg, MS);
}

TEST(starting_again_on_the_worker_reuses_the_entry)
{
    struct probe probe;
    fl_runtime *rt = with_probe(1, &probe);
    call_on_worker(rt, move_on_worker, &probe);
    AWAIT(atomic_load(&probe.calls) == 1);
    AWAIT(stats_of(rt).entries == 0);
    CHECK_EQ(stats_of(rt).stale_dropped, 0);
    without_probe(rt, &probe);
}

TEST(a_fired_timer_can_be_started_again_and_again)
{
    struct probe probe;
    fl_runtime *rt = with_probe(2, &probe);
    for (unsigned i = 1; i <= 50; i++) {
        start_in(&probe, i % 3 * MS / 4);
        AWAIT(atomic_load(&probe.calls) == i);
    }
    CHECK(!atomic_load(&probe.early));
    without_probe(rt, &probe);
}

struct ticker {
    fl_timer *timer;
    atomic_uint calls;
};

static void on_tick(void *arg)
{
    struct ticker *ticker = arg;
    if (atomic_fetch_add(&ticker->calls, 1) < 99)
        CHECK_EQ(fl_timer_start_after(ticker->timer, 10000), 0);
    CHECK(atomic_load(&ticker->calls) == 100 || fl_timer_cancel(ticker->timer));
    if (atomic_load(&ticker->calls) < 100)
        CHECK_EQ(fl_timer_start_after(ticker->timer, 20000), 0);
}

TEST(a_callback_may_start_and_cancel_its_own_timer)
{
    struct ticker ticker = {0};
    fl_runtime *rt = make_runtime(1);
    CHECK_EQ(fl_timer_new(rt, on_tick, &ticker, &ticker.timer), 0);
    CHECK_EQ(fl_timer_start_after(ticker.timer, 0), 0);
    AWAIT(atomic_load(&ticker.calls) == 100);
    fl_runtime_free(rt);
    CHECK(!fl_timer_cancel(ticker.timer));
    fl_timer_unref(ticker.timer);
}

/* Two timers that are due together: the first one's callback cancels the second. */
struct pair {
    fl_timer *first, *second;
    atomic_uint second_calls, cancelled;
};

static void on_first(void *arg)
{
    struct pair *pair = arg;
    atomic_fetch_add(&pair->cancelled, fl_timer_cancel(pair->second));
}

static void on_second(void *arg)
{
    struct pair *pair = arg;
    atomic_fetch_add(&pair->second_calls, 1);
}

static void start_pair(void *arg)
{
    struct pair *pair = arg;
    uint64_t deadline_ns = now_ns() + MS;
    CHECK_EQ(fl_timer_start(pair->first, deadline_ns), 0);
    CHECK_EQ(fl_timer_start(pair->second, deadline_ns), 0);
}

TEST(a_callback_can_cancel_a_timer_that_is_due_in_the_same_turn)
{
    struct pair pair = {0};
    fl_runtime *rt = make_runtime(1);
    CHECK_EQ(fl_timer_new(rt, on_first, &pair, &pair.first), 0);
    CHECK_EQ(fl_timer_new(rt, on_second, &pair, &pair.second), 0);
    call_on_worker(rt, start_pair, &pair);
    AWAIT(stats_of(rt).pending == 0 && stats_of(rt).entries == 0);
    fl_timer_unref(pair.first);
    fl_timer_unref(pair.second);
    fl_runtime_free(rt);
    CHECK_EQ(atomic_load(&pair.second_calls), 0);
    CHECK_EQ(atomic_load(&pair.cancelled), 1);
}

static atomic_uint counted;

static void count(void *arg)
{
    atomic_fetch_add(&counted, (unsigned)(uintptr_t)arg);
}

TEST(a_waiting_timer_keeps_itself_alive)
{
    atomic_store(&counted, 0);
    fl_runtime *rt = make_runtime(2);
    for (unsigned i = 0; i < 100; i++) {
        fl_timer *timer;
        CHECK_EQ(fl_timer_new(rt, count, (void *)1, &timer), 0);
        CHECK_EQ(fl_timer_start_after(timer, i % 10 * MS / 5), 0);
        fl_timer_unref(timer);
    }
    AWAIT(atomic_load(&counted) == 100);
    fl_runtime_free(rt);
}

TEST(references_are_counted)
{
    struct probe probe;
    fl_runtime *rt = with_probe(1, &probe);
    for (unsigned i = 0; i < 1000; i++)
        CHECK(fl_timer_ref(probe.timer) == probe.timer);
    start_in(&probe, MS);
    for (unsigned i = 0; i < 1000; i++)
        fl_timer_unref(probe.timer);
    AWAIT(atomic_load(&probe.calls) == 1);
    without_probe(rt, &probe);
}

TEST(what_has_not_fired_when_the_runtime_is_freed_does_not_fire)
{
    fl_timer *timers[300];
    atomic_store(&counted, 0);
    fl_runtime *rt = make_runtime(3);
    for (unsigned i = 0; i < 300; i++) {
        CHECK_EQ(fl_timer_new(rt, count, (void *)1, &timers[i]), 0);
        CHECK_EQ(fl_timer_start_after(timers[i], HOUR), 0);
    }
    fl_runtime_free(rt);
    for (unsigned i = 0; i < 300; i++) {
        CHECK(!fl_timer_cancel(timers[i]));
        fl_timer_unref(timers[i]);
    }
    CHECK_EQ(atomic_load(&counted), 0);
}

/* --- Tasks */

static unsigned order[1000], order_length;

static void note_order(void *arg)
{
    order[order_length++] = (unsigned)(uintptr_t)arg;
}

TEST(tasks_of_one_thread_run_in_order_on_one_worker)
{
    fl_runtime *rt = make_runtime(1);
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(fl_runtime_spawn(rt, note_order, (void *)(uintptr_t)i), 0);
    AWAIT(stats_of(rt).tasks == 1000);
    fl_runtime_free(rt);
    CHECK_EQ(order_length, 1000);
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(order[i], i);
}

struct tree {
    fl_runtime *rt;
    atomic_uint leaves;
};

struct branch {
    struct tree *tree;
    unsigned depth;
};

static void grow_branch(void *arg)
{
    struct branch branch = *(struct branch *)arg;
    free(arg);
    if (branch.depth == 0) {
        atomic_fetch_add(&branch.tree->leaves, 1);
        return;
    }
    for (int i = 0; i < 2; i++) {
        struct branch *next = malloc(sizeof(*next));
        *next = (struct branch){branch.tree, branch.depth - 1};
        CHECK_EQ(fl_runtime_spawn(branch.tree->rt, grow_branch, next), 0);
    }
}

TEST(tasks_may_spawn_tasks)
{
    struct tree tree = {.rt = make_runtime(3)};
    struct branch *root = malloc(sizeof(*root));
    *root = (struct branch){&tree, 12};
    CHECK_EQ(fl_runtime_spawn(tree.rt, grow_branch, root), 0);
    AWAIT(atomic_load(&tree.leaves) == 1 << 12);
    fl_runtime_free(tree.rt);
}

/* --- Time */

static atomic_uint far_calls;

static void on_far(void *arg)
{
    struct hand_clock *clock = arg;
    CHECK(atomic_load(&clock->time_ns) >= 100 * HOUR);
    atomic_fetch_add(&far_calls, 1);
}

TEST(a_timer_further_away_than_the_wheel_reaches_is_neither_early_nor_lost)
{
    struct hand_clock clock = {{hand_now, hand_wait}, 1};
    fl_runtime *rt;
    fl_timer *timer, *last;
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 2, .clock = &clock.clock}, &rt), 0);
    CHECK_EQ(fl_timer_new(rt, on_far, &clock, &timer), 0);
    CHECK_EQ(fl_timer_new(rt, on_far, &clock, &last), 0);
    CHECK_EQ(fl_timer_start(timer, 100 * HOUR), 0);
    CHECK_EQ(fl_timer_start_after(last, UINT64_MAX), 0);
    AWAIT(stats_of(rt).entries == 2);
    for (uint64_t hours = 10; hours < 100; hours += 10) {
        atomic_store(&clock.time_ns, hours * HOUR);
        for (int i = 0; i < 10; i++)
            pause_briefly();
        CHECK_EQ(stats_of(rt).pending, 2);
    }
    atomic_store(&clock.time_ns, 100 * HOUR);
    AWAIT(atomic_load(&far_calls) == 1);
    CHECK(fl_timer_cancel(last));
    CHECK(!fl_timer_cancel(timer));
    fl_timer_unref(timer);
    fl_timer_unref(last);
    fl_runtime_free(rt);
}

/* A worker has pieces of work to do in one turn, and each of them lasts until the metronome has ticked. A timer that
 * comes due meanwhile fires between two of them, and not at the end. */
enum { PIECES = 100 };

struct busy {
    fl_runtime *rt;
    fl_timer *timer;
    atomic_bool waiting, all_spawned;
    atomic_uint pieces, fired_after; /* UINT_MAX: it has not fired */
};

static void wait_for_all(void *arg)
{
    struct busy *busy = arg;
    atomic_store(&busy->waiting, true);
    AWAIT(atomic_load(&busy->all_spawned));
}

static void work_for_a_tick(void *arg)
{
    struct busy *busy = arg;
    uint64_t ticks = stats_of(busy->rt).metronome.ticks;
    if (atomic_fetch_add(&busy->pieces, 1) < PIECES - 1 && atomic_load(&busy->fired_after) == UINT_MAX)
        AWAIT(stats_of(busy->rt).metronome.ticks > ticks);
}

static void on_busy_timer(void *arg)
{
    struct busy *busy = arg;
    atomic_store(&busy->fired_after, atomic_load(&busy->pieces));
}

TEST(the_metronome_lets_timers_fire_between_two_tasks_of_a_busy_worker)
{
    struct busy busy = {.rt = make_runtime(1), .fired_after = UINT_MAX};
    CHECK_EQ(fl_timer_new(busy.rt, on_busy_timer, &busy, &busy.timer), 0);
    CHECK_EQ(fl_runtime_spawn(busy.rt, wait_for_all, &busy), 0);
    AWAIT(atomic_load(&busy.waiting)); /* all that comes now is for the next turn */
    CHECK_EQ(fl_timer_start_after(busy.timer, 5 * MS), 0);
    for (unsigned i = 0; i < PIECES; i++)
        CHECK_EQ(fl_runtime_spawn(busy.rt, work_for_a_tick, &busy), 0);
    atomic_store(&busy.all_spawned, true);
    AWAIT(atomic_load(&busy.fired_after) != UINT_MAX);
    CHECK(atomic_load(&busy.fired_after) < PIECES);
    fl_timer_unref(busy.timer);
    fl_runtime_free(busy.rt);
}

/* On a clock of the program's, which stands still unless somebody moves it: the same without a metronome. */
struct moved {
    struct hand_clock clock;
    atomic_bool waiting, all_spawned;
    atomic_uint pieces, fired_after;
};

static struct moved moved = {.fired_after = UINT_MAX};

static void wait_until_all_are_there(void *arg)
{
    (void)arg;
    atomic_store(&moved.waiting, true);
    AWAIT(atomic_load(&moved.all_spawned));
}

static void move_the_clock(void *arg)
{
    (void)arg;
    atomic_fetch_add(&moved.pieces, 1);
    atomic_fetch_add(&moved.clock.time_ns, 1 * MS);
}

static void on_moved_timer(void *arg)
{
    (void)arg;
    atomic_store(&moved.fired_after, atomic_load(&moved.pieces));
}

TEST(between_two_tasks_timers_fire_to_the_point_on_a_clock_of_the_program)
{
    fl_runtime *rt;
    fl_timer *timer;
    moved.clock = (struct hand_clock){{hand_now, hand_wait}, HOUR};
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = 1, .clock = &moved.clock.clock}, &rt), 0);
    CHECK_EQ(fl_timer_new(rt, on_moved_timer, NULL, &timer), 0);
    CHECK_EQ(fl_runtime_spawn(rt, wait_until_all_are_there, NULL), 0);
    AWAIT(atomic_load(&moved.waiting));
    CHECK_EQ(fl_timer_start_after(timer, 5 * MS), 0);
    for (unsigned i = 0; i < PIECES; i++)
        CHECK_EQ(fl_runtime_spawn(rt, move_the_clock, NULL), 0);
    atomic_store(&moved.all_spawned, true);
    AWAIT(atomic_load(&moved.pieces) == PIECES);
    CHECK_EQ(atomic_load(&moved.fired_after), 5);
    CHECK_EQ(stats_of(rt).metronome.ticks, 0);
    fl_timer_unref(timer);
    fl_runtime_free(rt);
}

/* --- Workers */

struct resizer {
    fl_runtime *rt;
    int result;
};

static void resize(void *arg)
{
    struct resizer *resizer = arg;
    resizer->result = fl_runtime_resize(resizer->rt, 1);
}

TEST(a_worker_cannot_resize_its_runtime)
{
    struct resizer resizer = {.rt = make_runtime(2)};
    call_on_worker(resizer.rt, resize, &resizer);
    CHECK_EQ(resizer.result, FL_BUSY);
    CHECK_EQ(stats_of(resizer.rt).workers, 2);
    fl_runtime_free(resizer.rt);
}

TEST(timers_and_tasks_outlive_the_last_worker)
{
    struct probe probe;
    fl_runtime *rt = with_probe(2, &probe);
    atomic_store(&counted, 0);
    start_in(&probe, MS);
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    CHECK_EQ(stats_of(rt).workers, 0);
    unsigned before = atomic_load(&probe.calls);
    start_in(&probe, 2 * MS);
    CHECK_EQ(fl_runtime_spawn(rt, count, (void *)1), 0);
    for (int i = 0; i < 50; i++)
        pause_briefly();
    CHECK_EQ(atomic_load(&probe.calls), before);
    CHECK_EQ(atomic_load(&counted), 0);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    AWAIT(atomic_load(&probe.calls) == before + 1 && atomic_load(&counted) == 1);
    CHECK(!atomic_load(&probe.early));
    without_probe(rt, &probe);
}

TEST(a_leaving_worker_hands_over_its_timers)
{
    enum { TIMERS = 5000 };
    static struct probe probes[TIMERS];
    fl_runtime *rt = make_runtime(4);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK_EQ(fl_timer_new(rt, on_probe, &probes[i], &probes[i].timer), 0);
        start_in(&probes[i], i % 10 == 0 ? 100 * MS : HOUR);
    }
    AWAIT(stats_of(rt).entries + stats_of(rt).fired >= TIMERS);
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    CHECK(stats_of(rt).migrated > TIMERS * 3 / 4);
    CHECK_EQ(fl_runtime_resize(rt, 2), 0);
    AWAIT(stats_of(rt).fired == TIMERS / 10);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK_EQ(fl_timer_cancel(probes[i].timer), i % 10 != 0);
        CHECK_EQ(atomic_load(&probes[i].calls), i % 10 == 0);
        CHECK(!atomic_load(&probes[i].early));
        fl_timer_unref(probes[i].timer);
    }
    fl_runtime_free(rt);
}

/* --- Restarting from outside */

static atomic_bool let_go;

static void hold_worker(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
    AWAIT(atomic_load(&let_go));
}

/* While its worker is busy, a timer that is started over and over is one that waits, not many. */
TEST(a_timer_that_is_on_its_way_needs_no_second_message)
{
    enum { STARTS = 300000 };
    atomic_bool held = false;
    fl_timer *timer;
    fl_runtime *rt = make_runtime(1);
    atomic_store(&let_go, false);
    atomic_store(&counted, 0);
    CHECK_EQ(fl_timer_new(rt, count, (void *)1, &timer), 0);
    CHECK_EQ(fl_runtime_spawn(rt, hold_worker, &held), 0);
    AWAIT(atomic_load(&held));
    uint64_t used = fl__runtime_start_pool.taken;
    for (unsigned i = 0; i < STARTS; i++) {
        CHECK_EQ(fl_timer_start_after(timer, i % 2 ? HOUR : 0), 0);
        if (i % 3 == 0)
            CHECK(fl_timer_cancel(timer));
    }
    CHECK(fl__runtime_start_pool.taken <= used + 1);
    CHECK(word_references(timer_word(timer)) <= 2);
    CHECK_EQ(fl_timer_start_after(timer, 0), 0);
    atomic_store(&let_go, true);
    AWAIT(atomic_load(&counted) == 1);
    AWAIT(stats_of(rt).pending == 0);
    CHECK_EQ(stats_of(rt).fired, 1);
    fl_timer_unref(timer);
    fl_runtime_free(rt);
}

static void *restart_again_and_again(void *arg)
{
    for (unsigned i = 0; i < 20000; i++)
        CHECK_EQ(fl_timer_start(arg, now_ns() + (i % 4 == 0 ? 0 : HOUR)), 0);
    return NULL;
}

/* Many threads start one timer at once, and the last start is the one that counts. */
TEST(of_many_starts_at_once_none_is_lost)
{
    enum { THREADS = 4, ROUNDS = 20 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        fl_timer *timer;
        fl_runtime *rt = make_runtime(1 + round % 3);
        atomic_store(&counted, 0);
        CHECK_EQ(fl_timer_new(rt, count, (void *)1, &timer), 0);
        for (unsigned i = 0; i < THREADS; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, restart_again_and_again, timer), 0);
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        CHECK_EQ(fl_timer_start_after(timer, 0), 0);
        AWAIT(stats_of(rt).pending == 0);
        struct fl_runtime_stats stats = stats_of(rt);
        CHECK_EQ(stats.scheduled, stats.fired + stats.rescheduled);
        AWAIT((uint64_t)atomic_load(&counted) == stats.fired); /* one counts as fired before it is called */
        fl_timer_unref(timer);
        fl_runtime_free(rt);
    }
}
