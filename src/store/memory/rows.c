/* SPDX-License-Identifier: MIT */
/* The rows of a shard in memory.
 *
 * They are filed in one tree ordered by (window, number), so that the rows of a window stand together and the windows are
 * found by stepping over them; and found again through three hash tables: by key, by first key if they were moved, and by
 * name. Rows that were given up have a tree of their own.
 *
 * The trees are treaps whose priorities are a hash of the number: balanced in expectation whatever the order of arrival,
 * the same in every run, and nothing in a node but two pointers. Trees and tables are made of what stands in the rows
 * themselves, so that putting a row cannot fail; a table that cannot get memory to grow stays as it is and gets slower.
 */

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "store/memory/rows.h"

#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* --- The tree ----------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
    return x ^ x >> 32;
}

static uint64_t priority(const struct fl__node *node)
{
    return mix(node->seq);
}

static bool before(const struct fl__node *node, uint64_t group, uint64_t seq)
{
    return node->group != group ? node->group < group : node->seq < seq;
}

/* The first node that is not before (group, seq), or NULL. */
static struct fl__node *tree_find(struct fl__node *root, uint64_t group, uint64_t seq)
{
    struct fl__node *found = NULL;
    while (root) {
        if (before(root, group, seq)) {
            root = root->right;
        } else {
            found = root;
            root = root->left;
        }
    }
    return found;
}

/* Goes down to where the priorities say that the node belongs, and splits what is below into its two sides. */
static void tree_insert(struct fl__node **root, struct fl__node *node)
{
    struct fl__node **at = root;
    while (*at && priority(*at) >= priority(node))
        at = before(*at, node->group, node->seq) ? &(*at)->right : &(*at)->left;
    struct fl__node *rest = *at, **left = &node->left, **right = &node->right;
    *at = node;
    while (rest) {
        if (before(rest, node->group, node->seq)) {
            *left = rest;
            left = &rest->right;
            rest = rest->right;
        } else {
            *right = rest;
            right = &rest->left;
            rest = rest->left;
        }
    }
    *left = *right = NULL;
}

/* The reverse: what was below the node on its two sides is merged into its place. */
static void tree_remove(struct fl__node **root, struct fl__node *node)
{
    struct fl__node **at = root;
    while (*at != node)
        at = before(*at, node->group, node->seq) ? &(*at)->right : &(*at)->left;
    struct fl__node *left = node->left, *right = node->right;
    while (left && right) {
        if (priority(left) >= priority(right)) {
            *at = left;
            at = &left->right;
            left = left->right;
        } else {
            *at = right;
            at = &right->left;
            right = right->left;
        }
    }
    *at = left ? left : right;
}

/* Frees all nodes: a node without a left side is freed, others are turned to the right first. */
static void tree_free(struct fl__node *node)
{
    while (node) {
        struct fl__node *next = node->left;
        if (next) {
            node->left = next->right;
            next->right = node;
        } else {
            next = node->right;
            fl__release(node);
        }
        node = next;
    }
}

/* --- One row ------------------------------------------------------------------------------------------------------ */

static unsigned char *append(unsigned char *to, fl_bytes bytes)
{
    if (bytes.size > 0)
        memcpy(to, bytes.data, bytes.size);
    return to + bytes.size;
}

struct fl__memory_row *fl__row_new(const fl_row *row)
{
    struct fl__memory_row *copy = fl__alloc(sizeof *copy + row->ns.size + row->name.size + row->body.size);
    if (!copy)
        return NULL;
    *copy = (struct fl__memory_row){.filed = {.group = row->window, .seq = row->key.seq},
                                    .at_us = row->key.at_us,
                                    .id = row->id,
                                    .body_size = (uint32_t)row->body.size,
                                    .ns_size = (uint8_t)row->ns.size,
                                    .name_size = (uint8_t)row->name.size};
    append(append(append(copy->bytes, row->ns), row->name), row->body);
    return copy;
}

struct fl__memory_dead *fl__dead_new(const fl_dead_row *dead)
{
    const fl_row *row = &dead->row;
    size_t size = row->ns.size + row->name.size + row->body.size + dead->reason.size;
    struct fl__memory_dead *copy = fl__alloc(sizeof *copy + size);
    if (!copy)
        return NULL;
    *copy = (struct fl__memory_dead){.filed = {.seq = row->id.seq},
                                     .id = row->id,
                                     .died_us = dead->died_us,
                                     .body_size = (uint32_t)row->body.size,
                                     .reason_size = (uint32_t)dead->reason.size,
                                     .ns_size = (uint8_t)row->ns.size,
                                     .name_size = (uint8_t)row->name.size};
    append(append(append(append(copy->bytes, row->ns), row->name), row->body), dead->reason);
    return copy;
}

size_t fl__row_bytes(const struct fl__memory_row *row)
{
    return (size_t)row->ns_size + row->name_size + row->body_size;
}

size_t fl__dead_bytes(const struct fl__memory_dead *dead)
{
    return (size_t)dead->ns_size + dead->name_size + dead->body_size + dead->reason_size;
}

fl_row fl__row_view(const struct fl__memory_row *row, const unsigned char *bytes)
{
    return (fl_row){.key = fl__row_key(row),
                    .id = row->id,
                    .window = row->filed.group,
                    .ns = {bytes, row->ns_size},
                    .name = {bytes + row->ns_size, row->name_size},
                    .body = {bytes + row->ns_size + row->name_size, row->body_size}};
}

