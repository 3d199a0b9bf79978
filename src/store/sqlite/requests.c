/* SPDX-License-Identifier: MIT */
/* Requests: carrying them out on a shard's file. */

#include <string.h>

#include "base/alloc.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/names/names.h"

/* --- Changes ------------------------------------------------------------------------------------------------------ */

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
    if (r == 0 && !key_equal(row->id, row->key))
        r = fl__run(base, SQL_MOVED, "iii", (int64_t)row->id.seq, row->key.at_us, (int64_t)row->key.seq);
    return r;
}

static int bury(struct base *base, const fl_dead_row *dead)
{
    uint64_t ns;
    int r = fl__namespace_number(base, dead->row.ns, &ns);
    if (r < 0)
        return r;
    const int64_t numbers[4] = {(int64_t)dead->row.id.seq, dead->row.id.at_us, (int64_t)ns, dead->died_us};
    return fl__run(base, SQL_DEAD, "iiiibbbi", numbers[0], numbers[1], numbers[2], numbers[3], dead->row.name,
                   dead->reason, dead->row.body, fl__dead_sum(numbers, dead->row.name, dead->reason, dead->row.body));
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

/* How long the claim of the shard owner is still valid. */
static int64_t claim_left(struct base *base, fl_wall_clock *clock)
{
    const struct claim *claim = claim_of(base);
    int64_t now = clock->now_us(clock);
    return claim->version == base->version && claim->until_us > now ? claim->until_us - now : 0;
}

/* Renewing writes nothing, because no other process can claim the shard. But the shard owner must know that the files still
 * exist. */
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

/* --- Requests ----------------------------------------------------------------------------------------------------- */

bool fl__request_writes(const fl_store_request *request)
{
    switch (request->op) {
    case FL_STORE_FIND:
    case FL_STORE_LIST:
    case FL_STORE_LOAD:
    case FL_STORE_DEAD_LIST:
    case FL_STORE_HISTORY:
    case FL_STORE_COUNT:
    case FL_STORE_BACKUP:
    case FL_STORE_MEET:
    case FL_STORE_RENEW:
        return false;
    default:
        return true;
    }
}

/* Only the newest version may write. A shard that was never claimed has version 0. */
static bool lost(const struct base *base, fl_store_request *request)
{
    if (request->op == FL_STORE_CLAIM || (!fl__request_writes(request) && request->op != FL_STORE_RENEW))
        return false;
    if (request->version == base->version && request->version != 0)
        return false;
    fl__store_answer(request, FL_SHARD_LOST, "shard %u is owned by %.150s; nothing was written", base->number,
                     base->owner[0] ? base->owner : "no server");
    return true;
}

/* Whether a change creates a timer, and does not move, replace or redrive one. */
static bool is_new(const fl_store_change *change)
{
    return change->put && change->remove.seq == 0 && change->unbury == 0 &&
           key_equal(change->put->id, change->put->key);
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
        return fl__request_find(base, request);
    case FL_STORE_LIST:
        return fl__request_list(base, request);
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
        return fl__request_dead_list(base, request);
    case FL_STORE_COUNT:
        return fl__request_count(base, request);
    case FL_STORE_MEET:
        fl__store_answer(request, FL_INVALID_ARGUMENT,
                         "servers cannot share this store; use PostgreSQL for several servers");
        return 0;
    default:
        fl__store_answer(request, FL_INVALID_ARGUMENT, "unknown request");
        return 0;
    }
}
