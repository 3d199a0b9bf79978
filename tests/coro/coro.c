/* SPDX-License-Identifier: MIT */
/* Coroutines: the promises of foliot/coro.h, on one worker or two. Moving between workers is in move.c. */

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <foliot/alloc.h>
#include <foliot/coro.h>

#include "coro/coro.h"
#include "test.h"

#define MS 1000000ull

static fl_runtime *runtime(unsigned workers)
{
    fl_runtime_config config = {.workers = workers};
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    return rt;
}

static fl_coro *spawn(fl_runtime *rt, fl_task_fn fn, void *arg)
{
    fl_coro *coro;
    CHECK_EQ(fl_coro_spawn(rt, NULL, fn, arg, &coro), 0);
    return coro;
}

static fl_coro *spawn_own(fl_runtime *rt, fl_task_fn fn, void *arg)
{
    fl_coro_options options = {.stack_size = 32 << 10};
    fl_coro *coro;
    CHECK_EQ(fl_coro_spawn(rt, &options, fn, arg, &coro), 0);
    return coro;
}

static void finish(fl_coro *coro)
{
    CHECK_EQ(fl_coro_join(coro), 0);
    fl_coro_unref(coro);
}

/* Runs a function as a coroutine on a runtime of its own. */
static void run_on(unsigned workers, fl_task_fn fn, void *arg)
{
    fl_runtime *rt = runtime(workers);
    finish(spawn(rt, fn, arg));
    fl_runtime_free(rt);
}

/* A clock that stands still until there is nothing to do. */
struct test_clock {
    fl_clock clock;
    _Atomic uint64_t time_ns;
};

static uint64_t test_clock_now(fl_clock *clock)
{
    return atomic_load(&((struct test_clock *)clock)->time_ns);
}

static void test_clock_wait(fl_clock *clock, uint64_t deadline_ns)
{
    _Atomic uint64_t *time_ns = &((struct test_clock *)clock)->time_ns;
    uint64_t before_ns = atomic_load(time_ns);
    while (before_ns < deadline_ns && !atomic_compare_exchange_weak(time_ns, &before_ns, deadline_ns))
        ;
}

static void run_on_virtual_clock(fl_task_fn fn, void *arg)
{
    struct test_clock time = {{test_clock_now, test_clock_wait}, 1000};
    fl_runtime_config config = {.workers = 1, .clock = &time.clock};
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    finish(spawn(rt, fn, arg));
    fl_runtime_free(rt);
}

/* --- Spawning and ending */

