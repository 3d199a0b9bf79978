/* SPDX-License-Identifier: MIT */
/* Redis: a sorted set whose members are the payloads, by due time, with an append-only file. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../engine/server.h"
#include "../frame.h"
#include "rival.h"

enum { MEMBERS = 1000, COMMANDS = 4, POPPED = 1000, MOST_CONNECTIONS = 128 };

/* --- Its life ----------------------------------------------------------------------------------------------------- */

static const char *version(void)
{
    return server_version(server_program("redis-server"), "--version");
}

static void open_with(struct target *target, char *appendfsync)
{
    char port[16];
    target->port = load_free_port();
    snprintf(port, sizeof port, "%d", target->port);
    char *arguments[] = {(char *)server_program("redis-server"),
                         "--bind",
                         "127.0.0.1",
                         "--port",
                         port,
                         "--save",
                         "",
                         "--appendonly",
                         "yes",
                         "--appendfsync",
                         appendfsync,
                         "--auto-aof-rewrite-percentage",
                         "0",
                         "--dir",
                         target->folder,
                         NULL};
    target->server = server_start(target->folder, arguments, NULL, SIGKILL);
    int fd;
    for (int i = 0; (fd = load_connect(target->port)) < 0; i++) {
        usleep(10000);
        if (i == 3000 || waitpid(target->server, NULL, WNOHANG) != 0)
            bench_die("Redis does not start: see %s/log", target->folder);
    }
    close(fd);
}

static void open_always(struct target *target)
{
    open_with(target, "always");
}

static void open_everysec(struct target *target)
{
    open_with(target, "everysec");
}

/* --- One timer a request ------------------------------------------------------------------------------------------ */

struct creation {
    size_t begun, done, count;
    long long due_us;
    char requests[MOST_CONNECTIONS][256];
};

static struct span next_creation(void *arg, unsigned connection)
{
    struct creation *work = arg;
    char payload[PAYLOAD + 1], *out = work->requests[connection];
    if (work->begun == work->count)
        return (struct span){0};
    payload_text(work->begun++, payload);
    int size =
        snprintf(out, sizeof work->requests[0], "*4\r\n$4\r\nZADD\r\n$5\r\nbench\r\n$16\r\n%016lld\r\n$%d\r\n%s\r\n",
                 work->due_us, PAYLOAD, payload);
    return (struct span){out, (size_t)size};
}

static size_t take_creation(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    (void)connection;
    if (size < 4)
        return 0;
    if (size != 4 || memcmp(in, ":1\r\n", 4) != 0)
        bench_die("Redis says: %.*s", (int)size, in);
    ((struct creation *)arg)->done++;
    *ret_whole = true;
    return size;
}

static struct done create(const struct target *target, unsigned connections, size_t count, bool named)
{
    (void)named;
    struct creation *work = calloc(1, sizeof *work);
    *work = (struct creation){.count = count, .due_us = wall_now_us() + 3600000000};
    double seconds =
        load_run(&(struct load){next_creation, take_creation, work, connections, target->port, PATIENCE_S});
    struct done done = {work->done, seconds};
    free(work);
    return done;
}

/* --- Batches ------------------------------------------------------------------------------------------------------ */

struct batches {
    struct script scripts[PULLERS];
    size_t answers[PULLERS]; /* that are to come */
    size_t done;
};

static struct span next_batch(void *arg, unsigned connection)
{
    struct batches *work = arg;
    work->answers[connection] = COMMANDS;
    return script_next(&work->scripts[connection]);
}

/* How many members each command has added. */
static size_t take_batch(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    struct batches *work = arg;
    size_t used = 0;
    const char *eol;
    while ((eol = memchr(in + used, '\n', size - used))) {
        if (in[used] != ':')
            bench_die("Redis says: %.*s", (int)(eol - in - (long)used), in + used);
        work->done += strtoull(in + used + 1, NULL, 10);
        work->answers[connection]--;
        used = (size_t)(eol + 1 - in);
    }
    *ret_whole = work->answers[connection] == 0;
    return used;
}

