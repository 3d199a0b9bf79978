/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_SERVER_SINK_H
#define FOLIOT_BENCH_SERVER_SINK_H

/* Who is called back: nginx, which takes as many calls as it can, and a receiver of our own, which looks at the clock. */

#include <stdbool.h>
#include <stddef.h>

#include "rival.h"

bool sink_is_here(void); /* nginx and wrk are installed */
const char *sink_version(void);
void sink_open(struct target *target);
double sink_requests(const struct target *target); /* so far; to be asked once */
/* The calls a second that it takes from wrk, the same POST again and again. */
double sink_ceiling(const struct target *target, double seconds);

int receiver_listen(int *ret_port);
/* Takes calls at `listener`, and tells of each what it has sent and how many milliseconds after its due time it came. Ends when
 * told to: `called` returns false. */
void receiver_run(int listener, bool (*called)(void *arg, const char *body, double late_ms), void *arg);

#endif
