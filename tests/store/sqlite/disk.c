/* SPDX-License-Identifier: MIT */
/* The failing disk of disk.h.
 *
 * For every file there is an image of what has been synced and a list of what was written since. The real file has
 * everything, so that reading is left to the real VFS. Locks and the shared index of the log are the real ones too: they do
 * not survive a crash. */

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite/base.h"
#include "store/sqlite/disk.h"
#include "test.h"
#include "wheel/wheel_test.h"

enum { SECTOR = 512 };

/* Something that was written; data NULL: cut off at `offset`. */
struct writing {
    struct writing *next;
    sqlite3_int64 offset;
    size_t size;
    unsigned char *data;
};

/* What a file would be. */
struct image {
    struct image *next;
    char path[300];
    bool deleted;
    unsigned char *data;
    size_t size;
    struct writing *first, **end;
};

struct disk_file {
    sqlite3_file base;
    struct image *image; /* NULL: not of interest */
    sqlite3_file *real;  /* behind this */
};

static sqlite3_vfs *real_vfs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct image *images;
static enum disk_fault fault;
static uint64_t countdown, every;
static bool failed, off;

/* --- Images ------------------------------------------------------------------------------------------------------- */

static void write_image(struct image *image, size_t offset, const unsigned char *data, size_t size)
{
    if (offset + size > image->size) {
        image->data = realloc(image->data, offset + size);
        memset(image->data + image->size, 0, offset + size - image->size);
        image->size = offset + size;
    }
    memcpy(image->data + offset, data, size);
}

static void apply(struct image *image, const struct writing *writing)
{
    if (writing->data)
        write_image(image, (size_t)writing->offset, writing->data, writing->size);
    else if ((size_t)writing->offset < image->size)
        image->size = (size_t)writing->offset;
}

/* Some sectors of it, or some of the length of what is cut off. */
static void apply_partly(struct image *image, const struct writing *writing, uint64_t *seed)
{
    if (!writing->data) {
        if (random_next(seed) % 2)
            apply(image, writing);
        return;
    }
    for (size_t at = 0; at < writing->size; at += SECTOR)
        if (random_next(seed) % 2)
            write_image(image, (size_t)writing->offset + at, writing->data + at,
                        writing->size - at < SECTOR ? writing->size - at : SECTOR);
}

static void forget(struct image *image)
{
    while (image->first) {
        struct writing *next = image->first->next;
        free(image->first->data);
        free(image->first);
        image->first = next;
    }
    image->end = &image->first;
}

static void note(struct image *image, sqlite3_int64 offset, const void *data, size_t size)
{
    struct writing *writing = calloc(1, sizeof *writing);
    *writing = (struct writing){.offset = offset, .size = size};
    if (data)
        writing->data = memcpy(malloc(size + 1), data, size);
    *image->end = writing;
    image->end = &writing->next;
}

static void read_file(struct image *image)
{
    FILE *file = fopen(image->path, "rb");
    unsigned char bytes[4096];
    for (size_t n; file && (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        write_image(image, image->size, bytes, n);
    if (file)
        fclose(file);
}

static struct image *image_of(const char *path)
{
    struct image *image = images;
    while (image && strcmp(image->path, path) != 0)
        image = image->next;
    if (!image) {
        image = calloc(1, sizeof *image);
        snprintf(image->path, sizeof image->path, "%s", path);
        image->end = &image->first;
        read_file(image);
        image->next = images;
        images = image;
    }
    image->deleted = false;
    return image;
}

/* --- Faults ------------------------------------------------------------------------------------------------------- */

/* Whether an operation fails that such a fault is about. */
static bool fails(enum disk_fault kind)
{
    if (off)
        return true;
    if (fault != kind || countdown == 0 || --countdown > 0)
        return false;
    countdown = every;
    failed = true;
    off = kind == DISK_POWER;
    return true;
}

void disk_fail(enum disk_fault kind, uint64_t n, unsigned and_every)
{
    pthread_mutex_lock(&lock);
    fault = kind;
    countdown = n;
    every = and_every;
    failed = false;
    pthread_mutex_unlock(&lock);
}

void disk_heal(void)
{
    disk_fail(DISK_NONE, 0, 0);
}

bool disk_failed(void)
{
    pthread_mutex_lock(&lock);
    bool has = failed;
    pthread_mutex_unlock(&lock);
    return has;
}

static void write_file(const struct image *image)
{
    FILE *file = fopen(image->path, "wb");
    CHECK(file && (image->size == 0 || fwrite(image->data, 1, image->size, file) == image->size));
    CHECK_EQ(fclose(file), 0);
}

void disk_power_on(enum disk_loss loss, uint64_t seed)
{
    while (images) {
        struct image *image = images, *next = image->next;
        for (struct writing *writing = image->first; writing && loss != DISK_LOST; writing = writing->next)
            if (loss == DISK_KEPT)
                apply(image, writing);
            else
                apply_partly(image, writing, &seed);
        if (off && !image->deleted && access(image->path, F_OK) == 0) /* it may have got another name */
            write_file(image);
        forget(image);
        free(image->data);
        free(image);
        images = next;
    }
    off = false;
    disk_heal();
}

/* --- Files -------------------------------------------------------------------------------------------------------- */

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct disk_file *)file)->real;
}

