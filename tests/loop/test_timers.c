/* SPDX-License-Identifier: MIT */
/* The loop's timers: order, turns, cancelling, IDs, distances, slack. */

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "loop/loop_test.h"

/* ---- Order. */

TEST(timers_fire_in_order_of_deadline)
{
    begin();
    make_timer(3 * HOUR, "d");
    make_timer(1, "a");
    make_timer(2 * SECOND, "c");
    make_timer(2 * MILLISECOND, "b");
    run();
    CHECK_DIARY("abcd");
    CHECK_EQ(elapsed(), 3 * HOUR);
    end();
}

TEST(equal_deadlines_fire_in_order_of_creation)
{
    begin();
    for (unsigned i = 0; i < 26; i++)
        make_timer(MINUTE, letter(i));
    run();
    CHECK_DIARY("abcdefghijklmnopqrstuvwxyz");
    end();
}

/* The first is beyond what the wheel reaches when it is made, the others are made on its way. */
static void make_for_same_deadline(fl_loop *l, void *arg)
{
    CHECK_EQ(fl_loop_timer_at(l, START + 5 * DAY, note, arg, NULL), 0);
}

TEST(equal_deadlines_keep_their_order_when_some_were_far_away)
{
    begin();
    make_timer(5 * DAY, "a");
    for (unsigned i = 1; i < 20; i++)
        make_timer_for(i * 6 * HOUR, make_for_same_deadline, letter(i));
    run();
    CHECK_DIARY("abcdefghijklmnopqrst");
    CHECK_EQ(elapsed(), 5 * DAY);
    end();
}

struct place {
    uint64_t deadline_ns;
    unsigned number;
};

static struct place last_place;
static unsigned places;

static void check_place(fl_loop *l, void *arg)
{
    const struct place *place = arg;
    (void)l;
    if (places++ > 0)
        CHECK(place->deadline_ns > last_place.deadline_ns ||
              (place->deadline_ns == last_place.deadline_ns && place->number > last_place.number));
    last_place = *place;
}

/* As many as the list of fresh timers holds, fewer and more; all of them, half of them and few of them at equal times. */
TEST(many_timers_that_are_due_at_once_fire_in_order)
{
    static struct place made[3000];
    static const unsigned counts[] = {2, 17, 63, 64, 65, 500, 1023, 1024, 1025, 3000};
    uint64_t random = 1;
    for (unsigned i = 0; i < 30; i++) {
        unsigned count = counts[i % 10], moments = i < 10 ? 1 : i < 20 ? count / 2 : 1000000;
        begin();
        for (unsigned n = 0; n < count; n++) {
            made[n] = (struct place){START + random_below(&random, moments), n};
            CHECK_EQ(fl_loop_timer_at(loop, made[n].deadline_ns, check_place, &made[n], NULL), 0);
        }
        test_time.time_ns += SECOND;
        places = 0;
        run();
        CHECK_EQ(places, count);
        end();
    }
}

static unsigned next_in_order;

static void check_in_order(fl_loop *l, void *arg)
{
    (void)l;
    CHECK_EQ((uintptr_t)arg, next_in_order);
    next_in_order++;
}

/* The first are centuries ago, by a span that the sort cannot hold to the nanosecond. */
TEST(timers_that_are_due_over_centuries_fire_in_order)
{
    enum { TIMERS = 500 };
    begin();
    make_timer(0, "a");
    for (unsigned i = 0; i < TIMERS; i++)
        make_timer_for((1ull << 60) + i * 263 % TIMERS, check_in_order, (void *)(uintptr_t)(i * 263 % TIMERS));
    next_in_order = 0;
    test_time.time_ns += 1ull << 61;
    turn();
    CHECK_EQ(next_in_order, TIMERS);
    CHECK_DIARY("a");
    end();
}

TEST(what_is_over_the_budget_keeps_its_order)
{
    begin_with_budget(3);
    for (unsigned i = 0; i < 8; i++)
        make_timer(8 - i, letter(i));
    test_time.time_ns += SECOND;
    turn();
    CHECK_DIARY("hgf");
    CHECK_EQ(fl_loop_timer_at(loop, 1, note, "x", NULL), 0); /* counts as now, which is after those that wait */
    turn();
    CHECK_DIARY("edc");
    turn();
    CHECK_DIARY("bax");
    end();
}

