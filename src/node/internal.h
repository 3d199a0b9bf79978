/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_NODE_INTERNAL_H
#define FOLIOT_NODE_INTERNAL_H

/* What the files of this folder share. */

#include "node/node.h"

/* --- attempts_log.c */

/* Writes a line about an attempt that failed or a timer that became a dead letter, if there are not too many. */
void attempts_log(struct worker *worker, bool dead, uint32_t shard, const fl_durable *timer, fl_bytes reason);
void attempts_log_ignored(struct worker *worker, uint32_t shard, const fl_durable *timer, fl_bytes reason);
void attempts_log_stop(struct worker *worker);

/* --- calls.c */

/* One kind of call: a row of the table in call_kinds.c.
 *
 * A question is the shard's number, if it is `of_shard`, then the members `asks`, then what `encode` writes. An answer is the
 * members `answers`, then what `reply` writes. All but `place` and `run` may be NULL. */
struct call_row {
    enum link_kind link_kind;
    int no_room; /* the result if there is no memory for the answer */
    bool
        of_shard; /* answered, and rendered, on the shard's worker as long as the engine's answer is valid; else at home */
    struct worker *(*place)(const struct shard_call *call);         /* where it runs, on this server */
    void (*run)(struct shard_call *call);                           /* there; ends with call_return(), perhaps later */
    void (*cancel)(struct worker *worker, struct shard_call *call); /* there: it ends soon */
    const struct wire_record *asks, *answers;
    size_t asks_at, answers_at; /* in struct shard_call: what they are the members of */
    void (*encode)(struct out *out, const struct shard_call *call);
    size_t (*room)(struct wire wire);                                      /* bytes that decode() needs */
    int (*decode)(struct wire *wire, struct shard_call *call, void *room); /* 0, or why it is refused */
    void (*reply)(struct out *out, const struct shard_call *call);
    size_t (*reply_room)(const struct shard_call *call); /* bytes that take_reply() needs, until it is rendered */
    void (*take_reply)(struct wire *wire, struct shard_call *call, void *room);
    void (*release)(struct shard_call *call); /* of a call that was decoded */
};
extern const struct call_row call_rows[CALL_KINDS];

/* Sends a call to `peer`, or to its place here. `over` is called at home: then it may be sent again, or freed. */
void call_send(struct shard_call *call);
void call_return(struct shard_call *call); /* by `run`, where it has run */
/* If it is at another server, it is over at once, and `over` is not called. If it is here, `over` is called when it has come
 * back, and `cancelled` when the cancellation has: before both, it must not be freed. */
void call_cancel(struct shard_call *call);
bool calls_serve(struct worker *worker, struct link_request *request); /* false: it is of no kind of call */

/* --- shard_calls.c */

void shard_call_ops_done(fl_batch *batch);
void shard_call_answered(struct shard_call *call, bool stopped); /* the engine has; `stopped`: nothing has happened */

int lines_new(struct worker *worker);
void lines_free(struct worker *worker);
const char *line_check(const struct worker *worker, uint32_t shard); /* NULL, or what is wrong */

/* --- links.c */

void links_tell(struct worker *worker, enum link_kind kind, fl_bytes body); /* all of them; the answer says nothing */
void links_update(struct node *node); /* on the first worker: servers have come or gone */

/* --- servers.c */

void shard_left(struct shard *shard);
void servers_look(struct node *node);                           /* we have claimed something: all should know */
void servers_tell_settings(struct worker *worker, fl_bytes ns); /* they have changed; size 0: those of any */

/* --- shard_state.c */

void shard_enter(struct shard *shard, enum shard_state state); /* which may follow on the one it is in */
const char *shard_check(const struct shard *shard);            /* NULL, or what is wrong */
void node_lapsed(bool lapsed);                                 /* the first claim may have run out; none has any more */

/* --- shards.c */

static inline bool shard_is_here(const struct shard *shard)
{
    return shard->state >= SHARD_CLAIMING && shard->state <= SHARD_LAPSED;
}

