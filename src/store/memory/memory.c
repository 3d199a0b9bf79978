/* SPDX-License-Identifier: MIT */
/* The store "memory:", for tests and simulations: the whole contract in the simplest form, with faults on demand.
 *
 * A shard's rows (rows.h), its owner and its progress stand in a book that belongs to the store and outlives those
 * who are attached to the shard: dropping an attachment is what a crash of its engine looks like. Books have a lock each,
 * so that a shard may be attached to loops of different threads.
 *
 * An attachment takes its requests one at a time, each in a task of its loop: it asks for a fault, carries the request out
 * under the lock, waits for the delay if there is one, answers, and only then begins the next. That is why order is kept,
 * why nothing is answered inside fl_store_submit(), and why a request that was carried out may still wait for its answer
 * when its engine crashes, while those behind it have not begun. What a request gives back is copied and belongs to the
 * attachment until `done` has returned. A load goes on from task to task, a part at a time.
 *
 * All or nothing: a request first gets all the memory that it needs; from then on nothing can fail.
 *
 * The list of servers has a lock of its own. Who looks at all shards locks one book after the other and never two at once.
 *
 * Versions begin with 1. A shard that was never claimed has version 0, which no write has.
 */

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "store/memory/history.h"
#include "store/memory/members.h"
#include "store/memory/rows.h"

enum {
    PAGE_ROWS = 512,      /* rows that a load or a list looks at before it gives back what fits */
    PAGE_BYTES = 1 << 20, /* and about how many bytes of them it copies */
};

/* --- What is kept ------------------------------------------------------------------------------------------------- */

struct book {
    pthread_mutex_t lock;
    struct fl__rows rows;
    uint64_t version;
    char owner[FL_STORE_NAME_MAX + 1]; /* empty: none */
    int64_t claim_until_us;
    fl_progress progress; /* `keep` is ours */
    struct fl__past history;
};

/* What the store can go back to. */
struct mark {
    struct fl__members members;
    struct book books[]; /* without their locks */
};

struct store {
    fl_store store;
    fl_wall_clock *clock;
    pthread_mutex_t members_lock;
    struct fl__members members;
    fl_memory_fault_fn fault;
    void *fault_arg;
    struct mark *mark;     /* NULL: none */
    atomic_uint went_back; /* so many times */
    atomic_uint attached;
    struct book books[];
};

struct attachment {
    fl_shard shard;
    struct book *book;
    fl_store_request *first, **last; /* those that have not begun */
    fl_store_request *current;       /* the one that has */
    bool claimed;                    /* over this attachment, */
    unsigned claimed_after;          /* when the store had gone back so many times */
    fl_loop_task task;
    bool scheduled;     /* a task is posted or a timer armed */
    struct arena arena; /* copies that live until the request is answered */
    struct {
        size_t window; /* which of the request's */
        uint64_t seq;  /* where to go on in it */
        fl_key end;    /* rows before it are given */
    } load;
    fl_loop_fn gone; /* set: to be detached */
    void *gone_arg;
};

static bool copy_row(struct arena *arena, const struct fl__memory_row *row, fl_row *ret)
{
    unsigned char *bytes = fl__arena_take(arena, fl__row_bytes(row));
    if (!bytes)
        return false;
    memcpy(bytes, row->bytes, fl__row_bytes(row));
    *ret = fl__row_view(row, bytes);
    return true;
}

static bool copy_dead(struct arena *arena, const struct fl__memory_dead *dead, fl_dead_row *ret)
{
    unsigned char *bytes = fl__arena_take(arena, fl__dead_bytes(dead));
    if (!bytes)
        return false;
    memcpy(bytes, dead->bytes, fl__dead_bytes(dead));
    *ret = fl__dead_view(dead, bytes);
    return true;
}

/* --- Owners ------------------------------------------------------------------------------------------------------- */

static bool is_write(const fl_store_request *request)
{
    switch (request->op) {
    case FL_STORE_RENEW:
    case FL_STORE_RELEASE:
    case FL_STORE_WRITE:
    case FL_STORE_REFILE:
    case FL_STORE_FINISH:
    case FL_STORE_RECORD:
    case FL_STORE_FORGET:
        return true;
    default:
        return false;
    }
}

