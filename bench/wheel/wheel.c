/* SPDX-License-Identifier: MIT */
/* The benchmark of the wheel: what is measured, and against whom.
 *
 * A rival lives two lives at each size. In the first it is filled with N timers spread over an hour (W1), timers are
 * cancelled and scheduled anew (W3), moved (W3r), both while the clock runs (W3c), and in the end all are cancelled
 * (W2). In the second it is filled with N timers spread over ten seconds, and they expire (W4). Some also live a third life,
 * in which two hours pass before the measurement, so that every timer has fired and been scheduled anew several times (A2,
 * A3). Ours have to show that there are no pauses when all timers are due in one millisecond (P1 to P3).
 *
 * The structure is filled in the order in which the handles lie in memory, as by a server that has just started: any
 * other order would cost those most who link the handles themselves. From then on timers are used in random order, as in
 * a server that has run for a while. The order is a permutation, made before and read in sequence, so that the harness
 * itself costs no cache miss; what misses is the timer's handle. Each handle begins a cache line of its own, because it
 * lies in some object of the program: packing 4-byte or 8-byte handles would flatter those who have them. All rivals
 * get the same permutations and the same delays. */

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../frame.h"
#include "rival.h"
#include "virtual_clock.h"

#define MS_NS 1000000u
#define SECOND_NS 1000000000u
#define HOUR_NS (3600ull * SECOND_NS)
#define EXPIRY_POLLS 10003u /* ten seconds, and a little because some libraries are a tick late */
#define CHANGES_PER_POLL 20u
#define IDLE_TIMERS 1000u
#define AGING_POLLS 7200u
#define CROWD_LIMIT 1024u
#define CACHE_LINE 64u

enum measure { W1, W2, W3, W3R, W3C, W3L, A2, A3, W4, W4T, W4L, W5, W6, P1, P2, P3, N_MEASURES };

static const struct {
    const struct timer_rival *rival;
    bool ages; /* takes part in A2 and A3, which take long */
} entrants[] = {
    {&rival_nodes, true}, {&rival_foliot, true}, {&rival_libuv, false},  {&rival_libevent, false},
    {&rival_libev, true}, {&rival_heap, true},   {&rival_rbtree, false}, {&rival_none, true},
};

void (*timer_fired)(void *handle);

/* ---- a rival's life ---- */

struct life {
    const struct timer_rival *rival;
    void *self;
    char *handles;
    size_t timers, stride;
    const uint32_t *order; /* of handles; NULL: as they lie in memory */
    size_t order_at;
    uint64_t *delays; /* as the rival wants them; used round and round */
    size_t delays_count, delays_at;
    size_t changes; /* how many the next piece of work makes */
    size_t fired;
};

static struct life *living; /* whose timers fire */

/* Random, and as many as begin_life() says. */
static uint64_t *make_delays(const struct timer_rival *rival, size_t count, uint64_t limit_ns)
{
    uint64_t seed = 2;
    uint64_t *delays = malloc(count * sizeof *delays);
    if (!delays)
        bench_die("no memory for %zu delays", count);
    for (size_t i = 0; i < count; i++)
        delays[i] = rival->encode(MS_NS + bench_random_below(&seed, limit_ns - MS_NS));
    return delays;
}

/* Touches as much memory as a library may want and gives it back. Pages that nobody has used for a while may be far
 * away: a virtual machine has to get them from its host, which takes several times as long as clearing them. */
static void warm_memory(size_t timers)
{
    size_t size = timers * 40;
    bench_unmap(bench_map(size, false), size);
}

static void begin_life(struct life *life, unsigned entrant, size_t timers, size_t alignment, uint64_t limit_ns)
{
    const struct timer_rival *rival = entrants[entrant].rival;
    bench_allow_huge_pages(false);
    virtual_clock_reset();
    /* At small sizes, delays must not go round in step with the order of timers. */
    *life = (struct life){.rival = rival, .timers = timers, .delays_count = (timers > 65536 ? timers : 65536) + 1};
    life->stride = (rival->handle_size + alignment - 1) / alignment * alignment;
    life->delays = make_delays(rival, life->delays_count, limit_ns);
    life->handles = bench_map(timers * life->stride, false);
    warm_memory(timers);
    life->self = rival->create(false);
    for (size_t i = 0; i < timers; i++)
        rival->prepare(life->self, life->handles + i * life->stride);
    living = life;
}

