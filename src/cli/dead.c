/* SPDX-License-Identifier: MIT */
/* `foliot dead`: timers that were given up, their dead letters. */

#include <stdio.h>

#include "cli/ask.h"

static const char *ns, *id;
static uint64_t limit;
static bool as_json, all;

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

struct deed {
    struct client *client;
    bool redrive;
    struct out ids; /* a NUL behind each */
    uint64_t count;
};

static int do_one(struct deed *deed, const char *which)
{
    struct out path = {0}, answer = {0};
    put_path(&path, "/v1/dead", ns, which, deed->redrive ? "redrive" : NULL, NULL);
    int status = client_call(deed->client, deed->redrive ? "POST" : "DELETE", &path, NULL, &answer);
    deed->count += status == CLI_OK;
    out_free(&path);
    out_free(&answer);
    return status;
}

static int note_id(void *arg, struct json timer)
{
    struct deed *deed = arg;
    put_member_shown(&deed->ids, timer, "id");
    out_put(&deed->ids, "", 1);
    return CLI_OK;
}

/* All that there are when it begins: one that dies again meanwhile is not raised a second time. */
static int do_all(struct deed *deed)
{
    struct out path = {0};
    put_path(&path, "/v1/dead", ns, NULL);
    struct pages pages = {.path = &path, .timer = note_id, .arg = deed};
    int status = pages_follow(deed->client, &pages);
    if (status == CLI_OK && deed->ids.failed)
        status = client_no_memory(deed->client);
    const char *end = deed->ids.data + deed->ids.size;
    for (const char *at = deed->ids.data; status == CLI_OK && at < end; at += __builtin_strlen(at) + 1) {
        status = do_one(deed, at);
        if (status == CLI_NOT_FOUND) /* another client was faster */
            status = CLI_OK;
    }
    out_free(&path);
    out_free(&deed->ids);
    return status;
}

static int run_deed(const struct cli_command *command, bool redrive)
{
    struct client client;
    struct deed deed = {.client = &client, .redrive = redrive};
    if (!id == !all)
        return cli_usage(command, "no dead letter selected; give its ID, or --all;");
    int status = client_open(&client, command);
    if (status != CLI_OK)
        return status;
    status = all ? do_all(&deed) : do_one(&deed, id);
    if (status == CLI_OK || deed.count > 0)
        printf("%llu %s\n", (unsigned long long)deed.count, redrive ? "redriven" : "deleted");
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
    {"limit", "N", "print at most N; default: all", .value = &limit, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};
static const struct cli_option get_options[] = {{"json", "", "print it as JSON", .flag = &as_json}, {0}};
static const struct cli_option deed_options[] = {{"all", "", "all dead letters of the namespace", .flag = &all}, {0}};

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
    .options = deed_options,
    .arguments = some_arguments,
    .run = run_redrive,
};
static const struct cli_command delete_dead = {
    .name = "dead delete",
    .summary = "deletes dead letters",
    .options = deed_options,
    .arguments = some_arguments,
    .run = run_delete,
};

const struct cli_command dead_command = {
    .name = "dead",
    .summary = "shows, redrives and deletes dead letters: timers that finally failed",
    .commands = (const struct cli_command *const[]){&list_dead, &get_dead, &redrive_dead, &delete_dead, NULL},
};
