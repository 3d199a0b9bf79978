/* SPDX-License-Identifier: MIT */
/* The benchmark of the server: what is measured, and against whom.
 *
 * For each measure a server is started, empty, in a folder on the disk, and ended with its folder. One program drives all
 * of them over TCP (load.h), and looks at every answer. */

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/server.h"
#include "../frame.h"
#include "rival.h"
#include "sink.h"

#define SECOND_US ((int64_t)1000000)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum measure { S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15, N_MEASURES };

/* More than 100,000 for one host at one moment do not wait in memory: some are put off by a second or more. */
enum { MOST_HOOKS = 80000 };

static const struct rival sink = {.name = "wrk",
                                  .needs = "wrk",
                                  .version = sink_version,
                                  .about = "No timer server, but the ceiling for webhooks: wrk, two threads and a "
                                           "hundred connections, sends the same POST to the "
                                           "same nginx again and again."};

static const struct rival *all[] = {
    &rival_foliot, &rival_redis_always, &rival_redis_everysec, &rival_beanstalkd_always, &rival_beanstalkd, &sink};
static const struct rival *here[COUNT(all)]; /* those that are installed */

/* --- Servers ------------------------------------------------------------------------------------------------------ */

static struct target start(const struct rival *rival)
{
    struct target target = {0};
    folder_make(target.folder, sizeof target.folder);
    rival->open(&target);
    return target;
}

static void end(struct target *target, int signal)
{
    server_end(target->server, signal);
    folder_remove(target->folder);
}

/* --- Measures ----------------------------------------------------------------------------------------------------- */

static void record_rate(struct bench_run *run, unsigned measure, struct done done)
{
    bench_record(run, measure, (double)done.count / done.seconds / 1000);
}

static void measure_create(struct bench_run *run, const struct rival *rival, unsigned measure, size_t size)
{
    bool named = measure < S3;
    bench_working_on(run, measure);
    struct target target = start(rival);
    struct done done = rival->create(&target, measure == S1 || measure == S3 ? 32 : 128, size, named);
    end(&target, rival->end);
    record_rate(run, measure, done);
    if (rival != &rival_foliot) /* for whom a name is nothing special */
        record_rate(run, measure + (S3 - S1), done);
}

static void measure_creates(struct bench_run *run, const struct rival *rival, size_t size)
{
    for (unsigned measure = S1; measure <= (rival == &rival_foliot ? S4 : S2); measure++)
        if (bench_wants(run, measure) || (rival != &rival_foliot && bench_wants(run, measure + (S3 - S1))))
            measure_create(run, rival, measure, size);
}

/* In a day. */
static void measure_batch(struct bench_run *run, const struct rival *rival, size_t size)
{
    bench_working_on(run, S5);
    struct target target = start(rival);
    record_rate(run, S5, rival->batch(&target, size, wall_now_us() + 86400 * SECOND_US));
    end(&target, rival->end);
}

/* NULL: as the server comes, which records failures. */
static void check_history(const struct target *target, const char *only)
{
    bool all = only && strcmp(only, "all") == 0;
    if (foliot_has_history(target) != all)
        bench_die("foliot has %s history", all ? "no" : "a");
}

/* All are due when it begins. */
static void measure_pull(struct bench_run *run, const struct rival *rival, unsigned measure, const char *only,
                         size_t size)
{
    bench_working_on(run, measure);
    struct target target = start(rival);
    if (only)
        foliot_keep(&target, only);
    struct done there = rival->batch(&target, size, wall_now_us());
    usleep(300000);
    struct done done = rival->pull(&target, there.count);
    if (done.count == 0 || done.count > there.count)
        bench_die("%s gives %zu timers of %zu", rival->name, done.count, there.count);
    record_rate(run, measure, done);
    if (rival == &rival_foliot)
        check_history(&target, only);
    end(&target, rival->end);
}

/* A moment by which so many can be created. */
static int64_t soon_us(size_t count)
{
    return wall_now_us() + 2 * SECOND_US + (int64_t)count * 40;
}

static void wait_until(int64_t at_us)
{
    int64_t now_us;
    while ((now_us = wall_now_us()) < at_us)
        usleep((useconds_t)(at_us - now_us));
}

