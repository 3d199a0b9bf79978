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

void fl__fresh_remove(fl_loop *loop, struct record *record)
{
    struct fresh *fresh = &loop->fresh;
    uint32_t index = (uint32_t)*record_timer(record);
    if (--fresh->good == 0) {
        fresh->count = 0;
        fresh->exact = true;
        fresh->earliest_ns = UINT64_MAX;
        return;
    }
    if (fresh->entries[index].deadline_ns == fresh->earliest_ns)
        fresh->exact = false;
    if (index == fresh->count - 1)
        fresh->count--;
}

uint64_t fl__fresh_next_ns(fl_loop *loop)
{
    struct fresh *fresh = &loop->fresh;
    if (!fresh->exact && fresh->count <= fresh->shorter)
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

/* The first of the list that is due and not yet marked: of equal deadlines the one armed first. */
static struct record *earliest_due(fl_loop *loop, struct fresh_entry *ret)
{
    struct fresh *fresh = &loop->fresh;
    struct record *found = NULL;
    uint64_t before_ns = loop->now_ns + 1;
    for (uint32_t i = 0; i < fresh->count; i++) {
        struct record *record = fresh->entries[i].deadline_ns < before_ns ? fresh_record(loop, i) : NULL;
        if (!record)
            continue;
        found = record;
        *ret = fresh->entries[i];
        before_ns = ret->deadline_ns;
    }
    return found;
}

/* The list is short, except where there is no memory; few of it are due. */
void fl__fresh_take(fl_loop *loop)
{
    struct fresh_entry entry;
    struct record *record;
    while (loop->due_count < loop->budget && (record = earliest_due(loop, &entry))) {
        fl__fresh_remove(loop, record);
        fl__timers_mark_due(loop, record, entry);
    }
}
