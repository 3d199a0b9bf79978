/* SPDX-License-Identifier: MIT */
/* Webhooks against a receiver that behaves well and badly. */

#include "webhook/webhook.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "receiver.h"
#include "webhook/internal.h"
#include "text/when.h"
#include "test.h"

enum { URL_MOST = 256 };
static const int64_t second_us = 1000000, day_us = INT64_C(86400) * 1000000;

/* --- The stage: a loop, a receiver, webhooks ---------------------------------------------------------------------- */

struct wall {
    fl_wall_clock clock;
    int64_t now_us;
};

static int64_t wall_now_us(fl_wall_clock *clock)
{
    return ((struct wall *)clock)->now_us;
}

struct stage {
    fl_loop *loop;
    struct wall wall;
    receiver *receiver;
    webhooks *hooks;
    unsigned left; /* attempts that are not done */
};

static void open_stage_on(struct stage *stage, fl_clock *clock, struct webhooks_config config)
{
    signal(SIGPIPE, SIG_IGN);
    *stage = (struct stage){.wall = {{wall_now_us}, INT64_C(1614265330) * 1000000}};
    CHECK(fl_loop_new(&(fl_loop_config){.clock = clock}, &stage->loop) == 0);
    stage->receiver = receiver_new();
    config.loop = stage->loop;
    config.clock = &stage->wall.clock;
    CHECK(webhooks_new(&config, &stage->hooks) == 0);
}

static void open_stage_with(struct stage *stage, struct webhooks_config config)
{
    open_stage_on(stage, NULL, config);
}

static void open_stage(struct stage *stage)
{
    open_stage_with(stage, (struct webhooks_config){.allow_private = true});
}

static void stopped(fl_loop *loop, void *arg)
{
    *(bool *)arg = true;
    fl_loop_stop(loop);
}

static void close_stage(struct stage *stage)
{
    bool gone = false;
    if (stage->hooks) {
        webhooks_stop(stage->hooks, 0, stopped, &gone);
        while (!gone)
            fl_loop_run_once(stage->loop, true);
    }
    CHECK(!fl_loop_alive(stage->loop));
    fl_loop_free(stage->loop);
    receiver_free(stage->receiver);
}

/* --- Attempts ----------------------------------------------------------------------------------------------------- */

struct delivery {
    webhook_attempt attempt;
    struct stage *stage;
    unsigned done;
    char url[URL_MOST];
};

static void delivered(webhook_attempt *attempt)
{
    struct delivery *delivery = attempt->arg;
    CHECK(delivery->done++ == 0);
    delivery->stage->left--;
}

static fl_bytes bytes(const char *text)
{
    return (fl_bytes){text, strlen(text)};
}

static void prepare(struct delivery *d, struct stage *stage, const char *path)
{
    *d = (struct delivery){.stage = stage};
    snprintf(d->url, sizeof d->url, "http://127.0.0.1:%u%s", receiver_port(stage->receiver), path);
    d->attempt = (webhook_attempt){.target = webhook_target(bytes(d->url)),
                                   .body = FL_TEXT("{\"test\": 2432232314}"),
                                   .content_type = "application/json",
                                   .id = "msg_p5jXN8AQM9LWM0D4loKWxJek",
                                   .number = 3,
                                   .due_us = INT64_C(1614265330) * 1000000,
                                   .done = delivered,
                                   .arg = d};
}

static void submit(struct delivery *d)
{
    d->stage->left++;
    webhooks_submit(d->stage->hooks, &d->attempt);
    CHECK(d->done == 0);
}

static void run(struct stage *stage)
{
    while (stage->left > 0)
        CHECK(fl_loop_run_once(stage->loop, true) == 0);
}

static struct delivery deliver(struct stage *stage, const char *path)
{
    static struct delivery d; /* its URL is pointed to */
    prepare(&d, stage, path);
    submit(&d);
    run(stage);
    return d;
}

/* What comes of a response. */
static struct delivery response(struct stage *stage, const char *canned)
{
    receiver_set(stage->receiver, canned);
    return deliver(stage, "/canned");
}

