/* SPDX-License-Identifier: MIT */
/* First contexts, the switch where there is none in assembly, and the notes for sanitizers: see context.h. */

#include "coro/context.h"

#include <string.h>

#if defined(FL__CONTEXT_ASSEMBLY)

/* In context_*.S: takes the entry and its argument from the registers that fl__coro_context_make() has filled. */
void fl__coro_context_start(void);

#if defined(__x86_64__)
enum { WORDS = 7, ENTRY = 3, ARG = 4, RESUME = 6 }; /* r15 r14 r13 r12 rbx rbp, the address to go on at */
#else
enum { WORDS = 20, ENTRY = 0, ARG = 1, RESUME = 11 }; /* x19 … x28, x29, x30, d8 … d15 */
#endif

void *fl__coro_context_make(void *bottom, void *top, void (*entry)(void *arg), void *arg)
{
    (void)bottom;
    uintptr_t *frame = (uintptr_t *)top - WORDS;
    memset(frame, 0, WORDS * sizeof(*frame));
    frame[ENTRY] = (uintptr_t)entry;
    frame[ARG] = (uintptr_t)arg;
    frame[RESUME] = (uintptr_t)fl__coro_context_start;
    return frame;
}

#else

#include <stdlib.h>
#include <ucontext.h>

/* The context is kept at the top of its own stack, or in the frame of the switch that left it. */
struct context_entry {
    ucontext_t context;
    void (*entry)(void *arg);
    void *arg;
};

/* makecontext() passes ints. */
static void start(unsigned high, unsigned low)
{
    struct context_entry *first = (struct context_entry *)((uintptr_t)high << 16 << 16 | low);
    first->entry(first->arg);
}

void *fl__coro_context_make(void *bottom, void *top, void (*entry)(void *arg), void *arg)
{
    struct context_entry *first = (struct context_entry *)(((uintptr_t)top - sizeof(*first)) & ~(uintptr_t)63);
    getcontext(&first->context);
    first->context.uc_stack.ss_sp = bottom;
    first->context.uc_stack.ss_size = (size_t)((char *)first - (char *)bottom);
    first->context.uc_link = NULL;
    first->entry = entry;
    first->arg = arg;
    makecontext(&first->context, (void (*)(void))start, 2, (unsigned)((uintptr_t)first >> 16 >> 16),
                (unsigned)(uintptr_t)first);
    return &first->context;
}

void fl__coro_context_switch(void **save, void *to)
{
    ucontext_t here;
    /* cppcheck-suppress autoVariables */
    *save = &here; /* the frame lives as long as the context is suspended */
    swapcontext(&here, to);
}

#endif

/* --- Sanitizers */

#if defined(FL__ASAN)

#include <sanitizer/asan_interface.h>

void fl__coro_fiber_make(struct fl__coro_fiber *fiber, const void *bottom, size_t size)
{
    *fiber = (struct fl__coro_fiber){.bottom = bottom, .size = size};
}

/* The bounds come with the first switch away from it. */
void fl__coro_fiber_of_thread(struct fl__coro_fiber *fiber)
{
    *fiber = (struct fl__coro_fiber){0};
}

/* Frames that never returned have left their marks. */
void fl__coro_fiber_destroy(struct fl__coro_fiber *fiber)
{
    __asan_unpoison_memory_region(fiber->bottom, fiber->size);
}

void fl__coro_fiber_leave(struct fl__coro_fiber *from, const struct fl__coro_fiber *to)
{
    __sanitizer_start_switch_fiber(from ? &from->fake_stack : NULL, to->bottom, to->size);
}

void fl__coro_fiber_arrive(struct fl__coro_fiber *self, struct fl__coro_fiber *from)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
    from->bottom = bottom;
    from->size = size;
}

#elif defined(FL__TSAN)

#include <sanitizer/tsan_interface.h>

void fl__coro_fiber_make(struct fl__coro_fiber *fiber, const void *bottom, size_t size)
{
    (void)bottom;
    (void)size;
    fiber->fiber = __tsan_create_fiber(0);
}

void fl__coro_fiber_of_thread(struct fl__coro_fiber *fiber)
{
    fiber->fiber = __tsan_get_current_fiber();
}

void fl__coro_fiber_destroy(struct fl__coro_fiber *fiber)
{
    __tsan_destroy_fiber(fiber->fiber);
}

void fl__coro_fiber_leave(struct fl__coro_fiber *from, const struct fl__coro_fiber *to)
{
    (void)from;
    __tsan_switch_to_fiber(to->fiber, 0);
}

void fl__coro_fiber_arrive(struct fl__coro_fiber *self, struct fl__coro_fiber *from)
{
    (void)self;
    (void)from;
}

#endif
