/* SPDX-License-Identifier: MIT */
/* A scanner without recursion: one word has one bit per open level, so deep nesting costs no memory and cannot overflow the
 * stack. Bytes of strings that stand for themselves are passed eight at a
 * time; bytes that are not ASCII are checked to be UTF-8. */

#include "base/hex.h"
#include "base/utf8.h"
#include "text/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <foliot/error.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

/* --- Scanning: each returns what follows, or NULL after having said where and why -------------------------------- */

struct scan {
    const char *end;
    const char *at; /* of the problem */
    const char *problem;
};

static const char *fail(struct scan *scan, const char *at, const char *problem)
{
    scan->at = at;
    scan->problem = problem;
    return NULL;
}

/* Four digits; -1 if they are not. */
static int hex4(const char *at, const char *end)
{
    uint64_t value;
    return end - at >= 4 && fl__hex_number(at, 4, &value) ? (int)value : -1;
}

/* `at` is behind the backslash. */
static const char *scan_escape(struct scan *scan, const char *at)
{
    if (at == scan->end)
        return fail(scan, at, "the text ends in the middle of a string");
    if (*at != 'u') {
        if (*at == '\0' || !strchr("\"\\/bfnrt", *at))
            return fail(scan, at, "unknown escape sequence");
        return at + 1;
    }
    int unit = hex4(at + 1, scan->end);
    if (unit < 0)
        return fail(scan, at, "\\u needs four hexadecimal digits");
    at += 5;
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return fail(scan, at, "a second half of a surrogate pair without the first");
    if (unit < 0xd800 || unit > 0xdbff)
        return at;
    int low = scan->end - at >= 2 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2, scan->end) : -1;
    if (low < 0xdc00 || low > 0xdfff)
        return fail(scan, at, "a first half of a surrogate pair without the second");
    return at + 6;
}

bool utf8_is_good(fl_bytes bytes)
{
    return fl__utf8_is_good(bytes.data, bytes.size);
}

/* `at` is at the opening quotation mark. */
static const char *scan_string(struct scan *scan, const char *at)
{
    for (at++; (at = fl__plain(at, scan->end)) < scan->end;) {
        unsigned char c = (unsigned char)*at;
        if (c == '"')
            return at + 1;
        if (c == '\\') {
            at = scan_escape(scan, at + 1);
            if (!at)
                return NULL;
        } else if (c < 0x20) {
            return fail(scan, at, "a control character in a string must be escaped");
        } else {
            size_t length = fl__utf8_size((const unsigned char *)at, (size_t)(scan->end - at));
            if (length == 0)
                return fail(scan, at, "a string must be UTF-8");
            at += length;
        }
    }
    return fail(scan, at, "the text ends in the middle of a string");
}

static const char *scan_digits(struct scan *scan, const char *at)
{
    if (at == scan->end || !is_digit(*at))
        return fail(scan, at, "a digit is missing");
    while (at < scan->end && is_digit(*at))
        at++;
    return at;
}

static const char *scan_number(struct scan *scan, const char *at)
{
    if (*at == '-')
        at++;
    if (at < scan->end && *at == '0')
        at++;
    else
        at = scan_digits(scan, at);
    if (at && at < scan->end && *at == '.')
        at = scan_digits(scan, at + 1);
    if (at && at < scan->end && (*at | 0x20) == 'e') {
        at++;
        if (at < scan->end && (*at == '+' || *at == '-'))
            at++;
        at = scan_digits(scan, at);
    }
    return at;
}

static const char *scan_word(struct scan *scan, const char *at, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(scan->end - at) < size || memcmp(at, word, size) != 0)
        return fail(scan, at, "invalid JSON value");
    return at + size;
}

static const char *scan_simple(struct scan *scan, const char *at)
{
    switch (*at) {
    case '"':
        return scan_string(scan, at);
    case 't':
        return scan_word(scan, at, "true");
    case 'f':
        return scan_word(scan, at, "false");
    case 'n':
        return scan_word(scan, at, "null");
    default:
        if (*at == '-' || is_digit(*at))
            return scan_number(scan, at);
        return fail(scan, at, "invalid JSON value");
    }
}