static void count_up(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

TEST(what_is_spawned_runs_once)
{
    static atomic_int count;
    fl_runtime *rt = runtime(2);
    fl_coro *coros[1000];
    for (int i = 0; i < 1000; i++)
        coros[i] = spawn(rt, count_up, &count);
    for (int i = 0; i < 1000; i++)
        finish(coros[i]);
    CHECK_EQ(count, 1000);
    fl_runtime_free(rt);
}

TEST(wrong_arguments_are_refused)
{
    fl_runtime *rt = runtime(1);
    fl_coro *coro = (fl_coro *)rt;
    fl_coro_options large = {.stack_size = ((size_t)1 << 30) + 1};
    CHECK_EQ(fl_coro_spawn(rt, NULL, NULL, NULL, &coro), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_coro_spawn(NULL, NULL, count_up, NULL, &coro), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_coro_spawn(rt, &large, count_up, NULL, &coro), FL_INVALID_ARGUMENT);
    CHECK(coro == (fl_coro *)rt);
    fl_coro_unref(NULL);
    fl_runtime_free(rt);
}

static void know_yourself(void *arg)
{
    fl_coro **self = arg;
    CHECK(strcmp(fl_coro_name(fl_coro_self()), "Ada") == 0);
    CHECK_EQ(fl_coro_join(fl_coro_self()), FL_INVALID_ARGUMENT);
    *self = fl_coro_self();
}

TEST(a_coroutine_knows_itself)
{
    static fl_coro *self;
    fl_runtime *rt = runtime(1);
    fl_coro_options options = {.name = "Ada"};
    fl_coro *coro;
    CHECK(!fl_coro_self());
    CHECK_EQ(fl_coro_spawn(rt, &options, know_yourself, &self, &coro), 0);
    finish(fl_coro_ref(coro));
    CHECK(self == coro);
    fl_coro_unref(coro);
    fl_runtime_free(rt);
}

struct introduction {
    fl_coro *_Atomic coro;
    atomic_int strangers; /* who did not find themselves there */
};

static void look_for_yourself(void *arg)
{
    struct introduction *introduction = arg;
    if (atomic_load(&introduction->coro) != fl_coro_self())
        atomic_fetch_add(&introduction->strangers, 1);
}

TEST(a_coroutine_that_runs_at_once_finds_itself_where_its_maker_will)
{
    static struct introduction introduction;
    fl_runtime *rt = runtime(1);
    for (int i = 0; i < 5000; i++) {
        atomic_store(&introduction.coro, NULL);
        CHECK_EQ(fl_coro_spawn(rt, NULL, look_for_yourself, &introduction, (fl_coro **)&introduction.coro), 0);
        finish(atomic_load(&introduction.coro));
    }
    CHECK_EQ(introduction.strangers, 0);
    fl_runtime_free(rt);
}

/* --- Yielding */

struct log {
    int length;
    char text[64];
};

static void log_letter(struct log *log, char letter)
{
    CHECK(log->length < 63);
    log->text[log->length++] = letter;
}

static struct log letters;

static void three_times(void *arg)
{
    char letter = *(const char *)arg;
    for (int i = 0; i < 3; i++) {
        log_letter(&letters, letter);
        fl_coro_yield();
    }
}

static void spawn_three(void *arg)
{
    (void)arg;
    fl_coro *a = spawn(NULL, three_times, "a"), *b = spawn_own(NULL, three_times, "b");
    fl_coro *c = spawn(NULL, three_times, "c");
    CHECK_EQ(letters.length, 0);
    finish(a);
    finish(b);
    finish(c);
}

TEST(coroutines_take_turns)
{
    run_on(1, spawn_three, NULL);
    CHECK(strcmp(letters.text, "abcabcabc") == 0);
}

struct audience {
    fl_runtime *rt;
    int pipe[2];
    int tasks, timers, readers, sleepers;
};

static void count_one(void *arg)
{
    (*(int *)arg)++;
}

static void read_and_count(void *arg)
{
    struct audience *audience = arg;
    char byte;
    CHECK(fl_coro_wait_fd(audience->pipe[0], FL_READ, FL_CORO_FOREVER) & FL_READ);
    CHECK_EQ(read(audience->pipe[0], &byte, 1), 1);
    audience->readers++;
}

static void sleep_and_count(void *arg)
{
    struct audience *audience = arg;
    CHECK_EQ(fl_sleep_ns(1), 0);
    audience->sleepers++;
}

/* One yield is one turn for everybody else who can run. */
static void yield_to_all(void *arg)
{
    struct audience *audience = arg;
    fl_timer *timer;
    CHECK_EQ(fl_timer_new(audience->rt, count_one, &audience->timers, &timer), 0);
    for (int i = 1; i <= 50; i++) {
        CHECK_EQ(fl_coro_spawn(NULL, NULL, read_and_count, audience, NULL), 0);
        CHECK_EQ(fl_coro_spawn(NULL, NULL, sleep_and_count, audience, NULL), 0);
        fl_coro_yield(); /* they begin to wait */
        uint64_t now_ns = fl_coro_now_ns();
        while (fl_coro_now_ns() < now_ns + 100000) /* the sleeper's time, and the gap between two looks at the wheel */
            ;
        if (i % 2) /* to go on in the midst of the worker's turn, and not at its end */
            CHECK_EQ(fl_sleep_ns(50000), 0);
        CHECK_EQ(fl_timer_start_after(timer, 0), 0);
        CHECK_EQ(fl_runtime_spawn(audience->rt, count_one, &audience->tasks), 0);
        CHECK_EQ(write(audience->pipe[1], "x", 1), 1);
        fl_coro_yield();
        CHECK_EQ(audience->tasks, i);
        CHECK_EQ(audience->timers, i);
        CHECK_EQ(audience->readers, i);
        CHECK_EQ(audience->sleepers, i);
    }
    fl_timer_unref(timer);
}

TEST(a_yield_lets_tasks_timers_and_descriptors_have_a_turn)
{
    static struct audience audience;
    fl_runtime_config config = {.workers = 1,
                                .tick_ns = 1ull << 40}; /* no turn is cut short, however slow the machine is */
    CHECK_EQ(fl_runtime_new(&config, &audience.rt), 0);
    CHECK_EQ(pipe(audience.pipe), 0);
    finish(spawn(audience.rt, yield_to_all, &audience));
    fl_runtime_free(audience.rt);
    close(audience.pipe[0]);
    close(audience.pipe[1]);
}

/* --- What is on the stack comes back */

struct depth {
    int id, levels;
};

/* A frame of 40 bytes or so on each level, with a checksum that only holds if all of them come back. */
/* NOLINTNEXTLINE(misc-no-recursion): that is what it is for */
__attribute__((noinline)) static uint64_t descend(int id, int level)
{
    volatile uint64_t mine = (uint64_t)id * 1000003u + (uint64_t)level;
    uint64_t below = 0;
    if (level > 0)
        below = descend(id, level - 1);
    else
        for (int i = 0; i < 3; i++)
            fl_coro_yield();
    return mine * 31 + below;
}

static uint64_t expected(int id, int level)
{
    uint64_t sum = 0;
    for (int i = 0; i <= level; i++)
        sum += ((uint64_t)id * 1000003u + (uint64_t)i) * 31;
    return sum;
}

static void go_deep(void *arg)
{
    struct depth depth = *(struct depth *)arg;
    CHECK(descend(depth.id, depth.levels) == expected(depth.id, depth.levels));
}

static void many_depths(void *arg)
{
    enum { COUNT = 300 };
    (void)arg;
    struct depth *depths = calloc(COUNT, sizeof(*depths));
    fl_coro **coros = calloc(COUNT, sizeof(fl_coro *));
    for (int i = 0; i < COUNT; i++) {
        depths[i] = (struct depth){i, (i * 7) % 90};
        coros[i] = (i % 5 ? spawn : spawn_own)(NULL, go_deep, &depths[i]);
    }
    for (int i = 0; i < COUNT; i++)
        finish(coros[i]);
    free(depths);
    free(coros);
}

TEST(every_frame_comes_back_whatever_the_depth)
{
    run_on(1, many_depths, NULL);
}

/* --- Parking */

static fl_coro *parked;
static atomic_int woken;

static void park_thrice(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        fl_coro_park();
        woken++;
    }
}

