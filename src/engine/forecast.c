/* SPDX-License-Identifier: MIT */
/* How many timers fall due when, in bars of one length.
 *
 * What is loaded is counted in memory, where it stands in spans of half a second; of a long span, only a few items are looked at. For
 * what comes later, the store has counters per window. A window that a bar has only a part of is spread evenly. So the work is
 * bounded by the number of windows, however many timers there are. */

#include "engine/internal.h"

enum { SMALL = 128, LOOKED_AT = 16 }; /* of a span with more items than SMALL, about so many are looked at */

struct forecasting {
    fl_store_request request;
    fl_engine *engine;
    fl_forecast *forecast;
};

static void answer(struct forecasting *f, int result)
{
    fl_forecast *forecast = f->forecast;
    fl__release(f);
    forecast->result = result;
    forecast->done(forecast);
}

/* --- Bars --------------------------------------------------------------------------------------------------------- */

static int64_t bar_begin(const fl_forecast *forecast, size_t i)
{
    return forecast->from_us + (int64_t)(i * forecast->step_us);
}

/* The part of `rows` before `at_us`, if they are spread over [begin_us, end_us). */
static uint64_t part(uint64_t rows, int64_t begin_us, int64_t end_us, int64_t at_us)
{
    int64_t at = at_us < begin_us ? begin_us : at_us > end_us ? end_us : at_us;
    return (uint64_t)((unsigned __int128)rows * (uint64_t)(at - begin_us) / (uint64_t)(end_us - begin_us));
}

static void spread(fl_forecast *forecast, int64_t begin_us, int64_t end_us, uint64_t rows, bool guess)
{
    fl__assert(forecast->step_us > 0);
    size_t first = begin_us > forecast->from_us ? (size_t)(begin_us - forecast->from_us) / forecast->step_us : 0;
    for (size_t i = first; i < forecast->count && bar_begin(forecast, i) < end_us; i++) {
        int64_t from_us = bar_begin(forecast, i), until_us = bar_begin(forecast, i + 1);
        uint64_t share = part(rows, begin_us, end_us, until_us) - part(rows, begin_us, end_us, from_us);
        forecast->bars[i].timers += share;
        if (guess || begin_us < from_us || end_us > until_us)
            forecast->bars[i].spread += share;
    }
}

/* --- What is in memory -------------------------------------------------------------------------------------------- */

static bool counts(const fl_engine *e, const fl_forecast *forecast, const struct item *item)
{
    const struct space *space = &e->spaces.list[fl__item_space(item)];
    fl_bytes ns = forecast->ns;
    return ns.size > 0 ? space->size == ns.size && memcmp(space->name, ns.data, ns.size) == 0
                       : *(const unsigned char *)space->name >= forecast->first_byte;
}

static void count_item(fl_engine *e, fl_forecast *forecast, const struct item *item, int64_t now_us, uint64_t weight)
{
    int64_t at_us = item_at_us(item);
    if (at_us <= now_us || at_us < forecast->from_us || at_us >= e->until.at_us)
        return;
    size_t i = (size_t)(at_us - forecast->from_us) / forecast->step_us;
    if (i >= forecast->count || !counts(e, forecast, item))
        return;
    forecast->bars[i].timers += weight;
    forecast->bars[i].spread += weight > 1 ? weight : 0;
}

/* Each item that is looked at stands for as many as it must, so that together they are all of the span. */
static void count_span(fl_engine *e, fl_forecast *forecast, const struct span *span, int64_t now_us)
{
    const struct item *looked[SMALL];
    uint32_t every = span->count > SMALL ? span->count / LOOKED_AT | 1 : 1; /* odd: namespaces may take turns */
    uint64_t count = 0;
    for (uint32_t i = 0; i < span->count && count < SMALL; i += every)
        if (span->items[i])
            looked[count++] = span->items[i];
    fl__assert(count <= SMALL && count <= span->live);
    for (uint64_t i = 0; i < count; i++)
        count_item(e, forecast, looked[i], now_us, (i + 1) * span->live / count - i * span->live / count);
}

static void count_memory(fl_engine *e, fl_forecast *forecast)
{
    int64_t now_us = fl__engine_now(e), end_us = bar_begin(forecast, forecast->count);
    for (uint32_t i = 0; i < e->span_count; i++) {
        const struct span *span = &e->spans[i];
        if ((span->index + 1) << SPAN_SHIFT > now_us && span->index << SPAN_SHIFT < end_us)
            count_span(e, forecast, span, now_us);
    }
}

/* --- What is in the store ----------------------------------------------------------------------------------------- */

/* Of a window that is loaded in part, the rest is guessed. */
static void count_window(const fl_engine *e, fl_forecast *forecast, const fl_window_count *window)
{
    int64_t begin_us = fl_window_begin(window->window), end_us = fl_window_end(window->window);
    int64_t until_us = e->until.at_us;
    if (end_us <= until_us || end_us <= forecast->from_us)
        return;
    if (begin_us >= until_us)
        spread(forecast, begin_us, end_us, window->rows, false);
    else
        spread(forecast, until_us, end_us, window->rows - part(window->rows, begin_us, end_us, until_us), true);
}

static void counted(fl_store_request *request)
{
    struct forecasting *f = (struct forecasting *)request;
    fl_engine *e = f->engine;
    fl__engine_answered(e, request);
    if (request->result < 0 || e->state != ENGINE_RUNNING) {
        answer(f, request->result < 0 ? request->result : fl__engine_refusal(e));
        return;
    }
    for (size_t i = 0; i < request->count.count; i++)
        count_window(e, f->forecast, &request->count.windows[i]);
    count_memory(e, f->forecast);
    answer(f, 0);
}

static bool is_sound(const fl_forecast *forecast)
{
    return forecast->ns.size <= FL_STORE_NAME_MAX && forecast->from_us >= 0 && forecast->from_us < FL_STORE_TIME_END &&
           forecast->step_us > 0 && forecast->step_us < FL_STORE_TIME_END && forecast->count <= FL_FORECAST_BARS;
}

void fl_engine_forecast(fl_engine *engine, fl_forecast *forecast)
{
    fl_engine *e = engine;
    struct forecasting *f = fl__alloc_zeroed(sizeof *f);
    memset(forecast->bars, 0, forecast->count * sizeof *forecast->bars);
    if (!f) {
        forecast->result = FL_NO_MEMORY;
        forecast->done(forecast);
        return;
    }
    f->engine = e;
    f->forecast = forecast;
    if (!is_sound(forecast) || e->state != ENGINE_RUNNING) {
        answer(f, is_sound(forecast) ? fl__engine_refusal(e) : FL_INVALID_ARGUMENT);
        return;
    }
    f->request.count.ns = forecast->ns;
    f->request.count.first_byte = forecast->first_byte;
    e->stats.store_reads++;
    fl__engine_submit_request(e, &f->request, FL_STORE_COUNT, counted);
}
