/* SPDX-License-Identifier: MIT */
/* Locks of a store: foliot.lock, and those on the shards' files (folder.c says why there are both). */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "store/sqlite/base.h"
#include "store/sqlite/folder.h"

void fl__folder_sign(int lock)
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
    snprintf(message, size, "%s is in use by %s; stop that process, or use another folder", path,
             holder[0] ? holder : "another process");
    return FL_STORE_LOCKED;
}

int fl__folder_take_lock(struct folder *folder, char *message, size_t size)
{
    folder->lock = openat(folder->fd, "foliot.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (folder->lock < 0)
        return fl__folder_failed(message, size, folder->path, "written to");
    if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return errno == EWOULDBLOCK ? locked(folder->lock, folder->path, message, size)
                                : fl__folder_failed(message, size, folder->path, "locked");
}

static int add_file(struct folder *folder, int fd)
{
    int *files = fl__resize(folder->files, (folder->file_count + 1) * sizeof *files);
    if (!files)
        return FL_NO_MEMORY;
    folder->files = files;
    folder->files[folder->file_count++] = fd;
    return 0;
}

int fl__folder_lock_shard(struct folder *folder, uint32_t shard, char *message, size_t size)
{
    char name[FOLDER_NAME_ROOM];
    int fd = openat(folder->fd, fl__folder_name_of(shard, "", name), O_RDWR | O_CLOEXEC);
    if (fd < 0) /* SQLite says what is wrong with it */
        return 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1, .l_len = 1};
    int r = fcntl(fd, F_OFD_SETLK, &lock) < 0 && (errno == EAGAIN || errno == EACCES)
                ? locked(folder->lock, folder->path, message, size)
                : add_file(folder, fd);
    if (r < 0)
        close(fd);
    return r;
}

int fl__folder_lock_shards(struct folder *folder, char *message, size_t size)
{
    int r = 0;
    for (uint32_t i = 0; i < folder->shards && r == 0; i++)
        r = fl__folder_lock_shard(folder, i, message, size);
    return r;
}
