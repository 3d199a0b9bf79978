/* SPDX-License-Identifier: MIT */
/* `foliot update`: changes parts of a timer. */

#include <stdio.h>

#include "cli/content.h"
#include "cli/show.h"

static const char *ns, *name;
static bool as_json;

static int update(struct client *client)
{
    struct out path = {0}, body = {0}, answer = {0};
    struct json timer = {0};
    put_path(&path, "/v1/timers", ns, name, NULL);
    int status = content_write(client, &body);
    if (status == CLI_OK && body.size == 2)
        status = cli_usage(&update_command,
                           "nothing to change; give --after, --at, --to, --payload, --header, --timeout or --retry;");
    if (status == CLI_OK)
        status = client_ask(client, "PATCH", &path, &body, &answer, &timer);
    if (status == CLI_OK && as_json)
        show_json(timer);
    else if (status == CLI_OK)
        show_object(timer);
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    return status;
}

static int run(void)
{
    struct client client;
    int status = client_open(&client, &update_command);
    if (status != CLI_OK)
        return status;
    status = update(&client);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    CONTENT_OPTIONS,
    {"json", "", "print the timer as JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {
    {"NAMESPACE", "the namespace of the timer", &ns, false},
    {"NAME", "the name or ID of the timer", &name, false},
    {0},
};

const struct cli_command update_command = {
    .name = "update",
    .summary = "changes the given fields of a timer, and shows it",
    .options = options,
    .arguments = arguments,
    .notes = "--to '' removes the target. The timer then waits for a worker.",
    .run = run,
};