static void measure_hooks(struct bench_run *run, unsigned measure, const char *only, size_t all)
{
    size_t size = all < MOST_HOOKS ? all : MOST_HOOKS;
    char url[64];
    struct target nginx, target = start(&rival_foliot);
    bench_working_on(run, measure);
    if (only)
        foliot_keep(&target, only);
    folder_make(nginx.folder, sizeof nginx.folder);
    sink_open(&nginx);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", nginx.port);
    int64_t due_us = soon_us(size), now_us;
    foliot_hooks(&target, url, size, due_us, 0);
    wait_until(due_us);
    while (now_us = wall_now_us(), foliot_metric(&target, "foliot_webhooks_total{status=\"2xx\"}") < (double)size) {
        if (now_us - due_us > 60 * SECOND_US)
            bench_die("foliot does not call everybody back");
        usleep(10000);
    }
    if (sink_requests(&nginx) != (double)size)
        bench_die("foliot calls more than it says");
    record_rate(run, measure, (struct done){size, (double)(now_us - due_us) / 1e6});
    check_history(&target, only);
    end(&nginx, SIGTERM);
    end(&target, rival_foliot.end);
}

static void measure_ceiling(struct bench_run *run)
{
    struct target nginx;
    bench_working_on(run, S7);
    folder_make(nginx.folder, sizeof nginx.folder);
    sink_open(&nginx);
    bench_record(run, S7, sink_ceiling(&nginx, bench_is_quick(run) ? 1 : 3) / 1000);
    end(&nginx, SIGTERM);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct calls {
    double *late_ms;
    size_t done, count;
};

static bool called(void *arg, const char *body, double late_ms)
{
    struct calls *calls = arg;
    (void)body;
    calls->late_ms[calls->done++] = late_ms;
    return calls->done < calls->count;
}

static void measure_lateness(struct bench_run *run)
{
    size_t count = bench_is_quick(run) ? 1000 : 5000;
    char url[64];
    int port, listener = receiver_listen(&port);
    double *late_ms = calloc(count, sizeof *late_ms);
    struct target target = start(&rival_foliot);
    bench_working_on(run, S8);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", port);
    int64_t from_us = soon_us(count) / 1000 * 1000;
    foliot_hooks(&target, url, count, from_us, 1000);
    wait_until(from_us - 1000);
    uint64_t cpu_ns = server_cpu_ns(target.server);
    receiver_run(listener, called, &(struct calls){late_ms, 0, count});
    cpu_ns = server_cpu_ns(target.server) - cpu_ns;
    end(&target, rival_foliot.end);
    close(listener);
    qsort(late_ms, count, sizeof *late_ms, ascending);
    if (late_ms[0] < 0)
        bench_die("a webhook was early by %f ms", -late_ms[0]);
    bench_record(run, S8, late_ms[count / 2]);
    bench_record(run, S9, late_ms[count - 1 - count / 100]);
    bench_record(run, S10, late_ms[count - 1]);
    bench_record(run, S11, (double)cpu_ns / ((double)count * 1e6) * 100);
    free(late_ms);
}

static void measure_history(struct bench_run *run, size_t size)
{
    static const char *const only[] = {"none", "all"};
    for (unsigned i = 0; i < COUNT(only); i++) {
        if (bench_wants(run, S12 + i))
            measure_pull(run, &rival_foliot, S12 + i, only[i], size);
        if (bench_wants(run, S14 + i) && sink_is_here())
            measure_hooks(run, S14 + i, only[i], size);
    }
}

static void run_once(struct bench_run *run, unsigned index, size_t size)
{
    const struct rival *rival = here[index];
    if (rival == &sink) {
        if (bench_wants(run, S7))
            measure_ceiling(run);
        return;
    }
    measure_creates(run, rival, size);
    if (bench_wants(run, S5))
        measure_batch(run, rival, size);
    if (bench_wants(run, S6))
        measure_pull(run, rival, S6, NULL, size);
    if (rival == &rival_foliot)
        measure_history(run, size);
    if (rival != &rival_foliot || !sink_is_here())
        return;
    if (bench_wants(run, S7))
        measure_hooks(run, S7, NULL, size);
    if (bench_wants(run, S8) || bench_wants(run, S9) || bench_wants(run, S10) || bench_wants(run, S11))
        measure_lateness(run);
}

/* --- The benchmark ------------------------------------------------------------------------------------------------ */

static const struct bench_measure measures[N_MEASURES] = {
    [S1] = {"S1", "create by name, 32 connections", "k/s",
            "One timer a request, with a name of its own (`PUT`), a request at a time on each connection, and every "
            "timer on the disk before it is acknowledged. N of them, or as many as a second and a half allows.",
            BENCH_RATE},
    [S2] = {"S2", "create by name, 128 connections", "k/s", "The same.", BENCH_RATE},
    [S3] = {"S3", "create, 32 connections", "k/s",
            "The same without a name (`POST`). For the others there is no difference: the figure is that of S1.",
            BENCH_RATE},
    [S4] = {"S4", "create, 128 connections", "k/s", "The same.", BENCH_RATE},
    [S5] =
        {"S5", "create in batches", "k/s",
         "N timers over two connections, as the server takes them fastest. Foliot: a `POST /v1/batch` on each, which "
         "streams, with an answer for every line.",
         BENCH_RATE},
    [S6] = {"S6", "lease and acknowledge", "k/s",
            "N timers that are due are taken out and removed, over two connections. Foliot: leases of 5,000 and "
            "acknowledgements of all of them in one request.",
            BENCH_RATE},
    [S7] = {"S7", "webhooks", "k/s",
            "N timers, but no more than 80,000, that fall due at one moment are delivered to an nginx on the same "
            "machine that answers 200: from "
            "that moment until the last answer.",
            BENCH_RATE},
    [S8] =
        {"S8", "webhooks: median lateness", "ms",
         "A timer is due every millisecond for five seconds: how long after that its call was read by the one who is "
         "called, by the clock of the same machine.",
         .fixed_size = 1},
    [S9] = {"S9", "webhooks: 99th percentile", "ms", "The same.", .fixed_size = 1},
    [S10] = {"S10", "webhooks: latest", "ms", "The same.", .fixed_size = 1},
    [S11] = {"S11", "webhooks: processor", "% of one", "Of the server, at 1,000 webhooks a second.", .fixed_size = 1},
    [S12] =
        {"S12", "lease and acknowledge, history none", "k/s",
         "S6, where the namespace records no attempts. In S6 it records failures, of which there are none: what this "
         "costs is the difference.",
         BENCH_RATE},
    [S13] = {"S13", "lease and acknowledge, history all", "k/s", "S6, where the namespace records every attempt.",
             BENCH_RATE},
    [S14] = {"S14", "webhooks, history none", "k/s", "S7, where the namespace records no attempts.", BENCH_RATE},
    [S15] = {"S15", "webhooks, history all", "k/s", "S7, where the namespace records every attempt.", BENCH_RATE},
};

static const struct bench_chart charts[] = {
    {"create",
     "Timers created one by one",
     "Thousands a second, every one acknowledged (of redis-everysec and beanstalkd: before it is on the disk). More is "
     "better.",
     {"S1", "S2"},
     BENCH_BARS,
     true},
    {"batches", "Timers in and out in batches", "Thousands a second. More is better.", {"S5", "S6"}, BENCH_BARS, true},
    {"webhooks",
     "Webhooks",
     "Thousands a second, and what the one who is called can take at most. More is better.",
     {"S7"},
     BENCH_BARS,
     true},
};

static const size_t sizes[] = {200000, 0};
static const size_t quick_sizes[] = {20000, 0};

static const char intro[] =
    "`foliot serve` beside servers that timers are kept in otherwise: Redis and beanstalkd. All of them are on the "
    "same\n"
    "disk and on the same machine as the one program that drives them, over TCP on loopback, with 100-byte payloads;\n"
    "that program has one thread and looks at every answer. They take turns, several rounds, and the best round "
    "counts.";

static struct bench_rival rivals[COUNT(all)];

static unsigned find_rivals(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < COUNT(all); i++) {
        if ((all[i]->needs && !server_program(all[i]->needs)) || (all[i] == &sink && !sink_is_here())) {
            fprintf(stderr, "bench: %s is left out: there is no %s here\n", all[i]->name, all[i]->needs);
            continue;
        }
        rivals[count] = (struct bench_rival){
            .name = all[i]->name, .about = all[i]->about, .version = all[i]->version, .ours = all[i] == &rival_foliot};
        here[count++] = all[i];
    }
    return count;
}

const struct bench benchmark = {
    .name = "server",
    .title = "Benchmark: the server",
    .size_name = "timers",
    BENCH_TABLES,
    .find_rivals = find_rivals,
    .run = run_once,
};