static void end_life(struct life *life)
{
    life->rival->destroy(life->self);
    bench_unmap(life->handles, life->timers * life->stride);
    free(life->delays);
}

static inline void *next_handle(struct life *life)
{
    if (life->order_at == life->timers)
        life->order_at = 0;
    size_t i = life->order_at++;
    return life->handles + (life->order ? life->order[i] : i) * life->stride;
}

static inline uint64_t next_delay(struct life *life)
{
    if (life->delays_at == life->delays_count)
        life->delays_at = 0;
    return life->delays[life->delays_at++];
}

/* ---- pieces of work ---- */

static void fill(void *arg)
{
    struct life *life = arg;
    for (size_t i = 0; i < life->timers; i++)
        life->rival->schedule(life->self, next_handle(life), next_delay(life));
}

static void cancel_all(void *arg)
{
    struct life *life = arg;
    for (size_t i = 0; i < life->timers; i++)
        life->rival->cancel(life->self, next_handle(life));
}

static void cancel_and_schedule(void *arg)
{
    struct life *life = arg;
    for (size_t i = 0; i < life->changes; i++) {
        void *handle = next_handle(life);
        life->rival->cancel(life->self, handle);
        life->rival->schedule(life->self, handle, next_delay(life));
    }
}

static void reschedule(void *arg)
{
    struct life *life = arg;
    for (size_t i = 0; i < life->changes; i++) {
        void *handle = next_handle(life);
        life->rival->reschedule(life->self, handle, next_delay(life));
    }
}

static void do_inside(struct life *life, void (*work)(void *))
{
    if (life->rival->inside)
        life->rival->inside(life->self, work, life);
    else
        work(life);
}

/* CPU time of a piece of work that uses the timers in `order`; NULL: as they lie in memory. */
static double time_of(struct life *life, void (*work)(void *), const uint32_t *order)
{
    life->order = order;
    life->order_at = 0;
    uint64_t begin = bench_cpu_ns();
    do_inside(life, work);
    return (double)(bench_cpu_ns() - begin);
}

static void fire_and_count(void *handle)
{
    (void)handle;
    living->fired++;
}

static void fire_and_touch(void *handle)
{
    *(volatile unsigned char *)handle;
    living->fired++;
}

static void fire_and_schedule(void *handle)
{
    living->fired++;
    living->rival->schedule(living->self, handle, next_delay(living));
}

/* Event loops tell the kernel about their own descriptors when they first look for events, once a life. Nothing is due
 * yet. */
static void poll_first(struct life *life)
{
    timer_fired = fire_and_count;
    life->rival->poll(life->self);
}

/* ---- the measures ---- */

/* Random orders for the present size, the same for all rivals. */
static const uint32_t *order_number(unsigned number, size_t size)
{
    static uint32_t *orders[2];
    static size_t made_for;
    if (made_for != size) {
        for (unsigned i = 0; i < 2; i++) {
            free(orders[i]);
            orders[i] = bench_permutation(10 + i, size);
        }
        made_for = size;
    }
    return orders[number];
}

