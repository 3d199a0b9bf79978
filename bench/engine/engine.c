/* SPDX-License-Identifier: MIT */
/* The benchmark of durable timers: what is measured, and against whom.
 *
 * Each run of a rival is a process of its own: it starts the rival's server, if it has one, empty, in a folder on the disk,
 * does the work, sends the figures through a pipe, and takes server and folder with it when it ends. */

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../frame.h"
#include "claims.h"
#include "rival.h"
#include "scale.h"
#include "server.h"

#define SECOND_US ((int64_t)1000000)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum measure {
    E1,
    E2,
    E3,
    E4,
    E5,
    E6,
    E7,
    E8,
    E9,
    E10,
    E11,
    E12,
    E13,
    E14,
    E15,
    E16,
    E17,
    E18,
    E19,
    E20,
    E21,
    N_MEASURES
};

/* How many names and timers there are when there are many, in multiples of the size. */
enum { NAMES_MANY = 20, TIMERS_MANY = 100 };

/* --- What rivals share -------------------------------------------------------------------------------------------- */

void timer_payload(size_t i, char payload[PAYLOAD])
{
    static const char digits[] = "0123456789abcdef";
    memset(payload, '.', PAYLOAD);
    for (int at = 16; at-- > 0; i >>= 4)
        payload[at] = digits[i & 15];
}

int64_t wall_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * SECOND_US + now.tv_nsec / 1000;
}

/* --- One run in a process of its own ------------------------------------------------------------------------------ */

static const struct rival *all[] = {&rival_sqlite,         &rival_postgres_store,    &rival_redis_always,
                                    &rival_redis_everysec, &rival_beanstalkd_always, &rival_beanstalkd,
                                    &rival_postgres};
static const struct rival *here[COUNT(all)]; /* those that are installed */

struct job {
    struct bench_run *run;
    const struct rival *rival;
    size_t size;
    bool first; /* what takes long is done once */
    int out;
    char folder[200];
};

struct figure {
    unsigned measure;
    double value;
};

static void say(const struct job *job, unsigned measure, double value)
{
    struct figure figure = {measure, value};
    if (write(job->out, &figure, sizeof figure) != sizeof figure)
        bench_die("nobody listens");
}

static void *open_rival(struct job *job)
{
    folder_make(job->folder, sizeof job->folder);
    return job->rival->open(job->folder);
}

static void close_rival(struct job *job, void *self)
{
    job->rival->close(self);
    folder_remove(job->folder);
}

static double per_second_k(struct outcome outcome)
{
    return (double)outcome.count / outcome.seconds / 1000;
}

/* Processor time: of the process that measures, and of the rival's server. */
struct effort {
    uint64_t own_ns, server_ns;
};

static struct effort effort_now(const struct job *job, void *self)
{
    return (struct effort){own_cpu_ns(), job->rival->server_cpu ? job->rival->server_cpu(self) : 0};
}

/* Since `before`, for each of the timers: all of it, and the server's share. */
static void say_effort(const struct job *job, void *self, struct effort before, size_t count, unsigned all,
                       unsigned servers)
{
    struct effort now = effort_now(job, self);
    double own_us = (double)(now.own_ns - before.own_ns) / 1000 / (double)count;
    /* in ticks, which are rounded anew when a process of the server ends */
    double server_us = fmax(0, (double)(int64_t)(now.server_ns - before.server_ns)) / 1000 / (double)count;
    say(job, all, own_us + server_us);
    say(job, servers, server_us);
}

/* Over a day, in no order. */
static struct timers future(size_t first, size_t count, bool named)
{
    return (struct timers){.first = first,
                           .count = count,
                           .from_us = wall_now_us() + 600 * SECOND_US,
                           .span_us = 86400 * SECOND_US,
                           .named = named};
}

static void measure_schedule(struct job *job)
{
    const struct rival *rival = job->rival;
    void *self = open_rival(job);
    bench_working_on(job->run, E1);
    double before = rival->memory_bytes ? rival->memory_bytes(self) : NAN;
    struct timers timers = future(0, job->size, false);
    struct effort effort = effort_now(job, self);
    struct outcome outcome = rival->schedule(self, &timers);
    say_effort(job, self, effort, outcome.count, E18, E19);
    say(job, E1, per_second_k(outcome));
    if (rival->memory_bytes && rival != &rival_sqlite) /* that is told with many more */
        say(job, E13, fmax(0, (rival->memory_bytes(self) - before) / (double)outcome.count));
    say(job, E15, rival->disk_bytes(self) / (double)outcome.count);
    close_rival(job, self);
}

