/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_ENGINE_CLAIMS_H
#define FOLIOT_BENCH_ENGINE_CLAIMS_H

#include <stdbool.h>
#include <stdio.h>

/* Tells, in Markdown, how often an engine asks its store with either strategy. */
void claims_tell(FILE *out, bool quick);

#endif
