/* SPDX-License-Identifier: MIT */
/* `foliot pause` and `foliot resume`: nothing in a namespace, or to a host, begins while it is paused. */

#include "cli/ask.h"
#include "cli/content.h"

static const char *ns, *host, *reason, *until;
static bool as_json, skip;

static int put_pause(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, "{");
    if (reason) {
        out_key(body, "reason");
        out_string(body, bytes_of(reason));
    }
    if (until)
        put_time(body, "until", until);
    out_text(body, "}");
    return CLI_OK;
}

static int put_resume(const struct client *client, struct out *body)
{
    (void)client;
    out_text(body, skip ? "{\"missed\":\"skip\"}" : "{}");
    return CLI_OK;
}

static int ask_for(const struct cli_command *command, const char *what,
                   int (*body)(const struct client *client, struct out *body))
{
    if (!ns == !host)
        return cli_usage(command, "give either NAMESPACE or --host;");
    return ask_and_show(&(struct ask){.command = command,
                                      .method = "POST",
                                      .path = {host ? "/v1/hosts" : "/v1/namespaces", host ? host : ns, what},
                                      .body = body,
                                      .as_json = as_json});
}

static int run_pause(void)
{
    return ask_for(&pause_command, "pause", put_pause);
}

static int run_resume(void)
{
    return ask_for(&resume_command, "resume", put_resume);
}

#define HOST_OPTION                                                                                               \
    {                                                                                                             \
        "host", "HOST:PORT", "instead of a namespace: calls of this host, such as example.com:443", .text = &host \
    }

static const struct cli_option pause_options[] = {
    HOST_OPTION,
    {"reason", "TEXT", "why; shown with the namespace or host", .text = &reason},
    {"until", "TIME", "resume at TIME, such as 2030-01-31T09:00:00Z; default: until foliot resume", .text = &until,
     .format = &cli_time},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

static const struct cli_option resume_options[] = {
    HOST_OPTION,
    {"skip", "", "do not fire the timers that became due during the pause", .flag = &skip},
    {"json", "", "print JSON", .flag = &as_json},
    {0},
};

static const struct cli_argument arguments[] = {{"NAMESPACE", "the namespace", &ns, true}, {0}};

const struct cli_command pause_command = {
    .name = "pause",
    .summary = "pauses a namespace or a host: its timers wait",
    .options = pause_options,
    .arguments = arguments,
    .run = run_pause,
};
const struct cli_command resume_command = {
    .name = "resume",
    .summary = "resumes a namespace or a host that is paused",
    .options = resume_options,
    .arguments = arguments,
    .run = run_resume,
};
