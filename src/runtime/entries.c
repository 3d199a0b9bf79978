/* SPDX-License-Identifier: MIT */
/* The table's segments: see entries.h. */

#include <string.h>

#include "base/alloc.h"
#include "runtime/entries.h"

enum { MAX_SEGMENTS = 1 << (31 - SEGMENT_BITS) };

void fl__runtime_segment_has_room(struct entries *table, struct segment *segment)
{
    segment->header.previous = NULL;
    segment->header.next = table->with_room;
    if (table->with_room)
        table->with_room->header.previous = segment;
    table->with_room = segment;
}

void fl__runtime_segment_full(struct entries *table, struct segment *segment)
{
    struct segment_header *header = &segment->header;
    if (header->next)
        header->next->header.previous = header->previous;
    *(header->previous ? &header->previous->header.next : &table->with_room) = header->next;
}

static int grow_directory(struct entries *table)
{
    uint32_t room = table->room ? table->room * 2 : 16;
    if (room > MAX_SEGMENTS)
        return FL_CAPACITY_EXCEEDED;
    struct segment **segments = fl__resize(table->segments, room * sizeof(struct segment *));
    if (!segments)
        return FL_NO_MEMORY;
    memset(segments + table->room, 0, (room - table->room) * sizeof(struct segment *));
    table->segments = segments;
    table->room = room;
    return 0;
}

static struct segment *take_spare(struct entries *table)
{
    struct segment *segment = table->spare;
    table->spare = NULL;
    return segment ? segment : fl__map(SEGMENT_BYTES);
}

int fl__runtime_entries_add_segment(struct entries *table)
{
    while (table->lowest_hole < table->count && table->segments[table->lowest_hole])
        table->lowest_hole++;
    if (table->lowest_hole == table->room) {
        int r = grow_directory(table);
        if (r < 0)
            return r;
    }
    struct segment *segment = take_spare(table);
    if (!segment)
        return FL_NO_MEMORY;
    segment->header = (struct segment_header){.number = table->lowest_hole, .used = SEGMENT_FIRST};
    table->segments[table->lowest_hole++] = segment;
    if (table->count < table->lowest_hole)
        table->count = table->lowest_hole;
    fl__runtime_segment_has_room(table, segment);
    return 0;
}

void fl__runtime_segment_release(struct segment *segment)
{
    if (segment)
        fl__unmap(segment, SEGMENT_BYTES);
}

static void leave_directory(struct entries *table, struct segment *segment)
{
    uint32_t number = segment->header.number;
    if (segment->header.live < SEGMENT_SLOTS)
        fl__runtime_segment_full(table, segment); /* no entry is taken from it any more */
    table->segments[number] = NULL;
    if (table->lowest_hole > number)
        table->lowest_hole = number;
    while (table->count > 0 && !table->segments[table->count - 1])
        table->count--;
}

/* The last one stays: a worker whose only timer comes and goes must not map and unmap. */
void fl__runtime_segment_empty(struct entries *table, struct segment *segment)
{
    if (table->live == 0 && table->count == 1)
        return;
    leave_directory(table, segment);
    if (table->spare)
        fl__runtime_segment_release(segment);
    else
        table->spare = segment;
}

void fl__runtime_segment_detach(struct entries *table, struct segment *segment)
{
    uint32_t base = segment->header.number << SEGMENT_BITS;
    for (uint32_t i = SEGMENT_FIRST; i < segment->header.used; i++)
        table->bucket_live[bucket_of(base | i)] -= segment->slots[i].timer != NULL;
    table->live -= segment->header.live;
    leave_directory(table, segment);
    segment->header.cursor = SEGMENT_FIRST;
}

void fl__runtime_entries_destroy(struct entries *table)
{
    assert(table->live == 0);
    for (uint32_t i = 0; i < table->count; i++)
        fl__runtime_segment_release(table->segments[i]);
    fl__runtime_segment_release(table->spare);
    fl__release(table->segments);
    memset(table, 0, sizeof(*table));
}

/* --- Checking */

static bool segment_is_sound(const struct entries *table, uint32_t number, uint32_t *live)
{
    const struct segment *segment = table->segments[number];
    uint32_t found = 0, free = 0;
    for (uint32_t i = SEGMENT_FIRST; i < segment->header.used; i++) {
        found += segment->slots[i].timer != NULL;
        live[bucket_of(number << SEGMENT_BITS | i)] += segment->slots[i].timer != NULL;
    }
    for (uint32_t i = segment->header.free; i != 0 && free <= SEGMENT_END; i = (uint32_t)segment->slots[i].generation)
        free += segment->slots[i].timer == NULL;
    return segment->header.number == number && segment->header.live == found &&
           free + found + SEGMENT_FIRST == segment->header.used;
}

int fl__runtime_entries_check(const struct entries *table)
{
    uint32_t live[BUCKETS] = {0};
    uint64_t total = 0;
    for (uint32_t i = 0; i < table->count; i++)
        if (table->segments[i] && !segment_is_sound(table, i, live))
            return FL_INVALID_ARGUMENT;
    for (unsigned i = 0; i < BUCKETS; i++) {
        total += live[i];
        if (live[i] != table->bucket_live[i])
            return FL_INVALID_ARGUMENT;
    }
    return total == table->live ? 0 : FL_INVALID_ARGUMENT;
}
