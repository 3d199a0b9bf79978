/* SPDX-License-Identifier: MIT */
/* Timers: from the handle's word to the wheel and back.
 *
 * See handle.h for the word and entries.h for what the wheel's data points to. Here is what each party does:
 *
 *   start on a worker    puts an entry into its own wheel first, which can fail, and then swaps the word, which cannot.
 *                        Only this thread polls this wheel, so the entry is not seen before the word agrees with it.
 *   start elsewhere      swaps the word to MIGRATING and puts down a record with the new generation and deadline, for the
 *                        carrier to find; sends the carrier if it is not on its way.
 *   arrival              puts an entry into the wheel, then swaps MIGRATING to SCHEDULED. If the word has moved on, the
 *                        entry is taken out again.
 *   fire                 swaps SCHEDULED to FIRING if the generation is the entry's; otherwise drops the entry.
 *   cancel               swaps to CANCELLED. The timer's own worker takes the entry out of its wheel; others leave it
 *                        there and count it (scrub.c).
 *   leaving, spreading   swaps SCHEDULED to MIGRATING, then sends the entries away (migrate.c).
 *
 * At most once per start: to fire, the word must go from SCHEDULED to FIRING, and in one generation it can do so once.
 * Not lost: in each generation that waits, there is exactly one entry or record that carries it, and its holder
 * puts it into a wheel or keeps it. Not early: the wheel is never early, and fire() looks at the target itself.
 *
 * No memory. To start may fail, for want of an entry. What has been promised may not: a message that finds no memory on
 * arrival is kept and tried again in each turn. The wheel takes every deadline and needs no memory.
 */

#include <assert.h>

#include "runtime/internal.h"

/* --- References */

struct fl__record_pool fl__runtime_timer_pool = {.size = TIMER_BYTES, .lock = PTHREAD_MUTEX_INITIALIZER};

void fl__runtime_timer_release(fl_timer *t)
{
    struct fl__worker *worker = fl__runtime_self;
    fl__record_give(&fl__runtime_timer_pool, worker ? &worker->handles : NULL, t);
}

int fl_timer_new(fl_runtime *rt, fl_task_fn fn, void *arg, fl_timer **ret)
{
    if (!fn)
        return FL_INVALID_ARGUMENT;
    struct fl__worker *worker = fl__runtime_self;
    fl_timer *t = fl__record_take(&fl__runtime_timer_pool, worker ? &worker->handles : NULL);
    if (!t)
        return FL_NO_MEMORY;
    t->rt = rt;
    t->fn = fn;
    t->arg = arg;
    atomic_init(&t->start, NULL);
    t->carrier.run = fl__runtime_run_start;
    atomic_init(&t->place, 0);
    atomic_init(&t->word, TIMER_REFERENCE | TIMER_IDLE);
    *ret = t;
    return 0;
}

fl_timer *fl_timer_ref(fl_timer *t)
{
    uint64_t word = atomic_fetch_add_explicit(&t->word, TIMER_REFERENCE, memory_order_relaxed);
    assert(word_references(word) > 0 && word_references(word) < TIMER_MAX_REFERENCES);
    (void)word;
    return t;
}

void fl_timer_unref(fl_timer *t)
{
    if (!t)
        return;
    uint64_t word = atomic_fetch_sub_explicit(&t->word, TIMER_REFERENCE, memory_order_acq_rel);
    assert(word_references(word) > 0);
    if (word_references(word) == 1)
        fl__runtime_timer_release(t);
}

/* --- Entries of this worker */

/* The shelf's entry for the timer, if it is in the wheel; its generation may be an earlier one. */
static inline struct entry *entry_on(const struct shelf *shelf, const fl_timer *t, uint32_t *ret_slot)
{
    uint64_t place = timer_place(t);
    if (place - make_place(shelf->owner->index, shelf->common, 0) >= PLACE_COMMON)
        return NULL;
    *ret_slot = (uint32_t)place & ~PLACE_COMMON;
    struct entry *entry = entries_look(&shelf->table, *ret_slot);
    return entry && entry->timer == t && fl_node_is_waiting(&entry->node) ? entry : NULL;
}

static struct shelf *shelf_at(fl_runtime *rt, uint64_t place)
{
    assert(place != 0);
    struct fl__worker *worker = worker_at(rt, (unsigned)(place >> 32) - 1);
    return place & PLACE_COMMON ? &worker->common : &worker->own;
}

void fl__runtime_publish(struct fl__worker *worker, uint64_t target_ns)
{
    assert(target_ns <= TIME_MAX);
    if (target_ns <= worker->now_ns)
        atomic_store_explicit(&worker->needs_poll, true, memory_order_relaxed);
    if (target_ns < atomic_load_explicit(&worker->next_ns, memory_order_relaxed))
        atomic_store_explicit(&worker->next_ns, target_ns, memory_order_relaxed);
}

