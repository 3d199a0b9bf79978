/* SPDX-License-Identifier: MIT */
/* Redis: a sorted set whose members are the payloads, by due time, with an append-only file.
 *
 * Scheduled with ZADD, many members a command and several commands under way. Taken out by a script that reads the earliest
 * and removes them in one step; what it has given out is gone if its reader dies. */

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../frame.h"
#include "rival.h"
#include "server.h"

enum { BATCH = 1000, UNDER_WAY = 4, POPPED = 1000 };

struct redis {
    pid_t server;
    char folder[256];
    char pop[64], pop_next[64]; /* the scripts, as the server calls them */
    struct stream stream;
};

/* --- Answers ------------------------------------------------------------------------------------------------------ */

/* Reads an answer; counts the strings of PAYLOAD bytes in it, notes the last other one as a number. */
static size_t read_answer(struct redis *self, double *ret_number) /* NOLINT(misc-no-recursion): two deep */
{
    const char *line = stream_line(&self->stream);
    char type = line[0];
    long size = strtol(line + 1, NULL, 10);
    size_t count = 0;
    if (type == '-')
        bench_die("Redis says: %s", line + 1);
    if (type == '*')
        for (long i = 0; i < size; i++)
            count += read_answer(self, ret_number);
    if (type != '$' || size < 0)
        return count;
    if (size == PAYLOAD) {
        stream_skip(&self->stream, PAYLOAD + 2);
        return 1;
    }
    if (ret_number)
        *ret_number = strtod(stream_line(&self->stream), NULL);
    else
        stream_skip(&self->stream, (size_t)size + 2);
    return 0;
}

