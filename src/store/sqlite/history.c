/* SPDX-License-Identifier: MIT */
/* History in a shard's file.
 *
 * A span is a slot: rows are appended to it, in chunks, and it goes as a whole, erased step by step like a window (slots.c).
 * The key of a chunk is the number of its first row, so that the rows before a number are found from the end. The table
 * `history` says which span is in which slot, how many rows it has, and from when. Chunks have checksums, as all records of
 * slots.
 *
 * On a disk that is nearly full, new rows of history are left out: progress must be recorded all the same.
 */

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "store/sqlite/worker.h"

enum { CHUNK_BYTES = 3600, CHUNK_ROWS = 128 };

/* --- Spans --------------------------------------------------------------------------------------------------------- */

/* The first that is not below. */
static size_t place_of(const struct history *history, uint64_t span)
{
    size_t i = 0;
    while (i < history->count && history->parts[i].span.span < span)
        i++;
    return i;
}

static struct history_part *find(struct history *history, uint64_t span)
{
    size_t i = place_of(history, span);
    return i < history->count && history->parts[i].span.span == span ? &history->parts[i] : NULL;
}

static int insert(struct base *base, const struct history_part *part)
{
    struct history *history = &base->history;
    if (history->count == history->room) {
        size_t room = history->room ? 2 * history->room : 16;
        struct history_part *parts = fl__resize(history->parts, room * sizeof *parts);
        if (!parts)
            return base_no_memory(base);
        history->parts = parts;
        history->room = room;
    }
    size_t i = place_of(history, part->span.span);
    memmove(&history->parts[i + 1], &history->parts[i], (history->count - i) * sizeof *history->parts);
    history->parts[i] = *part;
    history->count++;
    return 0;
}

static int load_part(struct base *base, sqlite3_stmt *statement, void *arg)
{
    (void)arg;
    return insert(base, &(struct history_part){.slot = (uint32_t)sqlite3_column_int64(statement, 1),
                                               .span = {.span = (uint64_t)sqlite3_column_int64(statement, 0),
                                                        .rows = (uint64_t)sqlite3_column_int64(statement, 2),
                                                        .bytes = (uint64_t)sqlite3_column_int64(statement, 3),
                                                        .first_us = sqlite3_column_int64(statement, 4),
                                                        .last_us = sqlite3_column_int64(statement, 5)}});
}

int fl__history_load(struct base *base)
{
    return fl__each_row(base, "SELECT span, slot, rows, bytes, first_us, last_us FROM history ORDER BY span", load_part,
                        NULL);
}

void fl__history_unload(struct base *base)
{
    fl__release(base->history.parts);
    base->history = (struct history){0};
}

int fl__history_claim(struct base *base, fl_store_request *request)
{
    const struct history *history = &base->history;
    fl_history_span *spans = fl__answer_alloc(request, (history->count + 1) * sizeof *spans);
    if (!spans)
        return base_no_memory(base);
    for (size_t i = 0; i < history->count; i++)
        spans[i] = history->parts[i].span;
    request->claim.spans = spans;
    request->claim.span_count = history->count;
    return 0;
}

/* --- Appending ----------------------------------------------------------------------------------------------------- */

static int make_part(struct base *base, uint64_t span, struct history_part **ret)
{
    *ret = find(&base->history, span);
    if (*ret)
        return 0;
    struct history_part part = {.span.span = span};
    int r = fl__slot_take(base, &part.slot);
    if (r == 0)
        r = insert(base, &part);
    if (r == 0)
        *ret = find(&base->history, span);
    fl__assert(r < 0 || *ret);
    return r;
}

/* As many rows as a chunk has room for, and always one. Returns how many. */
static size_t chunk_of(const fl_history_row *rows, size_t count, size_t *ret_size)
{
    size_t n = 1, size = fl__history_size(&rows[0]);
    while (n < count && n < CHUNK_ROWS && size + fl__history_size(&rows[n]) <= CHUNK_BYTES)
        size += fl__history_size(&rows[n++]);
    *ret_size = size;
    return n;
}

static int put_chunk(struct base *base, uint32_t slot, int64_t k, const fl_history_row *rows, size_t count, size_t room)
{
    unsigned char *bytes = fl__base_scratch(base, room);
    size_t size = 0;
    if (!bytes)
        return FL_NO_MEMORY;
    for (size_t i = 0; i < count; i++)
        size += fl__history_encode(&rows[i], bytes + size);
    return fl__slot_put(base, slot, k, (fl_bytes){bytes, size});
}

static int append(struct base *base, const fl_history_change *change)
{
    struct history_part *part;
    int r = make_part(base, change->span, &part);
    for (size_t i = 0, n; i < change->count && r == 0; i += n) {
        size_t room;
        n = chunk_of(&change->rows[i], change->count - i, &room);
        r = put_chunk(base, part->slot, (int64_t)change->rows[i].seq, &change->rows[i], n, room);
        for (size_t j = i; j < i + n; j++)
            fl__history_note(&part->span, &change->rows[j]);
    }
    if (r < 0)
        return r;
    const fl_history_span *span = &part->span;
    return fl__run(base, SQL_HISTORY, "iiiiii", (int64_t)span->span, (int64_t)part->slot, (int64_t)span->rows,
                   (int64_t)span->bytes, span->first_us, span->last_us);
}