static inline bool shard_is_leaving(const struct shard *shard)
{
    return shard->state >= SHARD_LOST;
}

int shard_start(struct shard *shard);
/* A call for the engine. True: it may be given to the engine now. If not, it has been returned, or will be when the shard has
 * left. */
bool shard_takes(struct shard_call *call);
void shard_call_left(struct shard *shard); /* the engine has answered one */
void shard_loaded(struct shard *shard);    /* its settings are known */
void shard_let_go(struct shard *shard);    /* it may fire, if all that must be known is */
/* Gives a shard up: attempts, leases and calls get some time to end, and the engine records its progress. Then calls
 * shard_left(). */
void shard_leave(struct shard *shard);
void shard_leave_on(struct shard *shard); /* something has ended that it may have waited for */

/* --- pacing.c */

/* When an attempt at a due timer may begin; `now_us`: at once. */
int64_t pace_begin_us(const struct worker *worker, struct space *space, const struct settings *settings,
                      const fl_firing *firing, int64_t now_us);
/* Hosts, given by a hash, and polled namespaces have lanes of their own (fl_engine_wait()). */
uint32_t lane_of_host(uint64_t hash);
uint32_t lane_of_space(const struct space *space);
uint32_t lane_of_pause(const struct space *space);
size_t pace_lease_bytes(const struct worker *worker); /* how large an answer with leases may be */

/* --- schedules.c */

void schedule_fire(struct shard *shard, const fl_firing *firing); /* a schedule is due */
void schedule_nudge(struct shard *shard,
                    const fl_durable *timer); /* this timer is settled or cancelled; perhaps a schedule waited for it */
void node_free_zones(struct node *node);

/* --- rezone.c */

void rezone_shard(struct shard *shard); /* moves what other time zone rules move, if they are other ones */

/* --- deliver.c */

void deliver(struct shard *shard, const fl_firing *firings, size_t count);
struct tried {
    int64_t began_us; /* 0: just now */
    uint64_t took_us;
    uint32_t status;
    bool last; /* the retry policy allows no further attempt */
    fl_bytes response;
};
void deliver_settle(struct shard *shard, const fl_firing *firing, const fl_settlement *settlement,
                    const struct tried *tried);
bool is_last_attempt(const struct node *node, const fl_durable *timer);

/* --- history.c */

/* Rows of history, if the namespace wants them. Each is called before the timer is settled. */
void history_settled(struct shard *shard, const struct space *space, const fl_firing *firing,
                     const fl_settlement *settlement, const struct tried *tried);
void history_skipped(struct shard *shard, const fl_durable *timer, uint64_t count, fl_bytes reason);
void history_cancelled(struct shard *shard, const struct space *space, const fl_durable *timer);

/* --- pause.c */

/* These return whether something has changed. A pause that is on stays since when it was. */
bool pauses_begin(struct pauses *pauses, int64_t now_us, int64_t until_us, fl_bytes reason);
bool pauses_end(struct pauses *pauses, int64_t now_us, bool skip);
uint64_t pauses_between(const struct pauses *pauses, int64_t from_us, int64_t until_us); /* how long, in all */
int64_t pauses_last_end(const struct pauses *pauses);                                    /* 0: there was none */

const char *pauses_check(const struct node *node, const struct space *space); /* NULL, or what is wrong */
bool space_is_paused(struct node *node, const struct space *space);
bool timer_is_paused(struct node *node, const fl_durable *timer);
uint64_t pause_of_timer(struct node *node, const fl_durable *timer, int64_t from_us, int64_t until_us);
/* Whether a due timer waits for the end of a pause, or is skipped because of one: then it has been dealt with. */
bool pause_takes(struct shard *shard, const fl_firing *firing, int64_t now_us);
bool pause_takes_schedule(struct shard *shard, fl_bytes ns, uint64_t token); /* `ns` is the user's */
void pause_tell_engine(struct shard *shard, const struct space *space);
void pause_watch(struct worker *worker, int64_t until_us); /* a pause ends then; 0: no time is known */
void pause_stop(struct worker *worker);

/* --- hosts.c */

