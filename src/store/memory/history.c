/* SPDX-License-Identifier: MIT */
/* History in memory: a list of spans, each a list of rows, newest first. It need not be fast. */

#include "store/memory/history.h"

#include <string.h>

#include "base/alloc.h"

/* --- Rows ---------------------------------------------------------------------------------------------------------- */

static fl_history_row copy_to(const fl_history_row *row, unsigned char *bytes)
{
    fl_history_row copy = *row;
    fl_bytes *texts[4] = {&copy.ns, &copy.name, &copy.schedule, &copy.body};
    for (size_t i = 0; i < 4; i++) {
        if (texts[i]->size > 0)
            memcpy(bytes, texts[i]->data, texts[i]->size);
        texts[i]->data = bytes;
        bytes += texts[i]->size;
    }
    return copy;
}

static size_t bytes_of(const fl_history_row *row)
{
    return row->ns.size + row->name.size + row->schedule.size + row->body.size;
}

static struct fl__past_item *make_item(const fl_history_row *row)
{
    struct fl__past_item *item = fl__alloc(sizeof *item + bytes_of(row));
    if (!item)
        return NULL;
    item->older = NULL;
    item->row = copy_to(row, item->bytes);
    return item;
}

static void free_items(struct fl__past_item *item)
{
    while (item) {
        struct fl__past_item *older = item->older;
        fl__release(item);
        item = older;
    }
}

/* --- Changes ------------------------------------------------------------------------------------------------------- */

bool fl__past_plan(const fl_history_change *change, struct fl__past_plan *ret)
{
    *ret = (struct fl__past_plan){0};
    if (change->count == 0)
        return true;
    ret->part = fl__alloc_zeroed(sizeof *ret->part);
    bool good = ret->part;
    for (size_t i = 0; i < change->count && good; i++) {
        struct fl__past_item *item = make_item(&change->rows[i]);
        good = item;
        if (item) {
            item->older = ret->items;
            ret->items = item;
        }
    }
    if (!good)
        fl__past_plan_drop(ret);
    return good;
}

void fl__past_plan_drop(struct fl__past_plan *plan)
{
    free_items(plan->items);
    fl__release(plan->part);
    *plan = (struct fl__past_plan){0};
}

static void drop_below(struct fl__past *history, uint64_t span)
{
    while (history->first && history->first->span.span < span) {
        struct fl__past_part *part = history->first;
        history->first = part->next;
        free_items(part->newest);
        fl__release(part);
    }
}

static struct fl__past_part **find_part(struct fl__past *history, uint64_t span)
{
    struct fl__past_part **link = &history->first;
    while (*link && (*link)->span.span < span)
        link = &(*link)->next;
    return link;
}

/* One that is there already stays as it is. */
static void add_item(struct fl__past_part *part, struct fl__past_item *item)
{
    struct fl__past_item **link = &part->newest;
    while (*link && (*link)->row.seq > item->row.seq)
        link = &(*link)->older;
    if (*link && (*link)->row.seq == item->row.seq) {
        fl__release(item);
        return;
    }
    item->older = *link;
    *link = item;
    fl__history_note(&part->span, &item->row);
}

void fl__past_apply(struct fl__past *history, const fl_history_change *change, struct fl__past_plan *plan)
{
    drop_below(history, change->drop_below);
    if (change->count == 0)
        return;
    struct fl__past_part **link = find_part(history, change->span);
    if (!*link || (*link)->span.span != change->span) {
        plan->part->span.span = change->span;
        plan->part->next = *link;
        *link = plan->part;
        plan->part = NULL;
    }
    while (plan->items) {
        struct fl__past_item *item = plan->items;
        plan->items = item->older;
        add_item(*link, item);
    }
    fl__past_plan_drop(plan);
}

void fl__past_forget(struct fl__past *history, fl_store_request *request)
{
    const struct fl__past_part *part = *find_part(history, request->forget.span);
    request->forget.erased = 0;
    if (!part || part->span.span != request->forget.span)
        return;
    for (struct fl__past_item **link = (struct fl__past_item **)&part->newest; *link;) {
        struct fl__past_item *item = *link;
        if (!fl__history_is_of(request, &item->row)) {
            link = &item->older;
            continue;
        }
        *link = item->older;
        fl__release(item);
        request->forget.erased++;
    }
}

/* --- Reading ------------------------------------------------------------------------------------------------------- */

bool fl__past_tell(const struct fl__past *history, struct arena *arena, fl_store_request *request)
{
    size_t count = 0;
    for (const struct fl__past_part *part = history->first; part; part = part->next)
        count++;
    fl_history_span *spans = fl__arena_take(arena, count * sizeof *spans);
    if (!spans)
        return false;
    request->claim.spans = spans;
    request->claim.span_count = count;
    for (const struct fl__past_part *part = history->first; part; part = part->next)
        *spans++ = part->span;
    return true;
}

static const struct fl__past_item *first_item(const struct fl__past *history, const fl_store_request *request)
{
    const struct fl__past_part *part = history->first;
    while (part && part->span.span != request->history.span)
        part = part->next;
    const struct fl__past_item *item = part ? part->newest : NULL;
    while (item && request->history.before_seq > 0 && item->row.seq >= request->history.before_seq)
        item = item->older;
    return item;
}

bool fl__past_list(const struct fl__past *history, struct arena *arena, fl_store_request *request)
{
    enum { PAGE_ROWS = 512 };
    size_t limit = request->history.limit < PAGE_ROWS ? request->history.limit : PAGE_ROWS, count = 0, bytes = 0;
    fl_history_row *rows = fl__arena_take(arena, limit * sizeof *rows);
    const struct fl__past_item *item = first_item(history, request);
    uint64_t seq = 0;
    for (size_t seen = 0; rows && item && seen < limit && bytes < FL_STORE_PAGE_BYTES; item = item->older, seen++) {
        seq = item->row.seq;
        if (!fl__history_fits(request, &item->row))
            continue;
        unsigned char *copy = fl__arena_take(arena, bytes_of(&item->row));
        if (!copy)
            return false;
        rows[count++] = copy_to(&item->row, copy);
        bytes += item->row.body.size;
    }
    request->history.rows = rows;
    request->history.count = count;
    request->history.next_seq = item ? seq : 0;
    return rows;
}

/* --- All of it ----------------------------------------------------------------------------------------------------- */

bool fl__past_copy(struct fl__past *to, const struct fl__past *from)
{
    struct fl__past_part **end = &to->first;
    for (const struct fl__past_part *part = from->first; part; part = part->next) {
        *end = fl__alloc_zeroed(sizeof **end);
        if (!*end)
            return false;
        (*end)->span = part->span;
        struct fl__past_item **last = &(*end)->newest;
        for (const struct fl__past_item *item = part->newest; item; item = item->older) {
            *last = make_item(&item->row);
            if (!*last)
                return false;
            last = &(*last)->older;
        }
        end = &(*end)->next;
    }
    return true;
}

void fl__past_clear(struct fl__past *history)
{
    drop_below(history, UINT64_MAX);
}