static void churn_with_clock(struct bench_run *run, struct life *life, size_t changes, const uint32_t *order)
{
    size_t polls = changes / CHANGES_PER_POLL;
    double us_per_tick = bench_tick_ns() / 1000, *steps = malloc(polls * sizeof *steps);
    if (!steps)
        bench_die("no memory for %zu polls", polls);
    timer_fired = fire_and_schedule;
    life->changes = CHANGES_PER_POLL;
    life->order = order;
    life->order_at = 0;
    uint64_t begin = bench_cpu_ns();
    for (size_t i = 0; i < polls; i++) {
        virtual_clock_advance(MS_NS);
        uint64_t poll_begin = bench_ticks();
        life->rival->poll(life->self);
        steps[i] = (double)(bench_ticks() - poll_begin) * us_per_tick;
        do_inside(life, cancel_and_schedule);
    }
    bench_record(run, W3C, (double)(bench_cpu_ns() - begin) / (double)(polls * CHANGES_PER_POLL));
    bench_record_steps(run, W3L, steps, polls);
    free(steps);
}

static void run_first_life(struct bench_run *run, unsigned entrant, size_t size, size_t changes)
{
    struct life life;
    const uint32_t *first = order_number(0, size), *second = order_number(1, size);
    begin_life(&life, entrant, size, CACHE_LINE, HOUR_NS);
    bench_working_on(run, W1);
    bench_record(run, W1, time_of(&life, fill, NULL) / (double)size);
    poll_first(&life);
    life.changes = changes;
    bench_working_on(run, W3);
    bench_record(run, W3, time_of(&life, cancel_and_schedule, first) / (double)changes);
    bench_working_on(run, W3R);
    bench_record(run, W3R, time_of(&life, reschedule, second) / (double)changes);
    bench_working_on(run, W3C);
    churn_with_clock(run, &life, changes, first);
    bench_working_on(run, W2);
    bench_record(run, W2, time_of(&life, cancel_all, second) / (double)size);
    end_life(&life);
}

static void run_second_life(struct bench_run *run, unsigned entrant, size_t size, unsigned measure)
{
    static double steps[EXPIRY_POLLS];
    double us_per_tick = bench_tick_ns() / 1000;
    struct life life;
    bench_working_on(run, measure);
    begin_life(&life, entrant, size, CACHE_LINE, 10ull * SECOND_NS);
    time_of(&life, fill, NULL);
    poll_first(&life);
    timer_fired = measure == W4T ? fire_and_touch : fire_and_count;
    uint64_t begin = bench_cpu_ns(), last = bench_ticks();
    for (unsigned i = 0; i < EXPIRY_POLLS; i++) {
        virtual_clock_advance(MS_NS);
        life.rival->poll(life.self);
        uint64_t now = bench_ticks();
        steps[i] = (double)(now - last) * us_per_tick;
        last = now;
    }
    double cost_ns = (double)(bench_cpu_ns() - begin) / (double)size;
    if (life.fired != size && life.rival != &rival_none)
        bench_die("%zu timers of %zu have fired", life.fired, size);
    bench_record(run, measure, cost_ns);
    if (measure == W4) {
        bench_record_steps(run, W4L, steps, EXPIRY_POLLS);
        if (!life.rival->leaves_handle)
            bench_record(run, W4T, cost_ns);
    }
    end_life(&life);
}

/* Two hours pass: timers that fire are scheduled anew, so the structure has turned over more than twice. */
static void run_aged_life(struct bench_run *run, unsigned entrant, size_t size, size_t changes)
{
    struct life life;
    const uint32_t *first = order_number(0, size), *second = order_number(1, size);
    bench_working_on(run, A3);
    begin_life(&life, entrant, size, CACHE_LINE, HOUR_NS);
    time_of(&life, fill, first);
    timer_fired = fire_and_schedule;
    for (unsigned i = 0; i < AGING_POLLS; i++) {
        virtual_clock_advance(2 * HOUR_NS / AGING_POLLS);
        life.rival->poll(life.self);
    }
    life.changes = changes;
    bench_record(run, A3, time_of(&life, cancel_and_schedule, second) / (double)changes);
    bench_working_on(run, A2);
    bench_record(run, A2, time_of(&life, cancel_all, first) / (double)size);
    end_life(&life);
}

