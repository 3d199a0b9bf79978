/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_CRASH_PROTOCOL_H
#define FOLIOT_TESTS_CRASH_PROTOCOL_H

/* What the process that is killed and the one that keeps the ledger say to each other: packets over a socket.
 *
 * A packet that the child has sent arrives, whatever happens to the child afterwards, and in the order in which things
 * happened in the child, which has one thread of its own. So the ledger knows exactly what had been acknowledged. */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/engine.h>

enum said {
    /* by the ledger */
    ASK_CREATE, /* replaces what has that name */
    ASK_MOVE,
    ASK_CANCEL,
    ASK_GET,
    ASK_DEAD, /* answered with a SAY_DEAD for each timer given up, then SAY_ANSWER */
    ASK_STEP, /* sets the wall clock: by `at_us` */
    ASK_STOP, /* in an orderly way */
    /* by the child */
    SAY_ANSWER,
    SAY_READY,     /* shard */
    SAY_LOST,      /* shard */
    SAY_FIRED,     /* a firing begins */
    SAY_SETTLED,   /* `result` says how: enum fl_settle */
    SAY_RECORDING, /* shard: what was settled before this… */
    SAY_RECORDED,  /* …is recorded */
    SAY_DEAD,
    SAY_FAILED, /* to open: result */
    CRASHED,    /* nobody says that: the ledger notes it */
};

struct packet {
    enum said said;
    enum said asked; /* SAY_ANSWER: to what */
    int result;
    uint32_t shard;
    uint32_t number; /* of the timer */
    uint32_t version;
    bool named;
    fl_key id;
    int64_t due_us;
    int64_t at_us; /* the child's wall clock when it said so */
};

/* What a timer carries. */
struct cargo {
    uint32_t number, version;
};

#endif
