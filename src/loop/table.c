/* SPDX-License-Identifier: MIT */
/* Taking and freeing records: see table.h for the design. */

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "loop/table.h"

#define HUGE_PAGE_BYTES (2u << 20)

static size_t chunk_bytes(unsigned chunk)
{
    return table_capacity(chunk) * sizeof(union slot);
}

static int map_chunk(struct table *t, unsigned k)
{
    struct chunk *chunk = &t->chunk[k];
    union slot *slots = fl__map(chunk_bytes(k));
    if (!slots)
        return FL_NO_MEMORY;
    if (t->huge_pages && chunk_bytes(k) >= HUGE_PAGE_BYTES)
        madvise(slots, chunk_bytes(k), MADV_HUGEPAGE); /* only a wish */
    chunk->slots = slots;
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
    fl__unmap(chunk->slots, chunk_bytes(k));
    chunk->slots = NULL;
    chunk->first_generation = chunk->next_generation;
    t->room &= ~(1u << k);
    t->empty &= ~(1u << k);
}

int fl__table_init(struct table *t, bool huge_pages)
{
    *t = (struct table){.huge_pages = huge_pages};
    return map_chunk(t, 0);
}

void fl__table_destroy(struct table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (t->chunk[k].slots)
            fl__unmap(t->chunk[k].slots, chunk_bytes(k));
}

static int grow(struct table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (!t->chunk[k].slots && t->chunk[k].first_generation <= TABLE_GENERATION_MAX)
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
        chunk->free = table_record(t, slot)->extra;
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

    uint32_t next = record->generation + 1;
    record->state = STATE_FREE;
    if (next > chunk->next_generation)
        chunk->next_generation = next;
    if (next <= TABLE_GENERATION_MAX) {
        record->generation = next;
        record->extra = chunk->free;
        chunk->free = slot;
        t->room |= 1u << k;
    }
    if (--chunk->live == 0)
        keep_one_empty(t, k);
}

uint64_t fl__table_bytes(const struct table *t)
{
    uint64_t bytes = 0;
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (t->chunk[k].slots)
            bytes += t->chunk[k].used * sizeof(union slot);
    return bytes;
}
