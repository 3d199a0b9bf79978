/* SPDX-License-Identifier: MIT */
/* `foliot clock`: shows the server's time, and moves a test clock. */

#include "cli/ask.h"

static const char *advance, *to;
static bool as_json;

static int put_turn(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, "{");
    out_key(body, advance ? "advance" : "to");
    out_string(body, bytes_of(advance ? advance : to));
    out_text(body, "}");
    return CLI_OK;
}

static int run(void)
{
    bool turns = advance || to;
    if (advance && to)
        return cli_usage(&clock_command, "give --advance or --to, not both;");
    return ask_and_show(&(struct ask){.command = &clock_command,
                                      .method = turns ? "POST" : "GET",
                                      .path = {"/v1/clock"},
                                      .body = turns ? put_turn : NULL,
                                      .as_json = as_json});
}

static const struct cli_option options[] = {
    {"advance", "DURATION", "advance the test clock by DURATION", .text = &advance, .format = &cli_duration},
    {"to", "TIME", "advance the test clock to TIME", .text = &to, .format = &cli_time},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

const struct cli_command clock_command = {
    .name = "clock",
    .summary = "shows the time of the server, or advances its test clock",
    .options = options,
    .notes = "Only a server that was started with --test-clock has such a clock. Timers that become due fire.",
    .run = run,
};
