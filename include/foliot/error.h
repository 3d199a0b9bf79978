/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_ERROR_H
#define FOLIOT_ERROR_H

/* Errors of every layer.
 *
 * A function that can fail returns 0, or one of these negative codes; its out-parameters are then untouched.
 *
 *     fl_wheel *wheel;
 *     int r = fl_wheel_new(NULL, &wheel);
 *     if (r < 0)
 *         fprintf(stderr, "%s: %s\n", fl_errname(r), fl_strerror(r));
 */

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* X(name, code, text): the one table that names, numbers and explains an error. */
#define FL_ERROR_MAP(X)                                                                                          \
    X(INVALID_TIMER_ID, -1, "this is not a timer ID: its level, spoke or generation is impossible")              \
    X(INVALID_DEADLINE, -2, "the deadline is zero, before the start time, or in the past by more than one tick") \
    X(DEADLINE_TOO_FAR, -3, "the deadline is further away than the wheel reaches; schedule by best fit instead") \
    X(CAPACITY_EXCEEDED, -4, "a spoke, queue or table has reached its maximum size")                             \
    X(OVERFLOW, -5, "the time does not fit in 64 bits of nanoseconds")                                           \
    X(TIMER_NOT_FOUND, -6, "the timer does not exist: it has fired, was cancelled, or was never created")        \
    X(NO_MEMORY, -7, "out of memory; nothing was changed")                                                       \
    X(INVALID_ARGUMENT, -8, "an argument is outside the range that the function accepts")                        \
    X(EXISTS, -9, "the object exists already")                                                                   \
    X(NOT_FOUND, -10, "the object does not exist")                                                               \
    X(BUSY, -11, "the object is in use; do not call this from a callback of the same loop")                      \
    X(SYSTEM, -12, "a system call failed")                                                                       \
    X(SHARD_LOST, -13, "another owner has claimed the shard; nothing was written")                               \
    X(SHARD_HELD, -14, "another owner holds the shard")                                                          \
    X(OUTCOME_UNKNOWN, -15, "the store did not respond in time; the change may or may not have taken effect")    \
    X(STORE_UNAVAILABLE, -16, "the store cannot be reached; nothing was written")                                \
    X(STORE_FULL, -17, "the disk of the store is full; nothing was written")                                     \
    X(STORE_READ_ONLY, -18, "the store is read-only; nothing was written")                                       \
    X(STORE_CORRUPT, -19, "the store is damaged; restore it from a backup")                                      \
    X(STORE_NEWER, -20, "a later version of Foliot created the store; use that version")                         \
    X(STORE_LOCKED, -21, "another process has the store open")                                                   \
    X(TOO_LARGE, -22, "the data is larger than the configured limit")                                            \
    X(STOPPED, -23, "the engine is not running")                                                                 \
    X(CHANGED, -24, "the object has changed since it was read; read it again")

enum fl_error {
#define FL_ERROR_ENUM(name, code, text) FL_##name = (code),
    FL_ERROR_MAP(FL_ERROR_ENUM)
#undef FL_ERROR_ENUM
};

/* The error as a sentence, such as "out of memory; nothing was changed". Never NULL, any thread; 0 is "success". */
const char *fl_strerror(int error);

/* The error's name, such as "FL_NO_MEMORY". Never NULL, any thread; "FL_OK" for 0, "FL_UNKNOWN" for a foreign code. */
const char *fl_errname(int error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
