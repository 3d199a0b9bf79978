/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_TIMERS_H
#define FOLIOT_LOOP_TIMERS_H

/* How a timer gets from its making to its callback; timers.c has the first half of the way, firing.c the second.
 *
 * A timer is a record in the table (table.h). It begins in the list of fresh timers, with its deadline. When the next
 * turn begins, or when the list is full, what is still there is settled in the wheel, in the order in which it was armed.
 * Many timers do not get so far: a timeout that is set before a write and taken back after it costs two accesses to
 * memory that is in the cache. The wheel carries a record's slot as data; the record knows the wheel's ID.
 *
 *     STATE_FRESH ──> STATE_PENDING ──> STATE_DUE ──> callback
 *          ^                                              │
 *          └──────────── an interval, armed anew ─────────┘
 *
 * What is due is taken out of the wheel into a list before the first callback of a turn runs. Every record in the list is
 * marked STATE_DUE. A callback that cancels or rearms a sibling changes its state, so the entry is passed over; a slot
 * that is taken anew in the same turn is not called by mistake, because nothing becomes STATE_DUE except when the list is
 * filled.
 *
 * Far timers. The wheel reaches reach_ns ahead. A timer beyond gets stops on the way, at deadline - k * reach, and its
 * real deadline is kept in a struct extra. Stops are counted back from the deadline, not forward from now, so that equal
 * deadlines keep their order: a timer moves on to its next stop as soon as that is in reach, and so before any younger
 * timer can be settled there directly. For this to hold, "in reach" is measured from drained_ns, up to which the wheel
 * has surely been emptied, and not from now; and after a long pause the wheel is polled in steps of half its reach, so
 * that no timer is still at a stop when its deadline has passed.
 *
 * No memory. If the wheel has none, timers stay fresh until it has, and if their deadline comes before, they are taken
 * from there. When the list is full of them, no more can be made. An interval that must be armed anew then, or a far
 * timer that was just taken out of the wheel, becomes STATE_STRANDED: it waits in a list without limit. So nothing is lost
 * and nothing late; only the order among equal deadlines may be another.
 */

#include "loop/internal.h"

enum { FRESH_CAPACITY = 1024 };

static inline uint64_t add_time(uint64_t time_ns, uint64_t duration_ns)
{
    uint64_t sum = time_ns + duration_ns;
    return sum < time_ns || sum > TIME_MAX ? TIME_MAX : sum;
}

static inline bool out_of_reach(const fl_loop *loop, uint64_t deadline_ns)
{
    return deadline_ns > loop->drained_ns && deadline_ns - loop->drained_ns > loop->reach_ns;
}

/* When a timer with an extra fires, after its slack. */
static inline uint64_t firing_time(const struct extra *extra)
{
    return fl__timers_round(extra->deadline_ns, extra->slack_ns);
}

static inline void *data_of_slot(uint32_t slot)
{
    return (void *)(uintptr_t)slot;
}

static inline uint32_t slot_of_data(const void *data)
{
    return (uint32_t)(uintptr_t)data;
}

/* The record behind an entry of the fresh list; NULL if it was cancelled, or armed anew further back. */
static inline struct record *fresh_record(const fl_loop *loop, uint32_t index)
{
    uint32_t slot = loop->fresh[index].slot;
    if (!table_is_mapped(&loop->table, slot))
        return NULL;
    struct record *record = table_record(&loop->table, slot);
    return record_state(record) == STATE_FRESH && *record_timer(record) == index ? record : NULL;
}

/* Puts a record that is nowhere into the wheel, for its deadline or the first stop on the way after `from_ns`. */
int fl__timers_place(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns, uint64_t from_ns);

/* Makes a record that is nowhere fresh. Returns 0, or FL_NO_MEMORY if there is no room and none can be made. */
static inline int fresh_arm(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns)
{
    if (__builtin_expect(loop->fresh_count == FRESH_CAPACITY, 0)) {
        fl__timers_settle(loop);
        if (loop->fresh_count == FRESH_CAPACITY)
            return FL_NO_MEMORY;
    }
    record_set_state(record, STATE_FRESH);
    uint32_t index = loop->fresh_count++;
    *record_timer(record) = index;
    loop->fresh[index] = (struct fresh){deadline_ns, slot};
    return 0;
}

/* The same for a record that must not be lost. */
void fl__timers_arm_or_strand(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns);

/* Ends a record that is in no list and not in the wheel. */
void fl__timers_forget(fl_loop *loop, uint32_t slot, struct record *record);

#endif
