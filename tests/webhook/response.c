/* SPDX-License-Identifier: MIT */
/* Responses of HTTP/1, read in pieces of every size, and what comes of them. */

#include <string.h>

#include "webhook/internal.h"
#include "test.h"

enum outcome { CLOSED_EARLY = WEBHOOK_MORE, WHOLE = WEBHOOK_WHOLE, BAD = WEBHOOK_BAD };

struct seen {
    enum webhook_read parsed;
    bool keep;
    int status;
    size_t body_size;
};

/* Reads a response in pieces of `step` bytes; then, if it is not whole, the connection is closed. */
static struct seen read_response(const char *text, size_t size, size_t step, struct webhook_response *response)
{
    struct webhook_reader reader = {0};
    enum webhook_read parsed = WEBHOOK_MORE;
    webhook_reader_begin(&reader);
    webhook_response_begin(response, 0);
    for (size_t at = 0; at < size && parsed == WEBHOOK_MORE; at += step)
        parsed = webhook_read(&reader, response, text + at, size - at < step ? size - at : step);
    if (parsed == WEBHOOK_MORE) {
        parsed = webhook_read_end(&reader);
        if (parsed == WEBHOOK_BAD)
            parsed = WEBHOOK_MORE;
    }
    webhook_reader_free(&reader);
    return (struct seen){parsed, parsed == WEBHOOK_WHOLE && reader.keep, response->status, response->body_size};
}

static void check_every_step(const char *text, enum outcome outcome, bool keep, int status, const char *body)
{
    size_t size = strlen(text);
    for (size_t step = 1; step <= size; step++) {
        struct webhook_response response = {0};
        struct seen seen = read_response(text, size, step, &response);
        if ((int)seen.parsed != (int)outcome || seen.keep != keep || (outcome == WHOLE && seen.status != status))
            test_fail(__FILE__, __LINE__, "%.60s in pieces of %zu: %d %d %d", text, step, seen.parsed, seen.keep,
                      seen.status);
        if (outcome == WHOLE)
            CHECK(response.body.size == strlen(body) &&
                  memcmp(response.body.data ? response.body.data : "", body, strlen(body)) == 0);
        webhook_response_free(&response);
    }
}

TEST(reads_what_is_right)
{
    check_every_step("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", WHOLE, true, 200, "");
    check_every_step("HTTP/1.1 200\r\nCONTENT-LENGTH:3  \r\n\r\nabc", WHOLE, true, 200, "abc");
    check_every_step("HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", WHOLE, true, 200, "abc");
    check_every_step("HTTP/1.1 204 No\r\n\r\n", WHOLE, true, 204, "");
    check_every_step("HTTP/1.1 204 No\r\nContent-Length: 7\r\n\r\n", WHOLE, true, 204, "");
    check_every_step("HTTP/1.1 200 OK\r\n\r\nabc", WHOLE, false, 200, "abc");
    check_every_step("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", WHOLE, false, 200, "a");
    check_every_step("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na", WHOLE, true, 200, "a");
    check_every_step("HTTP/1.1 200 OK\r\nConnection: x , close\r\nContent-Length: 1\r\n\r\na", WHOLE, false, 200, "a");
    check_every_step(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 x\r\nA: b\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno",
        WHOLE, true, 500, "");
    check_every_step(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\n\r\n", WHOLE,
        true, 200, "a0123456789");
    check_every_step(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA \r\n0123456789\r\n000\r\nX: y\r\nZ\r\n\r\n", WHOLE,
        true, 200, "0123456789");
    check_every_step("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n1\r\na\r\n0\r\n\r\n",
                     WHOLE, false, 200, "a");
    check_every_step("HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab", WHOLE,
                     true, 200, "ab");
}

TEST(does_not_keep_a_connection_that_says_too_much)
{
    struct webhook_response response = {0};
    const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc";
    struct seen seen = read_response(text, sizeof text - 1, sizeof text - 1, &response);
    CHECK(seen.parsed == WEBHOOK_WHOLE && !seen.keep && response.body.size == 1);
    webhook_response_free(&response);
}

