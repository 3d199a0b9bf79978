/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_HTTP_PARSE_H
#define FOLIOT_SERVER_HTTP_PARSE_H

/* The heads of HTTP/1 requests and the chunks of their bodies: bytes in, their meaning out. Nothing is copied, nothing
 * allocated and nothing read twice, however small the portions are in which the bytes come. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/http.h"

enum { HTTP_HEADERS_MAX = 100 };

/* A part of the head: counted from its first byte, for the buffer may move while the head comes in. */
struct http_slice {
    uint32_t at, size;
};

struct http_head {
    /* The parser's: how far it has got. */
    uint32_t line;    /* where the line begins that is not whole yet */
    uint32_t scanned; /* there is no line feed between there and here */
    bool begun;       /* the request line has been read */
    bool blank;       /* an empty line before it has been passed over */
    bool has_host, has_length, close, keep;
    /* The result. */
    bool chunked;
    bool expects_continue;
    bool keep_alive;
    enum http_method method;
    unsigned minor; /* of the version: 0 or 1 */
    uint32_t size;  /* of the whole head, with the empty line that ends it */
    uint64_t length;
    struct http_slice path, query; /* an empty path stands for "/" */
    const char *problem;
    uint32_t header_count;
    struct {
        struct http_slice name, value;
    } headers[HTTP_HEADERS_MAX];
};

struct http_limits {
    uint32_t max_head, max_url;
};

void http_head_reset(struct http_head *head);

/* Goes on with a head of which `size` bytes have come: the same bytes as last time, and more. Returns 1 if it is whole
 * and understood; 0 if it needs more; else the negative status to refuse it with, and `problem` says why. */
int http_parse(struct http_head *head, const char *data, size_t size, const struct http_limits *limits);

/* Where the header is among `headers`, from the index `from`; -1 if it is not there. The name in lower case. */
int http_head_find(const struct http_head *head, const char *data, const char *name, int from);

/* --- Chunked bodies ---------------------------------------------------------------------------------------------- */

struct http_chunks {
    uint64_t left; /* of this chunk */
    uint8_t state;
    uint32_t line; /* bytes of this line, or of the trailer so far */
};

enum { HTTP_CHUNKS_MORE, HTTP_CHUNKS_PIECE, HTTP_CHUNKS_END, HTTP_CHUNKS_BAD };

/* Goes on with a body: takes what it can from `data` and says in `ret_used` how much. On HTTP_CHUNKS_PIECE there is a
 * piece of the body in `ret_piece`, which lies in `data`; on HTTP_CHUNKS_MORE, everything was used. */
int http_chunks_next(struct http_chunks *chunks, const char *data, size_t size, size_t *ret_used, fl_bytes *ret_piece);

#endif
