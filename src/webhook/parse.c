/* SPDX-License-Identifier: MIT */
/* Reads a response of HTTP/1 as it comes in, in pieces of any size: whatever the pieces are, the outcome is the same.
 *
 * Lines (of the head, of chunk sizes, of trailers) are handled where they lie; only what a piece breaks off is put aside until
 * the rest of the line comes. All lines together may have LINES_MOST bytes, and of the body webhook_response_body() wants only so
 * much: a response that never ends is over before long. What is ambiguous is refused, for we did not ask for it. */

#include "webhook/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINES_MOST = 64 << 10 };

enum state { STATUS, FIELDS, LENGTH, UNTIL_CLOSE, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILERS, ENDED };

void webhook_parse_begin(struct webhook_parse *parse)
{
    parse->state = STATUS;
    parse->any = false;
    parse->lines_size = 0;
    out_clear(&parse->line);
}

void webhook_parse_free(struct webhook_parse *parse)
{
    out_free(&parse->line);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool equals(fl_bytes text, const char *lower)
{
    return text.size == strlen(lower) && strncasecmp(text.data, lower, text.size) == 0;
}

static fl_bytes trim(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return (fl_bytes){at, (size_t)(end - at)};
}

/* --- Lines -------------------------------------------------------------------------------------------------------- */

/* "HTTP/1.1 200 OK" */
static bool take_status(struct webhook_parse *parse, struct webhook_response *response, const char *line, size_t size)
{
    if (size < 12 || memcmp(line, "HTTP/1.", 7) != 0 || !is_digit(line[7]) || line[8] != ' ' || !is_digit(line[9]) ||
        !is_digit(line[10]) || !is_digit(line[11]) || (size > 12 && line[12] != ' '))
        return false;
    int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (status < 100 || status == 101)
        return false;
    webhook_response_begin(response, status);
    parse->keep = line[7] != '0';
    parse->chunked = parse->has_length = false;
    parse->state = FIELDS;
    return true;
}

/* A number in digits, the same each time. */
static bool take_length(struct webhook_parse *parse, fl_bytes value)
{
    const char *at = value.data;
    uint64_t length = 0;
    if (value.size == 0 || value.size > 18)
        return false;
    for (size_t i = 0; i < value.size; i++) {
        if (!is_digit(at[i]))
            return false;
        length = length * 10 + (uint64_t)(at[i] - '0');
    }
    bool good = !parse->has_length || parse->left == length;
    parse->has_length = true;
    parse->left = length;
    return good;
}

static void take_connection(struct webhook_parse *parse, fl_bytes value)
{
    const char *at = value.data, *end = at + value.size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        fl_bytes option = trim(at, comma ? comma : end);
        if (equals(option, "close"))
            parse->keep = false;
        else if (equals(option, "keep-alive"))
            parse->keep = true;
        at = comma ? comma + 1 : end;
    }
}

static bool take_field(struct webhook_parse *parse, struct webhook_response *response, const char *line, size_t size)
{
    const char *colon = memchr(line, ':', size);
    if (*line == ' ' || *line == '\t') /* more of the one before, an ancient habit: none of ours has more */
        return true;
    if (!colon || colon == line || colon[-1] == ' ' || colon[-1] == '\t' || memchr(line, '\0', size))
        return false;
    fl_bytes name = {line, (size_t)(colon - line)}, value = trim(colon + 1, line + size);
    if (equals(name, "content-length"))
        return take_length(parse, value);
    if (equals(name, "transfer-encoding")) {
        bool again = parse->chunked;
        parse->chunked = true;
        return !again && equals(value, "chunked");
    }
    if (equals(name, "connection"))
        take_connection(parse, value);
    else
        webhook_response_header(response, name, value);
    return true;
}

/* The head is whole: what comes next? */
static void end_head(struct webhook_parse *parse, const struct webhook_response *response)
{
    if (response->status < 200) {
        parse->state = STATUS;
    } else if (response->status == 204 || response->status == 304) {
        parse->state = ENDED;
    } else if (parse->chunked) {
        parse->keep &= !parse->has_length; /* somebody on the way may have understood it differently */
        parse->state = CHUNK_SIZE;
    } else if (parse->has_length) {
        parse->state = parse->left ? LENGTH : ENDED;
    } else {
        parse->keep = false;
        parse->state = UNTIL_CLOSE;
    }
}

