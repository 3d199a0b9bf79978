/* SPDX-License-Identifier: MIT */
/* Random lives of a runtime: see history.c. */

#include "rt.h"
#include "runtime/history.h"

enum { HISTORIES = 100, BYTES = 201 };

TEST(whatever_is_done_each_timer_is_called_as_the_model_says)
{
    uint64_t state = 1;
    for (unsigned n = 0; n < HISTORIES; n++) {
        uint8_t bytes[BYTES];
        for (unsigned i = 0; i < BYTES; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (uint8_t)(state >> 56);
        }
        runtime_history(bytes, sizeof(bytes));
    }
}
