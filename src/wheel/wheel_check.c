/* SPDX-License-Identifier: MIT */
/* The one definition of a legal wheel with IDs: its rings (see rings_check.c), its cells, and that they agree. */

#include "wheel/wheel.h"

static bool broken(FILE *explain, const char *what)
{
    if (explain)
        fprintf(explain, "%s\n", what);
    return false;
}

static bool check_chunk(const struct cell_chunk *chunk, FILE *explain)
{
    uint32_t taken = 0, cells = 0;
    bool is_sound = (chunk->state == CHUNK_OPEN || chunk->state == CHUNK_PACKED) == (chunk->cells != NULL);
    for (uint32_t i = 0; chunk->cells && i < CHUNK_CELLS; i++) {
        bool bit = chunk->mask >> i & 1, is_valid = chunk->valid >> i & 1, has_memory = fl__chunk_has_memory(chunk, i);
        bool is_taken = has_memory && fl__chunk_cell(chunk, i)->node.place != 0;
        is_sound &= !(chunk->state == CHUNK_OPEN && bit && is_taken) && (is_taken || !is_valid);
        taken += is_taken;
        cells += has_memory;
    }
    if (taken != fl__chunk_taken(chunk) || cells != fl__chunk_capacity(chunk))
        return broken(explain, "a chunk has other timers or cells than it counts");
    if (chunk->generation == 0 || (chunk->cells && chunk->generation + LIVES > GENERATION_END))
        return broken(explain, "a chunk has an impossible generation");
    return is_sound || broken(explain, "a chunk has memory that is not there, or a free cell with a timer");
}

/* Counts the chunks of a list, and marks a chunk that does not belong there. */
static uint64_t length(const struct cells *s, uint32_t first, bool is_absent, bool *ret_is_sound)
{
    uint64_t count = 0;
    for (uint32_t i = first; i != NO_CHUNK && count <= s->count; i = fl__chunk_next(&s->chunks[i]), count++)
        *ret_is_sound &= i < s->count && (!is_absent || s->chunks[i].state == CHUNK_ABSENT);
    return count;
}

static bool check_cells(const struct cells *s, FILE *explain)
{
    uint64_t listed = 0, capacity = 0;
    bool is_sound = true, is_linked = true;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct cell_chunk *chunk = &s->chunks[i];
        bool is_listed = fl__chunk_next(chunk) != UNLISTED, has_room = chunk->state == CHUNK_OPEN && chunk->mask != 0;
        is_sound &= check_chunk(chunk, explain);
        is_linked &= is_listed || (!has_room && chunk->state != CHUNK_ABSENT);
        listed += is_listed;
        capacity += fl__chunk_capacity(chunk);
    }
    if (capacity != s->capacity)
        is_sound = broken(explain, "a level has other cells than it counts");
    if (length(s, s->with_room, false, &is_linked) + length(s, s->absent, true, &is_linked) != listed)
        is_linked = false;
    return is_sound && (is_linked || broken(explain, "a list of chunks is wrong"));
}

static uint64_t taken_cells(const struct cells *s)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < s->count; i++)
        taken += fl__chunk_taken(&s->chunks[i]);
    return taken;
}

int fl_wheel_check(const fl_wheel *w, FILE *explain)
{
    uint64_t taken = 0, valid = 0, spares = 0;
    bool is_sound = true;
    for (unsigned i = 0; i < LEVELS; i++) {
        is_sound &= check_cells(&w->cells[i], explain);
        taken += taken_cells(&w->cells[i]);
        valid += fl__cells_valid(&w->cells[i]);
        spares += w->cells[i].spares;
    }
    for (unsigned i = 0; i < fl__wheel_rings(w); i++)
        is_sound &= fl__rings_check(&w->rings[i], explain) == 0;
    if (valid != fl_wheel_count(w) || taken != valid + w->ending_count + spares)
        is_sound = broken(explain, "the cells have other timers than the rings");
    return is_sound ? 0 : FL_INVALID_ARGUMENT;
}
