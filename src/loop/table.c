/* SPDX-License-Identifier: MIT */
/* The less frequent ways of the table: see table.h for the design. */

#include <assert.h>
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
    *chunk = (struct chunk){.first_generation = chunk->first_generation};
    t->base[TABLE_FIRST_BITS + k] = (uintptr_t)records - (uintptr_t)table_capacity(k) * sizeof(*records);
    assert(t->base[TABLE_FIRST_BITS + k] != 0);
    if (chunk->first_generation == 0)
        chunk->first_generation = 1;
    t->room |= 1u << k;
    t->empty |= 1u << k;
    return 0;
}

static bool is_there(const struct table *t, unsigned k)
{
    return table_is_mapped(t, table_capacity(k));
}

static struct record *records_of(const struct table *t, unsigned k)
{
    return table_record(t, table_capacity(k));
}

/* Slots of this chunk that come back later begin where the last of its IDs ended. */
static void unmap_chunk(struct table *t, unsigned k)
{
    struct chunk *chunk = &t->chunk[k];
    struct record *records = records_of(t, k);
    assert(chunk->live == 0);
    for (uint32_t i = 0; i < chunk->used; i++)
        if (record_generation(&records[i]) > chunk->first_generation)
            chunk->first_generation = record_generation(&records[i]);
    fl__unmap(records, chunk_bytes(k));
    t->base[TABLE_FIRST_BITS + k] = 0;
    t->room &= ~(1u << k);
    t->empty &= ~(1u << k);
}

int fl__table_init(struct table *t, bool huge_pages)
{
    *t = (struct table){.huge_pages = huge_pages};
    t->window[0] = UINTPTR_MAX / 2 + 1; /* no code is there */
    return map_chunk(t, 0);
}

static void release_extras(struct table *t, unsigned k)
{
    struct record *records = records_of(t, k);
    for (uint32_t i = 0; i < t->chunk[k].used && t->extras > 0; i++)
        if (records[i].tag & RECORD_EXTRA)
            fl__table_shorten(t, &records[i]);
}

void fl__table_destroy(struct table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++) {
        if (!is_there(t, k))
            continue;
        release_extras(t, k);
        fl__unmap(records_of(t, k), chunk_bytes(k));
    }
}

/* A chunk whose first generation is the last one may have slots that have used it up: it is left out. */
static int grow(struct table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (!is_there(t, k) && t->chunk[k].first_generation < TABLE_GENERATION_MAX)
            return map_chunk(t, k);
    return FL_CAPACITY_EXCEEDED;
}

int fl__table_take(struct table *t, uint32_t *ret_slot, struct record **ret)
{
    struct record *record;
    while (!(record = table_try_take(t, ret_slot))) {
        int r = 0;
        if (t->room)
            t->room &= t->room - 1; /* the chunk has filled up */
        else
            r = grow(t);
        if (r < 0)
            return r;
    }
    record_set_state(record, STATE_RUNNING);
    *ret = record;
    return 0;
}

/* Of two empty chunks the larger goes; so the first one always stays. */
void fl__table_emptied(struct table *t, unsigned k)
{
    t->empty |= 1u << k;
    for (uint32_t left = t->empty; left; left &= left - 1)
        if (t->chunk[__builtin_ctz(left)].live > 0)
            t->empty &= ~(left & -left);
    uint32_t others = t->empty & (t->empty - 1);
    if (others)
        unmap_chunk(t, 31 - (unsigned)__builtin_clz(others));
}

int fl__table_extend(struct table *t, struct record *record, const struct extra *values)
{
    struct extra *extra = fl__alloc(sizeof(*extra));
    assert(!(record->tag & RECORD_EXTRA));
    if (!extra)
        return FL_NO_MEMORY;
    *extra = *values;
    extra->timer = record->timer;
    record->extra = extra;
    record->tag |= RECORD_EXTRA;
    t->extras++;
    return 0;
}

void fl__table_shorten(struct table *t, struct record *record)
{
    struct extra *extra = record->extra;
    assert(record->tag & RECORD_EXTRA && t->extras > 0);
    record->timer = extra->timer;
    record->tag &= ~(uint32_t)RECORD_EXTRA;
    fl__release(extra);
    t->extras--;
}

bool fl__table_pack_elsewhere(struct table *t, uintptr_t window, uint32_t offset, uint32_t *ret)
{
    unsigned i = 0;
    while (i < t->windows && t->window[i] != window)
        i++;
    if (i == TABLE_WINDOWS)
        return false;
    t->window[i] = window;
    t->windows = i < t->windows ? t->windows : i + 1;
    *ret = i << TABLE_WINDOW_BITS | offset;
    return true;
}

uint64_t fl__table_bytes(const struct table *t)
{
    uint64_t bytes = t->extras * sizeof(struct extra);
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (is_there(t, k))
            bytes += t->chunk[k].used * sizeof(struct record);
    return bytes;
}
