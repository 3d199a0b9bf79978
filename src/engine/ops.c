/* SPDX-License-Identifier: MIT */
/* What the program asks for.
 *
 * A timer without a name is created at once: it needs no look. Everything else goes the same way: hold the name (if it is
 * by name), find the row (unless the store knows at once that there is none), hold the row, decide, write, answer. All that is decided here and nothing in the store; the shard
 * has one owner, and names and rows are held, so that what was found is still so when the change takes effect.
 *
 * While a row is held for a change, its timer does not fire: one that falls due waits for the outcome. So a cancel that
 * succeeds comes before the firing, or it says that the firing has begun.
 */

#include "engine/internal.h"

/* --- Answers ------------------------------------------------------------------------------------------------------ */

void fl__ops_answer(fl_engine *e, fl_batch *batch, fl_op *op, int result)
{
    op->result = result;
    if (--batch->left > 0)
        return;
    batch->next = NULL;
    if (e->answered_last)
        e->answered_last->next = batch;
    else
        e->answered = batch;
    e->answered_last = batch;
    fl__engine_flush_soon(e);
}

static void free_bytes(void *bytes)
{
    struct arena *arena = bytes;
    if (arena) {
        fl__arena_free(arena);
        fl__release(arena);
    }
}

void fl__ops_deliver(fl_engine *e)
{
    while (e->answered) {
        fl_batch *batch = e->answered;
        void *bytes = batch->bytes;
        e->answered = batch->next;
        if (!e->answered)
            e->answered_last = NULL;
        batch->done(batch);
        free_bytes(bytes);
    }
}

void fl__ops_answer_work(fl_engine *e, struct work *work, int result)
{
    if (!work->op)
        return;
    fl_op *op = work->op;
    work->op = NULL;
    fl__ops_answer(e, work->batch, op, result);
    if (work->group)
        fl__group_answer(e, work->group, result);
}

/* Copies what is only borrowed from the store, to last until the batch is done. */
static bool own_bytes(fl_batch *batch, fl_bytes *bytes)
{
    if (bytes->size == 0)
        return true;
    if (!batch->bytes && !(batch->bytes = fl__alloc_zeroed(sizeof(struct arena))))
        return false;
    bytes->data = fl__arena_copy(batch->bytes, bytes->data, bytes->size);
    return bytes->data;
}

static int give_timer(struct work *work, const fl_durable *timer)
{
    fl_durable copy = *timer;
    if (!own_bytes(work->batch, &copy.ns) || !own_bytes(work->batch, &copy.name) ||
        !own_bytes(work->batch, &copy.payload) || !own_bytes(work->batch, &copy.target) ||
        !own_bytes(work->batch, &copy.headers) || !own_bytes(work->batch, &copy.schedule) ||
        !own_bytes(work->batch, &copy.local) || !own_bytes(work->batch, &copy.zone))
        return FL_NO_MEMORY;
    work->op->timer = copy;
    return 0;
}

/* --- Works -------------------------------------------------------------------------------------------------------- */

struct work *fl__work_new(fl_engine *e, enum work_kind kind)
{
    struct work *work = fl__image_alloc(&e->images, sizeof *work);
    if (!work)
        return NULL;
    *work = (struct work){.kind = kind};
    return work;
}

/* If its timer is still in memory, it may fire again: it was told not to by this work, or by a load meanwhile. */
static void release_row(fl_engine *e, struct work *work)
{
    if (work->row_lock.held && work->held.seq && e->state == ENGINE_RUNNING)
        fl__ops_let_go(e, work->held);
    fl__unlock(e, &work->row_lock);
}

/* One that has not been answered until now cannot be: the engine is not running any more. */
void fl__work_end(fl_engine *e, struct work *work)
{
    if (work->op)
        fl__ops_answer_work(e, work, fl__engine_refusal(e));
    fl__release(work->reason);
    fl__doubt_end(e, work);
    fl__release(work->group);
    release_row(e, work);
    fl__unlock(e, &work->name_lock);
    fl__unlock(e, &work->dead_lock);
    fl__image_free(&e->images, work, sizeof *work);
}

