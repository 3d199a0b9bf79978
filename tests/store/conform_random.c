/* SPDX-License-Identifier: MIT */
/* The suite, with random histories against the model. FL_TEST_SEEDS says how many, FL_TEST_SEED begins elsewhere. */

#include <stdlib.h>

#include "store/conformance.h"
#include "store/history.h"

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 0) : otherwise;
}

static void check_history(uint64_t seed)
{
    static uint8_t bytes[20000];
    uint64_t random = seed;
    size_t size = random_below(&random, 8) ? 200 + random_below(&random, 3000) : sizeof bytes;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&random);
    printf("# seed %" PRIu64 "\n", seed);
    fflush(stdout);
    store_history(bytes, size);
}

TEST(random_histories_agree_with_the_model)
{
    uint64_t first = setting("FL_TEST_SEED", 1);
    uint64_t count = setting("FL_TEST_SEEDS", under_test.histories ? under_test.histories : 100);
    for (uint64_t seed = first; seed < first + count; seed++)
        check_history(seed);
}
