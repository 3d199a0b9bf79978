/* SPDX-License-Identifier: MIT */
/* Whatever bytes a client sends, in whatever portions: the server does not break, forgets nothing, and understands the
 * same requests however they are cut up. The first byte says how; the rest goes over a pair of sockets. */

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static struct {
    fl_virtual_clock clock;
    fl_loop *loop;
    http_server *server;
    http_request *kept;
    unsigned ways;        /* bits: what handlers do */
    uint32_t digest;      /* of all requests and bodies that were understood */
    uint32_t body;        /* of a body that is not whole yet */
    int handed, answered; /* out; back */
} fuzz;

static void add(uint32_t *digest, fl_bytes bytes)
{
    for (size_t i = 0; i < bytes.size; i++)
        *digest = *digest * 16777619 ^ ((const uint8_t *)bytes.data)[i];
}

static void add_body(void)
{
    fuzz.digest = fuzz.digest * 31 + fuzz.body;
}

static void answer(http_request *request)
{
    fuzz.answered++;
    if (fuzz.ways & 1) {
        http_answer(request, 200, "text/plain", NULL, request->path);
        return;
    }
    http_begin(request, 200, "text/plain", NULL);
    http_write(request, request->query);
    http_write(request, request->path);
    http_end(request);
}

static void on_gone(http_request *request)
{
    if (fuzz.kept == request)
        fuzz.kept = NULL;
    answer(request);
}

static void on_data(http_request *request, fl_bytes piece, bool last)
{
    add(&fuzz.body, piece);
    fuzz.kept = last ? NULL : request;
    if (last) {
        add_body();
        answer(request);
    } else if (fuzz.ways & 8) {
        http_pause(request);
    }
}

static void on_head(http_request *request)
{
    fuzz.handed++;
    fuzz.digest = fuzz.digest * 31 + request->method;
    add(&fuzz.digest, request->path);
    add(&fuzz.digest, request->query);
    add(&fuzz.digest, http_header(request, "x-fuzz"));
    fuzz.body = 0;
    request->gone = on_gone;
    if (fuzz.ways & 2)
        request->data = on_data;
    if (request->query.size == 5)
        request->body_most = 5;
    if (request->query.size == 3)
        answer(request);
}

static void on_handle(http_request *request)
{
    add(&fuzz.body, request->body);
    add_body();
    if (fuzz.ways & 4)
        fuzz.kept = request;
    else
        answer(request);
}

static size_t write_problem(int status, const char *what, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "%d %s", status, what);
}

static void turn(int fd)
{
    char taken[4096];
    int r = fl_loop_run_once(fuzz.loop, false);
    assert(r == 0);
    (void)r;
    while (recv(fd, taken, sizeof(taken), MSG_DONTWAIT) > 0) {
    }
    if (!fuzz.kept)
        return;
    http_request *kept = fuzz.kept;
    if (!kept->data) {
        fuzz.kept = NULL;
        answer(kept);
    } else {
        http_resume(kept);
    }
}

/* Sends everything in portions of `step` bytes. Returns what the server made of it. */
static uint32_t deliver(const uint8_t *bytes, size_t size, size_t step, unsigned ways)
{
    static const struct http_handlers handlers = {on_head, on_handle, write_problem};
    struct sockaddr_in peer = {.sin_family = AF_INET};
    int pair[2];
    memset(&fuzz, 0, sizeof(fuzz));
    fuzz.ways = ways;
    fl_virtual_clock_init(&fuzz.clock, 1000000000);
    fl_loop_config loop_config = {.clock = &fuzz.clock.clock};
    struct http_config config = {.handlers = &handlers, .max_head = 1024, .max_url = 256, .max_body = 512};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0 || fl_loop_new(&loop_config, &fuzz.loop) < 0)
        abort();
    config.loop = fuzz.loop;
    if (http_server_new(&config, &fuzz.server) < 0)
        abort();
    http_connection_open(fuzz.server, pair[0], (const struct sockaddr *)&peer, sizeof(peer));
    for (size_t at = 0; at < size; at += step) {
        ssize_t n = send(pair[1], bytes + at, step < size - at ? step : size - at, MSG_NOSIGNAL);
        for (int i = 0; i < 3; i++)
            turn(pair[1]);
        if (n < 0)
            break;
    }
    for (int i = 0; i < 20; i++)
        turn(pair[1]);
    if (ways & 16)
        fl_virtual_clock_move(&fuzz.clock, 100000000000);
    shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < 20 || (fuzz.kept && i < 1000); i++)
        turn(pair[1]);
    http_server_free(fuzz.server);
    fl_loop_free(fuzz.loop);
    close(pair[1]);
    assert(fuzz.handed == fuzz.answered);
    return fuzz.digest;
}

