/* SPDX-License-Identifier: MIT */
/* The earliest deadline: exact, and cheap to know.
 *
 * Cheapness is tested without a clock: there are so many timers in one place that a wheel which looks at all of them
 * after each cancel would not be done before the harness loses its patience.
 */

#include <stdlib.h>

#include "test.h"
#include "wheel/allocator.h"
#include "wheel/model.h"
#include "wheel/wheel_test.h"

static fl_wheel *new_wheel(const fl_wheel_config *config)
{
    fl_wheel *w = NULL;
    CHECK_EQ(fl_wheel_new(config, &w), 0);
    return w;
}

TEST(an_empty_wheel_has_no_next_deadline)
{
    struct twin t;
    fl_timer_id id;
    twin_new(&t, NULL);
    CHECK(!twin_next_deadline(&t, NULL));
    twin_schedule(&t, HOUR, &id);
    CHECK(twin_next_deadline(&t, NULL));
    twin_cancel(&t, id);
    CHECK(!twin_next_deadline(&t, NULL));
    twin_schedule(&t, HOUR, &id);
    twin_poll(&t, HOUR, SIZE_MAX);
    CHECK(!twin_next_deadline(&t, NULL));
    twin_schedule(&t, 2 * HOUR, &id);
    twin_clear(&t);
    CHECK(!twin_next_deadline(&t, NULL));
    twin_free(&t);
}

/* After each of many operations of every kind, at every distance, in both kinds of wheel. */
TEST(next_deadline_is_exact)
{
    for (int kind = 0; kind < 4; kind++) {
        struct twin t;
        uint64_t random = (uint64_t)kind;
        twin_new(&t, &(fl_wheel_config){.coarse = kind % 2, .spokes = kind < 2 ? 0 : 16});
        t.lazy_checks = true;
        uint64_t reach_ns = fl_wheel_max_duration_ns(t.wheel);
        for (int i = 0; i < SCALE(20000, 4000); i++) {
            uint64_t deadline_ns = t.now_ns + 1 + random_distance(&random, reach_ns - 1);
            uint64_t what = random_below(&random, 16);
            if (what < 6 || t.count == 0)
                twin_schedule(&t, deadline_ns, NULL);
            else if (what < 9)
                twin_cancel(&t, twin_timer(&t, 0)->id);
            else if (what < 10)
                twin_cancel(&t, twin_timer(&t, random_below(&random, t.count))->id);
            else if (what < 12)
                twin_reschedule(&t, twin_timer(&t, what == 10 ? 0 : t.count - 1)->id, deadline_ns, NULL);
            else
                twin_poll(&t, t.now_ns + random_distance(&random, HOUR), what % 3);
            twin_next_deadline(&t, NULL);
        }
        twin_free(&t);
    }
}

/* A timer that is due and held back by the limit, or scheduled in the past, is the earliest all the same. */
TEST(next_deadline_tells_of_what_is_due_already)
{
    struct twin t;
    uint64_t next_ns;
    twin_new(&t, NULL);
    for (uint64_t i = 1; i <= 10; i++)
        twin_schedule(&t, i * 7 * MINUTE, NULL);
    for (uint64_t i = 1; i <= 5; i++) {
        CHECK_EQ(twin_poll(&t, HOUR, 1), 1);
        CHECK(twin_next_deadline(&t, &next_ns));
        CHECK_EQ(next_ns, (i + 1) * 7 * MINUTE);
    }
    twin_poll(&t, DAY, SIZE_MAX);
    twin_schedule(&t, DAY - TICK0, NULL);
    CHECK(twin_next_deadline(&t, &next_ns));
    CHECK_EQ(next_ns, DAY - TICK0);
    twin_free(&t);
}

/* ---- Cheap. */

struct pair {
    uint64_t deadline_ns;
    fl_timer_id id;
};

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    return x->deadline_ns < y->deadline_ns ? -1 : x->deadline_ns > y->deadline_ns;
}

