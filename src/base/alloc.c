/* SPDX-License-Identifier: MIT */
/* The default allocator, and the one the program put in its place. */

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <foliot/alloc.h>
#include <foliot/error.h>

#include "base/alloc.h"

enum { LINES_ALIGN = 2 * CACHE_LINE };

/* A leak detector, if the program has one, looks for pointers in mappings only if it is told of them. */
extern void add_root(const void *begin, size_t size) __asm__("__lsan_register_root_region") __attribute__((weak));
extern void remove_root(const void *begin, size_t size) __asm__("__lsan_unregister_root_region") __attribute__((weak));

/* mmap() aligns to a page only, so we ask for twice as much and cut off what sticks out on both sides. */
static void *map_aligned(size_t size)
{
    char *raw = mmap(NULL, size * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)raw & (size - 1);
    if (before > 0)
        munmap(raw, before);
    munmap(raw + before + size, size - before);
    return raw + before;
}

static void unmap(void *block, size_t size)
{
    munmap(block, size);
}

static const fl_allocator default_allocator = {malloc, realloc, free, map_aligned, unmap};
static fl_allocator current = {malloc, realloc, free, map_aligned, unmap};

int fl_set_allocator(const fl_allocator *allocator)
{
    fl_allocator next = default_allocator;
    if (allocator) {
        bool heap = allocator->alloc, mapping = allocator->map;
        if ((allocator->resize != NULL) != heap || (allocator->release != NULL) != heap ||
            (allocator->unmap != NULL) != mapping)
            return FL_INVALID_ARGUMENT;
        if (heap) {
            next.alloc = allocator->alloc;
            next.resize = allocator->resize;
            next.release = allocator->release;
        }
        if (mapping) {
            next.map = allocator->map;
            next.unmap = allocator->unmap;
        }
    }
    current = next;
    return 0;
}

void *fl__alloc(size_t size)
{
    return current.alloc(size);
}

void *fl__alloc_zeroed(size_t size)
{
    void *block = current.alloc(size);
    if (block)
        memset(block, 0, size);
    return block;
}

void *fl__resize(void *block, size_t size)
{
    return current.resize(block, size);
}

void fl__release(void *block)
{
    current.release(block);
}

size_t fl__lines_bytes(size_t size)
{
    return size + LINES_ALIGN + sizeof(void *);
}

/* The address that the allocator gave stands before the aligned block. */
void *fl__alloc_zeroed_lines(size_t size)
{
    char *raw = fl__alloc_zeroed(fl__lines_bytes(size));
    if (!raw)
        return NULL;
    char *first = raw + sizeof raw;
    void **block = (void **)(first + (-(uintptr_t)first & (LINES_ALIGN - 1)));
    block[-1] = raw;
    return block;
}

void fl__release_lines(void *block)
{
    if (block)
        fl__release(((void **)block)[-1]);
}

void fl__root_add(const void *begin, size_t size)
{
    if (add_root)
        add_root(begin, size);
}

void fl__root_remove(const void *begin, size_t size)
{
    if (remove_root)
        remove_root(begin, size);
}

void *fl__map_unrooted(size_t size)
{
    return current.map(size);
}

void fl__unmap_unrooted(void *block, size_t size)
{
    current.unmap(block, size);
}

void *fl__map(size_t size)
{
    void *block = fl__map_unrooted(size);
    if (block)
        fl__root_add(block, size);
    return block;
}

void fl__unmap(void *block, size_t size)
{
    fl__root_remove(block, size);
    fl__unmap_unrooted(block, size);
}