/* N timers within one millisecond, an hour away, and no poll before they are due. */
static void run_crowd(struct bench_run *run, unsigned entrant, size_t size)
{
    struct life life;
    double us_per_tick = bench_tick_ns() / 1000, *steps = malloc((size / CROWD_LIMIT + 2) * sizeof *steps);
    size_t polls = 0, fired = 0, n;
    if (!steps)
        bench_die("no memory for %zu polls", size / CROWD_LIMIT);
    bench_working_on(run, P1);
    begin_life(&life, entrant, size, CACHE_LINE, MS_NS * 2);
    virtual_clock_advance(HOUR_NS);
    time_of(&life, fill, order_number(0, size));
    virtual_clock_advance(MS_NS * 2);
    uint64_t begin = bench_cpu_ns();
    do {
        uint64_t poll_begin = bench_ticks();
        n = life.rival->poll_some(life.self, CROWD_LIMIT);
        steps[polls++] = (double)(bench_ticks() - poll_begin) * us_per_tick;
        fired += n;
    } while (n == CROWD_LIMIT);
    bench_record(run, P2, (double)(bench_cpu_ns() - begin) / (double)size);
    bench_record_steps(run, P1, steps, polls);
    if (fired != size)
        bench_die("%zu timers of %zu have fired", fired, size);
    free(steps);
    end_life(&life);
}

static int compare_deadlines(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (left[0] > right[0]) - (left[0] < right[0]);
}

/* N timers within one millisecond: the earliest is cancelled, the next deadline is asked for, again and again. */
static void run_earliest(struct bench_run *run, unsigned entrant, size_t size)
{
    struct life life;
    uint64_t(*timers)[2] = malloc(size * sizeof *timers), next_ns;
    if (!timers)
        bench_die("no memory for %zu timers", size);
    bench_working_on(run, P3);
    begin_life(&life, entrant, size, CACHE_LINE, MS_NS * 2);
    virtual_clock_advance(HOUR_NS);
    for (size_t i = 0; i < size; i++) {
        timers[i][0] = next_delay(&life);
        timers[i][1] = i;
        life.rival->schedule(life.self, life.handles + i * life.stride, timers[i][0]);
    }
    qsort(timers, size, sizeof *timers, compare_deadlines);
    uint64_t begin = bench_cpu_ns();
    size_t count = size / 2 < 1000000 ? size / 2 : 1000000;
    for (size_t i = 0; i < count; i++) {
        life.rival->cancel(life.self, life.handles + timers[i][1] * life.stride);
        if (!life.rival->next_deadline(life.self, &next_ns) || next_ns != virtual_clock_ns() + timers[i + 1][0])
            bench_die("the next deadline is wrong");
    }
    bench_record(run, P3, (double)(bench_cpu_ns() - begin) / (double)count);
    free(timers);
    end_life(&life);
}

static void run_idle(struct bench_run *run, unsigned entrant)
{
    struct life life;
    unsigned polls = bench_is_quick(run) ? 200000 : 1000000;
    bench_working_on(run, W5);
    begin_life(&life, entrant, IDLE_TIMERS, CACHE_LINE, HOUR_NS);
    for (size_t i = 0; i < IDLE_TIMERS; i++)
        life.rival->schedule(life.self, life.handles + i * life.stride, life.rival->encode(HOUR_NS));
    uint64_t begin = bench_cpu_ns();
    for (unsigned i = 0; i < polls; i++) {
        virtual_clock_advance(MS_NS);
        life.rival->poll(life.self);
    }
    bench_record(run, W5, (double)(bench_cpu_ns() - begin) / polls);
    end_life(&life);
}

static bool wants_any(const struct bench_run *run, unsigned first, unsigned last)
{
    for (unsigned m = first; m <= last; m++)
        if (bench_wants(run, m))
            return true;
    return false;
}

