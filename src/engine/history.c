/* SPDX-License-Identifier: MIT */
/* What has happened to timers, as the program tells it.
 *
 * Rows are collected in memory, up to a limit, and written with the next record of progress: no transaction is made for
 * them. While a record is under way, its rows are kept apart, to be sent again with the next one if it fails; they have their
 * numbers from then on, so that what is there already is not appended twice. A crash loses what was not recorded. If the
 * store refuses a record that has rows, and does not merely not answer, the rows are given up: progress must not wait for
 * them.
 *
 * Spans. Rows are appended to the last span. A new one begins when that has a sixteenth of the bytes that there may be, or
 * its first row is older than a sixteenth of the time for which the history is kept. A span goes when all its rows are older
 * than the longest time that any namespace keeps them, and the oldest goes when there are too many bytes. Rows of a namespace
 * that keeps them for a shorter time stay as long, and are not listed.
 */

#include "engine/internal.h"

enum { PARTS = 16, SOON = 4 };

#define SPAN_TIME_LEAST ((int64_t)(60 * SECOND_US))

/* --- Collecting ---------------------------------------------------------------------------------------------------- */

static void clear(struct history_batch *batch)
{
    fl__arena_free(&batch->arena);
    fl__release(batch->rows);
    *batch = (struct history_batch){0};
}

static size_t size_of(const fl_history_row *row)
{
    return sizeof *row + row->ns.size + row->name.size + row->schedule.size + row->body.size;
}

bool fl__history_copy_row(struct arena *arena, const fl_history_row *row, fl_history_row *ret)
{
    enum { TEXTS = 4 };
    fl_bytes *texts[TEXTS] = {&ret->ns, &ret->name, &ret->schedule, &ret->body};
    size_t size = row->ns.size + row->name.size + row->schedule.size + row->body.size;
    unsigned char *at = fl__arena_take(arena, size);
    if (!at)
        return false;
    *ret = *row;
    for (size_t i = 0; i < TEXTS; i++) {
        if (texts[i]->size > 0)
            memcpy(at, texts[i]->data, texts[i]->size);
        texts[i]->data = at;
        at += texts[i]->size;
    }
    return true;
}

static bool is_sound(const fl_history_row *row)
{
    return row->ns.size > 0 && row->ns.size <= FL_STORE_NAME_MAX && row->name.size <= FL_STORE_NAME_MAX &&
           row->schedule.size <= FL_STORE_NAME_MAX && row->result < FL_HISTORY_RESULTS &&
           row->body.size <= FL_HISTORY_BODY_MAX;
}

static bool add(fl_engine *e, const fl_history_row *row)
{
    struct history_batch *batch = &e->history.filling;
    if (!is_sound(row) || batch->bytes + size_of(row) > e->config.max_history_bytes)
        return false;
    if (batch->count == batch->capacity) {
        size_t before = e->history.sending.capacity; /* what was enough once may be again */
        size_t capacity = batch->capacity == 0 && before > 0 ? before : batch->capacity * 2 + 64;
        fl_history_row *rows = fl__resize(batch->rows, capacity * sizeof *rows);
        if (!rows)
            return false;
        batch->rows = rows;
        batch->capacity = capacity;
    }
    fl__assert(batch->count < batch->capacity);
    if (!fl__history_copy_row(&batch->arena, row, &batch->rows[batch->count]))
        return false;
    batch->count++;
    batch->bytes += size_of(row);
    return true;
}

size_t fl_engine_history(fl_engine *engine, const fl_history_row *rows, size_t count)
{
    fl_engine *e = engine;
    size_t added = 0, soon = e->config.max_history_bytes / SOON;
    bool ends = e->state == ENGINE_LOST || e->state == ENGINE_GONE;
    bool few = e->history.filling.bytes < soon;
    for (size_t i = 0; i < count && !ends; i++)
        added += add(e, &rows[i]);
    e->stats.history_lost += count - added;
    e->dirty |= added > 0;
    if (few && e->history.filling.bytes >= soon && e->state == ENGINE_RUNNING)
        fl__alarm_set(e, &e->record_alarm, 0);
    return added;
}

/* The shard is lost. What the store has been given is the store's until it answers. */
void fl__history_clear(fl_engine *e)
{
    e->stats.history_lost += e->history.filling.count;
    clear(&e->history.filling);
}

void fl__history_free(fl_engine *e)
{
    clear(&e->history.filling);
    clear(&e->history.sending);
    fl__release(e->history.spans);
}

/* --- Spans --------------------------------------------------------------------------------------------------------- */

static int reserve_spans(struct history *history, size_t count)
{
    if (count <= history->span_capacity)
        return 0;
    fl_history_span *spans = fl__resize(history->spans, count * 2 * sizeof *spans);
    if (!spans)
        return FL_NO_MEMORY;
    history->spans = spans;
    history->span_capacity = count * 2;
    return 0;
}

static uint64_t span_now(fl_engine *e);

int fl__history_take_over(fl_engine *e, const fl_store_request *request)
{
    struct history *history = &e->history;
    size_t count = request->claim.span_count;
    int r = reserve_spans(history, count + 1);
    if (r < 0)
        return r;
    history->span_count = count;
    history->bytes = 0;
    for (size_t i = 0; i < count; i++) {
        history->spans[i] = request->claim.spans[i];
        history->bytes += history->spans[i].bytes;
    }
    if (count > 0 && history->spans[count - 1].span > history->sending_span)
        history->sending_span = span_now(e); /* another owner has begun that one meanwhile */
    return 0;
}

uint64_t fl__history_keep_of(const fl_engine *e, const struct space *space)
{
    return space->keep_us == UINT64_MAX ? e->config.history_keep_us : space->keep_us;
}