static int64_t now_us(const struct attachment *a)
{
    fl_wall_clock *clock = ((struct store *)a->shard.store)->clock;
    return clock->now_us(clock);
}

static int64_t claim_end(int64_t now, uint64_t claim_us)
{
    int64_t end;
    return __builtin_add_overflow(now, claim_us, &end) ? INT64_MAX : end;
}

/* The windows with rows in them, counted and, if `out` is not NULL, listed. */
static size_t list_windows(const struct book *book, uint64_t *out)
{
    size_t count = 0;
    for (uint64_t window = 0; fl__rows_next_window(&book->rows, window, &window); window++)
        if (out)
            out[count++] = window;
        else
            count++;
    return count;
}

static bool same_namespace(fl_bytes a, fl_bytes b)
{
    assert(a.data && b.data); /* a namespace has at least one byte */
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static bool count_row(struct arena *arena, fl_store_count **counts, size_t *count, fl_bytes ns)
{
    for (size_t i = 0; i < *count; i++)
        if (same_namespace((*counts)[i].ns, ns)) {
            (*counts)[i].rows++;
            return true;
        }
    if ((*count & (*count - 1)) == 0) { /* full */
        fl_store_count *more = fl__arena_take(arena, (*count > 0 ? 2 * *count : 1) * sizeof *more);
        if (!more)
            return false;
        if (*count > 0)
            memcpy(more, *counts, *count * sizeof *more);
        *counts = more;
    }
    unsigned char *copy = fl__arena_take(arena, ns.size);
    if (!copy)
        return false;
    memcpy(copy, ns.data, ns.size);
    (*counts)[(*count)++] = (fl_store_count){{copy, ns.size}, 1};
    return true;
}

/* Looks at all rows: this store need not be fast. */
static bool tell_counts(struct attachment *a, fl_store_request *request)
{
    const struct book *book = a->book;
    fl_store_count *counts = NULL;
    size_t count = 0;
    for (uint64_t window = 0; fl__rows_next_window(&book->rows, window, &window); window++)
        for (const struct fl__memory_row *row = fl__rows_next(&book->rows, window, 0); row;
             row = fl__rows_next(&book->rows, window, row->filed.seq + 1))
            if (!fl_progress_settled(&book->progress, fl__row_key(row)) &&
                !count_row(&a->arena, &counts, &count, fl__row_view(row, row->bytes).ns))
                return false;
    request->claim.counts = counts;
    request->claim.count_count = count;
    return true;
}

/* A copy of what a claim gives back. */
static bool tell_claim(struct attachment *a, fl_store_request *request)
{
    const struct book *book = a->book;
    size_t keep_size = book->progress.keep_count * sizeof(uint64_t);
    uint64_t *windows = fl__arena_take(&a->arena, list_windows(book, NULL) * sizeof(uint64_t));
    uint64_t *keep = fl__arena_take(&a->arena, keep_size);
    if (!windows || !keep || !tell_counts(a, request) || !fl__past_tell(&book->history, &a->arena, request))
        return false;
    if (keep_size > 0)
        memcpy(keep, book->progress.keep, keep_size);
    request->claim.window_count = list_windows(book, windows);
    request->claim.windows = windows;
    request->claim.progress = book->progress;
    request->claim.progress.keep = keep;
    return true;
}

static void claim(struct attachment *a, fl_store_request *request)
{
    struct book *book = a->book;
    bool held = book->owner[0] && strcmp(book->owner, request->claim.owner) != 0;
    if (held && !request->claim.force && now_us(a) < book->claim_until_us) {
        fl__store_answer(request, FL_SHARD_HELD, "shard %u is held by %.180s", a->shard.shard, book->owner);
        return;
    }
    if (!tell_claim(a, request)) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    memcpy(book->owner, request->claim.owner, strlen(request->claim.owner) + 1);
    book->claim_until_us = claim_end(now_us(a), request->claim.claim_us);
    request->claim.version = ++book->version;
    a->claimed = true;
    a->claimed_after = atomic_load(&((struct store *)a->shard.store)->went_back);
}

/* Whether the store has forgotten what the owner knows. */
static bool is_forgotten(const struct attachment *a, const fl_store_request *request)
{
    return a->claimed && request->op != FL_STORE_CLAIM && request->op != FL_STORE_MEET &&
           a->claimed_after != atomic_load(&((struct store *)a->shard.store)->went_back);
}

static void answer_forgotten(const struct attachment *a, fl_store_request *request)
{
    fl__store_answer(request, FL_SHARD_LOST, "shard %u has gone back to an earlier state", a->shard.shard);
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

/* What a batch of changes and a record of progress need: all of it is there, or nothing. */
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

/* Gets the memory, or answers that there is none. */
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

static void write_changes(struct book *book, fl_store_request *request)
{
    struct plan plan = {.changes = request->write.changes, .count = request->write.count};
    if (plan_make(&plan, request))
        plan_apply(&plan, book);
}

static void record(struct book *book, fl_store_request *request)
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

static void finish(struct book *book, fl_store_request *request)
{
    struct plan plan = {.changes = request->finish.changes,
                        .count = request->finish.change_count,
                        .progress = &request->finish.record,
                        .history = &request->finish.history};
    if (!plan_make(&plan, request))
        return;
    request->finish.deleted = 0;
    for (size_t i = 0; i < request->finish.span_count; i++)
        request->finish.deleted += finish_span(book, &request->finish.spans[i], &request->finish.settled);
    plan_apply(&plan, book);
}

static void refile(struct book *book, fl_store_request *request)
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

/* --- Reading ------------------------------------------------------------------------------------------------------ */

static void find(struct attachment *a, fl_store_request *request)
{
    const struct fl__rows *rows = &a->book->rows;
    for (size_t i = 0; i < request->find.count; i++) {
        fl_store_want *want = &request->find.wants[i];
        const struct fl__memory_row *row =
            want->name.size > 0 ? fl__rows_by_name(rows, want->ns, want->name) : fl__rows_by_id(rows, want->id);
        want->found = row;
        if (row && !copy_row(&a->arena, row, &want->row)) {
            fl__store_answer(request, FL_NO_MEMORY, NULL);
            return;
        }
    }
}

static bool begins_with(fl_bytes bytes, fl_bytes prefix)
{
    return prefix.size == 0 || (bytes.size >= prefix.size && memcmp(bytes.data, prefix.data, prefix.size) == 0);
}

static bool is_in(fl_bytes ns, fl_bytes wanted)
{
    return wanted.size == 0 || (ns.size == wanted.size && memcmp(ns.data, wanted.data, ns.size) == 0);
}

static bool fits_list(const fl_store_request *request, const struct fl__memory_row *row)
{
    fl_row view = fl__row_view(row, row->bytes);
    return view.key.at_us >= request->list.from_us && view.key.at_us < request->list.until_us &&
           is_in(view.ns, request->list.ns) && begins_with(view.name, request->list.prefix);
}

static size_t page_rows(size_t limit)
{
    return limit < PAGE_ROWS ? limit : PAGE_ROWS;
}

static void list(struct attachment *a, fl_store_request *request)
{
    size_t limit = page_rows(request->list.limit), count = 0, seen = 0, bytes = 0;
    uint64_t seq = request->list.after_seq;
    fl_row *rows = fl__arena_take(&a->arena, limit * sizeof *rows);
    const struct fl__memory_row *row;
    bool good = rows;
    for (; (row = fl__rows_next(&a->book->rows, request->list.window, seq + 1)) && good; seq = row->filed.seq) {
        if (seen++ == limit || bytes >= FL_STORE_PAGE_BYTES)
            break;
        if (fits_list(request, row)) {
            good = copy_row(&a->arena, row, &rows[count++]);
            bytes += good ? rows[count - 1].body.size : 0;
        }
    }
    if (!good) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    request->list.rows = rows;
    request->list.count = count;
    request->list.next_seq = row ? seq : 0;
}

static bool fits_dead(const fl_store_request *request, const struct fl__memory_dead *dead)
{
    uint64_t only = request->dead_list.id_seq;
    return (only == 0 || only == dead->id.seq) && is_in(fl__dead_view(dead, dead->bytes).row.ns, request->dead_list.ns);
}

static void list_dead(struct attachment *a, fl_store_request *request)
{
    size_t limit = page_rows(request->dead_list.limit), count = 0, seen = 0, bytes = 0;
    uint64_t only = request->dead_list.id_seq, seq = only > 0 ? only - 1 : request->dead_list.after_seq;
    fl_dead_row *rows = fl__arena_take(&a->arena, limit * sizeof *rows);
    const struct fl__memory_dead *dead;
    bool good = rows;
    for (; (dead = fl__rows_next_dead(&a->book->rows, seq + 1)) && good; seq = dead->id.seq) {
        if (seen++ == limit || bytes >= FL_STORE_PAGE_BYTES || (only > 0 && seen > 1))
            break;
        if (fits_dead(request, dead)) {
            good = copy_dead(&a->arena, dead, &rows[count++]);
            bytes += good ? rows[count - 1].row.body.size : 0;
        }
    }
    if (!good) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    request->dead_list.rows = rows;
    request->dead_list.count = count;
    request->dead_list.next_seq = dead && only == 0 ? seq : 0;
}

/* --- Loading ------------------------------------------------------------------------------------------------------ */

static int compare_keys(const void *x, const void *y)
{
    const fl_key *a = x, *b = y;
    if (a->at_us != b->at_us)
        return a->at_us < b->at_us ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static bool is_before(fl_key a, fl_key b)
{
    return compare_keys(&a, &b) < 0;
}

static bool fits_load(const fl_store_request *request, const struct fl__memory_row *row)
{
    return row->at_us < request->load.until_us && !is_before(fl__row_key(row), request->load.from);
}

/* The keys of a window that fit, counted and, if `out` is not NULL, listed. */
static size_t list_keys(const struct book *book, const fl_store_request *request, uint64_t window, fl_key *out)
{
    size_t count = 0;
    const struct fl__memory_row *row = fl__rows_next(&book->rows, window, 0);
    for (; row; row = fl__rows_next(&book->rows, window, row->filed.seq + 1)) {
        if (!fits_load(request, row))
            continue;
        if (out)
            out[count] = fl__row_key(row);
        count++;
    }
    return count;
}

/* The key before which there are `rank` that fit in the window. There are more than that. */
static bool key_of_rank(const struct book *book, const fl_store_request *request, uint64_t window, size_t rank,
                        fl_key *ret)
{
    fl_key *keys = fl__alloc(list_keys(book, request, window, NULL) * sizeof *keys);
    if (!keys)
        return false;
    size_t count = list_keys(book, request, window, keys);
    qsort(keys, count, sizeof *keys, compare_keys);
    *ret = keys[rank];
    fl__release(keys);
    return true;
}

/* Finds out where the load ends. As windows are in order of time, only one of them is given in part. */
static void load_begin(struct attachment *a, fl_store_request *request)
{
    size_t room = request->load.limit;
    request->load.more = false;
    for (size_t i = 0; i < request->load.window_count && !request->load.more; i++) {
        uint64_t window = request->load.windows[i];
        size_t count = list_keys(a->book, request, window, NULL);
        request->load.more = count > room;
        if (request->load.more && !key_of_rank(a->book, request, window, room, &request->load.next)) {
            fl__store_answer(request, FL_NO_MEMORY, NULL);
            return;
        }
        room -= count > room ? room : count;
    }
    a->load.window = 0;
    a->load.seq = 0;
    a->load.end = request->load.more ? request->load.next : (fl_key){request->load.until_us, 0};
}

/* Copies the next part; the number of rows in it. `ret_over` says that it was the last. */
static size_t load_part(struct attachment *a, fl_store_request *request, fl_row *rows, bool *ret_over)
{
    size_t count = 0, seen = 0, bytes = 0;
    while (a->load.window < request->load.window_count && seen < PAGE_ROWS && bytes < PAGE_BYTES) {
        const struct fl__memory_row *row =
            fl__rows_next(&a->book->rows, request->load.windows[a->load.window], a->load.seq);
        seen++;
        if (!row) {
            a->load.window++;
            a->load.seq = 0;
            continue;
        }
        if (fits_load(request, row) && is_before(fl__row_key(row), a->load.end)) {
            if (!copy_row(&a->arena, row, &rows[count])) {
                fl__store_answer(request, FL_NO_MEMORY, NULL);
                return 0;
            }
            bytes += fl__row_bytes(row);
            count++;
        }
        a->load.seq = row->filed.seq + 1;
    }
    *ret_over = a->load.window == request->load.window_count;
    return count;
}

/* Gives the next part of a load; whether that was the last. */
static bool load_go_on(struct attachment *a, fl_store_request *request)
{
    bool over = true;
    fl_row *rows = fl__arena_take(&a->arena, PAGE_ROWS * sizeof *rows);
    if (!rows) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return true;
    }
    pthread_mutex_lock(&a->book->lock);
    size_t count = load_part(a, request, rows, &over);
    pthread_mutex_unlock(&a->book->lock);
    if (count > 0)
        request->load.rows(request, rows, count);
    fl__arena_free(&a->arena);
    return over;
}

/* --- Meeting ------------------------------------------------------------------------------------------------------ */

static int64_t time_left(int64_t until_us, int64_t now)
{
    int64_t left;
    return __builtin_sub_overflow(until_us, now, &left) ? INT64_MAX : left;
}

static const char *copy_text(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = fl__arena_take(arena, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

/* Who has the shards, in the arena; NULL: there is no memory. */
static const fl_store_holder *tell_holders(struct attachment *a, int64_t now)
{
    struct store *store = (struct store *)a->shard.store;
    fl_store_holder *holders = fl__arena_take(&a->arena, store->store.shards * sizeof *holders);
    for (uint32_t i = 0; i < store->store.shards && holders; i++) {
        struct book *book = &store->books[i];
        pthread_mutex_lock(&book->lock);
        holders[i] = (fl_store_holder){.owner = copy_text(&a->arena, book->owner), .version = book->version};
        if (book->owner[0])
            holders[i].left_us = time_left(book->claim_until_us, now);
        pthread_mutex_unlock(&book->lock);
        if (!holders[i].owner)
            return NULL;
    }
    return holders;
}

/* Room is made before anything changes: the server that joins is one more. */
static void meet_locked(struct attachment *a, fl_store_request *request, int64_t now)
{
    struct fl__members *members = &((struct store *)a->shard.store)->members;
    fl_store_member *told = fl__arena_take(&a->arena, (members->count + 1) * sizeof *told);
    struct fl__member *copies = fl__arena_take(&a->arena, (members->count + 1) * sizeof *copies);
    if (!told || !copies || fl__members_note(members, request, now, claim_end(now, request->meet.claim_us)) < 0) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    size_t count = 0;
    for (const struct fl__member *member = members->first; member; member = member->next) {
        copies[count] = *member;
        told[count] = (fl_store_member){.address = copies[count].address,
                                        .about = copies[count].about,
                                        .incarnation = member->incarnation,
                                        .left_us = time_left(member->claim_until_us, now)};
        count++;
    }
    if (request->meet.join && request->meet.offer && !members->secret[0])
        snprintf(members->secret, sizeof members->secret, "%s", request->meet.offer);
    request->meet.secret = members->secret;
    request->meet.members = told;
    request->meet.member_count = count;
}

static void meet(struct attachment *a, fl_store_request *request)
{
    struct store *store = (struct store *)a->shard.store;
    int64_t now = now_us(a);
    request->meet.holders = tell_holders(a, now);
    if (!request->meet.holders) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    pthread_mutex_lock(&store->members_lock);
    meet_locked(a, request, now);
    pthread_mutex_unlock(&store->members_lock);
}

/* --- Requests ----------------------------------------------------------------------------------------------------- */

static void carry_out_locked(struct attachment *a, fl_store_request *request)
{
    struct book *book = a->book;
    if (is_forgotten(a, request)) {
        answer_forgotten(a, request);
        return;
    }
    if (is_write(request) && (request->version != book->version || request->version == 0)) {
        fl__store_answer(request, FL_SHARD_LOST, "shard %u is owned by %.180s", a->shard.shard,
                         book->owner[0] ? book->owner : "nobody");
        return;
    }
    switch (request->op) {
    case FL_STORE_CLAIM:
        return claim(a, request);
    case FL_STORE_RENEW:
        book->claim_until_us = claim_end(now_us(a), request->renew.claim_us);
        return;
    case FL_STORE_RELEASE:
        book->owner[0] = 0;
        return;
    case FL_STORE_WRITE:
        return write_changes(book, request);
    case FL_STORE_FIND:
        return find(a, request);
    case FL_STORE_LIST:
        return list(a, request);
    case FL_STORE_LOAD:
        return load_begin(a, request);
    case FL_STORE_REFILE:
        return refile(book, request);
    case FL_STORE_FINISH:
        return finish(book, request);
    case FL_STORE_RECORD:
        return record(book, request);
    case FL_STORE_DEAD_LIST:
        return list_dead(a, request);
    case FL_STORE_HISTORY:
        if (!fl__past_list(&book->history, &a->arena, request))
            fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    case FL_STORE_FORGET:
        return fl__past_forget(&book->history, request);
    case FL_STORE_BACKUP:
    case FL_STORE_MEET: /* it has been carried out, without the lock of this book */
        break;
    }
    fl__store_answer(request, FL_INVALID_ARGUMENT, "a store in memory cannot be copied to a file");
}

static void carry_out(struct attachment *a, fl_store_request *request)
{
    if (fl__store_validate(request) < 0)
        return;
    if (request->op == FL_STORE_MEET)
        return meet(a, request);
    pthread_mutex_lock(&a->book->lock);
    carry_out_locked(a, request);
    pthread_mutex_unlock(&a->book->lock);
}

/* An answer that hides what happened: the request must not show it. */
static void carry_out_hidden(struct attachment *a, const fl_store_request *request)
{
    fl_store_request copy = *request;
    if (is_write(request) || request->op == FL_STORE_CLAIM || request->op == FL_STORE_MEET)
        carry_out(a, &copy);
    fl__arena_free(&a->arena);
}

static void step(fl_loop *loop, void *arg);

static void schedule(struct attachment *a)
{
    if (a->scheduled)
        return;
    a->scheduled = true;
    a->task = (fl_loop_task){.fn = step, .arg = a};
    fl_loop_post_task(a->shard.loop, &a->task);
}

/* Carries the current request out, as the fault has it. False: its answer has to wait. */
static bool begin(struct attachment *a)
{
    struct store *store = (struct store *)a->shard.store;
    fl_store_request *request = a->current;
    if (a->gone) {
        fl__store_answer(request, FL_STORE_UNAVAILABLE, "shard %u was detached before", a->shard.shard);
        return true;
    }
    fl_memory_fault fault = {0};
    if (store->fault)
        fault = store->fault(store->fault_arg, a->shard.shard, request);
    if (fault.delay_ns > 0 && fl_loop_timer(a->shard.loop, fault.delay_ns, step, a, NULL) < 0) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return true;
    }
    a->scheduled = fault.delay_ns > 0;
    if (fault.result == 0)
        carry_out(a, request);
    else if (fault.applied)
        carry_out_hidden(a, request);
    if (fault.result != 0)
        fl__store_answer(request, fault.result, NULL);
    return !a->scheduled;
}

static void free_attachment(struct attachment *a)
{
    fl_loop *loop = a->shard.loop;
    fl_loop_fn gone = a->gone;
    void *arg = a->gone_arg;
    atomic_fetch_sub(&((struct store *)a->shard.store)->attached, 1);
    fl__release(a);
    gone(loop, arg);
}

static bool take_next(struct attachment *a)
{
    a->current = a->first;
    if (!a->current)
        return false;
    a->first = a->current->next;
    if (!a->first)
        a->last = &a->first;
    return true;
}

/* One step: begins a request or goes on with the one that has begun, as far as its answer. */
static void step(fl_loop *loop, void *arg)
{
    (void)loop;
    struct attachment *a = arg;
    a->scheduled = false;
    if (!a->current) {
        if (!take_next(a)) {
            free_attachment(a); /* there was nothing else to come for */
            return;
        }
        if (!begin(a))
            return;
    }
    fl_store_request *request = a->current;
    if (request->op == FL_STORE_LOAD && request->result == 0 && is_forgotten(a, request))
        answer_forgotten(a, request);
    if (request->op == FL_STORE_LOAD && request->result == 0 && !load_go_on(a, request)) {
        schedule(a);
        return;
    }
    a->current = NULL;
    request->done(request);
    fl__arena_free(&a->arena);
    if (a->first || a->gone)
        schedule(a);
}

static void submit(fl_shard *shard, fl_store_request *request)
{
    struct attachment *a = (struct attachment *)shard;
    request->next = NULL;
    *a->last = request;
    a->last = &request->next;
    if (!a->current)
        schedule(a);
}

/* It could always tell, but says it of every second name only: who is tested with it meets both ways. */
static bool absent(fl_shard *shard, const fl_store_want *want)
{
    struct book *book = ((struct attachment *)shard)->book;
    pthread_mutex_lock(&book->lock);
    bool found = fl__rows_by_name(&book->rows, want->ns, want->name) != NULL;
    pthread_mutex_unlock(&book->lock);
    return !found && fl_store_hash(want->ns, want->name) % 2 == 0;
}

/* --- The store ---------------------------------------------------------------------------------------------------- */

static int attach(fl_store *base, uint32_t shard, fl_loop *loop, fl_shard **ret)
{
    struct store *store = (struct store *)base;
    struct attachment *a = fl__alloc_zeroed(sizeof *a);
    if (!a)
        return FL_NO_MEMORY;
    a->shard = (fl_shard){base, loop, shard};
    a->book = &store->books[shard];
    a->last = &a->first;
    atomic_fetch_add(&store->attached, 1);
    *ret = &a->shard;
    return 0;
}

static void detach(fl_shard *shard, fl_loop_fn done, void *arg)
{
    struct attachment *a = (struct attachment *)shard;
    a->gone = done;
    a->gone_arg = arg;
    schedule(a);
}

static void clear_book(struct book *book)
{
    fl__rows_clear(&book->rows);
    fl__past_clear(&book->history);
    fl__release((void *)book->progress.keep);
    book->progress.keep = NULL;
}

static void drop_mark(struct mark *mark, uint32_t shards)
{
    for (uint32_t i = 0; mark && i < shards; i++)
        clear_book(&mark->books[i]);
    if (mark)
        fl__members_clear(&mark->members);
    fl__release(mark);
}

static void close_store(fl_store *base)
{
    struct store *store = (struct store *)base;
    assert(atomic_load(&store->attached) == 0);
    drop_mark(store->mark, base->shards);
    for (uint32_t i = 0; i < base->shards; i++) {
        clear_book(&store->books[i]);
        pthread_mutex_destroy(&store->books[i].lock);
    }
    fl__members_clear(&store->members);
    pthread_mutex_destroy(&store->members_lock);
    fl__release(store);
}

static const struct fl_store_ops ops = {close_store, attach, detach, submit, absent, .shared = true};

int fl__memory_open(const char *rest, const fl_store_config *config, fl_store **ret, char *message, size_t size)
{
    if (*rest) {
        snprintf(message, size, "unexpected text '%.80s' after memory:; remove it", rest);
        return FL_INVALID_ARGUMENT;
    }
    uint32_t shards = config->shards > 0 ? config->shards : FL__STORE_SHARDS;
    struct store *store = fl__alloc_zeroed(sizeof *store + shards * sizeof *store->books);
    if (!store)
        return FL_NO_MEMORY;
    store->store = (fl_store){&ops, shards};
    store->clock = config->clock;
    pthread_mutex_init(&store->members_lock, NULL);
    for (uint32_t i = 0; i < shards; i++) {
        struct book *book = &store->books[i];
        pthread_mutex_init(&book->lock, NULL);
        book->rows = (struct fl__rows){0};
        book->progress.seq_limit = 2;
    }
    *ret = &store->store;
    return 0;
}

int fl_memory_store_faults(fl_store *store, fl_memory_fault_fn fn, void *arg)
{
    if (store->ops != &ops)
        return FL_INVALID_ARGUMENT;
    ((struct store *)store)->fault = fn;
    ((struct store *)store)->fault_arg = arg;
    return 0;
}

/* --- Going back --------------------------------------------------------------------------------------------------- */

static int copy_rows(struct fl__rows *to, const struct fl__rows *from)
{
    for (uint64_t window = 0; fl__rows_next_window(from, window, &window); window++)
        for (const struct fl__memory_row *row = fl__rows_next(from, window, 0); row;
             row = fl__rows_next(from, window, row->filed.seq + 1)) {
            fl_row view = fl__row_view(row, row->bytes);
            struct fl__memory_row *copy = fl__row_new(&view);
            if (!copy)
                return FL_NO_MEMORY;
            fl__rows_put(to, copy);
        }
    for (const struct fl__memory_dead *dead = fl__rows_next_dead(from, 0); dead;
         dead = fl__rows_next_dead(from, dead->filed.seq + 1)) {
        fl_dead_row view = fl__dead_view(dead, dead->bytes);
        struct fl__memory_dead *copy = fl__dead_new(&view);
        if (!copy)
            return FL_NO_MEMORY;
        fl__rows_bury(to, copy);
    }
    return 0;
}

/* All but the lock. On failure `to` is to be cleared all the same. */
static int copy_book(struct book *to, const struct book *from)
{
    size_t size = from->progress.keep_count * sizeof(uint64_t);
    uint64_t *keep = size > 0 ? fl__alloc(size) : NULL;
    to->rows = (struct fl__rows){0};
    to->version = from->version;
    to->claim_until_us = from->claim_until_us;
    memcpy(to->owner, from->owner, sizeof to->owner);
    to->progress = from->progress;
    to->progress.keep = keep;
    if (size > 0 && !keep)
        return FL_NO_MEMORY;
    if (size > 0)
        memcpy(keep, from->progress.keep, size);
    if (!fl__past_copy(&to->history, &from->history))
        return FL_NO_MEMORY;
    return copy_rows(&to->rows, &from->rows);
}

static void move_book(struct book *to, struct book *from)
{
    clear_book(to);
    fl__rows_move(&to->rows, &from->rows);
    to->history = from->history;
    to->version = from->version;
    to->claim_until_us = from->claim_until_us;
    memcpy(to->owner, from->owner, sizeof to->owner);
    to->progress = from->progress;
}

static int copy_members(struct fl__members *to, const struct fl__members *from)
{
    struct fl__member **end = &to->first;
    *to = (struct fl__members){0};
    memcpy(to->secret, from->secret, sizeof to->secret);
    for (const struct fl__member *member = from->first; member; member = member->next) {
        *end = fl__alloc(sizeof **end);
        if (!*end)
            return FL_NO_MEMORY;
        **end = *member;
        (*end)->next = NULL;
        end = &(*end)->next;
        to->count++;
    }
    return 0;
}

/* Copies of everything: of what is there, or of the mark. */
static int copy_all(const struct store *store, const struct fl__members *members, const struct book *books,
                    struct mark **ret)
{
    uint32_t shards = store->store.shards;
    struct mark *mark = fl__alloc_zeroed(sizeof *mark + shards * sizeof *mark->books);
    if (!mark)
        return FL_NO_MEMORY;
    for (uint32_t i = 0; i < shards; i++)
        mark->books[i].rows = (struct fl__rows){0};
    int r = copy_members(&mark->members, members);
    for (uint32_t i = 0; i < shards && r == 0; i++)
        r = copy_book(&mark->books[i], &books[i]);
    if (r < 0)
        drop_mark(mark, shards);
    else
        *ret = mark;
    return r;
}

int fl_memory_store_mark(fl_store *store)
{
    struct store *memory = (struct store *)store;
    struct mark *mark;
    if (store->ops != &ops)
        return FL_INVALID_ARGUMENT;
    int r = copy_all(memory, &memory->members, memory->books, &mark);
    if (r < 0)
        return r;
    drop_mark(memory->mark, store->shards);
    memory->mark = mark;
    return 0;
}

int fl_memory_store_go_back(fl_store *store)
{
    struct store *memory = (struct store *)store;
    struct mark *copy;
    if (store->ops != &ops || !memory->mark)
        return FL_INVALID_ARGUMENT;
    int r = copy_all(memory, &memory->mark->members, memory->mark->books, &copy);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < store->shards; i++)
        move_book(&memory->books[i], &copy->books[i]);
    fl__members_clear(&memory->members);
    memory->members = copy->members;
    fl__release(copy);
    atomic_fetch_add(&memory->went_back, 1);
    return 0;
}
