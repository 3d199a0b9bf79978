/* SPDX-License-Identifier: MIT */
/* How many rows of each namespace a window has.
 *
 * The counts include all rows in the slot, settled or not. Each transaction that adds or removes a row changes the count, and
 * removing a window removes its counts. So counts are exact after any crash, and counting needs no reading of windows. A
 * claim asks for the rows that are not settled. Only windows that begin before the front can have settled rows. There are
 * few of them, because windows that have ended are deleted, so a claim reads them.
 */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/base.h"
#include "store/sqlite/names/names.h"

enum { ROOM_MIN = 4 };

/* --- In memory ---------------------------------------------------------------------------------------------------- */

static size_t place_of(const struct window_counts *counts, uint64_t ns)
{
    size_t mask = counts->capacity - 1, at = (size_t)(ns * 0x9e3779b97f4a7c15 >> 32) & mask;
    while (counts->table[at].ns != 0 && counts->table[at].ns != ns)
        at = (at + 1) & mask;
    return at;
}

static int grow(struct base *base, struct window_counts *counts)
{
    if (2 * (counts->count + 1) <= counts->capacity)
        return 0;
    struct window_counts larger = *counts;
    larger.capacity = counts->capacity ? 2 * counts->capacity : ROOM_MIN;
    larger.table = fl__alloc_zeroed(larger.capacity * sizeof *larger.table);
    if (!larger.table)
        return base_no_memory(base);
    for (size_t i = 0; i < counts->capacity; i++)
        if (counts->table[i].ns != 0)
            larger.table[place_of(&larger, counts->table[i].ns)] = counts->table[i];
    fl__release(counts->table);
    *counts = larger;
    return 0;
}

/* The count of a namespace, made if it does not exist. Most calls repeat the namespace of the call before. */
static int count_of(struct base *base, struct window *window, uint64_t ns, struct window_count **ret)
{
    struct window_counts *counts = &window->counts;
    if (counts->count > 0 && counts->recent < counts->capacity && counts->table[counts->recent].ns == ns) {
        *ret = &counts->table[counts->recent];
        return 0;
    }
    int r = grow(base, counts);
    if (r < 0)
        return r;
    counts->recent = place_of(counts, ns);
    *ret = &counts->table[counts->recent];
    if ((*ret)->ns == 0) {
        (*ret)->ns = ns;
        counts->count++;
    }
    return 0;
}

static int note_change(struct base *base, struct window *window, struct window_count *count)
{
    struct window_counts *counts = &window->counts;
    if (counts->changed_count == counts->changed_room) {
        size_t room = counts->changed_room ? 2 * counts->changed_room : ROOM_MIN;
        uint64_t *changed = fl__resize(counts->changed, room * sizeof *changed);
        if (!changed)
            return base_no_memory(base);
        counts->changed = changed;
        counts->changed_room = room;
    }
    counts->changed[counts->changed_count++] = count->ns;
    count->changed = true;
    fl__window_dirty(base, window);
    return 0;
}

int fl__counts_add(struct base *base, struct window *window, uint64_t ns, int more)
{
    struct window_count *count;
    int r = ns == 0 ? base_corrupt(base, "a row has no namespace") : count_of(base, window, ns, &count);
    if (r < 0)
        return r;
    if (more < 0 && count->rows == 0)
        return base_corrupt(base, "a window has more rows than were counted");
    count->rows += (uint64_t)(int64_t)more;
    return count->changed ? 0 : note_change(base, window, count);
}

void fl__counts_free(struct window *window)
{
    fl__release(window->counts.table);
    fl__release(window->counts.changed);
}

/* --- In the file -------------------------------------------------------------------------------------------------- */

int fl__counts_write(struct base *base, struct window *window)
{
    struct window_counts *counts = &window->counts;
    int r = 0;
    for (size_t i = 0; i < counts->changed_count && r == 0; i++) {
        struct window_count *count = &counts->table[place_of(counts, counts->changed[i])];
        if (count->rows > 0)
            r = fl__run(base, SQL_ROWS, "iii", (int64_t)window->number, (int64_t)count->ns, (int64_t)count->rows);
        else
            r = fl__run(base, SQL_ROWS_NONE, "ii", (int64_t)window->number, (int64_t)count->ns);
        count->changed = false;
    }
    counts->changed_count = 0;
    return r;
}

static int load_count(struct base *base, sqlite3_stmt *row, void *arg)
{
    (void)arg;
    struct window *window = fl__window_find(base, (uint64_t)sqlite3_column_int64(row, 0));
    uint64_t ns = (uint64_t)sqlite3_column_int64(row, 1);
    struct window_count *count;
    int r = window && ns > 0 ? count_of(base, window, ns, &count)
                             : base_corrupt(base, "rows are counted that are not there");
    if (r == 0)
        count->rows = (uint64_t)sqlite3_column_int64(row, 2);
    return r;
}

int fl__counts_load(struct base *base)
{
    return fl__each_row(base, "SELECT window, ns, rows FROM counts", load_count, NULL);
}

/* --- One window --------------------------------------------------------------------------------------------------- */

