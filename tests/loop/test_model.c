/* SPDX-License-Identifier: MIT */
/* The loop against its model, with random histories. FL_TEST_SEEDS says how many, FL_TEST_SEED begins elsewhere. */

#include <stdlib.h>

#include "loop/loop_test.h"
#include "loop/model.h"

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Short ones end while much is pending; long ones have many timers. */
static void check_history(uint64_t seed)
{
    static uint8_t bytes[6000];
    uint64_t random = seed;
    size_t size = random_below(&random, 8) ? 100 + random_below(&random, 1500) : sizeof(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)random_next(&random);
    printf("# seed %" PRIu64 "\n", seed);
    fflush(stdout);
    loop_history(bytes, size);
}

TEST(random_histories_agree_with_the_model)
{
    uint64_t first = setting("FL_TEST_SEED", 1), count = setting("FL_TEST_SEEDS", SCALE(3000, 300));
    for (uint64_t seed = first; seed < first + count; seed++)
        check_history(seed);
}
