/* SPDX-License-Identifier: MIT */
/* Calling timers, intervals, immediates and hooks.
 *
 * The timers that are due are taken out of the wheel before the first callback of a turn runs, at most a budget of them. They
 * are STATE_DUE, and their slots are in a list. A callback that cancels or rearms one of them changes its state, so that its
 * entry is passed over. A slot that is taken anew in the same turn is not called by mistake, because a record becomes
 * STATE_DUE only when the list is filled. */

#include <assert.h>

#include "base/moment.h"
#include "loop/internal.h"

enum {
    PREFETCH = 8, /* records ahead of the one that is looked at */
    PREFETCH_OBJECTS = 4,
};

/* --- Timers */

void fl__loop_timers_take(fl_loop *loop)
{
    assert(loop->due_next == loop->due_count);
    uint32_t count = (uint32_t)fl_nodes_poll(loop->wheel, loop->now_ns, loop->polled, loop->budget);
    for (uint32_t i = 0; i < count; i++) {
        if (i + PREFETCH < count)
            __builtin_prefetch(loop->polled[i + PREFETCH], 1);
        loop->due[i] = table_slot(&loop->table, container_of(loop->polled[i], struct loop_record, node));
        entry_set_state(table_entry(&loop->table, loop->due[i]), STATE_DUE);
    }
    loop->due_next = 0;
    loop->due_count = count;
}

static uint64_t next_on_grid(const fl_loop *loop, const struct loop_extra *interval)
{
    assert(interval->period_ns > 0);
    uint64_t next_ns = add_time(interval->deadline_ns, interval->period_ns);
    if (interval->flags & FL_INTERVAL_CATCH_UP || next_ns >= loop->read_ns)
        return next_ns;
    uint64_t missed = (loop->read_ns - next_ns + interval->period_ns - 1) / interval->period_ns;
    return add_time(next_ns, missed * interval->period_ns);
}

/* With FL_INTERVAL_CATCH_UP, a missed period is due in the next turn, behind the timers that were due before. */
static void start_interval_again(fl_loop *loop, struct loop_entry e)
{
    assert(entry_state(e) == STATE_RUNNING && entry_extra(e));
    struct loop_extra *interval = e.record->extra;
    fl__loop_read_clock(loop);
    interval->deadline_ns = interval->flags & FL_INTERVAL_FROM_CALLBACK ? add_time(loop->read_ns, interval->period_ns)
                                                                        : next_on_grid(loop, interval);
    uint64_t next_ns = fl__loop_timers_round(interval->deadline_ns, interval->slack_ns);
    fl__loop_timers_start(loop, e, next_ns > loop->now_ns ? next_ns : loop->now_ns);
}

static void call_interval(fl_loop *loop, struct loop_entry e)
{
    assert(entry_extra(e) && e.record->extra->period_ns > 0);
    fl_timer_id id = entry_id(e);
    entry_set_state(e, STATE_RUNNING);
    e.record->fn(loop, e.record->extra->arg);
    fl__loop_checkpoint(loop);

    /* The callback may have cancelled it, and its slot may be another timer's. */
    if (!table_find(&loop->table, id, &e) || entry_state(e) != STATE_RUNNING)
        return;
    if (e.record->extra->period_ns > 0)
        start_interval_again(loop, e);
    else
        fl__loop_timers_forget(loop, e);
}

/* The callback of what is called once. Its record ends before. */
static inline void call_once(fl_loop *loop, struct loop_entry e)
{
    fl_loop_fn fn = e.record->fn;
    void *arg = entry_arg(e);
    fl__loop_timers_forget(loop, e);
    fn(loop, arg);
    fl__loop_checkpoint(loop);
}

static inline void call_timer(fl_loop *loop, uint32_t slot)
{
    struct loop_entry e = table_entry(&loop->table, slot);
    if (entry_state(e) != STATE_DUE)
        return;
    const struct loop_extra *extra = entry_extra(e);
    uint64_t deadline_ns =
        extra ? fl__loop_timers_round(extra->deadline_ns, extra->slack_ns) : fl_node_deadline_ns(&e.record->node);
    histogram_add(&loop->lateness_ns, stopwatch_now_ns(&loop->stopwatch) - deadline_ns);
    loop->counters.timers++;
    if (extra && extra->period_ns > 0)
        call_interval(loop, e);
    else
        call_once(loop, e);
}

void fl__loop_timers_run(fl_loop *loop)
{
    assert(loop->due_count <= loop->budget);
    while (loop->due_next < loop->due_count && !fl__loop_interrupted(loop)) {
        const uint32_t *slot = &loop->due[loop->due_next++];
        if (loop->due_next + PREFETCH_OBJECTS <= loop->due_count) /* most callbacks look at their argument first */
            __builtin_prefetch(table_entry(&loop->table, slot[PREFETCH_OBJECTS]).record->arg);
        call_timer(loop, *slot);
    }
}

/* --- Immediates */

void fl__loop_immediates_take(fl_loop *loop)
{
    loop->left.immediates = loop->budget;
    table_list_splice(&loop->table, IMMEDIATES_NOW, IMMEDIATES);
}

void fl__loop_immediates_run(fl_loop *loop)
{
    assert(loop->left.immediates <= loop->budget);
    struct loop_table *table = &loop->table;
    while (loop->left.immediates > 0 && !table_list_empty(table, IMMEDIATES_NOW) && !fl__loop_interrupted(loop)) {
        struct loop_entry e = table_entry(table, table_link(table, IMMEDIATES_NOW)->next);
        fl__loop_unlist(loop, e);
        loop->left.immediates--;
        loop->counters.immediates++;
        call_once(loop, e);
    }
}

/* --- Hooks */

void fl__loop_hooks_take(fl_loop *loop, uint32_t head)
{
    assert(table_list_empty(&loop->table, HOOKS_NOW) && table_list_empty(&loop->table, HOOKS_DONE));
    table_list_splice(&loop->table, HOOKS_NOW, head);
}

/* Hooks that have been called wait in a list of their own, so that those made meanwhile come after all others. */
void fl__loop_hooks_run(fl_loop *loop, uint32_t head)
{
    struct loop_table *table = &loop->table;
    uint64_t calls = fl__loop_calls(loop);
    while (!table_list_empty(table, HOOKS_NOW) && !fl__loop_interrupted(loop)) {
        struct loop_entry e = table_entry(table, table_link(table, HOOKS_NOW)->next);
        table_list_remove(table, e.slot);
        table_list_append(table, HOOKS_DONE, e.slot);
        loop->counters.hooks++;
        e.record->fn(loop, e.record->arg);
        fl__loop_checkpoint(loop);
    }
    loop->counters.by_hooks += fl__loop_calls(loop) - calls;
    if (!table_list_empty(table, HOOKS_NOW))
        return;
    table_list_splice(table, HOOKS_DONE, head);
    table_list_splice(table, head, HOOKS_DONE);
}
