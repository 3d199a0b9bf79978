/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_HEX_H
#define FOLIOT_BASE_HEX_H

/* Hexadecimal digits: read in both cases, written in lower case. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a digit; -1: the character is not one. */
static inline int fl__hex_digit(char c)
{
    static const signed char values[256] = {
        ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
        ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
        ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16}; /* one more than the value */
    return values[(unsigned char)c] - 1;
}

/* A number of exactly `digits` digits, 16 at most. */
static inline bool fl__hex_number(const char *text, size_t digits, uint64_t *ret)
{
    uint64_t value = 0;
    if (digits == 0 || digits > 16)
        return false;
    for (size_t i = 0; i < digits; i++) {
        int digit = fl__hex_digit(text[i]);
        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    *ret = value;
    return true;
}

/* Reads 2 * size digits. On failure, a part of `ret` may be written. A text that ends with a NUL may be shorter. */
static inline bool fl__hex_bytes(const char *text, unsigned char *ret, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        int high = fl__hex_digit(text[2 * i]), low = high < 0 ? -1 : fl__hex_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        ret[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* Writes 2 * size digits, and no NUL. */
static inline void fl__hex_put(char *out, const void *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[from[i] >> 4];
        out[2 * i + 1] = digits[from[i] & 15];
    }
}

/* Writes the lowest `digits` digits of a number, and no NUL. */
static inline void fl__hex_put_number(char *out, uint64_t number, size_t digits)
{
    while (digits > 0) {
        out[--digits] = "0123456789abcdef"[number & 15];
        number >>= 4;
    }
}

#endif
