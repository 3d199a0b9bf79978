/* SPDX-License-Identifier: MIT */
/* `foliot ack`: acknowledges leases that `foliot lease` has printed. */

#include <stdio.h>
#include <string.h>

#include "cli/content.h"
#include "cli/show.h"

static const char *given, *result = "done", *after;

static void put_ack(struct out *body, struct json lease, bool first)
{
    out_text(body, first ? "{\"lease\":" : ",{\"lease\":");
    out_put(body, lease.text.data, lease.text.size);
    out_key(body, "result");
    out_string(body, bytes_of(result));
    if (after) {
        out_key(body, "after");
        out_string(body, bytes_of(after));
    }
    out_text(body, "}");
}

/* A line is a lease, or a JSON object with one, as `foliot lease` prints it. Returns whether it was. */
static bool put_line(struct out *body, fl_bytes line, bool first)
{
    struct json object, lease;
    struct out quoted = {0};
    size_t at;
    const char *why;
    bool found = json_parse(line, &object, &at, &why) == 0 && json_get(object, "lease", &lease);
    if (!found) {
        out_string(&quoted, line);
        found = !quoted.failed && json_parse(out_bytes(&quoted), &lease, &at, &why) == 0;
    }
    if (found)
        put_ack(body, lease, first);
    out_free(&quoted);
    return found;
}

static size_t put_acks(struct out *body, fl_bytes text)
{
    size_t count = 0;
    const char *at = text.data, *end = at + text.size;
    out_text(body, "{\"acks\":[");
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        if (stop > at)
            count += put_line(body, (fl_bytes){at, (size_t)(stop - at)}, count == 0);
        at = stop + 1;
    }
    out_text(body, "]}");
    return count;
}

static int report(const struct client *client, struct json answer)
{
    struct json unknown, lease;
    struct out text = {0};
    int status = CLI_OK;
    bool extends = strcmp(result, "extend") == 0, releases = strcmp(result, "release") == 0;
    put_member_shown(&text, answer, extends ? "extended" : releases ? "released" : "settled");
    printf("%.*s %s\n", (int)text.size, text.data ? text.data : "",
           extends    ? "extended"
           : releases ? "released"
                      : "acknowledged");
    out_free(&text);
    if (json_get(answer, "unknown", &unknown) && unknown.kind == JSON_ARRAY)
        for (struct json_walk walk = json_walk(unknown); json_element(&walk, &lease);) {
            struct out shown = {0};
            put_shown(&shown, lease);
            status = client_say(client, CLI_NOT_FOUND, "lease %.*s is unknown or has expired; the timer fires again",
                                (int)shown.size, shown.data ? shown.data : "");
            out_free(&shown);
        }
    return status;
}

static int run(void)
{
    struct client client;
    struct out path = {0}, text = {0}, body = {0}, answer = {0};
    struct json settled;
    int status = client_open(&client, &ack_command);
    if (status != CLI_OK)
        return status;
    out_text(&path, "/v1/ack");
    status = read_source(&client, given, &text);
    if (status == CLI_OK && put_acks(&body, out_bytes(&text)) == 0)
        status = client_say(&client, CLI_USAGE, "no lease on standard input");
    if (status == CLI_OK)
        status = client_ask(&client, "POST", &path, &body, &answer, &settled);
    if (status == CLI_OK)
        status = report(&client, settled);
    out_free(&path);
    out_free(&text);
    out_free(&body);
    out_free(&answer);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    {"result", "RESULT",
     "done, retry, again, dead, extend (the lease ends later) or release (give the timer back); default: done",
     .text = &result},
    {"after", "DURATION",
     "with retry or again: not before DURATION has passed; with extend: the lease ends DURATION from now",
     .text = &after, .format = &cli_duration},
    {0},
};

static const struct cli_argument arguments[] = {
    {"LEASE", "the lease that foliot lease has printed, or - for lines of standard input", &given, false},
    {0},
};

const struct cli_command ack_command = {
    .name = "ack",
    .summary = "acknowledges leased timers",
    .options = options,
    .arguments = arguments,
    .notes = "With -, each line is a lease, or a JSON object as foliot lease prints it:\n\n"
             "  foliot lease jobs > jobs.ndjson; ./work jobs.ndjson && foliot ack - < jobs.ndjson",
    .run = run,
};
