/* SPDX-License-Identifier: MIT */
/* Decides an operation after its name is locked and its row is read: which row is filed, and which is removed. */

#include "engine/internal.h"

/* --- Filing ------------------------------------------------------------------------------------------------------- */

/* The time under which a timer is filed: not before now, because rows are never filed behind the front. */
int64_t fl__ops_filing_time(fl_engine *e, int64_t due_us)
{
    int64_t now_us = fl__engine_filing_now(e);
    return due_us > now_us ? due_us : now_us;
}

static bool new_key(fl_engine *e, int64_t at_us, bool retried, fl_key *ret)
{
    uint64_t seq = fl__seq_take(e, retried);
    *ret = (fl_key){at_us, seq};
    return seq != 0;
}

/* A row to file, and the row that it replaces. */
struct filing {
    const fl_durable *timer;
    uint64_t name_hash; /* 0: not known, or the timer has no name */
    int64_t at_us;
    const fl_key *id; /* NULL: a new timer */
    fl_key remove;
    uint64_t remove_id, unbury;
};

static int file_row(fl_engine *e, const struct filing *filing, struct write_entry **ret)
{
    const fl_durable *timer = filing->timer;
    fl_key key;
    fl_store_change *change;
    unsigned char *body;
    uint32_t space;
    if (fl__space(e, timer->ns, &space) < 0)
        return FL_NO_MEMORY;
    if (!new_key(e, filing->at_us, timer->attempt > 0, &key))
        return FL_STORE_UNAVAILABLE;
    struct write_entry *entry = fl__write_add(e, fl__body_size(timer), &change, &body);
    if (!entry)
        return FL_NO_MEMORY;
    size_t size = fl__body_encode(timer, filing->at_us, body);
    fl__assert_debug(size <= fl__body_size(timer));
    fl__assert(key.seq != 0 && (key.seq & RETRIED) == (timer->attempt > 0));
    entry->row = (fl_row){.key = key,
                          .id = filing->id ? *filing->id : key,
                          .window = fl__window_for(e, filing->at_us),
                          .ns = timer->ns,
                          .name = timer->name,
                          .body = {body, size},
                          .name_hash = filing->name_hash};
    entry->space = space;
    *change = (fl_store_change){
        .put = &entry->row, .remove = filing->remove, .remove_id = filing->remove_id, .unbury = filing->unbury};
    *ret = entry;
    return 0;
}

static void begin_anew(fl_engine *e, fl_durable *timer)
{
    timer->created_us = fl__engine_now(e) / 1000 * 1000; /* bodies keep milliseconds */
    timer->attempt = 0;
    timer->replaced = 0;
    timer->first_created_us = 0;
}

static int64_t first_created(const fl_durable *timer)
{
    return timer->replaced > 0 ? timer->first_created_us : timer->created_us;
}

/* The latest time at which a timer may be due that was first created then. */
static int64_t latest_due(int64_t first_created_us, uint64_t max_wait_us)
{
    bool limited = max_wait_us > 0 && max_wait_us < (uint64_t)FL_STORE_TIME_END;
    return limited ? first_created_us + (int64_t)max_wait_us : INT64_MAX;
}

int64_t fl__latest_due_us(const fl_durable *timer)
{
    return latest_due(first_created(timer), timer->max_wait_us);
}

static void limit_wait(fl_durable *timer, int64_t first_created_us)
{
    int64_t latest_us = latest_due(first_created_us, timer->max_wait_us);
    if (timer->due_us > latest_us)
        timer->due_us = latest_us;
}

/* Files a timer without a name. */
int fl__ops_file_new(fl_engine *e, fl_op *op, struct write_entry **ret)
{
    begin_anew(e, &op->timer);
    limit_wait(&op->timer, op->timer.created_us);
    struct filing filing = {.timer = &op->timer, .at_us = fl__ops_filing_time(e, op->timer.due_us)};
    int r = file_row(e, &filing, ret);
    if (r < 0)
        return r;
    op->timer.id = (*ret)->row.key;
    op->timer.revision = op->timer.id.seq;
    return 0;
}

