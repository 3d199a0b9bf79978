/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite/place.h"
#include "test.h"

static char path[200], url[220];
static pid_t owner;

const char *new_folder(void)
{
    static unsigned count;
    const char *where = getenv("TMPDIR");
    if (path[0])
        remove_folder();
    else
        atexit(remove_folder);
    owner = getpid();
    snprintf(path, sizeof path, "%s/foliot-store-%ld-%u", where ? where : "/tmp", (long)owner, count++);
    snprintf(url, sizeof url, "sqlite:%s", path);
    return path;
}

const char *folder_url(void)
{
    return url;
}

const char *folder_file(const char *name)
{
    static char file[512];
    snprintf(file, sizeof file, "%s/%s", path, name);
    return file;
}

void remove_folder(void)
{
    DIR *folder = path[0] && owner == getpid() ? opendir(path) : NULL;
    if (!folder)
        return;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(folder_file(entry->d_name));
    closedir(folder);
    CHECK_EQ(rmdir(path), 0);
}
