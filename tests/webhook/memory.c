/* SPDX-License-Identifier: MIT */
/* Webhooks when memory runs out: every allocation of the module and of the loop fails once, in turn. Each call ends all the
 * same, exactly once, and afterwards everything goes on. */

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "receiver.h"
#include "webhook/webhook.h"
#include "test.h"

/* --- Memory that fails, on the thread of the test alone (the linker leads here) ----------------------------------- */

static _Thread_local unsigned countdown; /* the allocation that makes it 0 fails */
static _Thread_local bool failed;

static bool fails(void)
{
    if (countdown == 0 || --countdown > 0)
        return false;
    failed = true;
    return true;
}

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl51-cpp): the linker's names */
#pragma GCC visibility push(default) /* a sanitizer's library asks for them too */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
#pragma GCC visibility pop

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails() ? NULL : __real_realloc(block, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : __real_strndup(text, size);
}

/* NOLINTEND(bugprone-reserved-identifier,cert-dcl51-cpp) */

/* --- Attempts -------------------------------------------------------------------------------------------------------- */

static unsigned left;

static void delivered(webhook_attempt *attempt)
{
    CHECK(attempt->arg);
    attempt->arg = NULL;
    left--;
}

static void run(fl_loop *loop)
{
    while (left > 0)
        CHECK(fl_loop_run_once(loop, true) == 0);
}

static enum fl_settle deliver(fl_loop *loop, webhooks *hooks, receiver *to, const char *path)
{
    static const fl_bytes secret = {"secret", 6};
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", receiver_port(to), path);
    webhook_attempt attempt = {.target = webhook_target((fl_bytes){url, strlen(url)}),
                               .body = {"{}", 2},
                               .content_type = "application/json",
                               .headers = {"a\0b\0", 4},
                               .id = "id",
                               .secrets = &secret,
                               .secret_count = 1,
                               .done = delivered,
                               .arg = loop};
    left++;
    webhooks_submit(hooks, &attempt);
    run(loop);
    CHECK(!attempt.arg);
    CHECK((attempt.result == FL_DONE) == (attempt.reason[0] == '\0') || strstr(attempt.reason, "memory"));
    return attempt.result;
}

static void stopped(fl_loop *loop, void *arg)
{
    (void)loop;
    (void)arg;
    left--;
}

TEST(ends_every_call_without_memory)
{
    signal(SIGPIPE, SIG_IGN);
    receiver *to = receiver_new();
    receiver_set(to, "HTTP/1.1 307 There\r\nLocation: /close\r\nContent-Length: 0\r\n\r\n");
    unsigned n = 0;
    do {
        fl_loop *loop;
        webhooks *hooks;
        CHECK(fl_loop_new(NULL, &loop) == 0);
        struct webhooks_config config = {.loop = loop, .allow_private = true, .max_redirects = 1};
        failed = false;
        countdown = ++n;
        int result = webhooks_new(&config, &hooks);
        CHECK(result == 0 || (result == FL_NO_MEMORY && failed));
        if (result == 0) {
            static const char *const paths[] = {"/", "/", "/canned", "/hang-not", "/early", "/"};
            for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
                enum fl_settle settled = deliver(loop, hooks, to, paths[i]);
                CHECK(settled == FL_DONE || settled == FL_FAILED);
                CHECK(settled == FL_FAILED || (i != 2 && i != 4));
            }
            countdown = 0;
            CHECK_EQ(deliver(loop, hooks, to, "/"), FL_DONE);
            left++;
            webhooks_stop(hooks, 0, stopped, NULL);
            run(loop);
        }
        countdown = 0;
        CHECK(!fl_loop_alive(loop));
        fl_loop_free(loop);
    } while (failed);
    printf("# %u allocations have failed in turn\n", n - 1);
    CHECK(n > 15);
    receiver_free(to);
}
