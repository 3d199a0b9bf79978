/* SPDX-License-Identifier: MIT */
/* See problem.h. */

#include "text/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <foliot/error.h>

/* What was cut must not end in the middle of a character. */
static void mend_end(char *text)
{
    size_t size = strlen(text);
    while (size > 0 && !utf8_is_good((fl_bytes){text, size}))
        text[--size] = '\0';
}

int problem_set(struct problem *problem, int status, const char *type, const char *field, const char *format, ...)
{
    va_list arguments;
    problem->status = status;
    problem->type = type;
    problem->field = field;
    va_start(arguments, format);
    vsnprintf(problem->detail, sizeof problem->detail, format, arguments);
    va_end(arguments);
    mend_end(problem->detail);
    return -1;
}

/* Their names with commas between them, as far as there is room. */
static void join(const char *const *names, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; names[i] && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", names[i]);
}

int problem_unknown(struct problem *problem, const char *what, const char *inside, fl_bytes name,
                    const char *const *allowed)
{
    char names[sizeof problem->detail];
    int shown = name.size < sizeof problem->field_room ? (int)name.size : (int)sizeof problem->field_room;
    snprintf(problem->field_room, sizeof problem->field_room, "%s%s%.*s", inside ? inside : "", inside ? "." : "",
             shown, (const char *)name.data);
    mend_end(problem->field_room);
    if (!allowed[0])
        return problem_set(problem, 400, "unknown-field", problem->field_room,
                           "unknown %s \"%s\"; none is allowed here", what, problem->field_room);
    join(allowed, names, sizeof names);
    return problem_set(problem, 400, "unknown-field", problem->field_room, "unknown %s \"%s\"; allowed %ss: %.150s",
                       what, problem->field_room, what, names);
}

int problem_unknown_member(struct problem *problem, const char *inside, struct json key, const char *const *allowed)
{
    char room[256];
    fl_bytes as_written = {(const char *)key.text.data + 1, key.text.size - 2};
    return problem_unknown(problem, "field", inside, key.text.size <= sizeof room ? json_string(key, room) : as_written,
                           allowed);
}

int problem_member(struct problem *problem, const char *inside, const char *const *names, struct json key,
                   unsigned *given)
{
    int i = 0;
    while (names[i] && !json_is(key, names[i]))
        i++;
    if (!names[i])
        return problem_unknown_member(problem, inside, key, names);
    if (!(*given & 1u << i)) {
        *given |= 1u << i;
        return i;
    }
    snprintf(problem->field_room, sizeof problem->field_room, "%s%s%s", inside ? inside : "", inside ? "." : "",
             names[i]);
    return problem_set(problem, 400, "invalid-field", problem->field_room, "%s appears twice; give it once",
                       problem->field_room);
}

int problem_of_result(struct problem *problem, int result)
{
    static const struct {
        int result, status;
        const char *type, *detail;
    } known[] = {
        {FL_TIMER_NOT_FOUND, 404, "not-found", "the timer does not exist, or it has fired"},
        {FL_INVALID_TIMER_ID, 404, "not-found", "the timer does not exist, or it has fired"},
        {FL_EXISTS, 412, "exists", "a timer with this name exists"},
        {FL_BUSY, 409, "busy", "an attempt is in progress; wait for its result, or replace the timer with PUT"},
        {FL_INVALID_DEADLINE, 400, "invalid-field", "due is after the year 3111, which is the last"},
        {FL_TOO_LARGE, 413, "too-large", "the payload, the target or the headers are too large"},
        {FL_OUTCOME_UNKNOWN, 503, "outcome-unknown",
         "the store did not respond, so the change may or may not have happened; read the timer, or send the request "
         "again"},
        {FL_STORE_FULL, 507, "store-full", "the disk of the store is full; nothing has happened; free some space"},
        {FL_STORE_READ_ONLY, 503, "store-read-only", "the store is read-only; nothing has happened; make it writable"},
        {FL_STORE_CORRUPT, 500, "store-corrupt", "the store is damaged; run foliot doctor for details"},
        {FL_NO_MEMORY, 503, "no-memory", "the server has no memory left; nothing has happened; try again later"},
        {FL_STOPPED, 503, "stopping",
         "the server is stopping; nothing has happened; try another server, or again later"},
        {FL_CAPACITY_EXCEEDED, 503, "overloaded",
         "the server that owns this timer is overloaded; nothing has happened; try again later"},
        {FL_SHARD_LOST, 503, "shard-lost", "another server has taken over this shard; send the request again"},
        {FL_STORE_UNAVAILABLE, 503, "store-unavailable",
         "the store does not respond, or no server can use this shard of it yet; nothing has happened; try again "
         "later"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].result == result)
            return problem_set(problem, known[i].status, known[i].type, NULL, "%s", known[i].detail);
    return problem_set(problem, 500, "internal", NULL, "%s", fl_strerror(result));
}

const char *status_text(int status)
{
    static const char *const texts[] = {
        [101] = "Switching Protocols",
        [200] = "OK",
        [201] = "Created",
        [202] = "Accepted",
        [204] = "No Content",
        [207] = "Multi-Status",
        [301] = "Moved Permanently",
        [302] = "Found",
        [304] = "Not Modified",
        [307] = "Temporary Redirect",
        [308] = "Permanent Redirect",
        [400] = "Bad Request",
        [401] = "Unauthorized",
        [403] = "Forbidden",
        [404] = "Not Found",
        [405] = "Method Not Allowed",
        [406] = "Not Acceptable",
        [408] = "Request Timeout",
        [409] = "Conflict",
        [410] = "Gone",
        [411] = "Length Required",
        [412] = "Precondition Failed",
        [413] = "Content Too Large",
        [414] = "URI Too Long",
        [415] = "Unsupported Media Type",
        [417] = "Expectation Failed",
        [422] = "Unprocessable Content",
        [426] = "Upgrade Required",
        [428] = "Precondition Required",
        [429] = "Too Many Requests",
        [431] = "Request Header Fields Too Large",
        [500] = "Internal Server Error",
        [501] = "Not Implemented",
        [502] = "Bad Gateway",
        [503] = "Service Unavailable",
        [504] = "Gateway Timeout",
        [505] = "HTTP Version Not Supported",
        [507] = "Insufficient Storage",
    };
    bool known = status >= 0 && (size_t)status < sizeof texts / sizeof *texts && texts[status];
    return known ? texts[status] : "Error";
}

void problem_write(struct out *out, const struct problem *problem)
{
    out_text(out, "{\"type\":\"urn:foliot:problem:");
    out_text(out, problem->type);
    out_text(out, "\",\"title\":\"");
    out_text(out, status_text(problem->status));
    out_text(out, "\",\"status\":");
    out_number(out, problem->status);
    if (problem->field) {
        out_text(out, ",\"field\":");
        out_string(out, bytes_of(problem->field));
    }
    out_text(out, ",\"detail\":");
    out_string(out, bytes_of(problem->detail));
    out_text(out, "}");
}
