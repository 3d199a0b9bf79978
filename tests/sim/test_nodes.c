/* SPDX-License-Identifier: MIT */
/* Simulated lives of whole nodes: always the same ones, or as many as FOLIOT_LIVES says. `./dev soak` lives many. */

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

static uint64_t lives_of(uint64_t usual)
{
    const char *asked = getenv("FOLIOT_LIVES");
    return asked ? strtoull(asked, NULL, 10) : usual;
}

TEST(nodes_keep_all_promises)
{
    for (uint64_t seed = 1; seed <= lives_of(200); seed++)
        live(seed);
}

TEST(nodes_with_unusual_settings_keep_all_promises)
{
    for (uint64_t seed = 1; seed <= lives_of(40); seed++)
        live(NODES_WIDE | seed);
}

TEST(nodes_whose_clients_change_everything_keep_all_promises)
{
    for (uint64_t seed = 1; seed <= lives_of(40); seed++)
        live((seed % 2 ? NODES_WIDE : 0) | NODES_EDITS | seed);
}

/* Found beyond the first lives. */
TEST(lives_of_nodes_that_broke_a_promise_once_keep_them)
{
    static const uint64_t seeds[] = {
        0x113,               /* the link of one worker was down: the other server never learned of a pause */
        0x1c4,               /* a server late on the list of servers had leases, and another server did not know them */
        0xb9f,               /* a server ended before it tried to read settings again */
        0x14cd,              /* a server died before it told the others of a pause that it had acknowledged */
        0x1545,              /* the same */
        0xdf0,               /* all requests that waited for a shard had failed, and the first of them was tried */
        0xf6d,               /* the same */
        NODES_WIDE | 0x113,  /* a parked timer was done right before its server gave up the shard */
        NODES_WIDE | 0x12db, /* looking ahead stopped: more timers than a load brings were under way */
        NODES_WIDE | 0x1346, /* a server that was not linked fired with settings that it had read long before */
        NODES_EDITS | 0x5c6, /* a change that was asked for before the settings were read made them be ignored */
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
