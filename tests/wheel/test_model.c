/* SPDX-License-Identifier: MIT */
/* The wheel against its model over random histories: see model.h and history.c.
 *
 * FL_TEST_SEEDS=n runs n histories; FL_TEST_SEED=s runs the one of that seed, and with FL_TEST_TRACE=1 it says what
 * happens in it.
 */

#include <stdlib.h>

#include "test.h"
#include "wheel/model.h"
#include "wheel/wheel_test.h"

static void run_seed(uint64_t seed)
{
    static uint8_t bytes[16384];
    uint64_t random = seed;
    size_t size = 64 + random_next(&random) % (sizeof(bytes) >> random_next(&random) % 6) * 63 / 64;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&random);
    snprintf(model_context, sizeof(model_context), "FL_TEST_SEED=%" PRIu64, seed);
    wheel_history(bytes, size);
}

TEST(random_histories_are_as_the_model_says)
{
    const char *one = getenv("FL_TEST_SEED"), *many = getenv("FL_TEST_SEEDS");
    uint64_t count = many ? strtoull(many, NULL, 0) : SCALE(2000, 300);
    if (one)
        run_seed(strtoull(one, NULL, 0));
    else
        for (uint64_t seed = 1; seed <= count; seed++)
            run_seed(seed);
    model_context[0] = 0;
}
