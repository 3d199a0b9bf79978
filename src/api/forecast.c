/* SPDX-License-Identifier: MIT */
/* GET /v1/forecast: how many timers fall due when, in bars; with the future occurrences of schedules.
 *
 * Each shard gives the bars of its timers from counters. Then schedules are read, at most SCHEDULES_MOST: their occurrences are
 * calculated, not visited. The parts follow each other, so nothing is shared.
 *
 * Reading schedules takes longer than all the rest, and dashboards ask again and again. So a worker keeps the occurrences of the
 * latest forecasts for KEPT_US, or until a schedule is changed at this server. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/timer.h"

enum { PAGE = 50, SCHEDULES_MOST = 5000, NAMESPACES_MOST = 200 };

#define KEPT_US 30000000

static const struct span {
    const char *name;
    int64_t step_us;
    size_t count;
} spans[] = {{"1h", 60000000, 60}, {"1d", 3600000000, 24}, {"30d", 86400000000, 30}};

struct own_name {
    size_t size;
    char text[FL_STORE_NAME_MAX];
};

struct forecast {
    struct space_walk walk;
    struct shard_call bars_call, page;
    struct call *call;
    const struct span *span;
    int64_t from_us, now_us;
    char room[256];
    fl_bytes ns;
    fl_forecast_bar bars[FORECAST_BARS], sums[FORECAST_BARS];
    uint64_t occurrences[FORECAST_BARS];
    int result;
    bool incomplete;
    unsigned changes;       /* schedule_changes, when it began */
    struct own_name *names; /* namespaces in which schedules are kept */
    size_t name_count, name, schedules;
};

static struct call *forecast_end(struct forecast *forecast)
{
    struct call *call = forecast->call;
    free(forecast->names);
    free(forecast);
    return call;
}

static int64_t bar_begin(const struct forecast *forecast, size_t i)
{
    return forecast->from_us + (int64_t)i * forecast->span->step_us;
}

/* --- The answer --------------------------------------------------------------------------------------------------- */

static void answer(struct forecast *forecast)
{
    struct out *out = &forecast->call->out;
    out_text(out, "{\"from\":");
    out_time(out, forecast->from_us);
    out_format(out, ",\"span\":\"%s\",\"step_s\":%" PRId64 ",\"bars\":[", forecast->span->name,
               forecast->span->step_us / 1000000);
    for (size_t i = 0; i < forecast->span->count; i++) {
        out_text(out, i > 0 ? ",{\"at\":" : "{\"at\":");
        out_time(out, bar_begin(forecast, i));
        out_format(out, ",\"timers\":%" PRIu64 ",\"occurrences\":%" PRIu64 ",\"exact\":%s}",
                   forecast->sums[i].timers + forecast->occurrences[i], forecast->occurrences[i],
                   forecast->sums[i].spread > 0 ? "false" : "true");
    }
    out_format(out, "],\"complete\":%s}", forecast->incomplete ? "false" : "true");
    call_answer(forecast_end(forecast), 200);
}

/* --- What is kept ------------------------------------------------------------------------------------------------- */

static bool is_kept(const struct forecast *forecast, const struct kept_forecast *kept)
{
    return kept->made_us > 0 && kept->made_us <= forecast->now_us && forecast->now_us - kept->made_us < KEPT_US &&
           kept->changes == forecast->changes && kept->from_us == forecast->from_us &&
           kept->step_us == forecast->span->step_us && kept->ns_size == forecast->ns.size &&
           memcmp(kept->ns, forecast->room, kept->ns_size) == 0;
}

static bool take_kept(struct forecast *forecast)
{
    struct api_worker *here = api_here(forecast->call->worker);
    for (size_t i = 0; i < FORECASTS_KEPT; i++)
        if (is_kept(forecast, &here->forecasts[i])) {
            memcpy(forecast->occurrences, here->forecasts[i].occurrences, sizeof forecast->occurrences);
            forecast->incomplete = here->forecasts[i].incomplete;
            return true;
        }
    return false;
}

static void keep(const struct forecast *forecast)
{
    struct api_worker *here = api_here(forecast->call->worker);
    struct kept_forecast *kept = &here->forecasts[here->next_forecast++ % FORECASTS_KEPT];
    *kept = (struct kept_forecast){.made_us = forecast->now_us,
                                   .from_us = forecast->from_us,
                                   .step_us = forecast->span->step_us,
                                   .changes = forecast->changes,
                                   .incomplete = forecast->incomplete,
                                   .ns_size = forecast->ns.size};
    memcpy(kept->ns, forecast->room, forecast->ns.size);
    memcpy(kept->occurrences, forecast->occurrences, sizeof kept->occurrences);
}

