/* SPDX-License-Identifier: MIT */
/* `foliot add`: creates a timer. */

#include <stdio.h>
#include <unistd.h>

#include "cli/content.h"
#include "cli/show.h"

static const char *ns, *name;
static bool only_new, as_json;

/* In a pipe the ID alone, for scripts: id=$(foliot add ...). */
static void show_created(struct json timer)
{
    char away[SHOWN];
    struct out id = {0}, due = {0};
    put_member_shown(&id, timer, "id");
    put_member_shown(&due, timer, "due");
    printf("%.*s", (int)id.size, id.data);
    if (isatty(STDOUT_FILENO)) {
        show_style(stdout, STYLE_DIM);
        printf("  due %.*s, %s", (int)due.size, due.data, show_away(away, out_bytes(&due)));
        show_style(stdout, STYLE_PLAIN);
    }
    putchar('\n');
    out_free(&id);
    out_free(&due);
}

static int add(struct client *client)
{
    struct out path = {0}, body = {0}, answer = {0};
    struct json timer;
    size_t at;
    const char *why;
    put_path(&path, "/v1/timers", ns, name, NULL);
    int status = content_write(client, &body);
    if (status == CLI_OK) {
        struct client_request request = {.method = name ? "PUT" : "POST",
                                         .path = &path,
                                         .body = out_bytes(&body),
                                         .header = only_new ? "If-None-Match: *" : NULL};
        status = client_send(client, &request, &answer);
    }
    if (status == CLI_OK && json_parse(out_bytes(&answer), &timer, &at, &why) == 0) {
        if (as_json)
            show_json(timer);
        else
            show_created(timer);
    }
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    return status;
}

static int run(void)
{
    struct client client;
    if (!content.after && !content.at)
        return cli_usage(&add_command, "no due time; give --after 10m or --at 2030-01-31T09:00:00Z;");
    if (only_new && !name)
        return cli_usage(&add_command, "--only-new needs a NAME;");
    int status = client_open(&client, &add_command);
    if (status != CLI_OK)
        return status;
    status = add(&client);
    client_close(&client);
    return status;
}

static const struct cli_option options[] = {
    CONTENT_OPTIONS,
    {"only-new", "", "fail if a timer of that name exists, instead of replacing it", .flag = &only_new},
    {"json", "", "print the timer as JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {
    {"NAMESPACE", "the namespace of the timer", &ns, false},
    {"NAME", "the name of the timer; a second timer of that name replaces the first", &name, true},
    {0},
};

const struct cli_command add_command = {
    .name = "add",
    .summary = "creates or replaces a timer, and prints its ID",
    .options = options,
    .arguments = arguments,
    .notes = "A payload that is JSON is sent unchanged, other text as a JSON string, anything else as bytes.\n\n"
             "  foliot add mail welcome-42 --after 10m --to https://example.com/hook --payload '{\"user\":42}'",
    .run = run,
};
