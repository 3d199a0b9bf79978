/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_BUDGET_H
#define FOLIOT_SERVER_BUDGET_H

/* How the memory of the process (max-memory) is divided. All in bytes. */

#include <stdint.h>

uint64_t budget_default(void); /* a quarter of the memory that the process may use, at most 1 GiB */
uint64_t budget_of_shard(uint64_t max_memory, uint32_t shards);   /* for its timers in memory; at least 1 MiB */
uint64_t budget_of_worker(uint64_t max_memory, unsigned workers); /* for its large requests; at least 8 MiB */

#endif
