/* SPDX-License-Identifier: MIT */
/* The runtime under load while workers come and go: 0 to 8 of them, over and over, thousands of times, while threads
 * outside and callbacks on workers start, restart and cancel timers. Each timer is checked against its contract:
 *
 *   solo     one thread rules a timer and starts, moves and cancels it; it knows exactly what must come of it
 *   shared   many threads and workers start and cancel the same timers, all for one moment; none fires before it, the
 *            books agree afterwards
 *   chains   callbacks start their own timer again on their worker; each link is called once
 *
 * With FOLIOT_SOAK set it takes minutes.
 */

#include <pthread.h>
#include <stdlib.h>

#include "rt.h"

enum {
#ifdef __SANITIZE_THREAD__
    RESIZES = 400, /* making a thread takes milliseconds */
#else
    RESIZES = 2000,
#endif
    SOAK = 40, /* times as long */
    MAX_WORKERS = 8,
    SOLO_THREADS = 2,
    SOLO_TIMERS = 64, /* a thread */
    SHARED_THREADS = 2,
    SHARED_TIMERS = 64,
    CHAINS = 16,
};

static fl_runtime *rt;
static atomic_bool done;

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

/* --- One thread rules */

struct solo {
    fl_timer *timer;
    _Atomic uint64_t not_before_ns;
    atomic_uint calls;
};

static void on_solo(void *arg)
{
    struct solo *solo = arg;
    CHECK(now_ns() >= atomic_load(&solo->not_before_ns));
    atomic_fetch_add(&solo->calls, 1);
}

static void start_solo(struct solo *solo, uint64_t delay_ns)
{
    uint64_t deadline_ns = now_ns() + delay_ns;
    atomic_store(&solo->not_before_ns, deadline_ns);
    CHECK_EQ(fl_timer_start(solo->timer, deadline_ns), 0);
}

/* Started for an hour or for soon, and cancelled; what cancel says is true. */
static void start_and_cancel(struct solo *solo, uint64_t random)
{
    unsigned before = atomic_load(&solo->calls);
    start_solo(solo, random % 4 == 0 ? HOUR : random / 4 % 200000);
    if (random >> 32 & 1)
        pause_briefly();
    if (fl_timer_cancel(solo->timer)) {
        CHECK_EQ(atomic_load(&solo->calls), before);
    } else {
        AWAIT(atomic_load(&solo->calls) == before + 1);
    }
}

/* An hour away, and moved to soon: called once, by the new deadline. */
static void move_nearer(struct solo *solo, uint64_t random)
{
    unsigned before = atomic_load(&solo->calls);
    start_solo(solo, HOUR);
    if (random >> 32 & 1)
        pause_briefly();
    start_solo(solo, random % 200000);
    AWAIT(atomic_load(&solo->calls) == before + 1);
}

/* A timer of its own, because a call may be on its way for some time. */
struct away {
    fl_timer *timer;
    unsigned near_starts;
    atomic_uint calls;
};

static void on_away(void *arg)
{
    struct away *away = arg;
    atomic_fetch_add(&away->calls, 1);
}

/* Soon, and moved an hour away: the first may have been called, the second surely can be cancelled. */
static void move_away(struct away *away, uint64_t random)
{
    away->near_starts++;
    CHECK_EQ(fl_timer_start_after(away->timer, random % 100000), 0);
    CHECK_EQ(fl_timer_start_after(away->timer, HOUR), 0);
    CHECK(fl_timer_cancel(away->timer));
    CHECK(atomic_load(&away->calls) <= away->near_starts);
}

static void *rule(void *arg)
{
    static struct solo all[SOLO_THREADS][SOLO_TIMERS];
    static struct away all_away[SOLO_THREADS];
    uint64_t seed = (uintptr_t)arg;
    struct solo *mine = all[seed];
    struct away *away = &all_away[seed];
    CHECK_EQ(fl_timer_new(rt, on_away, away, &away->timer), 0);
    for (unsigned i = 0; i < SOLO_TIMERS; i++)
        CHECK_EQ(fl_timer_new(rt, on_solo, &mine[i], &mine[i].timer), 0);
    for (uint64_t n = 0; !atomic_load(&done); n++) {
        uint64_t random = next_random(&seed);
        struct solo *solo = &mine[random % SOLO_TIMERS];
        if (n % 3 == 0)
            start_and_cancel(solo, random >> 8);
        else if (n % 3 == 1)
            move_nearer(solo, random >> 8);
        else
            move_away(away, random >> 8);
    }
    for (unsigned i = 0; i < SOLO_TIMERS; i++)
        fl_timer_unref(mine[i].timer);
    fl_timer_unref(away->timer);
    return NULL;
}

/* --- Many threads at the same timers */

struct shared {
    fl_timer *timer;
    _Atomic uint64_t deadline_ns;
    atomic_ullong starts, cancels, calls;
};

static struct shared shared[SHARED_TIMERS];
static atomic_uint tasks_waiting;

static void on_shared(void *arg)
{
    struct shared *one = arg;
    CHECK(now_ns() >= atomic_load(&one->deadline_ns));
    atomic_fetch_add(&one->calls, 1);
}

