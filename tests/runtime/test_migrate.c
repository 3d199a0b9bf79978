/* SPDX-License-Identifier: MIT */
/* Timers that go from worker to worker: when there are more of them than before, and who takes them in. */

#include <stdlib.h>

#include "base/alloc.h"
#include "rt.h"
#include "runtime/internal.h"

static atomic_uint calls;

static void count(void *arg)
{
    (void)arg;
    atomic_fetch_add(&calls, 1);
}

static uint64_t entries_of(fl_runtime *rt, unsigned worker)
{
    const struct fl__worker *one = fl__runtime_worker(rt, worker);
    return counter_read(&one->own.entries) + counter_read(&one->common.entries);
}

static void start_timers(fl_runtime *rt, fl_timer **timers, unsigned n, uint64_t deadline_ns)
{
    for (unsigned i = 0; i < n; i++) {
        CHECK_EQ(fl_timer_new(rt, count, NULL, &timers[i]), 0);
        CHECK_EQ(fl_timer_start(timers[i], deadline_ns), 0);
    }
}

/* As many as there would be if all had the same, give or take a quarter. Workers that were there before give the same part
 * of what they have, which need not be the same: what comes from outside goes to whoever is awake. */
static bool has_fair_share(fl_runtime *rt, unsigned worker, unsigned workers, uint64_t all)
{
    uint64_t entries = entries_of(rt, worker), fair = all / workers;
    return entries >= fair - fair / 4 && entries <= fair + fair / 4;
}

static void check_spread(unsigned from, unsigned to, unsigned n)
{
    fl_timer **timers = malloc(n * sizeof(fl_timer *));
    uint64_t deadline_ns = now_ns() + HOUR;
    fl_runtime *rt = make_runtime(from);
    atomic_store(&calls, 0);
    start_timers(rt, timers, n, deadline_ns);
    AWAIT(stats_of(rt).entries == n);
    CHECK_EQ(fl_runtime_resize(rt, to), 0);
    for (unsigned i = from; i < to; i++)
        AWAIT(has_fair_share(rt, i, to, n));
    AWAIT(stats_of(rt).entries == n);
    CHECK_EQ(stats_of(rt).pending, n);
    for (unsigned i = 0; i < n; i++) {
        if (i % 2)
            CHECK(fl_timer_cancel(timers[i]));
        else
            CHECK_EQ(fl_timer_start_after(timers[i], 0), 0);
        fl_timer_unref(timers[i]);
    }
    AWAIT(atomic_load(&calls) == (n + 1) / 2);
    fl_runtime_free(rt);
    free(timers);
}

TEST(workers_that_come_get_their_share_of_the_timers)
{
    check_spread(1, 5, 1000);
    check_spread(1, 2, 100000);
    check_spread(3, 4, 20000);
}

static void start_on_worker(void *arg)
{
    void **args = arg;
    start_timers(args[0], args[1], 1000, now_ns() + 200 * MS);
}

/* Also those that a callback has started; none is called twice or lost on the way. */
TEST(spread_timers_fire_once)
{
    static fl_timer *timers[1000];
    atomic_store(&calls, 0);
    for (unsigned round = 0; round < 5; round++) {
        fl_runtime *rt = make_runtime(1);
        void *args[] = {rt, timers};
        call_on_worker(rt, start_on_worker, args);
        CHECK_EQ(fl_runtime_resize(rt, 5), 0);
        AWAIT(stats_of(rt).migrated >= 700 ||
              atomic_load(&calls) >= (round + 1) * 1000); /* a slow machine fires first */
        AWAIT(atomic_load(&calls) >= (round + 1) * 1000);
        CHECK_EQ(atomic_load(&calls), (round + 1) * 1000);
        CHECK_EQ(stats_of(rt).fired, 1000);
        for (unsigned i = 0; i < 1000; i++)
            fl_timer_unref(timers[i]);
        fl_runtime_free(rt);
    }
}

/* --- Much to sweep */

enum { STALE = 2000, COMING = 500 };

struct sweep {
    fl_runtime *rt;
    fl_timer *stale[STALE], *coming[COMING];
    atomic_bool started, cancelled, sent;
};

/* As a worker that leaves would send it. */
static struct segment *make_segment(struct sweep *sweep)
{
    struct segment *segment = fl__map(SEGMENT_BYTES);
    CHECK(segment);
    segment->header = (struct segment_header){
        .message.run = fl__runtime_adopt_segment, .used = SEGMENT_FIRST, .cursor = SEGMENT_FIRST, .share = COMING};
    for (unsigned i = 0; i < COMING; i++) {
        CHECK_EQ(fl_timer_new(sweep->rt, count, NULL, &sweep->coming[i]), 0);
        uint64_t word = timer_word(sweep->coming[i]);
        while (!timer_restart(sweep->coming[i], &word, TIMER_MIGRATING, 1))
            ;
        segment->slots[segment->header.used++] =
            (struct entry){.timer = sweep->coming[i],
                           .generation = word_generation(timer_word(sweep->coming[i])),
                           .node = {.deadline_ns = now_ns() + HOUR}};
    }
    return segment;
}

static void be_swept(void *arg)
{
    struct sweep *sweep = arg;
    struct fl__worker *self = fl__worker_self();
    CHECK(!fl__runtime_much_to_sweep(&self->own));
    start_timers(sweep->rt, sweep->stale, STALE, now_ns() + HOUR);
    atomic_store(&sweep->started, true);
    AWAIT(atomic_load(&sweep->cancelled));
    CHECK(fl__runtime_much_to_sweep(&self->own));
    fl__runtime_adopt_segment(self, &make_segment(sweep)->header.message);
    CHECK_EQ(self->own.table.live, STALE);
    CHECK_EQ(self->common.table.live, 0); /* it has gone on to another */
    atomic_store(&sweep->sent, true);
}

TEST(a_worker_with_much_to_sweep_leaves_timers_that_come_by_to_others)
{
    static struct sweep sweep;
    sweep = (struct sweep){.rt = make_runtime(2)};
    CHECK_EQ(fl_runtime_spawn_on(sweep.rt, 0, be_swept, &sweep), 0);
    AWAIT(atomic_load(&sweep.started));
    for (unsigned i = 0; i < STALE; i++)
        CHECK(fl_timer_cancel(sweep.stale[i]));
    atomic_store(&sweep.cancelled, true);
    AWAIT(atomic_load(&sweep.sent));
    AWAIT(entries_of(sweep.rt, 0) + entries_of(sweep.rt, 1) >= COMING);
    for (unsigned i = 0; i < COMING; i++) {
        CHECK(fl_timer_cancel(sweep.coming[i]));
        fl_timer_unref(sweep.coming[i]);
    }
    for (unsigned i = 0; i < STALE; i++)
        fl_timer_unref(sweep.stale[i]);
    fl_runtime_free(sweep.rt);
}
