/* SPDX-License-Identifier: MIT */
/* The outcome of an attempt.
 *
 * For a timer that is done, nothing is written, because the front has passed the row. Any other outcome changes the row
 * (files it anew, or makes it a dead letter), and the flight waits for that change. */

#include "engine/internal.h"

/* Also returns 0 for a policy that is not set. */
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

/* The delay after so many attempts: exponential, shortened at random so that timers that failed together are not retried
 * together. */
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
    fl__assert(shortened >= 0);
    return (uint64_t)shortened + 1;
}

/* Whether the timer will be older than its policy allows. Time for which it was paused does not count. */
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
    fl__assert_debug(size <= fl__body_size(timer));
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
    fl__assert_debug(size <= fl__body_size(timer));
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

/* Continues the timer as its batch says, and files the timers that it creates in the same write. */
static int write_advance(fl_engine *e, struct work *work)
{
    fl_row row;
    fl_durable timer;
    fl_op *op = &work->group->batch->ops[0];
    fl__assert(op == work->op);
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

/* Files the row again, or makes it a dead letter, as the settlement says. */
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

/* The row of an attempt that the front has not passed must be removed. The attempt was in progress when the clock was set
 * back. */
static int write_removal(fl_engine *e, struct work *work)
{
    fl_store_change *change;
    fl_row row;
    struct write_entry *entry = fl__write_add(e, 0, &change, NULL);
    fl__assert(work->kind == WORK_REMOVE);
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
    fl__assert(work->kind != WORK_CLIENT);
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

/* Ends an attempt without a write: the front has passed its row, or the row is gone. */
static bool over(fl_engine *e, uint32_t index)
{
    const struct flight *flight = &e->flights.list[index];
    fl_key key = item_key(flight->item);
    fl__assert(flight->state != FLIGHT_FREE && flight->state != FLIGHT_LATE);
    if (!flight->superseded && !behind_front(e, key))
        return false;
    if (!flight->superseded) {
        fl__flight_gone(e, index);
        fl__progress_settle(e, key.seq);
        fl__delete_key(e, key);
    }
    e->dirty = true;
    fl__flight_end(e, index);
    fl__fire_soon(e);
    return true;
}

/* The row is held: no other operation changes it meanwhile. */
void fl__settle_continue(fl_engine *e, struct work *work)
{
    const struct flight *flight = &e->flights.list[work->flight];
    fl__assert(flight->state == FLIGHT_SETTLING && work->row_lock.held && !work->in_doubt);
    fl__progress_move_fronts(e);
    if ((flight->superseded || work->kind == WORK_REMOVE) && over(e, work->flight)) {
        fl__ops_answer_work(e, work, FL_TIMER_NOT_FOUND);
        fl__work_end(e, work);
        return;
    }
    int r = FL_OUTCOME_UNKNOWN; /* the store may not have the row: try again later */
    if (!(flight->item->flags & ITEM_UNSURE))
        r = work->kind == WORK_REMOVE ? write_removal(e, work) : write_settlement(e, work);
    if (r < 0) {
        fl__queue_append(&e->to_repeat, work);
        fl__doubts_ask_later(e);
    }
}

static void settle_granted(fl_engine *e, struct lock *lock)
{
    struct work *work = (struct work *)((char *)lock - offsetof(struct work, row_lock));
    fl__assert(lock->held);
    if (e->state == ENGINE_RUNNING)
        fl__settle_continue(e, work);
    else
        fl__work_end(e, work);
}

void fl__settle_applied(fl_engine *e, struct work *work, const fl_row *row)
{
    uint32_t index = work->flight;
    fl__assert(work->kind != WORK_CLIENT && e->flights.list[index].state == FLIGHT_SETTLING);
    fl__settle_count(e, work);
    if (work->kind == WORK_SETTLE && work->new_key.seq == 0)
        fl__tell_end(e, e->flights.list[index].item, FL_ENDED_DEAD, work->settlement.reason);
    if (row)
        fl__ops_take_in(e, row, 0); /* first: its name is that of the item in flight */
    fl__flight_end(e, index);
    fl__ops_answer_work(e, work, 0);
    fl__work_end(e, work);
    fl__fire_soon(e);
}

void fl__settle_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result)
{
    fl__assert(work->row_lock.held);
    if (result == 0) {
        fl__settle_applied(e, work, work->new_key.seq ? &entry->row : NULL);
    } else if (result == FL_OUTCOME_UNKNOWN) {
        fl__doubt(e, work);
    } else {
        fl__queue_append(&e->to_repeat, work);
        fl__doubts_ask_later(e);
    }
}

/* NULL: no memory. */
static struct work *settlement_work(fl_engine *e, const fl_settlement *settlement, enum work_kind kind)
{
    struct work *work = fl__work_new(e, kind);
    size_t size = settlement->reason.size < REASON_MOST ? settlement->reason.size : REASON_MOST;
    bool advances = settlement->result == FL_ADVANCE;
    fl__assert(kind != WORK_CLIENT);
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

/* Without memory, the attempt counts as still in progress; the next shard owner repeats it. */
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
    fl__assert(flight->state == FLIGHT_HELD || flight->state == FLIGHT_DISPATCHED);
    fl__assert(flight->state == FLIGHT_DISPATCHED || !flight->lane);
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

/* A previous shard owner has begun an attempt of this row, and its outcome is not known. */
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

void fl__settle_end(fl_engine *e, uint32_t index, const fl_settlement *settlement)
{
    if (over(e, index))
        return;
    fl__progress_move_fronts(e);
    if (over(e, index))
        return;
    e->flights.list[index].done = true;
    fl__settle_begin(e, index, settlement, WORK_REMOVE, 0);
}

/* Refuses the batch of a settlement whose timer cannot continue. */
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
        fl__settle_end(e, index, &(fl_settlement){.result = FL_DONE});
    } else if (over) {
        fl__settle_end(e, index, settlement);
    } else {
        fl__settle_begin(e, index, settlement, WORK_SETTLE, 0);
    }
}

/* Whether the settlement is valid. */
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
