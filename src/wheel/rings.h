/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_RINGS_H
#define FOLIOT_WHEEL_RINGS_H

/* Rings and spokes: the order of nodes by time. See rings.c for the design.
 *
 * The code that every start and every stop runs is here, to be inlined. The rest is in rings.c (rings, and which spoke is
 * first), rebase.c (the rings follow the time), spokes.c (the nodes of one spoke) and sorted.c (the nodes of a sorted one). */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/nodes.h>

#include "wheel/cells.h"

enum {
    DIGIT_BITS = 4,
    RING_SIZE = 1 << DIGIT_BITS,
    RINGS = 64 / DIGIT_BITS,
    SPOKE_BITS = 11,
    SPOKE_LIMIT = 1 << SPOKE_BITS, /* nodes in a spoke: then it splits */
    SORT_LIMIT = 128,              /* a spoke with more splits before it is sorted, unless splitting it is of no use */
    FIRST_CAPACITY = 8,            /* of a spoke */
    LOOKAHEAD = 16,                /* entries: their nodes are on the way from memory while earlier ones are handled */
    WORD_BITS = 64,                /* entries per word of fl__spoke_free_word() */
};

/* A node's place: bit 0 is set if the node is in an overflow list, and then the rest is the address of the next node. Else,
 * from bit 1, 11 bits of entry and 18 bits of spoke. Bit 31 is set if the spoke is sorted; then the entry means nothing. From
 * bit 32 on, the order among nodes with the same deadline. */
enum {
    ENTRY_SHIFT = 1,
    SPOKE_SHIFT = ENTRY_SHIFT + SPOKE_BITS,
    ORDER_SHIFT = 32,
    SPOKE_NUMBERS = 1 << 18,
    LEAVING = 64, /* nodes that were stopped and still have an entry */
};

#define PLACE_SORTED (UINT64_C(1) << 31)

/* How an entry names a node: by its address, or, in rings of cells, by a number of 32 bits (see cells.h). */
typedef uintptr_t __attribute__((may_alias)) node_name;

/* What a spoke can be, and what may come after it. Only an open spoke is handled by the inline code below.
 *
 *     OPEN    takes nodes                                       -> SORTED, SEALED, IDLE, freed
 *     SORTED  is first in time, and its entries are in order    -> OPEN, IDLE, freed
 *     SEALED  has a successor in its chain, which takes nodes   -> SORTED, freed
 *     IDLE    has no nodes and no bit in ring->occupied         -> OPEN, freed */
enum spoke_state { SPOKE_OPEN, SPOKE_SORTED, SPOKE_SEALED, SPOKE_IDLE };

/* Nodes whose deadlines have all digits in common above the ring's digit, and the ring's digit too. */
struct spoke {
    void *entries;       /* `capacity` names of nodes; fl__spoke_free_word() is before them */
    struct ring *ring;   /* NULL in a chain, but for its first spoke */
    uint64_t start_ns;   /* the first moment of the spoke */
    uint32_t next_order; /* for the next node */
    uint32_t number;     /* in the table; never 0 */
    uint16_t capacity;   /* an empty spoke of a chain may have none */
    uint16_t live;       /* nodes */
    uint16_t word;       /* where the next start looks for a free entry */
    uint16_t low;        /* with so few nodes left, it is time to free memory */
    uint8_t slot;        /* in the ring */
    uint8_t state;
    bool is_dense;      /* splitting its parent left it with more than a quarter of the nodes */
    struct spoke *next; /* nodes with the same single deadline that were started later; or the next free spoke */
    struct spoke *last; /* in the first spoke of such a chain: the last one */
};

/* A child is a spoke, a ring with the address plus RING_TAG, or 0. */
enum { RING_TAG = 1 };

struct ring {
    uintptr_t child[RING_SIZE];
    struct ring *parent; /* NULL: one of the main rings */
    uint16_t present;    /* a bit per child that is not 0 */
    uint16_t occupied;   /* of these, the ones that may have nodes */
    uint8_t level;       /* which digit of a deadline selects the child; 0 is the lowest */
    uint8_t slot;        /* in the parent */
};

struct sort_key {
    uint64_t deadline_ns;
    uint64_t order;
    node_name name;
};

