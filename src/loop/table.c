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
    return (size_t)table_capacity(chunk) * 64;
}

_Static_assert(sizeof(struct loop_record) <= 64, "a chunk has less room than it says");

static uint32_t block_count(unsigned chunk)
{
    return table_capacity(chunk) >> BLOCK_BITS;
}

static bool is_there(const struct loop_table *t, unsigned k)
{
    return table_is_mapped(t, table_capacity(k));
}

static struct loop_record *records_of(const struct loop_table *t, unsigned k)
{
    assert(is_there(t, k));
    return table_record(t, table_capacity(k));
}

static bool is_worn(const struct loop_table *t, const struct loop_block *block)
{
    return block->generation > t->last_generation;
}

/* --- Chunks */

static int make_blocks(struct loop_table *t, unsigned k)
{
    struct loop_chunk *chunk = &t->chunk[k];
    if (chunk->blocks)
        return 0;
    chunk->blocks = fl__alloc_zeroed(block_count(k) * sizeof(*chunk->blocks));
    if (!chunk->blocks)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < block_count(k); i++)
        chunk->blocks[i].generation = 1;
    t->blocks[TABLE_FIRST_BITS + k] = (uintptr_t)chunk->blocks - block_count(k) * sizeof(*chunk->blocks);
    return 0;
}

static int map_chunk(struct loop_table *t, unsigned k)
{
    assert(!is_there(t, k) && t->chunk[k].live == 0);
    int r = make_blocks(t, k);
    if (r < 0)
        return r;
    struct loop_record *records = fl__map(chunk_bytes(k));
    if (!records)
        return FL_NO_MEMORY;
    if (t->huge_pages && chunk_bytes(k) >= HUGE_PAGE_BYTES)
        madvise(records, chunk_bytes(k), MADV_HUGEPAGE); /* only a wish */
    t->base[TABLE_FIRST_BITS + k] = (uintptr_t)records - (uintptr_t)table_capacity(k) * sizeof(*records);
    assert(t->base[TABLE_FIRST_BITS + k] != 0);
    t->room |= 1u << k;
    t->empty |= 1u << k;
    return 0;
}

static void open_none(struct loop_table *t)
{
    t->none = (struct loop_block){.touched = BLOCK_SLOTS};
    t->open = &t->none;
    t->open_chunk = NULL;
    t->open_base = 0;
    t->open_number = t->open_tag = 0;
}

/* The rounds of its blocks end: what comes back later has other generations. */
static void unmap_chunk(struct loop_table *t, unsigned k)
{
    struct loop_chunk *chunk = &t->chunk[k];
    assert(chunk->live == 0);
    if (t->open_chunk == chunk)
        open_none(t);
    for (uint32_t i = 0; i < chunk->begun; i++) {
        struct loop_block *block = &chunk->blocks[i];
        bool worn = is_worn(t, block);
        *block = (struct loop_block){.generation = block->generation + !worn};
        chunk->worn += is_worn(t, block) && !worn;
    }
    chunk->begun = chunk->roomy = 0;
    fl__unmap(records_of(t, k), chunk_bytes(k));
    t->base[TABLE_FIRST_BITS + k] = 0;
    t->room &= ~(1u << k);
    t->empty &= ~(1u << k);
}

int fl__loop_table_init(struct loop_table *t, bool huge_pages)
{
    *t = (struct loop_table){.limit = TABLE_LIMIT, .last_generation = TABLE_GENERATION_MAX, .huge_pages = huge_pages};
    open_none(t);
    return map_chunk(t, 0);
}

static void release_extras(struct loop_table *t, unsigned k)
{
    assert(is_there(t, k));
    struct loop_record *records = records_of(t, k);
    for (uint32_t i = 0; i < t->chunk[k].begun * BLOCK_SLOTS && t->extras > 0; i++)
        if (records[i].extra)
            fl__loop_table_shorten(t, &records[i]);
}

void fl__loop_table_destroy(struct loop_table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++) {
        fl__release(t->chunk[k].blocks);
        if (!is_there(t, k))
            continue;
        release_extras(t, k);
        fl__unmap(records_of(t, k), chunk_bytes(k));
    }
}

/* --- Blocks */

/* A block whose round is over has room for another one. If that was the last, the block is worn. */
static void add_room(struct loop_table *t, unsigned k, uint32_t number)
{
    assert(number >= block_count(k) && number < 2 * block_count(k));
    struct loop_chunk *chunk = &t->chunk[k];
    struct loop_block *block = table_block(t, number << BLOCK_BITS);
    if (block->generation >= t->last_generation) {
        block->generation = t->last_generation + 1;
        chunk->worn++;
        return;
    }
    block->free = chunk->roomy;
    chunk->roomy = number;
    t->room |= 1u << k;
}

/* The open block has nothing left. */
static void close_block(struct loop_table *t)
{
    assert(t->open != &t->none && !t->open->free);
    uint32_t number = t->open_number;
    bool room = t->open->returned_count >= BLOCK_ROOM;
    open_none(t);
    if (room)
        add_room(t, table_chunk_of(number << BLOCK_BITS), number);
}

