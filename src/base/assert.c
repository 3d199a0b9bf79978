/* SPDX-License-Identifier: MIT */
/* See assert.h. */

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Without stdio's buffers and locks: the assertion may have failed while this thread held one of them. */
void fl__assert_failed(const char *file, int line, const char *expression)
{
    char text[512];
    int size = snprintf(text, sizeof text, "foliot: %s:%d: assertion failed: %s\n", file, line, expression);
    if (size >= (int)sizeof text) {
        size = (int)sizeof text - 1;
        text[size - 1] = '\n';
    }
    for (const char *at = text; size > 0;) {
        ssize_t written = write(STDERR_FILENO, at, (size_t)size);
        if (written <= 0)
            break;
        at += written;
        size -= (int)written;
    }
    abort();
}
