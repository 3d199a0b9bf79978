/* SPDX-License-Identifier: MIT */
/* The benchmark of the runtime: what is measured, and against whom.
 *
 * Foliot is measured in this process. The rivals are programs of their own, in their own languages (rival.go,
 * rival_tokio.rs), which do the same work in the same order and print a line "measure value" for each figure; this
 * program starts them with the number of timers and reads what they print. One that could not be built (no Go, no Rust)
 * is left out.
 *
 * All take CPU time with the same system clocks, use the same deadlines and the same order of cancelling. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <foliot/runtime.h>

#include "../frame.h"

#define MS_NS 1000000u
#define SECOND_NS 1000000000ull
#define HOUR_NS (3600 * SECOND_NS)
#define LOCAL_TIMERS 1000u
#define LOCAL_ROUNDS 1000u
#define MOST_FIRED 1000000u /* more than a core fires in the second they have would measure the backlog */

enum measure { R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, N_MEASURES };

static void nap(void)
{
    usleep(1000);
}

static void do_nothing(void *arg)
{
    (void)arg;
}

static fl_runtime *make_runtime(unsigned workers)
{
    fl_runtime *rt;
    if (fl_runtime_new(&(fl_runtime_config){.workers = workers}, &rt) < 0)
        bench_die("no runtime");
    return rt;
}

static struct fl_runtime_stats stats_of(fl_runtime *rt)
{
    struct fl_runtime_stats stats;
    fl_runtime_stats(rt, &stats);
    return stats;
}

static void make_timers(fl_runtime *rt, fl_timer **timers, size_t count, fl_task_fn fn)
{
    for (size_t i = 0; i < count; i++)
        if (fl_timer_new(rt, fn, (void *)i, &timers[i]) < 0)
            bench_die("no timer");
}

static uint64_t process_cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * SECOND_NS +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* ---- R1, R7: start and cancel on a worker ---- */

struct local {
    fl_runtime *rt;
    atomic_uint *ready, together; /* all begin when as many are ready */
    double ns;
    atomic_bool done;
};

static void start_and_cancel(void *arg)
{
    struct local *local = arg;
    fl_timer *timers[LOCAL_TIMERS];
    make_timers(local->rt, timers, LOCAL_TIMERS, do_nothing);
    uint64_t base_ns = bench_real_ns() + 30 * SECOND_NS;
    atomic_fetch_add(local->ready, 1);
    while (atomic_load(local->ready) < local->together)
        ;
    uint64_t begin = bench_cpu_ns();
    for (unsigned round = 0; round < LOCAL_ROUNDS; round++)
        for (unsigned i = 0; i < LOCAL_TIMERS; i++) {
            fl_timer_start(timers[i], base_ns + i * MS_NS);
            fl_timer_cancel(timers[i]);
        }
    local->ns = (double)(bench_cpu_ns() - begin) / ((double)LOCAL_TIMERS * LOCAL_ROUNDS);
    for (unsigned i = 0; i < LOCAL_TIMERS; i++)
        fl_timer_unref(timers[i]);
    atomic_store(&local->done, true);
}

/* The mean of so many workers at once. */
static double local_ns(fl_runtime *rt, unsigned workers)
{
    struct local local[2];
    atomic_uint ready = 0;
    double sum = 0;
    for (unsigned i = 0; i < workers; i++) {
        local[i] = (struct local){.rt = rt, .ready = &ready, .together = workers};
        fl_runtime_spawn(rt, start_and_cancel, &local[i]);
    }
    for (unsigned i = 0; i < workers; i++) {
        while (!atomic_load(&local[i].done))
            nap();
        sum += local[i].ns;
    }
    return sum / workers;
}

static void measure_together(struct bench_run *run)
{
    fl_runtime *rt = make_runtime(2);
    double best = INFINITY;
    bench_working_on(run, R7);
    for (unsigned i = 0; i < 3; i++) { /* alone and together in turn: the machine's speed changes */
        double alone = local_ns(rt, 1);
        best = fmin(best, local_ns(rt, 2) / alone);
    }
    bench_record(run, R7, best);
    fl_runtime_free(rt);
}

/* ---- R11: all a worker does, on one and on two ---- */

struct chain {
    fl_timer *self, *other;
    uint64_t far_ns, begin_ns, end_ns;
    atomic_uint *ready, together;
    unsigned left;
    _Alignas(128) atomic_bool done;
};

