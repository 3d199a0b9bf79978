/* SPDX-License-Identifier: MIT */
/* The reader of messages alone: requests strictly, responses leniently, in pieces of every size. */

#include <string.h>

#include "http/http.h"
#include "test.h"

/* Reads a head in pieces of `step` bytes. Returns what http_read_head() does, the last time. */
static int read_head(enum http_kind kind, const char *text, size_t step, struct http_head *ret,
                     struct http_fields *fields)
{
    const struct http_rules rules = {kind, .max_head = 1000, .max_url = 100, .field = http_keep_field};
    size_t size = strlen(text);
    int r = 0;
    *ret = (struct http_head){0};
    fields->count = 0;
    for (size_t at = step; r == 0; at += step) {
        r = http_read_head(ret, text, at < size ? at : size, &rules, fields);
        if (at >= size)
            break;
    }
    return r;
}

struct head_case {
    const char *text;
    int r;
    enum http_framing framing;
    bool keep;
};

static void check_heads(enum http_kind kind, const struct head_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t step = 1; step <= strlen(cases[i].text); step++) {
            struct http_head head;
            struct http_fields fields;
            int r = read_head(kind, cases[i].text, step, &head, &fields);
            bool good =
                r == cases[i].r && (r <= 0 || (head.framing == cases[i].framing && head.keep_alive == cases[i].keep &&
                                               head.size == strlen(cases[i].text)));
            if (!good)
                test_fail(__FILE__, __LINE__, "case %zu in pieces of %zu: %d %d %d", i, step, r, head.framing,
                          head.keep_alive);
        }
}

TEST(requests_are_read_strictly)
{
#define LINE "POST /a?b HTTP/1.1\r\nHost: x\r\n"
    static const struct head_case cases[] = {
        {LINE "\r\n", 1, HTTP_NO_BODY, true},
        {LINE "Content-Length: 0\r\n\r\n", 1, HTTP_NO_BODY, true},
        {LINE "Content-Length: 7\r\nConnection: close\r\n\r\n", 1, HTTP_LENGTH, false},
        {LINE "Transfer-Encoding: chunked\r\n\r\n", 1, HTTP_CHUNKED, true},
        {"GET / HTTP/1.0\r\n\r\n", 1, HTTP_NO_BODY, false},
        {"GET / HTTP/1.0\r\nConnection: x, keep-alive\r\n\r\n", 1, HTTP_NO_BODY, true},
        {LINE "Content-Length: 7\r\n", 0, HTTP_NO_BODY, false},
        {"GET / HTTP/1.1\r\n\r\n", -400, HTTP_NO_BODY, false},
        {"GET / HTTP/1.1\nHost: x\r\n\r\n", -400, HTTP_NO_BODY, false},
        {LINE "A: b\r\n c\r\n\r\n", -400, HTTP_NO_BODY, false},
        {LINE "A : b\r\n\r\n", -400, HTTP_NO_BODY, false},
        {LINE "Content-Length: 7\r\nContent-Length: 7\r\n\r\n", -400, HTTP_NO_BODY, false},
        {LINE "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n", -400, HTTP_NO_BODY, false},
        {LINE "Transfer-Encoding: gzip\r\n\r\n", -501, HTTP_NO_BODY, false},
        {"GET / HTTP/2.0\r\n\r\n", -505, HTTP_NO_BODY, false},
    };
    check_heads(HTTP_REQUEST, cases, sizeof cases / sizeof *cases);
}

TEST(responses_are_read_leniently)
{
    static const struct head_case cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", 1, HTTP_LENGTH, true},
        {"HTTP/1.1 200\nContent-Length: 7\nContent-Length: 7\n\n", 1, HTTP_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", 1, HTTP_UNTIL_CLOSE, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n", 1, HTTP_CHUNKED, false},
        {"HTTP/1.1 304 x\r\nContent-Length: 7\r\n\r\n", 1, HTTP_NO_BODY, true},
        {"HTTP/1.1 101 x\r\nUpgrade: y\r\n\r\n", 1, HTTP_NO_BODY, true},
        {"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n", 1, HTTP_LENGTH, false},
        {"HTTP/1.1 200 OK\r\n", 0, HTTP_NO_BODY, false},
        {"SSH-2.0", -400, HTTP_NO_BODY, false},
        {"HTTP/1.1 20 OK\r\n\r\n", -400, HTTP_NO_BODY, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n", -400, HTTP_NO_BODY, false},
    };
    check_heads(HTTP_RESPONSE, cases, sizeof cases / sizeof *cases);
}

