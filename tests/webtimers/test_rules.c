/* SPDX-License-Identifier: MIT */
/* Every rule of the browser's timers, by name: with a host that is no engine, on virtual time. */

#include <math.h>
#include <string.h>

#include <foliot/webtimers.h>

#include "test.h"
#include "webtimers/webtimers.h"

#define MS UINT64_C(1000000)

/* A handler, and what it does. */
struct act {
    const char *name;
    void (*run)(struct act *self);
    int throws;
    double delay;      /* for acts that set others, */
    struct act *other; /* namely this one */
    int32_t id;        /* of the last timer that was set for it */
    unsigned calls;
    unsigned released;
};

static fl_virtual_clock virtual_time;
static fl_loop *loop;
static fl_webtimers *timers;
static char diary[4096];
static struct act *microtasks[64];
static unsigned microtask_count;
static uint64_t moments_ms[64];

static uint64_t now_ms(void)
{
    return (virtual_time.time_ns - 1) / MS;
}

static void write_down(const char *text)
{
    strncat(diary, text, sizeof(diary) - strlen(diary) - 1);
}

static int invoke(void *host, const fl_webtimers_call *call)
{
    struct act *act = call->handler;
    (void)host;
    if (act->calls < 64)
        moments_ms[act->calls] = now_ms();
    act->calls++;
    write_down(act->name);
    for (size_t i = 0; i < call->argument_count; i++)
        write_down(call->arguments[i]);
    if (act->run)
        act->run(act);
    return act->throws;
}

static void checkpoint(void *host)
{
    (void)host;
    for (unsigned i = 0; i < microtask_count; i++) {
        write_down(microtasks[i]->name);
        if (microtasks[i]->run)
            microtasks[i]->run(microtasks[i]);
    }
    microtask_count = 0;
}

static void report(void *host, int thrown)
{
    char text[16];
    (void)host;
    snprintf(text, sizeof(text), "!%d", thrown);
    write_down(text);
}

static void release(void *host, void *value)
{
    (void)host;
    ((struct act *)value)->released++;
}

static const fl_webtimers_host plain_host = {.invoke = invoke, .report = report, .checkpoint = checkpoint};

static void begin_with(const fl_webtimers_host *host)
{
    fl_loop_config config = {.clock = &virtual_time.clock};
    fl_virtual_clock_init(&virtual_time, 1);
    diary[0] = '\0';
    microtask_count = 0;
    memset(moments_ms, 0, sizeof(moments_ms));
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    CHECK_EQ(fl_webtimers_new(loop, host, &timers), 0);
}

static void begin(void)
{
    begin_with(&plain_host);
}

static void run(void)
{
    CHECK_EQ(fl_loop_run(loop), 0);
    CHECK_EQ(fl_webtimers_check(timers, stdout), 0);
}

static void end(void)
{
    fl_webtimers_free(timers);
    fl_loop_free(loop);
}

static int32_t set_timeout(double delay, struct act *act)
{
    CHECK_EQ(fl_webtimers_set_timeout(timers, delay, act, NULL, 0, &act->id), 0);
    return act->id;
}

static int32_t set_interval(double delay, struct act *act)
{
    CHECK_EQ(fl_webtimers_set_interval(timers, delay, act, NULL, 0, &act->id), 0);
    return act->id;
}

static void check_diary(const char *expected, int line)
{
    if (strcmp(diary, expected) != 0)
        test_fail(__FILE__, line, "the diary says \"%s\", not \"%s\"", diary, expected);
    diary[0] = '\0';
}
#define CHECK_DIARY(expected) check_diary(expected, __LINE__)

/* ---- What acts do. */

static void set_other(struct act *self)
{
    set_timeout(self->delay, self->other);
}

static void clear_other(struct act *self)
{
    fl_webtimers_clear(timers, self->other->id);
}

static void clear_itself(struct act *self)
{
    fl_webtimers_clear(timers, self->id);
}

/* Sets itself anew until it was called ten times. */
static void chain(struct act *self)
{
    if (self->calls < 10)
        set_timeout(self->delay, self);
}

static void clear_after_ten(struct act *self)
{
    if (self->calls == 10)
        fl_webtimers_clear(timers, self->id);
}

static void queue_other(struct act *self)
{
    microtasks[microtask_count++] = self->other;
}

static void work_10_ms(struct act *self)
{
    (void)self;
    virtual_time.time_ns += 10 * MS;
}

