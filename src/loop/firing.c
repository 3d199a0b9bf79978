/* SPDX-License-Identifier: MIT */
/* From deadline to callback: see timers.h for the design. */

#include <assert.h>

#include "loop/timers.h"

enum {
    PREFETCH = 8, /* records ahead of the one that is looked at */
    PREFETCH_OBJECTS = 4,
};

/* A wheel's entry is due: the record is marked and stays in the list, or moves on to its next stop. */
static bool mark_due(fl_loop *loop, const fl_expired *entry)
{
    uint32_t slot = slot_of_data(entry->data);
    struct record *record = table_record(&loop->table, slot);
    const struct extra *extra = record_extra(record);
    assert(record_state(record) == STATE_PENDING);
    if (!extra || firing_time(extra) <= entry->deadline_ns) {
        record_set_state(record, STATE_DUE);
        return true;
    }
    if (fl__timers_place(loop, slot, record, firing_time(extra), entry->deadline_ns) < 0)
        fl__timers_arm_or_strand(loop, slot, record, firing_time(extra));
    return false;
}

static uint32_t mark_all_due(fl_loop *loop, fl_expired *entries, size_t count)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (i + PREFETCH < count)
            __builtin_prefetch(table_record(&loop->table, slot_of_data(entries[i + PREFETCH].data)), 1);
        if (mark_due(loop, &entries[i]))
            entries[kept++] = entries[i];
    }
    return kept;
}

/* Stranded timers become fresh again, or due. */
static void rescue_stranded(fl_loop *loop)
{
    struct table *table = &loop->table;
    uint32_t slot, next = table_link(table, STRANDED)->next;
    while ((slot = next) != STRANDED) {
        struct record *record = table_record(table, slot);
        uint64_t deadline_ns = firing_time(record_extra(record));
        next = table_link(table, slot)->next;
        if (fresh_arm(loop, slot, record, deadline_ns) == 0) {
            table_list_remove(table, slot);
        } else if (deadline_ns <= loop->now_ns && loop->due_count < loop->budget) {
            table_list_remove(table, slot);
            record_set_state(record, STATE_DUE);
            loop->due[loop->due_count++] = (fl_expired){.deadline_ns = deadline_ns, .data = data_of_slot(slot)};
        }
    }
}

/* How far the wheel may be polled at once. If nothing was left behind in the wheel, there is nothing to take out before
 * its earliest timer either. */
static uint64_t next_step(fl_loop *loop)
{
    uint64_t earliest_ns;
    if (loop->now_ns - loop->drained_ns <= REACH_NS / 2)
        return loop->now_ns;
    if (!fl_wheel_next_deadline(loop->wheel, &earliest_ns) || earliest_ns > loop->now_ns)
        return loop->now_ns;
    if (loop->drained_ns == fl_wheel_now_ns(loop->wheel) && loop->drained_ns < earliest_ns)
        loop->drained_ns = earliest_ns - 1;
    uint64_t step_ns = add_time(loop->drained_ns, REACH_NS / 2);
    return step_ns < loop->now_ns ? step_ns : loop->now_ns;
}

static bool wheel_is_empty(const fl_loop *loop)
{
    return !loop->wheel || fl_wheel_count(loop->wheel) == 0;
}

static bool wheel_is_due(const fl_loop *loop)
{
    uint64_t next_ns;
    return !wheel_is_empty(loop) && fl_wheel_next_poll(loop->wheel, &next_ns) && next_ns <= loop->now_ns;
}

static void take_from_wheel(fl_loop *loop)
{
    bool all = wheel_is_empty(loop);
    if (all)
        loop->drained_ns = loop->now_ns;
    while (loop->due_count < loop->budget && !all) {
        uint64_t step_ns = next_step(loop);
        fl_expired *entries = loop->due + loop->due_count;
        size_t room = loop->budget - loop->due_count;
        size_t count = fl_wheel_poll(loop->wheel, step_ns, entries, room);
        loop->due_count += mark_all_due(loop, entries, count);
        if (count < room)
            loop->drained_ns = step_ns;
        all = count < room && step_ns == loop->now_ns;
    }
}

