/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_UTF8_H
#define FOLIOT_BASE_UTF8_H

/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF. */

#include <stdbool.h>
#include <stddef.h>

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

#endif
