/* SPDX-License-Identifier: MIT */
/* Answers of HTTP: see http.h. */

#include <stdlib.h>
#include <string.h>

#include "../frame.h"
#include "http.h"

void http_reset(struct http_answer *answer)
{
    *answer = (struct http_answer){.body = answer->body, .room = answer->room};
}

void http_free(struct http_answer *answer)
{
    free(answer->body);
}

static void append(struct http_answer *answer, const char *data, size_t size)
{
    if (answer->room - answer->size < size) {
        answer->room = 2 * (answer->size + size);
        answer->body = realloc(answer->body, answer->room);
        if (!answer->body)
            bench_die("no memory");
    }
    memcpy(answer->body + answer->size, data, size);
    answer->size += size;
}

static void read_field(struct http_answer *answer, const char *line)
{
    if (strncasecmp(line, "content-length:", 15) == 0)
        answer->left = strtoull(line + 15, NULL, 10);
    else if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0)
        answer->chunked = true;
}

static size_t take_head(struct http_answer *answer, const char *in, size_t size)
{
    const char *end = memmem(in, size, "\r\n\r\n", 4);
    if (!end)
        return 0;
    if (strncmp(in, "HTTP/1.1 ", 9) != 0)
        bench_die("this is not HTTP: %.*s", (int)(end - in), in);
    answer->status = (int)strtol(in + 9, NULL, 10);
    for (const char *line = in; line < end; line = (const char *)memchr(line, '\n', (size_t)(end + 2 - line)) + 1)
        read_field(answer, line);
    return (size_t)(end + 4 - in);
}

/* The line before a chunk: its size. */
static size_t take_chunk_size(struct http_answer *answer, const char *in, size_t size)
{
    const char *end = memchr(in, '\n', size);
    if (!end)
        return 0;
    answer->left = strtoull(in, NULL, 16);
    answer->last = answer->left == 0;
    answer->left += 2;
    return (size_t)(end + 1 - in);
}

static size_t take_chunk(struct http_answer *answer, const char *in, size_t size)
{
    size_t n = size < answer->left ? size : answer->left, data = answer->left > 2 ? answer->left - 2 : 0;
    append(answer, in, n < data ? n : data);
    answer->left -= n;
    return n;
}

static size_t take_part(struct http_answer *answer, const char *in, size_t size)
{
    if (answer->status == 0)
        return take_head(answer, in, size);
    if (answer->chunked)
        return answer->left > 0 ? take_chunk(answer, in, size) : take_chunk_size(answer, in, size);
    size_t n = size < answer->left ? size : answer->left;
    append(answer, in, n);
    answer->left -= n;
    return n;
}

size_t http_take(struct http_answer *answer, const char *in, size_t size, bool *ret_whole)
{
    size_t used = 0, n;
    do {
        n = take_part(answer, in + used, size - used);
        used += n;
        *ret_whole = answer->status > 0 && answer->left == 0 && (!answer->chunked || answer->last);
    } while (n > 0 && used < size && !*ret_whole);
    return used;
}
