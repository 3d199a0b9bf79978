/* SPDX-License-Identifier: MIT */
/* Other threads: posting, cancelling by posting, stopping, waking. Meant for ThreadSanitizer, and not only for it. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "loop/internal.h"
#include "loop/loop_test.h"

enum { THREADS = 8 };

static void open_real(int *ret_fd, bool with_descriptor, fl_loop_fd_fn fn)
{
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    *ret_fd = with_descriptor ? eventfd(0, EFD_CLOEXEC) : -1;
    if (with_descriptor)
        CHECK_EQ(fl_loop_fd_add(loop, *ret_fd, FL_READ, fn, NULL), 0);
}

static void close_real(int fd)
{
    end();
    if (fd >= 0)
        close(fd);
}

static void never(fl_loop *l, int fd, unsigned events, void *arg)
{
    (void)l, (void)fd, (void)events, (void)arg;
    CHECK(false);
}

static void start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    CHECK_EQ(pthread_create(thread, NULL, fn, arg), 0);
}

static void join(pthread_t *threads, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* ---- Order and completeness. */

enum { POSTS = SCALE(200000, 5000) };

struct poster {
    unsigned next[2]; /* what must come next, of ordinary and of urgent tasks; the loop's thread only */
    struct message {
        struct poster *poster;
        unsigned number;
        bool urgent;
        fl_loop_task task;
    } * messages;
};

static unsigned arrived;

static void arrive(fl_loop *l, void *arg)
{
    struct message *message = arg;
    CHECK_EQ(message->number, message->poster->next[message->urgent]++);
    if (++arrived == THREADS * POSTS)
        fl_loop_stop(l);
}

static void *post_many(void *arg)
{
    struct poster *poster = arg;
    unsigned numbers[2] = {0, 0};
    for (unsigned i = 0; i < POSTS; i++) {
        struct message *m = &poster->messages[i];
        bool urgent = i % 5 == 0;
        *m = (struct message){.poster = poster, .number = numbers[urgent]++, .urgent = urgent};
        m->task = (fl_loop_task){.fn = arrive, .arg = m, .flags = urgent ? FL_TASK_URGENT : 0};
        if (i % 3 == 0)
            fl_loop_post_task(loop, &m->task);
        else
            CHECK_EQ(urgent ? fl_loop_post_urgent(loop, arrive, m) : fl_loop_post(loop, arrive, m), 0);
        if (i % 1000 == 0)
            sched_yield(); /* so that the loop gets to sleep now and then */
    }
    return NULL;
}

static void check_posts(bool with_descriptor)
{
    struct poster posters[THREADS] = {0};
    pthread_t threads[THREADS];
    int fd;
    open_real(&fd, with_descriptor, never);
    fl_loop_hold(loop);
    arrived = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        posters[i].messages = malloc(POSTS * sizeof(*posters[i].messages));
        start(&threads[i], post_many, &posters[i]);
    }
    run();
    CHECK_EQ(arrived, THREADS * POSTS);
    join(threads, THREADS);
    CHECK(stats().wakeups <= stats().sleeps);
    close_real(fd);
    for (unsigned i = 0; i < THREADS; i++)
        free(posters[i].messages);
}

TEST(what_each_thread_posts_arrives_once_and_in_order)
{
    check_posts(false);
}

TEST(what_each_thread_posts_arrives_once_and_in_order_with_descriptors)
{
    check_posts(true);
}

/* ---- One wake-up for many posts. */

static atomic_bool
    hold_back; /* while set, reading the clock does not return: the loop is held between waking and taking */

static uint64_t held_now_ns(fl_clock *clock)
{
    (void)clock;
    while (atomic_load(&hold_back))
        sched_yield();
    return fl_clock_monotonic()->now_ns(fl_clock_monotonic());
}

static void count_arrival(fl_loop *l, void *arg)
{
    if (++arrived == (unsigned)(uintptr_t)arg)
        fl_loop_stop(l);
}

