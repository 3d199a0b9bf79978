/* SPDX-License-Identifier: MIT */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

struct service service;

static fl_bytes text_bytes(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

static bool path_is(const http_request *request, const char *path)
{
    return request->path.size == strlen(path) && memcmp(request->path.data, path, request->path.size) == 0;
}

static size_t path_number(const http_request *request)
{
    char digits[20] = {0};
    const char *path = request->path.data;
    size_t at = request->path.size;
    while (at > 0 && path[at - 1] != '/')
        at--;
    memcpy(digits, path + at, request->path.size - at < 19 ? request->path.size - at : 19);
    return strtoul(digits, NULL, 10);
}

static void on_gone(http_request *request)
{
    service.gone++;
    if (request == service.kept && !service.answer_gone)
        return;
    if (request == service.kept)
        service.kept = NULL;
    http_answer(request, 500, NULL, NULL, (fl_bytes){0});
}

static void count(fl_bytes piece)
{
    service.streamed += piece.size;
    for (size_t i = 0; i < piece.size; i++)
        service.sum = service.sum * 31 + ((const unsigned char *)piece.data)[i];
}

static void on_data(http_request *request, fl_bytes piece, bool last)
{
    char text[40];
    CHECK(!service.last);
    count(piece);
    service.last = last;
    if (path_is(request, "/refuse/middle")) {
        http_answer(request, 422, "text/plain", NULL, text_bytes("no more"));
        return;
    }
    if (path_is(request, "/stream/pause") && !last)
        http_pause(request);
    if (path_is(request, "/duplex"))
        http_write(request, piece);
    if (last && path_is(request, "/duplex")) {
        http_end(request);
    } else if (last) {
        snprintf(text, sizeof(text), "%zu", service.streamed);
        http_answer(request, 200, "text/plain", NULL, text_bytes(text));
    }
}

static void on_head(http_request *request)
{
    service.heads++;
    if (!path_is(request, "/careless"))
        request->gone = on_gone;
    if (path_is(request, "/early"))
        http_answer(request, 401, "text/plain", "WWW-Authenticate: Bearer\r\n", text_bytes("early"));
    else if (path_is(request, "/early/later"))
        service.kept = request;
    else if (path_is(request, "/small"))
        request->body_most = 10;
    else if (path_is(request, "/poll"))
        request->gone_at_eof = true;
    else if (request->path.size > 7 && memcmp(request->path.data, "/stream", 7) == 0)
        request->body_most = SIZE_MAX;
    if (path_is(request, "/stream/all") || path_is(request, "/stream/pause") || path_is(request, "/refuse/middle") ||
        path_is(request, "/duplex") || path_is(request, "/upgrade")) {
        request->data = on_data;
        service.kept = request;
        service.streamed = 0;
        service.sum = 0;
        service.last = false;
    }
    if (path_is(request, "/duplex"))
        http_begin(request, 200, "text/plain", NULL);
    if (path_is(request, "/upgrade") && !http_upgrade(request, "Connection: upgrade\r\nUpgrade: x\r\n"))
        http_answer(request, 400, "text/plain", NULL, text_bytes("not this one"));
}

static void answer_large(http_request *request, size_t size)
{
    char *body = malloc(size + 1);
    CHECK(body);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)('a' + i % 23);
    http_answer(request, 200, "text/plain", NULL, (fl_bytes){body, size});
    free(body);
}

static void answer_pieces(http_request *request)
{
    http_begin(request, 200, "text/plain", "X-Extra: yes\r\n");
    http_write(request, text_bytes("one, "));
    http_write(request, (fl_bytes){0});
    http_write(request, text_bytes("two, three"));
    http_end(request);
}

static void answer_header(http_request *request)
{
    fl_bytes value = http_header(request, "x-test");
    http_answer(request, 200, "text/plain", NULL, value);
}

static void on_handle(http_request *request)
{
    service.handled++;
    if (path_is(request, "/keep") || path_is(request, "/poll"))
        service.kept = request;
    else if (path_is(request, "/events")) {
        service.kept = request;
        http_begin(request, 200, "text/event-stream", NULL);
    } else if (path_is(request, "/pieces"))
        answer_pieces(request);
    else if (path_is(request, "/header"))
        answer_header(request);
    else if (path_is(request, "/query"))
        http_answer(request, 200, "text/plain", NULL, request->query);
    else if (path_is(request, "/empty"))
        http_answer(request, 204, NULL, NULL, (fl_bytes){0});
    else if (path_is(request, "/stop")) {
        service_stop();
        http_answer(request, 200, NULL, NULL, (fl_bytes){0});
    } else if (request->path.size > 7 && memcmp(request->path.data, "/large/", 7) == 0)
        answer_large(request, path_number(request));
    else if (request->body.size > 0)
        http_answer(request, 200, "text/plain", NULL, request->body);
    else
        http_answer(request, 200, "text/plain", NULL, request->path);
}

static size_t write_problem(int status, const char *what, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "{\"status\":%d,\"detail\":\"%s\"}", status, what);
}

static const struct http_handlers handlers = {on_head, on_handle, write_problem};

/* --- The service ------------------------------------------------------------------------------------------------- */

