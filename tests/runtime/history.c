/* SPDX-License-Identifier: MIT */
/* The runtime against a model, on a clock that only the history moves.
 *
 * A history starts, moves, cancels and lets go of timers, from outside and on workers, lets time pass, and changes the
 * number of workers, down to none. After each step everything that is due has to be called before the next one begins,
 * so that the model, which knows nothing of threads, can say how often each timer must have been called by then, and
 * what each cancel returns. */

#include "runtime/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

enum { SLOTS = 6, MOST_ORPHANS = 64, MOST_STEPS = 200, PATIENCE = 200000 };

struct slot {
    fl_timer *timer;
    bool waits;
    uint64_t deadline_ns;
    unsigned expected;
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
    slot->waits = false;
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
    slot->waits = true;
    slot->deadline_ns = step.deadline_ns;
}

static void do_cancel(struct slot *slot, bool on_worker)
{
    struct step step = {.slot = slot};
    perform(cancel, &step, on_worker);
    REQUIRE(step.cancelled == slot->waits);
    slot->waits = false;
}

static void do_let_go(struct slot *slot)
{
    if (slot->waits && h.n_orphans == MOST_ORPHANS)
        return;
    if (slot->waits)
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

static void expect_what_is_due(void)
{
    uint64_t now_ns = atomic_load(&h.time.time_ns);
    for (unsigned i = 0; i < SLOTS; i++)
        if (h.slots[i].waits && h.slots[i].deadline_ns <= now_ns) {
            h.slots[i].waits = false;
            h.slots[i].expected++;
        }
    for (unsigned i = 0; i < h.n_orphans;)
        if (h.orphans[i].deadline_ns <= now_ns) {
            h.slots[h.orphans[i].slot].expected++;
            h.orphans[i] = h.orphans[--h.n_orphans];
        } else {
            i++;
        }
}

static void compare(void)
{
    if (h.workers > 0)
        expect_what_is_due();
    for (unsigned i = 0; i < SLOTS; i++) {
        for (unsigned n = 0; n < PATIENCE && atomic_load(&h.slots[i].calls) < h.slots[i].expected; n++)
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        REQUIRE(atomic_load(&h.slots[i].calls) == h.slots[i].expected);
    }
}

static void compare_pending(void)
{
    uint64_t pending = h.n_orphans;
    for (unsigned i = 0; i < SLOTS; i++)
        pending += h.slots[i].waits;
    struct fl_runtime_stats stats;
    REQUIRE(fl_runtime_stats(h.rt, &stats) == 0 && stats.pending == pending);
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
    default:
        atomic_fetch_add(&h.time.time_ns, span_ns);
    }
}

int runtime_history(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    begin(bytes[0] % 3 + 1);
    for (size_t i = 1; i + 1 < size && i < 2 * MOST_STEPS; i += 2) {
        take_step(bytes[i], bytes[i + 1]);
        compare();
    }
    compare_pending();
    fl_runtime_free(h.rt);
    h.workers = 0;
    compare(); /* nothing is called after the end */
    for (unsigned i = 0; i < SLOTS; i++)
        fl_timer_unref(h.slots[i].timer);
    return 0;
}
