/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_NAMES_INTERNAL_H
#define FOLIOT_STORE_SQLITE_NAMES_INTERNAL_H

/* The index of names as its files share it: see names.h. */

#include <pthread.h>

#include "store/sqlite/names/names.h"

enum {
    BLOCK_ENTRIES = 170, /* in the mean */
    ENTRY_BYTES = 21,
    LINE_BYTES = 64,
    LINES_MAX = 6,    /* of a block */
    PIECE_LINES = 60, /* that are allocated and stored together, in a page: of several blocks, whatever they have */
    PIECE_BYTES = PIECE_LINES * LINE_BYTES,
    FAN_MAX = 8,
    RUN_CLASSES = 32,
};

struct names {
    struct name_entry *fresh; /* a hash table; seq 0 is empty */
    size_t fresh_count, fresh_capacity;
    uint64_t mark;             /* rows with a name and a smaller sequence number are in a run, or in the table `late` */
    uint64_t seq_limit;        /* above all that were filed since */
    uint64_t rows_since;       /* how many those are, about */
    bool late;                 /* there is something in the table `late` */
    struct run *runs;          /* newest first */
    struct merge *merges;      /* merges in progress */
    bool tidy;                 /* windows have gone since the runs were looked at */
    uint64_t debt;             /* so many entries should be merged for the names that came in */
    struct spare_piece *spare; /* of filters */
    struct name_entry *merged;
    size_t merged_room; /* a block of a run while it is put together */

    /* For other threads that ask whether a name is absent. While `sure` is set, memory has all names that are in the file,
     * and the shard's thread only adds names, with the lock held. It clears `sure` before any other change of the names, and
     * sets it again when the change is committed. */
    pthread_mutex_t lock;
    bool sure;
};

struct run {
    struct run *next;
    uint32_t slot;
    uint64_t age;           /* younger ones have larger numbers */
    uint64_t blocks;        /* number of equal parts of the range of hashes */
    uint64_t entries;       /* in blocks that are written */
    uint64_t done;          /* blocks that are written: all, unless it is being merged from others */
    uint64_t lines;         /* of the filter, for a block */
    uint64_t piece_blocks;  /* blocks with their lines in one piece */
    struct merge *into;     /* the merge it goes into, or NULL */
    unsigned char **pieces; /* of the filter; NULL: never read */
};

static inline uint64_t block_of(const struct run *run, uint64_t hash)
{
    return (uint64_t)((unsigned __int128)hash * run->blocks >> 64);
}

/* The smallest hash of a block. */
static inline uint64_t hash_of(const struct run *run, uint64_t block)
{
    return (uint64_t)((((unsigned __int128)block << 64) + run->blocks - 1) / run->blocks);
}

/* The entries of a block, read one after the other in the order of their hashes. */
struct run_cursor {
    struct run *run;
    uint64_t next; /* the block to read next */
    struct name_entry *entries;
    size_t at, count, room;
};

struct merge {
    struct merge *next;
    struct run *out;
    size_t count;
    struct run_cursor inputs[FAN_MAX];
    bool started;
};

/* What fl__names_absent() may rely on. */
void fl__names_sure(struct base *base, bool sure);

/* Runs of about one size have the same class: a power of the fan. */
unsigned fl__run_class(uint64_t entries);

/* A run for that many entries, in a new slot; it is not in the list yet. */
int fl__run_make(struct base *base, uint64_t entries, struct run **ret);
void fl__run_free(struct run *run);

/* Takes a run out of the list and the file, and frees it. */
int fl__run_end(struct base *base, struct run *run);

/* Notes in the file how far a run has got. */
int fl__run_note(struct base *base, const struct run *run);

/* Writes the next block of a run. */
int fl__run_write(struct base *base, struct run *run, const struct name_entry *entries, size_t count);

int fl__runs_load(struct base *base);
void fl__runs_unload(struct base *base);

/* What runs know about queries that are not answered yet. */
int fl__runs_find(struct base *base, struct name_query *queries, size_t count, name_fn *found, void *arg);

/* Whether some run says "perhaps". */
bool fl__runs_may_have(const struct base *base, uint64_t hash);

/* Makes the cursor stand on its next entry: 1, 0 at the end. */
int fl__cursor_advance(struct base *base, struct run_cursor *cursor);

/* A piece of a filter that is not used now: the new run of a merge takes those of the old ones, wherever their memory was
 * allocated. */
struct spare_piece {
    struct spare_piece *next;
};

/* The filter of a run: makes a piece; adds a hash; asks whether it may be there. */
int fl__filter_make_piece(struct base *base, struct run *run, size_t piece);
void fl__filter_add(const struct run *run, uint64_t hash);
bool fl__filter_has(const struct run *run, uint64_t hash);
unsigned char *fl__filter_line_of(const struct run *run, uint64_t hash);

/* Takes away the pieces of the filter below a hash. Frees the pieces that no new run has taken since. */
void fl__run_forget(struct base *base, struct run *run, uint64_t hash);
void fl__pieces_release(struct base *base);

/* In which piece of the filter a block has its lines. */
size_t fl__run_piece_of(const struct run *run, uint64_t block);

void fl__merges_unload(struct base *base);

/* A merge of runs that are marked as going into `out`, when the file is opened. */
int fl__merge_resume(struct base *base, struct run *out, struct merge **ret);
int fl__merge_add(struct base *base, struct merge *merge, struct run *run);

#endif
