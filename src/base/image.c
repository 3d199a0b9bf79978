/* SPDX-License-Identifier: MIT */
/* Memory for images: see image.h. */

#include "base/image.h"

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/alloc.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    CHUNK_SIZE = 1 << 20,
    MAX_SIZE = (IMAGE_CLASSES - 1) * IMAGE_UNIT,
    POPULATE_SIZE = 1 << 17, /* a chunk that has given out so much gets its pages by so many at a time */
};

struct free_block {
    struct free_block *next;
};

struct image_chunk {
    struct image_chunk *next, *previous; /* in the list of chunks with room */
    struct free_block *free;
    uint32_t fresh; /* where memory that was never given out begins */
    uint32_t used;  /* blocks */
    uint32_t block_size;
    uint32_t populated; /* where memory begins that may have no pages yet */
};

_Static_assert(sizeof(struct image_chunk) <= CACHE_LINE, "a chunk's first block comes after its header");

static size_t class_of(size_t size)
{
    return (size + IMAGE_UNIT - 1) / IMAGE_UNIT;
}

static bool has_room(const struct image_chunk *chunk)
{
    return chunk->free || chunk->fresh + chunk->block_size <= CHUNK_SIZE;
}

static void open_chunk(struct fl__images *images, struct image_chunk *chunk)
{
    struct image_chunk **head = &images->open[chunk->block_size / IMAGE_UNIT];
    chunk->previous = NULL;
    chunk->next = *head;
    if (chunk->next)
        chunk->next->previous = chunk;
    *head = chunk;
}

static void shut_chunk(struct fl__images *images, struct image_chunk *chunk)
{
    if (chunk->next)
        chunk->next->previous = chunk->previous;
    *(chunk->previous ? &chunk->previous->next : &images->open[chunk->block_size / IMAGE_UNIT]) = chunk->next;
}

/* Where the first block of this size may begin, and so all others: the size is a multiple of its alignment. */
static uint32_t first_block(uint32_t block_size)
{
    uint32_t align = block_size & -block_size;
    align = align < CACHE_LINE ? align : CACHE_LINE;
    return ((uint32_t)sizeof(struct image_chunk) + align - 1) & -align;
}

static struct image_chunk *new_chunk(struct fl__images *images, size_t class)
{
    struct image_chunk *chunk = fl__map(CHUNK_SIZE);
    if (!chunk)
        return NULL;
    chunk->block_size = (uint32_t)(class * IMAGE_UNIT);
    chunk->fresh = first_block(chunk->block_size);
    chunk->populated = POPULATE_SIZE;
    open_chunk(images, chunk);
    return chunk;
}

/* One call for many pages costs a fraction of as many faults. It may fail: then there are faults. */
static void populate(struct image_chunk *chunk)
{
    if (chunk->fresh < chunk->populated || chunk->populated >= CHUNK_SIZE)
        return;
    madvise((char *)chunk + chunk->populated, POPULATE_SIZE, MADV_POPULATE_WRITE);
    chunk->populated += POPULATE_SIZE;
}

static void *take_block(struct image_chunk *chunk)
{
    void *block = chunk->free;
    if (block) {
        chunk->free = chunk->free->next;
    } else {
        block = (char *)chunk + chunk->fresh;
        chunk->fresh += chunk->block_size;
        populate(chunk);
    }
    chunk->used++;
    return block;
}

void *fl__image_alloc(struct fl__images *images, size_t size)
{
    if (size > MAX_SIZE)
        return fl__alloc(size);
    size_t class = class_of(size);
    struct image_chunk *chunk = images->open[class] ? images->open[class] : new_chunk(images, class);
    if (!chunk)
        return NULL;
    void *block = take_block(chunk);
    if (!has_room(chunk))
        shut_chunk(images, chunk);
    return block;
}

void fl__image_free(struct fl__images *images, void *block, size_t size)
{
    if (size > MAX_SIZE) {
        fl__release(block);
        return;
    }
    struct image_chunk *chunk = (struct image_chunk *)((uintptr_t)block & ~(uintptr_t)(CHUNK_SIZE - 1));
    assert(chunk->block_size == class_of(size) * IMAGE_UNIT);
    bool had_room = has_room(chunk);
    struct free_block *freed = block;
    freed->next = chunk->free;
    chunk->free = freed;
    chunk->used--;
    if (!had_room)
        open_chunk(images, chunk);
    if (chunk->used == 0 && (chunk->next || chunk->previous)) {
        shut_chunk(images, chunk);
        fl__unmap(chunk, CHUNK_SIZE);
    }
}

void fl__images_destroy(struct fl__images *images)
{
    for (size_t class = 0; class < IMAGE_CLASSES; class ++) {
        struct image_chunk *chunk = images->open[class];
        assert(!chunk || (chunk->used == 0 && !chunk->next));
        if (chunk)
            fl__unmap(chunk, CHUNK_SIZE);
    }
}
