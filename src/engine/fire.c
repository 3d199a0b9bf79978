/* SPDX-License-Identifier: MIT */
/* From memory to the dispatcher, and what becomes of it.
 *
 * What is due is taken out of the wheels, first attempts before repeated ones, as long as the dispatcher may have more; the
 * front moves with it. Repeated ones get at most half of what may be in flight, so that a target that is down does not keep
 * the others waiting. Whatever has been taken out is a flight until it is settled.
 *
 * Done is the cheap way out: nothing is written, because the front has passed the row. Everything else is a change of the
 * row (filed anew, or given up) for which the flight waits.
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

/* Wakes when the next timer is due, unless the dispatcher has its hands full: then settling wakes. */
static void set_alarm(fl_engine *e)
{
    uint64_t next_ns = UINT64_MAX, at_ns;
    for (int kind = 0; kind < 2; kind++) {
        if (something_late(e, kind))
            next_ns = 0;
        else if (capacity(e, kind) > 0 && fl_wheel_next_poll(e->wheel[kind], &at_ns) && at_ns < next_ns)
            next_ns = at_ns;
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

/* How many may go out that fell due before the shard was claimed. */
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

/* When it was due: of one that is parked, its row's time does not say. */
int64_t fl__item_due(const fl_engine *e, const struct item *item)
{
    fl_row row;
    fl_durable timer;
    if (!fl__is_lane_time(item->at_us))
        return item->at_us;
    fl__item_row(e, item, &row);
    fl__row_timer(&row, &timer);
    return timer.due_us;
}

/* Time for which it was paused does not count. */
static bool too_old(fl_engine *e, const struct item *item)
{
    uint64_t limit_us = e->spaces.list[fl__item_space(item)].skip_older_us;
    fl_row row;
    fl_durable timer;
    if (limit_us == UINT64_MAX)
        limit_us = e->config.skip_older_us;
    if (limit_us == 0 || item->at_us >= e->claimed_us || (uint64_t)(e->claimed_us - item->at_us) <= limit_us ||
        item->seq & 1)
        return false;
    if (!e->config.paused)
        return true;
    fl__item_row(e, item, &row);
    fl__row_timer(&row, &timer);
    uint64_t age_us = (uint64_t)(e->claimed_us - item->at_us);
    uint64_t paused_us = e->config.paused(e->config.arg, e, &timer, item->at_us, e->claimed_us);
    return paused_us < age_us && age_us - paused_us > limit_us;
}

/* Makes a firing of a flight that is parked. */
static void launch(fl_engine *e, uint32_t index, fl_firing *firing, int64_t now_us)
{
    struct flight *flight = &e->flights.list[index];
    fl_row row;
    flight->state = FLIGHT_DISPATCHED;
    e->flights.dispatched[flight->item->seq & 1]++;
    fl__lane_not_called(e, flight);
    fl__item_row(e, flight->item, &row);
    fl__row_timer(&row, &firing->timer);
    firing->timer.attempt++;
    firing->token = fl__flight_token(e, index);
    firing->parked = fl__is_lane_time(flight->item->at_us);
    firing->lane = firing->parked ? fl__lane_of_time(flight->item->at_us) : 0;
    firing->at_us = firing->parked ? firing->timer.due_us : flight->item->at_us;
    int64_t late_us = now_us - fl__item_due(e, flight->item);
    histogram_add(&e->lateness, (uint64_t)(late_us > 0 ? late_us : 0) * NS_PER_US);
    e->stats.dispatched++;
}

/* Tells the program of an end that is not its dispatcher's doing. */
static void tell_end(fl_engine *e, const struct item *item, enum fl_ended how, fl_bytes reason)
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

/* One of which it is not known whether it is in the store has never been counted. */
static void flight_gone(fl_engine *e, uint32_t index)
{
    const struct item *item = e->flights.list[index].item;
    if (item->flags & ITEM_UNSURE)
        fl__doubt_forget(e, item->seq);
    else
        fl__count(e, fl__item_space(item), -1);
}

static void end_attempt(fl_engine *e, uint32_t index, const fl_settlement *settlement);

/* The front may not have passed it, if the clock was set back: then its row is taken away. */
static void skip(fl_engine *e, uint32_t index)
{
    tell_end(e, e->flights.list[index].item, FL_ENDED_SKIPPED, (fl_bytes){0});
    e->stats.skipped++;
    end_attempt(e, index, &(fl_settlement){.result = FL_DONE});
}

/* Returns whether there is a firing. */
static bool try_launch(fl_engine *e, uint32_t index, fl_firing *firing, int64_t now_us)
{
    struct flight *flight = &e->flights.list[index];
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
    size_t n = fl_wheel_poll(e->wheel[kind], (uint64_t)fl__memory_reach_us(e, now_us) * NS_PER_US, e->due, limit);
    for (size_t i = 0; i < n; i++) {
        struct item *item = e->due[i].data;
        if (i + AHEAD < n) /* long loaded, and no longer in a cache */
            __builtin_prefetch(e->due[i + AHEAD].data);
        uint32_t index = fl__flight_new(e, item, FLIGHT_HELD);
        if (index == 0) {
            fl__engine_restart(e, "out of memory: cannot fire a timer");
            return count;
        }
        fl__memory_take(e, item);
        pass_front(e, item_key(item));
        if (e->catch_up_us > 0 && item->at_us < e->claimed_us)
            e->catch_up_tokens -= 1;
        else
            e->catch_up_us = 0; /* all that was missed has fired */
        count += try_launch(e, index, &e->firings[count], now_us);
    }
    return count;
}

static size_t room_in_batch(const fl_engine *e, int kind)
{
    size_t room = capacity(e, kind);
    return room < e->config.dispatch_batch ? room : e->config.dispatch_batch;
}

/* One batch of a kind. Late ones and those that are due now take turns when there is too much of both. */
static void fire_kind(fl_engine *e, int kind, int64_t now_us)
{
    size_t room = room_in_batch(e, kind);
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

/* Fires what is due, a batch of each kind at a time; the loop has its turn in between. */
void fl__engine_fire(fl_engine *e)
{
    e->fire_asked = false;
    if (!fl__engine_may_fire(e))
        return;
    int64_t now_us = fl__engine_now(e);
    if (e->clock_us < now_us) { /* set back: time stands still until that is seen to, or over */
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

/* --- Back --------------------------------------------------------------------------------------------------------- */

/* Returns 0 for none at all, too. */
int fl__retry_check(const fl_retry *retry)
{
    static const fl_retry none;
    bool given = memcmp(retry, &none, sizeof none) != 0;
    return given && (retry->multiplier_1000 < 1000 || retry->initial_us == 0 ||
                     retry->max_interval_us < retry->initial_us)
               ? FL_INVALID_ARGUMENT
               : 0;
}

static const fl_retry *policy_of(const fl_engine *e, const fl_durable *timer)
{
    return timer->retry.initial_us > 0 ? &timer->retry : &e->config.retry;
}

/* How long to wait after so many attempts: exponential, and shortened at random so that those that failed together do not
 * come again together. */
static uint64_t backoff_us(fl_engine *e, const fl_retry *retry, uint32_t attempt)
{
    double wait = (double)retry->initial_us, most = (double)retry->max_interval_us;
    if (most > (double)FL_STORE_TIME_END)
        most = (double)FL_STORE_TIME_END;
    for (uint32_t i = 1; i < attempt && wait < most && retry->multiplier_1000 > 1000; i++)
        wait *= retry->multiplier_1000 / 1000.0;
    if (wait > most)
        wait = most;
    double shortened = wait * (1 - (double)(fl__engine_random(e) >> 11) / (double)(1ull << 53) / 5);
    return (uint64_t)shortened + 1;
}

/* Whether it will be older than that, without the time for which it was paused. */
static bool is_too_old(fl_engine *e, const fl_durable *timer, int64_t at_us, uint64_t most_us)
{
    uint64_t age_us = at_us > timer->due_us ? (uint64_t)at_us - (uint64_t)timer->due_us : 0;
    if (age_us <= most_us || !e->config.paused)
        return age_us > most_us;
    uint64_t paused_us = e->config.paused(e->config.arg, e, timer, timer->due_us, at_us);
    return paused_us < age_us && age_us - paused_us > most_us;
}

/* Computes when the next attempt after a failed one is, not before `*at`. Returns false if there is no next attempt. */
static bool next_attempt(fl_engine *e, const fl_durable *timer, bool at_once, int64_t *at)
{
    const fl_retry *retry = policy_of(e, timer);
    int64_t now_us = fl__engine_filing_now(e);
    int64_t at_us = at_once ? now_us : now_us + (int64_t)backoff_us(e, retry, timer->attempt);
    if (at_us < *at)
        at_us = *at;
    if (retry->max_attempts > 0 && timer->attempt >= retry->max_attempts)
        return false;
    if (retry->max_age_us > 0 && is_too_old(e, timer, at_us, retry->max_age_us))
        return false;
    if (at_us >= FL_STORE_TIME_END)
        return false;
    *at = at_us;
    return true;
}

static int write_dead(fl_engine *e, struct work *work, const fl_row *row, const fl_durable *timer)
{
    fl_store_change *change;
    unsigned char *body;
    struct write_entry *entry = fl__write_add(e, fl__body_size(timer), &change, &body);
    if (!entry)
        return FL_NO_MEMORY;
    size_t size = fl__body_encode(timer, row->id.at_us, body); /* the time that is kept of it */
    entry->dead.row = *row;
    entry->dead.row.key = row->id;
    entry->dead.row.body = (fl_bytes){body, size};
    entry->dead.died_us = fl__engine_now(e);
    entry->dead.reason = work->settlement.reason;
    change->bury = &entry->dead;
    change->remove = row->key;
    change->remove_id = row->id.seq != row->key.seq ? row->id.seq : 0;
    entry->work = work;
    work->new_key = (fl_key){0};
    return 0;
}

static int write_again(fl_engine *e, struct work *work, const fl_row *row, const fl_durable *timer, int64_t at_us)
{
    fl_store_change *change;
    unsigned char *body;
    uint64_t seq = fl__seq_take(e, timer->attempt > 0);
    if (seq == 0)
        return FL_STORE_UNAVAILABLE;
    struct write_entry *entry = fl__write_add(e, fl__body_size(timer), &change, &body);
    if (!entry)
        return FL_NO_MEMORY;
    fl_key key = work->kind == WORK_PARK ? fl__lane_key(work->lane, seq) : (fl_key){at_us, seq};
    size_t size = fl__body_encode(timer, key.at_us, body);
    entry->row = *row;
    entry->row.key = key;
    entry->row.window = work->kind == WORK_PARK ? fl__lane_window(work->lane) : fl__window_for(e, at_us);
    entry->row.body = (fl_bytes){body, size};
    change->put = &entry->row;
    change->remove = row->key;
    change->remove_id = row->id.seq != row->key.seq ? row->id.seq : 0;
    entry->work = work;
    work->new_key = entry->row.key;
    return 0;
}

/* The timer goes on as its batch says, and what it creates is filed with it. */
static int write_advance(fl_engine *e, struct work *work)
{
    fl_row row;
    fl_durable timer;
    fl_op *op = &work->group->batch->ops[0];
    if (!fl__write_open_group(e))
        return FL_NO_MEMORY;
    int r = fl__group_file(e, work->group);
    fl__item_row(e, e->flights.list[work->flight].item, &row);
    fl__row_timer(&row, &timer);
    fl__ops_apply_update(op, &timer);
    work->old_key = row.key;
    work->id = row.id;
    if (r == 0)
        r = write_again(e, work, &row, &timer, fl__ops_filing_time(e, timer.due_us));
    fl__write_close_group(e, r == 0);
    op->timer.id = row.id;
    op->timer.revision = work->new_key.seq;
    return r;
}

/* Files again, or gives up, as the settlement says. */
static int write_settlement(fl_engine *e, struct work *work)
{
    if (work->group)
        return write_advance(e, work);
    fl_row row;
    fl_durable timer;
    int64_t at_us = work->settlement.at_us, now_us = fl__engine_filing_now(e);
    fl__item_row(e, e->flights.list[work->flight].item, &row);
    fl__row_timer(&row, &timer);
    work->old_key = row.key;
    work->id = row.id;
    bool again =
        (work->settlement.result == FL_AGAIN || work->settlement.result == FL_LATER) && at_us < FL_STORE_TIME_END;
    if (again)
        at_us = at_us > now_us ? at_us : now_us;
    if (work->settlement.result != FL_LATER)
        timer.attempt++;
    else if (again && at_us < timer.due_us)
        at_us = timer.due_us; /* the clock was set back: it is too early for the first attempt again */
    if (work->settlement.result == FL_AGAIN && again) {
        timer.attempt = 0;
        timer.due_us = at_us;
        timer.local = timer.zone = (fl_bytes){0};
    } else if (work->settlement.result == FL_FAILED || work->settlement.result == FL_EXPIRED) {
        again = next_attempt(e, &timer, work->settlement.result == FL_EXPIRED, &at_us);
    }
    return again ? write_again(e, work, &row, &timer, at_us) : write_dead(e, work, &row, &timer);
}

/* An attempt that the front has not passed leaves a row that must be taken away: it was under way when the clock was set
 * back. */
static int write_removal(fl_engine *e, struct work *work)
{
    fl_store_change *change;
    fl_row row;
    struct write_entry *entry = fl__write_add(e, 0, &change, NULL);
    if (!entry)
        return FL_NO_MEMORY;
    fl__item_row(e, e->flights.list[work->flight].item, &row);
    work->old_key = row.key;
    work->id = row.id;
    change->remove = row.key;
    change->remove_id = row.id.seq != row.key.seq ? row.id.seq : 0;
    entry->work = work;
    return 0;
}

void fl__settle_count(fl_engine *e, const struct work *work)
{
    fl_engine_stats *stats = &e->stats;
    bool filed = work->new_key.seq != 0;
    if (work->kind == WORK_PARK)
        stats->parked++;
    else if (work->kind == WORK_UNPARK)
        stats->unparked++;
    else if (work->kind == WORK_SETTLE && !filed)
        stats->dead++;
    else if (work->kind == WORK_SETTLE)
        *(work->settlement.result == FL_AGAIN || work->group ? &stats->again
          : work->settlement.result == FL_LATER              ? &stats->later
                                                             : &stats->retried) += 1;
    if (!filed)
        fl__count(e, work->space, -1);
}

/* It is over, and nothing has to be written: the front has passed it, or its row is gone. */
static bool over(fl_engine *e, uint32_t index)
{
    const struct flight *flight = &e->flights.list[index];
    fl_key key = item_key(flight->item);
    if (!flight->superseded && !behind_front(e, key))
        return false;
    if (!flight->superseded) {
        flight_gone(e, index);
        fl__progress_settle(e, key.seq);
        fl__delete_key(e, key);
    }
    e->dirty = true;
    fl__flight_end(e, index);
    fl__fire_soon(e);
    return true;
}

/* The row is held: nobody else changes it meanwhile. */
void fl__settle_continue(fl_engine *e, struct work *work)
{
    const struct flight *flight = &e->flights.list[work->flight];
    fl__progress_move_fronts(e);
    if ((flight->superseded || work->kind == WORK_REMOVE) && over(e, work->flight)) {
        fl__ops_answer_work(e, work, FL_TIMER_NOT_FOUND);
        fl__work_end(e, work);
        return;
    }
    int r = FL_OUTCOME_UNKNOWN; /* whether there is anything to file again */
    if (!(flight->item->flags & ITEM_UNSURE))
        r = work->kind == WORK_REMOVE ? write_removal(e, work) : write_settlement(e, work);
    if (r < 0) {
        fl__queue_push(&e->to_repeat, work);
        fl__doubts_ask_later(e);
    }
}

static void settle_granted(fl_engine *e, struct lock *lock)
{
    struct work *work = (struct work *)((char *)lock - offsetof(struct work, row_lock));
    if (e->state == ENGINE_RUNNING)
        fl__settle_continue(e, work);
    else
        fl__work_end(e, work);
}

void fl__settle_applied(fl_engine *e, struct work *work, const fl_row *row)
{
    uint32_t index = work->flight;
    fl__settle_count(e, work);
    if (work->kind == WORK_SETTLE && work->new_key.seq == 0)
        tell_end(e, e->flights.list[index].item, FL_ENDED_DEAD, work->settlement.reason);
    if (row)
        fl__ops_take_in(e, row, 0); /* first: its name is that of the item in flight */
    fl__flight_end(e, index);
    fl__ops_answer_work(e, work, 0);
    fl__work_end(e, work);
    fl__fire_soon(e);
}

void fl__settle_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result)
{
    if (result == 0) {
        fl__settle_applied(e, work, work->new_key.seq ? &entry->row : NULL);
    } else if (result == FL_OUTCOME_UNKNOWN) {
        fl__doubt(e, work);
    } else {
        fl__queue_push(&e->to_repeat, work);
        fl__doubts_ask_later(e);
    }
}

/* NULL: no memory. */
static struct work *settlement_work(fl_engine *e, const fl_settlement *settlement, enum work_kind kind)
{
    struct work *work = fl__work_new(e, kind);
    size_t size = settlement->reason.size < REASON_MOST ? settlement->reason.size : REASON_MOST;
    bool advances = settlement->result == FL_ADVANCE;
    if (!work)
        return NULL;
    work->reason = size > 0 ? fl__alloc(size) : NULL;
    work->group = advances ? fl__group_new(settlement->batch) : NULL;
    if ((size > 0 && !work->reason) || (advances && !work->group)) {
        fl__work_end(e, work);
        return NULL;
    }
    if (size > 0)
        memcpy(work->reason, settlement->reason.data, size);
    work->settlement = *settlement;
    work->settlement.reason = (fl_bytes){work->reason, size};
    work->batch = settlement->batch;
    work->op = advances ? settlement->batch->ops : NULL;
    return work;
}

/* Without memory, the attempt counts as one that is still under way; the next owner repeats it. */
void fl__settle_begin(fl_engine *e, uint32_t index, const fl_settlement *settlement, enum work_kind kind, uint32_t lane)
{
    struct flight *flight = &e->flights.list[index];
    struct work *work = settlement_work(e, settlement, kind);
    if (!work) {
        if (settlement->result == FL_ADVANCE)
            fl__group_refuse(e, settlement->batch, FL_NO_MEMORY);
        fl__engine_restart(e, "out of memory: cannot settle an attempt");
        return;
    }
    work->flight = index;
    work->space = fl__item_space(e->flights.list[index].item);
    work->lane = lane;
    if (flight->state == FLIGHT_HELD)
        e->flights.dispatched[flight->item->seq & 1]++;
    flight->state = FLIGHT_SETTLING;
    flight->moving = settlement->result == FL_LATER;
    if (fl__lock(e, &work->row_lock, lock_of_seq(flight->item->seq), settle_granted))
        fl__settle_continue(e, work);
}

/* An owner before has begun an attempt of this row, and nobody has said how that ended. */
void fl__settle_expired(fl_engine *e, const fl_row *row)
{
    uint32_t index = fl__memory_flight(e, row);
    if (index == 0) {
        fl__engine_restart(e, "out of memory for what is due soon");
        return;
    }
    e->flights.list[index].counted = true;
    fl_settlement settlement = {.result = FL_EXPIRED, .reason = FL_TEXT("the server stopped before the attempt ended")};
    fl__settle_begin(e, index, &settlement, WORK_SETTLE, 0);
}

/* Nothing is to come after it. */
static void end_attempt(fl_engine *e, uint32_t index, const fl_settlement *settlement)
{
    if (over(e, index))
        return;
    fl__progress_move_fronts(e);
    if (over(e, index))
        return;
    e->flights.list[index].done = true;
    fl__settle_begin(e, index, settlement, WORK_REMOVE, 0);
}

/* One that cannot go on any more. */
static void refuse_advance(fl_engine *e, const fl_settlement *settlement, int result)
{
    if (settlement->result == FL_ADVANCE)
        fl__group_refuse(e, settlement->batch, result);
}

static void settle_one(fl_engine *e, uint32_t index, const fl_settlement *settlement)
{
    struct flight *flight = &e->flights.list[index];
    bool over = settlement->result == FL_DONE || settlement->result == FL_SKIP;
    e->dirty = true;
    fl__lane_stop_waiting(e, flight);
    e->stats.failed +=
        settlement->result == FL_FAILED || settlement->result == FL_DEAD || settlement->result == FL_EXPIRED;
    if (over && flight->state != FLIGHT_ORPHAN)
        *(settlement->result == FL_DONE ? &e->stats.fired : &e->stats.skipped) += 1;
    if (flight->state == FLIGHT_ORPHAN) {
        refuse_advance(e, settlement, FL_STORE_UNAVAILABLE);
        fl__flight_end(e, index);
    } else if (flight->superseded) {
        refuse_advance(e, settlement, FL_TIMER_NOT_FOUND);
        end_attempt(e, index, &(fl_settlement){.result = FL_DONE});
    } else if (over) {
        end_attempt(e, index, settlement);
    } else {
        fl__settle_begin(e, index, settlement, WORK_SETTLE, 0);
    }
}

/* Whether it says what is to become of the attempt. */
static bool is_sound(const fl_engine *e, const fl_settlement *settlement)
{
    const fl_batch *batch = settlement->batch;
    if (settlement->result != FL_ADVANCE)
        return (unsigned)settlement->result <= FL_SKIP;
    return batch && batch->count > 0 && batch->ops[0].kind == FL_OP_UPDATE && batch->ops[0].flags & FL_OP_SET_DUE &&
           fl__ops_check_content(e, &batch->ops[0].timer) == 0 && fl__ops_check_group(e, batch) == 0;
}

size_t fl_engine_settle(fl_engine *engine, const fl_settlement *settlements, size_t count)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t index = fl__flight_of_token(engine, settlements[i].token);
        if (index && is_sound(engine, &settlements[i])) {
            known++;
            if (settlements[i].result == FL_ADVANCE) {
                settlements[i].batch->bytes = NULL;
                settlements[i].batch->left = settlements[i].batch->count;
            }
            settle_one(engine, index, &settlements[i]);
        }
    }
    if (known > 0)
        fl__fire_soon(engine);
    return known;
}
