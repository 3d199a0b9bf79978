/* SPDX-License-Identifier: MIT */
/* `foliot dead`: timers that were given up, their dead letters. */

#include <inttypes.h>
#include <stdio.h>

#include "cli/ask.h"

static const char *ns, *id;
static struct filter filter;
static uint64_t limit, rate;
static bool as_json, all, dry_run;

static const struct cli_command list_dead, get_dead, redrive_dead, delete_dead;

static const struct cli_argument namespace_arguments[] = {
    {"NAMESPACE", "the namespace of the dead letters", &ns, false}, {0}};
static const struct cli_argument one_arguments[] = {
    {"NAMESPACE", "the namespace of the dead letter", &ns, false},
    {"ID", "the ID of the dead letter", &id, false},
    {0},
};
static const struct cli_argument some_arguments[] = {
    {"NAMESPACE", "the namespace of the dead letters", &ns, false},
    {"ID", "the ID of one dead letter", &id, true},
    {0},
};

/* --- list and get ------------------------------------------------------------------------------------------------- */

static int run_list(void)
{
    return ask_and_list(&(struct ask_list){.command = &list_dead,
                                           .path = {"/v1/dead", ns},
                                           .filter = &filter,
                                           .limit = limit,
                                           .as_json = as_json,
                                           .columns = {{"ID", "id"},
                                                       {"NAME", "name"},
                                                       {"DUE", "due"},
                                                       {"DIED", "died"},
                                                       {"ATTEMPT", "attempt"},
                                                       {"REASON", "reason"}},
                                           .none = "No dead letters."});
}

static int run_get(void)
{
    return ask_and_show(&(struct ask){.command = &get_dead, .path = {"/v1/dead", ns, id}, .as_json = as_json});
}

/* --- redrive and delete ------------------------------------------------------------------------------------------- */

static int do_one(struct client *client, bool redrive)
{
    struct out path = {0}, answer = {0};
    put_path(&path, "/v1/dead", ns, id, redrive ? "redrive" : NULL, NULL);
    int status = client_call(client, redrive ? "POST" : "DELETE", &path, NULL, &answer);
    if (status == CLI_OK)
        puts(redrive ? "1 redriven" : "1 deleted");
    out_free(&path);
    out_free(&answer);
    return status;
}

static int do_many(struct client *client, bool redrive)
{
    const char *deed = redrive ? "redriven" : "deleted";
    char per_second[24];
    struct out path = {0}, answer = {0}, count = {0};
    struct json result;
    put_path(&path, "/v1/dead", ns, redrive ? "redrive" : NULL, NULL);
    put_filter(&path, &filter);
    put_query(&path, "all", all ? "true" : NULL);
    put_query(&path, "dry_run", dry_run ? "true" : NULL);
    snprintf(per_second, sizeof per_second, "%" PRIu64, rate);
    put_query(&path, "rate", rate > 0 ? per_second : NULL);
    int status = client_ask(client, redrive ? "POST" : "DELETE", &path, NULL, &answer, &result);
    if (status == CLI_OK) {
        put_member_shown(&count, result, dry_run ? "matched" : deed);
        printf("%.*s %s%s\n", (int)count.size, count.data ? count.data : "", dry_run ? "would be " : "", deed);
    }
    out_free(&path);
    out_free(&answer);
    out_free(&count);
    return status;
}

static int run_deed(const struct cli_command *command, bool redrive)
{
    struct client client;
    bool many = filter_is_given(&filter) || all;
    if (id && (many || dry_run || rate > 0))
        return cli_usage(command, "give ID or a filter, not both;");
    if (!id && !many)
        return cli_usage(command,
                         "no dead letter selected; give its ID, --all, or a filter such as --reason-contains;");
    int status = client_open(&client, command);
    if (status != CLI_OK)
        return status;
    status = id ? do_one(&client, redrive) : do_many(&client, redrive);
    client_close(&client);
    return status;
}

static int run_redrive(void)
{
    return run_deed(&redrive_dead, true);
}

static int run_delete(void)
{
    return run_deed(&delete_dead, false);
}

/* --- Tables ------------------------------------------------------------------------------------------------------- */

static const struct cli_option list_options[] = {
    DEAD_FILTER_OPTIONS(filter),
    {"limit", "N", "print at most N; default: all", .value = &limit, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};
static const struct cli_option get_options[] = {{"json", "", "print it as JSON", .flag = &as_json}, {0}};
#define MANY_OPTIONS                                                                             \
    DEAD_FILTER_OPTIONS(filter), {"all", "", "all dead letters of the namespace", .flag = &all}, \
    {                                                                                            \
        "dry-run", "", "only count the dead letters", .flag = &dry_run                           \
    }

static const struct cli_option redrive_options[] = {
    MANY_OPTIONS,
    {"rate", "N", "space their due times: N per second", .value = &rate, .min = 1, .max = 1000000},
    {0},
};
static const struct cli_option delete_options[] = {MANY_OPTIONS, {0}};

static const struct cli_command list_dead = {
    .name = "dead list",
    .summary = "lists the dead letters of a namespace, oldest first",
    .options = list_options,
    .arguments = namespace_arguments,
    .run = run_list,
};
static const struct cli_command get_dead = {
    .name = "dead get",
    .summary = "shows a dead letter and the reason of the failure",
    .options = get_options,
    .arguments = one_arguments,
    .run = run_get,
};
static const struct cli_command redrive_dead = {
    .name = "dead redrive",
    .summary = "turns dead letters into timers that are due now",
    .options = redrive_options,
    .arguments = some_arguments,
    .run = run_redrive,
};
static const struct cli_command delete_dead = {
    .name = "dead delete",
    .summary = "deletes dead letters",
    .options = delete_options,
    .arguments = some_arguments,
    .run = run_delete,
};

const struct cli_command dead_command = {
    .name = "dead",
    .summary = "shows, redrives and deletes dead letters: timers that finally failed",
    .commands = (const struct cli_command *const[]){&list_dead, &get_dead, &redrive_dead, &delete_dead, NULL},
};
