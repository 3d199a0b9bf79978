/* SPDX-License-Identifier: MIT */
/* A shard's file: opening, statements, transactions, and what errors mean.
 *
 * Settings. The log (WAL) is synced before a commit is acknowledged (synchronous=FULL). It is carried over into the file
 * by a second thread (helper.c), not by commits. Pages have 4096 bytes. Nothing is overwritten with zeros on deletion,
 * which Debian's SQLite does by default. The file does not shrink: pages that become free are used again.
 *
 * Tables:
 *
 *     shard        one row: what this file is, and who owns the shard
 *     progress     one row: how far the owner has got (store/progress.c)
 *     namespaces   number -> text
 *     slot_N       records (k, v) with a checksum s (damage.c). A slot is a table that can be used for anything; making and dropping tables would make
 *                  SQLite compile all statements anew each time
 *     windows      which slot the rows of a window are in: chunk.c has the format, by sequence number
 *     runs         which slots have runs of the index of names: runs.c
 *     doomed       slots whose records are no longer needed and are erased step by step
 *     sweeps       windows of which settled rows are yet to be taken away
 *     counts       how many rows of each namespace are in the slot of a window: counts.c
 *     moved        id.seq -> the key of a row that was moved. Readers ignore an entry whose row is gone
 *     late         named rows whose numbers are below shard.mark and that are not in a run: names.c
 *     dead         those given up
 *     history      which slots have spans of the history: history.c
 *
 * When a commit fails. SQLite appends the pages of a transaction to the log, the last one marked as a commit, and syncs.
 * If there was no room (SQLITE_FULL), the mark was not written: the transaction is not there and never will be. After any
 * other error the mark may be in the log although SQLite does not look at it: a process that opens the file after a crash
 * would. To be sure, another small transaction is committed at once: it is written over the failed one, whose pages no
 * longer fit to what stands before them. If it succeeds, the failed one was refused for good; until it does, nothing else
 * is done, and its outcome is unknown.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/alloc.h"
#include "store/sqlite/base.h"
#include "store/sqlite/names/names.h"

enum { APPLICATION_ID = 0x466f6c69, SCHEMA = 5, CACHE_KIB = 2048, BUSY_MS = 1000 }; /* "Foli" */
enum { LOG_HEAD = 32, LOG_FRAME = 4096 + 24, LOG_PIECE = 64 << 10, LOG_STEP = 1 << 20 };
enum { FREE_PAGES = 1024 }; /* with so many in the file it need not grow for a while */

struct sqlite_tuning fl__sqlite_tuning = {
    .chunk_size = CHUNK_SIZE,
    .hash_mask = UINT64_MAX,
    .fresh_max = 1 << 15,
    .rows_max = 1 << 20,
    .fan = 4,
    .step_ns = 2000000,
    .checkpoint_frames = 1024,
    .log_frames = 8192,
    .log_frames_max = 65536,
    .finish_chunks = 1024,
    .keep_free = 1 << 30,
    .keep_part = 16,
};

enum { COUNTED = 3 }; /* from this version on, the rows are counted, and records have checksums */

