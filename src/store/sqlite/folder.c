/* SPDX-License-Identifier: MIT */
/* The folder of a store.
 *
 *     foliot.lock     names the process that has the store open; locked (flock), so that two processes do not make a store
 *     shard-0000.db   and so on: one file per shard, with the number of shards and of the store in it; locked (see below)
 *     shard-0000.db-wal, -shm   SQLite's, while it is open or after a crash
 *
 * The locks that count are those on the shard files: a lock lives with its file, while foliot.lock may be removed. They are
 * locks of an open file description (F_OFD_SETLK) on a byte that no file reaches and that SQLite does not use. The
 * descriptors stay open until all SQLite connections are closed, because to close any descriptor of a file gives up the
 * locks that SQLite has on it.
 *
 * A new store is made from the last shard to the first, each file under another name that it loses when it is complete. So
 * if the first one is there, all must be; if it is not, the others have not been used yet and are made again.
 *
 * A shard that was replaced by an older copy lacks timers, and nothing in it is damaged. So each file says which opening of
 * the store it has seen. The number is written to all files when the store is opened, and a file notes it once more with the
 * first commit (`used`). An opening that was cut off while the number was being written has not been used in any file; the
 * next one goes on with the same number. Otherwise a file with a smaller number is older than the others. Copies that were
 * made while the store was in use (FL_STORE_BACKUP, VACUUM INTO) may have the same number, but they are not in the mode with
 * a log, as all files of a store that was opened are. If all files are such copies, this is a backup, and their moments may
 * differ.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/alloc.h"
#include "store/sqlite/base.h"
#include "store/sqlite/folder.h"

int fl__folder_failed(char *message, size_t size, const char *path, const char *what)
{
    int error = errno, code = fl__code_of_errno(error);
    snprintf(message, size, "%s cannot be %s: %s%s", path, what, strerror(error),
             code == FL_STORE_READ_ONLY ? "; check the permissions of the folder"
             : code == FL_STORE_FULL    ? "; free some space"
                                        : "");
    return code;
}

enum { SHARDS_MOST = 4 }; /* unless told otherwise */

const char *fl__folder_name_of(uint32_t shard, const char *suffix, char out[FOLDER_NAME_ROOM])
{
    snprintf(out, FOLDER_NAME_ROOM, "shard-%04" PRIu32 ".db%s", shard, suffix);
    return out;
}

/* The path of a file of a shard, for SQLite. */
static char *path_of(const struct folder *folder, uint32_t shard, const char *suffix)
{
    char name[FOLDER_NAME_ROOM];
    size_t size = strlen(folder->path) + 1 + strlen(fl__folder_name_of(shard, suffix, name)) + 1;
    char *path = fl__alloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder->path, name);
    return path;
}

char *fl__folder_file(const struct folder *folder, uint32_t shard)
{
    return path_of(folder, shard, "");
}

/* --- A new store -------------------------------------------------------------------------------------------------- */

static void remove_file(const struct folder *folder, uint32_t shard, const char *suffix)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char name[FOLDER_NAME_ROOM], with_ending[FOLDER_NAME_ROOM + 8];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(with_ending, sizeof with_ending, "%s%s", fl__folder_name_of(shard, suffix, name), endings[i]);
        unlinkat(folder->fd, with_ending, 0);
    }
}

/* A file that is complete gets its name. */
static int make_file(const struct folder *folder, const struct base_identity *identity, char *message, size_t size)
{
    static const char suffix[] = ".new";
    char from[FOLDER_NAME_ROOM], to[FOLDER_NAME_ROOM];
    struct base *base;
    remove_file(folder, identity->number, suffix);
    char *path = path_of(folder, identity->number, suffix);
    int r = path ? fl__base_open(path, identity, &base, message, size) : FL_NO_MEMORY;
    if (r == 0) {
        r = fl__base_complete(base, message, size);
        fl__base_close(base);
    }
    fl__folder_name_of(identity->number, suffix, from);
    if (r == 0 && renameat(folder->fd, from, folder->fd, fl__folder_name_of(identity->number, "", to)) < 0)
        r = fl__folder_failed(message, size, path, "renamed");
    if (r < 0)
        remove_file(folder, identity->number, suffix);
    fl__release(path);
    return r;
}

