/* SPDX-License-Identifier: MIT */
/* GET /v1/hosts: how calls of each host went; POST /v1/hosts/{host}/pause and …/resume answer with one of them. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "text/json.h"

enum { LIMIT = 100 };

struct page {
    struct host_page inner;
    struct call *call;
    bool one; /* only the first, which is there or not */
    char prefix[HOST_TEXT], after[HOST_TEXT];
};

static void write_latencies(struct out *out, const struct host_counts *counts)
{
    static const struct {
        const char *name;
        unsigned permille;
    } shown[] = {{"p50", 500}, {"p90", 900}, {"p99", 990}};
    if (host_latency_us(counts, 500) == 0) {
        out_text(out, ",\"latency_ms\":null");
        return;
    }
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        out_format(out, "%s\"%s\":%.1f", i == 0 ? ",\"latency_ms\":{" : ",", shown[i].name,
                   (double)host_latency_us(counts, shown[i].permille) / 1000);
    out_text(out, "}");
}

static void write_host(struct out *out, struct node *node, fl_bytes name, const struct host_counts *counts)
{
    char room[HOST_ROOM];
    fl_bytes row = host_space_name(name, room);
    const struct space *space = row.size > 0 ? space_if_any(node, row) : NULL;
    out_text(out, "{\"host\":");
    out_string(out, name);
    out_format(out,
               ",\"calls\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"responses\":{\"2xx\":%" PRIu64 ",\"3xx\":%" PRIu64
               ",\"4xx\":%" PRIu64 ",\"5xx\":%" PRIu64 ",\"none\":%" PRIu64 "}",
               counts->calls, counts->failures, counts->responses[2], counts->responses[3], counts->responses[4],
               counts->responses[5], counts->responses[0] + counts->responses[1]);
    write_latencies(out, counts);
    out_format(out, ",\"in_flight\":%" PRIu64 ",\"waiting\":%" PRIu64, counts->in_flight, counts->waiting);
    if (space)
        pause_write(out, &atomic_load(&space->settings)->pauses, node_now(node));
    out_text(out, "}");
}

static void write_page(const struct page *page)
{
    struct out *out = &page->call->out;
    const struct host_page *inner = &page->inner;
    out_text(out, "{\"hosts\":[");
    for (size_t i = 0; i < inner->count; i++) {
        const struct host_sum *host = inner->hosts[i];
        out_text(out, i > 0 ? "," : "");
        write_host(out, page->call->worker->node, (fl_bytes){host->name, host->size}, &host->counts);
    }
    out_text(out, "]");
    if (inner->more && inner->count > 0) {
        const struct host_sum *last = inner->hosts[inner->count - 1];
        cursor_write(page->call, (fl_bytes){last->name, last->size});
    }
    out_text(out, "}");
}

static void write_one(const struct page *page)
{
    static const struct host_counts none;
    const struct host_page *inner = &page->inner;
    const struct host_sum *first = inner->count > 0 ? inner->hosts[0] : NULL;
    bool found = first && first->size == inner->prefix.size;
    write_host(&page->call->out, page->call->worker->node, inner->prefix, found ? &first->counts : &none);
}

static void answer(struct host_page *inner)
{
    struct page *page = (struct page *)inner;
    struct call *call = page->call;
    if (page->one)
        write_one(page);
    else
        write_page(page);
    if (inner->failed)
        call_refuse_result(call, FL_NO_MEMORY);
    else
        call_answer(call, 200);
    host_page_free(inner);
    free(page);
}

static struct page *page_new(struct call *call)
{
    struct page *page = calloc(1, sizeof *page);
    if (!page) {
        call_refuse_result(call, FL_NO_MEMORY);
        return NULL;
    }
    page->call = call;
    page->inner.done = answer;
    return page;
}

/* Hosts are of no namespace: what a token may see or do with them, it must be allowed in all. */
bool hosts_may(struct call *call, unsigned right)
{
    if (call_may(call, right, (fl_bytes){0}))
        return true;
    problem_set(&call->problem, 403, "forbidden", NULL, "the token has no right to do this in all namespaces");
    return false;
}

void hosts_get(struct call *call)
{
    static const char *const known[] = {"prefix", "limit", "cursor", NULL};
    struct page *page = page_new(call);
    uint64_t limit = LIMIT;
    if (!page)
        return;
    if (!hosts_may(call, RIGHT_READ) || call_check_query(call, known) < 0 ||
        call_count(call, "limit", HOST_PAGE_MOST, &limit) < 0 ||
        call_query(call, "prefix", page->prefix, sizeof page->prefix, &page->inner.prefix) < 0 ||
        cursor_read(call, page->after, sizeof page->after, &page->inner.after) < 0) {
        free(page);
        call_refuse(call);
        return;
    }
    page->inner.limit = (size_t)limit;
    hosts_ask(call->worker, &page->inner);
}

void host_get(struct call *call, fl_bytes host)
{
    struct page *page = page_new(call);
    if (!page)
        return;
    fl_bytes copy = {page->prefix, host.size};
    memcpy(page->prefix, host.data, host.size);
    page->inner.prefix = copy;
    page->inner.limit = 1;
    page->one = true;
    hosts_ask(call->worker, &page->inner);
}

/* --- Metrics ------------------------------------------------------------------------------------------------------ */

enum { SERIES_MOST = 1000 };

struct series {
    struct out *out;
    bool since; /* when the pause began, and why; else 1 */
    unsigned count;
};

static void write_series(void *arg, fl_bytes host, const struct pauses *pauses)
{
    struct series *series = arg;
    const struct pause *pause = &pauses->now;
    struct out *out = series->out;
    if (series->count++ >= SERIES_MOST)
        return;
    out_text(out, series->since ? "foliot_host_paused_since_seconds{" : "foliot_host_paused{");
    metrics_write_label(out, "host", host);
    if (series->since)
        metrics_write_label(out, ",reason", (fl_bytes){pause->reason, pause->reason_size});
    out_format(out, "} %" PRId64 "\n", series->since ? pause->since_us / 1000000 : 1);
}

void hosts_metrics(struct out *out, struct node *node)
{
    struct series paused = {.out = out}, since = {.out = out, .since = true};
    out_text(out, "# HELP foliot_host_paused 1 for each host that is paused; at most 1,000 have a series.\n"
                  "# TYPE foliot_host_paused gauge\n");
    hosts_walk_paused(node, write_series, &paused);
    out_text(out, "# HELP foliot_host_paused_since_seconds When the pause began, in seconds since 1970.\n"
                  "# TYPE foliot_host_paused_since_seconds gauge\n");
    hosts_walk_paused(node, write_series, &since);
    out_format(out,
               "# HELP foliot_hosts_paused Hosts that are paused.\n# TYPE foliot_hosts_paused gauge\n"
               "foliot_hosts_paused %u\n",
               paused.count);
}
