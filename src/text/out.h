/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_OUT_H
#define FOLIOT_SERVER_OUT_H

/* Text and JSON, written into memory that grows: see base/out.h. */

#include <stdint.h>

#include <foliot/store.h> /* fl_bytes */

#include "base/out.h"

static inline fl_bytes out_bytes(const struct out *out)
{
    return (fl_bytes){out->data, out->size};
}

void out_format(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void out_number(struct out *out, int64_t number);

/* JSON. `key` is a literal: it is written as it is, with a comma before it unless it is the first in its object. */
void out_key(struct out *out, const char *key);
void out_string(struct out *out, fl_bytes utf8);
void out_base64(struct out *out, fl_bytes bytes);
void out_base64_digits(struct out *out, fl_bytes bytes); /* without quotation marks */
void out_time(struct out *out, int64_t us);
void out_duration(struct out *out, uint64_t us);

static inline fl_bytes bytes_of(const char *text)
{
    return (fl_bytes){text, __builtin_strlen(text)};
}

#endif
