/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_H
#define FOLIOT_TESTS_SIM_H

/* The engine's real code in a world of its own: virtual time, a store that fails, a dispatcher that fails, crashes, thieves,
 * a wall clock that is set. In every fourth life there are several servers on one store with several shards: see fleet.c.
 * One seed decides everything. A ledger outside holds what was acknowledged against what fired. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Lives one life. Returns whether all promises were kept; else `failure` says which one was not. `trace` may be NULL. */
bool sim_run(uint64_t seed, FILE *trace, char failure[512]);

#endif
