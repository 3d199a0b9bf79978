/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_HASH_H
#define FOLIOT_BASE_HASH_H

/* A hash table. What is in it has a link as a member; the table allocates only its array of buckets.
 *
 *     struct host {
 *         struct hash_link by_name;
 *         ...
 *     };
 *
 *     fl__hash_insert(&hosts, &host->by_name, hash);
 *     for (struct hash_link *link = fl__hash_first(&hosts, hash); link; link = fl__hash_next(link))
 *         if (strcmp(hash_entry(link, struct host, by_name)->name, name) == 0)
 *             ...
 *
 * Inserting cannot fail: if there is no memory for more buckets, the chains become longer. The zero value is an empty
 * table, and a table may be moved. It grows fourfold when it has as many entries as buckets, and never becomes smaller.
 *
 * The buckets use the low bits of the hash, so these have to be good: fl__hash_number() mixes a number well enough for
 * keys that an attacker cannot choose. */

#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"

struct hash_link {
    struct hash_link *next; /* in the bucket */
    uint64_t hash;
};

struct hash_table {
    struct hash_link **buckets; /* NULL: there is one, `only` */
    struct hash_link *only;
    size_t mask; /* number of buckets - 1 */
    size_t count;
};

/* The structure of type `type` that has the link as its member `member`. */
#define hash_entry(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

static inline uint64_t fl__hash_number(uint64_t number)
{
    number *= 0x9e3779b97f4a7c15;
    return number ^ number >> 32;
}

/* The same hash may be inserted many times. The newest is found first, until the table grows. */
/* FNV-1a. Lanes of namespaces are numbered by it, and stores keep these numbers: it must not change. */
static inline uint64_t fl__hash_text(const void *text, size_t size)
{
    const unsigned char *at = text;
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3;
    return hash ^ hash >> 29;
}

FL__SHARED void fl__hash_insert(struct hash_table *table, struct hash_link *link, uint64_t hash);

/* The link is in the table. */
FL__SHARED void fl__hash_remove(struct hash_table *table, struct hash_link *link);

/* Frees the buckets. The table is empty then and can be used again; what was in it is the caller's. */
FL__SHARED void fl__hash_free(struct hash_table *table);

/* The entry after `link`, NULL for the first, in no particular order; NULL: there is no more. Nothing may be inserted
 * meanwhile; take the next one before you remove or free one. */
FL__SHARED struct hash_link *fl__hash_walk(const struct hash_table *table, const struct hash_link *link);

static inline struct hash_link **fl__hash_bucket(const struct hash_table *table, uint64_t hash)
{
    return table->buckets ? &table->buckets[hash & table->mask] : (struct hash_link **)&table->only;
}

/* The next entry with the same hash. */
static inline struct hash_link *fl__hash_next(const struct hash_link *link)
{
    uint64_t hash = link->hash;
    struct hash_link *next = link->next;
    while (next && next->hash != hash)
        next = next->next;
    return next;
}

/* The first entry with this hash; NULL: there is none. */
static inline struct hash_link *fl__hash_first(const struct hash_table *table, uint64_t hash)
{
    struct hash_link *link = *fl__hash_bucket(table, hash);
    while (link && link->hash != hash)
        link = link->next;
    return link;
}

#endif
