/* SPDX-License-Identifier: MIT */
/* The pool: memory for leaves.
 *
 * malloc() would serve, but would not give memory back when most of it is free, and could not put the timers on 2 MiB
 * pages, which make filling a wheel with millions of them cheaper. So blocks of one page are cut from regions of 2 MiB,
 * aligned to their size: a block finds its region by masking its address, and a region whose last block returns is given
 * back. The first block of a region is its header.
 *
 * Giving memory back to the system takes time, and a few blocks that stay would hold on to a whole region. So it is
 * given back in slices of 16 KiB in which all blocks are free, one whenever a block returns and more memory is idle than
 * may soon be wanted: no call takes long, and the memory goes also where nobody polls. A poll, in which many blocks may
 * return, gives back only some slices at its end. Regions that may have such slices are in a list of their own, `slack`.
 *
 * The headers of leaves are a cache line each, and lie together in blocks of a pool of their own: every cancel visits one,
 * and closely packed they stay in the cache and need few pages. The first line of such a block is its header in turn. */

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "wheel/pool.h"

enum {
    REGION_SIZE = 2 << 20,
    REGION_BLOCKS = REGION_SIZE / POOL_BLOCK_SIZE,
    MASK_WORDS = REGION_BLOCKS / 64,
    SLICE_BLOCKS = 4,
    IDLE_BLOCKS = REGION_BLOCKS, /* so many, and one for each IDLE_SHARE taken, may be idle */
    IDLE_SHARE = 8,
};

struct region {
    struct pool_link link; /* among the regions with room, or the empty ones */
    struct pool_link slack;
    bool is_slack;
    uint64_t taken[MASK_WORDS];    /* the first is this header */
    uint64_t resident[MASK_WORDS]; /* blocks that have memory, by all we know; not the header, which always has */
    uint32_t blocks;               /* how many are taken, without this header */
};

struct line_block {
    struct pool_link link; /* among those with room */
    uint64_t taken;        /* the first is this header */
};

static_assert(sizeof(struct region) <= POOL_BLOCK_SIZE && sizeof(struct line_block) <= POOL_LINE_SIZE,
              "a header fits into what it is the first of");
static_assert(POOL_BLOCK_SIZE / POOL_LINE_SIZE == 64, "a bit for each line");

static void link_first(struct pool_link **list, struct pool_link *link)
{
    *link = (struct pool_link){.next = *list};
    if (link->next)
        link->next->previous = link;
    *list = link;
}

static void unlink_from(struct pool_link **list, struct pool_link *link)
{
    if (link->previous)
        link->previous->next = link->next;
    else
        *list = link->next;
    if (link->next)
        link->next->previous = link->previous;
}

/* ---- Blocks ---------------------------------------------------------------------------------------------------- */

/* On a 2 MiB page, the whole region has memory as soon as a part of it has. */
static void fill_region(struct pool *pool, struct region *region)
{
    madvise(region, REGION_SIZE, MADV_HUGEPAGE);
    memset(region->resident, 0xff, sizeof region->resident);
    region->resident[0] &= ~1ull; /* the header is not counted */
    pool->resident += REGION_BLOCKS - 1;
}

static struct region *map_region(struct pool *pool)
{
    struct region *region = fl__map_rooted(REGION_SIZE);
    if (!region)
        return NULL;
    if (pool->huge_pages)
        fill_region(pool, region);
    region->taken[0] = 1;
    pool->regions++;
    return region;
}

static struct region *region_with_room(struct pool *pool)
{
    if (pool->with_room)
        return (struct region *)pool->with_room;
    struct region *region = (struct region *)pool->empty;
    if (region) {
        unlink_from(&pool->empty, &region->link);
    } else {
        region = map_region(pool);
    }
    if (region)
        link_first(&pool->with_room, &region->link);
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
    uint64_t bit = ~region->taken[word] & (region->taken[word] + 1);
    region->taken[word] |= bit;
    pool->taken++;
    pool->resident += (region->resident[word] & bit) == 0;
    region->resident[word] |= bit;
    if (++region->blocks == REGION_BLOCKS - 1)
        unlink_from(&pool->with_room, &region->link);
    size_t number = word * 64 + (size_t)__builtin_ctzll(bit);
    return (char *)region + number * POOL_BLOCK_SIZE;
}

/* ---- Giving back to the system --------------------------------------------------------------------------------- */

/* Gives back the memory of some of 64 blocks. */
static void clear_blocks(struct pool *pool, struct region *region, unsigned word, uint64_t blocks)
{
    pool->resident -= (size_t)__builtin_popcountll(blocks);
    region->resident[word] &= ~blocks;
    while (blocks != 0) {
        unsigned first = (unsigned)__builtin_ctzll(blocks);
        uint64_t rest = ~(blocks >> first);
        unsigned length = rest == 0 ? 64 : (unsigned)__builtin_ctzll(rest);
        madvise((char *)region + (word * 64 + first) * (size_t)POOL_BLOCK_SIZE, length * (size_t)POOL_BLOCK_SIZE,
                MADV_DONTNEED);
        blocks &= first + length < 64 ? ~0ull << (first + length) : 0;
    }
}

static void no_longer_slack(struct pool *pool, struct region *region)
{
    if (region->is_slack)
        unlink_from(&pool->slack, &region->slack);
    region->is_slack = false;
}

