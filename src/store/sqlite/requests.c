/* SPDX-License-Identifier: MIT */
/* Requests: what each of them does to a shard's file. */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

/* --- Memory of answers -------------------------------------------------------------------------------------------- */

struct block {
    struct block *next;
    size_t used, room;
    max_align_t bytes[];
};

enum { BLOCK_BYTES = 16 << 10 };

void *fl__answer_alloc(fl_store_request *request, size_t size)
{
    size = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
    struct block *block = request->store_data;
    if (!block || block->room - block->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        block = fl__alloc(sizeof *block + room);
        if (!block)
            return NULL;
        *block = (struct block){.next = request->store_data, .room = room};
        request->store_data = block;
    }
    void *bytes = (char *)block->bytes + block->used;
    block->used += size;
    return bytes;
}

void fl__answer_free(void *store_data)
{
    struct block *block = store_data;
    while (block) {
        struct block *next = block->next;
        fl__release(block);
        block = next;
    }
}

bool fl__answer_keep(fl_store_request *request, fl_bytes *bytes)
{
    void *copy = fl__answer_alloc(request, bytes->size);
    if (copy && bytes->size > 0)
        memcpy(copy, bytes->data, bytes->size);
    bytes->data = copy;
    return copy;
}

int fl__row_of(struct base *base, const struct window *window, const struct entry *entry, fl_row *ret)
{
    *ret = (fl_row){
        .key = entry->key, .id = entry->id, .window = window->number, .name = entry->name, .body = entry->body};
    return fl__namespace_text(base, entry->ns, &ret->ns);
}

static int keep_row(struct base *base, fl_store_request *request, const struct window *window,
                    const struct entry *entry, fl_row *ret)
{
    int r = fl__row_of(base, window, entry, ret);
    if (r == 0 && (!fl__answer_keep(request, &ret->name) || !fl__answer_keep(request, &ret->body)))
        r = base_no_memory(base);
    return r;
}

void *fl__answer_grow(fl_store_request *request, void *array, size_t count, size_t size)
{
    enum { FIRST = 16 };
    if (count >= FIRST && (count & (count - 1)) != 0)
        return array;
    if (count > 0 && count < FIRST)
        return array;
    void *larger = fl__answer_alloc(request, (count ? count * 2 : FIRST) * size);
    if (larger && count > 0)
        memcpy(larger, array, count * size);
    return larger;
}

/* --- Changes ------------------------------------------------------------------------------------------------------ */

static bool same_key(fl_key a, fl_key b)
{
    return a.seq == b.seq && a.at_us == b.at_us;
}

static int remove_row(struct base *base, fl_key key, uint64_t id_seq)
{
    uint64_t candidates[FL__WINDOW_LEVELS];
    size_t count = fl__window_candidates(key.at_us, candidates);
    struct entry entry;
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++) {
        struct window *window = fl__window_find(base, candidates[i]);
        r = window ? fl__window_remove(base, window, key, &entry) : 0;
    }
    if (r > 0 && entry.name.size > 0) {
        fl_bytes ns;
        r = fl__namespace_text(base, entry.ns, &ns);
        if (r == 0)
            fl__names_removed(base, key, ns, entry.name);
    }
    if (r >= 0 && id_seq != 0)
        r = fl__run(base, SQL_MOVED_DROP, "i", (int64_t)id_seq);
    return r < 0 ? r : 0;
}

static int put_row(struct base *base, const fl_row *row)
{
    struct entry entry = {.key = row->key, .id = row->id, .name = row->name, .body = row->body};
    struct window *window;
    int r = fl__namespace_number(base, row->ns, &entry.ns);
    if (r == 0)
        r = fl__window_make(base, row->window, &window);
    if (r == 0)
        r = fl__window_put(base, window, &entry);
    if (r == 0)
        r = fl__names_filed(base, row->key, row->ns, row->name, row->name_hash);
    if (r == 0 && !same_key(row->id, row->key))
        r = fl__run(base, SQL_MOVED, "iii", (int64_t)row->id.seq, row->key.at_us, (int64_t)row->key.seq);
    return r;
}

