/* SPDX-License-Identifier: MIT */
/* The hierarchical timing wheel.
 *
 * A deadline is a number of 16 digits of 4 bits. A ring has 16 children, one per value of its digit. A child is a spoke, an
 * array of nodes, or a finer ring, whose digit is the next lower one. So rings and spokes are a tree in which every time has
 * one place, and the spokes are in order of time.
 *
 *     main ring 10   . . . S . S R . . . . . . . . .      S: a spoke, R: a ring, *: base_ns
 *     main ring 9    . . . * S S . S S . . . . . . .
 *     main ring 8    . . . . . . . * S R S . . . . .
 *                                     |
 *     ring 7                          S S S . S S S S S S S . S S S S
 *
 * The main rings, one per digit, are the path to base_ns, which follows the time of the polls. The main ring of a deadline
 * is that of the highest digit in which the deadline and base_ns differ: near deadlines are in fine rings, far ones in
 * coarse rings, as in every timing wheel. A deadline before base_ns has its place too. All 64 bits have a digit, so no
 * deadline is too far away.
 *
 * A spoke with SPOKE_LIMIT nodes splits: a ring takes its place, and its nodes go to the 16 spokes of that ring. There is no
 * cascade at fixed times. A spoke with few nodes stays as it is until it is the earliest, whatever span of time it covers.
 *
 * Poll needs the earliest spoke sorted. A spoke with more than SORT_LIMIT nodes is split first, so that a start that goes to
 * the sorted spoke has few nodes to search. A spoke that has got more than a quarter of the nodes of its parent is sorted as
 * a whole, because nodes that are so close together could need many splits.
 *
 * A spoke of a ring of the lowest digit has one deadline only and cannot split. When it is full, it is sealed, and another
 * spoke is chained to it, whose nodes were all started later.
 *
 * Why no poll visits many nodes: taking a node visits it once, sorting a spoke visits its nodes once, splitting it two or three
 * times. Splits are repeated only for spokes with at most a quarter of the nodes: from 2048 to 512, and from 512 to 128, which
 * is SORT_LIMIT. So a node that is taken costs at most 2 + 2 * 3 visits, and the spoke in which the poll ends at most
 * 3 * (2048 + 512) + 512 more: with a limit of 1024, at most 16 visits per node of the limit.
 *
 * The bits of ring->occupied say where nodes may be. An empty spoke of a main ring keeps its bit until the search for the
 * first spoke meets it.
 *
 * Costs: start and stop are constant, apart from splits, which add less than one visit of a node per start on average. Next
 * deadline: constant if the earliest is known, else as a poll that takes nothing, once for each node that is sorted. */

#include "base/alloc.h"
#include "wheel/rings.h"

/* ---- Rings ---- */

void fl__ring_set_child(struct ring *ring, unsigned slot, uintptr_t child)
{
    ring->child[slot] = child;
    if (child)
        ring->present |= (uint16_t)(1u << slot);
    else
        ring->present &= (uint16_t) ~(1u << slot);
    if (child && fl__is_ring(child)) {
        fl__child_ring(child)->parent = ring;
        fl__child_ring(child)->slot = (uint8_t)slot;
    } else if (child) {
        fl__child_spoke(child)->ring = ring;
        fl__child_spoke(child)->slot = (uint8_t)slot;
    }
}

static void occupy(struct rings *r, struct ring *ring, unsigned slot)
{
    while (!(ring->occupied >> slot & 1)) {
        ring->occupied |= (uint16_t)(1u << slot);
        if (!ring->parent) {
            r->occupied |= (uint16_t)(1u << ring->level);
            return;
        }
        slot = ring->slot;
        ring = ring->parent;
    }
}

/* Frees a ring and what is below it: spokes without nodes, or one ring of the same kind. */
static void free_ring(struct rings *r, struct ring *ring)
{
    while (ring) {
        struct ring *below = NULL;
        for (unsigned i = 0; i < RING_SIZE; i++)
            if (fl__is_ring(ring->child[i]))
                below = fl__child_ring(ring->child[i]);
            else if (ring->child[i])
                fl__spoke_free(r, fl__child_spoke(ring->child[i]));
        r->bytes -= sizeof *ring;
        fl__release(ring);
        ring = below;
    }
}

