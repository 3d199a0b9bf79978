/* SPDX-License-Identifier: MIT */
/* The public intrusive wheel: rings and spokes (see rings.c), and lists for nodes for which there was no memory.
 *
 * A start that needs memory for a spoke and does not get it puts the node into one of the overflow lists, which are linked
 * through the nodes. A hash of the deadline selects the list. Each list is in order of deadline and then of start. A node
 * may go to a spoke only if its list has no node with that deadline, so nodes with equal deadlines in lists were always
 * started after those in spokes. Every poll tries to move the listed nodes to spokes. */

#include "base/alloc.h"
#include "wheel/nodes_private.h"

/* ---- Overflow ---- */

static fl_node **overflow_list(fl_nodes *nodes, uint64_t deadline_ns)
{
    return &nodes->overflow[deadline_ns * 0x9e3779b97f4a7c15ull >> (64 - OVERFLOW_BITS)];
}

static void link_node(fl_node **at, fl_node *previous, fl_node *node)
{
    if (previous)
        fl__set_listed_next(previous, node);
    else
        *at = node;
}

static __attribute__((noinline)) void overflow_add(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns)
{
    fl_node **list = overflow_list(nodes, deadline_ns), *previous = NULL, *next = *list;
    for (; next && next->deadline_ns <= deadline_ns; next = fl__listed_next(next))
        previous = next;
    node->deadline_ns = deadline_ns;
    fl__set_listed_next(node, next);
    link_node(list, previous, node);
    nodes->overflow_count++;
}

static __attribute__((noinline)) void overflow_remove(fl_nodes *nodes, fl_node *node)
{
    fl_node **list = overflow_list(nodes, node->deadline_ns), *previous = NULL;
    for (fl_node *at = *list; at != node; at = fl__listed_next(at)) {
        assert(at);
        previous = at;
    }
    link_node(list, previous, fl__listed_next(node));
    nodes->overflow_count--;
}

/* The list with the earliest of all listed nodes; NULL if all are empty. */
static fl_node **overflow_first(fl_nodes *nodes)
{
    fl_node **first = NULL;
    for (unsigned i = 0; nodes->overflow_count > 0 && i < OVERFLOW_LISTS; i++)
        if (nodes->overflow[i] && (!first || nodes->overflow[i]->deadline_ns < (*first)->deadline_ns))
            first = &nodes->overflow[i];
    return first;
}

static fl_node *overflow_take(fl_nodes *nodes, fl_node **list)
{
    fl_node *node = *list;
    *list = fl__listed_next(node);
    node->place = 0;
    nodes->overflow_count--;
    return node;
}

static inline bool add_at_once(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns)
{
    return fl__rings_add_at_once(&nodes->rings, node, (node_name)node, deadline_ns, false);
}

/* Moves the listed nodes to spokes, as far as there is memory. */
static void overflow_drain(fl_nodes *nodes)
{
    for (unsigned i = 0; i < OVERFLOW_LISTS; i++)
        while (nodes->overflow[i]) {
            fl_node *node = nodes->overflow[i], *next = fl__listed_next(node);
            node->place = 0;
            if (!fl__rings_add_slow(&nodes->rings, node, (node_name)node, node->deadline_ns)) {
                fl__set_listed_next(node, next);
                return;
            }
            nodes->overflow[i] = next;
            nodes->overflow_count--;
        }
}

/* ---- Starting and stopping ----
 *
 * What happens nearly always is in functions that call others only at their end. So they need no registers of their own, and
 * the processor reaches the next operation early, while the memory of this one is still on its way. */

static __attribute__((noinline)) bool stop_slow(fl_nodes *nodes, fl_node *node)
{
    if (fl__is_listed(node))
        overflow_remove(nodes, node);
    else
        fl__rings_remove_slow(&nodes->rings, node);
    node->place = 0;
    return true;
}

bool fl_nodes_stop(fl_nodes *nodes, fl_node *node)
{
    if (node->place == 0)
        return false;
    if (__builtin_expect(fl__is_listed(node) || !fl__rings_leave(&nodes->rings, node), 0))
        return stop_slow(nodes, node);
    node->place = 0;
    return true;
}

static __attribute__((noinline)) void start_slow(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns)
{
    if ((nodes->overflow_count > 0 && *overflow_list(nodes, deadline_ns)) ||
        !fl__rings_add_slow(&nodes->rings, node, (node_name)node, deadline_ns))
        overflow_add(nodes, node, deadline_ns);
}

static inline void start(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns)
{
    if (__builtin_expect(nodes->overflow_count > 0 || !add_at_once(nodes, node, deadline_ns), 0))
        start_slow(nodes, node, deadline_ns);
}

