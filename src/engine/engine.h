/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ENGINE_ENGINE_H
#define FOLIOT_ENGINE_ENGINE_H

/* The engine: the durable timers of one shard. It loads them from a store, fires them, retries them and records how far it has
 * got; foliot/engine.h is its contract. It runs on the loop of one thread. This folder may use base, wheel, loop and store. It
 * knows nothing of names of hosts, JSON and servers: a dispatcher of the program makes the attempts.
 *
 *   state.h     data structures
 *   engine.c    the life of an engine: start, lose, stop; alarms
 *   own.c       claiming the shard, extending the claim, and claiming again
 *   time.c      the wall clock as the engine sees it
 *   ops.c       operations of the program: how a work begins, holds rows, and ends when it is written
 *   submit.c    new operations: checking each and finding its row
 *   decide.c    the effect of an operation on its row
 *   dead.c      operations on dead letters
 *   list.c      pages of timers
 *   forecast.c  how many timers fall due when
 *   lock.c      operations on the same name or row, one after the other
 *   write.c     sending changes to the store
 *   group.c     several changes in one transaction
 *   doubt.c     changes with an unknown outcome
 *   memory.c    timers in memory: items, their spans, the two wheels
 *   spaces.c    namespaces of the shard, and how many timers they have
 *   room.c      making room in memory, and clearing it
 *   load.c      from the store into memory: loading, look-ahead
 *   windows.c   windows of the store: their list, and filing rows into finer windows
 *   fire.c      from memory to the dispatcher
 *   settle.c    the outcome of an attempt: done, again, or dead
 *   flight.c    timers that are taken out of a wheel and not settled
 *   lane.c      attempts that wait, and parking them
 *   progress.c  recording progress, deleting settled rows, the wall clock set back
 *   history.c   history: collecting and writing rows that the program gives
 *   history_ask.c  history: pages, erasing
 *   codec.c     a timer as bytes; IDs as text
 *   check.c     checks that an engine is consistent, for tests
 *
 * A timer is in exactly one of these places:
 *
 *   - in the store only: its key is `until` or later
 *   - in memory as an item in a span and, if it is due soon, in a wheel: its key is before `until` and after the front
 *   - a flight: taken out of the wheel and not settled
 *   - parked: filed in the store under the window of a lane, with a time that never comes
 *   - settled: its key is not after the front, and it is no flight. Its row stays in the store until its window is
 *     finished
 *
 * Every row before `until` that is not settled is in memory. This holds because requests of a shard take effect and are
 * answered in order: the rows of a load contain the changes that were answered before it, and changes that are answered
 * later are applied to memory.
 *
 * There is one front for first attempts and one for retries. It is the key of the last item that was taken out of the wheel
 * of that kind. A wheel gives items out in the order of their keys: by time, then by sequence number. Sequence numbers are in
 * the order of filing, because a row gets a new number each time it is filed.
 */

#include <foliot/engine.h>

/* --- A timer as the bytes of a row: for the engine, and for programs that look into stores. */

/* At most fl__body_size() bytes; returns how many. */
size_t fl__body_size(const fl_durable *timer);
size_t fl__body_encode(const fl_durable *timer, int64_t at_us, unsigned char *out);
/* What the body does not say of `ret` stays as it is. */
int fl__body_decode(fl_bytes body, int64_t at_us, fl_durable *ret); /* FL_STORE_CORRUPT */
/* A body that cannot be read gives a timer without content. */
void fl__row_timer(const fl_row *row, fl_durable *ret);

/* The latest time to which `max_wait_us` lets the due time of a timer be set; INT64_MAX: any. */
int64_t fl__latest_due_us(const fl_durable *timer);

#endif
