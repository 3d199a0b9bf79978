/* SPDX-License-Identifier: MIT */
/* See out.h. */

#include "base/out.h"

#include <stdint.h>

enum { SMALLEST = 128 };

bool fl__out_grow(struct out *out, size_t more)
{
    size_t grown = out->capacity + out->capacity / 2;
    char *data = more > SIZE_MAX / 2 - grown ? NULL : fl__resize(out->data, grown + more + SMALLEST);
    if (!data) {
        out->failed = true;
        return false;
    }
    out->data = data;
    out->capacity = grown + more + SMALLEST;
    return true;
}