/* What brings a schema from one version to the next; a new file has version 0. */
static const char *const upgrades[SCHEMA] = {
    ("CREATE TABLE shard(one INTEGER PRIMARY KEY CHECK (one = 1), store INTEGER, shards INTEGER, number INTEGER,"
     " version INTEGER, owner TEXT, lease_until_us INTEGER, slots INTEGER, mark INTEGER, settled INTEGER);"
     "CREATE TABLE progress(one INTEGER PRIMARY KEY CHECK (one = 1), progress BLOB);"
     "CREATE TABLE namespaces(number INTEGER PRIMARY KEY, name BLOB);"
     "CREATE TABLE windows(window INTEGER PRIMARY KEY, slot INTEGER);"
     "CREATE TABLE runs(slot INTEGER PRIMARY KEY, age INTEGER, blocks INTEGER, entries INTEGER, done INTEGER,"
     " target INTEGER);"
     "CREATE TABLE doomed(slot INTEGER PRIMARY KEY);"
     "CREATE TABLE sweeps(number INTEGER PRIMARY KEY, window INTEGER, first INTEGER, settled BLOB);"
     "CREATE TABLE moved(id_seq INTEGER PRIMARY KEY, at_us INTEGER, seq INTEGER);"
     "CREATE TABLE late(number INTEGER PRIMARY KEY, hash INTEGER, tick INTEGER, seq INTEGER);"
     "CREATE TABLE dead(id_seq INTEGER PRIMARY KEY, id_at_us INTEGER, ns INTEGER, died_us INTEGER, name BLOB,"
     " reason BLOB, body BLOB);"
     "CREATE INDEX dead_ns ON dead(ns);"
     "INSERT INTO shard VALUES(1, 0, 0, 0, 0, '', 0, 0, 0, 0);"
     "INSERT INTO progress VALUES(1, NULL);"),
    /* all runs had four */
    "ALTER TABLE runs ADD COLUMN lines INTEGER DEFAULT 4;",
    /* filled by fl__counts_make() */
    ("CREATE TABLE counts(window INTEGER, ns INTEGER, rows INTEGER, PRIMARY KEY(window, ns)) WITHOUT ROWID;"
     "ALTER TABLE dead ADD COLUMN s INTEGER;"),
    ("ALTER TABLE shard ADD COLUMN opened INTEGER DEFAULT 0; ALTER TABLE shard ADD COLUMN used INTEGER DEFAULT 0;"
     "ALTER TABLE progress ADD COLUMN s INTEGER; ALTER TABLE namespaces ADD COLUMN s INTEGER;"),
    ("CREATE TABLE history(span INTEGER PRIMARY KEY, slot INTEGER, rows INTEGER, bytes INTEGER, first_us INTEGER,"
     " last_us INTEGER);"),
};

static const char *const texts[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_SETTLE] = "UPDATE shard SET settled = settled + 1",
    [SQL_OWNER] = "UPDATE shard SET version = ?1, owner = ?2, lease_until_us = 0",
    [SQL_PROGRESS] = "UPDATE progress SET progress = ?1, s = ?2",
    [SQL_PROGRESS_GET] = "SELECT progress, s FROM progress",
    [SQL_FREE_PAGES] = "PRAGMA freelist_count",
    [SQL_SLOTS] = "UPDATE shard SET slots = ?1",
    [SQL_MARK] = "UPDATE shard SET mark = ?1",
    [SQL_NAMESPACE] = "INSERT INTO namespaces VALUES(?1, ?2, ?3)",
    [SQL_WINDOW] = "INSERT INTO windows VALUES(?1, ?2)",
    [SQL_WINDOW_DROP] = "DELETE FROM windows WHERE window = ?1",
    [SQL_DOOM] = "INSERT INTO doomed VALUES(?1)",
    [SQL_DOOM_DROP] = "DELETE FROM doomed WHERE slot = ?1",
    [SQL_SWEEP] = "INSERT INTO sweeps VALUES(?1, ?2, ?3, ?4)",
    [SQL_SWEEP_MOVE] = "UPDATE sweeps SET first = ?1 WHERE number = ?2",
    [SQL_SWEEP_DROP] = "DELETE FROM sweeps WHERE number = ?1",
    [SQL_RUN] = "REPLACE INTO runs VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [SQL_RUN_DROP] = "DELETE FROM runs WHERE slot = ?1",
    [SQL_MOVED] = "REPLACE INTO moved VALUES(?1, ?2, ?3)",
    [SQL_MOVED_GET] = "SELECT at_us, seq FROM moved WHERE id_seq = ?1",
    [SQL_MOVED_DROP] = "DELETE FROM moved WHERE id_seq = ?1",
    [SQL_MOVED_PAGE] = "SELECT id_seq, at_us FROM moved WHERE id_seq > ?1 ORDER BY id_seq LIMIT ?2",
    [SQL_DEAD] = "REPLACE INTO dead VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [SQL_DEAD_DROP] = "DELETE FROM dead WHERE id_seq = ?1",
    [SQL_DEAD_ALL] = "SELECT * FROM dead WHERE id_seq > ?1 ORDER BY id_seq",
    [SQL_DEAD_NS] = "SELECT * FROM dead WHERE ns = ?2 AND id_seq > ?1 ORDER BY id_seq",
    [SQL_LATE] = "INSERT INTO late(hash, tick, seq) VALUES(?1, ?2, ?3)",
    [SQL_LATE_CLEAR] = "DELETE FROM late",
    [SQL_ROWS] = "REPLACE INTO counts VALUES(?1, ?2, ?3)",
    [SQL_ROWS_NONE] = "DELETE FROM counts WHERE window = ?1 AND ns = ?2",
    [SQL_ROWS_DROP] = "DELETE FROM counts WHERE window = ?1",
    [SQL_USED] = "UPDATE shard SET used = opened",
    [SQL_HISTORY] = "REPLACE INTO history VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [SQL_HISTORY_DROP] = "DELETE FROM history WHERE span = ?1",
};

