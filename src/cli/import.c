/* SPDX-License-Identifier: MIT */
/* `foliot import`: lines of JSON, as 'foliot export' and 'foliot list --json' write them, through POST /v1/batch. Lines with
 * settings and pauses are requests of their own, which another client sends meanwhile.
 *
 * It is one request whose answers come while it is still being sent: the n-th answer is for the n-th record, so nothing has
 * to be remembered of what was sent, and it does not matter how long it is. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/client.h"
#include "cli/show.h"

static const char *input;

enum { COMPLAINTS = 10 };

struct importing {
    struct client *client;
    FILE *from;
    char *text; /* the line that getline() has read */
    size_t room;
    struct out record; /* as it is sent */
    size_t given;      /* of it */
    bool broken;       /* the file could not be read */
    struct out line;   /* of the answer, while it is not complete */
    uint64_t read, sent, done, failed;
    struct client beside; /* for settings */
    bool is_open;
    uint64_t applied; /* lines with settings or pauses */
    struct progress progress;
};

/* --- Sending ------------------------------------------------------------------------------------------------------ */

/* A timer in civil time is imported as such. */
static bool put_civil(struct out *out, struct json object)
{
    struct json local, zone;
    if (!json_get(object, "local", &local) || !json_get(object, "zone", &zone))
        return false;
    out_text(out, ",\"due\":{\"local\":");
    out_put(out, local.text.data, local.text.size);
    out_text(out, ",\"zone\":");
    out_put(out, zone.text.data, zone.text.size);
    out_text(out, "}");
    return true;
}

static bool is_left_out(struct json key)
{
    return json_is(key, "id") || json_is(key, "created") || json_is(key, "attempt") || json_is(key, "op") ||
           json_is(key, "replaced") || json_is(key, "local") || json_is(key, "zone") || json_is(key, "schedule") ||
           json_is(key, "occurrence");
}

/* The lines of 'foliot export' say so; those of 'foliot schedule list --json' have a rule. */
static bool is_schedule(struct json object)
{
    struct json value;
    return json_get(object, "cron", &value) || json_get(object, "every", &value);
}

static bool is_left_out_of_schedule(struct json key)
{
    return json_is(key, "op") || json_is(key, "next") || json_is(key, "last") || json_is(key, "made") ||
           json_is(key, "created");
}

/* A record that is not a JSON object is sent unchanged: the server answers with the error. */
static void put_record(struct out *out, fl_bytes text)
{
    struct json object, key, value;
    size_t at;
    const char *why;
    if (json_parse(text, &object, &at, &why) < 0 || object.kind != JSON_OBJECT) {
        out_put(out, text.data, text.size);
        out_text(out, "\n");
        return;
    }
    bool schedule = is_schedule(object);
    out_text(out, schedule ? "{\"op\":\"schedule\"" : "{\"op\":\"create\"");
    bool civil = !schedule && put_civil(out, object);
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);)
        if (!(schedule ? is_left_out_of_schedule(key) : is_left_out(key)) && !(civil && json_is(key, "due"))) {
            out_text(out, ",");
            out_put(out, key.text.data, key.text.size);
            out_text(out, ":");
            out_put(out, value.text.data, value.text.size);
        }
    out_text(out, "}\n");
}

/* A request that is made of a member of the line. */
static int apply(struct importing *importing, const struct out *path, const char *method, struct json value)
{
    struct out body = {0}, answer = {0};
    out_put(&body, value.text.data, value.text.size);
    int status = body.failed ? client_no_memory(importing->client)
                             : client_call(&importing->beside, method, path, &body, &answer);
    out_free(&body);
    out_free(&answer);
    return status;
}

/* The line is {"op":"namespace","namespace":…,"settings":…,"paused":…} or {"op":"host","host":…,"paused":…}. */
static int apply_all(struct importing *importing, const char *kind, struct json object)
{
    struct json name, part;
    struct out text = {0}, path = {0};
    const char *begin = kind[0] == 'h' ? "/v1/hosts" : "/v1/namespaces";
    int status = CLI_OK;
    if (!importing->is_open)
        status = client_prepare(&importing->beside, &import_command);
    importing->is_open = status == CLI_OK;
    if (json_get(object, kind, &name) && name.kind == JSON_STRING)
        put_string(&text, name);
    else if (status == CLI_OK)
        status = client_say(importing->client, CLI_FAILED, "a line with the op %s has no %s", kind, kind);
    if (status == CLI_OK && json_get(object, "settings", &part)) {
        put_path(&path, begin, text.data, NULL);
        status = apply(importing, &path, "PUT", part);
    }
    out_clear(&path);
    if (status == CLI_OK && json_get(object, "paused", &part)) {
        put_path(&path, begin, text.data, "pause", NULL);
        status = apply(importing, &path, "POST", part);
    }
    out_free(&text);
    out_free(&path);
    return status;
}

/* Whether the line has settings or a pause; then they are set. */
static bool take_settings(struct importing *importing, fl_bytes text)
{
    struct json object, op;
    size_t at;
    const char *why;
    if (json_parse(text, &object, &at, &why) < 0 || !json_get(object, "op", &op))
        return false;
    const char *kind = json_is(op, "namespace") ? "namespace" : json_is(op, "host") ? "host" : NULL;
    if (!kind)
        return false;
    importing->applied++;
    importing->failed += apply_all(importing, kind, object) != CLI_OK;
    return true;
}

