/* SPDX-License-Identifier: MIT */
/* `foliot export`: timers as lines of JSON, each of which is an operation of POST /v1/batch that creates it again.
 *
 * IDs, creation times and counts of attempts belong to the store they are in, so they are left out. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/pages.h"
#include "cli/show.h"

static const char *only, *output;

struct exporting {
    struct client *client;
    FILE *to;
    struct out line;
    struct progress progress;
    uint64_t count;
};

static bool is_of_the_store(struct json key)
{
    return json_is(key, "id") || json_is(key, "created") || json_is(key, "attempt") || json_is(key, "replaced") ||
           json_is(key, "schedule") || json_is(key, "occurrence");
}

static int take(void *arg, struct json timer)
{
    struct exporting *exporting = arg;
    struct out *line = &exporting->line;
    struct json key, value;
    out_clear(line);
    out_text(line, "{\"op\":\"create\"");
    for (struct json_walk walk = json_walk(timer); json_member(&walk, &key, &value);)
        if (!is_of_the_store(key)) {
            out_text(line, ",");
            out_put(line, key.text.data, key.text.size);
            out_text(line, ":");
            put_json_line(line, value);
        }
    out_text(line, "}\n");
    if (line->failed)
        return client_no_memory(exporting->client);
    if (fwrite(line->data, 1, line->size, exporting->to) != line->size)
        return client_say(exporting->client, CLI_FAILED, "cannot write %s: %s", output ? output : "standard output",
                          strerror(errno));
    exporting->count++;
    return CLI_OK;
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
    put_path(&path, "/v1/timers", ns, NULL);
    struct pages pages = {.path = &path, .timer = take, .page = show_page, .arg = exporting};
    int status = pages_follow(exporting->client, &pages);
    out_free(&path);
    return status;
}

static uint64_t pending_of(struct json space)
{
    struct json ns, pending;
    int64_t count = 0;
    if (only && !(json_get(space, "namespace", &ns) && json_is(ns, only)))
        return 0;
    return json_get(space, "pending", &pending) && json_integer(pending, &count) && count > 0 ? (uint64_t)count : 0;
}

static int export_spaces(struct exporting *exporting, struct json spaces)
{
    struct json space, ns;
    uint64_t total = 0;
    int status = CLI_OK;
    for (struct json_walk walk = json_walk(spaces); json_element(&walk, &space);)
        total += pending_of(space);
    progress_begin(&exporting->progress, "exporting", total);
    if (only)
        return export_one(exporting, only);
    for (struct json_walk walk = json_walk(spaces); status == CLI_OK && json_element(&walk, &space);) {
        struct out name = {0};
        if (json_get(space, "namespace", &ns))
            put_string(&name, ns);
        if (!name.failed && name.size > 0)
            status = export_one(exporting, name.data);
        out_free(&name);
    }
    return status;
}

static int export_all(struct exporting *exporting)
{
    struct out path = {0}, answer = {0};
    struct json body, spaces;
    out_text(&path, "/v1/namespaces");
    int status = client_ask(exporting->client, "GET", &path, NULL, &answer, &body);
    if (status == CLI_OK && json_get(body, "namespaces", &spaces))
        status = export_spaces(exporting, spaces);
    progress_end(&exporting->progress);
    out_free(&exporting->line);
    out_free(&path);
    out_free(&answer);
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
        fprintf(stderr, "%llu timers exported\n", (unsigned long long)exporting.count);
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
    .summary = "writes timers as lines of JSON, for 'foliot import'",
    .options = options,
    .arguments = arguments,
    .notes =
        "A line contains the name, due time, payload, headers, target, retry policy and timeout of a timer. IDs, dead\n"
        "letters and settings of namespaces are not exported. A timer without a name gets a new ID when it is\n"
        "imported. Line breaks between the parts of a payload become spaces.",
    .run = run,
};