uint64_t fl__monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- Errors ------------------------------------------------------------------------------------------------------- */

int fl__code_of_errno(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return FL_STORE_FULL;
    case EROFS:
    case EACCES:
    case EPERM:
        return FL_STORE_READ_ONLY;
    case ENOMEM:
        return FL_NO_MEMORY;
    default:
        return FL_STORE_UNAVAILABLE;
    }
}

static int code_of(int rc, int error)
{
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return FL_NO_MEMORY;
    case SQLITE_FULL:
        return FL_STORE_FULL;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return FL_STORE_READ_ONLY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return FL_STORE_CORRUPT;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return rc == SQLITE_IOERR_NOMEM ? FL_NO_MEMORY : fl__code_of_errno(error);
    default:
        return FL_STORE_UNAVAILABLE;
    }
}

/* `%s` is the file, the second one what SQLite or the system say. */
static const char *sentence_of(int code, int rc)
{
    switch (code) {
    case FL_NO_MEMORY:
        return "out of memory while working on %s (%s)";
    case FL_STORE_FULL:
        return "the disk is full, so %s cannot grow (%s); free some space, and the store continues by itself";
    case FL_STORE_READ_ONLY:
        return "cannot write to %s (%s); check the permissions of the file and its folder";
    case FL_STORE_CORRUPT:
        return "%s is damaged (%s); restore it from a backup";
    default:
        return (rc & 0xff) == SQLITE_BUSY ? "another program has locked %s (%s); stop that program"
                                          : "cannot read or write %s (%s); check the disk";
    }
}

/* The file of the log; NULL: there is none yet. */
static sqlite3_file *log_of(sqlite3 *db)
{
    sqlite3_file *log = NULL;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    return log && log->pMethods ? log : NULL;
}

/* What the system said to SQLite. It forgets that when a commit could not write to the log; the log's file has not. */
static int system_error(sqlite3 *db, int rc)
{
    int error = db ? sqlite3_system_errno(db) : 0;
    sqlite3_file *log = db && error == 0 && rc == SQLITE_IOERR_WRITE ? log_of(db) : NULL;
    if (log)
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &error);
    return error;
}

