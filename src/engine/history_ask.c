/* SPDX-License-Identifier: MIT */
/* What is asked of history: pages, from the store and from what is not written yet; and erasing. */

#include "engine/internal.h"

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
    fl__assert(!task->listing != !task->erasure);
    while (*link != task) {
        fl__assert(*link); /* it is in the list */
        link = &(*link)->next;
    }
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
        keep_us = fl__history_keep_of(e, &e->spaces.list[number]);
    return row->began_us >= fl__history_kept_from(e, keep_us);
}

static int take_row(struct history_task *task, const fl_history_row *row)
{
    fl__assert(task->count < task->limit);
    if (!fl__history_copy_row(&task->arena, row, &task->found[task->count]))
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

/* The last span up to this one that has rows of that time, or NULL. */
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
    fl__assert(span->span <= task->span);
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
