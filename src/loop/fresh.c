/* SPDX-License-Identifier: MIT */
/* See fresh.h. */

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "loop/timers.h"

int fl__fresh_init(struct fresh *fresh)
{
    *fresh =
        (struct fresh){.capacity = FRESH_CAPACITY, .shorter = FRESH_SHORT, .exact = true, .earliest_ns = UINT64_MAX};
    fresh->entries = fl__alloc(FRESH_CAPACITY * sizeof(*fresh->entries));
    return fresh->entries ? 0 : FL_NO_MEMORY;
}

static void clear(struct fresh *fresh)
{
    fresh->count = 0;
    fresh->exact = true;
    fresh->earliest_ns = UINT64_MAX;
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

/* Puts a fresh record into the wheel. Most need none of the care that fl__timers_place() takes. */
static inline bool settle_one(fl_loop *loop, struct record *record, struct fresh_entry entry, uint64_t wheel_now_ns)
{
    if (entry.deadline_ns < wheel_now_ns || entry.deadline_ns - loop->drained_ns > REACH_NS)
        return fl__timers_place(loop, entry.slot, record, entry.deadline_ns, loop->drained_ns) == 0;
    if (fl_wheel_schedule(loop->wheel, entry.deadline_ns, data_of_slot(entry.slot), record_timer(record)) < 0)
        return false;
    record_set_state(record, STATE_PENDING);
    return true;
}

/* Closes the gaps, or puts the timers into the wheel until it has no memory: then the rest stays, for the order's sake. */
static void sweep(fl_loop *loop, bool settle)
{
    struct fresh *fresh = &loop->fresh;
    uint32_t count = fresh->count;
    uint64_t wheel_now_ns = settle ? fl_wheel_now_ns(loop->wheel) : 0;
    clear(fresh);
    for (uint32_t i = 0; i < count; i++) {
        struct fresh_entry entry = fresh->entries[i];
        struct record *record = fresh_record(loop, i);
        if (!record)
            continue;
        settle = settle && settle_one(loop, record, entry, wheel_now_ns);
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
    return fresh->earliest_ns <= loop->now_ns && fresh->good > 0;
}

/* --- Sorting
 *
 * Of those that are due, the deadline and the place in the list are packed into one number each: less to move, and a
 * comparison that the processor need not guess. In a list that is due over more than 2^KEY_BITS ns, the numbers are rounded
 * and what they leave in disorder is mended afterwards. */

enum {
    INDEX_BITS = 10,
    KEY_BITS = 64 - INDEX_BITS,
    SHORT_RUN = 8,
};

_Static_assert(FRESH_CAPACITY <= 1 << INDEX_BITS, "a place in the list needs more bits");

static void sort_run(uint64_t *keys, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        uint64_t key = keys[i];
        size_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

/* Merges two sorted runs that follow each other. */
static void merge(const uint64_t *run, size_t first, size_t count, uint64_t *to)
{
    size_t a = 0, b = first;
    while (a < first && b < count) {
        bool second = run[b] < run[a];
        *to++ = run[second ? b : a];
        b += second;
        a += !second;
    }
    memcpy(to, run + a, (first - a) * sizeof(*to));
    memcpy(to + (first - a), run + b, (count - b) * sizeof(*to));
}

/* Sorts with the help of as much memory again. Returns where the result is. */
static uint64_t *sort(uint64_t *keys, uint64_t *other, size_t count)
{
    for (size_t i = 0; i < count; i += SHORT_RUN)
        sort_run(keys + i, count - i < SHORT_RUN ? count - i : SHORT_RUN);
    for (size_t width = SHORT_RUN; width < count; width *= 2) {
        for (size_t i = 0; i < count; i += 2 * width) {
            size_t length = count - i < 2 * width ? count - i : 2 * width;
            merge(keys + i, length < width ? length : width, length, other + i);
        }
        uint64_t *swap = keys;
        keys = other;
        other = swap;
    }
    return keys;
}

/* Makes an order perfect that nearly is. */
static void mend_order(fl_expired *entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        fl_expired entry = entries[i];
        size_t at = i;
        for (; at > 0 && entries[at - 1].deadline_ns > entry.deadline_ns; at--)
            entries[at] = entries[at - 1];
        entries[at] = entry;
    }
}

/* How far deadlines must be rounded so that the span fits into KEY_BITS. */
static unsigned key_shift(uint64_t span_ns)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(span_ns | 1);
    return bits > KEY_BITS ? bits - KEY_BITS : 0;
}

void fl__fresh_take(fl_loop *loop)
{
    struct fresh *fresh = &loop->fresh;
    uint64_t memory[2][FRESH_CAPACITY], now_ns = loop->now_ns, earliest_ns = fresh->earliest_ns;
    uint32_t taken = 0, room = loop->budget - loop->due_count, count = fresh->count;
    unsigned shift = key_shift(now_ns - earliest_ns);
    for (uint32_t i = 0; i < count && taken < room; i++) {
        uint64_t deadline_ns = fresh->entries[i].deadline_ns;
        struct record *record = deadline_ns <= now_ns ? fresh_record(loop, i) : NULL;
        if (!record)
            continue;
        record_set_state(record, STATE_DUE);
        memory[0][taken++] = (deadline_ns - earliest_ns) >> shift << INDEX_BITS | i;
    }
    const uint64_t *keys = sort(memory[0], memory[1], taken);
    fl_expired *due = loop->due + loop->due_count;
    for (uint32_t i = 0; i < taken; i++) {
        struct fresh_entry entry = fresh->entries[keys[i] & ((1u << INDEX_BITS) - 1)];
        due[i] = (fl_expired){.deadline_ns = entry.deadline_ns, .data = data_of_slot(entry.slot)};
    }
    if (shift > 0)
        mend_order(due, taken);
    loop->due_count += taken;
    fresh->good -= taken;
    fresh->exact = false;
    if (fresh->good == 0)
        clear(fresh);
}
