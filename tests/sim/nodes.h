/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_NODES_H
#define FOLIOT_TESTS_SIM_NODES_H

/* Whole nodes (src/node) in a simulated world: see nodes.c. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/queue.h>

#include "node/internal.h"
#include "sim/random.h"
#include "sim/road.h"

#define SECOND 1000000ll
#define START_US (1700000000 * SECOND)

enum { SPACES = 3, TIMERS_MOST = 400, ENTRIES_MOST = 1500, SHARDS_MOST = 16, WORKERS_MOST = 4 };
enum { PLANS_MOST = 5, PLAN_RULES = 6 };

/* A server process, from its start until its memory is freed. */
struct host {
    struct nodes *world;
    struct node node;
    char address[16];
    unsigned number;     /* never used twice */
    bool dead;           /* it has crashed: nothing that it does has any effect */
    bool leaving;        /* it stops, or is dead */
    bool over;           /* all its memory but its own is freed */
    unsigned step, left; /* of its stop: which one, and how many workers are in it */
    fl_wall_clock wall;
    int64_t offset_us;           /* of its clock */
    int64_t left_us;             /* of nodes_ran_us(): when it began to stop, or crashed; 0: it has not */
    uint64_t terms[SHARDS_MOST]; /* of the shards that it has claimed, the last */
    bool recorded[SHARDS_MOST];  /* that was the last answer of the store */
    struct road *road;
    LIST_HEAD(calls, hook) hooks;
    LIST_HEAD(links, node_link) links;
    LIST_HEAD(requests, request) requests; /* of other servers, that are not answered */
    LIST_ENTRY(host) entry;
};

enum fate { FATE_NEW, FATE_COUNTS, FATE_SAME, FATE_AGAIN, FATE_VAGUE };

/* A schedule, as its client knows it. Times are of the world's wall clock. */
struct plan {
    char name[16];
    unsigned space;
    bool hook;
    uint32_t shard, most;
    bool busy;    /* a request about it is under way */
    bool there;   /* its creation was acknowledged */
    bool refused; /* it was refused: it must not occur */
    bool vague;   /* the outcome of a change is not known */
    bool paused, was_paused;
    int64_t asked_us;   /* the last change that is no resume was asked for */
    int64_t since_us;   /* and was acknowledged: from then on, all that it promises comes */
    int64_t gone_us;    /* it was deleted; 0: it was not */
    int64_t touched_us; /* monotonic: the last change */
    int64_t put_us[2];  /* when it was last put: asked for, acknowledged */
    uint64_t count;     /* of occurrences since it was put; 0: no limit */
    enum schedule_missed missed;
    enum schedule_overlap overlap;
    const struct rule *writing;     /* a change may give it this one */
    struct rule *rules[PLAN_RULES]; /* that it may have had */
    unsigned rule_count;
};

/* A timer, as its client knows it. */
struct entry {
    const struct plan *plan; /* it is an occurrence; NULL: of no schedule */
    fl_key id;               /* of an occurrence */
    uint32_t tag;            /* its payload; from 1 */
    uint32_t name;           /* the tag of the first timer with its name */
    unsigned space;
    bool hook;    /* it has a target */
    bool busy;    /* an operation on it is under way */
    bool there;   /* its creation was acknowledged */
    bool refused; /* its creation was refused: it must not fire */
    bool gone;    /* its cancellation was acknowledged: it must not fire */
    bool unsure;  /* whether it is there is not known */
    bool finished, dead;
    bool done_once;     /* finished, though it may have been repeated since */
    bool doomed;        /* it was given up, and becomes a dead letter */
    bool wild;          /* the store has gone back to a state from before a change of it: nothing is promised */
    int64_t touched_us; /* monotonic: the last change */
    int64_t due_us;
    bool due_unsure;      /* a move was not answered */
    int64_t other_due_us; /* the earliest that it may have instead, since it was moved; 0: none */
    uint32_t shard, most; /* attempts */
    /* The last attempt. */
    bool live;
    uint64_t term, serial;
    int64_t began_us; /* monotonic */
    int64_t moved_us; /* monotonic: that it was moved was acknowledged */
    uint32_t attempt;
    uint32_t forgotten; /* the same, before it was to be done again */
    int64_t ends_us;    /* monotonic: the lease is exclusive until then */
    int64_t settled_us; /* of nodes_ran_us(): it was done then */
    enum fate fate;     /* how the number of the next attempt follows from the last */
    int64_t not_before_us;
    unsigned host;       /* which began it */
    bool acking;         /* an acknowledgement is under way */
    enum ack_result ack; /* its result, and its time */
    uint64_t after_us;
    int64_t acked_us;
};

enum { SETTINGS = 3, RATE_WINDOW_S = 5 };

struct space_state {
    struct setting_state {
        bool busy, unsure;
        uint64_t value;   /* if it is not unsure */
        int64_t known_us; /* monotonic: it was acknowledged */
    } settings[SETTINGS]; /* max_rate, spread, history */
    int64_t window_us;    /* monotonic: its webhooks are counted since then */
    uint64_t in_window;
    bool unsure; /* an operation is under way, or was never answered */
    unsigned paused_by;
    int64_t paused_us;  /* of nodes_ran_us(): since then, nothing begins; 0: it is not paused */
    int64_t touched_us; /* monotonic: the last change */
};

