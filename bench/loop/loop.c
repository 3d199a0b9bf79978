/* SPDX-License-Identifier: MIT */
/* The benchmark of the event loop: what is measured, and against whom.
 *
 * Half of it is about many timers: N of them are started, stopped, fired. As in the benchmark of the wheel, timers are
 * started in the order in which their handles lie in memory and stopped in random order, each handle begins a cache
 * line of its own, and all rivals get the same delays in the same order. Time is CPU time.
 *
 * The other half is about a loop that lives, on the machine's own clock: how late its timers are, whether its intervals
 * drift, how soon and at what cost it receives messages of another thread, what it costs when it idles. Time is real
 * time there, except for the last. */

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <foliot/loop.h>

#include "../frame.h"
#include "rival.h"

#define MS_NS 1000000u
#define MINUTE_NS 60000000000u
#define HOUR_NS 3600000000000u
#define FIRE_SPAN_NS (100u * MS_NS)
#define CACHE_LINE 64u

enum measure { L1, L2, L3, L4, L5, L6, L7E, L7, L7P, L7M, L8, L9, L10, N_MEASURES };

static const struct loop_rival *const entrants[] = {&loop_foliot, &loop_libuv, &loop_libevent, &loop_libev};

void (*timer_fired)(void *handle);
void (*loop_fired)(unsigned number);
void (*loop_received)(void *message);

static void sleep_ns(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&time, NULL);
}

/* ---- many timers ---- */

struct crowd {
    const struct timer_rival *rival;
    void *self;
    char *handles;
    size_t timers, stride;
    const uint32_t *order; /* NULL: as they lie in memory */
    uint64_t *delays;      /* as the rival wants them */
    size_t pairs;          /* for pair_up() */
    size_t fired;
};

static struct crowd *present; /* whose timers fire */

static void gather(struct crowd *c, unsigned entrant, size_t timers, size_t alignment, uint64_t from_ns, uint64_t to_ns)
{
    const struct timer_rival *rival = entrants[entrant]->timers;
    uint64_t seed = 2;
    *c = (struct crowd){.rival = rival, .timers = timers};
    c->stride = (rival->handle_size + alignment - 1) / alignment * alignment;
    c->delays = malloc(timers * sizeof *c->delays);
    if (!c->delays)
        bench_die("no memory for %zu delays", timers);
    for (size_t i = 0; i < timers; i++)
        c->delays[i] = rival->encode(from_ns + bench_random_below(&seed, to_ns - from_ns));
    c->handles = bench_map(timers * c->stride, false);
    c->self = rival->create(false);
    for (size_t i = 0; i < timers; i++)
        rival->prepare(c->self, c->handles + i * c->stride);
    present = c;
}

static void disperse(struct crowd *c)
{
    c->rival->destroy(c->self);
    bench_unmap(c->handles, c->timers * c->stride);
    free(c->delays);
}

static inline void *handle_at(const struct crowd *c, size_t i)
{
    return c->handles + (c->order ? c->order[i] : i) * c->stride;
}

static void start_all(void *arg)
{
    struct crowd *c = arg;
    for (size_t i = 0; i < c->timers; i++)
        c->rival->schedule(c->self, handle_at(c, i), c->delays[i]);
}

static void stop_all(void *arg)
{
    struct crowd *c = arg;
    for (size_t i = 0; i < c->timers; i++)
        c->rival->cancel(c->self, handle_at(c, i));
}

static void pair_up(void *arg)
{
    struct crowd *c = arg;
    for (size_t i = 0; i < c->pairs; i++) {
        c->rival->schedule(c->self, c->handles, c->delays[0]);
        c->rival->cancel(c->self, c->handles);
    }
}

static double time_of(struct crowd *c, void (*work)(void *), const uint32_t *order)
{
    c->order = order;
    uint64_t begin = bench_cpu_ns();
    if (c->rival->inside)
        c->rival->inside(c->self, work, c);
    else
        work(c);
    return (double)(bench_cpu_ns() - begin);
}

/* A callback looks at its object, as most do. */
static void count_and_touch(void *handle)
{
    *(volatile unsigned char *)handle;
    present->fired++;
}

