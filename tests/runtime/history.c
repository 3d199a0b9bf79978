/* SPDX-License-Identifier: MIT */
/* The runtime against a model, on a clock that only the history moves.
 *
 * A history starts, moves, cancels and lets go of timers, from outside and on workers, lets time pass, and changes the
 * number of workers, down to none.
 *
 * Steps follow each other while timers that are due are on their way to their callbacks. The model, which knows nothing of
 * threads, knows of each start whether it may have fired by now. If it may, the result of a cancel says whether it has; if
 * the timer is started again instead, the model counts one call that may have been. Now and then, in some histories after
 * every step, the history waits until everything that is due has been called, and compares the counts. */

#include "runtime/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

enum { SLOTS = 6, MOST_ORPHANS = 64, MOST_STEPS = 200, PATIENCE = 200000 };

struct slot {
    fl_timer *timer;
    bool waits;  /* as far as is known */
    bool is_due; /* there has been a worker since its deadline: it may have been called */
    uint64_t deadline_ns;
    unsigned expected; /* calls that must have been, or must come without another step */
    unsigned perhaps;  /* and calls that may have been */
    atomic_uint calls;
};

struct orphan {
    unsigned slot;
    uint64_t deadline_ns;
};

static struct history {
    struct hand_clock time;
    fl_runtime *rt;
    unsigned workers;
    struct slot slots[SLOTS];
    struct orphan orphans[MOST_ORPHANS]; /* that wait though nobody holds them */
    unsigned n_orphans;
} h;

static const uint64_t spans_ns[] = {0, 1, 1000, MS, 1000 * MS, HOUR, 20 * HOUR, 24 * 365 * HOUR};

#define REQUIRE(condition)                                                  \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                        \
        }                                                                   \
    } while (0)

static void wait_a_little(fl_clock *clock, uint64_t deadline_ns)
{
    (void)clock, (void)deadline_ns;
    nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
}

