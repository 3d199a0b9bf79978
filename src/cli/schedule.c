/* SPDX-License-Identifier: MIT */
/* `foliot schedule`: recurring timers. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/content.h"

static const char *ns, *name, *from, *to, *prefix;
static const char *cron, *every, *zone, *start, *end, *missed, *grace, *missed_within, *overlap, *window, *gap, *repeat;
static struct cli_texts except;
static uint64_t count, limit, number = 10;
static bool only_new, paused, as_json;

static const struct cli_command add, get, list, preview, trigger, backfill, pause_one, resume_one, remove_one;

/* --- The members of a schedule ------------------------------------------------------------------------------------ */

static void put_given(struct out *body, const char *key, const char *text)
{
    if (text)
        put_text(body, key, text);
}

static void put_given_time(struct out *body, const char *key, const char *text)
{
    if (text)
        put_time(body, key, text);
}

static void put_except(struct out *body)
{
    if (except.count == 0)
        return;
    out_key(body, "except");
    out_text(body, "[");
    for (size_t i = 0; i < except.count; i++) {
        out_text(body, i > 0 ? "," : "");
        out_string(body, bytes_of(except.list[i]));
    }
    out_text(body, "]");
}

static void put_rule(struct out *body)
{
    put_given(body, "cron", cron);
    put_given(body, "every", every);
    put_given(body, "zone", zone);
    put_given_time(body, "start", start);
    put_given_time(body, "end", end);
    if (count > 0) {
        out_key(body, "count");
        out_format(body, "%" PRIu64, count);
    }
    put_except(body);
    put_given(body, "window", window);
    put_given(body, "gap", gap);
    put_given(body, "repeat", repeat);
}

static int put_schedule(const struct client *client, struct out *body)
{
    out_text(body, "{");
    put_rule(body);
    put_given(body, "missed", missed);
    put_given(body, "grace", grace);
    put_given(body, "missed_within", missed_within);
    put_given(body, "overlap", overlap);
    if (paused) {
        out_key(body, "paused");
        out_text(body, "true");
    }
    int status = attempt_write(client, body);
    out_text(body, "}");
    return status;
}

static int check_rule(const struct cli_command *command)
{
    if (cron && every)
        return cli_usage(command, "give --cron or --every, not both;");
    if (!cron && !every)
        return cli_usage(command, "no rule; give --cron '0 9 * * MON-FRI' or --every 15m;");
    return CLI_OK;
}

/* --- add, get, list, remove --------------------------------------------------------------------------------------- */

/* In a pipe the time alone, for scripts. */
static int show_next(struct json schedule)
{
    char away[SHOWN];
    struct json value;
    struct out next = {0};
    bool has_next = json_get(schedule, "next", &value) && value.kind == JSON_STRING;
    if (has_next)
        put_shown(&next, value);
    bool terminal = isatty(STDOUT_FILENO);
    if (!has_next)
        puts(terminal ? "The schedule has no next occurrence." : "-");
    else if (terminal)
        printf("next %.*s, %s\n", (int)next.size, next.data, show_away(away, out_bytes(&next)));
    else
        printf("%.*s\n", (int)next.size, next.data);
    out_free(&next);
    return CLI_OK;
}

static int run_add(void)
{
    int status = check_rule(&add);
    if (status != CLI_OK)
        return status;
    return ask_and_show(&(struct ask){.command = &add,
                                      .method = "PUT",
                                      .path = {"/v1/schedules", ns, name},
                                      .body = put_schedule,
                                      .header = only_new ? "If-None-Match: *" : NULL,
                                      .as_json = as_json,
                                      .show = show_next});
}

static int run_get(void)
{
    return ask_and_show(&(struct ask){.command = &get, .path = {"/v1/schedules", ns, name}, .as_json = as_json});
}

static int run_list(void)
{
    struct filter filter = {.prefix = prefix};
    return ask_and_list(&(struct ask_list){.command = &list,
                                           .path = {"/v1/schedules", ns},
                                           .member = "schedules",
                                           .filter = &filter,
                                           .limit = limit,
                                           .as_json = as_json,
                                           .columns = {{"NAME", "name"},
                                                       {"NEXT", "next"},
                                                       {"LAST", "last"},
                                                       {"MADE", "made"},
                                                       {"PAUSED", "paused"},
                                                       {"ZONE", "zone"},
                                                       {"EVERY", "every"},
                                                       {"CRON", "cron"}},
                                           .none = "No schedules."});
}

static int run_remove(void)
{
    struct client client;
    struct out path = {0}, answer = {0};
    int status = client_open(&client, &remove_one);
    if (status != CLI_OK)
        return status;
    put_path(&path, "/v1/schedules", ns, name, NULL);
    status = client_call(&client, "DELETE", &path, NULL, &answer);
    if (status == CLI_OK)
        puts("1 removed");
    out_free(&path);
    out_free(&answer);
    client_close(&client);
    return status;
}

/* --- preview ------------------------------------------------------------------------------------------------------ */

static void put_preview(struct out *path)
{
    char n[24];
    snprintf(n, sizeof n, "%" PRIu64, number);
    put_query(path, "n", n);
    put_query(path, "from", from);
}