static void measure_fire(struct job *job)
{
    void *self = open_rival(job);
    bench_working_on(job->run, E7);
    struct timers timers = {.count = job->size, .from_us = wall_now_us() - 600 * SECOND_US, .span_us = 120 * SECOND_US};
    size_t count = job->rival->schedule(self, &timers).count;
    struct effort effort = effort_now(job, self);
    struct outcome outcome = job->rival->fire(self, count);
    say_effort(job, self, effort, outcome.count, E20, E21);
    say(job, E7, per_second_k(outcome));
    close_rival(job, self);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_lateness(struct job *job)
{
    size_t count = bench_is_quick(job->run) ? 1000 : 5000;
    double *late_ms = calloc(count, sizeof *late_ms);
    void *self = open_rival(job);
    bench_working_on(job->run, E9);
    uint64_t cpu_ns = job->rival->punctual(self, count, late_ms);
    close_rival(job, self);
    qsort(late_ms, count, sizeof *late_ms, ascending);
    say(job, E9, late_ms[count / 2]);
    say(job, E10, late_ms[count - 1 - count / 100]);
    say(job, E11, late_ms[count - 1]);
    say(job, E12, (double)cpu_ns / ((double)count * 1e6) * 100);
    free(late_ms);
}

/* Adds names until there are so many, then measures with as many more as the size. */
static double with_names(struct job *job, void *self, size_t *there, size_t want, double *longest_ms)
{
    struct timers timers = future(*there, want - *there, true);
    if (timers.count > 0)
        *longest_ms = fmax(*longest_ms, job->rival->schedule(self, &timers).longest_ms);
    timers = future(want, job->size, true);
    struct outcome outcome = job->rival->schedule(self, &timers);
    *longest_ms = fmax(*longest_ms, outcome.longest_ms);
    *there = want + job->size;
    return per_second_k(outcome);
}

static void measure_names(struct job *job)
{
    size_t there = 0;
    double longest_ms = 0;
    void *self = open_rival(job);
    bench_working_on(job->run, E2);
    say(job, E2, with_names(job, self, &there, 0, &longest_ms));
    bench_working_on(job->run, E3);
    say(job, E3, with_names(job, self, &there, job->size, &longest_ms));
    if (job->first && job->rival == &rival_sqlite) {
        double few = (double)there, before = job->rival->memory_bytes(self);
        bench_working_on(job->run, E4);
        say(job, E4, with_names(job, self, &there, NAMES_MANY * job->size, &longest_ms));
        say(job, E5, fmax(0, (job->rival->memory_bytes(self) - before) / ((double)there - few)));
        say(job, E6, longest_ms);
    }
    close_rival(job, self);
}

static void measure_sustained(struct job *job)
{
    void *self = open_rival(job);
    bench_working_on(job->run, E8);
    say(job, E8, per_second_k(foliot_sustain(self, bench_is_quick(job->run) ? 2 : 10)));
    close_rival(job, self);
}

static double loaded_bytes(struct job *job, size_t count)
{
    void *self = open_rival(job);
    struct timers timers = {.count = count, .from_us = wall_now_us() + 50 * SECOND_US, .span_us = 20 * SECOND_US};
    job->rival->schedule(self, &timers);
    double bytes = foliot_look(self, "loaded").memory_bytes;
    close_rival(job, self);
    return bytes;
}

/* The difference between many and few: what does not depend on their number is not theirs. */
static void measure_loaded(struct job *job)
{
    size_t few = job->size / 4;
    bench_working_on(job->run, E14);
    double bytes = loaded_bytes(job, job->size) - loaded_bytes(job, few);
    say(job, E14, fmax(0, bytes / (double)(job->size - few) - PAYLOAD));
}

/* With three times as much free space as it takes. */
static bool enough_disk(const char *folder, double bytes)
{
    struct statvfs disk;
    return statvfs(folder, &disk) == 0 && (double)disk.f_bavail * (double)disk.f_frsize > 3 * bytes;
}

static void measure_many(struct job *job)
{
    size_t count = TIMERS_MANY * job->size;
    void *self = open_rival(job);
    bench_working_on(job->run, E16);
    double before = job->rival->memory_bytes(self);
    if (enough_disk(job->folder, (double)count * 150)) {
        struct timers timers = future(0, count, false);
        job->rival->schedule(self, &timers);
        timers = (struct timers){.count = FOLIOT_SHARDS, .from_us = wall_now_us() + 3 * SECOND_US};
        job->rival->schedule(self, &timers);
        while (wall_now_us() < timers.from_us)
            usleep(1000);
        struct foliot_look start = foliot_look(self, "fired");
        say(job, E13, fmax(0, (start.memory_bytes - before) / (double)count));
        say(job, E16, start.memory_bytes / 1e6);
        say(job, E17, start.seconds);
    } else {
        fprintf(stderr, "bench: there is not enough free space for %zu timers\n", count);
    }
    close_rival(job, self);
}

static bool wants_any(const struct job *job, unsigned first, unsigned last)
{
    for (unsigned i = first; i <= last; i++)
        if (bench_wants(job->run, i))
            return true;
    return false;
}

static void run_job(struct job *job)
{
    bool ours = job->rival == &rival_sqlite || job->rival == &rival_postgres_store;
    if (bench_wants(job->run, E1) || bench_wants(job->run, E13) || bench_wants(job->run, E15) ||
        wants_any(job, E18, E19))
        measure_schedule(job);
    if (bench_wants(job->run, E7) || wants_any(job, E20, E21))
        measure_fire(job);
    if (job->rival->punctual && wants_any(job, E9, E12))
        measure_lateness(job);
    if (ours && wants_any(job, E2, E6))
        measure_names(job);
    if (ours && bench_wants(job->run, E8))
        measure_sustained(job);
    if (job->rival == &rival_sqlite && bench_wants(job->run, E14))
        measure_loaded(job);
    if (job->rival == &rival_sqlite && job->first && (bench_wants(job->run, E13) || wants_any(job, E16, E17)))
        measure_many(job);
}

/* A process that is done with leaves no memory behind that the next one would find in use. */
static void run_once(struct bench_run *run, unsigned rival, size_t size)
{
    static size_t seen[COUNT(all)];
    int ends[2], status;
    struct figure figure;
    struct job job = {.run = run, .rival = here[rival], .size = size, .first = seen[rival] != size};
    seen[rival] = size;
    if (pipe(ends) != 0)
        bench_die("no pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        job.out = ends[1];
        close(ends[0]);
        run_job(&job);
        _exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &figure, sizeof figure) == sizeof figure)
        bench_record(run, figure.measure, figure.value);
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        bench_die("%s cannot be measured", here[rival]->name);
}