TEST(waits_for_what_is_missing)
{
    check_every_step("HTTP/1.1 200 OK", CLOSED_EARLY, false, 0, "");
    check_every_step("HTTP/1.1 200 OK\r\nContent-Len", CLOSED_EARLY, false, 0, "");
    check_every_step("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", CLOSED_EARLY, false, 0, "");
    check_every_step("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", CLOSED_EARLY, false, 0, "");
    check_every_step("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", CLOSED_EARLY, false, 0, "");
    check_every_step("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", CLOSED_EARLY, false, 0, "");
    check_every_step("HTTP/1.1 100 Continue\r\n\r\n", CLOSED_EARLY, false, 0, "");
}

TEST(refuses_what_is_wrong)
{
    static const char *const bad[] = {
        "\r\n",
        "HTTP/2 200 OK\r\n",
        "HTTP/1.1 20 OK\r\n",
        "HTTP/1.1 2000 OK\r\n",
        "HTTP/1.1  200 OK\r\n",
        "HTTP/1.1 099 OK\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "http/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\n: no name\r\n",
        "HTTP/1.1 200 OK\r\nSpace : x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\x10\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_every_step(bad[i], BAD, false, 0, "");
    struct webhook_response response = {0};
    CHECK(read_response("HTTP/1.1 200 OK\r\nA: \0\r\n", 24, 24, &response).parsed == WEBHOOK_BAD);
    webhook_response_free(&response);
}

/* --- Meaning, without a network ----------------------------------------------------------------------------------- */

static webhook_attempt settle(int status, const char *type, const char *retry_after, const char *body)
{
    webhook_attempt attempt = {0};
    struct webhook_response response = {0};
    webhook_response_begin(&response, status);
    webhook_response_header(&response, (fl_bytes)FL_TEXT("Content-Type"), (fl_bytes){type, strlen(type)});
    webhook_response_header(&response, (fl_bytes)FL_TEXT("Retry-After"), (fl_bytes){retry_after, strlen(retry_after)});
    webhook_response_body(&response, body, strlen(body));
    webhook_response_settle(&response, 1000000, &attempt);
    webhook_response_free(&response);
    return attempt;
}

TEST(tells_json_from_other_types)
{
    static const char again[] = "{\"again_after\":\"1s\"}";
    CHECK_EQ(settle(200, "application/json", "", again).result, FL_AGAIN);
    CHECK_EQ(settle(200, "APPLICATION/JSON ; charset=utf-8", "", again).result, FL_AGAIN);
    CHECK_EQ(settle(200, "application/problem+json", "", again).result, FL_AGAIN);
    CHECK_EQ(settle(200, "", "", again).result, FL_AGAIN);
    CHECK_EQ(settle(200, "text/plain", "", again).result, FL_DONE);
    CHECK_EQ(settle(200, "application/jsonlines", "", again).result, FL_DONE);
    CHECK_EQ(settle(200, "json", "", again).result, FL_DONE);
    CHECK_EQ(settle(500, "application/json", "", again).result, FL_FAILED);
}

TEST(ignores_a_retry_after_that_is_too_long)
{
    char long_one[128];
    memset(long_one, '1', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    CHECK_EQ(settle(503, "", long_one, "").at_us, 0);
    CHECK_EQ(settle(503, "", "7", "").at_us, 8000000);
}

TEST(cuts_a_long_body_at_the_same_place)
{
    static char text[3 * WEBHOOK_BODY_MOST];
    size_t head = (size_t)snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\n\r\n");
    memset(text + head, ' ', sizeof text - head);
    static const size_t steps[] = {1, 7, 4096, 65536, sizeof text};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct webhook_response response = {0};
        struct seen seen = read_response(text, sizeof text, steps[i], &response);
        CHECK(seen.parsed == WEBHOOK_WHOLE && response.cut && response.body_size == WEBHOOK_BODY_MOST && !seen.keep);
        webhook_response_free(&response);
    }
}
