/* SPDX-License-Identifier: MIT */
/* The virtual clock in a runtime: time stands still while anybody has something to do, and then goes to the next deadline,
 * whoever has it. */

#include <pthread.h>

#include "rt.h"

enum { EACH = 200, MAX_WORKERS = 8 };

#define SECOND (1000 * MS)
#define START 1000

static fl_virtual_clock clock_of_test;
static fl_runtime *rt;
static atomic_bool let_go;
static atomic_uint ready;
static _Atomic uint64_t last_ns;

static uint64_t virtual_now(void)
{
    return clock_of_test.clock.now_ns(&clock_of_test.clock);
}

static void begin(unsigned workers)
{
    fl_virtual_clock_init(&clock_of_test, START);
    atomic_store(&let_go, false);
    atomic_store(&ready, 0);
    atomic_store(&last_ns, 0);
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = workers, .clock = &clock_of_test.clock}, &rt), 0);
}

struct date {
    uint64_t deadline_ns;
    atomic_uint calls;
    fl_timer *timer;
};

/* No two dates are the same, so they are called one after the other. */
static void on_date(void *arg)
{
    struct date *date = arg;
    CHECK_EQ(virtual_now(), date->deadline_ns);
    CHECK(atomic_exchange(&last_ns, date->deadline_ns) < date->deadline_ns);
    atomic_fetch_add(&date->calls, 1);
}

static struct date dates[MAX_WORKERS][EACH];

static void start_date(struct date *date, unsigned number)
{
    date->deadline_ns = START + (1 + number * 7919 % 100003) * SECOND * 60 + number;
    atomic_store(&date->calls, 0);
    CHECK_EQ(fl_timer_new(rt, on_date, date, &date->timer), 0);
    CHECK_EQ(fl_timer_start(date->timer, date->deadline_ns), 0);
}

static void start_dates(void *arg)
{
    unsigned worker = (unsigned)fl_runtime_worker();
    (void)arg;
    for (unsigned i = 0; i < EACH; i++)
        start_date(&dates[worker][i], worker * EACH + i);
    atomic_fetch_add(&ready, 1);
    AWAIT(atomic_load(&let_go)); /* or time would pass while others are starting theirs */
}

static void all_dates(unsigned workers)
{
    begin(workers);
    for (unsigned i = 0; i < workers; i++)
        CHECK_EQ(fl_runtime_spawn_on(rt, i, start_dates, NULL), 0);
    AWAIT(atomic_load(&ready) == workers);
    CHECK_EQ(virtual_now(), START);
    atomic_store(&let_go, true);
    AWAIT(stats_of(rt).pending == 0);
    fl_runtime_free(rt);
    for (unsigned i = 0; i < workers * EACH; i++) {
        CHECK_EQ(atomic_load(&dates[i / EACH][i % EACH].calls), 1);
        fl_timer_unref(dates[i / EACH][i % EACH].timer);
    }
}

TEST(timers_of_all_workers_fire_at_their_moments_in_order)
{
    all_dates(1);
    all_dates(3);
    all_dates(MAX_WORKERS);
}

/* --- Slack */

enum { SLACK = 100 };

/* The deadlines, the latest first, and when a worker with SLACK calls them. */
static struct lazy_date {
    uint64_t deadline_ns, called_ns;
    fl_timer *timer;
} lazy_dates[] = {{5000, 5100}, {1101, 1201}, {1100, 1100}, {1050, 1100}, {1000, 1100}, {1000, 1100}};

enum { LAZY_DATES = sizeof(lazy_dates) / sizeof(*lazy_dates) };

static void on_lazy_date(void *arg)
{
    const struct lazy_date *date = arg;
    CHECK_EQ(virtual_now(), START + date->called_ns);
    CHECK(atomic_exchange(&last_ns, date->deadline_ns) <= date->deadline_ns);
    atomic_fetch_add(&ready, 1);
}

static void start_lazy_dates(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < LAZY_DATES; i++) {
        CHECK_EQ(fl_timer_new(rt, on_lazy_date, &lazy_dates[i], &lazy_dates[i].timer), 0);
        CHECK_EQ(fl_timer_start(lazy_dates[i].timer, START + lazy_dates[i].deadline_ns), 0);
    }
}

TEST(with_slack_a_wake_up_serves_several_timers_in_order_and_none_early)
{
    fl_runtime_config config = {.workers = 1, .clock = &clock_of_test.clock, .slack_ns = SLACK};
    fl_virtual_clock_init(&clock_of_test, START);
    atomic_store(&ready, 0);
    atomic_store(&last_ns, 0);
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    CHECK_EQ(fl_runtime_spawn(rt, start_lazy_dates, NULL), 0);
    AWAIT(atomic_load(&ready) == LAZY_DATES);
    fl_runtime_free(rt);
    for (unsigned i = 0; i < LAZY_DATES; i++)
        fl_timer_unref(lazy_dates[i].timer);
}

