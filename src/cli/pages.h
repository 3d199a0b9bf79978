/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_PAGES_H
#define FOLIOT_CLI_PAGES_H

/* Lists of timers, whose pages are followed to their end. */

#include "cli/client.h"

struct filter {
    const char *prefix, *name_contains, *target_prefix, *schedule, *reason_contains, *due_after, *due_before;
};

/* Of timers and of dead letters. */
#define SEARCH_OPTIONS(filter)                                                                          \
    {"prefix", "TEXT", "those whose names begin so", .text = &(filter).prefix},                         \
        {"name-contains", "TEXT", "those whose names contain TEXT", .text = &(filter).name_contains},   \
        {"target-prefix", "TEXT", "those whose target URLs begin so", .text = &(filter).target_prefix}, \
    {                                                                                                   \
        "schedule", "NAME", "those that this schedule created", .text = &(filter).schedule              \
    }

#define FILTER_OPTIONS(filter)                                                                              \
    SEARCH_OPTIONS(filter),                                                                                 \
        {"due-after", "TIME", "those due then or later", .text = &(filter).due_after, .format = &cli_time}, \
    {                                                                                                       \
        "due-before", "TIME", "those due earlier", .text = &(filter).due_before, .format = &cli_time        \
    }

#define DEAD_FILTER_OPTIONS(filter)                                                                      \
    SEARCH_OPTIONS(filter),                                                                              \
    {                                                                                                    \
        "reason-contains", "TEXT", "those whose reasons contain TEXT", .text = &(filter).reason_contains \
    }

bool filter_is_given(const struct filter *filter);
void put_filter(struct out *path, const struct filter *filter);

/* Calls `timer` for each one, and `page` (may be NULL) behind each page. `path` is that of the first page; at most `limit`
 * are asked for, 0: all. Either may return another status than CLI_OK: then it ends. */
struct pages {
    const struct out *path;
    const char *member; /* which has the list; NULL: "timers" */
    uint64_t limit;
    int (*timer)(void *arg, struct json timer);
    int (*page)(void *arg);
    void *arg;
};
int pages_follow(struct client *client, const struct pages *pages);

#endif
