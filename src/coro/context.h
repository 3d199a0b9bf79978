/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_CONTEXT_H
#define FOLIOT_CORO_CONTEXT_H

/* The context switch.
 *
 * A context that does not run is a pointer into its own stack: from there upwards lie the registers that a call must
 * preserve, and the address to go on at. Switching pushes these, stores the stack pointer, takes the other one and pops.
 * It ends in an indirect jump: a return would be predicted to go back to where it was called from, and that is never
 * where it goes.
 * The signal mask and the floating-point environment are not touched: a thread's contexts share them.
 *
 * Because nothing of a context is outside its stack, the bytes from the pointer to the stack's top are all there is of
 * it. They may be copied away, and back to the same addresses, while it does not run. That holds for the two switches
 * in assembly (FL__CONTEXT_IS_BYTES); elsewhere ucontext does the work and a context has to stay where it is.
 *
 * AddressSanitizer and ThreadSanitizer keep notes about every stack and must be told of each switch; they do not
 * follow copied bytes. `struct fl__coro_fiber` holds their side of a context and is empty in other builds.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sanitizer.h"

/* FL__CONTEXT_PORTABLE: use ucontext here too, for tests of it. */
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(__ILP32__) && !defined(FL__CONTEXT_PORTABLE)
#define FL__CONTEXT_ASSEMBLY 1
#endif

#if defined(FL__CONTEXT_ASSEMBLY) && !defined(FL__ASAN) && !defined(FL__TSAN)
#define FL__CONTEXT_IS_BYTES 1
#endif

/* Makes a context that calls entry(arg) on the stack whose highest address is `top`, aligned to 16. `entry` must not
 * return. Returns the context. `bottom` is the stack's lowest address. */
void *fl__coro_context_make(void *bottom, void *top, void (*entry)(void *arg), void *arg);

/* Suspends the running context into *save and goes on with `to`. Returns when something switches to *save. */
void fl__coro_context_switch(void **save, void *to);

/* What the sanitizers know of a context. */
struct fl__coro_fiber {
#if defined(FL__ASAN)
    void *fake_stack;
    const void *bottom;
    size_t size;
#elif defined(FL__TSAN)
    void *fiber;
#else
    char nothing[0];
#endif
};

#if defined(FL__ASAN) || defined(FL__TSAN)

/* A fiber for the stack [bottom, bottom + size); and one for the thread's own stack, which is not to be destroyed. */
void fl__coro_fiber_make(struct fl__coro_fiber *fiber, const void *bottom, size_t size);
void fl__coro_fiber_of_thread(struct fl__coro_fiber *fiber);
void fl__coro_fiber_destroy(struct fl__coro_fiber *fiber);

/* To be called right before and right after fl__coro_context_switch(). `from` is NULL if its context ends here. */
void fl__coro_fiber_leave(struct fl__coro_fiber *from, const struct fl__coro_fiber *to);
void fl__coro_fiber_arrive(struct fl__coro_fiber *self, struct fl__coro_fiber *from);

#else

static inline void fl__coro_fiber_make(struct fl__coro_fiber *fiber, const void *bottom, size_t size)
{
    (void)fiber, (void)bottom, (void)size;
}

static inline void fl__coro_fiber_of_thread(struct fl__coro_fiber *fiber)
{
    (void)fiber;
}

static inline void fl__coro_fiber_destroy(struct fl__coro_fiber *fiber)
{
    (void)fiber;
}

static inline void fl__coro_fiber_leave(struct fl__coro_fiber *from, const struct fl__coro_fiber *to)
{
    (void)from, (void)to;
}

static inline void fl__coro_fiber_arrive(struct fl__coro_fiber *self, struct fl__coro_fiber *from)
{
    (void)self, (void)from;
}

#endif
#endif
