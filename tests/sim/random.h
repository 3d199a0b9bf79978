/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_SIM_RANDOM_H
#define FOLIOT_TESTS_SIM_RANDOM_H

/* Where all chance in a simulation comes from: xorshift64*, from one seed. */

#include <stdbool.h>
#include <stdint.h>

struct luck {
    uint64_t state;
};

static inline uint64_t draw(struct luck *luck)
{
    luck->state ^= luck->state >> 12;
    luck->state ^= luck->state << 25;
    luck->state ^= luck->state >> 27;
    return luck->state * 0x2545f4914f6cdd1d;
}

static inline void luck_begin(struct luck *luck, uint64_t seed)
{
    luck->state = (seed + 1) * 0x9e3779b97f4a7c15;
    if (luck->state == 0)
        luck->state = 1;
    for (int i = 0; i < 8; i++)
        draw(luck);
}

static inline uint64_t below(struct luck *luck, uint64_t limit)
{
    return (draw(luck) >> 11) % limit;
}

static inline bool chance(struct luck *luck, unsigned percent)
{
    return below(luck, 100) < percent;
}

#endif
