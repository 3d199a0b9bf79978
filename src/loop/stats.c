/* SPDX-License-Identifier: MIT */
/* What the loop has done, and the one definition of a sound loop. */

#include <string.h>

#include "loop/timers.h"

static uint64_t bytes_of(const fl_loop *loop)
{
    fl_wheel_stats wheel = {0};
    if (loop->wheel)
        fl_wheel_memory_stats(loop->wheel, &wheel);
    uint64_t rings = (uint64_t)(loop->microtasks.capacity + loop->closing.capacity) * sizeof(struct job);
    uint64_t descriptors = loop->poller.watches_capacity * sizeof(struct watch) +
                           (loop->poller.ready ? loop->budget * sizeof(struct epoll_event) : 0);
    return sizeof(*loop) + wheel.bytes + fl__table_bytes(&loop->table) + loop->budget * sizeof(*loop->due) +
           FRESH_CAPACITY * sizeof(*loop->fresh.entries) + rings + descriptors + fl__inbox_bytes(&loop->inbox);
}

static void ticks_to_ns(fl_loop_summary *summary, double tick_ns)
{
    uint64_t *const values[] = {&summary->min_ns, &summary->mean_ns, &summary->p50_ns, &summary->p90_ns,
                                &summary->p99_ns, &summary->p999_ns, &summary->max_ns};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        *values[i] = (uint64_t)((double)*values[i] * tick_ns);
}

/* All records that are taken, without the heads of lists, immediates, and what was cancelled and is not free yet. */
static uint64_t count_timers(const fl_loop *loop)
{
    uint64_t count = 0;
    for (unsigned k = 0; k < TABLE_CHUNKS; k++)
        count += table_is_mapped(&loop->table, table_capacity(k)) ? loop->table.chunk[k].live : 0;
    for (uint32_t i = 0; i < loop->cancelled_count; i++)
        count -= loop->cancelled[i].slot != 0;
    return count - (LIST_HEADS_END - IMMEDIATES) - loop->immediates;
}