/* ---- IDs. */

TEST(ids_are_positive_and_distinct)
{
    begin();
    struct act act = {.name = "a"};
    int32_t ids[1000];
    for (unsigned i = 0; i < 1000; i++) {
        ids[i] = i % 2 ? set_timeout(i, &act) : set_interval(1000, &act);
        CHECK(ids[i] > 0);
        for (unsigned j = 0; j < i; j++)
            CHECK(ids[i] != ids[j]);
    }
    end();
}

TEST(either_clear_ends_either_kind)
{
    begin();
    struct act timeout = {.name = "t"}, interval = {.name = "i"};
    set_timeout(1, &timeout);
    set_interval(1, &interval);
    CHECK(fl_webtimers_clear(timers, timeout.id));
    CHECK(fl_webtimers_clear(timers, interval.id));
    CHECK(!fl_webtimers_clear(timers, timeout.id));
    CHECK_EQ(fl_webtimers_count(timers), 0);
    run();
    CHECK_DIARY("");
    end();
}

TEST(clearing_what_is_not_there_does_nothing)
{
    begin();
    struct act act = {.name = "a"};
    set_timeout(1, &act);
    static const int32_t nonsense[] = {0, -1, INT32_MIN, INT32_MAX, 2, 65, 129};
    for (unsigned i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++)
        CHECK(!fl_webtimers_clear(timers, nonsense[i]));
    run();
    CHECK(!fl_webtimers_clear(timers, act.id));
    CHECK_DIARY("a");
    end();
}

TEST(a_stale_id_never_names_another_timer)
{
    begin();
    struct act first = {.name = "f"}, act = {.name = "a"};
    int32_t stale = set_timeout(1, &first);
    run();
    for (unsigned i = 0; i < 300000; i++) {
        CHECK(set_timeout(1, &act) != stale);
        CHECK(fl_webtimers_clear(timers, act.id));
    }
    end();
}

/* Old timers stand at the places that come round again: their IDs are passed over, and all are found. */
TEST(ids_pass_over_those_of_old_timers)
{
    begin();
    static struct act old[300], act = {.name = "a"};
    for (unsigned i = 0; i < 300; i++)
        set_interval(1000, &old[i]);
    for (unsigned i = 0; i < 10000; i++) {
        int32_t id = set_timeout(1, &act);
        for (unsigned j = 0; j < 300; j++)
            CHECK(old[j].id != id);
        CHECK(fl_webtimers_clear(timers, id));
    }
    CHECK_EQ(fl_webtimers_check(timers, stdout), 0);
    for (unsigned i = 0; i < 300; i++)
        CHECK(fl_webtimers_clear(timers, old[i].id));
    CHECK_EQ(fl_webtimers_count(timers), 0);
    end();
}

TEST(ids_begin_again_at_1_after_the_last)
{
    struct timer_table table;
    int owner;
    fl__timer_table_init(&table, &owner);
    struct timer *first = fl__timer_table_take(&table), *all[10];
    CHECK_EQ(first->id, 1);
    table.newest = INT32_MAX - 3;
    static const int32_t expected[10] = {INT32_MAX - 2, INT32_MAX - 1, INT32_MAX, 2, 3, 4, 5, 6, 7, 8}; /* 1 is taken */
    for (unsigned i = 0; i < 10; i++) {
        all[i] = fl__timer_table_take(&table);
        CHECK_EQ(all[i]->id, expected[i]);
        CHECK(timer_table_find(&table, expected[i]) == all[i]);
    }
    for (unsigned i = 0; i < 10; i++)
        fl__timer_table_put(&table, all[i]);
    fl__timer_table_put(&table, first);
    fl__timer_table_destroy(&table);
}

/* ---- Delays. */

