/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_FRESH_H
#define FOLIOT_LOOP_FRESH_H

/* The youngest timers: a list in the order in which they were armed, with their deadlines.
 *
 * Most timers are taken back soon: a timeout around a write that succeeds at once, one around a request that is answered
 * in a few milliseconds. As long as such a timer is in this list, arming it and taking it back touch nothing but the list
 * and its record. When the list is full, those that are left settle in the wheel. When one of them is due, all of the list
 * is looked at; that is no hardship if it is short, and else what is not due settles too. So a loop with a few timers
 * never has a wheel at all.
 *
 * An entry is good if its record is STATE_FRESH and names the entry's place; others were cancelled, fired or armed anew,
 * and are swept out when the list is full or the earliest deadline is wanted. All timers in the wheel were armed before
 * all timers in the list, so among equal deadlines the wheel's come first: if both have something due at the same time,
 * the list is settled before the wheel is asked.
 *
 * Without memory for the wheel, timers stay here and fire from here; when the list is full of them, arming fails.
 */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/loop.h>

struct record;

enum {
    FRESH_CAPACITY = 1024,
    FRESH_SHORT = 64, /* a list up to this long may be searched again and again */
};

struct fresh_entry {
    uint64_t deadline_ns;
    uint32_t slot;
};

struct fresh {
    struct fresh_entry *entries;
    uint32_t count, good; /* entries, and how many of them are good */
    uint32_t capacity, shorter;
    bool exact;           /* earliest_ns is the earliest deadline, and not only no later than that */
    uint64_t earliest_ns; /* UINT64_MAX: no entry is good */
};

int fl__fresh_init(struct fresh *fresh);
void fl__fresh_destroy(struct fresh *fresh);

/* For fresh_arm(): makes room by sweeping or settling. Returns 0 or FL_NO_MEMORY. */
int fl__fresh_make_room(fl_loop *loop);

/* The earliest deadline, or a little before it if the list is long and looking at all of it is not worth it now. */
uint64_t fl__fresh_next_ns(fl_loop *loop);

/* Whether something in the list is due. */
bool fl__fresh_is_due(fl_loop *loop);

/* Puts all of the list into the wheel, as far as memory goes. */
void fl__fresh_settle(fl_loop *loop);

/* Marks those that are due, the earliest first, as many as there is room for behind the other due ones. */
void fl__fresh_take(fl_loop *loop);

#endif
