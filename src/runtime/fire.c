/* SPDX-License-Identifier: MIT */
/* Firing: timers with a handle, and timers of one worker. Of firing, cancelling and starting again, exactly one wins (handle.h). */

#include <assert.h>

#include "runtime/internal.h"

/* --- Firing */

/* The callback has returned: FIRED, unless it was started again, and one reference less. */
static void finish_firing(fl_timer *t, uint64_t generation)
{
    uint64_t word = timer_word(t), next;
    do {
        next = word - TIMER_REFERENCE;
        if (word_generation(word) == generation && word_state(word) == TIMER_FIRING)
            next = next - TIMER_FIRING + TIMER_FIRED;
    } while (!timer_swap(t, &word, next));
    if (word_references(next) == 0)
        fl__runtime_timer_release(t);
}

/* Takes out an entry that is due, for its callback to be called. False: it was stale. */
static bool win_firing(struct fl__worker *worker, struct shelf *shelf, uint32_t slot, struct entry *ret)
{
    assert(!fl_node_is_waiting(&entries_at(&shelf->table, slot)->node));
    const struct entry *entry = entries_at(&shelf->table, slot);
    uint64_t word = timer_word(entry->timer);
    while (word_generation(word) == entry->generation && word_state(word) == TIMER_SCHEDULED)
        if (timer_move(entry->timer, &word, TIMER_FIRING, 0)) {
            *ret = *entry;
            entries_put(&shelf->table, slot);
            return true;
        }
    fl__runtime_drop_stale(shelf, slot, &worker->counters.stale_dropped);
    return false;
}

static void call(struct fl__worker *worker, const struct entry *entry)
{
    assert(entry_target_ns(entry) <= worker->now_ns);
    counter_add(&worker->counters.fired, 1);
    histogram_add(&worker->lateness, worker->now_ns - entry_target_ns(entry));
    entry->timer->fn(entry->timer->arg);
    finish_firing(entry->timer, entry->generation);
}

void fl__runtime_fire(struct fl__worker *worker, fl_node *due)
{
    struct entry entry;
    if (win_firing(worker, &worker->own, entries_slot(entry_of_node(due)), &entry))
        call(worker, &entry);
}

/* Takes the next one that is due out of a common shelf, which is locked. False: there is none. */
static bool take_due(struct fl__worker *worker, struct shelf *shelf, struct entry *ret)
{
    fl_node *due;
    while (shelf->wheel && fl_nodes_poll(shelf->wheel, worker->now_ns, &due, 1) > 0) {
        uint64_t target_ns = fl_node_deadline_ns(due);
        if (target_ns > worker->now_ns) /* another worker has polled here, and its clock was read later */
            worker->now_ns = target_ns;
        if (win_firing(worker, shelf, entries_slot(entry_of_node(due)), ret))
            return true;
    }
    uint64_t next_ns = NEVER;
    if (shelf->wheel)
        fl_nodes_next_poll(shelf->wheel, &next_ns);
    atomic_store_explicit(&shelf->next_ns, next_ns, memory_order_relaxed);
    return false;
}

/* One at a time: what is not taken out can be taken by others while the callback runs. */
unsigned fl__runtime_fire_common(struct fl__worker *worker, struct shelf *shelf)
{
    struct entry entry;
    unsigned fired = 0;
    if (atomic_load_explicit(&shelf->next_ns, memory_order_relaxed) > worker->now_ns)
        return 0;
    fl__runtime_work_begins(worker);
    while (fired < TIMER_BUDGET && !runtime_stopping(worker->rt)) {
        shelf_lock(shelf);
        bool more = take_due(worker, shelf, &entry);
        shelf_unlock(shelf);
        if (!more)
            break;
        fl__runtime_ask_for_help(worker);
        call(worker, &entry);
        fired++;
        if (fl__runtime_work_takes_long(worker))
            break;
    }
    return fired;
}

/* --- Timers of one worker */

void fl__local_timer_start(struct fl__worker *worker, struct fl__local_timer *timer, uint64_t deadline_ns)
{
    assert(worker == fl__runtime_self);
    deadline_ns = moment(deadline_ns);
    fl_nodes_start(worker->local, &timer->node, deadline_ns);
    fl__runtime_publish(worker, deadline_ns);
}

bool fl__local_timer_cancel(struct fl__worker *worker, struct fl__local_timer *timer)
{
    assert(worker == fl__runtime_self);
    return fl_nodes_stop(worker->local, &timer->node);
}

/* One at a time, so that each can be cancelled until it fires. */
void fl__runtime_fire_local(struct fl__worker *worker)
{
    assert(worker == fl__runtime_self);
    fl_node *due;
    for (unsigned n = 0; n < TIMER_BUDGET && fl_nodes_poll(worker->local, worker->now_ns, &due, 1) > 0; n++) {
        struct fl__local_timer *timer = container_of(due, struct fl__local_timer, node);
        histogram_add(&worker->lateness, worker->now_ns - fl_node_deadline_ns(due));
        if (n == 0)
            fl__runtime_work_begins(worker);
        timer->fire(worker, timer);
        if (fl__runtime_work_takes_long(worker) || runtime_stopping(worker->rt))
            return;
    }
}
