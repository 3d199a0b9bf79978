/* SPDX-License-Identifier: MIT */
/* Finishing windows, and filing their rows again.
 *
 * Settled rows are removed chunk by chunk. If there are many chunks, the rest is left for later: the table `sweeps` records
 * the progress by which the rows are settled, and readers of a window ignore the rows that a sweep covers. Filing a row
 * where a sweep would cover it waits for the end of that sweep. */

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/base.h"
#include "store/sqlite/names/names.h"

/* --- Finishing ---------------------------------------------------------------------------------------------------- */

/* Removes rows from the first chunk with a key from `*k` on: rows settled by `settled`, and rows that sweeps cover. Returns
 * 0 if there is no such chunk; else 1, and `*k` is after it. */
static int finish_chunk(struct base *base, struct window *window, const fl_progress *settled, int64_t *k,
                        uint64_t *deleted)
{
    struct record record;
    int r = fl__slot_scan(base, window->slot, *k, &record);
    if (r <= 0)
        return r;
    *k = record.k + 1;
    unsigned char *left = fl__base_scratch(base, record.v.size);
    struct chunk_reader reader = fl__chunk_read(window->number, (uint64_t)record.k, record.v);
    struct entry entry;
    size_t size = 0, before = record.v.size;
    int counted = 0;
    while (left && counted == 0 && (r = fl__chunk_next(&reader, &entry)) > 0) {
        if (fl_progress_settled(settled, entry.key) || window_swept(window, entry.key)) {
            counted = fl__counts_add(base, window, entry.ns, -1);
            ++*deleted;
            continue;
        }
        size_t bytes = (size_t)(reader.at - entry.begin);
        fl__assert(size + bytes <= before);
        memcpy(left + size, entry.begin, bytes);
        size += bytes;
    }
    fl__record_end(&record);
    if (!left)
        return FL_NO_MEMORY;
    if (counted < 0)
        return counted;
    if (r < 0)
        return base_corrupt(base, BAD_CHUNK);
    if (size == 0)
        r = fl__slot_drop(base, window->slot, *k - 1);
    else if (size < before)
        r = fl__slot_put(base, window->slot, *k - 1, (fl_bytes){left, size});
    return r < 0 ? r : 1;
}

static int note_sweep(struct base *base, struct window *window, const fl_progress *settled, int64_t from)
{
    unsigned char *bytes = fl__base_scratch(base, fl__progress_size(settled));
    if (!bytes)
        return FL_NO_MEMORY;
    fl_bytes encoded = {bytes, fl__progress_encode(settled, bytes)};
    fl__assert_debug(encoded.size <= fl__progress_size(settled));
    int64_t number = base->sweep_last + 1;
    int r = fl__run(base, SQL_SWEEP, "iiib", number, (int64_t)window->number, from, encoded);
    return r == 0 ? fl__window_add_sweep(base, window, number, (uint64_t)from, encoded) : r;
}

static int end_if_empty(struct base *base, struct window *window)
{
    struct record record;
    int r = fl__slot_scan(base, window->slot, 0, &record);
    fl__record_end(&record);
    return r == 0 ? fl__window_end(base, window) : r < 0 ? r : 0;
}

int fl__window_finish(struct base *base, struct window *window, const fl_progress *settled, size_t *limit,
                      uint64_t *deleted)
{
    int64_t k = 0;
    int r = fl__window_close_open(base, window);
    if (r < 0)
        return r;
    for (; *limit > 0; --*limit) {
        r = finish_chunk(base, window, settled, &k, deleted);
        if (r <= 0)
            return r < 0 ? r : end_if_empty(base, window);
    }
    return note_sweep(base, window, settled, k);
}

static int end_sweep(struct base *base, struct window *window)
{
    struct sweep *sweep = window->sweeps;
    int r = fl__run(base, SQL_SWEEP_DROP, "i", sweep->number);
    fl__assert(sweep);
    window->sweeps = sweep->next;
    fl__window_free_sweep(base, sweep);
    return r;
}

