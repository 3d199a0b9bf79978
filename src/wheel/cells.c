/* SPDX-License-Identifier: MIT */
/* The memory of timers with IDs, and what makes their IDs unique.
 *
 * A timer is a cell of 24 bytes: the node that waits in the rings, and the caller's data. Cells are in chunks of 64. An
 * array has an entry per chunk, so a number leads to its cell in two steps. A cell that becomes free goes to the next
 * timer, while it is still in the processor's cache.
 *
 * An ID has 22 bits of generation: that of the chunk plus the number of timers that the cell has had before. After 16
 * timers a cell is worn. When a chunk has no timers left and one of its cells is worn, the chunk is renewed: its
 * generation grows by 16, and its cells begin anew. A chunk that gives its memory back keeps its generation in the array,
 * increased by the number of timers that any of its cells has had. A chunk whose generations are used up is retired, and
 * another number takes its place. So no ID is given out twice.
 *
 * An empty chunk gives its memory back, unless no other has room. If fewer than one cell in `ratio` of a chunk is taken,
 * the chunk is packed: those cells move together into memory of the right size, and the mask tells which they are. Their
 * numbers do not change. The first chunk in the list, which gets the next timers, is not packed.
 *
 * A chunk that is closed or packed while it is in the list of chunks with room stays there until it comes first.
 *
 * With huge pages, chunks are parts of blocks of 2 MiB, which are mapped when they are first needed and unmapped when no
 * chunk in them is open. */

#include <string.h>
#include <sys/mman.h>

#include <foliot/error.h>

#include "base/alloc.h"
#include "wheel/cells.h"

enum {
    CHUNK_BYTES = CHUNK_CELLS * sizeof(struct cell),
    BLOCK_BYTES = 2 << 20,
    BLOCK_CHUNKS = BLOCK_BYTES / CHUNK_BYTES,
    BLOCKS = NO_CHUNK / BLOCK_CHUNKS + 1,
    FIRST_ROOM = 4,     /* in the array of chunks */
    KEPT_CAPACITY = 16, /* a chunk with no more memory than that is not packed again */
};

struct cell_block {
    char *memory;
    uint32_t open; /* chunks in it */
};

/* ---- Memory of chunks ---- */

static struct cell *take_from_block(struct cells *s, uint32_t number)
{
    struct cell_block *block = &s->blocks[number / BLOCK_CHUNKS];
    if (!block->memory) {
        block->memory = fl__map(BLOCK_BYTES);
        if (!block->memory)
            return NULL;
        madvise(block->memory, BLOCK_BYTES, MADV_HUGEPAGE);
        s->bytes += BLOCK_BYTES;
    }
    block->open++;
    void *memory = block->memory + number % BLOCK_CHUNKS * (size_t)CHUNK_BYTES;
    return memset(memory, 0, CHUNK_BYTES);
}

static void give_to_block(struct cells *s, uint32_t number)
{
    struct cell_block *block = &s->blocks[number / BLOCK_CHUNKS];
    if (--block->open > 0)
        return;
    fl__unmap(block->memory, BLOCK_BYTES);
    block->memory = NULL;
    s->bytes -= BLOCK_BYTES;
}

static struct cell *take_memory(struct cells *s, uint32_t number)
{
    if (s->blocks)
        return take_from_block(s, number);
    struct cell *cells = fl__alloc_zeroed(CHUNK_BYTES);
    s->bytes += cells ? CHUNK_BYTES : 0;
    return cells;
}

/* The memory of an open or packed chunk. */
static void give_memory(struct cells *s, uint32_t number)
{
    struct cell_chunk *chunk = &s->chunks[number];
    uint32_t capacity = fl__chunk_capacity(chunk);
    s->capacity -= capacity;
    if (s->blocks && chunk->state == CHUNK_OPEN) {
        give_to_block(s, number);
        return;
    }
    s->bytes -= capacity * sizeof(struct cell);
    fl__release(chunk->cells);
}

static void set_memory(struct cells *s, struct cell_chunk *chunk, struct cell *cells)
{
    chunk->cells = cells;
    s->capacity += fl__chunk_capacity(chunk);
}

/* ---- Chunks ---- */

/* Makes room for another chunk in the array. */
static int grow_array(struct cells *s)
{
    if (s->count == UNLISTED)
        return FL_CAPACITY_EXCEEDED;
    if (s->count < s->room)
        return 0;
    uint32_t room = s->room + s->room / 2 + FIRST_ROOM;
    struct cell_chunk *chunks = fl__resize(s->chunks, room * sizeof *chunks);
    if (!chunks)
        return FL_NO_MEMORY;
    s->bytes += (room - s->room) * sizeof *chunks;
    s->chunks = chunks;
    s->room = room;
    return 0;
}

