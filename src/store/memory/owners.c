/* SPDX-License-Identifier: MIT */
/* Claims of shards, and servers that meet. */

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "store/memory/memory.h"

/* --- Owners ------------------------------------------------------------------------------------------------------- */

int64_t fl__memory_store_now(const struct attachment *a)
{
    fl_wall_clock *clock = ((struct store *)a->shard.store)->clock;
    return clock->now_us(clock);
}

int64_t fl__memory_store_claim_end(int64_t now, uint64_t claim_us)
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

static bool is_counted(const fl_store_request *request, fl_bytes ns)
{
    return request->count.ns.size > 0 ? same_namespace(ns, request->count.ns)
                                      : *(const unsigned char *)ns.data >= request->count.first_byte;
}

void fl__memory_store_count(struct attachment *a, fl_store_request *request)
{
    const struct fl__rows *rows = &a->book->rows;
    fl_window_count *windows = fl__arena_take(&a->arena, list_windows(a->book, NULL) * sizeof *windows);
    size_t count = 0;
    if (!windows) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    for (uint64_t window = 0; fl__rows_next_window(rows, window, &window); window++) {
        windows[count] = (fl_window_count){window, 0};
        for (const struct fl__memory_row *row = fl__rows_next(rows, window, 0); row;
             row = fl__rows_next(rows, window, row->filed.seq + 1))
            windows[count].rows += is_counted(request, fl__row_view(row, row->bytes).ns);
        count += windows[count].rows > 0;
    }
    request->count.windows = windows;
    request->count.count = count;
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

void fl__memory_store_claim(struct attachment *a, fl_store_request *request)
{
    struct book *book = a->book;
    bool held = book->owner[0] && strcmp(book->owner, request->claim.owner) != 0;
    if (held && !request->claim.force && fl__memory_store_now(a) < book->claim_until_us) {
        fl__store_answer(request, FL_SHARD_HELD, "shard %u is held by %.180s", a->shard.shard, book->owner);
        return;
    }
    if (!tell_claim(a, request)) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    memcpy(book->owner, request->claim.owner, strlen(request->claim.owner) + 1);
    book->claim_until_us = fl__memory_store_claim_end(fl__memory_store_now(a), request->claim.claim_us);
    request->claim.version = ++book->version;
    a->claimed = true;
    a->claimed_after = atomic_load(&((struct store *)a->shard.store)->went_back);
}

bool fl__memory_store_is_forgotten(const struct attachment *a, const fl_store_request *request)
{
    return a->claimed && request->op != FL_STORE_CLAIM && request->op != FL_STORE_MEET &&
           a->claimed_after != atomic_load(&((struct store *)a->shard.store)->went_back);
}

void fl__memory_store_answer_forgotten(const struct attachment *a, fl_store_request *request)
{
    fl__store_answer(request, FL_SHARD_LOST, "shard %u has gone back to an earlier state", a->shard.shard);
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

/* The shard owners, in the arena; NULL: no memory. */
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
    if (!told || !copies ||
        fl__members_note(members, request, now, fl__memory_store_claim_end(now, request->meet.claim_us)) < 0) {
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

void fl__memory_store_meet(struct attachment *a, fl_store_request *request)
{
    struct store *store = (struct store *)a->shard.store;
    int64_t now = fl__memory_store_now(a);
    request->meet.holders = tell_holders(a, now);
    if (!request->meet.holders) {
        fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    }
    pthread_mutex_lock(&store->members_lock);
    meet_locked(a, request, now);
    pthread_mutex_unlock(&store->members_lock);
}