/* ---- Turns. */

static void make_one_for_now(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_timer(l, 0, note, "new", NULL), 0);
    CHECK_EQ(fl_loop_timer_at(l, 1, note, "old", NULL), 0);
}

TEST(no_timer_fires_in_the_turn_of_its_creation)
{
    begin();
    make_timer_for(5, make_one_for_now, "1");
    make_timer_for(5, make_one_for_now, "2");
    test_time.time_ns += 5;
    turn();
    CHECK_DIARY("12");
    turn();
    CHECK_DIARY("newoldnewold");
    end();
}

TEST(no_timer_fires_in_the_turn_of_its_creation_even_after_the_clock_was_read_anew)
{
    begin();
    make_timer_for(5, make_one_for_now, "1");
    CHECK_EQ(fl_loop_microtask(loop, make_one_for_now, "0"), 0);
    test_time.time_ns += 5;
    turn();
    CHECK_DIARY("01");
    turn();
    CHECK_DIARY("newoldnewold");
    end();
}

static void rearm_at_zero(fl_loop *l, void *arg)
{
    unsigned *left = arg;
    write_down("t");
    if (--*left > 0)
        CHECK_EQ(fl_loop_timer(l, 0, rearm_at_zero, arg, NULL), 0);
}

static void readable(fl_loop *l, int fd, unsigned events, void *arg)
{
    CHECK_EQ(events, FL_READ);
    write_down(arg);
    CHECK_EQ(fl_loop_fd_remove(l, fd), 0);
}

TEST(a_rearm_at_zero_does_not_starve_descriptors_and_tasks)
{
    unsigned left = 3;
    int fd = eventfd(1, EFD_CLOEXEC);
    begin();
    CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, readable, "d"), 0);
    CHECK_EQ(fl_loop_post(loop, note, "p"), 0);
    make_timer_for(0, rearm_at_zero, &left);
    run();
    CHECK_DIARY("tpdtt");
    end();
    close(fd);
}

/* ---- Cancelling and rearming. */

static fl_timer_id sibling;

static void cancel_sibling(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_cancel(l, sibling), 0);
    CHECK_EQ(fl_loop_cancel(l, sibling), FL_TIMER_NOT_FOUND);
}

TEST(a_sibling_due_in_the_same_turn_can_be_cancelled)
{
    begin();
    make_timer_for(5, cancel_sibling, "a");
    sibling = make_timer(5, "b");
    make_timer(5, "c");
    run();
    CHECK_DIARY("ac");
    end();
}

static void replace_sibling(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_cancel(l, sibling), 0);
    CHECK_EQ(fl_loop_timer(l, 0, note, "new", &sibling), 0); /* in the memory of the old one */
}

TEST(a_timer_in_the_place_of_a_cancelled_sibling_waits_for_its_own_turn)
{
    begin();
    make_timer_for(5, replace_sibling, "a");
    sibling = make_timer(5, "b");
    test_time.time_ns += 5;
    turn();
    CHECK_DIARY("a");
    turn();
    CHECK_DIARY("new");
    end();
}

static void rearm_sibling(fl_loop *l, void *arg)
{
    write_down(arg);
    CHECK_EQ(fl_loop_rearm(l, sibling, 10), 0);
}

TEST(a_sibling_due_in_the_same_turn_can_be_rearmed)
{
    begin();
    make_timer_for(5, rearm_sibling, "a");
    sibling = make_timer(5, "b");
    run();
    CHECK_DIARY("ab");
    CHECK_EQ(elapsed(), 15);
    end();
}

TEST(rearming_keeps_the_id_and_takes_any_distance)
{
    begin();
    fl_timer_id id = make_timer(5, "a");
    static const uint64_t delay_ns[] = {0, HOUR, YEAR, MILLISECOND, 30 * DAY, UINT64_MAX, 7};
    for (size_t i = 0; i < sizeof(delay_ns) / sizeof(*delay_ns); i++) {
        CHECK_EQ(fl_loop_rearm(loop, id, delay_ns[i]), 0);
        CHECK_EQ(fl_loop_check(loop, stdout), 0);
    }
    run();
    CHECK_DIARY("a");
    CHECK_EQ(elapsed(), 7);
    CHECK_EQ(fl_loop_rearm(loop, id, 1), FL_TIMER_NOT_FOUND);
    end();
}