int fl__ops_create_nameless(fl_engine *e, fl_batch *batch, fl_op *op)
{
    struct write_entry *entry;
    int r = fl__ops_file_new(e, op, &entry);
    if (r < 0)
        return r;
    entry->batch = batch;
    entry->op = op;
    return 0;
}

/* --- Deciding ----------------------------------------------------------------------------------------------------- */

static bool same_content(const fl_durable *a, const fl_durable *b)
{
    return a->due_us == b->due_us && a->timeout_us == b->timeout_us && same_bytes(a->payload, b->payload) &&
           same_bytes(a->target, b->target) && same_bytes(a->headers, b->headers) &&
           memcmp(&a->retry, &b->retry, sizeof a->retry) == 0 && a->max_wait_us == b->max_wait_us &&
           a->merge_first == b->merge_first && same_bytes(a->local, b->local) && same_bytes(a->zone, b->zone) &&
           same_bytes(a->schedule, b->schedule) && a->occurrence_us == b->occurrence_us;
}

/* Copies to a timer what it inherits from the timer that it replaces, which has not begun to fire. */
static int follow(struct work *work, const fl_durable *existing)
{
    fl_durable *timer = &work->op->timer;
    fl__assert(work->op && !work->under_way);
    timer->replaced = existing->replaced < UINT32_MAX ? existing->replaced + 1 : UINT32_MAX;
    timer->first_created_us = first_created(existing);
    if (!timer->merge_first)
        return 0;
    timer->payload = existing->payload;
    return fl__ops_own_bytes(work->batch, &timer->payload) ? 0 : FL_NO_MEMORY;
}

/* Whether the row has changed since the client read it, if the operation checks this. */
static bool has_changed(const fl_op *op, const fl_row *row)
{
    return op->flags & FL_OP_ONLY_REVISION && op->timer.revision != row->key.seq;
}

/* Files the timer of a work in place of `row` (NULL: it replaces none). `id` NULL: the timer is new. */
static int write_row(fl_engine *e, struct work *work, int64_t at_us, const fl_row *row, const fl_key *id)
{
    struct write_entry *entry;
    struct filing filing = {.timer = &work->op->timer, .name_hash = work->name_hash, .at_us = at_us, .id = id};
    fl__assert(work->op && !work->in_doubt);
    if (row) {
        filing.remove = row->key;
        filing.remove_id = row->id.seq != row->key.seq ? row->id.seq : 0;
    }
    if (id && work->op->kind == FL_OP_DEAD_REDRIVE)
        filing.unbury = id->seq;
    int r = file_row(e, &filing, &entry);
    if (r < 0)
        return r;
    entry->work = work;
    work->space = entry->space;
    work->old_key = filing.remove;
    work->new_key = entry->row.key;
    work->id = entry->row.id;
    work->op->timer.revision = work->new_key.seq;
    return 0;
}

/* A client is told that this row is there, so it must fire. The engine has it, unless the store said of its creation that
 * nothing had happened, and was wrong. It is loaded in its turn: others of its time may be ahead of it in the wheel. */
static void make_sure(fl_engine *e, const fl_row *row)
{
    fl__windows_add(e, row->window);
    if (!behind_front(e, row->key) && key_before(row->key, e->until) && !fl__flight_find(e, row->key.seq) &&
        !fl__memory_find(e, row->key))
        fl__memory_evict(e, row->key);
}

/* A timer of that name exists. Returns 0 if it is to be replaced; else as decide(). */
static int decide_replace(fl_engine *e, struct work *work, const fl_row *row)
{
    fl_op *op = work->op;
    fl_durable existing, wanted = op->timer;
    fl__assert(work->row_lock.held && work->row_lock.key == lock_of_seq(row->key.seq));
    fl__row_timer(row, &existing);
    limit_wait(&wanted, first_created(&existing));
    make_sure(e, row);
    if (op->flags & FL_OP_ONLY_NEW)
        return FL_EXISTS;
    if (has_changed(op, row))
        return FL_CHANGED;
    if (!work->group && same_content(&existing, &wanted)) {
        op->outcome = FL_SAME;
        return fl__ops_give_timer(work, &existing) < 0 ? FL_NO_MEMORY : 1;
    }
    if ((op->flags & FL_OP_NO_REPLACE) || (op->flags & FL_OP_ONLY_THIS && op->timer.id.seq != row->id.seq))
        return FL_EXISTS;
    op->outcome = FL_REPLACED;
    work->under_way = fl__ops_hold(e, row->key) < 0; /* its attempt is left to end */
    return work->under_way ? 0 : follow(work, &existing);
}

