/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_ENGINE_SCALE_H
#define FOLIOT_BENCH_ENGINE_SCALE_H

#include <stdbool.h>
#include <stdio.h>

/* Many shards at once, on a virtual clock: a table, and what one shard costs. */
void scale_tell(FILE *out, bool quick);

#endif