int fl__sqlite_explain(sqlite3 *db, int rc, const char *path, char *message, size_t size)
{
    int error = system_error(db, rc);
    int code = code_of(rc, error);
    bool of_system = (rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN;
    const char *detail = of_system && error ? strerror(error) : db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(message, size, sentence_of(code, rc), path, detail);
#pragma GCC diagnostic pop
    return code;
}

int fl__base_failed(struct base *base, int rc)
{
    return fl__sqlite_explain(base->db, rc, base->path, base->message, sizeof base->message);
}

int fl__base_fail(struct base *base, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(base->message, sizeof base->message, format ? format : "%s", arguments);
    va_end(arguments);
    return code;
}

/* --- Statements --------------------------------------------------------------------------------------------------- */

static sqlite3_stmt *prepared(struct base *base, enum statement id)
{
    if (!base->statements[id]) {
        int rc = sqlite3_prepare_v3(base->db, texts[id], -1, SQLITE_PREPARE_PERSISTENT, &base->statements[id], NULL);
        if (rc != SQLITE_OK)
            fl__base_failed(base, rc);
    }
    return base->statements[id];
}

static int bind(sqlite3_stmt *statement, const char *types, va_list arguments)
{
    int rc = SQLITE_OK;
    for (int i = 0; types[i] && rc == SQLITE_OK; i++) {
        if (types[i] == 'i') {
            rc = sqlite3_bind_int64(statement, i + 1, va_arg(arguments, int64_t));
        } else {
            fl_bytes bytes = va_arg(arguments, fl_bytes);
            rc = sqlite3_bind_blob64(statement, i + 1, bytes.size > 0 ? bytes.data : "", bytes.size, SQLITE_STATIC);
        }
    }
    return rc;
}

int fl__step(struct base *base, sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        return 1;
    int r = rc == SQLITE_DONE ? 0 : fl__base_failed(base, sqlite3_extended_errcode(base->db));
    sqlite3_reset(statement);
    return r;
}

int fl__each_row(struct base *base, const char *sql, query_row_fn *row, void *arg)
{
    sqlite3_stmt *statement;
    int rc = sqlite3_prepare_v2(base->db, sql, -1, &statement, NULL);
    if (rc != SQLITE_OK)
        return fl__base_failed(base, rc);
    int r = fl__step(base, statement);
    while (r > 0) {
        r = row(base, statement, arg);
        if (r == 0)
            r = fl__step(base, statement);
    }
    sqlite3_finalize(statement);
    return r;
}

sqlite3_stmt *fl__query(struct base *base, enum statement id, const char *types, ...)
{
    sqlite3_stmt *statement = prepared(base, id);
    if (!statement)
        return NULL;
    va_list arguments;
    va_start(arguments, types);
    int rc = bind(statement, types, arguments);
    va_end(arguments);
    if (rc == SQLITE_OK)
        return statement;
    fl__base_failed(base, rc);
    return NULL;
}

int fl__run(struct base *base, enum statement id, const char *types, ...)
{
    sqlite3_stmt *statement = prepared(base, id);
    if (!statement)
        return fl__base_failed(base, sqlite3_extended_errcode(base->db));
    va_list arguments;
    va_start(arguments, types);
    int rc = bind(statement, types, arguments);
    va_end(arguments);
    return rc == SQLITE_OK ? fl__step(base, statement) : fl__base_failed(base, rc);
}

fl_bytes fl__column_bytes(sqlite3_stmt *statement, int column)
{
    const void *data = sqlite3_column_blob(statement, column); /* before the size */
    return (fl_bytes){data, (size_t)sqlite3_column_bytes(statement, column)};
}

unsigned char *fl__base_scratch(struct base *base, size_t size)
{
    if (size > base->scratch_room) {
        unsigned char *larger = fl__resize(base->scratch, size);
        if (!larger) {
            base_no_memory(base);
            return NULL;
        }
        base->scratch = larger;
        base->scratch_room = size;
    }
    return base->scratch;
}

/* A disk that is really full would stop everything: the log could not be carried over, and nobody could note that a timer
 * has fired. So new rows stop a while before, unless the file has free pages of its own. Who cannot be asked has room. */
int fl__base_has_room(struct base *base)
{
    struct statvfs disk;
    if (fl__sqlite_tuning.keep_free == 0 || statvfs(base->path, &disk) < 0)
        return 1;
    uint64_t all = (uint64_t)disk.f_blocks * disk.f_frsize, keep = all / fl__sqlite_tuning.keep_part;
    if (keep > fl__sqlite_tuning.keep_free)
        keep = fl__sqlite_tuning.keep_free;
    if ((uint64_t)disk.f_bavail * disk.f_frsize >= keep)
        return 1;
    sqlite3_stmt *statement = fl__query(base, SQL_FREE_PAGES, "");
    int r = statement ? fl__step(base, statement) : FL_NO_MEMORY;
    if (r <= 0)
        return r;
    bool has = sqlite3_column_int64(statement, 0) >= FREE_PAGES;
    sqlite3_reset(statement);
    return has;
}

/* --- Transactions ------------------------------------------------------------------------------------------------- */

/* Not stat(): a file whose times were asked for gets exact new ones with the next write, which makes each sync slower. */
static struct file_identity identify(const char *path)
{
    struct statx found;
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &found) < 0)
        return (struct file_identity){0};
    return (struct file_identity){(uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor, found.stx_ino};
}

