/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TESTS_WHEEL_WHEEL_TEST_H
#define FOLIOT_TESTS_WHEEL_WHEEL_TEST_H

/* What the tests of the wheel share: units, random numbers that repeat, sizes that suit the build. */

#include <stdint.h>

#include <foliot/wheel.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* A size for the optimised build, a smaller one where a sanitizer makes every access many times dearer. */
#define SCALE(optimised, sanitized) (SANITIZED ? (sanitized) : (optimised))

#define MICROSECOND 1000ull
#define MILLISECOND (1000 * MICROSECOND)
#define SECOND (1000 * MILLISECOND)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define WEEK (7 * DAY)
#define YEAR (365 * DAY)

/* The default geometry. */
#define TICK0 (1ull << 20)
#define TICK1 (1ull << 30)
#define TICK2 (1ull << 36)
#define REACH (TICK2 * 1024)

/* The fields of an ID. */
#define ID_LEVEL(id) ((unsigned)((id) >> 62))
#define ID_GENERATION(id) ((uint32_t)((id) >> 40 & 0x3fffff))
#define ID_SPOKE(id) ((uint32_t)((id) >> 28 & 0xfff))
#define ID_SLOT(id) ((uint32_t)((id)&0xfffffff))
#define ID(level, generation, spoke, slot) \
    ((uint64_t)(level) << 62 | (uint64_t)(generation) << 40 | (uint64_t)(spoke) << 28 | (uint64_t)(slot))

/* Splitmix64: every state is a good one, so any number is a seed. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return random_next(state) % limit;
}

/* Every magnitude up to `limit` alike: as many below a microsecond as around an hour. */
static inline uint64_t random_distance(uint64_t *state, uint64_t limit)
{
    unsigned bits = (unsigned)random_below(state, 64 - (unsigned)__builtin_clzll(limit) + 1);
    uint64_t distance = bits == 0 ? 0 : random_next(state) >> (64 - bits);
    return distance > limit ? limit : distance;
}

static inline uint64_t saturating_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

#endif
