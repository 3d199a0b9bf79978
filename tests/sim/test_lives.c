/* SPDX-License-Identifier: MIT */
/* Simulated lives of the engine, and every fourth of a fleet of servers: always the same ones, or as many as FOLIOT_LIVES
 * says. `./dev sim` lives others. */

#include <stdlib.h>

#include "sim/sim.h"
#include "test.h"

static void live(uint64_t seed)
{
    char failure[512];
    if (!sim_run(seed, NULL, failure))
        test_fail(__FILE__, __LINE__, "seed 0x%" PRIx64 ": %s. Its history: ./dev sim 0x%" PRIx64, seed, failure, seed);
}

TEST(in_many_lives_all_promises_are_kept)
{
    const char *asked = getenv("FOLIOT_LIVES");
    uint64_t lives = asked ? strtoull(asked, NULL, 10) : 1400;
    for (uint64_t seed = 1; seed <= lives; seed++)
        live(seed);
}

/* Found by `./dev sim`, and too rare for the first thousand. */
TEST(lives_that_broke_a_promise_once_keep_them)
{
    static const uint64_t seeds[] = {
        0x5bf02edd42ec, /* the clock was set back while a window was being filed again */
        0x187f,         /* the first load failed, with nothing near: the engine was not ready until something was */
        0x72eba5f0849e, /* what was perhaps replaced was kept although it was done meanwhile, and came again */
        0x73257f8cb7f8, /* a range did not have what was attempted before the clock was set back */
        0x4d47bc77030c, /* the clock was set back, and many of the same time were not put back in their order */
        0x1d0f3b8cd889, /* skipped after the clock was set back: its row stayed, and it was skipped and counted again */
        0x7bc,          /* a window was filed under again although it had parts: a list left those out */
        0xbf9,          /* timers in lanes, and the clock set back: acknowledged, and did not fire */
        0xa3ea53aa2359, /* the same */
        0x817d2d1d0d83, /* the store went back, and gave the ID of a lost timer to another */
        0x3c6d2a49720d, /* an attempt was put off out of its lane, and the clock was set back before that was written */
        0x578ea34a1067, /* the same, while it was listed */
        0x5e2d075e6903, /* parked by a server, and unparked by one whose clock is behind */
        0xc7c6646af5f,  /* the same */
        0x77c5ef6d9331, /* the store went back to when an attempt had failed, and that was not written yet */
        0x9b9e5fd7f175, /* a window and then a part of it were filed again while they were listed: another part was left out */
        0xa0c525fd3a57, /* the store went back between a question and its answer */
        0x904a6c96094e, /* loaded while an operation that changed nothing held its row: it was held for ever */
        0x64f5c98f4e18, /* taken for expired by an owner whose clock was ahead: filed by that clock */
        0x444c29b4237b, /* all servers were gone: new ones give the old ones a head start */
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        live(seeds[i]);
}
