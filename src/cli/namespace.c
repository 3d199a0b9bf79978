/* SPDX-License-Identifier: MIT */
/* `foliot namespace`: the namespaces there are, and their settings. */

#include <string.h>

#include "cli/ask.h"
#include "cli/content.h"

static const char *ns, *retry, *skip_older, *max_rate, *spread, *history;
static struct cli_texts secrets;
static bool as_json;

static const struct cli_command list_namespaces, get_namespace, set_namespace;

/* --- list and get ------------------------------------------------------------------------------------------------- */

static int run_list(void)
{
    return ask_and_list(&(struct ask_list){.command = &list_namespaces,
                                           .path = {"/v1/namespaces"},
                                           .member = "namespaces",
                                           .as_json = as_json,
                                           .columns = {{"NAMESPACE", "namespace", NULL},
                                                       {"PENDING", "pending", NULL},
                                                       {"SCHEDULES", "schedules", NULL},
                                                       {"MAX-RATE", "max_rate", "settings"},
                                                       {"SPREAD", "spread", "settings"},
                                                       {"SKIP-OLDER", "skip_older", "settings"},
                                                       {"SECRETS", "secret_count", "settings"},
                                                       {"RETRY", "retry", "settings"},
                                                       {"PAUSED", "paused", NULL}},
                                           .none = "No namespaces."});
}

static int run_get(void)
{
    return ask_and_show(&(struct ask){.command = &get_namespace, .path = {"/v1/namespaces", ns}, .as_json = as_json});
}

/* --- set ---------------------------------------------------------------------------------------------------------- */

static bool is_none(const char *text)
{
    return strcmp(text, "none") == 0;
}

/* The value none takes a setting away. */
static void put_setting(struct out *body, const char *key, const char *given, bool number)
{
    if (!given)
        return;
    out_key(body, key);
    if (number || is_none(given))
        out_text(body, is_none(given) ? "null" : given);
    else
        out_string(body, bytes_of(given));
}

static int put_object(const struct client *client, struct out *body, const char *key, const char *given)
{
    if (given && !is_none(given))
        return put_pairs(client, body, key, given);
    put_setting(body, key, given, false);
    return CLI_OK;
}

static int put_secrets(const struct client *client, struct out *body)
{
    out_key(body, "secrets");
    out_text(body, "[");
    for (size_t i = 0; i < secrets.count && !is_none(secrets.list[i]); i++) {
        struct out secret = {0};
        int status = read_source(client, secrets.list[i], &secret);
        while (secret.size > 0 && strchr(" \r\n", secret.data[secret.size - 1]))
            secret.size--;
        out_text(body, i > 0 ? "," : "");
        out_string(body, out_bytes(&secret));
        out_free(&secret);
        if (status != CLI_OK)
            return status;
    }
    out_text(body, "]");
    return CLI_OK;
}

static int put_settings(const struct client *client, struct out *body)
{
    int status = CLI_OK;
    out_text(body, "{");
    if (secrets.count > 0)
        status = put_secrets(client, body);
    if (status == CLI_OK)
        status = put_object(client, body, "retry", retry);
    if (status == CLI_OK)
        status = put_object(client, body, "history", history);
    put_setting(body, "skip_older", skip_older, false);
    put_setting(body, "max_rate", max_rate, true);
    put_setting(body, "spread", spread, false);
    out_text(body, "}");
    return status;
}

static int run_set(void)
{
    if (max_rate && !is_none(max_rate) && strspn(max_rate, "0123456789") != strlen(max_rate))
        return cli_usage(&set_namespace, "invalid value '%s' for --max-rate: expected a whole number or none;",
                         max_rate);
    if (secrets.count == 0 && !retry && !skip_older && !max_rate && !spread && !history)
        return cli_usage(&set_namespace,
                         "nothing to set; give --secret, --retry, --skip-older, --max-rate, --spread or --history;");
    return ask_and_show(&(struct ask){.command = &set_namespace,
                                      .method = "PATCH",
                                      .path = {"/v1/namespaces", ns},
                                      .body = put_settings,
                                      .as_json = as_json});
}

/* --- Tables ------------------------------------------------------------------------------------------------------- */

static const struct cli_option get_options[] = {{"json", "", "print JSON", .flag = &as_json}, {0}};

static const struct cli_option set_options[] = {
    {"secret", "SECRET", "sign webhooks with this secret (whsec_..., or @FILE); at most two", .texts = &secrets},
    {"retry", "KEY=VALUE,...",
     "default retry policy: max_attempts=5,initial=1s,multiplier=2,max_interval=1h,max_age=1d", .text = &retry},
    {"skip-older", "DURATION", "do not fire timers that became due while no server ran and are later than DURATION",
     .text = &skip_older},
    {"max-rate", "N", "maximum number of webhooks per second", .text = &max_rate},
    {"spread", "DURATION", "spread timers that are due at the same moment over DURATION", .text = &spread},
    {"history", "KEY=VALUE,...", "attempts to record: only=failures (or all, none),keep=3d,body=1024",
     .text = &history},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "the namespace", &ns, false}, {0}};

static const struct cli_command list_namespaces = {
    .name = "namespace list",
    .summary = "lists the namespaces, their pending timers and settings",
    .options = get_options,
    .run = run_list,
};
static const struct cli_command get_namespace = {
    .name = "namespace get",
    .summary = "shows the settings of a namespace",
    .options = get_options,
    .arguments = arguments,
    .run = run_get,
};
static const struct cli_command set_namespace = {
    .name = "namespace set",
    .summary = "sets the given settings and keeps the others",
    .options = set_options,
    .arguments = arguments,
    .notes = "The value none removes a setting.",
    .run = run_set,
};

const struct cli_command namespace_command = {
    .name = "namespace",
    .summary = "shows namespaces and changes their settings",
    .commands = (const struct cli_command *const[]){&list_namespaces, &get_namespace, &set_namespace, NULL},
};