TEST(numbers_are_converted_as_web_idl_converts_to_long)
{
    static const struct {
        double number;
        int32_t expected;
    } cases[] = {
        {0, 0},
        {-0.0, 0},
        {1.9, 1},
        {-1.9, -1},
        {NAN, 0},
        {INFINITY, 0},
        {-INFINITY, 0},
        {2147483647, INT32_MAX},
        {2147483648, INT32_MIN},
        {-2147483648, INT32_MIN},
        {-2147483649, INT32_MAX},
        {4294967295, -1},
        {4294967296, 0},
        {4294967297, 1},
        {-4294967297, -1},
        {4294967296.0 * 4294967296.0 + 8192, 8192},
        {0x1.fffffffffffffp84, 0},
        {0x1.0000000000001p83, INT32_MIN},
        {0x1.0000000000001p52, 1},
        {0x1.0000000000001p53, 2},
        {1e308, 0},
        {5e-324, 0},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_EQ(fl_webtimers_long(cases[i].number), cases[i].expected);
    CHECK_EQ(fl_webtimers_delay_ms(-5), 0);
    CHECK_EQ(fl_webtimers_delay_ms(4294967296.0 + 7), 7);
    CHECK_EQ(fl_webtimers_delay_ms(2147483648.0), 0);
    CHECK_EQ(fl_webtimers_delay_ms(2147483647.0), 2147483647);
}

TEST(a_handler_is_called_after_its_delay_and_not_before)
{
    begin();
    struct act act = {.name = "a"};
    virtual_time.time_ns += 1; /* off the round moments */
    set_timeout(25, &act);
    run();
    CHECK_EQ(virtual_time.time_ns, 2 + 25 * MS);
    end();
}

TEST(delays_count_from_the_call_not_from_the_turn)
{
    begin();
    struct act other = {.name = "o"}, work = {.name = "w", .run = work_10_ms};
    struct act set = {.name = "s", .run = set_other, .delay = 5, .other = &other};
    set_timeout(0, &work);
    set_timeout(0, &set); /* in the same turn, when 10 ms have passed in it */
    run();
    CHECK_DIARY("wso");
    CHECK_EQ(now_ms(), 15);
    end();
}

TEST(the_longest_delay_takes_24_days)
{
    begin();
    struct act act = {.name = "a"};
    set_timeout(2147483647, &act);
    run();
    CHECK_EQ(now_ms(), 2147483647);
    end();
}

/* ---- Order. */

TEST(equal_delays_go_by_creation)
{
    begin();
    struct act act[4] = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}};
    set_timeout(1, &act[0]);
    set_interval(1, &act[1]);
    set_timeout(1, &act[2]);
    set_timeout(0, &act[3]);
    act[2].run = clear_other;
    act[2].other = &act[1];
    run();
    CHECK_DIARY("dabc");
    end();
}

TEST(a_longer_delay_set_later_comes_later)
{
    begin();
    struct act a = {.name = "a"}, b = {.name = "b"};
    set_timeout(5, &a);
    virtual_time.time_ns += 1;
    set_timeout(5, &b);
    virtual_time.time_ns += 100 * MS; /* both are long due when the loop looks */
    run();
    CHECK_DIARY("ab");
    end();
}

TEST(cleared_siblings_of_the_same_turn_do_not_run)
{
    begin();
    struct act b = {.name = "b"}, c = {.name = "c"};
    struct act a = {.name = "a", .run = clear_other, .other = &b};
    set_timeout(1, &a);
    set_timeout(1, &b);
    set_timeout(1, &c);
    run();
    CHECK_DIARY("ac");
    end();
}

TEST(a_microtask_clears_a_sibling_of_the_same_turn)
{
    begin();
    struct act b = {.name = "b"};
    struct act micro = {.name = "m", .run = clear_other, .other = &b};
    struct act a = {.name = "a", .run = queue_other, .other = &micro};
    set_timeout(1, &a);
    set_timeout(1, &b);
    run();
    CHECK_DIARY("am");
    end();
}

TEST(microtasks_run_between_two_timers_of_a_turn)
{
    begin();
    struct act micro = {.name = "m"};
    struct act a = {.name = "a", .run = queue_other, .other = &micro}, b = {.name = "b"};
    set_timeout(1, &a);
    set_timeout(1, &b);
    run();
    CHECK_DIARY("amb");
    end();
}

/* ---- Nesting. */

TEST(the_seventh_timer_of_a_chain_is_the_first_clamped)
{
    begin();
    struct act act = {.name = "", .run = chain, .delay = 1};
    set_timeout(1, &act);
    run();
    static const uint64_t expected[10] = {1, 2, 3, 4, 5, 6, 10, 14, 18, 22};
    for (unsigned i = 0; i < 10; i++)
        CHECK_EQ(moments_ms[i], expected[i]);
    end();
}

TEST(a_clamp_makes_nothing_shorter)
{
    begin();
    struct act act = {.name = "", .run = chain, .delay = 9};
    set_timeout(9, &act);
    run();
    CHECK_EQ(moments_ms[9], 90);
    end();
}

