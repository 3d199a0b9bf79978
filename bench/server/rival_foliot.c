/* SPDX-License-Identifier: MIT */
/* Foliot over HTTP, as it is started by who tries it: the embedded store in a folder, two options besides. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../engine/server.h"
#include "../frame.h"
#include "http.h"
#include "rival.h"

enum { LEASED = 5000, MOST_CONNECTIONS = 128 };

/* --- Its life ----------------------------------------------------------------------------------------------------- */

static const char *version(void)
{
    return server_version(BENCH_FOLIOT, "--version");
}

bool foliot_ask(int port, const char *request, struct http_answer *answer)
{
    char in[1 << 16];
    size_t size = 0;
    bool whole = false;
    int fd = load_connect(port);
    if (fd < 0)
        return false;
    http_reset(answer);
    ssize_t n = write(fd, request, strlen(request));
    while (n > 0 && !whole && (n = read(fd, in + size, sizeof in - size)) > 0) {
        size += (size_t)n;
        size_t used = http_take(answer, in, size, &whole);
        memmove(in, in + used, size - used);
        size -= used;
    }
    close(fd);
    return whole;
}

static void open_foliot(struct target *target)
{
    char listen[32], store[256];
    target->port = load_free_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%d", target->port);
    snprintf(store, sizeof store, "sqlite:%s/data", target->folder);
    char *arguments[] = {BENCH_FOLIOT, "serve", "--listen", listen, "--store", store, "--allow-private-targets", NULL};
    target->server = server_start(target->folder, arguments, NULL, SIGKILL);
    foliot_await(target);
}

