/* SPDX-License-Identifier: MIT */
/* `foliot update`: changes parts of a timer. */

#include "cli/ask.h"
#include "cli/content.h"

static const char *ns, *name;
static bool as_json;

static int put_changes(const struct client *client, struct out *body)
{
    int status = content_write(client, body);
    if (status == CLI_OK && body->size == 2)
        status = cli_usage(
            &update_command,
            "nothing to change; give --after, --at, --local, --max-wait, --to, --payload, --header, --timeout or "
            "--retry;");
    return status;
}

static int run(void)
{
    return ask_and_show(&(struct ask){.command = &update_command,
                                      .method = "PATCH",
                                      .path = {"/v1/timers", ns, name},
                                      .body = put_changes,
                                      .as_json = as_json});
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
