/* SPDX-License-Identifier: MIT */
/* The counting, failing allocator of allocator.h. Each block of the heap carries its size and a mark in front of it, so
 * that a foreign or twice released block is noticed without a sanitizer too. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <foliot/alloc.h>

#include "wheel/allocator.h"

#define MARK 0x466f6c696f74ull

struct cell_block {
    uint64_t size, mark;
};

struct memory memory;

static void demand(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "memory: %s\n", what);
    abort();
}

static bool refused(void)
{
    memory.requests++;
    if (memory.fail_in == 0 || --memory.fail_in > 0)
        return false;
    memory.failed++;
    memory.fail_in = memory.fail_on;
    return true;
}

static void count(uint64_t size)
{
    memory.bytes += size;
    memory.blocks++;
}

static void discount(uint64_t size)
{
    demand(memory.blocks > 0 && memory.bytes >= size, "more was given back than was taken");
    memory.bytes -= size;
    memory.blocks--;
}

static void *mark(struct cell_block *block, size_t size)
{
    if (!block)
        return NULL;
    *block = (struct cell_block){size, MARK};
    count(size);
    return block + 1;
}

static struct cell_block *unmark(void *data)
{
    struct cell_block *block = (struct cell_block *)data - 1;
    demand(block->mark == MARK, "released what was never allocated, or twice");
    block->mark = 0;
    discount(block->size);
    return block;
}

static void *heap_alloc(size_t size)
{
    demand(size > 0, "an allocation of no bytes");
    return refused() ? NULL : mark(malloc(sizeof(struct cell_block) + size), size);
}

static void *heap_resize(void *data, size_t size)
{
    demand(size > 0, "an allocation of no bytes");
    if (refused())
        return NULL;
    struct cell_block *block = data ? unmark(data) : NULL;
    return mark(realloc(block, sizeof(struct cell_block) + size), size);
}

static void heap_release(void *data)
{
    if (data)
        free(unmark(data));
}

static void *map(size_t size)
{
    demand(size >= 65536 && (size & (size - 1)) == 0, "a mapping of a size that is not allowed");
    if (refused())
        return NULL;
    count(size);
    memory.mapped += size;
    char *raw = mmap(NULL, size * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    demand(raw != MAP_FAILED, "the machine itself has no memory left");
    size_t before = -(uintptr_t)raw & (size - 1);
    munmap(raw, before);
    munmap(raw + before + size, size - before);
    return raw + before;
}

static void unmap(void *data, size_t size)
{
    demand(data && ((uintptr_t)data & (size - 1)) == 0, "unmapped what was never mapped");
    discount(size);
    memory.mapped -= size;
    munmap(data, size);
}

void memory_install(void)
{
    static const fl_allocator allocator = {heap_alloc, heap_resize, heap_release, map, unmap};
    demand(!memory.installed, "installed twice");
    memory = (struct memory){.installed = true};
    demand(fl_set_allocator(&allocator) == 0, "the allocator was not accepted");
}

void memory_remove(void)
{
    demand(memory.blocks == 0 && memory.bytes == 0, "something was not given back");
    memory = (struct memory){0};
    demand(fl_set_allocator(NULL) == 0, "the default allocator did not come back");
}

void memory_fail(uint64_t fail_in, bool fail_on)
{
    memory.fail_in = fail_in;
    memory.fail_on = fail_on;
}
