/* SPDX-License-Identifier: MIT */
/* The HTTP server when memory runs out: at every allocation in turn, once and for good. The linker sends the allocations
 * of everything but the C library and OpenSSL through here. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "test.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker wants these names */
#pragma GCC visibility push(default)
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
#pragma GCC visibility pop

static long left = -1; /* allocations until one fails; negative: none does */
static bool for_good;
static int failed;

static bool fails(void)
{
    if (left < 0)
        return false;
    if (left > 0) {
        left--;
        return false;
    }
    if (!for_good)
        left = -1;
    failed++;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

static const char *const requests[] = {
    "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST /stream/all HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET /keep HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
};

enum { REQUESTS = sizeof(requests) / sizeof(requests[0]) };

/* What comes back does not matter, as long as nothing breaks. */
static void try_all(struct client **clients)
{
    for (int i = 0; i < REQUESTS; i++) {
        client_say(clients[i], requests[i]);
        for (int turns = 0; turns < 5; turns++)
            service_turn();
        if (service.kept && i == 4)
            http_answer(service.kept, 204, NULL, NULL, (fl_bytes){0});
        service.kept = NULL;
        for (int turns = 0; turns < 5; turns++)
            service_turn();
        client_receive(clients[i]);
    }
}

static bool run(long at, bool ever)
{
    struct client *clients[REQUESTS + 1];
    service_start(NULL);
    service.answer_gone = true;
    for (int i = 0; i <= REQUESTS; i++)
        clients[i] = client_new();
    failed = 0;
    left = at;
    for_good = ever;
    try_all(clients);
    left = -1;
    service_pass(2000000000);
    client_free(clients[REQUESTS]);
    clients[REQUESTS] = client_new();
    client_say(clients[REQUESTS], "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(client_answer(clients[REQUESTS]), 200); /* it has got over it */
    for (int i = 0; i <= REQUESTS; i++)
        client_free(clients[i]);
    service_end();
    return failed > 0;
}

TEST(every_allocation_may_fail_once)
{
    long at = 0;
    while (run(at, false))
        at++;
    CHECK(at > 10);
}

TEST(memory_may_run_out_for_good_at_any_moment)
{
    long at = 0;
    while (run(at, true))
        at++;
    CHECK(at > 10);
}

TEST(a_server_that_cannot_be_made_says_so)
{
    fl_loop *loop;
    http_server *server = NULL;
    CHECK_EQ(fl_loop_new(NULL, &loop), 0);
    struct http_config config = {.loop = loop};
    int r = FL_NO_MEMORY;
    for (long at = 0; r < 0; at++) {
        left = at;
        r = http_server_new(&config, &server);
        left = -1;
        CHECK(r == 0 || (r == FL_NO_MEMORY && !server));
    }
    http_server_free(server);
    fl_loop_free(loop);
}
