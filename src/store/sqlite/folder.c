/* SPDX-License-Identifier: MIT */
/* The folder of a store.
 *
 *     foliot.lock     locked (flock) by the process that has the store open; says which one that is
 *     shard-0000.db   and so on: a file a shard, with the number of shards and of the store in it
 *     shard-0000.db-wal, -shm   SQLite's, while it is open or after a crash
 *
 * A new store is made from the last shard to the first, each file under another name that it loses when it is complete. So
 * if the first one is there, all must be; if it is not, the others have not been used yet and are made again.
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
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/alloc.h"
#include "store/sqlite/base.h"
#include "store/sqlite/folder.h"

static int failed(char *message, size_t size, const char *path, const char *what)
{
    int error = errno, code = fl__code_of_errno(error);
    snprintf(message, size, "%s cannot be %s: %s%s", path, what, strerror(error),
             code == FL_STORE_READ_ONLY ? ": look at the permissions of the folder"
             : code == FL_STORE_FULL    ? ": make room"
                                        : "");
    return code;
}

enum { SHARDS_MOST = 4, NAME_ROOM = 48 }; /* unless told otherwise */

static const char *name_of(uint32_t shard, const char *suffix, char out[NAME_ROOM])
{
    snprintf(out, NAME_ROOM, "shard-%04" PRIu32 ".db%s", shard, suffix);
    return out;
}

/* The path of a file of a shard, for SQLite. */
static char *path_of(const struct folder *folder, uint32_t shard, const char *suffix)
{
    char name[NAME_ROOM];
    size_t size = strlen(folder->path) + 1 + strlen(name_of(shard, suffix, name)) + 1;
    char *path = fl__alloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder->path, name);
    return path;
}

char *fl__folder_file(const struct folder *folder, uint32_t shard)
{
    return path_of(folder, shard, "");
}

/* --- The lock ----------------------------------------------------------------------------------------------------- */

/* Says who we are, for those who come after us. That it cannot be written is no reason not to go on. */
static void sign(int lock)
{
    char text[256], host[128] = "?", since[32];
    time_t now = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    int length = snprintf(text, sizeof text, "process %ld on %s since %s\n", (long)getpid(), host, since);
    if (ftruncate(lock, 0) == 0 && pwrite(lock, text, (size_t)length, 0) != length)
        ftruncate(lock, 0);
}

static int locked(int lock, const char *path, char *message, size_t size)
{
    char holder[160];
    ssize_t length = pread(lock, holder, sizeof holder - 1, 0);
    holder[length > 0 ? length : 0] = 0;
    holder[strcspn(holder, "\n")] = 0;
    snprintf(message, size, "%s is in use by %s: end that, or give this one a folder of its own", path,
             holder[0] ? holder : "another process");
    return FL_STORE_LOCKED;
}

static int take_lock(struct folder *folder, char *message, size_t size)
{
    int lock = openat(folder->fd, "foliot.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0)
        return failed(message, size, folder->path, "written to");
    if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
        int r = errno == EWOULDBLOCK ? locked(lock, folder->path, message, size)
                                     : failed(message, size, folder->path, "locked");
        close(lock);
        return r;
    }
    sign(lock);
    folder->lock = lock;
    return 0;
}

/* --- A new store -------------------------------------------------------------------------------------------------- */

static void remove_file(const struct folder *folder, uint32_t shard, const char *suffix)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char name[NAME_ROOM], with_ending[NAME_ROOM + 8];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(with_ending, sizeof with_ending, "%s%s", name_of(shard, suffix, name), endings[i]);
        unlinkat(folder->fd, with_ending, 0);
    }
}

/* A file that is complete gets its name. */
static int make_file(const struct folder *folder, const struct base_identity *identity, char *message, size_t size)
{
    static const char suffix[] = ".new";
    char from[NAME_ROOM], to[NAME_ROOM];
    struct base *base;
    remove_file(folder, identity->number, suffix);
    char *path = path_of(folder, identity->number, suffix);
    int r = path ? fl__base_open(path, identity, &base, message, size) : FL_NO_MEMORY;
    if (r == 0) {
        r = fl__base_complete(base, message, size);
        fl__base_close(base);
    }
    name_of(identity->number, suffix, from);
    if (r == 0 && renameat(folder->fd, from, folder->fd, name_of(identity->number, "", to)) < 0)
        r = failed(message, size, path, "renamed");
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
        r = failed(message, size, folder->path, "synced");
    return r;
}

/* --- A store that is there ---------------------------------------------------------------------------------------- */

static bool is_there(const struct folder *folder, uint32_t shard)
{
    char name[NAME_ROOM];
    return faccessat(folder->fd, name_of(shard, "", name), F_OK, 0) == 0;
}

