/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WEBTIMERS_H
#define FOLIOT_WEBTIMERS_H

/* setTimeout() and setInterval() as browsers have them, for any JavaScript engine, on an event loop.
 *
 *     static int invoke(void *host, const fl_webtimers_call *call)
 *     {
 *         (void)host;
 *         puts(call->handler);
 *         return 0;
 *     }
 *
 *     int main(void)
 *     {
 *         fl_loop *loop;
 *         fl_webtimers *timers;
 *         fl_webtimers_host host = {.invoke = invoke};
 *         if (fl_loop_new(NULL, &loop) < 0 || fl_webtimers_new(loop, &host, &timers) < 0)
 *             return 1;
 *         fl_webtimers_set_timeout(timers, 20, "world", NULL, 0, NULL);
 *         fl_webtimers_set_timeout(timers, 10, "hello", NULL, 0, NULL);
 *         fl_loop_run(loop);
 *         fl_webtimers_free(timers);
 *         fl_loop_free(loop);
 *     }
 *
 * The rules are those of the HTML standard, section "Timers":
 *
 *   - IDs are from 1 to 2^31 - 1. Timeouts and intervals share them, and fl_webtimers_clear() ends either kind. An ID is
 *     not given again before all the others had their turn.
 *   - A delay is in milliseconds, converted as Web IDL converts to `long`: fl_webtimers_delay_ms() says how. It counts
 *     from the moment of the call, for which the clock is read; no handler is called early, not by a nanosecond.
 *   - Timers with equal delays are called in the order in which they were set, and so is one with a longer delay after
 *     an earlier one with a shorter delay.
 *   - Every call of a handler is a task with a nesting level, one more than that of the task in which the timer was set;
 *     an interval's rises with each call. In a task of a level above 5 a delay is at least 4 ms. So the seventh timer of
 *     a chain, each of which is set by the one before, is the first that is clamped. What is set in a microtask, or in
 *     no task of this kind, starts anew.
 *   - A timer that is cleared is not called, even if it is due in the same turn.
 *   - An interval is armed anew after its handler and the microtasks that follow it, under the same ID. Should memory
 *     be short then, it goes on all the same, no more often than every 4 ms.
 *   - What a handler throws is reported. Everything goes on.
 *
 * The engine is the host's: these functions never look behind a `void *` of it.
 *
 * Threads: everything here is for the thread that runs the loop. The host's functions may call all of it, free included.
 *
 * Failing: 0, or a negative code of foliot/error.h; then nothing was changed and the out-parameters are untouched.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <foliot/error.h>
#include <foliot/loop.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct fl_webtimers fl_webtimers;

/* A handler that is to be called: only good until invoke() returns. */
typedef struct fl_webtimers_call {
    int32_t id;
    void *handler;
    void *const *arguments; /* the extra arguments, in their order */
    size_t argument_count;
} fl_webtimers_call;

/* What the timers need of an engine. For each call of a handler, invoke() comes first, then checkpoint(), then, if the
 * handler has thrown, report(). */
typedef struct fl_webtimers_host {
    /* Calls the handler. Returns 0, or anything else if it has thrown; what, the host keeps until it is asked. */
    int (*invoke)(void *host, const fl_webtimers_call *call);

    /* Reports what the handler of the last invoke() has thrown. `thrown` is what invoke() returned. NULL: errors are dropped. */
    void (*report)(void *host, int thrown);

    /* Runs microtasks until there are none. NULL: the engine has done so before invoke() returned. */
    void (*checkpoint)(void *host);

    /* The timer has ended: called once for its handler and for each of its arguments, when it was cleared (even by its
     * own handler, which still runs), when its timeout and the microtasks after it have run, or when all timers are
     * freed. NULL: there is nothing to do. */
    void (*release)(void *host, void *value);

    void *host; /* the first argument of these functions */
} fl_webtimers_host;