static void keep_and_answer(struct forecast *forecast)
{
    keep(forecast);
    answer(forecast);
}

/* --- Schedules ---------------------------------------------------------------------------------------------------- */

static void count_occurrences(struct forecast *forecast, const struct schedule *s, const struct rule *rule)
{
    int64_t after_us = s->cursor_us > forecast->now_us ? s->cursor_us : forecast->now_us;
    uint64_t left = s->count > 0 ? s->count - s->made : UINT64_MAX;
    for (size_t i = 0; i < forecast->span->count && left > 0; i++) {
        int64_t begin_us = bar_begin(forecast, i) - 1, end_us = bar_begin(forecast, i + 1) - 1;
        if (end_us <= after_us)
            continue;
        uint64_t count = rule_count(rule, begin_us > after_us ? begin_us : after_us, end_us);
        count = count < left ? count : left;
        forecast->occurrences[i] += count;
        left -= count;
    }
}

static void add_schedule(struct forecast *forecast, fl_bytes stored)
{
    struct schedule s;
    struct rule *rule = NULL;
    struct rule_error error;
    struct occurrence next;
    if (schedule_read(stored, &s) < 0)
        return;
    if (schedule_rule(&s, node_zones(forecast->call->worker->node), &rule, &error) == 0 &&
        schedule_next(&s, rule, &next))
        count_occurrences(forecast, &s, rule);
    rule_free(rule);
    schedule_free(&s);
}

static void render_schedules(struct shard_call *page)
{
    struct forecast *forecast = (struct forecast *)((char *)page - offsetof(struct forecast, page));
    forecast->result = page->listing.result;
    for (size_t i = 0; i < page->listing.count && forecast->result == 0; i++, forecast->schedules++)
        add_schedule(forecast, page->listing.found[i].timer.payload);
}

static void list_schedules(struct forecast *forecast)
{
    const struct own_name *name = &forecast->names[forecast->name];
    forecast->page.listing.ns = (fl_bytes){name->text, name->size};
    forecast->page.listing.limit = PAGE;
    shard_call_submit(&forecast->page);
}

static void schedules_back(struct shard_call *page)
{
    struct forecast *forecast = (struct forecast *)((char *)page - offsetof(struct forecast, page));
    const struct node *node = forecast->call->worker->node;
    if (forecast->result < 0) {
        int result = forecast->result;
        call_refuse_result(forecast_end(forecast), result);
        return;
    }
    if (!page->listing.more) {
        bool last = page->shard->number + 1 == node->shard_count;
        page->shard = last ? &node->shards[0] : page->shard + 1;
        page->listing.cursor = (fl_cursor){{0}};
        forecast->name += last;
    }
    bool over = forecast->name == forecast->name_count;
    forecast->incomplete = forecast->incomplete || (!over && forecast->schedules >= SCHEDULES_MOST);
    if (over || forecast->incomplete)
        keep_and_answer(forecast);
    else
        list_schedules(forecast);
}

static void begin_schedules(struct forecast *forecast)
{
    if (forecast->name_count == 0) {
        keep_and_answer(forecast);
        return;
    }
    forecast->page = (struct shard_call){.kind = CALL_PAGE,
                                         .errand.home = forecast->call->worker,
                                         .shard = &forecast->call->worker->node->shards[0],
                                         .render = render_schedules,
                                         .done = schedules_back};
    list_schedules(forecast);
}

/* Under the lock of all namespaces. */
static void note_namespace(struct space_walk *walk, struct space *space)
{
    struct forecast *forecast = (struct forecast *)walk;
    if (space_pending(space) == 0)
        return;
    if (forecast->name_count == NAMESPACES_MOST) {
        forecast->incomplete = true;
        return;
    }
    struct own_name *name = &forecast->names[forecast->name_count++];
    name->size = space->size;
    memcpy(name->text, space->name, space->size);
}

static void noted(struct space_walk *walk)
{
    begin_schedules((struct forecast *)walk);
}

static void gathered(void *arg)
{
    struct forecast *forecast = arg;
    space_walk_begin(&forecast->walk, forecast->call->worker);
}

