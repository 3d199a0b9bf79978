/* SPDX-License-Identifier: MIT */
/* Sorted spokes.
 *
 * A sorted spoke is an array without gaps, latest node first, so that poll takes nodes from its end. Here a node is found by
 * a search for its deadline and order. Only the earliest spoke is sorted, and it is small: see rings.c. */

#include <string.h>

#include "wheel/rings.h"

enum { INSERTION_RUN = 8 }; /* keys that are sorted by insertion; then such runs are merged */

static inline bool is_before(const struct sort_key *a, const struct sort_key *b)
{
    return a->deadline_ns < b->deadline_ns || (a->deadline_ns == b->deadline_ns && a->order < b->order);
}

static void sort_run(struct sort_key *keys, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct sort_key key = keys[i];
        uint32_t j = i;
        for (; j > 0 && is_before(&key, &keys[j - 1]); j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

static void merge(const struct sort_key *a, const struct sort_key *a_end, const struct sort_key *b,
                  const struct sort_key *b_end, struct sort_key *out)
{
    while (a < a_end && b < b_end) {
        bool from_b = is_before(b, a);
        *out++ = *(from_b ? b : a);
        a += !from_b;
        b += from_b;
    }
    memcpy(out, a, (size_t)((const char *)a_end - (const char *)a));
    memcpy(out + (a_end - a), b, (size_t)((const char *)b_end - (const char *)b));
}

/* Sorts the first `count` keys of the scratch memory, earliest first. Returns where they are. */
static struct sort_key *sort_scratch(struct rings *r, uint32_t count)
{
    struct sort_key *from = r->scratch, *to = r->scratch + r->scratch_capacity;
    for (uint32_t i = 0; i < count; i += INSERTION_RUN)
        sort_run(from + i, count - i < INSERTION_RUN ? count - i : INSERTION_RUN);
    for (uint32_t run = INSERTION_RUN; run < count; run *= 2) {
        for (uint32_t i = 0; i < count; i += 2 * run) {
            uint32_t middle = i + run < count ? i + run : count, end = i + 2 * run < count ? i + 2 * run : count;
            merge(from + i, from + middle, from + middle, from + end, to + i);
        }
        struct sort_key *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* The nodes of a spoke that is not sorted, earliest first, in the scratch memory. */
static const struct sort_key *sorted_keys(struct rings *r, const struct spoke *spoke)
{
    fl__spoke_gather(r, spoke);
    for (uint32_t i = 0; i < spoke->live; i++) {
        const fl_node *node = fl__named_node(r, r->gathered[i]);
        fl__spoke_prefetch_ahead(r, spoke, i);
        r->scratch[i] = (struct sort_key){node->deadline_ns, fl__place_order(node->place), r->gathered[i]};
    }
    r->touched += spoke->live;
    return sort_scratch(r, spoke->live);
}

void fl__spoke_sort(struct rings *r, struct spoke *spoke)
{
    assert(spoke->state == SPOKE_OPEN || spoke->state == SPOKE_SEALED);
    const struct sort_key *keys = sorted_keys(r, spoke);
    for (uint32_t i = 0; i < spoke->live; i++) {
        fl__spoke_set_name(r, spoke, spoke->live - 1 - i, keys[i].name);
        fl__named_node(r, keys[i].name)->place |= PLACE_SORTED;
    }
    spoke->state = SPOKE_SORTED;
}

/* Opens a sorted spoke: from now on the places of its nodes tell the entry. */
void fl__spoke_unsort(const struct rings *r, struct spoke *spoke)
{
    assert(spoke->state == SPOKE_SORTED);
    for (uint32_t i = 0; i < spoke->live; i++) {
        fl_node *node = fl__spoke_node(r, spoke, i);
        fl__set_place(node, fl__place_order(node->place), spoke->number, i);
    }
    spoke->state = SPOKE_OPEN;
    fl__spoke_set_free_from(spoke, spoke->live);
}

/* Numbers the nodes of an open or sorted spoke anew, from 0. */
void fl__spoke_renumber(struct rings *r, struct spoke *spoke)
{
    assert(spoke->state == SPOKE_OPEN || spoke->state == SPOKE_SORTED);
    bool was_open = spoke->state == SPOKE_OPEN;
    if (was_open)
        fl__spoke_sort(r, spoke);
    for (uint32_t i = 0; i < spoke->live; i++) {
        fl_node *node = fl__spoke_node(r, spoke, i);
        fl__set_place(node, spoke->live - 1 - i, spoke->number, 0);
        node->place |= PLACE_SORTED;
    }
    spoke->next_order = spoke->live;
    if (was_open)
        fl__spoke_unsort(r, spoke);
}

/* The first entry of a sorted spoke that is not after this moment. */
static uint32_t search(const struct rings *r, const struct spoke *spoke, uint64_t deadline_ns, uint32_t order)
{
    uint32_t begin = 0, end = spoke->live;
    while (begin < end) {
        uint32_t middle = (begin + end) / 2;
        const fl_node *node = fl__spoke_node(r, spoke, middle);
        bool is_after = node->deadline_ns > deadline_ns ||
                        (node->deadline_ns == deadline_ns && fl__place_order(node->place) > order);
        begin = is_after ? middle + 1 : begin;
        end = is_after ? end : middle;
    }
    return begin;
}

/* Moves the entries from `from` on to begin at `to`, in a sorted spoke. */
static void move_entries(const struct rings *r, const struct spoke *spoke, uint32_t from, uint32_t to)
{
    char *entries = spoke->entries;
    size_t size = fl__rings_name_size(r);
    memmove(entries + to * size, entries + from * size, (spoke->live - from) * size);
}

/* Adds a node to a sorted spoke, which has room. */
void fl__spoke_insert(struct rings *r, struct spoke *spoke, fl_node *node, node_name name, uint64_t deadline_ns)
{
    assert(spoke->state == SPOKE_SORTED && spoke->live < spoke->capacity);
    uint32_t order = spoke->next_order++, at = search(r, spoke, deadline_ns, order);
    move_entries(r, spoke, at, at + 1);
    fl__spoke_set_name(r, spoke, at, name);
    spoke->live++;
    node->deadline_ns = deadline_ns;
    fl__set_place(node, order, spoke->number, 0);
    node->place |= PLACE_SORTED;
    r->count++;
    if (deadline_ns < r->next_ns) {
        r->next_ns = deadline_ns;
        r->next_is_exact = true;
    }
}

/* Takes a node out of a sorted spoke. */
void fl__spoke_remove(const struct rings *r, struct spoke *spoke, const fl_node *node)
{
    uint32_t at = search(r, spoke, node->deadline_ns, fl__place_order(node->place));
    assert(spoke->state == SPOKE_SORTED && at < spoke->live && fl__spoke_node(r, spoke, at) == node);
    move_entries(r, spoke, at + 1, at);
}

/* Takes at most `limit` nodes with deadlines up to `until_ns` from a sorted spoke. A cell keeps its place until it is given
 * back: its chunk may be packed before that. */
size_t fl__spoke_take(struct rings *r, struct spoke *spoke, uint64_t until_ns, node_name *out, size_t limit)
{
    assert(spoke->state == SPOKE_SORTED);
    size_t taken = 0;
    uint32_t live = spoke->live;
    while (taken < limit && live > 0) {
        node_name name = fl__spoke_name(r, spoke, live - 1);
        fl_node *node = fl__named_node(r, name);
        if (node->deadline_ns > until_ns)
            break;
        if (!r->cells)
            node->place = 0;
        out[taken++] = name;
        live--;
    }
    spoke->live = (uint16_t)live;
    r->count -= taken;
    r->touched += taken;
    return taken;
}
