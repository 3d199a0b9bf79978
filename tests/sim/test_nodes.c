/* SPDX-License-Identifier: MIT */
/* Simulated lives of whole nodes: always the same ones, or as many as FOLIOT_LIVES says. `./dev sim` lives others. */

#include <stdlib.h>

#include "sim/nodes.h"
#include "test.h"

static void live(uint64_t seed)
{
    char failure[512];
    if (!nodes_run(seed, NULL, failure))
        test_fail(__FILE__, __LINE__, "seed 0x%" PRIx64 ": %s. Its history: ./dev sim nodes 0x%" PRIx64, seed, failure,
                  seed);
}

TEST(nodes_keep_all_promises)
{
    const char *asked = getenv("FOLIOT_LIVES");
    uint64_t lives = asked ? strtoull(asked, NULL, 10) : 200;
    for (uint64_t seed = 1; seed <= lives; seed++)
        live(seed);
}

/* Found beyond the first lives. */
TEST(lives_of_nodes_that_broke_a_promise_once_keep_them)
{
    static const uint64_t seeds[] = {
        0x113,  /* the link of one worker was down: the other server never learned of a pause */
        0x1c4,  /* a server late on the list of servers had leases, and another server did not know them */
        0xb9f,  /* a server ended before it tried to read settings again */
        0x14cd, /* a server died before it told the others of a pause that it had acknowledged */
        0x1545, /* the same */
        0xdf0,  /* all requests that waited for a shard had failed, and the first of them was tried */
        0xf6d,  /* the same */
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        live(seeds[i]);
}

/* Few lives find some of the deliberate bugs (mutants.sh). These do. */
TEST(lives_of_nodes_that_find_rare_bugs)
{
    static const uint64_t seeds[] = {
        0xf3,  /* ack-bits-mixed */
        0xe6,  /* begun-without-asking */
        0x898, /* paused-is-delivered */
        0xbba, /* pause-not-read */
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        live(seeds[i]);
}
