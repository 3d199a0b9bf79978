/* SPDX-License-Identifier: MIT */
/* beanstalkd: jobs with a delay, and a log. At least once: a job is reserved, then deleted. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../engine/server.h"
#include "../frame.h"
#include "rival.h"

enum { COMMANDS = 500, MOST_CONNECTIONS = 128 };

/* --- Its life ----------------------------------------------------------------------------------------------------- */

static const char *version(void)
{
    return server_version(server_program("beanstalkd"), "-v");
}

static void open_with(struct target *target, char *fsync_option)
{
    char port[16];
    target->port = load_free_port();
    snprintf(port, sizeof port, "%d", target->port);
    char *arguments[] = {
        (char *)server_program("beanstalkd"), "-l", "127.0.0.1", "-p", port, "-b", target->folder, fsync_option, NULL};
    target->server = server_start(target->folder, arguments, NULL, SIGKILL);
    int fd;
    for (int i = 0; (fd = load_connect(target->port)) < 0; i++) {
        usleep(10000);
        if (i == 3000 || waitpid(target->server, NULL, WNOHANG) != 0)
            bench_die("beanstalkd does not start: see %s/log", target->folder);
    }
    close(fd);
}

static void open_always(struct target *target)
{
    open_with(target, "-f0");
}

static void open_default(struct target *target)
{
    open_with(target, NULL);
}

/* --- One timer a request, and batches ----------------------------------------------------------------------------- */

struct puts {
    size_t begun, done, count, each; /* at once */
    long delay_s;
    size_t answers[MOST_CONNECTIONS]; /* that are to come */
    struct script requests[MOST_CONNECTIONS];
};

static struct span next_put(void *arg, unsigned connection)
{
    struct puts *work = arg;
    struct script *script = &work->requests[connection];
    char payload[PAYLOAD + 1];
    size_t count = work->count - work->begun < work->each ? work->count - work->begun : work->each;
    script->size = 0;
    for (size_t i = 0; i < count; i++) {
        payload_text(work->begun++, payload);
        script_printf(script, "put 0 %ld 60 %d\r\n%s\r\n", work->delay_s, PAYLOAD, payload);
    }
    work->answers[connection] = count;
    return (struct span){script->data, script->size};
}

static size_t take_put(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    struct puts *work = arg;
    size_t used = 0;
    const char *eol;
    while ((eol = memchr(in + used, '\n', size - used))) {
        if (strncmp(in + used, "INSERTED ", 9) != 0)
            bench_die("beanstalkd says: %.*s", (int)(eol - in - (long)used), in + used);
        work->done++;
        work->answers[connection]--;
        used = (size_t)(eol + 1 - in);
    }
    *ret_whole = work->answers[connection] == 0;
    return used;
}

static struct done put(const struct target *target, unsigned connections, size_t count, size_t each, long delay_s)
{
    struct puts *work = calloc(1, sizeof *work);
    *work = (struct puts){.count = count, .each = each, .delay_s = delay_s};
    double seconds = load_run(&(struct load){next_put, take_put, work, connections, target->port, PATIENCE_S});
    struct done done = {work->done, seconds};
    for (unsigned i = 0; i < connections; i++)
        script_free(&work->requests[i]);
    free(work);
    return done;
}

static struct done create(const struct target *target, unsigned connections, size_t count, bool named)
{
    (void)named;
    return put(target, connections, count, 1, 3600);
}

static struct done batch(const struct target *target, size_t count, int64_t due_us)
{
    long delay_s = (long)((due_us - wall_now_us()) / 1000000);
    return put(target, PULLERS, count, COMMANDS, delay_s > 0 ? delay_s : 0);
}

/* --- Taking out --------------------------------------------------------------------------------------------------- */

struct jobs {
    size_t deleted;
    struct puller {
        struct script requests;
        size_t answers, reserved;
        bool reserving;
        unsigned long long ids[COMMANDS];
    } pullers[PULLERS];
};

static struct span next_job(void *arg, unsigned connection)
{
    struct jobs *work = arg;
    struct puller *puller = &work->pullers[connection];
    bool empty = puller->reserving && puller->reserved == 0;
    puller->reserving = !puller->reserving;
    puller->requests.size = 0;
    for (size_t i = 0; i < puller->reserved; i++)
        script_printf(&puller->requests, "delete %llu\r\n", puller->ids[i]);
    puller->answers = puller->reserving ? COMMANDS : puller->reserved;
    puller->reserved = 0;
    for (size_t i = 0; puller->reserving && i < COMMANDS; i++)
        script_printf(&puller->requests, "reserve-with-timeout 0\r\n");
    return empty ? (struct span){0} : (struct span){puller->requests.data, puller->requests.size};
}

/* One answer: returns its size, 0 if it is not whole. */
static size_t take_line(struct jobs *work, struct puller *puller, const char *in, size_t size)
{
    const char *eol = memchr(in, '\n', size);
    size_t line = eol ? (size_t)(eol + 1 - in) : 0;
    if (line == 0)
        return 0;
    if (puller->reserving && strncmp(in, "RESERVED ", 9) == 0) {
        if (size < line + PAYLOAD + 2)
            return 0;
        puller->ids[puller->reserved++] = strtoull(in + 9, NULL, 10);
        return line + PAYLOAD + 2;
    }
    if (strncmp(in, puller->reserving ? "TIMED_OUT" : "DELETED", puller->reserving ? 9 : 7) != 0)
        bench_die("beanstalkd says: %.*s", (int)line, in);
    work->deleted += !puller->reserving;
    return line;
}

static size_t take_job(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    struct jobs *work = arg;
    struct puller *puller = &work->pullers[connection];
    size_t used = 0, n;
    while (puller->answers > 0 && (n = take_line(work, puller, in + used, size - used)) > 0) {
        used += n;
        puller->answers--;
    }
    *ret_whole = puller->answers == 0;
    return used;
}

static struct done pull(const struct target *target, size_t count)
{
    (void)count;
    struct jobs *work = calloc(1, sizeof *work);
    double seconds = load_run(&(struct load){next_job, take_job, work, PULLERS, target->port, PATIENCE_S});
    struct done done = {work->deleted, seconds};
    for (unsigned i = 0; i < PULLERS; i++)
        script_free(&work->pullers[i].requests);
    free(work);
    return done;
}

#define BEANSTALKD(words, open_function, about_words)                                                                \
    {                                                                                                                \
        .name = (words), .about = (about_words), .version = version, .needs = "beanstalkd", .open = (open_function), \
        .end = SIGKILL, .create = create, .batch = batch, .pull = pull                                               \
    }

const struct rival rival_beanstalkd_always = BEANSTALKD(
    "beanstalkd-f0", open_always,
    "With its log (`-b`) and `-f0`: every job is on the disk before it is acknowledged, one fsync each; what "
    "it does in a second and a half counts. One timer: a put. Many: 500 puts at once on each connection. "
    "Taken out: 500 are reserved, then deleted.");
const struct rival rival_beanstalkd =
    BEANSTALKD("beanstalkd", open_default, "The same as it comes: an fsync every 50 ms, and an answer before that.");
