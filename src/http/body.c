/* SPDX-License-Identifier: MIT */
/* Reads the bodies of HTTP/1 messages. Bodies of requests are read strictly, bodies of responses leniently: see head.c. */

#include "base/hex.h"
#include "http/internal.h"

/* --- Chunked bodies ---------------------------------------------------------------------------------------------- */

/* Bytes of one line, and of all trailers; in a response, of everything that is not data. */
enum { LINE_MOST = 256, TRAILERS_MOST = 8192, RESPONSE_MOST = 65536 };

enum chunk_state {
    SIZE_FIRST, /* the first digit of a size */
    SIZE,
    EXTENSION,
    SIZE_FEED, /* the line feed after the size */
    DATA,
    DATA_RETURN, /* the carriage return after the data */
    DATA_FEED,
    TRAILER_FIRST, /* the first byte of a line of the trailer */
    TRAILER_NAME,
    TRAILER,
    TRAILER_FEED,
    LAST_FEED,
    OVER,
    BAD
};

static enum chunk_state size_step(struct http_body *body, char c)
{
    int value = fl__hex_digit(c);
    if (value >= 0) {
        if (body->left >> 56)
            return BAD;
        body->left = body->left << 4 | (unsigned)value;
        return SIZE;
    }
    if (body->state == SIZE_FIRST)
        return BAD;
    bool blank = body->lenient && (c == ' ' || c == '\t');
    return c == '\r' ? SIZE_FEED : c == ';' || blank ? EXTENSION : BAD;
}

/* One byte that is not data: the state after it. */
static enum chunk_state step(struct http_body *body, char c)
{
    bool any = body->lenient;
    switch ((enum chunk_state)body->state) {
    case SIZE_FIRST:
    case SIZE:
        return size_step(body, c);
    case EXTENSION:
        return c == '\r' ? SIZE_FEED : any || http_is(c, HTTP_VALUE) ? EXTENSION : BAD;
    case SIZE_FEED:
        return c != '\n' ? BAD : body->left ? DATA : TRAILER_FIRST;
    case DATA_RETURN:
        return c == '\r' ? DATA_FEED : BAD;
    case DATA_FEED:
        return c == '\n' ? SIZE_FIRST : BAD;
    case TRAILER_FIRST:
        return c == '\r' ? LAST_FEED : any ? TRAILER : http_is(c, HTTP_TOKEN) ? TRAILER_NAME : BAD;
    case TRAILER_NAME:
        return c == ':' ? TRAILER : http_is(c, HTTP_TOKEN) ? TRAILER_NAME : BAD;
    case TRAILER:
        return c == '\r' ? TRAILER_FEED : any || http_is(c, HTTP_VALUE) ? TRAILER : BAD;
    case TRAILER_FEED:
        return c == '\n' ? TRAILER_FIRST : BAD;
    case LAST_FEED:
        return c == '\n' ? OVER : BAD;
    default:
        return BAD;
    }
}

static bool awaits_feed(unsigned state)
{
    return state == SIZE_FEED || state == DATA_FEED || state == TRAILER_FEED || state == LAST_FEED;
}

/* In a response, a line feed alone ends a line. */
static void take_byte(struct http_body *body, char c)
{
    if (c == '\n' && body->lenient && !awaits_feed(body->state))
        body->state = step(body, '\r');
    body->state = step(body, c);
}

static bool is_too_long(struct http_body *body)
{
    if (body->lenient)
        return ++body->line > RESPONSE_MOST;
    bool trailer = body->state >= TRAILER_FIRST;
    body->line = body->state == DATA || body->state == SIZE_FIRST ? 0 : body->line + 1;
    return body->line > (trailer ? TRAILERS_MOST : LINE_MOST);
}

/* Takes a piece of a body, or of a chunk, of which `left` bytes are missing. Returns whether it was the last. */
static bool take_data(struct http_body *body, const char *data, size_t size, size_t *used, fl_bytes *ret_piece)
{
    size_t piece = body->left < size - *used ? (size_t)body->left : size - *used;
    *ret_piece = (fl_bytes){data + *used, piece};
    *used += piece;
    body->left -= piece;
    return body->left == 0;
}

static enum http_body_step next_chunk(struct http_body *body, const char *data, size_t size, size_t *ret_used,
                                      fl_bytes *ret_piece)
{
    size_t used = 0;
    while (used < size && body->state != DATA && body->state < OVER) {
        take_byte(body, data[used++]);
        if (is_too_long(body))
            return HTTP_BODY_LONG;
    }
    *ret_used = used;
    if (body->state >= OVER)
        return body->state == OVER ? HTTP_BODY_END : HTTP_BODY_BAD;
    if (used == size)
        return HTTP_BODY_MORE;
    if (take_data(body, data, size, ret_used, ret_piece))
        body->state = DATA_RETURN;
    return HTTP_BODY_PIECE;
}

/* --- All bodies --------------------------------------------------------------------------------------------------- */

void http_body_begin(struct http_body *body, const struct http_head *head)
{
    *body = (struct http_body){.framing = head->framing,
                               .lenient = head->kind == HTTP_RESPONSE,
                               .left = head->framing == HTTP_LENGTH ? head->length : 0};
}

enum http_body_step http_body_next(struct http_body *body, const char *data, size_t size, size_t *ret_used,
                                   fl_bytes *ret_piece)
{
    *ret_used = 0;
    *ret_piece = (fl_bytes){0};
    switch (body->framing) {
    case HTTP_NO_BODY:
        return HTTP_BODY_END;
    case HTTP_LENGTH:
        if (take_data(body, data, size, ret_used, ret_piece))
            return HTTP_BODY_END;
        return size > 0 ? HTTP_BODY_PIECE : HTTP_BODY_MORE;
    case HTTP_CHUNKED:
        return next_chunk(body, data, size, ret_used, ret_piece);
    default:
        *ret_used = size;
        *ret_piece = (fl_bytes){data, size};
        return size > 0 ? HTTP_BODY_PIECE : HTTP_BODY_MORE;
    }
}
