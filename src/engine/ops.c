/* SPDX-License-Identifier: MIT */
/* What the program asks for.
 *
 * A timer without a name is created at once: it needs no look. Everything else goes the same way: hold the name (if it is by
 * name), find the row (unless the store knows at once that there is none), hold the row, decide, write, answer. submit.c has
 * the way in, decide.c decides. Nothing is decided in the store; the shard has one owner, and names and rows are held, so that
 * what was found is still so when the change takes effect.
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
bool fl__ops_own_bytes(fl_batch *batch, fl_bytes *bytes)
{
    if (bytes->size == 0)
        return true;
    if (!batch->bytes && !(batch->bytes = fl__alloc_zeroed(sizeof(struct arena))))
        return false;
    bytes->data = fl__arena_copy(batch->bytes, bytes->data, bytes->size);
    return bytes->data;
}

int fl__ops_give_timer(struct work *work, const fl_durable *timer)
{
    fl_durable copy = *timer;
    if (!fl__ops_own_bytes(work->batch, &copy.ns) || !fl__ops_own_bytes(work->batch, &copy.name) ||
        !fl__ops_own_bytes(work->batch, &copy.payload) || !fl__ops_own_bytes(work->batch, &copy.target) ||
        !fl__ops_own_bytes(work->batch, &copy.headers) || !fl__ops_own_bytes(work->batch, &copy.schedule) ||
        !fl__ops_own_bytes(work->batch, &copy.local) || !fl__ops_own_bytes(work->batch, &copy.zone))
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
void fl__ops_release_row(fl_engine *e, struct work *work)
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
    fl__ops_release_row(e, work);
    fl__unlock(e, &work->name_lock);
    fl__unlock(e, &work->dead_lock);
    fl__image_free(&e->images, work, sizeof *work);
}

void fl__ops_finish(fl_engine *e, struct work *work, int result)
{
    fl__ops_answer_work(e, work, result);
    fl__work_end(e, work);
}

/* Keeps the timer of a row from firing; returns FL_BUSY if it does already. */
int fl__ops_hold(fl_engine *e, fl_key key)
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
    fl__ops_finish(e, work, 0);
}

void fl__ops_not_applied(fl_engine *e, struct work *work)
{
    fl__ops_finish(e, work, FL_STORE_UNAVAILABLE);
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
    fl__ops_finish(e, work, result);
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
        fl__ops_finish(e, work, result);
    } else if (result == FL_OUTCOME_UNKNOWN) {
        fl__ops_answer_work(e, work, result);
        fl__doubt(e, work);
    } else {
        fl__ops_finish(e, work, result);
    }
}
