/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_BASE_H
#define FOLIOT_STORE_SQLITE_BASE_H

/* A shard's file while it is open: the connection, and the state of the file that is cached in memory. One thread at a time.
 *
 * The functions return 0 (or a number; or 1 for found and 0 for not found) or a negative code. After a negative code,
 * `message` has the error in words. A function that fails inside a transaction leaves the transaction open. The caller rolls
 * it back with fl__base_rollback(), which also drops the state in memory. The state is read from the file again when it is
 * needed. There is no other way to undo a change in memory.
 */

#include <sqlite3.h>

#include "base/hash.h"
#include "store/sqlite/chunk.h"

/* --- Values that tests may change --------------------------------------------------------------------------------- */

struct sqlite_tuning {
    uint32_t chunk_size;        /* at which a chunk of rows is full */
    uint64_t hash_mask;         /* of the hashes of names: fewer bits, more collisions */
    uint32_t fresh_max;         /* names in memory that are written together as a run */
    uint32_t rows_max;          /* rows to read again after a crash, about */
    uint32_t fan;               /* runs of about one size that are merged into one */
    uint64_t step_ns;           /* how long work in the background may delay a commit, about */
    uint32_t checkpoint_frames; /* pages in the log at which a checkpoint begins */
    uint32_t log_frames;        /* pages in the log at which commits wait a little for the checkpoint */
    uint32_t log_frames_max;    /* pages in the log at which commits wait until the checkpoint is complete */
    uint32_t finish_chunks;     /* chunks that FL_STORE_FINISH reads before it leaves the rest for later */
    uint64_t keep_free;         /* bytes of the disk that new rows leave free (0: they may fill it), */
    uint32_t keep_part;         /* but at most this fraction of the disk, as 1 / keep_part */
    const char *vfs;            /* NULL: SQLite's default */
};
extern struct sqlite_tuning fl__sqlite_tuning;

/* --- Statements --------------------------------------------------------------------------------------------------- */

enum statement {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_SETTLE,
    SQL_OWNER,
    SQL_PROGRESS,
    SQL_PROGRESS_GET,
    SQL_FREE_PAGES,
    SQL_SLOTS,
    SQL_MARK,
    SQL_NAMESPACE,
    SQL_WINDOW,
    SQL_WINDOW_DROP,
    SQL_DOOM,
    SQL_DOOM_DROP,
    SQL_SWEEP,
    SQL_SWEEP_MOVE,
    SQL_SWEEP_DROP,
    SQL_RUN,
    SQL_RUN_DROP,
    SQL_MOVED,
    SQL_MOVED_GET,
    SQL_MOVED_DROP,
    SQL_MOVED_PAGE,
    SQL_DEAD,
    SQL_DEAD_DROP,
    SQL_DEAD_ALL,
    SQL_DEAD_NEXT,
    SQL_DEAD_NS,
    SQL_LATE,
    SQL_LATE_CLEAR,
    SQL_ROWS,
    SQL_ROWS_NONE,
    SQL_ROWS_DROP,
    SQL_USED,
    SQL_HISTORY,
    SQL_HISTORY_DROP,
    SQL_COUNT,
};

/* The statements of a slot, a table of records (k INTEGER PRIMARY KEY, v BLOB). */
enum slot_statement { SLOT_FLOOR, SLOT_SCAN, SLOT_PUT, SLOT_DROP, SLOT_STATEMENTS };

enum slot_use { SLOT_FREE, SLOT_USED, SLOT_DOOMED };

struct slot {
    sqlite3_stmt *statements[SLOT_STATEMENTS];
    enum slot_use use;
};

/* A record. It is valid until fl__record_end(), which must be called, or the next fl__record_next(). */
struct record {
    int64_t k;
    fl_bytes v;
    sqlite3_stmt *statement;
};

/* --- Windows ------------------------------------------------------------------------------------------------------ */

/* Work that FL_STORE_FINISH has left for later. Readers ignore rows from `from` on that are settled by `settled`. */
struct sweep {
    struct sweep *next;
    int64_t number;
    uint64_t from;
    fl_progress settled; /* owns the memory of `keep` */
};

/* How many rows of each namespace are in the slot of a window: a hash table by the number of the namespace. */
struct window_count {
    uint64_t ns; /* 0: empty */
    uint64_t rows;
    bool changed; /* it differs from the file */
};

struct window_counts {
    struct window_count *table;
    size_t capacity, count, recent;
    uint64_t *changed; /* the namespaces whose counts have changed */
    size_t changed_count, changed_room;
};

