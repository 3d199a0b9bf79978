/* SPDX-License-Identifier: MIT */
/* Room in memory: dropping the latest items, and replacing the wheels. */

#include <stdlib.h>

#include "engine/internal.h"

/* Whether `percent` of the memory is in use, by count or by bytes. */
bool fl__memory_is_filled(const fl_engine *e, unsigned percent)
{
    double part = percent / 100.0;
    return (double)e->loaded >= part * (double)e->config.max_memory_timers ||
           (double)e->bytes >= part * (double)e->config.max_memory_bytes;
}

static void memory_is_short(fl_engine *e)
{
    e->stats.pressure++;
    e->pressed = true;
    if (e->preload_us > SECOND_US / 8)
        e->preload_us = e->preload_us * 4 / 5;
    fl__memory_drop_empty_spans(e);
}

/* Makes room for a timer at this key by dropping later items. Returns false if it is the latest itself: then `until` is not
 * after the key, and the timer must not be inserted. */
bool fl__memory_room(fl_engine *e, fl_key key)
{
    if (!fl__memory_is_filled(e, 100))
        return true;
    memory_is_short(e);
    while (fl__memory_is_filled(e, 90) && e->span_count > 0) {
        struct span *last = &e->spans[e->span_count - 1];
        if (last->index <= key.at_us >> SPAN_SHIFT)
            break;
        fl__memory_evict(e, (fl_key){last->index << SPAN_SHIFT, 0});
        fl__memory_drop_span(e, last);
    }
    if (!fl__memory_is_filled(e, 100))
        return true;
    if (!behind_front(e, key))
        fl__memory_evict(e, key);
    return false;
}

static int by_key(const void *a, const void *b)
{
    fl_key x = item_key(*(struct item *const *)a), y = item_key(*(struct item *const *)b);
    return key_before(x, y) ? -1 : key_before(y, x);
}

/* The key in the middle of a span: the later half of its items has it or a later one. */
static fl_key middle_of(struct span *span)
{
    fl__memory_pack_span(span);
    fl__assert(span->count > 0);
    qsort(span->items, span->count, sizeof(struct item *), by_key);
    fl_key middle = item_key(span->items[span->count / 2]);
    span->sorted = false;
    fl__memory_pack_span(span); /* which updates `place` of the items */
    return middle;
}

/* The key from which on items are dropped to make room for a row at `key`: the beginning of the last span if the row is not
 * in it, else the middle of that span, but no key before the row. */
static fl_key load_cut_for(fl_engine *e, fl_key key)
{
    struct span *last = e->span_count > 0 ? &e->spans[e->span_count - 1] : NULL;
    if (!last || last->index < key.at_us >> SPAN_SHIFT)
        return key;
    if (last->index > key.at_us >> SPAN_SHIFT)
        return (fl_key){last->index << SPAN_SHIFT, 0};
    fl_key middle = middle_of(last);
    return key_before(key, middle) ? middle : key;
}

/* Makes room for a row that is being loaded, by dropping the latest loaded rows: rows of a window come in any order of time.
 * Returns the key from which on rows are loaded later. It is the key of the row itself if there is no room. A single row
 * always has room, however large it is. */
fl_key fl__memory_load_room(fl_engine *e, fl_key key)
{
    fl_key cut = {INT64_MAX, 0};
    fl__assert(!key_before(key, e->until)); /* items before `until` must stay in memory */
    if (e->loaded == 0 || !fl__memory_is_filled(e, 100))
        return cut;
    memory_is_short(e);
    while (fl__memory_is_filled(e, 90) && key_before(key, cut)) {
        fl_key from = load_cut_for(e, key);
        fl__memory_evict(e, from);
        fl__memory_drop_empty_spans(e);
        if (!key_before(from, cut)) /* no more items to drop */
            break;
        cut = from;
    }
    if (fl__memory_is_filled(e, 100) && key_before(key, cut)) {
        fl__memory_evict(e, key);
        cut = key;
    }
    return cut;
}

/* Flights that are not dispatched may no longer be due. The store has their rows, and they are loaded again in order with the
 * other rows of their time. */