/* The file, and its log, which SQLite keeps as long as it has the file open. */
static void identify_files(struct base *base, struct file_identity ret[2])
{
    char log[PATH_MAX];
    ret[0] = identify(base->path);
    bool fits = snprintf(log, sizeof log, "%s-wal", base->path) < (int)sizeof log;
    ret[1] = fits ? identify(log) : (struct file_identity){0};
}

int fl__base_present(struct base *base)
{
    static const char *const what[] = {"", "-wal"};
    struct file_identity now[2];
    identify_files(base, now);
    for (int i = 0; i < 2; i++)
        if (base->files[i].inode != 0 &&
            (base->files[i].inode != now[i].inode || base->files[i].device != now[i].device))
            return fl__base_fail(base, FL_STORE_UNAVAILABLE,
                                 "%.120s%s was %s while it was in use, so nothing is written; stop this process, put "
                                 "the file back and start again",
                                 base->path, what[i], now[i].inode ? "replaced" : "removed");
    return 0;
}

int fl__base_begin(struct base *base)
{
    int r = fl__base_present(base);
    if (r == 0)
        r = fl__run(base, SQL_BEGIN, "");
    if (r == 0)
        base->in_transaction = true;
    return r;
}

static void unload(struct base *base)
{
    fl__names_unload(base);
    fl__history_unload(base);
    fl__windows_unload(base);
    fl__slots_unload(base);
    base->loaded = false;
}

/* Without memory even this may fail; then it is done before anything else (fl__base_ready). */
static int roll_back(struct base *base)
{
    return sqlite3_get_autocommit(base->db) ? 0 : fl__run(base, SQL_ROLLBACK, "");
}

void fl__base_rollback(struct base *base)
{
    char message[sizeof base->message]; /* what has gone wrong before is what people want to know */
    memcpy(message, base->message, sizeof message);
    roll_back(base);
    base->in_transaction = false;
    unload(base);
    memcpy(base->message, message, sizeof message);
}

/* The step of a COMMIT, and nothing else. Gives SQLite's code. */
static int commit_now(struct base *base)
{
    sqlite3_step(base->statements[SQL_COMMIT]);
    return sqlite3_reset(base->statements[SQL_COMMIT]);
}

/* What failed commits have left in the log would look like damage (damage.c). If it cannot be cut off, it stays. */
static void cut_log(struct base *base)
{
    sqlite3_file *log = log_of(base->db);
    if (log && log->pMethods->xTruncate(log, LOG_HEAD + (sqlite3_int64)base->frames * LOG_FRAME) == SQLITE_OK)
        base->log_size = 0; /* it is asked for again */
}

/* Writes over what may be left of a commit that failed. */
static int settle(struct base *base)
{
    int r = roll_back(base);
    if (r == 0)
        r = fl__base_begin(base);
    if (r == 0)
        r = fl__run(base, SQL_SETTLE, "");
    if (r == 0) {
        int rc = commit_now(base);
        r = rc == SQLITE_OK ? 0 : fl__base_failed(base, rc);
    }
    base->in_transaction = false;
    if (r < 0) {
        fl__base_rollback(base);
    } else {
        base->unsettled = false;
        cut_log(base);
    }
    return r;
}

static int commit_failed(struct base *base, int rc)
{
    int r = fl__base_failed(base, rc);
    fl__base_rollback(base);
    if ((rc & 0xff) == SQLITE_FULL)
        return r;
    char message[sizeof base->message];
    memcpy(message, base->message, sizeof message);
    base->unsettled = true;
    if (settle(base) < 0)
        r = FL_OUTCOME_UNKNOWN;
    memcpy(base->message, message, sizeof message);
    return r;
}