/* A timer that other workers may fire: the metronome looks a tick after its deadline whether it has fired. */
static void publish_common(struct fl__worker *worker, uint64_t target_ns)
{
    struct metronome *metronome = &worker->rt->metronome;
    fl__runtime_publish(worker, target_ns);
    if (target_ns < atomic_load_explicit(&worker->common.next_ns, memory_order_relaxed))
        atomic_store(&worker->common.next_ns, target_ns);
    if (target_ns < atomic_load(&metronome->watch_ns) && fl__runtime_workers(worker->rt) > 1 && !worker->rt->own_clock)
        fl__runtime_request(&metronome->requests, &metronome->mailbox, REQUEST_WATCH);
}

/* Puts a new entry into table and wheel; its generation is still to be set. */
static inline int add_entry(struct shelf *shelf, fl_timer *t, uint64_t target_ns, struct entry **ret_entry,
                            uint32_t *ret_slot)
{
    assert(shelf->wheel && target_ns <= TIME_MAX);
    int r = entries_reserve(&shelf->table);
    if (r < 0)
        return r;
    struct entry *entry;
    uint32_t slot = entries_take(&shelf->table, &entry);
    entry->timer = t;
    entry->node = (fl_node){0};
    fl_nodes_start(shelf->wheel, &entry->node, target_ns);
    *ret_entry = entry;
    *ret_slot = slot;
    return 0;
}

void fl__runtime_remove_entry(struct shelf *shelf, uint32_t slot)
{
    fl_nodes_stop(shelf->wheel, &entries_at(&shelf->table, slot)->node);
    entries_put(&shelf->table, slot);
}

static void scrub_account(struct shelf *shelf, uint32_t slot)
{
    shelf->scrub.accounted[bucket_of(slot)]++;
}

void fl__runtime_drop_stale(struct shelf *shelf, uint32_t slot, counter *why)
{
    fl_timer *t = entries_at(&shelf->table, slot)->timer;
    fl__runtime_remove_entry(shelf, slot);
    scrub_account(shelf, slot);
    counter_add(why, 1);
    fl_timer_unref(t);
}

/* --- What is left behind */

static struct outside *outside_of(const fl_timer *t)
{
    return &t->rt->outside[(uintptr_t)t / CACHE_LINE % OUTSIDE_STRIPES];
}

/* A cancel that does not come from the timer's worker, or a start elsewhere, leaves an entry in a wheel. Its bucket's
 * stripe counts it; when 64 more have come together there, the worker is asked to look for them. `place` is where the
 * timer was when it was SCHEDULED. */
static __attribute__((noinline)) void count_left_behind(fl_timer *t, uint64_t place, bool cancelled)
{
    struct shelf *shelf = shelf_at(t->rt, place);
    struct fl__worker *worker = shelf->owner;
    struct stripe *stripe = &shelf->stripes[bucket_of((uint32_t)place)];
    uint64_t before =
        atomic_fetch_add_explicit(cancelled ? &stripe->cancelled : &stripe->moved, 1, memory_order_relaxed);
    if (before % 64 == 63 && !(atomic_load_explicit(&worker->requests.bits, memory_order_relaxed) & REQUEST_SCRUB))
        fl__runtime_request(&worker->requests, &worker->mailbox, REQUEST_SCRUB);
}

/* --- Starting */

static bool references_are_used_up(uint64_t word)
{
    return word_references(word) >= TIMER_MAX_REFERENCES / 2; /* the rest is for fl_timer_ref(), which cannot fail */
}

/* The entry is in this wheel already: it moves, and keeps its reference. */
static __attribute__((noinline)) void move_here(struct fl__worker *worker, fl_timer *t, struct entry *entry,
                                                uint32_t slot, uint64_t target_ns)
{
    struct shelf *own = &worker->own;
    fl_nodes_start(own->wheel, &entry->node, target_ns);
    uint64_t word = timer_word(t);
    while (!timer_restart(t, &word, TIMER_SCHEDULED, 0))
        ;
    if (word_state(word) == TIMER_MIGRATING)
        scrub_account(own, slot); /* it was stale, and counted as such */
    entry->generation = word_generation(word + TIMER_GENERATION);
    fl__runtime_publish(worker, target_ns);
    counter_add(&worker->counters.scheduled, 1);
    if (word_waits(word))
        counter_add(&worker->counters.rescheduled, 1);
}

/* A timer that does not wait may have an entry here all the same, if it was cancelled elsewhere: that one is left to the
 * scrub, which is rare, and not looked for, which would cost every start. */
