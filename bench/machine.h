/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BENCH_MACHINE_H
#define FOLIOT_BENCH_MACHINE_H

/* The machine a benchmark ran on, and what its memory can do at best: no timer system that touches random memory can
 * be faster than that memory. */

#include <stdbool.h>
#include <stddef.h>

struct machine {
    char cpu[128], kernel[128], compiler[64], huge_pages[32], date[32];
    unsigned processors;
    double memory_gib;
    long page_size;
    size_t span; /* bytes of the memory that the four figures below are about */
    struct machine_limits {
        double dependent_ns;   /* a load whose address comes from the load before: the latency */
        double independent_ns; /* a load whose address is known: as many at once as the processor can */
    } small_pages, large_pages;
};

/* Describes and measures; takes a few seconds for a `span` of 1 GiB, a power of two. */
void machine_look(struct machine *ret, size_t span);

#endif
