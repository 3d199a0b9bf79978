/* SPDX-License-Identifier: MIT */
/* Responses: reading them, and what they mean. A few headers and the first 64 KiB of the body are kept.
 *
 * A head is read where it lies; only if it comes in several pieces are they put together. */

#include "base/assert.h"
#include "webhook/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/json.h"
#include "text/when.h"

enum { SECOND_US = 1000000 };
static const int64_t day_us = INT64_C(86400) * SECOND_US;

/* --- Collecting --------------------------------------------------------------------------------------------------- */

void webhook_response_begin(struct webhook_response *response, int status)
{
    response->status = status;
    response->other_type = response->cut = false;
    response->retry_after[0] = '\0';
    response->body_size = 0;
    out_clear(&response->location);
    out_clear(&response->body);
}

void webhook_response_free(struct webhook_response *response)
{
    out_free(&response->location);
    out_free(&response->body);
    *response = (struct webhook_response){0};
}

/* "application/json; charset=utf-8", "application/problem+json" */
static bool is_json_type(fl_bytes type)
{
    const char *at = type.data, *semicolon = memchr(at, ';', type.size);
    size_t size = semicolon ? (size_t)(semicolon - at) : type.size;
    while (size > 0 && (at[size - 1] == ' ' || at[size - 1] == '\t'))
        size--;
    return size >= 5 && strncasecmp(at + size - 4, "json", 4) == 0 && (at[size - 5] == '/' || at[size - 5] == '+');
}

void webhook_response_header(struct webhook_response *response, fl_bytes name, fl_bytes value)
{
    if (http_same(name, "content-type")) {
        response->other_type = value.size > 0 && !is_json_type(value);
    } else if (http_same(name, "retry-after") && value.size < sizeof response->retry_after) {
        memcpy(response->retry_after, value.data, value.size);
        response->retry_after[value.size] = '\0';
    } else if (http_same(name, "location") && value.size < WEBHOOK_LOCATION_MOST) {
        out_clear(&response->location);
        out_put(&response->location, value.data, value.size);
        out_put(&response->location, "", 1);
    }
}

bool webhook_response_body(struct webhook_response *response, const void *data, size_t size)
{
    fl__assert(response->body_size <= WEBHOOK_BODY_MOST && response->body.size <= response->body_size);
    size_t room = WEBHOOK_BODY_MOST - response->body_size;
    response->cut = size > room;
    if (response->cut)
        size = room;
    response->body_size += size;
    bool good = response->status / 100 == 2;
    size_t most = good && !response->other_type ? WEBHOOK_BODY_MOST : good ? response->keep : response->keep_failed;
    size_t left = response->body.size < most ? most - response->body.size : 0;
    out_put(&response->body, data, size < left ? size : left);
    return !response->cut;
}

/* --- Reading ------------------------------------------------------------------------------------------------------ */

enum { HEADS_MOST = 64 << 10 }; /* bytes of a head, and of interim ones before it */

void webhook_reader_begin(struct webhook_reader *reader)
{
    reader->any = reader->keep = reader->in_body = false;
    reader->interim_size = 0;
    reader->head = (struct http_head){0};
    http_buffer_take(&reader->part, http_buffer_size(&reader->part));
}

void webhook_reader_free(struct webhook_reader *reader)
{
    http_buffer_free(&reader->part);
}

static bool take_field(void *arg, const char *data, struct http_field field)
{
    webhook_response_header(arg, (fl_bytes){data + field.name.at, field.name.size},
                            (fl_bytes){data + field.value.at, field.value.size});
    return true;
}

static enum webhook_read cut(struct webhook_reader *reader, struct webhook_response *response)
{
    response->cut = true;
    reader->keep = false;
    return WEBHOOK_WHOLE;
}

