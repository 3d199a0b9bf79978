/* SPDX-License-Identifier: MIT */
/* The server with many schedules: see many.h. It is started as its users start it, with the embedded store in a folder, and driven
 * over TCP. What it uses is read from the system. */

#include "many.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/server.h"
#include "../frame.h"
#include "../server/http.h"
#include "../server/rival.h"

#define SECOND_US 1000000ll

enum { WARM_UP_S = 5, LEASED = 5000, LATEST_MS = 10000 };

static void put_line(struct script lines[MOST_PULLERS], size_t i, const char *rule)
{
    script_printf(
        &lines[i % PULLERS],
        "{\"op\":\"schedule\",\"namespace\":\"bench\",\"name\":\"schedule-%zu\",%s,\"payload\":{\"order\":%zu}}\n", i,
        rule, i);
}

static double create(const struct target *target, struct script lines[MOST_PULLERS], size_t count)
{
    struct done done = foliot_lines(target, lines);
    if (done.count != count)
        bench_die("foliot has created %zu schedules of %zu", done.count, count);
    return done.seconds;
}

/* --- Pending ------------------------------------------------------------------------------------------------------ */

struct use {
    double created_per_s, memory, disk, start_s, start_cpu_s, memory_after;
};

static void restart(struct target *target, struct use *use)
{
    server_end(target->server, SIGTERM);
    use->disk = folder_bytes(target->folder);
    uint64_t begin_ns = bench_real_ns();
    rival_foliot.open(target);
    use->start_s = (double)(bench_real_ns() - begin_ns) / 1e9;
    use->start_cpu_s = (double)server_cpu_ns(target->server) / 1e9;
    sleep(3);
    use->memory_after = server_memory_bytes(target->server);
}

static struct use keep_pending(size_t count)
{
    struct target target = {0};
    struct script lines[MOST_PULLERS] = {0};
    struct use use = {0};
    folder_make(target.folder, sizeof target.folder);
    rival_foliot.open(&target);
    for (size_t i = 0; i < count; i++) /* none of them is due during the benchmark */
        put_line(lines, i,
                 "\"cron\":\"H H(1-22) H H *\",\"zone\":\"Europe/Berlin\",\"start\":\"2100-01-01T00:00:00Z\"");
    use.created_per_s = (double)count / create(&target, lines, count);
    sleep(3);
    use.memory = server_memory_bytes(target.server);
    restart(&target, &use);
    server_end(target.server, SIGTERM);
    folder_remove(target.folder);
    return use;
}

static void tell_pending(FILE *out, size_t count)
{
    struct use none = keep_pending(1), all = keep_pending(count);
    fprintf(out,
            "\n### %zu schedules pending\n\n"
            "Cron expressions in Europe/Berlin, on the embedded store, created in batches over %d connections. Memory "
            "is anonymous "
            "memory of the\nprocess, three seconds later. The server is then stopped and started. It has started when "
            "`/readyz` "
            "answers 200.\n\n"
            "| | 1 schedule | %zu schedules |\n| --- | ---: | ---: |\n",
            count, PULLERS, count);
    fprintf(out, "| created, schedules per second | – | %.0f |\n", all.created_per_s);
    fprintf(out, "| memory after creating, MiB | %.1f | %.1f |\n", none.memory / 1048576, all.memory / 1048576);
    fprintf(out, "| disk, bytes per schedule | – | %.0f |\n", (all.disk - none.disk) / (double)count);
    fprintf(out, "| start, s | %.2f | %.2f |\n", none.start_s, all.start_s);
    fprintf(out, "| processor time of the start, s | %.2f | %.2f |\n", none.start_cpu_s, all.start_cpu_s);
    fprintf(out, "| memory after the start, MiB | %.1f | %.1f |\n", none.memory_after / 1048576,
            all.memory_after / 1048576);
}

/* --- Occurrences -------------------------------------------------------------------------------------------------- */

/* A worker of the user: leases what is due, looks how late it is, and acknowledges it. */
struct work {
    uint64_t begin_ns, cpu_begin_ns, own_cpu_ns, end_ns;
    pid_t server;
    size_t leased, measured;
    uint32_t late_ms[LATEST_MS + 1];
    struct puller {
        struct http_answer answer;
        struct script request;
        size_t to_acknowledge;
    } pullers[PULLERS];
};

/* Since the hour of a time like "2100-01-31T09:30:00.125Z". */
static int64_t since_the_hour_us(const char *time)
{
    return strtoll(time + 14, NULL, 10) * 60 * SECOND_US + llround(strtod(time + 17, NULL) * 1e6);
}

static void measure(struct work *work, const char *occurrence)
{
    int64_t hour_us = 3600 * SECOND_US, late_us = wall_now_us() % hour_us - since_the_hour_us(occurrence);
    if (late_us < -hour_us / 2)
        late_us += hour_us;
    if (late_us < 0)
        bench_die("an occurrence is %lld us early", (long long)-late_us);
    int64_t late_ms = late_us / 1000;
    work->late_ms[late_ms < LATEST_MS ? late_ms : LATEST_MS]++;
    work->measured++;
}

static void put_request(struct puller *puller, const char *path, const struct script *body)
{
    script_printf(
        &puller->request,
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", path,
        body->size);
    for (size_t at = 0; at < body->size; at += 1000) /* printf takes at most a line */
        script_printf(&puller->request, "%.*s", (int)(body->size - at < 1000 ? body->size - at : 1000),
                      body->data + at);
}