static void take_fresh(fl_loop *loop)
{
    fl__fresh_take(loop);
    if (loop->fresh.count > loop->fresh.shorter)
        fl__fresh_settle(loop);
}

/* It is the end of time. */
static void take_last(fl_loop *loop)
{
    struct table *table = &loop->table;
    while (loop->due_count < loop->budget && !table_list_empty(table, LAST)) {
        uint32_t slot = table_link(table, LAST)->next;
        table_list_remove(table, slot);
        record_set_state(table_record(table, slot), STATE_DUE);
        loop->due[loop->due_count++] = (fl_expired){.deadline_ns = UINT64_MAX, .data = data_of_slot(slot)};
    }
}

void fl__timers_take(fl_loop *loop)
{
    assert(loop->due_next == loop->due_count);
    loop->due_next = loop->due_count = 0;
    fl__timers_drop_cancelled(loop);
    rescue_stranded(loop);
    bool fresh_is_due = fl__fresh_is_due(loop);
    if (fresh_is_due && (wheel_is_due(loop) || loop->fresh.count > loop->budget - loop->due_count))
        fl__fresh_settle(loop);
    take_from_wheel(loop);
    if (fresh_is_due)
        take_fresh(loop);
    if (loop->now_ns == UINT64_MAX)
        take_last(loop);
}

static uint64_t next_on_grid(const fl_loop *loop, const struct extra *interval)
{
    uint64_t next_ns = add_time(interval->deadline_ns, interval->period_ns);
    if (interval->flags & FL_INTERVAL_CATCH_UP || next_ns >= loop->read_ns)
        return next_ns;
    uint64_t missed = (loop->read_ns - next_ns + interval->period_ns - 1) / interval->period_ns;
    return add_time(next_ns, missed * interval->period_ns);
}

/* A period that was missed counts as due now, or as late as the wheel reaches: a stop on the way to a deadline that has
 * passed would be taken for the deadline. */
static uint64_t catching_up(const fl_loop *loop, uint64_t deadline_ns)
{
    if (deadline_ns >= loop->now_ns)
        return deadline_ns;
    return out_of_reach(loop, loop->now_ns) ? loop->drained_ns + REACH_NS : loop->now_ns;
}

static void fire_interval(fl_loop *loop, uint32_t slot, struct record *record)
{
    fl_timer_id id = table_id(record, slot);
    record_set_state(record, STATE_RUNNING);
    table_fn(&loop->table, record)(loop, record->arg);
    fl__loop_checkpoint(loop);

    /* The callback may have cancelled it, and its slot, even its chunk, may be gone or be another timer's. */
    record = table_find(&loop->table, id, &slot);
    if (!record || record_state(record) != STATE_RUNNING)
        return;
    struct extra *interval = record_extra(record);
    fl__loop_read_clock(loop);
    interval->deadline_ns = interval->flags & FL_INTERVAL_FROM_CALLBACK ? add_time(loop->read_ns, interval->period_ns)
                                                                        : next_on_grid(loop, interval);
    fl__timers_arm_or_strand(loop, slot, record, catching_up(loop, firing_time(interval)));
}

/* Something is about to be called that was due at `deadline_ns`. */
static inline void count_timer(fl_loop *loop, uint64_t deadline_ns)
{
    histogram_add(&loop->lateness_ns, stopwatch_now_ns(&loop->stopwatch) - deadline_ns);
    loop->counters.timers++;
}

static __attribute__((noinline)) void fire_extra(fl_loop *loop, uint32_t slot, struct record *record)
{
    const struct extra *extra = record_extra(record);
    count_timer(loop, firing_time(extra));
    if (extra->period_ns) {
        fire_interval(loop, slot, record);
        return;
    }
    fl_loop_fn fn = table_fn(&loop->table, record);
    void *arg = record->arg;
    fl__timers_forget(loop, slot, record);
    fn(loop, arg);
    fl__loop_checkpoint(loop);
}

