/* SPDX-License-Identifier: MIT */
/* Two coroutines and a pipe: one writes now and then, the other waits for it, but not for ever. */

#include <stdio.h>
#include <unistd.h>

#include <foliot/coro.h>

#define MS 1000000u

static void writer(void *arg)
{
    const int *fds = arg;
    for (int i = 0; i < 3; i++) {
        fl_sleep_ms(10);
        if (write(fds[1], "tick", 4) != 4)
            return;
    }
}

static void reader(void *arg)
{
    const int *fds = arg;
    char text[16];
    while (fl_coro_wait_fd(fds[0], FL_READ, 500 * MS) > 0) {
        ssize_t n = read(fds[0], text, sizeof(text));
        if (n <= 0)
            return;
        printf("%.*s\n", (int)n, text);
    }
    puts("nothing for half a second: that was all");
}

int main(void)
{
    static int fds[2]; /* not on the stack of a coroutine: both use it */
    fl_runtime *rt;
    fl_coro *coro;
    if (pipe(fds) < 0 || fl_runtime_new(NULL, &rt) < 0)
        return 1;
    fl_coro_options options = {.name = "reader"};
    if (fl_coro_spawn(rt, NULL, writer, fds, NULL) < 0 || fl_coro_spawn(rt, &options, reader, fds, &coro) < 0)
        return 1;
    fl_coro_join(coro);
    fl_coro_unref(coro);
    fl_runtime_free(rt);
    return 0;
}
