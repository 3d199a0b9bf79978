/* SPDX-License-Identifier: MIT */
/* The nodes of one spoke.
 *
 * An open spoke is an array of pointers to nodes in no order, with a bit per entry that says whether it is free. Starting a
 * node takes a free entry. Stopping a node only notes where its entry is: see fl__rings_leave(). The bit is set soon afterwards,
 * and nobody follows the pointer meanwhile. Starts take the free entries in the order of their addresses, round and round, so
 * that successive starts write to the same cache line. The order among equal deadlines is in the node's place, a number that
 * counts up in each spoke. After 2^32 starts in a spoke that was never empty, its nodes are numbered anew. */

#include <string.h>

#include "base/alloc.h"
#include "wheel/rings.h"

enum {
    QUARTER_CAPACITY = 94, /* entries, with their part of the words, in a quarter of the memory of a chunk of cells */
    ENTRIES_OVERHEAD = 4,  /* entries that would fit where the allocator keeps what it needs per block */
    KEPT_CAPACITY = 128,   /* a spoke is not made smaller than that while it has nodes */
};

/* ---- Memory ---- */

static uint32_t words_of(uint32_t capacity)
{
    return (capacity + WORD_BITS - 1) / WORD_BITS;
}

/* What the array and its words of free entries take. */
static size_t entries_bytes(const struct rings *r, uint32_t capacity)
{
    return words_of(capacity) * sizeof(uint64_t) + capacity * fl__rings_name_size(r);
}

static void *new_entries(const struct rings *r, uint32_t capacity)
{
    uint64_t *block = fl__alloc(entries_bytes(r, capacity));
    return block ? block + words_of(capacity) : NULL;
}

static void release_entries(const struct spoke *spoke)
{
    fl__release(fl__spoke_free_word(spoke, words_of(spoke->capacity) - 1));
}

/* The entries that exist of a word, a bit each. */
static uint64_t word_mask(const struct spoke *spoke, uint32_t word)
{
    uint32_t left = spoke->capacity - word * WORD_BITS;
    return left < WORD_BITS ? (1ull << left) - 1 : UINT64_MAX;
}

/* The entries from `begin` on are free, and the ones before it are not. */
void fl__spoke_set_free_from(struct spoke *spoke, uint32_t begin)
{
    for (uint32_t i = 0; i < words_of(spoke->capacity); i++) {
        uint64_t before = begin <= i * WORD_BITS         ? 0
                          : begin >= (i + 1) * WORD_BITS ? UINT64_MAX
                                                         : (1ull << begin % WORD_BITS) - 1;
        *fl__spoke_free_word(spoke, i) = word_mask(spoke, i) & ~before;
    }
    spoke->word = (uint16_t)(begin < spoke->capacity ? begin / WORD_BITS : 0);
}

/* Moves on to a word with a free entry. False if all are taken. */
bool fl__spoke_find_free(struct spoke *spoke)
{
    uint32_t words = words_of(spoke->capacity), word = spoke->word;
    for (uint32_t i = 0; i < words; i++) {
        if (*fl__spoke_free_word(spoke, word) != 0) {
            spoke->word = (uint16_t)word;
            return true;
        }
        word = word + 1 < words ? word + 1 : 0;
    }
    return false;
}

uint64_t fl__spoke_any_deadline(const struct rings *r, const struct spoke *spoke)
{
    uint32_t word = 0;
    assert(spoke->live > 0 && spoke->state == SPOKE_OPEN);
    while ((word_mask(spoke, word) & ~*fl__spoke_free_word(spoke, word)) == 0)
        word++;
    uint64_t taken = word_mask(spoke, word) & ~*fl__spoke_free_word(spoke, word);
    return fl__spoke_node(r, spoke, word * WORD_BITS + (uint32_t)__builtin_ctzll(taken))->deadline_ns;
}

/* Copies the nodes of a spoke that is not sorted to r->gathered. */
void fl__spoke_gather(struct rings *r, const struct spoke *spoke)
{
    uint32_t count = 0;
    assert(spoke->state == SPOKE_OPEN || spoke->state == SPOKE_SEALED);
    for (uint32_t i = 0; i < words_of(spoke->capacity); i++)
        for (uint64_t taken = word_mask(spoke, i) & ~*fl__spoke_free_word(spoke, i); taken; taken &= taken - 1)
            r->gathered[count++] = fl__spoke_name(r, spoke, i * WORD_BITS + (uint32_t)__builtin_ctzll(taken));
    assert(count == spoke->live);
}

/* A spoke whose nodes were stopped gives memory back when fifteen entries in sixteen are free. */
static void set_capacity(struct spoke *spoke, uint32_t capacity)
{
    spoke->capacity = (uint16_t)capacity;
    spoke->low = (uint16_t)(capacity > KEPT_CAPACITY ? capacity / 16 : 0);
}