static void finish(fl_engine *e, struct work *work, int result)
{
    fl__ops_answer_work(e, work, result);
    fl__work_end(e, work);
}

/* Keeps the timer of a row from firing; returns FL_BUSY if it does already. */
static int hold(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    if (flight) {
        struct flight *f = &e->flights.list[flight];
        if (f->state == FLIGHT_DISPATCHED || (f->state == FLIGHT_SETTLING && !f->moving) ||
            (f->state == FLIGHT_WAITING && !fl__lane_withdraw(e, flight)))
            return FL_BUSY;
        f->item->flags |= ITEM_HELD;
    } else {
        struct item *item = fl__memory_find(e, key);
        if (item)
            item->flags |= ITEM_HELD;
    }
    return 0;
}

/* Lets it fire again. Returns whether it is in memory at all. */
bool fl__ops_let_go(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    struct item *item = flight ? e->flights.list[flight].item : fl__memory_find(e, key);
    if (!item)
        return false;
    item->flags &= (uint8_t)~ITEM_HELD;
    if (flight && e->flights.list[flight].state == FLIGHT_HELD) {
        fl__flight_late(e, flight);
        fl__fire_soon(e);
    }
    return true;
}

/* The row is gone from the store: so is its timer from memory. One that is under way is left to its end. */
static void forget_row(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    if (flight) {
        struct flight *f = &e->flights.list[flight];
        f->superseded = true;
        if (f->state == FLIGHT_HELD)
            fl__flight_end(e, flight);
        return;
    }
    struct item *item = fl__memory_find(e, key);
    if (item)
        fl__memory_remove(e, item);
}

/* A row that is in the store now. What the front has passed meanwhile must be in memory in any case: nobody loads it. */
void fl__ops_take_in(fl_engine *e, const fl_row *row, uint8_t flags)
{
    bool wanted = behind_front(e, row->key);
    if (!wanted && key_before(row->key, e->until))
        wanted = fl__memory_room(e, row->key);
    if (!wanted)
        fl__load_hint(e, row->key.at_us);
    else if (fl__memory_insert(e, row, flags) < 0)
        fl__engine_restart(e, "out of memory for a timer that is due soon");
}

/* --- Creating ----------------------------------------------------------------------------------------------------- */

/* What a timer that was given the past as its time is filed under: now. Nothing is ever filed behind the front. */
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

/* What is to be filed, and what makes way for it. */
struct filing {
    const fl_durable *timer;
    uint64_t name_hash; /* 0: it is not known, or the timer has no name */
    int64_t at_us;
    const fl_key *id; /* NULL: it is new */
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
    timer->created_us = fl__engine_now(e) / 1000 * 1000; /* that much is kept */
    timer->attempt = 0;
    timer->replaced = 0;
    timer->first_created_us = 0;
}

/* Files a timer without a name. */
int fl__ops_file_new(fl_engine *e, fl_op *op, struct write_entry **ret)
{
    begin_anew(e, &op->timer);
    struct filing filing = {.timer = &op->timer, .at_us = fl__ops_filing_time(e, op->timer.due_us)};
    int r = file_row(e, &filing, ret);
    if (r < 0)
        return r;
    op->timer.id = (*ret)->row.key;
    op->timer.revision = op->timer.id.seq;
    return 0;
}

static int create_nameless(fl_engine *e, fl_batch *batch, fl_op *op)
{
    struct write_entry *entry;
    int r = fl__ops_file_new(e, op, &entry);
    if (r < 0)
        return r;
    entry->batch = batch;
    entry->op = op;
    return 0;
}

/* A row that was perhaps filed goes into memory, if it is near, and counts when it is known to be there. */
static void take_in_unsure(fl_engine *e, const struct write_entry *entry)
{
    fl__ops_take_in(e, &entry->row, ITEM_UNSURE);
    fl__doubt_unsure(e, entry->row.key, entry->space);
}