TEST(an_interval_is_clamped_from_its_seventh_call_on)
{
    begin();
    struct act act = {.name = "", .run = clear_after_ten};
    set_interval(0, &act);
    run();
    static const uint64_t expected[10] = {0, 0, 0, 0, 0, 0, 4, 8, 12, 16};
    for (unsigned i = 0; i < 10; i++)
        CHECK_EQ(moments_ms[i], expected[i]);
    end();
}

TEST(an_interval_inherits_the_level_of_the_task_it_is_set_in)
{
    begin();
    struct act act = {.name = "", .run = chain, .delay = 0}, other = {.name = ""};
    struct act set = {.name = "", .run = set_other, .delay = 0, .other = &other};
    set_timeout(0, &act);
    run(); /* the chain is at level 10, and over */
    set_timeout(0, &set);
    uint64_t before_ms = now_ms();
    run(); /* a new task begins at 0 */
    CHECK_EQ(other.calls, 1);
    CHECK_EQ(now_ms(), before_ms);
    end();
}

/* The chain goes through a microtask each time: it is never clamped. */
static struct act relay = {.name = "", .run = queue_other}, setter = {.name = "", .run = chain};

static void relay_from_microtask(struct act *self)
{
    (void)self;
    if (relay.calls < 10)
        set_timeout(1, &relay);
}

TEST(a_timer_set_from_a_microtask_starts_at_level_0)
{
    begin();
    setter = (struct act){.name = "", .run = relay_from_microtask};
    relay = (struct act){.name = "", .run = queue_other, .other = &setter};
    set_timeout(1, &relay);
    run();
    CHECK_EQ(moments_ms[9], 10);
    end();
}

/* The engine runs its microtasks inside of invoke(), and this is one. */
static void chain_in_microtask(struct act *self)
{
    fl_webtimers_options options = {.delay = 1, .microtask = true, .handler = self};
    int32_t id;
    if (self->calls == 10)
        return;
    CHECK_EQ(fl_webtimers_reserve(timers, &id), 0);
    CHECK_EQ(fl_webtimers_start(timers, id, &options), 0);
}

TEST(an_engine_that_drains_by_itself_says_what_a_microtask_has_set)
{
    fl_webtimers_host host = {.invoke = invoke};
    begin_with(&host);
    struct act act = {.name = "", .run = chain_in_microtask};
    set_timeout(1, &act);
    run();
    CHECK_EQ(moments_ms[9], 10);
    end();
}

/* ---- Reserved IDs. */

TEST(a_reserved_id_is_no_timer_until_it_is_started)
{
    begin();
    struct act act = {.name = "a"}, other = {.name = "b"};
    int32_t id;
    CHECK_EQ(fl_webtimers_reserve(timers, &id), 0);
    CHECK_EQ(fl_webtimers_count(timers), 0);
    CHECK_EQ(fl_webtimers_check(timers, stdout), 0);
    CHECK(!fl_loop_alive(loop));
    CHECK(set_timeout(0, &other) != id);
    fl_webtimers_options options = {.delay = 5, .handler = &act};
    CHECK_EQ(fl_webtimers_start(timers, id, &options), 0);
    CHECK_EQ(fl_webtimers_start(timers, id, &options), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_webtimers_start(timers, id + 1000, &options), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_webtimers_count(timers), 2);
    run();
    CHECK_DIARY("ba");
    CHECK_EQ(now_ms(), 5);
    end();
}

TEST(a_reserved_id_can_be_given_back)
{
    fl_webtimers_host host = {.invoke = invoke, .release = release};
    begin_with(&host);
    int32_t id, left;
    CHECK_EQ(fl_webtimers_reserve(timers, &id), 0);
    CHECK_EQ(fl_webtimers_reserve(timers, &left), 0);
    CHECK(fl_webtimers_clear(timers, id));
    CHECK(!fl_webtimers_clear(timers, id));
    fl_webtimers_options options = {0};
    CHECK_EQ(fl_webtimers_start(timers, id, &options), FL_TIMER_NOT_FOUND);
    run();
    end();
}

