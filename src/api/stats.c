/* SPDX-License-Identifier: MIT */
/* GET /v1/stats: the last hour in steps of ten seconds, of a namespace or of all, summed over all servers. */

#include <inttypes.h>

#include "api/internal.h"
#include "api/timer.h"

int stats_read_namespace(struct call *call, char room[256], fl_bytes *ret)
{
    *ret = (fl_bytes){0};
    int given = call_query(call, "namespace", room, 256, ret);
    if (given < 0)
        return -1;
    if (given > 0 && !name_is_good(*ret))
        return problem_set(&call->problem, 400, "invalid-field", "namespace",
                           "namespace must be 1 to 255 bytes of UTF-8 without control characters");
    if (!call_may(call, RIGHT_READ, *ret))
        return problem_set(&call->problem, 403, "forbidden", "namespace",
                           given > 0 ? "the token has no right to read this namespace"
                                     : "the token has no right to read all namespaces; give one as namespace=");
    return 0;
}

static int64_t first_step(const struct stats *sum)
{
    int64_t first = sum->last;
    for (unsigned i = 0; i < STATS_STEPS; i++)
        if (sum->ring.steps[i].number > 0 && sum->ring.steps[i].number < first)
            first = sum->ring.steps[i].number;
    return first;
}

static const struct stats_step *step_of(const struct stats *sum, int64_t number)
{
    static const struct stats_step none;
    const struct stats_step *step = &sum->ring.steps[number % STATS_STEPS];
    return step->number == number ? step : &none;
}

static void write_counts(struct out *out, const struct stats *sum, int64_t first, enum stats_kind kind)
{
    for (int64_t number = first; number <= sum->last; number++)
        out_format(out, "%s%" PRIu32, number > first ? "," : "", step_of(sum, number)->counts[kind]);
}

static void write_lateness(struct out *out, const struct stats *sum, int64_t first)
{
    out_text(out, ",\"lateness\":{\"le_ms\":[");
    for (unsigned i = 0; i < STATS_BUCKETS - 1; i++)
        out_format(out, "%s%" PRIu32, i > 0 ? "," : "", stats_bucket_ms(i));
    out_text(out, "],\"counts\":[");
    for (unsigned i = 0; i < STATS_BUCKETS; i++) {
        out_text(out, i > 0 ? ",[" : "[");
        for (int64_t number = first; number <= sum->last; number++)
            out_format(out, "%s%" PRIu32, number > first ? "," : "", step_of(sum, number)->lateness[i]);
        out_text(out, "]");
    }
    out_text(out, "]}");
}

void stats_write_gauges(struct out *out, const struct stats_gauges *g, bool all)
{
    out_format(out, "\"gauges\":{\"pending\":%" PRId64 ",\"waiting_for_lease\":%" PRId64,
               g->pending > 0 ? g->pending : 0, g->waiting_for_lease);
    if (all)
        out_format(out,
                   ",\"in_flight\":%" PRId64 ",\"leased\":%" PRId64 ",\"waiting_for_host\":%" PRId64
                   ",\"oldest_overdue_ms\":%" PRId64,
                   g->in_flight, g->leased, g->waiting_for_host > 0 ? g->waiting_for_host : 0,
                   g->oldest_overdue_us / 1000);
    out_text(out, "}");
}

static void answer(void *arg, const struct stats *sum)
{
    static const char *const names[] = {"created", "fired", "failed", "dead", "cancelled", "skipped"};
    struct call *call = arg;
    struct out *out = &call->out;
    int64_t first = first_step(sum);
    out_text(out, "{\"from\":");
    out_time(out, first * STATS_STEP_US);
    out_format(out, ",\"step_s\":%d", STATS_STEP_US / 1000000);
    for (unsigned i = 0; i < STATS_KINDS; i++) {
        out_format(out, ",\"%s\":[", names[i]);
        write_counts(out, sum, first, (enum stats_kind)i);
        out_text(out, "]");
    }
    write_lateness(out, sum, first);
    out_text(out, ",");
    stats_write_gauges(out, &sum->gauges, call->status == 0);
    out_format(out, ",\"servers\":%u}", sum->servers);
    call_answer(call, 200);
}

void stats_get(struct call *call)
{
    static const char *const known[] = {"namespace", NULL};
    char room[256];
    fl_bytes ns;
    if (call_check_query(call, known) < 0 || stats_read_namespace(call, room, &ns) < 0) {
        call_refuse(call);
        return;
    }
    call->status = ns.size > 0; /* whether it is of one namespace */
    if (stats_ask(call->worker, ns, true, answer, call) < 0)
        call_refuse_result(call, FL_NO_MEMORY);
}
