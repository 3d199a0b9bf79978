/* SPDX-License-Identifier: MIT */
/* From memory to the dispatcher.
 *
 * Due timers are taken out of the wheels, first attempts before retries, as long as the dispatcher may have more. The front
 * moves with them. At most half of the flights may be retries, so that a target that is down does not hold up the others. A
 * timer that is taken out is a flight until it is settled.
 */

#include "engine/internal.h"

enum { AHEAD = 8 };

/* --- When --------------------------------------------------------------------------------------------------------- */

static uint32_t capacity(const fl_engine *e, int kind)
{
    const uint32_t *busy = e->flights.dispatched;
    uint32_t most = e->config.max_in_flight, all = busy[0] + busy[1];
    uint32_t left = all < most ? most - all : 0;
    if (kind == RETRIED) {
        uint32_t half = (most + 1) / 2;
        uint32_t own = busy[1] < half ? half - busy[1] : 0;
        return own < left ? own : left;
    }
    return left;
}

bool fl__fire_has_room(const fl_engine *e, int kind)
{
    return capacity(e, kind) > 0;
}

static bool something_late(const fl_engine *e, int kind)
{
    return e->flights.late[kind].count > 0 && capacity(e, kind) > 0;
}

/* Sets the alarm to the time at which the next timer is due. If the dispatcher is at its limit, settling wakes the engine. */
static void set_alarm(fl_engine *e)
{
    uint64_t next_ns = UINT64_MAX, at_us;
    for (int kind = 0; kind < 2; kind++) {
        if (something_late(e, kind))
            next_ns = 0;
        else if (capacity(e, kind) > 0 && fl_nodes_next_poll(e->wheel[kind], &at_us) && at_us * NS_PER_US < next_ns)
            next_ns = at_us * NS_PER_US;
    }
    int64_t arm_us = fl__memory_arm_next_us(e);
    if (arm_us < INT64_MAX && capacity(e, 0) > 0 && (uint64_t)arm_us * NS_PER_US < next_ns)
        next_ns = (uint64_t)arm_us * NS_PER_US;
    if (next_ns == UINT64_MAX)
        return;
    uint64_t now_ns = (uint64_t)fl__engine_now(e) * NS_PER_US;
    uint64_t delay_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    if (e->catch_up_us > 0 && delay_ns == 0 && e->catch_up_tokens < 1)
        delay_ns = 1 + SECOND_US * NS_PER_US / e->config.catch_up_rate;
    fl__alarm_set(e, &e->fire_alarm, delay_ns);
}

void fl__fire_soon(fl_engine *e)
{
    e->fire_asked = true;
    fl__engine_flush_soon(e);
}

/* How many timers that fell due before the shard was claimed may be dispatched now. */
static size_t catch_up(fl_engine *e, int64_t now_us, size_t limit)
{
    if (e->config.catch_up_rate == 0 || e->catch_up_us == 0)
        return limit;
    if (now_us > e->catch_up_us)
        e->catch_up_tokens += (double)(now_us - e->catch_up_us) * (double)e->config.catch_up_rate / SECOND_US;
    e->catch_up_us = now_us;
    if (e->catch_up_tokens > (double)e->config.catch_up_rate)
        e->catch_up_tokens = (double)e->config.catch_up_rate;
    return e->catch_up_tokens < (double)limit ? (size_t)e->catch_up_tokens : limit;
}

/* --- Out ---------------------------------------------------------------------------------------------------------- */

/* When the timer of an item is due. The time of a parked row does not say this. */
int64_t fl__item_due(const fl_engine *e, const struct item *item)
{
    fl_row row;
    fl_durable timer;
    if (!fl__is_lane_time(item_at_us(item)))
        return item_at_us(item);
    fl__item_row(e, item, &row);
    fl__row_timer(&row, &timer);
    return timer.due_us;
}

/* Whether a missed timer is so old that it is skipped. Time for which it was paused does not count. */
static bool too_old(fl_engine *e, const struct item *item)
{
    uint64_t limit_us = e->spaces.list[fl__item_space(item)].skip_older_us;
    fl_row row;
    fl_durable timer;
    if (limit_us == UINT64_MAX)
        limit_us = e->config.skip_older_us;
    if (limit_us == 0 || item_at_us(item) >= e->claimed_us ||
        (uint64_t)(e->claimed_us - item_at_us(item)) <= limit_us || item->seq & 1)
        return false;
    if (!e->config.paused)
        return true;
    fl__item_row(e, item, &row);
    fl__row_timer(&row, &timer);
    uint64_t age_us = (uint64_t)(e->claimed_us - item_at_us(item));
    uint64_t paused_us = e->config.paused(e->config.arg, e, &timer, item_at_us(item), e->claimed_us);
    return paused_us < age_us && age_us - paused_us > limit_us;
}

/* Makes a firing of a flight in state FLIGHT_HELD. */
static void launch(fl_engine *e, uint32_t index, fl_firing *firing, int64_t now_us)
{
    struct flight *flight = &e->flights.list[index];
    fl_row row;
    fl__assert(flight->state == FLIGHT_HELD && !flight->lane && !flight->superseded);
    flight->state = FLIGHT_DISPATCHED;
    e->flights.dispatched[flight->item->seq & 1]++;
    fl__lane_not_called(e, flight);
    fl__item_row(e, flight->item, &row);
    fl__row_timer(&row, &firing->timer);
    firing->timer.attempt++;
    firing->token = fl__flight_token(e, index);
    firing->parked = fl__is_lane_time(item_at_us(flight->item));
    firing->lane = firing->parked ? fl__lane_of_time(item_at_us(flight->item)) : 0;
    firing->at_us = firing->parked ? firing->timer.due_us : item_at_us(flight->item);
    int64_t late_us = now_us - fl__item_due(e, flight->item);
    histogram_add(&e->lateness, (uint64_t)(late_us > 0 ? late_us : 0) * NS_PER_US);
    e->stats.dispatched++;
}