static inline void fire(fl_loop *loop, const fl_expired *entry)
{
    uint32_t slot = slot_of_data(entry->data);
    if (!table_is_mapped(&loop->table, slot)) /* cancelled, and the last of its chunk */
        return;
    struct record *record = table_record(&loop->table, slot);
    uint32_t tag = record->tag;
    if ((tag & RECORD_STATE) != STATE_DUE)
        return;
    if (tag & RECORD_EXTRA) {
        fire_extra(loop, slot, record);
        return;
    }
    fl_loop_fn fn = table_fn(&loop->table, record);
    void *arg = record->arg;
    loop->keep_alive -= !(tag & RECORD_UNREF);
    table_put_plain(&loop->table, slot, record, tag);
    count_timer(loop, entry->deadline_ns);
    fn(loop, arg);
    fl__loop_checkpoint(loop);
}

/* A callback looks at its object first of all; here it is known some callbacks before which one that will be. */
static inline void prefetch_object(const fl_loop *loop, const fl_expired *entry)
{
    uint32_t slot = slot_of_data(entry->data);
    if (table_is_mapped(&loop->table, slot))
        __builtin_prefetch(table_record(&loop->table, slot)->arg);
}

void fl__timers_run(fl_loop *loop)
{
    while (loop->due_next < loop->due_count && !fl__loop_interrupted(loop)) {
        const fl_expired *entry = &loop->due[loop->due_next++];
        if (loop->due_next + PREFETCH_OBJECTS <= loop->due_count)
            prefetch_object(loop, entry + PREFETCH_OBJECTS);
        fire(loop, entry);
    }
}

void fl__immediates_take(fl_loop *loop)
{
    loop->left.immediates = loop->budget;
    table_list_splice(&loop->table, IMMEDIATES_NOW, IMMEDIATES);
}

void fl__immediates_run(fl_loop *loop)
{
    struct table *table = &loop->table;
    while (loop->left.immediates > 0 && !table_list_empty(table, IMMEDIATES_NOW) && !fl__loop_interrupted(loop)) {
        loop->left.immediates--;
        uint32_t slot = table_link(table, IMMEDIATES_NOW)->next;
        struct record *record = table_record(table, slot);
        fl_loop_fn fn = table_fn(table, record);
        void *arg = record->arg;
        table_list_remove(table, slot);
        fl__timers_forget(loop, slot, record);
        loop->counters.immediates++;
        fn(loop, arg);
        fl__loop_checkpoint(loop);
    }
}

void fl__hooks_take(fl_loop *loop, uint32_t head)
{
    assert(table_list_empty(&loop->table, HOOKS_NOW) && table_list_empty(&loop->table, HOOKS_DONE));
    table_list_splice(&loop->table, HOOKS_NOW, head);
}

/* Hooks that have been called wait in a list of their own, so that those made meanwhile come after all others. */
void fl__hooks_run(fl_loop *loop, uint32_t head)
{
    struct table *table = &loop->table;
    uint64_t calls = fl__loop_calls(loop);
    while (!table_list_empty(table, HOOKS_NOW) && !fl__loop_interrupted(loop)) {
        uint32_t slot = table_link(table, HOOKS_NOW)->next;
        const struct record *record = table_record(table, slot);
        table_list_remove(table, slot);
        table_list_append(table, HOOKS_DONE, slot);
        loop->counters.hooks++;
        table_fn(table, record)(loop, record->arg);
        fl__loop_checkpoint(loop);
    }
    loop->counters.by_hooks += fl__loop_calls(loop) - calls;
    if (!table_list_empty(table, HOOKS_NOW))
        return;
    table_list_splice(table, HOOKS_DONE, head);
    table_list_splice(table, head, HOOKS_DONE);
}

bool fl__timers_next(fl_loop *loop, uint64_t *ret_ns)
{
    uint64_t next_ns = fl__fresh_next_ns(loop), wheel_ns;
    fl__timers_drop_cancelled(loop);
    if (!wheel_is_empty(loop) && fl_wheel_next_poll(loop->wheel, &wheel_ns) && wheel_ns < next_ns)
        next_ns = wheel_ns;
    uint32_t slot = STRANDED;
    while ((slot = table_link(&loop->table, slot)->next) != STRANDED) {
        uint64_t stranded_ns = firing_time(record_extra(table_record(&loop->table, slot)));
        next_ns = stranded_ns < next_ns ? stranded_ns : next_ns;
    }
    *ret_ns = next_ns;
    return next_ns < UINT64_MAX || !table_list_empty(&loop->table, LAST);
}