static bool has_line(const char *request, const char *line)
{
    const char *found = strcasestr(request, line);
    return found && (found == request || found[-1] == '\n') && strncmp(found + strlen(line), "\r\n", 2) == 0;
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

TEST(posts_what_is_due)
{
    struct stage stage;
    open_stage(&stage);
    for (int again = 0; again < 3; again++) {
        struct delivery d = deliver(&stage, "/a/b?c=d");
        CHECK_EQ(d.attempt.result, FL_DONE);
        CHECK_EQ(d.attempt.status, 200);
        CHECK(d.attempt.reason[0] == '\0');
        CHECK(d.attempt.duration_ns > 0);
        const char *request = receiver_last(stage.receiver, NULL);
        char host[64];
        snprintf(host, sizeof host, "Host: 127.0.0.1:%u", receiver_port(stage.receiver));
        CHECK(strncmp(request, "POST /a/b?c=d HTTP/1.1\r\n", 24) == 0);
        CHECK(has_line(request, host));
        CHECK(has_line(request, "content-length: 20"));
        CHECK(has_line(request, "content-type: application/json"));
        CHECK(has_line(request, "user-agent: foliot/0.1.0"));
        CHECK(has_line(request, "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek"));
        CHECK(has_line(request, "webhook-timestamp: 1614265330"));
        CHECK(has_line(request, "foliot-attempt: 3"));
        CHECK(has_line(request, "foliot-due: 2021-02-25T15:02:10Z"));
        CHECK(!strcasestr(request, "webhook-signature"));
        CHECK(!strcasestr(request, "accept"));
        CHECK(!strcasestr(request, "expect"));
        CHECK(strstr(request, "\r\n\r\n{\"test\": 2432232314}"));
    }
    CHECK(receiver_connections(stage.receiver) <= 2);
    close_stage(&stage);
}

/* The vector that the libraries of Standard Webhooks are tested with. */
TEST(signs_as_standard_webhooks_does)
{
    unsigned char key[64];
    struct stage stage;
    open_stage(&stage);
    int size = EVP_DecodeBlock(key, (const unsigned char *)"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 32);
    CHECK_EQ(size, 24);
    fl_bytes secrets[] = {{key, 24}};
    struct delivery d;
    prepare(&d, &stage, "/");
    d.attempt.secrets = secrets;
    d.attempt.secret_count = 1;
    submit(&d);
    run(&stage);
    CHECK(has_line(receiver_last(stage.receiver, NULL),
                   "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    close_stage(&stage);
}

/* "v1," and the Base64 of a HMAC, made in another way than the module does. */
static void sign_independently(fl_bytes key, const char *message, char out[64])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    CHECK(HMAC(EVP_sha256(), key.data, (int)key.size, (const unsigned char *)message, strlen(message), mac, &size));
    char base64[48];
    EVP_EncodeBlock((unsigned char *)base64, mac, (int)size);
    snprintf(out, 64, "v1,%s", base64);
}

TEST(signs_with_every_secret)
{
    static const char message[] = "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
    fl_bytes secrets[] = {bytes("old"),
                          bytes("new and longer than a block of the digest, which is 64 bytes, so it is "
                                "hashed first"),
                          {"", 0}};
    struct stage stage;
    open_stage(&stage);
    struct delivery d;
    prepare(&d, &stage, "/");
    d.attempt.secrets = secrets;
    d.attempt.secret_count = 3;
    submit(&d);
    run(&stage);
    char one[64], two[64], three[64], line[256];
    sign_independently(secrets[0], message, one);
    sign_independently(secrets[1], message, two);
    sign_independently(secrets[2], message, three);
    snprintf(line, sizeof line, "webhook-signature: %s %s %s", one, two, three);
    CHECK(has_line(receiver_last(stage.receiver, NULL), line));
    close_stage(&stage);
}

TEST(sends_the_users_headers)
{
    struct stage stage;
    open_stage(&stage);
    for (int again = 0; again < 2; again++) {
        struct delivery d;
        prepare(&d, &stage, "/");
        d.attempt.headers = (fl_bytes)FL_TEXT("Authorization\0Bearer x\0X-Empty\0\0X-Blank\0  \0X-Colon\0a: \0"
                                              "X-Only\0:\0accept\0text/*\0");
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, FL_DONE);
        const char *request = receiver_last(stage.receiver, NULL);
        CHECK(has_line(request, "Authorization: Bearer x"));
        CHECK(strcasestr(request, "\r\nX-Empty:"));
        CHECK(strcasestr(request, "\r\nX-Blank:"));
        CHECK(strcasestr(request, "\r\nX-Colon: a:"));
        CHECK(has_line(request, "X-Only: :"));
        CHECK(has_line(request, "accept: text/*"));
    }
    close_stage(&stage);
}

TEST(refuses_headers_that_are_not_the_users)
{
    static const char *const names[] = {"Host",
                                        "content-length",
                                        "Transfer-Encoding",
                                        "CONNECTION",
                                        "webhook-id",
                                        "Webhook-Signature",
                                        "webhook-timestamp",
                                        "foliot-due",
                                        "Foliot-Attempt",
                                        "content-type",
                                        "user-agent",
                                        "te",
                                        "upgrade",
                                        "expect",
                                        "a b",
                                        "a:",
                                        "",
                                        "\xc3\xa4"};
    char message[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(webhook_check_header(bytes(names[i]), bytes("x"), message, sizeof message) == FL_INVALID_ARGUMENT);
    CHECK(webhook_check_header(bytes("a"), bytes("b\r\nc: d"), message, sizeof message) < 0);
    CHECK(webhook_check_header(bytes("a"), bytes("b\nc"), message, sizeof message) < 0);
    CHECK(webhook_check_header(bytes("a"), (fl_bytes){"b\0c", 3}, message, sizeof message) < 0);
    CHECK(webhook_check_header((fl_bytes){"a\0", 2}, bytes("b"), message, sizeof message) < 0);
    CHECK(webhook_check_header(bytes("X-Any"), bytes("v\xc3\xa4l\tue"), message, sizeof message) == 0);
    CHECK(webhook_check_header(bytes("authorization"), bytes(""), message, sizeof message) == 0);

    struct stage stage;
    open_stage(&stage);
    struct delivery d;
    prepare(&d, &stage, "/");
    d.attempt.headers = (fl_bytes)FL_TEXT("a\0secret\r\nb: c\0");
    submit(&d);
    run(&stage);
    CHECK_EQ(d.attempt.result, FL_DEAD);
    CHECK(d.attempt.reason[0] && !strstr(d.attempt.reason, "secret"));
    CHECK_EQ(receiver_requests(stage.receiver), 0);
    close_stage(&stage);
}

TEST(sends_large_and_empty_bodies)
{
    struct stage stage;
    open_stage(&stage);
    size_t size = 3 << 20, got;
    char *body = malloc(size);
    CHECK(body);
    memset(body, 'x', size);
    for (int again = 0; again < 3; again++) {
        struct delivery d;
        prepare(&d, &stage, "/");
        d.attempt.body = (fl_bytes){body, size};
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, FL_DONE);
        const char *request = receiver_last(stage.receiver, &got);
        CHECK(got > size && memcmp(request + got - size, body, size) == 0);
        prepare(&d, &stage, "/");
        d.attempt.body = (fl_bytes){0};
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, FL_DONE);
        CHECK(has_line(receiver_last(stage.receiver, NULL), "content-length: 0"));
    }
    free(body);
    close_stage(&stage);
}

/* --- Responses ------------------------------------------------------------------------------------------------------ */

TEST(knows_what_a_status_means)
{
    static const struct {
        int status;
        enum fl_settle result;
    } cases[] = {{200, FL_DONE},   {201, FL_DONE},   {204, FL_DONE},   {299, FL_DONE},   {300, FL_FAILED},
                 {302, FL_FAILED}, {303, FL_DEAD},   {304, FL_FAILED}, {400, FL_DEAD},   {401, FL_DEAD},
                 {404, FL_DEAD},   {408, FL_FAILED}, {410, FL_DEAD},   {425, FL_FAILED}, {429, FL_FAILED},
                 {499, FL_DEAD},   {500, FL_FAILED}, {503, FL_FAILED}, {599, FL_FAILED}, {600, FL_FAILED}};
    struct stage stage;
    open_stage(&stage);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char canned[128];
        snprintf(canned, sizeof canned, "HTTP/1.1 %d Whatever\r\n%s\r\n", cases[i].status,
                 cases[i].status == 204 || cases[i].status == 304 ? "" : "Content-Length: 0\r\n");
        struct delivery d = response(&stage, canned);
        CHECK_EQ(d.attempt.result, cases[i].result);
        CHECK_EQ(d.attempt.status, cases[i].status);
        CHECK_EQ(d.attempt.at_us, 0);
        CHECK((d.attempt.result == FL_DONE) == (d.attempt.reason[0] == '\0'));
    }
    close_stage(&stage);
}

