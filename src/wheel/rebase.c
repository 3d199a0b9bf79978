/* SPDX-License-Identifier: MIT */
/* The base of the rings follows the time of the polls. */

#include "base/alloc.h"
#include "wheel/rings.h"

/* Frees the idle spokes of the main rings below this level. False if there may be nodes. */
static bool clear_below(struct rings *r, unsigned level)
{
    if (r->occupied & ((1u << level) - 1))
        return false;
    for (unsigned i = 0; i < level; i++)
        for (struct ring *ring = &r->main[i]; ring->present;) {
            unsigned slot = (unsigned)__builtin_ctz(ring->present);
            fl__spoke_free(r, fl__child_spoke(ring->child[slot]));
            fl__ring_set_child(ring, slot, 0);
        }
    return true;
}

/* The children of a ring move to the main ring of its level, which is empty. */
static void raise_children(struct rings *r, struct ring *ring)
{
    struct ring *main = &r->main[ring->level], *parent = ring->parent;
    assert(main->present == 0);
    for (unsigned i = 0; i < RING_SIZE; i++)
        fl__ring_set_child(main, i, ring->child[i]);
    main->occupied = ring->occupied;
    r->occupied |= (uint16_t)(main->occupied ? 1u << main->level : 0);
    fl__ring_set_child(parent, ring->slot, 0);
    fl__ring_vacate(r, parent, ring->slot);
    r->bytes -= sizeof *ring;
    fl__release(ring);
}

static bool may_be_base(const struct ring *ring, unsigned digit)
{
    uintptr_t child = ring->child[digit];
    return !child || (!fl__is_ring(child) && fl__child_spoke(child)->state == SPOKE_IDLE);
}

/* Finds the last ring and digit of the path to now that lead to no nodes, at or below a main ring. A digit is good if there
 * is nothing, or, where now is in a spoke, the digit before, if there is nothing. NULL: there is no such ring. */
static struct ring *open_end(struct ring *ring, uint64_t now_ns, unsigned *ret_digit)
{
    struct ring *end = NULL;
    for (;;) {
        unsigned digit = fl__digit(now_ns, ring->level);
        if (may_be_base(ring, digit)) {
            *ret_digit = digit;
            return ring;
        }
        if (digit > 0 && may_be_base(ring, digit - 1)) {
            *ret_digit = digit - 1;
            end = ring;
        }
        if (!fl__is_ring(ring->child[digit]))
            return end;
        ring = fl__child_ring(ring->child[digit]);
    }
}

/* Moves the base towards now, as far as that goes without touching nodes: the path may lead through rings and to a child
 * that is not there, but not into a spoke with nodes. */
void fl__rings_rebase(struct rings *r, uint64_t now_ns)
{
    unsigned level = fl__ring_level(now_ns, r->base_ns), digit = 0;
    r->may_rebase = false;
    const struct ring *end = now_ns > r->base_ns ? open_end(&r->main[level], now_ns, &digit) : NULL;
    if (!end || (end->level == level && digit <= fl__digit(r->base_ns, level)) || !clear_below(r, level))
        return;
    unsigned end_level = end->level;
    for (; level > end_level; level--)
        raise_children(r, fl__child_ring(r->main[level].child[fl__digit(now_ns, level)]));
    struct ring *ring = &r->main[level];
    if (ring->child[digit])
        fl__spoke_free(r, fl__child_spoke(ring->child[digit]));
    fl__ring_set_child(ring, digit, 0);
    unsigned shift = level * DIGIT_BITS;
    uint64_t above = level + 1 < RINGS ? now_ns >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS) : 0;
    r->base_ns = above | (uint64_t)digit << shift;
}
