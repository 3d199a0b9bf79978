/* SPDX-License-Identifier: MIT */
/* The names of foliot/kcoro.h for what foliot/coro.h has. */

#include <foliot/kcoro.h>

#include <pthread.h>
#include <sched.h>

/* A mutex and not pthread_once(): what failed may be tried again. */
kc_sched_t *kc_sched_default(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static fl_runtime *runtime;
    pthread_mutex_lock(&lock);
    if (!runtime && fl_runtime_new(NULL, &runtime) < 0)
        runtime = NULL;
    kc_sched_t *sched = runtime;
    pthread_mutex_unlock(&lock);
    return sched;
}

int kc_spawn_co(kc_sched_t *s, void (*fn)(void *arg), void *arg, size_t stack_size, kcoro_t **out)
{
    fl_coro_options options = {.stack_size = stack_size};
    if (!s)
        s = kc_sched_default();
    return s ? fl_coro_spawn(s, &options, fn, arg, out) : FL_NO_MEMORY;
}

void kc_sleep_ms(int ms)
{
    fl_sleep_ms(ms);
}

kc_timer_handle_t kc_sched_timer_wake_after(kc_sched_t *s, kcoro_t *co, long delay_ms)
{
    (void)s;
    fl_coro_wake wake = 0;
    uint64_t ms = delay_ms > 0 ? (uint64_t)delay_ms : 0;
    if (fl_coro_wake_after(co, ms > UINT64_MAX / 1000000u ? UINT64_MAX : ms * 1000000u, &wake) < 0)
        wake = 0;
    return (kc_timer_handle_t){wake};
}

kc_timer_handle_t kc_sched_timer_wake_at(kc_sched_t *s, kcoro_t *co, unsigned long long deadline_ns)
{
    (void)s;
    fl_coro_wake wake = 0;
    if (fl_coro_wake_at(co, deadline_ns, &wake) < 0)
        wake = 0;
    return (kc_timer_handle_t){wake};
}

int kc_sched_timer_cancel(kc_sched_t *s, kc_timer_handle_t h)
{
    if (!s)
        s = kc_sched_default();
    return s ? fl_coro_wake_cancel(s, h.id) : FL_TIMER_NOT_FOUND;
}
