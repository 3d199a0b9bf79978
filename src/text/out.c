/* SPDX-License-Identifier: MIT */
/* See out.h. */

#include "text/out.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/when.h"

void out_format(struct out *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (size < 0 || !out_reserve(out, (size_t)size + 1))
        return;
    va_start(arguments, format);
    vsnprintf(out->data + out->size, (size_t)size + 1, format, arguments);
    va_end(arguments);
    out->size += (size_t)size;
}

void out_number(struct out *out, int64_t number)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (number < 0)
        *--at = '-';
    out_put(out, at, (size_t)(digits + sizeof digits - at));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

void out_key(struct out *out, const char *key)
{
    if (!out_reserve(out, strlen(key) + 5)) /* with stpcpy()'s NUL */
        return;
    char *at = out->data + out->size;
    if (out->size > 0 && at[-1] != '{')
        *at++ = ',';
    *at++ = '"';
    at = stpcpy(at, key);
    *at++ = '"';
    *at++ = ':';
    out->size = (size_t)(at - out->data);
}

static void put_escaped(struct out *out, unsigned char c)
{
    static const char plain[] = "\b\f\n\r\t\"\\", escaped[] = "bfnrt\"\\";
    const char *found = c ? strchr(plain, c) : NULL;
    if (found)
        out_put(out, (char[]){'\\', escaped[found - plain]}, 2);
    else
        out_format(out, "\\u%04x", c);
}

void out_string(struct out *out, fl_bytes utf8)
{
    const char *at = utf8.data, *end = at + utf8.size;
    out_put(out, "\"", 1);
    while (at < end) {
        const char *begin = at;
        while ((at = fl__plain(at, end)) < end && (unsigned char)*at >= 0x80)
            at++;
        out_put(out, begin, (size_t)(at - begin));
        if (at < end)
            put_escaped(out, (unsigned char)*at++);
    }
    out_put(out, "\"", 1);
}

void out_time(struct out *out, int64_t us)
{
    if (!out_reserve(out, WHEN_TEXT + 2))
        return;
    out->data[out->size++] = '"';
    out->size += when_format(us, out->data + out->size);
    out->data[out->size++] = '"';
}

void out_duration(struct out *out, uint64_t us)
{
    if (!out_reserve(out, DURATION_TEXT + 2))
        return;
    out->data[out->size++] = '"';
    out->size += duration_format(us, out->data + out->size);
    out->data[out->size++] = '"';
}