static const uint32_t *random_order(size_t size)
{
    static uint32_t *order;
    static size_t made_for;
    if (made_for != size) {
        free(order);
        order = bench_permutation(10, size);
        made_for = size;
    }
    return order;
}

static void run_start_and_stop(struct bench_run *run, unsigned entrant, size_t size)
{
    struct crowd c;
    const uint32_t *order = random_order(size);
    gather(&c, entrant, size, CACHE_LINE, MINUTE_NS, HOUR_NS);
    timer_fired = count_and_touch;
    for (unsigned i = 0; i < 2; i++) {
        bench_working_on(run, L1);
        double start_ns = time_of(&c, start_all, NULL);
        uint64_t begin = bench_cpu_ns();
        c.rival->poll(c.self); /* what a library puts off is part of it */
        start_ns += (double)(bench_cpu_ns() - begin);
        bench_working_on(run, L2);
        double stop_ns = time_of(&c, stop_all, order);
        if (i == 1) {
            bench_record(run, L1, start_ns / (double)size);
            bench_record(run, L2, stop_ns / (double)size);
        }
    }
    disperse(&c);
}

static void run_fire(struct bench_run *run, unsigned entrant, size_t size)
{
    struct crowd c;
    bench_working_on(run, L3);
    gather(&c, entrant, size, CACHE_LINE, MS_NS, FIRE_SPAN_NS);
    timer_fired = count_and_touch;
    for (unsigned i = 0; i < 2; i++) {
        c.fired = 0;
        time_of(&c, start_all, NULL);
        sleep_ns(FIRE_SPAN_NS + 5 * MS_NS);
        uint64_t begin = bench_cpu_ns();
        while (c.fired < size)
            c.rival->poll(c.self);
        if (i == 1)
            bench_record(run, L3, (double)(bench_cpu_ns() - begin) / (double)size);
    }
    disperse(&c);
}

static void run_pairs(struct bench_run *run, unsigned entrant)
{
    struct crowd c;
    bench_working_on(run, L4);
    gather(&c, entrant, 2, CACHE_LINE, MINUTE_NS, HOUR_NS);
    c.rival->schedule(c.self, c.handles + c.stride, c.delays[1]);
    c.pairs = bench_is_quick(run) ? 100000 : 2000000;
    bench_record(run, L4, time_of(&c, pair_up, NULL) / (double)c.pairs);
    disperse(&c);
}

/* As for the wheel: in a process that does nothing else, how much more is resident than before. The handles lie side by
 * side. */
static double bytes_per_timer(unsigned measure, unsigned entrant, size_t size)
{
    struct crowd c;
    (void)measure;
    gather(&c, entrant, 1, 1, MINUTE_NS, HOUR_NS);
    time_of(&c, start_all, NULL);
    time_of(&c, stop_all, NULL);
    disperse(&c);
    malloc_trim(0);

    uint64_t before = bench_resident_bytes();
    gather(&c, entrant, size, 1, MINUTE_NS, HOUR_NS);
    time_of(&c, start_all, NULL);
    c.rival->poll(c.self);
    free(c.delays);
    malloc_trim(0);
    return (double)(bench_resident_bytes() - before) / (double)size;
}

/* ---- a loop that lives ---- */

static struct {
    const struct loop_rival *rival;
    void *self;
    unsigned calls, wanted;
    double *values; /* `wanted` of them */
    uint64_t *promised_ns;
    uint64_t begin_ns;
} live;

static void come_alive(unsigned entrant, unsigned wanted)
{
    live.rival = entrants[entrant];
    live.self = live.rival->open();
    live.calls = 0;
    live.wanted = wanted;
    live.values = calloc(wanted, sizeof *live.values);
    live.promised_ns = calloc(wanted, sizeof *live.promised_ns);
    if (!live.values || !live.promised_ns)
        bench_die("no memory for %u values", wanted);
}

static void pass_away(void)
{
    live.rival->close(live.self);
    free(live.values);
    free(live.promised_ns);
}

