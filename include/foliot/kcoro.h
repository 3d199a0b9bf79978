/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_KCORO_H
#define FOLIOT_KCORO_H

/* The timer functions of the kcoro scheduler, for programs that are written for it.
 *
 *     static void my_coro_fn(void *arg)
 *     {
 *         fl_coro_park();
 *         puts(arg);
 *     }
 *
 *     int main(void)
 *     {
 *         kc_sched_t *s = kc_sched_default();
 *         kcoro_t *co = NULL;
 *         if (kc_spawn_co(s, my_coro_fn, "good morning", 64 * 1024, &co) < 0)
 *             return 1;
 *         kc_sched_timer_wake_after(s, co, 100);   // unparks it in 100 ms
 *         fl_coro_join(co);
 *         fl_coro_unref(co);
 *     }
 *
 * They are other names for what foliot/coro.h has: a kc_sched_t is an fl_runtime, a kcoro_t an fl_coro. The functions of
 * the two headers may be mixed; parking is fl_coro_park(). Times are those of CLOCK_MONOTONIC.
 */

#include <stddef.h>

#include <foliot/coro.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef fl_runtime kc_sched_t;
typedef fl_coro kcoro_t;

/* Names a timer. The id 0 names none: the timer could not be made. */
typedef struct kc_timer_handle {
    unsigned long long id;
} kc_timer_handle_t;

/* The scheduler of the process, with a worker for each processor; made at the first call and never freed. NULL if it
 * cannot be made; the next call tries again. Any thread. */
kc_sched_t *kc_sched_default(void);

/* Makes a coroutine. With a `stack_size` it has a stack of its own, of at least that size; with 0 it shares its worker's,
 * see foliot/coro.h for what that asks of it. `s` NULL: the default scheduler. `out` may be NULL; else it gets a
 * reference, to be given back with fl_coro_unref(). Returns as fl_coro_spawn(). */
int kc_spawn_co(kc_sched_t *s, void (*fn)(void *arg), void *arg, size_t stack_size, kcoro_t **out);

/* Sleeps: the coroutine, if one calls it, and no thread is blocked; else the thread. 0 or less returns at once. */
void kc_sleep_ms(int ms);

/* Wakes the coroutine, if it is parked or when it parks next, at or after a time; promptly if that has passed. A delay of
 * 0 or less is 0. Each timer fires once at most; a wake-up for a coroutine that has one coming already is ignored. The
 * coroutine decides where it is woken: it need not belong to `s`, and `s` may be NULL. */
kc_timer_handle_t kc_sched_timer_wake_after(kc_sched_t *s, kcoro_t *co, long delay_ms);
kc_timer_handle_t kc_sched_timer_wake_at(kc_sched_t *s, kcoro_t *co, unsigned long long deadline_ns);

/* Cancels a timer of the coroutines of `s` (NULL: the default scheduler). Returns 0: the wake-up will not come. Returns
 * FL_TIMER_NOT_FOUND if it has come or is just coming, was cancelled, or never was. */
int kc_sched_timer_cancel(kc_sched_t *s, kc_timer_handle_t h);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
