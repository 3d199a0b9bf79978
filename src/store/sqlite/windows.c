/* SPDX-License-Identifier: MIT */
/* Windows: which there are, and the rows in them.
 *
 * A window is a slot whose records are chunks of rows (chunk.c). The key of a chunk is not above any sequence number in it,
 * and the key of the next chunk is above all of them: so the chunk of a row is the last one whose key is not above its
 * number, and a new row has one place where it can go.
 *
 * Every window has one chunk in memory, the one that was changed last, as a rule that at its end: rows are appended to it
 * without asking SQLite for anything, and it is written when it is full, when another one is needed, or before a commit.
 * It covers all numbers from `first` up to `bound`, the key of the next chunk.
 */

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/base.h"
#include "store/sqlite/names/names.h"

/* --- Which there are ---------------------------------------------------------------------------------------------- */

struct window *fl__window_find(struct base *base, uint64_t number)
{
    if (base->recent && base->recent->number == number)
        return base->recent;
    struct hash_link *link = fl__hash_first(&base->windows, fl__hash_number(number)); /* no two numbers have one hash */
    return link ? base->recent = hash_entry(link, struct window, by_number) : NULL;
}

struct window *fl__window_next(const struct base *base, const struct window *window)
{
    struct hash_link *link = fl__hash_walk(&base->windows, window ? &window->by_number : NULL);
    return link ? hash_entry(link, struct window, by_number) : NULL;
}

bool fl__windows_reach(struct base *base, int64_t at_us)
{
    uint64_t candidates[FL__WINDOW_LEVELS];
    size_t count = fl__window_candidates(at_us, candidates);
    for (size_t i = 0; i < count; i++)
        if (fl__window_find(base, candidates[i]))
            return true;
    return false;
}

static int add_window(struct base *base, uint64_t number, uint32_t slot, struct window **ret)
{
    struct window *window = fl__alloc_zeroed(sizeof *window);
    if (!window)
        return base_no_memory(base);
    window->number = number;
    window->slot = slot;
    fl__hash_insert(&base->windows, &window->by_number, fl__hash_number(number));
    *ret = window;
    return 0;
}

int fl__window_make(struct base *base, uint64_t number, struct window **ret)
{
    *ret = fl__window_find(base, number);
    if (*ret)
        return 0;
    uint32_t slot;
    int r = fl__slot_take(base, &slot);
    if (r == 0)
        r = fl__run(base, SQL_WINDOW, "ii", (int64_t)number, (int64_t)slot);
    return r == 0 ? add_window(base, number, slot, ret) : r;
}

void fl__window_free_sweep(struct base *base, struct sweep *sweep)
{
    fl__release((void *)sweep->settled.keep);
    fl__release(sweep);
    base->sweep_count--;
}

static void free_window(struct base *base, struct window *window)
{
    while (window->sweeps) {
        struct sweep *next = window->sweeps->next;
        fl__window_free_sweep(base, window->sweeps);
        window->sweeps = next;
    }
    fl__counts_free(window);
    fl__release(window->data);
    fl__release(window);
}

static void undirty(struct base *base, struct window *window)
{
    window->dirty = false;
    for (struct window **at = &base->dirty; *at; at = &(*at)->next_dirty)
        if (*at == window) {
            *at = window->next_dirty;
            return;
        }
}

