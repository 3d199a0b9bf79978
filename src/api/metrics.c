/* SPDX-License-Identifier: MIT */
/* What operators look at: /metrics for Prometheus, /healthz, /readyz, /version. Numbers are gathered worker by worker. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <foliot/version.h>

#include "api/internal.h"

struct gathering {
    struct tour tour;
    struct call *call;
    fl_engine_stats sum;
    struct latencies lateness, durations;
    struct webhooks_stats hooks;
    struct http_stats http;
    struct worker_counts counts;
    struct api_counts api;
    uint64_t held;
};

static void add_engine(struct gathering *g, const struct shard *shard)
{
    fl_engine_stats s;
    fl_engine_get_stats(shard->engine, &s);
    g->held += shard->held;
    g->sum.pending += (uint64_t)shard->pending;
    g->sum.loaded += s.loaded;
    g->sum.in_flight += s.in_flight;
    g->sum.dispatched += s.dispatched;
    g->sum.fired += s.fired;
    g->sum.failed += s.failed;
    g->sum.retried += s.retried;
    g->sum.again += s.again;
    g->sum.later += s.later;
    g->sum.dead += s.dead;
    g->sum.skipped += s.skipped;
    g->sum.created += s.created;
    g->sum.replaced += s.replaced;
    g->sum.updated += s.updated;
    g->sum.cancelled += s.cancelled;
    g->sum.store_writes += s.store_writes;
    g->sum.store_reads += s.store_reads;
    g->sum.store_deletes += s.store_deletes;
    g->sum.store_errors += s.store_errors;
    g->sum.rows_written += s.rows_written;
    g->sum.rows_read += s.rows_read;
    g->sum.rows_deleted += s.rows_deleted;
    g->sum.bytes += s.bytes;
    if (s.oldest_overdue_us > g->sum.oldest_overdue_us)
        g->sum.oldest_overdue_us = s.oldest_overdue_us;
}

static void add_histogram(struct latencies *sum, const struct latencies *histogram)
{
    for (int i = 0; i < LATENCY_BUCKETS; i++)
        sum->buckets[i] += histogram->buckets[i];
    sum->sum_ns += histogram->sum_ns;
}

static void visit(struct tour *tour, struct worker *worker)
{
    struct gathering *g = (struct gathering *)tour;
    struct node *node = worker->node;
    const struct api_worker *here = api_here(worker);
    struct webhooks_stats hooks = {0};
    struct http_stats http = {0};
    for (uint32_t i = worker->index; i < node->shard_count; i += node->worker_count)
        if (node->shards[i].engine)
            add_engine(g, &node->shards[i]);
    if (here->hooks) /* else it has stopped */
        webhooks_get_stats(here->hooks, &hooks);
    g->hooks.waiting += hooks.waiting;
    g->hooks.under_way += hooks.under_way;
    g->hooks.put_off += hooks.put_off;
    g->hooks.connections += hooks.connections;
    if (here->http)
        http_get_stats(here->http, &http);
    g->http.connections += http.connections;
    g->http.accepted += http.accepted;
    g->http.refused += http.refused;
    g->http.requests += http.requests;
    g->http.bytes_in += http.bytes_in;
    g->http.bytes_out += http.bytes_out;
    g->http.timeouts += http.timeouts;
    g->http.bad += http.bad;
    for (int i = 0; i < 6; i++)
        g->counts.webhook_status[i] += worker->counts.webhook_status[i];
    g->counts.leased += worker->counts.leased;
    g->counts.acknowledged += worker->counts.acknowledged;
    g->counts.leases_expired += worker->counts.leases_expired;
    g->api.events += here->counts.events;
    g->api.events_dropped += here->counts.events_dropped;
    g->api.problems += here->counts.problems;
    add_histogram(&g->lateness, &worker->lateness);
    add_histogram(&g->durations, &worker->durations);
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

static void metric(struct out *out, const char *name, const char *type, const char *help, double value)
{
    out_format(out, "# HELP foliot_%s %s\n# TYPE foliot_%s %s\nfoliot_%s %.17g\n", name, help, name, type, name, value);
}

static void counter(struct out *out, const char *name, const char *help, uint64_t value)
{
    metric(out, name, "counter", help, (double)value);
}

static void gauge(struct out *out, const char *name, const char *help, double value)
{
    metric(out, name, "gauge", help, value);
}