static int bury(struct base *base, const fl_dead_row *dead)
{
    uint64_t ns;
    int r = fl__namespace_number(base, dead->row.ns, &ns);
    if (r < 0)
        return r;
    return fl__run(base, SQL_DEAD, "iiiibbbi", (int64_t)dead->row.id.seq, dead->row.id.at_us, (int64_t)ns,
                   dead->died_us, dead->row.name, dead->reason, dead->row.body,
                   fl__checksum((int64_t)dead->row.id.seq, dead->row.body));
}

static int change(struct base *base, const fl_store_change *change)
{
    int r = 0;
    if (change->remove.seq != 0)
        r = remove_row(base, change->remove, change->remove_id);
    if (r == 0 && change->put)
        r = put_row(base, change->put);
    if (r == 0 && change->unbury != 0)
        r = fl__run(base, SQL_DEAD_DROP, "i", (int64_t)change->unbury);
    if (r == 0 && change->bury)
        r = bury(base, change->bury);
    return r;
}

static int change_all(struct base *base, const fl_store_change *changes, size_t count)
{
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        r = change(base, &changes[i]);
    return r;
}

static int record(struct base *base, const fl_progress *progress)
{
    unsigned char *bytes = fl__base_scratch(base, fl__progress_size(progress));
    if (!bytes)
        return FL_NO_MEMORY;
    fl_bytes encoded = {bytes, fl__progress_encode(progress, bytes)};
    return fl__run(base, SQL_PROGRESS, "bi", encoded, fl__checksum(0, encoded));
}

static int finish(struct base *base, fl_store_request *request)
{
    size_t limit = fl__sqlite_tuning.finish_chunks;
    uint64_t deleted = 0;
    int r = 0;
    for (size_t i = 0; i < request->finish.span_count && r == 0; i++) {
        struct window *window = fl__window_find(base, request->finish.spans[i].window);
        if (!window)
            continue;
        if (request->finish.spans[i].whole)
            r = fl__window_end(base, window);
        else
            r = fl__window_finish(base, window, &request->finish.settled, &limit, &deleted);
    }
    if (r == 0)
        r = change_all(base, request->finish.changes, request->finish.change_count);
    if (r == 0)
        r = fl__history_change(base, &request->finish.history);
    if (r == 0)
        r = record(base, &request->finish.record);
    request->finish.deleted = deleted;
    return r;
}

static int refile(struct base *base, fl_store_request *request)
{
    struct refiled refiled = {0};
    struct window *window = fl__window_find(base, request->refile.window);
    int r = window ? fl__window_refile(base, window, request->refile.shift, request->refile.limit, &refiled) : 0;
    request->refile.parts = refiled.parts;
    request->refile.moved = refiled.moved;
    request->refile.more = refiled.more;
    return r;
}

/* --- Owners ------------------------------------------------------------------------------------------------------- */

static int set_owner(struct base *base, uint64_t version, const char *owner)
{
    int r = fl__run(base, SQL_OWNER, "ib", (int64_t)version, (fl_bytes){owner, strlen(owner)});
    if (r < 0)
        return r;
    base->version = version;
    memmove(base->owner, owner, strlen(owner) + 1); /* it was checked to be short enough, and may be the same */
    return 0;
}

static struct claim *claim_of(struct base *base)
{
    return &base->claims[base->version & 1];
}

static void set_claim(struct base *base, fl_wall_clock *clock, uint64_t claim_us)
{
    int64_t now = clock->now_us(clock);
    *claim_of(base) =
        (struct claim){base->version, claim_us < (uint64_t)(INT64_MAX - now) ? now + (int64_t)claim_us : INT64_MAX};
}

/* How long the owner keeps others away. */
static int64_t claim_left(struct base *base, fl_wall_clock *clock)
{
    const struct claim *claim = claim_of(base);
    int64_t now = clock->now_us(clock);
    return claim->version == base->version && claim->until_us > now ? claim->until_us - now : 0;
}

/* Nothing is written, and nobody else could claim it; but whoever relies on the shard must know that its files are there. */
static int renew(struct base *base, fl_wall_clock *clock, uint64_t claim_us)
{
    int r = fl__base_present(base);
    if (r == 0)
        set_claim(base, clock, claim_us);
    return r;
}

