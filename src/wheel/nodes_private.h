/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_NODES_PRIVATE_H
#define FOLIOT_WHEEL_NODES_PRIVATE_H

/* The structure of the intrusive wheel, for nodes.c. */

#include "wheel/rings.h"

enum {
    OVERFLOW_BITS = 8,
    OVERFLOW_LISTS = 1 << OVERFLOW_BITS,
    LISTED = 1, /* the bit of a place */
};

struct fl_nodes {
    uint64_t now_ns;         /* of the latest poll */
    uint64_t overflow_count; /* nodes in the overflow lists */
    struct rings rings;
    fl_node *overflow[OVERFLOW_LISTS];
};

static inline bool fl__is_listed(const fl_node *node)
{
    return node->place & LISTED;
}

static inline fl_node *fl__listed_next(const fl_node *node)
{
    assert(fl__is_listed(node));
    return (fl_node *)(uintptr_t)(node->place - LISTED);
}

static inline void fl__set_listed_next(fl_node *node, fl_node *next)
{
    node->place = (uint64_t)(uintptr_t)next + LISTED;
}

#endif