/* Small sizes are over so soon that the clock's own cost would show; they live several times. */
static void run_once(struct bench_run *run, unsigned entrant, size_t size)
{
    unsigned lives = size <= 10000 ? 10 : size <= 100000 ? 3 : 1;
    size_t changes = (bench_is_quick(run) ? 200000 : 1000000) / lives;
    for (unsigned i = 0; i < lives; i++) {
        if (wants_any(run, W1, W3L))
            run_first_life(run, entrant, size, changes);
        if (wants_any(run, W4, W4L))
            run_second_life(run, entrant, size, W4);
        if (bench_wants(run, W4T) && entrants[entrant].rival->leaves_handle)
            run_second_life(run, entrant, size, W4T);
    }
    if (entrants[entrant].ages && wants_any(run, A2, A3))
        run_aged_life(run, entrant, size, changes * lives);
    if (entrants[entrant].rival->poll_some && wants_any(run, P1, P2))
        run_crowd(run, entrant, size);
    if (entrants[entrant].rival->next_deadline && bench_wants(run, P3))
        run_earliest(run, entrant, size);
    if (bench_wants(run, W5))
        run_idle(run, entrant);
}

/* Memory of N timers, in a process that does nothing else: how much more of it is resident than before. The rival has
 * lived a short life already, so that what it needs but once, such as its library's own data, is there before. Here the
 * handles lie side by side. */
static double bytes_per_timer(unsigned measure, unsigned entrant, size_t size)
{
    struct life life;
    (void)measure;
    begin_life(&life, entrant, 1, 1, HOUR_NS);
    time_of(&life, fill, NULL);
    time_of(&life, cancel_all, NULL);
    end_life(&life);
    malloc_trim(0);

    uint64_t before = bench_resident_bytes();
    begin_life(&life, entrant, size, 1, HOUR_NS);
    time_of(&life, fill, NULL);
    free(life.delays);
    malloc_trim(0);
    return (double)(bench_resident_bytes() - before) / (double)size;
}

/* ---- does it work at all? ---- */

enum { CHECKED = 3000 };

static struct {
    uint64_t deadline_ns[CHECKED]; /* 0: not scheduled */
    unsigned entrant;
} checked;

static void fire_and_check(void *handle)
{
    size_t i = (size_t)((char *)handle - living->handles) / living->stride;
    uint64_t now_ns = virtual_clock_ns(), deadline_ns = checked.deadline_ns[i];
    if (deadline_ns == 0)
        bench_die("entrant %u: a timer fired that was not scheduled", checked.entrant);
    if (now_ns + 1000 < deadline_ns || now_ns > deadline_ns + 4 * MS_NS)
        bench_die("entrant %u: a timer fired %.3f ms after its deadline", checked.entrant,
                  ((double)now_ns - (double)deadline_ns) / 1e6);
    checked.deadline_ns[i] = 0;
    living->fired++;
}

static void change_one(struct life *life, size_t i, uint64_t delay_ns, bool keep)
{
    const struct timer_rival *rival = life->rival;
    void *handle = life->handles + i * life->stride;
    bool scheduled = checked.deadline_ns[i] != 0;
    if (scheduled && keep)
        rival->reschedule(life->self, handle, rival->encode(delay_ns));
    else if (scheduled)
        rival->cancel(life->self, handle);
    else
        rival->schedule(life->self, handle, rival->encode(delay_ns));
    checked.deadline_ns[i] = scheduled && !keep ? 0 : virtual_clock_ns() + delay_ns;
}

/* Schedules, cancels and moves timers at random while the clock runs. Every timer must fire at its time: that also
 * shows that the library lives by the virtual clock. */
static void check(unsigned entrant)
{
    struct life life;
    uint64_t random = 5;
    if (entrants[entrant].rival == &rival_none)
        return;
    checked.entrant = entrant;
    memset(checked.deadline_ns, 0, sizeof checked.deadline_ns);
    begin_life(&life, entrant, CHECKED, CACHE_LINE, 10ull * SECOND_NS);
    timer_fired = fire_and_check;
    for (unsigned i = 0; i < 20000; i++) {
        for (unsigned j = 0; j < 4 && i < 10000; j++)
            change_one(&life, bench_random_below(&random, CHECKED),
                       MS_NS + bench_random_below(&random, 8ull * SECOND_NS), bench_random(&random) & 1);
        virtual_clock_advance(MS_NS);
        life.rival->poll(life.self);
    }
    for (unsigned i = 0; i < CHECKED; i++)
        if (checked.deadline_ns[i] != 0)
            bench_die("entrant %u: a timer has not fired", entrant);
    if (life.fired == 0)
        bench_die("entrant %u: nothing has fired", entrant);
    end_life(&life);
}

