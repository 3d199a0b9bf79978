/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_TIMERS_H
#define FOLIOT_LOOP_TIMERS_H

/* How a timer gets from its making to its callback; timers.c has the first half of the way, firing.c the second.
 *
 * A timer is a record in the table (table.h). It begins in the list of fresh timers (fresh.h) and, if it lives for long
 * enough, settles in the wheel, which carries the record's slot as data; the record knows the wheel's ID.
 *
 *     STATE_FRESH ──> STATE_PENDING ──> STATE_DUE ──> callback
 *          ^                                              │
 *          └──────────── an interval, armed anew ─────────┘
 *
 * What is due is taken aside into a list before the first callback of a turn runs. Every record in the list is marked
 * STATE_DUE. A callback that cancels or rearms a sibling changes its state, so the entry is passed over; a slot that is
 * taken anew in the same turn is not called by mistake, because nothing becomes STATE_DUE except when the list is filled.
 *
 * Cancelling, among many timers, waits for memory: first for the record, then for the wheel's slot. The processor overlaps
 * the waits of as many cancels as fit into its window of some hundred instructions. So a cancel only marks the record and
 * notes it; the wheel and the table hear of 64 at a time, when the records have arrived, and always before the wheel is
 * asked for anything.
 *
 * Far timers. The wheel reaches REACH_NS ahead. A timer beyond gets stops on the way, at deadline - k * reach, and its
 * real deadline is kept in a struct extra. Stops are counted back from the deadline, not forward from now, so that equal
 * deadlines keep their order: a timer moves on to its next stop as soon as that is in reach, and so before any younger
 * timer can be settled there directly. For this to hold, "in reach" is measured from drained_ns, up to which the wheel
 * has surely been emptied, and not from now; and after a long pause the wheel is polled in steps of half its reach, so
 * that no timer is still at a stop when its deadline has passed.
 *
 * The end of time. A deadline that does not fit into 64 bits is UINT64_MAX, and so are those of timers that are to wait for
 * ever. The wheel does not take it, and nothing comes after it: such timers wait in a list of their own, LAST, in the
 * order in which they were armed. They are STATE_STRANDED.
 *
 * No memory. If there is none for the wheel, timers stay fresh. An interval that must be armed anew while the fresh list
 * is full, or a far timer that was just taken out of the wheel, becomes STATE_STRANDED: it waits in a list without limit.
 * So nothing is lost and nothing late; only the order among equal deadlines may be another.
 */

#include "loop/internal.h"

/* The loop's wheel: ticks of 1 ms, 268 ms and 69 s, of which the finer fill one of the coarser exactly. */
enum {
    WHEEL_SPOKES_BITS = 8,
    WHEEL_TICK_BITS = 20,
};
#define REACH_NS (UINT64_C(1) << (WHEEL_TICK_BITS + 3 * WHEEL_SPOKES_BITS))

static inline uint64_t add_time(uint64_t time_ns, uint64_t duration_ns)
{
    uint64_t sum;
    return __builtin_add_overflow(time_ns, duration_ns, &sum) ? UINT64_MAX : sum;
}

static inline bool out_of_reach(const fl_loop *loop, uint64_t deadline_ns)
{
    return deadline_ns > loop->drained_ns && deadline_ns - loop->drained_ns > REACH_NS;
}

/* Whether a timer with this deadline needs a struct extra to remember it. */
static inline bool needs_stops(const fl_loop *loop, uint64_t deadline_ns)
{
    return out_of_reach(loop, deadline_ns) && deadline_ns != UINT64_MAX;
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

/* The record behind an entry of the fresh list; NULL if the entry is not good. */
static inline struct record *fresh_record(const fl_loop *loop, uint32_t index)
{
    uint32_t slot = loop->fresh.entries[index].slot;
    if (!table_is_mapped(&loop->table, slot))
        return NULL;
    struct record *record = table_record(&loop->table, slot);
    return record_state(record) == STATE_FRESH && *record_timer(record) == index ? record : NULL;
}

/* Adds an entry to the list, which has room, and returns its place. */
static inline uint32_t fresh_append(struct fresh *fresh, uint32_t slot, uint64_t deadline_ns)
{
    uint32_t index = fresh->count++;
    fresh->entries[index] = (struct fresh_entry){deadline_ns, slot};
    fresh->good++;
    if (deadline_ns < fresh->earliest_ns) {
        fresh->earliest_ns = deadline_ns;
        fresh->exact = true;
    }
    return index;
}

/* Makes a record that is nowhere fresh, or one that waits for the end of time. Returns 0, or FL_NO_MEMORY if there is no
 * room and none can be made. */
static inline int fresh_arm(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns)
{
    if (__builtin_expect(deadline_ns == UINT64_MAX, 0)) {
        record_set_state(record, STATE_STRANDED);
        table_list_append(&loop->table, LAST, slot);
        return 0;
    }
    if (__builtin_expect(loop->fresh.count == loop->fresh.capacity, 0)) {
        int r = fl__fresh_make_room(loop);
        if (r < 0)
            return r;
    }
    record_set_state(record, STATE_FRESH);
    *record_timer(record) = fresh_append(&loop->fresh, slot, deadline_ns);
    return 0;
}

/* The record behind an entry is about to leave the list. */
static inline void fresh_remove(struct fresh *fresh, uint32_t index)
{
    fresh->good--;
    if (fresh->entries[index].deadline_ns == fresh->earliest_ns)
        fresh->exact = false;
    if (index == fresh->count - 1)
        fresh->count--;
}

/* Makes the wheel, unless it is there, and brings it up to date. Returns 0 or FL_NO_MEMORY. */
int fl__timers_make_wheel(fl_loop *loop);

/* Puts a record that is nowhere into the wheel, for its deadline or the first stop on the way after `from_ns`. */
int fl__timers_place(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns, uint64_t from_ns);

/* Makes a record fresh that is nowhere and must not be lost. */
void fl__timers_arm_or_strand(fl_loop *loop, uint32_t slot, struct record *record, uint64_t deadline_ns);

/* Takes timers that were cancelled out of the wheel. */
void fl__timers_drop_cancelled(fl_loop *loop);

/* Ends a record that is in no list and not in the wheel. */
void fl__timers_forget(fl_loop *loop, uint32_t slot, struct record *record);

#endif
