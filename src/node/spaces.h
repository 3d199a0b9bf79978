/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_SPACES_H
#define FOLIOT_NODE_SPACES_H

/* Namespaces: how much is in them, their settings, their pauses. See node.h. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>
#include <foliot/loop.h>

#include "base/hash.h"
#include "node/ports.h"
#include "text/out.h"

/* --- spaces.c ----------------------------------------------------------------------------------------------------- */

enum { PAUSE_REASON_MOST = 255, PAUSES_KEPT = 8 };

/* The pauses of a namespace or a host. These have no padding, so that they can be compared. */
struct pauses {
    struct pause {
        int64_t since_us; /* 0: not paused */
        int64_t until_us; /* when it ends; 0: when a request ends it */
        uint64_t reason_size;
        char reason[PAUSE_REASON_MOST + 1];
    } now;
    uint64_t past_count;
    struct past_pause {
        int64_t since_us, until_us;
        uint64_t skip;   /* what fell due meanwhile does not fire */
    } past[PAUSES_KEPT]; /* the oldest first */
};

static inline bool pauses_are_on(const struct pauses *pauses, int64_t now_us)
{
    return pauses->now.since_us > 0 && (pauses->now.until_us == 0 || now_us < pauses->now.until_us);
}

enum history_only { HISTORY_ONLY_NONE, HISTORY_ONLY_FAILURES, HISTORY_ONLY_ALL };

struct history_rule {
    uint64_t keep_us;
    uint32_t body; /* bytes of a response */
    uint32_t only; /* enum history_only */
};

struct settings {
    fl_bytes secrets[2]; /* decoded */
    unsigned secret_count;
    fl_retry retry;         /* zero: the server's */
    uint64_t skip_older_us; /* UINT64_MAX: the server's */
    uint32_t max_rate;      /* webhooks that begin per second; 0: no limit */
    uint64_t spread_us;
    struct history_rule history;
    struct pauses pauses; /* not changed with the others: see settings_pause() */
};
extern const struct settings no_settings;

struct space {
    char *name;
    size_t size;
    struct hash_link by_name;
    _Atomic(const struct settings *) settings; /* never NULL; good until the callback returns that has loaded it */
    _Atomic int64_t pending;                   /* in the shards of this server */
    _Atomic int64_t elsewhere;                 /* in those of others, when they were last asked */
    _Atomic(struct space *) schedules;         /* where its schedules are kept; NULL: it has never had one */
    _Atomic int64_t coming;                    /* being created, if there is a limit, and not counted yet */
    int64_t counted;                           /* the same, and counted: under the lock `placing` */
    atomic_llong fired, failed, dead;
    /* The pace of attempts: when the next may begin, and until when those put off have their places. */
    _Atomic int64_t next_us, booked_us;
    /* The crowd that is falling due. */
    _Atomic int64_t crowd_due_us;
    atomic_uint crowd_size;
    /* Changes of its settings that wait for their turn, at its home. */
    struct change *changes, *changes_last;
    bool changed; /* there has been a change, or a look at the stored settings; under the lock of all namespaces */
    bool found;   /* one of them has found what is stored; the same */
    _Atomic uint64_t load;      /* the last load of all settings that has found settings for it */
    atomic_bool series;         /* it has series of its own in /metrics */
    struct queue *queue;        /* of timers that wait for a lease; its home's. NULL: there were none */
    struct space *next;         /* that came after it */
    struct stats_ring *rings[]; /* by worker; each is that worker's. NULL: nothing has happened there */
};

struct space *space_of(struct node *node, fl_bytes ns);     /* makes it; NULL: no memory */
struct space *space_if_any(struct node *node, fl_bytes ns); /* NULL: the namespace does not exist */
/* How many schedules it has. */
int64_t space_schedules(const struct space *space);
/* A namespace without timers, schedules and settings does not exist, even if something is still known of it. */
bool space_exists(struct space *space);
atomic_uint *spaces_series(struct node *node); /* how many namespaces have series of their own in /metrics */

static inline fl_bytes space_name(const struct space *space)
{
    return (fl_bytes){space->name, space->size};
}

static inline int64_t space_pending(struct space *space)
{
    int64_t pending = atomic_load_explicit(&space->pending, memory_order_relaxed) +
                      atomic_load_explicit(&space->elsewhere, memory_order_relaxed);
    return pending > 0 ? pending : 0;
}

/* Takes a place among the timers that the namespace may have: `*ret_place` stays NULL if there is no limit. It goes with the
 * operation (struct shard_call), or back with place_give(). False: the namespace is full. */
bool place_take(const struct node *node, struct space *space, struct space **ret_place);
void place_give(const struct node *node, struct space **place);

/* Visits all namespaces, some at a time, so that a worker has time for other things in between. Namespaces that come or go
 * meanwhile may be visited or not. `visit` runs under the lock. The walk is the caller's, and its own again in `done`. */
struct space_walk {
    struct worker *worker;
    void (*visit)(struct space_walk *walk, struct space *space);
    void (*done)(struct space_walk *walk);
    bool schedules;          /* those in which schedules are kept, instead of all others */
    struct space *at, *last; /* the next to visit, and the last */
    fl_loop_task task;
};
void space_walk_begin(struct space_walk *walk, struct worker *worker);

/* --- settings.c --------------------------------------------------------------------------------------------------- */

/* A bit for each setting. */
enum {
    SETTING_SECRETS = 1,
    SETTING_RETRY = 2,
    SETTING_SKIP_OLDER = 4,
    SETTING_MAX_RATE = 8,
    SETTING_SPREAD = 16,
    SETTING_HISTORY = 32,
    SETTING_ALL = 63,
};

void settings_free(struct settings *settings);

/* Changes the settings of a namespace: to `settings`, which are the change's from then on, also if it fails, with those of
 * `keep` as they are stored; NULL removes them. `done` is called on this worker with 0 or what went wrong. */
void settings_change(struct worker *worker, fl_bytes ns, struct settings *settings, unsigned keep,
                     void (*done)(void *arg, int result), void *arg);

/* A pause that is to begin or to end. */
struct pause_request {
    enum { PAUSE_NONE, PAUSE_BEGIN, PAUSE_END } kind;
    bool skip;        /* PAUSE_END: what fell due meanwhile does not fire */
    int64_t until_us; /* PAUSE_BEGIN; 0: until it is told to end */
    size_t reason_size;
    char reason[PAUSE_REASON_MOST];
};
void settings_pause(struct worker *worker, fl_bytes ns, const struct pause_request *request,
                    void (*done)(void *arg, int result), void *arg);
void settings_load(struct worker *worker,
                   void (*done)(struct worker *worker)); /* reads all settings; `done` may be NULL */

/* --- pause.c ------------------------------------------------------------------------------------------------------ */

int64_t pause_clock_changed(struct worker *worker); /* ends pauses by the test clock; returns when the next does */

#endif
