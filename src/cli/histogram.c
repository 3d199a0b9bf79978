/* SPDX-License-Identifier: MIT */
/* Values below 16 have a bucket each. Above, the bucket is the position of the highest bit and the 4 bits below it:
 * value >> shift is in 16..31, so shift * 16 + (value >> shift) counts up without a gap from the first 16. */

#include "cli/histogram.h"

static unsigned bucket_of(uint64_t value)
{
    if (value < 16)
        return (unsigned)value;
    unsigned shift = 59 - (unsigned)__builtin_clzll(value);
    return shift * 16 + (unsigned)(value >> shift);
}

static uint64_t highest_in(unsigned bucket)
{
    if (bucket < 16)
        return bucket;
    unsigned shift = bucket / 16 - 1;
    uint64_t lowest = (uint64_t)(bucket % 16 + 16) << shift;
    return lowest + ((uint64_t)1 << shift) - 1;
}

void histogram_add(struct histogram *h, uint64_t value)
{
    h->count++;
    h->bucket[bucket_of(value)]++;
    if (value > h->max)
        h->max = value;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    into->count += from->count;
    if (from->max > into->max)
        into->max = from->max;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

uint64_t histogram_percentile(const struct histogram *h, double percent)
{
    double wanted = (double)h->count * percent / 100;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (h->bucket[i] > 0 && (double)seen >= wanted)
            return highest_in(i) < h->max ? highest_in(i) : h->max;
    }
    return h->max;
}
