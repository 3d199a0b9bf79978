/* SPDX-License-Identifier: MIT */
/* Finding timers by ID or name, and listing timers and dead letters. */

#include <string.h>

#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

/* --- Finding ------------------------------------------------------------------------------------------------------ */

/* One that is looked for. */
struct search {
    fl_store_request *request;
    fl_store_want *want;
    uint64_t ns;
};

static int found_name(struct base *base, struct window *window, const struct entry *entry, void *arg)
{
    struct search *search = arg;
    fl_store_want *want = search->want;
    if (entry->ns != search->ns || entry->name.size != want->name.size ||
        memcmp(entry->name.data, want->name.data, want->name.size) != 0)
        return 0;
    int r = fl__answer_row(base, search->request, window, entry, &want->row);
    want->found = r == 0;
    return r < 0 ? r : 1;
}

/* Whether it is the row with this ID, or has it as its key. */
static int found_id(struct base *base, struct window *window, const struct entry *entry, void *arg)
{
    struct search *search = arg;
    fl_store_want *want = search->want;
    if (!key_equal(entry->id, want->id) && !key_equal(entry->key, want->id))
        return 0;
    int r = fl__answer_row(base, search->request, window, entry, &want->row);
    want->found = r == 0;
    return r < 0 ? r : 1;
}

/* Looks for a row in all windows in which it can be. */
static int look(struct base *base, int64_t at_us, uint64_t seq, entry_fn *found, struct search *search)
{
    uint64_t candidates[FL__WINDOW_LEVELS];
    size_t count = fl__window_candidates(at_us, candidates);
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct window *window = fl__window_find(base, candidates[i]);
        r = window ? fl__window_look(base, window, seq, found, search) : 0;
    }
    return r;
}

static int find_by_name(struct base *base, size_t index, const struct name_entry *entry, void *arg)
{
    fl_store_request *request = arg;
    fl_store_want *want = &request->find.wants[index];
    struct search search = {request, want, fl__namespace_find(base, want->ns)};
    return look(base, (int64_t)(entry->tick << FL_WINDOW_SHIFT_MIN), entry->seq, found_name, &search);
}

static int find_by_id(struct base *base, fl_store_request *request, fl_store_want *want)
{
    if (want->id.seq == 0 || want->id.seq >> 56 || want->id.at_us < 0 || want->id.at_us >= FL_STORE_TIME_END)
        return 0;
    struct search search = {.request = request, .want = want};
    int r = look(base, want->id.at_us, want->id.seq, found_id, &search);
    if (r != 0)
        return r;
    sqlite3_stmt *statement = fl__query(base, SQL_MOVED_GET, "i", (int64_t)want->id.seq);
    r = statement ? fl__step(base, statement) : FL_NO_MEMORY;
    if (r <= 0)
        return r;
    fl_key key = {sqlite3_column_int64(statement, 0), (uint64_t)sqlite3_column_int64(statement, 1)};
    sqlite3_reset(statement);
    return look(base, key.at_us, key.seq, found_id, &search);
}

int fl__request_find(struct base *base, fl_store_request *request)
{
    struct name_query *queries = fl__answer_alloc(request, (request->find.count + 1) * sizeof *queries);
    if (!queries)
        return base_no_memory(base);
    size_t names = 0;
    for (size_t i = 0; i < request->find.count; i++) {
        fl_store_want *want = &request->find.wants[i];
        want->found = false;
        if (want->name.size == 0) {
            int r = find_by_id(base, request, want);
            if (r < 0)
                return r;
        } else if (fl__namespace_find(base, want->ns) != 0) {
            queries[names++] =
                (struct name_query){.hash = fl__name_hash(want->ns, want->name, want->name_hash), .index = i};
        }
    }
    return fl__names_find(base, queries, names, find_by_name, request);
}

/* --- Listing ------------------------------------------------------------------------------------------------------ */

static bool listed(const fl_store_request *request, const struct window *window, const struct entry *entry, uint64_t ns)
{
    fl_bytes prefix = request->list.prefix;
    return entry->key.at_us >= request->list.from_us && entry->key.at_us < request->list.until_us &&
           (request->list.ns.size == 0 || entry->ns == ns) && entry->name.size >= prefix.size &&
           (prefix.size == 0 || memcmp(entry->name.data, prefix.data, prefix.size) == 0) &&
           !window_swept(window, entry->key);
}

static int list_one(struct base *base, fl_store_request *request, const struct window *window,
                    const struct entry *entry)
{
    fl_row *rows = fl__answer_grow(request, (void *)request->list.rows, request->list.count, sizeof *rows);
    if (!rows)
        return base_no_memory(base);
    request->list.rows = rows;
    return fl__answer_row(base, request, window, entry, &rows[request->list.count++]);
}

/* What a page may still hold. */
struct page_room {
    size_t rows; /* to look at */
    size_t bytes;
};

static bool page_is_full(const struct page_room *room)
{
    return room->rows == 0 || room->bytes == 0;
}

static void page_takes(struct page_room *room, size_t body_size)
{
    room->bytes -= body_size < room->bytes ? body_size : room->bytes;
}

