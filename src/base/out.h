/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_BASE_OUT_H
#define FOLIOT_BASE_OUT_H

/* Bytes that are written one after the other into memory that grows. When memory runs out, `failed` is set and nothing more
 * is written: one look at the end is enough. The zero value is empty. text/out.h writes text and JSON into it. */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"

struct out {
    char *data;
    size_t size, capacity;
    bool failed;
};

/* Makes room for `more` bytes behind `size`; false, and `failed` is set: no memory. Called by out_reserve(). */
FL__SHARED bool fl__out_grow(struct out *out, size_t more);

static inline void out_free(struct out *out)
{
    fl__release(out->data);
    *out = (struct out){0};
}

/* Keeps its memory. */
static inline void out_clear(struct out *out)
{
    out->size = 0;
    out->failed = false;
}

/* Whether `more` bytes can be written directly behind `size`. */
static inline bool out_reserve(struct out *out, size_t more)
{
    return !out->failed && (out->capacity - out->size >= more || fl__out_grow(out, more));
}

static inline void out_put(struct out *out, const void *data, size_t size)
{
    if (size == 0 || !out_reserve(out, size))
        return;
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

static inline void out_text(struct out *out, const char *text)
{
    out_put(out, text, strlen(text));
}

#endif