/* Fires again and again, and starts and cancels another timer each time. */
static void on_link(void *arg)
{
    struct chain *chain = arg;
    fl_timer_start(chain->other, chain->far_ns + chain->left);
    fl_timer_cancel(chain->other);
    if (--chain->left > 0) {
        fl_timer_start(chain->self, 0);
        return;
    }
    chain->end_ns = bench_real_ns();
    atomic_store(&chain->done, true);
}

static void begin_chain(void *arg)
{
    struct chain *chain = arg;
    atomic_fetch_add(chain->ready, 1);
    while (atomic_load(chain->ready) < chain->together)
        ;
    chain->begin_ns = bench_real_ns();
    fl_timer_start(chain->self, 0);
}

/* Real time until each of so many workers has fired LINKS timers. */
static double chains_ns(fl_runtime *rt, unsigned workers)
{
    enum { LINKS = 50000 };
    static struct chain chains[2];
    atomic_uint ready = 0;
    for (unsigned i = 0; i < workers; i++) {
        chains[i] = (struct chain){.ready = &ready, .together = workers, .left = LINKS};
        chains[i].far_ns = bench_real_ns() + HOUR_NS;
        if (fl_timer_new(rt, on_link, &chains[i], &chains[i].self) < 0 ||
            fl_timer_new(rt, do_nothing, NULL, &chains[i].other) < 0)
            bench_die("no timer");
        fl_runtime_spawn(rt, begin_chain, &chains[i]);
    }
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (unsigned i = 0; i < workers; i++) {
        while (!atomic_load(&chains[i].done))
            nap();
        begin_ns = chains[i].begin_ns < begin_ns ? chains[i].begin_ns : begin_ns;
        end_ns = chains[i].end_ns > end_ns ? chains[i].end_ns : end_ns;
        fl_timer_unref(chains[i].self);
        fl_timer_unref(chains[i].other);
    }
    return (double)(end_ns - begin_ns);
}

static void measure_scaling(struct bench_run *run)
{
    fl_runtime *one = make_runtime(1), *two = make_runtime(2);
    double alone = INFINITY, together = INFINITY;
    bench_working_on(run, R11);
    for (unsigned i = 0; i < 40;
         i++) { /* in turn, and the best of each: real time is disturbed by whatever else runs */
        alone = fmin(alone, chains_ns(one, 1));
        together = fmin(together, chains_ns(two, 2));
    }
    bench_record(run, R11, together / (2 * alone));
    fl_runtime_free(one);
    fl_runtime_free(two);
}

/* ---- R2, R3, R8, R9, R12, R13: many far timers, from outside ---- */

static double idle_ms(void)
{
    uint64_t begin = process_cpu_ns();
    sleep(1);
    return (double)(process_cpu_ns() - begin) / 1e6;
}

static void record_memory(struct bench_run *run, unsigned measure, uint64_t before)
{
    uint64_t now = bench_resident_bytes();
    bench_record(run, measure, now > before ? (double)(now - before) / 1e6 : 0);
}

static void cancel_all(struct bench_run *run, fl_runtime *rt, fl_timer **timers, size_t count)
{
    uint32_t *order = bench_permutation(7, count);
    bench_working_on(run, R3);
    uint64_t begin = bench_cpu_ns();
    for (size_t i = 0; i < count; i++)
        fl_timer_cancel(timers[order[i]]);
    bench_record(run, R3, (double)(bench_cpu_ns() - begin) / (double)count);
    uint64_t begin_ns = bench_real_ns();
    for (size_t i = 0; i < count; i++)
        fl_timer_unref(timers[order[i]]);
    /* Less than 64 stale ones in each of 64 buckets are not worth looking for. */
    while (stats_of(rt).entries > 64 * 64)
        nap();
    bench_record(run, R9, (double)(bench_real_ns() - begin_ns) / 1e6);
    bench_record(run, R10, (double)stats_of(rt).scrub_longest);
    free(order);
}

static void measure_far(struct bench_run *run, size_t count)
{
    fl_timer **timers = bench_map(count * sizeof(fl_timer *), false);
    fl_runtime *rt = make_runtime(1);
    uint64_t base_ns = bench_real_ns() + HOUR_NS, before = bench_resident_bytes();
    make_timers(rt, timers, count, do_nothing);
    bench_working_on(run, R2);
    uint64_t begin = bench_cpu_ns();
    for (size_t i = 0; i < count; i++)
        fl_timer_start(timers[i], base_ns + i * 1000);
    bench_record(run, R2, (double)(bench_cpu_ns() - begin) / (double)count);
    while (stats_of(rt).entries < count)
        nap();
    record_memory(run, R12, before);
    if (bench_wants(run, R8)) {
        bench_working_on(run, R8);
        bench_record(run, R8, idle_ms());
    }
    bench_working_on(run, R1);
    bench_record(run, R1, local_ns(rt, 1));
    cancel_all(run, rt, timers, count);
    record_memory(run, R13, before);
    fl_runtime_free(rt);
    bench_unmap(timers, count * sizeof(fl_timer *));
}