void foliot_await(const struct target *target)
{
    struct http_answer answer = {0};
    for (int i = 0; answer.status != 200; i++) {
        usleep(10000);
        if (i == 3000 || waitpid(target->server, NULL, WNOHANG) != 0)
            bench_die("foliot does not start: see %s/log", target->folder);
        foliot_ask(target->port, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", &answer);
    }
    http_free(&answer);
}

double foliot_metric(const struct target *target, const char *name)
{
    struct http_answer answer = {0};
    char line[100];
    if (!foliot_ask(target->port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", &answer) || answer.status != 200)
        bench_die("foliot has no metrics");
    int size = snprintf(line, sizeof line, "\n%s ", name);
    const char *found = memmem(answer.body, answer.size, line, (size_t)size);
    if (!found)
        bench_die("foliot has no metric %s", name);
    double value = strtod(found + size, NULL);
    http_free(&answer);
    return value;
}

void foliot_keep(const struct target *target, const char *only)
{
    struct http_answer answer = {0};
    char body[64], request[256];
    int size = snprintf(body, sizeof body, "{\"history\":{\"only\":\"%s\"}}", only);
    snprintf(request, sizeof request,
             "PATCH /v1/namespaces/bench HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Content-Length: %d\r\n\r\n%s",
             size, body);
    if (!foliot_ask(target->port, request, &answer) || answer.status != 200)
        bench_die("foliot does not take the setting of history: it answers %d", answer.status);
    http_free(&answer);
}

bool foliot_has_history(const struct target *target)
{
    struct http_answer answer = {0};
    if (!foliot_ask(target->port, "GET /v1/history/bench?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", &answer) ||
        answer.status != 200)
        bench_die("foliot has no history: it answers %d", answer.status);
    bool has = memmem(answer.body, answer.size, "\"result\":\"done\"", 15);
    http_free(&answer);
    return has;
}

/* --- One timer a request ------------------------------------------------------------------------------------------ */

struct creation {
    foliot_name_fn *name; /* NULL: they have none */
    void *arg;
    size_t begun, done, count;
    struct http_answer answers[MOST_CONNECTIONS];
    char requests[MOST_CONNECTIONS][512];
};

static struct span next_creation(void *arg, unsigned connection)
{
    struct creation *work = arg;
    char payload[PAYLOAD + 1], body[256], name[32] = "", *out = work->requests[connection];
    if (work->begun == work->count)
        return (struct span){0};
    payload_text(work->begun, payload);
    if (work->name)
        work->name(name, work->begun, work->arg);
    int size = snprintf(body, sizeof body, "{\"after\":\"1h\",\"payload\":\"%s\"}", payload);
    int all = snprintf(out, sizeof work->requests[0],
                       "%s /v1/timers/bench%s%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                       "Content-Length: %d\r\n\r\n%s",
                       work->name ? "PUT" : "POST", work->name ? "/" : "", name, size, body);
    work->begun++;
    return (struct span){out, (size_t)all};
}

static size_t take_creation(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    struct creation *work = arg;
    struct http_answer *answer = &work->answers[connection];
    size_t used = http_take(answer, in, size, ret_whole);
    if (!*ret_whole)
        return used;
    if (answer->status != 201 || !memmem(answer->body, answer->size, "\"id\":\"", 6))
        bench_die("foliot answers %d: %.*s", answer->status, (int)answer->size, answer->body);
    http_reset(answer);
    work->done++;
    return used;
}

struct done foliot_create(const struct target *target, unsigned connections, size_t count, foliot_name_fn *name,
                          void *arg)
{
    struct creation *work = calloc(1, sizeof *work);
    *work = (struct creation){.name = name, .arg = arg, .count = count};
    double seconds = load_run(&(struct load){next_creation, take_creation, work, connections, target->port, PATIENCE_S,
                                             target->others, target->other_count});
    struct done done = {work->done, seconds};
    for (unsigned i = 0; i < connections; i++)
        http_free(&work->answers[i]);
    free(work);
    return done;
}

static void order_name(char name[32], size_t i, void *arg)
{
    (void)arg;
    snprintf(name, 32, "order-%zu", i);
}

static struct done create(const struct target *target, unsigned connections, size_t count, bool named)
{
    return foliot_create(target, connections, count, named ? order_name : NULL, NULL);
}

/* --- Batches ------------------------------------------------------------------------------------------------------ */

struct batches {
    struct script scripts[MOST_PULLERS];
    struct http_answer answers[MOST_PULLERS];
    size_t done;
};

static struct span next_batch(void *arg, unsigned connection)
{
    return script_next(&((struct batches *)arg)->scripts[connection]);
}

/* Lines are counted as they come. */
static size_t take_batch(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    static const char good[] = "{\"ok\":true";
    struct batches *work = arg;
    struct http_answer *answer = &work->answers[connection];
    size_t used = http_take(answer, in, size, ret_whole);
    char *line = answer->body, *end = line + answer->size, *eol;
    for (; line < end && (eol = memchr(line, '\n', (size_t)(end - line))); line = eol + 1, work->done++)
        if (answer->status != 200 || strncmp(line, good, sizeof good - 1) != 0)
            bench_die("foliot answers %d: %.*s", answer->status, (int)(eol - line), line);
    answer->size = (size_t)(end - line);
    if (answer->size > 0)
        memmove(answer->body, line, answer->size);
    if (*ret_whole)
        http_reset(answer);
    return used;
}

static unsigned pullers_of(const struct target *target)
{
    return target->pullers ? target->pullers : PULLERS;
}

struct done foliot_lines(const struct target *target, struct script lines[MOST_PULLERS])
{
    struct batches work = {0};
    unsigned pullers = pullers_of(target);
    for (unsigned i = 0; i < pullers; i++) {
        struct script *script = &work.scripts[i];
        script_mark(script);
        script_printf(script,
                      "POST /v1/batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
                      "Content-Length: %zu\r\n\r\n",
                      lines[i].size);
        script->room = script->size + lines[i].size;
        script->data = realloc(script->data, script->room);
        if (!script->data)
            bench_die("no memory");
        if (lines[i].size > 0)
            memcpy(script->data + script->size, lines[i].data, lines[i].size);
        script->size = script->room;
        script_free(&lines[i]);
    }
    double seconds = load_run(&(struct load){next_batch, take_batch, &work, pullers, target->port, 3600, target->others,
                                             target->other_count});
    for (unsigned i = 0; i < pullers; i++) {
        script_free(&work.scripts[i]);
        http_free(&work.answers[i]);
    }
    return (struct done){work.done, seconds};
}

struct done foliot_batch(const struct target *target, size_t count, int64_t due_us, foliot_name_fn *name, void *arg)
{
    struct script lines[MOST_PULLERS] = {0};
    char payload[PAYLOAD + 1], text[32];
    for (size_t i = 0; i < count; i++) {
        struct script *script = &lines[i % pullers_of(target)];
        payload_text(i, payload);
        script_printf(script, "{\"op\":\"create\",\"namespace\":\"bench\",\"due\":%lld,\"payload\":\"%s\"",
                      (long long)(due_us / 1000), payload);
        if (name) {
            name(text, i, arg);
            script_printf(script, ",\"name\":\"%s\"", text);
        }
        script_printf(script, "}\n");
    }
    struct done done = foliot_lines(target, lines);
    if (done.count != count)
        bench_die("foliot has created %zu timers of %zu", done.count, count);
    return done;
}

static struct done batch(const struct target *target, size_t count, int64_t due_us)
{
    return foliot_batch(target, count, due_us, NULL, NULL);
}

void foliot_hooks(const struct target *target, const char *url, size_t count, int64_t from_us, int64_t step_us)
{
    struct script lines[MOST_PULLERS] = {0};
    char payload[PAYLOAD + 1];
    for (size_t i = 0; i < count; i++) {
        payload_text(i, payload);
        script_printf(&lines[i % pullers_of(target)],
                      "{\"op\":\"create\",\"namespace\":\"bench\",\"name\":\"order-%zu\",\"due\":%lld,"
                      "\"target\":\"%s\",\"payload\":\"%s\"}\n",
                      i, (long long)((from_us + step_us * (int64_t)i) / 1000), url, payload);
    }
    struct done done = foliot_lines(target, lines);
    if (done.count != count || wall_now_us() > from_us)
        bench_die("foliot has created %zu timers of %zu, or too late", done.count, count);
}

/* --- Leases ------------------------------------------------------------------------------------------------------- */

struct leases {
    size_t settled, count;
    uint64_t last_ns; /* when something was settled; who asks after that waits for nothing */
    struct puller {
        struct http_answer answer;
        size_t leased; /* what the request under way settles; 0: it asks for more */
        char *request; /* with room for its head before the body */
    } pullers[MOST_PULLERS];
};

enum { HEAD_ROOM = 256, ACK_ROOM = 96, LEASE_ROOM = HEAD_ROOM + 64 + LEASED * ACK_ROOM };

/* Puts the head right before the body. */
static struct span with_head(char *request, const char *path, size_t body)
{
    char head[HEAD_ROOM];
    int size = snprintf(head, sizeof head,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\n\r\n",
                        path, body);
    memcpy(request + HEAD_ROOM - size, head, (size_t)size);
    return (struct span){request + HEAD_ROOM - size, (size_t)size + body};
}

/* What is leased is acknowledged. */
static struct span acknowledge(struct puller *puller)
{
    static const char key[] = "\"lease\":\"";
    char *body = puller->request + HEAD_ROOM, *out = body;
    const char *at = puller->answer.body, *end = at + puller->answer.size;
    out = stpcpy(out, "{\"acks\":[");
    puller->leased = 0;
    while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
        at += sizeof key - 1;
        size_t size = strcspn(at, "\"");
        if (puller->leased == LEASED || size > 64)
            bench_die("foliot leases more than was asked for");
        out = stpcpy(out, puller->leased++ ? ",{\"lease\":\"" : "{\"lease\":\"");
        out = mempcpy(out, at, size);
        out = stpcpy(out, "\",\"result\":\"done\"}");
    }
    out = stpcpy(out, "]}");
    return with_head(puller->request, "/v1/ack", (size_t)(out - body));
}

static struct span next_lease(void *arg, unsigned connection)
{
    struct leases *work = arg;
    struct puller *puller = &work->pullers[connection];
    if (puller->leased == 0 && puller->answer.size > 0) {
        struct span request = acknowledge(puller);
        http_reset(&puller->answer);
        if (puller->leased > 0)
            return request;
    }
    puller->leased = 0;
    http_reset(&puller->answer);
    if (work->settled == work->count)
        return (struct span){0};
    char *end = stpcpy(puller->request + HEAD_ROOM, "{\"max\":5000,\"wait\":\"100ms\",\"lease\":\"1m\"}");
    return with_head(puller->request, "/v1/lease/bench", (size_t)(end - puller->request - HEAD_ROOM));
}

static size_t take_lease(void *arg, unsigned connection, const char *in, size_t size, bool *ret_whole)
{
    struct leases *work = arg;
    struct puller *puller = &work->pullers[connection];
    size_t used = http_take(&puller->answer, in, size, ret_whole);
    if (!*ret_whole)
        return used;
    char expected[64];
    int n = snprintf(expected, sizeof expected, "{\"settled\":%zu", puller->leased);
    if (puller->answer.status != 200 || puller->answer.size <= (size_t)n ||
        (puller->leased > 0 && strncmp(puller->answer.body, expected, (size_t)n) != 0) ||
        (puller->leased > 0 && !strchr(",}", puller->answer.body[n])))
        bench_die("foliot answers %d: %.*s", puller->answer.status, 200, puller->answer.body);
    work->settled += puller->leased;
    if (puller->leased > 0)
        work->last_ns = bench_real_ns();
    return used;
}

static struct done pull(const struct target *target, size_t count)
{
    struct leases work = {.count = count};
    unsigned pullers = pullers_of(target);
    for (unsigned i = 0; i < pullers; i++)
        if (!(work.pullers[i].request = malloc(LEASE_ROOM)))
            bench_die("no memory");
    uint64_t begin_ns = bench_real_ns();
    load_run(&(struct load){next_lease, take_lease, &work, pullers, target->port, 3600, target->others,
                            target->other_count});
    for (unsigned i = 0; i < pullers; i++) {
        http_free(&work.pullers[i].answer);
        free(work.pullers[i].request);
    }
    return (struct done){work.settled, (double)(work.last_ns - begin_ns) / 1e9};
}

const struct rival rival_foliot = {
    .name = "foliot",
    .about =
        "`foliot serve` with the embedded store (SQLite) on the same disk, over HTTP, and with its defaults but for "
        "`--allow-private-targets`, without which it calls nobody on this machine: a shard and a worker a "
        "processor. Every answer comes after the fsync of what it acknowledges, except that acknowledgements of "
        "leases are recorded once a second: a crash repeats, and loses nothing.",
    .version = version,
    .open = open_foliot,
    .end = SIGKILL,
    .create = create,
    .batch = batch,
    .pull = pull,
};
