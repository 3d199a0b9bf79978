/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_CELLS_H
#define FOLIOT_WHEEL_CELLS_H

/* The cells of timers with IDs, in chunks of 64. See cells.c for the design.
 *
 * The code that every schedule and every cancel runs is here, to be inlined. */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/nodes.h>

enum {
    CELL_BITS = 6,
    CHUNK_CELLS = 1 << CELL_BITS,
    NUMBER_BITS = 28, /* of a cell in its level; also the bits of an ID's slot */
    CHUNK_BITS = NUMBER_BITS - CELL_BITS,
    NUMBER_MASK = (1 << NUMBER_BITS) - 1,
    NO_CHUNK = (1 << CHUNK_BITS) - 1, /* the end of a list */
    UNLISTED = NO_CHUNK - 1, /* what comes after a chunk that is in no list; also the number of chunks there can be */
    GENERATION_BITS = 22,
    GENERATION_END = 1 << GENERATION_BITS,
    SPARES = 64,
    LIVES = 16, /* timers that a cell can have one after the other before its chunk is renewed */
};

struct cell {
    fl_node node; /* its place is 0 if the cell is free */
    void *data;
};

/* What a chunk can be, and what may come after it.
 *
 *     ABSENT   has no memory                                                    -> OPEN
 *     OPEN     has memory for all cells                                       -> PACKED, ABSENT, RETIRED
 *     PACKED   has memory only for the cells that were taken when it was
 *              packed; the others are not given out                             -> PACKED, ABSENT, RETIRED
 *     RETIRED  has used up its generations; it has no memory                    (the end) */
enum chunk_state { CHUNK_ABSENT, CHUNK_OPEN, CHUNK_PACKED, CHUNK_RETIRED };

/* A cache line: cancelling a timer needs this one, and not the cell.
 *
 * Members that every operation writes are read with the width with which they are written. A load that is wider than the
 * store before it has to wait until that store has reached the cache, behind all earlier stores. */
struct cell_chunk {
    struct cell *cells;
    uint64_t mask;                  /* OPEN: the cells that are free. PACKED: the ones that have memory. Else 0 */
    uint64_t valid;                 /* the cells whose timers answer to their IDs */
    uint8_t lives[CHUNK_CELLS / 2]; /* four bits per cell: timers that it has had before */
    uint32_t generation : GENERATION_BITS, state : 2; /* generation: of a cell's first timer */
    uint32_t link;                                    /* see fl__chunk_next() and fl__chunk_taken() */
};

static_assert(sizeof(struct cell_chunk) == 64, "a chunk is a cache line");

/* The cells of one level of the wheel. A cell's number is 64 times that of its chunk, plus its index in the chunk. */
struct cells {
    struct cell_chunk *chunks;
    uint32_t count, room;      /* chunks that were ever used; chunks that the array has room for */
    uint32_t with_room;        /* a list of all OPEN chunks with free cells, and of chunks that are no longer such */
    uint32_t absent;           /* a list of the ABSENT chunks that are not in the other list */
    uint32_t low;              /* an OPEN chunk with no more taken cells is sparse */
    uint32_t generation;       /* that chunks begin with */
    uint64_t capacity, bytes;  /* cells that have memory; all memory */
    struct cell_block *blocks; /* with huge pages: one per BLOCK_CHUNKS chunks */
    uint32_t spares;
    uint32_t spare[SPARES]; /* cells that were given back last; for their chunks they are taken */
    struct cells_config {
        uint32_t min_capacity, ratio, target_multiplier;
        bool huge_pages;
    } config;
};

/* The next chunk in the list, or UNLISTED. */
static inline uint32_t fl__chunk_next(const struct cell_chunk *chunk)
{
    return chunk->link & NO_CHUNK;
}

static inline void fl__chunk_set_next(struct cell_chunk *chunk, uint32_t next)
{
    chunk->link = (chunk->link & ~(uint32_t)NO_CHUNK) | next;
}

/* How many cells are taken. */
static inline uint32_t fl__chunk_taken(const struct cell_chunk *chunk)
{
    return chunk->link >> CHUNK_BITS;
}

/* How many cells have memory. */
static inline uint32_t fl__chunk_capacity(const struct cell_chunk *chunk)
{
    return chunk->state == CHUNK_OPEN ? (uint32_t)CHUNK_CELLS : (uint32_t)__builtin_popcountll(chunk->mask);
}

static inline uint32_t fl__chunk_life(const struct cell_chunk *chunk, uint32_t index)
{
    return chunk->lives[index / 2] >> index % 2 * 4 & (LIVES - 1);
}

static inline bool fl__chunk_has_memory(const struct cell_chunk *chunk, uint32_t index)
{
    return chunk->state == CHUNK_OPEN || chunk->mask >> index & 1;
}