static int64_t retry_after(struct stage *stage, int status, const char *value)
{
    char canned[256];
    snprintf(canned, sizeof canned, "HTTP/1.1 %d No\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", status, value);
    struct delivery d = response(stage, canned);
    return d.attempt.at_us ? d.attempt.at_us - stage->wall.now_us : 0;
}

TEST(honours_retry_after)
{
    struct stage stage;
    open_stage(&stage);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(retry_after(&stage, 429, "120"), 120 * second_us);
        CHECK_EQ(retry_after(&stage, 503, "0"), 0);
        CHECK_EQ(retry_after(&stage, 500, "86401"), day_us);
        CHECK_EQ(retry_after(&stage, 500, "99999999999999999999999"), day_us);
        CHECK_EQ(retry_after(&stage, 503, "Thu, 25 Feb 2021 15:03:10 GMT"), 60 * second_us);
        CHECK_EQ(retry_after(&stage, 503, "Thu, 25 Feb 2027 15:03:10 GMT"), day_us);
        CHECK(retry_after(&stage, 503, "Thu, 25 Feb 2016 15:03:10 GMT") <= 0);
        CHECK_EQ(retry_after(&stage, 503, "soon"), 0);
        CHECK_EQ(retry_after(&stage, 503, "-5"), 0);
        CHECK_EQ(retry_after(&stage, 404, "120"), 0);
    }
    close_stage(&stage);
}

static struct delivery answer_json(struct stage *stage, const char *type, const char *body)
{
    char canned[1024];
    snprintf(canned, sizeof canned, "HTTP/1.1 200 OK\r\n%sContent-Length: %zu\r\n\r\n%s", type, strlen(body), body);
    return response(stage, canned);
}

TEST(comes_again_if_the_answer_says_so)
{
    static const char json[] = "Content-Type: application/json\r\n";
    struct stage stage;
    open_stage(&stage);
    struct delivery d = answer_json(&stage, json, "{\"again_at\": \"2021-03-01T01:00:00+01:00\"}");
    CHECK_EQ(d.attempt.result, FL_AGAIN);
    CHECK_EQ(d.attempt.at_us, INT64_C(1614556800) * second_us);
    d = answer_json(&stage, json, "{\"x\": [1], \"again_at\": 1614556800123}");
    CHECK_EQ(d.attempt.result, FL_AGAIN);
    CHECK_EQ(d.attempt.at_us, INT64_C(1614556800123000));
    d = answer_json(&stage, json, "{\"again_at\": 1614556800123.25}");
    CHECK_EQ(d.attempt.result, FL_AGAIN);
    CHECK_EQ(d.attempt.at_us, INT64_C(1614556800123250));
    d = answer_json(&stage, "content-type: application/cloud+json; charset=utf-8\r\n",
                    " {\"again_after\": \"1h30m\"} ");
    CHECK_EQ(d.attempt.result, FL_AGAIN);
    CHECK_EQ(d.attempt.at_us - stage.wall.now_us, 5400 * second_us);
    d = answer_json(&stage, "", "{\"again_after\": \"500ms\"}");
    CHECK_EQ(d.attempt.result, FL_AGAIN);
    CHECK_EQ(d.attempt.at_us - stage.wall.now_us, second_us / 2);
    close_stage(&stage);
}

