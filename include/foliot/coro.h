/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CORO_H
#define FOLIOT_CORO_H

/* Coroutines: functions that sleep and wait without keeping a thread, a million of them if need be.
 *
 *     static void tea(void *arg)
 *     {
 *         fl_sleep_ms(3000);
 *         puts(arg);
 *     }
 *
 *     int main(void)
 *     {
 *         fl_runtime *rt;
 *         fl_coro *coro;
 *         if (fl_runtime_new(NULL, &rt) < 0 || fl_coro_spawn(rt, NULL, tea, "tea is ready", &coro) < 0)
 *             return 1;
 *         fl_coro_join(coro);
 *         fl_coro_unref(coro);
 *         fl_runtime_free(rt);
 *     }
 *
 * A coroutine runs on a worker of a runtime until it sleeps, waits, parks, yields or returns; then the worker runs
 * another one, or its timers and tasks. Nothing interrupts it, and the coroutines of one worker never run at the same
 * time. Ready coroutines run in the order in which they became ready: a coroutine that is woken, or whose sleep is over, waits
 * for all that could run before.
 *
 * Where its variables are. Unless it asks for a stack of its own, a coroutine runs on a stack that its worker's
 * coroutines share. While it waits, what it has on the stack may be copied away, a few hundred bytes as a rule, and
 * it is copied back to the same addresses before it goes on. So for a coroutine without its own stack: NOBODY ELSE MAY
 * USE THE ADDRESS OF ONE OF ITS LOCAL VARIABLES WHILE IT WAITS. What others are to read or write meanwhile, memory for
 * another coroutine or a descriptor's buffer that another thread fills, comes from the heap or is static; or the
 * coroutine asks for its own stack (fl_coro_options.stack_size), and the rule does not concern it. A coroutine with more
 * than about half a kilobyte on the stack is left where it is, at the price of a stack, as long as those that began
 * there before are not in need of it; the rule holds all the same.
 *
 * Which worker. A coroutine stays on the worker on which it was spawned: that of the caller, or, from a thread that
 * is no worker of the runtime, each in turn. When fl_runtime_resize() takes a worker away, its coroutines go on
 * together on another one, or wait until there is one. A coroutine must therefore not keep the address of a thread-local
 * variable (errno is one) across a wait.
 *
 * Waking. fl_coro_unpark() and fl_coro_wake_at() are for fl_coro_park() alone: they end no sleep and no wait for a
 * descriptor. A wake-up that comes when its coroutine is not parked is kept, and its next fl_coro_park() returns at once.
 * All wake-ups that come before a fl_coro_park() returns count as one.
 *
 * Outside a coroutine, on any thread, fl_sleep_…(), fl_coro_wait_fd() and fl_coro_join() block the thread.
 *
 * Stack overflow: a coroutine that runs off the end of its stack hits 64 KiB that cannot be touched; a message with the name of the
 * coroutine goes to standard error and the program ends by SIGSEGV. (Compile functions with larger frames than that with
 * -fstack-clash-protection, or they may step over it.) For this the first coroutine of a process installs a handler for
 * SIGSEGV, which passes every other fault, and what raise() or kill() send, on to the handler that was there before.
 *
 * fl_runtime_free() ends what waits: coroutines that have not returned never go on, their stacks are freed without a
 * look, and joining them returns, also for coroutines of other runtimes. Threads: any, unless said otherwise.
 *
 * Switching preserves what a function call preserves. The signal mask and the floating-point modes are the worker's. In
 * C++ a coroutine may wait in a catch block and in a destructor while an exception is on its way: its exceptions stay with
 * it, if the C++ runtime is loaded no later than this library. None may leave the coroutine's function.
 *
 * Failing: 0, or a negative code of foliot/error.h; then nothing was changed and the out-parameters are untouched.
 */

#include <stddef.h>
#include <stdint.h>

#include <foliot/error.h>
#include <foliot/loop.h> /* FL_READ, FL_WRITE */
#include <foliot/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct fl_coro fl_coro;

/* --- Sleeping ---------------------------------------------------------------------------------------------------- */

/* Sleeps for at least that long by the runtime's clock (outside a coroutine: CLOCK_MONOTONIC). 0 returns at once, and so
 * does a negative number of milliseconds. Returns 0. */
int fl_sleep_ns(uint64_t duration_ns);
int fl_sleep_ms(int64_t duration_ms);

/* Sleeps until the clock has reached `deadline_ns`; if it has, returns at once. Returns as fl_sleep_ns(). */
int fl_sleep_until_ns(uint64_t deadline_ns);

/* The time of the running coroutine's runtime; outside a coroutine, CLOCK_MONOTONIC. */
uint64_t fl_coro_now_ns(void);

