/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_RESULTS_H
#define FOLIOT_BENCH_RESULTS_H

/* What was measured, between the part that runs benchmarks (frame.c) and the part that tells about them (report.c). */

#include <stdio.h>

#include "frame.h"
#include "machine.h"

#define BENCH_MAX 16 /* rivals, measures or sizes */

struct results {
    const struct bench *bench;
    unsigned rivals[BENCH_MAX], measures[BENCH_MAX]; /* those that were chosen, in the order of the benchmark */
    size_t sizes[BENCH_MAX];
    unsigned n_rivals, n_measures, n_sizes;
    double best[BENCH_MAX][BENCH_MAX][BENCH_MAX]; /* measure, size, rival; NAN where nothing was measured */
    unsigned runs[BENCH_MAX][BENCH_MAX][BENCH_MAX];
    unsigned rounds;
    double seconds; /* that everything took */
    bool quick;
    struct machine machine;
};

/* The best value, or NAN. A measure of fixed size has the same value in every column. */
double results_value(const struct results *r, unsigned measure, unsigned size_index, unsigned rival);
unsigned results_runs(const struct results *r, unsigned measure, unsigned size_index, unsigned rival);
int results_find_measure(const struct bench *bench, const char *id); /* index or -1 */
/* "1 k", "10 M" */
const char *results_size_name(size_t size, char buffer[16]);

/* Each writes its part; the last two return false, having said why, if a file cannot be written. */
void report_table(const struct results *r, FILE *out);
bool report_json(const struct results *r, const char *directory);
bool report_page(const struct results *r, const char *directory); /* with its charts */

#endif
