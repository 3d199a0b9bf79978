/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_H
#define FOLIOT_WHEEL_H

/* A hierarchical hashed timing wheel: millions of timers, each scheduled and cancelled in constant time.
 *
 * The wheel is a data structure. It has no clock, no thread and no callback: you tell it what time it is and it hands
 * back what is due.
 *
 *     fl_wheel *wheel;
 *     fl_timer_id id;
 *     fl_expired due[64];
 *
 *     if (fl_wheel_new(NULL, &wheel) < 0)
 *         abort();
 *     if (fl_wheel_schedule(wheel, 20 * 1000000ull, "tea", &id) < 0)   // 20 ms after time zero
 *         abort();
 *     size_t n = fl_wheel_poll(wheel, 25 * 1000000ull, due, 64);       // it is 25 ms now: n is 1
 *     for (size_t i = 0; i < n; i++)
 *         puts(due[i].data);
 *     fl_wheel_free(wheel);
 *
 * Time is a count of nanoseconds since whatever moment you choose; CLOCK_MONOTONIC is the usual choice.
 *
 * What the wheel promises:
 *
 *   - Never early. With a poll every L0 tick (about 1 ms by default), never later than one L0 tick.
 *   - Nothing is lost, however long you did not poll. Every timer comes out at most once.
 *   - A poll returns timers in order of deadline, equal deadlines in the order in which they were scheduled.
 *   - An ID names its timer exactly as long as that timer lives, and no other timer afterwards: not before 2^49 others have
 *     been in the same level (2^43 if the wheel is cleared or compacted after each).
 *   - A failed call changes nothing.
 *
 * Threads: a wheel belongs to one thread at a time, also where a function takes it as const. Only fl_wheel_now_ns() may
 * be called from others.
 *
 * Ownership: `data` is yours. The wheel hands the pointer back and never looks behind it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/error.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define FL_WHEEL_LEVELS 3
#define FL_WHEEL_MAX_SPOKES 4096

typedef struct fl_wheel fl_wheel;

/* Names a timer: from the highest bit, 2 bits of level, 22 of generation, 12 of spoke and 28 of slot. 0 never names a
 * timer. Treat it as opaque. */
typedef uint64_t fl_timer_id;

/* The zero value of every member is its default. */
typedef struct fl_wheel_config {
    /* Powers of two, ascending; 0: 2^20, 2^30, 2^36. They say how far ahead each level reaches. */
    uint64_t tick_ns[FL_WHEEL_LEVELS];
    uint32_t spokes;    /* in each level; a power of two, at most 4096; 0: 1024 */
    uint32_t worker_id; /* yours to read back with fl_wheel_worker_id() */
    uint64_t start_ns;  /* the wheel's first `now` */
    bool coarse;        /* timers of L1 and L2 fire at the end of their level's tick: cheaper, later */
    /* Slots are given back in groups of up to 64. In a level with at least `min_capacity` slots, a group of which fewer than
     * one slot in `ratio` is in use shrinks to what is, and again whenever less than one in `target_multiplier` is. Groups of
     * 16 slots and less do not shrink. 0: 64, 4, 2. */
    struct {
        uint32_t min_capacity, ratio, target_multiplier;
    } compaction;
    bool huge_pages; /* ask for 2 MiB pages: filling a wheel with millions of timers is faster */
} fl_wheel_config;

typedef struct fl_expired {
    fl_timer_id id; /* no longer valid: for your own tables */
    uint64_t deadline_ns;
    void *data;
} fl_expired;

typedef struct fl_wheel_level_stats {
    uint64_t spokes;
    uint64_t slot_capacity; /* slots there is memory for */
    uint64_t active;        /* slots that hold a timer */
    double utilisation;     /* active / slot_capacity; 0 if there are no slots */
    uint64_t bytes;         /* the memory that this level has alone */
} fl_wheel_level_stats;

typedef struct fl_wheel_stats {
    fl_wheel_level_stats level[FL_WHEEL_LEVELS];
    uint64_t bytes;           /* the memory of the whole wheel: its levels and what they share */
    uint64_t allocated_bytes; /* what it has from the allocator, mapped addresses without memory included */
} fl_wheel_stats;

/* Makes a wheel; `config` may be NULL. Its `now` is config->start_ns.
 * Returns 0; FL_INVALID_ARGUMENT for ticks or spokes that are no powers of two, ticks that do not ascend, too many
 * spokes, a compaction ratio below the target multiplier; FL_OVERFLOW if the last level would reach beyond 2^64 ns;
 * FL_NO_MEMORY. */
int fl_wheel_new(const fl_wheel_config *config, fl_wheel **ret);

/* Frees the wheel and forgets its timers. NULL is allowed. */
void fl_wheel_free(fl_wheel *w);

/* Schedules a timer. A deadline of now, or up to one L0 tick before it, fires at the next poll. `ret_id` may be NULL.
 * Returns 0; FL_INVALID_DEADLINE for 0, before the start, or more than one L0 tick in the past; FL_DEADLINE_TOO_FAR
 * beyond now + fl_wheel_max_duration_ns(); FL_OVERFLOW for UINT64_MAX; FL_CAPACITY_EXCEEDED if the level has
 * 2^28 timers, or has used up its IDs; FL_NO_MEMORY. */
int fl_wheel_schedule(fl_wheel *w, uint64_t deadline_ns, void *data, fl_timer_id *ret_id);

/* Schedules a timer as near to `target_ns` as the wheel reaches, for deadlines at any distance: when it fires and
 * now < target, schedule it by best fit again. A target in the past fires at the next poll.
 * `ret_wheel_deadline_ns` (may be NULL) is when this timer fires: target_ns, or earlier if that is too far away, or now
 * if it has passed. Returns as fl_wheel_schedule() does, but never FL_DEADLINE_TOO_FAR and FL_INVALID_DEADLINE only for
 * 0. */
