/* SPDX-License-Identifier: MIT */
/* The public functions of foliot/coro.h.
 *
 * The word. Only its coroutine sets PARKED, by a compare-and-swap that fails if a wake-up has come. The thread that takes
 * PARKED away, by setting TOKEN, makes the coroutine ready, so it is made ready once. The coroutine takes the TOKEN when it goes
 * on; a wake-up that comes before finds it and has nothing to do. A coroutine may be made ready by another thread before
 * it has really suspended: that is harmless, for it only gets into a queue which its own worker looks at later.
 */

#include <errno.h>
#include <sched.h>
#include <time.h>

#include "coro/coro.h"

/* --- References */

struct fl__record_pool fl__coro_pool = {.size = sizeof(fl_coro), .lock = PTHREAD_MUTEX_INITIALIZER};

fl_coro *fl_coro_ref(fl_coro *coro)
{
    atomic_fetch_add_explicit(&coro->refs, 1, memory_order_relaxed);
    return coro;
}

static struct fl__records *own_records(void)
{
    struct coro_sched *sched = fl__coro_sched_current();
    return sched ? &sched->records : NULL;
}

void fl_coro_unref(fl_coro *coro)
{
    if (coro && atomic_fetch_sub_explicit(&coro->refs, 1, memory_order_acq_rel) == 1)
        fl__record_give(&fl__coro_pool, own_records(), coro);
}

const char *fl_coro_name(const fl_coro *coro)
{
    return coro->name;
}

fl_coro *fl_coro_self(void)
{
    struct coro_sched *sched = fl__coro_sched_current();
    return sched ? sched->running : NULL;
}

/* --- Spawning */

static fl_runtime *own_runtime(void)
{
    struct fl__worker *worker = fl__worker_self();
    return worker ? fl__worker_runtime(worker) : NULL;
}

static fl_coro *new_coro(const fl_coro_options *options, fl_task_fn fn, void *arg, uint32_t refs)
{
    fl_coro *coro = fl__record_take(&fl__coro_pool, own_records());
    if (!coro)
        return NULL;
    *coro = (fl_coro){.fn = fn, .arg = arg, .phase = PHASE_SENT};
    atomic_init(&coro->refs, refs);
    if (options) {
        coro->name = options->name;
        coro->stack_size = options->stack_size;
    }
    return coro;
}

int fl_coro_spawn(fl_runtime *rt, const fl_coro_options *options, fl_task_fn fn, void *arg, fl_coro **ret)
{
    if (!rt)
        rt = own_runtime();
    if (!rt || !fn || (options && options->stack_size > (size_t)1 << STACK_MAX_LOG2))
        return FL_INVALID_ARGUMENT;
    struct coro_group *group = fl__coro_group_of(rt);
    fl_coro *coro = group ? new_coro(options, fn, arg, ret ? 2 : 1) : NULL;
    if (!coro)
        return FL_NO_MEMORY;
    int r = fl__coro_group_spawn(group, coro, ret);
    if (r < 0)
        fl__record_give(&fl__coro_pool, own_records(), coro);
    return r;
}

/* --- Parking */

void fl__coro_ready(struct fl_coro *coro)
{
    if (fl__coro_sched_current() == coro->sched)
        fl__coro_sched_append(coro->sched, coro);
    else
        fl__coro_sched_send(coro->sched, coro);
}

void fl_coro_yield(void)
{
    struct coro_sched *sched = fl__coro_sched_current();
    if (sched)
        fl__coro_sched_yield(sched);
    else
        sched_yield();
}

void fl_coro_park(void)
{
    struct coro_sched *sched = fl__coro_sched_current();
    if (!sched)
        return;
    fl_coro *coro = sched->running;
    uint32_t word = atomic_load(&coro->word);
    while (!(word & CORO_TOKEN))
        if (atomic_compare_exchange_weak(&coro->word, &word, word | CORO_PARKED)) {
            fl__coro_sched_suspend(sched);
            break;
        }
    atomic_fetch_and(&coro->word, ~(uint32_t)CORO_TOKEN);
}

void fl_coro_unpark(fl_coro *coro)
{
    uint32_t word = atomic_load(&coro->word);
    do
        if (word & (CORO_TOKEN | CORO_DONE))
            return;
    while (!atomic_compare_exchange_weak(&coro->word, &word, (word | CORO_TOKEN) & ~(uint32_t)CORO_PARKED));
    if (word & CORO_PARKED)
        fl__coro_ready(coro);
}

/* --- Sleeping */

static uint64_t monotonic_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t fl_coro_now_ns(void)
{
    struct coro_sched *sched = fl__coro_sched_current();
    return sched ? fl__runtime_now_ns(sched->group->rt) : monotonic_ns();
}

static int sleep_as_thread(uint64_t deadline_ns)
{
    struct timespec time = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
    return 0;
}

int fl_sleep_until_ns(uint64_t deadline_ns)
{
    struct coro_sched *sched = fl__coro_sched_current();
    if (deadline_ns > TIME_MAX)
        deadline_ns = TIME_MAX;
    if (fl_coro_now_ns() >= deadline_ns)
        return 0;
    return sched ? fl__coro_sched_sleep_until(sched, deadline_ns) : sleep_as_thread(deadline_ns);
}

int fl_sleep_ns(uint64_t duration_ns)
{
    if (duration_ns == 0)
        return 0;
    struct coro_sched *sched = fl__coro_sched_current();
    uint64_t deadline_ns = add_time(fl_coro_now_ns(), duration_ns);
    return sched ? fl__coro_sched_sleep_until(sched, deadline_ns) : sleep_as_thread(deadline_ns);
}

int fl_sleep_ms(int64_t duration_ms)
{
    if (duration_ms <= 0)
        return 0;
    uint64_t ms = (uint64_t)duration_ms;
    return fl_sleep_ns(ms > TIME_MAX / 1000000 ? TIME_MAX : ms * 1000000);
}
