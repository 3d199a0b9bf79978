/* SPDX-License-Identifier: MIT */
/* See fresh.h. */

#include <assert.h>

#include "base/alloc.h"
#include "loop/timers.h"

int fl__fresh_init(struct fresh *fresh)
{
    *fresh =
        (struct fresh){.capacity = FRESH_CAPACITY, .shorter = FRESH_SHORT, .exact = true, .earliest_ns = UINT64_MAX};
    fresh->entries = fl__alloc(FRESH_CAPACITY * sizeof(*fresh->entries));
    return fresh->entries ? 0 : FL_NO_MEMORY;
}

void fl__fresh_destroy(struct fresh *fresh)
{
    fl__release(fresh->entries);
}

static void keep(fl_loop *loop, struct record *record, struct fresh_entry entry)
{
    struct fresh *fresh = &loop->fresh;
    *record_timer(record) = fresh->count;
    fresh->entries[fresh->count++] = entry;
    if (entry.deadline_ns < fresh->earliest_ns)
        fresh->earliest_ns = entry.deadline_ns;
}

/* Closes the gaps, or puts the timers into the wheel until it has no memory: then the rest stays, for the order's sake. */
static void sweep(fl_loop *loop, bool settle)
{
    struct fresh *fresh = &loop->fresh;
    uint32_t count = fresh->count;
    fresh->count = 0;
    fresh->earliest_ns = UINT64_MAX;
    fresh->exact = true;
    for (uint32_t i = 0; i < count; i++) {
        struct fresh_entry entry = fresh->entries[i];
        struct record *record = fresh_record(loop, i);
        if (!record)
            continue;
        settle = settle && fl__timers_place(loop, entry.slot, record, entry.deadline_ns, loop->drained_ns) == 0;
        if (settle)
            fresh->good--;
        else
            keep(loop, record, entry);
    }
    assert(fresh->good == fresh->count);
}

void fl__fresh_settle(fl_loop *loop)
{
    sweep(loop, fl__timers_make_wheel(loop) == 0);
}

int fl__fresh_make_room(fl_loop *loop)
{
    struct fresh *fresh = &loop->fresh;
    if (fresh->good < fresh->capacity - fresh->capacity / 4)
        sweep(loop, false);
    else
        fl__fresh_settle(loop);
    return fresh->count < fresh->capacity ? 0 : FL_NO_MEMORY;
}

uint64_t fl__fresh_next_ns(fl_loop *loop)
{
    struct fresh *fresh = &loop->fresh;
    if (!fresh->exact && (fresh->count <= fresh->shorter || fresh->good == 0))
        sweep(loop, false);
    return fresh->earliest_ns;
}

bool fl__fresh_is_due(fl_loop *loop)
{
    struct fresh *fresh = &loop->fresh;
    if (!fresh->exact && fresh->earliest_ns <= loop->now_ns)
        sweep(loop, false);
    return fresh->earliest_ns <= loop->now_ns;
}

static bool comes_before(const fl_expired *a, const fl_expired *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->id < b->id;
}

static void sort_few(fl_expired *entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        fl_expired entry = entries[i];
        size_t at = i;
        for (; at > 0 && comes_before(&entry, &entries[at - 1]); at--)
            entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

/* Divides at least three entries, all different, so that those of the first part come before those of the second. Neither
 * is empty. Returns how long the first part is. */
static size_t divide(fl_expired *entries, size_t count)
{
    fl_expired pivot = entries[count / 2];
    size_t low = 0, high = count - 1;
    for (;; low++, high--) {
        while (comes_before(&entries[low], &pivot))
            low++;
        while (comes_before(&pivot, &entries[high]))
            high--;
        if (low >= high)
            return high + 1;
        fl_expired swap = entries[low];
        entries[low] = entries[high];
        entries[high] = swap;
    }
}

/* Quicksort, in place because there may be no memory. The longer part waits, so that at most one part of each length that
 * is a power of two does. */
static void sort(fl_expired *entries, size_t count)
{
    struct {
        fl_expired *entries;
        size_t count;
    } waiting[32] = {{entries, count}};
    for (unsigned depth = 1; depth > 0;) {
        entries = waiting[--depth].entries;
        count = waiting[depth].count;
        while (count > 16) {
            size_t first = divide(entries, count);
            bool longer = first > count - first;
            waiting[depth].entries = longer ? entries : entries + first;
            waiting[depth++].count = longer ? first : count - first;
            entries = longer ? entries + first : entries;
            count = longer ? count - first : first;
        }
        sort_few(entries, count);
    }
}

/* The wheel's way to name a timer is not needed in here; the place in the list keeps equal deadlines in their order. */
void fl__fresh_take(fl_loop *loop)
{
    struct fresh *fresh = &loop->fresh;
    uint32_t first = loop->due_count, count = fresh->count;
    for (uint32_t i = 0; i < count && loop->due_count < loop->budget; i++) {
        struct fresh_entry entry = fresh->entries[i];
        struct record *record = entry.deadline_ns <= loop->now_ns ? fresh_record(loop, i) : NULL;
        if (!record)
            continue;
        fresh_remove(loop, record);
        record_set_state(record, STATE_DUE);
        loop->due[loop->due_count++] = (fl_expired){i, entry.deadline_ns, data_of_slot(entry.slot)};
    }
    sort(loop->due + first, loop->due_count - first);
}