fl_dead_row fl__dead_view(const struct fl__memory_dead *dead, const unsigned char *bytes)
{
    const unsigned char *body = bytes + dead->ns_size + dead->name_size;
    return (fl_dead_row){.row = {.key = dead->id,
                                 .id = dead->id,
                                 .ns = {bytes, dead->ns_size},
                                 .name = {bytes + dead->ns_size, dead->name_size},
                                 .body = {body, dead->body_size}},
                         .died_us = dead->died_us,
                         .reason = {body + dead->body_size, dead->reason_size}};
}

/* --- All rows ----------------------------------------------------------------------------------------------------- */

void fl__rows_clear(struct fl__rows *rows)
{
    tree_free(rows->filed);
    tree_free(rows->dead);
    fl__hash_free(&rows->by_key);
    fl__hash_free(&rows->by_id);
    fl__hash_free(&rows->by_name);
    rows->filed = rows->dead = NULL;
}

void fl__rows_move(struct fl__rows *to, struct fl__rows *from)
{
    *to = *from;
    *from = (struct fl__rows){0};
}

static bool same_key(fl_key a, fl_key b)
{
    return a.at_us == b.at_us && a.seq == b.seq;
}

static bool was_moved(const struct fl__memory_row *row)
{
    return !same_key(row->id, fl__row_key(row));
}

static fl_bytes ns_of(const struct fl__memory_row *row)
{
    return (fl_bytes){row->bytes, row->ns_size};
}

static fl_bytes name_of(const struct fl__memory_row *row)
{
    return (fl_bytes){row->bytes + row->ns_size, row->name_size};
}

static bool same_bytes(fl_bytes a, fl_bytes b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

void fl__rows_put(struct fl__rows *rows, struct fl__memory_row *row)
{
    struct fl__memory_row *there = fl__rows_by_key(rows, fl__row_key(row));
    if (!there) {
        there = fl__rows_next(rows, row->filed.group, row->filed.seq);
        if (there && there->filed.seq != row->filed.seq)
            there = NULL;
    }
    if (there)
        fl__rows_remove(rows, there);
    tree_insert(&rows->filed, &row->filed);
    fl__hash_insert(&rows->by_key, &row->by_key, fl__hash_number(row->filed.seq));
    if (was_moved(row))
        fl__hash_insert(&rows->by_id, &row->by_id, fl__hash_number(row->id.seq));
    if (row->name_size > 0)
        fl__hash_insert(&rows->by_name, &row->by_name, fl_store_hash(ns_of(row), name_of(row)));
}

void fl__rows_remove(struct fl__rows *rows, struct fl__memory_row *row)
{
    tree_remove(&rows->filed, &row->filed);
    fl__hash_remove(&rows->by_key, &row->by_key);
    if (was_moved(row))
        fl__hash_remove(&rows->by_id, &row->by_id);
    if (row->name_size > 0)
        fl__hash_remove(&rows->by_name, &row->by_name);
    fl__release(row);
}

void fl__rows_bury(struct fl__rows *rows, struct fl__memory_dead *dead)
{
    fl__rows_unbury(rows, dead->id.seq);
    tree_insert(&rows->dead, &dead->filed);
}

void fl__rows_unbury(struct fl__rows *rows, uint64_t id_seq)
{
    struct fl__memory_dead *dead = fl__rows_next_dead(rows, id_seq);
    if (!dead || dead->id.seq != id_seq)
        return;
    tree_remove(&rows->dead, &dead->filed);
    fl__release(dead);
}

void fl__rows_refile(struct fl__rows *rows, struct fl__memory_row *row, uint64_t window)
{
    tree_remove(&rows->filed, &row->filed);
    row->filed.group = window;
    tree_insert(&rows->filed, &row->filed);
}

struct fl__memory_row *fl__rows_by_key(const struct fl__rows *rows, fl_key key)
{
    for (struct hash_link *link = fl__hash_first(&rows->by_key, fl__hash_number(key.seq)); link;
         link = fl__hash_next(link)) {
        struct fl__memory_row *row = hash_entry(link, struct fl__memory_row, by_key);
        if (same_key(fl__row_key(row), key))
            return row;
    }
    return NULL;
}

struct fl__memory_row *fl__rows_by_id(const struct fl__rows *rows, fl_key id)
{
    for (struct hash_link *link = fl__hash_first(&rows->by_id, fl__hash_number(id.seq)); link;
         link = fl__hash_next(link)) {
        struct fl__memory_row *row = hash_entry(link, struct fl__memory_row, by_id);
        if (same_key(row->id, id))
            return row;
    }
    return fl__rows_by_key(rows, id);
}

struct fl__memory_row *fl__rows_by_name(const struct fl__rows *rows, fl_bytes ns, fl_bytes name)
{
    uint64_t hash = fl_store_hash(ns, name);
    for (struct hash_link *link = fl__hash_first(&rows->by_name, hash); link; link = fl__hash_next(link)) {
        struct fl__memory_row *row = hash_entry(link, struct fl__memory_row, by_name);
        if (same_bytes(ns_of(row), ns) && same_bytes(name_of(row), name))
            return row;
    }
    return NULL;
}

struct fl__memory_row *fl__rows_next(const struct fl__rows *rows, uint64_t window, uint64_t seq)
{
    struct fl__node *node = tree_find(rows->filed, window, seq);
    return node && node->group == window ? CONTAINER(node, struct fl__memory_row, filed) : NULL;
}

bool fl__rows_next_window(const struct fl__rows *rows, uint64_t window, uint64_t *ret)
{
    const struct fl__node *node = tree_find(rows->filed, window, 0);
    if (node)
        *ret = node->group;
    return node;
}

struct fl__memory_dead *fl__rows_next_dead(const struct fl__rows *rows, uint64_t id_seq)
{
    struct fl__node *node = tree_find(rows->dead, 0, id_seq);
    return node ? CONTAINER(node, struct fl__memory_dead, filed) : NULL;
}
