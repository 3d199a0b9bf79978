/* SPDX-License-Identifier: MIT */
/* Combines writes to the log.
 *
 * SQLite writes each page of a commit to the log in two pieces. A system call costs more than copying the bytes. So this VFS
 * is between SQLite and its normal VFS, collects adjacent writes to a log, and sends them as one. Durability stays the same,
 * because collected bytes are written before every call that could tell the difference: a sync (and so the end of a commit),
 * reading the file or its size, truncating, closing. Writes keep their order. If a write fails, the collected bytes are
 * dropped, and the call that caused the write fails. SQLite then rolls the transaction back, and nothing of it was durable.
 *
 * Other files go to the normal VFS unchanged.
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "store/sqlite/base.h"

enum { COLLECTED = 64 << 10, NAME_ROOM = 64 };

struct log_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this */
    unsigned char *bytes;
    size_t size;
    sqlite3_int64 at; /* where they belong */
};

/* --- The log ------------------------------------------------------------------------------------------------------ */

static int write_out(struct log_file *log)
{
    size_t size = log->size;
    log->size = 0;
    return size == 0 ? SQLITE_OK : log->real->pMethods->xWrite(log->real, log->bytes, (int)size, log->at);
}

static int log_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 at)
{
    struct log_file *log = (struct log_file *)file;
    if (at != log->at + (sqlite3_int64)log->size || (size_t)size > COLLECTED - log->size) {
        int rc = write_out(log);
        if (rc != SQLITE_OK)
            return rc;
        log->at = at;
    }
    if (!log->bytes)
        log->bytes = sqlite3_malloc(COLLECTED);
    if (!log->bytes || size > COLLECTED) /* then nothing has been collected */
        return log->real->pMethods->xWrite(log->real, data, size, at);
    memcpy(log->bytes + log->size, data, (size_t)size);
    log->size += (size_t)size;
    return SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *data, int size, sqlite3_int64 at)
{
    struct log_file *log = (struct log_file *)file;
    int rc = write_out(log);
    return rc == SQLITE_OK ? log->real->pMethods->xRead(log->real, data, size, at) : rc;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct log_file *log = (struct log_file *)file;
    int rc = write_out(log);
    return rc == SQLITE_OK ? log->real->pMethods->xTruncate(log->real, size) : rc;
}

static int log_sync(sqlite3_file *file, int flags)
{
    struct log_file *log = (struct log_file *)file;
    int rc = write_out(log);
    return rc == SQLITE_OK ? log->real->pMethods->xSync(log->real, flags) : rc;
}

static int log_size(sqlite3_file *file, sqlite3_int64 *ret)
{
    struct log_file *log = (struct log_file *)file;
    int rc = write_out(log);
    return rc == SQLITE_OK ? log->real->pMethods->xFileSize(log->real, ret) : rc;
}

static int log_close(sqlite3_file *file)
{
    struct log_file *log = (struct log_file *)file;
    int rc = write_out(log), closed = log->real->pMethods->xClose(log->real);
    sqlite3_free(log->bytes);
    return rc == SQLITE_OK ? closed : rc;
}

static int log_lock(sqlite3_file *file, int level)
{
    struct log_file *log = (struct log_file *)file;
    return log->real->pMethods->xLock(log->real, level);
}

static int log_unlock(sqlite3_file *file, int level)
{
    struct log_file *log = (struct log_file *)file;
    return log->real->pMethods->xUnlock(log->real, level);
}

static int log_reserved(sqlite3_file *file, int *ret)
{
    struct log_file *log = (struct log_file *)file;
    return log->real->pMethods->xCheckReservedLock(log->real, ret);
}

static int log_control(sqlite3_file *file, int op, void *arg)
{
    struct log_file *log = (struct log_file *)file;
    return log->real->pMethods->xFileControl(log->real, op, arg);
}

static int log_sector(sqlite3_file *file)
{
    struct log_file *log = (struct log_file *)file;
    return log->real->pMethods->xSectorSize(log->real);
}

static int log_device(sqlite3_file *file)
{
    struct log_file *log = (struct log_file *)file;
    return log->real->pMethods->xDeviceCharacteristics(log->real);
}

static const sqlite3_io_methods log_methods = {
    .iVersion = 1,
    .xClose = log_close,
    .xRead = log_read,
    .xWrite = log_write,
    .xTruncate = log_truncate,
    .xSync = log_sync,
    .xFileSize = log_size,
    .xLock = log_lock,
    .xUnlock = log_unlock,
    .xCheckReservedLock = log_reserved,
    .xFileControl = log_control,
    .xSectorSize = log_sector,
    .xDeviceCharacteristics = log_device,
};

/* --- The VFS ------------------------------------------------------------------------------------------------------ */

struct collecting_vfs {
    sqlite3_vfs base;
    sqlite3_vfs *real;
    char name[NAME_ROOM];
};

static sqlite3_vfs *below(sqlite3_vfs *vfs)
{
    return ((struct collecting_vfs *)vfs)->real;
}

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *ret_flags)
{
    if (!(flags & SQLITE_OPEN_WAL))
        return below(vfs)->xOpen(below(vfs), path, file, flags, ret_flags);
    struct log_file *log = (struct log_file *)file;
    *log = (struct log_file){.real = (sqlite3_file *)(log + 1)};
    int rc = below(vfs)->xOpen(below(vfs), path, log->real, flags, ret_flags);
    if (rc == SQLITE_OK)
        log->base.pMethods = &log_methods;
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    return below(vfs)->xDelete(below(vfs), path, sync);
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *ret)
{
    return below(vfs)->xAccess(below(vfs), path, flags, ret);
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int size, char *out)
{
    return below(vfs)->xFullPathname(below(vfs), path, size, out);
}

static int vfs_randomness(sqlite3_vfs *vfs, int size, char *out)
{
    return below(vfs)->xRandomness(below(vfs), size, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    return below(vfs)->xSleep(below(vfs), us);
}

static int vfs_time(sqlite3_vfs *vfs, double *ret)
{
    return below(vfs)->xCurrentTime(below(vfs), ret);
}

static int vfs_last_error(sqlite3_vfs *vfs, int size, char *out)
{
    return below(vfs)->xGetLastError(below(vfs), size, out);
}

static sqlite3_vfs *make(sqlite3_vfs *real, const char *name)
{
    struct collecting_vfs *made = sqlite3_malloc(sizeof *made); /* for as long as the process lives */
    if (!made)
        return NULL;
    *made = (struct collecting_vfs){.real = real};
    memcpy(made->name, name, NAME_ROOM);
    made->base = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = (int)sizeof(struct log_file) + real->szOsFile,
        .mxPathname = real->mxPathname,
        .zName = made->name,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = vfs_last_error,
    };
    if (sqlite3_vfs_register(&made->base, 0) == SQLITE_OK)
        return &made->base;
    sqlite3_free(made);
    return NULL;
}

const char *fl__sqlite_vfs(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char name[NAME_ROOM] = {0};
    sqlite3_vfs *real = sqlite3_vfs_find(fl__sqlite_tuning.vfs), *vfs;
    if (!real || snprintf(name, sizeof name, "foliot-%s", real->zName) >= (int)sizeof name)
        return fl__sqlite_tuning.vfs;
    pthread_mutex_lock(&lock);
    vfs = sqlite3_vfs_find(name);
    if (!vfs)
        vfs = make(real, name);
    pthread_mutex_unlock(&lock);
    return vfs ? vfs->zName : fl__sqlite_tuning.vfs;
}
