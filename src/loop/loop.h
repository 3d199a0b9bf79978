/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_LOOP_H
#define FOLIOT_LOOP_LOOP_H

/* For layers of the same library that turn a loop themselves and have other things to do between two turns. */

#include <stdint.h>

#include <foliot/loop.h>

#include "loop/stopwatch.h"

/* When the loop has to turn: 0 if it has something to run now, or watches a descriptor, of which only a turn can tell
 * whether it is ready; UINT64_MAX if it knows of nothing. */
uint64_t fl__loop_next_ns(fl_loop *loop);

#endif
