/* SPDX-License-Identifier: MIT */
/* Finding, listing and loading. What a request gives back is copied into the attachment's arena. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "store/memory/memory.h"

/* --- Reading ------------------------------------------------------------------------------------------------------ */

enum {
    PAGE_ROWS = 512,      /* rows that a load or a list looks at before it gives back what fits */
    PAGE_BYTES = 1 << 20, /* and about how many bytes of them it copies */
};

static bool copy_row(struct arena *arena, const struct fl__memory_row *row, fl_row *ret)
{
    unsigned char *bytes = fl__arena_take(arena, fl__row_bytes(row));
    if (!bytes)
        return false;
    memcpy(bytes, row->bytes, fl__row_bytes(row));
    *ret = fl__row_view(row, bytes);
    return true;
}

static bool copy_dead(struct arena *arena, const struct fl__memory_dead *dead, fl_dead_row *ret)
{
    unsigned char *bytes = fl__arena_take(arena, fl__dead_bytes(dead));
    if (!bytes)
        return false;
    memcpy(bytes, dead->bytes, fl__dead_bytes(dead));
    *ret = fl__dead_view(dead, bytes);
    return true;
}

void fl__memory_store_find(struct attachment *a, fl_store_request *request)
{
    const struct fl__rows *rows = &a->book->rows;
    for (size_t i = 0; i < request->find.count; i++) {
        fl_store_want *want = &request->find.wants[i];
        const struct fl__memory_row *row =
            want->name.size > 0 ? fl__rows_by_name(rows, want->ns, want->name) : fl__rows_by_id(rows, want->id);
        want->found = row;
        if (row && !copy_row(&a->arena, row, &want->row)) {
            fl__store_answer(request, FL_NO_MEMORY, NULL);
            return;
        }
    }
}

static bool begins_with(fl_bytes bytes, fl_bytes prefix)
{
    return prefix.size == 0 || (bytes.size >= prefix.size && memcmp(bytes.data, prefix.data, prefix.size) == 0);
}

static bool is_in(fl_bytes ns, fl_bytes wanted)
{
    return wanted.size == 0 || (ns.size == wanted.size && memcmp(ns.data, wanted.data, ns.size) == 0);
}

static bool fits_list(const fl_store_request *request, const struct fl__memory_row *row)
{
    fl_row view = fl__row_view(row, row->bytes);
    return view.key.at_us >= request->list.from_us && view.key.at_us < request->list.until_us &&
           is_in(view.ns, request->list.ns) && begins_with(view.name, request->list.prefix);
}

static size_t page_rows(size_t limit)
{
    return limit < PAGE_ROWS ? limit : PAGE_ROWS;
}

void fl__memory_store_list(struct attachment *a, fl_store_request *request)
{
    size_t limit = page_rows(request->list.limit), count = 0, seen = 0, bytes = 0;
    uint64_t seq = request->list.after_seq;
    fl_row *rows = fl__arena_take(&a->arena, limit * sizeof *rows);
    const struct fl__memory_row *row;
    bool good = rows;
    for (; (row = fl__rows_next(&a->book->rows, request->list.window, seq + 1)) && good; seq = row->filed.seq) {
        if (seen++ == limit || bytes >= FL_STORE_PAGE_BYTES)
            break;
        if (fits_list(request, row)) {
            good = copy_row(&a->arena, row, &rows[count++]);
            bytes += good ? rows[count - 1].body.size : 0;
        }
    }
    if (!good) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    request->list.rows = rows;
    request->list.count = count;
    request->list.next_seq = row ? seq : 0;
}

static bool fits_dead(const fl_store_request *request, const struct fl__memory_dead *dead)
{
    uint64_t only = request->dead_list.id_seq;
    return (only == 0 || only == dead->id.seq) && is_in(fl__dead_view(dead, dead->bytes).row.ns, request->dead_list.ns);
}

