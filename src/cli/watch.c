/* SPDX-License-Identifier: MIT */
/* `foliot watch`: what happens to timers, as it happens. The server sends server-sent events: lines "event: TYPE" and
 * "data: JSON", and an empty line. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/show.h"
#include "text/when.h"

static const char *ns, *types;
static uint64_t count;
static bool as_json;

struct watching {
    struct out line, type;
    uint64_t seen;
};

static int colour_of(const char *type)
{
    static const struct {
        const char *type;
        int style;
    } colours[] = {{"fired", STYLE_GREEN},
                   {"failed", STYLE_YELLOW},
                   {"dead", STYLE_RED},
                   {"skipped", STYLE_RED},
                   {"cancelled", STYLE_DIM}};
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (strcmp(colours[i].type, type) == 0)
            return colours[i].style;
    return STYLE_PLAIN;
}

/* How late something was that has just fired. */
static void put_lateness(struct out *out, struct json event)
{
    struct json at, due;
    int64_t at_us, due_us;
    char text[DURATION_TEXT];
    if (!json_get(event, "at", &at) || !json_get(event, "due", &due) || at.text.size < 2 || due.text.size < 2)
        return;
    if (when_parse((fl_bytes){(const char *)at.text.data + 1, at.text.size - 2}, &at_us) < 0 ||
        when_parse((fl_bytes){(const char *)due.text.data + 1, due.text.size - 2}, &due_us) < 0 || at_us < due_us)
        return;
    out_text(out, ", late by ");
    out_put(out, text, duration_format((uint64_t)(at_us - due_us), text));
}

/* What the event is about: a host, a namespace, a timer or a schedule. */
static void put_subject(struct out *out, struct json event)
{
    static const char *const keys[] = {"name", "id", "schedule"};
    struct json value;
    put_member_shown(out, event, json_get(event, "host", &value) ? "host" : "namespace");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_get(event, keys[i], &value)) {
            out_text(out, "/");
            put_shown(out, value);
            return;
        }
}

/* A member after a word, if there is one. */
static void put_if_any(struct out *out, struct json event, const char *word, const char *key)
{
    struct json value;
    if (!json_get(event, key, &value))
        return;
    out_text(out, word);
    put_shown(out, value);
}

static void show_event(const char *type, struct json event)
{
    struct out text = {0};
    bool will_fire = strcmp(type, "scheduled") == 0 || strcmp(type, "cancelled") == 0 || strcmp(type, "moved") == 0;
    put_member_shown(&text, event, "at");
    out_text(&text, "  ");
    size_t styled = text.size;
    out_format(&text, "%-9s", type);
    size_t plain = text.size;
    out_text(&text, "  ");
    put_subject(&text, event);
    if (will_fire)
        put_if_any(&text, event, "  due ", "due");
    else
        put_if_any(&text, event, "  attempt ", "attempt");
    if (strcmp(type, "fired") == 0)
        put_lateness(&text, event);
    put_if_any(&text, event, ": ", "reason");
    if (text.failed)
        return;
    printf("%.*s", (int)styled, text.data);
    show_style(stdout, colour_of(type));
    printf("%.*s", (int)(plain - styled), text.data + styled);
    show_style(stdout, STYLE_PLAIN);
    printf("%.*s\n", (int)(text.size - plain), text.data + plain);
    out_free(&text);
}

static void take_event(struct watching *watching, struct json event)
{
    const char *type = watching->type.data ? watching->type.data : "";
    struct out lost = {0};
    if (strcmp(type, "dropped") == 0) {
        put_member_shown(&lost, event, "count");
        fprintf(stderr, "foliot watch: missed %.*s events because they came faster than they could be printed\n",
                (int)lost.size, lost.data);
        out_free(&lost);
        return;
    }
    if (as_json)
        show_json(event);
    else
        show_event(type, event);
    fflush(stdout);
    watching->seen++;
}

static void take_line(struct watching *watching, fl_bytes line)
{
    struct json event;
    size_t at;
    const char *why, *text = line.data;
    if (line.size > 7 && memcmp(text, "event: ", 7) == 0) {
        out_clear(&watching->type);
        out_put(&watching->type, text + 7, line.size - 7);
        out_put(&watching->type, "", 1);
    } else if (line.size > 6 && memcmp(text, "data: ", 6) == 0) {
        if (json_parse((fl_bytes){text + 6, line.size - 6}, &event, &at, &why) == 0)
            take_event(watching, event);
    }
}

static bool take(void *arg, fl_bytes piece)
{
    struct watching *watching = arg;
    const char *from = piece.data, *end = from + piece.size, *newline;
    while ((newline = memchr(from, '\n', (size_t)(end - from))) != NULL) {
        out_put(&watching->line, from, (size_t)(newline - from));
        take_line(watching, out_bytes(&watching->line));
        out_clear(&watching->line);
        from = newline + 1;
        if ((count > 0 && watching->seen == count) || ferror(stdout))
            return false;
    }
    out_put(&watching->line, from, (size_t)(end - from));
    return !watching->line.failed;
}

static int watch(struct client *client)
{
    struct out path = {0};
    struct watching watching = {0};
    put_path(&path, "/v1/events", NULL);
    put_query(&path, "namespace", ns);
    put_query(&path, "type", types);
    struct client_request request = {.method = "GET", .path = &path, .take = take, .arg = &watching, .pings = true};
    if (isatty(STDERR_FILENO) && isatty(STDOUT_FILENO))
        fputs("Listening. Press Ctrl-C to stop.\n", stderr);
    int status = client_send(client, &request, NULL);
    if (status == CLI_OK && !client_interrupted() && !ferror(stdout) && (count == 0 || watching.seen < count))
        status = client_say(client, CLI_UNREACHABLE, "the server has closed the event stream");
    out_free(&path);
    out_free(&watching.line);
    out_free(&watching.type);
    return status;
}

static int run(void)
{
    struct client client;
    int status = client_open(&client, &watch_command);
    if (status != CLI_OK)
        return status;
    status = client_catch_signals(&client, false);
    if (status == CLI_OK)
        status = watch(&client);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    {"type", "TYPE,...", "only these types: scheduled, fired, failed, dead, cancelled, skipped, paused, resumed, moved",
     .text = &types},
    {"count", "N", "stop after N events", .value = &count, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "only the events of this namespace", &ns, true}, {0}};

const struct cli_command watch_command = {
    .name = "watch",
    .summary = "prints the events of timers as they happen",
    .options = options,
    .arguments = arguments,
    .run = run,
};
