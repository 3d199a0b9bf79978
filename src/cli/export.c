/* SPDX-License-Identifier: MIT */
/* `foliot export`: timers and schedules as lines of JSON, each of which is an operation of POST /v1/batch that creates it again.
 * In front of them are lines with the settings and pauses of namespaces and hosts, which only `foliot import` understands.
 *
 * IDs, creation times and counts belong to the store they are in, so they are left out. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/pages.h"
#include "cli/show.h"
#include "text/when.h"

static const char *only, *output;

struct exporting {
    struct client *client;
    FILE *to;
    struct out line;
    struct out spaces; /* the names, each with a NUL behind it */
    uint64_t total;    /* timers in them */
    struct progress progress;
    uint64_t count;
};

static bool is_of_the_store(struct json key)
{
    return json_is(key, "id") || json_is(key, "created") || json_is(key, "attempt") || json_is(key, "replaced") ||
           json_is(key, "schedule") || json_is(key, "occurrence");
}

static bool is_of_the_store_or_due(struct json key)
{
    return is_of_the_store(key) || json_is(key, "due") || json_is(key, "local") || json_is(key, "zone");
}

/* A timer in civil time is exported as such. */
static bool put_civil(struct out *line, struct json timer)
{
    struct json local, zone;
    if (!json_get(timer, "local", &local) || !json_get(timer, "zone", &zone))
        return false;
    out_text(line, ",\"due\":{\"local\":");
    put_json_line(line, local);
    out_text(line, ",\"zone\":");
    put_json_line(line, zone);
    out_text(line, "}");
    return true;
}

static bool is_of_the_schedule(struct json key)
{
    return json_is(key, "next") || json_is(key, "last") || json_is(key, "made") || json_is(key, "created");
}

static void put_members(struct out *line, struct json object, bool (*is_left_out)(struct json key))
{
    struct json key, value;
    for (struct json_walk walk = json_walk(object); json_member(&walk, &key, &value);)
        if (!is_left_out(key)) {
            out_text(line, ",");
            out_put(line, key.text.data, key.text.size);
            out_text(line, ":");
            put_json_line(line, value);
        }
}

static int write_line(struct exporting *exporting)
{
    struct out *line = &exporting->line;
    out_text(line, "}\n");
    if (line->failed)
        return client_no_memory(exporting->client);
    if (fwrite(line->data, 1, line->size, exporting->to) != line->size)
        return client_say(exporting->client, CLI_FAILED, "cannot write %s: %s", output ? output : "standard output",
                          strerror(errno));
    exporting->count++;
    return CLI_OK;
}

static int take(void *arg, struct json timer)
{
    struct exporting *exporting = arg;
    out_clear(&exporting->line);
    out_text(&exporting->line, "{\"op\":\"create\"");
    bool civil = put_civil(&exporting->line, timer);
    put_members(&exporting->line, timer, civil ? is_of_the_store_or_due : is_of_the_store);
    return write_line(exporting);
}

/* Without `start`, the occurrences of `every` count from the creation. The copy has the same ones. */
static void put_start(struct out *line, struct json schedule)
{
    struct json start, every, created;
    uint64_t every_us;
    int64_t at_us;
    char room[64];
    if (json_get(schedule, "start", &start) || !json_get(schedule, "every", &every) ||
        !json_get(schedule, "created", &created) || every.text.size > sizeof room || created.text.size > sizeof room ||
        duration_parse(json_string(every, room), &every_us) < 0 || when_parse(json_string(created, room), &at_us) < 0)
        return;
    out_text(line, ",\"start\":");
    out_time(line, at_us + (int64_t)every_us);
}

static int take_schedule(void *arg, struct json schedule)
{
    struct exporting *exporting = arg;
    out_clear(&exporting->line);
    out_text(&exporting->line, "{\"op\":\"schedule\"");
    put_members(&exporting->line, schedule, is_of_the_schedule);
    put_start(&exporting->line, schedule);
    return write_line(exporting);
}

static int show_page(void *arg)
{
    struct exporting *exporting = arg;
    progress_show(&exporting->progress, exporting->count, exporting->count);
    return CLI_OK;
}

static int export_one(struct exporting *exporting, const char *ns)
{
    struct out path = {0};
    put_path(&path, "/v1/schedules", ns, NULL);
    struct pages pages = {
        .path = &path, .member = "schedules", .timer = take_schedule, .page = show_page, .arg = exporting};
    int status = pages_follow(exporting->client, &pages);
    if (status == CLI_OK) {
        out_clear(&path);
        put_path(&path, "/v1/timers", ns, NULL);
        pages = (struct pages){.path = &path, .timer = take, .page = show_page, .arg = exporting};
        status = pages_follow(exporting->client, &pages);
    }
    out_free(&path);
    return status;
}

/* --- Settings and pauses ------------------------------------------------------------------------------------------ */

static bool is_written_only(struct json key)
{
    return json_is(key, "secret_count");
}

static bool is_since(struct json key)
{
    return json_is(key, "since");
}

/* A member that is an object, without some of its members. Nothing if there is no such member, or nothing is left. */
static bool put_part(struct out *line, struct json object, const char *key, bool (*is_left_out)(struct json key),
                     bool even_empty)
{
    struct out members = {0};
    struct json part;
    bool found = json_get(object, key, &part) && part.kind == JSON_OBJECT;
    if (found)
        put_members(&members, part, is_left_out);
    found = found && (members.size > 0 || even_empty);
    if (found) {
        out_key(line, key);
        out_text(line, "{");
        if (members.size > 0)
            out_put(line, members.data + 1, members.size - 1); /* without the comma */
        out_text(line, "}");
    }
    line->failed |= members.failed;
    out_free(&members);
    return found;
}

