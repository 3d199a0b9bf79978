/* SPDX-License-Identifier: MIT */
/* The less frequent ways of the table: see table.h for the design. */

#include <assert.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "loop/table.h"

#define HUGE_PAGE_BYTES (2u << 20)

enum { TRIM_RECORDS = HUGE_PAGE_BYTES / sizeof(struct loop_record) };

/* A mapping's size is a power of two; its end is never touched. */
static size_t chunk_bytes(unsigned h)
{
    return (size_t)64 << h;
}

_Static_assert(sizeof(struct loop_record) + sizeof(uint32_t) <= 64, "a chunk has less room than it says");

static char *chunk_memory(const struct loop_table *t, unsigned h)
{
    return (char *)chunk_entry(&t->chunk[h], 1u << h).record;
}

static size_t record_bytes(unsigned h)
{
    return sizeof(struct loop_record) << h;
}

static void set_chunk(struct loop_table *t, unsigned h, void *records, void *tags)
{
    uint32_t first = 1u << h;
    t->chunk[h] = (struct loop_chunk){.records = (uintptr_t)records - first * sizeof(struct loop_record),
                                      .tags = (uintptr_t)tags - first * sizeof(uint32_t),
                                      .next = first,
                                      .end = 2 * first};
    t->span[h].begin = first;
    assert(t->chunk[h].records != 0 && t->chunk[h].tags != 0);
}

static int map_chunk(struct loop_table *t, unsigned h)
{
    assert(t->chunk[h].records == 0 && h >= TABLE_FIRST);
    char *memory = fl__map(chunk_bytes(h));
    if (!memory)
        return FL_NO_MEMORY;
    if (t->huge_pages && chunk_bytes(h) >= HUGE_PAGE_BYTES)
        madvise(memory, chunk_bytes(h), MADV_HUGEPAGE); /* only a wish */
    set_chunk(t, h, memory, memory + record_bytes(h));
    t->last_mapped = h;
    t->from = &t->chunk[h];
    return 0;
}

int fl__loop_table_init(struct loop_table *t, bool huge_pages)
{
    *t = (struct loop_table){.limit = TABLE_LIMIT,
                             .worn_tag = (uint32_t)TABLE_GENERATION_MAX << TAG_GENERATION_SHIFT,
                             .last = TABLE_SLOT_BITS - 1,
                             .huge_pages = huge_pages};
    set_chunk(t, HEADS_CHUNK, t->heads, t->head_tags);
    for (uint32_t i = 0; i < HEADS; i++) {
        t->head_tags[i] = STATE_HEAD;
        table_list_init(t, HEADS_BEGIN + i);
    }
    return map_chunk(t, TABLE_FIRST);
}

static void release_extras(struct loop_table *t, unsigned h)
{
    for (uint32_t slot = t->span[h].begin; slot < t->chunk[h].next && t->extras > 0; slot++)
        if (*table_entry(t, slot).tag & TAG_EXTENDED)
            fl__loop_table_shorten(t, table_entry(t, slot));
}

void fl__loop_table_destroy(struct loop_table *t)
{
    for (unsigned h = TABLE_FIRST; h <= t->last_mapped; h++) {
        release_extras(t, h);
        fl__unmap(chunk_memory(t, h), chunk_bytes(h));
    }
}

/* All slots are taken or worn: those that are worn start over. Returns whether there were any. */
static bool start_over(struct loop_table *t)
{
    bool any = false;
    for (unsigned h = t->last; h >= TABLE_FIRST; h--) {
        struct loop_chunk *chunk = &t->chunk[h];
        assert(chunk->free == 0 && chunk->next == chunk->end);
        for (uint32_t slot = chunk->end - 1; slot >= 1u << h; slot--) {
            struct loop_entry e = chunk_entry(chunk, slot);
            if (entry_state(e) != STATE_FREE)
                continue;
            *e.tag = 0;
            e.record->next_free = chunk->free;
            chunk->free = slot;
            t->from = chunk;
            any = true;
        }
        t->span[h].begin = 1u << h;
    }
    return any;
}