static void leave_when_all_came(void)
{
    if (++live.calls == live.wanted)
        live.rival->leave(live.self);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double *values, unsigned count, unsigned percent)
{
    qsort(values, count, sizeof *values, compare);
    unsigned rank = (count * percent + 99) / 100;
    return values[rank > 0 ? rank - 1 : 0];
}

static void note_lateness(unsigned number)
{
    live.values[number] = ((double)bench_real_ns() - (double)live.promised_ns[number]) / 1000;
    leave_when_all_came();
}

/* The clock is read before the loop is told to read it, so what is promised is never later than what the loop knows. */
static void run_lateness(struct bench_run *run, unsigned entrant)
{
    uint64_t seed = 3, span_ms = bench_is_quick(run) ? 100 : 5000;
    unsigned count = bench_is_quick(run) ? 100 : LOOP_TIMERS;
    bench_working_on(run, L7);
    come_alive(entrant, count);
    loop_fired = note_lateness;
    for (unsigned i = 0; i < count; i++) {
        uint64_t delay_ms = 1 + bench_random_below(&seed, span_ms);
        live.promised_ns[i] = bench_real_ns() + delay_ms * MS_NS;
        live.rival->refresh(live.self);
        live.rival->once(live.self, i, delay_ms);
    }
    live.rival->run(live.self);
    bench_record(run, L7, fmax(0, percentile(live.values, count, 50)));
    bench_record(run, L7P, fmax(0, percentile(live.values, count, 99)));
    bench_record(run, L7M, fmax(0, percentile(live.values, count, 100)));
    bench_record(run, L7E, fmax(0, -live.values[0]));
    pass_away();
}

enum { DRIFT_PERIOD_MS = 10, DRIFT_EDGE = 20, NOISE_US = 50 };

static void note_moment(unsigned number)
{
    (void)number;
    uint64_t on_grid_ns = live.begin_ns + (live.calls + 1ull) * DRIFT_PERIOD_MS * MS_NS;
    live.values[live.calls] = ((double)bench_real_ns() - (double)on_grid_ns) / 1000;
    leave_when_all_came();
}

static double least(const double *values, unsigned count)
{
    double found = values[0];
    for (unsigned i = 1; i < count; i++)
        found = fmin(found, values[i]);
    return found;
}

/* How late single calls are is measured elsewhere: the least late of the first and of the last calls are compared. What
 * differs by less than wake-ups do anyway is no drift. */
static void run_drift(struct bench_run *run, unsigned entrant)
{
    unsigned count = bench_is_quick(run) ? DRIFT_EDGE : 500;
    bench_working_on(run, L8);
    come_alive(entrant, count);
    loop_fired = note_moment;
    live.begin_ns = bench_real_ns();
    live.rival->refresh(live.self);
    live.rival->every(live.self, DRIFT_PERIOD_MS);
    live.rival->run(live.self);
    double begin = least(live.values, DRIFT_EDGE), end = least(live.values + count - DRIFT_EDGE, DRIFT_EDGE);
    bench_record(run, L8, fabs(end - begin) < NOISE_US ? 0 : fabs(end - begin));
    pass_away();
}

static void count_call(unsigned number)
{
    (void)number;
    leave_when_all_came();
}

static void run_idle(struct bench_run *run, unsigned entrant)
{
    unsigned seconds = bench_is_quick(run) ? 1 : 5;
    bench_working_on(run, L10);
    come_alive(entrant, seconds);
    loop_fired = count_call;
    live.rival->refresh(live.self);
    live.rival->every(live.self, 1000);
    uint64_t begin = bench_cpu_ns();
    live.rival->run(live.self);
    bench_record(run, L10, (double)(bench_cpu_ns() - begin) / 1000 / seconds);
    pass_away();
}

/* ---- messages ---- */

static atomic_ullong posted_at_ns;

static void note_latency(void *message)
{
    (void)message;
    live.values[live.calls] = (double)(bench_real_ns() - atomic_load(&posted_at_ns)) / 1000;
    leave_when_all_came();
}

/* A millisecond is enough for the loop to fall asleep again. */
static void *post_now_and_then(void *arg)
{
    for (unsigned i = 0; i < live.wanted; i++) {
        sleep_ns(MS_NS);
        atomic_store(&posted_at_ns, bench_real_ns());
        live.rival->post(live.self, arg);
    }
    return NULL;
}

