/* SPDX-License-Identifier: MIT */
/* `foliot cancel`: one timer, or all that fit. */

#include <stdio.h>

#include "cli/pages.h"
#include "cli/show.h"

static const char *ns, *name;
static struct filter filter;
static bool dry_run, all;

static int cancel_one(struct client *client)
{
    struct out path = {0}, answer = {0};
    put_path(&path, "/v1/timers", ns, name, NULL);
    int status = client_call(client, "DELETE", &path, NULL, &answer);
    if (status == CLI_OK)
        puts("1 cancelled");
    out_free(&path);
    out_free(&answer);
    return status;
}

static int cancel_many(struct client *client)
{
    struct out path = {0}, answer = {0}, count = {0};
    struct json result;
    put_path(&path, "/v1/timers", ns, NULL);
    put_filter(&path, &filter);
    put_query(&path, "all", all ? "true" : NULL);
    put_query(&path, "dry_run", dry_run ? "true" : NULL);
    int status = client_ask(client, "DELETE", &path, NULL, &answer, &result);
    if (status == CLI_OK) {
        put_member_shown(&count, result, dry_run ? "matched" : "cancelled");
        printf("%.*s %s\n", (int)count.size, count.data, dry_run ? "would be cancelled" : "cancelled");
    }
    out_free(&path);
    out_free(&answer);
    out_free(&count);
    return status;
}

static int run(void)
{
    struct client client;
    bool filtered = filter_is_given(&filter) || all;
    if (name && (filtered || dry_run))
        return cli_usage(&cancel_command, "give NAME or a filter, not both;");
    if (!name && !filtered)
        return cli_usage(&cancel_command,
                         "no timers selected; give NAME, --all, or a filter such as --prefix or --due-before;");
    int status = client_open(&client, &cancel_command);
    if (status != CLI_OK)
        return status;
    status = name ? cancel_one(&client) : cancel_many(&client);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    FILTER_OPTIONS(filter),
    {"all", "", "all timers of the namespace", .flag = &all},
    {"dry-run", "", "only count the timers", .flag = &dry_run},
    {0},
};

static const struct cli_argument arguments[] = {
    {"NAMESPACE", "the namespace of the timers", &ns, false},
    {"NAME", "the name or ID of one timer", &name, true},
    {0},
};

const struct cli_command cancel_command = {
    .name = "cancel",
    .summary = "cancels one timer, or all that match a filter",
    .options = options,
    .arguments = arguments,
    .run = run,
};
