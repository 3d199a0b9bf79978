/* SPDX-License-Identifier: MIT */
/* The runtime without memory: a call that fails has changed nothing, and what was promised is kept. */

#include <stdlib.h>
#include <string.h>

#include <foliot/alloc.h>

#include "rt.h"

static atomic_llong allowed; /* allocations until one fails; below 0: none fails */
static atomic_bool all_fail;
static atomic_llong failed, alive;

static bool fails(void)
{
    if (atomic_load(&all_fail) || atomic_fetch_sub(&allowed, 1) == 0) {
        atomic_fetch_add(&failed, 1);
        return true;
    }
    return false;
}

static void *counted(void *block)
{
    atomic_fetch_add(&alive, block != NULL);
    return block;
}

static void *test_alloc(size_t size)
{
    return fails() ? NULL : counted(malloc(size));
}

static void *test_resize(void *block, size_t size)
{
    if (fails())
        return NULL;
    return block ? realloc(block, size) : counted(malloc(size));
}

static void test_release(void *block)
{
    atomic_fetch_sub(&alive, block != NULL);
    free(block);
}

static void *test_map(size_t size)
{
    void *block = fails() ? NULL : counted(aligned_alloc(size, size));
    if (block)
        memset(block, 0, size);
    return block;
}

static void test_unmap(void *block, size_t size)
{
    (void)size;
    test_release(block);
}

static void use_test_allocator(void)
{
    static const fl_allocator allocator = {test_alloc, test_resize, test_release, test_map, test_unmap};
    atomic_store(&allowed, -1);
    atomic_store(&all_fail, false);
    atomic_store(&failed, 0);
    CHECK_EQ(fl_set_allocator(&allocator), 0);
}

static void check_nothing_is_left(void)
{
    CHECK_EQ(atomic_load(&alive), 0);
    CHECK_EQ(fl_set_allocator(NULL), 0);
}

static atomic_uint calls;

static void count(void *arg)
{
    (void)arg;
    atomic_fetch_add(&calls, 1);
}

/* A small life of a runtime; every call may fail, and says so. */
static void live(void)
{
    fl_runtime *rt;
    fl_timer *timer;
    unsigned before = atomic_load(&calls);
    if (fl_runtime_new(&(fl_runtime_config){.workers = 2}, &rt) < 0)
        return;
    if (fl_timer_new(rt, count, NULL, &timer) == 0) {
        if (fl_timer_start_after(timer, HOUR) == 0)
            CHECK(fl_timer_cancel(timer));
        if (fl_timer_start_after(timer, MS) == 0)
            AWAIT(atomic_load(&calls) == before + 1);
        before = atomic_load(&calls);
        fl_timer_unref(timer);
    }
    if (fl_runtime_spawn(rt, count, NULL) == 0)
        AWAIT(atomic_load(&calls) == before + 1);
    fl_runtime_resize(rt, 4);
    CHECK(stats_of(rt).workers == 2 || stats_of(rt).workers == 4);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    fl_runtime_free(rt);
}

TEST(whichever_allocation_fails_nothing_is_lost_or_leaked)
{
    unsigned n = 0;
    do {
        use_test_allocator();
        atomic_store(&allowed, n++);
        live();
        check_nothing_is_left();
    } while (atomic_load(&failed) > 0);
    CHECK(n > 10);
}

TEST(a_timer_that_arrives_without_memory_fires_when_there_is_some)
{
    enum { TIMERS = 3000, MOST = 200000 };
    static fl_timer *timers[TIMERS];
    use_test_allocator();
    atomic_store(&calls, 0);
    fl_runtime *rt = make_runtime(1);
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK_EQ(fl_timer_new(rt, count, NULL, &timers[i]), 0);
        CHECK_EQ(fl_timer_start_after(timers[i], i % 100 * MS / 10), 0);
    }
    static fl_timer *others[MOST];
    unsigned made = 0, started = 0;
    while (made < MOST && fl_timer_new(rt, count, NULL, &others[made]) == 0)
        made++;
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    atomic_store(&all_fail, true);
    AWAIT(atomic_load(&failed) > 0 || atomic_load(&calls) == TIMERS);
    for (int i = 0; i < 20; i++)
        pause_briefly();
    int r = 0;
    while (started < MOST && (r = fl_timer_start(others[started], now_ns() + HOUR)) == 0)
        started++; /* there may be memory in reserve */
    CHECK_EQ(r, FL_NO_MEMORY);
    CHECK_EQ(fl_runtime_spawn(rt, count, NULL), FL_NO_MEMORY);
    atomic_store(&all_fail, false);
    AWAIT(atomic_load(&calls) == TIMERS);
    for (unsigned i = 0; i < made; i++) {
        CHECK_EQ(fl_timer_cancel(others[i]), i < started);
        fl_timer_unref(others[i]);
    }
    for (unsigned i = 0; i < TIMERS; i++)
        fl_timer_unref(timers[i]);
    fl_runtime_free(rt);
    check_nothing_is_left();
}

/* Leaving needs no memory at all. */
TEST(a_worker_can_leave_without_memory)
{
    enum { TIMERS = 3000 };
    static fl_timer *timers[TIMERS];
    use_test_allocator();
    fl_runtime *rt = make_runtime(2);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK_EQ(fl_timer_new(rt, count, NULL, &timers[i]), 0);
        CHECK_EQ(fl_timer_start_after(timers[i], HOUR), 0);
    }
    AWAIT(stats_of(rt).entries == TIMERS);
    atomic_store(&all_fail, true);
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    CHECK_EQ(fl_runtime_resize(rt, 1), FL_NO_MEMORY);
    atomic_store(&all_fail, false);
    CHECK_EQ(stats_of(rt).migrated, TIMERS);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    AWAIT(stats_of(rt).entries == TIMERS);
    for (unsigned i = 0; i < TIMERS; i++) {
        CHECK(fl_timer_cancel(timers[i]));
        fl_timer_unref(timers[i]);
    }
    fl_runtime_free(rt);
    check_nothing_is_left();
}