static void put_preview_unsaved(struct out *path)
{
    put_preview(path);
    put_query(path, "namespace", ns);
    put_query(path, "name", name);
}

static int put_unsaved(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, "{");
    put_rule(body);
    out_text(body, "}");
    return CLI_OK;
}

static int show_occurrences(struct json answer)
{
    struct json occurrences, occurrence;
    struct table table = {.heads = {"AT", "LOCAL", "DST"}};
    if (json_get(answer, "occurrences", &occurrences))
        for (struct json_walk walk = json_walk(occurrences); json_element(&walk, &occurrence);) {
            table_cell(&table, occurrence, "at");
            table_cell(&table, occurrence, "local");
            table_cell(&table, occurrence, "dst");
        }
    int status = table_flush(&table);
    table_say_empty(&table, "No occurrences.");
    table_free(&table);
    return status;
}

/* With --json, a line for each occurrence. */
static int print_occurrences(struct json answer)
{
    struct json occurrences, occurrence;
    if (json_get(answer, "occurrences", &occurrences))
        for (struct json_walk walk = json_walk(occurrences); json_element(&walk, &occurrence);)
            show_json(occurrence);
    return CLI_OK;
}

static int run_preview(void)
{
    bool rule = cron || every || zone || start || end || count || except.count || window || gap || repeat;
    struct ask ask = {.command = &preview, .show = as_json ? print_occurrences : show_occurrences};
    if (rule) {
        int status = check_rule(&preview);
        if (status != CLI_OK)
            return status;
        ask.method = "POST";
        ask.path[0] = "/v1/schedules/preview";
        ask.query = put_preview_unsaved;
        ask.body = put_unsaved;
        return ask_and_show(&ask);
    }
    if (!name)
        return cli_usage(&preview, "no schedule; give NAMESPACE and NAME, or a rule with --cron or --every;");
    ask.path[0] = "/v1/schedules";
    ask.path[1] = ns;
    ask.path[2] = name;
    ask.path[3] = "preview";
    ask.query = put_preview;
    return ask_and_show(&ask);
}

/* --- trigger, backfill, pause, resume ----------------------------------------------------------------------------- */

static int show_id(struct json answer)
{
    struct out id = {0};
    put_member_shown(&id, answer, "id");
    printf("%.*s\n", (int)id.size, id.data);
    out_free(&id);
    return CLI_OK;
}

static int show_made(struct json answer)
{
    struct out made = {0};
    put_member_shown(&made, answer, "made");
    printf("%.*s made\n", (int)made.size, made.data);
    out_free(&made);
    return CLI_OK;
}

static int run_trigger(void)
{
    return ask_and_show(&(struct ask){.command = &trigger,
                                      .method = "POST",
                                      .path = {"/v1/schedules", ns, name, "trigger"},
                                      .as_json = as_json,
                                      .show = show_id});
}

static int put_span(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, "{");
    put_time(body, "from", from);
    put_time(body, "to", to);
    out_text(body, "}");
    return CLI_OK;
}

static int run_backfill(void)
{
    if (!from || !to)
        return cli_usage(&backfill, "%s is missing; give --from TIME and --to TIME;", from ? "--to" : "--from");
    return ask_and_show(&(struct ask){.command = &backfill,
                                      .method = "POST",
                                      .path = {"/v1/schedules", ns, name, "backfill"},
                                      .body = put_span,
                                      .as_json = as_json,
                                      .show = show_made});
}

static int put_paused(const struct client *client, struct out *body)
{
    out_text(body, client->command == &pause_one ? "{\"paused\":true}" : "{\"paused\":false}");
    return CLI_OK;
}

static int patch(const struct cli_command *command)
{
    return ask_and_show(&(struct ask){.command = command,
                                      .method = "PATCH",
                                      .path = {"/v1/schedules", ns, name},
                                      .body = put_paused,
                                      .as_json = as_json});
}

static int run_pause(void)
{
    return patch(&pause_one);
}

static int run_resume(void)
{
    return patch(&resume_one);
}

/* --- Tables ------------------------------------------------------------------------------------------------------- */

#define RULE_OPTIONS                                                                                                   \
    {"cron", "EXPRESSION", "when it occurs: '0 9 * * MON-FRI'", .text = &cron},                                        \
        {"every", "DURATION", "it occurs once per DURATION, at least 100ms", .text = &every, .format = &cli_duration}, \
        {"zone", "ZONE", "time zone of --cron, such as Europe/Berlin; default: UTC", .text = &zone},                   \
        {"start", "TIME", "no occurrence before TIME", .text = &start, .format = &cli_time},                           \
        {"end", "TIME", "no occurrence at or after TIME", .text = &end, .format = &cli_time},                          \
        {"count", "N", "at most N occurrences; default: no limit", .value = &count, .min = 1, .max = INT64_MAX},       \
        {"except", "DATE", "leave out a local date or time: 2026-12-25, 2026-12-31T09:00; may be repeated",            \
         .texts = &except},                                                                                            \
        {"window", "DURATION", "delay each timer by a fixed part of DURATION", .text = &window,                        \
         .format = &cli_duration},                                                                                     \
        {"gap", "POLICY", "a local time that does not exist: after (default) or skip", .text = &gap},                  \
    {                                                                                                                  \
        "repeat", "POLICY", "a local time that the clock shows twice: first (default) or both", .text = &repeat        \
    }

