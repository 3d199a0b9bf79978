/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_TEST_H
#define FOLIOT_TESTS_TEST_H

/* The test frame: one program a file, one function a property, TAP on standard output.
 *
 *     TEST(an_empty_wheel_has_no_next_deadline)
 *     {
 *         ...
 *         CHECK(!fl_wheel_next_deadline(w, &ns));
 *         CHECK_EQ(fl_wheel_count(w), 0);
 *     }
 *
 * A failed check prints where and why and ends the program: what comes after it could not be trusted. The harness
 * counts what did not run as failed. Arguments select tests by a part of their name; `-l` lists them.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
};

void test_register(struct test *test);
_Noreturn void test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void test_skip(const char *why); /* then return from the test */

#define TEST(id)                                                 \
    static void test_##id(void);                                 \
    __attribute__((constructor)) static void register_##id(void) \
    {                                                            \
        static struct test test = {#id, test_##id, NULL};        \
        test_register(&test);                                    \
    }                                                            \
    static void test_##id(void)

#define CHECK(condition)                                     \
    do {                                                     \
        if (!(condition))                                    \
            test_fail(__FILE__, __LINE__, "%s", #condition); \
    } while (0)

#define CHECK_EQ(actual, expected)                                                                                  \
    do {                                                                                                            \
        int64_t actual_ = (int64_t)(actual), expected_ = (int64_t)(expected);                                       \
        if (actual_ != expected_)                                                                                   \
            test_fail(__FILE__, __LINE__, "%s is %" PRId64 ", expected %s = %" PRId64, #actual, actual_, #expected, \
                      expected_);                                                                                   \
    } while (0)

#endif
