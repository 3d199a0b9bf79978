/* SPDX-License-Identifier: MIT */
/* A red-black tree of the program's own nodes, with the earliest one remembered: how nginx and the Linux kernel keep
 * their timers. The handle is the node, 32 bytes, two of which share a cache line.
 *
 * The colour is the lowest bit of the parent's address. An absent child is NULL and black. Inserting and removing
 * follow the usual case analysis; each loop keeps "all paths have the same number of black nodes, except as the comment
 * on the loop says" and moves the exception towards the root. */

#include "../frame.h"
#include "rival.h"
#include "virtual_clock.h"

#define RED ((uintptr_t)1)

struct node {
    struct node *child[2]; /* earlier, later */
    uintptr_t parent;      /* address of the parent, and RED */
    uint64_t deadline_ns;
};

struct tree {
    struct node *root, *first;
};

static uint64_t encode(uint64_t delay_ns)
{
    return delay_ns;
}

static inline struct node *parent_of(const struct node *n)
{
    return (struct node *)(n->parent & ~RED);
}

static inline bool is_red(const struct node *n)
{
    return n && (n->parent & RED);
}

static inline void set_parent(struct node *n, struct node *parent)
{
    n->parent = (uintptr_t)parent | (n->parent & RED);
}

static inline void make_red(struct node *n)
{
    n->parent |= RED;
}

static inline void make_black(struct node *n)
{
    n->parent &= ~RED;
}

/* Hangs `to` where `from` hangs under `parent`. */
static inline void replace_child(struct tree *t, struct node *parent, struct node *from, struct node *to)
{
    if (!parent)
        t->root = to;
    else
        parent->child[parent->child[1] == from] = to;
}

/* The child on the other side of `side` comes up; `n` goes down on `side`. */
static void rotate(struct tree *t, struct node *n, int side)
{
    struct node *up = n->child[!side], *inner = up->child[side], *parent = parent_of(n);
    n->child[!side] = inner;
    if (inner)
        set_parent(inner, n);
    set_parent(up, parent);
    replace_child(t, parent, n, up);
    up->child[side] = n;
    set_parent(n, up);
}

/* `n` is red, and so may its parent be: the only thing wrong with the tree. */
static void mend_after_insert(struct tree *t, struct node *n)
{
    struct node *parent;
    while ((parent = parent_of(n)) && is_red(parent)) {
        struct node *grandparent = parent_of(parent);
        int side = grandparent->child[1] == parent;
        struct node *uncle = grandparent->child[!side];
        make_red(grandparent);
        if (is_red(uncle)) {
            make_black(parent);
            make_black(uncle);
            n = grandparent;
            continue;
        }
        if (parent->child[!side] == n) {
            rotate(t, parent, side);
            parent = n;
        }
        make_black(parent);
        rotate(t, grandparent, !side);
        break;
    }
    make_black(t->root);
}

static void insert(struct tree *t, struct node *n)
{
    struct node *parent = NULL, **link = &t->root;
    bool is_first = true;
    while (*link) {
        parent = *link;
        int side = n->deadline_ns >= parent->deadline_ns;
        is_first = is_first && side == 0;
        link = &parent->child[side];
    }
    n->child[0] = n->child[1] = NULL;
    n->parent = (uintptr_t)parent | RED;
    *link = n;
    if (is_first)
        t->first = n;
    mend_after_insert(t, n);
}

/* Paths through the child of `parent` on `side` have one black node too few. */
static void mend_after_remove(struct tree *t, struct node *parent, int side)
{
    while (parent && !is_red(parent->child[side])) {
        struct node *sibling = parent->child[!side];
        if (is_red(sibling)) {
            make_black(sibling);
            make_red(parent);
            rotate(t, parent, side);
            sibling = parent->child[!side];
        }
        if (!is_red(sibling->child[0]) && !is_red(sibling->child[1])) {
            make_red(sibling);
            struct node *up = parent_of(parent);
            if (is_red(parent) || !up) {
                make_black(parent);
                return;
            }
            side = up->child[1] == parent;
            parent = up;
            continue;
        }
        if (!is_red(sibling->child[!side])) {
            make_black(sibling->child[side]);
            make_red(sibling);
            rotate(t, sibling, !side);
            sibling = parent->child[!side];
        }
        sibling->parent = (sibling->parent & ~RED) | (parent->parent & RED);
        make_black(parent);
        make_black(sibling->child[!side]);
        rotate(t, parent, side);
        return;
    }
    struct node *short_one = parent ? parent->child[side] : t->root;
    if (short_one)
        make_black(short_one);
}

/* The node with both children gives its place to its successor, whose place is then the one to close. */
static void swap_with_successor(struct tree *t, struct node *n)
{
    struct node *s = n->child[1];
    while (s->child[0])
        s = s->child[0];
    struct node *parent = parent_of(n), *s_parent = parent_of(s), *s_child = s->child[1];
    uintptr_t n_red = n->parent & RED, s_red = s->parent & RED;
    replace_child(t, parent, n, s);
    s->parent = (uintptr_t)parent | n_red;
    s->child[0] = n->child[0];
    set_parent(s->child[0], s);
    if (s_parent == n) {
        s->child[1] = n;
        n->parent = (uintptr_t)s | s_red;
    } else {
        s->child[1] = n->child[1];
        set_parent(s->child[1], s);
        s_parent->child[0] = n;
        n->parent = (uintptr_t)s_parent | s_red;
    }
    n->child[0] = NULL;
    n->child[1] = s_child;
    if (s_child)
        set_parent(s_child, n);
}

/* The earliest node has no earlier child: next is the first of its later ones, or its parent. */
static struct node *after_first(const struct node *n)
{
    struct node *next = n->child[1];
    if (!next)
        return parent_of(n);
    while (next->child[0])
        next = next->child[0];
    return next;
}

static void take_out(struct tree *t, struct node *n)
{
    if (t->first == n)
        t->first = after_first(n);
    if (n->child[0] && n->child[1])
        swap_with_successor(t, n);
    struct node *parent = parent_of(n), *child = n->child[0] ? n->child[0] : n->child[1];
    int side = parent && parent->child[1] == n;
    replace_child(t, parent, n, child);
    if (child)
        set_parent(child, parent);
    if (!is_red(n))
        mend_after_remove(t, parent, side);
}

static void *create(bool huge_pages)
{
    static struct tree tree;
    (void)huge_pages;
    tree = (struct tree){NULL, NULL};
    return &tree;
}

static void destroy(void *self)
{
    (void)self;
}

static void prepare(void *self, void *handle)
{
    (void)self, (void)handle;
}

static void schedule(void *self, void *handle, uint64_t delay)
{
    struct node *n = handle;
    n->deadline_ns = virtual_clock_ns() + delay;
    insert(self, n);
}

static void cancel(void *self, void *handle)
{
    take_out(self, handle);
}

static void reschedule(void *self, void *handle, uint64_t delay)
{
    take_out(self, handle);
    schedule(self, handle, delay);
}

static void poll(void *self)
{
    struct tree *t = self;
    uint64_t now_ns = virtual_clock_ns();
    while (t->first && t->first->deadline_ns <= now_ns) {
        struct node *n = t->first;
        take_out(t, n);
        timer_fired(n);
    }
}

const struct timer_rival rival_rbtree = {
    .handle_size = sizeof(struct node),
    .encode = encode,
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .schedule = schedule,
    .cancel = cancel,
    .reschedule = reschedule,
    .poll = poll,
};