struct rings {
    const struct cells *cells; /* an array with one per level of the wheel; NULL: entries are addresses */
    uint64_t next_ns;          /* no node is due earlier */
    uint64_t base_ns;          /* the main rings are the path to this time */
    uint64_t count;            /* nodes in spokes */
    bool next_is_exact;        /* next_ns is the deadline of a node */
    uint16_t occupied;         /* a bit per main ring that may have nodes */
    uint64_t touched;          /* visits of nodes by split, sort and take, for tests */
    uint32_t leaving_count;
    uint32_t leaving[LEAVING]; /* low half of their places */
    bool may_rebase;           /* a spoke was used up since the last time */
    uint32_t spokes;           /* how many of the arena were used before */
    struct spoke *arena;       /* SPOKE_NUMBERS; number 0 names no spoke; NULL: no node was ever added */
    struct spoke *free_spokes;
    struct sort_key *scratch; /* twice scratch_capacity, which no spoke's capacity exceeds */
    node_name *gathered;      /* scratch_capacity, behind the scratch memory */
    uint32_t scratch_capacity;
    uint64_t bytes; /* in rings, spokes and entries */
    struct ring main[RINGS];
};

static inline unsigned fl__digit(uint64_t time_ns, unsigned level)
{
    return time_ns >> level * DIGIT_BITS & (RING_SIZE - 1);
}

/* The highest digit in which two times differ; 0 if they do not. */
static inline unsigned fl__ring_level(uint64_t a_ns, uint64_t b_ns)
{
    return (63u - (unsigned)__builtin_clzll((a_ns ^ b_ns) | 1)) / DIGIT_BITS;
}

static inline bool fl__is_ring(uintptr_t child)
{
    return child & RING_TAG;
}

static inline struct ring *fl__child_ring(uintptr_t child)
{
    assert(fl__is_ring(child));
    return (struct ring *)(child - RING_TAG);
}

static inline struct spoke *fl__child_spoke(uintptr_t child)
{
    assert(!fl__is_ring(child));
    return (struct spoke *)child;
}

static inline struct spoke *fl__spoke_by_number(const struct rings *r, uint32_t number)
{
    return &r->arena[number];
}

/* A word has a bit per entry that is free. Taking out a node sets the bit and does not touch the entry: among a million timers
 * the words stay in the cache, and the entries do not. */
static inline uint64_t *fl__spoke_free_word(const struct spoke *spoke, uint32_t word)
{
    return (uint64_t *)spoke->entries - 1 - word;
}

static inline node_name fl__spoke_name(const struct rings *r, const struct spoke *spoke, uint32_t entry)
{
    return r->cells ? ((const uint32_t *)spoke->entries)[entry] : ((const node_name *)spoke->entries)[entry];
}

static inline void fl__spoke_set_name(const struct rings *r, struct spoke *spoke, uint32_t entry, node_name name)
{
    if (r->cells)
        ((uint32_t *)spoke->entries)[entry] = (uint32_t)name;
    else
        ((node_name *)spoke->entries)[entry] = name;
}

static inline fl_node *fl__named_node(const struct rings *r, node_name name)
{
    return r->cells ? &fl__named_cell(r->cells, (uint32_t)name)->node : (fl_node *)name;
}

static inline fl_node *fl__spoke_node(const struct rings *r, const struct spoke *spoke, uint32_t entry)
{
    return fl__named_node(r, fl__spoke_name(r, spoke, entry));
}

/* The node waits here from now on. */
static inline void fl__set_place(fl_node *node, uint32_t order, uint32_t number, uint32_t entry)
{
    node->place = (uint64_t)order << ORDER_SHIFT | number << SPOKE_SHIFT | entry << ENTRY_SHIFT;
}

static inline uint32_t fl__place_entry(uint64_t place)
{
    return (uint32_t)place >> ENTRY_SHIFT & (SPOKE_LIMIT - 1);
}

static inline uint32_t fl__place_spoke(uint64_t place)
{
    return (uint32_t)place >> SPOKE_SHIFT & (SPOKE_NUMBERS - 1);
}

static inline uint32_t fl__place_order(uint64_t place)
{
    return (uint32_t)(place >> ORDER_SHIFT);
}

