/* SPDX-License-Identifier: MIT */
/* Timers by their IDs: see table.h. */

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "webtimers/table.h"

_Static_assert(sizeof(struct timer) == 32, "a timer is half a cache line");

void fl__timer_table_init(struct timer_table *table, void *owner)
{
    memset(table, 0, sizeof(*table));
    table->owner = owner;
    table->index = table->smallest;
    table->mask = TABLE_SMALLEST - 1;
}

/* --- Chunks */

static void link_partial(struct timer_table *table, struct timer_chunk *chunk)
{
    chunk->previous = NULL;
    chunk->next = table->partial;
    if (chunk->next)
        chunk->next->previous = chunk;
    table->partial = chunk;
}

static void unlink_partial(struct timer_table *table, struct timer_chunk *chunk)
{
    if (chunk->next)
        chunk->next->previous = chunk->previous;
    if (chunk->previous)
        chunk->previous->next = chunk->next;
    else
        table->partial = chunk->next;
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
    link_partial(table, chunk);
    return chunk;
}

static struct timer *take_from_chunk(struct timer_table *table)
{
    struct timer_chunk *chunk = table->partial ? table->partial : new_chunk(table);
    if (!chunk)
        return NULL;
    struct timer *timer = chunk->free;
    chunk->free = timer->handler;
    chunk->live++;
    if (!chunk->free)
        unlink_partial(table, chunk);
    return timer;
}

static void put_into_chunk(struct timer_table *table, struct timer *timer)
{
    struct timer_chunk *chunk = timer_chunk_of(timer);
    if (!chunk->free)
        link_partial(table, chunk);
    timer->id = 0;
    timer->handler = chunk->free;
    chunk->free = timer;
    if (--chunk->live > 0 || (table->partial == chunk && !chunk->next))
        return;
    unlink_partial(table, chunk);
    fl__unmap(chunk, TABLE_CHUNK_SIZE);
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
    if (--table->count == 0)
        leave_index(table);
}

void fl__timer_table_destroy(struct timer_table *table)
{
    assert(table->count == 0);
    if (table->partial) {
        assert(!table->partial->next && table->partial->live == 0);
        fl__unmap(table->partial, TABLE_CHUNK_SIZE);
    }
    leave_index(table);
}