/* Rows of a chunk that fit. Returns 1 if the page is full and another row follows. */
static int list_chunk(struct base *base, fl_store_request *request, const struct window *window,
                      struct chunk_reader reader, struct page_room *room)
{
    uint64_t ns = request->list.ns.size > 0 ? fl__namespace_find(base, request->list.ns) : 0;
    struct entry entry;
    int r;
    while ((r = fl__chunk_next(&reader, &entry)) > 0) {
        if (entry.key.seq <= request->list.after_seq)
            continue;
        if (page_is_full(room))
            return 1;
        room->rows--;
        request->list.next_seq = entry.key.seq;
        if (!listed(request, window, &entry, ns))
            continue;
        r = list_one(base, request, window, &entry);
        if (r < 0)
            return r;
        page_takes(room, request->list.rows[request->list.count - 1].body.size);
    }
    return r < 0 ? base_corrupt(base, "a chunk of rows cannot be read") : 0;
}

int fl__request_list(struct base *base, fl_store_request *request)
{
    request->list.rows = NULL;
    request->list.count = 0;
    request->list.next_seq = 0;
    struct window *window = fl__window_find(base, request->list.window);
    if (!window || fl__counts_of(base, window, request->list.ns, 0) == 0)
        return 0; /* nothing to look through */
    struct page_room room = {request->list.limit, FL_STORE_PAGE_BYTES};
    struct record record;
    int r = fl__window_scan(base, window, request->list.after_seq, &record);
    while (r > 0) {
        struct chunk_reader reader = fl__chunk_read(window->number, (uint64_t)record.k, record.v);
        r = list_chunk(base, request, window, reader, &room);
        if (r != 0)
            break;
        r = fl__record_next(base, &record);
    }
    fl__record_end(&record);
    if (r == 0)
        request->list.next_seq = 0; /* this was all */
    return r < 0 ? r : 0;
}

int fl__request_count(struct base *base, fl_store_request *request)
{
    fl_window_count *windows = fl__answer_alloc(request, (base->windows.count + 1) * sizeof *windows);
    size_t count = 0;
    if (!windows)
        return base_no_memory(base);
    for (struct window *window = fl__window_next(base, NULL); window; window = fl__window_next(base, window)) {
        uint64_t rows = fl__counts_of(base, window, request->count.ns, request->count.first_byte);
        if (rows > 0)
            windows[count++] = (fl_window_count){window->number, rows};
    }
    request->count.windows = windows;
    request->count.count = count;
    return 0;
}

static int dead_row(struct base *base, fl_store_request *request, sqlite3_stmt *statement, fl_dead_row *ret)
{
    const int64_t numbers[4] = {sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1),
                                sqlite3_column_int64(statement, 2), sqlite3_column_int64(statement, 3)};
    int64_t sum = fl__dead_sum(numbers, fl__column_bytes(statement, 4), fl__column_bytes(statement, 5),
                               fl__column_bytes(statement, 6));
    if (sqlite3_column_type(statement, 7) != SQLITE_NULL && sqlite3_column_int64(statement, 7) != sum)
        return base_corrupt(base, "the checksum of a dead letter does not match");
    fl_key id = {sqlite3_column_int64(statement, 1), (uint64_t)sqlite3_column_int64(statement, 0)};
    *ret = (fl_dead_row){.row = {.key = id,
                                 .id = id,
                                 .window = fl_window_of(id.at_us, FL_WINDOW_SHIFT_NEAR),
                                 .name = fl__column_bytes(statement, 4),
                                 .body = fl__column_bytes(statement, 6)},
                         .died_us = sqlite3_column_int64(statement, 3),
                         .reason = fl__column_bytes(statement, 5)};
    if (!fl__answer_keep(request, &ret->row.name) || !fl__answer_keep(request, &ret->row.body) ||
        !fl__answer_keep(request, &ret->reason))
        return base_no_memory(base);
    return fl__namespace_text(base, (uint64_t)sqlite3_column_int64(statement, 2), &ret->row.ns);
}

static int dead_rows(struct base *base, fl_store_request *request, sqlite3_stmt *statement)
{
    uint64_t only = request->dead_list.id_seq, last = 0;
    struct page_room room = {request->dead_list.limit, FL_STORE_PAGE_BYTES};
    int r;
    while ((r = fl__step(base, statement)) > 0) {
        uint64_t seq = (uint64_t)sqlite3_column_int64(statement, 0);
        if (only != 0 && seq != only)
            break;
        if (page_is_full(&room)) {
            request->dead_list.next_seq = only == 0 ? last : 0;
            break;
        }
        last = seq;
        fl_dead_row *rows =
            fl__answer_grow(request, (void *)request->dead_list.rows, request->dead_list.count, sizeof *rows);
        request->dead_list.rows = rows;
        r = rows ? dead_row(base, request, statement, &rows[request->dead_list.count++]) : base_no_memory(base);
        if (r < 0)
            break;
        room.rows--;
        page_takes(&room, request->dead_list.rows[request->dead_list.count - 1].row.body.size);
    }
    sqlite3_reset(statement);
    return r < 0 ? r : 0;
}

int fl__request_dead_list(struct base *base, fl_store_request *request)
{
    request->dead_list.rows = NULL;
    request->dead_list.count = 0;
    request->dead_list.next_seq = 0;
    int64_t after = (int64_t)request->dead_list.after_seq;
    if (request->dead_list.id_seq != 0)
        after = (int64_t)request->dead_list.id_seq - 1;
    int64_t ns = 0;
    if (request->dead_list.ns.size > 0) {
        ns = (int64_t)fl__namespace_find(base, request->dead_list.ns);
        if (ns == 0)
            return 0;
    }
    sqlite3_stmt *statement = fl__query(base, ns ? SQL_DEAD_NS : SQL_DEAD_ALL, ns ? "ii" : "i", after, ns);
    return statement ? dead_rows(base, request, statement) : FL_NO_MEMORY;
}
