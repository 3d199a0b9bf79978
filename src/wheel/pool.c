/* SPDX-License-Identifier: MIT */
/* The pool of leaf blocks.
 *
 * A block holds 512 slots of 24 bytes: three pages. malloc() would serve, but would not give memory back when most of
 * it is free, and could not put the blocks on 2 MiB pages, which halve the cost of reaching a random timer among
 * millions. So blocks are cut from regions of 2 MiB, aligned to their size: a block finds its region by masking its
 * address, and a region whose last block returns is unmapped. A region holds 170 blocks and, in the 8 KiB that are
 * left, its header. */

#include <assert.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "wheel/pool.h"

enum {
    REGION_SIZE = 2 << 20,
    REGION_BLOCKS = REGION_SIZE / POOL_BLOCK_SIZE,
    REGION_HEADER = REGION_SIZE - REGION_BLOCKS * POOL_BLOCK_SIZE,
    MASK_WORDS = (REGION_BLOCKS + 63) / 64,
};

struct region {
    struct region *next, *previous; /* among the regions with room */
    uint64_t taken[MASK_WORDS];
    uint32_t blocks; /* how many are taken */
};

static_assert(sizeof(struct region) <= REGION_HEADER, "the header fits in front of the blocks");

static void link_region(struct pool *pool, struct region *region)
{
    region->previous = NULL;
    region->next = pool->with_room;
    if (region->next)
        region->next->previous = region;
    pool->with_room = region;
}

static void unlink_region(struct pool *pool, struct region *region)
{
    if (region->previous)
        region->previous->next = region->next;
    else
        pool->with_room = region->next;
    if (region->next)
        region->next->previous = region->previous;
}

static struct region *new_region(struct pool *pool)
{
    struct region *region = pool->spare;
    pool->spare = NULL;
    if (!region) {
        region = fl__map(REGION_SIZE);
        if (!region)
            return NULL;
        pool->regions++;
        if (pool->huge_pages)
            madvise(region, REGION_SIZE, MADV_HUGEPAGE);
        /* The block numbers past the last stand as taken, so that a search never finds them. */
        region->taken[MASK_WORDS - 1] = ~0ull << REGION_BLOCKS % 64;
    }
    link_region(pool, region);
    return region;
}

void *fl__pool_take(struct pool *pool)
{
    struct region *region = pool->with_room ? pool->with_room : new_region(pool);
    if (!region)
        return NULL;
    pool->blocks++;
    unsigned word = 0;
    while (region->taken[word] == UINT64_MAX)
        word++;
    unsigned bit = (unsigned)__builtin_ctzll(~region->taken[word]);
    region->taken[word] |= 1ull << bit;
    if (++region->blocks == REGION_BLOCKS)
        unlink_region(pool, region);
    return (char *)region + REGION_HEADER + (size_t)(word * 64 + bit) * POOL_BLOCK_SIZE;
}

void fl__pool_give(struct pool *pool, void *block)
{
    struct region *region = (struct region *)((uintptr_t)block & ~(uintptr_t)(REGION_SIZE - 1));
    size_t number = (size_t)((char *)block - (char *)region - REGION_HEADER) / POOL_BLOCK_SIZE;
    assert(region->taken[number / 64] >> number % 64 & 1);
    pool->blocks--;
    region->taken[number / 64] &= ~(1ull << number % 64);
    if (region->blocks-- == REGION_BLOCKS)
        link_region(pool, region);
    if (region->blocks == 0) {
        unlink_region(pool, region);
        fl__pool_trim(pool);
        pool->spare = region;
    }
}

void fl__pool_trim(struct pool *pool)
{
    if (!pool->spare)
        return;
    fl__unmap(pool->spare, REGION_SIZE);
    pool->spare = NULL;
    pool->regions--;
}

size_t fl__pool_idle_bytes(const struct pool *pool)
{
    return pool->regions * REGION_SIZE - pool->blocks * POOL_BLOCK_SIZE;
}
