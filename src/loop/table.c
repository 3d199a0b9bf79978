/* SPDX-License-Identifier: MIT */
/* Taking and freeing records: see table.h for the design. */

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "loop/table.h"

#define HUGE_PAGE_BYTES (2u << 20)

/* A mapping's size is a power of two; its end is never touched. */
static size_t chunk_bytes(unsigned chunk)
{
    return (size_t)table_capacity(chunk) * 32;
}

_Static_assert(sizeof(struct record) <= 32, "a chunk has less room than it says");

static int map_chunk(struct table *t, unsigned k)
{
    struct chunk *chunk = &t->chunk[k];
    struct record *records = fl__map(chunk_bytes(k));
    if (!records)
        return FL_NO_MEMORY;
    if (t->huge_pages && chunk_bytes(k) >= HUGE_PAGE_BYTES)
        madvise(records, chunk_bytes(k), MADV_HUGEPAGE); /* only a wish */
    chunk->records = records;
    chunk->used = chunk->live = chunk->free = 0;
    if (chunk->first_generation == 0)
        chunk->first_generation = chunk->next_generation = 1;
    t->room |= 1u << k;
    t->empty |= 1u << k;
    return 0;
}

/* Slots of this chunk that come back later begin where the last of its IDs ended. */
static void unmap_chunk(struct table *t, unsigned k)
{
    struct chunk *chunk = &t->chunk[k];
    assert(chunk->live == 0);
    fl__unmap(chunk->records, chunk_bytes(k));
    chunk->records = NULL;
    chunk->first_generation = chunk->next_generation;
    t->room &= ~(1u << k);
    t->empty &= ~(1u << k);
}

int fl__table_init(struct table *t, bool huge_pages)
{
    *t = (struct table){.huge_pages = huge_pages};
    return map_chunk(t, 0);
}

static void release_extras(struct table *t, const struct chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->used && t->extras > 0; i++)
        if (chunk->records[i].state != STATE_FREE && chunk->records[i].has_extra)
            fl__table_shorten(t, &chunk->records[i]);
}

void fl__table_destroy(struct table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++) {
        if (!t->chunk[k].records)
            continue;
        release_extras(t, &t->chunk[k]);
        fl__unmap(t->chunk[k].records, chunk_bytes(k));
    }
}

static int grow(struct table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (!t->chunk[k].records && t->chunk[k].first_generation <= TABLE_GENERATION_MAX)
            return map_chunk(t, k);
    return FL_CAPACITY_EXCEEDED;
}

int fl__table_take(struct table *t, uint32_t *ret_slot)
{
    if (t->room == 0) {
        int r = grow(t);
        if (r < 0)
            return r;
    }
    unsigned k = __builtin_ctz(t->room);
    struct chunk *chunk = &t->chunk[k];
    uint32_t slot = chunk->free;
    if (slot) {
        chunk->free = table_record(t, slot)->link.next;
    } else {
        slot = table_capacity(k) + chunk->used++;
        table_record(t, slot)->generation = chunk->first_generation;
    }
    if (!chunk->free && chunk->used == table_capacity(k))
        t->room &= ~(1u << k);
    chunk->live++;
    t->empty &= ~(1u << k);
    *ret_slot = slot;
    return 0;
}

/* Chunk k has no record left. Of two empty chunks the larger goes; the first one always stays. */
static void keep_one_empty(struct table *t, unsigned k)
{
    t->empty |= 1u << k;
    uint32_t others = t->empty & (t->empty - 1);
    if (others)
        unmap_chunk(t, 31 - __builtin_clz(others));
}

void fl__table_put(struct table *t, uint32_t slot)
{
    unsigned k = table_chunk_of(slot);
    struct chunk *chunk = &t->chunk[k];
    struct record *record = table_record(t, slot);
    assert(record->state != STATE_FREE && chunk->live > 0);

    if (record->has_extra)
        fl__table_shorten(t, record);
    uint32_t next = record->generation + 1;
    record->state = STATE_FREE;
    if (next > chunk->next_generation)
        chunk->next_generation = next;
    if (next <= TABLE_GENERATION_MAX) {
        record->generation = next;
        record->link.next = chunk->free;
        chunk->free = slot;
        t->room |= 1u << k;
    }
    if (--chunk->live == 0)
        keep_one_empty(t, k);
}

int fl__table_extend(struct table *t, struct record *record, const struct extra *values)
{
    struct extra *extra = fl__alloc(sizeof(*extra));
    assert(!record->has_extra);
    if (!extra)
        return FL_NO_MEMORY;
    *extra = *values;
    extra->timer = record->timer;
    record->extra = extra;
    record->has_extra = true;
    t->extras++;
    return 0;
}

void fl__table_shorten(struct table *t, struct record *record)
{
    struct extra *extra = record->extra;
    assert(record->has_extra && t->extras > 0);
    record->timer = extra->timer;
    record->has_extra = false;
    fl__release(extra);
    t->extras--;
}

bool fl__table_pack(struct table *t, fl_loop_fn fn, uint32_t *ret)
{
    uintptr_t address = (uintptr_t)fn, offset = address & ((1u << TABLE_WINDOW_BITS) - 1);
    unsigned i = 0;
    while (i < t->windows && t->window[i] != address - offset)
        i++;
    if (i == TABLE_WINDOWS)
        return false;
    t->window[i] = address - offset;
    t->windows = i < t->windows ? t->windows : i + 1;
    *ret = (uint32_t)i << TABLE_WINDOW_BITS | (uint32_t)offset;
    return true;
}

uint64_t fl__table_bytes(const struct table *t)
{
    uint64_t bytes = t->extras * sizeof(struct extra);
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (t->chunk[k].records)
            bytes += t->chunk[k].used * sizeof(struct record);
    return bytes;
}