static void load_script(struct redis *self, const char *script, char name[64])
{
    stream_printf(&self->stream, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n", strlen(script), script);
    stream_flush(&self->stream);
    stream_line(&self->stream);
    snprintf(name, 64, "%s", stream_line(&self->stream));
}

/* --- Its life ----------------------------------------------------------------------------------------------------- */

static const char *version(void)
{
    return server_version(server_program("redis-server"), "--version");
}

static struct redis *open_with(const char *folder, char *appendfsync)
{
    struct redis *self = calloc(1, sizeof *self);
    char path[300];
    snprintf(self->folder, sizeof self->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/socket", folder);
    char *arguments[] = {(char *)server_program("redis-server"),
                         "--port",
                         "0",
                         "--unixsocket",
                         path,
                         "--save",
                         "",
                         "--appendonly",
                         "yes",
                         "--appendfsync",
                         appendfsync,
                         "--auto-aof-rewrite-percentage",
                         "0",
                         "--dir",
                         self->folder,
                         NULL};
    self->server = server_start(folder, arguments, NULL, SIGKILL);
    self->stream.fd = server_connect(path, self->server);
    load_script(self,
                "local d = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2]) "
                "if #d > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #d - 1) end return d",
                self->pop);
    load_script(self,
                "local d = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2]) "
                "if #d > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #d - 1) end "
                "return {d, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or ''}",
                self->pop_next);
    return self;
}

static void *open_always(const char *folder)
{
    return open_with(folder, "always");
}

static void *open_everysec(const char *folder)
{
    return open_with(folder, "everysec");
}

static void close_redis(void *arg)
{
    struct redis *self = arg;
    close(self->stream.fd);
    server_end(self->server, SIGKILL);
    free(self);
}

/* --- Work --------------------------------------------------------------------------------------------------------- */

static void send_batch(struct redis *self, const struct timers *timers, size_t first, size_t count)
{
    char payload[PAYLOAD], score[32];
    stream_printf(&self->stream, "*%zu\r\n$4\r\nZADD\r\n$1\r\nt\r\n", 2 + 2 * count);
    for (size_t i = first; i < first + count; i++) {
        int size = snprintf(score, sizeof score, "%lld", (long long)timer_due_us(timers, i));
        timer_payload(i, payload);
        stream_printf(&self->stream, "$%d\r\n%s\r\n$%d\r\n", size, score, PAYLOAD);
        stream_put(&self->stream, payload, PAYLOAD);
        stream_put(&self->stream, "\r\n", 2);
    }
    stream_flush(&self->stream);
}

static struct outcome schedule(void *arg, const struct timers *timers)
{
    struct redis *self = arg;
    struct outcome outcome = {0};
    size_t under_way = 0, all = timers->count;
    int64_t begin_us = wall_now_us(), now_us = begin_us, last_us = begin_us;
    while (outcome.count < all || under_way > 0) {
        if (outcome.count < all && under_way < UNDER_WAY) {
            size_t count = all - outcome.count < BATCH ? all - outcome.count : BATCH;
            send_batch(self, timers, timers->first + outcome.count, count);
            outcome.count += count;
            under_way++;
            continue;
        }
        read_answer(self, NULL);
        under_way--;
        now_us = wall_now_us();
        outcome.longest_ms = fmax(outcome.longest_ms, (double)(now_us - last_us) / 1000);
        last_us = now_us;
        if (now_us - begin_us > PATIENCE_US)
            all = outcome.count;
    }
    outcome.seconds = (double)(now_us - begin_us) / 1e6;
    return outcome;
}

static void send_pop(struct redis *self, const char *script, size_t most)
{
    char now[32], number[32];
    int size = snprintf(now, sizeof now, "%lld", (long long)wall_now_us());
    int digits = snprintf(number, sizeof number, "%zu", most);
    stream_printf(&self->stream, "*6\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$1\r\nt\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n",
                  script, size, now, digits, number);
    stream_flush(&self->stream);
}

static struct outcome fire(void *arg, size_t count)
{
    struct redis *self = arg;
    struct outcome outcome = {0};
    int64_t begin_us = wall_now_us();
    for (int i = 0; i < UNDER_WAY; i++)
        send_pop(self, self->pop, POPPED);
    while (outcome.count < count) {
        outcome.count += read_answer(self, NULL);
        send_pop(self, self->pop, POPPED);
    }
    outcome.seconds = (double)(wall_now_us() - begin_us) / 1e6;
    for (int i = 0; i < UNDER_WAY; i++)
        read_answer(self, NULL);
    return outcome;
}

static void sleep_until(int64_t at_us)
{
    struct timespec at = {at_us / 1000000, at_us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL) != 0)
        ;
}

/* The reader is told with each answer when the next is due, and asks again then. */
static uint64_t punctual(void *arg, size_t count, double *late_ms)
{
    struct redis *self = arg;
    struct timers timers = {.count = count, .from_us = wall_now_us() + 1000000, .step_us = 1000};
    schedule(self, &timers);
    double next_us = (double)timers.from_us;
    int64_t due_us = timers.from_us;
    sleep_until(timers.from_us);
    uint64_t cpu_ns = own_cpu_ns() + server_cpu_ns(self->server);
    for (size_t taken = 0; taken < count;) {
        if ((int64_t)next_us > wall_now_us())
            sleep_until((int64_t)next_us);
        send_pop(self, self->pop_next, POPPED);
        size_t n = read_answer(self, &next_us);
        for (int64_t now_us = wall_now_us(); n > 0; n--, due_us += 1000)
            late_ms[taken++] = (double)(now_us - due_us) / 1000;
    }
    return own_cpu_ns() + server_cpu_ns(self->server) - cpu_ns;
}

static double memory_bytes(void *arg)
{
    return server_memory_bytes(((struct redis *)arg)->server);
}

static uint64_t server_cpu(void *arg)
{
    return server_cpu_ns(((struct redis *)arg)->server);
}

static double disk_bytes(void *arg)
{
    char path[300];
    snprintf(path, sizeof path, "%s/appendonlydir", ((struct redis *)arg)->folder);
    return folder_bytes(path);
}

#define REDIS(words, open_function, about_words)                                                                       \
    {                                                                                                                  \
        .name = (words), .about = (about_words), .version = version, .needs = "redis-server", .open = (open_function), \
        .close = close_redis, .schedule = schedule, .fire = fire, .punctual = punctual, .memory_bytes = memory_bytes,  \
        .disk_bytes = disk_bytes, .server_cpu = server_cpu,                                                            \
    }

const struct rival rival_redis_always =
    REDIS("redis-always", open_always,
          "A sorted set with an append-only file, `appendfsync always`: every answer after an fsync. ZADD with 1,000 "
          "members a command, four commands under way; taken out, 1,000 at a time, by a script that reads and removes "
          "them: at most once. Over a socket in the file system.");
const struct rival rival_redis_everysec =
    REDIS("redis-everysec", open_everysec,
          "The same with `appendfsync everysec`: an answer may come a second before it is on the disk.");
