/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_MIX_H
#define FOLIOT_TEXT_MIX_H

/* A hash of bytes that is the same on every machine and in every version: it decides at which minute a schedule with `H`
 * runs, so it must never change. FNV-1a, then a finisher, because the low bits of FNV are weak. */

#include <stddef.h>
#include <stdint.h>

#define MIX_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t mix_bytes(uint64_t state, const void *data, size_t size)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < size; i++)
        state = (state ^ at[i]) * UINT64_C(0x100000001b3);
    return state;
}

static inline uint64_t mix_end(uint64_t state)
{
    state = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    state = (state ^ (state >> 27)) * UINT64_C(0x94d049bb133111eb);
    return state ^ (state >> 31);
}

#endif
