/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_LOOP_H
#define FOLIOT_LOOP_LOOP_H

/* For layers of the same library that turn a loop themselves and have other things to do between two turns. Times are those of
 * base/moment.h. */

#include <stdint.h>

#include <foliot/loop.h>

#include "loop/stopwatch.h"

/* When the loop must turn: 0 if it has something to run now, or watches a descriptor, because only a turn finds out whether
 * that is ready; NEVER if it waits for no time. */
uint64_t fl__loop_next_ns(fl_loop *loop);

/* As fl_loop_run_once() with `wait`, but sleeps no longer than until `until_ns` of the loop's clock. 0: does not sleep.
 * NEVER: no limit. */
int fl__loop_run_until(fl_loop *loop, uint64_t until_ns);

#endif