static __attribute__((noinline)) void move(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns)
{
    fl_nodes_stop(nodes, node);
    start(nodes, node, deadline_ns);
}

void fl_nodes_start(fl_nodes *nodes, fl_node *node, uint64_t deadline_ns)
{
    if (node->place == 0)
        start(nodes, node, deadline_ns);
    else
        move(nodes, node, deadline_ns);
}

/* ---- Polling ---- */

/* Takes nodes from spokes and lists. Of equal deadlines, those in spokes are the older ones. */
static size_t take_with_overflow(fl_nodes *nodes, uint64_t now_ns, node_name *out, size_t limit)
{
    size_t taken = 0;
    fl_node **list;
    overflow_drain(nodes);
    if (limit == 0)
        return 0; /* and `out` may be NULL */
    while ((list = overflow_first(nodes)) && (*list)->deadline_ns <= now_ns) {
        taken += fl__rings_take(&nodes->rings, (*list)->deadline_ns, out + taken, limit - taken);
        if (taken == limit)
            return taken;
        out[taken++] = (node_name)overflow_take(nodes, list);
    }
    return taken + fl__rings_take(&nodes->rings, now_ns, out + taken, limit - taken);
}

static __attribute__((noinline)) size_t poll_due(fl_nodes *nodes, node_name *out, size_t limit)
{
    if (nodes->overflow_count > 0)
        return take_with_overflow(nodes, nodes->now_ns, out, limit);
    size_t taken = fl__rings_take(&nodes->rings, nodes->now_ns, out, limit);
    if (nodes->rings.may_rebase)
        fl__rings_rebase(&nodes->rings, nodes->now_ns);
    return taken;
}

size_t fl_nodes_poll(fl_nodes *nodes, uint64_t now_ns, fl_node **out, size_t limit)
{
    assert(out || limit == 0);
    nodes->now_ns = now_ns > nodes->now_ns ? now_ns : nodes->now_ns;
    bool is_idle = nodes->now_ns < nodes->rings.next_ns && nodes->overflow_count == 0;
    return __builtin_expect(is_idle, 1) ? 0 : poll_due(nodes, (node_name *)out, limit);
}

bool fl_nodes_next_deadline(fl_nodes *nodes, uint64_t *ret_ns)
{
    if (fl_nodes_count(nodes) == 0)
        return false;
    uint64_t next_ns = UINT64_MAX;
    fl_node **list = overflow_first(nodes);
    if (nodes->rings.count > 0) {
        fl__rings_find_next(&nodes->rings);
        next_ns = nodes->rings.next_ns;
    }
    *ret_ns = list && (*list)->deadline_ns < next_ns ? (*list)->deadline_ns : next_ns;
    return true;
}

/* Polls need not prepare anything ahead of time, so a program may sleep until the next deadline. */
bool fl_nodes_next_poll(fl_nodes *nodes, uint64_t *ret_ns)
{
    return fl_nodes_next_deadline(nodes, ret_ns);
}

/* ---- Questions and life ---- */

uint64_t fl_nodes_count(const fl_nodes *nodes)
{
    return nodes->rings.count + nodes->overflow_count;
}

bool fl_node_is_waiting(const fl_node *node)
{
    return node->place != 0;
}

uint64_t fl_node_deadline_ns(const fl_node *node)
{
    return node->deadline_ns;
}

uint64_t fl_nodes_bytes(const fl_nodes *nodes)
{
    return nodes->rings.bytes + fl__lines_bytes(sizeof *nodes);
}

int fl_nodes_new(const fl_wheel_config *config, fl_nodes **ret)
{
    fl_nodes *nodes = fl__alloc_zeroed_lines(sizeof *nodes);
    if (!nodes)
        return FL_NO_MEMORY;
    fl__rings_init(&nodes->rings, config ? config->start_ns : 0);
    *ret = nodes;
    return 0;
}

void fl_nodes_free(fl_nodes *nodes)
{
    if (!nodes)
        return;
    fl__rings_destroy(&nodes->rings);
    fl__release_lines(nodes);
}

int fl_nodes_check(const fl_nodes *nodes, FILE *explain)
{
    int r = fl__rings_check(&nodes->rings, explain);
    uint64_t listed = 0;
    bool is_ordered = true;
    for (unsigned i = 0; i < OVERFLOW_LISTS; i++)
        for (const fl_node *node = nodes->overflow[i], *next; node; node = next) {
            next = fl__listed_next(node);
            is_ordered &= !next || next->deadline_ns >= node->deadline_ns;
            listed++;
        }
    if (is_ordered && listed == nodes->overflow_count)
        return r;
    if (explain)
        fprintf(explain, "the overflow lists are out of order, or have lost nodes\n");
    return FL_INVALID_ARGUMENT;
}