/* ---- the benchmark ---- */

static const struct bench_measure measures[N_MEASURES] = {
    [W1] = {"W1", "schedule", "ns",
            "N timers are scheduled in an empty structure, in the order in which their handles lie in memory, with "
            "deadlines uniform over the next hour. Whatever memory the library takes on the way counts; the program's "
            "handles are there before."},
    [W2] = {"W2", "cancel", "ns", "All N timers are cancelled, in random order, at the end of their life."},
    [W3] = {"W3", "cancel + schedule", "ns",
            "With N timers alive, a random one is cancelled and scheduled anew with another deadline: two operations, "
            "counted as one."},
    [W3R] = {"W3r", "reschedule", "ns",
             "With N timers alive, a random one is moved to another deadline by the call the library has for that: "
             "`fl_nodes_start()`, `fl_wheel_reschedule()`, `uv_timer_start()`, `event_add()`, `ev_timer_again()`."},
    [W3C] = {"W3c", "churn while the clock runs", "ns",
             "As cancel + schedule, with a poll after every 20 such changes and a millisecond of virtual time between "
             "polls. Timers "
             "that fire are scheduled anew. Everything is counted: changes, polls, firing, scheduling."},
    [W3L] = {"W3l", "longest poll in the churn", "µs", "The longest of the churn's polls, in real time.",
             BENCH_LONGEST},
    [A2] =
        {"A2", "cancel, after two hours", "ns",
         "As cancel, after two hours of virtual time in which timers that fire are scheduled anew, so that the wheel "
         "has turned over more than twice. Timers are first scheduled in random order."},
    [A3] = {"A3", "cancel + schedule, after two hours", "ns", "As cancel + schedule, after the same two hours."},
    [W4] = {"W4", "expire", "ns",
            "N timers with deadlines uniform over ten seconds expire in 10 000 polls, a millisecond of virtual time "
            "apart. The callback counts. All polls together, divided by N."},
    [W4T] =
        {"W4t", "expire and touch", "ns",
         "As expire, but the callback also reads the handle, as most programs will. Libraries whose timers lie in the "
         "program's structures touch them anyway: for them this is the same."},
    [W4L] = {"W4l", "longest poll as they expire", "µs",
             "The longest of the polls in which they expire, in real time. This is the pause that a user of the "
             "program feels.",
             BENCH_LONGEST},
    [W5] = {"W5", "idle poll", "ns",
            "A poll that finds nothing to do: 1000 timers an hour away, a millisecond of virtual time between polls.",
            .fixed_size = IDLE_TIMERS},
    [W6] = {"W6", "memory per timer", "bytes",
            "How much more memory is resident with N timers scheduled than before: structure and handles together, "
            "divided by N. Measured in a process of its own for each figure, the same way for all.",
            BENCH_ISOLATED},
    [P1] = {"P1", "longest poll of a crowd", "µs",
            "N timers are due within one millisecond, an hour after they were scheduled, and nobody has polled in the "
            "meantime. They are taken out by polls with a limit of 1024. The longest of these polls, in real time.",
            BENCH_LONGEST},
    [P2] = {"P2", "expire in a crowd", "ns", "All these polls together, divided by N."},
    [P3] = {"P3", "cancel the earliest + next deadline", "ns",
            "With N timers within one millisecond, the earliest is cancelled and the next deadline is asked for, again "
            "and "
            "again."},
};

