/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_LOOP_STOPWATCH_H
#define FOLIOT_LOOP_STOPWATCH_H

/* How long callbacks take.
 *
 * Between two callbacks the time must be taken once. Reading the clock would be the dearest part of a short callback, so
 * on the machine's clock the processor's own counter is read, which takes less than half as long. How long its ticks are
 * is known from the whole life of the loop, at whose ends both were read; while it is young, that is not exact enough, and
 * the clock is read after all. It serves for statistics only: no timer depends on it. On another clock, or where there is
 * no such counter, a tick is a nanosecond of the clock.
 */

#include <stdbool.h>
#include <stdint.h>

#include <foliot/clock.h>

struct stopwatch {
    fl_clock *clock;
    bool counter;                 /* ticks are the processor's */
    uint64_t born_ns, born_ticks; /* when the loop was made */
    uint64_t turn_ns, turn_ticks; /* when the turn began */
    uint64_t callback_ticks;      /* when the callback that runs was called */
    bool young;                   /* tick_ns is not exact yet */
    double tick_ns;               /* how long a tick is, as far as was known when the turn began */
};

/* Ticks after which the few dozen that pass between reading one and reading the other no longer matter: about a
 * millisecond. */
#define STOPWATCH_YOUTH (UINT64_C(1) << 22)

static inline uint64_t stopwatch_read(const struct stopwatch *watch)
{
#if defined(__x86_64__)
    if (watch->counter)
        return __builtin_ia32_rdtsc();
#endif
    return watch->clock->now_ns(watch->clock);
}

static inline void stopwatch_init(struct stopwatch *watch, fl_clock *clock, uint64_t now_ns)
{
    *watch = (struct stopwatch){.clock = clock, .born_ns = now_ns, .tick_ns = 1};
#if defined(__x86_64__)
    watch->counter = clock == fl_clock_monotonic();
#endif
    watch->born_ticks = stopwatch_read(watch);
}

/* How long a tick is if it is now `now_ns` and `ticks`. */
static inline double stopwatch_tick_ns(const struct stopwatch *watch, uint64_t now_ns, uint64_t ticks)
{
    if (!watch->counter || ticks <= watch->born_ticks)
        return 1;
    return (double)(now_ns - watch->born_ns) / (double)(ticks - watch->born_ticks);
}

static inline void stopwatch_begin_turn(struct stopwatch *watch, uint64_t now_ns)
{
    watch->turn_ns = now_ns;
    watch->turn_ticks = watch->callback_ticks = stopwatch_read(watch);
    watch->young = watch->counter && watch->turn_ticks - watch->born_ticks < STOPWATCH_YOUTH;
    watch->tick_ns = stopwatch_tick_ns(watch, now_ns, watch->turn_ticks);
}

/* The loop has worked for itself since the last callback: that is not the next one's time. */
static inline void stopwatch_begin_callbacks(struct stopwatch *watch)
{
    uint64_t now = stopwatch_read(watch);
    if (now > watch->callback_ticks)
        watch->callback_ticks = now;
}

/* How many ticks the callback took. A counter that goes back, on a machine whose processors disagree, stands still. */
static inline uint64_t stopwatch_end_callback(struct stopwatch *watch)
{
    uint64_t now = stopwatch_read(watch), before = watch->callback_ticks;
    if (now <= before)
        return 0;
    watch->callback_ticks = now;
    return now - before;
}

/* When the next callback starts. */
static inline uint64_t stopwatch_now_ns(const struct stopwatch *watch)
{
    uint64_t since = watch->callback_ticks - watch->turn_ticks;
    if (__builtin_expect(watch->young, 0))
        return watch->clock->now_ns(watch->clock);
    return watch->turn_ns + (watch->counter ? (uint64_t)((double)(int64_t)since * watch->tick_ns) : since);
}

#endif
