/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_JS_QUEUE_H
#define FOLIOT_JS_QUEUE_H

/* The way of timers from JavaScript to C.
 *
 * A call from JavaScript to C costs 75 ns, and each number that crosses in the usual way 30 to 50 ns more, because the
 * engine's lock is taken for it: more than all that a timer costs otherwise. So scripts do not call C to set or clear a
 * timer. The prelude writes down what was asked for, in arrays that both sides see, and C reads them when the script has
 * returned or an array is full. IDs for the timers to come lie ready in one of them. Handlers stay in JavaScript, in an
 * array with a place for each ID (fl_webtimers_places()). A timer that is cleared at once is never started.
 *
 * A delay counts from when the script asks for it. That is the time of reading, unless the script goes on for long. So the
 * prelude calls mark() for the first timer after a reading, and then whenever Date.now(), which is cheap, has changed since
 * the last mark. A timer counts from the end of the millisecond that its mark begins. The wall clock may be set meanwhile, and
 * Date.now() may show the same millisecond twice. So both clocks are read at each mark: if they have not advanced by the same
 * amount when the next mark, or the reading, comes, the timer counts from there. And whenever a script looks at
 * performance.now(), the time is noted for what it has set before. So a timer is late by a millisecond at most after a long
 * callback that does not look at the clock and during which the wall clock is not set, and is not early.
 */

#include <JavaScriptCore/JavaScript.h>
#include <stdint.h>

enum { QUEUE_LENGTH = 256 };

/* What is in `state`. */
enum {
    STATE_SET,     /* how many timers were set, */
    STATE_CLEARED, /* and cleared, since the last reading */
    STATE_PLACES,  /* fl_webtimers_places() */
    STATE_ID,      /* of the timer whose handler is to be called */
    STATE_TYPE,    /* what typeOf() has found */
    STATE_SHAPE,
    STATE_LENGTH
};

/* Flags of a timer. */
enum {
    SET_REPEATS = 1,  /* an interval */
    SET_HANDLING = 2, /* set in the handler of a timer, not in a microtask after it */
};

/* Each member is a typed array in JavaScript. */
struct queue {
    int32_t state[STATE_LENGTH];
    int32_t ids[QUEUE_LENGTH]; /* reserved, for the timers to be set, in this order */
    int32_t delays[QUEUE_LENGTH];
    int32_t flags[QUEUE_LENGTH];
    int32_t cleared[QUEUE_LENGTH]; /* IDs */
};

extern struct queue queue;

/* Fills the queue with IDs and defines its arrays as properties of an object. Returns as fl_webtimers_reserve(). */
int queue_begin(JSObjectRef object);

/* Does what was asked for since the last time. Not being able to ends the program, as it does when the engine itself has
 * no memory: a timer that a script has an ID for must not be lost. */
void queue_read(void);

/* The timers that are set from now on are set at this time or within the millisecond after it. */
void queue_mark(void);

/* The script is told that it is `now_ns` of the loop's clock: what it has set so far was set before. */
void queue_stamp(uint64_t now_ns);

/* Nothing runs now, and the queue was read: if there is no timer left, the memory for very many is given back. All IDs have
 * to be given up for that. */
void queue_rest(void);

#endif
