/* SPDX-License-Identifier: MIT */
/* Pools of records: see record.h. */

#include "base/record.h"

#include "base/alloc.h"
#include "base/sanitizer.h"

#if defined(FL__ASAN) || defined(FL__TSAN)

void *fl__record_take(struct fl__record_pool *pool, struct fl__records *own)
{
    (void)own;
    return fl__alloc(pool->size);
}

void fl__record_give(struct fl__record_pool *pool, struct fl__records *own, void *record)
{
    (void)pool, (void)own;
    fl__release(record);
}

void fl__records_destroy(struct fl__record_pool *pool, struct fl__records *own)
{
    (void)pool, (void)own;
}

#else

/* What a free one begins with. */
struct fl__record {
    struct fl__record *next;
};

static void push(struct fl__records *own, void *block)
{
    struct fl__record *record = block;
    record->next = own->first;
    own->first = record;
    own->count++;
}

static void *pop(struct fl__records *own)
{
    struct fl__record *record = own->first;
    if (record) {
        own->first = record->next;
        own->count--;
    }
    return record;
}

static void fetch(struct fl__record_pool *pool, struct fl__records *own, uint32_t count)
{
    pthread_mutex_lock(&pool->lock);
    while (own->count < count) {
        void *record = fl__image_alloc(&pool->images, pool->size);
        if (!record)
            break;
        pool->taken++;
        push(own, record);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void return_until(struct fl__record_pool *pool, struct fl__records *own, uint32_t count)
{
    pthread_mutex_lock(&pool->lock);
    while (own->count > count) {
        fl__image_free(&pool->images, pop(own), pool->size);
        pool->taken--;
    }
    if (pool->taken == 0) {
        fl__images_destroy(&pool->images);
        pool->images = (struct fl__images){0};
    }
    pthread_mutex_unlock(&pool->lock);
}

void *fl__record_take(struct fl__record_pool *pool, struct fl__records *own)
{
    struct fl__records one = {NULL, 0};
    if (!own)
        own = &one;
    if (!own->first)
        fetch(pool, own, own == &one ? 1 : RECORD_BATCH);
    return pop(own);
}

void fl__record_give(struct fl__record_pool *pool, struct fl__records *own, void *record)
{
    struct fl__records one = {NULL, 0};
    if (!own)
        own = &one;
    push(own, record);
    if (own == &one)
        return_until(pool, own, 0);
    else if (own->count > 2 * RECORD_BATCH)
        return_until(pool, own, RECORD_BATCH);
}

void fl__records_destroy(struct fl__record_pool *pool, struct fl__records *own)
{
    if (own->count > 0)
        return_until(pool, own, 0);
}

#endif
