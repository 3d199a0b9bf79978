/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_LOOP_H
#define FOLIOT_LOOP_LOOP_H

/* The loop: timers, tasks and descriptors on one thread, on any clock. foliot/loop.h is its contract. This folder may use base
 * and wheel. It knows no layer above it, and starts no thread.
 *
 *     loop.c         making, running, the phases of a turn
 *     timers.c       making and changing timers, intervals, immediates, hooks; firing.c: calling them
 *     descriptors.c  the table of descriptors and the kernel's copy of it
 *     sleep.c        how the loop waits
 *     inbox.c        what other threads send, by post.c; ring.c: queues of callbacks; table.c: records behind IDs
 *     stopwatch.h    how long callbacks take
 *     stats.c        what it has done, and whether it is sound
 *     walk.c         showing everything that waits in a loop
 *     clock.c        the machine's clock
 */

#include <stdint.h>

#include <foliot/loop.h>

#include "loop/stopwatch.h"

/* For layers of the same library that turn a loop themselves and have other things to do between two turns. Times are those of
 * base/moment.h. */

/* When the loop must turn: 0 if it has something to run now, or watches a descriptor, because only a turn finds out whether
 * that is ready; NEVER if it waits for no time. */
uint64_t fl__loop_next_ns(fl_loop *loop);

/* As fl_loop_run_once() with `wait`, but sleeps no longer than until `until_ns` of the loop's clock. 0: does not sleep.
 * NEVER: no limit. */
int fl__loop_run_until(fl_loop *loop, uint64_t until_ns);

#endif