static int release(struct base *base)
{
    *claim_of(base) = (struct claim){0};
    return set_owner(base, base->version, "");
}

static int claim_progress(struct base *base, fl_store_request *request)
{
    sqlite3_stmt *statement = fl__query(base, SQL_PROGRESS_GET, "");
    int r = statement ? fl__step(base, statement) : FL_NO_MEMORY;
    if (r < 0)
        return r;
    fl_bytes encoded = r > 0 ? fl__column_bytes(statement, 0) : (fl_bytes){0};
    fl_progress progress = {.seq_limit = 2};
    if (r > 0 && sqlite3_column_type(statement, 1) != SQLITE_NULL &&
        sqlite3_column_int64(statement, 1) != fl__checksum(0, encoded)) {
        sqlite3_reset(statement);
        return base_corrupt(base, "the checksum of its progress does not match");
    }
    r = encoded.size > 0 ? fl__progress_decode(encoded, &progress) : 0;
    sqlite3_reset(statement);
    if (r < 0)
        return r == FL_NO_MEMORY ? base_no_memory(base) : base_corrupt(base, "its progress cannot be read");
    void *kept = (void *)progress.keep;
    fl_bytes keep = {kept, progress.keep_count * sizeof *progress.keep};
    bool copied = fl__answer_keep(request, &keep);
    fl__release(kept);
    progress.keep = keep.data;
    request->claim.progress = progress;
    return copied ? 0 : base_no_memory(base);
}

static int claim_windows(struct base *base, fl_store_request *request)
{
    uint64_t *windows = fl__answer_alloc(request, (base->windows.count + 1) * sizeof *windows);
    if (!windows)
        return base_no_memory(base);
    size_t count = 0;
    for (struct window *window = fl__window_next(base, NULL); window; window = fl__window_next(base, window))
        windows[count++] = window->number;
    request->claim.windows = windows;
    request->claim.window_count = count;
    return 0;
}

static int claim_counts(struct base *base, fl_store_request *request)
{
    size_t all = base->namespaces.count, count = 0;
    uint64_t *totals = fl__answer_alloc(request, (all + 1) * sizeof *totals);
    fl_store_count *counts = fl__answer_alloc(request, (all + 1) * sizeof *counts);
    if (!totals || !counts)
        return base_no_memory(base);
    memset(totals, 0, (all + 1) * sizeof *totals);
    int r = fl__counts_sum(base, &request->claim.progress, totals);
    for (size_t i = 1; i <= all && r == 0; i++)
        if (totals[i] > 0) {
            counts[count].rows = totals[i];
            r = fl__namespace_text(base, i, &counts[count++].ns);
        }
    request->claim.counts = counts;
    request->claim.count_count = count;
    return r;
}

static int claim(struct base *base, fl_wall_clock *clock, fl_store_request *request)
{
    int64_t left = claim_left(base, clock);
    if (left > 0 && !request->claim.force && base->owner[0] && strcmp(base->owner, request->claim.owner) != 0) {
        fl__store_answer(request, FL_SHARD_HELD, "shard %u is held by %.150s for another %.1f s", base->number,
                         base->owner, (double)left / 1e6);
        return 0;
    }
    int r = claim_progress(base, request);
    if (r == 0)
        r = claim_windows(base, request);
    if (r == 0)
        r = claim_counts(base, request);
    if (r == 0)
        r = fl__history_claim(base, request);
    if (r == 0)
        r = set_owner(base, base->version + 1, request->claim.owner);
    if (r == 0)
        set_claim(base, clock, request->claim.claim_us);
    request->claim.version = base->version;
    return r;
}

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
    int r = keep_row(base, search->request, window, entry, &want->row);
    want->found = r == 0;
    return r < 0 ? r : 1;
}