/* Adds an open chunk to the list. */
static int open_chunk(struct cells *s)
{
    int r = s->absent == NO_CHUNK ? grow_array(s) : 0;
    if (r < 0)
        return r;
    uint32_t number = s->absent == NO_CHUNK ? s->count : s->absent;
    struct cell *cells = take_memory(s, number);
    if (!cells)
        return FL_NO_MEMORY;
    struct cell_chunk *chunk = &s->chunks[number];
    if (number == s->count) {
        *chunk = (struct cell_chunk){.generation = s->generation & (GENERATION_END - 1), .link = UNLISTED};
        s->count++;
    } else {
        s->absent = fl__chunk_next(chunk);
    }
    chunk->state = CHUNK_OPEN;
    chunk->mask = UINT64_MAX;
    set_memory(s, chunk, cells);
    fl__cells_link(s, &s->with_room, number);
    return 0;
}

/* Takes chunks out of the list that have no free cells, until one comes first that has. */
int fl__cells_make_room(struct cells *s)
{
    while (s->with_room != NO_CHUNK) {
        uint32_t number = s->with_room;
        struct cell_chunk *chunk = &s->chunks[number];
        if (chunk->state == CHUNK_OPEN && chunk->mask != 0)
            return 0;
        s->with_room = fl__chunk_next(chunk);
        fl__chunk_set_next(chunk, UNLISTED);
        if (chunk->state == CHUNK_ABSENT)
            fl__cells_link(s, &s->absent, number);
    }
    return open_chunk(s);
}

/* The most timers that a cell of the chunk has had. */
static uint32_t most_lives(const struct cell_chunk *chunk)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < CHUNK_CELLS; i++) {
        bool is_free = chunk->state == CHUNK_OPEN && chunk->mask >> i & 1;
        uint32_t lives = fl__chunk_life(chunk, i) + !is_free;
        most = lives > most ? lives : most;
    }
    return most;
}

static void set_generation(struct cell_chunk *chunk, uint32_t generation)
{
    chunk->generation = generation & (GENERATION_END - 1);
    memset(chunk->lives, 0, sizeof chunk->lives);
}

/* Ends all timers of a chunk, and gives its memory back. */
static void close_chunk(struct cells *s, uint32_t number)
{
    struct cell_chunk *chunk = &s->chunks[number];
    uint32_t generation = chunk->generation + most_lives(chunk);
    bool is_usable = generation + LIVES <= GENERATION_END;
    give_memory(s, number);
    chunk->cells = NULL;
    chunk->mask = chunk->valid = 0;
    chunk->link = fl__chunk_next(chunk);
    chunk->state = is_usable ? CHUNK_ABSENT : CHUNK_RETIRED;
    if (is_usable)
        set_generation(chunk, generation);
    if (is_usable && fl__chunk_next(chunk) == UNLISTED)
        fl__cells_link(s, &s->absent, number);
}

/* Moves the taken cells of a chunk to memory of the right size, if there is some. */
static void pack_chunk(struct cells *s, uint32_t number)
{
    struct cell_chunk *chunk = &s->chunks[number];
    struct cell *packed = fl__alloc(fl__chunk_taken(chunk) * sizeof *packed);
    uint64_t mask = chunk->state == CHUNK_OPEN ? UINT64_MAX : chunk->mask, kept = 0;
    uint32_t count = 0;
    assert(chunk->cells && fl__chunk_taken(chunk) > 0 && fl__chunk_taken(chunk) < fl__chunk_capacity(chunk));
    if (!packed)
        return;
    for (const struct cell *cell = chunk->cells; mask; mask &= mask - 1, cell++)
        if (cell->node.place != 0) {
            packed[count++] = *cell;
            kept |= mask & -mask;
        }
    assert(count == fl__chunk_taken(chunk));
    give_memory(s, number);
    chunk->state = CHUNK_PACKED;
    chunk->mask = kept;
    set_memory(s, chunk, packed);
    s->bytes += count * sizeof *packed;
}

/* Only an open chunk that is alone in the list is kept. */
static void tidy_empty_chunk(struct cells *s, uint32_t number)
{
    struct cell_chunk *chunk = &s->chunks[number];
    bool is_alone = s->with_room == number && fl__chunk_next(chunk) == NO_CHUNK, is_worn = chunk->mask != UINT64_MAX;
    if (!is_alone || chunk->state != CHUNK_OPEN || (is_worn && chunk->generation + 2 * LIVES > GENERATION_END)) {
        close_chunk(s, number);
    } else if (is_worn) { /* its cells begin anew, with other generations */
        set_generation(chunk, chunk->generation + LIVES);
        chunk->mask = UINT64_MAX;
    }
}

/* A chunk has few taken cells left. */
void fl__cells_tidy(struct cells *s, uint32_t number)
{
    const struct cell_chunk *chunk = &s->chunks[number];
    uint32_t share = chunk->state == CHUNK_OPEN ? s->config.ratio : s->config.target_multiplier;
    uint32_t taken = fl__chunk_taken(chunk), capacity = fl__chunk_capacity(chunk);
    if (taken == 0)
        tidy_empty_chunk(s, number);
    else if (capacity > KEPT_CAPACITY && taken * share < capacity && number != s->with_room &&
             s->capacity >= s->config.min_capacity)
        pack_chunk(s, number);
}