static void *post_to_a_sleeper(void *arg)
{
    (void)arg;
    while (!inbox_is_mark(atomic_load(&loop->inbox.head)))
        sched_yield();
    atomic_store(&hold_back, true);
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(fl_loop_post(loop, count_arrival, (void *)1000), 0);
    atomic_store(&hold_back, false);
    return NULL;
}

static void check_one_wakeup(bool with_descriptor)
{
    fl_clock clock = {held_now_ns, NULL};
    fl_loop_config config = {.clock = &clock};
    int fd = eventfd(0, EFD_CLOEXEC);
    pthread_t thread;
    CHECK_EQ(fl_loop_new(&config, &loop), 0);
    fl_loop_hold(loop);
    if (with_descriptor)
        CHECK_EQ(fl_loop_fd_add(loop, fd, FL_READ, never, NULL), 0);
    arrived = 0;
    start(&thread, post_to_a_sleeper, NULL);
    run();
    join(&thread, 1);
    CHECK_EQ(arrived, 1000);
    CHECK_EQ(stats().wakeups, 1);
    CHECK_EQ(stats().sleeps, 1);
    CHECK_EQ(atomic_load(&loop->inbox.wakeups), 1);
    close_real(fd);
}

TEST(many_posts_wake_a_sleeping_loop_once)
{
    check_one_wakeup(false);
}

TEST(many_posts_wake_a_loop_that_waits_for_descriptors_once)
{
    check_one_wakeup(true);
}

static void post_to_itself(fl_loop *l, void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(fl_loop_post(l, count_arrival, (void *)100), 0);
}

TEST(a_loop_that_is_awake_is_not_woken)
{
    int fd;
    open_real(&fd, false, never);
    arrived = 0;
    CHECK_EQ(fl_loop_post(loop, post_to_itself, NULL), 0);
    run();
    CHECK_EQ(arrived, 100);
    CHECK_EQ(atomic_load(&loop->inbox.wakeups), 0);
    close_real(fd);
}

/* ---- Timers that are made and cancelled from other threads, by posting. */

enum { ROUNDS = SCALE(20000, 1000) };

struct remote {
    atomic_uint fired;
    unsigned made, cancelled; /* the loop's thread only */
    fl_timer_id ids[ROUNDS];
};

static void remote_fire(fl_loop *l, void *arg)
{
    (void)l;
    atomic_fetch_add(&((struct remote *)arg)->fired, 1);
}

static void remote_make(fl_loop *l, void *arg)
{
    struct remote *remote = arg;
    uint64_t delay_ns = remote->made % 7 * 50 * MICROSECOND;
    CHECK_EQ(fl_loop_timer(l, delay_ns, remote_fire, remote, &remote->ids[remote->made++]), 0);
}

static void remote_cancel(fl_loop *l, void *arg)
{
    struct remote *remote = arg;
    if (remote->made > 0)
        remote->cancelled += fl_loop_cancel(l, remote->ids[(remote->made - 1) / 2 * 2]) == 0;
}

static void *make_and_cancel(void *arg)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        CHECK_EQ(fl_loop_post(loop, remote_make, arg), 0);
        CHECK_EQ(fl_loop_post(loop, remote_cancel, arg), 0);
        if (i % 100 == 0)
            usleep(100);
    }
    return NULL;
}

TEST(timers_made_and_cancelled_from_other_threads_fire_or_are_cancelled)
{
    static struct remote remotes[4];
    pthread_t threads[4];
    int fd;
    memset(remotes, 0, sizeof(remotes));
    open_real(&fd, false, never);
    for (unsigned i = 0; i < 4; i++)
        start(&threads[i], make_and_cancel, &remotes[i]);
    for (unsigned i = 0; i < 4; i++)
        while (remotes[i].made < ROUNDS)
            CHECK_EQ(fl_loop_run_once(loop, true), 0);
    join(threads, 4);
    run();
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQ(remotes[i].fired + remotes[i].cancelled, ROUNDS);
    close_real(fd);
}

/* ---- Stopping. */

static atomic_uint stops_wanted, stops_made;