/* A line for the settings and the pause of a namespace, or for the pause of a host. */
static int write_settings(struct exporting *exporting, const char *what, struct json name, struct json row)
{
    struct out *line = &exporting->line;
    out_clear(line);
    out_format(line, "{\"op\":\"%s\",\"%s\":", what, what);
    put_json_line(line, name);
    bool any = put_part(line, row, "settings", is_written_only, false);
    any = put_part(line, row, "paused", is_since, true) || any;
    if (!any)
        return CLI_OK;
    exporting->count--; /* it is no timer */
    return write_line(exporting);
}

static int take_host(void *arg, struct json host)
{
    struct json name;
    return json_get(host, "host", &name) ? write_settings(arg, "host", name, host) : CLI_OK;
}

/* Only a token that may read all namespaces sees hosts. */
static int export_hosts(struct exporting *exporting)
{
    struct out path = {0};
    out_text(&path, "/v1/hosts");
    struct pages pages = {.path = &path, .member = "hosts", .timer = take_host, .arg = exporting};
    exporting->client->quiet = true;
    int status = pages_follow(exporting->client, &pages);
    exporting->client->quiet = false;
    out_free(&path);
    return status == CLI_REFUSED ? CLI_OK : status;
}

static void warn_of_secrets(const struct exporting *exporting, struct json space, struct json ns)
{
    struct json settings, secrets;
    struct out name = {0};
    if (!json_get(space, "settings", &settings) || !json_get(settings, "secret_count", &secrets) ||
        (secrets.text.size == 1 && *(const char *)secrets.text.data == '0'))
        return;
    put_shown(&name, ns);
    client_say(exporting->client, 0,
               "the secrets of namespace %.*s are not exported; set them again with 'foliot namespace set --secret'",
               (int)name.size, name.data ? name.data : "");
    out_free(&name);
}

static int note_space(void *arg, struct json space)
{
    struct exporting *exporting = arg;
    struct json ns, pending;
    int64_t count = 0;
    if (!json_get(space, "namespace", &ns) || (only && !json_is(ns, only)))
        return CLI_OK;
    warn_of_secrets(exporting, space, ns);
    int status = write_settings(exporting, "namespace", ns, space);
    if (status != CLI_OK)
        return status;
    put_string(&exporting->spaces, ns);
    out_put(&exporting->spaces, "", 1);
    if (json_get(space, "pending", &pending) && json_integer(pending, &count) && count > 0)
        exporting->total += (uint64_t)count;
    return CLI_OK;
}

static int export_spaces(struct exporting *exporting)
{
    const struct out *spaces = &exporting->spaces;
    const char *end = spaces->data + spaces->size;
    int status = CLI_OK;
    progress_begin(&exporting->progress, "exporting", exporting->total);
    for (const char *at = spaces->data; status == CLI_OK && at < end; at += strlen(at) + 1)
        status = export_one(exporting, at);
    progress_end(&exporting->progress);
    return status;
}

static int export_all(struct exporting *exporting)
{
    struct out path = {0};
    out_text(&path, "/v1/namespaces");
    put_query(&path, "prefix", only);
    struct pages pages = {.path = &path, .member = "namespaces", .timer = note_space, .arg = exporting};
    int status = pages_follow(exporting->client, &pages);
    if (status == CLI_OK && exporting->spaces.failed)
        status = client_no_memory(exporting->client);
    if (status == CLI_OK && !only)
        status = export_hosts(exporting);
    if (status == CLI_OK)
        status = export_spaces(exporting);
    out_free(&exporting->line);
    out_free(&exporting->spaces);
    out_free(&path);
    return status;
}

static int run(void)
{
    struct client client;
    struct exporting exporting = {.client = &client, .to = stdout};
    int status = client_open(&client, &export_command);
    if (status != CLI_OK)
        return status;
    if (output && !(exporting.to = fopen(output, "we")))
        status = client_say(&client, CLI_FAILED, "cannot write %s: %s", output, strerror(errno));
    if (status == CLI_OK)
        status = export_all(&exporting);
    if (output && exporting.to && fclose(exporting.to) != 0 && status == CLI_OK)
        status = client_say(&client, CLI_FAILED, "cannot write %s: %s", output, strerror(errno));
    if (status == CLI_OK && output)
        fprintf(stderr, "%llu timers and schedules exported\n", (unsigned long long)exporting.count);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    {"output", "FILE", "write to FILE; default: standard output", .text = &output},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "export only this namespace; default: all", &only, true},
                                                {0}};

const struct cli_command export_command = {
    .name = "export",
    .summary = "writes timers, schedules and settings as lines of JSON, for 'foliot import'",
    .options = options,
    .arguments = arguments,
    .notes =
        "A line contains the name, due time, payload, headers, target, retry policy and timeout of a timer, or the\n"
        "fields of a schedule. The first lines contain settings and pauses. IDs, secrets, dead letters and history "
        "are\n"
        "not exported. A timer without a name gets a new ID when it is imported. Line breaks between the parts of a\n"
        "payload become spaces.",
    .run = run,
};
