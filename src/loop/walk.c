/* SPDX-License-Identifier: MIT */
/* Showing everything that waits in a loop. */

#include "loop/internal.h"

struct loop_walk {
    fl_loop *loop;
    fl_loop_walk_fn fn;
    void *arg;
    bool more; /* the function wants to see the rest */
};

static void show(struct loop_walk *walk, const fl_loop_item *item)
{
    walk->more = walk->more && walk->fn(walk->loop, item, walk->arg);
}

static bool is_kind(enum loop_record_state state, fl_loop_kind kind)
{
    return state == STATE_HOOK        ? kind == FL_LOOP_HOOK
           : state == STATE_IMMEDIATE ? kind == FL_LOOP_IMMEDIATE
                                      : state >= STATE_WAITING && kind == FL_LOOP_TIMER;
}

static void show_record(struct loop_walk *walk, fl_loop_kind kind, uint32_t slot)
{
    const struct loop_table *table = &walk->loop->table;
    struct loop_entry e = table_entry(table, slot);
    if (is_kind(entry_state(e), kind))
        show(walk, &(fl_loop_item){.kind = kind,
                                   .referenced = !(*e.tag & TAG_UNREF),
                                   .id = entry_id(e),
                                   .fd = -1,
                                   .fn = e.record->fn,
                                   .arg = entry_arg(e)});
}

/* The function may cancel the last record of a chunk, whose slots are then no longer in use. */
static void show_records(struct loop_walk *walk, fl_loop_kind kind)
{
    const struct loop_table *table = &walk->loop->table;
    for (unsigned h = TABLE_FIRST; h <= table->last_mapped; h++)
        for (uint32_t slot = 1u << h; walk->more && slot < table->chunk[h].next; slot++)
            show_record(walk, kind, slot);
}

static void show_descriptors(struct loop_walk *walk)
{
    const struct poller *poller = &walk->loop->poller;
    for (uint32_t fd = 0; fd < poller->watches_capacity && walk->more; fd++) {
        const struct loop_watch *watch = &poller->watches[fd];
        if (watch->fn)
            show(walk, &(fl_loop_item){.kind = FL_LOOP_DESCRIPTOR,
                                       .referenced = !watch->unref,
                                       .fd = (int)fd,
                                       .fd_fn = watch->fn,
                                       .arg = watch->arg});
    }
}

static void show_tasks(struct loop_walk *walk, const struct task_list *list)
{
    const fl_loop_task *task = list->first;
    for (uint64_t left = list->count; left > 0 && walk->more; left--, task = task->next)
        show(walk,
             &(fl_loop_item){.kind = FL_LOOP_TASK, .referenced = true, .fd = -1, .fn = task->fn, .arg = task->arg});
}

static void show_jobs(struct loop_walk *walk, const struct loop_ring *ring, fl_loop_kind kind)
{
    for (uint32_t i = 0, count = ring->count; i < count && walk->more; i++) {
        struct loop_job job = ring->jobs[(ring->first + i) & (ring->capacity - 1)];
        show(walk, &(fl_loop_item){.kind = kind, .referenced = true, .fd = -1, .fn = job.fn, .arg = job.arg});
    }
}

void fl_loop_walk(fl_loop *loop, fl_loop_walk_fn fn, void *arg)
{
    struct loop_walk walk = {loop, fn, arg, true};
    fl__loop_inbox_take(&loop->inbox, &loop->urgent, &loop->tasks);
    for (fl_loop_kind kind = FL_LOOP_TIMER; kind <= FL_LOOP_HOOK; kind++)
        show_records(&walk, kind);
    show_descriptors(&walk);
    show_tasks(&walk, &loop->urgent);
    show_tasks(&walk, &loop->tasks);
    show_jobs(&walk, &loop->microtasks, FL_LOOP_MICROTASK);
    show_jobs(&walk, &loop->closing, FL_LOOP_CLOSE_CALLBACK);
}
