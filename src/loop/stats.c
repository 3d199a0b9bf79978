/* SPDX-License-Identifier: MIT */
/* What the loop has done, and the one definition of a sound loop. */

#include <string.h>

#include "loop/internal.h"

static uint64_t bytes_of(const fl_loop *loop)
{
    uint64_t rings = (uint64_t)(loop->microtasks.capacity + loop->closing.capacity) * sizeof(struct loop_job);
    uint64_t descriptors = loop->poller.watches_capacity * sizeof(struct loop_watch) +
                           (loop->poller.ready ? loop->budget * sizeof(struct epoll_event) : 0);
    uint64_t due = loop->budget * (sizeof(uint32_t) + sizeof(fl_node *));
    return sizeof(*loop) + fl_nodes_bytes(loop->wheel) + fl__loop_table_bytes(&loop->table) + due + rings +
           descriptors + fl__loop_inbox_bytes(&loop->inbox);
}

static void ticks_to_ns(fl_loop_summary *summary, double tick_ns)
{
    if (tick_ns == 1) /* the clock's own, which may be too many for a double */
        return;
    uint64_t *const values[] = {&summary->min_ns, &summary->mean_ns, &summary->p50_ns, &summary->p90_ns,
                                &summary->p99_ns, &summary->p999_ns, &summary->max_ns};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        *values[i] = (uint64_t)((double)*values[i] * tick_ns);
}

/* All records that are taken, without the heads of lists, immediates and hooks. */
static uint64_t count_timers(const fl_loop *loop)
{
    return loop->table.live - loop->immediates - loop->hooks;
}

void fl_loop_get_stats(const fl_loop *loop, fl_loop_stats *ret)
{
    const struct loop_counters *counters = &loop->counters;
    uint64_t urgent = loop->urgent.count, tasks = loop->tasks.count;
    fl__loop_tasks_count(atomic_load_explicit(&loop->inbox.head, memory_order_acquire), &urgent, &tasks);
    *ret = (fl_loop_stats){
        .turns = counters->turns,
        .sleeps = counters->sleeps,
        .wakeups = loop->inbox.woken,
        .slept_ns = counters->slept_ns,
        .called = {counters->timers, counters->urgent_tasks, counters->tasks, counters->descriptors,
                   counters->immediates, counters->closing, counters->microtasks, counters->hooks},
        .waiting = {count_timers(loop), urgent, tasks, loop->poller.added, loop->immediates, loop->closing.count,
                    loop->microtasks.count, loop->hooks},
        .tasks_peak = counters->tasks_peak,
        .bytes = bytes_of(loop),
    };
    fl__histogram_summary(&loop->callback_ticks, &ret->callback_ns);
    uint64_t ticks = stopwatch_read(&loop->stopwatch);
    ticks_to_ns(&ret->callback_ns, stopwatch_tick_ns(&loop->stopwatch, loop->clock->now_ns(loop->clock), ticks));
    fl__histogram_summary(&loop->lateness_ns, &ret->lateness_ns);
}

/* --- Checking */

struct census {
    uint64_t state[STATES];
    uint64_t referenced, extras, taken;
};

#define SOUND(condition)       \
    do {                       \
        if (!(condition))      \
            return #condition; \
    } while (0)

static void count_record(struct loop_entry e, struct census *census)
{
    enum loop_record_state state = entry_state(e);
    census->state[state]++;
    census->extras += entry_extra(e) != NULL;
    census->referenced += state >= STATE_WAITING && !(*e.tag & TAG_UNREF);
}

