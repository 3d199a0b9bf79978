/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLOCK_H
#define FOLIOT_CLOCK_H

/* What time it is: the seam between the loop and the world, so that a year can pass in a test.
 *
 * A clock tells the time and, if its time is not the machine's, how to let time pass. Time is a count of nanoseconds
 * that never goes back. 0 is not a moment: the loop takes it for 1.
 *
 *     static void tea(fl_loop *loop, void *arg)
 *     {
 *         (void)loop;
 *         puts(arg);
 *     }
 *
 *     int main(void)
 *     {
 *         fl_virtual_clock time;
 *         fl_virtual_clock_init(&time, 1000);
 *         fl_loop_config config = {.clock = &time.clock};
 *         fl_loop *loop;
 *         if (fl_loop_new(&config, &loop) < 0)
 *             return 1;
 *         if (fl_loop_timer(loop, 3600 * 1000000000ull, tea, "tea is ready", NULL) < 0)
 *             return 1;
 *         fl_loop_run(loop);      // returns at once, an hour later
 *         fl_loop_free(loop);
 *     }
 *
 * Ownership: a clock is yours and outlives every loop that uses it.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct fl_clock fl_clock;

struct fl_clock {
    /* The time. Called by the thread of every loop that uses the clock, often: after each callback. */
    uint64_t (*now_ns)(fl_clock *clock);

    /* The loop has nothing to do before `deadline_ns`: let the time pass, to there or at least toward it. The loop looks
     * again afterwards. It is called only when no descriptor is ready and nothing was posted, and never without a
     * deadline: with no timer pending, the loop sleeps until the outside wakes it, whatever the clock.
     *
     * NULL means that `now_ns` counts at the pace of CLOCK_MONOTONIC, from whatever moment, and the loop sleeps in the
     * kernel. If the clock runs ahead of that pace, or is set forward, the loop may sleep too long; it is never early. */
    void (*wait_until)(fl_clock *clock, uint64_t deadline_ns);
};

/* The machine's CLOCK_MONOTONIC, which every loop uses unless told otherwise. Any thread. Never NULL; not to be freed. */
fl_clock *fl_clock_monotonic(void);

/* A clock that stands still, except that it jumps to the next deadline when its loop has nothing else to do. */
typedef struct fl_virtual_clock {
    fl_clock clock;
    uint64_t time_ns; /* yours to move forward, from the thread of the loop */
} fl_virtual_clock;

void fl_virtual_clock_init(fl_virtual_clock *clock, uint64_t start_ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
