/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_WORLD_H
#define FOLIOT_TESTS_SIM_WORLD_H

/* What a simulated life is made of: see sim.h. */

#include "sim/ledger.h"
#include "sim/random.h"
#include "sim/road.h"
#include "sim/sim.h"

#define SECOND 1000000ll
#define START_US (1700000000 * SECOND)

enum { ENGINES = 2, ACTORS = 96, NAMES = 24, ASKS_MOST = 24, PAYLOAD_MOST = 2000 };

/* An engine that lives. */
struct actor {
    fl_engine *engine;
    unsigned number; /* never used twice; 0: nobody */
    bool stopping, crashed, lost, ready;
    bool usurped;          /* of a fleet: another process of its server's address has claimed what it had */
    struct server *server; /* of a fleet: where it lives */
    uint32_t shard;
};

/* An attempt that waits to be settled. */
struct attempt {
    uint64_t token, term;
    uint32_t stage; /* NOWHERE: fired by one that had lost the shard */
    unsigned actor;
    int64_t due_us;
    fl_retry retry;
    struct attempt *next;
};

/* A firing that waits in a lane. */
struct waiting {
    fl_firing firing;
    fl_engine *engine;
    unsigned actor;
    bool begun; /* by another thread, as it were */
    struct waiting *next;
};

/* How a life is. */
struct nature {
    bool faulty, slow, hostile, thieves, crashes, steps, far, goes_back;
    unsigned hold_percent;
    unsigned wait_percent;
};

struct sim {
    struct luck luck;
    struct nature nature;
    uint32_t waiting_most;
    FILE *trace;
    fl_wall_clock wall;
    fl_virtual_clock time;
    int64_t offset_us;
    fl_loop *loop;
    fl_store *store;
    struct road *road;
    fl_engine_config config;
    uint64_t skip_odd_us;        /* for the odd namespace; UINT64_MAX: as configured */
    uint64_t policies;           /* what the policies of timers follow from, with their tags; 0: they have none */
    struct actor actors[ACTORS]; /* a life without a fleet has ENGINES */
    unsigned actor_count, errand_count;
    uint32_t name_slots[NAMES];
    struct errand *errands;
    struct listing *listings;
    struct attempt *attempts;
    struct waiting *waiting;
    uint32_t tags;
    bool calm;      /* no more faults */
    bool beginning; /* the owner is not ready */
    unsigned actions;
    struct ledger ledger;
    struct fleet *fleet;     /* NULL: there are engines only, and one shard */
    struct tickers *tickers; /* NULL: there are none */
    uint32_t shards;
    int64_t skew_us; /* no server's clock is farther than this from the store's */
};

int64_t sim_mono_ns(struct sim *s);
int64_t sim_wall_us(struct sim *s);
void sim_say(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t sim_clock_us(struct sim *s, const struct actor *actor); /* the wall clock, as it has it */
struct actor *sim_actor(struct sim *s, unsigned number);        /* NULL: it is gone */
struct actor *sim_some_actor(struct sim *s);                    /* NULL: there is none */

/* --- clients.c: what users ask for */
void clients_act(struct sim *s);
bool clients_wait(const struct sim *s);
void clients_list(struct sim *s, const struct actor *actor, bool dead);
void clients_clock_set(struct sim *s);

/* --- fleet.c: servers on one store */
/* False: it does not come to an end. */
bool fleet_live(struct sim *s, char failure[512]);
bool fleet_lives(const struct server *server); /* it has not crashed */
int64_t fleet_clock_us(const struct server *server);
bool fleet_same_address(const struct server *a, const struct server *b);
/* Some server is asked for what is of this shard. Tells in `*ret_actor` who has done it, 0 if nobody has, and calls
 * batch->done. */
void fleet_ask(struct sim *s, fl_batch *batch, uint32_t shard, unsigned *ret_actor);

/* --- ticker.c: timers that create timers, of lives without a fleet */
void tickers_begin(struct sim *s, uint64_t seed);
void tickers_act(struct sim *s);
bool tickers_are(const fl_durable *timer); /* a ticker, or what it has created */
void tickers_fire(struct sim *s, const struct actor *actor, const fl_firing *firing);
void tickers_go_back(struct sim *s);
int64_t tickers_latest_us(const struct sim *s); /* when the last of them is due */
void tickers_end(struct sim *s);                /* asks for what is there; */
void tickers_close(struct sim *s);              /* and compares */
void tickers_forget(struct sim *s);

/* --- sim.c, for fleet.c */
void sim_go_back(struct sim *s);
void sim_check_engines(struct sim *s);

/* --- target.c: what fires */
void target_dispatch(void *arg, fl_engine *engine, const fl_firing *firings, size_t count);
/* `server`: of this one alone; NULL: there is no fleet. */
void target_settle(struct sim *s, const struct server *server, unsigned percent);
void target_forget(struct sim *s);
bool target_withdraw(void *arg, fl_engine *engine, uint64_t token, void *handle);
/* Closes or opens a lane at random; opens all. */
void target_close(struct sim *s, const struct actor *actor);
void target_open(struct sim *s, const struct actor *actor);
fl_retry policy_of(const struct sim *s, uint32_t tag);
void payload_fill(uint32_t tag, unsigned char *payload, size_t size);
uint32_t payload_tag(struct sim *s, fl_bytes payload);

#endif