static void wake_one(void *arg)
{
    (void)arg;
    parked = spawn(NULL, park_thrice, NULL);
    for (int i = 0; i < 5; i++)
        fl_coro_yield();
    CHECK_EQ(woken, 0);
    fl_coro_unpark(parked);
    fl_coro_unpark(parked); /* ignored: the first has not been seen */
    for (int i = 0; i < 5; i++)
        fl_coro_yield();
    CHECK_EQ(woken, 1);
    fl_coro_unpark(parked);
    fl_coro_yield();
    CHECK_EQ(woken, 2);
    fl_coro_unpark(parked);
    CHECK_EQ(fl_coro_join(parked), 0);
    CHECK_EQ(woken, 3);
    fl_coro_unpark(parked); /* has returned */
    fl_coro_unref(parked);
}

TEST(an_unpark_wakes_once)
{
    woken = 0;
    run_on(1, wake_one, NULL);
}

static void unpark_self_first(void *arg)
{
    (void)arg;
    fl_coro_unpark(fl_coro_self());
    fl_coro_unpark(fl_coro_self());
    CHECK_EQ(fl_sleep_ms(1), 0); /* no park: the wake-up is still there afterwards */
    fl_coro_park();
}

TEST(an_unpark_that_comes_first_is_kept)
{
    run_on(1, unpark_self_first, NULL);
}

/* Two threads and a coroutine hand a ball round; a lost or doubled wake-up stops the game or spoils the count. */
struct game {
    fl_coro *coro;
    atomic_int turn;
    atomic_bool over;
};

static void play(void *arg)
{
    struct game *game = arg;
    while (!atomic_load(&game->over)) {
        while (atomic_load(&game->turn) == 0 && !atomic_load(&game->over))
            fl_coro_park();
        atomic_store(&game->turn, 0);
    }
}

static void *serve(void *arg)
{
    struct game *game = arg;
    for (int i = 0; i < 20000; i++) {
        atomic_store(&game->turn, 1);
        fl_coro_unpark(game->coro);
    }
    return NULL;
}

TEST(no_wake_up_from_a_thread_is_lost)
{
    static struct game game;
    fl_runtime *rt = runtime(2);
    pthread_t threads[2];
    game.coro = spawn(rt, play, &game);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, serve, &game), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    while (atomic_load(&game.turn) != 0) /* hangs if the last wake-up was lost */
        usleep(100);
    atomic_store(&game.over, true);
    fl_coro_unpark(game.coro);
    finish(game.coro);
    fl_runtime_free(rt);
}

/* --- Joining */

static void join_it(void *arg)
{
    CHECK_EQ(fl_coro_join(arg), 0);
}

static void *join_it_from_a_thread(void *arg)
{
    CHECK_EQ(fl_coro_join(arg), 0);
    return NULL;
}