static void free_entries(struct rings *r, struct spoke *spoke)
{
    if (!spoke->entries)
        return;
    release_entries(spoke);
    r->bytes -= entries_bytes(r, spoke->capacity);
    spoke->entries = NULL;
    spoke->capacity = 0;
}

static size_t scratch_bytes(uint32_t capacity)
{
    return capacity * (2 * sizeof(struct sort_key) + sizeof(node_name));
}

/* The memory for sorting is as large as the largest spoke needs. Nothing is in it between two operations. */
static bool reserve_scratch(struct rings *r, uint32_t capacity)
{
    if (capacity <= r->scratch_capacity)
        return true;
    struct sort_key *scratch = fl__alloc(scratch_bytes(capacity));
    if (!scratch)
        return false;
    fl__release(r->scratch);
    r->bytes += scratch_bytes(capacity) - scratch_bytes(r->scratch_capacity);
    r->scratch = scratch;
    r->gathered = (node_name *)(scratch + 2 * (size_t)capacity);
    r->scratch_capacity = capacity;
    return true;
}

static bool alloc_entries(struct rings *r, struct spoke *spoke, uint32_t capacity)
{
    assert(capacity > 0 && capacity <= SPOKE_LIMIT && !spoke->entries);
    spoke->entries = reserve_scratch(r, capacity) ? new_entries(r, capacity) : NULL;
    if (!spoke->entries)
        return false;
    set_capacity(spoke, capacity);
    r->bytes += entries_bytes(r, capacity);
    fl__spoke_set_free_from(spoke, 0);
    return true;
}

/* The arena comes with the first node: a program may have many wheels that it never uses. */
static __attribute__((noinline)) bool reserve_arena(struct rings *r)
{
    r->arena = fl__map(SPOKE_NUMBERS * sizeof *r->arena);
    return r->arena != NULL;
}

void fl__spoke_release_arena(struct rings *r)
{
    if (r->arena)
        fl__unmap(r->arena, SPOKE_NUMBERS * sizeof *r->arena);
    fl__release(r->scratch);
}

/* Mapped addresses without memory. */
uint64_t fl__rings_bare_bytes(const struct rings *r)
{
    return r->arena ? (SPOKE_NUMBERS - r->spokes) * sizeof *r->arena : 0;
}

/* A spoke without nodes that is in no ring yet. NULL: no memory. */
struct spoke *fl__spoke_new(struct rings *r, uint32_t capacity)
{
    if (!r->arena && !reserve_arena(r))
        return NULL;
    struct spoke *spoke = r->free_spokes ? r->free_spokes : &r->arena[r->spokes + 1];
    struct spoke fresh = {.number = (uint32_t)(spoke - r->arena), .state = SPOKE_OPEN};
    if (fresh.number >= SPOKE_NUMBERS || !alloc_entries(r, &fresh, capacity))
        return NULL;
    if (r->free_spokes) {
        r->free_spokes = spoke->next;
    } else {
        r->spokes++;
        r->bytes += sizeof *spoke;
    }
    *spoke = fresh;
    return spoke;
}

void fl__spoke_free(struct rings *r, struct spoke *spoke)
{
    free_entries(r, spoke);
    spoke->next = r->free_spokes;
    r->free_spokes = spoke;
}

void fl__spoke_free_chain(struct rings *r, struct spoke *first)
{
    for (struct spoke *spoke = first, *next; spoke; spoke = next) {
        next = spoke->next;
        fl__spoke_free(r, spoke);
    }
}

/* Sets the capacity, and keeps the first `kept` entries. All others are free. False if there is no memory. */
static bool resize(struct rings *r, struct spoke *spoke, uint32_t capacity, uint32_t kept)
{
    assert(capacity >= spoke->live && kept <= capacity && capacity <= SPOKE_LIMIT);
    void *entries = reserve_scratch(r, capacity) ? new_entries(r, capacity) : NULL;
    if (!entries)
        return false;
    memcpy(entries, spoke->entries, kept * fl__rings_name_size(r));
    release_entries(spoke);
    r->bytes += entries_bytes(r, capacity) - entries_bytes(r, spoke->capacity);
    spoke->entries = entries;
    set_capacity(spoke, capacity);
    fl__spoke_set_free_from(spoke, kept);
    return true;
}

/* An empty spoke in the middle of a chain waits there, without memory for entries, until it comes first. */
void fl__spoke_strip(struct rings *r, struct spoke *spoke)
{
    assert(spoke->live == 0 && spoke->next);
    free_entries(r, spoke);
}