void fl_loop_get_stats(const fl_loop *loop, fl_loop_stats *ret)
{
    const struct counters *counters = &loop->counters;
    uint64_t urgent = loop->urgent.count, tasks = loop->tasks.count;
    fl__tasks_count(atomic_load_explicit(&loop->inbox.head, memory_order_acquire), &urgent, &tasks);
    *ret = (fl_loop_stats){
        .turns = counters->turns,
        .sleeps = counters->sleeps,
        .wakeups = loop->inbox.woken,
        .called = {counters->timers, counters->urgent_tasks, counters->tasks, counters->descriptors,
                   counters->immediates, counters->closing, counters->microtasks},
        .waiting = {count_timers(loop), urgent, tasks, loop->poller.added, loop->immediates, loop->closing.count,
                    loop->microtasks.count},
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
    uint64_t state[STATE_IMMEDIATE + 1];
    uint64_t referenced, extras;
};

#define SOUND(condition)       \
    do {                       \
        if (!(condition))      \
            return #condition; \
    } while (0)

static uint32_t free_list_length(const struct table *table, const struct chunk *chunk)
{
    uint32_t length = 0;
    for (uint32_t slot = chunk->free; slot && length <= chunk->used; slot = table_record(table, slot)->link.next)
        length++;
    return length;
}

static const char *count_chunk(const struct table *table, unsigned k, struct census *census)
{
    const struct chunk *chunk = &table->chunk[k];
    const struct record *records = table_record(table, table_capacity(k));
    uint32_t live = 0, retired = 0;
    for (uint32_t i = 0; i < chunk->used; i++) {
        const struct record *record = &records[i];
        census->state[record_state(record)]++;
        live += record_state(record) != STATE_FREE;
        retired += record_state(record) == STATE_FREE && record_generation(record) == TABLE_GENERATION_MAX;
        census->extras += record_extra(record) != NULL;
        if (record_state(record) >= STATE_FRESH)
            census->referenced += !(record->tag & RECORD_UNREF);
    }
    uint32_t free = free_list_length(table, chunk);
    SOUND(live <= chunk->live && chunk->live - live <= CANCELLED_MAX); /* the rest are in the list of cancelled ones */
    SOUND(free <= chunk->used - chunk->live && free >= chunk->used - chunk->live - retired);
    SOUND(table->room >> k & 1 || (free == 0 && chunk->used == table_capacity(k)));
    SOUND(table->empty >> k & 1 || chunk->live > 0);
    return NULL;
}

static const char *count_list(const struct table *table, uint32_t head, enum record_state state, uint64_t *ret)
{
    uint32_t previous = head, slot = table_link(table, head)->next;
    while (slot != head) {
        SOUND(record_state(table_record(table, slot)) == state);
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
    const struct table *table = &loop->table;
    uint64_t immediates = 0, stranded = 0, due = 0, fresh = 0, earliest_ns = UINT64_MAX;
    const char *broken = NULL;
    for (unsigned k = 0; k < TABLE_CHUNKS && !broken; k++)
        if (table_is_mapped(table, table_capacity(k)))
            broken = count_chunk(table, k, census);
    if (!broken)
        broken = count_list(table, IMMEDIATES, STATE_IMMEDIATE, &immediates);
    if (!broken)
        broken = count_list(table, IMMEDIATES_NOW, STATE_IMMEDIATE, &immediates);
    if (!broken)
        broken = count_list(table, STRANDED, STATE_STRANDED, &stranded);
    if (broken)
        return broken;
    for (uint32_t i = loop->due_next; i < loop->due_count; i++) {
        uint32_t slot = (uint32_t)(uintptr_t)loop->due[i].data;
        due += table_is_mapped(table, slot) && record_state(table_record(table, slot)) == STATE_DUE;
    }
    for (uint32_t i = 0; i < loop->fresh.count; i++)
        if (fresh_record(loop, i)) {
            fresh++;
            earliest_ns =
                loop->fresh.entries[i].deadline_ns < earliest_ns ? loop->fresh.entries[i].deadline_ns : earliest_ns;
        }
    SOUND(fresh == census->state[STATE_FRESH] && fresh == loop->fresh.good);
    SOUND(loop->fresh.exact ? loop->fresh.earliest_ns == earliest_ns : loop->fresh.earliest_ns <= earliest_ns);
    SOUND(immediates == loop->immediates && immediates == census->state[STATE_IMMEDIATE]);
    SOUND(stranded == census->state[STATE_STRANDED]);
    SOUND(due == census->state[STATE_DUE]);
    SOUND(census->state[STATE_RUNNING] <= 1);
    SOUND(census->extras == table->extras);
    SOUND(census->state[STATE_PENDING] + loop->cancelled_count == (loop->wheel ? fl_wheel_count(loop->wheel) : 0));
    SOUND(count_timers(loop) == fresh + census->state[STATE_PENDING] + due + stranded + census->state[STATE_RUNNING]);
    return NULL;
}

static const char *check_rest(const fl_loop *loop, const struct census *census)
{
    uint64_t added = 0, listed = 0;
    for (uint32_t fd = 0; fd < loop->poller.watches_capacity; fd++)
        added += loop->poller.watches[fd].fn != NULL;
    for (const fl_loop_task *task = loop->tasks.first; listed < loop->tasks.count; task = task->next)
        listed++;
    SOUND(added == loop->poller.added);
    SOUND(loop->keep_alive >= census->referenced + added); /* the rest are holds */
    SOUND(loop->now_ns >= loop->drained_ns);
    SOUND(loop->read_ns >= loop->now_ns);
    SOUND(loop->due_next <= loop->due_count && loop->due_count <= loop->budget);
    return NULL;
}

int fl_loop_check(const fl_loop *loop, FILE *explain)
{
    struct census census = {0};
    int r = loop->wheel ? fl_wheel_check(loop->wheel, explain) : 0;
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
