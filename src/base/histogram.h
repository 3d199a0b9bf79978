/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_HISTOGRAM_H
#define FOLIOT_BASE_HISTOGRAM_H

/* A histogram of durations that is cheap enough to be always on: adding is a count of leading zeros and an increment.
 *
 * Buckets are linear within a power of two: below 16 ns one per nanosecond, above that 16 per doubling, so a bucket is at
 * most 1/16 as wide as its values are large. The greatest is known exactly, and so are the least and the mean. The zero
 * value is an empty histogram. One thread adds to it, and any thread may read it meanwhile.
 */

#include <stdint.h>

#include "base/alloc.h" /* FL__SHARED */
#include "base/counter.h"

enum {
    HISTOGRAM_STEP_BITS = 4,
    HISTOGRAM_STEPS = 1 << HISTOGRAM_STEP_BITS,
    HISTOGRAM_BUCKETS = (64 - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS,
};

struct histogram {
    counter count, min, max;
    counter sum, carried; /* carried: how often the sum has exceeded 64 bits */
    counter bucket[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value)
{
    if (value < HISTOGRAM_STEPS)
        return value;
    unsigned shift = 63 - __builtin_clzll(value) - HISTOGRAM_STEP_BITS;
    return (shift + 1) * HISTOGRAM_STEPS + ((value >> shift) & (HISTOGRAM_STEPS - 1));
}

static inline void histogram_add(struct histogram *h, uint64_t value)
{
    if (value < counter_read(&h->min) || counter_read(&h->count) == 0)
        counter_set(&h->min, value);
    counter_raise(&h->max, value);
    counter_add(&h->count, 1);
    counter_add(&h->sum, value);
    counter_add(&h->carried, counter_read(&h->sum) < value);
    counter_add(&h->bucket[histogram_bucket(value)], 1);
}

/* The least value that at least `permille` of 1000 values do not exceed, rounded up to the end of its bucket, but not
 * beyond the greatest value; 0 if there is none. */
FL__SHARED uint64_t fl__histogram_permille(const struct histogram *h, unsigned permille);

/* The mean; 0 without values. */
FL__SHARED uint64_t fl__histogram_mean(const struct histogram *h);

/* Adds what is in `from`. */
void fl__histogram_merge(struct histogram *into, const struct histogram *from);

/* Fills a structure with the members of fl_loop_summary, which this layer does not know. */
#define fl__histogram_summary(h, ret)                        \
    ((void)(*(ret) = (__typeof__(*(ret))){                   \
                .count = counter_read(&(h)->count),          \
                .min_ns = counter_read(&(h)->min),           \
                .mean_ns = fl__histogram_mean((h)),          \
                .p50_ns = fl__histogram_permille((h), 500),  \
                .p90_ns = fl__histogram_permille((h), 900),  \
                .p99_ns = fl__histogram_permille((h), 990),  \
                .p999_ns = fl__histogram_permille((h), 999), \
                .max_ns = counter_read(&(h)->max),           \
            }))

#endif
