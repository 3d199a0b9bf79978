/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_RUNTIME_HANDLE_H
#define FOLIOT_RUNTIME_HANDLE_H

/* A timer's handle: one atomic word that says everything on which threads must agree.
 *
 *     63        28 27       3 2    0
 *     generation   references state
 *
 * The generation counts starts. The state says what has become of the last one. Every change is one compare-and-swap of
 * the whole word, so of cancelling, firing, starting anew and moving exactly one wins, and the others see why they lost. What lies
 * in a wheel or is on its way to one carries the generation of its start; if the word has another one, it is stale.
 *
 * References are in the same word because each change of state on the fast path also takes or drops one: starting and
 * cancelling cost one locked instruction each. The caller holds some; each entry in a wheel and each record of a start
 * holds one, so a stale one can always look at the word.
 *
 * Moves (same generation); starting is allowed in every state and leads to a new generation:
 *
 *     start ──> SCHEDULED ──> FIRING ──> FIRED
 *                 │   ^ │
 *     leaving     v   │ └──> CANCELLED     MIGRATING means: on its way to a wheel, in a mailbox or in the
 *     start ──> MIGRATING ────────^        merge queue. It cannot fire, but it can be cancelled.
 *
 * `place` says in which wheel the timer was last seen. It is a hint: the worker finds its own entry with it, and
 * others count what they leave behind there. The worker verifies it against its table before it believes it. It is written
 * before the word says SCHEDULED, so that a thread that sees SCHEDULED finds a place. Of workers that start a timer at the same moment, the
 * last to write it need not be the last to change the word. But each counts the entry that it has displaced from there, and
 * so each entry is counted once, now or when the next one displaces it.
 *
 * Starts from outside. A start that another thread has to take in is a record with generation and deadline, in `start`.
 * While there is one, `carrier` is on its way to a worker, which takes out the record that it finds then. So a thread that
 * starts a timer that is on its way already replaces the record by its own and sends nothing. Two threads that start the
 * timer at once may put their records there in the wrong order: the thread that gets a later record back in exchange puts
 * that in again. A carrier is under way exactly while there is a record: the thread that puts the first record sends it.
 *
 * 36 bits of generation: for a stale entry to look fresh, the same timer would have to be started exactly 2^36 times
 * while the entry is in a wheel, an hour of nothing else.
 */

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <foliot/runtime.h>

#include "runtime/runtime.h"

enum timer_state {
    TIMER_IDLE,      /* never started */
    TIMER_SCHEDULED, /* in a worker's wheel */
    TIMER_MIGRATING, /* on its way to one */
    TIMER_FIRING,    /* its callback is about to run or runs */
    TIMER_FIRED,
    TIMER_CANCELLED,
    TIMER_STATES
};

enum {
    TIMER_STATE_BITS = 3,
    TIMER_REFERENCE_BITS = 25,
    TIMER_GENERATION_BITS = 64 - TIMER_STATE_BITS - TIMER_REFERENCE_BITS,
    TIMER_GENERATION_SHIFT = TIMER_STATE_BITS + TIMER_REFERENCE_BITS,
    TIMER_MAX_REFERENCES = (1 << TIMER_REFERENCE_BITS) - 1,
    TIMER_BYTES = 64, /* a cache line each */
};

#define TIMER_REFERENCE (1ull << TIMER_STATE_BITS)
#define TIMER_GENERATION (1ull << TIMER_GENERATION_SHIFT)

/* A start on its way to a worker. */
struct timer_start {
    uint64_t generation;
    uint64_t target_ns;
};

struct fl_timer {
    _Atomic uint64_t word;
    _Atomic uint64_t place; /* where it was last put; 0: nowhere yet */
    fl_runtime *rt;
    fl_task_fn fn;
    void *arg;
    _Atomic(struct timer_start *) start; /* NULL: none is on its way */
    struct fl__message carrier;
};

_Static_assert(sizeof(struct fl_timer) <= TIMER_BYTES, "a handle fits");

static inline enum timer_state word_state(uint64_t word)
{
    return (enum timer_state)(word & (TIMER_REFERENCE - 1));
}

static inline uint32_t word_references(uint64_t word)
{
    return (uint32_t)(word >> TIMER_STATE_BITS) & TIMER_MAX_REFERENCES;
}

static inline uint64_t word_generation(uint64_t word)
{
    return word >> TIMER_GENERATION_SHIFT;
}

/* Whether generation `a` was given after `b`. */
static inline bool generation_is_later(uint64_t a, uint64_t b)
{
    return (int64_t)((a - b) << TIMER_GENERATION_SHIFT) > 0;
}

/* It has been started, and will fire unless something else happens first. */
static inline bool word_waits(uint64_t word)
{
    return word_state(word) == TIMER_SCHEDULED || word_state(word) == TIMER_MIGRATING;
}

/* The table of the picture above: for each state, the states that may follow in the same generation. */
static inline bool move_is_allowed(enum timer_state from, enum timer_state to)
{
    static const uint8_t allowed[TIMER_STATES] = {
        [TIMER_SCHEDULED] = 1 << TIMER_MIGRATING | 1 << TIMER_FIRING | 1 << TIMER_CANCELLED,
        [TIMER_MIGRATING] = 1 << TIMER_SCHEDULED | 1 << TIMER_CANCELLED,
        [TIMER_FIRING] = 1 << TIMER_FIRED,
    };
    return allowed[from] >> to & 1;
}

/* One attempt to change the word, which is believed to be *word; if it was not, *word is what it is now. */
static inline bool timer_swap(fl_timer *t, uint64_t *word, uint64_t next)
{
    assert(word_references(*word) > 0);
    return atomic_compare_exchange_weak_explicit(&t->word, word, next, memory_order_acq_rel, memory_order_acquire);
}

static inline uint64_t timer_word(const fl_timer *t)
{
    return atomic_load_explicit(&t->word, memory_order_acquire);
}

/* The same start, in another state, with more or fewer references. */
static inline bool timer_move(fl_timer *t, uint64_t *word, enum timer_state to, int references)
{
    assert(move_is_allowed(word_state(*word), to));
    uint64_t next = (*word & ~(TIMER_REFERENCE - 1)) | to;
    return timer_swap(t, word, next + (uint64_t)(int64_t)references * TIMER_REFERENCE);
}

/* A new start. */
static inline bool timer_restart(fl_timer *t, uint64_t *word, enum timer_state to, int references)
{
    assert(to == TIMER_SCHEDULED || to == TIMER_MIGRATING);
    uint64_t next = ((*word + TIMER_GENERATION) & ~(TIMER_REFERENCE - 1)) | to;
    return timer_swap(t, word, next + (uint64_t)(int64_t)references * TIMER_REFERENCE);
}

/* --- place: the worker, which of its shelves, and the slot there, which has 31 bits */

#define PLACE_COMMON (1u << 31)

static inline uint64_t make_place(unsigned worker, bool common, uint32_t slot)
{
    return (uint64_t)(worker + 1) << 32 | (common ? PLACE_COMMON : 0) | slot;
}

static inline uint64_t timer_place(const fl_timer *t)
{
    return atomic_load_explicit(&t->place, memory_order_relaxed);
}

static inline uint64_t timer_exchange_place(fl_timer *t, uint64_t place)
{
    return atomic_exchange_explicit(&t->place, place, memory_order_relaxed);
}

static inline void timer_set_place(fl_timer *t, uint64_t place)
{
    atomic_store_explicit(&t->place, place, memory_order_relaxed);
}

#endif
