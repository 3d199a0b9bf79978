/* SPDX-License-Identifier: MIT */
/* `foliot get`: shows one timer. */

#include "cli/client.h"
#include "cli/show.h"

static const char *ns, *name;
static bool as_json;

static int run(void)
{
    struct client client;
    struct out path = {0}, answer = {0};
    struct json timer;
    int status = client_open(&client, &get_command);
    if (status != CLI_OK)
        return status;
    put_path(&path, "/v1/timers", ns, name, NULL);
    status = client_ask(&client, "GET", &path, NULL, &answer, &timer);
    if (status == CLI_OK && as_json)
        show_json(timer);
    else if (status == CLI_OK)
        show_object(timer);
    out_free(&path);
    out_free(&answer);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    {"json", "", "print the timer as JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {
    {"NAMESPACE", "the namespace of the timer", &ns, false},
    {"NAME", "the name or ID of the timer", &name, false},
    {0},
};

const struct cli_command get_command = {
    .name = "get",
    .summary = "shows a timer",
    .options = options,
    .arguments = arguments,
    .run = run,
};