static int start_here(struct fl__worker *worker, fl_timer *t, uint64_t target_ns)
{
    assert(worker == fl__runtime_self);
    uint32_t slot;
    struct entry *entry = word_waits(timer_word(t)) ? entry_on(&worker->own, t, &slot) : NULL;
    if (entry) {
        move_here(worker, t, entry, slot, target_ns);
        return 0;
    }
    int r = add_entry(&worker->own, t, target_ns, &entry, &slot);
    if (r < 0)
        return r;
    uint64_t word = timer_word(t);
    uint64_t place = timer_exchange_place(t, make_place(worker->index, false, slot)); /* before the swap */
    do {
        if (references_are_used_up(word)) {
            fl__runtime_remove_entry(&worker->own, slot);
            return FL_CAPACITY_EXCEEDED;
        }
    } while (!timer_restart(t, &word, TIMER_SCHEDULED, 1));
    entry->generation = word_generation(word + TIMER_GENERATION);
    fl__runtime_publish(worker, target_ns);
    if (word_state(word) == TIMER_SCHEDULED && place != 0) /* 0 if the other start came since */
        count_left_behind(t, place, false);
    counter_add(&worker->counters.scheduled, 1);
    if (word_waits(word))
        counter_add(&worker->counters.rescheduled, 1);
    return 0;
}

struct fl__record_pool fl__runtime_start_pool = {.size = sizeof(struct timer_start), .lock = PTHREAD_MUTEX_INITIALIZER};

static struct fl__records *own_starts(void)
{
    struct fl__worker *worker = fl__runtime_self;
    return worker ? &worker->starts : NULL;
}

static void release_start(struct timer_start *start)
{
    fl__record_give(&fl__runtime_start_pool, own_starts(), start);
}

static void count_outside(fl_timer *t, bool again)
{
    struct outside *outside = outside_of(t);
    atomic_fetch_add_explicit(&outside->scheduled, 1, memory_order_relaxed);
    if (again)
        atomic_fetch_add_explicit(&outside->rescheduled, 1, memory_order_relaxed);
}

/* Puts a record in its place, from where on it is no longer ours. True: the carrier has to be sent, by the caller. */
static bool put_start(fl_timer *t, struct timer_start *start)
{
    assert(start);
    for (;;) {
        uint64_t generation = start->generation;
        struct timer_start *there = atomic_exchange_explicit(&t->start, start, memory_order_acq_rel);
        if (!there)
            return true;
        if (generation_is_later(generation, there->generation)) {
            release_start(there);
            fl_timer_unref(t);
            return false;
        }
        start = there;
    }
}

/* To the worker that has an entry for it already, so that the entry is not stale for long; otherwise to any worker. */
static void send_carrier(fl_timer *t, bool was_scheduled)
{
    uint64_t place = timer_place(t);
    if (was_scheduled) {
        unsigned index = (unsigned)(place >> 32) - 1;
        if (index < atomic_load_explicit(&t->rt->active, memory_order_acquire) &&
            fl__runtime_offer(worker_at(t->rt, index), &t->carrier))
            return;
    }
    fl__runtime_send(t->rt, &t->carrier);
}

static __attribute__((noinline)) int start_elsewhere(fl_timer *t, uint64_t target_ns)
{
    struct timer_start *start = fl__record_take(&fl__runtime_start_pool, own_starts());
    if (!start)
        return FL_NO_MEMORY;
    uint64_t word = timer_word(t);
    do {
        if (references_are_used_up(word)) {
            release_start(start);
            return FL_CAPACITY_EXCEEDED;
        }
    } while (!timer_restart(t, &word, TIMER_MIGRATING, 1));
    *start = (struct timer_start){word_generation(word + TIMER_GENERATION), target_ns};
    bool was_scheduled = word_state(word) == TIMER_SCHEDULED;
    if (was_scheduled)
        count_left_behind(t, timer_place(t), false);
    count_outside(t, word_waits(word));
    if (put_start(t, start))
        send_carrier(t, was_scheduled);
    return 0;
}

int fl_timer_start(fl_timer *t, uint64_t deadline_ns)
{
    struct fl__worker *worker = fl__runtime_self;
    deadline_ns = moment(deadline_ns);
    return worker && worker->rt == t->rt ? start_here(worker, t, deadline_ns) : start_elsewhere(t, deadline_ns);
}

int fl_timer_start_after(fl_timer *t, uint64_t delay_ns)
{
    uint64_t now_ns = fl__runtime_now_ns(t->rt); /* the time of the turn would be cheaper, and the timer early */
    return fl_timer_start(t, add_time(now_ns, delay_ns));
}

/* --- Cancelling */