static void find_schedules(struct forecast *forecast)
{
    char room[SCHEDULE_NS_ROOM];
    if (take_kept(forecast)) {
        answer(forecast);
        return;
    }
    forecast->names = calloc(forecast->ns.size > 0 ? 1 : NAMESPACES_MOST, sizeof *forecast->names);
    if (!forecast->names) {
        call_refuse_result(forecast_end(forecast), FL_NO_MEMORY);
        return;
    }
    if (forecast->ns.size == 0) {
        forecast->walk = (struct space_walk){.visit = note_namespace, .done = noted, .schedules = true};
        servers_gather(forecast->call->worker, (fl_bytes){0}, gathered, forecast);
        return;
    }
    fl_bytes ns = schedule_ns(forecast->ns, room);
    forecast->names[0].size = ns.size;
    memcpy(forecast->names[0].text, ns.data, ns.size);
    forecast->name_count = 1;
    begin_schedules(forecast);
}

/* --- Timers ------------------------------------------------------------------------------------------------------- */

static void render_bars(struct shard_call *call)
{
    struct forecast *forecast = (struct forecast *)((char *)call - offsetof(struct forecast, bars_call));
    forecast->result = call->forecast.result;
    for (size_t i = 0; i < call->forecast.count && forecast->result == 0; i++) {
        forecast->sums[i].timers += forecast->bars[i].timers;
        forecast->sums[i].spread += forecast->bars[i].spread;
    }
}

static void bars_back(struct shard_call *call)
{
    struct forecast *forecast = (struct forecast *)((char *)call - offsetof(struct forecast, bars_call));
    if (forecast->result < 0) {
        int result = forecast->result;
        call_refuse_result(forecast_end(forecast), result);
    } else if (call->shard->number + 1 < forecast->call->worker->node->shard_count) {
        call->shard++;
        shard_call_submit(call);
    } else {
        find_schedules(forecast);
    }
}

static void begin_bars(struct forecast *forecast)
{
    forecast->bars_call = (struct shard_call){.kind = CALL_FORECAST,
                                              .errand.home = forecast->call->worker,
                                              .shard = &forecast->call->worker->node->shards[0],
                                              .forecast = {.ns = forecast->ns,
                                                           .first_byte = ' ',
                                                           .from_us = forecast->from_us,
                                                           .step_us = (uint64_t)forecast->span->step_us,
                                                           .count = forecast->span->count,
                                                           .bars = forecast->bars},
                                              .render = render_bars,
                                              .done = bars_back};
    shard_call_submit(&forecast->bars_call);
}

/* --- What is asked for -------------------------------------------------------------------------------------------- */

static int read_span(struct call *call, struct forecast *forecast)
{
    char room[8];
    fl_bytes text = {spans[0].name, strlen(spans[0].name)};
    if (call_query(call, "span", room, sizeof room, &text) < 0)
        return -1;
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        if (text.size == strlen(spans[i].name) && memcmp(text.data, spans[i].name, text.size) == 0)
            forecast->span = &spans[i];
    return forecast->span ? 0 : problem_set(&call->problem, 400, "invalid-field", "span", "span must be 1h, 1d or 30d");
}

static int read_from(struct call *call, struct forecast *forecast)
{
    forecast->now_us = node_now(call->worker->node);
    forecast->from_us = forecast->now_us - forecast->now_us % forecast->span->step_us;
    if (call_time(call, "from", &forecast->from_us) < 0)
        return -1;
    if (forecast->from_us < 0 || forecast->from_us >= FL_STORE_TIME_END)
        return problem_set(&call->problem, 400, "invalid-field", "from", "from must be a time before the year 3111");
    return 0;
}

void forecast_get(struct call *call)
{
    static const char *const known[] = {"namespace", "span", "from", NULL};
    struct forecast *forecast = calloc(1, sizeof *forecast);
    if (!forecast) {
        call_refuse_result(call, FL_NO_MEMORY);
        return;
    }
    forecast->call = call;
    forecast->changes = atomic_load(&api_of(call->worker)->schedule_changes);
    if (call_check_query(call, known) < 0 || stats_read_namespace(call, forecast->room, &forecast->ns) < 0 ||
        read_span(call, forecast) < 0 || read_from(call, forecast) < 0)
        call_refuse(forecast_end(forecast));
    else
        begin_bars(forecast);
}