static void cancel_own(fl_loop *l, void *arg)
{
    CHECK_EQ(fl_loop_cancel(l, *(fl_timer_id *)arg), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_loop_rearm(l, *(fl_timer_id *)arg, 1), FL_TIMER_NOT_FOUND);
    write_down("a");
}

TEST(the_id_of_a_timer_ends_when_its_callback_starts)
{
    fl_timer_id id;
    begin();
    CHECK_EQ(fl_loop_timer(loop, 5, cancel_own, &id, &id), 0);
    run();
    CHECK_DIARY("a");
    end();
}

TEST(cancelling_what_is_not_there_finds_nothing)
{
    begin();
    fl_timer_id id = make_timer(5, "a");
    fl_timer_id far = make_timer(YEAR, "b"); /* takes a second record, which has no ID */
    const fl_timer_id wrong[] = {0,          1,          2048,           2049,           2050,
                                 id + 1,     far + 1,    far + 2,        id + (1 << 26), id ^ 1ull << 52,
                                 1ull << 53, UINT64_MAX, id | 1ull << 60};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        if (wrong[i] != far)
            CHECK_EQ(fl_loop_cancel(loop, wrong[i]), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_loop_cancel(loop, id), 0);
    CHECK_EQ(fl_loop_cancel(loop, far), 0);
    CHECK(!fl_loop_alive(loop));
    end();
}

TEST(a_timer_needs_a_callback)
{
    fl_timer_id id = 7;
    begin();
    CHECK_EQ(fl_loop_timer(loop, 1, NULL, NULL, &id), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_timer_at(loop, 1, NULL, NULL, &id), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_interval(loop, 1, 0, NULL, NULL, &id), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_loop_immediate(loop, NULL, NULL, &id), FL_INVALID_ARGUMENT);
    CHECK_EQ(id, 7);
    CHECK(!fl_loop_alive(loop));
    end();
}

/* ---- IDs. */

static int compare_ids(const void *a, const void *b)
{
    fl_timer_id x = *(const fl_timer_id *)a, y = *(const fl_timer_id *)b;
    return (x > y) - (x < y);
}

/* Growing and shrinking, so that memory is given back and comes again in between. */
TEST(ids_are_below_2_53_and_never_reused)
{
    enum { WAVES = 40, WAVE = 9000 };
    fl_timer_id *ids = malloc(WAVES * WAVE * sizeof(*ids));
    size_t count = 0;
    begin();
    for (unsigned wave = 0; wave < WAVES; wave++) {
        size_t first = count, size = wave % 3 ? WAVE : 10;
        for (size_t i = 0; i < size; i++)
            ids[count++] = make_timer(HOUR + i, "");
        for (size_t i = first; i < count; i++)
            CHECK_EQ(fl_loop_cancel(loop, ids[i]), 0);
        for (size_t i = 0; i < count; i += 97)
            CHECK_EQ(fl_loop_cancel(loop, ids[i]), FL_TIMER_NOT_FOUND);
    }
    qsort(ids, count, sizeof(*ids), compare_ids);
    CHECK(ids[0] > 0 && ids[count - 1] < 1ull << 53);
    for (size_t i = 1; i < count; i++)
        CHECK(ids[i - 1] != ids[i]);
    end();
    free(ids);
}

TEST(a_plain_timer_takes_less_than_80_bytes)
{
    enum { MANY = 100000 };
    begin();
    uint64_t before = stats().bytes;
    for (unsigned i = 0; i < MANY; i++)
        make_timer(i * MILLISECOND, "");
    CHECK(stats().bytes - before >= MANY * 32);
    CHECK(stats().bytes - before < MANY * 80);
    end();
}

/* ---- Time. */

