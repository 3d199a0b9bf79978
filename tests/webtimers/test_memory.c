/* SPDX-License-Identifier: MIT */
/* Out of memory: every allocation fails once, and then all after it; and memory comes back. */

#include <stdlib.h>

#include <foliot/webtimers.h>

#include "test.h"
#include "wheel/allocator.h"
#include "wheel/wheel_test.h"

static fl_virtual_clock virtual_time;
static fl_loop *loop;
static fl_webtimers *timers;
static unsigned calls, periods, released;
static int32_t interval_id;

static char timeout[] = "timeout", interval[] = "interval";

static int invoke(void *host, const fl_webtimers_call *call)
{
    (void)host;
    CHECK(call->argument_count == 0 || call->arguments[0] == interval);
    if (call->handler == timeout) {
        calls++;
        return 0;
    }
    if (++periods == 20)
        fl_webtimers_clear(timers, interval_id);
    return 0;
}

static void release(void *host, void *value)
{
    (void)host, (void)value;
    released++;
}

static bool begin(void)
{
    fl_loop_config config = {.clock = &virtual_time.clock};
    fl_webtimers_host host = {.invoke = invoke, .release = release};
    fl_virtual_clock_init(&virtual_time, 1);
    calls = periods = released = 0;
    interval_id = 0;
    if (fl_loop_new(&config, &loop) < 0)
        return false;
    if (fl_webtimers_new(loop, &host, &timers) == 0)
        return true;
    fl_loop_free(loop);
    return false;
}

static unsigned worked(int r)
{
    CHECK(r == 0 || r == FL_NO_MEMORY);
    return r == 0;
}

/* What could be set must be called, an interval to its end. */
static void live(void)
{
    void *argument = interval;
    unsigned made = 0,
             made_interval = worked(fl_webtimers_set_interval(timers, 1, interval, &argument, 1, &interval_id));
    for (unsigned i = 0; i < 3000; i++)
        made += worked(fl_webtimers_set_timeout(timers, i % 40, timeout, NULL, 0, NULL));
    CHECK_EQ(fl_webtimers_check(timers, stdout), 0);
    CHECK_EQ(fl_loop_run(loop), 0);
    CHECK_EQ(calls, made);
    CHECK_EQ(periods, made_interval * 20);
    CHECK_EQ(released, made + made_interval * 2);
    CHECK_EQ(fl_webtimers_count(timers), 0);
}

static void fail_everywhere(bool fail_on)
{
    for (uint64_t n = 1;; n++) {
        memory_install();
        memory_fail(n, fail_on);
        if (begin()) {
            live();
            fl_webtimers_free(timers);
            fl_loop_free(loop);
        }
        bool failed = memory.failed > 0;
        memory_fail(0, false);
        memory_remove();
        if (!failed)
            return;
    }
}

TEST(every_allocation_may_fail_once)
{
    fail_everywhere(false);
}

TEST(every_allocation_may_be_the_last)
{
    fail_everywhere(true);
}

/* The memory of a million timers is given back as they are called; what stays is the loop's reserve and a chunk. */
TEST(memory_comes_back)
{
    memory_install();
    CHECK(begin());
    uint64_t count = SCALE(1000000, 50000);
    for (uint64_t i = 0; i < count; i++)
        CHECK_EQ(fl_webtimers_set_timeout(timers, (double)(i % 1000), timeout, NULL, 0, NULL), 0);
    printf("# %" PRIu64 " bytes a timer, the loop's share included\n", memory.bytes / count);
    CHECK(memory.bytes < 150 * count + (24u << 20)); /* of which the wheel reserves 16 MiB of addresses */
    CHECK_EQ(fl_loop_run(loop), 0);
    CHECK_EQ(calls, count);
    uint64_t after = memory.bytes;
    fl_webtimers_free(timers);
    CHECK(after - memory.bytes <= (2u << 16) + 4096);
    fl_loop_free(loop);
    memory_remove();
}

/* What was cleared is kept while timers are called that are still there, but not more than these use; and nothing is kept
 * when the last has gone. */
TEST(memory_of_cleared_timers_comes_back)
{
    enum { COUNT = 40000, LEFT = 100 };
    static int32_t ids[COUNT];
    memory_install();
    CHECK(begin());
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_EQ(fl_webtimers_set_timeout(timers, i < LEFT ? 1 : 1000, timeout, NULL, 0, &ids[i]), 0);
    uint64_t full = memory.blocks;
    for (unsigned i = LEFT; i < COUNT - 1; i++)
        CHECK(fl_webtimers_clear(timers, ids[i]));
    CHECK_EQ(fl_loop_run_once(loop, true), 0);
    CHECK_EQ(calls, LEFT);
    CHECK(memory.blocks + COUNT / 2047 - 4 <= full); /* one is in use, one is kept for it, one is spare */
    CHECK_EQ(fl_webtimers_check(timers, stdout), 0);
    CHECK(fl_webtimers_clear(timers, ids[COUNT - 1]));
    fl_webtimers_free(timers);
    fl_loop_free(loop);
    memory_remove();
}