/* Goes on with the first sweep of a window. */
static int sweep_some(struct base *base, struct window *window, uint64_t deadline_ns)
{
    struct sweep *sweep = window->sweeps;
    uint64_t deleted = 0;
    int64_t k = (int64_t)sweep->from;
    int r = fl__window_close_open(base, window);
    fl__assert(window->sweeps);
    if (r < 0)
        return r;
    while ((r = finish_chunk(base, window, &sweep->settled, &k, &deleted)) > 0)
        if (fl__monotonic_ns() >= deadline_ns)
            break;
    if (r == 0)
        return end_sweep(base, window);
    sweep->from = (uint64_t)k;
    return r < 0 ? r : fl__run(base, SQL_SWEEP_MOVE, "ii", k, sweep->number);
}

int fl__window_sweep_all(struct base *base, struct window *window)
{
    int r = 0;
    while (window->sweeps && r == 0)
        r = sweep_some(base, window, UINT64_MAX);
    return r;
}

int fl__windows_sweep(struct base *base, uint64_t deadline_ns)
{
    for (struct window *window = fl__window_next(base, NULL), *next; window && base->sweep_count > 0; window = next) {
        next = fl__window_next(base, window); /* this one may end */
        if (!window->sweeps)
            continue;
        int r = sweep_some(base, window, deadline_ns);
        if (r == 0 && !window->sweeps)
            r = end_if_empty(base, window);
        if (r < 0 || fl__monotonic_ns() >= deadline_ns)
            return r;
    }
    return 0;
}

/* --- Filing again ------------------------------------------------------------------------------------------------- */

/* Files rows of one chunk, `limit` at most. `*ret_left` is where the rest begins. */
static int refile_chunk(struct base *base, struct window *window, struct chunk_reader reader, unsigned shift,
                        size_t limit, struct refiled *refiled, const unsigned char **ret_left)
{
    struct entry entry;
    int r = 1;
    while (refiled->moved < limit && (r = fl__chunk_next(&reader, &entry)) > 0) {
        r = fl__counts_add(base, window, entry.ns, -1);
        if (r < 0)
            return r;
        if (window_swept(window, entry.key))
            continue;
        struct window *part;
        uint64_t number = fl_window_of(entry.key.at_us, shift);
        r = fl__window_make(base, number, &part);
        if (r == 0)
            r = fl__window_put(base, part, &entry);
        if (r < 0)
            return r;
        refiled->parts |= (uint64_t)1 << (number & ((1 << FL_WINDOW_STEP) - 1));
        refiled->moved++;
    }
    fl__assert(refiled->moved <= limit);
    *ret_left = reader.at;
    return r < 0 ? base_corrupt(base, BAD_CHUNK) : 0;
}

/* Removes a chunk, files its rows, and puts the rows beyond the limit back. */
static int refile_record(struct base *base, struct window *window, struct record *record, unsigned shift, size_t limit,
                         struct refiled *refiled)
{
    int64_t k = record->k;
    size_t size = record->v.size;
    unsigned char *copy = fl__alloc(size + 1);
    if (copy && size > 0)
        memcpy(copy, record->v.data, size);
    fl__record_end(record);
    if (!copy)
        return base_no_memory(base);
    struct chunk_reader reader = fl__chunk_read(window->number, (uint64_t)k, (fl_bytes){copy, size});
    const unsigned char *left;
    int r = refile_chunk(base, window, reader, shift, limit, refiled, &left);
    if (r == 0) {
        fl__assert(left >= copy && (size_t)(left - copy) <= size);
        size_t rest = size - (size_t)(left - copy);
        r = rest > 0 ? fl__slot_put(base, window->slot, k, (fl_bytes){left, rest})
                     : fl__slot_drop(base, window->slot, k);
    }
    fl__release(copy);
    return r;
}

int fl__window_refile(struct base *base, struct window *window, unsigned shift, size_t limit, struct refiled *ret)
{
    *ret = (struct refiled){0};
    int r = fl__window_close_open(base, window);
    while (r == 0) {
        struct record record;
        r = fl__slot_scan(base, window->slot, 0, &record);
        if (r < 0)
            return r;
        if (r == 0)
            return fl__window_end(base, window);
        if (ret->moved == limit) {
            fl__record_end(&record);
            ret->more = true;
            return 0;
        }
        r = refile_record(base, window, &record, shift, limit, ret);
    }
    return r;
}
