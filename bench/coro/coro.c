/* SPDX-License-Identifier: MIT */
/* The benchmark of coroutines: what is measured, and against whom.
 *
 * The rivals are programs of their own, because they are written in four languages, and because memory is measured: each
 * run is a new process. A rival is asked in three words, `switch`, `yield` or `sleep`, a count, and the milliseconds of a
 * sleep. It answers with one line: nanoseconds a switch; or, for sleepers, what rival.h says. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../frame.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum measure { C1, C2, C3, C4, C5, C6, C7, N_MEASURES };

static const struct bench_measure measures[] = {
    [C1] =
        {"C1", "bare switch", "ns",
         "From one coroutine straight into another, two of them back and forth: nothing but the switch. Go and tokio "
         "switch through their schedulers only: their figure is a yield.",
         BENCH_COST},
    [C2] = {"C2", "yield", "ns", "Two coroutines that yield to each other, through the scheduler: each change counts.",
            BENCH_COST},
    [C3] = {"C3", "spawn", "ms",
            "From the first spawn until the last of N coroutines has begun to sleep. They sleep for 10 s (1 s with "
            "`--quick`). Real time.",
            BENCH_COST},
    [C4] = {"C4", "CPU time", "ms",
            "Of the whole process, from its start until all N have slept, woken and ended: user and system.",
            BENCH_COST},
    [C5] = {"C5", "memory", "MB",
            "The most that was resident at once, in the whole process; 4 bytes a sleeper of it are the harness's.",
            BENCH_COST},
    [C6] = {"C6", "lateness, median", "µs",
            "How much later than asked for a sleeper goes on: half of them are better than this.", BENCH_COST},
    [C7] = {"C7", "lateness, 99 %", "µs", "The same: all but one in a hundred are better than this.", BENCH_COST},
};

/* The programs are next to this one. */
static const struct {
    struct bench_rival rival;
    const char *program, *option;
} known[] = {
    {{"foliot", "Coroutines as they are by default: on the stack of their worker.", NULL, .ours = true},
     "coro-foliot",
     ""},
    {{"foliot-own", "The same with a stack of 16 KiB for each.", NULL, .ours = true}, "coro-foliot", "own"},
    {{"boost", "Boost.Context and Boost.Fiber; stacks of 8 KiB from its own pool.", NULL}, "coro-boost", ""},
    {{"go", "Goroutines, on as many processors as there are; `runtime.Gosched()`, `time.Sleep()`.", NULL},
     "coro-go",
     ""},
    {{"tokio",
      "Tasks, which have no stack: the compiler turns them into state machines. `yield_now()` on the scheduler for one "
      "thread, `sleep()` on that for several.",
      NULL},
     "coro-tokio",
     ""},
};

static struct bench_rival rivals[COUNT(known)];
static const char *commands[COUNT(known)][2];
static unsigned n_rivals;

static const char *folder(void)
{
    static char path[4096];
    if (path[0])
        return path;
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0)
        bench_die("/proc/self/exe cannot be read");
    *strrchr(path, '/') = '\0';
    return path;
}

static unsigned find_rivals(void)
{
    for (size_t i = 0; i < COUNT(known); i++) {
        char *path;
        if (asprintf(&path, "%s/coro/%s", folder(), known[i].program) < 0)
            bench_die("no memory");
        if (access(path, X_OK) == 0) {
            rivals[n_rivals] = known[i].rival;
            commands[n_rivals][0] = path;
            commands[n_rivals++][1] = known[i].option;
        } else {
            fprintf(stderr, "bench: %s is left out: it could not be built here\n", known[i].rival.name);
            free(path);
        }
    }
    return n_rivals;
}

/* Reads `count` numbers that the rival prints. */
static void ask(unsigned rival, const char *what, size_t count, unsigned sleep_ms, double *values, int n_values)
{
    char *command;
    if (asprintf(&command, "'%s' %s %zu %u %s", commands[rival][0], what, count, sleep_ms, commands[rival][1]) < 0)
        bench_die("no memory");
    char line[256] = "", *at = line, *end = line;
    FILE *answer = popen(command, "r"); /* NOLINT(cert-env33-c): a program of ours, by its path */
    if (!answer || !fgets(line, sizeof(line), answer) || pclose(answer) != 0)
        bench_die("%s: no answer", command);
    for (int i = 0; i < n_values; i++, at = end) {
        values[i] = strtod(at, &end);
        if (end == at)
            bench_die("%s: it answers %s", command, line);
    }
    free(command);
}

static void record(struct bench_run *run, unsigned measure, double value)
{
    if (bench_wants(run, measure))
        bench_record(run, measure, value);
}

static void run_switches(struct bench_run *run, unsigned rival)
{
    size_t count = bench_is_quick(run) ? 2000000 : 20000000;
    double ns;
    if (bench_wants(run, C1)) {
        bench_working_on(run, C1);
        ask(rival, "switch", count, 0, &ns, 1);
        record(run, C1, ns);
    }
    if (bench_wants(run, C2)) {
        bench_working_on(run, C2);
        ask(rival, "yield", count / 4, 0, &ns, 1);
        record(run, C2, ns);
    }
}

static void run_once(struct bench_run *run, unsigned rival, size_t size)
{
    bool sleeps = false;
    double values[5];
    run_switches(run, rival);
    for (unsigned measure = C3; measure <= C7; measure++)
        sleeps = sleeps || bench_wants(run, measure);
    if (!sleeps)
        return;
    bench_working_on(run, C4);
    ask(rival, "sleep", size, bench_is_quick(run) ? 1000 : 10000, values, 5);
    for (unsigned measure = C3; measure <= C7; measure++)
        record(run, measure, values[measure - C3]);
}

static const struct bench_chart charts[] = {
    {.file = "switch",
     .title = "Changing from one coroutine to another",
     .caption = "Nanoseconds. Less is better.",
     .kind = BENCH_BARS,
     .measures = {"C1", "C2"},
     .linear = true},
    {.file = "sleepers",
     .title = "Many coroutines asleep for ten seconds",
     .caption = "Each panel has its own scale. Less is better.",
     .kind = BENCH_BARS,
     .measures = {"C3", "C4", "C5", "C6"},
     .linear = true},
};

static const size_t sizes[] = {100000, 1000000, 0};
static const size_t quick_sizes[] = {100000, 0};

static const char intro[] =
    "Foliot's coroutines beside Boost.Context and Boost.Fiber, Go and tokio, as Debian packages them: the cost of a\n"
    "change from one to another, and of very many that sleep at the same time.\n"
    "\n"
    "Every figure is taken in a new process. The sleepers read the clock, sleep, and read the clock again; what one\n"
    "costs is spawning it, its first run, its memory while it sleeps, waking it and its end.";

const struct bench benchmark = {
    .name = "coro",
    .title = "Benchmark: coroutines",
    .size_name = "sleepers",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .run = run_once,
};
