/* SPDX-License-Identifier: MIT */
/* sim: lives lives. `sim SEED` one, with its history; `sim FIRST COUNT` many. */

#include <inttypes.h>
#include <stdlib.h>

#include "sim/sim.h"

int main(int argc, char **argv)
{
    char failure[512];
    setvbuf(stdout, NULL, _IOLBF, 0);
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    for (uint64_t seed = first; seed < first + count; seed++)
        if (!sim_run(seed, argc == 2 ? stdout : NULL, failure)) {
            printf("seed %" PRIu64 ": %s\n", seed, failure);
            fflush(stdout);
            if (argc < 4)
                return 1;
        }
    return 0;
}
