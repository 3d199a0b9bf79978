/* SPDX-License-Identifier: MIT */
/* The one definition of legal rings: all rings, spokes and nodes are walked. */

#include <inttypes.h>
#include <stdarg.h>

#include "wheel/rings.h"

struct check {
    const struct rings *r;
    FILE *explain;
    bool is_broken;
    uint64_t nodes;
    uint64_t min_ns;
};

__attribute__((format(printf, 3, 4))) static void expect(struct check *check, bool holds, const char *format, ...)
{
    if (holds)
        return;
    check->is_broken = true;
    if (!check->explain)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(check->explain, format, args);
    va_end(args);
    fputc('\n', check->explain);
}

static void check_node(struct check *check, const struct spoke *spoke, unsigned level, uint32_t entry)
{
    const fl_node *node = fl__spoke_node(check->r, spoke, entry);
    unsigned shift = level * DIGIT_BITS;
    expect(check, node->deadline_ns >> shift == spoke->start_ns >> shift, "a node is in the wrong spoke");
    expect(check, fl__place_spoke(node->place) == spoke->number, "a node does not know its spoke %" PRIu32,
           spoke->number);
    expect(check, (spoke->state == SPOKE_SORTED) == !!(node->place & PLACE_SORTED),
           "a node does not know whether it is sorted");
    expect(check, spoke->state == SPOKE_SORTED || fl__place_entry(node->place) == entry,
           "the node in entry %" PRIu32 " does not know it", entry);
    expect(check, fl__place_order(node->place) < spoke->next_order, "a node has an order that was not given out");
    check->nodes++;
    check->min_ns = node->deadline_ns < check->min_ns ? node->deadline_ns : check->min_ns;
}

static void check_order(struct check *check, const struct spoke *spoke, uint32_t entry)
{
    const fl_node *later = fl__spoke_node(check->r, spoke, entry - 1), *node = fl__spoke_node(check->r, spoke, entry);
    expect(check,
           later->deadline_ns > node->deadline_ns || (later->deadline_ns == node->deadline_ns &&
                                                      fl__place_order(later->place) > fl__place_order(node->place)),
           "a sorted spoke is out of order at entry %" PRIu32, entry);
}

static bool is_free(const struct spoke *spoke, uint32_t entry)
{
    bool has_words = spoke->state != SPOKE_SORTED;
    return has_words && (*fl__spoke_free_word(spoke, entry / WORD_BITS) >> entry % WORD_BITS & 1);
}

/* The node was stopped, and may no longer be there. */
static bool has_left(const struct rings *r, const struct spoke *spoke, uint32_t entry)
{
    uint32_t place = spoke->number << SPOKE_SHIFT | entry << ENTRY_SHIFT;
    for (uint32_t i = 0; i < r->leaving_count; i++)
        if (r->leaving[i] == place)
            return spoke->state != SPOKE_SORTED;
    return false;
}

static void check_spoke(struct check *check, const struct spoke *spoke, unsigned level)
{
    uint32_t live = 0;
    bool is_sorted = spoke->state == SPOKE_SORTED;
    expect(check, fl__spoke_by_number(check->r, spoke->number) == spoke, "a spoke has a wrong number");
    expect(check, spoke->live <= spoke->capacity && spoke->capacity <= SPOKE_LIMIT, "a spoke is too large");
    for (uint32_t i = 0; i < (is_sorted ? spoke->live : spoke->capacity); i++) {
        if (is_free(spoke, i))
            continue;
        live++;
        if (has_left(check->r, spoke, i))
            continue;
        check_node(check, spoke, level, i);
        if (is_sorted && i > 0)
            check_order(check, spoke, i);
    }
    expect(check, live == spoke->live, "spoke %" PRIu32 " counts %u nodes and has %" PRIu32, spoke->number, spoke->live,
           live);
}

static void check_chain(struct check *check, const struct ring *ring, unsigned slot)
{
    const struct spoke *first = fl__child_spoke(ring->child[slot]), *last = first;
    bool is_occupied = ring->occupied >> slot & 1;
    expect(check, first->ring == ring && first->slot == slot, "a spoke does not know its ring");
    expect(check, is_occupied == (first->state != SPOKE_IDLE), "an idle spoke and its bit differ");
    expect(check, first->state != SPOKE_IDLE || first->live == 0, "an idle spoke has nodes");
    for (const struct spoke *spoke = first; spoke; spoke = spoke->next) {
        check_spoke(check, spoke, ring->level);
        expect(check, spoke == first || !spoke->ring, "a spoke that is not the first of its chain has a ring");
        expect(check, (spoke->state == SPOKE_OPEN || spoke->state == SPOKE_IDLE) ? !spoke->next : true,
               "an open spoke has a successor");
        expect(check, spoke->state != SPOKE_SEALED || spoke->next, "a sealed spoke has no successor");
        last = spoke;
    }
    expect(check, first->next ? first->last == last && ring->level == 0 : true, "a chain has a wrong end");
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as there are digits */
static void check_ring(struct check *check, const struct ring *ring, uint64_t start_ns)
{
    expect(check, (ring->occupied & ~ring->present) == 0, "a ring has a bit for a child that is not there");
    expect(check, !ring->parent || ring->occupied, "a ring without nodes was not freed");
    for (unsigned i = 0; i < RING_SIZE; i++) {
        uintptr_t child = ring->child[i];
        uint64_t child_ns = start_ns + ((uint64_t)i << ring->level * DIGIT_BITS);
        expect(check, (ring->present >> i & 1) == (child != 0), "a ring's bits and children differ");
        if (!child)
            continue;
        if (!fl__is_ring(child)) {
            expect(check, fl__child_spoke(child)->start_ns == child_ns, "a spoke has a wrong start");
            check_chain(check, ring, i);
            continue;
        }
        const struct ring *finer = fl__child_ring(child);
        expect(check, finer->parent == ring && finer->slot == i && finer->level + 1 == ring->level,
               "a ring is in the wrong place");
        expect(check, ring->occupied >> i & 1, "a ring with nodes is not marked");
        check_ring(check, finer, child_ns);
    }
}

static void check_main_rings(struct check *check)
{
    const struct rings *r = check->r;
    for (unsigned i = 0; i < RINGS; i++) {
        const struct ring *ring = &r->main[i];
        unsigned shift = i * DIGIT_BITS, digit = fl__digit(r->base_ns, i);
        uint64_t above_ns = i + 1 < RINGS ? r->base_ns >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS) : 0;
        expect(check, ring->level == i && !ring->parent, "main ring %u is not one", i);
        expect(check, (r->occupied >> i & 1) == (ring->occupied != 0), "main ring %u and its bit differ", i);
        expect(check, i == 0 || !ring->child[digit], "main ring %u has a child in the path", i);
        check_ring(check, ring, above_ns);
    }
}

/* 0, or FL_INVALID_ARGUMENT after it has written what is broken to `explain` (may be NULL). */
int fl__rings_check(const struct rings *r, FILE *explain)
{
    struct check check = {.r = r, .explain = explain, .min_ns = UINT64_MAX};
    check_main_rings(&check);
    expect(&check, check.nodes == r->count, "the rings count %" PRIu64 " nodes and have %" PRIu64, r->count,
           check.nodes);
    expect(&check, r->next_ns <= check.min_ns, "the next deadline is taken for %" PRIu64 " and is %" PRIu64, r->next_ns,
           check.min_ns);
    expect(&check, !r->next_is_exact || r->next_ns == check.min_ns, "the next deadline is not exact");
    return check.is_broken ? FL_INVALID_ARGUMENT : 0;
}
