/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_SCHEDULES_MANY_H
#define FOLIOT_BENCH_SCHEDULES_MANY_H

/* The server with many schedules: what they take while they wait, and how late their occurrences are. */

#include <stdbool.h>
#include <stdio.h>

void many_tell(FILE *out, bool quick);

#endif