/* The name of a member and the colon behind it. */
static const char *scan_name(struct scan *scan, const char *at)
{
    at = skip_space(at, scan->end);
    if (at == scan->end || *at != '"')
        return fail(scan, at, "the name of a member is missing");
    at = scan_string(scan, at);
    if (!at)
        return NULL;
    at = skip_space(at, scan->end);
    if (at == scan->end || *at != ':')
        return fail(scan, at, "a colon is missing");
    return at + 1;
}

/* What follows the value that begins at `at`, which is no white space. */
static const char *scan_value(struct scan *scan, const char *at)
{
    uint64_t objects = 0; /* bit 0: the innermost open value is an object */
    unsigned depth = 0;
    for (;;) {
        at = skip_space(at, scan->end);
        if (at == scan->end)
            return fail(scan, at, depth ? "the text ends too early" : "a value is missing");
        if (*at == '{' || *at == '[') {
            bool object = *at == '{';
            if (depth == JSON_DEPTH)
                return fail(scan, at, "nested too deeply");
            const char *next = skip_space(at + 1, scan->end);
            depth++;
            objects = objects << 1 | object;
            if (next == scan->end || *next != (object ? '}' : ']')) {
                at = object ? scan_name(scan, at + 1) : at + 1;
                if (!at)
                    return NULL;
                continue;
            }
            at = next;
        } else {
            at = scan_simple(scan, at);
            if (!at)
                return NULL;
        }
        /* A value has ended, or the innermost container does. */
        for (;;) {
            if (depth == 0)
                return at;
            at = skip_space(at, scan->end);
            if (at == scan->end)
                return fail(scan, at, "the text ends too early");
            if (*at == ',') {
                at = objects & 1 ? scan_name(scan, at + 1) : at + 1;
                if (!at)
                    return NULL;
                break;
            }
            if (*at != (objects & 1 ? '}' : ']'))
                return fail(scan, at, objects & 1 ? "a comma or } is missing" : "a comma or ] is missing");
            at++;
            depth--;
            objects >>= 1;
        }
    }
}

/* --- Values ------------------------------------------------------------------------------------------------------- */

static enum json_kind kind_of(char first)
{
    switch (first) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    default:
        return JSON_NUMBER;
    }
}

int json_parse(fl_bytes text, struct json *ret, size_t *ret_at, const char **ret_problem)
{
    const char *begin = text.data;
    struct scan scan = {.end = begin + text.size};
    if (text.size == 0) {
        *ret_at = 0;
        *ret_problem = "a value is missing";
        return FL_INVALID_ARGUMENT;
    }
    const char *at = skip_space(begin, scan.end);
    const char *behind = scan_value(&scan, at);
    if (behind) {
        const char *rest = skip_space(behind, scan.end);
        if (rest != scan.end)
            behind = fail(&scan, rest, "unexpected text after the value");
    }
    if (!behind) {
        *ret_at = (size_t)(scan.at - begin);
        *ret_problem = scan.problem;
        return FL_INVALID_ARGUMENT;
    }
    *ret = (struct json){kind_of(*at), {at, (size_t)(behind - at)}};
    return 0;
}

struct json_walk json_before(struct json value)
{
    const char *at = value.text.data;
    return (struct json_walk){at, at + value.text.size};
}

struct json_walk json_into(const struct json_walk *walk)
{
    return (struct json_walk){walk->at + 1, walk->end};
}

void json_past(struct json_walk *walk, const struct json_walk *inner)
{
    walk->at = inner->at + 1;
}

struct json_walk json_walk(struct json container)
{
    struct json_walk before = json_before(container);
    return json_into(&before);
}

/* The text has been checked: a container ends with its bracket. */
bool json_more(struct json_walk *walk)
{
    walk->at = skip_space(walk->at, walk->end);
    if (*walk->at == ',')
        walk->at = skip_space(walk->at + 1, walk->end);
    return *walk->at != ']' && *walk->at != '}';
}

