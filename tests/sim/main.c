/* SPDX-License-Identifier: MIT */
/* sim SECONDS       as many lives as fit, with seeds that nobody has seen
 * sim 0xSEED        one life again, with its history */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "sim/sim.h"

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* On a terminal only. */
static void show(double part, uint64_t lives)
{
    enum { WIDTH = 40 };
    char bar[WIDTH + 1];
    size_t full = (size_t)(part < 1 ? part * WIDTH : WIDTH);
    if (!isatty(STDOUT_FILENO))
        return;
    memset(bar, '.', WIDTH);
    memset(bar, '#', full);
    bar[WIDTH] = 0;
    printf("\r[%s] %" PRIu64 " lives", bar, lives);
    fflush(stdout);
}

static int live_for(double seconds)
{
    char failure[512];
    uint64_t seed, lives = 0;
    double began = now_s(), shown = 0;
    if (getrandom(&seed, sizeof seed, 0) < 0)
        seed = (uint64_t)time(NULL);
    seed >>= 16; /* shorter to type */
    for (double now = began; now - began < seconds; now = now_s(), lives++) {
        if (now - shown > 0.1) {
            show((now - began) / seconds, lives);
            shown = now;
        }
        if (!sim_run(++seed, NULL, failure)) {
            printf("\nseed 0x%" PRIx64 ": %s\nAgain, with its history: ./dev sim 0x%" PRIx64 "\n", seed, failure, seed);
            return 1;
        }
    }
    show(1, lives);
    printf("%s%" PRIu64 " lives, all promises kept\n", isatty(STDOUT_FILENO) ? "\n" : "", lives);
    return 0;
}

static int live_again(uint64_t seed)
{
    char failure[512];
    bool good = sim_run(seed, stdout, failure);
    printf("seed 0x%" PRIx64 ": %s\n", seed, good ? "all promises kept" : failure);
    return !good;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2) {
        fprintf(stderr, "usage: sim SECONDS | 0xSEED\n");
        return 2;
    }
    if (strncmp(argv[1], "0x", 2) == 0)
        return live_again(strtoull(argv[1], NULL, 16));
    return live_for(strtod(argv[1], NULL));
}
