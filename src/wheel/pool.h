/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_POOL_H
#define FOLIOT_WHEEL_POOL_H

/* Blocks of one size, cut from 2 MiB regions, for the leaves of a large wheel. */

#include <stdbool.h>
#include <stddef.h>

enum { POOL_BLOCK_SIZE = 512 * 24 };

struct region;

struct pool {
    struct region *with_room; /* regions that have a free block and a taken one */
    struct region *empty;     /* regions that have no taken block */
    size_t empty_regions;
    size_t taken, touched; /* blocks taken now; blocks that have been, in regions that are still mapped */
    bool huge_pages;
};

void *fl__pool_take(struct pool *pool); /* NULL: no memory */
void fl__pool_give(struct pool *pool, void *block);

/* Gives empty regions back: all of them; or a part of one, leaving one for the time the wheel grows again. */
void fl__pool_trim(struct pool *pool);
void fl__pool_trim_some(struct pool *pool);
bool fl__pool_has_excess(const struct pool *pool); /* fl__pool_trim_some() has something to do */

size_t fl__pool_idle_bytes(const struct pool *pool); /* what it holds beyond the blocks taken */

#endif
