/* SPDX-License-Identifier: MIT */
/* Memory for coroutines: see record.h.
 *
 * When the last block of the process has come back, everything is unmapped, so that the program may set another
 * allocator when no object of the library exists.
 */

#include "coro/record.h"

#include <pthread.h>

#include "base/alloc.h"
#include "coro/internal.h"

#if defined(FL__ASAN) || defined(FL__TSAN)

struct fl_coro *fl__record_take(struct fl__records *own)
{
    (void)own;
    return fl__alloc(sizeof(struct fl_coro));
}

void fl__record_give(struct fl__records *own, struct fl_coro *coro)
{
    (void)own;
    fl__release(coro);
}

void fl__records_destroy(struct fl__records *own)
{
    (void)own;
}

#else

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fl__images images;
static uint64_t taken; /* blocks that are not free, or that a scheduler keeps */

static void push(struct fl__records *own, struct fl_coro *coro)
{
    coro->next = own->first;
    own->first = coro;
    own->count++;
}

static struct fl_coro *pop(struct fl__records *own)
{
    struct fl_coro *coro = own->first;
    if (coro) {
        own->first = coro->next;
        own->count--;
    }
    return coro;
}

static void fetch(struct fl__records *own, uint32_t count)
{
    pthread_mutex_lock(&lock);
    while (own->count < count) {
        struct fl_coro *coro = fl__image_alloc(&images, sizeof(*coro));
        if (!coro)
            break;
        taken++;
        push(own, coro);
    }
    pthread_mutex_unlock(&lock);
}

static void return_until(struct fl__records *own, uint32_t count)
{
    pthread_mutex_lock(&lock);
    while (own->count > count) {
        struct fl_coro *coro = pop(own);
        fl__image_free(&images, coro, sizeof(*coro));
        taken--;
    }
    if (taken == 0) {
        fl__images_destroy(&images);
        images = (struct fl__images){0};
    }
    pthread_mutex_unlock(&lock);
}

struct fl_coro *fl__record_take(struct fl__records *own)
{
    struct fl__records one = {NULL, 0};
    if (!own)
        own = &one;
    if (!own->first)
        fetch(own, own == &one ? 1 : RECORD_BATCH);
    return pop(own);
}

void fl__record_give(struct fl__records *own, struct fl_coro *coro)
{
    struct fl__records one = {NULL, 0};
    if (!own)
        own = &one;
    push(own, coro);
    if (own == &one)
        return_until(own, 0);
    else if (own->count > 2 * RECORD_BATCH)
        return_until(own, RECORD_BATCH);
}

void fl__records_destroy(struct fl__records *own)
{
    if (own->count > 0)
        return_until(own, 0);
}

#endif
