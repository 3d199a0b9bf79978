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

enum { PARTS = 16, SOON = 8 };

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

static bool copy_bytes(struct arena *arena, fl_bytes *bytes)
{
    void *copy = bytes->size > 0 ? fl__arena_take(arena, bytes->size) : NULL;
    if (bytes->size > 0 && !copy)
        return false;
    if (copy)
        memcpy(copy, bytes->data, bytes->size);
    bytes->data = copy;
    return true;
}

static bool copy_row(struct arena *arena, const fl_history_row *row, fl_history_row *ret)
{
    *ret = *row;
    return copy_bytes(arena, &ret->ns) && copy_bytes(arena, &ret->name) && copy_bytes(arena, &ret->schedule) &&
           copy_bytes(arena, &ret->body);
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
        size_t capacity = batch->capacity * 2 + 64;
        fl_history_row *rows = fl__resize(batch->rows, capacity * sizeof *rows);
        if (!rows)
            return false;
        batch->rows = rows;
        batch->capacity = capacity;
    }
    if (!copy_row(&batch->arena, row, &batch->rows[batch->count]))
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

static uint64_t keep_of(const fl_engine *e, const struct space *space)
{
    return space->keep_us == UINT64_MAX ? e->config.history_keep_us : space->keep_us;
}

static void find_longest(fl_engine *e)
{
    e->history.keep_us = e->config.history_keep_us;
    for (uint32_t i = 0; i < e->spaces.count; i++)
        if (keep_of(e, &e->spaces.list[i]) > e->history.keep_us)
            e->history.keep_us = keep_of(e, &e->spaces.list[i]);
}

int fl_engine_keep_history(fl_engine *engine, fl_bytes ns, uint64_t keep_us)
{
    uint32_t number;
    int r = ns.size == 0 || ns.size > FL_STORE_NAME_MAX ? FL_INVALID_ARGUMENT : fl__space(engine, ns, &number);
    if (r < 0)
        return r;
    struct space *space = &engine->spaces.list[number];
    uint64_t before_us = keep_of(engine, space);
    space->keep_us = keep_us;
    if (before_us == engine->history.keep_us || keep_of(engine, space) > engine->history.keep_us)
        find_longest(engine);
    return 0;
}

/* The time before which nothing is kept for so long. */
static int64_t kept_from(fl_engine *e, uint64_t keep_us)
{
    int64_t now_us = fl__engine_now(e);
    return keep_us < (uint64_t)now_us ? now_us - (int64_t)keep_us : INT64_MIN;
}

/* How many of the oldest spans are to go. */
static size_t spans_over(fl_engine *e)
{
    const struct history *history = &e->history;
    int64_t from_us = kept_from(e, history->keep_us);
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
    if (history->dropping > 0)
        ret->drop_below = history->spans[history->dropping - 1].span + 1;
}

