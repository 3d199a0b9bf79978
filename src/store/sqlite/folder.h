/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_FOLDER_H
#define FOLIOT_STORE_SQLITE_FOLDER_H

/* The folder of a store: folder.c. */

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

#endif