/* `count` timers within `span_ns` from `from_ns` on, in random order; sorted in the result. */
static struct pair *crowd(fl_wheel *w, uint64_t count, uint64_t from_ns, uint64_t span_ns)
{
    struct pair *pairs = malloc(count * sizeof(*pairs));
    uint64_t random = span_ns;
    for (uint64_t i = 0; i < count; i++) {
        pairs[i].deadline_ns = from_ns + random_below(&random, span_ns);
        CHECK_EQ(fl_wheel_schedule(w, pairs[i].deadline_ns, NULL, &pairs[i].id), 0);
    }
    qsort(pairs, count, sizeof(*pairs), compare_pairs);
    return pairs;
}

/* Cancels the earliest, asks for the next, and so on to the last. */
static void peel(fl_wheel *w, const struct pair *pairs, uint64_t count)
{
    uint64_t next_ns;
    for (uint64_t i = 0; i < count; i++) {
        CHECK(fl_wheel_next_deadline(w, &next_ns));
        CHECK_EQ(next_ns, pairs[i].deadline_ns);
        CHECK_EQ(fl_wheel_cancel(w, pairs[i].id, NULL), 0);
    }
    CHECK(!fl_wheel_next_deadline(w, &next_ns));
    CHECK_EQ(fl_wheel_check(w, stdout), 0);
}

static const struct {
    uint64_t from_ns, span_ns;
} crowds[] = {
    {10 * TICK0, 1},      /* all equal, in L0 */
    {10 * TICK0, TICK0},  /* one tick of L0 */
    {10 * TICK1, TICK0},  /* one tick of L0, far enough away for L1 */
    {10 * TICK1, TICK1},  /* one tick of L1 */
    {100 * TICK2, 1},     /* all equal, in L2 */
    {100 * TICK2, TICK2}, /* one tick of L2 */
    {1, 10 * HOUR},       /* everywhere */
};

TEST(next_deadline_after_cancelling_the_earliest_scans_little)
{
    uint64_t count = SCALE(150000, 40000);
    for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++) {
        fl_wheel *w = new_wheel(NULL);
        struct pair *pairs = crowd(w, count, crowds[i].from_ns, crowds[i].span_ns);
        peel(w, pairs, count);
        free(pairs);
        fl_wheel_free(w);
    }
}

/* The same after polls have come near to the crowd, and into it. */
TEST(next_deadline_after_polls_scans_little)
{
    uint64_t count = SCALE(100000, 40000);
    for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++) {
        fl_wheel *w = new_wheel(NULL);
        fl_expired out;
        struct pair *pairs = crowd(w, count, crowds[i].from_ns, crowds[i].span_ns);
        for (uint64_t left_ns = crowds[i].from_ns; left_ns > 0; left_ns /= 2)
            CHECK_EQ(fl_wheel_poll(w, crowds[i].from_ns - left_ns, &out, 1), 0);
        CHECK_EQ(fl_wheel_poll(w, crowds[i].from_ns + crowds[i].span_ns / 2, NULL, 0), 0);
        peel(w, pairs, count);
        free(pairs);
        fl_wheel_free(w);
    }
}

/* A server's habit: an early timer comes and goes, and each time the wheel is asked, with a crowd behind it. */
TEST(next_deadline_before_a_crowd_scans_little)
{
    uint64_t count = SCALE(60000, 20000), next_ns;
    for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++) {
        fl_wheel *w = new_wheel(NULL);
        struct pair *pairs = crowd(w, count, crowds[i].from_ns + 2, crowds[i].span_ns);
        for (uint64_t k = 0; k < count; k++) {
            fl_timer_id id;
            CHECK_EQ(fl_wheel_schedule(w, pairs[0].deadline_ns - 1, NULL, &id), 0);
            CHECK(fl_wheel_next_deadline(w, &next_ns) && next_ns == pairs[0].deadline_ns - 1);
            CHECK_EQ(fl_wheel_cancel(w, id, NULL), 0);
            CHECK(fl_wheel_next_deadline(w, &next_ns) && next_ns == pairs[0].deadline_ns);
        }
        peel(w, pairs, count);
        free(pairs);
        fl_wheel_free(w);
    }
}

