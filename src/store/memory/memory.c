/* SPDX-License-Identifier: MIT */
/* The store in memory: attaching, and taking one request after the other. */

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "store/memory/memory.h"

/* --- Requests ----------------------------------------------------------------------------------------------------- */

/* Whether the attachment may send this request. If not, answers it and returns false. */
static bool may_ask(const struct attachment *a, fl_store_request *request)
{
    const struct book *book = a->book;
    if (fl__memory_store_is_forgotten(a, request)) {
        fl__memory_store_answer_forgotten(a, request);
        return false;
    }
    if (fl__store_is_write(request) && (request->version != book->version || request->version == 0)) {
        fl__store_answer(request, FL_SHARD_LOST, "shard %u is owned by %.180s", a->shard.shard,
                         book->owner[0] ? book->owner : "no server");
        return false;
    }
    return true;
}

static void carry_out_locked(struct attachment *a, fl_store_request *request)
{
    struct book *book = a->book;
    if (!may_ask(a, request))
        return;
    switch (request->op) {
    case FL_STORE_CLAIM:
        return fl__memory_store_claim(a, request);
    case FL_STORE_RENEW:
        book->claim_until_us = fl__memory_store_claim_end(fl__memory_store_now(a), request->renew.claim_us);
        return;
    case FL_STORE_RELEASE:
        book->owner[0] = 0;
        return;
    case FL_STORE_WRITE:
        return fl__memory_store_write_changes(book, request);
    case FL_STORE_FIND:
        return fl__memory_store_find(a, request);
    case FL_STORE_LIST:
        return fl__memory_store_list(a, request);
    case FL_STORE_LOAD:
        return fl__memory_store_load_begin(a, request);
    case FL_STORE_REFILE:
        return fl__memory_store_refile(book, request);
    case FL_STORE_FINISH:
        return fl__memory_store_finish(book, request);
    case FL_STORE_RECORD:
        return fl__memory_store_record(book, request);
    case FL_STORE_DEAD_LIST:
        return fl__memory_store_list_dead(a, request);
    case FL_STORE_HISTORY:
        if (!fl__past_list(&book->history, &a->arena, request))
            fl__store_answer(request, FL_NO_MEMORY, NULL);
        return;
    case FL_STORE_COUNT:
        return fl__memory_store_count(a, request);
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
        return fl__memory_store_meet(a, request);
    pthread_mutex_lock(&a->book->lock);
    carry_out_locked(a, request);
    pthread_mutex_unlock(&a->book->lock);
}

/* An answer that hides what happened: the request must not show it. */
static void carry_out_hidden(struct attachment *a, const fl_store_request *request)
{
    fl_store_request copy = *request;
    if (fl__store_is_write(request) || request->op == FL_STORE_CLAIM || request->op == FL_STORE_MEET)
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

/* One step: begins a request, or continues the current one up to its answer. */
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
    if (request->op == FL_STORE_LOAD && request->result == 0 && fl__memory_store_is_forgotten(a, request))
        fl__memory_store_answer_forgotten(a, request);
    if (request->op == FL_STORE_LOAD && request->result == 0 && !fl__memory_store_load_go_on(a, request)) {
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

/* This store always knows, but says so for every second name only, so that tests of its callers cover both cases. */
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

void fl__book_clear(struct book *book)
{
    fl__rows_clear(&book->rows);
    fl__past_clear(&book->history);
    fl__release((void *)book->progress.keep);
    book->progress.keep = NULL;
}

void fl__memory_store_drop_mark(struct mark *mark, uint32_t shards)
{
    for (uint32_t i = 0; mark && i < shards; i++)
        fl__book_clear(&mark->books[i]);
    if (mark)
        fl__members_clear(&mark->members);
    fl__release(mark);
}

static void close_store(fl_store *base)
{
    struct store *store = (struct store *)base;
    assert(atomic_load(&store->attached) == 0);
    fl__memory_store_drop_mark(store->mark, base->shards);
    for (uint32_t i = 0; i < base->shards; i++) {
        fl__book_clear(&store->books[i]);
        pthread_mutex_destroy(&store->books[i].lock);
    }
    fl__members_clear(&store->members);
    pthread_mutex_destroy(&store->members_lock);
    fl__release(store);
}

const struct fl_store_ops fl__memory_store_ops = {close_store, attach, detach, submit, absent, .shared = true};

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
    store->store = (fl_store){&fl__memory_store_ops, shards};
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
    if (store->ops != &fl__memory_store_ops)
        return FL_INVALID_ARGUMENT;
    ((struct store *)store)->fault = fn;
    ((struct store *)store)->fault_arg = arg;
    return 0;
}
