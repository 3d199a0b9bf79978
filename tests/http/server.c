/* SPDX-License-Identifier: MIT */
/* The HTTP server from the outside: bytes on a socket, and what comes back. */

#include "http/http.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000000)

static bool has(const struct client *client, const char *line)
{
    return strcasestr(client->head, line) != NULL;
}

static void expect_closed(struct client *client)
{
    shutdown(client->fd, SHUT_WR);
    for (int turns = 0; !client->closed; turns++) {
        CHECK(turns < 100000);
        service_turn();
        client_receive(client);
    }
    CHECK_EQ(client->size, 0);
}

/* --- Requests and answers ---------------------------------------------------------------------------------------- */

TEST(a_request_is_answered_and_the_connection_stays)
{
    service_start(NULL);
    struct client *client = client_new();
    for (int i = 0; i < 3; i++) {
        client_say(client, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK_EQ(client_answer(client), 200);
        CHECK(client_body_is(client, "/hello"));
        CHECK(has(client, "\r\nDate: ") && has(client, "\r\nContent-Type: text/plain\r\n"));
        CHECK(!has(client, "\r\nConnection:"));
    }
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK_EQ(stats.requests, 3);
    CHECK_EQ(stats.connections, 1);
    CHECK_EQ(stats.bytes_in, 3 * strlen("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"));
    client_free(client);
    service_end();
}

struct exchange {
    const char *request;
    int status;
    const char *body;
};

static const struct exchange good[] = {
    {"GET /a%20b?c=d&e HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/a%20b"},
    {"GET /query?c=d&e HTTP/1.1\r\nHost: x\r\n\r\n", 200, "c=d&e"},
    {"GET http://x.example:80/query?1 HTTP/1.1\r\nHost: x\r\n\r\n", 200, "1"},
    {"GET https://x.example/path HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/path"},
    {"GET http://x.example HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/"},
    {"GET http://x.example?1 HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/"},
    {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 200, "*"},
    {"BREW / HTTP/1.1\r\nHost:\r\n\r\n", 200, "/"},
    {"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/"},
    {"GET /header HTTP/1.1\r\nhost: x\r\nX-Test: \t one  two\t \r\n\r\n", 200, "one  two"},
    {"GET /header HTTP/1.1\r\nhost: x\r\nX-Test:\r\n\r\n", 200, ""},
    {"GET /header HTTP/1.1\r\nhost: x\r\nx-TEST: \xc3\xa4\r\n\r\n", 200, "\xc3\xa4"},
    {"GET /header HTTP/1.1\r\nhost: x\r\nx-testing: 1\r\n\r\n", 200, ""},
    {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
    {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 005\r\n\r\nhello", 200, "hello"},
    {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\nC:\r\n\r\n", 200,
     "hello"},
    {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 200, "/"},
    {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, "hello"},
    {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
     "0003;a=b;c=\"d\"\r\nhel\r\n2\r\nlo\r\n000\r\nX: y\r\nZ:\r\n\r\n",
     200, "hello"},
    {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, "/"},
    {"POST /stream/all HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 200, "5"},
    {"POST /stream/all HTTP/1.1\r\nHost: x\r\n\r\n", 200, "0"},
    {"POST /stream/all HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", 200,
     "10"},
    {"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 401, "early"},
    {"GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n", 200, "one, two, three"},
    {"GET /empty HTTP/1.1\r\nHost: x\r\n\r\n", 204, ""},
    {"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789", 200, "0123456789"},
    {"POST /duplex HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789", 200, "0123456789"},
    {"GET / HTTP/1.1\r\nHost: [::1]:80\r\nExpect: 100-continue\r\n\r\n", 200, "/"},
};

enum { GOOD = sizeof(good) / sizeof(good[0]) };

TEST(good_requests_are_understood_whole_and_byte_by_byte)
{
    service_start(NULL);
    for (int way = 0; way < 2; way++) {
        struct client *client = client_new();
        for (int i = 0; i < GOOD; i++) {
            (way == 0 ? client_say : client_dribble)(client, good[i].request);
            CHECK_EQ(client_answer(client), good[i].status);
            if (!client_body_is(client, good[i].body))
                test_fail(__FILE__, __LINE__, "%s\nanswers %.*s", good[i].request, (int)client->body_size,
                          client->body);
        }
        client_free(client);
    }
    service_end();
}

TEST(pipelined_requests_are_answered_in_order)
{
    service_start(NULL);
    struct client *client = client_new();
    char all[16384], *end = all;
    for (int i = 0; i < GOOD; i++)
        end = stpcpy(end, good[i].request);
    client_say(client, all);
    for (int i = 0; i < GOOD; i++) {
        CHECK_EQ(client_answer(client), good[i].status);
        CHECK(client_body_is(client, good[i].body));
    }
    client_free(client);
    service_end();
}

TEST(the_next_request_waits_for_the_answer_to_the_one_before)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(
        client,
        "GET /keep HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    CHECK_EQ(service.heads, 1);
    http_answer(service.kept, 200, "text/plain", NULL, (fl_bytes){"kept", 4});
    CHECK_EQ(service.heads, 1); /* not from inside of http_answer() */
    CHECK_EQ(client_answer(client), 200);
    CHECK(client_body_is(client, "kept"));
    client_answer(client);
    CHECK(client_body_is(client, "/1"));
    client_answer(client);
    CHECK(client_body_is(client, "/2"));
    client_free(client);
    service_end();
}

TEST(who_pipelines_without_end_is_not_read_without_end)
{
    service_start(NULL);
    struct client *client = client_new();
    static const char request[] = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n";
    client_say(client, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    size_t sent = 0;
    for (int idle = 0; idle < 100;) {
        ssize_t n = send(client->fd, request, sizeof(request) - 1, MSG_DONTWAIT);
        CHECK(n < 0 || n == sizeof(request) - 1);
        sent += n > 0;
        idle = n > 0 ? 0 : idle + 1;
        service_turn();
        if (sent >= 20000)
            break;
    }
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK(stats.bytes_in <= 4096);
    http_answer(service.kept, 204, NULL, NULL, (fl_bytes){0});
    CHECK_EQ(client_answer(client), 204);
    for (size_t i = 0; i < sent; i++)
        CHECK_EQ(client_answer(client), 200);
    client_free(client);
    service_end();
}

TEST(who_does_not_take_answers_gets_no_more_of_them)
{
    service_start(NULL);
    struct client *client = client_new();
    static const char request[] = "GET /large/500000 HTTP/1.1\r\nHost: x\r\n\r\n";
    for (int i = 0; i < 100; i++)
        CHECK(send(client->fd, request, sizeof(request) - 1, MSG_DONTWAIT) == sizeof(request) - 1);
    for (int i = 0; i < 1000; i++)
        service_turn();
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK(stats.requests < 50);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(client_answer(client), 200);
        CHECK_EQ(client->body_size, 500000);
    }
    client_free(client);
    service_end();
}

TEST(ten_thousand_requests_over_a_hundred_connections)
{
    service_start(NULL);
    struct client *clients[100];
    for (int i = 0; i < 100; i++)
        clients[i] = client_new();
    for (int i = 0; i < 10000; i++) {
        struct client *client = clients[i % 100];
        client_say(client, good[i % GOOD].request);
        CHECK_EQ(client_answer(client), good[i % GOOD].status);
        CHECK(client_body_is(client, good[i % GOOD].body));
    }
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK_EQ(stats.requests, 10000);
    CHECK_EQ(stats.connections, 100);
    CHECK_EQ(stats.bad, 0);
    for (int i = 0; i < 100; i++)
        client_free(clients[i]);
    service_end();
}

/* --- Refusals ---------------------------------------------------------------------------------------------------- */

#define H "Host: x\r\n"
#define GET "GET / HTTP/1.1\r\n" H
#define POST "POST / HTTP/1.1\r\n" H
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct exchange bad[] = {
    {"GET / HTTP/1.1\r\n\r\n", 400, "the Host header is missing"},
    {"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400, "the Host header appears more than once"},
    {"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400, "the Host header contains a forbidden character"},
    {"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400, "the Host header contains a forbidden character"},
    {"GET /\r\n\r\n", 400, "target"},
    {"GET\r\n\r\n", 400, "method"},
    {" GET / HTTP/1.1\r\n" H "\r\n", 400, "method"},
    {"G(T / HTTP/1.1\r\n" H "\r\n", 400, "method"},
    {"GET  / HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET / HTTP/1.1 \r\n" H "\r\n", 400, "version"},
    {"GET /  HTTP/1.1\r\n" H "\r\n", 400, "version"},
    {"GET /\tHTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET /a b HTTP/1.1\r\n" H "\r\n", 400, "version"},
    {"GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET /#a HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET x HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET * HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET http:// HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET http:///x HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET http://user@x/ HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET ftp://x/ HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"CONNECT x:80 HTTP/1.1\r\n" H "\r\n", 400, "target"},
    {"GET / http/1.1\r\n" H "\r\n", 400, "version"},
    {"GET / HTTP/1\r\n" H "\r\n", 400, "version"},
    {"GET / HTTP/1.10\r\n" H "\r\n", 400, "version"},
    {"GET / HTTP/1.2\r\n" H "\r\n", 505, "version"},
    {"GET / HTTP/0.9\r\n" H "\r\n", 505, "version"},
    {"GET / HTTP/2.0\r\n" H "\r\n", 505, "version"},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version"},
    {"\x16\x03\x01", 400, "method"},
    {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", 400, "the request line is missing"},
    {"GET / HTTP/1.1\n" H "\r\n", 400, "CR and LF"},
    {"GET / HTTP/1.1\r\nHost: x\n\r\n", 400, "CR and LF"},
    {GET "\n", 400, "CR and LF"},
    {GET "A: b\rc\r\n\r\n", 400, "a header contains a forbidden character"},
    {GET "A: b\r\r\n\r\n", 400, "a header contains a forbidden character"},
    {GET "A: b\x01\r\n\r\n", 400, "a header contains a forbidden character"},
    {GET "A: b\x7f\r\n\r\n", 400, "a header contains a forbidden character"},
    {GET " A: b\r\n\r\n", 400, "a header does not begin"},
    {GET "A: b\r\n c\r\n\r\n", 400, "a header does not begin"},
    {GET "A: b\r\n\tc\r\n\r\n", 400, "a header does not begin"},
    {GET "A : b\r\n\r\n", 400, "a header does not begin"},
    {GET "A\r\n\r\n", 400, "a header does not begin"},
    {GET ": b\r\n\r\n", 400, "a header does not begin"},
    {GET "A\xc3\xa4: b\r\n\r\n", 400, "a header does not begin"},
    {GET "A[: b\r\n\r\n", 400, "a header does not begin"},
    {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "both Content-Length and Transfer-Encoding"},
    {POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400, "both Content-Length and Transfer-Encoding"},
    {POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, "the Content-Length header appears more than once"},
    {POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, "the Content-Length header appears more than once"},
    {POST "Transfer-Encoding: chunked\r\n\r\n0\r\nA\r\n\r\n", 400, "malformed"},
    {POST "Transfer-Encoding: chunked\r\n\r\n0\r\nA b: c\r\n\r\n", 400, "malformed"},
    {POST "Transfer-Encoding: chunked\r\n\r\n0\r\n: c\r\n\r\n", 400, "malformed"},
    {POST "Content-Length: 5, 5\r\n\r\n", 400, "not a number"},
    {POST "Content-Length: +5\r\n\r\n", 400, "not a number"},
    {POST "Content-Length: -5\r\n\r\n", 400, "not a number"},
    {POST "Content-Length: 0x5\r\n\r\n", 400, "not a number"},
    {POST "Content-Length: 5 5\r\n\r\n", 400, "not a number"},
    {POST "Content-Length:\r\n\r\n", 400, "not a number"},
    {POST "Content-Length: 18446744073709551616\r\n\r\n", 413, "too large"},
    {POST "Content-Length: 18446744073709551615\r\n\r\n", 413, "too large"},
    {POST "Content-Length: 1048577\r\n\r\n", 413, "too large"},
    {POST "Transfer-Encoding: gzip\r\n\r\n", 501, "Transfer-Encoding"},
    {POST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "Transfer-Encoding"},
    {POST "Transfer-Encoding: chunked, chunked\r\n\r\n", 501, "Transfer-Encoding"},
    {POST "Transfer-Encoding: identity\r\n\r\n", 501, "Transfer-Encoding"},
    {POST "Transfer-Encoding: xchunked\r\n\r\n", 501, "Transfer-Encoding"},
    {POST "Transfer-Encoding: \x0b"
          "chunked\r\n\r\n",
     400, "a header contains a forbidden character"},
    {POST "Transfer-Encoding:\r\n\r\n", 501, "Transfer-Encoding"},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "more than once"},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "1.0"},
    {POST "Expect: 200-ok\r\n\r\n", 417, "Expect"},
    {CHUNKED "x\r\n", 400, "chunks"},
    {CHUNKED "\r\n", 400, "chunks"},
    {CHUNKED "5\nhello\r\n", 400, "chunks"},
    {CHUNKED "5 \r\nhello\r\n", 400, "chunks"},
    {CHUNKED "0x5\r\nhello\r\n", 400, "chunks"},
    {CHUNKED "-5\r\nhello\r\n", 400, "chunks"},
    {CHUNKED "5\r\nhello!\r\n", 400, "chunks"},
    {CHUNKED "5\r\nhello\n0\r\n\r\n", 400, "chunks"},
    {CHUNKED "5;a\nb\r\nhello\r\n", 400, "chunks"},
    {CHUNKED "5;a\rb\r\nhello\r\n", 400, "chunks"},
    {CHUNKED "10000000000000000\r\n", 400, "chunks"},
    {CHUNKED "0\r\n x\r\n\r\n", 400, "chunks"},
    {CHUNKED "0\r\nx: y\n\r\n", 400, "chunks"},
    {CHUNKED "0\r\n\n", 400, "chunks"},
    {CHUNKED "fffffffffffff\r\nx", 413, "too large"},
    {"POST /small HTTP/1.1\r\n" H "Content-Length: 11\r\n\r\n", 413, "too large"},
    {"POST /small HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n5\r\nhello\r\n0\r\n\r\n", 413,
     "too large"},
};

static void expect_refusal(const struct exchange *exchange, bool whole)
{
    struct client *client = client_new();
    (whole ? client_say : client_dribble)(client, exchange->request);
    int status = client_answer(client);
    if (status != exchange->status || !memmem(client->body, client->body_size, exchange->body, strlen(exchange->body)))
        test_fail(__FILE__, __LINE__, "%s\nis answered with %d %.*s", exchange->request, status, (int)client->body_size,
                  client->body);
    CHECK(has(client, "\r\nContent-Type: application/problem+json\r\n"));
    CHECK(has(client, "\r\nConnection: close\r\n"));
    expect_closed(client);
    client_free(client);
}

TEST(bad_requests_are_refused_whole_and_byte_by_byte)
{
    struct http_stats stats;
    service_start(NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        expect_refusal(&bad[i], true);
        expect_refusal(&bad[i], false);
    }
    UNTIL((http_get_stats(service.server, &stats), stats.connections == 0));
    CHECK(stats.bad > 100);
    service_end();
}

TEST(nothing_behind_a_bad_request_is_looked_at)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(client), 400);
    expect_closed(client);
    CHECK_EQ(service.heads, 0);
    client_free(client);
    service_end();
}

/* A request that is made of many small parts. */
static int answer_to(const char *begin, const char *part, int times, const char *end)
{
    struct client *client = client_new();
    client_say(client, begin);
    for (int i = 0; i < times && !client->closed; i++)
        client_say(client, part);
    if (!client->closed)
        client_say(client, end);
    int status = client_answer(client);
    client_free(client);
    return status;
}

TEST(sizes_have_limits)
{
    static const char end[] = " HTTP/1.1\r\nHost: x\r\n\r\n";
    struct http_config config = {.max_head = 8192, .max_url = 4096, .max_body = 1000};
    service_start(&config);
    CHECK_EQ(answer_to("GET /1234567", "12345678", 511, end), 200);
    CHECK_EQ(answer_to("GET /12345678", "12345678", 511, end), 414);
    CHECK_EQ(answer_to("GET /", "12345678", 100000, end), 414);
    CHECK_EQ(answer_to("GET / HTTP/1.1\r\nHost: x\r\n", "A: b\r\n", 99, "\r\n"), 200);
    CHECK_EQ(answer_to("GET / HTTP/1.1\r\nHost: x\r\n", "A: b\r\n", 100, "\r\n"), 431);
    CHECK_EQ(answer_to("GET / HTTP/1.1\r\nHost: x\r\nA: ", "12345678", 1000, "\r\n\r\n"), 200);
    CHECK_EQ(answer_to("GET / HTTP/1.1\r\nHost: x\r\nA: ", "12345678", 1030, "\r\n\r\n"), 431);
    CHECK_EQ(answer_to("GET / HTTP/1.1\r\nHost: x\r\nA: ", "12345678", 100000, "\r\n\r\n"), 431);
    CHECK_EQ(answer_to("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "a\r\n0123456789\r\n", 100,
                       "0\r\n\r\n"),
             200);
    CHECK_EQ(answer_to("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "a\r\n0123456789\r\n", 101,
                       "0\r\n\r\n"),
             413);
    CHECK_EQ(answer_to("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;", "0123456789", 100, ""),
             400);
    CHECK_EQ(
        answer_to("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X: 0123\r\n", 2000, ""),
        400);
    service_end();
}

/* --- Bodies ------------------------------------------------------------------------------------------------------ */

static void send_large(struct client *client, const char *path, size_t size, size_t chunk, uint64_t *ret_sum)
{
    char head[200], *body = malloc(size + 1);
    CHECK(body);
    *ret_sum = 0;
    for (size_t i = 0; i < size; i++) {
        body[i] = (char)(i * 7 % 251);
        *ret_sum = *ret_sum * 31 + (unsigned char)body[i];
    }
    snprintf(head, sizeof(head), "POST %s HTTP/1.1\r\nHost: x\r\n", path);
    client_say(client, head);
    snprintf(head, sizeof(head), chunk ? "Transfer-Encoding: chunked\r\n\r\n" : "Content-Length: %zu\r\n\r\n", size);
    client_say(client, head);
    for (size_t at = 0, n; at < size; at += n) {
        n = chunk && size - at > chunk ? chunk : size - at;
        snprintf(head, sizeof(head), "%zx\r\n", n);
        if (chunk)
            client_say(client, head);
        client_send(client, body + at, n);
        if (chunk)
            client_say(client, "\r\n");
    }
    if (chunk)
        client_say(client, "0\r\n\r\n");
    free(body);
}

TEST(bodies_of_all_sizes_arrive_as_they_were_sent)
{
    static const size_t sizes[] = {1, 4000, 4040, 4096, 5000, 65535, 65536, 65537, 200000, 1000000};
    service_start(NULL);
    struct client *client = client_new();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int way = 0; way < 4; way++) {
            uint64_t sum, echoed = 0;
            send_large(client, way & 1 ? "/stream/all" : "/echo", sizes[i], way & 2 ? 5000 : 0, &sum);
            CHECK_EQ(client_answer(client), 200);
            for (size_t j = 0; j < client->body_size; j++)
                echoed = echoed * 31 + (unsigned char)client->body[j];
            CHECK(way & 1 ? service.sum == sum : echoed == sum);
        }
    }
    client_free(client);
    service_end();
}

TEST(a_paused_body_waits)
{
    service_start(NULL);
    struct client *client = client_new();
    uint64_t sum;
    size_t size = 10000000, seen = 0;
    service.sum = 0;
    client_say(client, "POST /stream/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
    char *body = calloc(1, size);
    CHECK(body);
    for (size_t at = 0; at < size;) {
        ssize_t n = send(client->fd, body + at, size - at, MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
        for (int i = 0; i < 3; i++)
            service_turn();
        CHECK(service.streamed - seen <= 65536);
        if (service.streamed != seen) {
            seen = service.streamed;
            for (int i = 0; i < 3; i++)
                service_turn();
            CHECK_EQ(service.streamed, seen);
            http_resume(service.kept);
        }
    }
    for (int turns = 0; !service.last; turns++) {
        CHECK(turns < 100000);
        http_resume(service.kept);
        service_turn();
    }
    CHECK_EQ(service.streamed, size);
    CHECK_EQ(client_answer(client), 200);
    /* And a pause in the middle does not count as slowness. */
    client_say(client, "POST /stream/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n12345");
    UNTIL(service.streamed == 5);
    service_pass(SECONDS(1000));
    http_resume(service.kept);
    client_send(client, body, 9995);
    UNTIL((http_resume(service.kept), service.last));
    CHECK_EQ(client_answer(client), 200);
    CHECK_EQ(service.gone, 0);
    (void)sum;
    free(body);
    client_free(client);
    service_end();
}

TEST(a_body_nobody_wants_is_passed_over)
{
    service_start(NULL);
    struct client *client = client_new();
    uint64_t sum;
    send_large(client, "/early", 60000, 0, &sum);
    CHECK_EQ(client_answer(client), 401);
    CHECK(!has(client, "Connection: close"));
    client_say(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    client_say(client, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n");
    CHECK_EQ(client_answer(client), 401);
    CHECK(has(client, "Connection: close"));
    CHECK(has(client, "WWW-Authenticate: Bearer"));
    client_free(client);
    client = client_new();
    send_large(client, "/refuse/middle", 60000, 5000, &sum);
    CHECK_EQ(client_answer(client), 422);
    expect_closed(client);
    client_free(client);
    service_end();
}

TEST(an_answer_may_come_in_the_middle_of_the_body)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "POST /early/later HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello");
    UNTIL(service.kept);
    service_pass(0);
    http_answer(service.kept, 202, NULL, NULL, (fl_bytes){0});
    CHECK_EQ(client_answer(client), 202);
    client_say(client, "helloGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    CHECK(client_body_is(client, "/next"));
    CHECK_EQ(service.handled, 1);
    client_free(client);
    service_end();
}

TEST(the_peer_is_told_to_go_on_if_it_asks)
{
    service_start(NULL);
    struct client *client = client_new();
    static const char expecting[] = "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n";
    client_say(client, expecting);
    CHECK_EQ(client_answer(client), 100);
    CHECK_EQ(service.handled, 0);
    client_say(client, "hello");
    CHECK_EQ(client_answer(client), 200);
    CHECK(client_body_is(client, "hello"));
    client_say(client, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    CHECK_EQ(client_answer(client), 100);
    client_say(client, "2\r\nhi\r\n0\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    client_say(client, "POST /duplex HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    CHECK_EQ(client_answer(client), 100); /* though the answer has begun */
    client_say(client, "hello");
    CHECK_EQ(client_answer(client), 200);
    CHECK(client_body_is(client, "hello"));
    client_say(client, "POST /early HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    CHECK_EQ(client_answer(client), 401); /* and whether the body follows cannot be known */
    CHECK(has(client, "Connection: close"));
    expect_closed(client);
    client_free(client);
    service_end();
}

/* --- Answers ----------------------------------------------------------------------------------------------------- */

TEST(an_answer_to_head_has_no_body)
{
    service_start(NULL);
    struct client *client = client_new();
    static const char *const requests[] = {"HEAD /pieces HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "HEAD /abc HTTP/1.1\r\nHost: x\r\n\r\n"};
    for (int i = 0; i < 2; i++) {
        client_say(client, requests[i]);
        UNTIL((client_receive(client), client_take(client, true)));
        CHECK_EQ(client->status, 200);
        CHECK_EQ(client->size, 0);
    }
    CHECK(has(client, "Content-Length: 4\r\n"));
    client_say(client, "HEAD / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n");
    UNTIL((client_receive(client), client_take(client, true)));
    CHECK_EQ(client->status, 400);
    expect_closed(client);
    client_free(client);
    service_end();
}

TEST(version_1_0_is_answered_and_closed_unless_it_asks)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "GET /a HTTP/1.0\r\nConnection: foo, Keep-Alive\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    CHECK(has(client, "Connection: keep-alive"));
    client_say(client, "GET /pieces HTTP/1.0\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    CHECK(client_body_is(client, "one, two, three"));
    CHECK(!has(client, "chunked") && has(client, "Connection: close"));
    CHECK(client->closed);
    client_free(client);
    client = client_new();
    client_say(client, "GET /a HTTP/1.0\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    UNTIL((client_receive(client), client->closed));
    client_free(client);
    client = client_new();
    client_say(client, "GET /a HTTP/1.1\r\nHost: x\r\nConnection: a,close\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    CHECK(has(client, "Connection: close"));
    UNTIL((client_receive(client), client->closed));
    CHECK_EQ(service.handled, 4);
    client_free(client);
    service_end();
}

TEST(large_answers_wait_for_the_peer)
{
    service_start(NULL);
    struct client *client = client_new();
    static const size_t sizes[] = {15000, 17000, 100000, 1000000};
    for (int i = 0; i < 4; i++) {
        char request[100];
        snprintf(request, sizeof(request),
                 "GET /large/%zu HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n", sizes[i]);
        client_say(client, request);
        CHECK_EQ(client_answer(client), 200);
        CHECK_EQ(client->body_size, sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(client->body[j] == (char)('a' + j % 23));
        CHECK_EQ(client_answer(client), 200);
        CHECK(client_body_is(client, "/x"));
    }
    client_free(client);
    service_end();
}

static void on_sent(http_request *request)
{
    (void)request;
    service.sent++;
}

TEST(a_stream_tells_when_it_has_been_taken)
{
    service_start(NULL);
    struct client *client = client_new();
    char piece[1000];
    memset(piece, 'x', sizeof(piece));
    client_say(client, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    http_when_sent(service.kept, 1, on_sent);
    CHECK_EQ(service.sent, 0); /* not from inside */
    UNTIL(service.sent == 1);
    while (http_unsent(service.kept) < 100000)
        http_write(service.kept, (fl_bytes){piece, sizeof(piece)});
    http_when_sent(service.kept, 50000, on_sent);
    for (int i = 0; i < 10; i++)
        service_turn();
    CHECK_EQ(service.sent, 1);
    CHECK(http_unsent(service.kept) >= 50000);
    size_t received = 0;
    for (int turns = 0; http_unsent(service.kept) > 0; turns++) {
        CHECK(turns < 1000000);
        client_receive(client);
        received += client->size;
        client->size = 0;
        service_turn();
    }
    CHECK(received > 50000);
    CHECK_EQ(service.sent, 2);
    service_pass(SECONDS(3600)); /* quiet, but not slow */
    http_write(service.kept, (fl_bytes){"data: hello\n\n", 13});
    UNTIL((client_receive(client), client->size > 0));
    CHECK_EQ(service.gone, 0);
    http_end(service.kept);
    client_free(client);
    service_end();
}

/* --- Clients that go --------------------------------------------------------------------------------------------- */

static void set_reset(struct client *client)
{
    struct linger linger = {1, 0};
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

TEST(a_client_that_goes_is_reported_once)
{
    static const char *const requests[] = {"GET /poll HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "GET /events HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "POST /stream/all HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhello",
                                           "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n"};
    for (int i = 0; i < 5; i++) {
        service_start(NULL);
        service.answer_gone = i == 4;
        struct client *client = client_new();
        client_say(client, requests[i]);
        UNTIL(service.kept);
        if (i != 0 && i != 3)
            set_reset(client);
        client_free(client);
        UNTIL(service.gone == 1);
        struct http_stats stats;
        http_get_stats(service.server, &stats);
        CHECK_EQ(stats.connections, 0);
        if (service.kept) {
            CHECK_EQ(http_unsent(service.kept), 0);
            http_pause(service.kept);
            http_resume(service.kept);
            http_begin(service.kept, 200, NULL, NULL);
            http_write(service.kept, (fl_bytes){"x", 1});
            CHECK(http_request_server(service.kept) == service.server);
            (i & 1 ? http_end(service.kept) : http_answer(service.kept, 200, NULL, NULL, (fl_bytes){0}));
        }
        CHECK_EQ(service.gone, 1);
        service_end();
    }
}

TEST(a_request_nobody_has_taken_an_interest_in_vanishes)
{
    service_start(NULL);
    for (int i = 0; i < 3; i++) {
        struct client *client = client_new();
        client_say(client, "POST /careless HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhello");
        UNTIL(service.heads == i + 1);
        if (i == 1)
            set_reset(client);
        client_free(client);
    }
    CHECK_EQ(answer_to("POST /careless HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "x", 1, ""), 400);
    service_end(); /* and nothing has leaked */
}

TEST(a_client_that_has_said_all_still_gets_its_answers)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(client->fd, SHUT_WR);
    UNTIL(service.kept);
    for (int i = 0; i < 10; i++)
        service_turn();
    http_answer(service.kept, 200, "text/plain", NULL, (fl_bytes){"kept", 4});
    CHECK_EQ(client_answer(client), 200);
    CHECK_EQ(client_answer(client), 200);
    CHECK(client_body_is(client, "/1"));
    UNTIL((client_receive(client), client->closed));
    CHECK_EQ(service.gone, 0);
    client_free(client);
    service_end();
}

TEST(a_write_to_a_client_that_is_gone_does_not_call_back_from_inside)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    set_reset(client);
    client_free(client);
    usleep(1000);
    http_write(service.kept, (fl_bytes){"x", 1});
    http_write(service.kept, (fl_bytes){"y", 1});
    CHECK_EQ(service.gone, 0);
    UNTIL(service.gone == 1);
    http_end(service.kept);
    service_end();
}

/* --- Time -------------------------------------------------------------------------------------------------------- */

TEST(slow_heads_are_cut_off)
{
    service_start(NULL);
    struct client *client = client_new(), *silent = client_new();
    client_say(client, "GET / HT");
    service_pass(0);
    for (int i = 0; i < 9; i++) {
        service_pass(SECONDS(1));
        client_say(client, i < 4 ? "T" : "P");
    }
    client_receive(client);
    CHECK(!client->closed && client->size == 0);
    service_pass(SECONDS(1));
    service_pass(SECONDS(1));
    CHECK_EQ(client_answer(client), 408);
    expect_closed(client);
    for (int i = 0; i < 63; i++)
        service_pass(SECONDS(1));
    client_receive(silent);
    CHECK(!silent->closed);
    for (int i = 0; i < 3; i++)
        service_pass(SECONDS(1));
    UNTIL((client_receive(silent), silent->closed));
    CHECK_EQ(silent->size, 0);
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK_EQ(stats.timeouts, 1);
    client_free(client);
    client_free(silent);
    service_end();
}

TEST(bodies_that_dribble_are_cut_off)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n1");
    UNTIL(service.heads == 1);
    for (int i = 0; i < 9; i++) {
        service_pass(SECONDS(1));
        client_say(client, "12345678901234567890123456789012345678901234567890");
    }
    client_receive(client);
    CHECK_EQ(client->size, 0);
    for (int i = 0; i < 3; i++)
        service_pass(SECONDS(1));
    CHECK_EQ(client_answer(client), 408);
    CHECK_EQ(service.gone, 1);
    expect_closed(client);
    client_free(client);
    service_end();
}

TEST(bodies_that_cease_to_come_are_cut_off)
{
    struct http_config config = {.min_rate = 1};
    service_start(&config);
    struct client *client = client_new();
    char body[1000] = {0};
    client_say(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
    client_send(client, body, sizeof(body));
    service_pass(0);
    for (int i = 0; i < 29; i++)
        service_pass(SECONDS(1));
    CHECK_EQ(service.gone, 0);
    for (int i = 0; i < 3; i++)
        service_pass(SECONDS(1));
    CHECK_EQ(service.gone, 1);
    CHECK_EQ(client_answer(client), 408);
    client_free(client);
    service_end();
}

TEST(a_malformed_chunk_ends_an_answer_that_has_begun)
{
    service_start(NULL);
    service.answer_gone = true;
    struct client *client = client_new();
    client_say(client, "POST /duplex HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n#\r\n");
    UNTIL((client_receive(client), client->closed));
    CHECK_EQ(service.gone, 1);
    client_free(client);
    service_end();
}

static struct client *upgrade(const char *rest)
{
    char text[200];
    struct client *client = client_new();
    snprintf(text, sizeof text, "POST /upgrade HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n%s",
             rest);
    client_say(client, text);
    UNTIL((client_receive(client), client->size >= 4 && memmem(client->data, client->size, "\r\n\r\n", 4)));
    CHECK(memmem(client->data, client->size, "HTTP/1.1 101 Switching Protocols\r\n", 34));
    CHECK(memmem(client->data, client->size, "Upgrade: x\r\n", 12));
    CHECK(!memmem(client->data, client->size, "close", 5));
    client->size = 0;
    return client;
}

TEST(an_upgraded_connection_carries_bytes_both_ways)
{
    service_start(NULL);
    struct client *client = upgrade("GET / HTTP/1.1\r\n\r\n"); /* which is not HTTP any more */
    UNTIL(service.streamed == 18);
    client_dribble(client, "0\r\n\r\n");
    UNTIL(service.streamed == 23);
    CHECK(!service.last && service.handled == 0 && service.heads == 1);
    http_write(service.kept, (fl_bytes){"hello", 5});
    UNTIL((client_receive(client), client->size == 5));
    CHECK(memcmp(client->data, "hello", 5) == 0);
    http_end(service.kept);
    service.kept = NULL;
    UNTIL((client_receive(client), client->closed));
    CHECK_EQ(client->size, 5);
    CHECK_EQ(service.gone, 0);
    client_free(client);
    service_end();
}

TEST(an_upgraded_connection_ends_with_the_peer)
{
    service_start(NULL);
    service.answer_gone = true;
    struct client *client = upgrade("");
    CHECK_EQ(shutdown(client->fd, SHUT_WR), 0);
    UNTIL(service.gone == 1);
    UNTIL((client_receive(client), client->closed));
    client_free(client);
    service_end();
}

TEST(an_upgraded_connection_is_not_cut_off_for_being_slow)
{
    service_start(NULL);
    struct client *client = upgrade("");
    for (int i = 0; i < 100; i++) /* nothing comes */
        service_pass(SECONDS(1));
    static char large[1 << 20];
    while (http_unsent(service.kept) == 0)
        http_write(service.kept, (fl_bytes){large, sizeof(large)});
    for (int i = 0; i < 100; i++) /* nothing is taken */
        service_pass(SECONDS(1));
    CHECK_EQ(service.gone, 0);
    service.answer_gone = true;
    client_free(client);
    UNTIL(service.gone == 1);
    service_end();
}

TEST(only_a_request_without_a_body_on_a_kept_connection_is_upgraded)
{
    static const char *const requests[] = {
        "POST /upgrade HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na",
        "POST /upgrade HTTP/1.1\r\nHost: x\r\nConnection: upgrade, close\r\n\r\n",
        "POST /upgrade HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    };
    service_start(NULL);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct client *client = client_new();
        client_say(client, requests[i]);
        CHECK_EQ(client_answer(client), 400);
        client_free(client);
    }
    service_end();
}

TEST(a_client_that_does_not_take_its_answer_is_cut_off)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    size_t size = 30000000;
    char *body = calloc(1, size);
    CHECK(body);
    http_answer(service.kept, 200, NULL, NULL, (fl_bytes){body, size});
    free(body);
    for (int i = 0; i < 29; i++)
        service_pass(SECONDS(1));
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK_EQ(stats.connections, 1);
    for (int i = 0; i < 3; i++)
        service_pass(SECONDS(1));
    http_get_stats(service.server, &stats);
    CHECK_EQ(stats.connections, 0);
    CHECK_EQ(stats.timeouts, 1);
    client_free(client);
    service_end();
}

TEST(who_stays_after_a_refusal_is_closed_in_the_end)
{
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "nonsense\r\n");
    CHECK_EQ(client_answer(client), 400);
    for (int i = 0; i < 4; i++) {
        client_say(client, "and more of it");
        service_pass(SECONDS(1));
    }
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK_EQ(stats.connections, 0);
    client_free(client);
    service_end();
}

/* --- Connections ------------------------------------------------------------------------------------------------- */

TEST(connections_have_a_limit)
{
    struct http_config config = {.max_connections = 2};
    struct http_stats stats;
    service_start(&config);
    struct client *a = client_new(), *b = client_new(), *c = client_new();
    UNTIL((http_get_stats(service.server, &stats), stats.refused == 1));
    client_say(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(c), 503);
    UNTIL((client_receive(c), c->closed));
    client_say(a, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(a), 200);
    client_free(b);
    client_free(c);
    UNTIL((http_get_stats(service.server, &stats), stats.connections == 1));
    c = client_new();
    client_say(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(c), 200);
    client_free(a);
    client_free(c);
    service_end();
}

TEST(without_descriptors_it_waits_for_some)
{
    struct rlimit limit, none;
    service_start(NULL);
    struct client *client = client_new();
    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = (rlim_t)client->fd + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    for (int i = 0; i < 10; i++)
        service_turn();
    fl_loop_stats stats;
    fl_loop_get_stats(service.loop, &stats);
    CHECK_EQ(stats.called.descriptors, 1); /* and is not called all the time */
    setrlimit(RLIMIT_NOFILE, &limit);
    service_pass(SECONDS(1));
    client_say(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    client_free(client);
    service_end();
}

TEST(version_6_of_the_internet_protocol_is_spoken)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    char message[200];
    uint16_t port;
    service_start(NULL);
    if (http_server_listen(service.server, (struct sockaddr *)&address, sizeof(address), &port, message,
                           sizeof(message)) < 0) {
        service_end();
        test_skip("there is no IPv6 here");
        return;
    }
    struct client *client = client_new();
    close(client->fd);
    client->fd = socket(AF_INET6, SOCK_STREAM, 0);
    address.sin6_port = htons(port);
    CHECK_EQ(connect(client->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    client_say(client, "GET /keep HTTP/1.1\r\nHost: [::1]\r\n\r\n");
    UNTIL(service.kept);
    CHECK(service.kept->local);
    CHECK_EQ(service.kept->peer->sa_family, AF_INET6);
    http_answer(service.kept, 204, NULL, NULL, (fl_bytes){0});
    CHECK_EQ(client_answer(client), 204);
    client_free(client);
    service_end();
}

TEST(what_cannot_be_listened_on_says_why)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(0xc0000201)}}; /* 192.0.2.1: nobody's */
    char message[200] = "";
    service_start(NULL);
    CHECK_EQ(http_server_listen(service.server, (struct sockaddr *)&address, sizeof(address), NULL, message,
                                sizeof(message)),
             FL_SYSTEM);
    CHECK(strstr(message, "assign"));
    service_end();
}

/* --- Stopping ---------------------------------------------------------------------------------------------------- */

TEST(stopping_lets_requests_end)
{
    service_start(NULL);
    struct client *idle = client_new(), *busy = client_new(), *late = client_new();
    client_say(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(idle), 200);
    client_say(busy, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
    client_say(late, "GET /x HT");
    UNTIL(service.kept);
    service_stop();
    CHECK(!service.done);
    UNTIL((client_receive(idle), idle->closed));
    CHECK(!service.done);
    http_answer(service.kept, 200, "text/plain", NULL, (fl_bytes){"kept", 4});
    CHECK_EQ(client_answer(busy), 200);
    CHECK(has(busy, "Connection: close"));
    expect_closed(busy);
    CHECK(!service.done);
    client_say(late, "TP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(late), 200);
    CHECK(has(late, "Connection: close"));
    expect_closed(late);
    UNTIL(service.done);
    client_free(idle);
    client_free(busy);
    client_free(late);
    service_end();
}

TEST(stopping_with_nobody_there_or_from_a_handler)
{
    service_start(NULL);
    service_stop();
    CHECK(!service.done);
    UNTIL(service.done);
    service_end();
    service_start(NULL);
    struct client *client = client_new();
    client_say(client, "GET /stop HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(client), 200);
    expect_closed(client);
    UNTIL(service.done);
    client_free(client);
    service_end();
}

TEST(freeing_with_requests_outstanding)
{
    service_start(NULL);
    struct client *client = client_new(), *other = client_new(), *third = client_new();
    client_say(client, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    UNTIL(service.kept);
    http_request *kept = service.kept;
    client_say(other, "GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
    client_say(third, "GET / HTTP/1.1\r\nHo");
    UNTIL(service.kept != kept);
    service.kept = kept;
    service_end();
    CHECK_EQ(service.gone, 2);
    CHECK(!http_request_server(kept));
    CHECK_EQ(kept->path.size, 5);
    http_answer(kept, 200, "text/plain", NULL, (fl_bytes){"late", 4});
    client_free(client);
    client_free(other);
    client_free(third);
}

/* --- Under load, on a thread of its own -------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    (void)arg;
    CHECK_EQ(fl_loop_run(service.loop), 0);
    return NULL;
}

static void stop_now(fl_loop *loop, void *arg)
{
    (void)loop;
    (void)arg;
    service_stop();
}

/* Asks as fast as it can until the server is gone; counts whole answers. */
static void *ask(void *arg)
{
    static const char request[] = "GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n";
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(service.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int *answers = arg, fd = socket(AF_INET, SOCK_STREAM, 0);
    bool open = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    while (open) {
        char data[2048];
        size_t size = 0;
        open = send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0;
        while (open && (size < 5 || memcmp(data + size - 5, "0\r\n\r\n", 5) != 0)) {
            ssize_t n = recv(fd, data + size, sizeof(data) - size, 0);
            open = n > 0;
            size += n > 0 ? (size_t)n : 0;
        }
        CHECK(open || size == 0); /* an answer is whole or there is none */
        *answers += open;
        open = open && !memmem(data, size, "Connection: close", 17);
    }
    close(fd);
    return NULL;
}

TEST(stopping_under_load_cuts_no_answer)
{
    enum { CLIENTS = 8 };
    pthread_t server, clients[CLIENTS];
    int answers[CLIENTS] = {0}, total = 0;
    service_start(NULL);
    pthread_create(&server, NULL, serve, NULL);
    for (int i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i], NULL, ask, &answers[i]);
    usleep(100000);
    CHECK_EQ(fl_loop_post(service.loop, stop_now, NULL), 0);
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i], NULL);
        total += answers[i];
    }
    pthread_join(server, NULL);
    CHECK(service.done);
    struct http_stats stats;
    http_get_stats(service.server, &stats);
    CHECK(stats.requests >= (uint64_t)total);
    service_end();
}
