/* SPDX-License-Identifier: MIT */
/* beanstalkd: jobs with a delay, and a log. At least once: a job is reserved, then deleted.
 *
 * Commands are sent a thousand at a time and their answers read meanwhile. */

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

enum { BATCH = 500, UNDER_WAY = 4 };

struct beanstalkd {
    pid_t server;
    char folder[256];
    struct stream stream;
};

/* --- Its life ----------------------------------------------------------------------------------------------------- */

static const char *version(void)
{
    return server_version(server_program("beanstalkd"), "-v");
}

static struct beanstalkd *open_with(const char *folder, char *fsync_option)
{
    struct beanstalkd *self = calloc(1, sizeof *self);
    char address[300];
    snprintf(self->folder, sizeof self->folder, "%s", folder);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    char *arguments[] = {(char *)server_program("beanstalkd"), "-l", address, "-b", self->folder, fsync_option, NULL};
    self->server = server_start(folder, arguments, NULL, SIGKILL);
    self->stream.fd = server_connect(address + 5, self->server);
    return self;
}

static void *open_always(const char *folder)
{
    return open_with(folder, "-f0");
}

static void *open_default(const char *folder)
{
    return open_with(folder, NULL);
}

static void close_beanstalkd(void *arg)
{
    struct beanstalkd *self = arg;
    close(self->stream.fd);
    server_end(self->server, SIGKILL);
    free(self);
}

/* --- Work --------------------------------------------------------------------------------------------------------- */

static void send_put(struct beanstalkd *self, size_t i, long delay_s)
{
    char payload[PAYLOAD];
    timer_payload(i, payload);
    stream_printf(&self->stream, "put 0 %ld 60 %d\r\n", delay_s > 0 ? delay_s : 0, PAYLOAD);
    stream_put(&self->stream, payload, PAYLOAD);
    stream_put(&self->stream, "\r\n", 2);
}

static void expect(struct beanstalkd *self, const char *answer)
{
    const char *line = stream_line(&self->stream);
    if (strncmp(line, answer, strlen(answer)) != 0)
        bench_die("beanstalkd says %s where %s was expected", line, answer);
}

static struct outcome schedule(void *arg, const struct timers *timers)
{
    struct beanstalkd *self = arg;
    struct outcome outcome = {0};
    size_t sent = 0, all = timers->count;
    int64_t begin_us = wall_now_us(), now_us = begin_us, last_us = begin_us;
    while (outcome.count < all) {
        if (sent < all && sent - outcome.count < (size_t)BATCH * UNDER_WAY) {
            for (size_t i = 0; i < BATCH && sent < all; i++, sent++)
                send_put(self, sent, (long)((timer_due_us(timers, timers->first + sent) - begin_us) / 1000000));
            stream_flush(&self->stream);
            continue;
        }
        for (size_t i = 0; i < BATCH && outcome.count < all; i++, outcome.count++)
            expect(self, "INSERTED");
        now_us = wall_now_us();
        outcome.longest_ms = fmax(outcome.longest_ms, (double)(now_us - last_us) / 1000);
        last_us = now_us;
        if (now_us - begin_us > PATIENCE_US)
            all = sent;
    }
    outcome.seconds = (double)(now_us - begin_us) / 1e6;
    return outcome;
}

/* The numbers that are to be sent back. */
static void read_reserved(struct beanstalkd *self, unsigned long long *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *line = stream_line(&self->stream);
        if (strncmp(line, "RESERVED ", 9) != 0)
            bench_die("beanstalkd says %s", line);
        ids[i] = strtoull(line + 9, NULL, 10);
        stream_skip(&self->stream, PAYLOAD + 2);
    }
}

static struct outcome fire(void *arg, size_t count)
{
    struct beanstalkd *self = arg;
    struct outcome outcome = {0};
    int64_t begin_us = wall_now_us(), now_us = begin_us;
    unsigned long long ids[BATCH];
    while (outcome.count < count && now_us - begin_us < PATIENCE_US) {
        size_t n = count - outcome.count < BATCH ? count - outcome.count : BATCH;
        for (size_t i = 0; i < n; i++)
            stream_put(&self->stream, "reserve\r\n", 9);
        stream_flush(&self->stream);
        read_reserved(self, ids, n);
        for (size_t i = 0; i < n; i++)
            stream_printf(&self->stream, "delete %llu\r\n", ids[i]);
        stream_flush(&self->stream);
        for (size_t i = 0; i < n; i++)
            expect(self, "DELETED");
        outcome.count += n;
        now_us = wall_now_us();
    }
    outcome.seconds = (double)(now_us - begin_us) / 1e6;
    return outcome;
}

/* Delays are whole seconds from now on, so each is scheduled so many seconds before it is due. */
static uint64_t punctual(void *arg, size_t count, double *late_ms)
{
    struct beanstalkd *self = arg;
    unsigned long long id;
    long delay_s = (long)(count / 1000) + 1;
    int64_t *due_us = calloc(count, sizeof *due_us), first_us = wall_now_us();
    for (size_t i = 0; i < count; i++) {
        int64_t at_us = first_us + 1000 * (int64_t)i;
        struct timespec at = {at_us / 1000000, at_us % 1000000 * 1000};
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &at, NULL);
        due_us[i] = wall_now_us() + delay_s * 1000000;
        send_put(self, i, delay_s);
        stream_flush(&self->stream);
        expect(self, "INSERTED");
    }
    uint64_t cpu_ns = own_cpu_ns() + server_cpu_ns(self->server);
    for (size_t i = 0; i < count; i++) {
        stream_put(&self->stream, "reserve\r\n", 9);
        stream_flush(&self->stream);
        read_reserved(self, &id, 1);
        late_ms[i] = (double)(wall_now_us() - due_us[i]) / 1000;
        stream_printf(&self->stream, "delete %llu\r\n", id);
        stream_flush(&self->stream);
        expect(self, "DELETED");
    }
    free(due_us);
    return own_cpu_ns() + server_cpu_ns(self->server) - cpu_ns;
}

static double memory_bytes(void *arg)
{
    return server_memory_bytes(((struct beanstalkd *)arg)->server);
}

static uint64_t server_cpu(void *arg)
{
    return server_cpu_ns(((struct beanstalkd *)arg)->server);
}

static double disk_bytes(void *arg)
{
    return folder_bytes(((struct beanstalkd *)arg)->folder);
}

#define BEANSTALKD(words, open_function, punctual_function, about_words)                                             \
    {                                                                                                                \
        .name = (words), .about = (about_words), .version = version, .needs = "beanstalkd", .open = (open_function), \
        .close = close_beanstalkd, .schedule = schedule, .fire = fire, .punctual = (punctual_function),              \
        .memory_bytes = memory_bytes, .disk_bytes = disk_bytes, .server_cpu = server_cpu,                            \
    }

const struct rival rival_beanstalkd_always = BEANSTALKD(
    "beanstalkd-f0", open_always, NULL,
    "With its log and `-f0`: every job is on the disk before it is acknowledged, one fsync each, which is too slow for "
    "lateness at 1,000 a second. Commands are "
    "sent 500 at a time, 2,000 under way; jobs are reserved and then deleted: at least once. Over a socket in "
    "the file system.");
const struct rival rival_beanstalkd = BEANSTALKD(
    "beanstalkd", open_default, punctual, "The same as it comes: an fsync every 50 ms, and an answer before that.");