int fl_wheel_schedule_best_fit(fl_wheel *w, uint64_t target_ns, void *data, fl_timer_id *ret_id,
                               uint64_t *ret_wheel_deadline_ns);

/* Moves a living timer to another deadline, as if it were cancelled and scheduled anew, but without a moment in which
 * it could be lost: on failure it is still there, unchanged. Its old ID ends; `ret_id` (may be NULL) is the new one.
 * Returns what fl_wheel_cancel() and fl_wheel_schedule() return. */
int fl_wheel_reschedule(fl_wheel *w, fl_timer_id id, uint64_t deadline_ns, fl_timer_id *ret_id);

/* The same by best fit, for targets in the past or beyond the wheel's reach: see fl_wheel_schedule_best_fit(). Returns what
 * fl_wheel_cancel() and fl_wheel_schedule_best_fit() return. */
int fl_wheel_reschedule_best_fit(fl_wheel *w, fl_timer_id id, uint64_t target_ns, fl_timer_id *ret_id,
                                 uint64_t *ret_wheel_deadline_ns);

/* Cancels a timer; `ret_data` (may be NULL, which is faster) gets its data.
 *
 * A timer that poll has put into `out` is gone, also while the program still works through that batch: cancelling it returns
 * FL_TIMER_NOT_FOUND. If the program must not handle it any more, the program itself has to remember that.
 *
 * Returns 0; FL_TIMER_NOT_FOUND if it has fired or was cancelled; FL_INVALID_TIMER_ID if no timer of this wheel can
 * have that ID. */
int fl_wheel_cancel(fl_wheel *w, fl_timer_id id, void **ret_data);

/* Moves the wheel to `now_ns` and takes out at most `limit` timers that are due. Those beyond `limit` stay, and come
 * first at the next poll; poll again with the same `now_ns` until fewer than `limit` come out. A `now_ns` before the
 * wheel's own counts as the wheel's own. `out` may be NULL if `limit` is 0. Returns how many are in `out`. Cannot fail.
 *
 * No pauses: a poll with a limit of 1,024 or more visits at most 16 timers for each of its limit, whatever the pattern of
 * deadlines and whether or not the program has polled before. */
size_t fl_wheel_poll(fl_wheel *w, uint64_t now_ns, fl_expired *out, size_t limit);

/* The exact deadline of the earliest timer; false if there is none. In a coarse wheel, a poll at that time may have to
 * wait for the end of the tick: such a wheel is polled at regular times. */
bool fl_wheel_next_deadline(fl_wheel *w, uint64_t *ret_ns);

/* When to poll next: a program may sleep until then. False if there is no timer.
 *
 * It is never later than the earliest deadline. It may be earlier, and then the poll finds nothing due. */
bool fl_wheel_next_poll(fl_wheel *w, uint64_t *ret_ns);

/* The deadline of a living timer. Returns 0, or what fl_wheel_cancel() returns. */
int fl_wheel_deadline_ns(const fl_wheel *w, fl_timer_id id, uint64_t *ret_ns);

/* Gives a living timer other data; `ret_old_data` (may be NULL) gets the old data. The ID stays the same. Returns 0, or what
 * fl_wheel_cancel() returns. */
int fl_wheel_set_data(fl_wheel *w, fl_timer_id id, void *data, void **ret_old_data);

/* Visits all living timers, in no particular order, for example to free their data at the end:
 *
 *     fl_expired timer = {0};
 *     while (fl_wheel_next_timer(wheel, &timer))
 *         free(timer.data);
 *     fl_wheel_free(wheel);
 *
 * timer->id is the ID of the timer that was visited last, or 0 to begin. Returns false after the last timer, and leaves
 * `timer` untouched. The program may cancel timers meanwhile. It may also schedule, move and poll; timers that are scheduled
 * or moved meanwhile may be visited or not. */
bool fl_wheel_next_timer(const fl_wheel *w, fl_expired *timer);

/* How many timers live. */
uint64_t fl_wheel_count(const fl_wheel *w);

/* The latest `now` the wheel was polled with. Any thread. */
uint64_t fl_wheel_now_ns(const fl_wheel *w);

uint64_t fl_wheel_start_ns(const fl_wheel *w);
uint32_t fl_wheel_worker_id(const fl_wheel *w);

/* How far ahead of now a level reaches: its tick times its spokes, UINT64_MAX if that is 2^64; 0 for a level there is
 * not. */
uint64_t fl_wheel_coverage_ns(const fl_wheel *w, unsigned level);

/* How far ahead of now a timer may be scheduled: the coverage of the last level. */
uint64_t fl_wheel_max_duration_ns(const fl_wheel *w);

/* Forgets all timers and frees their memory. Their IDs end; now stays. */
void fl_wheel_clear(fl_wheel *w);

/* Gives back all memory that the living timers do not need, whatever the compaction settings say. IDs stay valid. Not
 * needed in normal use: cancelling and firing shrink the wheel as they go. Takes time in proportion to the wheel. */
void fl_wheel_compact(fl_wheel *w);

/* Counts slots and bytes, level by level. The memory that orders the timers by time belongs to no level. What the allocator needs for itself does not count; a 2 MiB page counts as a
 * whole. */
void fl_wheel_memory_stats(const fl_wheel *w, fl_wheel_stats *ret);

/* Checks every invariant of the wheel, in time proportional to its size. Returns 0, or FL_INVALID_ARGUMENT after
 * having written what is broken to `explain` (may be NULL). For tests and debugging. */
int fl_wheel_check(const fl_wheel *w, FILE *explain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