static void *stop_again_and_again(void *arg)
{
    (void)arg;
    while (atomic_load(&stops_wanted) > 0) {
        fl_loop_stop(loop);
        atomic_fetch_add(&stops_made, 1);
        usleep(20);
    }
    return NULL;
}

/* Nothing but the stops ends the sleep: a lost one would hang. */
static void check_stops(bool with_descriptor)
{
    pthread_t threads[3];
    int fd;
    open_real(&fd, with_descriptor, never);
    fl_loop_hold(loop);
    atomic_store(&stops_wanted, SCALE(5000, 500));
    for (unsigned i = 0; i < 3; i++)
        start(&threads[i], stop_again_and_again, NULL);
    while (atomic_load(&stops_wanted) > 0) {
        run();
        atomic_fetch_sub(&stops_wanted, 1);
    }
    join(threads, 3);
    CHECK(atomic_load(&stops_made) > 0);
    close_real(fd);
}

TEST(no_stop_from_another_thread_is_lost)
{
    check_stops(false);
    check_stops(true);
}

static void *drain_later(void *arg)
{
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(fl_loop_post(loop, count_arrival, NULL), 0);
    (void)arg;
    fl_loop_drain(loop);
    return NULL;
}

TEST(a_graceful_stop_from_another_thread_comes_after_what_it_posted_before)
{
    pthread_t thread;
    int fd;
    for (unsigned i = 0; i < 100; i++) {
        open_real(&fd, i % 2, never);
        fl_loop_hold(loop);
        arrived = 0;
        start(&thread, drain_later, NULL);
        run();
        CHECK_EQ(arrived, 1000);
        join(&thread, 1);
        close_real(fd);
    }
}

/* ---- Freeing as soon as the last message has arrived. */

static void last_message(fl_loop *l, void *arg)
{
    (void)arg;
    fl_loop_free(l);
}

static void *post_last(void *arg)
{
    CHECK_EQ(fl_loop_post(arg, last_message, NULL), 0);
    return NULL;
}

static void *stop_last(void *arg)
{
    fl_loop_stop(arg);
    return NULL;
}

/* The thread may still be inside its call when the loop goes: neither memory nor a descriptor may be touched after. */
TEST(a_loop_can_be_freed_while_the_call_that_ended_it_has_not_returned)
{
    pthread_t thread;
    int fd;
    for (unsigned i = 0; i < SCALE(4000u, 400u); i++) {
        open_real(&fd, i % 2, never);
        fl_loop_hold(loop);
        if (i % 4 < 2) {
            start(&thread, post_last, loop);
            CHECK_EQ(fl_loop_run(loop), FL_LOOP_FREED);
        } else {
            start(&thread, stop_last, loop);
            run();
            fl_loop_free(loop);
        }
        join(&thread, 1);
        if (fd >= 0)
            close(fd);
    }
}

/* ---- Sleeping for a deadline while being posted to. */

static void *disturb(void *arg)
{
    for (unsigned i = 0; i < 200; i++) {
        CHECK_EQ(fl_loop_post(loop, note, ""), 0);
        usleep(50);
    }
    return arg;
}

static uint64_t promised_ns;

static void keep_promise(fl_loop *l, void *arg)
{
    (void)l, (void)arg;
    CHECK(fl_clock_monotonic()->now_ns(fl_clock_monotonic()) >= promised_ns);
}

static void check_disturbed(bool with_descriptor)
{
    pthread_t thread;
    int fd;
    open_real(&fd, with_descriptor, never);
    promised_ns = fl_loop_now_ns(loop) + 20 * MILLISECOND;
    CHECK_EQ(fl_loop_timer_at(loop, promised_ns, keep_promise, NULL, NULL), 0);
    start(&thread, disturb, NULL);
    while (stats().called.timers == 0)
        CHECK_EQ(fl_loop_run_once(loop, true), 0);
    join(&thread, 1);
    close_real(fd);
}

TEST(posts_do_not_make_a_timer_early)
{
    check_disturbed(false);
    check_disturbed(true);
}
