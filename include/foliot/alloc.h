/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ALLOC_H
#define FOLIOT_ALLOC_H

/* Where the library gets its memory.
 *
 * By default from malloc() and, for the large tables of a full wheel, from mmap(). A program with an allocator of its
 * own, or a test that wants the n-th allocation to fail, puts its functions here before it makes the first object.
 */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What map() gives should be private anonymous memory: parts that are idle are given back to the system with madvise(). */
typedef struct fl_allocator {
    void *(*alloc)(size_t size);               /* as malloc() */
    void *(*resize)(void *block, size_t size); /* as realloc() */
    void (*release)(void *block);              /* as free() */
    void *(*map)(size_t size);               /* zeroed, aligned to `size`, a power of two of at least 64 KiB; or NULL */
    void (*unmap)(void *block, size_t size); /* gives back what map() gave */
} fl_allocator;

/* Replaces the allocator; NULL brings the default back. A member that is NULL keeps its default, but alloc, resize and
 * release come together, and so do map and unmap.
 *
 * Not thread-safe: call it while no object of the library exists. Returns 0 or FL_INVALID_ARGUMENT. */
int fl_set_allocator(const fl_allocator *allocator);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