/* "1a; name=value" */
static bool take_chunk_size(struct webhook_parse *parse, const char *line, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t value = 0;
    size_t i = 0;
    for (; i < size && i < 16; i++) {
        const char *digit = line[i] ? strchr(digits, line[i] | 0x20) : NULL;
        if (!digit || (line[i] < '0'))
            break;
        value = value << 4 | (uint64_t)(digit - digits);
    }
    if (i == 0 || i == 16 || (i < size && line[i] != ';' && line[i] != ' ' && line[i] != '\t'))
        return false;
    parse->left = value;
    parse->state = value ? CHUNK : TRAILERS;
    return true;
}

/* One line without its end. */
static bool take_line(struct webhook_parse *parse, struct webhook_response *response, const char *line, size_t size)
{
    switch (parse->state) {
    case STATUS:
        return take_status(parse, response, line, size);
    case FIELDS:
        if (size > 0)
            return take_field(parse, response, line, size);
        end_head(parse, response);
        return true;
    case CHUNK_SIZE:
        return take_chunk_size(parse, line, size);
    case CHUNK_END:
        parse->state = CHUNK_SIZE;
        return size == 0;
    default: /* TRAILERS */
        if (size == 0)
            parse->state = ENDED;
        return true;
    }
}

/* Takes the line at `at`, or puts aside what is there of it. Returns what follows; NULL: it is bad. */
static const char *take_text(struct webhook_parse *parse, struct webhook_response *response, const char *at,
                             const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at)), *next = newline ? newline + 1 : end;
    parse->lines_size += (size_t)(next - at);
    if (parse->lines_size > LINES_MOST)
        return NULL;
    if (!newline || parse->line.size > 0) {
        out_put(&parse->line, at, (size_t)(next - at));
        if (parse->line.failed)
            return NULL;
        at = parse->line.data;
    }
    if (!newline)
        return next;
    size_t size = (parse->line.size > 0 ? parse->line.size : (size_t)(next - at)) - 1;
    if (size > 0 && at[size - 1] == '\r')
        size--;
    parse->line.size = 0;
    return take_line(parse, response, at, size) ? next : NULL;
}

/* The body has more lines in it than anybody needs. */
static bool is_too_long(const struct webhook_parse *parse)
{
    return parse->lines_size > LINES_MOST && parse->state > FIELDS;
}

static enum webhook_parsed cut(struct webhook_parse *parse, struct webhook_response *response)
{
    response->cut = true;
    parse->keep = false;
    return WEBHOOK_WHOLE;
}

/* --- Pieces ------------------------------------------------------------------------------------------------------- */

enum webhook_parsed webhook_parse(struct webhook_parse *parse, struct webhook_response *response, const char *data,
                                  size_t size)
{
    const char *at = data, *end = data + size;
    parse->any |= size > 0;
    while (at < end && parse->state != ENDED) {
        if (parse->state != LENGTH && parse->state != CHUNK && parse->state != UNTIL_CLOSE) {
            at = take_text(parse, response, at, end);
            if (!at)
                return is_too_long(parse) ? cut(parse, response) : WEBHOOK_BAD;
            continue;
        }
        size_t piece = (size_t)(end - at);
        if (parse->state != UNTIL_CLOSE && piece > parse->left)
            piece = (size_t)parse->left;
        if (!webhook_response_body(response, at, piece))
            return cut(parse, response);
        at += piece;
        if (parse->state == UNTIL_CLOSE)
            continue;
        parse->left -= piece;
        if (parse->left == 0)
            parse->state = parse->state == LENGTH ? ENDED : CHUNK_END;
    }
    parse->keep &= at == end; /* nobody has asked for more */
    return parse->state == ENDED ? WEBHOOK_WHOLE : WEBHOOK_MORE;
}

enum webhook_parsed webhook_parse_end(const struct webhook_parse *parse)
{
    return parse->state == UNTIL_CLOSE ? WEBHOOK_WHOLE : WEBHOOK_BAD;
}