/* --- The benchmark ------------------------------------------------------------------------------------------------ */

static const struct bench_measure measures[N_MEASURES] = {
    [E1] = {"E1", "schedule", "k/s",
            "N timers without names, due within a day, in no order; in batches. Until the last is acknowledged.",
            BENCH_RATE},
    [E2] = {"E2", "schedule with names", "k/s",
            "The same, each with a name of its own that is looked for before: created once, found again by it.",
            BENCH_RATE},
    [E3] = {"E3", "the same, N names there", "k/s", "N more while as many names are there already, at least.",
            BENCH_RATE},
    [E4] = {"E4", "the same, 20 N names there", "k/s", "N more while 20 times as many names are there.", BENCH_RATE},
    [E5] = {"E5", "memory a name", "B",
            "Memory of a process that has just opened a store with 21 N names, less that with 2 N, divided by the "
            "difference."},
    [E6] = {"E6", "longest silence", "ms",
            "While all those names were created: the longest time in which no batch was acknowledged on a shard. It is "
            "the longest commit, or longer."},
    [E7] = {"E7", "fire", "k/s",
            "N timers that fell due while nobody was there. Foliot: from opening the store until each was loaded, "
            "dispatched and settled, and all are deleted. The others: until each was taken out and removed.",
            BENCH_RATE},
    [E8] = {"E8", "sustained", "k/s",
            "Timers that are due a second later are scheduled as fast as they are acknowledged, for ten seconds, "
            "while those before them fire and are deleted: how many, until the last has fired.",
            BENCH_RATE, .fixed_size = 1},
    [E9] = {"E9", "median lateness", "ms", "Timers that are due a millisecond after each other: how late each is.",
            .fixed_size = 1},
    [E10] = {"E10", "99th percentile", "ms", "The same.", .fixed_size = 1},
    [E11] = {"E11", "latest", "ms", "The same.", .fixed_size = 1},
    [E12] = {"E12", "processor", "% of one", "While they fire: the server's processes and the one that takes them out.",
             .fixed_size = 1},
    [E13] = {"E13", "memory a pending timer", "B",
             "With N timers pending, less that of an empty server. Foliot: 100 N, all beyond the preload window, "
             "and of a process that has just started on them."},
    [E14] = {"E14", "memory a loaded timer", "B",
             "Foliot alone: with N timers inside the preload window, less that with N / 4, divided by the difference; "
             "without the payload."},
    [E15] = {"E15", "disk a pending timer", "B",
             "Files (of PostgreSQL: tables and their indexes) with N timers pending."},
    [E16] = {"E16", "memory, 100 N pending", "MB",
             "Of the whole process, just started, with 100 times as many pending."},
    [E17] = {"E17", "start, 100 N pending", "s",
             "The same: from opening the store until a timer that is due has fired on every shard."},
    [E18] = {"E18", "processor to schedule", "µs each",
             "What is measured as *schedule*: processor time of all that takes part, for one timer."},
    [E19] = {"E19", "the server's part of it", "µs each", "Of the processes of the server; foliot has none."},
    [E20] = {"E20", "processor to fire", "µs each", "The same for what is measured as *fire*."},
    [E21] = {"E21", "the server's part of it", "µs each", "The same."},
};

