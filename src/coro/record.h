/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_RECORD_H
#define FOLIOT_CORO_RECORD_H

/* Memory for struct fl_coro, which any thread may take and any thread may give back.
 *
 * The blocks come from image.h under one lock for the process, many at a time: a scheduler keeps some that are free and
 * needs the lock once for RECORD_BATCH coroutines. malloc() would do, but takes a third more time for a million of them,
 * most of it in the kernel, because the heaps of threads grow by a page. Builds with sanitizers use it all the same: they
 * are to see when a coroutine is used that has been freed.
 */

#include <stdint.h>

enum { RECORD_BATCH = 64 };

struct fl_coro;

/* Free ones that a scheduler keeps. */
struct fl__records {
    struct fl_coro *first;
    uint32_t count;
};

/* With the scheduler's own, or NULL on a thread that runs none. NULL: no memory. */
struct fl_coro *fl__record_take(struct fl__records *own);
void fl__record_give(struct fl__records *own, struct fl_coro *coro);

/* Gives back what the scheduler keeps. */
void fl__records_destroy(struct fl__records *own);

#endif