/* The child has no nodes. Rings that are left without nodes by that are freed. */
void fl__ring_vacate(struct rings *r, struct ring *ring, unsigned slot)
{
    ring->occupied &= (uint16_t) ~(1u << slot);
    while (ring->occupied == 0) {
        struct ring *parent = ring->parent;
        if (!parent) {
            r->occupied &= (uint16_t) ~(1u << ring->level);
            return;
        }
        parent->occupied &= (uint16_t) ~(1u << ring->slot);
        fl__ring_set_child(parent, ring->slot, 0);
        free_ring(r, ring);
        ring = parent;
    }
}

static struct ring *new_ring(struct rings *r, unsigned level)
{
    struct ring *ring = fl__alloc_zeroed(sizeof *ring);
    if (!ring)
        return NULL;
    ring->level = (uint8_t)level;
    r->bytes += sizeof *ring;
    return ring;
}

/* The first moment of a child. */
static uint64_t start_of(const struct ring *ring, uint64_t any_ns)
{
    unsigned shift = ring->level * DIGIT_BITS;
    return any_ns >> shift << shift;
}

/* A spoke has few nodes left, or none, because they were stopped. An empty spoke of a main ring may stay: there are few, and
 * a program that starts and stops the same timer again and again needs no memory for it each time. */
static void tidy(struct rings *r, struct spoke *spoke)
{
    if (spoke->live > 0 && spoke->state == SPOKE_OPEN) {
        fl__spoke_shrink(r, spoke);
    } else if (spoke->live == 0 && spoke->next) {
        fl__spoke_strip(r, spoke);
    } else if (spoke->live == 0 && spoke->ring && spoke->ring->parent) {
        struct ring *ring = spoke->ring;
        unsigned slot = spoke->slot;
        fl__ring_set_child(ring, slot, 0);
        fl__spoke_free(r, spoke);
        fl__ring_vacate(r, ring, slot);
    }
}

/* Frees the entries of the nodes that have left. Tidying looks at other entries, so it comes last. */
void fl__rings_let_go(struct rings *r)
{
    for (uint32_t i = 0; i < r->leaving_count; i++) {
        struct spoke *spoke = fl__spoke_by_number(r, fl__place_spoke(r->leaving[i]));
        uint32_t entry = fl__place_entry(r->leaving[i]);
        assert(spoke->live > 0 && (spoke->state == SPOKE_OPEN || spoke->state == SPOKE_SEALED));
        *fl__spoke_free_word(spoke, entry / WORD_BITS) |= 1ull << entry % WORD_BITS;
        spoke->live--;
    }
    for (uint32_t i = 0; i < r->leaving_count; i++) {
        struct spoke *spoke = fl__spoke_by_number(r, fl__place_spoke(r->leaving[i]));
        if (spoke->entries && spoke->live <= (spoke->state == SPOKE_OPEN ? spoke->low : 0))
            tidy(r, spoke);
    }
    r->leaving_count = 0;
}

/* Takes out a node of any spoke. The spoke stays where it is, even if it is empty now. */
void fl__rings_remove_slow(struct rings *r, const fl_node *node)
{
    fl__rings_let_go(r);
    struct spoke *spoke = fl__spoke_by_number(r, fl__place_spoke(node->place));
    uint32_t entry = fl__place_entry(node->place);
    assert(spoke->live > 0 && spoke->state != SPOKE_IDLE);
    r->count--;
    if (node->deadline_ns == r->next_ns)
        r->next_is_exact = false;
    if (spoke->state == SPOKE_SORTED)
        fl__spoke_remove(r, spoke, node);
    else
        *fl__spoke_free_word(spoke, entry / WORD_BITS) |= 1ull << entry % WORD_BITS;
    spoke->live--;
    if (spoke->live == 0 || (spoke->state == SPOKE_OPEN && spoke->live <= spoke->low))
        tidy(r, spoke);
}

