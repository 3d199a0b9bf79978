/* SPDX-License-Identifier: MIT */
/* Tasks: which worker runs them, in which order, and what they can do with its loop. */

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "rt.h"

/* --- Tasks for one worker */

struct visit {
    int expected;
    unsigned number;
    unsigned *next; /* of those for the same worker */
    atomic_uint *visits;
};

static void visit(void *arg)
{
    struct visit *one = arg;
    CHECK_EQ(fl_runtime_worker(), one->expected);
    CHECK_EQ((*one->next)++, one->number);
    atomic_fetch_add(one->visits, 1);
}

TEST(a_task_for_a_worker_runs_there_and_in_order)
{
    enum { WORKERS = 4, EACH = 500 };
    static struct visit all[WORKERS][EACH];
    unsigned next[WORKERS] = {0};
    atomic_uint visits = 0;
    fl_runtime *rt = make_runtime(WORKERS);
    for (unsigned i = 0; i < EACH; i++)
        for (unsigned w = 0; w < WORKERS; w++) {
            all[w][i] = (struct visit){(int)w, i, &next[w], &visits};
            CHECK_EQ(fl_runtime_spawn_on(rt, w, visit, &all[w][i]), 0);
        }
    AWAIT(atomic_load(&visits) == WORKERS * EACH);
    fl_runtime_free(rt);
}