/* Makes an empty spoke idle. It stays in the ring, so that a program that starts and stops the same timer again and again
 * needs no memory for it each time. A large spoke gives its memory back at once, by starting small. */
void fl__spoke_idle(struct rings *r, struct spoke *spoke)
{
    assert(spoke->live == 0 && !spoke->next && spoke->state != SPOKE_IDLE);
    if (spoke->capacity <= SORT_LIMIT || !resize(r, spoke, FIRST_CAPACITY, 0))
        fl__spoke_set_free_from(spoke, 0);
    spoke->next_order = 0;
    spoke->is_dense = false;
    spoke->state = SPOKE_IDLE;
}

/* Next larger capacity. In rings of cells, the entries then take as much memory as one or more chunks of cells, or a quarter,
 * half or three quarters of one: what a spoke gives back when it grows is just right for other spokes and for cells. */
static uint32_t next_capacity(uint32_t old)
{
    if (old < QUARTER_CAPACITY)
        return old + (old / 2 | 4);
    uint32_t step = old < 4 * QUARTER_CAPACITY - ENTRIES_OVERHEAD ? QUARTER_CAPACITY : 4 * QUARTER_CAPACITY;
    uint32_t capacity = ((old + ENTRIES_OVERHEAD) / step + 1) * step - ENTRIES_OVERHEAD;
    return capacity < SPOKE_LIMIT ? capacity : SPOKE_LIMIT;
}

bool fl__spoke_grow(struct rings *r, struct spoke *spoke)
{
    assert(spoke->live == spoke->capacity && spoke->capacity < SPOKE_LIMIT);
    return resize(r, spoke, next_capacity(spoke->capacity), spoke->capacity);
}

/* Gives back most of the memory of an open spoke that has few nodes left. */
void fl__spoke_shrink(struct rings *r, struct spoke *spoke)
{
    assert(spoke->state == SPOKE_OPEN);
    uint32_t capacity = spoke->live * 2u;
    fl__spoke_gather(r, spoke);
    for (uint32_t i = 0; i < spoke->live; i++) {
        fl_node *node = fl__named_node(r, r->gathered[i]);
        fl__spoke_prefetch_ahead(r, spoke, i);
        fl__set_place(node, fl__place_order(node->place), spoke->number, i);
        fl__spoke_set_name(r, spoke, i, r->gathered[i]);
    }
    if (!resize(r, spoke, capacity < FIRST_CAPACITY ? FIRST_CAPACITY : capacity, spoke->live))
        fl__spoke_set_free_from(spoke, spoke->live);
}

/* Gives back memory that nodes do not need. */
void fl__rings_compact(struct rings *r)
{
    fl__rings_let_go(r);
    for (uint32_t i = 1; i <= r->spokes; i++) {
        struct spoke *spoke = &r->arena[i];
        if (spoke->entries && spoke->state == SPOKE_OPEN && spoke->capacity > 2 * spoke->live)
            fl__spoke_shrink(r, spoke);
    }
}

/* ---- Moving ---- */

/* How many nodes have which value of a digit. Returns a number that has a bit for each bit in which two deadlines differ. */
uint64_t fl__spoke_count_digits(struct rings *r, const struct spoke *spoke, unsigned level, uint32_t counts[RING_SIZE])
{
    uint64_t differences = 0, any_ns = fl__spoke_any_deadline(r, spoke);
    memset(counts, 0, RING_SIZE * sizeof *counts);
    fl__spoke_gather(r, spoke);
    for (uint32_t i = 0; i < spoke->live; i++) {
        fl__spoke_prefetch_ahead(r, spoke, i);
        uint64_t deadline_ns = fl__named_node(r, r->gathered[i])->deadline_ns;
        differences |= deadline_ns ^ any_ns;
        counts[fl__digit(deadline_ns, level)]++;
    }
    r->touched += spoke->live;
    return differences;
}

/* Moves all nodes of an open spoke to the spokes of a new ring, which has one for every digit that occurs. */
void fl__spoke_move_to(struct rings *r, struct spoke *spoke, const struct ring *ring)
{
    fl__spoke_gather(r, spoke);
    for (uint32_t i = 0; i < spoke->live; i++) {
        fl_node *node = fl__named_node(r, r->gathered[i]);
        struct spoke *child = fl__child_spoke(ring->child[fl__digit(node->deadline_ns, ring->level)]);
        uint32_t entry = child->live++;
        fl__spoke_set_name(r, child, entry, r->gathered[i]);
        fl__set_place(node, fl__place_order(node->place), child->number, entry);
    }
    for (unsigned i = 0; i < RING_SIZE; i++)
        if (ring->child[i])
            fl__spoke_set_free_from(fl__child_spoke(ring->child[i]), fl__child_spoke(ring->child[i])->live);
    r->touched += spoke->live;
}
