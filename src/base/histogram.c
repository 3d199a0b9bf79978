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
    uint64_t wanted = h->count / 1000 * permille + (h->count % 1000 * permille + 999) / 1000, seen = 0;
    if (wanted == 0)
        return h->min;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        seen += h->bucket[i];
        if (seen >= wanted)
            return bucket_end(i) < h->max ? bucket_end(i) : h->max;
    }
    return h->max;
}

void fl__histogram_merge(struct histogram *into, const struct histogram *from)
{
    if (from->count == 0)
        return;
    if (from->min < into->min || into->count == 0)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
    into->count += from->count;
    into->sum += from->sum;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}
