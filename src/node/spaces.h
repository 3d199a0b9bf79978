/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_SPACES_H
#define FOLIOT_SERVER_SPACES_H

/* What the files about namespaces share: spaces.c finds and counts, space_settings.c reads and writes settings as JSON,
 * space_changes.c keeps them in the store and in memory. */

#include <pthread.h>

#include "node/server.h"

enum { SPACE_BUCKETS = 4096 };

struct spaces {
    pthread_rwlock_t lock;
    pthread_mutex_t placing;   /* held while timers of a namespace that has a limit are counted */
    pthread_mutex_t gathering; /* held while the counts of other servers are written */
    struct space *buckets[SPACE_BUCKETS];
    atomic_uint series;     /* namespaces with series of their own in /metrics */
    _Atomic uint64_t loads; /* how often all settings have been read */
    struct kept {
        struct kept *next;
        struct settings *settings;
    } * kept;
};

/* Visits all namespaces, some at a time, so that a worker has time for other things in between. Namespaces that come or go
 * meanwhile may be visited or not. `visit` runs under the lock. The walk is the caller's, and its own again in `done`. */
struct space_walk {
    struct worker *worker;
    void (*visit)(struct space_walk *walk, struct space *space);
    void (*done)(struct space_walk *walk);
    size_t bucket;
    fl_loop_task task;
};
void space_walk_begin(struct space_walk *walk, struct worker *worker);

/* A namespace without timers and without settings does not exist, even if something is still known of it. */
bool space_exists(struct space *space);

struct space *space_if_any(struct server *server, fl_bytes ns); /* NULL: there is none */

/* --- space_settings.c */

extern const struct settings no_settings;

/* A bit for each setting. */
enum {
    SPACE_SECRETS = 1,
    SPACE_RETRY = 2,
    SPACE_SKIP_OLDER = 4,
    SPACE_MAX_RATE = 8,
    SPACE_SPREAD = 16,
    SPACE_ALL = 31,
};

/* Reads settings; a member that is missing has its default. `*ret_given` says which there were. */
int settings_read(struct json object, struct settings *ret, unsigned *ret_given, struct problem *problem);
/* Sets these settings as they are in `from`. Returns 0, or -1: no memory. */
int settings_copy(const struct settings *from, struct settings *to, unsigned which);
void settings_write(struct out *out, const struct settings *settings, bool with_secrets);
bool settings_are_default(const struct settings *settings);
void settings_free(struct settings *settings);

/* --- space_changes.c */

/* Removes the settings of the namespace of a call, then calls `done` with 0 or what went wrong. */
void spaces_remove_settings(struct call *call, void (*done)(struct call *call, int result));

#endif