static enum webhook_read read_body(struct webhook_reader *reader, struct webhook_response *response, const char *data,
                                   size_t size)
{
    enum http_body_step step;
    do {
        size_t used;
        fl_bytes piece;
        step = http_body_next(&reader->body, data, size, &used, &piece);
        if (step == HTTP_BODY_BAD)
            return WEBHOOK_BAD;
        if (step == HTTP_BODY_LONG || !webhook_response_body(response, piece.data, piece.size))
            return cut(reader, response);
        data += used;
        size -= used;
    } while (step == HTTP_BODY_PIECE);
    if (step == HTTP_BODY_MORE)
        return WEBHOOK_MORE;
    reader->keep = reader->head.keep_alive && size == 0; /* bytes after the response were not requested */
    return WEBHOOK_WHOLE;
}

/* Reads the head at `data`. Returns 1 if it is whole; 0 if it needs more; negative: it is bad. */
static int read_head(struct webhook_reader *reader, struct webhook_response *response, const char *data, size_t size)
{
    static const struct http_rules rules = {HTTP_RESPONSE, .max_head = HEADS_MOST, .field = take_field};
    int r = http_read_head(&reader->head, data, size, &rules, response);
    if (r <= 0)
        return r;
    response->status = reader->head.status;
    reader->in_body = response->status >= 200;
    http_body_begin(&reader->body, &reader->head);
    return response->status == 101 ? FL_INVALID_ARGUMENT : 1; /* the request did not ask for an upgrade */
}

/* Forgets an interim response. Returns false if there were too many. */
static bool skip_interim(struct webhook_reader *reader, struct webhook_response *response)
{
    fl__assert(!reader->in_body);
    reader->interim_size += reader->head.size;
    reader->head = (struct http_head){0};
    webhook_response_begin(response, 0);
    return reader->interim_size <= HEADS_MOST;
}

enum webhook_read webhook_read(struct webhook_reader *reader, struct webhook_response *response, const char *data,
                               size_t size)
{
    struct http_buffer *part = &reader->part;
    reader->any |= size > 0;
    if (reader->in_body)
        return read_body(reader, response, data, size);
    bool had_part = http_buffer_size(part) > 0;
    if (had_part && !http_buffer_append(part, data, size))
        return WEBHOOK_BAD;
    const char *at = had_part ? http_buffer_data(part) : data, *end = at + (had_part ? http_buffer_size(part) : size);
    int r;
    while ((r = read_head(reader, response, at, (size_t)(end - at))) > 0) {
        at += reader->head.size;
        if (reader->in_body)
            return read_body(reader, response, at, (size_t)(end - at));
        if (!skip_interim(reader, response))
            return WEBHOOK_BAD;
    }
    if (r < 0)
        return WEBHOOK_BAD;
    if (had_part)
        http_buffer_take(part, (size_t)(at - http_buffer_data(part)));
    return had_part || http_buffer_append(part, at, (size_t)(end - at)) ? WEBHOOK_MORE : WEBHOOK_BAD;
}

enum webhook_read webhook_read_end(const struct webhook_reader *reader)
{
    return reader->in_body && reader->body.framing == HTTP_UNTIL_CLOSE ? WEBHOOK_WHOLE : WEBHOOK_BAD;
}

/* --- Again -------------------------------------------------------------------------------------------------------- */

/* "again_at": RFC 3339 or Unix milliseconds. */
static bool read_at(struct json value, int64_t *ret_us)
{
    char room[128];
    if (value.kind == JSON_NUMBER)
        return json_milliseconds(value, ret_us);
    return value.kind == JSON_STRING && value.text.size <= sizeof room &&
           when_parse(json_string(value, room), ret_us) == 0;
}

/* "again_after": a duration. */
static bool read_after(struct json value, int64_t now_us, int64_t *ret_us)
{
    uint64_t us;
    char room[128];
    return value.kind == JSON_STRING && value.text.size <= sizeof room &&
           duration_parse(json_string(value, room), &us) == 0 && !__builtin_add_overflow(now_us, us, ret_us);
}

