/* SPDX-License-Identifier: MIT */
/* The index of names: the part in memory.
 *
 * Names of new rows are in a hash table, `fresh`, until there are enough for a run. No other copy is written, because the row
 * itself contains its name. After a crash, the rows with numbers from `mark` on are read again from their windows; `mark` is
 * the limit of numbers at the last run. The table `late` records named rows that are filed later with a smaller number. To
 * keep this reading short, a run is also written (or, without fresh names, the mark moved) after a number of rows without
 * names.
 *
 * A name may have several entries, and the row of an entry may be gone. At most one of the rows that entries lead to has the
 * name. Rows without names cost nothing.
 */

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/names/internal.h"

enum { FRESH_MIN = 1024, MERGED_PER_NAME = 8, DEBT_MAX = 1 << 17 }; /* some ten milliseconds */

uint64_t fl__name_hash(fl_bytes ns, fl_bytes name, uint64_t known)
{
    return (known ? known : fl_store_hash(ns, name)) & fl__sqlite_tuning.hash_mask;
}

/* --- Fresh names -------------------------------------------------------------------------------------------------- */

/* The table is in the order of the hashes, nearly: each stands as far in it as it is in the range of them, or a little
 * behind. So there is little left to sort when they are written. */
static size_t home_of(const struct names *names, uint64_t hash)
{
    return (size_t)((unsigned __int128)hash * names->fresh_capacity >> 64);
}

static void fresh_insert(struct names *names, struct name_entry entry)
{
    size_t at = home_of(names, entry.hash);
    while (names->fresh[at].seq)
        at = (at + 1) & (names->fresh_capacity - 1);
    names->fresh[at] = entry;
    names->fresh_count++;
}

/* Makes room for one more. */
static int fresh_room(struct base *base)
{
    struct names *names = base->names;
    if (4 * (names->fresh_count + 1) > 3 * names->fresh_capacity) {
        struct names larger = {.fresh_capacity = names->fresh_capacity ? 2 * names->fresh_capacity : FRESH_MIN};
        larger.fresh = fl__alloc_zeroed(larger.fresh_capacity * sizeof *larger.fresh);
        if (!larger.fresh)
            return base_no_memory(base);
        for (size_t i = 0; i < names->fresh_capacity; i++)
            if (names->fresh[i].seq)
                fresh_insert(&larger, names->fresh[i]);
        fl__release(names->fresh);
        names->fresh = larger.fresh;
        names->fresh_capacity = larger.fresh_capacity;
    }
    return 0;
}

static int fresh_add(struct base *base, struct name_entry entry)
{
    struct names *names = base->names;
    pthread_mutex_lock(&base->names->lock);
    int r = fresh_room(base);
    if (r == 0)
        fresh_insert(names, entry);
    pthread_mutex_unlock(&base->names->lock);
    return r;
}

static void fresh_remove(struct names *names, uint64_t hash, uint64_t seq)
{
    if (names->fresh_count == 0)
        return;
    size_t mask = names->fresh_capacity - 1, hole = home_of(names, hash);
    for (; names->fresh[hole].hash != hash || names->fresh[hole].seq != seq; hole = (hole + 1) & mask)
        if (!names->fresh[hole].seq)
            return;
    for (size_t at = (hole + 1) & mask; names->fresh[at].seq; at = (at + 1) & mask) {
        size_t home = home_of(names, names->fresh[at].hash);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            names->fresh[hole] = names->fresh[at];
            hole = at;
        }
    }
    names->fresh[hole].seq = 0;
    names->fresh_count--;
}

static int fresh_find(struct base *base, struct name_query *query, name_fn *found, void *arg)
{
    const struct names *names = base->names;
    size_t mask = names->fresh_capacity - 1;
    for (size_t at = home_of(names, query->hash); names->fresh[at].seq; at = (at + 1) & mask) {
        if (names->fresh[at].hash != query->hash)
            continue;
        int r = found(base, query->index, &names->fresh[at], arg);
        if (r < 0)
            return r;
        if (r > 0) {
            query->done = true;
            return 0;
        }
    }
    return 0;
}