/* The earliest is moved behind all others each time: a round of the crowd by rescheduling. */
TEST(next_deadline_after_rescheduling_the_earliest_scans_little)
{
    uint64_t count = SCALE(60000, 20000), next_ns;
    for (size_t i = 0; i < sizeof(crowds) / sizeof(*crowds); i++) {
        fl_wheel *w = new_wheel(NULL);
        struct pair *pairs = crowd(w, count, crowds[i].from_ns, crowds[i].span_ns);
        uint64_t last_ns = pairs[count - 1].deadline_ns;
        for (uint64_t k = 0; k < count; k++) {
            CHECK(fl_wheel_next_deadline(w, &next_ns) && next_ns == pairs[k].deadline_ns);
            pairs[k].deadline_ns = last_ns;
            CHECK_EQ(fl_wheel_reschedule(w, pairs[k].id, last_ns, &pairs[k].id), 0);
        }
        peel(w, pairs, count);
        free(pairs);
        fl_wheel_free(w);
    }
}

/* A program that sleeps until the next poll takes every timer of a crowd at its deadline, and wakes up for nothing else. */
TEST(next_poll_wakes_up_for_timers_only)
{
    enum { COUNT = 50000, ALONE_AT = 50 };
    uint64_t random = 1, now_ns = 0, fired = 0, begin_ns = 100 * TICK1;
    fl_wheel *w = new_wheel(NULL);
    fl_expired out[64];
    CHECK_EQ(fl_wheel_schedule(w, ALONE_AT * TICK1 + 7, NULL, NULL), 0);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(fl_wheel_schedule(w, begin_ns + random_below(&random, TICK1), NULL, NULL), 0);
    while (fl_wheel_next_poll(w, &now_ns)) {
        size_t n = fl_wheel_poll(w, now_ns, out, 64);
        CHECK(n > 0);
        for (size_t i = 0; i < n; i++)
            CHECK_EQ(out[i].deadline_ns, now_ns);
        fired += n;
    }
    CHECK_EQ(fired, COUNT + 1);
    fl_wheel_free(w);
}

TEST(next_poll_before_few_timers_is_the_next_deadline)
{
    uint64_t poll_ns, deadline_ns, random = 2;
    fl_wheel *w = new_wheel(NULL);
    fl_expired out[64];
    CHECK(!fl_wheel_next_poll(w, &poll_ns));
    for (int i = 0; i < 3000; i++)
        CHECK_EQ(fl_wheel_schedule(w, 1 + random_below(&random, HOUR), NULL, NULL), 0);
    while (fl_wheel_next_poll(w, &poll_ns)) {
        CHECK(fl_wheel_next_deadline(w, &deadline_ns));
        CHECK_EQ(poll_ns, deadline_ns);
        CHECK(fl_wheel_poll(w, poll_ns, out, 64) > 0);
    }
    fl_wheel_free(w);
}

/* Timers that cannot be sorted ahead, of which the earliest has gone, must not hold the poller at one moment. */
TEST(next_poll_without_memory_goes_on)
{
    enum { COUNT = 300 };
    uint64_t now_ns = 0, polls = 0, fired = 0;
    fl_timer_id first;
    fl_expired out[64];
    memory_install();
    fl_wheel *w = new_wheel(NULL);
    CHECK_EQ(fl_wheel_schedule(w, 3 * TICK1 + 1, NULL, &first), 0);
    for (uint64_t i = 0; i < COUNT; i++)
        CHECK_EQ(fl_wheel_schedule(w, 3 * TICK1 + 100 + i, NULL, NULL), 0);
    memory_fail(1, true);
    CHECK_EQ(fl_wheel_poll(w, 2 * TICK1 + 1, out, 64), 0);
    CHECK_EQ(fl_wheel_cancel(w, first, NULL), 0);
    for (; fl_wheel_next_poll(w, &now_ns) && polls < 10 * COUNT; polls++)
        fired += fl_wheel_poll(w, now_ns, out, 64);
    CHECK_EQ(fired, COUNT);
    memory_fail(0, false);
    fl_wheel_free(w);
    memory_remove();
}
