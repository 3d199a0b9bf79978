/* SPDX-License-Identifier: MIT */
/* `foliot history`: what became of attempts. */

#include <stdio.h>

#include "cli/ask.h"

static const char *ns, *id, *name, *schedule, *result, *after, *before;
static uint64_t limit;
static bool as_json, erase;

static void put_filters(struct out *path)
{
    put_query(path, "id", id);
    put_query(path, "name", name);
    put_query(path, "schedule", schedule);
    put_query(path, "result", result);
    put_query(path, "after", after);
    put_query(path, "before", before);
}

static int run_list(void)
{
    return ask_and_list(&(struct ask_list){.command = &history_command,
                                           .path = {"/v1/history", ns},
                                           .member = "history",
                                           .query = put_filters,
                                           .limit = limit,
                                           .as_json = as_json,
                                           .columns = {{"BEGAN", "began"},
                                                       {"ID", "id"},
                                                       {"NAME", "name"},
                                                       {"ATTEMPT", "attempt"},
                                                       {"RESULT", "result"},
                                                       {"STATUS", "status"},
                                                       {"TOOK-MS", "took_ms"},
                                                       {"REASON", "reason"}},
                                           .none = "No history."});
}

static int run_erase(void)
{
    struct client client;
    struct out path = {0}, answer = {0};
    int status = client_open(&client, &history_command);
    if (status != CLI_OK)
        return status;
    put_path(&path, "/v1/history", ns, NULL);
    put_query(&path, "id", id);
    status = client_call(&client, "DELETE", &path, NULL, &answer);
    if (status == CLI_OK)
        puts("erased");
    out_free(&path);
    out_free(&answer);
    client_close(&client);
    return status;
}

static int run(void)
{
    if (erase && (name || schedule || result || after || before || limit > 0 || as_json))
        return cli_usage(&history_command, "--erase takes no other option than --id;");
    if (erase && !id)
        return cli_usage(&history_command, "no timer selected; give its ID with --id;");
    return erase ? run_erase() : run_list();
}

static const struct cli_option options[] = {
    {"id", "ID", "attempts of this timer", .text = &id},
    {"name", "NAME", "attempts of timers with this name", .text = &name},
    {"schedule", "NAME", "attempts of timers that this schedule created", .text = &schedule},
    {"result", "RESULT", "done, failed, dead, again, expired, skipped or cancelled", .text = &result},
    {"after", "TIME", "attempts that began then or later", .text = &after, .format = &cli_time},
    {"before", "TIME", "attempts that began earlier", .text = &before, .format = &cli_time},
    {"limit", "N", "print at most N; default: all", .value = &limit, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line, with the response", .flag = &as_json},
    {"erase", "", "erase the history of the timer given with --id", .flag = &erase},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "the namespace of the timers", &ns, false}, {0}};

const struct cli_command history_command = {
    .name = "history",
    .summary = "lists what became of attempts, newest first",
    .options = options,
    .arguments = arguments,
    .notes = "By default, the server keeps failures, for three days; 'foliot namespace set --history' changes this.",
    .run = run,
};
