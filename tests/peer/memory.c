/* SPDX-License-Identifier: MIT */
/* Links between servers when memory runs out: at every allocation in turn, once and for good. The linker sends the
 * allocations of everything but the C library and OpenSSL through here. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"
#include "test.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker wants these names */
#pragma GCC visibility push(default)
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
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

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : __real_strndup(text, size);
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* --- Calls without memory of their own ---------------------------------------------------------------------------- */

enum { CALLS = 6 };

static struct peer_call calls[CALLS];
static int done[CALLS], results[CALLS];
static size_t sizes[CALLS];

static void on_done(struct peer_call *call, int result, fl_bytes answer)
{
    int i = (int)(call - calls);
    CHECK_EQ(done[i], 0);
    done[i]++;
    results[i] = result;
    sizes[i] = answer.size;
}

static void call(int i, uint8_t kind, size_t size)
{
    static char body[100000];
    calls[i] = (struct peer_call){.done = on_done};
    done[i] = 0;
    peer_call(pair.link, &calls[i], kind, (fl_bytes){body, size});
}

static void turns(int count)
{
    for (int i = 0; i < count; i++)
        pair_turn();
}

static int make_link(bool tls, const char *host)
{
    char address[64];
    snprintf(address, sizeof address, "%s:%u", host, pair.port);
    struct peer_link_config config = {
        .loop = pair.loop, .address = address, .self = "me:1", .secret = secret, .tls = tls};
    return peer_link_new(&config, &pair.link);
}

static void use(bool tls)
{
    int r = make_link(tls, "127.0.0.1");
    CHECK(r == 0 || r == FL_NO_MEMORY);
    for (int i = 0; i < CALLS; i++)
        done[i] = -1;
    if (r < 0)
        return;
    turns(30);
    call(0, ECHO, 10);
    call(1, ECHO, 100000);
    call(2, PIECES, 10);
    call(3, KEEP, 10);
    call(4, KEEP, 10);
    turns(10);
    if (done[4] == 0)
        peer_cancel(pair.link, &calls[4]);
    done[4] = -1;
    turns(3);
    pair_answer_kept(0);
    call(5, ECHO, 10);
    turns(10);
}

/* Afterwards everything that was called is done, and it works again. */
static bool run(long at, bool ever, bool tls)
{
    pair_start(tls);
    failed = 0;
    left = at;
    for_good = ever;
    use(tls);
    left = -1;
    if (!pair.link)
        CHECK_EQ(make_link(tls, "127.0.0.1"), 0);
    pair_pass(4000);
    pair_answer_kept(0);
    for (int i = 0; i < CALLS; i++)
        UNTIL(done[i] != 0);
    UNTIL((pair_pass(50), peer_link_up(pair.link)));
    call(0, ECHO, 70000);
    UNTIL(done[0]);
    CHECK_EQ(results[0], 0);
    CHECK_EQ(sizes[0], 70000);
    pair_end();
    return failed > 0;
}

TEST(every_allocation_may_fail_once)
{
    long at = 0;
    while (run(at, false, false))
        at++;
    CHECK(at > 20);
    at = 0;
    while (run(at, false, true))
        at++;
    CHECK(at > 20);
}

TEST(memory_may_run_out_for_good_at_any_moment)
{
    long at = 0;
    while (run(at, true, false))
        at++;
    CHECK(at > 20);
}

TEST(a_name_may_be_looked_up_without_memory)
{
    bool any = true;
    for (long at = 0; any; at++) {
        pair_start(false);
        failed = 0;
        left = at;
        for_good = false;
        if (make_link(false, "localhost") == 0)
            turns(20);
        left = -1;
        any = failed > 0;
        if (pair.link)
            UNTIL((pair_pass(50), peer_link_up(pair.link)));
        pair_end();
    }
}

TEST(sessions_that_cannot_be_made_say_so)
{
    peer_sessions *sessions = NULL;
    int r = FL_NO_MEMORY;
    pair_start(false);
    for (long at = 0; r < 0; at++) {
        left = at;
        r = peer_sessions_new(pair.loop, &pair.host, &sessions);
        left = -1;
        CHECK(r == 0 || (r == FL_NO_MEMORY && !sessions));
    }
    peer_sessions_free(sessions);
    pair_end();
}