static const struct bench_chart charts[] = {
    {"speed",
     "Timers a second",
     "Thousands of timers a second, every one acknowledged (of redis-everysec and beanstalkd: before it is on the "
     "disk). "
     "More is better.",
     {"E1", "E7"},
     BENCH_BARS,
     true},
    {"lateness",
     "How late a timer fires",
     "Milliseconds, at 1,000 timers a second, logarithmic. Less is better.",
     {"E9", "E10", "E11"},
     BENCH_BARS},
    {"space",
     "What a pending timer takes",
     "Bytes, with a payload of 100. Less is better.",
     {"E13", "E15"},
     BENCH_BARS,
     true},
};

static const size_t sizes[] = {1000000, 0};
static const size_t quick_sizes[] = {100000, 0};

static const char intro[] =
    "Foliot's engine beside what timers are kept in otherwise: Redis, beanstalkd, PostgreSQL. All of them on the same "
    "disk,\n"
    "with 100-byte payloads, each driven in the way it is fastest; their servers run on the same machine as the "
    "program\n"
    "that uses them. The rivals take turns, several rounds, and the best round counts.";

static struct bench_rival rivals[COUNT(all)];

static unsigned find_rivals(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        if (all[i]->needs && !server_program(all[i]->needs)) {
            fprintf(stderr, "bench: %s is left out: there is no %s here\n", all[i]->name, all[i]->needs);
            continue;
        }
        rivals[count] = (struct bench_rival){.name = all[i]->name,
                                             .about = all[i]->about,
                                             .version = all[i]->version,
                                             .ours = all[i] == &rival_sqlite || all[i] == &rival_postgres_store};
        here[count++] = all[i];
    }
    return count;
}

static void tell_more(FILE *out, bool quick)
{
    claims_tell(out, quick);
    fputs("\n", out);
    scale_tell(out, quick);
}

static bool command(int argc, char **argv, int *ret_status)
{
    if (argc != 4 || strcmp(argv[1], "--look") != 0)
        return false;
    *ret_status = foliot_answer_look(argv[2], argv[3]);
    return true;
}

const struct bench benchmark = {
    .name = "engine",
    .title = "Benchmark: durable timers",
    .size_name = "timers",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .command = command,
    .run = run_once,
    .more = tell_more,
};
