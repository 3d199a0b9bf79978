/* SPDX-License-Identifier: MIT */
/* Timers by their IDs: see table.h. */

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "webtimers/webtimers.h"

enum { SPARE_CHUNKS = 1 }; /* that are not worth giving back */

_Static_assert(sizeof(struct timer) == 32, "a timer is half a cache line");

void fl__timer_table_init(struct timer_table *table, void *owner)
{
    memset(table, 0, sizeof(*table));
    table->owner = owner;
    table->index = table->smallest;
    table->mask = TABLE_SMALLEST - 1;
}

/* --- Chunks */

static void link_chunk(struct timer_chunk **list, struct timer_chunk *chunk)
{
    chunk->previous = NULL;
    chunk->next = *list;
    if (chunk->next)
        chunk->next->previous = chunk;
    *list = chunk;
}

static void unlink_chunk(struct timer_chunk **list, struct timer_chunk *chunk)
{
    if (chunk->next)
        chunk->next->previous = chunk->previous;
    if (chunk->previous)
        chunk->previous->next = chunk->next;
    else
        *list = chunk->next;
}

static struct timer_chunk *new_chunk(struct timer_table *table)
{
    struct timer_chunk *chunk = fl__map(TABLE_CHUNK_SIZE);
    if (!chunk)
        return NULL;
    chunk->owner = table->owner;
    for (uint32_t i = TABLE_CHUNK_TIMERS; i-- > 0;) {
        chunk->timers[i].handler = chunk->free;
        chunk->free = &chunk->timers[i];
    }
    return chunk;
}

/* A chunk with room, at the head of its list. NULL: no memory. */
static struct timer_chunk *chunk_with_room(struct timer_table *table)
{
    struct timer_chunk *chunk = table->partial;
    if (chunk)
        return chunk;
    chunk = table->spare;
    if (chunk) {
        unlink_chunk(&table->spare, chunk);
        table->spare_chunks--;
    } else {
        chunk = new_chunk(table);
    }
    if (chunk) {
        link_chunk(&table->partial, chunk);
        table->used_chunks++;
    }
    return chunk;
}

static struct timer *take_from_chunk(struct timer_table *table)
{
    struct timer_chunk *chunk = chunk_with_room(table);
    if (!chunk)
        return NULL;
    struct timer *timer = chunk->free;
    chunk->free = timer->handler;
    chunk->live++;
    if (!chunk->free)
        unlink_chunk(&table->partial, chunk);
    return timer;
}

static void put_into_chunk(struct timer_table *table, struct timer *timer)
{
    struct timer_chunk *chunk = timer_chunk_of(timer);
    if (!chunk->free)
        link_chunk(&table->partial, chunk);
    timer->id = 0;
    timer->handler = chunk->free;
    chunk->free = timer;
    if (--chunk->live > 0)
        return;
    unlink_chunk(&table->partial, chunk);
    link_chunk(&table->spare, chunk);
    table->used_chunks--;
    table->spare_chunks++;
}

static void drop_spare(struct timer_table *table)
{
    struct timer_chunk *chunk = table->spare;
    unlink_chunk(&table->spare, chunk);
    table->spare_chunks--;
    fl__unmap(chunk, TABLE_CHUNK_SIZE);
}

void fl__timer_table_trim(struct timer_table *table)
{
    if (table->spare_chunks > table->used_chunks + SPARE_CHUNKS)
        drop_spare(table);
}

/* --- The index */

static void leave_index(struct timer_table *table)
{
    if (table->index != table->smallest)
        fl__release(table->index);
    table->index = table->smallest;
    table->mask = TABLE_SMALLEST - 1;
}

static bool make_room(struct timer_table *table)
{
    uint64_t length = (uint64_t)table->mask + 1;
    if (table->count + UINT64_C(1) <= length / 4 * 3)
        return true;
    struct timer **index = fl__alloc_zeroed(2 * length * sizeof(void *));
    if (!index)
        return false;
    uint32_t mask = (uint32_t)(2 * length - 1);
    for (uint32_t i = 0; i <= table->mask; i++)
        if (table->index[i])
            index[(uint32_t)table->index[i]->id & mask] = table->index[i];
    leave_index(table);
    memset(table->smallest, 0, sizeof(table->smallest));
    table->index = index;
    table->mask = mask;
    return true;
}

static int32_t next_id(struct timer_table *table)
{
    do
        table->newest = table->newest == INT32_MAX ? 1 : table->newest + 1;
    while (table->index[(uint32_t)table->newest & table->mask]);
    return table->newest;
}

struct timer *fl__timer_table_take(struct timer_table *table)
{
    struct timer *timer = make_room(table) ? take_from_chunk(table) : NULL;
    if (!timer)
        return NULL;
    *timer = (struct timer){.id = next_id(table)};
    table->index[(uint32_t)timer->id & table->mask] = timer;
    table->count++;
    return timer;
}

void fl__timer_table_put(struct timer_table *table, struct timer *timer)
{
    assert(timer_table_find(table, timer->id) == timer);
    table->index[(uint32_t)timer->id & table->mask] = NULL;
    put_into_chunk(table, timer);
    if (--table->count > 0)
        return;
    leave_index(table);
    while (table->spare_chunks > SPARE_CHUNKS)
        drop_spare(table);
}

void fl__timer_table_destroy(struct timer_table *table)
{
    assert(table->count == 0 && table->used_chunks == 0);
    while (table->spare)
        drop_spare(table);
    leave_index(table);
}