/* The next record that is not empty; false: that was all. */
static bool next_record(struct importing *importing)
{
    ssize_t size;
    out_clear(&importing->record);
    importing->given = 0;
    while ((size = getline(&importing->text, &importing->room, importing->from)) > 0) {
        importing->read += (uint64_t)size;
        while (size > 0 && strchr(" \t\r\n", importing->text[size - 1]) && importing->text[size - 1])
            size--;
        if (size == 0 || take_settings(importing, (fl_bytes){importing->text, (size_t)size}))
            continue;
        put_record(&importing->record, (fl_bytes){importing->text, (size_t)size});
        importing->sent++;
        return !importing->record.failed;
    }
    importing->broken = ferror(importing->from);
    return false;
}

static size_t give(void *arg, char *to, size_t size)
{
    struct importing *importing = arg;
    size_t made = 0;
    while (made < size) {
        if (importing->given == importing->record.size && !next_record(importing))
            break;
        size_t left = importing->record.size - importing->given, part = left < size - made ? left : size - made;
        memcpy(to + made, importing->record.data + importing->given, part);
        importing->given += part;
        made += part;
    }
    return importing->record.failed ? CURL_READFUNC_ABORT : made;
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static void take_answer(struct importing *importing, fl_bytes text)
{
    struct json answer, ok, problem;
    size_t at;
    const char *why;
    importing->done++;
    if (json_parse(text, &answer, &at, &why) == 0 && json_get(answer, "ok", &ok) && ok.kind == JSON_TRUE)
        return;
    if (importing->failed++ < COMPLAINTS) {
        char about[40];
        snprintf(about, sizeof about, "record %" PRIu64 ": ", importing->done + importing->applied);
        progress_end(&importing->progress);
        if (json_parse(text, &answer, &at, &why) == 0 && json_get(answer, "problem", &problem))
            client_explain(importing->client, about, problem);
        else
            client_say(importing->client, 0, "%sthe response line is not JSON of Foliot", about);
    }
}

static bool take(void *arg, fl_bytes piece)
{
    struct importing *importing = arg;
    const char *from = piece.data, *end = from + piece.size, *newline;
    while ((newline = memchr(from, '\n', (size_t)(end - from))) != NULL) {
        out_put(&importing->line, from, (size_t)(newline - from));
        take_answer(importing, out_bytes(&importing->line));
        out_clear(&importing->line);
        from = newline + 1;
    }
    out_put(&importing->line, from, (size_t)(end - from));
    progress_show(&importing->progress, importing->read, importing->done);
    return !importing->line.failed;
}

/* --- All of it ---------------------------------------------------------------------------------------------------- */

static int judge(struct importing *importing, int status)
{
    struct client *client = importing->client;
    uint64_t good = importing->done + importing->applied - importing->failed;
    if (importing->record.failed || importing->line.failed)
        status = client_no_memory(client);
    if (importing->broken)
        status = client_say(client, CLI_FAILED, "cannot read all of %s: %s", input ? input : "standard input",
                            strerror(errno));
    if (status == CLI_OK && importing->done < importing->sent)
        status = client_say(client, CLI_FAILED, "the server answered only %" PRIu64 " of %" PRIu64 " records",
                            importing->done, importing->sent);
    if (importing->failed > COMPLAINTS)
        fprintf(stderr, "and %" PRIu64 " more\n", importing->failed - COMPLAINTS);
    printf("%" PRIu64 " imported, %" PRIu64 " refused\n", good, importing->failed);
    if (status != CLI_OK && good > 0)
        client_say(client, 0, "you can import timers with names again; timers without a name would then exist twice");
    return status == CLI_OK && importing->failed > 0 ? CLI_FAILED : status;
}

static int import(struct client *client, FILE *from)
{
    struct importing importing = {.client = client, .from = from};
    struct out path = {0};
    struct stat file;
    bool regular = fstat(fileno(from), &file) == 0 && S_ISREG(file.st_mode);
    progress_begin(&importing.progress, "importing", regular ? (uint64_t)file.st_size : 0);
    out_text(&path, "/v1/batch");
    struct client_request request = {.method = "POST", .path = &path, .give = give, .take = take, .arg = &importing};
    int status = client_send(client, &request, NULL);
    progress_end(&importing.progress);
    status = judge(&importing, status);
    if (importing.is_open)
        client_close(&importing.beside);
    free(importing.text);
    out_free(&importing.record);
    out_free(&importing.line);
    out_free(&path);
    return status;
}

static int run(void)
{
    struct client client;
    bool piped = !input || strcmp(input, "-") == 0;
    int status = client_open(&client, &import_command);
    if (status != CLI_OK)
        return status;
    FILE *from = piped ? stdin : fopen(input, "re");
    if (!from)
        status = client_say(&client, CLI_FAILED, "cannot open %s: %s", input, strerror(errno));
    else
        status = import(&client, from);
    if (from && !piped)
        fclose(from);
    client_close(&client);
    return status;
}

static const struct cli_argument arguments[] = {
    {"FILE", "the file to read; default, and with -: standard input", &input, true}, {0}};

const struct cli_command import_command = {
    .name = "import",
    .summary = "creates timers, schedules and settings from lines of JSON, as 'foliot export' writes them",
    .arguments = arguments,
    .notes = "A timer or schedule replaces an existing one with the same name, and settings replace those of the "
             "namespace,\n"
             "except secrets. import ignores IDs in the lines: timers without a name get new IDs.",
    .run = run,
};
