/* SPDX-License-Identifier: MIT */
/* The metrics of namespaces.
 *
 * Each series costs the collector memory, so at most SERIES_MOST namespaces have series. The first namespaces keep their
 * series while they have values. Two totals tell how many namespaces exist, and how many have no series.
 *
 * Namespaces are handled some at a time: values are collected first, then written family by family. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

enum { SERIES_MOST = 1000, WRITTEN_AT_ONCE = 200 };

enum { PENDING, DONE, FAILED, DEAD, PAUSED, PAUSED_SINCE, FAMILIES };

static const struct {
    const char *name, *type, *help;
} families[FAMILIES] = {
    [PENDING] = {"namespace_timers_pending", "gauge", "Timers that have not fired."},
    [DONE] = {"namespace_attempts_done_total", "counter", "Attempts that succeeded."},
    [FAILED] = {"namespace_attempts_failed_total", "counter", "Attempts that failed."},
    [DEAD] = {"namespace_timers_dead_total", "counter", "Timers that became dead letters."},
    [PAUSED] = {"namespace_paused", "gauge", "1 while the namespace is paused, 0 otherwise."},
    [PAUSED_SINCE] = {"namespace_paused_since_seconds", "gauge", "When the pause began, in seconds since 1970."},
};

struct sample {
    int64_t values[FAMILIES];
    size_t size, reason_size; /* of the name; of the pause's reason */
    char name[FL_STORE_NAME_MAX], reason[PAUSE_REASON_MOST];
};

struct noting {
    struct space_walk walk;
    struct call *call;
    void (*done)(struct call *call);
    uint64_t existing, without_series;
    struct sample *samples;
    size_t count, capacity;
    size_t written; /* samples of all families together */
    fl_loop_task task;
};

static bool has_something_to_tell(const int64_t values[FAMILIES], struct space *space)
{
    return space_exists(space) || values[PENDING] > 0 || values[DONE] > 0 || values[FAILED] > 0 || values[DEAD] > 0;
}

/* Whether it has series of its own, after having been given or having lost them. */
static bool decide_series(atomic_uint *series, struct space *space, bool wanted)
{
    bool has = atomic_load(&space->series);
    if (has == wanted)
        return has;
    if (wanted && atomic_fetch_add(series, 1) >= SERIES_MOST) {
        atomic_fetch_sub(series, 1);
        return false;
    }
    if (!atomic_compare_exchange_strong(&space->series, &has, wanted)) { /* another worker was first */
        if (wanted)
            atomic_fetch_sub(series, 1);
    } else if (!wanted) {
        atomic_fetch_sub(series, 1);
    }
    return wanted;
}

static void note(struct noting *noting, const struct space *space, const struct pause *pause,
                 const int64_t values[FAMILIES])
{
    if (noting->count == noting->capacity) {
        size_t capacity = noting->capacity * 2 + 64;
        struct sample *samples = realloc(noting->samples, capacity * sizeof *samples);
        if (!samples) {
            noting->call->out.failed = true;
            return;
        }
        noting->samples = samples;
        noting->capacity = capacity;
    }
    struct sample *sample = &noting->samples[noting->count++];
    memcpy(sample->values, values, sizeof sample->values);
    memcpy(sample->name, space->name, space->size);
    sample->size = space->size;
    sample->reason_size = values[PAUSED] ? pause->reason_size : 0;
    memcpy(sample->reason, pause->reason, sample->reason_size);
}

static void visit(struct space_walk *walk, struct space *space)
{
    struct noting *noting = (struct noting *)walk;
    int64_t pending = atomic_load(&space->pending);
    const struct pauses *pauses = &atomic_load(&space->settings)->pauses;
    bool paused = pauses_are_on(pauses, node_now(walk->worker->node));
    const int64_t values[FAMILIES] = {
        [PENDING] = pending > 0 ? pending : 0,
        [DONE] = atomic_load(&space->fired),
        [FAILED] = atomic_load(&space->failed),
        [DEAD] = atomic_load(&space->dead),
        [PAUSED] = paused,
        [PAUSED_SINCE] = paused ? pauses->now.since_us / 1000000 : 0,
    };
    bool wanted = has_something_to_tell(values, space);
    noting->existing += space_exists(space);
    if (decide_series(spaces_series(walk->worker->node), space, wanted))
        note(noting, space, &pauses->now, values);
    else
        noting->without_series += wanted;
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

static void write_head(struct out *out, const char *name, const char *type, const char *help)
{
    out_format(out, "# HELP foliot_%s %s\n# TYPE foliot_%s %s\n", name, help, name, type);
}

void metrics_write_label(struct out *out, const char *name, fl_bytes value)
{
    const char *text = value.data;
    out_format(out, "%s=\"", name);
    for (size_t i = 0; i < value.size; i++) {
        if (text[i] == '"' || text[i] == '\\' || text[i] == '\n')
            out_put(out, "\\", 1);
        out_put(out, text[i] == '\n' ? "n" : &text[i], 1);
    }
    out_text(out, "\"");
}

static void write_sample(struct out *out, unsigned family, const struct sample *sample)
{
    if (family == PAUSED_SINCE && !sample->values[PAUSED])
        return;
    out_format(out, "foliot_%s{", families[family].name);
    metrics_write_label(out, "namespace", (fl_bytes){sample->name, sample->size});
    if (family == PAUSED_SINCE)
        metrics_write_label(out, ",reason", (fl_bytes){sample->reason, sample->reason_size});
    out_format(out, "} %" PRId64 "\n", sample->values[family]);
}

static void write_on(fl_loop *loop, void *arg)
{
    struct noting *noting = arg;
    struct call *call = noting->call;
    void (*done)(struct call *) = noting->done;
    for (size_t n = 0; n < WRITTEN_AT_ONCE && noting->written < noting->count * FAMILIES; n++, noting->written++) {
        unsigned family = (unsigned)(noting->written / noting->count);
        size_t i = noting->written % noting->count;
        if (i == 0)
            write_head(&call->out, families[family].name, families[family].type, families[family].help);
        write_sample(&call->out, family, &noting->samples[i]);
    }
    if (noting->written < noting->count * FAMILIES) {
        fl_loop_post_task(loop, &noting->task);
        return;
    }
    free(noting->samples);
    free(noting);
    done(call);
}

static void noted(struct space_walk *walk)
{
    struct noting *noting = (struct noting *)walk;
    struct out *out = &noting->call->out;
    write_head(out, "namespaces", "gauge", "Namespaces that have timers or settings.");
    out_format(out, "foliot_namespaces %" PRIu64 "\n", noting->existing);
    write_head(out, "namespaces_without_series", "gauge",
               "Namespaces that are not among the 1,000 that have series of their own.");
    out_format(out, "foliot_namespaces_without_series %" PRIu64 "\n", noting->without_series);
    noting->task = (fl_loop_task){.fn = write_on, .arg = noting};
    write_on(walk->worker->loop, noting);
}

void spaces_metrics(struct call *call, void (*done)(struct call *call))
{
    struct noting *noting = calloc(1, sizeof *noting);
    if (!noting) {
        call->out.failed = true;
        done(call);
        return;
    }
    *noting = (struct noting){.walk = {.visit = visit, .done = noted}, .call = call, .done = done};
    space_walk_begin(&noting->walk, call->worker);
}
