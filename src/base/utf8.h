/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_UTF8_H
#define FOLIOT_BASE_UTF8_H

/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF. And plain text, which is passed fast. */

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The size of the character at `at`, of which `left` bytes are there; 0: it is not UTF-8, or it is cut off. A NUL is a
 * character of one byte; it is no continuation byte, so a text that ends with a NUL may be given with any `left`. */
static inline size_t fl__utf8_size(const unsigned char *at, size_t left)
{
    if (left == 0)
        return 0;
    unsigned char c = at[0];
    if (c < 0x80)
        return 1;
    size_t size = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (size == 0 || left < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c == 0xe0 && at[1] < 0xa0) || (c == 0xf0 && at[1] < 0x90);
    bool surrogate = c == 0xed && at[1] > 0x9f, beyond = c == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : size;
}

static inline bool fl__utf8_is_good(const void *bytes, size_t size)
{
    const unsigned char *at = bytes, *end = at + size;
    while (at < end) {
        size_t step = fl__utf8_size(at, (size_t)(end - at));
        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

/* Marks the highest bit of bytes that are not plain: a quotation mark, a backslash, a control character or not ASCII. The
 * first mark is right; behind it there may be others too many, because subtractions borrow. */
static inline uint64_t fl__special_bytes(uint64_t bytes)
{
    const uint64_t ones = 0x0101010101010101, quotes = bytes ^ 0x22 * ones, escapes = bytes ^ 0x5c * ones;
    return ((quotes - ones) | (escapes - ones) | (bytes - 0x20 * ones) | bytes) & 0x80 * ones;
}

/* Passes bytes that stand for themselves in a JSON string: ASCII, but for quotation marks, backslashes and control characters. */
static inline const char *fl__plain(const char *at, const char *end)
{
    for (uint64_t bytes; (size_t)(end - at) >= sizeof bytes; at += sizeof bytes) {
        memcpy(&bytes, at, sizeof bytes);
        uint64_t marks = fl__special_bytes(le64toh(bytes));
        if (marks)
            return at + __builtin_ctzll(marks) / 8;
    }
    while (at < end && (unsigned char)*at - 0x20u < 0x60 && *at != '"' && *at != '\\')
        at++;
    return at;
}

#endif