static void unmap_region(struct pool *pool, struct region *region)
{
    for (unsigned i = 0; i < MASK_WORDS; i++)
        pool->resident -= (size_t)__builtin_popcountll(region->resident[i]);
    no_longer_slack(pool, region);
    unlink_from(&pool->empty, &region->link);
    pool->regions--;
    fl__unmap_rooted(region, REGION_SIZE);
}

void fl__pool_trim(struct pool *pool)
{
    while (pool->empty)
        unmap_region(pool, (struct region *)pool->empty);
    for (struct pool_link *link = pool->with_room; link; link = link->next) {
        struct region *region = (struct region *)link;
        for (unsigned i = 0; i < MASK_WORDS; i++)
            clear_blocks(pool, region, i, region->resident[i] & ~region->taken[i]);
    }
}

static uint64_t slice_mask(size_t block)
{
    return ((1ull << SLICE_BLOCKS) - 1) << block % 64 / SLICE_BLOCKS * SLICE_BLOCKS;
}

/* Gives back one slice of a region; false if there is none. */
static bool clear_slice(struct pool *pool, struct region *region)
{
    for (unsigned block = 0; block < REGION_BLOCKS; block += SLICE_BLOCKS) {
        uint64_t slice = slice_mask(block);
        if ((region->resident[block / 64] & slice) != 0 && (region->taken[block / 64] & slice) == 0) {
            clear_blocks(pool, region, block / 64, region->resident[block / 64] & slice);
            return true;
        }
    }
    return false;
}

/* Gives back a slice, if there is one, and on the way to it the regions that have no more of them and are empty. */
static void trim_slice(struct pool *pool)
{
    while (pool->slack) {
        struct region *region = (struct region *)((char *)pool->slack - offsetof(struct region, slack));
        if (clear_slice(pool, region))
            return;
        no_longer_slack(pool, region);
        if (region->blocks == 0)
            unmap_region(pool, region);
    }
}

bool fl__pool_has_excess(const struct pool *pool)
{
    return pool->slack && pool->resident - pool->taken > IDLE_BLOCKS + pool->taken / IDLE_SHARE;
}

void fl__pool_give(struct pool *pool, void *block)
{
    struct region *region = (struct region *)((uintptr_t)block & ~(uintptr_t)(REGION_SIZE - 1));
    size_t number = (size_t)((char *)block - (char *)region) / POOL_BLOCK_SIZE;
    assert(number > 0 && region->taken[number / 64] >> number % 64 & 1);
    pool->taken--;
    region->taken[number / 64] &= ~(1ull << number % 64);
    if (region->blocks-- == REGION_BLOCKS - 1)
        link_first(&pool->with_room, &region->link);
    if (region->blocks == 0) {
        unlink_from(&pool->with_room, &region->link);
        link_first(&pool->empty, &region->link);
    }
    if (!region->is_slack && (region->taken[number / 64] & slice_mask(number)) == 0) {
        region->is_slack = true;
        link_first(&pool->slack, &region->slack);
    }
    if (!pool->waits && fl__pool_has_excess(pool))
        trim_slice(pool);
}

void fl__pool_wait(struct pool *pool)
{
    pool->waits = true;
}

void fl__pool_trim_some(struct pool *pool, size_t slices)
{
    pool->waits = false;
    for (; slices > 0 && fl__pool_has_excess(pool); slices--)
        trim_slice(pool);
}

/* ---- Lines ----------------------------------------------------------------------------------------------------- */

static struct line_block *line_block_with_room(struct line_pool *pool)
{
    if (pool->with_room)
        return (struct line_block *)pool->with_room;
    struct line_block *block = fl__pool_take(&pool->blocks);
    if (!block)
        return NULL;
    block->taken = 1;
    link_first(&pool->with_room, &block->link);
    return block;
}

void *fl__pool_take_line(struct line_pool *pool)
{
    struct line_block *block = line_block_with_room(pool);
    if (!block)
        return NULL;
    unsigned number = (unsigned)__builtin_ctzll(~block->taken);
    block->taken |= 1ull << number;
    if (block->taken == UINT64_MAX)
        unlink_from(&pool->with_room, &block->link);
    pool->taken++;
    return (char *)block + (size_t)number * POOL_LINE_SIZE;
}

void fl__pool_give_line(struct line_pool *pool, void *line)
{
    struct line_block *block = (struct line_block *)((uintptr_t)line & ~(uintptr_t)(POOL_BLOCK_SIZE - 1));
    size_t number = (size_t)((char *)line - (char *)block) / POOL_LINE_SIZE;
    assert(number > 0 && block->taken >> number & 1);
    if (block->taken == UINT64_MAX)
        link_first(&pool->with_room, &block->link);
    block->taken &= ~(1ull << number);
    pool->taken--;
    if (block->taken == 1) {
        unlink_from(&pool->with_room, &block->link);
        fl__pool_give(&pool->blocks, block);
    }
}

size_t fl__pool_idle_bytes(const struct pool *pool)
{
    return (pool->regions + pool->resident - pool->taken) * POOL_BLOCK_SIZE;
}

size_t fl__pool_bare_bytes(const struct pool *pool)
{
    return (pool->regions * (REGION_BLOCKS - 1) - pool->resident) * POOL_BLOCK_SIZE;
}

size_t fl__line_pool_idle_bytes(const struct line_pool *pool)
{
    return (pool->blocks.regions + pool->blocks.resident) * POOL_BLOCK_SIZE - pool->taken * POOL_LINE_SIZE;
}
