/* SPDX-License-Identifier: MIT */
/* See arena.h. */

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { ALIGNMENT = 16, BLOCK_SIZE = 64 << 10 };

struct arena_block {
    struct arena_block *next;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

static unsigned char nothing[ALIGNMENT];

static bool add_block(struct arena *arena, size_t size)
{
    size_t block_size = size > BLOCK_SIZE ? size : BLOCK_SIZE;
    struct arena_block *block = fl__alloc(sizeof *block + block_size);
    if (!block)
        return false;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used = 0;
    arena->size = block_size;
    return true;
}

void *fl__arena_take(struct arena *arena, size_t size)
{
    if (size == 0)
        return nothing;
    if (size > SIZE_MAX - sizeof(struct arena_block) - ALIGNMENT)
        return NULL;
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (arena->size - arena->used < size && !add_block(arena, size))
        return NULL;
    void *taken = arena->blocks->bytes + arena->used;
    arena->used += size;
    return taken;
}

void *fl__arena_copy(struct arena *arena, const void *bytes, size_t size)
{
    void *copy = fl__arena_take(arena, size);
    if (copy && size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

void fl__arena_free(struct arena *arena)
{
    for (struct arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        fl__release(block);
    }
    *arena = (struct arena){0};
}
