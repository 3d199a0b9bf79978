/* SPDX-License-Identifier: MIT */
/* `foliot get`: shows one timer. */

#include "cli/ask.h"

static const char *ns, *name;
static bool as_json;

static int run(void)
{
    return ask_and_show(&(struct ask){.command = &get_command, .path = {"/v1/timers", ns, name}, .as_json = as_json});
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