static void open_block(struct loop_table *t, unsigned k, uint32_t number)
{
    assert(t->open == &t->none && is_there(t, k));
    t->open = table_block(t, number << BLOCK_BITS);
    t->open_chunk = &t->chunk[k];
    t->open_base = t->base[TABLE_FIRST_BITS + k];
    t->open_number = number;
    t->open_tag = t->open->generation << RECORD_GENERATION_SHIFT;
}

/* Opens a block of chunk k: one that has room for a new round, or one that has not been used since the chunk was mapped. */
static bool open_in_chunk(struct loop_table *t, unsigned k)
{
    struct loop_chunk *chunk = &t->chunk[k];
    uint32_t number = chunk->roomy;
    if (number) {
        struct loop_block *block = table_block(t, number << BLOCK_BITS);
        chunk->roomy = block->free;
        *block = (struct loop_block){
            .free = block->returned, .generation = block->generation + 1, .touched = block->touched};
        open_block(t, k, number);
        return true;
    }
    while (chunk->begun < block_count(k)) {
        number = block_count(k) + chunk->begun++;
        if (is_worn(t, table_block(t, number << BLOCK_BITS)))
            continue;
        open_block(t, k, number);
        return true;
    }
    return false;
}

/* Everything is in use or worn: those that are worn start over. Returns whether there were any. */
static bool start_over(struct loop_table *t)
{
    bool any = false;
    for (unsigned k = 0; k < TABLE_CHUNKS; k++) {
        struct loop_chunk *chunk = &t->chunk[k];
        any = any || chunk->worn > 0;
        chunk->worn = 0;
        for (uint32_t i = 0; chunk->blocks && i < block_count(k); i++) {
            if (!is_worn(t, &chunk->blocks[i]))
                continue;
            chunk->blocks[i].generation = i < chunk->begun ? 0 : 1;
            if (i < chunk->begun)
                add_room(t, k, block_count(k) + i);
        }
    }
    return any;
}

static int grow(struct loop_table *t)
{
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        if (!is_there(t, k) && t->chunk[k].worn < block_count(k))
            return map_chunk(t, k);
    return start_over(t) ? 0 : FL_CAPACITY_EXCEEDED;
}

static int open_another(struct loop_table *t)
{
    if (t->open != &t->none)
        close_block(t);
    while (t->room) {
        unsigned k = (unsigned)__builtin_ctz(t->room);
        if (open_in_chunk(t, k))
            return 0;
        t->room &= ~(1u << k);
    }
    return grow(t);
}

int fl__loop_table_take(struct loop_table *t, struct loop_record **ret)
{
    struct loop_record *record;
    while (!(record = table_try_take(t))) {
        int r = t->live == t->limit ? FL_CAPACITY_EXCEEDED : open_another(t);
        if (r < 0)
            return r;
    }
    *ret = record;
    return 0;
}

/* Unmaps empty chunks, except for the smallest that has blocks left. */
static void emptied(struct loop_table *t, unsigned k)
{
    assert(t->chunk[k].live == 0 && is_there(t, k));
    bool kept = false;
    t->empty |= 1u << k;
    for (uint32_t left = t->empty; left; left &= left - 1) {
        k = (unsigned)__builtin_ctz(left);
        if (t->chunk[k].live > 0)
            t->empty &= ~(1u << k);
        else if (kept || t->chunk[k].worn == block_count(k))
            unmap_chunk(t, k);
        else
            kept = true;
    }
}

void fl__loop_table_has_room(struct loop_table *t, uint32_t slot)
{
    unsigned k = table_chunk_of(slot);
    const struct loop_block *block = table_block(t, slot);
    if (block->returned_count == BLOCK_ROOM && block != t->open)
        add_room(t, k, slot >> BLOCK_BITS);
    if (t->chunk[k].live == 0)
        emptied(t, k);
}

/* --- Extras */

int fl__loop_table_extend(struct loop_table *t, struct loop_record *record, const struct loop_extra *values)
{
    struct loop_extra *extra = fl__alloc(sizeof(*extra));
    assert(!record->extra);
    if (!extra)
        return FL_NO_MEMORY;
    *extra = *values;
    record->extra = extra;
    t->extras++;
    return 0;
}

void fl__loop_table_shorten(struct loop_table *t, struct loop_record *record)
{
    assert(record->extra && t->extras > 0);
    fl__release(record->extra);
    record->extra = NULL;
    t->extras--;
}

uint64_t fl__loop_table_bytes(const struct loop_table *t)
{
    uint64_t bytes = t->extras * sizeof(struct loop_extra);
    for (unsigned k = 0; k < TABLE_CHUNKS; k++) {
        bytes += t->chunk[k].blocks ? block_count(k) * sizeof(struct loop_block) : 0;
        bytes += t->chunk[k].begun * BLOCK_SLOTS * sizeof(struct loop_record);
    }
    return bytes;
}
