/* SPDX-License-Identifier: MIT */
/* Simulated lives of whole nodes: always the same ones, or as many as FOLIOT_LIVES says. `./dev sim` lives others. */

#include <stdlib.h>

#include "sim/nodes.h"
#include "test.h"

TEST(nodes_keep_all_promises)
{
    const char *asked = getenv("FOLIOT_LIVES");
    uint64_t lives = asked ? strtoull(asked, NULL, 10) : 200;
    char failure[512];
    for (uint64_t seed = 1; seed <= lives; seed++)
        if (!nodes_run(seed, NULL, failure))
            test_fail(__FILE__, __LINE__, "seed 0x%" PRIx64 ": %s. Its history: ./dev sim nodes 0x%" PRIx64, seed,
                      failure, seed);
}
