/* SPDX-License-Identifier: MIT */
/* sim: lives lives of an engine.
 *
 *     sim FIRST COUNT        those with these seeds; ends at the first that fails
 *     sim --seconds COUNT    others every time, for so long, with a bar on a terminal
 *     sim --seed SEED        one, with its history
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/sim.h"

static bool live(uint64_t seed, FILE *trace)
{
    char failure[512];
    if (sim_run(seed, trace, failure))
        return true;
    printf("seed 0x%" PRIx64 ": %s\n", seed, failure);
    return false;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void show_bar(double part, uint64_t lives)
{
    enum { WIDTH = 40 };
    int full = (int)(part * WIDTH);
    printf("\r[%.*s%*s] %" PRIu64 " lives", full, "########################################", WIDTH - full, "", lives);
    fflush(stdout);
}

static int live_for(double seconds)
{
    double begin_s = now_s();
    uint64_t first = (uint64_t)time(NULL) << 20, lives = 0;
    bool terminal = isatty(STDOUT_FILENO);
    for (; now_s() - begin_s < seconds; lives++) {
        if (terminal && lives % 20 == 0)
            show_bar((now_s() - begin_s) / seconds, lives);
        if (!live(first + lives, NULL)) {
            printf("its history: ./dev sim 0x%" PRIx64 "\n", first + lives);
            return 1;
        }
    }
    printf("%s%" PRIu64 " lives, all promises kept\n", terminal ? "\r\033[K" : "", lives);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: sim FIRST COUNT | sim --seconds COUNT | sim --seed SEED\n");
        return 2;
    }
    if (strcmp(argv[1], "--seconds") == 0)
        return live_for(strtod(argv[2], NULL));
    if (strcmp(argv[1], "--seed") == 0)
        return !live(strtoull(argv[2], NULL, 0), stdout);
    uint64_t first = strtoull(argv[1], NULL, 0), count = strtoull(argv[2], NULL, 0);
    for (uint64_t seed = first; seed < first + count; seed++)
        if (!live(seed, NULL))
            return 1;
    return 0;
}