TEST(all_who_join_go_on_when_it_ends)
{
    atomic_store(&woken, 0);
    fl_runtime *rt = runtime(2);
    fl_coro *coro = spawn(rt, park_thrice, NULL), *joiners[20];
    pthread_t threads[3];
    for (int i = 0; i < 20; i++)
        joiners[i] = spawn(rt, join_it, coro);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, join_it_from_a_thread, coro), 0);
    for (int i = 1; i <= 3; i++) {
        fl_coro_unpark(coro);
        while (atomic_load(&woken) < i)
            usleep(100);
    }
    for (int i = 0; i < 20; i++)
        finish(joiners[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(fl_coro_join(coro), 0); /* again */
    fl_coro_unref(coro);
    fl_runtime_free(rt);
}

/* --- Sleeping */

static void check_sleeps(void)
{
    uint64_t before_ns = fl_coro_now_ns();
    CHECK_EQ(fl_sleep_ns(0), 0);
    CHECK_EQ(fl_sleep_ms(0), 0);
    CHECK_EQ(fl_sleep_ms(-5), 0);
    CHECK_EQ(fl_sleep_until_ns(0), 0);
    CHECK_EQ(fl_sleep_until_ns(before_ns), 0);
    CHECK_EQ(fl_sleep_ns(200000), 0);
    CHECK(fl_coro_now_ns() >= before_ns + 200000);
    CHECK_EQ(fl_sleep_ms(2), 0);
    CHECK(fl_coro_now_ns() >= before_ns + 200000 + 2 * MS);
    CHECK_EQ(fl_sleep_until_ns(before_ns + 5 * MS), 0);
    CHECK(fl_coro_now_ns() >= before_ns + 5 * MS);
}

static void sleep_as_coroutine(void *arg)
{
    (void)arg;
    check_sleeps();
}

TEST(sleep_is_never_early)
{
    run_on(1, sleep_as_coroutine, NULL);
}

TEST(outside_a_coroutine_the_thread_sleeps)
{
    check_sleeps();
}

struct sleeper {
    uint64_t deadline_ns;
    int *order, *next, id;
};

static void sleep_and_sign(void *arg)
{
    struct sleeper *sleeper = arg;
    CHECK_EQ(fl_sleep_until_ns(sleeper->deadline_ns), 0);
    CHECK(fl_coro_now_ns() >= sleeper->deadline_ns);
    sleeper->order[(*sleeper->next)++] = sleeper->id;
}

static void sleep_sort(void *arg)
{
    enum { COUNT = 500 };
    (void)arg;
    struct sleeper *sleepers = calloc(COUNT, sizeof(*sleepers));
    fl_coro **coros = calloc(COUNT, sizeof(fl_coro *));
    int *order = calloc(COUNT + 1, sizeof(int));
    uint64_t now_ns = fl_coro_now_ns();
    for (int i = 0; i < COUNT; i++) {
        int rank = i * 77 % COUNT;
        sleepers[i] = (struct sleeper){now_ns + 20 * MS + (uint64_t)rank * 50000, order, order + COUNT, rank};
        coros[i] = spawn(NULL, sleep_and_sign, &sleepers[i]);
    }
    for (int i = 0; i < COUNT; i++)
        finish(coros[i]);
    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(order[i], i);
    free(sleepers);
    free(coros);
    free(order);
}

TEST(sleepers_wake_in_order_of_their_deadlines)
{
    run_on_virtual_clock(sleep_sort, NULL);
}

static atomic_int slept;

static void sleep_a_little(void *arg)
{
    CHECK_EQ(fl_sleep_ns((uint64_t)(uintptr_t)arg), 0);
    atomic_fetch_add(&slept, 1);
}

enum { MANY = 5000 }; /* ThreadSanitizer does not count further than 8128 */

static void many_sleepers(void *arg)
{
    (void)arg;
    for (uintptr_t i = 0; i < MANY; i++)
        CHECK_EQ(fl_coro_spawn(NULL, NULL, sleep_a_little, (void *)(10 * MS + i * 1000), NULL), 0);
}

TEST(many_sleepers_all_wake)
{
    fl_runtime *rt = runtime(1);
    atomic_store(&slept, 0);
    finish(spawn(rt, many_sleepers, NULL));
    while (atomic_load(&slept) < MANY)
        usleep(1000);
    fl_runtime_free(rt);
}

static void sleep_for_a_year(void *arg)
{
    uint64_t before_ns = fl_coro_now_ns(), year_ns = 365 * 86400 * 1000000000ull;
    CHECK_EQ(fl_sleep_ns(year_ns), 0);
    CHECK(fl_coro_now_ns() >= before_ns + year_ns);
    *(atomic_bool *)arg = true;
}

TEST(a_year_passes_on_a_virtual_clock)
{
    static atomic_bool over;
    run_on_virtual_clock(sleep_for_a_year, &over);
    CHECK(over);
}

/* --- Timed wake-ups */

static void park_for_ever(void *arg)
{
    (void)arg;
    for (;;)
        fl_coro_park();
}

static void timed_wakes(void *arg)
{
    (void)arg;
    fl_coro *self = fl_coro_self();
    fl_runtime *rt = *(fl_runtime **)arg;
    fl_coro_wake wake, late;
    uint64_t before_ns = fl_coro_now_ns();
    CHECK_EQ(fl_coro_wake_at(self, before_ns + 2 * MS, &wake), 0);
    fl_coro_park();
    CHECK(fl_coro_now_ns() >= before_ns + 2 * MS);
    CHECK_EQ(fl_coro_wake_cancel(rt, wake), FL_TIMER_NOT_FOUND);

    CHECK_EQ(fl_coro_wake_at(self, 1, NULL), 0); /* long over: promptly */
    fl_coro_park();

    CHECK_EQ(fl_coro_wake_after(self, 3600 * 1000 * MS, &late), 0);
    CHECK_EQ(fl_coro_wake_after(self, 1 * MS, &wake), 0);
    CHECK(late != wake && late != 0 && wake != 0);
    CHECK_EQ(fl_coro_wake_cancel(rt, late), 0);
    CHECK_EQ(fl_coro_wake_cancel(rt, late), FL_TIMER_NOT_FOUND);
    CHECK_EQ(fl_coro_wake_cancel(rt, 0), FL_TIMER_NOT_FOUND);
    fl_coro_park();
    CHECK_EQ(fl_coro_wake_cancel(rt, wake), FL_TIMER_NOT_FOUND);
}

TEST(a_timed_wake_up_comes_once_or_is_cancelled)
{
    fl_runtime *rt = runtime(1);
    finish(spawn(rt, timed_wakes, &rt));
    fl_runtime_free(rt);
}

/* A slot of the table has given all its names but one. */
TEST(a_worn_out_slot_gives_no_name_twice_and_never_0)
{
    fl_runtime *rt = runtime(1);
    fl_coro *coro = spawn(rt, park_for_ever, NULL);
    struct wake_table *table = &fl__coro_group_of(rt)->wakes;
    fl_coro_wake first, last, next;
    CHECK_EQ(fl_coro_wake_after(coro, 3600 * 1000 * MS, &first), 0);
    CHECK_EQ(fl_coro_wake_cancel(rt, first), 0);
    table->ids[(uint32_t)first] |= (uint64_t)UINT32_MAX << 32;
    CHECK_EQ(fl_coro_wake_after(coro, 3600 * 1000 * MS, &last), 0);
    CHECK_EQ(last >> 32, UINT32_MAX);
    CHECK_EQ(fl_coro_wake_cancel(rt, last), 0);
    for (int i = 0; i < 1000; i++) { /* more than the table has slots */
        CHECK_EQ(fl_coro_wake_after(coro, 3600 * 1000 * MS, &next), 0);
        CHECK(next >> 32 != 0 && next != first && next != last);
        CHECK_EQ(fl_coro_wake_cancel(rt, last), FL_TIMER_NOT_FOUND);
        CHECK_EQ(fl_coro_wake_cancel(rt, (uint32_t)first), FL_TIMER_NOT_FOUND);
    }
    fl_coro_unref(coro);
    fl_runtime_free(rt);
}

/* Each wake-up is cancelled about when it comes: those that were not cancelled must be all that were seen. */
static atomic_int seen;
static atomic_bool stop_counting;

static void count_wake_ups(void *arg)
{
    (void)arg;
    for (;;) {
        fl_coro_park();
        if (atomic_load(&stop_counting))
            return;
        atomic_fetch_add(&seen, 1);
    }
}

TEST(a_cancelled_wake_up_does_not_come)
{
    fl_runtime *rt = runtime(2);
    fl_coro *coro = spawn(rt, count_wake_ups, NULL);
    int came = 0;
    for (int i = 0; i < 500; i++) {
        int before = atomic_load(&seen);
        fl_coro_wake wake;
        CHECK_EQ(fl_coro_wake_after(coro, (uint64_t)(i % 50) * 4000, &wake), 0);
        usleep((unsigned)(i % 7) * 30);
        if (fl_coro_wake_cancel(rt, wake) == 0)
            continue;
        came++;
        while (atomic_load(&seen) == before) /* hangs if a wake-up that was not cancelled is lost */
            sched_yield();
    }
    CHECK_EQ(seen, came);
    atomic_store(&stop_counting, true);
    fl_coro_unpark(coro);
    finish(coro);
    fl_runtime_free(rt);
}

/* --- Descriptors */

struct pipe_pair {
    int in, out;
};

static struct pipe_pair new_pipe(void)
{
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    return (struct pipe_pair){fds[0], fds[1]};
}

static void close_pipe(struct pipe_pair pair)
{
    close(pair.in);
    close(pair.out);
}

static void read_a_byte(void *arg)
{
    struct pipe_pair *pair = arg;
    char byte;
    CHECK_EQ(fl_coro_wait_fd(pair->in, FL_READ, FL_CORO_FOREVER), FL_READ);
    CHECK_EQ(read(pair->in, &byte, 1), 1);
}

static void *write_later(void *arg)
{
    struct pipe_pair *pair = arg;
    usleep(2000);
    CHECK_EQ(write(pair->out, "x", 1), 1);
    return NULL;
}

TEST(a_descriptor_wakes_who_waits_for_it)
{
    fl_runtime *rt = runtime(1);
    struct pipe_pair pair = new_pipe();
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, write_later, &pair), 0);
        finish(spawn(rt, read_a_byte, &pair));
        pthread_join(thread, NULL);
    }
    close_pipe(pair);
    fl_runtime_free(rt);
}

