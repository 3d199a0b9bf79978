/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_FOLDER_H
#define FOLIOT_STORE_SQLITE_FOLDER_H

/* The folder of a store: folder.c; lock.c. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct folder {
    char *path;   /* absolute, so that it means the same after a chdir() */
    int fd, lock; /* descriptors of the folder and of foliot.lock */
    int *files;   /* one descriptor per shard, which holds the lock on the shard's file */
    uint32_t file_count;
    uint32_t shards;
    bool counted; /* this opening is noted in all files */
};

/* Opens a folder, made first if it is not there, with `shards` shards (0: one per processor if it is new, at most 4). On
 * failure `message` has been written. `accept_loss`: a log or a shard that is known to lack changes is taken as it is. */
int fl__folder_open(const char *path, uint32_t shards, bool accept_loss, struct folder *ret, char *message,
                    size_t size);
void fl__folder_close(struct folder *folder);

/* The file of a shard; to be released. NULL if there is no memory. */
char *fl__folder_file(const struct folder *folder, uint32_t shard);

/* --- What folder.c and lock.c share -------------------------------------------------------------------------------- */

enum { FOLDER_NAME_ROOM = 48 };
const char *fl__folder_name_of(uint32_t shard, const char *suffix, char out[FOLDER_NAME_ROOM]);

/* Says what could not be done, by errno. Returns the code. */
int fl__folder_failed(char *message, size_t size, const char *path, const char *what);

/* Writes the name of this process, for the message of the next one. If that fails, the message has no name. */
void fl__folder_sign(int lock);
int fl__folder_take_lock(struct folder *folder, char *message, size_t size);
/* Locks the file of a shard until the folder is closed. A file system without such locks has foliot.lock alone. */
int fl__folder_lock_shard(struct folder *folder, uint32_t shard, char *message, size_t size);
int fl__folder_lock_shards(struct folder *folder, char *message, size_t size);

#endif
