/* SPDX-License-Identifier: MIT */
/* The namespaces of a shard: each has a number, and the count of its timers. */

#include "engine/internal.h"

static uint32_t *space_slot(const struct spaces *spaces, uint64_t hash, fl_bytes ns)
{
    uint32_t mask = spaces->table_size - 1, slot = (uint32_t)hash & mask;
    fl__assert(spaces->count < spaces->table_size && (spaces->table_size & mask) == 0);
    for (; spaces->table[slot]; slot = (slot + 1) & mask) {
        const struct space *space = &spaces->list[spaces->table[slot] - 1];
        if (space->hash == hash && space->size == ns.size && memcmp(space->name, ns.data, ns.size) == 0)
            break;
    }
    return &spaces->table[slot];
}

static int grow_space_table(struct spaces *spaces)
{
    struct spaces larger = *spaces;
    larger.table_size = spaces->table_size ? spaces->table_size * 2 : 16;
    larger.table = fl__alloc_zeroed(larger.table_size * sizeof *larger.table);
    if (!larger.table)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < spaces->count; i++) {
        const struct space *space = &spaces->list[i];
        *space_slot(&larger, space->hash, (fl_bytes){space->name, space->size}) = i + 1;
    }
    fl__release(spaces->table);
    *spaces = larger;
    return 0;
}

static int grow_space_list(struct spaces *spaces)
{
    uint32_t capacity = spaces->capacity ? spaces->capacity * 2 : 8;
    struct space *list = fl__resize(spaces->list, capacity * sizeof *list);
    if (!list)
        return FL_NO_MEMORY;
    spaces->list = list;
    spaces->capacity = capacity;
    return 0;
}

/* The number of a namespace, which it gets if it has none. */
int fl__space(fl_engine *e, fl_bytes ns, uint32_t *ret)
{
    struct spaces *spaces = &e->spaces;
    if (spaces->count * 2 >= spaces->table_size && grow_space_table(spaces) < 0)
        return FL_NO_MEMORY;
    uint64_t hash = fl_store_hash(ns, (fl_bytes){0});
    uint32_t *slot = space_slot(spaces, hash, ns);
    if (*slot == 0) {
        if (spaces->count == spaces->capacity && grow_space_list(spaces) < 0)
            return FL_NO_MEMORY;
        char *name = fl__alloc(ns.size);
        if (!name)
            return FL_NO_MEMORY;
        memcpy(name, ns.data, ns.size);
        bool own = ns.size > 0 && *(const unsigned char *)ns.data < ' '; /* the program's: see fl_engine_skip_older() */
        spaces->list[spaces->count] = (struct space){.name = name,
                                                     .hash = hash,
                                                     .skip_older_us = own ? 0 : UINT64_MAX,
                                                     .keep_us = UINT64_MAX,
                                                     .size = (uint8_t)ns.size};
        *slot = ++spaces->count;
    }
    fl__assert(*slot <= spaces->count);
    *ret = *slot - 1;
    return 0;
}

/* So many more timers of a namespace are pending. */
void fl__count(fl_engine *e, uint32_t space, int64_t more)
{
    struct space *s = &e->spaces.list[space];
    fl__assert(space < e->spaces.count);
    s->pending += more;
    e->stats.pending += (uint64_t)more;
    if (e->config.counted && more != 0)
        e->config.counted(e->config.arg, e, (fl_bytes){s->name, s->size}, more);
}

/* What is in the shard is not the engine's to count, or not any more. */
void fl__count_none(fl_engine *e)
{
    for (uint32_t i = 0; i < e->spaces.count; i++)
        fl__count(e, i, -e->spaces.list[i].pending);
}

void fl__spaces_free(struct spaces *spaces)
{
    for (uint32_t i = 0; i < spaces->count; i++)
        fl__release(spaces->list[i].name);
    fl__release(spaces->list);
    fl__release(spaces->table);
    *spaces = (struct spaces){0};
}
