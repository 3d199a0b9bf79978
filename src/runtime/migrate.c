/* SPDX-License-Identifier: MIT */
/* Handing timers over.
 *
 * A worker that leaves sends the segments of its table away as they are, which needs no memory. When there are more
 * workers than before, each old one fills segments with the share of its timers that the new ones shall have, a bounded
 * number each turn; if there is no memory for that, the rest stays where it is. In both cases the word goes from SCHEDULED
 * to MIGRATING first, and whatever has been cancelled or started anew stays behind.
 *
 * A segment goes from worker to worker, and each takes its share. One that has much to sweep takes none for now and lets it
 * go on: what is added to a table that is being swept makes the sweep longer, and its own timers late. When all have
 * refused, the next takes its share all the same, for the timers must be somewhere.
 */

#include <assert.h>

#include "base/alloc.h"
#include "runtime/internal.h"

enum {
    SHARE = 128,         /* of the segments of a worker that has left */
    SPREAD_BUDGET = 512, /* slots that are looked at in a turn */
};

/* --- Arriving */

/* To the next worker whose turn it is; to any if that has left. Segments for new workers go into their
 * mailboxes, from which other workers cannot steal. */
static void send_on(fl_runtime *rt, struct segment *segment)
{
    struct segment_header *header = &segment->header;
    unsigned active = atomic_load_explicit(&rt->active, memory_order_acquire);
    unsigned first = header->first_taker < active ? header->first_taker : 0;
    unsigned next = header->last_taker + 1u;
    if (next < first || next >= active)
        next = first;
    header->last_taker = (uint16_t)next;
    bool sent = next < active && (first > 0 ? fl__worker_send(worker_at(rt, next), &header->message)
                                            : fl__runtime_offer(worker_at(rt, next), &header->message));
    if (!sent)
        fl__runtime_send(rt, &header->message);
}

/* False: there is no memory. */
static bool take_share(struct fl__worker *worker, struct segment *segment)
{
    assert(segment->header.cursor <= segment->header.used);
    struct segment_header *header = &segment->header;
    for (unsigned taken = 0; taken < header->share && header->cursor < header->used; taken++) {
        struct entry *entry = &segment->slots[header->cursor];
        if (entry->timer && fl__runtime_adopt(worker, entry->timer, entry->generation, entry_target_ns(entry)) < 0)
            return false;
        header->cursor++;
    }
    return true;
}

void fl__runtime_adopt_segment(struct fl__worker *worker, struct fl__message *message)
{
    struct segment *segment = (struct segment *)message;
    struct segment_header *header = &segment->header;
    bool busy = fl__runtime_much_to_sweep(&worker->own) || fl__runtime_much_to_sweep(&worker->common);
    if (busy && ++header->refused < fl__runtime_workers(worker->rt)) {
        send_on(worker->rt, segment);
        return;
    }
    header->refused = 0;
    if (!take_share(worker, segment))
        fl__queue_append(&worker->hungry, message);
    else if (header->cursor < header->used)
        send_on(worker->rt, segment);
    else
        fl__runtime_segment_release(segment);
}

void fl__runtime_forget_segment(struct segment *segment)
{
    for (uint32_t i = segment->header.cursor; i < segment->header.used; i++)
        if (segment->slots[i].timer)
            fl__runtime_forget(segment->slots[i].timer, segment->slots[i].generation);
    fl__runtime_segment_release(segment);
}

/* --- Leaving */

/* Whether the timer goes on elsewhere. */
static bool set_out(struct shelf *shelf, const struct entry *entry)
{
    uint64_t word = timer_word(entry->timer);
    while (word_generation(word) == entry->generation && word_state(word) == TIMER_SCHEDULED)
        if (timer_move(entry->timer, &word, TIMER_MIGRATING, 0)) {
            counter_add(&shelf->owner->counters.migrated, 1);
            return true;
        }
    return false;
}

static bool set_out_or_forget(struct shelf *shelf, struct entry *entry)
{
    if (!entry->timer || set_out(shelf, entry))
        return entry->timer;
    fl_timer_unref(entry->timer);
    entry->timer = NULL;
    return false;
}

