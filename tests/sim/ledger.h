/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_LEDGER_H
#define FOLIOT_TESTS_SIM_LEDGER_H

/* What was promised, and whether it was kept. The ledger stands outside: it hears what clients ask and are answered, what
 * fires and how that is settled, and who owns the shard, and nothing of what the engine thinks.
 *
 * A slot is a timer as its users see it: a name, or an ID of one without a name. What stands in a slot is a stage: the slot
 * is empty at first, a creation puts a stage there, an update another one, a cancel "nothing". Every stage has a number, its
 * tag, which is the timer's payload, so that a firing says which one it is.
 *
 * Clients race, and some answers are "nobody knows". So a slot has a set of stages that may be what is there (HERE). A
 * success takes out of it what was answered before the winner was asked for; an unknown outcome takes nothing out. What is
 * not in the set must not fire; and if nothing is not in the set, one of the set must.
 *
 * A term is the time from one claim of the shard to the next. Inside a term everything happens exactly once. With another
 * term, what was not settled comes again, and what was settled may, unless the progress recorded after that took effect. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/engine.h>

enum { SLOTS_MOST = 1024, STAGES_MOST = 8192, SHARDS_MOST = 12, NOWHERE = UINT32_MAX };

enum place { ASKED, HERE, GONE };
enum fate { WAITING, UNDER_WAY, FAILED, AGAIN, DONE, DEAD };

struct stage {
    uint32_t slot;
    uint32_t tag; /* 0: nothing is there */
    enum place place;
    enum fate fate;
    bool unknown; /* that it was ever there nobody has said */
    bool vague;   /* when it is due and how many attempts have been made is not known yet */
    bool by_name;
    bool secured; /* done, and that is on record */
    bool may_skip;
    bool may_die;   /* FAILED: or it has become too old */
    bool put_off;   /* FAILED: the last attempt does not count */
    bool parked;    /* it is in a lane, which does not know when the next attempt was to be */
    bool moving;    /* it was put off out of its lane, and has not come again since */
    bool counted;   /* UNDER_WAY: the next owner may count it as one that has failed */
    unsigned actor; /* who was asked */
    int64_t due_us;
    int64_t filed_us;      /* the latest under which it can have been filed: the past counts as now */
    int64_t fired_us;      /* when the last attempt began */
    int64_t not_before_us; /* the next attempt */
    int64_t asked_us;      /* FAILED: the next attempt is not before this, */
    int64_t wait_us;       /* and so long after the clock was read for it */
    fl_key id;
    uint64_t asked, answered, settled; /* ticks */
    uint64_t term;                     /* of the last attempt */
    uint32_t attempt;                  /* the last one that began; or how many were made before */
    uint32_t from;                     /* AGAIN: of which stage; else NOWHERE */
    uint32_t was;                      /* refused after it fired: which one that was; 0: none */
};

struct slot {
    uint32_t shard;
    bool named;
    unsigned name;
    uint64_t touched; /* tick of the latest event */
    unsigned deaths, raised;
    bool wild; /* the store has forgotten what happened here: nobody knows what it has, and nothing is promised */
};

/* Who owns a shard. */
struct tenure {
    uint64_t term, since_tick;
    unsigned owner; /* actor; 0: nobody */
    int64_t since_ns;
};

struct ledger {
    struct slot slots[SLOTS_MOST];
    struct stage stages[STAGES_MOST];
    uint32_t slot_count, stage_count;
    uint64_t tick;
    uint64_t marked, went_back;         /* ticks: of what the store may go back to, and when it last did */
    struct tenure tenures[SHARDS_MOST]; /* of each shard */
    int64_t wall_us;                    /* the clock, as whoever calls last saw it */
    char failure[512];
    void (*failed)(void *arg); /* called once */
    void *arg;
};

void ledger_fail(struct ledger *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

uint32_t ledger_slot(struct ledger *l, uint32_t shard, bool named, unsigned name);

/* Who owns the shard that a slot is in. */
const struct tenure *ledger_tenure(const struct ledger *l, uint32_t slot);

/* Somebody has asked for this to be there. Returns the stage. */
uint32_t ledger_ask(struct ledger *l, uint32_t slot, uint32_t tag, int64_t due_us);

/* The answer: 0, FL_OUTCOME_UNKNOWN, or anything else, which means that nothing has happened. */
void ledger_answer(struct ledger *l, uint32_t i, int result);

/* The one stage that must be what is there; NOWHERE if that is not certain. */
uint32_t ledger_certain(const struct ledger *l, uint32_t slot);

/* The earliest due time that anybody has asked for. */
int64_t ledger_earliest(const struct ledger *l, uint32_t slot);

/* Another owner, or the same one anew. */
void ledger_claim(struct ledger *l, uint32_t shard, unsigned actor, int64_t now_ns);

/* What was settled before `tick` is on record, as far as the front has come. */
void ledger_record(struct ledger *l, uint32_t shard, uint64_t tick, const fl_progress *progress);

/* Somebody fires. Returns the stage, or NOWHERE if nothing is known of it. */
uint32_t ledger_fire(struct ledger *l, const fl_firing *firing, uint32_t tag, int64_t wall_us);

/* The owner has settled an attempt of this term. FAILED: not again before `at_us`, nor before it has waited for `wait_us`;
 * AGAIN: at `at_us`. */
void ledger_settle(struct ledger *l, uint32_t i, enum fate fate, int64_t at_us, int64_t wait_us);

/* The owner has put an attempt off, which does not count then. */
void ledger_put_off(struct ledger *l, uint32_t i, int64_t at_us);

/* It has failed, and may be given up for its age. */
void ledger_may_die(struct ledger *l, uint32_t i);

/* What is due waits in a lane, by the clock of its owner; or it is put off, which files it elsewhere. */
void ledger_wait(struct ledger *l, const fl_firing *firing, uint32_t tag, int64_t wall_us);
void ledger_not_begun(struct ledger *l, const fl_firing *firing, uint32_t tag, int64_t wall_us);

/* The clock is set. What is on its way to the store may be filed by either time. */
void ledger_set_clock(struct ledger *l, int64_t before_us, int64_t after_us);

/* The store may go back to what it has now; and it does. What was not touched since is as it was, and must fire. */
void ledger_mark(struct ledger *l);
void ledger_go_back(struct ledger *l);

/* The stage that an attempt at this one was really of. */
uint32_t ledger_really(const struct ledger *l, uint32_t i);

/* At the end. */
void ledger_close(struct ledger *l, int64_t now_us);

/* When the next timer is due that must still fire; 0: none. */
int64_t ledger_next_due(const struct ledger *l);

#endif
