/* SPDX-License-Identifier: MIT */
/* Line by line: a line is looked at once, when its line feed has come, and what is wrong with it is said then and there.
 *
 * Two programs that read the same bytes as different requests are how requests are smuggled past whoever stands in front
 * of this server. So there is one reading or none: lines end with CR LF and have no other CR or LF in them, names have no
 * space before the colon, lines are not folded, and the size of a body is said once, in one way. What RFC 9112 lets a
 * recipient repair is refused here. */

#include "http/parse.h"

#include <string.h>

/* --- Characters -------------------------------------------------------------------------------------------------- */

enum { TOKEN = 1, TARGET = 2, VALUE = 4, HOST = 8 };

static const uint8_t classes[256] = {
    ['\t'] = VALUE,
    [' '] = VALUE,
    ['!'] = TOKEN | TARGET | VALUE | HOST,
    ['"'] = TARGET | VALUE,
    ['#'] = TOKEN | VALUE,
    ['$' ... '\''] = TOKEN | TARGET | VALUE | HOST,
    ['(' ... ')'] = TARGET | VALUE | HOST,
    ['*' ... '+'] = TOKEN | TARGET | VALUE | HOST,
    [','] = TARGET | VALUE | HOST,
    ['-' ... '.'] = TOKEN | TARGET | VALUE | HOST,
    ['/'] = TARGET | VALUE,
    ['0' ... '9'] = TOKEN | TARGET | VALUE | HOST,
    [':' ... ';'] = TARGET | VALUE | HOST,
    ['<'] = TARGET | VALUE,
    ['='] = TARGET | VALUE | HOST,
    ['>' ... '@'] = TARGET | VALUE,
    ['A' ... 'Z'] = TOKEN | TARGET | VALUE | HOST,
    ['['] = TARGET | VALUE | HOST,
    ['\\'] = TARGET | VALUE,
    [']'] = TARGET | VALUE | HOST,
    ['^'] = TOKEN | TARGET | VALUE,
    ['_'] = TOKEN | TARGET | VALUE | HOST,
    ['`'] = TOKEN | TARGET | VALUE,
    ['a' ... 'z'] = TOKEN | TARGET | VALUE | HOST,
    ['{'] = TARGET | VALUE,
    ['|'] = TOKEN | TARGET | VALUE,
    ['}'] = TARGET | VALUE,
    ['~'] = TOKEN | TARGET | VALUE | HOST,
    [0x80 ... 0xff] = VALUE,
};

static bool is(char c, unsigned class)
{
    return classes[(unsigned char)c] & class;
}