static bool no_field(void *arg, const char *data, struct http_field field)
{
    (void)arg;
    (void)data;
    (void)field;
    return true;
}

/* The reader alone: in one piece and byte by byte it comes to the same. */
static void read_both_ways(enum http_kind kind, const char *data, size_t size)
{
    const struct http_rules rules = {kind, 1024, 256, no_field};
    struct http_head whole = {0}, grown = {0};
    int a = http_read_head(&whole, data, size, &rules, NULL), b = 0;
    for (size_t i = 1; i <= size && b == 0; i++)
        b = http_read_head(&grown, data, i, &rules, NULL);
    assert((a > 0) == (b > 0) && (a < 0) == (b < 0));
    if (a <= 0)
        return;
    assert(whole.size == grown.size && whole.size <= rules.max_head && data[whole.size - 1] == '\n');
    assert(whole.length == grown.length && whole.framing == grown.framing && whole.status == grown.status);
    if (kind == HTTP_RESPONSE)
        return;
    assert(whole.path.size + whole.query.size <= rules.max_url && whole.framing != HTTP_UNTIL_CLOSE);
    assert(!memchr(data, 0, whole.size));
    assert(memcmp(data + whole.size - 4, "\r\n\r\n", 4) == 0);
}

/* A body in chunks, in portions of `step` bytes: its digest, and how it ended. */
static uint32_t read_chunks(bool lenient, const char *data, size_t size, size_t step, enum http_body_step *ret)
{
    struct http_body body = {.framing = HTTP_CHUNKED, .lenient = lenient};
    uint32_t digest = 0;
    *ret = HTTP_BODY_MORE;
    for (size_t at = 0; at < size && *ret == HTTP_BODY_MORE; at += step) {
        size_t portion = step < size - at ? step : size - at, from = 0, used;
        do {
            fl_bytes piece;
            *ret = http_body_next(&body, data + at + from, portion - from, &used, &piece);
            add(&digest, piece);
            assert(used <= portion - from);
            from += used;
        } while (*ret == HTTP_BODY_PIECE);
        assert(*ret != HTTP_BODY_MORE || from == portion);
    }
    return digest;
}

static void read_chunks_both_ways(const char *data, size_t size)
{
    for (int lenient = 0; lenient < 2; lenient++) {
        enum http_body_step a, b;
        uint32_t whole = read_chunks(lenient, data, size, size, &a), cut = read_chunks(lenient, data, size, 1, &b);
        assert(a == b && (whole == cut || a >= HTTP_BODY_LONG));
        (void)whole;
        (void)cut;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    unsigned ways = bytes[0];
    read_both_ways(HTTP_REQUEST, (const char *)bytes + 1, size - 1);
    read_both_ways(HTTP_RESPONSE, (const char *)bytes + 1, size - 1);
    read_chunks_both_ways((const char *)bytes + 1, size - 1);
    uint32_t whole = deliver(bytes + 1, size - 1, size, ways);
    uint32_t cut = deliver(bytes + 1, size - 1, 1 + (ways >> 5), ways);
    assert(whole == cut);
    (void)whole;
    (void)cut;
    return 0;
}