static const struct cli_option add_options[] = {
    RULE_OPTIONS,
    {"missed", "POLICY", "occurrences that were missed: last (default), all or skip", .text = &missed},
    {"grace", "DURATION", "occurrences that are late by less are not missed; default: 10s", .text = &grace,
     .format = &cli_duration},
    {"missed-within", "DURATION", "skip missed occurrences that are older", .text = &missed_within,
     .format = &cli_duration},
    {"overlap", "POLICY", "while an earlier occurrence is not settled: allow (default), skip or queue",
     .text = &overlap},
    {"paused", "", "create no occurrences until foliot schedule resume", .flag = &paused},
    ATTEMPT_OPTIONS,
    {"only-new", "", "fail if a schedule of that name exists, instead of replacing it", .flag = &only_new},
    {"json", "", "print the schedule as JSON", .flag = &as_json},
    {0},
};

static const struct cli_option json_options[] = {{"json", "", "print JSON", .flag = &as_json}, {0}};

static const struct cli_option list_options[] = {
    {"prefix", "TEXT", "those whose names begin so", .text = &prefix},
    {"limit", "N", "print at most N; default: all", .value = &limit, .min = 1, .max = UINT64_MAX},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};

static const struct cli_option preview_options[] = {
    RULE_OPTIONS,
    {"limit", "N", "print at most N occurrences", .value = &number, .min = 1, .max = 1000},
    {"from", "TIME", "those after TIME; default: now", .text = &from, .format = &cli_time},
    {"json", "", "print one JSON object per line", .flag = &as_json},
    {0},
};

static const struct cli_option backfill_options[] = {
    {"from", "TIME", "the occurrences at TIME and later", .text = &from, .format = &cli_time},
    {"to", "TIME", "the occurrences before TIME, which is at most now", .text = &to, .format = &cli_time},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument one_arguments[] = {
    {"NAMESPACE", "the namespace of the schedule", &ns, false},
    {"NAME", "the name of the schedule", &name, false},
    {0},
};

static const struct cli_argument list_arguments[] = {
    {"NAMESPACE", "the namespace of the schedules", &ns, false},
    {0},
};

static const struct cli_argument preview_arguments[] = {
    {"NAMESPACE", "the namespace of the schedule", &ns, true},
    {"NAME", "the name of the schedule", &name, true},
    {0},
};

static const struct cli_command add = {
    .name = "schedule add",
    .summary = "creates or replaces a schedule, and prints its next occurrence",
    .options = add_options,
    .arguments = one_arguments,
    .notes =
        "  foliot schedule add demo report --cron '0 9 * * MON-FRI' --zone Europe/Berlin --to https://example.com/hook",
    .run = run_add,
};
static const struct cli_command get = {
    .name = "schedule get",
    .summary = "shows a schedule",
    .options = json_options,
    .arguments = one_arguments,
    .run = run_get,
};
static const struct cli_command list = {
    .name = "schedule list",
    .summary = "lists the schedules of a namespace",
    .options = list_options,
    .arguments = list_arguments,
    .run = run_list,
};
static const struct cli_command preview = {
    .name = "schedule preview",
    .summary = "lists the next occurrences of a schedule, or of a rule that is not saved",
    .options = preview_options,
    .arguments = preview_arguments,
    .notes = "With --cron or --every, NAMESPACE and NAME only determine the values of H and the delay of --window.\n\n"
             "  foliot schedule preview --cron '30 2 * * *' --zone Europe/Berlin --from 2026-03-28T00:00:00Z",
    .run = run_preview,
};
static const struct cli_command trigger = {
    .name = "schedule trigger",
    .summary = "creates one occurrence now, and prints its ID",
    .options = json_options,
    .arguments = one_arguments,
    .run = run_trigger,
};
static const struct cli_command backfill = {
    .name = "schedule backfill",
    .summary = "creates the occurrences of a past span again",
    .options = backfill_options,
    .arguments = one_arguments,
    .run = run_backfill,
};
static const struct cli_command pause_one = {
    .name = "schedule pause",
    .summary = "pauses a schedule: it creates no occurrences",
    .options = json_options,
    .arguments = one_arguments,
    .run = run_pause,
};
static const struct cli_command resume_one = {
    .name = "schedule resume",
    .summary = "resumes a schedule that is paused",
    .options = json_options,
    .arguments = one_arguments,
    .run = run_resume,
};
static const struct cli_command remove_one = {
    .name = "schedule remove",
    .summary = "removes a schedule; its timers stay",
    .arguments = one_arguments,
    .run = run_remove,
};

const struct cli_command schedule_command = {
    .name = "schedule",
    .summary = "creates, shows and removes schedules: recurring timers",
    .commands = (const struct cli_command *const[]){&add, &get, &list, &preview, &trigger, &backfill, &pause_one,
                                                    &resume_one, &remove_one, NULL},
};
