/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_OVERFLOW_H
#define FOLIOT_CORO_OVERFLOW_H

/* Stack overflow ends with a message that names the coroutine.
 *
 * A coroutine that runs off its stack touches the guard below it and gets SIGSEGV. The handler runs on a signal stack of
 * the thread, sees that the address is in the guard of the stack that the thread is on, writes the message and passes the
 * signal on, as it does with every other fault: to the handler that was there before, or to the kernel. A SIGSEGV that
 * another process has sent is no fault and goes the same way.
 */

/* Prepares the calling thread; the handler is installed by the first call in the process. Returns what
 * fl__coro_overflow_unwatch() wants, NULL if the thread has a signal stack already or there is no memory for one. */
void *fl__coro_overflow_watch(void);
void fl__coro_overflow_unwatch(void *signal_stack); /* NULL is allowed */

#endif
