/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_MEMORY_ROWS_H
#define FOLIOT_STORE_MEMORY_ROWS_H

/* The rows of one shard in memory: what the memory store keeps, without anything about requests.
 *
 * Whatever can fail is done by fl__row_new() and fl__dead_new(); filing and taking away cannot. So a batch makes all its
 * rows first, and from then on nothing can leave it half done. */

#include "base/hash.h"
#include "store/store.h"

/* A node of a tree that is ordered by (group, seq). */
struct fl__node {
    struct fl__node *left, *right;
    uint64_t group, seq;
};

struct fl__memory_row {
    struct fl__node filed; /* group: the window; seq: that of the key. First, so that a node is its row */
    struct hash_link by_key, by_id, by_name;
    int64_t at_us;
    fl_key id;
    uint32_t body_size;
    uint8_t ns_size, name_size;
    unsigned char bytes[]; /* namespace, name, body */
};

struct fl__memory_dead {
    struct fl__node filed; /* seq: that of the id */
    fl_key id;
    int64_t died_us;
    uint32_t body_size, reason_size;
    uint8_t ns_size, name_size;
    unsigned char bytes[]; /* namespace, name, body, reason */
};

struct fl__rows {
    struct fl__node *filed, *dead;
    struct hash_table by_key, by_id, by_name;
};

/* The zero value has no rows. */
void fl__rows_clear(struct fl__rows *rows);                     /* frees everything in it */
void fl__rows_move(struct fl__rows *to, struct fl__rows *from); /* `to` has none, and then `from` */

/* A row with copies of all its bytes; NULL if there is no memory. It is the caller's until it is put, to be freed with
 * fl__release(). */
struct fl__memory_row *fl__row_new(const fl_row *row);
struct fl__memory_dead *fl__dead_new(const fl_dead_row *dead);

/* Takes over a row. One with the same key, or in the same place, is replaced. */
void fl__rows_put(struct fl__rows *rows, struct fl__memory_row *row);
void fl__rows_bury(struct fl__rows *rows, struct fl__memory_dead *dead);

/* Takes a row out and frees it. */
void fl__rows_remove(struct fl__rows *rows, struct fl__memory_row *row);
void fl__rows_unbury(struct fl__rows *rows, uint64_t id_seq);

/* Files a row under another window. */
void fl__rows_refile(struct fl__rows *rows, struct fl__memory_row *row, uint64_t window);

/* NULL if there is none. By ID means: by its key, or by its first key if it was moved. */
struct fl__memory_row *fl__rows_by_key(const struct fl__rows *rows, fl_key key);
struct fl__memory_row *fl__rows_by_id(const struct fl__rows *rows, fl_key id);
struct fl__memory_row *fl__rows_by_name(const struct fl__rows *rows, fl_bytes ns, fl_bytes name);

/* The first row of the window with at least this number, or NULL. */
struct fl__memory_row *fl__rows_next(const struct fl__rows *rows, uint64_t window, uint64_t seq);

/* The first window with rows from this one on, in the order of their numbers; false if there is none. */
bool fl__rows_next_window(const struct fl__rows *rows, uint64_t window, uint64_t *ret);

/* The first dead row with at least this number, or NULL. */
struct fl__memory_dead *fl__rows_next_dead(const struct fl__rows *rows, uint64_t id_seq);

/* The row as the interface has it, with pointers to the bytes given; they are laid out as in the row. */
fl_row fl__row_view(const struct fl__memory_row *row, const unsigned char *bytes);
fl_dead_row fl__dead_view(const struct fl__memory_dead *dead, const unsigned char *bytes);
size_t fl__row_bytes(const struct fl__memory_row *row);
size_t fl__dead_bytes(const struct fl__memory_dead *dead);

static inline fl_key fl__row_key(const struct fl__memory_row *row)
{
    return (fl_key){row->at_us, row->filed.seq};
}

#endif