int fl__window_end(struct base *base, struct window *window)
{
    int r = 0;
    for (struct sweep *sweep = window->sweeps; sweep && r == 0; sweep = sweep->next)
        r = fl__run(base, SQL_SWEEP_DROP, "i", sweep->number);
    if (r == 0)
        r = fl__run(base, SQL_WINDOW_DROP, "i", (int64_t)window->number);
    if (r == 0)
        r = fl__run(base, SQL_ROWS_DROP, "i", (int64_t)window->number);
    if (r == 0)
        r = fl__slot_doom(base, window->slot);
    undirty(base, window);
    if (base->recent == window)
        base->recent = NULL;
    fl__hash_remove(&base->windows, &window->by_number);
    free_window(base, window);
    base->moved_sweep = true;
    fl__names_window_gone(base);
    return r;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static int load_window(struct base *base, sqlite3_stmt *row, void *arg)
{
    (void)arg;
    struct window *window;
    return add_window(base, (uint64_t)sqlite3_column_int64(row, 0), (uint32_t)sqlite3_column_int64(row, 1), &window);
}

int fl__window_add_sweep(struct base *base, struct window *window, int64_t number, uint64_t from, fl_bytes settled)
{
    struct sweep *sweep = fl__alloc_zeroed(sizeof *sweep);
    if (!sweep)
        return base_no_memory(base);
    int r = fl__progress_decode(settled, &sweep->settled);
    if (r < 0) {
        fl__release(sweep);
        return r == FL_STORE_CORRUPT ? base_corrupt(base, "a sweep is invalid") : base_no_memory(base);
    }
    sweep->number = number;
    sweep->from = from;
    sweep->next = window->sweeps;
    window->sweeps = sweep;
    base->sweep_count++;
    if (base->sweep_last < number)
        base->sweep_last = number;
    return 0;
}

static int load_sweep(struct base *base, sqlite3_stmt *row, void *arg)
{
    (void)arg;
    struct window *window = fl__window_find(base, (uint64_t)sqlite3_column_int64(row, 1));
    return window ? fl__window_add_sweep(base, window, sqlite3_column_int64(row, 0),
                                         (uint64_t)sqlite3_column_int64(row, 2), fl__column_bytes(row, 3))
                  : base_corrupt(base, "a sweep has no window");
}

int fl__windows_load(struct base *base)
{
    int r = fl__each_row(base, "SELECT window, slot FROM windows", load_window, NULL);
    if (r == 0)
        r = fl__each_row(base, "SELECT number, window, first, settled FROM sweeps", load_sweep, NULL);
    return r;
}

void fl__windows_unload(struct base *base)
{
    for (struct window *window = fl__window_next(base, NULL), *next; window; window = next) {
        next = fl__window_next(base, window);
        free_window(base, window);
    }
    fl__hash_free(&base->windows);
    base->dirty = base->recent = NULL;
    fl__assert(base->sweep_count == 0);
    base->sweep_last = 0;
}

/* --- The chunk that is being worked on ---------------------------------------------------------------------------- */

static struct chunk_reader read_open(const struct window *window)
{
    fl__assert(window->size <= window->room);
    return fl__chunk_read(window->number, window->first, (fl_bytes){window->data, window->size});
}

static int make_room(struct base *base, struct window *window, size_t size)
{
    if (size <= window->room)
        return 0;
    size_t room = size > CHUNK_SIZE ? size + size / 2 : CHUNK_SIZE + CHUNK_SIZE / 8;
    unsigned char *data = fl__resize(window->data, room);
    if (!data)
        return base_no_memory(base);
    window->data = data;
    window->room = room;
    return 0;
}

void fl__window_dirty(struct base *base, struct window *window)
{
    fl__assert(!window->dirty || base->dirty);
    if (window->dirty)
        return;
    window->dirty = true;
    window->next_dirty = base->dirty;
    base->dirty = window;
}

/* The chunk is about to change. */
static void change_open(struct base *base, struct window *window)
{
    window->changed = true;
    fl__window_dirty(base, window);
}

static int write_open(struct base *base, struct window *window)
{
    if (!window->changed)
        return 0;
    fl__assert(window->size <= window->room);
    int r = 0;
    if (window->size > 0)
        r = fl__slot_put(base, window->slot, (int64_t)window->first, (fl_bytes){window->data, window->size});
    else if (window->stored)
        r = fl__slot_drop(base, window->slot, (int64_t)window->first);
    window->stored = window->size > 0;
    window->changed = false;
    return r;
}

int fl__window_close_open(struct base *base, struct window *window)
{
    int r = write_open(base, window);
    window->open = false;
    return r;
}

int fl__windows_flush(struct base *base)
{
    for (; base->dirty; base->dirty = base->dirty->next_dirty) {
        int r = write_open(base, base->dirty);
        if (r == 0)
            r = fl__counts_write(base, base->dirty);
        if (r < 0)
            return r;
        base->dirty->dirty = false;
    }
    return 0;
}

static void open_empty(struct window *window, uint64_t first, uint64_t bound)
{
    window->open = true;
    window->stored = false;
    window->first = window->last = first;
    window->bound = bound;
    window->size = 0;
}

static int open_record(struct base *base, struct window *window, const struct record *record, uint64_t bound)
{
    int r = make_room(base, window, record->v.size);
    if (r < 0)
        return r;
    open_empty(window, (uint64_t)record->k, bound);
    window->stored = true;
    window->size = record->v.size;
    memcpy(window->data, record->v.data, record->v.size);
    struct chunk_reader reader = read_open(window);
    struct entry entry;
    while ((r = fl__chunk_next(&reader, &entry)) > 0)
        window->last = entry.key.seq;
    return r < 0 || window->last >= bound ? base_corrupt(base, BAD_CHUNK) : 0;
}

/* The key of the first chunk behind that of `seq`. */
static int find_bound(struct base *base, const struct window *window, uint64_t seq, uint64_t *ret)
{
    struct record record;
    int r = fl__slot_scan(base, window->slot, (int64_t)seq + 1, &record);
    if (r < 0)
        return r;
    *ret = r > 0 ? (uint64_t)record.k : UINT64_MAX;
    fl__record_end(&record);
    return 0;
}

/* Opens the chunk in which the row `seq` is, or would be. */
static int open_at(struct base *base, struct window *window, uint64_t seq)
{
    if (window->open && window->first <= seq && seq < window->bound)
        return 0;
    uint64_t bound = UINT64_MAX;
    int r = fl__window_close_open(base, window);
    if (r == 0)
        r = find_bound(base, window, seq, &bound);
    if (r < 0)
        return r;
    struct record record;
    r = fl__slot_floor(base, window->slot, (int64_t)seq, &record);
    if (r == 0)
        open_empty(window, seq, bound);
    if (r <= 0)
        return r;
    r = open_record(base, window, &record, bound);
    fl__record_end(&record);
    return r;
}

/* --- Rows --------------------------------------------------------------------------------------------------------- */

/* Puts a row behind all others of the open chunk, or into a new one if that is full. */
static int append(struct base *base, struct window *window, const struct entry *entry)
{
    int r = make_room(base, window, window->size + fl__entry_size_max(entry));
    if (r < 0)
        return r;
    size_t size = fl__entry_encode(entry, window->number, window->first, window->data + window->size);
    if (window->size > 0 && window->size + size > fl__sqlite_tuning.chunk_size) {
        r = write_open(base, window);
        if (r < 0)
            return r;
        open_empty(window, entry->key.seq, window->bound);
        window->changed = true;
        size = fl__entry_encode(entry, window->number, window->first, window->data);
    }
    window->size += size;
    window->last = entry->key.seq;
    return 0;
}

/* Puts bytes into the open chunk in place of others. */
static void splice(struct window *window, size_t at, size_t old, const unsigned char *bytes, size_t size)
{
    unsigned char *place = window->data + at;
    memmove(place + size, place + old, window->size - at - old);
    if (size > 0)
        memcpy(place, bytes, size);
    window->size = window->size - old + size;
}

/* What stands from `at` on becomes a chunk of its own, and the open one ends before it: there is room for `seq` between
 * them. */
static int split(struct base *base, struct window *window, size_t at, uint64_t seq)
{
    struct chunk_reader reader = read_open(window);
    reader.at += at;
    unsigned char *bytes = fl__base_scratch(base, window->size - at);
    if (!bytes)
        return FL_NO_MEMORY;
    uint64_t first = 0;
    size_t size = 0;
    struct entry entry;
    int r;
    while ((r = fl__chunk_next(&reader, &entry)) > 0) {
        if (first == 0)
            first = entry.key.seq;
        size += fl__entry_encode(&entry, window->number, first, bytes + size); /* no longer than it was */
    }
    if (r < 0)
        return base_corrupt(base, BAD_CHUNK);
    window->size = at;
    window->bound = first;
    window->last = seq - 1;
    return fl__slot_put(base, window->slot, (int64_t)first, (fl_bytes){bytes, size});
}

/* Puts a row where it belongs into the open chunk, in place of the one with the same number if there is one. */
static int insert(struct base *base, struct window *window, const struct entry *entry)
{
    struct entry old;
    int r = fl__chunk_find(read_open(window), entry->key.seq, &old);
    if (r < 0)
        return base_corrupt(base, BAD_CHUNK);
    size_t at = (size_t)(old.begin - window->data);
    if (r > 0) {
        splice(window, at, (size_t)(entry_end(&old) - old.begin), NULL, 0);
        r = fl__counts_add(base, window, old.ns, -1);
        if (r < 0)
            return r;
    }
    size_t most = fl__entry_size_max(entry);
    if (at < window->size && window->size + most > fl__sqlite_tuning.chunk_size) {
        r = split(base, window, at, entry->key.seq);
        if (r < 0)
            return r;
    }
    if (at == window->size)
        return append(base, window, entry);
    unsigned char *bytes = fl__base_scratch(base, most);
    if (!bytes)
        return FL_NO_MEMORY;
    r = make_room(base, window, window->size + most);
    if (r == 0)
        splice(window, at, 0, bytes, fl__entry_encode(entry, window->number, window->first, bytes));
    return r;
}

int fl__window_put(struct base *base, struct window *window, const struct entry *entry)
{
    if (window->sweeps && window_swept(window, entry->key)) {
        int r = fl__window_sweep_all(base, window);
        if (r < 0)
            return r;
    }
    int r = open_at(base, window, entry->key.seq);
    if (r == 0)
        r = fl__counts_add(base, window, entry->ns, 1);
    if (r < 0)
        return r;
    change_open(base, window);
    if (window->size == 0 || entry->key.seq > window->last)
        return append(base, window, entry);
    return insert(base, window, entry);
}

int fl__window_remove(struct base *base, struct window *window, fl_key key, struct entry *ret)
{
    int r = open_at(base, window, key.seq);
    if (r < 0)
        return r;
    r = fl__chunk_find(read_open(window), key.seq, ret);
    if (r < 0)
        return base_corrupt(base, BAD_CHUNK);
    if (r == 0 || ret->key.at_us != key.at_us || window_swept(window, key))
        return 0;
    if (ret->name.size > 0) {
        unsigned char *name = fl__base_scratch(base, ret->name.size);
        if (!name)
            return FL_NO_MEMORY;
        ret->name.data = memcpy(name, ret->name.data, ret->name.size);
    }
    change_open(base, window);
    splice(window, (size_t)(ret->begin - window->data), (size_t)(entry_end(ret) - ret->begin), NULL, 0);
    r = fl__counts_add(base, window, ret->ns, -1);
    return r < 0 ? r : 1;
}

int fl__window_look(struct base *base, struct window *window, uint64_t seq, entry_fn *found, void *arg)
{
    struct chunk_reader reader = {0};
    struct record record = {0};
    int r = 1;
    if (window->open && window->first <= seq && seq < window->bound) {
        reader = read_open(window);
    } else {
        r = fl__slot_floor(base, window->slot, (int64_t)seq, &record);
        if (r > 0)
            reader = fl__chunk_read(window->number, (uint64_t)record.k, record.v);
    }
    struct entry entry = {0};
    if (r > 0) {
        r = fl__chunk_find(reader, seq, &entry);
        if (r < 0)
            r = base_corrupt(base, BAD_CHUNK);
    }
    if (r > 0)
        r = window_swept(window, entry.key) ? 0 : found(base, window, &entry, arg);
    fl__record_end(&record);
    return r;
}

int fl__window_scan(struct base *base, struct window *window, uint64_t from, struct record *ret)
{
    int64_t k = 0;
    ret->statement = NULL;
    int r = write_open(base, window);
    if (r == 0 && from > 0) {
        r = fl__slot_floor(base, window->slot, (int64_t)from, ret);
        if (r > 0)
            k = ret->k;
        fl__record_end(ret);
    }
    return r < 0 ? r : fl__slot_scan(base, window->slot, k, ret);
}
