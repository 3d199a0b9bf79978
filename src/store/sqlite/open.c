/* SPDX-License-Identifier: MIT */
/* A shard's file: its schema, opening it, and reading its state into memory.
 *
 * Settings. The log (WAL) is synced before a commit is acknowledged (synchronous=FULL). It is carried over into the file
 * by a second thread (helper.c), not by commits. Pages have 4096 bytes. Nothing is overwritten with zeros on deletion,
 * which Debian's SQLite does by default. The file does not shrink: pages that become free are used again.
 *
 * Tables:
 *
 *     shard        one row: the identity of this file, and the shard owner
 *     progress     one row: how far the owner has got (store/progress.c)
 *     namespaces   number -> text
 *     slot_N       records (k, v) with a checksum s (damage.c). A slot is a table that can be used for anything; making and
 *                  dropping tables would make SQLite compile all statements anew each time
 *     windows      which slot the rows of a window are in: chunk.c has the format, by sequence number
 *     runs         which slots have runs of the index of names: runs.c
 *     doomed       slots whose records are no longer needed and are erased step by step
 *     sweeps       windows with settled rows that are still to be removed
 *     counts       how many rows of each namespace are in the slot of a window: counts.c
 *     moved        id.seq -> the key of a row that was moved. Readers ignore an entry whose row is gone
 *     late         named rows whose numbers are below shard.mark and that are not in a run: names.c
 *     dead         dead letters
 *     history      which slots have spans of the history: history.c
 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/alloc.h"
#include "store/sqlite/base.h"
#include "store/sqlite/names/names.h"

enum { APPLICATION_ID = 0x466f6c69, SCHEMA = 6, CACHE_KIB = 2048, BUSY_MS = 1000 }; /* "Foli" */
enum { COUNTED = 3 }; /* from this version on, the rows are counted, and records have checksums */

/* The statements that upgrade a schema by one version each; a new file has version 0. */
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
    /* the checksums of dead letters covered only their bodies */
    "UPDATE dead SET s = NULL;",
};

/* --- Loading ------------------------------------------------------------------------------------------------------ */

/* Columns that struct base does not keep. */
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
    fl__base_unload(base);
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
        fl__base_unload(base);
        return r;
    }
    base->moved_after = 0;
    base->moved_sweep = true; /* the file does not say whether the last sweep was complete */
    base->loaded = true;
    sqlite3_db_release_memory(base->db); /* pages with filters, which are not read again */
    fl__names_committed(base);
    return 0;
}

int fl__base_ready(struct base *base)
{
    int r = base->in_transaction ? 0 : fl__base_roll_back(base);
    if (r == 0 && base->unsettled)
        r = fl__base_settle(base);
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
    fl__base_set_frames(arg, frames);
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

/* Before the first write: checks that this is a file of Foliot, and not of a later version. */
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
    if (r == 0 && (!fl__base_prepared(base, SQL_BEGIN) || !fl__base_prepared(base, SQL_COMMIT) ||
                   !fl__base_prepared(base, SQL_ROLLBACK)))
        r = FL_NO_MEMORY; /* statements are prepared now, because memory may be short later */
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
    fl__base_unload(base);
    return r;
}

/* Before SQLite reads the file: checks that the log exists and is undamaged. */
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
    if (marked && sqlite3_db_readonly(base->db, "main") == 0) /* a read-only file is refused soon */
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
        fl__base_identify_files(base, base->files);
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
    fl__base_unload(base);
    fl__base_set_frames(base, 0);
    for (int i = 0; i < SQL_COUNT; i++)
        sqlite3_finalize(base->statements[i]);
    sqlite3_close(base->db);
    fl__namespaces_free(base);
    fl__names_free(base->names);
    fl__release(base->scratch);
    fl__release(base->path);
    fl__release(base);
}
