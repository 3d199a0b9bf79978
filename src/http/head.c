/* SPDX-License-Identifier: MIT */
/* Reads the heads of HTTP/1 messages: of requests, and of the responses of webhooks and other servers.
 *
 * A head is read line by line. A line is looked at once, when its line feed has come, and an error in it is reported then.
 *
 * Requests are read strictly. Two programs that read the same bytes as different requests are how requests are smuggled past a
 * proxy. So there is one reading or none: lines end with CR LF and contain no other CR or LF, names have no space before the
 * colon, lines are not folded, and the size of a body is given once, in one way. Where RFC 9112 lets a recipient repair a
 * message, this reader refuses it.
 *
 * Responses are read leniently where no confusion is possible, because a webhook was delivered whatever its response looks like:
 * lines may end with LF alone, folded lines are skipped, and a length may be repeated. A connection on which the end of the
 * message is ambiguous is not kept. */

#include <string.h>

#include "http/internal.h"

/* --- Characters -------------------------------------------------------------------------------------------------- */

const uint8_t http_classes[256] = {
    ['\t'] = HTTP_VALUE,
    [' '] = HTTP_VALUE,
    ['!'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['"'] = HTTP_TARGET | HTTP_VALUE,
    ['#'] = HTTP_TOKEN | HTTP_VALUE,
    ['$' ... '\''] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['(' ... ')'] = HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['*' ... '+'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    [','] = HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['-' ... '.'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['/'] = HTTP_TARGET | HTTP_VALUE,
    ['0' ... '9'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    [':' ... ';'] = HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['<'] = HTTP_TARGET | HTTP_VALUE,
    ['='] = HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['>' ... '@'] = HTTP_TARGET | HTTP_VALUE,
    ['A' ... 'Z'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['['] = HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['\\'] = HTTP_TARGET | HTTP_VALUE,
    [']'] = HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['^'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE,
    ['_'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['`'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE,
    ['a' ... 'z'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    ['{'] = HTTP_TARGET | HTTP_VALUE,
    ['|'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE,
    ['}'] = HTTP_TARGET | HTTP_VALUE,
    ['~'] = HTTP_TOKEN | HTTP_TARGET | HTTP_VALUE | HTTP_HOST,
    [0x80 ... 0xff] = HTTP_VALUE,
};

/* The first character that is not of the class, or `end`. */
static const char *skip(const char *at, const char *end, unsigned class)
{
    while (at < end && http_is(*at, class))
        at++;
    return at;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

fl_bytes http_trim(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    while (end > at && is_space(end[-1]))
        end--;
    return (fl_bytes){at, (size_t)(end - at)};
}

bool http_same(fl_bytes text, const char *lower_case)
{
    const char *at = text.data;
    if (strlen(lower_case) != text.size)
        return false;
    for (size_t i = 0; i < text.size; i++)
        if (lower(at[i]) != lower_case[i])
            return false;
    return true;
}

static bool same(const char *at, size_t size, const char *lower_case)
{
    return http_same((fl_bytes){at, size}, lower_case);
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

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
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
    bool version = end - at == 8 && memcmp(at, "HTTP/", 5) == 0 && is_digit(at[5]) && at[6] == '.' && is_digit(at[7]);
    if (!version)
        return fail(head, 400, "the request line does not end with an HTTP version");
    if (at[5] != '1' || at[7] > '1')
        return fail(head, 505, "the HTTP version is neither 1.0 nor 1.1");
    head->minor = (unsigned)(at[7] - '0');
    return 0;
}

/* Where the path begins in "/path" or "http://authority/path". NULL: the target has neither form. */
static const char *read_authority(struct http_head *head, const char *data, const char *at, const char *end)
{
    size_t scheme = end - at > 7 && same(at, 7, "http://") ? 7 : end - at > 8 && same(at, 8, "https://") ? 8 : 0;
    if (scheme == 0)
        return *at == '/' ? at : NULL;
    const char *authority = at + scheme;
    const char *path = skip(authority, end, HTTP_HOST);
    head->authority = slice(data, authority, path);
    return path > authority && (path == end || *path == '/' || *path == '?') ? path : NULL;
}

static int read_target(struct http_head *head, const char *data, const char *at, const char *end)
{
    if (end - at == 1 && *at == '*' && head->method == HTTP_OPTIONS) {
        head->path = slice(data, at, end);
        return 0;
    }
    const char *path = read_authority(head, data, at, end);
    if (!path)
        return fail(head, 400, "the target of the request is neither a path nor a URL");
    const char *question = memchr(path, '?', (size_t)(end - path));
    head->path = slice(data, path, question ? question : end);
    head->query = question ? slice(data, question + 1, end) : (struct http_slice){0};
    return 0;
}

static int read_request_line(struct http_head *head, const char *data, const char *at, const char *end,
                             const struct http_rules *rules)
{
    const char *method_end = skip(at, end, HTTP_TOKEN);
    if (method_end == at || method_end == end || *method_end != ' ')
        return fail(head, 400, "the request line does not begin with a method and a space");
    head->method = method_of(at, (size_t)(method_end - at));
    const char *target = method_end + 1;
    const char *target_end = skip(target, end, HTTP_TARGET);
    if ((size_t)(target_end - target) > rules->max_url)
        return fail(head, 414, "the URL is too long");
    if (target_end == target || target_end == end || *target_end != ' ')
        return fail(head, 400, "the target of the request is missing or has a character that must be escaped");
    int r = read_version(head, target_end + 1, end);
    if (r == 0)
        r = read_target(head, data, target, target_end);
    head->begun = r == 0;
    return r;
}

/* "HTTP/1.1 200 OK" */
static int read_status_line(struct http_head *head, const char *at, const char *end)
{
    if (end - at < 12 || memcmp(at, "HTTP/1.", 7) != 0 || !is_digit(at[7]) || at[8] != ' ' || !is_digit(at[9]) ||
        !is_digit(at[10]) || !is_digit(at[11]) || (end - at > 12 && at[12] != ' '))
        return fail(head, 400, "the status line is malformed");
    head->minor = at[7] != '0';
    head->status = (at[9] - '0') * 100 + (at[10] - '0') * 10 + (at[11] - '0');
    if (head->status < 100)
        return fail(head, 400, "the status is below 100");
    head->begun = true;
    return 0;
}

/* --- Headers ----------------------------------------------------------------------------------------------------- */

static int read_host(struct http_head *head, const char *value, const char *end)
{
    if (head->has_host)
        return fail(head, 400, "the Host header appears more than once");
    if (skip(value, end, HTTP_HOST) != end)
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
        if (!is_digit(*at))
            return fail(head, 400, "the Content-Length is not a number");
        if (__builtin_mul_overflow(length, 10, &length) || __builtin_add_overflow(length, *at - '0', &length))
            return fail(head, 413, "the Content-Length is too large");
    }
    if (head->has_length && (head->kind == HTTP_REQUEST || head->length != length))
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
        at = skip(at, end, HTTP_TOKEN);
        head->close = head->close || same(word, (size_t)(at - word), "close");
        head->keep = head->keep || same(word, (size_t)(at - word), "keep-alive");
    }
}

/* The headers that say where the message ends and what becomes of its connection. */
static int note(struct http_head *head, const char *name, size_t size, const char *value, const char *end)
{
    switch (size) {
    case 4:
        return head->kind == HTTP_REQUEST && same(name, size, "host") ? read_host(head, value, end) : 0;
    case 6:
        return head->kind == HTTP_REQUEST && same(name, size, "expect") ? read_expect(head, value, end) : 0;
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

/* Where the name ends; NULL: the line is not a header. */
static const char *name_end(const struct http_head *head, const char *at, const char *end)
{
    if (head->kind == HTTP_REQUEST) {
        const char *colon = skip(at, end, HTTP_TOKEN);
        return colon > at && colon < end && *colon == ':' ? colon : NULL;
    }
    const char *colon = memchr(at, ':', (size_t)(end - at));
    return colon && colon > at && colon[-1] != ' ' && colon[-1] != '\t' ? colon : NULL;
}

static bool is_value(const struct http_head *head, const char *value, const char *end)
{
    return head->kind == HTTP_REQUEST ? skip(value, end, HTTP_VALUE) == end
                                      : !memchr(value, '\0', (size_t)(end - value));
}

static int read_header(struct http_head *head, const char *data, const char *at, const char *end,
                       const struct http_rules *rules, void *arg)
{
    if (head->kind == HTTP_RESPONSE && (*at == ' ' || *at == '\t')) /* folded: it belongs to no header that matters */
        return 0;
    const char *colon = name_end(head, at, end);
    if (!colon)
        return fail(head, 400, "a header does not begin with a name and a colon");
    if (!is_value(head, colon + 1, end))
        return fail(head, 400, "a header contains a forbidden character");
    fl_bytes trimmed = http_trim(colon + 1, end);
    const char *value = trimmed.data, *value_end = value + trimmed.size;
    if (!rules->field(arg, data, (struct http_field){slice(data, at, colon), slice(data, value, value_end)}))
        return fail(head, 431, "the request has too many headers");
    return note(head, at, (size_t)(colon - at), value, value_end);
}

/* --- Heads ------------------------------------------------------------------------------------------------------- */

static int finish_request(struct http_head *head)
{
    if (head->minor == 1 && !head->has_host)
        return fail(head, 400, "the Host header is missing");
    if (head->chunked && head->has_length)
        return fail(head, 400, "a request must not have both Content-Length and Transfer-Encoding");
    if (head->chunked && head->minor == 0)
        return fail(head, 400, "HTTP/1.0 does not allow Transfer-Encoding");
    head->framing = head->chunked ? HTTP_CHUNKED : head->length > 0 ? HTTP_LENGTH : HTTP_NO_BODY;
    if (head->minor == 0 || head->framing == HTTP_NO_BODY)
        head->expects_continue = false;
    head->keep_alive = !head->close && (head->minor == 1 || head->keep);
    return 1;
}

static int finish_response(struct http_head *head)
{
    if (head->status < 200 || head->status == 204 || head->status == 304)
        head->framing = HTTP_NO_BODY;
    else if (head->chunked)
        head->framing = HTTP_CHUNKED;
    else if (head->has_length)
        head->framing = head->length > 0 ? HTTP_LENGTH : HTTP_NO_BODY;
    else
        head->framing = HTTP_UNTIL_CLOSE;
    bool ambiguous = head->framing == HTTP_CHUNKED && head->has_length; /* to a proxy on the way */
    head->keep_alive =
        !head->close && (head->minor == 1 || head->keep) && head->framing != HTTP_UNTIL_CLOSE && !ambiguous;
    return 1;
}

static int read_line(struct http_head *head, const char *data, const char *at, const char *end,
                     const struct http_rules *rules, void *arg)
{
    if (head->begun && at < end)
        return read_header(head, data, at, end, rules, arg);
    if (head->begun) {
        head->size = head->line;
        return head->kind == HTTP_REQUEST ? finish_request(head) : finish_response(head);
    }
    if (head->kind == HTTP_RESPONSE)
        return read_status_line(head, at, end);
    if (at < end)
        return read_request_line(head, data, at, end, rules);
    if (head->blank)
        return fail(head, 400, "the request line is missing");
    head->blank = true;
    return 0;
}

/* What can be said of a line that is not whole yet. */
static int look_at_rest(struct http_head *head, const char *data, size_t size, const struct http_rules *rules)
{
    enum { BESIDE_URL = 64 }; /* a method, a version, spaces */
    bool request = head->kind == HTTP_REQUEST;
    size_t rest = size - head->line;
    head->scanned = (uint32_t)size;
    if (request && !head->begun && rest > 0 && data[head->line] != '\r' && !http_is(data[head->line], HTTP_TOKEN))
        return fail(head, 400, "the request line does not begin with a method and a space");
    if (request && !head->begun && rest > (size_t)rules->max_url + BESIDE_URL)
        return fail(head, 414, "the URL is too long");
    if (!request && !head->begun && rest >= 5 && memcmp(data + head->line, "HTTP/", 5) != 0)
        return fail(head, 400, "the response is not HTTP");
    return size > rules->max_head ? fail(head, 431, "the head of the request is too large") : 0;
}

int http_read_head(struct http_head *head, const char *data, size_t size, const struct http_rules *rules, void *arg)
{
    size_t most = size < rules->max_head ? size : rules->max_head;
    int r = 0;
    head->kind = rules->kind;
    while (r == 0) {
        uint32_t from = head->scanned > head->line ? head->scanned : head->line;
        const char *feed = from < most ? memchr(data + from, '\n', most - from) : NULL;
        if (!feed)
            return look_at_rest(head, data, size, rules);
        const char *line = data + head->line;
        bool cr = feed > line && feed[-1] == '\r';
        if (!cr && head->kind == HTTP_REQUEST)
            return fail(head, 400, "a line does not end with CR and LF");
        head->line = (uint32_t)(feed + 1 - data);
        r = read_line(head, data, line, cr ? feed - 1 : feed, rules, arg);
    }
    return r;
}

static bool is_all(fl_bytes text, unsigned class)
{
    const char *end = (const char *)text.data + text.size;
    return skip(text.data, end, class) == end;
}

bool http_is_name(fl_bytes name)
{
    return name.size > 0 && is_all(name, HTTP_TOKEN);
}

bool http_is_value(fl_bytes value)
{
    return is_all(value, HTTP_VALUE);
}

bool http_keep_field(void *arg, const char *data, struct http_field field)
{
    struct http_fields *fields = arg;
    (void)data;
    if (fields->count == HTTP_FIELDS_MAX)
        return false;
    fields->field[fields->count++] = field;
    return true;
}

int http_find_field(const struct http_fields *fields, const char *data, const char *name, int from)
{
    for (uint32_t i = (uint32_t)from; i < fields->count; i++)
        if (same(data + fields->field[i].name.at, fields->field[i].name.size, name))
            return (int)i;
    return -1;
}

fl_bytes http_field_value(const struct http_fields *fields, const char *data, const char *name)
{
    int i = http_find_field(fields, data, name, 0);
    if (i < 0)
        return (fl_bytes){0};
    return (fl_bytes){data + fields->field[i].value.at, fields->field[i].value.size};
}
