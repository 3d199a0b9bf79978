/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_AHEAD_H
#define FOLIOT_LOOP_AHEAD_H

/* What who turns a loop by himself, and has other things to do, may ask it between two turns. */

#include <stdint.h>

#include <foliot/loop.h>

/* When the loop has to turn: 0 if it has something to run now, or watches a descriptor, of which only a turn can tell
 * whether it is ready; UINT64_MAX if it knows of nothing. */
uint64_t fl__loop_next_ns(fl_loop *loop);

#endif
