/* SPDX-License-Identifier: MIT */
/* New operations: each is checked, locks its name, and reads its row. */

#include "engine/internal.h"

#define KNOWN_FLAGS                                                                                              \
    ((unsigned)(FL_OP_ONLY_NEW | FL_OP_NO_REPLACE | FL_OP_SET_DUE | FL_OP_SET_TARGET | FL_OP_SET_HEADERS |       \
                FL_OP_SET_PAYLOAD | FL_OP_SET_TIMEOUT | FL_OP_SET_RETRY | FL_OP_ONLY_REPLACE | FL_OP_ONLY_THIS | \
                FL_OP_ONLY_REVISION | FL_OP_SET_MAX_WAIT | FL_OP_SET_MERGE))

int fl__ops_check_content(const fl_engine *e, const fl_durable *timer)
{
    if (timer->due_us >= FL_STORE_TIME_END)
        return FL_INVALID_DEADLINE;
    if (timer->payload.size > e->config.max_payload || timer->target.size > TARGET_MOST ||
        timer->headers.size > HEADERS_MOST || timer->schedule.size > FL_STORE_NAME_MAX ||
        timer->local.size > LOCAL_MOST || timer->zone.size > FL_STORE_NAME_MAX)
        return FL_TOO_LARGE;
    return fl__retry_check(&timer->retry);
}

static int check_op(const fl_engine *e, const fl_op *op)
{
    const fl_durable *timer = &op->timer;
    if ((unsigned)op->kind > FL_OP_DEAD_DELETE || (op->flags & ~KNOWN_FLAGS))
        return FL_INVALID_ARGUMENT;
    if (timer->ns.size > FL_STORE_NAME_MAX || timer->name.size > FL_STORE_NAME_MAX)
        return FL_TOO_LARGE;
    if (op->kind == FL_OP_CREATE && timer->ns.size == 0)
        return FL_INVALID_ARGUMENT;
    if (op->kind == FL_OP_CREATE && timer->name.size == 0 &&
        (op->flags & (FL_OP_ONLY_REPLACE | FL_OP_ONLY_THIS | FL_OP_ONLY_REVISION)))
        return FL_INVALID_ARGUMENT;
    bool by_name = timer->name.size > 0 && op->kind <= FL_OP_CANCEL;
    if (by_name && timer->ns.size == 0)
        return FL_INVALID_ARGUMENT;
    if (op->kind != FL_OP_CREATE && !by_name &&
        (timer->id.seq == 0 || timer->id.seq > SEQ_MAX || timer->id.at_us < 0 || timer->id.at_us >= FL_STORE_TIME_END))
        return FL_INVALID_TIMER_ID;
    if (op->kind == FL_OP_DEAD_REDRIVE && timer->due_us >= FL_STORE_TIME_END)
        return FL_INVALID_DEADLINE;
    return op->kind == FL_OP_CREATE || op->kind == FL_OP_UPDATE ? fl__ops_check_content(e, timer) : 0;
}

static void name_granted(fl_engine *e, struct lock *lock)
{
    struct work *work = (struct work *)((char *)lock - offsetof(struct work, name_lock));
    fl__assert(lock->held);
    fl__queue_append(&e->to_find, work);
    fl__engine_flush_soon(e);
}

/* Whether the row is surely absent, so that the store need not be asked. Rows in doubt may be in the store. */
static bool is_absent(fl_engine *e, const struct work *work)
{
    fl_store_want want;
    if (work->op->timer.name.size == 0 || e->unsure_count > 0)
        return false;
    fl__find_want(work, &want);
    return fl_store_absent(e->shard, &want);
}

/* The name of a dead letter is read from the store, so `op->name_hash` is not its hash. */
static uint64_t name_hash_of(const fl_op *op)
{
    bool known = op->name_hash && op->kind <= FL_OP_CANCEL;
    fl__assert_debug(!known || op->name_hash == fl_store_hash(op->timer.ns, op->timer.name));
    return known ? op->name_hash : fl_store_hash(op->timer.ns, op->timer.name);
}

/* An operation that had to wait for its name is not decided at once: many may wait, and each would grant the name to the next
 * one recursively. */
void fl__ops_look_for(fl_engine *e, struct work *work)
{
    fl__assert(work->op && !work->name_lock.held && !work->row_lock.held);
    if (work->op->timer.name.size > 0) {
        work->name_hash = name_hash_of(work->op);
        if (!fl__lock(e, &work->name_lock, lock_of_name(work->name_hash), name_granted))
            return;
    }
    if (is_absent(e, work)) {
        fl__ops_hold_and_decide(e, work, NULL, NULL);
        return;
    }
    fl__queue_append(&e->to_find, work);
    fl__engine_flush_soon(e);
}

static void begin_work(fl_engine *e, fl_batch *batch, fl_op *op)
{
    struct work *work = fl__work_new(e, WORK_CLIENT);
    if (!work) {
        fl__ops_answer(e, batch, op, FL_NO_MEMORY);
        return;
    }
    work->batch = batch;
    work->op = op;
    fl__ops_look_for(e, work);
}

static bool is_nameless(const fl_op *op)
{
    return op->kind == FL_OP_CREATE && op->timer.name.size == 0;
}