static int file_close(sqlite3_file *file)
{
    return real_of(file)->pMethods->xClose(real_of(file));
}

static int file_read(sqlite3_file *file, void *data, int size, sqlite3_int64 offset)
{
    pthread_mutex_lock(&lock);
    bool bad = fails(DISK_READ);
    pthread_mutex_unlock(&lock);
    return bad ? SQLITE_IOERR_READ : real_of(file)->pMethods->xRead(real_of(file), data, size, offset);
}

static int file_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 offset)
{
    struct image *image = ((struct disk_file *)file)->image;
    pthread_mutex_lock(&lock);
    int rc = image && fails(DISK_FULL) ? SQLITE_FULL : image && fails(DISK_WRITE) ? SQLITE_IOERR_WRITE : SQLITE_OK;
    if (rc == SQLITE_OK) {
        if (image)
            note(image, offset, data, (size_t)size);
        rc = real_of(file)->pMethods->xWrite(real_of(file), data, size, offset);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct image *image = ((struct disk_file *)file)->image;
    pthread_mutex_lock(&lock);
    int rc = off ? SQLITE_IOERR_TRUNCATE : real_of(file)->pMethods->xTruncate(real_of(file), size);
    if (rc == SQLITE_OK && image)
        note(image, size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int file_sync(sqlite3_file *file, int flags)
{
    (void)flags;
    struct image *image = ((struct disk_file *)file)->image;
    pthread_mutex_lock(&lock);
    bool bad = fails(DISK_POWER) || fails(DISK_SYNC);
    if (!bad && image) {
        for (struct writing *writing = image->first; writing; writing = writing->next)
            apply(image, writing);
        forget(image);
    }
    pthread_mutex_unlock(&lock);
    return bad ? SQLITE_IOERR_FSYNC : SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int file_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int file_reserved(sqlite3_file *file, int *ret)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret);
}

static int file_control(sqlite3_file *file, int op, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}

static int file_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_characteristics(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int file_map(sqlite3_file *file, int page, int size, int extend, void volatile **ret)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, ret);
}

static int file_shared_lock(sqlite3_file *file, int offset, int n, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), offset, n, flags);
}

static void file_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int file_unmap(sqlite3_file *file, int delete)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), delete);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_characteristics,
    .xShmMap = file_map,
    .xShmLock = file_shared_lock,
    .xShmBarrier = file_barrier,
    .xShmUnmap = file_unmap,
};

/* --- The disk ----------------------------------------------------------------------------------------------------- */

static int disk_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *ret_flags)
{
    (void)vfs;
    struct disk_file *opened = (struct disk_file *)file;
    opened->base.pMethods = NULL;
    opened->real = (sqlite3_file *)(opened + 1);
    pthread_mutex_lock(&lock);
    int rc = SQLITE_CANTOPEN;
    if (!off) {
        bool kept = path && flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL);
        opened->image = kept ? image_of(path) : NULL;
        rc = real_vfs->xOpen(real_vfs, path, opened->real, flags, ret_flags);
    }
    pthread_mutex_unlock(&lock);
    if (rc == SQLITE_OK)
        opened->base.pMethods = &methods;
    return rc;
}

static int disk_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    (void)vfs;
    pthread_mutex_lock(&lock);
    int rc = off ? SQLITE_IOERR_DELETE : real_vfs->xDelete(real_vfs, path, sync);
    if (rc == SQLITE_OK)
        for (struct image *image = images; image; image = image->next)
            if (strcmp(image->path, path) == 0) {
                forget(image);
                image->size = 0;
                image->deleted = true;
            }
    pthread_mutex_unlock(&lock);
    return rc;
}

static sqlite3_vfs disk;

void disk_install(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    disk = *real_vfs;
    disk.zName = "failing-disk";
    disk.szOsFile = (int)sizeof(struct disk_file) + real_vfs->szOsFile;
    disk.xOpen = disk_open;
    disk.xDelete = disk_delete;
    CHECK_EQ(sqlite3_vfs_register(&disk, 0), SQLITE_OK);
    fl__sqlite_tuning.vfs = disk.zName;
}

void disk_remove(void)
{
    fl__sqlite_tuning.vfs = NULL;
    sqlite3_vfs_unregister(&disk);
}