static void count_one(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

TEST(a_task_for_a_worker_that_is_not_there_is_refused)
{
    atomic_uint count = 0;
    fl_runtime *rt = make_runtime(2);
    CHECK_EQ(fl_runtime_spawn_on(rt, 0, NULL, NULL), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_runtime_spawn_on(rt, FL_RUNTIME_MAX_WORKERS, count_one, &count), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_runtime_spawn_on(rt, 2, count_one, &count), FL_NOT_FOUND);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    CHECK_EQ(fl_runtime_spawn_on(rt, 1, count_one, &count), FL_NOT_FOUND);
    CHECK_EQ(fl_runtime_resize(rt, 2), 0);
    CHECK_EQ(fl_runtime_spawn_on(rt, 1, count_one, &count), 0);
    AWAIT(atomic_load(&count) == 1);
    fl_runtime_free(rt);
}

static atomic_bool open_gate;

static void wait_at_gate(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
    AWAIT(atomic_load(&open_gate));
}

static void *resize_to_none(void *rt)
{
    CHECK_EQ(fl_runtime_resize(rt, 0), 0);
    return NULL;
}

TEST(a_worker_that_leaves_first_runs_what_was_meant_for_it)
{
    enum { TASKS = 3000 };
    static struct visit all[TASKS];
    atomic_uint visits = 0;
    atomic_bool there = false;
    unsigned next = 0;
    pthread_t thread;
    fl_runtime *rt = make_runtime(1);
    atomic_store(&open_gate, false);
    CHECK_EQ(fl_runtime_spawn_on(rt, 0, wait_at_gate, &there), 0);
    AWAIT(atomic_load(&there));
    for (unsigned i = 0; i < TASKS; i++) {
        all[i] = (struct visit){0, i, &next, &visits};
        CHECK_EQ(fl_runtime_spawn_on(rt, 0, visit, &all[i]), 0);
    }
    CHECK_EQ(pthread_create(&thread, NULL, resize_to_none, rt), 0);
    AWAIT(stats_of(rt).workers == 0);
    CHECK_EQ(fl_runtime_spawn_on(rt, 0, visit, &all[0]), FL_NOT_FOUND);
    atomic_store(&open_gate, true);
    pthread_join(thread, NULL);
    CHECK_EQ(atomic_load(&visits), TASKS);
    fl_runtime_free(rt);
}

struct shower {
    fl_runtime *rt;
    atomic_bool done;
    uint64_t accepted;
    atomic_uint ran;
};

static void *spawn_on_all(void *arg)
{
    struct shower *shower = arg;
    for (unsigned i = 0; !atomic_load(&shower->done); i++) {
        int r = fl_runtime_spawn_on(shower->rt, i % 4, count_one, &shower->ran);
        CHECK(r == 0 || r == FL_NOT_FOUND);
        shower->accepted += r == 0;
        if (i % 64 == 0)
            pause_briefly();
    }
    return NULL;
}

TEST(what_a_worker_has_accepted_runs_while_workers_come_and_go)
{
    enum { THREADS = 3, RESIZES = 300 };
    struct shower showers[THREADS] = {0};
    pthread_t threads[THREADS];
    fl_runtime *rt = make_runtime(4);
    for (unsigned i = 0; i < THREADS; i++) {
        showers[i].rt = rt;
        CHECK_EQ(pthread_create(&threads[i], NULL, spawn_on_all, &showers[i]), 0);
    }
    for (unsigned i = 0; i < RESIZES; i++)
        CHECK_EQ(fl_runtime_resize(rt, i * 7 % 5), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        atomic_store(&showers[i].done, true);
        pthread_join(threads[i], NULL);
        AWAIT(atomic_load(&showers[i].ran) == showers[i].accepted);
    }
    fl_runtime_free(rt);
}

struct chain {
    fl_runtime *rt;
    atomic_uint left;
};

static void spawn_on_itself(void *arg)
{
    struct chain *chain = arg;
    CHECK_EQ(fl_runtime_worker(), 1);
    if (atomic_load(&chain->left) > 1)
        CHECK_EQ(fl_runtime_spawn_on(chain->rt, 1, spawn_on_itself, arg), 0);
    atomic_fetch_sub(&chain->left, 1);
}

TEST(a_task_may_follow_itself_on_its_worker)
{
    struct chain chain = {make_runtime(2), 5000};
    CHECK_EQ(fl_runtime_spawn_on(chain.rt, 1, spawn_on_itself, &chain), 0);
    AWAIT(atomic_load(&chain.left) == 0);
    fl_runtime_free(chain.rt);
}

/* --- The worker's loop */

struct guest {
    int pipe[2];
    atomic_uint timers, reads, posts, closed;
    _Atomic(fl_loop *) loop;
};

static void on_loop_timer(fl_loop *loop, void *arg)
{
    CHECK(loop == fl_runtime_loop());
    CHECK_EQ(fl_runtime_worker(), 1);
    atomic_fetch_add(&((struct guest *)arg)->timers, 1);
}

static void on_loop_read(fl_loop *loop, int fd, unsigned events, void *arg)
{
    char byte;
    CHECK(loop == fl_runtime_loop() && events & FL_READ);
    CHECK_EQ(read(fd, &byte, 1), 1);
    atomic_fetch_add(&((struct guest *)arg)->reads, 1);
}

static void on_loop_post(fl_loop *loop, void *arg)
{
    CHECK(loop == fl_runtime_loop());
    atomic_fetch_add(&((struct guest *)arg)->posts, 1);
}

static void on_loop_close(fl_loop *loop, void *arg)
{
    CHECK(loop == fl_runtime_loop());
    atomic_fetch_add(&((struct guest *)arg)->closed, 1);
}

static void move_in(void *arg)
{
    struct guest *guest = arg;
    fl_loop *loop = fl_runtime_loop();
    CHECK(loop != NULL);
    CHECK_EQ(fl_loop_timer(loop, MS, on_loop_timer, guest, NULL), 0);
    CHECK_EQ(fl_loop_timer(loop, HOUR, on_loop_timer, guest, NULL), 0);
    CHECK_EQ(fl_loop_fd_add(loop, guest->pipe[0], FL_READ, on_loop_read, guest), 0);
    atomic_store(&guest->loop, loop);
}

static void ask_for_close(void *arg)
{
    CHECK_EQ(fl_loop_close_callback(fl_runtime_loop(), on_loop_close, arg), 0);
}

TEST(a_task_can_use_the_loop_of_its_worker)
{
    struct guest guest = {0};
    fl_runtime *rt = make_runtime(2);
    CHECK(fl_runtime_loop() == NULL);
    CHECK(fl_runtime_worker() < 0);
    CHECK_EQ(pipe(guest.pipe), 0);
    CHECK_EQ(fl_runtime_spawn_on(rt, 1, move_in, &guest), 0);
    AWAIT(atomic_load(&guest.loop));
    CHECK_EQ(write(guest.pipe[1], "x", 1), 1);
    CHECK_EQ(fl_loop_post(atomic_load(&guest.loop), on_loop_post, &guest), 0);
    AWAIT(atomic_load(&guest.timers) == 1 && atomic_load(&guest.reads) == 1 && atomic_load(&guest.posts) == 1);
    CHECK_EQ(fl_runtime_resize(rt, 1), 0);
    CHECK_EQ(fl_runtime_resize(rt, 2), 0);
    CHECK_EQ(write(guest.pipe[1], "x", 1), 1); /* the loop of old is gone, and nobody reads */
    CHECK_EQ(fl_runtime_spawn_on(rt, 1, ask_for_close, &guest), 0);
    AWAIT(atomic_load(&guest.closed) == 1);
    fl_runtime_free(rt);
    CHECK_EQ(atomic_load(&guest.timers), 1);
    CHECK_EQ(atomic_load(&guest.reads), 1);
    close(guest.pipe[0]);
    close(guest.pipe[1]);
}

/* --- Processors */

static void look_where_it_runs(void *arg)
{
    CHECK_EQ(sched_getaffinity(0, sizeof(cpu_set_t), arg), 0);
    atomic_store(&open_gate, true);
}

/* The n-th worker has the n-th processor of those there are, and no other. */
TEST(pinned_workers_stay_on_their_processors)
{
    enum { WORKERS = 3 };
    cpu_set_t all, seen;
    int cpu = -1;
    fl_runtime *rt;
    CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CHECK_EQ(fl_runtime_new(&(fl_runtime_config){.workers = WORKERS, .pin = true, .huge_pages = true}, &rt), 0);
    for (unsigned i = 0; i < WORKERS; i++) {
        do
            cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(cpu, &all));
        atomic_store(&open_gate, false);
        CHECK_EQ(fl_runtime_spawn_on(rt, i, look_where_it_runs, &seen), 0);
        AWAIT(atomic_load(&open_gate));
        CHECK_EQ(CPU_COUNT(&seen), 1);
        CHECK(CPU_ISSET(cpu, &seen));
    }
    fl_runtime_free(rt);
}
