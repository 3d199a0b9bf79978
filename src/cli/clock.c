/* SPDX-License-Identifier: MIT */
/* `foliot clock`: shows the server's time, and moves a test clock. */

#include "cli/client.h"
#include "cli/show.h"

static const char *advance, *to;
static bool as_json;

static void put_turn(struct out *body)
{
    out_text(body, "{");
    out_key(body, advance ? "advance" : "to");
    out_string(body, bytes_of(advance ? advance : to));
    out_text(body, "}");
}

static int run(void)
{
    struct client client;
    struct out path = {0}, body = {0}, answer = {0};
    struct json clock;
    bool turns = advance || to;
    if (advance && to)
        return cli_usage(&clock_command, "give --advance or --to, not both;");
    int status = client_open(&client, &clock_command);
    if (status != CLI_OK)
        return status;
    put_path(&path, "/v1/clock", NULL);
    if (turns)
        put_turn(&body);
    status = client_ask(&client, turns ? "POST" : "GET", &path, turns ? &body : NULL, &answer, &clock);
    if (status == CLI_OK && as_json)
        show_json(clock);
    else if (status == CLI_OK)
        show_object(clock);
    out_free(&path);
    out_free(&body);
    out_free(&answer);
    client_close(&client);
    return status;
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