/* The answer to a creation without a name. */
void fl__ops_created(fl_engine *e, const struct write_entry *entry, int result)
{
    if (e->state == ENGINE_RUNNING && result == 0)
        fl__ops_take_in(e, &entry->row, 0);
    else if (e->state == ENGINE_RUNNING && result == FL_OUTCOME_UNKNOWN)
        take_in_unsure(e, entry);
    fl__progress_keep(e, entry->row.key);
    if (result == 0) {
        e->stats.created++;
        fl__count(e, entry->space, 1);
    }
    entry->op->outcome = FL_CREATED;
    fl__ops_answer(e, entry->batch, entry->op, result);
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

/* What a timer has from the one that it replaces, which has not begun to fire. */
static int follow(struct work *work, const fl_durable *existing)
{
    fl_durable *timer = &work->op->timer;
    timer->replaced = existing->replaced < UINT32_MAX ? existing->replaced + 1 : UINT32_MAX;
    timer->first_created_us = existing->replaced > 0 ? existing->first_created_us : existing->created_us;
    if (timer->max_wait_us > 0 && timer->max_wait_us < (uint64_t)FL_STORE_TIME_END &&
        timer->due_us > timer->first_created_us + (int64_t)timer->max_wait_us)
        timer->due_us = timer->first_created_us + (int64_t)timer->max_wait_us;
    if (!timer->merge_first)
        return 0;
    timer->payload = existing->payload;
    return own_bytes(work->batch, &timer->payload) ? 0 : FL_NO_MEMORY;
}

/* Whether the row is no longer as the client has read it, if that is asked. */
static bool has_changed(const fl_op *op, const fl_row *row)
{
    return op->flags & FL_OP_ONLY_REVISION && op->timer.revision != row->key.seq;
}

/* Files what the work makes of a timer, in place of `row` (NULL: of nothing). `id` NULL: it is a new one. */
static int write_row(fl_engine *e, struct work *work, int64_t at_us, const fl_row *row, const fl_key *id)
{
    struct write_entry *entry;
    struct filing filing = {.timer = &work->op->timer, .name_hash = work->name_hash, .at_us = at_us, .id = id};
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

/* `settled`: a row of that name whose timer has fired; it is only in the way. */
/* There is a timer of that name. Returns 0 if it is to be replaced; else as decide(). */
static int decide_replace(fl_engine *e, struct work *work, const fl_row *row)
{
    fl_op *op = work->op;
    fl_durable existing;
    fl__row_timer(row, &existing);
    make_sure(e, row);
    if (op->flags & FL_OP_ONLY_NEW)
        return FL_EXISTS;
    if (has_changed(op, row))
        return FL_CHANGED;
    if (!work->group && same_content(&existing, &op->timer)) {
        op->outcome = FL_SAME;
        return give_timer(work, &existing) < 0 ? FL_NO_MEMORY : 1;
    }
    if ((op->flags & FL_OP_NO_REPLACE) || (op->flags & FL_OP_ONLY_THIS && op->timer.id.seq != row->id.seq))
        return FL_EXISTS;
    op->outcome = FL_REPLACED;
    work->under_way = hold(e, row->key) < 0; /* it is left to its end */
    return work->under_way ? 0 : follow(work, &existing);
}

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
}

static int decide_update(fl_engine *e, struct work *work, const fl_row *row)
{
    if (!row)
        return FL_TIMER_NOT_FOUND;
    int r = has_changed(work->op, row) ? FL_CHANGED : hold(e, row->key);
    if (r < 0)
        return r;
    fl_durable timer;
    fl__row_timer(row, &timer);
    int64_t at_us = fl__is_lane(row->window) ? timer.due_us : row->key.at_us;
    at_us = fl__ops_filing_time(e, work->op->flags & FL_OP_SET_DUE ? work->op->timer.due_us : at_us);
    fl__ops_apply_update(work->op, &timer);
    r = give_timer(work, &timer);
    return r < 0 ? r : write_row(e, work, at_us, row, &row->id);
}

static int decide_cancel(fl_engine *e, struct work *work, const fl_row *row)
{
    if (!row)
        return FL_TIMER_NOT_FOUND;
    int r = has_changed(work->op, row) ? FL_CHANGED : hold(e, row->key);
    if (r < 0)
        return r;
    fl_durable timer;
    fl_store_change *change;
    fl__row_timer(row, &timer);
    r = give_timer(work, &timer);
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

/* The name may have been given to another meanwhile. */
static int decide_redrive(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    fl_op *op = work->op;
    if (row)
        return FL_EXISTS;
    fl_key id = op->timer.id;
    work->adds = 1;
    op->timer.attempt = 0;
    op->timer.due_us = fl__engine_filing_now(e);
    if (op->timer.due_us < work->due_us)
        op->timer.due_us = work->due_us;
    return write_row(e, work, op->timer.due_us, settled, &id);
}

static int decide_get(fl_engine *e, struct work *work, const fl_row *row)
{
    if (!row || fl__flight_done(e, row->key.seq))
        return FL_TIMER_NOT_FOUND;
    fl_durable timer;
    fl__row_timer(row, &timer);
    return give_timer(work, &timer) < 0 ? FL_NO_MEMORY : 1;
}

/* Returns 0: it is being written; 1: it is over and has succeeded; negative: it has failed. */
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

/* The same of an operation that has a group: the others are filed first, so that their IDs are known. What is found of the
 * row is the store's; the group only adds to it. */
static int decide_group(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    if (!fl__write_open_group(e))
        return FL_NO_MEMORY;
    int r = fl__group_file(e, work->group);
    if (r == 0)
        r = decide(e, work, row, settled);
    fl__write_close_group(e, r == 0);
    return r;
}

/* The row that was wanted was somebody else's and is free now: it may have changed. */
static void row_granted(fl_engine *e, struct lock *lock)
{
    struct work *work = (struct work *)((char *)lock - offsetof(struct work, row_lock));
    fl__queue_push(&e->to_find, work);
    fl__engine_flush_soon(e);
}

static void hold_and_decide(fl_engine *e, struct work *work, const fl_row *row, const fl_row *settled)
{
    uint64_t key = row ? lock_of_seq(row->key.seq) : 0;
    bool writes = work->op->kind != FL_OP_GET;
    if (work->row_lock.held && work->row_lock.key != key)
        release_row(e, work);
    if (row && writes)
        work->held = row->key;
    if (row && writes && !work->row_lock.held && !fl__lock(e, &work->row_lock, key, row_granted))
        return; /* found again when it is granted */
    int r = work->group ? decide_group(e, work, row, settled) : decide(e, work, row, settled);
    if (r != 0)
        finish(e, work, r > 0 ? 0 : r);
}

/* Whether it is in the namespace asked for, if one is. */
static bool is_in(const fl_op *op, fl_bytes ns)
{
    return op->timer.ns.size == 0 || same_bytes(op->timer.ns, ns);
}

/* The answer to a question; NULL: there is none. */
void fl__ops_found(fl_engine *e, struct work *work, const fl_store_want *want)
{
    if (e->state != ENGINE_RUNNING || !want) {
        finish(e, work, e->state == ENGINE_LOST ? FL_SHARD_LOST : FL_STORE_UNAVAILABLE);
        return;
    }
    const fl_row *row = want->found && is_in(work->op, want->row.ns) ? &want->row : NULL;
    if (want->found)
        fl__doubt_found(e, want->row.key.seq);
    else if (e->unsure_count > 0)
        fl__doubt_not_found(e, want);
    if (row && fl__settled(e, row->key))
        hold_and_decide(e, work, NULL, row);
    else
        hold_and_decide(e, work, row, NULL);
}

/* --- Written ------------------------------------------------------------------------------------------------------ */

/* One that was under way and has been settled since does not count any more: what replaces it does. One that is done and
 * whose row was still there leaves its place to that. */
static void count_pending(fl_engine *e, const struct work *work)
{
    uint32_t flight = work->under_way ? fl__flight_find(e, work->old_key.seq) : 0;
    bool ended = work->under_way && !flight;
    if (work->adds != 0 || ended)
        fl__count(e, work->space, work->adds < 0 ? -1 : 1);
    if (work->op && (ended || (flight && e->flights.list[flight].done)))
        work->op->outcome = FL_CREATED; /* nothing was replaced */
}

static void count_applied(fl_engine *e, const struct work *work)
{
    count_pending(e, work);
    if (!work->op)
        return;
    e->stats.updated += work->op->kind == FL_OP_UPDATE;
    e->stats.cancelled += work->op->kind == FL_OP_CANCEL;
    if (work->op->kind == FL_OP_CREATE) {
        e->stats.replaced += work->op->outcome == FL_REPLACED;
        e->stats.created += work->op->outcome == FL_CREATED;
    }
}

/* The change took effect; `row` is what it has filed, if anything. */
void fl__ops_applied(fl_engine *e, struct work *work, const fl_row *row)
{
    count_applied(e, work);
    if (work->old_key.seq)
        forget_row(e, work->old_key);
    if (row)
        fl__ops_take_in(e, row, 0);
    finish(e, work, 0);
}

void fl__ops_not_applied(fl_engine *e, struct work *work)
{
    finish(e, work, FL_STORE_UNAVAILABLE);
}

/* The engine is not running any more: what was written is for the next owner, or for itself after another claim. */
static void written_too_late(fl_engine *e, struct work *work, int result)
{
    if (result == 0 && work->kind == WORK_CLIENT)
        count_applied(e, work);
    else if (result == 0)
        fl__settle_count(e, work);
    if (result == 0 && work->group)
        fl__group_count(e, work->group);
    fl__progress_keep(e, work->new_key);
    for (size_t i = 0; work->group && i < work->group->count; i++)
        fl__progress_keep(e, work->group->followers[i].key);
    finish(e, work, result);
}

void fl__ops_written(fl_engine *e, struct work *work, const struct write_entry *entry, int result)
{
    if (e->state != ENGINE_RUNNING) {
        written_too_late(e, work, result);
        return;
    }
    if (result == 0 && work->group)
        fl__group_applied(e, work->group, entry);
    if (work->kind != WORK_CLIENT) {
        fl__settle_written(e, work, entry, result);
        return;
    }
    if (result == 0) {
        fl__ops_applied(e, work, work->new_key.seq ? &entry->row : NULL);
    } else if (result == FL_OUTCOME_UNKNOWN && work->op->kind == FL_OP_CREATE && work->op->outcome == FL_CREATED &&
               !work->group) {
        take_in_unsure(e, entry); /* as one without a name */
        finish(e, work, result);
    } else if (result == FL_OUTCOME_UNKNOWN) {
        fl__ops_answer_work(e, work, result);
        fl__doubt(e, work);
    } else {
        finish(e, work, result);
    }
}

/* --- Dead letters ------------------------------------------------------------------------------------------------- */

struct dead_work {
    fl_store_request request;
    fl_engine *engine;
    fl_batch *batch;
    fl_op *op;
    struct work *work; /* NULL: it is only looked at */
};

static int give_dead(struct dead_work *dead, const fl_dead_row *found)
{
    struct work borrowed = {.batch = dead->batch, .op = dead->op};
    fl_durable timer;
    fl__row_timer(&found->row, &timer);
    dead->op->died_us = found->died_us;
    dead->op->reason = found->reason;
    return give_timer(&borrowed, &timer) < 0 || !own_bytes(dead->batch, &dead->op->reason) ? FL_NO_MEMORY : 0;
}

static int delete_dead(fl_engine *e, struct work *work)
{
    fl_store_change *change;
    struct write_entry *entry = fl__write_add(e, 0, &change, NULL);
    if (!entry)
        return FL_NO_MEMORY;
    work->id = work->op->timer.id;
    change->unbury = work->id.seq;
    entry->work = work;
    return 0;
}

static void look_for(fl_engine *e, struct work *work);

/* Returns 1 if the operation is over, 0 if it goes on. */
static int change_dead(fl_engine *e, const struct dead_work *dead)
{
    if (!dead->work)
        return 1;
    if (e->state != ENGINE_RUNNING)
        return fl__engine_refusal(e);
    if (dead->op->kind == FL_OP_DEAD_DELETE)
        return delete_dead(e, dead->work);
    look_for(e, dead->work);
    return 0;
}

static void dead_found(fl_store_request *request)
{
    struct dead_work *dead = (struct dead_work *)request;
    fl_engine *e = dead->engine;
    fl__engine_answered(e, request);
    int r = request->result;
    if (r == 0)
        r = request->dead_list.count == 0 || !is_in(dead->op, request->dead_list.rows->row.ns)
                ? FL_TIMER_NOT_FOUND
                : give_dead(dead, request->dead_list.rows);
    if (r == 0)
        r = change_dead(e, dead);
    if (r != 0 && dead->work)
        finish(e, dead->work, r);
    else if (r != 0)
        fl__ops_answer(e, dead->batch, dead->op, r > 0 ? 0 : r);
    fl__release(dead);
    fl__ops_deliver(e);
}

static int find_dead(fl_engine *e, fl_batch *batch, fl_op *op, struct work *work)
{
    struct dead_work *dead = fl__alloc_zeroed(sizeof *dead);
    if (!dead)
        return FL_NO_MEMORY;
    *dead = (struct dead_work){.engine = e, .batch = batch, .op = op, .work = work};
    dead->request.dead_list.id_seq = op->timer.id.seq;
    dead->request.dead_list.limit = 1;
    fl__engine_submit_request(e, &dead->request, FL_STORE_DEAD_LIST, dead_found);
    return 0;
}

static void dead_granted(fl_engine *e, struct lock *lock)
{
    struct work *work = (struct work *)((char *)lock - offsetof(struct work, dead_lock));
    int r = e->state == ENGINE_LOST      ? FL_SHARD_LOST
            : e->state != ENGINE_RUNNING ? FL_STOPPED
                                         : find_dead(e, work->batch, work->op, work);
    if (r < 0)
        finish(e, work, r);
}

/* Whoever raises or deletes a dead letter holds it, so that nobody raises it twice. */
static void begin_dead(fl_engine *e, fl_batch *batch, fl_op *op)
{
    bool reads = op->kind == FL_OP_DEAD_GET;
    struct work *work = reads ? NULL : fl__work_new(e, WORK_CLIENT);
    if (!work) {
        int r = reads ? find_dead(e, batch, op, NULL) : FL_NO_MEMORY;
        if (r < 0)
            fl__ops_answer(e, batch, op, r);
        return;
    }
    work->batch = batch;
    work->op = op;
    work->due_us = op->flags & FL_OP_SET_DUE ? op->timer.due_us : 0; /* what is found will stand there */
    if (fl__lock(e, &work->dead_lock, lock_of_dead(op->timer.id.seq), dead_granted))
        dead_granted(e, &work->dead_lock);
}

/* --- Submitting --------------------------------------------------------------------------------------------------- */

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
    fl__queue_push(&e->to_find, work);
    fl__engine_flush_soon(e);
}

/* Whether the store need not even be asked. It must be if something may be in it of which nobody knows. */
static bool is_absent(fl_engine *e, const struct work *work)
{
    fl_store_want want;
    if (work->op->timer.name.size == 0 || e->unsure_count > 0)
        return false;
    fl__find_want(work, &want);
    return fl_store_absent(e->shard, &want);
}

/* A dead letter has its name from the store. */
static uint64_t name_hash_of(const fl_op *op)
{
    bool known = op->name_hash && op->kind <= FL_OP_CANCEL;
    assert(!known || op->name_hash == fl_store_hash(op->timer.ns, op->timer.name));
    return known ? op->name_hash : fl_store_hash(op->timer.ns, op->timer.name);
}

/* Those who had to wait for the name are not decided on the way: there may be many of them, each of which lets the next one
 * have it. */
static void look_for(fl_engine *e, struct work *work)
{
    if (work->op->timer.name.size > 0) {
        work->name_hash = name_hash_of(work->op);
        if (!fl__lock(e, &work->name_lock, lock_of_name(work->name_hash), name_granted))
            return;
    }
    if (is_absent(e, work)) {
        hold_and_decide(e, work, NULL, NULL);
        return;
    }
    fl__queue_push(&e->to_find, work);
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
    look_for(e, work);
}

static bool is_nameless(const fl_op *op)
{
    return op->kind == FL_OP_CREATE && op->timer.name.size == 0;
}

static void begin_op(fl_engine *e, fl_batch *batch, fl_op *op)
{
    int r = check_op(e, op);
    if (r == 0 && op->kind >= FL_OP_DEAD_GET)
        begin_dead(e, batch, op);
    else if (r == 0 && !is_nameless(op))
        begin_work(e, batch, op);
    else if (r == 0)
        r = create_nameless(e, batch, op);
    if (r < 0)
        fl__ops_answer(e, batch, op, r);
}

/* What follows the first operation of an atomic batch or of a settlement. */
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
        bytes += timer->payload.size + timer->target.size + timer->headers.size; /* each is checked: no overflow */
    }
    return bytes > FL_ATOMIC_BYTES_MOST ? FL_TOO_LARGE : 0;
}