static void write_histogram(struct out *out, const char *name, const char *help, const struct latencies *histogram)
{
    uint64_t count = 0;
    out_format(out, "# HELP foliot_%s %s\n# TYPE foliot_%s histogram\n", name, help, name);
    for (int i = 0; i < LATENCY_BUCKETS; i++) {
        count += histogram->buckets[i];
        if (i < LATENCY_BUCKETS - 1)
            out_format(out, "foliot_%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name,
                       (double)((uint64_t)LATENCY_FIRST_NS << i) / 1e9, count);
        else
            out_format(out, "foliot_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    }
    out_format(out, "foliot_%s_sum %.9g\nfoliot_%s_count %" PRIu64 "\n", name, (double)histogram->sum_ns / 1e9, name,
               count);
}

static void write_timers(struct out *out, const struct gathering *g)
{
    const fl_engine_stats *s = &g->sum;
    gauge(out, "timers_pending", "Timers that have not fired, in all namespaces.", (double)s->pending);
    gauge(out, "timers_loaded", "Timers in memory.", (double)s->loaded);
    gauge(out, "timers_in_flight", "Attempts in progress.", (double)s->in_flight);
    gauge(out, "timers_waiting_for_lease", "Due timers without a target that wait for a lease.", (double)g->held);
    gauge(out, "oldest_overdue_seconds", "Lateness of the oldest due timer that has not been dispatched.",
          (double)s->oldest_overdue_us / 1e6);
    counter(out, "timers_created_total", "Timers created.", s->created);
    counter(out, "timers_replaced_total", "Timers replaced by a create of the same name.", s->replaced);
    counter(out, "timers_updated_total", "Timers updated.", s->updated);
    counter(out, "timers_cancelled_total", "Timers cancelled.", s->cancelled);
    counter(out, "attempts_total", "Attempts dispatched.", s->dispatched);
    counter(out, "attempts_done_total", "Attempts that succeeded.", s->fired);
    counter(out, "attempts_failed_total", "Attempts that failed.", s->failed);
    counter(out, "attempts_put_off_total", "Attempts postponed because the target or the namespace was at its limit.",
            s->later);
    counter(out, "timers_retried_total", "Retries scheduled.", s->retried);
    counter(out, "timers_again_total", "Timers scheduled again by their target.", s->again);
    counter(out, "timers_dead_total", "Timers that became dead letters.", s->dead);
    counter(out, "timers_skipped_total", "Timers skipped because they were older than skip-older.", s->skipped);
    write_histogram(out, "lateness_seconds",
                    "Time from the due time of a timer (or its creation, if later) to its first attempt.",
                    &g->lateness);
}

static void write_webhooks(struct out *out, const struct gathering *g)
{
    static const char *const names[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
    out_text(out, "# HELP foliot_webhooks_total Webhook responses by status class; none: no response.\n"
                  "# TYPE foliot_webhooks_total counter\n");
    for (int i = 0; i < 6; i++)
        out_format(out, "foliot_webhooks_total{status=\"%s\"} %" PRIu64 "\n", names[i], g->counts.webhook_status[i]);
    write_histogram(out, "webhook_duration_seconds", "Duration of webhooks.", &g->durations);
    gauge(out, "webhooks_waiting", "Webhooks that wait for a free slot.", (double)g->hooks.waiting);
    gauge(out, "webhooks_under_way", "Webhooks in progress.", (double)g->hooks.under_way);
    gauge(out, "webhook_connections", "Connections to targets.", (double)g->hooks.connections);
    counter(out, "leased_total", "Timers leased.", g->counts.leased);
    counter(out, "acknowledged_total", "Leases acknowledged.", g->counts.acknowledged);
    counter(out, "leases_expired_total", "Leases that expired.", g->counts.leases_expired);
    counter(out, "events_total", "Server-sent events sent.", g->api.events);
    counter(out, "events_dropped_total", "Server-sent events dropped because the client read too slowly.",
            g->api.events_dropped);
}

static uint64_t resident_bytes(void)
{
    char line[128] = "", *second = NULL;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fgets(line, sizeof line, file))
        second = strchr(line, ' ');
    fclose(file);
    return second ? strtoul(second, NULL, 10) * (unsigned long)sysconf(_SC_PAGESIZE) : 0;
}

static void write_server(struct out *out, const struct api *api, const struct gathering *g)
{
    counter(out, "http_requests_total", "HTTP requests.", g->http.requests);
    counter(out, "http_problems_total", "HTTP requests answered with 400 or more.", g->api.problems + g->http.bad);
    counter(out, "http_connections_total", "HTTP connections accepted.", g->http.accepted);
    counter(out, "http_connections_refused_total", "HTTP connections refused because of max-connections.",
            g->http.refused);
    counter(out, "http_timeouts_total", "HTTP connections closed because the client was too slow.", g->http.timeouts);
    counter(out, "http_received_bytes_total", "Bytes received.", g->http.bytes_in);
    counter(out, "http_sent_bytes_total", "Bytes sent.", g->http.bytes_out);
    gauge(out, "http_connections", "Open HTTP connections.", (double)g->http.connections);
    counter(out, "store_errors_total", "Requests to the store that failed or got no response.", g->sum.store_errors);
    counter(out, "store_writes_total", "Writes to the store.", g->sum.store_writes);
    counter(out, "store_reads_total", "Reads from the store.", g->sum.store_reads);
    counter(out, "store_deletes_total", "Deletions in the store.", g->sum.store_deletes);
    counter(out, "store_rows_written_total", "Rows written.", g->sum.rows_written);
    counter(out, "store_rows_read_total", "Rows read.", g->sum.rows_read);
    counter(out, "store_rows_deleted_total", "Rows deleted.", g->sum.rows_deleted);
    gauge(out, "timer_memory_bytes", "Memory held for timers.", (double)g->sum.bytes);
    gauge(out, "resident_memory_bytes", "Memory of the process.", (double)resident_bytes());
    gauge(out, "shards", "Shards of the store.", api->node->shard_count);
    gauge(out, "shards_here", "Shards that this server owns.", atomic_load(&api->node->here));
    gauge(out, "shards_ready", "Shards that this server owns and has loaded.", atomic_load(&api->node->ready));
    gauge(out, "start_time_seconds", "Time at which the process started, in seconds since 1970.",
          (double)api->started_us / 1e6);
    out_format(out,
               "# HELP foliot_build_info Version of the server.\n# TYPE foliot_build_info "
               "gauge\nfoliot_build_info{version=\"%s\"} 1\n",
               FL_VERSION);
}

static void metrics_answer(struct call *call)
{
    call_answer_as(call, 200, "text/plain; version=0.0.4", NULL);
}

static void gathered(struct tour *tour)
{
    struct gathering *g = (struct gathering *)tour;
    struct call *call = g->call;
    struct out *out = &call->out;
    write_timers(out, g);
    write_webhooks(out, g);
    write_server(out, api_of(call->worker), g);
    hosts_metrics(out, call->worker->node);
    free(g);
    spaces_metrics(call, metrics_answer);
}

void metrics_get(struct call *call)
{
    struct gathering *g = calloc(1, sizeof *g);
    if (!g) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    g->tour.fn = visit;
    g->tour.back = gathered;
    g->call = call;
    tour_begin(&g->tour, call->worker);
}

/* --- Health ------------------------------------------------------------------------------------------------------- */

void health_get(struct call *call)
{
    out_text(&call->out, "{\"status\":\"ok\"}");
    call_answer(call, 200);
}

void ready_get(struct call *call)
{
    struct node *node = call->worker->node;
    unsigned ready = atomic_load(&node->ready), here = atomic_load(&node->here);
    char why[HINDRANCE_ROOM];
    bool all = node_is_ready(node, why), stopping = atomic_load(&node->stopping);
    out_format(&call->out, "{\"status\":\"%s\",\"shards\":%" PRIu32 ",\"shards_here\":%u,\"shards_ready\":%u",
               all        ? "ready"
               : stopping ? "stopping"
                          : "loading",
               node->shard_count, here, ready);
    if (!all) {
        out_key(&call->out, "reason");
        out_string(&call->out, bytes_of(why));
    }
    out_text(&call->out, "}");
    call_answer(call, all ? 200 : 503);
}

void version_get(struct call *call)
{
    out_text(&call->out, "{\"version\":\"" FL_VERSION "\",\"api\":\"v1\",\"tzdata\":");
    out_string(&call->out, bytes_of(zones_version(node_zones(call->worker->node))));
    out_text(&call->out, "}");
    call_answer(call, 200);
}