static void use_shared(uint64_t random)
{
    struct shared *one = &shared[random % SHARED_TIMERS];
    if (random >> 32 & 3) {
        CHECK_EQ(fl_timer_start(one->timer, atomic_load(&one->deadline_ns)), 0);
        atomic_fetch_add(&one->starts, 1);
    } else if (fl_timer_cancel(one->timer)) {
        atomic_fetch_add(&one->cancels, 1);
    }
}

static void use_shared_on_worker(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    for (int i = 0; i < 20; i++)
        use_shared(next_random(&seed));
    atomic_fetch_sub(&tasks_waiting, 1);
}

static void *hammer(void *arg)
{
    uint64_t seed = 1000 + (uintptr_t)arg;
    while (!atomic_load(&done)) {
        for (int i = 0; i < 10; i++)
            use_shared(next_random(&seed));
        if (atomic_load(&tasks_waiting) < 2 * MAX_WORKERS) {
            atomic_fetch_add(&tasks_waiting, 1);
            CHECK_EQ(fl_runtime_spawn(rt, use_shared_on_worker, (void *)(uintptr_t)next_random(&seed)), 0);
        }
        pause_briefly();
    }
    return NULL;
}

/* --- Chains */

struct chain {
    fl_timer *timer;
    uint64_t deadline_ns;
    atomic_uint calls;
    unsigned length;
};

static void on_chain(void *arg)
{
    struct chain *chain = arg;
    CHECK(now_ns() >= chain->deadline_ns);
    unsigned calls = atomic_fetch_add(&chain->calls, 1) + 1;
    if (calls == chain->length)
        return;
    chain->deadline_ns = now_ns() + calls * 7919 % 100000;
    CHECK_EQ(fl_timer_start(chain->timer, chain->deadline_ns), 0);
}

/* --- All of it */

static unsigned resizes(void)
{
    return getenv("FOLIOT_SOAK") ? RESIZES * SOAK : RESIZES;
}

static void start_shared(uint64_t moment_ns)
{
    for (unsigned i = 0; i < SHARED_TIMERS; i++) {
        atomic_store(&shared[i].deadline_ns, moment_ns + i * 1000);
        CHECK_EQ(fl_timer_new(rt, on_shared, &shared[i], &shared[i].timer), 0);
    }
}

static void start_chains(struct chain *chains, unsigned length)
{
    for (unsigned i = 0; i < CHAINS; i++) {
        chains[i] = (struct chain){.length = length, .deadline_ns = now_ns() + MS};
        CHECK_EQ(fl_timer_new(rt, on_chain, &chains[i], &chains[i].timer), 0);
        CHECK_EQ(fl_timer_start(chains[i].timer, chains[i].deadline_ns), 0);
    }
}

static void keep_resizing(unsigned times)
{
    uint64_t seed = 42;
    for (unsigned i = 0; i < times; i++) {
        unsigned workers = i % 16 == 15 ? 0 : 1 + next_random(&seed) % MAX_WORKERS;
        CHECK_EQ(fl_runtime_resize(rt, workers), 0);
        if (i % 4 == 0)
            pause_briefly();
    }
    CHECK_EQ(fl_runtime_resize(rt, 2), 0);
}

static void check_shared(void)
{
    for (unsigned i = 0; i < SHARED_TIMERS; i++) {
        struct shared *one = &shared[i];
        CHECK(atomic_load(&one->calls) + atomic_load(&one->cancels) <= atomic_load(&one->starts));
        fl_timer_unref(one->timer);
    }
}

TEST(no_timer_is_lost_early_or_called_twice_while_workers_come_and_go)
{
    static struct chain chains[CHAINS];
    pthread_t threads[SOLO_THREADS + SHARED_THREADS];
    rt = make_runtime(1);
    start_shared(now_ns() + 100 * MS);
    start_chains(chains, resizes() / 4);
    for (uintptr_t i = 0; i < SOLO_THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, rule, (void *)i), 0);
    for (uintptr_t i = SOLO_THREADS; i < SOLO_THREADS + SHARED_THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, hammer, (void *)i), 0);
    keep_resizing(resizes());
    atomic_store(&done, true);
    for (unsigned i = 0; i < SOLO_THREADS + SHARED_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < CHAINS; i++) {
        AWAIT(atomic_load(&chains[i].calls) == chains[i].length);
        fl_timer_unref(chains[i].timer);
    }
    AWAIT(atomic_load(&tasks_waiting) == 0);
    AWAIT(stats_of(rt).pending == 0);
    struct fl_runtime_stats stats = stats_of(rt);
    CHECK_EQ(stats.scheduled, stats.fired + stats.cancelled + stats.rescheduled);
    CHECK(stats.migrated > 0);
    printf("# %ju starts, %ju fired, %ju cancelled, %ju moved, %ju handed over\n", (uintmax_t)stats.scheduled,
           (uintmax_t)stats.fired, (uintmax_t)stats.cancelled, (uintmax_t)stats.rescheduled, (uintmax_t)stats.migrated);
    check_shared();
    fl_runtime_free(rt);
    for (unsigned i = 0; i < CHAINS; i++)
        CHECK_EQ(atomic_load(&chains[i].calls), chains[i].length);
}