static void wait_in_vain(void *arg)
{
    struct pipe_pair *pair = arg;
    uint64_t before_ns = fl_coro_now_ns();
    CHECK_EQ(fl_coro_wait_fd(pair->in, FL_READ, 0), 0);
    CHECK_EQ(fl_coro_wait_fd(pair->in, FL_READ, 2 * MS), 0);
    CHECK(fl_coro_now_ns() >= before_ns + 2 * MS);
    CHECK_EQ(fl_coro_wait_fd(pair->out, FL_WRITE, 1000 * MS), FL_WRITE);
    CHECK_EQ(fl_coro_wait_fd(pair->out, FL_WRITE, 0), FL_WRITE);
    CHECK_EQ(fl_coro_wait_fd(-1, FL_READ, 0), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_coro_wait_fd(987654, FL_READ, 0), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_coro_wait_fd(987654, FL_READ, 1 * MS), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_coro_wait_fd(INT_MAX, FL_READ, 1 * MS), FL_INVALID_ARGUMENT);
    CHECK_EQ(fl_coro_wait_fd(pair->in, 64, 1 * MS), FL_INVALID_ARGUMENT);
}

TEST(a_wait_for_a_descriptor_ends_when_the_time_is_up)
{
    struct pipe_pair pair = new_pipe();
    run_on(1, wait_in_vain, &pair);
    close_pipe(pair);
}

TEST(outside_a_coroutine_the_thread_waits_for_a_descriptor)
{
    struct pipe_pair pair = new_pipe();
    CHECK_EQ(fl_coro_wait_fd(pair.in, FL_READ, 0), 0);
    CHECK_EQ(fl_coro_wait_fd(pair.in, FL_READ, 2 * MS), 0);
    CHECK_EQ(fl_coro_wait_fd(pair.out, FL_WRITE, FL_CORO_FOREVER), FL_WRITE);
    CHECK_EQ(fl_coro_wait_fd(987654, FL_READ, 0), FL_INVALID_ARGUMENT);
    close(pair.out);
    CHECK(fl_coro_wait_fd(pair.in, FL_READ, FL_CORO_FOREVER) & FL_HANGUP);
    close(pair.in);
}

static void work_in_slices(void *arg)
{
    atomic_bool *over = arg;
    while (!atomic_load(over)) {
        usleep(200);
        fl_coro_yield();
    }
}

static void wait_for_what_is_there(void *arg)
{
    static atomic_bool over;
    struct pipe_pair pair = *(struct pipe_pair *)arg;
    fl_coro *neighbour = spawn(NULL, work_in_slices, &over);
    CHECK_EQ(write(pair.out, "x", 1), 1);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(fl_coro_wait_fd(pair.in, FL_READ, 1), FL_READ);
        CHECK_EQ(fl_coro_wait_fd(pair.in, FL_READ, MS / 10), FL_READ);
    }
    atomic_store(&over, true);
    finish(neighbour);
}

TEST(what_is_ready_is_found_however_short_the_wait)
{
    struct pipe_pair pair = new_pipe();
    run_on(1, wait_for_what_is_there, &pair);
    close_pipe(pair);
}

static void check_plain_file(int fd)
{
    uint64_t timeouts_ns[] = {0, 1, 1000 * MS, FL_CORO_FOREVER};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(fl_coro_wait_fd(fd, FL_READ, timeouts_ns[i]), FL_READ);
        CHECK_EQ(fl_coro_wait_fd(fd, FL_READ | FL_WRITE, timeouts_ns[i]), FL_READ | FL_WRITE);
        CHECK_EQ(fl_coro_wait_fd(987654, FL_READ, timeouts_ns[i]), FL_INVALID_ARGUMENT);
    }
}

