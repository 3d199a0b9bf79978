/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_JSON_H
#define FOLIOT_SERVER_JSON_H

/* JSON (RFC 8259) that is read where it lies: json_parse() checks a whole text once, and everything else walks through
 * what has been checked and cannot fail. Nothing is copied and nothing allocated, so a payload goes into the store as it
 * came: its numbers keep their digits and its members their order. Texts must be UTF-8 without lone surrogates. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <foliot/store.h> /* fl_bytes */

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum { JSON_DEPTH = 64 };

struct json {
    enum json_kind kind;
    fl_bytes text; /* as it was written, without white space around it */
};

/* Checks a text that must be one value. Returns 0; FL_INVALID_ARGUMENT: then `ret_at` is where, and `ret_problem` why. */
int json_parse(fl_bytes text, struct json *ret, size_t *ret_at, const char **ret_problem);

/* Walking through an object or an array:
 *
 *     struct json_walk walk = json_walk(object);
 *     while (json_member(&walk, &key, &value)) … */
struct json_walk {
    const char *at, *end;
};
struct json_walk json_walk(struct json container);
bool json_member(struct json_walk *walk, struct json *ret_key, struct json *ret_value);
bool json_element(struct json_walk *walk, struct json *ret);

/* Both functions pass the value to find its end. A long list of objects is read faster without that:
 *
 *     while (json_more(&walk)) {                        or json_key(&walk, &key), in an object
 *         struct json_walk inner = json_into(&walk);    if json_next(&walk) is JSON_OBJECT or JSON_ARRAY
 *         while (json_member(&inner, &key, &value)) …   to the end
 *         json_past(&walk, &inner);                     or json_take(&walk), which passes the value
 *     } */
bool json_more(struct json_walk *walk); /* false: there is no further element */
bool json_key(struct json_walk *walk, struct json *ret_key);
enum json_kind json_next(const struct json_walk *walk);
struct json json_take(struct json_walk *walk);
struct json_walk json_into(const struct json_walk *walk);
void json_past(struct json_walk *walk, const struct json_walk *inner);
struct json_walk json_before(struct json value); /* json_next() is this value */

/* Finds the first member of an object with this short name. Returns false if the value is no object, or has no such member. */
bool json_get(struct json object, const char *key, struct json *ret);

/* The bytes a string stands for. `room` must have as many bytes as the string's text; it is used only if there are escapes. */
fl_bytes json_string(struct json string, char *room);

/* Whether bytes are UTF-8. */
bool utf8_is_good(fl_bytes bytes);

/* Whether a string stands for this text, which is a short one. */
bool json_is(struct json string, const char *text);

/* A number without fraction or exponent that fits. */
bool json_integer(struct json number, int64_t *ret);
double json_double(struct json number); /* NaN if it has 64 characters or more */

/* Milliseconds, in microseconds and rounded up. */
bool json_milliseconds(struct json number, int64_t *ret_us);

#endif
