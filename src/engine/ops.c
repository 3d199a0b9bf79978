/* SPDX-License-Identifier: MIT */
/* Operations that the program submits.
 *
 * A timer without a name is created at once, without reading. Every other operation has these steps: lock the name (if it is
 * by name), read the row (unless the store knows at once that it is absent), lock the row, decide, write, answer. submit.c
 * has the first steps, decide.c decides. The engine decides, not the store. The shard has one owner, and names and rows are
 * locked, so the row is still as it was read when the change takes effect.
 *
 * While a row is held for a change, its timer does not fire. A timer that falls due waits for the outcome. So either a cancel
 * succeeds and the timer does not fire, or the cancel reports that the firing has begun.
 */

#include "engine/internal.h"

/* --- Answers ------------------------------------------------------------------------------------------------------ */

void fl__ops_answer(fl_engine *e, fl_batch *batch, fl_op *op, int result)
{
    fl__assert(batch->left > 0);
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
        fl__assert(batch->left == 0);
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

/* Copies bytes that belong to the store, so that they are valid until the batch is done. */
bool fl__ops_own_bytes(fl_batch *batch, fl_bytes *bytes)
{
    if (bytes->size == 0)
        return true;
    fl__assert(bytes->data);
    if (!batch->bytes && !(batch->bytes = fl__alloc_zeroed(sizeof(struct arena))))
        return false;
    bytes->data = fl__arena_copy(batch->bytes, bytes->data, bytes->size);
    return bytes->data;
}

int fl__ops_give_timer(struct work *work, const fl_durable *timer)
{
    fl_durable copy = *timer;
    fl__assert(work->op);
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

/* Unlocks the row. If its timer is in memory, it may fire again: this work, or a load since, has held it. */
void fl__ops_release_row(fl_engine *e, struct work *work)
{
    if (work->row_lock.held && work->held.seq && e->state == ENGINE_RUNNING)
        fl__ops_let_go(e, work->held);
    fl__unlock(e, &work->row_lock);
}

/* Frees a work. If it is not answered yet, the engine is no longer running, and the answer says so. */
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

/* Keeps the timer of a row from firing; returns FL_BUSY if it is firing already. */
int fl__ops_hold(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    if (flight) {
        struct flight *f = &e->flights.list[flight];
        fl__assert(f->item && f->state != FLIGHT_ORPHAN); /* orphans are not found by number */
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

/* Removes the timer of a deleted row from memory. An attempt in progress is left to end. */
static void forget_row(fl_engine *e, fl_key key)
{
    uint32_t flight = fl__flight_find(e, key.seq);
    if (flight) {
        struct flight *f = &e->flights.list[flight];
        fl__assert(f->item && f->state != FLIGHT_ORPHAN);
        f->superseded = true;
        if (f->state == FLIGHT_HELD)
            fl__flight_end(e, flight);
        return;
    }
    struct item *item = fl__memory_find(e, key);
    if (item)
        fl__memory_remove(e, item);
}

/* Takes a row that the store has now into memory. If the front has passed it, it must be in memory in any case, because no
 * load brings it. */
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

/* Takes a row that was perhaps filed into memory, if it is due soon. It is counted when the store confirms it. */
static void take_in_unsure(fl_engine *e, const struct write_entry *entry)
{
    fl__ops_take_in(e, &entry->row, ITEM_UNSURE);
    fl__doubt_unsure(e, entry->row.key, entry->space);
}

/* The answer to a creation without a name. */
void fl__ops_created(fl_engine *e, const struct write_entry *entry, int result)
{
    fl__assert(entry->op && !entry->work);
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

/* Corrects `adds` if the replaced timer was firing. If it has been settled since, it is no longer counted, so its
 * replacement adds one. If it was done but its row was still there, the replacement takes over its count. */
static void count_pending(fl_engine *e, const struct work *work)
{
    uint32_t flight = work->under_way ? fl__flight_find(e, work->old_key.seq) : 0;
    bool ended = work->under_way && !flight;
    if (work->adds != 0 || ended)
        fl__count(e, work->space, work->adds < 0 ? -1 : 1);
    if (work->op && (ended || (flight && e->flights.list[flight].done)))
        work->op->outcome = FL_CREATED; /* no timer was replaced */
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
    fl__assert(!row || row->key.seq == work->new_key.seq);
    fl__assert(work->kind == WORK_CLIENT);
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

/* The engine is no longer running: the next shard owner, or this engine after another claim, loads what was written. */
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
    fl__assert(entry->work == work && !work->in_doubt);
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
    fl__assert(work->op); /* one that was answered is in doubt, and is not written again */
    if (result == 0) {
        fl__ops_applied(e, work, work->new_key.seq ? &entry->row : NULL);
    } else if (result == FL_OUTCOME_UNKNOWN && work->op->kind == FL_OP_CREATE && work->op->outcome == FL_CREATED &&
               !work->group) {
        take_in_unsure(e, entry); /* like a creation without a name */
        fl__ops_finish(e, work, result);
    } else if (result == FL_OUTCOME_UNKNOWN) {
        fl__ops_answer_work(e, work, result);
        fl__doubt(e, work);
    } else {
        fl__ops_finish(e, work, result);
    }
}
