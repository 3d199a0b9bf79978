/* SPDX-License-Identifier: MIT */
/* Namespaces: rows have numbers for them, which are given out one after the other and never taken back.
 *
 * Rows that were given out point to the texts, so that a text stays where it is until the file is closed, even if the
 * transaction in which it got its number was rolled back.
 */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/base.h"

enum { ROOM_MIN = 16 };

static bool same(const struct interned *text, fl_bytes ns)
{
    return text->size == ns.size && memcmp(text->text, ns.data, ns.size) == 0;
}

static uint32_t *place_of(const struct namespaces *all, fl_bytes ns)
{
    size_t mask = 2 * all->room - 1;
    size_t at = fl_store_hash(ns, (fl_bytes){0}) & mask;
    while (all->table[at] && !same(all->texts[all->table[at] - 1], ns))
        at = (at + 1) & mask;
    return &all->table[at];
}

/* Makes room for one more. The table has twice as many places as there are texts. */
static int grow(struct base *base)
{
    struct namespaces *all = &base->namespaces;
    if (all->count < all->room)
        return 0;
    size_t room = all->room ? all->room * 2 : ROOM_MIN;
    const struct interned **texts = fl__resize(all->texts, room * sizeof(struct interned *));
    if (texts)
        all->texts = texts;
    uint32_t *table = fl__alloc_zeroed(2 * room * sizeof *table);
    if (!texts || !table) {
        fl__release(table);
        return base_no_memory(base);
    }
    fl__release(all->table);
    all->table = table;
    all->room = room;
    for (size_t i = 0; i < all->count; i++)
        *place_of(all, (fl_bytes){all->texts[i]->text, all->texts[i]->size}) = (uint32_t)(i + 1);
    return 0;
}

/* The next number is for this text. `known` may be the same text from before. */
static int append(struct base *base, fl_bytes ns, const struct interned *known)
{
    struct namespaces *all = &base->namespaces;
    int r = grow(base);
    if (r < 0)
        return r;
    if (!known || !same(known, ns)) {
        struct interned *text = fl__alloc(sizeof *text + ns.size);
        if (!text)
            return base_no_memory(base);
        text->size = ns.size;
        memcpy(text->text, ns.data, ns.size);
        text->next = all->kept;
        all->kept = text;
        known = text;
    }
    all->texts[all->count++] = known;
    *place_of(all, ns) = (uint32_t)all->count;
    return 0;
}

static int load_namespace(struct base *base, sqlite3_stmt *row, void *arg)
{
    const struct namespaces *all = &base->namespaces;
    size_t before = *(const size_t *)arg; /* texts that may still be the right ones */
    fl_bytes ns = fl__column_bytes(row, 1);
    if (sqlite3_column_int64(row, 0) != (int64_t)all->count + 1 || ns.size == 0 || ns.size > FL_STORE_NAME_MAX)
        return base_corrupt(base, "its namespaces are not in order");
    if (sqlite3_column_type(row, 2) != SQLITE_NULL &&
        sqlite3_column_int64(row, 2) != fl__checksum((int64_t)all->count + 1, ns))
        return base_corrupt(base, "the checksum of a namespace does not match");
    return append(base, ns, all->count < before ? all->texts[all->count] : NULL);
}

int fl__namespaces_load(struct base *base)
{
    struct namespaces *all = &base->namespaces;
    size_t before = all->count;
    all->count = 0;
    if (all->table)
        memset(all->table, 0, 2 * all->room * sizeof *all->table);
    return fl__each_row(base, "SELECT number, name, s FROM namespaces ORDER BY number", load_namespace, &before);
}

void fl__namespaces_free(struct base *base)
{
    struct namespaces *all = &base->namespaces;
    while (all->kept) {
        struct interned *next = all->kept->next;
        fl__release(all->kept);
        all->kept = next;
    }
    fl__release(all->texts);
    fl__release(all->table);
}

uint64_t fl__namespace_find(const struct base *base, fl_bytes ns)
{
    return base->namespaces.count > 0 ? *place_of(&base->namespaces, ns) : 0;
}

int fl__namespace_number(struct base *base, fl_bytes ns, uint64_t *ret)
{
    struct namespaces *all = &base->namespaces;
    if (all->recent > 0 && all->recent <= all->count && same(all->texts[all->recent - 1], ns)) {
        *ret = all->recent;
        return 0;
    }
    uint64_t number = fl__namespace_find(base, ns);
    if (number == 0) {
        int r = append(base, ns, NULL);
        if (r == 0)
            r = fl__run(base, SQL_NAMESPACE, "ibi", (int64_t)all->count, ns, fl__checksum((int64_t)all->count, ns));
        if (r < 0)
            return r;
        number = all->count;
    }
    *ret = all->recent = number;
    return 0;
}

int fl__namespace_text(struct base *base, uint64_t number, fl_bytes *ret)
{
    const struct namespaces *all = &base->namespaces;
    if (number == 0 || number > all->count)
        return base_corrupt(base, "a row has a namespace that is not there");
    const struct interned *text = all->texts[number - 1];
    *ret = (fl_bytes){text->text, text->size};
    return 0;
}
