/* SPDX-License-Identifier: MIT */
/* What other threads may do: post and stop. */

#include <assert.h>

#include "loop/internal.h"

static int post(fl_loop *loop, fl_loop_fn fn, void *arg, unsigned flags)
{
    assert((flags & ~(unsigned)FL_TASK_URGENT) == 0);
    if (!fn)
        return FL_INVALID_ARGUMENT;
    fl_loop_task *task = fl__loop_inbox_task(&loop->inbox, fn, arg, flags);
    if (!task)
        return FL_NO_MEMORY;
    fl__loop_inbox_post(&loop->inbox, task);
    return 0;
}

int fl_loop_post(fl_loop *loop, fl_loop_fn fn, void *arg)
{
    return post(loop, fn, arg, 0);
}

int fl_loop_post_urgent(fl_loop *loop, fl_loop_fn fn, void *arg)
{
    return post(loop, fn, arg, FL_TASK_URGENT);
}

void fl_loop_post_task(fl_loop *loop, fl_loop_task *task)
{
    task->flags &= FL_TASK_URGENT;
    fl__loop_inbox_post(&loop->inbox, task);
}

void fl_loop_stop(fl_loop *loop)
{
    fl__loop_inbox_stop(&loop->inbox, STOP_NOW);
}

void fl_loop_stop_after_turn(fl_loop *loop)
{
    fl__loop_inbox_stop(&loop->inbox, STOP_TURN);
}

void fl_loop_drain(fl_loop *loop)
{
    fl__loop_inbox_stop(&loop->inbox, STOP_DRAIN);
}
