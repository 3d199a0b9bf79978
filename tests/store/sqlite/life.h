/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_STORE_SQLITE_LIFE_H
#define FOLIOT_TESTS_STORE_SQLITE_LIFE_H

/* A random life of a shard beside a model of it, in which anything may fail: what was acknowledged is there, what was refused
 * is not, what is unknown is there or not, and all that for good. */

#include "store/model.h"

struct life {
    struct model now, next; /* what is there; and what would be there if what is in doubt has taken effect */
    bool doubt;
    uint64_t seed, seq, version;
    uint64_t late; /* a number that was passed over */
};

void life_begin(struct life *life, uint64_t seed);

/* Claims the shard. Returns the result, which the model does not care about. */
int life_claim(struct life *life, fl_shard *which);

/* A random request that changes something. Returns its result. Not while in doubt. */
int life_step(struct life *life, fl_shard *which);

/* Looks at everything and compares; there is no doubt afterwards. Ends the program if it is not as it must be. Returns 0,
 * or the result of the request that failed. */
int life_look(struct life *life, fl_shard *which);

#endif