static int drop_below(struct base *base, uint64_t span)
{
    struct history *history = &base->history;
    size_t count = place_of(history, span);
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        r = fl__slot_doom(base, history->parts[i].slot);
        if (r == 0)
            r = fl__run(base, SQL_HISTORY_DROP, "i", (int64_t)history->parts[i].span.span);
    }
    if (count > 0) {
        history->count -= count;
        memmove(history->parts, history->parts + count, history->count * sizeof *history->parts);
    }
    return r;
}

int fl__history_change(struct base *base, const fl_history_change *change)
{
    int r = change->drop_below > 0 ? drop_below(base, change->drop_below) : 0;
    if (r < 0 || change->count == 0)
        return r;
    r = fl__base_has_room(base);
    return r > 0 ? append(base, change) : r;
}

/* --- Reading ------------------------------------------------------------------------------------------------------- */

/* Returns how many rows a chunk has, or fails. */
static int read_chunk(struct base *base, fl_bytes chunk, fl_history_row rows[CHUNK_ROWS])
{
    const unsigned char *at = chunk.data, *end = at + chunk.size;
    int count = 0;
    while (at < end && count < CHUNK_ROWS)
        if (!fl__history_decode(&at, end, &rows[count++]))
            return base_corrupt(base, "a chunk of history cannot be read");
    return at == end ? count : base_corrupt(base, "a chunk of history is too long");
}

static int keep_row(struct base *base, fl_store_request *request, const fl_history_row *row)
{
    fl_history_row *rows =
        fl__answer_grow(request, (void *)request->history.rows, request->history.count, sizeof *rows);
    if (!rows)
        return base_no_memory(base);
    request->history.rows = rows;
    fl_history_row *copy = &rows[request->history.count++];
    *copy = *row;
    if (!fl__answer_keep(request, &copy->ns) || !fl__answer_keep(request, &copy->name) ||
        !fl__answer_keep(request, &copy->schedule) || !fl__answer_keep(request, &copy->body))
        return base_no_memory(base);
    return 0;
}

struct page {
    size_t rows, bytes; /* that may still be looked at, and given */
};

/* Rows of a chunk, the last one first. 1: the page is full, and there may be more. */
static int list_chunk(struct base *base, fl_store_request *request, fl_bytes chunk, struct page *page)
{
    fl_history_row rows[CHUNK_ROWS];
    int count = read_chunk(base, chunk, rows), r = count < 0 ? count : 0;
    for (int i = count - 1; i >= 0 && r == 0; i--) {
        const fl_history_row *row = &rows[i];
        if (request->history.before_seq > 0 && row->seq >= request->history.before_seq)
            continue;
        if (page->rows == 0 || page->bytes == 0)
            return 1;
        page->rows--;
        request->history.next_seq = row->seq;
        if (!fl__history_fits(request, row))
            continue;
        r = keep_row(base, request, row);
        page->bytes -= row->body.size < page->bytes ? row->body.size : page->bytes;
    }
    return r;
}

int fl__history_page(struct base *base, fl_store_request *request)
{
    const struct history_part *part = find(&base->history, request->history.span);
    request->history.rows = NULL;
    request->history.count = 0;
    request->history.next_seq = 0;
    if (!part)
        return 0;
    struct page page = {request->history.limit, FL_STORE_PAGE_BYTES};
    int64_t k = request->history.before_seq > 0 ? (int64_t)request->history.before_seq - 1 : INT64_MAX;
    struct record record;
    int r;
    while ((r = fl__slot_floor(base, part->slot, k, &record)) > 0) {
        k = record.k - 1;
        r = list_chunk(base, request, record.v, &page);
        fl__record_end(&record);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    request->history.next_seq = 0; /* this was all */
    return r;
}

/* --- Erasing ------------------------------------------------------------------------------------------------------- */

/* Writes a chunk anew without the rows that are to be erased. Its rows point into memory that is not the scratch. */
static int erase_from(struct base *base, uint32_t slot, int64_t k, fl_history_row rows[CHUNK_ROWS], int count,
                      fl_store_request *request)
{
    size_t kept = 0, room = 0;
    for (int i = 0; i < count; i++)
        if (!fl__history_is_of(request, &rows[i])) {
            room += fl__history_size(&rows[i]);
            rows[kept++] = rows[i];
        }
    request->forget.erased += (uint64_t)count - kept;
    if (kept == (size_t)count)
        return 0;
    return kept == 0 ? fl__slot_drop(base, slot, k) : put_chunk(base, slot, k, rows, kept, room);
}

/* From the end, one chunk after the other: SQLite must not read what is being written. */
int fl__history_erase(struct base *base, fl_store_request *request)
{
    const struct history_part *part = find(&base->history, request->forget.span);
    struct record record;
    int64_t k = INT64_MAX;
    int r = 0;
    request->forget.erased = 0;
    while (part && (r = fl__slot_floor(base, part->slot, k, &record)) > 0) {
        fl_history_row rows[CHUNK_ROWS];
        unsigned char *copy = fl__alloc(record.v.size + 1);
        k = record.k;
        if (copy && record.v.size > 0)
            memcpy(copy, record.v.data, record.v.size);
        size_t size = record.v.size;
        fl__record_end(&record);
        int count = copy ? read_chunk(base, (fl_bytes){copy, size}, rows) : base_no_memory(base);
        r = count < 0 ? count : erase_from(base, part->slot, k, rows, count, request);
        fl__release(copy);
        if (r < 0)
            return r;
        k--;
    }
    return r;
}
