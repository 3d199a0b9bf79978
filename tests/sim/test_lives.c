/* SPDX-License-Identifier: MIT */
/* A thousand simulated lives of the engine, always the same ones. `./dev sim` lives others. */

#include "sim/sim.h"
#include "test.h"

TEST(in_a_thousand_lives_all_promises_are_kept)
{
    char failure[512];
    for (uint64_t seed = 1; seed <= 1000; seed++)
        if (!sim_run(seed, NULL, failure))
            test_fail(__FILE__, __LINE__, "seed 0x%" PRIx64 ": %s. Its history: ./dev sim 0x%" PRIx64, seed, failure,
                      seed);
}