/* Where the spoke of a deadline is, or would be: the ring is the last one on the way. */
static inline struct ring *fl__find_ring(struct rings *r, uint64_t deadline_ns, unsigned *ret_slot)
{
    unsigned shift = fl__ring_level(deadline_ns, r->base_ns) * DIGIT_BITS;
    struct ring *ring = &r->main[shift / DIGIT_BITS];
    for (;; shift -= DIGIT_BITS) {
        unsigned slot = deadline_ns >> shift & (RING_SIZE - 1);
        uintptr_t child = ring->child[slot];
        if (!fl__is_ring(child)) {
            *ret_slot = slot;
            return ring;
        }
        ring = fl__child_ring(child);
    }
}

/* Of an entry. */
static inline size_t fl__rings_name_size(const struct rings *r)
{
    return r->cells ? sizeof(uint32_t) : sizeof(node_name);
}

/* The chunk of a cell has to be there before the cell can be fetched. */
static inline void fl__spoke_prefetch_ahead(const struct rings *r, const struct spoke *spoke, uint32_t i)
{
    if (r->cells && i + 2 * LOOKAHEAD < spoke->live)
        __builtin_prefetch(fl__named_chunk(r->cells, (uint32_t)r->gathered[i + 2 * LOOKAHEAD]));
    if (i + LOOKAHEAD < spoke->live)
        __builtin_prefetch(fl__named_node(r, r->gathered[i + LOOKAHEAD]), 1);
}

/* Puts a node into a free entry, of which there is one in spoke->word. What calls it knows whether the rings are of cells, so
 * that the code needs not to look. */
static inline void fl__spoke_put(struct rings *r, struct spoke *spoke, fl_node *node, node_name name,
                                 uint64_t deadline_ns, bool are_cells)
{
    uint64_t *word = fl__spoke_free_word(spoke, spoke->word);
    uint32_t entry = spoke->word * WORD_BITS + (uint32_t)__builtin_ctzll(*word);
    assert(spoke->state == SPOKE_OPEN && *word != 0 && entry < spoke->capacity && are_cells == !!r->cells);
    *word &= *word - 1;
    if (are_cells)
        ((uint32_t *)spoke->entries)[entry] = (uint32_t)name;
    else
        ((node_name *)spoke->entries)[entry] = name;
    spoke->live++;
    node->deadline_ns = deadline_ns;
    fl__set_place(node, spoke->next_order++, spoke->number, entry);
    r->count++;
    if (deadline_ns < r->next_ns) {
        r->next_ns = deadline_ns;
        r->next_is_exact = true;
    }
}

bool fl__rings_add_slow(struct rings *r, fl_node *node, node_name name, uint64_t deadline_ns);

/* Adds a node that does not wait, if there is room in its spoke. Else it returns false and has changed nothing. */
static inline bool fl__rings_add_at_once(struct rings *r, fl_node *node, node_name name, uint64_t deadline_ns,
                                         bool are_cells)
{
    unsigned slot;
    const struct ring *ring = fl__find_ring(r, deadline_ns, &slot);
    struct spoke *spoke = fl__child_spoke(ring->child[slot]);
    if (__builtin_expect(!spoke || spoke->state != SPOKE_OPEN || spoke->next_order == UINT32_MAX, 0))
        return false;
    if (__builtin_expect(*fl__spoke_free_word(spoke, spoke->word) == 0, 0))
        return false;
    fl__spoke_put(r, spoke, node, name, deadline_ns, are_cells);
    return true;
}

/* Adds a node that does not wait. Returns false if there is no memory. */
static inline bool fl__rings_add(struct rings *r, fl_node *node, node_name name, uint64_t deadline_ns, bool are_cells)
{
    return fl__rings_add_at_once(r, node, name, deadline_ns, are_cells) ||
           fl__rings_add_slow(r, node, name, deadline_ns);
}

/* Fetches the memory that taking out this node needs. */
static inline void fl__rings_prefetch(const struct rings *r, const fl_node *node)
{
    const struct spoke *spoke = fl__spoke_by_number(r, fl__place_spoke(node->place));
    __builtin_prefetch(fl__spoke_free_word(spoke, fl__place_entry(node->place) / WORD_BITS), 1);
}

void fl__rings_remove_slow(struct rings *r, const fl_node *node);