static int make_store(struct folder *folder, uint32_t shards, char *message, size_t size)
{
    struct base_identity identity = {.shards = shards};
    if (getrandom(&identity.store_id, sizeof identity.store_id, 0) != sizeof identity.store_id)
        return FL_SYSTEM;
    int r = 0;
    for (uint32_t i = shards; i > 0 && r == 0; i--) {
        identity.number = i - 1;
        r = make_file(folder, &identity, message, size);
    }
    folder->shards = shards;
    if (r == 0 && fsync(folder->fd) < 0)
        r = fl__folder_failed(message, size, folder->path, "synced");
    return r == 0 ? fl__folder_lock_shards(folder, message, size) : r;
}

/* --- A store that is there ---------------------------------------------------------------------------------------- */

static bool is_there(const struct folder *folder, uint32_t shard)
{
    char name[FOLDER_NAME_ROOM];
    return faccessat(folder->fd, fl__folder_name_of(shard, "", name), F_OK, 0) == 0;
}

/* What a file says of itself. */
struct facts {
    struct base_identity identity;
    uint64_t version, opened, used;
};

/* Opens a file, which is locked, to see whether it is what it should be. */
static int look_into(struct folder *folder, uint32_t shard, struct facts *ret, char *message, size_t size)
{
    struct base *base;
    char *path = fl__folder_file(folder, shard);
    int r = path ? fl__base_open(path, NULL, &base, message, size) : FL_NO_MEMORY;
    if (r == 0) {
        *ret = (struct facts){{base->store_id, base->shards, base->number}, base->version, base->opened, base->used};
        fl__base_close(base);
    }
    fl__release(path);
    return r;
}

static int wrong_file(const struct folder *folder, uint32_t shard, const char *what, char *message, size_t size)
{
    snprintf(message, size, "%s/shard-%04u.db %s; restore it from a backup", folder->path, shard, what);
    return FL_STORE_CORRUPT;
}

/* All of a file was in memory when it was looked into, filters of names included, and will be again; by another thread, for
 * which the C library has other memory. */
static void give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* --- Older copies ------------------------------------------------------------------------------------------------- */

static int refuse_older(const struct folder *folder, uint32_t shard, const char *what, char *message, size_t size)
{
    snprintf(message, size,
             "%.120s/shard-%04u.db %s, so timers may be missing; put the newest file back, restore all shards from one "
             "backup, or continue with this file: foliot doctor --accept FOLDER",
             folder->path, shard, what);
    return FL_STORE_CORRUPT;
}

enum { MODE_UNKNOWN, MODE_COPY, MODE_LOG };

/* What the head of a file says; a file that is not one of Foliot's says nothing. */
static int mode_of(int fd)
{
    static const char ours[] = "Foli"; /* the application ID (base.c) */
    char head[FILE_KIND_AT + 4];
    if (pread(fd, head, sizeof head, 0) != sizeof head || memcmp(head + FILE_KIND_AT, ours, 4) != 0)
        return MODE_UNKNOWN;
    return head[FILE_MODE_AT] == 1 ? MODE_COPY : MODE_LOG;
}

/* Locks all files. `*ret_copies`: all of them are copies. If only some are, `*ret_odd` is one of these. */
static int lock_all(struct folder *folder, bool *ret_copies, int64_t *ret_odd, char *message, size_t size)
{
    uint32_t copies = 0, others = 0;
    int64_t copy = -1;
    int r = 0;
    for (uint32_t i = 0; r == 0 && is_there(folder, i); i++) {
        uint32_t before = folder->file_count;
        r = fl__folder_lock_shard(folder, i, message, size);
        int mode = folder->file_count > before ? mode_of(folder->files[before]) : MODE_UNKNOWN;
        copies += mode == MODE_COPY;
        others += mode == MODE_LOG;
        if (mode == MODE_COPY && copy < 0)
            copy = i;
    }
    *ret_copies = copies > 0 && others == 0;
    *ret_odd = others > 0 ? copy : -1;
    return r;
}

/* Whether no file is older than the others. `*ret` is the number of this opening. */
static int check_openings(const struct folder *folder, const struct facts *all, bool any, uint64_t *ret, char *message,
                          size_t size)
{
    uint64_t last = 0;
    bool used = false;
    for (uint32_t i = 0; i < folder->shards; i++)
        last = all[i].opened > last ? all[i].opened : last;
    for (uint32_t i = 0; i < folder->shards; i++)
        used |= all[i].used == last;
    *ret = last + used;
    uint64_t least = used || last == 0 ? last : last - 1;
    for (uint32_t i = 0; i < folder->shards && !any; i++)
        if (all[i].opened < least)
            return refuse_older(folder, i, "is older than the others", message, size);
    return 0;
}