/* Nothing but creations without names. */
static int create_all(fl_engine *e, fl_batch *batch)
{
    int r = fl__write_open_group(e) ? 0 : FL_NO_MEMORY;
    if (r < 0)
        return r;
    for (size_t i = 0; i < batch->count && r == 0; i++)
        r = create_nameless(e, batch, &batch->ops[i]);
    fl__write_close_group(e, r == 0);
    return r;
}

static int begin_head(fl_engine *e, fl_batch *batch)
{
    struct work *work = fl__work_new(e, WORK_CLIENT);
    struct atomic_group *group = work ? fl__group_new(batch) : NULL;
    if (!group) {
        if (work)
            fl__work_end(e, work);
        return FL_NO_MEMORY;
    }
    work->group = group;
    work->batch = batch;
    work->op = &batch->ops[0];
    look_for(e, work);
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
    batch->left = batch->count + 1; /* one for ourselves: it must not be over before all have begun */
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

/* What was submitted before the shard was ours, or is refused because it will not be. */
void fl__ops_begin_early(fl_engine *e)
{
    fl_batch *batch = e->early, *next;
    e->early = e->early_last = NULL;
    for (; batch; batch = next) {
        next = batch->next;
        begin_batch(e, batch);
    }
}

/* Everything that waits and has not been sent is answered. */
void fl__ops_refuse_all(fl_engine *e, int result)
{
    struct work *work;
    for (struct write *write = e->queued; write; write = write->next)
        for (size_t i = 0; i < write->count; i++) {
            struct write_entry *entry = &write->entries[i];
            if (entry->work)
                finish(e, entry->work, result);
            else if (entry->op)
                fl__ops_answer(e, entry->batch, entry->op, result);
        }
    fl__writes_free(e);
    while ((work = fl__queue_pop(&e->to_find)) || (work = fl__queue_pop(&e->doubts)) ||
           (work = fl__queue_pop(&e->to_repeat)))
        finish(e, work, result);
}
