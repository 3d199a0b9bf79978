/* SPDX-License-Identifier: MIT */
/* Slabs of stacks: see stack.h.
 *
 * The descriptions of a slab's stacks are in memory of their own, so that making one touches no page of the slab. A slab
 * whose last stack comes back is unmapped, unless it is the only open one of its size: a program that goes back and
 * forth across the border would map and unmap at each step.
 */

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "coro/stack.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum {
    SLAB_SIZE = 1 << 24,
    GUARD_SIZE = 1 << 16, /* more than a page: a frame may be larger, and touch its far end first */
    WARM_MAX = 64,
};

struct slab {
    struct slab *next, *previous;           /* of all slabs */
    struct slab *next_open, *previous_open; /* of those that have a free stack */
    char *memory;
    size_t size;
    unsigned class;
    uint32_t count, used, guarded; /* stacks; those in use; those that have ever been, and have a guard */
    struct fl__coro_stack *free;   /* of the guarded ones */
    struct fl__coro_stack stacks[];
};

void fl__coro_stacks_init(struct fl__coro_stacks *pool)
{
    *pool = (struct fl__coro_stacks){.on_valgrind = fl__coro_on_valgrind()};
}

/* A page at least: a guard begins with one. */
static unsigned class_of(size_t size)
{
    unsigned log2 = STACK_MIN_LOG2;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    while (((size_t)1 << log2) < (size > page ? size : page))
        log2++;
    return log2 - STACK_MIN_LOG2;
}

/* --- Lists of slabs */

static void open_slab(struct fl__coro_stacks *pool, struct slab *slab)
{
    slab->previous_open = NULL;
    slab->next_open = pool->open[slab->class];
    if (slab->next_open)
        slab->next_open->previous_open = slab;
    pool->open[slab->class] = slab;
}

static void shut_slab(struct fl__coro_stacks *pool, struct slab *slab)
{
    if (slab->next_open)
        slab->next_open->previous_open = slab->previous_open;
    *(slab->previous_open ? &slab->previous_open->next_open : &pool->open[slab->class]) = slab->next_open;
}

static struct slab *map_slab(unsigned class)
{
    size_t stride = ((size_t)1 << (class + STACK_MIN_LOG2)) + (size_t)GUARD_SIZE;
    size_t size = SLAB_SIZE;
    while (size < stride)
        size *= 2;
    uint32_t count = (uint32_t)(size / stride);
    struct slab *slab = fl__alloc_zeroed(sizeof(*slab) + count * sizeof(slab->stacks[0]));
    char *memory = slab ? fl__map_unrooted(size) : NULL;
    if (!memory) {
        fl__release(slab);
        return NULL;
    }
    madvise(memory, size, MADV_NOHUGEPAGE); /* or the first touch of a stack would bring 2 MiB; best effort */
    slab->memory = memory;
    slab->size = size;
    slab->class = class;
    slab->count = count;
    return slab;
}

static struct slab *new_slab(struct fl__coro_stacks *pool, unsigned class)
{
    struct slab *slab = map_slab(class);
    if (!slab)
        return NULL;
    slab->next = pool->slabs;
    if (slab->next)
        slab->next->previous = slab;
    pool->slabs = slab;
    open_slab(pool, slab);
    return slab;
}

static void unmap_slab(const struct fl__coro_stacks *pool, struct slab *slab)
{
    for (uint32_t i = 0; i < slab->guarded; i++) {
        fl__root_remove(slab->stacks[i].bottom, stack_size(&slab->stacks[i]));
        if (pool->on_valgrind)
            fl__coro_valgrind_forget(slab->stacks[i].valgrind);
    }
    fl__unmap_unrooted(slab->memory, slab->size);
    fl__release(slab);
}

static void free_slab(struct fl__coro_stacks *pool, struct slab *slab)
{
    shut_slab(pool, slab);
    if (slab->next)
        slab->next->previous = slab->previous;
    *(slab->previous ? &slab->previous->next : &pool->slabs) = slab->next;
    for (struct fl__coro_stack *stack = slab->free; stack; stack = stack->next_free)
        pool->warm -= stack->warm;
    unmap_slab(pool, slab);
}

void fl__coro_stacks_destroy(struct fl__coro_stacks *pool)
{
    while (pool->slabs) {
        struct slab *slab = pool->slabs;
        pool->slabs = slab->next;
        for (uint32_t i = 0; i < slab->guarded; i++)
            if (slab->stacks[i].taken)
                fl__coro_fiber_destroy(&slab->stacks[i].fiber);
        unmap_slab(pool, slab);
    }
}

/* --- Stacks */

static bool install_guard(char *guard, size_t size)
{
    return madvise(guard, size, MADV_GUARD_INSTALL) == 0 || mprotect(guard, size, PROT_NONE) == 0;
}

/* Makes the next stack that has never been used. NULL if the kernel refuses the guard: without one there is no stack. */
static struct fl__coro_stack *make_stack(const struct fl__coro_stacks *pool, struct slab *slab)
{
    assert(slab->guarded < slab->count);
    size_t guard = (size_t)GUARD_SIZE, size = (size_t)1 << (slab->class + STACK_MIN_LOG2);
    struct fl__coro_stack *stack = &slab->stacks[slab->guarded];
    stack->guard = slab->memory + slab->guarded * (guard + size);
    stack->bottom = stack->guard + guard;
    stack->top = stack->bottom + size;
    stack->slab = slab;
    if (!install_guard(stack->guard, guard))
        return NULL;
    fl__root_add(stack->bottom, size); /* without the guard, which cannot be read */
    if (pool->on_valgrind)
        stack->valgrind = fl__coro_valgrind_stack(stack->bottom, stack->top);
    slab->guarded++;
    return stack;
}

static struct fl__coro_stack *pop_free(struct fl__coro_stacks *pool, struct slab *slab)
{
    struct fl__coro_stack *stack = slab->free;
    slab->free = stack->next_free;
    pool->warm -= stack->warm;
    stack->warm = false;
    return stack;
}

struct fl__coro_stack *fl__coro_stacks_take(struct fl__coro_stacks *pool, size_t size)
{
    if (size > (size_t)1 << STACK_MAX_LOG2)
        return NULL;
    unsigned class = class_of(size);
    struct slab *slab = pool->open[class] ? pool->open[class] : new_slab(pool, class);
    if (!slab)
        return NULL;
    struct fl__coro_stack *stack = slab->free ? pop_free(pool, slab) : make_stack(pool, slab);
    if (!stack)
        return NULL;
    if (++slab->used == slab->count)
        shut_slab(pool, slab);
    stack->taken = true;
    fl__coro_fiber_make(&stack->fiber, stack->bottom, stack_size(stack));
    return stack;
}

void fl__coro_stacks_give(struct fl__coro_stacks *pool, struct fl__coro_stack *stack)
{
    struct slab *slab = stack->slab;
    assert(stack->taken && stack->tenants == 0 && !stack->resident);
    fl__coro_fiber_destroy(&stack->fiber);
    stack->taken = false;
    stack->warm = pool->warm < WARM_MAX;
    pool->warm += stack->warm;
    if (!stack->warm)
        madvise(stack->bottom, stack_size(stack), MADV_DONTNEED);
    stack->next_free = slab->free;
    slab->free = stack;
    if (slab->used-- == slab->count)
        open_slab(pool, slab);
    if (slab->used == 0 && (slab->next_open || slab->previous_open))
        free_slab(pool, slab);
}