/* Notes this opening in all files. If a file cannot be written to, an older copy is not noticed next time. */
static void count_opening(struct folder *folder, const struct facts *all, uint64_t opened)
{
    int r = 0;
    for (uint32_t i = 0; i < folder->shards && r == 0; i++) {
        char *path = all[i].opened == opened ? NULL : fl__folder_file(folder, i);
        if (all[i].opened != opened)
            r = path ? fl__base_count(path, opened) : FL_NO_MEMORY;
        fl__release(path);
    }
    folder->counted = r == 0;
}

/* --- All files ---------------------------------------------------------------------------------------------------- */

static int accept_logs(const struct folder *folder, char *message, size_t size)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && is_there(folder, i); i++) {
        char *path = fl__folder_file(folder, i);
        r = path ? fl__base_accept_loss(path, message, size) : FL_NO_MEMORY;
        fl__release(path);
    }
    return r;
}

static int check_shards(const struct folder *folder, uint32_t shards, const struct facts *first, char *message,
                        size_t size)
{
    if (shards == 0 || shards == first->identity.shards)
        return 0;
    snprintf(message, size, "%s has %u shards, not %u; the number is fixed when a store is created", folder->path,
             first->identity.shards, shards);
    return FL_INVALID_ARGUMENT;
}

/* Looks into all files but the first, whose facts are there. */
static int look_into_others(struct folder *folder, struct facts *all, char *message, size_t size)
{
    const struct base_identity *first = &all[0].identity;
    int r = 0;
    for (uint32_t i = 0; i < first->shards && r == 0; i++) {
        const struct base_identity *own = &all[i].identity;
        if (!is_there(folder, i))
            return wrong_file(folder, i, "is missing", message, size);
        r = i > 0 ? look_into(folder, i, &all[i], message, size) : 0;
        if (r == 0 && (own->store_id != first->store_id || own->shards != first->shards || own->number != i))
            return wrong_file(folder, i, "belongs to another store or shard", message, size);
    }
    return r;
}

static int check_all(struct folder *folder, const struct facts *first, bool any, char *message, size_t size)
{
    uint64_t opened = 0;
    struct facts *all = fl__alloc_zeroed(first->identity.shards * sizeof *all);
    if (!all)
        return FL_NO_MEMORY;
    all[0] = *first;
    int r = look_into_others(folder, all, message, size);
    folder->shards = first->identity.shards;
    if (r == 0)
        r = check_openings(folder, all, any, &opened, message, size);
    if (r == 0)
        count_opening(folder, all, opened);
    fl__release(all);
    return r;
}

static int check_store(struct folder *folder, uint32_t shards, bool accept_loss, char *message, size_t size)
{
    struct facts first = {0};
    bool copies;
    int64_t odd;
    int r = lock_all(folder, &copies, &odd, message, size);
    if (r == 0 && odd >= 0 && !accept_loss)
        r = refuse_older(folder, (uint32_t)odd, "is a copy and the others are not", message, size);
    if (r == 0 && accept_loss)
        r = accept_logs(folder, message, size);
    if (r == 0)
        r = look_into(folder, 0, &first, message, size);
    if (r == 0)
        r = check_shards(folder, shards, &first, message, size);
    if (r == 0)
        r = check_all(folder, &first, copies || accept_loss, message, size);
    if (r == 0)
        give_back();
    return r;
}

/* The number of a shard whose file has that name. */
static bool is_shard(const char *name, uint32_t *ret)
{
    char expected[FOLDER_NAME_ROOM];
    if (strncmp(name, "shard-", 6) != 0)
        return false;
    *ret = (uint32_t)strtoul(name + 6, NULL, 10);
    return strcmp(name, fl__folder_name_of(*ret, "", expected)) == 0;
}

/* Takes a file away that has not been used. */
static int remove_unused(struct folder *folder, uint32_t shard, char *message, size_t size)
{
    struct facts facts = {0};
    int r = fl__folder_lock_shard(folder, shard, message, size);
    if (r == 0)
        r = look_into(folder, shard, &facts, message, size);
    if (r < 0)
        return r;
    if (facts.version > 0)
        return wrong_file(folder, 0, "is missing", message, size);
    remove_file(folder, shard, "");
    return 0;
}

