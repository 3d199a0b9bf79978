/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_WHEEL_MODEL_H
#define FOLIOT_TESTS_WHEEL_MODEL_H

/* A wheel and its model, side by side.
 *
 * The model is the contract in its simplest form: an array of timers sorted by deadline and, among equals, by the order
 * in which they were scheduled. Every operation below is done to both. Where the wheel answers other than the model
 * expects, the program says what was asked, what came and what should have come, and aborts. The tests of the wheel are
 * written in these operations, so each of them checks everything, whatever its own point is.
 *
 *     struct twin t;
 *     fl_timer_id id;
 *     twin_new(&t, NULL);
 *     twin_schedule(&t, 20 * MILLISECOND, &id);
 *     twin_poll(&t, 25 * MILLISECOND, 64);     // aborts unless exactly that timer comes out
 *     twin_free(&t);
 *
 * Memory comes from the allocator of allocator.h while a twin exists, so there is one twin at a time: twin_new() installs
 * it unless the test did, to make allocations fail; twin_free() and a failed twin_new() remove it. After an allocation
 * failed, an operation that may answer FL_NO_MEMORY may do so, and must then have changed nothing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/wheel.h>

struct model_timer {
    uint64_t deadline_ns;
    uint64_t order; /* rises with every timer scheduled */
    fl_timer_id id;
    void *data;
};

/* All IDs there ever were: an ID must never come twice. */
struct known_id {
    fl_timer_id id; /* 0: an empty place in the table */
    uint64_t deadline_ns;
    uint64_t order;
    bool lives;
};

struct twin {
    fl_wheel *wheel;
    fl_wheel_config config; /* with the defaults filled in */
    uint64_t now_ns;

    struct model_timer *timers; /* sorted; the first `head` places are free */
    size_t head, count, capacity;
    uint64_t order;

    struct known_id *known;
    size_t known_count, known_capacity;
    fl_timer_id *dead;
    size_t dead_count, dead_capacity;

    fl_expired *out; /* what the last poll brought */
    size_t out_capacity;

    uint64_t operations;
    uint64_t unchecked; /* operations since fl_wheel_check() */
    bool lazy_checks;   /* check a large wheel after every few operations only */
    bool in_burst;      /* whoever does the operations calls for checks too */
    bool trace;         /* print every operation */
};

/* Printed with every deviation: the seed, for example. */
extern char model_context[128];

int twin_new(struct twin *t, const fl_wheel_config *config); /* 0, or FL_NO_MEMORY if an allocation failed */
void twin_free(struct twin *t);

int twin_schedule(struct twin *t, uint64_t deadline_ns, fl_timer_id *ret_id);
int twin_best_fit(struct twin *t, uint64_t target_ns, fl_timer_id *ret_id, uint64_t *ret_wheel_deadline_ns);
int twin_reschedule(struct twin *t, fl_timer_id id, uint64_t deadline_ns, fl_timer_id *ret_id);
int twin_reschedule_best_fit(struct twin *t, fl_timer_id id, uint64_t target_ns, fl_timer_id *ret_id);
int twin_set_data(struct twin *t, fl_timer_id id);
void twin_visit(struct twin *t);
int twin_cancel(struct twin *t, fl_timer_id id);
size_t twin_poll(struct twin *t, uint64_t now_ns, size_t limit); /* what came is in t->out */
bool twin_next_deadline(struct twin *t, uint64_t *ret_ns);
void twin_compact(struct twin *t);
void twin_clear(struct twin *t);

/* Every invariant of the wheel, the counters, the statistics. The operations call it by themselves. */
void twin_check(struct twin *t);
void twin_check_now_and_then(struct twin *t); /* unless the last time was only a few operations ago */

/* The timer of a rank: 0 is the earliest. */
const struct model_timer *twin_timer(const struct twin *t, size_t rank);

/* Runs the history that `bytes` spell, whatever they are; aborts where wheel and model differ. Returns 0. */
int wheel_history(const uint8_t *bytes, size_t size);

#endif
