/* SPDX-License-Identifier: MIT */
/* See hash.h. */

#include "base/hash.h"

#include "base/assert.h"

enum { GROWTH = 4 };

static void put(struct hash_table *table, struct hash_link *link)
{
    struct hash_link **bucket = fl__hash_bucket(table, link->hash);
    link->next = *bucket;
    *bucket = link;
}

static void grow(struct hash_table *table)
{
    struct hash_table larger = {.mask = (table->mask + 1) * GROWTH - 1, .count = table->count};
    larger.buckets = fl__alloc_zeroed((larger.mask + 1) * sizeof(struct hash_link *));
    if (!larger.buckets)
        return;
    for (size_t i = 0; i <= table->mask; i++)
        for (struct hash_link *link = *fl__hash_bucket(table, i), *next; link; link = next) {
            next = link->next;
            put(&larger, link);
        }
    fl__release(table->buckets);
    *table = larger;
}

void fl__hash_insert(struct hash_table *table, struct hash_link *link, uint64_t hash)
{
    if (table->count > table->mask)
        grow(table);
    link->hash = hash;
    put(table, link);
    table->count++;
}

void fl__hash_remove(struct hash_table *table, struct hash_link *link)
{
    struct hash_link **at = fl__hash_bucket(table, link->hash);
    while (*at != link) {
        fl__assert(*at);
        at = &(*at)->next;
    }
    *at = link->next;
    table->count--;
}

void fl__hash_free(struct hash_table *table)
{
    fl__release(table->buckets);
    *table = (struct hash_table){0};
}

struct hash_link *fl__hash_walk(const struct hash_table *table, const struct hash_link *link)
{
    if (link && link->next)
        return link->next;
    for (size_t i = link ? (link->hash & table->mask) + 1 : 0; i <= table->mask; i++)
        if (*fl__hash_bucket(table, i))
            return *fl__hash_bucket(table, i);
    return NULL;
}
