/* SPDX-License-Identifier: MIT */
/* `foliot pause` and `foliot resume`: nothing in a namespace begins while it is paused. */

#include "cli/ask.h"

static const char *ns, *reason, *until;
static bool as_json, skip;

static int put_pause(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, "{");
    if (reason) {
        out_key(body, "reason");
        out_string(body, bytes_of(reason));
    }
    if (until) {
        out_key(body, "until");
        out_string(body, bytes_of(until));
    }
    out_text(body, "}");
    return CLI_OK;
}

static int put_resume(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, skip ? "{\"missed\":\"skip\"}" : "{}");
    return CLI_OK;
}

static int run_pause(void)
{
    return ask_and_show(&(struct ask){.command = &pause_command,
                                      .method = "POST",
                                      .path = {"/v1/namespaces", ns, "pause"},
                                      .body = put_pause,
                                      .as_json = as_json});
}

static int run_resume(void)
{
    return ask_and_show(&(struct ask){.command = &resume_command,
                                      .method = "POST",
                                      .path = {"/v1/namespaces", ns, "resume"},
                                      .body = put_resume,
                                      .as_json = as_json});
}

static const struct cli_option pause_options[] = {
    {"reason", "TEXT", "why; shown with the namespace", .text = &reason},
    {"until", "TIME", "resume at TIME, such as 2030-01-31T09:00:00Z; default: until foliot resume", .text = &until},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

static const struct cli_option resume_options[] = {
    {"skip", "", "do not fire the timers that became due during the pause", .flag = &skip},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "the namespace", &ns, false}, {0}};

const struct cli_command pause_command = {
    .name = "pause",
    .summary = "pauses a namespace: its timers wait",
    .options = pause_options,
    .arguments = arguments,
    .run = run_pause,
};
const struct cli_command resume_command = {
    .name = "resume",
    .summary = "resumes a namespace that is paused",
    .options = resume_options,
    .arguments = arguments,
    .run = run_resume,
};