static void on_fire(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static void make_timer(struct slot *slot)
{
    REQUIRE(fl_timer_new(h.rt, on_fire, &slot->calls, &slot->timer) == 0);
    slot->waits = slot->is_due = false;
}

/* --- Steps */

struct step {
    struct slot *slot;
    uint64_t deadline_ns;
    bool cancelled;
    atomic_bool done;
};

static void start(void *arg)
{
    struct step *step = arg;
    REQUIRE(fl_timer_start(step->slot->timer, step->deadline_ns) == 0);
    atomic_store(&step->done, true);
}

static void cancel(void *arg)
{
    struct step *step = arg;
    step->cancelled = fl_timer_cancel(step->slot->timer);
    atomic_store(&step->done, true);
}

/* Here, or on a worker if there is one. */
static void perform(fl_task_fn fn, struct step *step, bool on_worker)
{
    if (!on_worker || h.workers == 0) {
        fn(step);
        return;
    }
    REQUIRE(fl_runtime_spawn(h.rt, fn, step) == 0);
    AWAIT(atomic_load(&step->done));
}

static void do_start(struct slot *slot, uint64_t span_ns, bool on_worker)
{
    struct step step = {.slot = slot, .deadline_ns = atomic_load(&h.time.time_ns) + span_ns};
    perform(start, &step, on_worker);
    slot->perhaps += slot->is_due;
    slot->waits = true;
    slot->is_due = false;
    slot->deadline_ns = step.deadline_ns;
}

static void do_cancel(struct slot *slot, bool on_worker)
{
    struct step step = {.slot = slot};
    perform(cancel, &step, on_worker);
    REQUIRE(slot->is_due || step.cancelled == slot->waits);
    slot->expected += slot->is_due && !step.cancelled;
    slot->waits = slot->is_due = false;
}

static void do_let_go(struct slot *slot)
{
    if (slot->waits && !slot->is_due && h.n_orphans == MOST_ORPHANS)
        return;
    if (slot->is_due)
        slot->expected++;
    else if (slot->waits)
        h.orphans[h.n_orphans++] = (struct orphan){(unsigned)(slot - h.slots), slot->deadline_ns};
    fl_timer_unref(slot->timer);
    make_timer(slot);
}

static void do_resize(unsigned workers)
{
    REQUIRE(fl_runtime_resize(h.rt, workers) == 0);
    h.workers = workers;
}

/* --- The model */

/* With a worker, what is due may be called at any moment from now on. An orphan is out of reach: it is called for sure. */
static void mark_due(void)
{
    uint64_t now_ns = atomic_load(&h.time.time_ns);
    if (h.workers == 0)
        return;
    for (unsigned i = 0; i < SLOTS; i++)
        h.slots[i].is_due |= h.slots[i].waits && h.slots[i].deadline_ns <= now_ns;
    for (unsigned i = 0; i < h.n_orphans;)
        if (h.orphans[i].deadline_ns <= now_ns) {
            h.slots[h.orphans[i].slot].expected++;
            h.orphans[i] = h.orphans[--h.n_orphans];
        } else {
            i++;
        }
}

/* What is due has been called: no timer waits but those of the future, and no callback is on its way. */
static bool is_quiet(void)
{
    struct fl_runtime_stats stats;
    uint64_t pending = h.n_orphans, calls = 0;
    REQUIRE(fl_runtime_stats(h.rt, &stats) == 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        pending += h.slots[i].waits && !h.slots[i].is_due;
        calls += atomic_load(&h.slots[i].calls);
    }
    return stats.pending == pending && stats.fired == calls;
}

/* Without workers nothing is called, and what is due stays so. */
static void compare(void)
{
    for (unsigned n = 0; n < PATIENCE && h.workers > 0 && !is_quiet(); n++)
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    REQUIRE(h.workers == 0 || is_quiet());
    for (unsigned i = 0; i < SLOTS && h.workers > 0; i++) {
        struct slot *slot = &h.slots[i];
        unsigned calls = atomic_load(&slot->calls), least = slot->expected + slot->is_due;
        REQUIRE(calls >= least && calls <= least + slot->perhaps);
        slot->waits &= !slot->is_due;
        slot->is_due = false;
        slot->expected = calls;
        slot->perhaps = 0;
    }
}

/* Nothing is called after the end. */
static void free_and_compare(void)
{
    unsigned before[SLOTS];
    fl_runtime_free(h.rt);
    for (unsigned i = 0; i < SLOTS; i++)
        before[i] = atomic_load(&h.slots[i].calls);
    nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct slot *slot = &h.slots[i];
        REQUIRE(atomic_load(&slot->calls) == before[i]);
        REQUIRE(before[i] <= slot->expected + slot->is_due + slot->perhaps);
    }
}

static void begin(unsigned workers)
{
    memset(&h, 0, sizeof(h));
    h.time = (struct hand_clock){{hand_now, wait_a_little}, HOUR};
    h.workers = workers;
    fl_runtime_config config = {.workers = workers, .clock = &h.time.clock};
    REQUIRE(fl_runtime_new(&config, &h.rt) == 0);
    for (unsigned i = 0; i < SLOTS; i++)
        make_timer(&h.slots[i]);
}

static void take_step(uint8_t what, uint8_t how)
{
    struct slot *slot = &h.slots[how % SLOTS];
    uint64_t span_ns = spans_ns[how / SLOTS % 8];
    switch (what % 8) {
    case 0:
    case 1:
        do_start(slot, span_ns, what % 2);
        break;
    case 2:
    case 3:
        do_cancel(slot, what % 2);
        break;
    case 4:
        do_let_go(slot);
        break;
    case 5:
        do_resize(how % 4);
        break;
    case 6:
        atomic_fetch_add(&h.time.time_ns, span_ns);
        break;
    default:
        compare();
    }
}

int runtime_history(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    begin(bytes[0] % 3 + 1);
    bool always_compares = bytes[0] & 64, compares_at_end = bytes[0] & 128;
    for (size_t i = 1; i + 1 < size && i < 2 * MOST_STEPS; i += 2) {
        take_step(bytes[i], bytes[i + 1]);
        mark_due();
        if (always_compares)
            compare();
    }
    if (compares_at_end)
        compare();
    free_and_compare();
    for (unsigned i = 0; i < SLOTS; i++)
        fl_timer_unref(h.slots[i].timer);
    return 0;
}