struct nodes {
    struct luck luck;
    fl_virtual_clock time;
    fl_loop *loop;
    fl_wall_clock wall;
    fl_store *store;
    FILE *trace;
    char failure[512];
    struct nature {
        bool faulty, slow, crashes, jumps, breaks, pauses, goes_back, edits;
        unsigned hosts; /* 1: each is alone, without links */
    } nature;
    bool calm;
    int64_t calm_us;                    /* of nodes_ran_us(): since when */
    unsigned actions, host_count, open; /* operations that are not answered */
    uint64_t terms[SHARDS_MOST], messages;
    uint64_t released[SHARDS_MOST]; /* the last term that ended in order: all that was settled in it is on record */
    int64_t claimed_us[SHARDS_MOST], stood_us;
    uint32_t shards;
    unsigned workers;
    fl_engine_config limits;
    uint64_t max_memory;
    /* The store was marked, and has gone back to the mark so often; shards that have not been claimed since. */
    int64_t marked_us;
    unsigned went_back;
    bool behind[SHARDS_MOST];
    LIST_HEAD(hosts, host) hosts;
    struct entry entries[ENTRIES_MOST];
    uint32_t entry_count;
    struct plan plans[PLANS_MOST];
    unsigned plan_count;
    int64_t plans_end_us; /* after that, no schedule occurs */
    bool over;            /* all that comes has come */
    struct space_state spaces[SPACES];
    int64_t skew_us, claim_us;
};

int64_t nodes_mono_us(struct nodes *w);
int64_t nodes_ran_us(struct nodes *w); /* for how long the servers have run */
int64_t nodes_wall_us(struct nodes *w);
void nodes_say(struct nodes *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void nodes_fail(struct nodes *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void nodes_at(struct nodes *w, uint64_t delay_us, fl_loop_fn fn, void *arg, fl_timer_id *ret);
struct host *nodes_some_host(struct nodes *w);             /* NULL: there is none */
struct host *nodes_host(struct nodes *w, unsigned number); /* NULL: it never was */
struct host *nodes_host_at(struct nodes *w, const char *address);
void *nodes_need(void *memory);

/* --- nodes_ports.c */
extern const struct node_ports nodes_ports;
void hooks_end(struct host *host, bool begun);
void links_break(struct host *host); /* all of its links, and all links to it */
void link_break_some(struct nodes *w);
uint64_t random_word(struct nodes *w);

/* --- nodes_ledger.c: what was promised */
extern const char *const space_names[SPACES];
struct entry *ledger_entry(struct nodes *w, const fl_durable *timer);
void ledger_begin(struct host *host, uint32_t shard, const fl_durable *timer, uint64_t serial, uint64_t lease_us);
void ledger_end(struct host *host, const fl_durable *timer, enum fl_settle result, int64_t at_us);
void ledger_check_pause(struct host *host, const struct entry *e); /* something begins there */
void ledger_dead(struct host *host, const fl_durable *timer);
void ledger_acknowledged(struct nodes *w, struct entry *e, uint64_t serial, bool known, bool must);
void ledger_unanswered(struct entry *e, uint64_t serial);
void ledger_rate(struct host *host, const fl_durable *timer); /* a webhook may begin now */
void ledger_settings(struct nodes *w);                        /* in a calm world */
void ledger_close(struct nodes *w);
void ledger_go_back(struct nodes *w);                   /* the store does */
void ledger_went_back(struct nodes *w, uint32_t shard); /* what this shard has done since the mark is forgotten */
void ledger_touch(struct nodes *w, struct entry *e);
uint32_t ledger_open(const struct nodes *w); /* how many must still come */
void ledger_count(struct nodes *w);

/* --- nodes_schedules.c */
struct entry *schedules_entry(struct nodes *w, const fl_durable *timer); /* of an occurrence */
void schedules_made(struct host *host, uint32_t shard, const fl_durable *timer);
void schedules_close(struct nodes *w);
void schedules_free(struct nodes *w);
void schedules_go_back(struct nodes *w);
void schedules_resume(struct nodes *w);
void clients_schedule(struct nodes *w);

/* --- nodes_nature.c */
void nature_choose_size(struct nodes *w, uint64_t seed);
void nature_choose(struct nodes *w, uint64_t seed);

/* --- nodes_timers.c */
struct worker *clients_worker(struct host *host); /* some one */
void clients_create(struct nodes *w, struct host *host);
void clients_cancel(struct nodes *w, struct host *host);
void clients_edit(struct nodes *w, struct host *host);

/* --- nodes_clients.c */
void clients_change_settings(struct nodes *w, unsigned space);
void clients_reset_settings(struct nodes *w);
void clients_act(struct nodes *w);
void clients_lease(struct nodes *w, unsigned space);
void clients_pause(struct nodes *w, unsigned space, bool begin);

/* A seed with this bit has a life with unusual settings. */
#define NODES_WIDE (UINT64_C(1) << 32)

/* A seed with this bit has clients that also move and replace timers, send batches and change settings. */
#define NODES_EDITS (UINT64_C(1) << 33)

/* Lives one life. Returns whether all promises were kept; else `failure` says which one was not. */
bool nodes_run(uint64_t seed, FILE *trace, char failure[512]);

#endif