/* --- Coroutines -------------------------------------------------------------------------------------------------- */

/* The zero value of every member is its default. */
typedef struct fl_coro_options {
    const char *name;  /* for messages; must outlive the coroutine. NULL: none */
    size_t stack_size; /* 0: on the shared stack; else a stack of its own, of that size rounded up to a power of two of
                        * 16 KiB or more, at most 1 GiB */
} fl_coro_options;

/* Makes a coroutine that runs fn(arg) soon: not before the caller waits or returns if that is a worker of `rt`, perhaps at
 * once if it is another thread. `options` may be NULL. `ret` may be NULL; else it gets a reference, which is the caller's,
 * before the coroutine begins. A worker may pass NULL for its own runtime.
 * Returns 0; FL_INVALID_ARGUMENT if `fn` is NULL, the stack is too large, or `rt` is NULL and the caller is no worker;
 * FL_NO_MEMORY. If there is no memory for its stack later, it starts when there is. */
int fl_coro_spawn(fl_runtime *rt, const fl_coro_options *options, fl_task_fn fn, void *arg, fl_coro **ret);

/* The coroutine that calls; NULL outside. No reference: it is valid while the coroutine runs. */
fl_coro *fl_coro_self(void);

/* The name it was given; NULL if none. */
const char *fl_coro_name(const fl_coro *coro);

/* One more reference; returns `coro`. A coroutine lives until it has returned and no reference is left. */
fl_coro *fl_coro_ref(fl_coro *coro);

/* One less; the coroutine itself goes on. NULL is allowed. */
void fl_coro_unref(fl_coro *coro);

/* Gives a turn to everything else of this worker that can run now: other coroutines, also those whose time is up or whose
 * descriptor is ready, timers that are due, tasks, and what is on the worker's loop. Outside a coroutine, yields the
 * thread. */
void fl_coro_yield(void);

/* Waits until the coroutine is woken by fl_coro_unpark() or a timed wake-up; not at all if that has happened since its
 * last park. Must be called by a coroutine. */
void fl_coro_park(void);

/* Wakes a coroutine that is parked, or makes its next park return at once. Without effect if it has returned. Never
 * blocks and never fails. */
void fl_coro_unpark(fl_coro *coro);

/* Waits until the coroutine has returned; at once if it has. What it did is then visible to the caller.
 * Returns 0, or FL_INVALID_ARGUMENT if it is the caller itself. */
int fl_coro_join(fl_coro *coro);

/* --- Waking another at a time ------------------------------------------------------------------------------------ */

/* Names a wake-up that has been asked for. 0 never names one, and no two of a runtime's ever have the same. */
typedef uint64_t fl_coro_wake;

/* Unparks the coroutine when its runtime's clock has reached `deadline_ns`; at once if it has. `ret` may be NULL; it gets
 * 0 if the coroutine has returned already. Keeps a reference to the coroutine until then.
 * Returns 0; FL_CAPACITY_EXCEEDED beyond 2^31 at a time; FL_NO_MEMORY. */
int fl_coro_wake_at(fl_coro *coro, uint64_t deadline_ns, fl_coro_wake *ret);

/* The same after a delay. */
int fl_coro_wake_after(fl_coro *coro, uint64_t delay_ns, fl_coro_wake *ret);

/* Cancels a wake-up of any coroutine of that runtime. Returns 0: it will not come. FL_TIMER_NOT_FOUND: it has come, is
 * just coming, was cancelled, or never was. */
int fl_coro_wake_cancel(fl_runtime *rt, fl_coro_wake wake);

/* --- Descriptors ------------------------------------------------------------------------------------------------- */

#define FL_CORO_FOREVER UINT64_MAX

/* Waits until `fd` is ready for one of `events` (a union of FL_READ, FL_WRITE, FL_HANGUP, see foliot/loop.h), for at most
 * `timeout_ns`; 0 only looks, FL_CORO_FOREVER waits without limit. However short the time is, what is ready is found. A
 * plain file is always ready. Many coroutines may wait for one descriptor; all that it is ready for go on. Do not close it
 * meanwhile.
 * Returns what is ready of what was asked for, and FL_ERROR and FL_HANGUP without being asked (an FL_HANGUP of one
 * direction only if asked), a positive union; 0 when the time is up and nothing is ready; FL_INVALID_ARGUMENT if `fd`
 * cannot be waited for or `events` has other bits; FL_EXISTS if the program has added it to the loop of the worker;
 * FL_CAPACITY_EXCEEDED, FL_NO_MEMORY, FL_SYSTEM. */
int fl_coro_wait_fd(int fd, unsigned events, uint64_t timeout_ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