/* What was set in a long callback is started at its end, and counts from when it was set. */
static void work_and_start(struct act *self)
{
    int32_t id[2];
    fl_webtimers_options first = {.delay = 5, .handler = self->other, .called_ns = virtual_time.time_ns};
    fl_webtimers_options second = {.delay = 1, .handler = self->other + 1, .called_ns = virtual_time.time_ns + MS};
    CHECK_EQ(fl_webtimers_reserve(timers, &id[0]), 0);
    CHECK_EQ(fl_webtimers_reserve(timers, &id[1]), 0);
    work_10_ms(self);
    CHECK_EQ(fl_webtimers_start(timers, id[0], &first), 0);
    CHECK_EQ(fl_webtimers_start(timers, id[1], &second), 0);
}

TEST(what_is_started_later_counts_from_when_it_was_set)
{
    begin();
    struct act others[2] = {{.name = "a"}, {.name = "b"}};
    struct act work = {.name = "w", .run = work_and_start, .other = others};
    set_timeout(0, &work);
    run();
    CHECK_DIARY("wba"); /* by their deadlines, though both have passed */
    CHECK_EQ(now_ms(), 10);
    end();
}

TEST(living_ids_have_places_of_their_own)
{
    begin();
    static struct act act = {.name = ""};
    static bool taken[1 << 16];
    int32_t ids[10000];
    unsigned living = 0;
    for (unsigned i = 0; i < 10000; i++) {
        if (i % 2)
            CHECK_EQ(fl_webtimers_reserve(timers, &ids[living++]), 0);
        else
            ids[living++] = set_timeout(1000, &act);
        if (i % 3 == 0)
            CHECK(fl_webtimers_clear(timers, ids[--living]));
    }
    uint32_t places = fl_webtimers_places(timers);
    CHECK(places <= 1 << 16 && (places & (places - 1)) == 0);
    for (unsigned i = 0; i < living; i++) {
        CHECK(!taken[(uint32_t)ids[i] % places]);
        taken[(uint32_t)ids[i] % places] = true;
    }
    for (unsigned i = 0; i < living; i++)
        CHECK(fl_webtimers_clear(timers, ids[i]));
    CHECK(fl_webtimers_places(timers) < places);
    end();
}

/* ---- Intervals. */

TEST(an_interval_keeps_its_id)
{
    begin();
    struct act act = {.name = "i", .run = clear_after_ten};
    int32_t id = set_interval(7, &act);
    run();
    CHECK_EQ(act.calls, 10);
    CHECK_EQ(act.id, id);
    CHECK_EQ(now_ms(), 70);
    end();
}

TEST(an_interval_is_armed_after_its_callback_and_microtasks)
{
    begin();
    struct act micro = {.name = "m", .run = work_10_ms};
    struct act act = {.name = "i", .run = queue_other, .other = &micro};
    set_interval(5, &act);
    for (unsigned turns = 0; turns < 3; turns++)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_DIARY("imimim");
    CHECK_EQ(moments_ms[0], 5);
    CHECK_EQ(moments_ms[1], 20);
    CHECK_EQ(moments_ms[2], 35);
    end();
}

TEST(an_interval_cleared_by_its_own_handler_stays_cleared)
{
    begin();
    struct act act = {.name = "i", .run = clear_itself};
    set_interval(1, &act);
    run();
    CHECK_DIARY("i");
    CHECK_EQ(fl_webtimers_count(timers), 0);
    end();
}

TEST(an_interval_cleared_by_a_microtask_after_it_stays_cleared)
{
    begin();
    struct act act = {.name = "i", .run = queue_other};
    struct act micro = {.name = "m", .run = clear_other, .other = &act};
    act.other = &micro;
    set_interval(1, &act);
    run();
    CHECK_DIARY("im");
    end();
}

/* The new timer may well get the memory of the interval. */
static void clear_itself_and_set_other(struct act *self)
{
    clear_itself(self);
    set_other(self);
}

TEST(a_handler_may_replace_its_own_interval)
{
    begin();
    struct act other = {.name = "o"};
    struct act act = {.name = "i", .run = clear_itself_and_set_other, .delay = 3, .other = &other};
    set_interval(1, &act);
    run();
    CHECK_DIARY("io");
    CHECK_EQ(now_ms(), 4);
    end();
}

/* ---- Arguments, errors, ownership. */

TEST(extra_arguments_are_passed_every_time)
{
    begin();
    struct act act = {.name = "i", .run = clear_after_ten};
    char *arguments[] = {"x", "y"};
    CHECK_EQ(fl_webtimers_set_interval(timers, 1, &act, (void *const *)arguments, 2, &act.id), 0);
    arguments[0] = arguments[1] = "z"; /* they were copied */
    run();
    CHECK_DIARY("ixyixyixyixyixyixyixyixyixyixy");
    struct act once = {.name = "t"};
    CHECK_EQ(fl_webtimers_set_timeout(timers, 1, &once, (void *const *)arguments, 1, NULL), 0);
    run();
    CHECK_DIARY("tz");
    end();
}