/* Takes out a node that is in a spoke, if that needs nothing else. Else it returns false and has changed nothing. */
static inline bool fl__rings_remove_at_once(struct rings *r, const fl_node *node)
{
    struct spoke *spoke = fl__spoke_by_number(r, fl__place_spoke(node->place));
    uint32_t entry = fl__place_entry(node->place), left = spoke->live - 1u;
    if (__builtin_expect(spoke->state != SPOKE_OPEN || left <= spoke->low || node->deadline_ns == r->next_ns, 0))
        return false;
    assert(fl__spoke_node(r, spoke, entry) == node);
    *fl__spoke_free_word(spoke, entry / WORD_BITS) |= 1ull << entry % WORD_BITS;
    spoke->live = (uint16_t)left;
    r->count--;
    return true;
}

/* Takes out a node that is in a spoke, as a stop does that touches neither the spoke nor its words: the entry is free when the
 * next slow operation comes by. The nodes of a program are far away in memory, and stores to places that only they know would
 * let all later loads wait for them. False: that is not possible, and nothing has changed. */
static inline bool fl__rings_leave(struct rings *r, const fl_node *node)
{
    if (__builtin_expect(node->place & PLACE_SORTED || r->leaving_count == LEAVING || node->deadline_ns == r->next_ns,
                         0))
        return false;
    r->leaving[r->leaving_count++] = (uint32_t)node->place;
    r->count--;
    return true;
}

void fl__rings_let_go(struct rings *r);

/* Takes out a node that is in a spoke. The caller clears the place. */
static inline void fl__rings_remove(struct rings *r, const fl_node *node)
{
    if (!fl__rings_remove_at_once(r, node))
        fl__rings_remove_slow(r, node);
}

/* rings.c */
void fl__rings_init(struct rings *r, uint64_t base_ns);
void fl__rings_destroy(struct rings *r);
size_t fl__rings_take(struct rings *r, uint64_t until_ns, node_name *out, size_t limit);
void fl__rings_find_next(struct rings *r);
int fl__rings_check(const struct rings *r, FILE *explain);

void fl__ring_set_child(struct ring *ring, unsigned slot, uintptr_t child);
void fl__ring_vacate(struct rings *r, struct ring *ring, unsigned slot);

/* rebase.c */
void fl__rings_rebase(struct rings *r, uint64_t now_ns);

/* spokes.c */
struct spoke *fl__spoke_new(struct rings *r, uint32_t capacity);
void fl__spoke_free(struct rings *r, struct spoke *spoke);
void fl__spoke_free_chain(struct rings *r, struct spoke *first);
void fl__spoke_release_arena(struct rings *r);
void fl__rings_compact(struct rings *r);
uint64_t fl__rings_bare_bytes(const struct rings *r);
void fl__spoke_strip(struct rings *r, struct spoke *spoke);
void fl__spoke_idle(struct rings *r, struct spoke *spoke);
bool fl__spoke_find_free(struct spoke *spoke);
bool fl__spoke_grow(struct rings *r, struct spoke *spoke);
void fl__spoke_shrink(struct rings *r, struct spoke *spoke);
void fl__spoke_gather(struct rings *r, const struct spoke *spoke);
void fl__spoke_set_free_from(struct spoke *spoke, uint32_t begin);
uint64_t fl__spoke_count_digits(struct rings *r, const struct spoke *spoke, unsigned level, uint32_t counts[RING_SIZE]);
uint64_t fl__spoke_any_deadline(const struct rings *r, const struct spoke *spoke);
void fl__spoke_move_to(struct rings *r, struct spoke *spoke, const struct ring *ring);

/* sorted.c */
void fl__spoke_sort(struct rings *r, struct spoke *spoke);
void fl__spoke_unsort(const struct rings *r, struct spoke *spoke);
void fl__spoke_renumber(struct rings *r, struct spoke *spoke);
void fl__spoke_remove(const struct rings *r, struct spoke *spoke, const fl_node *node);
void fl__spoke_insert(struct rings *r, struct spoke *spoke, fl_node *node, node_name name, uint64_t deadline_ns);
size_t fl__spoke_take(struct rings *r, struct spoke *spoke, uint64_t until_ns, node_name *out, size_t limit);

#endif