static void drop_spans(struct history *history)
{
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

/* --- Listing ------------------------------------------------------------------------------------------------------- */

enum { PAGE_DEFAULT = 100, PAGE_MOST = 1000, ROWS_AT_ONCE = 1000, ROWS_MOST = 200000, BYTES_MOST = 1 << 20 };
enum { C_SPAN, C_SEQ };
enum { RECORDS_MOST = 2 };

/* A list or an erasure that is under way. */
struct history_task {
    fl_store_request request;
    fl_engine *engine;
    fl_history_listing *listing; /* or */
    fl_history_erasure *erasure;
    fl_history_row *found;
    size_t count, limit, looked, bytes;
    uint64_t span; /* of an erasure: spans below are left; 0: all */
    struct arena arena;
    bool waits;
    unsigned records; /* that it has waited for */
    int result;
    struct history_task *next;
};

static void go_on(struct history_task *task);

static void finish(struct history_task *task, int result, bool more)
{
    struct history_task **link = &task->engine->history.tasks;
    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    if (task->listing) {
        task->listing->result = result;
        task->listing->found = task->found;
        task->listing->count = result < 0 ? 0 : task->count;
        task->listing->more = result == 0 && more;
        task->listing->done(task->listing);
    } else {
        task->erasure->result = result;
        task->erasure->done(task->erasure);
    }
    fl__arena_free(&task->arena);
    fl__release(task->found);
    fl__release(task);
}

static bool is_page_full(const struct history_task *task)
{
    return task->count == task->limit || task->bytes >= BYTES_MOST;
}

/* Whether its namespace has kept it until now. */
static bool is_kept(fl_engine *e, const fl_history_row *row)
{
    uint32_t number;
    uint64_t keep_us = e->config.history_keep_us;
    if (fl__space(e, row->ns, &number) == 0)
        keep_us = keep_of(e, &e->spaces.list[number]);
    return row->began_us >= kept_from(e, keep_us);
}

static int take_row(struct history_task *task, const fl_history_row *row)
{
    if (!copy_row(&task->arena, row, &task->found[task->count]))
        return FL_NO_MEMORY;
    task->count++;
    task->bytes += row->body.size;
    return 0;
}

static void listed(fl_store_request *request)
{
    struct history_task *task = (struct history_task *)request;
    uint64_t *cursor = task->listing->cursor.part;
    fl__engine_answered(task->engine, request);
    int r = request->result;
    for (size_t i = 0; i < request->history.count && r == 0; i++) {
        const fl_history_row *row = &request->history.rows[i];
        bool wanted = is_kept(task->engine, row);
        if (wanted && is_page_full(task)) { /* this row is the first of the next page */
            finish(task, 0, true);
            return;
        }
        cursor[C_SEQ] = row->seq;
        if (wanted)
            r = take_row(task, row);
    }
    task->looked += ROWS_AT_ONCE;
    if (r < 0) {
        finish(task, r, false);
        return;
    }
    if (request->history.next_seq > 0)
        cursor[C_SEQ] = request->history.next_seq;
    else
        cursor[C_SPAN]--; /* the next one is below, and has only lower numbers */
    if (cursor[C_SPAN] == 0)
        finish(task, 0, false);
    else
        go_on(task);
}

/* The last span up to this one with rows of that time; NULL: there is none. */
static const fl_history_span *span_before(const fl_engine *e, const struct history_task *task, uint64_t span)
{
    const fl_history_listing *listing = task->listing;
    for (size_t i = e->history.span_count; i-- > 0;) {
        const fl_history_span *found = &e->history.spans[i];
        bool fits = !listing || (found->last_us >= listing->from_us && found->first_us < listing->until_us);
        if (found->span <= span && fits)
            return found;
    }
    return NULL;
}

static void list_more(struct history_task *task)
{
    fl_engine *e = task->engine;
    fl_history_listing *listing = task->listing;
    uint64_t *cursor = listing->cursor.part;
    const fl_history_span *span = span_before(e, task, cursor[C_SPAN] > 0 ? cursor[C_SPAN] : UINT64_MAX);
    if (!span) {
        finish(task, 0, false);
        return;
    }
    cursor[C_SPAN] = span->span;
    if (task->looked >= ROWS_MOST || is_page_full(task)) {
        finish(task, 0, true);
        return;
    }
    fl_store_request *request = &task->request;
    request->history.span = span->span;
    request->history.before_seq = cursor[C_SEQ];
    request->history.ns = listing->ns;
    request->history.name = listing->name;
    request->history.schedule = listing->schedule;
    request->history.id_seq = listing->id.seq;
    request->history.results = listing->results;
    request->history.from_us = listing->from_us;
    request->history.until_us = listing->until_us;
    request->history.limit = ROWS_AT_ONCE;
    e->stats.store_reads++;
    fl__engine_submit_request(e, request, FL_STORE_HISTORY, listed);
}

/* --- Erasing ------------------------------------------------------------------------------------------------------- */

static void erased(fl_store_request *request)
{
    struct history_task *task = (struct history_task *)request;
    fl__engine_answered(task->engine, request);
    if (request->result < 0) {
        finish(task, request->result, false);
        return;
    }
    task->erasure->erased += request->forget.erased;
    if (task->span == 0)
        finish(task, 0, false);
    else
        go_on(task);
}

static void erase_more(struct history_task *task)
{
    fl_engine *e = task->engine;
    const fl_history_span *span = span_before(e, task, task->span);
    if (!span) {
        finish(task, 0, false);
        return;
    }
    task->span = span->span - 1;
    task->request.forget.span = span->span;
    task->request.forget.ns = task->erasure->ns;
    task->request.forget.id_seq = task->erasure->id.seq;
    fl__engine_submit_request(e, &task->request, FL_STORE_FORGET, erased);
}

/* --- Both ---------------------------------------------------------------------------------------------------------- */

/* What was collected is written first, so that nothing is missing: with the next record, if that is the first one, or with the
 * one after it. False: wait for the answer. */
static bool write_first(struct history_task *task)
{
    fl_engine *e = task->engine;
    if (e->history.filling.count + e->history.sending.count == 0 || task->records == RECORDS_MOST)
        return true;
    task->records++;
    e->dirty = true;
    if (!e->record_busy)
        fl__record(e);
    return !e->record_busy;
}

static void go_on(struct history_task *task)
{
    if (task->engine->state != ENGINE_RUNNING)
        finish(task, fl__engine_refusal(task->engine), false);
    else if (task->listing)
        list_more(task);
    else
        erase_more(task);
}

static void begin(fl_loop *loop, void *arg)
{
    struct history_task *task = arg;
    fl_engine *e = task->engine;
    (void)loop;
    if (task->result < 0) {
        finish(task, task->result, false);
        return;
    }
    task->waits = e->state == ENGINE_CLAIMING || e->state == ENGINE_RESTARTING ||
                  (e->state == ENGINE_RUNNING && !write_first(task));
    if (!task->waits)
        go_on(task);
}

/* Those that have waited go on, or are refused, or wait for something else. */
void fl__history_go_on(fl_engine *e)
{
    for (struct history_task *task = e->history.tasks, *next; task; task = next) {
        next = task->next;
        if (task->waits && fl_loop_microtask(e->loop, begin, task) == 0)
            task->waits = false;
        else if (task->waits)
            finish(task, FL_NO_MEMORY, false);
    }
}

/* NULL: there is no memory even to answer later. */
static struct history_task *new_task(fl_engine *e, int result)
{
    struct history_task *task = fl__alloc_zeroed(sizeof *task);
    if (!task || fl_loop_microtask(e->loop, begin, task) < 0) {
        fl__release(task);
        return NULL;
    }
    task->engine = e;
    task->result = result;
    task->span = UINT64_MAX;
    task->next = e->history.tasks;
    e->history.tasks = task;
    return task;
}

static int check_listing(const fl_history_listing *listing)
{
    bool wrong = listing->limit > PAGE_MOST || listing->ns.size > FL_STORE_NAME_MAX ||
                 listing->name.size > FL_STORE_NAME_MAX || listing->schedule.size > FL_STORE_NAME_MAX ||
                 listing->id.seq > SEQ_MAX || listing->cursor.part[C_SEQ] > SEQ_MAX ||
                 listing->cursor.part[C_SPAN] > SEQ_MAX;
    return wrong ? FL_INVALID_ARGUMENT : 0;
}

void fl_engine_list_history(fl_engine *engine, fl_history_listing *listing)
{
    size_t limit = listing->limit > 0 ? listing->limit : PAGE_DEFAULT;
    int r = check_listing(listing);
    fl_history_row *found = r == 0 ? fl__alloc(limit * sizeof *found) : NULL;
    struct history_task *task = found || r < 0 ? new_task(engine, r) : NULL;
    if (listing->until_us == 0)
        listing->until_us = INT64_MAX;
    if (!task) {
        fl__release(found);
        listing->result = FL_NO_MEMORY;
        listing->count = 0;
        listing->more = false;
        listing->done(listing);
        return;
    }
    task->listing = listing;
    task->found = found;
    task->limit = limit;
}

void fl_engine_erase_history(fl_engine *engine, fl_history_erasure *erasure)
{
    bool all = erasure->id.seq == 0 && erasure->ns.size == 0;
    bool wrong = erasure->ns.size > FL_STORE_NAME_MAX || all || erasure->id.seq > SEQ_MAX;
    struct history_task *task = new_task(engine, wrong ? FL_INVALID_ARGUMENT : 0);
    erasure->erased = 0;
    if (!task) {
        erasure->result = FL_NO_MEMORY;
        erasure->done(erasure);
        return;
    }
    task->erasure = erasure;
}