/* The entry is this worker's and of the start that the word tells of. False: the timer has moved on meanwhile. */
static inline bool cancel_here(struct fl__worker *worker, fl_timer *t, uint64_t word, struct entry *entry,
                               uint32_t slot)
{
    assert(worker == fl__runtime_self && entry->timer == t);
    uint64_t generation = entry->generation;
    while (!timer_move(t, &word, TIMER_CANCELLED, -1))
        if (word_generation(word) != generation || !word_waits(word))
            return false;
    fl_nodes_stop(worker->own.wheel, &entry->node);
    entries_put(&worker->own.table, slot);
    counter_add(&worker->counters.cancelled, 1);
    return true;
}

static __attribute__((noinline)) bool cancel_elsewhere(fl_timer *t)
{
    uint64_t word = timer_word(t);
    do
        if (!word_waits(word))
            return false;
    while (!timer_move(t, &word, TIMER_CANCELLED, 0));
    if (word_state(word) == TIMER_SCHEDULED)
        count_left_behind(t, timer_place(t), true);
    else
        atomic_fetch_add_explicit(&outside_of(t)->cancelled, 1, memory_order_relaxed);
    return true;
}

bool fl_timer_cancel(fl_timer *t)
{
    struct fl__worker *worker = fl__runtime_self;
    uint64_t word = timer_word(t);
    uint32_t slot;
    if (!word_waits(word))
        return false;
    if (worker && worker->rt == t->rt) {
        struct entry *entry = entry_on(&worker->own, t, &slot);
        if (entry && entry->generation == word_generation(word) && cancel_here(worker, t, word, entry, slot))
            return true;
    }
    return cancel_elsewhere(t);
}

/* --- Arriving */

/* Gives the timer an entry here: the one it has from an earlier start, or a new one, which takes over the reference of
 * the sender. */
static int receive(struct shelf *shelf, fl_timer *t, uint64_t target_ns, uint32_t *ret_slot)
{
    struct entry *entry = entry_on(shelf, t, ret_slot);
    if (!entry)
        return add_entry(shelf, t, target_ns, &entry, ret_slot);
    fl_nodes_start(shelf->wheel, &entry->node, target_ns);
    scrub_account(shelf, *ret_slot);
    fl_timer_unref(t); /* not the last: the entry has one */
    return 0;
}

/* The shelf is locked. */
static int adopt(struct shelf *shelf, fl_timer *t, uint64_t generation, uint64_t target_ns)
{
    assert(shelf->common && shelf->wheel);
    uint32_t slot;
    uint64_t word = timer_word(t);
    if (word_generation(word) != generation || word_state(word) != TIMER_MIGRATING) {
        fl_timer_unref(t);
        return 0;
    }
    int r = receive(shelf, t, target_ns, &slot);
    if (r < 0)
        return r;
    entries_at(&shelf->table, slot)->generation = generation;
    timer_set_place(t, make_place(shelf->owner->index, shelf->common, slot));
    publish_common(shelf->owner, target_ns);
    while (word_generation(word) == generation && word_state(word) == TIMER_MIGRATING)
        if (timer_move(t, &word, TIMER_SCHEDULED, 0))
            return 0;
    fl__runtime_remove_entry(shelf, slot);
    fl_timer_unref(t);
    return 0;
}

/* Takes in a timer that was sent here, with the sender's reference. Returns 0, also if it was stale; FL_NO_MEMORY: try
 * again. */
int fl__runtime_adopt(struct fl__worker *worker, fl_timer *t, uint64_t generation, uint64_t target_ns)
{
    shelf_lock(&worker->common);
    int r = adopt(&worker->common, t, generation, target_ns);
    shelf_unlock(&worker->common);
    return r;
}

static fl_timer *carried(struct fl__message *carrier)
{
    return container_of(carrier, fl_timer, carrier);
}

/* From the exchange on the carrier may be sent again. */
static struct timer_start *take_start(fl_timer *t)
{
    return atomic_exchange_explicit(&t->start, NULL, memory_order_acq_rel);
}

void fl__runtime_run_start(struct fl__worker *worker, struct fl__message *carrier)
{
    fl_timer *t = carried(carrier);
    struct timer_start *start = take_start(t);
    if (fl__runtime_adopt(worker, t, start->generation, start->target_ns) == 0)
        release_start(start);
    else if (put_start(t, start))
        fl__queue_append(&worker->hungry, carrier);
}

/* --- The end */

void fl__runtime_forget(fl_timer *t, uint64_t generation)
{
    uint64_t word = timer_word(t);
    while (word_generation(word) == generation && word_waits(word))
        if (timer_move(t, &word, TIMER_CANCELLED, 0))
            break;
    fl_timer_unref(t);
}

void fl__runtime_forget_start(struct fl__message *carrier)
{
    fl_timer *t = carried(carrier);
    struct timer_start *start = take_start(t);
    uint64_t generation = start->generation;
    release_start(start);
    fl__runtime_forget(t, generation);
}
