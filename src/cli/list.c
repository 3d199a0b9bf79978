/* SPDX-License-Identifier: MIT */
/* `foliot list`: timers of a namespace, as a table or as JSON. */

#include "cli/ask.h"

static const char *ns;
static struct filter filter;
static uint64_t limit;
static bool as_json;

static int run(void)
{
    return ask_and_list(&(struct ask_list){
        .command = &list_command,
        .path = {"/v1/timers", ns},
        .filter = &filter,
        .limit = limit,
        .as_json = as_json,
        .columns = {{"ID", "id"}, {"NAME", "name"}, {"DUE", "due"}, {"ATTEMPT", "attempt"}, {"TARGET", "target"}},
        .none = "No timers."});
}

static const struct cli_option options[] = {
    FILTER_OPTIONS(filter),
    {"limit", "N", "print at most N; default: all", .value = &limit, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "the namespace of the timers", &ns, false}, {0}};

const struct cli_command list_command = {
    .name = "list",
    .summary = "lists the timers of a namespace, roughly by due time",
    .options = options,
    .arguments = arguments,
    .run = run,
};