/* Makes an empty set of timers on a loop, which must outlive it. `host` is copied.
 * Returns 0; FL_INVALID_ARGUMENT if there is no invoke(); FL_NO_MEMORY. */
int fl_webtimers_new(fl_loop *loop, const fl_webtimers_host *host, fl_webtimers **ret);

/* Clears all timers and frees the set. NULL is allowed. Inside of a host's function the set is empty at once, refuses new
 * timers with FL_BUSY, and is gone when the handler's call is over. */
void fl_webtimers_free(fl_webtimers *timers);

/* Calls `handler` once, after `delay` milliseconds, with a copy of the arguments. `ret_id` may be NULL.
 * Returns 0; FL_CAPACITY_EXCEEDED beyond the 2^26 timers of a loop; FL_BUSY if the set was freed; FL_NO_MEMORY. */
int fl_webtimers_set_timeout(fl_webtimers *timers, double delay, void *handler, void *const *arguments,
                             size_t argument_count, int32_t *ret_id);

/* The same again and again, each time `delay` milliseconds after the last call is over. */
int fl_webtimers_set_interval(fl_webtimers *timers, double delay, void *handler, void *const *arguments,
                              size_t argument_count, int32_t *ret_id);

/* Ends a timeout or an interval, or gives a reserved ID back. An ID that names none is ignored, as the standard wants.
 * Returns whether there was one. */
bool fl_webtimers_clear(fl_webtimers *timers, int32_t id);

/* How many timers there are. A timeout is none any more when its handler is called; an interval is one until cleared. */
uint64_t fl_webtimers_count(const fl_webtimers *timers);

/* --- For hosts that tell of their timers later ---------------------------------------------------------------------
 *
 * To leave an engine for each timer may cost more than the timer does. A host can take IDs in advance, give them to its
 * scripts, and start the timers when the script has returned. */

/* Takes an ID for a timer that is yet to be started. Returns 0; FL_BUSY if the set was freed; FL_NO_MEMORY. */
int fl_webtimers_reserve(fl_webtimers *timers, int32_t *ret_id);

/* How a reserved timer is to be. The zero value of every member but `handler` is its default. */
typedef struct fl_webtimers_options {
    double delay;       /* milliseconds */
    uint64_t called_ns; /* when the script has set it, on the loop's clock and in this turn of the loop; 0: now */
    bool repeat;        /* an interval */
    bool microtask;     /* it was set in a microtask, of an engine that runs them before invoke() returns */
    void *handler;
    void *const *arguments;
    size_t argument_count;
} fl_webtimers_options;

/* Starts a timer whose ID was reserved. Returns 0; FL_TIMER_NOT_FOUND if it was not, was started already or cleared;
 * otherwise as fl_webtimers_set_timeout(): the ID is then still reserved. */
int fl_webtimers_start(fl_webtimers *timers, int32_t id, const fl_webtimers_options *options);

/* IDs that are reserved or in use differ modulo this number, a power of two that grows with them: in an array of this
 * length, each has a place of its own. It becomes smaller only when there is neither a timer nor a reserved ID. */
uint32_t fl_webtimers_places(const fl_webtimers *timers);

/* --- Numbers ----------------------------------------------------------------------------------------------------- */

/* A number as Web IDL converts it to a `long`: the fraction is cut off, the rest taken modulo 2^32 into the range from
 * -2^31 to 2^31 - 1; what is not finite is 0. IDs are converted so. Any thread. */
int32_t fl_webtimers_long(double number);

/* A delay in milliseconds as timers take it: fl_webtimers_long(), and 0 if that is negative. Any thread. */
uint32_t fl_webtimers_delay_ms(double delay);

/* Checks every invariant, in time proportional to the number of timers. Returns 0, or FL_INVALID_ARGUMENT after having
 * written what is broken to `explain` (may be NULL). For tests and debugging. */
int fl_webtimers_check(const fl_webtimers *timers, FILE *explain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