TEST(delays_below_a_millisecond_are_honoured_to_the_nanosecond)
{
    static const uint64_t delay_ns[] = {0, 1, 2, 999, 1000, 65537, 999999, MILLISECOND, 1500000};
    begin();
    for (size_t i = 0; i < sizeof(delay_ns) / sizeof(*delay_ns); i++) {
        uint64_t from_ns = test_time.time_ns;
        make_timer(delay_ns[i], "x");
        run();
        CHECK_DIARY("x");
        CHECK_EQ(test_time.time_ns - from_ns, delay_ns[i]);
    }
    end();
}

TEST(there_is_no_limit_on_the_distance)
{
    begin();
    make_timer(100 * YEAR, "b");
    make_timer(20 * HOUR, "a");
    fl_timer_id never = make_timer(UINT64_MAX, "c");
    CHECK_EQ(fl_loop_timer_at(loop, UINT64_MAX, note, "d", NULL), 0);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("a");
    CHECK_EQ(elapsed(), 20 * HOUR);
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("b");
    CHECK_EQ(elapsed(), 100 * YEAR);
    CHECK_EQ(fl_loop_cancel(loop, never), 0);
    end();
}

/* ---- The end of time. */

static fl_timer_id make_timer_at(uint64_t deadline_ns, const char *s)
{
    fl_timer_id id;
    CHECK_EQ(fl_loop_timer_at(loop, deadline_ns, note, (void *)s, &id), 0);
    return id;
}

TEST(a_timer_for_the_last_moment_is_not_early)
{
    begin();
    make_timer_at(UINT64_MAX, "c");
    make_timer(UINT64_MAX, "d"); /* does not fit */
    make_timer_at(UINT64_MAX - 2, "a");
    make_timer_at(UINT64_MAX - 1, "b");
    make_timer(UINT64_MAX - START, "e");
    test_time.time_ns = UINT64_MAX - 2;
    turn();
    CHECK_DIARY("a");
    test_time.time_ns++;
    turn();
    turn();
    CHECK_DIARY("b");
    make_timer_at(UINT64_MAX, "f");
    test_time.time_ns++;
    turn();
    CHECK_DIARY("cdef");
    CHECK(!fl_loop_alive(loop));
    end();
}

TEST(time_passes_to_its_end)
{
    begin();
    make_timer_at(UINT64_MAX, "b");
    make_timer(DAY, "a");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("a");
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("b");
    CHECK_EQ(test_time.time_ns, UINT64_MAX);
    make_timer(5, "c"); /* there is nothing behind it */
    make_timer(0, "d");
    run();
    CHECK_DIARY("cd");
    end();
}

TEST(timers_for_the_last_moment_can_be_cancelled_and_rearmed)
{
    begin();
    fl_timer_id a = make_timer_at(UINT64_MAX, "a"), b = make_timer_at(UINT64_MAX, "b");
    fl_timer_id c = make_timer_at(UINT64_MAX, "c"), d = make_timer(DAY, "d"), e = make_timer(30 * DAY, "e");
    fl_timer_id f = make_timer_at(UINT64_MAX, "f");
    CHECK_EQ(fl_loop_cancel(loop, b), 0);
    CHECK_EQ(fl_loop_rearm(loop, a, UINT64_MAX), 0);
    CHECK_EQ(fl_loop_rearm(loop, c, 40 * DAY), 0); /* far, */
    CHECK_EQ(fl_loop_rearm(loop, f, 5), 0);        /* and near */
    CHECK_EQ(fl_loop_rearm(loop, d, UINT64_MAX), 0);
    CHECK_EQ(fl_loop_rearm(loop, e, UINT64_MAX - 1), 0);
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
    run();
    CHECK_DIARY("fcade");
    CHECK_EQ(test_time.time_ns, UINT64_MAX);
    end();
}