static void work(void *arg)
{
    (void)arg;
    atomic_fetch_add(&ready, 1);
    AWAIT(atomic_load(&let_go));
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

TEST(time_stands_still_while_a_worker_works)
{
    atomic_uint calls = 0;
    fl_timer *timer;
    begin(4);
    CHECK_EQ(fl_runtime_spawn_on(rt, 2, work, NULL), 0);
    AWAIT(atomic_load(&ready) == 1);
    CHECK_EQ(fl_timer_new(rt, count, &calls, &timer), 0);
    CHECK_EQ(fl_timer_start_after(timer, SECOND), 0);
    for (unsigned i = 0; i < 100; i++)
        pause_briefly();
    CHECK_EQ(virtual_now(), START);
    CHECK_EQ(atomic_load(&calls), 0);
    atomic_store(&let_go, true);
    AWAIT(atomic_load(&calls) == 1);
    CHECK_EQ(virtual_now(), START + SECOND);
    fl_timer_unref(timer);
    fl_runtime_free(rt);
}

TEST(the_clock_can_be_moved_while_workers_work)
{
    atomic_uint calls = 0;
    fl_timer *timer;
    begin(2);
    CHECK_EQ(fl_runtime_spawn(rt, work, NULL), 0);
    AWAIT(atomic_load(&ready) == 1);
    fl_virtual_clock_move(&clock_of_test, 5);
    CHECK_EQ(virtual_now(), START);
    CHECK_EQ(fl_timer_new(rt, count, &calls, &timer), 0);
    CHECK_EQ(fl_timer_start(timer, START + SECOND), 0);
    fl_virtual_clock_move(&clock_of_test, START + SECOND);
    AWAIT(atomic_load(&calls) == 1);
    CHECK_EQ(virtual_now(), START + SECOND);
    fl_timer_unref(timer);
    atomic_store(&let_go, true);
    fl_runtime_free(rt);
}

/* --- From everywhere at once */

static atomic_uint fired;

static void chain(void *arg)
{
    fl_timer *timer = *(fl_timer **)arg;
    if (atomic_fetch_add(&fired, 1) < 2000)
        CHECK_EQ(fl_timer_start_after(timer, HOUR), 0);
}

static void *start_and_spawn(void *arg)
{
    atomic_uint *calls = arg;
    for (unsigned i = 0; i < 500; i++) {
        fl_timer *timer;
        CHECK_EQ(fl_timer_new(rt, count, calls, &timer), 0);
        CHECK_EQ(fl_timer_start_after(timer, i * SECOND), 0);
        CHECK_EQ(fl_runtime_spawn(rt, count, calls), 0);
        fl_timer_unref(timer);
    }
    return NULL;
}

TEST(threads_outside_use_a_runtime_on_a_virtual_clock)
{
    enum { THREADS = 2, CHAINS = 5 };
    static fl_timer *chains[CHAINS];
    pthread_t threads[THREADS];
    atomic_uint calls = 0;
    atomic_store(&fired, 0);
    begin(3);
    for (unsigned i = 0; i < CHAINS; i++) {
        CHECK_EQ(fl_timer_new(rt, chain, &chains[i], &chains[i]), 0);
        CHECK_EQ(fl_timer_start_after(chains[i], HOUR), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, start_and_spawn, &calls), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    AWAIT(atomic_load(&calls) == THREADS * 1000);
    AWAIT(stats_of(rt).pending == 0);
    CHECK_EQ(atomic_load(&fired), 2000 + CHAINS);
    fl_runtime_free(rt);
    for (unsigned i = 0; i < CHAINS; i++)
        fl_timer_unref(chains[i]);
}

static void move_far(void *arg)
{
    (void)arg;
    fl_virtual_clock_move(&clock_of_test, 1ull << 62);
}

static void do_nothing(void *arg)
{
    (void)arg;
}

enum { LATE = 16 };
static fl_timer *mover, *late[LATE];

static void start_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < LATE; i++)
        CHECK_EQ(fl_timer_start(late[i], START + 2 * SECOND), 0);
    CHECK_EQ(fl_timer_start(mover, START + SECOND), 0);
}

TEST(lateness_of_centuries_has_the_right_mean)
{
    begin(1);
    CHECK_EQ(fl_timer_new(rt, move_far, NULL, &mover), 0);
    for (int i = 0; i < LATE; i++)
        CHECK_EQ(fl_timer_new(rt, do_nothing, NULL, &late[i]), 0);
    CHECK_EQ(fl_runtime_spawn(rt, start_all, NULL), 0);
    AWAIT(stats_of(rt).lateness_ns.count == LATE + 1);
    fl_loop_summary lateness = stats_of(rt).lateness_ns;
    CHECK(lateness.max_ns > 1ull << 61);
    CHECK(lateness.mean_ns > lateness.max_ns / 2 && lateness.mean_ns <= lateness.max_ns);
    fl_runtime_free(rt);
    fl_timer_unref(mover);
    for (int i = 0; i < LATE; i++)
        fl_timer_unref(late[i]);
}
