/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_VARINT_H
#define FOLIOT_BASE_VARINT_H

/* Numbers as bytes, small ones in few: seven bits per byte, the low ones first; all bytes but the last have the high bit
 * set. Signed numbers are folded first (zigzag), so that those near zero stay short on both sides. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL__VARINT_MAX = 10 }; /* bytes of one number at most */

/* Returns how many bytes were written. */
static inline size_t fl__varint_put(unsigned char *out, uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        out[size++] = (unsigned char)(value | 0x80);
    out[size++] = (unsigned char)value;
    return size;
}

/* Reads the number at `*at` and moves `*at` behind it. False, and nothing changes: the bytes end within the number, or the
 * number does not fit into 64 bits. */
static inline bool fl__varint_get(const unsigned char **at, const unsigned char *end, uint64_t *ret)
{
    const unsigned char *p = *at;
    uint64_t value = 0;
    if (p < end && *p < 0x80) { /* most numbers are small */
        *ret = *p;
        *at = p + 1;
        return true;
    }
    for (unsigned shift = 0; shift < 64 && p < end; shift += 7) {
        unsigned char byte = *p++;
        if (shift == 63 && byte > 1)
            return false;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *at = p;
            *ret = value;
            return true;
        }
    }
    return false;
}

/* 0, -1, 1, -2, ... become 0, 1, 2, 3, ... */
static inline uint64_t fl__zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ -(uint64_t)(value < 0);
}

static inline int64_t fl__unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1 ^ -(value & 1));
}

#endif
