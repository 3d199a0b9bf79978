/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_VALGRIND_H
#define FOLIOT_CORO_VALGRIND_H

/* What Valgrind has to be told about stacks: where they are, or it takes a switch for a very large frame; and that bytes
 * below the stack pointer are about to be used, where a coroutine is copied back. Without its headers nothing is told;
 * outside of Valgrind it costs a look at a flag.
 */

#include <stdbool.h>
#include <stddef.h>

#if __has_include(<valgrind/memcheck.h>)

#include <valgrind/memcheck.h>

static inline bool fl__coro_on_valgrind(void)
{
    return RUNNING_ON_VALGRIND != 0;
}

/* Returns a number for fl__coro_valgrind_forget(). */
static inline unsigned fl__coro_valgrind_stack(const char *bottom, const char *top)
{
    return VALGRIND_STACK_REGISTER(bottom, top);
}

static inline void fl__coro_valgrind_forget(unsigned stack)
{
    VALGRIND_STACK_DEREGISTER(stack);
}

static inline void fl__coro_valgrind_will_write(const void *bytes, size_t size)
{
    VALGRIND_MAKE_MEM_UNDEFINED(bytes, size);
}

#else

static inline bool fl__coro_on_valgrind(void)
{
    return false;
}

static inline unsigned fl__coro_valgrind_stack(const char *bottom, const char *top)
{
    (void)bottom, (void)top;
    return 0;
}

static inline void fl__coro_valgrind_forget(unsigned stack)
{
    (void)stack;
}

static inline void fl__coro_valgrind_will_write(const void *bytes, size_t size)
{
    (void)bytes, (void)size;
}

#endif
#endif
