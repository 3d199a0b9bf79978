/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_JS_TEXT_H
#define FOLIOT_JS_TEXT_H

/* Between UTF-8, which files and terminals have, and the engine's UTF-16. Neither way fails on bad text: what cannot be
 * converted becomes U+FFFD. JavaScriptCore's own functions stop at a zero byte, and give nothing for bad text. */

#include <JavaScriptCore/JavaScript.h>
#include <stddef.h>

/* A byte order mark at the beginning is left out. NULL: no memory. */
JSStringRef text_from_utf8(const char *bytes, size_t length);

/* Ends with a zero byte that is not counted; free() it. NULL: no memory. */
char *text_to_utf8(JSStringRef text, size_t *ret_length);

#endif