uint64_t fl__counts_of(struct base *base, const struct window *window, fl_bytes ns, uint8_t first_byte)
{
    const struct window_counts *counts = &window->counts;
    uint64_t number = ns.size > 0 ? fl__namespace_find(base, ns) : 0, rows = 0;
    if (counts->capacity == 0 || (ns.size > 0 && number == 0))
        return 0;
    if (number > 0)
        return counts->table[place_of(counts, number)].rows;
    for (size_t i = 0; i < counts->capacity; i++) {
        fl_bytes text;
        const struct window_count *count = &counts->table[i];
        if (count->rows > 0 && (first_byte == 0 || (fl__namespace_text(base, count->ns, &text) == 0 &&
                                                    *(const unsigned char *)text.data >= first_byte)))
            rows += count->rows;
    }
    return rows;
}

/* --- All of them -------------------------------------------------------------------------------------------------- */

/* Calls `fn` for all rows in the slot of a window. */
typedef int row_fn(struct base *base, struct window *window, const struct entry *entry, void *arg);

static int each_row(struct base *base, struct window *window, row_fn *fn, void *arg)
{
    struct record record;
    struct entry entry;
    int r = fl__window_scan(base, window, 0, &record);
    while (r > 0) {
        struct chunk_reader reader = fl__chunk_read(window->number, (uint64_t)record.k, record.v);
        while ((r = fl__chunk_next(&reader, &entry)) > 0) {
            int called = fn(base, window, &entry, arg);
            if (called < 0) {
                fl__record_end(&record);
                return called;
            }
        }
        if (r < 0) {
            fl__record_end(&record);
            return base_corrupt(base, "a chunk of rows cannot be read");
        }
        r = fl__record_next(base, &record);
    }
    fl__record_end(&record);
    return r;
}

struct summing {
    const fl_progress *progress;
    uint64_t *totals;
};

static int sum_row(struct base *base, struct window *window, const struct entry *entry, void *arg)
{
    const struct summing *summing = arg;
    if (entry->ns == 0 || entry->ns > base->namespaces.count)
        return base_corrupt(base, "a row has a namespace that is not there");
    summing->totals[entry->ns] +=
        !window_swept(window, entry->key) && !fl_progress_settled(summing->progress, entry->key);
    return 0;
}

static int sum_counted(struct base *base, const struct window *window, uint64_t *totals)
{
    for (size_t i = 0; i < window->counts.capacity; i++) {
        const struct window_count *count = &window->counts.table[i];
        if (count->ns > base->namespaces.count)
            return base_corrupt(base, "rows are counted of a namespace that is not there");
        totals[count->ns] += count->rows;
    }
    return 0;
}

int fl__counts_sum(struct base *base, const fl_progress *progress, uint64_t *totals)
{
    int64_t front_us =
        progress->front[0].at_us > progress->front[1].at_us ? progress->front[0].at_us : progress->front[1].at_us;
    struct summing summing = {progress, totals};
    int r = 0;
    for (struct window *window = fl__window_next(base, NULL); window && r == 0;
         window = fl__window_next(base, window)) {
        if (window->sweeps || fl_window_begin(window->number) <= front_us)
            r = each_row(base, window, sum_row, &summing);
        else
            r = sum_counted(base, window, totals);
    }
    return r;
}

/* --- Files of earlier versions ------------------------------------------------------------------------------------ */

/* The namespace in which the server kept its own counts, as timers. */
#define OLD_COUNTS ((fl_bytes){"\1counts", 7})

struct making {
    uint64_t old; /* number of that namespace, or 0 */
    fl_key *keys; /* rows in it */
    size_t count, room;
};

static int keep_key(struct base *base, struct making *making, fl_key key)
{
    if (making->count == making->room) {
        size_t room = making->room ? 2 * making->room : 64;
        fl_key *keys = fl__resize(making->keys, room * sizeof *keys);
        if (!keys)
            return base_no_memory(base);
        making->keys = keys;
        making->room = room;
    }
    making->keys[making->count++] = key;
    return 0;
}

static int make_row(struct base *base, struct window *window, const struct entry *entry, void *arg)
{
    struct making *making = arg;
    int r = fl__counts_add(base, window, entry->ns, 1);
    return r == 0 && making->old != 0 && entry->ns == making->old ? keep_key(base, making, entry->key) : r;
}

static int make_window(struct base *base, struct window *window, struct making *making)
{
    struct entry entry;
    making->count = 0;
    int r = each_row(base, window, make_row, making);
    for (size_t i = 0; i < making->count && r >= 0; i++) {
        r = fl__window_remove(base, window, making->keys[i], &entry);
        if (r > 0)
            fl__names_removed(base, making->keys[i], OLD_COUNTS, entry.name);
    }
    return r < 0 ? r : 0;
}

int fl__counts_make(struct base *base)
{
    struct making making = {.old = fl__namespace_find(base, OLD_COUNTS)};
    int r = 0;
    for (struct window *window = fl__window_next(base, NULL); window && r == 0; window = fl__window_next(base, window))
        r = make_window(base, window, &making);
    fl__release(making.keys);
    return r;
}
