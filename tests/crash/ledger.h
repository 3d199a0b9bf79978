/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_CRASH_LEDGER_H
#define FOLIOT_TESTS_CRASH_LEDGER_H

/* What has been acknowledged, kept outside of the process that is killed, and held against what that process does:
 *
 *   - every acknowledged timer fires, at least once, with the content that was acknowledged last
 *   - none before its time
 *   - none after a cancel was acknowledged, nor the old version after a move or a replacement was
 *   - none a second time in one life; and once "done" has been recorded, in no life
 *   - what is asked for is what is there
 *
 * A timer has at most one operation under way. If a crash or the store leaves its outcome unknown, the timer may be as
 * before or as after; what it does next tells which, and it has to stay with that. */

#include "crash/protocol.h"

/* What a timer is, or would be if an operation had taken effect. */
struct state {
    bool there;
    uint32_t version;
    int64_t due_us;
};

struct timer {
    bool named, known_id;
    fl_key id;
    struct state now, maybe;
    struct state
        before; /* what `now` took the place of, if that was done and perhaps not on record: it comes again if `now` never was */
    bool unsure;  /* `maybe` may be true instead of `now` */
    bool asked;   /* an operation is under way */
    enum said by; /* which one `maybe` is the outcome of */
    /* Of the version `now`: */
    int64_t not_before_us;
    bool flying;   /* fired and not settled in this life */
    bool over;     /* settled as done or dead in this life */
    bool fired;    /* in any life */
    bool finished; /* settled as done or dead in any life */
    bool dead;     /* and that was the last word */
    bool final;    /* done, and recorded: it must not come again */
    bool listed;   /* among the dead letters */
    uint32_t
        ghost; /* the version of which the store did not say whether it was created: it may fire and yet not be there */
    bool unheard;      /* nor is it known what the store has said, since its creation has not been answered */
    bool was_finished; /* before a crash that left this in doubt */
    bool raced;        /* it has fired or was settled since an operation was asked for */
    uint32_t versions; /* given out */
};

struct ledger {
    struct timer *timers;
    uint32_t count, capacity;
    uint32_t outstanding; /* operations under way */
    uint64_t settled;     /* progress of any kind: to see whether it stands still */
    uint64_t acknowledged, fired, repeated, unknown;
    struct {
        uint32_t *numbers; /* done in this life and not recorded; those from `begun` on only after the record began */
        uint32_t *versions;
        uint32_t count, capacity, begun;
    } shards[8];
};

void ledger_init(struct ledger *ledger, uint32_t capacity);
void ledger_free(struct ledger *ledger);

/* Notes an operation that is going to be asked for, and fills in the packet. False: this cannot be asked for now. */
bool ledger_ask(struct ledger *ledger, enum said what, uint32_t number, int64_t due_us, struct packet *ret);

/* A new timer; its creation is to be asked for. */
uint32_t ledger_add(struct ledger *ledger, bool named);

/* Something that the child said. */
void ledger_hear(struct ledger *ledger, const struct packet *packet);

/* Something that a child says after another has taken over: it may only speak of what was before. */
void ledger_hear_late(struct ledger *ledger, const struct packet *packet);

/* The child is dead. */
void ledger_crash(struct ledger *ledger);

/* How many timers still have to fire. */
uint32_t ledger_left(const struct ledger *ledger);
void ledger_complain_left(const struct ledger *ledger); /* names the first of them, and fails */

/* After everything: those given up are among the dead letters. */
void ledger_check_dead(const struct ledger *ledger);

#endif