/* `settled`: a row of that name that is settled; it is removed. */
static int decide_create(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    fl_op *op = work->op;
    op->outcome = FL_CREATED;
    if (!row && op->flags & (FL_OP_ONLY_REPLACE | FL_OP_ONLY_THIS | FL_OP_ONLY_REVISION))
        return FL_TIMER_NOT_FOUND;
    begin_anew(e, &op->timer);
    int r = row ? decide_replace(e, work, row) : 0;
    if (r != 0)
        return r;
    work->adds = op->outcome == FL_CREATED;
    limit_wait(&op->timer, first_created(&op->timer));
    r = write_row(e, work, fl__ops_filing_time(e, op->timer.due_us), row ? row : settled, NULL);
    if (r == 0)
        op->timer.id = work->new_key;
    return r;
}

void fl__ops_apply_update(const fl_op *op, fl_durable *timer)
{
    const fl_durable *want = &op->timer;
    if (op->flags & FL_OP_SET_DUE) {
        timer->due_us = want->due_us;
        timer->local = want->local;
        timer->zone = want->zone;
        timer->attempt = 0;
    }
    if (op->flags & FL_OP_SET_TARGET)
        timer->target = want->target;
    if (op->flags & FL_OP_SET_HEADERS)
        timer->headers = want->headers;
    if (op->flags & FL_OP_SET_PAYLOAD)
        timer->payload = want->payload;
    if (op->flags & FL_OP_SET_TIMEOUT)
        timer->timeout_us = want->timeout_us;
    if (op->flags & FL_OP_SET_RETRY)
        timer->retry = want->retry;
    if (op->flags & FL_OP_SET_MAX_WAIT)
        timer->max_wait_us = want->max_wait_us;
    if (op->flags & FL_OP_SET_MERGE)
        timer->merge_first = want->merge_first;
    if (op->flags & FL_OP_SET_DUE)
        limit_wait(timer, first_created(timer));
}

static int decide_update(fl_engine *e, struct work *work, const fl_row *row)
{
    if (!row)
        return FL_TIMER_NOT_FOUND;
    fl__assert(work->row_lock.held && work->row_lock.key == lock_of_seq(row->key.seq));
    int r = has_changed(work->op, row) ? FL_CHANGED : fl__ops_hold(e, row->key);
    if (r < 0)
        return r;
    fl_durable timer;
    fl__row_timer(row, &timer);
    int64_t at_us = fl__is_lane(row->window) ? timer.due_us : row->key.at_us;
    fl__ops_apply_update(work->op, &timer);
    at_us = fl__ops_filing_time(e, work->op->flags & FL_OP_SET_DUE ? timer.due_us : at_us);
    r = fl__ops_give_timer(work, &timer);
    return r < 0 ? r : write_row(e, work, at_us, row, &row->id);
}

static int decide_cancel(fl_engine *e, struct work *work, const fl_row *row)
{
    if (!row)
        return FL_TIMER_NOT_FOUND;
    fl__assert(work->row_lock.held && work->row_lock.key == lock_of_seq(row->key.seq));
    int r = has_changed(work->op, row) ? FL_CHANGED : fl__ops_hold(e, row->key);
    if (r < 0)
        return r;
    fl_durable timer;
    fl_store_change *change;
    fl__row_timer(row, &timer);
    r = fl__ops_give_timer(work, &timer);
    if (r == 0)
        r = fl__space(e, row->ns, &work->space);
    if (r < 0)
        return r;
    struct write_entry *entry = fl__write_add(e, 0, &change, NULL);
    if (!entry)
        return FL_NO_MEMORY;
    work->old_key = row->key;
    work->id = row->id;
    work->adds = -1;
    change->remove = row->key;
    change->remove_id = row->id.seq != row->key.seq ? row->id.seq : 0;
    entry->work = work;
    return 0;
}

