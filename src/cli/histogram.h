/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_CLI_HISTOGRAM_H
#define FOLIOT_CLI_HISTOGRAM_H

/* Percentiles of durations in constant memory: each power of two is cut into 16 equal buckets, so that a percentile is
 * at most 1/16 above the true value. The zero value is an empty histogram. */

#include <stdint.h>

#define HISTOGRAM_BUCKETS (61 * 16)

struct histogram {
    uint64_t count, max;
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that `percent` of all values do not exceed; 0 if there are none. */
uint64_t histogram_percentile(const struct histogram *h, double percent);

#endif