/* A cell that has memory. */
static inline struct cell *fl__chunk_cell(const struct cell_chunk *chunk, uint32_t index)
{
    if (__builtin_expect(chunk->state == CHUNK_PACKED, 0))
        index = (uint32_t)__builtin_popcountll(chunk->mask & ((1ull << index) - 1));
    return &chunk->cells[index];
}

static inline struct cell_chunk *fl__cells_chunk(const struct cells *s, uint32_t number)
{
    assert(number >> CELL_BITS < s->count);
    return &s->chunks[number >> CELL_BITS];
}

static inline struct cell *fl__cells_get(const struct cells *s, uint32_t number)
{
    return fl__chunk_cell(fl__cells_chunk(s, number), number & (CHUNK_CELLS - 1));
}

/* In rings, a cell is named by its number and, in the bits above, its level. */
static inline struct cell_chunk *fl__named_chunk(const struct cells *levels, uint32_t name)
{
    return fl__cells_chunk(&levels[name >> NUMBER_BITS], name & NUMBER_MASK);
}

static inline struct cell *fl__named_cell(const struct cells *levels, uint32_t name)
{
    return fl__chunk_cell(fl__named_chunk(levels, name), name % CHUNK_CELLS);
}

int fl__cells_make_room(struct cells *s); /* 0, FL_NO_MEMORY or FL_CAPACITY_EXCEEDED */
void fl__cells_tidy(struct cells *s, uint32_t chunk_number);

#define NO_CELL UINT32_MAX
#define TAKEN_ONE (1u << CHUNK_BITS)

/* Takes a free cell: one that was given back just now, else one of the first chunk in the list. Returns its number, or
 * NO_CELL if that chunk has none. */
static inline uint32_t fl__cells_take(struct cells *s)
{
    if (__builtin_expect(s->spares > 0, 1)) {
        uint32_t number = s->spare[--s->spares];
        fl__cells_chunk(s, number)->valid |= 1ull << number % CHUNK_CELLS;
        return number;
    }
    uint32_t first = s->with_room;
    if (__builtin_expect(first == NO_CHUNK, 0))
        return NO_CELL;
    struct cell_chunk *chunk = &s->chunks[first];
    if (__builtin_expect(chunk->state != CHUNK_OPEN || chunk->mask == 0, 0))
        return NO_CELL;
    uint32_t index = (uint32_t)__builtin_ctzll(chunk->mask);
    uint64_t bit = chunk->mask & -chunk->mask;
    chunk->mask ^= bit;
    chunk->valid |= bit;
    chunk->link += TAKEN_ONE;
    if (chunk->mask == 0) {
        s->with_room = fl__chunk_next(chunk);
        fl__chunk_set_next(chunk, UNLISTED);
    }
    return first << CELL_BITS | index;
}

static inline void fl__cells_link(struct cells *s, uint32_t *list, uint32_t chunk_number)
{
    fl__chunk_set_next(&s->chunks[chunk_number], *list);
    *list = chunk_number;
}

void fl__cells_return(struct cells *s, uint32_t number, bool is_worn);
void fl__cells_return_spare(struct cells *s);
void fl__cells_return_spares(struct cells *s, uint32_t kept);
void fl__cells_untake(struct cells *s, uint32_t number); /* its timer was never scheduled */

/* Gives back a cell whose node is no longer in the rings. Memory of chunks may move or be freed. */
static inline void fl__cells_give(struct cells *s, uint32_t number)
{
    uint32_t index = number % CHUNK_CELLS;
    struct cell_chunk *chunk = fl__cells_chunk(s, number);
    uint32_t life = fl__chunk_life(chunk, index) + 1;
    assert(fl__chunk_taken(chunk) > 0);
    chunk->valid &= ~(1ull << index);
    if (__builtin_expect(life == LIVES || chunk->state != CHUNK_OPEN, 0)) {
        fl__cells_return(s, number, life == LIVES);
        return;
    }
    chunk->lives[index / 2] = (uint8_t)(chunk->lives[index / 2] + (1u << index % 2 * 4));
    if (__builtin_expect(s->spares == SPARES, 0))
        fl__cells_return_spares(s, SPARES / 2);
    s->spare[s->spares++] = number;
}

int fl__cells_init(struct cells *s, const struct cells_config *config);
void fl__cells_destroy(struct cells *s);
void fl__cells_clear(struct cells *s);           /* ends all timers, and gives back all memory */
void fl__cells_compact(struct cells *s);         /* gives back all memory that living timers do not need */
uint64_t fl__cells_valid(const struct cells *s); /* how many timers answer to their IDs */

/* The first cell from this number on whose timer answers to its ID; false if there is none. */
bool fl__cells_next(const struct cells *s, uint32_t from, uint32_t *ret_number);

#endif
