/* SPDX-License-Identifier: MIT */
/* The benchmark of the JavaScript host: what is measured, and against whom.
 *
 * Every rival runs the same script, work.js, in a process of its own for every figure. The script says what it has
 * measured; the processor time of a process and how long it took are measured here. */

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../frame.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum measure { CLEAR, DISTINCT, PAIRS, FIRE, MICROTASKS, MEMORY, LATE, LATE_99, EARLY, START, CLONE, N_MEASURES };

static const struct bench_measure measures[] = {
    [CLEAR] = {"J1", "set all, clear all", "ns",
               "N timers are set with random delays of 0 to 999 ms, then all are cleared: real time for each, the best "
               "of five passes.",
               BENCH_COST},
    [DISTINCT] = {"J2", "the same, no delay twice", "ns", "The delays are 1000 ms, 1001 ms, and so on.", BENCH_COST},
    [PAIRS] = {"J3", "set and clear at once", "ns", "Each timer is cleared before the next is set.", BENCH_COST},
    [FIRE] = {"J4", "set and fire, CPU", "ms",
              "N timers with random delays of 0 to 999 ms are set, and run. Processor time of the whole process, its "
              "start and its other threads included.",
              BENCH_COST},
    [MICROTASKS] =
        {"J5", "microtask", "ns",
         "A chain of N microtasks, each of which queues the next: real time for each, the best of five passes.",
         BENCH_COST},
    [MEMORY] = {"J6", "memory of a timer", "bytes",
                "How much the resident memory grows for each of N timers that are pending and share a handler.",
                BENCH_COST},
    [LATE] = {"J7", "lateness, median", "µs",
              "1000 timers with random delays of 0 to 999 ms: from the moment at which one was due until its handler "
              "runs, by performance.now().",
              BENCH_COST, 1000},
    [LATE_99] = {"J8", "lateness, 99 %", "µs", "The same: all but one in a hundred are better than this.", BENCH_COST,
                 1000},
    [EARLY] = {"J9", "early", "per mille", "Of these timers, how many were called before they were due.", BENCH_COST,
               1000},
    [START] = {"J10", "start and end", "ms", "Real time of a process that runs a script which does nothing.",
               BENCH_COST, 1000},
    [CLONE] = {"J11", "structuredClone of an object", "ns",
               "An array of N objects with two numbers each is copied by structuredClone(): real time for each object, "
               "the best of five passes.",
               BENCH_COST},
};

static const char *version_of(const char *name);

