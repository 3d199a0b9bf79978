/* SPDX-License-Identifier: MIT */
/* The pool of leaf blocks.
 *
 * A block holds 512 slots of 24 bytes: three pages. malloc() would serve, but would not give memory back when most of
 * it is free, and could not put the blocks on 2 MiB pages, which halve the cost of reaching a random timer among
 * millions. So blocks are cut from regions of 2 MiB, aligned to their size: a block finds its region by masking its
 * address, and a region whose last block returns is given back. A region holds 170 blocks and, in the 8 KiB that are
 * left, its header.
 *
 * Unmapping 2 MiB takes the kernel 100 µs and more, too long for one poll. So polls give an empty region back in slices
 * of 64 KiB, from its end, before they unmap it. */

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
    SLICE = 64 << 10,
};

struct region {
    struct region *next, *previous; /* among the regions with room, or the empty ones */
    uint64_t taken[MASK_WORDS];
    uint32_t blocks;   /* how many are taken */
    uint32_t touched;  /* blocks before this one have been taken at some time: the rest has no memory yet */
    uint32_t resident; /* bytes of an empty region that were not given back */
};

static_assert(sizeof(struct region) <= REGION_HEADER, "the header fits in front of the blocks");

static void link_region(struct region **list, struct region *region)
{
    region->previous = NULL;
    region->next = *list;
    if (region->next)
        region->next->previous = region;
    *list = region;
}

static void unlink_region(struct region **list, struct region *region)
{
    if (region->previous)
        region->previous->next = region->next;
    else
        *list = region->next;
    if (region->next)
        region->next->previous = region->previous;
}

static struct region *map_region(struct pool *pool)
{
    struct region *region = fl__map(REGION_SIZE);
    if (!region)
        return NULL;
    if (pool->huge_pages)
        madvise(region, REGION_SIZE, MADV_HUGEPAGE);
    /* The block numbers past the last stand as taken, so that a search never finds them. */
    region->taken[MASK_WORDS - 1] = ~0ull << REGION_BLOCKS % 64;
    return region;
}

static void unmap_region(struct pool *pool, struct region *region)
{
    unlink_region(&pool->empty, region);
    pool->empty_regions--;
    pool->touched -= region->touched;
    fl__unmap(region, REGION_SIZE);
}

static struct region *region_with_room(struct pool *pool)
{
    struct region *region = pool->with_room;
    if (region)
        return region;
    region = pool->empty;
    if (region) {
        unlink_region(&pool->empty, region);
        pool->empty_regions--;
    } else {
        region = map_region(pool);
    }
    if (region)
        link_region(&pool->with_room, region);
    return region;
}

void *fl__pool_take(struct pool *pool)
{
    struct region *region = region_with_room(pool);
    if (!region)
        return NULL;
    unsigned word = 0;
    while (region->taken[word] == UINT64_MAX)
        word++;
    unsigned bit = (unsigned)__builtin_ctzll(~region->taken[word]);
    region->taken[word] |= 1ull << bit;
    if (++region->blocks == REGION_BLOCKS)
        unlink_region(&pool->with_room, region);
    uint32_t number = word * 64 + bit;
    if (number == region->touched) {
        region->touched++;
        pool->touched++;
    }
    pool->taken++;
    return (char *)region + REGION_HEADER + (size_t)number * POOL_BLOCK_SIZE;
}

void fl__pool_give(struct pool *pool, void *block)
{
    struct region *region = (struct region *)((uintptr_t)block & ~(uintptr_t)(REGION_SIZE - 1));
    size_t number = (size_t)((char *)block - (char *)region - REGION_HEADER) / POOL_BLOCK_SIZE;
    assert(region->taken[number / 64] >> number % 64 & 1);
    pool->taken--;
    region->taken[number / 64] &= ~(1ull << number % 64);
    if (region->blocks-- == REGION_BLOCKS)
        link_region(&pool->with_room, region);
    if (region->blocks == 0) {
        unlink_region(&pool->with_room, region);
        link_region(&pool->empty, region);
        pool->empty_regions++;
        region->resident = REGION_SIZE;
    }
}

void fl__pool_trim(struct pool *pool)
{
    while (pool->empty)
        unmap_region(pool, pool->empty);
}

bool fl__pool_has_excess(const struct pool *pool)
{
    return pool->empty_regions > 1;
}

void fl__pool_trim_some(struct pool *pool)
{
    if (!fl__pool_has_excess(pool))
        return;
    struct region *region = pool->empty;
    if (region->resident > SLICE) {
        region->resident -= SLICE;
        madvise((char *)region + region->resident, SLICE, MADV_DONTNEED);
    } else {
        unmap_region(pool, region);
    }
}

size_t fl__pool_idle_bytes(const struct pool *pool)
{
    return (pool->touched - pool->taken) * POOL_BLOCK_SIZE;
}