void fl__tell_end(fl_engine *e, const struct item *item, enum fl_ended how, fl_bytes reason)
{
    fl_row row;
    fl_durable timer;
    if (!e->config.ended)
        return;
    fl__item_row(e, item, &row);
    fl__row_timer(&row, &timer);
    timer.attempt += how == FL_ENDED_DEAD; /* the one that has just failed */
    e->config.ended(e->config.arg, e, &timer, how, reason);
}

void fl__flight_gone(fl_engine *e, uint32_t index)
{
    const struct item *item = e->flights.list[index].item;
    fl__assert(item && !e->flights.list[index].superseded);
    if (item->flags & ITEM_UNSURE)
        fl__doubt_forget(e, item->seq);
    else
        fl__count(e, fl__item_space(item), -1);
}

/* Skips a timer. If the clock was set back, the front may not have passed its row: then the row is removed. */
static void skip(fl_engine *e, uint32_t index)
{
    fl__tell_end(e, e->flights.list[index].item, FL_ENDED_SKIPPED, (fl_bytes){0});
    e->stats.skipped++;
    fl__settle_end(e, index, &(fl_settlement){.result = FL_DONE});
}

/* Returns whether there is a firing. */
static bool try_launch(fl_engine *e, uint32_t index, fl_firing *firing, int64_t now_us)
{
    struct flight *flight = &e->flights.list[index];
    fl__assert(flight->state == FLIGHT_HELD);
    if (flight->superseded)
        fl__flight_end(e, index);
    else if (flight->item->flags & ITEM_HELD)
        flight->state = FLIGHT_HELD;
    else if (too_old(e, flight->item))
        skip(e, index);
    else {
        launch(e, index, firing, now_us);
        return true;
    }
    return false;
}

static size_t launch_late(fl_engine *e, int kind, int64_t now_us, size_t limit)
{
    size_t count = 0;
    uint32_t index;
    fl__assert(limit <= e->config.dispatch_batch);
    while (count < limit && (index = fl__flight_next_late(e, kind)))
        count += try_launch(e, index, &e->firings[count], now_us);
    return count;
}

static void pass_front(fl_engine *e, fl_key key)
{
    if (key_before(e->front[key.seq & 1], key))
        e->front[key.seq & 1] = key;
    e->dirty = true;
}

static size_t launch_due(fl_engine *e, int kind, int64_t now_us, size_t limit)
{
    size_t count = 0;
    limit = catch_up(e, now_us, limit);
    size_t n = fl__memory_poll(e, kind, now_us, limit);
    fl__assert(n <= limit);
    for (size_t i = 0; i < n; i++) {
        struct item *item = container_of(e->due[i], struct item, node);
        if (i + AHEAD < n) /* long loaded, and no longer in a cache */
            __builtin_prefetch(e->due[i + AHEAD]);
        uint32_t index = fl__flight_new(e, item, FLIGHT_HELD);
        if (index == 0) {
            fl__engine_restart(e, "out of memory: cannot fire a timer");
            return count;
        }
        fl__memory_take(e, item);
        pass_front(e, item_key(item));
        if (e->catch_up_us > 0 && item_at_us(item) < e->claimed_us)
            e->catch_up_tokens -= 1;
        else
            e->catch_up_us = 0; /* all missed timers have fired */
        count += try_launch(e, index, &e->firings[count], now_us);
    }
    return count;
}

static size_t room_in_batch(const fl_engine *e, int kind)
{
    size_t room = capacity(e, kind);
    return room < e->config.dispatch_batch ? room : e->config.dispatch_batch;
}

/* Fires one batch of a kind. Late flights and due items take turns if there are too many of both. */
static void fire_kind(fl_engine *e, int kind, int64_t now_us)
{
    size_t room = room_in_batch(e, kind);
    fl__assert(room <= e->config.dispatch_batch);
    if (room == 0)
        return;
    size_t late = launch_late(e, kind, now_us, room > 1 ? room / 2 : 1);
    if (late > 0)
        e->config.dispatch(e->config.arg, e, e->firings, late);
    if (!fl__engine_may_fire(e))
        return;
    size_t due = launch_due(e, kind, now_us, room_in_batch(e, kind));
    if (due > 0 && e->state == ENGINE_RUNNING)
        e->config.dispatch(e->config.arg, e, e->firings, due);
}

/* Fires due timers, one batch of each kind per turn of the loop. */
void fl__engine_fire(fl_engine *e)
{
    e->fire_asked = false;
    if (!fl__engine_may_fire(e))
        return;
    int64_t now_us = fl__engine_now(e);
    if (e->clock_us < now_us) { /* set back: nothing fires until the clock has caught up or the front is moved back */
        fl__alarm_set(e, &e->fire_alarm, (uint64_t)(now_us - e->clock_us) * NS_PER_US);
        return;
    }
    bool armed = fl__memory_arm(e, now_us);
    if (e->state == ENGINE_RUNNING)
        fire_kind(e, 0, now_us);
    if (fl__engine_may_fire(e))
        fire_kind(e, RETRIED, now_us);
    if (e->state != ENGINE_RUNNING)
        return;
    if (!armed)
        fl__fire_soon(e);
    fl__load_if_room(e);
    fl__lanes_read(e);
    set_alarm(e);
}
