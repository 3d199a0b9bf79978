/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_STACK_H
#define FOLIOT_CORO_STACK_H

/* Where coroutines run: stacks with a guard below, in slabs.
 *
 * A slab is one mapping that holds as many stacks of one size as fit, each above a guard that faults when it is touched.
 * The guards are marks in the page table where the kernel knows them (MADV_GUARD_INSTALL, Linux 6.13). Elsewhere they
 * are mprotect(), which splits the mapping: the kernel's limit on mappings then allows about 32,000 stacks. Pages come
 * to a stack when they are touched, and go when the stack is given back, except for a few stacks that are kept warm.
 *
 * A pool belongs to one thread at a time.
 */

#include <stddef.h>
#include <stdint.h>

#include "coro/context.h"
#include "coro/valgrind.h"

struct fl_coro;
struct slab;

struct fl__coro_stack {
    char *guard, *bottom, *top; /* [guard, bottom) faults, [bottom, top) is the stack */
    struct fl_coro *resident;   /* whose bytes are in place: see sched.c */
    uint32_t tenants;           /* coroutines that have begun here and not ended */
    bool taken;
    bool warm;         /* may have pages though it is free */
    unsigned valgrind; /* its number there */
    struct slab *slab;
    struct fl__coro_stack *next_free;
    struct fl__coro_fiber fiber;
};

enum {
    STACK_MIN_LOG2 = 14, /* 16 KiB */
    STACK_MAX_LOG2 = 30, /* 1 GiB */
    STACK_CLASSES = STACK_MAX_LOG2 - STACK_MIN_LOG2 + 1,
};

struct fl__coro_stacks {
    struct slab *open[STACK_CLASSES]; /* slabs that have a free stack */
    struct slab *slabs;               /* all */
    uint32_t warm;
    bool on_valgrind;
};

static inline size_t stack_size(const struct fl__coro_stack *stack)
{
    return (size_t)(stack->top - stack->bottom);
}

/* The bytes from `from` to the top are about to be written. */
static inline void stack_will_be_written(const struct fl__coro_stacks *pool, const struct fl__coro_stack *stack,
                                         const void *from)
{
    if (__builtin_expect(pool->on_valgrind, 0))
        fl__coro_valgrind_will_write(from, (size_t)(stack->top - (const char *)from));
}

void fl__coro_stacks_init(struct fl__coro_stacks *pool);

/* Unmaps every slab, whether stacks on it are in use or not. */
void fl__coro_stacks_destroy(struct fl__coro_stacks *pool);

/* Takes a stack of at least `size` bytes; NULL if there is no memory, or `size` is more than 1 GiB. */
struct fl__coro_stack *fl__coro_stacks_take(struct fl__coro_stacks *pool, size_t size);
void fl__coro_stacks_give(struct fl__coro_stacks *pool, struct fl__coro_stack *stack);

#endif
