/* SPDX-License-Identifier: MIT */
/* Namespaces: rows have numbers for them, which are given out one after the other.
 *
 * When the table in memory is full, the numbers that no row and no dead letter has any more are looked for, and given to the
 * next namespaces. So there are about as many numbers as there were namespaces at the same time, not as there have ever
 * been. Until its number is given to another one, a namespace without rows keeps it, so that no name has two numbers.
 * Whatever has got a number is filed before the next number is asked for, so that a look misses nothing.
 *
 * Rows that were given out point to the texts, so that a text stays where it is until the file is closed, even if the
 * transaction in which it got its number was rolled back.
 *
 * The hash table has four places per number. One place per number may be left from the name that had the number before. It
 * leads to the right text as well.
 */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/base.h"

enum { ROOM_MIN = 16, PLACES = 4 };

static bool same(const struct interned *text, fl_bytes ns)
{
    return text->size == ns.size && memcmp(text->text, ns.data, ns.size) == 0;
}

static uint32_t *place_of(const struct namespaces *all, fl_bytes ns)
{
    size_t mask = PLACES * all->room - 1;
    size_t at = fl_store_hash(ns, (fl_bytes){0}) & mask;
    while (all->table[at] && !same(all->texts[all->table[at] - 1], ns))
        at = (at + 1) & mask;
    return &all->table[at];
}

static void make_table(struct namespaces *all)
{
    memset(all->table, 0, PLACES * all->room * sizeof *all->table);
    for (size_t i = 0; i < all->count; i++)
        *place_of(all, (fl_bytes){all->texts[i]->text, all->texts[i]->size}) = (uint32_t)(i + 1);
}

/* Makes room for one more. */
static int grow(struct base *base)
{
    struct namespaces *all = &base->namespaces;
    if (all->count < all->room)
        return 0;
    size_t room = all->room ? all->room * 2 : ROOM_MIN;
    const struct interned **texts = fl__resize(all->texts, room * sizeof(struct interned *));
    if (texts)
        all->texts = texts;
    uint32_t *table = fl__alloc(PLACES * room * sizeof *table);
    if (!texts || !table) {
        fl__release(table);
        return base_no_memory(base);
    }
    fl__release(all->table);
    all->table = table;
    all->room = room;
    make_table(all);
    return 0;
}

/* A text that stays where it is; `known` may be the same text from before. NULL: no memory. */
static const struct interned *intern(struct namespaces *all, fl_bytes ns, const struct interned *known)
{
    if (known && same(known, ns))
        return known;
    struct interned *text = fl__alloc(sizeof *text + ns.size);
    if (!text)
        return NULL;
    text->size = ns.size;
    memcpy(text->text, ns.data, ns.size);
    text->next = all->kept;
    all->kept = text;
    return text;
}

/* The next number is for this text. */
static int append(struct base *base, fl_bytes ns, const struct interned *known)
{
    struct namespaces *all = &base->namespaces;
    int r = grow(base);
    const struct interned *text = r == 0 ? intern(all, ns, known) : NULL;
    if (!text)
        return r < 0 ? r : base_no_memory(base);
    all->texts[all->count++] = text;
    *place_of(all, ns) = (uint32_t)all->count;
    return 0;
}

/* --- Numbers that are used again ---------------------------------------------------------------------------------- */

static int mark_dead(struct base *base, bool *used)
{
    for (uint64_t number = 0;;) {
        sqlite3_stmt *row = fl__query(base, SQL_DEAD_NEXT, "i", (int64_t)number);
        int r = row ? fl__step(base, row) : FL_NO_MEMORY;
        if (r <= 0)
            return r;
        number = (uint64_t)sqlite3_column_int64(row, 0); /* NULL: 0 */
        sqlite3_reset(row);
        if (number == 0)
            return 0;
        if (number > base->namespaces.count)
            return base_corrupt(base, "a dead letter has a namespace that is not there");
        used[number] = true;
    }
}

static int mark_used(struct base *base, bool *used)
{
    for (struct window *window = fl__window_next(base, NULL); window; window = fl__window_next(base, window))
        for (size_t i = 0; i < window->counts.capacity; i++) {
            const struct window_count *count = &window->counts.table[i];
            if (count->ns > base->namespaces.count)
                return base_corrupt(base, "rows are counted of a namespace that is not there");
            used[count->ns] |= count->rows > 0;
        }
    return mark_dead(base, used);
}

static int look_for_free(struct base *base)
{
    struct namespaces *all = &base->namespaces;
    bool *used = fl__resize(all->used, (all->count + 1) * sizeof *used);
    if (!used)
        return base_no_memory(base);
    memset(used, 0, (all->count + 1) * sizeof *used);
    all->used = used;
    all->looked = 0;
    int r = mark_used(base, used);
    if (r < 0)
        return r;
    make_table(all);
    all->looked = all->count;
    all->next = 1;
    all->recent = 0;
    all->fresh = 0;
    return 0;
}

/* A number that is free; 0: none is. */
static uint64_t next_free(struct namespaces *all)
{
    while (all->next <= all->looked && all->used[all->next])
        all->next++;
    return all->next <= all->looked ? all->next : 0;
}

/* A number for a namespace that has none. */
static int give_number(struct base *base, fl_bytes ns, uint64_t *ret)
{
    struct namespaces *all = &base->namespaces;
    uint64_t number = next_free(all);
    if (number == 0 && all->count > 0 && all->count == all->room && all->fresh >= all->room / 4) {
        int r = look_for_free(base);
        if (r < 0)
            return r;
        number = next_free(all);
    }
    all->fresh++;
    if (number == 0) {
        int r = append(base, ns, NULL);
        *ret = all->count;
        return r;
    }
    const struct interned *text = intern(all, ns, NULL);
    if (!text)
        return base_no_memory(base);
    all->texts[number - 1] = text;
    *place_of(all, ns) = (uint32_t)number;
    *ret = number;
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
    all->count = all->looked = 0;
    all->recent = 0;
    all->next = 1;
    all->fresh = SIZE_MAX / 2; /* nothing was looked for yet */
    if (all->table)
        make_table(all);
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
    fl__release(all->used);
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
        int r = give_number(base, ns, &number);
        if (r == 0)
            r = fl__run(base, SQL_NAMESPACE, "ibi", (int64_t)number, ns, fl__checksum((int64_t)number, ns));
        if (r < 0)
            return r;
    }
    if (number <= all->looked)
        all->used[number] = true;
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
