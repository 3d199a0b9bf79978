/* SPDX-License-Identifier: MIT */
/* `foliot add`: creates a timer. */

#include <stdio.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/content.h"

static const char *ns, *name;
static bool only_new, as_json;

/* In a pipe the ID alone, for scripts: id=$(foliot add ...). */
static int show_created(struct json timer)
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
    return CLI_OK;
}

static int run(void)
{
    if (!content.after && !content.at && !content.local)
        return cli_usage(&add_command,
                         "no due time; give --after 10m, --at 2030-01-31T09:00:00Z, or --local and --zone;");
    if (only_new && !name)
        return cli_usage(&add_command, "--only-new needs a NAME;");
    return ask_and_show(&(struct ask){.command = &add_command,
                                      .method = name ? "PUT" : "POST",
                                      .path = {"/v1/timers", ns, name},
                                      .body = content_write,
                                      .header = only_new ? "If-None-Match: *" : NULL,
                                      .as_json = as_json,
                                      .show = show_created});
}

static const struct cli_option options[] = {
    CONTENT_OPTIONS,
    {"merge", "WHICH", "if this replaces a timer: last (default) takes the new payload, first keeps the old one",
     .text = &content.merge},
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