/* Acknowledges what the answer has leased. */
static void acknowledge(struct work *work, struct puller *puller, bool counts)
{
    static const char lease_key[] = "\"lease\":\"", occurrence_key[] = "\"occurrence\":\"";
    struct script body = {0};
    const char *at = puller->answer.body, *end = at + puller->answer.size;
    puller->to_acknowledge = 0;
    script_printf(&body, "{\"acks\":[");
    while ((at = memmem(at, (size_t)(end - at), lease_key, sizeof lease_key - 1))) {
        at += sizeof lease_key - 1;
        script_printf(&body, "%s{\"lease\":\"%.*s\",\"result\":\"done\"}", puller->to_acknowledge++ ? "," : "",
                      (int)strcspn(at, "\""), at);
        const char *occurrence = memmem(at, (size_t)(end - at), occurrence_key, sizeof occurrence_key - 1);
        if (!occurrence)
            bench_die("foliot leases a timer of no schedule");
        if (counts)
            measure(work, occurrence + sizeof occurrence_key - 1);
    }
    script_printf(&body, "]}");
    put_request(puller, "/v1/ack", &body);
    script_free(&body);
}

static struct span next_request(void *arg, unsigned connection)
{
    struct work *work = arg;
    struct puller *puller = &work->pullers[connection];
    bool warm = bench_real_ns() >= work->begin_ns;
    puller->request.size = 0;
    if (warm && work->cpu_begin_ns == 0) {
        work->cpu_begin_ns = server_cpu_ns(work->server);
        work->own_cpu_ns = own_cpu_ns();
    }
    if (puller->answer.status == 200 && puller->answer.size > 0 && puller->to_acknowledge == 0)
        acknowledge(work, puller, warm);
    else
        puller->to_acknowledge = 0;
    if (puller->to_acknowledge == 0) {
        struct script body = {0};
        puller->request.size = 0;
        script_printf(&body, "{\"max\":%d,\"wait\":\"1s\"}", LEASED);
        put_request(puller, "/v1/lease/bench", &body);
        script_free(&body);
    }
    http_reset(&puller->answer);
    return (struct span){puller->request.data, puller->request.size};
}

static size_t take_answer(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    struct work *work = arg;
    struct http_answer *answer = &work->pullers[connection].answer;
    size_t used = http_take(answer, in, size, ret_whole);
    if (*ret_whole && answer->status != 200)
        bench_die("foliot answers %d: %.*s", answer->status, (int)answer->size, answer->body);
    return used;
}

static unsigned percentile(const struct work *work, double part)
{
    size_t left = (size_t)(part * (double)work->measured);
    unsigned ms = 0;
    while (ms < LATEST_MS && work->late_ms[ms] <= left)
        left -= work->late_ms[ms++];
    return ms;
}

static unsigned latest(const struct work *work)
{
    unsigned ms = LATEST_MS;
    while (ms > 0 && work->late_ms[ms] == 0)
        ms--;
    return ms;
}

/* So many schedules with a period of a second, evenly spread over it. */
static void create_every(const struct target *target, size_t count)
{
    struct script lines[MOST_PULLERS] = {0};
    int64_t begin_us = (wall_now_us() / SECOND_US + 1) * SECOND_US;
    char rule[100];
    for (size_t i = 0; i < count; i++) {
        int64_t at_us = begin_us + SECOND_US * (int64_t)i / (int64_t)count;
        snprintf(rule, sizeof rule, "\"every\":\"1s\",\"missed\":\"skip\",\"start\":%lld", (long long)(at_us / 1000));
        put_line(lines, i, rule);
    }
    create(target, lines, count);
}

static void tell_lateness(FILE *out, size_t rate, unsigned seconds)
{
    struct target target = {0};
    struct work *work = calloc(1, sizeof *work);
    if (!work)
        bench_die("no memory");
    folder_make(target.folder, sizeof target.folder);
    rival_foliot.open(&target);
    create_every(&target, rate);
    work->server = target.server;
    work->begin_ns = bench_real_ns() + WARM_UP_S * 1000000000ull;
    load_run(
        &(struct load){next_request, take_answer, work, PULLERS, target.port, WARM_UP_S + (double)seconds, NULL, 0});
    double wall = (double)(bench_real_ns() - work->begin_ns) / 1e9;
    double cpu = (double)(server_cpu_ns(target.server) - work->cpu_begin_ns) / 1e9;
    double own = (double)(own_cpu_ns() - work->own_cpu_ns) / 1e9;
    fprintf(out, "| %zu | %.0f | %u | %u | %u | %u | %.2f | %.1f | %.2f |\n", rate, (double)work->measured / wall,
            percentile(work, 0.5), percentile(work, 0.99), percentile(work, 0.999), latest(work), cpu / wall,
            cpu * 1e6 / (double)(work->measured ? work->measured : 1), own / wall);
    server_end(target.server, SIGTERM);
    folder_remove(target.folder);
    for (unsigned i = 0; i < PULLERS; i++) {
        http_free(&work->pullers[i].answer);
        script_free(&work->pullers[i].request);
    }
    free(work);
}

void many_tell(FILE *out, bool quick)
{
    fputs("## A server with many schedules\n", out);
    tell_pending(out, quick ? 2000 : 1000000);
    fprintf(out,
            "\n### Occurrences per second\n\n"
            "Schedules with a period of one second, evenly spread over it, on the embedded store. Each occurrence is a "
            "timer of its "
            "own on\nthe disk. A worker leases and acknowledges them over %d connections. Lateness is from the nominal "
            "time until "
            "the worker has the\noccurrence, in whole milliseconds rounded down. Processors are those that are busy on "
            "average.\n\n"
            "| occurrences per second | delivered per second | late p50, ms | p99 | p99.9 | most | server, processors "
            "| server, µs "
            "per occurrence | worker, processors |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
            PULLERS);
    if (quick) {
        tell_lateness(out, 200, 1);
        return;
    }
    tell_lateness(out, 1000, 15);
    tell_lateness(out, 10000, 30);
}
