/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_ARENA_H
#define FOLIOT_BASE_ARENA_H

/* Memory that is given back all at once. It is cut from blocks of 64 KiB; what is larger gets a block of its own. The zero
 * value is an empty arena. */

#include <stddef.h>

#include "base/alloc.h"

struct arena {
    struct arena_block *blocks;
    size_t used, size; /* of the first block */
};

/* Aligned to 16 bytes; NULL: no memory. The address of nothing is not NULL and not to be read. */
FL__SHARED void *fl__arena_take(struct arena *arena, size_t size);

/* A copy of `size` bytes; NULL: no memory. */
FL__SHARED void *fl__arena_copy(struct arena *arena, const void *bytes, size_t size);

/* Gives everything back. The arena is empty then and can be used again. */
FL__SHARED void fl__arena_free(struct arena *arena);

#endif