/* The chunk that gave out slots has none left. */
static int find_room(struct loop_table *t)
{
    unsigned h = (unsigned)(t->from - t->chunk);
    if (h < t->last_mapped) {
        t->from++;
        return 0;
    }
    if (h < t->last)
        return map_chunk(t, h + 1);
    return start_over(t) ? 0 : FL_CAPACITY_EXCEEDED;
}

/* The first slot of the chunk is worn: it is in no list from now on. */
static void drop_worn(struct loop_table *t)
{
    struct loop_entry e = chunk_entry(t->from, chunk_first(t->from));
    uint32_t *begin = &t->span[t->from - t->chunk].begin;
    assert(*e.tag >= t->worn_tag);
    chunk_pop(t->from, e);
    *begin += e.slot == *begin;
}

int fl__loop_table_take(struct loop_table *t, enum loop_record_state state, struct loop_entry *ret)
{
    while (!table_try_take(t, state, ret)) {
        if (t->live == t->limit)
            return FL_CAPACITY_EXCEEDED;
        if (chunk_first(t->from) != t->from->end) {
            drop_worn(t);
            continue;
        }
        int r = find_room(t);
        if (r < 0)
            return r;
    }
    return 0;
}

static uint32_t at_least(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

void fl__loop_table_restart(struct loop_table *t, struct loop_chunk *chunk)
{
    assert(chunk->live == 0);
    struct loop_span *span = &t->span[chunk - t->chunk];
    span->reach = at_least(span->reach, chunk->next);
    span->used = at_least(span->used, chunk->next);
    chunk->next = span->begin;
    chunk->free = 0;
    t->may_trim = true;
}

/* Gives back the last of the records of an empty chunk. Returns false if there are none, or the kernel refuses. */
static bool trim_chunk(struct loop_table *t, unsigned h)
{
    struct loop_span *span = &t->span[h];
    uint32_t first = 1u << h, reach = at_least(first, span->reach), from = (reach - 1) & ~(TRIM_RECORDS - 1u);
    if (reach == first)
        return false;
    from = at_least(first, from);
    void *memory = table_entry(t, from).record;
    if (madvise(memory, (reach - from) * sizeof(struct loop_record), MADV_DONTNEED) < 0)
        return false;
    span->reach = from;
    return true;
}

void fl__loop_table_trim(struct loop_table *t)
{
    bool kept = false, trimmed = false;
    for (unsigned h = TABLE_FIRST; h <= t->last_mapped && !trimmed; h++) {
        bool is_empty =
            t->chunk[h].live == 0 && !t->chunk[h].free; /* the list of free slots goes through the records */
        trimmed = is_empty && kept && trim_chunk(t, h);
        kept = kept || is_empty;
    }
    t->may_trim = trimmed;
}

/* --- Extras */

int fl__loop_table_extend(struct loop_table *t, struct loop_entry e, const struct loop_extra *values)
{
    struct loop_extra *extra = fl__alloc(sizeof(*extra));
    assert(!(*e.tag & TAG_EXTENDED));
    if (!extra)
        return FL_NO_MEMORY;
    *extra = *values;
    extra->arg = e.record->arg;
    e.record->extra = extra;
    *e.tag |= TAG_EXTENDED;
    t->extras++;
    return 0;
}

void fl__loop_table_shorten(struct loop_table *t, struct loop_entry e)
{
    assert(*e.tag & TAG_EXTENDED && t->extras > 0);
    fl__release(e.record->extra);
    *e.tag &= ~(uint32_t)TAG_EXTENDED;
    t->extras--;
}

uint64_t fl__loop_table_bytes(const struct loop_table *t)
{
    uint64_t bytes = t->extras * sizeof(struct loop_extra);
    for (unsigned h = TABLE_FIRST; h <= t->last_mapped; h++) {
        uint32_t next = t->chunk[h].next, first = 1u << h;
        bytes += (at_least(next, t->span[h].reach) - first) * sizeof(struct loop_record);
        bytes += (at_least(next, t->span[h].used) - first) * sizeof(uint32_t);
    }
    return bytes;
}