/* Whether it is the row with this ID, or has it as its key. */
static int found_id(struct base *base, struct window *window, const struct entry *entry, void *arg)
{
    struct search *search = arg;
    fl_store_want *want = search->want;
    if (!same_key(entry->id, want->id) && !same_key(entry->key, want->id))
        return 0;
    int r = keep_row(base, search->request, window, entry, &want->row);
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

static int find(struct base *base, fl_store_request *request)
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
    return keep_row(base, request, window, entry, &rows[request->list.count++]);
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

static int list(struct base *base, fl_store_request *request)
{
    request->list.rows = NULL;
    request->list.count = 0;
    request->list.next_seq = 0;
    struct window *window = fl__window_find(base, request->list.window);
    if (!window)
        return 0;
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

static int dead_row(struct base *base, fl_store_request *request, sqlite3_stmt *statement, fl_dead_row *ret)
{
    if (sqlite3_column_type(statement, 7) != SQLITE_NULL &&
        sqlite3_column_int64(statement, 7) !=
            fl__checksum(sqlite3_column_int64(statement, 0), fl__column_bytes(statement, 6)))
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

static int dead_list(struct base *base, fl_store_request *request)
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

/* --- Requests ----------------------------------------------------------------------------------------------------- */

bool fl__request_writes(const fl_store_request *request)
{
    switch (request->op) {
    case FL_STORE_FIND:
    case FL_STORE_LIST:
    case FL_STORE_LOAD:
    case FL_STORE_DEAD_LIST:
    case FL_STORE_HISTORY:
    case FL_STORE_BACKUP:
    case FL_STORE_MEET:
    case FL_STORE_RENEW:
        return false;
    default:
        return true;
    }
}

/* Only the newest version may write; 0 is that of a shard that nobody has claimed. */
static bool lost(const struct base *base, fl_store_request *request)
{
    if (request->op == FL_STORE_CLAIM || (!fl__request_writes(request) && request->op != FL_STORE_RENEW))
        return false;
    if (request->version == base->version && request->version != 0)
        return false;
    fl__store_answer(request, FL_SHARD_LOST, "shard %u is owned by %.150s; nothing was written", base->number,
                     base->owner[0] ? base->owner : "nobody");
    return true;
}

/* Not one that is moved, replaced or raised from the dead. */
static bool is_new(const fl_store_change *change)
{
    return change->put && change->remove.seq == 0 && change->unbury == 0 && same_key(change->put->id, change->put->key);
}

static int write_changes(struct base *base, fl_store_request *request)
{
    size_t i = 0;
    while (i < request->write.count && !is_new(&request->write.changes[i]))
        i++;
    int r = i < request->write.count ? fl__base_has_room(base) : 1;
    if (r == 0)
        fl__store_answer(request, FL_STORE_FULL,
                         "the disk is nearly full, so %.150s takes no new timers; free some space", base->path);
    return r <= 0 ? r : change_all(base, request->write.changes, request->write.count);
}

int fl__request_run(struct base *base, fl_wall_clock *clock, fl_store_request *request)
{
    int r;
    fl__store_answer(request, 0, NULL);
    if (fl__store_validate(request) < 0 || lost(base, request))
        return 0;
    switch (request->op) {
    case FL_STORE_CLAIM:
        return claim(base, clock, request);
    case FL_STORE_RENEW:
        return renew(base, clock, request->renew.claim_us);
    case FL_STORE_RELEASE:
        return release(base);
    case FL_STORE_WRITE:
        return write_changes(base, request);
    case FL_STORE_FIND:
        return find(base, request);
    case FL_STORE_LIST:
        return list(base, request);
    case FL_STORE_REFILE:
        return refile(base, request);
    case FL_STORE_FINISH:
        return finish(base, request);
    case FL_STORE_RECORD:
        r = fl__history_change(base, &request->record.history);
        return r < 0 ? r : record(base, &request->record.progress);
    case FL_STORE_HISTORY:
        return fl__history_page(base, request);
    case FL_STORE_FORGET:
        return fl__history_erase(base, request);
    case FL_STORE_DEAD_LIST:
        return dead_list(base, request);
    case FL_STORE_MEET:
        fl__store_answer(request, FL_INVALID_ARGUMENT,
                         "servers cannot share this store; use PostgreSQL for several servers");
        return 0;
    default:
        fl__store_answer(request, FL_INVALID_ARGUMENT, "unknown request");
        return 0;
    }
}
