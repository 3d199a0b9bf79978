/* SPDX-License-Identifier: MIT */
/* A shard's file: statements, transactions, and what errors mean.
 *
 * When a commit fails. SQLite appends the pages of a transaction to the log, the last one marked as a commit, and syncs.
 * If the disk was full (SQLITE_FULL), the mark was not written, and the transaction never takes effect. After any other error
 * the mark may be in the log. SQLite does not read it now, but a process that opens the file after a crash would. So another
 * small transaction is committed at once. It overwrites the failed one, whose remaining pages no longer match the pages
 * before them, and then they are cut off. If both succeed, the failed transaction never takes effect. Until then the outcome
 * is unknown, and nothing else is done.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/assert.h"
#include "store/sqlite/base.h"
#include "store/sqlite/names/names.h"

enum { LOG_HEAD = 32, LOG_FRAME = 4096 + 24, LOG_PIECE = 64 << 10, LOG_STEP = 1 << 20 };
enum { FREE_PAGES = 1024 }; /* with so many free pages the file need not grow for a while */

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
    [SQL_NAMESPACE] = "REPLACE INTO namespaces VALUES(?1, ?2, ?3)",
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
    [SQL_DEAD_NEXT] = "SELECT min(ns) FROM dead WHERE ns > ?1",
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

/* The first `%s` is the file, the second is the text of SQLite or of the system. */
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

/* The file of the log; NULL: it does not exist yet. */
static sqlite3_file *log_of(sqlite3 *db)
{
    sqlite3_file *log = NULL;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    return log && log->pMethods ? log : NULL;
}

/* The errno of a failed call of SQLite. SQLite drops it when a commit could not write to the log, but the file of the log
 * still has it. */
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

sqlite3_stmt *fl__base_prepared(struct base *base, enum statement id)
{
    fl__assert((unsigned)id < SQL_COUNT);
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
    sqlite3_stmt *statement = fl__base_prepared(base, id);
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
    sqlite3_stmt *statement = fl__base_prepared(base, id);
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

static _Atomic int64_t pages_in_logs; /* of all files of this process */

void fl__base_set_frames(struct base *base, int frames)
{
    atomic_fetch_add_explicit(&pages_in_logs, frames - base->frames, memory_order_relaxed);
    base->frames = frames;
}

/* On a full disk, no checkpoint could run, and no fired timer could be recorded. So new rows are refused some time before
 * that, unless the file has free pages. The pages in the logs count twice, because the files may grow by them before the
 * logs are reset. If the file system does not tell its free space, there is room. */
int fl__base_has_room(struct base *base)
{
    struct statvfs disk;
    if (fl__sqlite_tuning.keep_free == 0 || statvfs(base->path, &disk) < 0)
        return 1;
    uint64_t all = (uint64_t)disk.f_blocks * disk.f_frsize, keep = all / fl__sqlite_tuning.keep_part;
    if (keep > fl__sqlite_tuning.keep_free)
        keep = fl__sqlite_tuning.keep_free;
    keep += (uint64_t)atomic_load_explicit(&pages_in_logs, memory_order_relaxed) * LOG_FRAME;
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

/* Not stat(): after a program reads the times of a file, the next write updates them exactly, which makes each sync
 * slower. */
static struct file_identity identify(const char *path)
{
    struct statx found;
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &found) < 0)
        return (struct file_identity){0};
    return (struct file_identity){(uint64_t)found.stx_dev_major << 32 | found.stx_dev_minor, found.stx_ino};
}

void fl__base_identify_files(struct base *base, struct file_identity ret[2])
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
    fl__base_identify_files(base, now);
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

void fl__base_unload(struct base *base)
{
    fl__names_unload(base);
    fl__history_unload(base);
    fl__windows_unload(base);
    fl__slots_unload(base);
    base->loaded = false;
}

int fl__base_roll_back(struct base *base)
{
    return sqlite3_get_autocommit(base->db) ? 0 : fl__run(base, SQL_ROLLBACK, "");
}

void fl__base_rollback(struct base *base)
{
    char message[sizeof base->message]; /* the first error is the cause, so its message is kept */
    memcpy(message, base->message, sizeof message);
    fl__base_roll_back(base);
    base->in_transaction = false;
    fl__base_unload(base);
    memcpy(base->message, message, sizeof message);
}

/* Only the step of a COMMIT. Returns SQLite's code. */
static int commit_now(struct base *base)
{
    sqlite3_step(base->statements[SQL_COMMIT]);
    return sqlite3_reset(base->statements[SQL_COMMIT]);
}

/* Cuts the remains of failed commits off the log, because they would look like damage (damage.c). */
static int cut_log(struct base *base)
{
    sqlite3_file *log = log_of(base->db);
    int rc = log ? log->pMethods->xTruncate(log, LOG_HEAD + (sqlite3_int64)base->frames * LOG_FRAME) : SQLITE_OK;
    base->log_size = 0; /* unknown: read again */
    return rc == SQLITE_OK ? 0 : fl__base_failed(base, rc);
}

int fl__base_settle(struct base *base)
{
    int r = fl__base_roll_back(base);
    if (r == 0)
        r = fl__base_begin(base);
    if (r == 0)
        r = fl__run(base, SQL_SETTLE, "");
    if (r == 0) {
        int rc = commit_now(base);
        r = rc == SQLITE_OK ? 0 : fl__base_failed(base, rc);
    }
    base->in_transaction = false;
    if (r == 0)
        r = cut_log(base);
    if (r < 0)
        fl__base_rollback(base);
    else
        base->unsettled = false;
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
    if (fl__base_settle(base) < 0)
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

/* Syncing a file that has grown takes nearly twice as long as syncing one that was overwritten, because its new size must be
 * written, too. SQLite ignores bytes after the last commit. If this fails, the next commits make the log longer.
 *
 * The size is read only when the log seems too short. It grows and does not shrink while it is open. After its times are
 * read, the next write updates them exactly, and then each sync writes the inode, too, and takes half as long again. */
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

/* The number of the log, which SQLite keeps in the log's header. If the header cannot be read, it counts as a new log. */
uint32_t fl__base_log_number(struct base *base)
{
    enum { PLACE_IN_HEADER = 12 };
    sqlite3_file *log = log_of(base->db);
    unsigned char bytes[4] = {0};
    if (!log || log->pMethods->xRead(log, bytes, sizeof bytes, PLACE_IN_HEADER) != SQLITE_OK)
        return 0;
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}
