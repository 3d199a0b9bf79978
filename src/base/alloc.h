/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_ALLOC_H
#define FOLIOT_BASE_ALLOC_H

/* The seam through which every layer gets memory: see foliot/alloc.h. */

#include <stddef.h>

/* A private name that leaves libfoliot because libfoliot-durable needs it: not for programs. */
#define FL__SHARED __attribute__((visibility("default")))

FL__SHARED void *fl__alloc(size_t size);
FL__SHARED void *fl__alloc_zeroed(size_t size);
FL__SHARED void *fl__resize(void *block, size_t size);
FL__SHARED void fl__release(void *block); /* NULL is allowed */

/* What several threads write to lies at least this many bytes apart. */
enum { CACHE_LINE = 64 };

/* Zeroed and aligned to two cache lines, because processors fetch them in pairs; to be given back with fl__release_lines(). */
void *fl__alloc_zeroed_lines(size_t size);
void fl__release_lines(void *block); /* NULL is allowed */
size_t fl__lines_bytes(size_t size); /* what that takes in all */

/* `size` zeroed bytes aligned to `size`, a power of two of at least 64 KiB. Leak detectors are told to look for pointers
 * there. */
void *fl__map(size_t size);
void fl__unmap(void *block, size_t size);

/* The same, but leak detectors are told of parts of it only: for memory that cannot all be read. */
void *fl__map_unrooted(size_t size);
void fl__unmap_unrooted(void *block, size_t size);
void fl__root_add(const void *begin, size_t size);
void fl__root_remove(const void *begin, size_t size);

#endif
