/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_POOL_H
#define FOLIOT_WHEEL_POOL_H

/* Blocks of one size, cut from 2 MiB regions, for the leaves of a large wheel. */

#include <stdbool.h>
#include <stddef.h>

enum { POOL_BLOCK_SIZE = 512 * 24 };

struct region;

struct pool {
    struct region *with_room; /* regions that have a free block */
    struct region *spare;     /* one empty region, kept so that a wheel at the edge does not map and unmap in turns */
    size_t regions, blocks;
    bool huge_pages;
};

void *fl__pool_take(struct pool *pool); /* NULL: no memory */
void fl__pool_give(struct pool *pool, void *block);
void fl__pool_trim(struct pool *pool);               /* gives the spare region back */
size_t fl__pool_idle_bytes(const struct pool *pool); /* what is mapped beyond the blocks taken */

#endif