/* A cell that has had all its lives is worn: it is not given out again before its chunk is renewed. */
void fl__cells_return(struct cells *s, uint32_t number, bool is_worn)
{
    uint32_t index = number % CHUNK_CELLS, chunk_number = number >> CELL_BITS;
    struct cell_chunk *chunk = &s->chunks[chunk_number];
    bool is_open = chunk->state == CHUNK_OPEN;
    assert(fl__chunk_taken(chunk) > 0 && !(chunk->valid >> index & 1));
    fl__chunk_cell(chunk, index)->node.place = 0;
    chunk->link -= TAKEN_ONE;
    if (is_open && !is_worn) {
        chunk->mask |= 1ull << index;
        if (fl__chunk_next(chunk) == UNLISTED)
            fl__cells_link(s, &s->with_room, chunk_number);
    }
    if (!is_open || fl__chunk_taken(chunk) <= s->low)
        fl__cells_tidy(s, chunk_number);
}

void fl__cells_untake(struct cells *s, uint32_t number)
{
    fl__cells_chunk(s, number)->valid &= ~(1ull << number % CHUNK_CELLS);
    fl__cells_return(s, number, false);
}

void fl__cells_return_spare(struct cells *s)
{
    assert(s->spares > 0);
    fl__cells_return(s, s->spare[--s->spares], false);
}

/* The spare cells go back to their chunks, but for the newest ones. */
void fl__cells_return_spares(struct cells *s, uint32_t kept)
{
    uint32_t count = s->spares - kept;
    assert(kept <= s->spares);
    for (uint32_t i = 0; i < count; i++)
        fl__cells_return(s, s->spare[i], false);
    memmove(s->spare, s->spare + count, kept * sizeof *s->spare);
    s->spares = kept;
}

/* ---- All chunks ---- */

/* Makes the lists anew, without chunks that do not belong there. */
static void relink(struct cells *s)
{
    s->with_room = s->absent = NO_CHUNK;
    for (uint32_t i = 0; i < s->count; i++) {
        struct cell_chunk *chunk = &s->chunks[i];
        fl__chunk_set_next(chunk, UNLISTED);
        if (chunk->state == CHUNK_OPEN && chunk->mask != 0)
            fl__cells_link(s, &s->with_room, i);
        else if (chunk->state == CHUNK_ABSENT)
            fl__cells_link(s, &s->absent, i);
    }
}

/* Forgets the last chunks, as far as they are absent, but for their highest generation. */
static void trim_array(struct cells *s)
{
    for (; s->count > 0 && s->chunks[s->count - 1].state == CHUNK_ABSENT; s->count--) {
        uint32_t generation = s->chunks[s->count - 1].generation;
        s->generation = generation > s->generation ? generation : s->generation;
    }
    relink(s);
    struct cell_chunk *chunks = s->count > 0 ? fl__resize(s->chunks, s->count * sizeof *chunks) : NULL;
    if (s->count == 0)
        fl__release(s->chunks);
    else if (!chunks)
        return;
    s->chunks = chunks;
    s->bytes -= (s->room - s->count) * sizeof *chunks;
    s->room = s->count;
}

void fl__cells_clear(struct cells *s)
{
    s->spares = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->chunks[i].cells)
            close_chunk(s, i);
    assert(s->capacity == 0);
    trim_array(s);
}

void fl__cells_compact(struct cells *s)
{
    fl__cells_return_spares(s, 0);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct cell_chunk *chunk = &s->chunks[i];
        if (!chunk->cells)
            continue;
        if (fl__chunk_taken(chunk) == 0)
            close_chunk(s, i);
        else if (fl__chunk_taken(chunk) < fl__chunk_capacity(chunk))
            pack_chunk(s, i);
    }
    trim_array(s);
}

int fl__cells_init(struct cells *s, const struct cells_config *config)
{
    *s = (struct cells){.with_room = NO_CHUNK, .absent = NO_CHUNK, .generation = 1, .config = *config};
    s->low = (CHUNK_CELLS - 1) / config->ratio;
    if (!config->huge_pages)
        return 0;
    s->blocks = fl__alloc_zeroed(BLOCKS * sizeof *s->blocks);
    s->bytes = s->blocks ? BLOCKS * sizeof *s->blocks : 0;
    return s->blocks ? 0 : FL_NO_MEMORY;
}

void fl__cells_destroy(struct cells *s)
{
    fl__cells_clear(s);
    fl__release(s->chunks);
    fl__release(s->blocks);
}

/* ---- Questions ---- */

uint64_t fl__cells_valid(const struct cells *s)
{
    uint64_t valid = 0;
    for (uint32_t i = 0; i < s->count; i++)
        valid += (uint64_t)__builtin_popcountll(s->chunks[i].valid);
    return valid;
}

bool fl__cells_next(const struct cells *s, uint32_t from, uint32_t *ret_number)
{
    for (uint32_t number = from; number >> CELL_BITS < s->count; number = (number | (CHUNK_CELLS - 1)) + 1) {
        uint64_t valid = fl__cells_chunk(s, number)->valid >> number % CHUNK_CELLS;
        if (valid != 0) {
            *ret_number = number + (uint32_t)__builtin_ctzll(valid);
            return true;
        }
    }
    return false;
}
