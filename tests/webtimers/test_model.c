/* SPDX-License-Identifier: MIT */
/* The browser's timers against their model, with random histories. FL_TEST_SEEDS says how many, FL_TEST_SEED begins
 * elsewhere. */

#include <stdlib.h>

#include "test.h"
#include "webtimers/model.h"
#include "wheel/wheel_test.h"

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static void check_history(uint64_t seed)
{
    static uint8_t bytes[6000];
    uint64_t random = seed;
    size_t size = random_below(&random, 8) ? 20 + random_below(&random, 600) : sizeof(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&random);
    printf("# seed %" PRIu64 "\n", seed);
    fflush(stdout);
    webtimers_history(bytes, size);
}

TEST(random_histories_agree_with_the_model)
{
    uint64_t first = setting("FL_TEST_SEED", 1), count = setting("FL_TEST_SEEDS", SCALE(3000, 300));
    for (uint64_t seed = first; seed < first + count; seed++)
        check_history(seed);
}
