/* SPDX-License-Identifier: MIT */
/* Operations on dead letters: read, redrive, delete. */

#include "engine/internal.h"

struct dead_work {
    fl_store_request request;
    fl_engine *engine;
    fl_batch *batch;
    fl_op *op;
    struct work *work; /* NULL: it is only read */
};

static int give_dead(struct dead_work *dead, const fl_dead_row *found)
{
    struct work borrowed = {.batch = dead->batch, .op = dead->op};
    fl_durable timer;
    fl__row_timer(&found->row, &timer);
    dead->op->died_us = found->died_us;
    dead->op->reason = found->reason;
    return fl__ops_give_timer(&borrowed, &timer) < 0 || !fl__ops_own_bytes(dead->batch, &dead->op->reason)
               ? FL_NO_MEMORY
               : 0;
}

static int delete_dead(fl_engine *e, struct work *work)
{
    fl_store_change *change;
    struct write_entry *entry = fl__write_add(e, 0, &change, NULL);
    fl__assert(work->dead_lock.held);
    if (!entry)
        return FL_NO_MEMORY;
    work->id = work->op->timer.id;
    change->unbury = work->id.seq;
    entry->work = work;
    return 0;
}

/* Returns 1 if the operation has ended, 0 if it continues. */
static int change_dead(fl_engine *e, const struct dead_work *dead)
{
    if (!dead->work)
        return 1;
    if (e->state != ENGINE_RUNNING)
        return fl__engine_refusal(e);
    fl__assert(dead->work->dead_lock.held);
    if (dead->op->kind == FL_OP_DEAD_DELETE)
        return delete_dead(e, dead->work);
    fl__ops_look_for(e, dead->work);
    return 0;
}

static void dead_found(fl_store_request *request)
{
    struct dead_work *dead = (struct dead_work *)request;
    fl_engine *e = dead->engine;
    fl__engine_answered(e, request);
    int r = request->result;
    if (r == 0)
        r = request->dead_list.count == 0 || !fl__ops_is_in(dead->op, request->dead_list.rows->row.ns)
                ? FL_TIMER_NOT_FOUND
                : give_dead(dead, request->dead_list.rows);
    if (r == 0)
        r = change_dead(e, dead);
    if (r != 0 && dead->work)
        fl__ops_finish(e, dead->work, r);
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
    fl__assert(lock->held);
    int r = e->state == ENGINE_LOST      ? FL_SHARD_LOST
            : e->state != ENGINE_RUNNING ? FL_STOPPED
                                         : find_dead(e, work->batch, work->op, work);
    if (r < 0)
        fl__ops_finish(e, work, r);
}

/* An operation that redrives or deletes a dead letter locks it, so that it is not redriven twice. */
void fl__ops_begin_dead(fl_engine *e, fl_batch *batch, fl_op *op)
{
    bool reads = op->kind == FL_OP_DEAD_GET;
    struct work *work = reads ? NULL : fl__work_new(e, WORK_CLIENT);
    fl__assert(op->kind >= FL_OP_DEAD_GET);
    if (!work) {
        int r = reads ? find_dead(e, batch, op, NULL) : FL_NO_MEMORY;
        if (r < 0)
            fl__ops_answer(e, batch, op, r);
        return;
    }
    work->batch = batch;
    work->op = op;
    work->due_us =
        op->flags & FL_OP_SET_DUE ? op->timer.due_us : 0; /* `op->timer` is overwritten with the timer that is found */
    if (fl__lock(e, &work->dead_lock, lock_of_dead(op->timer.id.seq), dead_granted))
        dead_granted(e, &work->dead_lock);
}