#define VERSION(name)                       \
    static const char *name##_version(void) \
    {                                       \
        return version_of(#name);           \
    }
VERSION(foliot)
VERSION(node)
VERSION(bun)
VERSION(deno)

static const struct {
    struct bench_rival rival;
    const char *beside;     /* its path, from the folder of this program, */
    const char *in_path;    /* or what to look for in PATH */
    const char *options[4]; /* before the script */
} known[] = {
    {{"foliot", "`foliot js`, on JavaScriptCore.", foliot_version, .ours = true}, "../src/cli/foliot-js", NULL, {NULL}},
    {{"bun", "From npm; on JavaScriptCore, too.", bun_version}, "js/js-bun", NULL, {NULL}},
    {{"node", "The machine's Node.js, on V8.", node_version}, NULL, "node", {NULL}},
    {{"deno", "From npm; on V8.", deno_version}, "js/js-deno", NULL, {"run", "--allow-all", "--quiet", NULL}},
};

static struct bench_rival rivals[COUNT(known)];
static struct {
    char *path;
    const char *const *options;
} commands[COUNT(known)];
static unsigned n_rivals;
static char folder[PATH_MAX];

/* --- Finding the rivals */

static void find_folder(void)
{
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    if (length <= 0)
        bench_die("/proc/self/exe cannot be read");
    *strrchr(folder, '/') = '\0';
}

static char *join(const char *directory, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        bench_die("no memory");
    return path;
}

/* A program of this name in PATH, or NULL. */
static char *search_path(const char *name)
{
    const char *folders = getenv("PATH");
    char *copy = strdup(folders ? folders : ""), *rest = copy, *directory, *found = NULL;
    while (!found && (directory = strsep(&rest, ":"))) {
        char *path = join(directory, name);
        if (access(path, X_OK) == 0)
            found = path;
        else
            free(path);
    }
    free(copy);
    return found;
}

static unsigned find_rivals(void)
{
    find_folder();
    for (size_t i = 0; i < COUNT(known); i++) {
        char *path = known[i].beside ? join(folder, known[i].beside) : search_path(known[i].in_path);
        if (path && access(path, X_OK) == 0) {
            rivals[n_rivals] = known[i].rival;
            commands[n_rivals].path = path;
            commands[n_rivals++].options = known[i].options;
        } else {
            fprintf(stderr, "bench: %s is left out: it is not here\n", known[i].rival.name);
            free(path);
        }
    }
    return n_rivals;
}

/* The last word of the first line that `--version` prints, or "" */
static const char *version_of(const char *name)
{
    static char line[COUNT(known)][128];
    for (unsigned i = 0; i < n_rivals; i++) {
        if (strcmp(rivals[i].name, name) != 0)
            continue;
        char *command;
        if (asprintf(&command, "'%s' --version", commands[i].path) < 0)
            bench_die("no memory");
        FILE *answer = popen(command, "r"); /* NOLINT(cert-env33-c): a program by its path */
        if (!answer || !fgets(line[i], sizeof(line[i]), answer))
            line[i][0] = '\0';
        if (answer)
            pclose(answer);
        free(command);
        line[i][strcspn(line[i], "(\n")] = '\0';
        const char *digit = strpbrk(line[i], "0123456789");
        return digit ? digit : line[i];
    }
    return "";
}

/* --- Asking them */

struct answer {
    double values[3];
    double cpu_ms, real_ms;
};

static double milliseconds(struct timeval time)
{
    return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3;
}

static pid_t start(unsigned rival, const char *what, size_t count, int output)
{
    char size[24];
    const char *arguments[10] = {commands[rival].path};
    unsigned n = 1;
    for (const char *const *option = commands[rival].options; *option; option++)
        arguments[n++] = *option;
    snprintf(size, sizeof(size), "%zu", count);
    arguments[n++] = BENCH_JS_SCRIPT;
    arguments[n++] = what;
    arguments[n++] = size;
    posix_spawn_file_actions_t actions;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (posix_spawn(&child, commands[rival].path, &actions, NULL, (char *const *)arguments, environ) != 0)
        bench_die("%s cannot be started", commands[rival].path);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static struct answer ask(unsigned rival, const char *what, size_t count)
{
    struct answer answer = {0};
    struct rusage usage;
    int ends[2], status;
    char line[256] = "", *at = line;
    if (pipe2(ends, O_CLOEXEC) < 0)
        bench_die("no pipe");
    uint64_t begin_ns = bench_real_ns();
    pid_t child = start(rival, what, count, ends[1]);
    close(ends[1]);
    for (ssize_t length = 0, got; (got = read(ends[0], line + length, sizeof(line) - 1 - (size_t)length)) > 0;)
        length += got;
    close(ends[0]);
    if (wait4(child, &status, 0, &usage) < 0 || status != 0)
        bench_die("%s %s %zu: it failed", rivals[rival].name, what, count);
    answer.real_ms = (double)(bench_real_ns() - begin_ns) / 1e6;
    answer.cpu_ms = milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
    for (unsigned i = 0; i < 3 && *at; i++)
        answer.values[i] = strtod(at, &at);
    return answer;
}

static void run_at_size(struct bench_run *run, unsigned rival, size_t size)
{
    static const struct {
        enum measure measure;
        const char *what;
    } asked[] = {{CLEAR, "clear"},           {DISTINCT, "distinct"}, {PAIRS, "pairs"},
                 {MICROTASKS, "microtasks"}, {MEMORY, "memory"},     {CLONE, "clone"}};
    for (size_t i = 0; i < COUNT(asked); i++) {
        if (!bench_wants(run, asked[i].measure))
            continue;
        bench_working_on(run, asked[i].measure);
        double value = ask(rival, asked[i].what, size).values[0];
        bench_record(run, asked[i].measure, value > 0 ? value : 0);
    }
    if (bench_wants(run, FIRE)) {
        bench_working_on(run, FIRE);
        bench_record(run, FIRE, ask(rival, "fire", size).cpu_ms);
    }
}

static void run_once(struct bench_run *run, unsigned rival, size_t size)
{
    run_at_size(run, rival, size);
    if (bench_wants(run, LATE) || bench_wants(run, LATE_99) || bench_wants(run, EARLY)) {
        bench_working_on(run, LATE);
        struct answer answer = ask(rival, "lateness", 1000);
        bench_record(run, LATE, answer.values[0]);
        bench_record(run, LATE_99, answer.values[1]);
        bench_record(run, EARLY, answer.values[2]);
    }
    if (bench_wants(run, START)) {
        bench_working_on(run, START);
        for (unsigned i = 0; i < 5; i++)
            bench_record(run, START, ask(rival, "start", 0).real_ms);
    }
}

static const struct bench_chart charts[] = {
    {.file = "timers",
     .title = "Setting and clearing a timer",
     .caption = "Nanoseconds. Less is better.",
     .kind = BENCH_BARS,
     .measures = {"J1", "J2", "J3"},
     .linear = true},
    {.file = "rest",
     .title = "A million timers that fire, microtasks, memory, start, structuredClone",
     .caption = "Each panel has its own scale. Less is better.",
     .kind = BENCH_BARS,
     .measures = {"J4", "J5", "J6", "J10", "J11"},
     .linear = true},
};

static const size_t sizes[] = {100000, 1000000, 0};
static const size_t quick_sizes[] = {100000, 0};

static const char intro[] =
    "`foliot js` beside what else runs scripts outside of a browser: Node.js, Bun and Deno. All of them run the same\n"
    "script, `bench/js/work.js`.\n"
    "\n"
    "Times are real time, best of several passes in several processes, except where processor time is meant.";

const struct bench benchmark = {
    .name = "js",
    .title = "Benchmark: JavaScript",
    .size_name = "timers",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .run = run_once,
};
