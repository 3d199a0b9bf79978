/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_COUNTER_H
#define FOLIOT_BASE_COUNTER_H

/* Counters with one writer and any number of readers. Each is read on its own, while its writer goes on. */

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t counter;

static inline uint64_t counter_read(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void counter_set(counter *c, uint64_t value)
{
    atomic_store_explicit(c, value, memory_order_relaxed);
}

static inline void counter_add(counter *c, uint64_t n)
{
    counter_set(c, counter_read(c) + n);
}

static inline void counter_raise(counter *c, uint64_t value)
{
    if (value > counter_read(c))
        counter_set(c, value);
}

#endif
