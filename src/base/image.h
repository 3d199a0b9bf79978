/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_IMAGE_H
#define FOLIOT_BASE_IMAGE_H

/* Memory for many blocks of few sizes, without a header each: what is copied off a stack, and records (record.h).
 *
 * Blocks are multiples of 8 bytes, and aligned to the power of two that divides their size, up to a cache line. Those of
 * one size come from chunks of 1 MiB, which are aligned to their size, so that a block's chunk is found by its address. A chunk
 * gives out its memory in order, so that what was taken one after the other lies one after the other; freed blocks go
 * first. A chunk that becomes empty is unmapped unless it is the only one of its size with room. Blocks above 1 KiB
 * come from the heap.
 *
 * The memory belongs to one thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/alloc.h"

enum { IMAGE_UNIT = 8, IMAGE_CLASSES = 128 + 1 };

struct image_chunk;

struct fl__images {
    struct image_chunk *open[IMAGE_CLASSES]; /* chunks that have room */
};

/* NULL: no memory. */
FL__SHARED void *fl__image_alloc(struct fl__images *images, size_t size);
FL__SHARED void fl__image_free(struct fl__images *images, void *block, size_t size);

/* All blocks must have been freed. */
FL__SHARED void fl__images_destroy(struct fl__images *images);

#endif
