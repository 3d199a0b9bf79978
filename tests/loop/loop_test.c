/* SPDX-License-Identifier: MIT */
/* See loop_test.h. */

#include "loop/loop_test.h"

fl_virtual_clock test_time;
fl_loop *loop;
char diary[1024];

void begin_with_budget(uint32_t budget)
{
    fl_virtual_clock_init(&test_time, START);
    fl_loop_config config = {.clock = &test_time.clock, .budget = budget};
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    diary[0] = '\0';
}

void begin(void)
{
    begin_with_budget(0);
}

void end(void)
{
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
    diary[0] = '\0';
    fl_loop_free(loop);
    loop = NULL;
}

void run(void)
{
    CHECK_EQ(fl_loop_run(loop), 0);
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
}

void turn(void)
{
    CHECK_EQ(fl_loop_run_once(loop, false), 0);
    CHECK_EQ(fl_loop_check(loop, stdout), 0);
}

void write_down(const char *s)
{
    size_t length = strlen(diary);
    CHECK(length + strlen(s) < sizeof(diary));
    snprintf(diary + length, sizeof(diary) - length, "%s", s);
}

void note(fl_loop *called_loop, void *arg)
{
    CHECK(called_loop == loop);
    write_down(arg);
}

fl_timer_id make_timer_for(uint64_t delay_ns, fl_loop_fn fn, void *arg)
{
    fl_timer_id id;
    CHECK_EQ(fl_loop_timer(loop, delay_ns, fn, arg, &id), 0);
    return id;
}

fl_timer_id make_timer(uint64_t delay_ns, const char *s)
{
    return make_timer_for(delay_ns, note, (void *)s);
}

fl_loop_stats stats(void)
{
    fl_loop_stats result;
    fl_loop_get_stats(loop, &result);
    return result;
}

char *letter(unsigned n)
{
    static char letters[26][2];
    letters[n % 26][0] = (char)('a' + n % 26);
    return letters[n % 26];
}
