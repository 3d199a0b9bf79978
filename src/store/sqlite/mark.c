/* SPDX-License-Identifier: MIT */
/* The mark of a file that is in use: 16 bytes behind its last page.
 *
 * After a crash, the file without its log lacks the pages that no checkpoint has copied yet. So the file must say that it
 * has a log. It says so outside of its pages, because a copy that SQLite makes of the pages needs no log. A checkpoint of
 * the whole log, by any process, cuts the file to its last page, and so removes the mark exactly when the file is complete.
 * The mark is set after the first commit of a process, when the log is known to be on the disk, and again after each
 * checkpoint. Closing removes it before SQLite deletes the log. Nothing is written in between.
 *
 * SQLite ignores bytes behind the last page once a log says how many pages there are; before that it is taken away (base.c).
 * While the mark is set or cleared, a lock of SQLite keeps checkpoints from changing the length of the file.
 */

#include <string.h>

#include "store/sqlite/base.h"

static const char mark[] = "Foliot: in use.\n";
enum { MARK = sizeof mark - 1, PAGE = 4096, CHECKPOINT_LOCK = 1 }; /* WAL_CKPT_LOCK of SQLite's file format */

static sqlite3_file *file_of(sqlite3 *db)
{
    sqlite3_file *file = NULL;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    return file && file->pMethods ? file : NULL;
}

/* Whether it is there; `*ret_end` is where the file ends without it. */
static int find(sqlite3_file *file, bool *ret, sqlite3_int64 *ret_end)
{
    char found[MARK];
    *ret = false;
    int rc = file->pMethods->xFileSize(file, ret_end);
    if (rc != SQLITE_OK || *ret_end % PAGE != MARK)
        return rc;
    rc = file->pMethods->xRead(file, found, MARK, *ret_end - MARK);
    *ret = rc == SQLITE_OK && memcmp(found, mark, MARK) == 0;
    *ret_end -= *ret ? MARK : 0;
    return rc;
}

int fl__mark_find(sqlite3 *db, bool *ret)
{
    sqlite3_int64 end;
    sqlite3_file *file = file_of(db);
    *ret = false;
    return file ? find(file, ret, &end) : SQLITE_OK;
}

static int set(sqlite3_file *file)
{
    bool there;
    sqlite3_int64 end;
    int rc = find(file, &there, &end);
    if (rc != SQLITE_OK || there || end % PAGE != 0)
        return rc;
    rc = file->pMethods->xWrite(file, mark, MARK, end);
    return rc == SQLITE_OK ? file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) : rc;
}

static int clear(sqlite3_file *file)
{
    bool there;
    sqlite3_int64 end;
    int rc = find(file, &there, &end);
    if (rc != SQLITE_OK || !there)
        return rc;
    rc = file->pMethods->xTruncate(file, end);
    return rc == SQLITE_OK ? file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) : rc;
}

/* While no checkpoint can run. The connection must have read something. */
static int without_checkpoints(sqlite3 *db, int (*fn)(sqlite3_file *file))
{
    sqlite3_file *file = file_of(db);
    if (!file || file->pMethods->iVersion < 2)
        return SQLITE_OK;
    int rc = file->pMethods->xShmLock(file, CHECKPOINT_LOCK, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE);
    if (rc != SQLITE_OK)
        return rc;
    rc = fn(file);
    file->pMethods->xShmLock(file, CHECKPOINT_LOCK, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
    return rc;
}

void fl__mark_set(sqlite3 *db)
{
    without_checkpoints(db, set); /* if it fails, a log that is removed is not missed; nothing else depends on it */
}

int fl__mark_clear(sqlite3 *db)
{
    return without_checkpoints(db, clear);
}

int fl__mark_clear_unread(sqlite3 *db)
{
    sqlite3_file *file = file_of(db);
    if (!file)
        return SQLITE_OK;
    int rc = file->pMethods->xLock(file, SQLITE_LOCK_SHARED);
    if (rc == SQLITE_OK)
        rc = file->pMethods->xLock(file, SQLITE_LOCK_EXCLUSIVE);
    if (rc == SQLITE_OK)
        rc = clear(file);
    file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
    return rc == SQLITE_BUSY ? SQLITE_OK : rc; /* a program that reads it has read the log too */
}