void service_start(const struct http_config *config)
{
    struct http_config full = config ? *config : (struct http_config){0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char message[200];
    service = (struct service){0};
    fl_virtual_clock_init(&service.clock, 1000000000);
    fl_loop_config loop_config = {.clock = &service.clock.clock};
    CHECK_EQ(fl_loop_new(&loop_config, &service.loop), 0);
    full.loop = service.loop;
    full.handlers = &handlers;
    full.arg = &service;
    CHECK_EQ(http_server_new(&full, &service.server), 0);
    CHECK(http_server_arg(service.server) == &service);
    CHECK_EQ(http_server_listen(service.server, (struct sockaddr *)&address, sizeof(address), &service.port, message,
                                sizeof(message)),
             0);
}

void service_end(void)
{
    http_server_free(service.server);
    CHECK(!fl_loop_alive(service.loop));
    CHECK_EQ(fl_loop_check(service.loop, stderr), 0);
    fl_loop_free(service.loop);
}

void service_turn(void)
{
    CHECK_EQ(fl_loop_run_once(service.loop, false), 0);
}

void service_pass(uint64_t ns)
{
    fl_virtual_clock_move(&service.clock, service.clock.time_ns + ns);
    for (int i = 0; i < 5; i++)
        service_turn();
}

static void on_done(fl_loop *loop, void *arg)
{
    (void)loop;
    (void)arg;
    service.done = true;
}

void service_stop(void)
{
    http_server_stop(service.server, on_done, NULL);
}

/* --- Clients ----------------------------------------------------------------------------------------------------- */

struct client *client_new(void)
{
    struct client *client = calloc(1, sizeof(*client));
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(service.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    CHECK(client);
    client->data = malloc(ANSWER_ROOM);
    client->body = malloc(ANSWER_ROOM);
    CHECK(client->data && client->body);
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(client->fd >= 0);
    CHECK_EQ(connect(client->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return client;
}

void client_free(struct client *client)
{
    close(client->fd);
    free(client->data);
    free(client->body);
    free(client);
}

void client_receive(struct client *client)
{
    ssize_t n = 1;
    while (n > 0 && client->size < ANSWER_ROOM) {
        n = recv(client->fd, client->data + client->size, ANSWER_ROOM - client->size, MSG_DONTWAIT);
        if (n > 0)
            client->size += (size_t)n;
    }
    client->closed = client->closed || n == 0 || (n < 0 && errno != EAGAIN);
}

void client_send(struct client *client, const void *data, size_t size)
{
    for (size_t at = 0; at < size && !client->closed;) {
        ssize_t n = send(client->fd, (const char *)data + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            at += (size_t)n;
        else
            CHECK(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
        service_turn();
        client_receive(client);
    }
}

void client_say(struct client *client, const char *text)
{
    client_send(client, text, strlen(text));
}

void client_dribble(struct client *client, const char *text)
{
    for (; *text && !client->closed; text++)
        client_send(client, text, 1);
}

/* --- Answers ----------------------------------------------------------------------------------------------------- */

static void forget(struct client *client, size_t size)
{
    memmove(client->data, client->data + size, client->size - size);
    client->size -= size;
}

/* A chunked body from `at`: where it ends, or 0. */
static size_t take_chunks(struct client *client, size_t at)
{
    client->body_size = 0;
    for (;;) {
        const char *feed = memmem(client->data + at, client->size - at, "\r\n", 2);
        if (!feed)
            return 0;
        size_t size = strtoul(client->data + at, NULL, 16);
        at = (size_t)(feed - client->data) + 2;
        if (at + size + 2 > client->size)
            return 0;
        CHECK(memcmp(client->data + at + size, "\r\n", 2) == 0);
        memcpy(client->body + client->body_size, client->data + at, size);
        client->body_size += size;
        at += size + 2;
        if (size == 0)
            return at;
    }
}

static size_t take_length(struct client *client, size_t at, size_t size)
{
    if (at + size > client->size)
        return 0;
    memcpy(client->body, client->data + at, size);
    client->body_size = size;
    return at + size;
}

bool client_take(struct client *client, bool to_head)
{
    const char *end = memmem(client->data, client->size, "\r\n\r\n", 4);
    if (!end)
        return false;
    size_t head = (size_t)(end - client->data) + 4;
    CHECK(head < sizeof(client->head));
    memcpy(client->head, client->data, head);
    client->head[head] = 0;
    client->status = atoi(client->head + strlen("HTTP/1.1 ")); /* NOLINT(cert-err34-c) */
    const char *length = strstr(client->head, "Content-Length: ");
    bool chunked = strstr(client->head, "Transfer-Encoding: chunked");
    bool bodiless = to_head || client->status == 204 || client->status == 304 || client->status < 200;
    bool by_close = !length && !chunked && !bodiless;
    if (by_close && !client->closed)
        return false;
    size_t size = bodiless ? 0 : by_close ? client->size - head : length ? strtoul(length + 16, NULL, 10) : 0;
    size_t whole = chunked && !bodiless ? take_chunks(client, head) : take_length(client, head, size);
    if (whole > 0)
        forget(client, whole);
    return whole > 0;
}

int client_answer(struct client *client)
{
    bool whole = false;
    for (int turns = 0; !whole; turns++) {
        CHECK(turns < 100000);
        service_turn();
        client_receive(client);
        whole = client_take(client, false);
        CHECK(whole || !client->closed || turns < 10);
        if (turns > 100)
            usleep(100);
    }
    return client->status;
}

bool client_body_is(const struct client *client, const char *text)
{
    return client->body_size == strlen(text) && memcmp(client->body, text, client->body_size) == 0;
}