static void count_message(void *message)
{
    (void)message;
    leave_when_all_came();
}

static void *post_at_once(void *arg)
{
    for (unsigned i = 0; i < live.wanted; i++)
        live.rival->post(live.self, arg);
    return NULL;
}

static uint64_t run_with_poster(void *(*poster)(void *))
{
    pthread_t thread;
    uint64_t begin = bench_real_ns();
    if (pthread_create(&thread, NULL, poster, NULL) != 0)
        bench_die("no thread");
    live.rival->run(live.self);
    uint64_t took = bench_real_ns() - begin;
    pthread_join(thread, NULL);
    return took;
}

static void run_latency(struct bench_run *run, unsigned entrant)
{
    bench_working_on(run, L5);
    come_alive(entrant, bench_is_quick(run) ? 50 : 1000);
    loop_received = note_latency;
    run_with_poster(post_now_and_then);
    bench_record(run, L5, percentile(live.values, live.wanted, 50));
    pass_away();
}

static void run_posts(struct bench_run *run, unsigned entrant)
{
    bench_working_on(run, L6);
    come_alive(entrant, bench_is_quick(run) ? 50000 : 2000000);
    loop_received = count_message;
    bench_record(run, L6, (double)run_with_poster(post_at_once) / live.wanted);
    pass_away();
}

/* ---- the benchmark ---- */

static const struct {
    unsigned measure;
    void (*run)(struct bench_run *run, unsigned entrant);
} single_runs[] = {
    {L4, run_pairs}, {L5, run_latency}, {L6, run_posts}, {L7, run_lateness}, {L8, run_drift}, {L10, run_idle},
};

static bool wants_lateness(const struct bench_run *run)
{
    return bench_wants(run, L7E) || bench_wants(run, L7P) || bench_wants(run, L7M);
}

/* Small sizes are over so soon that the clock's own cost would show; they are run several times. */
static void run_once(struct bench_run *run, unsigned entrant, size_t size)
{
    unsigned times = size <= 10000 ? 10 : size <= 100000 ? 3 : 1;
    for (unsigned i = 0; i < times; i++) {
        if (bench_wants(run, L1) || bench_wants(run, L2))
            run_start_and_stop(run, entrant, size);
        if (bench_wants(run, L3))
            run_fire(run, entrant, size);
    }
    for (size_t i = 0; i < sizeof single_runs / sizeof *single_runs; i++)
        if (bench_wants(run, single_runs[i].measure) || (single_runs[i].measure == L7 && wants_lateness(run)))
            single_runs[i].run(run, entrant);
}

static const struct bench_measure measures[N_MEASURES] = {
    [L1] =
        {"L1", "start", "ns",
         "N timers are started in an empty loop, in the order in which their handles lie in memory, with delays "
         "uniform over the next hour. Whatever memory the library takes on the way counts; the program's handles are "
         "there before."},
    [L2] = {"L2", "stop", "ns", "All N timers are stopped, in random order."},
    [L3] =
        {"L3", "fire", "ns",
         "N timers with delays uniform over 100 ms are started; when all are due, the loop turns without waiting until "
         "all have been called. The callback reads the handle. The loop has done the same once before."},
    [L4] = {"L4", "start + stop, one alive", "ns",
            "A timer is started and stopped again while another one is pending: two operations, counted as one.",
            .fixed_size = 1},
    [L5] = {"L5", "wake-up by a message", "µs",
            "Another thread sends a message to a loop that sleeps: from before the call until the loop's callback. The "
            "median of 1000.",
            .fixed_size = 1},
    [L6] = {"L6", "message", "ns",
            "Another thread sends two million messages as fast as it can: from the first call to the last callback, "
            "divided by their number.",
            .fixed_size = 1},
    [L7E] =
        {"L7e", "lateness: early by", "µs",
         "1000 timers with random delays of whole milliseconds up to 5 s: how long before its deadline the earliest "
         "one was called; 0 if none was.",
         .fixed_size = LOOP_TIMERS},
    [L7] = {"L7", "lateness: half", "µs", "Half of these timers were not later than this; 0 where they were early.",
            .fixed_size = LOOP_TIMERS},
    [L7P] = {"L7p", "lateness: 99 %", "µs", "99 of 100 of them were not later than this.", .fixed_size = LOOP_TIMERS},
    [L7M] = {"L7m", "lateness: worst", "µs", "None of them was later than this.", .fixed_size = LOOP_TIMERS},
    [L8] =
        {"L8", "drift of an interval", "µs",
         "An interval of 10 ms for 5 s: how much later, on the grid that its first period begins, the least late of "
         "the last 20 calls came than the least late of the first 20; 0 below 50 µs, by which wake-ups differ anyway.",
         .fixed_size = 1},
    [L9] =
        {"L9", "memory per timer", "bytes",
         "How much more memory is resident with N timers pending than before: loop and handles together, divided by N. "
         "Measured in a process of its own for each figure, the same way for all.",
         BENCH_ISOLATED},
    [L10] = {"L10", "an idle second", "µs",
             "CPU time, the kernel's part included, that a loop takes in a second in which one interval fires once.",
             .fixed_size = 1},
};

