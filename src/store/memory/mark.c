/* SPDX-License-Identifier: MIT */
/* Going back: a store may be told to remember its state and to return to it, as a database does that is restored from a
 * backup. */

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "store/memory/memory.h"

static int copy_rows(struct fl__rows *to, const struct fl__rows *from)
{
    for (uint64_t window = 0; fl__rows_next_window(from, window, &window); window++)
        for (const struct fl__memory_row *row = fl__rows_next(from, window, 0); row;
             row = fl__rows_next(from, window, row->filed.seq + 1)) {
            fl_row view = fl__row_view(row, row->bytes);
            struct fl__memory_row *copy = fl__row_new(&view);
            if (!copy)
                return FL_NO_MEMORY;
            fl__rows_put(to, copy);
        }
    for (const struct fl__memory_dead *dead = fl__rows_next_dead(from, 0); dead;
         dead = fl__rows_next_dead(from, dead->filed.seq + 1)) {
        fl_dead_row view = fl__dead_view(dead, dead->bytes);
        struct fl__memory_dead *copy = fl__dead_new(&view);
        if (!copy)
            return FL_NO_MEMORY;
        fl__rows_bury(to, copy);
    }
    return 0;
}

/* All but the lock. On failure `to` is to be cleared all the same. */
static int copy_book(struct book *to, const struct book *from)
{
    size_t size = from->progress.keep_count * sizeof(uint64_t);
    uint64_t *keep = size > 0 ? fl__alloc(size) : NULL;
    to->rows = (struct fl__rows){0};
    to->version = from->version;
    to->claim_until_us = from->claim_until_us;
    memcpy(to->owner, from->owner, sizeof to->owner);
    to->progress = from->progress;
    to->progress.keep = keep;
    if (size > 0 && !keep)
        return FL_NO_MEMORY;
    if (size > 0)
        memcpy(keep, from->progress.keep, size);
    if (!fl__past_copy(&to->history, &from->history))
        return FL_NO_MEMORY;
    return copy_rows(&to->rows, &from->rows);
}

static void move_book(struct book *to, struct book *from)
{
    fl__book_clear(to);
    fl__rows_move(&to->rows, &from->rows);
    to->history = from->history;
    to->version = from->version;
    to->claim_until_us = from->claim_until_us;
    memcpy(to->owner, from->owner, sizeof to->owner);
    to->progress = from->progress;
}

static int copy_members(struct fl__members *to, const struct fl__members *from)
{
    struct fl__member **end = &to->first;
    *to = (struct fl__members){0};
    memcpy(to->secret, from->secret, sizeof to->secret);
    for (const struct fl__member *member = from->first; member; member = member->next) {
        *end = fl__alloc(sizeof **end);
        if (!*end)
            return FL_NO_MEMORY;
        **end = *member;
        (*end)->next = NULL;
        end = &(*end)->next;
        to->count++;
    }
    return 0;
}

/* Copies the whole store: the present state, or the mark. */
static int copy_all(const struct store *store, const struct fl__members *members, const struct book *books,
                    struct mark **ret)
{
    uint32_t shards = store->store.shards;
    struct mark *mark = fl__alloc_zeroed(sizeof *mark + shards * sizeof *mark->books);
    if (!mark)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < shards; i++)
        mark->books[i].rows = (struct fl__rows){0};
    int r = copy_members(&mark->members, members);
    for (uint32_t i = 0; i < shards && r == 0; i++)
        r = copy_book(&mark->books[i], &books[i]);
    if (r < 0)
        fl__memory_store_drop_mark(mark, shards);
    else
        *ret = mark;
    return r;
}

int fl_memory_store_mark(fl_store *store)
{
    struct store *memory = (struct store *)store;
    struct mark *mark;
    if (store->ops != &fl__memory_store_ops)
        return FL_INVALID_ARGUMENT;
    int r = copy_all(memory, &memory->members, memory->books, &mark);
    if (r < 0)
        return r;
    fl__memory_store_drop_mark(memory->mark, store->shards);
    memory->mark = mark;
    return 0;
}

int fl_memory_store_go_back(fl_store *store)
{
    struct store *memory = (struct store *)store;
    struct mark *copy;
    if (store->ops != &fl__memory_store_ops || !memory->mark)
        return FL_INVALID_ARGUMENT;
    int r = copy_all(memory, &memory->mark->members, memory->mark->books, &copy);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < store->shards; i++)
        move_book(&memory->books[i], &copy->books[i]);
    fl__members_clear(&memory->members);
    memory->members = copy->members;
    fl__release(copy);
    atomic_fetch_add(&memory->went_back, 1);
    return 0;
}