static bool fresh_has(const struct names *names, uint64_t hash)
{
    size_t mask = names->fresh_capacity - 1;
    if (names->fresh_count == 0)
        return false;
    for (size_t at = home_of(names, hash); names->fresh[at].seq; at = (at + 1) & mask)
        if (names->fresh[at].hash == hash)
            return true;
    return false;
}

/* --- The index ---------------------------------------------------------------------------------------------------- */

int fl__names_find(struct base *base, struct name_query *queries, size_t count, name_fn *found, void *arg)
{
    for (size_t i = 0; i < count && base->names->fresh_count > 0; i++) {
        int r = fresh_find(base, &queries[i], found, arg);
        if (r < 0)
            return r;
    }
    return fl__runs_find(base, queries, count, found, arg);
}

bool fl__names_absent(struct base *base, const fl_store_want *want)
{
    uint64_t hash = fl__name_hash(want->ns, want->name, want->name_hash);
    if (pthread_mutex_trylock(&base->names->lock) != 0)
        return false;
    bool absent = base->names->sure && !fresh_has(base->names, hash) && !fl__runs_may_have(base, hash);
    pthread_mutex_unlock(&base->names->lock);
    return absent;
}

void fl__names_sure(struct base *base, bool sure)
{
    pthread_mutex_lock(&base->names->lock);
    base->names->sure = sure;
    pthread_mutex_unlock(&base->names->lock);
}

void fl__names_committed(struct base *base)
{
    if (!base->names->sure)
        fl__names_sure(base, true);
}

void fl__names_window_gone(struct base *base)
{
    base->names->tidy = true;
}

uint64_t fl__names_debt(const struct base *base)
{
    return base->names->debt;
}

int fl__names_filed(struct base *base, fl_key key, fl_bytes ns, fl_bytes name, uint64_t known_hash)
{
    struct names *names = base->names;
    names->rows_since++;
    if (names->seq_limit <= key.seq)
        names->seq_limit = key.seq + 1;
    if (name.size == 0)
        return 0;
    struct name_entry entry = {fl__name_hash(ns, name, known_hash), key.seq,
                               (uint64_t)key.at_us >> FL_WINDOW_SHIFT_MIN};
    if (names->debt < DEBT_MAX)
        names->debt += MERGED_PER_NAME;
    int r = fresh_add(base, entry);
    if (r == 0 && key.seq < names->mark) {
        names->late = true;
        r = fl__run(base, SQL_LATE, "iii", (int64_t)entry.hash, (int64_t)entry.tick, (int64_t)entry.seq);
    }
    return r;
}

void fl__names_removed(struct base *base, fl_key key, fl_bytes ns, fl_bytes name)
{
    fl__names_sure(base, false);
    fresh_remove(base->names, fl__name_hash(ns, name, 0), key.seq);
}

/* --- Writing a run ------------------------------------------------------------------------------------------------ */

static int write_blocks(struct base *base, struct run *run, const struct name_entry *entries, size_t count)
{
    size_t at = 0;
    int r = 0;
    while (run->done < run->blocks && r == 0) {
        size_t begin = at;
        while (at < count && block_of(run, entries[at].hash) == run->done)
            at++;
        r = fl__run_write(base, run, entries + begin, at - begin);
    }
    return r;
}

/* Brings all entries to the front of the table, sorted: each goes past the few that are larger and stand before it, which
 * are those near it and those that went over the end of the table. */
static void sort_fresh(struct names *names)
{
    struct name_entry *fresh = names->fresh;
    size_t count = 0;
    for (size_t i = 0; i < names->fresh_capacity; i++) {
        struct name_entry entry = fresh[i];
        if (!entry.seq)
            continue;
        size_t at = count++;
        for (; at > 0 && fresh[at - 1].hash > entry.hash; at--)
            fresh[at] = fresh[at - 1];
        fresh[at] = entry;
    }
}

