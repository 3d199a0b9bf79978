/* SPDX-License-Identifier: MIT */
/* Random lives of coroutines: see history.c. */

#include "coro/history.h"
#include "test.h"

enum { HISTORIES = 2000, BYTES = 600 };

TEST(whatever_coroutines_do_they_go_on_when_the_model_says)
{
    uint64_t state = 1;
    for (unsigned n = 0; n < HISTORIES; n++) {
        uint8_t bytes[BYTES];
        for (unsigned i = 0; i < BYTES; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (uint8_t)(state >> 56);
        }
        coro_history(bytes, sizeof(bytes));
    }
}