int fl__base_commit(struct base *base)
{
    int r = fl__windows_flush(base);
    if (r == 0 && base->counted && !base->marked)
        r = fl__run(base, SQL_USED, "");
    if (r < 0) {
        fl__base_rollback(base);
        return r;
    }
    int rc = commit_now(base);
    if (rc != SQLITE_OK)
        return commit_failed(base, rc);
    base->in_transaction = false;
    if (!base->marked) {
        fl__mark_set(base->db);
        base->marked = true;
    }
    fl__names_committed(base);
    return 0;
}

/* To sync a file that has grown takes nearly twice as long as one that was written over, because its new size has to be
 * written as well. What is behind the last commit means nothing to SQLite. If it fails, commits make the log longer, as they
 * would anyway.
 *
 * Its size is asked only when it seems too small, since the log grows and does not shrink while it is open: a file whose
 * times were asked for gets exact new ones with the next write, and then each sync writes its inode too, half as long again. */
void fl__base_extend_log(struct base *base)
{
    static char zeros[LOG_PIECE];
    sqlite3_file *log = log_of(base->db);
    sqlite3_int64 end = LOG_HEAD + (sqlite3_int64)base->frames * LOG_FRAME, *size = &base->log_size;
    sqlite3_int64 more = end < LOG_PIECE ? LOG_PIECE : end > LOG_STEP ? LOG_STEP : end / LOG_PIECE * LOG_PIECE;
    if (end + more / 4 <= *size || !log || log->pMethods->xFileSize(log, size) != SQLITE_OK || end + more / 4 <= *size)
        return;
    for (sqlite3_int64 goal = *size + more; *size < goal; *size += LOG_PIECE)
        if (log->pMethods->xWrite(log, zeros, LOG_PIECE, *size) != SQLITE_OK)
            return;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

/* What is not kept in struct base. */
struct shard_row {
    bool there;
    uint64_t mark; /* of the index of names */
};

static int read_shard(struct base *base, sqlite3_stmt *row, void *arg)
{
    base->store_id = (uint64_t)sqlite3_column_int64(row, 0);
    base->shards = (uint32_t)sqlite3_column_int64(row, 1);
    base->number = (uint32_t)sqlite3_column_int64(row, 2);
    base->version = (uint64_t)sqlite3_column_int64(row, 3);
    fl_bytes owner = fl__column_bytes(row, 4);
    size_t size = owner.size < sizeof base->owner ? owner.size : sizeof base->owner - 1;
    if (size > 0)
        memcpy(base->owner, owner.data, size);
    base->owner[size] = 0;
    base->opened = (uint64_t)sqlite3_column_int64(row, 6);
    base->used = (uint64_t)sqlite3_column_int64(row, 7);
    struct shard_row *shard = arg;
    *shard = (struct shard_row){true, (uint64_t)sqlite3_column_int64(row, 5)};
    return 0;
}

static int load_shard(struct base *base, uint64_t *ret_mark)
{
    struct shard_row shard = {0};
    int r = fl__each_row(base, "SELECT store, shards, number, version, owner, mark, opened, used FROM shard",
                         read_shard, &shard);
    if (r == 0 && !shard.there)
        r = base_corrupt(base, "it does not say which shard it is");
    *ret_mark = shard.mark;
    return r;
}

static int load(struct base *base)
{
    if (base->loaded)
        return 0;
    unload(base);
    uint64_t mark;
    int r = load_shard(base, &mark);
    if (r == 0)
        r = fl__namespaces_load(base);
    if (r == 0)
        r = fl__slots_load(base);
    if (r == 0)
        r = fl__windows_load(base);
    if (r == 0)
        r = fl__counts_load(base);
    if (r == 0)
        r = fl__history_load(base);
    if (r == 0)
        r = fl__names_load(base, mark);
    if (r < 0) {
        unload(base);
        return r;
    }
    base->moved_after = 0;
    base->moved_sweep = true; /* nobody knows whether the last sweep came to its end */
    base->loaded = true;
    sqlite3_db_release_memory(base->db); /* pages with filters, which are not read again */
    fl__names_committed(base);
    return 0;
}

int fl__base_ready(struct base *base)
{
    int r = base->in_transaction ? 0 : roll_back(base);
    if (r == 0 && base->unsettled)
        r = settle(base);
    return r == 0 ? load(base) : r;
}

/* --- Opening ------------------------------------------------------------------------------------------------------ */

static int read_number(struct base *base, sqlite3_stmt *row, void *arg)
{
    (void)base;
    *(int64_t *)arg = sqlite3_column_int64(row, 0);
    return 0;
}

static int pragma_number(struct base *base, const char *sql, int64_t *ret)
{
    return fl__each_row(base, sql, read_number, ret);
}

static int execute(struct base *base, const char *sql)
{
    int rc = sqlite3_exec(base->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : fl__base_failed(base, sqlite3_extended_errcode(base->db));
}

static int after_commit(void *arg, sqlite3 *db, const char *name, int frames)
{
    (void)db, (void)name;
    ((struct base *)arg)->frames = frames;
    return SQLITE_OK;
}

int fl__base_connect(const char *path, sqlite3 **ret)
{
    int rc =
        sqlite3_open_v2(path, ret, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, fl__sqlite_vfs());
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_extended_result_codes(*ret, 1);
    return sqlite3_busy_timeout(*ret, BUSY_MS);
}

/* Before anything is written: is this ours, and not of a later version? */
static int check_kind(struct base *base, bool create, int64_t *ret_schema)
{
    int64_t application = 0, schema = 0;
    int r = pragma_number(base, "PRAGMA application_id", &application);
    if (r == 0)
        r = pragma_number(base, "PRAGMA user_version", &schema);
    if (r < 0)
        return r;
    if (application != APPLICATION_ID && !create)
        return fl__base_fail(base, FL_INVALID_ARGUMENT,
                             "%s is a database, but not one of Foliot; give Foliot its own folder", base->path);
    if (schema > SCHEMA)
        return fl__base_fail(
            base, FL_STORE_NEWER,
            "a later version of Foliot created %s (schema %d, this version knows %d); use that version", base->path,
            (int)schema, SCHEMA);
    if (sqlite3_db_readonly(base->db, "main") == 1)
        return fl__base_fail(base, FL_STORE_READ_ONLY,
                             "cannot write to %s; check the permissions of the file and its folder", base->path);
    *ret_schema = schema;
    return 0;
}

static int set_up(struct base *base)
{
    char cache[64];
    snprintf(cache, sizeof cache, "PRAGMA cache_size = -%d", CACHE_KIB);
    static const char *const settings[] = {
        "PRAGMA page_size = 4096",       "PRAGMA auto_vacuum = NONE",  "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",     "PRAGMA secure_delete = OFF", "PRAGMA temp_store = MEMORY",
        "PRAGMA wal_autocheckpoint = 0",
    };
    int r = execute(base, cache);
    for (size_t i = 0; i < sizeof settings / sizeof *settings && r == 0; i++)
        r = execute(base, settings[i]);
    sqlite3_wal_hook(base->db, after_commit, base);
    if (r == 0 && (!prepared(base, SQL_BEGIN) || !prepared(base, SQL_COMMIT) || !prepared(base, SQL_ROLLBACK)))
        r = FL_NO_MEMORY; /* later there may be none for them when they are needed most */
    return r;
}

static int make_counts(struct base *base)
{
    int r = load(base);
    if (r == 0)
        r = fl__counts_make(base);
    return r == 0 ? fl__windows_flush(base) : r;
}

static int upgrade(struct base *base, int64_t from, const struct base_identity *create)
{
    if (from == SCHEMA)
        return 0;
    char last[256];
    snprintf(last, sizeof last, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, SCHEMA);
    int r = execute(base, "BEGIN IMMEDIATE");
    for (int64_t i = from; i < SCHEMA && r == 0; i++)
        r = execute(base, upgrades[i]);
    if (r == 0 && from > 0 && from < COUNTED)
        r = fl__slots_sum(base);
    if (r == 0 && from > 0 && from < COUNTED)
        r = make_counts(base);
    if (r == 0)
        r = execute(base, last);
    if (r == 0 && create) {
        snprintf(last, sizeof last, "UPDATE shard SET store = %lld, shards = %u, number = %u",
                 (long long)create->store_id, create->shards, create->number);
        r = execute(base, last);
    }
    if (r == 0)
        return execute(base, "COMMIT");
    unload(base);
    return r;
}

/* Before SQLite reads anything: is the log there and as it was written? */
static int connect_to(struct base *base)
{
    bool marked = false;
    int rc = fl__base_connect(base->path, &base->db);
    if (rc == SQLITE_OK)
        rc = fl__mark_find(base->db, &marked);
    if (rc != SQLITE_OK)
        return fl__base_failed(base, rc);
    int r = fl__log_check(base->path, marked, base->message, sizeof base->message);
    if (r < 0)
        return r;
    if (marked && sqlite3_db_readonly(base->db, "main") == 0) /* else it is refused soon */
        rc = fl__mark_clear_unread(base->db);
    return rc == SQLITE_OK ? 0 : fl__base_failed(base, rc);
}

static int open_base(struct base *base, const struct base_identity *create)
{
    int r = connect_to(base);
    int64_t schema = 0;
    if (r == 0)
        r = check_kind(base, create != NULL, &schema);
    if (r == 0)
        r = set_up(base);
    if (r == 0)
        r = upgrade(base, schema, create);
    if (r == 0)
        r = fl__base_ready(base);
    if (r == 0)
        identify_files(base, base->files);
    return r;
}

int fl__base_open(const char *path, const struct base_identity *create, struct base **ret, char *message, size_t size)
{
    struct base *base = fl__alloc_zeroed(sizeof *base);
    size_t path_size = strlen(path) + 1;
    char *copy = fl__alloc(path_size);
    if (!base || !copy) {
        fl__release(base);
        fl__release(copy);
        return FL_NO_MEMORY;
    }
    base->path = memcpy(copy, path, path_size);
    base->names = fl__names_new();
    int r = base->names ? open_base(base, create) : base_no_memory(base);
    if (r < 0) {
        snprintf(message, size, "%s", base->message);
        fl__base_close(base);
        return r;
    }
    *ret = base;
    return 0;
}

int fl__base_complete(struct base *base, char *message, size_t size)
{
    int rc = sqlite3_wal_checkpoint_v2(base->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return rc == SQLITE_OK ? 0 : fl__sqlite_explain(base->db, rc, base->path, message, size);
}

int fl__base_accept_loss(const char *path, char *message, size_t size)
{
    bool marked = false;
    sqlite3 *db = NULL;
    int rc = fl__base_connect(path, &db), r = 0;
    if (rc == SQLITE_OK)
        rc = fl__mark_find(db, &marked);
    if (rc == SQLITE_OK && fl__log_check(path, marked, message, size) < 0) {
        rc = fl__mark_clear_unread(db);
        if (rc == SQLITE_OK)
            rc = sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    }
    if (rc != SQLITE_OK)
        r = fl__sqlite_explain(db, rc, path, message, size);
    sqlite3_close(db);
    return r;
}

int fl__base_count(const char *path, uint64_t opened)
{
    char sql[96];
    sqlite3 *db = NULL;
    snprintf(sql, sizeof sql, "PRAGMA synchronous = FULL; UPDATE shard SET opened = %llu", (unsigned long long)opened);
    int rc = fl__base_connect(path, &db);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    sqlite3_close(db);
    return rc == SQLITE_OK ? 0 : FL_STORE_UNAVAILABLE;
}

void fl__base_close(struct base *base)
{
    if (base->marked && fl__mark_clear(base->db) != SQLITE_OK)
        sqlite3_db_config(base->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL); /* the log stays */
    unload(base);
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(base->statements[i]);
    sqlite3_close(base->db);
    fl__namespaces_free(base);
    fl__names_free(base->names);
    fl__release(base->scratch);
    fl__release(base->path);
    fl__release(base);
}