TEST(is_done_if_the_answer_is_anything_else)
{
    static const char *const silent[] = {"", "[]", "{}", "null", "{\"again_at\": null}", "{\"again\": 1}"};
    static const char *const said[] = {"{",
                                       "again_at",
                                       "{\"again_at\": \"tomorrow\"}",
                                       "{\"again_at\": true}",
                                       "{\"again_after\": 5}",
                                       "{\"again_after\": \"5 apples\"}",
                                       "{\"again_at\": 1e300}",
                                       "{\"again_at\": 9223372036854775807}",
                                       "{\"again_at\": 99999999999999}",
                                       "{\"again_at\": 1799999999}",
                                       "{\"again_at\": -5}",
                                       "{\"again_after\": \"1s\", \"again_at\": 5}"};
    struct stage stage;
    open_stage(&stage);
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++) {
        struct delivery d = answer_json(&stage, "Content-Type: application/json\r\n", silent[i]);
        CHECK_EQ(d.attempt.result, FL_DONE);
        CHECK(d.attempt.reason[0] == '\0');
    }
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct delivery d = answer_json(&stage, "Content-Type: application/json\r\n", said[i]);
        CHECK_EQ(d.attempt.result, FL_DONE);
        CHECK(strstr(d.attempt.reason, "ignored"));
    }
    CHECK_EQ(answer_json(&stage, "Content-Type: text/html\r\n", "{\"again_after\": \"1s\"}").attempt.result, FL_DONE);
    close_stage(&stage);
}

TEST(understands_every_way_to_send_an_answer)
{
    static const struct {
        const char *path, *canned;
    } cases[] = {
        {"/canned", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"aga\r\n10;x=y\r\nin_after\": "
                    "\"10s\"\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n"},
        {"/drip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"aga\r\n10\r\nin_after\": "
                  "\"10s\"\r\n1\r\n}\r\n0\r\n\r\n"},
        {"/drip", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n"
                  "Content-Length: 22\r\n\r\n{\"again_after\": \"10s\"}"},
        {"/canned", "HTTP/1.1 200\r\ncontent-length:22\r\n\r\n{\"again_after\": \"10s\"}"},
        {"/close", "HTTP/1.1 200 OK\r\n\r\n{\"again_after\": \"10s\"}"},
        {"/close", "HTTP/1.0 200 OK\r\n\r\n{\"again_after\": \"10s\"}"},
        {"/canned", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 22\r\n\r\n{\"again_after\": \"10s\"}"},
    };
    struct stage stage;
    open_stage(&stage);
    for (unsigned i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        receiver_set(stage.receiver, cases[i / 2].canned);
        struct delivery d = deliver(&stage, cases[i / 2].path);
        CHECK_EQ(d.attempt.result, FL_AGAIN);
        CHECK_EQ(d.attempt.at_us - stage.wall.now_us, 10 * second_us);
    }
    close_stage(&stage);
}

TEST(reads_only_so_much)
{
    struct stage stage;
    open_stage(&stage);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(deliver(&stage, "/endless").attempt.result, FL_DONE);
        CHECK_EQ(deliver(&stage, "/endless-chunked").attempt.result, FL_DONE);
        CHECK_EQ(deliver(&stage, "/endless-head").attempt.result, FL_FAILED);
        CHECK_EQ(deliver(&stage, "/").attempt.result, FL_DONE);
    }
    close_stage(&stage);
}

/* --- Trouble ------------------------------------------------------------------------------------------------------ */

TEST(fails_without_an_answer)
{
    struct stage stage;
    open_stage(&stage);
    receiver_set(stage.receiver, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd");
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(deliver(&stage, "/early").attempt.result, FL_FAILED);
        CHECK_EQ(deliver(&stage, "/half").attempt.result, FL_FAILED);
        CHECK_EQ(deliver(&stage, "/").attempt.result, FL_DONE);
    }
    close_stage(&stage);
}

TEST(fails_if_the_answer_is_no_http)
{
    static const char *const cases[] = {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\r\n\r\n\r\n",
                                        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
    struct stage stage;
    open_stage(&stage);
    for (unsigned i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        receiver_set(stage.receiver, cases[i / 2]);
        CHECK_EQ(deliver(&stage, "/close").attempt.result, FL_FAILED);
        CHECK_EQ(deliver(&stage, "/").attempt.result, FL_DONE);
    }
    close_stage(&stage);
}

TEST(fails_where_nobody_listens)
{
    struct stage stage;
    open_stage(&stage);
    receiver *other = receiver_new();
    struct delivery d;
    prepare(&d, &stage, "/");
    snprintf(d.url, sizeof d.url, "http://127.0.0.1:%u/", receiver_port(other));
    receiver_free(other);
    d.attempt.target = webhook_target(bytes(d.url));
    submit(&d);
    run(&stage);
    CHECK_EQ(d.attempt.result, FL_FAILED);
    CHECK_EQ(d.attempt.status, 0);
    CHECK(d.attempt.reason[0]);
    close_stage(&stage);
}

TEST(gives_up_after_the_timeout)
{
    struct stage stage;
    open_stage(&stage);
    for (int again = 0; again < 2; again++) {
        struct delivery d;
        prepare(&d, &stage, "/hang");
        d.attempt.timeout_us = 20000;
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, FL_FAILED);
        CHECK(strstr(d.attempt.reason, "20 ms"));
        CHECK_EQ(deliver(&stage, "/").attempt.result, FL_DONE);
    }
    close_stage(&stage);
}

