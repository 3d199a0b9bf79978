/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_ASSERT_H
#define FOLIOT_BASE_ASSERT_H

/* Assertions: what a function relies on, where its types do not make that obvious.
 *
 *     fl__assert(front <= limit);               always on: one comparison of values that are at hand anyway
 *     fl__assert_debug(node_check(node) == 0);  debug builds and builds with sanitizers: anything that takes longer
 *
 * A failed assertion prints file, line and expression and ends the process with SIGABRT. A program that goes on in a state
 * that should not exist damages what it has stored; a program that has ended is started again and reads its store. The
 * expression of an assertion has no effect: without NDEBUG both kinds evaluate it, with NDEBUG only the first. */

#include "base/alloc.h" /* FL__SHARED */

FL__SHARED void fl__assert_failed(const char *file, int line, const char *expression) __attribute__((noreturn, cold));

#define fl__assert(expression) \
    (__builtin_expect(!(expression), 0) ? fl__assert_failed(__FILE__, __LINE__, #expression) : (void)0)

#ifdef NDEBUG
#define fl__assert_debug(expression) ((void)sizeof(!(expression))) /* compiled, not evaluated */
#else
#define fl__assert_debug(expression) fl__assert(expression)
#endif

#endif
