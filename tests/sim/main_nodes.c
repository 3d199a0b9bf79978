/* SPDX-License-Identifier: MIT */
/* One simulated life of whole nodes, with its history: `./dev sim nodes 0xSEED`. */

#include <inttypes.h>
#include <stdlib.h>

#include "sim/nodes.h"

int main(int argc, char **argv)
{
    char failure[512];
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 16) : 1;
    bool good = nodes_run(seed, stdout, failure);
    printf("seed 0x%" PRIx64 ": %s\n", seed, good ? "all promises kept" : failure);
    return !good;
}