TEST(headers_are_found_by_name)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nX-One:  1 \r\nx-two:\r\nX-ONE: 2\r\n\r\n";
    struct http_head head;
    struct http_fields fields;
    CHECK_EQ(read_head(HTTP_RESPONSE, text, sizeof text, &head, &fields), 1);
    CHECK_EQ(fields.count, 3);
    fl_bytes one = http_field_value(&fields, text, "x-one"), two = http_field_value(&fields, text, "x-two");
    CHECK(one.size == 1 && memcmp(one.data, "1", 1) == 0);
    CHECK(two.size == 0 && two.data && !http_field_value(&fields, text, "x-three").data);
    CHECK_EQ(http_find_field(&fields, text, "x-one", 1), 2);
}

TEST(a_head_has_limits)
{
    char text[2000];
    struct http_head head;
    struct http_fields fields;
    size_t size = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\n");
    for (int i = 0; i <= HTTP_FIELDS_MAX; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "a:\r\n");
    CHECK_EQ(read_head(HTTP_REQUEST, text, size, &head, &fields), -431);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    memcpy(text, "GET /", 5);
    CHECK_EQ(read_head(HTTP_REQUEST, text, 1, &head, &fields), -414);
    memcpy(text, "GET / HTTP/1.1\r\na: ", 19);
    CHECK_EQ(read_head(HTTP_REQUEST, text, 1, &head, &fields), -431);
}

/* --- Bodies ------------------------------------------------------------------------------------------------------- */

static enum http_body_step read_body(bool lenient, const char *text, size_t step, char *out)
{
    struct http_body body = {.framing = HTTP_CHUNKED, .lenient = lenient};
    enum http_body_step r = HTTP_BODY_MORE;
    size_t size = strlen(text);
    *out = '\0';
    for (size_t at = 0; at < size && (r == HTTP_BODY_MORE || r == HTTP_BODY_PIECE);) {
        size_t used, portion = step < size - at ? step : size - at;
        fl_bytes piece;
        r = http_body_next(&body, text + at, portion, &used, &piece);
        CHECK(used == portion || r != HTTP_BODY_MORE);
        strncat(out, piece.data ? piece.data : "", piece.size);
        at += used;
    }
    return r;
}

TEST(chunks_are_read)
{
    static const struct {
        const char *text, *data;
        enum http_body_step strict, lenient;
    } cases[] = {
        {"1\r\na\r\n0\r\n\r\n", "a", HTTP_BODY_END, HTTP_BODY_END},
        {"00A;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\n", "0123456789", HTTP_BODY_END, HTTP_BODY_END},
        {"1 \r\na\r\n0\r\n\r\n", "a", HTTP_BODY_BAD, HTTP_BODY_END},
        {"1\na\n0\n\n", "a", HTTP_BODY_BAD, HTTP_BODY_END},
        {"0\r\nno colon\r\n\r\n", "", HTTP_BODY_BAD, HTTP_BODY_END},
        {"1\r\nab\r\n", "a", HTTP_BODY_BAD, HTTP_BODY_BAD},
        {"x\r\n", "", HTTP_BODY_BAD, HTTP_BODY_BAD},
        {"10000000000000000\r\n", "", HTTP_BODY_BAD, HTTP_BODY_BAD},
        {"2\r\na", "a", HTTP_BODY_PIECE, HTTP_BODY_PIECE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= strlen(cases[i].text); step++)
            for (int lenient = 0; lenient < 2; lenient++) {
                char out[100];
                enum http_body_step expected = lenient ? cases[i].lenient : cases[i].strict;
                CHECK_EQ(read_body(lenient, cases[i].text, step, out), expected);
                if (expected != HTTP_BODY_BAD)
                    CHECK(strcmp(out, cases[i].data) == 0);
            }
}

TEST(a_body_with_a_length_ends_with_its_last_byte)
{
    const struct http_head head = {.framing = HTTP_LENGTH, .length = 3};
    struct http_body body;
    size_t used;
    fl_bytes piece;
    http_body_begin(&body, &head);
    CHECK_EQ(http_body_next(&body, "ab", 2, &used, &piece), HTTP_BODY_PIECE);
    CHECK_EQ(http_body_next(&body, "", 0, &used, &piece), HTTP_BODY_MORE);
    CHECK_EQ(http_body_next(&body, "cd", 2, &used, &piece), HTTP_BODY_END);
    CHECK(used == 1 && piece.size == 1);
}