/* ---- Splitting ---- */

/* The spokes of a new ring for the nodes of this spoke. False: no memory. */
static bool add_children(struct rings *r, const struct spoke *spoke, struct ring *ring,
                         const uint32_t counts[RING_SIZE])
{
    unsigned shift = ring->level * DIGIT_BITS;
    uint64_t start_ns = fl__spoke_any_deadline(r, spoke) >> shift >> DIGIT_BITS << DIGIT_BITS << shift;
    for (unsigned i = 0; i < RING_SIZE; i++) {
        if (counts[i] == 0)
            continue;
        uint32_t capacity = counts[i] < FIRST_CAPACITY ? FIRST_CAPACITY : counts[i];
        struct spoke *child = fl__spoke_new(r, capacity);
        if (!child)
            return false;
        fl__ring_set_child(ring, i, (uintptr_t)child);
        child->start_ns = start_ns + ((uint64_t)i << shift);
        child->next_order = spoke->next_order;
        child->is_dense = counts[i] * 4 > spoke->live;
        ring->occupied |= (uint16_t)(1u << i);
    }
    return true;
}

/* Puts rings with one child each above a new ring, up to this level. NULL: no memory, and the ring is gone. */
static struct ring *add_parents(struct rings *r, struct ring *ring, unsigned level, uint64_t any_ns)
{
    while (ring->level < level) {
        struct ring *parent = new_ring(r, ring->level + 1u);
        if (!parent) {
            free_ring(r, ring);
            return NULL;
        }
        unsigned slot = fl__digit(any_ns, parent->level);
        fl__ring_set_child(parent, slot, (uintptr_t)ring + RING_TAG);
        parent->occupied = (uint16_t)(1u << slot);
        ring = parent;
    }
    return ring;
}

/* Puts rings into the place of an open spoke: as many, one below the other, as it takes to tell two nodes apart. So nodes are
 * visited a few times, however close together they are. False: no memory, and nothing has changed. */
static bool split(struct rings *r, struct spoke *spoke)
{
    struct ring *parent = spoke->ring;
    uint32_t counts[RING_SIZE];
    assert(spoke->state == SPOKE_OPEN && parent->level > 0 && spoke->live > 0);
    unsigned top = parent->level - 1u, level = fl__ring_level(fl__spoke_count_digits(r, spoke, top, counts), 0);
    if (level < top)
        fl__spoke_count_digits(r, spoke, level, counts);
    struct ring *ring = new_ring(r, level < top ? level : top), *lowest = ring;
    if (!ring)
        return false;
    if (!add_children(r, spoke, ring, counts)) {
        free_ring(r, ring);
        return false;
    }
    ring = add_parents(r, ring, top, fl__spoke_any_deadline(r, spoke));
    if (!ring)
        return false;
    fl__spoke_move_to(r, spoke, lowest);
    fl__ring_set_child(parent, spoke->slot, (uintptr_t)ring + RING_TAG);
    fl__spoke_free(r, spoke);
    return true;
}

/* ---- Adding ---- */

static struct spoke *add_spoke(struct rings *r, struct ring *ring, uint64_t deadline_ns)
{
    struct spoke *spoke = fl__spoke_new(r, FIRST_CAPACITY);
    if (!spoke)
        return NULL;
    unsigned slot = fl__digit(deadline_ns, ring->level);
    spoke->start_ns = start_of(ring, deadline_ns);
    fl__ring_set_child(ring, slot, (uintptr_t)spoke);
    occupy(r, ring, slot);
    return spoke;
}

/* Chains a spoke to the last one of a single deadline, which takes no more nodes. */
static struct spoke *chain(struct rings *r, struct spoke *first, struct spoke *last)
{
    assert(!last->next && first->ring->level == 0);
    struct spoke *spoke = fl__spoke_new(r, FIRST_CAPACITY);
    if (!spoke)
        return NULL;
    spoke->start_ns = first->start_ns;
    last->next = spoke;
    first->last = spoke;
    if (last->state == SPOKE_OPEN)
        last->state = SPOKE_SEALED;
    return spoke;
}