static const char *count_chunk(const struct loop_table *table, unsigned h, struct census *census)
{
    const struct loop_chunk *chunk = &table->chunk[h];
    uint32_t live = 0, listed = 0, begin = table->span[h].begin;
    SOUND(1u << h <= begin && begin <= chunk->next && chunk->next <= chunk->end);
    for (uint32_t slot = 1u << h; slot < chunk->next; slot++) {
        struct loop_entry e = chunk_entry(chunk, slot);
        count_record(e, census);
        live += entry_state(e) != STATE_FREE;
        SOUND(entry_state(e) == STATE_FREE ? *e.tag % (1u << TAG_GENERATION_SHIFT) == 0 : slot >= begin);
    }
    for (uint32_t slot = chunk->free; slot; slot = chunk_entry(chunk, slot).record->next_free) {
        SOUND(slot >> h == 1 && slot < chunk->next && entry_state(chunk_entry(chunk, slot)) == STATE_FREE);
        SOUND(++listed <= chunk->next - begin - live);
    }
    SOUND(live == chunk->live);
    SOUND(chunk >= table->from || (listed == 0 && chunk->next == chunk->end));
    census->taken += live;
    return NULL;
}

static const char *count_list(const struct loop_table *table, uint32_t head, enum loop_record_state state,
                              uint64_t *ret)
{
    uint32_t previous = head, slot = table_link(table, head)->next;
    while (slot != head) {
        SOUND(entry_state(table_entry(table, slot)) == state);
        SOUND(table_link(table, slot)->previous == previous);
        previous = slot;
        slot = table_link(table, slot)->next;
        (*ret)++;
    }
    SOUND(table_link(table, head)->previous == previous);
    return NULL;
}

static const char *check_timers(const fl_loop *loop, struct census *census)
{
    const struct loop_table *table = &loop->table;
    uint64_t immediates = 0, hooks = 0, due = 0;
    const char *broken = NULL;
    for (unsigned h = TABLE_FIRST; h <= table->last_mapped && !broken; h++)
        broken = count_chunk(table, h, census);
    for (uint32_t head = IMMEDIATES; head <= IMMEDIATES_NOW && !broken; head++)
        broken = count_list(table, head, STATE_IMMEDIATE, &immediates);
    for (uint32_t head = HOOKS_BEFORE_SLEEP; head <= HOOKS_DONE && !broken; head++)
        broken = count_list(table, head, STATE_HOOK, &hooks);
    if (broken)
        return broken;
    for (uint32_t i = loop->due_next; i < loop->due_count; i++)
        due += entry_state(table_entry(table, loop->due[i])) == STATE_DUE;
    SOUND(immediates == loop->immediates && immediates == census->state[STATE_IMMEDIATE]);
    SOUND(hooks == loop->hooks && hooks == census->state[STATE_HOOK]);
    SOUND(due == census->state[STATE_DUE]);
    SOUND(census->state[STATE_RUNNING] <= 1);
    SOUND(census->extras == table->extras);
    SOUND(census->taken == table->live && table->live <= table->limit);
    SOUND(census->state[STATE_WAITING] == fl_nodes_count(loop->wheel));
    SOUND(count_timers(loop) == census->state[STATE_WAITING] + due + census->state[STATE_RUNNING]);
    return NULL;
}

static const char *check_rest(const fl_loop *loop, const struct census *census)
{
    uint64_t added = 0, referenced = 0, listed = 0;
    for (uint32_t fd = 0; fd < loop->poller.watches_capacity; fd++) {
        added += loop->poller.watches[fd].fn != NULL;
        referenced += loop->poller.watches[fd].fn && !loop->poller.watches[fd].unref;
    }
    for (const fl_loop_task *task = loop->tasks.first; listed < loop->tasks.count; task = task->next)
        listed++;
    SOUND(added == loop->poller.added);
    SOUND(loop->keep_alive >= census->referenced + referenced); /* the rest are holds */
    SOUND(loop->read_ns >= loop->now_ns);
    SOUND(loop->due_next <= loop->due_count && loop->due_count <= loop->budget);
    SOUND(loop->unfinished || loop->due_next == loop->due_count);
    return NULL;
}

int fl_loop_check(const fl_loop *loop, FILE *explain)
{
    struct census census = {0};
    int r = fl_nodes_check(loop->wheel, explain);
    if (r < 0)
        return r;
    const char *broken = check_timers(loop, &census);
    if (!broken)
        broken = check_rest(loop, &census);
    if (!broken)
        return 0;
    if (explain)
        fprintf(explain, "the loop is broken: %s does not hold\n", broken);
    return FL_INVALID_ARGUMENT;
}
