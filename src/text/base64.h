/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_TEXT_BASE64_H
#define FOLIOT_TEXT_BASE64_H

/* Reading Base64. text/out.h has the other direction. */

#include <sys/types.h>

#include <foliot/store.h>

/* Both alphabets, with or without padding. Returns 0 and what it stands for, to be freed; FL_INVALID_ARGUMENT, FL_NO_MEMORY. */
int base64_decode(fl_bytes text, unsigned char **ret, size_t *ret_size);

/* The same into memory that has room for as many bytes as the text has. Returns the size, or -1. */
ssize_t base64_decode_to(fl_bytes text, unsigned char *to);

#endif