static void wake(struct rings *r, struct spoke *spoke)
{
    assert(spoke->state == SPOKE_IDLE);
    spoke->state = SPOKE_OPEN;
    occupy(r, spoke->ring, spoke->slot);
}

/* How many nodes a sorted spoke may have, before it is better to open it and to split it when it is due. */
static uint32_t sorted_limit(const struct spoke *spoke)
{
    if (spoke->ring->level == 0)
        return SORT_LIMIT;
    return spoke->is_dense ? SPOKE_LIMIT : 2 * SORT_LIMIT;
}

enum adding { ADDED, RETRY, NO_MEMORY };

static enum adding add_to(struct rings *r, struct spoke *first, fl_node *node, node_name name, uint64_t deadline_ns)
{
    struct spoke *spoke = first->next ? first->last : first;
    bool has_one_deadline = first->ring->level == 0;
    if (spoke->state == SPOKE_IDLE)
        wake(r, spoke);
    if (spoke->next_order == UINT32_MAX)
        fl__spoke_renumber(r, spoke);
    bool is_full = spoke->live >= (spoke->state == SPOKE_SORTED ? sorted_limit(spoke) : SPOKE_LIMIT);
    if (is_full && has_one_deadline) {
        spoke = chain(r, first, spoke);
    } else if (is_full && spoke->state == SPOKE_SORTED) {
        fl__spoke_unsort(r, spoke);
        return RETRY;
    } else if (is_full) {
        return split(r, spoke) ? RETRY : NO_MEMORY;
    } else if (spoke->live == spoke->capacity && !fl__spoke_grow(r, spoke)) {
        return NO_MEMORY;
    }
    if (!spoke)
        return NO_MEMORY;
    if (spoke->state == SPOKE_SORTED) {
        fl__spoke_insert(r, spoke, node, name, deadline_ns);
        return ADDED;
    }
    bool has_free = fl__spoke_find_free(spoke);
    assert(has_free);
    (void)has_free;
    fl__spoke_put(r, spoke, node, name, deadline_ns, r->cells != NULL);
    return ADDED;
}

bool fl__rings_add_slow(struct rings *r, fl_node *node, node_name name, uint64_t deadline_ns)
{
    fl__rings_let_go(r);
    for (;;) {
        unsigned slot;
        struct ring *ring = fl__find_ring(r, deadline_ns, &slot);
        struct spoke *spoke = fl__child_spoke(ring->child[slot]);
        if (!spoke)
            spoke = add_spoke(r, ring, deadline_ns);
        if (!spoke)
            return false;
        enum adding adding = add_to(r, spoke, node, name, deadline_ns);
        if (adding != RETRY)
            return adding == ADDED;
    }
}

/* ---- The first spoke ---- */

/* The main ring with the earliest nodes, and which child they are in; NULL if there are none. Children before base_ns are
 * earlier the coarser the ring is, the others the finer it is. */
static struct ring *first_main_ring(struct rings *r, unsigned *ret_slot)
{
    for (unsigned levels = r->occupied; levels;) {
        unsigned level = 31u - (unsigned)__builtin_clz(levels);
        unsigned past = r->main[level].occupied & ((1u << fl__digit(r->base_ns, level)) - 1);
        if (past) {
            *ret_slot = (unsigned)__builtin_ctz(past);
            return &r->main[level];
        }
        levels &= ~(1u << level);
    }
    if (!r->occupied)
        return NULL;
    struct ring *ring = &r->main[__builtin_ctz(r->occupied)];
    *ret_slot = (unsigned)__builtin_ctz(ring->occupied);
    return ring;
}

/* The first of a chain is empty: the next takes its place. */
static void unchain(struct rings *r, struct spoke *first)
{
    struct spoke *next = first->next;
    next->last = first->last == next ? NULL : first->last;
    fl__ring_set_child(first->ring, first->slot, (uintptr_t)next);
    fl__spoke_free(r, first);
}