TEST(many_timers_for_the_last_moment_keep_their_order_and_the_budget)
{
    begin_with_budget(10);
    for (unsigned i = 0; i < 52; i++)
        make_timer_at(UINT64_MAX, letter(i));
    for (unsigned i = 0; i < 3000; i++)
        make_timer(HOUR, "");
    test_time.time_ns = UINT64_MAX;
    for (unsigned i = 0; i < 300; i++)
        turn();
    CHECK_DIARY("");
    turn();
    CHECK_DIARY("abcdefghij");
    run();
    CHECK_DIARY("klmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
    end();
}

TEST(a_deadline_that_has_passed_counts_as_now)
{
    begin();
    CHECK_EQ(fl_loop_timer_at(loop, 0, note, "a", NULL), 0);
    CHECK_EQ(fl_loop_timer_at(loop, START - MILLISECOND, note, "b", NULL), 0);
    CHECK_EQ(fl_loop_timer_at(loop, START, note, "c", NULL), 0);
    run();
    CHECK_DIARY("abc");
    CHECK_EQ(elapsed(), 0);
    CHECK_EQ(stats().lateness_ns.max_ns, 0);
    end();
}

TEST(after_a_pause_everything_comes_in_order)
{
    begin();
    make_timer(3 * DAY, "c");
    make_timer(10 * DAY, "e");
    make_timer(MILLISECOND, "a");
    make_timer(4 * DAY, "d");
    make_timer(HOUR, "b");
    make_timer(400 * DAY, "f");
    test_time.time_ns += 30 * DAY;
    turn();
    CHECK_DIARY("abcde");
    run();
    CHECK_DIARY("f");
    end();
}

static void work_for_long(fl_loop *l, void *arg)
{
    uint64_t before = fl_loop_now_ns(l);
    test_time.time_ns += MILLISECOND;
    CHECK_EQ(fl_loop_now_ns(l), before);
    make_timer_for(5 * MILLISECOND, note, "1");
    if (arg) {
        CHECK_EQ(fl_loop_update_now(l), before + MILLISECOND);
        CHECK_EQ(fl_loop_now_ns(l), before + MILLISECOND);
    }
    make_timer_for(5 * MILLISECOND, note, "2");
}

TEST(delays_count_from_the_time_of_the_turn_unless_it_is_refreshed)
{
    begin();
    make_timer_for(0, work_for_long, NULL);
    run();
    CHECK_EQ(elapsed(), 5 * MILLISECOND);
    make_timer_for(0, work_for_long, "refresh");
    run();
    CHECK_EQ(elapsed(), 11 * MILLISECOND);
    CHECK_DIARY("1212");
    end();
}

TEST(a_clock_at_zero_works)
{
    fl_virtual_clock_init(&test_time, 0);
    fl_loop_config config = {.clock = &test_time.clock};
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    make_timer(0, "a");
    CHECK_EQ(fl_loop_timer_at(loop, 0, note, "b", NULL), 0);
    make_timer(5, "c");
    run();
    CHECK_DIARY("abc");
    end();
}

/* ---- Slack. */

static fl_timer_id make_with_slack(uint64_t delay_ns, uint64_t slack_ns, const char *s)
{
    fl_timer_id id;
    fl_loop_timer_options options = {
        .deadline_ns = fl_loop_now_ns(loop) + delay_ns, .slack_ns = slack_ns, .fn = note, .arg = (void *)s};
    CHECK_EQ(fl_loop_timer_with(loop, &options, &id), 0);
    return id;
}

TEST(slack_lets_neighbours_share_a_wake_up)
{
    begin();
    for (unsigned i = 0; i < 100; i++)
        make_with_slack(10 * SECOND + i * 7 * MILLISECOND, SECOND, "x");
    uint64_t before = stats().turns;
    run();
    CHECK(stats().turns - before <= 2);
    CHECK_EQ(stats().called.timers, 100);
    end();
}

TEST(slack_never_makes_a_timer_early_or_later_than_it_says)
{
    uint64_t random = 1;
    begin();
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t delay_ns = random_distance(&random, 30 * DAY), slack_ns = random_distance(&random, DAY);
        uint64_t from_ns = test_time.time_ns;
        make_with_slack(delay_ns, slack_ns, "");
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
        CHECK_EQ(stats().called.timers, i + 1);
        CHECK(test_time.time_ns >= from_ns + delay_ns);
        CHECK(test_time.time_ns <= from_ns + delay_ns + slack_ns);
    }
    end();
}