TEST(repeats_on_a_fresh_connection_what_a_kept_one_lost)
{
    struct stage stage;
    open_stage(&stage);
    for (int i = 0; i < 50; i++)
        CHECK_EQ(deliver(&stage, "/stale").attempt.result, FL_DONE);
    close_stage(&stage);
}

TEST(sends_nothing_twice_if_it_must_not_come_twice)
{
    struct stage stage;
    open_stage(&stage);
    for (int i = 0; i < 20; i++) {
        struct delivery d;
        CHECK_EQ(deliver(&stage, "/").attempt.result, FL_DONE); /* leaves a kept connection */
        size_t before = receiver_connections(stage.receiver);
        prepare(&d, &stage, "/");
        d.attempt.once = true;
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, FL_DONE);
        CHECK_EQ(receiver_connections(stage.receiver), before + 1);
    }
    close_stage(&stage);
}

/* --- Redirects ---------------------------------------------------------------------------------------------------- */

static struct delivery redirected(struct stage *stage, int status, const char *location)
{
    static struct delivery d;
    static const fl_bytes secret = {"secret", 6};
    char canned[512];
    snprintf(canned, sizeof canned, "HTTP/1.1 %d There\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, location);
    receiver_set(stage->receiver, canned);
    prepare(&d, stage, "/canned");
    d.attempt.secrets = &secret;
    d.attempt.secret_count = 1;
    d.attempt.headers = (fl_bytes)FL_TEXT("authorization\0Bearer x\0");
    submit(&d);
    run(stage);
    return d;
}

TEST(follows_redirects_with_the_same_post)
{
    static const int statuses[] = {301, 302, 307, 308};
    struct stage stage;
    open_stage(&stage);
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQ(redirected(&stage, statuses[i], "../new?place#here").attempt.result, FL_DONE);
        const char *request = receiver_last(stage.receiver, NULL);
        CHECK(strncmp(request, "POST /new?place HTTP/1.1\r\n", 26) == 0);
        CHECK(has_line(request, "authorization: Bearer x"));
        CHECK(strstr(request, "webhook-signature: v1,"));
        CHECK(strstr(request, "\r\n\r\n{\"test\": 2432232314}"));
    }
    struct webhooks_stats stats;
    webhooks_get_stats(stage.hooks, &stats);
    CHECK_EQ(stats.redirected, 4);
    close_stage(&stage);
}

TEST(tells_strangers_no_secrets)
{
    struct stage stage;
    char location[64];
    open_stage(&stage);
    snprintf(location, sizeof location, "http://localhost:%u/other", receiver_port(stage.receiver));
    CHECK_EQ(redirected(&stage, 307, location).attempt.result, FL_DONE);
    const char *request = receiver_last(stage.receiver, NULL);
    CHECK(strncmp(request, "POST /other HTTP/1.1\r\n", 22) == 0);
    CHECK(has_line(request, "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek"));
    CHECK(!strcasestr(request, "authorization"));
    CHECK(!strcasestr(request, "webhook-signature"));
    close_stage(&stage);
}

TEST(follows_only_so_many_redirects)
{
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .max_redirects = 3});
    struct delivery d = redirected(&stage, 302, "/canned");
    CHECK_EQ(d.attempt.result, FL_FAILED);
    CHECK(strstr(d.attempt.reason, "more than 3 times"));
    CHECK_EQ(receiver_requests(stage.receiver), 4);
    close_stage(&stage);
}

TEST(follows_no_redirect_to_what_may_not_be_called)
{
    static const char *const places[] = {"ftp://127.0.0.1/", "file:///etc/passwd", "gopher://x", "javascript:alert(1)",
                                         "http://user:secret@127.0.0.1/"};
    struct stage stage;
    open_stage(&stage);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct delivery d = redirected(&stage, 307, places[i]);
        CHECK_EQ(d.attempt.result, FL_DEAD);
        CHECK(!strstr(d.attempt.reason, "secret"));
        CHECK_EQ(receiver_requests(stage.receiver), i + 1);
    }
    close_stage(&stage);
}

/* --- Targets ------------------------------------------------------------------------------------------------------ */

static bool is_public(const char *text)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return webhook_address_is_public((struct sockaddr *)&four);
    CHECK(inet_pton(AF_INET6, text, &six.sin6_addr) == 1);
    return webhook_address_is_public((struct sockaddr *)&six);
}

