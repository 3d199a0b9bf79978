/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_WHEEL_ALLOCATOR_H
#define FOLIOT_TESTS_WHEEL_ALLOCATOR_H

/* An allocator for tests of the wheel: it counts what the library holds and fails where it is told to.
 *
 *     memory_install();
 *     memory_fail(7, false);      // the seventh allocation from here on fails, and that one only
 *     ... make a wheel, use it, free it ...
 *     CHECK(memory.failed > 0);
 *     memory_remove();            // aborts if something was not given back
 *
 * Allocating, resizing and mapping count alike: each is a moment at which there may be no memory.
 */

#include <stdbool.h>
#include <stdint.h>

struct memory {
    uint64_t bytes;    /* what the library holds */
    uint64_t mapped;   /* how much of it in mappings: they have no memory where they were not touched */
    uint64_t blocks;   /* in how many pieces */
    uint64_t requests; /* allocations, resizings and mappings so far, failed ones too */
    uint64_t failed;   /* how many of them failed */
    uint64_t fail_in;  /* the request that fails, counted from now; 0: none */
    bool fail_on;      /* and all after it */
    bool installed;
};

extern struct memory memory;

void memory_install(void);
void memory_remove(void);
void memory_fail(uint64_t fail_in, bool fail_on); /* 0: nothing fails any more */

#endif
