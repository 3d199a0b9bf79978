/* SPDX-License-Identifier: MIT */
/* Progress of the shard, and the deletion of settled rows.
 *
 * Progress is the two fronts, and a list of the rows behind them that are not settled: flights; rows of queued or sent writes
 * that the front has passed meanwhile; rows of works in doubt; and rows from the list of the previous owner that are not
 * loaded yet. It is recorded every second if it has changed. After a crash, attempts that were settled since the last record
 * are repeated, and no others.
 *
 * Rows are deleted by windows, when a window has ended and both fronts have passed it. Rows that are still in flight stay.
 *
 * The wall clock set back. The front is then ahead of the clock, and new timers would be filed behind it, as if settled. So
 * one transaction deletes all settled rows, also in windows that have not ended, and moves the front back to the clock.
 * Nothing else is written before. An attempt in progress is then ahead of the front. When it is done, its row is removed. If
 * the front has passed it again before that could be written, it is settled like any other.
 */

#include <stdlib.h>

#include "engine/internal.h"

enum { LANES_AT_ONCE = 64 };

/* --- What is not settled ------------------------------------------------------------------------------------------ */

static uint64_t *kept_before(const fl_engine *e, uint64_t seq)
{
    size_t low = 0, high = e->recovering ? e->recovered_count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (e->recovered[middle] == seq)
            return &e->recovered[middle];
        if (e->recovered[middle] < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Whether a row of the store is settled. Rows from the list of the previous owner are not settled until they are loaded. Nor
 * are rows that a work in doubt may have filed. */
bool fl__settled(const fl_engine *e, fl_key key)
{
    if (e->retreat && fl_progress_settled(&e->record_request.finish.settled, key))
        return true; /* answers come in order: this row was seen before it was deleted */
    return behind_front(e, key) && !kept_before(e, key.seq) && !fl__flight_find(e, key.seq) &&
           !fl__doubt_about(e, key.seq);
}

/* Settles a row that the front has passed: it no longer counts as kept. Nothing is written for it. */
void fl__progress_settle(fl_engine *e, uint64_t seq)
{
    uint64_t *kept[] = {kept_before(e, seq | 1), kept_before(e, seq & ~(uint64_t)1)}; /* the row, and its mark */
    fl__assert((!kept[0] && !kept[1]) || e->recovered_count > 0);
    for (int i = 0; i < 2; i++)
        if (kept[i])
            memmove(kept[i], kept[i] + 1, (size_t)(e->recovered + --e->recovered_count - kept[i]) * sizeof *kept[i]);
}

/* Of two neighbouring numbers only one is ever used (fl__seq_take). In the list of kept rows, the other number marks an
 * attempt that has begun and counts. */
static uint64_t mark_of(uint64_t seq)
{
    return seq ^ 1;
}

bool fl__progress_was_begun(const fl_engine *e, uint64_t seq)
{
    return kept_before(e, mark_of(seq)) != NULL;
}

/* Firing moves the fronts. When nothing is due, this function moves them after the clock, before they are used. They stay
 * before the end of the loaded time, and before every item in memory. */
void fl__progress_move_fronts(fl_engine *e)
{
    fl__memory_follow(e, e->wall_us);
    int64_t to_us = e->wall_us < e->until.at_us ? e->wall_us : e->until.at_us;
    if (e->armed_us < to_us)
        to_us = e->armed_us;
    for (int kind = 0; kind < 2; kind++) {
        int64_t next_us = fl__memory_next_armed_us(e, kind), at_us = next_us < to_us ? next_us : to_us;
        fl_key front = {at_us - 1, SEQ_MAX};
        if (at_us > 0 && key_before(e->front[kind], front))
            e->front[kind] = front;
    }
}

static int keep(fl_engine *e, size_t *count, uint64_t seq)
{
    if (*count == e->keep_capacity) {
        size_t capacity = e->keep_capacity * 2 + 64;
        uint64_t *list = fl__resize(e->keep, capacity * sizeof *list);
        if (!list)
            return FL_NO_MEMORY;
        e->keep = list;
        e->keep_capacity = capacity;
    }
    fl__assert(*count < e->keep_capacity);
    e->keep[(*count)++] = seq;
    return 0;
}

/* Keeps the flights behind the front. A flight that is done is not kept: if the front passes it before its row is removed, it
 * is settled in that way. */
static int keep_flights(fl_engine *e, size_t *count)
{
    for (uint32_t i = 1; i < e->flights.used; i++) {
        const struct flight *flight = &e->flights.list[i];
        bool counts =
            flight->state != FLIGHT_FREE && flight->state != FLIGHT_ORPHAN && !flight->superseded && !flight->done;
        if (counts && behind_front(e, item_key(flight->item)) && keep(e, count, flight->item->seq) < 0)
            return FL_NO_MEMORY;
        if (counts && flight->counted && keep(e, count, mark_of(flight->item->seq)) < 0)
            return FL_NO_MEMORY;
    }
    return 0;
}

static int keep_written(fl_engine *e, const struct write *write, size_t *count)
{
    for (; write; write = write->next)
        for (size_t i = 0; i < write->count; i++)
            if (write->changes[i].put && behind_front(e, write->entries[i].row.key) &&
                keep(e, count, write->entries[i].row.key.seq) < 0)
                return FL_NO_MEMORY;
    return 0;
}

/* Keeps the rows that works in doubt may have filed. The rows that they may have removed are flights or settled. */
static int keep_doubts(fl_engine *e, size_t *count)
{
    for (const struct work *work = e->in_doubt; work; work = work->next_in_doubt) {
        if (work->new_key.seq && behind_front(e, work->new_key) && keep(e, count, work->new_key.seq) < 0)
            return FL_NO_MEMORY;
        for (size_t i = 0; work->group && i < work->group->count; i++) {
            fl_key key = work->group->followers[i].key;
            if (behind_front(e, key) && keep(e, count, key.seq) < 0)
                return FL_NO_MEMORY;
        }
    }
    return 0;
}

/* Keeps a row that was filed, or perhaps filed, while the engine stops and that is not in memory: the last record of progress
 * must not settle it. */
void fl__progress_keep(fl_engine *e, fl_key key)
{
    if (e->state != ENGINE_STOPPING || e->now || key.seq == 0)
        return;
    if (!e->recovering)
        e->recovered_count = 0;
    uint64_t *kept = fl__resize(e->recovered, (e->recovered_count + 1) * sizeof *kept);
    if (!kept) {
        e->now = true; /* stops without a last record */
        return;
    }
    e->recovering = true;
    e->recovered = kept;
    e->recovered[e->recovered_count++] = key.seq;
}

static int keep_recovered(fl_engine *e, size_t *count)
{
    for (size_t i = 0; e->recovering && i < e->recovered_count; i++)
        if (keep(e, count, e->recovered[i]) < 0)
            return FL_NO_MEMORY;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* `ret` points into the engine. */
int fl__progress_now(fl_engine *e, fl_progress *ret)
{
    size_t count = 0;
    fl__progress_move_fronts(e);
    if (keep_flights(e, &count) < 0 || keep_written(e, e->sent, &count) < 0 || keep_written(e, e->queued, &count) < 0 ||
        keep_doubts(e, &count) < 0 || keep_recovered(e, &count) < 0)
        return FL_NO_MEMORY;
    if (count > 1)
        qsort(e->keep, count, sizeof *e->keep, ascending);
    size_t unique = 0;
    for (size_t i = 0; i < count; i++)
        if (unique == 0 || e->keep[unique - 1] != e->keep[i])
            e->keep[unique++] = e->keep[i];
    *ret = (fl_progress){.front = {e->front[0], e->front[1]},
                         .keep = e->keep,
                         .keep_count = unique,
                         .seq_limit = e->seq_next + SEQ_RESERVE,
                         .pending = e->stats.pending};
    return 0;
}

/* --- Recording ---------------------------------------------------------------------------------------------------- */

static void record_done(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->record_busy);
    e->record_busy = false;
    if (!fl__engine_answered(e, request))
        return;
    if (request->result < 0)
        e->dirty = true;
    else
        e->seq_granted = request->record.progress.seq_limit;
    fl__history_sent(e, request->result);
    fl__history_go_on(e);
    if (e->set_back)
        fl__engine_flush_soon(e); /* moving the front back had to wait for this */
}

static bool may_record(const fl_engine *e)
{
    return e->state == ENGINE_RUNNING && !e->record_busy && !e->retreat;
}

static void finish_done(fl_store_request *request);

/* Nothing else may be written before the store has the front that was moved back. */
static void send_retreat(fl_engine *e)
{
    fl__assert(e->retreat && !e->record_busy && e->state == ENGINE_RUNNING);
    fl__history_send(e, &e->record_request.finish.history);
    e->record_busy = true;
    fl__engine_submit_request(e, &e->record_request, FL_STORE_FINISH, finish_done);
}

void fl__record(fl_engine *e)
{
    fl__alarm_set(e, &e->record_alarm, e->config.record_interval_us * NS_PER_US);
    fl__lanes_read(e); /* again, if the store has refused */
    if (e->retreat && !e->record_busy && e->state == ENGINE_RUNNING)
        send_retreat(e);
    if (e->set_back)
        fl__engine_flush_soon(e);
    if (e->pressed) { /* memory was short: with so many timers, settled rows must not pile up in the store */
        e->pressed = false;
        fl__delete(e); /* which records progress if there are windows to delete */
    }
    if (!e->dirty || !may_record(e))
        return;
    fl_store_request *request = &e->record_request;
    if (fl__progress_now(e, &request->record.progress) < 0)
        return;
    fl__history_send(e, &request->record.history);
    request->arg = e;
    e->record_busy = true;
    e->dirty = false;
    e->stats.store_records++;
    fl__engine_submit_request(e, request, FL_STORE_RECORD, record_done);
}

/* --- Deleting windows --------------------------------------------------------------------------------------------- */

static bool is_in(fl_key key, uint64_t window)
{
    return key.at_us >= fl_window_begin(window) && key.at_us < fl_window_end(window);
}

/* Whether a work in doubt may have filed a row under this window. */
static bool doubted_in(const struct work *work, uint64_t window)
{
    bool found = work->new_key.seq && is_in(work->new_key, window);
    for (size_t i = 0; !found && work->group && i < work->group->count; i++)
        found = is_in(work->group->followers[i].key, window);
    return found;
}

static bool kept_in(const fl_engine *e, uint64_t window)
{
    for (uint32_t i = 1; i < e->flights.used; i++) {
        const struct flight *flight = &e->flights.list[i];
        if (flight->state != FLIGHT_FREE && flight->state != FLIGHT_ORPHAN && is_in(item_key(flight->item), window))
            return true;
    }
    if (fl__write_files_under(e, window))
        return true;
    for (const struct work *work = e->in_doubt; work; work = work->next_in_doubt)
        if (doubted_in(work, window))
            return true;
    return false;
}

static bool passed(const fl_engine *e, int64_t at_us)
{
    return e->front[0].at_us >= at_us && e->front[1].at_us >= at_us && e->until.at_us > at_us;
}

static void take_back(fl_key *front, int64_t now_us)
{
    fl_key back = {now_us - 1, SEQ_MAX};
    if (key_before(back, *front))
        *front = back;
}

/* The store has the front that was moved back. */
static void retreated(fl_engine *e)
{
    fl__assert(e->retreat);
    e->retreat = false;
    fl__engine_load(e);
    fl__engine_flush_soon(e);
}

static void finish_done(fl_store_request *request)
{
    fl_engine *e = request->arg;
    fl__assert(e->record_busy);
    e->record_busy = false;
    if (!fl__engine_answered(e, request))
        return;
    fl__history_sent(e, request->result);
    fl__history_go_on(e);
    if (request->result < 0) {
        for (size_t i = 0; i < request->finish.span_count; i++)
            if (request->finish.spans[i].whole)
                fl__windows_add(e, request->finish.spans[i].window);
        e->dirty = true;
        return;
    }
    if (e->set_back)
        fl__engine_flush_soon(e);
    e->stats.rows_deleted += request->finish.deleted;
    e->seq_granted = request->finish.record.seq_limit;
    if (e->retreat) {
        retreated(e);
    }
}

static int finish_windows(fl_engine *e, size_t count, const fl_progress *settled, const fl_progress *record)
{
    fl_store_request *request = &e->record_request;
    fl__assert(!e->record_busy && count <= e->window_count + LANES_AT_ONCE);
    request->arg = e;
    request->finish.spans = e->spans_done;
    request->finish.span_count = count;
    request->finish.settled = *settled;
    request->finish.record = *record;
    fl__history_send(e, &request->finish.history);
    e->record_busy = true;
    e->dirty = false;
    e->stats.store_deletes++;
    for (size_t i = 0; i < count; i++)
        if (e->spans_done[i].whole)
            fl__windows_remove(e, e->spans_done[i].window);
    fl__engine_submit_request(e, request, FL_STORE_FINISH, finish_done);
    return 0;
}

static int reserve_spans(fl_engine *e)
{
    struct fl_store_span *spans = fl__resize(e->spans_done, (e->window_count + LANES_AT_ONCE) * sizeof *spans);
    if (!spans)
        return FL_NO_MEMORY;
    e->spans_done = spans;
    return 0;
}

/* Deletes the windows that have ended, at an interval. A window with an unsettled row stays until the outcome is written. If
 * the store refuses to write outcomes, perhaps because it is full, the settled rows of the window are deleted anyway to free
 * room. */
void fl__delete(fl_engine *e)
{
    fl__alarm_set(e, &e->delete_alarm, e->config.delete_interval_us * NS_PER_US);
    fl_progress progress;
    size_t count = 0;
    e->dirty |= fl__history_is_over(e);
    if (e->config.strategy == FL_LOOKAHEAD)
        fl__delete_keys(e);
    if (!may_record(e) || reserve_spans(e) < 0 || fl__progress_now(e, &progress) < 0)
        return;
    for (size_t i = 0; i < e->window_count; i++) {
        uint64_t window = e->windows[i];
        bool kept = kept_in(e, window);
        if (passed(e, fl_window_end(window)) && (!kept || e->to_repeat.count > 0))
            e->spans_done[count++] = (struct fl_store_span){window, !kept};
    }
    fl__lanes_read_again(e, false);
    count += fl__lanes_empty(e, e->spans_done + count, LANES_AT_ONCE);
    if (count > 0)
        finish_windows(e, count, &progress, &progress);
}

/* --- Deleting rows ------------------------------------------------------------------------------------------------ */

/* The look-ahead strategy deletes settled rows by their keys, many in one write. */
void fl__delete_keys(fl_engine *e)
{
    fl_store_change *change;
    size_t done = 0;
    while (done < e->delete_count && fl__write_add(e, 0, &change, NULL))
        change->remove = e->delete_keys[done++];
    if (done > 0)
        e->stats.store_deletes++;
    e->stats.rows_deleted += done;
    fl__assert(done <= e->delete_count);
    e->delete_count -= done;
    if (e->delete_count > 0)
        memmove(e->delete_keys, e->delete_keys + done, e->delete_count * sizeof *e->delete_keys);
}

/* Without memory for the key, the row stays until its window is finished. */
void fl__delete_key(fl_engine *e, fl_key key)
{
    if (e->config.strategy != FL_LOOKAHEAD)
        return;
    if (e->delete_count == e->delete_capacity) {
        size_t capacity = e->delete_capacity * 2 + 256;
        fl_key *keys = fl__resize(e->delete_keys, capacity * sizeof *keys);
        if (!keys)
            return;
        e->delete_keys = keys;
        e->delete_capacity = capacity;
    }
    fl__assert(e->delete_count < e->delete_capacity);
    e->delete_keys[e->delete_count++] = key;
    if (e->delete_count >= e->config.delete_batch)
        fl__delete_keys(e);
}

/* --- The clock set back ------------------------------------------------------------------------------------------- */

/* Called until it has succeeded. It does nothing while a load is in progress, because its rows are compared with the old
 * front, or while windows are being refiled, because their new windows are not known yet. */
void fl__progress_set_back(fl_engine *e)
{
    fl_progress settled, record;
    size_t count = 0;
    int64_t now_us = e->back_us;
    if (e->record_busy || e->load_busy || e->refile_busy || e->retreat || reserve_spans(e) < 0 ||
        fl__progress_now(e, &settled) < 0)
        return;
    fl__assert(e->state == ENGINE_RUNNING && e->set_back);
    e->set_back = false;
    e->retreat = true;
    int64_t front_us = e->front[0].at_us > e->front[1].at_us ? e->front[0].at_us : e->front[1].at_us;
    for (size_t i = 0; i < e->window_count && fl_window_begin(e->windows[i]) <= front_us; i++)
        e->spans_done[count++] = (struct fl_store_span){e->windows[i], false};
    e->wall_us = now_us;
    if (e->claimed_us > now_us)
        e->claimed_us = now_us; /* timers that are due from now on were not missed */
    for (int kind = 0; kind < 2; kind++)
        take_back(&e->front[kind], now_us);
    record = settled;
    record.front[0] = e->front[0];
    record.front[1] = e->front[1];
    finish_windows(e, count, &settled, &record);
    fl__fire_soon(e);
    fl__memory_evict(
        e, (fl_key){fl__load_horizon_us(e, now_us), 0}); /* they are due later than the horizon of loading again */
    fl__lanes_read_again(e, true);
    if (fl__memory_rebuild(e) < 0)
        fl__engine_restart(e, "out of memory: cannot follow the clock");
}