TEST(tells_public_addresses_from_others)
{
    static const char *const others[] = {"0.0.0.0",
                                         "0.1.2.3",
                                         "10.0.0.1",
                                         "10.255.255.255",
                                         "100.64.0.0",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.1.2",
                                         "169.254.169.254",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.0.0.8",
                                         "192.0.2.1",
                                         "192.168.0.1",
                                         "198.18.0.1",
                                         "198.19.255.255",
                                         "198.51.100.7",
                                         "203.0.113.9",
                                         "224.0.0.1",
                                         "239.1.1.1",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "::7f00:1",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.0.0.1",
                                         "64:ff9b::a00:1",
                                         "64:ff9b:1::1",
                                         "100::1",
                                         "2001::1",
                                         "2001:db8::1",
                                         "2002:7f00:1::",
                                         "2002:c0a8:1::1",
                                         "fc00::1",
                                         "fdff::1",
                                         "fe80::1",
                                         "febf::1",
                                         "fec0::1",
                                         "ff02::1",
                                         "3fff::1"};
    static const char *const publics[] = {"1.1.1.1",          "9.255.255.255",   "11.0.0.0",        "100.63.255.255",
                                          "100.128.0.0",      "126.1.1.1",       "128.0.0.1",       "169.253.1.1",
                                          "172.15.255.255",   "172.32.0.0",      "192.167.1.1",     "198.17.1.1",
                                          "198.20.0.0",       "223.255.255.255", "2606:4700::1111", "::ffff:1.1.1.1",
                                          "64:ff9b::101:101", "2002:101:101::1", "2001:200::1",     "2a00::1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!is_public(others[i]));
    for (size_t i = 0; i < sizeof publics / sizeof *publics; i++)
        CHECK(is_public(publics[i]));
    CHECK(!webhook_address_is_public(&(struct sockaddr){.sa_family = AF_UNIX}));
}

TEST(checks_urls)
{
    static const char *const good[] = {
        "http://example.com", "https://example.com:8443/a?b#c", "HTTP://EXAMPLE.com/",
        "http://1.1.1.1/",    "http://[2606:4700::1111]:80/x",  "http://a_b.example?x=y"};
    static const char *const bad[] = {"",
                                      "example.com",
                                      "//example.com",
                                      "ftp://example.com",
                                      "http://",
                                      "http:///x",
                                      "http://:80/",
                                      "http://user@example.com/",
                                      "http://u:p@example.com/",
                                      "http://example.com:0/",
                                      "http://example.com:65536/",
                                      "http://example.com:/",
                                      "http://example.com:8o/",
                                      "http://ex ample.com/",
                                      "http://example.com/a b",
                                      "http://example.com/\xc3\xa4",
                                      "http://exa%6dple.com/",
                                      "http://[::1",
                                      "http://[x]/",
                                      "http://[fe80::1%25eth0]/",
                                      "http://a\\b/",
                                      "http://a/\r\nHost: b",
                                      "file:///etc/x"};
    static const char *const private[] = {"http://127.0.0.1/",
                                          "http://127.1/",
                                          "http://2130706433/",
                                          "http://0x7f.1/",
                                          "http://[::1]:80/",
                                          "http://[::ffff:10.0.0.1]/",
                                          "http://localhost:8080/",
                                          "http://x.localhost./",
                                          "https://169.254.169.254/latest",
                                          "http://0/"};
    char message[128];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(webhook_check_url(bytes(good[i]), false, message, sizeof message) == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(webhook_check_url(bytes(bad[i]), true, message, sizeof message) == FL_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof private / sizeof *private; i++) {
        CHECK(webhook_check_url(bytes(private[i]), true, message, sizeof message) == 0);
        CHECK(webhook_check_url(bytes(private[i]), false, message, sizeof message) == FL_INVALID_ARGUMENT);
        CHECK(strstr(message, "is not on the public Internet; start the server with --allow-private-targets"));
    }
}

/* Whatever the URL looks like, what counts is the address that it leads to. */
TEST(calls_nothing_private_unless_allowed)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]"};
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){0});
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        struct delivery d;
        prepare(&d, &stage, "/");
        snprintf(d.url, sizeof d.url, "http://%s:%u/", hosts[i], receiver_port(stage.receiver));
        d.attempt.target = webhook_target(bytes(d.url));
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, FL_DEAD);
        CHECK(strstr(d.attempt.reason, "not on the public Internet"));
    }
    CHECK_EQ(receiver_connections(stage.receiver), 0);
    close_stage(&stage);
}

/* What may be called as our own opens no way to the rest of the host. */
TEST(a_call_of_our_own_leaves_no_connection_for_others)
{
    static char own[256];
    static _Atomic(const char *) list[2];
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.own = list});
    for (int i = 0; i < 6; i++) {
        struct delivery d;
        prepare(&d, &stage, i % 2 ? "/other" : "/echo");
        if (i == 0) {
            snprintf(own, sizeof own, "%s", d.url);
            list[0] = own;
        }
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, i % 2 ? FL_DEAD : FL_DONE);
    }
    CHECK_EQ(receiver_connections(stage.receiver), 3);
    close_stage(&stage);
}

TEST(calls_nothing_but_http)
{
    struct stage stage;
    open_stage(&stage);
    struct delivery d;
    prepare(&d, &stage, "/");
    d.attempt.target = webhook_target(bytes("file:///etc/passwd"));
    submit(&d);
    run(&stage);
    CHECK_EQ(d.attempt.result, FL_DEAD);
    CHECK(d.attempt.reason[0]);
    close_stage(&stage);
}

/* --- Fairness ----------------------------------------------------------------------------------------------------- */