/* A window and its open chunk, if any. The open chunk has all rows of the window with `first` <= seq < `bound`. */
struct window {
    struct hash_link by_number;
    uint64_t number;
    uint32_t slot;
    bool open;                   /* there is an open chunk */
    bool changed;                /* it differs from the file */
    bool stored;                 /* the file has a chunk with its key */
    bool dirty;                  /* the window is in the list of windows that may have a changed chunk */
    uint64_t first, bound, last; /* `last`: not below any sequence number in the chunk, and below `bound` */
    unsigned char *data;
    size_t size, room;
    struct sweep *sweeps;
    struct window_counts counts;
    struct window *next_dirty;
};

/* --- History ------------------------------------------------------------------------------------------------------ */

struct history_part {
    fl_history_span span;
    uint32_t slot;
};

/* Spans, by number. */
struct history {
    struct history_part *parts;
    size_t count, room;
};

/* --- The shard's file --------------------------------------------------------------------------------------------- */

struct interned {
    struct interned *next;
    size_t size;
    char text[];
};

struct namespaces {
    const struct interned **texts; /* number 1 first */
    uint32_t *table;               /* numbers, by hash */
    size_t count, room;
    uint64_t recent;
    bool *used;            /* by number: it had rows when free numbers were looked for, or was given out since */
    size_t looked, next;   /* up to which number that is known; the lowest that may be free */
    size_t fresh;          /* namespaces that have come since free numbers were looked for */
    struct interned *kept; /* never freed before the file is closed, because answers point to them */
};

/* Which file a path leads to. */
struct file_identity {
    uint64_t device, inode; /* inode 0: not known, and not checked */
};

/* How long the claim of a version is valid. Only this process has the store open (folder.c), so claims are not in the file: a
 * shard that another process has left is free. */
struct claim {
    uint64_t version;
    int64_t until_us;
};

struct base {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *statements[SQL_COUNT];
    int frames;             /* pages in the log after the last commit */
    sqlite3_int64 log_size; /* its size in bytes, at least; bytes after the last commit count */
    bool in_transaction;
    bool unsettled;                /* a commit has failed and may take effect after a crash: see fl__base_commit() */
    struct file_identity files[2]; /* the file and its log as they were opened */
    struct claim claims[2];        /* index = version & 1, so that rolling a claim back leaves the previous one */
    bool counted;                  /* the opening of the store is noted in all its files (folder.c) */
    bool marked;                   /* a commit has noted that this file is in use (mark.c) */
    char message[400];

    /* All below is read from the file by fl__base_ready(). */
    bool loaded;
    uint64_t store_id;
    uint32_t shards, number;
    uint64_t version;
    uint64_t opened; /* number of the last opening of the store that this file has seen */
    uint64_t used;   /* number of the last opening in which this file was written to */
    char owner[FL_STORE_NAME_MAX + 1];
    struct slot *slots;
    size_t slot_count;
    size_t doomed;
    struct hash_table windows;
    struct window *dirty; /* windows to write before the commit */
    struct window *recent;
    struct namespaces namespaces;
    int64_t sweep_count, sweep_last;
    struct names *names; /* the index of names: see names/names.h */
    struct history history;
    uint64_t moved_after; /* how far the table `moved` has been swept */
    bool moved_sweep;

    unsigned turn; /* of the kinds of work in the background */
    unsigned char *scratch;
    size_t scratch_room;
};

/* Offsets in the header of an SQLite file: two bytes say whether it has a log (2) or not (1); four bytes are the application
 * ID. */
enum { FILE_MODE_AT = 18, FILE_KIND_AT = 68 };

/* The identity that is written into a new file. */
struct base_identity {
    uint64_t store_id;
    uint32_t shards, number;
};

/* Call it before anything else. Completes a pending rollback, makes sure that no failed commit can take effect, and reads the
 * state of the file into memory. */
int fl__base_ready(struct base *base);
/* Another connection to the same file, for the second thread. */
int fl__base_connect(const char *path, sqlite3 **ret);
/* Opens a shard's file, made first if `create` is given, and brings its schema up to date. On failure `message` has
 * been written. */
int fl__base_open(const char *path, const struct base_identity *create, struct base **ret, char *message, size_t size);
/* Carries all of the log over into the file and syncs that, so that the file alone is all there is. */
int fl__base_complete(struct base *base, char *message, size_t size);
/* Makes a file with a missing or damaged log usable, without the changes that can no longer be read. A file without such
 * damage stays as it is. */
int fl__base_accept_loss(const char *path, char *message, size_t size);
/* Writes the number of this opening of the store to a file that is not open. */
int fl__base_count(const char *path, uint64_t opened);
void fl__base_close(struct base *base);

/* The name of the VFS to open files with: that of the tuning, with one before it that collects what goes to the log. */
const char *fl__sqlite_vfs(void);

/* The file, and its log, which SQLite keeps as long as it has the file open. */
void fl__base_identify_files(struct base *base, struct file_identity ret[2]);