static const struct bench_rival rivals[] = {
    {"foliot",
     "The loop with its default settings; the handle of a timer is the 8-byte ID. Turns are `fl_loop_run_once()`, "
     "messages are `fl_loop_post()`.",
     NULL, .ours = true},
    {"libuv",
     "The handle is `uv_timer_t`; turns are `uv_run(UV_RUN_NOWAIT)`. Messages are put into a list under a mutex; "
     "`uv_async_send()` is called when it was empty.",
     libuv_version},
    {"libevent",
     "The handle is `struct event`; turns are `event_base_loop(EVLOOP_ONCE | EVLOOP_NONBLOCK)`; many timers are "
     "started "
     "and stopped inside of a callback, where libevent knows the time without asking, and without locks. The loop that "
     "lives has locks and the precise timer. Messages as for libuv, with `event_active()`.",
     libevent_version},
    {"libev",
     "The handle is `ev_timer`; turns are `ev_run(EVRUN_NOWAIT)`. Messages as for libuv, with `ev_async_send()`.",
     libev_version},
};

static const struct bench_chart charts[] = {
    {"timers",
     "Many timers",
     "Nanoseconds of CPU time over the number of timers, both logarithmic. Less is better.",
     {"L1", "L2", "L3"},
     BENCH_LINES},
    {"lateness",
     "How late timers are",
     "Microseconds after the deadline, logarithmic, of 1000 timers over five seconds. Less is better.",
     {"L7", "L7p", "L7m"},
     BENCH_BARS},
    {"messages",
     "Messages from another thread",
     "Microseconds until a sleeping loop is awake, nanoseconds for each of two million messages. Less is "
     "better.",
     {"L5", "L6"},
     BENCH_BARS,
     .linear = true},
    {"memory",
     "Memory per pending timer",
     "Resident bytes, the program's handle included; each panel has its own scale. Less is better.",
     {"L9"},
     BENCH_BARS,
     .linear = true},
};

static const size_t sizes[] = {1000, 100000, 1000000, 0};
static const size_t quick_sizes[] = {1000, 100000, 0};

static const char intro[] =
    "Foliot's event loop beside libuv, libevent and libev: the same work, in one program, in one run.\n"
    "\n"
    "The libraries are Debian's packages, unchanged, each used the way it is fastest. They run on the machine's own "
    "clock.\n"
    "Delays are whole milliseconds where it matters, because libuv knows no others; each delay counts from a moment "
    "at\n"
    "which the loop was just told to look at the clock.\n"
    "\n"
    "Many timers are measured in CPU time of the thread, messages and lateness in real time: those figures "
    "are\n"
    "only as quiet as the machine. The rivals take turns, several rounds, and the best round counts. Nothing is\n"
    "subtracted.";

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const struct bench benchmark = {
    .name = "loop",
    .title = "Benchmark: the event loop",
    .size_name = "timers",
    BENCH_TABLES,
    .run = run_once,
    .isolated = bytes_per_timer,
};