/* Another timer may have got the name meanwhile. */
static int decide_redrive(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    fl_op *op = work->op;
    fl__assert(work->dead_lock.held);
    if (row)
        return FL_EXISTS;
    fl_key id = op->timer.id;
    work->adds = 1;
    op->timer.attempt = 0;
    op->timer.local = op->timer.zone = (fl_bytes){0}; /* it is no longer due then */
    op->timer.due_us = work->due_us > 0 ? work->due_us : fl__engine_filing_now(e);
    return write_row(e, work, fl__ops_filing_time(e, op->timer.due_us), settled, &id);
}

static int decide_get(fl_engine *e, struct work *work, const fl_row *row)
{
    if (!row || fl__flight_done(e, row->key.seq))
        return FL_TIMER_NOT_FOUND;
    fl_durable timer;
    fl__row_timer(row, &timer);
    return fl__ops_give_timer(work, &timer) < 0 ? FL_NO_MEMORY : 1;
}

/* Returns 0 if a change is being written, 1 if the operation has succeeded without one, or a negative code. */
static int decide(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    switch (work->op->kind) {
    case FL_OP_CREATE:
        return decide_create(e, work, row, settled);
    case FL_OP_UPDATE:
        return decide_update(e, work, row);
    case FL_OP_CANCEL:
        return decide_cancel(e, work, row);
    case FL_OP_DEAD_REDRIVE:
        return decide_redrive(e, work, row, settled);
    default:
        return decide_get(e, work, row);
    }
}

/* Decides an operation with a group. The followers are filed first, so that their IDs are known. The row that was read
 * belongs to the store; the group only adds to it. */
static int decide_group(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    fl__assert(work->group && work->group->batch);
    if (!fl__write_open_group(e))
        return FL_NO_MEMORY;
    int r = fl__group_file(e, work->group);
    if (r == 0)
        r = decide(e, work, row, settled);
    fl__write_close_group(e, r == 0);
    return r;
}

/* Another operation held the row and has unlocked it. The row may have changed. */
static void row_granted(fl_engine *e, struct lock *lock)
{
    struct work *work = (struct work *)((char *)lock - offsetof(struct work, row_lock));
    fl__assert(lock->held);
    fl__queue_append(&e->to_find, work);
    fl__engine_flush_soon(e);
}

void fl__ops_hold_and_decide(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    uint64_t key = row ? lock_of_seq(row->key.seq) : 0;
    bool writes = work->op->kind != FL_OP_GET;
    fl__assert(!row || !settled);
    fl__assert(work->kind == WORK_CLIENT);
    if (work->row_lock.held && work->row_lock.key != key)
        fl__ops_release_row(e, work);
    if (row && writes)
        work->held = row->key;
    if (row && writes && !work->row_lock.held && !fl__lock(e, &work->row_lock, key, row_granted))
        return; /* read again when the lock is granted */
    int r = work->group ? decide_group(e, work, row, settled) : decide(e, work, row, settled);
    if (r != 0)
        fl__ops_finish(e, work, r > 0 ? 0 : r);
}

/* Whether the row is in the namespace of the operation, if the operation names one. */
bool fl__ops_is_in(const fl_op *op, fl_bytes ns)
{
    return op->timer.ns.size == 0 || same_bytes(op->timer.ns, ns);
}

/* Goes on with a work after reading its row. `want` is the answer; NULL: the row is absent. */
void fl__ops_found(fl_engine *e, struct work *work, const fl_store_want *want)
{
    fl__assert(work->op);
    if (e->state != ENGINE_RUNNING || !want) {
        fl__ops_finish(e, work, e->state == ENGINE_LOST ? FL_SHARD_LOST : FL_STORE_UNAVAILABLE);
        return;
    }
    const fl_row *row = want->found && fl__ops_is_in(work->op, want->row.ns) ? &want->row : NULL;
    if (want->found)
        fl__doubt_found(e, want->row.key.seq);
    else if (e->unsure_count > 0)
        fl__doubt_not_found(e, want);
    if (row && fl__settled(e, row->key))
        fl__ops_hold_and_decide(e, work, NULL, row);
    else
        fl__ops_hold_and_decide(e, work, row, NULL);
}
