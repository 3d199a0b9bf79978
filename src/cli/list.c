/* SPDX-License-Identifier: MIT */
/* `foliot list`: timers of a namespace, as a table or as JSON. */

#include "cli/pages.h"
#include "cli/show.h"

static const char *ns;
static struct filter filter;
static uint64_t limit;
static bool as_json;

static int take(void *arg, struct json timer)
{
    struct table *table = arg;
    if (as_json) {
        show_json(timer);
        return CLI_OK;
    }
    table_cell(table, timer, "id");
    table_cell(table, timer, "name");
    table_cell(table, timer, "due");
    table_cell(table, timer, "attempt");
    table_cell(table, timer, "target");
    return CLI_OK;
}

static int flush(void *arg)
{
    return table_flush(arg);
}

static int run(void)
{
    struct client client;
    struct out path = {0};
    struct table table = {.heads = {"ID", "NAME", "DUE", "ATTEMPT", "TARGET"}};
    int status = client_open(&client, &list_command);
    if (status != CLI_OK)
        return status;
    put_path(&path, "/v1/timers", ns, NULL);
    put_filter(&path, &filter);
    struct pages pages = {.path = &path, .limit = limit, .timer = take, .page = flush, .arg = &table};
    status = pages_follow(&client, &pages);
    if (status == CLI_OK && !as_json)
        table_say_empty(&table, "No timers.");
    table_free(&table);
    out_free(&path);
    client_close(&client);
    return status;
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
