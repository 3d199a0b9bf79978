/* SPDX-License-Identifier: MIT */
/* Changing rows and progress. A request first gets all the memory that it needs (struct plan); from then on nothing can
 * fail. */

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "store/memory/memory.h"

/* What a batch of changes or a record of progress needs: all of it is there, or nothing. */
struct plan {
    const fl_store_change *changes;
    size_t count;
    const fl_progress *progress;      /* NULL: none to record */
    const fl_history_change *history; /* with it */
    struct made {
        struct fl__memory_row *row;
        struct fl__memory_dead *dead;
    } * made; /* for each change */
    uint64_t *keep;
    struct fl__past_plan past;
};

static void plan_drop(struct plan *plan)
{
    for (size_t i = 0; plan->made && i < plan->count; i++) {
        fl__release(plan->made[i].row);
        fl__release(plan->made[i].dead);
    }
    fl__release(plan->made);
    fl__release(plan->keep);
    fl__past_plan_drop(&plan->past);
}

static bool plan_change(const fl_store_change *change, struct made *made)
{
    if (change->put)
        made->row = fl__row_new(change->put);
    if (change->bury)
        made->dead = fl__dead_new(change->bury);
    return !change->put == !made->row && !change->bury == !made->dead;
}

static bool plan_memory(struct plan *plan)
{
    if (plan->count > 0) {
        plan->made = fl__alloc_zeroed(plan->count * sizeof *plan->made);
        if (!plan->made)
            return false;
    }
    for (size_t i = 0; i < plan->count; i++)
        if (!plan_change(&plan->changes[i], &plan->made[i]))
            return false;
    if (plan->progress && plan->progress->keep_count > 0) {
        size_t size = plan->progress->keep_count * sizeof *plan->keep;
        plan->keep = fl__alloc(size);
        if (!plan->keep)
            return false;
        memcpy(plan->keep, plan->progress->keep, size);
    }
    return !plan->history || fl__past_plan(plan->history, &plan->past);
}

/* Allocates memory for the request, or answers it with FL_NO_MEMORY. */
static bool plan_make(struct plan *plan, fl_store_request *request)
{
    if (plan_memory(plan))
        return true;
    plan_drop(plan);
    fl__store_answer(request, FL_NO_MEMORY, NULL);
    return false;
}

static void apply_change(struct fl__rows *rows, const fl_store_change *change, struct made *made)
{
    struct fl__memory_row *old = change->remove.seq > 0 ? fl__rows_by_key(rows, change->remove) : NULL;
    if (old)
        fl__rows_remove(rows, old);
    if (made->row)
        fl__rows_put(rows, made->row);
    if (change->unbury > 0)
        fl__rows_unbury(rows, change->unbury);
    if (made->dead)
        fl__rows_bury(rows, made->dead);
}

static void plan_apply(struct plan *plan, struct book *book)
{
    for (size_t i = 0; i < plan->count; i++)
        apply_change(&book->rows, &plan->changes[i], &plan->made[i]);
    fl__release(plan->made);
    if (plan->progress) {
        fl__release((void *)book->progress.keep);
        book->progress = *plan->progress;
        book->progress.keep = plan->keep;
    }
    if (plan->history)
        fl__past_apply(&book->history, plan->history, &plan->past);
}

void fl__memory_store_write_changes(struct book *book, fl_store_request *request)
{
    struct plan plan = {.changes = request->write.changes, .count = request->write.count};
    if (plan_make(&plan, request))
        plan_apply(&plan, book);
}

void fl__memory_store_record(struct book *book, fl_store_request *request)
{
    struct plan plan = {.progress = &request->record.progress, .history = &request->record.history};
    if (plan_make(&plan, request))
        plan_apply(&plan, book);
}

static uint64_t finish_span(struct book *book, const struct fl_store_span *span, const fl_progress *settled)
{
    uint64_t deleted = 0, seq = 0;
    for (struct fl__memory_row *row; (row = fl__rows_next(&book->rows, span->window, seq));) {
        seq = row->filed.seq + 1;
        if (span->whole || fl_progress_settled(settled, fl__row_key(row))) {
            fl__rows_remove(&book->rows, row);
            deleted++;
        }
    }
    return deleted;
}

void fl__memory_store_finish(struct book *book, fl_store_request *request)
{
    struct plan plan = {.progress = &request->finish.record, .history = &request->finish.history};
    if (!plan_make(&plan, request))
        return;
    request->finish.deleted = 0;
    for (size_t i = 0; i < request->finish.span_count; i++)
        request->finish.deleted += finish_span(book, &request->finish.spans[i], &request->finish.settled);
    plan_apply(&plan, book);
}

void fl__memory_store_refile(struct book *book, fl_store_request *request)
{
    uint64_t window = request->refile.window, parts = 0;
    unsigned shift = request->refile.shift;
    size_t moved = 0;
    struct fl__memory_row *row;
    for (; (row = fl__rows_next(&book->rows, window, 0)) && moved < request->refile.limit; moved++) {
        parts |= (uint64_t)1 << (((uint64_t)row->at_us >> shift) & 63);
        fl__rows_refile(&book->rows, row, fl_window_of(row->at_us, shift));
    }
    request->refile.parts = parts;
    request->refile.moved = moved;
    request->refile.more = row;
}