/* Forgets what was read from the file. */
void fl__base_unload(struct base *base);

int fl__base_begin(struct base *base);

/* Checks that the paths still lead to the open file and its log. FL_STORE_UNAVAILABLE: they do not, and writes would be
 * lost. */
int fl__base_present(struct base *base);

/* Writes dirty windows and commits. On failure the transaction has been rolled back. FL_OUTCOME_UNKNOWN: it may take effect
 * if the process ends now, so nothing can be done before fl__base_ready() has succeeded. */
int fl__base_commit(struct base *base);
void fl__base_rollback(struct base *base);

/* Rolls back an open transaction. Without memory this may fail; then fl__base_ready() repeats it. */
int fl__base_roll_back(struct base *base);
/* Overwrites the possible remains of a failed commit. */
int fl__base_settle(struct base *base);

/* Notes a failure: `rc` is SQLite's. Returns the code. */
int fl__base_failed(struct base *base, int rc);
int fl__base_fail(struct base *base, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

static inline int base_corrupt(struct base *base, const char *what)
{
    fl__base_fail(base, FL_STORE_CORRUPT, "%s is damaged (%s); restore it from a backup", base->path, what);
    return FL_STORE_CORRUPT;
}

#define BAD_CHUNK "a chunk of rows cannot be read"

static inline int base_no_memory(struct base *base)
{
    fl__base_fail(base, FL_NO_MEMORY, "%s", fl_strerror(FL_NO_MEMORY));
    return FL_NO_MEMORY;
}

/* The code for an errno. */
int fl__code_of_errno(int error);

/* The code for an error of SQLite; `message` gets its text for that file. */
int fl__sqlite_explain(sqlite3 *db, int rc, const char *path, char *message, size_t size);

/* Runs a statement that gives nothing back. `types` has a letter for each argument: i (int64_t), b (fl_bytes). */
int fl__run(struct base *base, enum statement id, const char *types, ...);

/* The same for a statement with results. The caller steps and resets it. NULL if it failed. */
sqlite3_stmt *fl__query(struct base *base, enum statement id, const char *types, ...);

/* The statement itself, to be bound. NULL if it failed. */
sqlite3_stmt *fl__base_prepared(struct base *base, enum statement id);

/* 1: a row; 0: no more, and it has been reset; else it failed and has been reset. */
int fl__step(struct base *base, sqlite3_stmt *statement);

/* Calls `row` for each row of a query, until it returns a negative code. Returns that code, or 0. */
typedef int query_row_fn(struct base *base, sqlite3_stmt *row, void *arg);
int fl__each_row(struct base *base, const char *sql, query_row_fn *row, void *arg);

fl_bytes fl__column_bytes(sqlite3_stmt *statement, int column);

/* Makes the log longer if the next commits would have to: between transactions. */
void fl__base_extend_log(struct base *base);

/* Notes how many pages are in the log. */
void fl__base_set_frames(struct base *base, int frames);

/* A number that changes whenever the log begins anew. */
uint32_t fl__base_log_number(struct base *base);

/* Whether there is room for new rows: 1, 0, or failed. */
int fl__base_has_room(struct base *base);

/* `size` bytes for the moment. */
unsigned char *fl__base_scratch(struct base *base, size_t size);

int fl__namespaces_load(struct base *base);
void fl__namespaces_free(struct base *base);

/* The number of a namespace, and its text. fl__namespace_find() returns 0 if the file does not have the namespace. */
int fl__namespace_number(struct base *base, fl_bytes ns, uint64_t *ret);
uint64_t fl__namespace_find(const struct base *base, fl_bytes ns);
int fl__namespace_text(struct base *base, uint64_t number, fl_bytes *ret);

static inline bool key_equal(fl_key a, fl_key b)
{
    return a.at_us == b.at_us && a.seq == b.seq;
}

/* --- Slots -------------------------------------------------------------------------------------------------------- */

int fl__slot_take(struct base *base, uint32_t *ret);
int fl__slot_doom(struct base *base, uint32_t slot);
int fl__slots_load(struct base *base);
int fl__slots_sum(struct base *base);

/* The mark of a file that is in use (see fl__mark_find()) is set; cleared. They return SQLite's codes. A connection that has
 * not read anything yet clears it with fl__mark_clear_unread(). */
void fl__mark_set(sqlite3 *db);
int fl__mark_clear(sqlite3 *db);
int fl__mark_clear_unread(sqlite3 *db);
void fl__slots_unload(struct base *base);

/* The last record with a key up to `k`; the first one from `k` on. 1, 0, or failed. */
int fl__slot_floor(struct base *base, uint32_t slot, int64_t k, struct record *ret);
int fl__slot_scan(struct base *base, uint32_t slot, int64_t k, struct record *ret);
int fl__record_next(struct base *base, struct record *record);
void fl__record_end(struct record *record);

int fl__slot_put(struct base *base, uint32_t slot, int64_t k, fl_bytes v);
int fl__slot_drop(struct base *base, uint32_t slot, int64_t k);

/* Erases a part of a doomed slot, until `deadline_ns`. */
int fl__slots_erase(struct base *base, uint64_t deadline_ns);

uint64_t fl__monotonic_ns(void);

/* --- Windows ------------------------------------------------------------------------------------------------------ */

int fl__windows_load(struct base *base);
void fl__windows_unload(struct base *base);
struct window *fl__window_find(struct base *base, uint64_t number);
/* The window after this one, NULL for the first, in no particular order; NULL: there is no more. No window may be made
 * meanwhile. */
struct window *fl__window_next(const struct base *base, const struct window *window);
int fl__window_make(struct base *base, uint64_t number, struct window **ret);

/* Ends a window with all its rows. `window` is gone after it. */
int fl__window_end(struct base *base, struct window *window);

/* Files a row; removes a row (1: it existed, and `ret` has it, with its bytes in the scratch). */
int fl__window_put(struct base *base, struct window *window, const struct entry *entry);
int fl__window_remove(struct base *base, struct window *window, fl_key key, struct entry *ret);

/* Writes changed windows. */
int fl__windows_flush(struct base *base);

/* Counts `more` rows (1 or -1) of a namespace in a window. */
int fl__counts_add(struct base *base, struct window *window, uint64_t ns, int more);
int fl__counts_load(struct base *base);
int fl__counts_write(struct base *base, struct window *window);
void fl__counts_free(struct window *window);

/* The number of rows of a namespace in the slot of a window. If the size of `ns` is 0: of all namespaces with a first byte
 * of at least `first_byte`. */
uint64_t fl__counts_of(struct base *base, const struct window *window, fl_bytes ns, uint8_t first_byte);
void fl__window_dirty(struct base *base, struct window *window);

/* Adds to totals[number of a namespace] the rows that are not settled by `progress`. */
int fl__counts_sum(struct base *base, const fl_progress *progress, uint64_t *totals);

/* For a file of an earlier version: counts all rows, and removes the rows in which that version kept its counts. */
int fl__counts_make(struct base *base);

/* Looks for a row by its number, and calls `found` if it exists. The entry is valid during the call. */
typedef int entry_fn(struct base *base, struct window *window, const struct entry *entry, void *arg);
int fl__window_look(struct base *base, struct window *window, uint64_t seq, entry_fn *found, void *arg);

/* Whether a window exists that can have a row with that time. */
bool fl__windows_reach(struct base *base, int64_t at_us);

/* Goes through a window: `begin` gives the first chunk with rows from `from` on, 1 or 0 as fl__slot_scan(). */
int fl__window_scan(struct base *base, struct window *window, uint64_t from, struct record *ret);

/* Whether a row is settled by a sweep that has not removed it yet. */
static inline bool window_swept(const struct window *window, fl_key key)
{
    for (const struct sweep *sweep = window->sweeps; sweep; sweep = sweep->next)
        if (key.seq >= sweep->from && fl_progress_settled(&sweep->settled, key))
            return true;
    return false;
}

/* --- Sweeps: sweep.c ---------------------------------------------------------------------------------------------- */

void fl__window_free_sweep(struct base *base, struct sweep *sweep);
int fl__window_add_sweep(struct base *base, struct window *window, int64_t number, uint64_t from, fl_bytes settled);

/* Writes and closes the open chunk, before other code changes the records. */
int fl__window_close_open(struct base *base, struct window *window);

/* Removes settled rows from at most `limit` chunks. The file records the rest as a sweep. */
int fl__window_finish(struct base *base, struct window *window, const fl_progress *settled, size_t *limit,
                      uint64_t *deleted);
/* Continue sweeps until `deadline_ns`; complete the sweeps of one window. */
int fl__windows_sweep(struct base *base, uint64_t deadline_ns);
int fl__window_sweep_all(struct base *base, struct window *window);

/* Refiles at most `limit` rows of a window under the shorter windows that it consists of. */
struct refiled {
    uint64_t parts;
    size_t moved;
    bool more;
};
int fl__window_refile(struct base *base, struct window *window, unsigned shift, size_t limit, struct refiled *ret);

/* --- History ------------------------------------------------------------------------------------------------------ */

int fl__history_load(struct base *base);
void fl__history_unload(struct base *base);
int fl__history_claim(struct base *base, fl_store_request *request);
int fl__history_change(struct base *base, const fl_history_change *change);
int fl__history_page(struct base *base, fl_store_request *request);
int fl__history_erase(struct base *base, fl_store_request *request);

#endif
