/* SPDX-License-Identifier: MIT */
/* Scrubbing: finding the entries that cancels from other threads have left in this worker's wheel.
 *
 * A remote cancel changes the handle's word and touches nothing else of the timer's worker but a counter. The entry
 * stays in the wheel until it is due, which may be hours, and with it the handle. So it is counted, in one of 64 stripes
 * that are cache lines apart, chosen by the entry's bucket: neighbours in the table share a bucket, strangers do not.
 * Thus the stripes tell two things: how much is stale in this wheel, and where.
 *
 * The thread that counts the 64th in a stripe asks the worker for a pass. A pass walks the table from end to end, a bounded
 * number of entries each turn, so that no turn is long: a quarter of the budget, or all of it when more than a quarter of
 * the whole table is stale. It skips buckets in which less than an eighth is. While a pass is under way the worker does not
 * sleep, so an idle worker cleans up in one go; there is another pass if some bucket still deserves it.
 *
 * The count is an estimate: a timer may have moved on between the cancel and the counting. What the stripes had counted
 * before a pass and the pass did not find is not there, so afterwards it counts as accounted for. Without that, a worker
 * could look for ever for what it will not find.
 */

#include <assert.h>

#include "runtime/internal.h"

enum {
    WORTH = 8, /* a bucket is walked if one in so many is stale */
    MUCH = 4,  /* more than one in so many of the whole table: use the whole budget */
    SPARE = 4, /* else one part in so many of it */
    PREFETCH = 8,
};

uint64_t fl__runtime_stripe_sum(const struct stripe *stripe)
{
    return atomic_load_explicit(&stripe->cancelled, memory_order_relaxed) +
           atomic_load_explicit(&stripe->moved, memory_order_relaxed);
}

static uint64_t stale_in(const struct shelf *shelf, unsigned bucket)
{
    int64_t stale = (int64_t)(fl__runtime_stripe_sum(&shelf->stripes[bucket]) - shelf->scrub.accounted[bucket]);
    return stale > 0 ? (uint64_t)stale : 0;
}

static bool is_worth_it(const struct shelf *shelf, unsigned bucket)
{
    uint64_t stale = stale_in(shelf, bucket);
    return stale > 0 && stale * WORTH >= shelf->table.bucket_live[bucket];
}

static uint64_t stale_in_all(const struct shelf *shelf)
{
    uint64_t stale = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        stale += stale_in(shelf, i);
    return stale;
}

static bool has_much(const struct shelf *shelf)
{
    return stale_in_all(shelf) * MUCH > shelf->table.live;
}

bool fl__runtime_much_to_sweep(struct shelf *shelf)
{
    shelf_lock(shelf);
    bool much = has_much(shelf);
    shelf_unlock(shelf);
    return much;
}

static void begin_pass(struct shelf *shelf)
{
    struct scrub *scrub = &shelf->scrub;
    scrub->active = true;
    scrub->cursor = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        scrub->mark[i] = fl__runtime_stripe_sum(&shelf->stripes[i]);
        scrub->skipped[i] = false;
    }
    uint32_t budget = shelf->owner->rt->scrub_budget;
    scrub->budget = budget < SPARE || has_much(shelf) ? budget : budget / SPARE;
}

void fl__runtime_scrub_begin(struct shelf *shelf)
{
    shelf_lock(shelf);
    if (!shelf->scrub.active && stale_in_all(shelf) > 0)
        begin_pass(shelf);
    shelf_unlock(shelf);
}

static void end_pass(struct shelf *shelf)
{
    assert(shelf->scrub.active);
    struct scrub *scrub = &shelf->scrub;
    bool again = false;
    for (unsigned i = 0; i < BUCKETS; i++) {
        if (!scrub->skipped[i] && (int64_t)(scrub->mark[i] - scrub->accounted[i]) > 0)
            scrub->accounted[i] = scrub->mark[i];
        again |= is_worth_it(shelf, i);
    }
    scrub->active = false;
    if (again && shelf->table.live > 0)
        begin_pass(shelf);
}

static void look_at(struct shelf *shelf, uint32_t slot)
{
    const struct entry *entry = entries_find(&shelf->table, slot);
    if (!entry || !fl_node_is_waiting(&entry->node)) /* free, or about to be fired */
        return;
    uint64_t word = timer_word(entry->timer);
    if (word_generation(word) != entry->generation || word_state(word) != TIMER_SCHEDULED)
        fl__runtime_drop_stale(shelf, slot, &shelf->owner->counters.scrubbed);
}

static void prefetch_handle(const struct shelf *shelf, uint32_t slot)
{
    const struct entry *entry = entries_find(&shelf->table, slot);
    if (entry)
        __builtin_prefetch(entry->timer);
}

/* Looks at the rest of the cursor's bucket, at most `budget` slots; returns how many. */
static uint32_t walk(struct shelf *shelf, uint32_t budget)
{
    assert(budget > 0);
    uint32_t *cursor = &shelf->scrub.cursor, looked = 0;
    do {
        prefetch_handle(shelf, *cursor + PREFETCH);
        look_at(shelf, (*cursor)++);
        looked++;
    } while (looked < budget && *cursor % BUCKET_SLOTS != 0);
    return looked;
}

/* Passing over a bucket or a segment that is not there counts as one. */
static uint32_t walk_on(struct shelf *shelf)
{
    struct scrub *scrub = &shelf->scrub;
    uint32_t looked = 0;
    while (looked < scrub->budget && scrub->cursor >> SEGMENT_BITS < shelf->table.count) {
        unsigned bucket = bucket_of(scrub->cursor);
        if (!shelf->table.segments[scrub->cursor >> SEGMENT_BITS]) {
            scrub->cursor = ((scrub->cursor >> SEGMENT_BITS) + 1) << SEGMENT_BITS;
            looked++;
        } else if (scrub->cursor % BUCKET_SLOTS == 0 && !is_worth_it(shelf, bucket)) {
            scrub->skipped[bucket] = true;
            scrub->cursor += BUCKET_SLOTS;
            looked++;
        } else {
            looked += walk(shelf, scrub->budget - looked);
        }
    }
    return looked;
}

/* One turn's share. */
void fl__runtime_scrub_turn(struct shelf *shelf)
{
    assert(shelf->scrub.active);
    shelf_lock(shelf);
    counter_raise(&shelf->owner->counters.scrub_longest, walk_on(shelf));
    if (shelf->scrub.cursor >> SEGMENT_BITS >= shelf->table.count)
        end_pass(shelf);
    shelf_unlock(shelf);
}
