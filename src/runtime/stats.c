/* SPDX-License-Identifier: MIT */
/* Adding up what the workers, the metronome and the threads outside have counted. Each counter is read on its own, while
 * its writer goes on. */

#include "runtime/internal.h"

static void add_shelf(struct fl_runtime_stats *ret, const struct shelf *shelf)
{
    ret->entries += counter_read(&shelf->entries);
    for (unsigned i = 0; i < BUCKETS; i++)
        ret->cancelled += atomic_load_explicit(&shelf->stripes[i].cancelled, memory_order_relaxed);
}

static void add_worker(struct fl_runtime_stats *ret, const struct fl__worker *worker)
{
    const struct runtime_counters *counters = &worker->counters;
    ret->scheduled += counter_read(&counters->scheduled);
    ret->rescheduled += counter_read(&counters->rescheduled);
    ret->fired += counter_read(&counters->fired);
    ret->cancelled += counter_read(&counters->cancelled);
    ret->migrated += counter_read(&counters->migrated);
    ret->tasks += counter_read(&counters->tasks);
    ret->stale_dropped += counter_read(&counters->stale_dropped);
    ret->scrubbed += counter_read(&counters->scrubbed);
    uint64_t longest = counter_read(&counters->scrub_longest);
    ret->scrub_longest = longest > ret->scrub_longest ? longest : ret->scrub_longest;
    add_shelf(ret, &worker->own);
    add_shelf(ret, &worker->common);
}

static void add_outside(struct fl_runtime_stats *ret, const struct outside *outside)
{
    ret->scheduled += atomic_load_explicit(&outside->scheduled, memory_order_relaxed);
    ret->rescheduled += atomic_load_explicit(&outside->rescheduled, memory_order_relaxed);
    ret->cancelled += atomic_load_explicit(&outside->cancelled, memory_order_relaxed);
}

static void set_metronome(struct fl_runtime_stats *ret, const struct metronome *metronome)
{
    ret->metronome.ticks = counter_read(&metronome->ticks);
    ret->metronome.late = counter_read(&metronome->late);
    ret->metronome.drift_worst_ns = counter_read(&metronome->drift_worst_ns);
    if (ret->metronome.ticks > 0)
        ret->metronome.drift_mean_ns = counter_read(&metronome->drift_sum_ns) / ret->metronome.ticks;
}

int fl_runtime_stats(fl_runtime *rt, struct fl_runtime_stats *ret)
{
    struct fl_runtime_stats stats = {.workers = atomic_load_explicit(&rt->active, memory_order_relaxed)};
    struct histogram lateness = {0};
    for (unsigned i = 0; i < FL_RUNTIME_MAX_WORKERS; i++) {
        const struct fl__worker *worker = worker_at(rt, i);
        if (!worker)
            break;
        add_worker(&stats, worker);
        fl__histogram_merge(&lateness, &worker->lateness);
    }
    for (unsigned i = 0; i < OUTSIDE_STRIPES; i++)
        add_outside(&stats, &rt->outside[i]);
    uint64_t gone = stats.rescheduled + stats.fired + stats.cancelled;
    stats.pending = stats.scheduled > gone ? stats.scheduled - gone : 0;
    fl__histogram_summary(&lateness, &stats.lateness_ns);
    set_metronome(&stats, &rt->metronome);
    *ret = stats;
    return 0;
}