int hosts_new(struct worker *worker);
void hosts_free(struct worker *worker);
const char *hosts_check(const struct worker *worker); /* NULL, or what is wrong */
/* An attempt that is given to the port: it waits, begins, and ends or comes back. */
void host_waits(struct worker *worker, struct attempt *attempt);
void host_begins(struct attempt *attempt);
void host_left(struct worker *worker, struct attempt *attempt, bool called);
void hosts_serve(struct worker *worker, struct link_request *request);

/* --- pull.c */

int pull_new(struct worker *worker);
const char *pull_check(const struct worker *worker); /* NULL, or what is wrong */
void pull_free(struct worker *worker);
void pull_add(struct shard *shard, const fl_firing *firings, size_t count);
void pull_purge(struct worker *worker, struct shard *shard); /* drops the items of this shard */
struct worker *pull_home(struct node *node, const struct space *space);
void pull_ask(struct shard_call *call);
void pull_unask(struct worker *worker, struct shard_call *call); /* sends it back, if it waits */
/* Settles what was leased, if it is in one of the namespaces; each acknowledgement says then whether there was such a
 * lease. */
void pull_settle(struct worker *worker, char *const *namespaces, struct ack *first);

/* --- spaces.c */

struct spaces {
    pthread_rwlock_t lock;
    pthread_mutex_t placing;   /* held while timers of a namespace that has a limit are counted */
    pthread_mutex_t gathering; /* held while the counts of other servers are written */
    struct hash_table by_name;
    struct space *first, *last; /* all, in the order in which they came */
    atomic_uint series;         /* namespaces with series of their own in /metrics */
    _Atomic uint64_t loads;     /* how often all settings have been read */
    uint64_t number;            /* of all that there have been in this process */
};

int spaces_new(struct node *node);
void spaces_free(struct node *node);
const char *spaces_check(const struct node *node);                        /* NULL, or what is wrong */
void space_counted(struct node *node, struct space *space, int64_t more); /* timers have come or gone */
/* How much there is in each, or in one: for another server, and what others said. */
/* How many timers of a namespace (NULL: of all) wait here for a lease, and how many of all are leased. */
void pull_count(const struct worker *worker, const struct space *space, int64_t *ret_waiting, int64_t *ret_leased);

/* --- stats.c */
int stats_new(struct worker *worker);
void stats_free(struct worker *worker);
const char *stats_check(const struct worker *worker); /* NULL, or what is wrong */
/* Something happened in a namespace; NULL: it is not known for want of memory. */
void stats_count(struct worker *worker, struct space *space, enum stats_kind kind);
void stats_late(struct worker *worker, struct space *space, uint64_t late_ns); /* a first attempt */
void stats_serve(struct worker *worker, struct link_request *request);
/* Asks all other servers; `done` gets an answer for each, empty where there was none. */
void servers_ask(struct worker *worker, enum link_kind kind, fl_bytes body,
                 void (*done)(void *arg, const struct out *answers, size_t count), void *arg);

void spaces_put_counts(struct node *node, fl_bytes ns, struct out *out);
void spaces_take_counts(struct node *node, fl_bytes ns, const struct out *answers, size_t count);

/* --- settings.c, settings_load.c, settings_value.c */

void settings_of_shard(struct shard *shard);                  /* reads those that it has, then calls shard_loaded() */
void settings_load_again(struct node *node);                  /* if they may have changed with a shard that was lost */
void settings_load_missed(struct node *node);                 /* all of them, as soon as possible; any thread */
void settings_reload(struct node *node, struct space *space); /* reads those of one, which may be NULL */
int loading_new(struct node *node);
void settings_take(struct worker *here, const fl_durable *timer); /* what the store has of one */
void settings_tell_engine(struct shard *shard);
bool settings_are_default(const struct settings *settings); /* but for pauses */
bool settings_are_same(const struct settings *a, const struct settings *b);
/* Sets these settings, and the pauses, as they are in `from`. Returns 0, or -1: no memory. */
int settings_copy(const struct settings *from, struct settings *to, unsigned which);

#endif
