/* SPDX-License-Identifier: MIT */
/* The memory budget of the process (max-memory), and how it is divided.
 *
 * One half is for timers in memory, in equal parts for each shard of the store, because after a failover this server may own
 * all of them. The other half is for large requests and responses, in equal parts for each worker. Parts are fixed, so
 * that no thread has to ask another one. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "node/internal.h"

enum { SHARD_LEAST = 64 << 10, WORKER_LEAST = 8 << 20 };
#define DEFAULT_MOST ((uint64_t)1 << 30)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The number in a file, UINT64_MAX if it has none ("max"), or is not there. */
static uint64_t number_in(const char *path)
{
    char text[32] = "", *end = text;
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    unsigned long long number = fgets(text, sizeof text, file) ? strtoull(text, &end, 10) : 0;
    fclose(file);
    return end > text ? number : UINT64_MAX;
}

/* The least limit of a control group and of those above it. */
static uint64_t limit_of(const char *root, char *group, const char *name)
{
    char path[700];
    uint64_t limit = UINT64_MAX;
    for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
        *end = '\0';
        snprintf(path, sizeof path, "%s%s/%s", root, group, name);
        limit = least(limit, number_in(path));
    }
    return limit;
}

/* Of the groups of the process: version 2, or the controller "memory" of version 1. */
static uint64_t group_limit(void)
{
    char line[600];
    uint64_t limit = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *memory = strstr(line, ":memory:/");
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            limit = least(limit, limit_of("/sys/fs/cgroup", line + 3, "memory.max"));
        else if (memory)
            limit = least(limit, limit_of("/sys/fs/cgroup/memory", memory + 8, "memory.limit_in_bytes"));
    }
    if (file)
        fclose(file);
    return limit;
}

static uint64_t process_limit(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
}

uint64_t budget_default(void)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t process = least(process_limit(RLIMIT_AS), process_limit(RLIMIT_DATA));
    return least(least(least(machine, group_limit()), process) / 4, DEFAULT_MOST);
}

uint64_t budget_of_shard(uint64_t max_memory, uint32_t shards)
{
    fl__assert(shards > 0);
    return most(max_memory / 2 / shards, SHARD_LEAST);
}

uint64_t budget_of_worker(uint64_t max_memory, unsigned workers)
{
    fl__assert(workers > 0);
    return most(max_memory / 2 / workers, WORKER_LEAST);
}
