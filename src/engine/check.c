/* SPDX-License-Identifier: MIT */
/* The one definition of a sound engine: a timer in memory is in exactly one place, and the fronts have passed what is
 * settled and nothing else. */

#include <stdio.h>

#include "engine/internal.h"

#define SOUND(condition)       \
    do {                       \
        if (!(condition))      \
            return #condition; \
    } while (0)

static const char *check_item(const fl_engine *e, const struct span *span, uint32_t place)
{
    const struct item *item = span->items[place];
    SOUND(item->place == place);
    SOUND(item_at_us(item) >> SPAN_SHIFT == span->index);
    SOUND(key_before(item_key(item), e->until));
    SOUND(!behind_front(e, item_key(item)));
    SOUND(fl__item_space(item) < e->spaces.count);
    SOUND(fl_node_is_waiting(&item->node) || (item_at_us(item) >= e->armed_us && place >= span->armed));
    SOUND(!fl__flight_find(e, item->seq));
    return NULL;
}

static const char *check_span(const fl_engine *e, const struct span *span, uint64_t waiting[2], uint64_t armed[2])
{
    const struct item *last = NULL;
    uint32_t live = 0;
    for (uint32_t i = 0; i < span->count; i++) {
        const struct item *item = span->items[i];
        if (!item)
            continue;
        const char *wrong = check_item(e, span, i);
        if (wrong)
            return wrong;
        SOUND(!span->sorted || !last || last->seq < item->seq);
        last = item;
        live++;
        waiting[item->seq & 1]++;
        armed[item->seq & 1] += fl_node_is_waiting(&item->node);
    }
    SOUND(live == span->live && span->armed <= span->count);
    return NULL;
}

static const char *check_flights(const fl_engine *e)
{
    uint32_t states[FLIGHT_ORPHAN + 1] = {0}, dispatched[2] = {0}, held = 0;
    for (uint32_t i = 1; i < e->flights.used; i++) {
        const struct flight *flight = &e->flights.list[i];
        states[flight->state]++;
        if (flight->state == FLIGHT_FREE || flight->state == FLIGHT_ORPHAN)
            continue;
        SOUND(fl__flight_find(e, flight->item->seq) == i);
        if (!flight->lane && (flight->state == FLIGHT_DISPATCHED || flight->state == FLIGHT_SETTLING))
            dispatched[flight->item->seq & 1]++;
        SOUND(flight->lane || flight->state != FLIGHT_WAITING);
        held += flight->lane != NULL;
    }
    SOUND(held == e->lanes.held && states[FLIGHT_WAITING] == e->lanes.waiting);
    SOUND(states[FLIGHT_LATE] == e->flights.late[0].count + e->flights.late[1].count);
    SOUND(dispatched[0] == e->flights.dispatched[0] && dispatched[1] == e->flights.dispatched[1]);
    SOUND(states[FLIGHT_LATE] + states[FLIGHT_HELD] + states[FLIGHT_WAITING] + states[FLIGHT_DISPATCHED] +
              states[FLIGHT_SETTLING] ==
          e->flights.count);
    return NULL;
}

static const char *check_windows(const fl_engine *e)
{
    for (size_t i = 1; i < e->window_count; i++) {
        int64_t a = fl_window_begin(e->windows[i - 1]), b = fl_window_begin(e->windows[i]);
        SOUND(a < b || (a == b && e->windows[i - 1] > e->windows[i]));
    }
    return NULL;
}

static const char *check(const fl_engine *e)
{
    uint64_t waiting[2] = {0}, armed[2] = {0};
    const char *wrong = check_flights(e);
    for (uint32_t i = 0; i < e->span_count && !wrong; i++) {
        SOUND(i == 0 || e->spans[i - 1].index < e->spans[i].index);
        wrong = check_span(e, &e->spans[i], waiting, armed);
    }
    if (!wrong)
        wrong = check_windows(e);
    if (wrong || e->state != ENGINE_RUNNING)
        return wrong;
    SOUND(e->loaded == waiting[0] + waiting[1] + e->flights.count);
    SOUND(fl_nodes_count(e->wheel[0]) == armed[0] && fl_nodes_count(e->wheel[1]) == armed[1]);
    SOUND(e->seq_next <= e->seq_granted + 2);
    return NULL;
}

int fl_engine_check(const fl_engine *engine, FILE *explain)
{
    const char *wrong = check(engine);
    if (wrong && explain)
        fprintf(explain, "an engine is broken: %s\n", wrong);
    return wrong ? FL_INVALID_ARGUMENT : 0;
}
