/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_EXCEPTIONS_H
#define FOLIOT_CORO_EXCEPTIONS_H

/* The exceptions of C++.
 *
 * Inside a catch block, and in a destructor that runs because something was thrown, the C++ runtime has the exceptions at
 * hand in a struct of the thread. A coroutine that waits there takes them along and leaves the struct empty, as the next
 * one expects it. All others find it empty and leave it so: they pay for one look.
 *
 * The struct is part of the ABI that GCC and Clang share (Itanium C++ ABI, 2.2.2). The function is a weak symbol: without
 * a C++ runtime in the program it is not there, and neither are exceptions.
 */

#include <stddef.h>

struct fl__coro_exceptions {
    void *caught;      /* of the catch blocks, innermost first */
    unsigned uncaught; /* thrown, and not caught yet */
#if defined(__ARM_EABI_UNWINDER__)
    void *propagating;
#endif
};

extern struct fl__coro_exceptions *fl__cxa_get_globals(void) __asm__("__cxa_get_globals") __attribute__((weak));

/* The calling thread's; NULL if there is no C++ here. */
static inline struct fl__coro_exceptions *fl__coro_thread_exceptions(void)
{
    return fl__cxa_get_globals ? fl__cxa_get_globals() : NULL;
}

#endif