static void settle_again(struct json object, int64_t now_us, webhook_attempt *attempt)
{
    struct json key, value, at = {.kind = JSON_NULL}, after = {.kind = JSON_NULL};
    struct json_walk walk = json_walk(object);
    while (json_member(&walk, &key, &value)) {
        if (json_is(key, "again_at"))
            at = value;
        else if (json_is(key, "again_after"))
            after = value;
    }
    if (at.kind == JSON_NULL && after.kind == JSON_NULL)
        return;
    int64_t us = 0;
    const char *problem = NULL;
    if (at.kind != JSON_NULL && after.kind != JSON_NULL)
        problem = "it has both again_at and again_after";
    else if (at.kind != JSON_NULL && !read_at(at, &us))
        problem = "again_at is neither RFC 3339 nor Unix milliseconds";
    else if (after.kind != JSON_NULL && !read_after(after, now_us, &us))
        problem = "again_after is not a duration";
    else if (at.kind != JSON_NULL && us < WHEN_PLAUSIBLE_US)
        problem = "again_at is before 2001; a number is milliseconds since 1970";
    else if (us >= FL_STORE_TIME_END)
        problem = "the time is after the year 3111";
    if (problem) {
        snprintf(attempt->reason, sizeof attempt->reason, "the response body was ignored: %s", problem);
        return;
    }
    attempt->result = FL_AGAIN;
    attempt->at_us = us < 0 ? 0 : us;
}

static void settle_success(const struct webhook_response *response, int64_t now_us, webhook_attempt *attempt)
{
    struct json value;
    size_t at;
    const char *problem, *ignored = NULL;
    attempt->result = FL_DONE;
    if (response->cut)
        ignored = "it exceeds 64 KiB";
    else if (response->other_type && response->body_size > 0)
        ignored = "its content type is not JSON";
    else if (response->body.failed)
        ignored = "out of memory";
    else if (response->body.size > 0 &&
             json_parse((fl_bytes){response->body.data, response->body.size}, &value, &at, &problem) < 0)
        ignored = "it is not JSON";
    else if (response->body.size > 0 && value.kind == JSON_OBJECT)
        settle_again(value, now_us, attempt);
    if (ignored)
        snprintf(attempt->reason, sizeof attempt->reason, "the response body was ignored: %s", ignored);
}

/* --- Failure ------------------------------------------------------------------------------------------------------ */

/* Seconds or a date; 0 if it is neither. */
static int64_t read_retry_after(const char *text, int64_t now_us)
{
    size_t digits = strspn(text, "0123456789");
    int64_t at_us;
    if (*text == '\0')
        return 0;
    if (text[digits] == '\0') {
        long long seconds = digits > 6 ? 1000000 : strtoll(text, NULL, 10);
        at_us = now_us + seconds * SECOND_US;
    } else {
        time_t date = curl_getdate(text, NULL);
        if (date <= 0 || date >= FL_STORE_TIME_END / SECOND_US)
            return 0;
        at_us = (int64_t)date * SECOND_US;
    }
    return at_us > now_us + day_us ? now_us + day_us : at_us;
}

static enum fl_settle result_of(int status)
{
    switch (status) {
    case 408:
    case 425:
    case 429:
        return FL_FAILED;
    case 303:
        return FL_DEAD;
    default:
        return status / 100 == 4 ? FL_DEAD : FL_FAILED;
    }
}

void webhook_response_settle(const struct webhook_response *response, int64_t now_us, webhook_attempt *attempt)
{
    attempt->status = response->status;
    if (response->status / 100 == 2) {
        settle_success(response, now_us, attempt);
        return;
    }
    attempt->result = result_of(response->status);
    if (attempt->result == FL_FAILED)
        attempt->at_us = read_retry_after(response->retry_after, now_us);
    snprintf(attempt->reason, sizeof attempt->reason, "answered with status %d", response->status);
}