enum json_kind json_next(const struct json_walk *walk)
{
    return kind_of(*walk->at);
}

struct json json_take(struct json_walk *walk)
{
    struct scan scan = {.end = walk->end};
    const char *at = walk->at;
    walk->at = scan_value(&scan, at);
    return (struct json){kind_of(*at), {at, (size_t)(walk->at - at)}};
}

bool json_element(struct json_walk *walk, struct json *ret)
{
    if (!json_more(walk))
        return false;
    *ret = json_take(walk);
    return true;
}

bool json_key(struct json_walk *walk, struct json *ret_key)
{
    if (!json_element(walk, ret_key))
        return false;
    walk->at = skip_space(walk->at, walk->end) + 1; /* the colon */
    walk->at = skip_space(walk->at, walk->end);
    return true;
}

bool json_member(struct json_walk *walk, struct json *ret_key, struct json *ret_value)
{
    if (!json_key(walk, ret_key))
        return false;
    *ret_value = json_take(walk);
    return true;
}

/* --- Strings and numbers ------------------------------------------------------------------------------------------ */

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* `at` is behind the backslash of a checked escape; what it stands for goes to `to`. */
static const char *unescape(const char *at, const char *end, char **to)
{
    static const char from[] = "bfnrt", into[] = "\b\f\n\r\t";
    if (*at != 'u') {
        const char *found = strchr(from, *at);
        *(*to)++ = found ? into[found - from] : *at;
        return at + 1;
    }
    uint32_t c = (uint32_t)hex4(at + 1, end);
    at += 5;
    if (c >= 0xd800 && c <= 0xdbff) {
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)hex4(at + 2, end) - 0xdc00);
        at += 6;
    }
    *to = put_utf8(*to, c);
    return at;
}

fl_bytes json_string(struct json string, char *room)
{
    const char *at = (const char *)string.text.data + 1;
    size_t size = string.text.size - 2;
    if (!memchr(at, '\\', size))
        return (fl_bytes){at, size};
    const char *end = at + size;
    char *to = room;
    while (at < end) {
        if (*at == '\\')
            at = unescape(at + 1, end, &to);
        else
            *to++ = *at++;
    }
    return (fl_bytes){room, (size_t)(to - room)};
}

bool json_is(struct json string, const char *text)
{
    size_t size = strlen(text);
    const char *at = string.text.data;
    char room[256];
    if (string.kind != JSON_STRING || string.text.size < size + 2 || string.text.size > sizeof room)
        return false;
    if (string.text.size == size + 2)
        return memcmp(at + 1, text, size) == 0;
    fl_bytes bytes = json_string(string, room); /* longer than it stands for, if there are escapes */
    return bytes.size == size && memcmp(bytes.data, text, size) == 0;
}

bool json_get(struct json object, const char *key, struct json *ret)
{
    struct json name, value;
    if (object.kind != JSON_OBJECT)
        return false;
    for (struct json_walk walk = json_walk(object); json_member(&walk, &name, &value);)
        if (json_is(name, key)) {
            *ret = value;
            return true;
        }
    return false;
}

bool json_integer(struct json number, int64_t *ret)
{
    const char *at = number.text.data, *end = at + number.text.size;
    bool minus = *at == '-';
    uint64_t value = 0;
    for (at += minus; at < end; at++) {
        if (!is_digit(*at) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    if (value > (uint64_t)INT64_MAX)
        return false;
    *ret = minus ? -(int64_t)value : (int64_t)value;
    return true;
}

double json_double(struct json number)
{
    char text[64];
    if (number.text.size >= sizeof text)
        return NAN;
    memcpy(text, number.text.data, number.text.size);
    text[number.text.size] = '\0';
    return strtod(text, NULL);
}

bool json_milliseconds(struct json number, int64_t *ret_us)
{
    int64_t ms;
    if (json_integer(number, &ms) && !__builtin_mul_overflow(ms, 1000, ret_us))
        return true;
    double us = ceil(json_double(number) * 1000);
    if (!(fabs(us) < 9e18))
        return false;
    *ret_us = (int64_t)us;
    return true;
}