static void wait_for_plain_file(void *arg)
{
    check_plain_file(*(int *)arg);
}

TEST(a_plain_file_is_always_ready)
{
    FILE *file = tmpfile();
    CHECK(file);
    static int fd;
    fd = fileno(file);
    check_plain_file(fd);
    run_on(1, wait_for_plain_file, &fd);
    fclose(file);
}

/* A socket whose other side has closed its sending direction: that is a hang-up for who asks for it. */
struct half_closed {
    int fd;
    int result;
};

static void wait_for_read(void *arg)
{
    struct half_closed *wait = arg;
    wait->result = fl_coro_wait_fd(wait->fd, FL_READ, FL_CORO_FOREVER);
}

static void wait_for_hang_up(void *arg)
{
    struct half_closed *wait = arg;
    wait->result = fl_coro_wait_fd(wait->fd, FL_READ | FL_HANGUP, FL_CORO_FOREVER);
}

static void wait_for_half_closed(void *arg)
{
    int *fds = arg;
    static struct half_closed waits[3];
    fl_coro *coros[3];
    for (int i = 0; i < 3; i++) {
        waits[i].fd = fds[0];
        coros[i] = spawn(NULL, i == 1 ? wait_for_hang_up : wait_for_read, &waits[i]);
    }
    fl_coro_yield();
    CHECK_EQ(shutdown(fds[1], SHUT_WR), 0);
    for (int i = 0; i < 3; i++) {
        finish(coros[i]);
        CHECK_EQ(waits[i].result, i == 1 ? FL_READ | FL_HANGUP : FL_READ);
    }
    CHECK_EQ(fl_coro_wait_fd(fds[0], FL_READ, 0), FL_READ);
    CHECK_EQ(fl_coro_wait_fd(fds[0], FL_READ | FL_HANGUP, 0), FL_READ | FL_HANGUP);

    for (int i = 0; i < 3; i++)
        coros[i] = spawn(NULL, i == 1 ? wait_for_hang_up : wait_for_read, &waits[i]);
    CHECK_EQ(close(fds[1]), 0); /* now both directions are */
    for (int i = 0; i < 3; i++) {
        finish(coros[i]);
        CHECK_EQ(waits[i].result, FL_READ | FL_HANGUP);
    }
}