/* ---- R4, R5, R6: firing ---- */

static uint64_t fire_base_ns, fire_step_ns;
static double *fire_lateness;
static atomic_size_t fired;

static void on_fire(void *arg)
{
    size_t i = (size_t)arg;
    fire_lateness[i] = (double)(bench_real_ns() - (fire_base_ns + i * fire_step_ns));
    atomic_fetch_add_explicit(&fired, 1, memory_order_relaxed);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_firing(struct bench_run *run, size_t count)
{
    fl_timer **timers = malloc(count * sizeof(fl_timer *));
    fl_runtime *rt = make_runtime(1);
    bench_working_on(run, R4);
    fire_lateness = malloc(count * sizeof *fire_lateness);
    if (!timers || !fire_lateness)
        bench_die("no memory for %zu timers", count);
    make_timers(rt, timers, count, on_fire);
    atomic_store(&fired, 0);
    fire_base_ns = bench_real_ns() + SECOND_NS / 2 + count * 1000;
    fire_step_ns = SECOND_NS / count;
    for (size_t i = 0; i < count; i++)
        fl_timer_start(timers[i], fire_base_ns + i * fire_step_ns);
    while (stats_of(rt).entries < count)
        nap();
    uint64_t begin = process_cpu_ns();
    while (atomic_load(&fired) < count)
        usleep(20000);
    bench_record(run, R4, (double)(process_cpu_ns() - begin) / (double)count);
    qsort(fire_lateness, count, sizeof *fire_lateness, compare);
    bench_record(run, R5, fire_lateness[count / 2] / 1000);
    bench_record(run, R6, fire_lateness[count - 1 - count / 100] / 1000);
    for (size_t i = 0; i < count; i++)
        fl_timer_unref(timers[i]);
    fl_runtime_free(rt);
    free(timers);
    free(fire_lateness);
}

/* ---- the rivals ---- */

enum rival { FOLIOT, GO, TOKIO, N_RIVALS };

static const char *const programs[N_RIVALS] = {[GO] = "rival-go", [TOKIO] = "rival-tokio"};
static const char *rival_programs[N_RIVALS]; /* of those that are here */

/* The rivals are beside this program. */
static void rival_path(const char *program, char path[4096])
{
    ssize_t length = readlink("/proc/self/exe", path, 4000);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(name, (size_t)(path + 4096 - name), "%s", program);
}

static void run_rival(struct bench_run *run, unsigned rival, const struct bench_measure *measures, size_t count)
{
    char command[4200], path[4096], line[128];
    bench_working_on(run, R1);
    rival_path(rival_programs[rival], path);
    snprintf(command, sizeof command, "'%s' %zu %zu", path, count, count < MOST_FIRED ? count : MOST_FIRED);
    FILE *answers = popen(command, "r"); /* NOLINT(cert-env33-c): a program of ours, by its path */
    if (!answers)
        bench_die("%s does not run", path);
    while (fgets(line, sizeof line, answers)) {
        char *value = strchr(line, ' ');
        if (!value)
            bench_die("%s says '%s'", path, line);
        *value++ = '\0';
        for (unsigned i = 0; i < N_MEASURES; i++)
            if (strcmp(measures[i].id, line) == 0)
                bench_record(run, i, strtod(value, NULL));
    }
    if (pclose(answers) != 0)
        bench_die("%s has failed", path);
}

/* ---- the benchmark ---- */

static const struct bench_measure measures[N_MEASURES] = {
    [R1] =
        {"R1", "start + cancel on a worker", "ns",
         "With N timers waiting, code on a worker starts a timer and cancels it again: two operations, counted as one. "
         "A thousand timers take turns. CPU time of the thread."},
    [R2] =
        {"R2", "start from outside", "ns",
         "N timers, made before, are started one after the other by a thread that is not a worker, an hour away. CPU "
         "time of that thread; what the worker does with them is not in it."},
    [R3] = {"R3", "cancel from another thread", "ns",
            "The same N timers are cancelled in random order by a thread that is not their worker. CPU time of that "
            "thread."},
    [R4] =
        {"R4", "fire", "ns",
         "Up to a million timers, spread over one second, fire; the callback reads the clock and notes how late it is. "
         "CPU time of the whole process, divided by the timers."},
    [R5] = {"R5", "median lateness", "µs", "Of the timers that fire, seen by their callbacks."},
    [R6] = {"R6", "99th percentile of lateness", "µs", "The same."},
    [R7] = {"R7", "cost beside a second worker", "×",
            "Start + cancel on two workers at once, divided by the same on one, both in CPU time of the worker: 1 "
            "means that they do not "
            "disturb each other, 1.05 that two do 1.9 times as much as one.",
            .fixed_size = 1},
    [R8] = {"R8", "idle", "ms", "CPU time of the process in a second in which N timers wait and nothing happens."},
    [R9] = {"R9", "memory given back", "ms",
            "After cancelling from another thread, the caller drops its references; then until the wheels hold nothing "
            "of the N timers any more "
            "(less than 4096 of them). Real time, dropping included."},
    [R10] =
        {"R10", "longest scrub in a turn", "entries",
         "The most entries that one turn looked at to find cancelled ones. The budget is 1024, of which a quarter is "
         "used unless much is stale."},
    [R11] = {"R11", "two workers for one", "×",
             "Two workers do the same as one, at the same time: their timers fire as fast as they can, and each firing "
             "starts its timer again and starts and cancels another. Real time for an operation with two workers, "
             "divided by that with one: 0.5 is perfect, 0.526 means that two do 1.9 times as much as one.",
             .fixed_size = 1},
    [R12] = {"R12", "memory of waiting timers", "MB",
             "Resident memory of the process with N timers started from outside, handles included, minus that before."},
    [R13] = {"R13", "memory after the sweep", "MB",
             "The same when the timers have been cancelled from outside, and what that left behind was found."},
};

static void run_once(struct bench_run *run, unsigned rival, size_t size)
{
    if (rival != FOLIOT) {
        run_rival(run, rival, measures, size);
        return;
    }
    measure_far(run, size);
    if (bench_wants(run, R4) || bench_wants(run, R5) || bench_wants(run, R6))
        measure_firing(run, size < MOST_FIRED ? size : MOST_FIRED);
    if (bench_wants(run, R7))
        measure_together(run);
    if (bench_wants(run, R11))
        measure_scaling(run);
}

static const struct bench_rival known[] = {
    {"foliot", "The runtime with its default settings and one worker; two where they are compared.", NULL,
     .ours = true},
    {"go",
     "Go's `time.AfterFunc()`, `Reset()` and `Stop()`. Its timers live with the processors of its scheduler; \"a "
     "worker\" "
     "is a goroutine that is locked to its thread.",
     NULL},
    {"tokio",
     "`tokio::time::sleep()` on its multi-threaded runtime with one worker. A timer starts when its future is polled "
     "for "
     "the first time, and is cancelled by dropping it. Where they fire, each timer is a task that sleeps.",
     NULL},
};

static const struct bench_chart charts[] = {
    {"overview",
     "Cost of an operation",
     "Nanoseconds of CPU time, logarithmic: each grid line is ten times the one before. Less is better.",
     {"R1", "R2", "R3", "R4"},
     BENCH_BARS},
    {"lateness",
     "How late timers fire",
     "Microseconds after the deadline, logarithmic. Less is better.",
     {"R5", "R6"},
     BENCH_BARS},
};

static const size_t sizes[] = {1000, 100000, 1000000, 10000000, 0};
static const size_t quick_sizes[] = {1000, 100000, 0};

static const char intro[] =
    "Foliot's runtime beside Go's timers and tokio's: starting and cancelling on a worker and from outside, firing,\n"
    "lateness, and what an idle runtime costs.\n"
    "\n"
    "Each rival is a program in its own language that does the same work in the same order. Times are CPU time, so "
    "that\n"
    "waiting for other processes does not count; lateness is real time. The rivals take turns, several rounds, and "
    "the\n"
    "best round counts. Nothing is subtracted.";

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static struct bench_rival rivals[COUNT(known)];

/* Fills `rivals` with those that are here; returns how many. */
static unsigned find_rivals(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < COUNT(known); i++) {
        char path[4096];
        if (i != FOLIOT)
            rival_path(programs[i], path);
        if (i == FOLIOT || access(path, X_OK) == 0) {
            rival_programs[count] = programs[i];
            rivals[count++] = known[i];
        } else {
            fprintf(stderr, "bench: %s is left out: it could not be built here\n", known[i].name);
        }
    }
    return count;
}

const struct bench benchmark = {
    .name = "runtime",
    .title = "Benchmark: the runtime",
    .size_name = "waiting timers",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .run = run_once,
};