/* The spoke with the earliest node; NULL if there are no nodes. */
static struct spoke *first_spoke(struct rings *r)
{
    unsigned slot = 0;
    struct ring *ring;
    while ((ring = first_main_ring(r, &slot))) {
        while (fl__is_ring(ring->child[slot])) {
            ring = fl__child_ring(ring->child[slot]);
            slot = (unsigned)__builtin_ctz(ring->occupied);
        }
        struct spoke *spoke = fl__child_spoke(ring->child[slot]);
        if (spoke->live > 0)
            return spoke;
        if (spoke->next) {
            unchain(r, spoke);
        } else {
            fl__spoke_idle(r, spoke);
            fl__ring_vacate(r, ring, slot);
        }
    }
    assert(r->count == 0);
    return NULL;
}

/* Sorts the first spoke, or what of it is first after it was split. Where there is no memory to split, all is sorted. */
static struct spoke *sort_first(struct rings *r, struct spoke *spoke)
{
    while (spoke->state != SPOKE_SORTED) {
        bool is_small = spoke->live <= SORT_LIMIT || spoke->is_dense || spoke->ring->level == 0;
        if (is_small || !split(r, spoke))
            fl__spoke_sort(r, spoke);
        else
            spoke = first_spoke(r);
    }
    return spoke;
}

static void set_exact_next(struct rings *r, const struct spoke *spoke)
{
    assert(spoke->state == SPOKE_SORTED && spoke->live > 0);
    r->next_ns = fl__spoke_node(r, spoke, spoke->live - 1u)->deadline_ns;
    r->next_is_exact = true;
}

static void raise_next(struct rings *r, uint64_t bound_ns)
{
    if (bound_ns > r->next_ns) {
        r->next_ns = bound_ns;
        r->next_is_exact = false;
    }
}

/* Takes at most `limit` nodes with deadlines up to `until_ns`, in order. */
size_t fl__rings_take(struct rings *r, uint64_t until_ns, node_name *out, size_t limit)
{
    size_t taken = 0;
    fl__rings_let_go(r);
    for (;;) {
        struct spoke *spoke = first_spoke(r);
        if (!spoke || spoke->start_ns > until_ns) {
            raise_next(r, spoke ? spoke->start_ns : UINT64_MAX);
            break;
        }
        spoke = sort_first(r, spoke);
        node_name *rest = taken > 0 ? out + taken : out; /* `out` may be NULL if `limit` is 0 */
        taken += fl__spoke_take(r, spoke, until_ns, rest, limit - taken);
        r->next_is_exact = false;
        if (spoke->live > 0) {
            set_exact_next(r, spoke);
            break;
        }
        r->may_rebase = true;
        if (taken == limit)
            break;
    }
    return taken;
}

/* Makes next_ns exact. There is a node. */
void fl__rings_find_next(struct rings *r)
{
    assert(r->count > 0);
    fl__rings_let_go(r);
    if (!r->next_is_exact)
        set_exact_next(r, sort_first(r, first_spoke(r)));
}

/* ---- Life ---- */

void fl__rings_init(struct rings *r, uint64_t base_ns)
{
    r->base_ns = base_ns;
    r->next_ns = UINT64_MAX;
    for (unsigned i = 0; i < RINGS; i++)
        r->main[i].level = (uint8_t)i;
}

/* Frees everything below a main ring. Finer rings become empty first; then their parent frees them. */
static void destroy_children(struct rings *r, struct ring *main)
{
    struct ring *ring = main;
    while (main->present) {
        if (!ring->present)
            ring = ring->parent;
        unsigned slot = (unsigned)__builtin_ctz(ring->present);
        uintptr_t child = ring->child[slot];
        if (fl__is_ring(child) && fl__child_ring(child)->present) {
            ring = fl__child_ring(child);
            continue;
        }
        fl__ring_set_child(ring, slot, 0);
        if (fl__is_ring(child))
            fl__release(fl__child_ring(child));
        else
            fl__spoke_free_chain(r, fl__child_spoke(child));
    }
}

void fl__rings_destroy(struct rings *r)
{
    for (unsigned i = 0; i < RINGS; i++)
        destroy_children(r, &r->main[i]);
    fl__spoke_release_arena(r);
}