/* Without a first file there must be no others that have been used. */
static int make_empty(struct folder *folder, char *message, size_t size)
{
    DIR *all = opendir(folder->path);
    if (!all)
        return fl__folder_failed(message, size, folder->path, "read");
    int r = 0;
    uint32_t shard;
    for (const struct dirent *entry; r == 0 && (entry = readdir(all));)
        if (is_shard(entry->d_name, &shard))
            r = remove_unused(folder, shard, message, size);
    closedir(all);
    return r;
}

/* --- The folder --------------------------------------------------------------------------------------------------- */

/* Makes a folder if it is not there, and syncs the one it is in. */
static int make_folder(const char *path, char *message, size_t size)
{
    if (path[0] == 0) {
        snprintf(message, size, "the folder is missing; give sqlite:FOLDER");
        return FL_INVALID_ARGUMENT;
    }
    if (mkdir(path, 0777) < 0)
        return errno == EEXIST ? 0 : fl__folder_failed(message, size, path, "created");
    size_t path_size = strlen(path) + 1;
    char *copy = fl__alloc(path_size);
    if (!copy)
        return FL_NO_MEMORY;
    int parent = open(dirname(memcpy(copy, path, path_size)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = parent < 0 || fsync(parent) < 0 ? fl__folder_failed(message, size, path, "synced") : 0;
    if (parent >= 0)
        close(parent);
    fl__release(copy);
    return r;
}

static int open_folder(struct folder *folder, char *message, size_t size)
{
    int r = make_folder(folder->path, message, size);
    if (r < 0)
        return r;
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd >= 0)
        return 0;
    if (errno != ENOTDIR)
        return fl__folder_failed(message, size, folder->path, "read");
    snprintf(message, size, "%s is not a folder", folder->path);
    return FL_INVALID_ARGUMENT;
}

/* A shard is a commit of its own: more of them than there are processors share no work, and each sync is for fewer. */
static uint32_t default_shards(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return SHARDS_MOST;
    int processors = CPU_COUNT(&set);
    return processors < SHARDS_MOST ? (uint32_t)processors : SHARDS_MOST;
}

static int open_store(struct folder *folder, uint32_t shards, bool accept_loss, char *message, size_t size)
{
    if (is_there(folder, 0))
        return check_store(folder, shards, accept_loss, message, size);
    int r = make_empty(folder, message, size);
    return r == 0 ? make_store(folder, shards ? shards : default_shards(), message, size) : r;
}

static void close_folder(struct folder *folder)
{
    for (uint32_t i = 0; i < folder->file_count; i++)
        close(folder->files[i]);
    fl__release(folder->files);
    if (folder->lock >= 0)
        close(folder->lock);
    if (folder->fd >= 0)
        close(folder->fd);
    fl__release(folder->path);
}

/* The path of the folder, which is there by now. */
static int make_absolute(struct folder *folder, char *message, size_t size)
{
    char *path = realpath(folder->path, NULL);
    if (!path)
        return errno == ENOMEM ? FL_NO_MEMORY : fl__folder_failed(message, size, folder->path, "read");
    size_t path_size = strlen(path) + 1;
    char *copy = fl__alloc(path_size);
    if (copy) {
        fl__release(folder->path);
        folder->path = memcpy(copy, path, path_size);
    }
    free(path);
    return copy ? 0 : FL_NO_MEMORY;
}

int fl__folder_open(const char *path, uint32_t shards, bool accept_loss, struct folder *ret, char *message, size_t size)
{
    size_t path_size = strlen(path) + 1;
    struct folder folder = {.path = fl__alloc(path_size), .fd = -1, .lock = -1};
    if (!folder.path)
        return FL_NO_MEMORY;
    memcpy(folder.path, path, path_size);
    int r = open_folder(&folder, message, size);
    if (r == 0)
        r = make_absolute(&folder, message, size);
    if (r == 0)
        r = fl__folder_take_lock(&folder, message, size);
    if (r == 0)
        r = open_store(&folder, shards, accept_loss, message, size);
    if (r < 0) {
        close_folder(&folder);
        return r;
    }
    fl__folder_sign(folder.lock);
    *ret = folder;
    return 0;
}

void fl__folder_close(struct folder *folder)
{
    if (ftruncate(folder->lock, 0) < 0) {
        /* The file still names the last process that had the store open, which is true. */
    }
    close_folder(folder);
}
