/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_POOL_H
#define FOLIOT_WHEEL_POOL_H

/* Memory for the leaves of a wheel: blocks of 4 KiB, and cache lines cut from such blocks. */

#include <stdbool.h>
#include <stddef.h>

enum { POOL_BLOCK_SIZE = 4096, POOL_LINE_SIZE = 64 };

struct pool_link {
    struct pool_link *next, *previous;
};

struct pool {
    struct pool_link *with_room; /* regions that have a free block and a taken one */
    struct pool_link *empty;     /* regions that have no taken block */
    struct pool_link *slack;     /* regions that may have memory to give back */
    size_t regions;
    size_t taken, resident; /* blocks taken now; blocks that have memory */
    bool waits;             /* nothing is given back to the system before fl__pool_trim_some() */
    bool huge_pages;
};

struct line_pool {
    struct pool blocks;
    struct pool_link *with_room; /* blocks that have a free line and a taken one */
    size_t taken;
};

/* What they give is not zeroed; NULL: no memory. */
void *fl__pool_take(struct pool *pool);
void *fl__pool_take_line(struct line_pool *pool);

void fl__pool_give(struct pool *pool, void *block);
void fl__pool_give_line(struct line_pool *pool, void *line);

/* Gives back the memory of all free blocks. */
void fl__pool_trim(struct pool *pool);

/* If more is idle than may soon be wanted, gives back some slices of it, and so does every return of a block from then
 * on, until fl__pool_wait(): a poll, in which many blocks may return, has to be short. */
void fl__pool_wait(struct pool *pool);
void fl__pool_trim_some(struct pool *pool, size_t slices);
bool fl__pool_has_excess(const struct pool *pool);

/* What they hold beyond what is taken. */
size_t fl__pool_idle_bytes(const struct pool *pool);
size_t fl__line_pool_idle_bytes(const struct line_pool *pool);

/* What of its mappings has no memory. */
size_t fl__pool_bare_bytes(const struct pool *pool);

#endif