TEST(half_a_hang_up_comes_to_who_asks_for_it_and_a_whole_one_to_all)
{
    int fds[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    run_on(1, wait_for_half_closed, fds);
    close(fds[0]);
}

/* Counts what the loop asks of the kernel. */
static atomic_int controls;

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    atomic_fetch_add(&controls, 1);
    return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

static int waiting_again;

static void wait_twice(void *arg)
{
    struct half_closed *wait = arg;
    CHECK_EQ(fl_coro_wait_fd(wait->fd, FL_READ, 2 * MS), 0);
    waiting_again++;
    wait->result = fl_coro_wait_fd(wait->fd, FL_READ, FL_CORO_FOREVER);
}

static void wait_in_a_crowd(void *arg)
{
    enum { READERS = 500 };
    int *fds = arg;
    struct half_closed *waits = calloc(READERS, sizeof(*waits));
    fl_coro **coros = calloc(READERS, sizeof(fl_coro *));
    int before = atomic_load(&controls);
    for (int i = 0; i < READERS; i++) {
        waits[i].fd = fds[0];
        coros[i] = spawn(NULL, wait_twice, &waits[i]);
    }
    while (waiting_again < READERS)
        CHECK_EQ(fl_sleep_ms(1), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(fl_coro_wait_fd(fds[0], FL_WRITE, FL_CORO_FOREVER), FL_WRITE);
    for (int i = 0; i < READERS; i++)
        CHECK_EQ(waits[i].result, 0);
    CHECK_EQ(write(fds[1], "x", 1), 1);
    for (int i = 0; i < READERS; i++) {
        finish(coros[i]);
        CHECK_EQ(waits[i].result, FL_READ);
    }
    CHECK(atomic_load(&controls) - before <= 40);
    free(waits);
    free(coros);
}

TEST(a_crowd_at_one_descriptor_asks_the_kernel_for_what_is_new_alone)
{
    int fds[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    run_on(1, wait_in_a_crowd, fds);
    close(fds[0]);
    close(fds[1]);
}

static void wait_for_the_end(void *arg)
{
    struct pipe_pair *pair = arg;
    CHECK(fl_coro_wait_fd(pair->in, FL_READ, FL_CORO_FOREVER) & FL_HANGUP);
}

static void two_readers(void *arg)
{
    struct pipe_pair pair = *(struct pipe_pair *)arg;
    fl_coro *a = spawn(NULL, wait_for_the_end, arg), *b = spawn(NULL, wait_for_the_end, arg);
    CHECK_EQ(fl_coro_wait_fd(pair.in, FL_READ, 2 * MS), 0); /* they stay when one of three leaves */
    close(pair.out);
    finish(a);
    finish(b);
}

TEST(several_may_wait_for_one_descriptor)
{
    struct pipe_pair pair = new_pipe();
    run_on(1, two_readers, &pair);
    close(pair.in);
}

/* On a clock that stands still: one of the crowd lets the time pass, the one who waits gets into the queue behind all of
 * them, and another one in the middle writes to the pipe, turns before the queue has come to its end. */
struct late_event {
    struct test_clock time;
    struct pipe_pair pair;
    atomic_bool waiting, passed, written, over;
    int result;
};

enum { CROWD = 2000 };

static struct late_event late_event;

static void wait_a_bit(void *arg)
{
    (void)arg;
    atomic_store(&late_event.waiting, true);
    late_event.result = fl_coro_wait_fd(late_event.pair.in, FL_READ, 1 * MS);
    atomic_store(&late_event.over, true);
}

static void be_in_the_crowd(void *arg)
{
    uintptr_t number = (uintptr_t)arg;
    while (!atomic_load(&late_event.over)) {
        if (number == 0 && atomic_load(&late_event.waiting) && !atomic_exchange(&late_event.passed, true))
            atomic_fetch_add(&late_event.time.time_ns, 2 * MS);
        if (number == CROWD / 2 && atomic_load(&late_event.passed) && !atomic_exchange(&late_event.written, true))
            CHECK_EQ(write(late_event.pair.out, "x", 1), 1);
        fl_coro_yield();
    }
}

static void stand_still(fl_clock *clock, uint64_t deadline_ns)
{
    (void)clock, (void)deadline_ns;
    sched_yield();
}

TEST(an_event_after_the_time_is_up_and_before_its_coroutine_runs_loses_nobody)
{
    static fl_coro *coros[CROWD];
    late_event.pair = new_pipe();
    late_event.time = (struct test_clock){{test_clock_now, stand_still}, 1000};
    fl_runtime_config config = {.workers = 1, .clock = &late_event.time.clock};
    fl_runtime *rt;
    CHECK_EQ(fl_runtime_new(&config, &rt), 0);
    for (uintptr_t i = 0; i < CROWD; i++)
        coros[i] = spawn(rt, be_in_the_crowd, (void *)i);
    finish(spawn(rt, wait_a_bit, NULL));
    for (int i = 0; i < CROWD; i++)
        finish(coros[i]); /* hangs if somebody has dropped out of the queue */
    CHECK(late_event.result == 0 || late_event.result == FL_READ);
    fl_runtime_free(rt);
    close_pipe(late_event.pair);
}

/* --- Timers of the runtime */

enum { PIECES = 100 };

struct busy {
    fl_runtime *rt;
    atomic_uint pieces, fired_after; /* UINT_MAX: it has not fired */
};

static uint64_t ticks_of(fl_runtime *rt)
{
    struct fl_runtime_stats stats;
    CHECK_EQ(fl_runtime_stats(rt, &stats), 0);
    return stats.metronome.ticks;
}

static void work_for_a_tick(void *arg)
{
    struct busy *busy = arg;
    uint64_t ticks = ticks_of(busy->rt);
    if (atomic_fetch_add(&busy->pieces, 1) == PIECES - 1)
        return;
    while (atomic_load(&busy->fired_after) == UINT_MAX && ticks_of(busy->rt) == ticks)
        usleep(100);
}

static void on_busy_timer(void *arg)
{
    struct busy *busy = arg;
    atomic_store(&busy->fired_after, atomic_load(&busy->pieces));
}

static void spawn_pieces(void *arg)
{
    for (int i = 0; i < PIECES; i++)
        CHECK_EQ(fl_coro_spawn(NULL, NULL, work_for_a_tick, arg, NULL), 0);
}

TEST(timers_fire_between_two_coroutines_that_take_long)
{
    struct busy busy = {.rt = runtime(1), .fired_after = UINT_MAX};
    fl_timer *timer;
    CHECK_EQ(fl_timer_new(busy.rt, on_busy_timer, &busy, &timer), 0);
    CHECK_EQ(fl_timer_start_after(timer, 5 * MS), 0);
    finish(spawn(busy.rt, spawn_pieces, &busy));
    while (atomic_load(&busy.fired_after) == UINT_MAX)
        usleep(100);
    CHECK(atomic_load(&busy.fired_after) < PIECES);
    fl_timer_unref(timer);
    fl_runtime_free(busy.rt);
}

/* --- The end of the runtime */

static void sleep_for_ever(void *arg)
{
    (void)arg;
    fl_sleep_ns(UINT64_MAX);
}

static void read_for_ever(void *arg)
{
    fl_coro_wait_fd(((struct pipe_pair *)arg)->in, FL_READ, FL_CORO_FOREVER);
}

TEST(what_waits_ends_with_its_runtime)
{
    fl_runtime *rt = runtime(2);
    struct pipe_pair pair = new_pipe();
    fl_coro *coros[40];
    for (int i = 0; i < 40; i += 4) {
        coros[i] = spawn(rt, park_for_ever, NULL);
        coros[i + 1] = spawn(rt, sleep_for_ever, NULL);
        coros[i + 2] = spawn_own(rt, read_for_ever, &pair);
        coros[i + 3] = spawn(rt, join_it, coros[i]);
    }
    CHECK_EQ(fl_coro_wake_after(coros[0], 3600 * 1000 * MS, NULL), 0);
    usleep(3000);
    fl_runtime_free(rt);
    for (int i = 0; i < 40; i++) {
        fl_coro_unpark(coros[i]);
        CHECK_EQ(fl_coro_wake_after(coros[i], 0, NULL), 0);
        finish(coros[i]);
    }
    close_pipe(pair);
}

TEST(who_joins_a_coroutine_of_a_runtime_that_ends_goes_on)
{
    fl_runtime *rt = runtime(1), *other = runtime(1);
    fl_coro *coro = spawn(rt, park_for_ever, NULL), *joiner = spawn(other, join_it, coro);
    usleep(3000);
    fl_runtime_free(rt);
    finish(joiner);
    fl_coro_unref(coro);
    fl_runtime_free(other);
}

static void park_once(void *arg)
{
    (void)arg;
    fl_coro_park();
}

TEST(a_runtime_may_end_while_its_coroutines_join_those_of_another)
{
    fl_runtime *rt = runtime(1), *other = runtime(2);
    fl_coro *coro = spawn(rt, park_once, NULL);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(fl_coro_spawn(other, NULL, join_it, coro, NULL), 0);
    usleep(3000);
    fl_runtime_free(other);
    fl_coro_unpark(coro);
    finish(coro);
    fl_runtime_free(rt);
}

static void *free_runtime(void *arg)
{
    fl_runtime_free(arg);
    return NULL;
}

/* Half of them end by themselves; the two runtimes end at the same time, with coroutines that join each other. */
TEST(runtimes_whose_coroutines_join_each_other_may_end_together)
{
    enum { PAIRS = 30 };
    for (int round = 0; round < 30; round++) {
        fl_runtime *rts[2] = {runtime(2), runtime(1)};
        fl_coro *coros[PAIRS];
        pthread_t threads[2];
        for (int i = 0; i < PAIRS; i++) {
            coros[i] = spawn(rts[i % 2], i % 4 < 2 ? park_once : park_for_ever, NULL);
            CHECK_EQ(fl_coro_spawn(rts[(i + 1) % 2], NULL, join_it, coros[i], NULL), 0);
        }
        for (int i = 0; i < PAIRS; i++)
            fl_coro_unpark(coros[i]);
        for (int i = 0; i < 2; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, free_runtime, rts[i]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < PAIRS; i++)
            finish(coros[i]);
    }
}

TEST(a_runtime_may_end_before_its_coroutines_begin)
{
    for (int i = 0; i < 50; i++) {
        fl_runtime *rt = runtime(1);
        for (int j = 0; j < 20; j++)
            CHECK_EQ(fl_coro_spawn(rt, NULL, park_for_ever, NULL, NULL), 0);
        fl_runtime_free(rt);
    }
}

/* --- Memory */

static atomic_long blocks;

static void *counted_alloc(size_t size)
{
    atomic_fetch_add(&blocks, 1);
    return malloc(size);
}

static void *counted_resize(void *block, size_t size)
{
    atomic_fetch_add(&blocks, block == NULL);
    return realloc(block, size);
}

static void counted_release(void *block)
{
    atomic_fetch_sub(&blocks, block != NULL);
    free(block);
}

static atomic_int readers_asleep;
static atomic_bool runtime_ends;

/* The first one that wakes holds the worker until the runtime is about to end. */
static void sleep_as_reader(void *arg)
{
    struct pipe_pair *pair = arg;
    atomic_fetch_add(&readers_asleep, 1);
    fl_coro_wait_fd(pair->in, FL_READ, FL_CORO_FOREVER);
    if (!atomic_exchange(&runtime_ends, true))
        usleep(20000);
}

TEST(a_runtime_that_ends_between_an_event_and_its_coroutine_leaks_nothing)
{
    fl_allocator allocator = {counted_alloc, counted_resize, counted_release, NULL, NULL};
    struct pipe_pair pair = new_pipe();
    CHECK_EQ(fl_set_allocator(&allocator), 0);
    fl_runtime *rt = runtime(1);
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(fl_coro_spawn(rt, NULL, sleep_as_reader, &pair, NULL), 0);
    while (atomic_load(&readers_asleep) < 1000)
        usleep(100);
    CHECK_EQ(write(pair.out, "x", 1), 1);
    while (!atomic_load(&runtime_ends))
        usleep(100);
    fl_runtime_free(rt);
    CHECK_EQ(blocks, 0);
    CHECK_EQ(fl_set_allocator(NULL), 0);
    close_pipe(pair);
}

/* --- No memory */

static atomic_int allocations_left = 1 << 30;

static bool may_allocate(void)
{
    return atomic_fetch_sub(&allocations_left, 1) > 0;
}

static void *failing_alloc(size_t size)
{
    return may_allocate() ? malloc(size) : NULL;
}

static void *failing_resize(void *block, size_t size)
{
    return may_allocate() ? realloc(block, size) : NULL;
}

static void do_a_bit_of_all(void *arg)
{
    (void)arg;
    fl_coro_yield();
    if (fl_sleep_ns(1000) < 0)
        fl_coro_yield();
    fl_coro_unpark(fl_coro_self());
    fl_coro_park();
}

/* Whatever fails, what has been spawned runs to its end as soon as there is memory again. */
TEST(running_out_of_memory_loses_nothing)
{
    fl_allocator allocator = {failing_alloc, failing_resize, free, NULL, NULL};
    CHECK_EQ(fl_set_allocator(&allocator), 0);
    fl_runtime *rt = runtime(1);
    for (int n = 0; n < 60; n++) {
        fl_coro *coros[10] = {NULL};
        atomic_store(&allocations_left, n);
        for (int i = 0; i < 10; i++)
            if (fl_coro_spawn(rt, NULL, do_a_bit_of_all, NULL, &coros[i]) < 0)
                coros[i] = NULL;
        usleep(500);
        atomic_store(&allocations_left, 1 << 30);
        for (int i = 0; i < 10; i++)
            if (coros[i])
                finish(coros[i]);
    }
    fl_runtime_free(rt);
    CHECK_EQ(fl_set_allocator(NULL), 0);
}