/* Runs until `count` requests have come, with what is under way then. */
static void run_until(struct stage *stage, receiver *receiver, unsigned count)
{
    while (receiver_requests(receiver) < count)
        fl_loop_run_once(stage->loop, false);
}

static void prepare_many(struct delivery *all, unsigned count, struct stage *stage, receiver *to, const char *path)
{
    for (unsigned i = 0; i < count; i++) {
        prepare(&all[i], stage, path);
        snprintf(all[i].url, sizeof all[i].url, "http://127.0.0.1:%u%s", receiver_port(to), path);
        all[i].attempt.target = webhook_target(bytes(all[i].url));
    }
}

TEST(gives_a_host_no_more_than_its_share)
{
    enum { HANGING = 40, GOOD = 30 };
    static struct delivery hanging[HANGING], good[GOOD];
    struct webhooks_stats stats;
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .max_under_way = 16, .max_per_host = 12});
    receiver *hangs = receiver_new();
    prepare_many(hanging, HANGING, &stage, hangs, "/hang");
    prepare_many(good, GOOD, &stage, stage.receiver, "/");
    for (unsigned i = 0; i < HANGING; i++)
        submit(&hanging[i]);
    run_until(&stage, hangs, 8); /* half of what is free, although more are allowed */
    for (int i = 0; i < 100; i++)
        fl_loop_run_once(stage.loop, false);
    webhooks_get_stats(stage.hooks, &stats);
    CHECK_EQ(stats.under_way, 8);
    CHECK_EQ(stats.waiting, HANGING - 8);
    for (unsigned i = 0; i < GOOD; i++)
        submit(&good[i]);
    while (stage.left > HANGING)
        fl_loop_run_once(stage.loop, true);
    for (unsigned i = 0; i < GOOD; i++)
        CHECK_EQ(good[i].attempt.result, FL_DONE);
    CHECK_EQ(receiver_requests(hangs), 8);
    close_stage(&stage);
    for (unsigned i = 0; i < HANGING; i++)
        CHECK_EQ(hanging[i].attempt.result, i < 8 ? FL_FAILED : FL_LATER);
    receiver_free(hangs);
}

TEST(keeps_to_the_limit_of_a_host)
{
    enum { COUNT = 20 };
    static struct delivery all[COUNT];
    struct webhooks_stats stats = {0};
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .max_per_host = 3});
    prepare_many(all, COUNT, &stage, stage.receiver, "/hang");
    for (unsigned i = 0; i < COUNT; i++) {
        all[i].attempt.timeout_us = 5000;
        submit(&all[i]);
    }
    while (stage.left > 0) {
        fl_loop_run_once(stage.loop, true);
        webhooks_get_stats(stage.hooks, &stats);
        CHECK(stats.under_way <= 3);
    }
    CHECK_EQ(stats.failed, COUNT);
    close_stage(&stage);
}

TEST(what_waits_can_be_cancelled)
{
    enum { COUNT = 5 };
    static struct delivery all[COUNT];
    struct webhooks_stats stats;
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .max_per_host = 1});
    prepare_many(all, COUNT, &stage, stage.receiver, "/hang");
    for (unsigned i = 0; i < COUNT; i++)
        submit(&all[i]);
    run_until(&stage, stage.receiver, 1);
    CHECK(!webhooks_cancel(stage.hooks, &all[0].attempt)); /* it has begun */
    CHECK(webhooks_cancel(stage.hooks, &all[4].attempt));
    CHECK(webhooks_cancel(stage.hooks, &all[1].attempt));
    CHECK(webhooks_cancel(stage.hooks, &all[2].attempt));
    CHECK(!webhooks_cancel(stage.hooks, &all[2].attempt));
    webhooks_get_stats(stage.hooks, &stats);
    CHECK_EQ(stats.waiting, 1);
    CHECK(webhooks_cancel(stage.hooks, &all[3].attempt));
    webhooks_get_stats(stage.hooks, &stats);
    CHECK_EQ(stats.waiting, 0);
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_EQ(all[i].done, 0);
    close_stage(&stage);
}

static bool may_not(const webhook_attempt *attempt)
{
    return ((const struct delivery *)attempt->arg)->attempt.number != 1;
}

TEST(asks_right_before_it_begins)
{
    static struct delivery all[3];
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .max_per_host = 1});
    prepare_many(all, 3, &stage, stage.receiver, "/");
    for (unsigned i = 0; i < 3; i++) {
        all[i].attempt.number = i;
        all[i].attempt.may_begin = may_not;
        submit(&all[i]);
    }
    run(&stage);
    CHECK_EQ(all[0].attempt.result, FL_DONE);
    CHECK_EQ(all[1].attempt.result, FL_LATER);
    CHECK_EQ(all[1].attempt.duration_ns, 0);
    CHECK_EQ(all[2].attempt.result, FL_DONE);
    CHECK_EQ(receiver_requests(stage.receiver), 2);
    close_stage(&stage);
}

static unsigned served[3];

static void count_served(webhook_attempt *attempt)
{
    struct delivery *d = attempt->arg;
    served[attempt->number]++;
    delivered(&d->attempt);
    CHECK(served[0] - served[1] <= 1 && served[1] - served[2] <= 1 && served[0] - served[2] <= 1);
}