TEST(what_a_handler_throws_is_reported_after_microtasks_and_all_goes_on)
{
    begin();
    struct act micro = {.name = "m"}, after = {.name = "a"};
    struct act act = {.name = "t", .throws = 7, .run = queue_other, .other = &micro};
    struct act interval = {.name = "i", .throws = 8, .run = clear_after_ten};
    set_timeout(1, &act);
    set_timeout(1, &after);
    set_interval(1, &interval);
    run();
    CHECK_DIARY("tm!7ai!8i!8i!8i!8i!8i!8i!8i!8i!8i!8");
    end();
}

TEST(every_value_is_released_once)
{
    fl_webtimers_host host = {.invoke = invoke, .release = release};
    begin_with(&host);
    struct act fired = {.name = ""}, cleared = {.name = ""}, own = {.name = "", .run = clear_itself},
               left = {.name = ""};
    struct act value = {.name = ""};
    void *values[2] = {&value, &value};
    set_timeout(1, &fired);
    set_timeout(1, &cleared);
    CHECK_EQ(fl_webtimers_set_interval(timers, 1, &own, (void *const *)values, 0, &own.id), 0);
    fl_webtimers_clear(timers, cleared.id);
    CHECK_EQ(cleared.released, 1);
    run();
    CHECK_EQ(fired.released, 1);
    CHECK_EQ(own.released, 1);
    set_interval(1, &left);
    end();
    CHECK_EQ(left.released, 1);
    CHECK_EQ(value.released, 0);
}

static void free_all(struct act *self)
{
    (void)self;
    fl_webtimers_free(timers);
    CHECK_EQ(fl_webtimers_set_timeout(timers, 0, self, NULL, 0, NULL), FL_BUSY);
    CHECK_EQ(fl_webtimers_count(timers), 0);
}

TEST(a_handler_may_free_all_timers)
{
    for (unsigned repeats = 0; repeats < 2; repeats++) {
        begin();
        struct act act = {.name = "f", .run = free_all}, other = {.name = "o"};
        (repeats ? set_interval : set_timeout)(1, &act);
        set_timeout(1, &other);
        set_interval(1, &other);
        CHECK_EQ(fl_loop_run(loop), 0);
        CHECK_DIARY("f");
        fl_loop_free(loop);
    }
}

/* A release() that frees the set, and one that clears another timer. */
static struct act *to_clear;

static void release_and_clear(void *host, void *value)
{
    release(host, value);
    if (to_clear) {
        int32_t id = to_clear->id;
        to_clear = NULL;
        fl_webtimers_clear(timers, id);
    }
}

TEST(release_may_clear_other_timers)
{
    fl_webtimers_host host = {.invoke = invoke, .release = release_and_clear};
    begin_with(&host);
    struct act a = {.name = "a"}, b = {.name = "b"};
    set_timeout(1, &a);
    set_timeout(1, &b);
    to_clear = &b;
    end();
    CHECK_EQ(a.released, 1);
    CHECK_EQ(b.released, 1);
}

static void release_and_free(void *host, void *value)
{
    release(host, value);
    fl_webtimers_free(timers);
    timers = NULL;
}

TEST(release_may_free_the_set)
{
    fl_webtimers_host host = {.invoke = invoke, .release = release_and_free};
    begin_with(&host);
    struct act a = {.name = "a"};
    void *arguments[2] = {&a, &a};
    CHECK_EQ(fl_webtimers_set_timeout(timers, 1, &a, arguments, 2, &a.id), 0);
    CHECK(fl_webtimers_clear(timers, a.id));
    CHECK_EQ(a.released, 3);
    fl_loop_free(loop);
}

TEST(a_host_must_be_able_to_call_handlers)
{
    fl_webtimers_host host = {0};
    fl_loop_config config = {.clock = &virtual_time.clock};
    fl_virtual_clock_init(&virtual_time, 1);
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    CHECK_EQ(fl_webtimers_new(loop, &host, &timers), FL_INVALID_ARGUMENT);
    fl_loop_free(loop);
    fl_webtimers_free(NULL);
}