/* Opens a file to see whether it is what it should be; `*identity` is what it says of itself. */
static int look_into(const struct folder *folder, uint32_t shard, struct base_identity *identity, bool *ret_used,
                     char *message, size_t size)
{
    char *path = fl__folder_file(folder, shard);
    struct base *base;
    int r = path ? fl__base_open(path, NULL, &base, message, size) : FL_NO_MEMORY;
    if (r == 0) {
        *identity = (struct base_identity){base->store_id, base->shards, base->number};
        *ret_used = base->version > 0;
        fl__base_close(base);
    }
    fl__release(path);
    return r;
}

static int wrong_file(const struct folder *folder, uint32_t shard, const char *what, char *message, size_t size)
{
    snprintf(message, size, "%s/shard-%04u.db %s: restore it from a copy", folder->path, shard, what);
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

static int check_store(struct folder *folder, uint32_t shards, char *message, size_t size)
{
    struct base_identity first = {0}, other = {0};
    bool used;
    int r = look_into(folder, 0, &first, &used, message, size);
    if (r < 0)
        return r;
    if (shards > 0 && shards != first.shards) {
        snprintf(message, size, "%s has %u shards, not %u: that is fixed when a store is made", folder->path,
                 first.shards, shards);
        return FL_INVALID_ARGUMENT;
    }
    other = first;
    for (uint32_t i = 0; i < first.shards; i++) {
        if (!is_there(folder, i))
            return wrong_file(folder, i, "is missing", message, size);
        r = i > 0 ? look_into(folder, i, &other, &used, message, size) : 0;
        if (r < 0)
            return r;
        if (other.store_id != first.store_id || other.shards != first.shards || other.number != i)
            return wrong_file(folder, i, "belongs to another store or shard", message, size);
    }
    folder->shards = first.shards;
    give_back();
    return 0;
}

/* The number of a shard whose file has that name. */
static bool is_shard(const char *name, uint32_t *ret)
{
    char expected[NAME_ROOM];
    if (strncmp(name, "shard-", 6) != 0)
        return false;
    *ret = (uint32_t)strtoul(name + 6, NULL, 10);
    return strcmp(name, name_of(*ret, "", expected)) == 0;
}

/* Takes a file away that has not been used. */
static int remove_unused(const struct folder *folder, uint32_t shard, char *message, size_t size)
{
    struct base_identity identity;
    bool used = true;
    int r = look_into(folder, shard, &identity, &used, message, size);
    if (r < 0)
        return r;
    if (used)
        return wrong_file(folder, 0, "is missing", message, size);
    remove_file(folder, shard, "");
    return 0;
}

/* Without a first file there must be no others that have been used. */
static int make_empty(const struct folder *folder, char *message, size_t size)
{
    DIR *all = opendir(folder->path);
    if (!all)
        return failed(message, size, folder->path, "read");
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
        snprintf(message, size, "no folder is given: say sqlite:FOLDER");
        return FL_INVALID_ARGUMENT;
    }
    if (mkdir(path, 0777) < 0)
        return errno == EEXIST ? 0 : failed(message, size, path, "made");
    size_t path_size = strlen(path) + 1;
    char *copy = fl__alloc(path_size);
    if (!copy)
        return FL_NO_MEMORY;
    int parent = open(dirname(memcpy(copy, path, path_size)), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = parent < 0 || fsync(parent) < 0 ? failed(message, size, path, "synced") : 0;
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
        return failed(message, size, folder->path, "read");
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

static int open_store(struct folder *folder, uint32_t shards, char *message, size_t size)
{
    if (is_there(folder, 0))
        return check_store(folder, shards, message, size);
    int r = make_empty(folder, message, size);
    return r == 0 ? make_store(folder, shards ? shards : default_shards(), message, size) : r;
}

static void close_folder(struct folder *folder)
{
    if (folder->lock >= 0)
        close(folder->lock);
    if (folder->fd >= 0)
        close(folder->fd);
    fl__release(folder->path);
}

int fl__folder_open(const char *path, uint32_t shards, struct folder *ret, char *message, size_t size)
{
    size_t path_size = strlen(path) + 1;
    struct folder folder = {.path = fl__alloc(path_size), .fd = -1, .lock = -1};
    if (!folder.path)
        return FL_NO_MEMORY;
    memcpy(folder.path, path, path_size);
    int r = open_folder(&folder, message, size);
    if (r == 0)
        r = take_lock(&folder, message, size);
    if (r == 0)
        r = open_store(&folder, shards, message, size);
    if (r < 0)
        close_folder(&folder);
    else
        *ret = folder;
    return r;
}

void fl__folder_close(struct folder *folder)
{
    if (ftruncate(folder->lock, 0) < 0) {
        /* It says who had it open, and that is not wrong. */
    }
    close_folder(folder);
}
