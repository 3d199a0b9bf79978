/* SPDX-License-Identifier: MIT */
/* Runs the tests that registered themselves and reports them as TAP (version 13, plan first). */

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static struct test *first, **last = &first;
static unsigned number;
static struct test *running;
static const char *skip_reason;

void test_register(struct test *test)
{
    *last = test;
    last = &test->next;
}

_Noreturn void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    printf("not ok %u - %s\n# %s:%d: ", number, running ? running->name : "?", file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\nBail out! %s\n", running ? running->name : "?");
    fflush(stdout);
    abort();
}

void test_skip(const char *why)
{
    skip_reason = why;
}

static bool selected(const struct test *test, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(test->name, argv[i]))
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    unsigned planned = 0;
    bool list = argc == 2 && strcmp(argv[1], "-l") == 0;
    for (const struct test *t = first; t; t = t->next) {
        if (list)
            puts(t->name);
        planned += selected(t, argc, argv);
    }
    if (list)
        return 0;
    printf("1..%u\n", planned);
    for (running = first; running; running = running->next) {
        if (!selected(running, argc, argv))
            continue;
        number++;
        skip_reason = NULL;
        running->run();
        if (skip_reason)
            printf("ok %u - %s # SKIP %s\n", number, running->name, skip_reason);
        else
            printf("ok %u - %s\n", number, running->name);
        fflush(stdout);
    }
    return planned == 0;
}
