/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_RECORD_H
#define FOLIOT_BASE_RECORD_H

/* Memory for many objects of one size, which any thread may take and any thread may give back: the handles of timers, and
 * coroutines.
 *
 * The blocks come from image.h under the pool's lock, many at a time: a thread with much to do keeps some that are free
 * and needs the lock once for RECORD_BATCH of them. malloc() would do, but it takes a third more time for a million, most
 * of it in the kernel, because the heaps of threads grow by a page; and it does not give the memory of a million small
 * blocks back to the system. Builds with sanitizers use it all the same, because they must see uses after free.
 *
 * When the last block of a pool has come back, everything is unmapped, so that the program may set another allocator
 * when no object of the library exists.
 */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/image.h"

enum { RECORD_BATCH = 64 };

/* A pool for the process, static: { .lock = PTHREAD_MUTEX_INITIALIZER, .size = … }. */
struct fl__record_pool {
    size_t size;
    pthread_mutex_t lock;
    struct fl__images images;
    uint64_t taken; /* blocks that are in use, or kept by a cache */
};

/* Free ones that a thread keeps. All zero: none. */
struct fl__records {
    struct fl__record *first;
    uint32_t count;
};

/* With the thread's own, or NULL. NULL: no memory. */
void *fl__record_take(struct fl__record_pool *pool, struct fl__records *own);
void fl__record_give(struct fl__record_pool *pool, struct fl__records *own, void *record);

/* Gives back what the thread keeps. */
void fl__records_destroy(struct fl__record_pool *pool, struct fl__records *own);

#endif
