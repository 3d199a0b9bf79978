/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_STORE_SQLITE_FOLDER_H
#define FOLIOT_STORE_SQLITE_FOLDER_H

/* The folder of a store: folder.c. */

#include <stddef.h>
#include <stdint.h>

struct folder {
    char *path;
    int fd, lock; /* descriptors of the folder and of the file that is locked */
    uint32_t shards;
};

/* Opens a folder, made first if it is not there, with `shards` shards (0: one a processor if it is new, at most 4). On failure `message` has been
 * written. */
int fl__folder_open(const char *path, uint32_t shards, struct folder *ret, char *message, size_t size);
void fl__folder_close(struct folder *folder);

/* The file of a shard; to be released. NULL if there is no memory. */
char *fl__folder_file(const struct folder *folder, uint32_t shard);

#endif