/* Commands of so many members, several of them at once. */
static void write_commands(struct script *script, size_t first, size_t count, int64_t due_us)
{
    char payload[PAYLOAD + 1];
    script_mark(script);
    for (size_t c = 0; c < COMMANDS; c++) {
        size_t begin = first + count * c / COMMANDS, end = first + count * (c + 1) / COMMANDS;
        script_printf(script, "*%zu\r\n$4\r\nZADD\r\n$5\r\nbench\r\n", 2 + 2 * (end - begin));
        for (size_t i = begin; i < end; i++) {
            payload_text(i, payload);
            script_printf(script, "$16\r\n%016lld\r\n$%d\r\n%s\r\n", (long long)due_us, PAYLOAD, payload);
        }
    }
}

static struct done batch(const struct target *target, size_t count, int64_t due_us)
{
    struct batches work = {0};
    size_t most = (size_t)MEMBERS * COMMANDS;
    unsigned turn = 0;
    for (size_t i = 0; i < count; i += most)
        write_commands(&work.scripts[turn++ % PULLERS], i, count - i < most ? count - i : most, due_us);
    double seconds = load_run(&(struct load){next_batch, take_batch, &work, PULLERS, target->port, 3600});
    for (unsigned i = 0; i < PULLERS; i++)
        script_free(&work.scripts[i]);
    if (work.done != count)
        bench_die("Redis has %zu timers of %zu", work.done, count);
    return (struct done){count, seconds};
}

/* --- Taking out --------------------------------------------------------------------------------------------------- */

struct pops {
    size_t done, count;
    struct script script;
};

static struct span next_pop(void *arg, unsigned connection)
{
    (void)connection;
    struct pops *work = arg;
    return work->done == work->count ? (struct span){0} : (struct span){work->script.data, work->script.size};
}

/* An array of strings that all have the same size. */
static size_t take_pop(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    (void)connection;
    struct pops *work = arg;
    static const size_t each = sizeof "$100\r\n\r\n" - 1 + PAYLOAD;
    const char *eol = memchr(in, '\n', size);
    if (!eol)
        return 0;
    size_t count = strtoull(in + 1, NULL, 10), all = (size_t)(eol + 1 - in) + count * each;
    if (in[0] != '*')
        bench_die("Redis says: %.*s", (int)(eol - in), in);
    if (size < all)
        return 0;
    for (const char *at = eol + 1; at < in + all; at += each)
        if (memcmp(at, "$100\r\n", 6) != 0)
            bench_die("Redis gives something else");
    work->done += count;
    *ret_whole = true;
    return all;
}

static struct done pull(const struct target *target, size_t count)
{
    static const char pop[] = "local d = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2]) "
                              "if #d > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #d - 1) end return d";
    struct pops work = {.count = count};
    script_printf(&work.script,
                  "*6\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$5\r\nbench\r\n$16\r\n%016lld\r\n$4\r\n%d\r\n",
                  sizeof pop - 1, pop, (long long)wall_now_us(), POPPED);
    double seconds = load_run(&(struct load){next_pop, take_pop, &work, PULLERS, target->port, 3600});
    script_free(&work.script);
    return (struct done){work.done, seconds};
}

#define REDIS(words, open_function, about_words)                                                                       \
    {                                                                                                                  \
        .name = (words), .about = (about_words), .version = version, .needs = "redis-server", .open = (open_function), \
        .end = SIGKILL, .create = create, .batch = batch, .pull = pull                                                 \
    }

const struct rival rival_redis_always = REDIS(
    "redis-always", open_always,
    "A sorted set with an append-only file, `appendfsync always`: every answer after an fsync. One timer: a ZADD. "
    "Many: ZADD with 1,000 members, four such commands at once on each connection. Taken out, 1,000 at a time, by "
    "a script that reads and removes them: at most once, where Foliot's leases are at least once.");
const struct rival rival_redis_everysec =
    REDIS("redis-everysec", open_everysec,
          "The same with `appendfsync everysec`: an answer may come a second before it is on the disk.");
