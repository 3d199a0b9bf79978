/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_WHEEL_REFS_H
#define FOLIOT_WHEEL_REFS_H

/* References to timers, and the three things done with them: append, sort, keep as a heap.
 *
 * A reference is an entry in an index, not the timer: the timer lives in a slot of its spoke and may be cancelled at
 * any time without its references being told. Whoever takes one looks the ID up first; a dead ID is passed over. So an
 * index may hold dead references and even the same one twice; it only must not lack a living one. It has all that is to
 * be known of the timer, so that the slot need not be visited when the timer fires. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/wheel.h>

struct ref {
    uint64_t deadline_ns;
    fl_timer_id id;
    void *data;
};

struct refs {
    struct ref *items;
    uint32_t length, capacity;
};

/* Orders timers with equal deadlines as they were scheduled: see "Order" in wheel.c. */
static inline uint64_t fl__rank(fl_timer_id id)
{
    return id ^ 3ull << 62;
}

static inline bool fl__ref_before(const struct ref *a, const struct ref *b)
{
    return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : fl__rank(a->id) < fl__rank(b->id);
}

/* Makes room for `more` references; false if there is no memory, or none left to count them. */
bool fl__refs_grow(struct refs *refs, size_t more);

static inline bool fl__refs_reserve(struct refs *refs, size_t more)
{
    return refs->capacity - refs->length >= more || fl__refs_grow(refs, more);
}

void fl__refs_release(struct refs *refs);
void fl__refs_shrink(struct refs *refs); /* gives back what it has room for beyond its length, if it can */
void fl__refs_relax(struct refs *refs);  /* the same, with room to grow, if much of it is idle */

/* Sorts `count` references into `items`; `scratch` has room for as many. */
void fl__refs_sort(struct ref *items, size_t count, struct ref *scratch);

/* A heap with the earliest reference first. Pushing needs room to have been reserved. */
void fl__heap_build(struct refs *refs);
void fl__heap_push(struct refs *refs, struct ref ref);
void fl__heap_remove(struct refs *refs, uint32_t at);

static inline void fl__heap_pop(struct refs *refs)
{
    fl__heap_remove(refs, 0);
}

#endif
