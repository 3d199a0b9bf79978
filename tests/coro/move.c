/* SPDX-License-Identifier: MIT */
/* Coroutines: workers come and go, and no coroutine is lost. */

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <foliot/coro.h>

#include "coro/coro.h"
#include "test.h"

enum { SLEEPERS = 200, PARKED = 50, READERS = 20, ROUNDS = 60 };

static fl_runtime *rt;
static atomic_bool over;
static atomic_long steps;

static void spawn(const fl_coro_options *options, fl_task_fn fn, void *arg, fl_coro **ret)
{
    CHECK_EQ(fl_coro_spawn(rt, options, fn, arg, ret), 0);
}

/* Something on the stack that must come back. */
static void sleeper(void *arg)
{
    uintptr_t id = (uintptr_t)arg;
    volatile uintptr_t marks[8];
    while (!atomic_load(&over)) {
        for (uintptr_t i = 0; i < 8; i++)
            marks[i] = id * i;
        uint64_t deadline_ns = fl_coro_now_ns() + 100000 + id * 1000;
        CHECK_EQ(fl_sleep_until_ns(deadline_ns), 0);
        CHECK(fl_coro_now_ns() >= deadline_ns);
        for (uintptr_t i = 0; i < 8; i++)
            CHECK(marks[i] == id * i);
        atomic_fetch_add(&steps, 1);
    }
}

static void parker(void *arg)
{
    (void)arg;
    while (!atomic_load(&over)) {
        fl_coro_park();
        atomic_fetch_add(&steps, 1);
    }
}

static void reader(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    while (!atomic_load(&over)) {
        int r = fl_coro_wait_fd(fd, FL_READ, 50 * 1000000);
        CHECK(r >= 0);
        if (r & FL_READ && read(fd, &byte, 1) == 1)
            atomic_fetch_add(&steps, 1);
    }
}

struct crowd {
    fl_coro *sleepers[SLEEPERS], *parked[PARKED], *readers[READERS];
    int pipes[READERS][2];
};

static void gather(struct crowd *crowd)
{
    fl_coro_options own = {.stack_size = 16 << 10};
    for (uintptr_t i = 0; i < SLEEPERS; i++)
        spawn(i % 7 ? NULL : &own, sleeper, (void *)i, &crowd->sleepers[i]);
    for (int i = 0; i < PARKED; i++)
        spawn(NULL, parker, NULL, &crowd->parked[i]);
    for (int i = 0; i < READERS; i++) {
        CHECK_EQ(pipe(crowd->pipes[i]), 0);
        spawn(NULL, reader, &crowd->pipes[i][0], &crowd->readers[i]);
    }
}

static void stir(struct crowd *crowd, int round)
{
    for (int i = 0; i < PARKED; i++)
        if ((i + round) % 3 == 0)
            fl_coro_unpark(crowd->parked[i]);
        else
            CHECK_EQ(fl_coro_wake_after(crowd->parked[i], (uint64_t)i * 1000, NULL), 0);
    for (int i = 0; i < READERS; i++)
        if ((i + round) % 4 == 0)
            CHECK_EQ(write(crowd->pipes[i][1], "x", 1), 1);
}

static void join_all(fl_coro **coros, int count)
{
    for (int i = 0; i < count; i++) {
        fl_coro_unpark(coros[i]);
        CHECK_EQ(fl_coro_join(coros[i]), 0);
        fl_coro_unref(coros[i]);
    }
}

static void disperse(struct crowd *crowd)
{
    atomic_store(&over, true);
    join_all(crowd->sleepers, SLEEPERS);
    join_all(crowd->parked, PARKED);
    join_all(crowd->readers, READERS);
    for (int i = 0; i < READERS; i++) {
        close(crowd->pipes[i][0]);
        close(crowd->pipes[i][1]);
    }
}

static void resize_and_stir(const unsigned *sizes, int count)
{
    static struct crowd crowd;
    fl_runtime_config config = {.workers = sizes[0]};
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    atomic_store(&over, false);
    gather(&crowd);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_EQ(fl_runtime_resize(rt, sizes[round % count]), 0);
        stir(&crowd, round);
        usleep(1000);
    }
    CHECK_EQ(fl_runtime_resize(rt, 2), 0);
    long before = atomic_load(&steps);
    while (atomic_load(&steps) < before + SLEEPERS) /* hangs if sleepers were lost */
        usleep(1000);
    disperse(&crowd); /* hangs if anybody was */
    fl_runtime_free(rt);
}

TEST(coroutines_go_on_when_their_worker_leaves)
{
    resize_and_stir((const unsigned[]){4, 1, 3, 2}, 4);
}

TEST(coroutines_wait_when_the_last_worker_leaves)
{
    resize_and_stir((const unsigned[]){2, 0, 1}, 3);
}

static atomic_long ended;

static void end_soon(void *arg)
{
    (void)arg;
    fl_coro_yield();
    fl_sleep_ns(50000);
    atomic_fetch_add(&ended, 1);
}

static void *spawn_some(void *arg)
{
    for (int i = 0; i < 2000; i++)
        spawn(NULL, end_soon, NULL, NULL);
    (void)arg;
    return NULL;
}

TEST(spawning_from_outside_reaches_a_worker_whoever_leaves)
{
    fl_runtime_config config = {.workers = 1};
    pthread_t threads[2];
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, spawn_some, NULL), 0);
    for (unsigned round = 0; round < 40; round++) {
        CHECK_EQ(fl_runtime_resize(rt, round % 4), 0);
        usleep(200);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    while (atomic_load(&ended) < 4000)
        usleep(1000);
    fl_runtime_free(rt);
}

static int schedulers(void)
{
    int count = 0;
    struct coro_group *group = fl__coro_group_of(rt);
    pthread_mutex_lock(&group->lock);
    for (struct coro_sched *sched = group->scheds; sched; sched = sched->next_in_group)
        count++;
    pthread_mutex_unlock(&group->lock);
    return count;
}

TEST(schedulers_that_have_moved_are_used_again_when_they_are_empty)
{
    fl_runtime_config config = {.workers = 4};
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    for (int round = 0; round < 50; round++) {
        atomic_store(&ended, 0);
        for (int i = 0; i < 8; i++)
            spawn(NULL, end_soon, NULL, NULL);
        CHECK_EQ(fl_runtime_resize(rt, 1), 0);
        while (atomic_load(&ended) < 8)
            usleep(100);
        CHECK_EQ(fl_runtime_resize(rt, 4), 0);
    }
    CHECK(schedulers() <= 16);
    fl_runtime_free(rt);
}
