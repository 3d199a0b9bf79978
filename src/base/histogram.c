/* SPDX-License-Identifier: MIT */
/* Reading a histogram: see histogram.h. */

#include "base/histogram.h"

/* The greatest value that falls into a bucket. */
static uint64_t bucket_end(unsigned bucket)
{
    if (bucket < HISTOGRAM_STEPS)
        return bucket;
    unsigned shift = bucket / HISTOGRAM_STEPS - 1;
    uint64_t step = HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS;
    return ((step + 1) << shift) - 1;
}

uint64_t fl__histogram_permille(const struct histogram *h, unsigned permille)
{
    uint64_t count = counter_read(&h->count), max = counter_read(&h->max), seen = 0;
    uint64_t wanted = count / 1000 * permille + (count % 1000 * permille + 999) / 1000;
    if (wanted == 0)
        return counter_read(&h->min);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        seen += counter_read(&h->bucket[i]);
        if (seen >= wanted)
            return bucket_end(i) < max ? bucket_end(i) : max;
    }
    return max;
}

uint64_t fl__histogram_mean(const struct histogram *h)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t count = counter_read(&h->count);
    wide sum = (wide)counter_read(&h->carried) << 64 | counter_read(&h->sum);
    return count ? (uint64_t)(sum / count) : 0;
}

void fl__histogram_merge(struct histogram *into, const struct histogram *from)
{
    uint64_t count = counter_read(&from->count), min = counter_read(&from->min), sum = counter_read(&from->sum);
    if (count == 0)
        return;
    if (min < counter_read(&into->min) || counter_read(&into->count) == 0)
        counter_set(&into->min, min);
    counter_raise(&into->max, counter_read(&from->max));
    counter_add(&into->count, count);
    counter_add(&into->sum, sum);
    counter_add(&into->carried, counter_read(&from->carried) + (counter_read(&into->sum) < sum));
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        counter_add(&into->bucket[i], counter_read(&from->bucket[i]));
}
