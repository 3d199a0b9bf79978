/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_NAMES_NAMES_H
#define FOLIOT_STORE_SQLITE_NAMES_NAMES_H

/* The index of names: where the row with a name may be.
 *
 *     names.c     names in memory, and what others ask of the index
 *     runs.c      sorted runs of entries in the file; filter.c: their Bloom filters
 *     merge.c     merges of runs
 *     internal.h  the index itself: what these three share
 *
 * The index may have entries for rows that are gone, and several entries for one name. A reader must check the row of an
 * entry. */

#include "store/sqlite/base.h"

/* Where a row with a name is: the hash of the name, the finest window it can be in, its number. */
struct name_entry {
    uint64_t hash, seq;
    uint64_t tick; /* at_us >> FL_WINDOW_SHIFT_MIN */
};

/* A query to the index. */
struct name_query {
    uint64_t hash;
    size_t index; /* the caller's */
    bool done;
};

/* An empty index for a file; NULL: no memory. fl__names_free() takes NULL, too. */
struct names *fl__names_new(void);
void fl__names_free(struct names *names);

/* Rows with a name and a smaller sequence number than `mark` are in a run, or in the table `late`: the file says so. */
int fl__names_load(struct base *base, uint64_t mark);
void fl__names_unload(struct base *base);
/* `known`: fl_store_hash() of the name if it has been computed, else 0. */
uint64_t fl__name_hash(fl_bytes ns, fl_bytes name, uint64_t known);

/* A row was filed; if it has a name, the index learns of it. */
int fl__names_filed(struct base *base, fl_key key, fl_bytes ns, fl_bytes name, uint64_t known_hash);
/* A row with a name was taken away. */
void fl__names_removed(struct base *base, fl_key key, fl_bytes ns, fl_bytes name);
/* A window has gone, with all its rows. */
void fl__names_window_gone(struct base *base);

/* Calls `found` for every place where a row with the hash of a query may be, until it says 1; then the query is done. */
typedef int name_fn(struct base *base, size_t index, const struct name_entry *entry, void *arg);
int fl__names_find(struct base *base, struct name_query *queries, size_t count, name_fn *found, void *arg);

/* Whether there is certainly no row of that name. Any thread; never waits. */
bool fl__names_absent(struct base *base, const fl_store_want *want);
/* The names in memory are committed: from now on fl__names_absent() may use them. */
void fl__names_committed(struct base *base);

/* Writes a run if there are enough names in memory. */
int fl__names_freeze(struct base *base);
/* Goes on merging until `deadline_ns`. */
int fl__names_merge(struct base *base, uint64_t deadline_ns);
bool fl__names_waiting(const struct base *base);
/* So many entries should be merged for the names that came in. */
uint64_t fl__names_debt(const struct base *base);

#endif
