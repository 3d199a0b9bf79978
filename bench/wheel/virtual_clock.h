/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_VIRTUAL_CLOCK_H
#define FOLIOT_BENCH_VIRTUAL_CLOCK_H

/* The clock that all rivals live by: it moves when the benchmark says so. See virtual_clock.c. */

#include <stdint.h>

#define VIRTUAL_START_NS 1000000000000u

uint64_t virtual_clock_ns(void);
void virtual_clock_reset(void);          /* to VIRTUAL_START_NS; no event loop may exist then, time never goes back */
void virtual_clock_advance(uint64_t ns); /* less than a second */

#endif
