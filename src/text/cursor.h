/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_CURSOR_H
#define FOLIOT_TEXT_CURSOR_H

/* Reading times from left to right. Each function returns false if the text is different; then the position is undefined. */

#include <stdbool.h>

struct cursor {
    const char *at, *end;
};

static inline bool at_digit(const struct cursor *cursor)
{
    return cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9';
}

static inline bool take(struct cursor *cursor, char c)
{
    if (cursor->at == cursor->end || *cursor->at != c)
        return false;
    cursor->at++;
    return true;
}

/* Exactly `count` digits, which mean `min` to `max`. */
static inline bool take_digits(struct cursor *cursor, int count, int min, int max, int *ret)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (!at_digit(cursor))
            return false;
        value = value * 10 + (*cursor->at++ - '0');
    }
    *ret = value;
    return value >= min && value <= max;
}

/* The digits after the point, at least one. 1000000: rounded up to a whole second. */
static inline bool take_fraction(struct cursor *cursor, int *ret_us)
{
    int value = 0, place = 100000;
    bool rest = false;
    if (!at_digit(cursor))
        return false;
    for (; at_digit(cursor); cursor->at++, place /= 10) {
        value += (*cursor->at - '0') * place;
        rest |= place == 0 && *cursor->at != '0';
    }
    *ret_us = value + rest;
    return true;
}

#endif
