/* SPDX-License-Identifier: MIT */
/* `foliot bench`: how fast a running server is, as its clients see it: timers created one by one over some connections, in one
 * stream, leased and acknowledged, cancelled. It works in a namespace of its own and leaves nothing behind in it. */

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/histogram.h"
#include "cli/client.h"
#include "cli/show.h"

static const char *ns;
static uint64_t count = 10000, connections = 8, size = 100;

enum { LEASED_AT_ONCE = 1000 };

static char *payload; /* a JSON string */

static void report(const char *what, uint64_t done, uint64_t begin_ns)
{
    double seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
    char made[SHOWN], rate[SHOWN], took[SHOWN];
    printf("%-30s %12s in %9s  %12s per second\n", what, show_count(made, (double)done), show_seconds(took, seconds),
           show_count(rate, seconds > 0 ? (double)done / seconds : 0));
    fflush(stdout);
}

/* --- One by one --------------------------------------------------------------------------------------------------- */

struct creator {
    pthread_t thread;
    uint64_t count;
    int status;
    struct histogram took_ns;
};

static void create_all(struct creator *creator, struct client *client)
{
    struct out path = {0}, body = {0}, answer = {0};
    put_path(&path, "/v1/timers", ns, NULL);
    out_format(&body, "{\"after\":\"1h\",\"payload\":%s}", payload);
    for (uint64_t i = 0; i < creator->count && creator->status == CLI_OK; i++) {
        uint64_t begin = clock_now_ns();
        creator->status = client_call(client, "POST", &path, &body, &answer);
        histogram_add(&creator->took_ns, clock_now_ns() - begin);
    }
    out_free(&path);
    out_free(&body);
    out_free(&answer);
}

static void *create(void *arg)
{
    struct creator *creator = arg;
    struct client client;
    creator->status = client_prepare(&client, &bench_command);
    if (creator->status == CLI_OK) {
        create_all(creator, &client);
        client_close(&client);
    }
    return NULL;
}

static int bench_create(struct client *client)
{
    struct creator *creators = calloc(connections, sizeof *creators);
    struct histogram took = {0};
    char p50[SHOWN], p99[SHOWN];
    uint64_t begin = clock_now_ns(), started = 0;
    int status = CLI_OK;
    if (!creators)
        return client_no_memory(client);
    for (; started < connections && status == CLI_OK; started++) {
        creators[started].count = count / connections + (started < count % connections);
        if (pthread_create(&creators[started].thread, NULL, create, &creators[started]) != 0) {
            status =
                client_say(client, CLI_FAILED, "cannot start one thread per connection; give a smaller --connections");
            break;
        }
    }
    for (uint64_t i = 0; i < started; i++) {
        pthread_join(creators[i].thread, NULL);
        status = status == CLI_OK ? creators[i].status : status;
        fl__histogram_merge(&took, &creators[i].took_ns);
    }
    free(creators);
    if (status != CLI_OK)
        return status;
    report("created, one per request", count, begin);
    printf("%-30s p50 %s, p99 %s over %" PRIu64 " connections\n", "  time per request",
           show_seconds(p50, (double)fl__histogram_permille(&took, 500) / 1e9),
           show_seconds(p99, (double)fl__histogram_permille(&took, 990) / 1e9), connections);
    return CLI_OK;
}

/* --- In one stream ------------------------------------------------------------------------------------------------ */

struct stream {
    struct out line;
    size_t given;
    uint64_t left, answers;
};

static size_t give(void *arg, char *to, size_t room)
{
    struct stream *stream = arg;
    size_t made = 0;
    while (made < room) {
        if (stream->given == stream->line.size) {
            if (stream->left == 0)
                break;
            stream->left--;
            stream->given = 0;
        }
        size_t left = stream->line.size - stream->given, part = left < room - made ? left : room - made;
        memcpy(to + made, stream->line.data + stream->given, part);
        stream->given += part;
        made += part;
    }
    return made;
}

static bool take(void *arg, fl_bytes piece)
{
    struct stream *stream = arg;
    const char *at = piece.data, *end = at + piece.size;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        stream->answers++;
        at++;
    }
    return true;
}

static int create_stream(struct client *client, const char *after)
{
    struct out path = {0};
    struct stream stream = {.left = count};
    out_text(&path, "/v1/batch");
    out_text(&stream.line, "{\"op\":\"create\",\"namespace\":");
    out_string(&stream.line, bytes_of(ns));
    out_format(&stream.line, ",\"after\":\"%s\",\"payload\":%s}\n", after, payload);
    stream.given = stream.line.size;
    struct client_request request = {.method = "POST", .path = &path, .give = give, .take = take, .arg = &stream};
    int status = stream.line.failed ? client_no_memory(client) : client_send(client, &request, NULL);
    if (status == CLI_OK && stream.answers != count)
        status =
            client_say(client, CLI_FAILED, "the server answered only %" PRIu64 " of %" PRIu64 " lines of the batch",
                       stream.answers, count);
    out_free(&path);
    out_free(&stream.line);
    return status;
}