TEST(serves_hosts_in_turns)
{
    enum { EACH = 10 };
    static struct delivery all[3][EACH];
    struct stage stage;
    open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .max_under_way = 1});
    receiver *others[2] = {receiver_new(), receiver_new()};
    for (unsigned i = 0; i < 3; i++) {
        prepare_many(all[i], EACH, &stage, i ? others[i - 1] : stage.receiver, "/");
        for (unsigned j = 0; j < EACH; j++) {
            all[i][j].attempt.number = i;
            all[i][j].attempt.done = count_served;
            submit(&all[i][j]);
        }
    }
    run(&stage);
    CHECK_EQ(served[2], EACH);
    close_stage(&stage);
    receiver_free(others[0]);
    receiver_free(others[1]);
}

/* --- The two ways ------------------------------------------------------------------------------------------------- */

TEST(finds_a_host_again_that_was_away)
{
    struct stage stage;
    open_stage(&stage);
    receiver *other = receiver_new();
    unsigned port = receiver_port(other);
    struct delivery d;
    for (int i = 0; i < 6; i++) {
        if (i == 2) {
            receiver_free(other);
            other = NULL;
        } else if (i == 4) {
            other = receiver_new_at(port);
        }
        prepare(&d, &stage, "/");
        snprintf(d.url, sizeof d.url, "http://127.0.0.1:%u/", port);
        d.attempt.target = webhook_target(bytes(d.url));
        submit(&d);
        run(&stage);
        CHECK_EQ(d.attempt.result, i == 2 || i == 3 ? FL_FAILED : FL_DONE);
    }
    close_stage(&stage);
    receiver_free(other);
}

/* How many connections are made for calls with a pause after each. */
static unsigned connections_for(unsigned calls, uint64_t pause_ns)
{
    fl_virtual_clock time; /* moved by hand */
    struct stage stage;
    fl_virtual_clock_init(&time, 1000000000);
    open_stage_on(&stage, &time.clock, (struct webhooks_config){.allow_private = true});
    for (unsigned i = 0; i < calls; i++) {
        struct delivery d;
        prepare(&d, &stage, "/");
        submit(&d);
        while (d.done == 0)
            fl_loop_run_once(stage.loop, false);
        CHECK_EQ(d.attempt.result, FL_DONE);
        time.time_ns += pause_ns;
    }
    unsigned count = receiver_connections(stage.receiver);
    close_stage(&stage);
    return count;
}

TEST(keeps_connections_and_learns_addresses_anew)
{
    CHECK_EQ(connections_for(1, 0), 1);                    /* libcurl's */
    CHECK_EQ(connections_for(50, 1000000), 2);             /* and one that is kept */
    CHECK_EQ(connections_for(10, 10 * 1000000000ull), 3);  /* after a minute, one to look at the address again */
    CHECK_EQ(connections_for(3, 1000 * 1000000000ull), 3); /* a host that was forgotten begins anew */
}

TEST(speaks_tls_with_those_it_trusts)
{
    char ca_file[] = "/tmp/foliot-test-ca-XXXXXX", url[64];
    int fd = mkstemp(ca_file);
    CHECK(fd >= 0 && close(fd) == 0);
    receiver *secure = receiver_new_tls(ca_file);
    snprintf(url, sizeof url, "https://127.0.0.1:%u/secure", receiver_port(secure));
    for (int trusts = 0; trusts < 2; trusts++) {
        struct stage stage;
        open_stage_with(&stage, (struct webhooks_config){.allow_private = true, .ca_file = trusts ? ca_file : NULL});
        for (int i = 0; i < 3; i++) {
            struct delivery d;
            prepare(&d, &stage, "/");
            d.attempt.target = webhook_target(bytes(url));
            submit(&d);
            run(&stage);
            CHECK_EQ(d.attempt.result, trusts ? FL_DONE : FL_FAILED);
            CHECK(trusts || strstr(d.attempt.reason, "certificate"));
        }
        close_stage(&stage);
        CHECK_EQ(receiver_requests(secure), trusts ? 3 : 0);
    }
    CHECK_EQ(receiver_connections(secure), 4); /* three that were refused, one that was kept */
    CHECK(strncmp(receiver_last(secure, NULL), "POST /secure HTTP/1.1\r\n", 23) == 0);
    receiver_free(secure);
    unlink(ca_file);
}

/* --- Stopping ----------------------------------------------------------------------------------------------------- */

TEST(lets_calls_end_when_it_stops)
{
    struct stage stage;
    bool gone = false;
    struct delivery slow, late;
    open_stage(&stage);
    receiver_set(stage.receiver, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    prepare(&slow, &stage, "/drip");
    prepare(&late, &stage, "/");
    submit(&slow);
    run_until(&stage, stage.receiver, 1);
    webhooks_stop(stage.hooks, 60 * (uint64_t)second_us, stopped, &gone);
    submit(&late);
    while (!gone)
        fl_loop_run_once(stage.loop, true);
    CHECK_EQ(slow.attempt.result, FL_DONE);
    CHECK_EQ(late.attempt.result, FL_LATER);
    CHECK(late.attempt.at_us > stage.wall.now_us);
    CHECK_EQ(receiver_requests(stage.receiver), 1);
    stage.hooks = NULL;
    close_stage(&stage);
}

TEST(stops_with_nothing_to_do)
{
    struct stage stage;
    open_stage(&stage);
    close_stage(&stage);
}