TEST(a_rearmed_timer_keeps_its_slack)
{
    begin();
    fl_timer_id id = make_with_slack(10 * SECOND, 5 * SECOND, "a");
    CHECK_EQ(fl_loop_rearm(loop, id, 20 * SECOND), 0);
    CHECK_EQ(fl_loop_timer_at(loop, START + 20 * SECOND, note, "b", NULL), 0);
    run();
    CHECK_DIARY("ba");
    CHECK(elapsed() > 20 * SECOND && elapsed() <= 25 * SECOND);
    end();
}

/* ---- The machine's clock. */

static void not_early(fl_loop *l, void *arg)
{
    uint64_t now_ns = fl_clock_monotonic()->now_ns(fl_clock_monotonic());
    CHECK(now_ns >= *(uint64_t *)arg);
    CHECK(fl_loop_now_ns(l) >= *(uint64_t *)arg);
}

static void check_never_early(int fd)
{
    static uint64_t deadline_ns[50];
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    fl_timer_id guard;
    if (fd >= 0)
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, readable, ""), 0);
    for (unsigned i = 0; i < 50; i++) {
        deadline_ns[i] = fl_loop_now_ns(loop) + i * 37 * MICROSECOND;
        CHECK_EQ(fl_loop_timer_at(loop, deadline_ns[i], not_early, &deadline_ns[i], &guard), 0);
    }
    while (stats().called.timers < 50)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    end();
}

static void set_timer_slack(fl_loop *l, void *arg)
{
    (void)l, (void)arg;
    CHECK_EQ(prctl(PR_SET_TIMERSLACK, 70000ul), 0);
}

/* The loop sets it once per thread and leaves the program's setting alone from then on. */
TEST(a_callback_may_change_the_timer_slack_of_its_thread)
{
    int before = prctl(PR_GET_TIMERSLACK);
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    CHECK_EQ(fl_loop_timer(loop, MILLISECOND, set_timer_slack, NULL, NULL), 0);
    for (unsigned i = 1; i <= 50; i++)
        CHECK_EQ(fl_loop_timer(loop, i * 40 * MICROSECOND, note, "", NULL), 0);
    run();
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 70000);
    CHECK_EQ(prctl(PR_SET_TIMERSLACK, (unsigned long)before), 0);
    end();
}

TEST(never_early_on_the_machines_clock)
{
    check_never_early(-1);
}

TEST(never_early_on_the_machines_clock_with_descriptors)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    check_never_early(fd);
    close(fd);
}

/* ---- Clocks that count from another moment than the machine's. */

static uint64_t offset_ns;
static unsigned readings;

static uint64_t shifted_now_ns(fl_clock *clock)
{
    (void)clock;
    readings++;
    return fl_clock_monotonic()->now_ns(fl_clock_monotonic()) + offset_ns;
}

static void not_early_by_its_clock(fl_loop *l, void *arg)
{
    fl_clock clock = {shifted_now_ns, NULL};
    CHECK(clock.now_ns(&clock) >= *(uint64_t *)arg);
    CHECK(fl_loop_now_ns(l) >= *(uint64_t *)arg);
    write_down("t");
}

/* A wait that the kernel is told wrongly never ends, or ends at once and is repeated all the time. */
static void check_shifted(uint64_t offset, int fd)
{
    fl_clock clock = {shifted_now_ns, NULL};
    fl_loop_config config = {.clock = &clock};
    offset_ns = offset;
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    if (fd >= 0)
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, readable, NULL), 0);
    readings = 0;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t deadline_ns = fl_loop_update_now(loop) + 20 * MILLISECOND;
        CHECK_EQ(fl_loop_timer_at(loop, deadline_ns, not_early_by_its_clock, &deadline_ns, NULL), 0);
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    }
    CHECK(readings < 1000);
    CHECK_DIARY("ttt");
    end();
}

TEST(a_clock_may_count_from_another_moment_than_the_machines)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    uint64_t machine_ns = fl_clock_monotonic()->now_ns(fl_clock_monotonic());
    const uint64_t offsets[] = {
        0, 1, HOUR, UINT64_MAX / 2, UINT64_MAX - machine_ns - HOUR, -machine_ns, -(machine_ns / 2)};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
        check_shifted(offsets[i], -1);
        check_shifted(offsets[i], fd);
    }
    close(fd);
}