/* The first character that is not of the class, or `end`. */
static const char *skip(const char *at, const char *end, unsigned class)
{
    while (at < end && is(*at, class))
        at++;
    return at;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Whether these are the letters of `word`, which is in lower case. */
static bool same(const char *at, size_t size, const char *word)
{
    if (strlen(word) != size)
        return false;
    for (size_t i = 0; i < size; i++)
        if (lower(at[i]) != word[i])
            return false;
    return true;
}

static int fail(struct http_head *head, int status, const char *problem)
{
    head->problem = problem;
    return -status;
}

static struct http_slice slice(const char *data, const char *from, const char *to)
{
    return (struct http_slice){(uint32_t)(from - data), (uint32_t)(to - from)};
}

/* --- The request line -------------------------------------------------------------------------------------------- */

static enum http_method method_of(const char *at, size_t size)
{
    static const char *const names[] = {
        [HTTP_GET] = "GET",     [HTTP_HEAD] = "HEAD",     [HTTP_POST] = "POST",       [HTTP_PUT] = "PUT",
        [HTTP_PATCH] = "PATCH", [HTTP_DELETE] = "DELETE", [HTTP_OPTIONS] = "OPTIONS",
    };
    for (int i = 0; i < HTTP_OTHER; i++)
        if (strlen(names[i]) == size && memcmp(at, names[i], size) == 0)
            return (enum http_method)i;
    return HTTP_OTHER;
}

static int read_version(struct http_head *head, const char *at, const char *end)
{
    bool version = end - at == 8 && memcmp(at, "HTTP/", 5) == 0 && at[5] >= '0' && at[5] <= '9' && at[6] == '.' &&
                   at[7] >= '0' && at[7] <= '9';
    if (!version)
        return fail(head, 400, "the request line does not end with an HTTP version");
    if (at[5] != '1' || at[7] > '1')
        return fail(head, 505, "the HTTP version is neither 1.0 nor 1.1");
    head->minor = (unsigned)(at[7] - '0');
    return 0;
}

/* What comes before the path in the absolute form; `at` itself if it is another form, NULL if it is not understood. */
static const char *skip_authority(const char *at, const char *end)
{
    size_t scheme = end - at > 7 && same(at, 7, "http://") ? 7 : end - at > 8 && same(at, 8, "https://") ? 8 : 0;
    if (scheme == 0)
        return *at == '/' ? at : NULL;
    const char *authority = at + scheme;
    const char *path = skip(authority, end, HOST);
    return path > authority && (path == end || *path == '/' || *path == '?') ? path : NULL;
}

static int read_target(struct http_head *head, const char *data, const char *at, const char *end)
{
    if (end - at == 1 && *at == '*' && head->method == HTTP_OPTIONS) {
        head->path = slice(data, at, end);
        return 0;
    }
    const char *path = skip_authority(at, end);
    if (!path)
        return fail(head, 400, "the target of the request is neither a path nor a URL");
    const char *question = memchr(path, '?', (size_t)(end - path));
    head->path = slice(data, path, question ? question : end);
    head->query = question ? slice(data, question + 1, end) : (struct http_slice){0};
    return 0;
}

static int read_request_line(struct http_head *head, const char *data, const char *at, const char *end,
                             const struct http_limits *limits)
{
    const char *method_end = skip(at, end, TOKEN);
    if (method_end == at || method_end == end || *method_end != ' ')
        return fail(head, 400, "the request line does not begin with a method and a space");
    head->method = method_of(at, (size_t)(method_end - at));
    const char *target = method_end + 1;
    const char *target_end = skip(target, end, TARGET);
    if ((size_t)(target_end - target) > limits->max_url)
        return fail(head, 414, "the URL is too long");
    if (target_end == target || target_end == end || *target_end != ' ')
        return fail(head, 400, "the target of the request is missing or has a character that must be escaped");
    int r = read_version(head, target_end + 1, end);
    if (r == 0)
        r = read_target(head, data, target, target_end);
    head->begun = r == 0;
    return r;
}

/* --- Headers ----------------------------------------------------------------------------------------------------- */

static int read_host(struct http_head *head, const char *value, const char *end)
{
    if (head->has_host)
        return fail(head, 400, "the Host header appears more than once");
    if (skip(value, end, HOST) != end)
        return fail(head, 400, "the Host header contains a forbidden character");
    head->has_host = true;
    return 0;
}

static int read_length(struct http_head *head, const char *value, const char *end)
{
    uint64_t length = 0;
    if (value == end)
        return fail(head, 400, "the Content-Length is not a number");
    for (const char *at = value; at < end; at++) {
        if (*at < '0' || *at > '9')
            return fail(head, 400, "the Content-Length is not a number");
        if (__builtin_mul_overflow(length, 10, &length) || __builtin_add_overflow(length, *at - '0', &length))
            return fail(head, 413, "the Content-Length is too large");
    }
    if (head->has_length)
        return fail(head, 400, "the Content-Length header appears more than once");
    head->has_length = true;
    head->length = length;
    return 0;
}

static int read_coding(struct http_head *head, const char *value, const char *end)
{
    if (head->chunked)
        return fail(head, 400, "the Transfer-Encoding header appears more than once");
    if (!same(value, (size_t)(end - value), "chunked"))
        return fail(head, 501, "the Transfer-Encoding must be \"chunked\"");
    head->chunked = true;
    return 0;
}

static int read_expect(struct http_head *head, const char *value, const char *end)
{
    if (!same(value, (size_t)(end - value), "100-continue"))
        return fail(head, 417, "the Expect header must be \"100-continue\"");
    head->expects_continue = true;
    return 0;
}

static void read_connection(struct http_head *head, const char *value, const char *end)
{
    for (const char *at = value; at < end; at++) {
        const char *word = at;
        at = skip(at, end, TOKEN);
        head->close = head->close || same(word, (size_t)(at - word), "close");
        head->keep = head->keep || same(word, (size_t)(at - word), "keep-alive");
    }
}

/* The headers that say where the request ends and what becomes of its connection. */
static int note(struct http_head *head, const char *name, size_t size, const char *value, const char *end)
{
    switch (size) {
    case 4:
        return same(name, size, "host") ? read_host(head, value, end) : 0;
    case 6:
        return same(name, size, "expect") ? read_expect(head, value, end) : 0;
    case 10:
        if (same(name, size, "connection"))
            read_connection(head, value, end);
        return 0;
    case 14:
        return same(name, size, "content-length") ? read_length(head, value, end) : 0;
    case 17:
        return same(name, size, "transfer-encoding") ? read_coding(head, value, end) : 0;
    default:
        return 0;
    }
}

static int read_header(struct http_head *head, const char *data, const char *at, const char *end)
{
    const char *name_end = skip(at, end, TOKEN);
    if (name_end == at || name_end == end || *name_end != ':')
        return fail(head, 400, "a header does not begin with a name and a colon");
    const char *value = name_end + 1;
    if (skip(value, end, VALUE) != end)
        return fail(head, 400, "a header contains a forbidden character");
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (head->header_count == HTTP_HEADERS_MAX)
        return fail(head, 431, "the request has too many headers");
    head->headers[head->header_count].name = slice(data, at, name_end);
    head->headers[head->header_count].value = slice(data, value, end);
    head->header_count++;
    return note(head, at, (size_t)(name_end - at), value, end);
}

/* --- The whole --------------------------------------------------------------------------------------------------- */

void http_head_reset(struct http_head *head)
{
    memset(head, 0, offsetof(struct http_head, headers));
}

static int finish(struct http_head *head)
{
    if (head->minor == 1 && !head->has_host)
        return fail(head, 400, "the Host header is missing");
    if (head->chunked && head->has_length)
        return fail(head, 400, "a request must not have both Content-Length and Transfer-Encoding");
    if (head->chunked && head->minor == 0)
        return fail(head, 400, "HTTP/1.0 does not allow Transfer-Encoding");
    if (head->minor == 0)
        head->expects_continue = false;
    head->keep_alive = !head->close && (head->minor == 1 || head->keep);
    head->size = head->line;
    return 1;
}

static int read_line(struct http_head *head, const char *data, const char *at, const char *end,
                     const struct http_limits *limits)
{
    if (head->begun)
        return at == end ? finish(head) : read_header(head, data, at, end);
    if (at < end)
        return read_request_line(head, data, at, end, limits);
    if (head->blank)
        return fail(head, 400, "the request line is missing");
    head->blank = true;
    return 0;
}

/* What can be said of a line that is not whole yet. */
static int look_at_rest(struct http_head *head, const char *data, size_t size, const struct http_limits *limits)
{
    enum { BESIDE_URL = 64 }; /* a method, a version, spaces */
    size_t rest = size - head->line;
    head->scanned = (uint32_t)size;
    if (!head->begun && rest > 0 && data[head->line] != '\r' && !is(data[head->line], TOKEN))
        return fail(head, 400, "the request line does not begin with a method and a space");
    if (!head->begun && rest > (size_t)limits->max_url + BESIDE_URL)
        return fail(head, 414, "the URL is too long");
    return size > limits->max_head ? fail(head, 431, "the head of the request is too large") : 0;
}

int http_parse(struct http_head *head, const char *data, size_t size, const struct http_limits *limits)
{
    size_t most = size < limits->max_head ? size : limits->max_head;
    int r = 0;
    while (r == 0) {
        uint32_t from = head->scanned > head->line ? head->scanned : head->line;
        const char *feed = from < most ? memchr(data + from, '\n', most - from) : NULL;
        if (!feed)
            return look_at_rest(head, data, size, limits);
        const char *line = data + head->line;
        if (feed == line || feed[-1] != '\r')
            return fail(head, 400, "a line does not end with CR and LF");
        head->line = (uint32_t)(feed + 1 - data);
        r = read_line(head, data, line, feed - 1, limits);
    }
    return r;
}

int http_head_find(const struct http_head *head, const char *data, const char *name, int from)
{
    for (uint32_t i = (uint32_t)from; i < head->header_count; i++)
        if (same(data + head->headers[i].name.at, head->headers[i].name.size, name))
            return (int)i;
    return -1;
}

/* --- Chunked bodies ---------------------------------------------------------------------------------------------- */

enum { LINE_MAX_BYTES = 256, TRAILER_MAX_BYTES = 8192 };

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

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum chunk_state size_step(struct http_chunks *chunks, char c)
{
    int value = digit(c);
    if (value >= 0) {
        if (chunks->left >> 56)
            return BAD;
        chunks->left = chunks->left << 4 | (unsigned)value;
        return SIZE;
    }
    if (chunks->state == SIZE_FIRST)
        return BAD;
    return c == '\r' ? SIZE_FEED : c == ';' ? EXTENSION : BAD;
}

/* One byte that is not data: the state after it. */
static enum chunk_state step(struct http_chunks *chunks, char c)
{
    switch ((enum chunk_state)chunks->state) {
    case SIZE_FIRST:
    case SIZE:
        return size_step(chunks, c);
    case EXTENSION:
        return c == '\r' ? SIZE_FEED : is(c, VALUE) ? EXTENSION : BAD;
    case SIZE_FEED:
        return c != '\n' ? BAD : chunks->left ? DATA : TRAILER_FIRST;
    case DATA_RETURN:
        return c == '\r' ? DATA_FEED : BAD;
    case DATA_FEED:
        return c == '\n' ? SIZE_FIRST : BAD;
    case TRAILER_FIRST:
        return c == '\r' ? LAST_FEED : is(c, TOKEN) ? TRAILER_NAME : BAD;
    case TRAILER_NAME:
        return c == ':' ? TRAILER : is(c, TOKEN) ? TRAILER_NAME : BAD;
    case TRAILER:
        return c == '\r' ? TRAILER_FEED : is(c, VALUE) ? TRAILER : BAD;
    case TRAILER_FEED:
        return c == '\n' ? TRAILER_FIRST : BAD;
    case LAST_FEED:
        return c == '\n' ? OVER : BAD;
    default:
        return BAD;
    }
}

static bool too_long(struct http_chunks *chunks)
{
    bool trailer = chunks->state >= TRAILER_FIRST;
    chunks->line = chunks->state == DATA || chunks->state == SIZE_FIRST ? 0 : chunks->line + 1;
    return chunks->line > (trailer ? TRAILER_MAX_BYTES : LINE_MAX_BYTES);
}

int http_chunks_next(struct http_chunks *chunks, const char *data, size_t size, size_t *ret_used, fl_bytes *ret_piece)
{
    size_t used = 0;
    while (used < size && chunks->state != DATA && chunks->state < OVER) {
        chunks->state = step(chunks, data[used++]);
        if (too_long(chunks))
            chunks->state = BAD;
    }
    *ret_used = used;
    if (chunks->state >= OVER)
        return chunks->state == OVER ? HTTP_CHUNKS_END : HTTP_CHUNKS_BAD;
    if (used == size)
        return HTTP_CHUNKS_MORE;
    size_t piece = chunks->left < size - used ? (size_t)chunks->left : size - used;
    *ret_piece = (fl_bytes){data + used, piece};
    *ret_used = used + piece;
    chunks->left -= piece;
    if (chunks->left == 0)
        chunks->state = DATA_RETURN;
    return HTTP_CHUNKS_PIECE;
}