static const struct bench_rival rivals[] = {
    {"nodes",
     "The intrusive wheel, `foliot/nodes.h`. The handle is the node of 16 bytes. A poll takes out up to 128 nodes at a "
     "time.",
     NULL, .ours = true},
    {"foliot",
     "The wheel with IDs, `foliot/wheel.h`, with its default settings. The handle is the 8-byte ID. A poll takes out "
     "up "
     "to 128 timers at a time.",
     NULL, .ours = true},
    {"libuv",
     "A binary heap linked through the timers themselves. Driven by `uv_run(UV_RUN_NOWAIT)`, cancelled by "
     "`uv_timer_stop()`; the handle is `uv_timer_t`.",
     libuv_version},
    {"libevent",
     "A binary heap of pointers. Driven by `event_base_loop(EVLOOP_ONCE | EVLOOP_NONBLOCK)`; all changes are "
     "made inside of a callback, where libevent knows the time without asking; the handle is `struct "
     "event`. Locks are off.",
     libevent_version},
    {"libev", "A four-ary heap with cached times. Driven by `ev_run(EVRUN_NOWAIT)`; the handle is `ev_timer`.",
     libev_version},
    {"heap",
     "Our own four-ary heap with cached deadlines, children on one cache line; the handle is a 4-byte index. "
     "What is left when everything but the algorithm is taken away.",
     NULL},
    {"rbtree", "Our own red-black tree with the earliest timer remembered; the handle is the 32-byte node.", NULL},
    {"harness",
     "Nothing: handles are written and read in the same order, and that is all. The harness's own cost, "
     "which is part of every other figure; nothing is subtracted.",
     NULL, .floor = true},
};

static const struct bench_chart charts[] = {
    {"overview",
     "Cost of an operation",
     "Nanoseconds of CPU time, logarithmic: each grid line is ten times the one before. Less is better.",
     {"W1", "A2", "A3", "W3r", "W3c", "W4"},
     BENCH_BARS},
    {"scaling",
     "Cost of an operation as timers become more",
     "Nanoseconds of CPU time over the number of live timers, both logarithmic. Less is better.",
     {"W1", "A2", "A3", "W3r", "W3c", "W4"},
     BENCH_LINES},
    {"longest-poll",
     "Longest single poll while N timers expire within ten seconds",
     "Microseconds of real time, logarithmic. Less is better.",
     {"W4l"},
     BENCH_BARS},
    {"memory",
     "Memory per live timer",
     "Resident bytes, the program's handle included; each panel has its own scale. Less is better.",
     {"W6"},
     BENCH_BARS,
     .linear = true},
};

static const size_t sizes[] = {1000, 10000, 100000, 1000000, 10000000, 0};
static const size_t quick_sizes[] = {1000, 100000, 1000000, 0};

static const char intro[] =
    "Foliot's timing wheel beside the timers of libuv, libevent and libev, a good heap and a red-black tree: the same\n"
    "work, in one program, in one run.\n"
    "\n"
    "The libraries are Debian's packages, unchanged. They run on a virtual clock: the program defines "
    "`clock_gettime()`\n"
    "and `epoll_wait()`, which the libraries call, as functions that return at once, so that no library pays for "
    "system\n"
    "calls that have nothing to do with timers. Every delay is converted to the library's own unit beforehand. Before\n"
    "anything is measured, each library runs through a small random history in which every timer must fire at its\n"
    "time.\n"
    "\n"
    "Timers are used in random order, as in a server that has run for a while: with ten million of them, each use is "
    "a\n"
    "cache miss or several, and the number of those decides. Times are CPU time of the thread. The rivals take turns,\n"
    "several rounds, and the best round counts; of the longest polls, the best round of each single poll counts, "
    "which\n"
    "removes interruptions by the system but no pause of the library's own. Nothing is subtracted; the column\n"
    "`harness` shows what the measuring itself costs.";

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const struct bench benchmark = {
    .name = "wheel",
    .title = "Benchmark: the timing wheel",
    .size_name = "live timers",
    BENCH_TABLES,
    .run = run_once,
    .isolated = bytes_per_timer,
    .check = check,
};