static int bench_batch(struct client *client)
{
    uint64_t begin = clock_now_ns();
    int status = create_stream(client, "1h");
    if (status == CLI_OK)
        report("created, in one batch", count, begin);
    return status;
}

/* --- Leases ------------------------------------------------------------------------------------------------------- */

/* Writes the acknowledgement of what was leased. Returns how many that are. */
static uint64_t put_acks(struct out *out, struct json answer)
{
    struct json timers, timer, lease;
    uint64_t made = 0;
    out_clear(out);
    out_text(out, "{\"acks\":[");
    if (json_get(answer, "timers", &timers))
        for (struct json_walk walk = json_walk(timers); json_element(&walk, &timer);)
            if (json_get(timer, "lease", &lease)) {
                out_format(out, "%s{\"lease\":%.*s,\"result\":\"done\"}", made++ > 0 ? "," : "", (int)lease.text.size,
                           (const char *)lease.text.data);
            }
    out_text(out, "]}");
    return made;
}

static int lease_all(struct client *client)
{
    struct out lease_path = {0}, ack_path = {0}, lease = {0}, acks = {0}, answer = {0};
    struct json result;
    uint64_t done = 0;
    int status = CLI_OK;
    put_path(&lease_path, "/v1/lease", ns, NULL);
    out_text(&ack_path, "/v1/ack");
    out_format(&lease, "{\"max\":%d,\"wait\":\"10s\"}", LEASED_AT_ONCE);
    while (status == CLI_OK && done < count) {
        uint64_t leased = 0;
        status = client_ask(client, "POST", &lease_path, &lease, &answer, &result);
        if (status == CLI_OK)
            leased = put_acks(&acks, result);
        if (status == CLI_OK && leased == 0)
            status =
                client_say(client, CLI_FAILED, "%" PRIu64 " of %" PRIu64 " due timers could not be leased within 10 s",
                           count - done, count);
        if (status == CLI_OK)
            status = client_ask(client, "POST", &ack_path, &acks, &answer, &result);
        done += leased;
    }
    out_free(&lease_path);
    out_free(&ack_path);
    out_free(&lease);
    out_free(&acks);
    out_free(&answer);
    return status;
}

static int bench_lease(struct client *client)
{
    int status = create_stream(client, "0s");
    uint64_t begin = clock_now_ns();
    if (status == CLI_OK)
        status = lease_all(client);
    if (status == CLI_OK)
        report("leased and acknowledged", count, begin);
    return status;
}

/* --- All of it ---------------------------------------------------------------------------------------------------- */

static int bench_cancel(struct client *client)
{
    struct out path = {0}, answer = {0};
    struct json result, cancelled;
    int64_t made = 0;
    uint64_t begin = clock_now_ns();
    put_path(&path, "/v1/timers", ns, NULL);
    put_query(&path, "all", "true");
    int status = client_ask(client, "DELETE", &path, NULL, &answer, &result);
    if (status == CLI_OK && json_get(result, "cancelled", &cancelled) && json_integer(cancelled, &made))
        report("cancelled, all in one request", (uint64_t)made, begin);
    out_free(&path);
    out_free(&answer);
    return status;
}

static int bench(struct client *client)
{
    int status = bench_create(client);
    if (status == CLI_OK)
        status = bench_batch(client);
    if (status == CLI_OK)
        status = bench_lease(client);
    int cleared = bench_cancel(client);
    return status == CLI_OK ? cleared : status;
}

static int run(void)
{
    static char own[32];
    struct client client;
    if (!ns) {
        snprintf(own, sizeof own, "bench-%ld", (long)getpid());
        ns = own;
    }
    payload = malloc(size + 3);
    int status = client_open(&client, &bench_command);
    if (status != CLI_OK)
        return status;
    signal(SIGPIPE, SIG_IGN);
    if (payload) {
        memset(payload, 'x', size + 2);
        payload[0] = payload[size + 1] = '"';
        payload[size + 2] = '\0';
        status = bench(&client);
    } else {
        status = client_no_memory(&client);
    }
    free(payload);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    {"count", "N", "number of timers per part", .value = &count, .min = 1, .max = 100000000},
    {"connections", "N", "number of connections for single requests", .value = &connections, .min = 1, .max = 1000},
    {"size", "BYTES", "size of the payload", .value = &size, .min = 1, .max = 200000},
    {"namespace", "NAME", "namespace to use; all its timers are cancelled at the end; default: bench-PID", .text = &ns},
    {0},
};

const struct cli_command bench_command = {
    .name = "bench",
    .summary = "measures how fast the server creates, leases and cancels timers",
    .options = options,
    .run = run,
};