void fl__memory_store_list_dead(struct attachment *a, fl_store_request *request)
{
    size_t limit = page_rows(request->dead_list.limit), count = 0, seen = 0, bytes = 0;
    uint64_t only = request->dead_list.id_seq, seq = only > 0 ? only - 1 : request->dead_list.after_seq;
    fl_dead_row *rows = fl__arena_take(&a->arena, limit * sizeof *rows);
    const struct fl__memory_dead *dead;
    bool good = rows;
    for (; (dead = fl__rows_next_dead(&a->book->rows, seq + 1)) && good; seq = dead->id.seq) {
        if (seen++ == limit || bytes >= FL_STORE_PAGE_BYTES || (only > 0 && seen > 1))
            break;
        if (fits_dead(request, dead)) {
            good = copy_dead(&a->arena, dead, &rows[count++]);
            bytes += good ? rows[count - 1].row.body.size : 0;
        }
    }
    if (!good) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    request->dead_list.rows = rows;
    request->dead_list.count = count;
    request->dead_list.next_seq = dead && only == 0 ? seq : 0;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static int compare_keys(const void *x, const void *y)
{
    const fl_key *a = x, *b = y;
    if (a->at_us != b->at_us)
        return a->at_us < b->at_us ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static bool is_before(fl_key a, fl_key b)
{
    return compare_keys(&a, &b) < 0;
}

static bool fits_load(const fl_store_request *request, const struct fl__memory_row *row)
{
    return row->at_us < request->load.until_us && !is_before(fl__row_key(row), request->load.from);
}

/* The keys of a window that fit, counted and, if `out` is not NULL, listed. */
static size_t list_keys(const struct book *book, const fl_store_request *request, uint64_t window, fl_key *out)
{
    size_t count = 0;
    const struct fl__memory_row *row = fl__rows_next(&book->rows, window, 0);
    for (; row; row = fl__rows_next(&book->rows, window, row->filed.seq + 1)) {
        if (!fits_load(request, row))
            continue;
        if (out)
            out[count] = fl__row_key(row);
        count++;
    }
    return count;
}

/* The key before which there are `rank` that fit in the window. There are more than that. */
static bool key_of_rank(const struct book *book, const fl_store_request *request, uint64_t window, size_t rank,
                        fl_key *ret)
{
    fl_key *keys = fl__alloc(list_keys(book, request, window, NULL) * sizeof *keys);
    if (!keys)
        return false;
    size_t count = list_keys(book, request, window, keys);
    qsort(keys, count, sizeof *keys, compare_keys);
    *ret = keys[rank];
    fl__release(keys);
    return true;
}

void fl__memory_store_load_begin(struct attachment *a, fl_store_request *request)
{
    size_t room = request->load.limit;
    request->load.more = false;
    for (size_t i = 0; i < request->load.window_count && !request->load.more; i++) {
        uint64_t window = request->load.windows[i];
        size_t count = list_keys(a->book, request, window, NULL);
        request->load.more = count > room;
        if (request->load.more && !key_of_rank(a->book, request, window, room, &request->load.next)) {
            fl__store_answer(request, FL_NO_MEMORY, NULL);
            return;
        }
        room -= count > room ? room : count;
    }
    a->load.window = 0;
    a->load.seq = 0;
    a->load.end = request->load.more ? request->load.next : (fl_key){request->load.until_us, 0};
}

/* Copies the next part; the number of rows in it. `ret_over` says that it was the last. */
static size_t load_part(struct attachment *a, fl_store_request *request, fl_row *rows, bool *ret_over)
{
    size_t count = 0, seen = 0, bytes = 0;
    while (a->load.window < request->load.window_count && seen < PAGE_ROWS && bytes < PAGE_BYTES) {
        const struct fl__memory_row *row =
            fl__rows_next(&a->book->rows, request->load.windows[a->load.window], a->load.seq);
        seen++;
        if (!row) {
            a->load.window++;
            a->load.seq = 0;
            continue;
        }
        if (fits_load(request, row) && is_before(fl__row_key(row), a->load.end)) {
            if (!copy_row(&a->arena, row, &rows[count])) {
                fl__store_answer(request, FL_NO_MEMORY, NULL);
                return 0;
            }
            bytes += fl__row_bytes(row);
            count++;
        }
        a->load.seq = row->filed.seq + 1;
    }
    *ret_over = a->load.window == request->load.window_count;
    return count;
}

bool fl__memory_store_load_go_on(struct attachment *a, fl_store_request *request)
{
    bool over = true;
    fl_row *rows = fl__arena_take(&a->arena, PAGE_ROWS * sizeof *rows);
    if (!rows) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return true;
    }
    pthread_mutex_lock(&a->book->lock);
    size_t count = load_part(a, request, rows, &over);
    pthread_mutex_unlock(&a->book->lock);
    if (count > 0)
        request->load.rows(request, rows, count);
    fl__arena_free(&a->arena);
    return over;
}
