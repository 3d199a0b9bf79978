/* SPDX-License-Identifier: MIT */
/* Base64: see base64.h and out.h. Encoding is OpenSSL's: apart, so that programs without it need not link OpenSSL. */

#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include <foliot/error.h>

#include "base/assert.h"
#include "text/base64.h"
#include "text/out.h"

void out_base64_digits(struct out *out, fl_bytes bytes)
{
    fl__assert(bytes.size < INT_MAX / 2);
    if (!out_reserve(out, (bytes.size + 2) / 3 * 4 + 1)) /* it adds a NUL */
        return;
    int size = EVP_EncodeBlock((unsigned char *)out->data + out->size, bytes.data, (int)bytes.size);
    out->size += (size_t)size;
}

void out_base64(struct out *out, fl_bytes bytes)
{
    out_put(out, "\"", 1);
    out_base64_digits(out, bytes);
    out_put(out, "\"", 1);
}

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

ssize_t base64_decode_to(fl_bytes text, unsigned char *to)
{
    const unsigned char *from = text.data;
    size_t size = text.size, made = 0;
    uint32_t word = 0;
    while (size > 0 && text.size - size < 2 && from[size - 1] == '=')
        size--;
    if (size % 4 == 1 || (size != text.size && text.size % 4 != 0))
        return -1;
    for (size_t i = 0; i < size; i++) {
        int digit = base64_digit(from[i]);
        if (digit < 0)
            return -1;
        word = word << 6 | (uint32_t)digit;
        if (i % 4 > 0)
            to[made++] = (unsigned char)(word >> (6 - 2 * (i % 4)));
    }
    if (size % 4 > 0 && (word & (size % 4 == 2 ? 15u : 3u)) != 0)
        return -1; /* bits that belong to no byte */
    return (ssize_t)made;
}

int base64_decode(fl_bytes text, unsigned char **ret, size_t *ret_size)
{
    unsigned char *room = malloc(text.size + 1);
    ssize_t size = room ? base64_decode_to(text, room) : -1;
    if (size < 0) {
        int r = room ? FL_INVALID_ARGUMENT : FL_NO_MEMORY;
        free(room);
        return r;
    }
    *ret = room;
    *ret_size = (size_t)size;
    return 0;
}