static void send_away(struct shelf *shelf, struct segment *segment)
{
    bool any = false, stopping = runtime_stopping(shelf->owner->rt);
    fl__runtime_segment_detach(&shelf->table, segment);
    segment->header.message.run = fl__runtime_adopt_segment;
    segment->header.share = SHARE;
    for (uint32_t i = SEGMENT_FIRST; i < segment->header.used && !stopping; i++)
        any |= set_out_or_forget(shelf, &segment->slots[i]);
    if (any)
        fl__runtime_merge(shelf->owner->rt, &segment->header.message);
    else
        fl__runtime_forget_segment(segment);
}

void fl__runtime_hand_over_timers(struct shelf *shelf)
{
    shelf_lock(shelf);
    while (shelf->table.count > 0)
        send_away(shelf, shelf->table.segments[shelf->table.count - 1]);
    for (unsigned i = 0; i < BUCKETS; i++)
        shelf->scrub.accounted[i] = fl__runtime_stripe_sum(&shelf->stripes[i]);
    fl_nodes_free(shelf->wheel); /* the nodes have gone with the segments */
    shelf->wheel = NULL;
    atomic_store_explicit(&shelf->next_ns, NEVER, memory_order_relaxed);
    shelf_unlock(shelf);
}

/* --- Spreading */

/* Of what it has, an old worker keeps as much as falls to each if all have the same. */
void fl__runtime_spread_begin(struct shelf *shelf)
{
    unsigned before = atomic_load_explicit(&shelf->owner->rt->grown_from, memory_order_relaxed);
    unsigned now = fl__runtime_workers(shelf->owner->rt);
    if (before == 0 || now <= before)
        return;
    shelf->spread = (struct spread){.left = counter_read(&shelf->entries) * (now - before) / now,
                                    .first_taker = (uint16_t)before,
                                    .next_taker = (uint16_t)(before + shelf->owner->index % (now - before))};
}

/* An entry that is in hand, to be fired or put back in this turn, stays. */
static void pack(struct shelf *shelf, struct segment *parcel, uint32_t slot)
{
    struct entry *entry = entries_find(&shelf->table, slot);
    if (!entry || !fl_node_is_waiting(&entry->node))
        return;
    if (!set_out(shelf, entry)) {
        fl__runtime_drop_stale(shelf, slot, &shelf->owner->counters.stale_dropped);
        return;
    }
    parcel->slots[parcel->header.used++] = (struct entry){
        .timer = entry->timer, .generation = entry->generation, .node = {.deadline_ns = entry_target_ns(entry)}};
    fl__runtime_remove_entry(shelf, slot);
    shelf->spread.left--;
}

static void pack_some(struct shelf *shelf, struct segment *parcel)
{
    struct spread *spread = &shelf->spread;
    shelf_lock(shelf);
    uint32_t end = shelf->table.count << SEGMENT_BITS, looked = 0;
    while (spread->left > 0 && spread->cursor < end && looked++ < SPREAD_BUDGET)
        pack(shelf, parcel, spread->cursor++);
    if (spread->cursor >= end)
        spread->left = 0;
    shelf_unlock(shelf);
}

static void send_parcel(struct shelf *shelf, struct segment *parcel)
{
    assert(parcel->header.used >= SEGMENT_FIRST);
    struct spread *spread = &shelf->spread;
    unsigned active = fl__runtime_workers(shelf->owner->rt);
    uint32_t count = parcel->header.used - SEGMENT_FIRST;
    uint32_t takers = active > spread->first_taker ? active - spread->first_taker : 1;
    if (count == 0) {
        fl__runtime_segment_release(parcel);
        return;
    }
    parcel->header.share = (count + takers - 1) / takers;
    parcel->header.first_taker = spread->first_taker;
    parcel->header.last_taker = spread->next_taker++;
    if (spread->next_taker >= active)
        spread->next_taker = spread->first_taker;
    send_on(shelf->owner->rt, parcel);
}

void fl__runtime_spread_turn(struct shelf *shelf)
{
    assert(shelf->spread.left > 0);
    struct segment *parcel = fl__map(SEGMENT_BYTES);
    if (!parcel) {
        shelf->spread.left = 0;
        return;
    }
    parcel->header = (struct segment_header){
        .message.run = fl__runtime_adopt_segment, .used = SEGMENT_FIRST, .cursor = SEGMENT_FIRST};
    pack_some(shelf, parcel);
    send_parcel(shelf, parcel);
}
