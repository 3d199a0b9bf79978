/* SPDX-License-Identifier: MIT */
/* Base64 of out.h, by OpenSSL: apart, so that programs without it need not link OpenSSL. */

#include <limits.h>
#include <openssl/evp.h>

#include "base/assert.h"
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