static void begin_op(fl_engine *e, fl_batch *batch, fl_op *op)
{
    int r = check_op(e, op);
    if (r == 0 && op->kind >= FL_OP_DEAD_GET)
        fl__ops_begin_dead(e, batch, op);
    else if (r == 0 && !is_nameless(op))
        begin_work(e, batch, op);
    else if (r == 0)
        r = fl__ops_create_nameless(e, batch, op);
    if (r < 0)
        fl__ops_answer(e, batch, op, r);
}

/* Checks the operations after the first of an atomic batch or of a settlement. */
int fl__ops_check_group(const fl_engine *e, const fl_batch *batch)
{
    size_t bytes = 0;
    if (batch->count > FL_ATOMIC_MOST)
        return FL_TOO_LARGE;
    if (batch->ops[0].flags & ~KNOWN_FLAGS)
        return FL_INVALID_ARGUMENT;
    for (size_t i = 0; i < batch->count; i++) {
        const fl_durable *timer = &batch->ops[i].timer;
        int r = i == 0 ? 0 : is_nameless(&batch->ops[i]) ? check_op(e, &batch->ops[i]) : FL_INVALID_ARGUMENT;
        if (r < 0)
            return r;
        bytes += timer->payload.size + timer->target.size + timer->headers.size; /* sizes are checked: no overflow */
    }
    return bytes > FL_ATOMIC_BYTES_MOST ? FL_TOO_LARGE : 0;
}

/* For a batch of creations without names only. */
static int create_all(fl_engine *e, fl_batch *batch)
{
    int r = fl__write_open_group(e) ? 0 : FL_NO_MEMORY;
    if (r < 0)
        return r;
    for (size_t i = 0; i < batch->count && r == 0; i++)
        r = fl__ops_create_nameless(e, batch, &batch->ops[i]);
    fl__write_close_group(e, r == 0);
    return r;
}

static int begin_head(fl_engine *e, fl_batch *batch)
{
    struct work *work = fl__work_new(e, WORK_CLIENT);
    struct atomic_group *group = work ? fl__group_new(batch) : NULL;
    fl__assert(batch->count > 0);
    if (!group) {
        if (work)
            fl__work_end(e, work);
        return FL_NO_MEMORY;
    }
    work->group = group;
    work->batch = batch;
    work->op = &batch->ops[0];
    fl__ops_look_for(e, work);
    return 0;
}

static void begin_atomic(fl_engine *e, fl_batch *batch)
{
    const fl_op *head = batch->ops;
    int r = e->state == ENGINE_RUNNING ? check_op(e, head) : fl__engine_refusal(e);
    if (r == 0 && (head->kind > FL_OP_CANCEL || head->kind == FL_OP_GET))
        r = FL_INVALID_ARGUMENT;
    if (r == 0)
        r = fl__ops_check_group(e, batch);
    batch->left = batch->count;
    if (r == 0)
        r = is_nameless(head) ? create_all(e, batch) : begin_head(e, batch);
    if (r < 0)
        fl__group_refuse(e, batch, r);
}

static void begin_batch(fl_engine *e, fl_batch *batch)
{
    if (batch->atomic && batch->count > 0) {
        begin_atomic(e, batch);
        return;
    }
    batch->left = batch->count + 1; /* + 1: it must not end before all operations have begun */
    for (size_t i = 0; i < batch->count; i++) {
        if (e->state == ENGINE_RUNNING)
            begin_op(e, batch, &batch->ops[i]);
        else
            fl__ops_answer(e, batch, &batch->ops[i], fl__engine_refusal(e));
    }
    fl_op nobody;
    fl__ops_answer(e, batch, &nobody, 0);
}

void fl_engine_submit(fl_engine *engine, fl_batch *batch)
{
    batch->bytes = NULL;
    batch->next = NULL;
    if (engine->state != ENGINE_CLAIMING && engine->state != ENGINE_RESTARTING) {
        begin_batch(engine, batch);
        return;
    }
    if (engine->early_last)
        engine->early_last->next = batch;
    else
        engine->early = batch;
    engine->early_last = batch;
}

/* Begins the batches that were submitted before the shard was claimed, or refuses them if the claim has failed. */
void fl__ops_begin_early(fl_engine *e)
{
    fl_batch *batch = e->early, *next;
    e->early = e->early_last = NULL;
    for (; batch; batch = next) {
        next = batch->next;
        begin_batch(e, batch);
    }
}

/* Answers all operations that wait and have not been sent. */
void fl__ops_refuse_all(fl_engine *e, int result)
{
    struct work *work;
    fl__assert(e->state != ENGINE_RUNNING);
    for (struct write *write = e->queued; write; write = write->next)
        for (size_t i = 0; i < write->count; i++) {
            struct write_entry *entry = &write->entries[i];
            if (entry->work) /* its operation has what was found: it must not be taken to another owner as it is */
                fl__ops_finish(e, entry->work, result == FL_STOPPED ? FL_STORE_UNAVAILABLE : result);
            else if (entry->op)
                fl__ops_answer(e, entry->batch, entry->op, result);
        }
    fl__writes_free(e);
    while ((work = fl__queue_pop(&e->to_find)) || (work = fl__queue_pop(&e->doubts)) ||
           (work = fl__queue_pop(&e->to_repeat)))
        fl__ops_finish(e, work, result);
    fl__assert(!e->queued && e->to_find.count + e->doubts.count + e->to_repeat.count == 0);
}
