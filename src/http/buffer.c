/* SPDX-License-Identifier: MIT */
/* Bytes that wait. A buffer grows by doubling and is given back when it is empty and was large. */

#include <stdlib.h>
#include <string.h>

#include "http/internal.h"

enum { SMALLEST = 1024, KEPT = 65536 };

void http_buffer_compact(struct http_buffer *buffer)
{
    size_t size = http_buffer_size(buffer);
    if (buffer->start > 0 && size > 0)
        memmove(buffer->data, buffer->data + buffer->start, size);
    buffer->start = 0;
    buffer->end = size;
}

bool http_buffer_reserve(struct http_buffer *buffer, size_t size)
{
    size_t used = http_buffer_size(buffer), capacity = buffer->capacity ? buffer->capacity * 2 : SMALLEST;
    if (buffer->capacity - buffer->end >= size && buffer->data)
        return true;
    if (size > SIZE_MAX / 4 - used)
        return false;
    if (buffer->data && buffer->capacity - used >= size && buffer->start >= buffer->capacity / 2) {
        http_buffer_compact(buffer);
        return true;
    }
    while (capacity - used < size)
        capacity *= 2;
    char *data = malloc(capacity);
    if (!data)
        return false;
    if (buffer->data)
        memcpy(data, buffer->data + buffer->start, used);
    free(buffer->data);
    *buffer = (struct http_buffer){data, capacity, 0, used};
    return true;
}

bool http_buffer_append(struct http_buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return true;
    if (!http_buffer_reserve(buffer, size))
        return false;
    memcpy(buffer->data + buffer->end, data, size);
    buffer->end += size;
    return true;
}

void http_buffer_take(struct http_buffer *buffer, size_t size)
{
    buffer->start += size;
    if (buffer->start < buffer->end)
        return;
    buffer->start = buffer->end = 0;
    if (buffer->capacity > KEPT)
        http_buffer_free(buffer);
}

void http_buffer_free(struct http_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct http_buffer){0};
}