static int write_run(struct base *base)
{
    struct names *names = base->names;
    struct run *run;
    fl__names_sure(base, false);
    int r = fl__run_make(base, names->fresh_count, &run);
    if (r < 0)
        return r;
    run->next = names->runs;
    names->runs = run;
    sort_fresh(names);
    r = write_blocks(base, run, names->fresh, names->fresh_count);
    memset(names->fresh, 0, names->fresh_capacity * sizeof *names->fresh);
    names->fresh_count = 0;
    return r == 0 ? fl__run_note(base, run) : r;
}

int fl__names_freeze(struct base *base)
{
    struct names *names = base->names;
    if (names->fresh_count < fl__sqlite_tuning.fresh_max && names->rows_since < fl__sqlite_tuning.rows_max)
        return 0;
    int r = names->fresh_count > 0 ? write_run(base) : 0;
    if (r == 0 && names->late)
        r = fl__run(base, SQL_LATE_CLEAR, "");
    if (r == 0)
        r = fl__run(base, SQL_MARK, "i", (int64_t)names->seq_limit);
    names->late = false;
    names->mark = names->seq_limit;
    names->rows_since = 0;
    return r;
}

bool fl__names_waiting(const struct base *base)
{
    return base->names->merges || (base->names->tidy && base->names->runs);
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static int load_row(struct base *base, const struct window *window, const struct entry *entry)
{
    if (entry->key.seq < base->names->mark || window_swept(window, entry->key))
        return 0;
    fl_bytes ns;
    int r = fl__namespace_text(base, entry->ns, &ns);
    return r == 0 ? fl__names_filed(base, entry->key, ns, entry->name, 0) : r;
}

/* The rows of a window that are not in a run. */
static int load_window(struct base *base, struct window *window)
{
    struct record record;
    int r = fl__window_scan(base, window, base->names->mark, &record);
    while (r > 0) {
        struct chunk_reader reader = fl__chunk_read(window->number, (uint64_t)record.k, record.v);
        struct entry entry;
        while ((r = fl__chunk_next(&reader, &entry)) > 0) {
            r = load_row(base, window, &entry);
            if (r < 0)
                break;
        }
        if (r < 0) {
            fl__record_end(&record);
            return r == FL_NO_MEMORY ? r : base_corrupt(base, "a chunk of rows cannot be read");
        }
        r = fl__record_next(base, &record);
    }
    return r;
}

static int load_late(struct base *base, sqlite3_stmt *row, void *arg)
{
    (void)arg;
    struct name_entry entry = {.hash = (uint64_t)sqlite3_column_int64(row, 0),
                               .tick = (uint64_t)sqlite3_column_int64(row, 1),
                               .seq = (uint64_t)sqlite3_column_int64(row, 2)};
    base->names->late = true;
    return entry.seq ? fresh_add(base, entry) : base_corrupt(base, "an entry of a name has no row");
}

struct names *fl__names_new(void)
{
    struct names *names = fl__alloc_zeroed(sizeof *names);
    if (names)
        pthread_mutex_init(&names->lock, NULL);
    return names;
}

void fl__names_free(struct names *names)
{
    if (names)
        pthread_mutex_destroy(&names->lock);
    fl__release(names);
}

int fl__names_load(struct base *base, uint64_t mark)
{
    struct names *names = base->names;
    names->mark = names->seq_limit = mark;
    int r = fl__runs_load(base);
    for (struct window *window = fl__window_next(base, NULL); window && r == 0; window = fl__window_next(base, window))
        r = load_window(base, window);
    names->debt = 0;
    names->tidy = true;
    return r == 0 ? fl__each_row(base, "SELECT hash, tick, seq FROM late", load_late, NULL) : r;
}

/* The lock stays as it is. */
void fl__names_unload(struct base *base)
{
    struct names *names = base->names;
    if (!names)
        return;
    fl__names_sure(base, false);
    fl__merges_unload(base);
    fl__runs_unload(base);
    fl__release(names->fresh);
    fl__release(names->merged);
    memset(names, 0, offsetof(struct names, lock));
}