static void find_longest(fl_engine *e)
{
    e->history.keep_us = e->config.history_keep_us;
    for (uint32_t i = 0; i < e->spaces.count; i++)
        if (fl__history_keep_of(e, &e->spaces.list[i]) > e->history.keep_us)
            e->history.keep_us = fl__history_keep_of(e, &e->spaces.list[i]);
}

int fl_engine_keep_history(fl_engine *engine, fl_bytes ns, uint64_t keep_us)
{
    uint32_t number;
    int r = ns.size == 0 || ns.size > FL_STORE_NAME_MAX ? FL_INVALID_ARGUMENT : fl__space(engine, ns, &number);
    if (r < 0)
        return r;
    struct space *space = &engine->spaces.list[number];
    uint64_t before_us = fl__history_keep_of(engine, space);
    space->keep_us = keep_us;
    if (before_us == engine->history.keep_us || fl__history_keep_of(engine, space) > engine->history.keep_us)
        find_longest(engine);
    return 0;
}

int64_t fl__history_kept_from(fl_engine *e, uint64_t keep_us)
{
    int64_t now_us = fl__engine_now(e);
    return keep_us < (uint64_t)now_us ? now_us - (int64_t)keep_us : INT64_MIN;
}

/* How many of the oldest spans are to go. */
static size_t spans_over(fl_engine *e)
{
    const struct history *history = &e->history;
    int64_t from_us = fl__history_kept_from(e, history->keep_us);
    uint64_t bytes = history->bytes;
    size_t count = 0;
    while (count < history->span_count && (history->spans[count].last_us < from_us || bytes > e->config.history_bytes))
        bytes -= history->spans[count++].bytes;
    return count;
}

bool fl__history_is_over(fl_engine *e)
{
    return e->history.span_count > 0 && spans_over(e) > 0;
}

static bool is_full(fl_engine *e, const fl_history_span *span)
{
    uint64_t part_us = e->history.keep_us / PARTS;
    int64_t most_us = part_us > (uint64_t)SPAN_TIME_LEAST ? (int64_t)(part_us < INT64_MAX / 2 ? part_us : INT64_MAX / 2)
                                                          : SPAN_TIME_LEAST;
    return span->bytes >= e->config.history_bytes / PARTS || fl__engine_now(e) - span->first_us > most_us;
}

/* Where rows are appended now. */
static uint64_t span_now(fl_engine *e)
{
    const struct history *history = &e->history;
    if (history->span_count == 0)
        return history->last_span + 1;
    const fl_history_span *last = &history->spans[history->span_count - 1];
    return is_full(e, last) ? last->span + 1 : last->span;
}

/* --- Sending ------------------------------------------------------------------------------------------------------- */

/* Rows that were collected get their numbers. Without numbers or memory, they wait. */
static void begin_sending(fl_engine *e)
{
    struct history *history = &e->history;
    if (history->sending.count > 0 || history->filling.count == 0 ||
        e->seq_granted - e->seq_next <= 2 * history->filling.count ||
        reserve_spans(history, history->span_count + 1) < 0)
        return;
    fl__assert(history->sending.bytes == 0);
    history->sending = history->filling;
    history->filling = (struct history_batch){0};
    for (size_t i = 0; i < history->sending.count; i++)
        history->sending.rows[i].seq = fl__seq_take(e, false);
    history->sending_span = span_now(e);
}

/* What goes with the record that is sent now. */
void fl__history_send(fl_engine *e, fl_history_change *ret)
{
    struct history *history = &e->history;
    begin_sending(e);
    history->dropping = spans_over(e);
    *ret = (fl_history_change){
        .rows = history->sending.rows, .count = history->sending.count, .span = history->sending_span};
    fl__assert(history->dropping <= history->span_count);
    if (history->dropping > 0)
        ret->drop_below = history->spans[history->dropping - 1].span + 1;
}

static void drop_spans(struct history *history)
{
    fl__assert(history->dropping <= history->span_count);
    for (size_t i = 0; i < history->dropping; i++) {
        history->bytes -= history->spans[i].bytes;
        history->last_span = history->spans[i].span;
    }
    history->span_count -= history->dropping;
    if (history->dropping > 0)
        memmove(history->spans, history->spans + history->dropping, history->span_count * sizeof *history->spans);
    history->dropping = 0;
}

static void note_sent(fl_engine *e)
{
    struct history *history = &e->history;
    if (history->sending.count == 0)
        return;
    if (history->span_count == 0 || history->spans[history->span_count - 1].span != history->sending_span)
        history->spans[history->span_count++] = (fl_history_span){.span = history->sending_span};
    fl__assert(history->span_count > 0 && history->span_count <= history->span_capacity);
    fl_history_span *span = &history->spans[history->span_count - 1];
    uint64_t before = span->bytes;
    for (size_t i = 0; i < history->sending.count; i++)
        fl__history_note(span, &history->sending.rows[i]);
    history->bytes += span->bytes - before;
    e->stats.history_rows += history->sending.count;
}

/* Whether the store does not take the rows, now or ever. */
static bool is_refused(int result)
{
    return fl_store_failure(result) == FL_FAILURE_REFUSED && result != FL_STORE_UNAVAILABLE;
}

void fl__history_sent(fl_engine *e, int result)
{
    struct history *history = &e->history;
    if (result == 0) {
        drop_spans(history);
        note_sent(e);
    } else if (is_refused(result)) {
        e->stats.history_lost += history->sending.count;
    } else {
        return; /* again, with the next record */
    }
    clear(&history->sending);
    if (history->filling.bytes >= e->config.max_history_bytes / SOON)
        fl__alarm_set(e, &e->record_alarm, 0);
}