static void recall_flights(fl_engine *e)
{
    fl__assert(e->state == ENGINE_RUNNING);
    memset(e->flights.late, 0, sizeof e->flights.late);
    for (uint32_t i = 1; i < e->flights.used; i++) {
        const struct flight *flight = &e->flights.list[i];
        bool late = flight->state == FLIGHT_LATE;
        if (flight->state == FLIGHT_WAITING && item_at_us(flight->item) > e->wall_us)
            fl__lane_withdraw(e, i);
        if ((late || flight->state == FLIGHT_HELD) && !flight->superseded && item_at_us(flight->item) > e->wall_us) {
            struct item *item = fl__flight_recall(e, i);
            fl__memory_evict(e, item_key(item));
            fl__memory_free_item(e, item);
        } else if (late) {
            fl__flight_late(e, i);
        }
    }
}

int fl__memory_fresh_wheel(fl_engine *e, int kind, int64_t start_us)
{
    fl_nodes *fresh;
    int r = fl_nodes_new(&(fl_wheel_config){.start_ns = (uint64_t)start_us}, &fresh);
    fl__assert(start_us >= 0);
    if (r < 0)
        return r;
    fl_nodes_free(e->wheel[kind]);
    e->wheel[kind] = fresh;
    e->wheel_us[kind] = start_us;
    return 0;
}

static void disarm_span(struct span *span)
{
    for (uint32_t i = 0; i < span->count; i++)
        if (span->items[i])
            span->items[i]->node = (fl_node){.deadline_ns = (uint64_t)item_at_us(span->items[i])};
    span->armed = 0;
}

/* After the clock was set back: makes new wheels, which begin at the present time or at the earliest overdue item, with no
 * item armed. On failure the engine has to restart. */
int fl__memory_rebuild(fl_engine *e)
{
    recall_flights(e);
    for (uint32_t i = 0; i < e->span_count; i++)
        disarm_span(&e->spans[i]);
    e->armed_us = e->wall_us < e->until.at_us ? e->wall_us : e->until.at_us;
    if (e->span_count > 0 && fl__memory_span_begin_us(&e->spans[0]) < e->armed_us)
        e->armed_us = fl__memory_span_begin_us(&e->spans[0]);
    int64_t start_us = fl__memory_reach_us(e, e->wall_us);
    int r = fl__memory_fresh_wheel(e, 0, start_us);
    return r < 0 ? r : fl__memory_fresh_wheel(e, RETRIED, start_us);
}

/* Forgets everything but orphans. */
void fl__memory_clear(fl_engine *e)
{
    fl__assert(e->state != ENGINE_RUNNING);
    for (uint32_t i = 0; i < e->span_count; i++) {
        for (uint32_t j = 0; j < e->spans[i].count; j++)
            if (e->spans[i].items[j])
                fl__memory_free_item(e, e->spans[i].items[j]);
        fl__release(e->spans[i].items);
    }
    e->span_count = 0;
    for (uint32_t i = 1; i < e->flights.used; i++) {
        struct flight *flight = &e->flights.list[i];
        flight->lane = NULL;
        flight->called = false;
        if (flight->state == FLIGHT_DISPATCHED || flight->state == FLIGHT_WAITING) {
            fl__flight_forget(e, i);
            flight->state = FLIGHT_ORPHAN;
        } else if (flight->state != FLIGHT_FREE && flight->state != FLIGHT_ORPHAN) {
            flight->state = FLIGHT_HELD;
            fl__flight_end(e, i);
        }
    }
    fl__assert(e->flights.count == 0);
    memset(e->flights.late, 0, sizeof e->flights.late);
    memset(e->flights.dispatched, 0, sizeof e->flights.dispatched);
    fl__lanes_clear(e);
    for (int kind = 0; kind < 2; kind++) {
        fl_nodes_free(e->wheel[kind]);
        e->wheel[kind] = NULL;
        e->wheel_us[kind] = 0;
    }
    e->armed_us = 0;
    e->loaded = 0;
}
